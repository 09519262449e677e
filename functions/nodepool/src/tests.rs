// Objects read best with their fields in place.
#![allow(clippy::needless_pass_by_value)]

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_lambda::SqsRecord;
use spokeshave_model::{ConditionStatus, Settings, conditions};
use spokeshave_ports::{
    Concern,
    fake::{Fake, block_on},
};

use super::*;

const HASH: &str = "6821555240594823858";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_261_600 + seconds).expect("in range")
}

fn pool(change: Value) -> Value {
    let mut pool = json!({
        "metadata": {"name": "p", "uid": "pool", "generation": 1, "resourceVersion": "1",
                     "creationTimestamp": "2026-01-01T10:00:00Z"},
        "spec": {"template": {"spec": {"requirements": [], "expireAfter": "720h",
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}}});
    spokeshave_model::meta::apply_merge_patch(&mut pool, &change);
    pool
}

fn class(ready: &str, reason: &str, message: &str) -> Value {
    json!({"metadata": {"name": "default", "uid": "class", "generation": 1}, "status": {"conditions": [
        {"type": "Ready", "status": ready, "reason": reason, "message": message,
         "lastTransitionTime": "2026-01-01T10:00:00Z"}]}})
}

fn claim(name: &str, change: Value) -> Value {
    let mut claim = json!({
        "metadata": {"name": name, "uid": name, "labels": {"karpenter.sh/nodepool": "p"}},
        "spec": {"requirements": [], "nodeClassRef":
            {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
        "status": {"providerID": format!("aws:///us-west-2a/i-{name}"),
                   "capacity": {"cpu": "4", "memory": "16Gi"}}});
    spokeshave_model::meta::apply_merge_patch(&mut claim, &change);
    claim
}

fn world(change: Value) -> Fake {
    let world = Fake::at(at(0));
    world.add_json::<NodePool>(pool(change));
    world.add_json::<EC2NodeClass>(class("True", "Ready", ""));
    world
}

fn run(world: &Fake, keys: Value) -> BatchAnswer {
    run_with(world, keys, &Settings::default())
}

fn run_with(world: &Fake, keys: Value, settings: &Settings) -> BatchAnswer {
    let body = json!({"reason": "test", "keys": keys}).to_string();
    let record = SqsRecord { message_id: "m".into(), body, ..SqsRecord::default() };
    let now = world.now.get();
    let cx =
        Invocation { concern: Concern::Nodepool, now, deadline: now, settings, journal: world };
    block_on(handle(&SqsBatch { records: vec![record] }, world, world, &cx))
}

fn read(world: &Fake) -> NodePool {
    world.object("p").expect("still there")
}

fn condition(world: &Fake, type_: &str) -> (ConditionStatus, String, String) {
    let pool = read(world);
    let it = conditions::find(&pool.status.conditions, type_).expect(type_);
    (it.status, it.reason.clone(), it.message.clone())
}

fn only_pool() -> Value {
    json!([{"kind": "NodePool", "name": "p"}])
}

#[test] // lifecycle 12.1, case 2; scheduling 19, case 5
fn a_new_pool_becomes_ready() {
    let world = world(json!({}));
    assert_eq!(run(&world, only_pool()), BatchAnswer::done());
    let pool = read(&world);
    assert_eq!(pool.metadata.annotation(labels::NODEPOOL_HASH), Some(HASH));
    assert_eq!(pool.metadata.annotation(labels::NODEPOOL_HASH_VERSION), Some("v3"));
    assert_eq!(
        serde_json::to_value(&pool.status.resources).expect("writes"),
        json!({"cpu": "0", "memory": "0", "pods": "0", "ephemeral-storage": "0", "nodes": "0"})
    );
    assert_eq!((pool.status.nodes, pool.status.node_class_observed_generation), (Some(0), Some(1)));
    assert_eq!(condition(&world, "Ready"), (ConditionStatus::True, "Ready".into(), String::new()));
    let health = condition(&world, NodePool::NODE_REGISTRATION_HEALTHY);
    assert_eq!((health.0, health.1.as_str()), (ConditionStatus::Unknown, "AwaitingReconciliation"));
}

#[test]
fn a_second_run_writes_nothing() {
    let world = world(json!({}));
    run(&world, only_pool());
    world.calls.borrow_mut().clear();
    world.now.set(at(60));
    run(&world, json!([]));
    assert_eq!(world.calls.borrow().as_slice(), &[] as &[String]);
    assert!(world.sent.borrow().is_empty(), "it never wakes itself");
}

#[test] // lifecycle 12.1, case 1
fn counts_what_is_there_to_stay() {
    let world = world(json!({}));
    world.add_json::<NodeClaim>(claim("a", json!({})));
    world.add_json::<NodeClaim>(claim(
        "b",
        json!({"metadata": {"deletionTimestamp": "2026-01-01T10:00:00Z", "finalizers": ["x"]}}),
    ));
    world.add_json::<NodeClaim>(claim("unlaunched", json!({"status": {"providerID": null}})));
    world.add_json::<NodeClaim>(claim(
        "commanded",
        json!({"status": {"conditions": [{"type": "DisruptionReason", "status": "True"}]}}),
    ));
    world.add_json::<Node>(json!({
        "metadata": {"name": "a", "labels": {"karpenter.sh/nodepool": "p"}},
        "spec": {"providerID": "aws:///us-west-2a/i-a"},
        "status": {"capacity": {"cpu": "3900m", "memory": "0", "pods": "58"}}}));
    run(&world, json!([{"kind": "NodeClaim", "name": "a"}]));
    let status = read(&world).status;
    assert_eq!(
        serde_json::to_value(&status.resources).expect("writes"),
        json!({"cpu": "3900m", "memory": "16Gi", "pods": "58", "ephemeral-storage": "0", "nodes": "1"})
    );
    assert_eq!(status.nodes, Some(1));
}

#[test] // lifecycle 12.1, cases 3 to 5; scheduling 19, case 1
fn the_class_decides_readiness() {
    use ConditionStatus::{False, True};
    for (class, expected) in [
        (None, (False, "NodeClassNotFound", "NodeClass not found on cluster")),
        (
            Some(class("Unknown", "x", "y")),
            (False, "NodeClassReadinessUnknown", "Node Class Readiness Unknown"),
        ),
        (
            Some(class("False", "SubnetsNotFound", "no subnets")),
            (False, "SubnetsNotFound", "no subnets"),
        ),
        (Some(class("True", "Ready", "")), (True, "NodeClassReady", "")),
        (
            Some(json!({"metadata": {"name": "default", "finalizers": ["f"],
                        "deletionTimestamp": "2026-01-01T10:00:00Z"}})),
            (False, "NodeClassTerminating", "NodeClass is Terminating"),
        ),
    ] {
        let world = Fake::at(at(0));
        world.add_json::<NodePool>(pool(json!({})));
        if let Some(class) = class {
            world.add_json::<EC2NodeClass>(class);
        }
        run(&world, json!([{"kind": "EC2NodeClass", "name": "default"}]));
        let (status, reason, message) = condition(&world, NodePool::NODE_CLASS_READY);
        assert_eq!((status, reason.as_str(), message.as_str()), expected);
        let ready = condition(&world, "Ready");
        if status == False {
            assert_eq!((ready.0, ready.1.as_str()), (False, "UnhealthyDependents"));
        }
    }
}

#[test] // B-086: our group, but a kind that nobody serves; other groups are none of our business
fn a_class_of_a_kind_that_nobody_serves_is_said() {
    let refers_to = |group: &str, kind: &str| json!({"spec": {"template": {"spec": {"nodeClassRef": {"group": group, "kind": kind}}}}});
    let world = world(refers_to("karpenter.k8s.aws", "ec2nodeclass"));
    assert_eq!(run(&world, only_pool()), BatchAnswer::done());
    assert_eq!(
        condition(&world, NodePool::NODE_CLASS_READY),
        (
            ConditionStatus::False,
            "NodeClassNotFound".into(),
            "karpenter.k8s.aws has no kind \"ec2nodeclass\", its node classes are of kind EC2NodeClass"
                .into()
        )
    );
    assert_eq!(condition(&world, "Ready").0, ConditionStatus::False);
    assert_eq!(read(&world).metadata.annotations, BTreeMap::new());
    world.calls.borrow_mut().clear();
    world.now.set(at(60));
    run(&world, json!([]));
    assert_eq!(world.calls.borrow().as_slice(), &[] as &[String], "told once");

    let foreign = self::world(refers_to("karpenter.kwok.sh", "KWOKNodeClass"));
    run(&foreign, only_pool());
    assert_eq!(read(&foreign).status.conditions, []);
}

#[test] // lifecycle 12.1, case 6; api 17.6
fn claims_move_to_the_hash_version_before_the_pool() {
    let drifted = json!({"metadata": {"annotations": {"karpenter.sh/nodepool-hash": "old"}},
               "status": {"conditions": [{"type": "Drifted", "status": "True"}]}});
    let world = world(json!({}));
    world.add_json::<NodeClaim>(claim("a", json!({})));
    world.add_json::<NodeClaim>(claim("b", drifted));
    world.add_json::<NodeClaim>(claim(
        "c",
        json!({"metadata": {"annotations":
        {"karpenter.sh/nodepool-hash": "X", "karpenter.sh/nodepool-hash-version": "v3"}}}),
    ));
    world.fail("patch NodeClaim/a", "Conflict");
    assert_eq!(run(&world, only_pool()).failures.len(), 1);
    assert_eq!(read(&world).metadata.annotation(labels::NODEPOOL_HASH), None, "not yet");
    world.mend("patch NodeClaim/a");
    assert_eq!(run(&world, only_pool()), BatchAnswer::done());
    for (name, hash) in [("a", HASH), ("b", "old"), ("c", "X")] {
        let claim: NodeClaim = world.object(name).expect("there");
        assert_eq!(claim.metadata.annotation(labels::NODEPOOL_HASH), Some(hash), "{name}");
        assert_eq!(claim.metadata.annotation(labels::NODEPOOL_HASH_VERSION), Some("v3"), "{name}");
    }
    assert_eq!(read(&world).metadata.annotation(labels::NODEPOOL_HASH), Some(HASH));
}

#[test] // api 4, cases 4 and 18; scheduling 19, case 3
fn an_invalid_pool_is_not_ready_and_an_edit_forgets_outcomes() {
    let world = world(json!({}));
    run(&world, only_pool());
    let key = StateKey::new(health::PARTITION, "pool");
    block_on(world.write(&key, json!({"outcomes": []}), None, When::Always)).expect("written");
    world.add_json::<NodePool>({
        let mut edited = serde_json::to_value(read(&world)).expect("writes");
        spokeshave_model::meta::apply_merge_patch(
            &mut edited,
            &json!({"metadata": {"generation": 2}, "spec": {"template": {"metadata": {"labels":
                {"karpenter.k8s.aws/ec2nodeclass": "default"}}}}}),
        );
        edited
    });
    run(&world, only_pool());
    let (status, reason, message) = condition(&world, NodePool::VALIDATION_SUCCEEDED);
    assert_eq!((status, reason.as_str()), (ConditionStatus::False, "NodePoolValidationFailed"));
    assert!(
        message.starts_with(
            "invalid key name \"karpenter.k8s.aws/ec2nodeclass\" in labels, using label"
        )
    );
    assert_eq!(condition(&world, "Ready").0, ConditionStatus::False);
    assert!(world.records.borrow().is_empty());
}

#[test] // api 0, "managed"
fn pools_of_others_are_left_alone() {
    let world = world(json!({"spec": {"template": {"spec": {"nodeClassRef":
        {"group": "eks.amazonaws.com", "kind": "NodeClass"}}}}}));
    run(&world, json!([]));
    assert!(world.calls.borrow().is_empty());
}

#[test]
fn a_conflict_is_delivered_again_and_a_gone_pool_is_nothing_to_do() {
    let troubled = world(json!({}));
    troubled.fail("patch-status NodePool/p", "Conflict");
    assert_eq!(run(&troubled, only_pool()).failures.len(), 1);
    assert_eq!(run(&troubled, json!([])).failures.len(), 1);
    assert_eq!(run(&troubled, json!([{"kind": "NodePool", "name": "q"}])), BatchAnswer::done());
    let refused = world(json!({}));
    refused.fail("patch-status NodePool/p", "Refused");
    assert_eq!(run(&refused, only_pool()), BatchAnswer::done());
    assert!(refused.decisions.borrow().iter().any(|it| it.error));
}

#[test]
fn a_body_that_cannot_be_read_is_dropped_alone() {
    let world = world(json!({}));
    let settings = Settings::default();
    let cx = Invocation {
        concern: Concern::Nodepool,
        now: at(0),
        deadline: at(0),
        settings: &settings,
        journal: &world,
    };
    let record = |id: &str, body: &str| SqsRecord {
        message_id: id.into(),
        body: body.into(),
        ..SqsRecord::default()
    };
    let batch =
        SqsBatch { records: vec![record("bad", "{"), record("good", "{\"reason\":\"x\"}")] };
    assert_eq!(block_on(handle(&batch, &world, &world, &cx)), BatchAnswer::done());
    assert_eq!(condition(&world, "Ready").0, ConditionStatus::True);
}

#[test] // scheduling 24; lifecycle 33
fn limits_are_measured_by_resource_unless_that_is_switched_off() {
    let limits = json!({"spec": {"limits": {"cpu": "1500m", "ephemeral-storage": "2Gi"}}});
    let measured = world(limits.clone());
    run(&measured, only_pool());
    assert_eq!(
        measured.samples("karpenter_nodepools_limit"),
        [
            "karpenter_nodepools_limit{nodepool=p,resource_type=cpu} 1.5",
            "karpenter_nodepools_limit{nodepool=p,resource_type=ephemeral_storage} 2147483648"
        ]
    );
    let silent = world(limits);
    let settings = Settings { disable_cluster_state_observability: true, ..Settings::default() };
    run_with(&silent, only_pool(), &settings);
    assert_eq!(silent.samples("karpenter_nodepools_limit"), Vec::<String>::new());
    assert_eq!(read(&silent), read(&measured), "what is written does not depend on it");
}

/// The pool with a change laid in, as the API server would store an edit.
fn edit(world: &Fake, change: &Value) {
    let mut edited = serde_json::to_value(read(world)).expect("writes");
    spokeshave_model::meta::apply_merge_patch(&mut edited, change);
    world.add_json::<NodePool>(edited);
}

#[test] // api 17.4: what users write into our annotations is overwritten; api 17, case 6; api 11, case 1
fn the_hash_follows_the_template_alone() {
    let forged = json!({"metadata": {"annotations": {"karpenter.sh/nodepool-hash": "x",
        "karpenter.sh/nodepool-hash-version": "v3", "mine": "kept"}}});
    let world = world(forged);
    run(&world, only_pool());
    let hash = || read(&world).metadata.annotation(labels::NODEPOOL_HASH).map(str::to_owned);
    assert_eq!(hash().as_deref(), Some(HASH));
    assert_eq!(read(&world).metadata.annotation("mine"), Some("kept"));
    for (generation, change, same) in [
        (2, json!({"weight": 20}), true),
        (3, json!({"limits": {"cpu": "10"}}), true),
        (4, json!({"disruption": {"consolidateAfter": "5m"}}), true),
        (
            5,
            json!({"template": {"spec": {"requirements": [{"key": "team", "operator": "Exists"}]}}}),
            true,
        ),
        (6, json!({"template": {"spec": {"expireAfter": "43200m"}}}), true),
        (7, json!({"template": {"metadata": {"labels": {"team": "a"}}}}), false),
    ] {
        edit(&world, &json!({"metadata": {"generation": generation}, "spec": change}));
        run(&world, only_pool());
        assert_eq!(hash().as_deref() == Some(HASH), same, "{change}");
    }
}

#[test] // lifecycle 12 and scheduling 19: validation, in the order of api 4.4
fn what_is_wrong_is_said_in_order() {
    let long = "x".repeat(64);
    let world = world(
        json!({"spec": {"template": {"metadata": {"labels": {"kubernetes.io/hostname": "h"}}, "spec": {
        "taints": [{"key": "a", "effect": "NoSchedule"}], "startupTaints": [{"key": "a", "effect": "NoSchedule"}],
        "requirements": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["h"]},
            {"key": "team", "operator": "In", "values": [long]},
            {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["p"]}]}}}}),
    );
    run(&world, only_pool());
    let (status, reason, message) = condition(&world, NodePool::VALIDATION_SUCCEEDED);
    assert_eq!((status, reason.as_str()), (ConditionStatus::False, "NodePoolValidationFailed"));
    let mut from = 0;
    for part in [
        "invalid key name \"kubernetes.io/hostname\" in labels, using label kubernetes.io/hostname is not allowed",
        "; duplicate taint Key/Effect pair a=NoSchedule",
        "; invalid value: using label kubernetes.io/hostname is not allowed",
        "; invalid value: invalid value xxx",
        "; invalid key: \"karpenter.sh/nodepool\" in requirements, restricted",
    ] {
        let at =
            message[from..].find(part).unwrap_or_else(|| panic!("{part} after {from}: {message}"));
        from += at + part.len();
    }
    let ready = condition(&world, "Ready");
    assert_eq!(
        (ready.0, ready.1.as_str(), ready.2.as_str()),
        (ConditionStatus::False, "UnhealthyDependents", "ValidationSucceeded=False")
    );
    // Another run says the same and writes nothing.
    world.calls.borrow_mut().clear();
    run(&world, only_pool());
    assert!(world.calls.borrow().is_empty());
}

#[test] // scheduling 19, case 4
fn a_requirement_on_the_hostname_is_refused() {
    let world = world(json!({"spec": {"template": {"spec": {"requirements":
        [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["h"]}]}}}}));
    run(&world, only_pool());
    assert_eq!(condition(&world, NodePool::VALIDATION_SUCCEEDED).0, ConditionStatus::False);
    assert_eq!(condition(&world, "Ready").0, ConditionStatus::False);
}

