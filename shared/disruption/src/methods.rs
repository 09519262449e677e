//! The five ways of finding commands, each as Karpenter walks it (lifecycle 19, 21 and 22).

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_model::Uid;

use crate::{
    allowance::Allowances,
    balanced::{self, Totals, Verdict},
    candidates::{Candidate, DEDUPE, DEDUPE_UNCONSOLIDATABLE, Left, Survey, sort_by_savings},
    command::{Command, Method, describe},
    consolidation::{self, Decision, decide, keep_unlike_candidates},
    memory::{Halving, Search},
    notices::{Measure, Notice, Subject},
    simulation::{NewClaim, Purpose, Simulation, SimulationError, Simulator},
    statics::{StaticState, node_limit},
};

/// Multi-node consolidation looks at so many candidates, and one more. Source: Karpenter 1.x.
pub const MULTI_MAX: usize = 100;

/// So many nodes that a budget or a failure holds are told so in one pass, those that would be next: events are no place
/// for a list of all nodes.
const MOST_TOLD: usize = 20;

/// Tells a search when to stop.
pub trait Stopwatch {
    /// This run has used up its time: store where it is, and go on in the next one.
    fn is_out_of_time(&mut self) -> bool;
}

/// A search without limit.
pub struct NoLimit;

impl Stopwatch for NoLimit {
    fn is_out_of_time(&mut self) -> bool {
        false
    }
}

/// What a method came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    pub commands: Vec<Command>,
    /// Nodes it looked at and left, and why.
    pub left: Vec<Left>,
    pub notices: Vec<Notice>,
    pub measures: Vec<Measure>,
    /// A budget kept it from looking at everything.
    pub constrained: bool,
    /// Its slice of time was used up after so many candidates.
    pub stopped_at: Option<usize>,
    /// Where multi-node consolidation was when its slice was used up.
    pub halving: Option<Halving>,
    /// It has taken as long as it may and was given up.
    pub timed_out: bool,
    /// Pools of which it has looked at a candidate.
    pub seen_pools: BTreeSet<String>,
    /// An error that ends the pass.
    pub error: Option<String>,
}

impl Found {
    fn leave(&mut self, candidate: &Candidate, why: impl Into<String>) {
        self.left.push(Left { at: candidate.at, why: why.into() });
    }

    /// Leaves it for as long as something else holds it back, and tells its owner what, if few have been told by now.
    ///
    /// DIFFERENCE: Karpenter says so on the NodePool alone, and only when its budgets allow nothing at all.
    fn hold(&mut self, candidate: &Candidate, why: &str) {
        if self.notices.len() < MOST_TOLD {
            self.refuse(candidate, "DisruptionBlocked", why);
        } else {
            self.leave(candidate, why);
        }
    }

    /// Leaves it and tells its owner why.
    fn refuse(&mut self, candidate: &Candidate, reason: &'static str, why: &str) {
        let dedupe = if reason == "DisruptionBlocked" { DEDUPE } else { DEDUPE_UNCONSOLIDATABLE };
        self.notices.push(Notice::normal(Subject::Node(candidate.at), reason, why, dedupe));
        self.leave(candidate, why);
    }
}

/// All empty nodes that budgets allow, in one command.
pub fn emptiness(
    survey: &Survey<'_>,
    mut candidates: Vec<Candidate>,
    allowances: &mut Allowances,
) -> Found {
    let mut found = Found::default();
    sort_by_savings(&mut candidates);
    let mut taken = Vec::new();
    for candidate in &candidates {
        if allowances.take(&candidate.pool) {
            taken.push(candidate);
        } else {
            found.constrained = true;
            found.hold(candidate, &allowances.blocked_text());
        }
    }
    if !taken.is_empty() {
        found.commands.push(consolidation::command(
            survey.view,
            Method::Emptiness,
            &taken,
            &[],
            &Simulation::default(),
        ));
    }
    found
}

