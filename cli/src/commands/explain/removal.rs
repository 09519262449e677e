//! What a node that is going away still waits for.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use spokeshave_disruption::{StateNode, View};
use spokeshave_lifecycle::{
    drain::{self, Step},
    volumes,
};
use spokeshave_model::{
    ConditionStatus, Kind, NodeClaim,
    core::{Pod, VolumeAttachment},
    labels,
    pod_classes::{DoNotDisrupt, PdbBlock, do_not_disrupt, is_waiting_for_eviction},
};
use spokeshave_scheduling::ClusterView;

use super::Answer;

/// So many pods and volumes are named; the others are counted.
const MOST_NAMED: usize = 10;

/// Whether the node, or its claim, is on its way out.
pub(super) fn is_under_way(node: &StateNode) -> bool {
    node.node.as_ref().is_some_and(|it| it.metadata.deleting())
        || node.claim.as_ref().is_some_and(|it| it.metadata.deleting())
}

/// The deadline of a node that is going away.
fn deadline_of(node: &StateNode) -> Option<Timestamp> {
    let text = node.claim.as_deref()?.metadata.annotation(labels::TERMINATION_TIMESTAMP)?;
    text.parse().ok()
}

/// What the removal of its node means for a pod.
pub(super) fn of_pod(pod: &Pod, node: &StateNode, now: Timestamp) -> String {
    if !is_waiting_for_eviction(pod, now) {
        return "the node is going away, and does not wait for this pod".to_owned();
    }
    if pod.metadata.deleting() {
        return "the node is going away, and waits for this pod, which is terminating".to_owned();
    }
    if !do_not_disrupt(pod, now).is_active() {
        return "the node is going away: the pod will be evicted, or is being so".to_owned();
    }
    let end = at_the_latest(pod, deadline_of(node));
    format!("the node is going away, and waits for this pod{end}")
}

/// When the deadline of its node ends a pod that is held.
fn at_the_latest(pod: &Pod, deadline: Option<Timestamp>) -> String {
    match deadline.and_then(|it| drain::forced_after(pod, it)) {
        Some(at) => format!("; whatever holds it, it is deleted after {at}"),
        None => String::new(),
    }
}

/// Says what holds the removal of `node`; returns the short answer.
pub(super) fn explain(
    objects: &ClusterView,
    view: &View,
    attachments: &[Arc<VolumeAttachment>],
    node: &StateNode,
    answer: &mut Answer,
) -> String {
    let claim = node.claim.as_deref();
    let drained = claim.and_then(|it| it.condition(NodeClaim::DRAINED)).map(|it| it.status);
    answer.add(
        "draining",
        match drained {
            None => "not begun",
            Some(ConditionStatus::True) => "done",
            Some(_) => "under way",
        },
    );
    let text = claim.and_then(|it| it.metadata.annotation(labels::TERMINATION_TIMESTAMP));
    let deadline: Option<Timestamp> = text.and_then(|it| it.parse().ok());
    match (text, deadline) {
        (Some(text), None) => answer.add(
            "remedy",
            format!("annotation {}: {text:?} is no time, nothing is drained", labels::TERMINATION_TIMESTAMP),
        ),
        (Some(_), Some(at)) => answer.add("draining", format!("has to be over by {at}")),
        (None, _) => {}
    }
    if claim.is_some_and(|it| it.is_true(NodeClaim::INSTANCE_TERMINATING)) {
        return "it is being removed: its instance is being terminated".to_owned();
    }
    if node.node.is_none() {
        return "it is being removed".to_owned();
    }
    let (n_waiting, is_held) = about_pods(view, node, deadline, answer);
    if n_waiting > 0 {
        if is_held && deadline.is_none() {
            answer.add(
                "remedy",
                format!(
                    "without terminationGracePeriod it waits for as long as that lasts; annotation {} of the NodeClaim sets a deadline",
                    labels::TERMINATION_TIMESTAMP
                ),
            );
        }
        let pods = if n_waiting == 1 { "pod has" } else { "pods have" };
        return format!("it is being removed: {n_waiting} {pods} to go first");
    }
    let pods: Vec<&Pod> = node.pods.iter().map(AsRef::as_ref).collect();
    let staying: BTreeSet<String> = volumes::staying_claims(&pods, view.now)
        .iter()
        .filter_map(|it| objects.volume_claims.get(it))
        .map(|it| it.spec.volume_name.clone())
        .collect();
    let all = attachments.iter().map(AsRef::as_ref);
    let blocking: Vec<&VolumeAttachment> = volumes::blocking(all, node.name(), &staying);
    if blocking.is_empty() || deadline.is_some_and(|at| view.now > at) {
        return "it is being removed".to_owned();
    }
    let names = blocking.iter().take(MOST_NAMED).map(|it| it.metadata.name.as_str());
    answer.add("volumes", format!("still attached: {}", names.collect::<Vec<_>>().join(", ")));
    let n = blocking.len();
    let volumes = if n == 1 { "volume has" } else { "volumes have" };
    format!("it is being removed: {n} {volumes} to be detached first")
}

