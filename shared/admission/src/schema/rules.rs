//! CEL rules, evaluated as the API server evaluates them.

use std::{collections::HashMap, fmt, sync::Arc};

use cel::{Context, Env, ExecutionError, Program, Value as CelValue};
use serde_json::Value;
use spokeshave_model::FieldPath;

use super::{Finding, Schema, Source};

/// Broken rules of one value, by position.
pub(super) type Verdicts = Arc<[(usize, Broken)]>;

/// Why a rule does not hold.
#[derive(Clone, Debug)]
pub(super) struct Broken {
    message: String,
    /// It could not be evaluated. That is never tolerated, though nothing may have changed.
    is_error: bool,
}

/// Values remembered per level of a schema, and bytes per value.
const MAX_REMEMBERED: usize = 4096;

/// A compiled rule.
pub struct Rule {
    program: Program,
    env: Arc<Env>,
    message: String,
    /// It compares with the object as it was, and says nothing without one.
    is_transition: bool,
    /// It is about each item of a list by itself.
    is_for_each: bool,
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
            is_for_each: text.starts_with("self.all(") && text.matches("self").count() == 1,
        })
    }

    /// The message when the rule does not hold or cannot be evaluated.
    fn broken(&self, this: &CelValue, old: Option<&CelValue>) -> Option<Broken> {
        match self.execute(this, old) {
            Ok(CelValue::Bool(true)) => None,
            Ok(_) => Some(Broken { message: self.message.clone(), is_error: false }),
            Err(error) => {
                let error = evaluation_error(&self.first_error(this).unwrap_or(error));
                let message = format!("{error} evaluating rule: {}", self.message);
                Some(Broken { message, is_error: true })
            }
        }
    }

    fn execute(&self, this: &CelValue, old: Option<&CelValue>) -> Result<CelValue, ExecutionError> {
        let mut context = Context::with_env(Arc::clone(&self.env));
        context.add_variable_from_value("self", this.clone());
        if let Some(old) = old {
            context.add_variable_from_value("oldSelf", old.clone());
        }
        self.program.execute(&context)
    }

    /// Of several items that cannot be evaluated the API server names the first, our library the last.
    fn first_error(&self, this: &CelValue) -> Option<ExecutionError> {
        let CelValue::List(items) = this else { return None };
        let alone = |item: &CelValue| CelValue::List(Arc::new(vec![item.clone()]));
        let mut each = items.iter().filter(|_| self.is_for_each);
        each.find_map(|item| self.execute(&alone(item), None).err())
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
            for (at, broken) in self.lasting(value).iter() {
                findings.extend(self.rules.get(*at).map(|rule| say(rule, broken.clone())));
            }
            let transitions = self.rules.iter().filter(|it| it.is_transition);
            if let Some(old) = old.filter(|_| self.rules.iter().any(|it| it.is_transition)) {
                let (this, old) = (convert(value), convert(old));
                for rule in transitions {
                    let broken = rule.broken(&this, Some(&old));
                    findings.extend(broken.map(|broken| say(rule, broken)));
                }
            }
        }
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if let Some(schema) = self.fields.get(key).or(self.values.as_deref())
                        && schema.has_rules()
                    {
                        let old = old.and_then(|it| it.get(key));
                        schema.evaluate(value, old, &path.field(key), findings);
                    }
                }
            }
            Value::Array(values) => {
                if let Some(items) = self.items.as_ref().filter(|it| it.has_rules()) {
                    for (at, value) in values.iter().enumerate() {
                        items.evaluate(value, None, &path.index(at), findings);
                    }
                }
            }
            _ => {}
        }
    }

    /// The broken rules that look at the value alone, by position. The same value is evaluated once: fleets of pools repeat
    /// themselves.
    fn lasting(&self, value: &Value) -> Verdicts {
        let key = value.to_string();
        let known = self.verdicts.lock().ok().and_then(|it| it.get(&key).cloned());
        if let Some(known) = known {
            return known;
        }
        let this = convert(value);
        let lasting = self.rules.iter().enumerate().filter(|(_, it)| !it.is_transition);
        let broken: Verdicts =
            lasting.filter_map(|(at, rule)| Some((at, rule.broken(&this, None)?))).collect();
        if let Ok(mut verdicts) = self.verdicts.lock()
            && verdicts.len() < MAX_REMEMBERED
            && key.len() < MAX_REMEMBERED
        {
            verdicts.insert(key, Arc::clone(&broken));
        }
        broken
    }

    fn has_rules(&self) -> bool {
        !self.rules.is_empty()
            || self.fields.values().any(Self::has_rules)
            || self.items.as_ref().is_some_and(|it| it.has_rules())
            || self.values.as_ref().is_some_and(|it| it.has_rules())
    }
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
