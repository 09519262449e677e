//! Types, bounds and patterns, with the texts of the API server.

use serde_json::Value;
use spokeshave_model::FieldPath;

use super::{Finding, ListType, Schema, Source, Type};

/// What a value is called in messages.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(it) if it.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A value as messages quote it.
fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

struct Problem {
    message: String,
    hides_rules: bool,
}

fn plain(message: String) -> Problem {
    Problem { message, hides_rules: false }
}

fn hiding(message: String) -> Problem {
    Problem { message, hides_rules: true }
}

impl Schema {
    /// Everything that the schema has against `value`, outside in.
    pub(super) fn check(&self, value: &Value, path: &FieldPath, findings: &mut Vec<Finding>) {
        let mut add = |field: FieldPath, problem: Problem| {
            findings.push(Finding {
                source: Source::Schema,
                field,
                message: problem.message,
                hides_rules: problem.hides_rules,
                ratchets: true,
            });
        };
        if let Some(problem) = self.wrong_type(value, path) {
            add(path.clone(), problem);
            return;
        }
        if !self.one_of.is_empty() && !self.one_of.contains(value) {
            let allowed: Vec<String> = self.one_of.iter().map(quoted).collect();
            let message = format!(
                "Unsupported value: {}: supported values: {}",
                quoted(value),
                allowed.join(", ")
            );
            add(path.clone(), hiding(message));
        }
        match value {
            Value::String(text) => {
                for problem in self.text_problems(text, path) {
                    add(path.clone(), problem);
                }
            }
            Value::Number(_) => {
                for problem in self.number_problems(value, path) {
                    add(path.clone(), problem);
                }
            }
            Value::Array(values) => {
                for problem in self.list_problems(values, path) {
                    add(path.clone(), problem);
                }
                for (at, problem) in self.repeats(values) {
                    add(path.index(at), problem);
                }
                if let Some(items) = &self.items {
                    for (at, value) in values.iter().enumerate() {
                        items.check(value, &path.index(at), findings);
                    }
                }
            }
            Value::Object(map) => {
                if let Some(most) = self.max_fields.filter(|most| map.len() > *most) {
                    let message =
                        format!("Too many: {}: must have at most {most} items", map.len());
                    add(path.clone(), hiding(message));
                }
                for name in self.required.iter().filter(|it| !map.contains_key(*it)) {
                    add(path.field(name), hiding("Required value".into()));
                }
                for (key, value) in map {
                    if let Some(schema) = self.fields.get(key).or(self.values.as_deref()) {
                        schema.check(value, &path.field(key), findings);
                    }
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn wrong_type(&self, value: &Value, path: &FieldPath) -> Option<Problem> {
        let wrong = |wanted: &str| {
            let found = type_name(value);
            Some(hiding(format!(
                "Invalid value: \"{found}\": {path} in body must be of type {wanted}: \"{found}\""
            )))
        };
        if self.is_int_or_string {
            let fits = value.is_string() || is_whole(value);
            return if fits { None } else { wrong("integer or string") };
        }
        let wanted = self.type_?;
        let fits = match wanted {
            Type::Object => value.is_object(),
            Type::Array => value.is_array(),
            Type::Text => value.is_string(),
            Type::Integer => is_whole(value),
            Type::Boolean => value.is_boolean(),
        };
        if fits { None } else { wrong(wanted.name()) }
    }

    fn text_problems(&self, text: &str, path: &FieldPath) -> Vec<Problem> {
        let mut problems = Vec::new();
        let n_characters = text.chars().count();
        if let Some(most) = self.max_length.filter(|most| n_characters > *most) {
            problems.push(hiding(format!("Too long: may not be more than {most} bytes")));
        }
        if let Some(least) = self.min_length.filter(|least| n_characters < *least) {
            problems.push(plain(format!(
                "Invalid value: {text:?}: {path} in body should be at least {least} chars long"
            )));
        }
        if let Some(pattern) = self.pattern.as_ref().filter(|it| !it.is_match(text)) {
            problems.push(plain(format!(
                "Invalid value: {text:?}: {path} in body should match '{pattern}'"
            )));
        }
        if self.is_time && text.parse::<jiff::Timestamp>().is_err() {
            problems.push(hiding(format!(
                "Invalid value: {text:?}: {path} in body must be of type date-time: {text:?}"
            )));
        }
        problems
    }

    fn number_problems(&self, value: &Value, path: &FieldPath) -> Vec<Problem> {
        let mut problems = Vec::new();
        let number = value.as_i64().or_else(|| value.as_f64().map(|it| it as i64));
        let Some(number) = number else { return problems };
        if let Some(least) = self.minimum.filter(|least| number < *least) {
            problems.push(plain(format!(
                "Invalid value: {value}: {path} in body should be greater than or equal to {least}"
            )));
        }
        if let Some(most) = self.maximum.filter(|most| number > *most) {
            problems.push(plain(format!(
                "Invalid value: {value}: {path} in body should be less than or equal to {most}"
            )));
        } else if self.is_int32 && i32::try_from(number).is_err() && problems.is_empty() {
            problems.push(hiding(format!(
                "Invalid value: \"integer\": {path} in body must be of type int32: {value}"
            )));
        }
        problems
    }

    fn list_problems(&self, values: &[Value], path: &FieldPath) -> Vec<Problem> {
        let mut problems = Vec::new();
        let n = values.len();
        if let Some(most) = self.max_items.filter(|most| n > *most) {
            problems.push(hiding(format!("Too many: {n}: must have at most {most} items")));
        }
        if let Some(least) = self.min_items.filter(|least| n < *least) {
            problems.push(plain(format!(
                "Invalid value: {n}: {path} in body should have at least {least} items"
            )));
        }
        problems
    }

    /// Items of a set, or keys of a list map, that are there twice.
    fn repeats(&self, values: &[Value]) -> Vec<(usize, Problem)> {
        let key = |value: &Value| match &self.list {
            ListType::Any => None,
            ListType::Set => Some(quoted(value)),
            ListType::Map(keys) => {
                let parts: Vec<String> = keys
                    .iter()
                    .map(|key| format!("{key:?}:{}", value.get(key).map_or("null".into(), quoted)))
                    .collect();
                Some(format!("{{{}}}", parts.join(",")))
            }
        };
        let mut seen = std::collections::BTreeSet::new();
        let mut repeats = Vec::new();
        for (at, value) in values.iter().enumerate() {
            if let Some(key) = key(value)
                && !seen.insert(key.clone())
            {
                repeats.push((at, plain(format!("Duplicate value: {key}"))));
            }
        }
        repeats
    }
}

fn is_whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|it| it.fract() == 0.0)
}
