//! The bridge at work: watches in, events out, one at a time under a Lease.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use spokeshave_ports::{
    Bus, Clock, Cluster, ClusterError, Decision, Invocation, StateKey, StateTable, Watch, When,
    Work,
    queues::BusEvent,
    stack,
    watch::{BOUND_PODS, Positions, WatchEvent},
};

use crate::{Bridge, lease};

/// Entries per PutEvents call at most. The limit of EventBridge.
const ENTRIES_PER_PUT: usize = 10;
/// After a refusal of the bus, so long until the next try.
const PUT_AGAIN_AFTER: SignedDuration = SignedDuration::from_millis(500);
/// The successor is started so long before our time is up: it needs a cold start and its first answers.
const HAND_OVER_BEFORE: SignedDuration = SignedDuration::from_secs(20);
/// The last of our time, for handing on what is left.
const RESERVE: SignedDuration = SignedDuration::from_secs(3);
/// A poll is over when nothing has come for so long.
const QUIET: SignedDuration = SignedDuration::from_secs(2);
/// The longest wait for one event, so that renewals and windows are not missed by much.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(5);
/// Between two calls of the bus at least, so that what changes together goes out together.
const PUT_EVERY: SignedDuration = SignedDuration::from_millis(100);
/// So many events at most are taken in at a time.
const AT_A_TIME: usize = 1000;
/// While kinds are being listed nothing is told, for so long at most: what a list brings is one event per concern and
/// hundred keys then.
const LIST_HOLD: SignedDuration = SignedDuration::from_secs(3);
/// So long until a renewal is tried again that the API server did not answer.
const RENEW_AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(1);
/// So many positions at most wait for their keys to be accepted.
const MARKS: usize = 64;

/// So long before its last sign of life the predecessor may have had something to tell that it did not tell any more.
const TOLD_LATE: SignedDuration = SignedDuration::from_secs(30);

/// How the bridge runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Watches until shortly before its time limit, then hands over to itself.
    #[default]
    Watch,
    /// One pass: whatever has changed since the last one.
    Poll,
    /// In a pod of the cluster: without a time limit.
    InCluster,
}

/// What one bridge tells its successor; the payload of the event `HandOver`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HandOver {
    /// Who holds the Lease and will let it go.
    pub from: String,
    pub positions: Positions,
}

impl HandOver {
    /// Reads the event that started the function: a `HandOver` envelope, or a schedule that says nothing.
    pub fn of(event: &serde_json::Value) -> Option<Self> {
        let detail = event.get("detail").unwrap_or(event);
        let work: Work = serde_json::from_value(detail.clone()).ok()?;
        if work.reason != "HandOver" {
            return None;
        }
        serde_json::from_value(work.payload).ok()
    }
}

/// Who runs and how.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Unique to this run: the request id.
    pub holder: String,
    /// The stack, unique in its cluster: its ARN or name.
    pub stack: String,
    pub mode: Mode,
    pub hand_over: Option<HandOver>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Somebody else watches.
    NotNeeded { by: String },
    /// Another autoscaler is at work: nothing was told to anybody.
    ObserveOnly { other: String },
    /// A successor has the Lease.
    HandedOver,
    /// Time was up, or the pass was over; the Lease is free.
    TimeUp,
}

/// Positions that become safe once everything observed before `at` has been accepted.
#[derive(Clone, Debug)]
struct Mark {
    at: Timestamp,
    positions: Positions,
}

struct State {
    bridge: Bridge,
    /// Up to where the watches have come.
    seen: Positions,
    /// Up to where everything has been accepted by the bus.
    safe: Positions,
    marks: Vec<Mark>,
    put_at: Timestamp,
    /// What is being listed, since when.
    listing: BTreeMap<&'static str, Timestamp>,
}

