//! Capacity that runs short for claims of one shape: how long to wait before the next is made.
//!
//! Marks of offerings ([`crate::unavailable`]) steer every try to what has not failed yet. Where there is little to be had,
//! that alone makes claim after claim, each of which fails: from the second failure in a row on, the tries become rarer.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The wait after the second failure in a row; it doubles with every further one.
pub const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(10);
/// The longest wait: by then every mark of an offering has ended.
pub const LONGEST_WAIT: SignedDuration = crate::unavailable::LIFETIME;
/// A shape that has not failed for so long is forgotten.
pub const FORGOTTEN: SignedDuration = SignedDuration::from_mins(15);

/// Failures in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shortage {
    pub failures: u32,
    /// Of the last one.
    pub at: Timestamp,
}

impl Shortage {
    /// One more failure. All claims that fail at one moment are one.
    #[must_use]
    pub fn noted(before: Option<Self>, now: Timestamp) -> Self {
        match before {
            Some(before) if before.at >= now => before,
            Some(before) => Self { failures: before.failures.saturating_add(1), at: now },
            None => Self { failures: 1, at: now },
        }
    }

    /// When the next claim may be made: at once after the first failure, at most [`LONGEST_WAIT`] after the last.
    pub fn next_try(&self) -> Timestamp {
        let Some(doublings) = self.failures.checked_sub(2) else { return self.at };
        let factor = 1_i32.checked_shl(doublings.min(16)).unwrap_or(i32::MAX);
        let wait = FIRST_WAIT.checked_mul(factor).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
        self.at.saturating_add(wait).unwrap_or(self.at)
    }

    /// Whether claims are made one at a time: everything beyond one failure is more than bad luck.
    pub fn is_lasting(&self) -> bool {
        self.failures > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_life_of_a_mark() {
        let at = |secs: i64| Timestamp::from_second(1_000_000 + secs).unwrap_or_default();
        let mut shortage = None;
        let mut waits = Vec::new();
        for n in 0..9 {
            let noted = Shortage::noted(shortage, at(n * 1000));
            waits.push(noted.next_try().duration_since(noted.at).as_secs());
            assert_eq!(noted.is_lasting(), n > 0);
            shortage = Some(noted);
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 180, 180, 180]);
        // Claims that fail together, and messages that come late, count once.
        assert_eq!(
            Shortage::noted(shortage, at(8000)),
            shortage.unwrap_or(Shortage { failures: 0, at: at(0) })
        );
        assert_eq!(Shortage::noted(shortage, at(7000)).failures, 9);
        let endless = Shortage { failures: u32::MAX, at: at(0) };
        assert_eq!(endless.next_try(), at(180));
    }
}