#[test] // lifecycle 6.3, case 7; api 4.5: unknown after an edit of pool or class, and with the condition missing; otherwise it stays
fn registration_health_is_reset_by_edits_alone() {
    let health = |world: &Fake| condition(world, NodePool::NODE_REGISTRATION_HEALTHY);
    let said = || {
        let world = world(json!({}));
        run(&world, only_pool());
        let mut pool = read(&world);
        pool.conditions_mut().set(
            NodePool::NODE_REGISTRATION_HEALTHY,
            ConditionStatus::False,
            "RegistrationFailed",
            "Failed to register node",
            at(10),
        );
        world.add_json::<NodePool>(serde_json::to_value(&pool).expect("writes"));
        let key = StateKey::new(health::PARTITION, "pool");
        block_on(world.write(&key, json!({"outcomes": []}), None, When::Always)).expect("written");
        world
    };
    // Nothing was edited: the condition and the outcomes stay, and Ready does not mind.
    let world = said();
    run(&world, only_pool());
    assert_eq!(health(&world).1, "RegistrationFailed");
    assert_eq!(condition(&world, "Ready").0, ConditionStatus::True);
    assert_eq!(world.records.borrow().len(), 1);
    // The class was edited.
    let world = said();
    let mut class = class("True", "Ready", "");
    class["metadata"]["generation"] = json!(2);
    world.add_json::<EC2NodeClass>(class);
    run(&world, json!([{"kind": "EC2NodeClass", "name": "default"}]));
    let (status, reason, message) = health(&world);
    assert_eq!(
        (status, reason.as_str(), message.as_str()),
        (ConditionStatus::Unknown, "AwaitingReconciliation", "object is awaiting reconciliation")
    );
    assert_eq!(read(&world).status.node_class_observed_generation, Some(2));
    assert!(world.records.borrow().is_empty());
    // The pool was edited.
    let world = said();
    let mut edited = serde_json::to_value(read(&world)).expect("writes");
    edited["metadata"]["generation"] = json!(5);
    world.add_json::<NodePool>(edited);
    run(&world, only_pool());
    assert_eq!(health(&world).0, ConditionStatus::Unknown);
    assert!(world.records.borrow().is_empty());
    // The pool was edited while its class is missing: nothing is reset before the class is there.
    let world = Fake::at(at(0));
    world.add_json::<NodePool>(pool(json!({})));
    run(&world, only_pool());
    let pool = read(&world);
    assert_eq!(pool.status.node_class_observed_generation, None);
    let type_ = NodePool::NODE_REGISTRATION_HEALTHY;
    assert_eq!(conditions::find(&pool.status.conditions, type_), None);
}

