//! Preferences, pools, daemons, the loop, types, reservations and claims (`spec` scheduling 8, 11 to 15, 23, appendix A).

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use std::sync::Arc;

use common::*;
use serde_json::{Value, json};
use spokeshave_model::{
    CapacityType, InstanceType, NodeClaim, Offering,
    core::{ReplicaSet, TopologySpreadConstraint},
    instance_type::Reservation,
    labels::{
        ARCH, CAPACITY_RESERVATION_ID, CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODEPOOL, ZONE,
    },
    meta::from_value,
    settings::{MinValuesPolicy, PreferencePolicy},
};
use spokeshave_scheduling::{
    ALL_FILTERED, Batch, ClusterView, DRA_REFUSAL, MIN_VALUES_AFTER_CUT, NO_POOLS, Object, Options,
    PoolInput, Solution, solve,
};

fn affinity(required: &[Value], preferred: &[(i32, Value)]) -> Value {
    let mut node_affinity = json!({});
    if !required.is_empty() {
        let terms: Vec<Value> =
            required.iter().map(|it| json!({"matchExpressions": [it]})).collect();
        node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": terms});
    }
    let soft: Vec<Value> = preferred
        .iter()
        .map(|(weight, it)| json!({"weight": weight, "preference": {"matchExpressions": [it]}}))
        .collect();
    node_affinity["preferredDuringSchedulingIgnoredDuringExecution"] = json!(soft);
    json!({"spec": {"affinity": {"nodeAffinity": node_affinity}}})
}

fn expr(key: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": "In", "values": values})
}

fn select(key: &str, value: &str) -> Value {
    json!({"spec": {"nodeSelector": {key: value}}})
}

#[test] // scheduling 2, case 11
fn the_heaviest_preference_counts_as_required() {
    let (heavy, light) = (expr(ZONE, &["test-zone-1"]), expr(ZONE, &["test-zone-2"]));
    let not = |zone: &str| json!({"key": ZONE, "operator": "NotIn", "values": [zone]});
    let terms = [not("test-zone-3"), expr(ZONE, &["test-zone-3"])];
    let fields = affinity(&terms, &[(1, light), (10, heavy)]);
    let types = catalogue_d();
    let solution = plan_new(json!({}), &types, [pod("p", &[], fields.clone())]);
    assert_eq!(requirement(&solution, 0, ZONE), format!("{ZONE} In [test-zone-1]"));
    // Strict: the first required term alone.
    let options = Options { preference_policy: PreferencePolicy::Ignore, ..options() };
    let pools = [input(pool("default", json!({})), &types)];
    let pods = batch([pod("p", &[], fields)]);
    let solution = solve(&ClusterView::default(), &pools, &pods, &options, now());
    assert_eq!(requirement(&solution, 0, ZONE), format!("{ZONE} NotIn [test-zone-3]"));
}

#[test] // scheduling 8, cases 1-4 and 8
fn preferences_are_given_up_one_by_one() {
    let zone = |it: &str| expr(ZONE, &[it]);
    let absent = json!({"spec": {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
        [{"weight": 100, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "none"}}}}]}}}});
    let z = ["test-zone-1", "test-zone-2"];
    for (what, fields, expected) in [
        (
            "alternatives",
            affinity(&[zone("bad1"), zone("bad2"), zone(z[0]), zone(z[1])], &[]),
            Some(z[0]),
        ),
        ("the last is never dropped", affinity(&[zone("bad")], &[]), None),
        (
            "weights",
            affinity(&[], &[(1, zone(z[1])), (50, zone(z[0])), (100, expr(ARCH, &["arm64"]))]),
            Some(z[0]),
        ),
        ("against a requirement", affinity(&[zone(z[0])], &[(1, zone("bad"))]), Some(z[0])),
        ("pod affinity first", over(absent, affinity(&[], &[(1, zone(z[1]))])), Some(z[1])),
        // DIFFERENCE: a feasible term is tried again when the preference is gone.
        (
            "a feasible term and a bad preference",
            affinity(&[zone(z[0]), zone("bad")], &[(1, zone("worse"))]),
            Some(z[0]),
        ),
    ] {
        let solution =
            plan_new(requires(ARCH, "In", &["amd64"]), &catalogue_d(), [pod("p", &[], fields)]);
        let found = expected.map_or(String::new(), |it| format!("{ZONE} In [{it}]"));
        assert_eq!(requirement(&solution, 0, ZONE), found, "{what}");
        assert_eq!(solution.new_claims.len(), usize::from(expected.is_some()), "{what}");
    }
}

fn tainted(name: &str, weight: i32, effect: &str) -> PoolInput {
    let fields = json!({"spec": {"weight": weight, "template": {"spec":
        {"taints": [{"key": "x", "effect": effect}]}}}});
    input(pool(name, fields), &catalogue_d())
}

#[test] // scheduling 8, case 5
fn prefer_no_schedule_is_avoided_while_it_can_be() {
    let a = tainted("a", 50, "PreferNoSchedule");
    let b = input(pool("b", json!({})), &catalogue_d());
    let solution = plan(&ClusterView::default(), &[a.clone(), b], [pod("p", &[], json!({}))]);
    assert_eq!(solution.new_claims[0].nodepool.metadata.name, "b");
    let solution = plan(&ClusterView::default(), &[a], [pod("p", &[], json!({}))]);
    assert_eq!(solution.new_claims[0].nodepool.metadata.name, "a");
}

