//! Makes NodeClaims for the pods that cannot run, and tells which nodes are about to receive pods.
//!
//! What to create is worked out by `spokeshave-scheduling` from the cluster as it is read now; this crate reads, asks, and
//! carries out. One run at a time is guaranteed by the FIFO queue; messages come at least once. A run that was killed after
//! it created claims harms nothing: the next one reads them, and plans with claims that have no instance yet. Names of
//! claims are written down before they are created, so that lists that lag behind cannot hide them.

mod buffers;
mod carry_out;
mod metrics;
mod names;
mod overlays;
pub mod records;
mod shortages;
pub mod statics;
mod waits;
pub mod world;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use spokeshave_lambda::{BatchAnswer, SqsBatch, SqsRecord};
use spokeshave_model::{
    Kind, NodeClaim, NodePool, ObjectKey, Settings,
    core::{Node, Pod},
};
use spokeshave_ports::{
    Clock, Cluster, Concern, Decision, Invocation, Key, Queues, StateTable, Work, chain,
    cluster::KubeEvent,
    stack::observes_only,
    wakes::{retry_later, wake_once},
};
use spokeshave_scheduling::{
    Batch, Change, ClusterView, ExistingPlacement, Object, Options, Planner, ReservedMode,
    START_UP_HINT, Solution, buffers::is_virtual, defaults::SchedulerConfig, eligibility,
};
use spokeshave_warm::{Cache, Kinds, Noting, Wanted};

use crate::{
    carry_out::create_claims,
    world::{Market, Trouble},
};

/// Pods that have a place and are still waiting are looked at again after this time: a placement can come to nothing
/// when other pods are bound first.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(1);
/// Pods without a place are looked at again after this time, should the change that gives them one have gone unnoticed:
/// a read that lags behind shows no pods, and then nobody tells of them any more.
const LOOK_ANYWAY: SignedDuration = SignedDuration::from_mins(5);
/// Pods that wait for reserved capacity are planned for again after this time. 10 s, as Karpenter's pods come again.
const DEFERRED: SignedDuration = SignedDuration::from_secs(10);
/// How soon to look again for claims that no list shows yet.
const CATCH_UP: SignedDuration = SignedDuration::from_secs(2);
/// Events saying where pods are to go, per run at most. Karpenter's burst is 10.
const NOMINATED_EVENTS: usize = 10;
/// Equal `Nominated` events are dropped for so long. 2 minutes, as in Karpenter 1.x.
const NOMINATED_DEDUPE: SignedDuration = SignedDuration::from_mins(2);
/// Equal `FailedScheduling` events are dropped for so long. 5 minutes, as in Karpenter 1.x.
const FAILED_DEDUPE: SignedDuration = SignedDuration::from_mins(5);
/// Equal `NoCompatibleInstanceTypes` events are dropped for so long. 1 minute, as in Karpenter 1.x.
const FILTERED_DEDUPE: SignedDuration = SignedDuration::from_mins(1);
/// Reads of the whole cluster in one run, until it has caught up.
const READS: usize = 3;
/// After so many runs that did not catch up, an object that is named but never seen counts as gone.
const GIVE_UP: u32 = 6;
/// A plan takes this long at most; what is placed by then is carried out, the rest comes next. 1 minute, as in Karpenter
/// 1.x; and half of what Lambda leaves.
const SOLVE_LIMIT: SignedDuration = SignedDuration::from_mins(1);
/// Plans made again in one run because disruption began in between.
const ATTEMPTS: usize = 3;

