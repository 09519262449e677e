//! Any object is judged without a panic, whatever its fields hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spokeshave::{commands::lint, input};
use spokeshave_model::FeatureGates;

fuzz_target!(|text: &str| {
    let Ok(manifests) = input::load_text("input.yaml", text) else { return };
    let at = jiff::Timestamp::UNIX_EPOCH;
    let _ = lint::lint(&manifests, &manifests, &FeatureGates::default(), at);
});
