//! Kubernetes itself, in small: deletion and finalizers, eviction and PodDisruptionBudgets, workload controllers,
//! the scheduler's loop, kubelets, volumes, and the clean-up of what lost its owner or its node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use spokeshave_model::{
    InstanceId, Kind, NodeClaim, NodePool, ObjectKey, ObjectMeta, OwnerReference, Resources, Taint,
    TaintEffect, Toleration, Uid,
    core::{
        CSINode, CSINodeDriver, ClaimRef, Container, DaemonSet, Deployment, IntOrString, Job,
        LimitRange, Node, NodeCondition, PersistentVolume, PersistentVolumeClaim, Pod,
        PodCondition, PodDisruptionBudget, PodTemplateSpec, PriorityClass, ReplicaSet,
        ReplicationController, StatefulSet, VolumeAttachment, VolumeNodeAffinity,
        VolumeNodeResources,
    },
    labels,
    requirements::{NodeSelectorRequirement, Operator},
};
use spokeshave_ports::cluster::Eviction;

use crate::{
    boot,
    faults::Fault,
    placement::{self, Cluster},
    ports::suffix,
    store::{ObjectChange, whole_second},
    world::{Happening, Inner, Sample},
};

/// Milliseconds between a change and the controllers' look at it.
const REACTION: u64 = 120;
/// Milliseconds from binding to running: image pulls included.
const POD_START: u64 = 2_500;
/// Milliseconds that a container takes to stop after SIGTERM, if its grace period allows.
const POD_STOP: u64 = 2_000;
/// Milliseconds that a pod of a Job works.
const JOB_WORK: u64 = 90_000;
/// Milliseconds from joining to Ready: the network plugin's start.
const NODE_START: u64 = 9_000;

/// What Kubernetes' controllers have to look at.
#[derive(Clone, Debug, Default)]
pub struct Controllers {
    workloads: bool,
    schedule: bool,
    budgets: bool,
    /// Owners that are gone; what they owned goes too.
    orphaned_by: BTreeSet<Uid>,
    /// Nodes that are gone.
    lost_nodes: BTreeSet<String>,
}

/// Notes what a change means for the controllers.
pub fn observe(world: &mut Inner, change: &ObjectChange) {
    let controllers = &mut world.controllers;
    match change.kind {
        "Pod" => {
            controllers.workloads = true;
            controllers.schedule = true;
            controllers.budgets = true;
        }
        "Node" => {
            controllers.workloads = true;
            controllers.schedule = true;
            if change.new.is_none() {
                controllers.lost_nodes.insert(change.key.name.clone());
            }
        }
        "Deployment"
        | "ReplicaSet"
        | "StatefulSet"
        | "DaemonSet"
        | "Job"
        | "ReplicationController" => {
            controllers.workloads = true;
        }
        "PodDisruptionBudget" => controllers.budgets = true,
        "PersistentVolumeClaim" | "PersistentVolume" | "StorageClass" => {
            controllers.schedule = true;
        }
        _ => {}
    }
    if change.new.is_none() {
        let uid = match change.kind {
            "Deployment" => uid_of::<Deployment>(change),
            "ReplicaSet" => uid_of::<ReplicaSet>(change),
            "StatefulSet" => uid_of::<StatefulSet>(change),
            "DaemonSet" => uid_of::<DaemonSet>(change),
            "Job" => uid_of::<Job>(change),
            "ReplicationController" => uid_of::<ReplicationController>(change),
            "NodePool" => uid_of::<NodePool>(change),
            "NodeClaim" => uid_of::<NodeClaim>(change),
            _ => None,
        };
        world.controllers.orphaned_by.extend(uid);
    }
    let busy = {
        let it = &world.controllers;
        it.workloads
            || it.schedule
            || it.budgets
            || !it.orphaned_by.is_empty()
            || !it.lost_nodes.is_empty()
    };
    if busy && !world.controllers_due {
        world.controllers_due = true;
        world.after(REACTION, Happening::Controllers);
    }
}

fn uid_of<K: Kind>(change: &ObjectChange) -> Option<Uid> {
    change.of::<K>()?.0.map(|it| it.meta().uid.clone())
}

/// `DELETE` on an object: it goes, or it is marked while finalizers hold it, or a pod stops first.
pub fn delete<K: Kind>(world: &mut Inner, key: &ObjectKey, grace: Option<i64>) {
    let now = world.now;
    let Some(object) = world.store.get::<K>(key) else { return };
    if K::KIND == "Pod" {
        delete_pod(world, key, grace);
        return;
    }
    if object.meta().finalizers.is_empty() {
        world.store.remove::<K>(key, now);
    } else if !object.meta().deleting() {
        world.store.update::<K>(key, now, |it| {
            it.meta_mut().deletion_timestamp = Some(whole_second(now));
            it.meta_mut().deletion_grace_period_seconds = Some(0);
            it.meta_mut().generation += 1;
        });
    }
}

/// The last finalizer is gone.
pub fn finalized<K: Kind>(world: &mut Inner, key: &ObjectKey) {
    let now = world.now;
    world.store.remove::<K>(key, now);
}

