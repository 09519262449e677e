//! What a controller finds in a stored object, without looking at the cluster.

use serde_json::Value;
use spokeshave_catalog::expressions::Expression;
use spokeshave_model::{
    CapacityBuffer, EC2NodeClass, FeatureGates, FieldPath, Kind, NodeOverlay, NodePool,
    validation::{self, Problem},
};
use spokeshave_nodeclass::validation::{has_expressions, unsupported_kubelet};

use crate::market;

/// Problems of an admitted object of `kind`, in the order in which a condition lists them. An object that cannot be read into its
/// type has none: admission has said why.
pub fn problems(kind: &str, object: &Value, gates: &FeatureGates) -> Vec<Problem> {
    match kind {
        NodePool::KIND => read::<NodePool>(object)
            .filter(NodePool::is_managed)
            .map_or_else(Vec::new, |it| validation::node_pool(&it)),
        EC2NodeClass::KIND => {
            read::<EC2NodeClass>(object).map_or_else(Vec::new, |it| node_class(&it, gates))
        }
        NodeOverlay::KIND => {
            read::<NodeOverlay>(object).map_or_else(Vec::new, |it| validation::node_overlay(&it))
        }
        CapacityBuffer::KIND => read::<CapacityBuffer>(object)
            .map_or_else(Vec::new, |it| validation::capacity_buffer(&it)),
        _ => Vec::new(),
    }
}

pub(crate) fn read<K: Kind>(object: &Value) -> Option<K> {
    K::deserialize(object).ok()
}

/// The kubelet settings of a class: the first kind of problem that there is hides the others, as in the condition.
fn node_class(class: &EC2NodeClass, gates: &FeatureGates) -> Vec<Problem> {
    let kubelet = class.spec.kubelet.as_ref();
    let path = FieldPath::parse("spec.kubelet");
    let wrong = validation::kubelet(kubelet);
    if !wrong.is_empty() {
        return wrong;
    }
    let expressions = expressions(class);
    if has_expressions(kubelet) && !gates.node_class_cel {
        let message =
            "spec.kubelet contains a CEL expression, but the NodeClassCEL feature gate is disabled";
        let field = expressions.into_iter().next().map_or(path, |(field, _)| field);
        return vec![Problem::new(field, message)];
    }
    let invalid: Vec<Problem> = expressions
        .iter()
        .filter_map(|(field, text)| {
            let error = Expression::new(text).check().err()?;
            Some(Problem::new(field.clone(), format!("{field}: {error}")))
        })
        .collect();
    if !invalid.is_empty() {
        return invalid;
    }
    if let Some(message) = unsupported_kubelet(class.spec.ami_family(), kubelet) {
        return vec![Problem::new(path, message)];
    }
    if expressions.is_empty() { Vec::new() } else { market::failing_expressions(class) }
}

/// The texts of `spec.kubelet` that are expressions, with their fields.
fn expressions(class: &EC2NodeClass) -> Vec<(FieldPath, String)> {
    let Some(kubelet) = &class.spec.kubelet else { return Vec::new() };
    let path = FieldPath::parse("spec.kubelet");
    let mut found = Vec::new();
    if let Some(text) = kubelet.get("maxPods").and_then(Value::as_str) {
        found.push((path.field("maxPods"), text.to_owned()));
    }
    for field in ["kubeReserved", "systemReserved"] {
        let entries = kubelet.get(field).and_then(Value::as_object).into_iter().flatten();
        for (key, value) in entries {
            if let Some(text) = value.as_str()
                && text.parse::<spokeshave_model::Quantity>().is_err()
            {
                found.push((path.field(field).key(key), text.to_owned()));
            }
        }
    }
    found
}
