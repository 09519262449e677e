//! What new nodes can be made from: one template per pool, its instance types, and indexes that answer "which types
//! are left" with a few words of bits (`spec` scheduling 11 and 13.1).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rustc_hash::FxHashMap;
use spokeshave_model::{
    CapacityType, InstanceType, NodePool, Offering, Requirement, Requirements, Resources, Taint,
    conditions::{ConditionStatus, READY},
    labels,
    settings::MinValuesPolicy,
};

use crate::{
    bits::Bits,
    daemons::Daemon,
    dims::{Amounts, Dims},
    ports::HostPort,
    report::ALL_FILTERED,
    sets::{SetId, Sets},
    volumes,
};

/// A type, or where offerings override capacity, the offerings of a type that share an override: what "fits" and
/// "has an offering" must hold of together.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) type_at: usize,
    /// Positions of the available offerings, with their requirements.
    pub(crate) offerings: Vec<(usize, SetId)>,
    pub(crate) allocatable: Amounts,
    /// EBS volumes that can be attached; `None` where nobody knows.
    attachable: Option<usize>,
    pub(crate) daemon_group: usize,
}

/// Types that carry exactly the same DaemonSet pods.
#[derive(Clone, Debug)]
pub(crate) struct DaemonGroup {
    pub(crate) overhead: Resources,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) slots: Bits,
    pub(crate) daemons: Vec<String>,
}

/// The slots with at least so much of one resource.
#[derive(Clone, Debug, Default)]
struct Steps {
    amounts: Vec<i128>,
    /// Slots with at least `amounts[i]`.
    slots: Vec<Bits>,
}

impl Steps {
    fn new(amounts: &(impl Iterator<Item = i128> + Clone)) -> Self {
        let distinct: BTreeSet<i128> = amounts.clone().collect();
        let slots = distinct
            .iter()
            .map(|least| {
                amounts
                    .clone()
                    .enumerate()
                    .filter(|(_, amount)| amount >= least)
                    .map(|(at, _)| at)
                    .collect()
            })
            .collect();
        Self { amounts: distinct.into_iter().collect(), slots }
    }

    fn at_least(&self, amount: i128) -> Option<&Bits> {
        self.slots.get(self.amounts.partition_point(|it| *it < amount))
    }
}

/// Reserved offerings: (slot, reservation).
type Reserved = Vec<(usize, usize)>;
/// Offerings (position, requirements) that override capacity and overhead alike.
type Overridden = (Option<Resources>, Option<Resources>, Vec<(usize, SetId)>);

/// What a requirement set leaves of a template's slots.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    /// Type meets the requirements and the slot has an available compatible offering.
    pub(crate) slots: Bits,
    /// Compatible available reserved offerings: (slot, reservation).
    pub(crate) reserved: Vec<(usize, usize)>,
}

/// A pool as something that nodes can be made from.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) pool: Arc<NodePool>,
    pub(crate) hash: String,
    pub(crate) set: SetId,
    pub(crate) taints: Arc<[Taint]>,
    /// Types that meet the template's own requirements and can be bought.
    pub(crate) types: Vec<Arc<InstanceType>>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) daemon_groups: Vec<DaemonGroup>,
    /// Slots of which daemons and overhead leave something at all.
    pub(crate) base: Bits,
    pub(crate) reservations: Vec<String>,
    pub(crate) has_min_values: bool,
    steps: Vec<Steps>,
    attachable: Steps,
    offering_classes: Vec<(SetId, Bits, Reserved)>,
    meeting: FxHashMap<Requirement, Bits>,
    left: FxHashMap<SetId, Arc<Left>>,
    values: FxHashMap<String, Arc<Vec<(String, Bits)>>>,
    /// Limited resources and each slot's capacity of them.
    capacities: Vec<(String, Vec<i128>, Steps)>,
}

/// Why a pool makes no nodes in this plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// Its requirements leave no instance type that can be bought; whether `minValues` was the cause.
    NoCompatibleInstanceTypes { min_values: bool },
    /// The instance types could not be listed.
    NoCatalog(String),
    /// Its condition `Ready` is not True; which of the others it waits for.
    NotReady(String),
}

