//! Which nodes may be disrupted at all, and why the others may not (lifecycle 14).

use std::{fmt, sync::Arc};

use spokeshave_model::{
    InstanceType, ObjectKey,
    core::Pod,
    labels,
    pod_classes::{
        PdbBlock, PodDisruptionBudgets, do_not_disrupt, is_active, is_currently_reschedulable,
        is_reschedulable,
    },
};

use crate::{
    cluster::{StateNode, View, capacity_type},
    costs::{bystander_cost, node_price, reschedule_cost},
};

/// Why a node cannot be disrupted. Its text is the event's; the first three have none in Karpenter and are not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    InCommand,
    Foreign,
    /// Claims of its pool are being launched.
    Launching(String),
    WithoutNode,
    NotInitialized,
    Marked,
    Nominated,
    DoNotDisrupt,
    /// A label is missing.
    Label(&'static str),
    /// The pool is gone or not ours, or nothing can be bought for it.
    NoNodePool(String),
    PodDoNotDisrupt(ObjectKey),
    Pdb(PdbBlock),
}

impl Blocker {
    /// Whether an event tells users about it.
    pub fn is_published(&self) -> bool {
        !matches!(self, Self::InCommand | Self::Foreign | Self::Launching(_))
    }

    /// Whether a deadline for draining (`terminationGracePeriod`) lifts it for drift.
    fn yields_to_deadline(&self) -> bool {
        matches!(self, Self::PodDoNotDisrupt(_) | Self::Pdb(_))
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InCommand => f.write_str("Node is part of a running disruption command"),
            Self::Foreign => {
                f.write_str("Node isn't managed by a NodeClaim of this cluster's NodePools")
            }
            Self::Launching(pool) => {
                write!(f, "NodePool \"{pool}\" has claims that are being launched")
            }
            Self::WithoutNode => f.write_str("Nodeclaim does not have an associated node"),
            Self::NotInitialized => f.write_str("Node isn't initialized"),
            Self::Marked => f.write_str("Node is deleting or marked for deletion"),
            Self::Nominated => f.write_str("Node is nominated for a pending pod"),
            Self::DoNotDisrupt => write!(
                f,
                "Disruption is blocked through the \"{}\" annotation",
                labels::DO_NOT_DISRUPT
            ),
            Self::Label(key) => write!(f, "Node doesn't have required label (label={key})"),
            Self::NoNodePool(name) => write!(f, "NodePool not found (NodePool={name})"),
            Self::PodDoNotDisrupt(pod) => {
                write!(f, "Pod has \"{}\" annotation (Pod={pod})", labels::DO_NOT_DISRUPT)
            }
            Self::Pdb(PdbBlock::Multiple(keys)) => {
                let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{}])",
                    keys.join(" ")
                )
            }
            Self::Pdb(PdbBlock::NoneAllowed(key)) => {
                write!(f, "Pdb prevents pod evictions (PodDisruptionBudget=[{key}])")
            }
        }
    }
}

/// How hard a method insists: drift is bound to happen in the end, the others are favours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Emptiness and consolidation: what pods and budgets say is always respected.
    Graceful,
    /// Drift: a claim with `terminationGracePeriod` goes whatever its pods say.
    Eventual,
}

/// What is known of one node before any method looks at it.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Position in [`View::nodes`].
    pub at: usize,
    pub blocker: Option<Blocker>,
    /// The blocker would not hold drift back.
    pub has_deadline: bool,
    /// Dollars per hour, 0 when unknown.
    pub price: f64,
    /// 1 for the node and what its reschedulable pods cost.
    pub reschedule_cost: f64,
    /// What the Balanced policy counts for it when it is no candidate.
    pub bystander_cost: f64,
    /// Pods that will need another place, held back or not.
    pub n_reschedulable: usize,
    pub instance_type: Option<Arc<InstanceType>>,
}

