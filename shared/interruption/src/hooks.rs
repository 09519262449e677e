//! What Auto Scaling says of instances that a lifecycle hook holds.
//!
//! It says so by EventBridge, or by itself: then the message is the body, or the `Message` of one from SNS.
//!
//! DIFFERENCE: Karpenter knows nothing of such groups, and neither do we unless it is asked for.

use jiff::Timestamp;
use serde::Deserialize;
use spokeshave_model::InstanceId;

/// An instance is about to be terminated by its group, which waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    pub group: String,
    pub name: String,
    /// Empty when the sender left it out.
    pub token: String,
    pub instance_id: InstanceId,
    pub time: Option<Timestamp>,
}

/// Both forms, and what wraps them.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Body {
    version: String,
    source: String,
    #[serde(rename = "detail-type")]
    detail_type: String,
    time: Option<String>,
    detail: Option<Notification>,
    #[serde(rename = "Message")]
    message: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct Notification {
    service: String,
    lifecycle_transition: String,
    auto_scaling_group_name: String,
    lifecycle_hook_name: String,
    lifecycle_action_token: Option<String>,
    #[serde(rename = "EC2InstanceId")]
    instance_id: String,
    time: Option<String>,
}

const TERMINATING: &str = "autoscaling:EC2_INSTANCE_TERMINATING";

/// Reads a message that [`crate::parse`] takes for none of ours.
///
/// `None` for everything else: test notifications, launches, messages that lack a name, and what is no JSON at all.
pub fn parse(body: &str) -> Option<Hook> {
    read(body, true)
}

fn read(body: &str, unwrap: bool) -> Option<Hook> {
    // It is in every message that counts, whatever wraps it: the others are told apart without being read.
    if !body.contains(TERMINATING) {
        return None;
    }
    let outer: Body = serde_json::from_str(body).ok()?;
    if let Some(detail) = outer.detail {
        let known = outer.version == "0"
            && outer.source == "aws.autoscaling"
            && outer.detail_type == "EC2 Instance-terminate Lifecycle Action";
        return if known { detail.hook(outer.time) } else { None };
    }
    if let Some(inner) = outer.message.filter(|_| unwrap) {
        return read(&inner, false);
    }
    let own: Notification = serde_json::from_str(body).ok()?;
    let time = own.time.clone();
    if own.service == "AWS Auto Scaling" { own.hook(time) } else { None }
}

impl Notification {
    fn hook(self, time: Option<String>) -> Option<Hook> {
        let named = [&self.auto_scaling_group_name, &self.lifecycle_hook_name, &self.instance_id];
        if self.lifecycle_transition != TERMINATING || named.iter().any(|it| it.is_empty()) {
            return None;
        }
        Some(Hook {
            group: self.auto_scaling_group_name,
            name: self.lifecycle_hook_name,
            token: self.lifecycle_action_token.unwrap_or_default(),
            instance_id: InstanceId::from(self.instance_id),
            time: time.and_then(|it| it.parse().ok()),
        })
    }
}
