//! The reconciler of a living claim, case by case.
#![allow(clippy::needless_pass_by_value)] // Builders take literals.

mod builders;

use builders::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use spokeshave_lifecycle::{
    Action,
    claim::{Drift, View, decide},
};
use spokeshave_model::{ConditionStatus, NodeClaim, NodePool, Taint, TaintEffect, labels};

use ConditionStatus::{False, True, Unknown};

#[test] // lifecycle 1.4, case 1
fn conditions_begin_at_creation() {
    let mut fresh = claim(json!({"status": {"providerID": null}}));
    fresh.status.conditions.clear();
    let decision = look(&fresh, &[], "10:00:30");
    let status = written_status(&decision).expect("written");
    let since: Vec<_> = status
        .status
        .conditions
        .iter()
        .map(|it| (it.type_.as_str(), it.status, it.last_transition_time))
        .collect();
    let created = Some(at("10:00:00"));
    assert_eq!(
        since,
        [
            ("Launched", Unknown, created),
            ("Registered", Unknown, created),
            ("Initialized", Unknown, created),
            ("Ready", Unknown, created)
        ]
    );
    // lifecycle 2.1, case 1
    for type_ in ["Consolidatable", "Drifted", "Drained", "VolumesDetached", "InstanceTerminating"]
    {
        assert_eq!(status.condition(type_), None, "{type_}");
    }
    let early = look(&fresh, &[], "10:00:07");
    assert_eq!(written_status(&early), None, "launching writes the first status");
}

#[test] // lifecycle 1.4, cases 2-4; 3.1, case 8; api 8, case 3
fn ready_follows() {
    assert_eq!(
        condition(&claim(json!({})), "Ready"),
        (Unknown, "ReconcilingDependents", "Registered=Unknown, Initialized=Unknown")
    );
    let mut it = registered(json!({}));
    assert_eq!(condition(&it, "Ready"), (Unknown, "ReconcilingDependents", "Initialized=Unknown"));
    it.metadata.generation = 2;
    let restamped = look(&it, &[&joined(json!({}))], "10:02:00");
    let it = written_status(&restamped).expect("written");
    // lifecycle 3.1, case 8
    let (before, after) = (claim(json!({})), it.condition("Launched").expect("there"));
    let before = before.condition("Launched").expect("there");
    let expected = spokeshave_model::Condition { observed_generation: 2, ..before.clone() };
    assert_eq!(*after, expected);
    let twice = look(
        &claim(json!({})),
        &[&node(json!({})), &node(json!({"metadata": {"name": "m"}}))],
        "10:01:00",
    );
    let it = written_status(&twice).expect("written");
    assert_eq!(
        condition(it, "Ready"),
        (False, "UnhealthyDependents", "Registered=False, Initialized=Unknown")
    );
}

#[test] // lifecycle 1.4, case 7
fn claims_of_others_are_left_alone() {
    let foreign = claim(
        json!({"spec": {"nodeClassRef": {"group": "eks.amazonaws.com", "kind": "NodeClass"}}}),
    );
    assert_eq!(look(&foreign, &[&node(json!({}))], "12:00:00"), Default::default());
}

#[test] // lifecycle 3, step 1
fn the_finalizer_comes_first() {
    let bare = claim(json!({"metadata": {"finalizers": null}}));
    let decision = look(&bare, &[], "10:00:30");
    let [Action::WriteClaim { claim, guard }, ..] = decision.actions.as_slice() else {
        panic!("{decision:?}")
    };
    assert!(claim.metadata.has_finalizer(labels::TERMINATION_FINALIZER));
    assert_eq!(*guard, spokeshave_ports::Precondition::ResourceVersion);
}

