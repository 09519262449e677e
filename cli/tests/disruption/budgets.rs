//! How many nodes may go (lifecycle 17).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::builders::*;

/// `reason: allowed disrupting remaining` of pool `p`.
fn rows(name: &str, budgets: &Value, nodes: Vec<Nodes>, now: &str) -> BTreeMap<String, String> {
    let disruption = json!({"budgets": budgets});
    let objects = cluster![pool_that("p", disruption), nodes, class(json!({}))];
    let answer = plan(name, &["--now", now], &usual_types(), &objects);
    let rows = answer["budgets"].as_array().expect("rows");
    rows.iter()
        .map(|it| {
            assert_eq!(it["nodePool"], "p");
            let reason = it["reason"].as_str().expect("a reason").to_owned();
            (reason, format!("{} {} {}", it["allowed"], it["disrupting"], it["remaining"]))
        })
        .collect()
}

fn busy(n: usize) -> Vec<Nodes> {
    (0..n).map(|it| node(&format!("n{it:02}"), "m.large").busy()).collect()
}

const UNLIMITED: &str = "2147483647 0 2147483647";

#[test] // lifecycle 17.4, case 1
fn percentages_round_up() {
    for (value, n, allowed) in [
        ("10%", 0, 0),
        ("10%", 1, 1),
        ("10%", 9, 1),
        ("10%", 10, 1),
        ("10%", 11, 2),
        ("20%", 19, 4),
        ("50%", 3, 2),
        ("33%", 10, 4),
        ("0%", 7, 0),
        ("100%", 7, 7),
        ("3", 1, 3),
    ] {
        let budgets = json!([{"nodes": value}]);
        let found = rows(&format!("round-{value}-{n}"), &budgets, busy(n), NOW);
        let row = format!("{allowed} 0 {allowed}");
        let expected: Vec<(&str, &str)> =
            [("Drifted", &*row), ("Empty", &*row), ("Underutilized", &*row)].into();
        let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(found, expected, "{value} of {n}");
    }
}

#[test] // lifecycle 17.2: the default, and an empty list
fn a_missing_list_is_ten_percent_and_an_empty_one_no_limit() {
    assert_eq!(rows("absent", &Value::Null, busy(25), NOW)["Empty"], "3 0 3");
    assert_eq!(rows("empty", &json!([]), busy(2), NOW)["Empty"], UNLIMITED);
}

#[test] // lifecycle 17.4, cases 2, 8 and 9
fn what_goes_or_is_not_ready_counts() {
    let going = |n: usize, of: usize| -> Vec<Nodes> {
        busy(of)
            .into_iter()
            .enumerate()
            .map(|(i, it)| if i < n { it.deleting() } else { it })
            .collect()
    };
    assert_eq!(rows("three", &json!([{"nodes": "4"}]), going(3, 10), NOW)["Empty"], "4 3 1");
    assert_eq!(rows("five", &json!([{"nodes": "4"}]), going(5, 10), NOW)["Empty"], "4 5 0");
    let mut nodes = going(1, 10);
    nodes[9] = nodes[9].clone().not_ready();
    assert_eq!(rows("not-ready", &json!([{"nodes": "2"}]), nodes.clone(), NOW)["Empty"], "2 2 0");
    nodes[0] = nodes[0].clone().with_condition("InstanceTerminating");
    assert_eq!(rows("terminating", &json!([{"nodes": "2"}]), nodes, NOW)["Empty"], "2 1 1");
    let half =
        busy(10).into_iter().enumerate().map(|(i, it)| if i < 4 { it.uninitialized() } else { it });
    assert_eq!(
        rows("uninitialized", &json!([{"nodes": "50%"}]), half.collect(), NOW)["Empty"],
        "3 0 3"
    );
}

