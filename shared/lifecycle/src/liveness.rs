//! Claims that do not launch or register in time are given up.

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{ConditionStatus, NodeClaim};

/// Time to launch, counted from the last transition of `Launched`. As in Karpenter 1.x.
pub const LAUNCH_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);
/// Time to register, counted from the last transition of `Registered`. As in Karpenter 1.x.
pub const REGISTRATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(15);

/// What the timers say about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Registered: no timer runs.
    Registered,
    /// Look again then.
    DueAt(Timestamp),
    /// `launch_timeout` or `registration_timeout`.
    TimedOut(&'static str),
}

/// Looks at both timers. They start with the claim's creation while a condition has never changed.
pub fn judge(claim: &NodeClaim, now: Timestamp) -> Liveness {
    let due = |type_: &str, timeout: SignedDuration| {
        let since = claim.condition(type_).and_then(|it| it.last_transition_time);
        let since = since.or(claim.metadata.creation_timestamp).unwrap_or(now);
        since.checked_add(timeout).unwrap_or(Timestamp::MAX)
    };
    if claim.is_true(NodeClaim::REGISTERED) {
        return Liveness::Registered;
    }
    let registration_due = due(NodeClaim::REGISTERED, REGISTRATION_TIMEOUT);
    if claim.is_true(NodeClaim::LAUNCHED) {
        return if now >= registration_due {
            Liveness::TimedOut("registration_timeout")
        } else {
            Liveness::DueAt(registration_due)
        };
    }
    let launch_due = due(NodeClaim::LAUNCHED, LAUNCH_TIMEOUT);
    if now >= launch_due {
        Liveness::TimedOut("launch_timeout")
    } else if now >= registration_due {
        Liveness::TimedOut("registration_timeout")
    } else {
        Liveness::DueAt(launch_due.min(registration_due))
    }
}

/// Reason and message for the pool's `NodeRegistrationHealthy=False` when `claim` timed out.
pub fn failure(claim: &NodeClaim) -> (String, String) {
    match claim.condition(NodeClaim::LAUNCHED) {
        Some(launched) if launched.status != ConditionStatus::True => {
            (launched.reason.clone(), launched.message.clone())
        }
        Some(_) => ("RegistrationFailed".into(), "Failed to register node".into()),
        None => ("AwaitingReconciliation".into(), "object is awaiting reconciliation".into()),
    }
}
