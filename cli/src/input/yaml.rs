//! YAML as Kubernetes' tools read it: YAML 1.1 words for booleans, numbers as Go's parser takes them, merge keys,
//! duplicate keys refused, aliases within bounds.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::{Map, Number, Value};

use super::{
    Document, ParseError,
    lines::{Lines, Within},
};

/// Deepest nesting that is read. Kubernetes objects are less than 40 levels deep.
pub(super) const MAX_DEPTH: usize = 200;

/// Most values that the aliases of one document may add, so that a few lines cannot become gigabytes.
const MAX_ALIASED: usize = 200_000;

/// What the parser says to a tab between `:` and a plain value, which YAML allows.
const TAB_AFTER_COLON: &str = "':' must be followed by a valid YAML whitespace";

/// Most tabs of that kind that are read as blanks; each costs one reading more.
const MAX_TABS: usize = 500;

/// Reads all documents of `text`; empty ones are left out.
pub(super) fn parse(text: &str) -> Result<Vec<Document>, ParseError> {
    let mut text = without_inner_marks(text);
    for _ in 0..MAX_TABS {
        let Some(at) = tab_after_colon(&text) else { break };
        let Some(blank) = with_blanks_before(&text, at) else { break };
        text = Cow::Owned(blank);
    }
    read(&text)
}

/// Files that were joined have their byte order marks where a document begins: YAML allows them there.
fn without_inner_marks(text: &str) -> Cow<'_, str> {
    const MARK: char = '\u{feff}';
    if !text.contains(MARK) {
        return Cow::Borrowed(text);
    }
    let mut joined = String::with_capacity(text.len());
    let mut begins = false;
    for line in text.split_inclusive('\n') {
        let unmarked = line.strip_prefix(MARK).filter(|it| begins || it.starts_with("---"));
        let line = unmarked.unwrap_or(line);
        begins = matches!(line.trim_end(), "---" | "...");
        joined.push_str(line);
    }
    Cow::Owned(joined)
}

/// Where the first value stands that a tab parts from its `:`, in characters.
fn tab_after_colon(text: &str) -> Option<usize> {
    if !text.contains(":\t") {
        return None;
    }
    Parser::new_from_str(text)
        .find_map(Result::err)
        .filter(|it| it.info() == TAB_AFTER_COLON)
        .map(|it| it.marker().index())
}

/// The text with blanks for the tabs right before the character at `at`; `None` when there are none.
fn with_blanks_before(text: &str, at: usize) -> Option<String> {
    let end = text.char_indices().nth(at)?.0;
    let (before, after) = text.split_at(end);
    let kept = before.trim_end_matches([' ', '\t']);
    let gap = before.get(kept.len()..)?;
    gap.contains('\t').then(|| format!("{kept}{}{after}", " ".repeat(gap.len())))
}

fn read(text: &str) -> Result<Vec<Document>, ParseError> {
    let mut reader =
        Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), aliased: 0 };
    let mut documents = Vec::new();
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(documents),
            Event::DocumentStart(_) => {
                reader.anchors.clear();
                reader.aliased = 0;
                let (event, span) = reader.next()?;
                if matches!(event, Event::DocumentEnd) {
                    continue;
                }
                let (value, lines) = reader.value(event, span, 0)?;
                if !value.is_null() {
                    documents.push(Document { value, lines });
                }
            }
            _ => {
                let _ = span;
            }
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    anchors: HashMap<usize, (Value, Lines, usize)>,
    aliased: usize,
}

