//! The world's clock: takes what is due, runs handlers, and says when everything has come to rest.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use spokeshave_lambda::{BatchAnswer, SqsBatch, wiring};
use spokeshave_model::{
    CapacityBuffer, EC2NodeClass, InstanceId, Kind, NodeClaim, NodeOverlay, NodePool, ObjectKey,
    Settings, conditions,
    core::Pod,
    labels,
    meta::{apply_merge_patch, from_value, merge_patch, to_value},
};
use spokeshave_ports::{Concern, StateKey, Work, queues::BusEvent};

use crate::{
    check,
    faults::{Fault, Faults},
    kubernetes,
    market::{Market, ShapeOf},
    ports::{Ports, namespaces},
    store::ObjectChange,
    world::{Happening, Inner, Input, Interruption},
};

/// With no change for so long, nothing is under way: longer than any wake-up can be delayed (15 minutes).
pub const REST: SignedDuration = SignedDuration::from_mins(16);
/// How far ahead a state is watched to see whether something is under way: longer than the wait of a disruption
/// command for its validation (15 s) and than a node's start.
const SOON: SignedDuration = SignedDuration::from_secs(60);
/// A world that still changes after so long never comes to rest.
pub const LIMIT: SignedDuration = SignedDuration::from_hours(8);

/// One run of a function.
pub struct InvocationSpec {
    pub concern: Concern,
    pub batch: SqsBatch,
    pub now: Timestamp,
    pub deadline: Timestamp,
    pub settings: Rc<Settings>,
}

/// A handler under way.
pub type Running = Pin<Box<dyn Future<Output = BatchAnswer>>>;

/// The functions, and the bridge that tells them what changed.
pub trait Functions {
    /// Starts a handler on a batch.
    fn invoke(&self, run: InvocationSpec, ports: Ports) -> Running;
    /// Tells the bridge of a change.
    fn changed(&mut self, change: &ObjectChange, now: Timestamp);
    /// When the bridge has something to say.
    fn bridge_due(&self) -> Option<Timestamp>;
    /// What the bridge has to say now.
    fn bridge_take(&mut self, now: Timestamp) -> Vec<BusEvent>;
}

struct Task {
    concern: Concern,
    batch: SqsBatch,
    future: Running,
}

/// A simulated cluster in a simulated account, with the functions that run it.
pub struct World {
    inner: Rc<RefCell<Inner>>,
    functions: Box<dyn Functions>,
    tasks: BTreeMap<u64, Task>,
    next_task: u64,
    applied: BTreeMap<(String, ObjectKey), Value>,
    happenings: u64,
}

/// Why a manifest cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {problem}")]
pub struct ApplyError {
    pub object: String,
    pub problem: String,
}

struct Idle;

impl Wake for Idle {
    fn wake(self: Arc<Self>) {}
}

impl World {
    /// An empty cluster. Schedules start at once, as after a deployment.
    pub fn new(
        seed: u64,
        start: Timestamp,
        settings: Settings,
        market: Market,
        shape_of: ShapeOf,
        functions: Box<dyn Functions>,
    ) -> Self {
        let mut inner = Inner::new(seed, start, settings, market, shape_of);
        for namespace in namespaces() {
            inner.store.create(namespace, start);
        }
        for (n, (concern, _)) in wiring::SCHEDULES.iter().enumerate() {
            let period = wiring::SCHEDULES.get(n).map_or(60, |it| it.1);
            // The catalog comes first; the others follow within the first seconds.
            let first = if *concern == Concern::CatalogRefresh { 0 } else { 200 + 350 * n as u64 };
            inner.after(
                first,
                Happening::Schedule(*concern, SignedDuration::from_secs(period as i64)),
            );
        }
        inner.at(start + SignedDuration::from_mins(10), Happening::Sweep);
        Self {
            inner: Rc::new(RefCell::new(inner)),
            functions,
            tasks: BTreeMap::new(),
            next_task: 0,
            applied: BTreeMap::new(),
            happenings: 0,
        }
    }

    /// Lets things go wrong until `until`.
    pub fn set_faults(&mut self, kinds: Vec<Fault>, until: Timestamp) {
        self.inner.borrow_mut().faults = Faults { kinds, until: Some(until) };
    }

