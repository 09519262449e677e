//! Where a pod may or would rather run: affinity, anti-affinity and spread.

use serde::{Deserialize, Serialize};

use crate::{
    LabelSelector,
    meta::null_is_default,
    node_pool::is_default,
    requirements::{NodeSelectorRequirement, Operator},
};

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

/// All expressions have to hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "WrittenTerm")]
pub struct NodeSelectorTerm {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_fields: Vec<NodeSelectorRequirement>,
    /// Keys and operators of expressions whose operator nobody knows: no API server takes them, and one pod with such an
    /// expression makes no others unreadable.
    #[serde(skip)]
    pub unknown_operators: Vec<(String, String)>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenTerm {
    #[serde(deserialize_with = "null_is_default")]
    match_expressions: Vec<WrittenExpression>,
    #[serde(deserialize_with = "null_is_default")]
    match_fields: Vec<WrittenExpression>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenExpression {
    key: String,
    operator: Option<String>,
    #[serde(deserialize_with = "null_is_default")]
    values: Vec<String>,
}

impl From<WrittenTerm> for NodeSelectorTerm {
    fn from(written: WrittenTerm) -> Self {
        let mut term = Self::default();
        let WrittenTerm { match_expressions, match_fields } = written;
        for (list, into) in [
            (match_expressions, &mut term.match_expressions),
            (match_fields, &mut term.match_fields),
        ] {
            for WrittenExpression { key, operator, values } in list {
                let text = operator.unwrap_or_else(|| "In".to_owned());
                match Operator::of(&text) {
                    Some(operator) => into.push(NodeSelectorRequirement {
                        key,
                        operator,
                        values,
                        min_values: None,
                    }),
                    None => term.unknown_operators.push((key, text)),
                }
            }
        }
        term
    }
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
