//! The order of pods and places, and limits of pools (`spec` scheduling 12).

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use std::sync::Arc;

use common::*;
use serde_json::{Value, json};
use spokeshave_model::{
    NodeClaim,
    labels::{ARCH, HOSTNAME, INSTANCE_TYPE, NODEPOOL},
    meta::from_value,
};
use spokeshave_scheduling::{Batch, ClusterView, Object, solve};

#[test] // scheduling 12, case 1
fn the_order_of_the_queue() {
    let old = |at: &str| json!({"metadata": {"creationTimestamp": at}});
    let anti = affine("podAntiAffinity", "a", HOSTNAME);
    let labelled = |fields: Value| {
        over(json!({"metadata": {"labels": {"app": "a"}}}), over(anti.clone(), fields))
    };
    let pods = [
        pod("small-old", &[("cpu", "1")], labelled(old("2026-01-01T00:00:00Z"))),
        pod("big-new", &[("cpu", "2")], labelled(old("2026-02-01T00:00:00Z"))),
        pod(
            "small-much-memory",
            &[("cpu", "1"), ("memory", "2Gi")],
            labelled(old("2026-02-01T00:00:00Z")),
        ),
        pod("b-uid", &[("cpu", "1")], labelled(old("2026-02-01T00:00:00Z"))),
        pod("a-uid", &[("cpu", "1")], labelled(old("2026-02-01T00:00:00Z"))),
    ];
    let solution = plan_new(json!({}), &catalogue_d(), pods);
    assert_eq!(
        claims(&solution).concat(),
        ["big-new", "small-much-memory", "small-old", "a-uid", "b-uid"]
    );
}

#[test] // scheduling 12, cases 2 and 9
fn existing_nodes_by_readiness_and_name() {
    let managed = |name: &str, initialized: bool| -> Vec<Object> {
        let mut labels = json!({NODEPOOL: "default", "karpenter.sh/registered": "true",
            INSTANCE_TYPE: "default-instance-type", HOSTNAME: name});
        if initialized {
            labels["karpenter.sh/initialized"] = json!("true");
        }
        let claim: NodeClaim = from_value(json!({"metadata": {"name": format!("claim-{name}"), "labels": {NODEPOOL: "default"}},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": []},
            "status": {"providerID": format!("aws:///z/{name}")}})).expect("a claim");
        vec![
            Arc::new(node(name, json!({"metadata": {"labels": labels}}))).into(),
            Arc::new(claim).into(),
        ]
    };
    for (nodes, chosen) in [([("b", true), ("a", true)], "a"), ([("a", false), ("z", true)], "z")] {
        let view = view(nodes.iter().flat_map(|(name, ready)| managed(name, *ready)));
        let solution = plan(&view, &[], [pod("p", &[], json!({}))]);
        assert_eq!(solution.existing[0].name, chosen);
    }
    let view = view(managed("starting", false));
    let pools = [input(pool("default", json!({})), &catalogue_d())];
    let solution = plan(&view, &pools, replicas("a", 0, 3, &[("cpu", "1")], &json!({})));
    assert_eq!((solution.existing[0].pods.len(), solution.new_claims.len()), (3, 0));
}

