//! CEL rules, evaluated as the API server evaluates them.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock},
};

use cel::{Context, Env, ExecutionError, Program, Value as CelValue};
use regex::Regex;
use serde_json::Value;
use spokeshave_model::FieldPath;

use super::{Finding, Schema, Source};

/// Why a rule does not hold.
#[derive(Clone, Debug)]
pub(super) struct Broken {
    message: String,
    /// It could not be evaluated. That is never tolerated, though nothing may have changed.
    is_error: bool,
}

/// What is known about a rule and a part of a value: fleets of pools repeat themselves.
pub(super) type Verdicts = HashMap<(usize, String), Option<Broken>>;

/// Verdicts remembered per level of a schema, and bytes of what they are about.
const MAX_REMEMBERED: usize = 4096;
const MAX_KEY: usize = 1024;

/// Which part of a value a rule looks at.
#[derive(Debug, PartialEq)]
enum Scope {
    Whole,
    /// Each item of a list, or each key of a map, by itself: `self.all(it, ...)`.
    Each,
    /// These fields of an object.
    Fields(Vec<String>),
}

impl Scope {
    fn of(rule: &str) -> Self {
        static FIELD: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r"\bself\b(\.([A-Za-z]+)\b([^(]|$))?").ok());
        let mentions = rule.matches("self").count();
        if mentions == 1 && rule.strip_prefix("self.all(").is_some_and(closes_at_the_end) {
            return Self::Each;
        }
        let found = FIELD.iter().flat_map(|it| it.captures_iter(rule));
        let fields: Option<Vec<String>> =
            found.map(|it| it.get(2).map(|name| name.as_str().to_owned())).collect();
        match fields {
            Some(mut fields) if fields.len() == mentions => {
                fields.sort();
                fields.dedup();
                Self::Fields(fields)
            }
            _ => Self::Whole,
        }
    }
}

/// Whether the parenthesis that is open closes with the last character, and not before.
fn closes_at_the_end(rest: &str) -> bool {
    let (mut depth, mut quote) = (1, false);
    for (at, c) in rest.char_indices() {
        match c {
            '\'' => quote = !quote,
            '(' if !quote => depth += 1,
            ')' if !quote => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1 == rest.len();
        }
    }
    false
}

/// A compiled rule.
pub struct Rule {
    program: Program,
    env: Arc<Env>,
    message: String,
    /// It compares with the object as it was, and says nothing without one.
    is_transition: bool,
    scope: Scope,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(&self.message).finish()
    }
}

impl Rule {
    /// `None` when it does not compile.
    pub(super) fn compile(rule: &Value, env: &Arc<Env>) -> Option<Self> {
        let text = rule.get("rule")?.as_str()?;
        Some(Self {
            program: env.compile(text).ok()?,
            env: Arc::clone(env),
            message: rule.get("message")?.as_str()?.to_owned(),
            is_transition: text.contains("oldSelf"),
            scope: Scope::of(text),
        })
    }

    /// The message when the rule does not hold or cannot be evaluated.
    fn broken(&self, this: &Value, old: Option<&Value>) -> Option<Broken> {
        let mut context = Context::with_env(Arc::clone(&self.env));
        context.add_variable_from_value("self", convert(this));
        if let Some(old) = old {
            context.add_variable_from_value("oldSelf", convert(old));
        }
        match self.program.execute(&context) {
            Ok(CelValue::Bool(true)) => None,
            Ok(_) => Some(Broken { message: self.message.clone(), is_error: false }),
            Err(error) => {
                let error = evaluation_error(&error);
                let message = format!("{error} evaluating rule: {}", self.message);
                Some(Broken { message, is_error: true })
            }
        }
    }
}

/// The API server's words for an evaluation that failed.
fn evaluation_error(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(CelValue::Int(at)) => format!("index out of bounds: {at}"),
        ExecutionError::FunctionError { function, .. } if function == "int" => {
            "type conversion error from 'string' to 'int'".into()
        }
        other => other.to_string(),
    }
}

