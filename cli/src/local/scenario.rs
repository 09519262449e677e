//! A run: what is applied, what happens when, and how long.

use std::rc::Rc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use spokeshave_catalog::{Catalog, MarketView, plain, stored};
use spokeshave_model::{
    CapacityType, EC2NodeClass, InstanceType, NodePool, Requirements, Settings, labels,
    meta::from_value,
};
use spokeshave_ports::{
    StateKey,
    ec2::{SpotPrice, TypeOffering, Zone},
};
use spokeshave_sim::{
    Fault, Market, NodeShape, World,
    engine::LIMIT,
    world::{Inner, Input},
};

use super::{AllFunctions, Summary, efficiency::Offer};

/// When every run starts: a Monday morning, so that budgets with schedules mean the same in each.
pub const START: &str = "2026-01-05T08:00:00Z";

/// How a run goes.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub seed: u64,
    pub faults: Vec<Fault>,
    /// `None`: until settled.
    pub until: Option<SignedDuration>,
    /// Nothing is kept in memory from one run of a function to the next.
    pub cold: bool,
}

/// What is run.
pub struct Scenario {
    pub settings: Settings,
    /// Types given by the user, used as they are; `None`: the built-in facts of the region.
    pub types: Option<Vec<InstanceType>>,
    /// Objects, applied at the start.
    pub manifests: Vec<Value>,
    /// Bodies for the interruption queue, delivered once the workload has settled.
    pub events: Vec<String>,
    /// Inputs at a time after the start.
    pub script: Vec<(SignedDuration, Input)>,
}

/// Why a run could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    #[error("no facts are built in for region {0}; give a catalog file, or one of: {1}")]
    UnknownRegion(String, String),
    #[error("{0}")]
    Manifest(String),
    #[error("{0}")]
    Event(String),
    /// The same for an input at a time.
    #[error("{0}")]
    Script(String),
}

impl Scenario {
    /// Runs to the end. `watch` sees the world after every happening.
    ///
    /// # Errors
    /// When the region is unknown, an object cannot be read, or an event names an instance that is not there.
    pub fn run(
        &self,
        options: &Options,
        watch: &mut dyn FnMut(&Inner),
    ) -> Result<(Summary, World), ScenarioError> {
        let mut world = self.start(options)?;
        let start = world.read(|it| it.start);
        let end = options.until.map(|until| start + until);
        let mut limit = end.unwrap_or(start + LIMIT);
        let mut settled = world.run(limit, true, watch);
        if settled && !self.events.is_empty() {
            world.deliver(&self.events).map_err(ScenarioError::Event)?;
            limit = end.unwrap_or_else(|| world.read(|it| it.now) + LIMIT);
            settled = world.run(limit, true, watch);
        }
        if let Some(problem) = world.read(|it| it.unusable.clone()) {
            return Err(ScenarioError::Script(problem));
        }
        let summary = match end {
            // The state at the end is judged: the clock goes there, and then on to see whether all stays as it is.
            Some(end) => {
                world.run(end, false, watch);
                let mut summary = world.read(|it| Summary::of(it, false, options.seed));
                summary.settled = world.is_at_rest();
                summary
            }
            None => world.read(|it| Summary::of(it, settled, options.seed)),
        };
        Ok((summary, world))
    }