#[test] // scheduling 12, cases 3-6
fn limits_and_narrowing() {
    let two_and_four = catalogue([Fake::new("two", 2, 8).build(), Fake::new("four", 4, 8).build()]);
    let anti = affine("podAntiAffinity", "a", HOSTNAME);
    let solution = plan_new(
        json!({"spec": {"limits": {"cpu": "3"}}}),
        &two_and_four,
        replicas("a", 0, 2, &[("cpu", "1500m")], &anti),
    );
    assert_eq!(types(&solution), [["two"]]);
    assert_eq!(
        reason(&solution, "a-001"),
        "all available instance types exceed limits for nodepool"
    );

    let of_pool = |name: &str, cpu: &str| -> Object {
        let room = json!({"cpu": cpu, "memory": "1Gi", "pods": "0"});
        Arc::new(node(
            name,
            json!({"metadata": {"labels": {NODEPOOL: "default", "karpenter.sh/initialized": "true",
            INSTANCE_TYPE: "x"}}, "status": {"capacity": room, "allocatable": room}}),
        ))
        .into()
    };
    let pools = [input(pool("default", json!({"spec": {"limits": {"cpu": "20"}}})), &two_and_four)];
    let solution = plan(&view([of_pool("n", "18")]), &pools, [pod("p", &[], json!({}))]);
    assert_eq!(types(&solution), [["two"]]);

    let pools =
        [input(pool("default", json!({"spec": {"limits": {"nodes": "2"}}})), &two_and_four)];
    let solution =
        plan(&view([of_pool("n", "1"), of_pool("m", "1")]), &pools, [pod("p", &[], json!({}))]);
    assert_eq!(reason(&solution, "p"), "node limits have been exhausted for nodepool");
    let solution = plan(&ClusterView::default(), &pools, replicas("a", 0, 3, &[], &anti));
    assert_eq!(solution.new_claims.len(), 2, "claims of this plan count");
    let over = view([of_pool("n", "1"), of_pool("m", "1"), of_pool("o", "1")]);
    let solution = plan(&over, &pools, [pod("p", &[], json!({}))]);
    assert_eq!(reason(&solution, "p"), "all available instance types exceed limits for nodepool");

    let both = affinity(&[expr(ARCH, &["amd64", "arm64"])], &[]);
    let arm = affinity(&[expr(ARCH, &["arm64"])], &[]);
    let solution = plan_new(json!({}), &catalogue_d(), [pod("a", &[], both), pod("b", &[], arm)]);
    assert_eq!(
        (claims(&solution), types(&solution)),
        (vec![vec!["a", "b"]], vec![vec!["arm-instance-type"]])
    );

    let solution = plan_new(
        json!({}),
        &catalogue_f(5),
        [pod("a", &[("cpu", "4500m")], json!({})), pod("b", &[("cpu", "1")], json!({}))],
    );
    assert_eq!(
        types(&solution),
        [vec!["fake-it-4"], vec!["fake-it-1", "fake-it-2", "fake-it-3", "fake-it-4"]]
    );
}

#[test] // api 4, case 15
fn what_is_left_of_a_limit() {
    let types_of = catalogue([Fake::new("four", 4, 8).build(), Fake::new("eight", 8, 16).build()]);
    let used = |cpu: &str| -> Object {
        let room = json!({"cpu": cpu, "memory": "1Gi", "pods": "0"});
        Arc::new(node(
            "n",
            json!({"metadata": {"labels": {NODEPOOL: "default", "karpenter.sh/initialized": "true",
            INSTANCE_TYPE: "x"}}, "status": {"capacity": room, "allocatable": room}}),
        ))
        .into()
    };
    let limited = |limit: &str| {
        [input(pool("default", json!({"spec": {"limits": {"cpu": limit}}})), &types_of)]
    };
    let one = || [pod("p", &[("cpu", "1")], json!({}))];
    let solution = plan(&view([used("96")]), &limited("100"), one());
    assert_eq!(types(&solution), [["four"]]);
    for cpu in ["100", "104"] {
        let solution = plan(&view([used(cpu)]), &limited("100"), one());
        assert_eq!(
            reason(&solution, "p"),
            "all available instance types exceed limits for nodepool"
        );
    }
    // A limit of nothing stops everything, and what has no limit is unlimited.
    let solution = plan(&ClusterView::default(), &limited("0"), one());
    assert_eq!(solution.new_claims.len(), 0);
    let memory =
        [input(pool("default", json!({"spec": {"limits": {"memory": "16Gi"}}})), &types_of)];
    let solution = plan(&view([used("1000")]), &memory, one());
    assert_eq!(types(&solution), [["four"]]);
}

#[test] // scheduling 12, case 8
fn pods_of_a_node_going_away_fill_what_is_there() {
    let room = json!({"status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}}});
    let mut going = node("going", json!({}));
    going.metadata.deletion_timestamp = Some(now());
    let moving: Vec<Object> = replicas(
        "a",
        0,
        3,
        &[("cpu", "1")],
        &json!({"spec": {"nodeName": "going"}, "status": {"phase": "Running"}}),
    )
    .into_iter()
    .map(|it| Arc::new(it).into())
    .collect();
    let mut objects: Vec<Object> =
        vec![Arc::new(going).into(), Arc::new(node("there", room)).into()];
    objects.extend(moving);
    let view = view(objects);
    let pods = spokeshave_scheduling::eligibility::displaced(&view, now());
    let batch = Batch { pods, ..Batch::default() };
    let pools = [input(pool("default", json!({})), &catalogue_d())];
    let solution = solve(&view, &pools, &batch, &options(), now());
    assert_eq!((solution.existing[0].pods.len(), solution.new_claims.len()), (2, 1));
}
