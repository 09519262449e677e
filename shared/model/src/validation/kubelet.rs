//! `spec.kubelet` of a class: any field of the upstream kubelet configuration, checked by us (`spec` api 12.2).

mod shape;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Problem;
use crate::{FieldPath, Quantity, duration::parse_go};

/// What the kubelet can evict for.
const SIGNALS: &[&str] = &[
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];

/// What the kubelet can reserve.
const RESERVABLE: &[&str] = &["cpu", "memory", "ephemeral-storage", "pid"];

/// What is wrong with the settings: their shape first, then their meaning, in the order in which conditions list it.
pub fn kubelet(settings: Option<&BTreeMap<String, Value>>) -> Vec<Problem> {
    let Some(settings) = settings.filter(|it| !it.is_empty()) else { return Vec::new() };
    let mut problems = shape::problems(settings);
    Meaning { settings, problems: &mut problems }.check();
    problems
}

fn root() -> FieldPath {
    FieldPath::parse("spec.kubelet")
}

/// Step B: fields of the wrong type are passed over, the shape has them.
struct Meaning<'a> {
    settings: &'a BTreeMap<String, Value>,
    problems: &'a mut Vec<Problem>,
}

impl Meaning<'_> {
    fn check(&mut self) {
        if self.settings.contains_key("registerWithTaints") {
            self.field(
                "registerWithTaints",
                "can't be set, Karpenter sets it from the NodeClaim's taints so the node registers unschedulable \
                 until it's ready",
            );
        }
        for field in
            ["evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim"]
        {
            self.evictions(field);
        }
        self.matching("evictionSoft", "evictionSoftGracePeriod");
        self.matching("evictionSoftGracePeriod", "evictionSoft");
        self.reserved("kubeReserved");
        self.reserved("systemReserved");
        let (high, low) = ("imageGCHighThresholdPercent", "imageGCLowThresholdPercent");
        for field in [high, low] {
            if let Some(value) = self.integer(field).filter(|it| !(0..=100).contains(it)) {
                self.field(field, &format!("{value} must be between 0 and 100"));
            }
        }
        for field in ["podsPerCore", "evictionMaxPodGracePeriod", "maxPods"] {
            if let Some(value) = self.integer(field).filter(|it| *it < 0) {
                self.field(field, &format!("{value} can't be negative"));
            }
        }
        if let (Some(high), Some(low)) = (self.integer(high), self.integer(low))
            && high <= low
        {
            let message = format!(
                "spec.kubelet: imageGCHighThresholdPercent ({high}) must be greater than \
                 imageGCLowThresholdPercent ({low})"
            );
            self.problems.push(Problem::new(root(), message));
        }
    }

    fn field(&mut self, field: &str, problem: &str) {
        let at = root().field(field);
        self.problems.push(Problem::new(at.clone(), format!("{at}: {problem}")));
    }

    fn entry(&mut self, field: &str, key: &str, problem: &str) {
        let at = root().field(field).key(key);
        self.problems.push(Problem::new(at.clone(), format!("{at}: {problem}")));
    }

    /// A key that does not belong into the map.
    fn key(&mut self, field: &str, key: &str, problem: &str) {
        let at = root().field(field);
        let message = format!("{at}: {key:?} {problem}");
        self.problems.push(Problem::new(at.key(key), message));
    }

    fn integer(&self, field: &str) -> Option<i64> {
        self.settings.get(field).and_then(Value::as_i64)
    }

    /// The text entries of a map field, by key.
    fn texts(&self, field: &str) -> Vec<(String, Option<String>)> {
        let empty = Map::new();
        let map = self.settings.get(field).and_then(Value::as_object).unwrap_or(&empty);
        let mut entries: Vec<_> = map
            .iter()
            .map(|(key, value)| (key.clone(), value.as_str().map(str::to_owned)))
            .collect();
        entries.sort();
        entries
    }

    fn evictions(&mut self, field: &str) {
        for (key, value) in self.texts(field) {
            if !SIGNALS.contains(&key.as_str()) {
                let problem =
                    format!("isn't a valid eviction signal, must be one of {}", SIGNALS.join(", "));
                self.key(field, &key, &problem);
            }
            let Some(value) = value else { continue };
            let problem = if field == "evictionSoftGracePeriod" {
                match parse_go(&value) {
                    None => "must be a duration",
                    Some(length) if length.is_negative() => "can't be a negative duration",
                    Some(_) => continue,
                }
            } else {
                match threshold(&value) {
                    None => "must be a percentage or a resource quantity",
                    Some(false) => "can't be a negative resource quantity",
                    Some(true) => continue,
                }
            };
            self.entry(field, &key, &format!("{value:?} {problem}"));
        }
    }

    fn matching(&mut self, field: &str, other: &str) {
        let others = self.texts(other);
        for (key, _) in self.texts(field) {
            if !others.iter().any(|(it, _)| *it == key) {
                self.entry(field, &key, &format!("has no matching {other}"));
            }
        }
    }

    fn reserved(&mut self, field: &str) {
        for (key, value) in self.texts(field) {
            if !RESERVABLE.contains(&key.as_str()) {
                let problem = format!(
                    "isn't a reservable resource, must be one of {}",
                    RESERVABLE.join(", ")
                );
                self.key(field, &key, &problem);
            }
            if let Some(value) = value.filter(|it| it.starts_with('-')) {
                self.entry(
                    field,
                    &key,
                    &format!("{value:?} can't be a negative resource quantity"),
                );
            }
        }
    }
}

