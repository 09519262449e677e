//! TOML as `[table]` sections, in the style of Bottlerocket's documentation: plain values first, then tables;
//! strings in single quotes where that is possible.

use toml::Value;

/// A table whose keys are written in the given order.
pub(crate) type Entries = Vec<(String, Node)>;

/// A value, or a table in an order of our own.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Value(Value),
    Table(Entries),
}

impl Node {
    /// A value; tables inside it are sorted by key.
    pub(crate) fn from(value: Value) -> Self {
        match value {
            Value::Table(table) => Self::Table(sorted(table)),
            other => Self::Value(other),
        }
    }
}

/// The entries of a table by key.
pub(crate) fn sorted(table: toml::Table) -> Entries {
    let mut entries: Entries =
        table.into_iter().map(|(key, value)| (key, Node::from(value))).collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    entries
}

/// `[name]` with everything below it.
pub(crate) fn document(name: &str, entries: &Entries) -> String {
    let mut text = String::new();
    table(&key(name), entries, &mut text);
    text
}

fn table(path: &str, entries: &Entries, text: &mut String) {
    text.push_str(&format!("[{path}]\n"));
    body(path, entries, text);
}

fn body(path: &str, entries: &Entries, text: &mut String) {
    let mut separate = false;
    for (name, node) in entries {
        if let Node::Value(value) = node
            && !is_array_of_tables(value)
        {
            text.push_str(&format!("{} = {}\n", key(name), inline(value)));
            separate = true;
        }
    }
    for (name, node) in entries {
        let path = format!("{path}.{}", key(name));
        match node {
            Node::Table(entries) => {
                if separate {
                    text.push('\n');
                }
                table(&path, entries, text);
                separate = true;
            }
            Node::Value(Value::Array(items))
                if is_array_of_tables(&Value::Array(items.clone())) =>
            {
                for item in items {
                    if separate {
                        text.push('\n');
                    }
                    text.push_str(&format!("[[{path}]]\n"));
                    if let Value::Table(item) = item {
                        body(&path, &sorted(item.clone()), text);
                    }
                    separate = true;
                }
            }
            Node::Value(_) => {}
        }
    }
}

fn is_array_of_tables(value: &Value) -> bool {
    value.as_array().is_some_and(|items| !items.is_empty() && items.iter().all(Value::is_table))
}

fn key(name: &str) -> String {
    let bare = !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if bare { name.to_owned() } else { string(name) }
}

fn string(text: &str) -> String {
    if !text.chars().any(|c| c == '\'' || c.is_control()) {
        return format!("'{text}'");
    }
    let mut quoted = "\"".to_owned();
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => string(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Value::Table(table) => {
            let mut keys: Vec<&String> = table.keys().collect();
            keys.sort();
            let entries = keys
                .into_iter()
                .filter_map(|name| Some(format!("{} = {}", key(name), inline(table.get(name)?))));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Float(number) if number.is_nan() => "nan".to_owned(),
        Value::Float(number) if number.is_infinite() => {
            if *number > 0.0 { "inf" } else { "-inf" }.to_owned()
        }
        Value::Float(number) => format!("{number:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(it) => it.to_string(),
        Value::Datetime(it) => it.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_the_same() {
        let text = r#"
            zero = 0.0
            day = 2024-01-01T00:00:00Z
            odd = "it's\ta\u0001\\\""
            "a.b" = [1, [2], {x = 'y', "u v" = {}}]
            [empty]
            [one.two.three]
            four = true
            [[list]]
            a = 1
            [[list]]
            [list.sub]
            b = -1.5e10
            [["li'st"]]
        "#;
        let table: toml::Table = toml::from_str(text).expect("valid");
        let written = document("settings", &sorted(table.clone()));
        let read: toml::Table = toml::from_str(&written).expect(&written);
        assert_eq!(read["settings"], Value::Table(table), "{written}");
    }
}
