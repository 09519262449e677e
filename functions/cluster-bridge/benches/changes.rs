//! Changes per second that the bridge takes in. The bar is 500 pod changes a second on half a vCPU; kubelets' heartbeats of
//! 5,000 nodes come on top.
//!
//! `cargo bench -p spokeshave-cluster-bridge-function --no-default-features`

use std::sync::Arc;

use divan::{Bencher, counter::ItemsCount};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use spokeshave_cluster_bridge_function::{Bridge, Change};
use spokeshave_model::{
    Settings,
    core::{Node, Pod},
    meta::from_value,
};

const PODS: usize = 100_000;
const NODES: usize = 5_000;

fn main() {
    divan::main();
}

fn at(millis: usize) -> Timestamp {
    let start: Timestamp = "2026-03-02T08:00:00Z".parse().expect("a time");
    start + SignedDuration::from_millis(i64::try_from(millis).expect("small"))
}

fn pod(n: usize, phase: &str) -> Change {
    let pod: Pod = from_value(json!({
        "metadata": {"name": format!("web-{n}"), "namespace": "shop", "uid": format!("pod-{n}"),
            "resourceVersion": n.to_string(), "labels": {"app": "web"}},
        "spec": {"nodeName": format!("ip-{}", n % NODES), "containers": [{"name": "a"}]},
        "status": {"phase": phase}}))
    .expect("a pod");
    Change::of::<Pod>(None, Some(Arc::new(pod))).expect("watched")
}

#[divan::bench(sample_count = 5)]
fn pods_come_and_end(bencher: Bencher) {
    let changes: Vec<Change> = (0..PODS / 2)
        .map(|n| pod(n, "Running"))
        .chain((0..PODS / 2).map(|n| pod(n, "Succeeded")))
        .collect();
    bencher.counter(ItemsCount::new(changes.len())).bench(|| {
        let mut bridge = Bridge::new(&Settings::default());
        let mut keys = 0;
        for (n, change) in changes.iter().enumerate() {
            // 500 a second, looked at whenever something is ready.
            bridge.observe(change, at(n * 2));
            if n % 500 == 0 {
                keys += bridge.take(at(n * 2)).iter().map(|it| it.work.keys.len()).sum::<usize>();
            }
        }
        keys
    });
}

#[divan::bench(sample_count = 5)]
fn heartbeats(bencher: Bencher) {
    let node = |n: usize, version: usize| {
        let labels: serde_json::Map<String, serde_json::Value> =
            (0..40).map(|it| (format!("label-{it}"), json!("value"))).collect();
        let node: Node = from_value(json!({
            "metadata": {"name": format!("ip-{n}"), "uid": format!("node-{n}"),
                "resourceVersion": version.to_string(), "labels": labels},
            "spec": {"providerID": format!("aws:///us-west-2a/i-{n}")},
            "status": {"conditions": [{"type": "Ready", "status": "True"}],
                "capacity": {"cpu": "4", "memory": "16Gi", "pods": "58"}}}))
        .expect("a node");
        Arc::new(node)
    };
    let changes: Vec<Change> =
        (0..NODES).map(|n| Change::Node { old: Some(node(n, 1)), new: Some(node(n, 2)) }).collect();
    bencher.counter(ItemsCount::new(changes.len())).bench(|| {
        let mut bridge = Bridge::new(&Settings::default());
        for change in &changes {
            bridge.observe(change, at(0));
        }
        assert!(bridge.take(Timestamp::MAX).is_empty(), "a heartbeat is no news");
    });
}
