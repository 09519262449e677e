//! JSON with the line of every field: one value, or several one after another.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    Document, ParseError,
    lines::{Lines, Within},
    yaml::{MAX_DEPTH, duplicate, too_deep},
};

/// Reads all values of `text`.
pub(super) fn parse(text: &str) -> Result<Vec<Document>, ParseError> {
    let mut reader = Reader { text, at: 0, line: 1 };
    let mut documents = Vec::new();
    loop {
        reader.skip_space();
        if reader.peek().is_none() {
            return Ok(documents);
        }
        let (value, lines) = reader.value(0)?;
        documents.push(Document { value, lines });
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(byte @ (b' ' | b'\t' | b'\r' | b'\n')) = self.peek() {
            self.line += u32::from(byte == b'\n');
            self.at += 1;
        }
    }

    fn wrong(&self, problem: &str) -> ParseError {
        ParseError {
            line: self.line,
            problem: format!("not JSON: {problem}"),
            fix: "check the commas, the brackets and the quotes here".into(),
        }
    }

    fn take(&mut self, wanted: u8) -> Result<(), ParseError> {
        self.skip_space();
        if self.peek() == Some(wanted) {
            self.at += 1;
            return Ok(());
        }
        Err(self.wrong(&match self.rest().chars().next() {
            Some(found) => format!("expected {:?}, found {found:?}", char::from(wanted)),
            None => format!("expected {:?}, found the end", char::from(wanted)),
        }))
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn value(&mut self, depth: usize) -> Result<(Value, Lines), ParseError> {
        self.skip_space();
        let line = self.line;
        if depth > MAX_DEPTH {
            return Err(too_deep(line));
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => {
                Ok((Value::String(self.string()?), Lines { line, within: Within::Nothing }))
            }
            Some(_) => Ok((self.word()?, Lines { line, within: Within::Nothing })),
            None => Err(self.wrong("expected a value, found the end")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<(Value, Lines), ParseError> {
        let line = self.line;
        self.at += 1;
        let mut values = Map::new();
        let mut fields: BTreeMap<String, Lines> = BTreeMap::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok((
                Value::Object(values),
                Lines { line, within: Within::Fields(fields.into()) },
            ));
        }
        loop {
            self.skip_space();
            let key_line = self.line;
            if self.peek() != Some(b'"') {
                return Err(self.wrong("expected a key in double quotes"));
            }
            let key = self.string()?;
            self.take(b':')?;
            let (value, mut lines) = self.value(depth + 1)?;
            lines.line = key_line;
            if let Some(first) = fields.get(&key) {
                return Err(duplicate(&key, first.line, key_line));
            }
            values.insert(key.clone(), value);
            fields.insert(key, lines);
            self.skip_space();
            if self.peek() == Some(b',') {
                self.at += 1;
                continue;
            }
            self.take(b'}')?;
            return Ok((
                Value::Object(values),
                Lines { line, within: Within::Fields(fields.into()) },
            ));
        }
    }

    fn array(&mut self, depth: usize) -> Result<(Value, Lines), ParseError> {
        let line = self.line;
        self.at += 1;
        let (mut values, mut items) = (Vec::new(), Vec::new());
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok((Value::Array(values), Lines { line, within: Within::Items(items) }));
        }
        loop {
            let (value, lines) = self.value(depth + 1)?;
            values.push(value);
            items.push(lines);
            self.skip_space();
            if self.peek() == Some(b',') {
                self.at += 1;
                continue;
            }
            self.take(b']')?;
            return Ok((Value::Array(values), Lines { line, within: Within::Items(items) }));
        }
    }

    /// A text in double quotes; escapes are left to `serde_json`.
    fn string(&mut self) -> Result<String, ParseError> {
        let bytes = self.text.as_bytes();
        let mut end = self.at + 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(b'\n') | None => return Err(self.wrong("a text is not closed")),
                Some(_) => end += 1,
            }
        }
        let text = self.text.get(self.at..=end).unwrap_or("");
        let value = serde_json::from_str(text)
            .map_err(|_| self.wrong("a text has a control character or a wrong escape"))?;
        self.at = end + 1;
        Ok(value)
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Result<Value, ParseError> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')))
            .unwrap_or(rest.len());
        let word = &rest[..end];
        let value: Value = match serde_json::from_str(word) {
            Ok(value) => value,
            Err(_) if word.is_empty() => {
                let found = rest.chars().next().unwrap_or(' ');
                return Err(self.wrong(&format!("expected a value, found {found:?}")));
            }
            Err(_) => return Err(self.wrong(&format!("{word:?} is not a value"))),
        };
        // `serde_json` may be off by the last digit of a long fraction.
        let exact = word.parse::<f64>().ok().filter(|_| value.is_f64()).map(Value::from);
        self.at += end;
        Ok(whole(exact.unwrap_or(value)))
    }
}

