//! Everything that solves of one pass share: templates, rows, daemons, indexes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};
use spokeshave_model::{
    InstanceType, NodeClaim, NodePool, ObjectKey, Quantity, Resources, Taint, core::Pod,
    duration::NillableDuration, resources::NODES,
};

use crate::{
    bits::Bits,
    daemons::Daemon,
    dims::Dims,
    domains::Domains,
    options::Options,
    ports::HostPort,
    repellers::Repellers,
    report::Launchable,
    rows::{Row, Rows},
    run::Run,
    sets::{SetId, Sets},
    shapes,
    shortage::Holds,
    solution::Solution,
    templates::{Priced, Skipped, Template},
    topology::{Bases, Shared},
    view::ClusterView,
    volumes,
    wishes::Wishes,
};

/// A NodePool and what it can buy.
#[derive(Clone, Debug)]
pub struct PoolInput {
    pub nodepool: Arc<NodePool>,
    /// `karpenter.sh/nodepool-hash` of this copy of the pool.
    pub hash: String,
    /// The types of its EC2NodeClass, or why they could not be listed.
    pub instance_types: Result<Arc<[Arc<InstanceType>]>, String>,
}

impl PoolInput {
    /// Whether the pool takes part in planning: of a class that we serve, dynamic, Ready and not being deleted
    /// (`spec` scheduling 11.1). A pool without any status counts as Ready.
    pub fn takes_part(pool: &NodePool) -> bool {
        let ready = pool.status.conditions.is_empty()
            || spokeshave_model::conditions::is_true(
                &pool.status.conditions,
                spokeshave_model::conditions::READY,
            );
        pool.is_managed() && !pool.is_static() && ready && !pool.metadata.deleting()
    }
}

/// What to do about capacity reservations that are all put aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReservedMode {
    /// The pod waits for the next plan: provisioning.
    #[default]
    Strict,
    /// It gets other capacity: simulations.
    Fallback,
}

/// One question: where would these pods go?
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Pods to place. Those that are bound are moving, and count nowhere until they are placed.
    pub pods: Vec<Arc<Pod>>,
    /// Names (of Node or claim) that may not receive pods and count as gone, beside those being deleted.
    pub without: BTreeSet<String>,
    pub reserved: ReservedMode,
    /// Pods that are neither Pending nor from a node going away keep off nodes inside their pool's `consolidateAfter`.
    pub respect_consolidate_after: bool,
    /// A pod on a node that is not initialized counts as failed, unless it comes from a node going away.
    pub refuse_uninitialized: bool,
    /// Pods (keys) from nodes that are being deleted.
    pub displaced: BTreeSet<ObjectKey>,
    /// Shapes of claims for which capacity is short.
    pub holds: Holds,
    /// Of several new claims only the number is asked for ([`Solution::untold_claims`]): what they would be costs more to
    /// work out than where the pods go.
    pub one_claim: bool,
    /// The pod whose way is to be told step by step.
    pub explain: Option<ObjectKey>,
}

/// Prepared for any number of solves against one view. Build one per pass.
#[derive(Clone, Debug)]
pub struct Planner<'a> {
    pub(crate) view: &'a ClusterView,
    pub(crate) options: &'a Options,
    pub(crate) now: Timestamp,
    pub(crate) sets: Sets,
    pub(crate) dims: Dims,
    pub(crate) templates: Vec<Template>,
    pub(crate) rows: Rows,
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) skipped: BTreeMap<String, Skipped>,
    pub(crate) pools: Vec<PoolInput>,
    pub(crate) tolerate_prefer: bool,
    pub(crate) domains: Domains,
    /// Claims that are ordered and not launched.
    pub(crate) orders: Vec<Arc<NodeClaim>>,
    /// Rows that may receive pods at all, and those that hold back: the same for every solve.
    pub(crate) open_rows: Bits,
    pub(crate) holding_rows: Bits,
    /// What topology has counted, for the next solve.
    pub(crate) bases: Bases,
    pub(crate) repellers: Repellers,
    pub(crate) wishes: Wishes,
    /// Fingerprints of pods whose keys rows answer questions about.
    looked_at: FxHashSet<u64>,
    /// Types by price for what claims have become: template, requirements and reservations.
    pub(crate) price_orders: FxHashMap<(usize, SetId, Vec<usize>), Arc<Vec<Priced>>>,
    /// What such claims can be launched as, by what is left of the types: claims of the same pods can be the same.
    pub(crate) launchables: FxHashMap<(usize, SetId, Vec<usize>, Bits), Arc<Launchable>>,
    /// Rows whose pods hold one of these ports.
    pub(crate) port_holders: FxHashMap<Vec<HostPort>, Arc<Bits>>,
    measured: usize,
}

