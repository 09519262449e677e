//! Speed of the reproducible mix (`spec` scheduling 25), of many running pods, and of EC2-like catalogues.
//!
//! `cargo bench -p spokeshave-scheduling` prints the time of one solve and of its set-up; pods per second follow.
//! Peak memory is printed by the example `mix` (`cargo run --release --example mix`).

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use common::{Draws, benchmark_pool, catalogue_f, diverse, input, options, preference};
use divan::Bencher;
use serde_json::json;
use spokeshave_model::{core::Pod, settings::PreferencePolicy};
use spokeshave_scheduling::{Batch, Change, ClusterView, Object, Planner, ReservedMode};

fn main() {
    divan::main();
}

const SIZES: [usize; 9] = [1, 50, 100, 500, 1000, 2000, 5000, 10000, 20000];

fn batch(pods: Vec<Pod>) -> Batch {
    Batch { reserved: ReservedMode::Fallback, ..common::batch(pods) }
}

/// The solve alone.
#[divan::bench(args = SIZES, sample_count = 10, sample_size = 1)]
fn solve(bencher: Bencher, n: usize) {
    let (view, options) = (ClusterView::default(), options());
    let pools = [input(benchmark_pool(), &catalogue_f(400))];
    let batch = batch(diverse(n, &mut Draws::new(common::DRAWS)));
    let planner = Planner::new(&view, &pools, &options, common::now());
    bencher.counter(divan::counter::ItemsCount::new(n)).bench_local(|| {
        // A fresh planner each time: nothing that an earlier solve worked out helps.
        let mut planner = planner.clone();
        let began = std::time::Instant::now();
        let prepared = planner.prepare(&batch);
        let set_up = began.elapsed();
        let solution = prepared.finish(&|| true);
        assert!(solution.unschedulable.is_empty());
        divan::black_box((solution, set_up))
    });
}

/// Everything: filtering the catalogue, registering the pods, solving.
#[divan::bench(args = SIZES, sample_count = 10, sample_size = 1)]
fn with_setup(bencher: Bencher, n: usize) {
    let (view, options) = (ClusterView::default(), options());
    let pools = [input(benchmark_pool(), &catalogue_f(400))];
    let batch = batch(diverse(n, &mut Draws::new(common::DRAWS)));
    bencher.counter(divan::counter::ItemsCount::new(n)).bench_local(|| {
        let solution = Planner::new(&view, &pools, &options, common::now()).solve(&batch, &|| true);
        divan::black_box(solution)
    });
}

/// Twice as many instance types, half of them too small for most pods.
#[divan::bench(args = [2000, 20000], sample_count = 5, sample_size = 1)]
fn with_800_types(bencher: Bencher, n: usize) {
    let (view, options) = (ClusterView::default(), options());
    let pools = [input(benchmark_pool(), &catalogue_f(800))];
    let batch = batch(diverse(n, &mut Draws::new(common::DRAWS)));
    bencher.counter(divan::counter::ItemsCount::new(n)).bench_local(|| {
        let solution = Planner::new(&view, &pools, &options, common::now()).solve(&batch, &|| true);
        divan::black_box(solution)
    });
}

/// 100 applications, each spread evenly over hosts.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn hosts_10000(bencher: Bencher) {
    let (view, options) = (ClusterView::default(), options());
    let pools = [input(benchmark_pool(), &catalogue_f(400))];
    let pods = (0..100).flat_map(|app| {
        let app = format!("app-{app}");
        let constraint = common::spread(&app, spokeshave_model::labels::HOSTNAME, json!({}));
        common::replicas(&app, 0, 100, &[("cpu", "500m")], &common::spreads(vec![constraint]))
    });
    let batch = batch(pods.collect());
    bencher.counter(divan::counter::ItemsCount::new(10_000_usize)).bench_local(|| {
        let solution = Planner::new(&view, &pools, &options, common::now()).solve(&batch, &|| true);
        divan::black_box(solution)
    });
}

