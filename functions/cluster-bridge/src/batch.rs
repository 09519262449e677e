//! Keys on their way to the bus: coalesced, and for the solvers held back until a batch window closes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::Uid;
use spokeshave_ports::{Key, Work, queues::BusEvent};

/// Keys per event at most: an entry of PutEvents may have 256 KiB, and a key takes at most about 600 bytes.
pub const KEYS_PER_EVENT: usize = 100;

/// A batch window: open from the first trigger until nothing new has come for `idle`, or `max` has passed.
#[derive(Clone, Debug)]
pub struct Window {
    idle: SignedDuration,
    max: SignedDuration,
    open: Option<Open>,
}

#[derive(Clone, Debug)]
struct Open {
    first: Timestamp,
    last: Timestamp,
    /// Only a trigger that has not been seen in this window restarts the idle time.
    seen: BTreeSet<Uid>,
}

impl Window {
    pub fn new(idle: SignedDuration, max: SignedDuration) -> Self {
        Self { idle, max, open: None }
    }

    /// Something to be batched happened.
    pub fn trigger(&mut self, uid: &Uid, now: Timestamp) {
        let open =
            self.open.get_or_insert_with(|| Open { first: now, last: now, seen: BTreeSet::new() });
        if open.seen.insert(uid.clone()) {
            open.last = open.last.max(now);
        }
    }

    /// When it was opened, if it is.
    pub fn opened_at(&self) -> Option<Timestamp> {
        self.open.as_ref().map(|it| it.first)
    }

    /// When the window closes, if it is open. At that very moment it is closed.
    pub fn closes_at(&self) -> Option<Timestamp> {
        let open = self.open.as_ref()?;
        Some(after(open.last, self.idle).min(after(open.first, self.max)))
    }

    /// Whether it is open and due; if so it starts over.
    pub fn close(&mut self, now: Timestamp) -> bool {
        let due = self.closes_at().is_some_and(|at| at <= now);
        if due {
            self.open = None;
        }
        due
    }
}

fn after(at: Timestamp, length: SignedDuration) -> Timestamp {
    at.checked_add(length).unwrap_or(Timestamp::MAX)
}

/// Keys by detail type, each object once, with the newest version seen.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    by_type: BTreeMap<&'static str, BTreeMap<ObjectId, Key>>,
    /// Detail types that ask to look at everything.
    all: BTreeSet<&'static str>,
}

/// Kind, namespace and name.
type ObjectId = (String, String, String);

impl Keys {
    pub fn is_empty(&self) -> bool {
        self.by_type.is_empty() && self.all.is_empty()
    }

    /// Adds a key; a later one of the same object replaces it.
    pub fn add(&mut self, detail_type: &'static str, key: Key) {
        let id = (key.kind.clone(), key.namespace.clone(), key.name.clone());
        self.by_type.entry(detail_type).or_default().insert(id, key);
    }

    /// Adds a key, but keeps only the newest one of its kind: enough to tell a cache what it must have seen.
    pub fn add_newest(&mut self, detail_type: &'static str, key: Key) {
        let keys = self.by_type.entry(detail_type).or_default();
        let id = (key.kind.clone(), String::new(), String::new());
        match keys.get(&id) {
            Some(known) if is_newer(&known.resource_version, &key.resource_version) => {}
            _ => {
                keys.insert(id, key);
            }
        }
    }

    /// Asks to look at everything, whatever keys there are.
    pub fn add_all(&mut self, detail_type: &'static str) {
        self.all.insert(detail_type);
    }

    /// Takes everything out as events of at most [`KEYS_PER_EVENT`] keys.
    pub fn take(&mut self) -> Vec<BusEvent> {
        let all = std::mem::take(&mut self.all);
        let mut events: Vec<BusEvent> = all
            .iter()
            .map(|&detail_type| BusEvent { detail_type, work: Work::new(detail_type, Vec::new()) })
            .collect();
        for (detail_type, keys) in std::mem::take(&mut self.by_type) {
            if all.contains(detail_type) {
                continue;
            }
            let keys: Vec<Key> = keys.into_values().collect();
            events.extend(keys.chunks(KEYS_PER_EVENT).map(|chunk| BusEvent {
                detail_type,
                work: Work::new(detail_type, chunk.to_vec()),
            }));
        }
        events
    }
}

/// Whether version `a` is newer than `b`. Versions are compared as numbers, as the API has promised since 1.35.
fn is_newer(a: &str, b: &str) -> bool {
    let number = |text: &str| text.parse::<u128>().ok();
    number(a) > number(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // scheduling 10, cases 1-4
    fn windows_close_when_nothing_new_comes_or_at_last() {
        let at = |millis: i64| Timestamp::from_millisecond(millis).unwrap_or_default();
        let every_half_second: Vec<(String, i64)> =
            (0..60).map(|n| (format!("pod-{n}"), n * 500)).collect();
        let list = |it: &[(&str, i64)]| -> Vec<(String, i64)> {
            it.iter().map(|(uid, at)| ((*uid).to_owned(), *at)).collect()
        };
        for (what, triggers, closes) in [
            ("one pod", list(&[("a", 0)]), 1000),
            ("each within a second", list(&[("a", 0), ("b", 800), ("c", 1500)]), 2500),
            ("the same pod again", list(&[("a", 0), ("a", 900)]), 1000),
            ("without end", every_half_second, 10_000),
        ] {
            let second = SignedDuration::from_secs(1);
            let mut window = Window::new(second, SignedDuration::from_secs(10));
            let mut closed = None;
            for (uid, millis) in triggers {
                if let Some(due) = window.closes_at().filter(|due| *due <= at(millis)) {
                    closed.get_or_insert(due);
                    break;
                }
                window.trigger(&Uid(uid), at(millis));
            }
            let closed = closed.or(window.closes_at());
            assert_eq!(closed, Some(at(closes)), "{what}");
            assert!(!window.clone().close(at(closes - 1)) && window.close(at(closes)), "{what}");
        }
    }
}
