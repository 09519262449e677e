//! The last outcomes behind a pool's `NodeRegistrationHealthy`.

use serde::{Deserialize, Serialize};
use spokeshave_model::Uid;

/// Partition of the state table that holds one [`Outcomes`] per NodePool UID.
pub const PARTITION: &str = "registration-health";

/// Outcomes kept per pool. As in Karpenter 1.x.
pub const KEPT: usize = 4;
/// So many failures among the kept outcomes make a pool unhealthy: half of [`KEPT`], however few are kept.
pub const UNHEALTHY_AT: usize = 2;

/// One claim came up, or did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub claim: Uid,
    pub healthy: bool,
}

/// The last outcomes of one pool, oldest first.
///
/// DIFFERENCE: a new outcome always replaces the oldest one, and an outcome is counted once per claim, so that a run
/// that is repeated after a crash does not count twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcomes {
    pub outcomes: Vec<Outcome>,
}

/// What the kept outcomes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Unknown,
    Healthy,
    Unhealthy,
}

impl Outcomes {
    /// What a pool's condition says about outcomes that were lost: one success for True, two failures for False.
    pub fn recovered(condition: Option<bool>) -> Self {
        let outcome = |healthy| Outcome { claim: Uid::default(), healthy };
        let outcomes = match condition {
            None => Vec::new(),
            Some(true) => vec![outcome(true)],
            Some(false) => vec![outcome(false), outcome(false)],
        };
        Self { outcomes }
    }

    /// Adds an outcome, dropping the oldest beyond [`KEPT`]. Returns whether there is something to store: one more
    /// success after nothing but successes is not worth a write for every node of a growing pool.
    pub fn add(&mut self, claim: &Uid, healthy: bool) -> bool {
        let known = self.outcomes.iter().any(|it| &it.claim == claim && it.healthy == healthy);
        let all_well = self.outcomes.len() == KEPT && self.outcomes.iter().all(|it| it.healthy);
        if (known && !claim.is_empty()) || (healthy && all_well) {
            return false;
        }
        self.outcomes.push(Outcome { claim: claim.clone(), healthy });
        let surplus = self.outcomes.len().saturating_sub(KEPT);
        self.outcomes.drain(..surplus);
        true
    }

    pub fn verdict(&self) -> Verdict {
        let failures = self.outcomes.iter().filter(|it| !it.healthy).count();
        if self.outcomes.is_empty() {
            Verdict::Unknown
        } else if failures >= UNHEALTHY_AT {
            Verdict::Unhealthy
        } else {
            Verdict::Healthy
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(text: &str) -> Verdict {
        let mut outcomes = Outcomes::default();
        for (at, letter) in text.chars().enumerate() {
            outcomes.add(&Uid::from(format!("u{at}").as_str()), letter == 'T');
        }
        outcomes.verdict()
    }

    #[test] // lifecycle 6.3, cases 1, 2, 8; scheduling 19, case 2; api 4, case 17; bug report B-026: a second claim that fails
    fn two_failures_of_four_are_unhealthy() {
        use Verdict::{Healthy, Unhealthy, Unknown};
        for (text, expected) in [
            ("", Unknown),
            ("T", Healthy),
            ("F", Healthy),
            ("FF", Unhealthy),
            ("FT", Healthy),
            ("FFT", Unhealthy),
            ("FFTT", Unhealthy),
            ("FFTTT", Healthy),
            ("TFF", Unhealthy),
        ] {
            assert_eq!(after(text), expected, "{text:?}");
        }
        let mut lost = Outcomes::recovered(Some(false));
        for (claim, expected) in [("a", Unhealthy), ("b", Unhealthy), ("c", Healthy)] {
            lost.add(&Uid::from(claim), true);
            assert_eq!(lost.verdict(), expected, "{claim}");
        }
    }

    #[test]
    fn a_repeated_run_counts_once() {
        let mut outcomes = Outcomes::default();
        assert!(outcomes.add(&Uid::from("a"), false));
        assert!(!outcomes.add(&Uid::from("a"), false));
        assert_eq!(outcomes.verdict(), Verdict::Healthy);
    }
}
