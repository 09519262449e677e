//! The function against its fakes: whole ends of nodes, with processes that die at every port call.
#![allow(clippy::needless_pass_by_value)] // Builders take literals.

#[path = "../../lifecycle/tests/support/mod.rs"]
mod support;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_model::{
    ConditionStatus, NodeClaim,
    core::{Node, PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment},
    meta::apply_merge_patch,
};
use spokeshave_ports::{Concern, StateKey, StateTable, When, fake::block_on};
use support::{Delivery, Kill, Stage, at};

const ID: &str = "aws:///us-west-2a/i-0abc";

fn claim(stage: &Stage, changes: Value) {
    let since = "2024-03-01T09:00:00Z";
    let mut base = json!({
        "metadata": {"name": "c", "uid": "uc", "generation": 1, "resourceVersion": "1", "creationTimestamp": since,
            "finalizers": ["karpenter.sh/termination"],
            "labels": {"karpenter.k8s.aws/ec2nodeclass": "default", "karpenter.sh/nodepool": "np"}},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": []},
        "status": {"providerID": ID, "nodeName": "n", "conditions": [
            {"type": "Launched", "status": "True", "reason": "Launched", "lastTransitionTime": since},
            {"type": "Registered", "status": "True", "reason": "Registered", "lastTransitionTime": since},
            {"type": "Initialized", "status": "True", "reason": "Initialized", "lastTransitionTime": since},
            {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": since}]}});
    apply_merge_patch(&mut base, &changes);
    stage.add::<NodeClaim>(base);
}

fn node(stage: &Stage, changes: Value) {
    let mut base = json!({
        "metadata": {"name": "n", "uid": "un", "resourceVersion": "1", "creationTimestamp": "2024-03-01T09:00:00Z",
            "finalizers": ["karpenter.sh/termination"],
            "labels": {"karpenter.k8s.aws/ec2nodeclass": "default", "karpenter.sh/nodepool": "np",
                "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"},
            "ownerReferences": [{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "c", "uid": "uc"}]},
        "spec": {"providerID": ID},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    apply_merge_patch(&mut base, &changes);
    stage.add::<Node>(base);
}

fn pod(stage: &Stage, name: &str, changes: Value) {
    let mut base = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 10},
        "status": {"phase": "Running"}});
    apply_merge_patch(&mut base, &changes);
    stage.add::<Pod>(base);
}

/// A claim with its node, its instance and a few pods, deleted at 10:00:00.
fn deleted_node(clock: &str, grace: Value) -> Stage {
    let stage = Stage::new(clock);
    let deleted = "2024-03-01T10:00:00Z";
    claim(
        &stage,
        json!({"metadata": {"deletionTimestamp": deleted, "generation": 2},
        "spec": {"terminationGracePeriod": grace}}),
    );
    node(&stage, json!({}));
    stage.launch("i-0abc");
    stage
}

/// Delivers everything until nothing happens any more, or it is `until`; a sweep every ten minutes.
fn play(stage: &Stage, until: Timestamp) {
    let mut sweep = stage.now() + SignedDuration::from_mins(10);
    loop {
        while let Some((concern, works)) = stage.receive() {
            if concern == Concern::Termination {
                stage.deliver(concern, &works, |batch, cx| async move {
                    let groups = stage;
                    spokeshave_termination_function::handle(
                        batch, stage, stage, groups, stage, stage, cx,
                    )
                    .await
                });
            }
        }
        let next = stage.next(until).map_or(sweep, |it| it.min(sweep));
        if next > until {
            stage.advance(until);
            return;
        }
        stage.advance(next);
        if next == sweep {
            stage.message(Concern::Termination, "Sweep", &[]);
            sweep += SignedDuration::from_mins(10);
        }
    }
}

fn is_over(stage: &Stage) -> bool {
    stage.get::<NodeClaim>("c").is_none()
        && stage.get::<Node>("n").is_none()
        && stage.instance_state("i-0abc") == "gone"
}

/// The order of irrevocable calls.
fn calls(stage: &Stage, of: &[&str]) -> Vec<String> {
    let calls = stage.fake.calls.borrow();
    calls.iter().filter(|it| of.iter().any(|verb| it.starts_with(verb))).cloned().collect()
}

#[test] // lifecycle 27, step 2, without a claim
fn a_silent_node_that_nobody_claims_is_let_go_when_its_instance_is_gone() {
    for (instance, ready, over_by) in
        [(false, "Unknown", Some("10:00:00")), (true, "Unknown", None), (false, "True", None)]
    {
        let stage = Stage::new("10:00:00");
        let conditions = json!([{"type": "Ready", "status": ready}]);
        node(
            &stage,
            json!({"metadata": {"deletionTimestamp": "2024-03-01T10:00:00Z"},
                "status": {"conditions": conditions}}),
        );
        pod(
            &stage,
            "held",
            json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}),
        );
        if instance {
            stage.launch("i-0abc");
        }
        stage.message(Concern::Termination, "NodeDeleting", &["Node/n"]);
        play(&stage, at("10:00:00"));
        assert_eq!(stage.get::<Node>("n").is_none(), over_by.is_some(), "{instance} {ready}");
        play(&stage, at("10:30:00"));
        assert_eq!(stage.get::<Node>("n").is_none(), over_by.is_some(), "{instance} {ready}");
        assert_eq!(calls(&stage, &["evict", "terminate", "delete"]), [""; 0]);
    }
}

#[test] // two runs at once, with the condition written by neither
fn one_of_two_runs_ends_the_instance() {
    let stage = deleted_node("10:00:00", json!(null));
    let asked = StateKey::new("ended", "i-0abc");
    let until = Some(at("10:00:04"));
    block_on(StateTable::write(&stage, &asked, Value::Null, until, When::Absent)).expect("written");
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:00:04"));
    assert_eq!(calls(&stage, &["terminate"]), [""; 0], "the other one has just asked");
    // It never got to it: whoever stood back asks at the next look.
    play(&stage, at("10:10:00"));
    assert_eq!(calls(&stage, &["terminate"]), ["terminate i-0abc"]);
    assert!(is_over(&stage));
    // A call that failed keeps nobody from the next.
    let stage = deleted_node("10:00:00", json!(null));
    stage.fake.fail("terminate i-0abc", "RequestLimitExceeded");
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:00:01"));
    let left = block_on(StateTable::read(&stage, &asked)).expect("read");
    assert_eq!(left, None);
}

#[test] // lifecycle 27.1, case 1; 28.7, case 1
fn a_deleted_claim_ends_in_order() {
    let stage = deleted_node("10:00:00", json!(null));
    pod(&stage, "web", json!({}));
    pod(
        &stage,
        "log",
        json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "log", "uid": "d"}]}}),
    );
    pod(&stage, "proxy", json!({"spec": {"tolerations": [{"operator": "Exists"}]}}));
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:10:00"));
    assert!(is_over(&stage));
    assert_eq!(
        calls(&stage, &["delete", "evict", "terminate"]),
        ["delete Node/n", "evict Pod/default/web", "evict Pod/default/log", "terminate i-0abc"]
    );
    assert_eq!(
        stage.told(),
        [
            "delete Node/n",
            "taint Node/n",
            "evict Pod/default/web",
            "evict Pod/default/log",
            "terminate Node/n",
            "release Node/n",
            "release NodeClaim/c"
        ]
    );
    // lifecycle 33.1, case 5
    assert_eq!(
        stage.fake.samples("karpenter_pods_eviction_requests_total"),
        [
            "karpenter_pods_eviction_requests_total{code=200} 1",
            "karpenter_pods_eviction_requests_total{code=200} 1"
        ]
    );
    assert_eq!(
        stage.fake.samples("karpenter_pods_drained_total"),
        [
            "karpenter_pods_drained_total{reason=Forceful Termination} 1",
            "karpenter_pods_drained_total{reason=Forceful Termination} 1"
        ]
    );
    assert_eq!(stage.fake.samples("karpenter_nodeclaims_disrupted_total"), [] as [&str; 0]);
    assert_eq!(stage.pending(Concern::Termination), [], "at rest");
}

