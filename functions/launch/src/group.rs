//! Which claims can share a fleet.

use std::collections::BTreeMap;

use serde_json::json;
use spokeshave_model::labels;

use crate::claims::Claim;

/// Claims in one fleet at most. EC2 would take more; a request that fails then fails for all.
const MAX_TARGET: usize = 100;

/// Sorts claims into groups whose requests would be equal: all that shapes templates, overrides and tags is the same.
pub fn alike(claims: Vec<Claim>) -> Vec<Vec<Claim>> {
    let mut groups: BTreeMap<String, Vec<Claim>> = BTreeMap::new();
    for claim in claims {
        groups.entry(shape(&claim)).or_default().push(claim);
    }
    groups
        .into_values()
        .flat_map(|mut group| {
            group.sort_by(|a, b| a.metadata.uid.cmp(&b.metadata.uid));
            let mut parts = Vec::new();
            while group.len() > MAX_TARGET {
                let rest = group.split_off(MAX_TARGET);
                parts.push(std::mem::replace(&mut group, rest));
            }
            parts.push(group);
            parts
        })
        .collect()
}

/// Everything of a claim that a request depends on, as text.
fn shape(claim: &Claim) -> String {
    let spec = &claim.spec;
    let annotation = |key: &str| claim.metadata.annotation(key);
    json!([
        spec.node_class_ref,
        claim.metadata.labels,
        spec.requirements,
        spec.resources,
        spec.taints,
        spec.startup_taints,
        annotation(labels::PRICE_OVERLAY_APPLIED).is_some(),
        annotation(labels::MIN_VALUES_RELAXED) == Some("true"),
    ])
    .to_string()
}
