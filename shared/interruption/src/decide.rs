//! What follows from a message for the claims of this cluster.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashSet;
use spokeshave_model::{
    InstanceId, NodeClaim, NodePool, ProviderId, Uid,
    core::Node,
    duration::parse_go,
    labels,
    meta::{Kind as _, StringMap},
};

use crate::{ActionKind, InterruptionEvent, Kind, Message};

/// Label: the capacity reservation that an instance runs in.
const RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";

/// How long an offering is set aside after an interruption warning. 3 minutes, as in Karpenter 1.x.
pub const UNAVAILABLE_FOR: SignedDuration = SignedDuration::from_mins(3);

/// How long after one recommendation for an offering was acted on the next ones are ignored. 10 minutes, our choice: time
/// for the replacement to be ready.
pub const RECOMMENDATION_HOLDS_FOR: SignedDuration = SignedDuration::from_mins(10);

/// After the deletion of a claim.
const TERMINATING_CLAIM: InterruptionEvent = InterruptionEvent {
    warning: true,
    reason: "TerminatingOnInterruption",
    message: "Interruption triggered termination for the NodeClaim",
};
const TERMINATING_NODE: InterruptionEvent = InterruptionEvent {
    message: "Interruption triggered termination for the Node",
    ..TERMINATING_CLAIM
};

/// What is asked for. Carrying one out twice is the same as once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Publish an event on this claim.
    PublishOnClaim { name: String, uid: Uid, event: InterruptionEvent },
    /// Publish an event on this node.
    PublishOnNode { name: String, uid: Uid, event: InterruptionEvent },
    /// Buy no more of these until the time.
    MarkOfferingUnavailable {
        capacity_type: String,
        instance_type: String,
        zone: String,
        until: Timestamp,
    },
    /// Nothing is left in this capacity reservation.
    ZeroReservation { id: String },
    /// Set an annotation of this claim.
    AnnotateNodeClaim { name: String, uid: Uid, key: &'static str, value: String },
    /// Delete this very claim.
    DeleteNodeClaim { name: String, uid: Uid, kind: Kind },
}

/// The instance that a provider id names: whatever comes after `:///` and the last `/`, as in Karpenter.
fn instance_of(provider_id: &ProviderId) -> Option<InstanceId> {
    let (_, rest) = provider_id.as_str().split_once(":///")?;
    let (_zone, id) = rest.rsplit_once('/')?;
    (!id.is_empty()).then(|| InstanceId::from(id))
}

/// What of a NodeClaim is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimView {
    pub name: String,
    pub uid: Uid,
    pub instance_id: Option<InstanceId>,
    pub node_name: String,
    pub deleting: bool,
    /// Of the class kind that is ours.
    pub managed: bool,
    pub labels: StringMap,
    pub annotations: StringMap,
}

impl From<&NodeClaim> for ClaimView {
    fn from(claim: &NodeClaim) -> Self {
        Self {
            name: claim.name().to_owned(),
            uid: claim.metadata.uid.clone(),
            instance_id: instance_of(&claim.status.provider_id),
            node_name: claim.status.node_name.clone(),
            deleting: claim.metadata.deleting(),
            managed: claim.is_managed(),
            labels: claim.metadata.labels.clone(),
            annotations: claim.metadata.annotations.clone(),
        }
    }
}

impl ClaimView {
    /// The offering it was bought from, as `type:zone`.
    pub fn offering(&self) -> Option<String> {
        Some(format!("{}:{}", self.label(labels::INSTANCE_TYPE)?, self.label(labels::ZONE)?))
    }

    /// The value of a label, if it is there and not empty.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str).filter(|it| !it.is_empty())
    }
}

/// What of a Node is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    pub name: String,
    pub uid: Uid,
    pub instance_id: Option<InstanceId>,
}

impl From<&Node> for NodeView {
    fn from(node: &Node) -> Self {
        Self {
            name: node.name().to_owned(),
            uid: node.metadata.uid.clone(),
            instance_id: instance_of(&node.spec.provider_id),
        }
    }
}

/// The cluster as far as messages concern it, by instance.
#[derive(Clone, Debug, Default)]
pub struct View {
    claims: Vec<ClaimView>,
    by_instance: BTreeMap<InstanceId, Vec<usize>>,
    by_reservation: BTreeMap<String, Vec<usize>>,
    nodes: BTreeMap<InstanceId, NodeView>,
    /// Reservations whose count is known; `None`: take every one as known.
    known_reservations: Option<BTreeSet<String>>,
    /// Pools that act on rebalance recommendations.
    rebalancing_pools: BTreeSet<String>,
    /// How long before a scheduled change the nodes of a pool leave, where it says so.
    lead_times: BTreeMap<String, SignedDuration>,
    /// Offerings of which a recommendation was acted on lately, as `type:zone`.
    recommended: BTreeSet<String>,
}

