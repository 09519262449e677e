//! What nobody refuses and nobody wants: warnings.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;
use spokeshave_model::{
    EC2NodeClass, FieldPath, Kind, NodePool, Operator, Requirement,
    ami_family::{Alias, AmiFamily},
    budgets::REASONS,
    labels,
    node_pool::Budget,
    validation::Problem,
};

use crate::{
    market::{Lack, lack},
    runtime::read,
};

/// Agents that take a taint off a node once they run there: the DaemonSet or a part of its images' names, and the taint's key.
/// Source: the installation guides of Cilium and of the EBS, EFS, FSx and S3 drivers.
const AGENTS: &[(&str, &str, &str)] = &[
    ("cilium", "cilium/cilium", "node.cilium.io/agent-not-ready"),
    ("ebs-csi-node", "aws-ebs-csi-driver", "ebs.csi.aws.com/agent-not-ready"),
    ("efs-csi-node", "aws-efs-csi-driver", "efs.csi.aws.com/agent-not-ready"),
    ("fsx-csi-node", "aws-fsx-csi-driver", "fsx.csi.aws.com/agent-not-ready"),
    ("s3-csi-node", "aws-mountpoint-s3-csi-driver", "s3.csi.aws.com/agent-not-ready"),
];

/// The taint that an agent takes away, if `object` is the DaemonSet of one: the agent's name and the taint's key.
pub fn agent(kind: &str, object: &Value) -> Option<(&'static str, &'static str)> {
    if kind != "DaemonSet" {
        return None;
    }
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    let containers = object.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let images: Vec<&str> =
        containers.into_iter().flatten().filter_map(|it| it.get("image")?.as_str()).collect();
    let found = AGENTS.iter().find(|(agent, image, _)| {
        // The image's own name: what follows the tag or digest says nothing.
        let is_its = |it: &&str| it.split([':', '@']).next().unwrap_or(it).ends_with(image);
        name == Some(*agent) || images.iter().any(is_its)
    });
    found.map(|(agent, _, taint)| (*agent, *taint))
}

/// Agents that the cluster runs, with the keys of their taints.
pub type Agents = BTreeSet<(&'static str, &'static str)>;

/// Annotations of a NodePool that are `replace` or mean nothing, and what is done without them.
const CHOICES: [(&str, &str); 2] = [
    (labels::EXPIRATION, "nodes that reach expireAfter are deleted at once, whatever budgets say"),
    (labels::REBALANCE, "rebalance recommendations are not acted on"),
];

/// Longest name that can be a label value, and most requirements of a claim.
const MAX_LABEL: usize = 63;
const MAX_REQUIREMENTS: usize = 100;

/// Warnings about an object of `kind`. `at` is the time that schedules are looked at from, `agents` run on every node.
pub fn warnings(kind: &str, object: &Value, agents: &Agents, at: Timestamp) -> Vec<Problem> {
    match kind {
        NodePool::KIND => read::<NodePool>(object).map_or_else(Vec::new, |it| {
            let class = &it.spec.template.spec.node_class_ref;
            match class.unserved() {
                Some(problem) => {
                    let field = FieldPath::parse("spec.template.spec.nodeClassRef.kind");
                    vec![Problem::new(field, format!("{problem}: the pool makes no nodes"))]
                }
                None if class.is_managed() => node_pool(&it, agents, at),
                None => Vec::new(),
            }
        }),
        EC2NodeClass::KIND => {
            read::<EC2NodeClass>(object).map_or_else(Vec::new, |it| node_class(&it, object))
        }
        _ => Vec::new(),
    }
}

fn long_name(name: &str) -> Option<Problem> {
    (name.len() > MAX_LABEL).then(|| {
        let message = format!(
            "the name has {} characters, but becomes a label value, which has at most {MAX_LABEL}: no NodeClaim can \
             ever be created",
            name.len()
        );
        Problem::new(FieldPath::parse("metadata.name"), message)
    })
}

