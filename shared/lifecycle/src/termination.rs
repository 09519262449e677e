//! The end of claims and nodes.
//!
//! [`decide_node`] and [`decide_claim`] say either what they still have to be told ([`Next::Read`]) or what to do
//! ([`Next::Act`]). Reads are asked for one at a time and only when the stages before are through, so that a node
//! that is still draining costs one list of its pods and nothing else.

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{
    ConditionStatus, InstanceId, NodeClaim, ProviderId, TaintEffect,
    core::{Node, Pod, VolumeAttachment},
    duration::PlainDuration,
    labels,
    pod_classes::disrupted_taint,
};
use spokeshave_ports::{Precondition, cluster::KubeEvent, observability};

use crate::{
    Action, claim,
    drain::{self, Drain, MINIMUM_DRAIN},
    metrics,
};

/// Label: load balancers take the node out. Its value is Karpenter's.
pub const EXCLUDE_FROM_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// How often to look whether an instance is gone. As in Karpenter 1.x.
pub const INSTANCE_POLL: SignedDuration = SignedDuration::from_secs(5);

/// A drain of an expired node that has lasted longer than this is reported.
pub const LONG_DRAIN: SignedDuration = SignedDuration::from_hours(24);

/// Where an instance is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instance {
    /// Terminated, or unknown to EC2.
    Gone,
    /// On its way: nothing to ask for.
    ShuttingDown,
    /// Pending, running, stopping or stopped.
    Alive,
}

impl Instance {
    /// Reads the state name that EC2 gives; `None` for an instance that it does not list.
    pub fn from_state(state: Option<&str>) -> Self {
        match state {
            None | Some("terminated") => Self::Gone,
            Some("shutting-down") => Self::ShuttingDown,
            Some(_) => Self::Alive,
        }
    }
}

/// What is known of the launch of a claim that never got a provider id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// No instance was, or will be, launched for it.
    Never,
    /// The attempt may still bring one; look again then.
    Open(Timestamp),
    /// It has an instance of its own after all.
    Found(ProviderId),
}

/// What a decision has to be told before it can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Read {
    /// All Nodes with the claim's provider id.
    Nodes,
    /// All pods on the node.
    Pods,
    /// The attachments that [`crate::volumes::blocking`] leaves.
    Attachments,
    /// The instance of the claim's provider id, or of the node's where there is no claim; not from a cache.
    Instance,
    /// What became of the claim's launch.
    Launch,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next<'a> {
    Read(Read),
    Act(Box<Act<'a>>),
}

/// What to do, in this order: `actions`, the pods of `drain`, `terminate`, `status`, `finish`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Act<'a> {
    pub actions: Vec<Action>,
    pub drain: Option<Drain<'a>>,
    /// Ask EC2 to terminate it.
    pub terminate: Option<InstanceId>,
    /// The claim with its new conditions, if they changed.
    pub status: Option<Box<NodeClaim>>,
    /// After everything else: let the object go.
    pub finish: Vec<Action>,
    /// Look again then, whether or not anything changes before.
    pub wake_at: Option<Timestamp>,
    /// What is waited for, for people.
    pub waiting: Option<String>,
    /// The claim comes first: look at it, then at this object again, in this run.
    pub again: bool,
    /// Nothing helps until a person acts.
    pub broken: Option<String>,
}

/// The hard deadline of a claim: the annotation, as RFC 3339.
///
/// # Errors
/// The text that is not a time. Nothing is drained until it is mended.
pub fn deadline(claim: &NodeClaim) -> Result<Option<Timestamp>, &str> {
    match claim.metadata.annotation(labels::TERMINATION_TIMESTAMP) {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| text),
    }
}

/// What [`decide_claim`] reads.
#[derive(Clone, Debug, Default)]
pub struct ClaimView<'a> {
    pub claim: Option<&'a NodeClaim>,
    pub nodes: Option<Vec<&'a Node>>,
    pub instance: Option<Instance>,
    pub launch: Option<Launch>,
}

