//! One solve with times and peak memory: `mix [PODS [TYPES]]` is the reproducible mix, `mix cluster` plans 2,000 of its pods
//! against 5,000 nodes with 100,000 running pods after 100 changes, `mix hosts` spreads 10,000 pods over hosts, and
//! `mix zones` keeps 5,000 pods of 50 applications apart by zone, beside 1,000 nodes.

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use common::{Draws, benchmark_pool, catalogue_f, diverse, input, options};
use serde_json::json;
use spokeshave_model::{core::Pod, labels};
use spokeshave_scheduling::{Batch, Change, ClusterView, Object, Planner, ReservedMode};

/// Peak resident memory in MiB, where the system tells.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|it| it.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Time that this thread has had a processor, where the system tells; else the time of the clock. A busy machine does not
/// change it.
fn cpu(since: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|it| it.parse().ok());
    nanos.map_or_else(|| since.elapsed(), Duration::from_nanos)
}

#[allow(clippy::print_stdout)]
fn main() {
    let start = Instant::now();
    let argument = std::env::args().nth(1).unwrap_or_else(|| "20000".into());
    let options = options();
    let n_types = std::env::args().nth(2).and_then(|it| it.parse().ok()).unwrap_or(400);
    let pools = [input(benchmark_pool(), &catalogue_f(n_types))];
    let mix = |n: usize| diverse(n, &mut Draws::new(common::DRAWS));
    let (view, pods) = match (argument.parse::<usize>(), argument.as_str()) {
        (Ok(n), _) => (ClusterView::default(), mix(n)),
        (_, "hosts") => (ClusterView::default(), spread_over_hosts(10_000)),
        (_, "zones") => (nodes(1000), apart_by_zone(5000)),
        _ => {
            let began = Instant::now();
            let mut view = large_cluster();
            println!(
                "view of 5,000 nodes and 100,000 pods: {:?}, peak {} MiB",
                began.elapsed(),
                peak()
            );
            let began = Instant::now();
            for at in 0..100 {
                let name = format!("web-{}-pod-{at}", at % 500);
                view.apply(Change::Put(running(&name, at % 500, at)));
            }
            println!("100 changes: {:?}", began.elapsed());
            (view, mix(2000))
        }
    };
    let n = pods.len();
    let batch = Batch { reserved: ReservedMode::Fallback, ..common::batch(pods) };
    println!("{n} pods in memory: peak {} MiB", peak());
    let began = cpu(start);
    let mut planner = Planner::new(&view, &pools, &options, common::now());
    let made = cpu(start) - began;
    let began = cpu(start);
    let prepared = planner.prepare(&batch);
    let set_up = cpu(start) - began;
    let began = cpu(start);
    let solution = prepared.finish(&|| true);
    let solved = cpu(start) - began;
    let on_nodes: usize = solution.existing.iter().map(|it| it.pods.len()).sum();
    println!(
        "of the processor: planner {made:?}, set-up {set_up:?}, solve {solved:?}: {:.0} pods/s in the solve, {:.0} in all; {} claims, \
         {on_nodes} pods on existing nodes, {} left over; peak {} MiB",
        n as f64 / solved.as_secs_f64(),
        n as f64 / (made + set_up + solved).as_secs_f64(),
        solution.new_claims.len(),
        solution.unschedulable.len(),
        peak()
    );
}

fn running(name: &str, app: usize, node: usize) -> Object {
    let fields = json!({"metadata": {"namespace": "default", "labels": {"app": format!("web-{app}"),
            "pod-template-hash": format!("{app:08x}"), "my-label": "a"}},
        "spec": {"nodeName": format!("node-{node:05}")}, "status": {"phase": "Running"}});
    Arc::new(common::pod(name, &[("cpu", "100m"), ("memory", "128Mi")], fields)).into()
}

/// Replicas of 100 applications, each spread evenly over hosts.
fn spread_over_hosts(n: usize) -> Vec<Pod> {
    (0..n)
        .map(|at| {
            let app = format!("app-{}", at % 100);
            let fields = json!({"metadata": {"labels": {"app": app}}, "spec": {"topologySpreadConstraints":
                [{"maxSkew": 1, "topologyKey": labels::HOSTNAME, "whenUnsatisfiable": "DoNotSchedule",
                  "labelSelector": {"matchLabels": {"app": app}}}]}});
            common::pod(&format!("pod-{at}"), &[("cpu", "500m"), ("memory", "256Mi")], fields)
        })
        .collect()
}

/// Replicas of 50 applications, each with a zone to itself that it asks for.
fn apart_by_zone(n: usize) -> Vec<Pod> {
    (0..n)
        .map(|at| {
            let app = format!("app-{}", at % 50);
            let fields = json!({"metadata": {"labels": {"app": app}}, "spec": {
                "nodeSelector": {labels::ZONE: common::ZONES[at % 3]},
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    [{"topologyKey": labels::ZONE, "labelSelector": {"matchLabels": {"app": app}}}]}}}});
            common::pod(&format!("pod-{at}"), &[("cpu", "500m"), ("memory", "256Mi")], fields)
        })
        .collect()
}

fn large_cluster() -> ClusterView {
    let mut view = nodes(5000);
    for at in 0..100_000 {
        let app = at % 500;
        view.apply(Change::Put(running(&format!("web-{app}-pod-{at}"), app, at / 20)));
    }
    view
}

fn nodes(n: usize) -> ClusterView {
    let mut view = ClusterView::default();
    for at in 0..n {
        let name = format!("node-{at:05}");
        let zone = common::ZONES[at % 3];
        let node = common::node(
            &name,
            json!({"metadata": {"labels": {labels::ZONE: zone, labels::INITIALIZED: "true",
                labels::ARCH: "amd64", labels::OS: "linux", labels::NODEPOOL: "default",
                labels::INSTANCE_TYPE: "fake-it-3", labels::CAPACITY_TYPE: "spot"}},
            "status": {"allocatable": {"cpu": "2100m", "memory": "8Gi", "pods": "40"},
                       "capacity": {"cpu": "4", "memory": "8Gi", "pods": "40"}}}),
        );
        view.apply(Change::Put(Arc::new(node).into()));
    }
    view
}
