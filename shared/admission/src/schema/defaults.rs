//! Unknown fields and defaults.

use serde_json::{Map, Value};
use spokeshave_model::FieldPath;

use super::{Finding, Schema, Source};

impl Schema {
    /// Removes what the schema does not know, with a finding for each, and nulls that stand for nothing.
    pub(super) fn prune(
        &self,
        value: &mut Value,
        path: &FieldPath,
        is_root: bool,
        findings: &mut Vec<Finding>,
    ) {
        match value {
            Value::Object(map) => self.prune_object(map, path, is_root, findings),
            Value::Array(values) => {
                let Some(items) = &self.items else { return };
                for (at, value) in values.iter_mut().enumerate() {
                    items.prune(value, &path.index(at), false, findings);
                }
            }
            _ => {}
        }
    }

    fn prune_object(
        &self,
        map: &mut Map<String, Value>,
        path: &FieldPath,
        is_root: bool,
        findings: &mut Vec<Finding>,
    ) {
        if self.is_open {
            return;
        }
        let mut removed = Vec::new();
        for (key, value) in map.iter_mut() {
            // Metadata is the API machinery's own and is checked elsewhere.
            if is_root && key == "metadata" {
                if value.is_null() {
                    removed.push(key.clone());
                }
                continue;
            }
            match self.fields.get(key).or(self.values.as_deref()) {
                Some(schema) => {
                    if value.is_null() {
                        removed.push(key.clone());
                    } else if value.is_object() || value.is_array() {
                        schema.prune(value, &path.field(key), false, findings);
                    }
                }
                None => {
                    let at = path.field(key);
                    removed.push(key.clone());
                    findings.push(Finding {
                        source: Source::Schema,
                        message: format!("unknown field {:?}", at.to_string()),
                        field: at,
                        hides_rules: false,
                        ratchets: false,
                    });
                }
            }
        }
        for key in removed {
            map.remove(&key);
        }
    }

    /// Puts defaults in, also into what a default has just put in.
    pub(super) fn fill_in(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, field) in &self.fields {
                    if let Some(default) =
                        field.default.as_ref().filter(|_| !map.contains_key(name))
                    {
                        map.insert(name.clone(), default.clone());
                    }
                    if let Some(value) = map.get_mut(name) {
                        field.fill_in(value);
                    }
                }
                if let Some(values) = &self.values {
                    for value in map.values_mut() {
                        values.fill_in(value);
                    }
                }
            }
            Value::Array(values) => {
                if let Some(items) = &self.items {
                    for value in values {
                        items.fill_in(value);
                    }
                }
            }
            _ => {}
        }
    }

    /// The object as it would be read back: nulls gone and defaults in. Nothing else is looked at.
    pub fn defaulted(&self, mut object: Value) -> Value {
        self.prune(&mut object, &FieldPath::root(), true, &mut Vec::new());
        self.fill_in(&mut object);
        object
    }
}
