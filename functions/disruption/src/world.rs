//! What a pass reads: stored commands first, then nominations, then the cluster.
//!
//! The order matters. A command that ends while the cluster is being listed is still among the commands, so that its
//! nodes count as disrupted; the other way round a budget could be overdrawn.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use spokeshave_catalog::{Memo, offerings::overlay_prices, stored};
use spokeshave_disruption::{
    StateNode, View,
    cluster::nomination_window,
    scheduler::{marked_names, note_buffers},
};
use spokeshave_model::{
    InstanceType, Kind, NodeClaim, ObjectKey, Settings,
    core::{Node, Pod, PodDisruptionBudget},
    hash,
};
use spokeshave_ports::{Cluster, Concern, Key, Selector, StateTable};
use spokeshave_scheduling::{
    ClusterView, Options, PoolInput, buffers::virtual_pods, defaults::SchedulerConfig, overlays,
};
use spokeshave_warm::{Cache, Kinds, Wanted};

use crate::{
    backoff,
    record::{Stored, read_all},
    trouble::Trouble,
};

/// What this process has read and worked out before.
static MEMO: Memo = Memo::new();

/// Partition of the state table in which provisioning writes which nodes it has assigned pods to.
pub const NOMINATIONS: &str = "nomination";

/// Reads of the whole cluster in one run, until it has caught up.
const READS: usize = 3;

/// One moment of the cluster, and the commands that were under way just before.
#[derive(Debug)]
pub struct World {
    pub view: View,
    /// What the scheduler reads: [`Cache::view`], with marks.
    pub cache: Cache,
    /// Names that are marked in it.
    marked: BTreeSet<String>,
    pub pools: Vec<PoolInput>,
    pub options: Options,
    /// Placeholder pods of CapacityBuffers.
    pub placeholders: Vec<Arc<Pod>>,
    /// With their versions, by id.
    pub commands: Vec<(Stored, u64)>,
}

impl World {
    /// Leaves the view to the next run, as it was read.
    pub fn leave(mut self) {
        for name in &self.marked {
            self.cache.view.unmark(name);
        }
        self.cache.leave(Concern::Disruption);
    }
}

/// What must have been seen of the cluster before anything is decided.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What the messages speak of.
    pub keys: Vec<Key>,
    /// Long enough has been waited for it: what is named and never seen counts as gone.
    pub or_not: bool,
}

/// Reads everything. `None`: the cluster is seen older than what must have been `seen`, or what either solver wrote last.
///
/// # Errors
/// When the cluster or the table does not answer.
pub async fn read(
    cluster: &impl Cluster,
    state: &impl StateTable,
    seen: &Seen,
    settings: &Settings,
    now: Timestamp,
) -> Result<Option<World>, Trouble> {
    let commands = read_all(state).await?;
    let nominated = nominations(state, settings).await?;
    let mut cache = Cache::take(Concern::Disruption);
    let read = follow(&mut cache, cluster, state, seen, settings).await;
    let pools = match read {
        Ok(true) => pools(state, &cache.view, settings, now).await,
        Ok(false) => {
            cache.leave(Concern::Disruption);
            return Ok(None);
        }
        Err(error) => Err(error),
    };
    let (pools, drift_held) = match (pools, backoff::read(state).await.map_err(Trouble::from)) {
        (Ok(pools), Ok(held)) => (pools, held),
        (Err(error), _) | (_, Err(error)) => {
            cache.leave(Concern::Disruption);
            return Err(error);
        }
    };
    let mut view = View::new(&cache.view, &pools, settings, now);
    for node in &mut view.nodes {
        note_command(node, &commands);
        note_nomination(node, &nominated);
    }
    view.drift_held = drift_held;
    view.launching = view.unlaunched().map(|it| it.pool().to_owned()).collect();
    let marked = marked_names(&view);
    for name in &marked {
        cache.view.mark_for_deletion(name);
    }
    let objects = &cache.view;
    let placeholders =
        if settings.gates.capacity_buffer { virtual_pods(objects) } else { Vec::new() };
    let options = options(settings);
    note_buffers(&mut view, objects, &pools, &options, &placeholders);
    Ok(Some(World { view, cache, marked, pools, options, placeholders, commands }))
}

