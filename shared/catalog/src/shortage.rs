//! Capacity that runs short for claims of one shape: how long to wait before the next is made.
//!
//! Marks of offerings ([`crate::unavailable`]) steer every try to what has not failed yet. Where there is little to be had,
//! that alone makes claim after claim, each of which fails: from the second failure in a row on, the tries become rarer. A
//! success does not let everything through at once, either: what is let through doubles with each, and is one again with the
//! next failure.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::unavailable;

/// The wait after the second failure in a row; it doubles with every further one.
pub const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(10);
/// The longest wait: by then every mark of an offering has ended.
pub const LONGEST_WAIT: SignedDuration = unavailable::LIFETIME;
/// A shape that has not failed for so long is forgotten.
pub const FORGOTTEN: SignedDuration = SignedDuration::from_mins(15);
/// So many claims at once are more than the tries of a shape that is short: beyond it the shortage is over.
pub const WIDEST: u32 = 64;

/// Failures in a row, and what they leave room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shortage {
    /// Since the last success that was not the end of the shortage, which counts as one.
    pub failures: u32,
    /// Of the last one, or of that success.
    pub at: Timestamp,
    /// How many claims may be under way at once. 0: as many as are wanted, for it was one failure only.
    #[serde(default)]
    pub width: u32,
}

impl Shortage {
    /// One more failure. All claims that fail at one moment are one.
    #[must_use]
    pub fn noted(before: Option<Self>, now: Timestamp) -> Self {
        match before {
            Some(before) if before.at >= now && before.width <= 1 => before,
            Some(before) => Self {
                failures: before.failures.saturating_add(1),
                at: before.at.max(now),
                width: 1,
            },
            None => Self { failures: 1, at: now, width: 0 },
        }
    }

    /// What is left once a claim was launched at `at`, later than the last failure: twice as many may be under way, up to
    /// [`WIDEST`]. `None`: the shortage is over.
    #[must_use]
    pub fn eased(&self, at: Timestamp) -> Option<Self> {
        let width = self.at_once(at)?.saturating_mul(2);
        (width <= WIDEST).then_some(Self { failures: 1, at, width })
    }

    /// When the next claim may be made: at once after the first failure, at most [`LONGEST_WAIT`] after the last.
    pub fn next_try(&self) -> Timestamp {
        let Some(doublings) = self.failures.checked_sub(2) else { return self.at };
        let factor = 1_i32.checked_shl(doublings.min(16)).unwrap_or(i32::MAX);
        let wait = FIRST_WAIT.checked_mul(factor).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
        self.at.saturating_add(wait).unwrap_or(self.at)
    }

    /// How many claims may be under way at once at `now`. `None`: as many as are wanted. One failure sends the next tries to
    /// other offerings as long as its marks stand; once they have ended, the next try is the first one over again.
    pub fn at_once(&self, now: Timestamp) -> Option<u32> {
        let marks_end = self.at.saturating_add(unavailable::LIFETIME).unwrap_or(Timestamp::MAX);
        let lasts = self.failures > 1 || self.width > 0 || now >= marks_end;
        lasts.then_some(self.width.max(1))
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
            assert_eq!(noted.at_once(noted.at), (n > 0).then_some(1));
            shortage = Some(noted);
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 180, 180, 180]);
        // Claims that fail together, and messages that come late, count once.
        assert_eq!(
            Shortage::noted(shortage, at(8000)),
            shortage.unwrap_or(Shortage { failures: 0, at: at(0), width: 0 })
        );
        assert_eq!(Shortage::noted(shortage, at(7000)).failures, 9);
        let endless = Shortage { failures: u32::MAX, at: at(0), width: 0 };
        assert_eq!(endless.next_try(), at(180));
        assert_eq!(endless.at_once(at(0)), Some(1));
    }

    #[test]
    fn each_success_lets_twice_as_many_through_and_a_failure_one() {
        let at = |secs: i64| Timestamp::from_second(1_000_000 + secs).unwrap_or_default();
        // One failure is no shortage: a success elsewhere ends it. Where nothing else was to be had, it is one.
        let once = Shortage::noted(None, at(0));
        assert_eq!((once.at_once(at(179)), once.eased(at(179))), (None, None));
        assert_eq!(once.at_once(at(180)), Some(1));
        assert_eq!(once.eased(at(180)), Some(Shortage { failures: 1, at: at(180), width: 2 }));
        let twice = Shortage::noted(Some(once), at(10));
        let mut widths = Vec::new();
        let mut shortage = Some(twice);
        while let Some(it) = shortage {
            widths.push(it.at_once(at(20)));
            // No pause between successes.
            assert_eq!(widths.len() == 1, it.next_try() > it.at);
            shortage = it.eased(at(20));
        }
        assert_eq!(widths, [1, 2, 4, 8, 16, 32, 64].map(Some));
        // In the middle of it the next failure pauses, and starts over. One of the same moment as the success does, too.
        let middle = twice.eased(at(20)).and_then(|it| it.eased(at(30)));
        for now in [30, 31] {
            let failed = Shortage::noted(middle, at(now));
            assert_eq!(failed, Shortage { failures: 2, at: at(now), width: 1 });
            assert_eq!(failed.next_try(), at(now + 10));
        }
    }
}
