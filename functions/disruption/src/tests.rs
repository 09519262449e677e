//! The function against small fakes: what it writes, in which order, and how it goes on after a failure.

#![allow(clippy::needless_pass_by_value, reason = "JSON literals read better by value")]

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_lambda::{BatchAnswer, SqsBatch, SqsRecord};
use spokeshave_model::{
    EC2NodeClass, NodeClaim, NodePool, Settings,
    conditions::ConditionStatus,
    core::{Node, Pod},
    labels,
    meta::apply_merge_patch,
};
use spokeshave_ports::{
    Concern, Invocation, Record, StateKey, Work,
    fake::{Fake, block_on},
};

use crate::{
    handle,
    record::{Stage, read_all},
};

fn at(seconds: i64) -> Timestamp {
    "2026-03-04T10:00:00Z".parse::<Timestamp>().expect("a time")
        + SignedDuration::from_secs(seconds)
}

fn batch(reason: &str, now: Timestamp) -> SqsBatch {
    let mut record = SqsRecord { message_id: "m".into(), ..SqsRecord::default() };
    record.body = serde_json::to_string(&Work::new(reason, Vec::new())).expect("JSON");
    record.attributes.insert("SentTimestamp".into(), now.as_millisecond().to_string());
    SqsBatch { records: vec![record] }
}

/// Runs the function at so many seconds after the beginning.
fn run(world: &Fake, seconds: i64) -> BatchAnswer {
    run_for(world, "Schedule", seconds)
}

fn run_for(world: &Fake, reason: &str, seconds: i64) -> BatchAnswer {
    let now = at(seconds);
    world.now.set(now);
    let settings = Settings { cluster_name: "c".into(), ..Settings::default() };
    let cx = Invocation {
        concern: Concern::Disruption,
        now,
        deadline: now + SignedDuration::from_secs(60),
        settings: &settings,
        journal: world,
    };
    block_on(handle(&batch(reason, now), world, world, world, &cx))
}

/// A pool, its class, and no node.
fn world(pool: Value) -> Fake {
    let world = Fake::at(at(0));
    let mut value = json!({"metadata": {"name": "p", "uid": "uid-p", "generation": 1}, "spec": {
        "template": {"spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5"]}]}},
        "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}}});
    apply_merge_patch(&mut value, &pool);
    world.add_json::<NodePool>(value);
    world.add_json::<EC2NodeClass>(
        json!({"metadata": {"name": "default", "uid": "uid-class"}, "spec": {
        "amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "r",
        "subnetSelectorTerms": [], "securityGroupSelectorTerms": []}}),
    );
    let types: Vec<Value> = [("m5.large", 2, 0.096), ("m5.xlarge", 4, 0.192), ("m5.2xlarge", 8, 0.384), ("m5.4xlarge", 16, 0.768)]
        .into_iter()
        .map(|(name, cpu, price)| {
            json!({"name": name,
                "labels": {labels::ARCH: ["amd64"], labels::OS: ["linux"], labels::INSTANCE_FAMILY: ["m5"]},
                "capacity": {"cpu": cpu.to_string(), "memory": format!("{}Gi", 4 * cpu), "pods": "200", "ephemeral-storage": "20Gi"},
                "overhead": {"cpu": "100m", "memory": "1Gi"},
                "offerings": [{"capacityType": "on-demand", "zone": "us-east-1a", "price": price}]})
        })
        .collect();
    let fixed = Record { version: 1, data: json!({"instanceTypes": types}), expires_at: None };
    world.records.borrow_mut().insert(StateKey::new("catalog", "fixed"), fixed);
    world
}

