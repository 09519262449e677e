//! Spread, affinity and anti-affinity (`spec` scheduling 7).

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use std::sync::Arc;

use common::*;
use serde_json::{Value, json};
use spokeshave_model::{
    ObjectKey,
    core::{Namespace, Pod},
    labels::{CAPACITY_TYPE, HOSTNAME, NODEPOOL, ZONE},
    meta::from_value,
};
use spokeshave_scheduling::{Batch, Object, Planner};

fn world(fields: Value) -> World {
    World::new(vec![input(pool("default", fields), &catalogue_d())])
}

fn in_zones(zones: &[&str]) -> Value {
    requires(ZONE, "In", zones)
}

fn zone_spread() -> Value {
    spreads(vec![spread("a", ZONE, json!({}))])
}

#[test] // scheduling 7, cases 1-3
fn spread_over_zones_hosts_and_capacity_types() {
    let mut all = world(json!({}));
    all.run(replicas("a", 0, 4, &[], &zone_spread()));
    assert_eq!(all.counts("a", ZONE), [1, 1, 2]);
    let mut two = world(in_zones(&["test-zone-1", "test-zone-2"]));
    two.run(replicas("a", 0, 4, &[], &zone_spread()));
    assert_eq!(two.counts("a", ZONE), [2, 2]);
    for (skew, counts) in [(1, vec![1, 1, 1, 1]), (4, vec![4])] {
        let mut hosts = world(json!({}));
        let fields = spreads(vec![spread("a", HOSTNAME, json!({"maxSkew": skew}))]);
        hosts.run(replicas("a", 0, 4, &[], &fields));
        assert_eq!(hosts.counts("a", HOSTNAME), counts);
    }
    let mut types = world(json!({}));
    types.run(replicas("a", 0, 4, &[], &spreads(vec![spread("a", CAPACITY_TYPE, json!({}))])));
    assert_eq!(types.counts("a", CAPACITY_TYPE), [2, 2]);
}

fn running_in(world: &mut World, name: &str, zone: &str, labels: Value) {
    let host = format!("old-{name}");
    let full = json!({"pods": "1", "cpu": "1", "memory": "1Gi"});
    let made = node(
        &host,
        json!({"metadata": {"labels": {ZONE: zone}},
        "status": {"allocatable": full, "capacity": full}}),
    );
    world.add(Arc::new(made).into());
    world.bind(&pod(name, &[], json!({"metadata": {"labels": labels}})), &host);
}

#[test] // scheduling 7, cases 4 and 5
fn zones_of_running_pods_count_although_the_pool_has_left_them() {
    let mut it = world(in_zones(&["test-zone-1", "test-zone-2"]));
    running_in(&mut it, "old", "test-zone-3", json!({"app": "a"}));
    let solution = it.run(replicas("a", 0, 6, &[("cpu", "1100m")], &zone_spread()));
    assert_eq!(it.counts("a", ZONE), [1, 2, 2]);
    assert_eq!(solution.unschedulable.len(), 2);

    let mut it = world(in_zones(&["test-zone-3"]));
    running_in(&mut it, "old-1", "test-zone-1", json!({"app": "a"}));
    running_in(&mut it, "old-2", "test-zone-2", json!({"app": "a"}));
    let wide = spreads(vec![spread("a", ZONE, json!({"maxSkew": 5}))]);
    let solution = it.run(replicas("a", 0, 10, &[("cpu", "1100m")], &wide));
    assert_eq!(it.counts("a", ZONE), [1, 1, 6]);
    assert_eq!(solution.unschedulable.len(), 4);
}

#[test] // scheduling 7, case 6; B-005
fn min_domains() {
    let at_least = |n: usize| spreads(vec![spread("a", ZONE, json!({"minDomains": n}))]);
    let mut two = world(in_zones(&["test-zone-1", "test-zone-2"]));
    let solution = two.run(replicas("a", 0, 3, &[], &at_least(3)));
    assert_eq!(two.counts("a", ZONE), [1, 1]);
    assert_eq!(solution.unschedulable.len(), 1);
    for n in [2, 3] {
        let mut three = world(json!({}));
        three.run(replicas("a", 0, 11, &[], &at_least(n)));
        assert_eq!(three.counts("a", ZONE), [3, 4, 4]);
    }
    // B-005: an empty, tainted pool that pods choose by name.
    let taints = json!([{"key": "runner", "value": "true", "effect": "NoSchedule"}]);
    let mut fields = in_zones(&["test-zone-1", "test-zone-2"]);
    fields["spec"]["template"]["spec"]["taints"] = taints;
    let mut runners = World::new(vec![input(pool("runners", fields), &catalogue_d())]);
    let fields = over(
        at_least(2),
        json!({"spec": {"nodeSelector": {NODEPOOL: "runners"}, "tolerations": [{"key": "runner", "operator": "Exists"}]}}),
    );
    let solution = runners.run(replicas("a", 0, 3, &[], &fields));
    assert_eq!((runners.counts("a", ZONE), solution.new_claims.len()), (vec![1, 2], 2));
}

