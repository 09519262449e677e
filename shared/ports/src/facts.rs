//! What EKS said of the cluster, kept in the state table so that not every function has to ask.
//!
//! The nodeclass function, which may ask EKS, writes it; launch reads it for user data. Lost: launches wait for the next
//! run of nodeclass.

use crate::{StateError, StateKey, StateTable, When, aws::ClusterFacts};

fn key() -> StateKey {
    StateKey::new("cluster", "facts")
}

/// The facts as stored last; `None` when there are none, or none that can be read.
///
/// # Errors
/// When the table does not answer.
pub async fn load(state: &impl StateTable) -> Result<Option<ClusterFacts>, StateError> {
    let record = state.read(&key()).await?;
    Ok(record.and_then(|it| serde_json::from_value(it.data).ok()))
}

/// Stores the facts if they differ from what is stored. Returns whether they were written.
///
/// # Errors
/// When the table does not answer.
pub async fn save(state: &impl StateTable, facts: &ClusterFacts) -> Result<bool, StateError> {
    if load(state).await?.as_ref() == Some(facts) {
        return Ok(false);
    }
    let data = serde_json::to_value(facts).unwrap_or_default();
    state.write(&key(), data, None, When::Always).await?;
    Ok(true)
}