fn line(span: Span) -> u32 {
    u32::try_from(span.start.line()).unwrap_or(u32::MAX)
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), ParseError> {
        match self.parser.next_event() {
            Some(Ok(it)) => Ok(it),
            Some(Err(error)) => Err(ParseError {
                line: u32::try_from(error.marker().line()).unwrap_or(u32::MAX),
                problem: format!("not YAML: {}", error.info()),
                fix: "check the indentation and the quotes here".into(),
            }),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn value(
        &mut self,
        event: Event<'a>,
        span: Span,
        depth: usize,
    ) -> Result<(Value, Lines), ParseError> {
        let at = line(span);
        if depth > MAX_DEPTH {
            return Err(too_deep(at));
        }
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(&text, style, tag.as_deref(), at)?;
                let lines = Lines { line: at, within: Within::Nothing };
                self.remember(anchor, &value, &lines);
                Ok((value, lines))
            }
            Event::SequenceStart(anchor, _) => {
                let (mut values, mut items) = (Vec::new(), Vec::new());
                loop {
                    let (event, span) = self.next()?;
                    if matches!(event, Event::SequenceEnd) {
                        break;
                    }
                    let (value, lines) = self.value(event, span, depth + 1)?;
                    values.push(value);
                    items.push(lines);
                }
                let value = Value::Array(values);
                let lines = Lines { line: at, within: Within::Items(items) };
                self.remember(anchor, &value, &lines);
                Ok((value, lines))
            }
            Event::MappingStart(anchor, _) => {
                let (value, lines) = self.mapping(at, depth)?;
                self.remember(anchor, &value, &lines);
                Ok((value, lines))
            }
            Event::Alias(anchor) => {
                let Some((value, lines, size)) = self.anchors.get(&anchor) else {
                    return Err(ParseError {
                        line: at,
                        problem: "an alias (*name) refers to itself or to nothing".into(),
                        fix: "define its anchor (&name) before it, in the same document".into(),
                    });
                };
                self.aliased = self.aliased.saturating_add(*size);
                if self.aliased > MAX_ALIASED {
                    return Err(ParseError {
                        line: at,
                        problem: format!(
                            "aliases of this document add more than {MAX_ALIASED} values"
                        ),
                        fix: "write the values out, or split the document".into(),
                    });
                }
                // What an alias brings in stands on the alias's line for the reader, and where the anchor is inside.
                let mut lines = lines.clone();
                lines.line = at;
                Ok((value.clone(), lines))
            }
            _ => Err(ParseError {
                line: at,
                problem: "not YAML: unexpected end".into(),
                fix: "check the indentation here".into(),
            }),
        }
    }

    fn mapping(&mut self, at: u32, depth: usize) -> Result<(Value, Lines), ParseError> {
        let mut values = Map::new();
        let mut fields: BTreeMap<String, Lines> = BTreeMap::new();
        let mut merged: Vec<(u32, Value, Lines)> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let key_line = line(span);
            let is_merge = matches!(
                &event,
                Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<"
            );
            let key = self.value(event, span, depth + 1)?.0;
            let (event, span) = self.next()?;
            let (value, mut lines) = self.value(event, span, depth + 1)?;
            if is_merge {
                merged.push((key_line, value, lines));
                continue;
            }
            let key = key_text(key, key_line)?;
            lines.line = key_line;
            if let Some(first) = fields.get(&key) {
                return Err(duplicate(&key, first.line, key_line));
            }
            values.insert(key.clone(), value);
            fields.insert(key, lines);
        }
        for (line, value, lines) in merged {
            merge(&mut values, &mut fields, line, value, lines)?;
        }
        Ok((Value::Object(values), Lines { line: at, within: Within::Fields(fields.into()) }))
    }

    fn remember(&mut self, anchor: usize, value: &Value, lines: &Lines) {
        if anchor > 0 {
            self.anchors.insert(anchor, (value.clone(), lines.clone(), size(value)));
        }
    }
}

/// What `<<` does: keys that are there already win, and earlier maps of a list before later ones.
fn merge(
    values: &mut Map<String, Value>,
    fields: &mut BTreeMap<String, Lines>,
    line: u32,
    value: Value,
    lines: Lines,
) -> Result<(), ParseError> {
    match (value, lines.within) {
        (Value::Object(from), Within::Fields(from_lines)) => {
            for (key, value) in from {
                if !values.contains_key(&key) {
                    let lines = from_lines.get(&key).cloned().unwrap_or_default();
                    values.insert(key.clone(), value);
                    fields.insert(key, lines);
                }
            }
            Ok(())
        }
        (Value::Array(maps), Within::Items(items)) => {
            for (map, lines) in maps.into_iter().zip(items) {
                if !map.is_object() {
                    return Err(not_a_map(line));
                }
                merge(values, fields, line, map, lines)?;
            }
            Ok(())
        }
        _ => Err(not_a_map(line)),
    }
}

fn not_a_map(line: u32) -> ParseError {
    ParseError {
        line,
        problem: "the merge key << needs a map or a list of maps".into(),
        fix: "let it refer to the anchor of a map".into(),
    }
}

pub(super) fn duplicate(key: &str, first: u32, second: u32) -> ParseError {
    ParseError {
        line: second,
        problem: format!("key {key:?} is there twice, first on line {first}"),
        fix: "remove one of the two".into(),
    }
}

pub(super) fn too_deep(line: u32) -> ParseError {
    ParseError {
        line,
        problem: format!("values are nested more than {MAX_DEPTH} levels deep"),
        fix: "no Kubernetes object needs that; check the file".into(),
    }
}

