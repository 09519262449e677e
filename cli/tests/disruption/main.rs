//! `spokeshave plan --disruption` and `spokeshave explain` from outside, case by case of the specification "lifecycle".

#![allow(clippy::needless_pass_by_value, reason = "JSON literals read better by value")]

mod budgets;
mod builders;
#[path = "../common/mod.rs"]
mod common;
mod consolidation;
mod drift;
mod eligibility;
mod explain;
mod simulation;
