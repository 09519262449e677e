//! Which types a launch may use (`spec` aws-capacity 14).

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_model::{
    CapacityType, InstanceType, Offering, Requirements, Resources, labels,
    settings::MinValuesPolicy,
};

use super::{Selected, offering::allowed};
use crate::{
    capacity::{AMD_GPU, HABANA_GAUDI, NEURON, NEURON_CORE, NVIDIA_GPU},
    description::family_and_size,
};

/// Types in one CreateFleet call. As in Karpenter 1.x.
pub const MAX_TYPES: usize = 60;

/// Nothing is left to launch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoCapacity(pub String);

fn no_capacity(what: &str) -> NoCapacity {
    NoCapacity(what.to_owned())
}

/// Capacity types that the claim's requirements allow.
fn allows(requirements: &Requirements, capacity_type: CapacityType) -> bool {
    requirements.get(labels::CAPACITY_TYPE).is_none_or(|it| it.has(capacity_type.as_str()))
}

fn usable<'a>(
    it: &'a InstanceType,
    requirements: &'a Requirements,
) -> impl Iterator<Item = &'a Offering> {
    it.offerings.iter().filter(|offering| offering.available && allowed(offering, requirements))
}

fn price(offering: &Offering) -> f64 {
    offering.price.unwrap_or(f64::MAX)
}

fn cheapest(it: &InstanceType, requirements: &Requirements) -> Option<f64> {
    usable(it, requirements).map(price).min_by(f64::total_cmp)
}

/// Runs all filters, sorts and truncates, and chooses capacity type and tenancy.
///
/// # Errors
/// When nothing is left, or too few types for a strict `minValues`.
pub fn select(
    types: Vec<InstanceType>,
    requirements: &Requirements,
    requests: &Resources,
    policy: MinValuesPolicy,
) -> Result<Selected, NoCapacity> {
    let mut types = compatible(types, requirements, requests);
    if types.is_empty() {
        return Err(no_capacity(
            "no available instance type has the requested labels and resources",
        ));
    }
    let has_min_values = requirements.iter().any(|it| it.min_values.is_some());
    if allows(requirements, CapacityType::Reserved) {
        types = reservation_kind(types, requirements);
        types = capacity_block(types, requirements);
        types = fullest_reservation(types, requirements);
    }
    if !has_min_values {
        types = without_exotic(types);
        types = without_dear_spot(types, requirements);
    }
    if types.is_empty() {
        return Err(no_capacity("all available instance types were filtered out"));
    }
    let mut ranked: Vec<(f64, InstanceType)> =
        types.into_iter().map(|it| (cheapest(&it, requirements).unwrap_or(f64::MAX), it)).collect();
    // DIFFERENCE: Karpenter's order of equal prices changes from run to run.
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.name.cmp(&b.1.name)));
    let ranked: Vec<InstanceType> = ranked.into_iter().map(|it| it.1).collect();
    let types = cut(ranked, requirements);
    if has_min_values
        && policy == MinValuesPolicy::Strict
        && let Some(key) = short_of_min_values(&types, requirements)
    {
        return Err(NoCapacity(format!("no {MAX_TYPES} instance types meet minValues of {key}")));
    }
    let offers = |capacity_type: CapacityType| {
        allows(requirements, capacity_type)
            && types
                .iter()
                .any(|it| usable(it, requirements).any(|it| it.capacity_type == capacity_type))
    };
    let capacity_type = if offers(CapacityType::Reserved) {
        CapacityType::Reserved
    } else if offers(CapacityType::Spot) {
        CapacityType::Spot
    } else {
        CapacityType::OnDemand
    };
    let shared =
        requirements.get(labels::INSTANCE_TENANCY).is_none_or(|wanted| wanted.has("default"));
    Ok(Selected { types, capacity_type, tenancy: if shared { "default" } else { "dedicated" } })
}

/// 14.1.1: types whose labels fit, with an available offering in which the requests fit.
fn compatible(
    types: Vec<InstanceType>,
    requirements: &Requirements,
    requests: &Resources,
) -> Vec<InstanceType> {
    let fits = |it: &InstanceType| {
        let base = requests.fits(&it.allocatable());
        usable(it, requirements).any(|offering| {
            if offering.capacity.is_none() && offering.overhead.is_none() {
                base
            } else {
                requests.fits(&it.allocatable_of(offering))
            }
        })
    };
    types.into_iter().filter(|it| requirements.meets(&it.requirements) && fits(it)).collect()
}

/// Kinds of reservations that go into one call, in the order of ties.
fn kind(offering: &Offering) -> Option<usize> {
    let reservation = offering.reservation.as_ref()?;
    match (reservation.type_.as_str(), reservation.interruptible) {
        ("default", false) => Some(0),
        ("capacity-block", false) => Some(1),
        ("default", true) => Some(2),
        _ => None,
    }
}

/// 14.1.2: one call accepts one market, so one kind of reservation is chosen, by price.
fn reservation_kind(
    mut types: Vec<InstanceType>,
    requirements: &Requirements,
) -> Vec<InstanceType> {
    let chosen = types
        .iter()
        .flat_map(|it| usable(it, requirements))
        .filter_map(|it| Some((price(it), kind(it)?)))
        .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let Some((_, chosen)) = chosen else { return types };
    for it in &mut types {
        it.offerings.retain(|offering| {
            offering.available && kind(offering) == Some(chosen) && allowed(offering, requirements)
        });
    }
    types.retain(|it| !it.offerings.is_empty());
    types
}

