//! NodeOverlays (`spec` api 14.1).

use super::{Problem, requirement};
use crate::{FieldPath, NodeOverlay, Operator};

/// Resources that every instance type already has a figure for, and that an overlay therefore may not give.
/// `nvidia.com/gpu` and `amd.com/gpu` are not among them: that is how fractional GPUs are made usable.
const RESTRICTED: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "pods",
    "vpc.amazonaws.com/pod-eni",
    "aws.amazon.com/neuron",
    "aws.amazon.com/neuroncore",
    "habana.ai/gaudi",
    "vpc.amazonaws.com/efa",
];

/// What is wrong with a stored overlay by itself: requirements, then capacity. Conflicts between overlays are found while they are
/// applied.
pub fn node_overlay(overlay: &NodeOverlay) -> Vec<Problem> {
    let spec = FieldPath::parse("spec");
    let mut problems = Vec::new();
    for (index, it) in overlay.spec.requirements.iter().enumerate() {
        let at = spec.field("requirements").index(index);
        let mut whys = requirement(it);
        if it.operator == Operator::NotIn && it.values.is_empty() {
            whys.push(format!("key {} with operator NotIn must have a value defined", it.key));
        }
        for why in whys {
            let message = format!("invalid value: {why} in requirements, restricted");
            problems.push(Problem::new(at.clone(), message));
        }
    }
    for (name, _) in overlay.spec.capacity.iter().flat_map(crate::Resources::iter) {
        if RESTRICTED.contains(&name) {
            let message = format!("invalid capacity: {name} in resource, restricted");
            problems.push(Problem::new(spec.field("capacity").key(name), message));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::meta::from_value;

    #[test] // api 14, case 4
    fn capacity_that_types_have_already_is_restricted() {
        let of = |spec| {
            let overlay: NodeOverlay =
                from_value(json!({"metadata": {"name": "o"}, "spec": spec})).expect("an overlay");
            let found = node_overlay(&overlay);
            found.into_iter().map(|it| format!("{}: {}", it.field, it.message)).collect::<Vec<_>>()
        };
        assert_eq!(
            of(json!({"capacity": {"vpc.amazonaws.com/efa": 1}})),
            [
                "spec.capacity[vpc.amazonaws.com/efa]: invalid capacity: vpc.amazonaws.com/efa in resource, restricted"
            ]
        );
        assert!(of(json!({"capacity": {"nvidia.com/gpu": 1}})).is_empty());
        assert_eq!(
            of(json!({"requirements": [{"key": "team", "operator": "NotIn"}]})),
            [
                "spec.requirements[0]: invalid value: key team with operator NotIn must have a value defined in \
              requirements, restricted"
            ]
        );
        assert!(
            of(json!({"requirements": [{"key": "karpenter.sh/nodepool", "operator": "Exists"}]}))
                .is_empty()
        );
    }
}
