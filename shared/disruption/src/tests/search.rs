//! Lifecycle 21 and 22 in slices of time: where a search stops, and how it goes on.

use std::{cell::RefCell, sync::Arc};

use jiff::SignedDuration;
use serde_json::json;
use spokeshave_model::InstanceType;

use crate::{
    View,
    allowance::Allowances,
    candidates::Survey,
    command::Method,
    fixtures::*,
    memory::{Memory, Search},
    methods::{self, NoLimit, Rules, Stopwatch},
    pass::{self, Outcome},
    simulation::SimulationError,
};

/// Time for so many simulations.
struct Slice(usize);

impl Stopwatch for Slice {
    fn is_out_of_time(&mut self) -> bool {
        let over = self.0 == 0;
        self.0 = self.0.saturating_sub(1);
        over
    }
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

/// One pass with time for so many simulations; the memory goes through the form in which it is stored.
fn pass_of(
    view: &View,
    memory: &Memory,
    slice: usize,
    works: impl Fn(usize) -> bool,
) -> (Outcome, Vec<usize>) {
    let stored = serde_json::to_string(memory).expect("JSON");
    let memory: Memory = serde_json::from_str(&stored).expect("what was written");
    let survey = Survey::new(view);
    let mut told =
        Told::new(|without: &[usize]| if works(without.len()) { fits() } else { does_not_fit() });
    let first = Method::Emptiness;
    let outcome = pass::run(&survey, first, &memory, &|_| None, &mut told, &mut Slice(slice));
    (outcome, told.asked)
}

fn timeouts(outcome: &Outcome) -> Vec<&str> {
    let name = "karpenter_voluntary_disruption_consolidation_timeouts_total";
    let all = outcome.measures.iter().filter(|it| it.name == name);
    all.map(|it| it.labels[0].1.as_str()).collect()
}

#[test] // lifecycle 21.1, case 6, in slices
fn halving_goes_on_where_it_stopped() {
    let mut it = fleet(40);
    let asked = RefCell::new(Vec::new());
    let mut memory = Memory::default();
    for seconds in [0, 20, 40] {
        it.now = now() + SignedDuration::from_secs(seconds);
        let (outcome, tried) = pass_of(&it, &memory, 2, |n| n <= 17);
        asked.borrow_mut().extend(tried);
        memory = outcome.memory.clone();
        if seconds < 40 {
            assert!(outcome.unfinished && outcome.commands.is_empty(), "{seconds}");
            assert_eq!(memory.search.as_ref().map(|it| it.started), Some(now()));
        } else {
            assert_eq!(outcome.method, Some(Method::MultiNodeConsolidation));
            assert_eq!(outcome.commands[0].candidates.len(), 17);
            assert_eq!((timeouts(&outcome).len(), &memory.search), (0, &None));
        }
    }
    assert_eq!(*asked.borrow(), [21, 11, 16, 18, 17]);
}

#[test] // lifecycle 21, step 5
fn a_search_that_takes_a_minute_gives_what_it_has() {
    let mut it = fleet(40);
    let (outcome, tried) = pass_of(&it, &Memory::default(), 3, |n| n <= 17);
    assert_eq!(tried, [21, 11, 16]);
    it.now = now() + SignedDuration::from_secs(60);
    let (outcome, tried) = pass_of(&it, &outcome.memory, 9, |n| n <= 17);
    assert!(tried.is_empty());
    assert_eq!(outcome.commands[0].candidates.len(), 16);
    assert_eq!(timeouts(&outcome), ["multi"]);

    // Nothing until then is an answer, too: it is remembered, and the next method has its turn.
    it.now = now();
    let (outcome, tried) = pass_of(&it, &Memory::default(), 3, |_| false);
    assert_eq!(tried, [21, 11, 6]);
    it.now = now() + SignedDuration::from_secs(60);
    let (outcome, tried) = pass_of(&it, &outcome.memory, 2, |_| false);
    assert_eq!((timeouts(&outcome), tried), (vec!["multi"], vec![1, 1]));
    assert!(outcome.memory.quiet.contains_key(&Method::MultiNodeConsolidation));
    let single = outcome.memory.search.as_ref().expect("a search");
    assert_eq!((single.method, single.looked_at), (Method::SingleNodeConsolidation, 2));
}

#[test] // lifecycle 22, step 3
fn a_search_for_one_node_ends_after_three_minutes() {
    let mut it = fleet(8);
    let (outcome, tried) = pass_of(&it, &Memory::default(), 5, |_| false);
    assert_eq!(tried, [5, 3, 2, 1, 1]);
    it.now = now() + SignedDuration::from_secs(179);
    let (outcome, tried) = pass_of(&it, &outcome.memory, 2, |_| false);
    assert_eq!((timeouts(&outcome).len(), tried.as_slice()), (0, &[1, 1][..]));
    assert_eq!(outcome.memory.search.as_ref().map(|it| it.looked_at), Some(4));
    it.now = now() + SignedDuration::from_secs(180);
    let (outcome, tried) = pass_of(&it, &outcome.memory, 2, |_| true);
    assert_eq!((timeouts(&outcome), tried.len()), (vec!["single"], 0));
    assert!(!outcome.unfinished && outcome.commands.is_empty());
    assert!(!outcome.memory.quiet.contains_key(&Method::SingleNodeConsolidation));
}

#[test]
fn a_search_whose_candidates_have_gone_begins_anew() {
    let mut it = fleet(10);
    let (outcome, tried) = pass_of(&it, &Memory::default(), 2, |n| n <= 7);
    assert_eq!(tried, [6, 8]);
    // Another order of the same candidates changes nothing: by now n000 costs more to move than all others.
    let mut other = it.clone();
    other.nodes[0] = node("n000", "p", "t000", "on-demand").plain_pods(9).build();
    let (again, tried) = pass_of(&other, &outcome.memory, 9, |n| n <= 7);
    assert_eq!(tried, [7]);
    let names: Vec<&str> = again.commands[0].candidates.iter().map(|it| it.node.as_str()).collect();
    assert_eq!(names, ["n000", "n001", "n002", "n003", "n004", "n005", "n006"]);
    // A candidate less is another search.
    it.nodes.remove(3);
    let (again, tried) = pass_of(&it, &outcome.memory, 9, |n| n <= 7);
    assert_eq!(tried, [5, 7, 8]);
    assert_eq!(again.commands[0].candidates.len(), 7);
}

#[test]
fn what_takes_no_time_does_not_wait_for_a_search() {
    let mut it = fleet(10);
    let (outcome, _) = pass_of(&it, &Memory::default(), 2, |n| n <= 7);
    let memory = outcome.memory;
    it.nodes.push(node("nobody", "p", "t000", "on-demand").build());
    let (outcome, tried) = pass_of(&it, &memory, 9, |n| n <= 7);
    assert_eq!((outcome.method, tried.len()), (Some(Method::Emptiness), 0));
    assert_eq!(outcome.memory.search, memory.search, "kept");
    it.nodes.pop();
    let (outcome, tried) = pass_of(&it, &outcome.memory, 9, |n| n <= 7);
    assert_eq!(tried, [7]);
    assert_eq!(outcome.commands[0].candidates.len(), 7);
    // A drifted node had its turn before the search began; it has it again when the search is over.
    it.nodes[9] = node("n009", "p", "t009", "on-demand")
        .plain_pods(1)
        .drifted("2026-03-04T09:00:00Z")
        .build();
    let (outcome, _) = pass_of(&it, &memory, 9, |n| n <= 7);
    assert_eq!(outcome.method, Some(Method::MultiNodeConsolidation));
    let (outcome, _) = pass_of(&it, &outcome.memory, 9, |_| true);
    assert_eq!(outcome.method, Some(Method::Drift));
}

#[test]
fn a_candidate_that_takes_a_whole_slice_does_not_hold_the_others() {
    let it = fleet(3);
    let survey = Survey::new(&it);
    let candidates = || survey.collect(Method::SingleNodeConsolidation).candidates;
    let allowances = Allowances::new(&it, Method::SingleNodeConsolidation.reason());
    let mut memory: Option<Search> = None;
    let mut order = Vec::new();
    for expected in [Some(1), Some(2), None] {
        let mut told = Told::new(|without: &[usize]| match without {
            [0 | 1] => Err(SimulationError::OutOfTime),
            _ => does_not_fit(),
        });
        let found = methods::single_node(
            &survey,
            candidates(),
            &none(),
            &allowances,
            &mut told,
            &mut NoLimit,
            Rules::default(),
            memory.as_ref(),
        );
        order.extend(told.nodes.iter().map(|it| it[0]));
        assert_eq!(found.stopped_at, expected);
        memory = found.stopped_at.map(|looked_at| Search {
            method: Method::SingleNodeConsolidation,
            started: it.now,
            looked_at,
            halving: None,
        });
    }
    assert_eq!(order, [0, 1, 2]);
}
