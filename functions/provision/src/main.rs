//! The Lambda function that finds claims for pods that wait.

// A pass of a solver is one future of many: deeper than the compiler looks by itself.
#![recursion_limit = "256"]

use std::error::Error;

use spokeshave_lambda::{runtime::Startup, stack::Stack};
use spokeshave_ports::{Concern, WallClock};
use spokeshave_provision_function::handle;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let start = Startup::from_env(Concern::Provision)?;
    let stack = Stack::connect(&start.settings).await?;
    start
        .run_solver(&stack.queues, async |batch, cx| {
            let Stack { cluster, state, queues, .. } = &stack;
            handle(batch, cluster.as_ref(), state, queues, &WallClock, cx).await
        })
        .await
}