impl State {
    fn observe(&mut self, event: &WatchEvent, now: Timestamp) {
        match event {
            WatchEvent::Listed(change) => {
                self.bridge.observe_listed(change, now);
                // A list of bound pods is long, and tells nobody anything.
                let position = change.position();
                if position != BOUND_PODS {
                    self.listing.entry(position).or_insert(now);
                }
            }
            WatchEvent::Changed(change) => {
                self.bridge.observe(change, now);
                let version = change.resource_version();
                if !version.is_empty() {
                    self.seen.insert(change.position().to_owned(), version.to_owned());
                }
            }
            WatchEvent::Bookmark { kind, resource_version } => {
                self.seen.insert((*kind).to_owned(), resource_version.clone());
                self.listing.remove(kind);
            }
            WatchEvent::Restarted { kind } => {
                self.seen.remove(*kind);
                self.bridge.restarted(kind, now);
            }
        }
    }

    /// When there is something to put on the bus.
    fn due(&self) -> Option<Timestamp> {
        let hold = |since: &Timestamp| since.checked_add(LIST_HOLD).unwrap_or(*since);
        let held_until = self.listing.values().min().map(hold);
        let due = self.bridge.due()?.max(self.put_at);
        Some(held_until.map_or(due, |it| due.max(it)))
    }

    /// Moves `safe` on to what was seen before the oldest change that still waits.
    fn settle(&mut self, now: Timestamp) {
        if self.marks.last().is_none_or(|it| it.positions != self.seen) && self.marks.len() < MARKS
        {
            self.marks.push(Mark { at: now, positions: self.seen.clone() });
        }
        let oldest = self.bridge.oldest();
        let done = self.marks.iter().take_while(|it| oldest.is_none_or(|oldest| it.at < oldest));
        let done = done.count();
        if let Some(mark) = self.marks.drain(..done).next_back() {
            self.safe = mark.positions;
        }
    }

    /// Puts what is ready at `upto` on the bus; what is not accepted waits for the next time.
    async fn flush(
        &mut self,
        upto: Timestamp,
        bus: &impl Bus,
        now: Timestamp,
        cx: &Invocation<'_>,
    ) {
        let since = self.bridge.oldest().unwrap_or(now);
        let events: Vec<BusEvent> = self.bridge.take(upto);
        self.put_at = now.checked_add(PUT_EVERY).unwrap_or(now);
        for chunk in events.chunks(ENTRIES_PER_PUT) {
            let refused = match bus.put(chunk).await {
                Ok(refused) => refused,
                Err(error) => {
                    cx.decide(
                        Decision::new("retry", "Bus/events", error.to_string())
                            .caused_by(&error)
                            .as_error(),
                    );
                    (0..chunk.len()).collect()
                }
            };
            for event in refused.iter().filter_map(|at| chunk.get(*at)) {
                self.bridge.give_back(event, since);
                self.put_at = now.checked_add(PUT_AGAIN_AFTER).unwrap_or(now);
            }
            let accepted = chunk.len() - refused.len().min(chunk.len());
            if accepted > 0 {
                let n = f64::from(u32::try_from(accepted).unwrap_or(u32::MAX));
                cx.sample("spokeshave_bridge_events_total", n, "Count", &[]);
            }
        }
    }
}

