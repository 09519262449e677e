//! Lifecycle 17: what is counted, and what is left of a budget. Values and windows are the model's.

#![allow(clippy::needless_pass_by_value, reason = "JSON literals read better by value")]

use serde_json::{Value, json};

use crate::{StateNode, allowance::Allowances, cluster::View, command::Reason, fixtures::*};

fn fleet(n: usize, budgets: Value, change: impl Fn(usize, NodeBuilder) -> NodeBuilder) -> View {
    let types = [on_demand("t", 0.1)];
    let nodes = (0..n).map(|i| change(i, node(&format!("n{i:02}"), "p", "t", "on-demand")).build());
    let extra = json!({"spec": {"disruption": {"budgets": budgets}}});
    view(vec![pool("p", &types, extra)], nodes.collect())
}

fn remaining(view: &View, reason: Reason) -> (i64, i64, i64) {
    let it = Allowances::new(view, reason).of("p");
    (it.allowed, it.disrupting, it.remaining())
}

fn not_ready(it: NodeBuilder) -> NodeBuilder {
    it.node_is(json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}))
}

fn deleting(it: NodeBuilder) -> NodeBuilder {
    it.claim_is(json!({"metadata": {"deletionTimestamp": "2026-03-04T09:59:00Z"}}))
}

#[test] // lifecycle 17.4, case 2
fn what_is_on_its_way_is_subtracted() {
    let first = |n: usize| move |i: usize, it: NodeBuilder| if i < n { deleting(it) } else { it };
    let four = || json!([{"nodes": "4"}]);
    assert_eq!(remaining(&fleet(10, four(), first(3)), Reason::Empty), (4, 3, 1));
    assert_eq!(remaining(&fleet(10, four(), first(5)), Reason::Empty), (4, 5, 0));
    let commands = fleet(10, four(), |i, it| if i < 2 { it.in_command() } else { it });
    assert_eq!(remaining(&commands, Reason::Drifted), (4, 2, 2), "whatever the reason");
}

#[test] // lifecycle 17.4, cases 3 and 5; bug report B-030
fn reasons_choose_budgets() {
    let two = || json!([{"nodes": "20%", "reasons": ["Empty", "Drifted"]}, {"nodes": "5"}]);
    let all = |n: usize, budgets: Value| {
        let view = fleet(n, budgets, |_, it| it);
        [Reason::Empty, Reason::Drifted, Reason::Underutilized].map(|it| remaining(&view, it).0)
    };
    assert_eq!(all(19, two()), [4, 4, 5]);
    assert_eq!(all(30, two()), [5, 5, 5]);
    assert_eq!(
        all(10, json!([{"nodes": "1", "reasons": ["Drifted"]}])),
        [2_147_483_647, 1, 2_147_483_647]
    );
    // 17.4, cases 6 and 7
    let broken = json!([{"nodes": "5"},
        {"nodes": "3", "schedule": "0 0 * * tue-mon", "duration": "1h", "reasons": ["Empty"]}]);
    assert_eq!(all(10, broken), [0, 0, 0]);
    assert_eq!(all(10, json!([{"nodes": "0", "reasons": []}])), [2_147_483_647; 3]);
}

#[test] // lifecycle 17.4, cases 8 and 9; api 5, case 8
fn only_healthy_initialized_nodes_make_the_number() {
    let two = || json!([{"nodes": "2"}]);
    let sick = |i: usize, it: NodeBuilder| match i {
        0 => not_ready(it),
        1 => deleting(it),
        _ => it,
    };
    assert_eq!(remaining(&fleet(10, two(), sick), Reason::Drifted), (2, 2, 0));
    let gone = |i: usize, it: NodeBuilder| match i {
        0 => not_ready(it),
        1 => deleting(it).claim_is(json!({"status": {"conditions": [
            {"type": "InstanceTerminating", "status": "True"}]}})),
        _ => it,
    };
    let view = fleet(10, two(), gone);
    assert_eq!(remaining(&view, Reason::Drifted), (2, 1, 1));
    assert_eq!(Allowances::new(&view, Reason::Drifted).of("p").n_nodes, 9);
    let young = |i: usize, it: NodeBuilder| {
        if i < 4 {
            it.node_is(json!({"metadata": {"labels": {"karpenter.sh/initialized": null}}}))
        } else {
            it
        }
    };
    assert_eq!(remaining(&fleet(10, json!([{"nodes": "50%"}]), young), Reason::Empty), (3, 0, 3));
    let one = |i: usize, it: NodeBuilder| if i < 3 { not_ready(it) } else { it };
    assert_eq!(remaining(&fleet(10, json!([{"nodes": "20%"}]), one), Reason::Empty), (2, 3, 0));
}

#[test] // lifecycle 17.4, case 1, through the default of one budget of 10 %
fn the_default_is_a_tenth_rounded_up() {
    for (n, allowed) in [(1, 1), (9, 1), (10, 1), (11, 2), (0, 0)] {
        let types = [on_demand("t", 0.1)];
        let nodes: Vec<StateNode> =
            (0..n).map(|i| node(&format!("n{i}"), "p", "t", "on-demand").build()).collect();
        let extra = json!({"spec": {"disruption": {"budgets": null}}});
        let view = view(vec![pool("p", &types, extra)], nodes);
        assert_eq!(remaining(&view, Reason::Empty).0, allowed, "{n}");
    }
}

#[test] // lifecycle 17.2: the event is for pools that have nodes and may lose none
fn pools_that_allow_nothing_are_told() {
    let closed = fleet(1, json!([{"nodes": "0"}]), |_, it| it);
    let notices = Allowances::new(&closed, Reason::Drifted).notices();
    assert_eq!(
        notices[0].message,
        "No allowed disruptions for disruption reason Drifted due to blocking budget"
    );
    let none = fleet(0, json!([{"nodes": "0"}]), |_, it| it);
    assert!(Allowances::new(&none, Reason::Drifted).notices().is_empty());
}
