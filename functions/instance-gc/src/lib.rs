//! Keeps claims and instances in step: instances without a claim are terminated, claims without an instance deleted, and
//! instances that EC2 says are broken are reported to interruption.
//!
//! Every minute, and whenever a Node or NodeClaim went without being finalized. Order matters: claims are listed before
//! *and* after the instances, so that neither an instance launched in between nor a claim saved in between is taken for
//! lost. Only instances that carry this cluster's name in their tags are ever touched.
//!
//! DIFFERENCE: Karpenter resolves each instance's type through its pool and class, so that one broken class stops
//! the whole collection. Only id, state, launch time and tags are read here.

mod health;
mod sweep;

use spokeshave_kwok::interrupt::interrupt;
use spokeshave_lambda::{BatchAnswer, SqsBatch, SqsRecord, batch::stand_by};
use spokeshave_model::NodeClaim;
use spokeshave_ports::{Cluster, Decision, Ec2, Invocation, Queues, Selector, StateTable, chain};

pub use sweep::{Claim, LAUNCH_TIMEOUT, MIN_AGE, MIN_AGE_UNNAMED, Verdict, instance_verdict};

/// Handles a batch of the queue: whatever the messages say, everything is looked at, once.
pub async fn handle(
    batch: &SqsBatch,
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> BatchAnswer {
    if let Some(answer) = stand_by(batch, state, cx).await {
        return answer;
    }
    let readable: Vec<&SqsRecord> = batch.works(cx).map(|it| it.record).collect();
    let mut answer = BatchAnswer::done();
    if readable.is_empty() {
        return answer;
    }
    let swept = sweep::run(cluster, ec2, state, cx).await;
    let polled = health::run(cluster, ec2, state, queues, cx).await;
    let interrupted = interrupt_on_demand(cluster, ec2, state, queues, cx).await;
    if swept.is_err() || polled.is_err() || interrupted.is_err() {
        // One message is enough to come back.
        readable.first().into_iter().for_each(|it| answer.retry(it));
    }
    answer
}

/// KWOK mode: interrupts the instances whose claim or Node asks for it.
async fn interrupt_on_demand(
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> Result<(), TryAgain> {
    if cx.settings.ec2_mode != "kwok" {
        return Ok(());
    }
    let done = match cluster.list::<NodeClaim>(&Selector::all()).await {
        Ok(claims) => {
            let claims = claims.iter().map(AsRef::as_ref);
            interrupt(claims, cluster, ec2, state, queues, cx).await
        }
        Err(error) => Err(error.into()),
    };
    done.map_err(|error| {
        let decision = Decision::new("retry", "NodeClaim/all", chain(&error)).caused_by(&error);
        cx.decide(decision.as_error());
        TryAgain
    })
}

/// Something may pass by itself: come back. What was wrong is recorded already.
#[derive(Debug)]
pub(crate) struct TryAgain;