/// Whole numbers written with a fraction or an exponent are integers, as in YAML: Go's tools write them so.
fn whole(value: Value) -> Value {
    let float = value.as_f64().filter(|_| value.is_f64());
    match float.filter(|it| it.fract() == 0.0 && it.abs() < 1e15) {
        Some(float) => Value::from(float as i64),
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::input::lines::FieldPath;

    #[test]
    fn reads_values_and_lines() {
        let text = "{\"a\": [1, -2.5,\n true, null, \"x\\n\\u00e9\"],\n\"b\": {}, \"c\": []}\n{\"d\":1} {\"e\":2}";
        let documents = parse(text).expect("valid");
        assert_eq!(documents.len(), 3);
        assert_eq!(
            documents[0].value,
            json!({"a": [1, -2.5, true, null, "x\n\u{e9}"], "b": {}, "c": []})
        );
        assert_eq!(documents[0].lines.of(&FieldPath::parse("a[2]")), 2);
        assert_eq!(documents[0].lines.of(&FieldPath::parse("b")), 3);
        assert_eq!(documents[2].lines.line, 4);
    }

    #[test]
    fn refuses_what_is_not_json() {
        for (text, line, problem) in [
            ("{\"a\": 1,\n}", 2, "expected a key in double quotes"),
            ("{\"a\" 1}", 1, "expected ':', found '1'"),
            ("[1, 2", 1, "expected ']', found the end"),
            ("{\"a\": tru}", 1, "\"tru\" is not a value"),
            ("{\"a\": 'x'}", 1, "expected a value, found '\\''"),
            ("{\"a\": \"x\n\"}", 1, "a text is not closed"),
            ("{\"a\": \"\\", 1, "a text is not closed"),
            ("{\"a\": \"\\x\"}", 1, "a text has a control character or a wrong escape"),
            ("{\"a\": 1,\n \"a\": 2}", 2, "key \"a\" is there twice, first on line 1"),
            ("{\"a\": 01}", 1, "\"01\" is not a value"),
            ("{", 1, "expected a key in double quotes"),
            ("{\"a\":", 1, "expected a value, found the end"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.problem.contains(problem), "{text}: {error:?}");
            assert_eq!(error.line, line, "{text}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    fn wholes(value: Value) -> Value {
        match value {
            Value::Array(items) => items.into_iter().map(wholes).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(key, value)| (key, wholes(value))).collect()
            }
            value => whole(value),
        }
    }

    #[test]
    fn whole_numbers_are_integers() {
        let documents = parse("[1.0, 1e3, -2.50, 1e300, 9223372036854775808]").expect("valid");
        assert_eq!(
            documents[0].value,
            json!([1, 1000, -2.5, 1e300, 9_223_372_036_854_775_808_u64])
        );
        for text in ["1.7976931348623157e308", "0.00011111111111111112", "9.109383701528e-31"] {
            let exact: f64 = text.parse().expect("a number");
            assert_eq!(parse(text).expect("valid")[0].value.as_f64(), Some(exact), "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_agrees_with_serde(text in "[\\[\\]{}:, \"a\\\\1e.\n-]{0,40}") {
            let ours = parse(&text);
            if let Ok(theirs) = serde_json::from_str::<Value>(&text) {
                // A repeated key is the only thing that we refuse beyond JSON itself.
                match ours {
                    Ok(documents) => prop_assert_eq!(&documents[0].value, &wholes(theirs)),
                    Err(error) => prop_assert!(error.problem.contains("twice")),
                }
            }
        }
    }
}
