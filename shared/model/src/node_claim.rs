//! NodeClaim, `karpenter.sh/v1` (`spec` api 8).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Condition, ObjectMeta, ProviderId, Resources, Taint,
    conditions::{self, ConditionSet},
    duration::{NillableDuration, PlainDuration},
    kind, labels,
    meta::null_is_default,
    node_pool::{NodeClassRef, is_default},
    requirements::NodeSelectorRequirement,
};

/// One node, from the wish for it until it is gone. `spec` never changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaim {
    pub metadata: ObjectMeta,
    pub spec: NodeClaimSpec,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub status: NodeClaimStatus,
}

kind!(NodeClaim, "karpenter.sh", "v1", "NodeClaim", "nodeclaims", false);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimSpec {
    pub node_class_ref: NodeClassRef,
    pub requirements: Vec<NodeSelectorRequirement>,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub resources: ResourceRequirements,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub taints: Vec<Taint>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub startup_taints: Vec<Taint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<NillableDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<PlainDuration>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequirements {
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub requests: Resources,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimStatus {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    #[serde(rename = "providerID", skip_serializing_if = "ProviderId::is_empty")]
    pub provider_id: ProviderId,
    #[serde(rename = "imageID", skip_serializing_if = "String::is_empty")]
    pub image_id: String,
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub capacity: Resources,
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub allocatable: Resources,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_pod_event_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
}

impl NodeClaim {
    pub const LAUNCHED: &str = "Launched";
    pub const REGISTERED: &str = "Registered";
    pub const INITIALIZED: &str = "Initialized";
    pub const CONSOLIDATABLE: &str = "Consolidatable";
    pub const DRIFTED: &str = "Drifted";
    pub const DRAINED: &str = "Drained";
    pub const VOLUMES_DETACHED: &str = "VolumesDetached";
    pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
    pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
    pub const DISRUPTION_REASON: &str = "DisruptionReason";
    /// What `Ready` is made of.
    pub const DEPENDENTS: &[&str] = &[Self::LAUNCHED, Self::REGISTERED, Self::INITIALIZED];

    /// Whether the claim's class is an EC2NodeClass; other claims are ignored completely.
    pub fn is_managed(&self) -> bool {
        self.spec.node_class_ref.is_managed()
    }

    /// The pool it belongs to, by label.
    pub fn nodepool(&self) -> Option<&str> {
        self.metadata.label(labels::NODEPOOL)
    }

    /// Whether a condition is True.
    pub fn is_true(&self, type_: &str) -> bool {
        conditions::is_true(&self.status.conditions, type_)
    }

    /// A condition, if present.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        conditions::find(&self.status.conditions, type_)
    }

    /// The conditions with the rules for changing them.
    pub fn conditions_mut(&mut self) -> ConditionSet<'_> {
        ConditionSet {
            generation: self.metadata.generation,
            created: self.metadata.creation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH),
            deleting: self.metadata.deletion_timestamp.is_some(),
            conditions: &mut self.status.conditions,
            dependents: Self::DEPENDENTS,
        }
    }
}
