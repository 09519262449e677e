//! Lifecycle 19, 21 and 22: how the methods walk.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::json;
use spokeshave_model::InstanceType;

use crate::{
    StateNode, View,
    allowance::Allowances,
    candidates::Survey,
    command::{Command, Method},
    fixtures::*,
    methods::{self, Found, NoLimit, Rules, Stopwatch},
    simulation::{Simulation, SimulationError},
};

fn nodes_of(command: &Command) -> Vec<&str> {
    command.candidates.iter().map(|it| it.node.as_str()).collect()
}

fn budget(n: &str) -> serde_json::Value {
    json!({"spec": {"disruption": {"budgets": [{"nodes": n}]}}})
}

fn emptiness(view: &View) -> Found {
    let survey = Survey::new(view);
    let candidates = survey.collect(Method::Emptiness).candidates;
    methods::emptiness(&survey, candidates, &mut Allowances::new(view, Method::Emptiness.reason()))
}

#[test] // lifecycle 19.1, cases 1 and 2
fn empty_nodes_go_together_as_budgets_allow() {
    let types = [on_demand("t", 0.1)];
    let mut nodes: Vec<StateNode> =
        (0..5).map(|n| node(&format!("a{n}"), "a", "t", "on-demand").build()).collect();
    nodes.push(node("b0", "b", "t", "on-demand").build());
    let it = view(vec![pool("a", &types, budget("2")), pool("b", &types, budget("1"))], nodes);
    let found = emptiness(&it);
    assert_eq!(found.commands.len(), 1);
    assert_eq!(nodes_of(&found.commands[0]), ["a0", "a1", "b0"]);
    assert!(found.constrained);
    // Those that wait are told so, not the pool alone.
    let told: Vec<(&str, &str)> =
        found.notices.iter().map(|it| (it.reason, it.message.as_str())).collect();
    let text = "No allowed disruptions for disruption reason Empty due to blocking budget";
    assert_eq!(told, [("DisruptionBlocked", text); 3]);
    let many = (0..60).map(|n| node(&format!("n{n:02}"), "a", "t", "on-demand").build()).collect();
    let it = view(vec![pool("a", &types, budget("2"))], many);
    let found = emptiness(&it);
    assert_eq!((found.left.len(), found.notices.len()), (58, 20), "the next ones");

    let types = [on_demand("x", 0.1), on_demand("y", 0.4), on_demand("z", 0.2)];
    let nodes = ["x", "y", "z"].map(|it| node(it, "a", it, "on-demand").build());
    let it = view(vec![pool("a", &types, budget("2"))], nodes.to_vec());
    let found = emptiness(&it);
    assert_eq!(nodes_of(&found.commands[0]), ["y", "z"]);
    assert!((found.commands[0].saving - 0.6).abs() < 1e-9);
}

fn drift(
    view: &View,
    answer: impl FnMut(&[usize]) -> Result<Simulation, SimulationError>,
) -> (Found, Vec<String>) {
    let survey = Survey::new(view);
    let candidates = survey.collect(Method::Drift).candidates;
    let allowances = Allowances::new(view, Method::Drift.reason());
    let mut told = Told::new(answer);
    let found = methods::drift(&survey, candidates, &allowances, &mut told, &mut NoLimit, None);
    let order = told.nodes.iter().map(|it| view.nodes[it[0]].name().to_owned()).collect();
    (found, order)
}

fn drifted_nodes() -> View {
    let types = [on_demand("t", 0.1)];
    view(
        vec![pool("a", &types, json!({}))],
        vec![
            node("n1", "a", "t", "on-demand").plain_pods(3).drifted("2026-03-04T10:00:00Z").build(),
            node("n2", "a", "t", "on-demand").drifted("2026-03-04T10:05:00Z").build(),
            node("n3", "a", "t", "on-demand").plain_pods(1).drifted("2026-03-04T09:00:00Z").build(),
        ],
    )
}

#[test] // lifecycle 19.1, case 3
fn the_oldest_drift_is_first_but_nodes_without_pods_before_it() {
    let (found, order) = drift(&drifted_nodes(), |_| does_not_fit());
    assert_eq!(order, ["n2", "n3", "n1"]);
    assert!(found.commands.is_empty());
    assert_eq!(found.notices.len(), 3);
    assert_eq!(found.notices[0].reason, "DisruptionBlocked");
    assert_eq!(found.notices[0].message, "Not all pods would schedule, ns/p => no room");
}

#[test] // lifecycle 19.1, cases 4 and 5
fn a_drifted_node_is_replaced_at_any_price_by_any_number() {
    let dear = [on_demand("dear", 9.0)];
    let (found, order) = drift(&drifted_nodes(), |without| match without {
        [0] => needs(vec![
            new_claim("a", &dear, &["on-demand"]),
            new_claim("a", &dear, &["on-demand"]),
        ]),
        _ => does_not_fit(),
    });
    assert_eq!(order, ["n2", "n3", "n1"]);
    assert_eq!(nodes_of(&found.commands[0]), ["n1"]);
    assert_eq!(found.commands[0].replacements.len(), 2);
    assert!(found.commands[0].saving < 0.0);
}

