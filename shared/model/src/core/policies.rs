//! What bounds pods from outside: disruption budgets, priorities, limits, and the namespaces they are in.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    LabelSelector, ObjectMeta, Resources, kind, meta::null_is_default, node_pool::is_default,
};

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
