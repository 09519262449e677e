//! template.yaml as JSON. Tags such as `!Ref` and `!GetAtt` are dropped: what stays is the name that they refer to.
//! Choices by `MakesInterruptionQueue`, `HasKey` and `HasLongName` are made as the parameters' defaults make them.

use serde_json::{Map, Value};

/// The template of this repository.
///
/// # Panics
/// When it is no YAML.
pub fn template() -> Value {
    let template = serde_saphyr::from_str(include_str!("../../template.yaml"));
    chosen(template.expect("template.yaml is YAML")).expect("a template")
}

/// Branches that are taken by default; `None` when what is chosen is nothing.
fn chosen(value: Value) -> Option<Value> {
    match value {
        Value::Array(items) => {
            let branch = match items.first().and_then(Value::as_str) {
                Some("MakesInterruptionQueue") if items.len() == 3 => Some(1),
                Some("HasKey" | "HasLongName") if items.len() == 3 => Some(2),
                _ => None,
            };
            match branch {
                Some(branch) => {
                    let taken = items.into_iter().nth(branch)?;
                    if taken == "AWS::NoValue" { None } else { chosen(taken) }
                }
                None => Some(items.into_iter().filter_map(chosen).collect()),
            }
        }
        Value::Object(fields) => {
            let fields = fields.into_iter().filter_map(|(name, it)| Some((name, chosen(it)?)));
            Some(Value::Object(fields.collect()))
        }
        other => Some(other),
    }
}

/// Properties of a resource.
///
/// # Panics
/// When there is no such resource.
pub fn properties<'a>(template: &'a Value, name: &str) -> &'a Value {
    template
        .pointer(&format!("/Resources/{name}/Properties"))
        .unwrap_or_else(|| panic!("no resource {name}"))
}

/// Properties of the resources of a type, by name.
///
/// # Panics
/// When the template has no resources.
pub fn resources(template: &Value, kind: &str) -> Map<String, Value> {
    let all = template["Resources"].as_object().expect("resources");
    let of_kind = all.iter().filter(|(_, it)| it["Type"] == kind);
    of_kind.map(|(name, it)| (name.clone(), it["Properties"].clone())).collect()
}
