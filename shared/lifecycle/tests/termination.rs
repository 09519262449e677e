//! The end of claims and nodes, case by case.
#![allow(clippy::needless_pass_by_value)] // Builders take literals.

mod builders;

use builders::*;
use serde_json::{Value, json};
use spokeshave_lifecycle::{
    Action,
    termination::{
        Act, ClaimView, Instance, Launch, Next, NodeView, Read, decide_claim, decide_node,
        eviction_reason,
    },
    volumes,
};
use spokeshave_model::{
    ConditionStatus, InstanceId, NodeClaim, ObjectKey,
    core::{Node, Pod, VolumeAttachment},
    labels,
};
use std::collections::BTreeSet;

use ConditionStatus::{False, True, Unknown};

const DELETED: &str = "2024-03-01T10:00:00Z";

fn ending(mut claim: NodeClaim) -> NodeClaim {
    claim.metadata.deletion_timestamp = Some(at("10:00:00"));
    claim.metadata.generation = 2;
    claim
}

fn going(changes: Value) -> Node {
    let mut base = json!({"metadata": {"deletionTimestamp": DELETED}});
    spokeshave_model::meta::apply_merge_patch(&mut base, &changes);
    joined(base)
}

fn act(next: Next<'_>) -> Act<'_> {
    match next {
        Next::Act(act) => *act,
        Next::Read(read) => panic!("still has to read {read:?}"),
    }
}

fn annotation(act: &Act<'_>) -> Option<String> {
    act.actions.iter().find_map(|it| match it {
        Action::WriteClaim { claim, .. } => {
            claim.metadata.annotation(labels::TERMINATION_TIMESTAMP).map(str::to_owned)
        }
        _ => None,
    })
}

fn is_released(act: &Act<'_>) -> bool {
    act.finish.iter().any(|it| match it {
        Action::WriteClaim { claim, .. } => claim.metadata.finalizers.is_empty(),
        Action::WriteNode { node, .. } => node.metadata.finalizers.is_empty(),
        _ => false,
    })
}

fn id() -> InstanceId {
    InstanceId::from("i-0123456789abcdef0")
}

#[test] // lifecycle 26.1, cases 1 and 2; api 16, case 4
fn a_grace_period_becomes_a_deadline_once() {
    let node = going(json!({}));
    let with = |grace: Value, there: Value| {
        let claim = ending(registered(json!({"spec": {"terminationGracePeriod": grace},
            "metadata": {"annotations": {"karpenter.sh/nodeclaim-termination-timestamp": there}}})));
        let view =
            ClaimView { claim: Some(&claim), nodes: Some(vec![&node]), ..ClaimView::default() };
        act(decide_claim(&view, at("10:00:01")))
    };
    for (grace, there, expected) in [
        (json!("1h"), json!(null), Some("2024-03-01T11:00:00Z")),
        (json!("0s"), json!(null), Some("2024-03-01T10:00:00Z")),
        (json!(null), json!(null), None),
        (json!("1h"), json!("2024-03-01T10:05:00Z"), None),
        (json!("1h"), json!("not-a-time"), None),
    ] {
        let act = with(grace.clone(), there);
        assert_eq!(annotation(&act).as_deref(), expected, "{grace}");
    }
    let act = with(json!("1h"), json!(null));
    let expected = (
        "TerminationGracePeriodExpiring".to_owned(),
        "All pods will be deleted by 2024-03-01T11:00:00Z".to_owned(),
    );
    assert_eq!(events(&act.actions), [expected]);
}

#[test] // lifecycle 26.1, cases 3 and 8
fn nodes_go_before_their_claim() {
    let claim = ending(registered(json!({})));
    let mut view = ClaimView { claim: Some(&claim), ..ClaimView::default() };
    assert_eq!(decide_claim(&view, at("10:00:01")), Next::Read(Read::Nodes));
    let leaving = going(json!({}));
    view.nodes = Some(vec![&leaving]);
    let waits = act(decide_claim(&view, at("10:00:01")));
    assert_eq!(
        (waits.actions.len(), waits.terminate.clone(), is_released(&waits)),
        (0, None, false)
    );
    let (first, second) =
        (joined(json!({})), joined(json!({"metadata": {"name": "m", "uid": "m"}})));
    view.nodes = Some(vec![&first, &second]);
    let deletes = act(decide_claim(&view, at("10:00:01")));
    let names: Vec<&str> = deletes
        .actions
        .iter()
        .filter_map(|it| match it {
            Action::DeleteNode { node, .. } => Some(node.metadata.name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["n", "m"]);
}

#[test] // lifecycle 26.1, cases 4 and 6; 29.3, case 6; B-077
fn the_instance_goes_before_the_finalizer() {
    for claim in [ending(registered(json!({}))), ending(claim(json!({})))] {
        let look = |claim: &NodeClaim, instance: Instance, now: &str| {
            let view = ClaimView {
                claim: Some(claim),
                nodes: Some(vec![]),
                instance: Some(instance),
                launch: None,
            };
            let act = act(decide_claim(&view, at(now)));
            (act.terminate.clone(), act.wake_at, is_released(&act), act.status.map(|it| *it))
        };
        let (terminate, wake, released, status) = look(&claim, Instance::Alive, "10:00:00");
        assert_eq!((terminate, wake, released), (Some(id()), Some(at("10:00:05")), false));
        let claim = status.expect("written");
        assert_eq!(condition(&claim, "InstanceTerminating"), (True, "InstanceTerminating", ""));
        assert_eq!(
            look(&claim, Instance::Alive, "10:00:05").0,
            Some(id()),
            "a stale answer: once more"
        );
        let shutting = look(&claim, Instance::ShuttingDown, "10:00:10");
        assert_eq!((shutting.0, shutting.1, shutting.2), (None, Some(at("10:00:15")), false));
        assert_eq!(
            look(&claim, Instance::ShuttingDown, "10:03:00").1,
            Some(at("10:03:15")),
            "less often"
        );
        let gone = look(&claim, Instance::Gone, "10:00:50");
        assert_eq!((gone.0, gone.1, gone.2), (None, None, true));
    }
}

#[test] // lifecycle 26, step 4; 33.1, case 6
fn what_is_counted_in_the_end() {
    let claim = ending(registered(json!({"metadata": {"labels": {
        "karpenter.sh/capacity-type": "spot", "topology.kubernetes.io/zone": "us-west-2a"}}})));
    let view = ClaimView {
        claim: Some(&claim),
        nodes: Some(vec![]),
        instance: Some(Instance::Gone),
        launch: None,
    };
    let act = act(decide_claim(&view, at("10:01:00")));
    assert_eq!(
        counts(&act.finish),
        [
            "karpenter_nodeclaims_instance_termination_duration_seconds{nodepool=np}",
            "karpenter_nodeclaims_termination_duration_seconds{nodepool=np}",
            "karpenter_nodeclaims_terminated_total{nodepool=np,capacity_type=spot,zone=us-west-2a}",
        ]
    );
    assert_eq!(
        events(&act.finish),
        [("Finalized".to_owned(), "Finalized karpenter.sh/termination".to_owned())]
    );
}

#[test] // lifecycle 26.1, case 5; B-075, B-079
fn claims_that_never_got_an_instance() {
    let mut claim = ending(claim(json!({"status": {"providerID": null}})));
    claim.status.conditions.clear();
    let look = |launch: Option<Launch>| {
        let view = ClaimView { claim: Some(&claim), launch, ..ClaimView::default() };
        decide_claim(&view, at("10:00:10"))
    };
    assert_eq!(look(None), Next::Read(Read::Launch));
    let never = act(look(Some(Launch::Never)));
    assert_eq!((is_released(&never), never.terminate), (true, None));
    let open = act(look(Some(Launch::Open(at("10:05:00")))));
    assert_eq!((is_released(&open), open.wake_at), (false, Some(at("10:05:00"))));
    let found = act(look(Some(Launch::Found(ID.into()))));
    assert_eq!((is_released(&found), found.terminate.clone(), found.again), (false, None, true));
    let noted = found.status.expect("noted first");
    let view =
        ClaimView { claim: Some(&noted), instance: Some(Instance::Alive), ..ClaimView::default() };
    assert_eq!(act(decide_claim(&view, at("10:00:10"))).terminate, Some(id()));
}

#[test]
fn claims_that_are_not_ours_to_end() {
    let foreign = ending(claim(json!({"spec": {"nodeClassRef": {"group": "other"}}})));
    let unfinalized = ending(claim(json!({"metadata": {"finalizers": ["other/finalizer"]}})));
    for claim in [foreign, unfinalized, claim(json!({}))] {
        let view = ClaimView { claim: Some(&claim), ..ClaimView::default() };
        assert_eq!(act(decide_claim(&view, at("10:00:10"))), Act::default());
    }
}

/// Looks at a node with everything that may be asked for.
fn look_at<'a>(
    node: &'a Node,
    claim: Option<&'a NodeClaim>,
    pods: &[&'a Pod],
    attachments: &[&'a VolumeAttachment],
    instance: Instance,
    now: &str,
) -> Act<'a> {
    let view = NodeView {
        node: Some(node),
        claim,
        pods: Some(pods.to_vec()),
        attachments: Some(attachments.to_vec()),
        instance: Some(instance),
        interrupted: false,
    };
    act(decide_node(&view, at(now)))
}

#[test] // lifecycle 27.1, cases 1, 6 and 7
fn a_node_that_goes_is_tainted_and_taken_out_of_balancers() {
    let claim = ending(initialized(json!({})));
    let noexecute = json!({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoExecute"},
        {"key": "a", "effect": "NoSchedule"}]}});
    for (what, node, expected) in [
        ("plain", going(json!({})), vec!["karpenter.sh/disrupted:NoSchedule"]),
        (
            "another effect",
            going(noexecute),
            vec!["a:NoSchedule", "karpenter.sh/disrupted:NoSchedule"],
        ),
    ] {
        let act = look_at(&node, Some(&claim), &[], &[], Instance::Alive, "10:00:01");
        let written = act.actions.iter().find_map(|it| match it {
            Action::WriteNode { node, .. } => Some(&**node),
            _ => None,
        });
        let written = written.expect(what);
        assert_eq!(taints(written), expected, "{what}");
        let label =
            written.metadata.label("node.kubernetes.io/exclude-from-external-load-balancers");
        assert_eq!(label, Some("karpenter"), "{what}");
        let again = look_at(written, Some(&claim), &[], &[], Instance::Alive, "10:00:02");
        assert!(!again.actions.iter().any(|it| matches!(it, Action::WriteNode { .. })), "{what}");
    }
    let mut unlabelled = going(json!({}));
    unlabelled.metadata.labels.remove(labels::NODECLASS);
    let view = NodeView { node: Some(&unlabelled), ..NodeView::default() };
    assert_eq!(act(decide_node(&view, at("10:00:01"))), Act::default());
}

#[test] // lifecycle 27.1, case 1
fn deleting_a_node_deletes_its_claim_first() {
    let (node, claim) = (going(json!({})), initialized(json!({})));
    let act = look_at(&node, Some(&claim), &[], &[], Instance::Alive, "10:00:01");
    assert!(act.again);
    assert!(matches!(act.actions.as_slice(), [Action::DeleteClaim { reason: "", .. }]));
}

#[test] // lifecycle 27.1, cases 2 and 3; B-073
fn a_silent_node_without_an_instance_is_let_go() {
    let claim = ending(initialized(json!({})));
    let web = pod("web", json!({}));
    let silent = going(json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}));
    let act_on = |node, instance| look_at(node, Some(&claim), &[&web], &[], instance, "10:00:01");
    let gone = act_on(&silent, Instance::Gone);
    assert!(is_released(&gone) && gone.drain.is_none() && gone.status.is_none());
    assert!(act_on(&silent, Instance::Alive).drain.is_some(), "the instance runs: drained");
    let talking = going(json!({}));
    let drained = act_on(&talking, Instance::Gone);
    assert!(drained.drain.is_some() && !is_released(&drained), "its kubelet lives: drained");
    let mut view = NodeView { node: Some(&talking), claim: Some(&claim), ..NodeView::default() };
    assert_eq!(decide_node(&view, at("10:00:01")), Next::Read(Read::Pods), "EC2 is not asked");
    view.interrupted = true;
    assert_eq!(
        decide_node(&view, at("10:00:01")),
        Next::Read(Read::Instance),
        "unless it has told us"
    );
    view.instance = Some(Instance::Gone);
    assert!(is_released(&act(decide_node(&view, at("10:00:01")))));
}

