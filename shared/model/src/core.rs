//! Kubernetes' own kinds, slim: only the fields that decisions read.
//!
//! They are changed only by patches of a difference (see `ports::Cluster::patch`), so the fields that are left
//! out here are never lost in the cluster.

mod affinity;
mod nodes;
mod pods;
mod policies;
mod services;
mod volumes;
mod workloads;

pub use affinity::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, PodAffinity, PodAffinityTerm,
    PreferredSchedulingTerm, TopologySpreadConstraint, WeightedPodAffinityTerm,
};
pub use nodes::{
    Node, NodeCondition, NodeSpec, NodeStatus, ResourcePool, ResourceSlice, ResourceSliceSpec,
};
pub use pods::{
    Container, ContainerClaim, ContainerPort, ContainerResources, ContainerStatus, Pod,
    PodCondition, PodResourceClaim, PodSpec, PodStatus, SchedulingGate,
};
pub use policies::{
    IntOrString, LimitRange, LimitRangeItem, LimitRangeSpec, Namespace, PodDisruptionBudget,
    PodDisruptionBudgetSpec, PodDisruptionBudgetStatus, PriorityClass,
};
pub use services::{Lease, LeaseSpec, Service, ServiceSpec};
pub use volumes::{
    CSIDriver, CSINode, CSINodeDriver, CSINodeSpec, ClaimRef, CsiVolumeSource,
    EphemeralVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSource,
    PersistentVolumeClaimSpec, PersistentVolumeClaimStatus, PersistentVolumeSpec, StorageClass,
    TopologySelectorLabelRequirement, TopologySelectorTerm, Volume, VolumeAttachment,
    VolumeAttachmentSource, VolumeAttachmentSpec, VolumeClaimTemplate, VolumeNodeAffinity,
    VolumeNodeResources,
};
pub use workloads::{
    DaemonSet, DaemonSetSpec, Deployment, DeploymentSpec, Job, JobSpec, JobStatus, PodTemplate,
    PodTemplateSpec, ReplicaSet, ReplicaSetSpec, ReplicationController, ReplicationControllerSpec,
    StatefulSet, StatefulSetSpec, WorkloadStatus,
};
