//! Turns interruption messages into deletions of NodeClaims.
//!
//! The queue holds what EventBridge sends (spot warnings, state changes, health events, ...), and what instance-gc
//! found out by polling instance status. A whole batch is decided against one view of the cluster. What a message means
//! and what follows from it is said by `spokeshave_interruption`; this crate reads, calls it, and carries out.
//!
//! A message fails alone: it is delivered again when a write for one of its claims failed. A body that cannot be read
//! is recorded and dropped, since trying again does not help.

mod hooks;
mod probe;

use std::collections::BTreeSet;

use jiff::SignedDuration;
use spokeshave_catalog::{
    Mark,
    stored::{self, ReservationEvent},
};
use spokeshave_interruption::{
    Action, ClaimView, Kind, Malformed, Message, NodeView, RECOMMENDATION_HOLDS_FOR, View, decide,
    hooks::Hook, parse, status,
};
use spokeshave_lambda::{
    BatchAnswer, SqsBatch, SqsRecord,
    batch::{drop_malformed, reference},
};
use spokeshave_model::{
    CapacityType, InstanceId, Kind as _, NodeClaim, NodePool, ObjectKey, Uid, core::Node, labels,
};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Concern, Decision, Invocation, Key, Precondition, Queues,
    Selector, StateError, StateKey, StateTable, When, Work, cluster::KubeEvent, stack,
};

/// Equal events on one object are published once in this time. 2 minutes, as in Karpenter 1.x.
const EVENT_DEDUPE: SignedDuration = SignedDuration::from_mins(2);

/// Partition of the state table: offerings of which a rebalance recommendation was acted on lately.
const RECOMMENDED: &str = "rebalance";

/// Reason of work that carries an event as EventBridge words it: an interruption that was asked for in KWOK mode.
const MADE_UP: &str = "MadeUpInterruption";

/// Reads a message: one of EventBridge, or work of our own.
fn read(record: &SqsRecord) -> Result<Message, Malformed> {
    if record.body.contains(status::WORK_REASON)
        && let Ok(work) = record.work()
        && work.reason == status::WORK_REASON
    {
        return Ok(status::from_payload(&work.payload));
    }
    if record.body.contains(MADE_UP)
        && let Ok(work) = record.work()
        && work.reason == MADE_UP
    {
        return parse(&work.payload.to_string());
    }
    parse(&record.body)
}

/// Handles a batch of the interruption queue.
pub async fn handle(
    batch: &SqsBatch,
    cluster: &impl Cluster,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> BatchAnswer {
    let mut answer = BatchAnswer::done();
    probe::answer(batch, state, cx).await;
    match stack::observes_only(state).await {
        Ok(false) => {}
        // The other autoscaler acts on its own queue.
        Ok(true) => return answer,
        // DIFFERENCE: nobody can say whether another one is at work, but two minutes' notice do not wait for a table;
        // deleting a claim whose instance goes anyway is what the other one would do, too.
        Err(error) => {
            cx.decide(
                Decision::new("act", "StateTable/stack", error.to_string()).caused_by(&error),
            );
        }
    }
    let mut messages: Vec<(&SqsRecord, Message)> = Vec::new();
    let mut held: Vec<(&SqsRecord, Hook)> = Vec::new();
    for record in &batch.records {
        match read(record) {
            Ok(message) => {
                if message.kind == Kind::NoOp
                    && cx.settings.lifecycle_hooks
                    && let Some(hook) = spokeshave_interruption::hooks::parse(&record.body)
                {
                    let labels = [("message_type", hooks::MESSAGE_TYPE)];
                    cx.count("karpenter_interruption_received_messages_total", &labels);
                    held.push((record, hook));
                    continue;
                }
                let labels = [("message_type", message.kind.metric())];
                cx.count("karpenter_interruption_received_messages_total", &labels);
                messages.push((record, message));
            }
            Err(error) => {
                drop_malformed(record, &error, cx);
                cx.count("karpenter_interruption_deleted_messages_total", &[]);
            }
        }
    }
    let (idle, acting): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|(_, message)| message.kind == Kind::NoOp);
    for _ in idle {
        // No latency: who sent it, and when, may be anything.
        cx.count("karpenter_interruption_deleted_messages_total", &[]);
    }
    if !acting.is_empty() {
        act(acting, &mut answer, cluster, state, queues, cx).await;
    }
    // Last: a group waits for an hour, a spot instance for two minutes.
    if !held.is_empty() {
        hooks::take(&held, &mut answer, cluster, state, queues, cx).await;
    }
    answer
}

