//! Where kube-scheduler would bind a pod: its filters and a few of its scores.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use spokeshave_model::{
    LabelSelector, ObjectKey, Operator, Resources, TaintEffect,
    core::{
        Namespace, Node, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim, Pod,
        PodAffinityTerm, StorageClass, TopologySpreadConstraint,
    },
    labels,
    requirements::NodeSelectorRequirement,
};

use crate::store::Store;

/// A node with what runs on it.
#[derive(Clone, Debug)]
pub struct Host {
    pub node: Arc<Node>,
    pub used: Resources,
    pub pods: Vec<Arc<Pod>>,
}

/// The requests of a pod as kube-scheduler counts them, `pods: 1` included.
pub fn requests(pod: &Pod) -> Resources {
    let mut sum = Resources::new();
    for container in &pod.spec.containers {
        sum.add(&effective(container));
    }
    let mut sidecars = Resources::new();
    let mut peak = Resources::new();
    for container in &pod.spec.init_containers {
        let mut here = effective(container);
        if container.restart_policy == "Always" {
            sum.add(&here);
            sidecars.add(&here);
            peak.raise_to(&sidecars);
        } else {
            here.add(&sidecars);
            peak.raise_to(&here);
        }
    }
    sum.raise_to(&peak);
    if let Some(level) = &pod.spec.resources {
        for (name, amount) in level.requests.iter() {
            if matches!(name, "cpu" | "memory") || name.starts_with("hugepages-") {
                sum.set(name, amount);
            }
        }
    }
    if let Some(overhead) = &pod.spec.overhead {
        sum.add(overhead);
    }
    sum.set("pods", spokeshave_model::Quantity::units(1));
    sum
}

/// Requests, with limits standing in for those that are missing, as the API server fills them in.
fn effective(container: &spokeshave_model::core::Container) -> Resources {
    let mut requests = container.resources.requests.clone();
    for (name, amount) in container.resources.limits.iter() {
        if !requests.0.contains_key(name) {
            requests.set(name, amount);
        }
    }
    requests
}

/// Whether a node's labels satisfy one expression, as Kubernetes decides it.
fn expression(it: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&it.key);
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<i64>().ok());
    let bound = it.values.first().and_then(|text| text.parse::<i64>().ok());
    match it.operator {
        Operator::In => value.is_some_and(|value| it.values.contains(value)),
        Operator::NotIn => value.is_none_or(|value| !it.values.contains(value)),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => number(value).zip(bound).is_some_and(|(value, bound)| value > bound),
        Operator::Lt => number(value).zip(bound).is_some_and(|(value, bound)| value < bound),
        Operator::Gte => number(value).zip(bound).is_some_and(|(value, bound)| value >= bound),
        Operator::Lte => number(value).zip(bound).is_some_and(|(value, bound)| value <= bound),
    }
}

/// Whether a node satisfies a term of node affinity.
pub fn term(it: &NodeSelectorTerm, node: &Node) -> bool {
    let name = BTreeMap::from([("metadata.name".to_owned(), node.metadata.name.clone())]);
    !(it.match_expressions.is_empty() && it.match_fields.is_empty())
        && it.match_expressions.iter().all(|it| expression(it, &node.metadata.labels))
        && it.match_fields.iter().all(|it| expression(it, &name))
}

/// Node selector and required node affinity.
pub fn affine(pod: &Pod, node: &Node) -> bool {
    pod.spec.node_selector.iter().all(|(key, value)| node.metadata.labels.get(key) == Some(value))
        && pod
            .spec
            .affinity
            .node_affinity
            .required
            .as_ref()
            .is_none_or(|it| it.node_selector_terms.iter().any(|it| term(it, node)))
}

/// Whether the pod tolerates what keeps pods off the node.
pub fn tolerates(pod: &Pod, node: &Node) -> bool {
    let hard = |taint: &&spokeshave_model::Taint| taint.effect != TaintEffect::PreferNoSchedule;
    let covered =
        |taint: &spokeshave_model::Taint| pod.spec.tolerations.iter().any(|it| it.tolerates(taint));
    let cordon = spokeshave_model::Taint::new(
        "node.kubernetes.io/unschedulable",
        "",
        TaintEffect::NoSchedule,
    );
    node.spec.taints.iter().filter(hard).all(covered)
        && (!node.spec.unschedulable || covered(&cordon))
}

/// Host ports of a pod: address, port, protocol.
fn host_ports(pod: &Pod) -> Vec<(String, i32, String)> {
    let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    containers
        .flat_map(|it| &it.ports)
        .filter(|it| it.host_port > 0)
        .map(|it| {
            let ip = if it.host_ip.is_empty() { "0.0.0.0" } else { &it.host_ip };
            let protocol = if it.protocol.is_empty() { "TCP" } else { &it.protocol };
            (ip.to_owned(), it.host_port, protocol.to_owned())
        })
        .collect()
}

