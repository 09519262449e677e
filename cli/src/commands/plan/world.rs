//! A cluster from files as the planner reads it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use jiff::Timestamp;
use spokeshave_catalog::{Catalog, MarketView, offerings::overlay_prices};
use spokeshave_model::{
    CapacityType, EC2NodeClass, InstanceType, Kind, NodePool, ObjectMeta, Operator, Requirement,
    Settings,
    conditions::{self, Condition, ConditionStatus}, core::Pod, hash, labels,
};
use spokeshave_scheduling::{
    ClusterView, Object, Options, PoolInput, buffers,
    defaults::SchedulerConfig,
    overlays::{self, Verdict},
};

use crate::{
    Failure,
    input::{self, ClusterInput},
};

/// Everything that plans and simulations of the command are made from.
pub struct World {
    pub settings: Settings,
    pub options: Options,
    pub view: ClusterView,
    /// All managed pools, ready or not: the planner takes those that take part.
    pub pools: Vec<PoolInput>,
    /// NodeOverlays that do not count, and why.
    pub refused_overlays: Vec<(String, String)>,
    pub now: Timestamp,
}

/// Where instance types come from.
pub enum Source {
    /// Given in the plain form, used as they are.
    Plain(Vec<InstanceType>),
    /// The built-in facts of a region.
    Builtin(Box<Catalog>),
}

impl Source {
    /// `--catalog FILE`, else the facts of `--region`.
    ///
    /// # Errors
    /// A file that is no catalog, or a region without built-in facts.
    pub fn read(catalog: Option<&Path>, region: &str) -> Result<Self, Failure> {
        let Some(path) = catalog else {
            return Catalog::builtin(region)
                .map(Catalog::with_estimated_spot_prices)
                .map(|it| Self::Builtin(Box::new(it)))
                .ok_or_else(|| {
                    Failure::new(format!("no built-in facts of region {region:?}"))
                        .fix("give --catalog FILE, or another --region")
                });
        };
        input::load_catalog(path).map(Self::Plain)
    }

    /// The types as `class` would use them.
    ///
    /// # Errors
    /// Kubelet settings of the class that cannot be used.
    pub fn types(
        &self,
        class: &EC2NodeClass,
        settings: &Settings,
        overlay_prices: &BTreeMap<String, f64>,
        now: Timestamp,
    ) -> Result<Arc<[Arc<InstanceType>]>, Failure> {
        match self {
            Self::Plain(types) => {
                let zones: BTreeSet<&str> =
                    class.status.subnets.iter().map(|it| it.zone.as_str()).collect();
                Ok(types
                    .iter()
                    .map(|it| {
                        let mut it = it.clone();
                        if !settings.gates.reserved_capacity {
                            it.offerings.retain(|it| it.capacity_type != CapacityType::Reserved);
                            let reserved = [CapacityType::Reserved.as_str()];
                            it.requirements.add(Requirement::new(
                                labels::CAPACITY_TYPE,
                                Operator::NotIn,
                                reserved,
                            ));
                        }
                        narrow(&mut it, &zones);
                        for offering in &mut it.offerings {
                            let empty =
                                offering.reservation.as_ref().is_some_and(|it| it.count <= 0);
                            let nowhere =
                                !zones.is_empty() && !zones.contains(offering.zone.as_str());
                            offering.available &= !empty && !nowhere;
                        }
                        Arc::new(it)
                    })
                    .collect())
            }
            Self::Builtin(catalog) => {
                let mut market = MarketView::new(settings, now);
                market.overlay_prices.clone_from(overlay_prices);
                let types = catalog.instance_types(class, &market).map_err(|error| {
                    let mut text = error.to_string();
                    let mut source = std::error::Error::source(&error);
                    while let Some(it) = source {
                        text = format!("{text}: {it}");
                        source = it.source();
                    }
                    Failure::new(text).object(class.reference()).fix("correct spec.kubelet")
                })?;
                Ok(types.into_iter().map(Arc::new).collect())
            }
        }
    }
}

/// Leaves a type the zones of the class's subnets: others are no places for topology either. No zones: all count.
fn narrow(it: &mut InstanceType, zones: &BTreeSet<&str>) {
    if zones.is_empty() {
        return;
    }
    it.requirements.add(Requirement::new(labels::ZONE, Operator::In, zones.iter().copied()));
    let ids: BTreeSet<&str> = it
        .offerings
        .iter()
        .filter(|it| zones.contains(it.zone.as_str()) && !it.zone_id.is_empty())
        .map(|it| it.zone_id.as_str())
        .collect();
    if !ids.is_empty() {
        it.requirements.add(Requirement::new(labels::ZONE_ID, Operator::In, ids));
    }
}

/// `SCHEDULER_CONFIG` and the other settings as options of the planner.
///
/// # Errors
/// A `SCHEDULER_CONFIG` that breaks its rules.
pub fn options(settings: &Settings) -> Result<Options, Failure> {
    let mut options = Options::from_settings(settings);
    if !settings.scheduler_config.trim().is_empty() {
        let wrong = |problem: String| {
            Failure::new(format!("setting SCHEDULER_CONFIG: {problem}"))
                .fix("see podTopologySpread.defaultConstraints")
        };
        let config: SchedulerConfig = serde_saphyr::from_str(&settings.scheduler_config)
            .map_err(|error| wrong(error.to_string()))?;
        options.default_spread =
            config.constraints().map_err(|error| Failure::new(format!("setting {error}")))?;
    }
    Ok(options)
}

