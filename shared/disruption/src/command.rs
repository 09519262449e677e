//! What a method wants done: candidates to take away and claims to make first.

use std::fmt;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use spokeshave_model::{CapacityType, NodeClaim, Uid, duration::GoDuration};

use crate::{candidates::Candidate, cluster::View, eligibility::Class};

/// Why nodes are disrupted, as budgets spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    Underutilized,
    Empty,
    Drifted,
}

impl Reason {
    /// In the order in which budgets are reported.
    pub const ALL: [Self; 3] = [Self::Underutilized, Self::Empty, Self::Drifted];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Underutilized => "Underutilized",
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
        }
    }

    /// As metric labels spell it.
    pub const fn lower(self) -> &'static str {
        match self {
            Self::Underutilized => "underutilized",
            Self::Empty => "empty",
            Self::Drifted => "drifted",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A way of finding commands. The order is the order of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Method {
    Emptiness,
    StaticDrift,
    Drift,
    MultiNodeConsolidation,
    SingleNodeConsolidation,
}

impl Method {
    /// In the order of a pass.
    pub const ALL: [Self; 5] = [
        Self::Emptiness,
        Self::StaticDrift,
        Self::Drift,
        Self::MultiNodeConsolidation,
        Self::SingleNodeConsolidation,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Emptiness => "Emptiness",
            Self::StaticDrift => "StaticDrift",
            Self::Drift => "Drift",
            Self::MultiNodeConsolidation => "MultiNodeConsolidation",
            Self::SingleNodeConsolidation => "SingleNodeConsolidation",
        }
    }

    pub const fn reason(self) -> Reason {
        match self {
            Self::Emptiness => Reason::Empty,
            Self::StaticDrift | Self::Drift => Reason::Drifted,
            Self::MultiNodeConsolidation | Self::SingleNodeConsolidation => Reason::Underutilized,
        }
    }

    /// The metric label `consolidation_type`.
    pub const fn consolidation_type(self) -> &'static str {
        match self {
            Self::Emptiness => "empty",
            Self::StaticDrift | Self::Drift => "",
            Self::MultiNodeConsolidation => "multi",
            Self::SingleNodeConsolidation => "single",
        }
    }

    pub const fn class(self) -> Class {
        match self {
            Self::StaticDrift | Self::Drift => Class::Eventual,
            _ => Class::Graceful,
        }
    }

    /// A search is given up after this time; `None`: never. Source: Karpenter 1.x.
    pub const fn time_limit(self) -> Option<SignedDuration> {
        match self {
            Self::MultiNodeConsolidation => Some(SignedDuration::from_mins(1)),
            Self::SingleNodeConsolidation => Some(SignedDuration::from_mins(3)),
            Self::Emptiness | Self::StaticDrift | Self::Drift => None,
        }
    }

    /// Whether it asks the scheduler: such methods take time, the others take none.
    pub const fn simulates(self) -> bool {
        !matches!(self, Self::Emptiness | Self::StaticDrift)
    }

    /// Whether its commands are looked at again after [`VALIDATION_WAIT`](crate::VALIDATION_WAIT).
    pub const fn is_validated(self) -> bool {
        matches!(self.class(), Class::Graceful)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A node to take away, with what has to be known of it later.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CommandCandidate {
    pub node: String,
    pub node_uid: Uid,
    pub claim: String,
    pub claim_uid: Uid,
    pub pool: String,
    pub instance_type: String,
    pub capacity_type: String,
    pub zone: String,
    /// Dollars per hour.
    pub price: f64,
    pub reschedule_cost: f64,
    /// Reschedulable pods when it was decided.
    pub n_pods: usize,
    /// `graceful`, `eventual` or `forceful`.
    pub termination_mode: String,
    /// Snake case, empty for drift.
    pub consolidation_policy: String,
}

impl CommandCandidate {
    pub(crate) fn new(view: &View, candidate: &Candidate, method: Method) -> Self {
        let node = view.nodes.get(candidate.at);
        let claim = node.and_then(|it| it.claim.as_ref());
        let policy =
            if method.class() == Class::Graceful { candidate.policy.snake_case() } else { "" };
        Self {
            node: candidate.name.clone(),
            node_uid: node
                .and_then(|it| it.node.as_ref())
                .map(|it| it.metadata.uid.clone())
                .unwrap_or_default(),
            claim: claim.map(|it| it.metadata.name.clone()).unwrap_or_default(),
            claim_uid: claim.map(|it| it.metadata.uid.clone()).unwrap_or_default(),
            pool: candidate.pool.clone(),
            instance_type: candidate
                .instance_type
                .as_ref()
                .map(|it| it.name.clone())
                .or_else(|| node?.label(spokeshave_model::labels::INSTANCE_TYPE).map(str::to_owned))
                .unwrap_or_default(),
            capacity_type: candidate.capacity_type.map_or("", CapacityType::as_str).to_owned(),
            zone: candidate.zone.clone().unwrap_or_default(),
            price: candidate.price,
            reschedule_cost: candidate.reschedule_cost,
            n_pods: candidate.n_reschedulable,
            termination_mode: claim.map_or("graceful", |it| termination_mode(it)).to_owned(),
            consolidation_policy: policy.to_owned(),
        }
    }
}

/// The metric label `termination_mode` of a claim.
pub fn termination_mode(claim: &NodeClaim) -> &'static str {
    match claim.spec.termination_grace_period.as_ref().map(|it| it.get().unwrap_or_default()) {
        None => "graceful",
        Some(it) if it <= SignedDuration::ZERO => "forceful",
        Some(_) => "eventual",
    }
}