impl<'a> Planner<'a> {
    /// Pools that do not take part ([`PoolInput::takes_part`]) are left out here.
    pub fn new(
        view: &'a ClusterView,
        pools: &[PoolInput],
        options: &'a Options,
        now: Timestamp,
    ) -> Self {
        let mut skipped: BTreeMap<String, Skipped> = pools
            .iter()
            .map(|it| &it.nodepool)
            .filter(|it| it.is_managed() && !it.is_static() && !it.metadata.deleting())
            .filter(|it| !PoolInput::takes_part(it))
            .map(|it| (it.metadata.name.clone(), Skipped::not_ready(it)))
            .collect();
        let mut pools: Vec<PoolInput> =
            pools.iter().filter(|it| PoolInput::takes_part(&it.nodepool)).cloned().collect();
        pools.sort_by(|a, b| {
            let order = |it: &PoolInput| (it.nodepool.weight(), it.nodepool.metadata.name.clone());
            order(b).cmp(&order(a))
        });
        let mut sets = Sets::new(options.extra_well_known.clone());
        let daemons = Daemon::of_view(view, &mut sets, options.ignore_dra_requests);
        let mut dims = Dims::new();
        let mut seen: FxHashSet<*const Arc<InstanceType>> = FxHashSet::default();
        for types in pools.iter().filter_map(|it| it.instance_types.as_ref().ok()) {
            if seen.insert(types.as_ptr()) {
                for type_ in types.iter() {
                    dims.add_all(&type_.capacity);
                    for extra in type_.offerings.iter().filter_map(|it| it.capacity.as_ref()) {
                        dims.add_all(extra);
                    }
                }
            }
        }
        let states = view.state_nodes();
        for state in &states {
            for (name, _) in state.allocatable().iter() {
                dims.add(name);
            }
        }
        let mut templates = Vec::new();
        for pool in &pools {
            let name = pool.nodepool.metadata.name.clone();
            let made = match &pool.instance_types {
                Err(problem) => Err(Skipped::NoCatalog(problem.clone())),
                Ok(types) => Template::new(
                    &pool.nodepool,
                    &pool.hash,
                    types,
                    &daemons,
                    &dims,
                    &mut sets,
                    options.reserved_capacity,
                    options.min_values_policy,
                ),
            };
            match made {
                Ok(template) => templates.push(template),
                Err(why) => drop(skipped.insert(name, why)),
            }
        }
        let tolerate_prefer = pools.iter().any(|it| {
            it.nodepool
                .spec
                .template
                .spec
                .taints
                .iter()
                .any(|it| it.effect == spokeshave_model::TaintEffect::PreferNoSchedule)
        });
        Self {
            view,
            options,
            now,
            sets,
            dims,
            templates,
            rows: Rows::new(states, view),
            daemons,
            skipped,
            domains: Domains::new(pools.clone()),
            pools,
            tolerate_prefer,
            orders: view.unlaunched().cloned().collect(),
            open_rows: Bits::default(),
            holding_rows: Bits::default(),
            bases: Bases::default(),
            repellers: Repellers::default(),
            wishes: Wishes::default(),
            looked_at: FxHashSet::default(),
            price_orders: FxHashMap::default(),
            launchables: FxHashMap::default(),
            port_holders: FxHashMap::default(),
            measured: 0,
        }
    }

