//! The function killed at every port call, and its messages late, twice and in any order: no command is lost, none is
//! carried out by halves, and none makes a second set of replacements.
#![allow(clippy::needless_pass_by_value)] // Builders take literals.

#[path = "../../lifecycle/tests/support/mod.rs"]
mod support;

use std::{collections::BTreeMap, ops::RangeInclusive};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_disruption_function::{
    handle,
    record::{Stage as Step, read_all},
};
use spokeshave_model::{
    EC2NodeClass, Kind, NodeClaim, NodePool,
    core::{Node, Pod},
    labels,
    meta::from_value,
};
use spokeshave_ports::{Concern, Record, StateKey, Work, fake::block_on};
use support::{Delivery, Kill, Stage, at};

/// Nodes that would go together: `n` for one that is too big for its pod, `empty` for those without pods.
#[derive(Clone, Copy, Debug)]
enum Scene {
    /// One node, to be replaced by a smaller one.
    Replace,
    /// The same; its first replacement is given up.
    ReplaceInVain,
    /// Two empty nodes.
    Delete,
}

fn scene(kind: Scene) -> Stage {
    let mut stage = Stage::new("10:00:00");
    stage.settings.cluster_name = "c".into();
    stage.add::<NodePool>(json!({"metadata": {"name": "p", "uid": "uid-p", "generation": 1}, "spec": {
        "template": {"spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [{"key": labels::CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}]}},
        "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}}}));
    stage.add::<EC2NodeClass>(
        json!({"metadata": {"name": "default", "uid": "uid-class"}, "spec": {
        "amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "r",
        "subnetSelectorTerms": [], "securityGroupSelectorTerms": []}}),
    );
    let types: Vec<Value> = [("m5.large", 2, 0.096), ("m5.4xlarge", 16, 0.768)]
        .into_iter()
        .map(|(name, cpu, price)| {
            json!({"name": name, "labels": {labels::ARCH: ["amd64"], labels::OS: ["linux"]},
                "capacity": {"cpu": cpu.to_string(), "memory": format!("{}Gi", 4 * cpu), "pods": "50", "ephemeral-storage": "20Gi"},
                "offerings": [{"capacityType": "on-demand", "zone": "us-east-1a", "price": price}]})
        })
        .collect();
    let fixed = Record { version: 1, data: json!({"instanceTypes": types}), expires_at: None };
    stage.fake.records.borrow_mut().insert(StateKey::new("catalog", "fixed"), fixed);
    match kind {
        Scene::Replace | Scene::ReplaceInVain => {
            add_node(&stage, "n");
            stage.add::<Pod>(json!({"metadata": {"name": "web", "namespace": "ns", "uid": "uid-web",
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "o"}]},
                "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
                "status": {"phase": "Running"}}));
        }
        Scene::Delete => {
            add_node(&stage, "n");
            add_node(&stage, "m");
        }
    }
    stage.message(Concern::Disruption, "Schedule", &[]);
    stage
}

fn add_node(stage: &Stage, name: &str) {
    let labels = json!({
        labels::NODEPOOL: "p", labels::INSTANCE_TYPE: "m5.4xlarge", labels::CAPACITY_TYPE: "on-demand",
        labels::ZONE: "us-east-1a", labels::REGISTERED: "true", labels::INITIALIZED: "true",
        labels::HOSTNAME: name, labels::ARCH: "amd64", labels::OS: "linux"});
    let id = format!("aws:///us-east-1a/i-{name}");
    let resources =
        json!({"cpu": "16", "memory": "64Gi", "pods": "50", "ephemeral-storage": "20Gi"});
    stage.add::<Node>(
        json!({"metadata": {"name": name, "uid": format!("uid-node-{name}"), "labels": labels},
        "spec": {"providerID": id},
        "status": {"capacity": resources, "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": type_, "message": "",
            "lastTransitionTime": "2024-03-01T09:00:00Z", "observedGeneration": 1})
    };
    stage.add::<NodeClaim>(json!({"metadata": {"name": format!("claim-{name}"), "uid": format!("uid-claim-{name}"),
            "creationTimestamp": "2024-03-01T08:00:00Z", "labels": labels, "generation": 1,
            "finalizers": [labels::TERMINATION_FINALIZER]},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
        "status": {"providerID": id, "nodeName": name, "capacity": resources, "allocatable": resources,
            "conditions": [condition("Launched"), condition("Registered"), condition("Initialized"),
                condition("Consolidatable"), condition("Ready")]}}));
}

/// The claims that commands have made.
fn replacements(stage: &Stage) -> Vec<NodeClaim> {
    let objects = stage.fake.objects.borrow();
    let claims = objects.iter().filter(|(name, _)| name.starts_with("NodeClaim/p-"));
    claims.map(|(_, value)| from_value(value.clone()).expect("a claim")).collect()
}

/// Replacements that were seen a while ago have come up by now; the first is lost if it is to be.
fn grow(stage: &Stage, seen: &mut BTreeMap<String, Timestamp>, in_vain: bool) -> bool {
    let mut lost = false;
    for mut claim in replacements(stage) {
        let since = *seen.entry(claim.name().to_owned()).or_insert(stage.now());
        let is_young = stage.now().duration_since(since) < SignedDuration::from_secs(2);
        if is_young || claim.is_true(NodeClaim::INITIALIZED) || claim.metadata.deleting() {
            continue;
        }
        if in_vain && seen.len() == 1 {
            stage.fake.objects.borrow_mut().remove(&claim.reference());
            lost = true;
            continue;
        }
        claim.status.provider_id = format!("aws:///us-east-1a/i-{}", claim.name()).as_str().into();
        for type_ in NodeClaim::DEPENDENTS {
            claim.conditions_mut().set_true(type_, stage.now());
        }
        stage.fake.add(&claim);
        let id = claim.status.provider_id.clone();
        stage.add::<Node>(json!({"metadata": {"name": format!("node-{}", claim.name()), "uid": format!("uid-{}", claim.name()),
                "labels": {labels::NODEPOOL: "p", labels::REGISTERED: "true", labels::INITIALIZED: "true"}},
            "spec": {"providerID": id}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    }
    lost
}

/// Plays a scene. Returns how many port calls there had been when a replacement was lost, and when all was done.
fn play(stage: &Stage, in_vain: bool, delivery: Delivery, until: Timestamp) -> (usize, usize) {
    stage.delivery.set(delivery);
    let mut seen = BTreeMap::new();
    let (mut lost_at, mut done_at) = (0, 0);
    let mut schedule = stage.now() + SignedDuration::from_mins(1);
    loop {
        while let Some((concern, works)) = stage.receive() {
            if concern != Concern::Disruption {
                continue;
            }
            deliver(stage, &works);
            let claim: NodeClaim = stage.get("claim-n").expect("there");
            if claim.metadata.deleting() && done_at == 0 {
                done_at = stage.calls.get();
            }
        }
        let next = stage.next(until).map_or(schedule, |it| it.min(schedule));
        if next > until {
            stage.advance(until);
            return (lost_at, done_at);
        }
        stage.advance(next);
        if grow(stage, &mut seen, in_vain) {
            lost_at = stage.calls.get();
        }
        if next == schedule {
            stage.message(Concern::Disruption, "Schedule", &[]);
            schedule += SignedDuration::from_mins(1);
        }
    }
}

fn deliver(stage: &Stage, works: &[Work]) {
    stage.deliver(Concern::Disruption, works, |batch, cx| async move {
        handle(batch, stage, stage, stage, &stage.fake, cx).await
    });
}

/// What is left: commands under way, candidates on their way out, candidates with a mark, and live replacements.
fn outcome(stage: &Stage, kind: Scene) -> (usize, usize, usize, usize) {
    let commands = block_on(read_all(&stage.fake)).expect("readable");
    let running = commands.iter().filter(|(it, _)| it.stage != Step::Done).count();
    let names: &[&str] = if matches!(kind, Scene::Delete) { &["m", "n"] } else { &["n"] };
    let (mut going, mut marked) = (0, 0);
    for name in names {
        let claim: NodeClaim = stage.get(&format!("claim-{name}")).expect("its instance is there");
        let node: Node = stage.get(name).expect("there");
        let is_tainted = node.spec.taints.iter().any(|it| it.key == labels::DISRUPTED_TAINT);
        let has_reason = claim.condition(NodeClaim::DISRUPTION_REASON).is_some();
        assert_eq!(is_tainted, has_reason, "{name}: half marked");
        going += usize::from(claim.metadata.deleting());
        marked += usize::from(is_tainted);
    }
    let live = replacements(stage).iter().filter(|it| !it.metadata.deleting()).count();
    (running, going, marked, live)
}

/// Runs a scene, undisturbed or killed once, and looks at what has become of it.
fn run(kind: Scene, kill: Kill, delivery: Delivery) -> Stage {
    let stage = scene(kind);
    stage.kill.set(kill);
    play(&stage, matches!(kind, Scene::ReplaceInVain), delivery, at("10:01:50"));
    stage
}

/// The port calls of an undisturbed run from the loss of a replacement, or the beginning, until all is done.
fn calls_of(kind: Scene, delivery: Delivery) -> RangeInclusive<usize> {
    let stage = scene(kind);
    let (lost_at, done_at) =
        play(&stage, matches!(kind, Scene::ReplaceInVain), delivery, at("10:01:50"));
    assert!(done_at > lost_at + 40, "{kind:?}: from {lost_at} to {done_at}");
    lost_at..=done_at
}

fn created(stage: &Stage) -> usize {
    let calls = stage.fake.calls.borrow();
    calls.iter().filter(|it| it.starts_with("create NodeClaim/")).count()
}

/// The order of a replacement is never turned round: nothing is deleted before what takes its place is there.
fn assert_order(stage: &Stage, what: &str) {
    let calls = stage.fake.calls.borrow();
    let first = |verb: &str| calls.iter().position(|it| it.starts_with(verb));
    let deleted = first("delete NodeClaim/claim-n").expect("deleted");
    assert!(first("patch Node/n").is_some_and(|it| it < deleted), "{what}: {calls:?}");
    assert!(first("create NodeClaim/p-").is_some_and(|it| it < deleted), "{what}: {calls:?}");
}

#[test] // lifecycle 25; 36.1, cases 3 and 6
fn a_replacement_may_be_killed_after_any_call() {
    for call in calls_of(Scene::Replace, Delivery::InOrder) {
        let stage = run(Scene::Replace, Kill::After(call), Delivery::InOrder);
        let what = format!("killed after {call}");
        assert_eq!(outcome(&stage, Scene::Replace), (0, 1, 1, 1), "{what}");
        assert_eq!(created(&stage), 1, "{what}: one replacement, ever");
        assert_order(&stage, &what);
    }
}

#[test] // lifecycle 25.2, step 5; 36.1, case 3
fn a_roll_back_may_be_killed_after_any_call() {
    for call in calls_of(Scene::ReplaceInVain, Delivery::InOrder).take(70) {
        let stage = run(Scene::ReplaceInVain, Kill::After(call), Delivery::InOrder);
        let what = format!("killed after {call}");
        assert_eq!(outcome(&stage, Scene::ReplaceInVain), (0, 1, 1, 1), "{what}");
        assert_eq!(created(&stage), 2, "{what}: the second try");
        assert_order(&stage, &what);
    }
}

#[test] // lifecycle 24.1 and 25
fn a_deletion_may_be_killed_after_any_call() {
    for call in calls_of(Scene::Delete, Delivery::InOrder) {
        let stage = run(Scene::Delete, Kill::After(call), Delivery::InOrder);
        assert_eq!(outcome(&stage, Scene::Delete), (0, 2, 2, 0), "killed after {call}");
    }
}

#[test] // twice, and out of order, and killed besides
fn messages_come_twice_and_in_any_order() {
    for delivery in [Delivery::Twice, Delivery::Backwards] {
        for call in calls_of(Scene::Replace, delivery).step_by(7) {
            let stage = run(Scene::Replace, Kill::After(call), delivery);
            let what = format!("{delivery:?}, killed after {call}");
            assert_eq!(outcome(&stage, Scene::Replace), (0, 1, 1, 1), "{what}");
            assert_eq!(created(&stage), 1, "{what}");
            assert_order(&stage, &what);
            let stage = run(Scene::Delete, Kill::After(call), delivery);
            assert_eq!(outcome(&stage, Scene::Delete), (0, 2, 2, 0), "{what}");
        }
    }
}
