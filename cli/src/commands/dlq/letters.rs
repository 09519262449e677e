//! The dead letters of a stack.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use spokeshave_lambda::wiring;
use spokeshave_ports::Concern;

use super::Chosen;
use crate::{
    ExitStatus, Failure, Output,
    live::{
        Session, StackArgs,
        aws::CallError,
        queues::{Message, Queue, UNDELIVERED, logical},
    },
};

/// How long messages that are looked at stay hidden from others who look.
const HIDDEN: u32 = 60;
/// Messages of a queue that one command looks at and leaves there, at most.
const LOOKED_AT: usize = 1_000;

/// The dead letters of one queue. All standard queues share one dead-letter queue, and so do the FIFO ones.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Letters {
    /// How they are called here: `launch`, `provision-wake`, `undelivered`.
    name: String,
    /// Name in the template of the queue that they are in.
    logical: &'static str,
    /// Name in the template of the queue that they came from; `None` for events that reached no queue.
    source: Option<String>,
}

impl Letters {
    /// What they are called if nothing says which queue they came from.
    fn unknown(logical: &'static str) -> Self {
        Self { name: "unknown".into(), logical, source: None }
    }
}

const DEAD: &str = "DeadLetters";
const SOLVER_DEAD: &str = "SolverDeadLetters";
const UNDELIVERED_QUEUE: &str = "UndeliveredQueue";
/// The queues that dead letters are in.
const HOLDERS: [&str; 3] = [DEAD, SOLVER_DEAD, UNDELIVERED_QUEUE];

/// Every kind of dead letters that a stack has, in the order of the functions.
fn all() -> Vec<Letters> {
    let mut found = Vec::new();
    let mut add = |name: String, prefix: String, logical: &'static str| {
        found.push(Letters { name, logical, source: Some(format!("{prefix}Queue")) });
    };
    for source in wiring::SOURCES {
        let concern = source.concern;
        let own = if concern.is_fifo() { SOLVER_DEAD } else { DEAD };
        add(concern.to_string(), logical(concern), own);
        if concern.is_fifo() {
            add(format!("{concern}-wake"), format!("{}Wake", logical(concern)), DEAD);
        }
    }
    found.push(Letters {
        name: "undelivered".into(),
        logical: UNDELIVERED_QUEUE,
        source: None,
    });
    found
}

/// Those that were asked for.
fn chosen(names: &[String]) -> Result<Vec<Letters>, Failure> {
    let all = all();
    for name in names {
        if !all.iter().any(|it| it.name == *name) {
            let known: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
            return Err(Failure::new(format!("--queue {name}: no such queue"))
                .fix(format!("give one of {}", known.join(", "))));
        }
    }
    Ok(all.into_iter().filter(|it| names.is_empty() || names.contains(&it.name)).collect())
}

fn failed(error: &CallError) -> Failure {
    let failure = Failure::new(error.to_string());
    if error.is_refused() {
        return failure.fix("the caller needs sqs:GetQueueAttributes, ReceiveMessage, ChangeMessageVisibility, SendMessage and DeleteMessage on the stack's queues");
    }
    failure
}

/// The queues of the stack that dead letters are in.
fn open(session: &Session) -> Result<Vec<(&'static str, Queue)>, Failure> {
    let mut found = Vec::new();
    for logical in HOLDERS {
        let queue = session.aws.queue(&session.stack, logical).map_err(|it| failed(&it))?;
        found.extend(queue.map(|it| (logical, it)));
    }
    if found.is_empty() {
        let name = &session.stack.name;
        return Err(Failure::new(format!("stack {name} has no dead-letter queues of Spokeshave"))
            .fix("give the stack that template.yaml was deployed as"));
    }
    Ok(found)
}

