//! Records of the state table that this function writes.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::json;
use spokeshave_ports::{StateError, StateKey, StateTable, When};

/// Sets an offering aside until `until`; a repeat restarts the time.
pub async fn mark_unavailable(
    state: &impl StateTable,
    capacity_type: &str,
    instance_type: &str,
    zone: &str,
    until: Timestamp,
) -> Result<(), StateError> {
    let key = StateKey::new("unavailable", &format!("{capacity_type}:{instance_type}:{zone}"));
    state.write(&key, json!({}), Some(until), When::Always).await.map(|_| ())
}

/// The capacity reservations whose count is known.
pub async fn known_reservations(state: &impl StateTable) -> Result<BTreeSet<String>, StateError> {
    Ok(state.query("reservation", "").await?.into_iter().map(|(id, _)| id).collect())
}

/// Says that nothing is left in a reservation, until it is read again.
pub async fn zero_reservation(
    state: &impl StateTable,
    id: &str,
    now: Timestamp,
) -> Result<(), StateError> {
    let key = StateKey::new("reservation", id);
    let Some(record) = state.read(&key).await? else { return Ok(()) };
    let mut data = record.data;
    if let Some(fields) = data.as_object_mut() {
        fields.insert("available".into(), json!(0));
        fields.insert("at".into(), json!(now));
    }
    match state.write(&key, data, record.expires_at, When::Version(record.version)).await {
        // Somebody has just written the count: theirs is newer.
        Ok(_) | Err(StateError::Conflict(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
