//! Lambda's side of every function: event envelopes, partial batch answers, wake-ups, wiring, telemetry.
//!
//! Without the feature `runtime` this crate is plain data and rules, as the simulator uses it.

pub mod batch;
#[cfg(feature = "runtime")]
pub mod drain;
pub mod events;
#[cfg(feature = "runtime")]
pub mod runtime;
#[cfg(feature = "runtime")]
pub mod stack;
#[cfg(feature = "runtime")]
pub mod telemetry;
pub mod wiring;

pub use events::{BatchAnswer, SqsBatch, SqsRecord};
