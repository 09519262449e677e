//! What each method may choose from, and what it says about the rest (lifecycle 14).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{
    CapacityType, InstanceType, NodeClaim, labels,
    pod_classes::{DoNotDisrupt, do_not_disrupt, is_active},
};

use crate::{
    cluster::{ConsolidateAfter, Policy, View, capacity_type},
    command::Method,
    eligibility::{Facts, assess},
    notices::{Notice, Subject},
};

/// A node that a method may take.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Position in [`View::nodes`].
    pub at: usize,
    /// The Node's name.
    pub name: String,
    pub pool: String,
    pub policy: Policy,
    pub instance_type: Option<Arc<InstanceType>>,
    pub capacity_type: Option<CapacityType>,
    pub zone: Option<String>,
    /// Dollars per hour, 0 when unknown.
    pub price: f64,
    pub reschedule_cost: f64,
    pub n_reschedulable: usize,
    /// When it was found drifted.
    pub drifted_since: Option<Timestamp>,
    pub created: Option<Timestamp>,
}

impl Candidate {
    /// Dollars per hour saved per unit of disruption.
    pub fn savings_ratio(&self) -> f64 {
        self.price / self.reschedule_cost
    }
}

/// Why a node is not among a method's candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Position in [`View::nodes`].
    pub at: usize,
    pub why: String,
}

/// What a method found when it collected its candidates.
#[derive(Clone, Debug, Default)]
pub struct Collection {
    pub candidates: Vec<Candidate>,
    pub left: Vec<Left>,
    pub notices: Vec<Notice>,
}

/// A snapshot with what all methods need to know of its nodes.
#[derive(Clone, Debug)]
pub struct Survey<'a> {
    pub view: &'a View,
    pub facts: Vec<Facts>,
}

/// Unless events say otherwise, an equal one is not repeated for this long.
pub const DEDUPE: SignedDuration = SignedDuration::from_mins(2);
/// `Unconsolidatable` is repeated only after this long.
pub const DEDUPE_UNCONSOLIDATABLE: SignedDuration = SignedDuration::from_mins(15);

impl<'a> Survey<'a> {
    pub fn new(view: &'a View) -> Self {
        Self { view, facts: assess(view) }
    }

    /// The candidates of `method`, in the order of the view.
    pub fn collect(&self, method: Method) -> Collection {
        let mut found = Collection::default();
        for facts in &self.facts {
            if let Some(blocker) = facts.blocker(method.class()) {
                let why = blocker.to_string();
                if blocker.is_published() {
                    found.notices.push(Notice::normal(
                        Subject::Node(facts.at),
                        "DisruptionBlocked",
                        why.clone(),
                        DEDUPE,
                    ));
                }
                found.left.push(Left { at: facts.at, why });
                continue;
            }
            match self.filter(method, facts) {
                Ok(candidate) => found.candidates.push(candidate),
                Err(Rejection { why, published }) => {
                    if published {
                        found.notices.push(Notice::normal(
                            Subject::Node(facts.at),
                            "Unconsolidatable",
                            why.clone(),
                            DEDUPE_UNCONSOLIDATABLE,
                        ));
                    }
                    found.left.push(Left { at: facts.at, why });
                }
            }
        }
        found
    }

