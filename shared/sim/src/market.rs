//! What the simulated EC2 sells.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use spokeshave_model::{CapacityType, EC2NodeClass, InstanceType, Resources};
use spokeshave_ports::ec2::{CapacityReservation, InstanceTypeInfo, SpotPrice, TypeOffering, Zone};

/// What a node of an instance type looks like: capacity, allocatable and architecture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeShape {
    pub capacity: Resources,
    pub allocatable: Resources,
    /// `amd64` or `arm64`.
    pub arch: String,
    /// `linux` or `windows`.
    pub os: String,
}

/// Gives the shape of a node made of an instance type under a class.
pub type ShapeOf = Rc<dyn Fn(&str, &EC2NodeClass) -> Option<NodeShape>>;

/// Everything on sale in the region.
#[derive(Clone, Debug, Default)]
pub struct Market {
    pub zones: Vec<Zone>,
    pub types: Vec<InstanceTypeInfo>,
    pub offerings: Vec<TypeOffering>,
    pub on_demand: BTreeMap<String, f64>,
    pub spot: Vec<SpotPrice>,
    /// Dollars per hour of every single thing that can be bought.
    pub prices: BTreeMap<(String, String, CapacityType), f64>,
    pub reservations: Vec<CapacityReservation>,
    /// Sold out for good: listed as unavailable in the given catalog.
    pub sold_out: BTreeSet<(String, String, CapacityType)>,
}

impl Market {
    /// A market that sells exactly what `types` list, reservations included.
    pub fn of_types(types: &[InstanceType]) -> Self {
        let mut market = Self::default();
        let mut zones = BTreeMap::new();
        for it in types {
            for offering in &it.offerings {
                zones.insert(offering.zone.clone(), offering.zone_id.clone());
                let sold = (it.name.clone(), offering.zone.clone(), offering.capacity_type);
                if let Some(reservation) = &offering.reservation {
                    market.reservations.push(CapacityReservation {
                        id: reservation.id.clone(),
                        owner_id: crate::ports::ACCOUNT.into(),
                        instance_type: it.name.clone(),
                        zone: offering.zone.clone(),
                        instance_match_criteria: "targeted".into(),
                        reservation_type: reservation.type_.clone(),
                        state: "active".into(),
                        interruptible: reservation.interruptible,
                        total: reservation.count,
                        available: reservation.count,
                        ..CapacityReservation::default()
                    });
                }
                if !offering.available {
                    market.sold_out.insert(sold.clone());
                }
                // What has no known price is bought last.
                market.prices.insert(sold, offering.price.unwrap_or(f64::INFINITY));
            }
        }
        market.zones = zones
            .into_iter()
            .map(|(name, id)| Zone { name, id, kind: "availability-zone".into() })
            .collect();
        market
    }
}
