//! One solve: the queue, and for each pod the places in their order (`spec` scheduling 12).

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use jiff::Timestamp;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use spokeshave_model::{
    Kind, NodeClaim, ObjectKey, Requirement, Requirements, Resources, Taint, core::Pod, labels,
    settings::PreferencePolicy,
};

use crate::{
    bits::Bits,
    defaults,
    dims::Amounts,
    planner::{Batch, Planner},
    ports::HostPort,
    sets::SetId,
    shapes::{self, KeyGroups, Shape, ShapeId},
    shortage::Wait,
    solution::Solution,
    topology::{Group, Topology},
    volumes::Attachments,
    wishes::{Wish, WishId},
};

/// The host name of every claim that has no node yet, as messages may show it.
pub(crate) const PLACEHOLDER: &str = "hostname-placeholder";
/// How many pods are placed between two looks at the time.
const LOOK_EVERY: usize = 64;

/// A node that does not exist yet: planned here, or ordered before and not launched (`ordered`).
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) template: usize,
    pub(crate) taints: Arc<[Taint]>,
    pub(crate) set: SetId,
    pub(crate) slots: Bits,
    /// Of its pods, daemons aside.
    pub(crate) requests: Amounts,
    pub(crate) pods: Vec<usize>,
    pub(crate) ports: Vec<HostPort>,
    /// Claims of EBS volumes that its pods attach.
    pub(crate) volumes: BTreeSet<ObjectKey>,
    /// Reservations put aside for it, by number.
    pub(crate) held: Vec<usize>,
    pub(crate) host: usize,
    pub(crate) min_values_relaxed: bool,
    /// An order that was placed before and cannot be changed any more.
    pub(crate) ordered: Option<Order>,
    pub(crate) position: (u32, i64),
    pub(crate) open: bool,
}

/// What is known of a claim that was ordered and has no instance yet.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) claim: Arc<NodeClaim>,
    /// Where none of the types it may become can be bought now, as far as anybody knows: what it was ordered for.
    pub(crate) asked: Option<Amounts>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) pod: Arc<Pod>,
    pub(crate) shape: ShapeId,
    /// Keeps off rows that hold back.
    pub(crate) movable: bool,
    /// From a node that is going away.
    pub(crate) displaced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Row(usize),
    Claim(usize),
}

/// What a trial on a claim would make of it.
pub(crate) struct Fit {
    pub(crate) set: SetId,
    pub(crate) slots: Bits,
    pub(crate) requests: Amounts,
    pub(crate) held: Vec<usize>,
    pub(crate) min_values_relaxed: bool,
}

pub(crate) enum Trial {
    Placed,
    Deferred(String),
    Failed,
}

/// Choices of topology for one pod, by what the claim was before: valid until something is placed.
pub(crate) type Choices = SmallVec<[(SetId, Option<SetId>); 8]>;

#[derive(Debug)]
pub(crate) struct Run<'p, 'a> {
    pub(crate) planner: &'p mut Planner<'a>,
    pub(crate) batch: &'p Batch,
    pub(crate) topology: Topology,
    pub(crate) shapes: Vec<Shape>,
    /// Shapes of pods that have given up nothing yet.
    by_wish: FxHashMap<WishId, ShapeId>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) order: Vec<usize>,
    /// Resources that any pod of the batch asks for.
    pub(crate) active: Vec<usize>,
    /// The least that any pod asks for, per resource.
    pub(crate) least: Amounts,
    /// What is left on the rows that have received pods.
    pub(crate) rooms: FxHashMap<usize, Amounts>,
    pub(crate) filled: Bits,
    pub(crate) offered: Bits,
    pub(crate) holding_back: Bits,
    pub(crate) added_ports: FxHashMap<usize, Vec<HostPort>>,
    pub(crate) attached: FxHashMap<usize, (Attachments, BTreeMap<String, usize>)>,
    /// Rows that still have room, by what is asked for.
    pub(crate) alive: FxHashMap<usize, Bits>,
    pub(crate) class_domains: FxHashMap<(usize, u32), Option<usize>>,
    pub(crate) row_pods: BTreeMap<usize, Vec<usize>>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) open: BTreeMap<(u32, i64), usize>,
    pub(crate) front: i64,
    pub(crate) back: i64,
    /// Claims that have no room any more for pods that fit alike.
    pub(crate) dead: FxHashMap<usize, Bits>,
    pub(crate) remaining: Vec<Option<Resources>>,
    pub(crate) reservation_ids: Vec<Vec<usize>>,
    pub(crate) reservations: Vec<(String, i64)>,
    pub(crate) placements: u64,
    pub(crate) log: Vec<(usize, ShapeId, Place)>,
    running: bool,
    pub(crate) explained: Option<usize>,
    pub(crate) current: Option<usize>,
    /// The first claims are orders of before.
    pub(crate) n_orders: usize,
    pub(crate) steps: Vec<String>,
    /// How many claims of a shape are under way or opened; kept while something is held back.
    pub(crate) opened: BTreeMap<String, u32>,
    /// What the current pod waits for, and until when others do.
    pub(crate) wait: Option<Wait>,
    pub(crate) waiting: BTreeMap<usize, Timestamp>,
}

