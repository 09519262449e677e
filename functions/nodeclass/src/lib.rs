//! The function `nodeclass`: keeps every EC2NodeClass resolved, checked and Ready, and cleans up after those that go.
//!
//! Work names EC2NodeClasses; without keys all of them are looked at, which a schedule asks for every five minutes. One
//! pass of a class reads everything that its selectors mean, writes one status, and is over; the decisions are in
//! `spokeshave_nodeclass`. A class that misses something is looked at again after a minute, a few times in a row.

mod deletion;
mod discovery;
mod facts;
mod failure;
mod hashes;
mod pass;
mod profile;
mod takeover;
mod upkeep;
mod validate;

use std::collections::BTreeMap;

use jiff::SignedDuration;
use spokeshave_lambda::{
    BatchAnswer, SqsBatch,
    batch::{Item, stand_by},
};
use spokeshave_model::{EC2NodeClass, Kind, ObjectKey};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Decision, Ec2, Eks, Iam, Invocation, Key, Queues, Selector,
    Ssm, StateError, StateTable, Work, chain,
    wakes::{self, WakeError},
};

use crate::{facts::Facts, pass::Pass};

/// Why a class could not be brought further in this run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("cluster")]
    Cluster(#[from] ClusterError),
    #[error("state table")]
    State(#[from] StateError),
    #[error("AWS")]
    Aws(#[from] AwsError),
    #[error("wake-up")]
    Wake(#[from] WakeError),
    /// Another run makes the profile of this class.
    #[error("another run is making the instance profile of {0}")]
    Busy(String),
    /// IAM does not know the role; it is not asked again for a minute.
    #[error("IAM does not know the role {0:?}")]
    MissingRole(String, #[source] Option<Box<AwsError>>),
    /// EC2 gave no verdict on a dry run.
    #[error("no verdict")]
    NoVerdict(#[source] AwsError),
    /// Nothing that the region sells can be launched with the class.
    #[error("no instance type fits the class")]
    NoType,
}

impl Trouble {
    /// Another try soon may help.
    fn is_retryable(&self) -> bool {
        match self {
            Self::Cluster(error) => error.is_retryable(),
            Self::Aws(error) => error.is_retryable(),
            Self::State(_) | Self::Wake(_) | Self::Busy(_) | Self::NoVerdict(_) | Self::NoType => {
                true
            }
            Self::MissingRole(..) => false,
        }
    }

    /// The error with its sources, once.
    fn text(&self) -> String {
        chain(self)
    }
}

/// Wake-ups in a row for a class that misses something; after them the schedule is enough.
const WAKES_IN_A_ROW: u32 = 3;

/// Reason of the work that the schedule sends.
const SCHEDULE: &str = "Schedule";
/// Reason of the work that comes in the minutes between two runs of the schedule, while there is reserved capacity: blocks
/// end by the minute. Keys are the classes that select reservations.
const MINUTE: &str = "Minute";
/// How often the schedule runs, in minutes. Source: `wiring::SCHEDULES`.
const MINUTES_BETWEEN_RUNS: i64 = 5;

/// Why a class is looked at.
#[derive(Clone, Debug, Default)]
struct Target {
    /// Records that name it.
    records: Vec<usize>,
    /// Failures in a row before this run.
    failures: u32,
    /// Wake-ups in a row before this run.
    wakes: u32,
}

/// Handles a batch.
pub async fn handle(
    batch: &SqsBatch,
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    iam: &impl Iam,
    ssm: &impl Ssm,
    eks: &impl Eks,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> BatchAnswer {
    if let Some(answer) = stand_by(batch, state, cx).await {
        return answer;
    }
    let mut answer = BatchAnswer::done();
    let now = cx.whole_second();
    let mut targets: BTreeMap<String, Target> = BTreeMap::new();
    let mut everything: Vec<usize> = Vec::new();
    let (mut by_schedule, mut by_minute) = (false, false);
    for Item { position, work, .. } in batch.works(cx) {
        if work.reason == MINUTE {
            by_minute = true;
        } else if work.keys.is_empty() {
            everything.push(position);
            by_schedule |= work.reason == SCHEDULE;
        }
        for key in work.keys.iter().filter(|it| it.kind == EC2NodeClass::KIND) {
            let target = targets.entry(key.name.clone()).or_default();
            target.records.push(position);
            target.failures = target.failures.max(work.failures());
            target.wakes = target.wakes.max(work.wakes());
        }
    }
    if !everything.is_empty() {
        match cluster.list::<EC2NodeClass>(&Selector::all()).await {
            Ok(classes) => {
                for class in classes {
                    let target = targets.entry(class.metadata.name.clone()).or_default();
                    target.records.extend(&everything);
                }
            }
            Err(error) => {
                cx.decide(Decision::new("retry", "EC2NodeClass", Trouble::from(error).text()));
                answer.retry_at(batch, &everything);
            }
        }
    }
    let facts = Facts::new(cluster, eks, cx.settings);
    if !targets.is_empty()
        && let Ok(known) = facts.eks().await
        && let Err(error) = spokeshave_ports::facts::save(state, &known).await
    {
        // Launches go on with what is stored; the next run stores it.
        cx.decide(Decision::new("skip", "Cluster", Trouble::from(error).text()));
    }
    let pass = Pass { cluster, ec2, iam, ssm, state, facts: &facts, cx, now };
    let elsewhere = if by_schedule { failure::elsewhere(state, cx).await } else { Vec::new() };
    let mut with_reservations: Vec<Key> = Vec::new();
    for (name, target) in &targets {
        let class = match cluster.get::<EC2NodeClass>(&ObjectKey::cluster(name)).await {
            Ok(Some(class)) => class,
            Ok(None) => continue,
            Err(error) => {
                retry(batch, queues, cx, name, target, &error.into(), &mut answer).await;
                continue;
            }
        };
        for event in elsewhere.iter().map(|it| failure::event(&class, it)) {
            cluster.publish(event, pass::EVENTS_ONCE_IN).await;
        }
        let selects = !class.spec.capacity_reservation_selector_terms.is_empty();
        if selects && cx.settings.gates.reserved_capacity && !class.metadata.deleting() {
            with_reservations.push(Key::of(class.as_ref()));
        }
        let outcome = pass.run(&class).await;
        for error in outcome.failures.iter().map(|it| &it.error) {
            if !error.is_retryable() {
                cx.decide(
                    Decision::new("fail", class.reference(), error.text())
                        .caused_by(error)
                        .as_error(),
                );
            }
        }
        if let Some(error) =
            outcome.failures.iter().map(|it| &it.error).find(|it| it.is_retryable())
        {
            retry(batch, queues, cx, name, target, error, &mut answer).await;
            continue;
        }
        // What is missing, or was refused, may come: look a few more times before the schedule does.
        let missing = outcome.missing || !outcome.failures.is_empty();
        let soon = (missing && target.wakes < WAKES_IN_A_ROW)
            .then_some(spokeshave_nodeclass::reconcile::NOT_FOUND_AGAIN);
        if let Some(delay) = [soon, outcome.due].into_iter().flatten().min() {
            let due = now.saturating_add(delay.max(SignedDuration::from_secs(1)));
            let key = Key::of(class.as_ref());
            let wake = wakes::wake_once(
                state,
                queues,
                cx.concern,
                key,
                due.unwrap_or(now),
                now,
                target.wakes,
            );
            if let Err(error) = wake.await {
                retry(batch, queues, cx, name, target, &error.into(), &mut answer).await;
            }
        }
    }
    if by_minute || !everything.is_empty() {
        let upkeep = upkeep::Upkeep { cluster, ec2, cx, now };
        match upkeep.run().await {
            Ok(reserved) if by_schedule && (reserved || !with_reservations.is_empty()) => {
                come_back_by_the_minute(queues, cx, &with_reservations).await;
            }
            Ok(_) => {}
            // The next round comes by itself.
            Err(error) => {
                cx.decide(Decision::new("fail", "NodeClaim", error.text()).caused_by(&error));
            }
        }
    }
    answer
}

/// Asks for a run in each minute before the schedule's next one.
async fn come_back_by_the_minute(queues: &impl Queues, cx: &Invocation<'_>, classes: &[Key]) {
    for minute in 1..MINUTES_BETWEEN_RUNS {
        let work = Work::new(MINUTE, classes.to_vec());
        let delay = SignedDuration::from_mins(minute);
        if let Err(error) = queues.send(cx.concern, &work, delay, "").await {
            let decision = Decision::new("wake", "Queue/nodeclass", chain(&error));
            cx.decide(decision.with_error(&error).as_error());
        }
    }
}

/// Has a class looked at again, with growing pauses; only when that cannot be arranged is the message given back.
async fn retry(
    batch: &SqsBatch,
    queues: &impl Queues,
    cx: &Invocation<'_>,
    name: &str,
    target: &Target,
    error: &Trouble,
    answer: &mut BatchAnswer,
) {
    cx.decide(
        Decision::new("retry", format!("EC2NodeClass/{name}"), error.text()).caused_by(error),
    );
    let key = Key { kind: EC2NodeClass::KIND.into(), name: name.to_owned(), ..Key::default() };
    answer.come_back(batch, &target.records, key, target.failures, (queues, cx.concern)).await;
}

#[cfg(test)]
mod tests;
