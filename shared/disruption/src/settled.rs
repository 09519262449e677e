//! Pods that wait for a place, given one once for all simulations of a pass.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use spokeshave_model::{Kind, ObjectKey, core::Pod};
use spokeshave_scheduling::{Change, ClusterView, Object, Solution};

use crate::{command::MOST_PENDING, simulation::Unplaced};

/// So many pods that wait are placed anew by every simulation; when there are more, they are placed once.
///
/// DIFFERENCE: Karpenter always places all of them anew, together with the pods that would move. The longer the queue,
/// the fewer candidates it comes to, and it consolidates hardly anything meanwhile: pods that need two new nodes forbid
/// every move. Here pods that fit on nodes of the cluster keep the places that they found, as they will in a moment; those
/// that need one new node are placed with the pods that move; those that need more forbid the move at once.
pub const MOST_PLACED_ANEW: usize = 64;

/// What became of the pods that wait, with every node there.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    /// The cluster with the pods on the nodes that they found.
    pub(crate) cluster: ClusterView,
    /// The same pods by node: they move on with the others when it goes.
    pub(crate) by_node: BTreeMap<String, Vec<Arc<Pod>>>,
    /// Those that are on no Node yet: on a new one, or on one that was ordered.
    pub(crate) rest: Vec<Arc<Pod>>,
    /// How many new nodes they need.
    pub(crate) n_new: usize,
    /// Those that found no place: all that were not pending before, and the first of those that were, who are only named.
    pub(crate) unplaced: Vec<Unplaced>,
}

impl Settled {
    pub(crate) fn new(
        cluster: &ClusterView,
        solution: &Solution,
        unplaced: Vec<Unplaced>,
        pods: &[Arc<Pod>],
    ) -> Self {
        let n_new = solution.new_claims.len() + solution.untold_claims;
        let mut settled = Self { cluster: cluster.clone(), n_new, unplaced, ..Self::default() };
        let nowhere: BTreeSet<&str> = settled.unplaced.iter().map(|it| it.pod.as_str()).collect();
        let mut rest: BTreeMap<ObjectKey, &Arc<Pod>> =
            pods.iter().map(|it| (it.key(), it)).collect();
        rest.retain(|key, _| !nowhere.contains(key.to_string().as_str()));
        for it in solution.existing.iter().filter(|it| !it.node.is_empty()) {
            for pod in &it.pods {
                rest.remove(&pod.key());
                let mut bound = Pod::clone(pod);
                bound.spec.node_name.clone_from(&it.node);
                let bound = Arc::new(bound);
                settled.cluster.apply(Change::Put(Object::Pod(Arc::clone(&bound))));
                settled.by_node.entry(it.node.clone()).or_default().push(bound);
            }
        }
        settled.rest = rest.into_values().cloned().collect();
        settled.unplaced.sort_by(|a, b| a.pod.cmp(&b.pod));
        let mut n_pending = 0;
        settled.unplaced.retain(|it| {
            n_pending += usize::from(it.was_pending);
            !it.was_pending || n_pending <= MOST_PENDING
        });
        settled
    }
}
