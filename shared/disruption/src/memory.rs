//! What a pass leaves for the next: where nothing was found, and where a search stopped.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use spokeshave_model::{NodeClaim, Uid};

use crate::{
    candidates::Candidate,
    cluster::View,
    command::{Command, Method},
};

/// What was found quiet is looked at again after this time, since prices change. Source: Karpenter 1.x.
pub const QUIET_FOR: SignedDuration = SignedDuration::from_mins(5);

/// Losing it costs a search, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// Consolidation methods that found nothing, and in which state of the cluster.
    pub quiet: BTreeMap<Method, Quiet>,
    /// Pools that single-node consolidation did not come to before its time was up.
    pub unseen_pools: BTreeSet<String>,
    /// A search to go on with.
    pub search: Option<Search>,
}

/// A method found nothing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiet {
    pub fingerprint: String,
    pub since: Timestamp,
}

/// A search that stopped for want of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Search {
    pub method: Method,
    /// When the first run of it began.
    pub started: Timestamp,
    /// So many candidates are done.
    #[serde(default)]
    pub looked_at: usize,
    /// Where multi-node consolidation is.
    #[serde(default)]
    pub halving: Option<Halving>,
}

/// Where the search for the longest run of candidates that can go together is.
///
/// Of the candidates, the first `low` have been decided on or need no try, and more than `high + 1` are too many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Halving {
    /// UIDs of the candidates' claims in the order in which they are tried. While all of them still are candidates, the
    /// order stays as it was, whatever has become of their costs; once one is missing, the search begins anew.
    pub claims: Vec<Uid>,
    pub low: usize,
    pub high: usize,
    /// What the longest run that works comes to. It is looked at again before it is started, as any command is.
    pub best: Option<Command>,
}

impl Memory {
    /// Whether `method` found nothing in this very state, less than [`QUIET_FOR`] ago.
    pub fn is_quiet(&self, method: Method, fingerprint: &str, now: Timestamp) -> bool {
        self.quiet.get(&method).is_some_and(|it| {
            it.fingerprint == fingerprint && now.duration_since(it.since) < QUIET_FOR
        })
    }

    /// Remembers that `method` found nothing.
    pub fn remember_quiet(&mut self, method: Method, fingerprint: String, now: Timestamp) {
        self.quiet.insert(method, Quiet { fingerprint, since: now });
    }
}

impl Search {
    /// Whether it has taken as long as it may.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.method.time_limit().is_some_and(|limit| now.duration_since(self.started) >= limit)
    }
}

/// The state of the cluster as far as it decides whether looking again is worth while (lifecycle 13).
///
/// DIFFERENCE: Karpenter compares a time stamp that some changes move; here the state itself is compared, which also
/// notices nodes that became candidates without any of those changes.
pub fn fingerprint(state: u64, candidates: &[Candidate]) -> String {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    for candidate in candidates {
        candidate.name.hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

/// The part of it that is the same for all methods.
pub fn state_print(view: &View) -> u64 {
    let mut hasher = DefaultHasher::new();
    for node in &view.nodes {
        node.name().hash(&mut hasher);
        node.node.as_ref().map(|it| it.metadata.uid.as_str()).hash(&mut hasher);
        node.claim_uid().map(Uid::as_str).hash(&mut hasher);
        (node.is_initialized(), node.is_marked_for_deletion()).hash(&mut hasher);
        node.claim.as_ref().map(|it| it.is_true(NodeClaim::CONSOLIDATABLE)).hash(&mut hasher);
        for pod in &node.pods {
            pod.metadata.uid.as_str().hash(&mut hasher);
            pod.metadata.name.hash(&mut hasher);
        }
    }
    for (name, pool) in &view.pools {
        (name, pool.nodepool.metadata.uid.as_str(), pool.nodepool.metadata.generation)
            .hash(&mut hasher);
    }
    hasher.finish()
}
