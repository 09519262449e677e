//! The Lambda function that drains and ends nodes and their instances.

use std::error::Error;

use spokeshave_aws::AutoScalingGroups;
use spokeshave_ec2::Ec2Api;
use spokeshave_kwok::{Kwok, Profile};
use spokeshave_lambda::{runtime::Startup, stack::Stack};
use spokeshave_ports::Concern;
use spokeshave_termination_function::handle;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let start = Startup::from_env(Concern::Termination)?;
    let stack = Stack::connect(&start.settings).await?;
    let ec2 = Ec2Api::new(&stack.aws);
    let groups = AutoScalingGroups::new(&stack.aws);
    let kwok = Profile::of(&start.settings.ec2_mode, &start.settings.kwok)?;
    start
        .run(&stack.queues, async |batch, cx| {
            let ec2 = Kwok::new(&ec2, &stack.state, kwok.as_ref(), cx);
            let cluster = stack.cluster.as_ref();
            handle(batch, cluster, &ec2, &groups, &stack.state, &stack.queues, cx).await
        })
        .await
}
