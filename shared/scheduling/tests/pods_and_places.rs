//! Requests, taints, host ports, volumes and eligibility (`spec` scheduling 3 to 6, 9).

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use std::sync::Arc;

use common::*;
use serde_json::{Value, json};
use spokeshave_model::{
    core::{
        CSINode, PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget, StorageClass,
    },
    meta::from_value,
};
use spokeshave_scheduling::{ClusterView, Object, eligibility, requests::pod_requests};

fn raw(spec: Value) -> Pod {
    from_value(json!({"metadata": {"name": "p", "namespace": "default"}, "spec": spec}))
        .expect("a pod")
}

fn container(requests: Value) -> Value {
    json!({"name": "c", "resources": {"requests": requests}})
}

fn sidecar(requests: Value) -> Value {
    json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": requests}})
}

#[test] // scheduling 3, cases 1-5 and 8; B-004
fn requests_of_pods() {
    let two = json!([container(json!({"cpu": "100m"})), container(json!({"cpu": "200m"}))]);
    let six = json!([container(json!({"cpu": "6", "memory": "2Gi"}))]);
    let side = json!({"cpu": "4900m", "memory": "2.9Gi"});
    let main = json!([container(json!({"cpu": "300m"}))]);
    for (what, spec, cpu, memory) in [
        (
            "init below",
            json!({"containers": two, "initContainers": [container(json!({"cpu": "250m"}))]}),
            "300m",
            "0",
        ),
        (
            "init above",
            json!({"containers": two, "initContainers": [container(json!({"cpu": "400m"}))]}),
            "400m",
            "0",
        ),
        (
            "sidecar after",
            json!({"containers": six, "initContainers":
            [container(json!({"cpu": "10", "memory": "4Gi"})), sidecar(side.clone())]}),
            "10900m",
            "4.9Gi",
        ),
        (
            "sidecar before",
            json!({"containers": six, "initContainers":
            [sidecar(side.clone()), container(json!({"cpu": "6", "memory": "2Gi"}))]}),
            "10900m",
            "4.9Gi",
        ),
        (
            "sidecar before a larger one",
            json!({"containers": six, "initContainers":
            [sidecar(side), container(json!({"cpu": "7", "memory": "2Gi"}))]}),
            "11900m",
            "4.9Gi",
        ),
        (
            "pod level",
            json!({"containers": [container(json!({"cpu": "3", "memory": "1Gi", "example.com/gpu": "1"}))],
            "resources": {"requests": {"cpu": "9900m", "memory": "3.9Gi"}}}),
            "9900m",
            "3.9Gi",
        ),
        (
            "overhead",
            json!({"containers": [container(json!({"cpu": "1"}))], "overhead": {"cpu": "2"}}),
            "3",
            "0",
        ),
        (
            "two sidecars",
            json!({"containers": [container(json!({"cpu": "1"}))], "initContainers":
            [sidecar(json!({"cpu": "1"})), sidecar(json!({"cpu": "2"})), container(json!({"cpu": "500m"}))]}),
            "4",
            "0",
        ),
        (
            "B-004",
            json!({"containers": main, "initContainers":
            [sidecar(json!({"cpu": "200m"})), container(json!({"cpu": "500m"}))]}),
            "700m",
            "0",
        ),
        (
            "B-004 swapped",
            json!({"containers": main, "initContainers":
            [container(json!({"cpu": "500m"})), sidecar(json!({"cpu": "200m"}))]}),
            "500m",
            "0",
        ),
        (
            "B-004 second variant",
            json!({"containers": main, "overhead": {"cpu": "50m"}, "initContainers":
            [container(json!({"cpu": "900m"})), sidecar(json!({"cpu": "200m"}))]}),
            "950m",
            "0",
        ),
    ] {
        let requests = pod_requests(&raw(spec));
        assert_eq!(requests.get("cpu"), q(cpu), "{what}");
        assert_eq!(requests.get("memory"), q(memory), "{what}");
        assert_eq!(requests.get("pods"), q("1"), "{what}");
    }
}

