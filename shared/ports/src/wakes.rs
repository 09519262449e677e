//! "Look at this object again then", without a message for every time that somebody says so.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::{AwsError, Concern, Key, Queues, StateError, StateKey, StateTable, When, Work};

/// The longest delay of a queue message. What falls due later is left to the sweep.
pub const LONGEST_DELAY: SignedDuration = SignedDuration::from_mins(15);

/// Partition of the state table with the time of the next wake-up per concern and object. Lost: some wake-ups come
/// twice, which harms nothing.
pub const PARTITION: &str = "wake";

/// So many wake-ups in a row without any event between them, and the sweep takes over.
pub const DEEPEST: u32 = 500;

/// Why a wake-up could not be arranged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WakeError {
    #[error("state table")]
    State(#[from] StateError),
    #[error("queue")]
    Queue(#[from] AwsError),
}

/// Sends one delayed message of reason `Wake` for `key` that is delivered at `due`, rounded up to a second.
///
/// Nothing is sent when one that comes no later is on its way already (its run will look again), or when `due` is
/// further away than [`LONGEST_DELAY`]. `depth` is that of the work in hand. The record is written after the message
/// was sent: killed in between, a second message is sent later, never none. Returns whether one was sent.
///
/// # Errors
/// When the queue or the table does not answer.
pub async fn wake_once(
    state: &impl StateTable,
    queues: &impl Queues,
    concern: Concern,
    key: Key,
    due: Timestamp,
    now: Timestamp,
    depth: u32,
) -> Result<bool, WakeError> {
    let wait = due.duration_since(now).max(SignedDuration::from_secs(1));
    if wait > LONGEST_DELAY || depth >= DEEPEST {
        return Ok(false);
    }
    let owner = if key.uid.is_empty() { key.name.as_str() } else { key.uid.as_str() };
    let record = StateKey::new(PARTITION, &format!("{concern}/{}/{owner}", key.kind));
    let pending = state
        .read(&record)
        .await?
        .and_then(|it| it.data.get("due")?.as_str()?.parse::<Timestamp>().ok());
    // One that is due within a second may be the very message in hand: some callers count in whole seconds.
    let in_hand = now.checked_add(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MAX);
    if pending.is_some_and(|it| it > in_hand && it <= due) {
        return Ok(false);
    }
    let seconds = wait.as_secs() + i64::from(wait.subsec_nanos() > 0);
    let work = Work { due: Some(due), depth: depth + 1, ..Work::new("Wake", vec![key]) };
    queues.send(concern, &work, SignedDuration::from_secs(seconds), "").await?;
    let expires_at = due.checked_add(LONGEST_DELAY).ok();
    state.write(&record, json!({"due": due}), expires_at, When::Always).await?;
    Ok(true)
}

/// Reason of a message that repeats after a failure; its depth counts the failures in a row.
pub const RETRY: &str = "Retry";
/// The first pause after a failure, doubled with every further one. As in Karpenter 1.x.
pub const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(1);
/// The longest pause after a failure. As in Karpenter 1.x.
pub const LONGEST_RETRY: SignedDuration = SignedDuration::from_secs(60);
/// So many failures in a row, and the message goes back to its queue, whose dead-letter queue it reaches in the end.
pub const MOST_RETRIES: u32 = 12;

/// Has `key` looked at again after a pause that grows with its `failures` in a row: a message that is given back
/// stays hidden for the whole visibility time-out, which is too long for what passes by itself.
///
/// Returns `false` when the message should be given back after all.
pub async fn retry_later(queues: &impl Queues, concern: Concern, key: Key, failures: u32) -> bool {
    if failures >= MOST_RETRIES {
        return false;
    }
    let pause = SignedDuration::from_secs(FIRST_RETRY.as_secs() << failures.min(6));
    let work = Work { depth: failures + 1, ..Work::new(RETRY, vec![key]) };
    queues.send(concern, &work, pause.min(LONGEST_RETRY), "").await.is_ok()
}
