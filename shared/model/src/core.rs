//! Kubernetes' own kinds, slim: only the fields that decisions read.
//!
//! They are changed only by patches of a difference (see `ports::Cluster::patch`), so the fields that are left
//! out here are never lost in the cluster.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    LabelSelector, ObjectMeta, ProviderId, Resources, Taint, Toleration, Uid, kind,
    meta::{StringMap, null_is_default},
    node_pool::is_default,
    requirements::NodeSelectorRequirement,
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
pub struct Affinity {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub node_affinity: NodeAffinity,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub pod_affinity: PodAffinity,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub pod_anti_affinity: PodAffinity,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Option::is_none"
    )]
    pub required: Option<NodeSelector>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub preferred: Vec<PreferredSchedulingTerm>,
}

/// Alternatives: one term has to hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub match_fields: Vec<NodeSelectorRequirement>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreferredSchedulingTerm {
    pub weight: i32,
    pub preference: NodeSelectorTerm,
}

/// Affinity to, or anti-affinity against, other pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodAffinity {
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub required: Vec<PodAffinityTerm>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub preferred: Vec<WeightedPodAffinityTerm>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightedPodAffinityTerm {
    pub weight: i32,
    pub pod_affinity_term: PodAffinityTerm,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// Absent matches no pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    pub topology_key: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub namespaces: Vec<String>,
    /// Present and empty: all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub match_label_keys: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub mismatch_label_keys: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpreadConstraint {
    pub max_skew: i32,
    pub topology_key: String,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_domains: Option<i32>,
    /// `Honor` (default) or `Ignore`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity_policy: Option<String>,
    /// `Honor` or `Ignore` (default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_taints_policy: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub match_label_keys: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<PersistentVolumeClaimSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<EphemeralVolumeSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi: Option<CsiVolumeSource>,
    #[serde(rename = "awsElasticBlockStore", skip_serializing_if = "Option::is_none")]
    pub aws_elastic_block_store: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSource {
    pub claim_name: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralVolumeSource {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_claim_template: Option<VolumeClaimTemplate>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeClaimTemplate {
    pub metadata: ObjectMeta,
    pub spec: PersistentVolumeClaimSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiVolumeSource {
    pub driver: String,
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

/// Node, `v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_is_default")]
    pub spec: NodeSpec,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub status: NodeStatus,
}
kind!(Node, "", "v1", "Node", "nodes", false);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    #[serde(rename = "providerID", skip_serializing_if = "ProviderId::is_empty")]
    pub provider_id: ProviderId,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub taints: Vec<Taint>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    #[serde(skip_serializing_if = "Resources::is_empty", deserialize_with = "null_is_default")]
    pub capacity: Resources,
    #[serde(skip_serializing_if = "Resources::is_empty", deserialize_with = "null_is_default")]
    pub allocatable: Resources,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub conditions: Vec<NodeCondition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
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

impl Node {
    /// Condition `Ready` is `True`.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
    }

    /// A condition, if present.
    pub fn condition(&self, type_: &str) -> Option<&NodeCondition> {
        self.status.conditions.iter().find(|it| it.type_ == type_)
    }
}

/// `spec.template` of workloads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTemplateSpec {
    #[serde(deserialize_with = "null_is_default")]
    pub metadata: ObjectMeta,
    pub spec: PodSpec,
}

/// What controllers report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadStatus {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub replicas: i32,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub ready_replicas: i32,
}

/// Deployment, `apps/v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Deployment {
    pub metadata: ObjectMeta,
    pub spec: DeploymentSpec,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub status: WorkloadStatus,
}
kind!(Deployment, "apps", "v1", "Deployment", "deployments", true);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub replicas: Option<i32>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub selector: LabelSelector,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub template: PodTemplateSpec,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub paused: bool,
}

