//! Queues with the delivery rules of SQS: at least once, visibility, message groups, dead letters.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use spokeshave_lambda::{BatchAnswer, SqsBatch, SqsRecord, wiring::Source};

/// Gives message ids another order.
pub type Shuffle<'a> = &'a mut dyn FnMut(&mut Vec<u64>);

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
    /// Changed by this queue alone: see [`Queue::add`].
    pub messages: BTreeMap<u64, Message>,
    /// The same by when they are visible.
    by_time: BTreeSet<(Timestamp, u64)>,
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
            by_time: BTreeSet::new(),
            in_flight: BTreeSet::new(),
            dead: Vec::new(),
            running: 0,
        }
    }

    /// When the next message that is hidden at `now` becomes visible, if there is one.
    pub fn next_visible(&self, now: Timestamp) -> Option<Timestamp> {
        self.by_time.range((now, u64::MAX)..).map(|it| it.0).find(|it| *it > now)
    }

    /// Adds a message.
    pub fn add(&mut self, message: Message) {
        self.by_time.insert((message.visible, message.id));
        self.messages.insert(message.id, message);
    }

    fn remove(&mut self, id: u64) -> Option<Message> {
        let message = self.messages.remove(&id)?;
        self.by_time.remove(&(message.visible, id));
        Some(message)
    }

    /// Hides a message until `at`.
    fn hide(&mut self, id: u64, at: Timestamp) -> Option<&mut Message> {
        let message = self.messages.get_mut(&id)?;
        self.by_time.remove(&(message.visible, id));
        self.by_time.insert((at, id));
        message.visible = at;
        Some(message)
    }

    /// Whether as many invocations are under way as the queue may have.
    pub fn is_busy(&self) -> bool {
        self.running >= self.source.max_concurrency
    }

    /// Takes a batch that is visible at `now`: the oldest messages, or with `shuffle` any, in the order that it gives.
    pub fn receive(&mut self, now: Timestamp, shuffle: Option<Shuffle<'_>>) -> Option<SqsBatch> {
        if self.is_busy() {
            return None;
        }
        let most = self.source.max_receives;
        let is_spent = |it: &Message| it.visible <= now && it.receives >= most;
        let mut group = None;
        if self.source.concern.is_fifo() {
            let spent: Vec<u64> =
                self.messages.values().filter(|it| is_spent(it)).map(|it| it.id).collect();
            self.set_aside(&spent);
            group = Some(self.free_group(now)?);
        }
        let wanted = if shuffle.is_some() { usize::MAX } else { self.source.batch_size };
        let (mut ids, mut spent) = (Vec::new(), Vec::new());
        for message in self.messages.values() {
            let other_group = group.as_ref().is_some_and(|it| *it != message.group);
            if message.visible > now || other_group {
                continue;
            }
            if is_spent(message) {
                spent.push(message.id);
            } else {
                ids.push(message.id);
            }
            if ids.len() >= wanted {
                break;
            }
        }
        self.set_aside(&spent);
        if let Some(shuffle) = shuffle.filter(|_| group.is_none()) {
            shuffle(&mut ids);
        }
        ids.truncate(self.source.batch_size);
        if ids.is_empty() {
            return None;
        }
        let visibility = SignedDuration::from_secs(self.source.visibility() as i64);
        let mut batch = SqsBatch::default();
        for id in ids {
            let source = self.source;
            if let Some(message) = self.hide(id, now + visibility) {
                message.receives += 1;
                batch.records.push(record(message, source));
                self.in_flight.insert(id);
            }
        }
        self.running += 1;
        Some(batch)
    }

    /// Moves messages that were received too often, and would be received again, to the dead letters.
    fn set_aside(&mut self, ids: &[u64]) {
        for id in ids {
            self.in_flight.remove(id);
            let message = self.remove(*id);
            self.dead.extend(message);
        }
    }

    /// The first message group with nothing in flight and a message to receive.
    fn free_group(&self, now: Timestamp) -> Option<String> {
        let busy: BTreeSet<&str> = self
            .messages
            .values()
            .filter(|it| self.in_flight.contains(&it.id) && it.visible > now)
            .map(|it| it.group.as_str())
            .collect();
        let free = |it: &&Message| it.visible <= now && !busy.contains(it.group.as_str());
        self.messages.values().find(free).map(|it| it.group.clone())
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
        // As Lambda reads it: an answer that names an unknown message has done nothing.
        let again = serde_json::to_value(answer).map(|it| batch.to_deliver_again(&it));
        let again = again.unwrap_or_else(|_| (0..batch.records.len()).collect());
        for (position, record) in batch.records.iter().enumerate() {
            let Some(id) =
                record.message_id.strip_prefix("message-").and_then(|it| it.parse::<u64>().ok())
            else {
                continue;
            };
            self.in_flight.remove(&id);
            if again.contains(&position) {
                self.hide(id, now + back_off);
            } else {
                self.remove(id);
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