/// Decides how far a claim that is being deleted gets at `now`.
pub fn decide_claim(view: &ClaimView<'_>, now: Timestamp) -> Next<'static> {
    let mut act = Act::default();
    let finalizable = view.claim.filter(|it| {
        it.is_managed()
            && it.metadata.deleting()
            && it.metadata.has_finalizer(labels::TERMINATION_FINALIZER)
    });
    let Some(claim) = finalizable else { return act.into() };
    let Some(deleted_at) = claim.metadata.deletion_timestamp else { return act.into() };
    let mut claim = claim.clone();
    set_deadline(&mut claim, deleted_at, &mut act);

    if claim.is_true(NodeClaim::REGISTERED) {
        let Some(nodes) = &view.nodes else { return Next::Read(Read::Nodes) };
        for node in nodes.iter().filter(|it| !it.metadata.deleting()) {
            let node = Box::new((*node).clone());
            act.actions.push(Action::DeleteNode { node, why: "its NodeClaim is deleted" });
        }
        if !nodes.is_empty() {
            act.waiting = Some("the Node is drained first".into());
            return act.into();
        }
    }
    let instance = if claim.status.provider_id.is_empty() {
        match &view.launch {
            None => return Next::Read(Read::Launch),
            Some(Launch::Never) => None,
            Some(Launch::Open(until)) => {
                act.wake_at = Some((now + INSTANCE_POLL).max(*until));
                act.waiting = Some("its launch may still bring an instance".into());
                return act.into();
            }
            Some(Launch::Found(id)) => {
                // Written down before anything is done with it: found again later it might be another claim's.
                claim.status.provider_id = id.clone();
                act.status = Some(Box::new(claim));
                act.again = true;
                return act.into();
            }
        }
    } else {
        let Some(instance) = view.instance else { return Next::Read(Read::Instance) };
        let Some(id) = claim.status.provider_id.instance_id() else {
            act.broken =
                Some(format!("provider id {} names no instance", claim.status.provider_id));
            return act.into();
        };
        Some((id, instance))
    };
    if let Some((id, instance)) = instance {
        let before = claim.clone();
        end_instance(&mut claim, &id, instance, &mut act, now);
        if claim.status != before.status {
            act.status = Some(Box::new(claim.clone()));
        }
        if instance != Instance::Gone {
            act.wake_at = Some(next_instance_poll(&claim, now));
            act.waiting = Some(format!("instance {id} is not gone yet"));
            return act.into();
        }
        let since = claim.condition(NodeClaim::INSTANCE_TERMINATING);
        if let Some(since) = since.and_then(|it| it.last_transition_time) {
            act.finish.push(Action::Observe {
                name: metrics::INSTANCE_TERMINATION_SECONDS,
                seconds: now.duration_since(since).as_secs_f64(),
                labels: vec![("nodepool", metrics::label(&claim, labels::NODEPOOL))],
            });
        }
    }
    release_claim(&claim, deleted_at, &mut act, now);
    act.into()
}

/// A grace period becomes a deadline when the deletion begins. One that is there is never changed.
fn set_deadline(claim: &mut NodeClaim, deleted_at: Timestamp, act: &mut Act<'_>) {
    let Some(grace) = claim.spec.termination_grace_period.as_ref().and_then(PlainDuration::get)
    else {
        return;
    };
    if claim.metadata.annotation(labels::TERMINATION_TIMESTAMP).is_some() {
        return;
    }
    let Ok(deadline) = deleted_at.checked_add(grace) else { return };
    let deadline = Timestamp::from_second(deadline.as_second()).unwrap_or(deadline);
    claim.metadata.annotations.insert(labels::TERMINATION_TIMESTAMP.into(), deadline.to_string());
    act.actions.push(Action::WriteClaim {
        claim: Box::new(claim.clone()),
        guard: Precondition::ResourceVersion,
    });
    let text = format!("All pods will be deleted by {deadline}");
    let event = KubeEvent::on(claim, true, "TerminationGracePeriodExpiring", text);
    act.actions.push(Action::publish(event));
}

/// Brings the instance one step nearer to its end and says so in the claim.
fn end_instance(
    claim: &mut NodeClaim,
    id: &InstanceId,
    instance: Instance,
    act: &mut Act<'_>,
    now: Timestamp,
) {
    if instance == Instance::Alive {
        act.terminate = Some(id.clone());
    }
    claim.conditions_mut().set_true(NodeClaim::INSTANCE_TERMINATING, now);
}

/// Every five seconds for two minutes, then less and less often; the sweep is behind it.
fn next_instance_poll(claim: &NodeClaim, now: Timestamp) -> Timestamp {
    let since = claim.condition(NodeClaim::INSTANCE_TERMINATING);
    let since = since.and_then(|it| it.last_transition_time).unwrap_or(now);
    let pause = match now.duration_since(since).as_secs() {
        ..120 => INSTANCE_POLL,
        120..600 => SignedDuration::from_secs(15),
        _ => SignedDuration::from_secs(60),
    };
    now + pause
}

fn release_claim(claim: &NodeClaim, deleted_at: Timestamp, act: &mut Act<'_>, now: Timestamp) {
    let mut released = claim.clone();
    released.metadata.finalizers.retain(|it| it != labels::TERMINATION_FINALIZER);
    act.finish.push(Action::WriteClaim {
        claim: Box::new(released),
        guard: Precondition::ResourceVersion,
    });
    act.finish.push(Action::Observe {
        name: metrics::CLAIMS_TERMINATION_SECONDS,
        seconds: now.duration_since(deleted_at).as_secs_f64(),
        labels: vec![("nodepool", metrics::label(claim, labels::NODEPOOL))],
    });
    act.finish.push(Action::Count {
        name: metrics::CLAIMS_TERMINATED,
        labels: vec![
            ("nodepool", metrics::label(claim, labels::NODEPOOL)),
            ("capacity_type", metrics::label(claim, labels::CAPACITY_TYPE)),
            ("zone", metrics::label(claim, labels::ZONE)),
        ],
    });
    act.finish.push(ended(metrics::CLAIM_ENDED_SECONDS, deleted_at, now));
    act.finish.push(finalized(KubeEvent::on(claim, false, observability::FINALIZED, FINALIZED)));
}

const FINALIZED: &str = "Finalized karpenter.sh/termination";

fn ended(name: &'static str, deleted_at: Timestamp, now: Timestamp) -> Action {
    let seconds = now.duration_since(deleted_at).as_secs_f64();
    Action::Observe { name, seconds, labels: Vec::new() }
}

fn finalized(event: KubeEvent) -> Action {
    Action::publish(event)
}

/// What [`decide_node`] reads.
#[derive(Clone, Debug, Default)]
pub struct NodeView<'a> {
    pub node: Option<&'a Node>,
    /// The one managed claim with the node's provider id; none when there are none or several.
    pub claim: Option<&'a NodeClaim>,
    pub pods: Option<Vec<&'a Pod>>,
    pub attachments: Option<Vec<&'a VolumeAttachment>>,
    pub instance: Option<Instance>,
    /// EC2 has just told of the instance: it is asked even if the kubelet still counts as alive.
    pub interrupted: bool,
}

