//! The way of one pod in words.

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use std::sync::Arc;

use common::*;
use serde_json::{Value, json};
use spokeshave_model::{
    Kind,
    core::{CSINode, PersistentVolumeClaim, StorageClass},
    labels,
    meta::from_value,
};
use spokeshave_scheduling::{Batch, ClusterView, Object, PoolInput, solve};

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
    let view = view([Arc::new(full).into()]);
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

/// What stands between the pod and the node `n`, or new claims, of the answer.
fn told_of(steps: &[String], place: &str) -> String {
    let found = steps.iter().find_map(|it| it.strip_prefix(&format!("{place}: ")));
    found.unwrap_or_default().to_owned()
}

#[test]
fn nodes_say_of_what_they_have_too_little() {
    let node =
        node("n", json!({"status": {"allocatable": {"cpu": "3", "memory": "1Gi", "pods": "10"}}}));
    let port = |pod: &str| {
        json!({"metadata": {"name": pod}, "spec": {"containers": [{"name": "c",
        "resources": {"requests": {"cpu": "1"}},
        "ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}]}]}})
    };
    let holder = pod(
        "holder",
        &[],
        over(port("holder"), json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}})),
    );
    let view = view([Arc::new(node).into(), Arc::new(holder).into()]);
    for (requests, fields, expected) in [
        (
            vec![("cpu", "2500m"), ("memory", "2Gi"), ("example.com/gpu", "1")],
            json!({}),
            "not enough room: asks for cpu 2500m of 2, example.com/gpu 1 of 0, memory 2Gi of 1Gi",
        ),
        (vec![], port("p"), "host port 8080/TCP is taken"),
    ] {
        let told = steps(&view, &[], &requests, fields);
        assert_eq!(told_of(&told, "existing node n"), expected);
    }
}

/// Three claims of one storage class in `test-zone-1`, two of them on the node `n` in that zone, which attaches two.
fn with_volumes() -> ClusterView {
    let of = |text: Value| from_value::<PersistentVolumeClaim>(text).expect("a claim");
    let mut objects: Vec<Object> = (0..3)
        .map(|n| {
            of(json!({"metadata": {"name": format!("v{n}"), "namespace": "default"},
            "spec": {"storageClassName": "fast"}}))
        })
        .map(|it| Arc::new(it).into())
        .collect();
    let class: StorageClass =
        from_value(json!({"metadata": {"name": "fast"}, "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": [
            {"matchLabelExpressions": [{"key": labels::ZONE, "values": [ZONES[0]]}]}]}))
        .expect("a class");
    let limits: CSINode = from_value(json!({"metadata": {"name": "n"}, "spec": {"drivers": [
        {"name": "ebs.csi.aws.com", "nodeID": "n", "allocatable": {"count": 2}}]}}))
    .expect("limits");
    objects.push(Arc::new(class).into());
    objects.push(Arc::new(limits).into());
    for (name, zone) in [("n", ZONES[0]), ("o", ZONES[1])] {
        objects.push(
            Arc::new(node(name, json!({"metadata": {"labels": {labels::ZONE: zone}}}))).into(),
        );
    }
    for n in 0..2 {
        let fields =
            over(volume(n), json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}));
        objects.push(Arc::new(pod(&format!("there-{n}"), &[], fields)).into());
    }
    view(objects)
}

fn volume(n: usize) -> Value {
    json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": format!("v{n}")}}]}})
}

#[test]
fn volumes_and_topology_are_named_as_what_they_are() {
    let far = [input(pool("default", requires(labels::ZONE, "In", &[ZONES[1]])), &catalogue_d())];
    let told = steps(&with_volumes(), &far, &[], volume(2));
    assert_eq!(
        told_of(&told, "existing node n"),
        "ebs.csi.aws.com attaches at most 2 volumes: 2 are there, and 1 would come"
    );
    assert_eq!(told_of(&told, "existing node o"), "its volumes are elsewhere");
    assert!(
        told.iter()
            .any(|it| it
                == "pool default: it would fit if its volumes were where the pool makes nodes"),
        "{told:#?}"
    );

    let near = over(
        affine("podAffinity", "nobody", labels::ZONE),
        json!({"metadata": {"labels": {"app": "a"}}}),
    );
    let apart = spreads(vec![spread("a", "rack", json!({}))]);
    for (fields, start, remedy) in [
        (
            near,
            "unsatisfiable topology constraint for pod affinity, key=topology.kubernetes.io/zone (counts = ",
            "it would fit without its pod affinity on topology.kubernetes.io/zone",
        ),
        (
            apart,
            "unsatisfiable topology constraint for topology spread, key=rack (counts = ",
            "it would fit without its topology spread over rack",
        ),
    ] {
        let pools = [input(pool("default", json!({})), &catalogue_d())];
        let told = steps(&with_volumes(), &pools, &[], fields);
        for place in ["existing node o", "new claim of pool default"] {
            assert!(told_of(&told, place).starts_with(start), "{told:#?}");
        }
        assert!(told.iter().any(|it| *it == format!("pool default: {remedy}")), "{told:#?}");
    }
}

/// A pod that is tried on a claim of the same plan, after `first`.
fn after(first: Value, requests: &[(&str, &str)], fields: Value, types: &Catalogue) -> String {
    let pods = [pod("a", &[("cpu", "1")], first), pod("p", requests, fields)];
    let batch = Batch { explain: Some(pods[1].key()), ..batch(pods) };
    let pools = [input(pool("default", json!({})), types)];
    let told = solve(&ClusterView::default(), &pools, &batch, &options(), now()).steps;
    told_of(&told, "new claim 1 of pool default")
}

#[test]
fn claims_of_the_same_plan_say_why_they_are_not_narrowed() {
    let zone = |it: &str| json!({"spec": {"nodeSelector": {labels::ZONE: it}}});
    let d = catalogue_d();
    assert_eq!(
        after(zone(ZONES[0]), &[], zone(ZONES[1]), &d),
        "key topology.kubernetes.io/zone, topology.kubernetes.io/zone In [test-zone-2] not in \
         topology.kubernetes.io/zone In [test-zone-1]"
    );
    assert_eq!(
        after(json!({}), &[("cpu", "900m"), ("memory", "127Gi")], zone(ZONES[1]), &catalogue_f(3)),
        "no instance type has room for it, too"
    );
    let apart = affine("podAntiAffinity", "a", labels::HOSTNAME);
    let first = json!({"metadata": {"labels": {"app": "a"}}});
    assert_eq!(
        after(first, &[], apart, &d),
        "unsatisfiable topology constraint for pod anti-affinity, key=kubernetes.io/hostname (counts = 1 hosts with \
         pods, podDomains = kubernetes.io/hostname Exists, nodeDomains = kubernetes.io/hostname Exists)"
    );
    let ports = json!({"spec": {"containers": [{"name": "c", "ports": [
        {"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]}]}});
    assert_eq!(after(ports.clone(), &[], ports, &d), "a host port is taken");
    let on = |name: &str| json!({"spec": {"nodeSelector": {labels::INSTANCE_TYPE: name}}});
    assert_eq!(
        after(
            on("small-instance-type"),
            &[],
            json!({"spec": {"nodeSelector": {labels::ARCH: "arm64"}}}),
            &d
        ),
        "no instance type is left with it, too"
    );
}
