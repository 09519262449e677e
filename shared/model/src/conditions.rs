//! Status conditions and the `Ready` aggregate (`spec` api 3).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `True`, `False` or `Unknown`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum ConditionStatus {
    True,
    False,
    #[default]
    Unknown,
}

/// One entry of `status.conditions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: ConditionStatus,
    pub last_transition_time: Option<Timestamp>,
    pub reason: String,
    pub message: String,
    #[serde(skip_serializing_if = "crate::meta::is_zero")]
    pub observed_generation: i64,
}

/// The root condition.
pub const READY: &str = "Ready";

/// The conditions of one object, with what the rules need to know of the object.
///
/// `dependents` are the types that `Ready` is made of; all other types are informational.
pub struct ConditionSet<'a> {
    pub conditions: &'a mut Vec<Condition>,
    pub dependents: &'a [&'static str],
    pub generation: i64,
    pub created: Timestamp,
    pub deleting: bool,
}

impl ConditionSet<'_> {
    /// Adds `Ready` and every dependent that is missing, as Unknown. Returns whether anything changed.
    pub fn initialize(&mut self) -> bool {
        let mut changed = false;
        let dependents = self.dependents;
        for type_ in std::iter::once(READY).chain(dependents.iter().copied()) {
            if self.get(type_).is_none() {
                self.set(
                    type_,
                    ConditionStatus::Unknown,
                    "AwaitingReconciliation",
                    "object is awaiting reconciliation",
                    self.created,
                );
                changed = true;
            }
        }
        changed
    }

    pub fn get(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|it| it.type_ == type_)
    }

    /// True without saying why: the reason is the type itself.
    pub fn set_true(&mut self, type_: &str, now: Timestamp) -> bool {
        self.set(type_, ConditionStatus::True, type_, "", now)
    }

    /// Sets a condition and recomputes `Ready`. Returns whether anything changed.
    pub fn set(
        &mut self,
        type_: &str,
        status: ConditionStatus,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) -> bool {
        let existing = self.conditions.iter().position(|it| it.type_ == type_);
        let structural = type_ == READY || self.dependents.contains(&type_);
        let last_transition_time = match existing.map(|at| &self.conditions[at]) {
            Some(it) if it.status == status => it.last_transition_time,
            Some(_) => Some(now),
            None => Some(if structural { self.created } else { now }),
        };
        let condition = Condition {
            type_: type_.to_owned(),
            status,
            last_transition_time,
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: self.generation,
        };
        match existing {
            Some(at) if self.conditions[at] == condition => return false,
            Some(at) => self.conditions[at] = condition,
            None => self.conditions.push(condition),
        }
        if self.deleting {
            for other in self.conditions.iter_mut().filter(|it| it.type_ != type_) {
                other.observed_generation = self.generation;
            }
        }
        self.conditions.sort_by_key(|it| (it.type_ == READY, it.last_transition_time));
        if type_ != READY {
            self.recompute(now);
        }
        true
    }

    /// Removes an informational condition. Returns whether it was there.
    pub fn clear(&mut self, type_: &str) -> bool {
        debug_assert!(
            type_ != READY && !self.dependents.contains(&type_),
            "{type_} is not informational"
        );
        let before = self.conditions.len();
        self.conditions.retain(|it| it.type_ != type_);
        let removed = self.conditions.len() != before;
        if removed {
            self.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
        }
        removed
    }

    fn recompute(&mut self, now: Timestamp) {
        let generation = self.generation;
        let mut unhealthy: Vec<&Condition> = self
            .conditions
            .iter()
            .filter(|it| self.dependents.contains(&it.type_.as_str()))
            .filter(|it| it.status != ConditionStatus::True || it.observed_generation != generation)
            .collect();
        unhealthy.sort_by_key(|it| std::cmp::Reverse(it.last_transition_time));
        let message = unhealthy
            .iter()
            .map(|it| format!("{}={:?}", it.type_, it.status))
            .collect::<Vec<_>>()
            .join(", ");
        let is_verdict = |it: &&&Condition| {
            it.status == ConditionStatus::False && it.observed_generation == generation
        };
        let (status, reason) = if unhealthy.is_empty() {
            (ConditionStatus::True, READY)
        } else if unhealthy.iter().any(|it| is_verdict(&it)) {
            (ConditionStatus::False, "UnhealthyDependents")
        } else {
            (ConditionStatus::Unknown, "ReconcilingDependents")
        };
        self.set(READY, status, reason, &message, now);
    }
}

