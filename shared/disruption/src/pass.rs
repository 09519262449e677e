//! One pass: the methods in their order, until one of them has something to do (lifecycle 13).

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use crate::{
    allowance::Allowances,
    balanced,
    candidates::Survey,
    command::{Command, Method},
    gauges::gauges,
    memory::{Memory, Search, fingerprint},
    methods::{self, Found, Rules, Stopwatch},
    notices::{Measure, Notice},
    simulation::{NewClaim, Simulator},
};

/// A single-node search is given up after this time. Source: Karpenter 1.x.
pub const SINGLE_TIME_LIMIT: SignedDuration = SignedDuration::from_mins(3);

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
    for method in Method::ALL.into_iter().filter(|it| *it >= first) {
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
        let state = if remembers { fingerprint(survey.view, &candidates) } else { String::new() };
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
        let skip = outcome.memory.search_of(method).map_or(0, |it| it.looked_at);
        let found = match method {
            Method::Emptiness => methods::emptiness(survey, candidates, &mut allowances),
            Method::StaticDrift => methods::static_drift(survey, candidates, &allowances, template),
            Method::Drift => {
                methods::drift(survey, candidates, &allowances, simulator, watch, skip)
            }
            Method::MultiNodeConsolidation => {
                methods::multi_node(survey, candidates, &mut allowances, simulator, watch, rules)
            }
            Method::SingleNodeConsolidation => methods::single_node(
                survey,
                candidates,
                &outcome.memory.unseen_pools.clone(),
                &allowances,
                simulator,
                watch,
                rules,
                skip,
            ),
        };
        if outcome.take(method, found, &pools, &state, survey.view.now) {
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
        now: jiff::Timestamp,
    ) -> bool {
        let Found { commands, left, notices, measures, constrained, stopped_at, seen_pools, error } =
            found;
        self.notices.extend(notices);
        self.measures.extend(measures);
        self.note_left(method, left);
        self.constrained |= constrained;
        if let Some(error) = error {
            self.error = Some(error);
            return true;
        }
        let started = self.memory.search_of(method).map_or(now, |it| it.started);
        if self.memory.search_of(method).is_some() {
            self.memory.search = None;
        }
        if !commands.is_empty() {
            self.method = Some(method);
            self.commands = commands;
            if method == Method::MultiNodeConsolidation && stopped_at.is_some() {
                self.count_timeout(method);
            }
            return true;
        }
        match (method, stopped_at) {
            (Method::MultiNodeConsolidation, Some(_)) => {
                self.count_timeout(method);
                self.memory.remember_quiet(method, state.to_owned(), now);
            }
            (Method::SingleNodeConsolidation, Some(_))
                if now.duration_since(started) >= SINGLE_TIME_LIMIT =>
            {
                self.count_timeout(method);
                self.memory.unseen_pools = pools.difference(&seen_pools).cloned().collect();
            }
            (_, Some(looked_at)) => {
                self.memory.search = Some(Search { method, started, looked_at });
                self.unfinished = true;
                return true;
            }
            (Method::MultiNodeConsolidation, None) if !constrained => {
                self.memory.remember_quiet(method, state.to_owned(), now);
            }
            (Method::SingleNodeConsolidation, None) => {
                self.memory.unseen_pools = pools.difference(&seen_pools).cloned().collect();
                if !constrained {
                    self.memory.remember_quiet(method, state.to_owned(), now);
                }
            }
            _ => {}
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
