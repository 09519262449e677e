//! What a pass reads: nodes joined with their claims, pools with their instance types, pods and budgets.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{
    CapacityType, InstanceType, Kind, NodeClaim, NodePool, Resources, Settings, Taint, Uid,
    core::{Node, Pod, PodDisruptionBudget},
    labels,
    meta::StringMap,
    pod_classes::PodDisruptionBudgets,
};
use spokeshave_scheduling::{ClusterView, PoolInput};

/// The longest nomination that a node is protected for, at least. Source: Karpenter 1.x.
pub const LEAST_NOMINATION: SignedDuration = SignedDuration::from_secs(10);

/// How long a node that pods were assigned to is left alone: twice the batch window, at least 10 s.
pub fn nomination_window(settings: &Settings) -> SignedDuration {
    LEAST_NOMINATION.max(settings.batch_max_duration * 2)
}

/// A Node and the NodeClaim with the same provider id, or one of them alone.
#[derive(Clone, Debug, Default)]
pub struct StateNode {
    pub node: Option<Arc<Node>>,
    /// Only claims that are ours.
    pub claim: Option<Arc<NodeClaim>>,
    /// Pods bound to the node, whatever their phase, sorted by key.
    pub pods: Vec<Arc<Pod>>,
    /// Requests of those that are not finished.
    pub requests: Resources,
    /// A stored command under way has it as a candidate.
    pub in_command: bool,
    /// That command has come to where its candidates count as going (lifecycle 25.1, step 4).
    pub marked: bool,
    /// Pods were assigned to it; the protection ends at this moment.
    pub nominated_until: Option<Timestamp>,
    /// Placeholder pods of a CapacityBuffer were placed on it.
    pub holds_buffer: bool,
}

impl StateNode {
    /// The Node's name, or the claim's while there is no Node.
    pub fn name(&self) -> &str {
        match (&self.node, &self.claim) {
            (Some(node), _) => node.name(),
            (None, Some(claim)) => claim.name(),
            (None, None) => "",
        }
    }

    /// Registered: what is said of the node is read from the Node, before that from the claim.
    pub fn is_registered(&self) -> bool {
        self.node.as_ref().is_some_and(|node| {
            self.claim.is_none() || node.metadata.label(labels::REGISTERED) == Some("true")
        })
    }

    /// A node of ours is initialized when its label says so; a foreign one always.
    pub fn is_initialized(&self) -> bool {
        self.node.as_ref().is_some_and(|node| {
            self.claim.is_none() || node.metadata.label(labels::INITIALIZED) == Some("true")
        })
    }

    fn metadata(&self) -> Option<&spokeshave_model::ObjectMeta> {
        let reads_node = self
            .node
            .as_ref()
            .is_some_and(|node| node.metadata.labels.contains_key(labels::REGISTERED));
        match (&self.node, &self.claim) {
            (Some(node), None) => Some(&node.metadata),
            (Some(node), Some(_)) if reads_node => Some(&node.metadata),
            (_, Some(claim)) => Some(&claim.metadata),
            (None, None) => None,
        }
    }

    /// A label of the joined view.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata()?.label(key)
    }

    /// All labels of the joined view.
    pub fn labels(&self) -> Option<&StringMap> {
        self.metadata().map(|it| &it.labels)
    }

    /// An annotation of the joined view.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata()?.annotation(key)
    }

    /// The pool by the joined view's label, empty when there is none.
    pub fn pool(&self) -> &str {
        self.label(labels::NODEPOOL).unwrap_or_default()
    }

    /// Marked by a command, or its claim is being deleted or its instance terminated.
    pub fn is_marked_for_deletion(&self) -> bool {
        self.marked
            || self.claim.as_ref().is_some_and(|claim| {
                claim.metadata.deleting() || claim.is_true(NodeClaim::INSTANCE_TERMINATING)
            })
    }

    /// Counts among the pool's nodes of which a budget takes its share (lifecycle 17.1).
    pub fn is_counted(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| !claim.is_true(NodeClaim::INSTANCE_TERMINATING))
            && self.is_initialized()
    }

    /// Uses up a budget: on its way out, or not Ready.
    pub fn is_disrupting(&self) -> bool {
        self.is_counted()
            && (self.is_marked_for_deletion()
                || self.in_command
                || !self.node.as_ref().is_some_and(|node| node.is_ready()))
    }

    /// Whether the Node carries the disrupted taint.
    pub fn has_disrupted_taint(&self) -> bool {
        let taint = spokeshave_model::pod_classes::disrupted_taint();
        self.node.as_ref().is_some_and(|node| has_taint(&node.spec.taints, &taint))
    }

    /// The UID of the claim.
    pub fn claim_uid(&self) -> Option<&Uid> {
        self.claim.as_ref().map(|claim| &claim.metadata.uid)
    }
}

