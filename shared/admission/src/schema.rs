//! What an API server does to an object before it stores it: prune, default, validate, evaluate CEL rules.
//!
//! A [`Schema`] is compiled once per kind from its CustomResourceDefinition; [`Schema::admit`] then judges objects.

mod check;
mod defaults;
mod rules;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use cel::Env;
use regex::Regex;
use serde_json::Value;
use spokeshave_model::{FieldPath, field_path::Segment};

pub use rules::Rule;

/// Which step of admission found something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Schema,
    Cel,
}

/// What admission has against an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub source: Source,
    pub field: FieldPath,
    pub message: String,
    /// Schema findings of these kinds keep the API server from evaluating rules: wrong type, missing field, not one of the allowed
    /// values, too long, too many.
    pub hides_rules: bool,
    /// The object as it was may have the same fault: tolerated on update where nothing changed.
    pub ratchets: bool,
}

/// One level of a schema.
#[derive(Debug, Default)]
pub struct Schema {
    type_: Option<Type>,
    is_int_or_string: bool,
    is_open: bool,
    is_time: bool,
    fields: BTreeMap<String, Schema>,
    items: Option<Box<Schema>>,
    values: Option<Box<Schema>>,
    required: Vec<String>,
    one_of: Vec<Value>,
    pattern: Option<Regex>,
    minimum: Option<i64>,
    maximum: Option<i64>,
    min_length: Option<usize>,
    max_length: Option<usize>,
    min_items: Option<usize>,
    max_items: Option<usize>,
    max_fields: Option<usize>,
    default: Option<Value>,
    list: ListType,
    rules: Vec<Rule>,
    /// Of the root: where the number is that the scale subresource shows.
    scale: Option<FieldPath>,
    /// It or something in it has rules.
    has_rules: bool,
    verdicts: Mutex<rules::Verdicts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Object,
    Array,
    Text,
    Integer,
    Boolean,
}

impl Type {
    const fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::Text => "string",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
        }
    }
}

#[derive(Debug, Default)]
enum ListType {
    #[default]
    Any,
    Set,
    /// Items are told apart by these fields.
    Map(Vec<String>),
}

impl Schema {
    /// Compiles the schema of a CustomResourceDefinition. Parts that it does not know are ignored, and a pattern or rule that does not
    /// compile is left out; a test makes sure that ours have none.
    pub fn compile(schema: &Value) -> Self {
        let mut env = Env::stdlib();
        // An extension can only clash with itself.
        let _ = env.add_extension(cel::extensions::strings);
        Self::with_env(schema, &Arc::new(env))
    }

    fn with_env(schema: &Value, env: &Arc<Env>) -> Self {
        let child = |key: &str| schema.get(key).map(|it| Box::new(Self::with_env(it, env)));
        let size = |key: &str| {
            schema.get(key).and_then(Value::as_u64).and_then(|it| usize::try_from(it).ok())
        };
        let texts = |key: &str| -> Vec<String> {
            let items = schema.get(key).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let flag = |key: &str| schema.get(key).and_then(Value::as_bool) == Some(true);
        let format = schema.get("format").and_then(Value::as_str);
        let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
        let mut compiled = Self {
            type_: match schema.get("type").and_then(Value::as_str) {
                Some("object") => Some(Type::Object),
                Some("array") => Some(Type::Array),
                Some("string") => Some(Type::Text),
                Some("integer") => Some(Type::Integer),
                Some("boolean") => Some(Type::Boolean),
                _ => None,
            },
            is_int_or_string: flag("x-kubernetes-int-or-string"),
            is_open: flag("x-kubernetes-preserve-unknown-fields"),
            is_time: format == Some("date-time"),
            fields: fields.map(|(name, it)| (name.clone(), Self::with_env(it, env))).collect(),
            items: child("items"),
            values: child("additionalProperties"),
            required: texts("required"),
            one_of: schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            pattern: schema
                .get("pattern")
                .and_then(Value::as_str)
                .and_then(|it| Regex::new(it).ok()),
            minimum: schema.get("minimum").and_then(Value::as_i64),
            maximum: schema.get("maximum").and_then(Value::as_i64),
            min_length: size("minLength"),
            max_length: size("maxLength"),
            min_items: size("minItems"),
            max_items: size("maxItems"),
            max_fields: size("maxProperties"),
            default: schema.get("default").cloned(),
            list: match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map(texts("x-kubernetes-list-map-keys")),
                _ => ListType::Any,
            },
            rules: rules.into_iter().flatten().filter_map(|it| Rule::compile(it, env)).collect(),
            scale: None,
            has_rules: false,
            verdicts: Mutex::default(),
        };
        let within = |it: &Self| it.has_rules;
        compiled.has_rules = !compiled.rules.is_empty()
            || compiled.fields.values().any(within)
            || compiled.items.as_deref().is_some_and(within)
            || compiled.values.as_deref().is_some_and(within);
        compiled
    }