fn delete_pod(world: &mut Inner, key: &ObjectKey, grace: Option<i64>) {
    let now = world.now;
    let Some(pod) = world.store.get::<Pod>(key) else { return };
    let grace = grace.or(pod.spec.termination_grace_period_seconds).unwrap_or(30).max(0);
    note_displaced(world, &pod);
    if grace == 0 || !pod.is_bound() || pod.is_terminal() {
        world.store.remove::<Pod>(key, now);
        return;
    }
    let until = whole_second(now) + SignedDuration::from_secs(grace);
    if pod.metadata.deletion_timestamp.is_some_and(|at| at <= until) {
        return;
    }
    let uid = pod.metadata.uid.clone();
    world.store.update::<Pod>(key, now, |it| {
        it.metadata.deletion_timestamp = Some(until);
        it.metadata.deletion_grace_period_seconds = Some(grace);
    });
    let stop = POD_STOP.min(u64::try_from(grace).unwrap_or(0) * 1_000);
    world.after(stop, Happening::PodGone(key.clone(), uid));
}

/// A pod's containers have stopped. On a dead machine nobody notices.
pub fn pod_gone(world: &mut Inner, key: &ObjectKey, uid: &Uid) {
    let now = world.now;
    let Some(pod) = world.store.get::<Pod>(key).filter(|it| it.metadata.uid == *uid) else {
        return;
    };
    let node = world.store.get::<Node>(&ObjectKey::cluster(&pod.spec.node_name));
    let alive = node.is_none_or(|node| match node.spec.provider_id.instance_id() {
        Some(id) => world.machines.get(&id).is_none_or(super::world::Machine::is_live),
        None => true,
    });
    if alive {
        world.store.remove::<Pod>(key, now);
        detach(world, &pod);
    }
}

/// The eviction subresource.
pub fn evict(world: &mut Inner, key: &ObjectKey, uid: &Uid) -> Eviction {
    let now = world.now;
    let Some(pod) = world.store.get::<Pod>(key).filter(|it| it.metadata.uid == *uid) else {
        return Eviction::Gone;
    };
    if pod.metadata.deleting() {
        return Eviction::Accepted;
    }
    if world.strikes(Fault::EvictionBlocked) {
        return Eviction::Blocked;
    }
    let unready = pod.status.phase == "Pending" || pod.is_terminal();
    if !unready {
        let budgets: Vec<ObjectKey> = budgets_of(world, &pod);
        if budgets.len() > 1 {
            return Eviction::Misconfigured;
        }
        if let Some(budget) = budgets.first() {
            refresh_budget(world, budget);
            let allowed = world
                .store
                .get::<PodDisruptionBudget>(budget)
                .map_or(0, |it| it.status.disruptions_allowed);
            if allowed <= 0 {
                return Eviction::Blocked;
            }
        }
    }
    delete_pod(world, key, None);
    for budget in budgets_of(world, &pod) {
        refresh_budget(world, &budget);
    }
    world.store.update::<Pod>(key, now, |it| {
        it.status.conditions.retain(|it| it.type_ != "DisruptionTarget");
        it.status.conditions.push(PodCondition {
            type_: "DisruptionTarget".into(),
            status: "True".into(),
            reason: "EvictionByEvictionAPI".into(),
            message: "Eviction API: evicting".into(),
            last_transition_time: Some(whole_second(now)),
        });
    });
    Eviction::Accepted
}

/// Notes that a pod leaves an interrupted node. A DaemonSet's pod goes with its node.
fn note_displaced(world: &mut Inner, pod: &Pod) {
    if !pod.is_bound() || !moves(pod) {
        return;
    }
    let node = &pod.spec.node_name;
    if let Some(it) =
        world.interruptions.iter_mut().find(|it| it.node == *node && it.replaced.is_none())
    {
        it.displaced.push((pod.key(), pod.metadata.uid.clone()));
    }
}

/// Whether a pod needs another place when its node goes.
fn moves(pod: &Pod) -> bool {
    !pod.is_terminal()
        && pod
            .metadata
            .controller()
            .is_none_or(|it| !matches!(it.kind.as_str(), "DaemonSet" | "Node"))
}

/// The budgets that select a pod.
pub fn budgets_of(world: &Inner, pod: &Pod) -> Vec<ObjectKey> {
    world
        .store
        .list::<PodDisruptionBudget>()
        .filter(|it| it.metadata.namespace == pod.metadata.namespace)
        .filter(|it| it.spec.selector.as_ref().is_some_and(|it| it.matches(&pod.metadata.labels)))
        .map(|it| it.key())
        .collect()
}

/// Recomputes the status of a budget.
pub fn refresh_budget(world: &mut Inner, key: &ObjectKey) {
    let now = world.now;
    let Some(budget) = world.store.get::<PodDisruptionBudget>(key) else { return };
    let Some(selector) = budget.spec.selector.clone() else { return };
    let mut expected_by_owner: BTreeMap<Uid, i32> = BTreeMap::new();
    let mut bare = 0;
    let mut healthy = 0;
    let mut matching = 0;
    for pod in world.store.list::<Pod>() {
        if pod.metadata.namespace != key.namespace
            || !selector.matches(&pod.metadata.labels)
            || pod.is_terminal()
        {
            continue;
        }
        matching += 1;
        let ready = pod.condition("Ready").is_some_and(|it| it.status == "True");
        if ready && !pod.metadata.deleting() {
            healthy += 1;
        }
        match pod.metadata.controller() {
            Some(owner) => {
                let replicas = replicas_of(world, owner, &key.namespace);
                expected_by_owner.insert(owner.uid.clone(), replicas.unwrap_or(0));
                if replicas.is_none() {
                    bare += 1;
                }
            }
            None => bare += 1,
        }
    }
    let expected = expected_by_owner.values().sum::<i32>() + bare;
    let (expected, desired) = match (&budget.spec.max_unavailable, &budget.spec.min_available) {
        (Some(value), _) => (expected, (expected - scaled(value, expected)).max(0)),
        (None, Some(IntOrString::Int(least))) => (matching, *least),
        (None, Some(value)) => (expected, scaled(value, expected)),
        (None, None) => (expected, expected),
    };
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    world.store.update::<PodDisruptionBudget>(key, now, |it| {
        it.status.expected_pods = expected;
        it.status.current_healthy = healthy;
        it.status.desired_healthy = desired;
        it.status.disruptions_allowed = allowed;
        it.status.observed_generation = it.metadata.generation;
    });
}

