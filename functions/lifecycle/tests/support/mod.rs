//! A stage for handlers: the fake ports with the habits of a cluster and of EC2 added, a clock, delivery of what was
//! sent, and a process that can be killed at any port call.
#![allow(dead_code)] // Every test file uses its own part.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    future::{Future, pending},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_lambda::{BatchAnswer, SqsBatch, SqsRecord};
use spokeshave_model::{
    InstanceId, Kind, ObjectKey, Settings, Uid,
    core::{Node, Pod},
};
use spokeshave_ports::{
    AutoScaling, AwsError, Cluster, ClusterError, Concern, Ec2, Invocation, Key, LifecycleAction,
    Precondition, Queues, Record, Selector, StateError, StateKey, StateTable, When, Work,
    cluster::{Eviction, KubeEvent},
    ec2::*,
    fake::Fake,
};

pub fn at(clock: &str) -> Timestamp {
    format!("2024-03-01T{clock}Z").parse().expect("a time")
}

/// Where a process dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kill {
    #[default]
    Never,
    /// Before the n-th port call takes effect.
    Before(usize),
    /// After it took effect, before its answer arrives.
    After(usize),
}

/// How messages arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    #[default]
    InOrder,
    /// Each once more, seven seconds later.
    Twice,
    /// The last first.
    Backwards,
}

/// The stage.
#[derive(Default)]
pub struct Stage {
    pub fake: Fake,
    pub settings: Settings,
    pub calls: Cell<usize>,
    pub kill: Cell<Kill>,
    pub delivery: Cell<Delivery>,
    /// Messages that come once more, and how often.
    doubled: RefCell<BTreeMap<String, usize>>,
    /// DescribeInstances calls: `3 ids`, or `list`.
    pub describes: RefCell<Vec<String>>,
    /// Pods that a PodDisruptionBudget holds, by name.
    pub blocked: RefCell<BTreeSet<String>>,
    /// Seconds from shutting-down to gone.
    pub shutdown: Cell<i64>,
    shutting: RefCell<BTreeMap<InstanceId, Timestamp>>,
    waiting: RefCell<Vec<(Timestamp, Concern, Work)>>,
}

impl Stage {
    pub fn new(clock: &str) -> Self {
        let stage = Self { fake: Fake::at(at(clock)), ..Self::default() };
        stage.shutdown.set(30);
        stage
    }

    pub fn now(&self) -> Timestamp {
        self.fake.now.get()
    }

    pub fn add<K: Kind>(&self, value: Value) {
        self.fake.add_json::<K>(value);
    }

    pub fn get<K: Kind>(&self, name: &str) -> Option<K> {
        self.fake.object::<K>(name)
    }

    pub fn launch(&self, id: &str) {
        self.fake.instances.borrow_mut().push(Instance {
            id: id.into(),
            state: "running".into(),
            ..Instance::default()
        });
    }

    /// The state of an instance, `gone` when there is none.
    pub fn instance_state(&self, id: &str) -> String {
        let instances = self.fake.instances.borrow();
        let found = instances.iter().find(|it| it.id.as_str() == id);
        found.map_or_else(|| "gone".to_owned(), |it| it.state.clone())
    }

    /// A message of `reason` for objects, as `Kind/name`.
    pub fn message(&self, concern: Concern, reason: &str, objects: &[&str]) {
        let keys = objects.iter().map(|it| {
            let (kind, name) = it.split_once('/').expect("Kind/name");
            let (namespace, name) = name.split_once('/').unwrap_or(("", name));
            Key {
                kind: kind.into(),
                namespace: namespace.into(),
                name: name.into(),
                ..Key::default()
            }
        });
        let work = Work::new(reason, keys.collect());
        self.waiting.borrow_mut().push((self.now(), concern, work));
    }

