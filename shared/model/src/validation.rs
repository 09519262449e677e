//! Runtime validation: what a stored object can still have wrong, which becomes `ValidationSucceeded=False`.
//!
//! Each check returns [`Problem`]s in a fixed order. A condition's message is all of them joined with `; `
//! ([`message`]); `lint` prints them one by one.

mod capacity_buffer;
mod kubelet;
pub mod names;
mod node_overlay;
mod node_pool;
mod requirements;

pub use capacity_buffer::capacity_buffer;
pub use kubelet::kubelet;
pub use node_overlay::node_overlay;
pub use node_pool::node_pool;
pub use requirements::{is_restricted, requirement};

use crate::FieldPath;

/// One thing wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The field that is wrong.
    pub field: FieldPath,
    /// As conditions word it.
    pub message: String,
}

impl Problem {
    pub fn new(field: FieldPath, message: impl Into<String>) -> Self {
        Self { field, message: message.into() }
    }
}

/// The text of a condition: all problems, joined with `; `.
pub fn message(problems: &[Problem]) -> String {
    problems.iter().map(|it| it.message.as_str()).collect::<Vec<_>>().join("; ")
}
