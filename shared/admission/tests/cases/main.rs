//! Admission as `spec` api says it, case by case: what is refused and with which words, what is let through, what is filled in.

// Tables read best with the values in place.
#![allow(clippy::needless_pass_by_value)]

mod node_classes;
mod node_pools;

use std::sync::OnceLock;

use serde_json::{Value, json};
use spokeshave_admission::{Kinds, Source, kinds::Match, runtime};
use spokeshave_model::{FeatureGates, meta::apply_merge_patch};

fn kinds() -> &'static Kinds {
    static KINDS: OnceLock<Kinds> = OnceLock::new();
    KINDS.get_or_init(Kinds::new)
}

fn api_version(kind: &str) -> &'static str {
    match kind {
        "EC2NodeClass" => "karpenter.k8s.aws/v1",
        "NodeOverlay" => "karpenter.sh/v1alpha1",
        "CapacityBuffer" => "autoscaling.x-k8s.io/v1beta1",
        _ => "karpenter.sh/v1",
    }
}

/// The stored object and what is said against it, as `source field: message`.
fn admit(kind: &str, spec: &Value, old: Option<&Value>) -> (Value, Vec<String>) {
    let Match::Served(served) = kinds().find(api_version(kind), kind) else { panic!("{kind}") };
    let object = |spec: &Value| json!({"apiVersion": api_version(kind), "kind": kind, "metadata": {"name": "x"}, "spec": spec});
    let mut new = object(spec);
    let old = old.map(|spec| served.schema.defaulted(object(spec)));
    let found = served.schema.admit(&mut new, old.as_ref());
    let line = |it: spokeshave_admission::Finding| {
        let source = if it.source == Source::Cel { "cel" } else { "schema" };
        format!("{source} {}: {}", it.field, it.message)
    };
    (new, found.into_iter().map(line).collect())
}

/// Checks a table: a change of the base, and parts that the findings must have, in order; none for admitted.
fn table(kind: &str, base: &Value, cases: &[(Value, &[&str])]) {
    for (change, expected) in cases {
        let mut spec = base.clone();
        apply_merge_patch(&mut spec, change);
        let (_, found) = admit(kind, &spec, None);
        assert_eq!(found.len(), expected.len(), "{change}: {found:#?}");
        for (found, part) in found.iter().zip(*expected) {
            assert!(found.contains(part), "{change}: {found} lacks {part}");
        }
    }
}