    /// A world with everything applied, at its first moment.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn start(&self, options: &Options) -> Result<World, ScenarioError> {
        let start: Timestamp = START.parse().map_err(|_| ScenarioError::Manifest(START.into()))?;
        let settings = Settings {
            account_id: spokeshave_sim::ports::ACCOUNT.into(),
            // The whole world is made up: its EC2 needs no stand-in.
            ec2_mode: "ec2".into(),
            ..self.settings.clone()
        };
        let (market, shape_of) = self.market(&settings, start)?;
        let functions = if options.cold { AllFunctions::cold } else { AllFunctions::new };
        let functions = Box::new(functions(&settings));
        let mut world = World::new(options.seed, start, settings, market, shape_of, functions);
        if let Some(types) = &self.types {
            let key = StateKey::new(stored::CATALOG, stored::FIXED);
            world.seed_state(key, plain::write(types));
        }
        for object in &self.manifests {
            world.apply(object).map_err(|error| ScenarioError::Manifest(error.to_string()))?;
        }
        for (after, input) in &self.script {
            world.plan(start + *after, input.clone());
        }
        if !options.faults.is_empty() {
            // Faults stop at a seeded time, a quarter of an hour to an hour after the start.
            let minutes = 15 + i64::try_from(options.seed.wrapping_mul(7) % 46).unwrap_or(0);
            world.set_faults(options.faults.clone(), start + SignedDuration::from_mins(minutes));
        }
        Ok(world)
    }

    /// What the NodePools of the manifests may buy, for the price bound of the report. Reservations, which are paid for
    /// anyway, are left out.
    pub fn offers(&self) -> Vec<Offer> {
        let start = START.parse().unwrap_or_default();
        let builtin = || {
            let catalog = Catalog::builtin(&self.settings.region)?.with_estimated_spot_prices();
            let market = MarketView::new(&self.settings, start);
            catalog.instance_types(&EC2NodeClass::default(), &market).ok()
        };
        let types = self.types.clone().or_else(builtin).unwrap_or_default();
        let pools: Vec<Requirements> = self
            .manifests
            .iter()
            .filter(|it| it["kind"] == "NodePool")
            .filter_map(|it| from_value::<NodePool>(it.clone()).ok())
            .map(|it| Requirements::from_api(&it.spec.template.spec.requirements))
            .collect();
        let mut offers = Vec::new();
        for it in &types {
            for pool in pools.iter().filter(|pool| it.requirements.meets(pool)) {
                let wanted = |key: &str, value: &str| pool.get(key).is_none_or(|it| it.has(value));
                let price = it
                    .offerings
                    .iter()
                    .filter(|it| it.available && it.capacity_type != CapacityType::Reserved)
                    .filter(|it| wanted(labels::CAPACITY_TYPE, it.capacity_type.as_str()))
                    .filter(|it| wanted(labels::ZONE, &it.zone))
                    .filter_map(|it| it.price)
                    .min_by(f64::total_cmp);
                offers.extend(price.and_then(|price| Offer::new(it, price)));
            }
        }
        offers
    }

    /// What is sold, and what a node of each type looks like.
    fn market(
        &self,
        settings: &Settings,
        start: Timestamp,
    ) -> Result<(Market, spokeshave_sim::market::ShapeOf), ScenarioError> {
        if let Some(types) = &self.types {
            let market = Market::of_types(types);
            let types = types.clone();
            let shape = move |name: &str, _: &EC2NodeClass| {
                types.iter().find(|it| it.name == name).map(shape)
            };
            return Ok((market, Rc::new(shape)));
        }
        let catalog = Catalog::builtin(&settings.region).ok_or_else(|| {
            ScenarioError::UnknownRegion(
                settings.region.clone(),
                spokeshave_catalog::builtin::regions().join(", "),
            )
        })?;
        let market = market_of(&catalog);
        let settings = settings.clone();
        let resolved: std::cell::RefCell<std::collections::BTreeMap<String, Vec<InstanceType>>> =
            std::cell::RefCell::default();
        let shape = move |name: &str, class: &EC2NodeClass| {
            let key = format!("{}/{}", class.metadata.uid, class.metadata.generation);
            let mut resolved = resolved.borrow_mut();
            let types = resolved.entry(key).or_insert_with(|| {
                // Every zone counts: an instance is where it is.
                let mut class = class.clone();
                class.status.subnets.clear();
                catalog
                    .instance_types(&class, &MarketView::new(&settings, start))
                    .unwrap_or_default()
            });
            types.iter().find(|it| it.name == name).map(shape)
        };
        Ok((market, Rc::new(shape)))
    }
}

fn shape(it: &InstanceType) -> NodeShape {
    NodeShape {
        capacity: it.capacity.clone(),
        allocatable: it.allocatable(),
        arch: it.requirements.single(labels::ARCH).unwrap_or("amd64").to_owned(),
        os: it.requirements.single(labels::OS).unwrap_or("linux").to_owned(),
    }
}

/// The market of the built-in facts; spot prices are estimates, since no facts of them last.
fn market_of(catalog: &Catalog) -> Market {
    let catalog = catalog.clone().with_estimated_spot_prices();
    let mut market = Market {
        zones: catalog
            .zones
            .iter()
            .map(|(name, id)| Zone {
                name: name.clone(),
                id: id.clone(),
                kind: "availability-zone".into(),
            })
            .collect(),
        types: catalog.types.to_vec(),
        on_demand: (*catalog.on_demand).clone(),
        ..Market::default()
    };
    let sells = |name: &str, usage: &str| {
        catalog.describe(name).is_none_or(|it| it.usage_classes.iter().any(|it| it == usage))
    };
    for (name, zones) in &catalog.offerings {
        let on_demand = catalog.on_demand.get(name).copied();
        for zone in zones {
            market.offerings.push(TypeOffering { instance_type: name.clone(), zone: zone.clone() });
            if let Some(price) = on_demand.filter(|_| sells(name, "on-demand")) {
                market.prices.insert((name.clone(), zone.clone(), CapacityType::OnDemand), price);
            }
            if let Some(price) = catalog.spot_price(name, zone).filter(|_| sells(name, "spot")) {
                market.prices.insert((name.clone(), zone.clone(), CapacityType::Spot), price);
                market.spot.push(SpotPrice {
                    instance_type: name.clone(),
                    zone: zone.clone(),
                    price,
                    timestamp: START.parse().ok(),
                });
            }
        }
    }
    market
}