/// Follows the cluster; whether everything that is wanted, and what either solver wrote last, has been seen.
async fn follow(
    cache: &mut Cache,
    cluster: &impl Cluster,
    state: &impl StateTable,
    seen: &Seen,
    settings: &Settings,
) -> Result<bool, Trouble> {
    let wanted = Wanted::keys_of(&seen.keys).and_written(state).await?;
    for _ in 0..READS {
        cache.follow(cluster, Kinds::of(settings), &wanted).await?;
        if seen.or_not || cache.has_reached(&wanted) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What steers simulations. A `SCHEDULER_CONFIG` that cannot be read counts as empty; provisioning complains of it.
fn options(settings: &Settings) -> Options {
    let mut options = Options::from_settings(settings);
    if !settings.scheduler_config.trim().is_empty()
        && let Ok(config) = serde_saphyr::from_str::<SchedulerConfig>(&settings.scheduler_config)
        && let Ok(constraints) = config.constraints()
    {
        options.default_spread = constraints;
    }
    options
}

/// Reads the nodes, pods and nominations of some claims afresh, as if their command did not exist.
///
/// # Errors
/// When the cluster or the table does not answer.
pub async fn reread(
    cluster: &impl Cluster,
    state: &impl StateTable,
    command: &Stored,
    before: &View,
) -> Result<View, Trouble> {
    let nominated = nominations(state, &before.settings).await?;
    let mut nodes = Vec::new();
    for candidate in &command.command.candidates {
        let node = cluster.get::<Node>(&ObjectKey::cluster(&candidate.node)).await?;
        let claim = cluster.get::<NodeClaim>(&ObjectKey::cluster(&candidate.claim)).await?;
        let mut pods = cluster.list::<Pod>(&Selector::on_node(&candidate.node)).await?;
        pods.retain(|it| it.spec.node_name == candidate.node);
        let mut node = StateNode {
            node: node.filter(|it| it.metadata.uid == candidate.node_uid),
            claim: claim.filter(|it| it.metadata.uid == candidate.claim_uid),
            pods,
            ..StateNode::default()
        };
        note_nomination(&mut node, &nominated);
        nodes.push(node);
    }
    let pdbs = cluster.list::<PodDisruptionBudget>(&Selector::all()).await?;
    // A run that takes the command up finds its own replacements being launched.
    Ok(View { nodes, pdbs, launching: BTreeSet::new(), ..before.clone() })
}

fn note_command(node: &mut StateNode, commands: &[(Stored, u64)]) {
    let Some(uid) = node.claim_uid().cloned() else { return };
    for (stored, _) in commands.iter().filter(|(it, _)| it.has_begun()) {
        if stored.command.candidates.iter().any(|it| it.claim_uid == uid) {
            node.in_command = true;
            node.marked |= stored.is_marked();
        }
    }
}

fn note_nomination(node: &mut StateNode, nominated: &BTreeMap<String, Timestamp>) {
    let names = [
        node.node.as_ref().map(|it| it.metadata.name.as_str()),
        node.claim.as_ref().map(|it| it.metadata.name.as_str()),
    ];
    node.nominated_until =
        names.into_iter().flatten().filter_map(|it| nominated.get(it)).max().copied();
}

/// Until when each node or claim is to be left alone, by name.
async fn nominations(
    state: &impl StateTable,
    settings: &Settings,
) -> Result<BTreeMap<String, Timestamp>, Trouble> {
    let window = nomination_window(settings);
    let mut until = BTreeMap::new();
    for (name, record) in state.query(NOMINATIONS, "").await? {
        let time = |field: &str| record.data.get(field)?.as_str()?.parse::<Timestamp>().ok();
        let end =
            time("until").or_else(|| time("at")?.checked_add(window).ok()).or(record.expires_at);
        if let Some(end) = end {
            until.insert(name, end);
        }
    }
    Ok(until)
}

/// The types of a class, or why they cannot be told.
type Types = Result<Arc<[Arc<InstanceType>]>, String>;

/// Managed pools with what can be bought for them.
async fn pools(
    state: &impl StateTable,
    objects: &ClusterView,
    settings: &Settings,
    now: Timestamp,
) -> Result<Vec<PoolInput>, Trouble> {
    let catalog = stored::load_catalog(state, &settings.region, &MEMO).await?;
    let (mut market, _problem) = stored::load_view(state, settings, now).await;
    if settings.gates.node_overlay {
        // What the launch of a replacement will know, too.
        market.overlay_prices = overlay_prices(objects.overlays.values().map(|it| &**it), false);
    }
    let mut of_class: BTreeMap<&str, Types> = BTreeMap::new();
    for class in objects.node_classes.values().filter(|it| !it.metadata.deleting()) {
        let types =
            MEMO.instance_types(&catalog, class, &market).map_err(|error| error.to_string());
        of_class.insert(class.name(), types);
    }
    let mut pools: Vec<PoolInput> = objects
        .nodepools
        .values()
        .filter(|it| it.is_managed())
        .map(|nodepool| {
            let class = nodepool.spec.template.spec.node_class_ref.name.as_str();
            PoolInput {
                nodepool: Arc::clone(nodepool),
                hash: hash::node_pool(nodepool),
                instance_types: of_class
                    .get(class)
                    .cloned()
                    .unwrap_or_else(|| Err(format!("EC2NodeClass {class} not found"))),
            }
        })
        .collect();
    if settings.gates.node_overlay {
        overlays::apply(&mut pools, objects.overlays.values().map(|it| &**it));
    }
    Ok(pools)
}
