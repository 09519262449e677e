//! Instances without a claim, and claims without an instance (`spec` lifecycle 11, aws-nodeclass 20).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use spokeshave_catalog::{
    launch::attempt::{self, State},
    zonal_shift,
};
use spokeshave_lifecycle::metrics;
use spokeshave_model::{
    EC2NodeClass, InstanceId, Kind, NodeClaim, ObjectKey,
    core::{Node, Pod},
    labels, pod_classes,
};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Decision, Ec2, Invocation, Selector, StateTable,
    cluster::KubeEvent,
    ec2::{Filter, Instance},
};

use crate::TryAgain;

/// An instance younger than this is never touched: its claim may be on its way. 30 s, as in Karpenter 1.x.
pub const MIN_AGE: SignedDuration = SignedDuration::from_secs(30);
/// The same for one that does not say which claim or launch it belongs to.
pub const MIN_AGE_UNNAMED: SignedDuration = SignedDuration::from_mins(2);
/// So long a launch may take to be written down; the same time after which an unlaunched claim is given up.
pub const LAUNCH_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);

/// Equal events on one object are published once in this time. 2 minutes, as in Karpenter 1.x.
const EVENTS_ONCE_IN: SignedDuration = SignedDuration::from_mins(2);

/// Tag keys that every instance of ours has, besides the cluster's name.
const TAG_NODEPOOL: &str = labels::NODEPOOL;
const TAG_NODECLASS: &str = labels::NODECLASS;

/// What of a claim is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    pub name: String,
    pub instance_id: Option<InstanceId>,
    /// The launch attempt that it names.
    pub attempt: Option<String>,
}

impl From<&NodeClaim> for Claim {
    fn from(claim: &NodeClaim) -> Self {
        Self {
            name: claim.name().to_owned(),
            instance_id: claim.status.provider_id.instance_id(),
            attempt: claim.metadata.annotations.get(labels::LAUNCH_ATTEMPT).cloned(),
        }
    }
}

/// What is to become of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A claim has it, or it is on its way out.
    Keep,
    /// Nobody has it yet, but somebody may still come for it.
    Wait(&'static str),
    /// Nobody will come for it.
    Terminate,
}

/// Decides about one instance of this cluster.
///
/// `claims` were listed after the instance was seen; `attempt_open` says whether the launch that it names is still
/// without a recorded outcome. At exactly the age in question an instance is still left.
pub fn instance_verdict(
    instance: &Instance,
    claims: &[Claim],
    attempt_open: bool,
    now: Timestamp,
) -> Verdict {
    let taken = claims.iter().any(|it| it.instance_id.as_ref() == Some(&instance.id));
    if taken || matches!(instance.state.as_str(), "shutting-down" | "terminated") {
        return Verdict::Keep;
    }
    let age = instance.launch_time.map_or(SignedDuration::ZERO, |it| now.duration_since(it));
    if age <= MIN_AGE {
        return Verdict::Wait("too young");
    }
    let unlaunched = || claims.iter().filter(|it| it.instance_id.is_none());
    let attempt = instance.tags.get(labels::TAG_LAUNCH);
    let name = instance.tags.get(labels::TAG_NODECLAIM);
    if age <= LAUNCH_TIMEOUT {
        if attempt.is_some() && attempt_open {
            return Verdict::Wait("its launch is not recorded yet");
        }
        let named = |it: &Claim| {
            attempt.is_some_and(|attempt| it.attempt.as_ref() == Some(attempt))
                || name.is_some_and(|name| it.name == *name)
        };
        if unlaunched().any(named) {
            return Verdict::Wait("its claim is being launched");
        }
    }
    if attempt.is_none() && name.is_none() && age <= MIN_AGE_UNNAMED {
        return Verdict::Wait("too young for one that names no launch");
    }
    Verdict::Terminate
}