/// Whether an eviction threshold is not negative; `None` when it is neither a percentage nor a quantity.
fn threshold(text: &str) -> Option<bool> {
    if let Some(number) = text.strip_suffix('%') {
        let is_plain = !number.is_empty()
            && number.bytes().all(|it| it.is_ascii_digit() || matches!(it, b'.' | b'+' | b'-'));
        let percentage: f64 = number.parse().ok().filter(|_| is_plain)?;
        return (0.0..=100.0).contains(&percentage).then_some(true);
    }
    text.parse::<Quantity>().ok().map(|it| !it.is_negative())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn messages(settings: Value) -> Vec<String> {
        let settings = serde_json::from_value(settings).expect("a map");
        kubelet(Some(&settings)).into_iter().map(|it| it.message).collect()
    }

    #[test] // api 12, cases 1 to 9
    fn problems() {
        let signals = SIGNALS.join(", ");
        for (settings, expected) in [
            (json!({}), vec![]),
            (json!({"maxPods": 42, "registryPullQPS": 10}), vec![]),
            (json!({"maxPods": "vcpus * 10"}), vec![]),
            (
                json!({"notAKubeletField": 1}),
                vec!["spec.kubelet: unknown field \"notAKubeletField\"".to_owned()],
            ),
            (
                json!({"authentication": {"webhook": {"nope": true}}}),
                vec!["spec.kubelet: unknown field \"authentication.webhook.nope\"".into()],
            ),
            (json!({"evictionHard": {"memory.available": "5%"}}), vec![]),
            (json!({"evictionHard": {"memory.available": "2.5%", "nodefs.available": "1Gi"}}), vec![]),
            (
                json!({"evictionHard": {"memory.available": "101%"}}),
                vec!["spec.kubelet.evictionHard[memory.available]: \"101%\" must be a percentage or a resource quantity".into()],
            ),
            (
                json!({"evictionHard": {"memory.available": "-1%"}}),
                vec!["spec.kubelet.evictionHard[memory.available]: \"-1%\" must be a percentage or a resource quantity".into()],
            ),
            (
                json!({"evictionHard": {"memory.available": "abc"}}),
                vec!["spec.kubelet.evictionHard[memory.available]: \"abc\" must be a percentage or a resource quantity".into()],
            ),
            (
                json!({"evictionHard": {"memory.available": "-5Mi"}}),
                vec!["spec.kubelet.evictionHard[memory.available]: \"-5Mi\" can't be a negative resource quantity".into()],
            ),
            (
                json!({"evictionHard": {"foo.available": "5%"}}),
                vec![format!("spec.kubelet.evictionHard: \"foo.available\" isn't a valid eviction signal, must be one of {signals}")],
            ),
            (
                json!({"evictionSoft": {"memory.available": "5%"}}),
                vec!["spec.kubelet.evictionSoft[memory.available]: has no matching evictionSoftGracePeriod".into()],
            ),
            (
                json!({"evictionSoft": {"memory.available": "5%"},
                       "evictionSoftGracePeriod": {"memory.available": "1m", "nodefs.available": "1m"}}),
                vec!["spec.kubelet.evictionSoftGracePeriod[nodefs.available]: has no matching evictionSoft".into()],
            ),
            (
                json!({"evictionSoft": {"memory.available": "5%"},
                       "evictionSoftGracePeriod": {"memory.available": "soon"}}),
                vec!["spec.kubelet.evictionSoftGracePeriod[memory.available]: \"soon\" must be a duration".into()],
            ),
            (
                json!({"imageGCHighThresholdPercent": 70, "imageGCLowThresholdPercent": 70}),
                vec!["spec.kubelet: imageGCHighThresholdPercent (70) must be greater than imageGCLowThresholdPercent (70)".into()],
            ),
            (
                json!({"imageGCHighThresholdPercent": 101}),
                vec!["spec.kubelet.imageGCHighThresholdPercent: 101 must be between 0 and 100".into()],
            ),
            (
                json!({"kubeReserved": {"cpu": "-1"}}),
                vec!["spec.kubelet.kubeReserved[cpu]: \"-1\" can't be a negative resource quantity".into()],
            ),
            (
                json!({"kubeReserved": {"gpu": "1"}}),
                vec!["spec.kubelet.kubeReserved: \"gpu\" isn't a reservable resource, must be one of cpu, memory, ephemeral-storage, pid".into()],
            ),
            (
                json!({"registerWithTaints": []}),
                vec!["spec.kubelet.registerWithTaints: can't be set, Karpenter sets it from the NodeClaim's taints so the node registers unschedulable until it's ready".into()],
            ),
            (json!({"maxPods": -1}), vec!["spec.kubelet.maxPods: -1 can't be negative".into()]),
        ] {
            assert_eq!(messages(settings.clone()), expected, "{settings}");
        }
    }

    #[test] // api 12, cases 3 and 8
    fn a_wrong_type_is_the_only_problem_of_the_shape() {
        for (settings, field) in [
            (json!({"podsPerCore": "10", "bogus": 1}), "podsPerCore"),
            (json!({"kubeReserved": {"cpu": 1}}), "kubeReserved"),
            (json!({"maxPods": 1.5}), "maxPods"),
            (json!({"maxPods": 3_000_000_000_i64}), "maxPods"),
            (json!({"syncFrequency": "1 minute"}), "syncFrequency"),
            (json!({"featureGates": {"A": "true"}}), "featureGates.A"),
            (json!({"registerWithTaints": [{"key": 1}]}), "registerWithTaints[0].key"),
        ] {
            let found = messages(settings.clone());
            assert!(
                found[0].starts_with("spec.kubelet: ") && found[0].contains(field),
                "{found:?}"
            );
            assert_eq!(found.iter().filter(|it| it.contains("unknown field")).count(), 0);
        }
        assert!(messages(json!({"podPidsLimit": 3_000_000_000_i64})).is_empty());
        assert_eq!(messages(json!({"maxpods": 1})), ["spec.kubelet: unknown field \"maxpods\""]);
        let many = messages(json!({"b": 1, "a": 2, "evictionHard": {"x": "1"}}));
        assert!(
            many[0].contains("\"a\"") && many[1].contains("\"b\"") && many[2].contains("\"x\"")
        );
    }
}
