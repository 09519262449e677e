//! Queues with the delivery rules of SQS: at least once, visibility, message groups, dead letters.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use spokeshave_lambda::{BatchAnswer, SqsBatch, SqsRecord, wiring::Source};

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    pub id: u64,
    pub body: String,
    pub group: String,
    pub sent: Timestamp,
    pub visible: Timestamp,
    pub receives: u32,
    /// Sent by a schedule: does not keep the world from having settled.
    pub periodic: bool,
}

/// One queue.
#[derive(Debug)]
pub struct Queue {
    pub source: Source,
    pub messages: BTreeMap<u64, Message>,
    /// Received and not yet deleted or visible again.
    pub in_flight: BTreeSet<u64>,
    pub dead: Vec<Message>,
    /// Invocations under way.
    pub running: usize,
}

impl Queue {
    pub fn new(source: Source) -> Self {
        Self {
            source,
            messages: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            dead: Vec::new(),
            running: 0,
        }
    }

    /// When the next message that is hidden at `now` becomes visible, if there is one.
    pub fn next_visible(&self, now: Timestamp) -> Option<Timestamp> {
        self.messages.values().map(|it| it.visible).filter(|it| *it > now).min()
    }

    /// Takes a batch that is visible at `now`, in the order that `shuffle` gives.
    pub fn receive(
        &mut self,
        now: Timestamp,
        mut order: impl FnMut(&mut Vec<u64>),
    ) -> Option<SqsBatch> {
        if self.running >= self.source.max_concurrency {
            return None;
        }
        // A message that was received too often is set aside when it would be received again.
        let spent: Vec<u64> = self
            .messages
            .values()
            .filter(|it| it.visible <= now && it.receives >= self.source.max_receives)
            .map(|it| it.id)
            .collect();
        for id in spent {
            self.in_flight.remove(&id);
            self.dead.extend(self.messages.remove(&id));
        }
        let fifo = self.source.concern.is_fifo();
        let mut ids: Vec<u64>;
        if fifo {
            // The first group with nothing in flight, in order.
            let busy: BTreeSet<String> = self
                .messages
                .values()
                .filter(|it| self.in_flight.contains(&it.id) && it.visible > now)
                .map(|it| it.group.clone())
                .collect();
            let group = self
                .messages
                .values()
                .find(|it| it.visible <= now && !busy.contains(&it.group))
                .map(|it| it.group.clone())?;
            ids = self
                .messages
                .values()
                .filter(|it| it.group == group && it.visible <= now)
                .map(|it| it.id)
                .collect();
        } else {
            ids = self.messages.values().filter(|it| it.visible <= now).map(|it| it.id).collect();
            order(&mut ids);
        }
        ids.truncate(self.source.batch_size);
        if ids.is_empty() {
            return None;
        }
        let visibility = SignedDuration::from_secs(self.source.visibility() as i64);
        let mut batch = SqsBatch::default();
        for id in ids {
            if let Some(message) = self.messages.get_mut(&id) {
                message.receives += 1;
                message.visible = now + visibility;
                self.in_flight.insert(id);
                batch.records.push(record(message, self.source));
            }
        }
        self.running += 1;
        Some(batch)
    }

    /// Ends an invocation: deletes what is done, makes failures visible again after `back_off`.
    pub fn finish(
        &mut self,
        batch: &SqsBatch,
        answer: &BatchAnswer,
        now: Timestamp,
        back_off: SignedDuration,
    ) {
        self.running = self.running.saturating_sub(1);
        for record in &batch.records {
            let Some(id) =
                record.message_id.strip_prefix("message-").and_then(|it| it.parse::<u64>().ok())
            else {
                continue;
            };
            self.in_flight.remove(&id);
            if answer.failures.iter().any(|it| it.message_id == record.message_id) {
                if let Some(message) = self.messages.get_mut(&id) {
                    message.visible = now + back_off;
                }
            } else {
                self.messages.remove(&id);
            }
        }
    }

    /// The invocation died: its messages stay hidden until their visibility ends.
    pub fn lost(&mut self) {
        self.running = self.running.saturating_sub(1);
    }
}

fn record(message: &Message, source: Source) -> SqsRecord {
    let mut attributes = BTreeMap::from([
        ("SentTimestamp".to_owned(), message.sent.as_millisecond().to_string()),
        ("ApproximateReceiveCount".to_owned(), message.receives.to_string()),
    ]);
    if source.concern.is_fifo() {
        attributes.insert("MessageGroupId".into(), message.group.clone());
        attributes.insert("MessageDeduplicationId".into(), format!("dedup-{}", message.id));
    }
    SqsRecord {
        message_id: format!("message-{}", message.id),
        receipt_handle: format!("receipt-{}-{}", message.id, message.receives),
        body: message.body.clone(),
        attributes,
        message_attributes: BTreeMap::new(),
        event_source_arn: format!(
            "arn:aws:sqs:us-east-1:{}:{}",
            crate::ports::ACCOUNT,
            source.concern
        ),
    }
}
