//! A small world in which every port call is a point where the process may die or another one may go on.
#![allow(dead_code)]

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use serde_json::{Value, json};
use spokeshave_lambda::{BatchAnswer, SqsBatch, SqsRecord};
use spokeshave_model::{
    EC2NodeClass, InstanceId, Kind, NodeClaim, ObjectKey, Settings, SignedDuration, Timestamp, Uid,
    labels,
};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Concern, Ec2, Invocation, Key, Precondition, Queues, Record,
    Selector, StateError, StateKey, StateTable, When, Work,
    cluster::{Eviction, KubeEvent},
    ec2::{
        Filter, FleetAnswer, FleetError, FleetInstances, FleetRequest, Instance, LaunchTemplate,
        LaunchTemplateData, Subnet, Tags,
    },
    fake::Fake,
};

/// What the next fleets answer, first first.
#[derive(Clone, Debug)]
pub enum Script {
    /// These errors and no instance.
    Errors(Vec<FleetError>),
    /// So many instances less than asked, with these errors.
    Short(i64, Vec<FleetError>),
    /// The call fails with this code and status and does nothing.
    Refuse(&'static str, u16),
    /// The call does its work, but the answer is lost.
    LoseAnswer,
    /// One instance more than asked.
    Surplus,
}

pub struct World {
    pub fake: Fake,
    pub settings: Settings,
    pub now: Cell<Timestamp>,
    /// Port calls before the process dies; `None`: it lives.
    pub budget: Cell<Option<usize>>,
    pub port_calls: Cell<usize>,
    /// Every call lets others go on first.
    pub interleave: Cell<bool>,
    pub templates: RefCell<BTreeMap<String, LaunchTemplateData>>,
    pub fleets: RefCell<BTreeMap<String, (FleetRequest, FleetAnswer)>>,
    pub requests: RefCell<Vec<FleetRequest>>,
    pub instances: RefCell<BTreeMap<InstanceId, Instance>>,
    pub terminated: RefCell<Vec<InstanceId>>,
    pub script: RefCell<Vec<Script>>,
    pub subnets: RefCell<Vec<Subnet>>,
    pub ec2_calls: RefCell<Vec<String>>,
    /// Seconds for which an instance is not found by its tags.
    pub lag: Cell<i64>,
    /// Seconds that EC2 takes for a fleet.
    pub fleet_takes: Cell<i64>,
    serial: Cell<u64>,
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_261_600 + seconds).expect("in range")
}

/// Waits once, so that others can go on.
struct Pause(bool);

impl Future for Pause {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.0 {
            Poll::Ready(())
        } else {
            self.0 = true;
            Poll::Pending
        }
    }
}

impl World {
    /// A Ready class `default` and `count` claims of one pool, `a-0`, `a-1`, ...
    pub fn new(count: usize) -> Self {
        let settings = Settings {
            cluster_name: "c1".into(),
            cluster_endpoint: "https://c1".into(),
            region: "us-west-2".into(),
            ..Settings::default()
        };
        let world = Self {
            fake: Fake::at(at(0)),
            settings,
            now: Cell::new(at(0)),
            budget: Cell::new(None),
            port_calls: Cell::new(0),
            interleave: Cell::new(false),
            templates: RefCell::default(),
            fleets: RefCell::default(),
            requests: RefCell::default(),
            instances: RefCell::default(),
            terminated: RefCell::default(),
            script: RefCell::default(),
            subnets: RefCell::default(),
            ec2_calls: RefCell::default(),
            lag: Cell::new(0),
            fleet_takes: Cell::new(0),
            serial: Cell::new(0),
        };
        world.fake.add_json::<EC2NodeClass>(class());
        for n in 0..count {
            world.fake.add_json::<NodeClaim>(claim(&format!("a-{n}"), n, "a"));
        }
        let facts = json!({"name": "c1", "arn": "", "endpoint": "https://c1", "certificate_authority": "",
            "version": "1.34", "service_ipv4_cidr": "10.100.0.0/16", "service_ipv6_cidr": "", "ip_family": "ipv4",
            "vpc_id": "vpc-1"});
        world.record(StateKey::new("cluster", "facts"), facts);
        world.record(StateKey::new("catalog", "fixed"), types());
        world
    }

