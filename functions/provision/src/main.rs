//! The Lambda function that finds claims for pods that wait.

use std::error::Error;

use spokeshave_lambda::{runtime::Startup, stack::Stack};
use spokeshave_ports::Concern;
use spokeshave_provision_function::handle;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let start = Startup::from_env(Concern::Provision)?;
    let stack = Stack::connect(&start.settings).await?;
    start
        .run_solver(&stack.queues, async |batch, cx| {
            handle(batch, stack.cluster.as_ref(), &stack.state, &stack.queues, cx).await
        })
        .await
}
