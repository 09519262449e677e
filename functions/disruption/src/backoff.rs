//! How each pool's drift is held back after failures, in the state table. Lost: the pool is tried again at once.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use spokeshave_disruption::backoff::{BackOff, after_failure};
use spokeshave_ports::{StateError, StateKey, StateTable, When};

/// Partition of the state table.
const DRIFT: &str = "drift-backoff";
/// A pool that has not failed for so long begins anew.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(1);

/// Until when each pool is held back.
///
/// # Errors
/// When the table does not answer.
pub async fn read(state: &impl StateTable) -> Result<BTreeMap<String, Timestamp>, StateError> {
    let records = state.query(DRIFT, "").await?;
    let read = |data| serde_json::from_value::<BackOff>(data).ok();
    Ok(records.into_iter().filter_map(|(pool, it)| Some((pool, read(it.data)?.until))).collect())
}

/// The replacements of a command of these pools failed for good. A repeat within the wait changes nothing.
///
/// # Errors
/// When the table does not answer.
pub async fn failed(
    state: &impl StateTable,
    pools: &[&str],
    command: &str,
    now: Timestamp,
) -> Result<(), StateError> {
    for pool in pools {
        let key = StateKey::new(DRIFT, pool);
        let before =
            state.read(&key).await?.and_then(|it| serde_json::from_value::<BackOff>(it.data).ok());
        let after = after_failure(before, seed(command), now);
        let data = serde_json::to_value(after).unwrap_or_default();
        let kept = after.until.checked_add(KEPT_FOR).ok();
        state.write(&key, data, kept, When::Always).await?;
    }
    Ok(())
}

/// A drifted node of each of these pools has been replaced.
///
/// # Errors
/// When the table does not answer.
pub async fn succeeded(state: &impl StateTable, pools: &[&str]) -> Result<(), StateError> {
    for pool in pools {
        let key = StateKey::new(DRIFT, pool);
        if state.read(&key).await?.is_some() {
            state.remove(&key, When::Always).await?;
        }
    }
    Ok(())
}

/// Ids of commands are hexadecimal digests: as good as drawn, and the same again when a run is repeated.
fn seed(command: &str) -> u64 {
    u64::from_str_radix(command, 16).unwrap_or_default()
}
