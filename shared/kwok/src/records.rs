//! Instances, fleets and templates as records of the state table.

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use spokeshave_model::InstanceId;
use spokeshave_ports::{AwsError, StateError, StateKey, StateTable, When, ec2::Instance};

use crate::KEPT;

pub(crate) const INSTANCE: &str = "kwok-instance";
pub(crate) const FLEET: &str = "kwok-fleet";
pub(crate) const TEMPLATE: &str = "kwok-template";
pub(crate) const BUCKET: &str = "kwok-bucket";

/// The table's trouble as EC2's: it passes by itself.
pub(crate) fn as_aws(operation: &'static str, error: &StateError) -> AwsError {
    let message = format!("the record of a made-up EC2: {error}");
    AwsError { status: 503, ..AwsError::new("ec2", operation, "Unavailable", &message) }
}

pub(crate) async fn read<T: DeserializeOwned>(
    state: &impl StateTable,
    partition: &str,
    sort: &str,
) -> Result<Option<(T, u64)>, StateError> {
    let record = state.read(&StateKey::new(partition, sort)).await?;
    Ok(record.and_then(|it| Some((serde_json::from_value(it.data).ok()?, it.version))))
}

/// Writes; `Ok(false)` when the condition does not hold.
pub(crate) async fn write(
    state: &impl StateTable,
    partition: &str,
    sort: &str,
    data: &impl Serialize,
    expires_at: Option<Timestamp>,
    when: When,
) -> Result<bool, StateError> {
    let data = serde_json::to_value(data).unwrap_or(Value::Null);
    match state.write(&StateKey::new(partition, sort), data, expires_at, when).await {
        Ok(_) => Ok(true),
        Err(StateError::Conflict(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// All instances that are not gone, by id.
pub(crate) async fn instances(state: &impl StateTable) -> Result<Vec<Instance>, StateError> {
    let records = state.query(INSTANCE, "").await?;
    let read = records.into_iter().filter_map(|it| serde_json::from_value(it.1.data).ok());
    Ok(read.filter(|it: &Instance| it.state != "terminated").collect())
}

/// Changes an instance; `Ok(false)` when there is none.
pub(crate) async fn change(
    state: &impl StateTable,
    id: &InstanceId,
    now: Timestamp,
    change: impl Fn(&mut Instance),
) -> Result<bool, StateError> {
    loop {
        let found = read::<Instance>(state, INSTANCE, id.as_str()).await?;
        let Some((mut instance, version)) = found.filter(|it| it.0.state != "terminated") else {
            return Ok(false);
        };
        change(&mut instance);
        let ended = instance.state == "terminated";
        let expires_at = ended.then(|| now.saturating_add(KEPT).ok()).flatten();
        let when = When::Version(version);
        if write(state, INSTANCE, id.as_str(), &instance, expires_at, when).await? {
            return Ok(true);
        }
    }
}
