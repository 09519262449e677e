//! Preferences and what is left of them (`spec` scheduling 2.6 and 8).

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use std::sync::Arc;

use common::*;
use serde_json::json;
use spokeshave_model::{
    core::{ReplicaSet, TopologySpreadConstraint},
    labels::{ARCH, HOSTNAME, ZONE},
    meta::from_value,
    settings::PreferencePolicy,
};
use spokeshave_scheduling::{ClusterView, Options, PoolInput, solve};

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