    /// Messages of a concern that wait: seconds from now and reason.
    pub fn pending(&self, concern: Concern) -> Vec<(i64, String)> {
        let waiting = self.waiting.borrow();
        let mine = waiting.iter().filter(|(_, to, _)| *to == concern);
        let mut pending: Vec<(i64, String)> = mine
            .map(|(due, _, work)| (due.duration_since(self.now()).as_secs(), work.reason.clone()))
            .collect();
        pending.sort();
        pending
    }

    /// Lets time pass: pods whose grace is over go, instances end.
    pub fn advance(&self, to: Timestamp) {
        self.fake.now.set(to);
        let over = |it: &Value| {
            it["metadata"]["deletionTimestamp"].as_str().is_some_and(|at| {
                at.parse::<Timestamp>().is_ok_and(|at| at <= to)
                    && it["metadata"]["finalizers"].is_null()
            })
        };
        let mut touched = BTreeSet::new();
        self.fake.objects.borrow_mut().retain(|name, value| {
            let goes = name.starts_with("Pod/") && over(value);
            if goes {
                touched.insert(value["spec"]["nodeName"].as_str().unwrap_or_default().to_owned());
            }
            !goes
        });
        for node in touched {
            self.message(Concern::Termination, "DrainProgressed", &[&format!("Node/{node}")]);
        }
        let shutdown = SignedDuration::from_secs(self.shutdown.get());
        self.fake.instances.borrow_mut().retain(|it| {
            let mut shutting = self.shutting.borrow_mut();
            if it.state == "shutting-down" {
                let since = *shutting.entry(it.id.clone()).or_insert(to);
                return to < since + shutdown;
            }
            true
        });
    }

    /// The next thing that happens by itself, if it is before `until`.
    pub fn next(&self, until: Timestamp) -> Option<Timestamp> {
        let messages = self.waiting.borrow().iter().map(|it| it.0).min();
        let objects = self.fake.objects.borrow();
        let pods = objects.iter().filter(|(name, _)| name.starts_with("Pod/"));
        let ends = pods
            .filter_map(|(_, it)| it["metadata"]["deletionTimestamp"].as_str()?.parse().ok())
            .filter(|it| *it > self.now())
            .min();
        [messages, ends].into_iter().flatten().min().filter(|it| *it <= until)
    }

    /// Takes the messages that are due: all of one concern together, as a batch.
    pub fn receive(&self) -> Option<(Concern, Vec<Work>)> {
        let mut waiting = self.waiting.borrow_mut();
        let concern = waiting.iter().find(|it| it.0 <= self.now()).map(|it| it.1)?;
        let mut batch = Vec::new();
        let now = self.now();
        waiting.retain(|(due, to, work)| {
            let take = *due <= now && *to == concern;
            if take {
                batch.push(work.clone());
            }
            !take
        });
        match self.delivery.get() {
            Delivery::InOrder => {}
            Delivery::Backwards => batch.reverse(),
            Delivery::Twice => {
                let mut doubled = self.doubled.borrow_mut();
                for work in &batch {
                    let text = serde_json::to_string(work).expect("writes");
                    let times = doubled.entry(text).or_default();
                    if *times > 0 {
                        *times -= 1;
                    } else {
                        *times += 1;
                        waiting.push((now + SignedDuration::from_secs(7), concern, work.clone()));
                    }
                }
            }
        }
        Some((concern, batch))
    }