/// Handles a batch of the provision queue: one plan for all of it.
pub async fn handle(
    batch: &SqsBatch,
    cluster: &impl Cluster,
    state: &impl StateTable,
    queues: &impl Queues,
    clock: &impl Clock,
    cx: &Invocation<'_>,
) -> BatchAnswer {
    let mut answer = BatchAnswer::done();
    let valid: Vec<(&SqsRecord, Work)> = batch.works(cx).map(|it| (it.record, it.work)).collect();
    if valid.is_empty() {
        return answer;
    }
    let failures = valid.iter().map(|it| it.1.failures()).max();
    let seed: Vec<&str> = valid.iter().map(|it| it.0.message_id.as_str()).collect();
    let mut cache = Cache::take(Concern::Provision);
    let cluster = Noting::new(cluster);
    let mut ended = run(&valid, &seed, &mut cache, &cluster, state, queues, clock, cx).await;
    cache.leave(Concern::Provision);
    // Whatever came of it: what has been written must be seen before anything else is decided.
    let stored = cluster.store(Concern::Provision, state, cx.now).await;
    ended = ended.and(stored.map_err(Trouble::from));
    match ended {
        Ok(()) => {}
        Err(trouble) => {
            cx.decide(
                Decision::new("retry", "Provisioner/plan", chain(&trouble))
                    .caused_by(&trouble)
                    .as_error(),
            );
            // A record that is given back blocks the group: acknowledge, and come again through the wake queue.
            let key = named("Provisioner", "plan");
            if !retry_later(queues, Concern::Provision, key, failures.unwrap_or(0)).await {
                valid.iter().for_each(|it| answer.retry(it.0));
            }
        }
    }
    answer
}

fn named(kind: &str, name: &str) -> Key {
    Key { kind: kind.to_owned(), name: name.to_owned(), ..Key::default() }
}

