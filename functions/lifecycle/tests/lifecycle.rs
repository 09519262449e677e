//! The function against its fakes: claims that come up, with processes that die at every port call.
#![allow(clippy::needless_pass_by_value)] // Builders take literals.

mod support;

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_model::{
    EC2NodeClass, NodeClaim, NodePool, ProviderId, conditions,
    core::{Node, Pod},
    meta::apply_merge_patch,
};
use spokeshave_ports::Concern;
use support::{Delivery, Kill, Stage, at};

const ID: &str = "aws:///us-west-2a/i-0abc";
const LIFECYCLE: Concern = Concern::Lifecycle;

fn claim(stage: &Stage, changes: Value) {
    let mut base = json!({
        "metadata": {"name": "c", "uid": "uc", "generation": 1, "resourceVersion": "1",
            "creationTimestamp": "2024-03-01T10:00:00Z", "finalizers": ["karpenter.sh/termination"],
            "labels": {"karpenter.k8s.aws/ec2nodeclass": "default", "karpenter.sh/nodepool": "np",
                "karpenter.sh/capacity-type": "spot", "node.kubernetes.io/instance-type": "m5.large",
                "kubernetes.io/arch": "amd64"},
            "ownerReferences": [{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "np", "uid": "up"}]},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [], "expireAfter": "Never"},
        "status": {"providerID": ID, "imageID": "ami-1", "conditions": [
            {"type": "Launched", "status": "True", "reason": "Launched", "observedGeneration": 1,
                "lastTransitionTime": "2024-03-01T10:00:05Z"}]}});
    apply_merge_patch(&mut base, &changes);
    stage.add::<NodeClaim>(base);
}

fn grown(stage: &Stage, changes: Value) {
    let since = "2024-03-01T10:01:00Z";
    let is_true = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": type_,
        "observedGeneration": 1, "lastTransitionTime": since})
    };
    let conditions = [
        "Launched",
        "Registered",
        "Initialized",
        "ConsistentStateFound",
        "Consolidatable",
        "Ready",
    ];
    let mut base = json!({"status": {"nodeName": "n", "conditions": conditions.map(is_true)}});
    apply_merge_patch(&mut base, &changes);
    claim(stage, base);
    node(
        stage,
        json!({
        "metadata": {"finalizers": ["karpenter.sh/termination"],
            "labels": {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
                "karpenter.sh/nodepool": "np", "karpenter.k8s.aws/ec2nodeclass": "default"},
            "ownerReferences": [{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "c", "uid": "uc"}]},
        "spec": {"taints": null}}),
    );
}

