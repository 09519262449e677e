//! What a decision reads and what it wants carried out, as small traits: the Kubernetes API ([`cluster`]), EC2
//! ([`ec2`]), the other AWS services ([`aws`]), queues and the bus ([`queues`]), and the state table ([`state`]).
//!
//! Adapters implement them over the wire, the simulator in memory; handlers are generic over them and name in their
//! signature exactly the ports that they may touch. Every call is an await point at which a process may die.

pub mod aws;
pub mod batches;
pub mod budget;
pub mod cluster;
pub mod ec2;
pub mod error;
pub mod facts;
pub mod failed_calls;
#[cfg(feature = "fake")]
pub mod fake;
pub mod filters;
pub mod invocation;
pub mod observability;
pub mod queues;
pub mod stack;
pub mod state;
pub mod wakes;
pub mod watch;

pub use aws::{
    AutoScaling, Eks, Iam, LifecycleAction, NoZonalShifts, Pricing, Ssm, ZonalShift, ZonalShifts,
};
pub use cluster::{Changes, Cluster, ClusterError, Place, Precondition, Selector};
pub use ec2::Ec2;
pub use error::{AwsError, chain, cut, without_request_ids};
pub use invocation::{Decision, Invocation, Journal, Metric};
pub use queues::{Bus, Concern, Key, Queues, Work};
pub use state::{Record, StateError, StateKey, StateTable, When};
pub use watch::{Change, Clock, WallClock, Watch};
