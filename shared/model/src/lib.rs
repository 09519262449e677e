//! The words of the trade as types: Karpenter's custom resources, the Kubernetes objects that decisions
//! read, quantities, requirements, taints and instance types.
//!
//! This crate decides nothing about a cluster. It does no I/O and reads no clock. Kinds that we own
//! ([`NodePool`], [`NodeClaim`], [`EC2NodeClass`], [`NodeOverlay`], [`CapacityBuffer`]) are read and written
//! without losing a field; Kubernetes' own kinds ([`core`]) are slim: they keep what decisions read, and
//! are changed only by patches of the difference.
//!
//! Read first: [`meta::Kind`], then [`requirements::Requirements`].

pub mod ami_family;
pub mod budgets;
pub mod capacity_buffer;
pub mod conditions;
pub mod core;
#[cfg(feature = "schema")]
pub mod crds;
pub mod cron;
pub mod duration;
pub mod ec2_node_class;
pub mod field_path;
pub mod hash;
pub mod ids;
pub mod instance_type;
pub mod labels;
pub mod meta;
pub mod node_claim;
pub mod node_overlay;
pub mod node_pool;
pub mod pod_classes;
pub mod present;
pub mod quantity;
pub mod requirements;
pub mod resources;
pub mod selectors;
pub mod settings;
pub mod taints;
pub mod validation;

pub use ami_family::{Alias, AmiFamily};
pub use capacity_buffer::CapacityBuffer;
pub use conditions::{Condition, ConditionStatus};
pub use ec2_node_class::EC2NodeClass;
pub use field_path::FieldPath;
pub use ids::{InstanceId, ProviderId, Uid};
pub use instance_type::{CapacityType, InstanceType, Offering};
pub use meta::{Kind, ObjectKey, ObjectMeta, OwnerReference};
pub use node_claim::NodeClaim;
pub use node_overlay::NodeOverlay;
pub use node_pool::NodePool;
pub use present::Present;
pub use quantity::Quantity;
pub use requirements::{NodeSelectorRequirement, Operator, Requirement, Requirements};
pub use resources::Resources;
pub use selectors::LabelSelector;
pub use settings::{FeatureGates, Settings};
pub use taints::{Taint, TaintEffect, Toleration};

/// A length of time.
pub use jiff::SignedDuration;
/// A point in time, as the Kubernetes API writes it.
pub use jiff::Timestamp;
