//! Storage: the volumes of a pod, claims, what they are bound to, and what a node can attach.

use serde::{Deserialize, Serialize};

use crate::{
    ObjectMeta, Uid,
    core::{ContainerResources, NodeSelector},
    kind,
    meta::null_is_default,
    node_pool::is_default,
};

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
