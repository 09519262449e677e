//! Which types a class can use at all, and the offerings of each (`spec` aws-capacity 6).

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_model::{
    AmiFamily, CapacityType, EC2NodeClass, NodeOverlay, Offering, Operator, conditions,
    ec2_node_class::CapacityReservationStatus, instance_type::Reservation, labels,
};
use spokeshave_ports::ec2::{InstanceTypeInfo, PlacementGroup};

use crate::{Catalog, MarketView, description::reservation_type};

/// A reserved instance costs this part of its on-demand price: as good as nothing, yet types keep their order.
pub const RESERVED_PRICE_DIVISOR: f64 = 10_000_000.0;

/// A zone that a class has subnets in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassZone {
    pub name: String,
    /// Empty when unknown.
    pub id: String,
    /// In status order; empty when all zones of the catalog count.
    pub subnets: Vec<String>,
}

/// The zones of a class, by name. A class whose status has no subnets can use every zone of the catalog.
///
/// DIFFERENCE: Karpenter groups subnets by zone id, so that of two zones without an id one is lost.
pub fn class_zones(class: &EC2NodeClass, catalog: &Catalog) -> BTreeMap<String, ClassZone> {
    let mut zones: BTreeMap<String, ClassZone> = BTreeMap::new();
    for subnet in &class.status.subnets {
        let zone = zones.entry(subnet.zone.clone()).or_default();
        zone.name.clone_from(&subnet.zone);
        if zone.id.is_empty() {
            zone.id.clone_from(&subnet.zone_id);
        }
        zone.subnets.push(subnet.id.clone());
    }
    if zones.is_empty() {
        for name in catalog.all_zones() {
            let id = catalog.zone_id(name).to_owned();
            let zone = ClassZone { name: name.to_owned(), id, subnets: Vec::new() };
            zones.insert(name.to_owned(), zone);
        }
    }
    zones
}

/// Why a class cannot use a type whatever is for sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("AL2023 does not boot on first-generation Graviton")]
    ImageFamily,
    #[error("spec.networkInterfaces do not fit its network cards")]
    NetworkInterfaces,
    #[error("it has no nested virtualization")]
    NestedVirtualization,
    #[error("it cannot join a placement group of this strategy")]
    PlacementGroup,
    #[error("connection tracking time-outs need a Nitro machine")]
    ConnectionTracking,
}

/// Whether `class` can use `info` at all.
///
/// # Errors
/// The first check that fails.
pub fn usable(
    info: &InstanceTypeInfo,
    class: &EC2NodeClass,
    group: Option<&PlacementGroup>,
) -> Result<(), Unusable> {
    if class.ami_family() == AmiFamily::Al2023 && info.name.starts_with("a1.") {
        return Err(Unusable::ImageFamily);
    }
    if !fits_network(info, class) {
        return Err(Unusable::NetworkInterfaces);
    }
    let nested = class.spec.cpu_options.as_ref().and_then(|it| it.nested_virtualization.as_deref());
    if nested == Some("enabled")
        && !info.processor_features.iter().any(|it| it == "nested-virtualization")
    {
        return Err(Unusable::NestedVirtualization);
    }
    if group.is_some_and(|group| !info.placement_strategies.contains(&group.strategy)) {
        return Err(Unusable::PlacementGroup);
    }
    if class.spec.connection_tracking.is_some() && info.hypervisor != "nitro" {
        return Err(Unusable::ConnectionTracking);
    }
    Ok(())
}

fn fits_network(info: &InstanceTypeInfo, class: &EC2NodeClass) -> bool {
    let wanted = &class.spec.network_interfaces;
    if wanted.is_empty() {
        return true;
    }
    let network = &info.network;
    if network.cards.is_empty() || network.ena_support == "unsupported" {
        return false;
    }
    let on_card = wanted.iter().all(|entry| {
        let index = i64::from(entry.network_card_index);
        index < network.cards.len() as i64
            && network
                .cards
                .iter()
                .find(|card| card.0 == index)
                .is_some_and(|card| i64::from(entry.device_index) < card.1)
    });
    let efa = wanted.iter().filter(|it| it.interface_type == "efa-only").count() as i64;
    on_card && (efa == 0 || network.max_efa.is_some_and(|max| efa <= max))
}

