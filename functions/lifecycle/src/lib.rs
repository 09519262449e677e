//! The function `lifecycle`: keeps living NodeClaims and their Nodes in step with each other.
//!
//! Work names NodeClaims, Nodes, Pods, NodePools or EC2NodeClasses; all lead to claims, and each claim is read fresh
//! and reconciled once per batch, however many messages name it. `spokeshave_lifecycle::claim` decides; this crate
//! reads, carries out, and arranges to be woken.

mod drift;
mod health;
mod memory;
mod reconcile;
mod repair;
mod targets;
mod world;

use jiff::Timestamp;
use spokeshave_lambda::{BatchAnswer, SqsBatch};
use spokeshave_model::{Kind, NodeClaim};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Decision, Ec2, Invocation, Key, Queues, StateError,
    StateTable, stack,
    wakes::{self, WakeError},
};

use crate::{drift::Evidence, reconcile::Reconciler, targets::Targets, world::World};

/// Why a claim could not be brought further in this run.
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
}

impl Trouble {
    /// Somebody else wrote first: a fresh look helps at once.
    fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::Cluster(ClusterError::Conflict { .. }) | Self::State(StateError::Conflict(_))
        )
    }

    /// Another try later may help.
    fn is_retryable(&self) -> bool {
        match self {
            Self::Cluster(error) => error.is_retryable(),
            Self::Aws(error) => error.is_retryable(),
            Self::State(_) | Self::Wake(_) => true,
        }
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
    let world = World::new(cluster);
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
        let sent_at = record.sent_at().map_or(now, whole_seconds).min(now);
        if let Err(error) = targets.add(index, &work, sent_at, cluster, &world).await {
            let object = format!("Message/{}", record.message_id);
            cx.decide(Decision::new("retry", object, error.text()));
            answer.retry(record);
        }
    }
    let evidence = Evidence::default();
    let reconciler =
        Reconciler { cluster, ec2, state, queues, world: &world, evidence: &evidence, cx, now };
    let by_instance = |name: &str| targets.claims.get(name).is_some_and(|it| it.instance);
    if targets.claims.values().any(|it| it.instance)
        && let Ok(claims) = world.claims().await
    {
        let mut claims = claims.to_vec();
        claims.retain(|it| by_instance(&it.metadata.name));
        reconciler.prefetch(&claims).await;
    }
    for (name, target) in &targets.claims {
        let Err(error) = reconciler.run(name, target).await else { continue };
        let object = format!("NodeClaim/{name}");
        if !error.is_retryable() {
            cx.decide(Decision::new("fail", object, error.text()).as_error());
            continue;
        }
        cx.decide(Decision::new("retry", object, error.text()));
        let key = Key { kind: NodeClaim::KIND.into(), name: name.clone(), ..Key::default() };
        if !wakes::retry_later(queues, cx.concern, key, target.failures).await {
            for record in target.records.iter().filter_map(|index| batch.records.get(*index)) {
                if !answer.failures.iter().any(|it| it.message_id == record.message_id) {
                    answer.retry(record);
                }
            }
        }
    }
    answer
}

/// Kubernetes writes times without a fraction.
fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
