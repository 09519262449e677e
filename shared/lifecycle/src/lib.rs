//! What happens to a NodeClaim and its Node from the moment the claim exists until both and the instance are gone.
//!
//! [`claim::decide`] is the reconciler of a living claim: finalizer, registration, initialization, liveness,
//! hydration, consistency, drift, `Consolidatable` and expiration. [`termination`] decides the end of claims and
//! nodes, with [`drain`] and [`volumes`]. [`drift`] and [`repair`] find nodes to replace, [`health`] is the memory
//! behind a pool's `NodeRegistrationHealthy`. [`hooks`] decides the end of nodes that are not ours.
//!
//! Everything here is a plain function of what was read and of the time. Launching, the choice of nodes to disrupt
//! and garbage collection are decided elsewhere. Classes of pods are in `spokeshave_model::pod_classes`.
//!
//! Read first: [`claim::View`] and [`action::Action`].

pub mod action;
pub mod claim;
pub mod consistency;
pub mod consolidatable;
pub mod drain;
pub mod drift;
pub mod expiration;
pub mod health;
pub mod hooks;
pub mod initialization;
pub mod liveness;
pub mod metrics;
pub mod registration;
pub mod repair;
pub mod resource_slices;
pub mod termination;
pub mod volumes;

pub use action::Action;
