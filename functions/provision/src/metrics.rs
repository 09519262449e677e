//! What a run measures, under Karpenter's names (`spec` scheduling 24). The label `scheduling_id` is left out: each run would
//! be a metric of its own, and each metric is paid for.

use std::{collections::BTreeMap, sync::Mutex};

use jiff::{SignedDuration, Timestamp};
use spokeshave_catalog::gauges::{self, Gauge, Series};
use spokeshave_model::core::Pod;
use spokeshave_ports::Invocation;
use spokeshave_scheduling::{ClusterView, PoolInput, Solution};

use crate::waits;

const PROVISIONER: [(&str, &str); 1] = [("controller", "provisioner")];

/// The state of the cluster as the plan will see it, and how many pods it has to place.
pub(crate) fn before(view: &ClusterView, n_pods: usize, cx: &Invocation<'_>) {
    cx.sample("karpenter_scheduler_queue_depth", n_pods as f64, "Count", &PROVISIONER);
    let n_nodes = view.state_nodes().len();
    cx.sample("karpenter_cluster_state_node_count", n_nodes as f64, "Count", &[]);
    // Claims whose launch is outstanding: their size is not known yet, so they are planned with as ordered.
    let since = view.unlaunched().filter_map(|it| it.metadata.creation_timestamp).min();
    let synced = view.unlaunched().next().is_none();
    let unsynced = since.map_or(SignedDuration::ZERO, |it| cx.now.duration_since(it));
    cx.sample("karpenter_cluster_state_synced", f64::from(u8::from(synced)), "Count", &[]);
    let seconds = unsynced.as_secs_f64().max(0.0);
    cx.sample("karpenter_cluster_state_unsynced_time_seconds", seconds, "Seconds", &[]);
}

/// What this environment has said of offerings. Lost with it: everything is said once more.
static SAID: Mutex<BTreeMap<Series, Gauge>> = Mutex::new(BTreeMap::new());

/// What the offerings of the pools cost, and which can be bought, as far as that has changed.
///
/// DIFFERENCE: only when something is planned, and only where the setting asks for it; Karpenter says it every minute.
pub(crate) fn offerings(pools: &[PoolInput], cx: &Invocation<'_>) {
    if !cx.settings.offering_metrics {
        return;
    }
    // A pool that cannot be resolved does not stop the others; it is reported as skipped.
    let types = pools.iter().filter_map(|it| it.instance_types.as_deref().ok());
    let now = gauges::offerings(types, cx.settings.gates.reserved_capacity);
    let Ok(mut said) = SAID.lock() else { return };
    gauges::changes(&said, &now).into_iter().for_each(|it| cx.measure(it));
    *said = now;
}

/// Histograms of pods, each with the condition whose change is measured: from the pod's creation, and from its first plan.
const OF_PODS: [(&str, &str, &str); 2] = [
    (
        "PodScheduled",
        "karpenter_pods_bound_duration_seconds",
        "karpenter_pods_provisioning_bound_duration_seconds",
    ),
    (
        "Ready",
        "karpenter_pods_startup_duration_seconds",
        "karpenter_pods_provisioning_startup_duration_seconds",
    ),
];

/// How long pods took to be bound and to be ready, as far as that happened since the last run.
pub(crate) fn of_pods(view: &ClusterView, since: Option<Timestamp>, cx: &Invocation<'_>) {
    let Some(since) = since else { return };
    for pod in
        view.nodes.keys().filter_map(|it| view.pods_on(&it.name)).flat_map(|it| it.pods.values())
    {
        let Some(created) = pod.metadata.creation_timestamp else { continue };
        for (condition, of_all, of_planned) in OF_PODS {
            let found = pod.condition(condition).filter(|it| it.status == "True");
            let at = found.and_then(|it| it.last_transition_time);
            if let Some(at) = at.filter(|at| *at > since && *at <= cx.now) {
                let seconds = at.duration_since(created).as_secs_f64().max(0.0);
                cx.sample(of_all, seconds, "Seconds", &[]);
                if let Some(seconds) = waits::since_planned(pod, at) {
                    cx.sample(of_planned, seconds, "Seconds", &[]);
                }
            }
        }
    }
}

/// How long pods that are planned for the first time waited for it: those that had no place found since the last run.
pub(crate) fn decided<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    since: Option<Timestamp>,
    cx: &Invocation<'_>,
) {
    for pod in pods {
        let seen = pod.condition("PodScheduled").and_then(|it| it.last_transition_time);
        let Some(seen) = seen.filter(|at| since.is_none_or(|since| *at > since)) else { continue };
        let seconds = cx.now.duration_since(seen).as_secs_f64().max(0.0);
        cx.sample("karpenter_pods_scheduling_decision_duration_seconds", seconds, "Seconds", &[]);
    }
}

/// How long planning took.
pub(crate) fn duration(took: SignedDuration, cx: &Invocation<'_>) {
    let name = "karpenter_scheduler_scheduling_duration_seconds";
    cx.sample(name, took.as_secs_f64(), "Seconds", &PROVISIONER);
}

/// How long a plan has been at work on pods that it did not come to.
pub(crate) fn unfinished(solution: &Solution, took: SignedDuration, cx: &Invocation<'_>) {
    let seconds = if solution.unreached.is_empty() { 0.0 } else { took.as_secs_f64() };
    cx.sample("karpenter_scheduler_unfinished_work_seconds", seconds, "Seconds", &PROVISIONER);
}
