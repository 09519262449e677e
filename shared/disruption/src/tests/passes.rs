//! Lifecycle 13: the order of methods, and what is remembered.

use serde_json::json;

use crate::{
    candidates::Survey,
    command::Method,
    fixtures::*,
    memory::{Memory, QUIET_FOR},
    methods::NoLimit,
    pass::{self, Outcome},
    simulation::{Simulation, SimulationError},
};

fn pass(
    view: &crate::View,
    memory: &Memory,
    answer: impl FnMut(&[usize]) -> Result<Simulation, SimulationError>,
) -> (Outcome, usize) {
    let survey = Survey::new(view);
    let mut told = Told::new(answer);
    let outcome = pass::run(&survey, Method::Emptiness, memory, &|_| None, &mut told, &mut NoLimit);
    (outcome, told.asked.len())
}

#[test] // lifecycle 13.1, case 1, and 19.1, case 9
fn emptiness_goes_before_drift() {
    let types = [on_demand("t", 0.1)];
    let mut it = view(
        vec![pool("p", &types, json!({}))],
        vec![
            node("both", "p", "t", "on-demand").drifted("2026-03-04T09:00:00Z").build(),
            node("drifted", "p", "t", "on-demand")
                .plain_pods(1)
                .drifted("2026-03-04T08:00:00Z")
                .build(),
        ],
    );
    let (outcome, _) = pass(&it, &Memory::default(), |_| fits());
    assert_eq!(outcome.method, Some(Method::Emptiness));
    assert_eq!(outcome.commands[0].candidates[0].node, "both");
    it.nodes.remove(0);
    let (outcome, _) = pass(&it, &Memory::default(), |_| fits());
    assert_eq!(outcome.method, Some(Method::Drift));
    assert_eq!(outcome.commands[0].decision(), "delete");
}

fn busy() -> crate::View {
    let types = [on_demand("t", 0.1)];
    view(
        vec![pool("p", &types, json!({}))],
        ["a", "b"].map(|it| node(it, "p", "t", "on-demand").plain_pods(1).build()).to_vec(),
    )
}

#[test] // lifecycle 13.1, cases 6 and 9
fn what_was_found_quiet_is_not_simulated_again_for_five_minutes() {
    let mut it = busy();
    let (outcome, asked) = pass(&it, &Memory::default(), |_| does_not_fit());
    assert_eq!(asked, 3, "two together, then each alone");
    let memory = outcome.memory;
    it.now = now() + minutes(4);
    assert_eq!(pass(&it, &memory, |_| does_not_fit()).1, 0);
    it.now = now() + QUIET_FOR;
    assert_eq!(pass(&it, &memory, |_| does_not_fit()).1, 3);
    // A node becomes a candidate: that is a change.
    it.now = now() + minutes(1);
    it.nodes.push(node("c", "p", "t", "on-demand").plain_pods(1).build());
    assert!(pass(&it, &memory, |_| does_not_fit()).1 > 0);
}

#[test] // lifecycle 13.1, case 7
fn what_a_budget_held_back_is_not_remembered() {
    let mut it = busy();
    let closed = pool(
        "p",
        &[on_demand("t", 0.1)],
        json!({"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}}),
    );
    it.pools.insert("p".into(), closed);
    let (outcome, asked) = pass(&it, &Memory::default(), |_| fits());
    assert_eq!((asked, outcome.commands.len()), (0, 0));
    assert!(outcome.constrained && outcome.memory.quiet.is_empty());
    let told: Vec<_> = outcome.notices.iter().map(|it| it.message.as_str()).collect();
    let text = "No allowed disruptions for disruption reason Underutilized due to blocking budget";
    assert!(told.contains(&text), "{told:?}");
}

#[test] // lifecycle 13: an error ends the pass
fn an_error_of_the_scheduler_ends_the_pass() {
    let it = busy();
    let (outcome, asked) = pass(&it, &Memory::default(), |_| {
        Err(SimulationError::Failed("no nodepools found".into()))
    });
    assert_eq!((asked, outcome.error.as_deref()), (1, Some("no nodepools found")));
}

#[test] // lifecycle 33.1, case 4, and 13: gauges
fn eligible_nodes_are_measured_per_reason() {
    let (outcome, _) = pass(&busy(), &Memory::default(), |_| fits());
    assert_eq!(outcome.method, Some(Method::MultiNodeConsolidation));
    let eligible: Vec<(String, f64)> = outcome
        .measures
        .iter()
        .filter(|it| it.name == "karpenter_voluntary_disruption_eligible_nodes")
        .map(|it| (it.labels[0].1.clone(), it.value))
        .collect();
    let expected = [("empty", 0.0), ("drifted", 0.0), ("drifted", 0.0), ("underutilized", 2.0)];
    assert_eq!(eligible, expected.map(|(reason, n)| (reason.to_owned(), n)));
}
