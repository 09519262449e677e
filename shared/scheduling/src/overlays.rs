//! NodeOverlays: what the planner is made to believe about prices and capacity (`spec` scheduling 20, api 14).

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;
use spokeshave_model::{
    InstanceType, NodeOverlay, NodePool, Requirement, Requirements, Resources, labels, validation,
};

use crate::{planner::PoolInput, templates::Template};

/// Message of an overlay that claims what another one of the same weight has claimed.
pub const CONFLICT: &str = "conflict with another overlay";

/// What became of an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Applied,
    /// Condition reason `RuntimeValidation`.
    Invalid(String),
    /// Condition reason `Conflict`, message [`CONFLICT`].
    Conflict,
}

/// What is stored for one instance type of one pool.
#[derive(Clone, Debug, Default)]
struct Stored<'a> {
    /// By offering: the overlay whose price counts, and the weight of the last one that claimed it.
    prices: BTreeMap<usize, (&'a NodeOverlay, i32)>,
    /// By resource: the amount, and the weights of all overlays that named it.
    capacity: BTreeMap<&'a str, (spokeshave_model::Quantity, Vec<i32>)>,
}

/// Applies overlays to the pools' instance types, heaviest first, ties by name descending. Verdicts are by name.
pub fn apply<'a>(
    pools: &mut [PoolInput],
    overlays: impl IntoIterator<Item = &'a NodeOverlay>,
) -> BTreeMap<String, Verdict> {
    let mut verdicts = BTreeMap::new();
    let mut ordered: Vec<&NodeOverlay> =
        overlays.into_iter().filter(|it| !it.metadata.deleting()).collect();
    let weight = |it: &NodeOverlay| it.spec.weight.unwrap_or(0);
    ordered.sort_by(|a, b| (weight(b), &b.metadata.name).cmp(&(weight(a), &a.metadata.name)));
    let mut stored: FxHashMap<(usize, usize), Stored<'a>> = FxHashMap::default();
    for overlay in ordered {
        let name = overlay.metadata.name.clone();
        let problems = validation::node_overlay(overlay);
        let problem = match problems.as_slice() {
            [] => wrong_price(overlay),
            some => Some(validation::message(some)),
        };
        if let Some(problem) = problem {
            verdicts.insert(name, Verdict::Invalid(problem));
            continue;
        }
        let wanted = Requirements::from_api(&overlay.spec.requirements);
        let mut matches = Vec::new();
        for (pool_at, pool) in pools.iter().enumerate() {
            let Ok(types) = &pool.instance_types else { continue };
            let of_pool = pool_labels(&pool.nodepool);
            for (type_at, type_) in types.iter().enumerate() {
                let offerings = matched(type_, &of_pool, &wanted);
                if !offerings.is_empty() {
                    matches.push((pool_at, type_at, offerings));
                }
            }
        }
        let priced = overlay.spec.price.is_some() || overlay.spec.price_adjustment.is_some();
        let own = weight(overlay);
        let clashes = matches.iter().any(|(pool, type_, offerings)| {
            let Some(there) = stored.get(&(*pool, *type_)) else { return false };
            let price = priced
                && offerings.iter().any(|at| there.prices.get(at).is_some_and(|it| it.1 == own));
            // DIFFERENCE: compared with all overlays of that weight; Karpenter looks at the last stored one alone.
            let capacity =
                overlay.spec.capacity.iter().flat_map(Resources::iter).any(|(name, _)| {
                    there.capacity.get(name).is_some_and(|it| it.1.contains(&own))
                });
            price || capacity
        });
        if clashes {
            verdicts.insert(name, Verdict::Conflict);
            continue;
        }
        for (pool, type_, offerings) in matches {
            let there = stored.entry((pool, type_)).or_default();
            if priced {
                for at in offerings {
                    there.prices.entry(at).and_modify(|it| it.1 = own).or_insert((overlay, own));
                }
            }
            for (resource, amount) in overlay.spec.capacity.iter().flat_map(Resources::iter) {
                there.capacity.entry(resource).or_insert((amount, Vec::new())).1.push(own);
            }
        }
        verdicts.insert(name, Verdict::Applied);
    }
    let mut touched: BTreeMap<usize, Vec<(usize, Stored<'a>)>> = BTreeMap::new();
    for ((pool, type_), it) in stored {
        touched.entry(pool).or_default().push((type_, it));
    }
    for (pool, changes) in touched {
        let Some(Ok(types)) = pools.get(pool).map(|it| &it.instance_types) else { continue };
        let mut list: Vec<Arc<InstanceType>> = types.to_vec();
        for (type_at, change) in changes {
            if let Some(type_) = list.get_mut(type_at) {
                *type_ = Arc::new(overlaid(type_, &change));
            }
        }
        if let Some(pool) = pools.get_mut(pool) {
            pool.instance_types = Ok(list.into());
        }
    }
    verdicts
}

fn pool_labels(pool: &NodePool) -> Requirements {
    let mut set = Requirements::from_labels(&pool.spec.template.metadata.labels);
    let own = Template::labels(pool);
    set.add_all(&Requirements::from_labels(&own));
    set.add(Requirement::equals(labels::NODEPOOL, &pool.metadata.name));
    set
}

/// The offerings that the overlay is about. Nothing may be undefined; availability does not matter.
fn matched(type_: &InstanceType, of_pool: &Requirements, wanted: &Requirements) -> Vec<usize> {
    let mut base = type_.requirements.clone();
    base.add_all(of_pool);
    if base.compatible(wanted, |_| false).is_err() {
        return Vec::new();
    }
    let matches =
        |at: &usize| type_.offerings.get(*at).is_some_and(|it| wanted.meets(&it.requirements()));
    (0..type_.offerings.len()).filter(matches).collect()
}

fn overlaid(type_: &InstanceType, change: &Stored<'_>) -> InstanceType {
    let mut result = type_.clone();
    for (at, (overlay, _)) in &change.prices {
        if let Some(offering) = result.offerings.get_mut(*at)
            && let Some(price) = adjusted(offering.price, overlay)
        {
            offering.price = Some(price);
            offering.price_overlaid = true;
        }
    }
    if !change.capacity.is_empty() {
        for offering in &mut result.offerings {
            // DIFFERENCE: what an offering overrides by itself is kept; Karpenter loses it under a price overlay.
            let mut capacity = offering.capacity.as_deref().cloned().unwrap_or_default();
            for (name, (amount, _)) in &change.capacity {
                capacity.set(name, *amount);
            }
            offering.capacity = Some(Arc::new(capacity));
        }
    }
    result
}

/// What an API server would refuse of the prices; files have not been past one.
fn wrong_price(overlay: &NodeOverlay) -> Option<String> {
    let is_number = |it: &str| {
        let (whole, fraction) = it.split_once('.').unwrap_or((it, "0"));
        let digits = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
        digits(whole) && digits(fraction)
    };
    let spec = &overlay.spec;
    match (&spec.price, &spec.price_adjustment) {
        (Some(_), Some(_)) => Some("cannot set both 'price' and 'priceAdjustment'".to_owned()),
        (Some(price), None) if !is_number(price) => {
            Some(format!("spec.price: {price:?} is not a number of dollars such as 0.25"))
        }
        (None, Some(text)) => {
            let change = text.strip_prefix(['+', '-']);
            let number = change.map(|it| it.strip_suffix('%').unwrap_or(it));
            let free = text.starts_with('-')
                && text.ends_with('%')
                && number.and_then(|it| it.parse().ok()).is_some_and(|it: f64| it > 100.0);
            (free || !number.is_some_and(is_number)).then(|| {
                format!("spec.priceAdjustment: {text:?} is not a change such as +0.05 or -10%")
            })
        }
        _ => None,
    }
}

/// The price after an overlay: absolute, or what there was changed by an amount or a share; never below zero.
fn adjusted(price: Option<f64>, overlay: &NodeOverlay) -> Option<f64> {
    if let Some(text) = &overlay.spec.price {
        return text.parse().ok();
    }
    let text = overlay.spec.price_adjustment.as_deref()?;
    let price = price?;
    let result = match text.strip_suffix('%') {
        Some(percent) => price * (1.0 + percent.parse::<f64>().ok()? / 100.0),
        None => price + text.parse::<f64>().ok()?,
    };
    Some(result.max(0.0))
}
