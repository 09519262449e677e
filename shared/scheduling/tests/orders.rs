//! Claims that were ordered and have no instance yet: places that cannot change any more.

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use std::sync::Arc;

use common::*;
use serde_json::json;
use spokeshave_model::{
    CapacityType, InstanceType, NodeClaim, Offering, core::Pod, instance_type::Reservation, labels,
};
use spokeshave_scheduling::{PoolInput, Solution};

/// The claims of a plan as they are created, named by their position.
fn orders(solution: &Solution) -> Vec<NodeClaim> {
    let named = |(at, it): (usize, &spokeshave_scheduling::PlannedClaim)| {
        let mut claim = it.to_node_claim(|from, _| from);
        claim.metadata.name = format!("default-{at}");
        claim
    };
    solution.new_claims.iter().enumerate().map(named).collect()
}

/// Plans, orders, and plans the pods again over other pools.
fn again(before: &[PoolInput], after: &[PoolInput], first: Vec<Pod>, then: Vec<Pod>) -> Solution {
    let solution = plan(&view([]), before, first);
    let made = orders(&solution);
    assert!(!made.is_empty());
    plan(&view(made.into_iter().map(|it| Arc::new(it).into())), after, then)
}

fn sold_out(types: &Catalogue, gone: impl Fn(&InstanceType, &Offering) -> bool) -> Catalogue {
    catalogue(types.iter().map(|it| {
        let mut type_ = (**it).clone();
        let copy = type_.clone();
        for offering in &mut type_.offerings {
            offering.available &= !gone(&copy, offering);
        }
        type_
    }))
}

fn web(n: usize) -> Vec<Pod> {
    replicas("web", 0, n, &[("cpu", "700m"), ("memory", "256Mi")], &json!({}))
}

fn places(solution: &Solution) -> Vec<(&str, usize)> {
    solution.existing.iter().map(|it| (it.name.as_str(), it.pods.len())).collect()
}

#[test] // It takes the pods that it was ordered for, and no others.
fn orders_are_places() {
    let pools = [input(pool("default", json!({})), &catalogue_d())];
    let select = json!({"spec": {"nodeSelector": {labels::ARCH: "arm64"}}});
    let solution = again(
        &pools,
        &pools,
        vec![pod("p", &[("cpu", "1")], json!({}))],
        vec![pod("p", &[("cpu", "1")], json!({})), pod("arm", &[], select)],
    );
    assert_eq!(solution.existing[0].name, "default-0");
    assert_eq!(names(&solution.existing[0].pods), ["p"]);
    assert_eq!(claims(&solution), [["arm"]]);
}

#[test] // Whatever becomes of its types and its pool before it is launched, its pods are not ordered twice.
fn orders_stay_places_until_they_are_deleted() {
    let types = catalogue_d();
    let pools = [input(pool("default", json!({})), &types)];
    let on_arm = json!({"spec": {"nodeSelector": {labels::INSTANCE_TYPE: "arm-instance-type"}}});
    let big = || vec![pod("p", &[("cpu", "9")], on_arm.clone())];
    let none = sold_out(&types, |_, _| true);
    let arm = sold_out(&types, |it, _| it.name == "arm-instance-type");
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let broken = PoolInput {
        instance_types: Err("DescribeInstanceTypes: 500".into()),
        ..input(pool("default", json!({})), &types)
    };
    for (what, after) in [
        ("its only type is sold out", vec![input(pool("default", json!({})), &arm)]),
        ("every type is", vec![input(pool("default", json!({})), &none)]),
        ("its pool is not ready", vec![input(pool("default", not_ready), &types)]),
        ("types cannot be listed", vec![broken]),
        ("its pool is gone", vec![input(pool("other", json!({})), &types)]),
        ("all is gone", vec![]),
    ] {
        let solution = again(&pools, &after, big(), big());
        assert_eq!(places(&solution), [("default-0", 1)], "{what}");
        assert!(solution.new_claims.is_empty() && solution.unschedulable.is_empty(), "{what}");
        // What comes on top has no room in it.
        let mut more = big();
        more.push(pod("q", &[("cpu", "1")], on_arm.clone()));
        let solution = again(&pools, &after, big(), more);
        assert_eq!(places(&solution), [("default-0", 1)], "{what}");
    }
    // A deleted one is no place.
    let made = orders(&plan(&view([]), &pools, big()));
    let mut gone = made[0].clone();
    gone.metadata.deletion_timestamp = Some(now());
    let solution = plan(&view([Arc::new(gone).into()]), &pools, big());
    assert_eq!(claims(&solution), [["p"]]);
}