impl Skipped {
    /// In words, as [`crate::Reason::pools`] has it.
    pub fn text(&self) -> String {
        match self {
            Self::NoCatalog(problem) => {
                format!("instance types could not be listed (will be tried again): {problem}")
            }
            Self::NoCompatibleInstanceTypes { min_values: false } => ALL_FILTERED.to_owned(),
            Self::NoCompatibleInstanceTypes { min_values: true } => {
                format!("{ALL_FILTERED} due to minValues incompatibility")
            }
            Self::NotReady(why) => format!("the pool is not ready: {why}"),
        }
    }

    /// What `pool` waits for.
    pub(crate) fn not_ready(pool: &NodePool) -> Self {
        let waits: Vec<String> = pool
            .status
            .conditions
            .iter()
            .filter(|it| NodePool::DEPENDENTS.contains(&it.type_.as_str()))
            .filter(|it| it.status != ConditionStatus::True)
            .map(|it| {
                let message = if it.message.is_empty() { &it.reason } else { &it.message };
                format!("{}={:?} ({message})", it.type_, it.status)
            })
            .collect();
        Self::NotReady(if waits.is_empty() {
            format!("{READY} is not True")
        } else {
            waits.join(", ")
        })
    }
}

impl Template {
    /// The labels of the claims of a pool, before custom ones are resolved.
    pub(crate) fn labels(pool: &NodePool) -> BTreeMap<String, String> {
        let mut all = pool.spec.template.metadata.labels.clone().into_inner();
        all.insert(labels::NODEPOOL.to_owned(), pool.metadata.name.clone());
        let class = &pool.spec.template.spec.node_class_ref;
        let key = format!("{}/{}", class.group, class.kind.to_lowercase());
        all.insert(key, class.name.clone());
        all
    }

    /// The requirements of a pool, its labels, and the two labels that every node will once have.
    pub(crate) fn requirements(pool: &NodePool) -> Requirements {
        let mut set = Requirements::from_api(&pool.spec.template.spec.requirements);
        set.add_all(&Requirements::from_labels(&Self::labels(pool)));
        set.add(Requirement::equals(labels::REGISTERED, "true"));
        set.add(Requirement::equals(labels::INITIALIZED, "true"));
        set
    }

    pub(crate) fn new(
        pool: &Arc<NodePool>,
        hash: &str,
        types: &[Arc<InstanceType>],
        daemons: &[Daemon],
        dims: &Dims,
        sets: &mut Sets,
        reserved: bool,
        policy: MinValuesPolicy,
    ) -> Result<Self, Skipped> {
        let set = sets.intern(Self::requirements(pool));
        let requirements = Arc::clone(sets.get(set));
        let has_min_values = requirements.iter().any(|it| it.min_values.is_some());
        let usable = |it: &Offering| can_be_bought(it, reserved);
        let mut template = Self {
            pool: Arc::clone(pool),
            hash: hash.to_owned(),
            set,
            taints: pool.spec.template.spec.taints.clone().into_inner().into(),
            types: Vec::new(),
            slots: Vec::new(),
            daemon_groups: Vec::new(),
            base: Bits::default(),
            reservations: Vec::new(),
            has_min_values,
            steps: Vec::new(),
            attachable: Steps::default(),
            offering_classes: Vec::new(),
            meeting: FxHashMap::default(),
            left: FxHashMap::default(),
            values: FxHashMap::default(),
            capacities: Vec::new(),
        };
        let mut classes = OfferingClasses::default();
        for type_ in types {
            if !type_.requirements.meets(&requirements) {
                continue;
            }
            let mut groups: Vec<Overridden> = vec![(None, None, Vec::new())];
            let mut compatible = false;
            for (at, offering) in type_.offerings.iter().enumerate().filter(|it| usable(it.1)) {
                let overrides = (offering.capacity.as_deref(), offering.overhead.as_deref());
                let (class, suits) = classes.of(offering, &requirements, sets);
                compatible |= suits;
                match groups.iter_mut().find(|(a, b, _)| (a.as_ref(), b.as_ref()) == overrides) {
                    Some((_, _, list)) => list.push((at, class)),
                    None => {
                        groups.push((
                            overrides.0.cloned(),
                            overrides.1.cloned(),
                            vec![(at, class)],
                        ));
                    }
                }
            }
            if !compatible {
                continue;
            }
            let type_at = template.types.len();
            template.types.push(Arc::clone(type_));
            for (_, _, offerings) in groups.into_iter().filter(|it| !it.2.is_empty()) {
                let allocatable = match offerings.first().and_then(|it| type_.offerings.get(it.0)) {
                    Some(it) if it.capacity.is_some() || it.overhead.is_some() => {
                        type_.allocatable_of(it)
                    }
                    _ => type_.allocatable(),
                };
                let allocatable = dims.amounts(&allocatable).0;
                let attachable = volumes::known_limit(&type_.requirements);
                let slot = Slot { type_at, offerings, allocatable, attachable, daemon_group: 0 };
                template.slots.push(slot);
            }
        }
        template.group_by_daemons(daemons, sets);
        template.index(dims);
        let bought = Arc::clone(&template.left(set, sets));
        let mut left = bought.slots.clone();
        left.and(
            &(0..template.slots.len())
                .filter(|at| template.slots[*at].allocatable.iter().all(|it| *it >= 0))
                .collect(),
        );
        if left.is_empty() {
            return Err(Skipped::NoCompatibleInstanceTypes { min_values: false });
        }
        if policy == MinValuesPolicy::Strict
            && !template.short_of_values(set, &left, sets).is_empty()
        {
            return Err(Skipped::NoCompatibleInstanceTypes { min_values: true });
        }
        template.base.and(&left);
        Ok(template)
    }

