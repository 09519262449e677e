//! The Lambda function that looks for new instance types, prices and what changed in them.

use std::error::Error;

use spokeshave_aws::{PriceList, RecoveryController};
use spokeshave_catalog_refresh_function::handle;
use spokeshave_ec2::Ec2Api;
use spokeshave_kwok::{Kwok, Profile};
use spokeshave_lambda::{runtime::Startup, stack::Stack};
use spokeshave_ports::Concern;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let start = Startup::from_env(Concern::CatalogRefresh)?;
    let stack = Stack::connect(&start.settings).await?;
    let ec2 = Ec2Api::new(&stack.aws);
    let kwok = Profile::of(&start.settings.ec2_mode, &start.settings.kwok)?;
    let shifts = RecoveryController::new(&stack.aws);
    let pricing = PriceList::new(&stack.aws, &start.settings.region);
    start
        .run(&stack.queues, async |batch, cx| {
            let ec2 = Kwok::new(&ec2, &stack.state, kwok.as_ref(), cx);
            handle(batch, &ec2, &pricing, &shifts, &stack.state, &stack.queues, cx).await
        })
        .await
}
