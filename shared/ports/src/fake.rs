//! Small fakes of the ports, for the tests of single handlers. Whole histories are the simulator's work.
//!
//! A [`Fake`] holds objects, instances and records, notes every write in [`Fake::calls`], and fails the calls that it
//! was told to. It keeps no clock: objects that are deleted get the time it was given.

mod passing;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
#[doc(hidden)] // For `pass_ec2`.
pub use spokeshave_model::InstanceId;
use spokeshave_model::{
    Kind, ObjectKey, Uid,
    meta::{apply_merge_patch, from_value, merge_patch, to_value},
};

use crate::{
    AutoScaling, AwsError, Bus, Clock, Cluster, ClusterError, Concern, Decision, Ec2, Journal,
    LifecycleAction, Metric, Precondition, Queues, Record, Selector, StateError, StateKey,
    StateTable, When, Work,
    cluster::{Eviction, KubeEvent},
    ec2::{
        CapacityReservation, Filter, FleetAnswer, FleetRequest, Image, Instance, InstanceStatus,
        InstanceTypeInfo, LaunchTemplate, LaunchTemplateData, PlacementGroup, SecurityGroup,
        SpotPrice, Subnet, Tags, TypeOffering, Zone,
    },
    queues::BusEvent,
};

/// Runs a future that never really waits, as all of these fakes' do.
///
/// # Panics
/// When the future waits for something.
pub fn block_on<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits for something that is not faked"),
    }
}

/// A small world behind the ports.
#[derive(Default)]
pub struct Fake {
    pub now: Cell<Timestamp>,
    /// By `Kind/name` or `Kind/namespace/name`.
    pub objects: RefCell<BTreeMap<String, Value>>,
    pub instances: RefCell<Vec<Instance>>,
    pub statuses: RefCell<Vec<InstanceStatus>>,
    pub records: RefCell<BTreeMap<StateKey, Record>>,
    /// Writes in order: `delete NodeClaim/a`, `patch Node/b`, `write unavailable/x`, `terminate i-1`, ...
    pub calls: RefCell<Vec<String>>,
    pub sent: RefCell<Vec<(Concern, Work, SignedDuration, String)>>,
    pub put: RefCell<Vec<BusEvent>>,
    /// Positions that the bus does not accept, per call of `put`, first call first.
    pub refused: RefCell<Vec<Vec<usize>>>,
    pub events: RefCell<Vec<KubeEvent>>,
    pub decisions: RefCell<Vec<Decision>>,
    pub metrics: RefCell<Vec<Metric>>,
    /// Calls that fail, by the text that would be noted; reads are `get K/n`, `list K`, `query p`, `find`, `status`.
    pub failing: RefCell<BTreeMap<String, AwsError>>,
    /// How often EC2 was asked for instances, by the text of the call: `find`, `describe`, `status`, ...
    pub ec2_calls: RefCell<BTreeMap<String, usize>>,
}

impl Fake {
    pub fn at(now: Timestamp) -> Self {
        Self { now: Cell::new(now), ..Self::default() }
    }

    /// Puts an object into the cluster.
    pub fn add<K: Kind>(&self, object: &K) {
        self.objects.borrow_mut().insert(object.reference(), to_value(object));
    }

    /// Puts an object, written as JSON without `apiVersion` and `kind`, into the cluster.
    ///
    /// # Panics
    /// When it is none of this kind.
    pub fn add_json<K: Kind>(&self, value: Value) {
        self.add(&from_value::<K>(value).expect("an object of this kind"));
    }

    /// Reads an object.
    pub fn object<K: Kind>(&self, name: &str) -> Option<K> {
        let reference = format!("{}/{name}", K::KIND);
        self.objects.borrow().get(&reference).and_then(|it| from_value(it.clone()).ok())
    }

    /// From now on this call fails, with a code of the API server (`Conflict`, `NotFound`, ...) or of AWS.
    pub fn fail(&self, call: &str, code: &str) {
        let error = AwsError::new("fake", "Call", code, "told to fail");
        self.failing.borrow_mut().insert(call.to_owned(), error);
    }

    /// The call works again.
    pub fn mend(&self, call: &str) {
        self.failing.borrow_mut().remove(call);
    }

    /// The metric's samples, as `name{label=value} value`.
    pub fn samples(&self, name: &str) -> Vec<String> {
        let text = |it: &Metric| {
            let labels: Vec<String> =
                it.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("{}{{{}}} {}", it.name, labels.join(","), it.value)
        };
        self.metrics.borrow().iter().filter(|it| it.name == name).map(text).collect()
    }

    /// Published events as `Kind/name Reason`.
    pub fn event_reasons(&self) -> Vec<String> {
        let text = |it: &KubeEvent| format!("{}/{} {}", it.kind, it.key, it.reason);
        self.events.borrow().iter().map(text).collect()
    }