impl Facts {
    /// What keeps it from a method of this class.
    pub fn blocker(&self, class: Class) -> Option<&Blocker> {
        self.blocker.as_ref().filter(|it| {
            !(class == Class::Eventual && self.has_deadline && it.yields_to_deadline())
        })
    }

    /// Nothing on it is worth keeping it: no pods to move, or only such as cost nothing.
    pub fn is_empty(&self) -> bool {
        self.reschedule_cost <= crate::costs::NODE_BASE_COST
    }

    /// Dollars per hour saved per unit of disruption.
    pub fn savings_ratio(&self) -> f64 {
        self.price / self.reschedule_cost
    }
}

/// Looks at every node once.
pub fn assess(view: &View) -> Vec<Facts> {
    let pdbs = view.pod_disruption_budgets();
    view.nodes.iter().enumerate().map(|(at, node)| facts(view, &pdbs, at, node)).collect()
}

fn facts(view: &View, pdbs: &PodDisruptionBudgets<'_>, at: usize, node: &StateNode) -> Facts {
    let pods = || node.pods.iter().map(Arc::as_ref);
    let pool = view.pools.get(node.pool());
    let instance_type = pool
        .zip(node.label(labels::INSTANCE_TYPE))
        .and_then(|(pool, name)| pool.instance_type(name))
        .cloned();
    let price = node_price(
        instance_type.as_deref(),
        node.label(labels::ZONE),
        capacity_type(node.label(labels::CAPACITY_TYPE)),
    );
    Facts {
        at,
        blocker: blocker(view, pdbs, node),
        has_deadline: node
            .claim
            .as_ref()
            .is_some_and(|claim| claim.spec.termination_grace_period.is_some()),
        price,
        reschedule_cost: reschedule_cost(pods()),
        bystander_cost: bystander_cost(pods()),
        n_reschedulable: pods().filter(|it| is_reschedulable(it)).count(),
        instance_type,
    }
}

fn blocker(view: &View, pdbs: &PodDisruptionBudgets<'_>, node: &StateNode) -> Option<Blocker> {
    if node.in_command {
        return Some(Blocker::InCommand);
    }
    if node.claim.is_none() {
        return Some(Blocker::Foreign);
    }
    if view.launching.contains(node.pool()) {
        return Some(Blocker::Launching(node.pool().to_owned()));
    }
    if node.node.is_none() {
        return Some(Blocker::WithoutNode);
    }
    if !node.is_initialized() {
        return Some(Blocker::NotInitialized);
    }
    if node.is_marked_for_deletion() {
        return Some(Blocker::Marked);
    }
    if node.nominated_until.is_some_and(|until| view.now < until) {
        return Some(Blocker::Nominated);
    }
    if node.annotation(labels::DO_NOT_DISRUPT) == Some("true") {
        return Some(Blocker::DoNotDisrupt);
    }
    let Some(pool) = node.label(labels::NODEPOOL) else {
        return Some(Blocker::Label(labels::NODEPOOL));
    };
    if view.pools.get(pool).is_none_or(|it| it.instance_types.is_empty()) {
        return Some(Blocker::NoNodePool(pool.to_owned()));
    }
    let active = || node.pods.iter().map(Arc::as_ref).filter(|pod| is_active(pod));
    if let Some(pod) = active().find(|pod| do_not_disrupt(pod, view.now).is_active()) {
        return Some(Blocker::PodDoNotDisrupt(key(pod)));
    }
    active().find_map(|pod| pdbs.blocks(pod, view.now)).map(Blocker::Pdb)
}

fn key(pod: &Pod) -> ObjectKey {
    spokeshave_model::Kind::key(pod)
}

/// The pods of a node that a simulation has to find places for.
pub fn pods_to_place<'a>(
    view: &View,
    pdbs: &PodDisruptionBudgets<'_>,
    node: &'a StateNode,
) -> Vec<&'a Arc<Pod>> {
    node.pods.iter().filter(|pod| is_currently_reschedulable(pod, pdbs, view.now)).collect()
}
