//! Watches the cluster and tells the concerns, through the custom bus, which objects to look at.
//!
//! [`Bridge`] is the pure part: it turns changes of objects into events that hold keys, each object once, with the
//! batch windows of the two solvers. It wakes a concern only for a change of what that concern reads. Which queue an
//! event reaches is said by `spokeshave_lambda::wiring::ROUTES`.
//!
//! [`run`] is the bridge at work: it holds a Lease, watches, puts events on the bus (again, when some are not accepted),
//! checkpoints up to which resource version everything was accepted, and starts its successor before its time is up.
//! While another autoscaler is at work in the cluster it tells nobody anything and puts the stack into observe-only.

mod batch;
pub mod lease;
mod routing;
mod run;

pub use batch::{KEYS_PER_EVENT, Window};
pub use routing::{Bridge, is_provisionable};
pub use run::{Ended, HandOver, Mode, Start, run};
pub use spokeshave_ports::Change;
