//! Memory only makes things fast: histories in which every run of a function begins with nothing in memory are the very
//! same as those in which the solvers keep their view of the cluster.
//!
//! `SPOKESHAVE_COLD_SEEDS` is how many histories are run.

use std::path::PathBuf;

use jiff::SignedDuration;
use serde_json::Value;
use spokeshave::{
    input,
    local::{Options, Scenario},
};
use spokeshave_model::Settings;
use spokeshave_sim::{Fault, world::Input};

const FEW: u64 = 4;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/local").join(name)
}

fn objects(name: &str) -> Vec<Value> {
    let manifests = input::load(&[path(name)]).unwrap_or_else(|_| panic!("{name} cannot be read"));
    manifests.into_iter().map(|it| it.value).collect()
}

fn scenario() -> Scenario {
    let at = |minutes: i64, name: &str| {
        (SignedDuration::from_mins(minutes), Input::Apply(objects(name)))
    };
    let types = input::load_catalog(&path("catalog.json")).unwrap_or_else(|_| panic!("no catalog"));
    Scenario {
        settings: Settings {
            cluster_name: "spokeshave".into(),
            region: "us-east-1".into(),
            interruption_queue: "spokeshave".into(),
            ..Settings::default()
        },
        types: Some(types),
        manifests: objects("lifecycle/start.yaml"),
        events: Vec::new(),
        script: vec![at(8, "lifecycle/fewer.yaml"), at(14, "lifecycle/drift.yaml")],
    }
}

fn history(seed: u64, cold: bool) -> Value {
    // A read that lags behind shows somebody who follows nothing older than what he knows; a new one it may.
    let faults = Fault::ALL.iter().copied().filter(|it| *it != Fault::StaleRead).collect();
    let options = Options { seed, faults, until: None, cold };
    let (summary, _) = scenario().run(&options, &mut |_| {}).expect("it runs");
    serde_json::to_value(summary).expect("plain data")
}

#[test] // scheduling 18.6
fn a_history_without_memory_is_the_same() {
    let seeds = std::env::var("SPOKESHAVE_COLD_SEEDS").ok().and_then(|it| it.parse().ok());
    for seed in 1..=seeds.unwrap_or(FEW) {
        let (warm, cold) = (history(seed, false), history(seed, true));
        let lines = |it: &Value| it["timeline"].as_array().cloned().unwrap_or_default();
        for (at, (warm, cold)) in lines(&warm).iter().zip(&lines(&cold)).enumerate() {
            assert_eq!(warm, cold, "seed {seed}, line {at}");
        }
        assert_eq!(warm, cold, "seed {seed}");
    }
}
