//! Whether taking nodes away, perhaps for one cheaper node, is worth it (lifecycle 20).

use std::{collections::BTreeMap, sync::Arc};

use spokeshave_model::{
    CapacityType, InstanceType, NodeClaim, NodeSelectorRequirement, Operator, Requirement,
    Requirements, labels,
};

use crate::{
    candidates::Candidate,
    cluster::View,
    command::{Command, CommandCandidate, Method, Replacement},
    pricing::{
        OfferingFilter, cheapest, min_values_error, needed_for_min_values, price_for_labels,
        sort_by_price, worst_launch_price,
    },
    simulation::{NewClaim, Simulation},
};

/// A single spot node is replaced by a spot node only when so many cheaper types are left. Source: Karpenter 1.x.
pub const SPOT_TO_SPOT_MIN_TYPES: usize = 15;

/// What is to be done with some candidates.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing, for this reason.
    Keep(String),
    /// They can go: everything fits elsewhere.
    Delete,
    /// They can go once this one is there.
    Replace(Box<NewClaim>),
}

/// Decides for `candidates` given what the scheduler says.
pub fn decide(
    candidates: &[&Candidate],
    simulation: &Simulation,
    spot_to_spot_enabled: bool,
) -> Decision {
    if let Some(objection) = simulation.objection() {
        return Decision::Keep(objection);
    }
    let claim = match simulation.new_claims.as_slice() {
        [] => return Decision::Delete,
        [one] => one,
        more => {
            return Decision::Keep(format!(
                "Can't remove without creating {} candidates",
                more.len()
            ));
        }
    };
    let price: f64 = candidates.iter().map(|it| it.price).sum();
    let allows = |claim: &NewClaim, capacity_type: CapacityType| {
        claim
            .requirements
            .get(labels::CAPACITY_TYPE)
            .is_none_or(|it| it.has(capacity_type.as_str()))
    };
    let all_spot = candidates.iter().all(|it| it.capacity_type == Some(CapacityType::Spot));
    if all_spot && allows(claim, CapacityType::Spot) {
        return spot_to_spot(candidates.len(), claim, price, spot_to_spot_enabled);
    }
    let mut instance_types = match cheaper(&claim.requirements, &claim.instance_types, price) {
        Ok(left) => left,
        Err(why) => return Decision::Keep(why),
    };
    // Few are left by now, mostly none.
    sort_by_price(&mut instance_types, &claim.requirements);
    let mut claim = NewClaim { instance_types: instance_types.into(), ..claim.like() };
    // The price test counted on spot; falling back to on-demand could be dearer than what is replaced.
    // DIFFERENCE: where no type that is left can be bought as spot, on-demand is what was priced, and what stays;
    // Karpenter would order spot in vain.
    if allows(&claim, CapacityType::Spot) && allows(&claim, CapacityType::OnDemand) {
        let any_spot = {
            let filter = OfferingFilter::new(&claim.requirements);
            claim.instance_types.iter().flat_map(|it| &it.offerings).any(|it| {
                it.capacity_type == CapacityType::Spot && it.available && filter.allows(it)
            })
        };
        if any_spot {
            restrict_to(&mut claim, CapacityType::Spot);
        } else {
            restrict_to(&mut claim, CapacityType::OnDemand);
        }
    }
    Decision::Replace(Box::new(claim))
}

fn spot_to_spot(n_candidates: usize, claim: &NewClaim, price: f64, enabled: bool) -> Decision {
    if !enabled {
        return Decision::Keep(
            "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
                .into(),
        );
    }
    let mut replacement = claim.like();
    restrict_to(&mut replacement, CapacityType::Spot);
    let mut left = match cheaper(&replacement.requirements, &claim.instance_types, price) {
        Ok(left) => left,
        Err(why) => return Decision::Keep(why),
    };
    sort_by_price(&mut left, &replacement.requirements);
    if n_candidates > 1 {
        replacement.instance_types = left.into();
        return Decision::Replace(Box::new(replacement));
    }
    let n = left.len();
    if n < SPOT_TO_SPOT_MIN_TYPES {
        return Decision::Keep(format!(
            "SpotToSpotConsolidation requires {SPOT_TO_SPOT_MIN_TYPES} cheaper instance type options than the current candidate to consolidate, got {n}"
        ));
    }
    // Without the cut the launch could end outside the cheapest and be consolidated again and again.
    let needed = needed_for_min_values(&left, &replacement.requirements).unwrap_or(n);
    left.truncate(SPOT_TO_SPOT_MIN_TYPES.max(needed));
    replacement.instance_types = left.into();
    Decision::Replace(Box::new(replacement))
}

/// The types whose worst launch price is below `price` (those that cannot be bought have none); why not, when that leaves
/// too few.
fn cheaper(
    requirements: &Requirements,
    types: &[Arc<InstanceType>],
    price: f64,
) -> Result<Vec<Arc<InstanceType>>, String> {
    let filter = OfferingFilter::new(requirements);
    // Most types are dearer however they are bought: nobody has to ask what the requirements allow.
    let may_be = |it: &InstanceType| {
        it.offerings.iter().any(|it| it.price.is_some_and(|offered| offered < price))
    };
    let left: Vec<Arc<InstanceType>> = types
        .iter()
        .filter(|it| may_be(it) && worst_launch_price(it, &filter) < price)
        .cloned()
        .collect();
    if left.is_empty() {
        return Err("Can't replace with a cheaper node".into());
    }
    match needed_for_min_values(&left, requirements) {
        Ok(_) => Ok(left),
        Err(keys) => Err(format!("Filtering by price: {}", min_values_error(&keys))),
    }
}

