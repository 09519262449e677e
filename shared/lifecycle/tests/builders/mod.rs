//! Objects for the tests of this crate.
#![allow(dead_code)] // Every test file uses its own part.

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_lifecycle::{
    Action,
    claim::{Decision, View, decide},
};
use spokeshave_model::{
    Condition, ConditionStatus, Kind, NodeClaim, NodePool,
    core::{Node, Pod},
    meta::{apply_merge_patch, from_value},
};

pub const ID: &str = "aws:///us-west-2a/i-0123456789abcdef0";

/// A time of the day of the tests.
pub fn at(clock: &str) -> Timestamp {
    format!("2024-03-01T{clock}Z").parse().expect("a time")
}

pub fn of<K: Kind>(base: Value, changes: &Value) -> K {
    let mut value = base;
    apply_merge_patch(&mut value, changes);
    from_value(value).expect("an object")
}

/// A claim created at 10:00:00 and launched.
pub fn claim(changes: Value) -> NodeClaim {
    let base = json!({
        "metadata": {"name": "c", "uid": "claim-uid", "generation": 1, "resourceVersion": "7",
            "creationTimestamp": "2024-03-01T10:00:00Z",
            "finalizers": ["karpenter.sh/termination"],
            "labels": {"karpenter.k8s.aws/ec2nodeclass": "default", "karpenter.sh/nodepool": "np"}},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [], "expireAfter": "Never"},
        "status": {"providerID": ID}});
    let mut claim: NodeClaim = of(base, &changes);
    if claim.status.conditions.is_empty() {
        claim.conditions_mut().initialize();
        claim.conditions_mut().set_true(NodeClaim::LAUNCHED, at("10:00:05"));
    }
    claim
}

/// The same, registered at 10:01:00.
pub fn registered(changes: Value) -> NodeClaim {
    let mut claim = claim(changes);
    claim.status.node_name = "n".into();
    claim.conditions_mut().set_true(NodeClaim::REGISTERED, at("10:01:00"));
    claim
}

/// The same, initialized at 10:02:00.
pub fn initialized(changes: Value) -> NodeClaim {
    let mut claim = registered(changes);
    claim.conditions_mut().set_true(NodeClaim::INITIALIZED, at("10:02:00"));
    claim.conditions_mut().set_true(NodeClaim::CONSISTENT_STATE_FOUND, at("10:02:00"));
    claim
}

/// A node that has just joined: Ready, with the unregistered taint.
pub fn node(changes: Value) -> Node {
    let base = json!({
        "metadata": {"name": "n", "uid": "node-uid", "resourceVersion": "3",
            "creationTimestamp": "2024-03-01T10:00:40Z"},
        "spec": {"providerID": ID,
            "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    of(base, &changes)
}

/// The node of a claim that was registered and initialized.
pub fn joined(changes: Value) -> Node {
    let mut base = json!({
        "metadata": {"finalizers": ["karpenter.sh/termination"],
            "labels": {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
                "karpenter.sh/nodepool": "np", "karpenter.k8s.aws/ec2nodeclass": "default"},
            "ownerReferences": [{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "c",
                "uid": "claim-uid", "blockOwnerDeletion": true}]},
        "spec": {"taints": null}});
    apply_merge_patch(&mut base, &changes);
    node(base)
}

pub fn pool(changes: Value) -> NodePool {
    let base = json!({
        "metadata": {"name": "np", "uid": "pool-uid"},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": []}}}});
    of(base, &changes)
}

pub fn pod(name: &str, changes: Value) -> Pod {
    let base = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30},
        "status": {"phase": "Running"}});
    of(base, &changes)
}

/// Decides about a claim and its nodes.
pub fn look(claim: &NodeClaim, nodes: &[&Node], now: &str) -> Decision {
    let view = View { claim: Some(claim), nodes: nodes.to_vec(), ..View::default() };
    decide(&view, at(now))
}

pub fn written_node(decision: &Decision) -> Option<&Node> {
    decision.actions.iter().find_map(|it| match it {
        Action::WriteNode { node, .. } => Some(&**node),
        _ => None,
    })
}

pub fn written_claim(decision: &Decision) -> Option<&NodeClaim> {
    decision.actions.iter().find_map(|it| match it {
        Action::WriteClaim { claim, .. } => Some(&**claim),
        _ => None,
    })
}

pub fn written_status(decision: &Decision) -> Option<&NodeClaim> {
    decision.actions.iter().find_map(|it| match it {
        Action::WriteStatus { claim } => Some(&**claim),
        _ => None,
    })
}

/// The reason under which a claim is deleted.
pub fn deleted(decision: &Decision) -> Option<&'static str> {
    decision.actions.iter().find_map(|it| match it {
        Action::DeleteClaim { reason, .. } => Some(*reason),
        _ => None,
    })
}

/// Reasons and texts of warnings and other events, transitions left out.
pub fn events(actions: &[Action]) -> Vec<(String, String)> {
    actions
        .iter()
        .filter_map(|it| match it {
            Action::Publish { event, .. } if !event.message.starts_with("Status condition") => {
                Some((event.reason.clone(), event.message.clone()))
            }
            _ => None,
        })
        .collect()
}

pub fn counts(actions: &[Action]) -> Vec<String> {
    actions
        .iter()
        .filter_map(|it| match it {
            Action::Count { name, labels } | Action::Observe { name, labels, .. }
                if name.starts_with("karpenter_") =>
            {
                let labels: Vec<String> =
                    labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                Some(format!("{name}{{{}}}", labels.join(",")))
            }
            _ => None,
        })
        .collect()
}

/// Status, reason and message of a condition.
pub fn condition<'a>(claim: &'a NodeClaim, type_: &str) -> (ConditionStatus, &'a str, &'a str) {
    let it: &Condition = claim.condition(type_).expect("present");
    (it.status, &it.reason, &it.message)
}

pub fn taints(node: &Node) -> Vec<String> {
    node.spec.taints.iter().map(ToString::to_string).collect()
}
