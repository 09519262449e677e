//! What a run reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use jiff::Timestamp;
use spokeshave_catalog::{MarketView, offerings::overlay_prices, stored, warm};
use spokeshave_model::{
    CapacityBuffer, EC2NodeClass, FeatureGates, InstanceType, Kind, NodeClaim, NodeOverlay,
    NodePool, ObjectKey, Settings, conditions,
    core::{
        CSINode, DaemonSet, Deployment, LimitRange, Namespace, Node, PersistentVolume,
        PersistentVolumeClaim, Pod, PodDisruptionBudget, PodTemplate, ReplicaSet,
        ReplicationController, Service, StatefulSet, StorageClass,
    },
    hash,
};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Key, Selector, StateError, StateTable, chain,
};
use spokeshave_scheduling::{
    ClusterView, Kept, Object, PoolInput,
    overlays::{self, Verdict},
};

/// Why a run cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("state table")]
    State(#[from] StateError),
    #[error("queue")]
    Queue(#[from] AwsError),
}

/// The view that the last run of this environment ended with: what the next one starts from.
///
/// It makes runs fast, never right: every run lists everything, and the view is made to say what the lists say.
static KEPT: Mutex<Option<ClusterView>> = Mutex::new(None);

/// Takes the kept view; an empty one where there is none.
pub fn take_kept() -> ClusterView {
    KEPT.lock().ok().and_then(|mut it| it.take()).unwrap_or_default()
}

/// Keeps a view for the next run.
pub fn keep(view: ClusterView) {
    if let Ok(mut kept) = KEPT.lock() {
        *kept = Some(view);
    }
}

/// Reads everything that planning reads of the cluster into `view`, which follows what has changed since it was read last.
/// Claims and nodes come before pods: a pod that is bound in between is counted nowhere, and at worst too few nodes are
/// planned, which the next run mends.
///
/// # Errors
/// When the API server does not answer. Kinds that are not served count as empty.
pub async fn follow(
    view: &mut ClusterView,
    cluster: &impl Cluster,
    gates: FeatureGates,
    default_spread: bool,
) -> Result<Versions, ClusterError> {
    async fn all<K: Kept>(
        cluster: &impl Cluster,
        (view, versions): &mut (&mut ClusterView, Versions),
    ) -> Result<(), ClusterError>
    where
        Object: From<Arc<K>>,
    {
        let list = cluster.list::<K>(&Selector::all()).await?;
        versions.note(&list);
        view.follow(&list);
        Ok(())
    }
    let mut read = (view, Versions::default());
    let it = &mut read;
    all::<NodeClaim>(cluster, it).await?;
    all::<Node>(cluster, it).await?;
    all::<Pod>(cluster, it).await?;
    all::<NodePool>(cluster, it).await?;
    all::<EC2NodeClass>(cluster, it).await?;
    all::<DaemonSet>(cluster, it).await?;
    all::<PersistentVolume>(cluster, it).await?;
    all::<PersistentVolumeClaim>(cluster, it).await?;
    all::<StorageClass>(cluster, it).await?;
    all::<CSINode>(cluster, it).await?;
    all::<PodDisruptionBudget>(cluster, it).await?;
    all::<Namespace>(cluster, it).await?;
    all::<LimitRange>(cluster, it).await?;
    if gates.node_overlay {
        all::<NodeOverlay>(cluster, it).await?;
    }
    if gates.capacity_buffer {
        all::<CapacityBuffer>(cluster, it).await?;
        all::<PodTemplate>(cluster, it).await?;
        all::<Deployment>(cluster, it).await?;
    }
    if gates.capacity_buffer || default_spread {
        all::<ReplicaSet>(cluster, it).await?;
        all::<StatefulSet>(cluster, it).await?;
    }
    if default_spread {
        all::<ReplicationController>(cluster, it).await?;
        all::<Service>(cluster, it).await?;
    }
    Ok(read.1)
}

/// How new a read was, to tell whether it has caught up with what a message speaks of.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    newest: BTreeMap<&'static str, u64>,
}

fn version_of<K: Kind>(object: &K) -> u64 {
    object.meta().resource_version.parse().unwrap_or(0)
}

impl Versions {
    fn note<K: Kind>(&mut self, list: &[Arc<K>]) {
        let newest = list.iter().map(|it| version_of(&**it)).max();
        self.newest.insert(K::KIND, newest.unwrap_or(0));
    }

