//! Queues of concerns in SQS.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use aws_sdk_sqs::{
    Client,
    error::BuildError,
    operation::send_message::builders::SendMessageFluentBuilder,
    types::{
        DeleteMessageBatchRequestEntry, MessageAttributeValue, MessageSystemAttributeName,
        MessageSystemAttributeNameForSends, MessageSystemAttributeValue,
    },
};
use jiff::SignedDuration;
use spokeshave_ports::{AwsError, Concern, Queues, Work};

use crate::{Call, Connection, trace};

const SEND: Call = Call("sqs", "SendMessage");
const RECEIVE: Call = Call("sqs", "ReceiveMessage");
const DELETE: Call = Call("sqs", "DeleteMessageBatch");

/// Messages per call at most. The limit of SQS.
const AT_ONCE: usize = 10;

/// What SQS can delay a message by at most.
const MAX_DELAY: SignedDuration = SignedDuration::from_mins(15);

/// Message group of a solver's queue when the caller names none.
const DEFAULT_GROUP: &str = "pass";

/// Name of the message attribute in which a wake-up keeps its message group until it is forwarded.
const GROUP: &str = "group";

/// Where the queues are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueUrls {
    /// The queue that each function reads.
    pub main: BTreeMap<Concern, String>,
    /// The standard queue for delayed messages of each solver.
    pub wake: BTreeMap<Concern, String>,
}

impl QueueUrls {
    /// Reads `QUEUE_URL_<CONCERN>` and `WAKE_QUEUE_URL_<CONCERN>`, such as `QUEUE_URL_INSTANCE_GC`. A function is given
    /// only the queues that it sends to.
    pub fn from_variables(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut urls = Self::default();
        for (name, value) in variables.into_iter().filter(|(_, value)| !value.is_empty()) {
            let concern = |name: &str| {
                let name = name.to_ascii_lowercase().replace('_', "-");
                Concern::ALL.iter().copied().find(|it| it.as_str() == name)
            };
            if let Some(concern) = name.strip_prefix("QUEUE_URL_").and_then(concern) {
                urls.main.insert(concern, value);
            } else if let Some(concern) = name.strip_prefix("WAKE_QUEUE_URL_").and_then(concern) {
                urls.wake.insert(concern, value);
            }
        }
        urls
    }
}

/// The queues, over SQS.
#[derive(Clone, Debug)]
pub struct SqsQueues {
    client: Client,
    urls: QueueUrls,
}

impl SqsQueues {
    pub fn new(connection: &Connection, urls: QueueUrls) -> Self {
        Self { client: counted!(aws_sdk_sqs, connection.config()), urls }
    }

    /// Puts a due wake-up of a solver on its FIFO queue. `message_id` is the wake-up's own id: it makes a repeat of this
    /// call within five minutes one message, and no other message is mistaken for it.
    ///
    /// # Errors
    /// As for [`Queues::send`].
    pub async fn forward(
        &self,
        to: Concern,
        body: &str,
        group: &str,
        message_id: &str,
    ) -> Result<(), AwsError> {
        let url = url(&self.urls.main, to)?;
        let request = self.client.send_message().queue_url(url).message_body(body);
        let request = request
            .message_group_id(if group.is_empty() { DEFAULT_GROUP } else { group })
            .message_deduplication_id(message_id);
        traced(request)?.send().await.map(drop).map_err(|error| SEND.failed(error))
    }
}

/// A message that was received; hidden from others for the visibility time-out of its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    pub id: String,
    pub receipt: String,
    pub body: String,
    /// `SentTimestamp`, `ApproximateReceiveCount`, `MessageGroupId`, ...
    pub attributes: BTreeMap<String, String>,
    /// What the sender attached as texts.
    pub texts: BTreeMap<String, String>,
}

impl SqsQueues {
    /// Takes up to ten messages out of a queue. With no `wait` only some of the queue's servers are asked, so that a message
    /// may be overlooked once.
    ///
    /// # Errors
    /// No such queue, or the function may not.
    pub async fn receive(
        &self,
        url: &str,
        wait: SignedDuration,
    ) -> Result<Vec<Received>, AwsError> {
        let request = self.client.receive_message().queue_url(url);
        let request = request
            .max_number_of_messages(i32::try_from(AT_ONCE).unwrap_or(1))
            .wait_time_seconds(whole_seconds(wait))
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::All);
        let answer = request.send().await.map_err(|error| RECEIVE.failed(error))?;
        let received = answer.messages.unwrap_or_default().into_iter().map(|it| {
            let attributes = it.attributes.unwrap_or_default().into_iter();
            let texts = it.message_attributes.unwrap_or_default().into_iter();
            Received {
                id: it.message_id.unwrap_or_default(),
                receipt: it.receipt_handle.unwrap_or_default(),
                body: it.body.unwrap_or_default(),
                attributes: attributes.map(|(name, it)| (name.as_str().to_owned(), it)).collect(),
                texts: texts.filter_map(|(name, it)| Some((name, it.string_value?))).collect(),
            }
        });
        Ok(received.collect())
    }

    /// Takes messages that are done away for good, by their receipts.
    ///
    /// # Errors
    /// No such queue, or the function may not. What is left comes again.
    pub async fn delete(&self, url: &str, receipts: &[&str]) -> Result<(), AwsError> {
        for chunk in receipts.chunks(AT_ONCE) {
            let mut request = self.client.delete_message_batch().queue_url(url);
            for (at, receipt) in chunk.iter().enumerate() {
                let entry = DeleteMessageBatchRequestEntry::builder();
                let entry = entry.id(at.to_string()).receipt_handle(*receipt).build();
                request = request
                    .entries(entry.map_err(|error| DELETE.error("Request", &error.to_string()))?);
            }
            request.send().await.map_err(|error| DELETE.failed(error))?;
        }
        Ok(())
    }
}

