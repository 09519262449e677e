//! Whether a node still is what its pool and class ask for.
//!
//! The rules about the pool are judged here; those about the class and the instance are the provider's
//! (`spokeshave_nodeclass`). The first reason in the order of the rules wins, and an error in a later rule never
//! hides a reason that was found before it.

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{
    CapacityType, InstanceType, NodeClaim, NodePool, Operator, Requirement, Requirements, labels,
};

/// Instance types are looked up for claims older than this. As in Karpenter 1.x.
pub const TYPE_CHECK_AGE: SignedDuration = SignedDuration::from_hours(1);

/// The template of the pool has changed.
pub const NODEPOOL_DRIFTED: &str = "NodePoolDrifted";
/// The claim's labels do not meet the requirements of the pool.
pub const REQUIREMENTS_DRIFTED: &str = "RequirementsDrifted";
/// The claim's instance type, or what it was bought as, is not offered to the pool any more.
pub const INSTANCE_TYPE_NOT_FOUND: &str = "InstanceTypeNotFound";

/// EC2 recommended to move off the instance, and the pool asks to act on that.
pub const REBALANCE_RECOMMENDED: &str = "RebalanceRecommended";

/// The first reason that follows from the pool alone.
///
/// DIFFERENCE: a rebalance recommendation counts as drift in a pool annotated `spokeshave.dev/rebalance: replace`, so that
/// the replacement comes first and the pool's budgets hold. Karpenter only publishes an event.
pub fn pool_reason(claim: &NodeClaim, pool: &NodePool) -> Option<&'static str> {
    if hash_differs(claim, pool) {
        return Some(NODEPOOL_DRIFTED);
    }
    // Several entries of one key are one requirement: what all of them allow, which may be that there is no value.
    let wanted = Requirements::from_api(&pool.spec.template.spec.requirements);
    let has = Requirements::from_labels(&claim.metadata.labels);
    if has.compatible(&wanted, |_| false).is_err() {
        return Some(REQUIREMENTS_DRIFTED);
    }
    let asked_for = pool.metadata.annotation(labels::REBALANCE) == Some("replace");
    let recommended = claim.metadata.annotation(labels::REBALANCE_RECOMMENDED).is_some();
    (asked_for && recommended).then_some(REBALANCE_RECOMMENDED)
}

/// All four annotations are there, the versions are equal and the hashes are not. Hashes of different versions are
/// never compared.
fn hash_differs(claim: &NodeClaim, pool: &NodePool) -> bool {
    let both = |key: &str| Some((claim.metadata.annotation(key)?, pool.metadata.annotation(key)?));
    let versions = both(labels::NODEPOOL_HASH_VERSION);
    let hashes = both(labels::NODEPOOL_HASH);
    match (versions, hashes) {
        (Some((claims, pools)), Some((mine, theirs))) => claims == pools && mine != theirs,
        _ => false,
    }
}

/// Whether the claim is old enough for its instance type to be looked up.
pub fn wants_type_check(claim: &NodeClaim, now: Timestamp) -> bool {
    claim.metadata.creation_timestamp.is_some_and(|it| now.duration_since(it) > TYPE_CHECK_AGE)
}

/// Whether what the claim was bought as has left the list of what the pool is offered, available or not.
///
/// DIFFERENCE: a reserved claim counts as on-demand without regard to any of its three reservation labels, since its
/// reservation may have ended; Karpenter forgets the one about interruptibility.
pub fn type_is_gone(claim: &NodeClaim, offered: &[InstanceType]) -> bool {
    let Some(name) = claim.metadata.label(labels::INSTANCE_TYPE) else { return true };
    let Some(instance_type) = offered.iter().find(|it| it.name == name) else { return true };
    let mut wanted = Requirements::from_labels(&claim.metadata.labels);
    if wanted.single(labels::CAPACITY_TYPE) == Some(CapacityType::Reserved.as_str()) {
        wanted.replace(Requirement::new(
            labels::CAPACITY_TYPE,
            Operator::In,
            [CapacityType::Reserved.as_str(), CapacityType::OnDemand.as_str()],
        ));
        for key in [
            labels::CAPACITY_RESERVATION_ID,
            labels::CAPACITY_RESERVATION_TYPE,
            labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
        ] {
            wanted.remove(key);
        }
    }
    !instance_type.offerings.iter().any(|it| it.requirements().meets(&wanted))
}