fn ports_free(pod: &Pod, host: &Host) -> bool {
    let wanted = host_ports(pod);
    wanted.is_empty()
        || host.pods.iter().flat_map(|it| host_ports(it)).all(|(ip, port, protocol)| {
            wanted.iter().all(|(my_ip, my_port, my_protocol)| {
                port != *my_port
                    || protocol != *my_protocol
                    || (ip != *my_ip && ip != "0.0.0.0" && my_ip != "0.0.0.0")
            })
        })
}

/// The whole cluster as the scheduler sees it in one pass.
pub struct Cluster<'a> {
    pub hosts: Vec<Host>,
    pub store: &'a Store,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Whether any pod has required anti-affinity: most clusters have none, and the check is dear.
    anti: bool,
}

impl<'a> Cluster<'a> {
    /// All nodes with their pods.
    pub fn of(store: &'a Store) -> Self {
        let mut hosts = Vec::new();
        let mut anti = false;
        for node in store
            .list::<Node>()
            .filter(|it| !it.metadata.deleting() || !it.metadata.finalizers.is_empty())
        {
            let mut host = Host { used: Resources::new(), pods: Vec::new(), node };
            for pod in store.pods_on(&host.node.metadata.name).filter(|it| !it.is_terminal()) {
                host.used.add(&requests(&pod));
                anti |= !pod.spec.affinity.pod_anti_affinity.required.is_empty();
                host.pods.push(pod);
            }
            hosts.push(host);
        }
        let namespaces = store
            .list::<Namespace>()
            .map(|it| (it.metadata.name.clone(), it.metadata.labels.clone()))
            .collect();
        Self { hosts, store, namespaces, anti }
    }

