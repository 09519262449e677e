//! A node joins: it gets what its claim says, once.

use spokeshave_model::{Kind, NodeClaim, OwnerReference, Taint, TaintEffect, core::Node, labels};

/// The taint that the bootstrap puts on a node until it is registered.
pub fn unregistered_taint() -> Taint {
    Taint::new(labels::UNREGISTERED_TAINT, "", TaintEffect::NoExecute)
}

/// Whether the node has been registered (label exactly `"true"`).
pub fn is_registered(node: &Node) -> bool {
    node.metadata.label(labels::REGISTERED) == Some("true")
}

/// Whether a node came without the unregistered taint, so that pods may have raced onto it.
pub fn lacks_unregistered_taint(node: &Node) -> bool {
    node.metadata.label(labels::REGISTERED).is_none()
        && !node.spec.taints.iter().any(|it| it.matches(&unregistered_taint()))
}

/// Whether this very claim has been synced to the node before: its owner reference is there.
fn was_synced(node: &Node, claim: &NodeClaim) -> bool {
    node.metadata.owner_references.iter().any(|it| is_owner(it, claim))
}

fn is_owner(reference: &OwnerReference, claim: &NodeClaim) -> bool {
    reference.api_version == NodeClaim::api_version()
        && reference.kind == NodeClaim::KIND
        && reference.uid == claim.metadata.uid
}

/// Brings finalizer, owner, taints, annotations and labels of the claim onto its node.
///
/// `carried` are taints that an earlier read of the node showed: a startup taint among them that is gone by now was
/// removed by its agent, and does not come back.
///
/// DIFFERENCE: taints are synced once per claim and node. Karpenter syncs them again after a registration hook was
/// pending, or after a crash before the claim's status was written, and so restores startup taints that an agent has
/// already removed.
pub fn sync(node: &mut Node, claim: &NodeClaim, carried: &[Taint]) {
    let synced_before = was_synced(node, claim);
    if !node.metadata.has_finalizer(labels::TERMINATION_FINALIZER) {
        node.metadata.finalizers.push(labels::TERMINATION_FINALIZER.to_owned());
    }
    if !synced_before {
        node.metadata.owner_references.push(OwnerReference {
            api_version: NodeClaim::api_version(),
            kind: NodeClaim::KIND.to_owned(),
            name: claim.metadata.name.clone(),
            uid: claim.metadata.uid.clone(),
            controller: None,
            block_owner_deletion: Some(true),
        });
    }
    let wants_taints = node.metadata.label(labels::DO_NOT_SYNC_TAINTS) != Some("true");
    if wants_taints && !synced_before {
        let startup = claim
            .spec
            .startup_taints
            .iter()
            .filter(|taint| !carried.iter().any(|it| it.matches(taint)));
        for taint in claim.spec.taints.iter().chain(startup) {
            if !node.spec.taints.iter().any(|it| it.matches(taint)) {
                node.spec.taints.push(taint.clone());
            }
        }
    }
    let copy = |pairs: &std::collections::BTreeMap<String, String>| {
        pairs.iter().map(|(key, value)| (key.clone(), value.clone())).collect::<Vec<_>>()
    };
    node.metadata.annotations.extend(copy(&claim.metadata.annotations));
    node.metadata.labels.extend(copy(&claim.metadata.labels));
}

/// Takes the unregistered taint off and says that the node is registered.
pub fn complete(node: &mut Node) {
    node.spec.taints.retain(|it| !it.matches(&unregistered_taint()));
    node.metadata.labels.insert(labels::REGISTERED.to_owned(), "true".to_owned());
}

/// What the one registration hook of AWS says about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionHook {
    /// The claim is in no partition placement group, or its partition is known.
    Content,
    /// The instance has to be described: its partition number is wanted.
    AskInstance,
}

/// Name of the hook, as conditions show it.
pub const PARTITION_HOOK: &str = "PlacementGroupRegistrationHook";

/// Whether the partition of a claim is still to be found out: it names a placement group, and its partition label is
/// there and empty.
pub fn partition_hook(claim: &NodeClaim) -> PartitionHook {
    let group = claim.metadata.label(labels::PLACEMENT_GROUP_ID);
    let partition = claim.metadata.label(labels::PLACEMENT_GROUP_PARTITION);
    if group.is_some() && partition == Some("") {
        PartitionHook::AskInstance
    } else {
        PartitionHook::Content
    }
}
