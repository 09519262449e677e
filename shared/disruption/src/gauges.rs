//! What every pass can say of the cluster as a whole: how full its nodes are, and what its pools cost (lifecycle 33).
//!
//! DIFFERENCE: the gauges of each single pod, and those of nodes and of conditions, are told on request. Each is a metric of
//! its own in CloudWatch, and each metric is paid for.

use std::collections::BTreeMap;

use spokeshave_model::{CapacityType, Quantity, Resources, labels, resources::metric_label};

use crate::{
    cluster::{StateNode, View},
    costs::node_price,
    notices::Measure,
    object_gauges::object_gauges,
};

/// The gauges, sorted by name and label. Nothing is said of a resource that no node offers.
pub fn gauges(view: &View) -> Vec<Measure> {
    let mut measures = utilization(view);
    for (pool, cost) in costs(view) {
        let labels = [("nodepool", pool)];
        measures.push(Measure::gauge("karpenter_nodepools_cost_total", cost.dollars, &labels));
        if cost.unknown > 0 {
            let name = "karpenter_nodepools_cost_tracker_errors_total";
            measures.push(Measure::count(name, cost.unknown as f64, &labels));
        }
    }
    if view.settings.object_gauges {
        measures.extend(object_gauges(view));
    }
    measures
}

/// Requests of the pods on nodes, in per cent of what the nodes offer to pods.
fn utilization(view: &View) -> Vec<Measure> {
    let (mut offered, mut requested) = (Resources::default(), Resources::default());
    for state in &view.nodes {
        let Some(node) = &state.node else { continue };
        offered.add(&node.status.allocatable);
        requested.add(&state.requests);
    }
    let gauge = |(name, offered): (&str, Quantity)| {
        let share = requested.get(name).as_f64() / offered.as_f64() * 100.0;
        let resource = metric_label(name);
        let labels = [("resource_type", resource.as_str())];
        Measure::gauge("karpenter_cluster_utilization_percent", share, &labels)
    };
    offered.iter().filter(|(_, offered)| offered.as_f64() > 0.0).map(gauge).collect()
}

/// What a pool costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    /// Per hour.
    dollars: f64,
    /// Claims that were bought, and of which nobody can tell the price.
    unknown: usize,
}

/// Costs by pool. A claim counts from its launch on, since its labels say then what was bought; one whose offering is
/// not known costs nothing.
fn costs(view: &View) -> BTreeMap<&str, Cost> {
    let mut costs: BTreeMap<&str, Cost> =
        view.pools.keys().map(|name| (name.as_str(), Cost::default())).collect();
    for state in &view.nodes {
        if let Some(cost) = costs.get_mut(state.pool()) {
            let price = claim_price(view, state);
            cost.dollars += price;
            cost.unknown += usize::from(price <= 0.0 && was_bought(state));
        }
    }
    costs
}

/// Whether the labels of the claim say what was bought for it.
fn was_bought(state: &StateNode) -> bool {
    let has = |key: &str| state.claim.as_ref().is_some_and(|it| it.metadata.label(key).is_some());
    [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE].into_iter().all(has)
}

/// Dollars per hour that the claim of a node costs by its own labels.
pub(crate) fn claim_price(view: &View, state: &StateNode) -> f64 {
    let Some(claim) = &state.claim else { return 0.0 };
    let label = |key| claim.metadata.label(key);
    let pool = view.pools.get(label(labels::NODEPOOL).unwrap_or_default());
    let instance_type =
        pool.zip(label(labels::INSTANCE_TYPE)).and_then(|(pool, name)| pool.instance_type(name));
    node_price(
        instance_type.map(AsRef::as_ref),
        label(labels::ZONE),
        label(labels::CAPACITY_TYPE).and_then(CapacityType::parse),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{node, on_demand, pool, view};

    fn told(view: &View) -> Vec<String> {
        let text = |it: Measure| format!("{} {} {}", it.name, it.labels[0].1, it.value);
        gauges(view).into_iter().map(text).collect()
    }

    #[test] // lifecycle 33.1, case 7
    fn requests_are_set_against_what_nodes_offer() {
        let offers = json!({"status": {"allocatable": {"cpu": "4", "ephemeral-storage": "20Gi", "pods": "0"}}});
        let asks = |phase: &str| {
            json!({"status": {"phase": phase},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}})
        };
        let types = [on_demand("m.large", 0.25)];
        let one = node("n1", "p", "m.large", "on-demand")
            .node_is(offers)
            .pod("running", asks("Running"))
            .pod("done", asks("Succeeded"));
        let cluster = view(vec![pool("p", &types, json!({}))], vec![one.build()]);
        assert_eq!(
            told(&cluster),
            [
                "karpenter_cluster_utilization_percent cpu 25",
                "karpenter_cluster_utilization_percent ephemeral_storage 0",
                "karpenter_nodepools_cost_total p 0.25",
            ]
        );
    }

    #[test] // lifecycle 33: what is bought at a price that nobody knows is counted
    fn a_pool_costs_what_its_claims_cost() {
        let types = [on_demand("m.large", 0.25), on_demand("m.xlarge", 0.5)];
        let nodes = [("n1", "p", "m.large"), ("n2", "p", "m.xlarge"), ("n3", "q", "gone.large")];
        let nodes = nodes.map(|(name, pool, it)| node(name, pool, it, "on-demand").build());
        let pools = ["p", "q", "unused"].map(|it| pool(it, &types, json!({})));
        assert_eq!(
            told(&view(pools.into(), nodes.into())),
            [
                "karpenter_nodepools_cost_total p 0.75",
                "karpenter_nodepools_cost_total q 0",
                "karpenter_nodepools_cost_tracker_errors_total q 1",
                "karpenter_nodepools_cost_total unused 0",
            ]
        );
    }

    #[test] // B-050: nothing is added up over time, so nothing can fall below zero
    fn a_pool_that_comes_and_goes_costs_what_is_there() {
        let told = |price: f64, nodes: Vec<StateNode>| {
            told(&view(vec![pool("p", &[on_demand("m.large", price)], json!({}))], nodes))
        };
        let cost = |text: &str| vec![format!("karpenter_nodepools_cost_total p {text}")];
        let node = |name: &str| node(name, "p", "m.large", "on-demand");
        let deleted = |name: &str, at: &str| {
            let it = node(name).claim_is(json!({"metadata": {"deletionTimestamp": at}}));
            it.node_is(json!({"metadata": {"deletionTimestamp": at}})).build()
        };
        for round in 0..5 {
            assert_eq!(told(0.25, Vec::new()), cost("0"), "round {round}");
            let three = || ["n1", "n2", "n3"].map(|it| node(it).build()).to_vec();
            assert_eq!(told(0.25, three()), cost("0.75"), "round {round}");
            assert_eq!(told(0.5, three()), cost("1.5"), "round {round}: prices were read anew");
            // Deleted once and once more: it is paid for until it is gone, and then it is gone once.
            for at in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z"] {
                let left = vec![node("n1").build(), node("n2").build(), deleted("n3", at)];
                assert_eq!(told(0.5, left), cost("1.5"), "round {round}");
            }
            let left = vec![node("n1").build(), node("n2").build()];
            assert_eq!(told(0.125, left), cost("0.25"), "round {round}");
        }
        assert_eq!(told(0.125, Vec::new()), cost("0"));
    }
}