    /// The best node for a pod; `Err` counts the reasons.
    pub fn place(&self, pod: &Pod) -> Result<usize, BTreeMap<&'static str, usize>> {
        let wanted = requests(pod);
        let zones = match self.volume_zones(pod) {
            Ok(zones) => zones,
            Err(reason) => return Err(BTreeMap::from([(reason, self.hosts.len())])),
        };
        let spread: Vec<_> = pod
            .spec
            .topology_spread_constraints
            .iter()
            .map(|it| (it, self.counts(pod, it)))
            .collect();
        let mut why: BTreeMap<&'static str, usize> = BTreeMap::new();
        let mut best: Option<(i64, usize)> = None;
        for (at, host) in self.hosts.iter().enumerate() {
            let labels = &host.node.metadata.labels;
            let reason = if !tolerates(pod, &host.node) {
                Some("untolerated taint")
            } else if !affine(pod, &host.node) {
                Some("node affinity/selector")
            } else if !ports_free(pod, host) {
                Some("free ports for the requested pod ports")
            } else if !zones
                .iter()
                .all(|zones| labels.get(labels::ZONE).is_some_and(|it| zones.contains(it)))
            {
                Some("volume node affinity conflict")
            } else if let Some(short) = self.short(&wanted, host) {
                Some(short)
            } else if !spread.iter().all(|(it, counts)| even(it, counts, labels, pod)) {
                Some("topology spread constraints")
            } else if !self.affinity(pod, host) {
                Some("pod affinity rules")
            } else if !self.anti_affinity(pod, host) {
                Some("pod anti-affinity rules")
            } else {
                None
            };
            match reason {
                Some(reason) => *why.entry(reason).or_default() += 1,
                None => {
                    let score = self.score(pod, &wanted, host, &spread);
                    if best.is_none_or(|(top, _)| score > top) {
                        best = Some((score, at));
                    }
                }
            }
        }
        best.map(|(_, at)| at).ok_or(why)
    }

    /// Binds in this view.
    pub fn bind(&mut self, at: usize, pod: Arc<Pod>) {
        if let Some(host) = self.hosts.get_mut(at) {
            host.used.add(&requests(&pod));
            self.anti |= !pod.spec.affinity.pod_anti_affinity.required.is_empty();
            host.pods.push(pod);
        }
    }

    fn short(&self, wanted: &Resources, host: &Host) -> Option<&'static str> {
        let total = &host.node.status.allocatable;
        wanted.iter().find(|(name, amount)| {
            !amount.is_zero() && host.used.get(name) + *amount > total.get(name)
        })?;
        Some("insufficient resources")
    }

    /// Free share of cpu and memory, preferred node affinity, and how even soft spread would be.
    fn score(
        &self,
        pod: &Pod,
        wanted: &Resources,
        host: &Host,
        spread: &[(&TopologySpreadConstraint, BTreeMap<String, usize>)],
    ) -> i64 {
        let mut score = 0;
        for name in ["cpu", "memory"] {
            let total = host.node.status.allocatable.get(name).as_f64();
            let used = (host.used.get(name) + wanted.get(name)).as_f64();
            if total > 0.0 {
                score += (((total - used) / total) * 50.0) as i64;
            }
        }
        for preferred in &pod.spec.affinity.node_affinity.preferred {
            if term(&preferred.preference, &host.node) {
                score += i64::from(preferred.weight);
            }
        }
        for (constraint, counts) in
            spread.iter().filter(|(it, _)| it.when_unsatisfiable == "ScheduleAnyway")
        {
            let here = host
                .node
                .metadata
                .labels
                .get(&constraint.topology_key)
                .and_then(|it| counts.get(it));
            score -= here.map_or(1_000, |count| (*count as i64) * 20);
        }
        let soft = host
            .node
            .spec
            .taints
            .iter()
            .filter(|it| it.effect == TaintEffect::PreferNoSchedule)
            .filter(|taint| !pod.spec.tolerations.iter().any(|it| it.tolerates(taint)));
        score - soft.count() as i64 * 100
    }

    /// Matching pods per domain of a spread constraint, over the nodes that count.
    fn counts(&self, pod: &Pod, it: &TopologySpreadConstraint) -> BTreeMap<String, usize> {
        let mut selector = it.label_selector.clone().unwrap_or_default();
        for key in &it.match_label_keys {
            if let Some(value) = pod.metadata.labels.get(key) {
                selector.match_labels.insert(key.clone(), value.clone());
            }
        }
        let mut counts = BTreeMap::new();
        for host in &self.hosts {
            let Some(domain) = host.node.metadata.labels.get(&it.topology_key) else { continue };
            let honor = it.node_affinity_policy.as_deref() != Some("Ignore");
            if honor && !affine(pod, &host.node) {
                continue;
            }
            if it.node_taints_policy.as_deref() == Some("Honor") && !tolerates(pod, &host.node) {
                continue;
            }
            let matching = host
                .pods
                .iter()
                .filter(|other| other.metadata.namespace == pod.metadata.namespace)
                .filter(|other| !other.metadata.deleting())
                .filter(|other| {
                    it.label_selector.is_some() && selector.matches(&other.metadata.labels)
                });
            *counts.entry(domain.clone()).or_default() += matching.count();
        }
        counts
    }

    fn namespaces_of(&self, pod: &Pod, it: &PodAffinityTerm) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = it.namespaces.iter().cloned().collect();
        if let Some(selector) = &it.namespace_selector {
            let matching = self.namespaces.iter().filter(|(_, labels)| selector.matches(labels));
            names.extend(matching.map(|(name, _)| name.clone()));
        } else if names.is_empty() {
            names.insert(pod.metadata.namespace.clone());
        }
        names
    }

    fn domain_has(
        &self,
        it: &PodAffinityTerm,
        owner: &Pod,
        host: &Host,
        hit: impl Fn(&Pod) -> bool,
    ) -> bool {
        let Some(domain) = host.node.metadata.labels.get(&it.topology_key) else { return false };
        let names = self.namespaces_of(owner, it);
        let selector = term_selector(it, owner);
        self.hosts
            .iter()
            .filter(|other| other.node.metadata.labels.get(&it.topology_key) == Some(domain))
            .flat_map(|other| &other.pods)
            .any(|other| {
                names.contains(&other.metadata.namespace)
                    && selector.as_ref().is_some_and(|it| it.matches(&other.metadata.labels))
                    && hit(other)
            })
    }

    fn affinity(&self, pod: &Pod, host: &Host) -> bool {
        pod.spec.affinity.pod_affinity.required.iter().all(|it| {
            if self.domain_has(it, pod, host, |_| true) {
                return true;
            }
            // The first of a group that selects itself may start anywhere with the topology key.
            let names = self.namespaces_of(pod, it);
            let selector = term_selector(it, pod);
            let selects = |other: &Pod| {
                names.contains(&other.metadata.namespace)
                    && selector.as_ref().is_some_and(|it| it.matches(&other.metadata.labels))
            };
            let nobody = !self.hosts.iter().flat_map(|it| &it.pods).any(|other| selects(other));
            nobody && selects(pod) && host.node.metadata.labels.contains_key(&it.topology_key)
        })
    }

    fn anti_affinity(&self, pod: &Pod, host: &Host) -> bool {
        let own = pod.spec.affinity.pod_anti_affinity.required.iter();
        if own.clone().any(|it| self.domain_has(it, pod, host, |_| true)) {
            return false;
        }
        if !self.anti {
            return true;
        }
        // What pods already here have against this one.
        !self.hosts.iter().any(|other| {
            other.pods.iter().any(|resident| {
                resident.spec.affinity.pod_anti_affinity.required.iter().any(|it| {
                    let domain = other.node.metadata.labels.get(&it.topology_key);
                    domain.is_some()
                        && domain == host.node.metadata.labels.get(&it.topology_key)
                        && self.namespaces_of(resident, it).contains(&pod.metadata.namespace)
                        && term_selector(it, resident)
                            .is_some_and(|it| it.matches(&pod.metadata.labels))
                })
            })
        })
    }

    /// The zones that each volume allows; `Err` when a claim cannot be used yet.
    fn volume_zones(&self, pod: &Pod) -> Result<Vec<BTreeSet<String>>, &'static str> {
        let mut all = Vec::new();
        for name in claims_of(pod) {
            let key = ObjectKey::namespaced(&pod.metadata.namespace, &name);
            let Some(claim) = self.store.get::<PersistentVolumeClaim>(&key) else {
                return Err("persistentvolumeclaim not found");
            };
            if !claim.spec.volume_name.is_empty() {
                let Some(volume) = self
                    .store
                    .get::<PersistentVolume>(&ObjectKey::cluster(&claim.spec.volume_name))
                else {
                    continue;
                };
                let terms = volume.spec.node_affinity.as_ref().and_then(|it| it.required.as_ref());
                let zones: BTreeSet<String> = terms
                    .into_iter()
                    .flat_map(|it| &it.node_selector_terms)
                    .flat_map(|it| &it.match_expressions)
                    .filter(|it| labels::normalize(&it.key) == labels::ZONE)
                    .flat_map(|it| it.values.clone())
                    .collect();
                if !zones.is_empty() {
                    all.push(zones);
                }
                continue;
            }
            let Some(class) = storage_class(self.store, &claim) else {
                return Err("no storage class for an unbound persistentvolumeclaim");
            };
            if class.volume_binding_mode != "WaitForFirstConsumer" {
                return Err("unbound immediate persistentvolumeclaims");
            }
            for it in &class.allowed_topologies {
                let zones: BTreeSet<String> = it
                    .match_label_expressions
                    .iter()
                    .filter(|it| labels::normalize(&it.key) == labels::ZONE)
                    .flat_map(|it| it.values.clone())
                    .collect();
                if !zones.is_empty() {
                    all.push(zones);
                }
            }
        }
        Ok(all)
    }
}

