//! The end of nodes that are not ours: a lifecycle hook of their Auto Scaling group holds the instance until they are
//! drained.
//!
//! The group terminates the instance, and nobody else: here the node is cordoned and drained like one of ours, and the
//! hook is answered.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use spokeshave_model::{
    Uid,
    core::{Node, Pod, VolumeAttachment},
};
use spokeshave_ports::{LifecycleAction, Precondition, StateKey};

use crate::{
    Action,
    drain::MINIMUM_DRAIN,
    termination::{Act, Read, detach, drain_node, poll, quarantined},
};

/// Partition of the state table: one record for each hook that waits. Lost: the group goes on when the hook's time-out
/// has passed.
pub const PARTITION: &str = "lifecycle-hook";

/// No hook waits longer, however often it is told to. Source: AWS, 48 hours.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(48);

/// Reason for the events and metrics of evicted pods.
pub const REASON: &str = "Scale-In";

/// Looks at a drain are no further apart: the bridge tells nothing of nodes that are not ours.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// A hook that waits for its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    pub action: LifecycleAction,
    pub node: String,
    pub uid: Uid,
    /// When we heard of it.
    pub begun: Timestamp,
    /// When the group is told next that it takes longer; `None` once it does not want to hear it any more.
    pub heartbeat: Option<Timestamp>,
}

impl Hook {
    pub fn new(
        action: LifecycleAction,
        node: &str,
        uid: &Uid,
        interval: SignedDuration,
        now: Timestamp,
    ) -> Self {
        let heartbeat = now.checked_add(interval).ok();
        Self { action, node: node.to_owned(), uid: uid.clone(), begun: now, heartbeat }
    }

    /// Where the record is. Hooks of one group wait at once, each for its own answer.
    pub fn key(&self) -> StateKey {
        StateKey::new(PARTITION, &format!("{}/{}", self.action.instance, self.action.hook))
    }

    /// When the record is of no use any more.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.begun.checked_add(LONGEST).ok()
    }

    /// Whether the group is to be told now that it takes longer.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.heartbeat.is_some_and(|it| it <= now)
    }

    /// The hook after a heartbeat at `now`: the next comes a whole number of intervals after the first, and none at or
    /// after `until` from the beginning.
    #[must_use]
    pub fn beaten(&self, interval: SignedDuration, until: SignedDuration, now: Timestamp) -> Self {
        let since = now.duration_since(self.begun).as_secs().max(0);
        let step = interval.as_secs().max(1);
        let next = SignedDuration::from_secs((since / step + 1) * step);
        let heartbeat = if next < until { self.begun.checked_add(next).ok() } else { None };
        Self { heartbeat, ..self.clone() }
    }

    /// The hook when no more heartbeats are wanted.
    #[must_use]
    pub fn silent(&self) -> Self {
        Self { heartbeat: None, ..self.clone() }
    }
}

/// How far a node is on its way out.
#[derive(Clone, Debug, PartialEq)]
pub enum Leaving<'a> {
    /// Has to be told this first.
    Read(Read),
    /// To be done now, and then to be looked at again.
    Waits(Box<Act<'a>>),
    /// Nothing is left on it.
    Drained,
}

/// What [`decide`] reads.
#[derive(Clone, Debug, Default)]
pub struct View<'a> {
    /// `None` when it is gone, or another one has its name.
    pub node: Option<&'a Node>,
    pub pods: Option<Vec<&'a Pod>>,
    pub attachments: Option<Vec<&'a VolumeAttachment>>,
}

/// Decides how far a node is whose group has let it go at `begun`.
pub fn decide<'a>(view: &View<'a>, begun: Timestamp, now: Timestamp) -> Leaving<'a> {
    let Some(node) = view.node else { return Leaving::Drained };
    let mut act = Act::default();
    if let Some(cordoned) = cordoned(node) {
        let guard = Precondition::ResourceVersion;
        act.actions.push(Action::WriteNode { node: Box::new(cordoned), guard });
    }
    let Some(pods) = &view.pods else { return Leaving::Read(Read::Pods) };
    let pause = poll(begun, now).unwrap_or(now + LONGEST_PAUSE);
    if !drain_node(node, None, pods, None, &mut act, now) {
        act.wake_at = [act.wake_at, Some(pause)].into_iter().flatten().min();
        return Leaving::Waits(Box::new(act));
    }
    let least = begun + MINIMUM_DRAIN;
    if !act.actions.is_empty() || now < least {
        act.waiting = Some("a drain takes at least five seconds".into());
        act.wake_at = Some(least.max(now + SignedDuration::from_secs(1)));
        return Leaving::Waits(Box::new(act));
    }
    let Some(attachments) = &view.attachments else { return Leaving::Read(Read::Attachments) };
    if !detach(node, None, attachments, None, &mut act, now) {
        act.wake_at = Some(pause);
        return Leaving::Waits(Box::new(act));
    }
    Leaving::Drained
}

/// The node with our taint, out of load balancers, and closed as `kubectl cordon` closes it: people who look after nodes
/// that are not ours look there. `None` when it is so already.
fn cordoned(node: &Node) -> Option<Node> {
    let mut changed = quarantined(node).unwrap_or_else(|| node.clone());
    changed.spec.unschedulable = true;
    (changed != *node).then_some(changed)
}
