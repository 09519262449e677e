//! The hash of a class on the class and, when the formula changes, on its claims (`spec` aws-nodeclass 17).

use spokeshave_model::{EC2NodeClass, Kind, NodeClaim, hash, labels};
use spokeshave_ports::{Cluster, ClusterError, Decision, Invocation, Precondition, Selector};

use crate::Trouble;

/// Brings the claims of a class with an older version along: a new formula must not drift nodes. A claim that
/// has drifted keeps its old hash and stays drifted.
pub(crate) async fn bring_claims_along(
    cluster: &impl Cluster,
    class: &EC2NodeClass,
    new_hash: &str,
    cx: &Invocation<'_>,
) -> Result<(), Trouble> {
    let version = hash::EC2_NODE_CLASS_VERSION;
    if class.metadata.annotation(labels::NODECLASS_HASH_VERSION) == Some(version) {
        return Ok(());
    }
    let claims = cluster.list::<NodeClaim>(&Selector::all()).await?;
    let mut first: Option<ClusterError> = None;
    for claim in claims.iter().filter(|it| is_of(it, class)) {
        if claim.metadata.annotation(labels::NODECLASS_HASH_VERSION) == Some(version) {
            continue;
        }
        let mut changed = claim.as_ref().clone();
        let annotations = &mut changed.metadata.annotations;
        annotations.insert(labels::NODECLASS_HASH_VERSION.into(), version.into());
        if claim.condition(NodeClaim::DRIFTED).is_none() {
            annotations.insert(labels::NODECLASS_HASH.into(), new_hash.into());
        }
        match cluster.patch(claim.as_ref(), &changed, Precondition::Uid).await {
            Ok(_) => cx.decide(Decision::new(
                "rehash",
                claim.reference(),
                format!("the formula of the class hash is now {version}"),
            )),
            Err(ClusterError::NotFound { .. }) => {}
            Err(error) => first = first.or(Some(error)),
        }
    }
    first.map_or(Ok(()), |error| Err(error.into()))
}

/// Whether a claim refers to the class.
pub(crate) fn is_of(claim: &NodeClaim, class: &EC2NodeClass) -> bool {
    claim.is_managed() && claim.spec.node_class_ref.name == class.metadata.name
}
