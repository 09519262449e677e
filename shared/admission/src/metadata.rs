//! `metadata`, which the API server checks by itself for every kind.

use serde_json::Value;
use spokeshave_model::{FieldPath, validation::names};

use crate::schema::{Finding, Source};

const FIELDS: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

fn finding(field: FieldPath, message: String, hides_rules: bool) -> Finding {
    Finding { source: Source::Schema, field, message, hides_rules, ratchets: false }
}

/// What is wrong with an object's metadata.
pub fn check(object: &Value) -> Vec<Finding> {
    let path = FieldPath::root().field("metadata");
    let empty = Value::Object(serde_json::Map::new());
    let metadata = object.get("metadata").filter(|it| !it.is_null()).unwrap_or(&empty);
    let Some(fields) = metadata.as_object() else {
        let message = format!("Invalid value: {path} in body must be of type object");
        return vec![finding(path, message, true)];
    };
    let mut findings = Vec::new();
    for key in fields.keys().filter(|it| !FIELDS.contains(&it.as_str())) {
        let at = path.field(key);
        let message = format!("unknown field {:?}", at.to_string());
        findings.push(finding(at, message, false));
    }
    for name in ["name", "generateName", "namespace"] {
        if let Some(value) = fields.get(name).filter(|it| !it.is_string() && !it.is_null()) {
            let at = path.field(name);
            let message = format!("Invalid value: {value}: {at} in body must be of type string");
            findings.push(finding(at, message, true));
        }
    }
    for name in ["labels", "annotations"] {
        let at = path.field(name);
        match fields.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::Object(entries)) => {
                for (key, value) in entries.iter().filter(|(_, it)| !it.is_string()) {
                    let at = at.field(key);
                    let message =
                        format!("Invalid value: {value}: {at} in body must be of type string");
                    findings.push(finding(at, message, true));
                }
                let texts = entries.iter().filter_map(|(key, it)| Some((key, it.as_str()?)));
                for (key, value) in texts {
                    // Annotation keys are compared in lower case, and their values are free.
                    let lower = key.to_lowercase();
                    let is_label = name == "labels";
                    let as_key = names::qualified_name(if is_label { key } else { &lower });
                    let as_value = if is_label { names::label_value(value) } else { Vec::new() };
                    for why in as_key {
                        let message = format!("Invalid value: {key:?}: {why}");
                        findings.push(finding(at.field(key), message, false));
                    }
                    for why in as_value {
                        let message = format!("Invalid value: {value:?}: {why}");
                        findings.push(finding(at.field(key), message, false));
                    }
                }
            }
            Some(value) => {
                let message =
                    format!("Invalid value: {value}: {at} in body must be of type object");
                findings.push(finding(at, message, true));
            }
        }
    }
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let (name, prefix) = (text("name"), text("generateName"));
    let is_text = |name: &str| fields.get(name).is_none_or(|it| it.is_string() || it.is_null());
    if name.is_empty() && prefix.is_empty() && is_text("name") && is_text("generateName") {
        let message = "Required value: name or generateName is required".to_owned();
        findings.push(finding(path.field("name"), message, true));
    }
    if !name.is_empty() {
        for why in names::dns_subdomain(name) {
            let message = format!("Invalid value: {name:?}: {why}");
            findings.push(finding(path.field("name"), message, false));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_labels() {
        for (metadata, field) in [
            (json!({"name": "default"}), None),
            (json!({"generateName": "default-"}), None),
            (
                json!({"name": "a.b-c", "labels": {"example.com/a": "b"}, "annotations": {"A/b": "x y"}}),
                None,
            ),
            (json!({}), Some("metadata.name")),
            (json!({"name": "Upper"}), Some("metadata.name")),
            (json!({"name": 3}), Some("metadata.name")),
            (json!({"name": "a", "label": {}}), Some("metadata.label")),
            (json!({"name": "a", "labels": {"a": 1}}), Some("metadata.labels.a")),
            (json!({"name": "a", "labels": {"a": "b c"}}), Some("metadata.labels.a")),
            (json!({"name": "a", "labels": []}), Some("metadata.labels")),
            (json!("x"), Some("metadata")),
        ] {
            let findings = check(&json!({"metadata": metadata}));
            let fields: Vec<String> = findings.iter().map(|it| it.field.to_string()).collect();
            assert_eq!(fields, field.into_iter().collect::<Vec<_>>(), "{metadata}");
        }
    }
}