    /// Whether any pool takes part at all.
    pub fn has_pools(&self) -> bool {
        !self.pools.is_empty()
    }

    /// Pools that take part but make no nodes in this plan.
    pub fn skipped(&self) -> &BTreeMap<String, Skipped> {
        &self.skipped
    }

    /// Answers one question. `keep_going` is asked now and then; on `false` what has been placed so far is the answer.
    pub fn solve(&mut self, batch: &Batch, keep_going: &dyn Fn() -> bool) -> Solution {
        self.prepare(batch).finish(keep_going)
    }

    /// What the groups of all solves have in common.
    pub(crate) fn shared(&mut self) -> Shared<'_, 'a> {
        Shared {
            bases: &mut self.bases,
            repellers: &mut self.repellers,
            view: self.view,
            rows: &self.rows,
            sets: &mut self.sets,
            domains: &mut self.domains,
        }
    }

    /// The set-up of a solve: shapes, topology, what is left on nodes.
    pub fn prepare<'p>(&'p mut self, batch: &'p Batch) -> Prepared<'p, 'a> {
        Prepared(Run::new(self, batch))
    }

    /// Rows answer questions about every key that `pods` or daemons ask about.
    /// `originals` are the same pods as the batch has them, `prints` their fingerprints.
    pub(crate) fn look_at(&mut self, pods: &[Arc<Pod>], originals: &[Arc<Pod>], prints: &[u64]) {
        let mut keys: BTreeSet<String> = BTreeSet::new();
        for ((pod, original), print) in pods.iter().zip(originals).zip(prints) {
            // Pods with equal fingerprints ask about the same keys as far as nearly all go; preferences are not in it.
            if self.looked_at.insert(*print)
                || !pod.spec.affinity.node_affinity.preferred.is_empty()
            {
                shapes::keys_of(pod, |key| {
                    if !keys.contains(key) {
                        keys.insert(key.to_owned());
                    }
                });
            }
            if volumes::has_claims(pod) && !self.wishes.knows(original) {
                for place in volumes::alternatives(pod, self.view) {
                    keys.extend(place.keys().map(str::to_owned));
                }
            }
        }
        for constraint in &self.options.default_spread {
            keys.insert(constraint.topology_key.clone());
        }
        for daemon in &self.daemons {
            keys.extend(daemon.keys(&self.sets));
        }
        self.repellers.make(self.view, &self.rows, &mut self.sets);
        keys.extend(self.repellers.keys.iter().cloned());
        if self.rows.look_at(keys, &mut self.sets) {
            self.wishes.forget_rows();
        }
        if self.measured == 0 {
            self.measure();
            self.measured = 1;
            let open = |it: &&Row| it.offered && !it.overcommitted;
            self.open_rows = self.rows.iter().filter(open).map(|it| it.at).collect();
            let holding: Bits =
                self.rows.iter().filter(|it| self.holds_back(it)).map(|it| it.at).collect();
            self.holding_rows = holding;
        }
    }

    fn measure(&mut self) {
        let mut expected: FxHashMap<usize, Resources> = FxHashMap::default();
        let mut by_row: Vec<Option<Resources>> = vec![None; self.rows.len()];
        let by_host = self.daemons.iter().any(Daemon::asks_for_a_host);
        for row in self.rows.iter() {
            if !by_host && expected.contains_key(&row.class) {
                continue;
            }
            let mut total = Resources::new();
            for daemon in &self.daemons {
                if daemon.tolerates(&row.taints)
                    && daemon.runs_on(row.set, row.host_name(), &mut self.sets)
                {
                    total.add(&daemon.requests);
                }
            }
            if by_host {
                by_row[row.at] = Some(total);
            } else {
                expected.insert(row.class, total);
            }
        }
        self.rows.measure(self.view, &self.dims, |row: &Row| {
            by_row[row.at].clone().or_else(|| expected.get(&row.class).cloned()).unwrap_or_default()
        });
    }

    /// What the daemons ask for that would run on a node with these labels and taints, should it come without host name.
    pub(crate) fn daemons_on(&mut self, set: SetId, taints: &[Taint]) -> Resources {
        let mut total = Resources::new();
        for daemon in &self.daemons {
            if daemon.tolerates(taints) && !daemon.sets_for_template(set, &mut self.sets).is_empty()
            {
                total.add(&daemon.requests);
            }
        }
        total
    }

    /// What the pools' limits leave, by pool: limited names alone. `gone` rows do not count.
    pub(crate) fn remaining(&self, offered: impl Fn(&Row) -> bool) -> Vec<Option<Resources>> {
        let mut used: FxHashMap<&str, Resources> = FxHashMap::default();
        let limited: FxHashSet<&str> = self
            .templates
            .iter()
            .filter(|it| it.pool.spec.limits.is_some())
            .map(|it| it.pool.metadata.name.as_str())
            .collect();
        if !limited.is_empty() {
            for row in self.rows.iter().filter(|it| offered(it)) {
                if let Some(pool) = row.state.nodepool().filter(|it| limited.contains(it)) {
                    used.entry(pool).or_default().add(&row.state.capacity());
                }
            }
        }
        self.templates
            .iter()
            .map(|template| {
                let mut left = template.pool.spec.limits.clone()?;
                if let Some(used) = used.get(template.pool.metadata.name.as_str()) {
                    left.subtract(used);
                }
                Some(left)
            })
            .collect()
    }

    /// Rows that hold back pods which need not move (`spec` scheduling 12.2).
    pub(crate) fn holds_back(&self, row: &Row) -> bool {
        let (Some(claim), Some(pool)) = (&row.state.claim, row.state.nodepool()) else {
            return false;
        };
        let Some(pool) = self.view.nodepools.get(&ObjectKey::cluster(pool)) else { return false };
        let after = pool
            .spec
            .disruption
            .as_ref()
            .and_then(|it| it.consolidate_after.as_ref())
            .and_then(NillableDuration::get);
        let Some(after) = after.filter(|it| !it.is_zero()) else { return false };
        let Some(initialized) = claim.condition(NodeClaim::INITIALIZED) else {
            return false;
        };
        if initialized.status != spokeshave_model::ConditionStatus::True {
            return false;
        }
        let since = claim.status.last_pod_event_time.or(initialized.last_transition_time);
        since.is_some_and(|since| self.now.duration_since(since) < after)
    }
}

