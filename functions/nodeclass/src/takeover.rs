//! Before the first hash is written over another product's: do both hash the same CA text (`spec` aws-nodeclass 5)?
//!
//! The CA bundle is part of a class's hash. Another wrapping of the same certificate gives other hashes for every class,
//! and every node of the cluster would drift. So where classes carry hashes of our version that we did not write, at
//! least one of them has to be what we work out, else no hash is written at all and the classes say so.

use serde_json::Value;
use spokeshave_model::{EC2NodeClass, Kind, hash, labels};
use spokeshave_ports::{
    Cluster, Decision, Invocation, Selector, StateKey, StateTable, When, cluster::KubeEvent,
};

use crate::{Trouble, pass::EVENTS_ONCE_IN};

/// Partition and sort key of the record that the check has passed. Lost: the check is made again.
const PARTITION: &str = "takeover";
const CA_TEXT: &str = "ca";

/// Reason of the event on classes whose hash cannot be explained.
const REASON: &str = "HashMismatch";

const MESSAGE: &str = "no EC2NodeClass has the hash that its spec and the cluster's CA bundle give here, so the hashes are left alone and nodes do not drift by them; set CLUSTER_CA_BUNDLE to the CA text that wrote them, or remove the annotation karpenter.k8s.aws/ec2nodeclass-hash from the classes to take on the new hashes";

/// Whether hashes may be written with this CA text.
///
/// # Errors
/// When the classes or the record cannot be read.
pub(crate) async fn may_write_hashes(
    cluster: &impl Cluster,
    state: &impl StateTable,
    ca: &str,
    cx: &Invocation<'_>,
) -> Result<bool, Trouble> {
    let record = StateKey::new(PARTITION, CA_TEXT);
    if state.read(&record).await?.is_some() {
        return Ok(true);
    }
    let classes = cluster.list::<EC2NodeClass>(&Selector::all()).await?;
    let stored = |class: &EC2NodeClass| {
        let version = class.metadata.annotation(labels::NODECLASS_HASH_VERSION);
        let of_ours = version == Some(hash::EC2_NODE_CLASS_VERSION);
        class.metadata.annotation(labels::NODECLASS_HASH).filter(|_| of_ours).map(str::to_owned)
    };
    let hashed: Vec<_> = classes.iter().filter_map(|it| Some((it, stored(it.as_ref())?))).collect();
    let explained =
        hashed.iter().any(|(it, stored)| hash::ec2_node_class(it.as_ref(), ca) == *stored);
    if hashed.is_empty() || explained {
        state.write(&record, Value::Null, None, When::Always).await?;
        return Ok(true);
    }
    for (class, _) in hashed {
        cx.decide(Decision::new("stop", class.reference(), MESSAGE).as_error());
        let event = KubeEvent::on(class.as_ref(), true, REASON, MESSAGE.to_owned());
        cluster.publish(event, EVENTS_ONCE_IN).await;
    }
    Ok(false)
}
