//! Which claims and nodes the messages of a batch are about.

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_model::{
    Kind, LabelSelector, NodeClaim, ObjectKey,
    core::{Node, Pod, PodDisruptionBudget, VolumeAttachment},
    labels,
    selectors::LabelSelectorRequirement,
};
use spokeshave_ports::{Cluster, ClusterError, Key, Selector, Work};

/// Reason of messages that the interruption function sends.
const INTERRUPTED: &str = "Interrupted";

/// A claim or a node, by name. Claims come first: they set the deadline that their node's pods go by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    Claim(String),
    Node(String),
}

/// Why an object is looked at.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The records that asked for it.
    pub records: BTreeSet<usize>,
    /// How deep the deepest wake-up was.
    pub depth: u32,
    /// Failures in a row before this run.
    pub failures: u32,
    /// EC2 has told of its instance.
    pub interrupted: bool,
    /// Looks in this run.
    pub looks: u32,
}

/// What is to be looked at, and what has been.
#[derive(Debug, Default)]
pub struct Targets {
    known: BTreeMap<Object, Target>,
    open: BTreeSet<Object>,
}

/// Whether work may concern every node that is being drained: a sweep, or a budget that lets pods go.
pub fn is_about_all(work: &Work) -> bool {
    work.keys.is_empty() || work.keys.iter().any(|it| it.kind == PodDisruptionBudget::KIND)
}

impl Targets {
    /// Adds what one message is about. Objects that are gone add nothing.
    pub async fn add(
        &mut self,
        record: usize,
        work: &Work,
        cluster: &impl Cluster,
    ) -> Result<(), ClusterError> {
        if work.keys.is_empty() {
            for claim in cluster.list::<NodeClaim>(&Selector::all()).await? {
                if claim.metadata.deleting() {
                    self.note(Object::Claim(claim.metadata.name.clone()), record, work);
                }
            }
            return self.add_draining(record, work, cluster).await;
        }
        for key in &work.keys {
            self.add_key(key, record, work, cluster).await?;
        }
        Ok(())
    }

    async fn add_key(
        &mut self,
        key: &Key,
        record: usize,
        work: &Work,
        cluster: &impl Cluster,
    ) -> Result<(), ClusterError> {
        let name = ObjectKey::namespaced(&key.namespace, &key.name);
        let kind = key.kind.as_str();
        if kind == NodeClaim::KIND {
            self.note(Object::Claim(key.name.clone()), record, work);
        } else if kind == Node::KIND {
            self.note(Object::Node(key.name.clone()), record, work);
            if work.reason == "NodeGone" {
                self.add_claims_of_gone_node(&key.name, record, work, cluster).await?;
            }
        } else if kind == Pod::KIND {
            if let Some(pod) = cluster.get::<Pod>(&name).await?.filter(|it| it.is_bound()) {
                self.note(Object::Node(pod.spec.node_name.clone()), record, work);
            }
        } else if kind == VolumeAttachment::KIND {
            match cluster.get::<VolumeAttachment>(&name).await? {
                Some(it) => self.note(Object::Node(it.spec.node_name.clone()), record, work),
                None => self.add_draining(record, work, cluster).await?,
            }
        } else if kind == PodDisruptionBudget::KIND {
            self.add_draining(record, work, cluster).await?;
        }
        Ok(())
    }

    /// A claim waits for its node; the node went without telling it.
    async fn add_claims_of_gone_node(
        &mut self,
        node: &str,
        record: usize,
        work: &Work,
        cluster: &impl Cluster,
    ) -> Result<(), ClusterError> {
        for claim in cluster.list::<NodeClaim>(&Selector::all()).await? {
            if claim.metadata.deleting() && claim.status.node_name == node {
                self.note(Object::Claim(claim.metadata.name.clone()), record, work);
            }
        }
        Ok(())
    }

    /// Every node of ours that is being deleted.
    async fn add_draining(
        &mut self,
        record: usize,
        work: &Work,
        cluster: &impl Cluster,
    ) -> Result<(), ClusterError> {
        let exists = LabelSelectorRequirement {
            key: labels::NODECLASS.into(),
            operator: "Exists".into(),
            values: Vec::new(),
        };
        let labels = LabelSelector { match_expressions: vec![exists], ..LabelSelector::default() };
        for node in cluster.list::<Node>(&Selector { labels, ..Selector::default() }).await? {
            if node.metadata.deleting() {
                self.note(Object::Node(node.metadata.name.clone()), record, work);
            }
        }
        Ok(())
    }

    /// Looks at `object` because of one message.
    pub fn note(&mut self, object: Object, record: usize, work: &Work) {
        let target = self.known.entry(object.clone()).or_default();
        target.records.insert(record);
        target.interrupted |= work.reason == INTERRUPTED;
        target.failures = target.failures.max(work.failures());
        target.depth = target.depth.max(work.wakes());
        self.open.insert(object);
    }

    /// The next object to look at, which has been looked at less than `most` times.
    pub fn next(&mut self, most: u32) -> Option<(Object, Target)> {
        while let Some(object) = self.open.pop_first() {
            let target = self.known.entry(object.clone()).or_default();
            if target.looks < most {
                target.looks += 1;
                return Some((object, target.clone()));
            }
        }
        None
    }

    /// Looks at `object` next because of what was found at another one.
    pub fn follow(&mut self, object: Object, because: &Target) {
        let target = self.known.entry(object.clone()).or_default();
        target.records.extend(&because.records);
        target.depth = target.depth.max(because.depth);
        target.interrupted |= because.interrupted;
        self.open.insert(object);
    }

    /// Looks at `object` once more.
    pub fn again(&mut self, object: Object) {
        self.open.insert(object);
    }

    /// The names of the claims that are known so far.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.known.keys().filter_map(|it| match it {
            Object::Claim(name) => Some(name.as_str()),
            Object::Node(_) => None,
        })
    }
}