#[test] // scheduling 7, cases 7-9
fn node_affinity_narrows_what_spread_looks_at() {
    let mut it = world(json!({}));
    let select = |zone: &str| over(zone_spread(), json!({"spec": {"nodeSelector": {ZONE: zone}}}));
    let mut pods = replicas("a", 0, 5, &[], &select("test-zone-1"));
    pods.extend(replicas("a", 5, 10, &[], &select("test-zone-2")));
    it.run(pods);
    assert_eq!(it.counts("a", ZONE), [5, 10]);

    let affinity = |kind: &str, zones: &[&str]| {
        let expression =
            json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": zones}]});
        let terms = if kind == "required" {
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [expression]}})
        } else {
            json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": expression}]})
        };
        over(zone_spread(), json!({"spec": {"affinity": {"nodeAffinity": terms}}}))
    };
    let mut it = world(json!({}));
    it.run(replicas("a", 0, 6, &[], &affinity("required", &["test-zone-1", "test-zone-2"])));
    assert_eq!(it.counts("a", ZONE), [3, 3]);
    it.run(replicas("a", 6, 1, &[], &affinity("required", &["test-zone-2", "test-zone-3"])));
    assert_eq!(it.counts("a", ZONE), [1, 3, 3]);
    it.run(replicas("a", 7, 5, &[], &zone_spread()));
    assert_eq!(it.counts("a", ZONE), [4, 4, 4]);

    let mut it = world(json!({}));
    it.run(replicas("a", 0, 6, &[], &affinity("preferred", &["test-zone-1", "test-zone-2"])));
    assert_eq!(it.counts("a", ZONE), [2, 2, 2]);
}

#[test] // scheduling 7, case 10
fn two_constraints_hold_together_over_batches() {
    let mut it = world(json!({}));
    let fields =
        spreads(vec![spread("a", ZONE, json!({})), spread("a", HOSTNAME, json!({"maxSkew": 3}))]);
    let mut first = 0;
    for (n, counts) in
        [(2, vec![1, 1]), (3, vec![1, 2, 2]), (5, vec![3, 3, 4]), (11, vec![7, 7, 7])]
    {
        it.run(replicas("a", first, n, &[], &fields));
        first += n;
        assert_eq!(it.counts("a", ZONE), counts);
        assert!(it.counts("a", HOSTNAME).iter().all(|n| *n <= 3));
    }
}

#[test] // scheduling 7, case 11
fn a_custom_key_of_two_pools() {
    let key = "capacity.spread.4-1";
    let of = |name: &str, values: &[&str], capacity_type: &str| {
        let fields = json!({"spec": {"template": {"spec": {"requirements": [
            {"key": key, "operator": "In", "values": values},
            {"key": CAPACITY_TYPE, "operator": "In", "values": [capacity_type]}]}}}});
        input(pool(name, fields), &catalogue_d())
    };
    let mut it =
        World::new(vec![of("spot", &["2", "3", "4", "5"], "spot"), of("od", &["1"], "on-demand")]);
    it.run(replicas("a", 0, 20, &[], &spreads(vec![spread("a", key, json!({}))])));
    assert_eq!(it.counts("a", key), [4, 4, 4, 4, 4]);
    assert_eq!(it.counts("a", CAPACITY_TYPE), [4, 16]);
}

#[test] // scheduling 7, case 12
fn self_affine_pods_stay_on_one_host() {
    let mut it = world(json!({}));
    let fields = affine("podAffinity", "a", HOSTNAME);
    let solution = it.run(replicas("a", 0, 10, &[], &fields));
    assert_eq!((it.counts("a", HOSTNAME), solution.unschedulable.len()), (vec![5], 5));
    let solution = it.run(replicas("a", 10, 10, &[], &fields));
    assert_eq!((it.counts("a", HOSTNAME), solution.unschedulable.len()), (vec![5], 10));
}

