//! `spokeshave doctor` and `spokeshave dlq` against a stack that a server of the tests' own makes up.
#![cfg(feature = "live")]

mod aws;
mod dlq;
mod doctor;
