//! `metadata`, which the API server checks by itself for every kind.

use serde_json::{Map, Value};
use spokeshave_model::{FieldPath, validation::names};

use crate::schema::{Finding, Source};

/// What a field of the metadata holds.
#[derive(Clone, Copy, PartialEq)]
enum Holds {
    Text,
    Time,
    Integer,
    /// Texts by key.
    Map,
    List,
}

const FIELDS: &[(&str, Holds)] = &[
    ("annotations", Holds::Map),
    ("creationTimestamp", Holds::Time),
    ("deletionGracePeriodSeconds", Holds::Integer),
    ("deletionTimestamp", Holds::Time),
    ("finalizers", Holds::List),
    ("generateName", Holds::Text),
    ("generation", Holds::Integer),
    ("labels", Holds::Map),
    ("managedFields", Holds::List),
    ("name", Holds::Text),
    ("namespace", Holds::Text),
    ("ownerReferences", Holds::List),
    ("resourceVersion", Holds::Text),
    ("selfLink", Holds::Text),
    ("uid", Holds::Text),
];

/// Most bytes of all annotations together, keys included: 256 KiB, as in the API server.
const MAX_ANNOTATIONS: usize = 256 * 1024;

fn finding(field: FieldPath, message: String, hides_rules: bool) -> Finding {
    Finding { source: Source::Schema, field, message, hides_rules, ratchets: false }
}

fn wrong_type(field: FieldPath, value: &Value, wanted: &str) -> Finding {
    let message = format!("Invalid value: {value}: {field} in body must be of type {wanted}");
    finding(field, message, true)
}

fn unknown(field: FieldPath) -> Finding {
    let message = format!("unknown field {:?}", field.to_string());
    finding(field, message, false)
}

/// What is wrong with an object's metadata. That it is no object at all is found by the schema.
pub fn check(object: &Value) -> Vec<Finding> {
    let path = FieldPath::root().field("metadata");
    let nothing = Map::new();
    let fields = match object.get("metadata") {
        None | Some(Value::Null) => &nothing,
        Some(Value::Object(fields)) => fields,
        Some(_) => return Vec::new(),
    };
    let mut findings = Vec::new();
    for (key, value) in fields {
        match FIELDS.iter().find(|(name, _)| name == key) {
            Some((_, holds)) => type_problems(value, &path.field(key), *holds, &mut findings),
            None => findings.push(unknown(path.field(key))),
        }
    }
    if !findings.iter().any(|it| it.hides_rules) {
        name_problems(fields, &path, &mut findings);
    }
    key_problems(fields, &path, &mut findings);
    finalizer_problems(fields, &path, &mut findings);
    owner_problems(fields, &path, &mut findings);
    findings
}

fn type_problems(value: &Value, path: &FieldPath, holds: Holds, findings: &mut Vec<Finding>) {
    let mut wrong = |wanted| findings.push(wrong_type(path.clone(), value, wanted));
    match (holds, value) {
        (_, Value::Null) | (Holds::Text, Value::String(_)) | (Holds::List, Value::Array(_)) => {}
        (Holds::Time, Value::String(text)) if text.parse::<jiff::Timestamp>().is_ok() => {}
        (Holds::Integer, Value::Number(number)) if number.is_i64() => {}
        (Holds::Map, Value::Object(entries)) => {
            for (key, value) in entries.iter().filter(|(_, it)| !it.is_string() && !it.is_null()) {
                findings.push(wrong_type(path.field(key), value, "string"));
            }
        }
        (Holds::Text, _) => wrong("string"),
        (Holds::Time, _) => wrong("date-time"),
        (Holds::Integer, _) => wrong("integer"),
        (Holds::Map, _) => wrong("object"),
        (Holds::List, _) => wrong("array"),
    }
}

fn name_problems(fields: &Map<String, Value>, path: &FieldPath, findings: &mut Vec<Finding>) {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let (name, prefix) = (text("name"), text("generateName"));
    if name.is_empty() && prefix.is_empty() {
        let message = "Required value: name or generateName is required".to_owned();
        findings.push(finding(path.field("name"), message, true));
    }
    let mut judge = |field: &str, text: &str, as_name: &str| {
        for why in names::dns_subdomain(as_name) {
            let message = format!("Invalid value: {text:?}: {why}");
            findings.push(finding(path.field(field), message, false));
        }
    };
    if !name.is_empty() {
        judge("name", name, name);
    }
    if !prefix.is_empty() {
        // Five characters follow, so that a dash may be last.
        match prefix.strip_suffix('-') {
            Some(rest) => judge("generateName", prefix, &format!("{rest}a")),
            None => judge("generateName", prefix, prefix),
        }
    }
}

/// Keys of labels and annotations, and the values of labels.
fn key_problems(fields: &Map<String, Value>, path: &FieldPath, findings: &mut Vec<Finding>) {
    for name in ["labels", "annotations"] {
        let Some(entries) = fields.get(name).and_then(Value::as_object) else { continue };
        let mut add = |text: &str, whys: Vec<String>| {
            for why in whys {
                let message = format!("Invalid value: {text:?}: {why}");
                findings.push(finding(path.field(name), message, false));
            }
        };
        let mut size = 0;
        for (key, value) in entries {
            let value = value.as_str().unwrap_or_default();
            size += key.len() + value.len();
            if name == "labels" {
                add(key, names::qualified_name(key));
                add(value, names::label_value(value));
            } else {
                // Annotation keys are compared in lower case, and their values are free.
                add(key, names::qualified_name(&key.to_lowercase()));
            }
        }
        if name == "annotations" && size > MAX_ANNOTATIONS {
            let message = format!("Too long: may not be more than {MAX_ANNOTATIONS} bytes");
            findings.push(finding(path.field(name), message, true));
        }
    }
}

