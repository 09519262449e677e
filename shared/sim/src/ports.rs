//! The ports of one invocation: every call takes time, may fail, and may be the last.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use spokeshave_model::{
    ConditionStatus, Kind, LabelSelector, NodeClaim, ObjectKey, Uid,
    core::{Namespace, Pod},
};
use spokeshave_ports::{
    AutoScaling, AwsError, Bus, Changes, Clock, Cluster, ClusterError, Concern, Decision, Eks, Iam,
    Journal, LifecycleAction, Metric, Place, Precondition, Pricing, Queues, Record, Selector, Ssm,
    StateError, StateKey, StateTable, When, Work,
    aws::{ClusterFacts, InstanceProfile, Parameter},
    cluster::{Eviction, KubeEvent},
    queues::BusEvent,
};

use crate::{
    faults::Fault,
    kubernetes,
    store::{STALENESS, whole_second},
    world::{Happening, Inner},
};

/// The account that everything belongs to.
pub const ACCOUNT: &str = "111122223333";

/// Milliseconds of a call to the API server.
const CLUSTER_CALL: u64 = 8;
/// Milliseconds of a call to an AWS service.
const AWS_CALL: u64 = 60;
/// Milliseconds of a call to the state table or a queue.
const QUICK_CALL: u64 = 6;

/// The ports of one invocation.
#[derive(Clone)]
pub struct Ports {
    pub(crate) world: Rc<RefCell<Inner>>,
    pub(crate) invocation: u64,
    pub(crate) concern: Concern,
}

/// One call under way: over when its time has come, or never.
struct Call<'a> {
    ports: &'a Ports,
    millis: u64,
    due: Option<Timestamp>,
}

impl Future for Call<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let mut world = self.ports.world.borrow_mut();
        match self.due {
            None => {
                if world.strikes(Fault::Crash) {
                    world.dead.insert(self.ports.invocation);
                    return Poll::Pending;
                }
                let mut millis = self.millis;
                if world.strikes(Fault::Reorder) {
                    millis += world.random.below(2_000);
                }
                let due = world.now + SignedDuration::from_millis(millis as i64);
                world.at(due, Happening::Resume(self.ports.invocation));
                drop(world);
                self.due = Some(due);
                Poll::Pending
            }
            Some(due) if world.now >= due => Poll::Ready(()),
            Some(_) => Poll::Pending,
        }
    }
}

impl Ports {
    async fn call(&self, millis: u64) {
        Call { ports: self, millis, due: None }.await;
    }

    /// A call to AWS: counted, and throttled by faults.
    pub(crate) async fn aws(
        &self,
        service: &'static str,
        operation: &'static str,
        millis: u64,
    ) -> Result<(), AwsError> {
        self.call(millis).await;
        let mut world = self.world.borrow_mut();
        *world.calls.entry(operation).or_default() += 1;
        let may_throttle = matches!(service, "ec2" | "iam" | "ssm" | "eks" | "pricing");
        if may_throttle && world.strikes(Fault::Throttle) {
            let code = if service == "ec2" { "RequestLimitExceeded" } else { "Throttling" };
            return Err(AwsError {
                status: 503,
                ..AwsError::new(service, operation, code, "Rate exceeded")
            });
        }
        Ok(())
    }

    /// When the objects that a read sees were true.
    fn read_time(world: &mut Inner) -> Timestamp {
        if world.strikes(Fault::StaleRead) {
            let millis = world.random.below(STALENESS.as_millis() as u64);
            world.now - SignedDuration::from_millis(millis as i64)
        } else {
            world.now
        }
    }
}

fn selected<K: Kind>(object: &K, selector: &Selector) -> bool {
    let meta = object.meta();
    (selector.namespace.is_empty() || selector.namespace == meta.namespace)
        && (selector.labels == LabelSelector::default() || selector.labels.matches(&meta.labels))
}

impl Cluster for Ports {
    async fn get<K: Kind>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, ClusterError> {
        self.call(CLUSTER_CALL).await;
        let mut world = self.world.borrow_mut();
        let at = Self::read_time(&mut world);
        if at < world.now {
            return Ok(world.store.list_at::<K>(at).remove(key));
        }
        Ok(world.store.get(key))
    }

