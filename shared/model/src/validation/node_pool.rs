//! NodePools (`spec` api 4.4).

use std::collections::BTreeSet;

use super::{Problem, names, requirement, requirements::is_restricted};
use crate::{FieldPath, NodePool, Taint, budgets::BudgetError, labels};

/// What is wrong with a stored pool: labels by key, then taints, requirements, the pool's own key, budgets.
///
/// DIFFERENCE: Karpenter reports labels in no particular order, checks taint values as keys only although nodes refuse such
/// taints, and only logs a budget that cannot be evaluated while all voluntary disruption silently stops.
pub fn node_pool(pool: &NodePool) -> Vec<Problem> {
    let template = &pool.spec.template;
    let spec = FieldPath::parse("spec.template.spec");
    let mut problems = Vec::new();
    let labels_path = FieldPath::parse("spec.template.metadata.labels");
    for (key, value) in &template.metadata.labels {
        let at = labels_path.key(key);
        problems.extend(label(key, value).into_iter().map(|it| Problem::new(at.clone(), it)));
    }
    let mut seen = BTreeSet::new();
    for (name, taints) in
        [("taints", &template.spec.taints), ("startupTaints", &template.spec.startup_taints)]
    {
        for (index, taint) in taints.iter().enumerate() {
            let at = spec.field(name).index(index);
            for (field, message) in taint_problems(taint, name) {
                problems.push(Problem::new(at.field(field), message));
            }
            if !seen.insert((taint.key.clone(), taint.effect)) {
                let message =
                    format!("duplicate taint Key/Effect pair {}={:?}", taint.key, taint.effect);
                problems.push(Problem::new(at, message));
            }
        }
    }
    for (index, it) in template.spec.requirements.iter().enumerate() {
        let at = spec.field("requirements").index(index);
        for why in requirement(it) {
            let message = format!("invalid value: {why} in requirements, restricted");
            problems.push(Problem::new(at.clone(), message));
        }
    }
    for (index, it) in template.spec.requirements.iter().enumerate() {
        if it.key == labels::NODEPOOL {
            let at = spec.field("requirements").index(index).field("key");
            let message = format!("invalid key: {:?} in requirements, restricted", it.key);
            problems.push(Problem::new(at, message));
        }
    }
    let budgets = FieldPath::parse("spec.disruption.budgets");
    for (index, budget) in pool.budgets().iter().enumerate() {
        let at = budgets.index(index);
        if let Err(error) = budget.timing() {
            let field = match error {
                BudgetError::Schedule { .. } => at.field("schedule"),
                BudgetError::Duration(_) => at.field("duration"),
                BudgetError::Nodes(_) | BudgetError::Incomplete => at.clone(),
            };
            problems.push(Problem::new(field, format!("invalid budget: {error}")));
        }
        if let Err(error) = budget.value(0) {
            problems.push(Problem::new(at.field("nodes"), format!("invalid budget: {error}")));
        }
    }
    problems
}

fn label(key: &str, value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key == labels::NODEPOOL {
        problems.push(format!("invalid key name {key:?} in labels, restricted"));
    }
    for why in names::qualified_name(key) {
        problems.push(format!("invalid key name {key:?} in labels, {why:?}"));
    }
    for why in names::label_value(value) {
        problems.push(format!("invalid value: {value} for label[{key}], {why}"));
    }
    if let Some(why) = is_restricted(key) {
        problems.push(format!("invalid key name {key:?} in labels, {why}"));
    }
    problems
}

