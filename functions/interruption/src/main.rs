//! The Lambda function that acts on what AWS says is about to happen to instances.

use std::error::Error;

use spokeshave_interruption_function::handle;
use spokeshave_lambda::{runtime::Startup, stack::Stack};
use spokeshave_ports::Concern;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let start = Startup::from_env(Concern::Interruption)?;
    let stack = Stack::connect(&start.settings).await?;
    start
        .run(&stack.queues, async |batch, cx| {
            handle(batch, stack.cluster.as_ref(), &stack.state, &stack.queues, cx).await
        })
        .await
}
