//! Which nodes must exist for the pods that cannot run, and which pod goes where.
//!
//! Everything here is a pure function of objects and a time. [`ClusterView`] holds the objects, joined and summed, and
//! follows changes; [`Planner`] prepares what all solves of one pass share; [`Planner::solve`] answers one [`Batch`] with a
//! [`Solution`]. Provisioning, disruption's simulations and the `plan` command all go through it. Which pods need a place
//! is [`eligibility`]'s question. Launching, draining and choosing what to disrupt are left to others.
//!
//! How it is fast: requirement sets are interned numbers and what two of them make is worked out once ([`sets`]); pods that
//! ask alike are one shape ([`shapes`]); instance types are bits, and "which types have 3 cpu left" is one lookup
//! ([`templates`]); a place that failed a kind of pod for good is not looked at again ([`run`]).

mod bits;
pub mod buffers;
mod daemons;
pub mod defaults;
mod dims;
mod domains;
pub mod eligibility;
mod explain;
mod options;
pub mod overlays;
mod planner;
mod ports;
mod repellers;
mod report;
pub mod requests;
mod rows;
mod run;
mod sets;
mod shapes;
mod shortage;
mod solution;
mod templates;
mod topology;
mod trial;
mod view;
mod volumes;
mod wishes;

pub use explain::START_UP_HINT;
pub use options::Options;
pub use planner::{Batch, Planner, PoolInput, Prepared, ReservedMode, solve, usage_by_pool};
pub use report::{ALL_FILTERED, MAX_INSTANCE_TYPES, MIN_VALUES_AFTER_CUT, NO_POOLS};
pub use shortage::{Hold, Holds};
pub use solution::{
    Cheapest, ExistingPlacement, PlannedClaim, Reason, Solution, allows, any, claim_of_pool,
};
pub use templates::Skipped;
pub use view::{Change, ClusterView, Kept, NodePods, Object, Objects, StateNode};
pub use wishes::{DRA_REFUSAL, DRA_UNRESOLVED};