/// ReplicaSet, `apps/v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSet {
    pub metadata: ObjectMeta,
    pub spec: ReplicaSetSpec,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub status: WorkloadStatus,
}
kind!(ReplicaSet, "apps", "v1", "ReplicaSet", "replicasets", true);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub replicas: Option<i32>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub selector: LabelSelector,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub template: PodTemplateSpec,
}

/// StatefulSet, `apps/v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSet {
    pub metadata: ObjectMeta,
    pub spec: StatefulSetSpec,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub status: WorkloadStatus,
}
kind!(StatefulSet, "apps", "v1", "StatefulSet", "statefulsets", true);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub replicas: Option<i32>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub selector: LabelSelector,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub template: PodTemplateSpec,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub volume_claim_templates: Vec<VolumeClaimTemplate>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub pod_management_policy: String,
}

/// DaemonSet, `apps/v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSet {
    pub metadata: ObjectMeta,
    pub spec: DaemonSetSpec,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub status: WorkloadStatus,
}
kind!(DaemonSet, "apps", "v1", "DaemonSet", "daemonsets", true);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub selector: LabelSelector,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub template: PodTemplateSpec,
}

/// ReplicationController, `v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicationController {
    pub metadata: ObjectMeta,
    pub spec: ReplicationControllerSpec,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub status: WorkloadStatus,
}
kind!(ReplicationController, "", "v1", "ReplicationController", "replicationcontrollers", true);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicationControllerSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub replicas: Option<i32>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub selector: StringMap,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub template: PodTemplateSpec,
}

/// Job, `batch/v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Job {
    pub metadata: ObjectMeta,
    pub spec: JobSpec,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub status: JobStatus,
}
kind!(Job, "batch", "v1", "Job", "jobs", true);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub parallelism: Option<i32>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub completions: Option<i32>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub backoff_limit: Option<i32>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub selector: LabelSelector,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub template: PodTemplateSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub active: i32,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub succeeded: i32,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub failed: i32,
}

/// PodTemplate, `v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTemplate {
    pub metadata: ObjectMeta,
    pub template: PodTemplateSpec,
}
kind!(PodTemplate, "", "v1", "PodTemplate", "podtemplates", true);

/// PodDisruptionBudget, `policy/v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudget {
    pub metadata: ObjectMeta,
    pub spec: PodDisruptionBudgetSpec,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub status: PodDisruptionBudgetStatus,
}
kind!(PodDisruptionBudget, "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub min_available: Option<IntOrString>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub max_unavailable: Option<IntOrString>,
    /// `IfHealthyBudget` (default when empty) or `AlwaysAllow`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub unhealthy_pod_eviction_policy: String,
}

/// A count, or a percentage such as `30%`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    Int(i32),
    String(String),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetStatus {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub disruptions_allowed: i32,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub current_healthy: i32,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub desired_healthy: i32,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub expected_pods: i32,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub observed_generation: i64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub disrupted_pods: BTreeMap<String, Timestamp>,
}

/// PersistentVolume, `v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolume {
    pub metadata: ObjectMeta,
    pub spec: PersistentVolumeSpec,
}
kind!(PersistentVolume, "", "v1", "PersistentVolume", "persistentvolumes", false);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub storage_class_name: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub node_affinity: Option<VolumeNodeAffinity>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub csi: Option<CsiVolumeSource>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub aws_elastic_block_store: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub local: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub host_path: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub claim_ref: Option<ClaimRef>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub access_modes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeNodeAffinity {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub required: Option<NodeSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRef {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub namespace: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub uid: Uid,
}

/// PersistentVolumeClaim, `v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaim {
    pub metadata: ObjectMeta,
    pub spec: PersistentVolumeClaimSpec,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub status: PersistentVolumeClaimStatus,
}
kind!(PersistentVolumeClaim, "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub volume_name: String,
    /// Absent: the default class; empty: none.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub storage_class_name: Option<String>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub access_modes: Vec<String>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub resources: ContainerResources,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimStatus {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub phase: String,
}