fn term_selector(it: &PodAffinityTerm, owner: &Pod) -> Option<LabelSelector> {
    let mut selector = it.label_selector.clone()?;
    for key in &it.match_label_keys {
        if let Some(value) = owner.metadata.labels.get(key) {
            selector.match_labels.insert(key.clone(), value.clone());
        }
    }
    Some(selector)
}

/// Whether one more pod in the node's domain keeps a hard constraint.
fn even(
    it: &TopologySpreadConstraint,
    counts: &BTreeMap<String, usize>,
    labels: &BTreeMap<String, String>,
    pod: &Pod,
) -> bool {
    if it.when_unsatisfiable == "ScheduleAnyway" {
        return true;
    }
    let Some(domain) = labels.get(&it.topology_key) else { return false };
    let enough =
        it.min_domains.is_none_or(|least| counts.len() >= usize::try_from(least).unwrap_or(0));
    let least = if enough { counts.values().min().copied().unwrap_or(0) } else { 0 };
    let own = it.label_selector.as_ref().is_some_and(|it| it.matches(&pod.metadata.labels));
    let here = counts.get(domain).copied().unwrap_or(0) + usize::from(own);
    here <= least + usize::try_from(it.max_skew.max(1)).unwrap_or(1)
}

/// The names of the claims that a pod's volumes use.
pub fn claims_of(pod: &Pod) -> Vec<String> {
    pod.spec
        .volumes
        .iter()
        .filter_map(|it| match (&it.persistent_volume_claim, &it.ephemeral) {
            (Some(claim), _) => Some(claim.claim_name.clone()),
            (None, Some(_)) => Some(format!("{}-{}", pod.metadata.name, it.name)),
            (None, None) => None,
        })
        .collect()
}

/// The class of a claim, the default one when it names none.
pub fn storage_class(store: &Store, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
    match &claim.spec.storage_class_name {
        Some(name) => store.get::<StorageClass>(&ObjectKey::cluster(name)),
        None => store.list::<StorageClass>().find(|it| {
            it.metadata.annotation("storageclass.kubernetes.io/is-default-class") == Some("true")
        }),
    }
}