    /// Whether the read behind `view` saw the object at the version that `key` names, or later. An object that is missing
    /// counts as gone once the read saw anything newer of its kind.
    pub fn has_reached(&self, key: &Key, view: &ClusterView) -> bool {
        fn seen<K: Kept>(view: &ClusterView, object: &ObjectKey) -> Option<u64> {
            K::kept(view, object).map(|it| version_of(&**it))
        }
        let Ok(wanted) = key.resource_version.parse::<u64>() else { return true };
        let object = ObjectKey { namespace: key.namespace.clone(), name: key.name.clone() };
        // Kinds whose state a plan depends on, and that messages name.
        let seen = match key.kind.as_str() {
            Pod::KIND => seen::<Pod>(view, &object),
            Node::KIND => seen::<Node>(view, &object),
            NodeClaim::KIND => seen::<NodeClaim>(view, &object),
            NodePool::KIND => seen::<NodePool>(view, &object),
            EC2NodeClass::KIND => seen::<EC2NodeClass>(view, &object),
            _ => return true,
        };
        match seen {
            Some(version) => version >= wanted,
            // Claims that we made ourselves are remembered as orders; their nodes come and go.
            None if matches!(key.kind.as_str(), Node::KIND | NodeClaim::KIND) => true,
            None => self.newest.get(key.kind.as_str()).is_some_and(|newest| *newest > wanted),
        }
    }
}

/// The types of a class, or why they cannot be listed.
type Listed = Result<Arc<[Arc<InstanceType>]>, String>;

/// What can be bought, and until when something cannot.
pub struct Market {
    pub pools: Vec<PoolInput>,
    /// When the first mark of an unavailable offering runs out.
    pub next_expiry: Option<Timestamp>,
    /// What became of the overlays, by name. Empty without their gate.
    pub overlays: BTreeMap<String, Verdict>,
}

/// Ready pools with their instance types.
///
/// # Errors
/// When the table does not answer.
pub async fn market(
    view: &ClusterView,
    state: &impl StateTable,
    settings: &Settings,
    now: Timestamp,
) -> Result<Market, Trouble> {
    let ready: Vec<&Arc<NodePool>> = view
        .nodepools
        .values()
        .filter(|it| conditions::is_true(&it.status.conditions, conditions::READY))
        .filter(|it| PoolInput::takes_part(it))
        .collect();
    if ready.is_empty() {
        let mut pools = Vec::new();
        let overlays = apply_overlays(&mut pools, view, settings);
        return Ok(Market { pools, next_expiry: None, overlays });
    }
    let catalog = stored::load_catalog(state, &settings.region).await?;
    let (mut market, _): (MarketView<'_>, _) = stored::load_view(state, settings, now).await;
    if settings.gates.node_overlay {
        // What the launch will know, too.
        market.overlay_prices = overlay_prices(view.overlays.values().map(|it| &**it), false);
    }
    let next_expiry = market.unavailable.iter().map(|it| it.1).filter(|it| *it > now).min();
    let wanted: BTreeSet<&str> =
        ready.iter().map(|it| it.spec.template.spec.node_class_ref.name.as_str()).collect();
    let mut types: BTreeMap<&str, Listed> = BTreeMap::new();
    for name in wanted {
        let class = view.node_classes.values().find(|it| it.metadata.name == name);
        let list = match class {
            None => Err(format!("EC2NodeClass {name} not found")),
            Some(class) => {
                warm::instance_types(&catalog, class, &market).map_err(|error| chain(&error))
            }
        };
        types.insert(name, list);
    }
    let mut pools: Vec<PoolInput> = ready
        .into_iter()
        .map(|pool| {
            let class = pool.spec.template.spec.node_class_ref.name.as_str();
            PoolInput {
                nodepool: Arc::clone(pool),
                hash: hash::node_pool(pool),
                instance_types: types
                    .get(class)
                    .cloned()
                    .unwrap_or_else(|| Err(format!("EC2NodeClass {class} not found"))),
            }
        })
        .collect();
    let overlays = apply_overlays(&mut pools, view, settings);
    Ok(Market { pools, next_expiry, overlays })
}

fn apply_overlays(
    pools: &mut [PoolInput],
    view: &ClusterView,
    settings: &Settings,
) -> BTreeMap<String, Verdict> {
    if !settings.gates.node_overlay {
        return BTreeMap::new();
    }
    overlays::apply(pools, view.overlays.values().map(|it| &**it))
}
