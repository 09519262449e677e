//! One pass over the cluster: looks after commands, validates what is due, and finds what is next (lifecycle 13).

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use spokeshave_disruption::{
    Command, Method, Scheduler, SettledCell, VALIDATION_WAIT, View,
    candidates::Survey,
    memory::Memory,
    methods::Stopwatch,
    notices::{Measure, Notice, Subject},
    pass,
    scheduler::template,
    validation,
};
use spokeshave_model::pod_classes::{DoNotDisrupt, do_not_disrupt};
use spokeshave_ports::{
    Clock, Cluster, Concern, Decision, Invocation, Key, Metric, Queues, StateError, StateKey,
    StateTable, When, Work, cluster::KubeEvent, wakes::wake_once,
};

use crate::{
    carry_out::{Executor, Progress, waited},
    record::{Stage, Stored, read_all},
    trouble::Trouble,
    world::{self, Seen, World},
};

/// Partition of the records that this function keeps of its own runs.
const PARTITION: &str = "disruption";
/// A search stops after this long and goes on in the next run.
const SEARCH_SLICE: SignedDuration = SignedDuration::from_secs(20);
/// While something is to be considered, the next pass comes after this long. Source: Karpenter 1.x.
const IDLE: SignedDuration = SignedDuration::from_secs(10);
/// While a claim is being launched, its capacity is not known: look again after this long. Source: Karpenter 1.x.
const INCOMPLETE: SignedDuration = SignedDuration::from_secs(1);
/// Reason of a message that a pass sends to itself when it has not seen what its messages speak of; its depth counts how
/// often in a row.
pub const CATCH_UP: &str = "CatchUp";
/// After so many, an object that is named but never seen counts as gone.
pub const GIVE_UP: u32 = 6;
/// How soon to look again for what no list shows yet.
const CATCH_UP_AFTER: SignedDuration = SignedDuration::from_secs(2);
/// The schedule comes this often anyway.
const SCHEDULE: SignedDuration = SignedDuration::from_mins(1);

/// What the last pass leaves for the next. Lost: a search is repeated.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Carried {
    memory: Memory,
}

/// Stops a search when its slice of time is used up.
#[derive(Clone, Copy)]
struct Slice<'a> {
    clock: &'a dyn Clock,
    started: Timestamp,
}

impl<'a> Slice<'a> {
    fn begin(clock: &'a dyn Clock) -> Self {
        Self { clock, started: clock.now() }
    }

    fn is_left(&self) -> bool {
        self.clock.now().duration_since(self.started) < SEARCH_SLICE
    }
}

impl Stopwatch for Slice<'_> {
    fn is_out_of_time(&mut self) -> bool {
        !self.is_left()
    }
}

fn scheduler<'a>(
    world: &'a World,
    settled: &'a SettledCell,
    keep_going: &'a dyn Fn() -> bool,
) -> Scheduler<'a> {
    Scheduler::new(
        &world.view,
        &world.cache.view,
        &world.pools,
        &world.options,
        world.placeholders.clone(),
        keep_going,
    )
    .settling(settled)
}

/// One pass with everything that it needs.
pub struct Pass<'a, C, S, Q> {
    pub cluster: &'a C,
    pub state: &'a S,
    pub queues: &'a Q,
    pub clock: &'a dyn Clock,
    pub cx: &'a Invocation<'a>,
    /// Wake-ups in a row that led here.
    pub depth: u32,
    /// What the messages speak of.
    pub seen: Seen,
    /// How often the cluster's view has lagged behind these messages.
    pub lagged: u32,
}

