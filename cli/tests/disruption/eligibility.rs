//! Who may be disrupted at all (lifecycle 14 and 15).

use serde_json::{Value, json};

use crate::builders::*;

const DRIFTED: &str = "2026-03-02T10:00:00Z";

#[test] // lifecycle 14, rules 1 to 12
fn every_blocker_is_told_by_its_text() {
    let p = || pool("p", json!({}));
    let n = || node("n", "m.large");
    let app = |it: Nodes| it.holding("web", "500m", json!({}));
    for (name, objects, expected) in [
        (
            "2",
            cluster![p(), n().0.swap_remove(0)],
            "Node isn't managed by a NodeClaim of this cluster's NodePools",
        ),
        ("3", cluster![p(), n().0.swap_remove(1)], "Nodeclaim does not have an associated node"),
        ("4", cluster![p(), n().uninitialized()], "Node isn't initialized"),
        ("5 deleting", cluster![p(), n().deleting()], "Node is deleting or marked for deletion"),
        (
            "5 terminating",
            cluster![p(), n().with_condition("InstanceTerminating")],
            "Node is deleting or marked for deletion",
        ),
        (
            "6",
            cluster![p(), n(), waiting("new", "1", json!({}))],
            "Node is nominated for a pending pod",
        ),
        (
            "7",
            cluster![p(), n().node(annotated(DO_NOT_DISRUPT, "true"))],
            "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation",
        ),
        // 14.1, case 2: neither drift nor a deadline changes that.
        (
            "7 drift",
            cluster![p(), n().node(annotated(DO_NOT_DISRUPT, "true")).drifted(DRIFTED).grace("1h")],
            "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation",
        ),
        (
            "8",
            cluster![p(), n().label("karpenter.sh/nodepool", Value::Null)],
            "Node doesn't have required label (label=karpenter.sh/nodepool)",
        ),
        ("9", cluster![p(), n().of("x")], "NodePool not found (NodePool=x)"),
        (
            "9 unmanaged",
            cluster![
                pool(
                    "p",
                    json!({"spec": {"template": {"spec": {"nodeClassRef": {"group": "eks.amazonaws.com"}}}}})
                ),
                n()
            ],
            "NodePool not found (NodePool=p)",
        ),
        (
            "10",
            cluster![p(), n().holding("db", "1", annotated(DO_NOT_DISRUPT, "true"))],
            "Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/db)",
        ),
        (
            "11",
            cluster![p(), app(n()), pdb("b", "web", 5, json!({})), pdb("a", "web", 5, json!({}))],
            "Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[default/a default/b])",
        ),
        (
            "12",
            cluster![p(), app(n()), pdb("a", "web", 0, json!({}))],
            "Pdb prevents pod evictions (PodDisruptionBudget=[default/a])",
        ),
    ] {
        let mut lines = usual(&format!("blockers-{name}"), objects);
        let line = lines.swap_remove(0);
        assert_eq!(line.split_once(": ").map(|it| it.1), Some(expected), "rule {name}");
        assert!(lines.is_empty(), "rule {name}: {lines:?}");
    }
}

#[test] // lifecycle 14.1, case 7, and rule 9: nothing can be bought for the pool
fn a_pool_without_instance_types_is_not_found() {
    let objects = || cluster![pool("p", json!({})), node("n", "m.large")];
    assert_eq!(outcome("no-types", &[], &[], objects()), ["n: NodePool not found (NodePool=p)"]);
    let mut going = objects();
    going.push(class(json!({"metadata": {"deletionTimestamp": NOW, "finalizers": ["f"]}})));
    assert_eq!(
        lines(&plan("class-going", &[], &usual_types(), &going)),
        ["n: NodePool not found (NodePool=p)"]
    );
}

#[test] // lifecycle 14, rule 6
fn nodes_that_get_pending_pods_stay() {
    let both = |extra: Value| {
        cluster![
            pool("p", json!({})),
            node("n1", "m.large"),
            node("n2", "m.large").pod("500m"),
            extra
        ]
    };
    assert_eq!(
        usual("nominated", both(waiting("new", "1", json!({})))),
        ["SingleNodeConsolidation n2 saves 0.1", "n1: Node is nominated for a pending pod"]
    );
    // One that fits nowhere is no reason to keep anything.
    assert_eq!(
        usual(
            "not-nominated",
            both(waiting("new", "1", json!({"spec": {"nodeSelector": {"foo": "bar"}}})))
        ),
        ["Emptiness n1 saves 0.1", "n2: Emptiness found something to do first"]
    );
    // Pods of nodes that go are assigned by provisioning as well.
    assert_eq!(
        usual(
            "displaced",
            cluster![
                pool("p", json!({})),
                node("n1", "m.large"),
                node("n2", "m.large").pod("1").deleting()
            ]
        ),
        ["n1: Node is nominated for a pending pod", "n2: Node is deleting or marked for deletion"]
    );
}