/// Which attempts may still come for their instances.
async fn open_attempts(
    instances: &[Instance],
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> Result<BTreeSet<String>, TryAgain> {
    let ids: BTreeSet<&String> =
        instances.iter().filter_map(|it| it.tags.get(labels::TAG_LAUNCH)).collect();
    let mut open = BTreeSet::new();
    for id in ids {
        match attempt::load(state, id).await {
            Ok(Some(stored)) => {
                if matches!(stored.attempt.state, State::Preparing | State::Open) {
                    open.insert(id.clone());
                }
            }
            // With the record lost, the claim's annotation decides.
            Ok(None) => {}
            Err(error) => {
                let object = format!("StateTable/attempt/{id}");
                cx.decide(
                    Decision::new("retry", object, error.to_string()).caused_by(&error).as_error(),
                );
                return Err(TryAgain);
            }
        }
    }
    Ok(open)
}

/// One sweep.
pub(crate) async fn run(
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> Result<(), TryAgain> {
    let known_before = list_claims(cluster, cx).await?;
    let instances = match instances_of_cluster(ec2, &cx.settings.cluster_name).await {
        Ok(instances) => instances,
        Err(error) => return failed("ec2:DescribeInstances", &error, cx),
    };
    let known_after = list_claims(cluster, cx).await?;
    let lost = claims_without_instance(&known_before, &instances, cluster, ec2, cx).await;
    let leaked = instances_without_claim(&instances, &known_after, cluster, ec2, state, cx).await;
    lost.and(leaked)
}

/// The instances of a cluster, by either of the tags that say so, each once.
///
/// DIFFERENCE: Karpenter v1 sees only instances that have `eks:eks-cluster-name`, which those of older versions get after
/// they have registered: one that leaked before would never be collected.
async fn instances_of_cluster(ec2: &impl Ec2, cluster: &str) -> Result<Vec<Instance>, AwsError> {
    let mut by_id: BTreeMap<InstanceId, Instance> = BTreeMap::new();
    for tag in [labels::TAG_CLUSTER_NAME, labels::TAG_MANAGED_BY] {
        let filters = [
            Filter::new("tag-key", &[TAG_NODEPOOL]),
            Filter::new("tag-key", &[TAG_NODECLASS]),
            Filter::new(&format!("tag:{tag}"), &[cluster]),
            Filter::new(
                "instance-state-name",
                &["pending", "running", "stopping", "stopped", "shutting-down"],
            ),
        ];
        by_id.extend(ec2.find_instances(&filters).await?.into_iter().map(|it| (it.id.clone(), it)));
    }
    Ok(by_id.into_values().collect())
}

/// Whether an instance says that it belongs to the cluster. Where both tags are, the newer one counts.
fn belongs_to(instance: &Instance, cluster: &str) -> bool {
    let named = |tag: &str| instance.tags.get(tag).map(String::as_str);
    named(labels::TAG_CLUSTER_NAME).or_else(|| named(labels::TAG_MANAGED_BY)) == Some(cluster)
}

async fn list_claims(
    cluster: &impl Cluster,
    cx: &Invocation<'_>,
) -> Result<Vec<Arc<NodeClaim>>, TryAgain> {
    cluster.list::<NodeClaim>(&Selector::all()).await.map_err(|error| {
        cx.decide(
            Decision::new("retry", "NodeClaim/all", error.to_string()).caused_by(&error).as_error(),
        );
        TryAgain
    })
}

/// Records a failed call. Without the permission there is no sense in coming back before the next minute, but it has to
/// be seen.
fn failed(call: &str, error: &AwsError, cx: &Invocation<'_>) -> Result<(), TryAgain> {
    if error.is_unauthorized() {
        let reason = format!("no permission for {call}: {error}");
        cx.decide(Decision::new("skip", "Instance/all", reason).with_error(error).as_error());
        let labels = [("controller", "instance.garbagecollection"), ("method", call)];
        cx.count("karpenter_cloudprovider_errors_total", &labels);
        return Ok(());
    }
    cx.decide(
        Decision::new("retry", "Instance/all", error.to_string()).with_error(error).as_error(),
    );
    Err(TryAgain)
}

async fn claims_without_instance(
    claims: &[Arc<NodeClaim>],
    instances: &[Instance],
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    cx: &Invocation<'_>,
) -> Result<(), TryAgain> {
    let alive: BTreeSet<&InstanceId> = instances
        .iter()
        .filter(|it| !matches!(it.state.as_str(), "shutting-down" | "terminated"))
        .map(|it| &it.id)
        .collect();
    let suspects: BTreeMap<InstanceId, &Arc<NodeClaim>> = claims
        .iter()
        .filter(|it| it.is_managed() && !it.metadata.deleting())
        .filter(|it| it.is_true(NodeClaim::REGISTERED))
        .filter_map(|it| Some((it.status.provider_id.instance_id()?, it)))
        .filter(|(id, _)| !alive.contains(id))
        .collect();
    if suspects.is_empty() {
        return Ok(());
    }
    // Somebody may only have taken off the tags that the list goes by.
    let ids: Vec<InstanceId> = suspects.keys().cloned().collect();
    let still_there: BTreeSet<InstanceId> = match ec2.describe_instances(&ids).await {
        Ok(found) => found
            .into_iter()
            .filter(|it| !matches!(it.state.as_str(), "shutting-down" | "terminated"))
            .map(|it| it.id)
            .collect(),
        Err(error) if error.is_not_found() => BTreeSet::new(),
        Err(error) => return failed("ec2:DescribeInstances", &error, cx),
    };
    let nodes = list_nodes(cluster, cx).await?;
    let mut outcome = Ok(());
    for (id, claim) in suspects.into_iter().filter(|(id, _)| !still_there.contains(id)) {
        let of_instance: Vec<&Arc<Node>> = nodes
            .iter()
            .filter(|it| it.spec.provider_id.instance_id().as_ref() == Some(&id))
            .collect();
        if let [node] = of_instance.as_slice()
            && node.is_ready()
        {
            let reason = "EC2 does not list its instance, but its node is ready";
            cx.decide(Decision::new("skip", claim.reference(), reason));
            continue;
        }
        let n_pods = reschedulable_pods(&of_instance, cluster).await;
        match cluster.delete::<NodeClaim>(&claim.key(), &claim.metadata.uid, None).await {
            Ok(()) => {
                cx.decide(
                    Decision::new("delete", claim.reference(), "garbage_collected")
                        .with("nodeclaim", claim.name())
                        .with("instance_id", id.as_str()),
                );
                let labels = metrics::disrupted(claim, "garbage_collected", "");
                let labels: Vec<_> = labels.iter().map(|(key, it)| (*key, it.as_str())).collect();
                cx.count(metrics::CLAIMS_DISRUPTED, &labels);
                cx.sample(metrics::PODS_DISRUPTION_INITIATED, n_pods as f64, "Count", &labels);
            }
            Err(error) => {
                cx.decide(
                    Decision::new("retry", claim.reference(), error.to_string())
                        .caused_by(&error)
                        .as_error(),
                );
                outcome = Err(TryAgain);
            }
        }
    }
    outcome
}

/// Pods that will need another place. They are only counted: where they cannot be listed, none are.
async fn reschedulable_pods(nodes: &[&Arc<Node>], cluster: &impl Cluster) -> usize {
    let mut count = 0;
    for node in nodes {
        let selector = Selector::on_node(node.name());
        let pods = cluster.list::<Pod>(&selector).await.unwrap_or_default();
        let here = pods.iter().filter(|it| it.spec.node_name == node.name());
        count += here.filter(|it| pod_classes::is_reschedulable(it)).count();
    }
    count
}

async fn list_nodes(
    cluster: &impl Cluster,
    cx: &Invocation<'_>,
) -> Result<Vec<Arc<Node>>, TryAgain> {
    cluster.list::<Node>(&Selector::all()).await.map_err(|error| {
        cx.decide(
            Decision::new("retry", "Node/all", error.to_string()).caused_by(&error).as_error(),
        );
        TryAgain
    })
}

async fn instances_without_claim(
    instances: &[Instance],
    claims: &[Arc<NodeClaim>],
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> Result<(), TryAgain> {
    let claims: Vec<Claim> = claims.iter().map(|it| Claim::from(&**it)).collect();
    let taken: BTreeSet<&InstanceId> =
        claims.iter().filter_map(|it| it.instance_id.as_ref()).collect();
    // Nobody else's, whatever the answer holds.
    let ours = |it: &&Instance| {
        belongs_to(it, &cx.settings.cluster_name)
            && it.tags.contains_key(TAG_NODEPOOL)
            && it.tags.contains_key(TAG_NODECLASS)
    };
    let unclaimed: Vec<Instance> =
        instances.iter().filter(ours).filter(|it| !taken.contains(&it.id)).cloned().collect();
    if unclaimed.is_empty() {
        return Ok(());
    }
    let open = open_attempts(&unclaimed, state, cx).await?;
    let unlaunched: Vec<Claim> =
        claims.iter().filter(|it| it.instance_id.is_none()).cloned().collect();
    let mut leaked: BTreeMap<InstanceId, Instance> = BTreeMap::new();
    // Among them those that a run ended which did not come to their Nodes.
    let mut ended: BTreeSet<InstanceId> =
        unclaimed.iter().filter(|it| it.state == "shutting-down").map(|it| it.id.clone()).collect();
    for instance in unclaimed {
        let attempt_open =
            instance.tags.get(labels::TAG_LAUNCH).is_some_and(|it| open.contains(it));
        match instance_verdict(&instance, &unlaunched, attempt_open, cx.now) {
            Verdict::Keep => {}
            Verdict::Wait(why) => {
                cx.decide(Decision::new("skip", format!("Instance/{}", instance.id), why));
            }
            Verdict::Terminate => {
                leaked.insert(instance.id.clone(), instance);
            }
        }
    }
    if leaked.is_empty() {
        return delete_nodes_of(&ended, cluster, cx).await;
    }
    // Right before the irreversible call: is it still there, and still nobody's?
    let ids: Vec<InstanceId> = leaked.keys().cloned().collect();
    let described = match ec2.describe_instances(&ids).await {
        Ok(found) => found,
        Err(error) if error.is_not_found() => return delete_nodes_of(&ended, cluster, cx).await,
        Err(error) => return failed("ec2:DescribeInstances", &error, cx),
    };
    let shifted = shifted_zones(cluster, state, cx).await?;
    let fresh = list_claims(cluster, cx).await?;
    let fresh: Vec<Claim> = fresh.iter().map(|it| Claim::from(&**it)).collect();
    let mut outcome = Ok(());
    for instance in described.iter().filter(|it| leaked.contains_key(&it.id)) {
        let attempt_open =
            instance.tags.get(labels::TAG_LAUNCH).is_some_and(|it| open.contains(it));
        if instance_verdict(instance, &fresh, attempt_open, cx.now) != Verdict::Terminate {
            continue;
        }
        let object = format!("Instance/{}", instance.id);
        if shifted.contains(&instance.zone) {
            let reason = "no NodeClaim has it, but traffic is shifted away from its zone";
            cx.decide(Decision::new("skip", object, reason).as_error());
            continue;
        }
        match ec2.terminate_instances(std::slice::from_ref(&instance.id)).await {
            Ok(()) => {
                cx.decide(
                    Decision::new("terminate", object, "no NodeClaim has this instance")
                        .with("instance_id", instance.id.as_str()),
                );
            }
            // DIFFERENCE: not found means gone, no error; its Node can go at once.
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                let labels = [("zone", instance.zone.as_str()), ("zone_id", "")];
                cx.count("karpenter_cloudprovider_instance_termination_failures_total", &labels);
                cx.decide(
                    Decision::new("retry", object, error.to_string()).caused_by(&error).as_error(),
                );
                warn(cluster, instance, &error).await;
                if !error.is_unauthorized() {
                    outcome = Err(TryAgain);
                }
                continue;
            }
        }
        ended.insert(instance.id.clone());
    }
    delete_nodes_of(&ended, cluster, cx).await.and(outcome)
}

/// Deletes the Nodes of instances that belong to no claim and are on their way out.
async fn delete_nodes_of(
    ended: &BTreeSet<InstanceId>,
    cluster: &impl Cluster,
    cx: &Invocation<'_>,
) -> Result<(), TryAgain> {
    if ended.is_empty() {
        return Ok(());
    }
    let is_of_ended = |it: &&Arc<Node>| {
        it.spec.provider_id.instance_id().is_some_and(|id| ended.contains(&id))
            && !it.metadata.deleting()
    };
    let mut outcome = Ok(());
    for node in list_nodes(cluster, cx).await?.iter().filter(is_of_ended) {
        match delete_node(cluster, node).await {
            Ok(()) => {
                let reason = "its instance belonged to no NodeClaim";
                cx.decide(Decision::new("delete", node.reference(), reason));
            }
            Err(error) => {
                let decision =
                    Decision::new("retry", node.reference(), error.to_string()).caused_by(&error);
                cx.decide(decision.as_error());
                outcome = Err(TryAgain);
            }
        }
    }
    outcome
}

/// Names of the zones that nothing is to be changed in. Shifts go by zone id; the classes' subnets know both.
async fn shifted_zones(
    cluster: &impl Cluster,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> Result<BTreeSet<String>, TryAgain> {
    if !cx.settings.enable_zonal_shift {
        return Ok(BTreeSet::new());
    }
    let again = |object: &str, error: &(dyn std::error::Error + 'static)| {
        let decision = Decision::new("retry", object, error.to_string());
        cx.decide(decision.caused_by(error).as_error());
        TryAgain
    };
    let ids = zonal_shift::load(state, cx.now)
        .await
        .map_err(|error| again("StateTable/zonal-shift", &error))?;
    if ids.is_empty() {
        return Ok(ids);
    }
    let classes = cluster
        .list::<EC2NodeClass>(&Selector::all())
        .await
        .map_err(|error| again("EC2NodeClass/all", &error))?;
    let subnets = classes.iter().flat_map(|it| &it.status.subnets);
    Ok(subnets.filter(|it| ids.contains(&it.zone_id)).map(|it| it.zone.clone()).collect())
}

/// Says on the class of a leaked instance that the instance cannot be ended.
async fn warn(cluster: &impl Cluster, instance: &Instance, error: &AwsError) {
    let Some(class) = instance.tags.get(TAG_NODECLASS) else { return };
    let key = ObjectKey::cluster(class);
    let Ok(Some(class)) = cluster.get::<EC2NodeClass>(&key).await else { return };
    let text = format!("Leaked instance {} cannot be terminated: {}", instance.id, error.explain());
    let event = KubeEvent::on(&*class, true, "FailedTermination", text);
    cluster.publish(event, EVENTS_ONCE_IN).await;
}

async fn delete_node(cluster: &impl Cluster, node: &Node) -> Result<(), ClusterError> {
    cluster.delete::<Node>(&ObjectKey::cluster(node.name()), &node.metadata.uid, None).await
}
