//! Pauses for shapes of claims that get no instance, so that short capacity makes no storm of claims. The record is the state
//! table's: whichever environment runs next knows of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use spokeshave_catalog::{shortage::Shortage, stored};
use spokeshave_model::{ConditionStatus, NodeClaim, labels};
use spokeshave_ports::{Decision, Invocation, StateTable};
use spokeshave_scheduling::{ClusterView, Hold, Holds};

use crate::world::Trouble;

/// What a plan at `now` may order of the shapes that failed, and which shortages are over: a claim of the shape was
/// `launched` after the last failure.
fn judged(
    shortages: &BTreeMap<String, Shortage>,
    launched: &BTreeMap<&str, Timestamp>,
    now: Timestamp,
) -> (Holds, Vec<String>) {
    let mut holds = Holds::new();
    let mut over = Vec::new();
    for (shape, shortage) in shortages {
        if launched.get(shape.as_str()).is_some_and(|at| *at > shortage.at) {
            over.push(shape.clone());
        } else if shortage.is_lasting() {
            let next = shortage.next_try();
            let hold = if next > now { Hold::Until(next) } else { Hold::OneAtATime };
            holds.insert(shape.clone(), hold);
        }
    }
    (holds, over)
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

/// What the next plan may order, as far as capacity is short. Shortages that are over are forgotten.
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
    let (holds, over) = judged(&shortages, &launched(view), cx.now);
    for shape in over {
        stored::forget_shortage(state, &shape).await?;
    }
    for (shape, hold) in &holds {
        let failures = shortages.get(shape).map_or(0, |it| it.failures);
        let what = match hold {
            Hold::Until(until) => format!("the next claim is made at {until}"),
            Hold::OneAtATime => "one claim is made at a time".to_owned(),
        };
        let reason = format!("no instance {failures} times in a row: {what}");
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
        let of = |failures| BTreeMap::from([("p/1".to_owned(), Shortage { failures, at: at(0) })]);
        let none = BTreeMap::new();
        let hold = |failures, now| judged(&of(failures), &none, at(now)).0.get("p/1").copied();
        assert_eq!(hold(1, 0), None);
        assert_eq!(hold(2, 0), Some(Hold::Until(at(10))));
        assert_eq!(hold(2, 9), Some(Hold::Until(at(10))));
        assert_eq!(hold(2, 10), Some(Hold::OneAtATime));
        assert_eq!(hold(4, 10), Some(Hold::Until(at(40))));
        let over = |launched: i64| judged(&of(3), &BTreeMap::from([("p/1", at(launched))]), at(5));
        assert_eq!(over(0).1, Vec::<String>::new());
        assert_eq!(over(1), (Holds::new(), vec!["p/1".to_owned()]));
    }
}
