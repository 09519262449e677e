//! While another autoscaler is at work in the cluster, no function writes anything.

use std::{collections::BTreeMap, path::PathBuf};

use jiff::SignedDuration;
use serde_json::{Value, json};
use spokeshave::{
    input,
    local::{Options, Scenario, scenario::START},
};
use spokeshave_model::{EC2NodeClass, NodeClaim, NodePool, Settings, meta::to_value};
use spokeshave_ports::stack;
use spokeshave_sim::World;

/// Calls that change nothing in the account.
const READS: [&str; 4] = ["Describe", "Get", "List", "Query"];

fn world(observes: bool) -> World {
    let path =
        |name: &str| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/local").join(name);
    let start = input::load(&[path("lifecycle/start.yaml")]).unwrap_or_default();
    let scenario = Scenario {
        settings: Settings {
            cluster_name: "spokeshave".into(),
            region: "us-east-1".into(),
            interruption_queue: "spokeshave".into(),
            ..Settings::default()
        },
        types: Some(input::load_catalog(&path("catalog.json")).unwrap_or_default()),
        manifests: start.into_iter().map(|it| it.value).collect(),
        events: Vec::new(),
        script: Vec::new(),
    };
    let mut world = scenario.start(&Options { seed: 1, ..Options::default() }).expect("it starts");
    if observes {
        world.seed_state(stack::observe_only_key(), json!({"other": "Karpenter"}));
    }
    world
}

/// Our objects as the API server has them, by reference.
fn ours(world: &World) -> BTreeMap<String, Value> {
    world.read(|it| {
        let pools =
            it.store.list::<NodePool>().map(|it| (it.metadata.name.clone(), to_value(&*it)));
        let classes =
            it.store.list::<EC2NodeClass>().map(|it| (it.metadata.name.clone(), to_value(&*it)));
        let claims =
            it.store.list::<NodeClaim>().map(|it| (it.metadata.name.clone(), to_value(&*it)));
        let named =
            |kind: &'static str| move |(name, it): (String, Value)| (format!("{kind}/{name}"), it);
        pools
            .map(named("NodePool"))
            .chain(classes.map(named("EC2NodeClass")))
            .chain(claims.map(named("NodeClaim")))
            .collect()
    })
}

fn writes(world: &World) -> Vec<&'static str> {
    let is_read = |call: &str| READS.iter().any(|it| call.starts_with(it));
    // Messages and records of the stack's own are no writes to the cluster or the account.
    let own = |call: &str| matches!(call, "SendMessage" | "PutEvents" | "PutItem" | "DeleteItem");
    world.read(|it| it.calls.keys().copied().filter(|it| !is_read(it) && !own(it)).collect())
}

#[test] // architecture: only one autoscaler
fn nothing_is_written_beside_another_autoscaler() {
    let start = START.parse::<jiff::Timestamp>().expect("a time");
    for observes in [false, true] {
        let mut world = world(observes);
        let before = ours(&world);
        world.run(start + SignedDuration::from_mins(40), false, &mut |_| {});
        assert_eq!(ours(&world) == before, observes);
        assert_eq!(writes(&world).is_empty(), observes, "{:?}", writes(&world));
    }
}