impl<'p, 'a> Run<'p, 'a> {
    pub(crate) fn new(planner: &'p mut Planner<'a>, batch: &'p Batch) -> Self {
        let view = planner.view;
        let pods: Vec<Arc<Pod>> = batch
            .pods
            .iter()
            .map(|pod| defaults::with_default_spread(pod, view, &planner.options.default_spread))
            .map(|pod| match planner.options.preference_policy {
                PreferencePolicy::Respect => pod,
                PreferencePolicy::Ignore => shapes::without_preferences(&pod).map_or(pod, Arc::new),
            })
            .collect();
        let prints: Vec<u64> = pods.iter().map(|it| shapes::fingerprint(it)).collect();
        planner.look_at(&pods, &batch.pods, &prints);
        // By name, not row by row: there are thousands of rows, and few are taken out.
        let out: Bits = batch.without.iter().flat_map(|it| planner.rows.named(it)).collect();
        let mut offered = planner.open_rows.clone();
        offered.and_not(&out);
        let mut holding_back = Bits::default();
        if batch.respect_consolidate_after {
            holding_back = planner.holding_rows.clone();
            holding_back.and_not(&out);
        }
        let remaining = planner.remaining(|row| row.offered && !out.get(row.at));
        let n_dims = planner.dims.len();
        let Planner { repellers, rows, sets, .. } = &mut *planner;
        let topology = Topology::new(&batch.pods, out.clone(), repellers, view, rows, sets);
        let mut run = Self {
            planner,
            batch,
            topology,
            shapes: Vec::new(),
            by_wish: FxHashMap::default(),
            entries: Vec::with_capacity(pods.len()),
            order: Vec::new(),
            active: Vec::new(),
            least: SmallVec::from_elem(i128::MAX, n_dims),
            rooms: FxHashMap::default(),
            filled: Bits::default(),
            offered,
            holding_back,
            added_ports: FxHashMap::default(),
            attached: FxHashMap::default(),
            alive: FxHashMap::default(),
            class_domains: FxHashMap::default(),
            row_pods: BTreeMap::new(),
            claims: Vec::new(),
            open: BTreeMap::new(),
            front: 0,
            back: 1,
            dead: FxHashMap::default(),
            remaining,
            reservation_ids: Vec::new(),
            reservations: Vec::new(),
            placements: 0,
            log: Vec::new(),
            running: false,
            explained: None,
            current: None,
            n_orders: 0,
            steps: Vec::new(),
            opened: BTreeMap::new(),
            wait: None,
            waiting: BTreeMap::new(),
        };
        run.count_reservations();
        run.enter(&pods, &prints);
        run.adopt_orders();
        run
    }

    /// The ledger: the least count seen for each reservation.
    fn count_reservations(&mut self) {
        let mut index: FxHashMap<String, usize> = FxHashMap::default();
        for template in &self.planner.templates {
            let mut ids = Vec::new();
            for id in &template.reservations {
                let next = index.len();
                let at = *index.entry(id.clone()).or_insert(next);
                if at == self.reservations.len() {
                    self.reservations.push((id.clone(), i64::MAX));
                }
                ids.push(at);
            }
            self.reservation_ids.push(ids);
            for reservation in template
                .types
                .iter()
                .flat_map(|it| &it.offerings)
                .filter_map(|it| it.reservation.as_ref())
            {
                if let Some(at) = index.get(&reservation.id) {
                    let left = &mut self.reservations[*at].1;
                    *left = (*left).min(reservation.count);
                }
            }
        }
    }

