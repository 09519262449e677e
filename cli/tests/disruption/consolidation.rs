//! What consolidation does and at which price (lifecycle 20 to 23).

use serde_json::{Value, json};

use crate::builders::*;

const SPOT_TO_SPOT: &[&str] = &["--feature-gates", "SpotToSpotConsolidation=true"];

/// One node `n` of this type, its pod of 3 CPUs, and a pool that allows any capacity.
fn lone(instance_type: &str, cpu: u32, bought_as: &str) -> Vec<Value> {
    cluster![
        pool_of("p", any_capacity()),
        sized("n", instance_type, cpu).bought_as(bought_as).pod("3")
    ]
}

fn unavailable(mut it: Value, at: usize) -> Value {
    it["offerings"][at]["available"] = json!(false);
    it
}

fn also(mut it: Value, offering: Value) -> Value {
    it["offerings"].as_array_mut().expect("a list").push(offering);
    it
}

#[test] // lifecycle 20.4
fn the_worked_example() {
    let types = [
        sells("m5.2xlarge", 8, &[("o", "a", 0.384), ("o", "b", 0.384)]),
        sells(
            "c5.xlarge",
            4,
            &[("s", "a", 0.070), ("s", "b", 0.081), ("o", "a", 0.170), ("o", "b", 0.170)],
        ),
        unavailable(
            sells(
                "m5.xlarge",
                4,
                &[("s", "a", 0.075), ("s", "b", 0.070), ("o", "a", 0.192), ("o", "b", 0.192)],
            ),
            1,
        ),
        sells(
            "c5.2xlarge",
            8,
            &[("s", "a", 0.140), ("s", "b", 0.390), ("o", "a", 0.340), ("o", "b", 0.340)],
        ),
        sells("r5.xlarge", 4, &[("o", "a", 0.252), ("o", "b", 0.252)]),
    ];
    let lines = outcome("worked", &[], &types, lone("m5.2xlarge", 8, "on-demand"));
    assert_eq!(
        lines,
        ["SingleNodeConsolidation n -> p[c5.xlarge m5.xlarge r5.xlarge](spot)$0.07 saves 0.314"]
    );
}

#[test] // lifecycle 20.5, case 1
fn the_dearest_zone_of_spot_has_to_be_cheaper() {
    let types = |price: f64| {
        [
            sells("old", 4, &[("o", "a", price)]),
            sells("new", 4, &[("o", "a", 0.6), ("s", "a", 1.0), ("s", "b", 0.2), ("s", "c", 0.4)]),
        ]
    };
    let objects = || lone("old", 4, "on-demand");
    assert_eq!(
        outcome("worst", &[], &types(0.5), objects()),
        ["n: Can't replace with a cheaper node"]
    );
    assert_eq!(
        outcome("worst-ok", &[], &types(1.5), objects()),
        ["SingleNodeConsolidation n -> p[new](spot)$0.2 saves 1.3"]
    );
}

#[test] // lifecycle 20.5, cases 2 and 11; bug report B-021
fn equal_and_unknown_prices_are_no_gain() {
    let keep = ["n: Can't replace with a cheaper node"];
    let types = [sells("old", 4, &[("o", "a", 0.5)]), sells("new", 4, &[("o", "a", 0.5)])];
    assert_eq!(outcome("equal", &[], &types, lone("old", 4, "on-demand")), keep);
    let mut unknown = types.to_vec();
    unknown[0]["offerings"][0]["price"] = Value::Null;
    assert_eq!(outcome("unknown", &[], &unknown, lone("old", 4, "on-demand")), keep);
    // On-demand capacity of an unknown price may cost anything; spot capacity without a price is not bought.
    let offers = |of: &[Sold], without: usize| {
        let mut new = sells("new", 4, of);
        new["offerings"][without]["price"] = Value::Null;
        [sells("old", 4, &[("o", "a", 0.5)]), new]
    };
    let types = offers(&[("o", "a", 0.1), ("o", "b", 0.1)], 1);
    assert_eq!(outcome("unknown-zone", &[], &types, lone("old", 4, "on-demand")), keep);
    for (name, of) in [
        ("unknown-spot-zone", &[("s", "a", 0.1), ("s", "b", 0.1)]),
        ("unknown-spot", &[("o", "a", 0.1), ("s", "b", 0.1)]),
    ] {
        let bought = if of[0].0 == "s" { "spot" } else { "on-demand" };
        assert_eq!(
            outcome(name, &[], &offers(of, 1), lone("old", 4, "on-demand")),
            [format!("SingleNodeConsolidation n -> p[new]({bought})$0.1 saves 0.4")]
        );
    }
    let b021 =
        [sells("c6a.xlarge", 4, &[("o", "a", 0.153)]), sells("c6i.xlarge", 4, &[("o", "a", 0.17)])];
    assert_eq!(outcome("b-021", &[], &b021, lone("c6a.xlarge", 4, "on-demand")), keep);
}

