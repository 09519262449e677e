//! The Lambda function that tags instances with what is known once their node is there.

use std::error::Error;

use spokeshave_ec2::Ec2Api;
use spokeshave_lambda::{runtime::Startup, stack::Stack};
use spokeshave_ports::Concern;
use spokeshave_tagging_function::handle;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let start = Startup::from_env(Concern::Tagging)?;
    let stack = Stack::connect(&start.settings).await?;
    let ec2 = Ec2Api::new(&stack.aws);
    start
        .run(async |batch, cx| handle(batch, stack.cluster.as_ref(), &ec2, &stack.queues, cx).await)
        .await
}