    fn group_by_daemons(&mut self, daemons: &[Daemon], sets: &mut Sets) {
        let mut groups: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let runs: Vec<Vec<SetId>> = daemons
            .iter()
            .map(|it| {
                if it.tolerates(&self.taints) {
                    it.sets_for_template(self.set, sets)
                } else {
                    Vec::new()
                }
            })
            .collect();
        let group_of_type: Vec<usize> = self
            .types
            .iter()
            .map(|type_| {
                let mine: Vec<usize> = (0..daemons.len())
                    .filter(|at| {
                        runs[*at].iter().any(|set| type_.requirements.meets(sets.get(*set)))
                    })
                    .collect();
                let next = groups.len();
                *groups.entry(mine).or_insert(next)
            })
            .collect();
        let mut ordered: Vec<(Vec<usize>, usize)> = groups.into_iter().collect();
        ordered.sort_by_key(|it| it.1);
        self.daemon_groups = ordered
            .into_iter()
            .map(|(mine, _)| {
                let mut group = DaemonGroup {
                    overhead: Resources::new(),
                    ports: Vec::new(),
                    slots: Bits::none(self.slots.len()),
                    daemons: Vec::new(),
                };
                for at in mine {
                    group.overhead.add(&daemons[at].requests);
                    group.ports.extend(daemons[at].ports.iter().cloned());
                    group.daemons.push(daemons[at].name.clone());
                }
                group
            })
            .collect();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            slot.daemon_group = group_of_type[slot.type_at];
            self.daemon_groups[slot.daemon_group].slots.set(at);
        }
    }

    fn index(&mut self, dims: &Dims) {
        let overheads: Vec<(Amounts, bool)> =
            self.daemon_groups.iter().map(|it| dims.amounts(&it.overhead)).collect();
        self.base = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| {
                let (overhead, known) = &overheads[slot.daemon_group];
                *known
                    && slot
                        .allocatable
                        .iter()
                        .zip(overhead)
                        .all(|(has, wants)| *has >= 0 && wants <= has)
            })
            .map(|it| it.0)
            .collect();
        self.steps = (0..dims.len())
            .map(|dim| {
                Steps::new(
                    &self
                        .slots
                        .iter()
                        .map(|slot| slot.allocatable[dim] - overheads[slot.daemon_group].0[dim]),
                )
            })
            .collect();
        let attachable = |it: &Slot| it.attachable.map_or(i128::MAX, |it| it as i128);
        self.attachable = Steps::new(&self.slots.iter().map(attachable));
        let mut reservations: BTreeMap<String, usize> = BTreeMap::new();
        let mut classes: BTreeMap<SetId, (Bits, Vec<(usize, usize)>)> = BTreeMap::new();
        for (at, slot) in self.slots.iter().enumerate() {
            for (offering, class) in &slot.offerings {
                let offering = &self.types[slot.type_at].offerings[*offering];
                let (slots, reserved) = classes.entry(*class).or_default();
                slots.set(at);
                if let Some(reservation) = &offering.reservation {
                    let next = reservations.len();
                    reserved
                        .push((at, *reservations.entry(reservation.id.clone()).or_insert(next)));
                }
            }
        }
        let mut ids: Vec<(String, usize)> = reservations.into_iter().collect();
        ids.sort_by_key(|it| it.1);
        self.reservations = ids.into_iter().map(|it| it.0).collect();
        self.offering_classes =
            classes.into_iter().map(|(set, (slots, reserved))| (set, slots, reserved)).collect();
        let limits = self.pool.spec.limits.clone().unwrap_or_default();
        self.capacities = limits
            .iter()
            .filter(|it| it.0 != spokeshave_model::resources::NODES)
            .map(|(name, _)| {
                let amounts: Vec<i128> = self
                    .slots
                    .iter()
                    .map(|slot| self.types[slot.type_at].capacity.get(name).nanos())
                    .collect();
                let steps = Steps::new(&amounts.iter().copied());
                (name.to_owned(), amounts, steps)
            })
            .collect();
    }

    /// What `set` leaves: types that meet it, with an available offering that is compatible.
    pub(crate) fn left(&mut self, set: SetId, sets: &Sets) -> Arc<Left> {
        if let Some(known) = self.left.get(&set) {
            return Arc::clone(known);
        }
        let requirements = Arc::clone(sets.get(set));
        let mut slots = self.meeting(&requirements);
        let mut offered = Bits::none(self.slots.len());
        let mut reserved = Vec::new();
        for (class, bits, holds) in &self.offering_classes {
            if requirements.meets(sets.get(*class)) {
                offered.or(bits);
                reserved.extend(holds.iter().copied());
            }
        }
        slots.and(&offered);
        reserved.retain(|it| slots.get(it.0));
        reserved.sort_unstable();
        let left = Arc::new(Left { slots, reserved });
        self.left.insert(set, Arc::clone(&left));
        left
    }

    /// What [`Self::left`] has found before.
    pub(crate) fn left_known(&self, set: SetId) -> Option<&Arc<Left>> {
        self.left.get(&set)
    }

    /// Slots whose type meets the requirements, offerings aside.
    pub(crate) fn meeting(&mut self, requirements: &Requirements) -> Bits {
        let mut slots = Bits::all(self.slots.len());
        for requirement in requirements.iter() {
            if !self.meeting.contains_key(requirement) {
                let alone: Requirements = [requirement.clone()].into_iter().collect();
                let bits = self
                    .slots
                    .iter()
                    .enumerate()
                    .filter(|(_, slot)| self.types[slot.type_at].requirements.meets(&alone))
                    .map(|it| it.0)
                    .collect();
                self.meeting.insert(requirement.clone(), bits);
            }
            if let Some(bits) = self.meeting.get(requirement) {
                slots.and(bits);
            }
        }
        slots
    }

    /// Slots with an available offering that the requirements allow.
    pub(crate) fn offered(&self, requirements: &Requirements, sets: &Sets) -> Bits {
        let mut offered = Bits::none(self.slots.len());
        for (class, bits, _) in &self.offering_classes {
            if requirements.meets(sets.get(*class)) {
                offered.or(bits);
            }
        }
        offered
    }

    /// Takes the slots out that do not hold `requests` (daemons aside, which are counted in).
    pub(crate) fn keep_fitting(&self, slots: &mut Bits, requests: &[i128], dims: &[usize]) {
        for dim in dims {
            let amount = requests[*dim];
            if amount > 0 {
                match self.steps[*dim].at_least(amount) {
                    Some(bits) => slots.and(bits),
                    None => {
                        *slots = Bits::default();
                        return;
                    }
                }
            }
        }
    }

    /// Takes the slots out to which so many EBS volumes cannot be attached.
    ///
    /// DIFFERENCE: Karpenter plans new nodes without attach limits, and pods spill over once the node is there.
    pub(crate) fn keep_attachable(&self, slots: &mut Bits, n_volumes: usize) {
        if n_volumes > 0 {
            match self.attachable.at_least(n_volumes as i128) {
                Some(bits) => slots.and(bits),
                None => *slots = Bits::default(),
            }
        }
    }

    /// Takes the slots out whose capacity exceeds what is left of a limit.
    pub(crate) fn keep_within(&self, slots: &mut Bits, remaining: &Resources) {
        for (name, _, steps) in &self.capacities {
            if let Some(beyond) = steps.at_least(remaining.get(name).nanos().saturating_add(1)) {
                slots.and_not(beyond);
            }
        }
    }

    /// The most of each limited resource that any of the slots has.
    pub(crate) fn most(&self, slots: &Bits) -> Vec<(&str, i128)> {
        self.capacities
            .iter()
            .map(|(name, amounts, _)| {
                let most = slots.iter().map(|at| amounts[at]).max().unwrap_or(0);
                (name.as_str(), most)
            })
            .collect()
    }

    /// The keys whose `minValues` the slots do not reach, with the number of values that there are.
    pub(crate) fn short_of_values(
        &mut self,
        set: SetId,
        slots: &Bits,
        sets: &Sets,
    ) -> Vec<(String, usize)> {
        if !self.has_min_values {
            return Vec::new();
        }
        let requirements = Arc::clone(sets.get(set));
        let mut short = Vec::new();
        for requirement in requirements.iter() {
            let Some(least) = requirement.min_values else { continue };
            let values = self.values_of(&requirement.key);
            let n_values = values.iter().filter(|(_, with)| with.meets(slots)).count();
            if i64::try_from(n_values).unwrap_or(i64::MAX) < i64::from(least) {
                short.push((requirement.key.clone(), n_values));
            }
        }
        short
    }

    fn values_of(&mut self, key: &str) -> Arc<Vec<(String, Bits)>> {
        if let Some(known) = self.values.get(key) {
            return Arc::clone(known);
        }
        let mut values: BTreeMap<String, Bits> = BTreeMap::new();
        for (at, slot) in self.slots.iter().enumerate() {
            let Some(requirement) = self.types[slot.type_at].requirements.get(key) else {
                continue;
            };
            if !requirement.complement {
                for value in &requirement.values {
                    values.entry(value.clone()).or_default().set(at);
                }
            }
        }
        let values = Arc::new(values.into_iter().collect::<Vec<_>>());
        self.values.insert(key.to_owned(), Arc::clone(&values));
        values
    }

    /// The daemon overhead that a claim with these slots counts: the least over its groups, by common names.
    pub(crate) fn least_overhead(&self, slots: &Bits) -> Resources {
        let mut groups =
            self.daemon_groups.iter().filter(|it| it.slots.meets(slots)).map(|it| &it.overhead);
        let Some(first) = groups.next() else { return Resources::new() };
        let mut least = first.clone();
        for other in groups {
            least.0.retain(|name, amount| {
                let theirs = other.0.get(name);
                if let Some(theirs) = theirs {
                    *amount = (*amount).min(*theirs);
                }
                theirs.is_some()
            });
        }
        least
    }

    /// Type positions of the slots, ascending and without doubles.
    pub(crate) fn types_of(&self, slots: &Bits) -> Vec<usize> {
        let mut types: Vec<usize> = slots.iter().map(|at| self.slots[at].type_at).collect();
        types.dedup();
        types
    }

    /// Whether some type has offerings that override what it has: then one slot of it can be left without the other.
    pub(crate) fn has_overrides(&self) -> bool {
        self.slots.len() > self.types.len()
    }

    /// Capacity types of the offerings of `slots` that `requirements` allow, sorted; types that are not `listed` aside.
    pub(crate) fn capacity_types(
        &self,
        requirements: &Requirements,
        slots: &Bits,
        listed: &[Priced],
        sets: &Sets,
    ) -> Vec<CapacityType> {
        let mut is_listed = vec![false; self.types.len()];
        listed.iter().for_each(|it| is_listed[it.type_at] = true);
        // Thousands of offerings are of a few classes.
        let mut seen = Bits::default();
        let mut all: Vec<CapacityType> = Vec::new();
        for slot in slots.iter().map(|at| &self.slots[at]).filter(|it| is_listed[it.type_at]) {
            for (at, class) in &slot.offerings {
                if seen.get(class.0 as usize) {
                    continue;
                }
                seen.set(class.0 as usize);
                if requirements.meets(sets.get(*class)) {
                    all.push(self.types[slot.type_at].offerings[*at].capacity_type);
                }
            }
        }
        all.sort();
        all.dedup();
        all
    }

    /// Every type with the lowest price among those offerings of `slots` that `requirements` allow, cheapest first; ties
    /// by name. An offering whose price nobody knows, and a type without any offering, cost infinitely much.
    pub(crate) fn by_price(
        &self,
        requirements: &Requirements,
        slots: &Bits,
        sets: &Sets,
    ) -> Vec<Priced> {
        let mut suits: FxHashMap<SetId, bool> = FxHashMap::default();
        let mut all: Vec<Priced> = (0..self.types.len())
            .map(|type_at| Priced { price: f64::INFINITY, type_at, offering: None })
            .collect();
        for slot in slots.iter().map(|at| &self.slots[at]) {
            let type_ = &self.types[slot.type_at];
            for (at, class) in &slot.offerings {
                let offering = &type_.offerings[*at];
                let price = offering.price.unwrap_or(f64::INFINITY);
                let suits =
                    *suits.entry(*class).or_insert_with(|| requirements.meets(sets.get(*class)));
                if !suits {
                    continue;
                }
                let best = &mut all[slot.type_at];
                let place = |it: &Offering| (it.zone.clone(), it.capacity_type);
                let better = best.offering.is_none_or(|other| {
                    let other = &type_.offerings[other];
                    price
                        .total_cmp(&best.price)
                        .then_with(|| place(offering).cmp(&place(other)))
                        .is_lt()
                });
                if better {
                    best.price = price;
                    best.offering = Some(*at);
                }
            }
        }
        all.sort_by(|a, b| {
            a.price
                .total_cmp(&b.price)
                .then_with(|| self.types[a.type_at].name.cmp(&self.types[b.type_at].name))
        });
        all
    }
}

