//! Labels of the metrics of claims and nodes. Names are Karpenter's.

use spokeshave_model::{NodeClaim, duration::PlainDuration, labels};

pub const CLAIMS_DISRUPTED: &str = "karpenter_nodeclaims_disrupted_total";
pub const PODS_DISRUPTION_INITIATED: &str = "karpenter_pods_disruption_initiated_total";
pub const CLAIMS_TERMINATED: &str = "karpenter_nodeclaims_terminated_total";
pub const CLAIMS_TERMINATION_SECONDS: &str = "karpenter_nodeclaims_termination_duration_seconds";
pub const INSTANCE_TERMINATION_SECONDS: &str =
    "karpenter_nodeclaims_instance_termination_duration_seconds";
pub const CLAIMS_UNHEALTHY_DISRUPTED: &str = "karpenter_nodeclaims_unhealthy_disrupted_total";
pub const NODES_CREATED: &str = "karpenter_nodes_created_total";
pub const NODES_TERMINATED: &str = "karpenter_nodes_terminated_total";
pub const NODES_DRAINED: &str = "karpenter_nodes_drained_total";
pub const NODES_TERMINATION_SECONDS: &str = "karpenter_nodes_termination_duration_seconds";
pub const NODES_LIFETIME_SECONDS: &str = "karpenter_nodes_lifetime_duration_seconds";
pub const PODS_DRAINED: &str = "karpenter_pods_drained_total";
/// Without Karpenter's prefix, as its status metrics are.
pub const CLAIM_TRANSITIONS: &str = "operator_nodeclaim_status_condition_transitions_total";
pub const CLAIM_ENDED_SECONDS: &str = "operator_nodeclaim_termination_duration_seconds";
pub const NODE_ENDED_SECONDS: &str = "operator_node_termination_duration_seconds";
pub const EVICTION_REQUESTS: &str = "karpenter_pods_eviction_requests_total";

/// How a claim's end is bounded: `graceful` without a grace period, `forceful` with none left, else `eventual`.
pub fn termination_mode(claim: &NodeClaim) -> &'static str {
    match claim.spec.termination_grace_period.as_ref().and_then(PlainDuration::get) {
        None => "graceful",
        Some(length) if length.is_positive() => "eventual",
        Some(_) => "forceful",
    }
}

/// Labels of `karpenter_nodeclaims_disrupted_total` and `karpenter_pods_disruption_initiated_total`.
///
/// `policy` is the snake-case consolidation policy for emptiness and consolidation, else empty.
pub fn disrupted(claim: &NodeClaim, reason: &str, policy: &str) -> Vec<(&'static str, String)> {
    vec![
        ("reason", reason.to_owned()),
        ("nodepool", label(claim, labels::NODEPOOL)),
        ("capacity_type", label(claim, labels::CAPACITY_TYPE)),
        ("consolidation_policy", policy.to_owned()),
        ("termination_mode", termination_mode(claim).to_owned()),
    ]
}

/// The value of a label of the claim, empty when missing.
pub fn label(claim: &NodeClaim, key: &str) -> String {
    claim.metadata.label(key).unwrap_or_default().to_owned()
}
