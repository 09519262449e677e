//! The joined state of nodes and claims, changed object by object (`spec` scheduling 18).

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use std::sync::Arc;

use common::*;
use serde_json::{Value, json};
use spokeshave_model::{Kind, NodeClaim, ObjectKey, core::Node, labels, meta::from_value};
use spokeshave_scheduling::{Change, ClusterView, Object, PoolInput, StateNode, usage_by_pool};

fn claim(name: &str, id: &str, fields: Value) -> NodeClaim {
    from_value(over(
        json!({"metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "default"}},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                     "requirements": []},
            "status": {"providerID": id}}),
        fields,
    ))
    .expect("a claim")
}

fn joined(name: &str, id: &str, fields: Value) -> Node {
    let base = json!({"metadata": {"labels": {"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true",
        "node.kubernetes.io/instance-type": "t"}}, "spec": {"providerID": id}});
    node(name, over(base, fields))
}

fn states(objects: Vec<Object>) -> Vec<StateNode> {
    view(objects).state_nodes()
}

#[test] // scheduling 18, cases 1-3
fn what_a_joined_node_says() {
    let status = json!({"status": {"capacity": {"cpu": "4", "memory": "8Gi", "example.com/gpu": "1"},
        "allocatable": {"cpu": "4", "memory": "8Gi", "example.com/gpu": "1"}}});
    let of_node = json!({"cpu": "4", "memory": "0", "pods": "10"});
    let fresh =
        joined("n", "i-1", json!({"status": {"capacity": of_node, "allocatable": of_node}}));
    let found = states(vec![
        Arc::new(claim("c1", "i-1", status.clone())).into(),
        Arc::new(fresh.clone()).into(),
    ]);
    assert_eq!(found.len(), 1);
    let capacity = found[0].capacity();
    assert_eq!(
        (capacity.get("cpu"), capacity.get("memory"), capacity.get("nodes")),
        (q("4"), q("8Gi"), q("1"))
    );
    assert_eq!(capacity.get("example.com/gpu"), q("1"));
    assert!(found[0].is_registered() && !found[0].is_initialized());

    let mut ready = fresh;
    ready.metadata.labels.insert("karpenter.sh/initialized".into(), "true".into());
    let found = states(vec![Arc::new(claim("c1", "i-1", status)).into(), Arc::new(ready).into()]);
    assert_eq!(found[0].capacity().get("example.com/gpu"), q("0"));

    let unregistered = node(
        "n",
        json!({"spec": {"providerID": "i-1",
        "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]}}),
    );
    let team = json!({"spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}});
    let found =
        states(vec![Arc::new(claim("c1", "i-1", team)).into(), Arc::new(unregistered).into()]);
    let taints: Vec<String> = found[0].taints().iter().map(ToString::to_string).collect();
    assert_eq!((found[0].name(), taints), ("c1", vec!["team=a:NoSchedule".to_owned()]));
}

#[test] // scheduling 18, cases 4, 5 and 8
fn what_is_tracked() {
    let mut view = view([
        Arc::new(claim("c1", "i-1", json!({}))).into(),
        Arc::new(joined("n1", "i-1", json!({}))).into(),
        Arc::new(claim("c2", "", json!({}))).into(),
        Arc::new(joined("bare", "", json!({}))).into(),
        Arc::new(node("unmanaged", json!({"spec": {"providerID": ""}}))).into(),
    ]);
    let names = |view: &ClusterView| -> Vec<String> {
        view.state_nodes().iter().map(|it| it.name().to_owned()).collect()
    };
    assert_eq!(names(&view), ["n1", "unmanaged"]);
    assert_eq!(view.unlaunched().count(), 1);
    view.apply(Change::Delete(NodeClaim::KIND, ObjectKey::cluster("c1")));
    view.apply(Change::Delete(NodeClaim::KIND, ObjectKey::cluster("c2")));
    let states = view.state_nodes();
    assert!(!states[0].is_managed() && states[0].is_initialized());
    assert_eq!(view.unlaunched().count(), 0);
    view.apply(Change::Delete(Node::KIND, ObjectKey::cluster("n1")));
    assert_eq!(names(&view), ["unmanaged"]);
}

#[test] // scheduling 18, cases 6 and 7
fn usage_follows_pods_and_marks() {
    let running = |phase: &str, fields: Value| -> Object {
        let base = json!({"spec": {"nodeName": "n1"}, "status": {"phase": phase}});
        Arc::new(pod("p", &[("cpu", "1")], over(base, fields))).into()
    };
    let mut view = view([
        Arc::new(joined("n1", "i-1", json!({"status": {"capacity": {"cpu": "4"}}}))).into(),
        Arc::new(joined("n2", "i-2", json!({"status": {"capacity": {"cpu": "8"}}}))).into(),
        running("Running", json!({})),
    ]);
    let used = |view: &ClusterView| view.pods_on("n1").map(|it| it.requests.get("cpu"));
    assert_eq!(used(&view), Some(q("1")));
    view.apply(Change::Put(running(
        "Running",
        json!({"metadata": {"deletionTimestamp": "2026-03-01T11:59:00Z"}}),
    )));
    assert_eq!(used(&view), Some(q("1")));
    view.apply(Change::Put(running("Succeeded", json!({}))));
    assert_eq!(used(&view), Some(q("0")));
    view.mark_for_deletion("n2");
    let usage = usage_by_pool(&view);
    assert_eq!((usage["default"].get("cpu"), usage["default"].get("nodes")), (q("4"), q("1")));
}

#[test] // A view that followed changes plans like one made from the outcome.
fn following_changes_ends_where_listing_begins() {
    let on = |name: &str, node: &str, app: &str| -> Object {
        let fields = json!({"metadata": {"labels": {"app": app}}, "spec": {"nodeName": node}, "status": {"phase": "Running"}});
        Arc::new(pod(name, &[("cpu", "1")], fields)).into()
    };
    let nodes = || (0..3).map(|at| Object::from(Arc::new(node(&format!("n{at}"), json!({})))));
    let mut followed = view(nodes());
    for at in 0..30 {
        followed.apply(Change::Put(on(
            &format!("p{}", at % 7),
            &format!("n{}", at % 3),
            if at % 2 == 0 { "a" } else { "b" },
        )));
        if at % 5 == 0 {
            followed.apply(Change::Delete(
                "Pod",
                ObjectKey::namespaced("default", &format!("p{}", at % 4)),
            ));
        }
    }
    let listed = view(nodes().chain(followed.bound_pods().cloned().map(Object::from)));
    let wanted = || {
        replicas(
            "a",
            50,
            6,
            &[("cpu", "500m")],
            &spreads(vec![spread("a", "kubernetes.io/hostname", json!({}))]),
        )
    };
    let pools = [input(pool("default", json!({})), &catalogue_d())];
    let shown = |view: &ClusterView| {
        let solution = plan(view, &pools, wanted());
        let on_nodes: Vec<(String, Vec<String>)> = solution
            .existing
            .iter()
            .map(|it| {
                (it.name.clone(), it.pods.iter().map(|it| it.metadata.name.clone()).collect())
            })
            .collect();
        (on_nodes, claims(&solution).len())
    };
    assert_eq!(shown(&followed), shown(&listed));
    for name in ["n0", "n1", "n2"] {
        let of = |view: &ClusterView| {
            view.pods_on(name).map(|it| it.requests.get("cpu")).unwrap_or_default()
        };
        assert_eq!(of(&followed), of(&listed), "{name}");
    }
}

#[test] // lifecycle 18, cases 4-6
fn simulations_follow_their_own_rules() {
    use spokeshave_scheduling::{Batch, ReservedMode, solve};
    let starting = vec![
        Object::from(Arc::new(claim("c1", "i-1", json!({})))),
        Arc::new(joined("n1", "i-1", json!({}))).into(),
    ];
    let moved = pod(
        "moved",
        &[("cpu", "1")],
        json!({"spec": {"nodeName": "old"}, "status": {"phase": "Running"}}),
    );
    let simulate = |view: &ClusterView, displaced: bool, hold: bool| {
        let batch = Batch {
            reserved: ReservedMode::Fallback,
            refuse_uninitialized: true,
            respect_consolidate_after: hold,
            displaced: if displaced { [moved.key()].into() } else { [].into() },
            ..batch([moved.clone()])
        };
        solve(view, &[], &batch, &options(), now())
    };
    let uninitialized = view(starting);
    let text = reason(&simulate(&uninitialized, false, false), "moved");
    assert_eq!(text, "would schedule against uninitialized nodeclaim/c1, node/n1");
    assert!(simulate(&uninitialized, true, false).unschedulable.is_empty());

    let initialized = json!({"status": {"lastPodEventTime": "2026-03-01T11:58:00Z", "conditions": [{"type": "Initialized",
        "status": "True", "lastTransitionTime": "2026-03-01T10:00:00Z", "reason": "Initialized", "message": ""}]}});
    let mut ready = joined("n1", "i-1", json!({}));
    ready.metadata.labels.insert("karpenter.sh/initialized".into(), "true".into());
    let nodepool = pool("default", json!({"spec": {"disruption": {"consolidateAfter": "5m"}}}));
    let fresh = view([
        Arc::new(claim("c1", "i-1", initialized)).into(),
        Arc::new(ready).into(),
        Arc::new(nodepool).into(),
    ]);
    assert_eq!(simulate(&fresh, false, true).unschedulable.len(), 1, "consolidation");
    assert!(simulate(&fresh, false, false).unschedulable.is_empty(), "drift");
    assert!(simulate(&fresh, true, true).unschedulable.is_empty(), "from a node that is going");
}

#[test]
fn of_several_claims_the_number_is_enough_where_no_more_is_asked_for() {
    use spokeshave_scheduling::{Batch, solve};
    let pools = [input(pool("default", json!({})), &catalogue_d())];
    let with_min_values = json!({"spec": {"template": {"spec": {"requirements": [{"key": labels::INSTANCE_TYPE,
        "operator": "Exists", "minValues": 1}]}}}});
    let plan = |pools: &[PoolInput], n: usize, one_claim: bool| {
        let apart = affine("podAntiAffinity", "web", labels::HOSTNAME);
        let pods = replicas("web", 0, n, &[("cpu", "500m")], &apart);
        let batch = Batch { one_claim, ..batch(pods) };
        let solution = solve(&ClusterView::default(), pools, &batch, &options(), now());
        assert!(solution.unschedulable.is_empty());
        (solution.new_claims.len(), solution.untold_claims)
    };
    assert_eq!(plan(&pools, 3, false), (3, 0));
    assert_eq!(plan(&pools, 3, true), (0, 3));
    assert_eq!(plan(&pools, 1, true), (1, 0));
    assert_eq!(plan(&pools, 0, true), (0, 0));
    // Of more than 600 types some are cut off, which a claim may not survive: then all are worked out.
    let many = [input(pool("default", with_min_values), &catalogue_f(700))];
    assert_eq!(plan(&many, 3, true), (3, 0));
}