#[test] // lifecycle 4.1, cases 1-5; api 9, cases 1-3
fn what_a_node_gets() {
    let unregistered = json!({"key": "karpenter.sh/unregistered", "effect": "NoExecute"});
    let with = |own: Value| json!({"spec": {"taints": [unregistered, own]}});
    let team = json!({"spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}});
    let both = json!({"spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "cni", "value": "wait", "effect": "NoExecute"}]}});
    let no_sync =
        |value: &str| json!({"metadata": {"labels": {"karpenter.sh/do-not-sync-taints": value}}});
    for (what, of_claim, of_node, expected) in [
        ("both kinds", &both, json!({}), vec!["team=a:NoSchedule", "cni=wait:NoExecute"]),
        (
            "an existing taint keeps its value",
            &team,
            with(json!({"key": "team", "value": "b", "effect": "NoSchedule"})),
            vec!["team=b:NoSchedule"],
        ),
        (
            "another effect is another taint",
            &team,
            with(json!({"key": "team", "value": "a", "effect": "NoExecute"})),
            vec!["team=a:NoExecute", "team=a:NoSchedule"],
        ),
        ("not wanted", &both, no_sync("true"), vec![]),
        (
            "only true counts",
            &both,
            no_sync("True"),
            vec!["team=a:NoSchedule", "cni=wait:NoExecute"],
        ),
    ] {
        let decision = look(&claim(of_claim.clone()), &[&node(of_node)], "10:01:00");
        let node = written_node(&decision).expect(what);
        assert_eq!(taints(node), expected, "{what}");
        assert_eq!(node.metadata.label(labels::REGISTERED), Some("true"), "{what}");
        let status = written_status(&decision).expect(what);
        assert_eq!(condition(status, "Registered"), (True, "Registered", ""), "{what}");
        assert_eq!(status.status.node_name, "n", "{what}");
    }
    let claim = claim(json!({"metadata": {"labels": {"env": "prod"}, "annotations": {"a": "1"}}}));
    let node = node(json!({"metadata": {"labels": {"env": "dev", "x": "1"}}}));
    let decision = look(&claim, &[&node], "10:01:00");
    let node = written_node(&decision).expect("written");
    assert_eq!(node.metadata.label("env"), Some("prod"));
    assert_eq!(node.metadata.label("x"), Some("1"));
    assert_eq!(node.metadata.annotation("a"), Some("1"));
    assert!(node.metadata.has_finalizer(labels::TERMINATION_FINALIZER));
    let [owner] = node.metadata.owner_references.as_slice() else { panic!("one owner") };
    assert_eq!(
        serde_json::to_value(owner).expect("writes"),
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "c", "uid": "claim-uid",
            "blockOwnerDeletion": true})
    );
    assert_eq!(counts(&decision.actions), ["karpenter_nodes_created_total{nodepool=np,zone=}"]);
}

#[test] // lifecycle 4.1, case 6; api 19, case 6
fn a_node_without_the_taint_registers_with_a_warning() {
    let decision = look(&claim(json!({})), &[&node(json!({"spec": {"taints": null}}))], "10:01:00");
    assert_eq!(events(&decision.actions)[0].0, "UnregisteredTaintMissing");
    assert!(events(&decision.actions)[0].1.contains("karpenter.sh/unregistered"));
    assert!(written_status(&decision).is_some_and(|it| it.is_true("Registered")));
}

#[test] // lifecycle 4.1, case 9; lifecycle 1.4, case 8; api 8, case 4
fn several_nodes_with_one_provider_id() {
    let other = node(json!({"metadata": {"name": "m", "uid": "other"}}));
    let decision = look(&claim(json!({})), &[&node(json!({})), &other], "10:01:00");
    let split = written_status(&decision).expect("written").clone();
    assert_eq!(
        condition(&split, "Registered"),
        (False, "MultipleNodesFound", "Invariant violated, matched multiple nodes")
    );
    assert_eq!(deleted(&look(&split, &[&node(json!({})), &other], "10:15:59")), None);
    let late = look(&split, &[&node(json!({})), &other], "10:16:00");
    assert_eq!(deleted(&late), Some("registration_timeout"));
    // Better than Karpenter: once one of them is gone the claim registers after all.
    let healed = look(&split, &[&node(json!({}))], "10:02:00");
    assert!(written_status(&healed).is_some_and(|it| it.is_true("Registered")));
}

#[test] // lifecycle 2.1, case 5; 4.1, case 8; aws-nodeclass 18, case 9
fn a_partition_that_is_not_known_holds_registration() {
    let waiting = claim(json!({"metadata": {"labels": {
        "karpenter.k8s.aws/placement-group-id": "pg-1",
        "karpenter.k8s.aws/placement-group-partition": ""}}}));
    let node = node(json!({}));
    let mut view = View { claim: Some(&waiting), nodes: vec![&node], ..View::default() };
    let pending = decide(&view, at("10:01:00"));
    let status = written_status(&pending).expect("written");
    assert_eq!(
        condition(status, "Registered"),
        (Unknown, "RegistrationHookPending", "PlacementGroupRegistrationHook")
    );
    let synced = written_node(&pending).expect("synced").clone();
    assert!(synced.metadata.has_finalizer(labels::TERMINATION_FINALIZER));
    assert_eq!(synced.metadata.label(labels::REGISTERED), None);
    assert_eq!(taints(&synced), ["karpenter.sh/unregistered:NoExecute"]);
    assert_eq!(pending.wake_at, Some(at("10:01:02")));

    view.partition = Some(3);
    let known = decide(&view, at("10:01:02"));
    let node = written_node(&known).expect("synced");
    assert_eq!(node.metadata.label(labels::PLACEMENT_GROUP_PARTITION), Some("3"));
    assert_eq!(taints(node), [] as [&str; 0]);
    let claim = written_claim(&known).expect("labelled");
    assert_eq!(claim.metadata.label(labels::PLACEMENT_GROUP_PARTITION), Some("3"));
}

#[test] // B-015
fn a_startup_taint_that_its_agent_removed_stays_away() {
    let claim = claim(
        json!({"spec": {"startupTaints": [{"key": "x/agent-not-ready", "effect": "NoExecute"}]}}),
    );
    let joined = node(json!({}));
    let carried = vec![Taint::new("x/agent-not-ready", "", TaintEffect::NoExecute)];
    let view = View { claim: Some(&claim), nodes: vec![&joined], carried, ..View::default() };
    let retried = decide(&view, at("10:01:00"));
    assert_eq!(taints(written_node(&retried).expect("registered")), [] as [&str; 0]);

    // Registration was written, the claim's status was not, and the agent was quick.
    let first = look(&claim, &[&joined], "10:01:00");
    let mut after_crash = written_node(&first).expect("registered").clone();
    assert_eq!(taints(&after_crash), ["x/agent-not-ready:NoExecute"]);
    after_crash.spec.taints.clear();
    let again = look(&claim, &[&after_crash], "10:01:10");
    let taints = written_node(&again).map(taints).unwrap_or_default();
    assert_eq!(taints, [] as [&str; 0]);
    assert!(written_status(&again).is_some_and(|it| it.is_true("Registered")));
}

#[test] // lifecycle 5.1, cases 1 to 6; api 9, cases 5 and 6; api 20, case 9
fn initialization_waits_for() {
    let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
    for (what, of_claim, of_node, expected) in [
        (
            "case 1",
            json!({"spec": {"startupTaints": [{"key": "cni", "value": "wait", "effect": "NoExecute"}]}}),
            json!({"spec": {"taints": [{"key": "cni", "effect": "NoExecute"}]}}),
            Some(("StartupTaintsExist", "StartupTaint \"cni:NoExecute\" still exists")),
        ),
        (
            "the worked set's",
            json!({"spec": {"startupTaints":
                [{"key": "example.com/network-not-ready", "value": "true", "effect": "NoExecute"}]}}),
            json!({"spec": {"taints":
                [{"key": "example.com/network-not-ready", "value": "true", "effect": "NoExecute"}]}}),
            Some((
                "StartupTaintsExist",
                "StartupTaint \"example.com/network-not-ready=true:NoExecute\" still exists",
            )),
        ),
        (
            "case 2",
            json!({"spec": {"startupTaints": [{"key": "cni", "effect": "NoExecute"}]}}),
            json!({"spec": {"taints": [{"key": "cni", "effect": "NoSchedule"}]}}),
            None,
        ),
        (
            "case 3",
            json!({}),
            json!({"spec": {"taints": [{"key": "readiness.k8s.io/storage-ready", "effect": "NoSchedule"}]}}),
            Some((
                "KnownEphemeralTaintsExist",
                "KnownEphemeralTaint \"readiness.k8s.io/storage-ready:NoSchedule\" still exists",
            )),
        ),
        (
            "case 4, missing",
            json!({"spec": {"resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}}),
            json!({"status": {"allocatable": {"cpu": "4"}}}),
            Some((
                "ResourceNotRegistered",
                "Resource \"nvidia.com/gpu\" was requested but not registered",
            )),
        ),
        (
            "case 4, zero",
            json!({"spec": {"resources": {"requests": {"nvidia.com/gpu": "1"}}}}),
            json!({"status": {"allocatable": {"nvidia.com/gpu": "0"}}}),
            Some((
                "ResourceNotRegistered",
                "Resource \"nvidia.com/gpu\" was requested but not registered",
            )),
        ),
        (
            "case 4, there",
            json!({"spec": {"resources": {"requests": {"nvidia.com/gpu": "1"}}}}),
            json!({"status": {"allocatable": {"nvidia.com/gpu": "1"}}}),
            None,
        ),
        (
            "case 5",
            json!({"spec": {"resources": {"requests": {"nvidia.com/gpu": "0"}}}}),
            json!({"status": {"allocatable": {"cpu": "4"}}}),
            None,
        ),
        (
            "case 6",
            json!({}),
            json!({"status": {"conditions": ready("Unknown")}}),
            Some(("NodeNotReady", "Node status is NotReady")),
        ),
        (
            "unreachable:NoExecute is not ephemeral",
            json!({}),
            json!({"spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}}),
            None,
        ),
        (
            "values of ephemeral taints do not matter",
            json!({}),
            json!({"spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized",
                "value": "true", "effect": "NoSchedule"}]}}),
            Some((
                "KnownEphemeralTaintsExist",
                "KnownEphemeralTaint \"node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule\" still exists",
            )),
        ),
    ] {
        let mut node = joined(of_node);
        node.metadata.labels.remove(labels::INITIALIZED);
        let decision = look(&registered(of_claim), &[&node], "10:02:00");
        let status = written_status(&decision).expect(what);
        match expected {
            Some((reason, message)) => {
                assert_eq!(condition(status, "Initialized"), (Unknown, reason, message), "{what}");
            }
            None => {
                assert_eq!(condition(status, "Initialized"), (True, "Initialized", ""), "{what}");
                assert_eq!(condition(status, "Ready"), (True, "Ready", ""), "{what}");
                let node = written_node(&decision).expect(what);
                assert_eq!(node.metadata.label(labels::INITIALIZED), Some("true"), "{what}");
            }
        }
    }
}

#[test] // lifecycle 5.1, case 8
fn initialized_stays_initialized() {
    let node = joined(
        json!({"spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
    );
    assert_eq!(look(&initialized(json!({})), &[&node], "11:00:00").actions, []);
}

#[test] // lifecycle 5: nothing times out, but after a quarter of an hour somebody is told
fn a_node_that_does_not_initialize_is_spoken_of() {
    let node = joined(json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}));
    let early = look(&registered(json!({})), &[&node], "10:15:59");
    assert_eq!(events(&early.actions), []);
    let late = look(&registered(json!({})), &[&node], "10:16:00");
    assert_eq!(events(&late.actions)[0].0, "InitializationPending");
    assert_eq!(deleted(&late), None);
}

#[test] // lifecycle 6.3, cases 3, 4, 9; 34.1, case 1; 4.1, case 7
fn claims_that_do_not_come_up() {
    let mut failing = claim(json!({"status": {"providerID": null}}));
    failing.status.conditions.clear();
    failing.conditions_mut().initialize();
    failing.conditions_mut().set(
        NodeClaim::LAUNCHED,
        Unknown,
        "LaunchFailed",
        "boom",
        at("10:00:05"),
    );
    let early = look(&failing, &[], "10:04:59");
    assert_eq!((deleted(&early), early.wake_at), (None, Some(at("10:05:00"))));
    let due = look(&failing, &[], "10:05:00");
    assert_eq!(deleted(&due), Some("launch_timeout"));
    assert_eq!(due.actions[0], Action::NoteRegistration { healthy: false });

    let mut slow = claim(json!({}));
    slow.status.conditions.clear();
    slow.conditions_mut().initialize();
    slow.conditions_mut().set_true(NodeClaim::LAUNCHED, at("10:04:00"));
    let early = look(&slow, &[], "10:14:59");
    assert_eq!((deleted(&early), early.wake_at), (None, Some(at("10:15:00"))));
    assert_eq!(deleted(&look(&slow, &[], "10:15:00")), Some("registration_timeout"));
    let joined_node =
        joined(json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}));
    let late = look(&registered(json!({})), &[&joined_node], "23:00:00");
    assert_eq!((deleted(&late), late.wake_at), (None, None), "registered: no timer");
}

#[test] // lifecycle 7.3, cases 1-5 and 7
fn nodes_that_are_smaller_than_promised() {
    let promised = |memory: &str| {
        json!({"spec": {"resources": {"requests": {"memory": "1Gi", "cpu": "1"}}},
        "status": {"capacity": {"memory": memory, "cpu": "10", "ephemeral-storage": "100Gi"}}})
    };
    let found = |memory: &str| {
        joined(json!({"status": {"capacity": {
        "memory": memory, "cpu": "10", "ephemeral-storage": "10Gi"}}}))
    };
    for (promise, memory, expected) in [
        (
            "128Gi",
            "64Gi",
            Some("expected 128Gi of resource memory, but found 64Gi (50.0% of expected)"),
        ),
        ("100Gi", "90Gi", None),
        (
            "100Gi",
            "92057Mi",
            Some("expected 100Gi of resource memory, but found 92057Mi (89.9% of expected)"),
        ),
    ] {
        let claim = initialized(promised(promise));
        let node = found(memory);
        let mut view =
            View { claim: Some(&claim), nodes: vec![&node], scan: true, ..View::default() };
        let decision = decide(&view, at("10:12:00"));
        match expected {
            Some(text) => {
                let event = ("FailedConsistencyCheck".to_owned(), text.to_owned());
                assert_eq!(events(&decision.actions), [event], "{memory}");
                let status = written_status(&decision).expect(memory);
                assert_eq!(
                    condition(status, "ConsistentStateFound"),
                    (False, "ConsistencyCheckFailed", "Consistency Check Failed"),
                    "{memory}"
                );
            }
            None => assert_eq!(decision.actions, [], "{memory}"),
        }
        view.scan = false;
        assert_eq!(decide(&view, at("10:05:00")).actions, [], "{memory}: only when it is time");
    }
    let young = registered(promised("128Gi"));
    let tiny = joined(json!({"status": {"capacity": {"memory": "1Gi"},
        "conditions": [{"type": "Ready", "status": "False"}]}}));
    let decision = look(&young, &[&tiny], "10:02:00");
    let status = written_status(&decision).expect("written");
    assert!(status.is_true("ConsistentStateFound"), "not judged before it is initialized");
}

#[test] // lifecycle 7.3, case 6
fn the_class_label_is_kept() {
    let node = joined(json!({"metadata": {"labels": {"karpenter.k8s.aws/ec2nodeclass": null}}}));
    for label in [json!(null), json!("x")] {
        let claim =
            initialized(json!({"metadata": {"labels": {"karpenter.k8s.aws/ec2nodeclass": label}}}));
        let decision = look(&claim, &[&node], "10:05:00");
        let claim = written_claim(&decision).expect("labelled");
        assert_eq!(claim.metadata.label(labels::NODECLASS), Some("default"));
        let node = written_node(&decision).expect("labelled");
        assert_eq!(node.metadata.label(labels::NODECLASS), Some("default"));
    }
}

#[test] // lifecycle 8.3, cases 1, 2, 6, 7; 2.1, case 4; 34.1, case 2
fn consolidatable_follows_quiet() {
    let node = joined(json!({}));
    let with = |after: &str| pool(json!({"spec": {"disruption": {"consolidateAfter": after}}}));
    let had = |mut claim: NodeClaim| {
        claim.conditions_mut().set_true(NodeClaim::CONSOLIDATABLE, at("10:02:00"));
        claim
    };
    let eventful = json!({"status": {"lastPodEventTime": "2024-03-01T10:04:30Z"}});
    for (what, claim, pool, now, expected, wake) in [
        ("a second early", initialized(json!({})), with("5m"), "10:06:59", false, Some("10:07:00")),
        ("on the second", initialized(json!({})), with("5m"), "10:07:00", true, None),
        (
            "a pod came",
            initialized(eventful.clone()),
            with("5m"),
            "10:07:00",
            false,
            Some("10:09:30"),
        ),
        ("and it was quiet", initialized(eventful.clone()), with("5m"), "10:09:30", true, None),
        ("at once", initialized(json!({})), with("0s"), "10:02:00", true, None),
        (
            "pods do not matter",
            had(initialized(eventful.clone())),
            with("0s"),
            "10:04:31",
            true,
            None,
        ),
        ("never", had(initialized(json!({}))), with("Never"), "11:00:00", false, None),
        ("the default is at once", initialized(json!({})), pool(json!({})), "10:02:00", true, None),
        (
            "it was, and a pod came",
            had(initialized(eventful)),
            with("30m"),
            "10:05:00",
            false,
            Some("10:34:30"),
        ),
        (
            "static",
            initialized(json!({})),
            pool(json!({"spec": {"replicas": 3}})),
            "11:00:00",
            false,
            None,
        ),
        (
            "static, written by others",
            had(initialized(json!({}))),
            pool(json!({"spec": {"replicas": 3}})),
            "11:00:00",
            true,
            None,
        ),
    ] {
        let view = View {
            claim: Some(&claim),
            nodes: vec![&node],
            nodepool: Some(&pool),
            ..View::default()
        };
        let decision = decide(&view, at(now));
        let after = written_status(&decision).unwrap_or(&claim);
        assert_eq!(after.is_true(NodeClaim::CONSOLIDATABLE), expected, "{what}");
        assert_eq!(after.condition(NodeClaim::CONSOLIDATABLE).is_some(), expected, "{what}");
        assert_eq!(decision.wake_at, wake.map(at), "{what}");
    }
}

#[test] // lifecycle 8.3, cases 3-5
fn pod_events_are_ten_seconds_apart() {
    let node = joined(json!({}));
    let after = |stored: Option<&str>, event: &str| {
        let mut claim = initialized(json!({}));
        claim.status.last_pod_event_time = stored.map(at);
        let view = View {
            claim: Some(&claim),
            nodes: vec![&node],
            pod_event: Some(at(event)),
            ..View::default()
        };
        let decision = decide(&view, at(event));
        let stored = written_status(&decision).unwrap_or(&claim).status.last_pod_event_time;
        (stored, decision.pod_event_at)
    };
    assert_eq!(after(None, "10:10:00"), (Some(at("10:10:00")), None));
    let first = Some("10:10:00");
    assert_eq!(after(first, "10:10:07"), (Some(at("10:10:00")), Some(at("10:10:10"))));
    assert_eq!(after(first, "10:10:10"), (Some(at("10:10:10")), None), "strictly less than ten");
    assert_eq!(after(first, "10:10:11"), (Some(at("10:10:11")), None));
    assert_eq!(after(first, "10:09:59"), (Some(at("10:10:00")), None), "late news");
}

#[test] // lifecycle 1.4, case 5; 2.1, case 3; 9.1, cases 6 and 12; api 8, case 6
fn drifted_is_written_and_taken_away() {
    let node = joined(json!({}));
    let judge = |claim: &NodeClaim, drift: Drift, now: &str| {
        let view = View { claim: Some(claim), nodes: vec![&node], drift, ..View::default() };
        decide(&view, at(now))
    };
    let drifted = judge(&initialized(json!({})), Drift::Drifted("AMIDrift".into()), "10:09:00");
    let first = written_status(&drifted).expect("written").clone();
    assert_eq!(condition(&first, "Drifted"), (True, "AMIDrift", "AMIDrift"));
    let other = judge(&first, Drift::Drifted("RequirementsDrifted".into()), "10:14:00");
    let second = written_status(&other).expect("written").clone();
    assert_eq!(condition(&second, "Drifted").1, "RequirementsDrifted");
    let since = second.condition("Drifted").and_then(|it| it.last_transition_time);
    assert_eq!(since, Some(at("10:09:00")));
    assert_eq!(judge(&second, Drift::Unjudged, "10:15:00").actions, [], "an error changes nothing");
    let cured = judge(&second, Drift::None, "10:15:00");
    assert_eq!(written_status(&cured).expect("written").condition("Drifted"), None);
    // Before it is launched nothing has drifted, whatever is said of it.
    let mut early = claim(json!({"status": {"providerID": null}}));
    early.status.conditions.clear();
    early.conditions_mut().initialize();
    early.conditions_mut().set(
        NodeClaim::LAUNCHED,
        Unknown,
        "LaunchFailed",
        "boom",
        at("10:00:05"),
    );
    early.conditions_mut().set(NodeClaim::DRIFTED, True, "AMIDrift", "AMIDrift", at("10:00:06"));
    let judged = judge(&early, Drift::Drifted("AMIDrift".into()), "10:01:00");
    assert_eq!(written_status(&judged).expect("written").condition("Drifted"), None);
}

#[test] // lifecycle 10.1, cases 1-7; api 8, case 7; B-031
fn expiry() {
    let after = |length: &str| json!({"spec": {"expireAfter": length}});
    let node = joined(json!({}));
    let early = look(&initialized(after("1h")), &[&node], "10:59:59");
    assert_eq!((deleted(&early), early.wake_at), (None, Some(at("11:00:00"))));
    assert_eq!(deleted(&look(&initialized(after("1h")), &[&node], "11:00:00")), Some("expired"));
    let never = look(&initialized(after("Never")), &[&node], "23:00:00");
    assert_eq!((deleted(&never), never.wake_at), (None, None));
    let unregistered = look(&claim(after("10m")), &[], "10:11:00");
    assert_eq!(deleted(&unregistered), Some("expired"));
    let deleting = initialized(json!({"metadata": {"deletionTimestamp": "2024-03-01T10:30:00Z"},
        "spec": {"expireAfter": "1h"}}));
    assert_eq!(look(&deleting, &[&node], "12:00:00").actions, []);
}

#[test] // lifecycle 36, expiry that obeys budgets, where the pool asks for it; B-031
fn an_expired_node_is_replaced_on_request() {
    let node = joined(json!({}));
    let asks = |value: &str| {
        pool(json!({"metadata": {"annotations": {"spokeshave.dev/expiration": value}}}))
    };
    let judge = |claim: &NodeClaim, pool: &NodePool, drift: Drift, now: &str| {
        let nodes = vec![&node];
        decide(
            &View { claim: Some(claim), nodes, nodepool: Some(pool), drift, ..View::default() },
            at(now),
        )
    };
    let claim = initialized(json!({"spec": {"expireAfter": "1h"}}));
    let early = judge(&claim, &asks("replace"), Drift::None, "10:59:59");
    assert_eq!(early.wake_at, Some(at("11:00:00")));
    assert_eq!(written_status(&early).expect("quiet").condition("Drifted"), None);
    let expired = judge(&claim, &asks("replace"), Drift::None, "11:00:00");
    assert_eq!(deleted(&expired), None);
    let drifted = written_status(&expired).expect("written").clone();
    assert_eq!(condition(&drifted, "Drifted"), (True, "Expired", "Expired"));
    // It stays so, whoever looks and for whatever reason; another reason for drift comes first.
    assert_eq!(judge(&drifted, &asks("replace"), Drift::Unjudged, "11:00:01").actions, []);
    assert_eq!(judge(&drifted, &asks("replace"), Drift::None, "11:00:01").actions, []);
    let other = Drift::Drifted("AMIDrift".into());
    let other = judge(&drifted, &asks("replace"), other, "11:00:01");
    let both = written_status(&other).expect("written").clone();
    assert_eq!(condition(&both, "Drifted").1, "AMIDrift");
    assert_eq!(judge(&both, &asks("replace"), Drift::Unjudged, "11:00:02").actions, []);
    // Without the annotation, and for what no drift would take, it is forceful.
    for (what, claim, pool) in [
        ("not asked for", drifted, pool(json!({}))),
        ("another value", claim, asks("true")),
        ("not initialized", registered(json!({"spec": {"expireAfter": "1h"}})), asks("replace")),
    ] {
        let decision = judge(&claim, &pool, Drift::None, "11:00:03");
        assert_eq!(deleted(&decision), Some("expired"), "{what}");
    }
}

#[test] // B-080
fn a_claim_whose_node_is_gone_goes() {
    let young = look(&registered(json!({})), &[], "10:01:59");
    assert_eq!((deleted(&young), young.wake_at), (None, Some(at("10:02:00"))));
    assert_eq!(deleted(&look(&initialized(json!({})), &[], "11:00:00")), Some("garbage_collected"));
    // Its kubelet registers again: the provider id comes in a moment.
    let claim = initialized(json!({}));
    let view = View { claim: Some(&claim), unjoined: true, ..View::default() };
    assert_eq!(deleted(&decide(&view, at("11:00:00"))), None);
}

#[test] // lifecycle 32.1, case 5
fn transitions_are_told_of_conditions_that_were_seen_before() {
    let decision = look(&claim(json!({})), &[&node(json!({}))], "10:01:00");
    let texts: Vec<&str> = decision
        .actions
        .iter()
        .filter_map(|it| match it {
            Action::Publish { event, .. } => Some(event.message.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(
        texts,
        [
            "Status condition transitioned, Type: Initialized, Status: Unknown -> True, Reason: Initialized",
            "Status condition transitioned, Type: Registered, Status: Unknown -> True, Reason: Registered",
            "Status condition transitioned, Type: Ready, Status: Unknown -> True, Reason: Ready",
        ],
        "ConsistentStateFound is new and so no transition"
    );
}

prop_compose! {
    fn any_claim()(
        stage in 0..4u8,
        finalizer in any::<bool>(),
        expire in prop_oneof![Just("Never"), Just("10m"), Just("2h")],
        startup in any::<bool>(),
        requests in any::<bool>(),
        partition in any::<bool>(),
    ) -> NodeClaim {
        let mut changes = json!({"spec": {"expireAfter": expire}});
        if !finalizer {
            changes["metadata"]["finalizers"] = Value::Null;
        }
        if startup {
            changes["spec"]["startupTaints"] = json!([{"key": "s", "effect": "NoExecute"}]);
        }
        if requests {
            changes["spec"]["resources"] = json!({"requests": {"cpu": "1"}});
        }
        if partition && stage < 2 {
            changes["metadata"]["labels"] = json!({"karpenter.k8s.aws/placement-group-id": "pg",
                "karpenter.k8s.aws/placement-group-partition": ""});
        }
        match stage {
            0 => {
                let mut claim = claim(changes);
                claim.status.conditions.clear();
                claim
            }
            1 => claim(changes),
            2 => registered(changes),
            _ => initialized(changes),
        }
    }
}

proptest! {
    // Once its actions are carried out, deciding again asks for nothing.
    #[test]
    fn settles(
        claim in any_claim(),
        nodes in 0..3usize,
        ready in any::<bool>(),
        sized in any::<bool>(),
        minute in 0..40u32,
        event in any::<bool>(),
        partition in proptest::option::of(1..7i64),
    ) {
        let now = at(&format!("10:{minute:02}:30"));
        let mut nodes: Vec<_> = (0..nodes).map(|n| node(json!({
            "metadata": {"name": format!("n{n}"), "uid": format!("u{n}")},
            "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
                "allocatable": {"cpu": if sized { "4" } else { "0" }}}}))).collect();
        let pool = pool(json!({"spec": {"disruption": {"consolidateAfter": "5m"}}}));
        let mut claim = claim;
        let mut pod_event = event.then_some(now);
        let mut left = None;
        for _ in 0..2 {
            let nodes_now = nodes.clone();
            let view = View { claim: Some(&claim), nodes: nodes_now.iter().collect(), nodepool: Some(&pool),
                partition, pod_event, ..View::default() };
            let decision = decide(&view, now);
            if deleted(&decision).is_some() {
                return Ok(());
            }
            let mut next = claim.clone();
            for action in &decision.actions {
                match action {
                    Action::WriteClaim { claim, .. } => next.metadata = claim.metadata.clone(),
                    Action::WriteStatus { claim } => next.status = claim.status.clone(),
                    Action::WriteNode { node, .. } => {
                        for it in nodes.iter_mut().filter(|it| it.metadata.uid == node.metadata.uid) {
                            *it = (**node).clone();
                        }
                    }
                    _ => {}
                }
            }
            claim = next;
            pod_event = None;
            left = Some(decision.actions);
        }
        let writes: Vec<_> = left.unwrap_or_default().into_iter()
            .filter(|it| !matches!(it, Action::Publish { .. })).collect();
        prop_assert_eq!(writes, vec![]);
    }
}