#[test] // scheduling 7, case 13
fn zonal_anti_affinity_places_one_pod_per_batch() {
    let mut it = world(json!({}));
    let fields = affine("podAntiAffinity", "a", ZONE);
    for (first, counts) in [(0, vec![1]), (1, vec![1, 1]), (2, vec![1, 1, 1]), (3, vec![1, 1, 1])] {
        it.run(replicas("a", first, 3 - first.min(2), &[], &fields));
        assert_eq!(it.counts("a", ZONE), counts);
    }
}

#[test] // scheduling 7, cases 14 and 15
fn affinity_follows_what_is_known() {
    let follower = affine("podAffinity", "db", ZONE);
    let mut it = world(json!({}));
    let mut pods = replicas("a", 0, 10, &[], &follower);
    pods.extend(replicas("db", 0, 1, &[("cpu", "1")], &json!({})));
    let solution = it.run(pods.clone());
    assert_eq!(solution.unschedulable.len(), 10);
    pods.pop();
    let solution = it.run(pods.clone());
    assert!(solution.unschedulable.is_empty());
    assert_eq!(it.counts("a", ZONE), [10]);

    let mut it = world(json!({}));
    let pinned = json!({"spec": {"nodeSelector": {ZONE: "test-zone-2"}}});
    pods.extend(replicas("db", 0, 1, &[], &pinned));
    assert!(it.run(pods).unschedulable.is_empty());
    assert_eq!((it.counts("a", ZONE), it.counts("db", ZONE)), (vec![10], vec![1]));

    let mut chain = world(json!({}));
    let solution = chain.run(
        [("ui", "cache"), ("cache", "web"), ("web", "db")]
            .iter()
            .flat_map(|(app, to)| replicas(app, 0, 1, &[], &affine("podAffinity", to, HOSTNAME)))
            .chain(replicas("db", 0, 1, &[], &json!({}))),
    );
    assert_eq!(solution.new_claims.len(), 1);
    assert_eq!(solution.new_claims[0].pods.len(), 4);
}

/// A bound pod that repels `app=x` in its zone.
fn repeller(world: &mut World) {
    let host = "old-r";
    let full = json!({"pods": "1"});
    let made = node(
        host,
        json!({"metadata": {"labels": {ZONE: "test-zone-1"}},
        "status": {"allocatable": full, "capacity": full}}),
    );
    world.add(Arc::new(made).into());
    let fields =
        over(affine("podAntiAffinity", "x", ZONE), json!({"metadata": {"labels": {"app": "y"}}}));
    world.bind(&pod("r", &[], fields), host);
}

#[test] // scheduling 7, cases 16 and 20
fn anti_affinity_is_mutual() {
    let mut it = world(json!({}));
    repeller(&mut it);
    let solution = plan(&it.view, &it.pools, replicas("x", 0, 1, &[], &json!({})));
    assert_eq!(requirement(&solution, 0, ZONE), format!("{ZONE} In [test-zone-2 test-zone-3]"));
    // A node in a zone that no pool offers is a place as well.
    let far = node("far", json!({"metadata": {"labels": {ZONE: "test-zone-9"}}}));
    it.add(Arc::new(far).into());
    let solution = plan(&it.view, &it.pools, replicas("x", 0, 1, &[], &json!({})));
    assert_eq!((solution.existing[0].name.as_str(), solution.new_claims.len()), ("far", 0));
}

#[test] // scheduling 7, case 17
fn namespaces_of_affinity_terms() {
    let namespace = |name: &str| -> Object {
        Arc::new(from_value::<Namespace>(json!({"metadata": {"name": name}})).expect("a namespace"))
            .into()
    };
    let term = |fields: Value| {
        let base = json!({"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "db"}}});
        json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [over(base, fields)]}}}})
    };
    for (what, fields, placed) in [
        ("own namespace", json!({}), false),
        ("all namespaces", json!({"namespaceSelector": {}}), true),
        ("by name", json!({"namespaces": ["other"]}), true),
        ("none of them", json!({"namespaceSelector": {"matchLabels": {"no": "such"}}}), false),
    ] {
        let mut it = world(json!({}));
        it.add(namespace("default"));
        it.add(namespace("other"));
        running_in(&mut it, "db", "test-zone-2", json!({}));
        let mut db: Pod =
            pod("db", &[], json!({"metadata": {"namespace": "other", "labels": {"app": "db"}}}));
        "Running".clone_into(&mut db.status.phase);
        it.bind(&db, "old-db");
        let solution = plan(&it.view, &it.pools, [pod("p", &[], term(fields))]);
        assert_eq!(solution.new_claims.len(), usize::from(placed), "{what}");
    }
}

