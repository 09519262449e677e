//! What a plan says.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use spokeshave_model::{
    CapacityType, InstanceType, NodeClaim, NodePool, ObjectKey, Offering, Operator, OwnerReference,
    Quantity, Requirement, Requirements, Resources,
    core::Pod,
    duration::PlainDuration,
    labels,
    node_claim::{NodeClaimSpec, ResourceRequirements},
    node_pool::NodeClaimTemplate,
};

use crate::{
    shortage::shape_name,
    templates::{Skipped, Template},
};

/// The cheapest thing that a claim can be launched as.
#[derive(Clone, Debug, PartialEq)]
pub struct Cheapest {
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: CapacityType,
    /// Dollars per hour; `None` where nobody knows it.
    pub price: Option<f64>,
}

/// A NodeClaim to be created.
#[derive(Clone, Debug)]
pub struct PlannedClaim {
    pub nodepool: Arc<NodePool>,
    /// `karpenter.sh/nodepool-hash` of the pool as it was planned with.
    pub hash: String,
    /// Everything that the node must meet, instance types and capacity types aside.
    pub requirements: Requirements,
    /// Types that can carry the pods, cheapest first, at most 600.
    pub instance_types: Arc<[Arc<InstanceType>]>,
    /// Capacity types of the offerings that can carry the pods, sorted.
    ///
    /// DIFFERENCE: where offerings of a type override its capacity, only those that hold the pods count; Karpenter takes all
    /// of the type's, and may launch one that the pods do not fit.
    pub capacity_types: Vec<CapacityType>,
    /// In the order in which they were added.
    pub pods: Vec<Arc<Pod>>,
    /// Pods and the least daemon overhead, `pods` included.
    pub requests: Resources,
    /// `minValues` had to be lowered.
    pub min_values_relaxed: bool,
    /// Reservations that were put aside for this claim.
    pub reservations: Vec<String>,
    /// The requirements without what was narrowed for reservations, and the extended resources that its pods want.
    pub(crate) wanted: Arc<Requirements>,
    pub(crate) extended: Vec<String>,
    pub cheapest: Option<Cheapest>,
}

/// Keys that are only true inside a plan.
pub(crate) const SIMULATED: &[&str] = &[labels::REGISTERED, labels::INITIALIZED, labels::HOSTNAME];

impl PlannedClaim {
    /// The requirements that the NodeClaim object gets, by key.
    pub fn claim_requirements(&self) -> Requirements {
        let mut set = self.requirements.clone();
        for key in SIMULATED {
            set.remove(key);
        }
        if !self.instance_types.is_empty() {
            let names = self.instance_types.iter().map(|it| it.name.as_str());
            let mut names = Requirement::new(labels::INSTANCE_TYPE, Operator::In, names);
            names.min_values = set.get(labels::INSTANCE_TYPE).and_then(|it| it.min_values);
            set.replace(names);
            let offered: Vec<&str> = self.capacity_types.iter().map(|it| it.as_str()).collect();
            if !offered.is_empty() {
                set.add(Requirement::new(labels::CAPACITY_TYPE, Operator::In, offered));
            }
        }
        set
    }

    /// What capacity that runs short is remembered by ([`crate::Holds`]).
    pub fn shape(&self) -> String {
        let extended = self.extended.iter().map(String::as_str);
        shape_name(&self.nodepool.metadata.name, &self.wanted, extended)
    }

    /// The labels that the NodeClaim object gets: those of the pool, and a concrete value for every custom key.
    ///
    /// `draw` gives a number from its (inclusive) range, for keys that only have to exist.
    pub fn claim_labels(&self, draw: impl FnMut(i64, i64) -> i64) -> BTreeMap<String, String> {
        with_custom_labels(Template::labels(&self.nodepool), &self.requirements, draw)
    }

    /// The object to create (`spec` scheduling 15). `draw`: see [`Self::claim_labels`].
    pub fn to_node_claim(&self, draw: impl FnMut(i64, i64) -> i64) -> NodeClaim {
        let mut claim = unlabelled_claim(&self.nodepool, &self.hash);
        claim.metadata.labels = self.claim_labels(draw);
        let relaxed = if self.min_values_relaxed { "true" } else { "false" };
        let annotations = &mut claim.metadata.annotations;
        annotations.insert(labels::MIN_VALUES_RELAXED.to_owned(), relaxed.to_owned());
        let offerings = || self.instance_types.iter().flat_map(|it| &it.offerings);
        if offerings().any(|it| it.price_overlaid) {
            annotations.insert(labels::PRICE_OVERLAY_APPLIED.to_owned(), "true".to_owned());
        }
        if offerings().any(|it| it.capacity.is_some()) {
            annotations.insert(labels::CAPACITY_OVERLAY_APPLIED.to_owned(), "true".to_owned());
        }
        annotations.insert(labels::SHAPE.to_owned(), self.shape());
        claim.spec.requirements = self.claim_requirements().to_api();
        claim.spec.resources = ResourceRequirements { requests: self.requests.clone() };
        claim
    }
}

