//! The reconciler of a living NodeClaim.

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{
    ConditionStatus, NodeClaim, NodePool, Taint, conditions, core::Node, labels,
};
use spokeshave_ports::{Precondition, cluster::KubeEvent, observability::TRANSITIONED};

use crate::{
    Action,
    action::EVENT_MEMORY,
    consistency,
    consolidatable::{self, Consolidatable, PodEvent},
    expiration, initialization,
    liveness::{self, Liveness},
    metrics,
    registration::{self, PARTITION_HOOK, PartitionHook},
};

/// A registered claim whose Node has vanished is given up this long after registration: before that the view may
/// simply be late.
pub const NODE_ABSENCE: SignedDuration = SignedDuration::from_mins(1);

/// After this time without initialization an event says what is missing. There is no time-out, as in Karpenter.
pub const INITIALIZATION_NOTICE: SignedDuration = SignedDuration::from_mins(15);

/// An unlaunched claim is left to launching for so long, so that the two do not race for its finalizer and status.
const LAUNCH_HEAD_START: SignedDuration = SignedDuration::from_secs(20);

/// What drift detection found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Drift {
    /// Not looked at, or not to be found out now: what the claim says stays.
    #[default]
    Unjudged,
    None,
    /// The reason, also used as message.
    Drifted(String),
}

/// What the decision reads. All of it may be old by the time it is acted on.
#[derive(Clone, Debug, Default)]
pub struct View<'a> {
    pub claim: Option<&'a NodeClaim>,
    /// Every Node with the claim's provider id; none for a claim without one.
    pub nodes: Vec<&'a Node>,
    /// No Node has the claim's provider id, but the one that the claim registered with is there by its name.
    pub unjoined: bool,
    /// The pool that the claim's label names.
    pub nodepool: Option<&'a NodePool>,
    /// The partition that EC2 reports, where [`registration::partition_hook`] asks for it.
    pub partition: Option<i64>,
    /// Taints that an earlier read of the node in the same run showed.
    pub carried: Vec<Taint>,
    /// The first requested DRA driver without a complete pool.
    pub missing_driver: Option<String>,
    pub drift: Drift,
    /// A pod came to the claim's node, or left it, at this time.
    pub pod_event: Option<Timestamp>,
    /// The time for a consistency scan has come.
    pub scan: bool,
}

/// What to do, when to look again, and why nothing happens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    pub actions: Vec<Action>,
    /// Something falls due then even if nothing changes before.
    pub wake_at: Option<Timestamp>,
    /// A pod event is to be stored then; see [`PodEvent::StoreAt`].
    pub pod_event_at: Option<Timestamp>,
    /// What the claim waits for, for people.
    pub waiting: Option<String>,
}

struct Plan {
    claim: NodeClaim,
    node: Option<Node>,
    before_status: Vec<Action>,
    after_status: Vec<Action>,
    due: Vec<Timestamp>,
    waiting: Option<String>,
}

/// Decides what a living claim needs at `now`. Claims that are not ours or are being deleted need nothing here.
///
/// Carried out and decided again, the second decision is empty.
pub fn decide(view: &View<'_>, now: Timestamp) -> Decision {
    let Some(claim) = view.claim.filter(|it| it.is_managed() && !it.metadata.deleting()) else {
        return Decision::default();
    };
    let mut decision = Decision::default();
    match expiration::expires_at(claim) {
        Some(at) if now >= at && !expiration::is_replaced(claim, view.nodepool) => {
            decision.actions.push(Action::DeleteClaim {
                reason: "expired",
                why: format!("expireAfter elapsed at {at}"),
                count_pods: true,
            });
            return decision;
        }
        _ => {}
    }
    let mut plan = Plan {
        claim: claim.clone(),
        node: None,
        before_status: Vec::new(),
        after_status: Vec::new(),
        due: expiration::expires_at(claim).into_iter().collect(),
        waiting: None,
    };
    let metadata_guard = hydrate(&mut plan.claim, view);
    plan.claim.conditions_mut().initialize();
    restamp(&mut plan.claim, now);
    let launched = claim.is_true(NodeClaim::LAUNCHED);
    if launched {
        register(&mut plan, view, now);
        initialize(&mut plan, view, now);
    }
    if let Some(delete) = lost_node(&mut plan, view, now) {
        decision.actions.push(delete);
        return decision;
    }
    match liveness::judge(&plan.claim, now) {
        Liveness::Registered => {}
        Liveness::DueAt(at) => plan.due.push(at),
        Liveness::TimedOut(reason) => {
            decision.actions.push(Action::NoteRegistration { healthy: false });
            decision.actions.push(Action::DeleteClaim {
                reason,
                why: plan.waiting.unwrap_or_else(|| "not launched".into()),
                count_pods: false,
            });
            return decision;
        }
    }
    scan(&mut plan, view, now);
    judge_drift(&mut plan.claim, &expired_or(view, now), now);
    decision.pod_event_at = store_pod_event(&mut plan.claim, view.pod_event, now);
    judge_consolidatable(&mut plan, view, now);

    let is_ours_to_write = launched || is_late(claim, now);
    if plan.claim.metadata != claim.metadata && is_ours_to_write {
        decision.actions.push(Action::WriteClaim {
            claim: Box::new(plan.claim.clone()),
            guard: metadata_guard,
        });
    }
    if let Some(node) = plan.node.take() {
        let guard = Precondition::ResourceVersion;
        decision.actions.push(Action::WriteNode { node: Box::new(node), guard });
    } else if let Some(node) = hydrated_node(claim, &view.nodes) {
        decision.actions.push(Action::WriteNode { node: Box::new(node), guard: Precondition::Uid });
    }
    decision.actions.append(&mut plan.before_status);
    if plan.claim.status != claim.status && is_ours_to_write {
        let transitions = transitions(claim, &plan.claim);
        decision.actions.push(Action::WriteStatus { claim: Box::new(plan.claim) });
        decision.actions.extend(transitions);
    }
    decision.actions.append(&mut plan.after_status);
    decision.wake_at = plan.due.into_iter().filter(|at| *at > now).min();
    decision.waiting = plan.waiting;
    decision
}

