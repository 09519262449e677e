//! Gauges of single objects (lifecycle 33): how full every node is, and what the conditions of claims, pools and nodes are.
//! Each is a metric of its own in CloudWatch and each is paid for, so they are told only where `OBJECT_GAUGES` asks for
//! them.

use jiff::Timestamp;
use spokeshave_model::{
    Condition, ObjectMeta, Resources,
    core::{NodeCondition, Pod},
    labels,
    resources::metric_label,
};
use spokeshave_scheduling::requests::pod_requests;

use crate::{
    cluster::{StateNode, View},
    notices::Measure,
};

/// What nodes are told apart by, besides their names.
///
/// DIFFERENCE: Karpenter has a label for every well-known one; a metric of CloudWatch has at most 30 dimensions.
const NODE_LABELS: [(&str, &str); 6] = [
    ("nodepool", labels::NODEPOOL),
    ("instance_type", labels::INSTANCE_TYPE),
    ("capacity_type", labels::CAPACITY_TYPE),
    ("zone", labels::ZONE),
    ("arch", labels::ARCH),
    ("os", labels::OS),
];

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// A condition of whatever kind of object.
struct Said<'a> {
    type_: &'a str,
    status: String,
    reason: &'a str,
    since: Option<Timestamp>,
}

impl<'a> From<&'a Condition> for Said<'a> {
    fn from(it: &'a Condition) -> Self {
        let status = format!("{:?}", it.status);
        Self { type_: &it.type_, status, reason: &it.reason, since: it.last_transition_time }
    }
}

impl<'a> From<&'a NodeCondition> for Said<'a> {
    fn from(it: &'a NodeCondition) -> Self {
        let status = it.status.clone();
        Self { type_: &it.type_, status, reason: &it.reason, since: it.last_transition_time }
    }
}

/// Names of the status gauges of a kind: conditions, how long they have been as they are, how long an object has been
/// going away.
struct Family {
    count: &'static str,
    seconds: &'static str,
    ending: &'static str,
}

const CLAIMS: Family = Family {
    count: "operator_nodeclaim_status_condition_count",
    seconds: "operator_nodeclaim_status_condition_current_status_seconds",
    ending: "operator_nodeclaim_termination_current_time_seconds",
};
const POOLS: Family = Family {
    count: "operator_nodepool_status_condition_count",
    seconds: "operator_nodepool_status_condition_current_status_seconds",
    ending: "operator_nodepool_termination_current_time_seconds",
};
const NODES: Family = Family {
    count: "operator_node_status_condition_count",
    seconds: "operator_node_status_condition_current_status_seconds",
    ending: "operator_node_termination_current_time_seconds",
};

/// All of them: pools by name, then nodes and their claims in the order of the view.
pub fn object_gauges(view: &View) -> Vec<Measure> {
    let mut measures = Vec::new();
    for pool in view.pools.values() {
        let it = &pool.nodepool;
        let said = it.status.conditions.iter().map(Said::from);
        measures.extend(of_status(&POOLS, &it.metadata, said, &[], view.now));
    }
    for state in &view.nodes {
        measures.extend(of_room(state, view.now));
        if let Some(node) = &state.node {
            let label = |key| state.label(key).unwrap_or_default();
            let extra = [
                ("karpenter_sh_nodepool", label(labels::NODEPOOL)),
                ("karpenter_k8s_aws_ec2nodeclass", label(labels::NODECLASS)),
                ("karpenter_sh_initialized", label(labels::INITIALIZED)),
            ];
            let said = node.status.conditions.iter().map(Said::from);
            measures.extend(of_status(&NODES, &node.metadata, said, &extra, view.now));
        }
        if let Some(claim) = &state.claim {
            let label = |key| claim.metadata.label(key).unwrap_or_default();
            let extra = [
                ("karpenter_sh_nodepool", label(labels::NODEPOOL)),
                ("karpenter_k8s_aws_ec2nodeclass", label(labels::NODECLASS)),
            ];
            let said = claim.status.conditions.iter().map(Said::from);
            measures.extend(of_status(&CLAIMS, &claim.metadata, said, &extra, view.now));
        }
    }
    measures
}

