//! Lifecycle 24: looking again before starting.

use serde_json::json;

use crate::{
    Command, Method, View,
    candidates::Survey,
    fixtures::*,
    memory::Memory,
    methods::NoLimit,
    pass,
    simulation::{Simulation, SimulationError},
    validation::{Failure, Validation, validate},
};

type Answer = Result<Simulation, SimulationError>;

fn found(view: &View, answer: impl FnMut(&[usize]) -> Answer) -> Command {
    let survey = Survey::new(view);
    let outcome = pass::run(
        &survey,
        Method::Emptiness,
        &Memory::default(),
        &|_| None,
        &mut Told::new(answer),
        &mut NoLimit,
    );
    outcome.commands.into_iter().next().expect("a command")
}

fn again(view: &View, command: &Command, answer: impl FnMut(&[usize]) -> Answer) -> Validation {
    validate(command, &Survey::new(view), &mut Told::new(answer))
}

fn failure(validation: &Validation) -> Option<Failure> {
    validation.failure.as_ref().map(|it| it.0)
}

fn failed(validation: &Validation) -> f64 {
    validation.measures.iter().map(|it| it.value).sum()
}

fn empty_nodes() -> View {
    let types = [on_demand("t", 0.1)];
    let nodes = ["a", "b", "c"].map(|it| node(it, "p", "t", "on-demand").build());
    view(vec![pool("p", &types, json!({}))], nodes.to_vec())
}

fn busy_nodes() -> View {
    let types = [on_demand("t", 0.1)];
    let nodes = ["a", "b"].map(|it| node(it, "p", "t", "on-demand").plain_pods(1).build());
    view(vec![pool("p", &types, json!({}))], nodes.to_vec())
}

#[test] // lifecycle 24.3, case 1
fn one_busy_node_does_not_spoil_the_batch() {
    let mut it = empty_nodes();
    let command = found(&it, |_| fits());
    assert_eq!(command.candidates.len(), 3);
    it.nodes[0] = node("a", "p", "t", "on-demand").plain_pods(1).build();
    let rest = again(&it, &command, |_| fits()).command.expect("two are left");
    let names: Vec<_> = rest.candidates.iter().map(|it| it.node.as_str()).collect();
    assert_eq!(names, ["b", "c"]);
    for name in ["b", "c"] {
        let at = it.nodes.iter().position(|it| it.name() == name).expect("there");
        it.nodes[at] = node(name, "p", "t", "on-demand").plain_pods(1).build();
    }
    let none = again(&it, &command, |_| fits());
    assert_eq!((failure(&none), failed(&none)), (Some(Failure::Churn), 3.0));
}

#[test] // lifecycle 24.3, case 2; bug report B-019
fn a_protected_pod_stops_the_command() {
    let mut it = busy_nodes();
    let command = found(&it, |_| fits());
    assert_eq!(command.method, Method::MultiNodeConsolidation);
    let protected = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    it.nodes[1] = node("b", "p", "t", "on-demand").plain_pods(1).pod("late", protected).build();
    let result = again(&it, &command, |_| fits());
    assert_eq!((failure(&result), failed(&result)), (Some(Failure::Churn), 2.0));
    assert_eq!(result.command, None);
    let texts: Vec<_> = result.notices.iter().map(|it| it.message.as_str()).collect();
    assert_eq!(
        texts,
        [
            "Consolidation rejected: delete: [a] (part of 2-node consolidation), reason: churn (savings: $0.20)",
            "Consolidation rejected: delete: [b] (part of 2-node consolidation), reason: churn (savings: $0.20)",
        ]
    );
}

#[test] // lifecycle 24.3, cases 3, 4, 6 and 7
fn the_pods_must_still_go_where_it_was_thought() {
    let it = busy_nodes();
    let types = |names: &[&str]| -> Vec<_> { names.iter().map(|it| on_demand(it, 0.01)).collect() };
    let claim = |names: &[&str]| vec![new_claim("p", &types(names), &["on-demand"])];
    let delete = found(&it, |_| fits());
    let result = again(&it, &delete, |_| needs(claim(&["a"])));
    assert_eq!((failure(&result), failed(&result)), (Some(Failure::Scheduling), 0.0));
    assert_eq!(failure(&again(&it, &delete, |_| does_not_fit())), Some(Failure::Scheduling));

    let replace = found(&it, |_| needs(claim(&["a", "b"])));
    assert_eq!(replace.decision(), "replace");
    let dearer = vec![on_demand("a", 5.0), on_demand("b", 5.0), on_demand("c", 5.0)];
    let more = again(&it, &replace, |_| needs(vec![new_claim("p", &dearer, &["on-demand"])]));
    assert!(more.command.is_some(), "prices are not looked at again");
    assert_eq!(failure(&again(&it, &replace, |_| needs(claim(&["a"])))), Some(Failure::Scheduling));
    assert_eq!(failure(&again(&it, &replace, |_| fits())), Some(Failure::Scheduling));
    let two = [claim(&["a", "b"]), claim(&["a", "b"])].concat();
    assert_eq!(failure(&again(&it, &replace, |_| needs(two.clone()))), Some(Failure::Scheduling));
    let error = again(&it, &replace, |_| Err(SimulationError::CandidateDeleting));
    assert_eq!(error.error.as_deref(), Some("candidate is deleting"));
}

#[test] // lifecycle 24.3, case 5
fn budgets_and_nominations_are_looked_at_again() {
    let mut it = busy_nodes();
    let command = found(&it, |_| fits());
    let open = it.pools["p"].clone();
    let closed = json!({"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}});
    it.pools.insert("p".into(), pool("p", &[on_demand("t", 0.1)], closed));
    let result = again(&it, &command, |_| fits());
    assert_eq!((failure(&result), failed(&result)), (Some(Failure::Budget), 2.0));
    it.pools.insert("p".into(), open);
    it.nodes[0] =
        node("a", "p", "t", "on-demand").plain_pods(1).nominated_until(now() + minutes(1)).build();
    assert_eq!(failure(&again(&it, &command, |_| fits())), Some(Failure::Churn));
}
