//! Kubelet expressions: numbers computed from the instance type (`spec` aws-capacity 5.4, gate `NodeClassCEL`).

mod types;

use std::{cmp::Ordering, fmt, sync::Arc};

use cel::{Context, ExecutionError, Program, Value};

/// Why an expression gives no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("{text:?} does not compile: {problem}")]
    Invalid { text: String, problem: String },
    #[error("{text:?} cannot be evaluated: {problem}")]
    Failed { text: String, problem: String },
}

/// What an expression may read. All whole numbers but the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variables<'a> {
    pub vcpus: i64,
    pub memory_mib: i64,
    /// Interfaces of the default network card.
    pub default_enis: i64,
    pub ips_per_eni: i64,
    /// In `maxPods` the family's default, in the reserved maps the resolved pod count.
    pub max_pods: i64,
    pub instance_type: &'a str,
}

const NAMES: &[&str] =
    &["vcpus", "memory_mib", "default_enis", "ips_per_eni", "max_pods", "instance_type"];

/// Longer texts, or deeper ones, are no sensible formula and would cost the parser's stack.
const MAX_LENGTH: usize = 4096;
const MAX_DEPTH: usize = 48;

/// An expression, compiled once.
#[derive(Clone)]
pub struct Expression {
    text: String,
    program: Result<Arc<Program>, String>,
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.text).finish()
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