impl<C: Cluster, S: StateTable, Q: Queues> Pass<'_, C, S, Q> {
    fn executor(&self) -> Executor<'_, C, S, Q> {
        let (cluster, state, queues, cx) = (self.cluster, self.state, self.queues, self.cx);
        Executor { cluster, state, queues, cx, seen: &self.seen }
    }

    /// Runs it, and sends the message that wakes the next one if there is to be one.
    ///
    /// # Errors
    /// What passes by itself: the pass is to be run again.
    pub async fn run(&self) -> Result<(), Trouble> {
        self.advance_all(None).await?;
        let turn = self.turn().await?;
        let (settings, now) = (self.cx.settings, self.cx.now);
        match world::read(self.cluster, self.state, &self.seen, settings, now).await? {
            Some(world) => {
                let ended = self.look_at(&world, &turn).await;
                world.leave();
                ended
            }
            None => self.catch_up().await,
        }
    }

    /// Comes again when the cluster may be seen as new as the messages say it is.
    async fn catch_up(&self) -> Result<(), Trouble> {
        let why = "the cluster's view lags behind the messages";
        self.cx.decide(Decision::new("wait", "Pass", why));
        let keys = self.seen.keys.clone();
        let work = Work { depth: self.lagged + 1, ..Work::new(CATCH_UP, keys) };
        self.queues.send(Concern::Disruption, &work, CATCH_UP_AFTER, "pass").await?;
        Ok(())
    }

    async fn look_at(&self, world: &World, turn: &Turn) -> Result<(), Trouble> {
        self.executor().clean_up(&world.view).await?;
        let launching = &world.view.launching;
        // Of a claim without a pool nobody knows whose pods it is for.
        if launching.contains("") {
            return self.wake(self.cx.now + INCOMPLETE).await;
        }
        let validating = world.commands.iter().find(|(it, _)| it.stage == Stage::Validating);
        let mut first = Method::Emptiness;
        if let Some((stored, version)) = validating {
            if let Some(due) = stored.due.filter(|due| self.cx.now < *due) {
                return self.wake(due).await;
            }
            if stored.command.pools().iter().any(|it| launching.contains(*it)) {
                return self.wake(self.cx.now + INCOMPLETE).await;
            }
            match self.validate(world, stored, *version, turn).await? {
                Some(next) => first = next,
                None => return self.wake(self.cx.now + INCOMPLETE).await,
            }
        }
        self.search(world, first, turn).await
    }

    /// Takes every running command as far as it goes.
    ///
    /// # Errors
    /// What passes by itself.
    pub async fn advance_all(&self, view: Option<&View>) -> Result<(), Trouble> {
        for (stored, version) in read_all(self.state).await? {
            if !stored.is_running() {
                continue;
            }
            self.advance(stored, version, view).await?;
        }
        Ok(())
    }

    /// Takes a command as far as it goes; one that waits is looked at again by and by.
    async fn advance(
        &self,
        stored: Stored,
        version: u64,
        view: Option<&View>,
    ) -> Result<(), Trouble> {
        let id = stored.id.clone();
        let delay = if waited(&stored, self.cx.now) < SignedDuration::from_mins(2) {
            SignedDuration::from_secs(1)
        } else {
            SignedDuration::from_secs(5)
        };
        match self.executor().advance(stored, version, view).await {
            Ok(Progress::Over) => {
                // Whatever it held back may go on: budgets, and nodes that were not empty.
                self.wake(self.cx.now + INCOMPLETE).await
            }
            Ok(Progress::Waiting) => {
                let key = Key { kind: "Command".into(), name: id, ..Key::default() };
                let due = self.cx.now + delay;
                wake_once(
                    self.state,
                    self.queues,
                    Concern::Disruption,
                    key,
                    due,
                    self.cx.now,
                    self.depth,
                )
                .await?;
                Ok(())
            }
            // Another run has taken it on.
            Err(Trouble::State(StateError::Conflict(_))) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The version of the turn record as it was before anything was read: commands are stored only while it still is.
    async fn turn(&self) -> Result<Turn, Trouble> {
        let key = StateKey::new(PARTITION, "turn");
        let version = self.state.read(&key).await?.map(|it| it.version);
        Ok(Turn { key, version })
    }

    /// Takes the turn: of two passes that read the same cluster only one may start something.
    async fn take(&self, turn: &Turn) -> Result<(), Trouble> {
        let when = turn.version.map_or(When::Absent, When::Version);
        let data = serde_json::json!({"at": self.cx.now});
        self.state.write(&turn.key, data, None, when).await?;
        Ok(())
    }

    /// Looks at a command that is due. `Some` is the method to go on with when it is not right any more.
    async fn validate(
        &self,
        world: &World,
        stored: &Stored,
        version: u64,
        turn: &Turn,
    ) -> Result<Option<Method>, Trouble> {
        let survey = Survey::new(&world.view);
        let slice = Slice::begin(self.clock);
        let keep_going = || slice.is_left();
        let settled = SettledCell::new();
        let mut scheduler = scheduler(world, &settled, &keep_going);
        let verdict = validation::validate(&stored.command, &survey, &mut scheduler);
        self.publish(&world.view, &verdict.notices).await;
        self.measure(&verdict.measures);
        let method = stored.command.method;
        self.observe_duration(method, stored.computed_at);
        if let Some(command) = verdict.command {
            self.take(turn).await?;
            let mut started = Stored { stage: Stage::Marking, ..stored.clone() };
            started.nodes = command.candidates.iter().map(|it| it.node.clone()).collect();
            started.command = command;
            let version = started.write(self.state, When::Version(version), self.cx.now).await?;
            self.advance(started, version, Some(&world.view)).await?;
            return Ok(None);
        }
        self.state.remove(&stored.key(), When::Version(version)).await?;
        let why = match (&verdict.failure, verdict.error) {
            (_, Some(error)) => {
                let nodes = stored.nodes.join(", ");
                self.cx.decide(
                    Decision::new("reject", format!("Command/{}", stored.id), error)
                        .with("nodes", nodes),
                );
                return Ok(None);
            }
            (Some((failure, why)), None) => format!("{}: {why}", failure.as_str()),
            (None, None) => String::new(),
        };
        self.cx.decide(
            Decision::new("reject", format!("Command/{}", stored.id), why)
                .with("method", method.as_str())
                .with("nodes", stored.nodes.join(", ")),
        );
        Ok(match method {
            Method::Emptiness => Some(Method::StaticDrift),
            Method::MultiNodeConsolidation => Some(Method::SingleNodeConsolidation),
            // A command of single-node consolidation that fails ends the pass.
            _ => None,
        })
    }

    async fn search(&self, world: &World, first: Method, turn: &Turn) -> Result<(), Trouble> {
        let key = StateKey::new(PARTITION, "memory");
        let record = self.state.read(&key).await?;
        let carried: Carried = record
            .as_ref()
            .and_then(|it| serde_json::from_value(it.data.clone()).ok())
            .unwrap_or_default();
        let survey = Survey::new(&world.view);
        let slice = Slice::begin(self.clock);
        let keep_going = || slice.is_left();
        let settled = SettledCell::new();
        let mut scheduler = scheduler(world, &settled, &keep_going);
        let outcome = pass::run(
            &survey,
            first,
            &carried.memory,
            &|pool| template(&world.view, pool),
            &mut scheduler,
            &mut { slice },
        );
        self.publish(&world.view, &outcome.notices).await;
        self.measure(&outcome.measures);
        if outcome.memory != carried.memory {
            let data = serde_json::to_value(Carried { memory: outcome.memory.clone() })
                .unwrap_or_default();
            self.state.write(&key, data, None, When::Always).await?;
        }
        if let Some(error) = outcome.error {
            return Err(Trouble::Failed(error));
        }
        if let (Some(method), false) = (outcome.method, outcome.commands.is_empty()) {
            return self.store(world, method, outcome.commands, turn).await;
        }
        if outcome.unfinished {
            return self.wake(self.cx.now + INCOMPLETE).await;
        }
        if !world.view.launching.is_empty() {
            let soon = if outcome.had_candidates { IDLE } else { INCOMPLETE };
            return self.wake(self.cx.now + soon).await;
        }
        match self.next_due(&world.view, outcome.constrained) {
            Some(due) => self.wake(due).await,
            None => Ok(()),
        }
    }

    /// Stores what was found; what needs no second look is started at once.
    async fn store(
        &self,
        world: &World,
        method: Method,
        commands: Vec<Command>,
        turn: &Turn,
    ) -> Result<(), Trouble> {
        self.take(turn).await?;
        let now = self.cx.now;
        if method.is_validated() {
            let due = now + VALIDATION_WAIT;
            for command in commands {
                let mut stored = Stored::new(command, Stage::Validating, now);
                stored.due = Some(due);
                stored.write(self.state, When::Absent, now).await?;
                self.cx.decide(
                    Decision::new(
                        "consider",
                        format!("Command/{}", stored.id),
                        format!("{}: {}", method.reason(), stored.nodes.join(", ")),
                    )
                    .with("method", method.as_str())
                    .with("saving_per_hour", stored.command.saving),
                );
            }
            return self.wake(due).await;
        }
        self.observe_duration(method, now);
        let mut stored = Vec::new();
        for command in commands {
            let it = Stored::new(command, Stage::Marking, now);
            let version = it.write(self.state, When::Absent, now).await?;
            stored.push((it, version));
        }
        for (it, version) in stored {
            self.advance(it, version, Some(&world.view)).await?;
        }
        self.wake(now + INCOMPLETE).await
    }

    /// When something changes by itself that this pass had to wait for, before the schedule comes anyway.
    fn next_due(&self, view: &View, constrained: bool) -> Option<Timestamp> {
        let now = self.cx.now;
        let disrupting = view.nodes.iter().any(spokeshave_disruption::StateNode::is_disrupting);
        let nominations = view.nodes.iter().filter_map(|it| it.nominated_until);
        let protections = view
            .nodes
            .iter()
            .filter(|it| it.claim.is_some())
            .flat_map(|it| it.pods.iter())
            .filter_map(|pod| match do_not_disrupt(pod, now) {
                DoNotDisrupt::Until(end) => Some(end),
                _ => None,
            });
        let held = (constrained && disrupting).then(|| now + IDLE);
        // What a budget holds back may start when its window closes.
        let closing = view
            .pools
            .values()
            .filter(|_| constrained)
            .flat_map(|it| it.nodepool.budgets())
            .filter_map(|it| it.windows(now, now + SCHEDULE).ok())
            .flatten()
            .map(|it| it.to);
        nominations
            .chain(protections)
            .chain(held)
            .chain(closing)
            .chain(view.drift_held.values().copied())
            .filter(|due| *due > now && *due < now + SCHEDULE)
            .min()
    }

    /// The next pass is to come at `due`.
    async fn wake(&self, due: Timestamp) -> Result<(), Trouble> {
        let key = Key { kind: "Pass".into(), name: "pass".into(), ..Key::default() };
        wake_once(self.state, self.queues, Concern::Disruption, key, due, self.cx.now, self.depth)
            .await?;
        Ok(())
    }

    /// Arms the pass again after a failure, later and later.
    ///
    /// # Errors
    /// When not even that is possible.
    pub async fn try_again(&self, trouble: &Trouble) -> Result<(), Trouble> {
        let seconds = if trouble.is_conflict() { 1 } else { 1 << self.depth.min(6) };
        let work = Work { depth: self.depth + 1, ..Work::new("Retry", Vec::new()) };
        self.queues
            .send(Concern::Disruption, &work, SignedDuration::from_secs(seconds), "")
            .await?;
        Ok(())
    }

    fn observe_duration(&self, method: Method, since: Timestamp) {
        self.cx.sample(
            "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
            self.cx.now.duration_since(since).as_secs_f64(),
            "Seconds",
            &[
                ("reason", method.reason().lower()),
                ("consolidation_type", method.consolidation_type()),
            ],
        );
    }

    fn measure(&self, measures: &[Measure]) {
        for it in measures {
            self.cx.measure(Metric {
                name: it.name,
                value: it.value,
                unit: it.unit,
                labels: it.labels.clone(),
            });
        }
    }

    /// Publishes events, each once, on every object they are about.
    async fn publish(&self, view: &View, notices: &[Notice]) {
        let mut done = BTreeSet::new();
        for notice in notices {
            let mut events = Vec::new();
            let text = || notice.message.clone();
            match &notice.subject {
                Subject::Node(at) => {
                    let Some(node) = view.nodes.get(*at) else { continue };
                    if let Some(it) = &node.node {
                        events.push(KubeEvent::on(&**it, notice.warning, notice.reason, text()));
                    }
                    if let Some(it) = &node.claim {
                        events.push(KubeEvent::on(&**it, notice.warning, notice.reason, text()));
                    }
                }
                Subject::NodePool(name) => {
                    let Some(pool) = view.pools.get(name) else { continue };
                    events.push(KubeEvent::on(
                        &*pool.nodepool,
                        notice.warning,
                        notice.reason,
                        text(),
                    ));
                }
                Subject::Pod(pod) => {
                    events.push(KubeEvent::on(&**pod, notice.warning, notice.reason, text()));
                }
            }
            for event in events {
                if done.insert(event.clone()) {
                    self.cluster.publish(event, notice.dedupe).await;
                }
            }
        }
    }
}

/// The turn record as it was read.
struct Turn {
    key: StateKey,
    version: Option<u64>,
}
