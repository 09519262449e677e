//! The handler alone: batches of ten through `functions/interruption`, with the simulator's objects behind the ports but
//! without its clock and queue, so that nothing is counted but what a function does (`spec` aws-nodeclass 25).
//!
//! `cargo bench -p spokeshave-interruption --bench handler`. The bar is 20,000 messages a second on one core for 15,000
//! mixed messages against 1,500 nodes. Processor time is what counts: other load on the machine does not change it.

#![allow(clippy::print_stdout)] // A report is for people.

#[path = "../tests/load/mod.rs"]
#[allow(dead_code)] // Of the load, the messages and the objects.
mod load;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use spokeshave_lambda::{SqsBatch, SqsRecord};
use spokeshave_model::{Kind, NodeClaim, ObjectKey, Settings, Uid};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Concern, Decision, Invocation, Journal, Metric, Precondition,
    Queues, Record, Selector, StateError, StateKey, StateTable, When, Work,
    cluster::{Eviction, KubeEvent},
};

/// Messages per invocation, as in the template.
const BATCH: usize = 10;

/// The API server, the state table and the queues, which answer at once.
struct Api {
    run: RefCell<load::Run>,
    table: RefCell<BTreeMap<StateKey, Record>>,
    told: Cell<usize>,
    now: Timestamp,
}

impl Api {
    fn count(&self) {
        self.told.set(self.told.get() + 1);
    }

    fn patched<K: Kind>(&self, old: &K, new: &K, status: bool) -> Result<Arc<K>, ClusterError> {
        let mut run = self.run.borrow_mut();
        let patched = run.world.change(|inner| inner.store.patch(old, new, status, self.now));
        Ok(patched.unwrap_or_else(|| Arc::new(new.clone())))
    }
}

impl Cluster for Api {
    async fn get<K: Kind>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, ClusterError> {
        Ok(self.run.borrow().world.read(|inner| inner.store.get(key)))
    }

    async fn list<K: Kind>(&self, _: &Selector) -> Result<Vec<Arc<K>>, ClusterError> {
        Ok(self.run.borrow().world.read(|inner| inner.store.list::<K>().collect()))
    }

    async fn create<K: Kind>(&self, object: &K) -> Result<Arc<K>, ClusterError> {
        Ok(Arc::new(object.clone()))
    }

    async fn patch<K: Kind>(
        &self,
        old: &K,
        new: &K,
        _: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        self.patched(old, new, false)
    }

    async fn patch_status<K: Kind>(
        &self,
        old: &K,
        new: &K,
        _: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        self.patched(old, new, true)
    }

    async fn delete<K: Kind>(
        &self,
        key: &ObjectKey,
        _: &Uid,
        _: Option<i64>,
    ) -> Result<(), ClusterError> {
        self.run.borrow_mut().world.change(|inner| {
            inner.store.update::<K>(key, self.now, |it| {
                it.meta_mut().deletion_timestamp = Some(self.now);
            });
        });
        Ok(())
    }

    async fn evict(&self, _: &ObjectKey, _: &Uid) -> Result<Eviction, ClusterError> {
        Ok(Eviction::Accepted)
    }

    async fn publish(&self, _: KubeEvent, _: SignedDuration) {
        self.count();
    }
}

impl StateTable for Api {
    async fn read(&self, key: &StateKey) -> Result<Option<Record>, StateError> {
        Ok(self.table.borrow().get(key).cloned())
    }

    async fn query(&self, of: &str, prefix: &str) -> Result<Vec<(String, Record)>, StateError> {
        let table = self.table.borrow();
        let found = table.range(StateKey::new(of, prefix)..);
        let found =
            found.take_while(|(key, _)| key.partition == of && key.sort.starts_with(prefix));
        Ok(found.map(|(key, record)| (key.sort.clone(), record.clone())).collect())
    }

    async fn write(
        &self,
        key: &StateKey,
        data: Value,
        expires_at: Option<Timestamp>,
        _: When,
    ) -> Result<u64, StateError> {
        let mut table = self.table.borrow_mut();
        let version = table.get(key).map_or(0, |it| it.version) + 1;
        table.insert(key.clone(), Record { version, data, expires_at });
        Ok(version)
    }

    async fn remove(&self, key: &StateKey, _: When) -> Result<(), StateError> {
        self.table.borrow_mut().remove(key);
        Ok(())
    }
}

impl Queues for Api {
    async fn send(&self, _: Concern, _: &Work, _: SignedDuration, _: &str) -> Result<(), AwsError> {
        self.count();
        Ok(())
    }
}

impl Journal for Api {
    fn decision(&self, _: Concern, _: Decision) {
        self.count();
    }

    fn metric(&self, _: Metric) {
        self.count();
    }
}

fn main() {
    for messages in load::COUNTS {
        report(messages);
    }
}

fn report(messages: usize) {
    let now: Timestamp = "2026-03-02T08:00:02Z".parse().expect("a time");
    let run = RefCell::new(load::Run::without_messages(load::NODES));
    let (table, told) = (RefCell::default(), Cell::default());
    let api = Api { run, table, told, now };
    let record = |(n, (_, body)): (usize, (load::Mix, String))| SqsRecord {
        message_id: format!("m-{n}"),
        body,
        ..SqsRecord::default()
    };
    let bodies = load::bodies(messages, load::NODES, now);
    let records: Vec<SqsRecord> = bodies.into_iter().enumerate().map(record).collect();
    let batches = records.chunks(BATCH).map(|it| SqsBatch { records: it.to_vec() });
    let batches: Vec<SqsBatch> = batches.collect();
    let settings = Settings::default();
    let cx = Invocation {
        concern: Concern::Interruption,
        now,
        deadline: Timestamp::MAX,
        settings: &settings,
        journal: &api,
    };
    let before = load::processor_seconds();
    for batch in &batches {
        let handled = spokeshave_interruption_function::handle(batch, &api, &api, &api, &cx);
        assert!(load::block_on(handled).failures.is_empty());
    }
    let after = load::processor_seconds();
    let is_left = |it: &Arc<NodeClaim>| !it.metadata.deleting();
    let left = api.run.borrow().world.read(|it| it.store.list().filter(is_left).count());
    assert_eq!(left, load::NODES - messages.min(load::NODES));
    if let (Some(before), Some(after)) = (before, after) {
        let spent = (after - before).max(0.01);
        let rate = messages as f64 / spent;
        println!("{messages} messages: processor {spent:.2} s, {rate:.0} messages/s on one core");
    }
}
