//! Label selectors.

use serde::{Deserialize, Serialize};

use crate::meta::StringMap;

/// `matchLabels` and `matchExpressions`; an empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    #[serde(
        skip_serializing_if = "StringMap::is_empty",
        deserialize_with = "crate::meta::null_is_default"
    )]
    pub match_labels: StringMap,
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "crate::meta::null_is_default"
    )]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One expression of a label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelectorRequirement {
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`; anything else matches nothing.
    pub operator: String,
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "crate::meta::null_is_default"
    )]
    pub values: Vec<String>,
}

impl LabelSelector {
    /// `matchLabels` of one label.
    pub fn label(key: &str, value: &str) -> Self {
        Self {
            match_labels: StringMap::from([(key.to_owned(), value.to_owned())]),
            match_expressions: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Whether an object with `labels` is selected. `NotIn` selects objects without the key.
    pub fn matches(&self, labels: &StringMap) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|expression| {
                let value = labels.get(&expression.key);
                match expression.operator.as_str() {
                    "In" => value.is_some_and(|it| expression.values.contains(it)),
                    "NotIn" => value.is_none_or(|it| !expression.values.contains(it)),
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }
}
