//! What nobody refuses and nobody wants: warnings.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use spokeshave_model::{
    EC2NodeClass, FieldPath, Kind, NodePool, Operator, Requirement, ami_family::Alias,
    validation::Problem,
};

use crate::runtime::read;

/// Longest name that can be a label value, and most requirements of a claim.
const MAX_LABEL: usize = 63;
const MAX_REQUIREMENTS: usize = 100;

/// Warnings about an object of `kind`. `at` is the time that schedules are looked at from.
pub fn warnings(kind: &str, object: &Value, at: Timestamp) -> Vec<Problem> {
    match kind {
        NodePool::KIND => read::<NodePool>(object)
            .filter(NodePool::is_managed)
            .map_or_else(Vec::new, |it| node_pool(&it, at)),
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

fn node_pool(pool: &NodePool, at: Timestamp) -> Vec<Problem> {
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
    // A key that allows nothing: requirements against each other, or against a label.
    let mut allowed: BTreeMap<String, Requirement> = BTreeMap::new();
    for (key, value) in &template.metadata.labels {
        let it = Requirement::equals(spokeshave_model::labels::normalize(key), value);
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
    let budgets = pool.spec.disruption.as_ref().and_then(|it| it.budgets.as_ref());
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
                let message = format!(
                    "no tags in a term that has nothing else: it would select every {what} of the account, so it is \
                     not resolved"
                );
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