    /// Runs one handler on a batch; `None` when it was killed. What it sent is queued, and what failed or was killed
    /// is delivered again after half a minute.
    pub fn deliver<F: Future<Output = BatchAnswer>>(
        &self,
        concern: Concern,
        works: &[Work],
        handle: impl FnOnce(&'static SqsBatch, &'static Invocation<'static>) -> F,
    ) -> Option<BatchAnswer> {
        let records = works.iter().enumerate().map(|(at, work)| SqsRecord {
            message_id: format!("m{at}"),
            body: serde_json::to_string(work).expect("writes"),
            attributes: BTreeMap::from([(
                "SentTimestamp".to_owned(),
                self.now().as_millisecond().to_string(),
            )]),
            ..SqsRecord::default()
        });
        let batch: &'static SqsBatch = Box::leak(Box::new(SqsBatch { records: records.collect() }));
        let settings: &'static Settings = Box::leak(Box::new(self.settings.clone()));
        let journal: &'static Fake = Box::leak(Box::default());
        let cx: &'static Invocation<'static> = Box::leak(Box::new(Invocation {
            concern,
            now: self.now(),
            deadline: self.now() + SignedDuration::from_secs(60),
            settings,
            journal,
        }));
        let mut future = pin!(handle(batch, cx));
        let answer = match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        };
        self.fake.metrics.borrow_mut().append(&mut journal.metrics.borrow_mut());
        self.fake.decisions.borrow_mut().append(&mut journal.decisions.borrow_mut());
        for (to, work, delay, _) in self.fake.sent.borrow_mut().drain(..) {
            self.waiting.borrow_mut().push((self.now() + delay, to, work));
        }
        let again = self.now() + SignedDuration::from_secs(30);
        for (at, work) in works.iter().enumerate() {
            let failed = answer
                .as_ref()
                .is_none_or(|it| it.failures.iter().any(|it| it.message_id == format!("m{at}")));
            if failed {
                self.waiting.borrow_mut().push((again, concern, work.clone()));
            }
        }
        answer
    }

    /// Decisions so far, as `action Kind/name`.
    pub fn told(&self) -> Vec<String> {
        let decisions = self.fake.decisions.borrow();
        decisions.iter().map(|it| format!("{} {}", it.action, it.object)).collect()
    }

    async fn enter(&self) {
        self.calls.set(self.calls.get() + 1);
        if self.kill.get() == Kill::Before(self.calls.get()) {
            self.kill.set(Kill::Never);
            pending::<()>().await;
        }
    }

    async fn leave(&self) {
        if self.kill.get() == Kill::After(self.calls.get()) {
            self.kill.set(Kill::Never);
            pending::<()>().await;
        }
    }

    fn collect<K: Kind>(&self, object: &K) {
        if object.meta().deleting() && object.meta().finalizers.is_empty() && K::KIND != Pod::KIND {
            self.fake.objects.borrow_mut().remove(&object.reference());
            if K::KIND == Node::KIND {
                let name = format!("Node/{}", object.name());
                self.message(Concern::Termination, "NodeGone", &[&name]);
                self.message(Concern::Lifecycle, "NodeGone", &[&name]);
            }
        }
    }

    fn end_pod(&self, key: &ObjectKey, grace: Option<i64>) {
        let Some(mut pod) = self.fake.object::<Pod>(&key.to_string()) else { return };
        let own = pod.spec.termination_grace_period_seconds.unwrap_or(30);
        let ends = self.now() + SignedDuration::from_secs(grace.unwrap_or(own));
        let sooner = pod.metadata.deletion_timestamp.map_or(ends, |it| it.min(ends));
        pod.metadata.deletion_timestamp = Some(sooner);
        self.fake.add(&pod);
    }
}

macro_rules! through {
    ($self:ident, $call:expr) => {{
        $self.enter().await;
        let result = $call.await;
        $self.leave().await;
        result
    }};
}

impl Cluster for Stage {
    async fn get<K: Kind>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, ClusterError> {
        through!(self, self.fake.get(key))
    }

    async fn list<K: Kind>(&self, selector: &Selector) -> Result<Vec<Arc<K>>, ClusterError> {
        let mut list = through!(self, self.fake.list::<K>(selector))?;
        if let Some(node) = &selector.node_name {
            list.retain(|it| {
                serde_json::to_value(&**it).expect("writes")["spec"]["nodeName"] == json!(node)
            });
        }
        Ok(list)
    }

    async fn create<K: Kind>(&self, object: &K) -> Result<Arc<K>, ClusterError> {
        through!(self, self.fake.create(object))
    }

