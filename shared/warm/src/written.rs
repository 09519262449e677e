//! What must have been seen before anything is decided, and what a run wrote.
//!
//! The state table holds one record per solver, partition `written`, with the newest resource version of each kind that it
//! wrote. Losing it means: a run may decide before it sees what the other one wrote last; the records of nominations and
//! commands still tell it.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use spokeshave_model::{Kind, ObjectKey, Uid};
use spokeshave_ports::{
    Changes, Cluster, ClusterError, Concern, Key, Place, Precondition, Selector, StateError,
    StateKey, StateTable, When,
    cluster::{Eviction, KubeEvent},
};

const PARTITION: &str = "written";

/// So long a version that was written may not have reached everybody yet. An API server that is behind by more answers
/// nobody.
const SETTLES: SignedDuration = SignedDuration::from_mins(2);

/// The newest version of each kind.
type Versions = BTreeMap<String, u64>;

/// What a view must have seen.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    keys: Vec<Key>,
    by_solver: BTreeMap<String, Versions>,
}

impl Wanted {
    /// What these messages speak of.
    pub fn keys_of<'a>(keys: impl IntoIterator<Item = &'a Key>) -> Self {
        Self { keys: keys.into_iter().cloned().collect(), by_solver: BTreeMap::new() }
    }

    /// The same, and what either solver wrote last.
    ///
    /// # Errors
    /// When the table does not answer.
    pub async fn and_written(mut self, state: &impl StateTable) -> Result<Self, StateError> {
        for (solver, record) in state.query(PARTITION, "").await? {
            let versions = record.data.as_object().into_iter().flatten();
            let versions = versions.filter_map(|(kind, it)| Some((kind.clone(), it.as_u64()?)));
            self.by_solver.insert(solver, versions.collect());
        }
        Ok(self)
    }

    /// The version of a kind that must have been reached.
    pub fn version(&self, kind: &str) -> u64 {
        let named = self.keys.iter().filter(|it| it.kind == kind);
        let named = named.filter_map(|it| it.resource_version.parse().ok());
        let written = self.versions().filter(|it| it.0 == kind).map(|it| it.1);
        named.chain(written).max().unwrap_or(0)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter()
    }

    pub(crate) fn versions(&self) -> impl Iterator<Item = (&str, u64)> {
        self.by_solver.values().flatten().map(|(kind, version)| (kind.as_str(), *version))
    }
}

/// A cluster that remembers the versions of what is written through it.
#[derive(Debug)]
pub struct Noting<'a, C> {
    cluster: &'a C,
    written: RefCell<Versions>,
}

impl<'a, C: Cluster> Noting<'a, C> {
    pub fn new(cluster: &'a C) -> Self {
        Self { cluster, written: RefCell::default() }
    }

    fn note<K: Kind>(&self, written: Result<Arc<K>, ClusterError>) -> Result<Arc<K>, ClusterError> {
        let object = written?;
        if let Ok(version) = object.meta().resource_version.parse::<u64>() {
            let mut written = self.written.borrow_mut();
            let newest = written.entry(K::KIND.to_owned()).or_default();
            *newest = version.max(*newest);
        }
        Ok(object)
    }

    /// Tells the next runs of both solvers what this one of `solver` wrote.
    ///
    /// # Errors
    /// When the table does not answer.
    pub async fn store(
        &self,
        solver: Concern,
        state: &impl StateTable,
        now: Timestamp,
    ) -> Result<(), StateError> {
        let mut written = std::mem::take(&mut *self.written.borrow_mut());
        if written.is_empty() {
            return Ok(());
        }
        let key = StateKey::new(PARTITION, solver.as_str());
        let earlier = state.read(&key).await?.map(|it| it.data).unwrap_or_default();
        for (kind, version) in earlier.as_object().into_iter().flatten() {
            let newest = written.entry(kind.clone()).or_default();
            *newest = version.as_u64().unwrap_or(0).max(*newest);
        }
        let data = Value::from_iter(written);
        state.write(&key, data, now.checked_add(SETTLES).ok(), When::Always).await?;
        Ok(())
    }
}

impl<C: Cluster> Cluster for Noting<'_, C> {
    async fn get<K: Kind>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, ClusterError> {
        self.cluster.get(key).await
    }

    async fn list<K: Kind>(&self, selector: &Selector) -> Result<Vec<Arc<K>>, ClusterError> {
        self.cluster.list(selector).await
    }

    async fn changes<K: Kind>(&self, since: Place, reach: u64) -> Result<Changes<K>, ClusterError> {
        self.cluster.changes(since, reach).await
    }

    async fn create<K: Kind>(&self, object: &K) -> Result<Arc<K>, ClusterError> {
        self.note(self.cluster.create(object).await)
    }

    async fn patch<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        self.note(self.cluster.patch(old, new, guard).await)
    }

    async fn patch_status<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        self.note(self.cluster.patch_status(old, new, guard).await)
    }

    async fn delete<K: Kind>(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        grace: Option<i64>,
    ) -> Result<(), ClusterError> {
        self.cluster.delete::<K>(key, uid, grace).await
    }

    async fn evict(&self, pod: &ObjectKey, uid: &Uid) -> Result<Eviction, ClusterError> {
        self.cluster.evict(pod, uid).await
    }

    async fn publish(&self, event: KubeEvent, dedupe: SignedDuration) {
        self.cluster.publish(event, dedupe).await;
    }
}