/// Objects without a namespace are in `default`, as `kubectl apply` would have it.
fn placed<K: Kind>(list: &[Arc<K>]) -> Vec<Arc<K>> {
    list.iter()
        .map(|it| {
            if !K::NAMESPACED || !it.meta().namespace.is_empty() {
                return Arc::clone(it);
            }
            let mut copy = (**it).clone();
            "default".clone_into(&mut copy.meta_mut().namespace);
            Arc::new(copy)
        })
        .collect()
}

/// The objects of an input as a view.
pub fn cluster_view(input: &ClusterInput) -> ClusterView {
    let mut view = ClusterView::default();
    let mut add = |object: Object| view.apply(spokeshave_scheduling::Change::Put(object));
    macro_rules! all {
        ($($field:ident),* $(,)?) => {
            $(placed(&input.$field).into_iter().map(Object::from).for_each(&mut add);)*
        };
    }
    all!(
        node_claims,
        nodes,
        pods,
        node_pools,
        node_classes,
        node_overlays,
        capacity_buffers,
        pod_templates,
        daemon_sets,
        deployments,
        replica_sets,
        replication_controllers,
        stateful_sets,
        services,
        persistent_volumes,
        persistent_volume_claims,
        storage_classes,
        csi_nodes,
        pod_disruption_budgets,
        namespaces,
        limit_ranges,
    );
    view
}

impl World {
    /// Builds the view and resolves each pool's instance types.
    ///
    /// # Errors
    /// Settings, catalogs or classes that cannot be used.
    pub fn new(
        input: &ClusterInput,
        source: &Source,
        settings: Settings,
        now: Timestamp,
    ) -> Result<Self, Failure> {
        let options = options(&settings)?;
        let view = cluster_view(input);
        let overlay_prices = if settings.gates.node_overlay {
            overlay_prices(view.overlays.values().map(|it| &**it), true)
        } else {
            BTreeMap::new()
        };
        let mut types: BTreeMap<String, Arc<[Arc<InstanceType>]>> = BTreeMap::new();
        let mut pools = Vec::new();
        for pool in view.nodepools.values().filter(|it| it.is_managed()) {
            let name = &pool.spec.template.spec.node_class_ref.name;
            let class = view.node_classes.values().find(|it| it.metadata.name == *name);
            if !types.contains_key(name) {
                // A class that is not among the files has nothing to say.
                let plain =
                    EC2NodeClass { metadata: ObjectMeta::named(name), ..EC2NodeClass::default() };
                let class = class.map_or(&plain, |it| it);
                let list = source.types(class, &settings, &overlay_prices, now)?;
                types.insert(name.clone(), list);
            }
            pools.push(PoolInput {
                nodepool: with_readiness(pool, class),
                hash: hash::node_pool(pool),
                instance_types: match class {
                    // A class on its way out offers nothing any more.
                    Some(class) if class.metadata.deleting() => {
                        Err(format!("EC2NodeClass {name} is being deleted"))
                    }
                    _ => types
                        .get(name)
                        .cloned()
                        .ok_or_else(|| format!("EC2NodeClass {name} not found")),
                },
            });
        }
        let mut refused_overlays = Vec::new();
        if settings.gates.node_overlay {
            for (name, verdict) in
                overlays::apply(&mut pools, view.overlays.values().map(|it| &**it))
            {
                match verdict {
                    Verdict::Applied => {}
                    Verdict::Invalid(why) => refused_overlays.push((name, why)),
                    Verdict::Conflict => {
                        refused_overlays.push((name, overlays::CONFLICT.to_owned()));
                    }
                }
            }
        }
        Ok(Self { settings, options, view, pools, refused_overlays, now })
    }

    /// The placeholders of CapacityBuffers, if their gate is on.
    pub fn virtual_pods(&self) -> Vec<Arc<Pod>> {
        if self.settings.gates.capacity_buffer {
            buffers::virtual_pods(&self.view)
        } else {
            Vec::new()
        }
    }
}

/// The pool; without a status of its own it is as ready as its class says to be.
fn with_readiness(pool: &Arc<NodePool>, class: Option<&Arc<EC2NodeClass>>) -> Arc<NodePool> {
    if !pool.status.conditions.is_empty() {
        return Arc::clone(pool);
    }
    if class.is_some_and(|it| it.metadata.deleting()) {
        let mut copy = (**pool).clone();
        copy.status.conditions.push(Condition {
            type_: conditions::READY.to_owned(),
            status: ConditionStatus::False,
            reason: "NodeClassTerminating".to_owned(),
            message: "NodeClass is terminating".to_owned(),
            ..Condition::default()
        });
        return Arc::new(copy);
    }
    let of_class = class.and_then(|it| conditions::find(&it.status.conditions, conditions::READY));
    match of_class {
        Some(ready) if ready.status != ConditionStatus::True => {
            let mut copy = (**pool).clone();
            copy.status.conditions.push(ready.clone());
            Arc::new(copy)
        }
        _ => Arc::clone(pool),
    }
}
