//! `spokeshave local`: what people and kubelets say of nodes that run.
#![allow(clippy::needless_pass_by_value)] // Builders take literals.

mod common;

use std::path::PathBuf;

use serde_json::{Value, json};
use spokeshave::{ExitStatus, Format};

use crate::common::{file, run};

/// Runs with JSON output on the small catalog, which has to settle.
fn answer(args: &[&str]) -> Value {
    let catalog = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/local/catalog.json");
    let catalog = catalog.display().to_string();
    let mut all = vec!["local", "--catalog", &catalog];
    all.extend(args);
    let ran = run(Format::Json, &all);
    assert_eq!(ran.status, Ok(ExitStatus::Answered), "{}{}", ran.output, ran.notes);
    serde_json::from_str(&ran.output).expect("JSON")
}

/// A class, a pool of this disruption and template, and so many pods, each on a node of its own.
#[allow(clippy::needless_pass_by_value, reason = "values are written in place")]
fn manifests(name: &str, pool: Value, disruption: Value, template: Value, pods: usize) -> String {
    let tags = json!([{"tags": {"karpenter.sh/discovery": "spokeshave"}}]);
    let mut template = template;
    template["nodeClassRef"] =
        json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    template["requirements"] = json!([]);
    let objects = json!([
        {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
            "spec": {"role": "R", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                "subnetSelectorTerms": tags, "securityGroupSelectorTerms": tags}},
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": pool,
            "spec": {"disruption": disruption, "template": {"spec": template}}},
        deployment(pods),
    ]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    file("local-nodes", &format!("{name}.json"), list.to_string())
}

fn deployment(pods: usize) -> Value {
    let labels = json!({"app": "web"});
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": pods, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"affinity": apart, "containers": [
                {"name": "c", "image": "x", "resources": {"requests": {"cpu": "500m"}}}]}}}})
}

fn pool() -> Value {
    json!({"name": "default"})
}

/// Lines of the timeline: when, and what it is about.
fn lines<'a>(answer: &'a Value, concern: &str, action: &str) -> Vec<(f64, &'a str, &'a str)> {
    let timeline = answer["timeline"].as_array().expect("a list").iter();
    timeline
        .filter(|it| it["concern"] == concern && it["action"] == action)
        .map(|it| {
            let text = |key: &str| it[key].as_str().expect("text");
            (it["t"].as_f64().expect("a time"), text("object"), text("reason"))
        })
        .collect()
}

/// Names of the nodes that a run registers, in their order.
fn nodes(manifests: &str) -> Vec<String> {
    let answer = answer(&["--manifests", manifests]);
    let registered = lines(&answer, "lifecycle", "register");
    registered.iter().map(|it| it.1.trim_start_matches("Node/").to_owned()).collect()
}

#[test] // lifecycle 14, rule 7: what is applied to a Node that is there is merged into it
fn an_annotated_node_stays() {
    let open = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]});
    let manifests = manifests("annotated", pool(), open, json!({}), 3);
    let names = nodes(&manifests);
    assert_eq!(names.len(), 3);
    let annotated = |value: Value| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": names[0],
            "annotations": {"karpenter.sh/do-not-disrupt": value}, "labels": {"seen": "yes"}}})
    };
    let apply = |when: &str, name: &str, object: Value| {
        format!("{when}={}", file("local-nodes", name, object.to_string()))
    };
    let held = apply("5m", "held.json", annotated(json!("true")));
    let fewer = apply("6m", "fewer.json", deployment(0));
    let freed = apply("20m", "freed.json", annotated(json!("false")));
    let left = answer(&["--manifests", &manifests, "--at", &held, "--at", &fewer]);
    assert_eq!(left["nodeClaims"].as_array().map(Vec::len), Some(1), "the one that is held");
    let all = ["--manifests", &manifests, "--at", &held, "--at", &fewer, "--at", &freed];
    let gone = answer(&all);
    assert_eq!(gone["nodeClaims"], json!([]));
    let last = lines(&gone, "disruption", "disrupt").pop().expect("disrupted");
    assert!(last.0 > 1200.0 && last.1 == format!("Node/{}", names[0]), "{last:?}");
}