    fn aws(&self, call: &str) -> Result<(), AwsError> {
        *self.ec2_calls.borrow_mut().entry(call.to_owned()).or_default() += 1;
        self.failing.borrow().get(call).map_or(Ok(()), |error| Err(error.clone()))
    }

    fn api(&self, call: &str, object: &str) -> Result<(), ClusterError> {
        let Some(error) = self.failing.borrow().get(call).cloned() else { return Ok(()) };
        let object = object.to_owned();
        Err(match error.code.as_str() {
            "Conflict" => ClusterError::Conflict { object },
            "NotFound" => ClusterError::NotFound { object },
            "Refused" => ClusterError::Refused { object, message: error.message },
            _ => ClusterError::Unavailable { message: error.message },
        })
    }

    fn note(&self, call: String) {
        self.calls.borrow_mut().push(call);
    }

    fn change<K: Kind>(
        &self,
        verb: &str,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        let object = old.reference();
        let call = format!("{verb} {object}");
        self.api(&call, &object)?;
        let Some(stored) = self.objects.borrow().get(&object).cloned() else {
            return Err(ClusterError::NotFound { object });
        };
        let current: K = from_value(stored.clone()).map_err(|error| ClusterError::Refused {
            object: object.clone(),
            message: error.to_string(),
        })?;
        let same_version = current.meta().resource_version == old.meta().resource_version;
        if current.meta().uid != old.meta().uid
            || (guard == Precondition::ResourceVersion && !same_version)
        {
            return Err(ClusterError::Conflict { object });
        }
        let mut stored = stored;
        if let Some(patch) = merge_patch(&to_value(old), &to_value(new)) {
            apply_merge_patch(&mut stored, &patch);
            let version = current.meta().resource_version.parse::<u64>().unwrap_or(0) + 1;
            apply_merge_patch(
                &mut stored,
                &json!({"metadata": {"resourceVersion": version.to_string()}}),
            );
            self.objects.borrow_mut().insert(object.clone(), stored.clone());
            self.note(call);
        }
        from_value(stored)
            .map(Arc::new)
            .map_err(|error| ClusterError::Refused { object, message: error.to_string() })
    }
}

impl Clock for Fake {
    fn now(&self) -> Timestamp {
        self.now.get()
    }
}

impl Journal for Fake {
    fn decision(&self, _concern: Concern, decision: Decision) {
        self.decisions.borrow_mut().push(decision);
    }

    fn metric(&self, metric: Metric) {
        self.metrics.borrow_mut().push(metric);
    }

    fn clock(&self) -> Option<Timestamp> {
        Some(self.now.get())
    }
}

impl Cluster for Fake {
    async fn get<K: Kind>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, ClusterError> {
        let object = format!("{}/{key}", K::KIND);
        self.api(&format!("get {object}"), &object)?;
        Ok(self.object::<K>(&key.to_string()).map(Arc::new))
    }

    async fn list<K: Kind>(&self, selector: &Selector) -> Result<Vec<Arc<K>>, ClusterError> {
        self.api(&format!("list {}", K::KIND), K::KIND)?;
        let prefix = format!("{}/", K::KIND);
        let objects = self.objects.borrow();
        let of_kind = objects.iter().filter(|(name, _)| name.starts_with(&prefix));
        let read = of_kind.filter_map(|(_, value)| from_value::<K>(value.clone()).ok());
        Ok(read
            .filter(|it| selector.labels.matches(&it.meta().labels))
            .filter(|it| selector.namespace.is_empty() || selector.namespace == it.meta().namespace)
            .map(Arc::new)
            .collect())
    }

    async fn create<K: Kind>(&self, object: &K) -> Result<Arc<K>, ClusterError> {
        let mut object = object.clone();
        if object.meta().name.is_empty() {
            let meta = object.meta_mut();
            meta.name = format!("{}{:05}", meta.generate_name, self.objects.borrow().len());
        }
        let name = object.reference();
        self.api(&format!("create {}", K::KIND), &name)?;
        if self.objects.borrow().contains_key(&name) {
            return Err(ClusterError::AlreadyExists { object: name });
        }
        if object.meta().uid.is_empty() {
            object.meta_mut().uid = Uid(format!("uid-{}", object.name()));
        }
        object.meta_mut().resource_version = "1".into();
        object.meta_mut().creation_timestamp.get_or_insert(self.now.get());
        self.note(format!("create {name}"));
        self.add(&object);
        Ok(Arc::new(object))
    }