impl Expression {
    /// Compiles `text`; whether that worked is told by [`Self::check`] and by every evaluation.
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), program: compile(text).map(Arc::new) }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it compiles, reads known variables only, and gives a number as far as its types tell.
    ///
    /// # Errors
    /// [`ExpressionError::Invalid`].
    pub fn check(&self) -> Result<(), ExpressionError> {
        self.program().map(|_| ())
    }

    fn program(&self) -> Result<&Program, ExpressionError> {
        self.program.as_deref().map_err(|problem| ExpressionError::Invalid {
            text: self.text.clone(),
            problem: problem.clone(),
        })
    }

    /// The result; a fraction is cut off towards zero.
    ///
    /// # Errors
    /// When it does not compile, fails, or gives no finite number.
    pub fn evaluate(&self, variables: &Variables<'_>) -> Result<i64, ExpressionError> {
        let failed = |problem: String| ExpressionError::Failed { text: self.text.clone(), problem };
        let mut context = Context::default();
        for (name, value) in [
            ("vcpus", variables.vcpus),
            ("memory_mib", variables.memory_mib),
            ("default_enis", variables.default_enis),
            ("ips_per_eni", variables.ips_per_eni),
            ("max_pods", variables.max_pods),
        ] {
            context.add_variable_from_value(name, value);
        }
        context.add_variable_from_value("instance_type", variables.instance_type.to_owned());
        let declared = context
            .add_function("min", |a: Value, b: Value| choose("min", a, b, Ordering::Less))
            .and_then(|()| {
                context.add_function("max", |a: Value, b: Value| {
                    choose("max", a, b, Ordering::Greater)
                })
            });
        declared.map_err(|error| failed(format!("{error:?}")))?;
        match self.program()?.execute(&context) {
            Ok(Value::Int(number)) => Ok(number),
            Ok(Value::Float(number)) if number.is_nan() || number.is_infinite() => {
                Err(failed(format!("the result is {number}")))
            }
            // `as` cuts the fraction off and stops at the ends of the range.
            Ok(Value::Float(number)) if number.abs() < 9.2e18 => Ok(number as i64),
            Ok(Value::Float(number)) => Err(failed(format!("{number} is out of range"))),
            Ok(other) => Err(failed(format!("the result is no number but {:?}", other.type_of()))),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

fn compile(text: &str) -> Result<Program, String> {
    if text.trim().is_empty() {
        return Err("it is empty".into());
    }
    let nesting = text.chars().filter(|c| matches!(c, '(' | '[' | '{' | '!' | '-' | '?')).count();
    if text.len() > MAX_LENGTH || nesting > MAX_DEPTH {
        return Err("it is too long".into());
    }
    let program = Program::compile(text).map_err(|errors| {
        let first = errors.to_string();
        first.lines().next().unwrap_or_default().trim_start_matches("ERROR: ").to_owned()
    })?;
    let references = program.references();
    if let Some(unknown) = references.variables().into_iter().find(|it| !NAMES.contains(it)) {
        return Err(format!("{unknown:?} is not one of {}", NAMES.join(", ")));
    }
    types::check(program.expression())?;
    Ok(program)
}

fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

fn choose(name: &str, a: Value, b: Value, wanted: Ordering) -> Result<Value, ExecutionError> {
    let order = match (&a, &b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        _ => match (as_number(&a), as_number(&b)) {
            (Some(a), Some(b)) => a.partial_cmp(&b),
            _ => return Err(ExecutionError::function_error(name, "takes two numbers")),
        },
    };
    let are_ints = matches!((&a, &b), (Value::Int(_), Value::Int(_)));
    let chosen = if order == Some(wanted) { a } else { b };
    // With any double among them the result is one, whichever it is.
    Ok(if are_ints { chosen } else { Value::Float(as_number(&chosen).unwrap_or(f64::NAN)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // aws-capacity 5.4
    fn results() {
        let variables = Variables {
            vcpus: 2,
            memory_mib: 8192,
            default_enis: 3,
            ips_per_eni: 10,
            max_pods: 29,
            instance_type: "m5.large",
        };
        for (text, result) in [
            ("min(110, vcpus * 8)", Ok(16)),
            ("memory_mib / 100", Ok(81)),
            ("default_enis * (ips_per_eni - 1) + 2", Ok(29)),
            ("max(1.9, 1)", Ok(1)),
            ("0.0 - 1.9", Ok(-1)),
            ("instance_type.startsWith('m5') ? max_pods : 10", Ok(29)),
            ("double(vcpus) * 1.5", Ok(3)),
            ("1.0 / 0.0", Err("cannot be evaluated: the result is inf")),
            ("1 / 0", Err("cannot be evaluated: ")),
            ("9223372036854775807 + 1", Err("cannot be evaluated: ")),
            ("'a'", Err("does not compile: the result is no number but string")),
            ("instance_type", Err("does not compile: the result is no number but string")),
            ("vcpus > 1", Err("does not compile: the result is no number but bool")),
            ("vcpus * 1.5", Err("does not compile: no _*_ for (int, double)")),
            ("vcpus > 96 ? vcpus * 1.5 : 1.0", Err("does not compile: no _*_ for (int, double)")),
            ("vcpus > 96 ? 1.5 : 1", Err("does not compile: no _?_:_ for (bool, double, int)")),
            ("vcpus > 96 ? instance_type : 'x'", Err("does not compile: the result is no number")),
            ("vcpus ? 1 : 2", Err("does not compile: no _?_:_ for (int, int, int)")),
            ("1u", Err("does not compile: the result is no number but uint")),
            ("max(1, 2, 3)", Err("does not compile: no max for (int, int, int)")),
            ("min(1)", Err("does not compile: no min for (int)")),
            ("min(vcpus, 2.5) * 2", Err("does not compile: no _*_ for (double, int)")),
            ("min(vcpus, 2.5) * 1.5", Ok(3)),
            ("-vcpus + 3", Ok(1)),
            ("vcpus % 2 == 0 && !(instance_type == 'x') ? int(2.9) : size('ab')", Ok(2)),
            ("int(double(vcpus) * 1.5) + vcpus", Ok(5)),
            ("1e300", Err("cannot be evaluated: ")),
            ("min(1, 'a')", Err("does not compile: no min for (int, string)")),
            ("cpus * 2", Err("does not compile: \"cpus\" is not one of ")),
            ("vcpus >", Err("does not compile: ")),
            ("", Err("does not compile: it is empty")),
        ] {
            match (Expression::new(text).evaluate(&variables), result) {
                (Ok(number), Ok(expected)) => assert_eq!(number, expected, "{text}"),
                (Err(error), Err(part)) => {
                    assert!(error.to_string().contains(part), "{text}: {error}");
                }
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
        let deep = format!("{}1{}", "(".repeat(500), ")".repeat(500));
        assert!(Expression::new(&deep).check().is_err());
    }
}
