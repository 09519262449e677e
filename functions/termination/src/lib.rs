//! The function `termination`: ends NodeClaims and Nodes that are being deleted, without losing a pod's grace or
//! leaking an instance.
//!
//! Work names NodeClaims, Nodes, Pods, PodDisruptionBudgets or VolumeAttachments; all lead to claims and nodes that
//! are being deleted. `spokeshave_lifecycle::termination` decides; this crate reads what it asks for, carries out,
//! and arranges to be woken. A node that is done hands over to its claim within the same run, and the other way round.

mod eviction;
mod launch;
mod run;
mod targets;

use jiff::Timestamp;
use spokeshave_lambda::{BatchAnswer, SqsBatch};
use spokeshave_model::{InstanceId, Kind, NodeClaim, core::Node};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Decision, Ec2, Invocation, Key, Queues, StateError,
    StateTable, stack,
    wakes::{self, WakeError},
};

use crate::{
    run::{Instances, Run},
    targets::{Object, Targets},
};

/// Why an object could not be brought further in this run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("cluster")]
    Cluster(#[from] ClusterError),
    #[error("state table")]
    State(#[from] StateError),
    #[error("AWS")]
    Aws(#[from] AwsError),
    #[error("wake-up")]
    Wake(#[from] WakeError),
    /// EC2 refuses to terminate.
    #[error("instance {0} may not be terminated")]
    Refused(InstanceId, #[source] AwsError),
}

impl Trouble {
    /// Somebody else wrote first: a fresh look helps at once.
    fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::Cluster(ClusterError::Conflict { .. }) | Self::State(StateError::Conflict(_))
        )
    }

    /// The error with its sources, once.
    fn text(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    }
}

/// One object is looked at so often in one run; what is left then is woken for.
const MOST_LOOKS: u32 = 6;

/// Handles a batch.
pub async fn handle(
    batch: &SqsBatch,
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> BatchAnswer {
    let mut answer = BatchAnswer::done();
    match stack::observes_only(state).await {
        Ok(false) => {}
        // Another autoscaler is at work; once it is gone, the bridge tells us everything anew.
        Ok(true) => return answer,
        Err(error) => {
            let reason = Trouble::from(error).text();
            cx.decide(Decision::new("retry", "StateTable/stack", reason));
            batch.records.iter().for_each(|it| answer.retry(it));
            return answer;
        }
    }
    let now = whole_seconds(cx.now);
    let mut targets = Targets::default();
    for (index, record) in batch.records.iter().enumerate() {
        let work = match record.work() {
            Ok(work) => work,
            Err(error) => {
                let reason = format!("malformed message: {error}");
                let object = format!("Message/{}", record.message_id);
                cx.decide(Decision::new("drop", object, reason).as_error());
                continue;
            }
        };
        if let Err(error) = targets.add(index, &work, cluster).await {
            let reason = Trouble::from(error).text();
            let object = format!("Message/{}", record.message_id);
            cx.decide(Decision::new("retry", object, reason));
            answer.retry(record);
        }
    }
    let instances = Instances::default();
    let run = Run { cluster, ec2, state, queues, cx, now, instances: &instances };
    run.prefetch(&targets).await;
    while let Some((object, target)) = targets.next(MOST_LOOKS) {
        match run.look(&object, &target).await {
            Ok(follow_ups) => follow_ups.into_iter().for_each(|it| targets.follow(it, &target)),
            Err(error) if error.is_conflict() && target.looks < MOST_LOOKS => {
                targets.again(object);
            }
            Err(error) => {
                let key = object.key();
                let name = format!("{}/{}", key.kind, key.name);
                cx.decide(Decision::new("retry", name, error.text()));
                if !wakes::retry_later(queues, cx.concern, key, target.failures).await {
                    for record in target.records.iter().filter_map(|it| batch.records.get(*it)) {
                        if !answer.failures.iter().any(|it| it.message_id == record.message_id) {
                            answer.retry(record);
                        }
                    }
                }
            }
        }
    }
    answer
}

impl Object {
    fn key(&self) -> Key {
        let (kind, name) = match self {
            Self::Claim(name) => (NodeClaim::KIND, name),
            Self::Node(name) => (Node::KIND, name),
        };
        Key { kind: kind.into(), name: name.clone(), ..Key::default() }
    }
}

/// Kubernetes writes times without a fraction.
fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
