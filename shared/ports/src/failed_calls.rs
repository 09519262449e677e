//! Calls of AWS that failed in functions which have no object to say it on: left in the state table for the function
//! `nodeclass`, which tells them as events on the EC2NodeClasses. Lost: the log alone tells.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::{AwsError, StateError, StateKey, StateTable, When};

const PARTITION: &str = "failed-calls";
/// A failure is told for so long after it was seen last: whoever failed tries again more often than this.
const TOLD_FOR: SignedDuration = SignedDuration::from_mins(12);

/// A failure that is still to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// What could not be done, for instance `Catalog/types`.
    pub object: String,
    /// Reason of the event.
    pub reason: String,
    /// What [`AwsError::explain`] said.
    pub text: String,
}

/// Notes that a call for `object` failed. A repeat renews it.
///
/// # Errors
/// When the table does not answer.
pub async fn note(
    state: &impl StateTable,
    object: &str,
    reason: &str,
    error: &AwsError,
    now: Timestamp,
) -> Result<(), StateError> {
    let data = json!({"reason": reason, "text": error.explain()});
    let until = now.checked_add(TOLD_FOR).ok();
    state.write(&StateKey::new(PARTITION, object), data, until, When::Always).await.map(|_| ())
}

/// What is to be told, by object.
///
/// # Errors
/// When the table does not answer.
pub async fn all(state: &impl StateTable) -> Result<Vec<FailedCall>, StateError> {
    let found = state.query(PARTITION, "").await?.into_iter();
    let text = |data: &serde_json::Value, field| Some(data.get(field)?.as_str()?.to_owned());
    Ok(found
        .filter_map(|(object, record)| {
            let (reason, text) = (text(&record.data, "reason")?, text(&record.data, "text")?);
            Some(FailedCall { object, reason, text })
        })
        .collect())
}
