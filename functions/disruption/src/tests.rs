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
    block_on(handle(&batch(reason, now), world, world, world, world, &cx))
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

#[test] // lifecycle 13: a launch holds the nodes of its own pool alone
fn a_claim_that_is_being_launched_holds_its_pool() {
    for (pool, expected) in [("p", (0, vec![1])), ("other", (1, vec![15]))] {
        let world = world(json!({}));
        add_node(&world, "n", "m5.4xlarge", &json!({}));
        world.add_json::<NodeClaim>(json!({"metadata": {"name": "new", "uid": "u", "labels": {labels::NODEPOOL: pool}},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}));
        run(&world, 0);
        assert_eq!((stages(&world).len(), wakes(&world)), expected, "{pool}");
        // A command that has waited is not judged while its own pool is launching, and is not lost.
        world.add_json::<NodeClaim>(json!({"metadata": {"name": "new", "uid": "u", "labels": {labels::NODEPOOL: "p"}},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}));
        run(&world, 15);
        assert_eq!(
            (stages(&world).len(), writes(&world), wakes(&world)),
            (expected.0, vec![], vec![1]),
            "{pool}"
        );
    }
}

#[test] // lifecycle 17: never against a budget
fn a_closed_budget_holds_everything() {
    let world = world(json!({"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}}));
    add_node(&world, "n", "m5.4xlarge", &json!({}));
    run(&world, 0);
    assert_eq!((stages(&world), writes(&world), wakes(&world)), (vec![], vec![], vec![]));
    assert_eq!(
        world.event_reasons(),
        [
            "NodePool/p DisruptionBlocked",
            "Node/n DisruptionBlocked",
            "NodeClaim/claim-n DisruptionBlocked"
        ]
    );
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

#[test] // lifecycle 25.2, step 3; 36.1, case 3; bug report B-026
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
    block_on(handle(&batch("DisruptionDue", at(9)), &world, &world, &world, &world, &cx));
    assert_eq!(stages(&world), []);
    block_on(handle(&batch("DisruptionDue", at(11)), &world, &world, &world, &world, &cx));
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
    assert_eq!(block_on(handle(&it, &world, &world, &world, &world, &cx)), BatchAnswer::done());
    let decisions = world.decisions.borrow();
    assert_eq!((decisions[0].action, decisions[0].object.as_str()), ("drop", "Message/bad"));
    assert!(decisions[0].error);
}

fn drift(world: &Fake, name: &str, since: i64) {
    let mut claim: NodeClaim = world.object(&format!("claim-{name}")).expect("there");
    claim.conditions_mut().set("Drifted", ConditionStatus::True, "AMIDrift", "AMIDrift", at(since));
    world.add(&claim);
}

/// Three nodes whose pods fit on a fourth, which is not quiet.
fn three_and_room() -> Fake {
    let world = world(json!({}));
    for name in ["a", "b", "c"] {
        add_node(&world, name, "m5.4xlarge", &json!({}));
        add_pod(&world, &format!("pod-{name}"), name, &json!({}));
    }
    add_node(&world, "room", "m5.4xlarge", &json!({"status": {"conditions": []}}));
    world
}

fn is_deleting(world: &Fake, name: &str) -> bool {
    let claim: NodeClaim = world.object(&format!("claim-{name}")).expect("there");
    claim.metadata.deleting()
}

#[test] // lifecycle 25.3, case 3
fn what_cannot_be_marked_of_a_deletion_stays_out_of_it() {
    for call in ["patch Node/b", "patch-status NodeClaim/claim-b"] {
        let world = three_and_room();
        run(&world, 0);
        assert_eq!(stages(&world), [Stage::Validating], "{call}");
        world.fail(call, "Conflict");
        run(&world, 15);
        let going = ["a", "b", "c"].map(|it| is_deleting(&world, it));
        assert_eq!(going, [true, false, true], "{call}");
        world.mend(call);
        run(&world, 16);
        assert!(!is_tainted(&world, "b"), "{call}: cleaned by the next pass");
        assert_eq!(disruption_reason(&world, "claim-b"), None, "{call}");
        assert!(is_tainted(&world, "a") && is_tainted(&world, "c"), "{call}");
    }
}

#[test] // lifecycle 25.3, case 4
fn a_replacement_is_made_only_when_all_are_marked() {
    let world = world(json!({}));
    for name in ["a", "b"] {
        add_node(&world, name, "m5.4xlarge", &json!({}));
        add_pod(&world, &format!("pod-{name}"), name, &json!({}));
    }
    run(&world, 0);
    world.fail("patch-status NodeClaim/claim-b", "Conflict");
    run(&world, 15);
    world.mend("patch-status NodeClaim/claim-b");
    run(&world, 30);
    let objects = world.objects.borrow();
    assert!(!objects.keys().any(|it| it.starts_with("NodeClaim/p-")), "{:?}", objects.keys());
    drop(objects);
    for name in ["a", "b"] {
        assert!(!is_tainted(&world, name) && !is_deleting(&world, name), "{name}");
        assert_eq!(disruption_reason(&world, &format!("claim-{name}")), None, "{name}");
    }
}

#[test] // lifecycle 25.3, case 5
fn a_replacement_that_was_initialized_is_enough() {
    let world = oversized();
    run(&world, 0);
    run(&world, 15);
    initialize(&world);
    world.add_json::<Node>(json!({"metadata": {"name": "new", "uid": "uid-new",
            "labels": {labels::NODEPOOL: "p", labels::REGISTERED: "true", labels::INITIALIZED: "true"}},
        "spec": {"providerID": "aws:///us-east-1a/i-new"},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]}}));
    run_for(&world, "CommandProgressed", 60);
    assert!(is_deleting(&world, "n"));
    assert_eq!(stages(&world), []);
}

#[test] // lifecycle 25.3, case 7; 33.1, case 3
fn only_pods_that_move_are_counted() {
    let world = three_and_room();
    for n in 0..4 {
        add_pod(&world, &format!("web-{n}"), "a", &json!({}));
    }
    for n in 0..3 {
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]);
        let daemon = json!({"metadata": {"ownerReferences": owner}});
        add_pod(&world, &format!("daemon-{n}"), "a", &daemon);
    }
    drift(&world, "a", -60);
    run(&world, 0);
    assert!(is_deleting(&world, "a"));
    let labels = "{reason=drifted,nodepool=p,capacity_type=on-demand,consolidation_policy=,termination_mode=graceful}";
    for (name, value) in [
        ("karpenter_pods_disruption_initiated_total", 5),
        ("karpenter_nodeclaims_disrupted_total", 1),
    ] {
        assert_eq!(world.samples(name), [format!("{name}{labels} {value}")]);
    }
}

