//! Made-up catalogues and builders (`spec` scheduling, appendix A), shared by tests and benches.
#![allow(dead_code)]

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_model::{
    CapacityType, InstanceType, NodePool, Offering, Operator, Quantity, Requirement, Requirements,
    Resources,
    core::{DaemonSet, Node, Pod},
    instance_type::Overhead,
    labels,
    meta::from_value,
};
use spokeshave_scheduling::{Batch, ClusterView, Object, Options, PoolInput, Solution};

pub const ZONES: [&str; 3] = ["test-zone-1", "test-zone-2", "test-zone-3"];

pub fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

pub fn q(text: &str) -> Quantity {
    text.parse().expect("a quantity")
}

pub fn resources(list: &[(&str, &str)]) -> Resources {
    list.iter().map(|(name, amount)| ((*name).to_owned(), q(amount))).collect()
}

pub struct Fake {
    pub name: String,
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    pub pods: i64,
    pub arch: &'static str,
    pub os: Vec<&'static str>,
    pub extra: Vec<(&'static str, i64)>,
    pub offerings: Vec<(CapacityType, &'static str)>,
}

const GI: i64 = 1 << 30;

impl Fake {
    pub fn new(name: &str, cpu: i64, memory_gi: i64) -> Self {
        Self {
            name: name.to_owned(),
            cpu,
            memory: memory_gi * GI,
            pods: 5,
            arch: "amd64",
            os: vec!["darwin", "linux", "windows"],
            extra: Vec::new(),
            offerings: vec![
                (CapacityType::Spot, ZONES[0]),
                (CapacityType::Spot, ZONES[1]),
                (CapacityType::OnDemand, ZONES[0]),
                (CapacityType::OnDemand, ZONES[1]),
                (CapacityType::OnDemand, ZONES[2]),
            ],
        }
    }

    pub fn pods(mut self, pods: i64) -> Self {
        self.pods = pods;
        self
    }

    pub fn extra(mut self, name: &'static str, n: i64) -> Self {
        self.extra.push((name, n));
        self
    }

    pub fn price(&self) -> f64 {
        let gpus = self.extra.len() as f64;
        0.1 * self.cpu as f64 + 0.1 * self.memory as f64 / 1e9 + gpus
    }

    pub fn build(&self) -> InstanceType {
        let price = self.price();
        let offerings: Vec<Offering> = self
            .offerings
            .iter()
            .map(|(capacity_type, zone)| Offering {
                capacity_type: *capacity_type,
                zone: (*zone).to_owned(),
                price: Some(price),
                available: true,
                ..Offering::default()
            })
            .collect();
        let mut capacity = Resources::new()
            .with("cpu", Quantity::units(self.cpu))
            .with("memory", Quantity::bytes(self.memory))
            .with("pods", Quantity::units(self.pods));
        for (name, n) in &self.extra {
            capacity.set(name, Quantity::units(*n));
        }
        let large = self.cpu > 4 && self.memory > 8 * GI;
        let mut requirements = requirements_of(&offerings);
        requirements.add(Requirement::equals(labels::INSTANCE_TYPE, &self.name));
        requirements.add(Requirement::equals(labels::ARCH, self.arch));
        requirements.add(Requirement::new(labels::OS, Operator::In, self.os.iter().copied()));
        requirements.add(Requirement::equals("size", if large { "large" } else { "small" }));
        requirements.add(if large {
            Requirement::equals("special", "optional")
        } else {
            Requirement::does_not_exist("special")
        });
        requirements.add(Requirement::equals("integer", &self.cpu.to_string()));
        InstanceType {
            name: self.name.clone(),
            requirements,
            capacity,
            overhead: Overhead {
                kube_reserved: resources(&[("cpu", "100m"), ("memory", "10Mi")]),
                ..Overhead::default()
            },
            offerings,
        }
    }
}

/// Zones and capacity types of offerings.
pub fn requirements_of(offerings: &[Offering]) -> Requirements {
    let mut set = Requirements::new();
    let zones = offerings.iter().map(|it| it.zone.as_str());
    set.add(Requirement::new(labels::ZONE, Operator::In, zones));
    let types = offerings.iter().map(|it| it.capacity_type.as_str());
    set.add(Requirement::new(labels::CAPACITY_TYPE, Operator::In, types));
    set
}

pub type Catalogue = Arc<[Arc<InstanceType>]>;

pub fn catalogue(types: impl IntoIterator<Item = InstanceType>) -> Catalogue {
    types.into_iter().map(Arc::new).collect()
}

/// Catalogue D.
pub fn catalogue_d() -> Catalogue {
    let mut arm = Fake::new("arm-instance-type", 16, 128);
    arm.arch = "arm64";
    arm.os.push("ios");
    catalogue(
        [
            Fake::new("default-instance-type", 4, 4),
            Fake::new("small-instance-type", 2, 2),
            Fake::new("gpu-vendor-instance-type", 4, 4).extra("fake.com/vendor-a", 2),
            Fake::new("gpu-vendor-b-instance-type", 4, 4).extra("fake.com/vendor-b", 2),
            arm,
            Fake::new("single-pod-instance-type", 4, 4).pods(1),
        ]
        .iter()
        .map(Fake::build),
    )
}

/// Catalogue F(n).
pub fn catalogue_f(n: i64) -> Catalogue {
    catalogue(
        (0..n).map(|i| {
            Fake::new(&format!("fake-it-{i}"), i + 1, 2 * (i + 1)).pods(10 * (i + 1)).build()
        }),
    )
}

/// Merges `fields` over `base`, maps deeply.
pub fn over(mut base: Value, fields: Value) -> Value {
    fn merge(base: &mut Value, fields: Value) {
        match (base, fields) {
            (Value::Object(base), Value::Object(fields)) => {
                for (key, value) in fields {
                    merge(base.entry(key).or_insert(Value::Null), value);
                }
            }
            (base, fields) => *base = fields,
        }
    }
    merge(&mut base, fields);
    base
}

pub fn pool(name: &str, fields: Value) -> NodePool {
    from_value(over(
        json!({"metadata": {"name": name, "uid": format!("uid-{name}")},
               "spec": {"template": {"spec": {"nodeClassRef":
                   {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": []}}}}),
        fields,
    ))
    .expect("a pool")
}

pub fn input(pool: NodePool, types: &Catalogue) -> PoolInput {
    PoolInput { nodepool: Arc::new(pool), hash: "1".into(), instance_types: Ok(Arc::clone(types)) }
}

/// A pending pod with the requests and further fields.
pub fn pod(name: &str, requests: &[(&str, &str)], fields: Value) -> Pod {
    let requests: serde_json::Map<String, Value> =
        requests.iter().map(|(name, amount)| ((*name).to_owned(), json!(amount))).collect();
    from_value(over(
        json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
               "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
               "status": {"phase": "Pending",
                   "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}),
        fields,
    ))
    .expect("a pod")
}

pub fn node(name: &str, fields: Value) -> Node {
    from_value(over(
        json!({"metadata": {"name": name, "uid": format!("uid-{name}"),
                            "labels": {"kubernetes.io/hostname": name}},
               "spec": {"providerID": format!("aws:///z/{name}")},
               "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"},
                          "capacity": {"cpu": "4", "memory": "4Gi", "pods": "10"}}}),
        fields,
    ))
    .expect("a node")
}

pub fn daemon_set(name: &str, requests: &[(&str, &str)], spec: Value) -> DaemonSet {
    let requests: serde_json::Map<String, Value> =
        requests.iter().map(|(name, amount)| ((*name).to_owned(), json!(amount))).collect();
    from_value(json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"template": {"spec": over(
            json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}), spec)}}}))
    .expect("a daemon set")
}

pub fn view(objects: impl IntoIterator<Item = Object>) -> ClusterView {
    ClusterView::new(objects)
}

pub fn options() -> Options {
    Options {
        ignore_dra_requests: true,
        reserved_capacity: true,
        extra_well_known: vec!["size".into(), "special".into(), "integer".into()],
        ..Options::default()
    }
}

pub fn batch(pods: impl IntoIterator<Item = Pod>) -> Batch {
    Batch { pods: pods.into_iter().map(Arc::new).collect(), ..Batch::default() }
}

pub fn plan(
    view: &ClusterView,
    pools: &[PoolInput],
    pods: impl IntoIterator<Item = Pod>,
) -> Solution {
    spokeshave_scheduling::solve(view, pools, &batch(pods), &options(), now())
}

/// Plans pods for one pool of an empty cluster.
pub fn plan_new(fields: Value, types: &Catalogue, pods: impl IntoIterator<Item = Pod>) -> Solution {
    plan(&ClusterView::default(), &[input(pool("default", fields), types)], pods)
}

pub fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|it| it.metadata.name.as_str()).collect()
}