/// Whether launching has had its time to write the finalizer and the first status.
fn is_late(claim: &NodeClaim, now: Timestamp) -> bool {
    claim.metadata.creation_timestamp.is_none_or(|it| now.duration_since(it) >= LAUNCH_HEAD_START)
}

/// Finalizer and class label of the claim, and its partition once known. Returns how to write them.
fn hydrate(claim: &mut NodeClaim, view: &View<'_>) -> Precondition {
    let class = claim.spec.node_class_ref.name.clone();
    claim.metadata.labels.insert(labels::NODECLASS.to_owned(), class);
    if let (PartitionHook::AskInstance, Some(number)) =
        (registration::partition_hook(claim), view.partition)
    {
        claim
            .metadata
            .labels
            .insert(labels::PLACEMENT_GROUP_PARTITION.to_owned(), number.to_string());
    }
    if claim.metadata.has_finalizer(labels::TERMINATION_FINALIZER) {
        return Precondition::Uid;
    }
    claim.metadata.finalizers.push(labels::TERMINATION_FINALIZER.to_owned());
    Precondition::ResourceVersion
}

/// The one node of a claim, if it lacks the class label.
fn hydrated_node(claim: &NodeClaim, nodes: &[&Node]) -> Option<Node> {
    let &[node] = nodes else { return None };
    let class = claim.spec.node_class_ref.name.as_str();
    if node.metadata.label(labels::NODECLASS) == Some(class) {
        return None;
    }
    let mut node = node.clone();
    node.metadata.labels.insert(labels::NODECLASS.to_owned(), class.to_owned());
    Some(node)
}

/// Settled dependents follow the claim's generation.
fn restamp(claim: &mut NodeClaim, now: Timestamp) {
    for type_ in NodeClaim::DEPENDENTS {
        let settled = claim.condition(type_).filter(|it| it.status != ConditionStatus::Unknown);
        if let Some(it) = settled.cloned() {
            claim.conditions_mut().set(type_, it.status, &it.reason, &it.message, now);
        }
    }
}

