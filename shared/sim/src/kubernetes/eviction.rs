//! Evictions and PodDisruptionBudgets.

use std::collections::BTreeMap;

use spokeshave_model::{
    Kind, ObjectKey, OwnerReference, Uid,
    core::{
        IntOrString, Pod, PodCondition, PodDisruptionBudget, ReplicaSet, ReplicationController,
        StatefulSet,
    },
};
use spokeshave_ports::cluster::Eviction;

use super::delete_pod;
use crate::{faults::Fault, store::whole_second, world::Inner};

/// The eviction subresource.
pub fn evict(world: &mut Inner, key: &ObjectKey, uid: &Uid) -> Eviction {
    let now = world.now;
    let Some(pod) = world.store.get::<Pod>(key) else { return Eviction::Gone };
    if pod.metadata.uid != *uid {
        return Eviction::Replaced;
    }
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
pub(super) fn note_displaced(world: &mut Inner, pod: &Pod) {
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
pub(super) fn moves(pod: &Pod) -> bool {
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
pub(super) fn scaled(value: &IntOrString, of: i32) -> i32 {
    match value {
        IntOrString::Int(count) => *count,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            i32::try_from((i64::from(of) * percent + 99) / 100).unwrap_or(of)
        }
    }
}

pub(super) fn replicas_of(world: &Inner, owner: &OwnerReference, namespace: &str) -> Option<i32> {
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