/// An initialized, Ready and consolidatable node, 3 days old.
fn add_node(world: &Fake, name: &str, instance_type: &str, extra: &Value) {
    let labels = json!({
        labels::NODEPOOL: "p",
        labels::INSTANCE_TYPE: instance_type,
        labels::CAPACITY_TYPE: "on-demand",
        labels::ZONE: "us-east-1a",
        labels::REGISTERED: "true",
        labels::INITIALIZED: "true",
        labels::HOSTNAME: name,
        labels::ARCH: "amd64",
        labels::OS: "linux",
    });
    let id = format!("aws:///us-east-1a/i-{name}");
    let resources =
        json!({"cpu": "15", "memory": "60Gi", "pods": "200", "ephemeral-storage": "18Gi"});
    world.add_json::<Node>(
        json!({"metadata": {"name": name, "uid": format!("uid-node-{name}"), "labels": labels},
        "spec": {"providerID": id},
        "status": {"capacity": resources, "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": type_, "message": "",
            "lastTransitionTime": "2026-03-01T00:05:00Z", "observedGeneration": 1})
    };
    let mut claim = json!({"metadata": {"name": format!("claim-{name}"), "uid": format!("uid-claim-{name}"),
            "creationTimestamp": "2026-03-01T00:00:00Z", "labels": labels, "generation": 1,
            "finalizers": [labels::TERMINATION_FINALIZER]},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
        "status": {"providerID": id, "nodeName": name, "capacity": resources, "allocatable": resources,
            "conditions": [condition("Launched"), condition("Registered"), condition("Initialized"),
                condition("Consolidatable"), condition("Ready")]}});
    apply_merge_patch(&mut claim, extra);
    world.add_json::<NodeClaim>(claim);
}

fn add_pod(world: &Fake, name: &str, node: &str, extra: &Value) {
    let mut pod = json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "labels": {"app": name},
            "creationTimestamp": "2026-03-01T00:10:00Z",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "o"}]},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        "status": {"phase": "Running"}});
    apply_merge_patch(&mut pod, extra);
    world.add_json::<Pod>(pod);
}

/// Writes to objects, without what is only remembered.
fn writes(world: &Fake) -> Vec<String> {
    let calls = world.calls.take();
    calls
        .into_iter()
        .filter(|it| ["patch", "create", "delete"].iter().any(|verb| it.starts_with(verb)))
        .collect()
}

fn stages(world: &Fake) -> Vec<Stage> {
    let all = block_on(read_all(world)).expect("readable").into_iter().map(|(it, _)| it.stage);
    all.filter(|it| *it != Stage::Done).collect()
}

fn is_tainted(world: &Fake, name: &str) -> bool {
    let node: Node = world.object(name).expect("there");
    node.spec.taints.iter().any(|it| it.key == labels::DISRUPTED_TAINT)
}

fn disruption_reason(world: &Fake, claim: &str) -> Option<String> {
    let claim: NodeClaim = world.object(claim).expect("there");
    claim.condition(NodeClaim::DISRUPTION_REASON).map(|it| it.reason.clone())
}

/// When the function is to be woken, in seconds from now.
fn wakes(world: &Fake) -> Vec<i64> {
    world
        .sent
        .take()
        .into_iter()
        .filter(|it| it.0 == Concern::Disruption)
        .map(|it| it.2.as_secs())
        .collect()
}

#[test]
fn an_idle_cluster_comes_to_rest() {
    let world = world(json!({}));
    add_node(&world, "n", "m5.4xlarge", &json!({"status": {"conditions": []}}));
    run(&world, 0);
    assert_eq!((writes(&world), wakes(&world)), (vec![], vec![]));
    assert!(world.decisions.borrow().is_empty(), "{:?}", world.decisions.borrow());
}

#[test] // lifecycle 13.1, case 1; 25.3, case 6, of a deletion; 33.1, case 2
fn an_empty_node_goes_after_fifteen_seconds() {
    let world = world(json!({"spec": {"disruption": {"consolidationPolicy": "WhenEmpty"}}}));
    add_node(&world, "n", "m5.4xlarge", &json!({}));
    run(&world, 0);
    assert_eq!((writes(&world), stages(&world)), (vec![], vec![Stage::Validating]));
    assert_eq!(wakes(&world), [15]);
    run(&world, 14);
    assert_eq!((writes(&world), stages(&world)), (vec![], vec![Stage::Validating]));
    run(&world, 15);
    assert_eq!(
        writes(&world),
        ["patch Node/n", "patch-status NodeClaim/claim-n", "delete NodeClaim/claim-n"]
    );
    assert_eq!(stages(&world), []);
    assert!(is_tainted(&world, "n"));
    assert_eq!(disruption_reason(&world, "claim-n").as_deref(), Some("Empty"));
    assert_eq!(
        world.samples("karpenter_nodeclaims_disrupted_total"),
        [
            "karpenter_nodeclaims_disrupted_total{reason=empty,nodepool=p,capacity_type=on-demand,consolidation_policy=when_empty,termination_mode=graceful} 1"
        ]
    );
    assert_eq!(
        world.samples("karpenter_voluntary_disruption_decisions_total"),
        [
            "karpenter_voluntary_disruption_decisions_total{decision=delete,reason=empty,consolidation_type=empty} 1"
        ]
    );
    assert_eq!(
        world.event_reasons(),
        ["NodeClaim/claim-n DisruptionTerminating", "Node/n DisruptionTerminating",]
    );
    wakes(&world);
    run(&world, 30);
    assert_eq!((writes(&world), wakes(&world)), (vec![], vec![]), "it is over");
}

