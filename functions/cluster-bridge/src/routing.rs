//! Which change is news to which concern. Detail types are routed to queues by `spokeshave_lambda::wiring::ROUTES`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{
    Condition, ConditionStatus, EC2NodeClass, Kind, NodeClaim, NodePool, ObjectMeta, Settings,
    TaintEffect, Uid,
    conditions::{self, READY},
    core::{Node, Pod, PodDisruptionBudget, VolumeAttachment},
    labels,
};
use spokeshave_ports::{Change, Key, queues::BusEvent, watch::BOUND_PODS};

use crate::batch::{Keys, Window};

/// The disruption pass is held back until the cluster has been quiet for so long. 1 s, like the pods' batch window.
const DISRUPTION_IDLE: SignedDuration = SignedDuration::from_secs(1);
/// ... but at most so long: Karpenter's disruption loop runs every 10 s.
const DISRUPTION_MAX: SignedDuration = SignedDuration::from_secs(10);

/// What is remembered of a pod, so that a watch need not keep objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PodMark {
    /// Empty while unbound.
    node: String,
    provisionable: bool,
    terminal: bool,
    deleting: bool,
    do_not_disrupt: Option<String>,
}

impl PodMark {
    fn of(pod: &Pod) -> Self {
        Self {
            node: pod.spec.node_name.clone(),
            provisionable: is_provisionable(pod),
            terminal: pod.is_terminal(),
            deleting: pod.metadata.deleting(),
            do_not_disrupt: pod.metadata.annotations.get(labels::DO_NOT_DISRUPT).cloned(),
        }
    }
}

/// Whether provisioning is to find a place for the pod (`spec` scheduling 9.1).
pub fn is_provisionable(pod: &Pod) -> bool {
    pod.condition("PodScheduled").is_some_and(|it| it.reason == "Unschedulable")
        && !pod.is_bound()
        && pod.status.nominated_node_name.is_empty()
        && !pod.is_daemon()
        && !pod.is_mirror()
}

/// Turns changes of objects into events for the bus.
///
/// Give it every change through [`observe`](Self::observe), take what is ready with [`take`](Self::take), and come back
/// at [`due`](Self::due). It remembers a few bytes per pod, and which nodes and classes are being deleted, so as not
/// to wake concerns for nothing; a bridge that starts anew without these marks wakes rather too often than too seldom.
#[derive(Clone, Debug)]
pub struct Bridge {
    at_once: Keys,
    /// When the first of `at_once` was observed.
    ready_since: Option<Timestamp>,
    provision: Keys,
    provision_window: Window,
    disruption: Keys,
    disruption_window: Window,
    pods: BTreeMap<Uid, PodMark>,
    /// What happened to a pod before this was told already.
    told_until: Option<Timestamp>,
    /// Whether a node is being deleted, by name.
    nodes: BTreeMap<String, bool>,
    /// Whether a class is being deleted, by name.
    classes: BTreeMap<String, bool>,
    /// Names of static pools.
    static_pools: BTreeSet<String>,
}

impl Bridge {
    pub fn new(settings: &Settings) -> Self {
        Self {
            at_once: Keys::default(),
            ready_since: None,
            provision: Keys::default(),
            provision_window: Window::new(
                settings.batch_idle_duration,
                settings.batch_max_duration,
            ),
            disruption: Keys::default(),
            disruption_window: Window::new(DISRUPTION_IDLE, DISRUPTION_MAX),
            pods: BTreeMap::new(),
            told_until: None,
            nodes: BTreeMap::new(),
            classes: BTreeMap::new(),
            static_pools: BTreeSet::new(),
        }
    }

    /// This bridge goes on where another one left off at `at`, without its marks.
    ///
    /// A pod that is seen for the first time is then no news if it was bound, done or deleted before: any change of an
    /// old pod would look like a pod event and put consolidation off.
    pub fn resumed(&mut self, at: Timestamp) {
        self.told_until = Some(at);
    }

    /// Takes note of a change that a watch delivered.
    pub fn observe(&mut self, change: &Change, now: Timestamp) {
        self.note(change, now, false);
    }

