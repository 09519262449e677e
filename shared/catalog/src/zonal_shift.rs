//! Zones that traffic is being shifted away from (`spec` aws-capacity 12).

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use spokeshave_model::{NodeClaim, labels};
use spokeshave_ports::{StateError, StateKey, StateTable, When, ZonalShift};

/// Partition of the state table. `all` holds the last answer; lost: shifted zones are used until the next read.
/// `published` holds the zones that NodePools have been told of; lost: they are told once more.
pub const PARTITION: &str = "zonal-shift";
/// How long an answer counts when no newer one comes: shifts have an end of their own, but may be cancelled.
const LIFETIME: SignedDuration = SignedDuration::from_hours(24);

/// How often the shifts are read. 30 seconds, as in Karpenter 1.x.
pub const POLL: SignedDuration = SignedDuration::from_secs(30);
/// Reason of a message that asks for nothing but such a read.
pub const POLL_REASON: &str = "ZonalShiftPoll";
/// Reason of a message that asks for NodePools to be told of zones.
pub const CHANGED_REASON: &str = "ZonalShiftChanged";

fn key() -> StateKey {
    StateKey::new(PARTITION, "all")
}

/// Ids of the zones that are shifted away from at `now`: applied, and not over.
pub fn shifted(shifts: &[ZonalShift], now: Timestamp) -> BTreeSet<String> {
    let counts = |it: &&ZonalShift| {
        it.applied_status == "APPLIED" && it.expires_at.is_some_and(|at| at > now)
    };
    shifts.iter().filter(counts).map(|it| it.away_from.clone()).collect()
}

/// Keeps what ARC answered. It takes the place of the last answer.
///
/// DIFFERENCE: Karpenter merges answers, so that a shift that was cancelled early stays while another one lasts.
///
/// # Errors
/// When the table does not answer.
pub async fn save(
    state: &impl StateTable,
    shifts: &[ZonalShift],
    now: Timestamp,
) -> Result<(), StateError> {
    let data = serde_json::to_value(shifts).unwrap_or(Value::Null);
    if state.read(&key()).await?.is_some_and(|it| it.data == data) {
        return Ok(());
    }
    let expires_at = now.saturating_add(LIFETIME).ok();
    state.write(&key(), data, expires_at, When::Always).await.map(|_| ())
}

/// The zones shifted away from, as of the last answer.
///
/// # Errors
/// When the table does not answer.
pub async fn load(state: &impl StateTable, now: Timestamp) -> Result<BTreeSet<String>, StateError> {
    let record = state.read(&key()).await?;
    let shifts: Vec<ZonalShift> =
        record.and_then(|it| serde_json::from_value(it.data).ok()).unwrap_or_default();
    Ok(shifted(&shifts, now))
}

/// The zones that NodePools have been told of.
///
/// # Errors
/// When the table does not answer.
pub async fn published(state: &impl StateTable) -> Result<BTreeSet<String>, StateError> {
    let record = state.read(&published_key()).await?;
    Ok(record.and_then(|it| serde_json::from_value(it.data).ok()).unwrap_or_default())
}

/// Notes that NodePools have been told of `zones` and of no others.
///
/// # Errors
/// When the table does not answer.
pub async fn set_published(
    state: &impl StateTable,
    zones: &BTreeSet<String>,
) -> Result<(), StateError> {
    let data = serde_json::to_value(zones).unwrap_or(Value::Null);
    state.write(&published_key(), data, None, When::Always).await.map(|_| ())
}

fn published_key() -> StateKey {
    StateKey::new(PARTITION, "published")
}

/// Whether the instance of `claim` is in one of these zones, as far as the claim's labels tell: then nothing of it is
/// changed until the shift is over.
pub fn holds(shifted: &BTreeSet<String>, claim: &NodeClaim) -> bool {
    claim.metadata.label(labels::ZONE_ID).is_some_and(|it| shifted.contains(it))
}

#[cfg(test)]
mod tests {
    use spokeshave_ports::fake::{Fake, block_on};

    use super::*;

    fn shift(zone: &str, status: &str, expires_at: i64) -> ZonalShift {
        ZonalShift {
            away_from: zone.into(),
            applied_status: status.into(),
            expires_at: Timestamp::from_second(expires_at).ok(),
        }
    }

    #[test] // aws-capacity 12, cases 1-2, 6-7
    fn applied_shifts_count_until_their_end_or_the_next_answer() {
        let now = Timestamp::from_second(1_000).expect("in range");
        for (status, expires_at, counts) in [
            ("APPLIED", 4_600, true),
            ("NOT_APPLIED", 4_600, false),
            ("APPLIED", 999, false),
            ("APPLIED", 1_000, false),
        ] {
            let got = shifted(&[shift("tstz1-1a", status, expires_at)], now);
            assert_eq!(got.contains("tstz1-1a"), counts, "{status} {expires_at}");
        }
        let fake = Fake::at(now);
        let both = [shift("tstz1-1a", "APPLIED", 4_600), shift("tstz1-1b", "APPLIED", 4_600)];
        let stored = |shifts: &[ZonalShift]| {
            block_on(save(&fake, shifts, now)).expect("written");
            block_on(load(&fake, now)).expect("read").into_iter().collect::<Vec<_>>()
        };
        assert_eq!(stored(&both), ["tstz1-1a", "tstz1-1b"]);
        // Cancelled early: gone with the next answer.
        assert_eq!(stored(&both[1..]), ["tstz1-1b"]);
        let writes = fake.calls.borrow().len();
        assert_eq!(stored(&both[1..]), ["tstz1-1b"]);
        assert_eq!(fake.calls.borrow().len(), writes, "an equal answer writes nothing");
        assert_eq!(stored(&[]), [""; 0]);
    }
}
