//! JSON values as block YAML, keys sorted, in the style of Kubernetes' own tools: lists are not indented below their
//! key, and strings are quoted only where a YAML 1.1 reader would take them for something else.

use serde_json::Value;

/// `value` as a YAML document, ending with a newline.
pub(crate) fn document(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

fn block(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            for (n, key) in keys.into_iter().enumerate() {
                // The first key of a list's item stands behind its dash.
                if n > 0 || !text.ends_with("- ") {
                    text.push_str(&" ".repeat(indent));
                }
                text.push_str(&scalar(key, indent));
                text.push(':');
                if let Some(value) = fields.get(key) {
                    behind(value, indent, text);
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (n, item) in items.iter().enumerate() {
                if n > 0 || !text.ends_with("- ") {
                    text.push_str(&" ".repeat(indent));
                }
                text.push_str("- ");
                block(item, indent + 2, text);
            }
        }
        plain => {
            text.push_str(&inline(plain, indent));
            text.push('\n');
        }
    }
}

/// What follows a key and its colon.
fn behind(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            text.push('\n');
            block(value, indent + 2, text);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            block(value, indent, text);
        }
        plain => {
            text.push(' ');
            text.push_str(&inline(plain, indent));
            text.push('\n');
        }
    }
}

fn inline(value: &Value, indent: usize) -> String {
    match value {
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        Value::String(text) => scalar(text, indent),
        other => other.to_string(),
    }
}

fn scalar(text: &str, _indent: usize) -> String {
    let control =
        text.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}'));
    if control || is_other_type(text) {
        // JSON's escapes are YAML's escapes.
        return Value::from(text).to_string();
    }
    if is_plain(text) { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

/// Whether a YAML 1.1 reader would take the bare text for a boolean, null, number, date or merge key.
fn is_other_type(text: &str) -> bool {
    const WORDS: &[&str] =
        &["", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "<<", "="];
    let lower = text.to_ascii_lowercase();
    if WORDS.contains(&lower.as_str()) {
        return true;
    }
    let unsigned = lower.strip_prefix(['-', '+']).unwrap_or(&lower);
    if matches!(unsigned, ".inf" | ".nan") {
        return true;
    }
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return false;
    }
    let digits = unsigned.replace('_', "");
    let radix = ["0x", "0o", "0b"].iter().any(|it| digits.starts_with(it));
    let sexagesimal = digits.contains(':')
        && digits.chars().all(|c| c.is_ascii_digit() || matches!(c, ':' | '.'))
        && digits.split(':').skip(1).all(|it| !it.is_empty());
    let date = digits.len() >= 8
        && digits.chars().take(4).all(|c| c.is_ascii_digit())
        && digits.chars().nth(4) == Some('-');
    radix || sexagesimal || date || digits.parse::<f64>().is_ok()
}

/// Whether the text can stand without quotes.
fn is_plain(text: &str) -> bool {
    let first = text.chars().next().unwrap_or(' ');
    let second = text.chars().nth(1);
    let indicator = match first {
        '-' | '?' | ':' => second.is_none_or(char::is_whitespace),
        _ => ",[]{}#&*!|>'\"%@`".contains(first),
    };
    !indicator
        && !text.starts_with(char::is_whitespace)
        && !text.ends_with(char::is_whitespace)
        && !text.ends_with(':')
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("---")
        && !text.starts_with("...")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strings_keep_their_type() {
        for (text, written) in [
            ("10.100.0.10", "10.100.0.10"),
            ("fd30:1c53:5f8a::a", "fd30:1c53:5f8a::a"),
            ("fdac:1::", "'fdac:1::'"),
            ("10.100.0.0/16", "10.100.0.0/16"),
            ("--node-labels=\"a=b\"", "--node-labels=\"a=b\""),
            ("5%", "5%"),
            ("1m", "1m"),
            ("100m", "100m"),
            ("true", "\"true\""),
            ("Off", "\"Off\""),
            ("", "\"\""),
            ("1", "\"1\""),
            ("1.30", "\"1.30\""),
            ("1e3", "\"1e3\""),
            ("0x1F", "\"0x1F\""),
            ("1:30", "\"1:30\""),
            ("2024-01-01", "\"2024-01-01\""),
            ("a: b", "'a: b'"),
            ("it's #1", "'it''s #1'"),
            ("*", "'*'"),
            ("a\nb", "\"a\\nb\""),
        ] {
            assert_eq!(scalar(text, 0), written);
        }
    }

    #[test]
    fn nesting() {
        let value =
            json!({"b": [{"y": 1, "x": [1, [2, 3]]}, []], "a": {}, "c": {"d": null, "e": 0.5}});
        assert_eq!(
            document(&value),
            "a: {}\nb:\n- x:\n  - 1\n  - - 2\n    - 3\n  \"y\": 1\n- []\nc:\n  d: null\n  e: 0.5\n"
        );
    }
}