/// Which of the letters in the queue `holder` a message belongs to.
fn letters_of(session: &Session, holder: &'static str, message: &Message) -> Letters {
    let mut here = all().into_iter().filter(|it| it.logical == holder);
    if holder == UNDELIVERED_QUEUE {
        return here.next().unwrap_or_else(|| Letters::unknown(holder));
    }
    let origin = message.came_from.as_deref().map(last);
    let from = |it: &Letters| {
        let source = it.source.as_deref().and_then(|it| session.stack.physical(it)).map(last);
        source.is_some() && source == origin
    };
    here.find(from).unwrap_or_else(|| Letters::unknown(holder))
}

/// `dlq list`.
pub fn list(args: &StackArgs, out: &Output) -> Result<ExitStatus, Failure> {
    let session = Session::open(args)?;
    let everything = Chosen { stack: args.clone(), queue: vec![], id: vec![], limit: u32::MAX };
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    let (mut sum, mut in_flight, mut more) = (0, 0, 0);
    let mut holders = BTreeMap::new();
    for (holder, queue) in open(&session)? {
        let attributes = session.aws.queue_attributes(&queue).map_err(|it| failed(&it))?;
        let count = |name: &str| {
            attributes.get(name).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0)
        };
        let waiting = count("ApproximateNumberOfMessages");
        in_flight += count("ApproximateNumberOfMessagesNotVisible");
        sum += waiting + count("ApproximateNumberOfMessagesNotVisible");
        if waiting > 0 {
            let walk = Walk { session: &session, holder, queue: &queue, chosen: &everything };
            let looked_at = walk.over(|letters, _| {
                *found.entry(letters.name).or_default() += 1;
                Fate::Stays
            });
            more += waiting.saturating_sub(looked_at.into_result()?);
        }
        holders.insert(holder, queue);
    }
    let unknown = HOLDERS.map(Letters::unknown).into_iter().take(1);
    let mut rows = Vec::new();
    let mut queues = Vec::new();
    for letters in all().into_iter().chain(unknown) {
        let messages = found.get(&letters.name).copied().unwrap_or(0);
        let Some(queue) = holders.get(letters.logical) else { continue };
        if letters.name != "unknown" {
            queues.push(json!({
                "name": letters.name,
                "queue": queue.name(),
                "url": queue.url,
                "source": letters.source.as_deref().and_then(|it| session.stack.physical(it)).map(last),
                "messages": messages,
            }));
        }
        if messages > 0 {
            rows.push(vec![letters.name, messages.to_string(), queue.name().to_owned()]);
        }
    }
    if out.is_json() {
        out.json(&json!({
            "stack": session.stack.name,
            "region": session.aws.region,
            "messages": sum,
            "inFlight": in_flight,
            "notLookedAt": more,
            "unknown": found.get("unknown").copied().unwrap_or(0),
            "queues": queues,
        }))?;
        return Ok(ExitStatus::Answered);
    }
    if sum == 0 {
        out.line(&format!("No dead letters of {} queues of {}.", queues.len(), args.stack))?;
        return Ok(ExitStatus::Answered);
    }
    out.table(&["QUEUE", "MESSAGES", "NAME"], &rows)?;
    if more + in_flight > 0 {
        out.line(&format!("{} more could not be looked at just now.", more + in_flight))?;
    }
    Ok(ExitStatus::Answered)
}

/// The name at the end of a URL or an ARN.
fn last(id: &str) -> &str {
    id.rsplit(['/', ':']).next().unwrap_or(id)
}

/// What becomes of a message that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is not in the queue any more.
    Gone,
    Stays,
}

/// How a walk over a queue went.
struct Walked {
    looked_at: u64,
    /// The queue did not answer, or its messages may not be read.
    error: Option<CallError>,
}

impl Walked {
    /// # Errors
    /// When not everything could be looked at.
    fn into_result(self) -> Result<u64, Failure> {
        self.error.map_or(Ok(self.looked_at), |it| Err(failed(&it)))
    }
}

/// A walk over the messages of a queue that were asked for.
struct Walk<'a> {
    session: &'a Session,
    holder: &'static str,
    queue: &'a Queue,
    chosen: &'a Chosen,
}

