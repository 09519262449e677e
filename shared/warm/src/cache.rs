//! A view of the cluster that follows it.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use futures_util::future::{join, join3, join4, join5};
use spokeshave_model::{
    CapacityBuffer, EC2NodeClass, Kind, NodeClaim, NodeOverlay, NodePool, ObjectKey, Settings,
    core::{
        CSINode, DaemonSet, Deployment, LimitRange, Namespace, Node, PersistentVolume,
        PersistentVolumeClaim, Pod, PodDisruptionBudget, PodTemplate, ReplicaSet,
        ReplicationController, Service, StatefulSet, StorageClass,
    },
};
use spokeshave_ports::{Changes, Cluster, ClusterError, Concern, Key, Place};
use spokeshave_scheduling::{Change, ClusterView, Kept, Object};

use crate::Wanted;

/// A view of more objects than this is not kept. At 2 KiB each it would take a gigabyte.
const MOST_KEPT: usize = 500_000;

thread_local! {
    /// What the last run of each solver left. A process has one thread that runs handlers.
    static LEFT: RefCell<BTreeMap<Concern, Cache>> = const { RefCell::new(BTreeMap::new()) };
}

/// The kinds that are not always read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// NodeOverlays.
    pub overlays: bool,
    /// CapacityBuffers and what they refer to.
    pub buffers: bool,
    /// What selects pods: default spread constraints are made of it.
    pub owners: bool,
}

impl Kinds {
    /// Those that the settings ask for.
    pub fn of(settings: &Settings) -> Self {
        Self {
            overlays: settings.gates.node_overlay,
            buffers: settings.gates.capacity_buffer,
            owners: !settings.scheduler_config.trim().is_empty(),
        }
    }
}

/// The cluster as it was last seen.
#[derive(Debug, Default)]
pub struct Cache {
    pub view: ClusterView,
    places: BTreeMap<&'static str, Place>,
}

impl Cache {
    /// What the last run of `solver` left in this process; an empty cache when there is none. A run that is killed leaves
    /// none.
    pub fn take(solver: Concern) -> Self {
        LEFT.with_borrow_mut(|left| left.remove(&solver)).unwrap_or_default()
    }

    /// Leaves it to the next run, unless it is too big to be kept.
    pub fn leave(self, solver: Concern) {
        if self.places.values().map(|it| it.count).sum::<usize>() <= MOST_KEPT {
            LEFT.with_borrow_mut(|left| left.insert(solver, self));
        }
    }

    /// Drops what is left, as a new process has nothing.
    pub fn forget() {
        LEFT.with_borrow_mut(BTreeMap::clear);
    }

    /// Follows everything that planning reads, all kinds at the same time. Ask [`Self::has_reached`] whether that was enough.
    ///
    /// # Errors
    /// When the API server does not answer. Kinds that were read are followed all the same.
    pub async fn follow(
        &mut self,
        cluster: &impl Cluster,
        kinds: Kinds,
        wanted: &Wanted,
    ) -> Result<(), ClusterError> {
        let from = Reader { cluster, places: &self.places, wanted };
        let (ours, nodes, storage, rest, (buffers, owners)) = join5(
            join5(
                from.read::<NodeClaim>(true),
                from.read::<NodePool>(true),
                from.read::<EC2NodeClass>(true),
                from.read::<NodeOverlay>(kinds.overlays),
                from.read::<DaemonSet>(true),
            ),
            join(from.read::<Node>(true), from.read::<Pod>(true)),
            join4(
                from.read::<PersistentVolume>(true),
                from.read::<PersistentVolumeClaim>(true),
                from.read::<StorageClass>(true),
                from.read::<CSINode>(true),
            ),
            join3(
                from.read::<PodDisruptionBudget>(true),
                from.read::<Namespace>(true),
                from.read::<LimitRange>(true),
            ),
            join(
                join3(
                    from.read::<CapacityBuffer>(kinds.buffers),
                    from.read::<PodTemplate>(kinds.buffers),
                    from.read::<Deployment>(kinds.buffers),
                ),
                join4(
                    from.read::<ReplicaSet>(kinds.buffers || kinds.owners),
                    from.read::<StatefulSet>(kinds.buffers || kinds.owners),
                    from.read::<ReplicationController>(kinds.owners),
                    from.read::<Service>(kinds.owners),
                ),
            ),
        )
        .await;
        let mut failed = None;
        self.put(ours.0, &mut failed);
        self.put(ours.1, &mut failed);
        self.put(ours.2, &mut failed);
        self.put(ours.3, &mut failed);
        self.put(ours.4, &mut failed);
        self.put(nodes.0, &mut failed);
        self.put(nodes.1, &mut failed);
        self.put(storage.0, &mut failed);
        self.put(storage.1, &mut failed);
        self.put(storage.2, &mut failed);
        self.put(storage.3, &mut failed);
        self.put(rest.0, &mut failed);
        self.put(rest.1, &mut failed);
        self.put(rest.2, &mut failed);
        self.put(buffers.0, &mut failed);
        self.put(buffers.1, &mut failed);
        self.put(buffers.2, &mut failed);
        self.put(owners.0, &mut failed);
        self.put(owners.1, &mut failed);
        self.put(owners.2, &mut failed);
        self.put(owners.3, &mut failed);
        failed.map_or(Ok(()), Err)
    }

