//! What a kubelet does for a made-up Node, where no KWOK controller does it.
//!
//! The launch function comes by every [`INTERVAL`] for each made-up instance that runs: it keeps the Node's Lease fresh and
//! its condition `Ready`, lets pods that are bound to it run with all their containers, ends the pods of Jobs after one
//! [`INTERVAL`], and lets go of pods that are being deleted. A Node that somebody else has made Ready is left to them.

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{
    Kind, NodeClaim, ObjectKey, ObjectMeta,
    core::{Lease, LeaseSpec, Node, NodeCondition, PodCondition},
};
use spokeshave_ports::{Cluster, ClusterError, Ec2, Precondition, Selector};

use crate::{
    node::{JoinError, is_made_up, name},
    played::{PlayedContainerStatus, PlayedPod, PlayedStatus},
};

/// From one look at a Node to the next, as a kubelet renews its Lease.
pub const INTERVAL: SignedDuration = SignedDuration::from_secs(10);
/// A Lease renewed within this time was renewed by another chain of wake-ups for the same Node: this one ends.
const OTHERS: SignedDuration = SignedDuration::from_secs(5);
/// How long a Lease counts, as a kubelet's.
const LEASE_SECONDS: i32 = 40;
/// Namespace of the Leases of Nodes.
const LEASES: &str = "kube-node-lease";
/// Reason of our condition `Ready`. A KWOK controller gives another one.
pub const REASON: &str = "MadeUpKubelet";
/// Conditions of a pod that runs.
const OF_RUNNING: [&str; 4] = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];

/// What a kubelet does next with a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Its status says that it runs.
    Run(PlayedStatus),
    /// Its status says that its work is done.
    End(PlayedStatus),
    /// Its containers have stopped: the object goes.
    LetGo,
}

/// What a kubelet does next with a pod on its Node at `now`; `None`: nothing. Containers stop at once.
pub fn step(pod: &PlayedPod, now: Timestamp) -> Option<Step> {
    if pod.metadata.deleting() {
        return Some(Step::LetGo);
    }
    if pod.is_terminal() {
        return None;
    }
    let since = pod.status.start_time.unwrap_or(now);
    if pod.comes_to_an_end() && now.duration_since(since) >= INTERVAL {
        return Some(Step::End(ended(pod, since, now)));
    }
    let mut status = pod.status.clone();
    status.phase = "Running".into();
    status.start_time = Some(since);
    status.init_container_statuses = init_containers(pod, since, since, true);
    // One that somebody has written of runs since then.
    let runs = |name: &str| {
        let known = pod.status.container_statuses.iter().find(|it| it.name == name);
        known.filter(|it| it.ready && it.state.running.is_some()).cloned()
    };
    let containers = pod.spec.containers.iter();
    status.container_statuses =
        containers.map(|it| runs(&it.name).unwrap_or_else(|| it.running(since))).collect();
    for kind in OF_RUNNING {
        let found = status.conditions.iter().position(|it| it.type_ == kind);
        let condition = PodCondition {
            type_: kind.into(),
            status: "True".into(),
            last_transition_time: Some(now),
            ..PodCondition::default()
        };
        match found.and_then(|at| status.conditions.get_mut(at)) {
            Some(it) if it.status == "True" => {}
            Some(it) => *it = condition,
            None => status.conditions.push(condition),
        }
    }
    (status != pod.status).then_some(Step::Run(status))
}

/// Init containers have ended before the others began; sidecars run as long as these.
fn init_containers(
    pod: &PlayedPod,
    since: Timestamp,
    until: Timestamp,
    goes_on: bool,
) -> Vec<PlayedContainerStatus> {
    let status = |it: &crate::played::PlayedContainer| match (it.is_sidecar(), goes_on) {
        (true, true) => it.running(since),
        (true, false) => it.ended(since, until),
        (false, _) => it.ended(since, since),
    };
    pod.spec.init_containers.iter().map(status).collect()
}