/// A count, or a percentage of `of` rounded up.
fn scaled(value: &IntOrString, of: i32) -> i32 {
    match value {
        IntOrString::Int(count) => *count,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            i32::try_from((i64::from(of) * percent + 99) / 100).unwrap_or(of)
        }
    }
}

fn replicas_of(world: &Inner, owner: &OwnerReference, namespace: &str) -> Option<i32> {
    let key = ObjectKey::namespaced(namespace, &owner.name);
    match owner.kind.as_str() {
        "ReplicaSet" => world.store.get::<ReplicaSet>(&key).map(|it| it.spec.replicas.unwrap_or(1)),
        "StatefulSet" => {
            world.store.get::<StatefulSet>(&key).map(|it| it.spec.replicas.unwrap_or(1))
        }
        "ReplicationController" => {
            world.store.get::<ReplicationController>(&key).map(|it| it.spec.replicas.unwrap_or(1))
        }
        _ => None,
    }
}

/// One look of all controllers.
pub fn reconcile(world: &mut Inner) {
    world.controllers_due = false;
    let todo = std::mem::take(&mut world.controllers);
    if !todo.orphaned_by.is_empty() {
        collect_orphans(world, &todo.orphaned_by);
    }
    for node in &todo.lost_nodes {
        collect_pods(world, node);
    }
    if todo.workloads {
        workloads(world);
        daemons(world);
    }
    if todo.schedule {
        schedule(world);
    }
    if todo.budgets {
        let keys: Vec<_> = world.store.list::<PodDisruptionBudget>().map(|it| it.key()).collect();
        for key in keys {
            refresh_budget(world, &key);
        }
    }
    sample(world);
}

fn sample(world: &mut Inner) {
    let mut running = 0;
    let mut pending = 0;
    for pod in world.store.list::<Pod>().filter(|it| !it.is_terminal()) {
        if pod.status.phase == "Running" { running += 1 } else { pending += 1 }
    }
    let nodes = world.store.list::<Node>().count();
    let price = world.machines.values().filter(|it| it.is_live()).map(|it| it.price).sum();
    let at = world.now;
    let sample = Sample { at, nodes, running, pending, price };
    if world.samples.last().is_none_or(|last| Sample { at, ..*last } != sample) {
        world.samples.push(sample);
    }
}

fn collect_orphans(world: &mut Inner, owners: &BTreeSet<Uid>) {
    fn owned<K: Kind>(world: &Inner, owners: &BTreeSet<Uid>) -> Vec<ObjectKey> {
        world
            .store
            .list::<K>()
            .filter(|it| it.meta().owner_references.iter().any(|owner| owners.contains(&owner.uid)))
            .map(|it| it.key())
            .collect()
    }
    for key in owned::<ReplicaSet>(world, owners) {
        delete::<ReplicaSet>(world, &key, None);
    }
    for key in owned::<Pod>(world, owners) {
        delete::<Pod>(world, &key, None);
    }
    for key in owned::<NodeClaim>(world, owners) {
        delete::<NodeClaim>(world, &key, None);
    }
    for key in owned::<Node>(world, owners) {
        delete::<Node>(world, &key, None);
    }
}

/// Pods of a node that is gone are gone too; its volumes are free again.
fn collect_pods(world: &mut Inner, node: &str) {
    let now = world.now;
    if world.store.get::<Node>(&ObjectKey::cluster(node)).is_some() {
        return;
    }
    let pods: Vec<_> = world.store.pods_on(node).collect();
    for pod in pods {
        note_displaced(world, &pod);
        world.store.remove::<Pod>(&pod.key(), now);
        detach(world, &pod);
    }
    world.store.remove::<CSINode>(&ObjectKey::cluster(node), now);
}

/// A pod of a workload, named and owned.
fn make_pod(
    world: &Inner,
    name: &str,
    namespace: &str,
    owner: OwnerReference,
    template: &PodTemplateSpec,
) -> Pod {
    let mut pod = Pod {
        metadata: ObjectMeta {
            namespace: namespace.to_owned(),
            labels: template.metadata.labels.clone(),
            annotations: template.metadata.annotations.clone(),
            finalizers: Vec::new(),
            owner_references: vec![owner],
            ..ObjectMeta::named(name)
        },
        spec: template.spec.clone(),
        ..Pod::default()
    };
    admit(world, &mut pod);
    pod
}

