//! Tells NodePools that traffic is shifted away from one of their zones, and when that is over (`spec` aws-capacity 12).

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use spokeshave_catalog::zonal_shift;
use spokeshave_model::{EC2NodeClass, Kind, NodePool, Requirements, labels};
use spokeshave_ports::{Cluster, Decision, Invocation, Selector, StateTable, cluster::KubeEvent};

use crate::Trouble;

/// A change that is told again, because the note of it was lost, is one event within so long. Shorter than any shift.
const MEMORY: SignedDuration = SignedDuration::from_mins(1);

/// The zone of this id as the pool's class knows it, when the pool may have nodes there: the class has a subnet in it, and
/// the pool's requirements and labels admit its name and its id.
pub fn reached_zone<'a>(
    pool: &NodePool,
    class: &'a EC2NodeClass,
    zone_id: &str,
) -> Option<&'a str> {
    let template = &pool.spec.template;
    let mut wanted = Requirements::from_api(&template.spec.requirements);
    wanted.add_all(&Requirements::from_labels(&template.metadata.labels.clone().into_inner()));
    let admits = |key: &str, value: &str| wanted.get(key).is_none_or(|it| it.has(value));
    let subnets = class.status.subnets.iter().filter(|it| it.zone_id == zone_id);
    let mut zones = subnets.map(|it| it.zone.as_str());
    zones.find(|it| admits(labels::ZONE, it) && admits(labels::ZONE_ID, zone_id))
}

/// What the pool is told of `zone`.
fn event(pool: &NodePool, zone: &str, zone_id: &str, is_shifted: bool) -> KubeEvent {
    let place = format!("zone {zone} ({zone_id})");
    if is_shifted {
        let text = format!(
            "Traffic is shifted away from {place}: nothing is launched or terminated there until the shift is over"
        );
        KubeEvent::on(pool, true, "ZonalShiftActive", text)
    } else {
        let text = format!("The zonal shift of {place} is over: nodes are launched there again");
        KubeEvent::on(pool, false, "ZonalShiftCleared", text)
    }
}

/// Tells every pool of zones that it has not been told of yet, and notes it afterwards.
///
/// DIFFERENCE: pools whose class is missing hear nothing; in Karpenter nobody does while there is one.
pub async fn tell(
    cluster: &impl Cluster,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> Result<(), Trouble> {
    let told = zonal_shift::published(state).await?;
    let shifted = zonal_shift::load(state, cx.now).await?;
    let changed: BTreeSet<&String> = told.symmetric_difference(&shifted).collect();
    if changed.is_empty() {
        return Ok(());
    }
    let pools = cluster.list::<NodePool>(&Selector::all()).await?;
    let classes = cluster.list::<EC2NodeClass>(&Selector::all()).await?;
    let classes: BTreeMap<&str, &EC2NodeClass> =
        classes.iter().map(|it| (it.name(), it.as_ref())).collect();
    for pool in pools.iter().filter(|it| it.is_managed()) {
        let class = classes.get(pool.spec.template.spec.node_class_ref.name.as_str());
        let Some(class) = class else { continue };
        for zone_id in &changed {
            let Some(zone) = reached_zone(pool, class, zone_id) else { continue };
            let event = event(pool, zone, zone_id, shifted.contains(*zone_id));
            let action = if event.warning { "shift" } else { "restore" };
            cx.decide(Decision::new(action, pool.reference(), event.message.clone()));
            cluster.publish(event, MEMORY).await;
        }
    }
    zonal_shift::set_published(state, &shifted).await?;
    Ok(())
}