    /// Takes note of an object of a first list: concerns look at it, but nothing has happened to it just now.
    ///
    /// DIFFERENCE: Karpenter counts every bound pod of its first list as a pod event, which puts consolidation off
    /// after each restart. A listed pod is none here.
    pub fn observe_listed(&mut self, change: &Change, now: Timestamp) {
        self.note(change, now, true);
    }

    /// When there is something to take; `None` when nothing is waiting.
    ///
    /// For what is not batched that is the time at which it was observed, for batches the end of their window.
    pub fn due(&self) -> Option<Timestamp> {
        let windows = [&self.provision_window, &self.disruption_window];
        let at_once = self.ready_since.filter(|_| !self.at_once.is_empty());
        windows.into_iter().filter_map(Window::closes_at).chain(at_once).min()
    }

    /// The events that are ready: everything not batched, and the batches whose window has closed.
    pub fn take(&mut self, now: Timestamp) -> Vec<BusEvent> {
        let mut events = self.at_once.take();
        self.ready_since = None;
        if self.provision_window.close(now) {
            events.extend(self.provision.take());
        }
        if self.disruption_window.close(now) {
            events.extend(self.disruption.take());
        }
        events
    }

    /// Takes everything, batch windows or not: the process is about to end.
    pub fn take_all(&mut self) -> Vec<BusEvent> {
        self.take(Timestamp::MAX)
    }

    /// When the oldest change was observed whose keys have not been taken yet.
    pub fn oldest(&self) -> Option<Timestamp> {
        let windows = [&self.provision_window, &self.disruption_window];
        let at_once = self.ready_since.filter(|_| !self.at_once.is_empty());
        windows.into_iter().filter_map(Window::opened_at).chain(at_once).min()
    }

    /// Takes an event back that the bus did not accept, whose oldest change was observed at `since`. Its keys go out
    /// again with the next ones.
    pub fn give_back(&mut self, event: &BusEvent, since: Timestamp) {
        self.ready_since = Some(self.ready_since.map_or(since, |it| it.min(since)));
        if event.work.keys.is_empty() {
            self.at_once.add_all(event.detail_type);
        }
        for key in &event.work.keys {
            self.at_once.add(event.detail_type, key.clone());
        }
    }

    /// A watch of this kind, or of [`BOUND_PODS`], has begun anew. What was deleted meanwhile was never seen, so whoever waits for objects to go
    /// looks at all of them.
    pub fn restarted(&mut self, kind: &str, now: Timestamp) {
        match kind {
            Pod::KIND => self.pods.retain(|_, it| !it.node.is_empty()),
            BOUND_PODS => self.pods.retain(|_, it| it.node.is_empty()),
            _ => {}
        }
        let affected: &[&'static str] = match kind {
            BOUND_PODS | "PodDisruptionBudget" | "VolumeAttachment" => &["EvictionUnblocked"],
            "Node" => &["EvictionUnblocked", "NodeLost"],
            "NodeClaim" => &["NodeClaimLost", "CommandProgressed", "EvictionUnblocked"],
            "EC2NodeClass" => &["NodeClassGone"],
            _ => &[],
        };
        for detail_type in affected {
            self.at_once.add_all(detail_type);
            self.ready_since.get_or_insert(now);
        }
    }

