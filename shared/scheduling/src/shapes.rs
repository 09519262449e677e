//! Pods that ask for the same thing in the same way are one shape: requirements, requests, ports and topology are
//! worked out once for all of them. Relaxing a preference leads from one shape to the next (`spec` scheduling 8).

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use rustc_hash::FxHasher;
use spokeshave_model::{
    Requirement, Requirements, Resources, Toleration,
    core::{NodeSelectorTerm, Pod, PodAffinity, PreferredSchedulingTerm, WeightedPodAffinityTerm},
    labels,
    settings::PreferencePolicy,
};

use crate::{
    daemons::has_resource_claims,
    sets::{KeyId, SetId},
    wishes::Wish,
};

/// Position of a shape.
pub(crate) type ShapeId = usize;

/// Where a pod's volumes can be, as sets.
#[derive(Clone, Debug)]
pub(crate) struct VolumePlace {
    pub(crate) set: SetId,
    pub(crate) host: Option<Requirement>,
}

/// The topology groups of one key that constrain a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyGroups {
    pub(crate) key: KeyId,
    pub(crate) groups: Vec<usize>,
}

/// One way to ask for a place in this solve.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) wish: Arc<Wish>,
    /// What was given up to get here from the shape before.
    pub(crate) given_up: Option<&'static str>,
    /// Ordinary groups that the pod belongs to.
    pub(crate) owned: Vec<usize>,
    /// Inverse groups of its own required anti-affinity.
    pub(crate) inverse_owned: Vec<usize>,
    /// Groups that constrain it: host name, and all other keys.
    pub(crate) on_host: Vec<usize>,
    pub(crate) on_keys: Vec<KeyGroups>,
    /// Groups that count it: ordinary ones that select it. Looked up to this many groups.
    pub(crate) counted_by: Vec<usize>,
    pub(crate) seen_groups: usize,
    /// What is tried next when this cannot be placed: nothing more, or not worked out yet.
    pub(crate) next: Option<Option<ShapeId>>,
    /// Failed with everything relaxed, and nothing has been placed since this many placements.
    pub(crate) failed_at: Option<(u64, bool)>,
}

/// A shape is a wish, and what topology makes of it in this solve.
impl std::ops::Deref for Shape {
    type Target = Wish;

    fn deref(&self) -> &Wish {
        &self.wish
    }
}

/// A number for what a pod asks for; pods that ask for the same have the same.
pub(crate) fn fingerprint(pod: &Pod) -> u64 {
    let mut hasher = FxHasher::default();
    let it = &mut hasher;
    pod.metadata.namespace.hash(it);
    pod.metadata.labels.hash(it);
    pod.spec.node_selector.hash(it);
    pod.spec.tolerations.hash(it);
    for container in pod.spec.containers.iter().chain(&pod.spec.init_containers) {
        hash_resources(&container.resources.requests, it);
        container.ports.len().hash(it);
    }
    for constraint in &pod.spec.topology_spread_constraints {
        constraint.topology_key.hash(it);
        constraint.label_selector.hash(it);
    }
    for affinity in [&pod.spec.affinity.pod_affinity, &pod.spec.affinity.pod_anti_affinity] {
        for term in &affinity.required {
            term.topology_key.hash(it);
            term.label_selector.hash(it);
        }
        affinity.preferred.len().hash(it);
    }
    if let Some(required) = &pod.spec.affinity.node_affinity.required {
        for expression in required.node_selector_terms.iter().flat_map(|it| &it.match_expressions) {
            expression.key.hash(it);
            expression.values.hash(it);
        }
    }
    hasher.finish()
}

fn hash_resources(resources: &Resources, hasher: &mut impl Hasher) {
    for (name, amount) in resources.iter() {
        name.hash(hasher);
        amount.nanos().hash(hasher);
    }
}

/// Whether two pods ask for the same, so that they can be one shape.
pub(crate) fn same_shape(a: &Pod, b: &Pod) -> bool {
    let (x, y) = (&a.spec, &b.spec);
    let same_containers = |x: &[spokeshave_model::core::Container],
                           y: &[spokeshave_model::core::Container]| {
        x.len() == y.len()
            && x.iter().zip(y).all(|(x, y)| {
                x.resources.requests == y.resources.requests
                    && x.ports == y.ports
                    && x.restart_policy == y.restart_policy
                    && x.resources.limits == y.resources.limits
            })
    };
    let resized = |it: &Pod| {
        it.status.container_statuses.iter().any(|it| it.resources.is_some())
            || it.status.init_container_statuses.iter().any(|it| it.resources.is_some())
    };
    a.metadata.namespace == b.metadata.namespace
        && a.metadata.labels == b.metadata.labels
        && x.node_selector == y.node_selector
        && x.affinity == y.affinity
        && x.tolerations == y.tolerations
        && x.topology_spread_constraints == y.topology_spread_constraints
        && x.overhead == y.overhead
        && x.resources == y.resources
        && has_resource_claims(a) == has_resource_claims(b)
        && same_containers(&x.containers, &y.containers)
        && same_containers(&x.init_containers, &y.init_containers)
        && !crate::volumes::has_claims(a)
        && !crate::volumes::has_claims(b)
        && !resized(a)
        && !resized(b)
}

fn heaviest(preferred: &[PreferredSchedulingTerm]) -> Option<usize> {
    // The first of the heaviest, as a stable sort by weight descending would put it.
    let most = preferred.iter().map(|it| it.weight).max()?;
    preferred.iter().position(|it| it.weight == most)
}

fn heaviest_pod_term(preferred: &[WeightedPodAffinityTerm]) -> Option<usize> {
    let most = preferred.iter().map(|it| it.weight).max()?;
    preferred.iter().position(|it| it.weight == most)
}