    /// Puts a record into the state table before anything runs.
    pub fn seed_state(&mut self, key: StateKey, data: Value) {
        let record = spokeshave_ports::Record { version: 1, data, expires_at: None };
        self.inner.borrow_mut().table.insert(key, record);
    }

    /// Reads the world.
    pub fn read<T>(&self, look: impl FnOnce(&Inner) -> T) -> T {
        look(&self.inner.borrow())
    }

    /// Changes the world by hand, for tests.
    pub fn change<T>(&mut self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.borrow_mut();
        let result = change(&mut inner);
        inner.last_mutation = inner.now;
        result
    }

    /// Plans something from outside for a time.
    pub fn plan(&mut self, at: Timestamp, input: Input) {
        let mut inner = self.inner.borrow_mut();
        inner.script.push(input);
        inner.script_left += 1;
        let position = inner.script.len() - 1;
        inner.at(at, Happening::Script(position));
    }

    /// Delivers message bodies to the interruption queue, now. `{{instance:N}}` is the N-th running instance.
    ///
    /// # Errors
    /// The placeholder that stands for no instance; nothing is delivered then.
    pub fn deliver(&mut self, bodies: &[String]) -> Result<(), String> {
        let ids = self.running_instances();
        let bodies =
            bodies.iter().map(|body| substitute(body, &ids)).collect::<Result<Vec<_>, String>>()?;
        let mut inner = self.inner.borrow_mut();
        for body in bodies {
            announce(&mut inner, &body);
            inner.send(Concern::Interruption, &body, SignedDuration::from_millis(400), "", false);
        }
        let now = inner.now;
        inner.last_mutation = now;
        Ok(())
    }

    /// Ids of running instances by claim name.
    pub fn running_instances(&self) -> Vec<InstanceId> {
        let inner = self.inner.borrow();
        let claims = inner.store.list::<NodeClaim>();
        claims
            .filter_map(|it| it.status.provider_id.instance_id())
            .filter(|id| inner.machines.get(id).is_some_and(|it| it.instance.state == "running"))
            .collect()
    }

    /// Applies an object as `kubectl apply` does.
    ///
    /// # Errors
    /// When a field has the wrong type.
    pub fn apply(&mut self, object: &Value) -> Result<(), ApplyError> {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        macro_rules! apply {
            ($($type:ident),* $(,)?) => {
                match kind.as_str() {
                    "NodePool" => self.apply_as::<NodePool>(object),
                    "EC2NodeClass" => self.apply_as::<EC2NodeClass>(object),
                    "NodeOverlay" => self.apply_as::<NodeOverlay>(object),
                    "CapacityBuffer" => self.apply_as::<CapacityBuffer>(object),
                    "NodeClaim" => self.apply_as::<NodeClaim>(object),
                    $(stringify!($type) => self.apply_as::<spokeshave_model::core::$type>(object),)*
                    _ => Ok(()),
                }
            };
        }
        crate::with_kubernetes_kinds!(apply)
    }