    fn note(&mut self, change: &Change, now: Timestamp, listed: bool) {
        self.ready_since.get_or_insert(now);
        match change {
            Change::Pod { old, new } => self.pod(old.as_deref(), new.as_deref(), now, listed),
            Change::Node { old, new } => self.node(old.as_deref(), new.as_deref(), now),
            Change::NodeClaim { old, new } => self.node_claim(old.as_deref(), new.as_deref(), now),
            Change::NodePool { old, new } => self.node_pool(old.as_deref(), new.as_deref()),
            Change::EC2NodeClass { old, new } => self.node_class(old.as_deref(), new.as_deref()),
            Change::NodeOverlay { old, new } => {
                if differs(old, new, |it| (meaning(&it.metadata), it.spec.clone())) {
                    self.both_solvers(old, new, now);
                }
            }
            Change::CapacityBuffer { old, new } => {
                if differs(old, new, |it| (meaning(&it.metadata), it.spec.clone())) {
                    self.both_solvers(old, new, now);
                }
            }
            Change::DaemonSet { old, new } => {
                if differs(old, new, |it| it.spec.template.spec.clone()) {
                    self.both_solvers(old, new, now);
                }
            }
            Change::PodDisruptionBudget { old, new } => {
                self.budget(old.as_deref(), new.as_deref(), now);
            }
            Change::PersistentVolumeClaim { old, new } => {
                if new.is_some() && differs(old, new, |it| (it.spec.clone(), it.status.clone())) {
                    self.provision_due(either(old, new), now);
                }
            }
            Change::StorageClass { old, new } => {
                let read = |it: &spokeshave_model::core::StorageClass| {
                    (it.volume_binding_mode.clone(), it.allowed_topologies.clone())
                };
                if new.is_some() && differs(old, new, read) {
                    self.provision_due(either(old, new), now);
                }
            }
            Change::ResourceSlice { old, new } => {
                // Devices of a node: initialization waits for them.
                if differs(old, new, |it| it.spec.clone())
                    && let Some(node) = either(old, new).and_then(|it| it.spec.node_name.as_deref())
                {
                    self.at_once.add("NodeChanged", named(Node::KIND, node));
                }
            }
            Change::VolumeAttachment { old, new } => {
                if let (Some(gone), None) = (old.as_deref(), new) {
                    self.detached(gone);
                }
            }
        }
        if self.at_once.is_empty() {
            self.ready_since = None;
        }
    }

    fn pod(&mut self, old: Option<&Pod>, new: Option<&Pod>, now: Timestamp, listed: bool) {
        let Some(pod) = new.or(old) else { return };
        let is_known_bound =
            || self.pods.get(&pod.metadata.uid).is_some_and(|it| !it.node.is_empty());
        if new.is_none() && !pod.is_bound() && is_known_bound() {
            // It left the watch of pending pods because it was bound, and that of bound pods was faster.
            return;
        }
        let before = match self.pods.remove(&pod.metadata.uid) {
            Some(mark) => Some(mark),
            None => old.map(PodMark::of),
        };
        let Some(after) = new.map(PodMark::of) else {
            if let Some(before) = before.filter(|it| !it.node.is_empty()) {
                self.pod_event("PodGone", pod, &before.node, now);
            }
            return;
        };
        let stale = |happened: Option<Timestamp>| {
            listed
                || (before.is_none()
                    && self.told_until.is_some_and(|until| happened.is_some_and(|it| it < until)))
        };
        let was = before.clone().unwrap_or_default();
        if after.provisionable && !was.provisionable {
            self.provision.add("PodsPending", Key::of(pod));
            self.provision_window.trigger(&pod.metadata.uid, now);
        }
        if !after.node.is_empty() {
            if after.terminal && !was.terminal {
                if !stale(last_transition(pod)) {
                    self.pod_event("PodGone", pod, &after.node, now);
                }
            } else if after.deleting && !was.deleting {
                if !stale(deletion_requested(pod)) {
                    self.pod_event("PodEnding", pod, &after.node, now);
                }
            } else if was.node.is_empty() && !after.terminal {
                if !stale(bound_at(pod)) {
                    self.pod_event("PodBound", pod, &after.node, now);
                }
            } else if after.do_not_disrupt != was.do_not_disrupt {
                self.disruption_due(pod, now);
                self.drain_progressed(&after.node);
            }
        }
        if after.provisionable || !after.node.is_empty() {
            self.pods.insert(pod.metadata.uid.clone(), after);
        }
    }

    fn pod_event(&mut self, detail_type: &'static str, pod: &Pod, node: &str, now: Timestamp) {
        if !pod.is_daemon() {
            self.at_once.add(detail_type, named(Node::KIND, node));
            self.disruption_due(pod, now);
        }
        self.drain_progressed(node);
    }

    /// Something happened on a node that may be draining.
    fn drain_progressed(&mut self, node: &str) {
        if self.nodes.get(node).copied().unwrap_or(true) {
            self.at_once.add("DrainProgressed", named(Node::KIND, node));
        }
    }

