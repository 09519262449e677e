//! One pass over 5,000 nodes and 100,000 pods.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_disruption::{
    Method, Scheduler, SettledCell, View, candidates::Survey, memory::Memory, methods::NoLimit,
    pass,
};
use spokeshave_model::{
    CapacityType, InstanceType, Kind, NodeClaim, NodePool, ObjectKey, Offering, Quantity,
    Requirement, Resources, Settings,
    core::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    labels,
    meta::{apply_merge_patch, from_value},
};
use spokeshave_scheduling::{Change, ClusterView, Object, Options, PoolInput};

const NODES: usize = 5_000;
const PODS_PER_NODE: usize = 20;
/// What a pod of a full node asks for.
const FULL: &str = "790m";

fn main() {
    divan::main();
}

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_default()
}

fn instance_types() -> Arc<[Arc<InstanceType>]> {
    (0..400u32)
        .map(|n| {
            let cpu = 2 << (n % 6);
            let name = format!("f{}.{cpu}", n / 6);
            let price = f64::from(cpu) * (0.04 + 0.0001 * f64::from(n));
            let offerings = ["a", "b", "c"]
                .into_iter()
                .flat_map(|zone| {
                    [(CapacityType::Spot, 0.4), (CapacityType::OnDemand, 1.0)].map(|(it, part)| {
                        Offering {
                            capacity_type: it,
                            zone: zone.into(),
                            price: Some(price * part),
                            available: true,
                            ..Offering::default()
                        }
                    })
                })
                .collect();
            Arc::new(InstanceType {
                requirements: [
                    Requirement::equals(labels::INSTANCE_TYPE, &name),
                    Requirement::equals(labels::ARCH, "amd64"),
                    Requirement::equals(labels::OS, "linux"),
                    Requirement::new(labels::ZONE, spokeshave_model::Operator::In, ["a", "b", "c"]),
                    Requirement::new(
                        labels::CAPACITY_TYPE,
                        spokeshave_model::Operator::In,
                        ["spot", "on-demand"],
                    ),
                ]
                .into_iter()
                .collect(),
                capacity: Resources::new()
                    .with("cpu", quantity(&cpu.to_string()))
                    .with("memory", quantity(&format!("{}Gi", cpu * 4)))
                    .with("pods", quantity("110")),
                name,
                offerings,
                ..InstanceType::default()
            })
        })
        .collect()
}

/// Nodes of 16 cpu whose pods leave `free` thousandths of a cpu each.
fn cluster(pod_cpu: &str, policy: &str) -> (ClusterView, Vec<PoolInput>) {
    cluster_of(pod_cpu, policy, &json!({}))
}