/// Runs the bridge until its time is up, somebody else takes over, or it is not needed.
///
/// # Errors
/// When the API server refuses, or cannot be reached: the schedule starts another run within a minute.
pub async fn run(
    start: &Start,
    watch: &impl Watch,
    cluster: &impl Cluster,
    state: &impl StateTable,
    bus: &impl Bus,
    clock: &impl Clock,
    cx: &Invocation<'_>,
) -> Result<Ended, ClusterError> {
    let now = clock.now();
    if let Some(other) = lease::foreign(cluster, &start.stack, now).await? {
        observe_only(state, &other, now, cx).await;
        return Ok(Ended::ObserveOnly { other });
    }
    let was_observing = lift_observe_only(state, cx).await;
    let predecessor = start.hand_over.as_ref().map(|it| it.from.as_str());
    // A successor watches before it takes the Lease, so that there is no gap; both may tell of the same change.
    let mut from = start.hand_over.as_ref().map(|it| it.positions.clone());
    if let Some(from) = &from {
        watch.start(from).await?;
    }
    let (left, renewed) =
        match lease::acquire(cluster, &start.holder, &start.stack, predecessor, now).await? {
            lease::Claim::Held { by } => return Ok(Ended::NotNeeded { by }),
            lease::Claim::Ours(left, renewed) => (left, renewed),
        };
    if from.is_none() {
        // After another autoscaler has been at work, nothing is taken as known.
        let left = if was_observing { Positions::new() } else { left };
        watch.start(&left).await?;
        from = Some(left);
    }
    cx.decide(Decision::new(
        "watch",
        format!("Lease/{}/{}", lease::NAMESPACE, lease::NAME),
        &start.holder,
    ));
    let from = from.unwrap_or_default();
    let mut run = State {
        bridge: Bridge::new(cx.settings),
        seen: from.clone(),
        safe: from,
        marks: Vec::new(),
        put_at: now,
        listing: BTreeMap::new(),
    };
    if let Some(at) = renewed.and_then(|it| it.checked_sub(TOLD_LATE).ok()) {
        run.bridge.resumed(at);
    }
    let ended = watching(start, &mut run, watch, cluster, state, bus, clock, cx).await;
    // Whatever ended it: what is known is told.
    let now = clock.now();
    run.flush(Timestamp::MAX, bus, now, cx).await;
    if run.bridge.oldest().is_some() {
        run.flush(Timestamp::MAX, bus, now, cx).await;
    }
    run.settle(now);
    if !matches!(ended, Ok(Ended::HandedOver)) {
        lease::release(cluster, &start.holder, &run.safe).await?;
    }
    ended
}

async fn watching(
    start: &Start,
    run: &mut State,
    watch: &impl Watch,
    cluster: &impl Cluster,
    state: &impl StateTable,
    bus: &impl Bus,
    clock: &impl Clock,
    cx: &Invocation<'_>,
) -> Result<Ended, ClusterError> {
    let begun = clock.now();
    let limited = start.mode != Mode::InCluster;
    let ends = if limited { cx.deadline - RESERVE } else { Timestamp::MAX };
    let mut hand_over_at = match start.mode {
        Mode::Watch => Some(cx.deadline - HAND_OVER_BEFORE),
        Mode::Poll | Mode::InCluster => None,
    };
    let mut renew_at = begun.checked_add(lease::RENEW_EVERY).unwrap_or(begun);
    let mut last_event = begun;
    loop {
        let now = clock.now();
        if now >= renew_at {
            run.settle(now);
            let wait = match renew(start, run, cluster, now).await {
                Ok(Standing::Ours) => lease::RENEW_EVERY,
                Ok(Standing::Lost) => return Ok(Ended::HandedOver),
                Ok(Standing::Beside(other)) => {
                    observe_only(state, &other, now, cx).await;
                    run.bridge = Bridge::new(cx.settings);
                    return Ok(Ended::ObserveOnly { other });
                }
                // Nobody else can take the Lease either while the API server is away.
                Err(error) if error.is_retryable() => {
                    let object = format!("Lease/{}/{}", lease::NAMESPACE, lease::NAME);
                    cx.decide(Decision::new("retry", object, error.to_string()));
                    RENEW_AGAIN_AFTER
                }
                Err(error) => return Err(error),
            };
            let now = clock.now();
            renew_at = now.checked_add(wait).unwrap_or(now);
        }
        if hand_over_at.is_some_and(|at| at <= now) {
            hand_over_at = None;
            run.settle(now);
            hand_over(start, &run.safe, bus, cx).await;
        }
        if now >= ends {
            return Ok(Ended::TimeUp);
        }
        let poll_over = start.mode == Mode::Poll
            && now.duration_since(last_event) >= QUIET
            && run.due().is_none();
        if poll_over {
            return Ok(Ended::TimeUp);
        }
        let due = run.due();
        if due.is_some_and(|at| at <= now) {
            run.flush(now, bus, now, cx).await;
            continue;
        }
        let until = [Some(renew_at), Some(ends), hand_over_at, due].into_iter().flatten().min();
        let wait = until.map_or(LONGEST_WAIT, |it| it.duration_since(now));
        let mut longest = LONGEST_WAIT;
        if start.mode == Mode::Poll {
            longest = QUIET;
        }
        let mut wait = wait.clamp(SignedDuration::ZERO, longest);
        for _ in 0..AT_A_TIME {
            let Some(event) = watch.next(wait).await? else { break };
            last_event = clock.now();
            run.observe(&event, last_event);
            // Whatever else is there already.
            wait = SignedDuration::ZERO;
        }
    }
}

