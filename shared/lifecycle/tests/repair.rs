//! Node repair, case by case; and DRA drivers.
#![allow(clippy::needless_pass_by_value)] // Builders take literals.

mod builders;

use builders::*;
use serde_json::{Value, json};
use spokeshave_lifecycle::{
    repair::{allows, blocked_message, fault, labels_of, without_grace},
    resource_slices::{first_incomplete, requested_drivers},
};
use spokeshave_model::{
    Kind,
    core::{Node, ResourceSlice},
    labels,
};

fn with(conditions: Value) -> Node {
    node(json!({"status": {"conditions": conditions}}))
}

#[test] // lifecycle 30.1, case 1
fn a_fifth_may_be_unhealthy() {
    let broken = with(json!([{"type": "Ready", "status": "False"}]));
    let fine = node(json!({}));
    for (nodes, unhealthy, expected) in [
        (10, 2, true),
        (10, 3, false),
        (3, 1, true),
        (3, 2, false),
        (1, 1, true),
        (11, 3, true),
        (11, 4, false),
    ] {
        let list: Vec<&Node> =
            (0..nodes).map(|at| if at < unhealthy { &broken } else { &fine }).collect();
        assert_eq!(allows(&list), expected, "{unhealthy} of {nodes}");
    }
    assert_eq!(
        blocked_message(Some(&pool(json!({})))),
        "more than 20% nodes are unhealthy in the nodepool"
    );
    assert_eq!(blocked_message(None), "more then 20% nodes are unhealthy in the cluster");
}

#[test] // lifecycle 30.1, cases 2, 3, 6; 37.1, case 5
fn the_fault_that_is_due_first_counts() {
    let since = |clock: &str| format!("2024-03-01T{clock}Z");
    for (what, conditions, expected) in [
        (
            "case 2",
            json!([{"type": "Ready", "status": "False", "lastTransitionTime": since("10:00:00")},
                {"type": "AcceleratedHardwareReady", "status": "False", "lastTransitionTime": since("10:15:00")}]),
            Some(("AcceleratedHardwareReady", "10:25:00")),
        ),
        (
            "case 3",
            json!([{"type": "Ready", "status": "False", "lastTransitionTime": since("10:20:00")}]),
            Some(("Ready", "10:50:00")),
        ),
        (
            "unknown counts for Ready",
            json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": since("10:00:00")}]),
            Some(("Ready", "10:30:00")),
        ),
        (
            "and for nothing else",
            json!([{"type": "StorageReady", "status": "Unknown", "lastTransitionTime": since("10:00:00")}]),
            None,
        ),
        (
            "case 6",
            json!([{"type": "DiskPressure", "status": "True", "lastTransitionTime": since("10:00:00")}]),
            None,
        ),
        (
            "healthy",
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": since("10:00:00")}]),
            None,
        ),
    ] {
        let found = fault(&with(conditions)).map(|it| (it.policy.condition, it.due));
        assert_eq!(found, expected.map(|(condition, due)| (condition, at(due))), "{what}");
    }
}

#[test] // lifecycle 30.1, case 5
fn repair_takes_the_grace_away() {
    let deadline = |text: &str| {
        claim(
            json!({"metadata": {"annotations": {"karpenter.sh/nodeclaim-termination-timestamp": text}}}),
        )
    };
    let now = at("10:30:00");
    let annotation = |claim: &spokeshave_model::NodeClaim| {
        without_grace(claim, now).map(|it| {
            it.metadata.annotation(labels::TERMINATION_TIMESTAMP).unwrap_or_default().to_owned()
        })
    };
    let forced = Some("2024-03-01T10:30:00Z".to_owned());
    assert_eq!(annotation(&deadline("2024-03-01T12:00:00Z")), forced);
    assert_eq!(annotation(&deadline("not-a-time")), forced);
    assert_eq!(annotation(&claim(json!({}))), forced);
    assert_eq!(annotation(&deadline("2024-03-01T10:29:59Z")), None, "an earlier one stays");
    assert_eq!(annotation(&deadline("2024-03-01T10:30:00Z")), None, "a repeat writes nothing");
}

#[test]
fn the_condition_is_counted_in_snake_case() {
    let since = "2024-03-01T10:00:00Z";
    let node = with(
        json!([{"type": "AcceleratedHardwareReady", "status": "False", "lastTransitionTime": since}]),
    );
    let claim = claim(json!({"status": {"imageID": "ami-1"}}));
    let labels = labels_of(&claim, &fault(&node).expect("due"));
    assert_eq!(labels[0], ("condition", "accelerated_hardware_ready".to_owned()));
    assert_eq!(labels[3], ("image_id", "ami-1".to_owned()));
}

fn slice(driver: &str, generation: i64, count: i64, owner: Value) -> ResourceSlice {
    let base = json!({"metadata": {"name": "s"}, "spec": {"driver": driver,
        "pool": {"name": "p", "generation": generation, "resourceSliceCount": count}}});
    of(base, &owner)
}

#[test] // lifecycle 5.1, cases 7 and 9
fn drivers_publish_complete_pools() {
    let wants = |text: &str| {
        claim(json!({"metadata": {"annotations": {"karpenter.sh/requested-dra-drivers": text}}}))
    };
    let both = wants(" gpu.x, ,net.y,");
    assert_eq!(requested_drivers(&both), ["gpu.x", "net.y"]);
    assert_eq!(requested_drivers(&claim(json!({}))), [] as [&str; 0]);

    let here = json!({"spec": {"nodeName": "n"}});
    let owned = json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "node-uid"}]}});
    let node = node(json!({}));
    let missing = |slices: &[ResourceSlice]| {
        let slices: Vec<_> = slices.iter().collect();
        first_incomplete(&["gpu.x", "net.y"], &node, &slices)
    };
    let gpu = [slice("gpu.x", 3, 2, here.clone()), slice("gpu.x", 3, 2, owned.clone())];
    let net = slice("net.y", 1, 2, here.clone());
    let [a, b] = gpu.clone();
    assert_eq!(missing(&[a, b, net.clone()]), Some("net.y"));
    let [a, b] = gpu;
    assert_eq!(missing(&[a, b, net.clone(), net.clone()]), None);
    let old = slice("gpu.x", 1, 2, here.clone());
    let newer = slice("gpu.x", 2, 2, here);
    let superseded = [old.clone(), old, newer, net.clone(), net];
    assert_eq!(missing(&superseded), Some("gpu.x"));
    assert_eq!(ResourceSlice::KIND, "ResourceSlice");
}
