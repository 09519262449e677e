//! The bridge killed at every moment: whatever changed before or after is told by its successor.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, VecDeque},
    future::{Future, pending},
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_cluster_bridge_function::{Change, Mode, Start, run};
use spokeshave_model::{Kind, NodeClaim, ObjectKey, Settings, Uid, core::Pod, meta::from_value};
use spokeshave_ports::{
    AwsError, Bus, Clock, Cluster, ClusterError, Concern, Invocation, Precondition, Record,
    Selector, StateError, StateKey, StateTable, Watch, When,
    cluster::{Eviction, KubeEvent},
    fake::Fake,
    queues::BusEvent,
    watch::{Positions, WatchEvent},
};

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_767_261_600_000 + millis).expect("in range")
}

/// What happened when, by version.
struct Happened {
    at: Timestamp,
    version: u64,
    change: Change,
}

/// A cluster with a history, watched and written by somebody who dies after some calls.
struct World {
    fake: Fake,
    now: Cell<Timestamp>,
    history: Vec<Happened>,
    coming: RefCell<VecDeque<(Timestamp, WatchEvent)>>,
    /// Calls that are left to the one that runs.
    left: Cell<usize>,
}

impl World {
    fn new() -> Self {
        let mut history = Vec::new();
        for n in 0..12_u64 {
            let meta = |name: String| json!({"name": name, "uid": name, "namespace": "n", "resourceVersion": (n + 1).to_string()});
            let change = if n % 3 == 0 {
                let value = json!({"metadata": meta(format!("p{n}")), "status": {"conditions":
                    [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
                Change::of::<Pod>(None, Some(Arc::new(from_value(value).expect("a pod"))))
            } else {
                let value = json!({"metadata": meta(format!("c{n}")), "spec": {"nodeClassRef":
                    {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"}}});
                Change::of::<NodeClaim>(None, Some(Arc::new(from_value(value).expect("a claim"))))
            };
            let at = at(i64::try_from(n * 1700).expect("small"));
            history.push(Happened { at, version: n + 1, change: change.expect("watched") });
        }
        let fake = Fake::at(at(0));
        Self {
            fake,
            now: Cell::new(at(0)),
            history,
            coming: RefCell::default(),
            left: Cell::new(0),
        }
    }

    /// One call: the last one never comes back.
    async fn call(&self) {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => pending().await,
        }
    }

    /// Runs a bridge that dies after so many calls; whether it came to its end.
    fn live(&self, holder: &str, calls: usize) -> bool {
        self.left.set(calls);
        let settings = Settings::default();
        let now = self.now.get();
        let deadline = now + SignedDuration::from_secs(60);
        let journal = &self.fake;
        let cx = Invocation {
            concern: Concern::ClusterBridge,
            now,
            deadline,
            settings: &settings,
            journal,
        };
        let start =
            Start { holder: holder.into(), stack: "s".into(), mode: Mode::Watch, hand_over: None };
        let run = pin!(run(&start, self, self, self, self, self, &cx));
        run.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn told(&self) -> BTreeSet<String> {
        let put = self.fake.put.borrow();
        put.iter().flat_map(|it| &it.work.keys).map(|it| it.name.clone()).collect()
    }
}

impl Clock for World {
    fn now(&self) -> Timestamp {
        self.now.get()
    }
}

impl Watch for World {
    async fn start(&self, from: &Positions) -> Result<(), ClusterError> {
        self.call().await;
        let now = self.now.get();
        let mut coming: Vec<(Timestamp, WatchEvent)> = Vec::new();
        for kind in [Pod::KIND, NodeClaim::KIND] {
            let of_kind = || self.history.iter().filter(move |it| it.change.kind() == kind);
            let mut known = from.get(kind).and_then(|it| it.parse::<u64>().ok());
            if known.is_none() {
                let there = || of_kind().filter(|it| it.at <= now);
                coming.extend(there().map(|it| (now, WatchEvent::Listed(it.change.clone()))));
                let newest =
                    self.history.iter().filter(|it| it.at <= now).map(|it| it.version).max();
                known = newest.or(Some(0));
                let resource_version = known.unwrap_or(0).to_string();
                coming.push((now, WatchEvent::Bookmark { kind, resource_version }));
            }
            let later = of_kind().filter(|it| Some(it.version) > known);
            coming.extend(later.map(|it| (it.at.max(now), WatchEvent::Changed(it.change.clone()))));
        }
        coming.sort_by_key(|it| it.0);
        *self.coming.borrow_mut() = coming.into();
        Ok(())
    }

    async fn next(&self, timeout: SignedDuration) -> Result<Option<WatchEvent>, ClusterError> {
        self.call().await;
        let until = self.now.get() + timeout;
        let mut coming = self.coming.borrow_mut();
        if coming.front().is_some_and(|it| it.0 <= until) {
            let (at, event) = coming.pop_front().expect("there is one");
            self.now.set(self.now.get().max(at));
            return Ok(Some(event));
        }
        self.now.set(until);
        Ok(None)
    }
}

impl Bus for World {
    async fn put(&self, events: &[BusEvent]) -> Result<Vec<usize>, AwsError> {
        self.call().await;
        // Every fifth event is refused the first time.
        let n = self.fake.put.borrow().len() + self.left.get();
        if n.is_multiple_of(5) && events.len() > 1 {
            self.fake.refused.borrow_mut().push(vec![0]);
        }
        self.fake.put(events).await
    }
}

impl StateTable for World {
    async fn read(&self, key: &StateKey) -> Result<Option<Record>, StateError> {
        self.call().await;
        self.fake.read(key).await
    }

    async fn query(
        &self,
        partition: &str,
        prefix: &str,
    ) -> Result<Vec<(String, Record)>, StateError> {
        self.fake.query(partition, prefix).await
    }

    async fn write(
        &self,
        key: &StateKey,
        data: Value,
        expires_at: Option<Timestamp>,
        when: When,
    ) -> Result<u64, StateError> {
        self.call().await;
        self.fake.write(key, data, expires_at, when).await
    }

    async fn remove(&self, key: &StateKey, when: When) -> Result<(), StateError> {
        self.call().await;
        self.fake.remove(key, when).await
    }
}

impl Cluster for World {
    async fn get<K: Kind>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, ClusterError> {
        self.call().await;
        self.fake.get(key).await
    }

    async fn list<K: Kind>(&self, selector: &Selector) -> Result<Vec<Arc<K>>, ClusterError> {
        self.fake.list(selector).await
    }

    async fn create<K: Kind>(&self, object: &K) -> Result<Arc<K>, ClusterError> {
        self.call().await;
        self.fake.create(object).await
    }

    async fn patch<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        self.call().await;
        self.fake.patch(old, new, guard).await
    }

    async fn patch_status<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        self.fake.patch_status(old, new, guard).await
    }

    async fn delete<K: Kind>(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        grace: Option<i64>,
    ) -> Result<(), ClusterError> {
        self.fake.delete::<K>(key, uid, grace).await
    }

    async fn evict(&self, pod: &ObjectKey, uid: &Uid) -> Result<Eviction, ClusterError> {
        self.fake.evict(pod, uid).await
    }

    async fn publish(&self, event: KubeEvent, dedupe: SignedDuration) {
        self.fake.publish(event, dedupe).await;
    }
}

#[test]
fn killed_at_any_moment_it_loses_nothing() {
    let all: BTreeSet<String> =
        (0..12).map(|n| format!("{}{n}", if n % 3 == 0 { "p" } else { "c" })).collect();
    let mut calls = 0;
    loop {
        let world = World::new();
        let ended = world.live("run-1", calls);
        // The next scheduled run comes within a minute, when the Lease has run out.
        let now = world.now.get();
        world.now.set(now.max(at(0)) + SignedDuration::from_secs(31));
        world.fake.now.set(world.now.get());
        if !ended {
            assert!(world.live("run-2", 1_000_000), "killed after {calls} calls");
        }
        assert_eq!(world.told(), all, "killed after {calls} calls");
        if ended {
            break;
        }
        calls += 1;
    }
    assert!(calls > 50, "it was killed at {calls} moments");
}