/// One command with one replacement for each drifted node of a static pool, as far as budget and limit go.
///
/// `template` makes the claim of a pool.
pub fn static_drift(
    survey: &Survey<'_>,
    mut candidates: Vec<Candidate>,
    allowances: &Allowances,
    template: &dyn Fn(&str) -> Option<NewClaim>,
) -> Found {
    let mut found = Found::default();
    candidates.sort_by(|a, b| a.drifted_since.cmp(&b.drifted_since).then(a.name.cmp(&b.name)));
    let mut by_pool: BTreeMap<String, Vec<Candidate>> = BTreeMap::new();
    for candidate in candidates {
        by_pool.entry(candidate.pool.clone()).or_default().push(candidate);
    }
    for (name, candidates) in by_pool {
        let Some(pool) = survey.view.pools.get(&name) else { continue };
        let remaining = allowances.remaining(&name);
        if remaining == 0 {
            found.constrained = true;
            for candidate in &candidates {
                found.hold(candidate, &allowances.blocked_text());
            }
            continue;
        }
        let state = StaticState::of(survey.view, &name);
        let replicas = pool.nodepool.spec.replicas.unwrap_or_default();
        if state.active + state.pending_disruption > replicas {
            for candidate in &candidates {
                found.leave(candidate, format!("NodePool \"{name}\" is being scaled down first"));
            }
            continue;
        }
        let want = remaining.min(i64::try_from(candidates.len()).unwrap_or(i64::MAX));
        let granted = usize::try_from(state.grant(node_limit(pool), want)).unwrap_or(0);
        for (n, candidate) in candidates.iter().enumerate() {
            if n >= granted {
                let why = if i64::try_from(n).is_ok_and(|n| n >= remaining) {
                    found.constrained = true;
                    allowances.blocked_text()
                } else {
                    format!("node limits have been exhausted for nodepool \"{name}\"")
                };
                found.leave(candidate, why);
                continue;
            }
            let Some(claim) = template(&name) else {
                found.leave(candidate, format!("NodePool not found (NodePool={name})"));
                continue;
            };
            found.commands.push(consolidation::command(
                survey.view,
                Method::StaticDrift,
                &[candidate],
                &[&claim],
                &Simulation::default(),
            ));
        }
    }
    found
}

/// The one drifted node that has waited longest and can be replaced; nodes without pods to move come first.
pub fn drift(
    survey: &Survey<'_>,
    mut candidates: Vec<Candidate>,
    allowances: &Allowances,
    simulator: &mut dyn Simulator,
    watch: &mut dyn Stopwatch,
    search: Option<&Search>,
) -> Found {
    let mut found = Found::default();
    let skip = search.map_or(0, |it| it.looked_at);
    candidates.sort_by(|a, b| {
        (a.n_reschedulable > 0, a.drifted_since, &a.name).cmp(&(
            b.n_reschedulable > 0,
            b.drifted_since,
            &b.name,
        ))
    });
    for (n, candidate) in candidates.iter().enumerate().skip(skip) {
        if allowances.remaining(&candidate.pool) == 0 {
            found.constrained = true;
            found.hold(candidate, &allowances.blocked_text());
            continue;
        }
        if let Some(until) = survey.view.drift_held.get(&candidate.pool)
            && survey.view.now < *until
        {
            found.hold(
                candidate,
                &format!(
                    "the last replacement for drift of NodePool \"{}\" failed: tried again from {until} on",
                    candidate.pool
                ),
            );
            continue;
        }
        if watch.is_out_of_time() {
            found.stopped_at = Some(n);
            return found;
        }
        let simulation = match simulator.simulate(&[candidate.at], Purpose::Drift) {
            Ok(it) => it,
            Err(SimulationError::CandidateDeleting) => {
                found.leave(candidate, SimulationError::CandidateDeleting.to_string());
                continue;
            }
            Err(SimulationError::OutOfTime) => {
                found.stopped_at = Some(stop(n, skip));
                return found;
            }
            Err(SimulationError::Failed(why)) => {
                found.error = Some(why);
                return found;
            }
        };
        if let Some(objection) = simulation.objection() {
            found.refuse(candidate, "DisruptionBlocked", &objection);
            continue;
        }
        let claims: Vec<&NewClaim> = simulation.new_claims.iter().collect();
        found.commands.push(consolidation::command(
            survey.view,
            Method::Drift,
            &[candidate],
            &claims,
            &simulation,
        ));
        for later in candidates.iter().skip(n + 1) {
            found.leave(later, "one drifted node is handled at a time");
        }
        return found;
    }
    found
}