    async fn list<K: Kind>(&self, selector: &Selector) -> Result<Vec<Arc<K>>, ClusterError> {
        self.call(CLUSTER_CALL).await;
        let mut world = self.world.borrow_mut();
        let at = Self::read_time(&mut world);
        if at < world.now {
            let on_node = |it: &Arc<K>| {
                let any: Arc<dyn std::any::Any + Send + Sync> = it.clone();
                let node = any.downcast_ref::<Pod>().map(|pod| pod.spec.node_name.clone());
                selector.node_name.as_ref().is_none_or(|name| node.as_ref() == Some(name))
            };
            let past = world.store.list_at::<K>(at);
            return Ok(past
                .into_values()
                .filter(|it| selected(&**it, selector) && on_node(it))
                .collect());
        }
        if let Some(node) = &selector.node_name {
            let pods: Vec<_> = world.store.pods_on(node).map(|it| it.key()).collect();
            return Ok(pods
                .iter()
                .filter_map(|key| world.store.get::<K>(key))
                .filter(|it| selected(&**it, selector))
                .collect());
        }
        Ok(world.store.list::<K>().filter(|it| selected(&**it, selector)).collect())
    }

    async fn changes<K: Kind>(&self, since: Place, _: u64) -> Result<Changes<K>, ClusterError> {
        self.call(CLUSTER_CALL).await;
        let mut world = self.world.borrow_mut();
        let mut at = Self::read_time(&mut world);
        let known = since.history == world.history;
        // Whoever follows does not go back.
        if known && world.store.version_at(at) < since.version {
            at = world.now;
        }
        let version = world.store.version_at(at);
        let place = Place { history: world.history, version, count: 0 };
        let whole = || Changes {
            whole: true,
            objects: world.store.list_at::<K>(at).into_values().collect(),
            gone: Vec::new(),
            place,
        };
        if !known {
            return Ok(whole());
        }
        let Some(since) = world.store.since::<K>(since.version, at) else { return Ok(whole()) };
        Ok(Changes { whole: false, objects: since.present, gone: since.gone, place })
    }

    async fn create<K: Kind>(&self, object: &K) -> Result<Arc<K>, ClusterError> {
        self.call(CLUSTER_CALL).await;
        let mut world = self.world.borrow_mut();
        let mut object = object.clone();
        let now = world.now;
        let meta = object.meta_mut();
        if meta.name.is_empty() {
            let serial = world.next_serial();
            meta.name = format!("{}{}", meta.generate_name, suffix(serial));
        }
        if K::NAMESPACED && meta.namespace.is_empty() {
            meta.namespace = "default".into();
        }
        if world.store.get::<K>(&object.key()).is_some() {
            return Err(ClusterError::AlreadyExists { object: object.reference() });
        }
        Ok(world.store.create(object, now))
    }

