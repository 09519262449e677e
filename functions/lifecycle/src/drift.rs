//! Drift of one claim: by its pool, by its class, by its instance.

use spokeshave_lifecycle::{claim::Drift, drift};
use spokeshave_model::{NodeClaim, NodePool};

use crate::{reconcile::Reconciler, targets::Target};

impl<C, E, S, Q> Reconciler<'_, C, E, S, Q> {
    /// The first reason for which the claim is to be replaced.
    pub async fn drift(
        &self,
        claim: &NodeClaim,
        pool: Option<&NodePool>,
        target: &Target,
    ) -> Drift {
        if !claim.is_true(NodeClaim::LAUNCHED) {
            return Drift::None;
        }
        let Some(pool) = pool.filter(|it| it.is_managed() && target.drift) else {
            return Drift::Unjudged;
        };
        match drift::pool_reason(claim, pool) {
            Some(reason) => Drift::Drifted(reason.into()),
            None => Drift::None,
        }
    }
}
