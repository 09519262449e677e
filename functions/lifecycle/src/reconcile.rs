//! One claim: read, decide, carry out.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use spokeshave_lifecycle::{
    Action,
    claim::{self, View},
    metrics,
    registration::{self, PartitionHook},
    resource_slices,
};
use spokeshave_model::{
    Kind, NodeClaim, ObjectKey, Taint,
    core::{Node, Pod},
    pod_classes,
};
use spokeshave_ports::{
    Cluster, ClusterError, Decision, Ec2, Invocation, Key, Precondition, Queues, Selector,
    StateKey, StateTable, When, Work, wakes,
};

use crate::{
    Trouble,
    drift::Evidence,
    targets::{TRAILING_POD_EVENT, Target},
    world::World,
};

/// A conflicting write of somebody else is answered with a fresh look so often; then the message comes again.
const LOOKS: usize = 4;

/// What one run needs to bring claims further.
pub struct Reconciler<'a, C, E, S, Q> {
    pub cluster: &'a C,
    pub ec2: &'a E,
    pub state: &'a S,
    pub queues: &'a Q,
    pub world: &'a World<'a, C>,
    pub evidence: &'a Evidence,
    pub cx: &'a Invocation<'a>,
    /// The time of the run, in whole seconds as Kubernetes writes it.
    pub now: Timestamp,
}

/// What earlier looks at a claim in the same run have shown.
#[derive(Default)]
struct Seen {
    looks: usize,
    /// Its nodes, by name.
    nodes: Vec<String>,
    /// Taints that they carried.
    taints: Vec<Taint>,
}

impl Seen {
    fn note(&mut self, nodes: &[Arc<Node>]) {
        self.nodes = nodes.iter().map(|it| it.metadata.name.clone()).collect();
        for taint in nodes.iter().flat_map(|it| &it.spec.taints) {
            if !self.taints.iter().any(|it| it.matches(taint)) {
                self.taints.push(taint.clone());
            }
        }
    }
}

