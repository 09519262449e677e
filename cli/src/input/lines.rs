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
    Fields(BTreeMap<String, Lines>),
    Items(Vec<Lines>),
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
