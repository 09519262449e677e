//! Which volumes have to be detached before an instance may go.

use std::collections::BTreeSet;

use jiff::Timestamp;
use spokeshave_model::{
    ObjectKey,
    core::{Pod, VolumeAttachment},
    pod_classes::is_drainable,
};

/// The volume claims of a pod: named ones, and those that its ephemeral volumes stand for.
pub fn claims_of(pod: &Pod) -> impl Iterator<Item = ObjectKey> + '_ {
    pod.spec.volumes.iter().filter_map(|volume| {
        let name = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => claim.claim_name.clone(),
            (None, Some(_)) => format!("{}-{}", pod.metadata.name, volume.name),
            (None, None) => return None,
        };
        Some(ObjectKey::namespaced(&pod.metadata.namespace, &name))
    })
}

/// Volume claims of pods that stay on the node to its end; their volumes are not waited for.
pub fn staying_claims(pods: &[&Pod], now: Timestamp) -> BTreeSet<ObjectKey> {
    pods.iter().filter(|it| !is_drainable(it, now)).flat_map(|it| claims_of(it)).collect()
}

/// Names of the attachments on `node` that have to go first, sorted.
///
/// `ignored` are names of PersistentVolumes: those of [`staying_claims`], and those that do not exist.
///
/// DIFFERENCE: Karpenter also waits for attachments of volumes that no longer exist, for ever.
pub fn blocking<'a>(
    attachments: impl IntoIterator<Item = &'a VolumeAttachment>,
    node: &str,
    ignored: &BTreeSet<String>,
) -> Vec<&'a VolumeAttachment> {
    let mut blocking: Vec<&VolumeAttachment> = attachments
        .into_iter()
        .filter(|it| it.spec.node_name == node)
        .filter(|it| {
            let volume = it.spec.source.persistent_volume_name.as_ref();
            volume.is_some_and(|name| !name.is_empty() && !ignored.contains(name))
        })
        .collect();
    blocking.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    blocking
}
