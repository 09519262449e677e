//! The NodeClaims that come of a plan (`spec` scheduling 15, api 7).

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use common::*;
use serde_json::{Value, json};
use spokeshave_model::{
    CapacityType, NodeClaim,
    labels::{ARCH, CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL},
};
use spokeshave_scheduling::{ClusterView, Solution};

fn api(solution: &Solution, key: &str) -> Vec<(String, Vec<String>)> {
    let claim = solution.new_claims[0].to_node_claim(|from, _| from);
    let those = claim.spec.requirements.into_iter().filter(|it| it.key == key);
    those.map(|it| (format!("{:?}", it.operator), it.values)).collect()
}

#[test] // scheduling 15, cases 1-4 and 8; api 7, case 9
fn the_claim_that_is_created() {
    let one = [("cpu", "1"), ("memory", "1Gi")];
    let solution = plan_new(json!({}), &catalogue_d(), [pod("p", &one, json!({}))]);
    let claim = solution.new_claims[0].to_node_claim(|from, _| from);
    assert_eq!(
        claim.spec.resources.requests,
        resources(&[("cpu", "1"), ("memory", "1Gi"), ("pods", "1")])
    );
    let texts: Vec<String> = claim
        .spec
        .requirements
        .iter()
        .map(|it| format!("{} {:?} {}", it.key, it.operator, it.values.join(" ")))
        .collect();
    assert_eq!(
        texts,
        [
            "karpenter.k8s.aws/ec2nodeclass In default",
            "karpenter.sh/capacity-type In on-demand spot",
            "karpenter.sh/nodepool In default",
            "node.kubernetes.io/instance-type In arm-instance-type default-instance-type gpu-vendor-b-instance-type \
         gpu-vendor-instance-type single-pod-instance-type small-instance-type",
        ]
    );
    assert_eq!(claim.metadata.generate_name, "default-");
    let owner = &claim.metadata.owner_references[0];
    assert_eq!(
        (owner.kind.as_str(), owner.controller, owner.block_owner_deletion),
        ("NodePool", None, Some(true))
    );
    assert_eq!(claim.metadata.annotations["karpenter.sh/nodepool-hash-version"], "v3");
    assert_eq!(claim.metadata.annotations["karpenter.sh/nodeclaim-min-values-relaxed"], "false");

    let tier = "example.com/tier";
    let solution =
        plan_new(requires(tier, "Exists", &[]), &catalogue_d(), [pod("p", &[], json!({}))]);
    assert_eq!(solution.new_claims[0].claim_labels(|_, _| 17)[tier], "17");
    let solution = plan_new(
        requires(tier, "Exists", &[]),
        &catalogue_d(),
        [pod("p", &[], select(tier, "gold"))],
    );
    assert_eq!(solution.new_claims[0].claim_labels(|_, _| 17)[tier], "gold");
    assert_eq!(api(&solution, tier), [("In".to_owned(), vec!["gold".to_owned()])]);

    let n = "example.com/n";
    let bounds = json!({"spec": {"template": {"spec": {"requirements": [
        {"key": n, "operator": "Gt", "values": ["3"]}, {"key": n, "operator": "Lt", "values": ["5"]}]}}}});
    let solution = plan_new(bounds, &catalogue_d(), [pod("p", &[], json!({}))]);
    assert_eq!(solution.new_claims[0].claim_labels(i64::max)[n], "4");
    assert_eq!(
        api(&solution, n),
        [("Gte".to_owned(), vec!["4".to_owned()]), ("Lte".to_owned(), vec!["4".to_owned()])]
    );

    let solution = plan_new(
        requires("example.com/x", "DoesNotExist", &[]),
        &catalogue_d(),
        [pod("p", &[], json!({}))],
    );
    assert!(!solution.new_claims[0].claim_labels(|from, _| from).contains_key("example.com/x"));
    assert_eq!(api(&solution, "example.com/x"), [("DoesNotExist".to_owned(), vec![])]);

    let mut no_spot = Fake::new("t", 4, 4).build();
    for offering in no_spot.offerings.iter_mut().filter(|it| it.capacity_type == CapacityType::Spot)
    {
        offering.available = false;
    }
    let both = requires(CAPACITY_TYPE, "In", &["on-demand", "spot"]);
    let solution = plan_new(both, &catalogue([no_spot]), [pod("p", &[], json!({}))]);
    assert_eq!(requirement(&solution, 0, CAPACITY_TYPE), format!("{CAPACITY_TYPE} In [on-demand]"));
}

#[test] // scheduling 15, case 5: the pool may change between the plan and the claim
fn the_hash_is_that_of_the_plan() {
    let mut planned = input(pool("default", json!({})), &catalogue_d());
    planned.hash = "17".to_owned();
    let solution = plan(&ClusterView::default(), &[planned], [pod("p", &[], json!({}))]);
    let claim = solution.new_claims[0].to_node_claim(|from, _| from);
    assert_eq!(claim.metadata.annotations["karpenter.sh/nodepool-hash"], "17");
}

/// Label and requirement keys of a claim, each with its value or values.
fn described(claim: &NodeClaim) -> (Vec<String>, Vec<String>) {
    let labels = claim.metadata.labels.iter().map(|(key, value)| format!("{key}={value}"));
    let requirements = claim
        .spec
        .requirements
        .iter()
        .map(|it| format!("{} {:?} {}", it.key, it.operator, it.values.join(",")));
    (labels.collect(), requirements.collect())
}

