//! The Lambda function that keeps hashes, counters and readiness of NodePools.

use std::error::Error;

use spokeshave_lambda::{runtime::Startup, stack::Stack};
use spokeshave_nodepool_function::handle;
use spokeshave_ports::Concern;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let start = Startup::from_env(Concern::Nodepool)?;
    let stack = Stack::connect(&start.settings).await?;
    start
        .run(&stack.queues, async |batch, cx| {
            handle(batch, stack.cluster.as_ref(), &stack.state, cx).await
        })
        .await
}