#[test] // lifecycle 13.1, case 8
fn drifted_nodes_go_one_per_pass() {
    let world = world(json!({}));
    for (name, since) in [("a", -60), ("b", -120), ("c", -180)] {
        add_node(&world, name, "m5.4xlarge", &json!({"status": {"conditions": []}}));
        drift(&world, name, since);
    }
    for (second, going) in
        [(0, [false, false, true]), (1, [false, true, true]), (2, [true, true, true])]
    {
        run(&world, second);
        assert_eq!(["a", "b", "c"].map(|it| is_deleting(&world, it)), going, "{second}");
        assert!(wakes(&world).contains(&1), "{second}: the next pass follows");
    }
}

#[test] // lifecycle 22.1, case 3
fn a_rejected_node_ends_the_pass_of_single_node_consolidation() {
    let world = world(json!({"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}}));
    for name in ["a", "b"] {
        add_node(&world, name, "m5.4xlarge", &json!({}));
        // Too much for one node, so that neither fits on the other.
        let big = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "7800m"}}}]}});
        add_pod(&world, &format!("pod-{name}"), name, &big);
    }
    run(&world, 0);
    assert_eq!(stages(&world), [Stage::Validating]);
    let keep = json!({"metadata": {"annotations": {labels::DO_NOT_DISRUPT: "true"}}});
    add_pod(&world, "late", "a", &keep);
    world.events.borrow_mut().clear();
    run(&world, 15);
    assert_eq!((writes(&world), stages(&world)), (vec![], vec![]));
    let events = world.events.borrow();
    let rejected: Vec<String> = events
        .iter()
        .filter(|it| it.reason == "ConsolidationRejected")
        .map(|it| format!("{}/{} {}", it.kind, it.key, it.message))
        .collect();
    let text =
        "Consolidation rejected: replace: [a] -> [1 replacement], reason: churn (savings: $0.38)";
    assert_eq!(rejected, [format!("Node/a {text}"), format!("NodeClaim/claim-a {text}")]);
    assert_eq!(
        world.samples("karpenter_voluntary_disruption_failed_validations_total"),
        ["karpenter_voluntary_disruption_failed_validations_total{consolidation_type=single} 1"]
    );
}