/// Decides how far a node that is being deleted gets at `now`.
pub fn decide_node<'a>(view: &NodeView<'a>, now: Timestamp) -> Next<'a> {
    let mut act = Act::default();
    let finalizable = view.node.filter(|it| {
        it.metadata.deleting()
            && it.metadata.has_finalizer(labels::TERMINATION_FINALIZER)
            && it.metadata.label(labels::NODECLASS).is_some()
    });
    let Some(node) = finalizable else { return act.into() };
    let Some(deleted_at) = node.metadata.deletion_timestamp else { return act.into() };
    if view.claim.is_some_and(|it| !it.metadata.deleting()) {
        act.actions.push(Action::DeleteClaim {
            reason: "",
            why: format!("Node {} is deleted", node.metadata.name),
            count_pods: false,
        });
        act.again = true;
        return act.into();
    }
    // DIFFERENCE: Karpenter goes on draining a node whose instance is gone until its Ready condition says so.
    let may_be_gone = !node.is_ready() || view.interrupted;
    if may_be_gone {
        match view.instance {
            None => return Next::Read(Read::Instance),
            Some(Instance::Gone) => {
                act.waiting = None;
                release_node(node, deleted_at, &mut act, now);
                return act.into();
            }
            Some(_) => {}
        }
    }
    let deadline = match view.claim.map_or(Ok(None), deadline) {
        Ok(deadline) => deadline,
        Err(text) => {
            act.broken = Some(format!(
                "annotation {} is not a time: {text:?}",
                labels::TERMINATION_TIMESTAMP
            ));
            return act.into();
        }
    };
    if let Some(deadline) = deadline {
        let text = format!("All pods will be deleted by {deadline}");
        let event = KubeEvent::on(node, true, "TerminationGracePeriodExpiring", text);
        act.actions.push(Action::publish(event));
    }
    if let Some(quarantined) = quarantined(node) {
        act.actions.push(Action::WriteNode {
            node: Box::new(quarantined),
            guard: Precondition::ResourceVersion,
        });
    }
    let Some(pods) = &view.pods else { return Next::Read(Read::Pods) };
    let mut claim = view.claim.cloned();
    let through = drain_node(node, claim.as_mut(), pods, deadline, &mut act, now);
    if !through {
        let poll = poll(deleted_at, now);
        act.wake_at = [act.wake_at, poll].into_iter().flatten().min();
        return finish_node(view, claim, act, now);
    }
    let Some(attachments) = &view.attachments else { return Next::Read(Read::Attachments) };
    if !detach(node, claim.as_mut(), attachments, deadline, &mut act, now) {
        act.wake_at = [deadline.map(|it| it + SECOND), poll(deleted_at, now)]
            .into_iter()
            .flatten()
            .filter(|at| *at > now)
            .min();
        return finish_node(view, claim, act, now);
    }
    if let Some(claim) = &mut claim {
        let Some(instance) = view.instance else { return Next::Read(Read::Instance) };
        match claim.status.provider_id.instance_id() {
            Some(id) => end_instance(claim, &id, instance, &mut act, now),
            None => {
                act.broken =
                    Some(format!("provider id {} names no instance", claim.status.provider_id));
                return act.into();
            }
        }
        if instance != Instance::Gone {
            act.wake_at = Some(next_instance_poll(claim, now));
            act.waiting = Some("the instance is not gone yet".into());
            return finish_node(view, Some(claim.clone()), act, now);
        }
    }
    release_node(node, deleted_at, &mut act, now);
    finish_node(view, claim, act, now)
}

