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
        MessageAttributeValue, MessageSystemAttributeNameForSends, MessageSystemAttributeValue,
    },
};
use jiff::SignedDuration;
use spokeshave_ports::{AwsError, Concern, Queues, Work};

use crate::{Call, Connection, trace};

const SEND: Call = Call("sqs", "SendMessage");

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
        Self { client: Client::new(connection.config()), urls }
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
