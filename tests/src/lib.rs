//! What tests across crates share. The tests themselves are in `tests/tests`.
//!
//! `template` compares template.yaml with the wiring in code. With the feature `wire` the adapters speak to real
//! servers, which `.ci/run` starts: `aws` to an AWS emulator, `cluster` to a Kubernetes API server, `lambda` runs the
//! built binaries against a Lambda Runtime API of its own, and `operating` the built command against a deployed stack.

#[cfg(feature = "wire")]
pub mod lambda_api;
pub mod template;

/// The address in an environment variable that `.ci/run` sets.
///
/// # Panics
/// When it is not set: these tests mean nothing without their server.
pub fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run ./.ci/run, which starts the servers")
    })
}
