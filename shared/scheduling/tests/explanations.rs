//! The way of one pod in words.

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use common::*;
use serde_json::{Value, json};
use spokeshave_model::{Kind, labels};
use spokeshave_scheduling::{Batch, ClusterView, PoolInput, solve};

fn steps(
    view: &ClusterView,
    pools: &[PoolInput],
    requests: &[(&str, &str)],
    fields: Value,
) -> Vec<String> {
    let pod = pod("p", requests, fields);
    let batch = Batch { explain: Some(pod.key()), ..batch([pod]) };
    solve(view, pools, &batch, &options(), now()).steps
}

fn of_pool(fields: Value, requests: &[(&str, &str)], pod: Value) -> Vec<String> {
    let pools = [input(pool("default", fields), &catalogue_d())];
    let mut steps = steps(&ClusterView::default(), &pools, requests, pod);
    steps.retain(|it| it.starts_with("pool default: "));
    steps.iter().map(|it| it.trim_start_matches("pool default: ").to_owned()).collect()
}

#[test]
fn what_each_filter_leaves_and_what_would_make_the_pod_fit() {
    let tainted = json!({"spec": {"template": {"spec": {"taints":
        [{"key": "team", "effect": "NoSchedule"}]}}}});
    let small = json!({"spec": {"nodeSelector": {labels::INSTANCE_TYPE: "small-instance-type"}}});
    let all = "6 instance types, requirements leave 6, offerings leave 6, requests leave";
    for (fields, cpu, pod, expected) in [
        (
            json!({}),
            "90",
            json!({}),
            vec![
                format!("{all} 0"),
                "it would fit with requests of at most cpu 15900m (the most that a type leaves)".into(),
            ],
        ),
        (
            tainted,
            "1",
            json!({}),
            vec![format!("{all} 6"), "it would fit with a toleration of team:NoSchedule".into()],
        ),
        (
            json!({}),
            "3",
            small.clone(),
            vec![
                "6 instance types, requirements leave 1, offerings leave 1, requests leave 0".into(),
                "it would fit without node.kubernetes.io/instance-type In [small-instance-type]".into(),
                "it would fit with requests of at most cpu 1900m (the most that a type leaves)".into(),
            ],
        ),
        (
            json!({"spec": {"limits": {"cpu": "3"}}}),
            "3",
            json!({}),
            vec![
                "6 instance types, limits leave 1, requirements leave 1, offerings leave 1, requests leave 0".into(),
                "it would fit with higher limits of the NodePool".into(),
                "it would fit with requests of at most cpu 1900m (the most that a type leaves)".into(),
            ],
        ),
        (
            json!({}),
            "1",
            json!({"spec": {"nodeSelector": {"rack": "r9"}}}),
            vec!["6 instance types, requirements leave 0".into(), "it would fit without rack In [r9]".into()],
        ),
    ] {
        assert_eq!(of_pool(fields, &[("cpu", cpu)], pod), expected);
    }
    // Something that nothing in the world has.
    assert_eq!(
        of_pool(json!({}), &[("example.com/x", "1")], json!({})),
        [
            format!("{all} 0"),
            "it would fit with requests of at most example.com/x 0 (the most that a type leaves)"
                .into()
        ]
    );
}

#[test]
fn every_pool_and_node_is_told_of_in_the_order_in_which_they_are_tried() {
    let nowhere = requires(labels::ZONE, "In", &["nowhere"]);
    let pools = [
        input(pool("light", json!({})), &catalogue_d()),
        input(
            pool(
                "heavy",
                over(json!({"spec": {"weight": 5}}), requires(labels::ZONE, "In", &ZONES[..1])),
            ),
            &catalogue_d(),
        ),
        input(pool("none", nowhere), &catalogue_d()),
    ];
    let full = node("full", json!({"status": {"allocatable": {"cpu": "100m"}}}));
    let view = view([std::sync::Arc::new(full).into()]);
    let zone = json!({"spec": {"nodeSelector": {labels::ZONE: "test-zone-2"}}});
    let told = steps(&view, &pools, &[("cpu", "1")], zone);
    let starts: Vec<&str> = told.iter().map(|it| it.split(": ").next().unwrap_or("")).collect();
    assert_eq!(
        starts,
        [
            "asks for topology.kubernetes.io/zone In [test-zone-2]",
            "existing node full",
            "new claim of pool heavy",
            "pool heavy",
            "pool heavy",
            "new claim of pool light",
            "placed on new claim 1 of pool light"
        ]
    );
}
