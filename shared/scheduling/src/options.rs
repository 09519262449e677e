//! What steers planning besides the cluster itself.

use spokeshave_model::{
    Settings,
    core::TopologySpreadConstraint,
    settings::{MinValuesPolicy, PreferencePolicy},
};

/// Options of one plan.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub preference_policy: PreferencePolicy,
    pub min_values_policy: MinValuesPolicy,
    /// Pods with resource claims are refused (`IGNORE_DRA_REQUESTS`, true by default in [`Settings`]).
    pub ignore_dra_requests: bool,
    /// Gate `ReservedCapacity`.
    pub reserved_capacity: bool,
    /// Spread constraints of pods that have none (`SCHEDULER_CONFIG`).
    pub default_spread: Vec<TopologySpreadConstraint>,
    /// Label keys that the cloud supplies beyond the well-known ones.
    pub extra_well_known: Vec<String>,
}

impl Options {
    /// From the settings of a function or of the command. `SCHEDULER_CONFIG` is read by
    /// [`crate::defaults::parse`] and set by the caller.
    pub fn from_settings(settings: &Settings) -> Self {
        Self {
            preference_policy: settings.preference_policy,
            min_values_policy: settings.min_values_policy,
            ignore_dra_requests: settings.ignore_dra_requests,
            reserved_capacity: settings.gates.reserved_capacity,
            default_spread: Vec::new(),
            extra_well_known: Vec::new(),
        }
    }
}