    async fn patch<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        self.write(old, new, guard, false).await
    }

    async fn patch_status<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        self.write(old, new, guard, true).await
    }

    async fn delete<K: Kind>(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        grace: Option<i64>,
    ) -> Result<(), ClusterError> {
        self.call(CLUSTER_CALL).await;
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        match world.store.get::<K>(key) {
            Some(object) if object.meta().uid == *uid => {
                crate::check::deletion(world, self.concern, &*object, grace);
                kubernetes::delete::<K>(world, key, grace);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn evict(&self, pod: &ObjectKey, uid: &Uid) -> Result<Eviction, ClusterError> {
        self.call(CLUSTER_CALL).await;
        let mut world = self.world.borrow_mut();
        Ok(kubernetes::evict(&mut world, pod, uid))
    }

    async fn publish(&self, event: KubeEvent, dedupe: SignedDuration) {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        let identity = event.identity();
        let alike = world.kube_events.range(&identity..);
        let last = alike.take_while(|it| it.0.identity() == identity).map(|it| *it.1).max();
        if last.is_none_or(|last| last + dedupe <= now) {
            // What is equal whatever it says is kept with what it says.
            let kept = if identity.message.is_empty() { event } else { identity };
            world.kube_events.insert(kept, now);
        }
    }
}

impl Ports {
    async fn write<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
        status: bool,
    ) -> Result<Arc<K>, ClusterError> {
        if old == new {
            return Ok(Arc::new(new.clone()));
        }
        self.call(CLUSTER_CALL).await;
        let mut world = self.world.borrow_mut();
        let key = old.key();
        let Some(current) = world.store.get::<K>(&key) else {
            return Err(ClusterError::NotFound { object: old.reference() });
        };
        let same = match guard {
            Precondition::ResourceVersion => {
                current.meta().resource_version == old.meta().resource_version
            }
            Precondition::Uid => current.meta().uid == old.meta().uid,
        };
        if !same {
            return Err(ClusterError::Conflict { object: old.reference() });
        }
        let now = world.now;
        let marked = |it: &Arc<K>| {
            let any: Arc<dyn std::any::Any + Send + Sync> = it.clone();
            let claim = any.downcast::<NodeClaim>().ok()?;
            let reason = claim.condition(NodeClaim::DISRUPTION_REASON)?;
            let reason = (reason.status == ConditionStatus::True).then(|| reason.reason.clone())?;
            Some((claim, reason))
        };
        let before = marked(&current);
        let written = world.store.patch(old, new, status, now).unwrap_or(current);
        if self.concern == Concern::Disruption
            && before.is_none()
            && let Some((claim, reason)) = marked(&written)
        {
            crate::check::disruption_started(&mut world, &claim, &reason);
        }
        if written.meta().deleting() && written.meta().finalizers.is_empty() {
            kubernetes::finalized::<K>(&mut world, &key);
        }
        Ok(written)
    }
}

/// Five characters as the API server appends them to a generated name.
pub(crate) fn suffix(serial: u64) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut n = serial.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let mut text = String::new();
    for _ in 0..5 {
        text.push(char::from(ALPHABET[(n % ALPHABET.len() as u64) as usize]));
        n /= ALPHABET.len() as u64;
    }
    text
}

impl Queues for Ports {
    async fn send(
        &self,
        to: Concern,
        work: &Work,
        delay: SignedDuration,
        group: &str,
    ) -> Result<(), AwsError> {
        self.aws("sqs", "SendMessage", QUICK_CALL).await?;
        let body = serde_json::to_string(work).unwrap_or_default();
        // SQS delays a message by 15 minutes at most.
        let delay = delay.clamp(SignedDuration::ZERO, SignedDuration::from_mins(15));
        self.world.borrow_mut().send(to, &body, delay, group, false);
        Ok(())
    }
}

impl Bus for Ports {
    async fn put(&self, events: &[BusEvent]) -> Result<Vec<usize>, AwsError> {
        self.aws("events", "PutEvents", QUICK_CALL).await?;
        self.world.borrow_mut().after(80, Happening::Bus(events.to_vec()));
        Ok(Vec::new())
    }
}

impl StateTable for Ports {
    async fn read(&self, key: &StateKey) -> Result<Option<Record>, StateError> {
        self.aws("dynamodb", "GetItem", QUICK_CALL).await?;
        let world = self.world.borrow();
        Ok(world.table.get(key).filter(|it| live(it, world.now)).cloned())
    }

    async fn query(
        &self,
        partition: &str,
        prefix: &str,
    ) -> Result<Vec<(String, Record)>, StateError> {
        self.aws("dynamodb", "Query", QUICK_CALL).await?;
        let world = self.world.borrow();
        Ok(world
            .table
            .range(StateKey::new(partition, prefix)..)
            .take_while(|(key, _)| key.partition == partition && key.sort.starts_with(prefix))
            .filter(|(_, record)| live(record, world.now))
            .map(|(key, record)| (key.sort.clone(), record.clone()))
            .collect())
    }

