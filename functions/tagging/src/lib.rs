//! Puts the tags on an instance that only its node can give: `Name`, `karpenter.sh/nodeclaim`, `eks:eks-cluster-name`.
//!
//! Woken once a claim is registered, and by the sweep for claims that were missed. A tag that the instance has already
//! is left alone, whatever its value: a user's `Name` wins. Volumes and interfaces get none of them.
//!
//! DIFFERENCE: Karpenter sleeps a second after each CreateTags call, which shares EC2's rate limit with CreateFleet.
//! Here at most [`AT_ONCE`] instances are tagged per run, and the rest of a batch comes back as a delayed message.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use spokeshave_catalog::zonal_shift;
use spokeshave_lambda::{
    BatchAnswer, SqsBatch, SqsRecord,
    batch::{Item, reference, stand_by},
};
use spokeshave_model::{InstanceId, Kind, NodeClaim, ObjectKey, labels};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Concern, Decision, Ec2, Invocation, Key, Precondition, Queues,
    Selector, StateTable, Work,
    cluster::KubeEvent,
    ec2::{Instance, Tags},
};

/// CreateTags calls per run at most; one a second on average, since the rest waits as many seconds.
pub const AT_ONCE: usize = 5;

/// Equal events on one claim are published once in this time. 2 minutes, as in Karpenter 1.x.
const EVENTS_ONCE_IN: SignedDuration = SignedDuration::from_mins(2);

/// EC2 tag: what people read in the console.
const TAG_NAME: &str = "Name";

/// Annotations that say that everything is done.
const DONE: [&str; 2] = [labels::TAGGED, labels::CLUSTER_NAME_TAGGED];

/// What one claim asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing: done already, not registered, or on its way out.
    Nothing,
    /// The provider id names no instance.
    Unreadable,
    /// These tags, unless they are there.
    Tags(InstanceId, Tags),
}

/// What tags the instance of a claim is to have.
pub fn wanted(claim: &NodeClaim, cluster_name: &str) -> Wanted {
    let done = DONE.iter().all(|it| claim.metadata.annotation(it) == Some("true"));
    let node = &claim.status.node_name;
    if !claim.is_managed() || done || node.is_empty() || claim.metadata.deleting() {
        return Wanted::Nothing;
    }
    let Some(id) = claim.status.provider_id.instance_id() else { return Wanted::Unreadable };
    let tags = [
        (TAG_NAME, node.as_str()),
        (labels::TAG_NODECLAIM, claim.name()),
        (labels::TAG_CLUSTER_NAME, cluster_name),
    ];
    let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    Wanted::Tags(id, tags.into_iter().map(own).collect())
}

