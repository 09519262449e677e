//! One representative pod per DaemonSet, and where it would run (`spec` scheduling 11.4 and 11.5).

use spokeshave_model::{
    Kind, Requirement, Requirements, Resources, Taint, TaintEffect, Toleration,
    core::{DaemonSet, LimitRange, NodeSelectorTerm, Pod},
    labels, taints,
};

use crate::{
    ports::{HostPort, host_ports},
    requests::{default_requests, pod_requests},
    sets::{SetId, Sets},
    view::ClusterView,
};

/// The pod that a DaemonSet would put on a node.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    pub(crate) name: String,
    pub(crate) requests: Resources,
    pub(crate) ports: Vec<HostPort>,
    tolerations: Vec<Toleration>,
    /// Node selector and one required term each; one of them has to hold. Tried in order.
    alternatives: Vec<Alternative>,
}

#[derive(Clone, Debug)]
struct Alternative {
    set: SetId,
    /// The requirement on the host name, which sets do not hold.
    host: Option<Requirement>,
}

impl Daemon {
    /// The representatives of all DaemonSets of the view, by namespace and name.
    pub(crate) fn of_view(view: &ClusterView, sets: &mut Sets, ignore_dra: bool) -> Vec<Self> {
        view.daemon_sets
            .values()
            .filter(|it| !it.metadata.deleting())
            .map(|it| representative(it, view))
            .filter(|pod| !(ignore_dra && has_resource_claims(pod)))
            .map(|pod| Self::of_pod(&pod, sets))
            .collect()
    }

    fn of_pod(pod: &Pod, sets: &mut Sets) -> Self {
        let selector = Requirements::from_labels(&pod.spec.node_selector);
        let terms = pod.spec.affinity.node_affinity.required.as_ref();
        let terms = terms.map_or(&[] as &[NodeSelectorTerm], |it| &it.node_selector_terms);
        let mut alternatives = Vec::new();
        let mut add = |extra: Option<&NodeSelectorTerm>| {
            let mut set = selector.clone();
            if let Some(term) = extra {
                set.add_all(&Requirements::from_api(&term.match_expressions));
            }
            let host = set.get(labels::HOSTNAME).cloned();
            alternatives.push(Alternative { set: sets.intern(set), host });
        };
        if terms.is_empty() {
            add(None);
        }
        for term in terms {
            add(Some(term));
        }
        Self {
            name: pod.key().to_string(),
            requests: pod_requests(pod),
            ports: host_ports(pod),
            tolerations: pod.spec.tolerations.clone(),
            alternatives,
        }
    }

    /// `PreferNoSchedule` never keeps a daemon away.
    pub(crate) fn tolerates(&self, list: &[Taint]) -> bool {
        let hard: Vec<Taint> =
            list.iter().filter(|it| it.effect != TaintEffect::PreferNoSchedule).cloned().collect();
        taints::untolerated(&hard, &self.tolerations).is_none()
    }

    /// The sets under which it would run on a node made from `template`: those that the template can take.
    pub(crate) fn sets_for_template(&self, template: SetId, sets: &mut Sets) -> Vec<SetId> {
        self.alternatives
            .iter()
            .filter(|it| it.host.as_ref().is_none_or(absence))
            .filter(|it| sets.join(template, it.set).is_some())
            .map(|it| it.set)
            .collect()
    }

    /// Whether it would run on a node with these labels.
    pub(crate) fn runs_on(&self, labels: SetId, host_name: &str, sets: &mut Sets) -> bool {
        self.alternatives.iter().any(|it| {
            it.host.as_ref().is_none_or(|host| host.has(host_name)) && sets.carries(labels, it.set)
        })
    }

    /// Every label key that it asks for.
    pub(crate) fn keys(&self, sets: &Sets) -> Vec<String> {
        self.alternatives
            .iter()
            .flat_map(|it| sets.get(it.set).keys().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    pub(crate) fn asks_for_a_host(&self) -> bool {
        self.alternatives.iter().any(|it| it.host.is_some())
    }
}

/// A requirement that is met where the label is absent.
pub(crate) fn absence(requirement: &Requirement) -> bool {
    use spokeshave_model::Operator::{DoesNotExist, NotIn};
    matches!(requirement.operator(), NotIn | DoesNotExist)
}

/// Pods that ask for devices through resource claims.
pub(crate) fn has_resource_claims(pod: &Pod) -> bool {
    let spec = &pod.spec;
    !spec.resource_claims.is_empty()
        || spec
            .containers
            .iter()
            .chain(&spec.init_containers)
            .any(|it| !it.resources.claims.is_empty())
}

/// The newest existing pod, whose admission is behind it, else one made from the template.
fn representative(daemon_set: &DaemonSet, view: &ClusterView) -> Pod {
    let template = &daemon_set.spec.template;
    let required = template.spec.affinity.node_affinity.required.clone();
    let mut pod = match view.newest_daemon_pod(&daemon_set.key()) {
        Some(pod) => (**pod).clone(),
        None => {
            let mut pod = Pod {
                metadata: template.metadata.clone(),
                spec: template.spec.clone(),
                ..Pod::default()
            };
            pod.metadata.name.clone_from(&daemon_set.metadata.name);
            pod.metadata.namespace.clone_from(&daemon_set.metadata.namespace);
            default_requests(&mut pod);
            for range in view.limit_ranges.values() {
                if range.metadata.namespace == daemon_set.metadata.namespace {
                    apply_limit_range(&mut pod, range);
                }
            }
            pod
        }
    };
    if required.is_some() {
        pod.spec.affinity.node_affinity.required = required;
    }
    pod
}

/// What admission would fill in: the namespace's default requests.
///
/// DIFFERENCE: Karpenter reads templates without LimitRanges, and so plans nodes that the daemon's real pod does not fit.
fn apply_limit_range(pod: &mut Pod, range: &LimitRange) {
    for item in range.spec.limits.iter().filter(|it| it.type_ == "Container") {
        for container in pod.spec.containers.iter_mut().chain(&mut pod.spec.init_containers) {
            for (name, amount) in item.default_request.iter().chain(item.default.iter()) {
                let requests = &mut container.resources.requests;
                if !requests.0.contains_key(name) {
                    requests.set(name, amount);
                }
            }
        }
    }
}
