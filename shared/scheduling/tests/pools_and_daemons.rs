//! Which pools take part, and what daemons take of their nodes (`spec` scheduling 11 and 23).

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use std::sync::Arc;

use common::*;
use serde_json::{Value, json};
use spokeshave_model::{
    labels::{ARCH, NODEPOOL, ZONE},
    meta::from_value,
};
use spokeshave_scheduling::{ClusterView, DRA_REFUSAL, NO_POOLS, Object, Solution};

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
        {"type": "NodeRegistrationHealthy", "status": "False", "reason": "RegistrationFailed"},
        {"type": "Ready", "status": "False", "reason": "UnhealthyDependents"}]}});
    let waiting = input(pool("waiting", status), &catalogue_d());
    let fixed = input(pool("fixed", json!({"spec": {"replicas": 2}})), &catalogue_d());
    let solution = plan(&ClusterView::default(), &[fixed, waiting], [pod("p", &[], json!({}))]);
    let (_, why) = solution.unschedulable.iter().next().expect("one pod");
    assert_eq!(why.text, NO_POOLS);
    let text = "the pool is not ready: NodeClassReady=False (no subnets)".to_owned();
    assert_eq!(why.pools, std::collections::BTreeMap::from([("waiting".to_owned(), text)]));
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
