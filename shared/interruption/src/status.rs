//! Instance status checks: what DescribeInstanceStatus says, as messages (`spec` aws-nodeclass 24, aws-capacity 22).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_model::InstanceId;

use crate::{Kind, Message};

/// A check that has failed for less than this does not count yet. 120 s, as in Karpenter 1.x.
pub const IMPAIRED_FOR: SignedDuration = SignedDuration::from_secs(120);

/// Codes of scheduled events that are asked for.
pub const EVENT_CODES: &[&str] = &[
    "instance-reboot",
    "system-reboot",
    "system-maintenance",
    "instance-retirement",
    "instance-stop",
];

/// What a detail is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    InstanceStatus,
    SystemStatus,
    /// A scheduled event.
    EventStatus,
    /// It cannot be told whether the volume belongs to the node or to a pod, so nothing follows.
    EbsStatus,
}

impl Category {
    /// Label `category` of the metric.
    pub const fn metric(self) -> &'static str {
        match self {
            Self::InstanceStatus => "InstanceStatus",
            Self::SystemStatus => "SystemStatus",
            Self::EventStatus => "EventStatus",
            Self::EbsStatus => "EBSStatus",
        }
    }

    /// The kind of message that it makes.
    pub const fn kind(self) -> Option<Kind> {
        match self {
            Self::InstanceStatus => Some(Kind::InstanceStatus),
            Self::SystemStatus => Some(Kind::SystemStatus),
            Self::EventStatus => Some(Kind::EventStatus),
            Self::EbsStatus => None,
        }
    }
}

/// One check of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub category: Category,
    /// `passed`, `failed`, `insufficient-data`, `initializing`.
    pub status: String,
    pub impaired_since: Option<Timestamp>,
}

/// What is known of one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub id: InstanceId,
    pub checks: Vec<Check>,
    pub events: Vec<ScheduledEvent>,
}

/// A scheduled event of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduledEvent {
    pub description: String,
    /// When it begins at the earliest.
    pub not_before: Option<Timestamp>,
}

/// Whether a scheduled event is over.
///
/// DIFFERENCE: EC2 returns events up to a week after they are done, and Karpenter drains the healthy node again.
fn is_over(event: &ScheduledEvent) -> bool {
    let description = event.description.as_str();
    description.starts_with("[Completed]") || description.starts_with("[Canceled]")
}

/// When the first of the events that are not over begins; `None` when one of them does not say.
fn starts(report: &Report) -> Option<Timestamp> {
    let times: Option<Vec<Timestamp>> =
        report.events.iter().filter(|it| !is_over(it)).map(|it| it.not_before).collect();
    times?.into_iter().min()
}

/// The categories in which an instance is unhealthy at `now`, forceful ones first. Exactly 120 s counts.
pub fn unhealthy(report: &Report, now: Timestamp) -> Vec<Category> {
    let long_enough = |check: &&Check| {
        check.status == "failed"
            && check.impaired_since.is_none_or(|since| now.duration_since(since) >= IMPAIRED_FOR)
    };
    let mut categories: Vec<Category> =
        report.checks.iter().filter(long_enough).map(|it| it.category).collect();
    if report.events.iter().any(|it| !is_over(it)) {
        categories.push(Category::EventStatus);
    }
    categories.sort();
    categories.dedup();
    categories
}

/// One message per instance and category that something follows from; the first report of an instance counts.
///
/// DIFFERENCE: forceful kinds come first; in Karpenter their order is arbitrary.
pub fn messages(reports: &[Report], now: Timestamp) -> Vec<(Category, Message)> {
    let mut by_id: BTreeMap<&InstanceId, &Report> = BTreeMap::new();
    for report in reports {
        by_id.entry(&report.id).or_insert(report);
    }
    let of = |report: &Report| -> Vec<(Category, Message)> {
        let message = |kind| Message {
            kind,
            instance_ids: vec![report.id.clone()],
            reservation_id: None,
            starts: starts(report).filter(|_| kind == Kind::EventStatus),
            time: None,
        };
        unhealthy(report, now)
            .into_iter()
            .filter_map(|category| Some((category, message(category.kind()?))))
            .collect()
    };
    by_id.into_values().flat_map(of).collect()
}

/// Reason of the work in which whoever polls tells interruption of an unhealthy instance.
pub const WORK_REASON: &str = "InstanceStatus";

/// The payload of such work.
pub fn payload(message: &Message) -> Value {
    json!({
        "kind": message.kind.metric(),
        "instanceIds": message.instance_ids,
        "starts": message.starts,
    })
}

/// Reads such a payload back; one that is none asks for nothing.
pub fn from_payload(payload: &Value) -> Message {
    let kind = payload.get("kind").and_then(Value::as_str).unwrap_or_default();
    let kinds = [Kind::InstanceStatus, Kind::SystemStatus, Kind::EventStatus];
    let Some(kind) = kinds.into_iter().find(|it| it.metric() == kind) else {
        return Message::no_op(None);
    };
    let ids = payload.get("instanceIds").and_then(Value::as_array);
    let ids = ids.into_iter().flatten().filter_map(Value::as_str).map(InstanceId::from);
    let starts = payload.get("starts").and_then(Value::as_str).and_then(|it| it.parse().ok());
    Message { kind, instance_ids: ids.collect(), reservation_id: None, starts, time: None }
}
