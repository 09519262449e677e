//! What a region sells, and what that comes to for one EC2NodeClass.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use spokeshave_model::{EC2NodeClass, InstanceType, Quantity, Settings};
use spokeshave_ports::ec2::{InstanceTypeInfo, PlacementGroup, SpotPrice, TypeOffering};

use crate::{
    Shared, builtin,
    capacity::{self, SizingSettings},
    description,
    kubelet::{KubeletError, KubeletSettings},
    memory::{self, DiscoveredMemory},
    offerings::{self, ClassZone},
    unavailable::UnavailableOfferings,
};

/// Spot prices by type and zone.
pub type SpotPrices = BTreeMap<String, BTreeMap<String, f64>>;

/// What one region sells: types, the zones they are sold in, and prices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    pub region: String,
    /// Types given in the plain form, used as they are; everything else is ignored then. Empty: EC2's own.
    pub fixed: Vec<InstanceType>,
    /// Sorted by name, one entry each.
    pub types: Shared<Vec<InstanceTypeInfo>>,
    /// Zones by type; may name types that are not described.
    pub offerings: Shared<BTreeMap<String, BTreeSet<String>>>,
    /// Zone ids by zone name.
    pub zones: BTreeMap<String, String>,
    /// Dollars (in China yuan) per hour.
    pub on_demand: Shared<BTreeMap<String, f64>>,
    /// `None` until spot prices were read once: till then spot costs what on-demand does, in every zone.
    /// Afterwards a pool that is not listed is not sold.
    pub spot: Option<Shared<SpotPrices>>,
}

/// Why a list of instance types cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// The whole class is affected.
    #[error("EC2NodeClass {class}: {source}")]
    Kubelet {
        class: String,
        #[source]
        source: KubeletError,
    },
    /// One type fails the list: left out silently it would look sold out.
    #[error("EC2NodeClass {class}: {instance_type}: {source}")]
    Type {
        class: String,
        instance_type: String,
        #[source]
        source: KubeletError,
    },
}

/// What decides availability and size besides the catalog and the class.
#[derive(Clone, Debug)]
pub struct MarketView<'a> {
    pub settings: &'a Settings,
    pub now: Timestamp,
    pub unavailable: UnavailableOfferings,
    /// Instances left by reservation id; a missing one counts as 0.
    pub reservations: BTreeMap<String, i64>,
    pub memory: DiscoveredMemory,
    /// Prices by type from NodeOverlays for types without a published one (gate `NodeOverlay`).
    pub overlay_prices: BTreeMap<String, f64>,
    /// Ids of zones that traffic is being shifted away from.
    pub shifted_zones: BTreeSet<String>,
    /// Resolved placement groups by what EC2NodeClasses select them by: name or id.
    pub placement_groups: BTreeMap<String, PlacementGroup>,
}

impl<'a> MarketView<'a> {
    /// A view in which nothing is marked, counted or observed.
    pub fn new(settings: &'a Settings, now: Timestamp) -> Self {
        Self {
            settings,
            now,
            unavailable: UnavailableOfferings::default(),
            reservations: BTreeMap::new(),
            memory: DiscoveredMemory::default(),
            overlay_prices: BTreeMap::new(),
            shifted_zones: BTreeSet::new(),
            placement_groups: BTreeMap::new(),
        }
    }

    /// The placement group that a class selects, if it is known.
    pub fn placement_group(&self, class: &EC2NodeClass) -> Option<&PlacementGroup> {
        let selector = class.spec.placement_group_selector.as_ref()?;
        let key = selector.name.as_ref().or(selector.id.as_ref())?;
        self.placement_groups.get(key)
    }
}

/// Instance types for one class, and what could not be applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolved {
    /// Sorted by name.
    pub types: Vec<InstanceType>,
    /// Kubelet entries that were left out: the type, the field and why.
    pub dropped: Vec<(String, KubeletError)>,
}

impl Catalog {
    /// The facts compiled in for a region; `None` for a region that we know nothing of.
    ///
    /// Spot prices are no facts: they count as not read yet. See [`Self::with_estimated_spot_prices`].
    pub fn builtin(region: &str) -> Option<Self> {
        builtin::catalog(region)
    }

