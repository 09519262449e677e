//! Manifests are written back as they were read: those of the worked set, and what users write that we do not read.

use serde_json::{Value, json};
use spokeshave_model::{
    CapacityBuffer, EC2NodeClass, Kind, NodeClaim, NodeOverlay, NodePool, hash,
    meta::{apply_merge_patch, from_value, merge_patch, to_value},
};

/// The worked set of `spec` api 20.1 and 20.3.
fn worked_set() -> Vec<Value> {
    serde_json::from_str(include_str!("manifests/worked-set.json")).expect("JSON")
}

fn worked(kind: &str, name: &str) -> Value {
    let is_it = |it: &Value| it["kind"] == kind && it["metadata"]["name"] == name;
    worked_set().into_iter().find(is_it).expect("in the set")
}

fn rewritten<K: Kind>(manifest: &Value) -> Value {
    let read: K = from_value(manifest.clone()).expect("reads");
    let written = to_value(&read);
    let again: K = from_value(written.clone()).expect("reads again");
    assert_eq!(again, read, "{written}");
    written
}

/// Reads and writes the manifest twice, and compares it as a tree.
fn keeps(manifest: &Value) {
    let written = match manifest["kind"].as_str() {
        Some("NodePool") => rewritten::<NodePool>(manifest),
        Some("NodeClaim") => rewritten::<NodeClaim>(manifest),
        Some("EC2NodeClass") => rewritten::<EC2NodeClass>(manifest),
        Some("NodeOverlay") => rewritten::<NodeOverlay>(manifest),
        Some("CapacityBuffer") => rewritten::<CapacityBuffer>(manifest),
        kind => panic!("no kind of ours: {kind:?}"),
    };
    assert_eq!(&written, manifest);
}

#[test] // api 20.1 and 20.3
fn the_worked_set_is_kept() {
    let set = worked_set();
    let mut kinds: Vec<&str> = set.iter().filter_map(|it| it["kind"].as_str()).collect();
    kinds.dedup();
    assert_eq!(kinds, ["EC2NodeClass", "NodePool", "NodeOverlay", "CapacityBuffer", "NodeClaim"]);
    set.iter().for_each(keeps);
}

#[test] // api 12: the kubelet's map is open; api 2: texts stay as users wrote them; api 17.2: empty is not absent
fn what_is_not_read_is_kept_too() {
    for (kind, name, change) in [
        (
            "EC2NodeClass",
            "general",
            json!({"spec": {"kubelet": {"maxPods": "vcpus * 8", "registryPullQPS": 10, "x": {"y": [1.5, true, {"z": "w"}]},
                "evictionSoftGracePeriod": {"memory.available": "1m30s"}, "clusterDNS": []}}}),
        ),
        (
            "EC2NodeClass",
            "general",
            json!({"spec": {"kubelet": {"maxPods": null, "systemReserved": null}}}),
        ),
        (
            "EC2NodeClass",
            "general",
            json!({"spec": {"tags": {"team": null}, "blockDeviceMappings": [], "networkInterfaces": []}}),
        ),
        (
            "EC2NodeClass",
            "general",
            json!({"metadata": {"selfLink": "/apis/x", "unknown": [{"deep": {"f:spec": {}}}]}}),
        ),
        (
            "NodePool",
            "general",
            json!({"spec": {"limits": {"example.com/slice": "1e3"}, "template": {
                "metadata": {"labels": {"team": null}},
                "spec": {"expireAfter": "20160m", "terminationGracePeriod": "90m", "taints": []}}}}),
        ),
        ("NodePool", "general", json!({"spec": {"disruption": {"budgets": []}}})),
        ("NodePool", "baseline", json!({"spec": {"replicas": 0, "limits": {"nodes": null}}})),
        (
            "NodeOverlay",
            "savings-plan",
            json!({"spec": {"priceAdjustment": null, "price": "0.0", "capacity": {"smarter-devices/fuse": "1"}}}),
        ),
        ("CapacityBuffer", "warm", json!({"spec": {"replicas": 0, "percentage": 0}})),
        (
            "NodeClaim",
            "",
            json!({"status": {"providerID": "aws:///us-west-2a/i-0123456789abcdef0", "nodeName": "n",
                "capacity": {"cpu": "2", "memory": "7710Mi"}, "lastPodEventTime": "2026-01-01T00:00:00Z"}}),
        ),
    ] {
        let mut manifest = worked(kind, name);
        apply_merge_patch(&mut manifest, &change);
        keeps(&manifest);
    }
}

#[test] // api 20, cases 1 and 2
fn edits_that_do_not_drift() {
    for change in [
        json!({}),
        json!({"spec": {"weight": 20}}),
        json!({"spec": {"template": {"spec": {"expireAfter": "20160m"}}}}),
    ] {
        let mut manifest = worked("NodePool", "general");
        apply_merge_patch(&mut manifest, &change);
        let pool: NodePool = from_value(manifest).expect("reads");
        assert_eq!(hash::node_pool(&pool), "12962735048330029724", "{change}");
    }
}

#[test] // api 2, case 9
fn how_claims_carry_a_pools_durations() {
    let mut manifest = worked("NodePool", "general");
    let spec = json!({"expireAfter": "336h", "terminationGracePeriod": "1h"});
    apply_merge_patch(&mut manifest, &json!({"spec": {"template": {"spec": spec}}}));
    let pool: NodePool = from_value(manifest).expect("reads");
    let template = &pool.spec.template.spec;
    assert_eq!(template.expire_after.as_ref().map(|it| it.0.as_str()), Some("336h"));
    let grace = template.termination_grace_period.as_ref().map(|it| it.normalized().0);
    assert_eq!(grace.as_deref(), Some("1h0m0s"));
}

#[test] // api 2: amounts that are equal are equal, however they are written
fn equal_amounts_are_one_amount() {
    let limits = |limits: Value| {
        let mut manifest = worked("NodePool", "general");
        apply_merge_patch(&mut manifest, &json!({"spec": {"limits": limits}}));
        from_value::<NodePool>(manifest).expect("reads")
    };
    let texts = limits(json!({"cpu": "200", "memory": "800Gi"}));
    for other in [
        json!({"cpu": 200, "memory": "800Gi"}),
        json!({"cpu": "200000m", "memory": "819200Mi"}),
        json!({"cpu": "2e2", "memory": 858_993_459_200_u64}),
    ] {
        assert_eq!(limits(other.clone()).spec, texts.spec, "{other}");
        // An edit elsewhere does not write the limits.
        let mut heavier = limits(other.clone());
        heavier.spec.weight = Some(20);
        let patch = merge_patch(&to_value(&limits(other)), &to_value(&heavier));
        assert_eq!(patch, Some(json!({"spec": {"weight": 20}})));
    }
}