/// What consolidation is allowed to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules<'a> {
    pub spot_to_spot: bool,
    pub totals: Option<&'a BTreeMap<String, Totals>>,
}

/// A try of some candidates together.
enum Attempt {
    Works(Box<Command>),
    Fails,
}

/// Where a search goes on that ran out of time with the candidate at `n`: with that one, unless it had the whole slice
/// to itself already.
fn stop(n: usize, skip: usize) -> usize {
    if n == skip { n + 1 } else { n }
}

/// The longest run of candidates, best first, that can go together; found by halving.
///
/// `search` is where the run before stopped. Once it has taken as long as it may, the best that it has is what it is.
pub fn multi_node(
    survey: &Survey<'_>,
    mut candidates: Vec<Candidate>,
    allowances: &mut Allowances,
    simulator: &mut dyn Simulator,
    watch: &mut dyn Stopwatch,
    rules: Rules<'_>,
    search: Option<&Search>,
) -> Found {
    let mut found = Found::default();
    sort_by_savings(&mut candidates);
    let is_over = search.is_some_and(|it| it.is_over(survey.view.now));
    let stored = search.and_then(|it| it.halving.as_ref());
    let resumed = stored.and_then(|it| resume(survey, it, &candidates, &mut allowances.clone()));
    let first: Vec<&Candidate> = resumed.clone().unwrap_or_default();
    let mut usable = Vec::new();
    let is_first = |candidate: &Candidate| first.iter().any(|it| it.at == candidate.at);
    for candidate in
        first.iter().copied().chain(candidates.iter().filter(|candidate| !is_first(candidate)))
    {
        if allowances.take(&candidate.pool) {
            usable.push(candidate);
        } else {
            found.constrained = true;
            found.hold(candidate, &allowances.blocked_text());
        }
    }
    if usable.len() < 2 {
        return found;
    }
    let mut it = match (stored, resumed) {
        (Some(stored), Some(_)) => stored.clone(),
        _ => Halving {
            claims: usable.iter().take(MULTI_MAX + 1).map(|it| claim_of(survey, it)).collect(),
            low: 1,
            high: if usable.len() <= MULTI_MAX { usable.len() - 1 } else { MULTI_MAX },
            best: None,
        },
    };
    found.timed_out = is_over;
    while it.low <= it.high && !is_over {
        let middle = usize::midpoint(it.low, it.high);
        let prefix = usable.get(..=middle).unwrap_or(&usable);
        let attempt = if watch.is_out_of_time() {
            Err(SimulationError::OutOfTime)
        } else {
            try_together(survey, prefix, simulator, rules, &mut found)
        };
        match attempt {
            Ok(Attempt::Works(command)) => {
                it.best = Some(*command);
                it.low = middle + 1;
            }
            Ok(Attempt::Fails) | Err(SimulationError::CandidateDeleting) => it.high = middle - 1,
            Err(SimulationError::OutOfTime) => {
                found.stopped_at = Some(it.low);
                found.halving = Some(it);
                return found;
            }
            Err(SimulationError::Failed(why)) => {
                found.error = Some(why);
                return found;
            }
        }
    }
    if let Some(command) = it.best {
        let taken = usable.get(..command.candidates.len()).unwrap_or(&usable);
        let verdicts = judge(taken, command.saving, rules);
        found.measures.extend(move_measures(survey, &command.pools(), &verdicts, true));
        for verdict in verdicts.iter().filter(|it| it.approved) {
            found.notices.push(Notice::normal(
                Subject::NodePool(verdict.pool.clone()),
                "ConsolidationApproved",
                verdict.text(),
                DEDUPE,
            ));
        }
        found.commands.push(command);
    }
    found
}

