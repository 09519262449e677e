//! The cluster as the solver sees it: nodes and claims joined, pods by node, and what pods refer to
//! (`spec` scheduling 18).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};
use spokeshave_model::{
    CapacityBuffer, EC2NodeClass, Kind, NodeClaim, NodeOverlay, NodePool, ObjectKey, Quantity,
    Resources, Taint, TaintEffect,
    core::{
        CSINode, DaemonSet, Deployment, LimitRange, Namespace, Node, PersistentVolume,
        PersistentVolumeClaim, Pod, PodDisruptionBudget, PodTemplate, ReplicaSet,
        ReplicationController, Service, StatefulSet, StorageClass,
    },
    labels,
    meta::StringMap,
    pod_classes,
    resources::NODES,
};

use crate::{
    ports::{HostPort, host_ports},
    requests::pod_requests,
};

/// The taint of a cordoned node.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// An object that the view keeps.
#[derive(Clone, Debug)]
pub enum Object {
    Node(Arc<Node>),
    NodeClaim(Arc<NodeClaim>),
    NodePool(Arc<NodePool>),
    EC2NodeClass(Arc<EC2NodeClass>),
    NodeOverlay(Arc<NodeOverlay>),
    CapacityBuffer(Arc<CapacityBuffer>),
    Pod(Arc<Pod>),
    PodTemplate(Arc<PodTemplate>),
    DaemonSet(Arc<DaemonSet>),
    Deployment(Arc<Deployment>),
    ReplicaSet(Arc<ReplicaSet>),
    ReplicationController(Arc<ReplicationController>),
    StatefulSet(Arc<StatefulSet>),
    Service(Arc<Service>),
    PersistentVolume(Arc<PersistentVolume>),
    PersistentVolumeClaim(Arc<PersistentVolumeClaim>),
    StorageClass(Arc<StorageClass>),
    CSINode(Arc<CSINode>),
    PodDisruptionBudget(Arc<PodDisruptionBudget>),
    Namespace(Arc<Namespace>),
    LimitRange(Arc<LimitRange>),
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub enum Change {
    /// It was created or changed; this is its newest form.
    Put(Object),
    /// It is gone.
    Delete(&'static str, ObjectKey),
}

/// A kind that the view keeps, and where it keeps it.
pub trait Kept: Kind + PartialEq + Sized {
    /// The object as the view has it.
    fn kept<'a>(view: &'a ClusterView, key: &ObjectKey) -> Option<&'a Arc<Self>>;
    /// The keys of all objects of the kind.
    fn keys(view: &ClusterView) -> Vec<ObjectKey>;
    /// How many there are.
    fn count(view: &ClusterView) -> usize;
}

macro_rules! from_kind {
    ($($kind:ident),*) => {$(
        impl From<Arc<$kind>> for Object {
            fn from(object: Arc<$kind>) -> Self {
                Self::$kind(object)
            }
        }
    )*};
}
from_kind!(Pod);

macro_rules! kept {
    ($($kind:ident: $field:ident),* $(,)?) => {
        from_kind!($($kind),*);
        $(
            impl Kept for $kind {
                fn kept<'a>(view: &'a ClusterView, key: &ObjectKey) -> Option<&'a Arc<Self>> {
                    view.$field.get(key)
                }
                fn keys(view: &ClusterView) -> Vec<ObjectKey> {
                    view.$field.keys().cloned().collect()
                }
                fn count(view: &ClusterView) -> usize {
                    view.$field.len()
                }
            }
        )*
    };
}
kept!(
    Node: nodes,
    NodeClaim: claims,
    NodePool: nodepools,
    EC2NodeClass: node_classes,
    NodeOverlay: overlays,
    CapacityBuffer: buffers,
    PodTemplate: pod_templates,
    DaemonSet: daemon_sets,
    Deployment: deployments,
    ReplicaSet: replica_sets,
    ReplicationController: replication_controllers,
    StatefulSet: stateful_sets,
    Service: services,
    PersistentVolume: volumes,
    PersistentVolumeClaim: volume_claims,
    StorageClass: storage_classes,
    CSINode: csi_nodes,
    PodDisruptionBudget: budgets,
    Namespace: namespaces,
    LimitRange: limit_ranges,
);