#[test] // scheduling 3.1, step 4
fn resizes_under_way_count_with_the_largest_figure() {
    let mut pod = raw(json!({"containers": [container(json!({"cpu": "2"}))]}));
    let status = |infeasible: bool| {
        let conditions = if infeasible {
            json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}])
        } else {
            json!([])
        };
        serde_json::from_value(json!({"conditions": conditions, "containerStatuses": [{"name": "c",
            "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1500m"}}}]}))
        .expect("a status")
    };
    pod.status = status(false);
    assert_eq!(pod_requests(&pod).get("cpu"), q("2"));
    pod.status = status(true);
    assert_eq!(pod_requests(&pod).get("cpu"), q("1500m"));
}

const ANY: fn() -> Value = || json!({});

#[test] // scheduling 4, cases 1 and 2
fn pool_taints_count_and_startup_taints_do_not() {
    let types = catalogue_d();
    let taints = json!([{"key": "team", "value": "a", "effect": "NoSchedule"}]);
    let tainted = json!({"spec": {"template": {"spec": {"taints": taints}}}});
    let solution = plan_new(tainted.clone(), &types, [pod("p", &[], ANY())]);
    assert_eq!(reason(&solution, "p"), "did not tolerate taint team=a:NoSchedule");
    let tolerant = json!({"spec": {"tolerations": [{"key": "team", "operator": "Exists"}]}});
    let solution = plan_new(tainted, &types, [pod("p", &[], tolerant)]);
    assert_eq!(claims(&solution), [["p"]]);
    let starting = json!({"spec": {"template": {"spec": {"startupTaints": taints}}}});
    let solution = plan_new(starting, &types, [pod("p", &[], ANY())]);
    assert_eq!(claims(&solution), [["p"]]);
}