/// The same with these fields in every pod's spec. Full nodes are the cheapest that there are: the pool buys no spot.
fn cluster_of(pod_cpu: &str, policy: &str, spec: &Value) -> (ClusterView, Vec<PoolInput>) {
    let capacity_types: &[&str] =
        if pod_cpu == FULL { &["on-demand"] } else { &["spot", "on-demand"] };
    let bought =
        json!([{"key": labels::CAPACITY_TYPE, "operator": "In", "values": capacity_types}]);
    let nodepool: NodePool = from_value(json!({"metadata": {"name": "p", "uid": "p"}, "spec": {
        "template": {"spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": bought}},
        "disruption": {"consolidateAfter": "0s", "consolidationPolicy": policy, "budgets": [{"nodes": "100%"}]}}}))
    .unwrap_or_default();
    let nodepool = Arc::new(nodepool);
    let mut objects = vec![Object::from(Arc::clone(&nodepool))];
    for n in 0..NODES {
        let name = format!("n{n:05}");
        let zone = ["a", "b", "c"][n % 3];
        let labels = json!({labels::NODEPOOL: "p", labels::INSTANCE_TYPE: "f0.16", labels::CAPACITY_TYPE: "on-demand",
            labels::ZONE: zone, labels::REGISTERED: "true", labels::INITIALIZED: "true", labels::HOSTNAME: name,
            labels::ARCH: "amd64", labels::OS: "linux"});
        let id = format!("aws:///{zone}/i-{n:05}");
        let room = json!({"cpu": "16", "memory": "64Gi", "pods": "110"});
        let node: Node = from_value(
            json!({"metadata": {"name": name, "uid": format!("n{n}"), "labels": labels},
            "spec": {"providerID": id}, "status": {"capacity": room, "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True"}]}}),
        )
        .unwrap_or_default();
        let claim: NodeClaim = from_value(json!({"metadata": {"name": format!("c{n:05}"), "uid": format!("c{n}"), "labels": labels},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
            "status": {"providerID": id, "conditions": [
                {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-03-01T00:00:00Z"},
                {"type": "Consolidatable", "status": "True", "lastTransitionTime": "2026-03-01T00:00:00Z"}]}}))
        .unwrap_or_default();
        objects.push(Object::from(Arc::new(node)));
        objects.push(Object::from(Arc::new(claim)));
        for p in 0..PODS_PER_NODE {
            let app = format!("app{}", (n * PODS_PER_NODE + p) % 200);
            let mut pod = json!({"metadata": {"name": format!("p{n}-{p}"), "namespace": "ns", "uid": format!("p{n}-{p}"),
                "labels": {"app": app}, "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}]},
                "spec": {"nodeName": name, "containers": [{"name": "c", "resources": {"requests": {"cpu": pod_cpu, "memory": "1Gi"}}}]},
                "status": {"phase": "Running"}});
            apply_merge_patch(&mut pod, &json!({"spec": spec}));
            if spec.get("volumes").is_some() {
                let claim = format!("v{n}-{p}");
                let volume: PersistentVolume = from_value(json!({"metadata": {"name": claim}, "spec": {"csi": {"driver": "ebs.csi.aws.com"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions":
                        [{"key": labels::ZONE, "operator": "In", "values": [zone]}]}]}}}})).unwrap_or_default();
                let bound: PersistentVolumeClaim = from_value(json!({"metadata": {"name": claim, "namespace": "ns",
                    "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": claim}})).unwrap_or_default();
                objects.push(Object::from(Arc::new(volume)));
                objects.push(Object::from(Arc::new(bound)));
                pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = json!(claim);
            }
            objects.push(Object::from(Arc::new(from_value::<Pod>(pod).unwrap_or_default())));
        }
    }
    let pools =
        vec![PoolInput { nodepool, hash: "1".into(), instance_types: Ok(instance_types()) }];
    (ClusterView::new(objects), pools)
}

fn now() -> Timestamp {
    "2026-03-04T10:00:00Z".parse().unwrap_or_default()
}

fn pass_over(cluster: &ClusterView, pools: &[PoolInput]) -> usize {
    let settings = Settings::default();
    let options = Options::from_settings(&settings);
    let view = View::new(cluster, pools, &settings, now());
    let survey = Survey::new(&view);
    let settled = SettledCell::new();
    let mut scheduler =
        Scheduler::new(&view, cluster, pools, &options, Vec::new(), &|| true).settling(&settled);
    let outcome = pass::run(
        &survey,
        Method::Emptiness,
        &Memory::default(),
        &|_| None,
        &mut scheduler,
        &mut NoLimit,
    );
    outcome.commands.iter().map(|it| it.candidates.len()).sum()
}

/// The pod of this name as it is, under another name.
fn renamed(cluster: &ClusterView, from: &str, to: &str) -> Object {
    let old = cluster.pod(&ObjectKey::namespaced("ns", from));
    let mut new = old.map(|it| Pod::clone(it)).unwrap_or_default();
    new.metadata.name = to.into();
    new.metadata.uid = to.into();
    Object::from(Arc::new(new))
}

/// Half of every node is free: 101 nodes go at once.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn many_can_go(bencher: divan::Bencher<'_, '_>) {
    let (cluster, pools) = cluster("400m", "WhenEmptyOrUnderutilized");
    bencher.bench_local(|| pass_over(&cluster, &pools));
}

/// Every node is full and cheap: all are looked at, none can go.
#[divan::bench(sample_count = 1, sample_size = 1)]
fn none_can_go(bencher: divan::Bencher<'_, '_>) {
    let (cluster, pools) = cluster(FULL, "WhenEmptyOrUnderutilized");
    bencher.bench_local(|| assert_eq!(pass_over(&cluster, &pools), 0));
}

/// The same, and every pod has one more thing that it wants.
#[divan::bench(args = MIXES, sample_count = 1, sample_size = 1)]
fn none_can_go_mixed(bencher: divan::Bencher<'_, '_>, mix: &str) {
    let (cluster, pools) = cluster_of(FULL, "WhenEmptyOrUnderutilized", &wish(mix));
    bencher.bench_local(|| assert_eq!(pass_over(&cluster, &pools), 0));
}

