//! Keeps NodePools up to date: hash annotations, counters, validation, readiness and registration health.
//!
//! What a pool should look like is worked out by [`pool::decide`] from the pool, its class, its claims and their nodes; this
//! crate reads them and writes what differs. Nothing here wakes itself: pools change only when something they depend on does, and the
//! sweep brings the counters back in line.

pub mod pool;
pub mod shifts;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use spokeshave_catalog::zonal_shift;
use spokeshave_lambda::{
    BatchAnswer, SqsBatch,
    batch::{Item, stand_by},
};
use spokeshave_lifecycle::health;
use spokeshave_model::{EC2NodeClass, Kind, NodeClaim, NodePool, ObjectKey, core::Node, labels};
use spokeshave_ports::{
    Cluster, ClusterError, Decision, Invocation, Key, Precondition, Selector, StateError, StateKey,
    StateTable, When, Work, chain,
};

use pool::View;

/// Which pools a message is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Pool(String),
    /// The pools of an EC2NodeClass.
    OfClass(String),
    All,
}

/// Why a pool could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("state table")]
    State(#[from] StateError),
}

impl Trouble {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Cluster(error) => error.is_retryable(),
            Self::State(_) => true,
        }
    }
}

/// Handles a batch of the nodepool queue.
pub async fn handle(
    batch: &SqsBatch,
    cluster: &impl Cluster,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> BatchAnswer {
    if let Some(answer) = stand_by(batch, state, cx).await {
        return answer;
    }
    let mut answer = BatchAnswer::done();
    let mut wanted = Vec::new();
    for Item { record, work, .. } in batch.works(cx) {
        if work.reason == zonal_shift::CHANGED_REASON {
            if let Err(error) = shifts::tell(cluster, state, cx).await {
                cx.decide(Decision::new("retry", "Zone/", chain(&error)).caused_by(&error));
                answer.retry(record);
            }
            continue;
        }
        wanted.push((record, targets(cluster, &work).await));
    }
    let all: BTreeSet<Target> =
        wanted.iter().flat_map(|(_, targets)| targets.iter().flatten().cloned()).collect();
    let troubled = match refresh(&all, cluster, state, cx).await {
        Ok(troubled) => troubled,
        Err(error) => {
            cx.decide(
                Decision::new("list", NodePool::KIND, chain(&error)).caused_by(&error).as_error(),
            );
            BTreeSet::from([Target::All])
        }
    };
    for (record, targets) in wanted {
        let is_troubled = |it: &Target| {
            troubled.contains(&Target::All) || troubled.contains(it) || *it == Target::All
        };
        let again = match targets {
            Ok(targets) => !troubled.is_empty() && targets.iter().any(is_troubled),
            Err(error) => error.is_retryable(),
        };
        if again {
            answer.retry(record);
        }
    }
    answer
}

/// The pools that `work` is about. An object that is gone cannot say its pool, so all are looked at.
async fn targets(cluster: &impl Cluster, work: &Work) -> Result<BTreeSet<Target>, ClusterError> {
    if work.keys.is_empty() {
        return Ok(BTreeSet::from([Target::All]));
    }
    let mut targets = BTreeSet::new();
    for key in &work.keys {
        let target = match key.kind.as_str() {
            NodePool::KIND => Some(Target::Pool(key.name.clone())),
            EC2NodeClass::KIND => Some(Target::OfClass(key.name.clone())),
            NodeClaim::KIND => Some(of_labelled::<NodeClaim>(cluster, key).await?),
            Node::KIND => Some(of_labelled::<Node>(cluster, key).await?),
            _ => None,
        };
        targets.extend(target);
    }
    if targets.contains(&Target::All) {
        targets = BTreeSet::from([Target::All]);
    }
    Ok(targets)
}

async fn of_labelled<K: Kind>(cluster: &impl Cluster, key: &Key) -> Result<Target, ClusterError> {
    let object = cluster.get::<K>(&ObjectKey::cluster(&key.name)).await?;
    let pool = object.as_ref().and_then(|it| it.meta().label(labels::NODEPOOL));
    Ok(pool.map_or(Target::All, |pool| Target::Pool(pool.to_owned())))
}

/// Brings the pools of `targets` up to date; returns those targets that need another try.
async fn refresh(
    targets: &BTreeSet<Target>,
    cluster: &impl Cluster,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> Result<BTreeSet<Target>, Trouble> {
    let mut troubled = BTreeSet::new();
    if targets.is_empty() {
        return Ok(troubled);
    }
    let pools: Vec<Arc<NodePool>> = match targets.iter().next() {
        // One pool is read alone: the usual case.
        Some(Target::Pool(name)) if targets.len() == 1 => {
            cluster.get(&ObjectKey::cluster(name)).await?.into_iter().collect()
        }
        _ => cluster.list(&Selector::all()).await?,
    };
    let mut classes: BTreeMap<String, Option<Arc<EC2NodeClass>>> = BTreeMap::new();
    for pool in &pools {
        let class = &pool.spec.template.spec.node_class_ref;
        if !class.is_managed() && class.unserved().is_none() {
            continue;
        }
        let class = class.name.clone();
        let because =
            [Target::All, Target::Pool(pool.metadata.name.clone()), Target::OfClass(class.clone())];
        if !because.iter().any(|it| targets.contains(it)) {
            continue;
        }
        let class = match classes.get(&class) {
            _ if !pool.is_managed() => None,
            Some(class) => class.clone(),
            None => {
                let found = cluster.get::<EC2NodeClass>(&ObjectKey::cluster(&class)).await?;
                classes.insert(class, found.clone());
                found
            }
        };
        match refresh_pool(pool, class, cluster, state, cx).await {
            Ok(()) | Err(Trouble::Cluster(ClusterError::NotFound { .. })) => {}
            Err(error) => {
                let is_retryable = error.is_retryable();
                let decision =
                    Decision::new("refresh", pool.reference(), chain(&error)).caused_by(&error);
                cx.decide(if is_retryable { decision } else { decision.as_error() });
                if is_retryable {
                    troubled.extend(because.into_iter().filter(|it| targets.contains(it)));
                }
            }
        }
    }
    Ok(troubled)
}

/// Writes what differs on one pool. Hashes come before the status, and the claims' before the pool's: a run that dies in between
/// is finished by the next.
async fn refresh_pool(
    pool: &Arc<NodePool>,
    class: Option<Arc<EC2NodeClass>>,
    cluster: &impl Cluster,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> Result<(), Trouble> {
    if let Some(told) = pool::unserved(pool, cx.now) {
        if told.status != pool.status {
            cluster.patch_status(&**pool, &told, Precondition::ResourceVersion).await?;
            let reason = "NodeClassReady: False, NodeClassNotFound";
            cx.decide(Decision::new("set-condition", pool.reference(), reason));
        }
        return Ok(());
    }
    let of_pool = Selector::label(labels::NODEPOOL, pool.name());
    let claims = cluster.list::<NodeClaim>(&of_pool).await?;
    let nodes = cluster.list::<Node>(&of_pool).await?;
    let view = View { pool, class: class.as_deref(), claims: &claims, nodes: &nodes };
    let change = pool::decide(&view, cx.now);
    let mut failed = None;
    for (claim, new) in &change.claims {
        match cluster.patch(*claim, new, Precondition::Uid).await {
            Ok(_) => {
                let version = spokeshave_model::hash::NODE_POOL_VERSION;
                let reason = format!("pool hash version becomes {version}");
                cx.decide(Decision::new("annotate", claim.reference(), reason));
            }
            Err(ClusterError::NotFound { .. }) => {}
            Err(error) => failed = Some(error),
        }
    }
    if let Some(error) = failed {
        // The pool keeps its old pair, so that the migration is taken up again.
        return Err(error.into());
    }
    let mut current = Arc::clone(pool);
    if change.pool.metadata != pool.metadata {
        let mut annotated = (**pool).clone();
        annotated.metadata = change.pool.metadata.clone();
        current = cluster.patch(&**pool, &annotated, Precondition::Uid).await?;
        cx.decide(Decision::new("annotate", pool.reference(), "pool hash"));
    }
    if change.forget_registrations {
        // Forgotten before the condition says so: repeated if we die in between.
        let key = StateKey::new(health::PARTITION, pool.metadata.uid.as_str());
        state.remove(&key, When::Always).await?;
    }
    if change.pool.status != pool.status {
        // Worked out from the version that was read: whatever was written since makes this a conflict.
        if current.metadata.generation != pool.metadata.generation || current.status != pool.status
        {
            return Err(ClusterError::Conflict { object: pool.reference() }.into());
        }
        let mut told = (*current).clone();
        told.status = change.pool.status.clone();
        cluster.patch_status(&*current, &told, Precondition::ResourceVersion).await?;
        for (type_, reason) in &change.verdicts {
            cx.decide(Decision::new(
                "set-condition",
                pool.reference(),
                format!("{type_}: {reason}"),
            ));
        }
    }
    pool::measure(&change.pool, cx);
    Ok(())
}

#[cfg(test)]
mod tests;