async fn run(
    valid: &[(&SqsRecord, Work)],
    seed: &[&str],
    cache: &mut Cache,
    cluster: &impl Cluster,
    state: &impl StateTable,
    queues: &impl Queues,
    clock: &impl Clock,
    cx: &Invocation<'_>,
) -> Result<(), Trouble> {
    if observes_only(state).await? {
        return Ok(());
    }
    let last_run = records::last_run(state).await?;
    if let Some(began) = last_run {
        let stale = |it: &SqsRecord| it.sent_at().is_some_and(|sent| sent < began);
        if valid.iter().all(|it| stale(it.0)) {
            return Ok(());
        }
    }
    let settings = cx.settings;
    let mut options = Options::from_settings(settings);
    options.default_spread = default_spread(settings, cx);
    let gone: BTreeSet<&str> = valid
        .iter()
        .filter(|it| it.1.reason == "NodeClaimGone")
        .flat_map(|it| it.1.keys.iter().map(|it| it.name.as_str()))
        .collect();
    let orders = records::orders(state, &gone, cx.now).await?;
    let depth = valid.iter().map(|it| it.1.depth).max().unwrap_or(0);
    let wanted = Wanted::keys_of(valid.iter().flat_map(|it| &it.1.keys));
    let wanted = wanted.and_written(state).await?;
    let mut reads = 0;
    loop {
        cache.follow(cluster, Kinds::of(settings), &wanted).await?;
        reads += 1;
        // Nothing is planned from a view that is older than what the messages speak of, and what was written last.
        if depth >= GIVE_UP || cache.has_reached(&wanted) {
            break;
        }
        if reads == READS {
            cx.decide(Decision::new(
                "wait",
                "Provisioner/plan",
                "the cluster's view lags behind the messages",
            ));
            let keys = valid.iter().flat_map(|it| it.1.keys.iter().cloned()).collect();
            let work = Work { depth: depth + 1, ..Work::new("CatchUp", keys) };
            queues.send(Concern::Provision, &work, CATCH_UP, "pass").await?;
            return Ok(());
        }
    }
    if !catch_up(&mut cache.view, &orders, cluster).await? {
        let due = cx.now.saturating_add(CATCH_UP).unwrap_or(cx.now);
        wake(state, queues, "Orders", due, depth, cx).await;
        return Ok(());
    }
    let view = &cache.view;
    metrics::of_pods(view, last_run, cx);
    waits::forget_started(view);
    waits::gauges(view, cx);
    let (pending, ignored) = eligibility::pending(view);
    metrics::decided(pending.iter().map(|it| &**it), last_run, cx);
    report_ignored(&ignored, cluster, cx).await;
    let displaced = eligibility::displaced(view, cx.now);
    let scaled = statics::scale(view, seed, cluster, state, queues, cx).await?;
    let placeholders = if settings.gates.capacity_buffer {
        spokeshave_scheduling::buffers::virtual_pods(view)
    } else {
        Vec::new()
    };
    let market = if settings.gates.node_overlay && !view.overlays.is_empty() {
        let market = world::market(view, state, settings, cx.now).await?;
        overlays::write_status(view, &market.overlays, cluster, cx).await;
        Some(market)
    } else {
        None
    };
    if pending.is_empty() && displaced.is_empty() && placeholders.is_empty() {
        if settings.gates.capacity_buffer {
            buffers::write_status(view, None, cluster, cx).await?;
        }
        records::finish_run(state, cx.now).await?;
        if scaled {
            let due = cx.now.saturating_add(DEFERRED).unwrap_or(cx.now);
            wake(state, queues, "Deferred", due, depth, cx).await;
        }
        return Ok(());
    }
    let market = match market {
        Some(market) => market,
        None => world::market(view, state, settings, cx.now).await?,
    };
    let mut batch = Batch {
        displaced: displaced.iter().map(|it| it.key()).collect(),
        pods: pending.iter().chain(&placeholders).chain(&displaced).cloned().collect(),
        without: records::commands(state).await?.begun,
        reserved: ReservedMode::Strict,
        holds: shortages::holds(view, state, cx).await?,
        ..Batch::default()
    };
    metrics::before(view, batch.pods.len(), cx);
    metrics::offerings(&market.pools, cx);
    let mut planning = clock.now();
    let mut solution = plan(view, &market, &options, &batch, clock, cx);
    for _ in 0..ATTEMPTS {
        let real = |it: &&ExistingPlacement| it.pods.iter().any(|it| !is_virtual(it));
        for it in solution.existing.iter().filter(|it| !it.node.is_empty()).filter(real) {
            records::nominate(state, &it.name, settings, cx.now).await?;
        }
        // Disruption writes its command, then reads nominations; we the other way round: one of us sees the other.
        let commanded = records::commands(state).await?.begun;
        let taken = |name: &String| commanded.contains(name) && !batch.without.contains(name);
        if !solution.existing.iter().any(|it| taken(&it.node) || taken(&it.claim)) {
            break;
        }
        cx.decide(Decision::new("replan", "Provisioner/plan", "disruption has taken a node"));
        batch.without = commanded;
        planning = clock.now();
        solution = plan(view, &market, &options, &batch, clock, cx);
    }
    metrics::unfinished(&solution, clock.now().duration_since(planning), cx);
    waits::note(view, &solution, &pending, cx);
    waits::undecided(view, &solution, cx);
    let mut told = Nominations::default();
    report(view, &solution, &pending, &mut told, cluster, cx).await;
    if settings.gates.capacity_buffer {
        buffers::write_status(view, Some(&solution), cluster, cx).await?;
    }
    let unfinished = create_claims(&solution, view, seed, &mut told, cluster, state, queues, cx)
        .await?
        || scaled;
    records::finish_run(state, cx.now).await?;
    wake_later(&solution, &market, unfinished, depth, state, queues, cx).await;
    Ok(())
}

fn plan(
    view: &ClusterView,
    market: &Market,
    options: &Options,
    batch: &Batch,
    clock: &impl Clock,
    cx: &Invocation<'_>,
) -> Solution {
    let began = clock.now();
    let left = cx.deadline.duration_since(cx.now) / 2;
    let limit = if left > SignedDuration::ZERO { SOLVE_LIMIT.min(left) } else { SOLVE_LIMIT };
    let mut planner = Planner::new(view, &market.pools, options, cx.now);
    let prepared = planner.prepare(batch);
    let solving = clock.now();
    let solution = prepared.finish(&|| clock.now().duration_since(began) < limit);
    // Twice under one name, as Karpenter does: the inner solve, and the whole step.
    for since in [solving, began] {
        metrics::duration(clock.now().duration_since(since), cx);
    }
    solution
}

