//! Volumes of pods: whether their claims can be used, where their volumes can be, and how many attachments they take
//! (`spec` scheduling 6).

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_model::{
    ObjectKey, Requirement, Requirements,
    core::{PersistentVolume, PersistentVolumeClaim, Pod, StorageClass, Volume},
    labels,
};

use crate::view::{ClusterView, StateNode};

/// Annotation by which the volume controller says that a claim is bound for good.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The driver of EBS volumes, also of those that still use the in-tree source.
pub(crate) const EBS: &str = "ebs.csi.aws.com";
/// EBS volumes beside the root volume that a Nitro instance surely takes: of 28 slots, shared with network interfaces and
/// instance store on most types, Kubernetes leaves 25. Source: `MaxEBSNitroVolumeLimit` of its in-tree driver.
const NITRO_VOLUMES: usize = 25;
/// The same for Xen instances. Source: `DefaultMaxEBSVolumes` of its in-tree driver.
const XEN_VOLUMES: usize = 39;

/// The claim names that a pod's volumes refer to.
fn claim_keys(pod: &Pod) -> impl Iterator<Item = (ObjectKey, &Volume)> {
    pod.spec.volumes.iter().filter_map(|volume| {
        let name = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => claim.claim_name.clone(),
            (None, Some(_)) => format!("{}-{}", pod.metadata.name, volume.name),
            (None, None) => return None,
        };
        Some((ObjectKey::namespaced(&pod.metadata.namespace, &name), volume))
    })
}

/// Whether the pod has any volume with a claim.
pub(crate) fn has_claims(pod: &Pod) -> bool {
    pod.spec.volumes.iter().any(|it| it.persistent_volume_claim.is_some() || it.ephemeral.is_some())
}

fn class_name(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.storage_class_name.as_deref().unwrap_or("")
}

fn class<'a>(claim: &PersistentVolumeClaim, view: &'a ClusterView) -> Option<&'a StorageClass> {
    view.storage_classes.get(&ObjectKey::cluster(class_name(claim))).map(|it| &**it)
}

fn volume<'a>(
    claim: &PersistentVolumeClaim,
    view: &'a ClusterView,
) -> Option<&'a PersistentVolume> {
    view.volumes.get(&ObjectKey::cluster(&claim.spec.volume_name)).map(|it| &**it)
}

/// Why a pod cannot be placed while its claims are as they are.
pub(crate) fn problem(pod: &Pod, view: &ClusterView) -> Option<String> {
    claim_keys(pod).find_map(|(key, _)| claim_problem(&key, view))
}

fn claim_problem(key: &ObjectKey, view: &ClusterView) -> Option<String> {
    let Some(claim) = view.volume_claims.get(key) else {
        return Some(format!("persistentvolumeclaim \"{key}\" not found"));
    };
    if claim.metadata.deleting() {
        return Some(format!("persistentvolumeclaim \"{key}\" is being deleted"));
    }
    if claim.status.phase == "Lost" {
        return Some(format!("persistentvolumeclaim \"{key}\" is bound to a volume that is lost"));
    }
    let name = &claim.spec.volume_name;
    if !name.is_empty() {
        return match volume(claim, view) {
            None => Some(format!("persistentvolume \"{name}\" not found")),
            Some(it) if it.metadata.deleting() => {
                Some(format!("persistentvolume \"{name}\" is being deleted"))
            }
            Some(_) if !claim.metadata.annotations.contains_key(BIND_COMPLETED) => {
                Some(format!("persistentvolumeclaim \"{key}\" is not yet bound to \"{name}\""))
            }
            Some(_) => None,
        };
    }
    let wanted = class_name(claim);
    if wanted.is_empty() {
        return Some(format!("unbound persistentvolumeclaim \"{key}\" has no storage class"));
    }
    match class(claim, view) {
        None => Some(format!("storageclass \"{wanted}\" of \"{key}\" not found")),
        Some(it) if matches!(it.volume_binding_mode.as_str(), "" | "Immediate") => {
            Some(format!("persistentvolumeclaim \"{key}\" must be bound first (Immediate mode)"))
        }
        Some(_) => None,
    }
}

/// The places where all volumes of a pod can be, one of which has to hold; empty for "anywhere".
pub(crate) fn alternatives(pod: &Pod, view: &ClusterView) -> Vec<Requirements> {
    let mut combined: Vec<Requirements> = Vec::new();
    for (key, _) in claim_keys(pod) {
        let Some(claim) = view.volume_claims.get(&key) else { continue };
        let terms = if claim.spec.volume_name.is_empty() {
            class(claim, view).map(allowed_topologies).unwrap_or_default()
        } else {
            volume(claim, view).map(affinity_terms).unwrap_or_default()
        };
        if terms.is_empty() {
            continue;
        }
        if combined.is_empty() {
            combined = terms;
            continue;
        }
        let merged = |checked: bool| -> Vec<Requirements> {
            let mut all = Vec::new();
            for a in &combined {
                for b in terms.iter().filter(|b| !checked || a.meets(b)) {
                    let mut both = a.clone();
                    both.add_all(b);
                    all.push(both);
                }
            }
            all
        };
        let compatible = merged(true);
        combined = if compatible.is_empty() { merged(false) } else { compatible };
    }
    combined
}