    fn filter(&self, method: Method, facts: &Facts) -> Result<Candidate, Rejection> {
        let missing = || Rejection::silent("not found");
        let node = self.view.nodes.get(facts.at).ok_or_else(missing)?;
        let claim = node.claim.as_ref().ok_or_else(missing)?;
        let pool = self.view.pools.get(node.pool()).ok_or_else(missing)?;
        let claim_is = |condition| claim.is_true(condition);
        let disabled = || {
            let why = format!("NodePool \"{}\" has consolidation disabled", node.pool());
            Rejection::published(why)
        };
        let quiet = || Rejection::silent("condition Consolidatable is not True");
        match method {
            Method::Emptiness => {
                if pool.nodepool.is_static() {
                    return Err(Rejection::silent("its NodePool is static"));
                }
                if pool.consolidate_after() == ConsolidateAfter::Never {
                    return Err(disabled());
                }
                if node.holds_buffer {
                    return Err(Rejection::published(format!(
                        "Node \"{}\" has buffer pods",
                        node.name()
                    )));
                }
                if !facts.is_empty() {
                    return Err(Rejection::silent("Node is not empty"));
                }
                if !claim_is(NodeClaim::CONSOLIDATABLE) {
                    return Err(quiet());
                }
            }
            Method::StaticDrift | Method::Drift => {
                if pool.nodepool.is_static() != (method == Method::StaticDrift) {
                    return Err(Rejection::silent(if method == Method::Drift {
                        "its NodePool is static"
                    } else {
                        "its NodePool is not static"
                    }));
                }
                if !claim_is(NodeClaim::DRIFTED) {
                    return Err(Rejection::silent("Node is not drifted"));
                }
            }
            Method::MultiNodeConsolidation | Method::SingleNodeConsolidation => {
                if pool.nodepool.is_static() {
                    return Err(Rejection::silent("its NodePool is static"));
                }
                if facts.instance_type.is_none() {
                    let name = node.label(labels::INSTANCE_TYPE).unwrap_or_default();
                    return Err(Rejection::published(format!(
                        "Instance Type \"{name}\" not found"
                    )));
                }
                for key in [labels::CAPACITY_TYPE, labels::ZONE] {
                    if node.label(key).is_none() {
                        return Err(Rejection::published(format!(
                            "Node does not have label \"{key}\""
                        )));
                    }
                }
                if pool.consolidate_after() == ConsolidateAfter::Never {
                    return Err(disabled());
                }
                if facts.is_empty() {
                    return Err(Rejection::silent("Node is empty"));
                }
                if pool.policy() == Policy::WhenEmpty {
                    return Err(Rejection::published(format!(
                        "NodePool \"{}\" has consolidation policy WhenEmpty, but node is not empty",
                        node.pool()
                    )));
                }
                if !claim_is(NodeClaim::CONSOLIDATABLE) {
                    return Err(quiet());
                }
            }
        }
        // Last: most nodes are no candidates of most methods.
        Ok(Candidate {
            at: facts.at,
            name: node.name().to_owned(),
            pool: node.pool().to_owned(),
            policy: pool.policy(),
            instance_type: facts.instance_type.clone(),
            capacity_type: capacity_type(node.label(labels::CAPACITY_TYPE)),
            zone: node.label(labels::ZONE).map(str::to_owned),
            price: facts.price,
            reschedule_cost: facts.reschedule_cost,
            n_reschedulable: facts.n_reschedulable,
            drifted_since: claim
                .condition(NodeClaim::DRIFTED)
                .and_then(|it| it.last_transition_time),
            created: claim.metadata.creation_timestamp,
        })
    }

    /// What users are told about do-not-disrupt annotations of pods (lifecycle 15.2).
    pub fn do_not_disrupt_notices(&self) -> Vec<Notice> {
        let mut notices = Vec::new();
        for node in self.view.nodes.iter().filter(|it| it.claim.is_some()) {
            for pod in node.pods.iter().filter(|it| is_active(it)) {
                let subject = || Subject::Pod(Arc::clone(pod));
                match do_not_disrupt(pod, self.view.now) {
                    DoNotDisrupt::Absent | DoNotDisrupt::Active => {}
                    DoNotDisrupt::Invalid => notices.push(Notice::warning(
                        subject(),
                        "InvalidDoNotDisruptAnnotation",
                        format!(
                            "Invalid {} annotation: {:?} is neither \"true\" nor a positive duration, ignoring annotation",
                            labels::DO_NOT_DISRUPT,
                            pod.metadata.annotation(labels::DO_NOT_DISRUPT).unwrap_or_default()
                        ),
                        DEDUPE,
                    )),
                    DoNotDisrupt::Until(end) => notices.push(Notice::normal(
                        subject(),
                        "DoNotDisruptUntil",
                        format!("The {} grace period will elapse at {end}", labels::DO_NOT_DISRUPT),
                        DEDUPE,
                    )),
                    DoNotDisrupt::Elapsed => notices.push(Notice::normal(
                        subject(),
                        "DoNotDisruptGracePeriodElapsed",
                        format!(
                            "The {} grace period has elapsed, the pod can be disrupted again",
                            labels::DO_NOT_DISRUPT
                        ),
                        DEDUPE,
                    )),
                }
            }
        }
        notices
    }
}

/// Most money per unit of disruption first.
///
/// DIFFERENCE: Karpenter leaves equal ratios in no defined order; here the older claim comes first, then the name.
pub fn sort_by_savings(candidates: &mut [Candidate]) {
    candidates.sort_by(|a, b| {
        b.savings_ratio()
            .total_cmp(&a.savings_ratio())
            .then_with(|| a.created.cmp(&b.created))
            .then_with(|| a.name.cmp(&b.name))
    });
}

struct Rejection {
    why: String,
    published: bool,
}

impl Rejection {
    fn published(why: String) -> Self {
        Self { why, published: true }
    }

    fn silent(why: &str) -> Self {
        Self { why: why.to_owned(), published: false }
    }
}
