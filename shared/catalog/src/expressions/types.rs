//! Static types of kubelet expressions: CEL says before any evaluation that `vcpus * 1.5` mixes two kinds of number.
//!
//! What is not known here has no type and is not judged.

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};

/// What an expression gives, as far as that can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Int,
    Uint,
    Double,
    Text,
    Bool,
    Unknown,
}

impl Type {
    const fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::Text => "string",
            Self::Bool => "bool",
            Self::Unknown => "dyn",
        }
    }

    const fn is_number(self) -> bool {
        matches!(self, Self::Int | Self::Double | Self::Unknown)
    }
}

/// Whether the whole gives an int or a double.
///
/// # Errors
/// The first thing that CEL's checker would refuse.
pub(super) fn check(expression: &IdedExpr) -> Result<(), String> {
    let found = of(expression)?;
    if found.is_number() {
        return Ok(());
    }
    Err(format!("the result is no number but {}", found.name()))
}

fn of(it: &IdedExpr) -> Result<Type, String> {
    match &it.expr {
        Expr::Literal(value) => Ok(match value {
            LiteralValue::Int(_) => Type::Int,
            LiteralValue::UInt(_) => Type::Uint,
            LiteralValue::Double(_) => Type::Double,
            LiteralValue::String(_) => Type::Text,
            LiteralValue::Boolean(_) => Type::Bool,
            _ => Type::Unknown,
        }),
        Expr::Ident(name) => Ok(match name.as_str() {
            "vcpus" | "memory_mib" | "default_enis" | "ips_per_eni" | "max_pods" => Type::Int,
            "instance_type" => Type::Text,
            _ => Type::Unknown,
        }),
        Expr::Call(call) => of_call(call),
        _ => Ok(Type::Unknown),
    }
}

fn of_call(call: &CallExpr) -> Result<Type, String> {
    let args = call.args.iter().map(of).collect::<Result<Vec<Type>, String>>()?;
    if let Some(target) = &call.target {
        of(target)?;
        return Ok(match call.func_name.as_str() {
            "startsWith" | "endsWith" | "contains" | "matches" => Type::Bool,
            "size" => Type::Int,
            _ => Type::Unknown,
        });
    }
    let name = call.func_name.as_str();
    let wrong = || {
        let args: Vec<&str> = args.iter().map(|it| it.name()).collect();
        Err(format!("no {name} for ({})", args.join(", ")))
    };
    let all = |wanted: Type| args.iter().all(|it| matches!(it, Type::Unknown) || *it == wanted);
    match (name, &args[..]) {
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [Type::Unknown, _] | [_, Type::Unknown]) => {
            Ok(Type::Unknown)
        }
        ("_+_", [a @ (Type::Int | Type::Uint | Type::Double | Type::Text), b])
        | ("_-_" | "_*_" | "_/_", [a @ (Type::Int | Type::Uint | Type::Double), b])
        | ("_%_", [a @ (Type::Int | Type::Uint), b])
            if a == b =>
        {
            Ok(*a)
        }
        ("-_", [a @ (Type::Int | Type::Double | Type::Unknown)]) => Ok(*a),
        ("_&&_" | "_||_" | "!_", _) if all(Type::Bool) => Ok(Type::Bool),
        ("_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "@in" | "bool", _) => Ok(Type::Bool),
        ("_?_:_", [Type::Bool | Type::Unknown, a, b]) => match (a, b) {
            (Type::Unknown, _) | (_, Type::Unknown) => Ok(Type::Unknown),
            (a, b) if a == b => Ok(*a),
            _ => wrong(),
        },
        ("min" | "max", [a, b]) if a.is_number() && b.is_number() => Ok(match (a, b) {
            (Type::Double, _) | (_, Type::Double) => Type::Double,
            (Type::Int, Type::Int) => Type::Int,
            _ => Type::Unknown,
        }),
        (
            "_+_" | "_-_" | "_*_" | "_/_" | "_%_" | "-_" | "_&&_" | "_||_" | "!_" | "_?_:_" | "min"
            | "max",
            _,
        ) => wrong(),
        ("int" | "size", [_]) => Ok(Type::Int),
        ("uint", [_]) => Ok(Type::Uint),
        ("double", [_]) => Ok(Type::Double),
        ("string", [_]) => Ok(Type::Text),
        ("int" | "size" | "uint" | "double" | "string", _) => wrong(),
        _ => Ok(Type::Unknown),
    }
}