impl Kept for Pod {
    fn kept<'a>(view: &'a ClusterView, key: &ObjectKey) -> Option<&'a Arc<Self>> {
        view.pod(key)
    }
    fn keys(view: &ClusterView) -> Vec<ObjectKey> {
        view.unbound.keys().chain(view.node_of_pod.keys()).cloned().collect()
    }
    fn count(view: &ClusterView) -> usize {
        view.unbound.len() + view.node_of_pod.len()
    }
}

/// Objects of one kind by key.
pub type Objects<K> = BTreeMap<ObjectKey, Arc<K>>;

/// The pods bound to one node, and their sums.
#[derive(Clone, Debug, Default)]
pub struct NodePods {
    /// All of them, finished ones included.
    pub pods: BTreeMap<ObjectKey, Arc<Pod>>,
    /// Requests of those that are not finished; terminating ones count.
    pub requests: Resources,
    /// The part of `requests` that DaemonSet pods have.
    pub daemon_requests: Resources,
    /// Host ports of those that are not finished.
    pub(crate) ports: Vec<HostPort>,
    /// The node's number.
    number: u32,
}

/// Pods that look alike to selectors: namespace and labels.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabelClass {
    pub(crate) namespace: String,
    pub(crate) labels: StringMap,
    /// How many countable pods (bound, neither finished nor terminating) each node has, by number.
    pub(crate) by_node: FxHashMap<u32, u32>,
}

/// One entry of the cluster state: a Node, a launched claim, or both joined by provider id.
#[derive(Clone, Debug, Default)]
pub struct StateNode {
    pub node: Option<Arc<Node>>,
    pub claim: Option<Arc<NodeClaim>>,
    /// A disruption command has chosen it.
    pub marked: bool,
    /// Not to be disrupted before this time.
    pub nominated_until: Option<Timestamp>,
}

impl StateNode {
    /// Has a claim.
    pub fn is_managed(&self) -> bool {
        self.claim.is_some()
    }

    fn node_label_true(&self, key: &str) -> bool {
        self.node.as_ref().is_some_and(|it| it.metadata.label(key) == Some("true"))
    }

    /// Unmanaged nodes count as registered.
    pub fn is_registered(&self) -> bool {
        !self.is_managed() || self.node_label_true(labels::REGISTERED)
    }

    /// Unmanaged nodes count as initialized.
    pub fn is_initialized(&self) -> bool {
        !self.is_managed() || self.node_label_true(labels::INITIALIZED)
    }

    /// The claim's until registered, then the Node's.
    pub fn name(&self) -> &str {
        match (&self.node, &self.claim) {
            (Some(node), _) if self.is_registered() => &node.metadata.name,
            (_, Some(claim)) => &claim.metadata.name,
            (Some(node), None) => &node.metadata.name,
            (None, None) => "",
        }
    }

    /// The Node's name; empty while there is none.
    pub fn node_name(&self) -> &str {
        self.node.as_ref().map_or("", |it| &it.metadata.name)
    }

    /// The claim's name; empty for unmanaged nodes.
    pub fn claim_name(&self) -> &str {
        self.claim.as_ref().map_or("", |it| &it.metadata.name)
    }

    /// The claim's until registered, then the Node's.
    pub fn labels(&self) -> &StringMap {
        static EMPTY: StringMap = StringMap::new();
        match (&self.node, &self.claim) {
            (Some(node), _) if self.is_registered() => &node.metadata.labels,
            (_, Some(claim)) => &claim.metadata.labels,
            (Some(node), None) => &node.metadata.labels,
            (None, None) => &EMPTY,
        }
    }

