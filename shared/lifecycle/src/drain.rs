//! Which pods of a node that goes away are asked to leave now, and which are made to.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{
    core::Pod,
    pod_classes::{
        DoNotDisrupt, STUCK_AFTER, do_not_disrupt, is_active, is_evictable, is_waiting_for_eviction,
    },
};

/// A drain lasts at least this long, so that a pod bound by a scheduler that had not seen the taint is caught.
pub const MINIMUM_DRAIN: SignedDuration = SignedDuration::from_secs(5);

/// What to do with one pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// Ask through the eviction API, which PodDisruptionBudgets may refuse.
    Evict(&'a Pod),
    /// Delete with so many seconds of grace (at least 1), whatever budgets and annotations say.
    ForceDelete { pod: &'a Pod, grace: i64 },
}

/// What a drain has come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drain<'a> {
    /// Force deletions first, then one tier of evictions; by namespace and name.
    pub steps: Vec<Step<'a>>,
    /// Pods that have to go before the node may. None: nothing is left to evict.
    pub waiting: usize,
    /// The first of the pods that an active do-not-disrupt annotation holds.
    pub held: Option<&'a Pod>,
    /// Time alone changes something then.
    pub due: Option<Timestamp>,
}

/// Pods leave in this order; the next tier begins when the one before is gone.
fn tier(pod: &Pod) -> u8 {
    let critical = matches!(
        pod.spec.priority_class_name.as_str(),
        "system-cluster-critical" | "system-node-critical"
    );
    2 * u8::from(critical) + u8::from(pod.is_daemon())
}

/// Whether the node's deadline leaves `pod` no more than its own grace period.
fn must_be_forced(pod: &Pod, deadline: Timestamp, now: Timestamp) -> bool {
    match pod.metadata.deletion_timestamp {
        Some(gone_by) => gone_by > deadline,
        None => forced_after(pod, deadline).is_some_and(|at| now > at),
    }
}

/// The last moment at which a pod that is not terminating is left alone; `None` for one without a grace period.
pub fn forced_after(pod: &Pod, deadline: Timestamp) -> Option<Timestamp> {
    let grace = pod.spec.termination_grace_period_seconds?;
    deadline.checked_sub(SignedDuration::from_secs(grace)).ok()
}

/// Seconds of grace until the deadline, at least one: zero would remove the object while its containers run.
fn grace_until(deadline: Timestamp, now: Timestamp) -> i64 {
    deadline.duration_since(now).as_secs().max(1)
}

/// Decides about the pods of one node.
///
/// `pods` may hold finished, tolerating, static and stuck ones: they are not waited for. Pods with do-not-disrupt
/// are waited for and not asked.
pub fn decide<'a>(pods: &[&'a Pod], deadline: Option<Timestamp>, now: Timestamp) -> Drain<'a> {
    let mut waiting: Vec<&Pod> =
        pods.iter().copied().filter(|it| is_waiting_for_eviction(it, now)).collect();
    waiting.sort_by(|a, b| {
        (&a.metadata.namespace, &a.metadata.name).cmp(&(&b.metadata.namespace, &b.metadata.name))
    });
    let mut drain = Drain { waiting: waiting.len(), ..Drain::default() };
    let forced = |pod: &Pod| deadline.is_some_and(|it| must_be_forced(pod, it, now));
    let (force, graceful): (Vec<&Pod>, Vec<&Pod>) = waiting.into_iter().partition(|it| forced(it));
    let mut due = BTreeSet::new();
    if let Some(deadline) = deadline {
        let grace = grace_until(deadline, now);
        let ends = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
        for pod in &force {
            // One that ends by then already has been forced before.
            if pod.metadata.deletion_timestamp.is_none_or(|it| it > ends) {
                drain.steps.push(Step::ForceDelete { pod, grace });
            }
        }
        let forced_later = graceful.iter().filter(|it| !it.metadata.deleting());
        due.extend(
            forced_later.filter_map(|it| forced_after(it, deadline)).filter_map(next_second),
        );
    }
    for pod in force.iter().chain(&graceful) {
        if let Some(gone_by) = pod.metadata.deletion_timestamp {
            due.extend(gone_by.checked_add(STUCK_AFTER).ok().and_then(next_second));
        }
    }
    let first = graceful.iter().map(|it| tier(it)).min();
    for pod in graceful {
        let annotation = do_not_disrupt(pod, now);
        if is_active(pod) && annotation.is_active() && drain.held.is_none() {
            drain.held = Some(pod);
        }
        if let DoNotDisrupt::Until(end) = annotation {
            due.insert(end);
        }
        if Some(tier(pod)) == first && is_evictable(pod, now) {
            drain.steps.push(Step::Evict(pod));
        }
    }
    drain.due = due.into_iter().find(|at| *at > now);
    drain
}

/// Rules that hold strictly after a moment are looked at one second later.
fn next_second(at: Timestamp) -> Option<Timestamp> {
    at.checked_add(SignedDuration::from_secs(1)).ok()
}