#[test] // scheduling 7, case 18
fn capacity_types_that_the_pool_has_left() {
    for (action, counts, left) in
        [("DoNotSchedule", vec![1, 2], 3), ("ScheduleAnyway", vec![1, 5], 0)]
    {
        let mut it = world(requires(CAPACITY_TYPE, "In", &["on-demand"]));
        let full = json!({"pods": "1"});
        let made = node(
            "old",
            json!({"metadata": {"labels": {CAPACITY_TYPE: "spot", ZONE: "test-zone-1"}},
            "status": {"allocatable": full, "capacity": full}}),
        );
        it.add(Arc::new(made).into());
        it.bind(&replicas("a", 99, 1, &[], &json!({}))[0], "old");
        let fields =
            spreads(vec![spread("a", CAPACITY_TYPE, json!({"whenUnsatisfiable": action}))]);
        let solution = it.run(replicas("a", 0, 5, &[], &fields));
        assert_eq!(
            (it.counts("a", CAPACITY_TYPE), solution.unschedulable.len()),
            (counts, left),
            "{action}"
        );
    }
}

#[test] // scheduling 7, case 19: filters are compared in full.
fn pods_that_select_other_zones_have_groups_of_their_own() {
    let mut it = world(json!({}));
    let select = |zone: &str| {
        over(
            spreads(vec![spread("a", HOSTNAME, json!({}))]),
            json!({"spec": {"nodeSelector": {ZONE: zone}}}),
        )
    };
    let mut pods = replicas("a", 0, 2, &[], &select("test-zone-1"));
    pods.extend(replicas("a", 2, 2, &[], &select("test-zone-2")));
    assert_eq!(it.run(pods).new_claims.len(), 4);
}

#[test] // scheduling 7, case 21
fn the_pools_name_is_a_domain() {
    let pools = vec![
        input(pool("x", json!({})), &catalogue_d()),
        input(pool("y", json!({})), &catalogue_d()),
    ];
    let mut it = World::new(pools);
    let solution =
        it.run(replicas("a", 0, 2, &[], &spreads(vec![spread("a", NODEPOOL, json!({}))])));
    assert!(solution.unschedulable.is_empty());
    assert_eq!(it.counts("a", NODEPOOL), [1, 1]);
}

#[test] // B-006: a node without a zone is no domain.
fn nodes_without_the_label_do_not_count() {
    let mut it = world(json!({}));
    for (at, zone) in
        ["test-zone-1", "test-zone-1", "test-zone-2", "test-zone-3"].iter().enumerate()
    {
        running_in(&mut it, &format!("a{at}"), zone, json!({"app": "a"}));
    }
    for (name, labels) in [("bare", json!({})), ("empty", json!({ZONE: ""}))] {
        it.add(Arc::new(node(name, json!({"metadata": {"labels": labels}}))).into());
    }
    let solution = it.run(replicas("a", 0, 1, &[], &zone_spread()));
    assert!(solution.existing.is_empty());
    assert_eq!(it.counts("a", ZONE), [1, 2, 2]);
}

#[test] // B-007: a zone in which nothing can be bought is no domain.
fn zones_without_offerings_do_not_count() {
    let mut it = World::new(vec![
        input(pool("one", in_zones(&["test-zone-1", "test-zone-2"])), &catalogue_d()),
        input(pool("two", in_zones(&["test-zone-z"])), &catalogue_d()),
    ]);
    let solution = it.run(replicas("a", 0, 4, &[], &zone_spread()));
    assert!(solution.unschedulable.is_empty());
    assert_eq!(it.counts("a", ZONE), [2, 2]);
}

