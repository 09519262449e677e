//! Remembers for a pool whether its claims come up.

use spokeshave_lifecycle::{
    health::{Outcomes, PARTITION, Verdict},
    liveness,
};
use spokeshave_model::{
    ConditionStatus, Kind, NodeClaim, NodePool,
    conditions::{self, ConditionSet},
};
use spokeshave_ports::{Cluster, Precondition, StateKey, StateTable, When};

use crate::{Trouble, reconcile::Reconciler};

impl<C: Cluster, E, S: StateTable, Q> Reconciler<'_, C, E, S, Q> {
    /// Adds one outcome to the pool that owns `claim`, and says so in its condition when the verdict changes.
    ///
    /// The outcome is stored first and counts once per claim: killed in between, the next run writes the condition.
    pub async fn note_registration(&self, claim: &NodeClaim, healthy: bool) -> Result<(), Trouble> {
        let Some(pool) = self.world.pool_of(claim).await? else { return Ok(()) };
        let owns = |it: &spokeshave_model::OwnerReference| {
            it.kind == NodePool::KIND && it.uid == pool.metadata.uid
        };
        if !claim.metadata.owner_references.iter().any(owns) {
            return Ok(());
        }
        let key = StateKey::new(PARTITION, pool.metadata.uid.as_str());
        let record = self.state.read(&key).await?;
        let condition =
            conditions::find(&pool.status.conditions, NodePool::NODE_REGISTRATION_HEALTHY);
        let status = condition.map(|it| it.status);
        let said = status.filter(|it| *it != ConditionStatus::Unknown);
        let mut outcomes = record
            .as_ref()
            .and_then(|it| serde_json::from_value::<Outcomes>(it.data.clone()).ok())
            .filter(|it| !it.outcomes.is_empty())
            .unwrap_or_else(|| Outcomes::recovered(said.map(|it| it == ConditionStatus::True)));
        if outcomes.add(&claim.metadata.uid, healthy) {
            let when = record.map_or(When::Absent, |it| When::Version(it.version));
            let data = serde_json::to_value(&outcomes).unwrap_or_default();
            self.state.write(&key, data, None, when).await?;
        }
        let verdict = match (healthy, outcomes.verdict()) {
            (true, Verdict::Healthy) => Some(ConditionStatus::True),
            (false, Verdict::Unhealthy) => Some(ConditionStatus::False),
            _ => None,
        };
        if let Some(verdict) = verdict.filter(|it| Some(*it) != status) {
            let (reason, message) = match verdict {
                ConditionStatus::True => {
                    (NodePool::NODE_REGISTRATION_HEALTHY.into(), String::new())
                }
                _ => liveness::failure(claim),
            };
            let mut changed = (*pool).clone();
            let mut set = ConditionSet {
                generation: changed.metadata.generation,
                created: changed.metadata.creation_timestamp.unwrap_or(self.now),
                deleting: changed.metadata.deleting(),
                conditions: &mut changed.status.conditions,
                dependents: NodePool::DEPENDENTS,
            };
            set.set(NodePool::NODE_REGISTRATION_HEALTHY, verdict, &reason, &message, self.now);
            self.world.put_pool(&pool.metadata.name, None);
            let guard = Precondition::ResourceVersion;
            let stored = self.cluster.patch_status(&*pool, &changed, guard).await?;
            self.world.put_pool(&pool.metadata.name, Some(stored));
        }
        Ok(())
    }
}
