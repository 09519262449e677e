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

    /// Ids by which logs of several functions are followed: those that came along, or that of the event or the message
    /// itself, with which it all began.
    fn correlations(&self) -> Vec<String> {
        let attribute = self.message_attributes.get("correlation");
        let sent = attribute.and_then(|it| it.get("stringValue")?.as_str()).unwrap_or_default();
        if !sent.is_empty() {
            return sent.split(',').map(str::to_owned).collect();
        }
        let body: Option<Value> = serde_json::from_str(&self.body).ok();
        let event = body.filter(|it| it.get("detail-type").is_some());
        let id = event.and_then(|it| it.get("id")?.as_str().map(str::to_owned));
        vec![id.unwrap_or_else(|| self.message_id.clone())]
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

impl SqsBatch {
    /// The ids of all records, each once, at most [`CORRELATIONS`] of them, separated by commas. Whatever a run sends on
    /// carries them.
    pub fn correlation(&self) -> String {
        let mut ids: Vec<String> = Vec::new();
        for id in self.records.iter().flat_map(SqsRecord::correlations) {
            if ids.len() == CORRELATIONS {
                break;
            }
            if !id.is_empty() && !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids.join(",")
    }
}

/// A run of a solver may have a hundred causes; a message names the first of them.
const CORRELATIONS: usize = 5;

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

    /// This message is to be delivered again. Saying so twice is the same as once.
    pub fn retry(&mut self, record: &SqsRecord) {
        if !self.failures.iter().any(|it| it.message_id == record.message_id) {
            self.failures.push(ItemFailure { message_id: record.message_id.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(id: &str, body: &str, sent: &str) -> SqsRecord {
        let mut attributes = BTreeMap::new();
        if !sent.is_empty() {
            attributes.insert(
                "correlation".to_owned(),
                json!({"stringValue": sent, "dataType": "String"}),
            );
        }
        SqsRecord {
            message_id: id.into(),
            body: body.into(),
            message_attributes: attributes,
            ..SqsRecord::default()
        }
    }

    #[test]
    fn what_began_a_chain_of_messages_is_kept() {
        let batch = |records: Vec<SqsRecord>| SqsBatch { records }.correlation();
        let event = r#"{"id":"e-1","detail-type":"PodsPending","detail":{}}"#;
        assert_eq!(batch(vec![record("m-1", event, "")]), "e-1");
        assert_eq!(batch(vec![record("m-1", event, "x,y")]), "x,y");
        assert_eq!(batch(vec![record("m-1", "no JSON", "")]), "m-1");
        assert_eq!(
            batch(vec![
                record("m-1", "{}", "x"),
                record("m-2", "{}", "x"),
                record("m-3", "{}", "")
            ]),
            "x,m-3"
        );
        let many = (0..9).map(|n| record(&format!("m-{n}"), "{}", "")).collect();
        assert_eq!(batch(many), "m-0,m-1,m-2,m-3,m-4");
        assert_eq!(batch(vec![]), "");
    }
}
