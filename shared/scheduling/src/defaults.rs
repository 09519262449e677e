//! Cluster-level default spread constraints (`spec` scheduling 8.4).

use std::{collections::BTreeSet, sync::Arc};

use serde::Deserialize;
use spokeshave_model::{
    LabelSelector, ObjectKey,
    core::{Pod, TopologySpreadConstraint},
};

use crate::view::ClusterView;

/// The text of `SCHEDULER_CONFIG` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SCHEDULER_CONFIG: {0}")]
pub struct ConfigError(pub String);

/// `SCHEDULER_CONFIG` once its YAML is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SchedulerConfig {
    pub pod_topology_spread: PodTopologySpread,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PodTopologySpread {
    pub default_constraints: Vec<DefaultConstraint>,
}

/// One default constraint, as the configuration writes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DefaultConstraint {
    pub max_skew: i32,
    pub topology_key: String,
    pub when_unsatisfiable: String,
    pub min_domains: Option<i32>,
    pub node_affinity_policy: Option<String>,
    pub node_taints_policy: Option<String>,
    /// Forbidden; read so that the message can say so.
    pub label_selector: Option<LabelSelector>,
    /// Forbidden.
    pub match_label_keys: Option<Vec<String>>,
}

impl SchedulerConfig {
    /// The constraints, checked.
    ///
    /// # Errors
    /// A skew that is not positive, a key that is no label name, an unknown action, a selector, or the same
    /// (topology key, action) twice.
    pub fn constraints(self) -> Result<Vec<TopologySpreadConstraint>, ConfigError> {
        let wrong = |text: String| Err(ConfigError(text));
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        for it in self.pod_topology_spread.default_constraints {
            let key = &it.topology_key;
            if it.max_skew <= 0 {
                return wrong(format!("maxSkew of {key:?} must be greater than 0"));
            }
            if !is_label_name(key) {
                return wrong(format!("topologyKey {key:?} is not a label name"));
            }
            if !matches!(it.when_unsatisfiable.as_str(), "DoNotSchedule" | "ScheduleAnyway") {
                return wrong(format!(
                    "whenUnsatisfiable of {key:?} must be DoNotSchedule or ScheduleAnyway"
                ));
            }
            if it.label_selector.is_some() || it.match_label_keys.is_some() {
                return wrong(format!(
                    "labelSelector and matchLabelKeys of {key:?} are forbidden: the pods' controllers give them"
                ));
            }
            if !seen.insert((key.clone(), it.when_unsatisfiable.clone())) {
                return wrong(format!("{key:?} with {} is there twice", it.when_unsatisfiable));
            }
            all.push(TopologySpreadConstraint {
                max_skew: it.max_skew,
                topology_key: it.topology_key,
                when_unsatisfiable: it.when_unsatisfiable,
                min_domains: it.min_domains,
                node_affinity_policy: it.node_affinity_policy,
                node_taints_policy: it.node_taints_policy,
                ..TopologySpreadConstraint::default()
            });
        }
        Ok(all)
    }
}

/// `[prefix/]name` as label keys are.
pub(crate) fn is_label_name(key: &str) -> bool {
    let is_name = |it: &str| {
        let edge = |c: char| c.is_ascii_alphanumeric();
        !it.is_empty()
            && it.len() <= 63
            && it.starts_with(edge)
            && it.ends_with(edge)
            && it.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.'))
    };
    let is_domain = |it: &str| {
        !it.is_empty()
            && it.len() <= 253
            && it.split('.').all(|part| {
                let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
                part.starts_with(edge)
                    && part.ends_with(edge)
                    && part.chars().all(|c| edge(c) || c == '-')
            })
    };
    match key.split_once('/') {
        Some((prefix, name)) => is_domain(prefix) && is_name(name),
        None => is_name(key),
    }
}

/// The pod, or where it has no spread constraints of its own, a copy with the defaults.
pub(crate) fn with_default_spread(
    pod: &Arc<Pod>,
    view: &ClusterView,
    defaults: &[TopologySpreadConstraint],
) -> Arc<Pod> {
    if defaults.is_empty() || !pod.spec.topology_spread_constraints.is_empty() {
        return Arc::clone(pod);
    }
    let Some(selector) = default_selector(pod, view) else { return Arc::clone(pod) };
    let mut copy = (**pod).clone();
    copy.spec.topology_spread_constraints = defaults
        .iter()
        .map(|it| TopologySpreadConstraint { label_selector: Some(selector.clone()), ..it.clone() })
        .collect();
    Arc::new(copy)
}

fn default_selector(pod: &Pod, view: &ClusterView) -> Option<LabelSelector> {
    let namespace = &pod.metadata.namespace;
    let mut selector = LabelSelector::default();
    for service in view.services.values().filter(|it| it.metadata.namespace == *namespace) {
        let wanted = &service.spec.selector;
        let selects = !wanted.is_empty()
            && wanted.iter().all(|(key, value)| pod.metadata.labels.get(key) == Some(value));
        if selects {
            selector.match_labels.extend(wanted.iter().map(|(k, v)| (k.clone(), v.clone())));
        }
    }
    if let Some(owner) = pod.metadata.controller() {
        let key = ObjectKey::namespaced(namespace, &owner.name);
        let theirs = match owner.kind.as_str() {
            "ReplicationController" => {
                view.replication_controllers.get(&key).map(|it| LabelSelector {
                    match_labels: it.spec.selector.clone(),
                    match_expressions: Vec::new(),
                })
            }
            "ReplicaSet" => view.replica_sets.get(&key).map(|it| it.spec.selector.clone()),
            "StatefulSet" => view.stateful_sets.get(&key).map(|it| it.spec.selector.clone()),
            _ => None,
        };
        if let Some(theirs) = theirs {
            selector.match_labels.extend(theirs.match_labels);
            selector.match_expressions.extend(theirs.match_expressions);
        }
    }
    (!selector.is_empty()).then_some(selector)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test] // scheduling 1, case 7
    fn constraints_are_checked() {
        let checked = |constraints: Value| {
            let config = json!({"podTopologySpread": {"defaultConstraints": constraints}});
            let config = serde_json::from_value::<SchedulerConfig>(config);
            config.expect("known fields").constraints().map(|it| it.len())
        };
        let with = |extra: Value| {
            let mut it = json!({"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway"});
            for (key, value) in extra.as_object().into_iter().flatten() {
                it[key] = value.clone();
            }
            it
        };
        let plain = with(json!({}));
        assert_eq!(checked(json!([plain])), Ok(1));
        assert_eq!(
            checked(json!([plain, with(json!({"whenUnsatisfiable": "DoNotSchedule"}))])),
            Ok(2)
        );
        for (constraints, text) in [
            (
                json!([with(json!({"labelSelector": {}}))]),
                "labelSelector and matchLabelKeys of \"topology.kubernetes.io/zone\" are forbidden: the pods' controllers give them",
            ),
            (
                json!([plain, plain]),
                "\"topology.kubernetes.io/zone\" with ScheduleAnyway is there twice",
            ),
            (
                json!([with(json!({"maxSkew": 0}))]),
                "maxSkew of \"topology.kubernetes.io/zone\" must be greater than 0",
            ),
        ] {
            assert_eq!(checked(constraints), Err(ConfigError(text.to_owned())));
        }
    }
}
