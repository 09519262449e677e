//! Spot interruptions on demand: an annotation on a NodeClaim or its Node.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spokeshave_model::{Kind, NodeClaim, ObjectKey, core::Node, labels};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Concern, Decision, Ec2, Invocation, Queues, StateError,
    StateTable, When, Work,
};

use crate::{KEPT, interruption, node, records};

/// Annotation of a NodeClaim or Node with a made-up spot instance: `spot` interrupts it.
pub const INTERRUPT: &str = "spokeshave.dev/interrupt";
/// Reason of the work that carries a made-up event of EventBridge to the interruption queue, as its payload.
pub const WORK_REASON: &str = "MadeUpInterruption";
/// From the warning to the end of the instance, as EC2 gives it.
pub const NOTICE: SignedDuration = SignedDuration::from_mins(2);
/// Partition of the state table: instances that were warned of, and when. Lost: they are warned of once more.
const WARNED: &str = "kwok-interrupted";

/// Why an instance could not be interrupted now.
#[derive(Debug, thiserror::Error)]
pub enum InterruptError {
    #[error("cluster")]
    Cluster(#[from] ClusterError),
    #[error("AWS")]
    Aws(#[from] AwsError),
    #[error("state table")]
    State(#[from] StateError),
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Warned {
    at: Option<Timestamp>,
}

/// Interrupts the made-up spot instances among `claims` whose claim or Node asks for it: one warning, and after
/// [`NOTICE`] the instance ends. Costs nothing where no claim is made up.
///
/// # Errors
/// The first that cluster, EC2, queue or table answer; a repeat warns of an instance again at worst.
pub async fn interrupt<'a>(
    claims: impl IntoIterator<Item = &'a NodeClaim>,
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> Result<(), InterruptError> {
    for claim in claims.into_iter().filter(|it| node::is_made_up(it)) {
        let Some(id) = claim.status.provider_id.instance_id() else { continue };
        let asked = match claim.metadata.annotation(INTERRUPT) {
            Some(asked) => asked.to_owned(),
            None => {
                let key = ObjectKey::cluster(&node::name(&id));
                let found = cluster.get::<Node>(&key).await?;
                let asked =
                    found.and_then(|it| Some(it.metadata.annotation(INTERRUPT)?.to_owned()));
                let Some(asked) = asked else { continue };
                asked
            }
        };
        let refuse = |why: &str| {
            cx.decide(Decision::new("skip", claim.reference(), why).as_error());
        };
        if asked != "spot" {
            refuse(&format!("{INTERRUPT} is {asked:?}; the only interruption is spot"));
            continue;
        }
        if claim.metadata.label(labels::CAPACITY_TYPE) != Some("spot") {
            refuse(&format!("{INTERRUPT} is for spot instances; this one is not"));
            continue;
        }
        match records::read::<Warned>(state, WARNED, id.as_str()).await? {
            Some((warned, _)) => {
                let ends = warned.at.and_then(|it| it.saturating_add(NOTICE).ok());
                if ends.is_none_or(|it| it <= cx.now) {
                    ec2.terminate_instances(std::slice::from_ref(&id)).await?;
                }
            }
            None => {
                let found = ec2.describe_instances(std::slice::from_ref(&id)).await?;
                let Some(instance) = found.into_iter().find(|it| it.state == "running") else {
                    continue;
                };
                let (region, account) = (&cx.settings.region, &cx.settings.account_id);
                let payload: Value = interruption(&instance, region, account, cx.now);
                let work = Work { payload, ..Work::new(WORK_REASON, Vec::new()) };
                queues.send(Concern::Interruption, &work, SignedDuration::ZERO, "").await?;
                let (warned, until) =
                    (Warned { at: Some(cx.now) }, cx.now.saturating_add(KEPT).ok());
                records::write(state, WARNED, id.as_str(), &warned, until, When::Absent).await?;
                cx.decide(
                    Decision::new("interrupt", claim.reference(), "asked for by an annotation")
                        .with("instance_id", id.as_str()),
                );
            }
        }
    }
    Ok(())
}
