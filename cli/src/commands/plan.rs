//! `spokeshave plan`: what one provisioning pass would do.

mod text;
pub mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

use jiff::Timestamp;
use serde::Serialize;
use spokeshave_model::{
    CapacityType, Kind, NodeSelectorRequirement, ObjectKey, Resources, Settings, Taint, core::Pod,
};
use spokeshave_scheduling::{
    Batch, PlannedClaim, Planner, ReservedMode, START_UP_HINT, Solution, eligibility, requests,
};

use super::plan_disruption::{self, Disruption};
use crate::{ExitStatus, Failure, Output, input, settings::SettingsArgs};
use world::{Source, World};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  spokeshave plan --cluster cluster.yaml --catalog catalog.json
  kubectl get nodes,pods,nodepools,nodeclaims,ec2nodeclasses,daemonsets -A -o json | spokeshave plan --cluster -
  spokeshave plan --cluster cluster/ --pods new-pods.yaml --explain default/web-0 --output json

Plans for the pods of --cluster that need a place, and for all pods of --pods. Nothing is touched.")]
pub struct Args {
    /// Objects of the cluster, as kubectl prints them; directories and - as well
    #[arg(long, num_args = 1.., required = true, value_name = "PATH")]
    pub cluster: Vec<PathBuf>,

    /// Pods to place whatever their conditions say
    #[arg(long, num_args = 1.., value_name = "PATH")]
    pub pods: Vec<PathBuf>,

    /// What can be bought, in the form that `catalog export` writes; else the built-in facts of --region
    #[arg(long, value_name = "FILE")]
    pub catalog: Option<PathBuf>,

    /// Region of the built-in facts [default: us-east-1]
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,

    /// The time to plan at (RFC 3339) instead of the present
    #[arg(long, value_name = "TIME")]
    pub now: Option<Timestamp>,

    /// Tells the way of this pod step by step
    #[arg(long, value_name = "NS/POD")]
    pub explain: Option<String>,

    /// Adds one disruption pass
    #[arg(long)]
    pub disruption: bool,

    /// Respect or Ignore preferences of pods [default: Respect]
    #[arg(long, value_name = "POLICY")]
    pub preference_policy: Option<String>,

    /// Strict or BestEffort [default: Strict]
    #[arg(long, value_name = "POLICY")]
    pub min_values_policy: Option<String>,

    /// Name of the cluster
    #[arg(long, value_name = "NAME", default_value = "spokeshave")]
    pub cluster_name: String,

    #[command(flatten)]
    pub settings: SettingsArgs,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    new_node_claims: Vec<ClaimRow>,
    existing_nodes: Vec<NodeRow>,
    unschedulable: Vec<UnschedulableRow>,
    deferred: Vec<PodRow>,
    ignored: Vec<PodRow>,
    price_per_hour: f64,
    solve_millis: f64,
    setup_millis: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    explain: Option<Explanation>,
}

/// One object: the plan, and with `--disruption` what disruption would do.
#[derive(Debug, Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    answer: &'a Answer,
    #[serde(flatten)]
    disruption: Option<&'a Disruption>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClaimRow {
    node_pool: String,
    requirements: Vec<RequirementRow>,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    requests: Resources,
    instance_types: Vec<String>,
    pods: Vec<String>,
    cheapest: Option<CheapestRow>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequirementRow {
    key: String,
    operator: spokeshave_model::Operator,
    values: Vec<String>,
    min_values: Option<i32>,
}