/// A line for every pod that has to go; how many there are, and whether any is held by more than its own shutdown.
fn about_pods(
    view: &View,
    node: &StateNode,
    deadline: Option<Timestamp>,
    answer: &mut Answer,
) -> (usize, bool) {
    let pods: Vec<&Pod> = node.pods.iter().map(AsRef::as_ref).collect();
    let drain = drain::decide(&pods, deadline, view.now);
    let mut waiting: Vec<&Pod> =
        pods.into_iter().filter(|it| is_waiting_for_eviction(it, view.now)).collect();
    waiting.sort_by_key(|it| it.key());
    let pdbs = view.pod_disruption_budgets();
    let mut is_held = false;
    let mut lines = Vec::new();
    for pod in &waiting {
        let step = drain.steps.iter().find(|it| {
            let (Step::Evict(other) | Step::ForceDelete { pod: other, .. }) = it;
            std::ptr::eq(*other, *pod)
        });
        let block = pdbs.blocks(pod, view.now);
        let why = match (step, do_not_disrupt(pod, view.now), block) {
            (Some(Step::ForceDelete { grace, .. }), ..) => {
                format!("deleted now with {grace} s of grace, whatever holds it")
            }
            _ if pod.metadata.deleting() => match pod.metadata.deletion_timestamp {
                Some(at) => format!("terminating, to be gone by {at}"),
                None => "terminating".to_owned(),
            },
            (_, DoNotDisrupt::Active, _) => {
                is_held = true;
                format!("held by its annotation {}", labels::DO_NOT_DISRUPT)
            }
            (_, DoNotDisrupt::Until(end), _) => {
                format!("held by its annotation {} until {end}", labels::DO_NOT_DISRUPT)
            }
            (_, _, Some(PdbBlock::Multiple(keys))) => {
                is_held = true;
                let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
                format!("held by more than one PodDisruptionBudget: {}", keys.join(", "))
            }
            (_, _, Some(PdbBlock::NoneAllowed(key))) => {
                is_held = true;
                format!("held by PodDisruptionBudget {key}, which allows no eviction at present")
            }
            (Some(Step::Evict(_)), ..) => "to be evicted".to_owned(),
            (None, ..) => "to be evicted when the pods before it are gone".to_owned(),
        };
        let is_held_now = !pod.metadata.deleting()
            && !matches!(step, Some(Step::ForceDelete { .. }))
            && (do_not_disrupt(pod, view.now).is_active() || pdbs.blocks(pod, view.now).is_some());
        let end = if is_held_now { at_the_latest(pod, deadline) } else { String::new() };
        lines.push(format!("{}: {why}{end}", pod.key()));
    }
    let n = lines.len();
    for line in lines.into_iter().take(MOST_NAMED) {
        answer.add("waits for", line);
    }
    if n > MOST_NAMED {
        answer.add("waits for", format!("{} other pods", n - MOST_NAMED));
    }
    (n, is_held)
}