/// What the API server and its admission plug-ins fill in.
pub fn admit(world: &Inner, pod: &mut Pod) {
    let spec = &mut pod.spec;
    spec.node_name.clear();
    if spec.scheduler_name.is_empty() {
        spec.scheduler_name = "default-scheduler".into();
    }
    if spec.restart_policy.is_empty() {
        spec.restart_policy = "Always".into();
    }
    spec.termination_grace_period_seconds.get_or_insert(30);
    let ranges: Vec<Resources> = world
        .store
        .list::<LimitRange>()
        .filter(|it| it.metadata.namespace == pod.metadata.namespace)
        .flat_map(|it| it.spec.limits.clone())
        .filter(|it| it.type_ == "Container")
        .map(|it| if it.default_request.is_empty() { it.default } else { it.default_request })
        .collect();
    let fill = |container: &mut Container| {
        for (name, amount) in container.resources.limits.clone().iter() {
            if !container.resources.requests.0.contains_key(name) {
                container.resources.requests.set(name, amount);
            }
        }
        for (name, amount) in ranges.iter().flat_map(Resources::iter) {
            if !container.resources.requests.0.contains_key(name) {
                container.resources.requests.set(name, amount);
            }
        }
    };
    spec.containers.iter_mut().chain(&mut spec.init_containers).for_each(fill);
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let has = spec
            .tolerations
            .iter()
            .any(|it| it.key == key || (it.key.is_empty() && it.operator == "Exists"));
        if !has {
            spec.tolerations.push(Toleration {
                key: key.into(),
                operator: "Exists".into(),
                effect: "NoExecute".into(),
                toleration_seconds: Some(300),
                ..Toleration::default()
            });
        }
    }
    if let Some(class) =
        world.store.get::<PriorityClass>(&ObjectKey::cluster(&spec.priority_class_name))
    {
        spec.priority.get_or_insert(class.value);
    }
    pod.status =
        spokeshave_model::core::PodStatus { phase: "Pending".into(), ..Default::default() };
}

