//! Judges objects as the API server and the controllers do, without either.
//!
//! [`schema`] compiles a CustomResourceDefinition and admits objects: pruning, defaults, validation, CEL rules. [`kinds::Kinds`] holds
//! ours. [`runtime`] adds what a controller finds in a stored object, and [`advice`] what nobody refuses and nobody wants.

pub mod advice;
pub mod kinds;
mod market;
pub mod metadata;
pub mod runtime;
pub mod schema;

pub use kinds::Kinds;
pub use schema::{Finding, Schema, Source};
