//! Who watches, and who else is at work in the cluster: Leases.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{Kind, ObjectKey, ObjectMeta, core::Lease, core::LeaseSpec};
use spokeshave_ports::{Cluster, ClusterError, Precondition, watch::Positions};

/// Namespace and name of the bridge's own Lease.
pub const NAMESPACE: &str = "kube-system";
pub const NAME: &str = "spokeshave-bridge";
/// Annotation on it: the positions up to which everything was handed on.
const POSITIONS: &str = "spokeshave.dev/positions";
/// Annotation on it: the stack whose bridge it is.
const STACK: &str = "spokeshave.dev/stack";

/// A Lease that has not been renewed for so long is free. Three times the renewal interval.
pub const DURATION: SignedDuration = SignedDuration::from_secs(30);
/// Time between renewals, which carry the checkpoint.
pub const RENEW_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// Karpenter's leader-election Lease, and the namespaces that its charts put it in.
const KARPENTER_LEASE: &str = "karpenter-leader-election";
const KARPENTER_NAMESPACES: &[&str] = &["kube-system", "karpenter"];
/// A foreign holder that has renewed within this time is at work.
const FOREIGN_FOR: SignedDuration = SignedDuration::from_secs(60);

/// What the Lease says to one that wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is ours, with the positions that were left in it, and when that was.
    Ours(Positions, Option<Timestamp>),
    /// Somebody else of this stack holds it.
    Held { by: String },
}

fn key() -> ObjectKey {
    ObjectKey::namespaced(NAMESPACE, NAME)
}

fn is_fresh(lease: &Lease, within: SignedDuration, now: Timestamp) -> bool {
    let held = lease.spec.holder_identity.as_deref().is_some_and(|it| !it.is_empty());
    held && lease.spec.renew_time.is_some_and(|at| now.duration_since(at) < within)
}

fn positions(lease: &Lease) -> Positions {
    // Whatever cannot be read is listed anew.
    lease
        .metadata
        .annotation(POSITIONS)
        .and_then(|it| serde_json::from_str(it).ok())
        .unwrap_or_default()
}

/// Takes the Lease for `holder` if it is free, is `holder`'s already, or is held by `predecessor`, who said so.
pub async fn acquire(
    cluster: &impl Cluster,
    holder: &str,
    stack: &str,
    predecessor: Option<&str>,
    now: Timestamp,
) -> Result<Claim, ClusterError> {
    let Some(lease) = cluster.get::<Lease>(&key()).await? else {
        let mut lease = Lease {
            metadata: ObjectMeta { namespace: NAMESPACE.into(), ..ObjectMeta::named(NAME) },
            spec: LeaseSpec::default(),
        };
        hold(&mut lease, holder, stack, now);
        return match cluster.create(&lease).await {
            Ok(_) => Ok(Claim::Ours(Positions::new(), None)),
            Err(ClusterError::AlreadyExists { .. }) => {
                Ok(Claim::Held { by: "whoever was faster".into() })
            }
            Err(error) => Err(error),
        };
    };
    let current = lease.spec.holder_identity.clone().unwrap_or_default();
    let may_take = current == holder || predecessor == Some(current.as_str());
    if is_fresh(&lease, DURATION, now) && !may_take {
        return Ok(Claim::Held { by: current });
    }
    let mut taken = Lease::clone(&lease);
    hold(&mut taken, holder, stack, now);
    match cluster.patch(&*lease, &taken, Precondition::ResourceVersion).await {
        Ok(_) => Ok(Claim::Ours(positions(&lease), lease.spec.renew_time)),
        Err(ClusterError::Conflict { .. }) => Ok(Claim::Held { by: "whoever was faster".into() }),
        Err(error) => Err(error),
    }
}

fn hold(lease: &mut Lease, holder: &str, stack: &str, now: Timestamp) {
    let spec = &mut lease.spec;
    if spec.holder_identity.as_deref() != Some(holder) {
        spec.holder_identity = Some(holder.to_owned());
        spec.acquire_time = Some(now);
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
    }
    spec.renew_time = Some(now);
    spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
    lease.metadata.annotations.insert(STACK.into(), stack.to_owned());
}

/// Renews the Lease and writes the positions. `false` when somebody else has it by now.
pub async fn renew(
    cluster: &impl Cluster,
    holder: &str,
    at: &Positions,
    now: Timestamp,
) -> Result<bool, ClusterError> {
    change(cluster, holder, |lease| {
        lease.spec.renew_time = Some(now);
        if let Ok(text) = serde_json::to_string(at) {
            lease.metadata.annotations.insert(POSITIONS.into(), text);
        }
    })
    .await
}

/// Gives the Lease up, so that the next one need not wait until it runs out.
pub async fn release(
    cluster: &impl Cluster,
    holder: &str,
    at: &Positions,
) -> Result<(), ClusterError> {
    change(cluster, holder, |lease| {
        lease.spec.holder_identity = Some(String::new());
        if let Ok(text) = serde_json::to_string(at) {
            lease.metadata.annotations.insert(POSITIONS.into(), text);
        }
    })
    .await
    .map(|_| ())
}

async fn change(
    cluster: &impl Cluster,
    holder: &str,
    edit: impl Fn(&mut Lease),
) -> Result<bool, ClusterError> {
    let Some(lease) = cluster.get::<Lease>(&key()).await? else { return Ok(false) };
    if lease.spec.holder_identity.as_deref() != Some(holder) {
        return Ok(false);
    }
    let mut changed = Lease::clone(&lease);
    edit(&mut changed);
    match cluster.patch(&*lease, &changed, Precondition::ResourceVersion).await {
        Ok(_) => Ok(true),
        Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Another autoscaler that is at work: Karpenter, or another stack of ours. Says who.
pub async fn foreign(
    cluster: &impl Cluster,
    stack: &str,
    now: Timestamp,
) -> Result<Option<String>, ClusterError> {
    for namespace in KARPENTER_NAMESPACES {
        let key = ObjectKey::namespaced(namespace, KARPENTER_LEASE);
        let lease: Option<Arc<Lease>> = cluster.get(&key).await?;
        if let Some(lease) = lease.filter(|it| is_fresh(it, FOREIGN_FOR, now)) {
            let holder = lease.spec.holder_identity.clone().unwrap_or_default();
            return Ok(Some(format!("Karpenter ({holder}, {})", lease.reference())));
        }
    }
    let ours: Option<Arc<Lease>> = cluster.get(&key()).await?;
    let other = ours
        .filter(|it| is_fresh(it, FOREIGN_FOR, now))
        .and_then(|it| it.metadata.annotation(STACK).filter(|it| *it != stack).map(str::to_owned));
    Ok(other.map(|it| format!("the stack {it}")))
}