fn node_pool(pool: &NodePool, agents: &Agents, at: Timestamp) -> Vec<Problem> {
    let template = &pool.spec.template;
    let spec = FieldPath::parse("spec.template.spec");
    let mut problems: Vec<Problem> = long_name(&pool.metadata.name).into_iter().collect();
    let n_requirements = template.spec.requirements.len() + template.metadata.labels.len();
    if n_requirements > MAX_REQUIREMENTS {
        let message = format!(
            "{n_requirements} labels and requirements, but a NodeClaim holds at most {MAX_REQUIREMENTS} requirements"
        );
        problems.push(Problem::new(spec.field("requirements"), message));
    }
    let n_before = problems.len();
    // A key that allows nothing: requirements against each other, or against a label.
    let mut allowed: BTreeMap<String, Requirement> = BTreeMap::new();
    for (key, value) in &template.metadata.labels {
        let it = Requirement::equals(labels::normalize(key), value);
        allowed.insert(it.key.clone(), it);
    }
    for (index, it) in template.spec.requirements.iter().enumerate() {
        let one = Requirement::from(it);
        let allows_nothing = |it: &Requirement| it.operator() == Operator::DoesNotExist;
        let nothing_before = allowed.get(&one.key).is_some_and(allows_nothing);
        let both = match allowed.get(&one.key) {
            Some(other) => other.intersect(&one),
            None => one.clone(),
        };
        if allows_nothing(&both) && !allows_nothing(&one) && !nothing_before {
            let message = format!(
                "label and requirements for {:?} together allow no value: the pool makes no nodes",
                one.key
            );
            problems.push(Problem::new(spec.field("requirements").index(index), message));
        }
        allowed.insert(one.key.clone(), both);
    }
    if problems.len() == n_before {
        problems.extend(lack(allowed.values()).map(|it| {
            let message = match it {
                Lack::Types(n) => format!(
                    "none of the {n} instance types that are known satisfies the requirements: the pool makes no nodes"
                ),
                Lack::Values(key, n) => format!(
                    "the instance types that satisfy the requirements have {n} values of {key:?}, fewer than minValues"
                ),
            };
            Problem::new(spec.field("requirements"), message)
        }));
    }
    problems.extend(agent_taints(pool, agents));
    for (key, otherwise) in CHOICES {
        if let Some(value) = pool.metadata.annotation(key).filter(|it| *it != "replace") {
            let message =
                format!("{value:?} means nothing here, only \"replace\" does: {otherwise}");
            problems.push(Problem::new(FieldPath::parse("metadata.annotations").key(key), message));
        }
    }
    let budgets = pool.spec.disruption.as_ref().and_then(|it| it.budgets.as_ref());
    problems.extend(only_in_windows(budgets.map_or(&[], Vec::as_slice), at));
    for (index, budget) in budgets.into_iter().flatten().enumerate() {
        let path = FieldPath::parse("spec.disruption.budgets").index(index);
        if budget.reasons.as_ref().is_some_and(Vec::is_empty) {
            let message =
                "an empty list of reasons limits nothing; leave reasons out to limit everything";
            problems.push(Problem::new(path.field("reasons"), message));
        }
        if let Ok(Some((schedule, _))) = budget.timing()
            && schedule.next_after(at).is_none()
        {
            let message =
                "the schedule has no hit within five years, which counts as always active";
            problems.push(Problem::new(path.field("schedule"), message));
        }
    }
    problems
}

/// Taints of agents that are where they hold pods back for ever, or nowhere.
fn agent_taints(pool: &NodePool, agents: &Agents) -> Vec<Problem> {
    let template = &pool.spec.template.spec;
    let path = FieldPath::parse("spec.template.spec");
    let mut problems = Vec::new();
    for (index, taint) in template.taints.iter().enumerate() {
        if AGENTS.iter().any(|it| it.2 == taint.key) {
            let message = format!(
                "{} goes away by itself, but pods that do not tolerate it are never planned for; move it to startupTaints",
                taint.key
            );
            problems.push(Problem::new(path.field("taints").index(index), message));
        }
    }
    for (agent, key) in agents {
        let mut all = template.startup_taints.iter().chain(template.taints.iter());
        if !all.any(|it| it.key == *key) {
            let message = format!(
                "{agent} runs in the cluster, and pods may start before it is ready; add {key} to startupTaints"
            );
            problems.push(Problem::new(path.field("startupTaints"), message));
        }
    }
    problems
}

/// Most windows in a row that are looked through for a gap.
const MAX_WINDOWS: usize = 64;