impl From<NodeSelectorRequirement> for RequirementRow {
    fn from(it: NodeSelectorRequirement) -> Self {
        Self { key: it.key, operator: it.operator, values: it.values, min_values: it.min_values }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheapestRow {
    instance_type: String,
    zone: String,
    capacity_type: CapacityType,
    price_per_hour: Option<f64>,
}

#[derive(Debug, Serialize)]
struct NodeRow {
    node: String,
    pods: Vec<String>,
}

#[derive(Debug, Serialize)]
struct UnschedulableRow {
    pod: String,
    reason: String,
    pools: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct PodRow {
    pod: String,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Explanation {
    pod: String,
    steps: Vec<String>,
}

/// Prints what one provisioning pass would do.
///
/// # Errors
/// When the call, a file, a setting or the catalog is unusable.
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    let settings = settings(args)?;
    let now = args.now.unwrap_or_else(Timestamp::now);
    let progress = Progress::new(out);
    progress.say("reading the cluster");
    let mut cluster = input::load_cluster(&args.cluster)?;
    let mut more = input::load_cluster(&args.pods)?;
    for (part, paths) in [(&cluster, &args.cluster), (&more, &args.pods)] {
        if let Some(twice) = part.duplicate() {
            return Err(twice.failure(paths));
        }
    }
    let wanted: Vec<Arc<Pod>> = std::mem::take(&mut more.pods).iter().map(to_place).collect();
    cluster.append(more);
    let given: BTreeSet<ObjectKey> = wanted.iter().map(|it| it.key()).collect();
    cluster.pods.retain(|it| !given.contains(&key_of(it)));
    if let Some(twice) = cluster.duplicate() {
        let paths: Vec<PathBuf> = args.cluster.iter().chain(&args.pods).cloned().collect();
        return Err(twice.failure(&paths));
    }
    let explain = args.explain.as_deref().map(pod_key).transpose()?;
    let source = Source::read(args.catalog.as_deref(), &settings.region)?;
    progress.say("building the view");
    let world = World::new(&cluster, &source, settings, now)?;
    let n_skipped = cluster.skipped;
    drop(cluster);
    for claim in world.view.unlaunched() {
        out.warn(&format!(
            "warning: {} has no provider id yet: planned with as ordered",
            claim.reference()
        ));
    }
    for (overlay, why) in &world.refused_overlays {
        out.warn(&format!("warning: NodeOverlay/{overlay} does not count: {why}"));
    }
    progress.say("placing pods");
    let (batch, ignored) = batch(&world, &wanted);
    let waiting: Vec<Arc<Pod>> =
        batch.pods.iter().filter(|it| given.contains(&it.key())).cloned().collect();
    let (answer, solution) = answer(&world, batch, ignored, explain.as_ref());
    if explain.is_some() && answer.explain.is_none() {
        let key = args.explain.as_deref().unwrap_or_default();
        return Err(Failure::new(format!("--explain {key}: the pod is not one of those to place"))
            .fix("name a pod of --pods, or one of --cluster that waits for a place"));
    }
    hints(&solution, out);
    let disruption = args.disruption.then(|| {
        progress.say("looking for nodes to disrupt");
        plan_disruption::of(&world, waiting, &solution)
    });
    drop(progress);
    if out.is_json() {
        out.json(&Whole { answer: &answer, disruption: disruption.as_ref() })?;
    } else {
        text::print(&answer, n_skipped, out)?;
        if let Some(disruption) = &disruption {
            plan_disruption::print(disruption, out)?;
        }
    }
    Ok(ExitStatus::Answered)
}

fn settings(args: &Args) -> Result<Settings, Failure> {
    let mut settings = args.settings.settings()?;
    settings.cluster_name.clone_from(&args.cluster_name);
    if let Some(region) = &args.region {
        settings.region.clone_from(region);
    }
    if let Some(policy) = &args.preference_policy {
        settings.set("PREFERENCE_POLICY", policy)?;
    }
    if let Some(policy) = &args.min_values_policy {
        settings.set("MIN_VALUES_POLICY", policy)?;
    }
    Ok(settings)
}

/// The key of a pod; without a namespace it is in `default`.
fn key_of(pod: &Pod) -> ObjectKey {
    let mut key = pod.key();
    if key.namespace.is_empty() {
        "default".clone_into(&mut key.namespace);
    }
    key
}

/// A pod of `--pods` as one that waits for a place.
fn to_place(pod: &Arc<Pod>) -> Arc<Pod> {
    let mut copy = (**pod).clone();
    if copy.metadata.namespace.is_empty() {
        "default".clone_into(&mut copy.metadata.namespace);
    }
    copy.spec.node_name.clear();
    // As the API server does at admission.
    requests::default_requests(&mut copy);
    Arc::new(copy)
}

fn pod_key(text: &str) -> Result<ObjectKey, Failure> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok(ObjectKey::namespaced(namespace, name))
        }
        _ => Err(Failure::new(format!("--explain {text}: not NAMESPACE/NAME"))
            .fix("write for instance --explain default/web-0")),
    }
}

fn names(pods: &[Arc<Pod>]) -> Vec<String> {
    pods.iter().map(|it| it.key().to_string()).collect()
}

/// What people should know about a plan besides the answer.
fn hints(solution: &Solution, out: &Output) {
    for (node, taint) in &solution.start_up_taints {
        out.note(&format!(
            "hint: {node} still starts and has the taint {taint}, so pods get another node: {START_UP_HINT}"
        ));
    }
    let unpriced: BTreeSet<&str> = solution
        .new_claims
        .iter()
        .filter_map(|it| it.cheapest.as_ref())
        .filter(|it| it.price.is_none())
        .map(|it| it.instance_type.as_str())
        .collect();
    for it in unpriced {
        out.warn(&format!("warning: nobody knows the price of {it}: it counts as 0 in the sum"));
    }
}

/// Tells a person at a terminal what is being done, on one line that goes away.
struct Progress<'a> {
    out: &'a Output,
}

impl<'a> Progress<'a> {
    fn new(out: &'a Output) -> Self {
        Self { out }
    }

    fn say(&self, what: &str) {
        self.out.progress(&format!("{what} ..."));
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.out.progress("");
    }
}