/// The pods of each new claim.
pub fn claims(solution: &Solution) -> Vec<Vec<&str>> {
    solution.new_claims.iter().map(|it| names(&it.pods)).collect()
}

/// The types of each new claim, cheapest first.
pub fn types(solution: &Solution) -> Vec<Vec<&str>> {
    solution
        .new_claims
        .iter()
        .map(|it| it.instance_types.iter().map(|it| it.name.as_str()).collect())
        .collect()
}

/// A requirement of a new claim as text.
pub fn requirement(solution: &Solution, claim: usize, key: &str) -> String {
    solution
        .new_claims
        .get(claim)
        .and_then(|it| it.claim_requirements().get(key).map(ToString::to_string))
        .unwrap_or_default()
}

/// The reason of the pod of this name.
pub fn reason(solution: &Solution, name: &str) -> String {
    solution
        .unschedulable
        .iter()
        .find(|(key, _)| key.name == name)
        .map(|(_, it)| it.text.clone())
        .unwrap_or_default()
}

/// The first 64,000 draws of the reference's generator, each modulo 210.
pub const DRAWS: &[u8] = include_bytes!("../../data/benchmark-draws.bin");

/// Draws of the reproducible benchmark mix.
pub struct Draws {
    values: Vec<u8>,
    at: usize,
}