#[test] // lifecycle 27, step 2; 27.1, case 4
fn a_node_without_a_claim_is_drained_and_let_go() {
    let node = going(json!({}));
    let web = pod("web", json!({}));
    let drains = look_at(&node, None, &[&web], &[], Instance::Alive, "10:00:01");
    assert!(drains.drain.is_some_and(|it| it.waiting == 1));
    let through = look_at(&node, None, &[], &[], Instance::Alive, "10:00:02");
    assert_eq!(through.terminate, None);
    assert!(is_released(&through));
    // A silent one whose instance is gone is not drained, claim or no claim.
    let silent = going(json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}));
    let unasked = NodeView { node: Some(&silent), ..NodeView::default() };
    assert_eq!(decide_node(&unasked, at("10:00:01")), Next::Read(Read::Instance));
    let gone = look_at(&silent, None, &[&web], &[], Instance::Gone, "10:00:01");
    assert!(is_released(&gone) && gone.drain.is_none());
    let alive = look_at(&silent, None, &[&web], &[], Instance::Alive, "10:00:01");
    assert!(alive.drain.is_some() && !is_released(&alive));
}

#[test] // lifecycle 27.1, case 5
fn a_deadline_that_is_no_time_stops_everything() {
    let claim = ending(initialized(json!({"metadata": {"annotations": {
        "karpenter.sh/nodeclaim-termination-timestamp": "not-a-time"}}})));
    let node = going(json!({}));
    let act = look_at(&node, Some(&claim), &[], &[], Instance::Alive, "10:00:01");
    assert_eq!(
        act.broken.as_deref(),
        Some(
            "annotation karpenter.sh/nodeclaim-termination-timestamp is not a time: \"not-a-time\""
        )
    );
    assert!(act.drain.is_none() && act.finish.is_empty());
}