/// Acts on messages about our own nodes.
async fn act(
    acting: Vec<(&SqsRecord, Message)>,
    answer: &mut BatchAnswer,
    cluster: &impl Cluster,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) {
    // DIFFERENCE: forceful kinds go first, so that a claim gets its deadline before it is deleted.
    let mut acting = acting;
    acting.sort_by_key(|(_, message)| {
        !matches!(message.kind, Kind::InstanceStatus | Kind::SystemStatus)
    });
    let mut view = match look(cluster, state, &acting, cx).await {
        Ok(view) => view,
        Err(error) => {
            cx.decide(
                Decision::new("retry", "Message/all", error.to_string())
                    .caused_by(&error)
                    .as_error(),
            );
            for (record, _) in &acting {
                answer.retry(record);
            }
            return;
        }
    };
    let mut displaced = BTreeSet::new();
    let mut terminating = BTreeSet::new();
    for (record, message) in &acting {
        let claims = view.claims_of(message);
        if claims.is_empty() {
            let ids: Vec<&str> = message.instance_ids.iter().map(InstanceId::as_str).collect();
            let object = match &message.reservation_id {
                Some(id) => format!("Reservation/{id}"),
                None => format!("Instance/{}", ids.join(",")),
            };
            let reason = format!("{}: no NodeClaim of this cluster", message.kind.metric());
            cx.decide(Decision::new("skip", object, reason));
        }
        if message.kind != Kind::RebalanceRecommendation {
            let leaves = |it: &&&ClaimView| !view.is_early(it, message, cx.now);
            terminating.extend(claims.iter().filter(leaves).map(|it| claim_key(&it.name, &it.uid)));
        }
        let mut failed = false;
        let mut failed_claims: BTreeSet<Uid> = BTreeSet::new();
        for action in decide(message, &view, cx.now) {
            let uid = claim_of(&action).cloned();
            if uid.as_ref().is_some_and(|uid| failed_claims.contains(uid)) {
                continue;
            }
            match carry_out(&action, message, &view, cluster, state, cx).await {
                Ok(()) => {
                    if let Action::DeleteNodeClaim { name, uid, .. } = &action {
                        view.begin_deletion(uid);
                        displaced.insert(claim_key(name, uid));
                        observe_reaction(message, cx);
                    }
                    if let Action::AnnotateNodeClaim { uid, key, .. } = &action
                        && *key == labels::REBALANCE_RECOMMENDED
                    {
                        remember_recommendation(uid, message, &mut view, state, cx).await;
                    }
                }
                Err(error) => {
                    failed = true;
                    failed_claims.extend(uid);
                    let decision = Decision::new("retry", reference(record), error.to_string());
                    cx.decide(decision.caused_by(&error).as_error());
                }
            }
        }
        observe_latency(message, cx);
        if failed {
            answer.retry(record);
        } else {
            cx.count("karpenter_interruption_deleted_messages_total", &[]);
        }
    }
    wake(queues, displaced, terminating, cx).await;
}

/// Reads what the messages concern: claims, their nodes, and what is known of reservations and pools.
async fn look(
    cluster: &impl Cluster,
    state: &impl StateTable,
    messages: &[(&SqsRecord, Message)],
    cx: &Invocation<'_>,
) -> Result<View, ClusterError> {
    let claims = cluster.list::<NodeClaim>(&Selector::all()).await?;
    let mut view = View::of(messages.iter().map(|(_, it)| it), claims.iter().map(|it| &**it));
    let has = |kind| messages.iter().any(|(_, message)| message.kind == kind);
    let by_pool = [Kind::RebalanceRecommendation, Kind::ScheduledChange, Kind::EventStatus];
    if by_pool.into_iter().any(has) {
        let pools = cluster.list::<NodePool>(&Selector::all()).await?;
        view = view.with_pools(pools.iter().map(|it| &**it));
    }
    if has(Kind::RebalanceRecommendation) {
        // Without the records a node may be replaced early, under the pool's budget.
        let recent = state.query(RECOMMENDED, "").await.unwrap_or_default();
        view = view.with_recommendations(recent.into_iter().map(|(key, _)| key).collect());
    }
    if has(Kind::CapacityReservationInterruption) {
        match stored::load_reservations(state).await {
            Ok(counts) => view = view.with_known_reservations(counts.into_keys().collect()),
            Err(error) => {
                let decision =
                    Decision::new("skip", "Reservation/all", error.to_string()).caused_by(&error);
                cx.decide(decision.as_error());
                view = view.with_known_reservations(BTreeSet::new());
            }
        }
    }
    let concerned: Vec<ClaimView> = messages
        .iter()
        .flat_map(|(_, message)| view.claims_of(message).into_iter().cloned().collect::<Vec<_>>())
        .collect();
    if concerned.iter().any(|claim| claim.node_name.is_empty() && claim.instance_id.is_some()) {
        // A node that has joined but is not registered yet: its claim does not name it.
        let nodes = cluster.list::<Node>(&Selector::all()).await?;
        return Ok(view.with_nodes(nodes.iter().map(|it| NodeView::from(&**it))));
    }
    for name in concerned.into_iter().map(|it| it.node_name).collect::<BTreeSet<_>>() {
        if !name.is_empty()
            && let Some(node) = cluster.get::<Node>(&ObjectKey::cluster(&name)).await?
        {
            view.add_node(NodeView::from(&*node));
        }
    }
    Ok(view)
}

