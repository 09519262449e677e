//! What the solvers keep of the cluster between runs, so that a run costs what has changed.
//!
//! [`Cache`] holds a [`ClusterView`](spokeshave_scheduling::ClusterView) and up to where each kind has been followed. A run
//! takes the one that the last run of its process left, follows what has changed since, and makes sure that it has seen
//! whatever its messages speak of and what either solver wrote last ([`Wanted`]). [`Noting`] remembers the versions of what
//! a run writes. Nothing may depend on there being a cache: a run without one reads everything and decides the same.

mod cache;
mod written;

pub use cache::{Cache, Kinds};
pub use written::{Noting, Wanted};