/// StorageClass, `storage.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    pub metadata: ObjectMeta,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub provisioner: String,
    /// `Immediate` (default when empty) or `WaitForFirstConsumer`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub volume_binding_mode: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub allowed_topologies: Vec<TopologySelectorTerm>,
}
kind!(StorageClass, "storage.k8s.io", "v1", "StorageClass", "storageclasses", false);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySelectorTerm {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub match_label_expressions: Vec<TopologySelectorLabelRequirement>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySelectorLabelRequirement {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub key: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub values: Vec<String>,
}

/// CSINode, `storage.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CSINode {
    pub metadata: ObjectMeta,
    pub spec: CSINodeSpec,
}
kind!(CSINode, "storage.k8s.io", "v1", "CSINode", "csinodes", false);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CSINodeSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub drivers: Vec<CSINodeDriver>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CSINodeDriver {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub name: String,
    #[serde(
        rename = "nodeID",
        skip_serializing_if = "is_default",
        deserialize_with = "null_is_default"
    )]
    pub node_id: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub topology_keys: Vec<String>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub allocatable: Option<VolumeNodeResources>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeNodeResources {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub count: Option<i32>,
}

/// CSIDriver, `storage.k8s.io/v1`: known so that clusters can be read; no decision reads a field of its `spec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CSIDriver {
    pub metadata: ObjectMeta,
}
kind!(CSIDriver, "storage.k8s.io", "v1", "CSIDriver", "csidrivers", false);

/// ResourceSlice, `resource.k8s.io/v1`: devices that a DRA driver publishes for a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSlice {
    pub metadata: ObjectMeta,
    pub spec: ResourceSliceSpec,
}
kind!(ResourceSlice, "resource.k8s.io", "v1", "ResourceSlice", "resourceslices", false);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSliceSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub driver: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub node_name: Option<String>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub pool: ResourcePool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourcePool {
    pub name: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub generation: i64,
    /// How many slices of this generation make the pool complete.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub resource_slice_count: i64,
}

/// VolumeAttachment, `storage.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachment {
    pub metadata: ObjectMeta,
    pub spec: VolumeAttachmentSpec,
}
kind!(VolumeAttachment, "storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", false);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub attacher: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub node_name: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub source: VolumeAttachmentSource,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSource {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub persistent_volume_name: Option<String>,
}

/// Namespace, `v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespace {
    pub metadata: ObjectMeta,
}
kind!(Namespace, "", "v1", "Namespace", "namespaces", false);

/// PriorityClass, `scheduling.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityClass {
    pub metadata: ObjectMeta,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub value: i32,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub global_default: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub preemption_policy: String,
}
kind!(PriorityClass, "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false);

/// LimitRange, `v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitRange {
    pub metadata: ObjectMeta,
    pub spec: LimitRangeSpec,
}
kind!(LimitRange, "", "v1", "LimitRange", "limitranges", true);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitRangeSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub limits: Vec<LimitRangeItem>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitRangeItem {
    #[serde(
        rename = "type",
        skip_serializing_if = "is_default",
        deserialize_with = "null_is_default"
    )]
    pub type_: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub default: Resources,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub default_request: Resources,
}

/// Service, `v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Service {
    pub metadata: ObjectMeta,
    pub spec: ServiceSpec,
}
kind!(Service, "", "v1", "Service", "services", true);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    #[serde(
        rename = "clusterIP",
        skip_serializing_if = "is_default",
        deserialize_with = "null_is_default"
    )]
    pub cluster_ip: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub selector: StringMap,
}

/// Lease, `coordination.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lease {
    pub metadata: ObjectMeta,
    pub spec: LeaseSpec,
}
kind!(Lease, "coordination.k8s.io", "v1", "Lease", "leases", true);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub holder_identity: Option<String>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub lease_duration_seconds: Option<i32>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub acquire_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub renew_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub lease_transitions: Option<i32>,
}