/// The candidates of a stored search in its order, as long as all still are candidates and budgets let them go.
fn resume<'a>(
    survey: &Survey<'_>,
    stored: &Halving,
    candidates: &'a [Candidate],
    allowances: &mut Allowances,
) -> Option<Vec<&'a Candidate>> {
    let by_claim: BTreeMap<Uid, &Candidate> =
        candidates.iter().map(|it| (claim_of(survey, it), it)).collect();
    let all: Option<Vec<&Candidate>> =
        stored.claims.iter().map(|it| by_claim.get(it).copied()).collect();
    all.filter(|all| all.len() > stored.high)
        .filter(|all| all.iter().all(|it| allowances.take(&it.pool)))
}

fn claim_of(survey: &Survey<'_>, candidate: &Candidate) -> Uid {
    let node = survey.view.nodes.get(candidate.at);
    node.and_then(|it| it.claim_uid().cloned()).unwrap_or_default()
}

fn judge(candidates: &[&Candidate], saving: f64, rules: Rules<'_>) -> Vec<Verdict> {
    rules.totals.map(|totals| balanced::judge(candidates, saving, totals)).unwrap_or_default()
}

fn try_together(
    survey: &Survey<'_>,
    candidates: &[&Candidate],
    simulator: &mut dyn Simulator,
    rules: Rules<'_>,
    found: &mut Found,
) -> Result<Attempt, SimulationError> {
    let at: Vec<usize> = candidates.iter().map(|it| it.at).collect();
    let simulation = simulator.simulate(&at, Purpose::Consolidation)?;
    let decision = decide(candidates, &simulation, rules.spot_to_spot);
    let mut replacement = match decision {
        Decision::Keep(_) => return Ok(Attempt::Fails),
        Decision::Delete => None,
        Decision::Replace(claim) => Some(claim),
    };
    if let Some(claim) = &mut replacement {
        announce(found, candidates, claim);
        if !keep_unlike_candidates(survey.view, candidates, claim) {
            return Ok(Attempt::Fails);
        }
    }
    let claims: Vec<&NewClaim> = replacement.as_deref().into_iter().collect();
    let command = consolidation::command(
        survey.view,
        Method::MultiNodeConsolidation,
        candidates,
        &claims,
        &simulation,
    );
    if judge(candidates, command.saving, rules).iter().any(|it| !it.approved) {
        return Ok(Attempt::Fails);
    }
    Ok(Attempt::Works(Box::new(command)))
}

/// The event `ConsolidationCandidate` on every candidate of a replacement.
fn announce(found: &mut Found, candidates: &[&Candidate], claim: &NewClaim) {
    let saving = consolidation::estimated_saving(candidates, &[claim]);
    for candidate in candidates {
        let text = describe("replace", &candidate.name, candidates.len(), 1);
        found.notices.push(Notice::normal(
            Subject::Node(candidate.at),
            "ConsolidationCandidate",
            format!("Consolidation candidate: {text} (savings: ${saving:.2})"),
            DEDUPE,
        ));
    }
}

fn refusal(verdict: &Verdict) -> String {
    format!(
        "NodePool \"{}\" has consolidation policy Balanced, score {:.2} < threshold {:.2}",
        verdict.pool,
        verdict.score,
        balanced::THRESHOLD
    )
}

