//! What kind of pod stands in the way of what: the classes of `spec` lifecycle 15, do-not-disrupt and
//! PodDisruptionBudgets. Shared by scheduling (pods of nodes going away), draining and disruption.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::{
    ObjectKey, Taint, TaintEffect,
    core::{IntOrString, Pod, PodDisruptionBudget},
    duration::parse_go,
    labels,
};

/// A terminating pod is no longer waited for this long after its deletion time. Source: Karpenter 1.x.
pub const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// What the annotation `karpenter.sh/do-not-disrupt` of a pod means now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoNotDisrupt {
    /// No annotation.
    Absent,
    /// `"true"`, or a duration on a pod that has not started.
    Active,
    /// A duration that has not run out: active until this moment, which itself is free again.
    Until(Timestamp),
    /// A duration that ran out.
    Elapsed,
    /// Neither `"true"` nor a positive duration: as if absent, with a warning.
    Invalid,
}

impl DoNotDisrupt {
    /// Whether the pod must be left alone.
    pub fn is_active(&self) -> bool {
        matches!(self, Self::Active | Self::Until(_))
    }
}

/// Reads a pod's do-not-disrupt annotation at `now`. A duration counts from the pod's start, not from its node's.
pub fn do_not_disrupt(pod: &Pod, now: Timestamp) -> DoNotDisrupt {
    let Some(value) = pod.metadata.annotation(labels::DO_NOT_DISRUPT) else {
        return DoNotDisrupt::Absent;
    };
    if value == "true" {
        return DoNotDisrupt::Active;
    }
    let Some(length) = parse_go(value).filter(SignedDuration::is_positive) else {
        return DoNotDisrupt::Invalid;
    };
    let Some(start) = pod.status.start_time else { return DoNotDisrupt::Active };
    match start.checked_add(length) {
        Ok(end) if now >= end => DoNotDisrupt::Elapsed,
        Ok(end) => DoNotDisrupt::Until(end),
        Err(_) => DoNotDisrupt::Active,
    }
}

/// Neither finished nor being deleted.
pub fn is_active(pod: &Pod) -> bool {
    !pod.is_terminal() && !pod.metadata.deleting()
}

/// Owned by an `apps/v1` StatefulSet: its successor comes only after it is gone.
pub fn is_stateful(pod: &Pod) -> bool {
    pod.metadata
        .owner_references
        .iter()
        .any(|it| it.kind == "StatefulSet" && it.api_version == "apps/v1")
}

/// The taint of nodes about to be removed.
pub fn disrupted_taint() -> Taint {
    Taint::new(labels::DISRUPTED_TAINT, "", TaintEffect::NoSchedule)
}

/// Whether the pod tolerates `karpenter.sh/disrupted:NoSchedule`.
pub fn tolerates_disruption(pod: &Pod) -> bool {
    let taint = disrupted_taint();
    pod.spec.tolerations.iter().any(|it| it.tolerates(&taint))
}

/// It, or its successor, will need a place when its node goes.
pub fn is_reschedulable(pod: &Pod) -> bool {
    (is_active(pod) || (is_stateful(pod) && pod.metadata.deleting()))
        && !pod.is_daemon()
        && !pod.is_mirror()
}

/// Reschedulable, and nothing holds it on its node for good: simulations place exactly these.
pub fn is_currently_reschedulable(
    pod: &Pod,
    budgets: &PodDisruptionBudgets<'_>,
    now: Timestamp,
) -> bool {
    is_reschedulable(pod)
        && (!is_active(pod) || !do_not_disrupt(pod, now).is_active())
        && !budgets.fully_blocks(pod, now)
}

/// May be asked to leave through the eviction API.
pub fn is_evictable(pod: &Pod, now: Timestamp) -> bool {
    is_active(pod)
        && !tolerates_disruption(pod)
        && !pod.is_mirror()
        && !do_not_disrupt(pod, now).is_active()
}

/// Deleted, and more than a minute past its deletion time: nothing is to be expected of it any more.
pub fn is_stuck_terminating(pod: &Pod, now: Timestamp) -> bool {
    pod.metadata.deletion_timestamp.is_some_and(|at| now.duration_since(at) > STUCK_AFTER)
}

/// Draining has to do with it.
pub fn is_drainable(pod: &Pod, now: Timestamp) -> bool {
    !tolerates_disruption(pod) && !pod.is_mirror() && !is_stuck_terminating(pod, now)
}

/// Draining waits for it.
pub fn is_waiting_for_eviction(pod: &Pod, now: Timestamp) -> bool {
    !pod.is_terminal() && is_drainable(pod, now)
}

/// Why PodDisruptionBudgets do not let a pod go. Keys are sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PdbBlock {
    /// More than one selects the pod: the eviction API refuses such pods whatever they allow.
    Multiple(Vec<ObjectKey>),
    /// The one that selects it allows no disruption now.
    NoneAllowed(ObjectKey),
}