impl Schema {
    /// Evaluates the rules of every level, outside in. Old items of lists are not matched, as for atomic lists.
    pub(super) fn evaluate(
        &self,
        value: &Value,
        old: Option<&Value>,
        path: &FieldPath,
        findings: &mut Vec<Finding>,
    ) {
        if !self.rules.is_empty() {
            let say = |rule: &Rule, broken: Broken| Finding {
                source: Source::Cel,
                field: path.clone(),
                message: broken.message,
                hides_rules: false,
                ratchets: !rule.is_transition && !broken.is_error,
            };
            for (at, rule) in self.rules.iter().enumerate().filter(|(_, it)| !it.is_transition) {
                findings.extend(self.lasting(at, rule, value).map(|broken| say(rule, broken)));
            }
            if let Some(old) = old {
                for rule in self.rules.iter().filter(|it| it.is_transition) {
                    let broken = rule.broken(value, Some(old));
                    findings.extend(broken.map(|broken| say(rule, broken)));
                }
            }
        }
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if let Some(schema) = self.fields.get(key).or(self.values.as_deref())
                        && schema.has_rules
                    {
                        let old = old.and_then(|it| it.get(key));
                        schema.evaluate(value, old, &path.field(key), findings);
                    }
                }
            }
            Value::Array(values) => {
                if let Some(items) = self.items.as_ref().filter(|it| it.has_rules) {
                    for (at, value) in values.iter().enumerate() {
                        items.evaluate(value, None, &path.index(at), findings);
                    }
                }
            }
            _ => {}
        }
    }

    /// The verdict of a rule that looks at the value alone.
    fn lasting(&self, at: usize, rule: &Rule, value: &Value) -> Option<Broken> {
        match (&rule.scope, value) {
            (Scope::Each, Value::Array(items)) => {
                let alone = |item: &Value| {
                    let key = item.to_string();
                    self.remembered(at, rule, key, || Value::Array(vec![item.clone()]))
                };
                worst(items.iter().filter_map(alone))
            }
            (Scope::Each, Value::Object(entries)) => {
                // The rule speaks of keys alone.
                let alone = |key: &String| {
                    let only = || Value::Object([(key.clone(), Value::Null)].into_iter().collect());
                    self.remembered(at, rule, key.clone(), only)
                };
                worst(entries.keys().filter_map(alone))
            }
            (Scope::Fields(names), Value::Object(fields)) => {
                let field = |name: &String| Some((name.clone(), fields.get(name)?.clone()));
                let part = Value::Object(names.iter().filter_map(field).collect());
                self.remembered(at, rule, part.to_string(), || part.clone())
            }
            _ => self.remembered(at, rule, value.to_string(), || value.clone()),
        }
    }

    /// The verdict about what `key` stands for, evaluated once.
    fn remembered(
        &self,
        at: usize,
        rule: &Rule,
        key: String,
        value: impl Fn() -> Value,
    ) -> Option<Broken> {
        if key.len() > MAX_KEY {
            return rule.broken(&value(), None);
        }
        let key = (at, key);
        if let Some(known) = self.verdicts.lock().ok().and_then(|it| it.get(&key).cloned()) {
            return known;
        }
        let verdict = rule.broken(&value(), None);
        if let Ok(mut verdicts) = self.verdicts.lock() {
            if verdicts.len() >= MAX_REMEMBERED {
                verdicts.clear();
            }
            verdicts.insert(key, verdict.clone());
        }
        verdict
    }
}

/// What `all` makes of its items: one that does not hold hides errors, and of several errors the first counts.
fn worst(verdicts: impl Iterator<Item = Broken>) -> Option<Broken> {
    let mut first: Option<Broken> = None;
    for verdict in verdicts {
        if !verdict.is_error {
            return Some(verdict);
        }
        first.get_or_insert(verdict);
    }
    first
}

/// JSON as CEL sees it.
fn convert(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(it) => CelValue::Bool(*it),
        Value::Number(it) => match it.as_i64() {
            Some(whole) => CelValue::Int(whole),
            None => CelValue::Float(it.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(it) => CelValue::String(Arc::new(it.clone())),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(convert).collect())),
        Value::Object(fields) => {
            let map: HashMap<String, CelValue> =
                fields.iter().map(|(key, value)| (key.clone(), convert(value))).collect();
            map.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_look_at_no_more_than_they_must() {
        let fields = |names: &[&str]| Scope::Fields(names.iter().map(|it| (*it).into()).collect());
        for (rule, scope) in [
            ("self.all(it, has(it.a))", Scope::Each),
            ("self.all(it, it != ')') && true", Scope::Whole),
            ("self.all(key, self[key] != '')", Scope::Whole),
            ("!self.all(it, has(it.a))", Scope::Whole),
            ("self != ''", Scope::Whole),
            ("self.size() != 0", Scope::Whole),
            ("!has(self.replicas) || self.limits.size() == 0", fields(&["limits", "replicas"])),
            ("has(self.role) != has(self.instanceProfile)", fields(&["instanceProfile", "role"])),
            ("self.terms.exists(it, has(it.alias))", fields(&["terms"])),
        ] {
            assert_eq!(Scope::of(rule), scope, "{rule}");
        }
    }
}
