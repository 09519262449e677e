//! `spec.expireAfter`: forceful, whatever budgets, PodDisruptionBudgets and annotations say.

use jiff::Timestamp;
use spokeshave_model::{NodeClaim, NodePool, labels};

/// Reason for which an expired claim counts as drifted, where its pool asks for that.
pub const EXPIRED: &str = "Expired";

/// When the claim expires; `None` for `Never`. The moment itself counts as expired.
///
/// The claim's own value counts, not what its NodePool says today. An absent value is the CRD's default of 720 h.
pub fn expires_at(claim: &NodeClaim) -> Option<Timestamp> {
    let length = match &claim.spec.expire_after {
        None => DEFAULT_EXPIRE_AFTER,
        Some(value) => value.get()?,
    };
    claim.metadata.creation_timestamp?.checked_add(length).ok()
}

/// What the CRD fills in for `expireAfter`.
pub const DEFAULT_EXPIRE_AFTER: jiff::SignedDuration = jiff::SignedDuration::from_hours(720);

/// Whether an expired claim is replaced like a drifted one, within the pool's budgets, and not deleted at once.
///
/// One that is not initialized has nothing to be replaced for, and no drift would ever take it: it is deleted.
///
/// DIFFERENCE: Karpenter has no such choice. Without the pool's annotation `spokeshave.dev/expiration: replace` expiration
/// is forceful here as well.
pub fn is_replaced(claim: &NodeClaim, pool: Option<&NodePool>) -> bool {
    claim.is_true(NodeClaim::INITIALIZED)
        && pool.is_some_and(|it| {
            it.is_managed()
                && !it.metadata.deleting()
                && it.metadata.annotation(labels::EXPIRATION) == Some("replace")
        })
}

/// Whether the claim has reached its end at `now`.
pub fn is_expired(claim: &NodeClaim, now: Timestamp) -> bool {
    expires_at(claim).is_some_and(|at| now >= at)
}

#[cfg(test)]
mod tests {
    use spokeshave_model::{ObjectMeta, duration::NillableDuration};

    use super::*;

    fn claim(expire_after: Option<&str>) -> NodeClaim {
        let mut claim = NodeClaim { metadata: ObjectMeta::named("a"), ..NodeClaim::default() };
        claim.metadata.creation_timestamp = Some("2024-01-01T00:00:00Z".parse().expect("a time"));
        claim.spec.expire_after = expire_after.map(|it| NillableDuration(it.into()));
        claim
    }

    #[test] // lifecycle 10.1, cases 1, 2, 6; api 8, case 7
    fn the_claims_own_value_counts() {
        for (text, expected) in [
            (Some("24h"), Some("2024-01-02T00:00:00Z")),
            (Some("1h"), Some("2024-01-01T01:00:00Z")),
            (Some("Never"), None),
            (None, Some("2024-01-31T00:00:00Z")),
        ] {
            let expected = expected.map(|it: &str| it.parse::<Timestamp>().expect("a time"));
            assert_eq!(expires_at(&claim(text)), expected, "{text:?}");
        }
    }
}
