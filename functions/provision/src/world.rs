//! What can be bought, and why a run cannot go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use spokeshave_catalog::{MarketView, Memo, offerings::overlay_prices, stored};
use spokeshave_model::{InstanceType, NodePool, Settings, conditions, hash};
use spokeshave_ports::{AwsError, ClusterError, StateError, StateTable, chain};
use spokeshave_scheduling::{
    ClusterView, PoolInput,
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

/// What this process has read and worked out before.
static MEMO: Memo = Memo::new();

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
    let catalog = stored::load_catalog(state, &settings.region, &MEMO).await?;
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
                MEMO.instance_types(&catalog, class, &market).map_err(|error| chain(&error))
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
