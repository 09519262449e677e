//! Everything there is in the simulated world at one moment.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use spokeshave_lambda::wiring;
use spokeshave_model::{InstanceId, ObjectKey, Settings, Uid};
use spokeshave_ports::{
    Concern, Decision, Work,
    aws::InstanceProfile,
    cluster::KubeEvent,
    ec2::{FleetAnswer, FleetRequest, Image, Instance, LaunchTemplate, LaunchTemplateData},
    queues::BusEvent,
    state::{Record, StateKey},
};

use crate::{
    faults::{Fault, Faults},
    market::{Market, ShapeOf},
    queue::{Message, Queue},
    random::Random,
    store::Store,
};

/// What will happen at some time.
#[derive(Clone, Debug)]
pub enum Happening {
    /// A port call of an invocation is over.
    Resume(u64),
    /// The function's time limit.
    TimeLimit(u64),
    /// Lambda looks at a queue.
    Poll(Concern),
    /// Kubernetes' own controllers look at what changed.
    Controllers,
    PodRunning(ObjectKey, Uid),
    PodGone(ObjectKey, Uid),
    JobPodDone(ObjectKey, Uid),
    InstanceRunning(InstanceId),
    NodeJoins(InstanceId),
    NodeReady(String, Uid),
    /// Agents of DaemonSets have made their nodes fit for pods.
    Agents,
    InstanceTerminated(InstanceId),
    /// An instance that was stopping has stopped.
    InstanceStopped(InstanceId),
    /// The node of a stopped instance has not been heard of for too long.
    NodeUnreachable(InstanceId),
    /// EC2 takes a spot instance back.
    Reclaim(InstanceId),
    NodeLost(String, Uid),
    VolumeDetached(String),
    /// A schedule fires.
    Schedule(Concern, SignedDuration),
    Sweep,
    /// The bridge's batch window closes.
    Bridge,
    Bus(Vec<BusEvent>),
    /// Something from outside, by its position in [`Inner::script`].
    Script(usize),
}

/// Something from outside.
#[derive(Clone, Debug)]
pub enum Input {
    /// Objects, applied as `kubectl apply` does.
    Apply(Vec<Value>),
    /// Message bodies for the interruption queue.
    Events(Vec<String>),
}

struct Entry {
    at: Timestamp,
    order: u64,
    what: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// One line of the timeline.
#[derive(Clone, Debug)]
pub struct Line {
    pub at: Timestamp,
    pub concern: Concern,
    pub decision: Decision,
}

/// A simulated instance.
#[derive(Clone, Debug)]
pub struct Machine {
    pub instance: Instance,
    pub launched: Timestamp,
    pub template: LaunchTemplateData,
    pub price: f64,
    /// EC2 has announced that it takes it back.
    pub interrupted: Option<Timestamp>,
    pub terminated: Option<Timestamp>,
}

impl Machine {
    /// Pending or running.
    pub fn is_live(&self) -> bool {
        matches!(self.instance.state.as_str(), "pending" | "running")
    }

    /// Whether somebody still has to terminate it.
    pub fn remains(&self) -> bool {
        !matches!(self.instance.state.as_str(), "shutting-down" | "terminated")
    }
}

/// A rule was broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub rule: &'static str,
    pub object: String,
    pub detail: String,
}

/// The world's state. Everything in it is reached through [`crate::World`] and [`crate::Ports`].
pub struct Inner {
    pub now: Timestamp,
    pub start: Timestamp,
    pub random: Random,
    pub faults: Faults,
    pub settings: Rc<Settings>,
    pub store: Store,
    /// No other world of this process has the same: what is kept of one means nothing in another.
    pub history: u64,
    pub market: Market,
    pub shape_of: ShapeOf,
    agenda: BinaryHeap<Reverse<Entry>>,
    order: u64,
    /// Invocations that died and must not go on.
    pub dead: BTreeSet<u64>,
    pub queues: BTreeMap<Concern, Queue>,
    polls: BTreeMap<Concern, Timestamp>,
    messages: u64,
    pub table: BTreeMap<StateKey, Record>,
    pub machines: BTreeMap<InstanceId, Machine>,
    pub fleets: BTreeMap<String, (FleetRequest, FleetAnswer)>,
    pub templates: BTreeMap<String, (LaunchTemplate, LaunchTemplateData)>,
    pub images: BTreeMap<String, Image>,
    pub profiles: BTreeMap<String, InstanceProfile>,
    pub calls: BTreeMap<&'static str, u64>,
    pub timeline: Vec<Line>,
    pub kube_events: BTreeMap<KubeEvent, Timestamp>,
    pub violations: BTreeSet<Violation>,
    /// An input at a time that could not be used, and why: the first one.
    pub unusable: Option<String>,
    pub script: Vec<Input>,
    pub script_left: usize,
    /// The last time that something changed that a person would call a change.
    pub last_mutation: Timestamp,
    mutations_seen: u64,
    pub ec2_mutations: u64,
    pub controllers_due: bool,
    pub bridge_due: Option<Timestamp>,
    /// Pods that evictions of faults refuse until then.
    pub stuck_pods: BTreeMap<ObjectKey, Timestamp>,
    pub serial: u64,
    /// Price, nodes, running and pending pods over time, for charts.
    pub samples: Vec<Sample>,
    /// From the announcement of an interruption to the end of its replacement.
    pub interruptions: Vec<Interruption>,
    /// In-flight creates of workload controllers are named by this.
    pub pod_serial: u64,
    pub pods_dirty: BTreeSet<ObjectKey>,
    pub controllers: crate::kubernetes::Controllers,
}