#[test] // lifecycle 14.1, cases 3 to 5; bug report B-025
fn what_protects_pods_and_what_does_not() {
    let protected = annotated(DO_NOT_DISRUPT, "true");
    let text = "n: Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/db)";
    let case = |name: &str, it: Nodes| {
        outcome(&format!("protects-{name}"), &[], &one_type(), cluster![pool("p", json!({})), it])
    };
    let n = || node("n", "m.large");
    assert_eq!(
        case("1h on a node", n().node(annotated(DO_NOT_DISRUPT, "1h"))),
        ["Emptiness n saves 0.1"]
    );
    let db = |it: Nodes| it.holding("db", "1", protected.clone());
    assert_eq!(
        case("drift with a deadline", db(n().drifted(DRIFTED).grace("1h"))),
        ["Drift n saves 0.1"]
    );
    assert_eq!(case("drift without", db(n().drifted(DRIFTED))), [text]);
    assert_eq!(case("consolidation with a deadline", db(n().grace("1h"))), [text]);
    let of = |kind: &str, patch: Value| {
        let mut it = owned_by(kind);
        spokeshave_model::meta::apply_merge_patch(&mut it, &protected);
        spokeshave_model::meta::apply_merge_patch(&mut it, &patch);
        it
    };
    assert_eq!(case("daemon", n().holding("db", "1", of("DaemonSet", json!({})))), [text]);
    for (name, patch) in [
        ("terminating", json!({"metadata": {"deletionTimestamp": NOW}})),
        ("succeeded", json!({"status": {"phase": "Succeeded"}})),
    ] {
        let lines = case(name, n().holding("db", "1", of("ReplicaSet", patch)));
        assert_eq!(lines, ["Emptiness n saves 0.1"], "{name}");
    }
}

#[test] // lifecycle 14.1, case 8, and the consolidation filter
fn consolidation_needs_type_capacity_type_and_zone() {
    let p = || pool("p", json!({"spec": {"template": {"spec": {"requirements": []}}}}));
    let n = || node("n", "m.large").pod("1");
    for (name, it, expected) in [
        (
            "type",
            n().label("node.kubernetes.io/instance-type", json!("zz")),
            "n: Instance Type \"zz\" not found",
        ),
        (
            "capacity",
            n().label("karpenter.sh/capacity-type", Value::Null),
            "n: Node does not have label \"karpenter.sh/capacity-type\"",
        ),
        (
            "zone",
            n().label("topology.kubernetes.io/zone", Value::Null),
            "n: Node does not have label \"topology.kubernetes.io/zone\"",
        ),
    ] {
        let lines = outcome(&format!("label-{name}"), &[], &one_type(), cluster![p(), it.clone()]);
        assert_eq!(lines, [expected], "{name}");
        let drifted = cluster![p(), it.drifted(DRIFTED)];
        let lines = outcome(&format!("label-drift-{name}"), &[], &one_type(), drifted);
        assert!(lines[0].starts_with("Drift n -> p[m.large]"), "{name}: {lines:?}");
    }
}

#[test] // lifecycle 14: Emptiness and the consolidation filter
fn policies_and_quiet_times_keep_nodes() {
    let two = |pool: Value, extra: Nodes| cluster![pool, extra];
    let empty = || node("n", "m.large");
    let busy = || node("n", "m.large").pod("1");
    for (name, objects, expected) in [
        (
            "never empty",
            two(pool_that("p", json!({"consolidateAfter": "Never"})), empty()),
            "n: NodePool \"p\" has consolidation disabled",
        ),
        (
            "never busy",
            two(pool_that("p", json!({"consolidateAfter": "Never"})), busy()),
            "n: NodePool \"p\" has consolidation disabled",
        ),
        (
            "when empty, empty",
            two(pool_that("p", json!({"consolidationPolicy": "WhenEmpty"})), empty()),
            "Emptiness n saves 0.1",
        ),
        (
            "when empty, busy",
            two(pool_that("p", json!({"consolidationPolicy": "WhenEmpty"})), busy()),
            "n: NodePool \"p\" has consolidation policy WhenEmpty, but node is not empty",
        ),
        (
            "not quiet",
            two(pool("p", json!({})), busy().busy()),
            "n: condition Consolidatable is not True",
        ),
        (
            "not quiet, empty",
            two(pool("p", json!({})), empty().busy()),
            "n: condition Consolidatable is not True",
        ),
        // Drift asks neither for quiet nor for a policy.
        (
            "never drifted",
            two(
                pool_that("p", json!({"consolidateAfter": "Never"})),
                empty().drifted(DRIFTED).busy(),
            ),
            "Drift n saves 0.1",
        ),
    ] {
        assert_eq!(
            outcome(&format!("policy-{name}"), &[], &one_type(), objects),
            [expected],
            "{name}"
        );
    }
}