/// There is room everywhere, and every pod has one more thing that it wants: nodes go until no more can.
#[divan::bench(args = MIXES, sample_count = 1, sample_size = 1)]
fn many_can_go_mixed(bencher: divan::Bencher<'_, '_>, mix: &str) {
    let (cluster, pools) = cluster_of("400m", "WhenEmptyOrUnderutilized", &wish(mix));
    bencher.bench_local(|| pass_over(&cluster, &pools));
}

const MIXES: [&str; 9] = [
    "zones",
    "hosts",
    "hosts, hard",
    "zones and hosts",
    "apart by host",
    "apart by host, hard",
    "together by zone",
    "volumes",
    "ports",
];

/// What every pod of a mix wants. Each of 200 applications has 500 pods, so that no host is without the constraint's pods
/// where all pods of a namespace count.
fn wish(mix: &str) -> Value {
    let spread = |key: &str, when: &str| json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": {}, "matchLabelKeys": ["app"]});
    // Every host has twenty pods of the namespace: it takes no more.
    let crowded = json!({"maxSkew": 20, "topologyKey": labels::HOSTNAME, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {}});
    let term = |key: &str| json!({"topologyKey": key, "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}});
    match mix {
        "zones" => {
            json!({"topologySpreadConstraints": [spread(labels::ZONE, "ScheduleAnyway")]})
        }
        "hosts" => {
            json!({"topologySpreadConstraints": [spread(labels::HOSTNAME, "ScheduleAnyway")]})
        }
        "hosts, hard" => json!({"topologySpreadConstraints": [crowded]}),
        "zones and hosts" => json!({"topologySpreadConstraints":
            [spread(labels::ZONE, "ScheduleAnyway"), spread(labels::HOSTNAME, "ScheduleAnyway")]}),
        "apart by host" => {
            json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 1, "podAffinityTerm": term(labels::HOSTNAME)}]}}})
        }
        "apart by host, hard" => {
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(labels::HOSTNAME)]}}})
        }
        "together by zone" => {
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(labels::ZONE)]}}})
        }
        "volumes" => {
            json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "CLAIM"}}]})
        }
        "ports" => {
            json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 8080}]}]})
        }
        _ => json!({}),
    }
}

/// Every node is full, and 2,000 pods wait: for nodes of their own, for what is left on nodes, or for nothing that there is.
#[divan::bench(args = ["new nodes", "nodes", "nowhere"], sample_count = 1, sample_size = 1)]
fn none_can_go_while_pods_wait(bencher: divan::Bencher<'_, '_>, where_to: &str) {
    let (mut cluster, pools) = cluster(FULL, "WhenEmptyOrUnderutilized");
    let (cpu, selector) = match where_to {
        "new nodes" => ("1500m", json!({})),
        "nodes" => ("100m", json!({})),
        _ => ("100m", json!({"example.com/none": "x"})),
    };
    for n in 0..2_000 {
        let pod = json!({"metadata": {"name": format!("w{n}"), "namespace": "ns", "uid": format!("w{n}"),
                "labels": {"app": format!("wait{}", n % 50)}},
            "spec": {"nodeSelector": selector,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]},
            "status": {"phase": "Pending", "conditions":
                [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
        let pod: Pod = from_value(pod).unwrap_or_default();
        cluster.apply(Change::Put(Object::from(Arc::new(pod))));
    }
    bencher.bench_local(|| assert_eq!(pass_over(&cluster, &pools), 0));
}

/// The next pass after one that found nothing: on a hundred nodes a pod has gone and another has come meanwhile.
#[divan::bench(sample_count = 1, sample_size = 1)]
fn none_can_go_after_100_changes(bencher: divan::Bencher<'_, '_>) {
    let (mut cluster, pools) = cluster(FULL, "WhenEmptyOrUnderutilized");
    bencher.bench_local(|| {
        for n in (0..NODES).step_by(NODES / 100) {
            let was = format!("p{n}-0");
            let new = renamed(&cluster, &was, &format!("p{n}-new"));
            cluster.apply(Change::Delete(Pod::KIND, ObjectKey::namespaced("ns", &was)));
            cluster.apply(Change::Put(new));
        }
        assert_eq!(pass_over(&cluster, &pools), 0);
    });
}

/// Nothing may be consolidated: the survey alone.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn nothing_to_consider(bencher: divan::Bencher<'_, '_>) {
    let (cluster, pools) = cluster("400m", "WhenEmpty");
    bencher.bench_local(|| pass_over(&cluster, &pools));
}
