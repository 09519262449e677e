//! Watches the cluster and tells the concerns, through the custom bus, which objects to look at.
//!
//! [`Bridge`] is the pure part: it turns changes of objects into events that hold keys, each object once, with the
//! batch windows of the two solvers. It wakes a concern only for a change of what that concern reads. Which queue an
//! event reaches is said by `spokeshave_lambda::wiring::ROUTES`.

mod batch;
mod routing;

pub use batch::{KEYS_PER_EVENT, Window};
pub use routing::{Bridge, is_provisionable};
pub use spokeshave_ports::Change;