#[test] // B-009: a zonal volume restricts the node, not the zones that spread looks at.
fn zonal_volumes_do_not_hide_zones() {
    use spokeshave_model::core::{PersistentVolume, PersistentVolumeClaim};
    for (zone, placed) in [("test-zone-3", true), ("test-zone-1", false)] {
        let mut it = world(json!({}));
        running_in(&mut it, "a-0", "test-zone-1", json!({"app": "a"}));
        running_in(&mut it, "a-1", "test-zone-2", json!({"app": "a"}));
        let claim: PersistentVolumeClaim = from_value(json!({"metadata": {"name": "v", "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "pv"}})).expect("a claim");
        let volume: PersistentVolume = from_value(
            json!({"metadata": {"name": "pv"}, "spec": {"csi": {"driver": "ebs.csi.aws.com"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions":
                [{"key": ZONE, "operator": "In", "values": [zone]}]}]}}}}),
        )
        .expect("a volume");
        it.add(Arc::new(claim).into());
        it.add(Arc::new(volume).into());
        let volumes = json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]}});
        let solution =
            plan(&it.view, &it.pools, replicas("a", 2, 1, &[], &over(zone_spread(), volumes)));
        assert_eq!(solution.new_claims.len(), usize::from(placed), "{zone}");
        if placed {
            assert_eq!(requirement(&solution, 0, ZONE), format!("{ZONE} In [{zone}]"));
        } else {
            let why = reason(&solution, "a-002");
            assert!(why.starts_with("unsatisfiable topology constraint"), "{why}");
        }
    }
}

#[test] // B-005, with a second pool that the pods may not use
fn domains_of_pools_that_the_pod_may_not_use_do_not_count() {
    let zones = |zones: &[&str]| requires(ZONE, "In", zones);
    let pools = [
        input(pool("runners", zones(&ZONES[..2])), &catalogue_d()),
        input(pool("free", zones(&ZONES[2..])), &catalogue_d()),
    ];
    let chosen = |policy: &str| {
        let constraint = spread("a", ZONE, json!({"minDomains": 2, "nodeAffinityPolicy": policy}));
        over(spreads(vec![constraint]), json!({"spec": {"nodeSelector": {NODEPOOL: "runners"}}}))
    };
    let place = |policy: &str| {
        let pods = replicas("a", 0, 3, &[("cpu", "100m")], &chosen(policy));
        plan(&view([]), &pools, pods)
    };
    let solution = place("Honor");
    assert_eq!(claims(&solution), [vec!["a-000", "a-002"], vec!["a-001"]]);
    // Whoever ignores node affinity wants all zones to be even.
    let solution = place("Ignore");
    assert_eq!(claims(&solution), [["a-000"], ["a-001"]]);
    assert!(reason(&solution, "a-002").starts_with("unsatisfiable topology constraint"));
}

#[test] // scheduling 7.4: what the pod selects decides which zones there are
fn zones_in_which_the_selected_capacity_is_not_sold_do_not_count() {
    let selected = over(
        spreads(vec![spread("a", ZONE, json!({}))]),
        json!({"spec": {"nodeSelector": {CAPACITY_TYPE: "spot"}}}),
    );
    // Catalogue D has no spot capacity in the third zone.
    let pods = replicas("a", 0, 4, &[], &selected);
    let solution = plan_new(json!({}), &catalogue_d(), pods);
    assert_eq!(claims(&solution), [["a-000", "a-002"], ["a-001", "a-003"]]);
}

#[test] // B-010: the pod whose volume has a zone decides, whichever of the two comes first
fn pods_that_belong_together_go_where_all_of_them_can_be() {
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"csi": {"driver": "ebs.csi.aws.com"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions":
            [{"key": ZONE, "operator": "In", "values": ["test-zone-3"]}]}]}}}});
    let volume: spokeshave_model::core::PersistentVolume = from_value(volume).expect("a volume");
    let claim = json!({"metadata": {"name": "c", "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "pv"}});
    let claim: spokeshave_model::core::PersistentVolumeClaim = from_value(claim).expect("a claim");
    let half_empty = node("b", json!({"metadata": {"labels": {ZONE: "test-zone-2"}}}));
    let objects: [Object; 3] =
        [Arc::new(volume).into(), Arc::new(claim).into(), Arc::new(half_empty).into()];
    let view = view(objects);
    let together = affine("podAffinity", "x", ZONE);
    let with_volume = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"volumes":
        [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}});
    for cpu in ["10m", "1"] {
        let p = pod("p", &[("cpu", "100m")], over(with_volume.clone(), together.clone()));
        let q = replicas("x", 0, 1, &[("cpu", cpu)], &together).remove(0);
        let solution = plan(&view, &[input(pool("default", json!({})), &catalogue_d())], [p, q]);
        assert!(solution.existing.is_empty() && solution.unschedulable.is_empty(), "{cpu}");
        assert_eq!(requirement(&solution, 0, ZONE), format!("{ZONE} In [test-zone-3]"), "{cpu}");
    }
    // Where no node can be made, those that can run alone still do.
    let q = replicas("x", 0, 1, &[("cpu", "1")], &together).remove(0);
    let p = pod("p", &[("cpu", "100m")], over(with_volume, together));
    let elsewhere = input(pool("default", in_zones(&ZONES[..2])), &catalogue_d());
    let solution = plan(&view, &[elsewhere], [p, q]);
    assert_eq!(solution.existing[0].name, "b");
    assert!(reason(&solution, "p").contains("test-zone-3"));
}

