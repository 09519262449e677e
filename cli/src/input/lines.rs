//! Paths into objects, and the line on which each field was written.

use std::{collections::BTreeMap, fmt};

/// One step of a [`FieldPath`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// A field, or a key of a map.
    Field(String),
    /// A position in a list, 0-based.
    Index(usize),
}

/// Where a value is in an object. Printed as the API server prints it: `spec.template.spec.taints[0].key`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(pub Vec<Segment>);

impl FieldPath {
    /// The object itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// Reads `spec.template.spec.taints[0].key`. A field whose own name has a dot needs [`FieldPath::field`].
    pub fn parse(text: &str) -> Self {
        let mut path = Self::root();
        for part in text.split('.').filter(|it| !it.is_empty()) {
            let (name, indices) = part.split_once('[').unwrap_or((part, ""));
            if !name.is_empty() {
                path.0.push(Segment::Field(name.to_owned()));
            }
            for index in indices.split('[') {
                if let Ok(index) = index.trim_end_matches(']').parse() {
                    path.0.push(Segment::Index(index));
                }
            }
        }
        path
    }

    /// This path and one field more.
    #[must_use]
    pub fn field(&self, name: &str) -> Self {
        let mut longer = self.clone();
        longer.0.push(Segment::Field(name.to_owned()));
        longer
    }

    /// This path and one position more.
    #[must_use]
    pub fn index(&self, at: usize) -> Self {
        let mut longer = self.clone();
        longer.0.push(Segment::Index(at));
        longer
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Field(name) if at == 0 => f.write_str(name)?,
                Segment::Field(name) => write!(f, ".{name}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// The line of a value's key (of the value itself for list items and documents), and those of what is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// 1-based.
    pub line: u32,
    pub within: Within,
}

/// What is inside a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Within {
    #[default]
    Nothing,
    Fields(BTreeMap<String, Lines>),
    Items(Vec<Lines>),
}

impl Lines {
    /// The line of `path`, or of its nearest ancestor that is there.
    pub fn of(&self, path: &FieldPath) -> u32 {
        let mut at = self;
        for segment in &path.0 {
            let next = match (&at.within, segment) {
                (Within::Fields(fields), Segment::Field(name)) => fields.get(name),
                (Within::Items(items), Segment::Index(index)) => items.get(*index),
                _ => None,
            };
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        at.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_printed_as_the_api_server_prints_them() {
        let text = "spec.template.spec.requirements[2].values[0]";
        assert_eq!(FieldPath::parse(text).to_string(), text);
        let label = FieldPath::parse("spec.template.metadata.labels").field("example.com/team");
        assert_eq!(label.to_string(), "spec.template.metadata.labels.example.com/team");
        assert_eq!(FieldPath::root().field("a").index(0).index(1).to_string(), "a[0][1]");
        assert_eq!(FieldPath::parse("a[0][1]"), FieldPath::root().field("a").index(0).index(1));
    }
}