/// Prices from NodeOverlays for types that AWS publishes none for: valid overlays with a price whose only requirement is
/// `node.kubernetes.io/instance-type In [...]`. Where two name the same type the later one by name counts.
///
/// `all_count`: overlays count whatever their status says, as where there is no controller to judge them.
pub fn overlay_prices<'a>(
    overlays: impl IntoIterator<Item = &'a NodeOverlay>,
    all_count: bool,
) -> BTreeMap<String, f64> {
    let mut prices = BTreeMap::new();
    for overlay in overlays {
        let valid = all_count
            || conditions::is_true(&overlay.status.conditions, NodeOverlay::VALIDATION_SUCCEEDED);
        let [only] = &overlay.spec.requirements[..] else { continue };
        if !valid || only.key != labels::INSTANCE_TYPE || only.operator != Operator::In {
            continue;
        }
        let price = overlay.spec.price.as_deref().and_then(|it| it.parse::<f64>().ok());
        let Some(price) = price.filter(|it| it.is_finite() && *it >= 0.0) else { continue };
        prices.extend(only.values.iter().map(|name| (name.clone(), price)));
    }
    prices
}

/// What the offerings of one type depend on.
pub(crate) struct Market<'a> {
    pub catalog: &'a Catalog,
    pub view: &'a MarketView<'a>,
    pub all_zones: &'a BTreeSet<&'a str>,
    pub class_zones: &'a BTreeMap<String, ClassZone>,
    pub group: Option<&'a PlacementGroup>,
}

/// Every offering of `info`, whether or not it is available.
///
/// `sold` are the zones in which the type is sold and the class has a subnet.
pub(crate) fn offerings(
    info: &InstanceTypeInfo,
    class_can_use: bool,
    sold: &BTreeSet<&str>,
    reservations: &[&CapacityReservationStatus],
    market: &Market<'_>,
) -> Vec<Offering> {
    let Market { catalog, view, .. } = market;
    let on_demand = catalog.on_demand.get(&info.name).copied();
    let partitions = market
        .group
        .filter(|it| it.strategy == "partition" && it.partition_count > 0)
        .map(|it| it.partition_count);
    let group_id = market.group.map(|it| it.id.as_str());
    let mut result = Vec::new();
    let mut push = |offering: Offering| match partitions {
        None => result.push(offering),
        Some(count) => result.extend((1..=count).map(|partition| {
            let blocked = offering.reservation.is_none()
                && view.unavailable.blocks(
                    offering.capacity_type,
                    &info.name,
                    &offering.zone,
                    group_id,
                    Some(partition),
                    &[],
                );
            Offering {
                partition: Some(partition),
                available: offering.available && !blocked,
                ..offering.clone()
            }
        })),
    };
    let open = |zone: &ClassZone| !view.shifted_zones.contains(&zone.id);
    for &zone in market.all_zones {
        let class_zone = market.class_zones.get(zone);
        let sold_here = sold.contains(zone) && class_zone.is_some_and(open);
        // In one order whatever EC2's, and each once.
        for capacity_type in [CapacityType::OnDemand, CapacityType::Spot] {
            if !info.usage_classes.iter().any(|it| it == capacity_type.as_str()) {
                continue;
            }
            let published = match capacity_type {
                CapacityType::Spot => catalog.spot_price(&info.name, zone),
                _ => on_demand,
            };
            let price = published.or_else(|| view.overlay_prices.get(&info.name).copied());
            let blocked = || {
                let subnets = class_zone.map_or(&[][..], |it| &it.subnets);
                view.unavailable.blocks(capacity_type, &info.name, zone, group_id, None, subnets)
            };
            push(Offering {
                capacity_type,
                zone: zone.to_owned(),
                zone_id: class_zone.map(|it| it.id.clone()).unwrap_or_default(),
                price,
                available: class_can_use && sold_here && price.is_some() && !blocked(),
                ..Offering::default()
            });
        }
    }
    if view.settings.gates.reserved_capacity {
        for reservation in reservations {
            let zone = reservation.availability_zone.as_str();
            let class_zone = market.class_zones.get(zone);
            let count = view.reservations.get(&reservation.id).copied().unwrap_or(0);
            push(Offering {
                capacity_type: CapacityType::Reserved,
                zone: zone.to_owned(),
                zone_id: class_zone.map(|it| it.id.clone()).unwrap_or_default(),
                price: Some(on_demand.unwrap_or(0.0) / RESERVED_PRICE_DIVISOR),
                available: class_can_use
                    && count != 0
                    && sold.contains(zone)
                    && class_zone.is_some_and(open)
                    && reservation.state != "expiring",
                reservation: Some(Reservation {
                    id: reservation.id.clone(),
                    type_: reservation_type(reservation).to_owned(),
                    interruptible: reservation.interruptible,
                    count,
                }),
                ..Offering::default()
            });
        }
    }
    result
}
