//! CapacityBuffers (`spec` api 15): what can be said of one without looking at the cluster.

use super::Problem;
use crate::{CapacityBuffer, FieldPath};

/// Kinds of API group `apps` whose replicas a buffer can follow.
const SCALABLE: &[&str] = &["Deployment", "ReplicaSet", "StatefulSet"];

/// Why a buffer can never be resolved, whatever is in the cluster; the reason of the condition is `ResolutionFailed`.
pub fn capacity_buffer(buffer: &CapacityBuffer) -> Vec<Problem> {
    let spec = FieldPath::parse("spec");
    match (&buffer.spec.pod_template_ref, &buffer.spec.scalable_ref) {
        (None, None) => {
            vec![Problem::new(spec, "Neither podTemplateRef nor scalableRef is set")]
        }
        (_, Some(scalable)) => {
            let is_apps = matches!(scalable.api_group.as_str(), "" | "apps");
            if is_apps && SCALABLE.contains(&scalable.kind.as_str()) {
                return Vec::new();
            }
            let message = format!(
                "scalableRef kind {:?} of API group {:?} is not supported, must be one of {} of apps",
                scalable.kind,
                scalable.api_group,
                SCALABLE.join(", ")
            );
            vec![Problem::new(spec.field("scalableRef").field("kind"), message)]
        }
        (Some(_), None) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::meta::from_value;

    #[test] // api 15, cases 1 and 6
    fn references() {
        for (spec, n_problems) in [
            (json!({}), 1),
            (json!({"podTemplateRef": {"name": "t"}}), 0),
            (json!({"scalableRef": {"kind": "Deployment", "name": "d"}}), 0),
            (json!({"scalableRef": {"apiGroup": "apps", "kind": "StatefulSet", "name": "d"}}), 0),
            (json!({"scalableRef": {"kind": "DaemonSet", "name": "d"}}), 1),
            (json!({"scalableRef": {"apiGroup": "batch", "kind": "Deployment", "name": "d"}}), 1),
        ] {
            let buffer: CapacityBuffer = from_value(json!({"spec": spec})).expect("a buffer");
            assert_eq!(capacity_buffer(&buffer).len(), n_problems, "{spec}");
        }
    }
}
