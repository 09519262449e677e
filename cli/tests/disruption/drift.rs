//! Drift: found in the input, in which order, and of static pools (lifecycle 9 and 19).

use serde_json::{Value, json};

use crate::builders::*;

/// The drift reason that the answer gives for node `n`, empty when nothing drifts.
fn reason(name: &str, pool: Value, class: Value, node: Nodes) -> String {
    let answer = plan(name, &[], &one_type(), &cluster![pool, class, node.pod("1")]);
    let command = &answer["commands"][0];
    if command["method"] != "Drift" {
        return String::new();
    }
    assert_eq!(command["reason"], "Drifted");
    assert_eq!(command["candidates"], json!(["n"]));
    command["why"].as_str().expect("text").trim_start_matches("drifted: ").to_owned()
}

fn hashed(of: &str, hash: &str, version: &str) -> Value {
    let key = format!("{of}-hash");
    let version_key = format!("{of}-hash-version");
    json!({"metadata": {"annotations": {key: hash, version_key: version}}})
}

#[test] // lifecycle 9, rules 1 and 4; 9.1, cases 1, 5, 6 and 14; bug report B-032
fn hashes_of_one_version_are_compared() {
    let (of_pool, of_class) = ("karpenter.sh/nodepool", "karpenter.k8s.aws/ec2nodeclass");
    let n = || node("n", "m.large");
    let none = || json!({});
    for (name, pool_patch, class_patch, node, expected) in [
        ("same", hashed(of_pool, "1", "v3"), none(), n().claim(hashed(of_pool, "1", "v3")), ""),
        (
            "other",
            hashed(of_pool, "1", "v3"),
            none(),
            n().claim(hashed(of_pool, "2", "v3")),
            "NodePoolDrifted",
        ),
        ("case 5", hashed(of_pool, "1", "v2"), none(), n().claim(hashed(of_pool, "2", "v3")), ""),
        ("not on the claim", hashed(of_pool, "1", "v3"), none(), n(), ""),
        // The hash of a pool that nobody has annotated yet is that of its fields.
        (
            "not on the pool",
            none(),
            none(),
            n().claim(hashed(of_pool, "2", "v3")),
            "NodePoolDrifted",
        ),
        (
            "not on the class",
            none(),
            none(),
            n().claim(hashed(of_class, "2", "v6")),
            "NodeClassDrift",
        ),
        (
            "not on the class, other version",
            none(),
            none(),
            n().claim(hashed(of_class, "2", "v5")),
            "",
        ),
        (
            "class same",
            none(),
            hashed(of_class, "1", "v6"),
            n().claim(hashed(of_class, "1", "v6")),
            "",
        ),
        (
            "case 14",
            none(),
            hashed(of_class, "1", "v6"),
            n().claim(hashed(of_class, "2", "v6")),
            "NodeClassDrift",
        ),
        (
            "class version",
            none(),
            hashed(of_class, "1", "v5"),
            n().claim(hashed(of_class, "2", "v6")),
            "",
        ),
        (
            "case 6",
            hashed(of_pool, "1", "v3"),
            hashed(of_class, "1", "v6"),
            n().claim(hashed(of_pool, "2", "v3")).claim(hashed(of_class, "2", "v6")),
            "NodePoolDrifted",
        ),
    ] {
        let found =
            reason(&format!("hash-{name}"), pool("p", pool_patch), class(class_patch), node);
        assert_eq!(found, expected, "{name}");
    }
}

#[test] // lifecycle 36: expiry that obeys budgets, where the pool asks for it
fn expired_nodes_are_replaced_on_request() {
    let asks = |value: &str| annotated("spokeshave.dev/expiration", value);
    let old = || node("n", "m.large").claim(json!({"spec": {"expireAfter": "1h"}}));
    for (name, pool_patch, node, expected) in [
        ("asks", asks("replace"), old(), "Expired"),
        ("does not ask", json!({}), old(), ""),
        ("asks otherwise", asks("true"), old(), ""),
        ("not expired", asks("replace"), node("n", "m.large"), ""),
    ] {
        let file = format!("expired-{}", name.replace(' ', "-"));
        assert_eq!(
            reason(&file, pool("p", pool_patch), class(json!({})), node),
            expected,
            "{name}"
        );
    }
    let mut closed = asks("replace");
    closed["spec"]["disruption"]["budgets"] = json!([{"nodes": "0", "reasons": ["Drifted"]}]);
    let objects = cluster![pool("p", closed), class(json!({})), old().pod("1")];
    let answer = plan("expired-held", &[], &one_type(), &objects);
    assert_eq!(answer["commands"], json!([]));
    let why = "No allowed disruptions for disruption reason Drifted due to blocking budget";
    let said = answer["notConsidered"][0]["why"].as_str().expect("text");
    assert!(said.contains(why), "{said}");
}