    fn put<K: Kept>(
        &mut self,
        read: Result<Option<Changes<K>>, ClusterError>,
        failed: &mut Option<ClusterError>,
    ) where
        Object: From<Arc<K>>,
    {
        let changes = match read {
            Ok(Some(changes)) => changes,
            Ok(None) => return,
            Err(error) => {
                failed.get_or_insert(error);
                return;
            }
        };
        if changes.whole {
            self.view.follow(&changes.objects);
        } else {
            for object in changes.objects {
                self.view.apply(Change::Put(Object::from(object)));
            }
            for key in changes.gone {
                self.view.apply(Change::Delete(K::KIND, key));
            }
        }
        self.places.insert(K::KIND, Place { count: K::count(&self.view), ..changes.place });
    }

    /// Whether everything that is wanted has been seen.
    pub fn has_reached(&self, wanted: &Wanted) -> bool {
        wanted.keys().all(|it| self.has_seen(it))
            && wanted.versions().all(|(kind, version)| {
                let place = self.places.get(kind);
                place.is_none_or(|it| it.history == 0 || it.version >= version)
            })
    }

    /// Whether the object has been seen at the version that `key` names, or later, or has gone since.
    fn has_seen(&self, key: &Key) -> bool {
        let Ok(wanted) = key.resource_version.parse::<u64>() else { return true };
        let Some(place) = self.places.get(key.kind.as_str()) else { return true };
        if place.version >= wanted && place.history != 0 {
            return true;
        }
        // The object itself can be newer than the place: it was read by itself.
        let object = ObjectKey { namespace: key.namespace.clone(), name: key.name.clone() };
        match version(&self.view, &key.kind, &object) {
            Some(version) => version >= wanted,
            // A list of unknown age. Claims of our own are remembered as orders; their nodes come and go.
            None if place.history == 0 => {
                matches!(key.kind.as_str(), Node::KIND | NodeClaim::KIND) || place.version > wanted
            }
            None => false,
        }
    }
}

/// The version of an object that messages name.
fn version(view: &ClusterView, kind: &str, key: &ObjectKey) -> Option<u64> {
    fn of<K: Kept>(view: &ClusterView, key: &ObjectKey) -> Option<u64> {
        K::kept(view, key).map(|it| it.meta().resource_version.parse().unwrap_or(0))
    }
    match kind {
        Pod::KIND => of::<Pod>(view, key),
        Node::KIND => of::<Node>(view, key),
        NodeClaim::KIND => of::<NodeClaim>(view, key),
        NodePool::KIND => of::<NodePool>(view, key),
        EC2NodeClass::KIND => of::<EC2NodeClass>(view, key),
        // Whatever else a message names is not what a decision hangs on.
        _ => Some(u64::MAX),
    }
}

/// Reads kind after kind.
struct Reader<'a, C> {
    cluster: &'a C,
    places: &'a BTreeMap<&'static str, Place>,
    wanted: &'a Wanted,
}

impl<C: Cluster> Reader<'_, C> {
    async fn read<K: Kind>(&self, on: bool) -> Result<Option<Changes<K>>, ClusterError> {
        if !on {
            return Ok(None);
        }
        let since = self.places.get(K::KIND).copied().unwrap_or_default();
        self.cluster.changes::<K>(since, self.wanted.version(K::KIND)).await.map(Some)
    }
}