#[test] // lifecycle 12: capacities of nodes that are not initialized, of nodes that are, and of claims without one
fn capacities_by_how_far_nodes_are() {
    let node = |name: &str, initialized: &str, capacity: Value| {
        json!({"metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "p", "karpenter.sh/initialized": initialized}},
            "spec": {"providerID": format!("aws:///us-west-2a/i-{name}")}, "status": {"capacity": capacity}})
    };
    let world = world(json!({}));
    for (name, capacity) in [
        ("launched", json!({"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"})),
        ("joined", json!({"cpu": "10", "memory": "10Gi", "example.com/gpu": "2"})),
        ("initialized", json!({"cpu": "100", "memory": "100Gi", "example.com/gpu": "4"})),
    ] {
        world.add_json::<NodeClaim>(claim(name, json!({"status": {"capacity": capacity}})));
    }
    world.add_json::<Node>(node(
        "joined",
        "false",
        json!({"cpu": "20", "example.com/gpu": "0", "pods": "29"}),
    ));
    world.add_json::<Node>(node(
        "initialized",
        "true",
        json!({"cpu": "200", "example.com/gpu": "0", "pods": "58"}),
    ));
    // A node of the pool whose claim is gone counts while it stays, and not when it goes.
    world.add_json::<Node>(node("alone", "true", json!({"cpu": "1000"})));
    let mut going = node("going", "true", json!({"cpu": "10000"}));
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:00:00Z");
    going["metadata"]["finalizers"] = json!(["karpenter.sh/termination"]);
    world.add_json::<Node>(going);
    run(&world, only_pool());
    let status = read(&world).status;
    assert_eq!(
        serde_json::to_value(&status.resources).expect("writes"),
        json!({"cpu": "1221", "memory": "11Gi", "pods": "87", "ephemeral-storage": "0", "example.com/gpu": "3",
            "nodes": "4"})
    );
    assert_eq!(status.nodes, Some(4));
}

