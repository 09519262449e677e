//! Admission as `spec` api says it, case by case: what is refused and with which words, what is let through, what is filled in.

// Tables read best with the values in place.
#![allow(clippy::needless_pass_by_value)]

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

#[test] // api 4, cases 1 to 14; api 16, cases 5 and 6; api 20, case 4
fn node_pools() {
    const DOMAIN: &str =
        "cel spec.template.metadata.labels: label domain \"karpenter.sh\" is restricted";
    const AWS: &str =
        "cel spec.template.metadata.labels: label domain \"karpenter.k8s.aws\" is restricted";
    const IN: &str = "cel spec.template.spec.requirements: requirements with operator 'In' must have a value defined";
    const BOUND: &str = "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value";
    const MIN_VALUES: &str = "requirements with 'minValues' must have at least that many values specified in the 'values' field";
    let label =
        |key: &str, value: &str| json!({"template": {"metadata": {"labels": {key: value}}}});
    let requirement = |it: Value| template(json!({"requirements": [it]}));
    let cpu = |values: Value| {
        requirement(
            json!({"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": values}),
        )
    };
    table(
        "NodePool",
        &pool(),
        &[
            (json!({}), &[]),
            (
                template(json!({"requirements": null})),
                &["schema spec.template.spec.requirements: Required value"],
            ),
            (label("karpenter.sh/initialized", "true"), &[DOMAIN]),
            (label("karpenter.sh/capacity-type", "spot"), &[]),
            (label("foo.karpenter.sh/x", "y"), &[DOMAIN]),
            (label("notkarpenter.sh/x", "y"), &[DOMAIN]),
            (label("karpenter.sh.example.com/x", "y"), &[]),
            (
                label("karpenter.sh/nodepool", "me"),
                &[
                    "cel spec.template.metadata.labels: label \"karpenter.sh/nodepool\" is restricted",
                ],
            ),
            (
                label("kubernetes.io/hostname", "me"),
                &["label \"kubernetes.io/hostname\" is restricted"],
            ),
            (label("karpenter.k8s.aws/instance-size", "large"), &[]),
            (label("karpenter.k8s.aws/ec2nodeclass", "default"), &[]),
            (label("karpenter.k8s.aws/nitro-sandbox", "true"), &[]),
            (label("karpenter.k8s.aws/instance-pods", "1"), &[AWS]),
            (label("example.karpenter.k8s.aws/x", "y"), &[AWS]),
            (label("mykarpenter.k8s.aws/x", "y"), &[AWS]),
            (label("node-role.kubernetes.io/x", ""), &[]),
            (label("kubernetes.io/custom", "a"), &[]),
            (label("kops.k8s.io/instancegroup", "b"), &[]),
            (
                requirement(json!({"key": "team", "operator": "In"})),
                &[
                    "cel spec.template.spec.requirements: no such key: values evaluating rule: requirements with operator 'In' must have a value defined",
                ],
            ),
            (requirement(json!({"key": "team", "operator": "In", "values": []})), &[IN]),
            (requirement(json!({"key": "team", "operator": "NotIn", "values": []})), &[]),
            (requirement(json!({"key": "team", "operator": "NotIn"})), &[]),
            (
                requirement(
                    json!({"key": "karpenter.sh/nodepool", "operator": "In", "values": ["a"]}),
                ),
                &[
                    "cel spec.template.spec.requirements[0].key: label \"karpenter.sh/nodepool\" is restricted",
                ],
            ),
            (
                requirement(
                    json!({"key": "karpenter.k8s.aws/instance-pods", "operator": "Exists"}),
                ),
                &[
                    "cel spec.template.spec.requirements[0].key: label domain \"karpenter.k8s.aws\" is restricted",
                ],
            ),
            (
                requirement(json!({"key": "team", "operator": "Is"})),
                &["schema spec.template.spec.requirements[0].operator: Unsupported value: \"Is\""],
            ),
            (cpu(json!(["0"])), &[]),
            (cpu(json!(["-1"])), &[BOUND]),
            (
                cpu(json!(["a"])),
                &[
                    "type conversion error from 'string' to 'int' evaluating rule: requirements operator",
                ],
            ),
            (cpu(json!(["1", "2"])), &[BOUND]),
            (cpu(json!([])), &[BOUND]),
            (
                requirement(
                    json!({"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5"], "minValues": 2}),
                ),
                &[MIN_VALUES],
            ),
            (requirement(json!({"key": "team", "operator": "Exists", "minValues": 2})), &[]),
            (
                requirement(json!({"key": "team", "operator": "Exists", "minValues": 0})),
                &["greater than or equal to 1"],
            ),
            (
                requirement(json!({"key": "team", "operator": "Exists", "minValues": 51})),
                &["less than or equal to 50"],
            ),
            (
                template(json!({"taints": [{"key": "a", "effect": "NoSchedule"}],
                                "startupTaints": [{"key": "a", "effect": "NoSchedule"}]})),
                &[],
            ),
            (json!({"weight": 0}), &["schema spec.weight"]),
            (json!({"weight": 101}), &["schema spec.weight"]),
            (
                json!({"replicas": 3, "weight": 10}),
                &["cel spec: 'weight' is not supported on static NodePools"],
            ),
            (
                json!({"replicas": 3, "limits": {"cpu": 10}}),
                &["cel spec: only 'limits.nodes' is supported on static NodePools"],
            ),
            (json!({"replicas": 3, "limits": {}}), &[]),
            (json!({"replicas": 3, "limits": {"nodes": "3"}}), &[]),
            (json!({"replicas": 0}), &[]),
            (json!({"replicas": -1}), &["schema spec.replicas"]),
            (
                // B-086, with the empty group; a kind in lower case is admitted.
                template(json!({"nodeClassRef": {"group": "karpenter.k8s.aws/v1"}})),
                &["nodeClassRef.group"],
            ),
            (
                template(json!({"nodeClassRef": {"group": ""}})),
                &["cel spec.template.spec.nodeClassRef.group: group may not be empty"],
            ),
            (template(json!({"nodeClassRef": {"kind": "ec2nodeclass"}})), &[]),
            (
                template(json!({"nodeClassRef": {"name": ""}})),
                &["cel spec.template.spec.nodeClassRef.name: name may not be empty"],
            ),
            (
                template(json!({"nodeClassRef": {"kind": null}})),
                &["nodeClassRef.kind: Required value"],
            ),
            (
                json!({"template": {"metadata": {"name": "x"}}}),
                &[
                    "schema spec.template.metadata.name: unknown field \"spec.template.metadata.name\"",
                ],
            ),
            (json!({"limits": {"cpu": "1 core"}}), &["schema spec.limits.cpu"]),
            (json!({"limits": {"cpu": 1.5}}), &["schema spec.limits.cpu"]),
        ],
    );
    // A bound without values cannot be evaluated either, and the rule for `In` holds.
    let (_, found) = admit(
        "NodePool",
        &json!({"template": {"spec": {"requirements": [{"key": "a", "operator": "Gt"}],
            "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}}),
        None,
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("no such key: values evaluating rule: requirements operator 'Gt'"));
}

#[test] // api 4, cases 12 and 13; api 8, case 1; api 20, case 4
fn updates() {
    const MODES: &str = "cel spec: Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes";
    let with = |change: Value| {
        let mut spec = pool();
        apply_merge_patch(&mut spec, &change);
        spec
    };
    let class = |change: Value| with(template(json!({"nodeClassRef": change})));
    for (old, new, expected) in [
        (pool(), with(json!({"replicas": 3})), &[MODES][..]),
        (with(json!({"replicas": 3})), pool(), &[MODES]),
        (with(json!({"replicas": 3})), with(json!({"replicas": 0})), &[]),
        (pool(), class(json!({"name": "other"})), &[]),
        (
            pool(),
            class(json!({"kind": "Other"})),
            &["cel spec.template.spec.nodeClassRef: nodeClassRef.kind is immutable"],
        ),
        (
            pool(),
            class(json!({"group": "other"})),
            &["cel spec.template.spec.nodeClassRef: nodeClassRef.group is immutable"],
        ),
        (
            with(json!({"weight": 10, "limits": {"cpu": "200"}})),
            with(json!({"weight": 10, "limits": {"cpu": "200"}, "replicas": 3})),
            &[MODES, "only 'limits.nodes'", "'weight' is not supported"],
        ),
        // What was wrong before and has not changed is tolerated.
        (with(json!({"weight": 0})), with(json!({"weight": 0, "limits": {"cpu": "1"}})), &[]),
        (with(json!({"weight": 0})), with(json!({"weight": 101})), &["spec.weight"]),
    ] {
        let (_, found) = admit("NodePool", &new, Some(&old));
        assert_eq!(found.len(), expected.len(), "{old} to {new}: {found:#?}");
        for part in expected {
            assert!(found.iter().any(|it| it.contains(part)), "{found:#?} lack {part}");
        }
    }
    let claim =
        json!({"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}});
    let mut changed = claim.clone();
    changed["expireAfter"] = json!("1h");
    let (_, found) = admit("NodeClaim", &changed, Some(&claim));
    assert_eq!(found, ["cel spec: spec is immutable"]);
    // The default that is filled in is no change.
    let mut same = claim.clone();
    same["expireAfter"] = json!("720h");
    assert!(admit("NodeClaim", &same, Some(&claim)).1.is_empty());
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

fn class() -> Value {
    json!({"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "r",
        "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}]})
}

#[test] // api 10, cases 1 to 5; api 19, cases 1 to 4
fn selectors() {
    const EMPTY_TAGS: &str = "empty tag keys or values aren't supported";
    const SUBNET_ID: &str = "cel spec.subnetSelectorTerms: 'id' is mutually exclusive, cannot be set with a combination of other fields in a subnet selector term";
    const GROUP_ID: &str = "'id' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term";
    const GROUP_NAME: &str = "'name' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term";
    const RESERVATION_ID: &str = "cel spec.capacityReservationSelectorTerms: 'id' is mutually exclusive, cannot be set along with other fields in a capacity reservation selector term";
    let subnets = |terms: Value| json!({"subnetSelectorTerms": terms});
    let groups = |terms: Value| json!({"securityGroupSelectorTerms": terms});
    let reservations = |terms: Value| json!({"capacityReservationSelectorTerms": terms});
    let images = |terms: Value| json!({"amiSelectorTerms": terms});
    let many_tags: Value = (0..21).map(|at| (format!("k{at}"), json!("v"))).collect();
    let many_terms: Value = (0..31).map(|_| json!({"id": "subnet-1"})).collect();
    table(
        "EC2NodeClass",
        &class(),
        &[
            (json!({}), &[]),
            (subnets(json!([{"id": "subnet-1", "tags": {"a": "b"}}])), &[SUBNET_ID]),
            (subnets(json!([{"id": "subnet-1", "tags": {"a": "b"}}, {"tags": {"a": "b"}}])), &[]),
            (subnets(json!([{}])), &["expected at least one, got none, ['tags', 'id']"]),
            (subnets(json!([{"tags": {"a": ""}}])), &[EMPTY_TAGS]),
            (subnets(json!([{"tags": {"a": "*"}}])), &[]),
            (subnets(json!([{"tags": {"Name": "my-subnet", "MyTag": ""}}])), &[EMPTY_TAGS]),
            (subnets(json!([])), &["subnetSelectorTerms cannot be empty", SUBNET_ID]),
            (subnets(json!([{"id": "xsubnet-1!"}])), &[]),
            (subnets(json!([{"id": "sub-1"}])), &["schema spec.subnetSelectorTerms[0].id"]),
            (
                subnets(many_terms),
                &["schema spec.subnetSelectorTerms: Too many: 31: must have at most 30 items"],
            ),
            (
                subnets(json!([{"tags": many_tags}])),
                &[
                    "schema spec.subnetSelectorTerms[0].tags: Too many: 21: must have at most 20 items",
                ],
            ),
            (subnets(Value::Null), &["spec.subnetSelectorTerms: Required value"]),
            (
                groups(json!([])),
                &["securityGroupSelectorTerms cannot be empty", GROUP_ID, GROUP_NAME],
            ),
            (groups(json!([{"name": "my-sg", "tags": {"MyTag": "*"}}])), &[GROUP_NAME]),
            (groups(json!([{"name": "my-sg", "tags": {"MyTag": "*"}}, {"id": "sg-1"}])), &[]),
            (reservations(json!([])), &[RESERVATION_ID]),
            (
                reservations(json!([{"ownerID": "012345678901"}])),
                &["expected at least one, got none, ['tags', 'id', 'instanceMatchCriteria']"],
            ),
            (reservations(json!([{"tags": {"a": "b"}, "ownerID": "012345678901"}])), &[]),
            (reservations(json!([{"instanceMatchCriteria": "open"}])), &[]),
            (
                reservations(json!([{"id": "cr-1", "instanceMatchCriteria": "open"}])),
                &[RESERVATION_ID],
            ),
            (reservations(json!([{"id": "cr-1", "ownerID": "012345678901"}, {"id": "cr-2"}])), &[]),
            (
                images(json!([{"alias": "al2023@latest"}, {"id": "ami-1"}])),
                &["cannot be set with a combination of other amiSelectorTerms"],
            ),
            (
                images(json!([{"alias": "al2023@latest", "id": "ami-1"}])),
                &[
                    "'id' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
                    "'alias' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
                ],
            ),
            (
                images(json!([{"id": "ami-1"}])),
                &["cel spec: must specify amiFamily if amiSelectorTerms does not contain an alias"],
            ),
            (json!({"amiSelectorTerms": [{"id": "ami-1"}], "amiFamily": "AL2"}), &[]),
            (
                json!({"amiSelectorTerms": [{"name": "*", "owner": "self"}], "amiFamily": "AL2023"}),
                &[],
            ),
            (
                json!({"amiSelectorTerms": [{"owner": "self"}], "amiFamily": "AL2023"}),
                &[
                    "expected at least one, got none, ['tags', 'id', 'name', 'alias', 'ssmParameter']",
                ],
            ),
            (
                json!({"amiSelectorTerms": [{"id": "ami-1", "ssmParameter": "/x"}], "amiFamily": "AL2"}),
                &[],
            ),
            (
                images(json!([])),
                &[
                    "schema spec.amiSelectorTerms: Invalid value: 0: spec.amiSelectorTerms in body should have at least 1 items",
                    "must specify amiFamily",
                ],
            ),
        ],
    );
}

#[test] // api 10, cases 6 to 8
fn aliases_and_families() {
    const FORMAT: &str = "cel spec.amiSelectorTerms[0].alias: 'alias' is improperly formatted, must match the format 'family@version'";
    const FAMILY: &str = "family is not supported, must be one of the following: 'al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025'";
    const WINDOWS: &str = "windows families may only specify version 'latest'";
    let alias = |alias: &str| json!({"amiSelectorTerms": [{"alias": alias}]});
    let both = |alias: &str, family: &str| json!({"amiSelectorTerms": [{"alias": alias}], "amiFamily": family});
    table(
        "EC2NodeClass",
        &class(),
        &[
            (alias("AL2023@latest"), &[FAMILY]),
            (alias("al2023"), &[FORMAT]),
            (alias("ubuntu@latest"), &[FAMILY]),
            (alias("windows2022@v1"), &[WINDOWS]),
            (alias("windows2022@latest"), &[]),
            (alias("windows2025@latest"), &[]),
            (alias("bottlerocket@v1.20.4"), &[]),
            (alias("al2023@"), &[FORMAT]),
            (
                alias("windows2022"),
                &[
                    FORMAT,
                    "index out of bounds: 1 evaluating rule: windows families may only specify version 'latest'",
                ],
            ),
            (alias("al2023@a@b"), &[]),
            (
                alias("al2023@v202501150000000000000000"),
                &["Too long: may not be more than 30 bytes"],
            ),
            (
                both("al2023@latest", "AL2"),
                &[
                    "cel spec: if set, amiFamily must be 'AL2023' or 'Custom' when using an AL2023 alias",
                ],
            ),
            (
                both("bottlerocket@latest", "AL2"),
                &[
                    "if set, amiFamily must be 'Bottlerocket' or 'Custom' when using a Bottlerocket alias",
                ],
            ),
            (
                both("al2@latest", "AL2023"),
                &["if set, amiFamily must be 'AL2' or 'Custom' when using an AL2 alias"],
            ),
            (
                both("windows2019@latest", "Windows2022"),
                &[
                    "if set, amiFamily must be 'Windows2019' or 'Custom' when using a Windows2019 alias",
                ],
            ),
            (both("al2023@latest", "Custom"), &[]),
            (both("al2023@latest", "AL2023"), &[]),
            (
                both("al2023@latest", "Ubuntu"),
                &["schema spec.amiFamily: Unsupported value: \"Ubuntu\""],
            ),
        ],
    );
}

#[test] // api 10, cases 9 to 18; api 19, case 3
fn other_fields_of_classes() {
    const PRIMARY: &str =
        "networkInterfaces must include a primary interface with interfaceType='interface'";
    const PAIRS: &str = "networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most one efa device per network card";
    const EXACTLY: &str = "cel spec: must specify exactly one of ['role', 'instanceProfile']";
    let devices = |devices: Value| json!({"blockDeviceMappings": devices});
    let ebs = |ebs: Value| devices(json!([{"deviceName": "/dev/xvda", "ebs": ebs}]));
    let interfaces = |list: &[(i32, i32, &str)]| {
        let list: Value = list
            .iter()
            .map(|(card, device, type_)| {
                json!({"networkCardIndex": card, "deviceIndex": device, "interfaceType": type_})
            })
            .collect();
        json!({"networkInterfaces": list})
    };
    let many_devices: Value = (0..51).map(|_| json!({"deviceName": "a"})).collect();
    table(
        "EC2NodeClass",
        &class(),
        &[
            (json!({"instanceProfile": "p"}), &[EXACTLY]),
            (json!({"role": null}), &[EXACTLY]),
            (json!({"role": null, "instanceProfile": "p"}), &[]),
            (json!({"role": ""}), &["cel spec.role: role cannot be empty"]),
            (json!({"role": null, "instanceProfile": ""}), &["instanceProfile cannot be empty"]),
            (json!({"tags": {"": "x"}}), &["cel spec.tags: empty tag keys aren't supported"]),
            (json!({"tags": {"a": ""}}), &[]),
            (
                json!({"tags": {"kubernetes.io/clusterfoo": "x"}}),
                &["tag contains a restricted tag matching kubernetes.io/cluster/"],
            ),
            (json!({"tags": {"kubernetes.io/cluster/x": "owned"}}), &["kubernetes.io/cluster/"]),
            (
                json!({"tags": {"eks:eks-cluster-name": "x"}}),
                &["tag contains a restricted tag matching eks:eks-cluster-name"],
            ),
            (
                json!({"tags": {"karpenter.sh/nodepool": "x"}}),
                &["tag contains a restricted tag matching karpenter.sh/nodepool"],
            ),
            (json!({"tags": {"karpenter.sh/foo": "x", "Name": "web"}}), &[]),
            (
                ebs(json!({})),
                &["cel spec.blockDeviceMappings[0].ebs: snapshotID or volumeSize must be defined"],
            ),
            (
                devices(json!([{"rootVolume": true}, {"rootVolume": true}])),
                &["must have only one blockDeviceMappings with rootVolume"],
            ),
            (
                ebs(json!({"volumeSize": "10Gi", "volumeInitializationRate": 100})),
                &["snapshotID must be set when volumeInitializationRate is set"],
            ),
            (
                ebs(json!({"snapshotID": "snap-1", "volumeInitializationRate": 99})),
                &["volumeInitializationRate"],
            ),
            (ebs(json!({"snapshotID": "snap-1", "volumeInitializationRate": 300})), &[]),
            (devices(json!([{"deviceName": "/dev/xvdb"}])), &[]),
            (devices(many_devices), &["Too many: 51: must have at most 50 items"]),
            (interfaces(&[]), &[]),
            (interfaces(&[(0, 1, "interface")]), &[PRIMARY]),
            (interfaces(&[(0, 0, "interface"), (0, 1, "efa-only"), (0, 2, "efa-only")]), &[PAIRS]),
            (interfaces(&[(0, 0, "interface"), (0, 1, "efa-only"), (1, 0, "efa-only")]), &[]),
            (interfaces(&[(0, 0, "interface"), (0, 0, "interface")]), &[PAIRS]),
            (interfaces(&[(0, 0, "efa-only")]), &[PRIMARY]),
            (
                json!({"networkInterfaces": [{"networkCardIndex": 0}]}),
                &["deviceIndex: Required value", "interfaceType: Required value"],
            ),
            (
                json!({"metadataOptions": {"httpPutResponseHopLimit": 0}}),
                &["httpPutResponseHopLimit"],
            ),
            (
                json!({"metadataOptions": {"httpPutResponseHopLimit": 65}}),
                &["httpPutResponseHopLimit"],
            ),
            (
                json!({"connectionTracking": {}}),
                &[
                    "at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set",
                ],
            ),
            (json!({"connectionTracking": {"udpTimeout": 29}}), &["udpTimeout"]),
            (json!({"connectionTracking": {"udpTimeout": 30}}), &[]),
            (
                json!({"connectionTracking": {"tcpEstablishedTimeout": 432_001}}),
                &["tcpEstablishedTimeout"],
            ),
            (
                json!({"placementGroupSelector": {}}),
                &["expected at least one, got none, ['name', 'id']"],
            ),
            (
                json!({"placementGroupSelector": {"name": "a", "id": "pg-1"}}),
                &["'name' and 'id' are mutually exclusive"],
            ),
            (json!({"placementGroupSelector": {"id": "pg-1"}}), &[]),
            (
                json!({"placementGroupSelector": {"id": "PG-1"}}),
                &["schema spec.placementGroupSelector.id"],
            ),
            (json!({"placementGroupSelector": {"name": ""}}), &["at least 1 chars long"]),
            (json!({"ipPrefixCount": 0}), &[]),
            (json!({"ipPrefixCount": -1}), &["ipPrefixCount"]),
            (json!({"instanceStorePolicy": "RAID1"}), &["Unsupported value"]),
            (json!({"context": "anything"}), &[]),
            (json!({"kubelet": {"anything": {"goes": [1]}}}), &[]),
            (json!({"foo": "bar"}), &["schema spec.foo: unknown field \"spec.foo\""]),
        ],
    );
    // B-084: the pattern is Karpenter's with its holes, so that both refuse and accept the same objects.
    for (size, fits) in [
        ("1Gi", true),
        ("59000Gi", true),
        ("64000G", true),
        ("58Ti", true),
        ("64T", true),
        ("17Ti", true),
        ("20Ti", true),
        ("27Ti", true),
        ("Ti", true),
        ("T", true),
        ("59001Gi", false),
        ("64001G", false),
        ("18Ti", false),
        ("19Ti", false),
        ("28Ti", false),
        ("29Ti", false),
        ("100Mi", false),
        ("59Ti", false),
        ("65T", false),
        ("0Gi", false),
        ("10GiB", false),
        ("10", false),
    ] {
        let mut spec = class();
        apply_merge_patch(&mut spec, &ebs(json!({"volumeSize": size})));
        assert_eq!(admit("EC2NodeClass", &spec, None).1.is_empty(), fits, "{size}");
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

#[test] // api 12, cases 1, 10, 11 and 13: the order in which kinds of problems hide each other
fn kubelet_settings() {
    let problems = |family: &str, kubelet: Value, gates: &str| {
        let mut spec = class();
        apply_merge_patch(
            &mut spec,
            &json!({"amiSelectorTerms": [{"id": "ami-1"}], "amiFamily": family, "kubelet": kubelet}),
        );
        let (object, found) = admit("EC2NodeClass", &spec, None);
        assert!(found.is_empty());
        let mut parsed = FeatureGates::default();
        parsed.merge(gates).expect("gates");
        let found = runtime::problems("EC2NodeClass", &object, &parsed);
        found.into_iter().map(|it| format!("{} | {}", it.field, it.message)).collect::<Vec<_>>()
    };
    assert!(problems("AL2023", json!({"maxPods": 42, "registryPullQPS": 10}), "").is_empty());
    assert_eq!(
        problems("AL2", json!({"maxPods": 42, "registryPullQPS": 10}), ""),
        [
            "spec.kubelet | spec.kubelet has fields not applied by the AL2 AMI family that would be silently dropped: registryPullQPS"
        ]
    );
    assert_eq!(
        problems("AL2", json!({"bogus": 1}), ""),
        ["spec.kubelet.bogus | spec.kubelet: unknown field \"bogus\""]
    );
    assert!(problems("Bottlerocket", json!({"podsPerCore": 2}), "")[0].ends_with("podsPerCore"));
    assert!(problems("Custom", json!({"podsPerCore": 2, "clusterDNS": ["a", "b"]}), "").is_empty());
    assert!(
        problems("AL2", json!({"clusterDNS": ["10.0.0.10", "10.0.0.11"]}), "")[0]
            .contains("but 2 were set")
    );
    let expression = json!({"maxPods": "vcpus * 10"});
    assert_eq!(
        problems("AL2023", expression.clone(), ""),
        [
            "spec.kubelet.maxPods | spec.kubelet contains a CEL expression, but the NodeClassCEL feature gate is disabled"
        ]
    );
    assert!(problems("AL2023", expression, "NodeClassCEL=true").is_empty());
    assert_eq!(
        problems("AL2023", json!({"kubeReserved": {"cpu": "vcpus * 1.5"}}), "NodeClassCEL=true")
            .len(),
        1
    );
    // A number that some type cannot have, negative or beyond 32 bits: told after all else, with the first such type.
    let mut failing = json!({"maxPods": "vcpus * 1000000000", "kubeReserved": {"cpu": "vcpus - 4"},
        "systemReserved": {"memory": "1.0 / 0.0", "cpu": "vcpus - 1"}});
    assert_eq!(
        problems("AL2023", failing.clone(), "NodeClassCEL=true"),
        [
            "spec.kubelet.maxPods | spec.kubelet.maxPods: \"vcpus * 1000000000\" gives 8000000000, which is outside 0 to \
          2147483647 (instance type a1.2xlarge)"
        ]
    );
    failing["maxPods"] = json!("vcpus * 10");
    assert_eq!(
        problems("AL2023", failing.clone(), "NodeClassCEL=true"),
        [
            "spec.kubelet.kubeReserved[cpu] | spec.kubelet.kubeReserved.cpu: \"vcpus - 4\" gives -2, which is below 0 \
             (instance type a1.large)",
            "spec.kubelet.systemReserved[memory] | spec.kubelet.systemReserved.memory: \"1.0 / 0.0\" cannot be \
             evaluated: the result is inf (instance type a1.2xlarge)"
        ]
    );
    failing["port"] = json!(1);
    assert_eq!(
        problems("AL2", failing, "NodeClassCEL=true"),
        [
            "spec.kubelet | spec.kubelet has fields not applied by the AL2 AMI family that would be silently dropped: port"
        ]
    );
}

#[test] // api 20.1
fn the_worked_set_is_clean() {
    let overlay = json!({"weight": 5, "priceAdjustment": "-30%", "requirements": [
        {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]});
    assert!(admit("NodeOverlay", &overlay, None).1.is_empty());
}
