//! Which claims the messages of a batch are about.

use std::collections::BTreeMap;

use jiff::Timestamp;
use spokeshave_model::{
    EC2NodeClass, Kind, NodeClaim, NodePool, ObjectKey,
    core::{Node, Pod},
};
use spokeshave_ports::{Cluster, ClusterError, Key, Work};

use crate::{Trouble, world::World};

/// Reason of the message that stores a pod event which came too soon after the last; `due` is when it happened.
pub const TRAILING_POD_EVENT: &str = "TrailingPodEvent";

/// Why a claim is looked at.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The records that asked for it.
    pub records: Vec<usize>,
    /// The newest pod event among them.
    pub pod_event: Option<Timestamp>,
    /// The sweep, which also scans and looks at drift that no event tells of.
    pub sweep: bool,
    /// Something that drift depends on may have changed.
    pub drift: bool,
    /// The instance has to be looked at for that.
    pub instance: bool,
    /// How deep the deepest wake-up was.
    pub depth: u32,
    /// Failures in a row before this run.
    pub failures: u32,
}

/// Claims to look at, by name.
#[derive(Debug, Default)]
pub struct Targets {
    pub claims: BTreeMap<String, Target>,
}

/// What one message adds to the claims it is about.
#[derive(Clone, Copy)]
struct Source<'a> {
    record: usize,
    work: &'a Work,
    sent_at: Timestamp,
}

impl Targets {
    /// Adds what one message is about. Objects that are gone add nothing.
    pub async fn add<C: Cluster>(
        &mut self,
        record: usize,
        work: &Work,
        sent_at: Timestamp,
        cluster: &C,
        world: &World<'_, C>,
    ) -> Result<(), Trouble> {
        let source = Source { record, work, sent_at };
        if work.keys.is_empty() {
            for claim in world.claims().await?.iter() {
                let target = self.note(&claim.metadata.name, source);
                target.sweep = true;
                target.drift = true;
                target.instance = true;
            }
            return Ok(());
        }
        for key in &work.keys {
            self.add_key(key, source, cluster, world).await?;
        }
        Ok(())
    }

    async fn add_key<C: Cluster>(
        &mut self,
        key: &Key,
        source: Source<'_>,
        cluster: &C,
        world: &World<'_, C>,
    ) -> Result<(), ClusterError> {
        let kind = key.kind.as_str();
        if kind == NodeClaim::KIND {
            self.note(&key.name, source).drift |= source.work.reason == "NodeClaimChanged";
        } else if kind == Node::KIND {
            self.add_node(&key.name, source, cluster, world).await?;
        } else if kind == Pod::KIND {
            let pod = ObjectKey::namespaced(&key.namespace, &key.name);
            let pod = cluster.get::<Pod>(&pod).await?;
            if let Some(pod) = pod.filter(|it| it.is_bound() && !it.is_daemon()) {
                self.add_node(&pod.spec.node_name, source, cluster, world).await?;
            }
        } else if kind == NodePool::KIND {
            for claim in world.claims().await?.iter() {
                if claim.nodepool() == Some(key.name.as_str()) {
                    self.note(&claim.metadata.name, source).drift = true;
                }
            }
        } else if kind == EC2NodeClass::KIND {
            for claim in world.claims().await?.iter() {
                if claim.spec.node_class_ref.name == key.name {
                    let target = self.note(&claim.metadata.name, source);
                    target.drift = true;
                    target.instance = true;
                }
            }
        }
        Ok(())
    }

    async fn add_node<C: Cluster>(
        &mut self,
        name: &str,
        source: Source<'_>,
        cluster: &C,
        world: &World<'_, C>,
    ) -> Result<(), ClusterError> {
        let claims = match cluster.get::<Node>(&ObjectKey::cluster(name)).await? {
            Some(node) => world.claims_of(&node).await?,
            None => world.claims_by_node_name(name).await?,
        };
        let is_pod_event =
            matches!(source.work.reason.as_str(), "PodBound" | "PodEnding" | "PodGone");
        for claim in claims {
            let target = self.note(&claim, source);
            if is_pod_event {
                target.pod_event = target.pod_event.max(Some(source.sent_at));
            }
        }
        Ok(())
    }

    fn note(&mut self, claim: &str, source: Source<'_>) -> &mut Target {
        let target = self.claims.entry(claim.to_owned()).or_default();
        if !target.records.contains(&source.record) {
            target.records.push(source.record);
        }
        let work = source.work;
        target.failures = target.failures.max(work.failures());
        target.depth = target.depth.max(work.wakes());
        if work.reason == TRAILING_POD_EVENT {
            target.pod_event = target.pod_event.max(work.due);
        }
        target
    }
}