    async fn patch<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        self.enter().await;
        let result = self.fake.patch(old, new, guard).await;
        if let Ok(stored) = &result {
            self.collect(&**stored);
        }
        self.leave().await;
        result
    }

    async fn patch_status<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        through!(self, self.fake.patch_status(old, new, guard))
    }

    async fn delete<K: Kind>(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        grace: Option<i64>,
    ) -> Result<(), ClusterError> {
        self.enter().await;
        let result = if K::KIND == Pod::KIND {
            self.fake.calls.borrow_mut().push(format!("delete Pod/{key}"));
            self.end_pod(key, grace);
            Ok(())
        } else {
            self.fake.delete::<K>(key, uid, grace).await
        };
        self.leave().await;
        result
    }

    async fn evict(&self, pod: &ObjectKey, uid: &Uid) -> Result<Eviction, ClusterError> {
        self.enter().await;
        let result = if self.fake.object::<Pod>(&pod.to_string()).is_none() {
            Ok(Eviction::Gone)
        } else if self.blocked.borrow().contains(&pod.name) {
            Ok(Eviction::Blocked)
        } else {
            let result = self.fake.evict(pod, uid).await;
            if result.is_ok() {
                self.end_pod(pod, None);
            }
            result
        };
        self.leave().await;
        result
    }

    async fn publish(&self, event: KubeEvent, dedupe: SignedDuration) {
        through!(self, self.fake.publish(event, dedupe));
    }
}

impl StateTable for Stage {
    async fn read(&self, key: &StateKey) -> Result<Option<Record>, StateError> {
        through!(self, self.fake.read(key))
    }

    async fn query(
        &self,
        partition: &str,
        prefix: &str,
    ) -> Result<Vec<(String, Record)>, StateError> {
        through!(self, self.fake.query(partition, prefix))
    }

    async fn write(
        &self,
        key: &StateKey,
        data: Value,
        expires_at: Option<Timestamp>,
        when: When,
    ) -> Result<u64, StateError> {
        through!(self, self.fake.write(key, data, expires_at, when))
    }

    async fn remove(&self, key: &StateKey, when: When) -> Result<(), StateError> {
        through!(self, self.fake.remove(key, when))
    }
}

impl Queues for Stage {
    async fn send(
        &self,
        to: Concern,
        work: &Work,
        delay: SignedDuration,
        group: &str,
    ) -> Result<(), AwsError> {
        through!(self, self.fake.send(to, work, delay, group))
    }
}

impl AutoScaling for Stage {
    async fn complete_lifecycle_action(&self, action: &LifecycleAction) -> Result<(), AwsError> {
        through!(self, self.fake.complete_lifecycle_action(action))
    }
    async fn record_lifecycle_heartbeat(&self, action: &LifecycleAction) -> Result<(), AwsError> {
        through!(self, self.fake.record_lifecycle_heartbeat(action))
    }
}

impl Ec2 for Stage {
    spokeshave_ports::pass_ec2!(self => self.fake;
        describe_subnets describe_security_groups describe_images describe_zones
        describe_instance_types describe_instance_type_offerings describe_spot_prices
        describe_capacity_reservations create_fleet dry_run_instances describe_instance_status
        create_tags describe_launch_templates get_launch_template create_launch_template
        delete_launch_template
    );
    async fn describe_instances(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, AwsError> {
        self.describes.borrow_mut().push(format!("{} ids", ids.len()));
        through!(self, self.fake.describe_instances(ids))
    }
    async fn find_instances(&self, filters: &[Filter]) -> Result<Vec<Instance>, AwsError> {
        self.describes.borrow_mut().push("list".to_owned());
        through!(self, self.fake.find_instances(filters))
    }
    async fn terminate_instances(&self, ids: &[InstanceId]) -> Result<(), AwsError> {
        through!(self, self.fake.terminate_instances(ids))
    }
    async fn describe_placement_groups(
        &self,
        names: &[String],
        ids: &[String],
    ) -> Result<Vec<PlacementGroup>, AwsError> {
        through!(self, self.fake.describe_placement_groups(names, ids))
    }
}