    fn enter(&mut self, pods: &[Arc<Pod>], prints: &[u64]) {
        let asks_for_keys = !self.batch.displaced.is_empty() || self.batch.explain.is_some();
        for (at, (pod, print)) in pods.iter().zip(prints).enumerate() {
            // The pod itself, not the copy with defaults and without preferences.
            let original = Arc::clone(self.batch.pods.get(at).unwrap_or(pod));
            let shape = self.shape_of(pod, &original, *print);
            let key = asks_for_keys.then(|| Kind::key(&**pod));
            let displaced = key.as_ref().is_some_and(|it| self.batch.displaced.contains(it));
            let movable =
                self.batch.respect_consolidate_after && !displaced && pod.status.phase != "Pending";
            if key.is_some() && self.batch.explain == key {
                self.explained = Some(at);
            }
            self.entries.push(Entry { pod: original, shape, movable, displaced });
        }
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_by(|a, b| {
            let (a, b) = (&self.entries[*a], &self.entries[*b]);
            let (x, y) = (&self.shapes[a.shape].requests, &self.shapes[b.shape].requests);
            // Positions 0 and 1 are cpu and memory.
            y[0].cmp(&x[0]).then_with(|| y[1].cmp(&x[1])).then_with(|| {
                let (a, b) = (&a.pod.metadata, &b.pod.metadata);
                (a.creation_timestamp, &a.uid, &a.namespace, &a.name).cmp(&(
                    b.creation_timestamp,
                    &b.uid,
                    &b.namespace,
                    &b.name,
                ))
            })
        });
        self.order = order;
        let n_dims = self.planner.dims.len();
        self.active =
            (0..n_dims).filter(|dim| self.shapes.iter().any(|it| it.requests[*dim] > 0)).collect();
        for shape in &self.shapes {
            for dim in 0..n_dims {
                self.least[dim] = self.least[dim].min(shape.requests[dim]);
            }
        }
        let pods: Vec<Arc<Pod>> = self.shapes.iter().map(|it| Arc::clone(&it.pod)).collect();
        self.topology.repel(&pods, &mut self.planner.shared());
        for at in 0..self.shapes.len() {
            self.refresh(at);
            self.note_wanted(at);
        }
        self.topology.settle_wanted();
    }

    /// Tells the affinity groups of a shape where its requirements and volumes let it be.
    fn note_wanted(&mut self, at: ShapeId) {
        let it = &self.shapes[at];
        for group in &it.owned {
            let key = self.topology.groups[*group].identity.key;
            let sets = &mut self.planner.sets;
            let mut allowed = (*sets.allowed(it.strict, key)).clone();
            if !it.places.is_empty() {
                let mut places = Bits::default();
                for place in &it.places {
                    places.or(&sets.allowed(place.set, key));
                }
                allowed.and(&places);
            }
            self.topology.want(*group, &allowed);
        }
    }