#[test] // lifecycle 14: buffers keep their nodes
fn nodes_with_buffer_pods_are_not_empty() {
    let buffer = json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"name": "spare", "namespace": "default"},
        "spec": {"replicas": 1, "podTemplateRef": {"name": "spare"}}});
    let template = json!({"apiVersion": "v1", "kind": "PodTemplate",
        "metadata": {"name": "spare", "namespace": "default"},
        "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}});
    let objects =
        || cluster![pool("p", json!({})), node("n", "m.large"), buffer.clone(), template.clone()];
    assert_eq!(
        outcome("buffer", &["--feature-gates", "CapacityBuffer=true"], &one_type(), objects()),
        ["n: Node \"n\" has buffer pods"]
    );
    assert_eq!(outcome("buffer-off", &[], &one_type(), objects()), ["Emptiness n saves 0.1"]);
}

#[test] // lifecycle 15.2 and 15.4, cases 1 to 3
fn do_not_disrupt_may_be_a_duration() {
    let blocked = "n: Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/db)";
    let free = "n: Can't replace with a cheaper node";
    for (value, start, expected) in [
        ("2h", Some("2026-03-02T10:00:01Z"), blocked),
        ("2h", Some("2026-03-02T10:00:00Z"), free),
        ("1.5h", Some("2026-03-02T11:00:00Z"), blocked),
        ("90s", Some("2026-03-02T11:58:31Z"), blocked),
        ("1h30m", Some("2026-03-02T10:30:00Z"), free),
        ("1h", None, blocked),
        ("true", None, blocked),
        ("True", None, free),
        ("30", None, free),
        ("-5m", None, free),
        ("0s", None, free),
        ("false", None, free),
        ("", None, free),
    ] {
        let mut patch = annotated(DO_NOT_DISRUPT, value);
        patch["status"] = json!({"startTime": start});
        let it = node("n", "m.large").holding("db", "1", patch);
        let name = format!("duration-{value}-{}", start.unwrap_or("none").replace(':', ""));
        let lines = outcome(&name, &[], &one_type(), cluster![pool("p", json!({})), it]);
        assert_eq!(lines, [expected], "{value:?} since {start:?}");
    }
}

#[test] // lifecycle 15.3 and 15.4, cases 4 to 8
fn budgets_of_pods_are_asked_only_for_what_is_evicted() {
    let free = "n: Can't replace with a cheaper node";
    let blocked = "n: Pdb prevents pod evictions (PodDisruptionBudget=[default/a])";
    let always = json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"});
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let tolerates =
        json!({"spec": {"tolerations": [{"key": "karpenter.sh/disrupted", "operator": "Exists"}]}});
    for (name, pod, budget, expected) in [
        ("none allowed", json!({}), pdb("a", "web", 0, json!({})), blocked),
        ("one allowed", json!({}), pdb("a", "web", 1, json!({})), free),
        ("case 5", tolerates, pdb("a", "web", 0, json!({})), free),
        ("case 6", not_ready.clone(), pdb("a", "web", 0, always.clone()), free),
        ("case 6, no condition", json!({}), pdb("a", "web", 0, always), blocked),
        ("not ready alone", not_ready, pdb("a", "web", 0, json!({})), blocked),
        ("another label", json!({}), pdb("a", "other", 0, json!({})), free),
        (
            "an empty selector",
            json!({}),
            pdb("a", "web", 0, json!({"selector": {"matchLabels": null}})),
            blocked,
        ),
        ("no selector", json!({}), pdb("a", "web", 0, json!({"selector": null})), free),
    ] {
        let it = node("n", "m.large").holding("web", "1", pod);
        let objects = cluster![pool("p", json!({})), it, budget];
        assert_eq!(
            outcome(&format!("pdb-{name}"), &[], &one_type(), objects),
            [expected],
            "{name}"
        );
    }
    // Case 8: pods of DaemonSets are evicted, so they are asked about.
    let daemon = node("n", "m.large").holding("web", "1", owned_by("DaemonSet"));
    let objects = cluster![pool("p", json!({})), daemon, pdb("a", "web", 0, json!({}))];
    assert_eq!(outcome("pdb-daemon", &[], &one_type(), objects), [blocked]);
}

#[test] // lifecycle 16.2, cases 2 and 4; bug report B-024
fn only_pods_that_must_move_keep_a_node() {
    let cost = "controller.kubernetes.io/pod-deletion-cost";
    for (name, patch, empty) in [
        ("worthless", annotated(cost, "-134217728"), true),
        ("cheap", annotated(cost, "-134217727"), false),
        ("daemon", owned_by("DaemonSet"), true),
        ("mirror", owned_by("Node"), true),
        ("finished", json!({"status": {"phase": "Failed"}}), true),
        ("going", json!({"metadata": {"deletionTimestamp": NOW}}), true),
        ("bare", json!({"metadata": {"ownerReferences": null}}), false),
    ] {
        let it = node("n", "m.large").holding("web", "1", patch);
        let lines =
            outcome(&format!("empty-{name}"), &[], &one_type(), cluster![pool("p", json!({})), it]);
        let expected =
            if empty { "Emptiness n saves 0.1" } else { "n: Can't replace with a cheaper node" };
        assert_eq!(lines, [expected], "{name}");
    }
    // A StatefulSet makes the next pod once this one is gone.
    let mut going = owned_by("StatefulSet");
    going["metadata"]["deletionTimestamp"] = json!(NOW);
    let it = node("n", "m.large").holding("db-0", "1", going);
    assert_eq!(
        outcome("empty-stateful", &[], &one_type(), cluster![pool("p", json!({})), it]),
        ["n: Can't replace with a cheaper node"]
    );
}
