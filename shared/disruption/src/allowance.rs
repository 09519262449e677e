//! How many nodes of each pool may still be disrupted for a reason (lifecycle 17).

use std::collections::BTreeMap;

use jiff::SignedDuration;
use spokeshave_model::budgets;

use crate::{
    cluster::{StateNode, View},
    command::Reason,
    notices::{Measure, Notice, Subject},
};

/// One pool's allowance for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Nodes that count.
    pub n_nodes: i64,
    /// What the budgets allow before anything is subtracted.
    pub allowed: i64,
    /// Nodes on their way out or not Ready, whatever the reason.
    pub disrupting: i64,
    /// Taken by commands that are being put together.
    taken: i64,
}

impl Allowance {
    /// What may still be started.
    pub fn remaining(&self) -> i64 {
        (self.allowed - self.disrupting - self.taken).max(0)
    }
}

/// The allowances of all pools for one reason.
#[derive(Clone, Debug)]
pub struct Allowances {
    reason: Reason,
    by_pool: BTreeMap<String, Allowance>,
}

impl Allowances {
    /// Counts the nodes of the view and evaluates the budgets at its time.
    pub fn new(view: &View, reason: Reason) -> Self {
        let mut counts: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for node in view.nodes.iter().filter(|it| it.is_counted()) {
            let (n_nodes, disrupting) = counts.entry(node.pool()).or_default();
            *n_nodes += 1;
            *disrupting += i64::from(StateNode::is_disrupting(node));
        }
        let by_pool = view
            .pools
            .iter()
            .map(|(name, pool)| {
                let (n_nodes, disrupting) = counts.get(name.as_str()).copied().unwrap_or_default();
                let allowed =
                    budgets::allowed(&pool.nodepool.budgets(), reason.as_str(), n_nodes, view.now);
                (name.clone(), Allowance { n_nodes, allowed, disrupting, taken: 0 })
            })
            .collect();
        Self { reason, by_pool }
    }

    /// A pool's allowance; an unknown pool has none.
    pub fn of(&self, pool: &str) -> Allowance {
        self.by_pool.get(pool).copied().unwrap_or_default()
    }

    /// By pool name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Allowance)> {
        self.by_pool.iter().map(|(name, it)| (name.as_str(), it))
    }

    pub fn remaining(&self, pool: &str) -> i64 {
        self.of(pool).remaining()
    }

    /// Takes one if there is one.
    pub fn take(&mut self, pool: &str) -> bool {
        let Some(it) = self.by_pool.get_mut(pool).filter(|it| it.remaining() > 0) else {
            return false;
        };
        it.taken += 1;
        true
    }

    /// The text for nodes that a budget holds back.
    pub fn blocked_text(&self) -> String {
        format!(
            "No allowed disruptions for disruption reason {} due to blocking budget",
            self.reason
        )
    }

    /// The event on every pool whose budgets allow nothing at all.
    pub fn notices(&self) -> Vec<Notice> {
        self.by_pool
            .iter()
            .filter(|(_, it)| it.n_nodes != 0 && it.allowed == 0)
            .map(|(name, _)| {
                Notice::normal(
                    Subject::NodePool(name.clone()),
                    "DisruptionBlocked",
                    self.blocked_text(),
                    SignedDuration::from_mins(1),
                )
            })
            .collect()
    }

    /// The two gauges of every pool.
    pub fn measures(&self) -> Vec<Measure> {
        let mut measures = Vec::new();
        for (name, it) in &self.by_pool {
            let labels = [("nodepool", name.as_str()), ("reason", self.reason.as_str())];
            measures.push(Measure::gauge(
                "karpenter_nodepools_allowed_disruptions",
                it.allowed as f64,
                &labels,
            ));
            measures.push(Measure::gauge(
                "karpenter_nodepools_nodes_consuming_budgets",
                it.disrupting as f64,
                &labels,
            ));
        }
        measures
    }
}