/// Values in a value, itself included.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// Keys are texts in JSON: other scalars become their text.
fn key_text(key: Value, line: u32) -> Result<String, ParseError> {
    match key {
        Value::String(text) => Ok(text),
        Value::Bool(true) => Ok("true".into()),
        Value::Bool(false) => Ok("false".into()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(ParseError {
            line,
            problem: "a key is not a text".into(),
            fix: "put the key in quotes".into(),
        }),
    }
}

fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    line: u32,
) -> Result<Value, ParseError> {
    let wrong = |what: &str| ParseError {
        line,
        problem: format!("{text:?} is not {what}, as its tag says"),
        fix: "remove the tag or correct the value".into(),
    };
    let tag = tag.filter(|tag| tag.is_yaml_core_schema()).map(|tag| tag.suffix.as_str());
    match tag {
        Some("str" | "binary") => Ok(Value::String(text.to_owned())),
        Some("int") => match plain(text) {
            value @ Value::Number(_) if !is_float(&value) => Ok(value),
            _ => Err(wrong("an integer")),
        },
        Some("float") => match plain(text) {
            value @ Value::Number(_) => Ok(value),
            _ => Err(wrong("a number")),
        },
        Some("bool") => match plain(text) {
            value @ Value::Bool(_) => Ok(value),
            _ => Err(wrong("a boolean")),
        },
        Some("null") => Ok(Value::Null),
        _ if style == ScalarStyle::Plain => match text {
            ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
            | "-.inf" | "-.Inf" | "-.INF" => Err(ParseError {
                line,
                problem: format!("{text} is a number that JSON does not know"),
                fix: "write a finite number, or put the text in quotes".into(),
            }),
            _ => Ok(plain(text)),
        },
        _ => Ok(Value::String(text.to_owned())),
    }
}

fn is_float(value: &Value) -> bool {
    matches!(value, Value::Number(number) if number.is_f64())
}

/// A plain scalar. The words and number forms are those of the Go library that kubectl uses.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Value::Bool(true);
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        // DIFFERENCE: YAML 1.1 has `y` and `n` for booleans, and so has that library; most others take them for the letters, and
        // whoever writes `{x: 1, y: 2}` or names something `n` means these.
        _ => {}
    }
    number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let first = text.bytes().next()?;
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return None;
    }
    // Underscores separate digits, but not in numbers that begin with a point.
    let plain = if first == b'.' { text.to_owned() } else { text.replace('_', "") };
    if let Some(integer) = integer(&plain) {
        return Some(integer);
    }
    if !is_decimal(&plain) {
        return None;
    }
    let value: f64 = plain.parse().ok()?;
    // Go writes whole floats without a fraction, so they arrive as integers.
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return Some(Number::from(value as i64));
    }
    Number::from_f64(value)
}