fn pool() -> Value {
    json!({"template": {"spec": {"requirements": [], "nodeClassRef":
        {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}})
}

fn template(change: Value) -> Value {
    json!({"template": {"spec": change}})
}

fn budgets(budgets: Value) -> Value {
    json!({"disruption": {"budgets": budgets}})
}

fn class() -> Value {
    json!({"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "r",
        "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}]})
}

#[test] // api 2, cases 1 to 8
fn formats() {
    let timing = |schedule: &str, duration: &str| {
        budgets(json!([{"nodes": "1", "schedule": schedule, "duration": duration}]))
    };
    let nodes = |nodes: Value| budgets(json!([{"nodes": nodes}]));
    let long = "x".repeat(64);
    table(
        "NodePool",
        &pool(),
        &[
            (template(json!({"expireAfter": "1h1h30s"})), &[]),
            (template(json!({"expireAfter": "Never"})), &[]),
            (
                template(json!({"expireAfter": "never"})),
                &["schema spec.template.spec.expireAfter: Invalid value: \"never\""],
            ),
            (template(json!({"expireAfter": "30d"})), &["should match"]),
            (template(json!({"terminationGracePeriod": "Never"})), &["terminationGracePeriod"]),
            (template(json!({"terminationGracePeriod": "90s"})), &[]),
            (
                template(json!({"terminationGracePeriod": 30})),
                &["must be of type string: \"integer\""],
            ),
            (timing("* * * * *", "1h30m"), &[]),
            (timing("* * * * *", "1h30m0s"), &[]),
            (timing("* * * * *", "90m0s"), &[]),
            (timing("* * * * *", "30s"), &["duration"]),
            (timing("* * * * *", "1h30m30s"), &["duration"]),
            (timing("* * * * *", "1m1h"), &["duration"]),
            (nodes(json!("10%")), &[]),
            (nodes(json!("100%")), &[]),
            (nodes(json!("0")), &[]),
            (nodes(json!("250")), &[]),
            (nodes(json!("101%")), &["nodes"]),
            (nodes(json!("-1")), &["nodes"]),
            (nodes(json!("10.5%")), &["nodes"]),
            (nodes(json!("%")), &["nodes"]),
            (nodes(json!(10)), &["must be of type string"]),
            (timing("@dailyfoo", "1h"), &[]),
            (timing("@every 1h", "1h"), &["schedule"]),
            (timing("* * * *", "1h"), &["schedule"]),
            (
                json!({"template": {"metadata": {"labels": {"a": long}}}}),
                &["spec.template.metadata.labels.a: Too long"],
            ),
            (
                template(
                    json!({"requirements": [{"key": "a", "operator": "In", "values": [long]}]}),
                ),
                &[],
            ),
            (
                template(json!({"taints": [{"key": "a", "value": "", "effect": "NoSchedule"}]})),
                &["value"],
            ),
        ],
    );
}

#[test] // api 5, cases 12 to 15; api 10, case 14; api 15; api 20.2
fn defaults() {
    let stored = |kind: &str, spec: Value, pointer: &str| {
        let (object, found) = admit(kind, &spec, None);
        assert!(found.is_empty(), "{found:?}");
        object.pointer(pointer).cloned().unwrap_or(Value::Null)
    };
    let whole = json!({"consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized",
                       "budgets": [{"nodes": "10%"}]});
    assert_eq!(stored("NodePool", pool(), "/spec/disruption"), whole);
    assert_eq!(stored("NodePool", pool(), "/spec/template/spec/expireAfter"), json!("720h"));
    let mut spec = pool();
    apply_merge_patch(&mut spec, &json!({"disruption": {"consolidationPolicy": "WhenEmpty"}}));
    assert_eq!(stored("NodePool", spec, "/spec/disruption/consolidateAfter"), json!("0s"));
    let mut spec = pool();
    apply_merge_patch(&mut spec, &budgets(json!([{}])));
    assert_eq!(stored("NodePool", spec, "/spec/disruption/budgets"), json!([{"nodes": "10%"}]));
    let mut spec = pool();
    apply_merge_patch(&mut spec, &budgets(json!([])));
    assert_eq!(stored("NodePool", spec, "/spec/disruption/budgets"), json!([]));
    let mut spec = class();
    spec["metadataOptions"] = json!({"httpTokens": "optional"});
    assert_eq!(
        stored("EC2NodeClass", spec, "/spec/metadataOptions"),
        json!({"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled",
               "httpPutResponseHopLimit": 1, "httpTokens": "optional"})
    );
    let buffer = json!({"podTemplateRef": {"name": "t"}, "replicas": 1});
    assert_eq!(
        stored("CapacityBuffer", buffer, "/spec/provisioningStrategy"),
        json!("buffer.x-k8s.io/active-capacity")
    );
    table(
        "NodePool",
        &pool(),
        &[
            (
                budgets(json!([{"nodes": "1", "schedule": "0 9 * * mon-fri"}])),
                &["cel spec.disruption.budgets: 'schedule' must be set with 'duration'"],
            ),
            (
                budgets(json!([{"nodes": "1", "schedule": "0 0 * * tue-mon", "duration": "6h"}])),
                &[],
            ),
            (
                budgets(json!([{"nodes": "1", "reasons": ["Drifted", "Drifted"]}])),
                &["schema spec.disruption.budgets[0].reasons[1]: Duplicate value: \"Drifted\""],
            ),
            (
                budgets(json!([{"nodes": "1", "reasons": ["Expired"]}])),
                &["Unsupported value: \"Expired\""],
            ),
        ],
    );
}

#[test] // api 8, case 2
fn node_claims() {
    let claim =
        json!({"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}});
    table(
        "NodeClaim",
        &claim,
        &[
            (
                json!({"requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["default"]}]}),
                &[],
            ),
            (
                json!({"requirements": [{"key": "karpenter.sh/registered", "operator": "Exists"}]}),
                &["label domain \"karpenter.sh\" is restricted"],
            ),
        ],
    );
}

#[test] // api 7, case 8
fn a_claim_holds_a_hundred_requirements() {
    let of = |n: usize| -> Value {
        (0..n).map(|at| json!({"key": format!("k{at}"), "operator": "Exists"})).collect()
    };
    let claim = |n: usize| json!({"requirements": of(n), "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}});
    assert_eq!(admit("NodeClaim", &claim(100), None).1, [""; 0]);
    assert_eq!(
        admit("NodeClaim", &claim(105), None).1,
        ["schema spec.requirements: Too many: 105: must have at most 100 items"]
    );
    // The pool that makes such claims is admitted, and warned about.
    let labels: Value = (0..60).map(|at| (format!("l{at}"), json!("v"))).collect();
    let mut spec = pool();
    spec["template"]["metadata"] = json!({"labels": labels});
    spec["template"]["spec"]["requirements"] = of(45);
    let (object, found) = admit("NodePool", &spec, None);
    assert_eq!(found, [""; 0]);
    let at = jiff::Timestamp::UNIX_EPOCH;
    let warnings =
        spokeshave_admission::advice::warnings("NodePool", &object, &Default::default(), at);
    let expected = "105 labels and requirements, but a NodeClaim holds at most 100 requirements";
    assert!(warnings.iter().any(|it| it.message == expected), "{warnings:?}");
}

#[test] // api 8, case 8
fn reasons_of_conditions() {
    for (kind, fits) in [("NodeClaim", true), ("NodePool", false)] {
        let Match::Served(served) = kinds().find(api_version(kind), kind) else { panic!("{kind}") };
        let status = &served.crd.schema()["properties"]["status"];
        let schema = spokeshave_admission::Schema::compile(status);
        let with = |reason: &str| {
            let mut status = json!({"conditions": [{"type": "Ready", "status": "True", "reason": reason,
                "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"}]});
            schema.admit(&mut status, None).len()
        };
        assert_eq!(with("Ready"), 0, "{kind}");
        assert_eq!(with(""), usize::from(!fits), "{kind}");
        assert_eq!(with("not a reason"), 1, "{kind}");
    }
}

#[test] // api 1, case 6
fn a_class_without_spec_is_admitted_and_a_pool_is_not() {
    for (kind, expected) in
        [("EC2NodeClass", &[][..]), ("NodePool", &["schema spec: Required value"])]
    {
        assert_eq!(admit(kind, &Value::Null, None).1, expected);
    }
    let not_served = kinds().find("karpenter.sh/v1beta1", "NodePool");
    assert!(
        matches!(not_served, Match::NotServed(it) if it == "no matches for kind \"NodePool\" in version \"karpenter.sh/v1beta1\"")
    );
    assert!(matches!(kinds().find("v1", "Pod"), Match::Foreign));
}

#[test] // api 14, cases 1, 2, 4 and 9
fn node_overlays() {
    let adjustment = |text: &str| json!({"priceAdjustment": text});
    let price = |text: &str| json!({"price": text});
    let requirement = |key: &str| json!({"requirements": [{"key": key, "operator": "In", "values": ["default"]}]});
    let base = json!({"requirements": []});
    let mut cases: Vec<(Value, &[&str])> = vec![
        (price("5.00"), &[]),
        (
            json!({"price": "1", "priceAdjustment": "+1"}),
            &["cel spec: cannot set both 'price' and 'priceAdjustment'"],
        ),
        (json!({"capacity": {"cpu": 1}}), &["cel spec.capacity: invalid resource restricted"]),
        (json!({"capacity": {"vpc.amazonaws.com/efa": 1}}), &[]),
        (json!({"weight": 0}), &["spec.weight"]),
        (json!({"weight": 10000}), &[]),
        (json!({"weight": 10001}), &["spec.weight"]),
        (
            requirement("karpenter.k8s.aws/instance-tenancy"),
            &["label domain \"karpenter.k8s.aws\" is restricted"],
        ),
        (requirement("karpenter.sh/nodepool"), &[]),
        (
            json!({"requirements": [{"key": "a", "operator": "NotIn", "values": []}]}),
            &["requirements with operator 'NotIn' must have a value defined"],
        ),
        (
            json!({"requirements": [{"key": "a", "operator": "Gt", "values": []}]}),
            &[
                "requirements operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value",
            ],
        ),
        (
            json!({"requirements": [{"key": "a", "operator": "Exists", "minValues": 1}]}),
            &["unknown field"],
        ),
    ];
    for text in
        ["+1%", "-1%", "-100%", "+100.102%", "+298%", "+43", "-43", "+34.43", "-34.43", "+.5"]
    {
        cases.push((adjustment(text), &[]));
    }
    for text in ["1%", "1", "1.3", "-101%", "+", ""] {
        cases.push((adjustment(text), &["schema spec.priceAdjustment"]));
    }
    for text in ["-5", "+5", "5%", ".5"] {
        cases.push((price(text), &["schema spec.price"]));
    }
    table("NodeOverlay", &base, &cases);
}

#[test] // api 15, case 1
fn capacity_buffers() {
    let template = json!({"podTemplateRef": {"name": "t"}});
    table(
        "CapacityBuffer",
        &template,
        &[
            (
                json!({}),
                &["cel spec: If podTemplateRef is set, replicas or limits must also be set"],
            ),
            (json!({"replicas": 0}), &[]),
            (json!({"limits": {"cpu": "2"}}), &[]),
            (
                json!({"replicas": 1, "scalableRef": {"kind": "Deployment", "name": "d"}}),
                &["cel spec: You must define either PodTemplateRef or ScalableRef, but not both"],
            ),
            (json!({"podTemplateRef": null}), &[]),
            (json!({"replicas": -1}), &["spec.replicas"]),
            (json!({"replicas": 1, "podTemplateRef": {"name": ""}}), &["at least 1 chars long"]),
        ],
    );
}

#[test] // api 0: which schema errors hide rules
fn some_schema_errors_hide_the_rules() {
    let broken = |change: Value| {
        let mut spec = pool();
        apply_merge_patch(&mut spec, &json!({"replicas": 3, "weight": 10}));
        apply_merge_patch(&mut spec, &change);
        admit("NodePool", &spec, None).1
    };
    // Pattern and bounds do not.
    assert_eq!(broken(json!({"weight": 101})).len(), 2);
    assert_eq!(broken(template(json!({"expireAfter": "1d"}))).len(), 2);
    // Types, missing fields, values that are not allowed, and too much of something do.
    assert_eq!(broken(template(json!({"expireAfter": 3}))).len(), 1);
    assert_eq!(broken(template(json!({"requirements": null}))).len(), 1);
    assert_eq!(broken(json!({"disruption": {"consolidationPolicy": "Always"}})).len(), 1);
    let many: Value =
        (0..101).map(|at| json!({"key": format!("k{at}"), "operator": "Exists"})).collect();
    assert_eq!(broken(template(json!({"requirements": many}))).len(), 1);
}

#[test] // api 20.1
fn the_worked_set_is_clean() {
    let overlay = json!({"weight": 5, "priceAdjustment": "-30%", "requirements": [
        {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]});
    assert!(admit("NodeOverlay", &overlay, None).1.is_empty());
}
