//! Small clusters, the command run on them, and its answer in one line per command and per node left.

use serde_json::{Value, json};
use spokeshave::{ExitStatus, Failure, Format};
use spokeshave_model::meta::apply_merge_patch;

use crate::common::{self, Ran, file};

/// A Monday.
pub const NOW: &str = "2026-03-02T12:00:00Z";
pub const CREATED: &str = "2026-03-01T00:00:00Z";
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// `o` or `s`, the zone, the price. More can be patched in.
pub type Sold<'a> = (&'a str, &'a str, f64);

/// An instance type; the family is what comes before the dot.
pub fn sells(name: &str, cpu: u32, offerings: &[Sold]) -> Value {
    let family = name.split('.').next().unwrap_or(name);
    let offerings: Vec<Value> = offerings
        .iter()
        .map(|(capacity_type, zone, price)| {
            let capacity_type = if *capacity_type == "s" { "spot" } else { "on-demand" };
            json!({"capacityType": capacity_type, "zone": zone, "price": price})
        })
        .collect();
    json!({"name": name,
        "labels": {"kubernetes.io/arch": ["amd64"], "kubernetes.io/os": ["linux"],
            "karpenter.k8s.aws/instance-family": [family], "karpenter.k8s.aws/instance-cpu": [cpu.to_string()]},
        "capacity": {"cpu": cpu.to_string(), "memory": "64Gi", "pods": "110", "ephemeral-storage": "20Gi"},
        "offerings": offerings})
}

/// A reserved offering of one reservation.
pub fn reserved(zone: &str, price: f64, id: &str, count: u32) -> Value {
    json!({"capacityType": "reserved", "zone": zone, "price": price,
        "reservation": {"id": id, "type": "default", "interruptible": false, "count": count}})
}

/// `m.large` for 0.1 and the cheaper `c.large`, doubled twice; spot at 30 % of that.
pub fn usual_types() -> Vec<Value> {
    [("m.large", 2, 0.1), ("m.xlarge", 4, 0.2), ("m.2xlarge", 8, 0.4), ("c.large", 2, 0.08)]
        .into_iter()
        .map(|(name, cpu, price)| {
            sells(name, cpu, &[("o", "a", price), ("o", "b", price), ("s", "a", price * 0.3)])
        })
        .collect()
}

/// Only `m.large`: nothing cheaper can take its place.
pub fn one_type() -> Vec<Value> {
    vec![sells("m.large", 2, &[("o", "a", 0.1)])]
}

fn patched(mut value: Value, patch: &Value) -> Value {
    apply_merge_patch(&mut value, patch);
    value
}

/// A pool of on-demand nodes without a quiet time, with unlimited disruption.
pub fn pool(name: &str, patch: Value) -> Value {
    patched(
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]},
                "template": {"spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]}}}}),
        &patch,
    )
}

/// A pool whose template has these requirements.
pub fn pool_of(name: &str, requirements: Value) -> Value {
    pool(name, json!({"spec": {"template": {"spec": {"requirements": requirements}}}}))
}

/// A pool with these fields of `spec.disruption`.
pub fn pool_that(name: &str, disruption: Value) -> Value {
    pool(name, json!({"spec": {"disruption": disruption}}))
}

/// Any capacity type.
pub fn any_capacity() -> Value {
    json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand", "reserved"]}])
}

/// The class `default`.
pub fn class(patch: Value) -> Value {
    patched(
        json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
            "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "r",
                "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"tags": {"a": "b"}}]}}),
        &patch,
    )
}

/// A Node and its NodeClaim, `claim-NAME`.
#[derive(Clone)]
pub struct Nodes(pub Vec<Value>);

/// An initialized, Ready, consolidatable on-demand node of zone `a` in pool `p`.
pub fn node(name: &str, instance_type: &str) -> Nodes {
    let cpu = match instance_type.rsplit('.').next() {
        Some("xlarge") => 4,
        Some("2xlarge") => 8,
        _ => 2,
    };
    sized(name, instance_type, cpu)
}

