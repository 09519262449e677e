//! Which pods are to be placed (`spec` scheduling 9).

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use spokeshave_model::{
    Kind, NodeSelectorRequirement, Operator,
    core::Pod,
    labels,
    pod_classes::{self, PodDisruptionBudgets},
};

use crate::{defaults::is_label_name, shapes, view::ClusterView, volumes};

/// A pod that is left out of the solve.
#[derive(Clone, Debug)]
pub struct Ignored {
    pub pod: Arc<Pod>,
    pub reason: String,
    /// Whether the pod gets a `FailedScheduling` event.
    pub event: bool,
}

/// Pods waiting for a place: marked unschedulable, unbound, not about to land by preemption, and of no DaemonSet and no node.
pub fn is_provisionable(pod: &Pod) -> bool {
    pod.status
        .conditions
        .iter()
        .any(|it| it.type_ == "PodScheduled" && it.reason == "Unschedulable")
        && !pod.is_bound()
        && pod.status.nominated_node_name.is_empty()
        && !pod.is_daemon()
        && !pod.is_mirror()
}

/// The pods that need a place, valid ones and refused ones.
pub fn pending(view: &ClusterView) -> (Vec<Arc<Pod>>, Vec<Ignored>) {
    let mut pods = Vec::new();
    let mut ignored = Vec::new();
    for pod in view.unbound.values().filter(|it| is_provisionable(it)) {
        match validate(pod, view) {
            Ok(()) => pods.push(Arc::clone(pod)),
            Err((reason, event)) => ignored.push(Ignored { pod: Arc::clone(pod), reason, event }),
        }
    }
    (pods, ignored)
}

/// The pods of nodes going away that can and must move (`spec` scheduling 9.3).
pub fn displaced(view: &ClusterView, now: Timestamp) -> Vec<Arc<Pod>> {
    if !view.has_leaving() {
        return Vec::new();
    }
    let going: BTreeSet<String> = view
        .state_nodes()
        .into_iter()
        .filter(|it| it.is_marked_for_deletion() && it.node.is_some())
        .map(|it| it.node_name().to_owned())
        .collect();
    let budgets: PodDisruptionBudgets<'_> = view.budgets.values().map(|it| &**it).collect();
    going
        .iter()
        .filter_map(|node| view.pods_on(node))
        .flat_map(|it| it.pods.values())
        .filter(|pod| pod_classes::is_currently_reschedulable(pod, &budgets, now))
        .cloned()
        .collect()
}

/// Whether a pod can be planned for; the combined problems, and whether they are worth an event.
///
/// # Errors
/// The problems of the pod.
pub fn validate(pod: &Pod, view: &ClusterView) -> Result<(), (String, bool)> {
    if shapes::requirements(pod)
        .get(labels::NODEPOOL)
        .is_some_and(|it| it.operator() == Operator::DoesNotExist)
    {
        return Err(("configured to not run on a Karpenter provisioned node".to_owned(), false));
    }
    let mut problems = Vec::new();
    if shapes::required_terms(pod).iter().any(|it| !it.match_fields.is_empty()) {
        problems.push("node selector term with matchFields is not supported".to_owned());
    }
    for (key, value) in &pod.spec.node_selector {
        problems.extend(problem(&NodeSelectorRequirement::new(key, Operator::In, &[value])));
    }
    for term in shapes::required_terms(pod) {
        problems.extend(term.match_expressions.iter().filter_map(problem));
        problems.extend(term.unknown_operators.iter().map(|(key, operator)| {
            format!(
                "key {key} has an unknown operator {operator}, expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte"
            )
        }));
    }
    problems.extend(volumes::problem(pod, view));
    if problems.is_empty() { Ok(()) } else { Err((problems.join("; "), true)) }
}

/// Domains whose labels only the autoscaler gives.
const RESTRICTED_DOMAINS: &[&str] = &["karpenter.sh", "karpenter.k8s.aws"];

fn problem(it: &NodeSelectorRequirement) -> Option<String> {
    let key = labels::normalize(&it.key);
    let domain = key.split_once('/').map_or("", |it| it.0);
    let restricted = key == labels::HOSTNAME
        || (!labels::is_well_known(key)
            && RESTRICTED_DOMAINS.iter().any(|it| {
                domain == *it || domain.strip_suffix(it).is_some_and(|it| it.ends_with('.'))
            }));
    if restricted {
        return Some(format!("label {key} is restricted"));
    }
    if !is_label_name(key) {
        return Some(format!("key {key:?} is not a label name"));
    }
    match it.operator {
        Operator::In | Operator::NotIn => {
            if it.operator == Operator::In && it.values.is_empty() {
                return Some(format!("key {key} with operator In must have a value"));
            }
            if let Some(value) = it.values.iter().find(|it| !is_label_value(it)) {
                return Some(format!("value {value:?} of key {key} is not a label value"));
            }
            let known: &[&str] = match key {
                labels::CAPACITY_TYPE => &["on-demand", "reserved", "spot"],
                labels::INSTANCE_TENANCY => &["dedicated", "default"],
                _ => return None,
            };
            let none = it.operator == Operator::In
                && !it.values.iter().any(|value| known.contains(&value.as_str()));
            none.then(|| format!("key {key} has no known value among {:?}", it.values))
        }
        Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => {
            let valid = it.values.len() == 1
                && it.values.iter().all(|it| it.parse::<i64>().is_ok_and(|it| it >= 0));
            (!valid).then(|| {
                format!("key {key} with operator {:?} must have one integer >= 0", it.operator)
            })
        }
        Operator::Exists | Operator::DoesNotExist => None,
    }
}

fn is_label_value(value: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    value.is_empty()
        || (value.len() <= 63
            && value.starts_with(edge)
            && value.ends_with(edge)
            && value.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.')))
}

/// The name under which pods appear in answers.
pub fn pod_name(pod: &Pod) -> String {
    pod.key().to_string()
}