const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// How long events are relied on with a look now and then; afterwards only the sweep looks.
const POLLED_FOR: SignedDuration = SignedDuration::from_mins(10);

/// When to look again at a drain that has gone on since `since`, even if no event comes. Ever less often.
pub(crate) fn poll(since: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let elapsed = now.duration_since(since);
    if elapsed >= POLLED_FOR {
        return None;
    }
    Some(now + SignedDuration::from_secs((elapsed.as_secs() / 3).clamp(2, 60)))
}

/// The claim's conditions, if this run changed them, are written before anything is let go.
fn finish_node<'a>(
    view: &NodeView<'a>,
    claim: Option<NodeClaim>,
    mut act: Act<'a>,
    now: Timestamp,
) -> Next<'a> {
    if let (Some(old), Some(new)) = (view.claim, claim)
        && old.status != new.status
    {
        if new.is_true(NodeClaim::DRAINED) && !old.is_true(NodeClaim::DRAINED) {
            act.finish.insert(
                0,
                Action::Count {
                    name: metrics::NODES_DRAINED,
                    labels: vec![("nodepool", metrics::label(&new, labels::NODEPOOL))],
                },
            );
        }
        act.finish.splice(0..0, claim::transitions(old, &new));
        act.status = Some(Box::new(new));
    }
    act.wake_at = act.wake_at.map(|at| at.max(now));
    act.into()
}