impl Draws {
    pub fn new(values: &[u8]) -> Self {
        Self { values: values.to_vec(), at: 0 }
    }

    fn next(&mut self, n: usize) -> usize {
        let value = self.values[self.at] as usize;
        self.at += 1;
        value % n
    }

    fn letter(&mut self) -> &'static str {
        ["a", "b", "c", "d", "e", "f", "g"][self.next(7)]
    }

    fn requests(&mut self) -> [(&'static str, &'static str); 2] {
        let cpu = ["100m", "250m", "500m", "1000m", "1500m"][self.next(5)];
        let memory = ["100Mi", "256Mi", "512Mi", "1024Mi", "2048Mi", "4096Mi"][self.next(6)];
        [("cpu", cpu), ("memory", memory)]
    }
}

/// The mix "diverse(count)" of `spec` scheduling 25.2.
pub fn diverse(count: usize, draws: &mut Draws) -> Vec<Pod> {
    let t = count / 5;
    let mut pods = Vec::with_capacity(count);
    let mut seed: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut add = |requests: &[(&str, &str)], fields: Value| {
        // Any fixed scattering will do: UIDs are random in the original.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let name = format!("pod-{}", pods.len());
        let mut made = pod(&name, requests, fields);
        made.metadata.uid = format!("{seed:016x}").into();
        pods.push(made);
    };
    let spread = |key: &str, own: &str, selected: &str| {
        json!({"metadata": {"labels": {"my-label": own}},
            "spec": {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"my-label": selected}}}]}})
    };
    for _ in 0..t {
        let own = draws.letter();
        let requests = draws.requests();
        add(&requests, json!({"metadata": {"labels": {"my-label": own}}}));
    }
    for key in [labels::ZONE, labels::HOSTNAME] {
        for _ in 0..t {
            let own = draws.letter();
            let selected = draws.letter();
            let requests = draws.requests();
            add(&requests, spread(key, own, selected));
        }
    }
    for _ in 0..t {
        let own = draws.letter();
        let requests = draws.requests();
        add(
            &requests,
            json!({"metadata": {"labels": {"my-affininity": own}},
                "spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": labels::ZONE, "labelSelector": {"matchLabels": {"my-affininity": own}}}]}}}}),
        );
    }
    for _ in 0..t {
        let requests = draws.requests();
        add(
            &requests,
            json!({"metadata": {"labels": {"app": "nginx"}},
                "spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"app": "nginx"}}}]}}}}),
        );
    }
    for _ in 0..count - 5 * t {
        let own = draws.letter();
        let requests = draws.requests();
        add(&requests, json!({"metadata": {"labels": {"my-label": own}}}));
    }
    pods
}

/// The pods of "preference(count)" of `spec` scheduling 25.3.
pub fn preference(count: usize) -> Vec<Pod> {
    let term =
        |key: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "nginx"}}});
    (0..count)
        .map(|at| {
            pod(
                &format!("pod-{at}"),
                &[("cpu", "100m"), ("memory", "4096Mi")],
                json!({"metadata": {"labels": {"app": "nginx"}, "uid": format!("{at:08}")}, "spec": {"affinity": {
                    "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1,
                        "preference": {"matchExpressions": [{"key": labels::ZONE, "operator": "In",
                            "values": ["test-zone-1"]}]}}]},
                    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 10, "podAffinityTerm": term(labels::ZONE)},
                        {"weight": 1, "podAffinityTerm": term(labels::HOSTNAME)}]}}}}),
            )
        })
        .collect()
}

/// The pool of the benchmark.
pub fn benchmark_pool() -> NodePool {
    pool("default", json!({"spec": {"limits": {"cpu": "10000000", "memory": "10000000Gi"}}}))
}

/// A cluster in which plans are carried out: claims become nodes, pods are bound where they were planned.
pub struct World {
    pub view: ClusterView,
    pub pools: Vec<PoolInput>,
    n_nodes: usize,
}

impl World {
    pub fn new(pools: Vec<PoolInput>) -> Self {
        Self { view: ClusterView::default(), pools, n_nodes: 0 }
    }

