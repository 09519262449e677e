//! Where a value is in an object.

use std::fmt;

use serde_json::Value;

/// One step of a [`FieldPath`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// A field of an object.
    Field(String),
    /// A key of a map, printed in brackets.
    Key(String),
    /// A position in a list, 0-based.
    Index(usize),
}

/// Where a value is in an object. Printed as the API server prints it: `spec.template.spec.taints[0].key`,
/// `spec.kubelet.kubeReserved[cpu]`.
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

    /// This path and the key of a map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        let mut longer = self.clone();
        longer.0.push(Segment::Key(key.to_owned()));
        longer
    }

    /// This path and one position more.
    #[must_use]
    pub fn index(&self, at: usize) -> Self {
        let mut longer = self.clone();
        longer.0.push(Segment::Index(at));
        longer
    }

    /// The value there, if there is one.
    pub fn of<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |at, segment| match segment {
            Segment::Field(name) | Segment::Key(name) => at.get(name),
            Segment::Index(index) => at.get(*index),
        })
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Field(name) if at == 0 => f.write_str(name)?,
                Segment::Field(name) => write!(f, ".{name}")?,
                Segment::Key(key) => write!(f, "[{key}]")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
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
