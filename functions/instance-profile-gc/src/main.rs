//! The Lambda function that deletes instance profiles that nobody needs.

use std::error::Error;

use spokeshave_aws::IamApi;
use spokeshave_instance_profile_gc_function::handle;
use spokeshave_lambda::{runtime::Startup, stack::Stack};
use spokeshave_ports::Concern;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let start = Startup::from_env(Concern::InstanceProfileGc)?;
    let stack = Stack::connect(&start.settings).await?;
    let iam = IamApi::new(&stack.aws);
    start
        .run(&stack.queues, async |batch, cx| {
            handle(batch, stack.cluster.as_ref(), &iam, &stack.state, cx).await
        })
        .await
}