#[test] // lifecycle 24.3, case 1; two solvers: the later one gives way
fn a_node_that_is_needed_by_now_is_left() {
    let world = world(json!({}));
    for name in ["a", "b"] {
        add_node(&world, name, "m5.4xlarge", &json!({}));
    }
    run(&world, 0);
    add_pod(&world, "late", "a", &json!({}));
    run(&world, 15);
    assert_eq!(
        writes(&world),
        ["patch Node/b", "patch-status NodeClaim/claim-b", "delete NodeClaim/claim-b"]
    );
    assert!(!is_tainted(&world, "a"));
}

#[test] // lifecycle 13.1, cases 3 and 4
fn a_taint_that_nobody_answers_for_is_taken_off() {
    let world = world(json!({"spec": {"disruption": {"consolidateAfter": "Never"}}}));
    add_node(&world, "n", "m5.4xlarge", &json!({}));
    let taint = json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]);
    let mut node: Node = world.object("n").expect("there");
    node.spec.taints = serde_json::from_value(taint.clone()).expect("taints");
    world.add(&node);
    let mut claim: NodeClaim = world.object("claim-n").expect("there");
    claim.conditions_mut().set("DisruptionReason", ConditionStatus::True, "Empty", "Empty", at(0));
    world.add(&claim);
    world.add_json::<Node>(
        json!({"metadata": {"name": "foreign", "uid": "f"}, "spec": {"taints": taint}}),
    );
    run(&world, 0);
    assert_eq!(writes(&world), ["patch Node/n", "patch-status NodeClaim/claim-n"]);
    assert!(!is_tainted(&world, "n") && is_tainted(&world, "foreign"));
    assert_eq!(disruption_reason(&world, "claim-n"), None);
}

#[test] // lifecycle 13.1, case 2
fn nothing_starts_while_a_claim_is_being_launched() {
    let world = world(json!({}));
    add_node(&world, "n", "m5.4xlarge", &json!({}));
    world.add_json::<NodeClaim>(json!({"metadata": {"name": "new", "uid": "u"},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}));
    run(&world, 0);
    assert_eq!((stages(&world), wakes(&world)), (vec![], vec![1]));
}