/// The first candidate, best first and pools in turn, that can go or be replaced by something cheaper.
pub fn single_node(
    survey: &Survey<'_>,
    candidates: Vec<Candidate>,
    unseen_pools: &BTreeSet<String>,
    allowances: &Allowances,
    simulator: &mut dyn Simulator,
    watch: &mut dyn Stopwatch,
    rules: Rules<'_>,
    search: Option<&Search>,
) -> Found {
    let mut found = Found::default();
    let ordered = interleave(candidates, unseen_pools);
    let skip = search.map_or(0, |it| it.looked_at);
    found.seen_pools.extend(ordered.iter().take(skip).map(|it| it.pool.clone()));
    if search.is_some_and(|it| it.is_over(survey.view.now)) {
        found.timed_out = true;
        return found;
    }
    for (n, candidate) in ordered.iter().enumerate().skip(skip) {
        if watch.is_out_of_time() {
            found.stopped_at = Some(n);
            return found;
        }
        found.seen_pools.insert(candidate.pool.clone());
        if allowances.remaining(&candidate.pool) == 0 {
            found.constrained = true;
            found.hold(candidate, &allowances.blocked_text());
            continue;
        }
        if rules.totals.is_some_and(|totals| balanced::is_hopeless(candidate, totals)) {
            if let Some(it) = judge(&[candidate], candidate.price, rules).first() {
                found.leave(candidate, refusal(it));
            }
            continue;
        }
        let simulation = match simulator.simulate(&[candidate.at], Purpose::Consolidation) {
            Ok(it) => it,
            Err(SimulationError::OutOfTime) => {
                found.stopped_at = Some(stop(n, skip));
                return found;
            }
            Err(error) => {
                found.leave(candidate, error.to_string());
                continue;
            }
        };
        let replacement = match decide(&[candidate], &simulation, rules.spot_to_spot) {
            Decision::Keep(why) => {
                found.refuse(candidate, "Unconsolidatable", &why);
                continue;
            }
            Decision::Delete => None,
            Decision::Replace(claim) => {
                announce(&mut found, &[candidate], &claim);
                Some(claim)
            }
        };
        let claims: Vec<&NewClaim> = replacement.as_deref().into_iter().collect();
        let command = consolidation::command(
            survey.view,
            Method::SingleNodeConsolidation,
            &[candidate],
            &claims,
            &simulation,
        );
        let verdicts = judge(&[candidate], command.saving, rules);
        let approved = verdicts.iter().all(|it| it.approved);
        found.measures.extend(move_measures(survey, &[&candidate.pool], &verdicts, approved));
        if let Some(it) = verdicts.iter().find(|it| !it.approved) {
            found.leave(candidate, refusal(it));
            continue;
        }
        for verdict in &verdicts {
            found.notices.push(Notice::normal(
                Subject::Node(candidate.at),
                "ConsolidationApproved",
                verdict.text(),
                DEDUPE,
            ));
        }
        found.commands.push(command);
        for later in ordered.iter().skip(n + 1) {
            found.leave(later, "one node is consolidated at a time");
        }
        return found;
    }
    found
}

/// First candidate of each pool, then second of each, and so on. Pools that the last run did not come to are first.
///
/// DIFFERENCE: Karpenter leaves the order of pools open; here the pool with the best candidate is first.
pub fn interleave(
    mut candidates: Vec<Candidate>,
    unseen_pools: &BTreeSet<String>,
) -> Vec<Candidate> {
    sort_by_savings(&mut candidates);
    let mut order: Vec<String> = Vec::new();
    let mut by_pool: BTreeMap<String, std::collections::VecDeque<Candidate>> = BTreeMap::new();
    for candidate in candidates {
        if !by_pool.contains_key(&candidate.pool) {
            order.push(candidate.pool.clone());
        }
        by_pool.entry(candidate.pool.clone()).or_default().push_back(candidate);
    }
    order.sort_by_key(|pool| !unseen_pools.contains(pool));
    let mut ordered = Vec::new();
    loop {
        let before = ordered.len();
        for pool in &order {
            ordered.extend(by_pool.get_mut(pool).and_then(std::collections::VecDeque::pop_front));
        }
        if ordered.len() == before {
            return ordered;
        }
    }
}

/// `karpenter_consolidation_moves_total` of every pool, and the score of the Balanced ones.
fn move_measures(
    survey: &Survey<'_>,
    pools: &[&str],
    verdicts: &[Verdict],
    approved: bool,
) -> Vec<Measure> {
    let word = |approved: bool| if approved { "approved" } else { "rejected" };
    let policy = |pool: &str| survey.view.pools.get(pool).map_or("", |pool| pool.policy().as_str());
    let mut measures: Vec<Measure> = pools
        .iter()
        .map(|pool| {
            Measure::count(
                "karpenter_consolidation_moves_total",
                1.0,
                &[("decision", word(approved)), ("nodepool", pool), ("policy", policy(pool))],
            )
        })
        .collect();
    measures.extend(verdicts.iter().filter(|it| it.score.is_finite()).map(|it| {
        Measure::gauge(
            "karpenter_consolidation_score",
            it.score,
            &[
                ("decision", word(it.approved)),
                ("nodepool", &it.pool),
                ("policy", policy(&it.pool)),
            ],
        )
    }));
    measures
}