#[test] // scheduling 8, cases 6 and 7
fn ignoring_preferences() {
    let anti = json!({"spec": {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
        [{"weight": 1, "podAffinityTerm": {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "a"}}}}]}}}});
    let anyway =
        spreads(vec![spread("a", HOSTNAME, json!({"whenUnsatisfiable": "ScheduleAnyway"}))]);
    for fields in [anti, anyway] {
        for (policy, n_claims) in [(PreferencePolicy::Ignore, 1), (PreferencePolicy::Respect, 4)] {
            let options = Options { preference_policy: policy, ..options() };
            let pools = [input(pool("default", json!({})), &catalogue_d())];
            let pods = batch(replicas("a", 0, 4, &[], &fields));
            let solution = solve(&ClusterView::default(), &pools, &pods, &options, now());
            assert_eq!(solution.new_claims.len(), n_claims, "{policy:?} {fields}");
        }
    }
}

#[test] // scheduling 8, case 9
fn default_spread_needs_a_controller() {
    let set: ReplicaSet = from_value(json!({"metadata": {"name": "rs", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}}}))
    .expect("a replica set");
    let constraint: TopologySpreadConstraint =
        serde_json::from_value(json!({"maxSkew": 1, "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway"}))
        .expect("a constraint");
    let options = Options { default_spread: vec![constraint], ..options() };
    let owned = json!({"metadata": {"ownerReferences":
        [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": true}]}});
    let view = view([Arc::new(set).into()]);
    let pools = [input(pool("default", json!({})), &catalogue_d())];
    for (fields, n_claims) in [(owned, 3), (json!({}), 1)] {
        let pods = batch(replicas("a", 0, 3, &[], &fields));
        let solution = solve(&view, &pools, &pods, &options, now());
        assert_eq!(solution.new_claims.len(), n_claims);
    }
}

#[test] // scheduling 11, case 1, and 12, case 7; api 4, case 16
fn pools_in_their_order() {
    let of = |name: &str, weight: Option<i32>| {
        input(pool(name, json!({"spec": {"weight": weight}})), &catalogue_d())
    };
    for (pools, chosen) in [
        (vec![of("a", Some(10)), of("b", Some(50)), of("c", None)], "b"),
        (vec![of("x", Some(5)), of("y", Some(5))], "y"),
        (vec![of("a", Some(10)), of("b", None), of("c", Some(10))], "c"),
        (vec![of("a", Some(10)), of("b", None)], "a"),
        (vec![of("zebra", None), of("apple", None)], "zebra"),
    ] {
        let solution = plan(&ClusterView::default(), &pools, [pod("p", &[], json!({}))]);
        assert_eq!(solution.new_claims[0].nodepool.metadata.name, chosen);
    }
    let pools = [of("high", Some(100)), of("low", None)];
    let solution = plan(&ClusterView::default(), &pools, [pod("p", &[], select(NODEPOOL, "low"))]);
    assert_eq!(solution.new_claims[0].nodepool.metadata.name, "low");
    let full = input(
        pool("high", json!({"spec": {"weight": 100, "limits": {"cpu": "1"}}})),
        &catalogue_d(),
    );
    let solution =
        plan(&ClusterView::default(), &[full, of("low", None)], [pod("p", &[], json!({}))]);
    assert_eq!(solution.new_claims[0].nodepool.metadata.name, "low");
}

fn with_daemons(
    daemons: Vec<spokeshave_model::core::DaemonSet>,
    fields: Value,
    pods: Vec<spokeshave_model::core::Pod>,
) -> Solution {
    let view = view(daemons.into_iter().map(|it| Object::from(Arc::new(it))));
    plan(&view, &[input(pool("default", fields), &catalogue_d())], pods)
}

/// `m5.large`, `m5.xlarge` and two large ones, with what the kubelet keeps for itself.
fn sizes() -> Catalogue {
    let of = |name: &str, cpu: i64, kept: &str| {
        let mut type_ = Fake::new(name, cpu, 4 * cpu).pods(58).build();
        type_.overhead.kube_reserved = resources(&[("cpu", kept)]);
        type_
    };
    catalogue([
        of("m5.large", 2, "70m"),
        of("m5.xlarge", 4, "80m"),
        of("large-16", 16, "110m"),
        of("large-32", 32, "150m"),
    ])
}

#[test] // B-001: DaemonSets that tolerate everything, on a tainted pool
fn daemons_that_tolerate_everything_count_on_tainted_pools() {
    let everything = json!({"tolerations": [{"operator": "Exists"}]});
    let daemons = (0..4)
        .map(|n| daemon_set(&format!("ds-{n}"), &[("cpu", "200m")], everything.clone()))
        .map(|it| Object::from(Arc::new(it)));
    let taints = json!([{"key": "team", "value": "a", "effect": "NoSchedule"}]);
    let fields = json!({"spec": {"template": {"spec": {"taints": taints}}}});
    let tolerant = json!({"spec": {"tolerations": [{"key": "team", "value": "a"}]}});
    let pods = [pod("p", &[("cpu", "1500m")], tolerant)];
    let solution = plan(&view(daemons), &[input(pool("default", fields), &sizes())], pods);
    let [claim] = solution.new_claims.as_slice() else { panic!("one node") };
    assert_eq!(claim.requests, resources(&[("cpu", "2300m"), ("pods", "5")]));
    assert_eq!(types(&solution), [["m5.xlarge", "large-16", "large-32"]]);
}

#[test] // B-002: a DaemonSet that gets its requests from a LimitRange, before and after its first pod
fn daemons_get_what_admission_gives_them() {
    let limits: spokeshave_model::core::LimitRange = from_value(json!({
        "metadata": {"name": "l", "namespace": "default"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]}}))
    .expect("a limit range");
    let live = pod(
        "ds-x",
        &[("cpu", "1")],
        json!({"metadata": {"ownerReferences":
        [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "u", "controller": true}]},
        "spec": {"nodeName": "gone"}}),
    );
    let daemon = || Object::from(Arc::new(daemon_set("ds", &[], json!({}))));
    let large = requires("node.kubernetes.io/instance-type", "In", &["large-16", "large-32"]);
    let place = |objects: Vec<Object>| {
        let pools = [input(pool("default", large.clone()), &sizes())];
        plan(&view(objects), &pools, [pod("p", &[("cpu", "15")], json!({}))])
    };
    for (what, more) in [
        ("no pod yet", Object::from(Arc::new(limits))),
        ("a pod as it was admitted", Object::from(Arc::new(live))),
    ] {
        let solution = place(vec![daemon(), more]);
        assert_eq!(types(&solution), [["large-32"]], "{what}");
        assert_eq!(
            solution.new_claims[0].requests,
            resources(&[("cpu", "16"), ("pods", "2")]),
            "{what}"
        );
    }
    assert_eq!(types(&place(vec![daemon()])), [["large-16", "large-32"]], "nothing is added");
}

#[test] // scheduling 11, cases 2-9
fn daemons_take_their_part() {
    let one = [("cpu", "1"), ("memory", "1Gi")];
    let ds = || daemon_set("ds", &one, json!({}));
    let solution = with_daemons(vec![ds()], json!({}), vec![pod("p", &one, json!({}))]);
    assert_eq!(types(&solution)[0][0], "default-instance-type");
    assert_eq!(
        solution.new_claims[0].requests,
        resources(&[("cpu", "2"), ("memory", "2Gi"), ("pods", "2")])
    );

    let small = [("cpu", "1"), ("memory", "1Mi")];
    let solution = with_daemons(
        vec![daemon_set("ds", &small, json!({}))],
        json!({}),
        vec![pod("a", &small, json!({})), pod("b", &small, json!({}))],
    );
    assert_eq!(
        solution.new_claims[0].requests,
        resources(&[("cpu", "3"), ("memory", "3Mi"), ("pods", "3")])
    );

    let huge = daemon_set("ds", &[("cpu", "10000")], json!({}));
    let solution = with_daemons(vec![huge], json!({}), vec![pod("p", &[], json!({}))]);
    assert!(
        reason(&solution, "p").starts_with("no instance type has enough resources, requirements=")
    );

    let limits = daemon_set(
        "ds",
        &[],
        json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "10000"}}}]}),
    );
    let solution = with_daemons(vec![limits.clone()], json!({}), vec![pod("p", &[], json!({}))]);
    assert_eq!(solution.new_claims.len(), 0);
    let live = pod(
        "ds-x",
        &[("cpu", "1")],
        json!({"metadata": {"ownerReferences":
        [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "u", "controller": true}]},
        "spec": {"nodeName": "gone"}}),
    );
    let view = view([Arc::new(limits).into(), Arc::new(live).into()]);
    let pools = [input(pool("default", json!({})), &catalogue_d())];
    assert_eq!(plan(&view, &pools, [pod("p", &[], json!({}))]).new_claims.len(), 1);

    let taints = |field: &str| json!({"spec": {"template": {"spec": {field: [{"key": "x", "effect": "NoSchedule"}]}}}});
    let tolerant = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    for (what, field, cpu) in [("taint", "taints", "1"), ("startup taint", "startupTaints", "2")] {
        let solution =
            with_daemons(vec![ds()], taints(field), vec![pod("p", &one, tolerant.clone())]);
        assert_eq!(solution.new_claims[0].requests.get("cpu"), q(cpu), "{what}");
    }

    let sized = |size: &str, cpu: &str| {
        daemon_set(size, &[("cpu", cpu)], json!({"nodeSelector": {"size": size}}))
    };
    let solution = with_daemons(
        vec![sized("small", "1"), sized("large", "10")],
        json!({}),
        vec![pod("p", &[("cpu", "1")], json!({}))],
    );
    assert_eq!(solution.new_claims[0].requests.get("cpu"), q("2"));
    assert!(types(&solution)[0].contains(&"arm-instance-type"));

    let required = |list: &[Value]| {
        let terms: Vec<Value> = list.iter().map(|it| json!({"matchExpressions": [it]})).collect();
        daemon_set(
            "ds",
            &one,
            json!({"affinity": {"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}),
        )
    };
    let labelled = json!({"spec": {"template": {"metadata": {"labels": {"custom": "x"}}}}});
    let amd = json!({"spec": {"template": {"spec": {"requirements": [expr(ARCH, &["amd64"])]}}}});
    let not_x = json!({"key": "custom", "operator": "NotIn", "values": ["x"]});
    for (what, daemon, fields, cpu) in [
        ("the second term", required(&[expr(ARCH, &["bad"]), expr(ARCH, &["amd64"])]), amd, "2"),
        ("a label of the pool", required(&[expr("custom", &["x"])]), labelled, "2"),
        ("no such label", required(&[expr("custom", &["x"])]), json!({}), "1"),
        ("without the label", required(&[not_x]), json!({}), "2"),
    ] {
        let solution = with_daemons(vec![daemon], fields, vec![pod("p", &one, json!({}))]);
        assert_eq!(solution.new_claims[0].requests.get("cpu"), q(cpu), "{what}");
    }
}

#[test] // scheduling 11, case 10
fn daemons_still_to_come_on_existing_nodes() {
    let bound = |name: &str, cpu: &str, daemon: bool| -> Object {
        let owners = if daemon {
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "u", "controller": true}])
        } else {
            json!([])
        };
        let fields = json!({"metadata": {"ownerReferences": owners}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
        Arc::new(pod(name, &[("cpu", cpu)], fields)).into()
    };
    for (what, daemon, room) in
        [("not bound", None, "1"), ("bound and larger", Some("1500m"), "500m")]
    {
        let mut objects: Vec<Object> = vec![
            Arc::new(node("n", json!({}))).into(),
            Arc::new(daemon_set("ds", &[("cpu", "1")], json!({}))).into(),
            bound("web", "2", false),
        ];
        objects.extend(daemon.map(|cpu| bound("ds-x", cpu, true)));
        let view = view(objects);
        for (cpu, there) in [(room, 1), ("1100m", 0)] {
            let solution = plan(&view, &[], [pod("p", &[("cpu", cpu)], json!({}))]);
            assert_eq!(solution.existing.len(), there, "{what} {cpu}");
        }
    }
}

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

/// Two types that cost 0.52 and 1.0.
fn two_types() -> Catalogue {
    let priced = |name: &str, price: f64| {
        let mut it = Fake::new(name, 4, 4).build();
        it.offerings.iter_mut().for_each(|offering| offering.price = Some(price));
        it
    };
    catalogue([priced("instance-type-1", 0.52), priced("instance-type-2", 1.0)])
}

fn min_values(key: &str, least: i32) -> Value {
    json!({"spec": {"template": {"spec": {"requirements": [{"key": key, "operator": "Exists", "minValues": least}]}}}})
}

fn best_effort(fields: Value, types: &Catalogue) -> Solution {
    let options = Options { min_values_policy: MinValuesPolicy::BestEffort, ..options() };
    let pools = [input(pool("default", fields), types)];
    solve(&ClusterView::default(), &pools, &batch([pod("p", &[], json!({}))]), &options, now())
}

#[test] // scheduling 13, cases 4-7; api 7, cases 7 and 9
fn min_values_strict_and_best_effort() {
    let solution = plan_new(min_values(INSTANCE_TYPE, 3), &two_types(), [pod("p", &[], json!({}))]);
    assert!(reason(&solution, "p").starts_with(ALL_FILTERED));
    let solution = best_effort(min_values(INSTANCE_TYPE, 3), &two_types());
    let claim = solution.new_claims[0].to_node_claim(|from, _| from);
    assert_eq!(
        requirement(&solution, 0, INSTANCE_TYPE),
        format!("{INSTANCE_TYPE} In [instance-type-1 instance-type-2] minValues 2")
    );
    assert_eq!(claim.metadata.annotations["karpenter.sh/nodeclaim-min-values-relaxed"], "true");
    assert_eq!(
        solution.new_claims[0].cheapest.as_ref().expect("bought").instance_type,
        "instance-type-1"
    );
    let solution = best_effort(min_values(ZONE, 4), &two_types());
    assert!(requirement(&solution, 0, ZONE).ends_with("minValues 3"));

    let many = catalogue((0..700).map(|at| {
        let mut it = Fake::new(&format!("t-{at:03}"), 4, 4).build();
        it.offerings.iter_mut().for_each(|offering| offering.price = Some(700.0 - f64::from(at)));
        it
    }));
    let solution = plan_new(json!({}), &many, [pod("p", &[], json!({}))]);
    assert_eq!((types(&solution)[0].len(), types(&solution)[0][0]), (600, "t-699"));
    let solution = plan_new(min_values(INSTANCE_TYPE, 601), &many, [pod("p", &[], json!({}))]);
    assert_eq!(
        (reason(&solution, "p").as_str(), solution.new_claims.len()),
        (MIN_VALUES_AFTER_CUT, 0)
    );
}

#[test] // scheduling 13, cases 1-3 and 8
fn types_in_price_order_and_why_not() {
    let priced = |name: &str, price: f64| {
        let mut it = Fake::new(name, 4, 4).build();
        it.offerings.iter_mut().for_each(|offering| offering.price = Some(price));
        it
    };
    let three = catalogue([priced("small", 2.0), priced("medium", 3.0), priced("large", 1.0)]);
    let solution = plan_new(json!({}), &three, [pod("p", &[], json!({}))]);
    assert_eq!(types(&solution), [["large", "small", "medium"]]);
    let solution =
        plan_new(requires(ARCH, "In", &["arm64"]), &catalogue_d(), [pod("p", &[], json!({}))]);
    assert_eq!(types(&solution), [["arm-instance-type"]]);

    let why = |requests: &[(&str, &str)], fields: Value| {
        reason(&plan_new(json!({}), &catalogue_d(), [pod("p", requests, fields)]), "p")
    };
    assert!(why(&[("cpu", "3")], select(INSTANCE_TYPE, "small-instance-type")).starts_with(
        "no instance type which had enough resources and the required offering met the scheduling requirements, requirements="));
    assert!(
        why(&[("memory", "2Ti")], json!({}))
            .starts_with("no instance type has enough resources, requirements=")
    );
    assert!(why(&[("cpu", "1M")], json!({})).starts_with(
        "no instance type has enough resources (CPU request >= 1 Million, m vs M typo?), requirements="));
    assert!(why(&[("cpu", "3")], json!({})).is_empty());
    assert!(
        why(&[("no.such/thing", "1")], json!({}))
            .contains("resources={\"no.such/thing\":\"1\",\"pods\":\"1\"}")
    );

    let mut without = Fake::new("t", 4, 4).build();
    for offering in
        without.offerings.iter_mut().filter(|it| it.capacity_type == CapacityType::OnDemand)
    {
        offering.available = false;
    }
    let mut spot_only = without.clone();
    spot_only.offerings.retain(|it| it.capacity_type == CapacityType::Spot);
    spot_only.requirements.replace(spokeshave_model::Requirement::equals(CAPACITY_TYPE, "spot"));
    let types = catalogue([without]);
    let on_demand = requires(CAPACITY_TYPE, "In", &["on-demand"]);
    let solution = plan_new(on_demand, &types, [pod("p", &[], json!({}))]);
    assert_eq!(reason(&solution, "p"), ALL_FILTERED);
    assert_eq!(solution.skipped_pools.len(), 1);
    let solution = plan_new(json!({}), &types, [pod("p", &[], select(CAPACITY_TYPE, "on-demand"))]);
    assert!(
        reason(&solution, "p")
            .starts_with("no instance type had enough resources or had a required offering, ")
    );
    let solution = plan_new(
        json!({}),
        &catalogue([spot_only]),
        [pod("p", &[], select(CAPACITY_TYPE, "on-demand"))],
    );
    assert!(reason(&solution, "p").starts_with(
        "no instance type met the scheduling requirements or had enough resources or had a required offering, "));
}

/// The types of section 14's cases.
fn reserved_types(counts: [i64; 2]) -> Catalogue {
    let with = |name: &str, cpu: i64, reservation: Option<(&str, i64)>| -> InstanceType {
        let mut it = Fake::new(name, cpu, cpu * 2).build();
        if let Some((id, count)) = reservation {
            it.offerings.push(Offering {
                capacity_type: CapacityType::Reserved,
                zone: "test-zone-1".into(),
                price: Some(1e-7),
                available: count > 0,
                reservation: Some(Reservation {
                    id: id.into(),
                    type_: "default".into(),
                    count,
                    ..Reservation::default()
                }),
                ..Offering::default()
            });
            it.requirements.replace(
                requirements_of(&it.offerings).get(CAPACITY_TYPE).expect("listed").clone(),
            );
        }
        it
    };
    catalogue([
        with("large", 6, None),
        with("medium", 3, Some(("r-medium", counts[0]))),
        with("small", 2, Some(("r-small", counts[1]))),
    ])
}

#[test] // scheduling 14, cases 1, 5, 6 and 7
fn reservations_are_put_aside() {
    let pods = || replicas("a", 0, 3, &[("cpu", "1800m")], &json!({}));
    let solution = plan_new(json!({}), &reserved_types([1, 1]), pods());
    assert_eq!((solution.new_claims.len(), solution.deferred.len()), (1, 2));
    assert!(solution.unschedulable.is_empty());
    assert_eq!(requirement(&solution, 0, CAPACITY_TYPE), format!("{CAPACITY_TYPE} In [reserved]"));
    assert_eq!(
        requirement(&solution, 0, CAPACITY_RESERVATION_ID),
        format!("{CAPACITY_RESERVATION_ID} In [r-medium r-small]")
    );
    assert_eq!(solution.new_claims[0].cheapest.as_ref().expect("bought").instance_type, "medium");
    // The next batches: one reservation is left, then none.
    let solution = plan_new(json!({}), &reserved_types([1, 0]), pods().into_iter().take(2));
    assert_eq!(
        (solution.new_claims[0].reservations.as_slice(), solution.deferred.len()),
        (["r-medium".to_owned()].as_slice(), 1)
    );
    let solution = plan_new(json!({}), &reserved_types([0, 0]), pods().into_iter().take(1));
    assert!(solution.new_claims[0].reservations.is_empty());

    let solution = plan_new(
        json!({}),
        &reserved_types([1, 1]),
        [pod("p", &[], select(CAPACITY_TYPE, "on-demand"))],
    );
    assert!(solution.new_claims[0].reservations.is_empty());
    let solution = plan_new(
        json!({}),
        &reserved_types([0, 1]),
        replicas("a", 0, 2, &[("cpu", "500m")], &json!({})),
    );
    assert_eq!((solution.new_claims.len(), solution.new_claims[0].pods.len()), (1, 2));
}

#[test] // scheduling 14, cases 2-4
fn pods_wait_for_reservations() {
    let types = reserved_types([0, 1]);
    let anti = affine("podAntiAffinity", "a", HOSTNAME);
    let pools = [
        input(pool("a", json!({"spec": {"weight": 2}})), &types),
        input(pool("b", json!({"spec": {"weight": 1}})), &types),
    ];
    let solution = plan(&ClusterView::default(), &pools, replicas("a", 0, 2, &[], &anti));
    assert_eq!((solution.new_claims.len(), solution.deferred.len()), (1, 1));
    let light = [pools[0].clone(), input(pool("light", json!({})), &catalogue_d())];
    let solution = plan(&ClusterView::default(), &light, replicas("a", 0, 2, &[], &anti));
    assert_eq!((solution.new_claims.len(), solution.deferred.len()), (1, 1));

    let towards = |zone: &str| over(anti.clone(), affinity(&[], &[(1, expr(ZONE, &[zone]))]));
    let solution = plan_new(json!({}), &types, replicas("a", 0, 1, &[], &towards("test-zone-2")));
    assert_eq!(requirement(&solution, 0, ZONE), format!("{ZONE} In [test-zone-2]"));
    assert!(solution.new_claims[0].reservations.is_empty());
    let solution = plan_new(json!({}), &types, replicas("a", 0, 2, &[], &towards("test-zone-1")));
    assert_eq!((solution.new_claims.len(), solution.deferred.len()), (1, 1));
}

fn api(solution: &Solution, key: &str) -> Vec<(String, Vec<String>)> {
    let claim = solution.new_claims[0].to_node_claim(|from, _| from);
    let those = claim.spec.requirements.into_iter().filter(|it| it.key == key);
    those.map(|it| (format!("{:?}", it.operator), it.values)).collect()
}

#[test] // scheduling 15, cases 1-4 and 8; api 7, case 9
fn the_claim_that_is_created() {
    let one = [("cpu", "1"), ("memory", "1Gi")];
    let solution = plan_new(json!({}), &catalogue_d(), [pod("p", &one, json!({}))]);
    let claim = solution.new_claims[0].to_node_claim(|from, _| from);
    assert_eq!(
        claim.spec.resources.requests,
        resources(&[("cpu", "1"), ("memory", "1Gi"), ("pods", "1")])
    );
    let texts: Vec<String> = claim
        .spec
        .requirements
        .iter()
        .map(|it| format!("{} {:?} {}", it.key, it.operator, it.values.join(" ")))
        .collect();
    assert_eq!(
        texts,
        [
            "karpenter.k8s.aws/ec2nodeclass In default",
            "karpenter.sh/capacity-type In on-demand spot",
            "karpenter.sh/nodepool In default",
            "node.kubernetes.io/instance-type In arm-instance-type default-instance-type gpu-vendor-b-instance-type \
         gpu-vendor-instance-type single-pod-instance-type small-instance-type",
        ]
    );
    assert_eq!(claim.metadata.generate_name, "default-");
    let owner = &claim.metadata.owner_references[0];
    assert_eq!(
        (owner.kind.as_str(), owner.controller, owner.block_owner_deletion),
        ("NodePool", None, Some(true))
    );
    assert_eq!(claim.metadata.annotations["karpenter.sh/nodepool-hash-version"], "v3");
    assert_eq!(claim.metadata.annotations["karpenter.sh/nodeclaim-min-values-relaxed"], "false");

    let tier = "example.com/tier";
    let solution =
        plan_new(requires(tier, "Exists", &[]), &catalogue_d(), [pod("p", &[], json!({}))]);
    assert_eq!(solution.new_claims[0].claim_labels(|_, _| 17)[tier], "17");
    let solution = plan_new(
        requires(tier, "Exists", &[]),
        &catalogue_d(),
        [pod("p", &[], select(tier, "gold"))],
    );
    assert_eq!(solution.new_claims[0].claim_labels(|_, _| 17)[tier], "gold");
    assert_eq!(api(&solution, tier), [("In".to_owned(), vec!["gold".to_owned()])]);

    let n = "example.com/n";
    let bounds = json!({"spec": {"template": {"spec": {"requirements": [
        {"key": n, "operator": "Gt", "values": ["3"]}, {"key": n, "operator": "Lt", "values": ["5"]}]}}}});
    let solution = plan_new(bounds, &catalogue_d(), [pod("p", &[], json!({}))]);
    assert_eq!(solution.new_claims[0].claim_labels(i64::max)[n], "4");
    assert_eq!(
        api(&solution, n),
        [("Gte".to_owned(), vec!["4".to_owned()]), ("Lte".to_owned(), vec!["4".to_owned()])]
    );

    let solution = plan_new(
        requires("example.com/x", "DoesNotExist", &[]),
        &catalogue_d(),
        [pod("p", &[], json!({}))],
    );
    assert!(!solution.new_claims[0].claim_labels(|from, _| from).contains_key("example.com/x"));
    assert_eq!(api(&solution, "example.com/x"), [("DoesNotExist".to_owned(), vec![])]);

    let mut no_spot = Fake::new("t", 4, 4).build();
    for offering in no_spot.offerings.iter_mut().filter(|it| it.capacity_type == CapacityType::Spot)
    {
        offering.available = false;
    }
    let both = requires(CAPACITY_TYPE, "In", &["on-demand", "spot"]);
    let solution = plan_new(both, &catalogue([no_spot]), [pod("p", &[], json!({}))]);
    assert_eq!(requirement(&solution, 0, CAPACITY_TYPE), format!("{CAPACITY_TYPE} In [on-demand]"));
}

#[test] // scheduling 15, case 5: the pool may change between the plan and the claim
fn the_hash_is_that_of_the_plan() {
    let mut planned = input(pool("default", json!({})), &catalogue_d());
    planned.hash = "17".to_owned();
    let solution = plan(&ClusterView::default(), &[planned], [pod("p", &[], json!({}))]);
    let claim = solution.new_claims[0].to_node_claim(|from, _| from);
    assert_eq!(claim.metadata.annotations["karpenter.sh/nodepool-hash"], "17");
}

#[test] // scheduling 22, case 8, and 11.1
fn without_pools_there_is_nothing_to_make() {
    let fixed = input(pool("fixed", json!({"spec": {"replicas": 2}})), &catalogue_d());
    let solution = plan(&ClusterView::default(), &[fixed], [pod("p", &[], json!({}))]);
    assert_eq!((reason(&solution, "p").as_str(), solution.no_pools), (NO_POOLS, true));
}

/// The text is the fixed one; what the pools wait for stands beside it. Static ones have no part in this.
#[test] // scheduling 11.1
fn a_pool_that_is_not_ready_says_what_it_waits_for() {
    let status = json!({"status": {"conditions": [
        {"type": "ValidationSucceeded", "status": "True", "reason": "ValidationSucceeded"},
        {"type": "NodeClassReady", "status": "False", "reason": "NodeClassNotReady", "message": "no subnets"},
        {"type": "Ready", "status": "False", "reason": "UnhealthyDependents"}]}});
    let waiting = input(pool("waiting", status), &catalogue_d());
    let fixed = input(pool("fixed", json!({"spec": {"replicas": 2}})), &catalogue_d());
    let solution = plan(&ClusterView::default(), &[fixed, waiting], [pod("p", &[], json!({}))]);
    let (_, why) = solution.unschedulable.iter().next().expect("one pod");
    assert_eq!(why.text, NO_POOLS);
    let text = "the pool is not ready: NodeClassReady=False (no subnets)".to_owned();
    assert_eq!(why.pools, std::collections::BTreeMap::from([("waiting".to_owned(), text)]));
}

#[test] // scheduling 23, cases 1-5
fn resource_claims_are_refused() {
    let device = json!({"spec": {"resourceClaims": [{"name": "gpu"}]}});
    let soft = over(device.clone(), affinity(&[], &[(1, expr(ZONE, &["bad"]))]));
    let solution = plan_new(
        json!({}),
        &catalogue_d(),
        [pod("device", &[], device.clone()), pod("soft", &[], soft), pod("normal", &[], json!({}))],
    );
    assert_eq!(claims(&solution), [["normal"]]);
    assert_eq!(
        (reason(&solution, "device").as_str(), reason(&solution, "soft").as_str()),
        (DRA_REFUSAL, DRA_REFUSAL)
    );
    let daemon = daemon_set("ds", &[("cpu", "1")], json!({"resourceClaims": [{"name": "gpu"}]}));
    let solution =
        with_daemons(vec![daemon], json!({}), vec![pod("p", &[("cpu", "1")], json!({}))]);
    assert_eq!(solution.new_claims[0].requests.get("cpu"), q("1"));
}

#[test] // scheduling appendix A, cases 1-6
fn the_catalogues() {
    let f = catalogue_f(400);
    assert_eq!(f[0].allocatable().get("cpu"), q("900m"));
    assert_eq!(f[0].allocatable().get("memory"), q("2038Mi"));
    assert!((f[0].offerings[0].price.expect("known") - 0.314_748_364_8).abs() < 1e-12);
    assert!((f[399].offerings[0].price.expect("known") - 125.899_345_92).abs() < 1e-9);
    assert_eq!(f[4].requirements.single("size"), Some("large"));
    assert_eq!(f[3].requirements.single("size"), Some("small"));
    assert_eq!(catalogue_d()[4].requirements.single("integer"), Some("16"));
    // Catalogue X differs in sizes and places alone.
    let largest = Fake::new("64-cpu-128-mem", 64, 128).price();
    assert!((largest - 20.143_895_347_2).abs() < 1e-9);
}

#[test] // B-012
fn an_outage_of_the_catalog_is_no_matter_of_limits() {
    let mut broken = input(pool("default", json!({})), &catalogue_d());
    broken.instance_types = Err("DescribeInstanceTypes: 500".into());
    let solution = plan(&ClusterView::default(), &[broken], [pod("p", &[], json!({}))]);
    assert!(reason(&solution, "p").contains("DescribeInstanceTypes: 500"));
    assert!(!reason(&solution, "p").contains("limit"));
    assert!(solution.new_claims.is_empty());
}

#[test] // B-017
fn an_exhausted_pool_does_not_block_the_others() {
    let mut sold_out = Fake::new("gpu", 4, 4).build();
    sold_out.offerings.iter_mut().for_each(|it| it.available = false);
    let pools = [
        input(pool("gpu-spot", json!({"spec": {"weight": 50}})), &catalogue([sold_out])),
        input(pool("gpu-od", json!({"spec": {"weight": 10}})), &catalogue_d()),
    ];
    let solution = plan(&ClusterView::default(), &pools, [pod("p", &[], json!({}))]);
    assert_eq!(solution.new_claims[0].nodepool.metadata.name, "gpu-od");
}

#[test] // scheduling 3.3 and 15: only offerings that hold the pods count
fn offerings_that_do_not_hold_the_pods_are_neither_listed_nor_priced() {
    let mut type_ = Fake::new("type", 2, 4).build();
    for offering in &mut type_.offerings {
        if offering.capacity_type == CapacityType::OnDemand {
            offering.price = Some(3.0);
            offering.capacity = Some(Arc::new(resources(&[("memory", "8Gi")])));
        }
    }
    let types = catalogue([type_]);
    for (memory, expected, price) in [
        ("1Gi", "karpenter.sh/capacity-type In [on-demand spot]", 0.6294967296),
        ("5Gi", "karpenter.sh/capacity-type In [on-demand]", 3.0),
    ] {
        let pods = [pod("p", &[("memory", memory)], json!({}))];
        let solution = plan_new(json!({}), &types, pods);
        assert_eq!(requirement(&solution, 0, CAPACITY_TYPE), expected);
        assert_eq!(solution.price(), price);
    }
}

#[test] // B-049
fn an_unknown_price_is_the_last_choice_and_spot_without_one_is_none() {
    let unpriced = |name: &str| {
        let mut type_ = Fake::new(name, 4, 4).build();
        type_.offerings.iter_mut().for_each(|it| it.price = None);
        type_
    };
    let place = |types: Catalogue, fields: Value| {
        plan_new(json!({}), &types, [pod("p", &[("cpu", "1")], fields)])
    };
    let both = place(catalogue([unpriced("a"), Fake::new("b", 4, 4).build()]), json!({}));
    assert_eq!(types(&both), [["b", "a"]]);
    let alone = place(catalogue([unpriced("a")]), json!({}));
    let cheapest = alone.new_claims[0].cheapest.as_ref().expect("something to buy");
    assert_eq!((cheapest.capacity_type, cheapest.price), (CapacityType::OnDemand, None));
    assert_eq!(requirement(&alone, 0, CAPACITY_TYPE), "karpenter.sh/capacity-type In [on-demand]");
    assert_eq!(alone.price(), 0.0);
    let spot = json!({"spec": {"nodeSelector": {CAPACITY_TYPE: "spot"}}});
    assert!(place(catalogue([unpriced("a")]), spot).new_claims.is_empty());
}

/// Label and requirement keys of a claim, each with its value or values.
fn described(claim: &NodeClaim) -> (Vec<String>, Vec<String>) {
    let labels = claim.metadata.labels.iter().map(|(key, value)| format!("{key}={value}"));
    let requirements = claim
        .spec
        .requirements
        .iter()
        .map(|it| format!("{} {:?} {}", it.key, it.operator, it.values.join(",")));
    (labels.collect(), requirements.collect())
}

#[test] // api 7, cases 1 to 6; api 2, case 9; api 16, case 2; api 19, case 5
fn from_template_to_claim() {
    let template = |metadata: Value, spec: Value| json!({"spec": {"template": {"metadata": metadata, "spec": spec}}});
    let asks = |key: &str, operator: &str, values: Value| json!({"key": key, "operator": operator, "values": values});
    let made = |fields: Value, of_pod: Value| {
        let solution = plan_new(fields, &catalogue_d(), [pod("p", &[("cpu", "1")], of_pod)]);
        solution.new_claims.first().map(|it| it.to_node_claim(|from, _| from))
    };
    let fields = template(
        json!({"labels": {"team": "platform"},
            "annotations": {"karpenter.sh/nodepool-hash": "x", "karpenter.sh/do-not-disrupt": "true"}}),
        json!({"expireAfter": "336h", "terminationGracePeriod": "1h"}),
    );
    let claim = made(fields, json!({})).expect("case 1");
    let (labels, requirements) = described(&claim);
    for label in
        ["karpenter.k8s.aws/ec2nodeclass=default", "karpenter.sh/nodepool=default", "team=platform"]
    {
        assert!(labels.iter().any(|it| it == label), "{labels:?}");
    }
    assert_eq!(labels.len(), 3, "{labels:?}");
    for (key, start) in [
        ("team", "team In platform"),
        (NODEPOOL, "karpenter.sh/nodepool In default"),
        ("karpenter.k8s.aws/ec2nodeclass", "karpenter.k8s.aws/ec2nodeclass In default"),
        (INSTANCE_TYPE, "node.kubernetes.io/instance-type In "),
        (CAPACITY_TYPE, "karpenter.sh/capacity-type In on-demand,spot"),
    ] {
        assert!(requirements.iter().any(|it| it.starts_with(start)), "{key}: {requirements:?}");
    }
    let annotations = &claim.metadata.annotations;
    assert_ne!(annotations["karpenter.sh/nodepool-hash"], "x");
    assert_eq!(annotations["karpenter.sh/do-not-disrupt"], "true");
    let written = serde_json::to_value(&claim.spec).expect("writes");
    assert_eq!(
        (&written["expireAfter"], &written["terminationGracePeriod"]),
        (&json!("336h"), &json!("1h0m0s"))
    );

    for (what, requirement, of_pod, requirement_written, label) in [
        (
            "case 3",
            vec![asks("team", "In", json!(["a", "b"]))],
            select("team", "b"),
            vec!["team In b"],
            Some("team=b"),
        ),
        (
            "the smallest",
            vec![asks("team", "In", json!(["b", "a"]))],
            json!({}),
            vec!["team In a,b"],
            Some("team=a"),
        ),
        (
            "case 4",
            vec![asks("shard", "Gte", json!(["3"])), asks("shard", "Lte", json!(["3"]))],
            json!({}),
            vec!["shard Gte 3", "shard Lte 3"],
            Some("shard=3"),
        ),
        (
            "case 5",
            vec![asks(ARCH, "In", json!(["amd64"]))],
            json!({}),
            vec!["kubernetes.io/arch In amd64"],
            None,
        ),
    ] {
        let key = requirement[0]["key"].as_str().expect("a key").to_owned();
        let fields = template(json!({}), json!({"requirements": requirement}));
        let (labels, requirements) = described(&made(fields, of_pod).expect(what));
        let of_key = |list: Vec<String>, separator: char| -> Vec<String> {
            list.into_iter().filter(|it| it.split(separator).next() == Some(key.as_str())).collect()
        };
        assert_eq!(of_key(requirements, ' '), requirement_written, "{what}");
        assert_eq!(of_key(labels, '='), label.into_iter().collect::<Vec<_>>(), "{what}");
    }
    let contradiction = template(
        json!({"labels": {ARCH: "arm64"}}),
        json!({"requirements": [asks(ARCH, "In", json!(["amd64"]))]}),
    );
    assert_eq!(made(contradiction, json!({})), None, "case 6");
    // `requirements: []` allows every type, and the pod chooses.
    let claim = made(json!({}), select(INSTANCE_TYPE, "small-instance-type")).expect("placed");
    assert!(described(&claim).1.contains(&format!("{INSTANCE_TYPE} In small-instance-type")));
}

#[test] // api 7: claims of static pools; case 7
fn from_template_to_a_static_claim() {
    let fields = json!({"spec": {"replicas": 1, "template": {"metadata": {"labels": {"tier": "a"}}, "spec": {
        "terminationGracePeriod": "90s", "requirements": [
            {"key": "team", "operator": "In", "values": ["b", "a"]},
            {"key": "shard", "operator": "Exists"},
            {"key": "old", "operator": "DoesNotExist"},
            {"key": ARCH, "operator": "In", "values": ["amd64"]}]}}}});
    let claim = spokeshave_scheduling::claim_of_pool(&pool("fixed", fields), "1", |_, _| 17);
    assert_eq!(
        described(&claim),
        (
            vec![
                "karpenter.k8s.aws/ec2nodeclass=default".to_owned(),
                "karpenter.sh/nodepool=fixed".to_owned(),
                "shard=17".to_owned(),
                "team=a".to_owned(),
                "tier=a".to_owned(),
            ],
            vec![
                "karpenter.k8s.aws/ec2nodeclass In default".to_owned(),
                "karpenter.sh/nodepool In fixed".to_owned(),
                "kubernetes.io/arch In amd64".to_owned(),
                "old DoesNotExist ".to_owned(),
                "shard Exists ".to_owned(),
                "team In a,b".to_owned(),
                "tier In a".to_owned(),
            ],
        )
    );
    assert!(!claim.metadata.annotations.contains_key("karpenter.sh/nodeclaim-min-values-relaxed"));
    assert_eq!(claim.spec.termination_grace_period.map(|it| it.0).as_deref(), Some("1m30s"));
}
