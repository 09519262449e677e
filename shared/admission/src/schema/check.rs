//! Types, bounds and patterns, with the texts of the API server.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::Regex;
use serde_json::Value;
use spokeshave_model::FieldPath;

use super::{Finding, ListType, Schema, Source, Type};

/// What a value is called in messages.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(it) if it.is_i64() => "integer",
        // With a fraction, or beyond 64 bits.
        Value::Number(_) => "number",
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
            // What is in a value of the wrong type is no problem of its own.
            findings
                .retain(|it| it.field.0.len() <= path.0.len() || !it.field.0.starts_with(&path.0));
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
                if let Some(problem) = self.text_problem(text, path) {
                    add(path.clone(), problem);
                }
            }
            Value::Number(_) => {
                if let Some(problem) = self.number_problem(value, path) {
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
            return if fits { None } else { wrong("integer,string") };
        }
        let wanted = self.type_?;
        let fits = match wanted {
            Type::Object => value.is_object(),
            Type::Array => value.is_array(),
            Type::Text => value.is_string(),
            Type::Integer => is_whole(value),
            Type::Boolean => value.is_boolean(),
        };
        if fits {
            return None;
        }
        if self.is_time && !value.is_array() {
            // Times are told by their format, and then by the format of what was found.
            let found = match value {
                Value::Number(it) if it.is_i64() => "int64",
                Value::Number(_) => "float64",
                _ => "",
            };
            return Some(hiding(format!(
                "Invalid value: \"{found}\": {path} in body must be of type date-time: \"{found}\""
            )));
        }
        wrong(wanted.name())
    }

    /// The first that is wrong with a text: the API server stops there.
    fn text_problem(&self, text: &str, path: &FieldPath) -> Option<Problem> {
        let n_characters = text.chars().count();
        if let Some(most) = self.max_length.filter(|most| n_characters > *most) {
            return Some(hiding(format!("Too long: may not be more than {most} bytes")));
        }
        if let Some(least) = self.min_length.filter(|least| n_characters < *least) {
            return Some(plain(format!(
                "Invalid value: {text:?}: {path} in body should be at least {least} chars long"
            )));
        }
        if let Some(pattern) = self.pattern.as_ref().filter(|it| !it.is_match(text)) {
            return Some(plain(format!(
                "Invalid value: {text:?}: {path} in body should match '{pattern}'"
            )));
        }
        (self.is_time && !is_time(text)).then(|| {
            hiding(format!(
                "Invalid value: {text:?}: {path} in body must be of type date-time: {text:?}"
            ))
        })
    }

    fn number_problem(&self, value: &Value, path: &FieldPath) -> Option<Problem> {
        let number = value.as_i64().or_else(|| value.as_f64().map(|it| it as i64))?;
        if let Some(least) = self.minimum.filter(|least| number < *least) {
            return Some(plain(format!(
                "Invalid value: {value}: {path} in body should be greater than or equal to {least}"
            )));
        }
        let most = self.maximum.filter(|most| number > *most)?;
        Some(plain(format!(
            "Invalid value: {value}: {path} in body should be less than or equal to {most}"
        )))
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
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut repeats = Vec::new();
        for (at, value) in values.iter().enumerate() {
            let Some(key) = key(value) else { continue };
            let n = seen.entry(key.clone()).or_default();
            *n += 1;
            // Said at the second, whatever the number.
            if *n == 2 {
                repeats.push((at, plain(format!("Duplicate value: {key}"))));
            }
        }
        repeats
    }
}

/// Whole, and within 64 bits.
fn is_whole(value: &Value) -> bool {
    let bound = 2f64.powi(63);
    value.is_i64()
        || !value.is_u64()
            && value.as_f64().is_some_and(|it| it.fract() == 0.0 && it >= -bound && it < bound)
}

/// A date and a time as the API server reads them: seconds and a zone must be there, the letters may be small, leap seconds do not
/// exist.
fn is_time(text: &str) -> bool {
    static SHAPE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let shape = r"^(\d{4}-\d{2}-\d{2})[tT]([01]\d|2[0-3]):[0-5]\d:[0-5]\d([.]\d+)?([zZ]|[+-]\d{2}:\d{2})$";
        Regex::new(shape).ok()
    });
    let date = SHAPE.as_ref().and_then(|it| it.captures(text)).and_then(|it| it.get(1));
    date.is_some_and(|it| it.as_str().parse::<jiff::civil::Date>().is_ok())
}
