//! Kubernetes itself, in small: deletion and finalizers, eviction and PodDisruptionBudgets, workload controllers,
//! the scheduler's loop, kubelets, volumes, and the clean-up of what lost its owner or its node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use spokeshave_model::{
    Kind, NodeClaim, NodePool, ObjectKey, Uid,
    core::{
        CSINode, DaemonSet, Deployment, Job, Node, Pod, PodCondition, PodDisruptionBudget,
        ReplicaSet, ReplicationController, StatefulSet,
    },
};

use crate::{
    placement::{self, Cluster},
    store::{ObjectChange, whole_second},
    world::{Happening, Inner, Sample},
};

mod eviction;
mod kubelet;
mod workloads;

pub use eviction::{budgets_of, evict, refresh_budget};
pub use kubelet::{
    agents, instance_terminated, job_pod_done, make_volume, node_joins, node_lost, node_ready,
    node_unreachable, pod_running,
};
pub use workloads::admit;

use eviction::note_displaced;
use kubelet::{bind, detach};
use workloads::{daemons, workloads as reconcile_workloads};

/// Milliseconds between a change and the controllers' look at it.
const REACTION: u64 = 120;
/// Milliseconds that a container takes to stop after SIGTERM, if its grace period allows.
const POD_STOP: u64 = 2_000;

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
        reconcile_workloads(world);
        daemons(world);
    }
    if todo.schedule {
        kubelet::bind_claims(world);
        agents(world);
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
    const GIB: f64 = 1_073_741_824.0;
    let (mut running, mut pending) = (0, 0);
    let (mut cpu, mut memory) = (0.0, 0.0);
    for pod in world.store.list::<Pod>().filter(|it| !it.is_terminal()) {
        if pod.status.phase == "Running" {
            running += 1;
        } else {
            pending += 1;
        }
        if !pod.is_daemon() {
            for it in &pod.spec.containers {
                cpu += it.resources.requests.get("cpu").as_f64();
                memory += it.resources.requests.get("memory").as_f64() / GIB;
            }
        }
    }
    let nodes = world.store.list::<Node>().count();
    let price = world.machines.values().filter(|it| it.is_live()).map(|it| it.price).sum();
    let at = world.now;
    let sample = Sample { at, nodes, running, pending, price, cpu, memory };
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
                    let message = match cluster.hosts.len() {
                        0 => "no nodes available to schedule pods".to_owned(),
                        n => format!("0/{n} nodes are available: {}.", reasons.join(", ")),
                    };
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