fn finalizer_problems(fields: &Map<String, Value>, path: &FieldPath, findings: &mut Vec<Finding>) {
    let path = path.field("finalizers");
    let finalizers = fields.get("finalizers").and_then(Value::as_array).into_iter().flatten();
    let mut seen = Vec::new();
    for (at, value) in finalizers.enumerate() {
        let Some(text) = value.as_str() else {
            findings.push(wrong_type(path.index(at), value, "string"));
            continue;
        };
        for why in names::qualified_name(text) {
            findings.push(finding(path.clone(), format!("Invalid value: {text:?}: {why}"), false));
        }
        seen.push(text);
    }
    if seen.contains(&"orphan") && seen.contains(&"foregroundDeletion") {
        let all = seen.iter().map(|it| format!("{it:?}")).collect::<Vec<_>>().join(",");
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        findings.push(finding(path, format!("Invalid value: [{all}]: {why}"), false));
    }
}

fn owner_problems(fields: &Map<String, Value>, path: &FieldPath, findings: &mut Vec<Finding>) {
    let path = path.field("ownerReferences");
    let Some(owners) = fields.get("ownerReferences").and_then(Value::as_array) else { return };
    let mut n_controllers = 0;
    for (at, owner) in owners.iter().enumerate() {
        let at = path.index(at);
        let Some(owner) = owner.as_object() else {
            findings.push(wrong_type(at, owner, "object"));
            continue;
        };
        for (key, value) in owner {
            match (key.as_str(), value) {
                (_, Value::Null)
                | ("apiVersion" | "kind" | "name" | "uid", Value::String(_))
                | ("controller" | "blockOwnerDeletion", Value::Bool(_)) => {}
                ("apiVersion" | "kind" | "name" | "uid", _) => {
                    findings.push(wrong_type(at.field(key), value, "string"));
                }
                ("controller" | "blockOwnerDeletion", _) => {
                    findings.push(wrong_type(at.field(key), value, "boolean"));
                }
                _ => findings.push(unknown(at.field(key))),
            }
        }
        let text = |name: &str| owner.get(name).and_then(Value::as_str).unwrap_or_default();
        // The API server names these fields without the position.
        let api_version = text("apiVersion");
        let has_version = match api_version.split_once('/') {
            None => !api_version.is_empty(),
            Some((_, version)) => !version.is_empty() && !version.contains('/'),
        };
        if !has_version {
            let message = format!("Invalid value: {api_version:?}: version must not be empty");
            findings.push(finding(path.field("apiVersion"), message, false));
        }
        for name in ["kind", "name", "uid"].into_iter().filter(|it| text(it).is_empty()) {
            let message = "Invalid value: \"\": must not be empty".to_owned();
            findings.push(finding(path.field(name), message, false));
        }
        if api_version == "v1" && text("kind") == "Event" {
            let message = "/v1, Kind=Event is disallowed from being an owner".to_owned();
            findings.push(finding(path.clone(), message, false));
        }
        n_controllers += usize::from(owner.get("controller") == Some(&Value::Bool(true)));
    }
    if n_controllers > 1 {
        let message = "Only one reference can have Controller set to true".to_owned();
        findings.push(finding(path, message, false));
    }
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
            (json!({"name": "a", "labels": {"a": null}}), None),
            (json!({"name": "a", "labels": {"a": "b c"}}), Some("metadata.labels")),
            (json!({"name": "a", "labels": []}), Some("metadata.labels")),
            (json!({"generateName": "a_"}), Some("metadata.generateName")),
            (json!({"name": "a", "generateName": "B"}), Some("metadata.generateName")),
            (json!({"name": "a", "annotations": {"a": 1}}), Some("metadata.annotations.a")),
            (
                json!({"name": "a", "annotations": {"a": "x".repeat(262_144)}}),
                Some("metadata.annotations"),
            ),
            (json!({"name": "a", "annotations": {"a": "x".repeat(262_143)}}), None),
            (json!({"name": "a", "finalizers": ["a/b"]}), None),
            (json!({"name": "a", "finalizers": ["a b"]}), Some("metadata.finalizers")),
            (json!({"name": "a", "finalizers": [1]}), Some("metadata.finalizers[0]")),
            (
                json!({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}),
                Some("metadata.finalizers"),
            ),
            (
                json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}),
                Some("metadata.ownerReferences.uid"),
            ),
            (
                json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "x": 1}]}),
                Some("metadata.ownerReferences[0].x"),
            ),
            (json!({"name": "a", "creationTimestamp": null}), None),
            (json!({"name": "a", "creationTimestamp": "x"}), Some("metadata.creationTimestamp")),
            (json!({"name": "a", "generation": "x"}), Some("metadata.generation")),
            (json!({"name": "a", "uid": 3}), Some("metadata.uid")),
            (Value::Null, Some("metadata.name")),
        ] {
            let findings = check(&json!({"metadata": metadata}));
            let fields: Vec<String> = findings.iter().map(|it| it.field.to_string()).collect();
            assert_eq!(fields, field.into_iter().collect::<Vec<_>>(), "{metadata}");
        }
    }
}