#[test] // lifecycle 17.4, cases 3 to 7; bug reports B-029 and B-030
fn reasons_and_windows() {
    let three = json!([{"nodes": "20%", "reasons": ["Empty", "Drifted"]}, {"nodes": "5"}]);
    let mut four = three.clone();
    four.as_array_mut().expect("a list").push(
        json!({"nodes": "0", "schedule": "@daily", "duration": "10m", "reasons": ["Underutilized"]}),
    );
    let broken = json!([{"nodes": "5"},
        {"nodes": "3", "schedule": "0 0 * * tue-mon", "duration": "1h", "reasons": ["Empty"]}]);
    let office = json!([
        {"schedule": "0 8 * * mon-fri", "duration": "8h", "nodes": "10%", "reasons": ["Empty", "Underutilized"]},
        {"nodes": "0", "reasons": ["Drifted"]}]);
    let b030 = json!([{"nodes": "2"},
        {"schedule": "0 7 * * *", "duration": "20h", "nodes": "1", "reasons": ["Empty", "Drifted"]},
        {"schedule": "0 7 * * *", "duration": "20h", "nodes": "0", "reasons": ["Underutilized"]}]);
    let none = "0 0 0";
    for (name, budgets, n, now, drifted, empty, underutilized) in [
        ("3", &three, 19, NOW, "4 0 4", "4 0 4", "5 0 5"),
        ("3 of 30", &three, 30, NOW, "5 0 5", "5 0 5", "5 0 5"),
        ("4", &four, 19, "2026-03-02T00:05:00Z", "4 0 4", "4 0 4", none),
        ("4 after", &four, 19, "2026-03-02T00:10:00Z", "4 0 4", "4 0 4", "5 0 5"),
        (
            "5",
            &json!([{"nodes": "1", "reasons": ["Drifted"]}]),
            10,
            NOW,
            "1 0 1",
            UNLIMITED,
            UNLIMITED,
        ),
        ("6", &broken, 10, NOW, none, none, none),
        ("7", &json!([{"nodes": "0", "reasons": []}]), 10, NOW, UNLIMITED, UNLIMITED, UNLIMITED),
        ("B-030 morning", &b030, 10, "2026-03-02T08:00:00Z", "1 0 1", "1 0 1", none),
        ("B-030 night", &b030, 10, "2026-03-02T04:00:00Z", "2 0 2", "2 0 2", "2 0 2"),
        ("B-029 before", &office, 20, "2026-03-02T07:59:59Z", none, UNLIMITED, UNLIMITED),
        ("B-029 first", &office, 20, "2026-03-02T08:00:00Z", none, "2 0 2", "2 0 2"),
        ("B-029 last", &office, 20, "2026-03-02T15:59:59Z", none, "2 0 2", "2 0 2"),
        ("B-029 after", &office, 20, "2026-03-02T16:00:00Z", none, UNLIMITED, UNLIMITED),
        ("B-029 Saturday", &office, 20, "2026-03-07T12:00:00Z", none, UNLIMITED, UNLIMITED),
    ] {
        let found = rows(&format!("reasons-{name}"), budgets, busy(n), now);
        let found: Vec<&str> = found.values().map(String::as_str).collect();
        assert_eq!(found, [drifted, empty, underutilized], "case {name}");
    }
    // B-030: one is deleting already.
    let mut nodes = busy(10);
    nodes[0] = nodes[0].clone().deleting();
    for (now, expected) in [
        ("2026-03-02T08:00:00Z", ["1 1 0", "1 1 0", "0 1 0"]),
        ("2026-03-02T04:00:00Z", ["2 1 1", "2 1 1", "2 1 1"]),
    ] {
        let found = rows("reasons-deleting", &b030, nodes.clone(), now);
        assert_eq!(found.values().map(String::as_str).collect::<Vec<_>>(), expected, "{now}");
    }
}

#[test] // lifecycle 19.1, cases 1 and 2, and 17.2: what a budget holds back
fn emptiness_takes_what_budgets_allow_dearest_first() {
    let blocked = "No allowed disruptions for disruption reason Empty due to blocking budget";
    let a: Vec<Nodes> = (0..5).map(|it| node(&format!("a{it}"), "m.large").of("a")).collect();
    let objects = cluster![
        pool_that("a", json!({"budgets": [{"nodes": "2"}]})),
        pool_that("b", json!({"budgets": [{"nodes": "1"}]})),
        a,
        node("b0", "m.large").of("b"),
    ];
    let expected = [
        "Emptiness a0 a1 b0 saves 0.3".to_owned(),
        format!("a2: {blocked}"),
        format!("a3: {blocked}"),
        format!("a4: {blocked}"),
    ];
    assert_eq!(usual("emptiness-pools", objects), expected);
    let objects = cluster![
        pool_that("p", json!({"budgets": [{"nodes": "2"}]})),
        node("n1", "m.large"),
        node("n2", "m.2xlarge"),
        node("n3", "m.xlarge"),
    ];
    let expected = ["Emptiness n2 n3 saves 0.6".to_owned(), format!("n1: {blocked}")];
    assert_eq!(usual("emptiness-price", objects), expected);
}

#[test] // lifecycle 17.2: each method is held back in its own words
fn a_closed_budget_is_told_for_every_reason() {
    let text = |reason: &str| {
        format!("No allowed disruptions for disruption reason {reason} due to blocking budget")
    };
    let objects = cluster![
        pool_that("p", json!({"budgets": [{"nodes": "0"}]})),
        node("n1", "m.large"),
        node("n2", "m.large").pod("1"),
        node("n3", "m.large").pod("1").drifted(CREATED),
    ];
    assert_eq!(
        usual("closed", objects),
        [
            format!("n1: {}", text("Empty")),
            format!("n2: {}", text("Underutilized")),
            format!("n3: {}; {}", text("Drifted"), text("Underutilized")),
        ]
    );
}
