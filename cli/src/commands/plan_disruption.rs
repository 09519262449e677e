//! What `plan --disruption` adds: the commands of one disruption pass, the nodes that were left and why, and budgets.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use spokeshave_admission::Kinds;
use spokeshave_disruption::{
    Command, Method, Purpose, Reason, Scheduler, SettledCell, Simulator, View,
    allowance::Allowances,
    candidates::Survey,
    cluster::nomination_window,
    consolidation::{Decision, decide},
    memory::Memory,
    methods::NoLimit,
    pass,
    scheduler::{marked_names, note_buffers, template},
};
use spokeshave_lifecycle::{drift::pool_reason, expiration};
use spokeshave_model::{
    EC2NodeClass, Kind, NodeClaim, NodePool, conditions::ConditionStatus, core::Pod, hash, labels,
};
use spokeshave_nodeclass::drift::{ami_drift, static_drift};
use spokeshave_scheduling::{ClusterView, Solution, buffers};

use super::plan::world::World;
use crate::{Failure, Output, output::Colour};

/// The part of the answer that is about disruption.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    pub commands: Vec<CommandRow>,
    /// Sorted by node.
    pub not_considered: Vec<LeftRow>,
    /// By pool, then by reason.
    pub budgets: Vec<BudgetRow>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandRow {
    pub method: &'static str,
    pub reason: &'static str,
    /// Nodes, in the order in which they were chosen.
    pub candidates: Vec<String>,
    pub replacements: Vec<ReplacementRow>,
    /// Dollars.
    pub saving_per_hour: f64,
    pub why: String,
    /// Dollars per hour of the candidates.
    pub price_before: f64,
    /// Dollars per hour of the cheapest launch of every replacement.
    pub price_after: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplacementRow {
    pub node_pool: String,
    /// Cheapest first.
    pub instance_types: Vec<String>,
    pub capacity_types: Vec<String>,
    pub price_per_hour: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftRow {
    pub node: String,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetRow {
    pub node_pool: String,
    pub reason: &'static str,
    pub allowed: i64,
    pub disrupting: i64,
    pub remaining: i64,
}

/// Runs one disruption pass over a world of files, right after the provisioning pass that came to `provisioned`, as if
/// its validation wait were over.
///
/// `waiting` are pods that wait for a place and are not in the cluster's own list.
pub fn of(world: &World, waiting: Vec<Arc<Pod>>, provisioned: &Solution) -> Disruption {
    let World { view: cluster, pools, settings, options, now, .. } = world;
    let mut view = View::new(cluster, pools, settings, *now);
    judge_drift(cluster, &mut view);
    nominate(&mut view, provisioned);
    let mut cluster = cluster.clone();
    for name in marked_names(&view) {
        cluster.mark_for_deletion(&name);
    }
    let placeholders = world.virtual_pods();
    note_buffers(&mut view, &cluster, pools, options, &placeholders);
    let survey = Survey::new(&view);
    let extra_pods = waiting.into_iter().chain(placeholders).collect();
    let settled = SettledCell::new();
    let mut scheduler =
        Scheduler::new(&view, &cluster, pools, options, extra_pods, &|| true).settling(&settled);
    let outcome = pass::run(
        &survey,
        Method::Emptiness,
        &Memory::default(),
        &|pool| template(&view, pool),
        &mut scheduler,
        &mut NoLimit,
    );
    let commands: Vec<CommandRow> = outcome.commands.iter().map(|it| row(&view, it)).collect();
    let diagnoses = diagnose(&survey, &outcome, &commands, &mut scheduler);
    Disruption {
        not_considered: not_considered(&survey, &outcome, &commands, &diagnoses),
        commands,
        budgets: budgets(&view),
    }
}

/// Nodes that provisioning gave pods to are nominated for them; placeholders of CapacityBuffers do not count.
fn nominate(view: &mut View, provisioned: &Solution) {
    let until = view.now + nomination_window(&view.settings);
    let nominated: BTreeSet<&str> = provisioned
        .existing
        .iter()
        .filter(|it| it.pods.iter().any(|pod| !buffers::is_virtual(pod)))
        .map(|it| it.name.as_str())
        .collect();
    for node in &mut view.nodes {
        if nominated.contains(node.name()) {
            node.nominated_until = Some(until);
        }
    }
}

/// Notes on the view's claims what the input itself tells of drift. Whatever a claim says of itself is believed.
fn judge_drift(cluster: &ClusterView, view: &mut View) {
    let now = view.now;
    let pools = view.pools.clone();
    let classes: BTreeMap<&str, EC2NodeClass> =
        cluster.node_classes.values().map(|it| (it.name(), with_hash(it))).collect();
    for node in &mut view.nodes {
        let Some(claim) = node.claim.clone() else { continue };
        if claim.is_true(NodeClaim::DRIFTED) || claim.metadata.deleting() {
            continue;
        }
        let Some(pool) = claim.nodepool().and_then(|it| pools.get(it)) else { continue };
        let mut nodepool = (*pool.nodepool).clone();
        let annotations = &mut nodepool.metadata.annotations;
        if !annotations.contains_key(labels::NODEPOOL_HASH) {
            annotations.insert(labels::NODEPOOL_HASH.to_owned(), hash::node_pool(&pool.nodepool));
            annotations.insert(labels::NODEPOOL_HASH_VERSION.to_owned(), "v3".to_owned());
        }
        let class_name = &nodepool.spec.template.spec.node_class_ref.name;
        let class = classes.get(class_name.as_str());
        let reason = pool_reason(&claim, &nodepool)
            .or_else(|| class_reason(class?, &claim, pool))
            .or_else(|| expired(&claim, &nodepool, now));
        let Some(reason) = reason else { continue };
        let mut drifted = NodeClaim::clone(&claim);
        drifted.conditions_mut().set(
            NodeClaim::DRIFTED,
            ConditionStatus::True,
            reason,
            reason,
            now,
        );
        node.claim = Some(Arc::new(drifted));
    }
}

/// The class with its hash noted, as its controller does it. One that was never in a cluster has none yet, and no CA
/// bundle is known for it.
fn with_hash(class: &EC2NodeClass) -> EC2NodeClass {
    if class.metadata.annotation(labels::NODECLASS_HASH).is_some() {
        return class.clone();
    }
    let api_version = format!("{}/{}", EC2NodeClass::GROUP, EC2NodeClass::VERSION);
    let spec =
        serde_json::to_value(class).map(|it| json!({"spec": it["spec"]})).unwrap_or_default();
    let defaulted = Kinds::new().defaulted(&api_version, EC2NodeClass::KIND, &spec);
    let mut complete = class.clone();
    if let Ok(spec) = serde_json::from_value(defaulted["spec"].clone()) {
        complete.spec = spec;
    }
    let hash = hash::ec2_node_class(&complete, "");
    let mut noted = class.clone();
    let annotations = &mut noted.metadata.annotations;
    annotations.insert(labels::NODECLASS_HASH.to_owned(), hash);
    let version = hash::EC2_NODE_CLASS_VERSION.to_owned();
    annotations.insert(labels::NODECLASS_HASH_VERSION.to_owned(), version);
    noted
}

/// Where expired nodes are replaced as drifted ones are.
fn expired(claim: &NodeClaim, pool: &NodePool, now: Timestamp) -> Option<&'static str> {
    let is_drift = expiration::is_replaced(claim, Some(pool)) && expiration::is_expired(claim, now);
    is_drift.then_some(expiration::EXPIRED)
}

fn class_reason(
    class: &EC2NodeClass,
    claim: &NodeClaim,
    pool: &spokeshave_disruption::Pool,
) -> Option<&'static str> {
    if class.metadata.deleting() {
        return None;
    }
    if static_drift(class, claim) {
        return Some("NodeClassDrift");
    }
    let name = claim.metadata.label(labels::INSTANCE_TYPE)?;
    let it = pool.instance_type(name);
    let drifted = ami_drift(class, claim, it.map(|it| &it.requirements));
    drifted.is_ok_and(|it| it).then_some("AMIDrift")
}

fn row(view: &View, command: &Command) -> CommandRow {
    let before: f64 = command.candidates.iter().map(|it| it.price).sum();
    let after: f64 = command.replacements.iter().filter_map(|it| it.price).sum();
    CommandRow {
        method: command.method.as_str(),
        reason: command.reason().as_str(),
        candidates: command.candidates.iter().map(|it| it.node.clone()).collect(),
        replacements: command
            .replacements
            .iter()
            .map(|it| ReplacementRow {
                node_pool: it.pool.clone(),
                instance_types: it.instance_types.clone(),
                capacity_types: it.capacity_types.clone(),
                price_per_hour: it.price,
            })
            .collect(),
        saving_per_hour: round(command.saving),
        why: why(view, command),
        price_before: round(before),
        price_after: round(after),
    }
}

/// Sums of prices without the dust of binary fractions; reserved prices are as small as 1e-9.
pub(crate) fn round(dollars: f64) -> f64 {
    let rounded = (dollars * 1e12).round() / 1e12;
    if rounded == 0.0 { 0.0 } else { rounded }
}

fn why(view: &View, command: &Command) -> String {
    let n = command.candidates.len();
    let they = if n == 1 { "its" } else { "their" };
    match command.method {
        Method::Emptiness => {
            let it = if n == 1 { "the node has" } else { "the nodes have" };
            format!("{it} no pods that need another place")
        }
        Method::StaticDrift | Method::Drift => {
            let reasons: Vec<String> =
                command.candidates.iter().filter_map(|it| drift_reason(view, &it.claim)).collect();
            format!("drifted: {}", reasons.join(", "))
        }
        Method::MultiNodeConsolidation | Method::SingleNodeConsolidation => {
            match command.replacements.first() {
                None => format!("{they} pods fit on other nodes"),
                Some(new) => format!(
                    "{they} pods fit on other nodes and one cheaper node, from ${:.4} per hour instead of ${:.4}",
                    new.price.unwrap_or(0.0),
                    command.candidates.iter().map(|it| it.price).sum::<f64>()
                ),
            }
        }
    }
}

fn drift_reason(view: &View, claim: &str) -> Option<String> {
    let claim =
        view.nodes.iter().find_map(|it| it.claim.as_ref().filter(|it| it.name() == claim))?;
    claim.condition(NodeClaim::DRIFTED).map(|it| it.reason.clone())
}

/// At most so many nodes that the pass did not come to are looked at for the answer's sake.
const MOST_DIAGNOSES: usize = 500;

/// What the methods that the pass did not come to would have said of the nodes that are left, by position.
fn diagnose(
    survey: &Survey<'_>,
    outcome: &pass::Outcome,
    commands: &[CommandRow],
    simulator: &mut dyn Simulator,
) -> BTreeMap<usize, String> {
    let mut said = BTreeMap::new();
    let Some(found) = outcome.method else { return said };
    let taken = |name: &str| commands.iter().any(|it| it.candidates.iter().any(|it| it == name));
    let spot_to_spot = survey.view.settings.gates.spot_to_spot_consolidation;
    for method in [Method::Drift, Method::SingleNodeConsolidation] {
        if method < found {
            continue;
        }
        let allowances = Allowances::new(survey.view, method.reason());
        for candidate in survey.collect(method).candidates {
            if taken(&candidate.name) || said.contains_key(&candidate.at) {
                continue;
            }
            if allowances.remaining(&candidate.pool) == 0 {
                said.insert(candidate.at, allowances.blocked_text());
                continue;
            }
            if said.len() >= MOST_DIAGNOSES {
                return said;
            }
            let purpose =
                if method == Method::Drift { Purpose::Drift } else { Purpose::Consolidation };
            let Ok(simulation) = simulator.simulate(&[candidate.at], purpose) else { continue };
            let why = if method == Method::Drift {
                simulation.objection()
            } else {
                match decide(&[&candidate], &simulation, spot_to_spot) {
                    Decision::Keep(why) => Some(why),
                    Decision::Delete | Decision::Replace(_) => None,
                }
            };
            if let Some(why) = why {
                said.insert(candidate.at, why);
            }
        }
    }
    said
}

/// Every node that no command takes, with what was said of it: texts of events first.
fn not_considered(
    survey: &Survey<'_>,
    outcome: &pass::Outcome,
    commands: &[CommandRow],
    diagnoses: &BTreeMap<usize, String>,
) -> Vec<LeftRow> {
    let mut said: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut add = |at: usize, why: &str| {
        let texts = said.entry(at).or_default();
        if !texts.iter().any(|it| it == why) {
            texts.push(why.to_owned());
        }
    };
    // Events name the reasons that users know; what is said besides comes after them.
    let collections: Vec<_> = Method::ALL.iter().map(|it| survey.collect(*it)).collect();
    let noticed = |notices: &[spokeshave_disruption::notices::Notice],
                   add: &mut dyn FnMut(usize, &str)| {
        for notice in notices {
            if let spokeshave_disruption::notices::Subject::Node(at) = notice.subject
                && ["DisruptionBlocked", "Unconsolidatable"].contains(&notice.reason)
            {
                add(at, &notice.message);
            }
        }
    };
    for collection in &collections {
        noticed(&collection.notices, &mut add);
    }
    noticed(&outcome.notices, &mut add);
    for (at, why) in diagnoses {
        add(*at, why);
    }
    for (at, left) in &outcome.left {
        for (method, why) in left {
            if !is_beside_the_point(*method, why) {
                add(*at, why);
            }
        }
    }
    for collection in &collections {
        for left in &collection.left {
            if survey.view.nodes.get(left.at).is_some_and(|it| it.claim.is_none()) {
                add(left.at, &left.why);
            }
        }
    }
    let taken = |name: &str| commands.iter().any(|it| it.candidates.iter().any(|it| it == name));
    let mut rows: Vec<LeftRow> = survey
        .view
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| !taken(node.name()))
        .map(|(at, node)| LeftRow {
            node: node.name().to_owned(),
            why: said
                .remove(&at)
                .filter(|it| !it.is_empty())
                .map_or_else(|| beside(survey, at, outcome), |it| it.join("; ")),
        })
        .collect();
    rows.sort_by(|a, b| a.node.cmp(&b.node));
    rows
}