/// Whose turn it is.
enum Standing {
    Ours,
    /// Somebody else has the Lease.
    Lost,
    /// Another autoscaler is at work.
    Beside(String),
}

async fn renew(
    start: &Start,
    run: &State,
    cluster: &impl Cluster,
    now: Timestamp,
) -> Result<Standing, ClusterError> {
    if !lease::renew(cluster, &start.holder, &run.safe, now).await? {
        return Ok(Standing::Lost);
    }
    let other = lease::foreign(cluster, &start.stack, now).await?;
    Ok(other.map_or(Standing::Ours, Standing::Beside))
}

/// Starts the successor. If that fails, we go on until our time is up, and the schedule starts the next one.
async fn hand_over(start: &Start, safe: &Positions, bus: &impl Bus, cx: &Invocation<'_>) {
    let payload = HandOver { from: start.holder.clone(), positions: safe.clone() };
    let work = Work { payload: json!(payload), ..Work::new("HandOver", Vec::new()) };
    let outcome = bus.put(&[BusEvent { detail_type: "HandOver", work }]).await;
    let decision = |reason: &str| Decision::new("hand-over", "Function/cluster-bridge", reason);
    match outcome {
        Ok(refused) if refused.is_empty() => cx.decide(decision("time limit")),
        Ok(_) => cx.decide(decision("the bus did not accept it").as_error()),
        Err(error) => cx.decide(decision(&error.to_string()).as_error()),
    }
}

/// Puts the whole stack into observe-only.
async fn observe_only(state: &impl StateTable, other: &str, now: Timestamp, cx: &Invocation<'_>) {
    let key: StateKey = stack::observe_only_key();
    let until = now.checked_add(SignedDuration::from_secs(stack::OBSERVE_FOR_SECONDS)).ok();
    let reason = format!("{other} is at work in this cluster");
    cx.decide(Decision::new("observe-only", "Stack/spokeshave", reason).as_error());
    cx.sample("spokeshave_observe_only", 1.0, "Count", &[]);
    if let Err(error) = state.write(&key, json!({"other": other}), until, When::Always).await {
        let decision =
            Decision::new("observe-only", "StateTable/stack", error.to_string()).caused_by(&error);
        cx.decide(decision.as_error());
    }
}

/// Takes the record away; says whether it was there.
async fn lift_observe_only(state: &impl StateTable, cx: &Invocation<'_>) -> bool {
    let key = stack::observe_only_key();
    match state.read(&key).await {
        Ok(None) => false,
        Ok(Some(_)) => {
            cx.decide(Decision::new("act", "Stack/spokeshave", "no other autoscaler is at work"));
            if let Err(error) = state.remove(&key, When::Always).await {
                let decision =
                    Decision::new("act", "StateTable/stack", error.to_string()).caused_by(&error);
                cx.decide(decision.as_error());
            }
            true
        }
        Err(error) => {
            let decision =
                Decision::new("act", "StateTable/stack", error.to_string()).caused_by(&error);
            cx.decide(decision.as_error());
            false
        }
    }
}
