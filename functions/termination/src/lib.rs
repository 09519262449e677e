//! The function `termination`: ends NodeClaims and Nodes that are being deleted, without losing a pod's grace or
//! leaking an instance.
//!
//! Work names NodeClaims, Nodes, Pods, PodDisruptionBudgets or VolumeAttachments; all lead to claims and nodes that
//! are being deleted. `spokeshave_lifecycle::termination` decides; this crate reads what it asks for, carries out,
//! and arranges to be woken. A node that is done hands over to its claim within the same run, and the other way round.

mod eviction;
mod failure;
mod hooks;
mod launch;
mod run;
mod targets;

use spokeshave_lambda::{
    BatchAnswer, SqsBatch,
    batch::{Item, reference, stand_by},
};
use spokeshave_model::{InstanceId, Kind, NodeClaim, core::Node};
use spokeshave_ports::{
    AutoScaling, AwsError, Cluster, ClusterError, Decision, Ec2, Invocation, Key, Queues,
    StateError, StateTable, chain, wakes::WakeError,
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
    /// Traffic is shifted away from the instance's zone: it is not touched before that is over.
    #[error("instance {0} is in zone {1} ({2}), which traffic is shifted away from")]
    Shifted(InstanceId, String, String),
    /// EC2 refuses to terminate the instance of this claim.
    #[error("instance {0} may not be terminated")]
    Refused(InstanceId, Option<String>, #[source] AwsError),
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
        chain(self)
    }
}

/// One object is looked at so often in one run; what is left then is woken for.
const MOST_LOOKS: u32 = 6;

/// Handles a batch.
pub async fn handle(
    batch: &SqsBatch,
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    groups: &impl AutoScaling,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> BatchAnswer {
    if let Some(answer) = stand_by(batch, state, cx).await {
        return answer;
    }
    let mut answer = BatchAnswer::done();
    let now = cx.whole_second();
    let mut targets = Targets::default();
    for Item { position, record, work } in batch.works(cx) {
        let added = match targets.add(position, &work, cluster).await {
            // What is about every drain is about the nodes of waiting hooks, too.
            Ok(()) if cx.settings.lifecycle_hooks && targets::is_about_all(&work) => {
                hooks::nodes(state).await.map_err(Trouble::from).map(|nodes| {
                    nodes
                        .into_iter()
                        .for_each(|it| targets.note(Object::Node(it), position, &work));
                })
            }
            added => added.map_err(Trouble::from),
        };
        if let Err(error) = added {
            let decision = Decision::new("retry", reference(record), error.text());
            cx.decide(decision.caused_by(&error));
            answer.retry(record);
        }
    }
    let instances = Instances::default();
    let run = Run { cluster, ec2, groups, state, queues, cx, now, instances: &instances };
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
                cx.decide(Decision::new("retry", name, error.text()).caused_by(&error));
                run.tell(&object, &error, target.failures).await;
                let is_shifted = matches!(error, Trouble::Shifted(..));
                if is_shifted && run.wait_for_shift(key.clone(), target.depth).await {
                    continue;
                }
                let to = (queues, cx.concern);
                answer.come_back(batch, &target.records, key, target.failures, to).await;
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
