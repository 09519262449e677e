//! The Node of a launched claim.

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{
    InstanceId, Kind, NodeClaim, ObjectKey, Taint, TaintEffect,
    core::{Node, NodeSpec, NodeStatus},
    labels,
};
use spokeshave_ports::{AwsError, Cluster, ClusterError, Ec2};

use crate::fleet::JOINS;

/// Annotation and label by which a KWOK controller finds the Nodes that it looks after.
const FAKE: &str = "kwok.x-k8s.io/node";
/// Labels that a kubelet gets from the machine or the launch, by the claim's.
const FROM_CLAIM: &[&str] = &[
    labels::INSTANCE_TYPE,
    labels::REGION,
    labels::ZONE,
    labels::ZONE_ID,
    labels::CAPACITY_TYPE,
    labels::ARCH,
    labels::OS,
    labels::NODEPOOL,
];

/// Why a Node could not be made now.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("cluster")]
    Cluster(#[from] ClusterError),
    #[error("EC2")]
    Aws(#[from] AwsError),
}

/// Whether the instance of this claim is one of ours.
pub fn is_made_up(claim: &NodeClaim) -> bool {
    claim.status.provider_id.0.starts_with("kwok-aws:///")
}

/// Name of the Node of an instance.
pub(crate) fn name(id: &InstanceId) -> String {
    format!("kwok-{id}")
}

/// The Node that the machine of a launched claim would register, `None` before it has one.
///
/// DIFFERENCE: Karpenter's fabricated Nodes are on-demand and of no pool whatever was launched.
pub fn of(claim: &NodeClaim) -> Option<Node> {
    let id = claim.status.provider_id.instance_id().filter(|_| is_made_up(claim))?;
    let name = name(&id);
    let mut node = Node {
        spec: NodeSpec {
            provider_id: claim.status.provider_id.clone(),
            taints: vec![Taint::new(labels::UNREGISTERED_TAINT, "", TaintEffect::NoExecute)],
            ..NodeSpec::default()
        },
        status: NodeStatus {
            capacity: claim.status.capacity.clone(),
            allocatable: claim.status.allocatable.clone(),
            ..NodeStatus::default()
        },
        ..Node::default()
    };
    let known = |key: &&str| Some(((*key).to_owned(), claim.metadata.label(key)?.to_owned()));
    node.metadata.labels = FROM_CLAIM.iter().filter_map(known).collect();
    for (key, value) in [(labels::HOSTNAME, name.as_str()), (FAKE, "fake")] {
        node.metadata.labels.insert(key.to_owned(), value.to_owned());
    }
    node.metadata.annotations.insert(FAKE.to_owned(), "fake".to_owned());
    node.metadata.name = name;
    Some(node)
}

/// Makes the Node of a launched claim when its time has come. `Some`: look again then. A claim that is going, an instance
/// that ended meanwhile and a Node that is there already leave nothing to do.
///
/// # Errors
/// What cluster or EC2 answer; a repeat does no harm.
pub async fn join(
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    claim: &NodeClaim,
    now: Timestamp,
) -> Result<Option<Timestamp>, JoinError> {
    let Some(node) = of(claim).filter(|_| !claim.metadata.deleting()) else { return Ok(None) };
    if claim.is_true(NodeClaim::REGISTERED) {
        return Ok(None);
    }
    let Some(id) = claim.status.provider_id.instance_id() else { return Ok(None) };
    let found = ec2.describe_instances(std::slice::from_ref(&id)).await?;
    let Some(instance) = found.into_iter().find(|it| it.id == id && it.state == "running") else {
        return Ok(None);
    };
    let joins = instance.tags.get(JOINS).and_then(|it| it.parse::<Timestamp>().ok());
    if let Some(joins) = joins.filter(|it| *it > now) {
        return Ok(Some(joins));
    }
    if cluster.get::<Node>(&ObjectKey::cluster(node.name())).await?.is_some() {
        return Ok(None);
    }
    match cluster.create(&node).await {
        Ok(_) | Err(ClusterError::AlreadyExists { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// How soon after the launch a claim is looked at for its Node's time.
pub const FIRST_LOOK: SignedDuration = SignedDuration::from_secs(1);