#[test] // lifecycle 19.1, case 6
fn a_pod_that_costs_nothing_is_still_a_pod_for_drift() {
    let types = [on_demand("t", 0.1)];
    let free = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-2147483647"}}});
    let it = view(
        vec![pool("a", &types, json!({}))],
        vec![
            node("n1", "a", "t", "on-demand")
                .pod("free", free)
                .not_consolidatable()
                .drifted("2026-03-04T09:00:00Z")
                .build(),
            node("n2", "a", "t", "on-demand").drifted("2026-03-04T10:00:00Z").build(),
        ],
    );
    let (_, order) = drift(&it, |_| does_not_fit());
    assert_eq!(order, ["n2", "n1"]);
}

fn static_drift(extra: serde_json::Value, n_nodes: usize) -> usize {
    let types = [on_demand("t", 0.1)];
    let nodes = (0..n_nodes).map(|n| {
        node(&format!("n{n}"), "s", "t", "on-demand").drifted("2026-03-04T09:00:00Z").build()
    });
    let it = view(vec![pool("s", &types, extra)], nodes.collect());
    let survey = Survey::new(&it);
    let candidates = survey.collect(Method::StaticDrift).candidates;
    assert_eq!(candidates.len(), n_nodes);
    assert!(collect(&it, Method::Drift).candidates.is_empty());
    let allowances = Allowances::new(&it, Method::StaticDrift.reason());
    let found = methods::static_drift(&survey, candidates, &allowances, &|pool| {
        Some(new_claim(pool, &[], &[]))
    });
    for command in &found.commands {
        assert_eq!((command.candidates.len(), command.replacements.len()), (1, 1));
    }
    found.commands.len()
}

#[test] // lifecycle 19.1, cases 7 and 8
fn static_drift_keeps_to_the_node_limit_and_to_the_size() {
    for (limit, n) in [(Some("5"), 0), (Some("6"), 1), (Some("7"), 2), (None, 5)] {
        let extra =
            json!({"spec": {"replicas": 5, "limits": limit.map(|it| json!({"nodes": it}))}});
        assert_eq!(static_drift(extra, 5), n, "{limit:?}");
    }
    assert_eq!(static_drift(json!({"spec": {"replicas": 1}}), 2), 0);
    // 31.1, case 8
    let closed = json!({"spec": {"replicas": 2, "disruption": {"budgets": [{"nodes": "0"}]}}});
    assert_eq!(static_drift(closed, 2), 0);
}

/// `n` nodes, sorted by what they save as they are numbered.
fn fleet(n: usize) -> View {
    let types: Vec<Arc<InstanceType>> =
        (0..n).map(|i| on_demand(&format!("t{i:03}"), 1.0 - 0.001 * i as f64)).collect();
    let nodes = (0..n).map(|i| {
        node(&format!("n{i:03}"), "p", &format!("t{i:03}"), "on-demand").plain_pods(1).build()
    });
    view(vec![pool("p", &types, json!({}))], nodes.collect())
}

fn multi(view: &View, works: impl Fn(usize) -> bool) -> (Vec<usize>, usize) {
    let survey = Survey::new(view);
    let candidates = survey.collect(Method::MultiNodeConsolidation).candidates;
    let mut allowances = Allowances::new(view, Method::MultiNodeConsolidation.reason());
    let mut told =
        Told::new(|without: &[usize]| if works(without.len()) { fits() } else { does_not_fit() });
    let found = methods::multi_node(
        &survey,
        candidates,
        &mut allowances,
        &mut told,
        &mut NoLimit,
        Rules::default(),
        None,
    );
    (told.asked, found.commands.first().map_or(0, |it| it.candidates.len()))
}

#[test] // lifecycle 21.1, cases 1 to 7
fn multi_node_consolidation_halves() {
    assert_eq!(multi(&fleet(2), |_| true), (vec![2], 2));
    assert_eq!(multi(&fleet(5), |n| n <= 3), (vec![3, 4], 3));
    assert_eq!(multi(&fleet(10), |n| n <= 7), (vec![6, 8, 7], 7));
    assert_eq!(multi(&fleet(5), |n| n == 2 || n == 4), (vec![3, 2], 2));
    assert_eq!(multi(&fleet(100), |_| true), (vec![51, 76, 88, 94, 97, 99, 100], 100));
    assert_eq!(multi(&fleet(150), |_| true), (vec![51, 76, 89, 95, 98, 100, 101], 101));
    assert_eq!(multi(&fleet(40), |n| n <= 17), (vec![21, 11, 16, 18, 17], 17));
    assert_eq!(multi(&fleet(8), |_| false), (vec![5, 3, 2], 0));
    assert_eq!(multi(&fleet(1), |_| true), (vec![], 0));
}

