//! Nodes from joining to their loss, the pods and volumes on them, and the agents that take startup taints away.

use std::sync::Arc;

use jiff::SignedDuration;
use spokeshave_model::{
    InstanceId, Kind, NodeClaim, ObjectKey, ObjectMeta, Taint, TaintEffect, Uid,
    core::{
        CSINode, CSINodeDriver, ClaimRef, Job, Node, NodeCondition, PersistentVolume,
        PersistentVolumeClaim, Pod, PodCondition, VolumeAttachment, VolumeNodeAffinity,
        VolumeNodeResources,
    },
    labels,
    requirements::{NodeSelectorRequirement, Operator},
};

use super::delete;
use super::eviction::moves;
use crate::{
    boot,
    placement::{self},
    store::whole_second,
    world::{Happening, Inner, Machine},
};

/// The annotation without which schedulers take no claim for bound.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Milliseconds from binding to running: image pulls included.
const POD_START: u64 = 2_500;

/// Milliseconds that a pod of a Job works.
const JOB_WORK: u64 = 90_000;

/// Milliseconds from joining to Ready: the network plugin's start.
const NODE_START: u64 = 9_000;

/// Milliseconds from an agent's first second to the node being fit for pods.
const AGENT_START: i64 = 3_000;

pub(super) fn bind(world: &mut Inner, key: &ObjectKey, uid: &Uid, node: &str) {
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
pub(super) fn settle_interruptions(world: &mut Inner) {
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
pub(super) fn volumes(world: &mut Inner, key: &ObjectKey, node: &str) {
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
                completed(it);
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

/// What the controller of volumes writes last: the claim and its volume are bound to each other.
fn completed(claim: &mut PersistentVolumeClaim) {
    claim.metadata.annotations.insert(BIND_COMPLETED.into(), "yes".into());
    claim.status.phase = "Bound".into();
}

/// Makes the volumes of claims whose class does not wait for a pod (`Immediate`, the default), each in a zone drawn from
/// those that the class allows, and binds them.
fn make_immediate(world: &mut Inner) {
    let unbound: Vec<_> = world
        .store
        .list::<PersistentVolumeClaim>()
        .filter(|it| it.spec.volume_name.is_empty())
        .collect();
    for claim in unbound {
        let Some(class) = placement::storage_class(&world.store, &claim) else { continue };
        if class.volume_binding_mode == "WaitForFirstConsumer"
            || class.provisioner == "kubernetes.io/no-provisioner"
        {
            continue;
        }
        let zones: Vec<String> = world.market.zones.iter().map(|it| it.name.clone()).collect();
        let allowed: Vec<String> = class
            .allowed_topologies
            .iter()
            .flat_map(|it| &it.match_label_expressions)
            .filter(|it| labels::normalize(&it.key) == labels::ZONE)
            .flat_map(|it| it.values.clone())
            .collect();
        let zones = if allowed.is_empty() { zones } else { allowed };
        let Some(zone) = zones.get(world.random.below(zones.len().max(1) as u64) as usize) else {
            continue;
        };
        let volume = format!("pvc-{}", claim.metadata.uid);
        make_volume(world, &claim, &volume, zone, &class.provisioner);
        world.store.update::<PersistentVolumeClaim>(&claim.key(), world.now, |it| {
            it.spec.volume_name.clone_from(&volume);
            completed(it);
        });
    }
}

/// Binds claims that name a volume which is there, and which no other claim has.
pub(super) fn bind_claims(world: &mut Inner) {
    make_immediate(world);
    let now = world.now;
    let named: Vec<_> = world
        .store
        .list::<PersistentVolumeClaim>()
        .filter(|it| !it.spec.volume_name.is_empty())
        .filter(|it| it.metadata.annotation(BIND_COMPLETED).is_none())
        .collect();
    for claim in named {
        let volume = ObjectKey::cluster(&claim.spec.volume_name);
        let Some(found) = world.store.get::<PersistentVolume>(&volume) else { continue };
        let ours = |it: &ClaimRef| {
            (&it.namespace, &it.name) == (&claim.metadata.namespace, &claim.metadata.name)
        };
        if !found.spec.claim_ref.as_ref().is_none_or(ours) {
            continue;
        }
        world.store.update::<PersistentVolume>(&volume, now, |it| {
            it.spec.claim_ref = Some(ClaimRef {
                namespace: claim.metadata.namespace.clone(),
                name: claim.metadata.name.clone(),
                uid: claim.metadata.uid.clone(),
            });
        });
        world.store.update::<PersistentVolumeClaim>(&claim.key(), now, completed);
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
                ..Default::default()
            }],
        }),
    });
    world.store.create(volume, now);
}