#[test]
fn pods_that_move_keep_nobody_away_whatever_was_solved_before() {
    let options = options();
    let apart = over(
        affine("podAntiAffinity", "web", HOSTNAME),
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}),
    );
    let there = pod("there", &[("cpu", "100m")], apart);
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "10"});
    let of = json!({"status": {"capacity": room, "allocatable": room}});
    let cluster = view([Arc::new(node("n1", of)).into(), Object::from(Arc::new(there.clone()))]);
    let comes = replicas("web", 0, 1, &[("cpu", "100m")], &json!({}));
    let mut planner = Planner::new(&cluster, &[], &options, now());
    let mut placed = |pods: Vec<Pod>| -> usize {
        let solution = planner.solve(&batch(pods), &|| true);
        solution.existing.iter().map(|it| it.pods.len()).sum()
    };
    assert_eq!(placed(comes.clone()), 0);
    // The one that is there moves: it may stay, and then keeps the other away.
    assert_eq!(placed(vec![there.clone()]), 1);
    assert_eq!(placed([vec![there], comes.clone()].concat()), 1);
    assert_eq!(placed(comes), 0);
}

#[test] // scheduling 7.2 and 7.3: neither a node on its way out nor the place of a pod that moves makes a domain
fn zones_that_are_left_are_no_domains() {
    let spread_pod = |name: &str| {
        pod(name, &[], over(zone_spread(), json!({"metadata": {"labels": {"app": "a"}}})))
    };
    // One pod stays in zone 3, one is in zone 1, where the pool cannot buy.
    let cluster = |deleting: bool, more: usize| {
        let mut world = world(in_zones(&["test-zone-3"]));
        running_in(&mut world, "stays", "test-zone-3", json!({"app": "a"}));
        let gone = json!({"metadata": {"labels": {ZONE: "test-zone-1"}}});
        let gone = if deleting {
            over(gone, json!({"metadata": {"deletionTimestamp": "2026-03-01T11:59:00Z"}}))
        } else {
            gone
        };
        world.add(Arc::new(node("old", gone)).into());
        for n in 0..more {
            let full = json!({"metadata": {"labels": {ZONE: "test-zone-1"}},
                "status": {"allocatable": {}, "capacity": {}}});
            world.add(Arc::new(node(&format!("other-{n}"), full)).into());
        }
        world.bind(&spread_pod("moves"), "old");
        world
    };
    let placed = |world: &World, without: &[&str]| {
        let options = options();
        let moving = world.view.pod(&ObjectKey::namespaced("default", "moves")).expect("bound");
        let mut planner = Planner::new(&world.view, &world.pools, &options, now());
        let of = |without: &[&str]| Batch {
            pods: vec![Arc::clone(moving)],
            without: without.iter().map(|it| (*it).to_owned()).collect(),
            ..Batch::default()
        };
        // What another solve found out before makes no difference.
        let before = planner.solve(&of(&[]), &|| true);
        let again = planner.solve(&of(without), &|| true);
        if without.is_empty() {
            assert_eq!(before.new_claims.len(), again.new_claims.len());
        }
        again.new_claims.len()
    };
    assert_eq!(placed(&cluster(true, 0), &[]), 1);
    assert_eq!(placed(&cluster(true, 1), &[]), 0);
    assert_eq!(placed(&cluster(false, 0), &["old"]), 1);
    assert_eq!(placed(&cluster(false, 2), &["old", "other-0"]), 0);
    assert_eq!(placed(&cluster(false, 2), &["old", "other-0", "other-1"]), 1);
}