/// The wanted tags whose key the instance does not have.
pub fn missing(wanted: &Tags, instance: &Instance) -> Tags {
    let absent = |(key, _): &(&String, &String)| !instance.tags.contains_key(*key);
    wanted.iter().filter(absent).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Why a claim was not tagged.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Cluster(#[from] ClusterError),
    #[error("{0}")]
    Ec2(#[from] AwsError),
}

/// One claim and the tags its instance is to have.
struct Job<'b> {
    claim: std::sync::Arc<NodeClaim>,
    id: InstanceId,
    tags: Tags,
    records: Vec<&'b SqsRecord>,
}

/// The same as [`handle`], but for a stack that may have to leave the cluster to another autoscaler.
pub async fn handle_unless_observing(
    batch: &SqsBatch,
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> BatchAnswer {
    if let Some(answer) = stand_by(batch, state, cx).await {
        return answer;
    }
    let shifted = shifted_zones(state, cx).await;
    handle_outside(&shifted, batch, cluster, ec2, queues, cx).await
}

/// Ids of the zones that nothing is to be changed in. A table that does not answer holds nobody up.
async fn shifted_zones(state: &impl StateTable, cx: &Invocation<'_>) -> BTreeSet<String> {
    if !cx.settings.enable_zonal_shift {
        return BTreeSet::new();
    }
    zonal_shift::load(state, cx.now).await.unwrap_or_else(|error| {
        cx.decide(
            Decision::new("skip", "StateTable/zonal-shift", error.to_string()).caused_by(&error),
        );
        BTreeSet::new()
    })
}

/// Handles a batch of the tagging queue.
pub async fn handle(
    batch: &SqsBatch,
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> BatchAnswer {
    handle_outside(&BTreeSet::new(), batch, cluster, ec2, queues, cx).await
}

/// The same, with instances in these zones left for the sweep that comes after the shift.
async fn handle_outside(
    shifted: &BTreeSet<String>,
    batch: &SqsBatch,
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> BatchAnswer {
    let mut answer = BatchAnswer::done();
    let mut jobs: BTreeMap<String, Job<'_>> = BTreeMap::new();
    for Item { record, work, .. } in batch.works(cx) {
        match claims(cluster, &work).await {
            Ok(claims) => {
                for claim in claims {
                    match wanted(&claim, &cx.settings.cluster_name) {
                        Wanted::Nothing => {}
                        Wanted::Unreadable => {
                            let reason = format!(
                                "provider id {:?} names no instance",
                                claim.status.provider_id.0
                            );
                            cx.decide(Decision::new("skip", claim.reference(), reason).as_error());
                        }
                        Wanted::Tags(id, tags) => {
                            let job = jobs.entry(claim.name().to_owned()).or_insert_with(|| Job {
                                claim,
                                id,
                                tags,
                                records: Vec::new(),
                            });
                            job.records.push(record);
                        }
                    }
                }
            }
            Err(error) => {
                let decision = Decision::new("retry", reference(record), error.to_string());
                cx.decide(decision.caused_by(&error).as_error());
                answer.retry(record);
            }
        }
    }
    if jobs.is_empty() {
        return answer;
    }
    let ids: Vec<InstanceId> = jobs.values().map(|it| it.id.clone()).collect();
    let instances: BTreeMap<InstanceId, Instance> = match ec2.describe_instances(&ids).await {
        Ok(found) => found.into_iter().map(|it| (it.id.clone(), it)).collect(),
        Err(error) => {
            cx.decide(
                Decision::new("retry", "Instance/all", error.to_string())
                    .caused_by(&error)
                    .as_error(),
            );
            for record in jobs.values().flat_map(|it| &it.records) {
                answer.retry(record);
            }
            return answer;
        }
    };
    let mut calls = 0;
    let mut later: Vec<Key> = Vec::new();
    for job in jobs.values() {
        let Some(instance) = instances.get(&job.id).filter(|it| it.state != "terminated") else {
            // Gone: whoever finds out next deletes the claim.
            continue;
        };
        let tags = missing(&job.tags, instance);
        let zone = job.claim.metadata.label(labels::ZONE_ID);
        if !tags.is_empty() && zone.is_some_and(|it| shifted.contains(it)) {
            let reason = "traffic is shifted away from its zone";
            cx.decide(Decision::new("skip", job.claim.reference(), reason).as_error());
            continue;
        }
        if !tags.is_empty() && calls == AT_ONCE {
            later.push(Key::of(&*job.claim));
            continue;
        }
        calls += usize::from(!tags.is_empty());
        if let Err(error) = tag(job, &tags, cluster, ec2, cx).await {
            cx.decide(
                Decision::new("retry", job.claim.reference(), error.to_string())
                    .caused_by(&error)
                    .as_error(),
            );
            for record in &job.records {
                answer.retry(record);
            }
        }
    }
    for chunk in later.chunks(100) {
        let work = Work::new("Wake", chunk.to_vec());
        let delay = SignedDuration::from_secs(AT_ONCE as i64);
        if let Err(error) = queues.send(Concern::Tagging, &work, delay, "").await {
            cx.decide(
                Decision::new("wake", "Queue/tagging", error.to_string())
                    .caused_by(&error)
                    .as_error(),
            );
            let names: BTreeSet<&str> = chunk.iter().map(|it| it.name.as_str()).collect();
            let waiting = jobs.values().filter(|it| names.contains(it.claim.name()));
            for record in waiting.flat_map(|it| &it.records) {
                answer.retry(record);
            }
        }
    }
    answer
}

/// The claims that the work is about, read fresh; without keys all of them.
async fn claims(
    cluster: &impl Cluster,
    work: &Work,
) -> Result<Vec<std::sync::Arc<NodeClaim>>, ClusterError> {
    if work.keys.is_empty() {
        return cluster.list::<NodeClaim>(&Selector::all()).await;
    }
    let mut found = Vec::new();
    for key in work.keys.iter().filter(|it| it.kind == NodeClaim::KIND) {
        let claim = cluster.get::<NodeClaim>(&ObjectKey::cluster(&key.name)).await?;
        found.extend(claim.filter(|it| key.uid.is_empty() || it.metadata.uid == key.uid));
    }
    Ok(found)
}

/// Tags the instance, then says so on the claim. Killed in between, the next run finds the tags and only says so.
async fn tag(
    job: &Job<'_>,
    tags: &Tags,
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    cx: &Invocation<'_>,
) -> Result<(), Failure> {
    if !tags.is_empty() {
        match ec2.create_tags(std::slice::from_ref(&job.id.0), tags).await {
            Ok(()) => {
                let keys: Vec<&str> = tags.keys().map(String::as_str).collect();
                cx.decide(
                    Decision::new("tag", job.claim.reference(), keys.join(", "))
                        .with("instance_id", job.id.as_str()),
                );
            }
            // Gone meanwhile: no annotation, no error.
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => {
                let event = KubeEvent::of_failed_call(&*job.claim, "TaggingFailed", &error);
                cluster.publish(event, EVENTS_ONCE_IN).await;
                return Err(error.into());
            }
        }
    }
    let mut changed = NodeClaim::clone(&job.claim);
    for key in DONE {
        changed.metadata.annotations.insert(key.to_owned(), "true".to_owned());
    }
    match cluster.patch(&*job.claim, &changed, Precondition::Uid).await {
        // Another claim of the name, or none: nothing to say.
        Ok(_) | Err(ClusterError::NotFound { .. } | ClusterError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
