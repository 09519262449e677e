//! One spot warning about an instance that does not exist, through the queue of the real ones.

use std::{
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::json;
use spokeshave_ports::stack;

use super::{
    finding::{DEPLOY, Findings},
    wiring,
};
use crate::live::{
    Session,
    aws::CallError,
    queues::{Message, Queue},
};

/// How often it is asked whether the warning was taken.
const PAUSE: Duration = Duration::from_secs(2);

/// An instance that EC2 never gives out.
const INSTANCE: &str = "i-00000000000000000";

pub fn check(session: &Session, patience: Duration, to: &mut Findings) {
    if let Err(error) = probe(session, patience, to) {
        to.failed("interruption", "InterruptionQueue", &error, DEPLOY);
    }
}

fn probe(session: &Session, patience: Duration, to: &mut Findings) -> Result<(), CallError> {
    let Some(queue) = session.aws.queue(&session.stack, "InterruptionQueue")? else { return Ok(()) };
    let dead = session.aws.queue(&session.stack, "DeadLetters")?;
    let waiting = |queue: &Queue| -> Result<u64, CallError> {
        let attributes = session.aws.queue_attributes(queue)?;
        let names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
        Ok(names.iter().filter_map(|it| attributes.get(*it)?.parse::<u64>().ok()).sum())
    };
    let dead_before = dead.as_ref().map(&waiting).transpose()?;
    let now = Timestamp::now();
    let id = format!("{}{}", stack::PROBE_ID, now.as_millisecond());
    let body = json!({
        "version": "0",
        "id": id,
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "account": "000000000000",
        "time": crate::live::whole_seconds(now),
        "region": session.aws.region,
        "resources": [format!("arn:{}:ec2:{}:000000000000:instance/{INSTANCE}", session.aws.partition, session.aws.region)],
        "detail": {"instance-id": INSTANCE, "instance-action": "terminate"},
    });
    let message = Message { body: body.to_string(), ..Message::default() };
    session.aws.send(&queue, &message, "")?;
    let began = Instant::now();
    let key = stack::probe_key(&id);
    loop {
        // What the function itself has written: the counts of a queue may be a minute old.
        if wiring::record(session, &key)?.is_object() {
            to.ok("interruption", "InterruptionQueue", "a spot warning was taken");
            return Ok(());
        }
        let left = patience.saturating_sub(began.elapsed());
        if left.is_zero() {
            break;
        }
        thread::sleep(PAUSE.min(left));
    }
    let seconds = patience.as_secs();
    if dead.as_ref().map(&waiting).transpose()? > dead_before {
        to.fault(
            "interruption",
            "InterruptionQueue",
            "a spot warning ended among the dead letters",
            "look into the log of the function interruption",
        );
    } else if waiting(&queue)? > 0 {
        to.fault(
            "interruption",
            "InterruptionQueue",
            format!("a spot warning was not taken within {seconds} s"),
            "look into the log of the function interruption, and whether its event source is enabled",
        );
    } else {
        to.warning(
            "interruption",
            "InterruptionQueue",
            format!("a spot warning was taken, but the function interruption has not said so within {seconds} s"),
            "look into its log; a function older than this command says nothing: deploy the stack again",
        );
    }
    Ok(())
}
