//! What makes pods: Deployments, DaemonSets, Jobs, ...

use serde::{Deserialize, Serialize};

use crate::{
    LabelSelector, ObjectMeta,
    core::{PodSpec, VolumeClaimTemplate},
    kind,
    meta::{StringMap, null_is_default},
    node_pool::is_default,
};

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