/// The node with the disrupted taint and out of load balancers; `None` when it is so already.
pub fn quarantined(node: &Node) -> Option<Node> {
    let mut changed = node.clone();
    let taint = disrupted_taint();
    let is_ours = |key: &str| key == labels::DISRUPTED_TAINT;
    if !changed
        .spec
        .taints
        .iter()
        .any(|it| is_ours(&it.key) && it.effect == TaintEffect::NoSchedule)
    {
        changed.spec.taints.retain(|it| !is_ours(&it.key));
        changed.spec.taints.push(taint);
    }
    changed.metadata.labels.insert(EXCLUDE_FROM_BALANCERS.into(), "karpenter".into());
    (changed != *node).then_some(changed)
}

/// Whether nothing is left to evict and the least time has passed.
pub(crate) fn drain_node<'a>(
    node: &'a Node,
    claim: Option<&mut NodeClaim>,
    pods: &[&'a Pod],
    deadline: Option<Timestamp>,
    act: &mut Act<'a>,
    now: Timestamp,
) -> bool {
    let drained = drain::decide(pods, deadline, now);
    let waiting = drained.waiting;
    let due = drained.due;
    if waiting > 0 {
        let text = format!("Failed to drain node, {waiting} pods are waiting to be evicted");
        act.actions.push(Action::publish(KubeEvent::on(node, true, "FailedDraining", text)));
        // DIFFERENCE: Karpenter does not say which pod holds a drain by its annotation.
        if let Some(pod) = drained.held {
            let text = format!(
                "Failed to drain node, pod has \"{}\" annotation (Pod={}/{})",
                labels::DO_NOT_DISRUPT,
                pod.metadata.namespace,
                pod.metadata.name
            );
            act.actions.push(Action::publish(KubeEvent::on(node, true, "FailedDraining", text)));
        }
        act.waiting = Some(match drained.held {
            Some(pod) => format!(
                "{waiting} pods are waiting to be evicted; {}/{} has {}",
                pod.metadata.namespace,
                pod.metadata.name,
                labels::DO_NOT_DISRUPT
            ),
            None => format!("{waiting} pods are waiting to be evicted"),
        });
        act.wake_at = due;
    }
    act.drain = Some(drained);
    let Some(claim) = claim else { return waiting == 0 };
    if claim.condition(NodeClaim::DRAINED).is_none() {
        let unknown = ConditionStatus::Unknown;
        claim.conditions_mut().set(NodeClaim::DRAINED, unknown, "Draining", "", now);
    }
    if waiting > 0 {
        warn_of_long_drain(node, claim, act, now);
        return false;
    }
    let condition = claim.condition(NodeClaim::DRAINED);
    let unknown_since = condition
        .filter(|it| it.status == ConditionStatus::Unknown)
        .and_then(|it| it.last_transition_time);
    if let Some(since) = unknown_since {
        let least = since + MINIMUM_DRAIN;
        if now < least {
            act.wake_at = Some(least);
            act.waiting = Some("a drain takes at least five seconds".into());
            return false;
        }
    }
    claim.conditions_mut().set_true(NodeClaim::DRAINED, now);
    true
}

/// DIFFERENCE: Karpenter says nothing of nodes that drain for days because a pod must not be disrupted.
fn warn_of_long_drain(node: &Node, claim: &NodeClaim, act: &mut Act<'_>, now: Timestamp) {
    let begun = node.metadata.deletion_timestamp.unwrap_or(now);
    if now.duration_since(begun) < LONG_DRAIN || claim.spec.termination_grace_period.is_some() {
        return;
    }
    let text = format!(
        "Node has been draining since {begun} and costs money until its pods are gone; \
         terminationGracePeriod would bound it"
    );
    let event = Box::new(KubeEvent::on(node, true, "DrainingForLong", text));
    act.actions.push(Action::Publish { event, memory: SignedDuration::from_hours(1) });
}

