//! A function that looks into its queues itself: what `BridgeMode=poll` has instead of Lambda's polling, which asks an
//! idle queue fifteen times a minute and is charged for each.
//!
//! The function is started by the events that its queue is sent too, and from time to time by a schedule. It reads
//! `OWN_QUEUE_URLS` until nothing is left or its time runs out, and takes away what its handler did not give back: the same
//! promise as Lambda's. Two that run at once share the messages, and of a FIFO queue's group SQS hands out one batch at a time.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Value, json};
use spokeshave_aws::{SqsQueues, queues::Received};
use spokeshave_ports::{AwsError, Concern, Decision, Invocation};

use crate::{BatchAnswer, SqsBatch, SqsRecord, wiring::SOURCES};

/// An event and its message are on their way at the same time: so long the message is waited for.
const MESSAGE_LATER: SignedDuration = SignedDuration::from_secs(2);

/// With less time than this left, no more messages are taken: a handler that is cut off has its messages delivered again
/// only after their visibility time-out.
pub const LEAST_TIME: SignedDuration = SignedDuration::from_secs(20);

/// The queues that the function reads: URLs, separated by commas.
pub const OWN_QUEUES: &str = "OWN_QUEUE_URLS";

/// Taking messages out of a queue.
pub trait OwnQueues {
    /// Up to ten messages, which are hidden from others for the queue's visibility time-out.
    async fn receive(&self, url: &str, wait: SignedDuration) -> Result<Vec<Received>, AwsError>;

    /// Takes messages away for good, by their receipts. Doing it twice is the same as once.
    async fn delete(&self, url: &str, receipts: &[&str]) -> Result<(), AwsError>;
}

impl OwnQueues for SqsQueues {
    async fn receive(&self, url: &str, wait: SignedDuration) -> Result<Vec<Received>, AwsError> {
        Self::receive(self, url, wait).await
    }

    async fn delete(&self, url: &str, receipts: &[&str]) -> Result<(), AwsError> {
        Self::delete(self, url, receipts).await
    }
}

/// How long to wait for a first message: a moment when `event` is one that the queue is sent, too; not at all when a
/// schedule asks.
pub fn wait(event: &Value) -> SignedDuration {
    match event["detail-type"].as_str() {
        None | Some("Drain" | "DrainSlowly") => SignedDuration::ZERO,
        Some(_) => MESSAGE_LATER,
    }
}

/// What became of a look into the queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    pub handled: usize,
    /// Messages that come again.
    pub given_back: usize,
    /// Queues that did not answer, and why.
    pub problems: Vec<String>,
}

impl Drained {
    /// Writes problems down; the answer to Lambda.
    pub fn told(&self, cx: &Invocation<'_>) -> Value {
        for problem in &self.problems {
            cx.decide(Decision::new("retry", "Queue", problem.as_str()).as_error());
        }
        json!({"handled": self.handled, "givenBack": self.given_back})
    }
}

/// Hands what waits in the queues at `urls` to `handle`, batch by batch, for as long as `has_time`.
pub async fn drain(
    queues: &impl OwnQueues,
    urls: &str,
    concern: Concern,
    wait: SignedDuration,
    has_time: impl Fn() -> bool,
    handle: impl AsyncFn(&SqsBatch) -> BatchAnswer,
) -> Drained {
    let mut done = Drained::default();
    for url in urls.split(',').filter(|it| !it.is_empty()) {
        while has_time() {
            let batch = match gather(queues, url, concern, wait).await {
                Ok(batch) if batch.records.is_empty() => break,
                Ok(batch) => batch,
                Err(error) => {
                    done.problems.push(error.to_string());
                    break;
                }
            };
            let answer = handle(&batch).await;
            let failed = |id: &str| answer.failures.iter().any(|it| it.message_id == id);
            let receipts: Vec<&str> = batch
                .records
                .iter()
                .filter(|it| !failed(&it.message_id))
                .map(|it| it.receipt_handle.as_str())
                .collect();
            done.handled += receipts.len();
            done.given_back += batch.records.len() - receipts.len();
            if let Err(error) = queues.delete(url, &receipts).await {
                done.problems.push(error.to_string());
                break;
            }
        }
    }
    done
}

/// As many messages as the function takes at once; of a FIFO queue one call's, since it gives no more of a group.
async fn gather(
    queues: &impl OwnQueues,
    url: &str,
    concern: Concern,
    wait: SignedDuration,
) -> Result<SqsBatch, AwsError> {
    let most = SOURCES.iter().find(|it| it.concern == concern).map_or(10, |it| it.batch_size);
    let name = url.rsplit('/').next().unwrap_or(url);
    let mut records = Vec::new();
    while records.len() + 10 <= most.max(10) {
        let wait = if records.is_empty() { wait } else { SignedDuration::ZERO };
        let received = match queues.receive(url, wait).await {
            Ok(received) => received,
            // What has been taken already is not left lying.
            Err(_) if !records.is_empty() => break,
            Err(error) => return Err(error),
        };
        let n_received = received.len();
        records.extend(received.into_iter().map(|it| record(it, name)));
        if n_received == 0 || concern.is_fifo() {
            break;
        }
    }
    Ok(SqsBatch { records })
}