    /// A catalog from what EC2 and the price list answered. Of several entries for one type the first counts.
    pub fn new(
        region: &str,
        types: Vec<InstanceTypeInfo>,
        offerings: &[TypeOffering],
        zones: BTreeMap<String, String>,
        on_demand: BTreeMap<String, f64>,
    ) -> Self {
        let on_demand = on_demand.into();
        let mut catalog = Self { region: region.to_owned(), zones, on_demand, ..Self::default() };
        catalog.set_types(types);
        catalog.set_offerings(offerings);
        catalog
    }

    /// Replaces the types. The order of the answer does not matter.
    pub fn set_types(&mut self, mut types: Vec<InstanceTypeInfo>) {
        types.sort_by(|a, b| a.name.cmp(&b.name));
        types.dedup_by(|later, first| later.name == first.name);
        self.types = types.into();
    }

    /// Replaces the offerings.
    pub fn set_offerings(&mut self, offerings: &[TypeOffering]) {
        self.offerings.clear();
        for it in offerings {
            self.offerings.entry(it.instance_type.clone()).or_default().insert(it.zone.clone());
        }
    }

    /// Merges prices over the old ones; those that are zero, negative or no number are skipped.
    pub fn merge_on_demand(&mut self, prices: impl IntoIterator<Item = (String, f64)>) {
        self.on_demand.extend(prices.into_iter().filter(|(_, price)| is_price(*price)));
    }

    /// Merges a spot price history over the old prices; entries without a time are skipped, later ones win.
    /// Returns whether there was any.
    pub fn merge_spot(&mut self, history: &[SpotPrice]) -> bool {
        let mut usable = history
            .iter()
            .filter(|it| it.timestamp.is_some() && it.price.is_finite() && it.price >= 0.0)
            .peekable();
        if usable.peek().is_none() {
            return false;
        }
        let spot = self.spot.get_or_insert_default();
        for it in usable {
            spot.entry(it.instance_type.clone()).or_default().insert(it.zone.clone(), it.price);
        }
        true
    }

    /// Fills in spot prices where none were read, for simulations: 28 to 43 % of the on-demand price, different by type
    /// and zone, the same in every run. Estimates, not facts.
    #[must_use]
    pub fn with_estimated_spot_prices(mut self) -> Self {
        let mut spot = SpotPrices::new();
        for (name, price) in &self.on_demand {
            let Some(zones) = self.offerings.get(name) else { continue };
            let prices = zones.iter().map(|zone| {
                let share = 0.28
                    + f64::from(spread(name) % 100) / 1000.0
                    + f64::from(spread(&format!("{name}/{zone}")) % 50) / 1000.0;
                // Ten-thousandths of a dollar, as EC2 quotes.
                (zone.clone(), (price * share * 10_000.0).round() / 10_000.0)
            });
            spot.insert(name.clone(), prices.collect());
        }
        self.spot = Some(spot.into());
        self
    }

    /// Every zone in which anything is sold.
    pub fn all_zones(&self) -> BTreeSet<&str> {
        let given = self.fixed.iter().flat_map(|it| &it.offerings).map(|it| it.zone.as_str());
        self.offerings.values().flatten().map(String::as_str).chain(given).collect()
    }

    /// The id of a zone, empty when unknown.
    pub fn zone_id(&self, zone: &str) -> &str {
        let given = || {
            let mut offerings = self.fixed.iter().flat_map(|it| &it.offerings);
            offerings.find(|it| it.zone == zone && !it.zone_id.is_empty())
        };
        match self.zones.get(zone) {
            Some(id) => id,
            None => given().map_or("", |it| it.zone_id.as_str()),
        }
    }

    /// The spot price, `None` when it is not sold there.
    pub fn spot_price(&self, instance_type: &str, zone: &str) -> Option<f64> {
        match &self.spot {
            None => self.on_demand.get(instance_type).copied(),
            Some(spot) => spot.get(instance_type)?.get(zone).copied(),
        }
    }

    /// What EC2 says of a type.
    pub fn describe(&self, name: &str) -> Option<&InstanceTypeInfo> {
        let at = self.types.binary_search_by(|it| it.name.as_str().cmp(name)).ok()?;
        self.types.get(at)
    }

    /// Every type of the region as `class` would use it, sorted by name, with all its offerings, available or not.
    ///
    /// # Errors
    /// Kubelet settings that cannot be read, or a `maxPods` expression that fails for any type.
    pub fn instance_types(
        &self,
        class: &EC2NodeClass,
        view: &MarketView<'_>,
    ) -> Result<Vec<InstanceType>, CatalogError> {
        self.resolve(class, view, |_| true).map(|it| it.types)
    }

