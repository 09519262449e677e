//! NodeOverlay, `karpenter.sh/v1alpha1` (`spec` api 14).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Condition, ObjectMeta, Resources, conditions::ConditionSet, kind, meta::null_is_default,
    node_pool::is_default, requirements::NodeSelectorRequirement,
};

/// Changes what the planner believes about prices and capacity of instance types.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeOverlay {
    pub metadata: ObjectMeta,
    pub spec: NodeOverlaySpec,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub status: NodeOverlayStatus,
}

kind!(NodeOverlay, "karpenter.sh", "v1alpha1", "NodeOverlay", "nodeoverlays", false);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeOverlaySpec {
    pub requirements: Vec<NodeSelectorRequirement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_adjustment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Resources>,
    /// 1 to 10000; absent counts as 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeOverlayStatus {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
}

impl NodeOverlay {
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    pub const DEPENDENTS: &[&str] = &[Self::VALIDATION_SUCCEEDED];

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