#[test] // api 7, cases 1 to 6; api 2, case 9; api 16, case 2; api 19, case 5
fn from_template_to_claim() {
    let template = |metadata: Value, spec: Value| json!({"spec": {"template": {"metadata": metadata, "spec": spec}}});
    let asks = |key: &str, operator: &str, values: Value| json!({"key": key, "operator": operator, "values": values});
    let made = |fields: Value, of_pod: Value| {
        let solution = plan_new(fields, &catalogue_d(), [pod("p", &[("cpu", "1")], of_pod)]);
        solution.new_claims.first().map(|it| it.to_node_claim(|from, _| from))
    };
    let fields = template(
        json!({"labels": {"team": "platform"},
            "annotations": {"karpenter.sh/nodepool-hash": "x", "karpenter.sh/do-not-disrupt": "true"}}),
        json!({"expireAfter": "336h", "terminationGracePeriod": "1h"}),
    );
    let claim = made(fields, json!({})).expect("case 1");
    let (labels, requirements) = described(&claim);
    for label in
        ["karpenter.k8s.aws/ec2nodeclass=default", "karpenter.sh/nodepool=default", "team=platform"]
    {
        assert!(labels.iter().any(|it| it == label), "{labels:?}");
    }
    assert_eq!(labels.len(), 3, "{labels:?}");
    for (key, start) in [
        ("team", "team In platform"),
        (NODEPOOL, "karpenter.sh/nodepool In default"),
        ("karpenter.k8s.aws/ec2nodeclass", "karpenter.k8s.aws/ec2nodeclass In default"),
        (INSTANCE_TYPE, "node.kubernetes.io/instance-type In "),
        (CAPACITY_TYPE, "karpenter.sh/capacity-type In on-demand,spot"),
    ] {
        assert!(requirements.iter().any(|it| it.starts_with(start)), "{key}: {requirements:?}");
    }
    let annotations = &claim.metadata.annotations;
    assert_ne!(annotations["karpenter.sh/nodepool-hash"], "x");
    assert_eq!(annotations["karpenter.sh/do-not-disrupt"], "true");
    let written = serde_json::to_value(&claim.spec).expect("writes");
    assert_eq!(
        (&written["expireAfter"], &written["terminationGracePeriod"]),
        (&json!("336h"), &json!("1h0m0s"))
    );

    for (what, requirement, of_pod, requirement_written, label) in [
        (
            "case 3",
            vec![asks("team", "In", json!(["a", "b"]))],
            select("team", "b"),
            vec!["team In b"],
            Some("team=b"),
        ),
        (
            "the smallest",
            vec![asks("team", "In", json!(["b", "a"]))],
            json!({}),
            vec!["team In a,b"],
            Some("team=a"),
        ),
        (
            "case 4",
            vec![asks("shard", "Gte", json!(["3"])), asks("shard", "Lte", json!(["3"]))],
            json!({}),
            vec!["shard Gte 3", "shard Lte 3"],
            Some("shard=3"),
        ),
        (
            "case 5",
            vec![asks(ARCH, "In", json!(["amd64"]))],
            json!({}),
            vec!["kubernetes.io/arch In amd64"],
            None,
        ),
    ] {
        let key = requirement[0]["key"].as_str().expect("a key").to_owned();
        let fields = template(json!({}), json!({"requirements": requirement}));
        let (labels, requirements) = described(&made(fields, of_pod).expect(what));
        let of_key = |list: Vec<String>, separator: char| -> Vec<String> {
            list.into_iter().filter(|it| it.split(separator).next() == Some(key.as_str())).collect()
        };
        assert_eq!(of_key(requirements, ' '), requirement_written, "{what}");
        assert_eq!(of_key(labels, '='), label.into_iter().collect::<Vec<_>>(), "{what}");
    }
    let contradiction = template(
        json!({"labels": {ARCH: "arm64"}}),
        json!({"requirements": [asks(ARCH, "In", json!(["amd64"]))]}),
    );
    assert_eq!(made(contradiction, json!({})), None, "case 6");
    // `requirements: []` allows every type, and the pod chooses.
    let claim = made(json!({}), select(INSTANCE_TYPE, "small-instance-type")).expect("placed");
    assert!(described(&claim).1.contains(&format!("{INSTANCE_TYPE} In small-instance-type")));
}

#[test] // api 7: claims of static pools; case 7
fn from_template_to_a_static_claim() {
    let fields = json!({"spec": {"replicas": 1, "template": {"metadata": {"labels": {"tier": "a"}}, "spec": {
        "terminationGracePeriod": "90s", "requirements": [
            {"key": "team", "operator": "In", "values": ["b", "a"]},
            {"key": "shard", "operator": "Exists"},
            {"key": "old", "operator": "DoesNotExist"},
            {"key": ARCH, "operator": "In", "values": ["amd64"]}]}}}});
    let claim = spokeshave_scheduling::claim_of_pool(&pool("fixed", fields), "1", |_, _| 17);
    assert_eq!(
        described(&claim),
        (
            vec![
                "karpenter.k8s.aws/ec2nodeclass=default".to_owned(),
                "karpenter.sh/nodepool=fixed".to_owned(),
                "shard=17".to_owned(),
                "team=a".to_owned(),
                "tier=a".to_owned(),
            ],
            vec![
                "karpenter.k8s.aws/ec2nodeclass In default".to_owned(),
                "karpenter.sh/nodepool In fixed".to_owned(),
                "kubernetes.io/arch In amd64".to_owned(),
                "old DoesNotExist ".to_owned(),
                "shard Exists ".to_owned(),
                "team In a,b".to_owned(),
                "tier In a".to_owned(),
            ],
        )
    );
    assert!(!claim.metadata.annotations.contains_key("karpenter.sh/nodeclaim-min-values-relaxed"));
    assert_eq!(claim.spec.termination_grace_period.map(|it| it.0).as_deref(), Some("1m30s"));
}