#[test] // lifecycle 2.1, case 6; 28.7, cases 2 and 10
fn a_drain_lasts_at_least_five_seconds() {
    let node = going(json!({}));
    let claim = ending(initialized(json!({})));
    let pods: Vec<Pod> = ["a", "b", "c"].map(|it| pod(it, json!({}))).into();
    let pods: Vec<&Pod> = pods.iter().collect();
    let draining = look_at(&node, Some(&claim), &pods, &[], Instance::Alive, "10:00:02");
    let status = draining.status.expect("written");
    assert_eq!(condition(&status, "Drained"), (Unknown, "Draining", ""));
    assert_eq!(status.condition("VolumesDetached"), None);
    let text = "Failed to drain node, 3 pods are waiting to be evicted".to_owned();
    assert_eq!(events(&draining.actions), [("FailedDraining".to_owned(), text)]);
    for (now, expected) in [("10:00:06", Unknown), ("10:00:07", True)] {
        let act = look_at(&node, Some(&status), &[], &[], Instance::Alive, now);
        let after = act.status.as_deref().unwrap_or(&status);
        assert_eq!(condition(after, "Drained").0, expected, "{now}");
        assert_eq!(act.terminate.is_some(), expected == True, "{now}");
        if expected == Unknown {
            assert_eq!(act.wake_at, Some(at("10:00:07")));
        } else {
            assert!(
                counts(&act.finish)
                    .contains(&"karpenter_nodes_drained_total{nodepool=np}".to_owned())
            );
        }
    }
}

