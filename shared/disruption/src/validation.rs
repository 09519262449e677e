//! Looking again, 15 s after a command was found, whether it still is right (lifecycle 24).

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use crate::{
    allowance::Allowances,
    candidates::{Candidate, DEDUPE, Survey},
    command::{Command, CommandCandidate, Method},
    notices::{Measure, Notice, Subject},
    simulation::{Purpose, SimulationError, Simulator},
};

/// Between finding a command and starting it. Source: Karpenter 1.x.
pub const VALIDATION_WAIT: SignedDuration = SignedDuration::from_secs(15);

/// Why a command is not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A candidate is no candidate any more.
    Churn,
    Budget,
    /// The pods would go elsewhere by now.
    Scheduling,
}

impl Failure {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Churn => "churn",
            Self::Budget => "budget",
            Self::Scheduling => "scheduling",
        }
    }
}

/// The verdict on a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Validation {
    /// What may be started; an emptiness command may have shrunk.
    pub command: Option<Command>,
    pub failure: Option<(Failure, String)>,
    pub notices: Vec<Notice>,
    pub measures: Vec<Measure>,
    /// An error, which ends the pass.
    pub error: Option<String>,
}

/// Looks at `command` again with a fresh survey.
pub fn validate(
    command: &Command,
    survey: &Survey<'_>,
    simulator: &mut dyn Simulator,
) -> Validation {
    match command.method {
        Method::Emptiness => emptiness(command, survey),
        Method::MultiNodeConsolidation | Method::SingleNodeConsolidation => {
            consolidation(command, survey, simulator)
        }
        // Drift starts at once.
        Method::StaticDrift | Method::Drift => {
            Validation { command: Some(command.clone()), ..Validation::default() }
        }
    }
}

fn emptiness(command: &Command, survey: &Survey<'_>) -> Validation {
    let mut result = Validation::default();
    let now_empty = by_claim(survey, command.method);
    let still: Vec<&CommandCandidate> = command
        .candidates
        .iter()
        .filter(|it| now_empty.contains_key(it.claim_uid.as_str()))
        .collect();
    if still.is_empty() {
        result.fail(command, Failure::Churn, "no node is empty any more", command.candidates.len());
        return result;
    }
    let mut allowances = Allowances::new(survey.view, command.reason());
    let mut kept = Vec::new();
    let mut n_dropped = 0;
    for candidate in still {
        if allowances.take(&candidate.pool) {
            kept.push(candidate.clone());
        } else {
            n_dropped += 1;
        }
    }
    if n_dropped > 0 {
        result.count_failures(command.method, n_dropped);
    }
    if kept.is_empty() {
        result.fail(command, Failure::Budget, &allowances.blocked_text(), 0);
        return result;
    }
    let saving = kept.iter().map(|it| it.price).sum();
    result.command = Some(Command { candidates: kept, saving, ..command.clone() });
    result
}

fn consolidation(
    command: &Command,
    survey: &Survey<'_>,
    simulator: &mut dyn Simulator,
) -> Validation {
    let mut result = Validation::default();
    let n = command.candidates.len();
    let candidates = by_claim(survey, command.method);
    let mut at = Vec::with_capacity(n);
    for candidate in &command.candidates {
        let Some(it) = candidates.get(candidate.claim_uid.as_str()) else {
            let why = format!("node {} cannot be disrupted any more", candidate.node);
            result.fail(command, Failure::Churn, &why, n);
            result.reject(command, survey);
            return result;
        };
        at.push(it.at);
    }
    let mut allowances = Allowances::new(survey.view, command.reason());
    if !command.candidates.iter().all(|it| allowances.take(&it.pool)) {
        result.fail(command, Failure::Budget, &allowances.blocked_text(), n);
        result.reject(command, survey);
        return result;
    }
    let simulation = match simulator.simulate(&at, Purpose::Consolidation) {
        Ok(it) => it,
        Err(SimulationError::Failed(why)) => {
            result.error = Some(why);
            return result;
        }
        Err(error) => {
            result.error = Some(error.to_string());
            return result;
        }
    };
    let problem = if let Some(objection) = simulation.objection() {
        Some(objection)
    } else {
        match (simulation.new_claims.as_slice(), command.replacements.as_slice()) {
            ([], []) => None,
            ([], _) => Some("no replacement is needed any more".to_owned()),
            ([_], []) => Some("a replacement is needed by now".to_owned()),
            ([new], [old, ..]) => {
                let offered: BTreeSet<&str> =
                    new.instance_types.iter().map(|it| it.name.as_str()).collect();
                old.instance_types
                    .iter()
                    .find(|it| !offered.contains(it.as_str()))
                    .map(|it| format!("the pods do not fit instance type {it} any more"))
            }
            (more, _) => Some(format!("{} replacements are needed by now", more.len())),
        }
    };
    match problem {
        Some(why) => {
            result.fail(command, Failure::Scheduling, &why, 0);
            result.reject(command, survey);
        }
        None => {
            let pending = simulation.pending();
            let placements = simulation.placements;
            result.command = Some(Command { placements, pending, ..command.clone() });
        }
    }
    result
}

fn by_claim(survey: &Survey<'_>, method: Method) -> BTreeMap<String, Candidate> {
    let uid = |at: usize| survey.view.nodes.get(at)?.claim_uid().map(ToString::to_string);
    survey.collect(method).candidates.into_iter().filter_map(|it| Some((uid(it.at)?, it))).collect()
}

impl Validation {
    fn fail(&mut self, command: &Command, failure: Failure, why: &str, n_failed: usize) {
        self.failure = Some((failure, why.to_owned()));
        if n_failed > 0 {
            self.count_failures(command.method, n_failed);
        }
    }

    fn count_failures(&mut self, method: Method, n: usize) {
        self.measures.push(Measure::count(
            "karpenter_voluntary_disruption_failed_validations_total",
            n as f64,
            &[("consolidation_type", method.consolidation_type())],
        ));
    }

    /// `ConsolidationRejected` on every candidate that is still there.
    ///
    /// DIFFERENCE: Karpenter says nothing when it was a command of several nodes.
    fn reject(&mut self, command: &Command, survey: &Survey<'_>) {
        let reason = self.failure.as_ref().map_or("unknown", |(failure, _)| failure.as_str());
        for candidate in &command.candidates {
            let Some(at) = survey
                .view
                .nodes
                .iter()
                .position(|it| it.claim_uid() == Some(&candidate.claim_uid))
            else {
                continue;
            };
            let text = command.text_for(&candidate.node);
            self.notices.push(Notice::normal(
                Subject::Node(at),
                "ConsolidationRejected",
                format!(
                    "Consolidation rejected: {text}, reason: {reason} (savings: ${:.2})",
                    command.saving
                ),
                DEDUPE,
            ));
        }
    }
}
