//! Pods, and what their specs are made of.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    ObjectMeta, Resources, Toleration,
    core::{Affinity, TopologySpreadConstraint, Volume},
    kind,
    meta::{StringMap, null_is_default},
    node_pool::is_default,
};

/// Pod, `v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    pub spec: PodSpec,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub status: PodStatus,
}
kind!(Pod, "", "v1", "Pod", "pods", true, slim: Pod::slim_parts);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub containers: Vec<Container>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub init_containers: Vec<Container>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scheduler_name: String,
    #[serde(skip_serializing_if = "StringMap::is_empty", deserialize_with = "null_is_default")]
    pub node_selector: StringMap,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub affinity: Affinity,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub tolerations: Vec<Toleration>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub volumes: Vec<Volume>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Resources>,
    /// Pod-level requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ContainerResources>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub resource_claims: Vec<PodResourceClaim>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub priority_class_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preemption_policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub restart_policy: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub host_network: bool,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub scheduling_gates: Vec<SchedulingGate>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedulingGate {
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_template_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub name: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub resources: ContainerResources,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub ports: Vec<ContainerPort>,
    /// `Always` on an init container makes it a sidecar.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub restart_policy: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerResources {
    #[serde(skip_serializing_if = "Resources::is_empty", deserialize_with = "null_is_default")]
    pub requests: Resources,
    #[serde(skip_serializing_if = "Resources::is_empty", deserialize_with = "null_is_default")]
    pub limits: Resources,
    /// Entries of the pod's `resourceClaims` that the container uses.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub claims: Vec<ContainerClaim>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerClaim {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub request: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerPort {
    #[serde(rename = "containerPort")]
    pub container_port: i32,
    #[serde(rename = "hostPort", skip_serializing_if = "is_default")]
    pub host_port: i32,
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    pub host_ip: String,
    /// `TCP` when empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub conditions: Vec<PodCondition>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nominated_node_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_resources: Option<Resources>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ContainerResources>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False`, `Unknown`.
    pub status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
}

/// See [`Pod::slim_parts`]. Statuses are only read where a resize is under way: where they differ from what is asked for.
fn slim_containers(containers: &mut Vec<Container>, statuses: &mut Vec<ContainerStatus>) {
    for container in containers.iter_mut() {
        container.ports.retain(|it| it.host_port != 0);
        container.ports.shrink_to_fit();
    }
    containers.shrink_to_fit();
    statuses.retain(|status| {
        let Some(actual) = &status.resources else { return false };
        let asked = containers.iter().find(|it| it.name == status.name).map(|it| &it.resources);
        asked.is_none_or(|asked| {
            actual.requests != asked.requests
                || status.allocated_resources.as_ref().is_some_and(|it| *it != asked.requests)
        })
    });
    statuses.shrink_to_fit();
}

impl Pod {
    /// Drops what its node does not have to hold: ports of its own network, volumes that come from nowhere else, what containers
    /// are given if that is what they ask for. A cluster has a hundred thousand pods, and vectors that grow hold room for four.
    fn slim_parts(&mut self) {
        let Self { spec, status, .. } = self;
        slim_containers(&mut spec.containers, &mut status.container_statuses);
        slim_containers(&mut spec.init_containers, &mut status.init_container_statuses);
        spec.volumes.retain(|it| {
            it.persistent_volume_claim.is_some()
                || it.ephemeral.is_some()
                || it.csi.is_some()
                || it.aws_elastic_block_store.is_some()
        });
        spec.volumes.shrink_to_fit();
        spec.tolerations.shrink_to_fit();
        spec.topology_spread_constraints.shrink_to_fit();
        status.conditions.shrink_to_fit();
    }

    /// Bound to a node.
    pub fn is_bound(&self) -> bool {
        !self.spec.node_name.is_empty()
    }

    /// Succeeded or Failed: it needs nothing any more.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Owned by a DaemonSet.
    pub fn is_daemon(&self) -> bool {
        self.metadata
            .owner_references
            .iter()
            .any(|it| it.kind == "DaemonSet" && it.api_version == "apps/v1")
    }

    /// Owned by a Node: a static (mirror) pod.
    pub fn is_mirror(&self) -> bool {
        self.metadata.owner_references.iter().any(|it| it.kind == "Node" && it.api_version == "v1")
    }

    /// A condition, if present.
    pub fn condition(&self, type_: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|it| it.type_ == type_)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::meta::{Kind, from_value, to_value};

    fn slimmed(pod: Value) -> Value {
        let mut pod: Pod = from_value(pod).expect("a pod");
        pod.slim();
        let once = pod.clone();
        pod.slim();
        assert_eq!(pod, once);
        to_value(&pod)
    }

    #[test]
    fn slimming_leaves_what_decisions_read() {
        let asked = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}});
        let container = |ports: Value| json!({"name": "c", "resources": asked, "ports": ports});
        let pod = |container: &Value, volumes: Value, statuses: Value| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"app": "web"}},
                "spec": {"containers": [container], "volumes": volumes, "nodeName": "n",
                    "tolerations": [{"key": "a", "operator": "Exists"}]},
                "status": {"phase": "Running", "containerStatuses": statuses}})
        };
        let mut fat = pod(
            &container(json!([{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}])),
            json!([{"name": "token"}, {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "scratch", "ephemeral": {}}, {"name": "inline", "csi": {"driver": "d"}},
                {"name": "old", "awsElasticBlockStore": {"volumeID": "v"}}]),
            json!([{"name": "c", "resources": asked, "allocatedResources": {"cpu": "1000m"}},
                {"name": "d"}]),
        );
        fat["metadata"]["managedFields"] = json!([{"manager": "kubelet"}]);
        fat["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}",
            "karpenter.sh/do-not-disrupt": "true"});
        let mut expected = pod(
            &container(json!([{"containerPort": 81, "hostPort": 81}])),
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "scratch", "ephemeral": {}}, {"name": "inline", "csi": {"driver": "d"}},
                {"name": "old", "awsElasticBlockStore": {"volumeID": "v"}}]),
            json!([]),
        );
        expected["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"});
        let plain: Pod = from_value(expected).expect("a pod");
        assert_eq!(slimmed(fat), to_value(&plain));
    }

    #[test]
    fn slimming_leaves_a_resize_that_is_under_way() {
        let pod = |status: Value| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {"containerStatuses": [status]}})
        };
        let one = json!({"requests": {"cpu": "1"}});
        for (what, status) in [
            ("not yet begun", json!({"name": "c", "resources": {"requests": {"cpu": "2"}}})),
            (
                "allocated, not yet actual",
                json!({"name": "c", "resources": one, "allocatedResources": {"cpu": "2"}}),
            ),
            ("of a container that is not known", json!({"name": "d", "resources": one})),
        ] {
            assert_eq!(slimmed(pod(status.clone())), pod(status), "{what}");
        }
    }
}
