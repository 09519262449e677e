//! `spokeshave explain`: in plain words, why a pod, a node or a NodeClaim is where it is and what will become of it.

mod removal;

use std::{path::PathBuf, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use spokeshave_disruption::{
    Method, Reason, StateNode, View,
    candidates::Survey,
    cluster::{ConsolidateAfter, Policy},
    costs::{eviction_cost, node_price, reschedule_cost},
    eligibility::Blocker,
};
use spokeshave_lifecycle::{
    consolidatable::{Consolidatable, judge},
    expiration::{expires_at, is_replaced},
};
use spokeshave_model::{
    CapacityType, ConditionStatus, Kind, NodeClaim, ObjectKey,
    budgets::{allowed, evaluate},
    core::{Node, Pod, VolumeAttachment},
    duration::GoDuration,
    labels,
    pod_classes::{
        DoNotDisrupt, PdbBlock, do_not_disrupt, is_evictable, is_reschedulable,
        tolerates_disruption,
    },
};
use spokeshave_scheduling::{Planner, Solution, eligibility};

use super::{
    plan::{
        self,
        world::{Source, World},
    },
    plan_disruption::{self, Disruption},
};
use crate::{ExitStatus, Failure, Output, input, output::Colour, settings::SettingsArgs};

/// Time to launch and to register, before a claim is given up. Source: Karpenter 1.x.
const LAUNCH_LIMIT: SignedDuration = SignedDuration::from_mins(5);
const REGISTRATION_LIMIT: SignedDuration = SignedDuration::from_mins(15);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  spokeshave explain pod/default/web-0 --cluster cluster.yaml
  spokeshave explain node/ip-10-0-1-5.ec2.internal --cluster cluster/ --catalog catalog.json
  kubectl get nodes,pods,nodepools,nodeclaims,ec2nodeclasses,pdb -A -o json | spokeshave explain nodeclaim/default-x7k2p --cluster -")]
pub struct Args {
    /// pod/NAMESPACE/NAME, node/NAME or nodeclaim/NAME
    #[arg(value_name = "OBJECT")]
    pub object: String,

    /// Objects of the cluster, as kubectl prints them; directories and - as well
    #[arg(long, num_args = 1.., required = true, value_name = "PATH")]
    pub cluster: Vec<PathBuf>,

    /// What can be bought, in the form that `catalog export` writes; else the built-in facts of --region
    #[arg(long, value_name = "FILE")]
    pub catalog: Option<PathBuf>,

    /// Region of the built-in facts [default: us-east-1]
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,

    /// The time to judge at (RFC 3339) instead of the present
    #[arg(long, value_name = "TIME")]
    pub now: Option<Timestamp>,

    #[command(flatten)]
    pub settings: SettingsArgs,
}

/// What is to be said of one object.
#[derive(Debug, PartialEq, Serialize)]
struct Answer {
    /// `Kind/name` or `Kind/namespace/name`.
    object: String,
    /// The short answer.
    summary: String,
    facts: Vec<Fact>,
    /// How planning went about a pod that waits, step by step.
    steps: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Fact {
    about: &'static str,
    text: String,
}

impl Answer {
    fn new(object: String, summary: impl Into<String>) -> Self {
        Self { object, summary: summary.into(), facts: Vec::new(), steps: Vec::new() }
    }

    fn add(&mut self, about: &'static str, text: impl Into<String>) {
        self.facts.push(Fact { about, text: text.into() });
    }

    fn add_once(&mut self, about: &'static str, text: String) {
        if !self.facts.iter().any(|it| it.about == about && it.text == text) {
            self.add(about, text);
        }
    }
}

/// What is asked about.
#[derive(Debug, PartialEq, Eq)]
enum Subject {
    Pod(ObjectKey),
    Node(String),
    NodeClaim(String),
}

/// Prints what there is to say of an object.
///
/// # Errors
/// When the call, a file, a setting or the catalog is unusable, or there is no such object.
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    let subject = subject(&args.object)?;
    let mut settings = args.settings.settings()?;
    if let Some(region) = &args.region {
        settings.region.clone_from(region);
    }
    let now = args.now.unwrap_or_else(Timestamp::now);
    let cluster = input::load_cluster(&args.cluster)?;
    let source = Source::read(args.catalog.as_deref(), &settings.region)?;
    let world = World::new(&cluster, &source, settings, now)?;
    let answer = answer(&world, &cluster.volume_attachments, &subject).ok_or_else(|| {
        Failure::new("no such object in --cluster")
            .object(args.object.clone())
            .fix("check the name, and that its kind is among the objects given")
    })?;
    if out.is_json() {
        out.json(&answer)?;
    } else {
        print(&answer, out)?;
    }
    Ok(ExitStatus::Answered)
}

fn subject(text: &str) -> Result<Subject, Failure> {
    let parts: Vec<&str> = text.split('/').collect();
    let kind = parts.first().map(|it| it.to_ascii_lowercase()).unwrap_or_default();
    match (kind.as_str(), parts.get(1..).unwrap_or_default()) {
        ("pod" | "pods" | "po", [namespace, name]) => {
            Ok(Subject::Pod(ObjectKey::namespaced(namespace, name)))
        }
        ("pod" | "pods" | "po", [name]) => Ok(Subject::Pod(ObjectKey::namespaced("default", name))),
        ("node" | "nodes" | "no", [name]) => Ok(Subject::Node((*name).to_owned())),
        ("nodeclaim" | "nodeclaims", [name]) => Ok(Subject::NodeClaim((*name).to_owned())),
        _ => Err(Failure::new(format!("{text}: not an object that can be explained"))
            .fix("write pod/NAMESPACE/NAME, node/NAME or nodeclaim/NAME")),
    }
}

fn answer(
    world: &World,
    attachments: &[Arc<VolumeAttachment>],
    subject: &Subject,
) -> Option<Answer> {
    match subject {
        Subject::Pod(key) => world.view.pod(key).map(|it| of_pod(world, it)),
        Subject::Node(name) => of_node(world, attachments, name),
        Subject::NodeClaim(name) => of_claim(world, attachments, name),
    }
}

fn money(dollars: f64) -> String {
    format!("${dollars:.4} per hour")
}

fn length(it: SignedDuration) -> String {
    GoDuration(SignedDuration::from_secs(it.as_secs())).to_string()
}

fn of_pod(world: &World, pod: &Arc<Pod>) -> Answer {
    let reference = pod.reference();
    if pod.is_terminal() {
        let phase = &pod.status.phase;
        return Answer::new(
            reference,
            format!("it has finished ({phase}) and needs nothing any more"),
        );
    }
    if !pod.is_bound() {
        return of_waiting_pod(world, pod);
    }
    let node = &pod.spec.node_name;
    let mut answer = Answer::new(reference, format!("it runs on node {node}"));
    let view = View::new(&world.view, &world.pools, &world.settings, world.now);
    if let Some(it) =
        view.nodes.iter().find(|it| it.node.as_ref().is_some_and(|it| it.name() == node))
    {
        answer.add("node", describe_node(&view, it));
        if it.is_marked_for_deletion() {
            answer.add("node", removal::of_pod(pod, it, world.now));
        }
    } else {
        answer.add("node", "the node is not among the objects given");
    }
    let pdbs = view.pod_disruption_budgets();
    match do_not_disrupt(pod, world.now) {
        DoNotDisrupt::Absent => {}
        DoNotDisrupt::Active => answer.add(
            "protection",
            format!("annotation {}: its node is not disrupted voluntarily", labels::DO_NOT_DISRUPT),
        ),
        DoNotDisrupt::Until(end) => answer.add(
            "protection",
            format!("annotation {}: its node is left alone until {end}", labels::DO_NOT_DISRUPT),
        ),
        DoNotDisrupt::Elapsed => answer.add(
            "protection",
            format!("annotation {}: its time is over, it protects no more", labels::DO_NOT_DISRUPT),
        ),
        DoNotDisrupt::Invalid => answer.add(
            "protection",
            format!(
                "annotation {}: neither \"true\" nor a positive duration such as 30m, ignored",
                labels::DO_NOT_DISRUPT
            ),
        ),
    }
    match pdbs.blocks(pod, world.now) {
        Some(PdbBlock::Multiple(keys)) => {
            let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
            answer.add(
                "eviction",
                format!(
                    "blocked for ever: more than one PodDisruptionBudget selects it ({})",
                    keys.join(", ")
                ),
            );
        }
        Some(PdbBlock::NoneAllowed(key)) => {
            answer.add("eviction", format!("PodDisruptionBudget {key} allows none at present"));
        }
        None if is_evictable(pod, world.now) => answer.add("eviction", "nothing stands against it"),
        None if tolerates_disruption(pod) => {
            answer.add("eviction", "never evicted: it tolerates the disrupted taint");
        }
        None if pod.is_mirror() => answer.add("eviction", "never evicted: a static pod"),
        None => {}
    }
    if is_reschedulable(pod) {
        answer
            .add("cost", format!("moving it costs {:.2}, a plain pod costs 1", eviction_cost(pod)));
    } else {
        answer.add("cost", "it does not have to find another place when its node goes");
    }
    answer
}

fn of_waiting_pod(world: &World, pod: &Arc<Pod>) -> Answer {
    let reference = pod.reference();
    let not_ours =
        |why: &str| Answer::new(pod.reference(), format!("no node is made for it: {why}"));
    if pod.is_daemon() {
        return not_ours("pods of DaemonSets get nodes only as part of the overhead of new nodes");
    }
    if pod.is_mirror() {
        return not_ours("it is a static pod");
    }
    if !pod.status.nominated_node_name.is_empty() {
        let node = &pod.status.nominated_node_name;
        return not_ours(&format!("it is about to land on {node}, whose pods it preempts"));
    }
    if !eligibility::is_provisionable(pod) {
        let reason = pod
            .condition("PodScheduled").map_or_else(|| "kube-scheduler has not looked at it yet".to_owned(), |it| format!("its condition PodScheduled has reason {:?}", it.reason));
        return not_ours(&format!("{reason}; Unschedulable is what is waited for"));
    }
    if let Err((why, _)) = eligibility::validate(pod, &world.view) {
        return not_ours(&why);
    }
    let solution = provision(world, Some(pod.key()));
    let mut answer = Answer::new(reference, placement(&solution, &pod.key()));
    if let Some(reason) = solution.unschedulable.get(&pod.key()) {
        for (pool, why) in &reason.pools {
            answer.add("pool", format!("{pool}: {why}"));
        }
    }
    for claim in world.view.unlaunched() {
        answer.add(
            "waiting",
            format!("{} is being launched; planning waits for it", claim.reference()),
        );
    }
    answer.steps = solution.steps;
    answer
}

/// One provisioning pass, which tells the way of one pod.
fn provision(world: &World, explain: Option<ObjectKey>) -> Solution {
    let (mut batch, _ignored) = plan::batch(world, &[]);
    batch.explain = explain;
    Planner::new(&world.view, &world.pools, &world.options, world.now).solve(&batch, &|| true)
}

fn placement(solution: &Solution, key: &ObjectKey) -> String {
    let holds = |pods: &[Arc<Pod>]| pods.iter().any(|it| it.key() == *key);
    if let Some(it) = solution.existing.iter().find(|it| holds(&it.pods)) {
        return format!("it fits on {}, which is there already", it.reference());
    }
    if let Some(it) = solution.new_claims.iter().find(|it| holds(&it.pods)) {
        let others = it.pods.len() - 1;
        let cheapest = it.cheapest.as_ref().map_or_else(String::new, |it| {
            format!(
                ", cheapest as {} {} in {} at {}",
                it.instance_type,
                it.capacity_type,
                it.zone,
                it.price.map_or_else(|| "an unknown price".to_owned(), money)
            )
        });
        return format!(
            "a new node of pool {} is made for it and {others} other pod(s){cheapest}",
            it.nodepool.name()
        );
    }
    if let Some(why) = solution.deferred.get(key) {
        return format!("it waits: {why}");
    }
    match solution.unschedulable.get(key) {
        Some(reason) => format!("no place can be found: {}", reason.text),
        None => "planning did not come to it".to_owned(),
    }
}

/// `m5.large spot in a of pool p, $0.0350 per hour`.
fn describe_node(view: &View, node: &StateNode) -> String {
    let label = |key| node.label(key);
    let pool = view.pools.get(node.pool());
    let it =
        pool.zip(label(labels::INSTANCE_TYPE)).and_then(|(pool, name)| pool.instance_type(name));
    let capacity_type = label(labels::CAPACITY_TYPE).and_then(CapacityType::parse);
    let price = node_price(it.map(AsRef::as_ref), label(labels::ZONE), capacity_type);
    let price = if price > 0.0 { money(price) } else { "price unknown".to_owned() };
    let unknown = "unknown";
    format!(
        "{} {} in {}, {}, {price}",
        label(labels::INSTANCE_TYPE).unwrap_or(unknown),
        label(labels::CAPACITY_TYPE).unwrap_or(unknown),
        label(labels::ZONE).unwrap_or(unknown),
        if node.pool().is_empty() {
            "of no pool".to_owned()
        } else {
            format!("pool {}", node.pool())
        },
    )
}

fn of_node(world: &World, attachments: &[Arc<VolumeAttachment>], name: &str) -> Option<Answer> {
    let view = View::new(&world.view, &world.pools, &world.settings, world.now);
    let node = view.nodes.iter().find(|it| it.node.as_ref().is_some_and(|it| it.name() == name))?;
    let object: &Node = node.node.as_ref()?;
    let mut answer = Answer::new(object.reference(), String::new());
    answer.add("what", describe_node(&view, node));
    match &node.claim {
        Some(claim) => answer.add("claim", claim.reference()),
        None => answer
            .add("claim", "none: nothing here has made this node, and nothing here removes it"),
    }
    let ready = if object.is_ready() { "Ready" } else { "not Ready" };
    let stage = if node.is_initialized() {
        "initialized"
    } else if node.is_registered() {
        "registered, not initialized"
    } else {
        "not registered"
    };
    answer.add("state", format!("{ready}, {stage}"));
    let taints: Vec<String> = object.spec.taints.iter().map(ToString::to_string).collect();
    if !taints.is_empty() {
        answer.add("taints", taints.join(", "));
    }
    about_pods(&mut answer, node);
    if let Some(claim) = &node.claim {
        about_claim(&mut answer, claim, world.now);
    }
    answer.summary = outlook(world, &view, attachments, node, &mut answer);
    Some(answer)
}

fn about_pods(answer: &mut Answer, node: &StateNode) {
    let pods = || node.pods.iter().map(AsRef::as_ref);
    let n_moving = pods().filter(|it| is_reschedulable(it)).count();
    let n_finished = pods().filter(|it| it.is_terminal()).count();
    answer.add(
        "pods",
        format!(
            "{} bound, {n_finished} of them finished; {n_moving} would need another place; taking the node away costs {:.2}",
            node.pods.len(),
            reschedule_cost(pods())
        ),
    );
}

fn about_claim(answer: &mut Answer, claim: &NodeClaim, now: Timestamp) {
    for (condition, about) in
        [(NodeClaim::DRIFTED, "drift"), (NodeClaim::DISRUPTION_REASON, "disruption")]
    {
        if let Some(it) = claim.condition(condition).filter(|it| it.status == ConditionStatus::True)
        {
            let since =
                it.last_transition_time.map_or_else(String::new, |at| format!(" since {at}"));
            answer.add(about, format!("{}{since}", it.reason));
        }
    }
    let quiet = if claim.is_true(NodeClaim::CONSOLIDATABLE) {
        "quiet for long enough to be consolidated"
    } else {
        "not quiet for long enough, or consolidation is off (condition Consolidatable is not True)"
    };
    answer.add("consolidation", quiet);
    match expires_at(claim) {
        Some(at) if at <= now => answer.add("expiry", format!("expired at {at}")),
        Some(at) => {
            answer.add("expiry", format!("expires at {at}, in {}", length(at.duration_since(now))));
        }
        None => answer.add("expiry", "never expires"),
    }
}

/// What will become of a node, and the facts that say why.
fn outlook(
    world: &World,
    view: &View,
    attachments: &[Arc<VolumeAttachment>],
    node: &StateNode,
    answer: &mut Answer,
) -> String {
    if removal::is_under_way(node) {
        return removal::explain(&world.view, view, attachments, node, answer);
    }
    let disruption: Disruption = plan_disruption::of(world, Vec::new(), &provision(world, None));
    for it in disruption.budgets.iter().filter(|it| it.node_pool == node.pool()) {
        let count = |n: i64| {
            if n >= spokeshave_model::budgets::UNLIMITED {
                "any number".to_owned()
            } else {
                n.to_string()
            }
        };
        answer.add(
            "budget",
            format!(
                "{}: {} may go at once, {} on their way or not Ready",
                it.reason,
                count(it.allowed),
                it.disrupting
            ),
        );
    }
    let name = node.name();
    if let Some(it) =
        disruption.commands.iter().find(|it| it.candidates.iter().any(|it| it == name))
    {
        for new in &it.replacements {
            let types = new.instance_types.first().map_or("any type of the pool", String::as_str);
            answer.add(
                "replacement",
                format!("{types} ({}) of pool {}", new.capacity_types.join(", "), new.node_pool),
            );
        }
        answer.add(
            "price",
            format!(
                "{} before, {} after: ${:.4} saved",
                money(it.price_before),
                money(it.price_after),
                it.saving_per_hour
            ),
        );
        return format!("the next disruption pass removes it ({}): {}", it.reason, it.why);
    }
    let survey = Survey::new(view);
    let methods: Vec<Method> = Method::ALL
        .into_iter()
        .filter(|method| {
            let found = survey.collect(*method);
            found.candidates.iter().any(|it| it.name == name)
        })
        .collect();
    if !methods.is_empty() {
        let names: Vec<&str> = methods.iter().map(|it| it.as_str()).collect();
        answer.add("considered by", names.join(", "));
    }
    for it in remedies(view, &survey, node) {
        answer.add("remedy", it);
    }
    let held = disruption.budgets.iter().filter(|it| it.node_pool == node.pool());
    let held: Vec<&str> = held.filter(|it| it.remaining == 0).map(|it| it.reason).collect();
    for method in &methods {
        if held.contains(&method.reason().as_str()) {
            for it in of_budgets(view, node.pool(), method.reason()) {
                answer.add_once("remedy", it);
            }
        }
    }
    // Expiration asks neither budgets nor pods, unless the pool wants its nodes replaced.
    let pool = view.pools.get(node.pool()).map(|it| &*it.nodepool);
    let forced = node.claim.as_ref().filter(|it| !is_replaced(it, pool));
    if let Some(at) = forced.and_then(|it| expires_at(it)).filter(|at| *at <= view.now) {
        return format!("it is removed: it expired at {at}");
    }
    let why = disruption.not_considered.iter().find(|it| it.node == name).map(|it| it.why.clone());
    match why {
        Some(why) => format!("it stays: {why}"),
        None => "it stays".to_owned(),
    }
}

/// What would have to change for the node to be considered.
fn remedies(view: &View, survey: &Survey<'_>, node: &StateNode) -> Vec<String> {
    let Some(facts) = survey.facts.iter().find(|it| view.nodes[it.at].name() == node.name()) else {
        return Vec::new();
    };
    if let Some(blocker) = &facts.blocker {
        return of_blocker(node, blocker).into_iter().collect();
    }
    let (Some(pool), Some(claim)) = (view.pools.get(node.pool()), &node.claim) else {
        return Vec::new();
    };
    let name = pool.name();
    let mut found = Vec::new();
    match pool.consolidate_after() {
        _ if pool.nodepool.is_static() => {
            found.push(format!("NodePool {name} has a fixed size: lower spec.replicas"));
        }
        ConsolidateAfter::Never => {
            found.push(format!("NodePool {name}: spec.disruption.consolidateAfter other than Never"));
        }
        ConsolidateAfter::After(_) if !claim.is_true(NodeClaim::CONSOLIDATABLE) => {
            if let Consolidatable::From(at) = judge(claim, &pool.nodepool, view.now) {
                found.push(format!("consolidatable from {at} on, if no pod comes or goes"));
            }
        }
        ConsolidateAfter::After(_) if pool.policy() == Policy::WhenEmpty && !facts.is_empty() => {
            found.push(format!(
                "NodePool {name}: spec.disruption.consolidationPolicy other than WhenEmpty"
            ));
        }
        ConsolidateAfter::After(_) => {}
    }
    found
}

/// What would have to change for the pool's budgets to let one more node go.
fn of_budgets(view: &View, pool: &str, reason: Reason) -> Vec<String> {
    let Some(it) = view.pools.get(pool) else { return Vec::new() };
    let n_nodes = view.nodes.iter().filter(|it| it.pool() == pool && it.is_counted());
    let n_nodes = i64::try_from(n_nodes.count()).unwrap_or(i64::MAX);
    let budgets = it.nodepool.budgets();
    if let Err((index, error)) = evaluate(&budgets, reason.as_str(), n_nodes, view.now) {
        return vec![format!("NodePool {pool}: spec.disruption.budgets[{index}]: {error}")];
    }
    let allowed = allowed(&budgets, reason.as_str(), n_nodes, view.now);
    let binding = budgets.iter().enumerate().filter(|(_, it)| {
        it.applies_to(reason.as_str()) && it.allowed(n_nodes, view.now) == Ok(allowed)
    });
    binding
        .map(|(index, it)| match it.active_until(view.now) {
            Ok(Some(end)) => format!(
                "budget {index} of NodePool {pool} (nodes {}) applies until {end}",
                it.nodes
            ),
            _ => format!(
                "NodePool {pool}: spec.disruption.budgets[{index}].nodes higher than {}, or wait until fewer nodes are on their way or not Ready",
                it.nodes
            ),
        })
        .collect()
}

fn of_blocker(node: &StateNode, blocker: &Blocker) -> Option<String> {
    Some(match blocker {
        Blocker::InCommand | Blocker::Foreign | Blocker::WithoutNode | Blocker::Marked => {
            return None;
        }
        Blocker::Launching(pool) => {
            format!("considered again once every NodeClaim of NodePool {pool} has its instance")
        }
        Blocker::NotInitialized => {
            let it = node.claim.as_ref()?.condition(NodeClaim::INITIALIZED)?;
            format!("it has to be initialized: {} {}", it.reason, it.message).trim_end().to_owned()
        }
        Blocker::Nominated => format!("considered again from {} on", node.nominated_until?),
        Blocker::DoNotDisrupt => format!("take annotation {} off the node", labels::DO_NOT_DISRUPT),
        Blocker::Label(key) => format!("put label {key} back on the node"),
        Blocker::NoNodePool(name) => {
            format!("there has to be a NodePool {name} whose class has instance types to offer")
        }
        Blocker::PodDoNotDisrupt(pod) => format!(
            "take annotation {} off pod {pod}; with terminationGracePeriod on the NodePool, drift does not wait for it",
            labels::DO_NOT_DISRUPT
        ),
        Blocker::Pdb(PdbBlock::Multiple(keys)) => {
            let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
            format!("only one of the PodDisruptionBudgets {} may select the pod", keys.join(", "))
        }
        Blocker::Pdb(PdbBlock::NoneAllowed(key)) => format!(
            "PodDisruptionBudget {key} has to allow an eviction: more Ready pods, or a looser budget"
        ),
    })
}

fn of_claim(world: &World, attachments: &[Arc<VolumeAttachment>], name: &str) -> Option<Answer> {
    let claim = world.view.claims.get(&ObjectKey::cluster(name))?;
    let mut answer = Answer::new(claim.reference(), String::new());
    if !claim.is_managed() {
        answer.summary = "its class is none of ours: it is left alone".to_owned();
        return Some(answer);
    }
    let view = View::new(&world.view, &world.pools, &world.settings, world.now);
    let node = view.nodes.iter().find(|it| {
        it.claim_uid() == Some(&claim.metadata.uid)
            && it.claim.as_ref().is_some_and(|it| it.name() == name)
    })?;
    answer.add("what", describe_node(&view, node));
    for type_ in NodeClaim::DEPENDENTS {
        let Some(it) = claim.condition(type_) else { continue };
        let since = it.last_transition_time.map_or_else(String::new, |at| format!(" since {at}"));
        let text = match it.status {
            ConditionStatus::True => format!("{type_}{since}"),
            status => format!("{type_} is {status:?}{since}: {} {}", it.reason, it.message)
                .trim_end()
                .to_owned(),
        };
        answer.add("state", text);
    }
    answer.summary = if claim.metadata.deleting() {
        about_pods(&mut answer, node);
        removal::explain(&world.view, &view, attachments, node, &mut answer)
    } else if !claim.is_true(NodeClaim::LAUNCHED) {
        waiting("launched", claim, NodeClaim::LAUNCHED, LAUNCH_LIMIT)
    } else if !claim.is_true(NodeClaim::REGISTERED) {
        waiting(
            "registered: its Node has not joined",
            claim,
            NodeClaim::REGISTERED,
            REGISTRATION_LIMIT,
        )
    } else if !claim.is_true(NodeClaim::INITIALIZED) {
        let why = claim
            .condition(NodeClaim::INITIALIZED)
            .map(|it| format!(": {} {}", it.reason, it.message))
            .unwrap_or_default();
        format!("its node has joined and is not initialized yet{}", why.trim_end())
    } else if node.node.is_none() {
        // As lifecycle does, once the Node is gone for good.
        format!(
            "its Node {} is not among the objects given: a claim whose Node is gone is removed",
            claim.status.node_name
        )
    } else {
        about_pods(&mut answer, node);
        outlook(world, &view, attachments, node, &mut answer)
    };
    about_claim(&mut answer, claim, world.now);
    Some(answer)
}

/// What a claim waits for, and when it is given up.
fn waiting(what: &str, claim: &NodeClaim, condition: &str, limit: SignedDuration) -> String {
    let since = claim
        .condition(condition)
        .and_then(|it| it.last_transition_time)
        .or(claim.metadata.creation_timestamp);
    match since.and_then(|it| it.checked_add(limit).ok()) {
        Some(at) => format!("it is not yet {what}; given up at {at}"),
        None => format!("it is not yet {what}"),
    }
}

fn print(answer: &Answer, out: &Output) -> Result<(), Failure> {
    out.line(&format!("{}: {}", out.paint(Colour::Bold, &answer.object), answer.summary))?;
    if !answer.facts.is_empty() {
        out.line("")?;
        let rows: Vec<Vec<String>> =
            answer.facts.iter().map(|it| vec![it.about.to_owned(), it.text.clone()]).collect();
        out.table(&["ABOUT", "WHAT"], &rows)?;
    }
    if !answer.steps.is_empty() {
        out.line("")?;
        let rows: Vec<Vec<String>> = answer
            .steps
            .iter()
            .enumerate()
            .map(|(at, step)| vec![(at + 1).to_string(), step.clone()])
            .collect();
        out.table(&["STEP", "HOW PLANNING WENT"], &rows)?;
    }
    Ok(())
}
