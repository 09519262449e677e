//! What one pool should look like (`spec` lifecycle 12, api 4.4, 4.5, 17.4 and 17.6).

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use spokeshave_model::{
    ConditionStatus, EC2NodeClass, NodeClaim, NodePool, Resources,
    conditions::{self, READY},
    core::Node,
    hash, labels,
    resources::{self, metric_label},
    validation,
};
use spokeshave_ports::Invocation;

/// What the decision reads.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub pool: &'a NodePool,
    /// `None` when the class does not exist.
    pub class: Option<&'a EC2NodeClass>,
    /// Claims with the pool's label.
    pub claims: &'a [Arc<NodeClaim>],
    /// Nodes with the pool's label.
    pub nodes: &'a [Arc<Node>],
}

/// What should be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Change<'a> {
    /// The pool with new annotations and status.
    pub pool: NodePool,
    /// Claims whose pool hash moves to our version: as they are, and as they should be.
    pub claims: Vec<(&'a NodeClaim, NodeClaim)>,
    /// What is known about recent registrations says nothing about the edited pool or class.
    pub forget_registrations: bool,
    /// Conditions that changed their status: type, and status with reason.
    pub verdicts: Vec<(String, String)>,
}

/// Works out annotations and status of the pool, and the migration of its claims' hash version.
pub fn decide<'a>(view: &View<'a>, now: Timestamp) -> Change<'a> {
    let mut pool = view.pool.clone();
    let claims = hashes(view, &mut pool);
    pool.conditions_mut().initialize();
    count(view, &mut pool);
    validate(&mut pool, now);
    class_readiness(view.class, &mut pool, now);
    let forget_registrations =
        view.class.is_some_and(|class| registration_health(class, &mut pool, now));
    let verdicts = verdicts(&view.pool.status.conditions, &pool.status.conditions);
    Change { pool, claims, forget_registrations, verdicts }
}

/// A pool of our group whose class is of a kind that nobody serves, as it should be; `None` for all others.
///
/// DIFFERENCE: Karpenter leaves such a pool without any condition, as if another implementation served it; but nobody else
/// serves our group. The pool still gets no hash and no counters.
pub fn unserved(pool: &NodePool, now: Timestamp) -> Option<NodePool> {
    let problem = pool.spec.template.spec.node_class_ref.unserved()?;
    let mut pool = pool.clone();
    let mut conditions = pool.conditions_mut();
    conditions.initialize();
    let type_ = NodePool::NODE_CLASS_READY;
    conditions.set(type_, ConditionStatus::False, "NodeClassNotFound", &problem, now);
    Some(pool)
}

fn verdicts(
    before: &[spokeshave_model::Condition],
    after: &[spokeshave_model::Condition],
) -> Vec<(String, String)> {
    let changed = after.iter().filter(|it| {
        it.status != ConditionStatus::Unknown
            && conditions::find(before, &it.type_).is_none_or(|old| old.status != it.status)
    });
    changed.map(|it| (it.type_.clone(), format!("{:?}, {}", it.status, it.reason))).collect()
}

/// Sets the pool's pair, and moves its claims to our hash version when the pool itself is not on it yet.
///
/// Claims that have drifted keep their hash: what they drifted from is not known under the new function.
fn hashes<'a>(view: &View<'a>, pool: &mut NodePool) -> Vec<(&'a NodeClaim, NodeClaim)> {
    let value = hash::node_pool(pool);
    let version = hash::NODE_POOL_VERSION;
    let is_current = |annotation: Option<&str>| annotation == Some(version);
    let mut moved = Vec::new();
    if !is_current(pool.metadata.annotation(labels::NODEPOOL_HASH_VERSION)) {
        let others = view.claims.iter().filter(|it| {
            it.is_managed() && !is_current(it.metadata.annotation(labels::NODEPOOL_HASH_VERSION))
        });
        for claim in others {
            let mut new = (**claim).clone();
            let annotations = &mut new.metadata.annotations;
            annotations.insert(labels::NODEPOOL_HASH_VERSION.into(), version.into());
            if claim.condition(NodeClaim::DRIFTED).is_none() {
                annotations.insert(labels::NODEPOOL_HASH.into(), value.clone());
            }
            moved.push((&**claim, new));
        }
    }
    let annotations = &mut pool.metadata.annotations;
    annotations.insert(labels::NODEPOOL_HASH.into(), value);
    annotations.insert(labels::NODEPOOL_HASH_VERSION.into(), version.into());
    moved
}

