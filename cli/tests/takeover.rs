//! A cluster as Karpenter leaves it: what it made shows no drift, and what really changed does.

mod common;

use serde_json::{Value, json};
use spokeshave::{ExitStatus, Format};

use crate::common::run;

fn answer(args: &[&str]) -> Value {
    let ran = run(Format::Json, args);
    assert_eq!(ran.status, Ok(ExitStatus::Answered));
    serde_json::from_str(&ran.output).expect("JSON")
}

fn file(name: &str, objects: &[&Value]) -> String {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    common::file("takeover", &format!("{name}.json"), list.to_string())
}

const THEN: &str = "2025-01-01T00:00:00Z";

fn ready() -> Value {
    json!([{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "observedGeneration": 1, "lastTransitionTime": THEN}])
}

fn class() -> Value {
    let absent = |key: &str| json!({"key": key, "operator": "DoesNotExist"});
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "default", "uid": "class", "generation": 1,
            "finalizers": ["karpenter.k8s.aws/termination"], "annotations": {}},
        "spec": {
            "role": "KarpenterNodeRole-demo",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
            "tags": {"team": "a"},
        },
        "status": {
            "amis": [{"id": "ami-1", "name": "al2023", "requirements": [
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                absent("karpenter.k8s.aws/instance-gpu-count"),
                absent("karpenter.k8s.aws/instance-accelerator-count"),
            ]}],
            "subnets": [{"id": "subnet-1", "zone": "us-east-1a", "zoneID": "use1-az1"}],
            "securityGroups": [{"id": "sg-1", "name": "nodes"}],
            "conditions": ready(),
        },
    })
}

const CLASS_REF: [(&str, &str); 3] =
    [("group", "karpenter.k8s.aws"), ("kind", "EC2NodeClass"), ("name", "default")];

fn class_ref() -> Value {
    CLASS_REF.into_iter().map(|(key, value)| (key.to_owned(), Value::from(value))).collect()
}

fn on_demand() -> Value {
    json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}])
}

fn pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "general", "uid": "pool", "generation": 1, "annotations": {}},
        "spec": {
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "Never"},
            "template": {
                "metadata": {"labels": {"team": "a"}},
                "spec": {"expireAfter": "720h", "nodeClassRef": class_ref(),
                    "requirements": on_demand()},
            },
        },
        "status": {"conditions": ready()},
    })
}

/// A claim of a week ago, as registration left it, and its node with one pod.
fn nodes(hashes: &Value) -> [Value; 3] {
    let labels = json!({
        "karpenter.sh/nodepool": "general", "karpenter.k8s.aws/ec2nodeclass": "default",
        "team": "a", "karpenter.sh/capacity-type": "on-demand",
        "node.kubernetes.io/instance-type": "m5.large",
        "topology.kubernetes.io/zone": "us-east-1a",
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
    });
    let mut on_node = labels.clone();
    on_node["karpenter.sh/registered"] = "true".into();
    on_node["karpenter.sh/initialized"] = "true".into();
    on_node["kubernetes.io/hostname"] = "node-a".into();
    let capacity = json!({"cpu": "2", "memory": "7577Mi", "pods": "29"});
    let conditions: Vec<Value> = ["Launched", "Registered", "Initialized", "Ready"]
        .iter()
        .map(|it| json!({"type": it, "status": "True", "reason": it, "lastTransitionTime": THEN}))
        .collect();
    let id = "aws:///us-east-1a/i-0123456789abcdef0";
    [
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "general-abcde", "uid": "claim", "creationTimestamp": THEN,
                "finalizers": ["karpenter.sh/termination"], "labels": labels, "annotations": hashes},
            "spec": {"expireAfter": "720h", "nodeClassRef": class_ref(), "requirements": on_demand()},
            "status": {"imageID": "ami-1", "nodeName": "node-a", "providerID": id,
                "capacity": capacity, "allocatable": capacity, "conditions": conditions},
        }),
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node-a", "uid": "node", "labels": on_node,
                "finalizers": ["karpenter.sh/termination"]},
            "spec": {"providerID": id},
            "status": {"capacity": capacity, "allocatable": capacity,
                "conditions": [{"type": "Ready", "status": "True"}]},
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "default", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r",
                    "controller": true}]},
            "spec": {"nodeName": "node-a", "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running"},
        }),
    ]
}

#[test] // aws-nodeclass 17, case 11; 18, cases 1 to 3: a take-over from Karpenter
fn what_karpenter_made_shows_no_drift() {
    let (mut class, mut pool) = (class(), pool());
    let rows = answer(&["hash", "--ca", "QUJD", &file("hashes", &[&class, &pool])]);
    let hash = |n: usize| rows[n]["hash"].as_str().expect("a hash").to_owned();
    assert_eq!((&rows[0]["version"], &rows[1]["version"]), (&json!("v6"), &json!("v3")));
    let (of_class, of_pool) = (hash(0), hash(1));
    let class_hash = |hash: &str, version: &str| {
        [
            ("karpenter.k8s.aws/ec2nodeclass-hash".to_owned(), Value::from(hash)),
            ("karpenter.k8s.aws/ec2nodeclass-hash-version".to_owned(), Value::from(version)),
        ]
    };
    let pool_hash = |hash: &str, version: &str| {
        [
            ("karpenter.sh/nodepool-hash".to_owned(), Value::from(hash)),
            ("karpenter.sh/nodepool-hash-version".to_owned(), Value::from(version)),
        ]
    };
    class["metadata"]["annotations"] = class_hash(&of_class, "v6").into_iter().collect();
    pool["metadata"]["annotations"] = pool_hash(&of_pool, "v3").into_iter().collect();

    let methods = |on_class: (&str, &str), on_pool: (&str, &str), image: &str| {
        let annotations =
            class_hash(on_class.0, on_class.1).into_iter().chain(pool_hash(on_pool.0, on_pool.1));
        let [mut claim, node, pod] = nodes(&annotations.collect());
        claim["status"]["imageID"] = image.into();
        let cluster = file("cluster", &[&class, &pool, &claim, &node, &pod]);
        let plan = answer(&[
            "plan",
            "--cluster",
            &cluster,
            "--disruption",
            "--now",
            "2025-01-08T00:00:00Z",
        ]);
        let commands = plan["commands"].as_array().expect("a list").clone();
        commands
            .iter()
            .map(|it| it["method"].as_str().expect("text").to_owned())
            .collect::<Vec<_>>()
    };
    let (ours, theirs) = ((of_class.as_str(), "v6"), (of_pool.as_str(), "v3"));
    let none: [&str; 0] = [];
    assert_eq!(methods(ours, theirs, "ami-1"), none, "made by Karpenter");
    assert_eq!(methods(("1", "v5"), theirs, "ami-1"), none, "an older formula says nothing");
    assert_eq!(methods(ours, ("1", "v2"), "ami-1"), none, "an older formula of the pool");
    assert_eq!(methods(("1", "v6"), theirs, "ami-1"), ["Drift"], "the class has changed");
    assert_eq!(methods(ours, ("1", "v3"), "ami-1"), ["Drift"], "the pool has changed");
    assert_eq!(methods(ours, theirs, "ami-0"), ["Drift"], "another image");
}
