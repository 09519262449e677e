//! Disruption budgets: how many nodes of a pool may be disrupted for a reason (`spec` api 5, lifecycle 17).
//!
//! [`allowed`] is what the disruption pass asks; [`evaluate`] says which budget is in error; [`Budget::windows`] lists when a
//! scheduled budget binds. Counting nodes, and subtracting those that are already being disrupted, is the caller's work.

use jiff::{SignedDuration, Timestamp};

use crate::{
    NodePool,
    cron::{Schedule, ScheduleError},
    node_pool::Budget,
};

/// No budget applies. The largest 32-bit number, as Karpenter's gauge shows it.
pub const UNLIMITED: i64 = 2_147_483_647;

/// The reasons that budgets know.
pub const REASONS: &[&str] = &["Underutilized", "Empty", "Drifted"];

/// `nodes` of a budget that does not say, and of a pool without budgets, from the CRD.
const DEFAULT_NODES: &str = "10%";

/// Steps in a row that are followed in search of the end of a window: over a month of minutes.
const MAX_CHAIN: usize = 50_000;

/// Why a budget cannot be evaluated. The whole pool then allows nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error("schedule {text:?}: {source}")]
    Schedule { text: String, source: ScheduleError },
    #[error("duration {0:?} is not a duration of hours and minutes such as 1h30m")]
    Duration(String),
    #[error("nodes {0:?} is neither a count nor a percentage such as 10%")]
    Nodes(String),
    #[error("'schedule' must be set with 'duration'")]
    Incomplete,
}

/// A stretch of time in which a budget is active without a gap: start inclusive, end exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl NodePool {
    /// The pool's budgets: its own, or one of 10% where it has none at all. `budgets: []` stays empty: unlimited.
    pub fn budgets(&self) -> Vec<Budget> {
        let own = self.spec.disruption.as_ref().and_then(|it| it.budgets.clone());
        own.unwrap_or_else(|| vec![Budget { nodes: DEFAULT_NODES.into(), ..Budget::default() }])
    }
}

impl Budget {
    /// Whether it limits `reason`. Without `reasons` it limits all; an empty list limits none.
    pub fn applies_to(&self, reason: &str) -> bool {
        self.reasons.as_ref().is_none_or(|reasons| reasons.iter().any(|it| it == reason))
    }

    /// The schedule and how long each hit lasts; `None` for a budget that is always active.
    ///
    /// # Errors
    /// When either does not parse, or one is missing.
    pub fn timing(&self) -> Result<Option<(Schedule, SignedDuration)>, BudgetError> {
        match (&self.schedule, &self.duration) {
            (None, None) => Ok(None),
            (Some(text), Some(duration)) => {
                let schedule = Schedule::parse(text)
                    .map_err(|source| BudgetError::Schedule { text: text.clone(), source })?;
                let length = duration.get().filter(|it| !it.is_negative());
                let length = length.ok_or_else(|| BudgetError::Duration(duration.0.clone()))?;
                Ok(Some((schedule, length)))
            }
            _ => Err(BudgetError::Incomplete),
        }
    }

    /// Whether it is active at `now`. A schedule that has no hit within five years counts as always active, as in Karpenter.
    ///
    /// # Errors
    /// As [`Budget::timing`].
    pub fn is_active(&self, now: Timestamp) -> Result<bool, BudgetError> {
        let Some((schedule, length)) = self.timing()? else { return Ok(true) };
        Ok(before(now, length).and_then(|it| schedule.next_after(it)).is_none_or(|hit| hit <= now))
    }