fn default_spread(
    settings: &Settings,
    cx: &Invocation<'_>,
) -> Vec<spokeshave_model::core::TopologySpreadConstraint> {
    if settings.scheduler_config.trim().is_empty() {
        return Vec::new();
    }
    let parsed = serde_saphyr::from_str::<SchedulerConfig>(&settings.scheduler_config)
        .map_err(|error| error.to_string())
        .and_then(|it| it.constraints().map_err(|error| error.to_string()));
    parsed.unwrap_or_else(|error| {
        cx.decide(Decision::new("ignore", "Setting/SCHEDULER_CONFIG", error).as_error());
        Vec::new()
    })
}

/// Makes sure that the view has every claim that the last run ordered. `false`: one is nowhere to be seen, and may yet
/// appear.
async fn catch_up(
    view: &mut ClusterView,
    orders: &[String],
    cluster: &impl Cluster,
) -> Result<bool, Trouble> {
    for name in orders {
        let key = ObjectKey::cluster(name);
        if view.claims.contains_key(&key) {
            continue;
        }
        match cluster.get::<NodeClaim>(&key).await? {
            Some(claim) => view.apply(Change::Put(Object::from(claim))),
            None => return Ok(false),
        }
    }
    Ok(true)
}

async fn report_ignored(
    ignored: &[eligibility::Ignored],
    cluster: &impl Cluster,
    cx: &Invocation<'_>,
) {
    cx.sample("karpenter_scheduler_ignored_pods_count", ignored.len() as f64, "Count", &[]);
    for it in ignored {
        let reason = format!("ignoring pod, {}", it.reason);
        cx.decide(Decision::new("ignore", it.pod.reference(), reason));
        if it.event {
            failed(&it.pod, &it.reason, cluster).await;
        }
    }
}

async fn failed(pod: &Pod, reason: &str, cluster: &impl Cluster) {
    let text = format!("Failed to schedule pod, {reason}");
    cluster.publish(KubeEvent::on(pod, true, "FailedScheduling", text), FAILED_DEDUPE).await;
}

/// How many pods a run has told where they are to go.
#[derive(Clone, Copy, Debug, Default)]
struct Nominations(usize);

impl Nominations {
    /// The event on the pod, as long as there were not too many in this run.
    async fn tell(&mut self, pod: &Pod, target: &str, cluster: &impl Cluster) {
        if self.0 < NOMINATED_EVENTS {
            let text = format!("Pod should schedule on: {target}");
            let event = KubeEvent::on(pod, false, "Nominated", text);
            cluster.publish(event, NOMINATED_DEDUPE).await;
            self.0 += 1;
        }
    }
}

