//! The real scheduler behind [`Simulator`] (lifecycle 18).

use std::{cell::OnceCell, collections::BTreeSet, sync::Arc};

use spokeshave_model::{
    Kind, ObjectKey, Operator, Requirement, core::Pod, labels, pod_classes::PodDisruptionBudgets,
};
use spokeshave_scheduling::{
    Batch, ClusterView, Options, PlannedClaim, Planner, PoolInput, ReservedMode, Solution, buffers,
    claim_of_pool, eligibility,
};

use crate::{
    cluster::{StateNode, View},
    command::Placement,
    eligibility::pods_to_place,
    seed::Seed,
    settled::{MOST_PLACED_ANEW, Settled},
    simulation::{
        ClaimObject, NewClaim, Purpose, Simulation, SimulationError, Simulator, Unplaced,
    },
};

/// Where a pass keeps the places of the pods that wait, for all its simulations; filled when there are many of them.
pub type SettledCell = OnceCell<Settled>;

/// Simulates against one view; prepare it once per pass.
pub struct Scheduler<'a> {
    view: &'a View,
    cluster: &'a ClusterView,
    pools: &'a [PoolInput],
    options: &'a Options,
    extra_pods: Vec<Arc<Pod>>,
    keep_going: &'a dyn Fn() -> bool,
    settled: Option<&'a SettledCell>,
    /// Made by the first simulation: most passes need none.
    prepared: Option<Prepared<'a>>,
    /// The same over the cluster in which the pods that wait have their places.
    prepared_settled: Option<Prepared<'a>>,
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
        Self {
            view,
            cluster,
            pools,
            options,
            extra_pods,
            keep_going,
            settled: None,
            prepared: None,
            prepared_settled: None,
        }
    }

    /// Places the pods that wait once for all simulations of consolidation, when there are more than
    /// [`MOST_PLACED_ANEW`].
    #[must_use]
    pub fn settling(self, cell: &'a SettledCell) -> Self {
        Self { settled: Some(cell), ..self }
    }

    fn prepare(&self) -> Prepared<'a> {
        let (mut pending, _ignored) = eligibility::pending(self.cluster);
        pending.extend(self.extra_pods.iter().cloned());
        let displaced = eligibility::displaced(self.cluster, self.view.now);
        self.prepared_for(self.cluster, pending, displaced)
    }

    fn prepared_for(
        &self,
        cluster: &'a ClusterView,
        pending: Vec<Arc<Pod>>,
        displaced: Vec<Arc<Pod>>,
    ) -> Prepared<'a> {
        Prepared {
            planner: Planner::new(cluster, self.pools, self.options, self.view.now),
            pdbs: self.view.pod_disruption_budgets(),
            pending,
            displaced_keys: displaced.iter().map(|it| it.key()).collect(),
            displaced,
        }
    }

    /// The places of the pods that wait, where there are many of them.
    fn settle(&self, prepared: &mut Prepared<'a>) -> Result<Option<&'a Settled>, SimulationError> {
        let Some(cell) = self.settled else { return Ok(None) };
        if let Some(known) = cell.get() {
            return Ok(Some(known));
        }
        let pods: Vec<Arc<Pod>> =
            prepared.pending.iter().chain(&prepared.displaced).cloned().collect();
        if pods.len() <= MOST_PLACED_ANEW {
            return Ok(None);
        }
        let Prepared { planner, displaced_keys, .. } = prepared;
        let batch = consolidation(pods, BTreeSet::new(), displaced_keys.clone());
        let mut solution = planner.solve(&batch, self.keep_going);
        if !solution.unreached.is_empty() {
            return Err(SimulationError::OutOfTime);
        }
        let unplaced = unplaced(&mut solution, |pod| !displaced_keys.contains(pod));
        Ok(Some(cell.get_or_init(|| Settled::new(self.cluster, &solution, unplaced, &batch.pods))))
    }
}

/// A question of consolidation.
fn consolidation(
    pods: Vec<Arc<Pod>>,
    without: BTreeSet<String>,
    displaced: BTreeSet<ObjectKey>,
) -> Batch {
    Batch {
        pods,
        without,
        reserved: ReservedMode::Fallback,
        respect_consolidate_after: true,
        refuse_uninitialized: true,
        // Consolidation replaces by one claim or not at all.
        one_claim: true,
        displaced,
        ..Batch::default()
    }
}

fn unplaced(solution: &mut Solution, was_pending: impl Fn(&ObjectKey) -> bool) -> Vec<Unplaced> {
    std::mem::take(&mut solution.unschedulable)
        .into_iter()
        .map(|(pod, reason)| Unplaced {
            was_pending: was_pending(&pod),
            pod: pod.to_string(),
            error: reason.text,
        })
        .collect()
}

