//! The line on which each field was written.

use std::collections::BTreeMap;

pub use spokeshave_model::field_path::{FieldPath, Segment};

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
    Fields(Fields),
    Items(Vec<Lines>),
}

/// The fields of an object, sorted by name. Files have many small objects: a tree for each would take most of the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Box<[(Box<str>, Lines)]>);

impl Fields {
    pub fn get(&self, name: &str) -> Option<&Lines> {
        let at = self.0.binary_search_by(|(it, _)| it.as_ref().cmp(name)).ok()?;
        self.0.get(at).map(|(_, lines)| lines)
    }
}

impl From<BTreeMap<String, Lines>> for Fields {
    fn from(fields: BTreeMap<String, Lines>) -> Self {
        Self(fields.into_iter().map(|(name, lines)| (name.into_boxed_str(), lines)).collect())
    }
}

impl Lines {
    /// The line of `path`, or of its nearest ancestor that is there.
    pub fn of(&self, path: &FieldPath) -> u32 {
        let mut at = self;
        for segment in &path.0 {
            let next = match (&at.within, segment) {
                (Within::Fields(fields), Segment::Field(name) | Segment::Key(name)) => {
                    fields.get(name)
                }
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