/// Budgets that limit something in their windows alone: between them nothing is limited.
fn only_in_windows(budgets: &[Budget], at: Timestamp) -> Option<Problem> {
    for reason in REASONS {
        let of_reason: Vec<(usize, &Budget)> = budgets
            .iter()
            .enumerate()
            .filter(|(_, it)| it.reasons.as_ref().is_none_or(|it| it.iter().any(|it| it == reason)))
            .collect();
        let Some((index, _)) = of_reason.first() else { continue };
        if has_gap(&of_reason, at) {
            let message = format!(
                "budgets for {reason} all have a schedule: outside their windows nothing limits disruption; add a budget \
                 without a schedule"
            );
            let path = FieldPath::parse("spec.disruption.budgets").index(*index);
            return Some(Problem::new(path.field("schedule"), message));
        }
    }
    None
}

/// Whether there is a time from `at` on at which none is active. Budgets that cannot be evaluated limit everything.
fn has_gap(budgets: &[(usize, &Budget)], at: Timestamp) -> bool {
    let mut time = at;
    for _ in 0..MAX_WINDOWS {
        let mut until = None;
        for (_, budget) in budgets {
            match budget.is_active(time) {
                Ok(false) => {}
                Ok(true) => match budget.active_until(time) {
                    Ok(Some(end)) => until = until.max(Some(end)),
                    _ => return false,
                },
                Err(_) => return false,
            }
        }
        match until {
            Some(end) => time = end,
            None => return true,
        }
    }
    false
}

fn node_class(class: &EC2NodeClass, object: &Value) -> Vec<Problem> {
    let mut problems: Vec<Problem> = long_name(&class.metadata.name).into_iter().collect();
    if object.get("spec").is_none_or(Value::is_null) {
        let message = "without spec nothing can be found, so the class never becomes ready";
        problems.push(Problem::new(FieldPath::parse("spec"), message));
        return problems;
    }
    let spec = FieldPath::parse("spec");
    for (field, others, what) in [
        ("subnetSelectorTerms", &["tags"][..], "subnet"),
        ("securityGroupSelectorTerms", &["tags", "name"], "security group"),
        (
            "capacityReservationSelectorTerms",
            &["tags", "ownerID", "instanceMatchCriteria"],
            "capacity reservation",
        ),
        ("amiSelectorTerms", &[], "image"),
    ] {
        let terms = object["spec"].get(field).and_then(Value::as_array).into_iter().flatten();
        for (index, term) in terms.enumerate() {
            let path = spec.field(field).index(index);
            let tags = term.get("tags").and_then(Value::as_object);
            let has_more = ["id", "name", "alias", "ssmParameter", "instanceMatchCriteria"]
                .iter()
                .any(|it| term.get(it).is_some());
            if tags.is_some_and(serde_json::Map::is_empty) && !has_more {
                let message = if what == "capacity reservation" {
                    "no tags in a term that has nothing else: it selects no capacity reservation"
                        .into()
                } else {
                    format!(
                        "no tags in a term that has nothing else: it would select every {what} of the account, so it \
                         is not resolved"
                    )
                };
                problems.push(Problem::new(path.field("tags"), message));
            }
            if term.get("id").is_some()
                && let Some(ignored) = others.iter().find(|it| term.get(**it).is_some())
            {
                let message =
                    format!("{ignored} beside id has no effect; make it a term of its own");
                problems.push(Problem::new(path.field(ignored), message));
            }
        }
    }
    for (index, term) in class.spec.ami_selector_terms.iter().enumerate() {
        let alias = term.alias.as_deref().and_then(Alias::parse);
        // Windows knows no other version.
        let is_windows = |it: AmiFamily| {
            matches!(it, AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025)
        };
        if alias.is_some_and(|it| it.version == "latest" && !is_windows(it.family)) {
            let path = spec.field("amiSelectorTerms").index(index).field("alias");
            let message = "every new image release replaces all nodes of the class; pin a version, as al2023@v20250115 \
                           does, and raise it when you have tested it";
            problems.push(Problem::new(path, message));
        }
        if let Some(alias) = term.alias.as_ref().filter(|it| Alias::parse(it).is_none()) {
            let path = spec.field("amiSelectorTerms").index(index).field("alias");
            let message = format!("alias {alias:?} has more than one @ and finds no image");
            problems.push(Problem::new(path, message));
        }
    }
    for (index, mapping) in class.spec.block_device_mappings.iter().enumerate() {
        let size = mapping.ebs.as_ref().and_then(|it| it.volume_size.as_ref());
        if let Some(size) = size.filter(|it| it.parse::<spokeshave_model::Quantity>().is_err()) {
            let path =
                spec.field("blockDeviceMappings").index(index).field("ebs").field("volumeSize");
            problems.push(Problem::new(path, format!("volume size {size:?} has no number")));
        }
    }
    problems
}
