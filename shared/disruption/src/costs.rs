//! What moving a pod costs, what a node costs, and what is worth moving first (lifecycle 16).

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{CapacityType, InstanceType, core::Pod, pod_classes::is_reschedulable};

/// Annotation by which a pod says how much its deletion costs. Source: Kubernetes.
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Touching a node costs this much, whatever is on it. Source: Karpenter 1.x.
pub const NODE_BASE_COST: f64 = 1.0;

/// What evicting the pod costs: 1 for a plain one, between -10 and 10.
pub fn eviction_cost(pod: &Pod) -> f64 {
    let mut cost = 1.0;
    let deletion_cost = pod
        .metadata
        .annotation(POD_DELETION_COST)
        .and_then(|text| text.parse::<f64>().ok())
        .filter(|it| !it.is_nan());
    if let Some(it) = deletion_cost {
        cost += it / f64::from(1 << 27);
    }
    if let Some(priority) = pod.spec.priority {
        cost += f64::from(priority) / f64::from(1 << 25);
    }
    cost.clamp(-10.0, 10.0)
}

/// What taking a node with these pods away costs. Pods that cost less than nothing do not make up for others.
pub fn reschedule_cost<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> f64 {
    pods.into_iter()
        .filter(|pod| is_reschedulable(pod))
        .fold(NODE_BASE_COST, |sum, pod| sum + eviction_cost(pod).max(0.0))
}

/// The same for a node that is no candidate, as the Balanced policy counts it: static and terminating pods included.
pub fn bystander_cost<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> f64 {
    pods.into_iter()
        .filter(|pod| !pod.is_daemon() && !pod.is_terminal())
        .fold(NODE_BASE_COST, |sum, pod| sum + eviction_cost(pod).max(0.0))
}

/// Dollars per hour of a node: its type's offering of that zone and capacity type, available or not. 0 when unknown.
pub fn node_price(
    instance_type: Option<&InstanceType>,
    zone: Option<&str>,
    capacity_type: Option<CapacityType>,
) -> f64 {
    let (Some(it), Some(zone), Some(capacity_type)) = (instance_type, zone, capacity_type) else {
        return 0.0;
    };
    it.offerings
        .iter()
        .find(|it| it.zone == zone && it.capacity_type == capacity_type)
        .and_then(|it| it.price)
        .filter(|it| !it.is_nan())
        .unwrap_or(0.0)
}

/// The share of a node's life that is left, from 1 (new, or it never expires) to 0.
pub fn lifetime_remaining(
    expire_after: Option<SignedDuration>,
    created: Option<Timestamp>,
    now: Timestamp,
) -> f64 {
    let (Some(life), Some(created)) = (expire_after, created) else { return 1.0 };
    if life.is_zero() {
        return 0.0;
    }
    let age = now.duration_since(created);
    ((life - age).as_secs_f64() / life.as_secs_f64()).clamp(0.0, 1.0)
}

