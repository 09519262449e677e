//! The real scheduler behind [`Simulator`] (lifecycle 18).

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use spokeshave_model::{
    Kind, ObjectKey, Operator, Requirement, core::Pod, labels, pod_classes::PodDisruptionBudgets,
};
use spokeshave_scheduling::{
    Batch, ClusterView, Options, PlannedClaim, Planner, PoolInput, ReservedMode, buffers,
    claim_of_pool, eligibility,
};

use crate::{
    cluster::View,
    command::Placement,
    eligibility::pods_to_place,
    simulation::{NewClaim, Purpose, Simulation, SimulationError, Simulator, Unplaced},
};

/// Simulates against one view; prepare it once per pass.
pub struct Scheduler<'a> {
    view: &'a View,
    cluster: &'a ClusterView,
    pools: &'a [PoolInput],
    options: &'a Options,
    extra_pods: Vec<Arc<Pod>>,
    keep_going: &'a dyn Fn() -> bool,
    /// Made by the first simulation: most passes need none.
    prepared: Option<Prepared<'a>>,
}

/// What all simulations share.
struct Prepared<'a> {
    planner: Planner<'a>,
    pdbs: PodDisruptionBudgets<'a>,
    pending: Vec<Arc<Pod>>,
    displaced: Vec<Arc<Pod>>,
    displaced_keys: BTreeSet<ObjectKey>,
}

/// The names of nodes and claims that are going: for [`ClusterView::mark_for_deletion`].
pub fn marked_names(view: &View) -> BTreeSet<String> {
    view.nodes
        .iter()
        .filter(|it| it.in_command || it.is_marked_for_deletion())
        .flat_map(|it| {
            let node = it.node.as_ref().map(|it| it.name().to_owned());
            let claim = it.claim.as_ref().map(|it| it.name().to_owned());
            node.into_iter().chain(claim)
        })
        .collect()
}

/// Notes the nodes on which placeholders of CapacityBuffers find a place: those are not empty.
///
/// Placeholders exist in plans only, so one is made for them here, without moving anything.
pub fn note_buffers(
    view: &mut View,
    cluster: &ClusterView,
    pools: &[PoolInput],
    options: &Options,
    placeholders: &[Arc<Pod>],
) {
    if placeholders.is_empty() {
        return;
    }
    let (mut pods, _ignored) = eligibility::pending(cluster);
    pods.extend(placeholders.iter().cloned());
    let displaced = eligibility::displaced(cluster, view.now);
    let batch = Batch {
        displaced: displaced.iter().map(|it| it.key()).collect(),
        pods: pods.into_iter().chain(displaced).collect(),
        ..Batch::default()
    };
    let solution = Planner::new(cluster, pools, options, view.now).solve(&batch, &|| true);
    let holding: BTreeSet<&str> = solution
        .existing
        .iter()
        .filter(|it| it.pods.iter().any(|pod| buffers::is_virtual(pod)))
        .map(|it| it.name.as_str())
        .collect();
    for node in &mut view.nodes {
        node.holds_buffer = holding.contains(node.name());
    }
}

impl<'a> Scheduler<'a> {
    /// `cluster` is what `view` was made from, with its [`marked_names`] marked. `extra_pods` are placeholders of
    /// CapacityBuffers; they count as pending. A solve is cut off, and counts for nothing, when `keep_going` says no.
    pub fn new(
        view: &'a View,
        cluster: &'a ClusterView,
        pools: &'a [PoolInput],
        options: &'a Options,
        extra_pods: Vec<Arc<Pod>>,
        keep_going: &'a dyn Fn() -> bool,
    ) -> Self {
        Self { view, cluster, pools, options, extra_pods, keep_going, prepared: None }
    }

    fn prepare(&self) -> Prepared<'a> {
        let (mut pending, _ignored) = eligibility::pending(self.cluster);
        pending.extend(self.extra_pods.iter().cloned());
        let displaced = eligibility::displaced(self.cluster, self.view.now);
        Prepared {
            planner: Planner::new(self.cluster, self.pools, self.options, self.view.now),
            pdbs: self.view.pod_disruption_budgets(),
            pending,
            displaced_keys: displaced.iter().map(|it| it.key()).collect(),
            displaced,
        }
    }
}

/// The claim that the template of a static pool makes.
pub fn template(view: &View, pool: &str) -> Option<NewClaim> {
    let it = view.pools.get(pool)?;
    let mut seed = Seed::new(view.now);
    seed.add(pool);
    Some(NewClaim {
        pool: pool.to_owned(),
        claim: claim_of_pool(&it.nodepool, &it.hash, |from, to| seed.draw(from, to)),
        ..NewClaim::default()
    })
}