#[test] // lifecycle 28.7, case 2; 35.1, case 2
fn a_budget_holds_the_drain_until_it_allows() {
    let stage = deleted_node("10:00:00", json!(null));
    pod(&stage, "web", json!({}));
    stage.blocked.borrow_mut().insert("web".into());
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:30:00"));
    assert!(!is_over(&stage));
    assert_eq!(calls(&stage, &["evict", "terminate"]), [] as [&str; 0]);
    let texts: Vec<String> = stage
        .fake
        .events
        .borrow()
        .iter()
        .filter(|it| it.reason == "FailedDraining")
        .map(|it| it.message.clone())
        .collect();
    assert!(texts.contains(
        &"Failed to drain node, evicting pod violates a PDB (Pod=default/web)".to_owned()
    ));
    assert!(texts.contains(&"Failed to drain node, 1 pods are waiting to be evicted".to_owned()));
    let asked = stage.fake.samples("karpenter_pods_eviction_requests_total").len();
    assert!(asked < 40, "asked {asked} times in half an hour");
    assert_eq!(stage.pending(Concern::Termination), [], "only events and the sweep are left");
    stage.blocked.borrow_mut().clear();
    stage.message(Concern::Termination, "EvictionUnblocked", &["PodDisruptionBudget/default/web"]);
    play(&stage, at("10:33:00"));
    assert!(is_over(&stage));
}