/// The volumes of a pod that is gone are detached a little later.
pub(super) fn detach(world: &mut Inner, pod: &Pod) {
    for name in placement::claims_of(pod) {
        let key = ObjectKey::namespaced(&pod.metadata.namespace, &name);
        if let Some(claim) = world.store.get::<PersistentVolumeClaim>(&key) {
            let attachment = format!("csi-{}-{}", claim.spec.volume_name, pod.spec.node_name);
            world.after(3_000, Happening::VolumeDetached(attachment));
        }
    }
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
    if world.store.get::<Node>(&key).is_some_and(|it| it.metadata.uid == *uid) {
        no_longer_heard_of(world, &key);
        delete::<Node>(world, &key, None);
    }
}

/// The node of a stopped instance stays, but it is not ready.
pub fn node_unreachable(world: &mut Inner, id: &InstanceId) {
    if world.machines.get(id).is_none_or(Machine::is_live) {
        return;
    }
    let of_instance = |it: &Arc<Node>| it.spec.provider_id.instance_id().as_ref() == Some(id);
    let keys: Vec<_> = world.store.list::<Node>().filter(of_instance).map(|it| it.key()).collect();
    for key in keys {
        no_longer_heard_of(world, &key);
    }
}

fn no_longer_heard_of(world: &mut Inner, key: &ObjectKey) {
    let now = world.now;
    world.store.update::<Node>(key, now, |it| {
        for condition in it.status.conditions.iter_mut().filter(|it| it.type_ == "Ready") {
            condition.status = "Unknown".into();
            condition.reason = "NodeStatusUnknown".into();
            condition.last_transition_time = Some(whole_second(now));
        }
    });
}

/// An agent (a DaemonSet whose running pod tolerates a startup taint of the node's claim) takes the taint away a
/// little after it runs. Without an agent the taint stays, and the node with it Registered, as in a real cluster.
pub fn agents(world: &mut Inner) {
    let now = world.now;
    let claims: Vec<_> = world
        .store
        .list::<NodeClaim>()
        .filter(|it| !it.spec.startup_taints.is_empty() && !it.status.node_name.is_empty())
        .collect();
    for claim in claims {
        let key = ObjectKey::cluster(&claim.status.node_name);
        let Some(node) = world.store.get::<Node>(&key) else { continue };
        let ready = |it: &NodeCondition| it.type_ == "Ready" && it.status == "True";
        if !node.status.conditions.iter().any(ready) {
            continue;
        }
        let mut done = Vec::new();
        for taint in &claim.spec.startup_taints {
            let same = |it: &Taint| it.key == taint.key && it.effect == taint.effect;
            if !node.spec.taints.iter().any(same) {
                continue;
            }
            let Some(due) = world
                .store
                .pods_on(&node.metadata.name)
                .filter(|it| it.metadata.controller().is_some_and(|it| it.kind == "DaemonSet"))
                .filter(|it| it.spec.tolerations.iter().any(|it| it.tolerates(taint)))
                .filter_map(|it| it.condition("Ready")?.last_transition_time)
                .map(|it| it + SignedDuration::from_millis(AGENT_START))
                .min()
            else {
                continue;
            };
            if due <= now {
                done.push(taint.clone());
            } else {
                world.at(due, Happening::Agents);
            }
        }
        if !done.is_empty() {
            world.store.update::<Node>(&key, now, |it| {
                it.spec.taints.retain(|taint| {
                    !done.iter().any(|it| it.key == taint.key && it.effect == taint.effect)
                });
            });
        }
    }
}