#[test] // lifecycle 17: never against a budget
fn a_closed_budget_holds_everything() {
    let world = world(json!({"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}}));
    add_node(&world, "n", "m5.4xlarge", &json!({}));
    run(&world, 0);
    assert_eq!((stages(&world), writes(&world), wakes(&world)), (vec![], vec![], vec![]));
    assert_eq!(world.event_reasons(), ["NodePool/p DisruptionBlocked"]);
    assert_eq!(
        world.samples("karpenter_nodepools_allowed_disruptions"),
        ["karpenter_nodepools_allowed_disruptions{nodepool=p,reason=Empty} 0"]
    );
}

#[test] // lifecycle 24.3, case 5
fn a_budget_that_closes_meanwhile_stops_the_command() {
    let world = world(json!({}));
    add_node(&world, "n", "m5.4xlarge", &json!({}));
    run(&world, 0);
    let mut pool: NodePool = world.object("p").expect("there");
    pool.spec.disruption.as_mut().expect("set").budgets =
        serde_json::from_value(json!([{"nodes": "0"}])).expect("budgets");
    world.add(&pool);
    run(&world, 15);
    assert_eq!((stages(&world), writes(&world)), (vec![], vec![]));
}

/// A node much too big for its pod, so that a smaller one replaces it.
fn oversized() -> Fake {
    let world = world(json!({}));
    add_node(&world, "n", "m5.4xlarge", &json!({}));
    add_pod(&world, "web", "n", &json!({}));
    world
}

fn replacement(world: &Fake) -> NodeClaim {
    let objects = world.objects.borrow();
    let (_, value) =
        objects.iter().find(|(name, _)| name.starts_with("NodeClaim/p-")).expect("a replacement");
    spokeshave_model::meta::from_value(value.clone()).expect("a claim")
}

fn initialize(world: &Fake) {
    let mut claim = replacement(world);
    claim.status.provider_id = "aws:///us-east-1a/i-new".into();
    for type_ in NodeClaim::DEPENDENTS {
        claim.conditions_mut().set_true(type_, at(60));
    }
    world.add(&claim);
}

#[test] // lifecycle 25.3, case 6, and 35.1, case 4
fn a_replacement_is_there_before_the_node_goes() {
    let world = oversized();
    run(&world, 0);
    assert_eq!(stages(&world), [Stage::Validating]);
    world.sent.take();
    run(&world, 15);
    let name = replacement(&world).metadata.name;
    assert_eq!(
        writes(&world),
        [
            "patch Node/n".to_owned(),
            "patch-status NodeClaim/claim-n".to_owned(),
            format!("create NodeClaim/{name}"),
        ]
    );
    let launches: Vec<_> =
        world.sent.take().into_iter().filter(|it| it.0 == Concern::Launch).collect();
    assert_eq!(launches.len(), 1);
    assert_eq!(launches[0].1.keys[0].name, name);
    assert_eq!(stages(&world), [Stage::Waiting]);
    let claim = replacement(&world);
    let values = |key: &str| {
        let it = claim.spec.requirements.iter().find(|it| it.key == key).expect("there");
        it.values.clone()
    };
    assert_eq!(values(labels::CAPACITY_TYPE), ["on-demand"]);
    assert_eq!(values(labels::INSTANCE_TYPE), ["m5.2xlarge", "m5.large", "m5.xlarge"]);
    run_for(&world, "CommandProgressed", 30);
    assert_eq!((writes(&world), stages(&world)), (vec![], vec![Stage::Waiting]));
    initialize(&world);
    run_for(&world, "CommandProgressed", 60);
    assert_eq!(writes(&world), ["delete NodeClaim/claim-n"]);
    assert_eq!(stages(&world), []);
    assert_eq!(
        world.samples("karpenter_pods_disruption_initiated_total"),
        [
            "karpenter_pods_disruption_initiated_total{reason=underutilized,nodepool=p,capacity_type=on-demand,consolidation_policy=when_empty_or_underutilized,termination_mode=graceful} 1"
        ]
    );
    let events = world.event_reasons();
    for reason in ["DisruptionLaunching", "DisruptionWaitingReadiness"] {
        assert!(events.contains(&format!("NodeClaim/{name} {reason}")), "{events:?}");
    }
}

#[test] // lifecycle 25.3, case 2; bug report B-020, the variant
fn a_replacement_that_cannot_be_bought_undoes_the_command() {
    let world = oversized();
    run(&world, 0);
    run(&world, 15);
    let name = replacement(&world).metadata.name;
    world.objects.borrow_mut().remove(&format!("NodeClaim/{name}"));
    writes(&world);
    run_for(&world, "CommandProgressed", 16);
    assert_eq!(writes(&world), ["patch Node/n", "patch-status NodeClaim/claim-n"]);
    assert!(!is_tainted(&world, "n"));
    assert_eq!(disruption_reason(&world, "claim-n"), None);
    assert_eq!(stages(&world), []);
    assert_eq!(
        world.samples("karpenter_voluntary_disruption_queue_failures_total"),
        [
            "karpenter_voluntary_disruption_queue_failures_total{decision=replace,reason=underutilized,consolidation_type=single} 1"
        ]
    );
}

#[test] // lifecycle 25.2, step 3; 36.1, case 3
fn a_replacement_that_never_comes_undoes_the_command_after_ten_minutes() {
    let world = oversized();
    run(&world, 0);
    run(&world, 15);
    writes(&world);
    run_for(&world, "CommandProgressed", 15 + 600);
    assert_eq!(stages(&world), [Stage::Waiting], "strictly later");
    run_for(&world, "CommandProgressed", 15 + 601);
    let written = writes(&world);
    assert_eq!(written[..2], ["patch Node/n", "patch-status NodeClaim/claim-n"]);
    assert!(written[2].starts_with("delete NodeClaim/p-"), "{written:?}");
    assert!(!is_tainted(&world, "n"));
}

#[test] // lifecycle 36.1, case 6; 13.1, case 5, with a stored command
fn a_run_that_is_killed_is_taken_up() {
    let calls = [
        "patch Node/n",
        "patch-status NodeClaim/claim-n",
        "list Pod",
        "create NodeClaim",
        "get NodePool/p",
        "get NodeClaim/claim-n",
        "get Node/n",
    ];
    for call in calls {
        let world = oversized();
        run(&world, 0);
        world.fail(call, "Unavailable");
        assert_eq!(run(&world, 15), BatchAnswer::done(), "{call}");
        world.mend(call);
        run(&world, 30);
        run(&world, 31);
        initialize(&world);
        run(&world, 60);
        let claims: Vec<String> = world
            .objects
            .borrow()
            .keys()
            .filter(|it| it.starts_with("NodeClaim/p-"))
            .cloned()
            .collect();
        assert_eq!(claims.len(), 1, "{call}: one replacement");
        let old: NodeClaim = world.object("claim-n").expect("there");
        assert!(old.metadata.deleting(), "{call}");
        assert_eq!(stages(&world), [], "{call}");
    }
}

#[test] // lifecycle 19.1: drift needs no second look
fn a_drifted_node_is_replaced_at_once() {
    let world = oversized();
    let mut claim: NodeClaim = world.object("claim-n").expect("there");
    claim.conditions_mut().set("Drifted", ConditionStatus::True, "AMIDrift", "AMIDrift", at(-60));
    world.add(&claim);
    run(&world, 0);
    assert_eq!(stages(&world), [Stage::Waiting]);
    assert_eq!(disruption_reason(&world, "claim-n").as_deref(), Some("Drifted"));
    assert!(writes(&world)[2].starts_with("create NodeClaim/p-"));
}

#[test] // lifecycle 25.3, case 9
fn limits_are_looked_at_before_a_replacement_is_made() {
    for (limit, starts) in [("16", true), ("15", true), ("14", false)] {
        let world = oversized();
        let mut pool: NodePool = world.object("p").expect("there");
        pool.spec.limits = serde_json::from_value(json!({"cpu": limit})).expect("limits");
        world.add(&pool);
        let mut claim: NodeClaim = world.object("claim-n").expect("there");
        claim.conditions_mut().set(
            "Drifted",
            ConditionStatus::True,
            "AMIDrift",
            "AMIDrift",
            at(-60),
        );
        world.add(&claim);
        run(&world, 0);
        assert_eq!(stages(&world) == [Stage::Waiting], starts, "{limit}");
        assert_eq!(is_tainted(&world, "n"), starts, "{limit}");
    }
}

#[test]
fn what_a_finished_pass_has_seen_is_not_looked_at_again() {
    let world = world(json!({}));
    run(&world, 10);
    add_node(&world, "n", "m5.4xlarge", &json!({}));
    let settings = Settings::default();
    let cx = Invocation {
        concern: Concern::Disruption,
        now: at(20),
        deadline: at(80),
        settings: &settings,
        journal: &world,
    };
    block_on(handle(&batch("DisruptionDue", at(9)), &world, &world, &world, &cx));
    assert_eq!(stages(&world), []);
    block_on(handle(&batch("DisruptionDue", at(11)), &world, &world, &world, &cx));
    assert_eq!(stages(&world), [Stage::Validating]);
}

#[test]
fn a_message_that_is_none_is_dropped_alone() {
    let world = world(json!({}));
    let mut it = batch("Schedule", at(0));
    it.records.insert(
        0,
        SqsRecord { message_id: "bad".into(), body: "{".into(), ..SqsRecord::default() },
    );
    let settings = Settings::default();
    let cx = Invocation {
        concern: Concern::Disruption,
        now: at(0),
        deadline: at(60),
        settings: &settings,
        journal: &world,
    };
    assert_eq!(block_on(handle(&it, &world, &world, &world, &cx)), BatchAnswer::done());
    let decisions = world.decisions.borrow();
    assert_eq!((decisions[0].action, decisions[0].object.as_str()), ("drop", "Message/bad"));
    assert!(decisions[0].error);
}
