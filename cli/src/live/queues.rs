//! Queues of a stack: what waits in them, and taking messages out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use spokeshave_ports::Concern;

use super::{
    aws::{Aws, CallError},
    stack::Stack,
};

/// A queue of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Name in the template, such as `LaunchQueue`.
    pub logical: String,
    pub url: String,
}

impl Queue {
    /// The name in AWS.
    pub fn name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or(&self.url)
    }

    pub fn is_fifo(&self) -> bool {
        self.url.ends_with(".fifo")
    }
}

/// A message as it was received.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    pub id: String,
    pub receipt: String,
    pub body: String,
    pub sent_at: Option<Timestamp>,
    pub receives: u64,
    pub group: Option<String>,
    /// In a dead-letter queue: the ARN of the queue that it came from.
    pub came_from: Option<String>,
    /// What the sender attached, as SQS gives it; it goes along when the message is sent again.
    pub attributes: Map<String, Value>,
}

impl Message {
    fn of(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let system = |name: &str| value["Attributes"][name].as_str();
        let sent = system("SentTimestamp").and_then(|it| it.parse().ok());
        Self {
            id: text("MessageId"),
            receipt: text("ReceiptHandle"),
            body: text("Body"),
            sent_at: sent.and_then(|it| Timestamp::from_millisecond(it).ok()),
            receives: system("ApproximateReceiveCount").and_then(|it| it.parse().ok()).unwrap_or(0),
            group: system("MessageGroupId").map(str::to_owned),
            came_from: system("DeadLetterQueueSourceArn").map(str::to_owned),
            attributes: value["MessageAttributes"].as_object().cloned().unwrap_or_default(),
        }
    }

    /// A text that the sender attached.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)?.get("StringValue")?.as_str()
    }
}

/// `ProvisionQueue` for provision: how the template names queues.
pub fn logical(concern: Concern) -> String {
    spokeshave_nodeclass::iam::logical(concern)
}

/// Calls of SQS.
impl Aws {
    fn sqs(&self, operation: &str, body: &Value) -> Result<Value, CallError> {
        self.json("sqs", &format!("AmazonSQS.{operation}"), "1.0", body)
    }

    /// A queue by its name in the template; `None` when the stack has none.
    ///
    /// # Errors
    /// SQS does not say where a queue is that CloudFormation only names.
    pub fn queue(&self, stack: &Stack, logical: &str) -> Result<Option<Queue>, CallError> {
        // One that existed before the stack is known by its parameter.
        let taken_over = stack.parameters.get("InterruptionQueueArn").filter(|it| !it.is_empty());
        let taken_over = taken_over.filter(|_| logical == "InterruptionQueue");
        let taken_over = taken_over.and_then(|it| it.rsplit(':').next());
        let Some(id) = stack.physical(logical).or(taken_over) else { return Ok(None) };
        let url = if id.contains("://") {
            id.to_owned()
        } else {
            let answer = self.sqs("GetQueueUrl", &json!({ "QueueName": id }))?;
            answer["QueueUrl"].as_str().unwrap_or(id).to_owned()
        };
        Ok(Some(Queue { logical: logical.to_owned(), url }))
    }

    /// All attributes of a queue.
    ///
    /// # Errors
    /// No such queue, or the caller may not ask.
    pub fn queue_attributes(&self, queue: &Queue) -> Result<BTreeMap<String, String>, CallError> {
        let body = json!({ "QueueUrl": queue.url, "AttributeNames": ["All"] });
        let answer = self.sqs("GetQueueAttributes", &body)?;
        let all = answer["Attributes"].as_object().cloned().unwrap_or_default();
        Ok(all.into_iter().filter_map(|(name, it)| Some((name, it.as_str()?.to_owned()))).collect())
    }