impl Walk<'_> {
    /// Shows `each` the messages that were asked for, page by page: what it takes away is gone before the next page, so
    /// that no message is held for longer than a page takes. What stays is hidden from others until the walk ends.
    ///
    /// Of a FIFO queue the next messages of a message group come only when the ones before are gone, as SQS keeps their
    /// order.
    fn over(&self, mut each: impl FnMut(Letters, &Message) -> Fate) -> Walked {
        let mut walked = Walked { looked_at: 0, error: None };
        let mut kept: BTreeMap<String, Message> = BTreeMap::new();
        let mut n_of: BTreeMap<String, u32> = BTreeMap::new();
        loop {
            let page = match self.session.aws.receive(self.queue, HIDDEN) {
                Ok(page) => page,
                Err(error) => {
                    walked.error = Some(error);
                    break;
                }
            };
            let mut is_fresh = false;
            for message in page {
                // One that comes a second time has become visible again. Only its newest receipt lets it go.
                if kept.contains_key(&message.id) {
                    kept.insert(message.id.clone(), message);
                    continue;
                }
                is_fresh = true;
                walked.looked_at += 1;
                let letters = letters_of(self.session, self.holder, &message);
                let n = n_of.entry(letters.name.clone()).or_default();
                let mut fate = Fate::Stays;
                if self.asks_for(&letters, &message) && *n < self.chosen.limit {
                    *n += 1;
                    fate = each(letters, &message);
                }
                if fate == Fate::Stays {
                    kept.insert(message.id.clone(), message);
                }
            }
            if !is_fresh || kept.len() >= LOOKED_AT {
                break;
            }
        }
        for message in kept.values() {
            // One that is gone meanwhile is no failure; any other is visible again within a minute.
            let _ = self.session.aws.release(self.queue, message);
        }
        walked
    }

    /// What nobody knows the queue of is part of every question about all queues.
    fn asks_for(&self, letters: &Letters, message: &Message) -> bool {
        let Chosen { queue, id, .. } = self.chosen;
        (queue.is_empty() || queue.contains(&letters.name))
            && (id.is_empty() || id.contains(&message.id))
    }

    /// How many messages wait in the queue, as far as SQS knows.
    fn waiting(&self) -> Result<u64, Failure> {
        let attributes = self.session.aws.queue_attributes(self.queue).map_err(|it| failed(&it))?;
        let waiting = attributes.get("ApproximateNumberOfMessages");
        Ok(waiting.and_then(|it| it.parse().ok()).unwrap_or(0))
    }
}

/// The ids that were asked for and not seen.
fn not_found(asked: &[String], seen: &BTreeSet<String>) -> Vec<String> {
    asked.iter().filter(|it| !seen.contains(*it)).cloned().collect()
}

fn shown(letters: &Letters, message: &Message) -> Value {
    let body: Option<Value> = serde_json::from_str(&message.body).ok();
    // Work of our own, or an event of the bus.
    let reason = body.as_ref().and_then(|it| {
        it["reason"].as_str().or_else(|| it["detail-type"].as_str()).map(str::to_owned)
    });
    let attributes: serde_json::Map<String, Value> = message
        .attributes
        .iter()
        .map(|(name, value)| (name.clone(), value["StringValue"].clone()))
        .collect();
    json!({
        "queue": letters.name,
        "id": message.id,
        "sentAt": message.sent_at.map(crate::live::whole_seconds),
        "receives": message.receives,
        "group": message.group,
        "reason": reason,
        "attributes": attributes,
        "body": body.unwrap_or_else(|| Value::from(message.body.as_str())),
    })
}

