//! One solve of the reproducible mix, with times and peak memory: `mix [PODS]`, and `mix cluster` for 2,000 pods against
//! 5,000 nodes with 100,000 running pods after 100 changes.

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::{sync::Arc, time::Instant};

use common::{Draws, benchmark_pool, catalogue_f, diverse, input, options};
use serde_json::json;
use spokeshave_model::labels;
use spokeshave_scheduling::{Batch, Change, ClusterView, Object, Planner, ReservedMode};

/// Peak resident memory in MiB, where the system tells.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|it| it.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0) / 1024
}

#[allow(clippy::print_stdout)]
fn main() {
    let argument = std::env::args().nth(1).unwrap_or_else(|| "20000".into());
    let options = options();
    let pools = [input(benchmark_pool(), &catalogue_f(400))];
    let (view, n) = match argument.parse::<usize>() {
        Ok(n) => (ClusterView::default(), n),
        Err(_) => {
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
            (view, 2000)
        }
    };
    let pods = diverse(n, &mut Draws::new(common::DRAWS));
    let batch = Batch { reserved: ReservedMode::Fallback, ..common::batch(pods) };
    println!("{n} pods in memory: peak {} MiB", peak());
    let began = Instant::now();
    let mut planner = Planner::new(&view, &pools, &options, common::now());
    let made = began.elapsed();
    let began = Instant::now();
    let prepared = planner.prepare(&batch);
    let set_up = began.elapsed();
    let began = Instant::now();
    let solution = prepared.finish(&|| true);
    let solved = began.elapsed();
    let on_nodes: usize = solution.existing.iter().map(|it| it.pods.len()).sum();
    println!(
        "planner {made:?}, set-up {set_up:?}, solve {solved:?}: {:.0} pods/s in the solve, {:.0} in all; {} claims, \
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

fn large_cluster() -> ClusterView {
    let mut view = ClusterView::default();
    for at in 0..5000 {
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
    for at in 0..100_000 {
        let app = at % 500;
        view.apply(Change::Put(running(&format!("web-{app}-pod-{at}"), app, at / 20)));
    }
    view
}