/// The terms of the required node affinity, which are alternatives.
pub(crate) fn required_terms(pod: &Pod) -> &[NodeSelectorTerm] {
    pod.spec.affinity.node_affinity.required.as_ref().map_or(&[], |it| &it.node_selector_terms)
}

/// What the pod demands: node selector and first required term.
pub(crate) fn strict_requirements(pod: &Pod) -> Requirements {
    let mut set = Requirements::from_labels(&pod.spec.node_selector);
    if let Some(term) = required_terms(pod).first() {
        set.add_all(&Requirements::from_api(&term.match_expressions));
    }
    set
}

/// The same with the heaviest preference as if it were required (`spec` scheduling 2.6).
pub(crate) fn requirements(pod: &Pod) -> Requirements {
    let mut set = Requirements::from_labels(&pod.spec.node_selector);
    let preferred = &pod.spec.affinity.node_affinity.preferred;
    if let Some(at) = heaviest(preferred) {
        set.add_all(&Requirements::from_api(&preferred[at].preference.match_expressions));
    }
    if let Some(term) = required_terms(pod).first() {
        set.add_all(&Requirements::from_api(&term.match_expressions));
    }
    set
}

/// Every label key that the pod, relaxed or not, may ask nodes about.
pub(crate) fn keys_of(pod: &Pod, mut take: impl FnMut(&str)) {
    let spec = &pod.spec;
    for key in spec.node_selector.keys() {
        take(key);
    }
    let preferred = spec.affinity.node_affinity.preferred.iter().map(|it| &it.preference);
    for term in required_terms(pod).iter().chain(preferred) {
        for expression in &term.match_expressions {
            take(&expression.key);
        }
    }
    for constraint in &spec.topology_spread_constraints {
        take(&constraint.topology_key);
    }
    for affinity in [&spec.affinity.pod_affinity, &spec.affinity.pod_anti_affinity] {
        for term in &affinity.required {
            take(&term.topology_key);
        }
        for term in &affinity.preferred {
            take(&term.pod_affinity_term.topology_key);
        }
    }
}

/// The pod without preferences (`PREFERENCE_POLICY=Ignore`).
pub(crate) fn without_preferences(pod: &Pod) -> Option<Pod> {
    let spec = &pod.spec;
    let soft = |it: &PodAffinity| !it.preferred.is_empty();
    let any = !spec.affinity.node_affinity.preferred.is_empty()
        || soft(&spec.affinity.pod_affinity)
        || soft(&spec.affinity.pod_anti_affinity)
        || spec
            .topology_spread_constraints
            .iter()
            .any(|it| it.when_unsatisfiable == "ScheduleAnyway");
    any.then(|| {
        let mut pod = pod.clone();
        pod.spec.affinity.node_affinity.preferred.clear();
        pod.spec.affinity.pod_affinity.preferred.clear();
        pod.spec.affinity.pod_anti_affinity.preferred.clear();
        pod.spec.topology_spread_constraints.retain(|it| it.when_unsatisfiable != "ScheduleAnyway");
        pod
    })
}

/// What a relaxation gives up, for explanations.
#[derive(Clone, Debug)]
pub(crate) struct Relaxation {
    pub(crate) pod: Pod,
    pub(crate) what: &'static str,
}

/// One relaxation step, first applicable rule only. `original` is the unrelaxed pod, whose required terms come back
/// with every preference that is given up.
///
/// DIFFERENCE: Karpenter gives up required terms (alternatives) before any preference, so that a feasible term is lost to an
/// infeasible preference. Here every term is tried again after each preference that is given up.
pub(crate) fn relax(
    pod: &Pod,
    original: &Pod,
    policy: PreferencePolicy,
    tolerate_prefer: bool,
) -> Option<Relaxation> {
    let done = |pod: Pod, what: &'static str| Some(Relaxation { pod, what });
    if required_terms(pod).len() > 1 {
        let mut next = pod.clone();
        if let Some(required) = &mut next.spec.affinity.node_affinity.required {
            required.node_selector_terms.remove(0);
        }
        return done(next, "the first required node affinity term");
    }
    let mut next = pod.clone();
    next.spec
        .affinity
        .node_affinity
        .required
        .clone_from(&original.spec.affinity.node_affinity.required);
    if policy == PreferencePolicy::Respect {
        let affinity = &mut next.spec.affinity;
        if let Some(at) = heaviest_pod_term(&affinity.pod_affinity.preferred) {
            affinity.pod_affinity.preferred.remove(at);
            return done(next, "the heaviest preferred pod affinity term");
        }
        if let Some(at) = heaviest_pod_term(&affinity.pod_anti_affinity.preferred) {
            affinity.pod_anti_affinity.preferred.remove(at);
            return done(next, "the heaviest preferred pod anti-affinity term");
        }
        if let Some(at) = heaviest(&affinity.node_affinity.preferred) {
            affinity.node_affinity.preferred.remove(at);
            return done(next, "the heaviest preferred node affinity term");
        }
        let spread = &mut next.spec.topology_spread_constraints;
        if let Some(at) = spread.iter().position(|it| it.when_unsatisfiable == "ScheduleAnyway") {
            spread.swap_remove(at);
            return done(next, "a ScheduleAnyway spread constraint");
        }
    }
    let toleration = Toleration {
        operator: "Exists".into(),
        effect: "PreferNoSchedule".into(),
        ..Toleration::default()
    };
    if tolerate_prefer && !next.spec.tolerations.contains(&toleration) {
        next.spec.tolerations.push(toleration);
        return done(next, "the avoidance of PreferNoSchedule taints");
    }
    None
}

/// The host name part of a set.
pub(crate) fn host_requirement(set: &Requirements) -> Option<Requirement> {
    set.get(labels::HOSTNAME).cloned()
}