/// What only says that another method is the one for the node.
fn is_beside_the_point(method: Method, why: &str) -> bool {
    matches!(
        (method, why),
        (Method::Emptiness, "Node is not empty")
            | (Method::StaticDrift, "its NodePool is not static")
            | (Method::Drift, "its NodePool is static")
            | (Method::StaticDrift | Method::Drift, "Node is not drifted")
            | (Method::MultiNodeConsolidation | Method::SingleNodeConsolidation, "Node is empty")
            | (_, "its NodePool is static")
    )
}

/// For a node that nothing was said of.
fn beside(survey: &Survey<'_>, at: usize, outcome: &pass::Outcome) -> String {
    let Some(node) = survey.view.nodes.get(at) else { return String::new() };
    if survey.view.pools.get(node.pool()).is_some_and(|it| it.nodepool.is_static()) {
        return "the node is of a static NodePool and not drifted".to_owned();
    }
    match outcome.method {
        Some(method) => format!("{method} found something to do first"),
        None => outcome.error.clone().unwrap_or_else(|| "there is nothing to gain".to_owned()),
    }
}

fn budgets(view: &View) -> Vec<BudgetRow> {
    let by_reason: Vec<(Reason, Allowances)> =
        Reason::ALL.into_iter().map(|it| (it, Allowances::new(view, it))).collect();
    view.pools
        .keys()
        .flat_map(|pool| {
            by_reason.iter().map(move |(reason, allowances)| {
                let it = allowances.of(pool);
                BudgetRow {
                    node_pool: pool.clone(),
                    reason: reason.as_str(),
                    allowed: it.allowed,
                    disrupting: it.disrupting,
                    remaining: it.remaining(),
                }
            })
        })
        .collect()
}

