//! The state table: small records, conditional writes, expiry.

use jiff::Timestamp;
use serde_json::Value;

use crate::AwsError;

/// Partition and sort key of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateKey {
    /// The kind of record: `attempt`, `unavailable`, `nomination`, `command`, ...
    pub partition: String,
    pub sort: String,
}

impl StateKey {
    pub fn new(partition: &str, sort: &str) -> Self {
        Self { partition: partition.to_owned(), sort: sort.to_owned() }
    }
}

/// A record as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Raised by one with every write; 1 after the first.
    pub version: u64,
    pub data: Value,
    /// After this time the record counts as absent.
    pub expires_at: Option<Timestamp>,
}

/// Under what condition to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Always,
    /// No record, or an expired one.
    Absent,
    /// The record has this version.
    Version(u64),
}

/// Why the table did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The condition did not hold: somebody else wrote first. Read again.
    #[error("somebody else wrote {}/{} first", .0.partition, .0.sort)]
    Conflict(StateKey),
    #[error("state table")]
    Aws(#[from] AwsError),
}

/// The state table of one stack. Reads are consistent.
pub trait StateTable {
    /// `None` when absent or expired.
    async fn read(&self, key: &StateKey) -> Result<Option<Record>, StateError>;

    /// All records of a partition whose sort key begins with `prefix`, by sort key, without expired ones.
    async fn query(
        &self,
        partition: &str,
        prefix: &str,
    ) -> Result<Vec<(String, Record)>, StateError>;

    /// Writes a record if `when` holds; returns its new version.
    async fn write(
        &self,
        key: &StateKey,
        data: Value,
        expires_at: Option<Timestamp>,
        when: When,
    ) -> Result<u64, StateError>;

    /// Deletes a record if `when` holds. An absent record is `Ok` unless a version was asked for.
    async fn remove(&self, key: &StateKey, when: When) -> Result<(), StateError>;
}