#[test] // B-082
fn the_deadline_is_kept() {
    let stage = deleted_node("10:00:00", json!("4h"));
    stage.blocked.borrow_mut().insert("p".into());
    let held = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        "spec": {"terminationGracePeriodSeconds": 60}});
    pod(&stage, "p", json!({"spec": {"terminationGracePeriodSeconds": 1800}}));
    pod(&stage, "q", held);
    pod(&stage, "r", json!({"spec": {"terminationGracePeriodSeconds": 18000}}));
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    let deleted = |until: &str| {
        play(&stage, at(until));
        calls(&stage, &["delete Pod"])
    };
    assert_eq!(deleted("10:00:30"), ["delete Pod/default/r"]);
    assert_eq!(deleted("13:29:59").len(), 1);
    assert_eq!(deleted("13:30:30")[1..], ["delete Pod/default/p"]);
    assert_eq!(deleted("13:58:59").len(), 2);
    assert_eq!(deleted("13:59:30")[2..], ["delete Pod/default/q"]);
    play(&stage, at("14:01:30"));
    assert!(is_over(&stage));
}

#[test] // B-083; lifecycle 29.3, case 2
fn volumes_are_detached_first() {
    let stage = deleted_node("10:00:00", json!(null));
    let volume = |claim: &str| {
        json!({"spec": {"volumes": [
        {"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}})
    };
    pod(&stage, "web", volume("v1"));
    let mut staying = volume("v2");
    staying["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    pod(&stage, "agent", staying);
    for name in ["v1", "v2", "v3"] {
        let pv = format!("pv-{name}");
        stage.add::<VolumeAttachment>(json!({"metadata": {"name": name},
            "spec": {"nodeName": "n", "source": {"persistentVolumeName": pv}}}));
        stage.add::<PersistentVolumeClaim>(
            json!({"metadata": {"name": name, "namespace": "default"},
            "spec": {"volumeName": pv}}),
        );
        if name != "v3" {
            stage.add::<PersistentVolume>(json!({"metadata": {"name": pv}, "spec": {}}));
        }
    }
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:00:40"));
    assert_eq!(calls(&stage, &["terminate"]), [] as [&str; 0], "v1 is there");
    stage.fake.objects.borrow_mut().remove("VolumeAttachment/v1");
    stage.message(Concern::Termination, "VolumeDetached", &["Node/n"]);
    play(&stage, at("10:05:00"));
    assert!(is_over(&stage));
}

#[test] // lifecycle 3.1, case 2; 26.1, cases 5 and 7; B-079
fn claims_without_an_instance_go_at_once() {
    let stage = Stage::new("10:00:00");
    claim(
        &stage,
        json!({"metadata": {"deletionTimestamp": "2024-03-01T10:00:00Z"},
        "status": {"providerID": null, "nodeName": null, "conditions": null}}),
    );
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:00:01"));
    assert_eq!(stage.get::<NodeClaim>("c"), None);
    assert_eq!(calls(&stage, &["terminate"]), [] as [&str; 0]);
}

/// A claim that was deleted while it was being launched by attempt `a`.
fn launching(state: &str, outcome: Value) -> Stage {
    let stage = Stage::new("10:00:00");
    claim(
        &stage,
        json!({"metadata": {"deletionTimestamp": "2024-03-01T10:00:00Z",
            "annotations": {"spokeshave.dev/launch-attempt": "a"}},
        "status": {"providerID": null, "nodeName": null, "conditions": null}}),
    );
    let record = json!({"id": "a", "state": state, "created": "2024-03-01T09:59:58Z",
        "claims": {"uc": "c", "ud": "d"}, "request": {"target": 2}, "outcomes": outcome});
    let key = StateKey::new("attempt", "a");
    block_on(stage.fake.write(&key, record, None, When::Always)).expect("written");
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    stage
}

fn tagged(stage: &Stage, id: &str) {
    stage.launch(id);
    for instance in stage.fake.instances.borrow_mut().iter_mut().filter(|it| it.id.as_str() == id) {
        instance.tags.insert("spokeshave.dev/launch".into(), "a".into());
    }
}

#[test] // B-075
fn a_claim_deleted_while_it_launches_leaks_nothing() {
    for (what, state, instances, expected) in [
        ("nothing was sent", "preparing", vec![], vec![]),
        ("given up", "void", vec![], vec![]),
        ("no instance", "failed", vec![], vec![]),
        ("sent, and both came", "open", vec!["i-1", "i-2"], vec!["terminate i-1"]),
        ("sent, and one came: collected as a leak", "open", vec!["i-1"], vec![]),
        ("sent, and nothing came", "open", vec![], vec![]),
    ] {
        let stage = launching(state, json!({}));
        for id in instances {
            tagged(&stage, id);
        }
        play(&stage, at("10:00:04"));
        let waits = matches!(state, "preparing" | "open");
        assert_eq!(stage.get::<NodeClaim>("c").is_some(), waits, "{what}");
        play(&stage, at("10:07:00"));
        assert_eq!(stage.get::<NodeClaim>("c"), None, "{what}");
        assert_eq!(calls(&stage, &["terminate"]), expected, "{what}");
    }
    let launched = json!({"uc": {"kind": "instance", "instance": {"id": "i-7", "instanceType": "m5.large",
        "zone": "us-west-2a", "imageId": "ami", "capacityType": "spot", "tenancy": "default", "efa": 0}}});
    let stage = launching("launched", launched);
    tagged(&stage, "i-7");
    play(&stage, at("10:02:00"));
    assert_eq!(stage.get::<NodeClaim>("c"), None);
    assert_eq!(calls(&stage, &["terminate"]), ["terminate i-7"]);
}

#[test] // lifecycle 26.1, case 7
fn a_refused_termination_is_tried_again() {
    let stage = deleted_node("10:00:00", json!(null));
    stage.fake.fail("terminate i-0abc", "UnauthorizedOperation");
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:05:00"));
    assert!(stage.get::<NodeClaim>("c").is_some() && stage.get::<Node>("n").is_some());
    // Told at once, and on the claim for as long as it lasts.
    let told = "Instance i-0abc cannot be terminated: UnauthorizedOperation: told to fail (fake:Call, not retryable); \
         allow the call to the function's role, or find the policy that denies it";
    let events = stage.fake.events.borrow().clone();
    let of_claim: Vec<_> = events.iter().filter(|it| it.reason == "FailedTermination").collect();
    assert!(of_claim.iter().any(|it| it.kind == "NodeClaim" && it.warning && it.message == told));
    let claim = stage.get::<NodeClaim>("c").expect("is not released");
    let condition = claim.condition(NodeClaim::INSTANCE_TERMINATING).expect("is said");
    assert_eq!(
        (condition.status, condition.reason.as_str(), condition.message.as_str()),
        (ConditionStatus::Unknown, "FailedTermination", told)
    );
    let pending = stage.pending(Concern::Termination);
    assert!(pending.iter().all(|(seconds, _)| *seconds <= 60), "{pending:?}");
    stage.fake.mend("terminate i-0abc");
    play(&stage, at("10:12:00"));
    assert!(is_over(&stage));
}

#[test] // lifecycle 26.1, case 8
fn both_nodes_of_a_claim_go() {
    let stage = deleted_node("10:00:00", json!(null));
    node(&stage, json!({"metadata": {"name": "m", "uid": "um"}}));
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:05:00"));
    assert!(is_over(&stage));
    assert_eq!(stage.get::<Node>("m"), None);
}

#[test] // lifecycle 26.1, case 6
fn an_unregistered_node_is_left_alone() {
    let stage = deleted_node("10:00:00", json!(null));
    let claim = stage.get::<NodeClaim>("c").expect("there");
    let mut unregistered = claim;
    unregistered.status.conditions.retain(|it| it.type_ == "Launched");
    stage.fake.add(&unregistered);
    node(&stage, json!({"metadata": {"finalizers": null, "ownerReferences": null}}));
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:05:00"));
    assert!(stage.get::<Node>("n").is_some());
    assert_eq!(stage.get::<NodeClaim>("c"), None);
    assert_eq!(stage.instance_state("i-0abc"), "gone");
}

#[test] // lifecycle 34.1, case 6; B-068's kind of fault
fn odd_messages_do_no_harm() {
    let stage = Stage::new("10:00:00");
    stage.message(
        Concern::Termination,
        "Wake",
        &["NodeClaim/gone", "Node/gone", "Pod/a/gone", "Secret/a/b"],
    );
    play(&stage, at("10:00:01"));
    assert_eq!(calls(&stage, &[""]), [] as [&str; 0]);
}

#[test]
fn a_process_may_die_at_any_call() {
    let scene = || {
        let stage = deleted_node("10:00:00", json!("2m"));
        pod(&stage, "web", json!({}));
        pod(&stage, "job", json!({"spec": {"terminationGracePeriodSeconds": 60}}));
        stage.blocked.borrow_mut().insert("job".into());
        stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
        stage
    };
    let undisturbed = scene();
    play(&undisturbed, at("10:15:00"));
    assert!(is_over(&undisturbed));
    let total = undisturbed.calls.get();
    assert!(total > 30, "{total} calls");
    for call in 1..=total {
        // After one call is before the next one.
        let deliveries: &[Delivery] = match call % 6 {
            0 => &[Delivery::InOrder, Delivery::Twice],
            3 => &[Delivery::InOrder, Delivery::Backwards],
            _ => &[Delivery::InOrder],
        };
        for delivery in deliveries {
            let kill = Kill::After(call);
            let stage = scene();
            stage.kill.set(kill);
            stage.delivery.set(*delivery);
            play(&stage, at("10:15:00"));
            assert!(is_over(&stage), "{kill:?} of {total}");
            let ends = calls(&stage, &["evict", "terminate"]);
            assert_eq!(ends.first().map(String::as_str), Some("evict Pod/default/web"), "{kill:?}");
            assert!(
                ends[1..].iter().all(|it| it == "terminate i-0abc" || it.starts_with("evict")),
                "{kill:?}"
            );
            assert!(stage.get::<Pod>("default/web").is_none(), "{kill:?}");
        }
    }
}

#[test] // lifecycle 28.2, step 5; 33.1: the code is that of the answer
fn a_pod_of_the_same_name_is_not_evicted_for_the_one_that_went() {
    let stage = deleted_node("10:00:00", json!(null));
    pod(&stage, "web", json!({}));
    stage.fake.fail("evict Pod/default/web", "Conflict");
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:01:00"));
    let asked = stage.fake.samples("karpenter_pods_eviction_requests_total");
    assert!(!asked.is_empty());
    assert!(asked.iter().all(|it| it == "karpenter_pods_eviction_requests_total{code=409} 1"));
    let said = stage.fake.events.borrow();
    assert!(said.iter().all(|it| !it.message.contains("evicting pod violates")), "{said:?}");
}

#[test] // lifecycle 28.7, case 11
fn an_eviction_that_fails_is_tried_again_without_a_word_to_the_node() {
    let stage = deleted_node("10:00:00", json!(null));
    pod(&stage, "web", json!({}));
    stage.fake.fail("evict Pod/default/web", "InternalError");
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:01:00"));
    assert!(!is_over(&stage));
    let asked = stage.fake.samples("karpenter_pods_eviction_requests_total");
    assert!(asked.len() > 1, "{asked:?}");
    assert!(asked.iter().all(|it| it == "karpenter_pods_eviction_requests_total{code=500} 1"));
    let complaints: Vec<String> = stage
        .fake
        .events
        .borrow()
        .iter()
        .filter(|it| it.message.contains("Pod=default/web"))
        .map(|it| it.message.clone())
        .collect();
    assert_eq!(complaints, [] as [&str; 0]);
    stage.fake.mend("evict Pod/default/web");
    play(&stage, at("10:05:00"));
    assert!(is_over(&stage));
}

#[test] // lifecycle 28.7, case 13: the deadline is the claim's, and nobody moves it
fn a_deadline_that_is_set_stays() {
    let stage = deleted_node("10:00:00", json!("1h"));
    pod(&stage, "web", json!({"spec": {"terminationGracePeriodSeconds": 60}}));
    stage.blocked.borrow_mut().insert("web".into());
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:00:10"));
    // Without its grace period the claim keeps the deadline that was written down.
    let mut claim = stage.get::<NodeClaim>("c").expect("there");
    let deadline = "karpenter.sh/nodeclaim-termination-timestamp";
    assert_eq!(claim.metadata.annotation(deadline), Some("2024-03-01T11:00:00Z"));
    claim.spec.termination_grace_period = None;
    stage.fake.add(&claim);
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:58:59"));
    assert_eq!(calls(&stage, &["delete Pod"]), [] as [&str; 0]);
    play(&stage, at("10:59:30"));
    assert_eq!(calls(&stage, &["delete Pod"]), ["delete Pod/default/web"]);
}

fn shift(stage: &Stage, zones: &[&str], until: &str) {
    let shifts: Vec<spokeshave_ports::ZonalShift> = zones
        .iter()
        .map(|it| spokeshave_ports::ZonalShift {
            away_from: (*it).to_owned(),
            applied_status: "APPLIED".into(),
            expires_at: Some(at(until)),
        })
        .collect();
    block_on(spokeshave_catalog::zonal_shift::save(&stage.fake, &shifts, stage.now()))
        .expect("written");
}

const TERMINATION_FAILURES: &str = "karpenter_cloudprovider_instance_termination_failures_total";

#[test] // aws-capacity 12, cases 3 and 4; 23, case 6
fn an_instance_of_a_shifted_zone_is_terminated_after_the_shift() {
    let zone = json!({"metadata": {"labels": {
        "topology.kubernetes.io/zone": "us-west-2a", "topology.k8s.aws/zone-id": "usw2-az1"}}});
    for enabled in [true, false] {
        let mut stage = deleted_node("10:00:00", json!(null));
        stage.settings.enable_zonal_shift = enabled;
        let mut labelled = serde_json::to_value(stage.get::<NodeClaim>("c")).expect("writes");
        apply_merge_patch(&mut labelled, &zone);
        stage.add::<NodeClaim>(labelled);
        shift(&stage, &["usw2-az1"], "10:30:00");
        stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
        play(&stage, at("10:29:59"));
        assert_eq!(is_over(&stage), !enabled);
        let terminated = calls(&stage, &["terminate"]);
        let expected: &[&str] = if enabled { &[] } else { &["terminate i-0abc"] };
        assert_eq!(terminated, expected, "no TerminateInstances in a shifted zone");
        if enabled {
            // It names the instance, the zone and its id.
            let decisions = stage.fake.decisions.borrow();
            let refused = decisions.iter().find(|it| it.action == "retry").expect("an error");
            assert_eq!(
                refused.reason,
                "instance i-0abc is in zone us-west-2a (usw2-az1), which traffic is shifted away from"
            );
        }
        play(&stage, at("10:40:00"));
        assert!(is_over(&stage), "a minute after the shift's end at the latest");
        assert_eq!(stage.fake.samples(TERMINATION_FAILURES), [""; 0], "no failure is counted");
    }

    // One that is gone already is no trouble.
    let mut stage = deleted_node("10:00:00", json!(null));
    stage.settings.enable_zonal_shift = true;
    let mut labelled = serde_json::to_value(stage.get::<NodeClaim>("c")).expect("writes");
    apply_merge_patch(&mut labelled, &zone);
    stage.add::<NodeClaim>(labelled);
    stage.fake.instances.borrow_mut().clear();
    shift(&stage, &["usw2-az1"], "10:30:00");
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:05:00"));
    assert!(is_over(&stage));

    // EC2 refuses: counted with both names of the zone.
    let stage = deleted_node("10:00:00", json!(null));
    let mut labelled = serde_json::to_value(stage.get::<NodeClaim>("c")).expect("writes");
    apply_merge_patch(&mut labelled, &zone);
    stage.add::<NodeClaim>(labelled);
    stage.fake.fail("terminate i-0abc", "InternalError");
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:01:00"));
    let counted = stage.fake.samples(TERMINATION_FAILURES);
    let refused = stage.told().into_iter().filter(|it| it.starts_with("retry ")).count();
    assert_eq!(counted.len(), refused, "{:?}", stage.told());
    assert_eq!(
        counted.first().map(String::as_str),
        Some(
            "karpenter_cloudprovider_instance_termination_failures_total{zone=us-west-2a,zone_id=usw2-az1} 1"
        )
    );
}

#[test] // aws-capacity 19, case 2
fn what_shuts_down_already_is_not_terminated_again() {
    let stage = deleted_node("10:00:00", json!(null));
    stage.fake.instances.borrow_mut()[0].state = "shutting-down".into();
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:10:00"));
    assert!(is_over(&stage));
    assert_eq!(calls(&stage, &["terminate"]), [""; 0]);

    // One that EC2 does not know is gone.
    let stage = deleted_node("10:00:00", json!(null));
    stage.fake.instances.borrow_mut().clear();
    stage.message(Concern::Termination, "NodeClaimDeleting", &["NodeClaim/c"]);
    play(&stage, at("10:10:00"));
    assert!(is_over(&stage));
}