/// The message as Lambda would hand it over.
fn record(received: Received, queue: &str) -> SqsRecord {
    let attribute = |(name, it)| (name, json!({"stringValue": it, "dataType": "String"}));
    let message_attributes: BTreeMap<String, Value> =
        received.texts.into_iter().map(attribute).collect();
    SqsRecord {
        message_id: received.id,
        receipt_handle: received.receipt,
        body: received.body,
        attributes: received.attributes,
        message_attributes,
        event_source_arn: queue.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use spokeshave_ports::fake::block_on;

    use super::*;

    /// Queues by URL; what was asked for.
    #[derive(Default)]
    struct Fake {
        waiting: RefCell<BTreeMap<String, Vec<String>>>,
        calls: RefCell<Vec<String>>,
        broken: bool,
    }

    impl Fake {
        fn with(queues: &[(&str, usize)]) -> Self {
            let ids = |n: usize| (0..n).map(|it| format!("m-{it}")).collect();
            let waiting = queues.iter().map(|(url, n)| ((*url).to_owned(), ids(*n))).collect();
            Self { waiting: RefCell::new(waiting), ..Self::default() }
        }
    }

    impl OwnQueues for Fake {
        async fn receive(
            &self,
            url: &str,
            wait: SignedDuration,
        ) -> Result<Vec<Received>, AwsError> {
            self.calls.borrow_mut().push(format!("receive {url} {}", wait.as_secs()));
            if self.broken {
                return Err(AwsError::new("sqs", "ReceiveMessage", "AccessDenied", "no"));
            }
            let mut waiting = self.waiting.borrow_mut();
            let Some(ids) = waiting.get_mut(url) else { return Ok(Vec::new()) };
            let n = ids.len().min(10);
            let message =
                |id: String| Received { receipt: format!("r-{id}"), id, ..Received::default() };
            Ok(ids.drain(..n).map(message).collect())
        }

        async fn delete(&self, url: &str, receipts: &[&str]) -> Result<(), AwsError> {
            self.calls.borrow_mut().push(format!("delete {url} {}", receipts.len()));
            Ok(())
        }
    }

    fn drained(fake: &Fake, urls: &str, concern: Concern) -> (Drained, Vec<usize>) {
        let sizes = RefCell::new(Vec::new());
        let done = drain(
            fake,
            urls,
            concern,
            SignedDuration::ZERO,
            || true,
            async |batch| {
                sizes.borrow_mut().push(batch.records.len());
                let mut answer = BatchAnswer::done();
                batch
                    .records
                    .iter()
                    .filter(|it| it.message_id == "m-3")
                    .for_each(|it| answer.retry(it));
                answer
            },
        );
        (block_on(done), sizes.take())
    }

    #[test]
    fn everything_that_waits_is_handled_and_taken_away_but_what_was_given_back() {
        let fake = Fake::with(&[("q/nodepool", 72)]);
        // As many at once as Lambda would hand over.
        let (done, sizes) = drained(&fake, "q/nodepool", Concern::Nodepool);
        assert_eq!(sizes, [50, 22]);
        assert_eq!(done, Drained { handled: 71, given_back: 1, problems: vec![] });
        let calls = fake.calls.take();
        assert_eq!(calls.iter().filter(|it| it.starts_with("delete")).count(), 2);
        assert_eq!(calls.last().map(String::as_str), Some("receive q/nodepool 0"));
    }

    #[test]
    fn a_solver_reads_both_of_its_queues_a_call_at_a_time() {
        let fake = Fake::with(&[("q/p.fifo", 12), ("q/wake", 1)]);
        let (done, sizes) = drained(&fake, "q/p.fifo,q/wake", Concern::Provision);
        assert_eq!((sizes, done.handled), (vec![10, 2, 1], 12));
    }

    #[test]
    fn a_queue_that_does_not_answer_is_told_and_nothing_else_is_taken_when_time_is_short() {
        let fake = Fake { broken: true, ..Fake::default() };
        let (done, _) = drained(&fake, "q/a", Concern::Nodepool);
        assert_eq!(done.problems.len(), 1);
        assert!(done.problems[0].contains("AccessDenied"), "{:?}", done.problems);

        let fake = Fake::with(&[("q/a", 5)]);
        let concern = Concern::Nodepool;
        let done = drain(
            &fake,
            "q/a",
            concern,
            SignedDuration::ZERO,
            || false,
            async |_| BatchAnswer::done(),
        );
        assert_eq!(block_on(done), Drained::default());
        assert_eq!(fake.calls.take(), [] as [String; 0]);
    }

    #[test]
    fn only_an_event_of_the_queue_s_own_is_waited_for() {
        for (event, seconds) in [
            (json!({"reason": "Drain"}), 0),
            (json!({"detail-type": "Drain"}), 0),
            (json!({"detail-type": "DrainSlowly"}), 0),
            (json!({"detail-type": "PodsPending"}), 2),
        ] {
            assert_eq!(wait(&event).as_secs(), seconds, "{event}");
        }
    }

    #[test]
    fn messages_look_as_lambda_hands_them_over() {
        let received = Received {
            id: "m".into(),
            texts: BTreeMap::from([("group".into(), "commands".into())]),
            ..Received::default()
        };
        let wake = record(received.clone(), "spokeshave-prod-DisruptionWakeQueue-1");
        assert_eq!((wake.is_wake(), wake.group()), (true, "commands"));
        assert!(!record(received, "spokeshave-prod-DisruptionQueue-1.fifo").is_wake());
    }
}