fn attachment(name: &str, volume: Value) -> VolumeAttachment {
    of(
        json!({"metadata": {"name": name}, "spec": {"nodeName": "n"}}),
        &json!({"spec": {"source": {"persistentVolumeName": volume}}}),
    )
}

fn drained(changes: Value) -> NodeClaim {
    let mut claim = ending(initialized(changes));
    claim.conditions_mut().set_true(NodeClaim::DRAINED, at("10:00:10"));
    claim
}

#[test] // lifecycle 29.3, cases 1, 4 and 7; B-083
fn volumes_are_waited_for_until_the_deadline() {
    let node = going(json!({}));
    let volume = attachment("va-1", json!("pv-1"));
    let deadline = json!({"metadata": {"annotations": {
        "karpenter.sh/nodeclaim-termination-timestamp": "2024-03-01T11:00:00Z"}}});
    let claim = drained(json!({}));
    let waits = look_at(&node, Some(&claim), &[], &[&volume], Instance::Alive, "10:30:00");
    let status = waits.status.as_ref().expect("written");
    assert_eq!(condition(status, "VolumesDetached"), (Unknown, "AwaitingVolumeDetachment", ""));
    let expected = (
        "AwaitingVolumeDetachment".to_owned(),
        "Awaiting deletion of bound volumeattachments (va-1)".to_owned(),
    );
    assert_eq!(events(&waits.actions), [expected]);
    assert_eq!((waits.terminate.clone(), is_released(&waits)), (None, false));

    let bounded = drained(deadline);
    let on_time = look_at(&node, Some(&bounded), &[], &[&volume], Instance::Alive, "11:00:00");
    assert_eq!((on_time.terminate, on_time.wake_at), (None, Some(at("11:00:01"))));
    let late = look_at(&node, Some(&bounded), &[], &[&volume], Instance::Alive, "11:00:01");
    let status = late.status.expect("written");
    assert_eq!(condition(&status, "VolumesDetached"), (False, "TerminationGracePeriodElapsed", ""));
    assert_eq!(late.terminate, Some(id()), "in the same run");

    let free = look_at(&node, Some(&claim), &[], &[], Instance::Alive, "10:30:00");
    let status = free.status.expect("written");
    for type_ in ["Drained", "VolumesDetached", "InstanceTerminating"] {
        assert_eq!(condition(&status, type_).0, True, "{type_}");
    }
    assert_eq!((free.terminate, free.wake_at), (Some(id()), Some(at("10:30:05"))));
}