    /// The claim's until registered, then the Node's.
    pub fn annotations(&self) -> &StringMap {
        static EMPTY: StringMap = StringMap::new();
        match (&self.node, &self.claim) {
            (Some(node), _) if self.is_registered() => &node.metadata.annotations,
            (_, Some(claim)) => &claim.metadata.annotations,
            (Some(node), None) => &node.metadata.annotations,
            (None, None) => &EMPTY,
        }
    }

    /// The host name label, else the name.
    pub fn host_name(&self) -> &str {
        self.labels().get(labels::HOSTNAME).map_or_else(|| self.name(), String::as_str)
    }

    /// The pool by label.
    pub fn nodepool(&self) -> Option<&str> {
        self.labels().get(labels::NODEPOOL).map(String::as_str)
    }

    /// The taints that count (`spec` scheduling 4). A cordoned node counts as tainted.
    ///
    /// DIFFERENCE: Karpenter looks at the taint alone, which comes a moment after the cordon; kube-scheduler looks at both.
    pub fn taints(&self) -> Vec<Taint> {
        let mut taints = match (&self.node, &self.claim) {
            (Some(node), _) if self.is_registered() => node.spec.taints.clone(),
            (_, Some(claim)) => claim.spec.taints.clone(),
            (Some(node), None) => node.spec.taints.clone(),
            (None, None) => Vec::new(),
        };
        if self.node.as_ref().is_some_and(|it| it.spec.unschedulable)
            && !taints.iter().any(|it| it.key == CORDONED)
        {
            taints.push(Taint::new(CORDONED, "", TaintEffect::NoSchedule));
        }
        if let Some(claim) = &self.claim
            && !self.is_initialized()
        {
            taints.retain(|taint| {
                !is_ephemeral(taint)
                    && !claim.spec.startup_taints.iter().any(|it| it.matches(taint))
            });
        }
        taints
    }

    fn resources(&self, of_node: impl Fn(&Node) -> &Resources, of_claim: &Resources) -> Resources {
        match &self.node {
            Some(node) if self.is_initialized() => of_node(node).clone(),
            Some(node) => {
                let mut merged = of_node(node).clone();
                for (name, amount) in of_claim.iter() {
                    if merged.get(name).is_zero() {
                        merged.set(name, amount);
                    }
                }
                merged
            }
            None => of_claim.clone(),
        }
    }

    /// What the node has, `nodes: 1` included.
    pub fn capacity(&self) -> Resources {
        let empty = Resources::new();
        let of_claim = self.claim.as_ref().map_or(&empty, |it| &it.status.capacity);
        self.resources(|it| &it.status.capacity, of_claim).with(NODES, Quantity::units(1))
    }

    /// What pods may use.
    pub fn allocatable(&self) -> Resources {
        let empty = Resources::new();
        let of_claim = self.claim.as_ref().map_or(&empty, |it| &it.status.allocatable);
        self.resources(|it| &it.status.allocatable, of_claim)
    }

    /// It is going away: no destination, and its pods need a place (`spec` scheduling 18.3).
    pub fn is_marked_for_deletion(&self) -> bool {
        if self.marked {
            return true;
        }
        match (&self.claim, &self.node) {
            (Some(claim), _) => {
                claim.metadata.deleting() || claim.is_true(NodeClaim::INSTANCE_TERMINATING)
            }
            (None, Some(node)) => node.metadata.deleting(),
            (None, None) => true,
        }
    }

    /// Received a pod not long ago, which has yet to be bound.
    pub fn is_nominated(&self, now: Timestamp) -> bool {
        self.nominated_until.is_some_and(|until| now < until)
    }
}