    fn node(&mut self, old: Option<&Node>, new: Option<&Node>, now: Timestamp) {
        let Some(node) = new.or(old) else { return };
        let Some(new) = new else {
            self.nodes.remove(node.name());
            self.at_once.add("NodeGone", Key::of(node));
            let finished = node.metadata.deleting()
                && !node.metadata.has_finalizer(labels::TERMINATION_FINALIZER);
            if node.metadata.label(labels::NODEPOOL).is_some() && !finished {
                self.at_once.add("NodeLost", Key::of(node));
            }
            self.pool_counts(&node.metadata);
            self.disruption_due(node, now);
            return;
        };
        self.nodes.insert(new.name().to_owned(), is_draining(new));
        let same = old.is_some_and(|old| {
            meaning(&old.metadata) == meaning(&new.metadata)
                && old.spec == new.spec
                && old.status == new.status
        });
        if same {
            return;
        }
        self.at_once.add("NodeChanged", Key::of(new));
        if new.metadata.deleting() {
            self.at_once.add("NodeDeleting", Key::of(new));
        }
        let newly_deleting =
            new.metadata.deleting() && !old.is_some_and(|it| it.metadata.deleting());
        if newly_deleting {
            self.provision_now("PodsDisplaced", new);
        }
        if is_disrupted(new) && !old.is_some_and(is_disrupted) {
            self.provision_due(Some(new), now);
        }
        let counted = |it: &Node| {
            (it.status.capacity.clone(), it.metadata.labels.get(labels::NODEPOOL).cloned())
        };
        if newly_deleting || old.map(counted) != Some(counted(new)) {
            self.pool_counts(&new.metadata);
        }
        let considered = |it: &Node| {
            (
                it.metadata.labels.get(labels::INITIALIZED).cloned(),
                it.metadata.annotations.get(labels::DO_NOT_DISRUPT).cloned(),
                it.is_ready(),
                it.metadata.deleting(),
            )
        };
        if old.map(considered) != Some(considered(new)) {
            self.disruption_due(new, now);
        }
    }

    fn node_claim(&mut self, old: Option<&NodeClaim>, new: Option<&NodeClaim>, now: Timestamp) {
        let Some(claim) = new.or(old) else { return };
        if !claim.is_managed() {
            return;
        }
        let Some(new) = new else {
            self.node_claim_gone(claim, now);
            return;
        };
        let key = || Key::of(new);
        let newly = |type_: &str| new.is_true(type_) && !old.is_some_and(|it| it.is_true(type_));
        let deleting = new.metadata.deleting();
        let newly_deleting = deleting && !old.is_some_and(|it| it.metadata.deleting());

        if deleting {
            let read = |it: &NodeClaim| (meaning(&it.metadata), it.status.provider_id.clone());
            if old.map(read) != Some(read(new)) {
                self.at_once.add("NodeClaimDeleting", key());
            }
        } else if old.is_none() && !new.is_true(NodeClaim::LAUNCHED) {
            self.at_once.add("NodeClaimCreated", key());
            // One that nobody planned may be one too many.
            if new.nodepool().is_some_and(|it| self.static_pools.contains(it)) {
                self.provision_due(Some(new), now);
            }
        } else if old.map(for_lifecycle) != Some(for_lifecycle(new)) {
            self.at_once.add("NodeClaimChanged", key());
        }
        if newly_deleting {
            self.provision_now("PodsDisplaced", new);
        }
        if newly(NodeClaim::REGISTERED) && !deleting && !is_tagged(new) {
            self.at_once.add("NodeClaimRegistered", key());
        }
        if newly(NodeClaim::INITIALIZED) || newly_deleting {
            self.at_once.add_command_key(key());
        }
        if old.is_none()
            || newly_deleting
            || old.is_some_and(|it| it.status.capacity != new.status.capacity)
        {
            self.pool_counts(&new.metadata);
        }
        let considered = |it: &NodeClaim| {
            let types = [
                NodeClaim::CONSOLIDATABLE,
                NodeClaim::DRIFTED,
                NodeClaim::INSTANCE_TERMINATING,
                NodeClaim::INITIALIZED,
            ];
            (types.map(|type_| it.is_true(type_)), it.metadata.deleting())
        };
        if old.map(considered) != Some(considered(new)) {
            self.disruption_due(new, now);
        }
    }

