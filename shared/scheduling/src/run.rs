//! One solve: the queue, and for each pod the places in their order (`spec` scheduling 12).

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use spokeshave_model::{
    Kind, NodeClaim, ObjectKey, Requirement, Requirements, Resources, Taint, Toleration, core::Pod,
    labels, settings::PreferencePolicy,
};

use crate::{
    bits::Bits,
    daemons::has_resource_claims,
    defaults,
    dims::Amounts,
    planner::{Batch, Planner},
    ports::{HostPort, host_ports},
    requests::pod_requests,
    sets::SetId,
    shapes::{self, KeyGroups, Shape, ShapeId, VolumePlace},
    shortage::Wait,
    solution::Solution,
    topology::Topology,
    volumes::{self, Attachments},
};

/// Why pods with resource claims have no place.
pub const DRA_REFUSAL: &str =
    "pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter";
/// The same where `IGNORE_DRA_REQUESTS` is off.
pub const DRA_UNRESOLVED: &str =
    "pod has resource claims, and devices of ResourceSlices are not allocated in plans";
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

/// Requirements, tolerations, ports and requests: what makes a pod fit a claim, topology aside.
type FitKey = (SetId, Option<Requirement>, usize, Vec<HostPort>, usize);

#[derive(Debug)]
pub(crate) struct Run<'p, 'a> {
    pub(crate) planner: &'p mut Planner<'a>,
    pub(crate) batch: Batch,
    pub(crate) topology: Topology,
    pub(crate) shapes: Vec<Shape>,
    by_fingerprint: FxHashMap<u64, SmallVec<[ShapeId; 1]>>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) order: Vec<usize>,
    tolerations: FxHashMap<Vec<Toleration>, usize>,
    requests_ids: FxHashMap<Amounts, usize>,
    fits: FxHashMap<FitKey, usize>,
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
    pub(crate) statics: FxHashMap<(SetId, Option<Requirement>, usize), Arc<Bits>>,
    pub(crate) alive: Vec<Bits>,
    pub(crate) class_domains: FxHashMap<(usize, u32), Option<usize>>,
    pub(crate) row_pods: BTreeMap<usize, Vec<usize>>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) open: BTreeMap<(u32, i64), usize>,
    pub(crate) front: i64,
    pub(crate) back: i64,
    pub(crate) dead: Vec<Bits>,
    pub(crate) remaining: Vec<Option<Resources>>,
    pub(crate) reservation_ids: Vec<Vec<usize>>,
    pub(crate) reservations: Vec<(String, i64)>,
    pub(crate) placements: u64,
    pub(crate) log: Vec<(usize, ShapeId, Place)>,
    running: bool,
    pub(crate) explained: Option<usize>,
    pub(crate) current: Option<usize>,
    pub(crate) tolerated: FxHashMap<(usize, usize), bool>,
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
    pub(crate) fn new(planner: &'p mut Planner<'a>, batch: &Batch) -> Self {
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
        planner.look_at(&pods);
        let moving: FxHashSet<ObjectKey> =
            pods.iter().filter(|it| it.is_bound()).map(|it| Kind::key(&**it)).collect();
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
        let bases = std::mem::take(&mut planner.bases);
        let repellers = std::mem::take(&mut planner.repellers);
        let sets = &mut planner.sets;
        let topology =
            Topology::new(moving, out.clone(), bases, repellers, view, &planner.rows, sets);
        let mut run = Self {
            planner,
            batch: batch.clone(),
            topology,
            shapes: Vec::new(),
            by_fingerprint: FxHashMap::default(),
            entries: Vec::with_capacity(pods.len()),
            order: Vec::new(),
            tolerations: FxHashMap::default(),
            requests_ids: FxHashMap::default(),
            fits: FxHashMap::default(),
            active: Vec::new(),
            least: SmallVec::from_elem(i128::MAX, n_dims),
            rooms: FxHashMap::default(),
            filled: Bits::default(),
            offered,
            holding_back,
            added_ports: FxHashMap::default(),
            attached: FxHashMap::default(),
            statics: FxHashMap::default(),
            alive: Vec::new(),
            class_domains: FxHashMap::default(),
            row_pods: BTreeMap::new(),
            claims: Vec::new(),
            open: BTreeMap::new(),
            front: 0,
            back: 1,
            dead: Vec::new(),
            remaining,
            reservation_ids: Vec::new(),
            reservations: Vec::new(),
            placements: 0,
            log: Vec::new(),
            running: false,
            explained: None,
            current: None,
            tolerated: FxHashMap::default(),
            n_orders: 0,
            steps: Vec::new(),
            opened: BTreeMap::new(),
            wait: None,
            waiting: BTreeMap::new(),
        };
        run.count_reservations();
        run.enter(&pods);
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

    fn enter(&mut self, pods: &[Arc<Pod>]) {
        for (at, pod) in pods.iter().enumerate() {
            let shape = self.shape_of(pod);
            let key = Kind::key(&**pod);
            let displaced = self.batch.displaced.contains(&key);
            let movable =
                self.batch.respect_consolidate_after && !displaced && pod.status.phase != "Pending";
            if self.batch.explain.as_ref() == Some(&key) {
                self.explained = Some(at);
            }
            // The pod itself, not the copy with defaults and without preferences.
            let pod = Arc::clone(self.batch.pods.get(at).unwrap_or(pod));
            self.entries.push(Entry { pod, shape, movable, displaced });
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
        let owned: Vec<Arc<Pod>> = self.shapes.iter().map(|it| Arc::clone(&it.pod)).collect();
        let list: Vec<&Pod> = owned.iter().map(|it| &**it).collect();
        let planner = &mut *self.planner;
        self.topology.repel(
            &list,
            planner.view,
            &planner.rows,
            &mut planner.sets,
            &mut planner.domains,
        );
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

    fn shape_of(&mut self, pod: &Arc<Pod>) -> ShapeId {
        let print = shapes::fingerprint(pod);
        if let Some(known) = self.by_fingerprint.get(&print)
            && let Some(at) =
                known.iter().find(|at| shapes::same_shape(&self.shapes[**at].pod, pod))
        {
            return *at;
        }
        let at = self.make_shape(pod);
        self.by_fingerprint.entry(print).or_default().push(at);
        at
    }

    fn make_shape(&mut self, pod: &Arc<Pod>) -> ShapeId {
        let planner = &mut *self.planner;
        let full = shapes::requirements(pod);
        let strict = shapes::strict_requirements(pod);
        let host = shapes::host_requirement(&full);
        let strict_host = shapes::host_requirement(&strict);
        let set = planner.sets.intern(full);
        let strict = planner.sets.intern(strict);
        let next = self.tolerations.len();
        let tolerations = *self.tolerations.entry(pod.spec.tolerations.clone()).or_insert(next);
        let asked = pod_requests(pod);
        let (requests, known) = planner.dims.amounts(&asked);
        let next = self.requests_ids.len();
        let requests_id = *self.requests_ids.entry(requests.clone()).or_insert(next);
        let ports = host_ports(pod);
        let next = self.fits.len();
        let fit = *self
            .fits
            .entry((set, host.clone(), tolerations, ports.clone(), requests_id))
            .or_insert(next);
        let with_claims = volumes::has_claims(pod);
        let places = if with_claims {
            volumes::alternatives(pod, planner.view)
                .into_iter()
                .map(|place| VolumePlace {
                    host: shapes::host_requirement(&place),
                    set: planner.sets.intern(place),
                })
                .collect()
        } else {
            Vec::new()
        };
        let attachments =
            if with_claims { volumes::attachments(pod, planner.view) } else { Attachments::new() };
        let refusal = has_resource_claims(pod).then(|| {
            // DIFFERENCE: devices are not allocated yet, so such a pod has no place either way; Karpenter simulates it.
            let ignored = planner.options.ignore_dra_requests;
            if ignored { DRA_REFUSAL } else { DRA_UNRESOLVED }.to_owned()
        });
        let first_new = self.topology.groups.len();
        let owned = self.topology.own(
            pod,
            planner.view,
            &planner.rows,
            &mut planner.sets,
            &mut planner.domains,
        );
        let inverse_owned = self.topology.own_inverse(
            pod,
            planner.view,
            &planner.rows,
            &mut planner.sets,
            &mut planner.domains,
        );
        let mut shape = Shape {
            pod: Arc::clone(pod),
            set,
            strict,
            host,
            strict_host,
            tolerations,
            requests,
            asked,
            requests_id,
            impossible: !known,
            ports,
            places,
            attachments,
            fit,
            refusal,
            given_up: None,
            owned: owned.clone(),
            inverse_owned,
            on_host: Vec::new(),
            on_keys: Vec::new(),
            counted_by: Vec::new(),
            seen_groups: 0,
            next: None,
            failed_at: None,
        };
        for at in owned {
            self.constrain(&mut shape, at);
        }
        let at = self.shapes.len();
        self.shapes.push(shape);
        if self.running && first_new < self.topology.groups.len() {
            self.replay(first_new);
        }
        self.refresh(at);
        at
    }

    fn constrain(&self, shape: &mut Shape, group: usize) {
        let it = &self.topology.groups[group];
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
        let mut shape = self.shapes[at].clone();
        for group in shape.seen_groups..n_groups {
            if !self.topology.groups[group].identity.selects(&shape.pod) {
                continue;
            }
            if self.topology.inverse.contains(&group) {
                self.constrain(&mut shape, group);
            } else {
                shape.counted_by.push(group);
            }
        }
        shape.seen_groups = n_groups;
        self.shapes[at] = shape;
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
        let relaxed = shapes::relax(
            &self.shapes[at].pod,
            &self.shapes[original].pod,
            self.planner.options.preference_policy,
            self.planner.tolerate_prefer,
        );
        let next = relaxed.map(|it| {
            let made = self.make_shape(&Arc::new(it.pod));
            self.shapes[made].given_up = Some(it.what);
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
        self.planner.bases = std::mem::take(&mut self.topology.bases);
        self.planner.repellers = std::mem::take(&mut self.topology.repellers);
        self.report(&queue, &deferred, &reached)
    }
}
