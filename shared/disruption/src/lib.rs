//! Voluntary disruption: which nodes can go, alone, together or for a cheaper one, and in which order.
//!
//! A [`cluster::View`] is one moment of the cluster; [`candidates::Survey`] looks at every node of it once;
//! [`pass::run`] tries the five methods in their order and returns [`command::Command`]s. Places for pods are found by
//! whoever implements [`simulation::Simulator`]. Nothing here is carried out, stored or read from outside: the function
//! of the same name does that, step by step. Section numbers in comments are those of the specification "lifecycle".
//!
//! Read first: [`pass::run`].

pub mod allowance;
pub mod backoff;
pub mod balanced;
pub mod candidates;
pub mod cluster;
pub mod command;
pub mod consolidation;
pub mod costs;
pub mod eligibility;
pub mod gauges;
pub mod memory;
pub mod methods;
pub mod notices;
pub mod object_gauges;
pub mod pass;
pub mod pricing;
pub mod scheduler;
pub mod seed;
pub mod settled;
pub mod simulation;
pub mod statics;
pub mod validation;

pub use cluster::{Pool, StateNode, View, join};
pub use command::{Command, Method, Reason};
pub use scheduler::{Scheduler, SettledCell};
pub use simulation::{Purpose, Simulation, SimulationError, Simulator};
pub use validation::VALIDATION_WAIT;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