/// Prints it for people.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(disruption: &Disruption, out: &Output) -> Result<(), Failure> {
    out.line("")?;
    if disruption.commands.is_empty() {
        out.line("Disruption: nothing to do")?;
    }
    for command in &disruption.commands {
        let title =
            format!("{} ({}): {}", command.method, command.reason, command.candidates.join(", "));
        out.line(&out.paint(Colour::Bold, &title))?;
        out.line(&format!("  why      {}", command.why))?;
        for it in &command.replacements {
            let types = match it.instance_types.as_slice() {
                [] => "any type of the pool".to_owned(),
                [one] => one.clone(),
                [first, rest @ ..] => format!("{first} or one of {} others", rest.len()),
            };
            out.line(&format!(
                "  replace  {} ({}) of {}",
                types,
                it.capacity_types.join(", "),
                it.node_pool
            ))?;
        }
        out.line(&format!(
            "  price    ${:.4} per hour before, ${:.4} after: ${:.4} saved",
            command.price_before, command.price_after, command.saving_per_hour
        ))?;
    }
    if !disruption.not_considered.is_empty() {
        let rows: Vec<Vec<String>> = disruption
            .not_considered
            .iter()
            .map(|it| vec![it.node.clone(), it.why.clone()])
            .collect();
        out.line("")?;
        out.table(&["NODE LEFT", "WHY"], &rows)?;
    }
    if !disruption.budgets.is_empty() {
        let number = |it: i64| {
            if it >= spokeshave_model::budgets::UNLIMITED {
                "unlimited".to_owned()
            } else {
                it.to_string()
            }
        };
        let rows: Vec<Vec<String>> = disruption
            .budgets
            .iter()
            .map(|it| {
                vec![
                    it.node_pool.clone(),
                    it.reason.to_owned(),
                    number(it.allowed),
                    it.disrupting.to_string(),
                    number(it.remaining),
                ]
            })
            .collect();
        out.line("")?;
        out.table(&["NODEPOOL", "REASON", "ALLOWED", "DISRUPTING", "REMAINING"], &rows)?;
    }
    Ok(())
}
