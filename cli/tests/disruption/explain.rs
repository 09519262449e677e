//! `spokeshave explain`.

use serde_json::{Value, json};
use spokeshave::{ExitStatus, Format};

use crate::builders::*;

fn explain(name: &str, object: &str, objects: &[Value]) -> Value {
    let (status, text) = run(name, Format::Json, &["explain", object], &usual_types(), objects);
    assert_eq!(status, Ok(ExitStatus::Answered), "{object}");
    serde_json::from_str(&text).expect("JSON")
}

fn objects() -> Vec<Value> {
    cluster![
        pool("p", json!({})),
        class(json!({})),
        node("n1", "m.large").holding("web", "500m", json!({})),
        pdb("a", "web", 0, json!({})),
        node("n2", "m.large"),
        node("n3", "m.large").uninitialized(),
        node("n4", "m.large").deleting(),
        waiting("stuck", "1", json!({"spec": {"nodeSelector": {"foo": "bar"}}})),
    ]
}

#[test]
fn nodes_claims_and_pods_have_a_short_answer() {
    for (object, name, summary) in [
        (
            "node/n1",
            "Node/n1",
            "it stays: Pdb prevents pod evictions (PodDisruptionBudget=[default/a])",
        ),
        (
            "nodeclaim/claim-n1",
            "NodeClaim/claim-n1",
            "it stays: Pdb prevents pod evictions (PodDisruptionBudget=[default/a])",
        ),
        (
            "node/n2",
            "Node/n2",
            "the next disruption pass removes it (Empty): the node has no pods that need another place",
        ),
        ("node/n3", "Node/n3", "it stays: Node isn't initialized"),
        ("node/n4", "Node/n4", "it is being removed"),
        ("nodeclaim/claim-n4", "NodeClaim/claim-n4", "it is being removed"),
        ("pod/default/web", "Pod/default/web", "it runs on node n1"),
        (
            "pod/default/stuck",
            "Pod/default/stuck",
            "no place can be found: label \"foo\" does not have known values",
        ),
    ] {
        let file = format!("explain-{}", object.replace('/', "-"));
        let answer = explain(&file, object, &objects());
        assert_eq!(answer["object"], name);
        assert_eq!(answer["summary"], summary, "{object}");
        let keys: Vec<&String> = answer.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["facts", "object", "steps", "summary"], "{object}");
    }
}

#[test] // lifecycle 10: expiration asks neither budgets nor pods
fn what_is_past_its_time_goes() {
    let claim = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"expireAfter": "24h"}});
    let held = node("n1", "m.large").claim(claim).holding("web", "500m", json!({}));
    let budget = json!({"budgets": [{"nodes": "0"}]});
    let objects =
        cluster![pool_that("p", budget), class(json!({})), held, pdb("a", "web", 0, json!({}))];
    for object in ["node/n1", "nodeclaim/claim-n1"] {
        let answer = explain(&format!("explain-expired-{}", object.len()), object, &objects);
        assert_eq!(
            answer["summary"], "it is removed: it expired at 2026-01-02T00:00:00Z",
            "{object}"
        );
    }
}

#[test]
fn facts_tell_price_budget_and_what_stands_against_it() {
    let answer = explain("explain-facts", "node/n1", &objects());
    let facts: Vec<String> = answer["facts"]
        .as_array()
        .expect("facts")
        .iter()
        .map(|it| {
            format!(
                "{}: {}",
                it["about"].as_str().expect("text"),
                it["text"].as_str().expect("text")
            )
        })
        .collect();
    assert_eq!(
        facts,
        [
            "what: m.large on-demand in a, pool p, $0.1000 per hour",
            "claim: NodeClaim/claim-n1",
            "state: Ready, initialized",
            "pods: 1 bound, 0 of them finished; 1 would need another place; taking the node away costs 2.00",
            "consolidation: quiet for long enough to be consolidated",
            "expiry: expires at 2026-03-31T00:00:00Z, in 684h0m0s",
            "budget: Underutilized: 3 may go at once, 1 on their way or not Ready",
            "budget: Empty: 3 may go at once, 1 on their way or not Ready",
            "budget: Drifted: 3 may go at once, 1 on their way or not Ready",
            "remedy: PodDisruptionBudget default/a has to allow an eviction: more Ready pods, or a looser budget",
        ]
    );
}

#[test]
fn unknown_objects_and_words_are_status_two() {
    for (object, message) in [
        ("node/zz", "no such object in --cluster"),
        ("pod/other/web", "no such object in --cluster"),
        ("nodeclaim/n1", "no such object in --cluster"),
        ("deployment/a/b", "not an object that can be explained"),
        ("node", "not an object that can be explained"),
        ("pod/a/b/c", "not an object that can be explained"),
    ] {
        let (status, text) =
            run("explain-wrong", Format::Json, &["explain", object], &usual_types(), &objects());
        let error = status.expect_err(object);
        assert!(error.to_string().contains(message), "{object}: {error}");
        assert_eq!(text, "", "{object}");
    }
}