#[test] // scheduling 19, case 6
fn a_node_that_goes_leaves_the_counts() {
    let world = world(json!({}));
    world.add_json::<NodeClaim>(claim("a", json!({})));
    run(&world, only_pool());
    assert_eq!(read(&world).status.nodes, Some(1));
    world.add_json::<NodeClaim>(claim(
        "a",
        json!({"metadata": {"deletionTimestamp": "2026-01-01T10:00:00Z", "finalizers": ["x"]}}),
    ));
    run(&world, json!([]));
    let status = read(&world).status;
    assert_eq!((status.nodes, status.resources.get("cpu").is_zero()), (Some(0), true));
}

/// A run of the message that catalog-refresh sends when shifts have changed.
fn tell_of_shifts(world: &Fake) -> (usize, Vec<(String, String)>) {
    let body = json!({"reason": "ZonalShiftChanged"}).to_string();
    let record = SqsRecord { message_id: "m".into(), body, ..SqsRecord::default() };
    let settings = Settings { enable_zonal_shift: true, ..Settings::default() };
    let now = world.now.get();
    let cx = Invocation {
        concern: Concern::Nodepool,
        now,
        deadline: now,
        settings: &settings,
        journal: world,
    };
    let answer = block_on(handle(&SqsBatch { records: vec![record] }, world, world, &cx));
    let told = |it: spokeshave_ports::cluster::KubeEvent| {
        let kind = if it.warning { "Warning" } else { "Normal" };
        (format!("{kind} {} {}/{}", it.reason, it.kind, it.key), it.message)
    };
    (answer.failures.len(), world.events.take().into_iter().map(told).collect())
}

