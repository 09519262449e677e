//! Which change wakes whom (`spec` lifecycle 35), and the batch windows.

use std::{collections::BTreeSet, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_cluster_bridge_function::{Bridge, Change, KEYS_PER_EVENT};
use spokeshave_lambda::wiring;
use spokeshave_model::{
    EC2NodeClass, Kind, NodeClaim, NodeOverlay, NodePool, Settings,
    core::{
        DaemonSet, Namespace, Node, PersistentVolumeClaim, Pod, PodDisruptionBudget, ResourceSlice,
        VolumeAttachment,
    },
    meta::{apply_merge_patch, from_value},
};
use spokeshave_ports::{Concern, queues::BusEvent, watch::BOUND_PODS};

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_767_261_600_000 + millis).expect("in range")
}

fn bridge() -> Bridge {
    Bridge::new(&Settings::default())
}

fn object<K: Kind>(base: &Value, patch: &Value) -> Option<Arc<K>> {
    if patch.is_null() {
        return None;
    }
    let mut value = base.clone();
    apply_merge_patch(&mut value, patch);
    Some(Arc::new(from_value(value).expect("an object of this kind")))
}

/// The change from `base` patched with `old` to `base` patched with `new`; `null` means absent.
fn change<K: Kind>(base: &Value, old: &Value, new: &Value) -> Change {
    Change::of::<K>(object(base, old), object(base, new)).expect("a kind that is watched")
}

/// `Type Kind/name,...` of everything that a change brings forth, windows closed.
fn news(bridge: &mut Bridge, change: &Change) -> Vec<String> {
    bridge.observe(change, at(0));
    texts(&bridge.take_all())
}

fn texts(events: &[BusEvent]) -> Vec<String> {
    let key = |it: &spokeshave_ports::Key| {
        let name = if it.namespace.is_empty() {
            it.name.clone()
        } else {
            format!("{}/{}", it.namespace, it.name)
        };
        format!("{}/{name}", it.kind)
    };
    let text = |it: &BusEvent| {
        let keys: Vec<String> = it.work.keys.iter().map(key).collect();
        format!("{} {}", it.detail_type, keys.join(","))
    };
    events.iter().map(text).collect()
}

fn pod() -> Value {
    json!({"metadata": {"name": "p", "namespace": "n", "uid": "pod-1", "resourceVersion": "7"}})
}

fn unschedulable() -> Value {
    json!({"status": {"conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}})
}

fn node() -> Value {
    json!({"metadata": {"name": "ip-1", "uid": "node-1", "labels": {"karpenter.sh/nodepool": "default"},
                        "finalizers": ["karpenter.sh/termination"]},
           "spec": {"providerID": "aws:///eu-west-1a/i-1"},
           "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

fn claim() -> Value {
    json!({"metadata": {"name": "c", "uid": "claim-1", "labels": {"karpenter.sh/nodepool": "default"},
                        "finalizers": ["karpenter.sh/termination"]},
           "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}})
}

fn condition(type_: &str, status: &str) -> Value {
    json!({"status": {"conditions": [{"type": type_, "status": status}]}})
}

#[test] // lifecycle 35: pods; lifecycle 8.1; 8.3, case 8
fn pods() {
    let none = json!(null);
    let plain = json!({});
    let bound = json!({"spec": {"nodeName": "ip-1"}});
    let with = |patch: Value| {
        let mut value = bound.clone();
        apply_merge_patch(&mut value, &patch);
        value
    };
    let ended = with(json!({"status": {"phase": "Succeeded"}}));
    let deleting = with(json!({"metadata": {"deletionTimestamp": "2026-01-01T10:00:00Z"}}));
    let daemon = with(json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]}}));
    let mirror = with(json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "ip-1", "uid": "node-1"}]}}));
    let protected =
        with(json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}));
    let node = |it: &str| format!("{it} Node/ip-1");
    let drain = node("DrainProgressed");
    let due = "DisruptionDue Pod/n/p".to_owned();
    for (what, old, new, expected) in [
        ("created", &none, &plain, vec![]),
        ("cannot be scheduled", &plain, &unschedulable(), vec!["PodsPending Pod/n/p".to_owned()]),
        ("still cannot", &unschedulable(), &unschedulable(), vec![]),
        ("bound", &plain, &bound, vec![drain.clone(), node("PodBound"), due.clone()]),
        ("first seen bound", &none, &bound, vec![drain.clone(), node("PodBound"), due.clone()]),
        ("a mirror pod counts", &none, &mirror, vec![drain.clone(), node("PodBound"), due.clone()]),
        ("a daemon pod does not", &none, &daemon, vec![drain.clone()]),
        ("done", &bound, &ended, vec![drain.clone(), node("PodGone"), due.clone()]),
        ("terminating", &bound, &deleting, vec![drain.clone(), node("PodEnding"), due.clone()]),
        ("gone", &deleting, &none, vec![drain.clone(), node("PodGone"), due.clone()]),
        ("a done one gone", &ended, &none, vec![drain.clone(), node("PodGone"), due.clone()]),
        ("gone before it was bound", &plain, &none, vec![]),
        ("protected", &bound, &protected, vec![drain.clone(), due.clone()]),
        // lifecycle 35.1, case 6: a label is no pod event, and nothing visible follows from it.
        ("a label", &bound, &with(json!({"metadata": {"labels": {"a": "b"}}})), vec![]),
        ("readiness", &bound, &with(condition("Ready", "True")), vec![]),
    ] {
        let change = change::<Pod>(&pod(), old, new);
        assert_eq!(news(&mut bridge(), &change), expected, "{what}");
    }
}

