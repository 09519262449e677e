//! What can be bought: instance types and their offerings.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Requirement, Requirements, Resources, labels};

/// How capacity is paid for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// An On-Demand Capacity Reservation or a capacity block.
    Reserved,
    Spot,
    #[default]
    OnDemand,
}

impl CapacityType {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// From the label's value.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Reserved, Self::Spot, Self::OnDemand].into_iter().find(|it| it.as_str() == text)
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An EC2 instance type as one node class would use it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstanceType {
    pub name: String,
    /// Every label the type gives a node, one requirement per key (`DoesNotExist` where it has no value);
    /// zone, zone id and capacity type list what the offerings have.
    pub requirements: Requirements,
    pub capacity: Resources,
    pub overhead: Overhead,
    pub offerings: Vec<Offering>,
}

/// What the system keeps for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    pub kube_reserved: Resources,
    pub system_reserved: Resources,
    pub eviction_threshold: Resources,
}

impl Overhead {
    /// The sum of the three parts.
    pub fn total(&self) -> Resources {
        let mut total = self.kube_reserved.clone();
        total.add(&self.system_reserved);
        total.add(&self.eviction_threshold);
        total
    }
}

/// Instance type x zone x capacity type (x reservation): what one launch can buy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offering {
    pub capacity_type: CapacityType,
    pub zone: String,
    /// Empty when unknown.
    pub zone_id: String,
    /// Dollars per hour; `None` when no price is known.
    pub price: Option<f64>,
    pub available: bool,
    pub reservation: Option<Reservation>,
    /// Partition of the class's placement group, where that has partitions.
    pub partition: Option<i64>,
    /// NodeOverlay: replaces the type's capacity by name.
    pub capacity: Option<Arc<Resources>>,
    /// NodeOverlay: replaces the type's summed overhead by name.
    pub overhead: Option<Arc<Resources>>,
    /// A NodeOverlay changed the price.
    pub price_overlaid: bool,
}

/// The reservation behind a reserved offering.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reservation {
    pub id: String,
    /// `default` or `capacity-block`.
    #[serde(rename = "type")]
    pub type_: String,
    pub interruptible: bool,
    /// Instances left in it.
    pub count: i64,
}

impl Offering {
    /// The offering as requirements: capacity type, zone, zone id, and the reservation labels
    /// (`DoesNotExist` unless reserved).
    pub fn requirements(&self) -> Requirements {
        let mut set = Requirements::new();
        set.add(Requirement::equals(labels::CAPACITY_TYPE, self.capacity_type.as_str()));
        set.add(Requirement::equals(labels::ZONE, &self.zone));
        if !self.zone_id.is_empty() {
            set.add(Requirement::equals(labels::ZONE_ID, &self.zone_id));
        }
        if let Some(partition) = self.partition {
            set.add(Requirement::equals(labels::PLACEMENT_GROUP_PARTITION, &partition.to_string()));
        }
        match &self.reservation {
            Some(it) => {
                set.add(Requirement::equals(labels::CAPACITY_RESERVATION_ID, &it.id));
                set.add(Requirement::equals(labels::CAPACITY_RESERVATION_TYPE, &it.type_));
                set.add(Requirement::equals(
                    labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
                    if it.interruptible { "true" } else { "false" },
                ));
            }
            None => {
                for key in [
                    labels::CAPACITY_RESERVATION_ID,
                    labels::CAPACITY_RESERVATION_TYPE,
                    labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
                ] {
                    set.add(Requirement::does_not_exist(key));
                }
            }
        }
        set
    }
}

impl InstanceType {
    /// Capacity less overhead, which may be below zero: such a type fits nothing. Huge pages further reduce memory, though
    /// never below zero (scheduling 3.3).
    pub fn allocatable(&self) -> Resources {
        allocatable(self.capacity.clone(), &self.overhead.total())
    }

    /// The same for one offering, with its overrides.
    pub fn allocatable_of(&self, offering: &Offering) -> Resources {
        let mut capacity = self.capacity.clone();
        let mut overhead = self.overhead.total();
        for (name, amount) in offering.capacity.iter().flat_map(|it| it.iter()) {
            capacity.set(name, amount);
        }
        for (name, amount) in offering.overhead.iter().flat_map(|it| it.iter()) {
            overhead.set(name, amount);
        }
        allocatable(capacity, &overhead)
    }

    /// The lowest price among available offerings that `wanted` allows, with that offering.
    /// Ties: zone, then reserved before spot before on-demand.
    pub fn cheapest(&self, wanted: &Requirements) -> Option<(&Offering, f64)> {
        self.offerings
            .iter()
            .filter(|it| it.available && it.requirements().compatible(wanted, |_| true).is_ok())
            .filter_map(|it| Some((it, it.price?)))
            .min_by(|(a, p), (b, q)| {
                p.total_cmp(q)
                    .then_with(|| (&a.zone, a.capacity_type).cmp(&(&b.zone, b.capacity_type)))
            })
    }
}

fn allocatable(mut capacity: Resources, overhead: &Resources) -> Resources {
    capacity.subtract(overhead);
    let huge: Vec<_> =
        capacity.iter().filter(|(name, _)| name.starts_with("hugepages-")).map(|it| it.1).collect();
    if let Some(memory) = capacity.0.get_mut("memory")
        && !huge.is_empty()
    {
        for amount in huge {
            *memory -= amount;
        }
        if memory.is_negative() {
            *memory = crate::Quantity::ZERO;
        }
    }
    capacity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // scheduling 3, case 7
    fn huge_pages_are_no_memory() {
        let list = |amounts: &[(&str, &str)]| -> Resources {
            let amount = |text: &str| text.parse::<crate::Quantity>().expect("a quantity");
            amounts.iter().map(|(name, text)| ((*name).to_owned(), amount(text))).collect()
        };
        for (huge, left) in [("2Gi", "5Gi"), ("0", "7Gi"), ("7Gi", "0"), ("9Gi", "0")] {
            let it = InstanceType {
                capacity: list(&[("memory", "8Gi"), ("hugepages-2Mi", huge)]),
                overhead: Overhead {
                    kube_reserved: list(&[("memory", "1Gi")]),
                    ..Overhead::default()
                },
                ..InstanceType::default()
            };
            assert_eq!(it.allocatable().get("memory").to_string(), left, "{huge}");
        }
    }
}