/// Taints that go away while a node starts.
fn is_ephemeral(taint: &Taint) -> bool {
    use TaintEffect::{NoExecute, NoSchedule};
    match (taint.key.as_str(), taint.effect) {
        ("node.kubernetes.io/not-ready", NoSchedule | NoExecute)
        | ("node.kubernetes.io/unreachable", NoSchedule)
        | ("node.cloudprovider.kubernetes.io/uninitialized", NoSchedule)
        | (labels::UNREGISTERED_TAINT, NoExecute) => true,
        (key, _) => key.starts_with("readiness.k8s.io/"),
    }
}

/// Every object that planning reads, joined and summed. Can be changed object by object.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    pub nodes: Objects<Node>,
    pub claims: Objects<NodeClaim>,
    pub nodepools: Objects<NodePool>,
    pub node_classes: Objects<EC2NodeClass>,
    pub overlays: Objects<NodeOverlay>,
    pub buffers: Objects<CapacityBuffer>,
    pub pod_templates: Objects<PodTemplate>,
    pub daemon_sets: Objects<DaemonSet>,
    pub deployments: Objects<Deployment>,
    pub replica_sets: Objects<ReplicaSet>,
    pub replication_controllers: Objects<ReplicationController>,
    pub stateful_sets: Objects<StatefulSet>,
    pub services: Objects<Service>,
    pub volumes: Objects<PersistentVolume>,
    pub volume_claims: Objects<PersistentVolumeClaim>,
    pub storage_classes: Objects<StorageClass>,
    pub csi_nodes: Objects<CSINode>,
    pub budgets: Objects<PodDisruptionBudget>,
    pub namespaces: Objects<Namespace>,
    pub limit_ranges: Objects<LimitRange>,
    /// Pods that are not bound.
    pub unbound: Objects<Pod>,
    by_node: FxHashMap<Arc<str>, NodePods>,
    /// Nodes that have had pods, numbered as they came.
    numbers: FxHashMap<Arc<str>, u32>,
    node_of_pod: FxHashMap<ObjectKey, Arc<str>>,
    classes: Vec<LabelClass>,
    class_index: FxHashMap<(String, StringMap), u32>,
    /// Bound, unfinished pods with required anti-affinity.
    pub(crate) repellers: BTreeSet<ObjectKey>,
    /// DaemonSet pods by the name of their DaemonSet.
    daemon_pods: FxHashMap<ObjectKey, BTreeSet<ObjectKey>>,
    marked: FxHashSet<String>,
    nominated: FxHashMap<String, Timestamp>,
}

impl ClusterView {
    /// A view of these objects.
    pub fn new(objects: impl IntoIterator<Item = Object>) -> Self {
        let mut view = Self::default();
        for object in objects {
            view.apply(Change::Put(object));
        }
        view
    }