#[test]
fn pods_need_no_old_state() {
    let mut bridge = bridge();
    let none = json!(null);
    let bound = json!({"spec": {"nodeName": "ip-1"}});
    let ended = json!({"spec": {"nodeName": "ip-1"}, "status": {"phase": "Failed"}});
    news(&mut bridge, &change::<Pod>(&pod(), &none, &unschedulable()));
    assert_eq!(news(&mut bridge, &change::<Pod>(&pod(), &none, &unschedulable())), [""; 0]);
    let texts = news(&mut bridge, &change::<Pod>(&pod(), &none, &bound));
    assert!(texts.contains(&"PodBound Node/ip-1".to_owned()), "{texts:?}");
    assert_eq!(news(&mut bridge, &change::<Pod>(&pod(), &none, &bound)), [""; 0]);
    let texts = news(&mut bridge, &change::<Pod>(&pod(), &none, &ended));
    assert!(texts.contains(&"PodGone Node/ip-1".to_owned()), "{texts:?}");
}

#[test] // lifecycle 8.1 BETTER: the initial listing is no event
fn a_listed_pod_is_no_pod_event_but_a_pending_one_is_placed() {
    let mut bridge = bridge();
    let bound = json!({"spec": {"nodeName": "ip-1"}});
    bridge.observe_listed(&change::<Pod>(&pod(), &json!(null), &bound), at(0));
    assert_eq!(texts(&bridge.take_all()), [""; 0]);
    let mut other = pod();
    other["metadata"]["uid"] = json!("pod-2");
    bridge.observe_listed(&change::<Pod>(&other, &json!(null), &unschedulable()), at(0));
    assert_eq!(texts(&bridge.take_all()), ["PodsPending Pod/n/p"]);
}

#[test]
fn a_bridge_that_goes_on_takes_no_old_pod_for_news() {
    let none = json!(null);
    let bound = |seconds: i64| {
        json!({"spec": {"nodeName": "ip-1"}, "status": {"conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(seconds * 1000)},
            {"type": "Ready", "status": "False", "lastTransitionTime": at(500_000)}]}})
    };
    let with = |patch: Value| {
        let mut value = bound(0);
        apply_merge_patch(&mut value, &patch);
        value
    };
    let done = with(json!({"status": {"phase": "Succeeded"}}));
    let deleting = |seconds: i64| {
        with(json!({"metadata": {"deletionTimestamp": at(seconds * 1000 + 30_000),
            "deletionGracePeriodSeconds": 30}}))
    };
    for (what, new, event) in [
        ("bound long ago, not ready just now", bound(0), None),
        ("bound before", bound(99), None),
        ("bound since", bound(100), Some("PodBound Node/ip-1")),
        ("done since", done, Some("PodGone Node/ip-1")),
        ("deleted before", deleting(99), None),
        ("deleted since", deleting(100), Some("PodEnding Node/ip-1")),
    ] {
        let mut bridge = bridge();
        bridge.resumed(at(100_000));
        let texts = news(&mut bridge, &change::<Pod>(&pod(), &none, &new));
        let events: Vec<&str> =
            texts.iter().map(String::as_str).filter(|it| it.starts_with("Pod")).collect();
        assert_eq!(events, event.into_iter().collect::<Vec<_>>(), "{what}");
        // What follows is news again.
        let texts = news(&mut bridge, &change::<Pod>(&pod(), &new, &none));
        assert!(texts.contains(&"PodGone Node/ip-1".to_owned()), "{what}: {texts:?}");
    }
}