/// The same with so many CPUs.
pub fn sized(name: &str, instance_type: &str, cpu: u32) -> Nodes {
    let family = instance_type.split('.').next().unwrap_or_default();
    let labels = json!({"karpenter.sh/nodepool": "p", "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/zone": "a", "karpenter.sh/capacity-type": "on-demand",
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "karpenter.k8s.aws/instance-family": family, "karpenter.k8s.aws/instance-cpu": cpu.to_string()});
    let of_node = patched(
        labels.clone(),
        &json!({"kubernetes.io/hostname": name, "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}),
    );
    let id = format!("aws:///a/i-{name}");
    let size = json!({"cpu": cpu.to_string(), "memory": "64Gi", "pods": "110", "ephemeral-storage": "20Gi"});
    let conditions: Vec<Value> = ["Launched", "Registered", "Initialized", "Consolidatable"]
        .into_iter()
        .map(
            |it| json!({"type": it, "status": "True", "reason": it, "lastTransitionTime": CREATED}),
        )
        .collect();
    Nodes(vec![
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": format!("node-{name}"), "labels": of_node, "creationTimestamp": CREATED},
            "spec": {"providerID": id},
            "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]}}),
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": format!("claim-{name}"), "uid": format!("claim-{name}"), "labels": labels,
                "creationTimestamp": CREATED},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "expireAfter": "720h"},
            "status": {"providerID": id, "nodeName": name, "capacity": size, "allocatable": size,
                "conditions": conditions}}),
    ])
}

impl Nodes {
    pub fn node(mut self, patch: Value) -> Self {
        apply_merge_patch(&mut self.0[0], &patch);
        self
    }

    pub fn claim(mut self, patch: Value) -> Self {
        apply_merge_patch(&mut self.0[1], &patch);
        self
    }

    pub fn label(self, key: &str, value: Value) -> Self {
        let patch = json!({"metadata": {"labels": {key: value}}});
        self.node(patch.clone()).claim(patch)
    }

    pub fn of(self, pool: &str) -> Self {
        self.label("karpenter.sh/nodepool", json!(pool))
    }

    pub fn bought_as(self, capacity_type: &str) -> Self {
        self.label("karpenter.sh/capacity-type", json!(capacity_type))
    }

    fn conditions(&mut self) -> &mut Vec<Value> {
        self.0[1]["status"]["conditions"].as_array_mut().expect("a list")
    }

    fn condition(mut self, type_: &str, reason: &str, since: &str) -> Self {
        self.conditions().retain(|it| it["type"] != type_);
        self.conditions().push(
            json!({"type": type_, "status": "True", "reason": reason, "lastTransitionTime": since}),
        );
        self
    }

    pub fn with_condition(self, type_: &str) -> Self {
        self.condition(type_, type_, CREATED)
    }

    pub fn drifted(self, since: &str) -> Self {
        self.condition("Drifted", "AMIDrift", since)
    }

    /// Not quiet for long enough.
    pub fn busy(mut self) -> Self {
        self.conditions().retain(|it| it["type"] != "Consolidatable");
        self
    }

    pub fn uninitialized(self) -> Self {
        self.node(json!({"metadata": {"labels": {"karpenter.sh/initialized": null}}}))
    }

    pub fn not_ready(self) -> Self {
        self.node(json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}))
    }

    pub fn deleting(self) -> Self {
        self.claim(json!({"metadata": {"deletionTimestamp": "2026-03-02T11:00:00Z",
            "finalizers": ["karpenter.sh/termination"]}}))
    }

    pub fn grace(self, period: &str) -> Self {
        self.claim(json!({"spec": {"terminationGracePeriod": period}}))
    }

    /// With a pod of a ReplicaSet named after the node, which asks for so much CPU.
    pub fn pod(self, cpu: &str) -> Self {
        let name = format!("{}-{}", self.name(), self.0.len() - 2);
        self.holding(&name, cpu, json!({}))
    }

    pub fn pods(self, n: usize, cpu: &str) -> Self {
        (0..n).fold(self, |it, _| it.pod(cpu))
    }

    /// With a pod, changed by `patch`.
    pub fn holding(mut self, pod: &str, cpu: &str, patch: Value) -> Self {
        let bound = json!({"spec": {"nodeName": self.name()},
            "status": {"phase": "Running", "startTime": CREATED, "conditions": null}});
        self.0.push(patched(patched(waiting(pod, cpu, json!({})), &bound), &patch));
        self
    }

    fn name(&self) -> String {
        self.0[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    }
}

/// A pod that kube-scheduler found no place for.
pub fn waiting(name: &str, cpu: &str, patch: Value) -> Value {
    patched(
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": format!("pod-{name}"), "labels": {"app": name},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "o"}]},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}),
        &patch,
    )
}

