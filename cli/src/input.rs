//! Reading manifests: YAML and JSON, files, directories and standard input, lists unpacked.
//!
//! [`load`] keeps the line of every field, for commands that talk about manifests. [`load_cluster`] reads whole
//! clusters straight into typed objects, without line tables.

mod catalog;
mod cluster;
mod json;
pub mod lines;
mod yaml;

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use serde_json::Value;
use spokeshave_model::Kind;

use crate::Failure;
pub use catalog::load_catalog;
pub use cluster::{ClusterInput, load_cluster, of_kind};
pub use lines::{FieldPath, Lines, Segment, Within};

/// One object of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manifest {
    /// As it was given, or found in a directory; `-` for standard input.
    pub file: String,
    /// Where the object begins, 1-based.
    pub line: u32,
    pub api_version: String,
    pub kind: String,
    /// Empty where the manifest names none.
    pub namespace: String,
    /// Empty where the manifest names none.
    pub name: String,
    /// The whole object, as written.
    pub value: Value,
    /// The line of every field.
    pub lines: Lines,
}

impl Manifest {
    /// API group, empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// API version without the group.
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(self.api_version.as_str(), |(_, version)| version)
    }

    /// Whether it is of kind `K`, in the version that we serve.
    pub fn is<K: Kind>(&self) -> bool {
        self.kind == K::KIND && self.group() == K::GROUP && self.version() == K::VERSION
    }

    /// `Kind/name` or `Kind/namespace/name`.
    pub fn reference(&self) -> String {
        if self.namespace.is_empty() {
            format!("{}/{}", self.kind, self.name)
        } else {
            format!("{}/{}/{}", self.kind, self.namespace, self.name)
        }
    }

    /// The line of `field` (as the API server prints it), or of its nearest ancestor.
    pub fn line_of(&self, field: &FieldPath) -> u32 {
        self.lines.of(field)
    }

    /// A failure about this object.
    pub fn failure(&self, field: &FieldPath, problem: impl Into<String>) -> Failure {
        let failure = Failure::new(problem)
            .file(&self.file)
            .line(self.line_of(field))
            .object(self.reference());
        if field.0.is_empty() { failure } else { failure.field(field.to_string()) }
    }

    /// The object as `K`, whatever its `apiVersion` and `kind` say.
    ///
    /// # Errors
    /// When a field has the wrong type; the failure names it.
    pub fn typed<K: Kind>(&self) -> Result<K, Failure> {
        typed(self.value.clone()).map_err(|(field, problem)| {
            self.failure(&field, problem).fix("correct the value of this field")
        })
    }
}

/// `value` as `K`; on failure the field and what is wrong with it.
fn typed<K: Kind>(mut value: Value) -> Result<K, (FieldPath, String)> {
    if let Value::Object(fields) = &mut value {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        use serde_path_to_error::Segment as Step;
        let mut path = FieldPath::root();
        for step in error.path() {
            match step {
                Step::Seq { index } => path.0.push(Segment::Index(*index)),
                Step::Map { key } => path.0.push(Segment::Field(key.clone())),
                Step::Enum { variant } => path.0.push(Segment::Field(variant.clone())),
                Step::Unknown => {}
            }
        }
        (path, error.into_inner().to_string())
    })
}

/// What a parser found: one document.
#[derive(Debug)]
struct Document {
    value: Value,
    lines: Lines,
}

/// Why a text cannot be read.
#[derive(Debug)]
struct ParseError {
    line: u32,
    problem: String,
    fix: String,
}

/// Reads every object of `paths`: files, directories (all `.yaml`, `.yml` and `.json` in them, at any depth, sorted) and `-`.
/// Lists are unpacked. The order is that of `paths` and of the files.
///
/// # Errors
/// The first path that cannot be read, document that is no YAML or JSON, or object without `apiVersion` or `kind`.
pub fn load(paths: &[PathBuf]) -> Result<Vec<Manifest>, Failure> {
    let mut manifests = Vec::new();
    for source in sources(paths)? {
        let text = read(&source)?;
        for document in documents(&source, &text)? {
            unpack(&source, document, None, &mut manifests)?;
        }
    }
    Ok(manifests)
}

/// Reads every object of one text, as [`load`] does; `file` is its name in messages.
///
/// # Errors
/// As [`load`].
pub fn load_text(file: &str, text: &str) -> Result<Vec<Manifest>, Failure> {
    let mut manifests = Vec::new();
    for document in documents(file, text)? {
        unpack(file, document, None, &mut manifests)?;
    }
    Ok(manifests)
}

