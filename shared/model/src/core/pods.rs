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
kind!(Pod, "", "v1", "Pod", "pods", true);

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

impl Pod {
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
