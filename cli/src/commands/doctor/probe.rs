//! One spot warning about an instance that does not exist, through the queue of the real ones.

use std::{
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::json;

use super::finding::{DEPLOY, Findings};
use crate::live::{Session, aws::CallError, queues::Message};

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
    let waiting = |queue: &crate::live::queues::Queue| -> Result<u64, CallError> {
        let attributes = session.aws.queue_attributes(queue)?;
        let names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
        Ok(names.iter().filter_map(|it| attributes.get(*it)?.parse::<u64>().ok()).sum())
    };
    let dead_before = dead.as_ref().map(&waiting).transpose()?;
    let now = Timestamp::now();
    let body = json!({
        "version": "0",
        "id": format!("spokeshave-doctor-{}", now.as_millisecond()),
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
    loop {
        if waiting(&queue)? == 0 {
            break;
        }
        if began.elapsed() >= patience {
            to.fault(
                "interruption",
                "InterruptionQueue",
                format!("a spot warning was not taken within {} s", patience.as_secs()),
                "look into the log of the function interruption, and whether its event source is enabled",
            );
            return Ok(());
        }
        thread::sleep(PAUSE.min(patience));
    }
    let dead_after = dead.as_ref().map(&waiting).transpose()?;
    if dead_after > dead_before {
        to.fault(
            "interruption",
            "InterruptionQueue",
            "a spot warning ended among the dead letters",
            "look into the log of the function interruption",
        );
    } else {
        to.ok("interruption", "InterruptionQueue", "a spot warning was taken");
    }
    Ok(())
}
