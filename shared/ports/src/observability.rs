//! What `DISABLE_CLUSTER_STATE_OBSERVABILITY` switches off (lifecycle 33): gauges of the cluster's state, and what is told
//! of the conditions of NodeClaims, NodePools and Nodes. Counters and histograms stay, and so does what is told of
//! EC2NodeClasses.

use crate::cluster::KubeEvent;

/// Gauges of nodes and NodePools.
const GAUGES: [&str; 11] = [
    "karpenter_nodes_allocatable",
    "karpenter_nodes_total_pod_requests",
    "karpenter_nodes_total_pod_limits",
    "karpenter_nodes_total_daemon_requests",
    "karpenter_nodes_total_daemon_limits",
    "karpenter_nodes_system_overhead",
    "karpenter_nodes_current_lifetime_seconds",
    "karpenter_cluster_utilization_percent",
    "karpenter_nodepools_limit",
    "karpenter_nodepools_usage",
    "karpenter_nodepools_cost_total",
];

/// Families of status metrics.
const FAMILIES: [&str; 3] = ["operator_nodeclaim_", "operator_nodepool_", "operator_node_"];

/// Whether the metric of this name tells of the cluster's state.
pub fn is_state_metric(name: &str) -> bool {
    GAUGES.contains(&name) || FAMILIES.iter().any(|it| name.starts_with(it))
}

/// The beginning of every event about a condition whose status changed.
pub const TRANSITIONED: &str = "Status condition transitioned";
/// Reason of the event about a finalizer that was taken away.
pub const FINALIZED: &str = "Finalized";

/// Whether the event tells of a condition or a finalizer of a NodeClaim, NodePool or Node.
pub fn is_state_event(event: &KubeEvent) -> bool {
    matches!(event.kind, "NodeClaim" | "NodePool" | "Node")
        && (event.reason == FINALIZED || event.message.starts_with(TRANSITIONED))
}

#[cfg(test)]
mod tests {
    use spokeshave_model::{ObjectKey, Uid};

    use super::*;

    #[test]
    fn gauges_and_status_families_tell_of_state() {
        for (name, expected) in [
            ("karpenter_nodepools_usage", true),
            ("karpenter_cluster_utilization_percent", true),
            ("operator_nodeclaim_status_condition_transitions_total", true),
            ("operator_node_termination_duration_seconds", true),
            ("operator_ec2nodeclass_status_condition_transitions_total", false),
            ("karpenter_nodepools_allowed_disruptions", false),
            ("karpenter_nodeclaims_disrupted_total", false),
            ("karpenter_cluster_state_node_count", false),
        ] {
            assert_eq!(is_state_metric(name), expected, "{name}");
        }
    }

    #[test]
    fn transitions_and_finalizers_of_claims_pools_and_nodes_tell_of_state() {
        let transition =
            "Status condition transitioned, Type: Ready, Status: Unknown -> True, Reason: Ready";
        for (kind, reason, message, expected) in [
            ("NodeClaim", "Ready", transition, true),
            ("Node", FINALIZED, "Finalized karpenter.sh/termination", true),
            ("EC2NodeClass", "Ready", transition, false),
            ("EC2NodeClass", FINALIZED, "Finalized karpenter.k8s.aws/termination", false),
            ("Node", "DisruptionBlocked", "Node is nominated for a pending pod", false),
        ] {
            let event = KubeEvent {
                kind,
                api_version: String::new(),
                key: ObjectKey::cluster("a"),
                uid: Uid::default(),
                warning: false,
                reason: reason.into(),
                message: message.into(),
            };
            assert_eq!(is_state_event(&event), expected, "{kind} {reason}");
        }
    }
}
