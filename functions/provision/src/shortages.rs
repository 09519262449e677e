//! Pauses for shapes of claims that get no instance, so that short capacity makes no storm of claims. The record is the state
//! table's: whichever environment runs next knows of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use spokeshave_catalog::{shortage::Shortage, stored};
use spokeshave_model::{ConditionStatus, NodeClaim, labels};
use spokeshave_ports::{Decision, Invocation, StateTable};
use spokeshave_scheduling::{ClusterView, Hold, Holds};

use crate::world::Trouble;

/// What a plan at `now` may order of the shapes that failed, and of which shapes a claim was launched after the last failure,
/// with what that leaves of the shortage.
fn judged(
    shortages: &BTreeMap<String, Shortage>,
    launched: &BTreeMap<&str, Timestamp>,
    now: Timestamp,
) -> (Holds, BTreeMap<String, Timestamp>) {
    let mut holds = Holds::new();
    let mut eased = BTreeMap::new();
    for (shape, shortage) in shortages {
        let success = launched.get(shape.as_str()).filter(|at| **at > shortage.at);
        let left = match success {
            Some(at) => {
                eased.insert(shape.clone(), *at);
                shortage.eased(*at)
            }
            None => Some(*shortage),
        };
        let Some(left) = left else { continue };
        let Some(at_once) = left.at_once(now) else { continue };
        let next = left.next_try();
        let hold = if next > now { Hold::Until(next) } else { Hold::AtMost(at_once) };
        holds.insert(shape.clone(), hold);
    }
    (holds, eased)
}

/// When a claim of each shape was last launched.
fn launched(view: &ClusterView) -> BTreeMap<&str, Timestamp> {
    let mut latest: BTreeMap<&str, Timestamp> = BTreeMap::new();
    for claim in view.claims.values() {
        let shape = claim.metadata.annotation(labels::SHAPE);
        let at = claim
            .condition(NodeClaim::LAUNCHED)
            .filter(|it| it.status == ConditionStatus::True)
            .and_then(|it| it.last_transition_time);
        if let (Some(shape), Some(at)) = (shape, at) {
            let known = latest.entry(shape).or_insert(at);
            *known = at.max(*known);
        }
    }
    latest
}

/// What the next plan may order, as far as capacity is short. Launches since are written down.
///
/// # Errors
/// When the table does not answer.
pub(crate) async fn holds(
    view: &ClusterView,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> Result<Holds, Trouble> {
    let shortages = stored::load_shortages(state).await?;
    if shortages.is_empty() {
        return Ok(Holds::new());
    }
    let (holds, eased) = judged(&shortages, &launched(view), cx.now);
    for (shape, at) in eased {
        if let Some(seen) = shortages.get(&shape) {
            stored::ease_shortage(state, &shape, seen, at).await?;
        }
    }
    for (shape, hold) in &holds {
        let failures = shortages.get(shape).map_or(0, |it| it.failures);
        let reason = match hold {
            Hold::Until(until) => {
                format!("no instance {failures} times in a row: the next claim is made at {until}")
            }
            Hold::AtMost(1) => {
                format!("no instance {failures} time(s) in a row: one claim is made at a time")
            }
            Hold::AtMost(n) => {
                format!("there is capacity again: up to {n} claims are made at a time")
            }
        };
        cx.decide(Decision::new("hold", format!("Shape/{shape}"), reason));
    }
    Ok(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_end_with_their_time_and_with_the_first_instance() {
        let at = |secs: i64| Timestamp::from_second(1_000_000 + secs).unwrap_or_default();
        let of = |failures, width| {
            BTreeMap::from([("p/1".to_owned(), Shortage { failures, at: at(0), width })])
        };
        let none = BTreeMap::new();
        let hold = |failures, width, now| {
            judged(&of(failures, width), &none, at(now)).0.get("p/1").copied()
        };
        assert_eq!(hold(1, 0, 0), None);
        assert_eq!(hold(1, 0, 179), None);
        assert_eq!(hold(1, 0, 180), Some(Hold::AtMost(1)));
        assert_eq!(hold(2, 0, 0), Some(Hold::Until(at(10))));
        assert_eq!(hold(2, 1, 9), Some(Hold::Until(at(10))));
        assert_eq!(hold(2, 1, 10), Some(Hold::AtMost(1)));
        assert_eq!(hold(4, 1, 10), Some(Hold::Until(at(40))));
        assert_eq!(hold(1, 8, 0), Some(Hold::AtMost(8)));
        let after = |failures, width, launched: i64| {
            let launched = BTreeMap::from([("p/1", at(launched))]);
            let (holds, eased) = judged(&of(failures, width), &launched, at(5));
            (holds.get("p/1").copied(), eased.get("p/1").copied())
        };
        // A launch of the moment of the failure says nothing. One after it ends the pause, and lets more through.
        assert_eq!(after(3, 1, 0), (Some(Hold::Until(at(20))), None));
        assert_eq!(after(3, 1, 1), (Some(Hold::AtMost(2)), Some(at(1))));
        assert_eq!(after(1, 32, 1), (Some(Hold::AtMost(64)), Some(at(1))));
        assert_eq!(after(1, 64, 1), (None, Some(at(1))));
        assert_eq!(after(1, 0, 1), (None, Some(at(1))));
    }
}
