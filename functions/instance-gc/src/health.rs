//! The poll of instance status: what EC2 says is broken goes to interruption (`spec` aws-nodeclass 24).
//!
//! It runs here and not on a schedule of its own because both look at all instances every minute. What follows from an
//! unhealthy instance is decided by interruption, to which each (instance, category) is sent as work of its own.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde_json::json;
use spokeshave_interruption::{
    ActionKind, View,
    status::{self, Category, Check, Report, ScheduledEvent},
};
use spokeshave_model::{NodeClaim, NodePool, labels};
use spokeshave_ports::{
    Cluster, Concern, Decision, Ec2, Invocation, Queues, Selector, StateKey, StateTable, When,
    Work, ec2::InstanceStatus, failed_calls,
};

use crate::TryAgain;

/// Reason of the events that tell of a refused call.
const REASON: &str = "InstanceStatusFailed";
/// After a refused call, so long until the next. DIFFERENCE: Karpenter stops until it is restarted.
const PAUSE_WITHOUT_PERMISSION: SignedDuration = SignedDuration::from_mins(10);
/// Which (instance, category) has been counted. Lost: it is counted twice.
const SEEN: &str = "unhealthy";
const SEEN_FOR: SignedDuration = SignedDuration::from_hours(24 * 14);

/// What EC2 says, in the words of the decision.
fn report(of: &InstanceStatus) -> Report {
    let mut checks: Vec<Check> = of
        .checks
        .iter()
        .filter_map(|it| {
            let category = match it.of.as_str() {
                "instance" => Category::InstanceStatus,
                "system" => Category::SystemStatus,
                "ebs" => Category::EbsStatus,
                _ => return None,
            };
            Some(Check { category, status: it.status.clone(), impaired_since: it.impaired_since })
        })
        .collect();
    if checks.is_empty() {
        let summaries = [
            (Category::InstanceStatus, &of.instance_status),
            (Category::SystemStatus, &of.system_status),
        ];
        checks = summaries
            .into_iter()
            .filter(|(_, summary)| *summary == "impaired")
            .map(|(category, _)| Check {
                category,
                status: "failed".into(),
                impaired_since: of.impaired_since,
            })
            .collect();
    }
    let wanted = |code: &str| code.is_empty() || status::EVENT_CODES.contains(&code);
    let events = of.events.iter().filter(|it| wanted(&it.code)).map(|it| ScheduledEvent {
        description: it.description.clone(),
        not_before: it.not_before,
    });
    Report { id: of.id.clone(), checks, events: events.collect() }
}

/// One poll.
pub(crate) async fn run(
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> Result<(), TryAgain> {
    let again = |object: &str, error: &(dyn std::error::Error + 'static)| {
        let decision = Decision::new("retry", object, error.to_string());
        cx.decide(decision.caused_by(error).as_error());
        TryAgain
    };
    let denied = StateKey::new("pause", "describe-instance-status");
    if matches!(state.read(&denied).await, Ok(Some(_))) {
        return Ok(());
    }
    let statuses = match ec2.describe_instance_status(&[]).await {
        Ok(statuses) => statuses,
        Err(error) if error.is_unauthorized() => {
            let reason = format!("no permission for ec2:DescribeInstanceStatus: {error}");
            let decision = Decision::new("skip", "InstanceStatus/all", reason);
            cx.decide(decision.with_error(&error).as_error());
            let object = "InstanceStatus/all";
            // The log has it; without the record no event tells.
            let _ = failed_calls::note(state, object, REASON, &error, cx.now).await;
            let until = cx.now.checked_add(PAUSE_WITHOUT_PERMISSION).ok();
            // Without the record it is only asked, and said, more often.
            let _ = state.write(&denied, json!({}), until, When::Always).await;
            return Ok(());
        }
        Err(error) => return Err(again("InstanceStatus/all", &error)),
    };
    let reports: Vec<Report> = statuses.iter().map(report).collect();
    let messages = status::messages(&reports, cx.now);
    let seen =
        state.query(SEEN, "").await.map_err(|error| again("StateTable/unhealthy", &error))?;
    if messages.is_empty() && seen.is_empty() {
        return Ok(());
    }
    let claims = cluster
        .list::<NodeClaim>(&Selector::all())
        .await
        .map_err(|error| again("NodeClaim/all", &error))?;
    let mut view = View::of(messages.iter().map(|(_, it)| it), claims.iter().map(|it| &**it));
    if messages.iter().any(|(_, it)| it.starts.is_some()) {
        let pools = cluster
            .list::<NodePool>(&Selector::all())
            .await
            .map_err(|error| again("NodePool/all", &error))?;
        view = view.with_pools(pools.iter().map(|it| &**it));
    }
    let mut current: BTreeSet<String> = BTreeSet::new();
    let mut outcome = Ok(());
    for (category, message) in &messages {
        let claims = view.claims_of(message);
        let Some(id) = message.instance_ids.first().filter(|_| !claims.is_empty()) else {
            continue;
        };
        let key = format!("{id}/{}", category.metric());
        if !seen.iter().any(|(known, _)| *known == key) && !current.contains(&key) {
            let record = StateKey::new(SEEN, &key);
            let until = cx.now.checked_add(SEEN_FOR).ok();
            if state.write(&record, json!({}), until, When::Absent).await.is_ok() {
                let labels = [("category", category.metric())];
                cx.count("karpenter_interruption_instance_status_unhealthy_total", &labels);
            }
        }
        current.insert(key);
        let forceful = message.kind.action() == ActionKind::ForcefulTermination;
        let done = claims.iter().all(|it| {
            let leaves = it.deleting
                && (!forceful || it.annotations.contains_key(labels::TERMINATION_TIMESTAMP));
            leaves || view.is_early(it, message, cx.now)
        });
        if done {
            continue;
        }
        let payload = status::payload(message);
        let work = Work { payload, ..Work::new(status::WORK_REASON, Vec::new()) };
        match queues.send(Concern::Interruption, &work, SignedDuration::ZERO, "").await {
            Ok(()) => {
                let object = format!("Instance/{id}");
                cx.decide(Decision::new("report-unhealthy", object, message.kind.metric()));
            }
            Err(error) => outcome = Err(again("Queue/interruption", &error)),
        }
    }
    for (key, _) in seen.iter().filter(|(key, _)| !current.contains(key)) {
        // Healthy again: a relapse counts anew.
        if let Err(error) = state.remove(&StateKey::new(SEEN, key), When::Always).await {
            outcome = Err(again("StateTable/unhealthy", &error));
        }
    }
    outcome
}