fn allowed_topologies(class: &StorageClass) -> Vec<Requirements> {
    class
        .allowed_topologies
        .iter()
        .map(|term| {
            term.match_label_expressions
                .iter()
                .map(|it| {
                    let values = it.values.iter().map(String::as_str);
                    Requirement::new(&it.key, spokeshave_model::Operator::In, values)
                })
                .collect()
        })
        .collect()
}

/// Terms of the volume's node affinity. The node of a local volume is going away: its host name is left out.
fn affinity_terms(volume: &PersistentVolume) -> Vec<Requirements> {
    let Some(required) = volume.spec.node_affinity.as_ref().and_then(|it| it.required.as_ref())
    else {
        return Vec::new();
    };
    let local = volume.spec.local.is_some() || volume.spec.host_path.is_some();
    required
        .node_selector_terms
        .iter()
        .map(|term| {
            let mut set = Requirements::from_api(&term.match_expressions);
            if local {
                set.remove(labels::HOSTNAME);
            }
            set
        })
        .collect()
}

/// Attached claims by driver.
pub(crate) type Attachments = BTreeMap<String, BTreeSet<ObjectKey>>;

/// What a pod attaches to its node.
pub(crate) fn attachments(pod: &Pod, view: &ClusterView) -> Attachments {
    let mut all = Attachments::new();
    for (key, _) in claim_keys(pod) {
        if let Some(driver) = view.volume_claims.get(&key).and_then(|it| driver(it, view)) {
            all.entry(driver).or_default().insert(key);
        }
    }
    all
}

fn driver(claim: &PersistentVolumeClaim, view: &ClusterView) -> Option<String> {
    if claim.spec.volume_name.is_empty() {
        let provisioner = class(claim, view)?.provisioner.as_str();
        return match provisioner {
            "" => None,
            "kubernetes.io/aws-ebs" => Some(EBS.to_owned()),
            other => Some(other.to_owned()),
        };
    }
    let volume = volume(claim, view)?;
    match (&volume.spec.csi, &volume.spec.aws_elastic_block_store) {
        (Some(csi), _) => Some(csi.driver.clone()),
        (None, Some(_)) => Some(EBS.to_owned()),
        (None, None) => None,
    }
}

/// How many EBS volumes can be attached to nodes of these labels (or of a type of these requirements), where the hypervisor
/// tells.
pub(crate) fn known_limit(labels: &Requirements) -> Option<usize> {
    match labels.get(labels::INSTANCE_HYPERVISOR)?.values.first().map(String::as_str)? {
        "nitro" => Some(NITRO_VOLUMES),
        "xen" => Some(XEN_VOLUMES),
        _ => None,
    }
}

/// How many attachments each driver allows on a node, as far as it says so.
///
/// DIFFERENCE: `allocatable` without `count` is no limit, as Kubernetes means it; Karpenter takes it for zero. Where the EBS
/// driver has not registered with the node yet, its instance's limit counts; Karpenter takes that for no limit.
pub(crate) fn limits(state: &StateNode, view: &ClusterView) -> BTreeMap<String, usize> {
    let csi_node = view.csi_nodes.get(&ObjectKey::cluster(state.node_name()));
    let drivers = csi_node.map_or(&[][..], |it| &it.spec.drivers);
    let mut limits: BTreeMap<String, usize> = drivers
        .iter()
        .filter_map(|it| {
            let count = it.allocatable.as_ref()?.count?;
            Some((it.name.clone(), usize::try_from(count).unwrap_or(0)))
        })
        .collect();
    if !drivers.iter().any(|it| it.name == EBS) {
        let known = known_limit(&Requirements::from_labels(state.labels()));
        // A CSINode without the driver is one that is still filling; the lower limit is right in any case.
        limits.extend(known.or(csi_node.map(|_| NITRO_VOLUMES)).map(|it| (EBS.to_owned(), it)));
    }
    limits
}

/// Whether `wanted` can be attached beside `held`. Only drivers to which something is added are looked at.
///
/// DIFFERENCE: Karpenter looks at every driver, so that a node over any limit takes no pod at all.
pub(crate) fn can_attach(
    wanted: &Attachments,
    held: &Attachments,
    limits: &BTreeMap<String, usize>,
) -> bool {
    wanted.iter().all(|(driver, claims)| {
        let Some(limit) = limits.get(driver) else { return true };
        let none = BTreeSet::new();
        let present = held.get(driver).unwrap_or(&none);
        let added = claims.difference(present).count();
        added == 0 || present.len() + added <= *limit
    })
}