    /// Takes up to ten messages, which stay hidden from others for `seconds`.
    ///
    /// # Errors
    /// No such queue, or the caller may not.
    pub fn receive(&self, queue: &Queue, seconds: u32) -> Result<Vec<Message>, CallError> {
        let body = json!({
            "QueueUrl": queue.url,
            "MaxNumberOfMessages": 10,
            "VisibilityTimeout": seconds,
            // Long enough to ask every server of the queue: an empty answer then means an empty queue.
            "WaitTimeSeconds": 1,
            // The older name and the newer one.
            "AttributeNames": ["All"],
            "MessageSystemAttributeNames": ["All"],
            "MessageAttributeNames": ["All"],
        });
        let answer = self.sqs("ReceiveMessage", &body)?;
        Ok(answer["Messages"].as_array().into_iter().flatten().map(Message::of).collect())
    }

    /// Lets others see a received message again at once.
    ///
    /// # Errors
    /// No such queue, or the caller may not.
    pub fn release(&self, queue: &Queue, message: &Message) -> Result<(), CallError> {
        let body = json!({
            "QueueUrl": queue.url,
            "ReceiptHandle": message.receipt,
            "VisibilityTimeout": 0,
        });
        self.sqs("ChangeMessageVisibility", &body).map(drop)
    }

    /// Takes a received message away for good.
    ///
    /// # Errors
    /// No such queue, or the caller may not.
    pub fn delete(&self, queue: &Queue, message: &Message) -> Result<(), CallError> {
        let body = json!({ "QueueUrl": queue.url, "ReceiptHandle": message.receipt });
        self.sqs("DeleteMessage", &body).map(drop)
    }

    /// Sends a message with its attributes. On a FIFO queue its own id is what tells repeats: sending it twice within
    /// five minutes is sending it once.
    ///
    /// # Errors
    /// No such queue, or the caller may not.
    pub fn send(&self, to: &Queue, message: &Message, group: &str) -> Result<(), CallError> {
        let mut body = json!({ "QueueUrl": to.url, "MessageBody": message.body });
        // SQS takes ten attributes; what EventBridge attached to an undelivered event stays behind.
        let own: Map<String, Value> = message
            .attributes
            .iter()
            .filter(|(name, _)| !UNDELIVERED.contains(&name.as_str()))
            .map(|(name, it)| (name.clone(), it.clone()))
            .collect();
        if !own.is_empty() {
            body["MessageAttributes"] = Value::Object(own);
        }
        if to.is_fifo() {
            body["MessageGroupId"] = json!(group);
            body["MessageDeduplicationId"] = json!(message.id);
        }
        self.sqs("SendMessage", &body).map(drop)
    }
}

/// What EventBridge and its scheduler attach to what they could not deliver.
pub const UNDELIVERED: &[&str] = &[
    "ERROR_CODE",
    "ERROR_MESSAGE",
    "EXECUTION_ID",
    "EXHAUSTED_RETRY_CONDITION",
    "IS_PAYLOAD_TRUNCATED",
    "RETRY_ATTEMPTS",
    "RULE_ARN",
    "SCHEDULED_TIME",
    "SCHEDULE_ARN",
    "TARGET_ARN",
    "X-AMZN-EVENTBRIDGE-TARGET-ARN",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_with_what_is_missing_left_out() {
        let full = json!({
            "MessageId": "m", "ReceiptHandle": "r", "Body": "b",
            "Attributes": {"SentTimestamp": "1700000000000", "ApproximateReceiveCount": "11", "MessageGroupId": "pass",
                "DeadLetterQueueSourceArn": "arn:aws:sqs:us-west-2:123456789012:p.fifo"},
            "MessageAttributes": {"group": {"DataType": "String", "StringValue": "commands"}},
        });
        let message = Message::of(&full);
        assert_eq!(
            message.sent_at.map(|it| it.to_string()).as_deref(),
            Some("2023-11-14T22:13:20Z")
        );
        assert_eq!((message.receives, message.group.as_deref()), (11, Some("pass")));
        assert_eq!(message.attribute("group"), Some("commands"));
        assert_eq!(message.came_from.as_deref(), Some("arn:aws:sqs:us-west-2:123456789012:p.fifo"));
        assert_eq!(
            Message::of(&json!({"MessageId": "m"})),
            Message { id: "m".into(), ..Message::default() }
        );
    }
}
