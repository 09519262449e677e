//! `status.lastPodEventTime` and the condition `Consolidatable`: whether a node has been quiet for long enough.

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{NodeClaim, NodePool};

/// Pod events closer than this to the stored one are not stored. As in Karpenter 1.x: below the 15 s that a
/// disruption command waits, so that pods that come and go meanwhile are always seen.
pub const POD_EVENT_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// What to make of a pod event on the claim's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodEvent {
    /// Store its time.
    Store,
    /// Too close to the stored one; it is to be stored at this moment if nothing newer was by then.
    StoreAt(Timestamp),
    /// Older than what is stored, or stored already.
    Known,
}

/// Judges a pod event that happened at `at`.
///
/// DIFFERENCE: Karpenter forgets an event within ten seconds of the stored one; here it is stored at their end, so
/// that `consolidateAfter` never elapses early.
pub fn pod_event(claim: &NodeClaim, at: Timestamp, now: Timestamp) -> PodEvent {
    let Some(stored) = claim.status.last_pod_event_time else { return PodEvent::Store };
    if at <= stored {
        return PodEvent::Known;
    }
    let opens = stored.checked_add(POD_EVENT_INTERVAL).unwrap_or(Timestamp::MAX);
    if now >= opens { PodEvent::Store } else { PodEvent::StoreAt(opens) }
}

/// What the condition is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consolidatable {
    /// The pool is static: whatever is there stays.
    NotOurs,
    Quiet,
    /// Not, and nothing changes by time alone.
    Never,
    /// Not before this moment.
    From(Timestamp),
}

/// Looks at a claim of `pool`. At exactly the end of `consolidateAfter` it is quiet.
pub fn judge(claim: &NodeClaim, pool: &NodePool, now: Timestamp) -> Consolidatable {
    if pool.is_static() {
        return Consolidatable::NotOurs;
    }
    let after = match pool.spec.disruption.as_ref().and_then(|it| it.consolidate_after.as_ref()) {
        None => SignedDuration::ZERO,
        Some(value) => match value.get() {
            Some(length) => length,
            None => return Consolidatable::Never,
        },
    };
    if !claim.is_true(NodeClaim::INITIALIZED) {
        return Consolidatable::Never;
    }
    let initialized =
        claim.condition(NodeClaim::INITIALIZED).and_then(|it| it.last_transition_time);
    let Some(base) = claim.status.last_pod_event_time.or(initialized) else {
        return Consolidatable::Quiet;
    };
    let quiet_at = base.checked_add(after).unwrap_or(Timestamp::MAX);
    if after.is_positive() && now < quiet_at {
        Consolidatable::From(quiet_at)
    } else {
        Consolidatable::Quiet
    }
}
