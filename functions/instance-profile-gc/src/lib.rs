//! The function `instance-profile-gc`: deletes instance profiles of this cluster that nobody needs any more.
//!
//! What the work says does not matter: every run looks at all profiles under the cluster's path. Profiles are listed
//! first, claims and classes after them, so that whatever uses a listed profile is seen; profiles younger than an hour
//! and those with a protection record are left alone (`spec` aws-nodeclass 16).

use std::collections::BTreeSet;

use jiff::SignedDuration;
use spokeshave_lambda::{BatchAnswer, SqsBatch, batch::stand_by};
use spokeshave_model::{EC2NodeClass, NodeClaim, labels};
use spokeshave_nodeclass::profiles::{self, Uses, records};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Decision, Iam, Invocation, Selector, StateError, StateTable,
    aws::InstanceProfile, cluster::KubeEvent,
};

/// Equal events on one class are published once in this time. 2 minutes, as in Karpenter 1.x.
const EVENTS_ONCE_IN: SignedDuration = SignedDuration::from_mins(2);

/// Why nothing could be collected.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the API server: {0}")]
    Cluster(#[from] ClusterError),
    #[error("the state table: {0}")]
    State(#[from] StateError),
    #[error("AWS: {0}")]
    Aws(#[from] AwsError),
}

impl Trouble {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Cluster(error) => error.is_retryable(),
            Self::State(_) => true,
            Self::Aws(error) => error.is_retryable(),
        }
    }
}

/// Handles a batch.
pub async fn handle(
    batch: &SqsBatch,
    cluster: &impl Cluster,
    iam: &impl Iam,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> BatchAnswer {
    if let Some(answer) = stand_by(batch, state, cx).await {
        return answer;
    }
    let mut answer = BatchAnswer::done();
    if batch.records.is_empty() || cx.settings.isolated_vpc {
        return answer;
    }
    if let Err(error) = collect(cluster, iam, state, cx).await {
        warn(cluster, &error).await;
        let text = error.to_string();
        if error.is_retryable() {
            cx.decide(Decision::new("retry", "InstanceProfile", text).caused_by(&error));
            answer = BatchAnswer::retry_all(batch);
        } else {
            // The next round tries again by itself; a person has to give the permission.
            let decision = Decision::new("fail", "InstanceProfile", text);
            cx.decide(decision.caused_by(&error).as_error());
        }
    }
    answer
}

/// Says on every EC2NodeClass which call failed. Where the classes cannot be read, the log alone tells.
async fn warn(cluster: &impl Cluster, error: &Trouble) {
    let Some(error) = AwsError::behind(error) else { return };
    let classes = cluster.list::<EC2NodeClass>(&Selector::all()).await.unwrap_or_default();
    for class in classes {
        let event = KubeEvent::of_failed_call(&*class, "InstanceProfileCollectionFailed", error);
        cluster.publish(event, EVENTS_ONCE_IN).await;
    }
}

async fn collect(
    cluster: &impl Cluster,
    iam: &impl Iam,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> Result<(), Trouble> {
    let path = profiles::cluster_path(&cx.settings.region, &cx.settings.cluster_name);
    let found = iam.list_instance_profiles(&path).await?;
    // What has another path was never ours, whatever the service answers.
    let found: Vec<InstanceProfile> =
        found.into_iter().filter(|it| it.path.starts_with(&path)).collect();
    if found.is_empty() {
        return Ok(());
    }
    let claims = cluster.list::<NodeClaim>(&Selector::all()).await?;
    let classes = cluster.list::<EC2NodeClass>(&Selector::all()).await?;
    let of_claims = claims
        .iter()
        .filter(|it| it.is_managed())
        .filter_map(|it| it.metadata.annotation(labels::INSTANCE_PROFILE_NAME));
    let of_classes = classes.iter().map(|it| it.status.instance_profile.as_str());
    let named: BTreeSet<String> = of_claims.chain(of_classes).map(str::to_owned).collect();
    let protected = state.query(records::PROTECTED, "").await?.into_iter().map(|it| it.0).collect();
    let uses = Uses { named, protected };
    let mut first: Option<AwsError> = None;
    for profile in profiles::collect(&found, &uses, cx.now) {
        match delete(iam, profile).await {
            Ok(()) => {
                state
                    .remove(
                        &spokeshave_ports::StateKey::new(records::ROLE, &profile.name),
                        spokeshave_ports::When::Always,
                    )
                    .await?;
                let object = format!("InstanceProfile/{}", profile.name);
                let reason = "no EC2NodeClass and no NodeClaim uses it";
                cx.decide(Decision::new("delete", object, reason));
            }
            // DIFFERENCE: one broken profile does not keep the others.
            Err(error) => first = first.or(Some(error)),
        }
    }
    first.map_or(Ok(()), |error| Err(error.into()))
}

async fn delete(iam: &impl Iam, listed: &InstanceProfile) -> Result<(), AwsError> {
    let Some(profile) = iam.get_instance_profile(&listed.name).await? else { return Ok(()) };
    for role in &profile.roles {
        iam.remove_role(&profile.name, role).await?;
    }
    iam.delete_instance_profile(&profile.name).await
}

#[cfg(test)]
mod tests;
