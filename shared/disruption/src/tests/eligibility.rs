//! Lifecycle 14: who may be disrupted.

use serde_json::json;

use crate::{command::Method, fixtures::*};

fn blocked(build: impl Fn(NodeBuilder) -> NodeBuilder, method: Method) -> String {
    let types = [on_demand("m5.large", 0.096)];
    let node = build(node("n", "p", "m5.large", "on-demand").pod("web", json!({})));
    let view = view(vec![pool("p", &types, json!({}))], vec![node.build()]);
    why(&view, method, "n")
}

const SINGLE: Method = Method::SingleNodeConsolidation;

fn drifted(it: NodeBuilder) -> NodeBuilder {
    it.drifted("2026-03-04T09:30:00Z")
}

#[test] // lifecycle 14.1, case 1
fn a_node_that_is_not_initialized_is_no_candidate() {
    for method in Method::ALL {
        let why = blocked(
            |it| it.node_is(json!({"metadata": {"labels": {"karpenter.sh/initialized": null}}})),
            method,
        );
        assert_eq!(why, "Node isn't initialized", "{method}");
    }
}

#[test] // lifecycle 14.1, cases 2 and 3
fn only_true_works_on_nodes() {
    let annotated =
        |value: &str| json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": value}}});
    let grace = json!({"spec": {"terminationGracePeriod": "1h"}});
    let why =
        blocked(|it| drifted(it.node_is(annotated("true")).claim_is(grace.clone())), Method::Drift);
    assert_eq!(why, "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation");
    assert_eq!(blocked(|it| drifted(it.node_is(annotated("1h"))), Method::Drift), "");
    // The claim's annotation counts only until the node is registered.
    assert_eq!(blocked(|it| drifted(it.claim_is(annotated("true"))), Method::Drift), "");
}

