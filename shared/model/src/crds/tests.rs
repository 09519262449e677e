use serde_json::{Value, json};

use super::*;
use crate::meta::{from_value, to_value};

/// Every field of a schema filled with something of its type.
fn filled(schema: &Value) -> Value {
    if let Some(first) = schema.get("enum").and_then(|it| it.get(0)) {
        return first.clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return json!("1");
    }
    if let Some(default) = schema.get("default").filter(|it| !it.is_object() && !it.is_array()) {
        return default.clone();
    }
    match schema["type"].as_str() {
        Some("object") if schema["x-kubernetes-preserve-unknown-fields"] == true => {
            json!({"maxPods": 10})
        }
        Some("object") => {
            if let Some(values) = schema.get("additionalProperties") {
                return json!({"some": filled(values)});
            }
            let Some(fields) = schema.get("properties").and_then(Value::as_object) else {
                return json!({"name": "it"});
            };
            let of = |name: &str, schema: &Value| match name {
                "operator" => json!("In"),
                _ => filled(schema),
            };
            fields.iter().map(|(name, schema)| (name.clone(), of(name, schema))).collect()
        }
        Some("array") => json!([filled(&schema["items"])]),
        Some("boolean") => json!(true),
        Some("integer") => {
            schema.get("minimum").cloned().filter(|it| *it != json!(0)).unwrap_or(json!(7))
        }
        _ if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
        _ => json!("1h"),
    }
}

fn round_trip<K: Kind>(crd: &Crd) {
    let mut full = filled(crd.schema());
    full["apiVersion"] = json!(K::api_version());
    full["kind"] = json!(K::KIND);
    let typed: K = from_value(full.clone()).expect("fits the type");
    assert_eq!(to_value(&typed), full, "a field of {} is lost", K::KIND);
}

#[test]
fn the_types_hold_every_field_of_the_schemas() {
    let crds = all();
    round_trip::<crate::NodePool>(&crds[0]);
    round_trip::<crate::NodeClaim>(&crds[1]);
    round_trip::<crate::EC2NodeClass>(&crds[2]);
    round_trip::<crate::NodeOverlay>(&crds[3]);
    round_trip::<crate::CapacityBuffer>(&crds[4]);
}

#[test] // api 1, cases 1 to 8
fn kinds_as_they_are_served() {
    for (kind, name, scope, short, category, version) in [
        ("NodePool", "nodepools.karpenter.sh", "Cluster", json!(null), "karpenter", "v1"),
        ("NodeClaim", "nodeclaims.karpenter.sh", "Cluster", json!(null), "karpenter", "v1"),
        (
            "EC2NodeClass",
            "ec2nodeclasses.karpenter.k8s.aws",
            "Cluster",
            json!(["ec2nc", "ec2ncs"]),
            "karpenter",
            "v1",
        ),
        (
            "NodeOverlay",
            "nodeoverlays.karpenter.sh",
            "Cluster",
            json!(["overlays"]),
            "karpenter",
            "v1alpha1",
        ),
        (
            "CapacityBuffer",
            "capacitybuffers.autoscaling.x-k8s.io",
            "Namespaced",
            json!(["cb"]),
            "autoscaling",
            "v1beta1",
        ),
    ] {
        let crds = all();
        let crd = crds.iter().find(|it| it.kind == kind).expect(kind);
        let spec = &crd.definition["spec"];
        assert_eq!(crd.name(), name);
        assert_eq!(crd.definition["metadata"]["name"], name);
        assert_eq!(spec["scope"], scope);
        assert_eq!(spec["names"].get("shortNames").cloned().unwrap_or_default(), short);
        assert_eq!(spec["names"]["categories"], json!([category]));
        assert_eq!(spec["versions"][0]["name"], version);
        assert_eq!(spec["versions"][0]["subresources"].get("scale").is_some(), kind == "NodePool");
        let required = &crd.schema()["required"];
        assert_eq!(required.is_array(), kind != "EC2NodeClass", "spec is required");
    }
}

#[test]
fn schemas_are_structural() {
    fn look(schema: &Value, path: &str) {
        let is_typed = schema["type"].is_string() || schema["x-kubernetes-int-or-string"] == true;
        assert!(is_typed, "{path} has no type");
        let has_both =
            schema.get("properties").is_some() && schema.get("additionalProperties").is_some();
        assert!(!has_both, "{path}");
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            look(field, &format!("{path}.{name}"));
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get(inner) {
                look(inner, &format!("{path}[]"));
            }
        }
    }
    for crd in all() {
        look(crd.schema(), crd.kind);
    }
}
