//! What a method asks the scheduler: would everything still find a place without these nodes (lifecycle 18)?

use std::sync::Arc;

use spokeshave_model::{InstanceType, NodeClaim, Requirements};
use spokeshave_scheduling::PlannedClaim;

use crate::{
    command::{MOST_PENDING, Pending, Placement},
    seed::Seed,
};

/// Which rules a simulation follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Drift,
    /// Nodes that were filled a moment ago take no moved pods.
    Consolidation,
}

/// The object of a claim, made when it is asked for: most simulations come to nothing.
#[derive(Clone, Debug)]
pub enum ClaimObject {
    Made(Box<NodeClaim>),
    /// And what is drawn from for labels that only have to exist.
    Planned(Arc<PlannedClaim>, Seed),
}

impl ClaimObject {
    pub fn made(&self) -> NodeClaim {
        match self {
            Self::Made(claim) => NodeClaim::clone(claim),
            Self::Planned(planned, seed) => {
                let mut seed = seed.clone();
                planned.to_node_claim(|from, to| seed.draw(from, to))
            }
        }
    }
}

impl Default for ClaimObject {
    fn default() -> Self {
        Self::Made(Box::default())
    }
}

impl PartialEq for ClaimObject {
    fn eq(&self, other: &Self) -> bool {
        self.made() == other.made()
    }
}

/// A claim that would have to be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewClaim {
    pub pool: String,
    pub requirements: Requirements,
    /// Types that fit, cheapest first, at most 600.
    pub instance_types: Arc<[Arc<InstanceType>]>,
    /// The object that would be created; the requirements of instance type and capacity type are written anew
    /// from the fields above when the list has been filtered.
    pub claim: ClaimObject,
}

impl NewClaim {
    /// The same without types.
    pub(crate) fn like(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            requirements: self.requirements.clone(),
            instance_types: Arc::default(),
            claim: self.claim.clone(),
        }
    }
}

/// A pod that found no place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unplaced {
    /// `namespace/name`.
    pub pod: String,
    pub error: String,
    /// It was pending before: it does not count against the move.
    pub was_pending: bool,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Simulation {
    /// Of several, [`Purpose::Consolidation`] is told nothing but how many there are.
    pub new_claims: Vec<NewClaim>,
    /// Sorted by pod.
    pub unplaced: Vec<Unplaced>,
    pub placements: Vec<Placement>,
}

/// How many unplaced pods an event names. Source: Karpenter 1.x.
const NAMED_PODS: usize = 5;

impl Simulation {
    /// The event's text when pods that run now would not run any more; `None` when all found a place.
    pub fn objection(&self) -> Option<String> {
        let bad: Vec<&Unplaced> = self.unplaced.iter().filter(|it| !it.was_pending).collect();
        if bad.is_empty() {
            return None;
        }
        let named: Vec<String> =
            bad.iter().take(NAMED_PODS).map(|it| format!("{} => {}", it.pod, it.error)).collect();
        let mut text = format!("Not all pods would schedule, {}", named.join(" "));
        if bad.len() >= NAMED_PODS {
            text.push_str(&format!(" and {} other(s)", bad.len() - NAMED_PODS));
        }
        Some(text)
    }

    /// Pods that waited before and find no place, the first few.
    pub(crate) fn pending(&self) -> Vec<Pending> {
        let waiting = self.unplaced.iter().filter(|it| it.was_pending);
        waiting
            .take(MOST_PENDING)
            .map(|it| Pending { pod: it.pod.clone(), error: it.error.clone() })
            .collect()
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// A candidate is on its way out already.
    #[error("candidate is deleting")]
    CandidateDeleting,
    /// The search has used up its time; go on later.
    #[error("out of time")]
    OutOfTime,
    /// The scheduler cannot work.
    #[error("{0}")]
    Failed(String),
}

/// Places pods as if some nodes were gone.
pub trait Simulator {
    /// `without` are positions in the view's nodes.
    ///
    /// # Errors
    /// See [`SimulationError`].
    fn simulate(
        &mut self,
        without: &[usize],
        purpose: Purpose,
    ) -> Result<Simulation, SimulationError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // lifecycle 18: the text for the first five
    fn names_at_most_five_pods() {
        let simulation = |n: usize| Simulation {
            unplaced: (0..n)
                .map(|i| Unplaced {
                    pod: format!("a/p{i}"),
                    error: "no".into(),
                    was_pending: false,
                })
                .chain([Unplaced { pod: "a/old".into(), error: "never".into(), was_pending: true }])
                .collect(),
            ..Simulation::default()
        };
        for (n, expected) in [
            (0, None),
            (1, Some("Not all pods would schedule, a/p0 => no")),
            (
                5,
                Some(
                    "Not all pods would schedule, a/p0 => no a/p1 => no a/p2 => no a/p3 => no a/p4 => no and 0 other(s)",
                ),
            ),
            (
                7,
                Some(
                    "Not all pods would schedule, a/p0 => no a/p1 => no a/p2 => no a/p3 => no a/p4 => no and 2 other(s)",
                ),
            ),
        ] {
            assert_eq!(simulation(n).objection().as_deref(), expected, "{n}");
        }
    }
}
