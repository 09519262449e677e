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

use spokeshave_lambda::{
    BatchAnswer, SqsBatch,
    batch::{Item, reference, stand_by},
};
use spokeshave_model::{Kind, NodeClaim};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Decision, Ec2, Invocation, Key, Queues, StateError,
    StateTable, chain, invocation::whole_second, wakes::WakeError,
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
        chain(self)
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
    if let Some(answer) = stand_by(batch, state, cx).await {
        return answer;
    }
    let mut answer = BatchAnswer::done();
    let world = World::new(cluster);
    let now = cx.whole_second();
    let mut targets = Targets::default();
    for Item { position, record, work } in batch.works(cx) {
        let sent_at = record.sent_at().map_or(now, whole_second).min(now);
        if let Err(error) = targets.add(position, &work, sent_at, cluster, &world).await {
            cx.decide(Decision::new("retry", reference(record), error.text()).caused_by(&error));
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
            cx.decide(Decision::new("fail", object, error.text()).caused_by(&error).as_error());
            continue;
        }
        cx.decide(Decision::new("retry", object, error.text()).caused_by(&error));
        let key = Key { kind: NodeClaim::KIND.into(), name: name.clone(), ..Key::default() };
        let to = (queues, cx.concern);
        answer.come_back(batch, &target.records, key, target.failures, to).await;
    }
    answer
}