/// `dlq show`.
pub fn show(args: &Chosen, out: &Output) -> Result<ExitStatus, Failure> {
    let names = chosen(&args.queue)?;
    let session = Session::open(&args.stack)?;
    let (mut messages, mut seen, mut more) = (Vec::new(), BTreeSet::new(), 0);
    for (holder, queue) in open(&session)? {
        if names.iter().all(|it| it.logical != holder) {
            continue;
        }
        let walk = Walk { session: &session, holder, queue: &queue, chosen: args };
        let waiting = walk.waiting()?;
        let looked_at = walk.over(|letters, message| {
            seen.insert(message.id.clone());
            messages.push(shown(&letters, message));
            Fate::Stays
        });
        more += waiting.saturating_sub(looked_at.into_result()?);
    }
    let not_found = not_found(&args.id, &seen);
    if out.is_json() {
        out.json(&json!({
            "stack": session.stack.name,
            "messages": messages,
            "notFound": not_found,
            "notLookedAt": more,
        }))?;
        return Ok(ExitStatus::Answered);
    }
    for id in &not_found {
        out.line(&format!("{id}: no such message can be seen just now."))?;
    }
    if messages.is_empty() && not_found.is_empty() {
        out.line("No messages.")?;
    }
    for message in &messages {
        let text = |name: &str| match &message[name] {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        out.line(&format!("{}  {}", text("queue"), text("id")))?;
        out.line(&format!("  sent {}, received {} times, reason {}", text("sentAt"), text("receives"), text("reason")))?;
        for name in UNDELIVERED {
            if let Some(value) = message["attributes"][*name].as_str() {
                out.line(&format!("  {name} {value}"))?;
            }
        }
        out.line(&format!("  {}", text("body")))?;
    }
    if more > 0 {
        out.line(&format!("{more} more could not be looked at just now."))?;
    }
    Ok(ExitStatus::Answered)
}

/// Where a message goes when it is sent again: the queue, and its message group.
fn target(
    session: &Session,
    letters: &Letters,
    message: &Message,
) -> Result<(Queue, String), String> {
    let group = || message.group.clone().unwrap_or_else(|| "pass".to_owned());
    let find = |logical: &str| {
        let queue = session.aws.queue(&session.stack, logical).map_err(|it| it.to_string())?;
        queue.ok_or_else(|| format!("the stack has no {logical}"))
    };
    if let Some(source) = &letters.source {
        return Ok((find(source)?, group()));
    }
    if letters.logical != UNDELIVERED_QUEUE {
        return Err("it does not say which queue of this stack it came from".to_owned());
    }
    let arn = ["TARGET_ARN", "X-AMZN-EVENTBRIDGE-TARGET-ARN"].iter().find_map(|it| message.attribute(it));
    let Some(arn) = arn else {
        return Err("it does not say where it was to go".to_owned());
    };
    if message.attribute("IS_PAYLOAD_TRUNCATED") == Some("true") {
        return Err("only a part of it was kept".to_owned());
    }
    let body: Value = serde_json::from_str(&message.body).unwrap_or(Value::Null);
    let detail_type = body["detail-type"].as_str().unwrap_or_default();
    for concern in Concern::ALL {
        let name = format!("{}Queue", logical(*concern));
        if session.stack.physical(&name).is_some_and(|it| last(it) == last(arn)) {
            let group = wiring::message_group(*concern, detail_type);
            return Ok((find(&name)?, if group.is_empty() { "pass" } else { group }.to_owned()));
        }
    }
    Err(format!("{} is no queue of this stack; a schedule sends the like again by itself", last(arn)))
}

/// Sends a message to where it came from and takes it out; the queue that it went to.
fn send_again(
    session: &Session,
    (holder, letters): (&Queue, &Letters),
    message: &Message,
    dry_run: bool,
) -> Result<Queue, String> {
    let (to, group) = target(session, letters, message)?;
    if !dry_run {
        // Sent before it is deleted: a message may come twice, never not at all.
        session.aws.send(&to, message, &group).map_err(|it| it.to_string())?;
        session
            .aws
            .delete(holder, message)
            .map_err(|error| format!("sent to {}, but still here: {error}", to.name()))?;
    }
    Ok(to)
}

/// `dlq redrive`.
pub fn redrive(args: &Chosen, dry_run: bool, out: &Output) -> Result<ExitStatus, Failure> {
    let names = chosen(&args.queue)?;
    let session = Session::open(&args.stack)?;
    let (mut moved, mut left, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    let (mut seen, mut more) = (BTreeSet::new(), 0);
    for (holder, queue) in open(&session)? {
        if names.iter().all(|it| it.logical != holder) {
            continue;
        }
        let walk = Walk { session: &session, holder, queue: &queue, chosen: args };
        // Only told; whether the queue answers shows below.
        let waiting = walk.waiting().unwrap_or(0);
        let walked = walk.over(|letters, message| {
            seen.insert(message.id.clone());
            match send_again(&session, (&queue, &letters), message, dry_run) {
                Ok(to) => {
                    moved.push(json!({ "id": message.id, "from": letters.name, "to": to.name() }));
                    if dry_run { Fate::Stays } else { Fate::Gone }
                }
                Err(problem) => {
                    left.push(json!({ "id": message.id, "from": letters.name, "problem": problem }));
                    Fate::Stays
                }
            }
        });
        more += waiting.saturating_sub(walked.looked_at);
        if let Some(error) = walked.error {
            // What was moved before is moved, and has to be told.
            if moved.is_empty() && left.is_empty() {
                return Err(failed(&error));
            }
            failures.push(json!({ "queue": queue.name(), "problem": error.to_string() }));
        }
    }
    let not_found = not_found(&args.id, &seen);
    let all_well = left.is_empty() && failures.is_empty() && not_found.is_empty();
    if out.is_json() {
        out.json(&json!({
            "stack": session.stack.name,
            "dryRun": dry_run,
            "moved": moved,
            "left": left,
            "failed": failures,
            "notFound": not_found,
            "notLookedAt": more,
        }))?;
        return Ok(ExitStatus::no_if(!all_well));
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for it in &moved {
        let verb = if dry_run { "would go" } else { "sent" };
        out.line(&format!("{}  {} {verb} to {}", text(&it["from"]), text(&it["id"]), text(&it["to"])))?;
    }
    for it in &left {
        out.line(&format!("{}  {} stays: {}", text(&it["from"]), text(&it["id"]), text(&it["problem"])))?;
    }
    for it in &failures {
        out.line(&format!("{}: the rest could not be read: {}", text(&it["queue"]), text(&it["problem"])))?;
    }
    for id in &not_found {
        out.line(&format!("{id}: no such message can be seen just now."))?;
    }
    if moved.is_empty() && all_well {
        out.line("No messages.")?;
    }
    if more > 0 {
        out.line(&format!("{more} more could not be looked at just now."))?;
    }
    Ok(ExitStatus::no_if(!all_well))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_has_its_dead_letters() {
        let names: Vec<String> = all().into_iter().map(|it| it.name).collect();
        assert_eq!(
            names,
            [
                "provision", "provision-wake", "launch", "lifecycle", "tagging", "interruption",
                "disruption", "disruption-wake", "termination", "nodeclass", "nodepool",
                "instance-gc", "instance-profile-gc", "catalog-refresh", "undelivered",
            ]
        );
        let template = include_str!("../../../../template.yaml");
        for letters in all() {
            for name in [Some(letters.logical.to_owned()), letters.source].into_iter().flatten() {
                assert!(template.contains(&format!("\n  {name}:\n")), "{name}");
            }
        }
    }

    #[test]
    fn an_unknown_queue_is_refused_by_name() {
        let error = chosen(&["lunch".to_owned()]).expect_err("refused").to_string();
        assert!(error.starts_with("--queue lunch: no such queue; give one of provision, "), "{error}");
        assert_eq!(chosen(&["launch".to_owned()]).expect("known").len(), 1);
    }
}