    pub fn add(&mut self, object: Object) {
        self.view.apply(spokeshave_scheduling::Change::Put(object));
    }

    /// Plans the pods and carries the plan out.
    pub fn run(&mut self, pods: impl IntoIterator<Item = Pod>) -> Solution {
        let solution = plan(&self.view, &self.pools, pods);
        for claim in &solution.new_claims {
            let name = format!("node-{}", self.n_nodes);
            self.n_nodes += 1;
            let cheapest = claim.cheapest.as_ref().expect("something to buy");
            let type_ = &claim.instance_types[0];
            let mut labels = claim.claim_labels(|from, _| from);
            for requirement in type_.requirements.iter() {
                if let Some(value) = type_.requirements.single(&requirement.key) {
                    labels.insert(requirement.key.clone(), value.to_owned());
                }
            }
            labels.insert(labels::ZONE.into(), cheapest.zone.clone());
            labels.insert(labels::CAPACITY_TYPE.into(), cheapest.capacity_type.to_string());
            labels.insert(labels::HOSTNAME.into(), name.clone());
            labels.insert(labels::INITIALIZED.into(), "true".into());
            let mut made = node(&name, json!({}));
            made.metadata.labels = labels;
            made.status.capacity = type_.capacity.clone();
            made.status.allocatable = type_.allocatable();
            self.add(Arc::new(made).into());
            claim.pods.iter().for_each(|pod| self.bind(pod, &name));
        }
        for existing in &solution.existing {
            existing.pods.iter().for_each(|pod| self.bind(pod, &existing.node));
        }
        solution
    }

    pub fn bind(&mut self, pod: &Pod, node: &str) {
        let mut pod = pod.clone();
        node.clone_into(&mut pod.spec.node_name);
        "Running".clone_into(&mut pod.status.phase);
        self.add(Arc::new(pod).into());
    }

    /// Bound pods with the label `app` of this value, per value of the topology key, sorted by number.
    pub fn counts(&self, app: &str, key: &str) -> Vec<usize> {
        let mut by_value: std::collections::BTreeMap<String, usize> =
            std::collections::BTreeMap::new();
        for pod in self.view.bound_pods().filter(|it| it.metadata.label("app") == Some(app)) {
            let node = spokeshave_model::ObjectKey::cluster(&pod.spec.node_name);
            let value = self.view.nodes.get(&node).and_then(|it| it.metadata.label(key));
            *by_value.entry(value.unwrap_or("").to_owned()).or_default() += 1;
        }
        let mut counts: Vec<usize> = by_value.into_values().collect();
        counts.sort_unstable();
        counts
    }
}

/// Pods labelled `app=<app>`, numbered from `first`, with more fields.
pub fn replicas(
    app: &str,
    first: usize,
    n: usize,
    requests: &[(&str, &str)],
    fields: &Value,
) -> Vec<Pod> {
    (first..first + n)
        .map(|at| {
            let labels = json!({"metadata": {"labels": {"app": app}}});
            pod(&format!("{app}-{at:03}"), requests, over(labels, fields.clone()))
        })
        .collect()
}

/// A spread constraint over pods labelled `app=<app>`.
pub fn spread(app: &str, key: &str, fields: Value) -> Value {
    over(
        json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}}}),
        fields,
    )
}

#[allow(clippy::needless_pass_by_value, reason = "tests make the list for it")]
pub fn spreads(list: Vec<Value>) -> Value {
    json!({"spec": {"topologySpreadConstraints": list}})
}

/// Required affinity (`podAffinity`) or anti-affinity (`podAntiAffinity`) to pods labelled `app=<app>`.
pub fn affine(kind: &str, app: &str, key: &str) -> Value {
    json!({"spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]}}}})
}

/// A requirement of a pool.
pub fn requires(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"spec": {"template": {"spec": {"requirements":
        [{"key": key, "operator": operator, "values": values}]}}}})
}

/// Node affinity: required terms, and preferences with their weights.
pub fn affinity(required: &[Value], preferred: &[(i32, Value)]) -> Value {
    let mut node_affinity = json!({});
    if !required.is_empty() {
        let terms: Vec<Value> =
            required.iter().map(|it| json!({"matchExpressions": [it]})).collect();
        node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": terms});
    }
    let soft: Vec<Value> = preferred
        .iter()
        .map(|(weight, it)| json!({"weight": weight, "preference": {"matchExpressions": [it]}}))
        .collect();
    node_affinity["preferredDuringSchedulingIgnoredDuringExecution"] = json!(soft);
    json!({"spec": {"affinity": {"nodeAffinity": node_affinity}}})
}

/// `key In values`.
pub fn expr(key: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": "In", "values": values})
}

/// A node selector of one label.
pub fn select(key: &str, value: &str) -> Value {
    json!({"spec": {"nodeSelector": {key: value}}})
}