    pub fn record(&self, key: StateKey, data: Value) {
        let record = Record { version: 1, data, expires_at: None };
        self.fake.records.borrow_mut().insert(key, record);
    }

    pub fn set_now(&self, now: Timestamp) {
        self.now.set(now);
        self.fake.now.set(now);
    }

    pub fn claim(&self, name: &str) -> Option<NodeClaim> {
        self.fake.object::<NodeClaim>(name)
    }

    pub fn claims(&self) -> Vec<NodeClaim> {
        let objects = self.fake.objects.borrow();
        let names = objects.keys().filter_map(|it| it.strip_prefix("NodeClaim/"));
        names.filter_map(|it| self.fake.object(it)).collect()
    }

    pub fn alive(&self) -> Vec<InstanceId> {
        self.instances.borrow().keys().cloned().collect()
    }

    pub fn change_claim(&self, name: &str, change: impl Fn(&mut NodeClaim)) {
        let mut claim = self.claim(name).expect(name);
        change(&mut claim);
        self.fake.add(&claim);
    }

    pub fn change_class(&self, change: impl Fn(&mut EC2NodeClass)) {
        let mut class = self.fake.object::<EC2NodeClass>("default").expect("there");
        change(&mut class);
        self.fake.add(&class);
    }

    /// A batch that names these claims, one message each.
    pub fn batch(&self, names: &[&str], reason: &str, depth: u32) -> SqsBatch {
        let record = |name: &&str| {
            let key = Key { kind: "NodeClaim".into(), name: (*name).into(), ..Key::default() };
            let work = Work { depth, ..Work::new(reason, vec![key]) };
            SqsRecord {
                message_id: format!("m-{name}"),
                body: serde_json::to_string(&work).expect("writes"),
                ..SqsRecord::default()
            }
        };
        SqsBatch { records: names.iter().map(record).collect() }
    }

    /// A batch as the bus delivers it: what the bridge saw, an event per claim.
    pub fn bus_batch(&self, names: &[&str]) -> SqsBatch {
        let mut batch = self.batch(names, "NodeClaimCreated", 0);
        for record in &mut batch.records {
            let detail: Value = serde_json::from_str(&record.body).expect("reads");
            let event = json!({"detail-type": "NodeClaimCreated", "detail": detail});
            record.body = event.to_string();
        }
        batch
    }

    /// A batch of one message that names these claims.
    pub fn message(&self, names: &[&str]) -> SqsBatch {
        let key =
            |name: &&str| Key { kind: "NodeClaim".into(), name: (*name).into(), ..Key::default() };
        let work = Work::new("NodeClaimsCreated", names.iter().map(key).collect());
        let record = SqsRecord {
            message_id: format!("m-{}", names.first().copied().unwrap_or_default()),
            body: serde_json::to_string(&work).expect("writes"),
            ..SqsRecord::default()
        };
        SqsBatch { records: vec![record] }
    }

    /// Runs the handler for all claims; `None` when it died.
    pub fn run(&self) -> Option<BatchAnswer> {
        let names: Vec<String> = self.claims().into_iter().map(|it| it.metadata.name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.run_batch(&self.batch(&names, "NodeClaimChanged", 0))
    }

    pub fn run_batch(&self, batch: &SqsBatch) -> Option<BatchAnswer> {
        let cx = self.invocation();
        let mut run =
            Box::pin(spokeshave_launch_function::handle(batch, self, self, self, self, &cx));
        for _ in 0..100_000 {
            match run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => return Some(answer),
                Poll::Pending if self.budget.get() == Some(0) => return None,
                Poll::Pending => {}
            }
        }
        panic!("the handler does not end");
    }

    /// Runs two handlers of the same batch, a step of one or the other at a time. `dies` is the one that stops after so many
    /// steps.
    pub fn run_two(&self, seed: u64, dies: Option<(usize, usize)>) {
        self.interleave.set(true);
        let names: Vec<String> = self.claims().into_iter().map(|it| it.metadata.name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let batch = self.batch(&names, "NodeClaimChanged", 0);
        let cx = self.invocation();
        let start = || {
            Some(Box::pin(spokeshave_launch_function::handle(&batch, self, self, self, self, &cx)))
        };
        let mut runs = [start(), start()];
        let mut steps = [0, 0];
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        while runs.iter().any(Option::is_some) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = (random >> 33) as usize % 2;
            let Some(run) = &mut runs[at] else { continue };
            steps[at] += 1;
            let done = run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            if done || dies == Some((at, steps[at])) {
                runs[at] = None;
            }
        }
        self.interleave.set(false);
    }