impl Simulator for Scheduler<'_> {
    fn simulate(
        &mut self,
        without: &[usize],
        purpose: Purpose,
    ) -> Result<Simulation, SimulationError> {
        let mut prepared = self.prepared.take().unwrap_or_else(|| self.prepare());
        let answer = self.simulate_with(&mut prepared, without, purpose);
        self.prepared = Some(prepared);
        answer
    }
}

impl<'a> Scheduler<'a> {
    fn simulate_with(
        &self,
        prepared: &mut Prepared<'a>,
        without: &[usize],
        purpose: Purpose,
    ) -> Result<Simulation, SimulationError> {
        let Prepared { planner, pdbs, pending, displaced, displaced_keys } = prepared;
        let mut names = BTreeSet::new();
        let mut moved: BTreeSet<ObjectKey> = BTreeSet::new();
        let mut pods: Vec<Arc<Pod>> = pending.clone();
        let mut seed = Seed::new(self.view.now);
        for node in without.iter().filter_map(|at| self.view.nodes.get(*at)) {
            if node.is_marked_for_deletion() {
                return Err(SimulationError::CandidateDeleting);
            }
            names.extend(node.node.as_ref().map(|it| it.name().to_owned()));
            names.extend(node.claim.as_ref().map(|it| it.name().to_owned()));
            seed.add(node.name());
            for pod in pods_to_place(self.view, pdbs, node) {
                moved.insert(pod.key());
                pods.push(Arc::clone(pod));
            }
        }
        pods.extend(displaced.iter().cloned());
        let batch = Batch {
            pods,
            without: names,
            reserved: ReservedMode::Fallback,
            respect_consolidate_after: purpose == Purpose::Consolidation,
            refuse_uninitialized: true,
            // Consolidation replaces by one claim or not at all.
            one_claim: purpose == Purpose::Consolidation,
            displaced: displaced_keys.clone(),
            ..Batch::default()
        };
        let solution = planner.solve(&batch, self.keep_going);
        if !solution.unreached.is_empty() {
            return Err(SimulationError::OutOfTime);
        }
        let unplaced = solution
            .unschedulable
            .into_iter()
            .map(|(pod, reason)| Unplaced {
                was_pending: !moved.contains(&pod) && !displaced_keys.contains(&pod),
                pod: pod.to_string(),
                error: reason.text,
            })
            .collect();
        let placements = solution
            .existing
            .iter()
            .filter_map(|it| {
                let pods: Vec<String> = it
                    .pods
                    .iter()
                    .map(|pod| pod.key())
                    .filter(|key| moved.contains(key))
                    .map(|key| key.to_string())
                    .collect();
                (!pods.is_empty()).then(|| Placement { node: it.name.clone(), pods })
            })
            .collect();
        let mut new_claims: Vec<NewClaim> =
            solution.new_claims.iter().map(|it| new_claim(it, &mut seed)).collect();
        new_claims.resize_with(new_claims.len() + solution.untold_claims, NewClaim::default);
        Ok(Simulation { new_claims, unplaced, placements })
    }
}

/// The claim with the capacity types that it can have, as the object will list them.
fn new_claim(planned: &PlannedClaim, seed: &mut Seed) -> NewClaim {
    let mut requirements = planned.requirements.clone();
    let offered = &planned.capacity_types;
    if !offered.is_empty() {
        requirements.add(Requirement::new(
            labels::CAPACITY_TYPE,
            Operator::In,
            offered.iter().map(|it| it.as_str()),
        ));
    }
    NewClaim {
        pool: planned.nodepool.name().to_owned(),
        requirements,
        instance_types: planned.instance_types.clone(),
        claim: planned.to_node_claim(|from, to| seed.draw(from, to)),
    }
}

/// Numbers for labels that only have to exist: the same for the same nodes at the same time.
struct Seed(u64);

impl Seed {
    fn new(now: Timestamp) -> Self {
        Self(now.as_second().unsigned_abs() ^ 0x9e37_79b9_7f4a_7c15)
    }

    fn add(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn draw(&mut self, from: i64, to: i64) -> i64 {
        // SplitMix64: short, and good enough for labels.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^= it >> 31;
        let span = i128::from(to) - i128::from(from) + 1;
        let offset = i128::from(it).rem_euclid(span.max(1));
        i64::try_from(i128::from(from) + offset).unwrap_or(from)
    }
}