    fn apply_as<K: Kind>(&mut self, object: &Value) -> Result<(), ApplyError> {
        let mut object = object.clone();
        if K::NAMESPACED && object["metadata"]["namespace"].as_str().unwrap_or_default().is_empty()
        {
            object["metadata"]["namespace"] = "default".into();
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let key =
            ObjectKey { namespace: if K::NAMESPACED { namespace } else { String::new() }, name };
        let wrong = |error: serde_json::Error| ApplyError {
            object: format!("{}/{key}", K::KIND),
            problem: error.to_string(),
        };
        let mut inner = self.inner.borrow_mut();
        let now = inner.now;
        inner.last_mutation = now;
        let slot = (K::KIND.to_owned(), key.clone());
        if object["metadata"]["annotations"]["spokeshave.dev/delete"] == "true" {
            self.applied.remove(&slot);
            kubernetes::delete::<K>(&mut inner, &key, None);
            return Ok(());
        }
        if let Some(mut current) = inner.store.get::<K>(&key) {
            if K::KIND == "Node" && object.get("spec").is_none() {
                let mut node = to_value(&*current);
                merge_conditions(&mut node, &object["status"]["conditions"], now);
                let node: K = from_value(node).map_err(wrong)?;
                inner.store.patch(&*current, &node, true, now);
                // Conditions alone say nothing of labels and annotations that were applied before.
                let says = |field: &str| object["metadata"].get(field).is_some();
                if !says("labels") && !says("annotations") {
                    return Ok(());
                }
                // The rest of it is applied as anything else.
                if let Some(fields) = object.as_object_mut() {
                    fields.remove("status");
                }
                current = inner.store.get::<K>(&key).unwrap_or(current);
            }
            let before = self.applied.get(&slot).cloned().unwrap_or(Value::Null);
            // Left out altogether, they take along what was applied, not what others put there.
            for field in ["labels", "annotations"] {
                if before["metadata"][field].is_object() && object["metadata"][field].is_null() {
                    object["metadata"][field] = Value::Object(serde_json::Map::new());
                }
            }
            if let Some(patch) = merge_patch(&before, &object) {
                let mut value = to_value(&*current);
                apply_merge_patch(&mut value, &patch);
                let next: K = from_value(value).map_err(wrong)?;
                inner.store.patch(&*current, &next, false, now);
            }
            self.applied.insert(slot, object);
            return Ok(());
        }
        let mut fresh = object.clone();
        if let Some(fields) = fresh.as_object_mut()
            && !matches!(K::KIND, "Node" | "PersistentVolumeClaim")
        {
            fields.remove("status");
        }
        if let Some(meta) = fresh["metadata"].as_object_mut() {
            for field in
                ["uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"]
            {
                meta.remove(field);
            }
        }
        let mut parsed: K = from_value(fresh).map_err(wrong)?;
        if K::KIND == "Pod" {
            let mut pod: Pod = from_value(to_value(&parsed)).map_err(wrong)?;
            kubernetes::admit(&inner, &mut pod);
            parsed = from_value(to_value(&pod)).map_err(wrong)?;
        }
        inner.store.create(parsed, now);
        self.applied.insert(slot, object);
        Ok(())
    }

    /// Goes on until `limit`, or with `stop_at_rest` until nothing is under way. Returns whether it came to rest.
    ///
    /// `watch` is called after every happening with the world; it may show progress or wait for real time.
    pub fn run(
        &mut self,
        limit: Timestamp,
        stop_at_rest: bool,
        watch: &mut dyn FnMut(&Inner),
    ) -> bool {
        self.react();
        loop {
            let (next, rest) = {
                let inner = self.inner.borrow();
                let rest = inner.script_left == 0
                    && self.tasks.is_empty()
                    && inner.next_at().is_none_or(|next| next > inner.last_mutation + REST);
                (inner.next_at(), rest)
            };
            if stop_at_rest && rest {
                check::at_rest(&mut self.inner.borrow_mut());
                return true;
            }
            if next.is_none_or(|next| next > limit) {
                let mut inner = self.inner.borrow_mut();
                inner.now = limit.max(inner.now);
                check::always(&mut inner);
                return false;
            }
            let Some(what) = self.inner.borrow_mut().take_next() else { continue };
            self.happen(what);
            self.react();
            self.happenings += 1;
            if self.happenings.is_multiple_of(4_096) {
                check::always(&mut self.inner.borrow_mut());
            }
            watch(&self.inner.borrow());
        }
    }

    /// Whether nothing is due or under way now: no claim waits for its node, and the world, left alone, stays as it is
    /// for a minute. What a later time brings (an expiry, `consolidateAfter`) is not due yet. Goes on in time to find out.
    pub fn is_at_rest(&mut self) -> bool {
        let (now, last, waiting) = self.read(|inner| {
            let joined = |it: &NodeClaim| conditions::is_true(&it.status.conditions, "Registered");
            let waiting =
                inner.store.list::<NodeClaim>().any(|it| !it.metadata.deleting() && !joined(&it));
            (inner.now, inner.last_mutation, waiting)
        });
        {
            let mut inner = self.inner.borrow_mut();
            inner.script_left = 0;
            inner.script.clear();
        }
        let _ = self.run(now + SOON, false, &mut |_| {});
        !waiting && self.read(|inner| inner.last_mutation) == last
    }

    /// Tells controllers and the bridge what has changed.
    fn react(&mut self) {
        loop {
            let changes = self.inner.borrow_mut().store.take_changes();
            if changes.is_empty() {
                break;
            }
            let mut inner = self.inner.borrow_mut();
            let now = inner.now;
            for change in &changes {
                if only_reorders(change) {
                    inner.store.mutations -= 1;
                }
                kubernetes::observe(&mut inner, change);
                self.functions.changed(change, now);
            }
        }
        let mut inner = self.inner.borrow_mut();
        inner.note_mutations();
        if let Some(due) = self.functions.bridge_due()
            && inner.bridge_due.is_none_or(|planned| due < planned)
        {
            inner.bridge_due = Some(due);
            let due = due.max(inner.now);
            inner.at(due, Happening::Bridge);
        }
    }

    fn happen(&mut self, what: Happening) {
        let mut inner = self.inner.borrow_mut();
        match what {
            Happening::Resume(id) => {
                drop(inner);
                self.resume(id);
            }
            Happening::TimeLimit(id) => {
                if let Some(task) = self.tasks.remove(&id)
                    && let Some(queue) = inner.queues.get_mut(&task.concern)
                {
                    queue.lost();
                    // A look now plans the next one.
                    let now = inner.now;
                    inner.poll_at(task.concern, now);
                }
            }
            Happening::Poll(concern) => {
                drop(inner);
                self.poll(concern);
            }
            Happening::Controllers => kubernetes::reconcile(&mut inner),
            Happening::PodRunning(key, uid) => kubernetes::pod_running(&mut inner, &key, &uid),
            Happening::PodGone(key, uid) => kubernetes::pod_gone(&mut inner, &key, &uid),
            Happening::JobPodDone(key, uid) => kubernetes::job_pod_done(&mut inner, &key, &uid),
            Happening::InstanceRunning(id) => {
                let pending =
                    inner.machines.get_mut(&id).filter(|it| it.instance.state == "pending");
                if let Some(machine) = pending {
                    machine.instance.state = "running".into();
                    inner.ec2_mutations += 1;
                    inner.state_change(&id, "running");
                }
            }
            Happening::NodeJoins(id) => kubernetes::node_joins(&mut inner, &id),
            Happening::NodeReady(name, uid) => kubernetes::node_ready(&mut inner, &name, &uid),
            Happening::Agents => kubernetes::agents(&mut inner),
            Happening::InstanceTerminated(id) => kubernetes::instance_terminated(&mut inner, &id),
            Happening::InstanceStopped(id) => {
                let stopping =
                    inner.machines.get_mut(&id).filter(|it| it.instance.state == "stopping");
                if let Some(machine) = stopping {
                    machine.instance.state = "stopped".into();
                    inner.ec2_mutations += 1;
                    inner.state_change(&id, "stopped");
                }
            }
            Happening::NodeUnreachable(id) => kubernetes::node_unreachable(&mut inner, &id),
            Happening::Reclaim(id) => inner.shut_down(&id),
            Happening::NodeLost(name, uid) => kubernetes::node_lost(&mut inner, &name, &uid),
            Happening::VolumeDetached(name) => {
                let now = inner.now;
                inner.store.remove::<spokeshave_model::core::VolumeAttachment>(
                    &ObjectKey::cluster(&name),
                    now,
                );
            }
            Happening::Schedule(concern, period) => {
                if concern != Concern::ClusterBridge {
                    inner.send_work(concern, &Work::new("Schedule", Vec::new()), true);
                }
                let next = inner.now + period;
                inner.at(next, Happening::Schedule(concern, period));
            }
            Happening::Sweep => {
                for concern in wiring::routes("Sweep") {
                    inner.send_work(*concern, &Work::new("Sweep", Vec::new()), true);
                }
                let next = inner.now + SignedDuration::from_mins(10);
                inner.at(next, Happening::Sweep);
            }
            Happening::Bridge => {
                inner.bridge_due = None;
                let now = inner.now;
                let events = self.functions.bridge_take(now);
                if !events.is_empty() {
                    inner.after(90, Happening::Bus(events));
                }
            }
            Happening::Bus(events) => {
                for event in &events {
                    for concern in wiring::routes(event.detail_type) {
                        let body = serde_json::to_string(&event.work).unwrap_or_default();
                        let group = wiring::message_group(*concern, event.detail_type);
                        inner.send(*concern, &body, SignedDuration::ZERO, group, false);
                    }
                }
            }
            Happening::Script(position) => {
                let input = inner.script.get(position).cloned();
                inner.script_left = inner.script_left.saturating_sub(1);
                let now = inner.now;
                inner.last_mutation = now;
                drop(inner);
                match input {
                    Some(Input::Apply(objects)) => {
                        for object in &objects {
                            // Checked when the script was read.
                            let _ = self.apply(object);
                        }
                    }
                    Some(Input::Events(bodies)) => {
                        if let Err(problem) = self.deliver(&bodies) {
                            let mut inner = self.inner.borrow_mut();
                            inner.unusable.get_or_insert(problem);
                        }
                    }
                    None => {}
                }
            }
        }
    }

    fn poll(&mut self, concern: Concern) {
        loop {
            let mut inner = self.inner.borrow_mut();
            let now = inner.now;
            let shuffle = inner.strikes(Fault::Reorder);
            let mut random = inner.random.clone();
            let Some(queue) = inner.queues.get_mut(&concern) else { return };
            let timeout = SignedDuration::from_secs(queue.source.timeout as i64);
            let mut mix = |ids: &mut Vec<u64>| {
                for at in (1..ids.len()).rev() {
                    let other = random.below(at as u64 + 1) as usize;
                    ids.swap(at, other);
                }
            };
            let batch = queue.receive(now, if shuffle { Some(&mut mix) } else { None });
            let next = if batch.is_none() { queue.next_visible(now) } else { None };
            if shuffle {
                inner.random = random;
            }
            let Some(batch) = batch else {
                if let Some(next) = next {
                    inner.poll_at(concern, next);
                }
                return;
            };
            self.next_task += 1;
            let id = self.next_task;
            inner.at(now + timeout, Happening::TimeLimit(id));
            let run = InvocationSpec {
                concern,
                batch: batch.clone(),
                now,
                deadline: now + timeout,
                settings: inner.settings.clone(),
            };
            drop(inner);
            let ports = Ports { world: self.inner.clone(), invocation: id, concern };
            let future = self.functions.invoke(run, ports);
            self.tasks.insert(id, Task { concern, batch, future });
            self.resume(id);
        }
    }

    fn resume(&mut self, id: u64) {
        let Some(mut task) = self.tasks.remove(&id) else { return };
        let waker = Waker::from(Arc::new(Idle));
        let result = task.future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut inner = self.inner.borrow_mut();
        let now = inner.now;
        let died = inner.dead.remove(&id);
        match result {
            Poll::Pending if !died => {
                drop(inner);
                self.tasks.insert(id, task);
            }
            Poll::Pending => self.lost(&mut inner, task.concern),
            Poll::Ready(answer) => {
                if inner.strikes(Fault::Crash) {
                    // It died after its last call: the answer never arrives.
                    self.lost(&mut inner, task.concern);
                    return;
                }
                // Failures of a batch come back after the queue's visibility; Lambda's poller shortens nothing.
                let back_off = SignedDuration::from_secs(20);
                if let Some(queue) = inner.queues.get_mut(&task.concern) {
                    queue.finish(&task.batch, &answer, now, back_off);
                    inner.poll_at(task.concern, now);
                }
            }
        }
    }

    fn lost(&self, inner: &mut Inner, concern: Concern) {
        if let Some(queue) = inner.queues.get_mut(&concern) {
            queue.lost();
            let now = inner.now;
            inner.poll_at(concern, now);
        }
    }
}

/// An EC2 announcement has consequences of its own: a warned spot instance is taken back after two minutes.
fn announce(inner: &mut Inner, body: &str) {
    let Ok(document) = serde_json::from_str::<Value>(body) else { return };
    let kind = document["detail-type"].as_str().unwrap_or_default().to_owned();
    let detail = &document["detail"];
    if document["source"] == "aws.health" {
        // Only what is scheduled for instances takes them away.
        if detail["service"] == "EC2" && detail["eventTypeCategory"] == "scheduledChange" {
            for entity in detail["affectedEntities"].as_array().into_iter().flatten() {
                if let Some(id) = entity["entityValue"].as_str() {
                    announce_for(inner, &document, kind.clone(), InstanceId::from(id));
                }
            }
        }
        return;
    }
    let Some(id) = detail["instance-id"].as_str().map(InstanceId::from) else { return };
    announce_for(inner, &document, kind, id);
}

fn announce_for(inner: &mut Inner, document: &Value, kind: String, id: InstanceId) {
    let now = inner.now;
    let node = inner
        .store
        .list::<NodeClaim>()
        .find(|it| it.status.provider_id.instance_id().as_ref() == Some(&id))
        .map(|it| it.status.node_name.clone());
    let Some(machine) = inner.machines.get_mut(&id).filter(|it| it.is_live()) else { return };
    let Some(node) = node else { return };
    match kind.as_str() {
        "EC2 Spot Instance Interruption Warning" => {
            machine.interrupted = Some(now);
            inner.at(now + SignedDuration::from_mins(2), Happening::Reclaim(id.clone()));
        }
        "EC2 Instance State-change Notification" => {
            match document["detail"]["state"].as_str().unwrap_or_default() {
                state @ ("stopping" | "stopped") => inner.stop(&id, state == "stopped"),
                "shutting-down" | "terminated" => {
                    inner.after(1_000, Happening::Reclaim(id.clone()));
                }
                _ => return,
            }
        }
        "EC2 Instance Rebalance Recommendation" => return,
        _ => {}
    }
    // A warning and what follows from it are one interruption.
    if inner.interruptions.iter().any(|it| it.instance == id) {
        return;
    }
    inner.interruptions.push(Interruption {
        instance: id,
        node,
        announced: now,
        kind,
        replaced: None,
        displaced: Vec::new(),
    });
}

/// Replaces `{{instance:N}}`.
fn substitute(body: &str, ids: &[InstanceId]) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = body;
    while let Some(at) = rest.find("{{instance:") {
        text.push_str(&rest[..at]);
        let after = &rest[at + "{{instance:".len()..];
        let Some(end) = after.find("}}") else {
            text.push_str(&rest[at..]);
            return Ok(text);
        };
        let n: usize = after[..end]
            .trim()
            .parse()
            .map_err(|_| format!("{{{{instance:{}}}}} is not a number", &after[..end]))?;
        let id = ids.get(n).ok_or_else(|| {
            format!("{{{{instance:{n}}}}} is out of range: {} instances are running", ids.len())
        })?;
        text.push_str(id.as_str());
        rest = &after[end + 2..];
    }
    text.push_str(rest);
    Ok(text)
}