/// The files behind `paths`, in order.
///
/// # Errors
/// A path that does not exist or a directory that cannot be listed.
pub fn sources(paths: &[PathBuf]) -> Result<Vec<String>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" || !path.is_dir() {
            files.push(path.display().to_string());
        } else {
            directory(path, 0, &mut files)?;
        }
    }
    Ok(files)
}

fn directory(path: &Path, depth: usize, files: &mut Vec<String>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot list the directory: {error}")).file(path.display().to_string())
    };
    if depth > 64 {
        return Err(Failure::new("directories are nested more than 64 deep")
            .file(path.display().to_string())
            .fix("look for a link that leads back"));
    }
    let mut entries = fs::read_dir(path)
        .map_err(failed)?
        .map(|entry| entry.map(|it| it.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    entries.sort();
    for entry in entries {
        let hidden = entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let extension = entry.extension().map(|it| it.to_string_lossy().to_ascii_lowercase());
        if entry.is_dir() {
            if !hidden {
                directory(&entry, depth + 1, files)?;
            }
        } else if matches!(extension.as_deref(), Some("yaml" | "yml" | "json")) {
            files.push(entry.display().to_string());
        }
    }
    Ok(())
}

/// The text of a file, or of standard input for `-`.
///
/// # Errors
/// When it cannot be read or is not UTF-8.
pub fn read(source: &str) -> Result<String, Failure> {
    let bytes = if source == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(source)
    };
    let bytes = bytes.map_err(|error| {
        let fix = match error.kind() {
            std::io::ErrorKind::NotFound => "check the path",
            std::io::ErrorKind::PermissionDenied => "check the permissions of the file",
            _ => "give a file, a directory or - for standard input",
        };
        Failure::new(format!("cannot read: {error}")).file(source).fix(fix)
    })?;
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").map(<[u8]>::to_vec).unwrap_or(bytes);
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes().iter().take(good).filter(|byte| **byte == b'\n').count();
        Failure::new("not UTF-8 text")
            .file(source)
            .line(u32::try_from(line).unwrap_or(u32::MAX))
            .fix("save the file as UTF-8")
    })
}

fn looks_like_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

fn documents(file: &str, text: &str) -> Result<Vec<Document>, Failure> {
    let failure =
        |error: ParseError| Failure::new(error.problem).file(file).line(error.line).fix(error.fix);
    if !looks_like_json(text) {
        return yaml::parse(text).map_err(failure);
    }
    // What begins with a brace may also be YAML in flow style, unless the file says that it is JSON.
    json::parse(text).or_else(|as_json| {
        if file.ends_with(".json") {
            return Err(failure(as_json));
        }
        yaml::parse(text).map_err(|as_yaml| {
            let is_yaml = file.ends_with(".yaml") || file.ends_with(".yml");
            failure(if is_yaml { as_yaml } else { as_json })
        })
    })
}

/// Turns a document into manifests. `item_of` is the (apiVersion, kind) that items of a typed list leave out.
fn unpack(
    file: &str,
    document: Document,
    item_of: Option<(&str, &str)>,
    manifests: &mut Vec<Manifest>,
) -> Result<(), Failure> {
    let Document { mut value, lines } = document;
    let at = |line: u32, problem: String| Failure::new(problem).file(file).line(line);
    let Value::Object(fields) = &mut value else {
        return Err(at(lines.line, format!("found {} where an object should be", noun(&value)))
            .fix("a manifest has apiVersion, kind, metadata and spec"));
    };
    let text = |name: &str, implied: Option<&str>| match (fields.get(name), implied) {
        (Some(Value::String(text)), _) if !text.is_empty() => Ok(text.clone()),
        (None, Some(implied)) => Ok(implied.to_owned()),
        (None | Some(Value::Null), _) => Err(at(lines.line, format!("the object has no {name}"))
            .field(name)
            .fix(format!("add {name}, for instance {name}: {}", example(name)))),
        (Some(other), _) => {
            let problem = match other {
                Value::String(_) => format!("{name} is empty"),
                _ => format!("{name} is {}, not a text", noun(other)),
            };
            Err(at(lines.of(&FieldPath::root().field(name)), problem)
                .field(name)
                .fix(format!("write for instance {name}: {}", example(name))))
        }
    };
    let kind = text("kind", item_of.map(|it| it.1))?;
    let api_version = text("apiVersion", item_of.map(|it| it.0))?;
    if let Some(item_kind) = kind.strip_suffix("List")
        && fields.get("items").is_some_and(Value::is_array)
    {
        let Some(Value::Array(items)) = fields.remove("items") else { return Ok(()) };
        let item_lines = match &lines.within {
            Within::Fields(fields) => fields.get("items"),
            _ => None,
        };
        let item_lines = match item_lines.map(|it| &it.within) {
            Some(Within::Items(items)) => items.as_slice(),
            _ => &[],
        };
        let implied = (!item_kind.is_empty()).then_some((api_version.as_str(), item_kind));
        for (at, value) in items.into_iter().enumerate() {
            let lines = item_lines
                .get(at)
                .cloned()
                .unwrap_or(Lines { line: lines.line, within: Within::Nothing });
            unpack(file, Document { value, lines }, implied, manifests)?;
        }
        return Ok(());
    }
    if item_of.is_some() {
        for (name, implied) in [("apiVersion", &api_version), ("kind", &kind)] {
            if !fields.contains_key(name) {
                fields.insert(name.to_owned(), Value::String(implied.clone()));
            }
        }
    }
    let named = |name: &str| {
        let text = value.get("metadata").and_then(|it| it.get(name)).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    manifests.push(Manifest {
        file: file.to_owned(),
        line: lines.line,
        name: named("name"),
        namespace: named("namespace"),
        api_version,
        kind,
        value,
        lines,
    });
    Ok(())
}

fn example(field: &str) -> &'static str {
    if field == "kind" { "NodePool" } else { "karpenter.sh/v1" }
}