#[test] // Taints, ports, labels, zones and hosts count as on any claim.
fn sold_out_orders_are_places_for_what_suits_them() {
    let types = catalogue_d();
    let none = sold_out(&types, |_, _| true);
    let fields = json!({"spec": {"template": {"metadata": {"labels": {"team": "a"}},
        "spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}}}});
    let before = [input(pool("default", fields.clone()), &types)];
    let after = [input(pool("default", fields), &none)];
    let suited = |extra: serde_json::Value| {
        let base = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        pod("p", &[("cpu", "500m")], over(base, extra))
    };
    let zone = |zone: &str| json!({"spec": {"nodeSelector": {labels::ZONE: zone}}});
    let port = |fields: serde_json::Value| {
        let ports = json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}],
            "resources": {"requests": {"cpu": "100m"}}}]}});
        over(ports, fields)
    };
    let first = || {
        vec![pod(
            "first",
            &[("cpu", "1")],
            over(json!({"spec": {"tolerations": [{"operator": "Exists"}]}}), zone("test-zone-2")),
        )]
    };
    for (what, second, taken) in [
        ("as ordered", suited(zone("test-zone-2")), true),
        ("no zone", suited(json!({})), true),
        ("another zone", suited(zone("test-zone-1")), false),
        ("its label", suited(json!({"spec": {"nodeSelector": {"team": "a"}}})), true),
        ("another label", suited(json!({"spec": {"nodeSelector": {"team": "b"}}})), false),
        (
            "narrower",
            suited(json!({"spec": {"nodeSelector": {labels::CAPACITY_TYPE: "spot"}}})),
            false,
        ),
        ("no toleration", pod("p", &[("cpu", "500m")], json!({})), false),
        ("a port", suited(port(json!({}))), true),
    ] {
        let solution = again(&before, &after, first(), vec![second]);
        assert_eq!(places(&solution).len(), usize::from(taken), "{what}");
    }
    let two: Vec<Pod> = ["a", "b"]
        .into_iter()
        .map(|name| Pod { metadata: pod(name, &[], json!({})).metadata, ..suited(port(json!({}))) })
        .collect();
    let solution = again(&before, &after, first(), two);
    assert_eq!(places(&solution), [("default-0", 1)]);
    assert_eq!(solution.unschedulable.len(), 1);
}

#[test] // Daemons of the node to come take their part of what was ordered.
fn sold_out_orders_keep_room_for_daemons() {
    let types = catalogue_d();
    let before = [input(pool("default", json!({})), &types)];
    let after = [input(pool("default", json!({})), &sold_out(&types, |_, _| true))];
    let daemons = || daemon_set("ds", &[("cpu", "200m"), ("memory", "100Mi")], json!({}));
    let solution = plan(&view([Arc::new(daemons()).into()]), &before, web(2));
    let mut objects: Vec<spokeshave_scheduling::Object> = vec![Arc::new(daemons()).into()];
    objects.extend(orders(&solution).into_iter().map(|it| Arc::new(it).into()));
    let solution = plan(&view(objects), &after, web(3));
    assert_eq!(places(&solution), [("default-0", 2)]);
    assert_eq!(solution.unschedulable.len(), 1);
}

#[test] // The limits of the pool are used up by what was ordered.
fn sold_out_orders_count_for_limits() {
    let types = catalogue_d();
    let limited = json!({"spec": {"limits": {"cpu": "5", "nodes": "2"}}});
    let before = [input(pool("default", limited.clone()), &types)];
    let arm = sold_out(&types, |it, _| {
        it.name != "arm-instance-type" && it.name != "small-instance-type"
    });
    let after = [input(pool("default", limited), &arm)];
    let four = json!({"spec": {"nodeSelector": {labels::INSTANCE_TYPE: "default-instance-type"}}});
    let first = vec![pod("p", &[("cpu", "3500m")], four)];
    // 1.5 of 5 cpu are left: less than the smallest type.
    let solution = again(
        &before,
        &after,
        first.clone(),
        vec![first[0].clone(), pod("q", &[("cpu", "1")], json!({}))],
    );
    assert_eq!(places(&solution), [("default-0", 1)]);
    assert!(
        reason(&solution, "q").contains("all available instance types exceed limits for nodepool")
    );
}

#[test] // A reservation that an order names is spoken for until it is launched.
fn orders_hold_their_reservations() {
    let reserved = |count: i64| {
        let mut type_ = Fake::new("small", 2, 4).build();
        type_.offerings.push(Offering {
            capacity_type: CapacityType::Reserved,
            zone: "test-zone-1".into(),
            price: Some(0.000_001),
            available: count > 0,
            reservation: Some(Reservation {
                id: "r-1".into(),
                type_: "default".into(),
                interruptible: false,
                count,
            }),
            ..Offering::default()
        });
        type_.requirements.replace(spokeshave_model::Requirement::new(
            labels::CAPACITY_TYPE,
            spokeshave_model::Operator::In,
            ["spot", "on-demand", "reserved"],
        ));
        catalogue([type_])
    };
    let pools = |count| [input(pool("default", json!({})), &reserved(count))];
    let pods = |n| replicas("web", 0, n, &[("cpu", "1500m")], &json!({}));
    for (count, deferred) in [(1, 1), (2, 0)] {
        let solution = again(&pools(count), &pools(count), pods(1), pods(2));
        assert_eq!(places(&solution), [("default-0", 1)], "{count}");
        assert_eq!(solution.deferred.len(), deferred, "{count}");
        assert_eq!(solution.new_claims.len(), 1 - deferred, "{count}");
    }
    // Launching has just used it up.
    let solution = again(&pools(1), &pools(0), pods(1), pods(1));
    assert_eq!(places(&solution), [("default-0", 1)]);
    assert!(solution.new_claims.is_empty());
}