/// A managed node with these taints; the claim's startup taint is `boot=true:NoSchedule`.
fn starting(initialized: bool, taints: Value) -> Vec<Object> {
    let mut labels = json!({"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true",
        "node.kubernetes.io/instance-type": "default-instance-type", "kubernetes.io/hostname": "n1"});
    if initialized {
        labels["karpenter.sh/initialized"] = json!("true");
    }
    let node = node("n1", json!({"metadata": {"labels": labels}, "spec": {"taints": taints}}));
    let claim = json!({"metadata": {"name": "c1", "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [], "startupTaints": [{"key": "boot", "value": "true", "effect": "NoSchedule"}]},
        "status": {"providerID": "aws:///z/n1"}});
    let claim: spokeshave_model::NodeClaim = from_value(claim).expect("a claim");
    vec![Arc::new(node).into(), Arc::new(claim).into()]
}

#[test] // scheduling 4, cases 3-8; B-014, B-016
fn taints_of_nodes_that_start() {
    let not_ready = |effect: &str| json!({"key": "node.kubernetes.io/not-ready", "effect": effect});
    let boot = json!({"key": "boot", "value": "true", "effect": "NoSchedule"});
    for (what, initialized, taints, usable) in [
        ("starting", false, json!([not_ready("NoExecute"), boot]), true),
        ("startup taint after the start", true, json!([boot]), false),
        ("went NotReady", true, json!([not_ready("NoSchedule")]), false),
        (
            "unknown taint",
            false,
            json!([{"key": "custom", "value": "1", "effect": "NoSchedule"}]),
            false,
        ),
        (
            "readiness",
            false,
            json!([{"key": "readiness.k8s.io/gpu", "effect": "NoSchedule"}]),
            true,
        ),
        (
            "unregistered",
            false,
            json!([{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]),
            true,
        ),
    ] {
        let view = view(starting(initialized, taints));
        let pools = [input(pool("default", ANY()), &catalogue_d())];
        let solution = plan(&view, &pools, [pod("p", &[("cpu", "1")], ANY())]);
        assert_eq!(solution.existing.len(), usize::from(usable), "{what}");
        assert_eq!(solution.new_claims.len(), usize::from(!usable), "{what}");
    }
    let unmanaged = node(
        "u",
        json!({"spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]}}),
    );
    let view = view([Arc::new(unmanaged).into()]);
    let pools = [input(pool("default", ANY()), &catalogue_d())];
    assert!(plan(&view, &pools, [pod("p", &[], ANY())]).existing.is_empty());
}

#[test] // A cordoned node whose taint has not come yet.
fn cordoned_nodes_take_what_tolerates_the_cordon() {
    let cordoned = node("n1", json!({"spec": {"unschedulable": true}}));
    let view = view([Arc::new(cordoned).into()]);
    let pools = [input(pool("default", ANY()), &catalogue_d())];
    let tolerant =
        |key: &str| json!({"spec": {"tolerations": [{"key": key, "operator": "Exists"}]}});
    for (fields, taken) in [
        (ANY(), false),
        (tolerant("node.kubernetes.io/unschedulable"), true),
        (tolerant("node.kubernetes.io/not-ready"), false),
    ] {
        let solution = plan(&view, &pools, [pod("p", &[("cpu", "1")], fields)]);
        assert_eq!(solution.existing.len(), usize::from(taken));
        assert_eq!(solution.new_claims.len(), usize::from(!taken));
    }
}

fn with_port(name: &str, ip: &str, port: i32, protocol: &str) -> Pod {
    pod(
        name,
        &[],
        json!({"spec": {"containers": [{"name": "c", "ports":
            [{"containerPort": port, "hostPort": port, "hostIP": ip, "protocol": protocol}]}]}}),
    )
}

#[test] // scheduling 5, cases 1-4 and 7
fn host_ports_conflict() {
    for (what, a, b, n_claims) in [
        ("same", ("", "TCP"), ("", "TCP"), 2),
        ("protocols", ("", "TCP"), ("", "UDP"), 1),
        ("any address", ("127.0.0.1", "TCP"), ("0.0.0.0", "TCP"), 2),
        ("two addresses", ("1.3.4.5", "TCP"), ("1.2.3.4", "TCP"), 1),
        ("any address of IPv6", ("::", "TCP"), ("10.0.0.1", "TCP"), 2),
    ] {
        let pods = [with_port("a", a.0, 80, a.1), with_port("b", b.0, 80, b.1)];
        assert_eq!(plan_new(ANY(), &catalogue_d(), pods).new_claims.len(), n_claims, "{what}");
    }
}

#[test] // scheduling 5, cases 5 and 6
fn host_ports_of_daemons() {
    let ports = json!([{"containerPort": 8080, "hostPort": 8080}]);
    let everywhere = daemon_set("ds", &[], json!({"containers": [{"name": "c", "ports": ports}]}));
    let some = daemon_set(
        "ds",
        &[],
        json!({"containers": [{"name": "c", "ports": ports}],
               "nodeSelector": {"node.kubernetes.io/instance-type": "small-instance-type"}}),
    );
    let pools = [input(pool("default", ANY()), &catalogue_d())];
    let wanted = || [with_port("p", "", 8080, "TCP")];
    let solution = plan(&view([Arc::new(everywhere).into()]), &pools, wanted());
    assert!(reason(&solution, "p").starts_with(
        "no instance type met the scheduling requirements or had enough resources or had a required offering"
    ));
    let solution = plan(&view([Arc::new(some).into()]), &pools, wanted());
    assert!(!types(&solution)[0].contains(&"small-instance-type"));
    assert_eq!(types(&solution)[0].len(), 5);
}

// Volumes.

fn claim(name: &str, spec: Value, status: Value) -> Object {
    let bound = !spec["volumeName"].is_null();
    let annotations =
        if bound { json!({"pv.kubernetes.io/bind-completed": "yes"}) } else { json!({}) };
    let value = json!({"metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": spec, "status": status});
    Arc::new(from_value::<PersistentVolumeClaim>(value).expect("a claim")).into()
}

fn volume(name: &str, spec: Value) -> Object {
    let value = json!({"metadata": {"name": name}, "spec": spec});
    Arc::new(from_value::<PersistentVolume>(value).expect("a volume")).into()
}

fn class(name: &str, fields: Value) -> Object {
    let base = json!({"metadata": {"name": name}, "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer"});
    Arc::new(from_value::<StorageClass>(over(base, fields)).expect("a class")).into()
}

fn terms(terms: &[&[(&str, &[&str])]]) -> Value {
    let terms: Vec<Value> = terms
        .iter()
        .map(|term| {
            let all: Vec<Value> = term
                .iter()
                .map(|(key, values)| json!({"key": key, "operator": "In", "values": values}))
                .collect();
            json!({"matchExpressions": all})
        })
        .collect();
    json!({"required": {"nodeSelectorTerms": terms}})
}

fn with_volumes(name: &str, claims: &[&str], fields: Value) -> Pod {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|it| json!({"name": it, "persistentVolumeClaim": {"claimName": it}}))
        .collect();
    pod(name, &[("cpu", "100m")], over(json!({"spec": {"volumes": volumes}}), fields))
}

const ZONE: &str = "topology.kubernetes.io/zone";

#[test] // scheduling 6, cases 1-3, 6, 8 and 9
fn volumes_decide_where_claims_may_be() {
    let csi =
        |affinity: Value| json!({"csi": {"driver": "ebs.csi.aws.com"}, "nodeAffinity": affinity});
    let bound = |affinity: Value| {
        vec![claim("v", json!({"volumeName": "pv"}), json!({})), volume("pv", csi(affinity))]
    };
    let unbound = |zones: &[&str]| {
        let topologies = json!([{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]);
        vec![
            claim("v", json!({"storageClassName": "sc"}), json!({})),
            class("sc", json!({"allowedTopologies": topologies})),
        ]
    };
    let zones_12 = json!({"spec": {"template": {"spec": {"requirements":
        [{"key": ZONE, "operator": "In", "values": ["test-zone-1", "test-zone-2"]}]}}}});
    let local = |affinity: Value| {
        vec![
            claim("v", json!({"volumeName": "pv"}), json!({})),
            volume("pv", json!({"local": {}, "nodeAffinity": affinity})),
        ]
    };
    let two = vec![
        claim("v", json!({"volumeName": "a"}), json!({})),
        claim("w", json!({"volumeName": "b"}), json!({})),
        volume("a", csi(terms(&[&[(ZONE, &["test-zone-1"])], &[(ZONE, &["test-zone-2"])]]))),
        volume("b", csi(terms(&[&[(ZONE, &["test-zone-2"])], &[(ZONE, &["test-zone-3"])]]))),
    ];
    for (what, objects, fields, zone) in [
        (
            "allowed topologies",
            unbound(&["test-zone-1", "test-zone-2"]),
            ANY(),
            Some("In [test-zone-1 test-zone-2]"),
        ),
        (
            "a zone that the pool leaves out",
            bound(terms(&[&[(ZONE, &["test-zone-3"])]])),
            zones_12,
            None,
        ),
        (
            "the second alternative",
            bound(terms(&[
                &[(ZONE, &["test-zone-2"]), ("rack", &["r9"])],
                &[(ZONE, &["test-zone-1"])],
            ])),
            ANY(),
            Some("In [test-zone-1]"),
        ),
        (
            "the key of the CSI driver",
            bound(terms(&[&[("topology.ebs.csi.aws.com/zone", &["test-zone-2"])]])),
            ANY(),
            Some("In [test-zone-2]"),
        ),
        (
            "a local volume",
            local(terms(&[&[("kubernetes.io/hostname", &["old"]), (ZONE, &["test-zone-1"])]])),
            ANY(),
            Some("In [test-zone-1]"),
        ),
        (
            "a local volume without zone",
            local(terms(&[&[("kubernetes.io/hostname", &["old"])]])),
            ANY(),
            Some(""),
        ),
        ("two volumes", two, ANY(), Some("In [test-zone-2]")),
    ] {
        let names: &[&str] = if what == "two volumes" { &["v", "w"] } else { &["v"] };
        let pools = [input(pool("default", fields), &catalogue_d())];
        let solution = plan(&view(objects), &pools, [with_volumes("p", names, ANY())]);
        match zone {
            None => assert!(reason(&solution, "p").contains("not in"), "{what}"),
            Some("") => assert_eq!(requirement(&solution, 0, ZONE), "", "{what}"),
            Some(zone) => {
                assert_eq!(requirement(&solution, 0, ZONE), format!("{ZONE} {zone}"), "{what}");
            }
        }
    }
    let objects = bound(terms(&[&[(ZONE, &["test-zone-3"])]]));
    let pools = [input(pool("default", ANY()), &catalogue_d())];
    let selected = json!({"spec": {"nodeSelector": {ZONE: "test-zone-1"}}});
    let solution = plan(&view(objects), &pools, [with_volumes("p", &["v"], selected)]);
    assert_eq!(solution.new_claims.len(), 0);
}

fn attachable(limit: Value, attached: usize) -> Vec<Object> {
    let csi: CSINode = from_value(json!({"metadata": {"name": "n1"}, "spec": {"drivers":
        [{"name": "ebs.csi.aws.com", "nodeID": "i", "topologyKeys": [], "allocatable": limit}]}}))
    .expect("a CSINode");
    let mut objects: Vec<Object> = vec![
        Arc::new(node("n1", json!({"status": {"allocatable": {"pods": "100"}}}))).into(),
        Arc::new(csi).into(),
    ];
    objects.push(class("sc", json!({})));
    for at in 0..attached {
        let name = format!("used-{at}");
        objects.push(claim(&name, json!({"storageClassName": "sc"}), json!({})));
        let bound = with_volumes(
            &format!("b{at}"),
            &[&name],
            json!({"spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}),
        );
        objects.push(Arc::new(bound).into());
    }
    objects
}

#[test] // scheduling 6, cases 4 and 5; B-013
fn attach_limits_of_existing_nodes() {
    let pools = [input(pool("default", ANY()), &catalogue_d())];
    let fresh = |n: usize| -> Vec<Object> {
        (0..n)
            .map(|at| claim(&format!("new-{at}"), json!({"storageClassName": "sc"}), json!({})))
            .collect()
    };
    let mut objects = attachable(json!({"count": 10}), 9);
    objects.extend(fresh(2));
    let wanted =
        [with_volumes("two", &["new-0", "new-1"], ANY()), with_volumes("used", &["used-0"], ANY())];
    let solution = plan(&view(objects), &pools, wanted);
    assert_eq!(claims(&solution), [["two"]]);
    assert_eq!(names(&solution.existing[0].pods), ["used"]);

    let mut objects = attachable(json!({"count": 10}), 0);
    objects.extend(fresh(12));
    let wanted = (0..6).map(|at| {
        with_volumes(
            &format!("p{at}"),
            &[&format!("new-{}", 2 * at), &format!("new-{}", 2 * at + 1)],
            ANY(),
        )
    });
    let solution = plan(&view(objects), &pools, wanted);
    assert_eq!((solution.existing[0].pods.len(), solution.new_claims.len()), (5, 1));

    // B-013: one of two fits. Without a count there is no limit.
    for (limit, there) in [(json!({"count": 5}), 1), (json!({}), 2)] {
        let mut objects = attachable(limit, 4);
        objects.extend(fresh(2));
        let wanted = [with_volumes("a", &["new-0"], ANY()), with_volumes("b", &["new-1"], ANY())];
        let solution = plan(&view(objects), &pools, wanted);
        assert_eq!(solution.existing[0].pods.len(), there);
        assert_eq!(solution.new_claims.len(), 2 - there, "the other one gets a node");
    }
}

#[test] // scheduling 6.2 and case 7
fn claims_that_cannot_be_used() {
    let check = |objects: Vec<Object>| {
        eligibility::validate(&with_volumes("p", &["v"], ANY()), &view(objects)).err()
    };
    let sc = |mode: &str| class("sc", json!({"volumeBindingMode": mode}));
    let unbound = || claim("v", json!({"storageClassName": "sc"}), json!({}));
    let pv = || volume("pv", json!({"csi": {"driver": "d"}}));
    assert_eq!(check(vec![unbound(), sc("WaitForFirstConsumer")]), None);
    assert_eq!(check(vec![claim("v", json!({"volumeName": "pv"}), json!({})), pv()]), None);
    let unfinished: PersistentVolumeClaim =
        from_value(json!({"metadata": {"name": "v", "namespace": "default"},
        "spec": {"volumeName": "pv"}}))
        .expect("a claim");
    let going = |fields: Value| {
        over(fields, json!({"metadata": {"deletionTimestamp": "2026-03-01T11:59:00Z"}}))
    };
    let leaving: PersistentVolumeClaim = from_value(going(
        json!({"metadata": {"name": "v", "namespace": "default"}, "spec": {"storageClassName": "sc"}}),
    ))
    .expect("a claim");
    let leaving_volume: PersistentVolume =
        from_value(going(json!({"metadata": {"name": "pv"}, "spec": {"csi": {"driver": "d"}}})))
            .expect("a volume");
    for objects in [
        vec![],
        vec![Arc::new(leaving).into(), sc("WaitForFirstConsumer")],
        vec![claim("v", json!({"volumeName": "pv"}), json!({})), Arc::new(leaving_volume).into()],
        vec![unbound(), sc("Immediate")],
        vec![unbound()],
        vec![claim("v", json!({}), json!({}))],
        vec![claim("v", json!({"volumeName": "pv"}), json!({}))],
        vec![
            claim("v", json!({"storageClassName": "sc"}), json!({"phase": "Lost"})),
            sc("WaitForFirstConsumer"),
        ],
        vec![Arc::new(unfinished).into(), pv()],
    ] {
        let (text, event) = check(objects).expect("refused");
        assert!(event && text.contains('"'), "{text}");
    }
}

// Eligibility.

#[test] // scheduling 9, cases 1-3
fn which_pods_are_placed() {
    let owner = |kind: &str, version: &str| json!({"metadata": {"ownerReferences": [{"apiVersion": version, "kind": kind, "name": "o", "uid": "u"}]}});
    for (what, fields, placed) in [
        ("unschedulable", ANY(), true),
        (
            "gated",
            json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}}),
            false,
        ),
        ("no condition", json!({"status": {"conditions": []}}), false),
        ("DaemonSet", owner("DaemonSet", "apps/v1"), false),
        ("mirror", owner("Node", "v1"), false),
        ("preempting", json!({"status": {"nominatedNodeName": "n1"}}), false),
        ("bound", json!({"spec": {"nodeName": "n1"}}), false),
        ("being deleted", json!({"metadata": {"deletionTimestamp": "2026-03-01T11:00:00Z"}}), true),
    ] {
        assert_eq!(eligibility::is_provisionable(&pod("p", &[], fields)), placed, "{what}");
    }
}

#[test] // scheduling 9, cases 4 and 5
fn which_pods_are_refused() {
    let select = |key: &str, value: &str| json!({"spec": {"nodeSelector": {key: value}}});
    let require = |expression: Value| {
        json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}}})
    };
    let fields = json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}}});
    for (what, fields, refusal) in [
        (
            "host name",
            select("kubernetes.io/hostname", "n1"),
            Some(("label kubernetes.io/hostname is restricted", true)),
        ),
        (
            "own domain",
            select("karpenter.sh/foo", "x"),
            Some(("label karpenter.sh/foo is restricted", true)),
        ),
        (
            "subdomain",
            select("a.karpenter.k8s.aws/foo", "x"),
            Some(("label a.karpenter.k8s.aws/foo is restricted", true)),
        ),
        ("pool", select("karpenter.sh/nodepool", "default"), None),
        ("node restriction", select("node-restriction.kubernetes.io/x", "y"), None),
        (
            "avoids us",
            require(json!({"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"})),
            Some(("configured to not run on a Karpenter provisioned node", false)),
        ),
        (
            "match fields",
            fields,
            Some(("node selector term with matchFields is not supported", true)),
        ),
        (
            "no value",
            require(json!({"key": "a", "operator": "In", "values": []})),
            Some(("key a with operator In must have a value", true)),
        ),
        (
            "negative",
            require(json!({"key": "a", "operator": "Gt", "values": ["-1"]})),
            Some(("key a with operator Gt must have one integer >= 0", true)),
        ),
        (
            "unknown operator",
            require(json!({"key": "a", "operator": "Foo", "values": ["b"]})),
            Some((
                "key a has an unknown operator Foo, expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte",
                true,
            )),
        ),
        (
            "unknown capacity type",
            require(
                json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["xspot"]}),
            ),
            Some(("key karpenter.sh/capacity-type has no known value among [\"xspot\"]", true)),
        ),
    ] {
        let refused = eligibility::validate(&pod("p", &[], fields), &ClusterView::default()).err();
        let refused = refused.as_ref().map(|(text, event)| (text.as_str(), *event));
        assert_eq!(refused, refusal, "{what}");
    }
}