    /// Follows one change.
    pub fn apply(&mut self, change: Change) {
        fn put<K: Kind>(into: &mut Objects<K>, object: Arc<K>) {
            into.insert(object.key(), object);
        }
        match change {
            Change::Put(object) => match object {
                Object::Node(it) => put(&mut self.nodes, it),
                Object::NodeClaim(it) => put(&mut self.claims, it),
                Object::NodePool(it) => put(&mut self.nodepools, it),
                Object::EC2NodeClass(it) => put(&mut self.node_classes, it),
                Object::NodeOverlay(it) => put(&mut self.overlays, it),
                Object::CapacityBuffer(it) => put(&mut self.buffers, it),
                Object::PodTemplate(it) => put(&mut self.pod_templates, it),
                Object::DaemonSet(it) => put(&mut self.daemon_sets, it),
                Object::Deployment(it) => put(&mut self.deployments, it),
                Object::ReplicaSet(it) => put(&mut self.replica_sets, it),
                Object::ReplicationController(it) => put(&mut self.replication_controllers, it),
                Object::StatefulSet(it) => put(&mut self.stateful_sets, it),
                Object::Service(it) => put(&mut self.services, it),
                Object::PersistentVolume(it) => put(&mut self.volumes, it),
                Object::PersistentVolumeClaim(it) => put(&mut self.volume_claims, it),
                Object::StorageClass(it) => put(&mut self.storage_classes, it),
                Object::CSINode(it) => put(&mut self.csi_nodes, it),
                Object::PodDisruptionBudget(it) => put(&mut self.budgets, it),
                Object::Namespace(it) => put(&mut self.namespaces, it),
                Object::LimitRange(it) => put(&mut self.limit_ranges, it),
                Object::Pod(it) => {
                    self.remove_pod(&it.key());
                    self.put_pod(it);
                }
            },
            Change::Delete(kind, key) => match kind {
                Node::KIND => drop(self.nodes.remove(&key)),
                NodeClaim::KIND => drop(self.claims.remove(&key)),
                NodePool::KIND => drop(self.nodepools.remove(&key)),
                EC2NodeClass::KIND => drop(self.node_classes.remove(&key)),
                NodeOverlay::KIND => drop(self.overlays.remove(&key)),
                CapacityBuffer::KIND => drop(self.buffers.remove(&key)),
                PodTemplate::KIND => drop(self.pod_templates.remove(&key)),
                DaemonSet::KIND => drop(self.daemon_sets.remove(&key)),
                Deployment::KIND => drop(self.deployments.remove(&key)),
                ReplicaSet::KIND => drop(self.replica_sets.remove(&key)),
                ReplicationController::KIND => drop(self.replication_controllers.remove(&key)),
                StatefulSet::KIND => drop(self.stateful_sets.remove(&key)),
                Service::KIND => drop(self.services.remove(&key)),
                PersistentVolume::KIND => drop(self.volumes.remove(&key)),
                PersistentVolumeClaim::KIND => drop(self.volume_claims.remove(&key)),
                StorageClass::KIND => drop(self.storage_classes.remove(&key)),
                CSINode::KIND => drop(self.csi_nodes.remove(&key)),
                PodDisruptionBudget::KIND => drop(self.budgets.remove(&key)),
                Namespace::KIND => drop(self.namespaces.remove(&key)),
                LimitRange::KIND => drop(self.limit_ranges.remove(&key)),
                Pod::KIND => self.remove_pod(&key),
                _ => {}
            },
        }
    }

    /// Makes the view's objects of one kind those of `list`, which has each once. Only what differs costs anything beyond a
    /// look. Returns how many objects were put or taken away.
    pub fn follow<K: Kept>(&mut self, list: &[Arc<K>]) -> usize
    where
        Object: From<Arc<K>>,
    {
        let mut n_changes = 0;
        for object in list {
            let kept = K::kept(self, &object.key());
            // Versions of different clusters can be equal, so the objects are compared as well.
            let same = kept.is_some_and(|it| {
                Arc::ptr_eq(it, object)
                    || (it.meta().resource_version == object.meta().resource_version
                        && it == object)
            });
            if !same {
                self.apply(Change::Put(Object::from(Arc::clone(object))));
                n_changes += 1;
            }
        }
        if K::count(self) != list.len() {
            let there: FxHashSet<ObjectKey> = list.iter().map(|it| it.key()).collect();
            for key in K::keys(self).into_iter().filter(|it| !there.contains(it)) {
                self.apply(Change::Delete(K::KIND, key));
                n_changes += 1;
            }
        }
        n_changes
    }

    fn put_pod(&mut self, pod: Arc<Pod>) {
        let key = pod.key();
        if pod.is_daemon()
            && let Some(owner) =
                pod.metadata.owner_references.iter().find(|it| it.kind == "DaemonSet")
        {
            let owner = ObjectKey::namespaced(&key.namespace, &owner.name);
            self.daemon_pods.entry(owner).or_default().insert(key.clone());
        }
        if !pod.is_bound() {
            self.unbound.insert(key, pod);
            return;
        }
        let (node, number) = self.numbered(&pod.spec.node_name);
        let here = self.by_node.entry(Arc::clone(&node)).or_default();
        here.number = number;
        if !pod.is_terminal() {
            let requests = pod_requests(&pod);
            here.requests.add(&requests);
            if pod.is_daemon() {
                here.daemon_requests.add(&requests);
            }
            here.ports.extend(host_ports(&pod));
            if !pod.spec.affinity.pod_anti_affinity.required.is_empty() {
                self.repellers.insert(key.clone());
            }
        }
        here.pods.insert(key.clone(), Arc::clone(&pod));
        if is_countable(&pod) {
            let class = self.class_of(&pod);
            *self.classes[class].by_node.entry(number).or_default() += 1;
        }
        self.node_of_pod.insert(key, node);
    }