    /// Claims that were ordered and have no provider id yet become places that cannot change any more. One whose types
    /// are sold out, or whose pool makes no nodes now, stays a place for what it was ordered for: it is launched or
    /// deleted, and until then its pods are not ordered twice.
    fn adopt_orders(&mut self) {
        let orders: Vec<Arc<NodeClaim>> = self
            .planner
            .orders
            .iter()
            .filter(|it| !self.batch.without.contains(&it.metadata.name))
            .cloned()
            .collect();
        for order in orders {
            if let Some(shape) = order.metadata.annotation(labels::SHAPE) {
                *self.opened.entry(shape.to_owned()).or_insert(0) += 1;
            }
            let planner = &mut *self.planner;
            let pool = order.nodepool();
            let template = planner.templates.iter().position(|it| Some(it.pool.name()) == pool);
            let mut set = Requirements::from_api(&order.spec.requirements);
            set.add_all(&Requirements::from_labels(&order.metadata.labels));
            set.add(Requirement::equals(labels::REGISTERED, "true"));
            set.add(Requirement::equals(labels::INITIALIZED, "true"));
            let set = planner.sets.intern(set);
            let every: Vec<usize> = (0..planner.dims.len()).collect();
            let mut asked = order.spec.resources.requests.clone();
            let mut slots = Bits::default();
            if let Some(at) = template {
                let template = &mut planner.templates[at];
                slots = template.left(set, &planner.sets).slots.clone();
                slots.and(&template.base);
                let mut for_pods = asked.clone();
                for_pods.subtract(&template.least_overhead(&slots));
                let (for_pods, _) = planner.dims.amounts(&for_pods);
                template.keep_fitting(&mut slots, &for_pods, &every);
            }
            if let (Some(at), false) = (template, slots.is_empty()) {
                if let Some(remaining) = self.remaining.get_mut(at).and_then(Option::as_mut) {
                    crate::trial::take_from(remaining, &planner.templates[at].most(&slots));
                }
            } else if let Some(at) = template
                && let Some(remaining) = self.remaining.get_mut(at).and_then(Option::as_mut)
            {
                // Nobody knows its size: at least what it was ordered for.
                let least: Vec<(&str, i128)> =
                    asked.iter().map(|(name, amount)| (name, amount.nanos())).collect();
                crate::trial::take_from(remaining, &least);
            }
            let asked = slots.is_empty().then(|| {
                asked.subtract(&planner.daemons_on(set, &order.spec.taints));
                planner.dims.amounts(&asked).0
            });
            // It may be launched into any of the reservations that it names: each of them is spoken for.
            let held = self.named_reservations(set);
            for id in &held {
                self.reservations[*id].1 -= 1;
            }
            let planner = &mut *self.planner;
            let host = planner.rows.len() + self.claims.len();
            let requests = SmallVec::from_elem(0, planner.dims.len());
            self.claims.push(Claim {
                // Of an order without one only the order itself is asked.
                template: template.unwrap_or(usize::MAX),
                taints: order.spec.taints.clone().into(),
                set,
                slots,
                requests,
                pods: Vec::new(),
                ports: Vec::new(),
                volumes: BTreeSet::new(),
                held,
                host,
                min_values_relaxed: false,
                ordered: Some(Order { claim: order, asked }),
                position: (0, 0),
                open: false,
            });
        }
        self.n_orders = self.claims.len();
    }

    /// The reservations that the requirements of an order name.
    fn named_reservations(&self, set: SetId) -> Vec<usize> {
        let set = self.planner.sets.get(set);
        let named = set.get(labels::CAPACITY_RESERVATION_ID).filter(|it| !it.complement);
        let ids = self.reservations.iter().enumerate();
        ids.filter(|(_, it)| named.is_some_and(|named| named.values.contains(&it.0)))
            .map(|it| it.0)
            .collect()
    }

    fn shape_of(&mut self, pod: &Arc<Pod>, original: &Arc<Pod>, print: u64) -> ShapeId {
        let wish = self.planner.wish_of(pod, original, print);
        if let Some(known) = self.by_wish.get(&wish.id) {
            return *known;
        }
        let id = wish.id;
        let at = self.make_shape(wish);
        self.by_wish.insert(id, at);
        at
    }

    fn make_shape(&mut self, wish: Arc<Wish>) -> ShapeId {
        let first_new = self.topology.groups.len();
        let shared = &mut self.planner.shared();
        let owned = self.topology.own(&wish.questions, &wish.pod, shared);
        let inverse_owned = self.topology.own(&wish.inverse_questions, &wish.pod, shared);
        let mut shape = Shape {
            wish,
            given_up: None,
            owned: Vec::new(),
            inverse_owned,
            on_host: Vec::new(),
            on_keys: Vec::new(),
            counted_by: Vec::new(),
            seen_groups: 0,
            next: None,
            failed_at: None,
        };
        for at in &owned {
            self.constrain(&mut shape, *at);
        }
        shape.owned = owned;
        let at = self.shapes.len();
        self.shapes.push(shape);
        if self.running && first_new < self.topology.groups.len() {
            self.replay(first_new);
        }
        self.refresh(at);
        at
    }