fn merge_conditions(node: &mut Value, conditions: &Value, now: Timestamp) {
    let Some(new) = conditions.as_array() else { return };
    if !node["status"]["conditions"].is_array() {
        node["status"]["conditions"] = Value::Array(Vec::new());
    }
    let Some(list) = node["status"]["conditions"].as_array_mut() else { return };
    for condition in new {
        let mut condition = condition.clone();
        if condition.get("lastTransitionTime").is_none() {
            condition["lastTransitionTime"] = crate::store::whole_second(now).to_string().into();
        }
        match list.iter_mut().find(|it| it["type"] == condition["type"]) {
            Some(present) => *present = condition,
            None => list.push(condition),
        }
    }
}

/// The state of a claim as the summary prints it: the last condition that is True, or `Terminating`.
pub fn claim_state(claim: &NodeClaim) -> &'static str {
    if claim.metadata.deleting() {
        return "Terminating";
    }
    [NodeClaim::INITIALIZED, NodeClaim::REGISTERED, NodeClaim::LAUNCHED]
        .into_iter()
        .find(|it| claim.is_true(it))
        .unwrap_or("")
}

/// The capacity type of a claim, by its label.
pub fn claim_label<'a>(claim: &'a NodeClaim, key: &str) -> &'a str {
    claim.metadata.label(key).unwrap_or_default()
}

/// The labels that the summary reads.
pub const SUMMARY_LABELS: [&str; 3] = [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE];

/// Whether a class only lists its subnets in another order: they go by free addresses, which every launch changes,
/// and nothing is under way because of it.
fn only_reorders(change: &ObjectChange) -> bool {
    let Some((Some(old), Some(new))) = change.of::<EC2NodeClass>() else { return false };
    let [old, new] = [old, new].map(|it| {
        let mut class = (*it).clone();
        class.metadata.resource_version.clear();
        class.status.subnets.sort_by(|a, b| a.id.cmp(&b.id));
        class
    });
    old == new
}
