//! The Kubernetes API behind the ports: [`KubeCluster`] reads and writes objects, [`KubeWatches`] follows their changes.
//!
//! `kube` serves as the HTTP client and knows how requests are written; objects are those of `spokeshave-model`, by the
//! constants of its `Kind`. Writes are merge patches of a difference with the resource version or the UID in them, so
//! that fields which our slim kinds leave out are never touched.

mod changes;
pub mod cluster;
pub mod connection;
pub mod error;
mod events;
pub mod follow;
mod pages;
pub mod watch;

pub use cluster::KubeCluster;
pub use connection::{Bearer, Connection, ConnectionError, Endpoint, Login, OwnLogin};
pub use watch::KubeWatches;
