//! template.yaml as JSON. Tags such as `!Ref` and `!GetAtt` are dropped: what stays is the name that they refer to.

use serde_json::{Map, Value};

/// The template of this repository.
///
/// # Panics
/// When it is no YAML.
pub fn template() -> Value {
    serde_saphyr::from_str(include_str!("../../template.yaml")).expect("template.yaml is YAML")
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