/// What is wrong with one taint, each with the field of it.
fn taint_problems(taint: &Taint, list: &str) -> Vec<(&'static str, String)> {
    let mut problems = Vec::new();
    for why in names::qualified_name(&taint.key) {
        problems.push(("key", format!("invalid value: {why} in {list}")));
    }
    if !taint.value.is_empty() {
        let as_key = names::qualified_name(&taint.value);
        let whys = if as_key.is_empty() { names::label_value(&taint.value) } else { as_key };
        for why in whys {
            problems.push(("value", format!("invalid value: {why} in {list}")));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::meta::from_value;

    fn messages(template: &Value) -> Vec<String> {
        let pool = json!({"metadata": {"name": "p"}, "spec": {"template": template}});
        let pool: NodePool = from_value(pool).expect("a NodePool");
        node_pool(&pool).into_iter().map(|it| format!("{}: {}", it.field, it.message)).collect()
    }

    fn labelled(key: &str, value: &str) -> Vec<String> {
        messages(&json!({"metadata": {"labels": {key: value}}}))
    }

    #[test] // api 4, cases 4 and 5
    fn labels_of_the_template() {
        assert!(labelled("karpenter.k8s.aws/instance-size", "large").is_empty());
        assert!(labelled("node-role.kubernetes.io/x", "").is_empty());
        assert!(labelled("kubernetes.io/custom", "a").is_empty());
        assert!(labelled("kops.k8s.io/instancegroup", "b").is_empty());
        let class = labelled("karpenter.k8s.aws/ec2nodeclass", "default");
        assert_eq!(class.len(), 1);
        assert!(class[0].starts_with(
            "spec.template.metadata.labels[karpenter.k8s.aws/ec2nodeclass]: invalid key name \
             \"karpenter.k8s.aws/ec2nodeclass\" in labels, using label karpenter.k8s.aws/ec2nodeclass is not allowed"
        ));
        assert_eq!(
            labelled(labels::NODEPOOL, "me"),
            ["spec.template.metadata.labels[karpenter.sh/nodepool]: invalid key name \
              \"karpenter.sh/nodepool\" in labels, restricted"]
        );
        assert_eq!(labelled("kubernetes.io/hostname", "h").len(), 1);
        assert!(
            labelled("team", "a b")[0]
                .contains("invalid value: a b for label[team], a valid label must")
        );
    }

    #[test] // api 4, case 10
    fn taints() {
        let same = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}],
                                   "startupTaints": [{"key": "a", "effect": "NoSchedule"}]}});
        assert_eq!(
            messages(&same),
            ["spec.template.spec.startupTaints[0]: duplicate taint Key/Effect pair a=NoSchedule"]
        );
        let other = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}],
                                    "startupTaints": [{"key": "a", "effect": "NoExecute"}]}});
        assert!(messages(&other).is_empty());
        let slash =
            json!({"spec": {"taints": [{"key": "a", "value": "a/b", "effect": "NoSchedule"}]}});
        assert_eq!(messages(&slash).len(), 1);
        let bad = json!({"spec": {"startupTaints": [{"key": "", "effect": "NoSchedule"}]}});
        assert_eq!(
            messages(&bad)[0],
            "spec.template.spec.startupTaints[0].key: invalid value: name part must be non-empty in startupTaints"
        );
    }

    #[test] // api 5, case 12
    fn a_budget_that_cannot_be_evaluated_is_said() {
        let pool = json!({"spec": {"disruption": {"budgets": [
            {"nodes": "1"}, {"nodes": "1", "schedule": "0 0 * * tue-mon", "duration": "6h"}]}}});
        let pool: NodePool = from_value(pool).expect("a NodePool");
        let problems = node_pool(&pool);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].field.to_string(), "spec.disruption.budgets[1].schedule");
        assert_eq!(
            problems[0].message,
            "invalid budget: schedule \"0 0 * * tue-mon\": beginning of range (2) beyond end of range (1): tue-mon"
        );
    }

    #[test]
    fn the_pool_key_is_not_a_requirement() {
        let pool = json!({"spec": {"requirements": [
            {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["a"]},
            {"key": "team", "operator": "In", "values": []}]}});
        assert_eq!(
            messages(&pool),
            [
                "spec.template.spec.requirements[1]: invalid value: key team with operator In must have a value \
                 defined in requirements, restricted",
                "spec.template.spec.requirements[0].key: invalid key: \"karpenter.sh/nodepool\" in requirements, \
                 restricted",
            ]
        );
    }
}