#[test] // lifecycle 29.3, case 6; 32.1, case 6
fn a_node_is_let_go_when_its_instance_is_gone() {
    let node = going(json!({}));
    let mut claim = drained(json!({}));
    claim.conditions_mut().set_true(NodeClaim::VOLUMES_DETACHED, at("10:00:10"));
    claim.conditions_mut().set_true(NodeClaim::INSTANCE_TERMINATING, at("10:00:10"));
    let look = |instance, now| look_at(&node, Some(&claim), &[], &[], instance, now);
    let still = look(Instance::ShuttingDown, "10:00:45");
    assert_eq!((still.terminate.clone(), still.wake_at), (None, Some(at("10:00:50"))));
    assert!(!is_released(&still));
    let gone = look(Instance::Gone, "10:00:50");
    assert!(is_released(&gone));
    assert_eq!(
        counts(&gone.finish),
        [
            "karpenter_nodes_terminated_total{nodepool=np,zone=}",
            "karpenter_nodes_termination_duration_seconds{nodepool=np}",
            "karpenter_nodes_lifetime_duration_seconds{nodepool=np}",
        ]
    );
}

#[test] // lifecycle 29.3, cases 2, 3 and 5; B-083
fn volumes_that_stay_do_not_count() {
    let staying = pod(
        "p",
        json!({"spec": {"tolerations": [{"operator": "Exists"}], "volumes": [
        {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "logs", "persistentVolumeClaim": {"claimName": "logs"}},
        {"name": "tmp"}]}}),
    );
    let evicted = pod(
        "q",
        json!({"spec": {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "x"}}]}}),
    );
    let claims = volumes::staying_claims(&[&staying, &evicted], at("10:00:00"));
    let expected = ["logs", "p-data"].map(|it| ObjectKey::namespaced("default", it));
    assert_eq!(claims, BTreeSet::from(expected));

    let (waits, stays) = (attachment("va-1", json!("pv-1")), attachment("va-2", json!("pv-2")));
    let inline = attachment("va-3", json!(null));
    let elsewhere = of(
        json!({"metadata": {"name": "va-4"}}),
        &json!({"spec": {"nodeName": "m", "source": {"persistentVolumeName": "pv-4"}}}),
    );
    let ignored = BTreeSet::from(["pv-2".to_owned()]);
    let left = volumes::blocking([&stays, &waits, &inline, &elsewhere], "n", &ignored);
    assert_eq!(left, [&waits]);
}

#[test] // lifecycle 28.2; 33.1, case 6
fn why_pods_are_evicted() {
    let mut claim = ending(initialized(json!({})));
    assert_eq!(eviction_reason(Some(&claim)), "Forceful Termination");
    claim.conditions_mut().set(
        "DisruptionReason",
        True,
        "Underutilized",
        "Underutilized",
        at("10:00:00"),
    );
    assert_eq!(eviction_reason(Some(&claim)), "Underutilized");
    assert_eq!(eviction_reason(None), "");
}

#[test] // lifecycle 10, last paragraph
fn a_drain_without_an_end_is_spoken_of() {
    let node = going(json!({}));
    let claim = ending(initialized(json!({})));
    let held =
        pod("held", json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}));
    let view = NodeView {
        node: Some(&node),
        claim: Some(&claim),
        pods: Some(vec![&held]),
        ..NodeView::default()
    };
    let day = "2024-03-02T10:00:00Z".parse().expect("a time");
    let late = act(decide_node(&view, day));
    assert!(events(&late.actions).iter().any(|(reason, _)| reason == "DrainingForLong"));
    assert_eq!(late.wake_at, None, "only events and the sweep look any more");
    let early = act(decide_node(&view, at("10:00:30")));
    let told = |reason: &str, text: &str| (reason.to_owned(), text.to_owned());
    assert_eq!(
        events(&early.actions),
        [
            told("FailedDraining", "Failed to drain node, 1 pods are waiting to be evicted"),
            told(
                "FailedDraining",
                "Failed to drain node, pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/held)"
            ),
        ]
    );
    assert_eq!(early.wake_at, Some(at("10:00:40")));
    assert!(
        early.waiting.is_some_and(|it| it.contains("default/held has karpenter.sh/do-not-disrupt"))
    );
}