    async fn patch<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        self.change("patch", old, new, guard)
    }

    async fn patch_status<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        self.change("patch-status", old, new, guard)
    }

    async fn delete<K: Kind>(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        _grace: Option<i64>,
    ) -> Result<(), ClusterError> {
        let name = format!("{}/{key}", K::KIND);
        self.api(&format!("delete {name}"), &name)?;
        let Some(mut object) = self.object::<K>(&key.to_string()) else { return Ok(()) };
        if object.meta().uid != *uid {
            return Ok(());
        }
        self.note(format!("delete {name}"));
        if object.meta().finalizers.is_empty() {
            self.objects.borrow_mut().remove(&name);
        } else {
            object.meta_mut().deletion_timestamp.get_or_insert(self.now.get());
            self.add(&object);
        }
        Ok(())
    }

    async fn evict(&self, pod: &ObjectKey, _uid: &Uid) -> Result<Eviction, ClusterError> {
        let object = format!("Pod/{pod}");
        let call = format!("evict {object}");
        match self.api(&call, &object) {
            Ok(()) => self.note(call),
            Err(ClusterError::Conflict { .. }) => return Ok(Eviction::Replaced),
            Err(error) => return Err(error),
        }
        Ok(Eviction::Accepted)
    }

    async fn publish(&self, event: KubeEvent, _dedupe: SignedDuration) {
        self.events.borrow_mut().push(event);
    }
}

impl StateTable for Fake {
    async fn read(&self, key: &StateKey) -> Result<Option<Record>, StateError> {
        self.aws(&format!("read {}/{}", key.partition, key.sort))?;
        let live = |it: &&Record| it.expires_at.is_none_or(|at| at > self.now.get());
        Ok(self.records.borrow().get(key).filter(live).cloned())
    }

    async fn query(
        &self,
        partition: &str,
        prefix: &str,
    ) -> Result<Vec<(String, Record)>, StateError> {
        self.aws(&format!("query {partition}"))?;
        let records = self.records.borrow();
        let wanted = records.iter().filter(|(key, record)| {
            key.partition == partition
                && key.sort.starts_with(prefix)
                && record.expires_at.is_none_or(|at| at > self.now.get())
        });
        Ok(wanted.map(|(key, record)| (key.sort.clone(), record.clone())).collect())
    }

    async fn write(
        &self,
        key: &StateKey,
        data: Value,
        expires_at: Option<Timestamp>,
        when: When,
    ) -> Result<u64, StateError> {
        let call = format!("write {}/{}", key.partition, key.sort);
        self.aws(&call)?;
        let current = self.read(key).await?;
        let holds = match when {
            When::Always => true,
            When::Absent => current.is_none(),
            When::Version(version) => current.as_ref().is_some_and(|it| it.version == version),
        };
        if !holds {
            return Err(StateError::Conflict(key.clone()));
        }
        let version = current.map_or(0, |it| it.version) + 1;
        self.records.borrow_mut().insert(key.clone(), Record { version, data, expires_at });
        self.note(call);
        Ok(version)
    }

    async fn remove(&self, key: &StateKey, when: When) -> Result<(), StateError> {
        let current = self.read(key).await?;
        match when {
            When::Version(version) if current.is_none_or(|it| it.version != version) => {
                Err(StateError::Conflict(key.clone()))
            }
            _ => {
                self.records.borrow_mut().remove(key);
                self.note(format!("remove {}/{}", key.partition, key.sort));
                Ok(())
            }
        }
    }
}

impl Queues for Fake {
    async fn send(
        &self,
        to: Concern,
        work: &Work,
        delay: SignedDuration,
        group: &str,
    ) -> Result<(), AwsError> {
        self.aws(&format!("send {to}"))?;
        self.sent.borrow_mut().push((to, work.clone(), delay, group.to_owned()));
        Ok(())
    }
}

impl Bus for Fake {
    async fn put(&self, events: &[BusEvent]) -> Result<Vec<usize>, AwsError> {
        self.aws("put")?;
        let mut refused = self.refused.borrow_mut();
        let refused = if refused.is_empty() { Vec::new() } else { refused.remove(0) };
        let accepted = events.iter().enumerate().filter(|(at, _)| !refused.contains(at));
        self.put.borrow_mut().extend(accepted.map(|(_, event)| event.clone()));
        Ok(refused)
    }
}

impl AutoScaling for Fake {
    async fn complete_lifecycle_action(&self, action: &LifecycleAction) -> Result<(), AwsError> {
        let LifecycleAction { group, hook, token, instance } = action;
        self.aws(&format!("complete {instance}"))?;
        self.note(format!("complete {instance} {group} {hook} {token} CONTINUE"));
        Ok(())
    }

    async fn record_lifecycle_heartbeat(&self, action: &LifecycleAction) -> Result<(), AwsError> {
        let call = format!("heartbeat {}", action.instance);
        self.aws(&call)?;
        self.note(call);
        Ok(())
    }
}