    /// The same for the types that `wanted` takes by name, with the kubelet entries that were dropped.
    ///
    /// # Errors
    /// As [`Self::instance_types`].
    pub fn resolve(
        &self,
        class: &EC2NodeClass,
        view: &MarketView<'_>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Resolved, CatalogError> {
        if !self.fixed.is_empty() {
            return Ok(self.resolve_fixed(class, view, wanted));
        }
        let class_name = || class.metadata.name.clone();
        let kubelet = KubeletSettings::of(class)
            .map_err(|source| CatalogError::Kubelet { class: class_name(), source })?;
        let sizing_settings = SizingSettings {
            vm_memory_overhead: view.settings.vm_memory_overhead_percent,
            reserved_enis: view.settings.reserved_enis,
            expressions: view.settings.gates.node_class_cel,
        };
        let class_zones = offerings::class_zones(class, self);
        let all_zones = self.all_zones();
        let image_set = memory::image_set(class);
        let group = view.placement_group(class);
        let market = offerings::Market {
            catalog: self,
            view,
            all_zones: &all_zones,
            class_zones: &class_zones,
            group,
        };
        let nowhere = BTreeSet::new();
        let mut resolved = Resolved::default();
        for info in self.types.iter().filter(|it| wanted(&it.name)) {
            let observed: Option<Quantity> = view.memory.get(&info.name, &image_set, view.now);
            let sizing = capacity::sizing(info, class, &kubelet, sizing_settings, observed)
                .map_err(|source| CatalogError::Type {
                    class: class_name(),
                    instance_type: info.name.clone(),
                    source,
                })?;
            resolved.dropped.extend(sizing.dropped.into_iter().map(|it| (info.name.clone(), it)));
            let sold_in = self.offerings.get(&info.name).unwrap_or(&nowhere);
            let zones: Vec<&ClassZone> =
                class_zones.values().filter(|it| sold_in.contains(&it.name)).collect();
            let reservations: Vec<_> = class
                .status
                .capacity_reservations
                .iter()
                .filter(|it| it.instance_type == info.name)
                .collect();
            let requirements = description::requirements(
                info,
                &description::Surroundings {
                    region: &self.region,
                    family: class.ami_family(),
                    zones: &zones,
                    reservations: &reservations,
                    placement_group: group,
                },
            );
            let sold: BTreeSet<&str> = zones.iter().map(|it| it.name.as_str()).collect();
            let class_can_use = offerings::usable(info, class, group).is_ok();
            resolved.types.push(InstanceType {
                name: info.name.clone(),
                requirements,
                capacity: sizing.capacity,
                overhead: sizing.overhead,
                offerings: offerings::offerings(info, class_can_use, &sold, &reservations, &market),
            });
        }
        Ok(resolved)
    }

    /// Types that were given as they are: no formula is applied; only zones, marks and reservations count.
    fn resolve_fixed(
        &self,
        class: &EC2NodeClass,
        view: &MarketView<'_>,
        wanted: impl Fn(&str) -> bool,
    ) -> Resolved {
        let subnets = |zone: &str| -> Vec<String> {
            let here = class.status.subnets.iter().filter(|it| it.zone == zone);
            here.map(|it| it.id.clone()).collect()
        };
        let mut types: Vec<InstanceType> =
            self.fixed.iter().filter(|it| wanted(&it.name)).cloned().collect();
        for it in &mut types {
            for offering in &mut it.offerings {
                let in_zone = class.status.subnets.is_empty()
                    || class.status.subnets.iter().any(|it| it.zone == offering.zone);
                let left = match &mut offering.reservation {
                    Some(reservation) => {
                        let chosen = &class.status.capacity_reservations;
                        let count = view.reservations.get(&reservation.id).copied();
                        reservation.count = count.unwrap_or(reservation.count);
                        reservation.count > 0 && chosen.iter().any(|it| it.id == reservation.id)
                    }
                    None => !view.unavailable.blocks(
                        offering.capacity_type,
                        &it.name,
                        &offering.zone,
                        None,
                        None,
                        &subnets(&offering.zone),
                    ),
                };
                offering.available = offering.available && in_zone && left;
            }
        }
        Resolved { types, dropped: Vec::new() }
    }
}

fn is_price(price: f64) -> bool {
    price.is_finite() && price > 0.0
}

/// A number that differs from text to text and never from run to run (FNV-1a).
fn spread(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
        >> 7
}
