//! Nodes, and the devices that drivers publish for them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    ObjectMeta, ProviderId, Resources, Taint, kind, meta::null_is_default, node_pool::is_default,
};

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