#[test] // lifecycle 21.1, case 9
fn a_budget_takes_nodes_out_of_the_prefix() {
    let types =
        [on_demand("x", 0.4), on_demand("y", 0.3), on_demand("z", 0.2), on_demand("w", 0.1)];
    let one = |name: &str, pool: &str, kind: &str| {
        node(name, pool, kind, "on-demand").plain_pods(1).build()
    };
    let it = view(
        vec![pool("a", &types, budget("1")), pool("b", &types, budget("5"))],
        vec![one("a1", "a", "x"), one("b1", "b", "y"), one("a2", "a", "z"), one("b2", "b", "w")],
    );
    let survey = Survey::new(&it);
    let candidates = survey.collect(Method::MultiNodeConsolidation).candidates;
    let mut allowances = Allowances::new(&it, Method::MultiNodeConsolidation.reason());
    let mut told = Told::new(|_: &[usize]| fits());
    let found = methods::multi_node(
        &survey,
        candidates,
        &mut allowances,
        &mut told,
        &mut NoLimit,
        Rules::default(),
        None,
    );
    assert_eq!(nodes_of(&found.commands[0]), ["a1", "b1", "b2"]);
    assert!(found.constrained);
}

fn single(
    view: &View,
    unseen: &BTreeSet<String>,
    watch: &mut dyn Stopwatch,
    answer: impl FnMut(&[usize]) -> Result<Simulation, SimulationError>,
) -> (Found, Vec<String>) {
    let survey = Survey::new(view);
    let candidates = survey.collect(Method::SingleNodeConsolidation).candidates;
    let allowances = Allowances::new(view, Method::SingleNodeConsolidation.reason());
    let mut told = Told::new(answer);
    let found = methods::single_node(
        &survey,
        candidates,
        unseen,
        &allowances,
        &mut told,
        watch,
        Rules::default(),
        None,
    );
    let order = told.nodes.iter().map(|it| view.nodes[it[0]].name().to_owned()).collect();
    (found, order)
}

fn two_pools(budget_a: &str) -> View {
    let types =
        [on_demand("x", 0.5), on_demand("y", 0.4), on_demand("z", 0.3), on_demand("w", 0.1)];
    let one = |name: &str, pool: &str, kind: &str| {
        node(name, pool, kind, "on-demand").plain_pods(1).build()
    };
    view(
        vec![pool("a", &types, budget(budget_a)), pool("b", &types, budget("5"))],
        vec![one("a1", "a", "x"), one("a2", "a", "y"), one("a3", "a", "z"), one("b1", "b", "w")],
    )
}

struct After(usize);

impl Stopwatch for After {
    fn is_out_of_time(&mut self) -> bool {
        let over = self.0 == 0;
        self.0 = self.0.saturating_sub(1);
        over
    }
}

#[test] // lifecycle 22.1, cases 1, 2 and 6
fn single_node_consolidation_takes_pools_in_turn() {
    let (_, order) = single(&two_pools("5"), &none(), &mut NoLimit, |_| does_not_fit());
    assert_eq!(order, ["a1", "b1", "a2", "a3"]);
    let (found, order) = single(&two_pools("5"), &none(), &mut After(1), |_| does_not_fit());
    assert_eq!(order, ["a1"]);
    assert_eq!((found.stopped_at, found.commands.len()), (Some(1), 0));
    let unseen = BTreeSet::from(["b".to_owned()]);
    let (_, order) = single(&two_pools("5"), &unseen, &mut NoLimit, |_| does_not_fit());
    assert_eq!(order, ["b1", "a1", "a2", "a3"]);
}

#[test] // lifecycle 22.1, cases 4 and 5
fn the_first_that_can_go_goes() {
    let dear = [on_demand("dear", 9.0)];
    let (found, order) = single(&two_pools("5"), &none(), &mut NoLimit, |without| match without {
        [3] => fits(),
        _ => needs(vec![new_claim("a", &dear, &["on-demand"])]),
    });
    assert_eq!(order, ["a1", "b1"]);
    assert_eq!(nodes_of(&found.commands[0]), ["b1"]);
    assert_eq!(found.commands[0].decision(), "delete");
    assert_eq!(found.notices[0].message, "Can't replace with a cheaper node");
    let (found, order) = single(&two_pools("0"), &none(), &mut NoLimit, |_| does_not_fit());
    assert_eq!(order, ["b1"]);
    assert!(found.constrained && found.commands.is_empty());
}

#[test] // lifecycle 32, `ConsolidationCandidate`
fn a_replacement_is_announced_with_its_saving() {
    let cheap = [spot("cheap", 0.19)];
    let (found, _) = single(&two_pools("5"), &none(), &mut NoLimit, |_| {
        needs(vec![new_claim("a", &cheap, &["on-demand", "spot"])])
    });
    assert_eq!(found.notices[0].reason, "ConsolidationCandidate");
    assert_eq!(
        found.notices[0].message,
        "Consolidation candidate: replace: [a1] -> [1 replacement] (savings: $0.31)"
    );
}
