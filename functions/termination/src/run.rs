//! One claim or node: read what the decision asks for, decide, carry out.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use spokeshave_catalog::{
    stored::{self, ReservationEvent},
    zonal_shift,
};
use spokeshave_lifecycle::{
    Action,
    termination::{
        self, Act, ClaimView, Instance, Next, NodeView, Read, decide_claim, decide_node,
    },
    volumes,
};
use spokeshave_model::{
    InstanceId, Kind, NodeClaim, ObjectKey, ProviderId,
    core::{Node, PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment},
    labels,
};
use spokeshave_ports::{
    AutoScaling, Cluster, ClusterError, Decision, Ec2, Invocation, Key, Precondition, Queues,
    Selector, StateError, StateKey, StateTable, When, wakes,
};

use crate::{
    Trouble,
    targets::{Object, Target, Targets},
};

/// States of instances as this run has read or caused them.
pub type Instances = RefCell<BTreeMap<InstanceId, Instance>>;

/// How often it is looked at whether a zonal shift is over.
const SHIFT_PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// Partition of the state table: instances whose end was asked for just now. Lost: it is asked for once more.
const ENDED: &str = "ended";
/// So long nobody else asks. Shorter than the pause between two looks at an instance, so that whoever stood back asks at the
/// next one if the first never got to it.
const ENDED_LIFE: SignedDuration = SignedDuration::from_secs(4);
const TERMINATION_FAILURES: &str = "karpenter_cloudprovider_instance_termination_failures_total";

/// What one run needs to end claims and nodes.
pub struct Run<'a, C, E, A, S, Q> {
    pub cluster: &'a C,
    pub ec2: &'a E,
    pub groups: &'a A,
    pub state: &'a S,
    pub queues: &'a Q,
    pub cx: &'a Invocation<'a>,
    /// The time of the run, in whole seconds as Kubernetes writes it.
    pub now: Timestamp,
    pub instances: &'a Instances,
}