/// The PodDisruptionBudgets of a cluster, by namespace and then by name.
#[derive(Clone, Debug, Default)]
pub struct PodDisruptionBudgets<'a>(BTreeMap<&'a str, Vec<&'a PodDisruptionBudget>>);

impl<'a> FromIterator<&'a PodDisruptionBudget> for PodDisruptionBudgets<'a> {
    fn from_iter<I: IntoIterator<Item = &'a PodDisruptionBudget>>(budgets: I) -> Self {
        let mut by_namespace: BTreeMap<&str, Vec<&PodDisruptionBudget>> = BTreeMap::new();
        for budget in budgets {
            by_namespace.entry(&budget.metadata.namespace).or_default().push(budget);
        }
        for list in by_namespace.values_mut() {
            list.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        }
        Self(by_namespace)
    }
}

impl<'a> PodDisruptionBudgets<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that select the pod. A missing selector selects nothing, an empty one everything in the namespace.
    pub fn matching<'b>(
        &'b self,
        pod: &'b Pod,
    ) -> impl Iterator<Item = &'a PodDisruptionBudget> + 'b {
        let here = self.0.get(pod.metadata.namespace.as_str());
        here.into_iter().flatten().copied().filter(|budget| {
            budget
                .spec
                .selector
                .as_ref()
                .is_some_and(|selector| selector.matches(&pod.metadata.labels))
        })
    }

    /// What keeps the pod from being evicted at this moment. Only evictable pods are ever kept.
    pub fn blocks(&self, pod: &Pod, now: Timestamp) -> Option<PdbBlock> {
        if self.0.is_empty() || !is_evictable(pod, now) {
            return None;
        }
        let mut matching = self.matching(pod);
        let first = matching.next()?;
        let rest: Vec<_> = matching.collect();
        if !rest.is_empty() {
            let keys = std::iter::once(first).chain(rest).map(key).collect();
            return Some(PdbBlock::Multiple(keys));
        }
        (first.status.disruptions_allowed == 0 && !lets_unhealthy_go(first, pod))
            .then(|| PdbBlock::NoneAllowed(key(first)))
    }

    /// Whether the pod will not move as far as its budget's own text goes: `maxUnavailable` 0 or `0%`,
    /// `minAvailable` `100%`, or more than one budget.
    pub fn fully_blocks(&self, pod: &Pod, now: Timestamp) -> bool {
        if self.0.is_empty() || !is_evictable(pod, now) {
            return false;
        }
        let mut matching = self.matching(pod);
        let Some(first) = matching.next() else { return false };
        if matching.next().is_some() {
            return true;
        }
        let never = match (&first.spec.max_unavailable, &first.spec.min_available) {
            (Some(IntOrString::Int(0)), _) => true,
            (Some(IntOrString::String(text)), _) if text == "0%" => true,
            (_, Some(IntOrString::String(text))) => text == "100%",
            _ => false,
        };
        never && !lets_unhealthy_go(first, pod)
    }
}

/// `AlwaysAllow`, and the pod says itself that it is not ready.
fn lets_unhealthy_go(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
        && pod.condition("Ready").is_some_and(|it| it.status == "False")
}

