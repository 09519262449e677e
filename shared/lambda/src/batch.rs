//! What handlers of a queue have in common: reading the work of a batch, standing by while another autoscaler is at
//! work, and giving back what could not be done.
//!
//! A handler asks [`stand_by`] first, walks over [`SqsBatch::works`], remembers by [`Item::position`] which messages ask
//! for which object, and ends with [`BatchAnswer::come_back`] for each object that it could not bring further.

use spokeshave_ports::{
    Concern, Decision, Invocation, Key, Queues, StateTable, Work, chain, stack, wakes,
};

use crate::{BatchAnswer, SqsBatch, SqsRecord};

/// A message that could be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Item<'a> {
    /// Its place in the batch.
    pub position: usize,
    pub record: &'a SqsRecord,
    pub work: Work,
}

/// Records that a message is dropped because nobody will ever be able to read it.
pub fn drop_malformed(record: &SqsRecord, error: &dyn std::error::Error, cx: &Invocation<'_>) {
    let reason = format!("malformed message: {}", chain(error));
    cx.decide(Decision::new("drop", reference(record), reason).as_error());
}

/// A message as the object of a decision.
pub fn reference(record: &SqsRecord) -> String {
    format!("Message/{}", record.message_id)
}

/// The answer to give at once when nothing may be written; `None`: go on.
///
/// While another autoscaler is at work all messages are done: once it is gone, the bridge tells everything anew. When the
/// state table does not say, all of them come back.
pub async fn stand_by(
    batch: &SqsBatch,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> Option<BatchAnswer> {
    match stack::observes_only(state).await {
        Ok(false) => None,
        Ok(true) => Some(BatchAnswer::done()),
        Err(error) => {
            let reason = format!("state table: {}", chain(&error));
            cx.decide(Decision::new("retry", "StateTable/stack", reason));
            Some(BatchAnswer::retry_all(batch))
        }
    }
}

impl SqsBatch {
    /// The messages that can be read, in order. One that cannot is recorded when its turn comes, and is done.
    pub fn works<'a>(&'a self, cx: &'a Invocation<'_>) -> impl Iterator<Item = Item<'a>> {
        self.records.iter().enumerate().filter_map(|(position, record)| match record.work() {
            Ok(work) => Some(Item { position, record, work }),
            Err(error) => {
                drop_malformed(record, &error, cx);
                None
            }
        })
    }
}

impl BatchAnswer {
    /// All messages are to be delivered again.
    pub fn retry_all(batch: &SqsBatch) -> Self {
        let mut answer = Self::done();
        batch.records.iter().for_each(|it| answer.retry(it));
        answer
    }

    /// The messages at these positions are to be delivered again.
    pub fn retry_at<'a>(
        &mut self,
        batch: &SqsBatch,
        positions: impl IntoIterator<Item = &'a usize>,
    ) {
        for record in positions.into_iter().filter_map(|it| batch.records.get(*it)) {
            self.retry(record);
        }
    }

    /// Has `key` looked at again after a pause that grows with its `failures` in a row. Only when that cannot be arranged
    /// are the messages at `positions`, which asked for it, given back.
    pub async fn come_back<'a>(
        &mut self,
        batch: &SqsBatch,
        positions: impl IntoIterator<Item = &'a usize>,
        key: Key,
        failures: u32,
        to: (&impl Queues, Concern),
    ) {
        let (queues, concern) = to;
        if !wakes::retry_later(queues, concern, key, failures).await {
            self.retry_at(batch, positions);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use spokeshave_model::Settings;
    use spokeshave_ports::{
        When,
        fake::{Fake, block_on},
    };

    use super::*;

    fn batch(bodies: &[&str]) -> SqsBatch {
        let record = |(at, body): (usize, &&str)| SqsRecord {
            message_id: format!("m-{at}"),
            body: (*body).to_owned(),
            ..SqsRecord::default()
        };
        SqsBatch { records: bodies.iter().enumerate().map(record).collect() }
    }

    fn returned(answer: &BatchAnswer) -> Vec<&str> {
        answer.failures.iter().map(|it| it.message_id.as_str()).collect()
    }

    fn with_cx<T>(fake: &Fake, then: impl FnOnce(&Invocation<'_>) -> T) -> T {
        let settings = Settings::default();
        let now = Timestamp::UNIX_EPOCH;
        then(&Invocation {
            concern: Concern::Launch,
            now,
            deadline: now,
            settings: &settings,
            journal: fake,
        })
    }

    #[test]
    fn a_malformed_message_is_recorded_and_dropped_by_itself() {
        let fake = Fake::default();
        let batch = batch(&[r#"{"reason":"A"}"#, "no JSON", r#"{"reason":"B","keys":[]}"#]);
        let found: Vec<(usize, String, String)> = with_cx(&fake, |cx| {
            let works = batch.works(cx);
            works.map(|it| (it.position, it.record.message_id.clone(), it.work.reason)).collect()
        });
        assert_eq!(
            found,
            [(0, "m-0".to_owned(), "A".to_owned()), (2, "m-2".to_owned(), "B".to_owned())]
        );
        let decisions = fake.decisions.borrow();
        let [dropped] = decisions.as_slice() else { panic!("{decisions:?}") };
        assert_eq!((dropped.action, dropped.object.as_str()), ("drop", "Message/m-1"));
        assert!(dropped.reason.starts_with("malformed message: expected"), "{}", dropped.reason);
        assert!(dropped.error);
    }

    #[test]
    fn nothing_is_done_while_another_autoscaler_is_at_work() {
        let batch = batch(&["{}", "{}"]);
        let asked = |fake: &Fake| with_cx(fake, |cx| block_on(stand_by(&batch, fake, cx)));
        let alone = Fake::default();
        assert_eq!(asked(&alone), None);

        let second = Fake::default();
        let key = stack::observe_only_key();
        let written = block_on(second.write(&key, serde_json::json!({}), None, When::Always));
        assert!(written.is_ok());
        assert_eq!(asked(&second), Some(BatchAnswer::done()));

        let silent = Fake::default();
        silent.fail("read stack/observe-only", "InternalError");
        let answer = asked(&silent).unwrap_or_default();
        assert_eq!(returned(&answer), ["m-0", "m-1"]);
        let decisions = silent.decisions.borrow();
        assert_eq!(
            (decisions[0].action, decisions[0].object.as_str()),
            ("retry", "StateTable/stack")
        );
        assert!(decisions[0].reason.starts_with("state table: "), "{}", decisions[0].reason);
    }

    #[test]
    fn a_message_is_given_back_once_and_only_when_no_later_look_can_be_arranged() {
        let fake = Fake::default();
        let batch = batch(&["{}", "{}", "{}"]);
        let key = Key { kind: "NodeClaim".into(), name: "a".into(), ..Key::default() };
        let mut answer = BatchAnswer::done();
        let mut come_back = |positions: &[usize], failures| {
            let to = (&fake, Concern::Launch);
            block_on(answer.come_back(&batch, positions, key.clone(), failures, to));
            returned(&answer).join(",")
        };
        assert_eq!(come_back(&[0, 2], 0), "", "a later look is arranged");
        assert_eq!(come_back(&[2], wakes::MOST_RETRIES), "m-2", "too many failures in a row");
        fake.fail("send launch", "InternalError");
        assert_eq!(come_back(&[0, 2, 7], 0), "m-2,m-0", "the queue does not answer");
        let sent = fake.sent.borrow();
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].1.reason.as_str(), sent[0].1.depth), (wakes::RETRY, 1));
    }
}