/// The status of a pod whose work is done.
fn ended(pod: &PlayedPod, since: Timestamp, now: Timestamp) -> PlayedStatus {
    let mut status = pod.status.clone();
    status.phase = "Succeeded".into();
    status.container_statuses = pod.spec.containers.iter().map(|it| it.ended(since, now)).collect();
    status.init_container_statuses = init_containers(pod, since, now, false);
    let unready = |it: &&mut PodCondition| matches!(&*it.type_, "Ready" | "ContainersReady");
    for it in status.conditions.iter_mut().filter(unready) {
        it.status = "False".into();
        it.reason = "PodCompleted".into();
        it.last_transition_time = Some(now);
    }
    status
}

/// The Node with our condition `Ready`; `None` when it has it.
fn ready(node: &Node, now: Timestamp) -> Option<Node> {
    if node.is_ready() {
        return None;
    }
    let mut node = node.clone();
    node.status.conditions.retain(|it| it.type_ != "Ready");
    node.status.conditions.push(NodeCondition {
        type_: "Ready".into(),
        status: "True".into(),
        reason: REASON.into(),
        message: "made up".into(),
        last_transition_time: Some(now),
    });
    Some(node)
}

/// Plays the kubelet of a claim's Node once. `Some`: come by again then; `None`: there is no such Node or no such instance any
/// more, or somebody else plays.
///
/// # Errors
/// What cluster or EC2 answer; a repeat does no harm.
pub async fn play(
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    claim: &NodeClaim,
    now: Timestamp,
) -> Result<Option<Timestamp>, JoinError> {
    let Some(id) = claim.status.provider_id.instance_id().filter(|_| is_made_up(claim)) else {
        return Ok(None);
    };
    let name = name(&id);
    let Some(node) = cluster.get::<Node>(&ObjectKey::cluster(&name)).await? else {
        return Ok(None);
    };
    let theirs = |it: &NodeCondition| it.status == "True" && it.reason != REASON;
    if node.condition("Ready").is_some_and(theirs) {
        return Ok(None);
    }
    let found = ec2.describe_instances(std::slice::from_ref(&id)).await?;
    if !found.iter().any(|it| it.id == id && it.state == "running") {
        return Ok(None);
    }
    if !renew(cluster, &name, now).await? {
        return Ok(None);
    }
    if let Some(ready) = ready(&node, now) {
        cluster.patch_status(&*node, &ready, Precondition::Uid).await?;
    }
    for pod in cluster.list::<PlayedPod>(&Selector::on_node(&name)).await? {
        if pod.spec.node_name != name {
            continue;
        }
        let done = match step(&pod, now) {
            None => Ok(()),
            Some(Step::LetGo) => {
                cluster.delete::<PlayedPod>(&pod.key(), &pod.metadata.uid, Some(0)).await
            }
            Some(Step::Run(status) | Step::End(status)) => {
                let changed = PlayedPod { status, ..(*pod).clone() };
                cluster.patch_status(&*pod, &changed, Precondition::Uid).await.map(drop)
            }
        };
        match done {
            // It went, or another one has its name: the next look tells.
            Ok(()) | Err(ClusterError::NotFound { .. } | ClusterError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(now.saturating_add(INTERVAL).ok())
}

/// Renews the Lease of a Node; `Ok(false)` when somebody just did.
async fn renew(cluster: &impl Cluster, name: &str, now: Timestamp) -> Result<bool, ClusterError> {
    let key = ObjectKey::namespaced(LEASES, name);
    let found = cluster.get::<Lease>(&key).await?;
    let spec = LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(now),
        ..LeaseSpec::default()
    };
    let written = match found {
        None => {
            let metadata = ObjectMeta { namespace: LEASES.into(), ..ObjectMeta::named(name) };
            cluster.create(&Lease { metadata, spec }).await
        }
        Some(lease) => {
            let fresh = |at: Timestamp| now.duration_since(at) < OTHERS;
            if lease.spec.renew_time.is_some_and(fresh) {
                return Ok(false);
            }
            let renewed = Lease { spec, ..(*lease).clone() };
            cluster.patch(&*lease, &renewed, Precondition::ResourceVersion).await
        }
    };
    match written {
        Ok(_) => Ok(true),
        Err(ClusterError::AlreadyExists { .. } | ClusterError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