    fn node_claim_gone(&mut self, claim: &NodeClaim, now: Timestamp) {
        self.at_once.add("NodeClaimGone", Key::of(claim));
        let finished = claim.status.provider_id.is_empty()
            || (claim.metadata.deleting()
                && !claim.metadata.has_finalizer(labels::TERMINATION_FINALIZER));
        if !finished {
            // Somebody removed the claim by force: its instance may live on.
            self.at_once.add("NodeClaimLost", Key::of(claim));
        }
        self.at_once.add_command_key(Key::of(claim));
        let class = &claim.spec.node_class_ref.name;
        if self.classes.get(class).copied().unwrap_or(true) {
            self.at_once.add("NodeClassReleased", named(EC2NodeClass::KIND, class));
        }
        self.pool_counts(&claim.metadata);
        self.disruption_due(claim, now);
    }

    fn node_pool(&mut self, old: Option<&NodePool>, new: Option<&NodePool>) {
        let Some(pool) = new.or(old) else { return };
        let class = &pool.spec.template.spec.node_class_ref;
        if !class.is_managed() && class.unserved().is_none() {
            return;
        }
        let Some(new) = new else {
            self.static_pools.remove(pool.name());
            self.at_once.add("NodePoolGone", Key::of(pool));
            return;
        };
        if new.is_static() {
            self.static_pools.insert(new.name().to_owned());
        } else {
            self.static_pools.remove(new.name());
        }
        let read = |it: &NodePool| (meaning(&it.metadata), it.spec.clone());
        if old.map(read) != Some(read(new)) {
            self.at_once.add("NodePoolChanged", Key::of(new));
        }
        let ready = |it: &NodePool| conditions::is_true(&it.status.conditions, READY);
        if ready(new) && !old.is_some_and(ready) {
            self.at_once.add("NodePoolReady", Key::of(new));
        }
    }

    fn node_class(&mut self, old: Option<&EC2NodeClass>, new: Option<&EC2NodeClass>) {
        let Some(class) = new.or(old) else { return };
        let Some(new) = new else {
            self.classes.remove(class.name());
            self.at_once.add("NodeClassGone", Key::of(class));
            return;
        };
        self.classes.insert(new.name().to_owned(), new.metadata.deleting());
        let asked = |it: &EC2NodeClass| (meaning(&it.metadata), it.spec.clone());
        if old.map(asked) != Some(asked(new)) {
            self.at_once.add("NodeClassChanged", Key::of(new));
        }
        let answered = |it: &EC2NodeClass| {
            let hash = it.metadata.annotations.get(labels::NODECLASS_HASH).cloned();
            let version = it.metadata.annotations.get(labels::NODECLASS_HASH_VERSION).cloned();
            (it.status.clone(), hash, version, it.metadata.deleting())
        };
        if old.map(answered) != Some(answered(new)) {
            self.at_once.add("NodeClassStatusChanged", Key::of(new));
        }
    }

    fn budget(
        &mut self,
        old: Option<&PodDisruptionBudget>,
        new: Option<&PodDisruptionBudget>,
        now: Timestamp,
    ) {
        let Some(budget) = new.or(old) else { return };
        let read = |it: &PodDisruptionBudget| (it.spec.clone(), it.status.disruptions_allowed);
        if old.map(read) == new.map(read) {
            return;
        }
        self.disruption_due(budget, now);
        let allowed = |it: &PodDisruptionBudget| it.status.disruptions_allowed;
        let spec_changed = old.is_some() && old.map(|it| &it.spec) != new.map(|it| &it.spec);
        if spec_changed || new.map(allowed) > old.map(allowed) {
            self.at_once.add("EvictionUnblocked", Key::of(budget));
        }
    }

    fn detached(&mut self, gone: &VolumeAttachment) {
        let node = &gone.spec.node_name;
        if self.nodes.get(node).copied().unwrap_or(true) {
            self.at_once.add("VolumeDetached", named(Node::KIND, node));
        }
    }

    fn pool_counts(&mut self, of: &ObjectMeta) {
        if let Some(pool) = of.label(labels::NODEPOOL) {
            self.at_once.add("PoolCountsChanged", named(NodePool::KIND, pool));
        }
    }

    fn provision_now<K: Kind>(&mut self, detail_type: &'static str, object: &K) {
        self.at_once.add(detail_type, Key::of(object));
    }

    fn provision_due<K: Kind>(&mut self, object: Option<&K>, now: Timestamp) {
        if let Some(object) = object {
            self.provision.add_newest("ProvisionDue", Key::of(object));
            self.provision_window.trigger(&object.meta().uid, now);
        }
    }