/// The state of the cluster in figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub at: Timestamp,
    pub nodes: usize,
    pub running: usize,
    pub pending: usize,
    /// Dollars per hour of all live instances.
    pub price: f64,
    /// Cores that pods ask for, running or not; those of daemons, which come with nodes, are left out.
    pub cpu: f64,
    /// GiB that the same pods ask for.
    pub memory: f64,
}

/// One interrupted instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Interruption {
    pub instance: InstanceId,
    pub node: String,
    pub announced: Timestamp,
    pub kind: String,
    /// When every pod that had to move was running again.
    pub replaced: Option<Timestamp>,
    pub displaced: Vec<(ObjectKey, Uid)>,
}

/// Worlds made in this process.
static WORLDS: AtomicU64 = AtomicU64::new(0);

impl Inner {
    pub fn new(
        seed: u64,
        start: Timestamp,
        settings: Settings,
        market: Market,
        shape_of: ShapeOf,
    ) -> Self {
        let queues =
            wiring::SOURCES.iter().map(|source| (source.concern, Queue::new(*source))).collect();
        Self {
            now: start,
            start,
            random: Random::new(seed),
            faults: Faults::default(),
            settings: Rc::new(settings),
            store: Store::default(),
            history: WORLDS.fetch_add(1, Ordering::Relaxed) + 1,
            market,
            shape_of,
            agenda: BinaryHeap::new(),
            order: 0,
            dead: BTreeSet::new(),
            queues,
            polls: BTreeMap::new(),
            messages: 0,
            table: BTreeMap::new(),
            machines: BTreeMap::new(),
            fleets: BTreeMap::new(),
            templates: BTreeMap::new(),
            images: BTreeMap::new(),
            profiles: BTreeMap::new(),
            calls: BTreeMap::new(),
            timeline: Vec::new(),
            kube_events: BTreeMap::new(),
            violations: BTreeSet::new(),
            unusable: None,
            script: Vec::new(),
            script_left: 0,
            last_mutation: start,
            mutations_seen: 0,
            ec2_mutations: 0,
            controllers_due: false,
            bridge_due: None,
            stuck_pods: BTreeMap::new(),
            serial: 0,
            samples: Vec::new(),
            interruptions: Vec::new(),
            pod_serial: 0,
            pods_dirty: BTreeSet::new(),
            controllers: crate::kubernetes::Controllers::default(),
        }
    }

    /// Puts something on the agenda.
    pub fn at(&mut self, at: Timestamp, what: Happening) {
        self.order += 1;
        self.agenda.push(Reverse(Entry { at: at.max(self.now), order: self.order, what }));
    }

    /// Puts something on the agenda after some milliseconds.
    pub fn after(&mut self, millis: u64, what: Happening) {
        self.at(self.now + SignedDuration::from_millis(millis as i64), what);
    }

    /// The time of the next happening.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.agenda.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next happening and moves the clock to it.
    pub fn take_next(&mut self) -> Option<Happening> {
        let Reverse(entry) = self.agenda.pop()?;
        self.now = entry.at;
        if let Happening::Poll(concern) = &entry.what
            && self.polls.get(concern) == Some(&entry.at)
        {
            self.polls.remove(concern);
        }
        Some(entry.what)
    }

    /// Whether a fault of this kind happens now.
    pub fn strikes(&mut self, fault: Fault) -> bool {
        let probability = self.faults.probability(fault, self.now);
        self.random.chance(probability)
    }

    /// Sends a body to a queue.
    pub fn send(
        &mut self,
        to: Concern,
        body: &str,
        delay: SignedDuration,
        group: &str,
        periodic: bool,
    ) {
        let copies = if !to.is_fifo() && self.strikes(Fault::Duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            // A FIFO queue takes no delayed message: it waits in the wake queue and is sent anew when it is due.
            let sent = if to.is_fifo() { self.now + delay } else { self.now };
            let mut delay = delay;
            if self.strikes(Fault::Late) {
                delay += SignedDuration::from_secs(self.random.between(20, 180) as i64);
            }
            self.messages += 1;
            let message = Message {
                id: self.messages,
                body: body.to_owned(),
                group: if group.is_empty() { "pass".into() } else { group.into() },
                sent,
                visible: self.now + delay,
                receives: 0,
                periodic,
            };
            let Some(queue) = self.queues.get_mut(&to) else { return };
            let visible = message.visible;
            queue.add(message);
            let window = SignedDuration::from_millis(20)
                + SignedDuration::from_secs(queue.source.window as i64);
            self.poll_at(to, visible + window);
        }
    }

    /// Makes sure that the queue is looked at by then.
    pub fn poll_at(&mut self, concern: Concern, at: Timestamp) {
        let at = at.max(self.now);
        if self.polls.get(&concern).is_none_or(|planned| at < *planned) {
            self.polls.insert(concern, at);
            self.at(at, Happening::Poll(concern));
        }
    }

    /// Sends work to a queue.
    pub fn send_work(&mut self, to: Concern, work: &Work, periodic: bool) {
        let body = serde_json::to_string(work).unwrap_or_default();
        self.send(to, &body, SignedDuration::ZERO, "pass", periodic);
    }

    /// Notes whether anything changed since the last call.
    pub fn note_mutations(&mut self) {
        let seen = self.store.mutations + self.ec2_mutations;
        if seen != self.mutations_seen {
            self.mutations_seen = seen;
            self.last_mutation = self.now;
        }
    }

    /// Records a broken rule.
    pub fn violation(
        &mut self,
        rule: &'static str,
        object: impl Into<String>,
        detail: impl Into<String>,
    ) {
        self.violations.insert(Violation { rule, object: object.into(), detail: detail.into() });
    }

    /// Seconds since the start.
    pub fn seconds(&self, at: Timestamp) -> f64 {
        (at - self.start).total(jiff::Unit::Second).unwrap_or(0.0)
    }

    /// The next serial number, for ids.
    pub fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}