#[test] // lifecycle 9, rule 2; 9.1, cases 2 to 4
fn labels_have_to_satisfy_the_pool() {
    let (team, cpu) = ("team", "karpenter.k8s.aws/instance-cpu");
    let drifted = "RequirementsDrifted";
    for (key, operator, values, label, expected) in [
        (
            "node.kubernetes.io/instance-type",
            "In",
            json!(["m.large", "m.xlarge"]),
            json!("m.large"),
            "",
        ),
        (team, "In", json!(["a"]), Value::Null, drifted),
        (team, "NotIn", json!(["a"]), Value::Null, ""),
        (team, "DoesNotExist", json!([]), json!("a"), drifted),
        (team, "DoesNotExist", json!([]), Value::Null, ""),
        (team, "Exists", json!([]), Value::Null, drifted),
        (cpu, "Gt", json!(["10"]), json!("5"), drifted),
        (cpu, "Gt", json!(["10"]), json!("16"), ""),
        (cpu, "Gt", json!(["10"]), json!("10"), drifted),
        (cpu, "Lt", json!(["10"]), json!("10"), drifted),
        (cpu, "Gt", json!(["1"]), Value::Null, drifted),
    ] {
        let requirement = json!([{"key": key, "operator": operator, "values": values}]);
        let name = format!("labels-{}-{operator}-{label}", key.replace('/', "-"));
        // Two types, so that a pool with more than 10 CPUs has something to buy.
        let types =
            [sells("m.large", 2, &[("o", "a", 0.1)]), sells("m.huge", 16, &[("o", "a", 0.8)])];
        let objects = cluster![
            pool_of("p", requirement),
            class(json!({})),
            node("n", "m.large").label(key, label.clone()),
        ];
        let objects: Vec<Value> = objects;
        let answer = plan(&name, &[], &types, &with_pod(objects));
        let command = answer["commands"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|it| it["method"] == "Drift");
        let why = command.map_or("", |it| it["why"].as_str().expect("text"));
        assert_eq!(why.trim_start_matches("drifted: "), expected, "{key} {operator} {label}");
    }
}

/// A pod that stays where it is: without it the node is empty, and that comes first.
fn with_pod(mut objects: Vec<Value>) -> Vec<Value> {
    let selector =
        json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running", "conditions": null}});
    objects.push(waiting("web", "1", selector));
    objects
}

#[test] // lifecycle 9, rule 5; 9.1, cases 8 and 9
fn images_are_those_of_the_class() {
    let amis = |list: Value| class(json!({"status": {"amis": list}}));
    let arch = |id: &str, arch: &str| json!({"id": id, "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": [arch]}]});
    let with = |image: &str| node("n", "m.large").claim(json!({"status": {"imageID": image}}));
    let both = || json!([arch("ami-arm", "arm64"), arch("ami-x86", "amd64")]);
    for (name, class, node, expected) in [
        ("right", amis(both()), with("ami-x86"), ""),
        ("case 8", amis(both()), with("ami-arm"), "AMIDrift"),
        ("gone", amis(both()), with("ami-old"), "AMIDrift"),
        ("case 9", amis(json!([])), with("ami-old"), ""),
        ("no image", amis(both()), node("n", "m.large"), ""),
        ("class going", class_going(both()), with("ami-old"), ""),
    ] {
        let found = reason(&format!("image-{name}"), pool("p", json!({})), class, node);
        assert_eq!(found, expected, "{name}");
    }
}

fn class_going(amis: Value) -> Value {
    class(
        json!({"metadata": {"deletionTimestamp": NOW, "finalizers": ["f"]}, "status": {"amis": amis}}),
    )
}

