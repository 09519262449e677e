//! Node repair (gate `NodeRepair`): nodes that say for too long that they are broken are replaced.

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{NodeClaim, NodePool, core::Node, labels};

use crate::metrics;

/// So long a condition of a node may have this status before the node is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    pub condition: &'static str,
    pub status: &'static str,
    pub toleration: SignedDuration,
}

const fn policy(condition: &'static str, status: &'static str, minutes: i64) -> Policy {
    Policy { condition, status, toleration: SignedDuration::from_mins(minutes) }
}

/// Source: Karpenter's provider for AWS; the last five conditions come from the EKS node monitoring agent.
pub const POLICIES: &[Policy] = &[
    policy("Ready", "False", 30),
    policy("Ready", "Unknown", 30),
    policy("AcceleratedHardwareReady", "False", 10),
    policy("StorageReady", "False", 30),
    policy("NetworkingReady", "False", 30),
    policy("KernelReady", "False", 30),
    policy("ContainerRuntimeReady", "False", 30),
];

/// When more nodes than this part of a pool are unhealthy, none is repaired: the fault is then not the nodes'.
/// 20 %, rounded up, as in Karpenter 1.x.
pub const MOST_UNHEALTHY_PERCENT: usize = 20;

/// How long to wait while too many are unhealthy.
pub const BLOCKED_RETRY: SignedDuration = SignedDuration::from_mins(5);

/// How long an equal event about blocked repair is not repeated.
pub const BLOCKED_MEMORY: SignedDuration = SignedDuration::from_mins(15);

/// What is wrong with a node, and since when for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub policy: &'static Policy,
    /// From this moment on the node is to be repaired.
    pub due: Timestamp,
}

/// The fault of a node that is due first.
pub fn fault(node: &Node) -> Option<Fault> {
    POLICIES
        .iter()
        .filter_map(|policy| {
            let condition = node.condition(policy.condition)?;
            if condition.status != policy.status {
                return None;
            }
            let due = condition.last_transition_time?.checked_add(policy.toleration).ok()?;
            Some(Fault { policy, due })
        })
        .min_by_key(|it| it.due)
}

/// Whether a policy matches the node at all, however short the time.
pub fn is_unhealthy(node: &Node) -> bool {
    POLICIES
        .iter()
        .any(|policy| node.condition(policy.condition).is_some_and(|it| it.status == policy.status))
}

/// Whether few enough of `nodes` are unhealthy for one of them to be repaired.
pub fn allows(nodes: &[&Node]) -> bool {
    let unhealthy = nodes.iter().filter(|it| is_unhealthy(it)).count();
    unhealthy <= (nodes.len() * MOST_UNHEALTHY_PERCENT).div_ceil(100)
}

/// The text for a node that is not repaired because too many others are unhealthy; Karpenter's words.
pub fn blocked_message(pool: Option<&NodePool>) -> &'static str {
    match pool {
        Some(_) => "more than 20% nodes are unhealthy in the nodepool",
        None => "more then 20% nodes are unhealthy in the cluster",
    }
}

/// The claim with its deadline brought forward to `now`; `None` when it has an earlier one.
pub fn without_grace(claim: &NodeClaim, now: Timestamp) -> Option<NodeClaim> {
    let deadline = claim.metadata.annotation(labels::TERMINATION_TIMESTAMP);
    let deadline = deadline.and_then(|it| it.parse::<Timestamp>().ok());
    if deadline.is_some_and(|it| it < now) {
        return None;
    }
    let mut changed = claim.clone();
    changed.metadata.annotations.insert(labels::TERMINATION_TIMESTAMP.into(), now.to_string());
    (changed != *claim).then_some(changed)
}

/// Labels of `karpenter_nodeclaims_unhealthy_disrupted_total`; the condition in snake case.
pub fn labels_of(claim: &NodeClaim, fault: &Fault) -> Vec<(&'static str, String)> {
    vec![
        ("condition", snake_case(fault.policy.condition)),
        ("nodepool", metrics::label(claim, labels::NODEPOOL)),
        ("capacity_type", metrics::label(claim, labels::CAPACITY_TYPE)),
        ("image_id", claim.status.image_id.clone()),
    ]
}

fn snake_case(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}
