//! What a run came to, as the contract of the command lays it down.

use std::collections::BTreeMap;

use serde::Serialize;
use spokeshave_model::{Kind, NodeClaim, core::Pod, labels};
use spokeshave_ports::Concern;
use spokeshave_sim::{
    engine::claim_state,
    world::{Inner, Line},
};

/// The answer of `spokeshave local`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub settled: bool,
    pub pods: PodCounts,
    pub node_claims: Vec<ClaimLine>,
    /// Dollars per hour of all live instances.
    pub price_per_hour: f64,
    pub pending: Vec<PendingPod>,
    pub timeline: Vec<TimelineLine>,
    /// AWS calls by operation.
    pub calls: BTreeMap<&'static str, u64>,
    pub violations: Vec<ViolationLine>,
    pub interruptions: Vec<InterruptionLine>,
    /// Messages that no handler could finish.
    pub dead_letters: BTreeMap<&'static str, usize>,
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PodCounts {
    pub running: usize,
    pub pending: usize,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimLine {
    pub name: String,
    pub node_pool: String,
    pub node_class: String,
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
    pub price_per_hour: f64,
    /// The last true one of Launched, Registered, Initialized; or Terminating; empty before the launch.
    pub state: &'static str,
    pub instance_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PendingPod {
    pub pod: String,
    pub reason: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct TimelineLine {
    /// Seconds since the start.
    pub t: f64,
    pub concern: Concern,
    pub action: &'static str,
    pub object: String,
    pub reason: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct ViolationLine {
    pub rule: &'static str,
    pub object: String,
    pub detail: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InterruptionLine {
    pub instance_id: String,
    pub node: String,
    pub kind: String,
    /// Seconds since the start.
    pub announced: f64,
    /// Seconds from the announcement until every displaced pod ran again; null while it lasts.
    pub replaced_after: Option<f64>,
}

impl Summary {
    /// Reads the world.
    pub fn of(world: &Inner, settled: bool, seed: u64) -> Self {
        let mut pods = PodCounts::default();
        let mut pending = Vec::new();
        let reasons = reasons(world);
        for pod in world.store.list::<Pod>().filter(|it| !it.is_terminal()) {
            if pod.status.phase == "Running" {
                pods.running += 1;
            } else {
                pods.pending += 1;
                let reason = why_pending(&pod, &reasons);
                pending.push(PendingPod { pod: pod.key().to_string(), reason });
            }
        }
        let node_claims: Vec<ClaimLine> =
            world.store.list::<NodeClaim>().map(|it| claim(world, &it)).collect();
        let live = world.machines.values().filter(|it| it.is_live());
        Self {
            settled,
            pods,
            node_claims,
            price_per_hour: rounded(live.map(|it| it.price).sum()),
            pending,
            timeline: world.timeline.iter().map(|it| timeline(world, it)).collect(),
            calls: world.calls.clone(),
            violations: world
                .violations
                .iter()
                .map(|it| ViolationLine {
                    rule: it.rule,
                    object: it.object.clone(),
                    detail: it.detail.clone(),
                })
                .collect(),
            interruptions: world
                .interruptions
                .iter()
                .map(|it| InterruptionLine {
                    instance_id: it.instance.to_string(),
                    node: it.node.clone(),
                    kind: it.kind.clone(),
                    announced: milliseconds(world.seconds(it.announced)),
                    replaced_after: it
                        .replaced
                        .map(|at| milliseconds(world.seconds(at) - world.seconds(it.announced))),
                })
                .collect(),
            dead_letters: world
                .queues
                .iter()
                .filter(|(_, queue)| !queue.dead.is_empty())
                .map(|(concern, queue)| (concern.as_str(), queue.dead.len()))
                .collect(),
            seed,
        }
    }
}

/// As `plan` prints prices: a catalog's own to the last digit, sums without the noise of binary fractions.
fn rounded(price: f64) -> f64 {
    crate::commands::plan_disruption::round(price)
}

/// The clock's steps are milliseconds.
fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

fn claim(world: &Inner, it: &NodeClaim) -> ClaimLine {
    let id = it.status.provider_id.instance_id();
    let machine = id.as_ref().and_then(|id| world.machines.get(id));
    let label = |key: &str| it.metadata.label(key).unwrap_or_default().to_owned();
    ClaimLine {
        name: it.metadata.name.clone(),
        node_pool: it.nodepool().unwrap_or_default().to_owned(),
        node_class: it.spec.node_class_ref.name.clone(),
        instance_type: label(labels::INSTANCE_TYPE),
        zone: label(labels::ZONE),
        capacity_type: label(labels::CAPACITY_TYPE),
        price_per_hour: machine.map_or(0.0, |it| rounded(it.price)),
        state: claim_state(it),
        instance_id: id.map(|it| it.to_string()).unwrap_or_default(),
    }
}

/// One line of the timeline.
pub fn timeline(world: &Inner, line: &Line) -> TimelineLine {
    TimelineLine {
        t: milliseconds(world.seconds(line.at)),
        concern: line.concern,
        action: line.decision.action,
        object: line.decision.object.clone(),
        reason: line.decision.reason.clone(),
    }
}

/// What provisioning last did about a pod.
enum Word<'a> {
    /// It said why there is no place.
    Refused(&'a str),
    /// It found or made a place: the object that has it.
    Placed(&'a str),
}

/// The last thing that provisioning said of each pod, by its key.
fn reasons(world: &Inner) -> BTreeMap<&str, Word<'_>> {
    let mut said = BTreeMap::new();
    for line in world.timeline.iter().filter(|it| it.concern == Concern::Provision) {
        let it = &line.decision;
        if let Some(key) = it.object.strip_prefix("Pod/") {
            said.insert(key, Word::Refused(it.reason.as_str()));
        } else if matches!(it.action, "create" | "nominate") {
            // `2 pod(s): ns/a, ns/b`, `room for ns/a, ns/b`.
            for word in it.reason.split_whitespace() {
                let key = word.trim_end_matches(',');
                if key.contains('/') {
                    said.insert(key, Word::Placed(it.object.as_str()));
                }
            }
        }
    }
    said
}

fn why_pending(pod: &Pod, said: &BTreeMap<&str, Word<'_>>) -> String {
    if pod.is_bound() {
        return format!("starting on node {}", pod.spec.node_name);
    }
    if !pod.spec.scheduling_gates.is_empty() {
        return "scheduling is blocked due to non-empty scheduling gates".to_owned();
    }
    if pod.spec.scheduler_name != "default-scheduler" {
        return format!("left to the scheduler {:?}", pod.spec.scheduler_name);
    }
    let scheduler = pod
        .condition("PodScheduled")
        .map_or("not yet seen by the scheduler", |it| it.message.as_str());
    match said.get(pod.key().to_string().as_str()) {
        Some(Word::Refused(reason)) => (*reason).to_owned(),
        Some(Word::Placed(object)) => format!("meant for {object}: {scheduler}"),
        None => scheduler.to_owned(),
    }
}