    async fn write(
        &self,
        key: &StateKey,
        data: Value,
        expires_at: Option<Timestamp>,
        when: When,
    ) -> Result<u64, StateError> {
        self.aws("dynamodb", "PutItem", QUICK_CALL).await?;
        let mut world = self.world.borrow_mut();
        let now = world.now;
        let present = world.table.get(key).filter(|it| live(it, now)).map(|it| it.version);
        if !holds(when, present) {
            return Err(StateError::Conflict(key.clone()));
        }
        let version = world.table.get(key).map_or(0, |it| it.version) + 1;
        world.table.insert(key.clone(), Record { version, data, expires_at });
        Ok(version)
    }

    async fn remove(&self, key: &StateKey, when: When) -> Result<(), StateError> {
        self.aws("dynamodb", "DeleteItem", QUICK_CALL).await?;
        let mut world = self.world.borrow_mut();
        let now = world.now;
        let present = world.table.get(key).filter(|it| live(it, now)).map(|it| it.version);
        if matches!(when, When::Version(_)) && !holds(when, present) {
            return Err(StateError::Conflict(key.clone()));
        }
        world.table.remove(key);
        Ok(())
    }
}

fn live(record: &Record, now: Timestamp) -> bool {
    record.expires_at.is_none_or(|at| now < at)
}

fn holds(when: When, present: Option<u64>) -> bool {
    match when {
        When::Always => true,
        When::Absent => present.is_none(),
        When::Version(version) => present == Some(version),
    }
}

/// The time of the world, which stands still while a handler thinks.
impl Clock for Ports {
    fn now(&self) -> Timestamp {
        self.world.borrow().now
    }
}

impl Journal for Ports {
    fn decision(&self, concern: Concern, decision: Decision) {
        let mut world = self.world.borrow_mut();
        let at = world.now;
        world.timeline.push(crate::world::Line { at, concern, decision });
    }

    fn metric(&self, _: Metric) {}

    fn clock(&self) -> Option<Timestamp> {
        Some(self.world.borrow().now)
    }
}

/// No instance here belongs to a group: whoever is told of one by an event is answered, and that is all.
impl AutoScaling for Ports {
    async fn complete_lifecycle_action(&self, _: &LifecycleAction) -> Result<(), AwsError> {
        self.aws("autoscaling", "CompleteLifecycleAction", AWS_CALL).await
    }

    async fn record_lifecycle_heartbeat(&self, _: &LifecycleAction) -> Result<(), AwsError> {
        self.aws("autoscaling", "RecordLifecycleActionHeartbeat", AWS_CALL).await
    }
}

impl Iam for Ports {
    async fn get_instance_profile(&self, name: &str) -> Result<Option<InstanceProfile>, AwsError> {
        self.aws("iam", "GetInstanceProfile", AWS_CALL).await?;
        Ok(self.world.borrow().profiles.get(name).cloned())
    }

