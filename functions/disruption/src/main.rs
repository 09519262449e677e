//! The Lambda function that looks for nodes to replace or remove, and carries commands on.

// A pass of a solver is one future of many: deeper than the compiler looks by itself.
#![recursion_limit = "256"]

use std::error::Error;

use spokeshave_disruption_function::handle;
use spokeshave_lambda::{runtime::Startup, stack::Stack};
use spokeshave_ports::{Concern, WallClock};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let start = Startup::from_env(Concern::Disruption)?;
    let stack = Stack::connect(&start.settings).await?;
    start
        .run_solver(&stack.queues, async |batch, cx| {
            let Stack { cluster, state, queues, .. } = &stack;
            handle(batch, cluster.as_ref(), state, queues, &WallClock, cx).await
        })
        .await
}