#[test]
fn drains_are_told_only_of_nodes_that_may_be_draining() {
    let mut bridge = bridge();
    let bound = json!({"spec": {"nodeName": "ip-1"}});
    news(&mut bridge, &change::<Node>(&node(), &json!(null), &json!({})));
    let texts = news(&mut bridge, &change::<Pod>(&pod(), &bound, &json!(null)));
    assert_eq!(texts, ["PodGone Node/ip-1", "DisruptionDue Pod/n/p"]);
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T10:00:00Z"}});
    news(&mut bridge, &change::<Node>(&node(), &json!({}), &deleting));
    let texts = news(&mut bridge, &change::<Pod>(&pod(), &bound, &json!(null)));
    assert!(texts.contains(&"DrainProgressed Node/ip-1".to_owned()), "{texts:?}");
    // A node of an Auto Scaling group that lets it go (aws-nodeclass 30) is drained without being deleted.
    let group = json!({"metadata": {"labels": null}});
    let taint = json!({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"});
    let mut leaving = group.clone();
    apply_merge_patch(&mut leaving, &json!({"spec": {"taints": [taint]}}));
    for (old, new, expected) in [(&json!({}), &group, false), (&group, &leaving, true)] {
        news(&mut bridge, &change::<Node>(&node(), old, new));
        let texts = news(&mut bridge, &change::<Pod>(&pod(), &bound, &json!(null)));
        assert_eq!(texts.contains(&"DrainProgressed Node/ip-1".to_owned()), expected, "{texts:?}");
    }
    let attachment =
        json!({"metadata": {"name": "va"}, "spec": {"nodeName": "ip-1", "attacher": "ebs"}});
    let gone = change::<VolumeAttachment>(&attachment, &json!({}), &json!(null));
    assert_eq!(news(&mut bridge, &gone), ["VolumeDetached Node/ip-1"]);
    let made = change::<VolumeAttachment>(&attachment, &json!(null), &json!({}));
    assert_eq!(news(&mut bridge, &made), [""; 0]);
}

#[test] // lifecycle 35: nodes
fn nodes() {
    let none = json!(null);
    let plain = json!({});
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T10:00:00Z"}});
    let mut finalized = deleting.clone();
    finalized["metadata"]["finalizers"] = json!(null);
    let taint = json!({"spec": {"taints": [
        {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}});
    let heartbeat = json!({"metadata": {"resourceVersion": "9", "managedFields": [{"time": "x"}]}});
    let changed = "NodeChanged Node/ip-1".to_owned();
    let counts = "PoolCountsChanged NodePool/default".to_owned();
    let due = "DisruptionDue Node/ip-1".to_owned();
    for (what, old, new, expected) in [
        ("joined", &none, &plain, vec![changed.clone(), counts.clone(), due.clone()]),
        // lifecycle 35.1, case 1
        ("a heartbeat", &plain, &heartbeat, vec![]),
        (
            "no longer ready",
            &plain,
            &condition("Ready", "False"),
            vec![changed.clone(), due.clone()],
        ),
        (
            "initialized",
            &plain,
            &json!({"metadata": {"labels": {"karpenter.sh/initialized": "true"}}}),
            vec![changed.clone(), due.clone()],
        ),
        (
            "grown",
            &plain,
            &json!({"status": {"capacity": {"cpu": "4"}}}),
            vec![changed.clone(), counts.clone()],
        ),
        // scheduling 10, case 6
        ("tainted", &plain, &taint, vec![changed.clone(), "ProvisionDue Node/ip-1".to_owned()]),
        (
            "being deleted",
            &plain,
            &deleting,
            vec![
                changed.clone(),
                "NodeDeleting Node/ip-1".to_owned(),
                "PodsDisplaced Node/ip-1".to_owned(),
                counts.clone(),
                due.clone(),
            ],
        ),
        (
            "changed while being deleted",
            &deleting,
            &finalized,
            vec![changed.clone(), "NodeDeleting Node/ip-1".to_owned()],
        ),
        (
            "gone",
            &finalized,
            &none,
            vec!["NodeGone Node/ip-1".to_owned(), counts.clone(), due.clone()],
        ),
        (
            "gone by force",
            &plain,
            &none,
            vec![
                "NodeGone Node/ip-1".to_owned(),
                "NodeLost Node/ip-1".to_owned(),
                counts.clone(),
                due.clone(),
            ],
        ),
    ] {
        let change = change::<Node>(&node(), old, new);
        assert_eq!(news(&mut bridge(), &change), expected, "{what}");
    }
}

#[test] // lifecycle 35: claims; 35.1, cases 4 and 5; aws-nodeclass 2, case 8
fn claims() {
    let none = json!(null);
    let plain = json!({});
    let launched = json!({"status": {"providerID": "aws:///eu-west-1a/i-1",
        "conditions": [{"type": "Launched", "status": "True"}]}});
    let with = |type_: &str| {
        let mut value = launched.clone();
        value["status"]["conditions"]
            .as_array_mut()
            .expect("a list")
            .push(json!({"type": type_, "status": "True"}));
        value
    };
    let mut deleting = launched.clone();
    deleting["metadata"] = json!({"deletionTimestamp": "2026-01-01T10:00:00Z"});
    let mut annotated = deleting.clone();
    annotated["metadata"]["annotations"] =
        json!({"karpenter.sh/nodeclaim-termination-timestamp": "2026-01-01T11:00:00Z"});
    let mut finalized = deleting.clone();
    finalized["metadata"]["finalizers"] = json!(null);
    let mut tagged = with("Registered");
    tagged["metadata"] = json!({"annotations": {"karpenter.k8s.aws/tagged": "true",
        "compatibility.karpenter.k8s.aws/cluster-name-tagged": "true"}});
    let pod_event = json!({"status": {"providerID": "aws:///eu-west-1a/i-1",
        "conditions": [{"type": "Launched", "status": "True"}],
        "lastPodEventTime": "2026-01-01T10:00:00Z"}});
    let counts = "PoolCountsChanged NodePool/default".to_owned();
    let due = "DisruptionDue NodeClaim/c".to_owned();
    let it = |type_: &str| format!("{type_} NodeClaim/c");
    for (what, old, new, expected) in [
        ("created", &none, &plain, vec![it("NodeClaimCreated"), counts.clone(), due.clone()]),
        ("launched", &plain, &launched, vec![it("NodeClaimChanged")]),
        (
            "registered",
            &launched,
            &with("Registered"),
            vec![it("NodeClaimChanged"), it("NodeClaimRegistered")],
        ),
        ("tagged", &with("Registered"), &tagged, vec![]),
        (
            "initialized",
            &launched,
            &with("Initialized"),
            vec![it("CommandProgressed"), it("NodeClaimChanged"), due.clone()],
        ),
        ("quiet", &launched, &with("Consolidatable"), vec![due.clone()]),
        ("drifted", &launched, &with("Drifted"), vec![due.clone()]),
        ("written by lifecycle alone", &launched, &pod_event, vec![]),
        ("consistent", &launched, &with("ConsistentStateFound"), vec![]),
        (
            "being deleted",
            &launched,
            &deleting,
            vec![
                it("CommandProgressed"),
                it("NodeClaimDeleting"),
                it("PodsDisplaced"),
                counts.clone(),
                due.clone(),
            ],
        ),
        ("given a deadline", &deleting, &annotated, vec![it("NodeClaimDeleting")]),
        (
            "gone",
            &finalized,
            &none,
            vec![
                it("CommandProgressed"),
                it("NodeClaimGone"),
                "NodeClassReleased EC2NodeClass/default".to_owned(),
                counts.clone(),
                due.clone(),
            ],
        ),
        (
            "gone by force",
            &launched,
            &none,
            vec![
                it("CommandProgressed"),
                it("NodeClaimGone"),
                it("NodeClaimLost"),
                "NodeClassReleased EC2NodeClass/default".to_owned(),
                counts.clone(),
                due.clone(),
            ],
        ),
    ] {
        let change = change::<NodeClaim>(&claim(), old, new);
        assert_eq!(news(&mut bridge(), &change), expected, "{what}");
    }
    let mut foreign = claim();
    foreign["spec"]["nodeClassRef"]["kind"] = json!("AKSNodeClass");
    let change = change::<NodeClaim>(&foreign, &none, &plain);
    assert_eq!(news(&mut bridge(), &change), [""; 0], "another provider's claim");
}

#[test] // lifecycle 35: pools and classes; 35.1, case 3
fn pools_and_classes() {
    let none = json!(null);
    let plain = json!({});
    let pool = json!({"metadata": {"name": "default", "uid": "pool-1"}, "spec": {"template": {"spec": {
        "requirements": [],
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}}});
    let counted = json!({"status": {"nodes": 3}});
    let it = |type_: &str| format!("{type_} NodePool/default");
    for (what, old, new, expected) in [
        ("created", &none, &plain, vec![it("NodePoolChanged")]),
        ("counted", &plain, &counted, vec![]),
        ("ready", &plain, &condition("Ready", "True"), vec![it("NodePoolReady")]),
        ("no longer ready", &condition("Ready", "True"), &condition("Ready", "False"), vec![]),
        (
            "hashed",
            &plain,
            &json!({"metadata": {"annotations": {"karpenter.sh/nodepool-hash": "1"}}}),
            vec![it("NodePoolChanged")],
        ),
        ("scaled", &plain, &json!({"spec": {"replicas": 3}}), vec![it("NodePoolChanged")]),
        ("gone", &plain, &none, vec![it("NodePoolGone")]),
    ] {
        assert_eq!(news(&mut bridge(), &change::<NodePool>(&pool, old, new)), expected, "{what}");
    }
    // B-086: a kind of our group that nobody serves is said on the pool; another group is not ours.
    for (group, kind, expected) in [
        ("karpenter.k8s.aws", "ec2nodeclass", vec![it("NodePoolChanged")]),
        ("karpenter.azure.com", "AKSNodeClass", vec![]),
    ] {
        let mut pool = pool.clone();
        let class = json!({"group": group, "kind": kind, "name": "default"});
        pool["spec"]["template"]["spec"]["nodeClassRef"] = class;
        assert_eq!(news(&mut bridge(), &change::<NodePool>(&pool, &none, &plain)), expected);
    }
    let class = json!({"metadata": {"name": "default", "uid": "class-1"},
        "spec": {"amiSelectorTerms": [], "subnetSelectorTerms": [], "securityGroupSelectorTerms": []}});
    let images = json!({"status": {"amis": [{"id": "ami-2"}]}});
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T10:00:00Z"}});
    let it = |type_: &str| format!("{type_} EC2NodeClass/default");
    for (what, old, new, expected) in [
        ("created", &none, &plain, vec![it("NodeClassChanged"), it("NodeClassStatusChanged")]),
        ("new images", &plain, &images, vec![it("NodeClassStatusChanged")]),
        ("edited", &plain, &json!({"spec": {"role": "r"}}), vec![it("NodeClassChanged")]),
        (
            "being deleted",
            &plain,
            &deleting,
            vec![it("NodeClassChanged"), it("NodeClassStatusChanged")],
        ),
        ("gone", &deleting, &none, vec![it("NodeClassGone")]),
    ] {
        let change = change::<EC2NodeClass>(&class, old, new);
        assert_eq!(news(&mut bridge(), &change), expected, "{what}");
    }
    let mut bridge = bridge();
    news(&mut bridge, &change::<EC2NodeClass>(&class, &none, &plain));
    let gone = news(&mut bridge, &change::<NodeClaim>(&claim(), &plain, &none));
    assert!(
        !gone.iter().any(|it| it.starts_with("NodeClassReleased")),
        "the class stays: {gone:?}"
    );
}

#[test] // lifecycle 35.1, case 2
fn budgets_daemon_sets_and_volume_claims() {
    let none = json!(null);
    let budget = json!({"metadata": {"name": "b", "namespace": "n", "uid": "b-1"}, "spec": {}});
    let allows = |n: i32| json!({"status": {"disruptionsAllowed": n}});
    let due = "DisruptionDue PodDisruptionBudget/n/b".to_owned();
    let unblocked = "EvictionUnblocked PodDisruptionBudget/n/b".to_owned();
    for (what, old, new, expected) in [
        ("more allowed", &allows(0), &allows(1), vec![unblocked.clone(), due.clone()]),
        ("less allowed", &allows(1), &allows(0), vec![due.clone()]),
        (
            "healthy pods counted",
            &allows(1),
            &json!({"status": {"disruptionsAllowed": 1,
            "currentHealthy": 4}}),
            vec![],
        ),
        (
            "spec changed",
            &allows(0),
            &json!({"spec": {"maxUnavailable": 1}}),
            vec![unblocked.clone(), due.clone()],
        ),
        ("gone", &allows(0), &none, vec![unblocked.clone(), due.clone()]),
    ] {
        let change = change::<PodDisruptionBudget>(&budget, old, new);
        assert_eq!(news(&mut bridge(), &change), expected, "{what}");
    }
    let daemons = json!({"metadata": {"name": "d", "namespace": "n", "uid": "d-1"},
        "spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}});
    let both = ["ProvisionDue DaemonSet/n/d", "DisruptionDue DaemonSet/n/d"];
    let made = change::<DaemonSet>(&daemons, &none, &json!({}));
    assert_eq!(news(&mut bridge(), &made), both);
    let rolled = change::<DaemonSet>(&daemons, &json!({}), &json!({"status": {"replicas": 3}}));
    assert_eq!(news(&mut bridge(), &rolled), [""; 0]);
    let volume = json!({"metadata": {"name": "v", "namespace": "n", "uid": "v-1"}, "spec": {}});
    let bound = json!({"spec": {"volumeName": "pv-1"}});
    let change_ = change::<PersistentVolumeClaim>(&volume, &json!({}), &bound);
    assert_eq!(news(&mut bridge(), &change_), ["ProvisionDue PersistentVolumeClaim/n/v"]);
    let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "gpu", "nodeName": "ip-1"}});
    let made = change::<ResourceSlice>(&slice, &none, &json!({}));
    assert_eq!(news(&mut bridge(), &made), ["NodeChanged Node/ip-1"]);
    assert_eq!(Change::of::<Namespace>(None, None), None);
}

#[test] // scheduling 10.2: idle 1 s, at most 10 s, a known pod does not restart the idle time
fn pending_pods_are_batched() {
    let pending = |uid: usize| {
        let mut base = pod();
        base["metadata"]["uid"] = json!(format!("pod-{uid}"));
        base["metadata"]["name"] = json!(format!("p{uid:04}"));
        change::<Pod>(&base, &json!(null), &unschedulable())
    };
    let mut bridge = bridge();
    bridge.observe(&pending(1), at(0));
    assert_eq!(bridge.due(), Some(at(1000)));
    assert_eq!(bridge.take(at(999)), []);
    bridge.observe(&pending(2), at(900));
    assert_eq!(bridge.due(), Some(at(1900)));
    bridge.observe(&pending(2), at(1500));
    assert_eq!(bridge.due(), Some(at(1900)), "a known pod");
    assert_eq!(texts(&bridge.take(at(1900))), ["PodsPending Pod/n/p0001,Pod/n/p0002"]);
    assert_eq!(bridge.due(), None);

    for n in 0..250 {
        bridge.observe(&pending(1000 + n), at(2000 + 100 * i64::try_from(n).expect("small")));
        if bridge.due() == Some(at(12_000)) {
            break;
        }
    }
    assert_eq!(bridge.due(), Some(at(12_000)), "10 s after the first");
    let events = bridge.take(at(12_000));
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].work.keys.len(), 91);
    for n in 0..250 {
        bridge.observe(&pending(5000 + n), at(20_000));
    }
    let events = bridge.take(at(21_000));
    let sizes: Vec<usize> = events.iter().map(|it| it.work.keys.len()).collect();
    assert_eq!(sizes, [KEYS_PER_EVENT, KEYS_PER_EVENT, 50]);
    assert_eq!(events[0].work.reason, "PodsPending");
    assert_eq!(events[0].work.keys[0].resource_version, "7");
}

#[test]
fn bursts_are_coalesced_per_key() {
    let mut bridge = bridge();
    let none = json!(null);
    let pending = unschedulable();
    for n in 0..50 {
        let mut base = node();
        base["metadata"]["resourceVersion"] = json!(n.to_string());
        let labelled = json!({"metadata": {"labels": {"n": n.to_string()}}});
        bridge.observe(&change::<Node>(&base, &none, &labelled), at(n));
    }
    assert_eq!(bridge.due(), Some(at(0)), "what is not batched is ready at once");
    let events = bridge.take(at(50));
    assert_eq!(texts(&events), ["NodeChanged Node/ip-1", "PoolCountsChanged NodePool/default"]);
    assert_eq!(events[0].work.keys[0].resource_version, "49");
    bridge.observe(&change::<Pod>(&pod(), &none, &pending), at(100));
    let due = bridge.take(at(11_000));
    assert_eq!(texts(&due), ["PodsPending Pod/n/p", "DisruptionDue Node/ip-1"]);
}

#[test]
fn what_the_bus_refused_goes_out_again() {
    let mut bridge = bridge();
    let change = change::<Node>(&node(), &json!(null), &json!({}));
    bridge.observe(&change, at(0));
    let events = bridge.take(at(0));
    bridge.give_back(&events[0], at(100));
    bridge.restarted("NodeClaim", at(100));
    assert_eq!(bridge.oldest(), Some(at(0)), "the disruption window is still open");
    let again = texts(&bridge.take(at(200)));
    assert_eq!(
        again,
        ["CommandProgressed ", "EvictionUnblocked ", "NodeClaimLost ", "NodeChanged Node/ip-1"]
    );
    assert_eq!(bridge.take(at(1000)).len(), 1);
    assert_eq!(bridge.oldest(), None);
}

#[test]
fn every_detail_type_is_routed_as_one_window_or_at_once() {
    let window = SignedDuration::from_secs(1);
    assert_eq!(Settings::default().batch_idle_duration, window);
    for detail_type in [
        "PodsPending",
        "ProvisionDue",
        "PodsDisplaced",
        "PodBound",
        "PodEnding",
        "PodGone",
        "DrainProgressed",
        "EvictionUnblocked",
        "VolumeDetached",
        "NodeChanged",
        "NodeDeleting",
        "NodeGone",
        "NodeLost",
        "NodeClaimCreated",
        "NodeClaimChanged",
        "NodeClaimRegistered",
        "NodeClaimDeleting",
        "NodeClaimGone",
        "NodeClaimLost",
        "CommandProgressed",
        "NodePoolChanged",
        "NodePoolReady",
        "NodePoolGone",
        "PoolCountsChanged",
        "NodeClassChanged",
        "NodeClassStatusChanged",
        "NodeClassGone",
        "NodeClassReleased",
        "DisruptionDue",
        "HandOver",
    ] {
        assert!(!wiring::routes(detail_type).is_empty(), "{detail_type}");
    }
}

/// The concerns that a change wakes.
fn woken(bridge: &mut Bridge, change: &Change) -> BTreeSet<Concern> {
    bridge.observe(change, at(0));
    let events = bridge.take_all();
    events.iter().flat_map(|it| wiring::routes(it.detail_type)).copied().collect()
}

#[test] // lifecycle 35: every line of the table
fn every_watch_event_wakes_its_concern() {
    use Concern::{
        Disruption, InstanceGc, Launch, Lifecycle, Nodeclass, Nodepool, Provision, Tagging,
        Termination,
    };
    let none = json!(null);
    let plain = json!({});
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T10:00:00Z"}});
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let annotated = |key: &str| json!({"metadata": {"annotations": {key: "true"}}});
    let launched = |then: &[&str]| {
        let types = ["Launched"].iter().chain(then);
        let conditions: Vec<Value> =
            types.map(|it| json!({"type": it, "status": "True"})).collect();
        json!({"status": {"providerID": "aws:///eu-west-1a/i-1", "conditions": conditions}})
    };
    let with = |base: &Value, patch: &Value| {
        let mut value = base.clone();
        apply_merge_patch(&mut value, patch);
        value
    };
    let bound = json!({"spec": {"nodeName": "ip-1"}});
    let done = with(&bound, &json!({"status": {"phase": "Succeeded"}}));
    let ending = with(&bound, &deleting);
    let protected = with(&bound, &annotated("karpenter.sh/do-not-disrupt"));
    let grown = json!({"status": {"capacity": {"cpu": "4"}}});
    let unready = condition("Ready", "False");
    let initialized = json!({"metadata": {"labels": {"karpenter.sh/initialized": "true"}}});
    let ready = condition("Ready", "True");
    let replicas = json!({"spec": {"replicas": 3}});
    let deadline = with(&deleting, &annotated("karpenter.sh/nodeclaim-termination-timestamp"));
    let pool = json!({"metadata": {"name": "default", "uid": "pool-1"}, "spec": {"template": {"spec": {
        "requirements": [],
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}}});
    let class = json!({"metadata": {"name": "default", "uid": "class-1"},
        "spec": {"amiSelectorTerms": [], "subnetSelectorTerms": [], "securityGroupSelectorTerms": []}});
    let budget = json!({"metadata": {"name": "b", "namespace": "n", "uid": "b-1"}, "spec": {}});
    let allows = |n: i32| json!({"status": {"disruptionsAllowed": n}});
    let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "gpu", "nodeName": "ip-1"}});
    let overlay = json!({"metadata": {"name": "o", "uid": "o-1"}, "spec": {"requirements": []}});
    let attachment =
        json!({"metadata": {"name": "va"}, "spec": {"nodeName": "ip-1", "attacher": "ebs"}});

    let pod = |old: &Value, new: &Value| change::<Pod>(&pod(), old, new);
    let node = |old: &Value, new: &Value| change::<Node>(&node(), old, new);
    let claim = |old: &Value, new: &Value| change::<NodeClaim>(&claim(), old, new);
    let pool = |old: &Value, new: &Value| change::<NodePool>(&pool, old, new);
    let class = |old: &Value, new: &Value| change::<EC2NodeClass>(&class, old, new);
    let budget = |old: &Value, new: &Value| change::<PodDisruptionBudget>(&budget, old, new);
    let slice = |old: &Value, new: &Value| change::<ResourceSlice>(&slice, old, new);
    let overlay = |old: &Value, new: &Value| change::<NodeOverlay>(&overlay, old, new);
    let attached = |old: &Value, new: &Value| change::<VolumeAttachment>(&attachment, old, new);
    for (line, change, concerns) in [
        ("lifecycle: claim created", claim(&none, &plain), vec![Lifecycle, Launch]),
        ("lifecycle: claim changed", claim(&plain, &launched(&[])), vec![Lifecycle]),
        ("lifecycle: node", node(&plain, &labelled), vec![Lifecycle]),
        ("lifecycle: slice made", slice(&none, &plain), vec![Lifecycle]),
        ("lifecycle: slice gone", slice(&plain, &none), vec![Lifecycle]),
        ("drift: claim", claim(&launched(&[]), &with(&launched(&[]), &labelled)), vec![Lifecycle]),
        ("drift: pool", pool(&plain, &labelled), vec![Lifecycle]),
        (
            "drift: class",
            class(&plain, &json!({"status": {"amis": [{"id": "ami-2"}]}})),
            vec![Lifecycle],
        ),
        (
            "drift: class hash",
            class(&plain, &annotated("karpenter.k8s.aws/ec2nodeclass-hash")),
            vec![Lifecycle],
        ),
        ("pod events: bound", pod(&plain, &bound), vec![Lifecycle]),
        ("pod events: done", pod(&bound, &done), vec![Lifecycle]),
        ("pod events: terminating", pod(&bound, &ending), vec![Lifecycle]),
        ("pod events: gone", pod(&ending, &none), vec![Lifecycle]),
        (
            "expiration: claim",
            claim(&plain, &json!({"spec": {"expireAfter": "1h"}})),
            vec![Lifecycle],
        ),
        ("consistency: node", node(&plain, &grown), vec![Lifecycle]),
        (
            "hydration: claim",
            claim(&launched(&[]), &launched(&["Registered"])),
            vec![Lifecycle, Tagging],
        ),
        ("hydration: node", node(&none, &plain), vec![Lifecycle]),
        ("claim GC: node deleted", node(&plain, &none), vec![InstanceGc]),
        ("leaked instances: claim deleted", claim(&launched(&[]), &none), vec![InstanceGc]),
        ("pool hash, validation", pool(&none, &plain), vec![Nodepool]),
        ("pool readiness: pool", pool(&plain, &replicas), vec![Nodepool]),
        ("pool readiness: class", class(&plain, &ready), vec![Nodepool]),
        ("pool readiness: class gone", class(&plain, &none), vec![Nodepool]),
        (
            "registration health: claim",
            claim(&launched(&[]), &launched(&["Registered"])),
            vec![Nodepool],
        ),
        ("pool counter: node's capacity", node(&plain, &grown), vec![Nodepool]),
        ("pool counter: claim deleted", claim(&launched(&[]), &none), vec![Nodepool]),
        ("pool counter: claim being deleted", claim(&plain, &deleting), vec![Nodepool]),
        ("pass: pod bound", pod(&plain, &bound), vec![Disruption]),
        ("pass: pod deleted", pod(&bound, &none), vec![Disruption]),
        ("pass: pod done", pod(&bound, &done), vec![Disruption]),
        ("pass: node added", node(&none, &plain), vec![Disruption]),
        ("pass: node removed", node(&plain, &none), vec![Disruption]),
        ("pass: claim added", claim(&none, &plain), vec![Disruption]),
        ("pass: claim removed", claim(&plain, &none), vec![Disruption]),
        ("pass: label initialized", node(&plain, &initialized), vec![Disruption]),
        ("pass: node Ready", node(&plain, &unready), vec![Disruption]),
        ("pass: claim's deletion time", claim(&plain, &deleting), vec![Disruption]),
        (
            "pass: Consolidatable",
            claim(&launched(&[]), &launched(&["Consolidatable"])),
            vec![Disruption],
        ),
        ("pass: Drifted", claim(&launched(&[]), &launched(&["Drifted"])), vec![Disruption]),
        (
            "pass: InstanceTerminating",
            claim(&launched(&[]), &launched(&["InstanceTerminating"])),
            vec![Disruption],
        ),
        ("pass: Initialized", claim(&launched(&[]), &launched(&["Initialized"])), vec![Disruption]),
        ("pass: pool's spec", pool(&plain, &replicas), vec![Disruption]),
        ("pass: overlay", overlay(&none, &plain), vec![Disruption]),
        (
            "pass: budget's spec",
            budget(&plain, &json!({"spec": {"maxUnavailable": 1}})),
            vec![Disruption],
        ),
        ("pass: budget's status", budget(&allows(1), &allows(0)), vec![Disruption]),
        ("pass: do-not-disrupt on a pod", pod(&bound, &protected), vec![Disruption]),
        (
            "pass: do-not-disrupt on a node",
            node(&plain, &annotated("karpenter.sh/do-not-disrupt")),
            vec![Disruption],
        ),
        (
            "command: replacement initialized",
            claim(&launched(&[]), &launched(&["Initialized"])),
            vec![Disruption],
        ),
        ("command: claim deleted", claim(&launched(&[]), &none), vec![Disruption]),
        ("drain: node being deleted", node(&plain, &deleting), vec![Termination]),
        (
            "drain: node changed meanwhile",
            node(&deleting, &with(&deleting, &labelled)),
            vec![Termination],
        ),
        ("drain: pod", pod(&bound, &ending), vec![Termination]),
        ("drain: budget", budget(&allows(0), &allows(1)), vec![Termination]),
        ("drain: attachment", attached(&plain, &none), vec![Termination]),
        ("drain: claim's annotation", claim(&deleting, &deadline), vec![Termination]),
        ("drain: claim deleted", claim(&launched(&[]), &none), vec![Termination]),
        ("eviction: pod", pod(&ending, &none), vec![Termination]),
        ("eviction: budget allows more", budget(&allows(0), &allows(1)), vec![Termination]),
        ("repair: node created", node(&none, &plain), vec![Lifecycle]),
        ("repair: condition", node(&plain, &unready), vec![Lifecycle]),
        ("static up: pool created", pool(&none, &replicas), vec![Provision]),
        (
            "static up: replicas",
            pool(&replicas, &json!({"spec": {"replicas": 4}})),
            vec![Provision],
        ),
        ("static up: pool Ready", pool(&unready, &ready), vec![Provision]),
        ("static up: claim being deleted", claim(&plain, &deleting), vec![Provision]),
        ("static up: claim deleted", claim(&launched(&[]), &none), vec![Provision]),
        ("static down: claim created", claim(&none, &plain), vec![Provision]),
        ("status: claim", claim(&none, &plain), vec![Lifecycle]),
        ("status: pool", pool(&none, &plain), vec![Nodepool]),
        ("status: node", node(&none, &plain), vec![Lifecycle]),
        ("status: class", class(&none, &plain), vec![Nodeclass]),
    ] {
        let mut bridge = bridge();
        // The claims' pool is a static one, and known.
        woken(&mut bridge, &pool(&none, &replicas));
        let found = woken(&mut bridge, &change);
        let missing: Vec<&Concern> = concerns.iter().filter(|it| !found.contains(it)).collect();
        assert!(missing.is_empty(), "{line}: wakes {found:?}, not {missing:?}");
    }
    // A claim of a pool that is not static is planned already.
    assert!(!woken(&mut bridge(), &claim(&none, &plain)).contains(&Provision));
}