#[test] // scheduling 9, cases 6-8; B-024
fn which_pods_of_nodes_going_away_move() {
    let going = node("n1", json!({"metadata": {"deletionTimestamp": "2026-03-01T11:59:00Z"}}));
    let on = |name: &str, fields: Value| -> Object {
        let base = json!({"spec": {"nodeName": "n1"}, "status": {"phase": "Running", "startTime": "2026-03-01T11:49:00Z"}});
        Arc::new(pod(name, &[], over(base, fields))).into()
    };
    let annotated =
        |value: &str| json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": value}}});
    let ending = |kind: &str| {
        json!({"metadata": {"deletionTimestamp": "2026-03-01T11:59:00Z",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u"}]}})
    };
    let guarded: PodDisruptionBudget =
        from_value(json!({"metadata": {"name": "pdb", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "guarded"}}}}))
        .expect("a budget");
    let view = view([
        Arc::new(going).into(),
        Arc::new(guarded).into(),
        on("bare", ANY()),
        on("held", annotated("true")),
        on("held-long", annotated("15m")),
        on("let-go", annotated("10m")),
        on("stateful", ending("StatefulSet")),
        on("ending", ending("ReplicaSet")),
        on(
            "daemon",
            json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "o", "uid": "u"}]}}),
        ),
        on(
            "mirror",
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}]}}),
        ),
        on("guarded", json!({"metadata": {"labels": {"app": "guarded"}}})),
    ]);
    let moving = eligibility::displaced(&view, now());
    assert_eq!(names(&moving), ["bare", "let-go", "stateful"]);
}