/// DIFFERENCE: in Karpenter `MultipleNodesFound` is final; here the claim registers once one of the nodes is gone.
fn register(plan: &mut Plan, view: &View<'_>, now: Timestamp) {
    use ConditionStatus::{False, Unknown};
    if plan.claim.is_true(NodeClaim::REGISTERED) {
        return;
    }
    let is_split = plan.claim.condition(NodeClaim::REGISTERED).is_some_and(|it| it.status == False);
    let node = match view.nodes.as_slice() {
        [] if is_split => return,
        [] => {
            let message = "Node not registered with cluster";
            plan.wait_for(NodeClaim::REGISTERED, Unknown, "NodeNotFound", message, now);
            return;
        }
        [node] => *node,
        _ => {
            let message = "Invariant violated, matched multiple nodes";
            plan.wait_for(NodeClaim::REGISTERED, False, "MultipleNodesFound", message, now);
            return;
        }
    };
    if registration::lacks_unregistered_taint(node) {
        let message = format!("Missing required taint {}", registration::unregistered_taint());
        let event = KubeEvent::on(&plan.claim, true, "UnregisteredTaintMissing", message);
        plan.before_status.push(Action::publish(event));
    }
    let mut synced = node.clone();
    let was_registered = registration::is_registered(node);
    if !was_registered {
        registration::sync(&mut synced, &plan.claim, &view.carried);
    }
    let pending = registration::partition_hook(&plan.claim) == PartitionHook::AskInstance;
    if pending {
        plan.wait_for(
            NodeClaim::REGISTERED,
            Unknown,
            "RegistrationHookPending",
            PARTITION_HOOK,
            now,
        );
        plan.due.push(now + HOOK_RETRY);
    } else {
        registration::complete(&mut synced);
        plan.before_status.push(Action::NoteRegistration { healthy: true });
        plan.claim.status.node_name = node.metadata.name.clone();
        plan.claim.conditions_mut().set_true(NodeClaim::REGISTERED, now);
        plan.after_status.push(Action::Count {
            name: metrics::NODES_CREATED,
            labels: vec![
                ("nodepool", metrics::label(&plan.claim, labels::NODEPOOL)),
                ("zone", metrics::label(&plan.claim, labels::ZONE)),
            ],
        });
    }
    if synced != *node {
        plan.node = Some(synced);
    }
}

/// A pending hook that names no time is asked again after this. The hook of placement groups names none.
const HOOK_RETRY: SignedDuration = SignedDuration::from_secs(2);

fn initialize(plan: &mut Plan, view: &View<'_>, now: Timestamp) {
    if !plan.claim.is_true(NodeClaim::REGISTERED) || plan.claim.is_true(NodeClaim::INITIALIZED) {
        return;
    }
    let written = plan.node.clone();
    let nodes: Vec<&Node> = match &written {
        Some(node) => vec![node],
        None => view.nodes.clone(),
    };
    if let Some(unmet) =
        initialization::first_unmet(&plan.claim, &nodes, view.missing_driver.as_deref())
    {
        plan.wait_for(
            NodeClaim::INITIALIZED,
            ConditionStatus::Unknown,
            unmet.reason,
            &unmet.message,
            now,
        );
        remind(plan, &unmet.message, now);
        if unmet.reason == "DRADriverPoolsNotPublished" {
            plan.due.push(now + SLICES_POLL);
        }
        return;
    }
    if let [node] = nodes.as_slice()
        && node.metadata.label(labels::INITIALIZED) != Some("true")
    {
        let mut node = (*node).clone();
        node.metadata.labels.insert(labels::INITIALIZED.to_owned(), "true".to_owned());
        plan.node = Some(node);
    }
    plan.claim.conditions_mut().set_true(NodeClaim::INITIALIZED, now);
}

/// Slices with devices are not watched: they are looked at again after this time.
const SLICES_POLL: SignedDuration = SignedDuration::from_secs(15);

/// DIFFERENCE: Karpenter says nothing about nodes that never initialize; we publish an event.
fn remind(plan: &mut Plan, message: &str, now: Timestamp) {
    let registered = plan.claim.condition(NodeClaim::REGISTERED);
    let Some(since) = registered.and_then(|it| it.last_transition_time) else { return };
    if now.duration_since(since) < INITIALIZATION_NOTICE {
        return;
    }
    let text = format!("Node has been registered since {since} but is not initialized: {message}");
    let event = KubeEvent::on(&plan.claim, true, "InitializationPending", text);
    let memory = INITIALIZATION_NOTICE;
    plan.before_status.push(Action::Publish { event: Box::new(event), memory });
}

/// A registered claim without any Node: nobody can follow its pods, so it goes, and its instance with it.
///
/// A Node of its name without the provider id is no such case: a kubelet that registers again gets it in a moment.
///
/// DIFFERENCE: Karpenter keeps such a claim as long as its instance runs.
fn lost_node(plan: &mut Plan, view: &View<'_>, now: Timestamp) -> Option<Action> {
    if !view.nodes.is_empty() || view.unjoined {
        return None;
    }
    let registered = plan.claim.condition(NodeClaim::REGISTERED)?;
    if registered.status != ConditionStatus::True {
        return None;
    }
    let gone_at = registered.last_transition_time?.checked_add(NODE_ABSENCE).ok()?;
    if now < gone_at {
        plan.due.push(gone_at);
        return None;
    }
    Some(Action::DeleteClaim {
        reason: "garbage_collected",
        why: format!("Node {} is gone", plan.claim.status.node_name),
        count_pods: false,
    })
}

