//! What `DISABLE_CLUSTER_STATE_OBSERVABILITY` switches off (lifecycle 33): gauges of the cluster's state, and what is told
//! of the conditions of NodeClaims, NodePools and Nodes. Counters and histograms stay, and so does what is told of
//! EC2NodeClasses.

use crate::{Metric, cluster::KubeEvent};

/// Gauges of nodes, NodePools and pods.
const GAUGES: [&str; 12] = [
    "karpenter_pods_state",
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

/// What status metrics are called without the kind of object, as Karpenter still tells them beside the new ones.
const TWINS: [(&str, &str); 6] = [
    ("status_condition_count", "operator_status_condition_count"),
    ("status_condition_current_status_seconds", "operator_status_condition_current_status_seconds"),
    ("status_condition_transitions_total", "operator_status_condition_transitions_total"),
    ("status_condition_transition_seconds", "operator_status_condition_transition_seconds"),
    ("termination_current_time_seconds", "operator_termination_current_time_seconds"),
    ("termination_duration_seconds", "operator_termination_duration_seconds"),
];

/// Kinds with twins: the part of the name, group and kind.
const TWIN_KINDS: [(&str, &str, &str); 3] = [
    ("operator_nodeclaim_", "karpenter.sh", "NodeClaim"),
    ("operator_nodepool_", "karpenter.sh", "NodePool"),
    ("operator_ec2nodeclass_", "karpenter.k8s.aws", "EC2NodeClass"),
];

/// The same metric under its deprecated name, which tells the kind of object by labels (lifecycle 33).
pub fn deprecated_twin(metric: &Metric) -> Option<Metric> {
    let (rest, group, kind) = TWIN_KINDS
        .iter()
        .find_map(|(part, group, kind)| Some((metric.name.strip_prefix(part)?, *group, *kind)))?;
    let name = TWINS.iter().find(|it| it.0 == rest)?.1;
    let mut twin = Metric { name, ..metric.clone() };
    twin.labels.extend([("group", group.to_owned()), ("kind", kind.to_owned())]);
    Some(twin)
}

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

    #[test] // lifecycle 33: the deprecated twins
    fn status_metrics_have_twins_without_the_kind_in_their_names() {
        for (name, expected) in [
            (
                "operator_nodeclaim_status_condition_transitions_total",
                Some("operator_status_condition_transitions_total karpenter.sh NodeClaim"),
            ),
            (
                "operator_nodepool_status_condition_count",
                Some("operator_status_condition_count karpenter.sh NodePool"),
            ),
            (
                "operator_ec2nodeclass_termination_duration_seconds",
                Some("operator_termination_duration_seconds karpenter.k8s.aws EC2NodeClass"),
            ),
            ("operator_node_status_condition_count", None),
            ("karpenter_nodeclaims_disrupted_total", None),
        ] {
            let labels = vec![("type", "Ready".to_owned())];
            let twin = deprecated_twin(&Metric { name, value: 2.0, unit: "Count", labels });
            let text = twin.map(|it| {
                assert_eq!((it.value, it.unit, it.labels.len()), (2.0, "Count", 3), "{name}");
                format!("{} {} {}", it.name, it.labels[1].1, it.labels[2].1)
            });
            assert_eq!(text.as_deref(), expected, "{name}");
        }
    }

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