/// Whether no volume stands in the way.
pub(crate) fn detach(
    node: &Node,
    claim: Option<&mut NodeClaim>,
    attachments: &[&VolumeAttachment],
    deadline: Option<Timestamp>,
    act: &mut Act<'_>,
    now: Timestamp,
) -> bool {
    use ConditionStatus::{False, Unknown};
    let late = deadline.is_some_and(|it| now > it);
    let through = attachments.is_empty() || late;
    if !through {
        let names = names(attachments);
        let text = format!("Awaiting deletion of bound volumeattachments ({names})");
        let event = KubeEvent::on(node, false, "AwaitingVolumeDetachment", text);
        act.actions.push(Action::publish(event));
        act.waiting = Some(format!("volume attachments {names} are not gone yet"));
    }
    let Some(claim) = claim else { return through };
    let mut conditions = claim.conditions_mut();
    match (attachments.is_empty(), late) {
        (true, _) => conditions.set_true(NodeClaim::VOLUMES_DETACHED, now),
        (false, true) => {
            let reason = "TerminationGracePeriodElapsed";
            conditions.set(NodeClaim::VOLUMES_DETACHED, False, reason, "", now)
        }
        (false, false) => {
            let reason = "AwaitingVolumeDetachment";
            conditions.set(NodeClaim::VOLUMES_DETACHED, Unknown, reason, "", now)
        }
    };
    through
}

/// At most five names.
fn names(attachments: &[&VolumeAttachment]) -> String {
    let mut names: Vec<&str> =
        attachments.iter().take(5).map(|it| it.metadata.name.as_str()).collect();
    if attachments.len() > 5 {
        names.push("...");
    }
    names.join(", ")
}

fn release_node(node: &Node, deleted_at: Timestamp, act: &mut Act<'_>, now: Timestamp) {
    let mut released = node.clone();
    released.metadata.finalizers.retain(|it| it != labels::TERMINATION_FINALIZER);
    let value = |key: &str| node.metadata.label(key).unwrap_or_default().to_owned();
    let pool = value(labels::NODEPOOL);
    act.finish
        .push(Action::WriteNode { node: Box::new(released), guard: Precondition::ResourceVersion });
    act.finish.push(Action::Count {
        name: metrics::NODES_TERMINATED,
        labels: vec![("nodepool", pool.clone()), ("zone", value(labels::ZONE))],
    });
    act.finish.push(Action::Observe {
        name: metrics::NODES_TERMINATION_SECONDS,
        seconds: now.duration_since(deleted_at).as_secs_f64(),
        labels: vec![("nodepool", pool.clone())],
    });
    let created = node.metadata.creation_timestamp.unwrap_or(deleted_at);
    act.finish.push(Action::Observe {
        name: metrics::NODES_LIFETIME_SECONDS,
        seconds: now.duration_since(created).as_secs_f64(),
        labels: vec![("nodepool", pool)],
    });
    act.finish.push(ended(metrics::NODE_ENDED_SECONDS, deleted_at, now));
    act.finish.push(finalized(KubeEvent::on(node, false, observability::FINALIZED, FINALIZED)));
}

/// Why pods are evicted, for their events and metrics: the reason of a running command, else `Forceful Termination`.
pub fn eviction_reason(claim: Option<&NodeClaim>) -> String {
    let Some(claim) = claim else { return String::new() };
    match claim.condition(NodeClaim::DISRUPTION_REASON) {
        Some(it) if it.status == ConditionStatus::True => it.reason.clone(),
        _ => "Forceful Termination".into(),
    }
}

impl<'a> From<Act<'a>> for Next<'a> {
    fn from(act: Act<'a>) -> Self {
        Self::Act(Box::new(act))
    }
}