    /// Has the number at `path` checked as that of a scale subresource.
    #[must_use]
    pub fn scaled_by(mut self, path: Option<FieldPath>) -> Self {
        self.scale = path;
        self
    }

    /// A scale has 31 bits, whatever the schema says and whatever it was.
    fn check_scale(&self, object: &Value, findings: &mut Vec<Finding>) {
        let Some(path) = &self.scale else { return };
        let Some(number) = path.of(object).and_then(Value::as_i64) else { return };
        if number < 0 {
            for it in findings.iter_mut().filter(|it| it.field == *path) {
                it.ratchets = false;
            }
        } else if number > i64::from(i32::MAX) {
            findings.push(Finding {
                source: Source::Schema,
                field: path.clone(),
                message: format!(
                    "Invalid value: {number}: should be less than or equal to {}",
                    i32::MAX
                ),
                hides_rules: false,
                ratchets: false,
            });
        }
    }

    /// Judges `object`, and turns it into what would be stored: unknown fields gone, defaults in. `old` is the stored object that it
    /// replaces, defaults in; without it the object is created.
    ///
    /// `status` is a subresource of all our kinds: the API server passes over what a manifest says there, but for fields that it does
    /// not know.
    pub fn admit(&self, object: &mut Value, old: Option<&Value>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let root = FieldPath::root();
        self.prune(object, &root, true, &mut findings);
        if let Some(status) = object.as_object_mut().and_then(|it| it.remove("status")) {
            let findings = self.admit_without_status(object, old, findings);
            object["status"] = status;
            return findings;
        }
        self.admit_without_status(object, old, findings)
    }

    fn admit_without_status(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        mut findings: Vec<Finding>,
    ) -> Vec<Finding> {
        let root = FieldPath::root();
        self.fill_in(object);
        self.check(object, &root, &mut findings);
        self.check_scale(object, &mut findings);
        let tolerate = |object: &Value, findings: &mut Vec<Finding>| {
            if let Some(old) = old {
                findings.retain(|it| !(it.ratchets && is_unchanged(&it.field, object, old)));
            }
        };
        tolerate(object, &mut findings);
        if !findings.iter().any(|it| it.hides_rules) {
            self.evaluate(object, old, &root, &mut findings);
            tolerate(object, &mut findings);
        }
        findings
    }
}

/// Whether the field, or something around it, is what it was: such faults are tolerated. Items of a list that has changed cannot
/// be matched with what they were.
fn is_unchanged(field: &FieldPath, object: &Value, old: &Value) -> bool {
    let (mut now, mut before) = (object, old);
    for segment in &field.0 {
        if now == before {
            return true;
        }
        let (Segment::Field(name) | Segment::Key(name)) = segment else { return false };
        match (now.get(name), before.get(name)) {
            (Some(a), Some(b)) => (now, before) = (a, b),
            _ => return false,
        }
    }
    now == before
}
