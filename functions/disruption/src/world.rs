//! What a pass reads: stored commands first, then nominations, then the cluster.
//!
//! The order matters. A command that ends while the cluster is being listed is still among the commands, so that its
//! nodes count as disrupted; the other way round a budget could be overdrawn.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use spokeshave_disruption::{Pool, StateNode, View, cluster::nomination_window, join};
use spokeshave_model::{
    EC2NodeClass, InstanceType, Kind, NodeClaim, NodePool, ObjectKey, Settings,
    core::{Node, Pod, PodDisruptionBudget},
};
use spokeshave_ports::{Cluster, Selector, StateTable};

use crate::{
    record::{Stored, read_all},
    trouble::Trouble,
};

/// Partition of the state table in which provisioning writes which nodes it has assigned pods to.
pub const NOMINATIONS: &str = "nomination";

/// One moment of the cluster, and the commands that were under way just before.
#[derive(Clone, Debug)]
pub struct World {
    pub view: View,
    /// With their versions, by id.
    pub commands: Vec<(Stored, u64)>,
}

/// Reads everything.
///
/// # Errors
/// When the cluster or the table does not answer.
pub async fn read(
    cluster: &impl Cluster,
    state: &impl StateTable,
    settings: &Settings,
    now: Timestamp,
) -> Result<World, Trouble> {
    let commands = read_all(state).await?;
    let nominated = nominations(state, settings).await?;
    let nodes = cluster.list::<Node>(&Selector::all()).await?;
    let claims = cluster.list::<NodeClaim>(&Selector::all()).await?;
    let pods = cluster.list::<Pod>(&Selector::all()).await?;
    let pdbs = cluster.list::<PodDisruptionBudget>(&Selector::all()).await?;
    let pools = pools(cluster, state, settings, now).await?;
    let mut nodes = join(&nodes, &claims, &pods);
    for node in &mut nodes {
        note_command(node, &commands);
        note_nomination(node, &nominated);
    }
    let view = View { now, settings: settings.clone(), nodes, pools, pdbs };
    Ok(World { view, commands })
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
    Ok(View { nodes, pdbs, ..before.clone() })
}

fn note_command(node: &mut StateNode, commands: &[(Stored, u64)]) {
    let Some(uid) = node.claim_uid().cloned() else { return };
    for (stored, _) in commands.iter().filter(|(it, _)| it.is_running()) {
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

/// Managed pools with what can be bought for them.
async fn pools(
    cluster: &impl Cluster,
    _state: &impl StateTable,
    settings: &Settings,
    now: Timestamp,
) -> Result<BTreeMap<String, Pool>, Trouble> {
    let pools = cluster.list::<NodePool>(&Selector::all()).await?;
    let classes = cluster.list::<EC2NodeClass>(&Selector::all()).await?;
    let catalog = spokeshave_catalog::Catalog::builtin(&settings.region)
        .map(spokeshave_catalog::Catalog::with_estimated_spot_prices);
    let market = spokeshave_catalog::MarketView::new(settings, now);
    let mut of_class: BTreeMap<String, Arc<Vec<Arc<InstanceType>>>> = BTreeMap::new();
    for class in classes.iter().filter(|it| !it.metadata.deleting()) {
        let types = catalog
            .as_ref()
            .and_then(|it| it.instance_types(class, &market).ok())
            .unwrap_or_default();
        of_class
            .insert(class.name().to_owned(), Arc::new(types.into_iter().map(Arc::new).collect()));
    }
    Ok(pools
        .into_iter()
        .filter(|it| it.is_managed())
        .map(|nodepool| {
            let class = &nodepool.spec.template.spec.node_class_ref.name;
            let instance_types = of_class.get(class).cloned().unwrap_or_default();
            (nodepool.name().to_owned(), Pool { nodepool, instance_types })
        })
        .collect())
}
