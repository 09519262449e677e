//! The Lambda function that makes instances for claims.

use std::error::Error;

use spokeshave_ec2::Ec2Api;
use spokeshave_kwok::{Kwok, Profile};
use spokeshave_lambda::{runtime::Startup, stack::Stack};
use spokeshave_launch_function::handle;
use spokeshave_ports::Concern;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let start = Startup::from_env(Concern::Launch)?;
    let stack = Stack::connect(&start.settings).await?;
    let ec2 = Ec2Api::new(&stack.aws);
    let kwok = Profile::of(&start.settings.ec2_mode, &start.settings.kwok)?;
    start
        .run(&stack.queues, async |batch, cx| {
            let ec2 = Kwok::new(&ec2, &stack.state, kwok.as_ref(), cx);
            handle(batch, stack.cluster.as_ref(), &ec2, &stack.state, &stack.queues, cx).await
        })
        .await
}