/// Set up, not yet solved.
#[derive(Debug)]
pub struct Prepared<'p, 'a>(Run<'p, 'a>);

impl Prepared<'_, '_> {
    /// Solves. `keep_going`: see [`Planner::solve`].
    pub fn finish(self, keep_going: &dyn Fn() -> bool) -> Solution {
        self.0.solve(keep_going)
    }
}

/// Plans once: [`Planner::new`] and [`Planner::solve`].
pub fn solve(
    view: &ClusterView,
    pools: &[PoolInput],
    batch: &Batch,
    options: &Options,
    now: Timestamp,
) -> Solution {
    Planner::new(view, pools, options, now).solve(batch, &|| true)
}

/// Usage of each pool: capacity of its entries that are not going away, `nodes` included (`spec` scheduling 18.4).
pub fn usage_by_pool(view: &ClusterView) -> BTreeMap<String, Resources> {
    let mut used: BTreeMap<String, Resources> = BTreeMap::new();
    for state in view.state_nodes() {
        if state.is_marked_for_deletion() {
            continue;
        }
        if let Some(pool) = state.nodepool() {
            used.entry(pool.to_owned()).or_default().add(&state.capacity());
        }
    }
    used.retain(|_, it| it.iter().any(|(_, amount)| !amount.is_zero()));
    used
}

/// One node's worth of the pseudo resource `nodes`.
pub(crate) fn one_node(resources: &Resources) -> Option<Quantity> {
    resources.0.get(NODES).copied()
}