/// Whether an offering is there to be bought. Spot capacity without a price is not: nobody could tell what it would cost,
/// and its price is what spot is bought for; on-demand capacity without a known price is bought last.
pub(crate) fn can_be_bought(offering: &Offering, reserved: bool) -> bool {
    offering.available
        && (reserved || offering.capacity_type != CapacityType::Reserved)
        && (offering.price.is_some() || offering.capacity_type != CapacityType::Spot)
        && offering.reservation.as_ref().is_none_or(|it| it.count > 0)
}

/// A type and the cheapest way to buy it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Priced {
    pub(crate) price: f64,
    pub(crate) type_at: usize,
    pub(crate) offering: Option<usize>,
}

/// Capacity type, zone, zone id, reservation and partition of an offering: all that its requirements come from.
type OfferingKey<'a> =
    (CapacityType, &'a str, &'a str, Option<(&'a str, &'a str, bool)>, Option<i64>);

/// Offerings repeat the same few requirements.
#[derive(Default)]
struct OfferingClasses<'a>(FxHashMap<OfferingKey<'a>, (SetId, bool)>);

impl<'a> OfferingClasses<'a> {
    /// The requirements of an offering, and whether `wanted` allows them.
    fn of(
        &mut self,
        offering: &'a Offering,
        wanted: &Requirements,
        sets: &mut Sets,
    ) -> (SetId, bool) {
        let reservation = offering
            .reservation
            .as_ref()
            .map(|it| (it.id.as_str(), it.type_.as_str(), it.interruptible));
        let key = (
            offering.capacity_type,
            offering.zone.as_str(),
            offering.zone_id.as_str(),
            reservation,
            offering.partition,
        );
        *self.0.entry(key).or_insert_with(|| {
            let requirements = offering.requirements();
            let suits = wanted.meets(&requirements);
            (sets.intern(requirements), suits)
        })
    }
}
