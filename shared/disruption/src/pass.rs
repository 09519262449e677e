//! One pass: the methods in their order, until one of them has something to do (lifecycle 13).

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;

use crate::{
    allowance::Allowances,
    balanced,
    candidates::Survey,
    command::{Command, Method},
    gauges::gauges,
    memory::{Memory, Search, fingerprint, state_print},
    methods::{self, Found, Rules, Stopwatch},
    notices::{Measure, Notice},
    simulation::{NewClaim, Simulator},
};

/// What a pass came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The method that found something.
    pub method: Option<Method>,
    pub commands: Vec<Command>,
    pub notices: Vec<Notice>,
    pub measures: Vec<Measure>,
    /// For the next pass.
    pub memory: Memory,
    /// By position in the view's nodes: what each method said of it.
    pub left: BTreeMap<usize, Vec<(Method, String)>>,
    /// Some method had candidates.
    pub had_candidates: bool,
    /// A budget held something back.
    pub constrained: bool,
    /// A search goes on in the next pass.
    pub unfinished: bool,
    /// Why it ended early.
    pub error: Option<String>,
}

/// Tries the methods from `first` on.
///
/// When the last pass left a search, this is its second part: methods that came before it have had their turn, and only
/// those that take no time are tried before it goes on.
///
/// `template` makes the replacement of a static pool's node.
pub fn run(
    survey: &Survey<'_>,
    first: Method,
    memory: &Memory,
    template: &dyn Fn(&str) -> Option<NewClaim>,
    simulator: &mut dyn Simulator,
    watch: &mut dyn Stopwatch,
) -> Outcome {
    let mut outcome = Outcome { memory: memory.clone(), ..Outcome::default() };
    outcome.notices = survey.do_not_disrupt_notices();
    outcome.measures = gauges(survey.view);
    let totals = balanced::totals(survey);
    let rules = Rules {
        spot_to_spot: survey.view.settings.gates.spot_to_spot_consolidation,
        totals: Some(&totals),
    };
    let mut stopped = outcome.memory.search.take();
    let print = OnceCell::new();
    for method in Method::ALL.into_iter().filter(|it| *it >= first) {
        if method.simulates() && stopped.as_ref().is_some_and(|it| method < it.method) {
            continue;
        }
        let search = stopped.take_if(|it| it.method == method);
        let collection = survey.collect(method);
        outcome.notices.extend(collection.notices);
        outcome.note_left(method, collection.left);
        let candidates = collection.candidates;
        outcome.measures.push(Measure::gauge(
            "karpenter_voluntary_disruption_eligible_nodes",
            candidates.len() as f64,
            &[("reason", method.reason().lower())],
        ));
        if candidates.is_empty() {
            continue;
        }
        outcome.had_candidates = true;
        let remembers =
            matches!(method, Method::MultiNodeConsolidation | Method::SingleNodeConsolidation);
        let state = if remembers {
            fingerprint(*print.get_or_init(|| state_print(survey.view)), &candidates)
        } else {
            String::new()
        };
        if remembers && outcome.memory.is_quiet(method, &state, survey.view.now) {
            for candidate in &candidates {
                outcome.note_left(
                    method,
                    vec![crate::candidates::Left {
                        at: candidate.at,
                        why: "nothing was found for it, and nothing has changed since".into(),
                    }],
                );
            }
            continue;
        }
        let mut allowances = Allowances::new(survey.view, method.reason());
        outcome.measures.extend(allowances.measures());
        outcome.notices.extend(allowances.notices());
        let pools: BTreeSet<String> = candidates.iter().map(|it| it.pool.clone()).collect();
        let found = match method {
            Method::Emptiness => methods::emptiness(survey, candidates, &mut allowances),
            Method::StaticDrift => methods::static_drift(survey, candidates, &allowances, template),
            Method::Drift => {
                methods::drift(survey, candidates, &allowances, simulator, watch, search.as_ref())
            }
            Method::MultiNodeConsolidation => methods::multi_node(
                survey,
                candidates,
                &mut allowances,
                simulator,
                watch,
                rules,
                search.as_ref(),
            ),
            Method::SingleNodeConsolidation => methods::single_node(
                survey,
                candidates,
                &outcome.memory.unseen_pools.clone(),
                &allowances,
                simulator,
                watch,
                rules,
                search.as_ref(),
            ),
        };
        let started = search.map_or(survey.view.now, |it| it.started);
        if outcome.take(method, found, &pools, &state, survey.view.now, started) {
            // What was started meanwhile does not make the search begin anew.
            outcome.memory.search = outcome.memory.search.take().or(stopped);
            return outcome;
        }
    }
    outcome
}

impl Outcome {
    fn note_left(&mut self, method: Method, left: Vec<crate::candidates::Left>) {
        for it in left {
            self.left.entry(it.at).or_default().push((method, it.why));
        }
    }

    /// Takes over what a method found; returns whether the pass is over.
    fn take(
        &mut self,
        method: Method,
        found: Found,
        pools: &BTreeSet<String>,
        state: &str,
        now: Timestamp,
        started: Timestamp,
    ) -> bool {
        let Found {
            commands,
            left,
            notices,
            measures,
            constrained,
            stopped_at,
            halving,
            timed_out,
            seen_pools,
            error,
        } = found;
        self.notices.extend(notices);
        self.measures.extend(measures);
        self.note_left(method, left);
        self.constrained |= constrained;
        if let Some(error) = error {
            self.error = Some(error);
            return true;
        }
        if timed_out {
            self.count_timeout(method);
        }
        if !commands.is_empty() {
            self.method = Some(method);
            self.commands = commands;
            return true;
        }
        if let Some(looked_at) = stopped_at {
            self.memory.search = Some(Search { method, started, looked_at, halving });
            self.unfinished = true;
            return true;
        }
        let is_quiet = match method {
            // Its time being up is remembered like an answer.
            Method::MultiNodeConsolidation => timed_out || !constrained,
            Method::SingleNodeConsolidation => {
                self.memory.unseen_pools = pools.difference(&seen_pools).cloned().collect();
                !timed_out && !constrained
            }
            Method::Emptiness | Method::StaticDrift | Method::Drift => false,
        };
        if is_quiet {
            self.memory.remember_quiet(method, state.to_owned(), now);
        }
        false
    }

    fn count_timeout(&mut self, method: Method) {
        self.measures.push(Measure::count(
            "karpenter_voluntary_disruption_consolidation_timeouts_total",
            1.0,
            &[("consolidation_type", method.consolidation_type())],
        ));
    }
}
