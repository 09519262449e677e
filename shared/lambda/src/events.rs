//! What Lambda hands to a function that an SQS queue triggers, and what it answers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spokeshave_ports::Work;

/// An SQS batch as Lambda delivers it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SqsBatch {
    #[serde(rename = "Records", default)]
    pub records: Vec<SqsRecord>,
}

/// One message of a batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SqsRecord {
    pub message_id: String,
    pub receipt_handle: String,
    /// The body as it arrived, JSON or not.
    pub body: String,
    /// `SentTimestamp`, `ApproximateReceiveCount`, `MessageGroupId`, ...
    pub attributes: BTreeMap<String, String>,
    pub message_attributes: BTreeMap<String, Value>,
    #[serde(rename = "eventSourceARN")]
    pub event_source_arn: String,
}

impl SqsRecord {
    /// When the message was sent.
    pub fn sent_at(&self) -> Option<Timestamp> {
        let millis = self.attributes.get("SentTimestamp")?.parse().ok()?;
        Timestamp::from_millisecond(millis).ok()
    }

    /// How often it has been received, this time included.
    pub fn receive_count(&self) -> u32 {
        self.attributes.get("ApproximateReceiveCount").and_then(|it| it.parse().ok()).unwrap_or(1)
    }

    /// Whether it comes from the standard queue of a solver, whose own queue is FIFO.
    pub fn is_wake(&self) -> bool {
        !self.event_source_arn.is_empty() && !self.event_source_arn.ends_with(".fifo")
    }

    /// The message group that a wake-up is to have once it is forwarded; empty when none is named.
    pub fn group(&self) -> &str {
        let attribute = self.message_attributes.get("group");
        attribute.and_then(|it| it.get("stringValue")?.as_str()).unwrap_or_default()
    }

    /// The work in it: either the body itself, or the `detail` of an EventBridge envelope.
    ///
    /// # Errors
    /// When the body is neither; the caller records that and drops the message by itself.
    pub fn work(&self) -> Result<Work, serde_json::Error> {
        let mut value: Value = serde_json::from_str(&self.body)?;
        if value.get("detail-type").is_some()
            && let Some(detail) = value.get_mut("detail")
        {
            return serde_json::from_value(detail.take());
        }
        serde_json::from_value(value)
    }
}

/// The messages that are to be delivered again; all others are done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchAnswer {
    #[serde(rename = "batchItemFailures")]
    pub failures: Vec<ItemFailure>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemFailure {
    #[serde(rename = "itemIdentifier")]
    pub message_id: String,
}

impl BatchAnswer {
    /// Everything is done.
    pub fn done() -> Self {
        Self::default()
    }

    /// This message is to be delivered again.
    pub fn retry(&mut self, record: &SqsRecord) {
        self.failures.push(ItemFailure { message_id: record.message_id.clone() });
    }
}