fn key(budget: &PodDisruptionBudget) -> ObjectKey {
    ObjectKey::namespaced(&budget.metadata.namespace, &budget.metadata.name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::meta::from_value;

    fn at(text: &str) -> Timestamp {
        format!("2026-03-01T{text}Z").parse().expect("a time")
    }

    fn pod(fields: Value) -> Pod {
        from_value(fields).expect("a pod")
    }

    #[allow(clippy::needless_pass_by_value)] // Objects read best with their fields in place.
    fn owned(api_version: &str, kind: &str, extra: Value) -> Pod {
        let mut value = json!({"metadata": {"name": "p", "namespace": "a", "labels": {"app": "x"},
            "ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u"}]},
            "spec": {}});
        crate::meta::apply_merge_patch(&mut value, &extra);
        pod(value)
    }

    fn budget(name: &str, spec: Value, allowed: i32) -> PodDisruptionBudget {
        let mut spec = spec;
        if spec.get("selector").is_none() {
            spec["selector"] = json!({"matchLabels": {"app": "x"}});
        }
        from_value(json!({"metadata": {"name": name, "namespace": "a"}, "spec": spec,
            "status": {"disruptionsAllowed": allowed}}))
        .expect("a budget")
    }

    fn annotated(value: &str, start: Option<&str>, phase: &str) -> Pod {
        let mut it =
            pod(json!({"metadata": {"name": "p", "namespace": "a", "labels": {"app": "x"},
            "annotations": {"karpenter.sh/do-not-disrupt": value}}, "spec": {}}));
        it.status.start_time = start.map(at);
        it.status.phase = phase.into();
        it
    }

    #[test] // lifecycle 15.4, cases 1-3; api 16, case 1
    fn do_not_disrupt_counts_from_the_start_of_the_pod() {
        use DoNotDisrupt::{Active, Elapsed, Invalid, Until};
        for (value, start, now, expected) in [
            ("2h", Some("10:00:00"), "11:59:59", Until(at("12:00:00"))),
            ("2h", Some("10:00:00"), "12:00:00", Elapsed),
            ("1.5h", Some("10:00:00"), "11:29:59", Until(at("11:30:00"))),
            ("15m", Some("10:00:00"), "10:14:59", Until(at("10:15:00"))),
            ("15m", Some("10:00:00"), "10:15:00", Elapsed),
            ("yes", Some("10:00:00"), "10:00:01", Invalid),
            ("1h", None, "12:00:00", Active),
            ("true", None, "12:00:00", Active),
            ("True", None, "12:00:00", Invalid),
            ("false", None, "12:00:00", Invalid),
            ("30", None, "12:00:00", Invalid),
            ("-5m", None, "12:00:00", Invalid),
            ("0s", None, "12:00:00", Invalid),
            ("", None, "12:00:00", Invalid),
        ] {
            assert_eq!(
                do_not_disrupt(&annotated(value, start, "Running"), at(now)),
                expected,
                "{value:?} at {now}"
            );
        }
        let failed = annotated("true", None, "Failed");
        assert!(!is_active(&failed) && !is_evictable(&failed, at("12:00:00")));
    }

    #[test] // lifecycle 15.4, cases 4-8
    fn budgets_block_only_evictable_pods() {
        let now = at("12:00:00");
        let plain = owned("apps/v1", "ReplicaSet", json!({}));
        let daemon = owned("apps/v1", "DaemonSet", json!({}));
        let tolerant = owned(
            "apps/v1",
            "ReplicaSet",
            json!({"spec": {"tolerations": [{"operator": "Exists"}]}}),
        );
        let unready = owned(
            "apps/v1",
            "ReplicaSet",
            json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        );
        let (a5, b5) = (budget("a", json!({}), 5), budget("b", json!({}), 5));
        let both: PodDisruptionBudgets<'_> = [&b5, &a5].into_iter().collect();
        let keys = vec![ObjectKey::namespaced("a", "a"), ObjectKey::namespaced("a", "b")];
        assert_eq!(both.blocks(&plain, now), Some(PdbBlock::Multiple(keys)));
        assert!(both.fully_blocks(&plain, now));

        let none = budget("a", json!({"minAvailable": 3}), 0);
        let one: PodDisruptionBudgets<'_> = [&none].into_iter().collect();
        let blocked = Some(PdbBlock::NoneAllowed(ObjectKey::namespaced("a", "a")));
        assert_eq!(one.blocks(&plain, now), blocked);
        assert_eq!(one.blocks(&daemon, now), blocked);
        assert_eq!(one.blocks(&tolerant, now), None);
        assert!(is_currently_reschedulable(&plain, &one, now), "not fully blocked");

        let always = budget("a", json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"}), 0);
        let one: PodDisruptionBudgets<'_> = [&always].into_iter().collect();
        assert_eq!(one.blocks(&unready, now), None);
        assert_eq!(one.blocks(&plain, now), blocked, "no Ready condition is not unready");
    }

    #[test] // lifecycle 15.3
    fn some_budgets_never_let_go() {
        let now = at("12:00:00");
        let plain = owned("apps/v1", "ReplicaSet", json!({}));
        for (spec, expected) in [
            (json!({"maxUnavailable": 0}), true),
            (json!({"maxUnavailable": "0%"}), true),
            (json!({"minAvailable": "100%"}), true),
            (json!({"minAvailable": 3}), false),
            (json!({"maxUnavailable": 1}), false),
            (json!({"maxUnavailable": 0, "selector": null}), false),
            (json!({"maxUnavailable": 0, "selector": {}}), true),
        ] {
            let budget = budget("a", spec.clone(), 0);
            let budgets: PodDisruptionBudgets<'_> = [&budget].into_iter().collect();
            assert_eq!(budgets.fully_blocks(&plain, now), expected, "{spec}");
            assert_eq!(!is_currently_reschedulable(&plain, &budgets, now), expected, "{spec}");
        }
    }

    #[test] // lifecycle 15.4, cases 9 and 10
    fn terminating_pods() {
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-03-01T10:00:30Z"}});
        let stateful = owned("apps/v1", "StatefulSet", deleted.clone());
        let plain = owned("apps/v1", "ReplicaSet", deleted);
        assert!(is_reschedulable(&stateful) && !is_evictable(&stateful, at("10:00:00")));
        assert!(!is_reschedulable(&plain));
        assert!(!is_stuck_terminating(&plain, at("10:01:30")));
        assert!(is_stuck_terminating(&plain, at("10:01:31")));
        assert!(is_waiting_for_eviction(&plain, at("10:01:30")));
        assert!(!is_waiting_for_eviction(&plain, at("10:01:31")));
    }
}
