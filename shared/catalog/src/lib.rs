//! What can be bought: instance types with their labels, capacity and overhead for one EC2NodeClass, offerings with
//! prices and availability, and what is remembered about them.
//!
//! Decides nothing about a cluster and does no I/O of its own: [`stored`] reads and writes through the state table's
//! port. Which types a claim may be launched with, and how, is here too ([`launch`]); carrying it out is the launch
//! function's. Read first: [`Catalog::instance_types`], then [`MarketView`].

pub mod builtin;
pub mod capacity;
mod catalog;
pub mod describe;
pub mod description;
pub mod expressions;
pub mod gauges;
pub mod kubelet;
pub mod launch;
pub mod memory;
pub mod offerings;
pub mod plain;
mod shared;
pub mod shortage;
pub mod stored;
pub mod table;
pub mod unavailable;
pub mod warm;
pub mod zonal_shift;

pub use catalog::{Catalog, CatalogError, MarketView, Resolved, SpotPrices};
pub use shared::Shared;
pub use unavailable::{Mark, UnavailableOfferings};
pub use warm::Memo;

/// Makes the user data (base64) for the types of one launch template.
pub type RenderUserData<'a> =
    &'a dyn Fn(&launch::template::Group) -> Result<String, launch::PlanError>;