    fn remove_pod(&mut self, key: &ObjectKey) {
        if let Some(pod) = self.unbound.remove(key) {
            self.forget_daemon_pod(&pod);
        }
        let Some(node) = self.node_of_pod.remove(key) else { return };
        let Some(here) = self.by_node.get_mut(&node) else { return };
        let Some(pod) = here.pods.remove(key) else { return };
        if !pod.is_terminal() {
            let requests = pod_requests(&pod);
            here.requests.subtract(&requests);
            if pod.is_daemon() {
                here.daemon_requests.subtract(&requests);
            }
            if !host_ports(&pod).is_empty() {
                let rest = here.pods.values().filter(|it| !it.is_terminal());
                here.ports = rest.flat_map(|it| host_ports(it)).collect();
            }
        }
        let number = here.number;
        if here.pods.is_empty() {
            self.by_node.remove(&node);
        }
        self.repellers.remove(key);
        if is_countable(&pod) {
            let class = self.class_of(&pod);
            let by_node = &mut self.classes[class].by_node;
            if let Some(count) = by_node.get_mut(&number) {
                *count -= 1;
                if *count == 0 {
                    by_node.remove(&number);
                }
            }
        }
        self.forget_daemon_pod(&pod);
    }

    fn forget_daemon_pod(&mut self, pod: &Pod) {
        for owner in pod.metadata.owner_references.iter().filter(|it| it.kind == "DaemonSet") {
            let owner = ObjectKey::namespaced(&pod.metadata.namespace, &owner.name);
            if let Some(pods) = self.daemon_pods.get_mut(&owner) {
                pods.remove(&pod.key());
            }
        }
    }

    /// The node's name and number, made if it is new.
    fn numbered(&mut self, node: &str) -> (Arc<str>, u32) {
        if let Some((name, number)) = self.numbers.get_key_value(node) {
            return (Arc::clone(name), *number);
        }
        let (name, number): (Arc<str>, u32) = (node.into(), self.numbers.len() as u32);
        self.numbers.insert(Arc::clone(&name), number);
        (name, number)
    }

    /// The number of a node that has, or had, pods.
    pub(crate) fn number_of(&self, node: &str) -> Option<u32> {
        self.numbers.get(node).copied()
    }

    fn class_of(&mut self, pod: &Pod) -> usize {
        let key = (pod.metadata.namespace.clone(), pod.metadata.labels.clone());
        if let Some(at) = self.class_index.get(&key) {
            return *at as usize;
        }
        let at = self.classes.len();
        self.classes.push(LabelClass {
            namespace: key.0.clone(),
            labels: key.1.clone(),
            by_node: FxHashMap::default(),
        });
        self.class_index.insert(key, at as u32);
        at
    }

    pub(crate) fn label_classes(&self) -> &[LabelClass] {
        &self.classes
    }

    /// A pod, bound or not.
    pub fn pod(&self, key: &ObjectKey) -> Option<&Arc<Pod>> {
        if let Some(pod) = self.unbound.get(key) {
            return Some(pod);
        }
        self.by_node.get(self.node_of_pod.get(key)?)?.pods.get(key)
    }

    /// The pods bound to a node.
    pub fn pods_on(&self, node: &str) -> Option<&NodePods> {
        self.by_node.get(node)
    }