impl View {
    /// A view of these claims. Their order does not matter.
    pub fn new(claims: impl IntoIterator<Item = ClaimView>) -> Self {
        let mut view = Self { claims: claims.into_iter().collect(), ..Self::default() };
        view.claims.sort_by(|a, b| a.name.cmp(&b.name));
        for (at, claim) in view.claims.iter().enumerate() {
            if let Some(id) = &claim.instance_id {
                view.by_instance.entry(id.clone()).or_default().push(at);
            }
            if let Some(id) = claim.label(RESERVATION_ID).filter(|_| claim.managed) {
                view.by_reservation.entry(id.to_owned()).or_default().push(at);
            }
        }
        view
    }

    /// A view of those among `claims` that `messages` are about: a few of thousands.
    pub fn of<'c, 'm>(
        messages: impl IntoIterator<Item = &'m Message>,
        claims: impl IntoIterator<Item = &'c NodeClaim>,
    ) -> Self {
        let mut instances: FxHashSet<&str> = FxHashSet::default();
        let mut reservations: FxHashSet<&str> = FxHashSet::default();
        for message in messages {
            instances.extend(message.instance_ids.iter().map(InstanceId::as_str));
            reservations.extend(message.reservation_id.as_deref());
        }
        let concerned = |claim: &&NodeClaim| {
            // Most claims are not concerned: the cheap test comes first, the exact one is made for those that are.
            let provider_id = claim.status.provider_id.as_str();
            let slash = provider_id.bytes().rposition(|it| it == b'/');
            let id = slash.and_then(|at| provider_id.get(at + 1..)).unwrap_or(provider_id);
            instances.contains(id)
                || (!reservations.is_empty()
                    && claim
                        .metadata
                        .label(RESERVATION_ID)
                        .is_some_and(|it| reservations.contains(it)))
        };
        Self::new(claims.into_iter().filter(concerned).map(ClaimView::from))
    }

    /// Adds nodes; of several with one instance id the first by name counts.
    #[must_use]
    pub fn with_nodes(mut self, nodes: impl IntoIterator<Item = NodeView>) -> Self {
        for node in nodes {
            self.add_node(node);
        }
        self
    }

    /// Adds one node.
    pub fn add_node(&mut self, node: NodeView) {
        let Some(id) = node.instance_id.clone() else { return };
        match self.nodes.get(&id) {
            Some(known) if known.name <= node.name => {}
            _ => {
                self.nodes.insert(id, node);
            }
        }
    }

    /// Says which reservations have a known count; others are not set to zero.
    #[must_use]
    pub fn with_known_reservations(mut self, ids: BTreeSet<String>) -> Self {
        self.known_reservations = Some(ids);
        self
    }

    /// Says which pools act on rebalance recommendations, and which wait for scheduled changes to come near.
    #[must_use]
    pub fn with_pools<'p>(mut self, pools: impl IntoIterator<Item = &'p NodePool>) -> Self {
        let acts =
            |pool: &&NodePool| pool.metadata.annotation(labels::REBALANCE) == Some("replace");
        let lead_time = |pool: &NodePool| {
            let text = pool.metadata.annotation(labels::SCHEDULED_CHANGE_LEAD_TIME)?;
            parse_go(text).filter(|it| !it.is_negative())
        };
        for pool in pools {
            if acts(&pool) {
                self.rebalancing_pools.insert(pool.name().to_owned());
            }
            if let Some(lead_time) = lead_time(pool) {
                self.lead_times.insert(pool.name().to_owned(), lead_time);
            }
        }
        self
    }

    /// Whether a scheduled change is still further off than the claim's pool asks to be told.
    ///
    /// DIFFERENCE: Karpenter drains at once for a reboot two weeks ahead. So do we, unless the pool says otherwise; then the
    /// poll of instance status, which brings the change up every minute, is what acts in time.
    pub fn is_early(&self, claim: &ClaimView, message: &Message, now: Timestamp) -> bool {
        let scheduled = matches!(message.kind, Kind::ScheduledChange | Kind::EventStatus);
        let lead_time = claim.label(labels::NODEPOOL).and_then(|it| self.lead_times.get(it));
        match (message.starts, lead_time) {
            (Some(starts), Some(lead_time)) if scheduled => {
                now.saturating_add(*lead_time).is_ok_and(|it| it < starts)
            }
            _ => false,
        }
    }

    /// Says of which offerings a recommendation was acted on lately ([`ClaimView::offering`]).
    #[must_use]
    pub fn with_recommendations(mut self, offerings: BTreeSet<String>) -> Self {
        self.recommended = offerings;
        self
    }

    /// A recommendation has just been acted on.
    pub fn recommend_against(&mut self, offering: String) {
        self.recommended.insert(offering);
    }

    /// The claims that a message is about, by name.
    pub fn claims_of(&self, message: &Message) -> Vec<&ClaimView> {
        let by_instance = message.instance_ids.iter().filter_map(|it| self.by_instance.get(it));
        let by_reservation =
            message.reservation_id.iter().filter_map(|it| self.by_reservation.get(it));
        let mut seen = BTreeSet::new();
        by_instance
            .chain(by_reservation)
            .flatten()
            .filter(|at| seen.insert(**at))
            .filter_map(|at| self.claims.get(*at))
            .collect()
    }

    /// The node of an instance.
    pub fn node_of(&self, id: &InstanceId) -> Option<&NodeView> {
        self.nodes.get(id)
    }

    /// The node of an instance that no claim has.
    pub fn claimless_node_of(&self, id: &InstanceId) -> Option<&NodeView> {
        self.node_of(id).filter(|_| !self.by_instance.contains_key(id))
    }

    /// From now on this claim counts as being deleted: an earlier message of the batch has seen to that.
    pub fn begin_deletion(&mut self, uid: &Uid) {
        for claim in self.claims.iter_mut().filter(|it| it.uid == *uid) {
            claim.deleting = true;
        }
    }
}