#[test] // bug report B-020
fn what_cannot_be_bought_is_no_replacement() {
    let types = [
        sells("r6g.8xlarge", 32, &[("o", "a", 1.6)]),
        unavailable(sells("x2gd.4xlarge", 16, &[("o", "a", 1.3)]), 0),
    ];
    let lines = outcome("b-020", &[], &types, lone("r6g.8xlarge", 32, "on-demand"));
    assert_eq!(lines, ["n: Can't replace with a cheaper node"]);
}

#[test] // lifecycle 20.5, cases 3, 12 and 13
fn moving_into_reservations() {
    let cheap = 0.000_000_009_6;
    let types = [also(sells("m5.large", 4, &[("o", "a", 0.096)]), reserved("a", cheap, "cr-1", 3))];
    assert_eq!(
        outcome("reserved", &[], &types, lone("m5.large", 4, "on-demand")),
        ["SingleNodeConsolidation n -> p[m5.large](reserved)$9.6e-9 saves 0.0959999904"]
    );
    let off = ["--feature-gates", "ReservedCapacity=false"];
    assert_eq!(
        outcome("reserved-off", &off, &types, lone("m5.large", 4, "on-demand")),
        ["n: Can't replace with a cheaper node"]
    );
    // A spot node needs no gate to get there.
    let types = [also(
        sells("old", 4, &[("s", "a", 0.05), ("o", "a", 0.2)]),
        reserved("a", 0.000_000_02, "cr-1", 1),
    )];
    assert_eq!(
        outcome("reserved-spot", &[], &types, lone("old", 4, "spot")),
        ["SingleNodeConsolidation n -> p[old](reserved)$2e-8 saves 0.04999998"]
    );
    let types = [
        also(sells("A", 4, &[("o", "a", 0.4)]), reserved("a", 0.000_000_04, "cr-a", 0)),
        also(sells("B", 4, &[("o", "a", 0.2)]), reserved("a", 0.000_000_02, "cr-b", 1)),
    ];
    let node = sized("n", "A", 4)
        .bought_as("reserved")
        .label("karpenter.k8s.aws/capacity-reservation-id", json!("cr-a"))
        .label("karpenter.k8s.aws/capacity-reservation-type", json!("default"))
        .label("karpenter.k8s.aws/capacity-reservation-interruptible", json!("false"))
        .pod("3");
    assert_eq!(
        outcome("reserved-cheaper", &[], &types, cluster![pool_of("p", any_capacity()), node]),
        ["SingleNodeConsolidation n -> p[B](reserved)$2e-8 saves 2e-8"]
    );
}

/// `old` for 0.5 and `n` spot types from 0.010 up.
fn spot_types(n: usize) -> Vec<Value> {
    let mut types = vec![sells("old", 4, &[("s", "a", 0.5)])];
    types.extend((0..n).map(|i| {
        let price = (10.0 + i as f64) / 1000.0;
        sells(&format!("t{i:02}"), 4, &[("s", "a", price), ("s", "b", price)])
    }));
    types
}

fn names(n: usize) -> String {
    (0..n).map(|i| format!("t{i:02}")).collect::<Vec<_>>().join(" ")
}

