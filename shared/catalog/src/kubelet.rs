//! `spec.kubelet` of an EC2NodeClass, as far as capacity depends on it (`spec` aws-capacity 4.3, 5).

use std::collections::BTreeMap;

use serde_json::Value;
use spokeshave_model::{EC2NodeClass, Quantity};

use crate::expressions::Expression;

/// A kubelet setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.kubelet.{field}: {problem}")]
pub struct KubeletError {
    /// `maxPods`, `kubeReserved.memory`, ...
    pub field: String,
    pub problem: String,
}

impl KubeletError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// A number, or an expression that gives one (gate `NodeClassCEL`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaxPods {
    Number(i64),
    Expression(Expression),
}

/// A reserved amount, or an expression that gives one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    Amount(Quantity),
    Expression(Expression),
}

/// A threshold of an eviction signal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    Amount(Quantity),
    /// Of the resource's capacity; 100 switches the signal off.
    Percent(f64),
}

/// What capacity and overhead read of `spec.kubelet`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubeletSettings {
    pub max_pods: Option<MaxPods>,
    /// 0: not set.
    pub pods_per_core: i64,
    pub kube_reserved: BTreeMap<String, Reserved>,
    pub system_reserved: BTreeMap<String, Reserved>,
    /// `memory.available` of `evictionHard`.
    pub memory_threshold: Option<Threshold>,
    /// `nodefs.available` of `evictionHard`.
    pub storage_threshold: Option<Threshold>,
}

/// How a field of the kubelet configuration is written.
#[derive(Clone, Copy)]
enum Shape {
    Integer,
    Texts,
    TextList,
    Flag,
}

/// The typed fields of the API; any other field is the image's business.
const SHAPES: &[(&str, Shape)] = &[
    ("clusterDNS", Shape::TextList),
    ("cpuCFSQuota", Shape::Flag),
    ("evictionHard", Shape::Texts),
    ("evictionMaxPodGracePeriod", Shape::Integer),
    ("evictionSoft", Shape::Texts),
    ("evictionSoftGracePeriod", Shape::Texts),
    ("imageGCHighThresholdPercent", Shape::Integer),
    ("imageGCLowThresholdPercent", Shape::Integer),
    ("kubeReserved", Shape::Texts),
    ("podsPerCore", Shape::Integer),
    ("systemReserved", Shape::Texts),
];

fn integer(value: &Value) -> Option<i64> {
    value.as_i64().filter(|it| i32::try_from(*it).is_ok())
}

fn check(field: &str, value: &Value, shape: Shape) -> Result<(), KubeletError> {
    let wanted = match shape {
        Shape::Integer if integer(value).is_none() => "a whole number",
        Shape::Flag if !value.is_boolean() => "true or false",
        Shape::TextList
            if !value.as_array().is_some_and(|list| list.iter().all(Value::is_string)) =>
        {
            "a list of texts"
        }
        Shape::Texts
            if !value.as_object().is_some_and(|map| map.values().all(Value::is_string)) =>
        {
            "a map of texts"
        }
        _ => return Ok(()),
    };
    Err(KubeletError::new(field, format!("must be {wanted}, not {value}")))
}

impl KubeletSettings {
    /// Reads `spec.kubelet`; absent and null are no settings.
    ///
    /// # Errors
    /// The first field of the wrong type, or a threshold that is neither a quantity nor a percentage.
    pub fn of(class: &EC2NodeClass) -> Result<Self, KubeletError> {
        let mut settings = Self::default();
        let Some(kubelet) = &class.spec.kubelet else { return Ok(settings) };
        let field = |name: &str| kubelet.get(name).filter(|it| !it.is_null());
        for (name, shape) in SHAPES {
            if let Some(value) = field(name) {
                check(name, value, *shape)?;
            }
        }
        settings.max_pods = match field("maxPods") {
            None => None,
            Some(Value::String(text)) => Some(MaxPods::Expression(Expression::new(text))),
            Some(value) => match integer(value) {
                Some(number) => Some(MaxPods::Number(number)),
                None => {
                    return Err(KubeletError::new(
                        "maxPods",
                        format!("must be a whole number or an expression, not {value}"),
                    ));
                }
            },
        };
        settings.pods_per_core = field("podsPerCore").and_then(integer).unwrap_or(0);
        settings.kube_reserved = reserved(field("kubeReserved"));
        settings.system_reserved = reserved(field("systemReserved"));
        let threshold = |signal: &str| {
            let text = field("evictionHard")?.get(signal)?.as_str()?;
            Some(parse_threshold(text).ok_or_else(|| {
                KubeletError::new(
                    format!("evictionHard[{signal}]"),
                    format!("{text:?} is neither a quantity nor a percentage"),
                )
            }))
        };
        settings.memory_threshold = threshold("memory.available").transpose()?;
        settings.storage_threshold = threshold("nodefs.available").transpose()?;
        Ok(settings)
    }