/// Decides what to do about one message at `now`.
///
/// The actions are to be carried out in order for each claim; one that fails does not stop those of other claims.
/// Disruption budgets, `karpenter.sh/do-not-disrupt` and limits do not apply to interruptions.
pub fn decide(message: &Message, view: &View, now: Timestamp) -> Vec<Action> {
    let mut actions: Vec<Action> = Vec::new();
    for claim in view.claims_of(message) {
        let node = claim.instance_id.as_ref().and_then(|it| view.node_of(it));
        for action in for_claim(message, claim, node, view, now) {
            // Two claims of one instance share their node and their offering.
            if !actions.contains(&action) {
                actions.push(action);
            }
        }
    }
    actions
}

fn for_claim(
    message: &Message,
    claim: &ClaimView,
    node: Option<&NodeView>,
    view: &View,
    now: Timestamp,
) -> Vec<Action> {
    let kind = message.kind;
    let mut actions = Vec::new();
    let publish = |actions: &mut Vec<Action>, on_claim, on_node| {
        let (name, uid) = (claim.name.clone(), claim.uid.clone());
        actions.push(Action::PublishOnClaim { name, uid, event: on_claim });
        actions.extend(node.map(|node| Action::PublishOnNode {
            name: node.name.clone(),
            uid: node.uid.clone(),
            event: on_node,
        }));
    };
    if let Some(event) = kind.event() {
        publish(&mut actions, event, event);
    }
    match kind {
        Kind::SpotInterruption => actions.extend(mark_spot(claim, now)),
        Kind::CapacityReservationInterruption => {
            let known = |id: &&str| {
                view.known_reservations.as_ref().is_none_or(|known| known.contains(*id))
            };
            actions.extend(
                claim
                    .label(RESERVATION_ID)
                    .filter(known)
                    .map(|id| Action::ZeroReservation { id: id.to_owned() }),
            );
        }
        Kind::RebalanceRecommendation => actions.extend(rebalance(claim, view, now)),
        _ => {}
    }
    let action = kind.action();
    if action == ActionKind::None || view.is_early(claim, message, now) {
        return actions;
    }
    if action == ActionKind::ForcefulTermination
        && !claim.annotations.contains_key(labels::TERMINATION_TIMESTAMP)
    {
        actions.push(Action::AnnotateNodeClaim {
            name: claim.name.clone(),
            uid: claim.uid.clone(),
            key: labels::TERMINATION_TIMESTAMP,
            value: whole_seconds(now),
        });
    }
    if !claim.deleting {
        let (name, uid) = (claim.name.clone(), claim.uid.clone());
        actions.push(Action::DeleteNodeClaim { name, uid, kind });
        publish(&mut actions, TERMINATING_CLAIM, TERMINATING_NODE);
    }
    actions
}

/// Sets the spot offering of a claim aside. Its own capacity type is not looked at.
fn mark_spot(claim: &ClaimView, now: Timestamp) -> Option<Action> {
    Some(Action::MarkOfferingUnavailable {
        capacity_type: "spot".to_owned(),
        instance_type: claim.label(labels::INSTANCE_TYPE)?.to_owned(),
        zone: claim.label(labels::ZONE)?.to_owned(),
        until: now.checked_add(UNAVAILABLE_FOR).unwrap_or(Timestamp::MAX),
    })
}

/// DIFFERENCE: in a pool that asks for it, a recommendation marks the claim, and disruption replaces it: first a new
/// node, then the old one goes, under the pool's budgets. Karpenter only publishes the event.
///
/// A claim that is marked already, or is on its way out, is left alone, and so is one whose offering had its
/// recommendation lately: EC2 recommends against whole offerings at once. The offering is set aside so that the replacement
/// is not bought where the next recommendation is due.
fn rebalance(claim: &ClaimView, view: &View, now: Timestamp) -> Vec<Action> {
    let asked_for =
        claim.label(labels::NODEPOOL).is_some_and(|pool| view.rebalancing_pools.contains(pool));
    let marked = claim.annotations.contains_key(labels::REBALANCE_RECOMMENDED);
    let lately = claim.offering().is_some_and(|it| view.recommended.contains(&it));
    if !asked_for || !claim.managed || claim.deleting || marked || lately {
        return Vec::new();
    }
    let mark = Action::AnnotateNodeClaim {
        name: claim.name.clone(),
        uid: claim.uid.clone(),
        key: labels::REBALANCE_RECOMMENDED,
        value: whole_seconds(now),
    };
    mark_spot(claim, now).into_iter().chain([mark]).collect()
}

/// RFC 3339 without a fraction, as Kubernetes writes times.
fn whole_seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}