/// The sum over nodes and claims that are not on their way out; each counts as one node.
fn count(view: &View<'_>, pool: &mut NodePool) {
    let mut total: Resources =
        [resources::CPU, resources::MEMORY, resources::PODS, resources::EPHEMERAL_STORAGE]
            .into_iter()
            .map(|name| (name.to_owned(), spokeshave_model::Quantity::ZERO))
            .collect();
    let mut nodes: BTreeMap<&str, &Node> = view
        .nodes
        .iter()
        .filter(|it| !it.spec.provider_id.is_empty())
        .map(|it| (it.spec.provider_id.as_str(), &**it))
        .collect();
    let mut n_nodes = 0;
    for claim in view.claims.iter().filter(|it| it.is_managed()) {
        let node = nodes.remove(claim.status.provider_id.as_str());
        if claim.status.provider_id.is_empty() || is_going(claim, node) {
            continue;
        }
        n_nodes += 1;
        total.add(&capacity(claim, node));
    }
    // Nodes of the pool whose claim is gone.
    for node in nodes.into_values().filter(|it| !it.metadata.deleting()) {
        n_nodes += 1;
        total.add(&node.status.capacity);
    }
    total.set(resources::NODES, spokeshave_model::Quantity::units(n_nodes));
    pool.status.resources = total;
    pool.status.nodes = Some(n_nodes);
}

/// Whether the claim is marked for deletion: by anybody, or by a disruption command under way.
fn is_going(claim: &NodeClaim, node: Option<&Node>) -> bool {
    claim.metadata.deleting()
        || node.is_some_and(|it| it.metadata.deleting())
        || claim.is_true(NodeClaim::DISRUPTION_REASON)
}

/// The node's own capacity once it is initialized; before that, what the claim expects where the node says nothing.
fn capacity(claim: &NodeClaim, node: Option<&Node>) -> Resources {
    let Some(node) = node else { return claim.status.capacity.clone() };
    let mut capacity = node.status.capacity.clone();
    if node.metadata.label(labels::INITIALIZED) != Some("true") {
        for (name, amount) in claim.status.capacity.iter() {
            if capacity.get(name).is_zero() {
                capacity.set(name, amount);
            }
        }
    }
    capacity
}

fn validate(pool: &mut NodePool, now: Timestamp) {
    let problems = validation::node_pool(pool);
    let type_ = NodePool::VALIDATION_SUCCEEDED;
    if problems.is_empty() {
        pool.conditions_mut().set_true(type_, now);
    } else {
        let message = validation::message(&problems);
        let status = ConditionStatus::False;
        pool.conditions_mut().set(type_, status, "NodePoolValidationFailed", &message, now);
    }
}

fn class_readiness(class: Option<&EC2NodeClass>, pool: &mut NodePool, now: Timestamp) {
    let ready = class.and_then(|it| conditions::find(&it.status.conditions, READY));
    let type_ = NodePool::NODE_CLASS_READY;
    let (reason, message) = match (class, ready.map(|it| it.status)) {
        (None, _) => ("NodeClassNotFound", "NodeClass not found on cluster"),
        (Some(class), _) if class.metadata.deleting() => {
            ("NodeClassTerminating", "NodeClass is Terminating")
        }
        (_, None | Some(ConditionStatus::Unknown)) => {
            ("NodeClassReadinessUnknown", "Node Class Readiness Unknown")
        }
        (_, Some(ConditionStatus::False)) => {
            ready.map_or(("", ""), |it| (it.reason.as_str(), it.message.as_str()))
        }
        (_, Some(ConditionStatus::True)) => {
            pool.conditions_mut().set_true(type_, now);
            return;
        }
    };
    pool.conditions_mut().set(type_, ConditionStatus::False, reason, message, now);
}

/// Back to Unknown when the pool or its class was edited: that may have fixed what kept nodes from registering.
/// Returns whether the outcomes so far are to be forgotten.
fn registration_health(class: &EC2NodeClass, pool: &mut NodePool, now: Timestamp) -> bool {
    let type_ = NodePool::NODE_REGISTRATION_HEALTHY;
    let generation = class.metadata.generation;
    let condition = conditions::find(&pool.status.conditions, type_);
    let is_current = condition.is_some_and(|it| it.observed_generation == pool.metadata.generation)
        && pool.status.node_class_observed_generation == Some(generation);
    if !is_current {
        pool.conditions_mut().set(
            type_,
            ConditionStatus::Unknown,
            "AwaitingReconciliation",
            "object is awaiting reconciliation",
            now,
        );
    }
    pool.status.node_class_observed_generation = Some(generation);
    !is_current
}

/// The gauges of usage and limits.
pub fn measure(pool: &NodePool, cx: &Invocation<'_>) {
    let sample = |name: &'static str, amounts: &Resources| {
        for (resource, amount) in amounts.iter() {
            let resource = metric_label(resource);
            let labels =
                [("nodepool", pool.metadata.name.as_str()), ("resource_type", resource.as_str())];
            cx.sample(name, amount.as_f64(), "None", &labels);
        }
    };
    sample("karpenter_nodepools_usage", &pool.status.resources);
    if let Some(limits) = &pool.spec.limits {
        sample("karpenter_nodepools_limit", limits);
    }
}