impl<C: Cluster, E: Ec2, S: StateTable, Q: Queues> Reconciler<'_, C, E, S, Q> {
    /// Brings the claim `name` as far as it goes now. One that is gone is nothing to do.
    pub async fn run(&self, name: &str, target: &Target) -> Result<(), Trouble> {
        let mut seen = Seen::default();
        loop {
            seen.looks += 1;
            match self.look(name, target, &mut seen).await {
                Err(error) if error.is_conflict() && seen.looks < LOOKS => {}
                Err(Trouble::Cluster(ClusterError::NotFound { .. })) => return Ok(()),
                result => return result,
            }
        }
    }

    async fn look(&self, name: &str, target: &Target, seen: &mut Seen) -> Result<(), Trouble> {
        let again = seen.looks > 1;
        let claim = if again {
            self.cluster.get::<NodeClaim>(&ObjectKey::cluster(name)).await?
        } else {
            self.world.claim(name).await?
        };
        let Some(claim) = claim else { return Ok(()) };
        if !claim.is_managed() {
            return Ok(());
        }
        let repairs = self.cx.settings.gates.node_repair;
        if claim.metadata.deleting() && !repairs {
            return Ok(());
        }
        let nodes = if again && !seen.nodes.is_empty() {
            self.world.named_nodes(&claim, &seen.nodes).await?
        } else {
            self.world.nodes_of(&claim).await?
        };
        let (mut due, ended) =
            if repairs { self.repair(&claim, &nodes).await? } else { (None, false) };
        if ended || claim.metadata.deleting() {
            return self.wake(&claim, due, target).await;
        }
        let pool = self.world.pool_of(&claim).await?;
        let view = View {
            claim: Some(&claim),
            nodes: nodes.iter().map(AsRef::as_ref).collect(),
            unjoined: nodes.is_empty() && self.world.is_there_by_name(&claim).await?,
            nodepool: pool.as_deref(),
            partition: self.partition(&claim, &nodes).await?,
            carried: seen.taints.clone(),
            missing_driver: self.missing_driver(&claim, &nodes).await?,
            drift: self.drift(&claim, pool.as_deref(), target).await?,
            pod_event: target.pod_event,
            scan: target.sweep,
        };
        let decision = claim::decide(&view, self.now);
        seen.note(&nodes);
        self.execute(&claim, &nodes, &decision.actions).await?;
        if let Some(at) = decision.pod_event_at {
            self.store_later(&claim, at).await?;
        }
        due = [due, decision.wake_at].into_iter().flatten().min();
        self.wake(&claim, due, target).await
    }

    /// Arranges for the claim to be looked at again.
    async fn wake(
        &self,
        claim: &NodeClaim,
        due: Option<Timestamp>,
        target: &Target,
    ) -> Result<(), Trouble> {
        let Some(due) = due else { return Ok(()) };
        let key = Key { resource_version: String::new(), ..Key::of(claim) };
        let (state, queues, concern) = (self.state, self.queues, self.cx.concern);
        wakes::wake_once(state, queues, concern, key, due, self.now, target.depth).await?;
        Ok(())
    }

    /// The first DRA driver that an uninitialized claim still waits for.
    async fn missing_driver(
        &self,
        claim: &NodeClaim,
        nodes: &[Arc<Node>],
    ) -> Result<Option<String>, Trouble> {
        let drivers = resource_slices::requested_drivers(claim);
        let [node] = nodes else { return Ok(None) };
        let ignored = self.cx.settings.ignore_dra_requests;
        if ignored || drivers.is_empty() || claim.is_true(NodeClaim::INITIALIZED) {
            return Ok(None);
        }
        let slices = self.world.slices().await?;
        let slices: Vec<_> = slices.iter().map(AsRef::as_ref).collect();
        let missing = resource_slices::first_incomplete(&drivers, node, &slices);
        Ok(missing.map(str::to_owned))
    }

    /// What EC2 says of the partition, where a claim waits for it.
    async fn partition(
        &self,
        claim: &NodeClaim,
        nodes: &[Arc<Node>],
    ) -> Result<Option<i64>, Trouble> {
        let waits = registration::partition_hook(claim) == PartitionHook::AskInstance;
        if !waits || nodes.len() != 1 || claim.is_true(NodeClaim::REGISTERED) {
            return Ok(None);
        }
        let Some(id) = claim.status.provider_id.instance_id() else { return Ok(None) };
        let instances = self.ec2.describe_instances(std::slice::from_ref(&id)).await?;
        Ok(instances.into_iter().find(|it| it.id == id).and_then(|it| it.partition))
    }

    /// Carries out `actions` in order and stops at the first that fails.
    async fn execute(
        &self,
        seen: &Arc<NodeClaim>,
        nodes: &[Arc<Node>],
        actions: &[Action],
    ) -> Result<(), Trouble> {
        let mut stored = seen.clone();
        let object = format!("NodeClaim/{}", seen.metadata.name);
        for action in actions {
            match action {
                Action::WriteClaim { claim, guard } => {
                    let mut new = (*stored).clone();
                    new.metadata.labels.clone_from(&claim.metadata.labels);
                    new.metadata.annotations.clone_from(&claim.metadata.annotations);
                    new.metadata.finalizers.clone_from(&claim.metadata.finalizers);
                    stored = self.cluster.patch(&*stored, &new, *guard).await?;
                    self.cx.decide(Decision::new("update", object.as_str(), "metadata"));
                }
                Action::WriteNode { node, guard } => {
                    let old = nodes.iter().find(|it| it.metadata.uid == node.metadata.uid);
                    let Some(old) = old else { continue };
                    let registered = spokeshave_model::labels::REGISTERED;
                    if old.metadata.label(registered) != Some("true")
                        && node.metadata.label(registered) == Some("true")
                    {
                        self.observe_memory(&stored, node).await;
                    }
                    self.world.put_node(self.cluster.patch(&**old, &**node, *guard).await?);
                    for (label, what) in [
                        (spokeshave_model::labels::REGISTERED, "register"),
                        (spokeshave_model::labels::INITIALIZED, "initialize"),
                    ] {
                        let is_new = old.metadata.label(label) != node.metadata.label(label);
                        if is_new {
                            let name = format!("Node/{}", node.metadata.name);
                            self.cx.decide(Decision::new(what, name, object.as_str()));
                        }
                    }
                }
                Action::WriteStatus { claim } => {
                    let mut new = (*stored).clone();
                    new.status.clone_from(&claim.status);
                    let guard = Precondition::ResourceVersion;
                    let before = stored.clone();
                    stored = self.cluster.patch_status(&*stored, &new, guard).await?;
                    self.narrate(&before, &new, &object);
                }
                Action::DeleteClaim { reason, why, count_pods } => {
                    self.delete(seen, nodes, reason, why, *count_pods).await?;
                }
                Action::DeleteNode { node, .. } => {
                    let key = ObjectKey::cluster(&node.metadata.name);
                    self.cluster.delete::<Node>(&key, &node.metadata.uid, None).await?;
                }
                Action::NoteRegistration { healthy } => {
                    self.note_registration(seen, *healthy).await?;
                }
                Action::Publish { event, memory } => {
                    if self.cx.tells(event) {
                        self.cluster.publish((**event).clone(), *memory).await;
                    }
                }
                Action::Count { name, labels } => {
                    let labels: Vec<_> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
                    self.cx.count(name, &labels);
                }
                Action::Observe { name, seconds, labels } => {
                    let labels: Vec<_> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
                    self.cx.sample(name, *seconds, "Seconds", &labels);
                }
            }
        }
        Ok(())
    }

    /// One line per condition whose status changed.
    fn narrate(&self, old: &NodeClaim, new: &NodeClaim, object: &str) {
        for (type_, what) in [
            (NodeClaim::REGISTERED, "registered"),
            (NodeClaim::INITIALIZED, "initialized"),
            (NodeClaim::DRIFTED, "drifted"),
            (NodeClaim::CONSOLIDATABLE, "consolidatable"),
        ] {
            if new.is_true(type_) && !old.is_true(type_) {
                let reason = new.condition(type_).map_or("", |it| it.reason.as_str());
                self.cx.decide(Decision::new(what, object, reason));
            }
        }
    }

    pub async fn delete(
        &self,
        claim: &NodeClaim,
        nodes: &[Arc<Node>],
        reason: &'static str,
        why: &str,
        count_pods: bool,
    ) -> Result<(), Trouble> {
        let mut pods = 0;
        if count_pods {
            for node in nodes {
                let selector = Selector::on_node(&node.metadata.name);
                let on_node = self.cluster.list::<Pod>(&selector).await?;
                pods += on_node.iter().filter(|it| pod_classes::is_reschedulable(it)).count();
            }
        }
        let key = ObjectKey::cluster(&claim.metadata.name);
        self.cluster.delete::<NodeClaim>(&key, &claim.metadata.uid, None).await?;
        let labels = metrics::disrupted(claim, reason, "");
        let labels: Vec<_> = labels.iter().map(|(key, value)| (*key, value.as_str())).collect();
        self.cx.count(metrics::CLAIMS_DISRUPTED, &labels);
        if count_pods {
            self.cx.sample(metrics::PODS_DISRUPTION_INITIATED, pods as f64, "Count", &labels);
        }
        let object = format!("{}/{}", NodeClaim::KIND, claim.metadata.name);
        self.cx.decide(Decision::new("delete", object, why).with("cause", reason));
        Ok(())
    }

    /// Arranges for a pod event that came too soon after the last one to be stored at `at`, as if it had happened
    /// then: however many come until then, one message does for all.
    async fn store_later(&self, claim: &NodeClaim, at: Timestamp) -> Result<(), Trouble> {
        let sort = format!("{}/{at}", claim.metadata.uid);
        let key = StateKey::new("pod-event", &sort);
        if self.state.read(&key).await?.is_some() {
            return Ok(());
        }
        let wait = at.duration_since(self.now).max(SignedDuration::from_secs(1));
        let key_of = Key { resource_version: String::new(), ..Key::of(claim) };
        let work = Work { due: Some(at), ..Work::new(TRAILING_POD_EVENT, vec![key_of]) };
        self.queues.send(self.cx.concern, &work, wait, "").await?;
        let expires_at = at.checked_add(SignedDuration::from_mins(1)).ok();
        self.state.write(&key, serde_json::json!({}), expires_at, When::Always).await?;
        Ok(())
    }
}