#[test]
fn a_pod_that_is_bound_is_told_once_whichever_watch_is_faster() {
    let none = json!(null);
    let bound = json!({"spec": {"nodeName": "ip-1"}});
    let appeared = change::<Pod>(&pod(), &none, &bound);
    let left = change::<Pod>(&pod(), &unschedulable(), &none);
    for order in [[&appeared, &left], [&left, &appeared]] {
        let mut bridge = bridge();
        news(&mut bridge, &change::<Pod>(&pod(), &none, &unschedulable()));
        let mut texts: Vec<String> =
            order.into_iter().flat_map(|it| news(&mut bridge, it)).collect();
        texts.sort();
        assert_eq!(
            texts,
            ["DisruptionDue Pod/n/p", "DrainProgressed Node/ip-1", "PodBound Node/ip-1"]
        );
        // That it goes is still news.
        let gone = news(&mut bridge, &change::<Pod>(&pod(), &bound, &none));
        assert!(gone.contains(&"PodGone Node/ip-1".to_owned()), "{gone:?}");
    }
}

#[test]
fn each_watch_of_pods_begins_anew_by_itself() {
    let none = json!(null);
    let bound = json!({"spec": {"nodeName": "ip-1"}});
    let known = || {
        let mut bridge = bridge();
        let mut waiting = pod();
        waiting["metadata"]["uid"] = json!("pod-2");
        news(&mut bridge, &change::<Pod>(&pod(), &none, &bound));
        news(&mut bridge, &change::<Pod>(&waiting, &none, &unschedulable()));
        let seen = move |bridge: &mut Bridge| {
            let again = news(bridge, &change::<Pod>(&waiting, &json!(null), &unschedulable()));
            let bound = json!({"spec": {"nodeName": "ip-1"}});
            let there = news(bridge, &change::<Pod>(&pod(), &json!(null), &bound));
            (again.is_empty(), there.is_empty())
        };
        (bridge, seen)
    };
    let (mut bridge, seen) = known();
    bridge.restarted("Pod", at(0));
    assert!(texts(&bridge.take_all()).is_empty(), "no drain waits for pods that are not bound");
    assert_eq!(seen(&mut bridge), (false, true));
    let (mut bridge, seen) = known();
    bridge.restarted(BOUND_PODS, at(0));
    assert_eq!(texts(&bridge.take_all()), ["EvictionUnblocked "]);
    assert_eq!(seen(&mut bridge), (true, false));
}