/// Decision lines, events and metrics of a plan. New claims are reported when they have been created.
async fn report(
    view: &ClusterView,
    solution: &Solution,
    pending: &[std::sync::Arc<Pod>],
    told: &mut Nominations,
    cluster: &impl Cluster,
    cx: &Invocation<'_>,
) {
    for (pool, why) in &solution.skipped_pools {
        let spokeshave_scheduling::Skipped::NoCompatibleInstanceTypes { min_values } = why else {
            let spokeshave_scheduling::Skipped::NoCatalog(problem) = why else { continue };
            cx.decide(Decision::new("skip", format!("NodePool/{pool}"), problem.clone()));
            continue;
        };
        let suffix = if *min_values { " due to minValues incompatibility" } else { "" };
        let text = format!(
            "NodePool requirements filtered out all compatible available instance types{suffix}"
        );
        cx.decide(Decision::new("skip", format!("NodePool/{pool}"), text.clone()));
        if let Some(pool) = view.nodepools.get(&ObjectKey::cluster(pool)) {
            let event = KubeEvent::on::<NodePool>(pool, true, "NoCompatibleInstanceTypes", text);
            cluster.publish(event, FILTERED_DEDUPE).await;
        }
    }
    for it in &solution.existing {
        let kind = if it.node.is_empty() { NodeClaim::KIND } else { "Node" };
        let real = || it.pods.iter().filter(|it| !is_virtual(it));
        let pods: Vec<String> = real().map(|it| it.key().to_string()).collect();
        if pods.is_empty() {
            continue;
        }
        let reason = format!("room for {}", pods.join(", "));
        cx.decide(Decision::new("nominate", format!("{kind}/{}", it.name), reason));
        for pod in real() {
            told.tell(pod, &it.reference(), cluster).await;
        }
    }
    for (key, reason) in &solution.unschedulable {
        cx.decide(Decision::new("unschedulable", format!("Pod/{key}"), reason.text.clone()));
        if let (false, Some(pod)) = (solution.no_pools, view.pod(key)) {
            failed(pod, &reason.text, cluster).await;
        }
    }
    for (key, reason) in &solution.deferred {
        cx.decide(Decision::new("defer", format!("Pod/{key}"), reason.clone()));
    }
    for (node, taint) in &solution.start_up_taints {
        let text = format!(
            "{node} still starts and has the taint {taint}, so pods get another node: {START_UP_HINT}"
        );
        cx.decide(Decision::new("hint", format!("Node/{node}"), text.clone()));
        if let Some(node) = view.nodes.get(&ObjectKey::cluster(node)) {
            let event = KubeEvent::on::<Node>(node, true, "StartupTaintUnknown", text);
            cluster.publish(event, FAILED_DEDUPE).await;
        }
    }
    let is_pending: BTreeSet<ObjectKey> = pending.iter().map(|it| it.key()).collect();
    let n_failed = solution.unschedulable.keys().filter(|it| is_pending.contains(it)).count();
    let label = [("controller", "provisioner")];
    cx.sample("karpenter_scheduler_unschedulable_pods_count", n_failed as f64, "Count", &label);
    for (zone, n) in &solution.pending_by_zone {
        cx.sample(
            "karpenter_scheduler_pending_pods_by_effective_zone_count",
            *n as f64,
            "Count",
            &[("controller", "provisioner"), ("zone", zone)],
        );
    }
}

/// Arranges the next look, where only time has to pass.
async fn wake_later(
    solution: &Solution,
    market: &Market,
    unfinished: bool,
    depth: u32,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) {
    let after = |length: SignedDuration| cx.now.saturating_add(length).unwrap_or(cx.now);
    if !solution.unschedulable.is_empty()
        && let Some(expiry) = market.next_expiry
    {
        wake(state, queues, "Unavailable", expiry, depth, cx).await;
    }
    if !solution.unschedulable.is_empty() {
        wake(state, queues, "Unplaced", after(LOOK_ANYWAY), depth, cx).await;
    }
    if let Some(first) = solution.waiting.values().min() {
        wake(state, queues, "Shortage", *first, depth, cx).await;
    }
    let n_deferred = solution.deferred.len().saturating_sub(solution.waiting.len());
    if n_deferred > 0 || !solution.unreached.is_empty() || unfinished {
        wake(state, queues, "Deferred", after(DEFERRED), depth, cx).await;
    }
    let on_nodes = solution.existing.iter().flat_map(|it| &it.pods);
    let on_claims = solution.new_claims.iter().flat_map(|it| &it.pods);
    if on_nodes.chain(on_claims).any(|it| !is_virtual(it)) {
        wake(state, queues, "Placed", after(LOOK_AGAIN), depth, cx).await;
    }
}

async fn wake(
    state: &impl StateTable,
    queues: &impl Queues,
    what: &str,
    due: Timestamp,
    depth: u32,
    cx: &Invocation<'_>,
) {
    let key = named("Provisioner", what);
    if let Err(error) = wake_once(state, queues, Concern::Provision, key, due, cx.now, depth).await
    {
        let object = format!("Provisioner/{what}");
        cx.decide(Decision::new("wake", object, chain(&error)).caused_by(&error).as_error());
    }
}

#[cfg(test)]
mod tests;