pub(crate) fn has_taint(taints: &[Taint], taint: &Taint) -> bool {
    taints.iter().any(|it| it.matches(taint))
}

/// A managed NodePool with what it can buy.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    pub nodepool: Arc<NodePool>,
    /// `karpenter.sh/nodepool-hash` of this copy of the pool.
    pub hash: String,
    /// What its class offers, not filtered by the pool's requirements. Empty: unknown, or the class is not usable.
    pub instance_types: Arc<[Arc<InstanceType>]>,
}

impl From<&PoolInput> for Pool {
    fn from(input: &PoolInput) -> Self {
        Self {
            nodepool: Arc::clone(&input.nodepool),
            hash: input.hash.clone(),
            instance_types: input.instance_types.clone().unwrap_or_default(),
        }
    }
}

/// When and whether a pool's nodes are consolidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsolidateAfter {
    Never,
    /// Quiet for this long; zero: at once.
    After(SignedDuration),
}

/// `consolidationPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    WhenEmpty,
    #[default]
    WhenEmptyOrUnderutilized,
    Balanced,
}

impl Policy {
    /// As the NodePool spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WhenEmpty => "WhenEmpty",
            Self::WhenEmptyOrUnderutilized => "WhenEmptyOrUnderutilized",
            Self::Balanced => "Balanced",
        }
    }

    /// As metric labels spell it.
    pub const fn snake_case(self) -> &'static str {
        match self {
            Self::WhenEmpty => "when_empty",
            Self::WhenEmptyOrUnderutilized => "when_empty_or_underutilized",
            Self::Balanced => "balanced",
        }
    }
}

impl Pool {
    pub fn name(&self) -> &str {
        self.nodepool.name()
    }

    /// CRD default 0s. A text that is no duration counts as 0s.
    pub fn consolidate_after(&self) -> ConsolidateAfter {
        let set =
            self.nodepool.spec.disruption.as_ref().and_then(|it| it.consolidate_after.as_ref());
        match set {
            Some(it) if it.is_never() => ConsolidateAfter::Never,
            Some(it) => ConsolidateAfter::After(it.get().unwrap_or_default()),
            None => ConsolidateAfter::After(SignedDuration::ZERO),
        }
    }

    pub fn policy(&self) -> Policy {
        let set = self
            .nodepool
            .spec
            .disruption
            .as_ref()
            .and_then(|it| it.consolidation_policy.as_deref());
        match set {
            Some("WhenEmpty") => Policy::WhenEmpty,
            Some("Balanced") => Policy::Balanced,
            _ => Policy::WhenEmptyOrUnderutilized,
        }
    }

    /// An instance type by name.
    pub fn instance_type(&self, name: &str) -> Option<&Arc<InstanceType>> {
        self.instance_types.iter().find(|it| it.name == name)
    }
}