/// The claim that the template of a static pool makes.
pub fn template(view: &View, pool: &str) -> Option<NewClaim> {
    let it = view.pools.get(pool)?;
    let mut seed = Seed::new(view.now);
    seed.add(pool);
    Some(NewClaim {
        pool: pool.to_owned(),
        claim: ClaimObject::Made(Box::new(claim_of_pool(&it.nodepool, &it.hash, |from, to| {
            seed.draw(from, to)
        }))),
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
        let settled = match purpose {
            Purpose::Consolidation => self.settle(&mut prepared),
            // Drift makes all the nodes that pods need, also of those that wait.
            Purpose::Drift => Ok(None),
        };
        let answer = match settled {
            Ok(None) => self.simulate_with(&mut prepared, None, without, purpose),
            Ok(Some(settled)) => self.simulate_settled(&prepared, settled, without),
            Err(error) => Err(error),
        };
        self.prepared = Some(prepared);
        answer
    }
}

impl<'a> Scheduler<'a> {
    fn simulate_settled(
        &mut self,
        prepared: &Prepared<'a>,
        settled: &'a Settled,
        without: &[usize],
    ) -> Result<Simulation, SimulationError> {
        if settled.n_new > 1 {
            let is_leaving = |at: &usize| {
                self.view.nodes.get(*at).is_some_and(StateNode::is_marked_for_deletion)
            };
            if without.iter().any(is_leaving) {
                return Err(SimulationError::CandidateDeleting);
            }
            let mut answer =
                Simulation { unplaced: settled.unplaced.clone(), ..Simulation::default() };
            answer.new_claims.resize_with(settled.n_new, NewClaim::default);
            return Ok(answer);
        }
        let mut with_places = self.prepared_settled.take().unwrap_or_else(|| {
            let (displaced, pending) = settled
                .rest
                .iter()
                .cloned()
                .partition(|it| prepared.displaced_keys.contains(&it.key()));
            self.prepared_for(&settled.cluster, pending, displaced)
        });
        let answer =
            self.simulate_with(&mut with_places, Some(settled), without, Purpose::Consolidation);
        self.prepared_settled = Some(with_places);
        let mut answer = answer?;
        answer.unplaced.extend(settled.unplaced.iter().cloned());
        answer.unplaced.sort_by(|a, b| a.pod.cmp(&b.pod));
        Ok(answer)
    }

    fn simulate_with(
        &self,
        prepared: &mut Prepared<'a>,
        settled: Option<&Settled>,
        without: &[usize],
        purpose: Purpose,
    ) -> Result<Simulation, SimulationError> {
        let Prepared { planner, pdbs, pending, displaced, displaced_keys } = prepared;
        let mut names = BTreeSet::new();
        let mut moved: Vec<Arc<Pod>> = Vec::new();
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
                moved.push(Arc::clone(pod));
                pods.push(Arc::clone(pod));
            }
            let name = node.node.as_ref().map(|it| it.name());
            let found_here = settled.and_then(|it| it.by_node.get(name?));
            pods.extend(found_here.into_iter().flatten().cloned());
        }
        pods.extend(displaced.iter().cloned());
        let batch = match purpose {
            Purpose::Consolidation => consolidation(pods, names, displaced_keys.clone()),
            Purpose::Drift => Batch {
                respect_consolidate_after: false,
                one_claim: false,
                ..consolidation(pods, names, displaced_keys.clone())
            },
        };
        let mut solution = planner.solve(&batch, self.keep_going);
        if !solution.unreached.is_empty() {
            return Err(SimulationError::OutOfTime);
        }
        // Mostly all of them go to new nodes, and nobody asks.
        let keys: OnceCell<BTreeSet<ObjectKey>> = OnceCell::new();
        let is_moved = |pod: &ObjectKey| {
            keys.get_or_init(|| moved.iter().map(|it| it.key()).collect()).contains(pod)
        };
        let unplaced =
            unplaced(&mut solution, |pod| !is_moved(pod) && !displaced_keys.contains(pod));
        let placements = solution
            .existing
            .iter()
            .filter_map(|it| {
                let pods: Vec<String> = it
                    .pods
                    .iter()
                    .map(|pod| pod.key())
                    .filter(is_moved)
                    .map(|key| key.to_string())
                    .collect();
                (!pods.is_empty()).then(|| Placement { node: it.name.clone(), pods })
            })
            .collect();
        let mut new_claims: Vec<NewClaim> =
            solution.new_claims.into_iter().map(|it| new_claim(it, &mut seed)).collect();
        new_claims.resize_with(new_claims.len() + solution.untold_claims, NewClaim::default);
        Ok(Simulation { new_claims, unplaced, placements })
    }
}

/// The claim with the capacity types that it can have, as the object will list them.
fn new_claim(planned: PlannedClaim, seed: &mut Seed) -> NewClaim {
    let mut requirements = planned.requirements.clone();
    let offered = &planned.capacity_types;
    if !offered.is_empty() {
        requirements.add(Requirement::new(
            labels::CAPACITY_TYPE,
            Operator::In,
            offered.iter().map(|it| it.as_str()),
        ));
    }
    let instance_types = Arc::clone(&planned.instance_types);
    let pool = planned.nodepool.name().to_owned();
    let claim = ClaimObject::Planned(Arc::new(planned), seed.clone());
    // The next claim draws other numbers.
    seed.add(&pool);
    NewClaim { pool, requirements, instance_types, claim }
}
