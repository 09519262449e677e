//! The Lambda function that tags instances with what is known once their node is there.

use std::error::Error;

use spokeshave_ec2::Ec2Api;
use spokeshave_kwok::{Kwok, Profile};
use spokeshave_lambda::{runtime::Startup, stack::Stack};
use spokeshave_ports::Concern;
use spokeshave_tagging_function::handle_unless_observing;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let start = Startup::from_env(Concern::Tagging)?;
    let stack = Stack::connect(&start.settings).await?;
    let ec2 = Ec2Api::new(&stack.aws);
    let kwok = Profile::of(&start.settings.ec2_mode, &start.settings.kwok)?;
    start
        .run(&stack.queues, async |batch, cx| {
            let ec2 = Kwok::new(&ec2, &stack.state, kwok.as_ref(), cx);
            let cluster = stack.cluster.as_ref();
            handle_unless_observing(batch, cluster, &ec2, &stack.state, &stack.queues, cx).await
        })
        .await
}