#[test] // lifecycle 14.1, cases 4 and 5; bug report B-025
fn protected_pods_hold_drift_unless_there_is_a_deadline() {
    let text = "Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=ns/db)";
    let protected = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let grace = json!({"spec": {"terminationGracePeriod": "1h"}});
    let with = |it: NodeBuilder| drifted(it.pod("db", protected.clone()));
    let with_grace = |it: NodeBuilder| with(it).claim_is(grace.clone());
    assert_eq!(blocked(with, Method::Drift), text);
    assert_eq!(blocked(with, SINGLE), text);
    assert_eq!(blocked(with_grace, Method::Drift), "");
    assert_eq!(blocked(with_grace, SINGLE), text);

    let owner = |kind: &str| {
        json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}, "ownerReferences":
            [{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o"}]}})
    };
    assert_eq!(blocked(|it| it.pod("db", owner("DaemonSet")), SINGLE), text);
    for ended in [
        json!({"metadata": {"deletionTimestamp": "2026-03-04T10:00:30Z"}}),
        json!({"status": {"phase": "Succeeded"}}),
    ] {
        let mut pod = owner("ReplicaSet");
        spokeshave_model::meta::apply_merge_patch(&mut pod, &ended);
        assert_eq!(blocked(|it| it.pod("db", pod.clone()), SINGLE), "", "{ended}");
    }
}

#[test] // lifecycle 14.1, cases 6 and 7
fn the_pool_has_to_be_there_and_to_offer_something() {
    let node = || node("n", "x", "m5.large", "on-demand").pod("web", json!({})).build();
    let gone = view(Vec::new(), vec![node()]);
    assert_eq!(why(&gone, SINGLE, "n"), "NodePool not found (NodePool=x)");
    let nothing = view(vec![pool("x", &[], json!({}))], vec![node()]);
    assert_eq!(why(&nothing, SINGLE, "n"), "NodePool not found (NodePool=x)");
    let label = json!({"metadata": {"labels": {"karpenter.sh/nodepool": null}}});
    assert_eq!(
        blocked(|it| it.node_is(label.clone()), SINGLE),
        "Node doesn't have required label (label=karpenter.sh/nodepool)"
    );
}

#[test] // lifecycle 14.1, case 8, and the other rows of the consolidation filter
fn consolidation_needs_to_know_the_price() {
    let without = |key: &str| json!({"metadata": {"labels": {key: null}}});
    let zone = |it: NodeBuilder| drifted(it.node_is(without("topology.kubernetes.io/zone")));
    assert_eq!(blocked(zone, Method::Drift), "");
    assert_eq!(blocked(zone, SINGLE), "Node does not have label \"topology.kubernetes.io/zone\"");
    assert_eq!(
        blocked(|it| it.node_is(without("karpenter.sh/capacity-type")), SINGLE),
        "Node does not have label \"karpenter.sh/capacity-type\""
    );
    let strange = json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": "x9.tiny"}}});
    assert_eq!(
        blocked(|it| it.node_is(strange.clone()), SINGLE),
        "Instance Type \"x9.tiny\" not found"
    );
}

#[test] // lifecycle 14.1, case 9
fn policies_are_told_to_node_and_claim() {
    let types = [on_demand("m5.large", 0.096)];
    let count = |extra: serde_json::Value| {
        let node = node("n", "p", "m5.large", "on-demand").pod("web", json!({})).build();
        let view = view(vec![pool("p", &types, extra)], vec![node]);
        // Each notice is published on the Node and on the claim.
        Method::ALL.iter().map(|it| collect(&view, *it).notices.len() * 2).sum::<usize>()
    };
    assert_eq!(count(json!({"spec": {"disruption": {"consolidationPolicy": "WhenEmpty"}}})), 4);
    assert_eq!(count(json!({"spec": {"disruption": {"consolidateAfter": "Never"}}})), 6);

    let empty_only = json!({"spec": {"disruption": {"consolidationPolicy": "WhenEmpty"}}});
    let busy = node("n", "p", "m5.large", "on-demand").pod("web", json!({})).build();
    let view_of = |extra| view(vec![pool("p", &types, extra)], vec![busy.clone()]);
    assert_eq!(
        why(&view_of(empty_only), SINGLE, "n"),
        "NodePool \"p\" has consolidation policy WhenEmpty, but node is not empty"
    );
    let never = json!({"spec": {"disruption": {"consolidateAfter": "Never"}}});
    for method in [Method::Emptiness, SINGLE] {
        assert_eq!(
            why(&view_of(never.clone()), method, "n"),
            "NodePool \"p\" has consolidation disabled"
        );
    }
}

#[test] // lifecycle 14.1, case 10, and 37.1, case 2
fn nominated_nodes_are_left_alone_for_twice_the_batch_window() {
    use crate::cluster::nomination_window;
    let window = |batch: i64| {
        let settings = spokeshave_model::Settings {
            batch_max_duration: jiff::SignedDuration::from_secs(batch),
            ..spokeshave_model::Settings::default()
        };
        nomination_window(&settings).as_secs()
    };
    assert_eq!([10, 2, 4, 30].map(window), [20, 10, 10, 60]);
    let second = jiff::SignedDuration::from_secs(1);
    assert_eq!(
        blocked(|it| it.nominated_until(now() + second), SINGLE),
        "Node is nominated for a pending pod"
    );
    assert_eq!(blocked(|it| it.nominated_until(now()), SINGLE), "");
}

#[test] // lifecycle 14, rules 3 and 5, and 15.4, case 4
fn the_other_reasons() {
    let types = [on_demand("m5.large", 0.096)];
    let mut claim_only = node("n", "p", "m5.large", "on-demand").build();
    claim_only.node = None;
    let it = view(vec![pool("p", &types, json!({}))], vec![claim_only]);
    assert_eq!(why(&it, SINGLE, "claim-n"), "Nodeclaim does not have an associated node");
    for going in [
        json!({"metadata": {"deletionTimestamp": "2026-03-04T09:59:00Z"}}),
        json!({"status": {"conditions": [{"type": "InstanceTerminating", "status": "True"}]}}),
    ] {
        assert_eq!(
            blocked(|it| it.claim_is(going.clone()), SINGLE),
            "Node is deleting or marked for deletion"
        );
    }
    let busy = node("n", "p", "m5.large", "on-demand").pod("web", json!({})).build();
    let mut it = view(vec![pool("p", &types, json!({}))], vec![busy]);
    it.pdbs = vec![pdb("b", "web", 5), pdb("a", "web", 5)];
    assert_eq!(
        why(&it, SINGLE, "n"),
        "Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[ns/a ns/b])"
    );
    it.pdbs = vec![pdb("a", "web", 0)];
    assert_eq!(why(&it, SINGLE, "n"), "Pdb prevents pod evictions (PodDisruptionBudget=[ns/a])");
    it.pdbs = vec![pdb("a", "web", 1)];
    assert_eq!(why(&it, SINGLE, "n"), "");
}

#[test] // lifecycle 14, the filter of emptiness
fn what_counts_as_empty() {
    let types = [on_demand("m5.large", 0.096)];
    let free = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-134217728"}}});
    let view = view(
        vec![pool("p", &types, json!({}))],
        vec![
            node("bare", "p", "m5.large", "on-demand").build(),
            node("free", "p", "m5.large", "on-demand").pod("cheap", free).build(),
            node("buffer", "p", "m5.large", "on-demand").holding_buffer().build(),
            node("busy", "p", "m5.large", "on-demand").pod("web", json!({})).build(),
            node("young", "p", "m5.large", "on-demand").not_consolidatable().build(),
        ],
    );
    assert_eq!(names(&view, Method::Emptiness), ["bare", "free"]);
    assert_eq!(why(&view, Method::Emptiness, "buffer"), "Node \"buffer\" has buffer pods");
    assert_eq!(names(&view, SINGLE), ["busy"]);
}
