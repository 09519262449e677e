//! Writing YAML: block style, keys in the order of the JSON, texts quoted only where they must be.

use serde_json::Value;

/// `values` as YAML documents, `---` between them.
pub fn documents<'a>(values: impl IntoIterator<Item = &'a Value>) -> String {
    let mut text = String::new();
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            text.push_str("---\n");
        }
        match value {
            Value::Object(fields) if !fields.is_empty() => block(value, 0, &mut text),
            Value::Array(items) if !items.is_empty() => block(value, 0, &mut text),
            scalar => {
                inline(scalar, &mut text);
                text.push('\n');
            }
        }
    }
    text
}

fn indent(depth: usize, text: &mut String) {
    text.extend(std::iter::repeat_n(' ', depth * 2));
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

/// A filled map or list on lines of its own.
fn block(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                indent(depth, text);
                entry(key, value, depth, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                indent(depth, text);
                text.push_str("- ");
                match item {
                    Value::Object(fields) if !fields.is_empty() => {
                        for (at, (key, value)) in fields.iter().enumerate() {
                            if at > 0 {
                                indent(depth + 1, text);
                            }
                            entry(key, value, depth + 1, text);
                        }
                    }
                    Value::Array(inner) if !inner.is_empty() => {
                        text.push('\n');
                        block(item, depth + 1, text);
                    }
                    scalar => line(scalar, depth + 1, text),
                }
            }
        }
        scalar => line(scalar, depth, text),
    }
}

/// The longest key that can stand before its colon, as it is written; a longer one is marked as a key. YAML 1.2, 7.4.2.
const LONGEST_KEY: usize = 1024;

fn entry(key: &str, value: &Value, depth: usize, text: &mut String) {
    let mut written = String::new();
    string(key, &mut written);
    let is_long = written.len() > LONGEST_KEY;
    if is_long {
        text.push_str("? ");
        text.push_str(&written);
        text.push('\n');
        indent(depth, text);
    } else {
        text.push_str(&written);
    }
    text.push(':');
    if is_block(value) {
        text.push('\n');
        // Lists stand under their key without a further step.
        let depth = if value.is_array() && !is_long { depth } else { depth + 1 };
        block(value, depth, text);
    } else {
        text.push(' ');
        line(value, depth + 1, text);
    }
}

/// A scalar, to the end of its line; long texts of many lines as a literal block.
fn line(value: &Value, depth: usize, text: &mut String) {
    if let Value::String(it) = value
        && is_literal(it)
    {
        text.push('|');
        if !it.ends_with('\n') {
            text.push('-');
        } else if it.ends_with("\n\n") {
            text.push('+');
        }
        text.push('\n');
        for part in it.strip_suffix('\n').unwrap_or(it).split('\n') {
            if !part.is_empty() {
                indent(depth, text);
                text.push_str(part);
            }
            text.push('\n');
        }
        return;
    }
    inline(value, text);
    text.push('\n');
}

/// Whether a text can be a literal block: several lines, nothing invisible, no leading space to be mistaken for indentation.
fn is_literal(it: &str) -> bool {
    it.contains('\n')
        && !it.starts_with([' ', '\n', '\t'])
        && it.trim_end_matches('\n').len() + 1 >= it.len()
        && it.chars().all(|c| c == '\n' || c == '\t' || !c.is_control())
        && !it.contains(['\u{85}', '\u{2028}', '\u{2029}', '\u{feff}'])
}

fn inline(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(it) => text.push_str(if *it { "true" } else { "false" }),
        Value::Number(it) => text.push_str(&it.to_string()),
        Value::String(it) => string(it, text),
        Value::Array(_) => text.push_str("[]"),
        Value::Object(_) => text.push_str("{}"),
    }
}

fn string(it: &str, text: &mut String) {
    if is_plain(it) {
        text.push_str(it);
    } else {
        // A JSON text is a double-quoted YAML text.
        text.push_str(&serde_json::to_string(it).unwrap_or_default());
    }
}

/// Whether a text without quotes is read back as this very text.
fn is_plain(it: &str) -> bool {
    let Some(first) = it.chars().next() else { return false };
    let starts_well =
        first.is_ascii_alphabetic() || matches!(first, '/' | '_' | '.' | '^' | '$' | '(');
    let starts_well = starts_well || (first.is_ascii_digit() && !is_numeric(it));
    starts_well
        && !it.starts_with("---")
        && !it.ends_with([' ', ':'])
        && !it.contains(": ")
        && !it.contains(" #")
        && it
            .chars()
            .all(|c| c == ' ' || c.is_ascii_graphic() || (c.is_alphanumeric() && !c.is_ascii()))
        && !is_word(it)
        && !is_numeric(it)
}