/// The same request with what ties its message to the current invocation.
fn traced(mut request: SendMessageFluentBuilder) -> Result<SendMessageFluentBuilder, AwsError> {
    let failed = |error: BuildError| SEND.error("Request", &error.to_string());
    let (correlation, trace) = trace::current();
    if !correlation.is_empty() {
        let value = MessageAttributeValue::builder().data_type("String").string_value(correlation);
        request = request.message_attributes(trace::CORRELATION, value.build().map_err(failed)?);
    }
    if !trace.is_empty() {
        let value = MessageSystemAttributeValue::builder().data_type("String").string_value(trace);
        request = request.message_system_attributes(
            MessageSystemAttributeNameForSends::AwsTraceHeader,
            value.build().map_err(failed)?,
        );
    }
    Ok(request)
}

impl Queues for SqsQueues {
    async fn send(
        &self,
        to: Concern,
        work: &Work,
        delay: SignedDuration,
        group: &str,
    ) -> Result<(), AwsError> {
        let body = serde_json::to_string(work)
            .map_err(|error| SEND.error("Request", &error.to_string()))?;
        let seconds = whole_seconds(delay);
        let group = if group.is_empty() { DEFAULT_GROUP } else { group };
        if to.is_fifo() && seconds == 0 {
            return self.forward(to, &body, group, &unique_id()).await;
        }
        let urls = if to.is_fifo() { &self.urls.wake } else { &self.urls.main };
        let mut request = self.client.send_message().queue_url(url(urls, to)?).message_body(body);
        if seconds > 0 {
            request = request.delay_seconds(seconds);
        }
        if to.is_fifo() {
            let value = MessageAttributeValue::builder()
                .data_type("String")
                .string_value(group)
                .build()
                .map_err(|error| SEND.error("Request", &error.to_string()))?;
            request = request.message_attributes(GROUP, value);
        }
        traced(request)?.send().await.map(drop).map_err(|error| SEND.failed(error))
    }
}

fn url(urls: &BTreeMap<Concern, String>, to: Concern) -> Result<&str, AwsError> {
    urls.get(&to).map(String::as_str).ok_or_else(|| {
        SEND.error("QueueNotConfigured", &format!("this function has no queue of {to} to send to"))
    })
}

/// A delay in whole seconds, rounded up, so that nothing wakes too early; at most 15 minutes.
fn whole_seconds(delay: SignedDuration) -> i32 {
    let delay = delay.clamp(SignedDuration::ZERO, MAX_DELAY);
    let seconds = delay.as_secs() + i64::from(delay.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(0)
}

/// An id that no other message gets: a used one would swallow its message for five minutes.
fn unique_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Keys of a `RandomState` are random per process and differ per value.
    let noise = RandomState::new().hash_one((now, count));
    format!("{:x}-{count:x}-{noise:016x}", now.as_nanos())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn urls_come_by_concern() {
        let variables = [
            ("QUEUE_URL_INSTANCE_GC", "https://sqs/instance-gc"),
            ("WAKE_QUEUE_URL_PROVISION", "https://sqs/provision-wake"),
            ("QUEUE_URL_NOBODY", "https://sqs/nobody"),
            ("QUEUE_URL_LAUNCH", ""),
            ("PATH", "/bin"),
        ];
        let urls = QueueUrls::from_variables(
            variables.map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let expected = QueueUrls {
            main: BTreeMap::from([(Concern::InstanceGc, "https://sqs/instance-gc".to_owned())]),
            wake: BTreeMap::from([(Concern::Provision, "https://sqs/provision-wake".to_owned())]),
        };
        assert_eq!(urls, expected);
    }

    #[test]
    fn delays_are_whole_seconds_rounded_up() {
        for (delay, seconds) in [
            (SignedDuration::from_secs(-5), 0),
            (SignedDuration::ZERO, 0),
            (SignedDuration::from_millis(1), 1),
            (SignedDuration::from_secs(90), 90),
            (SignedDuration::from_millis(899_001), 900),
            (SignedDuration::from_hours(2), 900),
        ] {
            assert_eq!(whole_seconds(delay), seconds, "{delay:?}");
        }
    }

    #[test]
    fn ids_are_unique_and_fit() {
        let ids: BTreeSet<String> = (0..1000).map(|_| unique_id()).collect();
        assert_eq!(ids.len(), 1000);
        // SQS: 128 characters of letters, digits and punctuation.
        assert!(ids.iter().all(|it| it.len() <= 128));
    }
}