/// The cost by which static pools choose what to give up: negative pods count, and old nodes are cheap.
pub fn legacy_cost<'a>(pods: impl IntoIterator<Item = &'a Pod>, lifetime_remaining: f64) -> f64 {
    pods.into_iter().map(eviction_cost).sum::<f64>() * lifetime_remaining
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use spokeshave_model::{Offering, meta::from_value};

    use super::*;

    fn pod(deletion_cost: Option<&str>, priority: Option<i32>, owner: &str, extra: &Value) -> Pod {
        let mut value = json!({"metadata": {"name": "p", "namespace": "a", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u"}]}, "spec": {}});
        if let Some(it) = deletion_cost {
            value["metadata"]["annotations"] = json!({POD_DELETION_COST: it});
        }
        if let Some(it) = priority {
            value["spec"]["priority"] = json!(it);
        }
        spokeshave_model::meta::apply_merge_patch(&mut value, extra);
        from_value(value).expect("a pod")
    }

    fn plain(n: usize) -> Vec<Pod> {
        (0..n).map(|_| pod(None, None, "ReplicaSet", &json!({}))).collect()
    }

    #[test] // lifecycle 16.1; scheduling 22, case 5
    fn eviction_costs() {
        for (deletion_cost, priority, expected) in [
            (None, None, 1.0),
            (Some("100"), None, 1.0000007450580597),
            (Some("134217728"), None, 2.0),
            (Some("-134217728"), None, 0.0),
            (Some("2147483647"), None, 10.0),
            (Some("-2147483647"), None, -10.0),
            (None, Some(1_000_000), 1.0298023223876953),
            (None, Some(-1000), 0.9999701976776123),
            (None, Some(2_000_000_000), 10.0),
            (Some("67108864"), Some(16_777_216), 2.0),
            (None, Some(33_554_432), 2.0),
            (Some("134217728"), Some(33_554_432), 3.0),
            (Some("abc"), None, 1.0),
        ] {
            let cost = eviction_cost(&pod(deletion_cost, priority, "ReplicaSet", &json!({})));
            assert_eq!(cost, expected, "{deletion_cost:?} {priority:?}");
        }
    }

    #[test] // lifecycle 16.2, cases 1-4
    fn nodes_cost_what_their_pods_cost() {
        for (price, n_pods, cost, ratio) in [
            (0.096, 3, 4.0, 0.024),
            (0.192, 10, 11.0, 0.01745),
            (0.035, 1, 2.0, 0.0175),
            (0.68, 20, 21.0, 0.03238),
        ] {
            let pods = plain(n_pods);
            assert_eq!(reschedule_cost(&pods), cost);
            assert!((price / reschedule_cost(&pods) - ratio).abs() < 1e-5_f64, "{price}");
        }
        assert_eq!(
            reschedule_cost(&[pod(Some("-134217728"), None, "ReplicaSet", &json!({}))]),
            1.0
        );
        let mut two = plain(1);
        two.push(pod(Some("-200000000"), None, "ReplicaSet", &json!({})));
        assert_eq!(reschedule_cost(&two), 2.0);
        assert_eq!(reschedule_cost(&[pod(None, None, "DaemonSet", &json!({}))]), 1.0);
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-03-01T10:00:00Z"}});
        assert_eq!(reschedule_cost(&[pod(None, None, "StatefulSet", &deleted)]), 2.0);
        assert_eq!(reschedule_cost(&[pod(None, None, "ReplicaSet", &deleted)]), 1.0);
    }

    #[test] // lifecycle 16.2, case 5
    fn an_unknown_price_is_zero() {
        let it = InstanceType {
            offerings: vec![Offering {
                capacity_type: CapacityType::Spot,
                zone: "a".into(),
                price: Some(0.1),
                available: false,
                ..Offering::default()
            }],
            ..InstanceType::default()
        };
        let spot = Some(CapacityType::Spot);
        assert_eq!(node_price(Some(&it), Some("a"), spot), 0.1);
        assert_eq!(node_price(Some(&it), Some("b"), spot), 0.0);
        assert_eq!(node_price(Some(&it), Some("a"), Some(CapacityType::OnDemand)), 0.0);
        assert_eq!(node_price(None, Some("a"), spot), 0.0);
    }

    #[test] // lifecycle 16.2, case 6; scheduling 22, case 7
    fn the_legacy_cost_shrinks_with_age() {
        let now: Timestamp = "2026-03-31T00:00:00Z".parse().expect("a time");
        let hours = SignedDuration::from_hours;
        let left = |age: i64| lifetime_remaining(Some(hours(720)), Some(now - hours(age)), now);
        assert_eq!(left(540), 0.25);
        assert_eq!(legacy_cost(&plain(4), left(540)), 1.0);
        assert_eq!(legacy_cost(&plain(2), left(360)), legacy_cost(&plain(1), left(0)));
        assert_eq!(legacy_cost(&plain(1), left(72)), 0.9);
        assert_eq!(left(800), 0.0);
        assert_eq!(lifetime_remaining(None, Some(now - hours(800)), now), 1.0);
    }
}