    pub fn invocation(&self) -> Invocation<'_> {
        Invocation {
            concern: Concern::Launch,
            now: self.now.get(),
            deadline: self.now.get() + SignedDuration::from_secs(60),
            settings: &self.settings,
            journal: &self.fake,
        }
    }

    /// One port call: perhaps the last one of the process, perhaps another process goes first.
    async fn step(&self) {
        self.port_calls.set(self.port_calls.get() + 1);
        if self.interleave.get() {
            Pause(false).await;
        }
        self.live().await;
    }

    async fn live(&self) {
        if let Some(left) = self.budget.get() {
            if left == 0 {
                std::future::pending::<()>().await;
            }
            self.budget.set(Some(left - 1));
        }
    }

    fn launch(&self, request: &FleetRequest) -> Result<FleetAnswer, AwsError> {
        self.requests.borrow_mut().push(request.clone());
        if let Some((first, answer)) = self.fleets.borrow().get(&request.client_token) {
            assert_eq!(first, request, "the same token with another request");
            return Ok(answer.clone());
        }
        let script = {
            let mut script = self.script.borrow_mut();
            if script.is_empty() { None } else { Some(script.remove(0)) }
        };
        if let Some(Script::Refuse(code, status)) = script {
            let mut error = AwsError::new("ec2", "CreateFleet", code, "refused");
            error.status = status;
            return Err(error);
        }
        for config in &request.configs {
            if !self.templates.borrow().contains_key(&config.launch_template) {
                let code = "InvalidLaunchTemplateName.NotFoundException";
                return Err(AwsError::new("ec2", "CreateFleet", code, "no such template"));
            }
        }
        let mut answer = FleetAnswer {
            fleet_id: "fleet-1".into(),
            request_id: Some("r-1".into()),
            ..FleetAnswer::default()
        };
        let count = match &script {
            Some(Script::Errors(errors)) => {
                answer.errors = errors.clone();
                0
            }
            Some(Script::Short(by, errors)) => {
                answer.errors = errors.clone();
                request.target - by
            }
            Some(Script::Surplus) => request.target + 1,
            _ => request.target,
        };
        let mut all: Vec<_> = request.configs.iter().flat_map(|it| &it.overrides).collect();
        all.sort_by(|a, b| a.priority.total_cmp(&b.priority).then_with(|| a.zone.cmp(&b.zone)));
        let best = all[0];
        for _ in 0..count {
            let serial = self.serial.get() + 1;
            self.serial.set(serial);
            let id = InstanceId(format!("i-{serial:017x}"));
            self.instances.borrow_mut().insert(
                id.clone(),
                Instance {
                    id: id.clone(),
                    instance_type: best.instance_type.clone(),
                    image_id: best.image_id.clone(),
                    zone: best.zone.clone(),
                    subnet_id: best.subnet_id.clone(),
                    state: "pending".into(),
                    launch_time: Some(self.now.get()),
                    spot: request.capacity_type == "spot",
                    tenancy: "default".into(),
                    tags: request.tags.clone(),
                    ..Instance::default()
                },
            );
            answer.instances.push(FleetInstances {
                ids: vec![id],
                instance_type: best.instance_type.clone(),
                zone: best.zone.clone(),
                subnet_id: best.subnet_id.clone(),
                image_id: best.image_id.clone(),
                spot: request.capacity_type == "spot",
            });
        }
        self.fleets
            .borrow_mut()
            .insert(request.client_token.clone(), (request.clone(), answer.clone()));
        if matches!(script, Some(Script::LoseAnswer)) {
            let mut error = AwsError::new("ec2", "CreateFleet", "Timeout", "no answer");
            error.status = 0;
            return Err(error);
        }
        Ok(answer)
    }
}

