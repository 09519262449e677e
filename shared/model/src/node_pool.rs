//! NodePool, `karpenter.sh/v1` (`spec` api 4 and 5).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Condition, ObjectMeta, Resources, Taint,
    conditions::ConditionSet,
    duration::{NillableDuration, PlainDuration},
    kind,
    meta::{StringMap, null_is_default},
    present::Present,
    requirements::NodeSelectorRequirement,
};

/// A pool: what nodes may be made, how many, and how they may be disrupted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePool {
    pub metadata: ObjectMeta,
    pub spec: NodePoolSpec,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub status: NodePoolStatus,
}

kind!(NodePool, "karpenter.sh", "v1", "NodePool", "nodepools", false);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolSpec {
    pub template: NodeClaimTemplate,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruption: Option<Disruption>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Resources>,
    /// 1 to 100; absent counts as 0. Higher comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// Present: a static pool of so many nodes (gate `StaticCapacity`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}

/// What the claims of a pool are made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimTemplate {
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub metadata: TemplateMeta,
    pub spec: NodeClaimTemplateSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateMeta {
    #[serde(skip_serializing_if = "Present::is_absent")]
    pub labels: Present<StringMap>,
    #[serde(skip_serializing_if = "Present::is_absent")]
    pub annotations: Present<StringMap>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimTemplateSpec {
    pub node_class_ref: NodeClassRef,
    pub requirements: Vec<NodeSelectorRequirement>,
    #[serde(skip_serializing_if = "Present::is_absent")]
    pub taints: Present<Vec<Taint>>,
    #[serde(skip_serializing_if = "Present::is_absent")]
    pub startup_taints: Present<Vec<Taint>>,
    /// CRD default 720h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<NillableDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<PlainDuration>,
}

/// A reference to the node class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClassRef {
    pub group: String,
    pub kind: String,
    pub name: String,
}

impl NodeClassRef {
    /// A reference to an EC2NodeClass.
    pub fn ec2(name: &str) -> Self {
        Self { group: "karpenter.k8s.aws".into(), kind: "EC2NodeClass".into(), name: name.into() }
    }

    /// Whether the objects that refer so are ours: `karpenter.k8s.aws` / `EC2NodeClass`.
    pub fn is_managed(&self) -> bool {
        self.group == "karpenter.k8s.aws" && self.kind == "EC2NodeClass"
    }

    /// What is wrong with a reference into our group whose kind nobody serves, such as `ec2nodeclass`.
    pub fn unserved(&self) -> Option<String> {
        let Self { group, kind, .. } = self;
        (group == "karpenter.k8s.aws" && kind != "EC2NodeClass").then(|| {
            format!("{group} has no kind {kind:?}, its node classes are of kind EC2NodeClass")
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disruption {
    /// CRD default 0s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consolidate_after: Option<NillableDuration>,
    /// `WhenEmpty`, `WhenEmptyOrUnderutilized` (CRD default) or `Balanced`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consolidation_policy: Option<String>,
    /// CRD default: one budget of 10%. An empty list is kept apart from an absent one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budgets: Option<Vec<Budget>>,
}

/// How many nodes of the pool may be disrupted at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    /// `Underutilized`, `Empty`, `Drifted`; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<String>>,
    /// A count, or a percentage such as `10%`.
    pub nodes: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<PlainDuration>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolStatus {
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
}

impl NodePool {
    /// Condition: the runtime validation passed.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// Condition: the class is ready.
    pub const NODE_CLASS_READY: &str = "NodeClassReady";
    /// Condition: recent claims registered (informational).
    pub const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";
    /// What `Ready` is made of.
    pub const DEPENDENTS: &[&str] = &[Self::VALIDATION_SUCCEEDED, Self::NODE_CLASS_READY];

    /// Whether the pool's class is an EC2NodeClass; other pools are ignored completely.
    pub fn is_managed(&self) -> bool {
        self.spec.template.spec.node_class_ref.is_managed()
    }

    /// Whether the pool is of fixed size.
    pub fn is_static(&self) -> bool {
        self.spec.replicas.is_some()
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

    /// `spec.weight`, 0 when absent.
    pub fn weight(&self) -> i32 {
        self.spec.weight.unwrap_or(0)
    }
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