/// What a value is, for messages.
pub(crate) fn noun(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use spokeshave_model::NodePool;

    use super::*;

    fn references(text: &str) -> Vec<String> {
        load_text("a.yaml", text).expect("valid").iter().map(Manifest::reference).collect()
    }

    #[test]
    fn lists_are_unpacked_at_any_depth() {
        let text = r#"{"apiVersion":"v1","kind":"List","items":[
            {"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"n"}},
            {"apiVersion":"v1","kind":"List","items":[
              {"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{"name":"p"}}]}]}
            {"apiVersion":"karpenter.sh/v1","kind":"NodePoolList","items":[{"metadata":{"name":"q"}}]}"#;
        assert_eq!(references(text), ["Pod/n/a", "NodePool/p", "NodePool/q"]);
        let manifests = load_text("a.json", text).expect("valid");
        assert_eq!(manifests.iter().map(|it| it.line).collect::<Vec<_>>(), [2, 4, 5]);
        assert!(manifests[2].is::<NodePool>());
        assert_eq!(manifests[2].value["kind"], "NodePool");
    }

    #[test]
    fn flow_style_yaml_is_not_taken_for_broken_json() {
        assert_eq!(references("{apiVersion: v1, kind: Pod, metadata: {name: a}}\n"), ["Pod/a"]);
    }

    #[test]
    fn json_files_are_json() {
        let failure = load_text("a.json", "{\"kind\": \"Pod\",\n}").expect_err("a comma too much");
        assert!(failure.to_string().starts_with("a.json:2: not JSON: "), "{failure}");
    }

    #[test]
    fn failures_name_file_line_and_fix() {
        for (text, message) in [
            (
                "kind: Pod\n",
                "f.yaml:1: apiVersion: the object has no apiVersion; add apiVersion, for instance apiVersion: karpenter.sh/v1",
            ),
            (
                "---\napiVersion: v1\n",
                "f.yaml:2: kind: the object has no kind; add kind, for instance kind: NodePool",
            ),
            (
                "apiVersion: v1\nkind: 3\n",
                "f.yaml:2: kind: kind is a number, not a text; write for instance kind: NodePool",
            ),
            (
                "- a\n",
                "f.yaml:1: found a list where an object should be; a manifest has apiVersion, kind, metadata and spec",
            ),
            (
                "a: 1\na: 2\n",
                "f.yaml:2: key \"a\" is there twice, first on line 1; remove one of the two",
            ),
        ] {
            let failure = load_text("f.yaml", text).expect_err(text);
            assert_eq!(failure.to_string(), message);
        }
    }

    #[test]
    fn typed_objects_name_the_field_that_does_not_fit() {
        let text = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: p}\nspec:\n  weight: ten\n";
        let failure =
            load_text("p.yaml", text).expect("valid")[0].typed::<NodePool>().expect_err("a text");
        assert!(
            failure.to_string().starts_with("p.yaml:5: NodePool/p: spec.weight: "),
            "{failure}"
        );
    }
}