/// 1,000 nodes, and 5,000 pods of 100 applications that want one pod per zone, five of each application to a zone of its own.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn zonal_anti_affinity_5000_against_1000_nodes(bencher: Bencher) {
    let (view, options) = (ClusterView::new(nodes(1000, 0)), options());
    let pools = [input(benchmark_pool(), &catalogue_f(400))];
    let pods = (0..5000).map(|at| {
        let app = format!("app-{}", at / 50);
        let term = json!({"topologyKey": spokeshave_model::labels::ZONE, "labelSelector": {"matchLabels": {"app": app}}});
        let fields = json!({"metadata": {"labels": {"app": app}}, "spec": {"affinity": {"podAntiAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}});
        common::pod(&format!("{app}-{at:04}"), &[("cpu", "500m")], fields)
    });
    let batch = batch(pods.collect());
    bencher.counter(divan::counter::ItemsCount::new(5000_usize)).bench_local(|| {
        let solution = Planner::new(&view, &pools, &options, common::now()).solve(&batch, &|| true);
        divan::black_box(solution)
    });
}

/// Nodes of 16 cpu, evenly over three zones, with so many pods each.
fn nodes(n: usize, n_pods: usize) -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    for at in 0..n {
        let name = format!("node-{at:05}");
        let room = json!({"cpu": "16", "memory": "64Gi", "pods": "110"});
        let node = common::node(
            &name,
            json!({"metadata": {"labels": {
            spokeshave_model::labels::ZONE: format!("test-zone-{}", at % 3 + 1),
            spokeshave_model::labels::ARCH: "amd64", spokeshave_model::labels::OS: "linux"}},
            "status": {"capacity": room, "allocatable": room}}),
        );
        objects.push(Arc::new(node).into());
        objects.extend((0..n_pods).map(|p| Object::from(Arc::new(bound(&name, p, at)))));
    }
    objects
}

fn bound(node: &str, p: usize, at: usize) -> Pod {
    let app = format!("app-{}", (at * 20 + p) % 200);
    let fields = json!({"metadata": {"labels": {"app": app}}, "spec": {"nodeName": node}, "status": {"phase": "Running"}});
    common::pod(&format!("{node}-{p}"), &[("cpu", "700m"), ("memory", "1Gi")], fields)
}

/// 2,000 pods against 5,000 nodes with 100,000 running pods: the view is there already, and 100 pods have changed since.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn after_100_changes_of_100000_pods(bencher: Bencher) {
    let (mut view, options) = (ClusterView::new(nodes(5000, 20)), options());
    let pools = [input(benchmark_pool(), &catalogue_f(400))];
    let batch = batch(diverse(2000, &mut Draws::new(common::DRAWS)));
    let mut turn = 0;
    bencher.counter(divan::counter::ItemsCount::new(2000_usize)).bench_local(|| {
        turn += 1;
        for at in 0..100 {
            let node = format!("node-{:05}", (turn * 131 + at * 37) % 5000);
            let mut pod = bound(&node, at % 20, at);
            pod.metadata.labels.insert("turn".into(), format!("{turn}"));
            view.apply(Change::Put(Arc::new(pod).into()));
        }
        let solution = Planner::new(&view, &pools, &options, common::now()).solve(&batch, &|| true);
        divan::black_box(solution)
    });
}

#[divan::bench(args = [PreferencePolicy::Respect, PreferencePolicy::Ignore], sample_count = 5, sample_size = 1)]
fn preference_4000(bencher: Bencher, policy: PreferencePolicy) {
    let view = ClusterView::default();
    let mut options = options();
    options.preference_policy = policy;
    let pools = [input(benchmark_pool(), &catalogue_f(400))];
    let batch = batch(preference(4000));
    bencher.counter(divan::counter::ItemsCount::new(4000_usize)).bench_local(|| {
        let solution = Planner::new(&view, &pools, &options, common::now()).solve(&batch, &|| true);
        divan::black_box(solution)
    });
}