fn is_word(it: &str) -> bool {
    let lower = it.to_ascii_lowercase();
    let lower = lower.trim_start_matches('.');
    matches!(
        lower,
        "y" | "n" | "yes" | "no" | "true" | "false" | "on" | "off" | "null" | "nan" | "inf" | ""
    )
}

/// Whether some reader might take it for a number or a date: digits with what goes between them, and nothing else.
fn is_numeric(it: &str) -> bool {
    let looks = |c: char| {
        c.is_ascii_hexdigit()
            || matches!(c, '.' | '_' | '+' | '-' | 'x' | 'o' | ':' | 'T' | 'Z' | ' ')
    };
    let first = it.trim_start_matches(['.', '+', '-']).chars().next();
    first.is_some_and(|c| c.is_ascii_digit()) && it.chars().all(looks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::input;

    #[test]
    fn looks_as_people_write_it() {
        let value = json!({
            "apiVersion": "karpenter.sh/v1",
            "spec": {"list": [{"key": "a", "values": ["1", "true", "x: y", "m5.large"]}, [1, [2]], {}],
                     "text": "line one\nline two\n", "empty": {}, "none": [], "n": 1.5, "q": "10%", "star": "*"}});
        let expected = "\
apiVersion: karpenter.sh/v1
spec:
  empty: {}
  list:
  - key: a
    values:
    - \"1\"
    - \"true\"
    - \"x: y\"
    - m5.large
  - 
    - 1
    - 
      - 2
  - {}
  \"n\": 1.5
  none: []
  q: 10%
  star: \"*\"
  text: |
    line one
    line two
";
        assert_eq!(documents([&value]), expected);
    }

    fn back(value: &Value) -> Value {
        let wrapped = json!({"apiVersion": "v1", "kind": "K", "value": value});
        let text = documents([&wrapped]);
        let manifests =
            input::load_text("t.yaml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        manifests[0].value["value"].clone()
    }

    #[test]
    fn tricky_texts_come_back() {
        for text in [
            "",
            " ",
            "a ",
            " a",
            "-",
            "- a",
            "a\n",
            "a\n\nb",
            "a\n\n",
            "\n",
            "\na",
            " a\nb",
            "a: b",
            "a #b",
            "#",
            "null",
            "~",
            "1",
            "1.5",
            "0x1",
            "1e3",
            "12:30",
            "2026-01-01",
            "yes",
            "No",
            ".inf",
            "@daily",
            "`",
            "%",
            "&a",
            "*a",
            "!a",
            "|",
            ">",
            "{a}",
            "[a]",
            "a\tb",
            "é",
            "\u{2028}",
            "'a'",
            "\"a\"",
            "a\\b",
            "key:",
            "? a",
            "---",
            "...",
            "1_000",
            "5m",
            "1h30m",
            "010",
            "a\r\nb",
            "<<",
            "=",
            "0 9 * * mon-fri",
            "1 2",
            "\u{feff}a",
            "a\nb \nc",
            "a\n  b\n",
            "x\n\ty",
        ] {
            assert_eq!(back(&json!(text)), json!(text), "{text:?}");
            assert_eq!(back(&json!({text: 1})), json!({text: 1}), "key {text:?}");
        }
    }

    #[test] // Found by fuzzing: control characters are written as six.
    fn keys_longer_than_yaml_takes_before_a_colon_come_back() {
        let controls = "\u{1}".repeat(200);
        for key in [controls.clone(), "é\"".repeat(400)]
            .into_iter()
            .chain((1015..1030).map(|n| "a".repeat(n)))
            .chain((1010..1025).map(|n| format!("{}:", "a".repeat(n))))
        {
            for value in [
                json!({"b": {"c": [1]}}),
                json!([1, {"d": []}]),
                json!("x\ny\n"),
                json!({}),
                json!(7),
            ] {
                let whole = json!([{&key: value, "z": 1}, {"y": {&key: value}}]);
                assert_eq!(back(&whole), whole, "{} {value}", key.len());
            }
        }
        let whole = json!({&controls: {&controls: 1}});
        assert_eq!(back(&whole), whole);
    }

    proptest! {
        #[test]
        fn texts_come_back(text in "[ -~\\n\\té]{0,12}") {
            prop_assert_eq!(back(&json!([&text, {"a": &text}])), json!([&text, {"a": &text}]));
        }
    }
}