#[test] // lifecycle 20.5, cases 4 to 6; bug report B-022
fn spot_to_spot_needs_the_gate_and_fifteen_cheaper_types() {
    let objects = || lone("old", 4, "spot");
    assert_eq!(
        outcome("spot-off", &[], &spot_types(40), objects()),
        ["n: SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"]
    );
    for n in [1, 14] {
        let text = format!(
            "n: SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to consolidate, got {n}"
        );
        assert_eq!(outcome(&format!("spot-{n}"), SPOT_TO_SPOT, &spot_types(n), objects()), [text]);
    }
    assert_eq!(
        outcome("spot-0", SPOT_TO_SPOT, &spot_types(0), objects()),
        ["n: Can't replace with a cheaper node"]
    );
    let expected = format!("SingleNodeConsolidation n -> p[{}](spot)$0.01 saves 0.49", names(15));
    for n in [15, 40] {
        let lines = outcome(&format!("spot-{n}"), SPOT_TO_SPOT, &spot_types(n), objects());
        assert_eq!(lines, [expected.as_str()], "{n}");
    }
    let mut wanted = any_capacity();
    wanted.as_array_mut().expect("a list").push(
        json!({"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 20}),
    );
    let objects = cluster![pool_of("p", wanted), sized("n", "old", 4).bought_as("spot").pod("3")];
    let expected = format!("SingleNodeConsolidation n -> p[{}](spot)$0.01 saves 0.49", names(20));
    assert_eq!(outcome("spot-min", SPOT_TO_SPOT, &spot_types(40), objects), [expected]);
}

#[test] // lifecycle 20.2 and 20.5, cases 4, 7 and 8
fn several_spot_nodes_and_mixed_ones() {
    let two = |first: &str, second: &str| {
        cluster![
            pool_of("p", any_capacity()),
            sized("n1", "old", 4).bought_as(first).pod("2"),
            sized("n2", "old", 4).bought_as(second).pod("2"),
        ]
    };
    assert_eq!(
        outcome("spot-two", SPOT_TO_SPOT, &spot_types(3), two("spot", "spot")),
        ["MultiNodeConsolidation n1 n2 -> p[t00 t01 t02](spot)$0.01 saves 0.99"]
    );
    // Without the gate one can still go: its pods fit on the other.
    assert_eq!(
        outcome("spot-delete", &[], &spot_types(3), two("spot", "spot")),
        ["SingleNodeConsolidation n1 saves 0.5", "n2: one node is consolidated at a time"]
    );
    let mut types = spot_types(3);
    types[0]["offerings"]
        .as_array_mut()
        .expect("a list")
        .push(json!({"capacityType": "on-demand", "zone": "a", "price": 0.6}));
    assert_eq!(
        outcome("spot-mixed", &[], &types, two("spot", "on-demand")),
        ["MultiNodeConsolidation n2 n1 -> p[t00 t01 t02](spot)$0.01 saves 1.09"]
    );
    // A replacement that cannot be spot needs no gate either.
    let on_demand = [sells("old", 4, &[("s", "a", 0.5)]), sells("new", 4, &[("o", "a", 0.2)])];
    let objects = cluster![
        pool("p", json!({})),
        sized("n", "old", 4).bought_as("spot").drifted(CREATED).pod("3")
    ];
    let lines = outcome("spot-on-demand", &[], &on_demand, objects);
    assert_eq!(lines, ["Drift n -> p[new](on-demand)$0.2 saves 0.3"]);
}

#[test] // lifecycle 20.5, case 9
fn more_than_one_new_node_is_no_gain() {
    let types = [
        unavailable(sells("big", 8, &[("o", "a", 0.9)]), 0),
        sells("small", 4, &[("o", "a", 0.1)]),
    ];
    let objects = cluster![pool("p", json!({})), sized("n", "big", 8).pods(2, "3")];
    assert_eq!(
        outcome("two-new", &[], &types, objects),
        ["n: Can't remove without creating 2 candidates"]
    );
}

#[test] // lifecycle 20.5, case 10; 37.1, case 3
fn min_values_hold_after_the_price_filter() {
    let wanted =
        json!([{"key": "karpenter.k8s.aws/instance-family", "operator": "Exists", "minValues": 2}]);
    let types = |other: f64| {
        [
            sells("a.big", 8, &[("o", "a", 0.9)]),
            sells("a.small", 4, &[("o", "a", other)]),
            sells("b.small", 4, &[("o", "a", 1.1)]),
        ]
    };
    let objects = || cluster![pool_of("p", wanted.clone()), sized("n", "a.big", 8).pod("3")];
    let text = "n: Filtering by price: minValues requirement is not met for label(s) (label(s)=[karpenter.k8s.aws/instance-family])";
    let best_effort = ["--min-values-policy", "BestEffort"];
    assert_eq!(outcome("min", &[], &types(0.1), objects()), [text]);
    assert_eq!(outcome("min-best", &best_effort, &types(0.1), objects()), [text]);
    assert_eq!(
        outcome("min-none", &[], &types(2.0), objects()),
        ["n: Can't replace with a cheaper node"]
    );
    // One family is all there is: lowered to that before the price filter, and met after it.
    assert_eq!(
        outcome("min-lowered", &best_effort, &types(0.1)[..2], objects()),
        ["SingleNodeConsolidation n -> p[a.small](on-demand)$0.1 saves 0.8"]
    );
}

#[test] // lifecycle 21.1, case 8
fn like_is_not_replaced_by_like() {
    let mut types = vec![
        sells("2xlarge", 8, &[("o", "a", 0.08)]),
        sells("xlarge", 4, &[("o", "a", 0.04)]),
        sells("small", 2, &[("o", "a", 0.02)]),
    ];
    let objects = || {
        cluster![
            pool("p", json!({})),
            sized("a", "2xlarge", 8).pod("500m"),
            sized("b", "2xlarge", 8).pod("500m"),
            sized("c", "small", 2).pod("500m"),
        ]
    };
    assert_eq!(
        outcome("alike", &[], &types, objects()),
        [
            "MultiNodeConsolidation a b saves 0.16",
            "c: MultiNodeConsolidation found something to do first"
        ]
    );
    types.push(sells("nano", 2, &[("o", "a", 0.01)]));
    assert_eq!(
        outcome("alike-nano", &[], &types, objects()),
        ["MultiNodeConsolidation a b c -> p[nano](on-demand)$0.01 saves 0.17"]
    );
}

#[test] // lifecycle 16.2, case 1, and 21: dearest per disruption first
fn candidates_come_by_saving_per_disruption() {
    let types = [
        sells("A", 8, &[("o", "a", 0.096)]),
        sells("B", 8, &[("o", "a", 0.192)]),
        sells("C", 8, &[("s", "a", 0.035)]),
        sells("D", 40, &[("o", "a", 0.68)]),
    ];
    let objects = cluster![
        pool_of("p", any_capacity()),
        sized("a", "A", 8).pods(3, "100m"),
        sized("b", "B", 8).pods(10, "100m"),
        sized("c", "C", 8).bought_as("spot").pods(1, "100m"),
        sized("d", "D", 40).pods(20, "100m"),
        sized("z", "D", 40).busy(),
    ];
    assert_eq!(
        outcome("order", &[], &types, objects),
        ["MultiNodeConsolidation d a c b saves 1.003", "z: condition Consolidatable is not True"]
    );
}

#[test] // lifecycle 21.1, case 9
fn a_budget_picks_the_nodes_of_a_multi_node_command() {
    let types = [sells("L", 8, &[("o", "a", 0.4)]), sells("M", 8, &[("o", "a", 0.3)])];
    let limit = |name: &str, nodes: &str| pool_that(name, json!({"budgets": [{"nodes": nodes}]}));
    let it = |name: &str, type_: &str, pool: &str| sized(name, type_, 8).of(pool).pod("100m");
    let objects = cluster![
        limit("A", "1"),
        limit("B", "5"),
        it("a1", "L", "A"),
        it("b1", "L", "B"),
        it("a2", "M", "A"),
        it("b2", "M", "B"),
        sized("z", "L", 8).of("B").busy(),
    ];
    assert_eq!(
        outcome("multi-budget", &[], &types, objects),
        [
            "MultiNodeConsolidation a1 b1 b2 saves 1.1",
            "a2: No allowed disruptions for disruption reason Underutilized due to blocking budget",
            "z: condition Consolidatable is not True",
        ]
    );
}

#[test] // lifecycle 22.1, cases 4 and 5
fn one_node_at_a_time() {
    let only = |pool: &str| json!({"spec": {"nodeSelector": {"karpenter.sh/nodepool": pool}}});
    let objects = |a: Value| {
        cluster![
            a,
            pool("B", json!({})),
            node("a1", "m.large").of("A").holding("w", "1900m", only("A")),
            node("b1", "m.large").of("B").holding("x", "100m", only("B")),
            node("b2", "m.large").of("B").busy(),
        ]
    };
    assert_eq!(
        outcome("case-4", &[], &one_type(), objects(pool("A", json!({})))),
        [
            "SingleNodeConsolidation b1 saves 0.1",
            "a1: Can't replace with a cheaper node",
            "b2: condition Consolidatable is not True",
        ]
    );
    let closed = pool_that("A", json!({"budgets": [{"nodes": "0"}]}));
    let objects = cluster![
        closed,
        pool("B", json!({})),
        node("a1", "m.large").of("A").pod("1900m"),
        node("b1", "m.large").of("B").pod("1900m"),
    ];
    assert_eq!(
        outcome("case-5", &[], &one_type(), objects),
        [
            "a1: No allowed disruptions for disruption reason Underutilized due to blocking budget",
            "b1: Can't replace with a cheaper node",
        ]
    );
}

#[test] // lifecycle 23.1, the table's last row and case 3
fn a_balanced_pool_weighs_saving_against_disruption() {
    let types = [sells("big", 8, &[("o", "a", 0.8)]), sells("small", 2, &[("o", "a", 0.05)])];
    let balanced = || pool_that("p", json!({"consolidationPolicy": "Balanced"}));
    // Alone in its pool a node is all of the cost and all of the disruption.
    let lone = sized("n", "big", 8).pods(7, "100m");
    assert_eq!(
        outcome("balanced-lone", &[], &types, cluster![balanced(), lone]),
        ["SingleNodeConsolidation n -> p[small](on-demand)$0.05 saves 0.75"]
    );
    // 0.05 of 1.00 dollars for 11 of 100: 0.45.
    let objects = |pods: usize| {
        cluster![
            balanced(),
            sized("n", "small", 2).pods(pods, "10m"),
            sized("z", "big", 8).busy().pods(83, "10m"),
            (0..3).map(|i| sized(&format!("y{i}"), "small", 2).busy()).collect::<Vec<_>>(),
            sized("x", "small", 2).busy().pods(10 - pods, "10m"),
        ]
    };
    let busy = |name: &str| format!("{name}: condition Consolidatable is not True");
    let others = || ["x", "y0", "y1", "y2", "z"].map(busy).to_vec();
    // 2 + 83 + 1 and four more nodes: 0.05/1.05 of the cost for (1 + pods)/99 of the disruption.
    let mut expected = vec![
        "n: NodePool \"p\" has consolidation policy Balanced, score 0.43 < threshold 0.50"
            .to_owned(),
    ];
    expected.extend(others());
    assert_eq!(outcome("balanced-no", &[], &types, objects(10)), expected);
    let mut expected = vec!["SingleNodeConsolidation n saves 0.05".to_owned()];
    expected.extend(others());
    assert_eq!(outcome("balanced-yes", &[], &types, objects(8)), expected);
}

#[test] // lifecycle 37.1, case 4
fn preferences_hold_back_consolidation_only_while_they_are_respected() {
    let prefers = json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}]}}]}}}});
    let types = [sells("old", 4, &[("o", "a", 0.2), ("o", "b", 0.2)])];
    let objects = || {
        cluster![
            pool("p", json!({})),
            sized("n", "old", 4).label("topology.kubernetes.io/zone", json!("b")).holding(
                "web",
                "1",
                prefers.clone()
            ),
            sized("room", "old", 4).busy().pod("1"),
        ]
    };
    let respected = outcome("preferences-kept", &[], &types, objects());
    assert_eq!(respected[0], "n: Can't replace with a cheaper node");
    let ignored = ["--preference-policy", "Ignore"];
    let lines = outcome("preferences-ignored", &ignored, &types, objects());
    assert_eq!(lines[0], "SingleNodeConsolidation n saves 0.2");
}