/// Pods with one EBS claim each, and the claims.
fn pods_with_volumes(n: usize) -> (Vec<Object>, Vec<Pod>) {
    let mut objects: Vec<Object> = vec![class("sc", json!({}))];
    let pods = (0..n)
        .map(|at| {
            let spec = json!({"storageClassName": "sc"});
            objects.push(claim(&format!("v{at}"), spec, json!({})));
            let requests = json!({"spec": {"containers":
                [{"name": "c", "resources": {"requests": {"cpu": "10m"}}}]}});
            with_volumes(&format!("p{at:02}"), &[&format!("v{at}")], requests)
        })
        .collect();
    (objects, pods)
}

#[test] // scheduling 6.1: attach limits of nodes that do not exist yet
fn attach_limits_of_new_nodes() {
    let of = |hypervisor: Option<&str>| {
        let mut type_ = Fake::new("type", 16, 64).pods(100).build();
        if let Some(it) = hypervisor {
            let key = spokeshave_model::labels::INSTANCE_HYPERVISOR;
            type_.requirements.add(spokeshave_model::Requirement::equals(key, it));
        }
        let (objects, pods) = pods_with_volumes(60);
        let pools = [input(pool("default", json!({})), &catalogue([type_]))];
        let solution = plan(&view(objects), &pools, pods);
        assert!(solution.unschedulable.is_empty());
        solution.new_claims.iter().map(|it| it.pods.len()).collect::<Vec<_>>()
    };
    assert_eq!(of(Some("nitro")), [25, 25, 10]);
    assert_eq!(of(Some("xen")), [39, 21]);
    assert_eq!(of(None), [60], "nobody knows a limit");
}