fn shift(world: &Fake, zones: &[&str], hours: i64) {
    let shifts: Vec<spokeshave_ports::ZonalShift> = zones
        .iter()
        .map(|it| spokeshave_ports::ZonalShift {
            away_from: (*it).to_owned(),
            applied_status: "APPLIED".into(),
            expires_at: Some(at(hours * 3600)),
        })
        .collect();
    block_on(zonal_shift::save(world, &shifts, world.now.get())).expect("written");
}

#[test] // aws-capacity 12, cases 5 and 6; aws-nodeclass 21, case 7
fn pools_hear_of_shifts_of_zones_that_they_can_reach() {
    let in_zones = |name: &str, key: &str, zone: &str| {
        let mut other = pool(json!({"metadata": {"name": name, "uid": name}}));
        other["spec"]["template"]["spec"]["requirements"] =
            json!([{"key": key, "operator": "In", "values": [zone]}]);
        other
    };
    let world = world(json!({}));
    world.add_json::<EC2NodeClass>(
        json!({"metadata": {"name": "default", "uid": "class"}, "status": {"subnets": [
        {"id": "subnet-test1", "zone": "test-zone-1a", "zoneID": "tstz1-1a"},
        {"id": "subnet-test2", "zone": "test-zone-1b", "zoneID": "tstz1-1b"}]}}),
    );
    world.add_json::<NodePool>(in_zones("b-only", labels::ZONE, "test-zone-1b"));
    world.add_json::<NodePool>(in_zones("b-by-id", labels::ZONE_ID, "tstz1-1b"));
    let mut labelled = in_zones("b-by-label", labels::ZONE_ID, "tstz1-1a");
    labelled["spec"]["template"]["metadata"] = json!({"labels": {(labels::ZONE): "test-zone-1b"}});
    world.add_json::<NodePool>(labelled);
    let mut classless = in_zones("classless", labels::ZONE, "test-zone-1a");
    classless["spec"]["template"]["spec"]["nodeClassRef"]["name"] = json!("none");
    world.add_json::<NodePool>(classless);

    shift(&world, &["tstz1-1a"], 1);
    world.fail("write zonal-shift/published", "InternalError");
    assert_eq!(tell_of_shifts(&world).0, 1, "told, but not noted: it comes back");
    world.mend("write zonal-shift/published");
    let active = (
        "Warning ZonalShiftActive NodePool/p".to_owned(),
        "Traffic is shifted away from zone test-zone-1a (tstz1-1a): nothing is launched or terminated there until the shift is over"
            .to_owned(),
    );
    assert_eq!(tell_of_shifts(&world), (0, vec![active]));
    assert_eq!(tell_of_shifts(&world), (0, vec![]), "told once");
    assert!(world.calls.borrow().iter().all(|it| !it.starts_with("patch")), "nothing else is done");

    // The other zone as well, and the first one's end comes by itself.
    shift(&world, &["tstz1-1b", "tstz1-1a"], 1);
    let (_, told) = tell_of_shifts(&world);
    let whom: Vec<&str> = told.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(
        whom,
        [
            "Warning ZonalShiftActive NodePool/b-by-id",
            "Warning ZonalShiftActive NodePool/b-only",
            "Warning ZonalShiftActive NodePool/p",
        ]
    );
    world.now.set(at(3600));
    shift(&world, &["tstz1-1b"], 2);
    let cleared = (
        "Normal ZonalShiftCleared NodePool/p".to_owned(),
        "The zonal shift of zone test-zone-1a (tstz1-1a) is over: nodes are launched there again"
            .to_owned(),
    );
    assert_eq!(tell_of_shifts(&world), (0, vec![cleared]));
    world.fail("list EC2NodeClass", "InternalError");
    shift(&world, &[], 2);
    assert_eq!(tell_of_shifts(&world), (1, vec![]), "nobody is told half");
    world.mend("list EC2NodeClass");
    assert_eq!(tell_of_shifts(&world).1.len(), 3);
}
