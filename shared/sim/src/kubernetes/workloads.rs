//! The controllers of workloads, in small: Deployments, StatefulSets, DaemonSets, Jobs, and what admission fills in.

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_model::{
    Kind, ObjectKey, ObjectMeta, OwnerReference, Resources, Toleration, Uid,
    core::{
        Container, DaemonSet, Deployment, Job, LimitRange, Node, PersistentVolumeClaim, Pod,
        PodTemplateSpec, PriorityClass, ReplicaSet, ReplicationController, StatefulSet,
    },
};

use super::delete_pod;
use super::kubelet::bind;
use crate::{
    placement::{self},
    ports::suffix,
    world::Inner,
};

/// A pod of a workload, named and owned.
pub(super) fn make_pod(
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

pub(super) fn owner<K: Kind>(object: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(),
        kind: K::KIND.into(),
        name: object.name().to_owned(),
        uid: object.meta().uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

pub(super) fn workloads(world: &mut Inner) {
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

pub(super) fn deployments(world: &mut Inner) {
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
pub(super) fn scale(
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

pub(super) fn stateful(world: &mut Inner, set: &StatefulSet) {
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

pub(super) fn daemons(world: &mut Inner) {
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