/// 14.1.3: one call takes one capacity block.
fn capacity_block(mut types: Vec<InstanceType>, requirements: &Requirements) -> Vec<InstanceType> {
    let first = types
        .iter()
        .flat_map(|it| &it.offerings)
        .find_map(|it| it.reservation.as_ref().map(|it| it.type_.as_str()));
    if first != Some("capacity-block") {
        return types;
    }
    let is_block = |offering: &Offering| {
        offering.reservation.as_ref().is_some_and(|it| it.type_ == "capacity-block")
    };
    let best = types
        .iter()
        .flat_map(|it| {
            usable(it, requirements)
                .filter(|offering| is_block(offering))
                .map(|offering| (price(offering), it.name.clone(), offering.clone()))
        })
        .min_by(|a, b| a.0.total_cmp(&b.0).then_with(|| (&a.1, &a.2.zone).cmp(&(&b.1, &b.2.zone))));
    let Some((_, name, offering)) = best else { return types };
    types.retain(|it| it.name == name);
    for it in &mut types {
        it.offerings = vec![offering.clone()];
    }
    types
}

/// 14.1.4: per type and zone the reservation with most instances left.
fn fullest_reservation(types: Vec<InstanceType>, requirements: &Requirements) -> Vec<InstanceType> {
    let reduced: Vec<InstanceType> = types
        .iter()
        .filter_map(|it| {
            let mut best: BTreeMap<&str, &Offering> = BTreeMap::new();
            for offering in usable(it, requirements) {
                let Some(its) = &offering.reservation else { continue };
                let fuller = best
                    .get(offering.zone.as_str())
                    .and_then(|known| known.reservation.as_ref())
                    .is_none_or(|known| its.count > known.count);
                if fuller {
                    best.insert(&offering.zone, offering);
                }
            }
            (!best.is_empty()).then(|| InstanceType {
                offerings: best.into_values().cloned().collect(),
                ..it.clone()
            })
        })
        .collect();
    if reduced.is_empty() { types } else { reduced }
}

/// 14.1.5: bare metal and accelerators, unless there is nothing else.
fn without_exotic(types: Vec<InstanceType>) -> Vec<InstanceType> {
    let exotic = |it: &InstanceType| {
        let metal = family_and_size(&it.name).is_some_and(|(_, size)| size.contains("metal"));
        metal
            || [NEURON, NEURON_CORE, AMD_GPU, NVIDIA_GPU, HABANA_GAUDI]
                .iter()
                .any(|name| !it.capacity.get(name).is_zero())
    };
    if types.iter().all(exotic) {
        return types;
    }
    types.into_iter().filter(|it| !exotic(it)).collect()
}

/// 14.1.6: spot that costs more than the cheapest on-demand.
fn without_dear_spot(
    mut types: Vec<InstanceType>,
    requirements: &Requirements,
) -> Vec<InstanceType> {
    if !allows(requirements, CapacityType::Spot) || !allows(requirements, CapacityType::OnDemand) {
        return types;
    }
    let lowest = |capacity_type: CapacityType| {
        types
            .iter()
            .flat_map(|it| usable(it, requirements))
            .filter(|it| it.capacity_type == capacity_type)
            .map(price)
            .min_by(f64::total_cmp)
    };
    let (Some(on_demand), Some(_)) = (lowest(CapacityType::OnDemand), lowest(CapacityType::Spot))
    else {
        return types;
    };
    for it in &mut types {
        it.offerings.retain(|offering| {
            offering.capacity_type != CapacityType::Spot || price(offering) <= on_demand
        });
    }
    types.retain(|it| !it.offerings.is_empty());
    types
}

/// The first key whose `minValues` the types do not meet.
/// The cheapest types of a list that begins with the cheapest, as many as one call takes.
///
/// DIFFERENCE: Karpenter gives up when the cheapest alone lack variety. Here types that bring what `minValues` still lacks
/// take the places of the dearest of those that bring nothing.
fn cut(ranked: Vec<InstanceType>, requirements: &Requirements) -> Vec<InstanceType> {
    let plain = &ranked[..ranked.len().min(MAX_TYPES)];
    if short_of_min_values(plain, requirements).is_none() {
        return ranked.into_iter().take(MAX_TYPES).collect();
    }
    let mut lacking: Vec<(&str, usize, BTreeSet<&String>)> = requirements
        .iter()
        .filter_map(|it| Some((it.key.as_str(), usize::try_from(it.min_values?).ok()?)))
        .map(|(key, least)| (key, least, BTreeSet::new()))
        .collect();
    let mut brings_something = vec![false; ranked.len()];
    for (at, it) in ranked.iter().enumerate() {
        for (key, least, seen) in &mut lacking {
            let values = it.requirements.get(key).map(|it| &it.values);
            for value in values.into_iter().flatten() {
                brings_something[at] |= seen.len() < *least && seen.insert(value);
            }
        }
    }
    let n_needed = brings_something.iter().filter(|it| **it).count();
    if n_needed > MAX_TYPES || lacking.iter().any(|(_, least, seen)| seen.len() < *least) {
        return ranked.into_iter().take(MAX_TYPES).collect();
    }
    let mut n_others = MAX_TYPES - n_needed;
    let mut kept = Vec::new();
    for (needed, it) in brings_something.into_iter().zip(ranked) {
        if needed || n_others > 0 {
            n_others -= usize::from(!needed);
            kept.push(it);
        }
    }
    kept
}

fn short_of_min_values(types: &[InstanceType], requirements: &Requirements) -> Option<String> {
    requirements
        .iter()
        .find(|wanted| {
            let Some(least) = wanted.min_values else { return false };
            let values: BTreeSet<&String> = types
                .iter()
                .filter_map(|it| it.requirements.get(&wanted.key))
                .flat_map(|it| &it.values)
                .collect();
            (values.len() as i64) < i64::from(least)
        })
        .map(|it| it.key.clone())
}
