//! Events on objects, as `kubectl describe` shows them.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_ports::cluster::KubeEvent;

/// Where events on cluster-scoped objects are kept, as Kubernetes' own components do it.
const CLUSTER_NAMESPACE: &str = "default";

/// Remembered events of one process; past this all are forgotten, and the names still tell repeats apart.
const REMEMBERED: usize = 4096;

/// Longest message. Source: validation of `events.k8s.io/v1` notes, 1024 bytes.
const MAX_MESSAGE: usize = 1024;

/// Drops repeats.
#[derive(Debug, Default)]
pub struct Repeats {
    seen: BTreeMap<KubeEvent, Timestamp>,
}

impl Repeats {
    /// Whether `event` is a repeat at `now` of one published less than `dedupe` ago; otherwise it is remembered.
    pub fn is_repeat(&mut self, event: &KubeEvent, dedupe: SignedDuration, now: Timestamp) -> bool {
        let event = event.identity();
        if self.seen.get(&event).is_some_and(|last| now.duration_since(*last) < dedupe) {
            return true;
        }
        if self.seen.len() >= REMEMBERED {
            self.seen.clear();
        }
        self.seen.insert(event, now);
        false
    }
}

/// The namespace that an event on `event`'s object is kept in.
pub fn namespace(event: &KubeEvent) -> &str {
    if event.key.namespace.is_empty() { CLUSTER_NAMESPACE } else { &event.key.namespace }
}

/// The event as the API server takes it. Its name is made of what it says and of the `dedupe` span that `now` lies in,
/// so that the same event published by two processes within the span is one event.
pub fn event(event: &KubeEvent, dedupe: SignedDuration, now: Timestamp) -> Value {
    let mut hasher = DefaultHasher::new();
    (&event.uid.0, event.warning, &event.reason, &event.identity().message).hash(&mut hasher);
    let span = dedupe.as_millis().max(1);
    (i128::from(now.as_millisecond()) / span).hash(&mut hasher);
    // Names may have 253 characters; an object's name leaves room for the hash nearly always.
    let object: String = event.key.name.chars().take(230).collect();
    let stamp = now.to_string();
    let mut message = event.message.clone();
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE - 3).rev().find(|it| message.is_char_boundary(*it));
        message.truncate(end.unwrap_or(0));
        message.push_str("...");
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": format!("{object}.{:016x}", hasher.finish()),
            "namespace": namespace(event),
        },
        "involvedObject": {
            "apiVersion": event.api_version,
            "kind": event.kind,
            "namespace": event.key.namespace,
            "name": event.key.name,
            "uid": event.uid.0,
        },
        "type": if event.warning { "Warning" } else { "Normal" },
        "reason": event.reason,
        "message": message,
        "source": {"component": "spokeshave"},
        "reportingComponent": "spokeshave",
        "reportingInstance": "",
        "firstTimestamp": whole_second(&stamp),
        "lastTimestamp": whole_second(&stamp),
        "count": 1,
    })
}

/// `metav1.Time` has no fractions.
fn whole_second(stamp: &str) -> String {
    stamp.split_once('.').map_or_else(|| stamp.to_owned(), |(whole, _)| format!("{whole}Z"))
}

#[cfg(test)]
mod tests {
    use spokeshave_model::{ObjectKey, Uid};

    use super::*;

    fn sample(message: &str) -> KubeEvent {
        KubeEvent {
            kind: "NodeClaim",
            api_version: "karpenter.sh/v1".into(),
            key: ObjectKey::cluster("default-x7k2p"),
            uid: Uid::from("u-1"),
            warning: true,
            reason: "FailedDraining".into(),
            message: message.into(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("valid")
    }

    #[test] // lifecycle 32.1, cases 1 to 4, with the better key: the object and the text
    fn another_object_or_another_text_is_another_event() {
        let other = KubeEvent { uid: Uid::from("u-2"), ..sample("a") };
        let minutes = SignedDuration::from_mins;
        for (case, span, told) in [
            (
                1,
                2,
                vec![(sample("a"), 0, true), (sample("b"), 60, true), (sample("b"), 121, false)],
            ),
            (2, 1, vec![(sample("for Drifted"), 0, true), (sample("for Empty"), 0, true)]),
            (
                3,
                15,
                vec![
                    (sample("a"), 0, true),
                    (sample("b"), 600, true),
                    (sample("a"), 899, false),
                    (sample("a"), 900, true),
                ],
            ),
            (4, 2, vec![(sample("a"), 0, true), (other, 1, true)]),
        ] {
            let mut repeats = Repeats::default();
            for (event, second, expected) in told {
                let is_told = !repeats.is_repeat(&event, minutes(span), at(second));
                assert_eq!(is_told, expected, "case {case}, {second} s");
            }
        }
    }

    #[test]
    fn repeats_within_the_span_are_dropped() {
        let mut repeats = Repeats::default();
        let span = SignedDuration::from_secs(60);
        for (message, second, repeat) in
            [("a", 0, false), ("a", 59, true), ("b", 59, false), ("a", 60, false)]
        {
            assert_eq!(
                repeats.is_repeat(&sample(message), span, at(second)),
                repeat,
                "{message} {second}"
            );
        }
    }

    #[test] // scheduling 17, case 5: every plan says it in other words
    fn a_pod_that_fails_all_the_time_is_told_of_once() {
        let failed = |text: String| KubeEvent {
            kind: "Pod",
            reason: "FailedScheduling".into(),
            ..sample(&text)
        };
        let span = SignedDuration::from_mins(5);
        let mut repeats = Repeats::default();
        let told: Vec<i64> = (0..31_i64)
            .map(|plan| plan * 10)
            .filter(|second| {
                let event = failed(format!("no place, {second} s ago there was none either"));
                !repeats.is_repeat(&event, span, at(*second))
            })
            .collect();
        assert_eq!(told, [0, 300]);
        let name =
            |text: &str| event(&failed(text.into()), span, at(0))["metadata"]["name"].clone();
        assert_eq!(name("a"), name("b"), "other processes say the same");
    }

    #[test]
    fn another_request_id_is_no_other_event() {
        let told =
            |n| sample(&format!("X: no (ec2:DescribeSubnets, request id {n}, retryable); wait"));
        let mut repeats = Repeats::default();
        let span = SignedDuration::from_secs(60);
        assert!(!repeats.is_repeat(&told(1), span, at(0)));
        assert!(repeats.is_repeat(&told(2), span, at(59)));
        let name = |n| event(&told(n), span, at(0))["metadata"]["name"].clone();
        assert_eq!(name(1), name(2));
    }

    #[test]
    fn the_same_event_within_a_span_has_the_same_name() {
        let name = |message: &str, second| {
            let made = event(&sample(message), SignedDuration::from_secs(60), at(second));
            made["metadata"]["name"].as_str().expect("a name").to_owned()
        };
        assert_eq!(name("a", 0), name("a", 59));
        assert_ne!(name("a", 0), name("a", 60));
        assert_ne!(name("a", 0), name("b", 0));
        assert!(name("a", 0).starts_with("default-x7k2p."));
    }

    #[test]
    fn long_messages_are_cut_at_a_character() {
        let made = event(&sample(&"é".repeat(2000)), SignedDuration::ZERO, at(0));
        let message = made["message"].as_str().expect("a message");
        assert!(message.len() <= MAX_MESSAGE && message.ends_with("é..."), "{}", message.len());
    }
}