    /// Every expression with its field, in the order of fields.
    pub fn expressions(&self) -> impl Iterator<Item = (String, &Expression)> {
        let max_pods = self.max_pods.iter().filter_map(|it| match it {
            MaxPods::Expression(text) => Some(("maxPods".to_owned(), text)),
            MaxPods::Number(_) => None,
        });
        let maps =
            [("kubeReserved", &self.kube_reserved), ("systemReserved", &self.system_reserved)];
        let reserved = maps.into_iter().flat_map(|(field, map)| {
            map.iter().filter_map(move |(key, it)| match it {
                Reserved::Expression(text) => Some((format!("{field}.{key}"), text)),
                Reserved::Amount(_) => None,
            })
        });
        max_pods.chain(reserved)
    }
}

fn reserved(field: Option<&Value>) -> BTreeMap<String, Reserved> {
    let entries = field.and_then(Value::as_object).into_iter().flatten();
    entries
        .filter_map(|(key, value)| {
            let text = value.as_str()?;
            let reserved = match text.parse() {
                Ok(amount) => Reserved::Amount(amount),
                Err(_) => Reserved::Expression(Expression::new(text)),
            };
            Some((key.clone(), reserved))
        })
        .collect()
}

fn parse_threshold(text: &str) -> Option<Threshold> {
    match text.strip_suffix('%') {
        Some(number) => {
            let percent: f64 = number.parse().ok()?;
            percent.is_finite().then_some(Threshold::Percent(percent))
        }
        None => text.parse().ok().map(Threshold::Amount),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(kubelet: Value) -> Result<KubeletSettings, KubeletError> {
        let mut class = EC2NodeClass::default();
        class.spec.kubelet = serde_json::from_value(kubelet).expect("an object");
        KubeletSettings::of(&class)
    }

    #[test] // aws-capacity 2, case 5
    fn wrong_types_are_refused_by_field() {
        for (kubelet, message) in [
            (
                json!({"maxPods": [1]}),
                "spec.kubelet.maxPods: must be a whole number or an expression, not [1]",
            ),
            (
                json!({"maxPods": 1.5}),
                "spec.kubelet.maxPods: must be a whole number or an expression, not 1.5",
            ),
            (
                json!({"podsPerCore": "4"}),
                "spec.kubelet.podsPerCore: must be a whole number, not \"4\"",
            ),
            (
                json!({"kubeReserved": {"cpu": 1}}),
                "spec.kubelet.kubeReserved: must be a map of texts, not {\"cpu\":1}",
            ),
            (
                json!({"evictionHard": {"memory.available": "lots"}}),
                "spec.kubelet.evictionHard[memory.available]: \"lots\" is neither a quantity nor a percentage",
            ),
            (
                json!({"clusterDNS": "10.0.0.10"}),
                "spec.kubelet.clusterDNS: must be a list of texts, not \"10.0.0.10\"",
            ),
        ] {
            assert_eq!(read(kubelet).expect_err(message).to_string(), message);
        }
    }

    #[test]
    fn absent_null_and_foreign_fields() {
        assert_eq!(
            read(json!({"maxPods": null, "anything": {"else": 1}})),
            Ok(KubeletSettings::default())
        );
        assert_eq!(KubeletSettings::of(&EC2NodeClass::default()), Ok(KubeletSettings::default()));
    }
}