#[test] // lifecycle 36.1, case 1; 19, the weakness and its remedy
fn a_pool_whose_replacements_fail_does_not_hold_up_another() {
    let world = oversized();
    let mut other: NodePool = world.object("p").expect("there");
    other.metadata.name = "q".into();
    other.metadata.uid = "uid-q".into();
    world.add(&other);
    add_node(
        &world,
        "other",
        "m5.4xlarge",
        &json!({"metadata": {"labels": {labels::NODEPOOL: "q"}}}),
    );
    let mut node: Node = world.object("other").expect("there");
    node.metadata.labels.insert(labels::NODEPOOL.into(), "q".into());
    world.add(&node);
    let pinned = |pool: &str| json!({"spec": {"nodeSelector": {labels::NODEPOOL: pool}}});
    add_pod(&world, "web", "n", &pinned("p"));
    add_pod(&world, "api", "other", &pinned("q"));
    drift(&world, "n", -120);
    drift(&world, "other", -60);
    run(&world, 0);
    assert!(is_tainted(&world, "n") && !is_tainted(&world, "other"), "the oldest is first");
    let name = replacement(&world).metadata.name;
    world.objects.borrow_mut().remove(&format!("NodeClaim/{name}"));
    run_for(&world, "CommandProgressed", 1);
    assert!(!is_tainted(&world, "n"), "undone");
    run(&world, 2);
    assert!(!is_tainted(&world, "n") && is_tainted(&world, "other"), "the other pool's turn");
    // A minute is the longest first wait; the pool is tried again then.
    world.objects.borrow_mut().retain(|name, _| !name.starts_with("NodeClaim/q-"));
    run_for(&world, "CommandProgressed", 3);
    run(&world, 63);
    assert!(is_tainted(&world, "n"));
}

#[test] // lifecycle 36.1, case 2
fn a_command_that_succeeds_late_is_not_undone() {
    let world = oversized();
    run(&world, 0);
    run(&world, 15);
    initialize(&world);
    run_for(&world, "CommandProgressed", 15 + 601);
    assert!(is_deleting(&world, "n") && is_tainted(&world, "n"));
    assert_eq!(stages(&world), []);
}

#[test] // lifecycle 25.1, step 5
fn pods_that_stay_pending_are_told_why() {
    let world = world(json!({}));
    add_node(&world, "n", "m5.4xlarge", &json!({"status": {"conditions": []}}));
    add_node(&world, "m", "m5.4xlarge", &json!({}));
    add_pod(&world, "web", "m", &json!({}));
    add_pod(
        &world,
        "stuck",
        "",
        &json!({"spec": {"nodeSelector": {"foo": "bar"}}, "status": {"phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}),
    );
    run(&world, 0);
    run(&world, 15);
    assert!(is_deleting(&world, "m"));
    let events = world.events.borrow();
    let told: Vec<&str> = events
        .iter()
        .filter(|it| it.reason == "FailedScheduling")
        .map(|it| it.message.as_str())
        .collect();
    assert_eq!(told, ["Failed to schedule pod, label \"foo\" does not have known values"]);
}

#[test] // lifecycle 34.1, case 4; 34, row 15
fn the_end_of_a_closed_window_wakes_the_pass() {
    let closed = json!([{"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h"}]);
    let world = world(json!({"spec": {"disruption": {"budgets": closed}}}));
    add_node(&world, "n", "m5.4xlarge", &json!({}));
    // It is ten on a Wednesday.
    let five = 7 * 3600;
    run(&world, five - 20);
    assert_eq!((stages(&world), wakes(&world)), (vec![], vec![20]));
    run(&world, five);
    assert_eq!(stages(&world), [Stage::Validating]);
}

#[test] // lifecycle 21: a search that was stopped goes on from the stored place
fn a_stored_search_goes_on() {
    let world = world(json!({}));
    let names = ["a", "b", "c"];
    for name in names.into_iter().chain(["room"]) {
        let not_quiet = json!({"status": {"conditions": []}});
        let extra = if name == "room" { not_quiet } else { json!({}) };
        add_node(&world, name, "m5.4xlarge", &extra);
        add_pod(&world, &format!("of-{name}"), name, &json!({}));
    }
    let claims = names.map(|it| format!("uid-claim-{it}"));
    let memory = |started: i64, low: usize, best: Value| {
        let halving = json!({"claims": claims, "low": low, "high": 2, "best": best});
        let search = json!({"method": "MultiNodeConsolidation", "started": at(started), "lookedAt": low,
            "halving": halving});
        let data = json!({"memory": {"search": search}});
        let record = Record { version: 1, data, expires_at: None };
        world.records.borrow_mut().insert(StateKey::new("disruption", "memory"), record);
    };
    let candidates = || -> Vec<usize> {
        let all = block_on(read_all(&world)).expect("readable");
        all.iter().map(|(it, _)| it.command.candidates.len()).collect()
    };
    // Halving has come to where only all three are left to try.
    memory(0, 2, Value::Null);
    run(&world, 20);
    assert_eq!((candidates(), wakes(&world)), (vec![3], vec![15]));
    let best = serde_json::to_value(&block_on(read_all(&world)).expect("readable")[0].0.command);
    let mut best = best.expect("JSON");
    best["candidates"].as_array_mut().expect("a list").pop();
    world.records.borrow_mut().retain(|it, _| it.partition != "command");
    // Its minute is over: what it had found by then is taken.
    memory(0, 2, best);
    run(&world, 60);
    assert_eq!((candidates(), wakes(&world)), (vec![2], vec![15]));
    assert_eq!(
        world.samples("karpenter_voluntary_disruption_consolidation_timeouts_total"),
        ["karpenter_voluntary_disruption_consolidation_timeouts_total{consolidation_type=multi} 1"]
    );
}
