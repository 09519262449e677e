//! Takes nodes away that are empty, drifted or dearer than need be, as far as budgets and pods allow.
//!
//! One pass looks at the whole cluster and finds at most one thing to do ([`pass`]). What it found is a stored command
//! ([`record`]) that is looked at again after 15 s, then carried out step by step ([`carry_out`]): taint the nodes, make
//! the replacements, wait until they are initialized, delete the claims. A run that is killed between any two steps
//! leaves a record that the next run takes up. What to do is decided by `spokeshave-disruption`; this crate reads, asks
//! and writes.

mod backoff;
mod carry_out;
mod pass;
pub mod record;
#[cfg(test)]
mod tests;
mod trouble;
pub mod world;

use jiff::Timestamp;
use serde_json::json;
use spokeshave_lambda::{
    BatchAnswer, SqsBatch, SqsRecord,
    batch::{Item, stand_by},
};
use spokeshave_ports::{
    Clock, Cluster, Concern, Decision, Invocation, Queues, StateKey, StateTable, When, Work,
};
use spokeshave_warm::Noting;

use crate::{pass::Pass, trouble::Trouble, world::Seen};

/// Looks after commands, or runs a pass, whatever the messages ask for; many of one kind are one run.
pub async fn handle(
    batch: &SqsBatch,
    cluster: &impl Cluster,
    state: &impl StateTable,
    queues: &impl Queues,
    clock: &impl Clock,
    cx: &Invocation<'_>,
) -> BatchAnswer {
    let mut commands_only = true;
    let mut depth = 0;
    let mut lagged = 0;
    let mut keys = Vec::new();
    let mut wanted = false;
    if let Some(answer) = stand_by(batch, state, cx).await {
        return answer;
    }
    let last = last_pass(state).await;
    for Item { record, work, .. } in batch.works(cx) {
        let about_commands = is_about_commands(&work);
        if !about_commands && is_stale(record, &work, last) {
            continue;
        }
        wanted = true;
        commands_only &= about_commands;
        if work.reason == pass::CATCH_UP {
            lagged = lagged.max(work.depth);
        } else {
            depth = depth.max(work.depth);
        }
        keys.extend(work.keys);
    }
    if !wanted {
        return BatchAnswer::done();
    }
    let seen = Seen { keys, or_not: lagged >= pass::GIVE_UP };
    let cluster = &Noting::new(cluster);
    let pass = Pass { cluster, state, queues, clock, cx, depth, seen, lagged };
    let result =
        if commands_only { pass.advance_all(None).await } else { run(&pass, state, cx).await };
    // Whatever came of it: what has been written must be seen before anything else is decided.
    let stored = cluster.store(Concern::Disruption, state, cx.now).await;
    let result = result.and(stored.map_err(Trouble::from));
    let mut answer = BatchAnswer::done();
    if let Err(trouble) = result {
        let decision = Decision::new("retry", "Pass", trouble.to_string());
        cx.decide(if trouble.is_conflict() { decision } else { decision.as_error() });
        // The queue is first in, first out: a message that is delivered again would hold up all others, so the run is
        // armed anew. Only if that fails the messages stay.
        if pass.try_again(&trouble).await.is_err() {
            answer = BatchAnswer::retry_all(batch);
        }
    }
    answer
}

async fn run<C: Cluster, S: StateTable, Q: Queues>(
    pass: &Pass<'_, C, S, Q>,
    state: &S,
    cx: &Invocation<'_>,
) -> Result<(), Trouble> {
    pass.run().await?;
    let data = json!({"snapshot": cx.now});
    state.write(&last_pass_key(), data, None, When::Always).await?;
    Ok(())
}

fn last_pass_key() -> StateKey {
    StateKey::new("disruption", "last-pass")
}

/// When the last finished pass began to read.
async fn last_pass(state: &impl StateTable) -> Option<Timestamp> {
    let record = state.read(&last_pass_key()).await.ok()??;
    record.data.get("snapshot")?.as_str()?.parse().ok()
}

/// Whether it is only about commands under way.
fn is_about_commands(work: &Work) -> bool {
    work.reason == "CommandProgressed"
        || (!work.keys.is_empty() && work.keys.iter().all(|it| it.kind == "Command"))
}

/// Whether a finished pass has already seen what the message tells: it was sent, and due, before that pass began.
fn is_stale(record: &SqsRecord, work: &Work, last: Option<Timestamp>) -> bool {
    let sent = record.sent_at().max(work.due);
    matches!((sent, last), (Some(sent), Some(last)) if sent < last)
}