    fn disruption_due<K: Kind>(&mut self, object: &K, now: Timestamp) {
        self.disruption.add_newest("DisruptionDue", Key::of(object));
        self.disruption_window.trigger(&object.meta().uid, now);
    }

    fn both_solvers<K: Kind>(
        &mut self,
        old: &Option<Arc<K>>,
        new: &Option<Arc<K>>,
        now: Timestamp,
    ) {
        if let Some(object) = either(old, new) {
            self.provision_due(Some(object), now);
            self.disruption_due(object, now);
        }
    }
}

impl Keys {
    /// A command may wait for this claim.
    fn add_command_key(&mut self, key: Key) {
        self.add("CommandProgressed", key);
    }
}

/// When the scheduler bound the pod; one that was created bound, when it was created.
fn bound_at(pod: &Pod) -> Option<Timestamp> {
    let scheduled = pod.condition("PodScheduled").filter(|it| it.status == "True");
    scheduled.and_then(|it| it.last_transition_time).or(pod.metadata.creation_timestamp)
}

/// When one of its conditions last changed: at its end, the container conditions do.
fn last_transition(pod: &Pod) -> Option<Timestamp> {
    pod.status.conditions.iter().filter_map(|it| it.last_transition_time).max()
}

/// The deletion time is that of the request plus the grace period.
fn deletion_requested(pod: &Pod) -> Option<Timestamp> {
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0).clamp(0, 86_400 * 365);
    pod.metadata.deletion_timestamp?.checked_sub(SignedDuration::from_secs(grace)).ok()
}

/// What of a claim lifecycle reads and does not only write itself.
fn for_lifecycle(claim: &NodeClaim) -> impl PartialEq + use<> {
    let written_by_others = |key: &String| {
        ![labels::TAGGED, labels::CLUSTER_NAME_TAGGED, labels::LAUNCH_ATTEMPT]
            .contains(&key.as_str())
    };
    let mut meta = meaning(&claim.metadata);
    meta.annotations.retain(|key, _| written_by_others(key));
    let status_of = |type_: &str| -> Option<ConditionStatus> {
        claim.condition(type_).map(|it: &Condition| it.status)
    };
    let status = &claim.status;
    (
        meta,
        claim.spec.clone(),
        (status.node_name.clone(), status.provider_id.clone(), status.image_id.clone()),
        (status.capacity.clone(), status.allocatable.clone()),
        [NodeClaim::LAUNCHED, NodeClaim::REGISTERED, NodeClaim::INITIALIZED].map(status_of),
    )
}

fn is_tagged(claim: &NodeClaim) -> bool {
    let done = |key: &str| claim.metadata.annotation(key) == Some("true");
    done(labels::TAGGED) && done(labels::CLUSTER_NAME_TAGGED)
}

/// Whether termination waits for its pods: it is being deleted, or is not ours and has our taint, as a node has whose
/// Auto Scaling group lets it go.
fn is_draining(node: &Node) -> bool {
    let is_ours = node.metadata.label(labels::NODEPOOL).is_some();
    node.metadata.deleting() || (!is_ours && is_disrupted(node))
}

fn is_disrupted(node: &Node) -> bool {
    let disrupted = |it: &spokeshave_model::Taint| {
        it.key == labels::DISRUPTED_TAINT && it.effect == TaintEffect::NoSchedule
    };
    node.spec.taints.iter().any(disrupted)
}

/// Metadata without what changes with every write: resource version, generation, managed fields.
fn meaning(meta: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        resource_version: String::new(),
        generation: 0,
        rest: BTreeMap::new(),
        ..meta.clone()
    }
}

/// The key of an object of which only the name is known.
fn named(kind: &str, name: &str) -> Key {
    Key { kind: kind.to_owned(), name: name.to_owned(), ..Key::default() }
}

fn either<'a, K>(old: &'a Option<Arc<K>>, new: &'a Option<Arc<K>>) -> Option<&'a K> {
    new.as_deref().or(old.as_deref())
}

fn differs<K, T: PartialEq>(
    old: &Option<Arc<K>>,
    new: &Option<Arc<K>>,
    read: impl Fn(&K) -> T,
) -> bool {
    old.as_deref().map(&read) != new.as_deref().map(&read)
}