pub fn class() -> Value {
    json!({
        "metadata": {"name": "default", "uid": "class-1", "generation": 1},
        "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"a": "b"}}],
            "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
            "role": "node",
        },
        "status": {
            "subnets": [{"id": "subnet-a", "zone": "us-west-2a", "zoneID": "usw2-az2"},
                        {"id": "subnet-b", "zone": "us-west-2b", "zoneID": "usw2-az1"}],
            "securityGroups": [{"id": "sg-1", "name": "nodes"}],
            "amis": [{"id": "ami-amd", "requirements": [
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}],
            "instanceProfile": "profile-1",
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
                "lastTransitionTime": "2026-01-01T09:00:00Z", "observedGeneration": 1}],
        },
    })
}

/// Three types, sold on demand and spot in two zones. Given as they are: the whole region takes too long thousands of times.
pub fn types() -> Value {
    let of = |name: &str, arch: &str, cpu: i64, price: f64| {
        let offering = |kind: &str, zone: &str, id: &str, price: f64| json!({"capacityType": kind, "zone": zone, "zoneId": id, "price": price});
        json!({"name": name,
            "labels": {"kubernetes.io/arch": [arch], "kubernetes.io/os": ["linux"],
                "karpenter.k8s.aws/instance-cpu": [cpu.to_string()], "karpenter.k8s.aws/instance-hypervisor": ["nitro"]},
            "capacity": {"cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * 4), "pods": "29", "ephemeral-storage": "20Gi",
                "nvidia.com/gpu": "0"},
            "overhead": {"cpu": "70m", "memory": "1Gi"},
            "offerings": [
                offering("on-demand", "us-west-2a", "usw2-az2", price),
                offering("spot", "us-west-2a", "usw2-az2", price / 3.0),
                offering("on-demand", "us-west-2b", "usw2-az1", price),
                offering("spot", "us-west-2b", "usw2-az1", price / 2.0)]})
    };
    json!({"instanceTypes": [of("m5.large", "amd64", 2, 0.096), of("m5.xlarge", "amd64", 4, 0.192),
        of("m6g.large", "arm64", 2, 0.077)]})
}

/// A claim of pool `pool` for two CPUs of m5, on-demand.
pub fn claim(name: &str, n: usize, pool: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-{pool}-{n}"), "resourceVersion": "1", "generation": 1,
            "creationTimestamp": "2026-01-01T10:00:00Z",
            "labels": {"karpenter.sh/nodepool": pool, "karpenter.k8s.aws/ec2nodeclass": "default"}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large", "m5.xlarge"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi", "pods": "3"}},
        },
    })
}

pub fn ice(instance_type: &str, zone: &str) -> FleetError {
    error("InsufficientInstanceCapacity", instance_type, zone)
}

pub fn error(code: &str, instance_type: &str, zone: &str) -> FleetError {
    FleetError {
        code: code.into(),
        message: "none left".into(),
        instance_type: instance_type.into(),
        zone: zone.into(),
        subnet_id: String::new(),
    }
}

impl Cluster for World {
    async fn get<K: Kind>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, ClusterError> {
        self.step().await;
        self.fake.get(key).await
    }
    async fn list<K: Kind>(&self, selector: &Selector) -> Result<Vec<Arc<K>>, ClusterError> {
        self.step().await;
        self.fake.list(selector).await
    }
    async fn create<K: Kind>(&self, object: &K) -> Result<Arc<K>, ClusterError> {
        self.step().await;
        self.fake.create(object).await
    }
    async fn patch<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        self.step().await;
        let done = self.fake.patch(old, new, guard).await;
        self.live().await;
        done
    }
    async fn patch_status<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        self.step().await;
        let done = self.fake.patch_status(old, new, guard).await;
        self.live().await;
        done
    }
    async fn delete<K: Kind>(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        grace: Option<i64>,
    ) -> Result<(), ClusterError> {
        self.step().await;
        let done = self.fake.delete::<K>(key, uid, grace).await;
        self.live().await;
        done
    }
    async fn evict(&self, pod: &ObjectKey, uid: &Uid) -> Result<Eviction, ClusterError> {
        self.step().await;
        self.fake.evict(pod, uid).await
    }
    async fn publish(&self, event: KubeEvent, dedupe: SignedDuration) {
        self.step().await;
        self.fake.publish(event, dedupe).await;
    }
}