fn restrict_to(claim: &mut NewClaim, capacity_type: CapacityType) {
    claim.requirements.add(Requirement::equals(labels::CAPACITY_TYPE, capacity_type.as_str()));
}

/// Takes replacement types out that are no improvement on a candidate of the same type: replacing two big nodes and a
/// small one by a small one is deleting the two big ones with churn added. Returns whether anything is left.
pub fn keep_unlike_candidates(
    view: &View,
    candidates: &[&Candidate],
    claim: &mut NewClaim,
) -> bool {
    let mut lowest: BTreeMap<&str, f64> = BTreeMap::new();
    for candidate in candidates {
        let Some(it) = &candidate.instance_type else { continue };
        let labels = view.nodes.get(candidate.at).and_then(|it| it.labels());
        let price = labels.and_then(|labels| price_for_labels(it, labels)).unwrap_or(0.0);
        lowest.entry(&it.name).and_modify(|lowest| *lowest = lowest.min(price)).or_insert(price);
    }
    let bound = claim
        .instance_types
        .iter()
        .filter_map(|it| lowest.get(it.name.as_str()))
        .fold(f64::INFINITY, |bound, price| bound.min(*price));
    let filter = OfferingFilter::new(&claim.requirements);
    let better = |it: &&Arc<InstanceType>| worst_launch_price(it, &filter) < bound;
    claim.instance_types = claim.instance_types.iter().filter(better).cloned().collect();
    !claim.instance_types.is_empty()
        && needed_for_min_values(&claim.instance_types, &claim.requirements).is_ok()
}

/// What a command would save: the candidates' prices less the cheapest offering of each new claim's first type.
pub fn estimated_saving(candidates: &[&Candidate], new_claims: &[&NewClaim]) -> f64 {
    let before: f64 = candidates.iter().map(|it| it.price).sum();
    let after: f64 = new_claims.iter().map(|it| launch_price(it).unwrap_or(0.0)).sum();
    before - after
}

/// The cheapest available offering of the first type.
pub fn launch_price(claim: &NewClaim) -> Option<f64> {
    cheapest(claim.instance_types.first()?, &OfferingFilter::new(&claim.requirements))
}

/// The command for a decision that was taken.
pub fn command(
    view: &View,
    method: Method,
    candidates: &[&Candidate],
    new_claims: &[&NewClaim],
    simulation: &Simulation,
) -> Command {
    Command {
        method,
        candidates: candidates.iter().map(|it| CommandCandidate::new(view, it, method)).collect(),
        replacements: new_claims.iter().map(|it| replacement(it)).collect(),
        saving: estimated_saving(candidates, new_claims),
        placements: simulation.placements.clone(),
        pending: simulation.pending(),
    }
}

/// The claim as it is to be created, its lists written from what the filters left.
pub fn replacement(new: &NewClaim) -> Replacement {
    let filter = OfferingFilter::new(&new.requirements);
    let mut capacity_types: Vec<CapacityType> = new
        .instance_types
        .iter()
        .flat_map(|it| it.offerings.iter())
        .filter(|it| it.available && filter.allows(it))
        .map(|it| it.capacity_type)
        .collect();
    capacity_types.sort_unstable_by_key(|it| it.as_str());
    capacity_types.dedup();
    let mut claim = new.claim.made();
    set_lists(&mut claim, &new.instance_types, &capacity_types);
    Replacement {
        pool: new.pool.clone(),
        claim,
        instance_types: new.instance_types.iter().map(|it| it.name.clone()).collect(),
        capacity_types: capacity_types.iter().map(|it| it.as_str().to_owned()).collect(),
        price: launch_price(new),
    }
}

/// Writes the requirements of instance type and capacity type; `minValues` stays. Static claims have no lists.
fn set_lists(claim: &mut NodeClaim, types: &[Arc<InstanceType>], capacity_types: &[CapacityType]) {
    let mut names: Vec<String> = types.iter().map(|it| it.name.clone()).collect();
    names.sort_unstable();
    let capacity_types = capacity_types.iter().map(|it| it.as_str().to_owned()).collect();
    for (key, values) in [(labels::INSTANCE_TYPE, names), (labels::CAPACITY_TYPE, capacity_types)] {
        if values.is_empty() {
            continue;
        }
        let min_values = claim
            .spec
            .requirements
            .iter()
            .filter(|it| it.key == key)
            .filter_map(|it| it.min_values)
            .max();
        claim.spec.requirements.retain(|it| it.key != key);
        claim.spec.requirements.push(NodeSelectorRequirement {
            key: key.to_owned(),
            operator: Operator::In,
            values,
            min_values,
        });
    }
    claim.spec.requirements.sort_by(|a, b| a.key.cmp(&b.key));
}