fn node(stage: &Stage, changes: Value) {
    let mut base = json!({
        "metadata": {"name": "n", "uid": "un", "resourceVersion": "1", "creationTimestamp": "2024-03-01T10:00:40Z"},
        "spec": {"providerID": ID, "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    apply_merge_patch(&mut base, &changes);
    stage.add::<Node>(base);
}

fn pool(stage: &Stage, changes: Value) {
    let mut base = json!({
        "metadata": {"name": "np", "uid": "up", "generation": 1, "resourceVersion": "1"},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef":
            {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}}});
    apply_merge_patch(&mut base, &changes);
    stage.add::<NodePool>(base);
}

fn class(stage: &Stage, changes: Value) {
    let mut base = json!({
        "metadata": {"name": "default", "uid": "uk", "generation": 1, "resourceVersion": "1"},
        "spec": {},
        "status": {"amis": [{"id": "ami-1", "requirements": [
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}],
            "securityGroups": [{"id": "sg-1"}], "subnets": [{"id": "subnet-1", "zone": "us-west-2a"}]}});
    apply_merge_patch(&mut base, &changes);
    stage.add::<EC2NodeClass>(base);
}

fn launch(stage: &Stage) {
    stage.launch("i-0abc");
    for instance in stage.fake.instances.borrow_mut().iter_mut() {
        instance.security_groups = vec!["sg-1".into()];
        instance.subnet_id = "subnet-1".into();
    }
}

/// Delivers everything that is due until `until`.
fn play(stage: &Stage, until: Timestamp) {
    loop {
        while let Some((concern, works)) = stage.receive() {
            if concern == LIFECYCLE {
                stage.deliver(concern, &works, |batch, cx| async move {
                    spokeshave_lifecycle_function::handle(batch, stage, stage, stage, stage, cx)
                        .await
                });
            }
        }
        match stage.next(until) {
            Some(next) => stage.advance(next),
            None => return stage.advance(until),
        }
    }
}

fn the_claim(stage: &Stage) -> NodeClaim {
    stage.get("c").expect("there")
}

fn reason(stage: &Stage, type_: &str) -> String {
    the_claim(stage).condition(type_).map(|it| it.reason.clone()).unwrap_or_default()
}

fn health(stage: &Stage) -> Option<(String, String)> {
    let pool = stage.get::<NodePool>("np").expect("there");
    conditions::find(&pool.status.conditions, NodePool::NODE_REGISTRATION_HEALTHY)
        .map(|it| (format!("{:?}", it.status), it.reason.clone()))
}

#[test] // lifecycle 4, 5; 34.1, case 1
fn a_node_joins() {
    let stage = Stage::new("10:01:00");
    pool(&stage, json!({}));
    claim(&stage, json!({}));
    node(&stage, json!({}));
    stage.message(LIFECYCLE, "NodeChanged", &["Node/n"]);
    play(&stage, at("10:01:00"));
    let node = stage.get::<Node>("n").expect("there");
    assert_eq!(node.metadata.label("karpenter.sh/registered"), Some("true"));
    assert_eq!(node.metadata.label("karpenter.sh/initialized"), Some("true"));
    assert_eq!(node.spec.taints, []);
    let claim = the_claim(&stage);
    for type_ in ["Registered", "Initialized", "Ready", "Consolidatable", "ConsistentStateFound"] {
        assert!(claim.is_true(type_), "{type_}");
    }
    assert_eq!(health(&stage), Some(("True".into(), "NodeRegistrationHealthy".into())));
    let calls = stage.fake.calls.borrow().clone();
    assert_eq!(
        calls,
        [
            "patch Node/n",
            "write registration-health/up",
            "patch-status NodePool/np",
            "patch-status NodeClaim/c"
        ],
        "one patch of the node"
    );
    assert_eq!(stage.pending(LIFECYCLE), [], "at rest");
    stage.message(LIFECYCLE, "NodeChanged", &["Node/n"]);
    stage.message(LIFECYCLE, "NodeClaimChanged", &["NodeClaim/c"]);
    play(&stage, at("10:01:00"));
    assert_eq!(stage.fake.calls.borrow().len(), calls.len(), "nothing more to write");
}

#[test] // lifecycle 35.1, case 1; 34.1, cases 1 and 6; bug report B-026: the claim that never registers goes
fn a_claim_waits_for_its_node_with_one_message() {
    let stage = Stage::new("10:00:10");
    pool(&stage, json!({}));
    claim(&stage, json!({}));
    for _ in 0..3 {
        stage.message(LIFECYCLE, "NodeClaimChanged", &["NodeClaim/c"]);
        play(&stage, at("10:00:10"));
    }
    assert_eq!(stage.pending(LIFECYCLE), [(890, "Wake".to_owned())]);
    assert_eq!(reason(&stage, "Registered"), "NodeNotFound");
    play(&stage, at("10:15:00"));
    assert_eq!(the_claim(&stage).metadata.deletion_timestamp, Some(at("10:15:00")));
    assert_eq!(
        stage.fake.samples("karpenter_nodeclaims_disrupted_total"),
        [
            "karpenter_nodeclaims_disrupted_total{reason=registration_timeout,nodepool=np,capacity_type=spot,\
          consolidation_policy=,termination_mode=graceful} 1"
        ]
    );
    stage.message(LIFECYCLE, "Wake", &["NodeClaim/gone", "Node/gone", "Pod/a/gone"]);
    play(&stage, at("10:15:01"));
}

#[test] // lifecycle 6.3, cases 2, 5, 6; scheduling 19, case 2
fn two_failures_make_a_pool_unhealthy() {
    let fail = |stage: &Stage, uid: &str, mut changes: Value| {
        changes["metadata"]["uid"] = json!(uid);
        claim(stage, changes);
        stage.message(LIFECYCLE, "Wake", &["NodeClaim/c"]);
        play(stage, stage.now());
        stage.fake.objects.borrow_mut().remove("NodeClaim/c");
    };
    let stage = Stage::new("10:20:00");
    pool(&stage, json!({}));
    fail(&stage, "u0", json!({"metadata": {"ownerReferences": null}}));
    fail(&stage, "u1", json!({}));
    assert_eq!(health(&stage), None);
    fail(&stage, "u2", json!({}));
    assert_eq!(health(&stage), Some(("False".into(), "RegistrationFailed".into())));

    let stage = Stage::new("10:20:00");
    pool(&stage, json!({}));
    let unlaunched = json!({"status": {"providerID": null, "conditions": [
        {"type": "Launched", "status": "Unknown", "reason": "LaunchFailed", "message": "x",
            "lastTransitionTime": "2024-03-01T10:00:00Z"}]}});
    fail(&stage, "u1", unlaunched.clone());
    fail(&stage, "u2", unlaunched);
    assert_eq!(health(&stage), Some(("False".into(), "LaunchFailed".into())));
}

#[test] // lifecycle 10.1, cases 1, 3, 4; 33.1, case 1
fn an_expired_claim_is_deleted_and_its_pods_counted() {
    let stage = Stage::new("10:30:00");
    pool(&stage, json!({"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}}));
    grown(&stage, json!({"spec": {"expireAfter": "35m", "terminationGracePeriod": "1h"}}));
    let daemon = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]);
    for (name, owners) in [("web", json!(null)), ("log", daemon)] {
        stage.add::<Pod>(json!({"metadata": {"name": name, "namespace": "a", "uid": name, "ownerReferences": owners,
            "annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "spec": {"nodeName": "n"}}));
    }
    stage.message(LIFECYCLE, "Sweep", &[]);
    play(&stage, at("10:34:59"));
    assert!(!the_claim(&stage).metadata.deleting());
    play(&stage, at("10:35:00"));
    assert!(the_claim(&stage).metadata.deleting());
    let labels = "{reason=expired,nodepool=np,capacity_type=spot,consolidation_policy=,termination_mode=eventual} 1";
    for name in
        ["karpenter_nodeclaims_disrupted_total", "karpenter_pods_disruption_initiated_total"]
    {
        assert_eq!(
            stage.fake.samples(if name.contains("pods") {
                "karpenter_pods_disruption_initiated_total"
            } else {
                "karpenter_nodeclaims_disrupted_total"
            }),
            [format!("{name}{labels}")]
        );
    }
}

#[test] // lifecycle 8.3; 34, rows 7 and 8; 36.1, case 5
fn pod_events_put_off_consolidation() {
    let stage = Stage::new("10:10:00");
    pool(&stage, json!({"spec": {"disruption": {"consolidateAfter": "30s"}}}));
    grown(&stage, json!({}));
    let event = |reason: &str, object: &str| {
        stage.message(LIFECYCLE, reason, &[object]);
        play(&stage, stage.now());
        the_claim(&stage).status.last_pod_event_time
    };
    assert_eq!(event("PodBound", "Node/n"), Some(at("10:10:00")));
    assert!(!the_claim(&stage).is_true("Consolidatable"));
    stage.advance(at("10:10:07"));
    assert_eq!(event("PodEnding", "Node/n"), Some(at("10:10:00")));
    assert_eq!(event("PodGone", "Node/n"), Some(at("10:10:00")));
    play(&stage, at("10:10:10"));
    assert_eq!(
        the_claim(&stage).status.last_pod_event_time,
        Some(at("10:10:10")),
        "the trailing one"
    );
    stage.advance(at("10:10:25"));
    assert_eq!(event("NodeChanged", "Node/n"), Some(at("10:10:10")), "no pod event");
    play(&stage, at("10:10:39"));
    assert!(!the_claim(&stage).is_true("Consolidatable"));
    play(&stage, at("10:10:40"));
    assert!(the_claim(&stage).is_true("Consolidatable"));
    assert_eq!(stage.pending(LIFECYCLE), [], "at rest");
}

#[test] // lifecycle 8.3, case 5
fn pods_of_daemon_sets_are_no_pod_events() {
    let stage = Stage::new("10:10:00");
    pool(&stage, json!({}));
    grown(&stage, json!({}));
    let owner = |version: &str, kind: &str| json!([{"apiVersion": version, "kind": kind, "name": "o", "uid": "o"}]);
    let pod = |name: &str, owners: Value| {
        stage.add::<Pod>(json!({"metadata": {"name": name, "namespace": "a", "uid": name, "ownerReferences": owners},
            "spec": {"nodeName": "n"}}));
        stage.message(LIFECYCLE, "PodBound", &[&format!("Pod/a/{name}")]);
        play(&stage, stage.now());
        the_claim(&stage).status.last_pod_event_time
    };
    assert_eq!(pod("log", owner("apps/v1", "DaemonSet")), None);
    assert_eq!(pod("mirror", owner("v1", "Node")), Some(at("10:10:00")));
}

/// The drift reason after a change, seen by `key`.
fn drift(stage: &Stage, key: &str) -> String {
    if key.is_empty() {
        stage.message(LIFECYCLE, "Sweep", &[]);
    } else {
        stage.message(LIFECYCLE, "Changed", &[key]);
    }
    play(stage, stage.now());
    reason(stage, "Drifted")
}

#[test] // lifecycle 9.1, cases 1, 6-9, 11; 35.1, case 3; aws-nodeclass 18, cases 1-8
fn drift_is_found_in_order() {
    let stage = Stage::new("10:30:00");
    let hash = |group: &str, hash: &str, version: &str| {
        json!({"metadata": {"annotations": {
        (format!("{group}-hash")): hash, (format!("{group}-hash-version")): version}}})
    };
    let np = |it: &str| hash("karpenter.sh/nodepool", it, "v3");
    let nc = |it: &str| hash("karpenter.k8s.aws/ec2nodeclass", it, "v6");
    let mut both = np("1");
    apply_merge_patch(&mut both, &nc("1"));
    pool(&stage, np("1"));
    class(&stage, nc("1"));
    grown(&stage, both);
    launch(&stage);
    assert_eq!(drift(&stage, "EC2NodeClass/default"), "");

    let instance = |groups: &[&str], subnet: &str| {
        for it in stage.fake.instances.borrow_mut().iter_mut() {
            it.security_groups = groups.iter().map(|it| (*it).to_owned()).collect();
            it.subnet_id = subnet.into();
        }
    };
    instance(&["sg-1"], "subnet-9");
    assert_eq!(drift(&stage, "NodePool/np"), "", "the instance is not looked at for a pool");
    assert_eq!(drift(&stage, ""), "SubnetDrift", "but by the sweep");
    instance(&["sg-2"], "subnet-9");
    assert_eq!(drift(&stage, "EC2NodeClass/default"), "SecurityGroupDrift");

    let mut other_image = nc("1");
    other_image["status"] = json!({"amis": [{"id": "ami-2", "requirements": []}]});
    class(&stage, other_image);
    assert_eq!(drift(&stage, "EC2NodeClass/default"), "AMIDrift");
    class(&stage, nc("2"));
    assert_eq!(drift(&stage, "EC2NodeClass/default"), "NodeClassDrift");
    pool(&stage, np("2"));
    assert_eq!(drift(&stage, "NodePool/np"), "NodePoolDrifted");
    let since = the_claim(&stage).condition("Drifted").and_then(|it| it.last_transition_time);
    assert_eq!(since, Some(at("10:30:00")));

    pool(&stage, np("1"));
    let mut broken = nc("1");
    broken["status"] = json!({"amis": []});
    class(&stage, broken);
    assert_eq!(
        drift(&stage, "EC2NodeClass/default"),
        "NodePoolDrifted",
        "an error changes nothing"
    );
    class(&stage, nc("1"));
    instance(&["sg-1"], "subnet-1");
    assert_eq!(drift(&stage, "EC2NodeClass/default"), "");
}

#[test] // lifecycle 9.1, case 15, the better outcome; 9, details; api 8, case 9
fn drift_needs_a_pool_and_a_class() {
    let stage = Stage::new("10:30:00");
    grown(&stage, json!({}));
    let mut drifted = the_claim(&stage);
    drifted.conditions_mut().set(
        "Drifted",
        spokeshave_model::ConditionStatus::True,
        "AMIDrift",
        "AMIDrift",
        at("10:10:00"),
    );
    stage.fake.add(&drifted);
    assert_eq!(drift(&stage, ""), "AMIDrift", "without its pool nothing is changed");
    pool(&stage, json!({}));
    assert_eq!(drift(&stage, ""), "", "without a class nothing has drifted");
}

#[test] // lifecycle 30.1, cases 4, 5, 7, 8
fn broken_nodes_are_repaired() {
    let broken =
        |since: &str| json!([{"type": "Ready", "status": "False", "lastTransitionTime": since}]);
    let scene = |gate: bool, claim: Value| {
        let mut stage = Stage::new("10:20:00");
        stage.settings.gates.node_repair = gate;
        pool(&stage, json!({"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}}));
        grown(&stage, claim);
        let mut node: Value =
            spokeshave_model::meta::to_value(&stage.get::<Node>("n").expect("there"));
        node["status"]["conditions"] = broken("2024-03-01T10:00:00Z");
        stage.add::<Node>(node);
        stage.message(LIFECYCLE, "NodeChanged", &["Node/n"]);
        stage
    };
    let deadline = |stage: &Stage| {
        the_claim(stage)
            .metadata
            .annotation("karpenter.sh/nodeclaim-termination-timestamp")
            .map(str::to_owned)
    };
    let stage = scene(true, json!({}));
    play(&stage, at("10:29:59"));
    assert!(!the_claim(&stage).metadata.deleting());
    play(&stage, at("10:30:00"));
    assert!(the_claim(&stage).metadata.deleting());
    assert_eq!(deadline(&stage).as_deref(), Some("2024-03-01T10:30:00Z"));
    assert_eq!(
        stage.fake.samples("karpenter_nodeclaims_unhealthy_disrupted_total"),
        [
            "karpenter_nodeclaims_unhealthy_disrupted_total{condition=ready,nodepool=np,capacity_type=spot,image_id=ami-1} 1"
        ]
    );

    let stage = scene(
        true,
        json!({"metadata": {"deletionTimestamp": "2024-03-01T10:10:00Z", "annotations": {
        "karpenter.sh/nodeclaim-termination-timestamp": "2024-03-01T12:00:00Z"}}}),
    );
    play(&stage, at("10:40:00"));
    assert_eq!(deadline(&stage).as_deref(), Some("2024-03-01T10:30:00Z"));
    assert_eq!(stage.fake.samples("karpenter_nodeclaims_disrupted_total"), [] as [&str; 0]);

    let stage = scene(false, json!({}));
    play(&stage, at("10:40:00"));
    assert_eq!((deadline(&stage), the_claim(&stage).metadata.deleting()), (None, false));

    let stage = scene(true, json!({}));
    for at in 0..2 {
        stage.add::<Node>(json!({"metadata": {"name": format!("m{at}"), "uid": format!("um{at}"),
                "labels": {"karpenter.sh/nodepool": "np"}},
            "status": {"conditions": broken("2024-03-01T10:25:00Z")}}));
    }
    play(&stage, at("10:30:00"));
    assert!(!the_claim(&stage).metadata.deleting(), "three of three are broken");
    assert!(stage.fake.event_reasons().contains(&"Node/n NodeRepairBlocked".to_owned()));
    assert_eq!(stage.pending(LIFECYCLE), [(300, "Wake".to_owned())]);
}

#[test] // aws-nodeclass 18, case 9
fn a_partition_is_waited_for() {
    let stage = Stage::new("10:01:00");
    pool(&stage, json!({}));
    claim(
        &stage,
        json!({"metadata": {"labels": {"karpenter.k8s.aws/placement-group-id": "pg-1",
        "karpenter.k8s.aws/placement-group-partition": ""}}}),
    );
    node(&stage, json!({}));
    launch(&stage);
    stage.message(LIFECYCLE, "NodeChanged", &["Node/n"]);
    play(&stage, at("10:01:01"));
    assert_eq!(reason(&stage, "Registered"), "RegistrationHookPending");
    stage.fake.instances.borrow_mut()[0].partition = Some(3);
    play(&stage, at("10:01:02"));
    assert!(the_claim(&stage).is_true("Registered"));
    let label = "karpenter.k8s.aws/placement-group-partition";
    assert_eq!(the_claim(&stage).metadata.label(label), Some("3"));
    assert_eq!(stage.get::<Node>("n").expect("there").metadata.label(label), Some("3"));
}

#[test] // B-080: what is there by name is not gone, whatever a list says of its provider id
fn a_node_that_registers_again_is_not_lost() {
    for (there, goes) in [(true, false), (false, true)] {
        let stage = Stage::new("10:30:00");
        pool(&stage, json!({}));
        grown(&stage, json!({}));
        let mut node: Node = stage.get("n").expect("there");
        node.spec.provider_id = ProviderId::default();
        stage.fake.add(&node);
        if !there {
            stage.fake.objects.borrow_mut().remove("Node/n");
        }
        stage.message(LIFECYCLE, "Sweep", &[]);
        play(&stage, at("10:30:00"));
        assert_eq!(the_claim(&stage).metadata.deleting(), goes, "{there}");
    }
}

#[test] // B-080
fn a_node_that_vanished_takes_its_claim_along() {
    let stage = Stage::new("10:30:00");
    pool(&stage, json!({}));
    grown(&stage, json!({}));
    stage.fake.objects.borrow_mut().remove("Node/n");
    stage.message(LIFECYCLE, "NodeGone", &["Node/n"]);
    play(&stage, at("10:30:00"));
    assert!(the_claim(&stage).metadata.deleting());
}

#[test] // lifecycle 1.3, writes; 4, step 7
fn a_conflict_is_answered_with_a_fresh_look() {
    let stage = Stage::new("10:01:00");
    pool(&stage, json!({}));
    claim(&stage, json!({}));
    node(&stage, json!({}));
    stage.fake.fail("patch Node/n", "Conflict");
    stage.message(LIFECYCLE, "NodeChanged", &["Node/n"]);
    play(&stage, at("10:01:00"));
    assert!(!the_claim(&stage).is_true("Registered"));
    assert_eq!(stage.pending(LIFECYCLE), [(1, "Retry".to_owned())]);
    play(&stage, at("10:01:01"));
    assert_eq!(stage.pending(LIFECYCLE), [(2, "Retry".to_owned())], "the pause doubles");
    stage.fake.mend("patch Node/n");
    play(&stage, at("10:01:03"));
    assert!(the_claim(&stage).is_true("Registered"));
}

#[test]
fn a_malformed_message_is_dropped_alone() {
    let stage = Stage::new("10:01:00");
    pool(&stage, json!({}));
    claim(&stage, json!({}));
    node(&stage, json!({}));
    let record = |id: &str, body: &str| spokeshave_lambda::SqsRecord {
        message_id: id.into(),
        body: body.into(),
        ..spokeshave_lambda::SqsRecord::default()
    };
    let good = r#"{"reason":"NodeChanged","keys":[{"kind":"Node","name":"n"}]}"#;
    let batch =
        spokeshave_lambda::SqsBatch { records: vec![record("a", "abcd"), record("b", good)] };
    let stage = &stage;
    let answer = stage.deliver(LIFECYCLE, &[], |_, cx| async move {
        spokeshave_lifecycle_function::handle(&batch, stage, stage, stage, stage, cx).await
    });
    assert_eq!(answer, Some(spokeshave_lambda::BatchAnswer::done()));
    assert!(stage.told().contains(&"drop Message/a".to_owned()));
    assert!(the_claim(stage).is_true("Registered"));
}

#[test] // lifecycle 5.1, case 7
fn drivers_of_devices_are_waited_for() {
    let mut stage = Stage::new("10:01:00");
    stage.settings.ignore_dra_requests = false;
    pool(&stage, json!({}));
    claim(
        &stage,
        json!({"metadata": {"annotations": {"karpenter.sh/requested-dra-drivers": "gpu.x"}}}),
    );
    node(&stage, json!({}));
    stage.message(LIFECYCLE, "NodeChanged", &["Node/n"]);
    play(&stage, at("10:01:00"));
    assert_eq!(reason(&stage, "Initialized"), "DRADriverPoolsNotPublished");
    stage.add::<spokeshave_model::core::ResourceSlice>(json!({"metadata": {"name": "s"},
        "spec": {"driver": "gpu.x", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}));
    stage.message(LIFECYCLE, "NodeClaimChanged", &["NodeClaim/c"]);
    play(&stage, at("10:01:00"));
    assert!(the_claim(&stage).is_true("Initialized"));
}

#[test]
fn a_process_may_die_at_any_call() {
    let scene = || {
        let stage = Stage::new("10:01:00");
        pool(&stage, json!({"spec": {"disruption": {"consolidateAfter": "1m"}}}));
        class(&stage, json!({}));
        claim(&stage, json!({"metadata": {"finalizers": null}}));
        node(&stage, json!({}));
        launch(&stage);
        stage.message(LIFECYCLE, "NodeChanged", &["Node/n"]);
        stage.message(LIFECYCLE, "PodBound", &["Node/n"]);
        stage
    };
    let undisturbed = scene();
    play(&undisturbed, at("10:05:00"));
    let total = undisturbed.calls.get();
    assert!(total > 15, "{total} calls");
    for call in 1..=total {
        for (kill, delivery) in [
            (Kill::Before(call), Delivery::InOrder),
            (Kill::After(call), Delivery::InOrder),
            (Kill::After(call), Delivery::Twice),
            (Kill::After(call), Delivery::Backwards),
        ] {
            let stage = scene();
            stage.kill.set(kill);
            stage.delivery.set(delivery);
            play(&stage, at("10:05:00"));
            let claim = the_claim(&stage);
            for type_ in ["Registered", "Initialized", "Ready", "Consolidatable"] {
                assert!(claim.is_true(type_), "{kill:?}: {type_}");
            }
            assert!(claim.metadata.has_finalizer("karpenter.sh/termination"), "{kill:?}");
            let node = stage.get::<Node>("n").expect("there");
            assert_eq!(node.spec.taints, [], "{kill:?}");
            assert_eq!(node.metadata.owner_references.len(), 1, "{kill:?}");
            let outcomes = stage.fake.records.borrow().values().next().cloned();
            let outcomes = outcomes.expect("remembered").data["outcomes"].as_array().map(Vec::len);
            assert!(outcomes.is_none_or(|it| it == 1), "{kill:?}: counted {outcomes:?} times");
        }
    }
}

/// What is known of the memory of a type, by the sort key of its record.
fn memories(stage: &Stage) -> Vec<(String, String)> {
    let records = stage.fake.records.borrow();
    let known = records.iter().filter(|(key, _)| key.partition == "memory");
    let text = |it: &Value| it["memory"].as_str().unwrap_or_default().to_owned();
    known.map(|(key, record)| (key.sort.clone(), text(&record.data))).collect()
}

#[test] // aws-capacity 2, cases 7-9; bug report B-043
fn a_registered_node_tells_its_memory() {
    let join = |stage: &Stage, memory: Value, image: &str, architecture: &str| {
        stage.fake.objects.borrow_mut().clear();
        pool(stage, json!({}));
        let image_of = |id: &str, architecture: &str| {
            json!({"id": id, "requirements": [
                {"key": "kubernetes.io/arch", "operator": "In", "values": [architecture]}]})
        };
        let images = [image_of("ami-arm", "arm64"), image_of("ami-amd", "amd64")];
        class(stage, json!({"status": {"amis": images}}));
        claim(stage, json!({"status": {"imageID": image}}));
        node(
            stage,
            json!({"metadata": {"labels": {"kubernetes.io/arch": architecture}},
                "status": {"capacity": {"memory": memory}}}),
        );
        stage.message(LIFECYCLE, "NodeChanged", &["Node/n"]);
        play(stage, stage.now());
        let node = stage.get::<Node>("n").expect("there");
        assert_eq!(node.metadata.label("karpenter.sh/registered"), Some("true"));
        memories(stage).into_iter().map(|it| it.1).collect::<Vec<_>>()
    };
    let stage = Stage::new("10:01:00");
    // An image that the class would not pick now, or not for this node, says nothing.
    assert_eq!(join(&stage, json!("15000000Ki"), "ami-old", "amd64"), [""; 0]);
    assert_eq!(join(&stage, json!("15000000Ki"), "ami-arm", "amd64"), [""; 0]);
    assert_eq!(join(&stage, Value::Null, "ami-amd", "amd64"), [""; 0]);
    // The image's place in the list does not matter; what is known never rises.
    assert_eq!(join(&stage, json!("15513136Ki"), "ami-amd", "amd64"), ["15513136Ki"]);
    assert_eq!(join(&stage, json!("15600000Ki"), "ami-amd", "amd64"), ["15513136Ki"]);
    assert_eq!(join(&stage, json!("15400000Ki"), "ami-amd", "amd64"), ["15400000Ki"]);
    let [(key, _)] = &memories(&stage)[..] else { panic!("one") };
    assert!(key.starts_with("m5.large/"), "{key}");
    // Without the table a node still registers.
    stage.fake.fail(&format!("write memory/{key}"), "Unavailable");
    assert_eq!(join(&stage, json!("15300000Ki"), "ami-amd", "amd64"), ["15400000Ki"]);
}

#[test] // aws-capacity 20: calls per node
fn a_sweep_describes_instances_in_as_few_calls_as_paging_needs() {
    for (count, calls) in [(2, "2 ids"), (200, "200 ids"), (1000, "list")] {
        let mut stage = Stage::new("10:20:00");
        stage.settings.cluster_name = "c1".into();
        pool(&stage, json!({}));
        class(&stage, json!({}));
        for n in 0..count {
            let (name, id) = (format!("c{n:04}"), format!("i-{n:017x}"));
            let provider = format!("aws:///us-west-2a/{id}");
            grown(
                &stage,
                json!({"metadata": {"name": name, "uid": name},
                    "status": {"providerID": provider, "nodeName": name}}),
            );
            stage.fake.objects.borrow_mut().remove("Node/n");
            node(
                &stage,
                json!({"metadata": {"name": name, "uid": format!("n{n}"),
                        "finalizers": ["karpenter.sh/termination"],
                        "labels": {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}},
                    "spec": {"providerID": provider, "taints": null}}),
            );
            stage.launch(&id);
        }
        for instance in stage.fake.instances.borrow_mut().iter_mut() {
            instance.security_groups = vec!["sg-1".into()];
            instance.subnet_id = "subnet-1".into();
            instance.tags.insert("eks:eks-cluster-name".into(), "c1".into());
        }
        stage.message(LIFECYCLE, "Schedule", &[]);
        play(&stage, at("10:20:00"));
        assert_eq!(*stage.describes.borrow(), [calls], "{count} nodes");
    }
}

#[test] // lifecycle 34.1, case 3
fn what_is_due_in_a_month_is_found_by_the_sweep() {
    let created = at("10:00:00");
    let hours = |n: i64| created + jiff::SignedDuration::from_hours(n);
    let stage = Stage::new("10:30:00");
    pool(&stage, json!({}));
    grown(&stage, json!({"spec": {"expireAfter": "720h"}}));
    stage.message(LIFECYCLE, "NodeClaimChanged", &["NodeClaim/c"]);
    play(&stage, at("10:30:00"));
    assert_eq!(stage.pending(LIFECYCLE), [], "no message can be delayed for so long");
    stage.advance(hours(720) - jiff::SignedDuration::from_mins(16));
    stage.message(LIFECYCLE, "Sweep", &[]);
    play(&stage, stage.now());
    assert_eq!(stage.pending(LIFECYCLE), [], "still too far off");
    stage.advance(hours(720) - jiff::SignedDuration::from_mins(6));
    stage.message(LIFECYCLE, "Sweep", &[]);
    play(&stage, stage.now());
    assert_eq!(stage.pending(LIFECYCLE), [(360, "Wake".to_owned())]);
    play(&stage, hours(720) - jiff::SignedDuration::from_secs(1));
    assert!(!the_claim(&stage).metadata.deleting());
    play(&stage, hours(720));
    assert_eq!(the_claim(&stage).metadata.deletion_timestamp, Some(hours(720)));
}
