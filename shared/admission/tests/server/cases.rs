//! The cases of `answers.json`.

use serde_json::{Value, json};

/// One manifest and what the API server said.
pub struct Case {
    /// The case as it is written down, for messages.
    pub name: String,
    pub object: Value,
    /// The object that it replaces.
    pub old: Option<Value>,
    /// Field and message, sorted; none when it was admitted.
    pub findings: Vec<[String; 2]>,
}

/// All of them.
pub fn all() -> Vec<Case> {
    let answers: Value = serde_json::from_str(include_str!("answers.json")).expect("JSON");
    let cases = answers["cases"].as_array().expect("cases");
    let case = |case: &Value| {
        let (object, old) = manifests(case, &answers["bases"]);
        let mut findings: Vec<[String; 2]> =
            serde_json::from_value(case["findings"].clone()).expect("findings");
        findings.sort();
        Case { name: case.to_string(), object, old, findings }
    };
    cases.iter().map(case).collect()
}

fn api_version(kind: &str) -> &'static str {
    match kind {
        "EC2NodeClass" => "karpenter.k8s.aws/v1",
        "NodeOverlay" => "karpenter.sh/v1alpha1",
        "CapacityBuffer" => "autoscaling.x-k8s.io/v1beta1",
        _ => "karpenter.sh/v1",
    }
}

/// The manifests of a case: as it is, and as it was for an update.
fn manifests(case: &Value, bases: &Value) -> (Value, Option<Value>) {
    let kind = case["kind"].as_str().expect("a kind");
    let object = |spec: Option<&Value>| {
        let mut object = json!({
            "apiVersion": api_version(kind), "kind": kind, "metadata": {"name": "x"},
        });
        if let Some(spec) = spec {
            object["spec"] = spec.clone();
        }
        object
    };
    let Some(at) = case.get("at").and_then(Value::as_str) else {
        return (object(case.get("spec")), case.get("old").map(|it| object(Some(it))));
    };
    let base = object(Some(&bases[kind]));
    let old = (case.get("update") == Some(&json!(true))).then(|| base.clone());
    (changed(base, at, case.get("value")), old)
}

/// `object` with `value`, or nothing, at a JSON pointer.
fn changed(mut object: Value, at: &str, value: Option<&Value>) -> Value {
    let (parent, last) = at.rsplit_once('/').expect("a pointer");
    let last = last.replace("~1", "/").replace("~0", "~");
    match object.pointer_mut(parent).expect("the base has it") {
        Value::Array(items) => {
            let at: usize = last.parse().expect("a position");
            match value {
                Some(value) => items[at] = value.clone(),
                None => drop(items.remove(at)),
            }
        }
        parent => match value {
            Some(value) => parent[&last] = value.clone(),
            None => drop(parent.as_object_mut().expect("an object").remove(&last)),
        },
    }
    object
}