fn scan(plan: &mut Plan, view: &View<'_>, now: Timestamp) {
    let is_due = view.scan || plan.claim.condition(NodeClaim::CONSISTENT_STATE_FOUND).is_none();
    let (true, [node]) = (is_due, view.nodes.as_slice()) else { return };
    let issues = consistency::issues(&plan.claim, node);
    for issue in &issues {
        let event = KubeEvent::on(&plan.claim, true, "FailedConsistencyCheck", issue.clone());
        plan.before_status.push(Action::publish(event));
    }
    let mut conditions = plan.claim.conditions_mut();
    if issues.is_empty() {
        conditions.set_true(NodeClaim::CONSISTENT_STATE_FOUND, now);
    } else {
        conditions.set(
            NodeClaim::CONSISTENT_STATE_FOUND,
            ConditionStatus::False,
            "ConsistencyCheckFailed",
            "Consistency Check Failed",
            now,
        );
    }
}

/// What was found out of drift; a claim that has expired is drifted for that if for nothing else.
fn expired_or(view: &View<'_>, now: Timestamp) -> Drift {
    let Some(claim) = view.claim.filter(|it| expiration::is_expired(it, now)) else {
        return view.drift.clone();
    };
    match &view.drift {
        Drift::Unjudged if claim.is_true(NodeClaim::DRIFTED) => Drift::Unjudged,
        Drift::Unjudged | Drift::None => Drift::Drifted(expiration::EXPIRED.into()),
        Drift::Drifted(reason) => Drift::Drifted(reason.clone()),
    }
}

fn judge_drift(claim: &mut NodeClaim, drift: &Drift, now: Timestamp) {
    let launched = claim.is_true(NodeClaim::LAUNCHED);
    let mut conditions = claim.conditions_mut();
    match drift {
        Drift::Unjudged => {}
        Drift::Drifted(reason) if launched => {
            conditions.set(NodeClaim::DRIFTED, ConditionStatus::True, reason, reason, now);
        }
        Drift::None | Drift::Drifted(_) => {
            conditions.clear(NodeClaim::DRIFTED);
        }
    }
}

fn store_pod_event(
    claim: &mut NodeClaim,
    event: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let at = event?;
    match consolidatable::pod_event(claim, at, now) {
        PodEvent::Known => None,
        PodEvent::StoreAt(later) => Some(later),
        PodEvent::Store => {
            claim.status.last_pod_event_time = Some(at);
            None
        }
    }
}

fn judge_consolidatable(plan: &mut Plan, view: &View<'_>, now: Timestamp) {
    let Some(pool) = view.nodepool else { return };
    let verdict = consolidatable::judge(&plan.claim, pool, now);
    let mut conditions = plan.claim.conditions_mut();
    match verdict {
        Consolidatable::NotOurs => {}
        Consolidatable::Quiet => {
            conditions.set_true(NodeClaim::CONSOLIDATABLE, now);
        }
        Consolidatable::Never => {
            conditions.clear(NodeClaim::CONSOLIDATABLE);
        }
        Consolidatable::From(at) => {
            conditions.clear(NodeClaim::CONSOLIDATABLE);
            plan.due.push(at);
        }
    }
}

impl Plan {
    fn wait_for(
        &mut self,
        type_: &str,
        status: ConditionStatus,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) {
        self.claim.conditions_mut().set(type_, status, reason, message, now);
        self.waiting = Some(message.to_owned());
    }
}

/// Events and counts for the conditions whose status changed. An event is told only where an earlier status was seen;
/// a condition that appears as Unknown is no transition.
pub fn transitions(old: &NodeClaim, new: &NodeClaim) -> Vec<Action> {
    let mut told = Vec::new();
    for condition in &new.status.conditions {
        let before = conditions::find(&old.status.conditions, &condition.type_);
        let is_new = before.is_none() && condition.status == ConditionStatus::Unknown;
        if is_new || before.is_some_and(|it| it.status == condition.status) {
            continue;
        }
        told.push(Action::Count {
            name: metrics::CLAIM_TRANSITIONS,
            labels: vec![
                ("type", condition.type_.clone()),
                ("status", format!("{:?}", condition.status)),
                ("reason", condition.reason.clone()),
            ],
        });
        let Some(before) = before else { continue };
        let mut text = format!(
            "{TRANSITIONED}, Type: {}, Status: {:?} -> {:?}, Reason: {}",
            condition.type_, before.status, condition.status, condition.reason
        );
        if !condition.message.is_empty() {
            text.push_str(&format!(", Message: {}", condition.message));
        }
        let event = KubeEvent::on(new, false, &condition.type_, text);
        told.push(Action::Publish { event: Box::new(event), memory: EVENT_MEMORY });
    }
    told
}