impl StateTable for World {
    async fn read(&self, key: &StateKey) -> Result<Option<Record>, StateError> {
        self.step().await;
        self.fake.read(key).await
    }
    async fn query(
        &self,
        partition: &str,
        prefix: &str,
    ) -> Result<Vec<(String, Record)>, StateError> {
        self.step().await;
        self.fake.query(partition, prefix).await
    }
    async fn write(
        &self,
        key: &StateKey,
        data: Value,
        expires_at: Option<Timestamp>,
        when: When,
    ) -> Result<u64, StateError> {
        self.step().await;
        let done = self.fake.write(key, data, expires_at, when).await;
        self.live().await;
        done
    }
    async fn remove(&self, key: &StateKey, when: When) -> Result<(), StateError> {
        self.step().await;
        self.fake.remove(key, when).await
    }
}

impl Queues for World {
    async fn send(
        &self,
        to: Concern,
        work: &Work,
        delay: SignedDuration,
        group: &str,
    ) -> Result<(), AwsError> {
        self.step().await;
        self.fake.send(to, work, delay, group).await
    }
}

impl Ec2 for World {
    spokeshave_ports::pass_ec2!(self => self.fake;
        describe_security_groups describe_images describe_zones describe_instance_types
        describe_instance_type_offerings describe_spot_prices describe_capacity_reservations
        describe_placement_groups dry_run_instances describe_instance_status create_tags
        describe_launch_templates
    );
    async fn describe_subnets(&self, _: &[Filter]) -> Result<Vec<Subnet>, AwsError> {
        self.step().await;
        self.ec2_calls.borrow_mut().push("DescribeSubnets".into());
        Ok(self.subnets.borrow().clone())
    }
    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetAnswer, AwsError> {
        self.step().await;
        self.ec2_calls.borrow_mut().push("CreateFleet".into());
        let done = self.launch(request);
        let taken = SignedDuration::from_secs(self.fleet_takes.get());
        self.fake.now.set(self.fake.now.get() + taken);
        self.live().await;
        done
    }
    async fn describe_instances(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, AwsError> {
        self.step().await;
        let all = self.instances.borrow();
        Ok(ids.iter().filter_map(|it| all.get(it).cloned()).collect())
    }
    async fn find_instances(&self, filters: &[Filter]) -> Result<Vec<Instance>, AwsError> {
        self.step().await;
        self.ec2_calls.borrow_mut().push("DescribeInstances".into());
        let tag = format!("tag:{}", labels::TAG_LAUNCH);
        let wanted = filters.iter().find(|it| it.name == tag).expect("by attempt");
        let all = self.instances.borrow();
        let seen = self.now.get() - SignedDuration::from_secs(self.lag.get());
        let found = all.values().filter(|it| {
            it.tags.get(labels::TAG_LAUNCH).is_some_and(|id| wanted.values.contains(id))
                && it.launch_time.is_none_or(|at| at <= seen)
        });
        Ok(found.cloned().collect())
    }
    async fn terminate_instances(&self, ids: &[InstanceId]) -> Result<(), AwsError> {
        self.step().await;
        for id in ids {
            if self.instances.borrow_mut().remove(id).is_some() {
                self.terminated.borrow_mut().push(id.clone());
            }
        }
        Ok(())
    }
    async fn get_launch_template(&self, name: &str) -> Result<Option<LaunchTemplate>, AwsError> {
        self.step().await;
        self.ec2_calls.borrow_mut().push("DescribeLaunchTemplates".into());
        let template = LaunchTemplate { name: name.into(), ..LaunchTemplate::default() };
        Ok(self.templates.borrow().contains_key(name).then_some(template))
    }
    async fn create_launch_template(
        &self,
        name: &str,
        data: &LaunchTemplateData,
        _: &Tags,
        _: bool,
    ) -> Result<LaunchTemplate, AwsError> {
        self.step().await;
        self.ec2_calls.borrow_mut().push("CreateLaunchTemplate".into());
        self.templates.borrow_mut().insert(name.into(), data.clone());
        self.live().await;
        Ok(LaunchTemplate { name: name.into(), ..LaunchTemplate::default() })
    }
    async fn delete_launch_template(&self, name: &str) -> Result<(), AwsError> {
        self.templates.borrow_mut().remove(name);
        Ok(())
    }
}