impl<C: Cluster, E: Ec2, A: AutoScaling, S: StateTable, Q: Queues> Run<'_, C, E, A, S, Q> {
    /// Asks EC2 once for the instances of all claims of the batch that wait for theirs to go. Best effort: what is
    /// missing is asked for one by one.
    pub async fn prefetch(&self, targets: &Targets) {
        let mut ids = Vec::new();
        for name in targets.claims() {
            let key = ObjectKey::cluster(name);
            let Ok(Some(claim)) = self.cluster.get::<NodeClaim>(&key).await else { continue };
            if claim.metadata.deleting() && claim.is_true(NodeClaim::INSTANCE_TERMINATING) {
                ids.extend(claim.status.provider_id.instance_id());
            }
        }
        if ids.len() < 2 {
            return;
        }
        if let Ok(found) = self.ec2.describe_instances(&ids).await {
            let states: BTreeMap<&InstanceId, &str> =
                found.iter().map(|it| (&it.id, it.state.as_str())).collect();
            let mut known = self.instances.borrow_mut();
            for id in &ids {
                known.insert(id.clone(), Instance::from_state(states.get(id).copied()));
            }
        }
    }

    /// Brings one object as far as it goes now. Returns what is to be looked at next because of it.
    pub async fn look(&self, object: &Object, target: &Target) -> Result<Vec<Object>, Trouble> {
        let result = match object {
            Object::Claim(name) => self.look_at_claim(name, target).await,
            Object::Node(name) => self.look_at_node(name, target).await,
        };
        match result {
            Err(Trouble::Cluster(ClusterError::NotFound { .. })) => Ok(Vec::new()),
            result => result,
        }
    }

    async fn look_at_claim(&self, name: &str, target: &Target) -> Result<Vec<Object>, Trouble> {
        let Some(claim) = self.cluster.get::<NodeClaim>(&ObjectKey::cluster(name)).await? else {
            return Ok(Vec::new());
        };
        let mut nodes: Option<Vec<Arc<Node>>> = None;
        let mut instance = None;
        let mut launch = None;
        let act = loop {
            let view = ClaimView {
                claim: Some(&claim),
                nodes: nodes.as_ref().map(|it| it.iter().map(AsRef::as_ref).collect()),
                instance,
                launch: launch.clone(),
            };
            match decide_claim(&view, self.now) {
                Next::Act(act) => break act,
                Next::Read(Read::Nodes) => nodes = Some(self.nodes_of(&claim).await?),
                Next::Read(Read::Launch) => launch = Some(self.launch_of(&claim).await?),
                Next::Read(_) => {
                    instance = Some(self.instance_of(&claim.status.provider_id).await?);
                }
            }
        };
        let nodes = nodes.clone().unwrap_or_default();
        let leaving: Vec<Object> =
            nodes.iter().map(|it| Object::Node(it.metadata.name.clone())).collect();
        let scene = Scene { claim: Some(claim.clone()), nodes, target };
        self.carry_out(&scene, &act, Key::of(&*claim)).await?;
        if instance == Some(Instance::Gone) && !act.finish.is_empty() {
            self.give_back_reservation(&claim).await;
        }
        if act.again {
            return Ok(vec![Object::Claim(name.to_owned())]);
        }
        Ok(leaving)
    }

    /// The place of a reserved instance is free again. Best effort: EC2 is asked for the true count every minute.
    async fn give_back_reservation(&self, claim: &NodeClaim) {
        let Some(id) = claim.metadata.label(labels::CAPACITY_RESERVATION_ID) else { return };
        let event = ReservationEvent::Terminated;
        if let Err(error) = stored::count_reservation(self.state, id, event, self.now).await {
            let object = format!("Reservation/{id}");
            self.cx.decide(Decision::new("miscount", object, error.to_string()).caused_by(&error));
        }
    }

    async fn look_at_node(&self, name: &str, target: &Target) -> Result<Vec<Object>, Trouble> {
        let node = self.cluster.get::<Node>(&ObjectKey::cluster(name)).await?;
        let hooks = self.hooks_of(name).await?;
        if !hooks.is_empty() && !self.look_at_hooked(name, node.as_ref(), hooks).await? {
            return Ok(Vec::new());
        }
        let Some(node) = node.filter(|it| it.metadata.deleting()) else {
            return Ok(Vec::new());
        };
        let claim = self.claim_of(&node).await?;
        let mut pods: Option<Vec<Arc<Pod>>> = None;
        let mut attachments: Option<Vec<Arc<VolumeAttachment>>> = None;
        let mut instance = None;
        let (again, finished) = loop {
            let view = NodeView {
                node: Some(&node),
                claim: claim.as_deref(),
                pods: pods.as_ref().map(|it| it.iter().map(AsRef::as_ref).collect()),
                attachments: attachments.as_ref().map(|it| it.iter().map(AsRef::as_ref).collect()),
                instance,
                interrupted: target.interrupted,
            };
            match decide_node(&view, self.now) {
                Next::Read(Read::Pods) => {
                    pods = Some(self.cluster.list::<Pod>(&Selector::on_node(name)).await?);
                }
                Next::Read(Read::Attachments) => {
                    let on_node = pods.as_deref().unwrap_or_default();
                    attachments = Some(self.blocking_attachments(name, on_node).await?);
                }
                Next::Read(_) => {
                    let id =
                        claim.as_ref().map_or(&node.spec.provider_id, |it| &it.status.provider_id);
                    instance = Some(self.instance_of(id).await?);
                }
                Next::Act(act) => {
                    let scene = Scene { claim: claim.clone(), nodes: vec![node.clone()], target };
                    self.carry_out(&scene, &act, Key::of(&*node)).await?;
                    let released = |it: &Action| matches!(it, Action::WriteNode { .. });
                    break (act.again, act.finish.iter().any(released));
                }
            }
        };
        let claim = claim.map(|it| Object::Claim(it.metadata.name.clone()));
        Ok(match (again, finished) {
            (true, _) => claim.into_iter().chain([Object::Node(name.to_owned())]).collect(),
            (false, true) => claim.into_iter().collect(),
            (false, false) => Vec::new(),
        })
    }

    /// All Nodes with the claim's provider id. While the one that it registered with is there, that one will do:
    /// the others are looked for when it is gone.
    async fn nodes_of(&self, claim: &NodeClaim) -> Result<Vec<Arc<Node>>, Trouble> {
        let id = &claim.status.provider_id;
        let has_id = |it: &Arc<Node>| !id.is_empty() && &it.spec.provider_id == id;
        if !claim.status.node_name.is_empty() {
            let key = ObjectKey::cluster(&claim.status.node_name);
            let node = self.cluster.get::<Node>(&key).await?.filter(has_id);
            if let Some(node) = node.filter(|it| it.metadata.deleting()) {
                return Ok(vec![node]);
            }
        }
        let nodes = self.cluster.list::<Node>(&Selector::all()).await?;
        Ok(nodes.into_iter().filter(has_id).collect())
    }

    /// The one managed claim of a node; none when there are none or several.
    async fn claim_of(&self, node: &Node) -> Result<Option<Arc<NodeClaim>>, Trouble> {
        let id = &node.spec.provider_id;
        let is_its =
            |it: &Arc<NodeClaim>| it.is_managed() && !id.is_empty() && &it.status.provider_id == id;
        for owner in node.metadata.owner_references.iter().filter(|it| it.kind == NodeClaim::KIND) {
            let key = ObjectKey::cluster(&owner.name);
            let claim = self.cluster.get::<NodeClaim>(&key).await?;
            if let Some(claim) = claim.filter(|it| it.metadata.uid == owner.uid && is_its(it)) {
                return Ok(Some(claim));
            }
        }
        let claims = self.cluster.list::<NodeClaim>(&Selector::all()).await?;
        let mut matching = claims.into_iter().filter(is_its);
        match (matching.next(), matching.next()) {
            (Some(claim), None) => Ok(Some(claim)),
            _ => Ok(None),
        }
    }

    /// What is said of a provider id that names no instance is never that it is gone.
    async fn instance_of(&self, id: &ProviderId) -> Result<Instance, Trouble> {
        let Some(id) = id.instance_id() else { return Ok(Instance::Alive) };
        self.instance(&id).await
    }

    /// The state of an instance, read at most once per run.
    pub async fn instance(&self, id: &InstanceId) -> Result<Instance, Trouble> {
        if let Some(known) = self.instances.borrow().get(id) {
            return Ok(*known);
        }
        let found = self.ec2.describe_instances(std::slice::from_ref(id)).await?;
        let state = found.iter().find(|it| &it.id == id).map(|it| it.state.as_str());
        let instance = Instance::from_state(state);
        self.instances.borrow_mut().insert(id.clone(), instance);
        Ok(instance)
    }

    /// The attachments on a drained node that are waited for.
    pub async fn blocking_attachments(
        &self,
        node: &str,
        pods: &[Arc<Pod>],
    ) -> Result<Vec<Arc<VolumeAttachment>>, Trouble> {
        let mut attachments = self.cluster.list::<VolumeAttachment>(&Selector::all()).await?;
        attachments.retain(|it| it.spec.node_name == node);
        if attachments.is_empty() {
            return Ok(attachments);
        }
        let pods: Vec<&Pod> = pods.iter().map(AsRef::as_ref).collect();
        let mut ignored = BTreeSet::new();
        for claim in volumes::staying_claims(&pods, self.now) {
            if let Some(claim) = self.cluster.get::<PersistentVolumeClaim>(&claim).await? {
                ignored.insert(claim.spec.volume_name.clone());
            }
        }
        for attachment in &attachments {
            let Some(volume) = &attachment.spec.source.persistent_volume_name else { continue };
            let key = ObjectKey::cluster(volume);
            if self.cluster.get::<PersistentVolume>(&key).await?.is_none() {
                ignored.insert(volume.clone());
            }
        }
        let names: BTreeSet<String> =
            volumes::blocking(attachments.iter().map(AsRef::as_ref), node, &ignored)
                .into_iter()
                .map(|it| it.metadata.name.clone())
                .collect();
        attachments.retain(|it| names.contains(&it.metadata.name));
        Ok(attachments)
    }

    /// Carries out what was decided, in order, and stops at the first that fails.
    async fn carry_out(&self, scene: &Scene<'_>, act: &Act<'_>, key: Key) -> Result<(), Trouble> {
        let object = format!("{}/{}", key.kind, key.name);
        let mut stored = Stored { claim: scene.claim.clone(), nodes: scene.nodes.clone() };
        for action in &act.actions {
            self.execute(action, &mut stored).await?;
        }
        if let (Some(drain), [node]) = (&act.drain, scene.nodes.as_slice()) {
            let claim = scene.claim.as_deref();
            let deadline = claim.and_then(|it| termination::deadline(it).ok().flatten());
            let reason = termination::eviction_reason(claim);
            self.drain(node, drain, deadline, &reason).await?;
        }
        if let Some(id) = &act.terminate {
            self.terminate(id, &object, scene).await?;
        }
        if let Some(status) = &act.status
            && let Some(old) = stored.claim.take()
        {
            let mut new = (*old).clone();
            new.status.clone_from(&status.status);
            let guard = Precondition::ResourceVersion;
            stored.claim = Some(self.cluster.patch_status(&*old, &new, guard).await?);
        }
        for action in &act.finish {
            self.execute(action, &mut stored).await?;
        }
        if let Some(problem) = &act.broken {
            self.cx.decide(Decision::new("stuck", object.as_str(), problem.as_str()).as_error());
        }
        if let Some(due) = act.wake_at {
            let key = Key { resource_version: String::new(), ..key };
            let (state, queues, concern) = (self.state, self.queues, self.cx.concern);
            let depth = scene.target.depth;
            wakes::wake_once(state, queues, concern, key, due, self.now, depth).await?;
        }
        Ok(())
    }

    async fn terminate(
        &self,
        id: &InstanceId,
        object: &str,
        scene: &Scene<'_>,
    ) -> Result<(), Trouble> {
        // Two runs may have come here with the same copy of the claim: the later one has nothing to do.
        if let Some(claim) = scene.claim.as_ref().filter(|it| !is_terminating(it))
            && let Some(fresh) = self.cluster.get::<NodeClaim>(&claim.key()).await?
            && fresh.metadata.uid == claim.metadata.uid
            && is_terminating(&fresh)
        {
            self.instances.borrow_mut().insert(id.clone(), Instance::ShuttingDown);
            return Ok(());
        }
        if self.is_shifted(scene).await? {
            match self.instance(id).await? {
                // Nothing is left to be done to it.
                Instance::Gone | Instance::ShuttingDown => return Ok(()),
                Instance::Alive => {
                    let [zone, zone_id] = scene.zone().map(str::to_owned);
                    return Err(Trouble::Shifted(id.clone(), zone, zone_id));
                }
            }
        }
        let asking = StateKey::new(ENDED, id.as_str());
        let until = self.cx.now.checked_add(ENDED_LIFE).ok();
        // Two runs may be here at once, with the condition not written by either. Without the table both ask: no harm.
        if let Err(StateError::Conflict(_)) =
            self.state.write(&asking, serde_json::Value::Null, until, When::Absent).await
        {
            self.instances.borrow_mut().insert(id.clone(), Instance::ShuttingDown);
            return Ok(());
        }
        let result = self.ec2.terminate_instances(std::slice::from_ref(id)).await;
        match result {
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                // The next try is not to stand back for this one. A record that stays has its end.
                let _ = self.state.remove(&asking, When::Always).await;
                let [zone, zone_id] = scene.zone();
                let labels = [("zone", zone), ("zone_id", zone_id)];
                self.cx.count(TERMINATION_FAILURES, &labels);
                let claim = scene.claim.as_ref().map(|it| it.metadata.name.clone());
                return Err(Trouble::Refused(id.clone(), claim, error));
            }
            Ok(()) => {}
        }
        self.instances.borrow_mut().insert(id.clone(), Instance::ShuttingDown);
        let decision = Decision::new("terminate", object, "nothing is left on it");
        self.cx.decide(decision.with("instance_id", id.as_str()));
        Ok(())
    }

    /// Whether traffic is shifted away from the zone of the instance.
    async fn is_shifted(&self, scene: &Scene<'_>) -> Result<bool, Trouble> {
        let Some(claim) = scene.claim.as_ref().filter(|_| self.cx.settings.enable_zonal_shift)
        else {
            return Ok(false);
        };
        let shifted = zonal_shift::load(self.state, self.cx.now).await?;
        Ok(zonal_shift::holds(&shifted, claim))
    }

    /// Has `key` looked at again soon. Whether that could be arranged.
    pub async fn wait_for_shift(&self, key: Key, depth: u32) -> bool {
        let due = self.now + SHIFT_PAUSE;
        let (state, queues, concern) = (self.state, self.queues, self.cx.concern);
        wakes::wake_once(state, queues, concern, key, due, self.now, depth).await.is_ok()
    }

    async fn execute(&self, action: &Action, stored: &mut Stored) -> Result<(), Trouble> {
        match action {
            Action::WriteClaim { claim, guard } => {
                let Some(old) = stored.claim.take() else { return Ok(()) };
                let mut new = (*old).clone();
                new.metadata.labels.clone_from(&claim.metadata.labels);
                new.metadata.annotations.clone_from(&claim.metadata.annotations);
                new.metadata.finalizers.clone_from(&claim.metadata.finalizers);
                let released = new.metadata.finalizers != old.metadata.finalizers;
                stored.claim = Some(self.cluster.patch(&*old, &new, *guard).await?);
                let (what, why) = if released {
                    ("release", "nothing of it is left")
                } else {
                    ("set-deadline", "terminationGracePeriod")
                };
                self.cx.decide(Decision::new(what, format!("NodeClaim/{}", new.name()), why));
            }
            Action::WriteNode { node, guard } => {
                let mine = |it: &&mut Arc<Node>| it.metadata.uid == node.metadata.uid;
                let Some(old) = stored.nodes.iter_mut().find(mine) else { return Ok(()) };
                let mut new = (**old).clone();
                new.metadata.labels.clone_from(&node.metadata.labels);
                new.metadata.finalizers.clone_from(&node.metadata.finalizers);
                new.spec.taints.clone_from(&node.spec.taints);
                let released = new.metadata.finalizers != old.metadata.finalizers;
                *old = self.cluster.patch(&**old, &new, *guard).await?;
                let (what, why) = if released {
                    ("release", "drained, and its instance is gone")
                } else {
                    ("taint", "it is being drained")
                };
                self.cx.decide(Decision::new(what, format!("Node/{}", new.name()), why));
            }
            Action::DeleteClaim { why, .. } => {
                let Some(claim) = &stored.claim else { return Ok(()) };
                let key = claim.key();
                self.cluster.delete::<NodeClaim>(&key, &claim.metadata.uid, None).await?;
                self.cx.decide(Decision::new("delete", format!("NodeClaim/{key}"), why.as_str()));
            }
            Action::DeleteNode { node, why } => {
                let key = node.key();
                self.cluster.delete::<Node>(&key, &node.metadata.uid, None).await?;
                self.cx.decide(Decision::new("delete", format!("Node/{key}"), *why));
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
            Action::WriteStatus { .. } | Action::NoteRegistration { .. } => {}
        }
        Ok(())
    }
}

fn is_terminating(claim: &NodeClaim) -> bool {
    claim.is_true(NodeClaim::INSTANCE_TERMINATING)
}

/// What was read for one look.
struct Scene<'a> {
    claim: Option<Arc<NodeClaim>>,
    nodes: Vec<Arc<Node>>,
    target: &'a Target,
}

impl Scene<'_> {
    /// Name and id of the zone, as far as the claim tells.
    fn zone(&self) -> [&str; 2] {
        let label = |key| self.claim.as_ref().and_then(|it| it.metadata.label(key));
        [labels::ZONE, labels::ZONE_ID].map(|key| label(key).unwrap_or_default())
    }
}

/// The objects as this look has written them last.
struct Stored {
    claim: Option<Arc<NodeClaim>>,
    nodes: Vec<Arc<Node>>,
}
