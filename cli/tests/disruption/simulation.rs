//! Whether everything would still find a place (lifecycle 18).

use serde_json::json;

use crate::builders::*;

#[test] // lifecycle 18.1, case 1; bug report B-024
fn daemons_and_static_pods_are_not_placed() {
    let full = node("n1", "m.large")
        .holding("web", "1", json!({}))
        .holding("logs", "500m", owned_by("DaemonSet"))
        .holding("proxy", "500m", owned_by("Node"));
    let objects = cluster![pool("p", json!({})), full, node("n2", "m.large").busy().pod("1")];
    assert_eq!(
        usual("daemons", objects),
        ["SingleNodeConsolidation n1 saves 0.1", "n2: condition Consolidatable is not True"]
    );
}

#[test] // lifecycle 18.1, cases 2 and 3
fn pods_that_will_not_move_ask_for_no_place() {
    let goes = || node("n", "m.large").drifted(CREATED).grace("1h");
    for (name, node, budget, expected) in [
        (
            "case 2",
            goes().holding("db", "1", annotated(DO_NOT_DISRUPT, "true")),
            json!({}),
            "Drift n saves 0.1",
        ),
        (
            "case 3",
            goes().holding("db", "1", json!({})),
            json!({"maxUnavailable": 0}),
            "Drift n saves 0.1",
        ),
        (
            "0%",
            goes().holding("db", "1", json!({})),
            json!({"maxUnavailable": "0%"}),
            "Drift n saves 0.1",
        ),
        (
            "100%",
            goes().holding("db", "1", json!({})),
            json!({"minAvailable": "100%"}),
            "Drift n saves 0.1",
        ),
        (
            "case 3, by number",
            goes().holding("db", "1", json!({})),
            json!({"minAvailable": 1}),
            "Drift n -> p[m.large](on-demand)$0.1 saves 0",
        ),
    ] {
        let objects = cluster![pool("p", json!({})), node, pdb("a", "db", 0, budget)];
        let lines = outcome(&format!("moves-{name}"), &[], &one_type(), objects);
        assert_eq!(lines[0].replace("saves 0.0", "saves 0"), expected, "{name}");
    }
}

#[test] // lifecycle 18.1, cases 4 and 5
fn uninitialized_nodes_take_only_pods_of_nodes_that_go() {
    let p = || pool("p", json!({"spec": {"limits": {"cpu": "0"}}}));
    let new = || node("n2", "m.large").uninitialized();
    let objects = cluster![p(), node("n1", "m.large").pod("1"), new()];
    assert_eq!(
        outcome("uninitialized", &[], &one_type(), objects),
        [
            "n1: Not all pods would schedule, default/n1-0 => would schedule against uninitialized nodeclaim/claim-n2, node/n2",
            "n2: Node isn't initialized",
        ]
    );
    let objects = cluster![
        p(),
        node("n0", "m.large").deleting().pod("1500m"),
        node("n1", "m.large").pod("600m"),
        new(),
        node("n3", "m.large").busy().pod("1300m"),
    ];
    assert_eq!(
        outcome("uninitialized-going", &[], &one_type(), objects),
        [
            "SingleNodeConsolidation n1 saves 0.1",
            "n0: Node is deleting or marked for deletion",
            "n2: Node isn't initialized",
            "n3: condition Consolidatable is not True",
        ]
    );
}

#[test] // lifecycle 18.1, case 6
fn consolidation_does_not_move_pods_onto_nodes_that_are_not_quiet() {
    let target = || {
        node("n2", "m.large")
            .busy()
            .pod("500m")
            .claim(json!({"status": {"lastPodEventTime": "2026-03-02T11:58:00Z"}}))
    };
    let case = |name: &str, after: &str, it: Nodes| {
        let objects = cluster![pool_that("p", json!({"consolidateAfter": after})), it, target()];
        outcome(&format!("quiet-{name}"), &[], &one_type(), objects).swap_remove(0)
    };
    let n1 = || node("n1", "m.large").pod("1");
    assert_eq!(case("consolidation", "5m", n1()), "n1: Can't replace with a cheaper node");
    assert_eq!(case("drift", "5m", n1().drifted(CREATED)), "Drift n1 saves 0.1");
    assert_eq!(case("two minutes", "2m", n1()), "SingleNodeConsolidation n1 saves 0.1");
    assert_eq!(case("zero", "0s", n1()), "SingleNodeConsolidation n1 saves 0.1");
}

#[test] // lifecycle 18.1, case 7; bug report B-018
fn a_hopeless_pending_pod_holds_nothing_back() {
    let two = || vec![node("n1", "m.large").pod("1"), node("n2", "m.large").pod("1")];
    let nowhere = waiting("stuck", "1", json!({"spec": {"nodeSelector": {"foo": "bar"}}}));
    assert_eq!(
        usual("hopeless", cluster![pool("p", json!({})), two(), nowhere]),
        ["MultiNodeConsolidation n1 n2 -> p[c.large](on-demand)$0.08 saves 0.12"]
    );
}

#[test] // lifecycle 18, step 9: the text for the first five
fn five_pods_are_named() {
    let nowhere = json!({"spec": {"nodeSelector": {"foo": "bar"}}});
    for (n, tail) in [(1, ""), (4, ""), (5, " and 0 other(s)"), (7, " and 2 other(s)")] {
        let it = (0..n).fold(node("n", "m.large"), |it, i| {
            it.holding(&format!("w{i}"), "100m", nowhere.clone())
        });
        let named: Vec<String> = (0..n.min(5))
            .map(|i| format!("default/w{i} => label \"foo\" does not have known values"))
            .collect();
        let expected = format!("n: Not all pods would schedule, {}{tail}", named.join(" "));
        let lines = usual(&format!("named-{n}"), cluster![pool("p", json!({})), it]);
        assert_eq!(lines, [expected], "{n}");
    }
}

#[test] // lifecycle 18, step 4: a pool that is not Ready makes no nodes, its own may still go
fn pools_that_are_not_ready() {
    let not_ready = || {
        pool(
            "p",
            json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "UnhealthyDependents"}]}}),
        )
    };
    let two = || vec![node("n1", "m.large").pod("1"), node("n2", "m.large").pod("1")];
    assert_eq!(
        usual("unready", cluster![not_ready(), two()]),
        ["SingleNodeConsolidation n1 saves 0.1", "n2: one node is consolidated at a time"]
    );
    let objects = cluster![
        not_ready(),
        node("n1", "m.large").drifted(CREATED).pod("1"),
        node("n2", "m.large").busy()
    ];
    assert_eq!(
        usual("unready-drift", objects),
        ["Drift n1 saves 0.1", "n2: condition Consolidatable is not True"]
    );
    assert_eq!(
        usual("unready-empty", cluster![not_ready(), node("n1", "m.large")]),
        ["Emptiness n1 saves 0.1"]
    );
}

#[test] // scheduling 11.1 and 19: the class of a pool is on its way out
fn pools_whose_class_is_deleted_take_no_part() {
    let going =
        json!({"metadata": {"deletionTimestamp": "2026-03-01T00:00:00Z", "finalizers": ["x"]}});
    let objects = cluster![pool("p", json!({})), class(going), waiting("w", "1", json!({}))];
    let answer = plan("class-deleted", &[], &one_type(), &objects);
    assert_eq!(answer["unschedulable"][0]["reason"], "no dynamic nodepools found");
}