fn owner<K: Kind>(object: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(),
        kind: K::KIND.into(),
        name: object.name().to_owned(),
        uid: object.meta().uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn workloads(world: &mut Inner) {
    deployments(world);
    // Living pods by their controller.
    let mut pods: BTreeMap<Uid, Vec<(ObjectKey, bool, bool)>> = BTreeMap::new();
    for pod in world.store.list::<Pod>() {
        let Some(owner) = pod.metadata.controller() else { continue };
        if !pod.is_terminal() {
            let running = pod.status.phase == "Running";
            pods.entry(owner.uid.clone()).or_default().push((
                pod.key(),
                pod.metadata.deleting(),
                running,
            ));
        }
    }
    let sets: Vec<_> =
        world.store.list::<ReplicaSet>().filter(|it| !it.metadata.deleting()).collect();
    for set in sets {
        let mine = pods.remove(&set.metadata.uid).unwrap_or_default();
        let wanted = set.spec.replicas.unwrap_or(1);
        scale(world, &set.metadata, &owner(&*set), &set.spec.template, wanted, &mine);
    }
    let sets: Vec<_> =
        world.store.list::<ReplicationController>().filter(|it| !it.metadata.deleting()).collect();
    for set in sets {
        let mine = pods.remove(&set.metadata.uid).unwrap_or_default();
        let wanted = set.spec.replicas.unwrap_or(1);
        scale(world, &set.metadata, &owner(&*set), &set.spec.template, wanted, &mine);
    }
    let sets: Vec<_> =
        world.store.list::<StatefulSet>().filter(|it| !it.metadata.deleting()).collect();
    for set in sets {
        stateful(world, &set);
    }
    let jobs: Vec<_> = world.store.list::<Job>().filter(|it| !it.metadata.deleting()).collect();
    for job in jobs {
        let mine = pods.remove(&job.metadata.uid).unwrap_or_default();
        let done = job.status.succeeded;
        let parallelism = job.spec.parallelism.unwrap_or(1);
        let left = job.spec.completions.unwrap_or(if done > 0 { done } else { parallelism }) - done;
        let wanted = parallelism.min(left).max(0);
        scale(world, &job.metadata, &owner(&*job), &job.spec.template, wanted, &mine);
        let now = world.now;
        world.store.update::<Job>(&job.key(), now, |it| it.status.active = wanted);
    }
}

fn deployments(world: &mut Inner) {
    let now = world.now;
    let all: Vec<_> =
        world.store.list::<Deployment>().filter(|it| !it.metadata.deleting()).collect();
    for deployment in all {
        let text = serde_json::to_string(&deployment.spec.template).unwrap_or_default();
        let hash = text
            .bytes()
            .fold(17_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let name = format!("{}-{}", deployment.metadata.name, suffix(hash >> 4));
        let namespace = deployment.metadata.namespace.clone();
        let key = ObjectKey::namespaced(&namespace, &name);
        let wanted = deployment.spec.replicas.unwrap_or(1);
        if world.store.get::<ReplicaSet>(&key).is_none() {
            let mut set = ReplicaSet {
                metadata: ObjectMeta {
                    namespace: namespace.clone(),
                    labels: deployment.spec.template.metadata.labels.clone(),
                    owner_references: vec![owner(&*deployment)],
                    ..ObjectMeta::named(&name)
                },
                ..ReplicaSet::default()
            };
            set.spec.replicas = Some(wanted);
            set.spec.selector = deployment.spec.selector.clone();
            set.spec.template = deployment.spec.template.clone();
            let pod_hash = suffix(hash >> 4);
            set.spec.template.metadata.labels.insert("pod-template-hash".into(), pod_hash);
            world.store.create(set, now);
        } else {
            world.store.update::<ReplicaSet>(&key, now, |it| it.spec.replicas = Some(wanted));
        }
        // Older sets shrink as the new one's pods run.
        let uid = world.store.get::<ReplicaSet>(&key).map(|it| it.metadata.uid.clone());
        let running = world
            .store
            .list::<Pod>()
            .filter(|it| it.metadata.controller().map(|it| &it.uid) == uid.as_ref())
            .filter(|it| it.status.phase == "Running" && !it.metadata.deleting())
            .count();
        let left = (wanted - i32::try_from(running).unwrap_or(wanted)).max(0);
        let older: Vec<_> = world
            .store
            .list::<ReplicaSet>()
            .filter(|it| {
                it.metadata.controller().is_some_and(|it| it.uid == deployment.metadata.uid)
            })
            .filter(|it| it.key() != key)
            .map(|it| it.key())
            .collect();
        for key in older {
            world.store.update::<ReplicaSet>(&key, now, |it| {
                it.spec.replicas = Some(it.spec.replicas.unwrap_or(0).min(left));
            });
        }
    }
}

/// Makes or deletes pods until `wanted` live ones are there.
fn scale(
    world: &mut Inner,
    set: &ObjectMeta,
    owner: &OwnerReference,
    template: &PodTemplateSpec,
    wanted: i32,
    pods: &[(ObjectKey, bool, bool)],
) {
    let now = world.now;
    let live = pods.iter().filter(|it| !it.1).count();
    let wanted = usize::try_from(wanted).unwrap_or(0);
    for _ in live..wanted {
        world.pod_serial += 1;
        let name = format!("{}-{}", set.name, suffix(world.pod_serial));
        let pod = make_pod(world, &name, &set.namespace, owner.clone(), template);
        world.store.create(pod, now);
    }
    if live > wanted {
        // Pods that do not run go first, then the last by name.
        let mut live_pods: Vec<_> = pods.iter().filter(|it| !it.1).collect();
        live_pods.sort_by(|a, b| a.2.cmp(&b.2).then_with(|| b.0.cmp(&a.0)));
        for (key, ..) in live_pods.into_iter().take(live - wanted) {
            delete_pod(world, key, None);
        }
    }
}

fn stateful(world: &mut Inner, set: &StatefulSet) {
    let now = world.now;
    let parallel = set.spec.pod_management_policy == "Parallel";
    for ordinal in 0..set.spec.replicas.unwrap_or(1).max(0) {
        let name = format!("{}-{ordinal}", set.metadata.name);
        let key = ObjectKey::namespaced(&set.metadata.namespace, &name);
        let mut template = set.spec.template.clone();
        for claim in &set.spec.volume_claim_templates {
            let claim_name = format!("{}-{name}", claim.metadata.name);
            template.spec.volumes.push(spokeshave_model::core::Volume {
                name: claim.metadata.name.clone(),
                persistent_volume_claim: Some(
                    spokeshave_model::core::PersistentVolumeClaimSource {
                        claim_name: claim_name.clone(),
                        read_only: false,
                    },
                ),
                ..Default::default()
            });
            let claim_key = ObjectKey::namespaced(&set.metadata.namespace, &claim_name);
            if world.store.get::<PersistentVolumeClaim>(&claim_key).is_none() {
                let made = PersistentVolumeClaim {
                    metadata: ObjectMeta {
                        namespace: set.metadata.namespace.clone(),
                        labels: claim.metadata.labels.clone(),
                        ..ObjectMeta::named(&claim_name)
                    },
                    spec: claim.spec.clone(),
                    ..PersistentVolumeClaim::default()
                };
                world.store.create(made, now);
            }
        }
        match world.store.get::<Pod>(&key) {
            None => {
                let pod = make_pod(world, &name, &set.metadata.namespace, owner(set), &template);
                world.store.create(pod, now);
                if !parallel {
                    return;
                }
            }
            Some(pod)
                if !parallel && (pod.status.phase != "Running" || pod.metadata.deleting()) =>
            {
                return;
            }
            Some(_) => {}
        }
    }
    let mut ordinal = set.spec.replicas.unwrap_or(1).max(0);
    loop {
        let key = ObjectKey::namespaced(
            &set.metadata.namespace,
            &format!("{}-{ordinal}", set.metadata.name),
        );
        if world.store.get::<Pod>(&key).is_none() {
            break;
        }
        delete_pod(world, &key, None);
        ordinal += 1;
    }
}

fn daemons(world: &mut Inner) {
    let now = world.now;
    let sets: Vec<_> =
        world.store.list::<DaemonSet>().filter(|it| !it.metadata.deleting()).collect();
    if sets.is_empty() {
        return;
    }
    let nodes: Vec<_> = world.store.list::<Node>().filter(|it| !it.metadata.deleting()).collect();
    let mut present: BTreeSet<(Uid, String)> = BTreeSet::new();
    for pod in world.store.list::<Pod>() {
        if let Some(owner) = pod.metadata.controller().filter(|it| it.kind == "DaemonSet") {
            present.insert((owner.uid.clone(), pod.spec.node_name.clone()));
        }
    }
    for set in sets {
        for node in &nodes {
            if present.contains(&(set.metadata.uid.clone(), node.metadata.name.clone())) {
                continue;
            }
            world.pod_serial += 1;
            let name = format!("{}-{}", set.metadata.name, suffix(world.pod_serial));
            let namespace = set.metadata.namespace.clone();
            let mut pod = make_pod(world, &name, &namespace, owner(&*set), &set.spec.template);
            for (key, effect) in [
                ("node.kubernetes.io/not-ready", "NoExecute"),
                ("node.kubernetes.io/unreachable", "NoExecute"),
                ("node.kubernetes.io/disk-pressure", "NoSchedule"),
                ("node.kubernetes.io/memory-pressure", "NoSchedule"),
                ("node.kubernetes.io/pid-pressure", "NoSchedule"),
                ("node.kubernetes.io/unschedulable", "NoSchedule"),
                ("node.kubernetes.io/not-ready", "NoSchedule"),
            ] {
                pod.spec.tolerations.push(Toleration {
                    key: key.into(),
                    operator: "Exists".into(),
                    effect: effect.into(),
                    ..Toleration::default()
                });
            }
            if !placement::affine(&pod, node) || !placement::tolerates(&pod, node) {
                continue;
            }
            let mut used = Resources::new();
            for other in world.store.pods_on(&node.metadata.name).filter(|it| !it.is_terminal()) {
                used.add(&placement::requests(&other));
            }
            used.add(&placement::requests(&pod));
            let fits = placement::requests(&pod)
                .iter()
                .all(|(name, _)| used.get(name) <= node.status.allocatable.get(name));
            if !fits {
                continue;
            }
            let key = pod.key();
            let created = world.store.create(pod, now);
            bind(world, &key, &created.metadata.uid, &node.metadata.name);
        }
    }
}

fn bind(world: &mut Inner, key: &ObjectKey, uid: &Uid, node: &str) {
    let now = world.now;
    world.store.update::<Pod>(key, now, |it| {
        it.spec.node_name = node.to_owned();
        it.status.start_time = Some(whole_second(now));
        it.status.conditions.retain(|it| it.type_ != "PodScheduled");
        it.status.conditions.push(PodCondition {
            type_: "PodScheduled".into(),
            status: "True".into(),
            last_transition_time: Some(whole_second(now)),
            ..PodCondition::default()
        });
    });
    volumes(world, key, node);
    world.after(POD_START, Happening::PodRunning(key.clone(), uid.clone()));
}

/// A bound pod's containers run, unless it is going or its machine is dead.
pub fn pod_running(world: &mut Inner, key: &ObjectKey, uid: &Uid) {
    let now = world.now;
    let Some(pod) = world.store.get::<Pod>(key).filter(|it| it.metadata.uid == *uid) else {
        return;
    };
    if pod.metadata.deleting() || pod.status.phase != "Pending" {
        return;
    }
    world.store.update::<Pod>(key, now, |it| {
        it.status.phase = "Running".into();
        it.status.conditions.push(PodCondition {
            type_: "Ready".into(),
            status: "True".into(),
            last_transition_time: Some(whole_second(now)),
            ..PodCondition::default()
        });
    });
    if pod.metadata.controller().is_some_and(|it| it.kind == "Job") {
        world.after(JOB_WORK, Happening::JobPodDone(key.clone(), uid.clone()));
    }
    if world.interruptions.iter().any(|it| it.replaced.is_none()) {
        settle_interruptions(world);
    }
}

/// An interruption is over once its node is empty, its pods are gone and every pod that came since runs.
fn settle_interruptions(world: &mut Inner) {
    let waiting: Vec<_> = world
        .store
        .list::<Pod>()
        .filter(|it| it.status.phase == "Pending")
        .filter_map(|it| it.metadata.creation_timestamp)
        .collect();
    let now = world.now;
    let gone: Vec<bool> = world
        .interruptions
        .iter()
        .map(|it| {
            let left = |(key, uid): &(ObjectKey, Uid)| {
                world.store.get::<Pod>(key).is_none_or(|it| it.metadata.uid != *uid)
            };
            it.displaced.iter().all(left) && !world.store.pods_on(&it.node).any(|it| moves(&it))
        })
        .collect();
    for (it, gone) in world.interruptions.iter_mut().zip(gone) {
        let all_run = waiting.iter().all(|created| *created < whole_second(it.announced));
        if it.replaced.is_none() && gone && all_run && !it.displaced.is_empty() {
            it.replaced = Some(now);
        }
    }
}

/// A Job's pod has finished.
pub fn job_pod_done(world: &mut Inner, key: &ObjectKey, uid: &Uid) {
    let now = world.now;
    if world
        .store
        .get::<Pod>(key)
        .is_some_and(|it| it.metadata.uid == *uid && !it.metadata.deleting())
    {
        world.store.update::<Pod>(key, now, |it| {
            it.status.phase = "Succeeded".into();
            it.status.conditions.retain(|it| it.type_ != "Ready");
        });
        // Counted at once: the pod may go with its node before anybody looks again.
        let job = world
            .store
            .get::<Pod>(key)
            .and_then(|it| it.metadata.controller().map(|it| it.name.clone()));
        if let Some(job) = job {
            let job = ObjectKey::namespaced(&key.namespace, &job);
            world.store.update::<Job>(&job, now, |it| it.status.succeeded += 1);
        }
    }
}

/// Volumes of a pod that was bound: made in its zone where that was waited for, and attached.
fn volumes(world: &mut Inner, key: &ObjectKey, node: &str) {
    let now = world.now;
    let Some(pod) = world.store.get::<Pod>(key) else { return };
    let Some(zone) = world
        .store
        .get::<Node>(&ObjectKey::cluster(node))
        .and_then(|it| it.metadata.labels.get(labels::ZONE).cloned())
    else {
        return;
    };
    for name in placement::claims_of(&pod) {
        let claim_key = ObjectKey::namespaced(&key.namespace, &name);
        let Some(claim) = world.store.get::<PersistentVolumeClaim>(&claim_key) else { continue };
        let mut volume = claim.spec.volume_name.clone();
        if volume.is_empty() {
            let class = placement::storage_class(&world.store, &claim);
            let driver = class.as_ref().map_or("ebs.csi.aws.com", |it| &it.provisioner).to_owned();
            volume = format!("pvc-{}", claim.metadata.uid);
            make_volume(world, &claim, &volume, &zone, &driver);
            world.store.update::<PersistentVolumeClaim>(&claim_key, now, |it| {
                it.spec.volume_name.clone_from(&volume);
                it.status.phase = "Bound".into();
            });
        }
        let attachment = VolumeAttachment {
            metadata: ObjectMeta::named(&format!("csi-{volume}-{node}")),
            spec: spokeshave_model::core::VolumeAttachmentSpec {
                attacher: "ebs.csi.aws.com".into(),
                node_name: node.to_owned(),
                source: spokeshave_model::core::VolumeAttachmentSource {
                    persistent_volume_name: Some(volume.clone()),
                },
            },
        };
        if world.store.get::<VolumeAttachment>(&attachment.key()).is_none() {
            world.store.create(attachment, now);
        }
    }
}

/// Makes a zonal volume for a claim.
pub fn make_volume(
    world: &mut Inner,
    claim: &PersistentVolumeClaim,
    name: &str,
    zone: &str,
    driver: &str,
) {
    let now = world.now;
    let mut volume =
        PersistentVolume { metadata: ObjectMeta::named(name), ..PersistentVolume::default() };
    volume.spec.storage_class_name = claim.spec.storage_class_name.clone().unwrap_or_default();
    volume.spec.csi = Some(spokeshave_model::core::CsiVolumeSource { driver: driver.to_owned() });
    volume.spec.claim_ref = Some(ClaimRef {
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
    });
    let expression =
        NodeSelectorRequirement::new("topology.ebs.csi.aws.com/zone", Operator::In, &[zone]);
    volume.spec.node_affinity = Some(VolumeNodeAffinity {
        required: Some(spokeshave_model::core::NodeSelector {
            node_selector_terms: vec![spokeshave_model::core::NodeSelectorTerm {
                match_expressions: vec![expression],
                match_fields: Vec::new(),
            }],
        }),
    });
    world.store.create(volume, now);
}

/// The volumes of a pod that is gone are detached a little later.
fn detach(world: &mut Inner, pod: &Pod) {
    for name in placement::claims_of(pod) {
        let key = ObjectKey::namespaced(&pod.metadata.namespace, &name);
        if let Some(claim) = world.store.get::<PersistentVolumeClaim>(&key) {
            let attachment = format!("csi-{}-{}", claim.spec.volume_name, pod.spec.node_name);
            world.after(3_000, Happening::VolumeDetached(attachment));
        }
    }
}

/// kube-scheduler: binds what fits, and says of the rest that it does not.
fn schedule(world: &mut Inner) {
    let now = world.now;
    let pending: Vec<_> = world
        .store
        .list::<Pod>()
        .filter(|it| !it.is_bound() && !it.is_terminal() && !it.metadata.deleting())
        .filter(|it| {
            it.spec.scheduling_gates.is_empty() && it.spec.scheduler_name == "default-scheduler"
        })
        .collect();
    if pending.is_empty() {
        return;
    }
    let mut bound = Vec::new();
    let mut refused = Vec::new();
    {
        let mut cluster = Cluster::of(&world.store);
        let mut queue = pending;
        queue.sort_by_key(|it| {
            (
                std::cmp::Reverse(it.spec.priority.unwrap_or(0)),
                it.metadata.creation_timestamp,
                it.key(),
            )
        });
        // Pods of the same shape fail alike within one pass.
        let mut hopeless: BTreeMap<String, String> = BTreeMap::new();
        for pod in queue {
            let shape = shape(&pod);
            if let Some(message) = hopeless.get(&shape) {
                refused.push((pod.key(), message.clone()));
                continue;
            }
            match cluster.place(&pod) {
                Ok(at) => {
                    let node = cluster.hosts[at].node.metadata.name.clone();
                    bound.push((pod.key(), pod.metadata.uid.clone(), node));
                    cluster.bind(at, pod);
                }
                Err(why) => {
                    let reasons: Vec<String> =
                        why.iter().map(|(reason, nodes)| format!("{nodes} {reason}")).collect();
                    let total = cluster.hosts.len();
                    let message = format!("0/{total} nodes are available: {}.", reasons.join(", "));
                    hopeless.insert(shape, message.clone());
                    refused.push((pod.key(), message));
                }
            }
        }
    }
    for (key, uid, node) in bound {
        bind(world, &key, &uid, &node);
    }
    for (key, message) in refused {
        let already = world
            .store
            .get::<Pod>(&key)
            .is_some_and(|it| it.condition("PodScheduled").is_some_and(|it| it.message == message));
        if already {
            continue;
        }
        let mutations = world.store.mutations;
        world.store.update::<Pod>(&key, now, |it| {
            it.status.conditions.retain(|it| it.type_ != "PodScheduled");
            it.status.conditions.push(PodCondition {
                type_: "PodScheduled".into(),
                status: "False".into(),
                reason: "Unschedulable".into(),
                message,
                last_transition_time: Some(whole_second(now)),
            });
        });
        // That it still does not fit is not a change of the world.
        world.store.mutations = mutations;
    }
}

/// What decides where a pod fits, as text.
fn shape(pod: &Pod) -> String {
    let volumes = placement::claims_of(pod);
    let unique = if volumes.is_empty() { "" } else { &pod.metadata.name };
    format!(
        "{}|{unique}|{:?}|{:?}",
        pod.metadata.namespace,
        pod.metadata.labels,
        serde_json::to_string(&pod.spec).unwrap_or_default()
    )
}

/// The kubelet of an instance registers its node, with what its user data told it.
pub fn node_joins(world: &mut Inner, id: &InstanceId) {
    let now = world.now;
    let Some(machine) = world.machines.get(id).filter(|it| it.is_live()).cloned() else { return };
    let class_name = machine.instance.tags.get(labels::NODECLASS).cloned().unwrap_or_default();
    let class = world
        .store
        .get::<spokeshave_model::EC2NodeClass>(&ObjectKey::cluster(&class_name))
        .map(|it| (*it).clone())
        .unwrap_or_default();
    let shape_of = world.shape_of.clone();
    let Some(shape) = shape_of(&machine.instance.instance_type, &class) else { return };
    let boot = boot::read(&machine.template.user_data);
    let zone_id = world
        .market
        .zones
        .iter()
        .find(|it| it.name == machine.instance.zone)
        .map(|it| it.id.clone());
    let mut node_labels = boot.labels;
    for (key, value) in [
        (labels::HOSTNAME, machine.instance.private_dns_name.as_str()),
        (labels::INSTANCE_TYPE, &machine.instance.instance_type),
        (labels::ZONE, &machine.instance.zone),
        (labels::REGION, &world.settings.region),
        (labels::ARCH, &shape.arch),
        (labels::OS, &shape.os),
        (labels::ZONE_ID, zone_id.as_deref().unwrap_or_default()),
    ] {
        node_labels.insert(key.to_owned(), value.to_owned());
    }
    let mut taints = boot.taints;
    taints.push(Taint::new("node.kubernetes.io/not-ready", "", TaintEffect::NoSchedule));
    let mut node = Node {
        metadata: ObjectMeta {
            labels: node_labels,
            ..ObjectMeta::named(&machine.instance.private_dns_name)
        },
        ..Node::default()
    };
    node.spec.provider_id = spokeshave_model::ProviderId::aws(&machine.instance.zone, id);
    node.spec.taints = taints;
    node.status.capacity = shape.capacity;
    node.status.allocatable = shape.allocatable;
    node.status.conditions = vec![NodeCondition {
        type_: "Ready".into(),
        status: "False".into(),
        reason: "KubeletNotReady".into(),
        message: "container runtime network not ready".into(),
        last_transition_time: Some(whole_second(now)),
    }];
    if world.store.get::<Node>(&node.key()).is_some() {
        return;
    }
    let csi = CSINode {
        metadata: ObjectMeta::named(&node.metadata.name),
        spec: spokeshave_model::core::CSINodeSpec {
            drivers: vec![CSINodeDriver {
                name: "ebs.csi.aws.com".into(),
                node_id: id.to_string(),
                topology_keys: vec!["topology.ebs.csi.aws.com/zone".into()],
                allocatable: Some(VolumeNodeResources { count: Some(26) }),
            }],
        },
    };
    if world.store.get::<CSINode>(&csi.key()).is_none() {
        world.store.create(csi, now);
    }
    let node = world.store.create(node, now);
    let ready = Happening::NodeReady(node.metadata.name.clone(), node.metadata.uid.clone());
    world.after(NODE_START, ready);
}

/// The network plugin is up.
pub fn node_ready(world: &mut Inner, name: &str, uid: &Uid) {
    let now = world.now;
    let key = ObjectKey::cluster(name);
    let same = world.store.get::<Node>(&key).is_some_and(|it| it.metadata.uid == *uid);
    if !same {
        return;
    }
    world.store.update::<Node>(&key, now, |it| {
        it.spec.taints.retain(|it| it.key != "node.kubernetes.io/not-ready");
        for condition in it.status.conditions.iter_mut().filter(|it| it.type_ == "Ready") {
            condition.status = "True".into();
            condition.reason = "KubeletReady".into();
            condition.message = "kubelet is posting ready status".into();
            condition.last_transition_time = Some(whole_second(now));
        }
    });
}

/// An instance is gone for good: the cloud's node controller deletes its node a little later.
pub fn instance_terminated(world: &mut Inner, id: &InstanceId) {
    let now = world.now;
    let Some(machine) = world.machines.get_mut(id) else { return };
    if machine.instance.state == "terminated" {
        return;
    }
    machine.instance.state = "terminated".into();
    machine.terminated = Some(now);
    world.ec2_mutations += 1;
    world.state_change(id, "terminated");
    let lost: Vec<_> = world
        .store
        .list::<Node>()
        .filter(|it| it.spec.provider_id.instance_id().as_ref() == Some(id))
        .map(|it| (it.metadata.name.clone(), it.metadata.uid.clone()))
        .collect();
    for (name, uid) in lost {
        world.after(5_000, Happening::NodeLost(name, uid));
    }
}

/// The cloud's node controller deletes the node of an instance that is gone.
pub fn node_lost(world: &mut Inner, name: &str, uid: &Uid) {
    let key = ObjectKey::cluster(name);
    let now = world.now;
    if world.store.get::<Node>(&key).is_some_and(|it| it.metadata.uid == *uid) {
        world.store.update::<Node>(&key, now, |it| {
            for condition in it.status.conditions.iter_mut().filter(|it| it.type_ == "Ready") {
                condition.status = "Unknown".into();
                condition.reason = "NodeStatusUnknown".into();
                condition.last_transition_time = Some(whole_second(now));
            }
        });
        delete::<Node>(world, &key, None);
    }
}
