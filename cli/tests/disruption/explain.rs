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

/// Facts of these kinds, in their order.
fn facts(answer: &Value, about: &[&str]) -> Vec<String> {
    let all = answer["facts"].as_array().expect("facts").iter();
    all.filter(|it| about.contains(&it["about"].as_str().expect("text")))
        .map(|it| it["text"].as_str().expect("text").to_owned())
        .collect()
}

#[test] // lifecycle 28.1 and 28.3
fn a_node_that_goes_away_says_what_it_waits_for() {
    let critical = json!({"spec": {"priorityClassName": "system-cluster-critical"}});
    let going = json!({"metadata": {"deletionTimestamp": "2026-03-02T12:00:20Z"}});
    let until = annotated(DO_NOT_DISRUPT, "48h");
    let busy = || {
        node("n", "m.2xlarge")
            .deleting()
            .holding("budgeted", "100m", json!({}))
            .holding("critical", "100m", critical.clone())
            .holding("free", "100m", json!({}))
            .holding("going", "100m", going.clone())
            .holding("held", "100m", annotated(DO_NOT_DISRUPT, "true"))
            .holding("held-for-a-while", "100m", until.clone())
            .holding("twice", "100m", json!({}))
            .holding("daemon", "100m", json!({"spec": {"tolerations": [{"operator": "Exists"}]}}))
    };
    let budgets = || {
        cluster![
            pdb("a", "budgeted", 0, json!({})),
            pdb("b", "twice", 3, json!({})),
            pdb("c", "twice", 3, json!({})),
        ]
    };
    let objects = cluster![pool("p", json!({})), class(json!({})), busy(), budgets()];
    for object in ["node/n", "nodeclaim/claim-n"] {
        let answer = explain(&format!("explain-drain-{}", object.len()), object, &objects);
        assert_eq!(answer["summary"], "it is being removed: 7 pods have to go first", "{object}");
        assert_eq!(
            facts(&answer, &["draining", "waits for", "remedy"]),
            [
                "not begun",
                "default/budgeted: held by PodDisruptionBudget default/a, which allows no eviction at present",
                "default/critical: to be evicted when the pods before it are gone",
                "default/free: to be evicted",
                "default/going: terminating, to be gone by 2026-03-02T12:00:20Z",
                "default/held: held by its annotation karpenter.sh/do-not-disrupt",
                "default/held-for-a-while: held by its annotation karpenter.sh/do-not-disrupt until 2026-03-03T00:00:00Z",
                "default/twice: held by more than one PodDisruptionBudget: default/b, default/c",
                "without terminationGracePeriod it waits for as long as that lasts; annotation karpenter.sh/nodeclaim-termination-timestamp of the NodeClaim sets a deadline",
            ],
            "{object}"
        );
    }
    // With a deadline nothing holds it for ever.
    let deadline =
        annotated("karpenter.sh/nodeclaim-termination-timestamp", "2026-03-02T12:00:10Z");
    let short = json!({"spec": {"terminationGracePeriodSeconds": 30}});
    let it = node("n", "m.2xlarge").deleting().claim(deadline).holding("budgeted", "1", short);
    let objects = cluster![pool("p", json!({})), class(json!({})), it, budgets()];
    let answer = explain("explain-deadline", "node/n", &objects);
    assert_eq!(answer["summary"], "it is being removed: 1 pod has to go first");
    assert_eq!(
        facts(&answer, &["draining", "waits for", "remedy"]),
        [
            "not begun",
            "has to be over by 2026-03-02T12:00:10Z",
            "default/budgeted: deleted now with 10 s of grace, whatever holds it",
        ]
    );
}

