//! What Lambda hands to a function that an SQS queue triggers, and what it answers.

use std::collections::{BTreeMap, BTreeSet};

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

impl SqsBatch {
    /// Positions of the records that Lambda delivers again after a function's answer, by the rules of its SQS source: an
    /// answer that names nothing has done everything, and one that Lambda cannot make sense of has done nothing.
    ///
    /// Source: Lambda Developer Guide, "Implementing partial batch responses".
    pub fn to_deliver_again(&self, answer: &Value) -> BTreeSet<usize> {
        let all = || (0..self.records.len()).collect();
        let failures = match answer {
            Value::Null => return BTreeSet::new(),
            Value::Object(fields) => match fields.get("batchItemFailures") {
                None | Some(Value::Null) => return BTreeSet::new(),
                Some(Value::Array(failures)) => failures,
                Some(_) => return all(),
            },
            _ => return all(),
        };
        let position = |failure: &Value| {
            let id = failure.get("itemIdentifier")?.as_str()?;
            self.records.iter().position(|it| it.message_id == id)
        };
        failures.iter().map(position).collect::<Option<_>>().unwrap_or_else(all)
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

    #[test] // B-092
    fn an_answer_that_makes_no_sense_has_done_nothing() {
        let batch =
            SqsBatch { records: ["m-1", "m-2", "m-3"].map(|id| record(id, "{}", "")).to_vec() };
        let failures = |failures: Value| json!({"batchItemFailures": failures});
        for (answer, again) in [
            (failures(json!([])), &[][..]),
            (Value::Null, &[]),
            (json!({}), &[]),
            (failures(Value::Null), &[]),
            (failures(json!([{"itemIdentifier": "m-2"}])), &[1]),
            (failures(json!([{"itemIdentifier": "m-3"}, {"itemIdentifier": "m-1"}])), &[0, 2]),
            (failures(json!([{"itemIdentifier": ""}])), &[0, 1, 2]),
            (failures(json!([{"itemIdentifier": null}])), &[0, 1, 2]),
            (failures(json!([{"itemIdentifier": "m-2"}, {"itemIdentifier": "m-9"}])), &[0, 1, 2]),
            (failures(json!([{"messageId": "m-2"}])), &[0, 1, 2]),
            (failures(json!(["m-2"])), &[0, 1, 2]),
            (failures(json!("m-2")), &[0, 1, 2]),
            (json!("done"), &[0, 1, 2]),
            // Wrapped for an HTTP gateway, the failures are not seen at all: so ours never is.
            (json!({"statusCode": 200, "body": "{\"batchItemFailures\":[]}"}), &[]),
        ] {
            let wanted: BTreeSet<usize> = again.iter().copied().collect();
            assert_eq!(batch.to_deliver_again(&answer), wanted, "{answer}");
        }
    }

    #[test] // B-092 and B-093: known ids or none at all, at the top level and in no wrapper
    fn the_answer_is_what_lambda_reads() {
        let batch =
            SqsBatch { records: ["m-1", "m-2", "m-3"].map(|id| record(id, "{}", "")).to_vec() };
        let json = |answer: &BatchAnswer| serde_json::to_value(answer).expect("plain data");
        let mut answer = BatchAnswer::done();
        assert_eq!(json(&answer), json!({"batchItemFailures": []}));
        answer.retry(&batch.records[1]);
        answer.retry(&batch.records[1]);
        assert_eq!(json(&answer), json!({"batchItemFailures": [{"itemIdentifier": "m-2"}]}));
        assert_eq!(batch.to_deliver_again(&json(&answer)), BTreeSet::from([1]));
        assert_eq!(batch.to_deliver_again(&json(&BatchAnswer::retry_all(&batch))).len(), 3);
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
