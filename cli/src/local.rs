//! `spokeshave local`: every function in one process against the simulated world.

pub mod day;
pub mod dispatch;
pub mod efficiency;
pub mod example;
pub mod report;
pub mod scenario;
pub mod summary;

pub use dispatch::AllFunctions;
pub use scenario::{Options, Scenario};
pub use summary::Summary;