    fn constrain(&self, shape: &mut Shape, group: usize) {
        Self::constrain_by(shape, group, &self.topology.groups[group]);
    }

    fn constrain_by(shape: &mut Shape, group: usize, it: &Group) {
        if it.on_host {
            if !shape.on_host.contains(&group) {
                shape.on_host.push(group);
            }
            return;
        }
        match shape.on_keys.iter_mut().find(|list| list.key == it.identity.key) {
            Some(list) if list.groups.contains(&group) => {}
            Some(list) => list.groups.push(group),
            None => shape.on_keys.push(KeyGroups { key: it.identity.key, groups: vec![group] }),
        }
    }

    /// Looks at the groups that have come since the shape was last looked at.
    pub(crate) fn refresh(&mut self, at: ShapeId) {
        let n_groups = self.topology.groups.len();
        if self.shapes[at].seen_groups == n_groups {
            return;
        }
        let shape = &mut self.shapes[at];
        for at in shape.seen_groups..n_groups {
            let group = &self.topology.groups[at];
            if !self.planner.bases.selects(group, &shape.wish) {
                continue;
            }
            if self.topology.inverse.contains(&at) {
                Self::constrain_by(shape, at, group);
            } else {
                shape.counted_by.push(at);
            }
        }
        shape.seen_groups = n_groups;
    }

    /// Counts what has been placed so far in groups that appear only now, through relaxation.
    ///
    /// DIFFERENCE: Karpenter counts such groups from the cluster alone.
    fn replay(&mut self, first: usize) {
        for (entry, _, place) in self.log.clone() {
            let pod = Arc::clone(&self.entries[entry].pod);
            for group in first..self.topology.groups.len() {
                if !self.topology.inverse.contains(&group)
                    && self.topology.groups[group].identity.selects(&pod)
                {
                    self.count_in(group, place);
                }
            }
        }
    }

    /// The next thing to try when `at` has no place.
    pub(crate) fn next_shape(&mut self, at: ShapeId, original: ShapeId) -> Option<ShapeId> {
        if let Some(known) = self.shapes[at].next {
            return known;
        }
        let (wish, first) =
            (Arc::clone(&self.shapes[at].wish), Arc::clone(&self.shapes[original].wish));
        let next = self.planner.relaxed_wish(&wish, &first).map(|(wish, what)| {
            let made = self.make_shape(wish);
            self.shapes[made].given_up = Some(what);
            made
        });
        self.shapes[at].next = Some(next);
        next
    }

    pub(crate) fn explaining(&self) -> bool {
        self.explained.is_some() && self.current == self.explained
    }

    pub(crate) fn solve(mut self, keep_going: &dyn Fn() -> bool) -> Solution {
        self.running = true;
        let mut queue: VecDeque<usize> = std::mem::take(&mut self.order).into();
        let mut pushed_at: Vec<usize> = vec![usize::MAX; self.entries.len()];
        let mut deferred: BTreeMap<usize, String> = BTreeMap::new();
        let mut reached = vec![false; self.entries.len()];
        let mut n_tried = 0_usize;
        while let Some(at) = queue.front().copied() {
            if pushed_at[at] == queue.len() {
                if self.topology.want_nothing() {
                    // Nobody came to where all could have been together: each for itself, then.
                    pushed_at.fill(usize::MAX);
                    self.placements += 1;
                    continue;
                }
                break;
            }
            if n_tried.is_multiple_of(LOOK_EVERY) && n_tried > 0 && !keep_going() {
                break;
            }
            n_tried += 1;
            queue.pop_front();
            reached[at] = true;
            match self.place(at) {
                Trial::Placed => {
                    deferred.remove(&at);
                }
                other => {
                    match other {
                        Trial::Deferred(why) => drop(deferred.insert(at, why)),
                        _ => drop(deferred.remove(&at)),
                    }
                    queue.push_back(at);
                    pushed_at[at] = queue.len();
                }
            }
        }
        self.report(&queue, &deferred, &reached)
    }
}