/// Everything one pass reads, at one moment.
#[derive(Clone, Debug)]
pub struct View {
    pub now: Timestamp,
    pub settings: Settings,
    /// Sorted by name.
    pub nodes: Vec<StateNode>,
    /// Managed pools by name.
    pub pools: BTreeMap<String, Pool>,
    /// All PodDisruptionBudgets.
    pub pdbs: Vec<Arc<PodDisruptionBudget>>,
    /// Pools whose drifted nodes are left alone until a moment, since their replacements failed.
    pub drift_held: BTreeMap<String, Timestamp>,
    /// Pools that have claims which are being launched: what those will hold is not known, and nodes of these pools stay.
    ///
    /// DIFFERENCE: in Karpenter one such claim anywhere holds all disruption.
    pub launching: BTreeSet<String>,
}

impl View {
    /// What disruption reads of `cluster`. Commands, nominations and buffers are noted by the caller.
    pub fn new(
        cluster: &ClusterView,
        pools: &[PoolInput],
        settings: &Settings,
        now: Timestamp,
    ) -> Self {
        let nodes: Vec<Arc<Node>> = cluster.nodes.values().cloned().collect();
        let claims: Vec<Arc<NodeClaim>> = cluster.claims.values().cloned().collect();
        let pods_on = |node: &str| {
            let here = cluster.pods_on(node)?;
            Some((here.pods.values().cloned().collect(), here.requests.clone()))
        };
        Self {
            now,
            settings: settings.clone(),
            nodes: join(&nodes, &claims, pods_on),
            pools: pools
                .iter()
                .filter(|it| it.nodepool.is_managed())
                .map(|it| (it.nodepool.name().to_owned(), Pool::from(it)))
                .collect(),
            pdbs: cluster.budgets.values().cloned().collect(),
            drift_held: BTreeMap::new(),
            launching: BTreeSet::new(),
        }
    }

    /// The PodDisruptionBudgets, indexed.
    pub fn pod_disruption_budgets(&self) -> PodDisruptionBudgets<'_> {
        self.pdbs.iter().map(Arc::as_ref).collect()
    }

    /// Managed claims that have no provider id yet: while one is launching, its capacity is not known.
    pub fn unlaunched(&self) -> impl Iterator<Item = &StateNode> {
        self.nodes.iter().filter(|it| {
            it.claim.as_ref().is_some_and(|claim| {
                claim.status.provider_id.is_empty() && !claim.metadata.deleting()
            })
        })
    }
}

/// Joins nodes and claims by provider id, and gives each node the pods that are bound to it, and what the unfinished ones
/// request.
///
/// An empty provider id matches nothing. Several nodes with one provider id stay without a claim but the first, by
/// name; the claim of the second and later ones counts as foreign. Claims that are not ours are left out.
pub fn join(
    nodes: &[Arc<Node>],
    claims: &[Arc<NodeClaim>],
    pods_on: impl Fn(&str) -> Option<(Vec<Arc<Pod>>, Resources)>,
) -> Vec<StateNode> {
    let mut by_provider: BTreeMap<&str, &Arc<NodeClaim>> = BTreeMap::new();
    for claim in claims.iter().filter(|it| it.is_managed()) {
        let id = claim.status.provider_id.as_str();
        if !id.is_empty() {
            by_provider.entry(id).or_insert(claim);
        }
    }
    let mut joined: Vec<StateNode> = Vec::with_capacity(nodes.len());
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    for node in nodes {
        let claim = by_provider
            .remove(node.spec.provider_id.as_str())
            .inspect(|it| {
                taken.insert(it.name());
            })
            .cloned();
        let (pods, requests) = pods_on(node.name()).unwrap_or_default();
        joined.push(StateNode {
            pods,
            requests,
            node: Some(Arc::clone(node)),
            claim,
            ..StateNode::default()
        });
    }
    for claim in claims.iter().filter(|it| it.is_managed() && !taken.contains(it.name())) {
        joined.push(StateNode { claim: Some(Arc::clone(claim)), ..StateNode::default() });
    }
    joined.sort_by(|a, b| a.name().cmp(b.name()));
    joined
}

/// The capacity type that a label names.
pub(crate) fn capacity_type(label: Option<&str>) -> Option<CapacityType> {
    CapacityType::parse(label?)
}