/// Whether requirements allow an offering: what their intersection with [`Offering::requirements`] says, without making
/// those.
pub fn allows(requirements: &Requirements, offering: &Offering) -> bool {
    let has = |key: &str, value: &str| requirements.get(key).is_none_or(|it| it.has(value));
    let absent = |key: &str| requirements.get(key).is_none_or(crate::daemons::absence);
    let partition = offering.partition.map(|it| it.to_string());
    has(labels::CAPACITY_TYPE, offering.capacity_type.as_str())
        && has(labels::ZONE, &offering.zone)
        && (offering.zone_id.is_empty() || has(labels::ZONE_ID, &offering.zone_id))
        && partition.is_none_or(|it| has(labels::PLACEMENT_GROUP_PARTITION, &it))
        && match &offering.reservation {
            Some(it) => {
                let interruptible = if it.interruptible { "true" } else { "false" };
                has(labels::CAPACITY_RESERVATION_ID, &it.id)
                    && has(labels::CAPACITY_RESERVATION_TYPE, &it.type_)
                    && has(labels::CAPACITY_RESERVATION_INTERRUPTIBLE, interruptible)
            }
            None => {
                absent(labels::CAPACITY_RESERVATION_ID)
                    && absent(labels::CAPACITY_RESERVATION_TYPE)
                    && absent(labels::CAPACITY_RESERVATION_INTERRUPTIBLE)
            }
        }
}

/// `all`, and a concrete value for every custom key of `requirements`: what nodes are later held against the pool's requirements by.
fn with_custom_labels(
    mut all: BTreeMap<String, String>,
    requirements: &Requirements,
    mut draw: impl FnMut(i64, i64) -> i64,
) -> BTreeMap<String, String> {
    for requirement in requirements.iter() {
        let key = requirement.key.as_str();
        if labels::is_well_known(key) || SIMULATED.contains(&key) || all.contains_key(key) {
            continue;
        }
        if let Some(value) = any(requirement, &mut draw) {
            all.insert(key.to_owned(), value);
        }
    }
    all
}

/// The claim that a pool's template alone makes: what static pools create (`spec` scheduling 22, api 7).
///
/// `draw`: see [`PlannedClaim::claim_labels`].
pub fn claim_of_pool(pool: &NodePool, hash: &str, draw: impl FnMut(i64, i64) -> i64) -> NodeClaim {
    let mut claim = unlabelled_claim(pool, hash);
    let mut requirements = Requirements::from_api(&pool.spec.template.spec.requirements);
    let labels = Template::labels(pool);
    requirements.add_all(&Requirements::from_labels(&labels));
    claim.spec.requirements = requirements.to_api();
    claim.metadata.labels = with_custom_labels(labels, &requirements, draw);
    claim
}

/// What all claims of a pool have in common; durations as Karpenter writes them (`spec` api 2).
fn unlabelled_claim(pool: &NodePool, hash: &str) -> NodeClaim {
    let NodeClaimTemplate { metadata, spec } = &pool.spec.template;
    let mut claim = NodeClaim::default();
    claim.metadata.generate_name = format!("{}-", pool.metadata.name);
    claim.metadata.annotations = metadata.annotations.clone().into_inner();
    let annotations = &mut claim.metadata.annotations;
    annotations.insert(labels::NODEPOOL_HASH.to_owned(), hash.to_owned());
    annotations.insert(labels::NODEPOOL_HASH_VERSION.to_owned(), "v3".to_owned());
    claim.metadata.owner_references = vec![OwnerReference {
        api_version: "karpenter.sh/v1".into(),
        kind: "NodePool".into(),
        name: pool.metadata.name.clone(),
        uid: pool.metadata.uid.clone(),
        controller: None,
        block_owner_deletion: Some(true),
    }];
    claim.spec = NodeClaimSpec {
        node_class_ref: spec.node_class_ref.clone(),
        requirements: Vec::new(),
        resources: ResourceRequirements::default(),
        taints: spec.taints.clone().into_inner(),
        startup_taints: spec.startup_taints.clone().into_inner(),
        expire_after: spec.expire_after.clone(),
        termination_grace_period: spec
            .termination_grace_period
            .as_ref()
            .map(PlainDuration::normalized),
    };
    claim
}