#[test] // lifecycle 17.1: a node keeps its labels, and with them its place in its pool's budget, whatever is applied to it
fn a_node_that_is_not_ready_takes_up_the_budget_after_labels_were_applied() {
    let one = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]});
    let manifests = manifests("unready", pool(), one, json!({}), 3);
    let name = nodes(&manifests).swap_remove(0);
    let apply = |when: &str, file_name: &str, object: Value| {
        format!("{when}={}", file("local-nodes", file_name, object.to_string()))
    };
    let node = |metadata: Value, ready: &str| {
        let mut object = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata,
            "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "Said"}]}});
        object["metadata"]["name"] = json!(name);
        object
    };
    let labelled =
        json!({"labels": {"seen": "yes"}, "annotations": {"karpenter.sh/do-not-disrupt": "true"}});
    let marked = apply("5m", "unready-marked.json", node(labelled, "True"));
    let silent = apply("330s", "unready-silent.json", node(json!({}), "False"));
    let fewer = apply("6m", "unready-fewer.json", deployment(0));
    let let_go = json!({"annotations": {"karpenter.sh/do-not-disrupt": "false"}});
    let ready = apply("20m", "unready-ready.json", node(let_go, "True"));
    let steps = ["--manifests", &manifests, "--at", &marked, "--at", &silent, "--at", &fewer];
    let held = answer(&steps);
    assert_eq!(held["nodeClaims"].as_array().map(Vec::len), Some(3), "the budget is taken up");
    let gone = answer(&[&steps[..], &["--at", &ready]].concat());
    assert_eq!(gone["nodeClaims"], json!([]), "its labels are those of a node of the pool");
}

#[test] // lifecycle 36: expiry within budgets, where the pool asks for it
fn expired_nodes_are_replaced_one_by_one_on_request() {
    let asks = json!({"name": "default", "annotations": {"spokeshave.dev/expiration": "replace"}});
    let one = json!({"budgets": [{"nodes": "1"}]});
    let manifests = manifests("expiring", asks, one, json!({"expireAfter": "1h"}), 3);
    let it = answer(&["--manifests", &manifests, "--until", "80m"]);
    assert_eq!(it["pods"], json!({"running": 3, "pending": 0}));
    assert_eq!(lines(&it, "lifecycle", "delete"), [], "nothing is deleted at once");
    let drifted = lines(&it, "lifecycle", "drifted");
    assert_eq!(drifted.iter().map(|it| it.2).collect::<Vec<_>>(), ["Expired"; 3]);
    let deleted = lines(&it, "disruption", "delete");
    assert_eq!(deleted.len(), 3);
    // Each goes only when the one before is gone, and its replacement is there.
    let released = lines(&it, "termination", "terminate");
    for (next, gone) in deleted.iter().skip(1).zip(&released) {
        assert!(next.0 > gone.0, "{deleted:?} {released:?}");
    }
    let made = lines(&it, "disruption", "create");
    assert!(made.iter().zip(&deleted).all(|(made, gone)| made.0 < gone.0), "{made:?}");
}

#[test] // lifecycle 30.1, cases 1 and 8
fn blocked_repair_is_said() {
    let manifests =
        manifests("unhealthy", pool(), json!({"consolidateAfter": "Never"}), json!({}), 3);
    let names = nodes(&manifests);
    let silent = |count: usize| {
        let items: Vec<Value> = names
            .iter()
            .take(count)
            .map(|name| {
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                    "status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}})
            })
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        format!("5m={}", file("local-nodes", &format!("silent-{count}.json"), list.to_string()))
    };
    for (count, gate, repaired, blocked) in
        [(1, "true", 1, false), (2, "true", 0, true), (1, "false", 0, false)]
    {
        let gates = format!("NodeRepair={gate}");
        let at = silent(count);
        let it = answer(&[
            "--manifests",
            &manifests,
            "--feature-gates",
            &gates,
            "--at",
            &at,
            "--until",
            "45m",
        ]);
        assert_eq!(lines(&it, "lifecycle", "delete").len(), repaired, "{count} {gate}");
        let skipped = lines(&it, "lifecycle", "skip");
        let text = "more than 20% nodes are unhealthy in the nodepool";
        assert_eq!(skipped.iter().any(|it| it.2 == text), blocked, "{count} {gate}");
        assert!(skipped.iter().all(|it| it.0 >= 2100.0), "{skipped:?}");
    }
}