/// A claim to make before the candidates go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Replacement {
    pub pool: String,
    /// As it is to be created; the name is chosen when the command is stored.
    pub claim: NodeClaim,
    /// Cheapest first.
    pub instance_types: Vec<String>,
    pub capacity_types: Vec<String>,
    /// The cheapest available offering, in dollars per hour.
    pub price: Option<f64>,
}

/// Pods that are expected to land on a node that stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    pub node: String,
    /// `namespace/name`.
    pub pods: Vec<String>,
}

/// A pod that waits, whatever becomes of the candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pending {
    /// `namespace/name`.
    pub pod: String,
    pub error: String,
}

/// Stored commands stay small: so many waiting pods are noted. The burst of Karpenter's event rate limit.
pub(crate) const MOST_PENDING: usize = 10;

/// Candidates that go together, and what has to be there first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    pub method: Method,
    pub candidates: Vec<CommandCandidate>,
    #[serde(default)]
    pub replacements: Vec<Replacement>,
    /// Estimated dollars per hour saved; negative when the replacement is dearer.
    pub saving: f64,
    /// Where pods go on nodes that stay.
    #[serde(default)]
    pub placements: Vec<Placement>,
    /// Pods that waited for a place before, and still find none.
    #[serde(default)]
    pub pending: Vec<Pending>,
}

impl Command {
    pub fn reason(&self) -> Reason {
        self.method.reason()
    }

    /// The metric label `decision`: `delete` or `replace`.
    pub fn decision(&self) -> &'static str {
        if self.replacements.is_empty() { "delete" } else { "replace" }
    }

    /// As the event on one of its nodes names it.
    pub fn text_for(&self, node: &str) -> String {
        describe(self.decision(), node, self.candidates.len(), self.replacements.len())
    }

    /// Pools of the candidates, sorted, each once.
    pub fn pools(&self) -> Vec<&str> {
        let mut pools: Vec<&str> = self.candidates.iter().map(|it| it.pool.as_str()).collect();
        pools.sort_unstable();
        pools.dedup();
        pools
    }
}

/// `delete: [n]`, `replace: [n] -> [1 replacement]` or `delete: [n] (part of 3-node consolidation)`.
pub fn describe(decision: &str, node: &str, n_candidates: usize, n_replacements: usize) -> String {
    if n_candidates > 1 {
        format!("{decision}: [{node}] (part of {n_candidates}-node consolidation)")
    } else if n_replacements > 0 {
        let plural = if n_replacements == 1 { "" } else { "s" };
        format!("{decision}: [{node}] -> [{n_replacements} replacement{plural}]")
    } else {
        format!("{decision}: [{node}]")
    }
}

/// The longest that a command may wait for its replacements, counted from its start: 80 ms for each of the
/// `n_candidates` of all running commands, at least 10 minutes, at most an hour. Source: Karpenter 1.x.
pub fn time_limit(n_candidates: usize) -> SignedDuration {
    let scaled = SignedDuration::from_millis(
        i64::try_from(n_candidates).unwrap_or(i64::MAX).saturating_mul(80),
    );
    scaled.clamp(SignedDuration::from_mins(10), SignedDuration::from_hours(1))
}

/// For people: `13m20s`.
pub fn time_limit_text(n_candidates: usize) -> String {
    GoDuration(time_limit(n_candidates)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // lifecycle 25.3, case 1
    fn the_deadline_grows_with_what_is_under_way() {
        for (n, text) in [(1, "10m0s"), (10_000, "13m20s"), (40_000, "53m20s"), (80_000, "1h0m0s")]
        {
            assert_eq!(time_limit_text(n), text, "{n}");
        }
    }

    #[test] // lifecycle 32, the two consolidation events
    fn commands_are_described() {
        assert_eq!(
            describe("replace", "ip-10-0-1-5", 1, 1),
            "replace: [ip-10-0-1-5] -> [1 replacement]"
        );
        assert_eq!(describe("delete", "n", 1, 0), "delete: [n]");
        assert_eq!(describe("delete", "n", 3, 0), "delete: [n] (part of 3-node consolidation)");
    }

    #[test] // lifecycle 25.3, case 8
    fn termination_modes() {
        for (period, mode) in
            [(None, "graceful"), (Some("0s"), "forceful"), (Some("1h"), "eventual")]
        {
            let mut claim = NodeClaim::default();
            claim.spec.termination_grace_period =
                period.map(|it| spokeshave_model::duration::PlainDuration(it.into()));
            assert_eq!(termination_mode(&claim), mode);
        }
    }

    #[test]
    fn policies_are_snake_case_in_labels() {
        use crate::cluster::Policy;
        assert_eq!(Policy::WhenEmptyOrUnderutilized.snake_case(), "when_empty_or_underutilized");
    }
}