/// Finds a condition by type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|it| it.type_ == type_)
}

/// Whether the condition is there and True (of whatever generation).
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|it| it.status == ConditionStatus::True)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENTS: &[&str] = &["ValidationSucceeded", "NodeClassReady"];

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_767_261_600 + seconds).expect("in range")
    }

    fn set(conditions: &mut Vec<Condition>, generation: i64) -> ConditionSet<'_> {
        ConditionSet {
            conditions,
            dependents: DEPENDENTS,
            generation,
            created: at(0),
            deleting: false,
        }
    }

    fn ready(conditions: &[Condition]) -> (ConditionStatus, &str, &str, i64) {
        let it = find(conditions, READY).expect("present");
        let since = it.last_transition_time.expect("set").as_second() - at(0).as_second();
        (it.status, &it.reason, &it.message, since)
    }

    #[test] // api 3, cases 1-6
    fn ready_follows_its_dependents() {
        use ConditionStatus::{False, True, Unknown};
        let mut list = Vec::new();
        set(&mut list, 1).initialize();
        let order: Vec<&str> = list.iter().map(|it| it.type_.as_str()).collect();
        assert_eq!(order, ["ValidationSucceeded", "NodeClassReady", "Ready"]);
        assert_eq!(
            ready(&list),
            (
                Unknown,
                "ReconcilingDependents",
                "ValidationSucceeded=Unknown, NodeClassReady=Unknown",
                0
            )
        );
        set(&mut list, 1).set_true("ValidationSucceeded", at(6));
        assert_eq!(ready(&list), (Unknown, "ReconcilingDependents", "NodeClassReady=Unknown", 0));
        set(&mut list, 1).set_true("NodeClassReady", at(7));
        assert_eq!(ready(&list), (True, "Ready", "", 7));
        set(&mut list, 2).set_true("ValidationSucceeded", at(300));
        assert_eq!(ready(&list), (Unknown, "ReconcilingDependents", "NodeClassReady=True", 300));
        set(&mut list, 2).set("NodeClassReady", False, "NodeClassNotFound", "", at(301));
        assert_eq!(ready(&list), (False, "UnhealthyDependents", "NodeClassReady=False", 301));
        set(&mut list, 3).set_true("ValidationSucceeded", at(302));
        assert_eq!(ready(&list), (Unknown, "ReconcilingDependents", "NodeClassReady=False", 302));
    }

    #[test] // api 3, cases 7 and 8; lifecycle 1.4, case 6
    fn informational_conditions_and_repeated_ones() {
        use ConditionStatus::{False, True};
        let mut list = Vec::new();
        set(&mut list, 1).initialize();
        set(&mut list, 1).set_true("ValidationSucceeded", at(1));
        set(&mut list, 1).set_true("NodeClassReady", at(2));
        let unhealthy = ("NodeRegistrationHealthy", False, "RegistrationFailed");
        set(&mut list, 1).set(unhealthy.0, unhealthy.1, unhealthy.2, "", at(3));
        assert_eq!(ready(&list), (True, "Ready", "", 2), "not a dependent");
        let since = find(&list, unhealthy.0).and_then(|it| it.last_transition_time);
        assert_eq!(since, Some(at(3)), "it came when it was set, not with the object");

        let before = list.clone();
        assert!(!set(&mut list, 1).set(unhealthy.0, unhealthy.1, unhealthy.2, "", at(4)));
        assert_eq!(list, before);
        assert!(set(&mut list, 1).set(unhealthy.0, unhealthy.1, unhealthy.2, "other", at(5)));
        let it = find(&list, unhealthy.0).expect("still there");
        assert_eq!((it.message.as_str(), it.last_transition_time), ("other", Some(at(3))));

        assert!(set(&mut list, 1).clear(unhealthy.0));
        assert_eq!(find(&list, unhealthy.0), None);
        assert!(!set(&mut list, 1).clear(unhealthy.0));
    }
}
