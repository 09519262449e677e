//! Counting the claims of pools of fixed size (lifecycle 31).

use spokeshave_model::resources::NODES;

use crate::cluster::{Pool, View};

/// The claims of a static pool by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StaticState {
    /// Exists and stays, launched or not.
    pub active: i64,
    /// In a command whose replacement does not exist yet.
    pub pending_disruption: i64,
    /// On its way out.
    pub deleting: i64,
}

impl StaticState {
    /// Counts the claims of `pool`.
    pub fn of(view: &View, pool: &str) -> Self {
        let mut state = Self::default();
        for node in view.nodes.iter().filter(|it| it.claim.is_some() && it.pool() == pool) {
            if node.is_marked_for_deletion() {
                state.deleting += 1;
            } else if node.in_command {
                state.pending_disruption += 1;
            } else {
                state.active += 1;
            }
        }
        state
    }

    /// How many of `want` claims the limit leaves room for. No limit: all.
    pub fn grant(&self, limit: Option<i64>, want: i64) -> i64 {
        let Some(limit) = limit else { return want.max(0) };
        let free = limit - (self.active + self.deleting + self.pending_disruption);
        want.min(free).max(0)
    }
}

/// `limits.nodes` of a pool.
pub fn node_limit(pool: &Pool) -> Option<i64> {
    let limits = pool.nodepool.spec.limits.as_ref()?;
    let limit = limits.0.get(NODES)?;
    Some(limit.value())
}