    /// What it allows of `n_nodes` while it is active: its count, or its percentage rounded up.
    ///
    /// DIFFERENCE: a count beyond 32 bits is unlimited; Karpenter wraps it around.
    ///
    /// # Errors
    /// When `nodes` is neither.
    pub fn value(&self, n_nodes: i64) -> Result<i64, BudgetError> {
        let text = if self.nodes.is_empty() { DEFAULT_NODES } else { &self.nodes };
        let wrong = || BudgetError::Nodes(text.to_owned());
        let (digits, is_percentage) = match text.strip_suffix('%') {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        if digits.is_empty() || !digits.bytes().all(|it| it.is_ascii_digit()) {
            return Err(wrong());
        }
        let amount: i128 = digits.parse().unwrap_or(i128::from(i64::MAX));
        let allowed = if is_percentage {
            (amount.min(i128::from(UNLIMITED)) * i128::from(n_nodes) + 99).div_euclid(100)
        } else {
            amount
        };
        Ok(i64::try_from(allowed).unwrap_or(UNLIMITED).clamp(0, UNLIMITED))
    }

    /// What it allows of `n_nodes` at `now`: [`UNLIMITED`] while it is not active.
    ///
    /// # Errors
    /// When it cannot be evaluated.
    pub fn allowed(&self, n_nodes: i64, now: Timestamp) -> Result<i64, BudgetError> {
        let value = self.value(n_nodes)?;
        Ok(if self.is_active(now)? { value } else { UNLIMITED })
    }

    /// The windows that hold `at`, or start after it and before `end`; overlapping and touching ones are one. The first starts
    /// where it really does, even before `at`. Empty for a budget that is always active.
    ///
    /// # Errors
    /// As [`Budget::timing`].
    pub fn windows(&self, at: Timestamp, end: Timestamp) -> Result<Vec<Window>, BudgetError> {
        let Some((schedule, length)) = self.timing()? else { return Ok(Vec::new()) };
        let mut windows: Vec<Window> = Vec::new();
        let Some(cursor) = before(at, length) else { return Ok(windows) };
        if length.is_zero() {
            return Ok(windows);
        }
        let next = |cursor| schedule.next_after(cursor).filter(|it| *it < end);
        let mut upcoming = next(cursor);
        while let Some(hit) = upcoming {
            let to = hit.saturating_add(length).unwrap_or(Timestamp::MAX);
            match windows.last_mut() {
                Some(last) if hit <= last.to => last.to = to,
                _ => windows.push(Window { from: hit, to }),
            }
            upcoming = leap(&schedule, length, hit).filter(|it| *it < end).or_else(|| next(hit));
        }
        if let Some(first) = windows.first_mut().filter(|it| it.from <= at)
            && let Some(from) = chain_start(&schedule, length, first.from)
        {
            first.from = from;
        }
        Ok(windows)
    }

    /// When it stops being active, if it is active at `now`; `None` when that is never.
    ///
    /// # Errors
    /// As [`Budget::timing`].
    pub fn active_until(&self, now: Timestamp) -> Result<Option<Timestamp>, BudgetError> {
        let Some((schedule, length)) = self.timing()? else { return Ok(None) };
        let Some(mut hit) = before(now, length).and_then(|it| schedule.next_after(it)) else {
            return Ok(None);
        };
        for _ in 0..MAX_CHAIN {
            let end = hit.saturating_add(length).unwrap_or(Timestamp::MAX);
            let next = leap(&schedule, length, hit).or_else(|| schedule.next_after(hit));
            match next {
                Some(next) if next <= end => hit = next,
                _ => return Ok(Some(end)),
            }
        }
        Ok(None)
    }
}

fn before(now: Timestamp, length: SignedDuration) -> Option<Timestamp> {
    now.checked_sub(length).ok()
}

/// A hit in the last minute of the window that `hit` opens, if there is one: nothing in between can leave a gap.
fn leap(schedule: &Schedule, length: SignedDuration, hit: Timestamp) -> Option<Timestamp> {
    let end = hit.checked_add(length).ok()?;
    let late = end.checked_sub(SignedDuration::from_secs(61)).ok()?;
    schedule.next_after(late).filter(|it| *it <= end && *it > hit)
}

/// The first hit of the gapless chain that `hit` is part of; `None` when the chain has no beginning.
fn chain_start(schedule: &Schedule, length: SignedDuration, hit: Timestamp) -> Option<Timestamp> {
    let mut start = hit;
    for _ in 0..MAX_CHAIN {
        // One second more, so that a window that ends where this one begins counts, too.
        let earlier = before(start, length)?.checked_sub(SignedDuration::from_secs(1)).ok()?;
        match schedule.next_after(earlier) {
            Some(previous) if previous < start => start = previous,
            _ => return Some(start),
        }
    }
    None
}

/// How many of `n_nodes` may be disrupted for `reason` at `now`, before those under way are subtracted.
///
/// # Errors
/// The position of the first budget that cannot be evaluated, whatever its reasons, and why.
pub fn evaluate(
    budgets: &[Budget],
    reason: &str,
    n_nodes: i64,
    now: Timestamp,
) -> Result<i64, (usize, BudgetError)> {
    let mut allowed = UNLIMITED;
    for (index, budget) in budgets.iter().enumerate() {
        let value = budget.allowed(n_nodes, now).map_err(|error| (index, error))?;
        if budget.applies_to(reason) {
            allowed = allowed.min(value);
        }
    }
    Ok(allowed)
}

/// As [`evaluate`], and 0 for every reason when any budget cannot be evaluated: a mistake must not set disruption free.
pub fn allowed(budgets: &[Budget], reason: &str, n_nodes: i64, now: Timestamp) -> i64 {
    evaluate(budgets, reason, n_nodes, now).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duration::PlainDuration;

    fn time(text: &str) -> Timestamp {
        text.parse().expect(text)
    }

    fn budget(nodes: &str, reasons: Option<&[&str]>, timing: Option<(&str, &str)>) -> Budget {
        Budget {
            nodes: nodes.into(),
            reasons: reasons.map(|it| it.iter().map(|&reason| reason.into()).collect()),
            schedule: timing.map(|it| it.0.into()),
            duration: timing.map(|it| PlainDuration(it.1.into())),
        }
    }

    fn all(budgets: &[Budget], n_nodes: i64, now: Timestamp) -> (i64, i64, i64) {
        let of = |reason| allowed(budgets, reason, n_nodes, now);
        (of("Empty"), of("Drifted"), of("Underutilized"))
    }

    const MINUTELY: (&str, &str) = ("* * * * *", "1h");

    /// Set S of api 5, with the schedules of (a), (e) and (f), and of all others.
    fn set(a: &str, e: &str, f: &str, others: &str) -> Vec<Budget> {
        let hour = |schedule| Some((schedule, "1h"));
        vec![
            budget("10", None, hour(a)),
            budget("100", None, hour(others)),
            budget("100%", None, hour(others)),
            budget("15", Some(&["Drifted", "Underutilized"]), hour(others)),
            budget("5", Some(&["Drifted"]), hour(e)),
            budget("0", Some(&["Drifted", "Underutilized", "Empty"]), hour(f)),
        ]
    }

    #[test] // api 5, cases 1 to 6
    fn sets_of_budgets() {
        let now = time("2000-06-15T12:30:30Z");
        let minutely = MINUTELY.0;
        let s = set(minutely, minutely, "@weekly", minutely);
        assert_eq!(all(&s, 100, now), (10, 5, 10));
        let mut with_g = s.clone();
        with_g.push(budget("4", Some(&["Empty"]), Some(MINUTELY)));
        assert_eq!(all(&with_g, 100, now), (4, 5, 10));
        assert_eq!(all(&set(minutely, minutely, minutely, minutely), 100, now), (0, 0, 0));
        let never = set("@yearly", "@yearly", "@yearly", "@yearly");
        assert_eq!(all(&never, 100, now), (UNLIMITED, UNLIMITED, UNLIMITED));
        assert_eq!(all(&s[..1], 100, now), (10, 10, 10));
        let mut yearly = s.clone();
        for at in [3, 4] {
            yearly[at].schedule = Some("@yearly".into());
        }
        assert_eq!(all(&yearly, 100, now), (10, 10, 10));
        assert_eq!(all(&set("@wrongly", minutely, "@weekly", minutely), 100, now), (0, 0, 0));
        assert_eq!(all(&set(minutely, "@wrongly", "@weekly", minutely), 100, now), (0, 0, 0));
    }

    #[test] // api 5, cases 7 and 8; lifecycle 17.4, cases 1 to 3
    fn percentages_round_up() {
        for (nodes, n_nodes, expected) in [
            ("20%", 19, 4),
            ("1%", 5, 1),
            ("10%", 0, 0),
            ("10%", 1, 1),
            ("10%", 9, 1),
            ("10%", 10, 1),
            ("10%", 11, 2),
            ("50%", 3, 2),
            ("33%", 10, 4),
            ("0%", 10, 0),
            ("100%", 7, 7),
            ("4", 10, 4),
            ("", 10, 1),
            ("4294967296", 10, UNLIMITED),
            ("99999999999999999999999999999999999999999", 10, UNLIMITED),
        ] {
            assert_eq!(
                budget(nodes, None, None).value(n_nodes),
                Ok(expected),
                "{nodes} of {n_nodes}"
            );
        }
        for nodes in ["%", "-1", "10.5%", "abc", "1 %"] {
            assert_eq!(budget(nodes, None, None).value(5), Err(BudgetError::Nodes(nodes.into())));
        }
    }

    #[test] // lifecycle 17.4, cases 3 to 7
    fn reasons_and_schedules() {
        let mut budgets =
            vec![budget("20%", Some(&["Empty", "Drifted"]), None), budget("5", None, None)];
        let noon = time("2024-01-07T12:00:00Z");
        assert_eq!(all(&budgets, 19, noon), (4, 4, 5));
        assert_eq!(all(&budgets, 30, noon).0, 5);
        budgets.push(budget("0", Some(&["Underutilized"]), Some(("@daily", "10m"))));
        assert_eq!(all(&budgets, 19, time("2024-01-07T00:05:00Z")), (4, 4, 0));
        assert_eq!(all(&budgets, 19, time("2024-01-07T00:10:00Z")), (4, 4, 5));
        assert_eq!(
            all(&[budget("1", Some(&["Drifted"]), None)], 10, noon),
            (UNLIMITED, 1, UNLIMITED)
        );
        let reversed = budget("3", Some(&["Empty"]), Some(("0 0 * * tue-mon", "1h")));
        assert_eq!(all(&[budget("5", None, None), reversed], 10, noon), (0, 0, 0));
        assert_eq!(
            all(&[budget("0", Some(&[]), None)], 10, noon),
            (UNLIMITED, UNLIMITED, UNLIMITED)
        );
        assert_eq!(all(&[], 10, noon), (UNLIMITED, UNLIMITED, UNLIMITED));
    }

    #[test] // lifecycle 17.5, cases 1 to 11; 36.1, case 4: no zone but UTC; api 5, cases 9 to 12
    fn active_windows() {
        let workdays = ("0 9 * * mon-fri", "8h");
        let night = ("0 22 * * *", "4h");
        let sunday = ("30 6 * * SUN", "6h");
        for (timing, now, expected) in [
            (workdays, "2024-05-15T09:00:00Z", true),
            (workdays, "2024-05-15T16:59:59Z", true),
            (workdays, "2024-05-15T17:00:00Z", false),
            (workdays, "2024-05-18T10:00:00Z", false),
            (night, "2024-05-15T01:59:59Z", true),
            (night, "2024-05-15T02:00:00Z", false),
            (sunday, "2024-01-07T00:00:00Z", false),
            (sunday, "2024-01-07T06:30:00Z", true),
            (sunday, "2024-01-07T12:29:59Z", true),
            (sunday, "2024-01-07T12:30:00Z", false),
            (("@daily", "48h"), "2024-01-07T00:00:00Z", true),
            (("@weekly", "1h"), "2024-01-07T00:30:00Z", true),
            (("@weekly", "1h"), "2024-01-07T01:00:00Z", false),
            (("@weekly", "1h"), "2024-01-08T00:30:00Z", false),
            (("0 0 13 * fri", "24h"), "2024-05-13T10:00:00Z", true),
            (("0 0 13 * fri", "24h"), "2024-05-17T10:00:00Z", true),
            (("0 0 13 * fri", "24h"), "2024-05-16T10:00:00Z", false),
            (("0 0 * * 0", "1h"), "2024-01-07T00:30:00Z", true),
            (("*/15 * * * *", "15m"), "2024-05-15T10:14:59Z", true),
            (("*/15 * * * *", "5m"), "2024-05-15T10:04:59Z", true),
            (("*/15 * * * *", "5m"), "2024-05-15T10:05:00Z", false),
            (("*/15 * * * *", "5m"), "2024-05-15T10:45:00Z", true),
            (("0 0 30 2 *", "1h"), "2024-05-15T10:00:00Z", true),
            (("0 0 */2 * mon", "24h"), "2024-05-15T10:00:00Z", true),
            (("0 0 */2 * mon", "24h"), "2024-05-20T10:00:00Z", true),
            (("0 0 */2 * mon", "24h"), "2024-05-14T10:00:00Z", false),
            (("0 0 */1 * mon", "24h"), "2024-05-15T10:00:00Z", false),
            (("@daily", "30m"), "2000-05-31T00:00:00+01:00", false),
        ] {
            let budget = budget("1", None, Some(timing));
            assert_eq!(budget.is_active(time(now)), Ok(expected), "{timing:?} at {now}");
        }
        for schedule in ["0 0 * * 7", "TZ=Europe/Berlin 0 9 * * *", "0 0 * * tue-mon"] {
            assert!(
                budget("1", None, Some((schedule, "1h")))
                    .is_active(time("2024-05-15T10:00:00Z"))
                    .is_err()
            );
        }
    }

    #[test]
    fn half_a_timing_is_an_error() {
        let mut it = budget("1", None, Some(("@daily", "1h")));
        it.duration = None;
        assert_eq!(it.timing(), Err(BudgetError::Incomplete));
    }

    fn windows(timing: (&str, &str), at: &str, days: i64) -> Vec<String> {
        let at = time(at);
        let end = at + SignedDuration::from_hours(24 * days);
        let found = budget("1", None, Some(timing)).windows(at, end).expect("valid");
        found.iter().map(|it| format!("{} {}", it.from, it.to)).collect()
    }

    #[test]
    fn windows_start_where_they_really_do_and_are_merged() {
        assert_eq!(
            windows(("0 22 * * *", "4h"), "2024-05-15T01:00:00Z", 1),
            [
                "2024-05-14T22:00:00Z 2024-05-15T02:00:00Z",
                "2024-05-15T22:00:00Z 2024-05-16T02:00:00Z"
            ]
        );
        assert_eq!(
            windows(("0 9,10 * * *", "90m"), "2024-05-15T11:00:00Z", 1),
            [
                "2024-05-15T09:00:00Z 2024-05-15T11:30:00Z",
                "2024-05-16T09:00:00Z 2024-05-16T11:30:00Z"
            ]
        );
        assert_eq!(
            windows(("@daily", "48h"), "2024-05-15T12:00:00Z", 2),
            ["2024-05-14T00:00:00Z 2024-05-19T00:00:00Z"]
        );
        assert!(windows(("0 0 30 2 *", "1h"), "2024-05-15T12:00:00Z", 7).is_empty());
    }

    #[test]
    fn the_end_of_activity() {
        let until = |timing, at| budget("1", None, timing).active_until(time(at)).expect("valid");
        let at = "2024-05-15T01:00:00Z";
        assert_eq!(until(Some(("0 22 * * *", "4h")), at), Some(time("2024-05-15T02:00:00Z")));
        assert_eq!(until(Some(("*/15 * * * *", "15m")), at), None);
        assert_eq!(until(Some(("0 0 30 2 *", "1h")), at), None);
        assert_eq!(until(None, at), None);
    }

    #[test] // api 5, cases 14 and 15; api 20, case 3
    fn a_pool_without_budgets_has_one_of_ten_percent() {
        let mut pool = NodePool::default();
        assert_eq!(pool.budgets(), [budget("10%", None, None)]);
        pool.spec.disruption =
            Some(crate::node_pool::Disruption { budgets: Some(Vec::new()), ..Default::default() });
        assert!(pool.budgets().is_empty());
        let workdays = Some(("0 9 * * mon-fri", "8h"));
        let worked =
            [budget("10%", None, None), budget("0", Some(&["Drifted", "Underutilized"]), workdays)];
        assert_eq!(all(&worked, 30, time("2024-05-15T12:00:00Z")), (3, 0, 0));
        assert_eq!(all(&worked, 30, time("2024-05-18T12:00:00Z")), (3, 3, 3));
    }
}
