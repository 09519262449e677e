//! What a replacement may cost (lifecycle 20.1) and how many kinds it must leave (`minValues`).

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use spokeshave_model::{
    CapacityType, InstanceType, Offering, Requirement, Requirements, labels, meta::StringMap,
};

/// A set of requirements, prepared for asking many offerings.
pub struct OfferingFilter<'a> {
    capacity_type: Option<&'a Requirement>,
    zone: Option<&'a Requirement>,
    zone_id: Option<&'a Requirement>,
    reservation_id: Option<&'a Requirement>,
    reservation_type: Option<&'a Requirement>,
    interruptible: Option<&'a Requirement>,
}

impl<'a> OfferingFilter<'a> {
    pub fn new(wanted: &'a Requirements) -> Self {
        Self {
            capacity_type: wanted.get(labels::CAPACITY_TYPE),
            zone: wanted.get(labels::ZONE),
            zone_id: wanted.get(labels::ZONE_ID),
            reservation_id: wanted.get(labels::CAPACITY_RESERVATION_ID),
            reservation_type: wanted.get(labels::CAPACITY_RESERVATION_TYPE),
            interruptible: wanted.get(labels::CAPACITY_RESERVATION_INTERRUPTIBLE),
        }
    }

    /// Whether the offering may be bought under these requirements, available or not.
    pub fn allows(&self, offering: &Offering) -> bool {
        let has = |wanted: Option<&Requirement>, value: &str| wanted.is_none_or(|it| it.has(value));
        has(self.capacity_type, offering.capacity_type.as_str())
            && has(self.zone, &offering.zone)
            && (offering.zone_id.is_empty() || has(self.zone_id, &offering.zone_id))
            && match &offering.reservation {
                Some(it) => {
                    has(self.reservation_id, &it.id)
                        && has(self.reservation_type, &it.type_)
                        && has(self.interruptible, if it.interruptible { "true" } else { "false" })
                }
                None => [self.reservation_id, self.reservation_type, self.interruptible]
                    .into_iter()
                    .flatten()
                    .all(may_be_absent),
            }
    }
}

/// Whether a thing without the label satisfies it.
fn may_be_absent(wanted: &Requirement) -> bool {
    use spokeshave_model::Operator::{DoesNotExist, NotIn};
    matches!(wanted.operator(), NotIn | DoesNotExist)
}

/// The lowest price at which the type can be bought now.
pub fn cheapest(it: &InstanceType, filter: &OfferingFilter<'_>) -> Option<f64> {
    it.offerings
        .iter()
        .filter(|it| it.available && filter.allows(it))
        .filter_map(|it| it.price)
        .min_by(f64::total_cmp)
}

/// The highest price that a launch of the type may end up with: launches take reserved capacity first, then spot,
/// then on-demand, and the zone is not known in advance. Spot capacity without a known price is not bought at all, as
/// in scheduling. Infinite when it cannot be bought or a price is unknown.
pub fn worst_launch_price(it: &InstanceType, filter: &OfferingFilter<'_>) -> f64 {
    let mut worst: [Option<f64>; 3] = [None; 3];
    let is_bought = |it: &Offering| {
        it.available && (it.price.is_some() || it.capacity_type != CapacityType::Spot)
    };
    for offering in it.offerings.iter().filter(|it| is_bought(it) && filter.allows(it)) {
        let rank = match offering.capacity_type {
            CapacityType::Reserved => 0,
            CapacityType::Spot => 1,
            CapacityType::OnDemand => 2,
        };
        let price = offering.price.unwrap_or(f64::INFINITY);
        worst[rank] = Some(worst[rank].map_or(price, |it: f64| it.max(price)));
    }
    worst.into_iter().flatten().next().unwrap_or(f64::INFINITY)
}

/// Cheapest first, those that cannot be bought last; equal prices by name.
pub fn sort_by_price(types: &mut [Arc<InstanceType>], wanted: &Requirements) {
    let filter = OfferingFilter::new(wanted);
    types.sort_by_cached_key(|it| {
        (Price(cheapest(it, &filter).unwrap_or(f64::INFINITY)), it.name.clone())
    });
}

#[derive(PartialEq)]
struct Price(f64);

impl Eq for Price {}

impl PartialOrd for Price {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Price {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The lowest price compatible with these node labels, available or not.
pub fn price_for_labels(it: &InstanceType, labels: &StringMap) -> Option<f64> {
    let wanted = Requirements::from_labels(labels.iter().filter(|(key, _)| {
        matches!(
            key.as_str(),
            labels::CAPACITY_TYPE
                | labels::ZONE
                | labels::ZONE_ID
                | labels::CAPACITY_RESERVATION_ID
                | labels::CAPACITY_RESERVATION_TYPE
                | labels::CAPACITY_RESERVATION_INTERRUPTIBLE
        )
    }));
    let filter = OfferingFilter::new(&wanted);
    it.offerings
        .iter()
        .filter(|it| filter.allows(it))
        .filter_map(|it| it.price)
        .min_by(f64::total_cmp)
}

/// How many of the leading `types` are needed until every `minValues` of `wanted` is met; `Err` names the keys
/// that all of them together do not meet.
///
/// # Errors
/// The keys, sorted.
pub fn needed_for_min_values(
    types: &[Arc<InstanceType>],
    wanted: &Requirements,
) -> Result<usize, Vec<String>> {
    let mut open: BTreeMap<&str, (usize, BTreeSet<&str>)> = wanted
        .iter()
        .filter_map(|it| {
            let n = usize::try_from(it.min_values?).ok().filter(|n| *n > 0)?;
            Some((it.key.as_str(), (n, BTreeSet::new())))
        })
        .collect();
    if open.is_empty() {
        return Ok(0);
    }
    for (at, it) in types.iter().enumerate() {
        for (key, (_, seen)) in &mut open {
            if *key == labels::INSTANCE_TYPE {
                seen.insert(&it.name);
            } else if let Some(offered) = it.requirements.get(key).filter(|it| !it.complement) {
                seen.extend(offered.values.iter().map(String::as_str));
            }
        }
        if open.values().all(|(n, seen)| seen.len() >= *n) {
            return Ok(at + 1);
        }
    }
    Err(open
        .iter()
        .filter(|(_, (n, seen))| seen.len() < *n)
        .map(|(key, _)| (*key).to_owned())
        .collect())
}

/// `minValues requirement is not met for label(s) (label(s)=[a b])`.
pub fn min_values_error(keys: &[String]) -> String {
    format!("minValues requirement is not met for label(s) (label(s)=[{}])", keys.join(" "))
}