/// The claim that an action is for.
fn claim_of(action: &Action) -> Option<&Uid> {
    match action {
        Action::PublishOnClaim { uid, .. }
        | Action::AnnotateNodeClaim { uid, .. }
        | Action::DeleteNodeClaim { uid, .. } => Some(uid),
        _ => None,
    }
}

async fn carry_out(
    action: &Action,
    message: &Message,
    view: &View,
    cluster: &impl Cluster,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> Result<(), ClusterError> {
    let because = message.kind.metric();
    match action {
        Action::PublishOnClaim { name, uid, event } => {
            cluster.publish(kube_event::<NodeClaim>(name, uid, event), EVENT_DEDUPE).await;
        }
        Action::PublishOnNode { name, uid, event } => {
            cluster.publish(kube_event::<Node>(name, uid, event), EVENT_DEDUPE).await;
        }
        // Best effort, both of them: the claim has to go whether or not the record can be written.
        Action::MarkOfferingUnavailable { instance_type, zone, .. } => {
            let mark = Mark::offering(CapacityType::Spot, instance_type, zone);
            let object = format!("Offering/{}", mark.key());
            match stored::mark_unavailable(state, &mark, because, cx.now).await {
                Ok(()) => cx.decide(Decision::new("mark-unavailable", object, because)),
                Err(error) => {
                    let decision = Decision::new("mark-unavailable", object, error.to_string());
                    cx.decide(decision.caused_by(&error).as_error());
                    warn(message, view, &error, cluster).await;
                }
            }
        }
        Action::ZeroReservation { id } => {
            let object = format!("Reservation/{id}");
            let exhausted = ReservationEvent::Exhausted;
            match stored::count_reservation(state, id, exhausted, cx.now).await {
                Ok(()) => cx.decide(Decision::new("zero-reservation", object, because)),
                Err(error) => {
                    let decision = Decision::new("zero-reservation", object, error.to_string());
                    cx.decide(decision.caused_by(&error).as_error());
                    warn(message, view, &error, cluster).await;
                }
            }
        }
        Action::AnnotateNodeClaim { name, uid, key, value } => {
            annotate(cluster, name, uid, key, value).await?;
            cx.decide(Decision::new("annotate", format!("NodeClaim/{name}"), because));
        }
        Action::DeleteNodeClaim { name, uid, kind } => {
            cluster.delete::<NodeClaim>(&ObjectKey::cluster(name), uid, None).await?;
            let object = format!("NodeClaim/{name}");
            let ids: Vec<&str> = message.instance_ids.iter().map(InstanceId::as_str).collect();
            cx.decide(
                Decision::new("delete", object, kind.metric())
                    .with("nodeclaim", name.as_str())
                    .with("instance_id", ids.join(",")),
            );
            let claim = view.claims_of(message).into_iter().find(|it| it.uid == *uid);
            let label = |key| claim.and_then(|it| it.label(key)).unwrap_or_default();
            cx.count(
                "karpenter_nodeclaims_disrupted_total",
                &[
                    ("reason", kind.metric()),
                    ("nodepool", label(labels::NODEPOOL)),
                    ("capacity_type", label(labels::CAPACITY_TYPE)),
                    ("consolidation_policy", ""),
                    ("termination_mode", ""),
                ],
            );
        }
    }
    Ok(())
}

/// Says on the claims of a message that what it tells could not be written down: launches may try what was just lost.
async fn warn(message: &Message, view: &View, error: &StateError, cluster: &impl Cluster) {
    let Some(error) = AwsError::behind(error) else { return };
    for claim in view.claims_of(message) {
        let event = KubeEvent {
            kind: NodeClaim::KIND,
            api_version: NodeClaim::api_version(),
            key: ObjectKey::cluster(&claim.name),
            uid: claim.uid.clone(),
            warning: true,
            reason: "InterruptionNotRecorded".to_owned(),
            message: error.explain(),
        };
        cluster.publish(event, EVENT_DEDUPE).await;
    }
}

fn kube_event<K: spokeshave_model::Kind>(
    name: &str,
    uid: &Uid,
    event: &spokeshave_interruption::InterruptionEvent,
) -> KubeEvent {
    KubeEvent {
        kind: K::KIND,
        api_version: K::api_version(),
        key: ObjectKey::cluster(name),
        uid: uid.clone(),
        warning: event.warning,
        reason: event.reason.to_owned(),
        message: event.message.to_owned(),
    }
}

/// Notes that a recommendation for this claim's offering was acted on. Lost, the next one is acted on, too.
async fn remember_recommendation(
    uid: &Uid,
    message: &Message,
    view: &mut View,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) {
    let claim = view.claims_of(message).into_iter().find(|it| it.uid == *uid);
    let Some(offering) = claim.and_then(ClaimView::offering) else { return };
    let until = cx.now.checked_add(RECOMMENDATION_HOLDS_FOR).ok();
    let key = StateKey::new(RECOMMENDED, &offering);
    if let Err(error) = state.write(&key, serde_json::Value::Null, until, When::Always).await {
        let object = format!("Offering/spot:{offering}");
        cx.decide(
            Decision::new("remember", object, error.to_string()).caused_by(&error).as_error(),
        );
    }
    view.recommend_against(offering);
}

/// Sets an annotation unless it is there. A claim that is gone, or another of the same name, is fine.
async fn annotate(
    cluster: &impl Cluster,
    name: &str,
    uid: &Uid,
    key: &str,
    value: &str,
) -> Result<(), ClusterError> {
    let Some(claim) = cluster.get::<NodeClaim>(&ObjectKey::cluster(name)).await? else {
        return Ok(());
    };
    if claim.metadata.uid != *uid || claim.metadata.annotations.contains_key(key) {
        return Ok(());
    }
    let mut changed = NodeClaim::clone(&claim);
    changed.metadata.annotations.insert(key.to_owned(), value.to_owned());
    match cluster.patch(&*claim, &changed, Precondition::Uid).await {
        Ok(_) | Err(ClusterError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Time from the event to its handling. One from the future counts as none.
fn observe_latency(message: &Message, cx: &Invocation<'_>) {
    sample_since(message, "karpenter_interruption_message_queue_duration_seconds", cx);
}

/// DIFFERENCE: a metric of our own, the time from the event to the deletion of the claim.
fn observe_reaction(message: &Message, cx: &Invocation<'_>) {
    sample_since(message, "spokeshave_interruption_reaction_seconds", cx);
}

fn sample_since(message: &Message, metric: &'static str, cx: &Invocation<'_>) {
    if let Some(time) = message.time {
        let seconds = cx.now.duration_since(time).as_secs_f64().max(0.0);
        cx.sample(metric, seconds, "Seconds", &[]);
    }
}

fn claim_key(name: &str, uid: &Uid) -> Key {
    Key {
        kind: NodeClaim::KIND.to_owned(),
        name: name.to_owned(),
        uid: uid.clone(),
        ..Key::default()
    }
}

/// Keys per message at most.
const KEYS_PER_MESSAGE: usize = 100;

/// Wakes provisioning for the pods that lose their node, without a batch window, and termination.
///
/// A failure is only recorded: the bridge sees the deletions, too.
async fn wake(
    queues: &impl Queues,
    displaced: BTreeSet<Key>,
    terminating: BTreeSet<Key>,
    cx: &Invocation<'_>,
) {
    for (to, reason, keys) in [
        (Concern::Termination, "Interrupted", terminating),
        (Concern::Provision, "Displaced", displaced),
    ] {
        let keys: Vec<Key> = keys.into_iter().collect();
        for chunk in keys.chunks(KEYS_PER_MESSAGE) {
            let work = Work::new(reason, chunk.to_vec());
            if let Err(error) = queues.send(to, &work, SignedDuration::ZERO, "").await {
                let decision = Decision::new("wake", format!("Queue/{to}"), error.to_string())
                    .caused_by(&error);
                cx.decide(decision.as_error());
            }
        }
    }
}
