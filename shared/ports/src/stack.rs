//! What all functions of one stack have to agree on.

use crate::{StateError, StateKey, StateTable};

/// Key of the record that says that another autoscaler is at work in the cluster: ours only watches.
///
/// The bridge writes it with an expiry of [`OBSERVE_FOR_SECONDS`] and renews it for as long as the other one lives.
pub fn observe_only_key() -> StateKey {
    StateKey::new("stack", "observe-only")
}

/// How long the record holds: the other's lease counts for 60 s, and the bridge looks every 10 s.
pub const OBSERVE_FOR_SECONDS: i64 = 90;

/// Whether the stack may only watch. Every function that writes asks before each run, and does nothing if so: once the
/// record is gone, the bridge lists everything anew.
///
/// # Errors
/// When the table does not answer; nothing is written then either.
pub async fn observes_only(state: &impl StateTable) -> Result<bool, StateError> {
    Ok(state.read(&observe_only_key()).await?.is_some())
}

/// How the id of a made-up spot warning begins by which `spokeshave doctor` tries the way to the interruption function.
pub const PROBE_ID: &str = "spokeshave-doctor-";

/// Key of the record by which the interruption function says that the made-up warning `id` has come to it.
pub fn probe_key(id: &str) -> StateKey {
    StateKey::new("probe", id)
}