#[test] // lifecycle 13.1, case 1; 19.1, cases 3, 6 and 9
fn the_order_of_drifted_nodes() {
    let at = |time: &str| format!("2026-03-02T{time}:00Z");
    let n1 = || node("n1", "m.large").busy().drifted(&at("10:00")).pods(3, "100m");
    let n2 = || node("n2", "m.large").busy().drifted(&at("10:05"));
    let n3 = || node("n3", "m.large").busy().drifted(&at("09:00")).pod("500m");
    let later = |names: &[&str]| -> Vec<String> {
        names.iter().map(|it| format!("{it}: one drifted node is handled at a time")).collect()
    };
    let first = |name: &str, objects: Vec<Value>| {
        let mut lines = usual(name, objects);
        (lines.remove(0), lines)
    };
    let p = || pool("p", json!({}));
    let (command, left) = first("drift-order", cluster![p(), n1(), n2(), n3()]);
    assert_eq!((command.as_str(), left), ("Drift n2 saves 0.1", later(&["n1", "n3"])));
    let (command, left) = first("drift-oldest", cluster![p(), n1(), n3()]);
    assert_eq!((command.as_str(), left), ("Drift n3 saves 0.1", later(&["n1"])));
    // Case 6: a pod that costs nothing to move still has to move.
    let cheap = annotated("controller.kubernetes.io/pod-deletion-cost", "-2147483647");
    let n2 = node("n2", "m.large").busy().drifted(&at("10:05")).holding("web", "500m", cheap);
    let (command, _) = first("drift-cheap", cluster![p(), n2, n3()]);
    assert_eq!(command, "Drift n3 saves 0.1");
    // Case 9, and 13.1, case 1.
    let empty = node("n2", "m.large").drifted(&at("10:05"));
    assert_eq!(usual("drift-empty", cluster![p(), empty]), ["Emptiness n2 saves 0.1"]);
    let objects = cluster![p(), node("n0", "m.large"), n3()];
    assert_eq!(
        usual("drift-after", objects),
        ["Emptiness n0 saves 0.1", "n3: Emptiness found something to do first"]
    );
}

#[test] // lifecycle 19.1, cases 4 and 5
fn drift_takes_any_number_of_replacements_at_any_price() {
    let types = [sells("old", 8, &[("o", "a", 0.1)]), sells("new", 4, &[("o", "a", 0.3)])];
    let only_new =
        json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["new"]}]);
    let nowhere = json!({"spec": {"nodeSelector": {"foo": "bar"}}});
    let objects = cluster![
        pool_of("p", only_new),
        sized("n1", "old", 8).drifted("2026-03-02T10:00:00Z").pods(2, "3"),
        sized("n3", "old", 8).drifted("2026-03-02T09:00:00Z").holding("x", "6", nowhere),
    ];
    assert_eq!(
        outcome("drift-two", &[], &types, objects),
        [
            "Drift n1 -> p[new](on-demand)$0.3 -> p[new](on-demand)$0.3 saves -0.5",
            "n3: Not all pods would schedule, default/x => label \"foo\" does not have known values",
        ]
    );
}

#[test] // lifecycle 19.1, cases 7 and 8; 31.1, case 8; bug report B-026's budget
fn static_pools_replace_as_their_limit_allows() {
    let nodes = |n: usize| -> Vec<Nodes> {
        (0..n).map(|it| node(&format!("n{it}"), "m.large").drifted(CREATED).pod("1")).collect()
    };
    let replicas = |n: u32, spec: Value| {
        let mut it = pool("p", json!({"spec": {"replicas": n}}));
        spokeshave_model::meta::apply_merge_patch(&mut it, &json!({"spec": spec}));
        it
    };
    let limit = |n: &str| json!({"limits": {"nodes": n}});
    let exhausted = "node limits have been exhausted for nodepool \"p\"";
    for (n, spec) in [(0, limit("5")), (1, limit("6")), (2, limit("7")), (5, json!({}))] {
        let lines = usual(&format!("static-{n}"), cluster![replicas(5, spec), nodes(5)]);
        let expected: Vec<String> = (0..5)
            .map(|it| {
                if it < n {
                    format!("StaticDrift n{it} -> p[]()$null saves 0.1")
                } else {
                    format!("n{it}: {exhausted}")
                }
            })
            .collect();
        assert_eq!(lines, expected, "{n}");
    }
    let scaling = "NodePool \"p\" is being scaled down first";
    assert_eq!(
        usual("static-down", cluster![replicas(1, json!({})), nodes(2)]),
        [format!("n0: {scaling}"), format!("n1: {scaling}")]
    );
    let closed = replicas(5, json!({"disruption": {"budgets": [{"nodes": "0"}]}}));
    let text = "No allowed disruptions for disruption reason Drifted due to blocking budget";
    assert_eq!(
        usual("static-budget", cluster![closed, nodes(2)]),
        [format!("n0: {text}"), format!("n1: {text}")]
    );
    // Neither empty nor underutilized nodes of a static pool go.
    let idle = vec![node("n0", "m.large"), node("n1", "m.large").pod("100m")];
    assert_eq!(
        usual("static-idle", cluster![replicas(2, json!({})), idle]),
        [
            "n0: the node is of a static NodePool and not drifted",
            "n1: the node is of a static NodePool and not drifted",
        ]
    );
}
