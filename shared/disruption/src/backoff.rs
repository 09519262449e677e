//! A pool whose drifted nodes cannot be replaced waits before the next try, so that other pools get their turn
//! (lifecycle 19).
//!
//! DIFFERENCE: Karpenter tries the oldest drifted node in every pass, and a pool whose replacements keep failing holds
//! up all younger ones.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// After the first failure. Source: the proposal to Karpenter.
pub const BASE: SignedDuration = SignedDuration::from_mins(1);
/// At most. Source: the proposal to Karpenter.
pub const CAP: SignedDuration = SignedDuration::from_mins(10);

/// How a pool stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackOff {
    /// Failures in a row.
    pub failures: u32,
    /// Its drifted nodes are left alone until this moment.
    pub until: Timestamp,
}

/// The state after a failure at `now`: one minute, doubled for each failure in a row, half of it fixed and half of it
/// drawn from `seed`. Failures while the pool waits already change nothing.
pub fn after_failure(before: Option<BackOff>, seed: u64, now: Timestamp) -> BackOff {
    if let Some(it) = before.filter(|it| now < it.until) {
        return it;
    }
    let failures = before.map_or(0, |it| it.failures).saturating_add(1);
    let doubled = BASE.as_secs().saturating_mul(1 << (failures - 1).min(10));
    let most = doubled.min(CAP.as_secs());
    let half = most / 2;
    let drawn = i64::try_from(seed % u64::try_from(half.max(1)).unwrap_or(1)).unwrap_or(0);
    let wait = SignedDuration::from_secs(most - half + drawn);
    BackOff { failures, until: now.checked_add(wait).unwrap_or(Timestamp::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // lifecycle 19: the proposal's figures
    fn it_doubles_up_to_the_cap_and_half_of_it_is_drawn() {
        let now: Timestamp = "2026-03-04T10:00:00Z".parse().expect("a time");
        let mut state = None;
        for (failures, least, most) in
            [(1, 30, 59), (2, 60, 119), (3, 120, 239), (4, 240, 479), (5, 300, 599), (20, 300, 599)]
        {
            state = Some(BackOff { failures: failures - 1, until: now });
            for (seed, expected) in [(0, least), (u64::MAX - u64::MAX % 300, least), (299, 0)] {
                let it = after_failure(state, seed, now);
                assert_eq!(it.failures, failures);
                let wait = it.until.duration_since(now).as_secs();
                assert!((least..=most).contains(&wait), "{failures}: {wait}");
                if expected > 0 && seed == 0 {
                    assert_eq!(wait, expected, "{failures}");
                }
            }
        }
        let waiting = BackOff { failures: 2, until: now + BASE };
        assert_eq!(after_failure(Some(waiting), 7, now), waiting, "within the window");
        assert_eq!(after_failure(Some(waiting), 0, now + BASE).failures, 3, "at its end");
        assert!(state.is_some());
    }
}