/// Owner of another kind than a ReplicaSet.
pub fn owned_by(kind: &str) -> Value {
    let version = if kind == "Node" { "v1" } else { "apps/v1" };
    json!({"metadata": {"ownerReferences": [{"apiVersion": version, "kind": kind, "name": "o", "uid": "o"}]}})
}

pub fn annotated(key: &str, value: &str) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}

/// A budget for pods with the label `app`, which allows so many disruptions.
pub fn pdb(name: &str, app: &str, allowed: u32, spec: Value) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": patched(json!({"selector": {"matchLabels": {"app": app}}}), &spec),
        "status": {"disruptionsAllowed": allowed}})
}

/// What `--cluster` is made of.
pub trait Objects {
    fn put(self, into: &mut Vec<Value>);
}

impl Objects for Value {
    fn put(self, into: &mut Vec<Value>) {
        into.push(self);
    }
}

impl Objects for Nodes {
    fn put(self, into: &mut Vec<Value>) {
        into.extend(self.0);
    }
}

impl<T: Objects> Objects for Vec<T> {
    fn put(self, into: &mut Vec<Value>) {
        self.into_iter().for_each(|it| it.put(into));
    }
}

/// A list of objects of all these kinds.
macro_rules! cluster {
    ($($it:expr),* $(,)?) => {{
        let mut all: Vec<serde_json::Value> = Vec::new();
        $($crate::builders::Objects::put($it, &mut all);)*
        all
    }};
}
pub(crate) use cluster;

/// Runs the command and returns what it printed.
///
/// `name` keeps the files of tests apart.
pub fn run(
    name: &str,
    format: Format,
    command: &[&str],
    types: &[Value],
    objects: &[Value],
) -> (Result<ExitStatus, Failure>, String) {
    let folder = format!("disruption/{name}");
    let write = |name: &str, value: Value| file(&folder, name, value.to_string());
    let cluster =
        write("cluster.json", json!({"apiVersion": "v1", "kind": "List", "items": objects}));
    let catalog = write("catalog.json", json!({"instanceTypes": types}));
    let mut line = command.to_vec();
    line.extend(["--cluster", &cluster, "--catalog", &catalog]);
    if !command.contains(&"--now") {
        line.extend(["--now", NOW]);
    }
    let Ran { status, output, .. } = common::run(format, &line);
    (status, output)
}

/// The answer of `plan --disruption`.
pub fn plan(name: &str, args: &[&str], types: &[Value], objects: &[Value]) -> Value {
    let command: Vec<&str> = ["plan", "--disruption"].iter().chain(args).copied().collect();
    let (status, text) = run(name, Format::Json, &command, types, objects);
    assert_eq!(status, Ok(ExitStatus::Answered), "{name}");
    serde_json::from_str(&text).expect("JSON")
}

/// One line per command, `METHOD nodes -> pool[types](capacity types)$price saves x`, then `node: why` per node left.
pub fn lines(answer: &Value) -> Vec<String> {
    let join = |list: &Value| {
        let texts: Vec<&str> =
            list.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        texts.join(" ")
    };
    let mut lines = Vec::new();
    for it in answer["commands"].as_array().expect("commands") {
        let mut line =
            format!("{} {}", it["method"].as_str().expect("a method"), join(&it["candidates"]));
        for new in it["replacements"].as_array().expect("replacements") {
            line.push_str(&format!(
                " -> {}[{}]({})${}",
                new["nodePool"].as_str().expect("a pool"),
                join(&new["instanceTypes"]),
                join(&new["capacityTypes"]),
                new["pricePerHour"]
            ));
        }
        lines.push(format!("{line} saves {}", it["savingPerHour"]));
    }
    for it in answer["notConsidered"].as_array().expect("notConsidered") {
        let text = |key: &str| it[key].as_str().expect("text").to_owned();
        lines.push(format!("{}: {}", text("node"), text("why")));
    }
    lines
}

/// The lines for a cluster with the class, and the usual types.
pub fn usual(name: &str, objects: Vec<Value>) -> Vec<String> {
    outcome(name, &[], &usual_types(), objects)
}

/// The lines for a cluster with the class.
pub fn outcome(name: &str, args: &[&str], types: &[Value], mut objects: Vec<Value>) -> Vec<String> {
    objects.push(class(json!({})));
    lines(&plan(name, args, types, &objects))
}