#[test] // B-013, second half
fn a_driver_that_has_not_registered_yet_is_not_without_limit() {
    let existing = |csi_node: bool, labels: Value| {
        let (mut objects, pods) = pods_with_volumes(40);
        let status = json!({"labels": labels});
        let host =
            node("n1", json!({"metadata": status, "status": {"allocatable": {"pods": "100"}}}));
        objects.push(Arc::new(host).into());
        if csi_node {
            let csi: CSINode = from_value(json!({"metadata": {"name": "n1"}, "spec": {"drivers":
                [{"name": "efs.csi.aws.com", "nodeID": "i"}]}}))
            .expect("a CSINode");
            objects.push(Arc::new(csi).into());
        }
        let pools = [input(pool("default", json!({})), &catalogue_f(1))];
        let solution = plan(&view(objects), &pools, pods);
        solution.existing.iter().map(|it| it.pods.len()).sum::<usize>()
    };
    assert_eq!(existing(true, json!({})), 25);
    let xen = json!({spokeshave_model::labels::INSTANCE_HYPERVISOR: "xen"});
    assert_eq!(existing(true, xen.clone()), 39);
    assert_eq!(existing(false, xen), 39);
    assert_eq!(
        existing(false, json!({})),
        40,
        "no node that EBS could be attached to, for all we know"
    );
}