impl Ec2 for Fake {
    async fn describe_subnets(&self, _filters: &[Filter]) -> Result<Vec<Subnet>, AwsError> {
        Ok(Vec::new())
    }
    async fn describe_security_groups(
        &self,
        _filters: &[Filter],
    ) -> Result<Vec<SecurityGroup>, AwsError> {
        Ok(Vec::new())
    }
    async fn describe_images(
        &self,
        _ids: &[String],
        _owners: &[String],
        _filters: &[Filter],
    ) -> Result<Vec<Image>, AwsError> {
        Ok(Vec::new())
    }
    async fn describe_zones(&self) -> Result<Vec<Zone>, AwsError> {
        Ok(Vec::new())
    }
    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeInfo>, AwsError> {
        Ok(Vec::new())
    }
    async fn describe_instance_type_offerings(&self) -> Result<Vec<TypeOffering>, AwsError> {
        Ok(Vec::new())
    }
    async fn describe_spot_prices(&self) -> Result<Vec<SpotPrice>, AwsError> {
        Ok(Vec::new())
    }
    async fn describe_capacity_reservations(
        &self,
        _ids: &[String],
        _filters: &[Filter],
    ) -> Result<Vec<CapacityReservation>, AwsError> {
        Ok(Vec::new())
    }
    async fn describe_placement_groups(
        &self,
        _names: &[String],
        _ids: &[String],
    ) -> Result<Vec<PlacementGroup>, AwsError> {
        Ok(Vec::new())
    }
    async fn create_fleet(&self, _request: &FleetRequest) -> Result<FleetAnswer, AwsError> {
        Ok(FleetAnswer::default())
    }
    async fn dry_run_instances(
        &self,
        _launch_template: &str,
        _instance_type: &str,
        _subnet_id: &str,
        _tags: &Tags,
    ) -> Result<(), AwsError> {
        Ok(())
    }

    async fn describe_instances(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, AwsError> {
        self.aws("describe")?;
        let instances = self.instances.borrow();
        Ok(instances.iter().filter(|it| ids.contains(&it.id)).cloned().collect())
    }

    async fn find_instances(&self, filters: &[Filter]) -> Result<Vec<Instance>, AwsError> {
        self.aws("find")?;
        let holds = |instance: &Instance, filter: &Filter| match filter.name.as_str() {
            "tag-key" => filter.values.iter().any(|key| instance.tags.contains_key(key)),
            "instance-state-name" => filter.values.contains(&instance.state),
            name => name.strip_prefix("tag:").is_some_and(|key| {
                instance.tags.get(key).is_some_and(|value| filter.values.contains(value))
            }),
        };
        let instances = self.instances.borrow();
        let found = instances.iter().filter(|it| filters.iter().all(|filter| holds(it, filter)));
        Ok(found.cloned().collect())
    }

    async fn describe_instance_status(
        &self,
        ids: &[InstanceId],
    ) -> Result<Vec<InstanceStatus>, AwsError> {
        self.aws("status")?;
        let statuses = self.statuses.borrow();
        Ok(statuses.iter().filter(|it| ids.is_empty() || ids.contains(&it.id)).cloned().collect())
    }

    async fn terminate_instances(&self, ids: &[InstanceId]) -> Result<(), AwsError> {
        for id in ids {
            self.aws(&format!("terminate {id}"))?;
        }
        for id in ids {
            self.note(format!("terminate {id}"));
            for instance in self.instances.borrow_mut().iter_mut().filter(|it| it.id == *id) {
                instance.state = "shutting-down".into();
            }
        }
        Ok(())
    }

    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), AwsError> {
        for id in ids {
            self.aws(&format!("tag {id}"))?;
            let text: Vec<String> =
                tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
            self.note(format!("tag {id} {}", text.join(",")));
            for instance in self.instances.borrow_mut().iter_mut().filter(|it| it.id.0 == *id) {
                instance.tags.extend(tags.clone());
            }
        }
        Ok(())
    }

    async fn describe_launch_templates(
        &self,
        _filters: &[Filter],
    ) -> Result<Vec<LaunchTemplate>, AwsError> {
        Ok(Vec::new())
    }
    async fn get_launch_template(&self, _name: &str) -> Result<Option<LaunchTemplate>, AwsError> {
        Ok(None)
    }
    async fn create_launch_template(
        &self,
        name: &str,
        _data: &LaunchTemplateData,
        _tags: &Tags,
        _dry_run: bool,
    ) -> Result<LaunchTemplate, AwsError> {
        Ok(LaunchTemplate { name: name.to_owned(), ..LaunchTemplate::default() })
    }
    async fn delete_launch_template(&self, _name: &str) -> Result<(), AwsError> {
        Ok(())
    }
}