    /// Every bound pod, in no particular order.
    pub fn bound_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.by_node.values().flat_map(|it| it.pods.values())
    }

    /// The newest pod of a DaemonSet; ties: the greatest name.
    pub(crate) fn newest_daemon_pod(&self, daemon_set: &ObjectKey) -> Option<&Arc<Pod>> {
        self.daemon_pods
            .get(daemon_set)?
            .iter()
            .filter_map(|key| self.pod(key))
            .max_by_key(|it| (it.metadata.creation_timestamp, it.metadata.name.clone()))
    }

    /// Notes that a disruption command has chosen the node or claim of this name.
    pub fn mark_for_deletion(&mut self, name: &str) {
        self.marked.insert(name.to_owned());
    }

    /// Takes the mark back.
    pub fn unmark(&mut self, name: &str) {
        self.marked.remove(name);
    }

    /// Notes that the node or claim of this name is to receive pods, until `until`.
    pub fn nominate(&mut self, name: &str, until: Timestamp) {
        let noted = self.nominated.entry(name.to_owned()).or_insert(until);
        *noted = (*noted).max(until);
    }

    /// Nodes and launched claims, joined; sorted by [`StateNode::name`].
    ///
    /// A Node of a pool without provider id, and one whose labels are still being copied, is left out, and so is a claim
    /// that has no provider id yet: see [`Self::unlaunched`].
    pub fn state_nodes(&self) -> Vec<StateNode> {
        let mut by_id: FxHashMap<&str, StateNode> = FxHashMap::default();
        let mut rest = Vec::new();
        for claim in self.claims.values().filter(|it| it.is_managed()) {
            if !claim.status.provider_id.is_empty() {
                by_id.entry(claim.status.provider_id.as_str()).or_default().claim =
                    Some(Arc::clone(claim));
            }
        }
        for node in self.nodes.values() {
            let id = node.spec.provider_id.as_str();
            let pooled = node.metadata.label(labels::NODEPOOL).is_some_and(|it| !it.is_empty());
            if id.is_empty() {
                if !pooled {
                    rest.push(StateNode { node: Some(Arc::clone(node)), ..StateNode::default() });
                }
                continue;
            }
            let labels_missing = pooled
                && node.metadata.label(labels::INSTANCE_TYPE).is_none()
                && node.metadata.label(labels::INITIALIZED) != Some("true");
            if !labels_missing {
                by_id.entry(id).or_default().node = Some(Arc::clone(node));
            }
        }
        rest.extend(by_id.into_values());
        for it in &mut rest {
            it.marked =
                self.marked.contains(it.node_name()) || self.marked.contains(it.claim_name());
            it.nominated_until = [it.node_name(), it.claim_name()]
                .iter()
                .filter_map(|name| self.nominated.get(*name).copied())
                .max();
        }
        rest.sort_by(|a, b| (a.name(), a.claim_name()).cmp(&(b.name(), b.claim_name())));
        rest
    }

    /// Whether anything may be marked for deletion: asked before nodes and claims are joined to see what.
    pub(crate) fn has_leaving(&self) -> bool {
        let goes =
            |it: &NodeClaim| it.metadata.deleting() || it.is_true(NodeClaim::INSTANCE_TERMINATING);
        !self.marked.is_empty()
            || self.claims.values().any(|it| goes(it))
            || self.nodes.values().any(|it| it.metadata.deleting())
    }

    /// Claims without a provider id that are not being deleted: ordered, of a size not yet known.
    pub fn unlaunched(&self) -> impl Iterator<Item = &Arc<NodeClaim>> {
        self.claims.values().filter(|it| {
            it.is_managed() && it.status.provider_id.is_empty() && !it.metadata.deleting()
        })
    }
}

/// Whether topology counts the pod: bound, neither finished nor terminating.
fn is_countable(pod: &Pod) -> bool {
    pod.is_bound() && pod_classes::is_active(pod)
}
