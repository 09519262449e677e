//! The record of one launch: what keeps a claim from getting two instances (`architecture` "Launching exactly once").
//!
//! A record goes `preparing` -> `open` -> `launched` or `failed`, each step by conditional write. While it is `preparing`
//! nothing has been sent, so anyone may end it as `void`. From `open` on the stored request may have been sent, and it
//! alone may be sent again, with the same token. A claim names its attempt by annotation; it may join another attempt
//! only when this record says that it got no instance here.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use spokeshave_model::{Uid, labels};
use spokeshave_ports::{
    AwsError, StateError, StateKey, StateTable, When,
    ec2::{FleetError, FleetRequest},
};

use super::{PlanFacts, answer, instance::Launched};

/// Partition of the state table. Lost: annotation and tag decide, after [`EC2_VIEW`].
pub const PARTITION: &str = "attempt";
/// How long a record is kept. Longer than any claim stays unlaunched, and than EC2 remembers tokens' instances.
pub const LIFETIME: SignedDuration = SignedDuration::from_hours(24);
/// After this time every instance of a launch shows in EC2's lists.
pub const EC2_VIEW: SignedDuration = SignedDuration::from_secs(60);
/// A record that is `preparing` for longer belongs to a run that died.
pub const PREPARING: SignedDuration = SignedDuration::from_secs(10);

/// Where an attempt stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Claims are being bound to it. Nothing has been sent.
    #[default]
    Preparing,
    /// The request may have been sent.
    Open,
    /// The answer is recorded: `outcomes` is complete.
    Launched,
    /// No claim of it got an instance.
    Failed,
    /// Given up before anything was sent.
    Void,
}

/// What a claim got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Outcome {
    Instance {
        instance: Box<Launched>,
    },
    /// Not to be had: the claim is given up.
    InsufficientCapacity {
        message: String,
    },
    /// It is tried again by another attempt.
    Failed {
        reason: String,
        message: String,
    },
}

/// One attempt as stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attempt {
    pub id: String,
    pub state: State,
    pub created: Option<Timestamp>,
    /// Names by UID of the claims it is made for. Instances are dealt by sorted id to sorted UIDs.
    pub claims: BTreeMap<Uid, String>,
    pub class: String,
    /// The whole request, token included. Sent again as it is.
    pub request: FleetRequest,
    pub facts: PlanFacts,
    /// Hash of the class as launched.
    pub class_hash: String,
    /// By UID, once the answer is known.
    pub outcomes: BTreeMap<Uid, Outcome>,
    /// Errors of the answer, for people.
    pub errors: Vec<FleetError>,
    /// AWS's id of the call that was answered.
    pub request_id: Option<String>,
}

impl Attempt {
    /// The error of the answer that says most: one that is not about capacity before those that are.
    pub fn error(&self) -> Option<AwsError> {
        let other = self.errors.iter().find(|it| !answer::is_unfulfillable(&it.code));
        let told = other.or_else(|| self.errors.first())?;
        Some(AwsError {
            request_id: self.request_id.clone(),
            status: 200,
            ..AwsError::new("ec2", "CreateFleet", &told.code, &told.message)
        })
    }
}

/// An attempt and the version of its record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    pub attempt: Attempt,
    pub version: u64,
}

/// An id that says when it was made and for whom. At most 40 characters, so that it can be token and tag.
pub fn new_id(claims: impl IntoIterator<Item = Uid>, salt: &str, now: Timestamp) -> String {
    let mut uids: Vec<Uid> = claims.into_iter().collect();
    uids.sort();
    let mut hash = Sha256::new();
    for uid in &uids {
        hash.update(uid.as_str());
        hash.update(b"\n");
    }
    hash.update(salt);
    let hash: String = hash.finalize().iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    format!("{:012x}-{hash}", now.as_millisecond().max(0))
}

/// When an attempt was made, by its id.
pub fn made_at(id: &str) -> Option<Timestamp> {
    let (millis, _) = id.split_once('-')?;
    Timestamp::from_millisecond(i64::from_str_radix(millis, 16).ok()?).ok()
}

impl Attempt {
    /// The outcome of a claim, once known.
    pub fn outcome(&self, uid: &Uid) -> Option<&Outcome> {
        self.outcomes.get(uid)
    }

    /// Whether a claim may be launched by another attempt: this one ended without an instance for it, and not because there
    /// was none to be had (then the claim is given up).
    pub fn releases(&self, uid: &Uid) -> bool {
        match self.state {
            State::Void | State::Failed => true,
            State::Launched => {
                self.outcome(uid).is_none_or(|it| matches!(it, Outcome::Failed { .. }))
            }
            // The claim was not bound in time, so the request does not count it.
            State::Open => !self.claims.contains_key(uid),
            State::Preparing => false,
        }
    }
}

fn key(id: &str) -> StateKey {
    StateKey::new(PARTITION, id)
}

/// Reads an attempt; `None` when the table does not have it.
///
/// # Errors
/// When the table does not answer.
pub async fn load(state: &impl StateTable, id: &str) -> Result<Option<Stored>, StateError> {
    let record = state.read(&key(id)).await?;
    Ok(record.and_then(|it| {
        let attempt = serde_json::from_value(it.data).ok()?;
        Some(Stored { attempt, version: it.version })
    }))
}

/// Writes an attempt: a new one with version 0, else over the version that was read. Returns the new version.
///
/// # Errors
/// [`StateError::Conflict`] when somebody else wrote first.
pub async fn save(
    state: &impl StateTable,
    attempt: &Attempt,
    version: u64,
    now: Timestamp,
) -> Result<u64, StateError> {
    let when = if version == 0 { When::Absent } else { When::Version(version) };
    let data = serde_json::to_value(attempt).unwrap_or_default();
    let expires_at = now.saturating_add(LIFETIME).ok();
    state.write(&key(&attempt.id), data, expires_at, when).await
}

/// The annotation's value on a claim.
pub fn of_claim(claim: &spokeshave_model::NodeClaim) -> Option<&str> {
    claim.metadata.annotation(labels::LAUNCH_ATTEMPT).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_their_time_and_fit_a_token() {
        let now = Timestamp::from_millisecond(1_767_261_600_123).expect("in range");
        let uids = ["b", "a"].map(Uid::from);
        let id = new_id(uids.clone(), "", now);
        assert_eq!(made_at(&id), Some(now));
        assert!(id.len() <= 40, "{id}");
        assert_eq!(id, new_id(uids.into_iter().rev(), "", now));
        assert_eq!(made_at("no time"), None);
    }
}
