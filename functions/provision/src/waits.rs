//! How long single pods wait, and for what (`spec` scheduling 17 and 24).
//!
//! When a pod first had a place planned is kept in the process alone: losing it leaves out one sample of each such pod.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use spokeshave_model::{
    Kind, NodePool, ObjectKey, Uid,
    core::{Node, Pod},
    labels,
};
use spokeshave_ports::Invocation;
use spokeshave_scheduling::{ClusterView, Solution};

/// A pod that had a place planned and does not run yet.
#[derive(Clone, Debug)]
struct Wait {
    uid: Uid,
    /// Since when its place is one of a pool whose nodes register; `None` while it is another.
    healthy_since: Option<Timestamp>,
}

thread_local! {
    static WAITS: RefCell<BTreeMap<ObjectKey, Wait>> = const { RefCell::new(BTreeMap::new()) };
}

/// Seconds from one time to a later one.
fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

/// Whether nodes of the pool are known to register.
fn is_healthy(view: &ClusterView, pool: &str) -> bool {
    let pool = view.nodepools.get(&ObjectKey::cluster(pool));
    pool.is_some_and(|it| {
        spokeshave_model::conditions::is_true(
            &it.status.conditions,
            NodePool::NODE_REGISTRATION_HEALTHY,
        )
    })
}

/// Remembers which of the pods have a place now, since when, and forgets those that have none any more.
pub(crate) fn note(
    view: &ClusterView,
    solution: &Solution,
    pending: &[Arc<Pod>],
    cx: &Invocation<'_>,
) {
    let pool_of = |node: &str, claim: &str| {
        let of_claim = view.claims.get(&ObjectKey::cluster(claim)).and_then(|it| it.nodepool());
        let node = view.nodes.get(&ObjectKey::cluster(node));
        of_claim.or_else(|| node.and_then(|it| it.metadata.label(labels::NODEPOOL)))
    };
    let existing = solution.existing.iter().map(|it| (pool_of(&it.node, &it.claim), &it.pods));
    let new = solution.new_claims.iter().map(|it| (Some(it.nodepool.name()), &it.pods));
    let mut healthy: BTreeMap<ObjectKey, bool> = BTreeMap::new();
    for (pool, pods) in existing.chain(new) {
        let is_healthy = pool.is_some_and(|it| is_healthy(view, it));
        healthy.extend(pods.iter().map(|it| (it.key(), is_healthy)));
    }
    WAITS.with_borrow_mut(|waits| {
        for pod in pending {
            let key = pod.key();
            let Some(is_healthy) = healthy.get(&key) else {
                waits.remove(&key);
                continue;
            };
            let known = waits.remove(&key).filter(|it| it.uid == pod.metadata.uid);
            let since = known.and_then(|it| it.healthy_since).unwrap_or(cx.now);
            let healthy_since = is_healthy.then_some(since);
            waits.insert(key, Wait { uid: pod.metadata.uid.clone(), healthy_since });
        }
    });
}

/// Since when the pod has had a place of a pool whose nodes register.
fn planned_at(pod: &Pod) -> Option<Timestamp> {
    WAITS.with_borrow(|waits| {
        waits.get(&pod.key()).filter(|it| it.uid == pod.metadata.uid)?.healthy_since
    })
}

/// Seconds from the first plan of the pod to `at`.
pub(crate) fn since_planned(pod: &Pod, at: Timestamp) -> Option<f64> {
    planned_at(pod).map(|since| seconds(since, at))
}

/// Forgets pods that are gone or ready.
pub(crate) fn forget_started(view: &ClusterView) {
    WAITS.with_borrow_mut(|waits| {
        waits.retain(|key, wait| {
            view.pod(key).is_some_and(|pod| pod.metadata.uid == wait.uid && !is(pod, "Ready"))
        });
    });
}

fn is(pod: &Pod, condition: &str) -> bool {
    pod.condition(condition).is_some_and(|it| it.status == "True")
}

/// Gauges of every single pod, where they are asked for.
///
/// DIFFERENCE: told when something is planned; Karpenter tells them every 30 s.
pub(crate) fn gauges(view: &ClusterView, cx: &Invocation<'_>) {
    if !cx.settings.object_gauges {
        return;
    }
    let managed: BTreeSet<&str> =
        view.claims.values().map(|it| it.status.node_name.as_str()).collect();
    let bound = view.nodes.values().flat_map(|node| {
        let pods = view.pods_on(node.name()).into_iter().flat_map(|it| it.pods.values());
        pods.map(move |it| (it, Some(&**node)))
    });
    for (pod, node) in bound.chain(view.unbound.values().map(|it| (it, None))) {
        let managed = node.is_some_and(|it| managed.contains(it.name()));
        of_pod(pod, node, managed, cx);
    }
}

fn of_pod(pod: &Pod, node: Option<&Node>, managed: bool, cx: &Invocation<'_>) {
    let word = |it: bool| if it { "true" } else { "false" };
    let label = |key| node.and_then(|it| it.metadata.label(key)).unwrap_or_default();
    let of = [("name", pod.name()), ("namespace", pod.metadata.namespace.as_str())];
    let owner = pod.metadata.owner_references.first().map_or_else(String::new, |it| {
        let (kind, namespace) = (it.kind.to_lowercase(), &pod.metadata.namespace);
        format!("/apis/{}/namespaces/{namespace}/{kind}s/{}", it.api_version, it.name)
    });
    let state = [
        of[0],
        of[1],
        ("owner", owner.as_str()),
        ("node", pod.spec.node_name.as_str()),
        ("scheduled", word(is(pod, "PodScheduled"))),
        ("nodepool", label(labels::NODEPOOL)),
        ("zone", label(labels::ZONE)),
        ("arch", label(labels::ARCH)),
        ("capacity_type", label(labels::CAPACITY_TYPE)),
        ("instance_type", label(labels::INSTANCE_TYPE)),
        ("phase", pod.status.phase.as_str()),
        ("ready", word(is(pod, "Ready"))),
        ("managed", word(managed)),
    ];
    cx.sample("karpenter_pods_state", 1.0, "Count", &state);
    if pod.is_terminal() || is(pod, "Ready") {
        return;
    }
    let waits: [(&'static str, &'static str, Option<Timestamp>); 2] = [
        (
            "karpenter_pods_unbound_time_seconds",
            "karpenter_pods_unstarted_time_seconds",
            pod.metadata.creation_timestamp,
        ),
        (
            "karpenter_pods_provisioning_unbound_time_seconds",
            "karpenter_pods_provisioning_unstarted_time_seconds",
            planned_at(pod),
        ),
    ];
    for (unbound, unstarted, since) in waits {
        let Some(since) = since else { continue };
        let waited = seconds(since, cx.now);
        if !pod.is_bound() {
            cx.sample(unbound, waited, "Seconds", &of);
        }
        cx.sample(unstarted, waited, "Seconds", &of);
    }
}

/// How long the pods that a plan did not come to have waited for one, where gauges of single pods are asked for.
pub(crate) fn undecided(view: &ClusterView, solution: &Solution, cx: &Invocation<'_>) {
    if !cx.settings.object_gauges {
        return;
    }
    for pod in solution.unreached.iter().filter_map(|it| view.pod(it)) {
        let seen = pod.condition("PodScheduled").and_then(|it| it.last_transition_time);
        let Some(seen) = seen else { continue };
        cx.sample(
            "karpenter_pods_provisioning_scheduling_undecided_time_seconds",
            seconds(seen, cx.now),
            "Seconds",
            &[("name", pod.name()), ("namespace", &pod.metadata.namespace)],
        );
    }
}