#[test] // B-014, case 2
fn an_unknown_taint_of_a_node_that_starts_is_named() {
    let taint = json!([{"key": "cni.example/not-ready", "effect": "NoExecute"}]);
    let host = node(
        "n1",
        json!({"metadata": {"labels": {"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true",
            "node.kubernetes.io/instance-type": "default-instance-type"}}, "spec": {"taints": taint}}),
    );
    let order = |start_up: Value| -> spokeshave_model::NodeClaim {
        from_value(json!({"metadata": {"name": "c1", "labels": {"karpenter.sh/nodepool": "default"}},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                     "startupTaints": start_up},
            "status": {"providerID": "aws:///z/n1"}}))
        .expect("a claim")
    };
    let pools = [input(pool("default", json!({})), &catalogue_d())];
    let place = |start_up: Value| {
        let objects: [Object; 2] =
            [Arc::new(host.clone()).into(), Arc::new(order(start_up)).into()];
        plan(&view(objects), &pools, [pod("p", &[("cpu", "1")], json!({}))])
    };
    let known = place(taint.clone());
    assert!(known.new_claims.is_empty() && known.start_up_taints.is_empty());
    let unknown = place(json!([]));
    assert_eq!(unknown.new_claims.len(), 1);
    let named = [("n1".to_owned(), "cni.example/not-ready:NoExecute".to_owned())];
    assert_eq!(unknown.start_up_taints, named.into());
}