fn of_status<'a>(
    family: &Family,
    meta: &ObjectMeta,
    conditions: impl Iterator<Item = Said<'a>>,
    extra: &[(&'static str, &str)],
    now: Timestamp,
) -> Vec<Measure> {
    let object: Labels<'_> = vec![("namespace", &meta.namespace), ("name", &meta.name)];
    let mut measures = Vec::new();
    for it in conditions {
        let mut labels = object.clone();
        labels.extend([("type", it.type_), ("status", &it.status), ("reason", it.reason)]);
        labels.extend(extra);
        measures.push(Measure::gauge(family.count, 1.0, &labels));
        if let Some(since) = it.since {
            measures.push(Measure::gauge(family.seconds, age(since, now), &labels));
        }
    }
    if let Some(since) = meta.deletion_timestamp {
        let labels: Labels<'_> = object.into_iter().chain(extra.iter().copied()).collect();
        measures.push(Measure::gauge(family.ending, age(since, now), &labels));
    }
    measures
}

fn age(since: Timestamp, now: Timestamp) -> f64 {
    now.duration_since(since).as_secs_f64().max(0.0)
}

/// What a node offers, and what its pods ask for.
fn of_room(state: &StateNode, now: Timestamp) -> Vec<Measure> {
    let Some(node) = &state.node else { return Vec::new() };
    let mut labels: Labels<'_> = vec![
        ("node_name", &node.metadata.name),
        ("managed", if state.claim.is_some() { "true" } else { "false" }),
    ];
    let known = NODE_LABELS.map(|(name, key)| (name, state.label(key).unwrap_or_default()));
    labels.extend(known);
    let mut measures = Vec::new();
    if let Some(created) = node.metadata.creation_timestamp {
        let name = "karpenter_nodes_current_lifetime_seconds";
        measures.push(Measure::gauge(name, age(created, now), &labels));
    }
    let mut overhead = node.status.capacity.clone();
    overhead.subtract(&node.status.allocatable);
    let sum = |daemons: bool, of: fn(&Pod) -> Resources| {
        let mut sum = Resources::new();
        let pods = state.pods.iter().filter(|it| !it.is_terminal() && it.is_daemon() == daemons);
        pods.for_each(|it| sum.add(&of(it)));
        sum
    };
    for (name, resources) in [
        ("karpenter_nodes_allocatable", node.status.allocatable.clone()),
        ("karpenter_nodes_total_pod_requests", sum(false, pod_requests)),
        ("karpenter_nodes_total_pod_limits", sum(false, pod_limits)),
        ("karpenter_nodes_total_daemon_requests", sum(true, pod_requests)),
        ("karpenter_nodes_total_daemon_limits", sum(true, pod_limits)),
        ("karpenter_nodes_system_overhead", overhead),
    ] {
        for (resource, amount) in resources.iter() {
            let resource = metric_label(resource);
            let mut labels = labels.clone();
            labels.push(("resource_type", &resource));
            measures.push(Measure::gauge(name, amount.as_f64(), &labels));
        }
    }
    measures
}

/// The limits of a pod's containers together, or that of an init container where it is higher.
fn pod_limits(pod: &Pod) -> Resources {
    let mut total = Resources::new();
    for container in &pod.spec.containers {
        total.add(&container.resources.limits);
    }
    for init in &pod.spec.init_containers {
        total.raise_to(&init.resources.limits);
    }
    total
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        fixtures::{minutes, node, now, on_demand, pool, view},
        gauges::gauges,
    };

    #[test] // lifecycle 33: the gauges of nodes and the status families, on request
    fn single_objects_are_told_of_on_request() {
        let types = [on_demand("m.large", 0.25)];
        let created = (now() - minutes(10)).to_string();
        let one = node("n1", "p", "m.large", "on-demand")
            .node_is(json!({"metadata": {"creationTimestamp": created},
                "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3500m"},
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": created}]}}))
            .claim_is(json!({"metadata": {"deletionTimestamp": (now() - minutes(1)).to_string()},
                "status": {"conditions": [{"type": "Drifted", "status": "True", "reason": "AMIDrift", "lastTransitionTime": created}]}}))
            .pod("web", json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}]}}))
            .pod("log", json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "o", "uid": "o"}]},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "250m"}}}]}}));
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "UnhealthyDependents"}]}});
        let mut cluster = view(vec![pool("p", &types, ready)], vec![one.build()]);
        let is_of_one = |it: &&Measure| {
            it.name.starts_with("karpenter_nodes_") || it.name.starts_with("operator_")
        };
        assert_eq!(gauges(&cluster).iter().filter(is_of_one).count(), 0, "each is paid for");
        cluster.settings.object_gauges = true;
        let measures = gauges(&cluster);
        let text = |it: &Measure| {
            let shown =
                ["name", "type", "status", "reason", "resource_type", "karpenter_sh_nodepool"];
            let labels = it.labels.iter().filter(|(key, _)| shown.contains(key));
            let labels: Vec<&str> = labels.map(|(_, value)| value.as_str()).collect();
            format!("{} {} {}", it.name, labels.join(","), it.value)
        };
        let told: Vec<String> = measures.iter().filter(is_of_one).map(text).collect();
        assert_eq!(
            told,
            [
                "operator_nodepool_status_condition_count p,Ready,False,UnhealthyDependents 1",
                "karpenter_nodes_current_lifetime_seconds  600",
                "karpenter_nodes_allocatable cpu 3.5",
                "karpenter_nodes_total_pod_requests cpu 1",
                "karpenter_nodes_total_pod_requests pods 1",
                "karpenter_nodes_total_pod_limits cpu 2",
                "karpenter_nodes_total_daemon_requests cpu 0.25",
                "karpenter_nodes_total_daemon_requests pods 1",
                "karpenter_nodes_system_overhead cpu 0.5",
                "operator_node_status_condition_count n1,Ready,True,KubeletReady,p 1",
                "operator_node_status_condition_current_status_seconds n1,Ready,True,KubeletReady,p 600",
                "operator_nodeclaim_status_condition_count claim-n1,Drifted,True,AMIDrift,p 1",
                "operator_nodeclaim_status_condition_current_status_seconds claim-n1,Drifted,True,AMIDrift,p 600",
                "operator_nodeclaim_termination_current_time_seconds claim-n1,p 60",
            ]
        );
        let room =
            measures.iter().find(|it| it.name == "karpenter_nodes_allocatable").expect("there");
        let labels: Vec<String> =
            room.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            labels.join(" "),
            "node_name=n1 managed=true nodepool=p instance_type=m.large capacity_type=on-demand zone=a arch= os= resource_type=cpu"
        );
    }
}