/// What a provisioning pass has to place, and the pods it leaves alone. `wanted` are placed whatever they say.
pub(super) fn batch(world: &World, wanted: &[Arc<Pod>]) -> (Batch, Vec<eligibility::Ignored>) {
    let (mut pods, mut ignored) = eligibility::pending(&world.view);
    for pod in wanted {
        if pod.is_daemon() || pod.is_mirror() {
            let reason = "owned by a DaemonSet or a Node".to_owned();
            ignored.push(eligibility::Ignored { pod: Arc::clone(pod), reason, event: false });
            continue;
        }
        match eligibility::validate(pod, &world.view) {
            Ok(()) => pods.push(Arc::clone(pod)),
            Err((reason, event)) => {
                ignored.push(eligibility::Ignored { pod: Arc::clone(pod), reason, event });
            }
        }
    }
    pods.extend(world.virtual_pods());
    let displaced = eligibility::displaced(&world.view, world.now);
    let batch = Batch {
        displaced: displaced.iter().map(|it| it.key()).collect(),
        pods: pods.into_iter().chain(displaced).collect(),
        reserved: ReservedMode::Strict,
        ..Batch::default()
    };
    (batch, ignored)
}

/// The answer, and the solution behind it. A pod to explain that is nowhere leaves the explanation out.
fn answer(
    world: &World,
    mut batch: Batch,
    mut ignored: Vec<eligibility::Ignored>,
    explain: Option<&ObjectKey>,
) -> (Answer, Solution) {
    batch.explain = explain.cloned();
    let began = Instant::now();
    let mut planner = Planner::new(&world.view, &world.pools, &world.options, world.now);
    let prepared = planner.prepare(&batch);
    let setup_millis = millis(began);
    let began = Instant::now();
    let solution = prepared.finish(&|| true);
    let solve_millis = millis(began);
    let mut draws = Draws(0x5305_e54a_4e00_0001);
    ignored.sort_by_key(|it| it.pod.key());
    let explanation = explain.and_then(|key| {
        let ignored = ignored.iter().find(|it| it.pod.key() == *key);
        let steps = match ignored {
            Some(it) => vec![format!("ignored: {}", it.reason)],
            None if batch.pods.iter().any(|it| it.key() == *key) => solution.steps.clone(),
            None => return None,
        };
        Some(Explanation { pod: key.to_string(), steps })
    });
    let answer = Answer {
        new_node_claims: solution.new_claims.iter().map(|it| claim_row(it, &mut draws)).collect(),
        existing_nodes: solution
            .existing
            .iter()
            .map(|it| NodeRow { node: it.name.clone(), pods: names(&it.pods) })
            .collect(),
        unschedulable: solution
            .unschedulable
            .iter()
            .map(|(key, reason)| UnschedulableRow {
                pod: key.to_string(),
                reason: reason.text.clone(),
                pools: reason.pools.clone(),
            })
            .collect(),
        deferred: solution
            .deferred
            .iter()
            .map(|(key, reason)| PodRow { pod: key.to_string(), reason: reason.clone() })
            .collect(),
        ignored: ignored
            .into_iter()
            .map(|it| PodRow { pod: it.pod.key().to_string(), reason: it.reason })
            .collect(),
        price_per_hour: plan_disruption::round(solution.price()),
        solve_millis,
        setup_millis,
        explain: explanation,
    };
    (answer, solution)
}

/// Milliseconds since `began`, to the microsecond.
fn millis(began: Instant) -> f64 {
    (began.elapsed().as_secs_f64() * 1e6).round() / 1e3
}

/// Draws numbers for labels that only have to exist: the same input gives the same labels.
struct Draws(u64);

impl Draws {
    fn number(&mut self, from: i64, to: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let width = i128::from(to) - i128::from(from) + 1;
        let drawn = i128::from(self.0) % width.max(1);
        i64::try_from(i128::from(from) + drawn).unwrap_or(from)
    }
}

fn claim_row(planned: &PlannedClaim, draws: &mut Draws) -> ClaimRow {
    let claim = planned.to_node_claim(|from, to| draws.number(from, to));
    ClaimRow {
        node_pool: planned.nodepool.metadata.name.clone(),
        requirements: claim.spec.requirements.into_iter().map(RequirementRow::from).collect(),
        labels: claim.metadata.labels,
        taints: claim.spec.taints.clone(),
        requests: claim.spec.resources.requests,
        instance_types: planned.instance_types.iter().map(|it| it.name.clone()).collect(),
        pods: names(&planned.pods),
        cheapest: planned.cheapest.as_ref().map(|it| CheapestRow {
            instance_type: it.instance_type.clone(),
            zone: it.zone.clone(),
            capacity_type: it.capacity_type,
            price_per_hour: it.price,
        }),
    }
}

#[cfg(test)]
mod tests;