/// A concrete value for a label that only a requirement describes (`spec` scheduling 2.5).
///
/// DIFFERENCE: Karpenter takes any listed value, and may draw a number that is excluded; we take the smallest value, and draw
/// again. `Lt 0` alone leaves no integer: no label, where Karpenter crashes.
pub fn any(requirement: &Requirement, draw: &mut impl FnMut(i64, i64) -> i64) -> Option<String> {
    if !requirement.complement {
        return requirement.values.first().cloned();
    }
    let (from, to) = (requirement.gte.unwrap_or(0), requirement.lte.unwrap_or(i64::MAX));
    if from > to {
        return None;
    }
    for _ in 0..64 {
        let value = draw(from, to).clamp(from, to).to_string();
        if !requirement.values.contains(&value) {
            return Some(value);
        }
    }
    // Nearly everything is excluded: take the first that is not.
    (0..=requirement.values.len())
        .filter_map(|step| from.checked_add(i64::try_from(step).ok()?))
        .take_while(|value| *value <= to)
        .map(|value| value.to_string())
        .find(|value| !requirement.values.contains(value))
}

/// Why a pod has no place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    /// The reasons of all pools, or the one that concerns none in particular.
    pub text: String,
    /// By pool.
    pub pools: BTreeMap<String, String>,
    /// Placed on a node that is not initialized; only simulations count that as a failure.
    pub uninitialized: bool,
}

impl Reason {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// An existing node, or a claim without a Node, that receives pods.
#[derive(Clone, Debug)]
pub struct ExistingPlacement {
    /// The Node's name, or the claim's while there is no Node.
    pub name: String,
    /// Empty for unmanaged nodes.
    pub claim: String,
    /// Empty while there is no Node.
    pub node: String,
    pub initialized: bool,
    pub pods: Vec<Arc<Pod>>,
}

impl ExistingPlacement {
    /// `nodeclaim/<c>, node/<n>`, as events name it: the parts that exist.
    pub fn reference(&self) -> String {
        let parts = [("nodeclaim", &self.claim), ("node", &self.node)];
        let parts = parts.iter().filter(|it| !it.1.is_empty());
        parts.map(|(kind, name)| format!("{kind}/{name}")).collect::<Vec<_>>().join(", ")
    }
}

/// The answer of one solve.
#[derive(Clone, Debug, Default)]
pub struct Solution {
    /// As they were opened.
    pub new_claims: Vec<PlannedClaim>,
    /// How many new claims there are where there are several and nobody asked what they are ([`crate::Batch::one_claim`]).
    pub untold_claims: usize,
    /// Only those that receive pods, in the order in which they are tried.
    pub existing: Vec<ExistingPlacement>,
    pub unschedulable: BTreeMap<ObjectKey, Reason>,
    /// Pods that wait for reserved capacity, or for a time at which capacity that was short may be there again: not a failure.
    pub deferred: BTreeMap<ObjectKey, String>,
    /// Those of them that have nothing to wait for but a time.
    pub waiting: BTreeMap<ObjectKey, Timestamp>,
    /// Pods that were not reached in time.
    pub unreached: Vec<ObjectKey>,
    /// Pools that took no part, and why.
    pub skipped_pools: BTreeMap<String, Skipped>,
    /// No pool can make nodes at all: no Ready dynamic one.
    pub no_pools: bool,
    /// Nodes that still start and keep pods of new claims away by a taint, with the taint: perhaps one to be listed in
    /// `startupTaints`.
    pub start_up_taints: BTreeMap<String, String>,
    /// Steps of the pod that was to be explained.
    pub steps: Vec<String>,
    /// Metric `karpenter_scheduler_pending_pods_by_effective_zone_count`.
    pub pending_by_zone: BTreeMap<String, usize>,
}

impl Solution {
    /// The price of all new claims at their cheapest, in dollars per hour.
    pub fn price(&self) -> f64 {
        // An empty sum is -0.0; adding zero takes the sign away.
        self.new_claims.iter().filter_map(|it| it.cheapest.as_ref()?.price).sum::<f64>() + 0.0
    }
}

pub(crate) fn json(resources: &Resources) -> String {
    let fields: Vec<String> = resources
        .iter()
        .map(|(name, amount): (&str, Quantity)| format!("\"{name}\":\"{amount}\""))
        .collect();
    format!("{{{}}}", fields.join(","))
}
