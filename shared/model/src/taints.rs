//! Taints and tolerations (`spec` scheduling 4).

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a taint does to pods that do not tolerate it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum TaintEffect {
    #[default]
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

/// A taint of a node, claim or pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: TaintEffect,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Timestamp>,
}

impl Taint {
    pub fn new(key: &str, value: &str, effect: TaintEffect) -> Self {
        Self { key: key.to_owned(), value: value.to_owned(), effect, time_added: None }
    }

    /// Same key and effect: two such taints cannot stand on one node.
    pub fn matches(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

impl fmt::Display for Taint {
    /// `key=value:effect`, or `key:effect` without a value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}:{:?}", self.key, self.effect)
        } else {
            write!(f, "{}={}:{:?}", self.key, self.value, self.effect)
        }
    }
}

/// A toleration of a pod. Empty fields mean what the API says they mean.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// `Equal` (also when empty), `Exists`, `Lt` or `Gt`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operator: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Empty: every effect.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// Whether this toleration covers `taint`, as Kubernetes' scheduler decides it.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let effect = match taint.effect {
            TaintEffect::NoSchedule => "NoSchedule",
            TaintEffect::PreferNoSchedule => "PreferNoSchedule",
            TaintEffect::NoExecute => "NoExecute",
        };
        if !self.effect.is_empty() && self.effect != effect {
            return false;
        }
        if !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        match self.operator.as_str() {
            "" | "Equal" => !self.key.is_empty() && self.value == taint.value,
            "Exists" => true,
            "Lt" | "Gt" => match (self.value.parse::<i64>(), taint.value.parse::<i64>()) {
                (Ok(bound), Ok(value)) if !self.key.is_empty() => {
                    if self.operator == "Lt" {
                        value < bound
                    } else {
                        value > bound
                    }
                }
                _ => false,
            },
            _ => false,
        }
    }
}

/// The first of `taints` that no toleration covers.
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints.iter().find(|taint| !tolerations.iter().any(|it| it.tolerates(taint)))
}