#[test] // lifecycle 28.3: what becomes of the pods of a node that goes away
fn a_held_pod_is_told_its_end() {
    let at = annotated("karpenter.sh/nodeclaim-termination-timestamp", "2026-03-02T13:00:00Z");
    let held = json!({"metadata": {"annotations": {DO_NOT_DISRUPT: "true"}},
        "spec": {"terminationGracePeriodSeconds": 60}});
    let tolerant = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    let going = |claim: Value| {
        let it = node("n", "m.2xlarge").deleting().claim(claim).holding("held", "1", held.clone());
        let it = it.holding("plain", "1", json!({})).holding("stays", "1", tolerant.clone());
        cluster![pool("p", json!({})), class(json!({})), it]
    };
    let told = |name: &str, object: &str, objects: &[Value], about: &str| {
        facts(&explain(name, object, objects), &[about])
    };
    let bounded = going(at);
    assert_eq!(
        told("explain-end-node", "node/n", &bounded, "waits for")[0],
        "default/held: held by its annotation karpenter.sh/do-not-disrupt; whatever holds it, it is deleted after 2026-03-02T12:59:00Z"
    );
    for (name, objects, pod, text) in [
        (
            "held-bounded",
            &bounded,
            "held",
            "the node is going away, and waits for this pod; whatever holds it, it is deleted after 2026-03-02T12:59:00Z",
        ),
        ("held", &going(json!({})), "held", "the node is going away, and waits for this pod"),
        (
            "plain",
            &bounded,
            "plain",
            "the node is going away: the pod will be evicted, or is being so",
        ),
        ("stays", &bounded, "stays", "the node is going away, and does not wait for this pod"),
    ] {
        let file = format!("explain-end-{name}");
        let facts = told(&file, &format!("pod/default/{pod}"), objects, "node");
        assert_eq!(facts[1], text, "{name}");
    }
}

#[test] // B-080
fn a_claim_without_its_node_is_not_said_to_stay() {
    let mut it = node("n", "m.large");
    it.0.remove(0);
    let objects = cluster![pool("p", json!({})), class(json!({})), it];
    let answer = explain("explain-no-node", "nodeclaim/claim-n", &objects);
    assert_eq!(
        answer["summary"],
        "its Node n is not among the objects given: a claim whose Node is gone is removed"
    );
}

#[test] // lifecycle 29.1
fn a_drained_node_says_which_volumes_it_waits_for() {
    let attached = |name: &str, node: &str, volume: &str| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
            "spec": {"attacher": "ebs.csi.aws.com", "nodeName": node,
                "source": {"persistentVolumeName": volume}}})
    };
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"}, "spec": {"volumeName": "pv-2"}});
    let stays = json!({"spec": {"tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}});
    let objects = |node: Nodes| {
        cluster![
            pool("p", json!({})),
            class(json!({})),
            node.holding("stays", "100m", stays.clone()),
            claim.clone(),
            attached("va-1", "n", "pv-1"),
            attached("va-2", "n", "pv-2"),
            attached("va-3", "other", "pv-3"),
        ]
    };
    let answer = explain("explain-volumes", "node/n", &objects(node("n", "m.large").deleting()));
    assert_eq!(answer["summary"], "it is being removed: 1 volume has to be detached first");
    assert_eq!(facts(&answer, &["volumes"]), ["still attached: va-1"]);
    let over = annotated("karpenter.sh/nodeclaim-termination-timestamp", "2026-03-02T11:59:59Z");
    let it = objects(node("n", "m.large").deleting().claim(over));
    let answer = explain("explain-volumes-over", "node/n", &it);
    assert_eq!(answer["summary"], "it is being removed");
    let ending = node("n", "m.large").deleting().with_condition("InstanceTerminating");
    let answer = explain("explain-ending", "node/n", &objects(ending));
    assert_eq!(answer["summary"], "it is being removed: its instance is being terminated");
}

#[test] // lifecycle 17
fn a_budget_that_holds_a_node_is_named() {
    let remedies = |name: &str, budgets: Value| {
        let held = node("n", "m.2xlarge").pod("1");
        let it = cluster![pool_that("p", json!({"budgets": budgets})), class(json!({})), held];
        facts(&explain(name, "node/n", &it), &["remedy"])
    };
    assert_eq!(
        remedies(
            "explain-budget-window",
            json!([{"nodes": "5"}, {"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h"}])
        ),
        ["budget 1 of NodePool p (nodes 0) applies until 2026-03-02T17:00:00Z"]
    );
    assert_eq!(
        remedies("explain-budget-always", json!([{"nodes": "0%"}])),
        [
            "NodePool p: spec.disruption.budgets[0].nodes higher than 0%, or wait until fewer nodes are on their way or not Ready"
        ]
    );
    assert_eq!(
        remedies(
            "explain-budget-reason",
            json!([{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "100%"}])
        ),
        [] as [&str; 0]
    );
    assert_eq!(
        remedies(
            "explain-budget-broken",
            json!([{"nodes": "1", "schedule": "0 0 * * 7", "duration": "1h"}])
        )
        .len(),
        1
    );
}