/// Decimal, `0x`, `0o`, `0b`, and a leading zero for octal, with a sign.
fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = if let Some(rest) = lower.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (8, rest)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (2, rest)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, lower.as_str())
    };
    if digits.is_empty() || digits.starts_with(['+', '-']) {
        return None;
    }
    let amount = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        let amount = i128::from(amount);
        return i64::try_from(-amount).ok().map(Number::from);
    }
    Some(Number::from(amount))
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_decimal(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_is_good = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && all_digits(fraction),
        Some((whole, fraction)) => all_digits(whole) && all_digits(fraction),
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    let exponent_is_good = exponent.is_none_or(|it| {
        let digits = it.strip_prefix(['-', '+']).unwrap_or(it);
        !digits.is_empty() && all_digits(digits)
    });
    mantissa_is_good && exponent_is_good
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::input::lines::FieldPath;

    fn one(text: &str) -> Value {
        let mut documents = parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        assert_eq!(documents.len(), 1, "{text}");
        documents.remove(0).value
    }

    #[test]
    fn tabs_may_part_a_value_from_its_key() {
        let text = "# é\nweight:\t10\nb:\n  name: \tx\n  c:\t \t- 1\n";
        let found = parse(text).expect_err("a list cannot begin behind its key");
        assert_eq!(found.line, 5);
        let text = "# é\nweight:\t10\nb:\n  name: \tx\n  c:\t \t\"\ty\"\n  d: |\n    e:\tf\n";
        let value = json!({"weight": 10, "b": {"name": "x", "c": "\ty", "d": "e:\tf\n"}});
        assert_eq!(one(text), value);
        // Not for indentation.
        assert_eq!(parse("a:\n\tb: 1\n").expect_err("a tab").line, 2);
    }

    #[test]
    fn byte_order_marks_may_begin_documents() {
        for text in [
            "a: 1\n---\n\u{feff}a: 1\n",
            "a: 1\n\u{feff}---\r\na: 1\n",
            "a: 1\n...\n\u{feff}a: 1\n",
        ] {
            let documents = parse(text).unwrap_or_else(|error| panic!("{text:?}: {error:?}"));
            let values: Vec<&Value> = documents.iter().map(|it| &it.value).collect();
            assert_eq!(values, [&json!({"a": 1}); 2], "{text:?}");
        }
        assert!(parse("a: 1\n\u{feff}b: 1\n").is_err());
    }

    #[test]
    fn scalars_are_what_kubectl_takes_them_for() {
        for (text, value) in [
            ("yes", json!(true)),
            ("On", json!(true)),
            ("no", json!(false)),
            ("n", json!("n")),
            ("Y", json!("Y")),
            ("\"yes\"", json!("yes")),
            ("~", json!(null)),
            ("null", json!(null)),
            ("12", json!(12)),
            ("-3", json!(-3)),
            ("010", json!(8)),
            ("0o10", json!(8)),
            ("0x1F", json!(31)),
            ("0b11", json!(3)),
            ("1_000", json!(1000)),
            ("09", json!(9)),
            ("1.5", json!(1.5)),
            ("1.0", json!(1)),
            ("1e3", json!(1000)),
            (".5", json!(0.5)),
            ("1.2.3", json!("1.2.3")),
            ("10%", json!("10%")),
            ("10m", json!("10m")),
            ("2026-01-01", json!("2026-01-01")),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
            ("+", json!("+")),
            ("!!str 12", json!("12")),
            ("!!int \"12\"", json!(12)),
            ("'0 0 * * *'", json!("0 0 * * *")),
            ("|\n  a\n  b\n", json!("a\nb\n")),
            (">-\n  a\n  b\n", json!("a b")),
        ] {
            assert_eq!(one(&format!("a: {text}\n"))["a"], value, "{text}");
        }
    }

    #[test]
    fn fields_know_their_lines() {
        let text = "---\n# comment\n\napiVersion: v1\nspec:\n  list:\n  - a: 1\n    b: 2\n  - c:\n      d: 3\n---\n\nkind: X\n";
        let documents = parse(text).expect("valid");
        let lines = &documents[0].lines;
        for (path, line) in [
            ("apiVersion", 4),
            ("spec", 5),
            ("spec.list", 6),
            ("spec.list[0]", 7),
            ("spec.list[0].b", 8),
            ("spec.list[1].c.d", 10),
            ("spec.list[1].c.e.f", 9),
            ("spec.list[7]", 6),
            ("status", 4),
        ] {
            assert_eq!(lines.of(&FieldPath::parse(path)), line, "{path}");
        }
        assert_eq!(documents[1].lines.of(&FieldPath::parse("kind")), 13);
    }

    #[test]
    fn anchors_aliases_and_merges() {
        let text = "base: &base {a: 1, b: 2}\none: *base\ntwo:\n  <<: *base\n  b: 3\nthree:\n  <<: [{a: 9}, *base]\n";
        assert_eq!(
            one(text),
            json!({"base": {"a": 1, "b": 2}, "one": {"a": 1, "b": 2}, "two": {"a": 1, "b": 3},
                   "three": {"a": 9, "b": 2}})
        );
    }

    #[test]
    fn a_bomb_is_refused() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let previous = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{previous}]\n"));
        }
        let error = parse(&text).expect_err("too big");
        assert!(error.problem.contains("aliases"), "{error:?}");
        let deep = "[".repeat(1000);
        assert!(parse(&deep).is_err());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, problem) in [
            ("a: 1\nb: 2\na: 3\n", 3, "key \"a\" is there twice, first on line 1"),
            ("a: 1\n? [x]\n: 2\n", 2, "a key is not a text"),
            ("a: .inf\n", 1, ".inf is a number that JSON does not know"),
            ("a: *nothing\n", 1, ""),
            ("a: 1\n<<: 3\n", 2, "the merge key << needs a map or a list of maps"),
            ("a: 1\n  b: 2\n", 2, ""),
            ("a: \"open\n", 1, ""),
            ("a: 1\n\tb: 2\n", 2, ""),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.problem.contains(problem), "{text}: {error:?}");
            if !problem.is_empty() {
                assert_eq!(error.line, line, "{text}: {error:?}");
            }
        }
    }

    #[test]
    fn empty_documents_are_left_out() {
        assert!(parse("").expect("valid").is_empty());
        assert!(parse("# only a comment\n---\n---\n...\n").expect("valid").is_empty());
        assert_eq!(parse("---\na: 1\n---\n---\nb: 1\n...\n").expect("valid").len(), 2);
    }
}