    async fn create_instance_profile(
        &self,
        name: &str,
        path: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<InstanceProfile, AwsError> {
        self.aws("iam", "CreateInstanceProfile", AWS_CALL).await?;
        let mut world = self.world.borrow_mut();
        if world.profiles.contains_key(name) {
            let message = format!("Instance Profile {name} already exists.");
            return Err(AwsError::new(
                "iam",
                "CreateInstanceProfile",
                "EntityAlreadyExists",
                &message,
            ));
        }
        let profile = InstanceProfile {
            name: name.to_owned(),
            path: path.to_owned(),
            arn: format!("arn:aws:iam::{ACCOUNT}:instance-profile{path}{name}"),
            roles: Vec::new(),
            tags: tags.clone(),
            created: Some(whole_second(world.now)),
        };
        world.profiles.insert(name.to_owned(), profile.clone());
        world.ec2_mutations += 1;
        Ok(profile)
    }

    async fn tag_instance_profile(
        &self,
        name: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<(), AwsError> {
        self.aws("iam", "TagInstanceProfile", AWS_CALL).await?;
        let mut world = self.world.borrow_mut();
        let profile =
            world.profiles.get_mut(name).ok_or_else(|| no_profile("TagInstanceProfile", name))?;
        profile.tags.extend(tags.clone());
        Ok(())
    }

    async fn add_role(&self, profile: &str, role: &str) -> Result<(), AwsError> {
        self.aws("iam", "AddRoleToInstanceProfile", AWS_CALL).await?;
        let mut world = self.world.borrow_mut();
        let found = world
            .profiles
            .get_mut(profile)
            .ok_or_else(|| no_profile("AddRoleToInstanceProfile", profile))?;
        if !found.roles.is_empty() {
            let message = "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1";
            return Err(AwsError::new("iam", "AddRoleToInstanceProfile", "LimitExceeded", message));
        }
        found.roles.push(role.to_owned());
        Ok(())
    }

    async fn remove_role(&self, profile: &str, role: &str) -> Result<(), AwsError> {
        self.aws("iam", "RemoveRoleFromInstanceProfile", AWS_CALL).await?;
        if let Some(found) = self.world.borrow_mut().profiles.get_mut(profile) {
            found.roles.retain(|it| it != role);
        }
        Ok(())
    }

    async fn delete_instance_profile(&self, name: &str) -> Result<(), AwsError> {
        self.aws("iam", "DeleteInstanceProfile", AWS_CALL).await?;
        let mut world = self.world.borrow_mut();
        if world.profiles.get(name).is_some_and(|it| !it.roles.is_empty()) {
            let message = "Cannot delete entity, must remove roles from instance profile first.";
            return Err(AwsError::new("iam", "DeleteInstanceProfile", "DeleteConflict", message));
        }
        if world.profiles.remove(name).is_some() {
            world.ec2_mutations += 1;
        }
        Ok(())
    }

    async fn list_instance_profiles(
        &self,
        path_prefix: &str,
    ) -> Result<Vec<InstanceProfile>, AwsError> {
        self.aws("iam", "ListInstanceProfiles", AWS_CALL).await?;
        let world = self.world.borrow();
        Ok(world.profiles.values().filter(|it| it.path.starts_with(path_prefix)).cloned().collect())
    }

    async fn get_role(&self, name: &str) -> Result<Option<String>, AwsError> {
        self.aws("iam", "GetRole", AWS_CALL).await?;
        Ok(Some(name.to_owned()))
    }
}

fn no_profile(operation: &'static str, name: &str) -> AwsError {
    let message = format!("Instance Profile {name} cannot be found.");
    AwsError::new("iam", operation, "NoSuchEntity", &message)
}

impl Ssm for Ports {
    async fn get_parameter(&self, name: &str) -> Result<Option<String>, AwsError> {
        self.aws("ssm", "GetParameter", AWS_CALL).await?;
        Ok(self.world.borrow_mut().image_parameter(name))
    }

    async fn get_parameters_by_path(&self, _: &str) -> Result<Vec<Parameter>, AwsError> {
        self.aws("ssm", "GetParametersByPath", AWS_CALL).await?;
        Ok(Vec::new())
    }
}

impl Eks for Ports {
    async fn describe_cluster(&self, name: &str) -> Result<ClusterFacts, AwsError> {
        self.aws("eks", "DescribeCluster", AWS_CALL).await?;
        let world = self.world.borrow();
        let region = &world.settings.region;
        Ok(ClusterFacts {
            name: name.to_owned(),
            arn: format!("arn:aws:eks:{region}:{ACCOUNT}:cluster/{name}"),
            endpoint: format!("https://SIMULATED.gr7.{region}.eks.amazonaws.com"),
            certificate_authority: "c2ltdWxhdGVk".into(),
            version: "1.34".into(),
            service_ipv4_cidr: "10.100.0.0/16".into(),
            service_ipv6_cidr: String::new(),
            ip_family: "ipv4".into(),
            vpc_id: "vpc-0000000000000001".into(),
        })
    }
}

impl Pricing for Ports {
    async fn on_demand_prices(&self, _: &str) -> Result<BTreeMap<String, f64>, AwsError> {
        self.aws("pricing", "GetProducts", AWS_CALL).await?;
        Ok(self.world.borrow().market.on_demand.clone())
    }
}

/// The namespaces that every cluster has.
pub(crate) fn namespaces() -> impl Iterator<Item = Namespace> {
    ["default", "kube-system"].into_iter().map(|name| Namespace {
        metadata: spokeshave_model::ObjectMeta {
            labels: BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())]),
            ..spokeshave_model::ObjectMeta::named(name)
        },
    })
}
