//! Drift by pool and by instance type.
#![allow(clippy::needless_pass_by_value)] // Builders take literals.

mod builders;

use builders::*;
use serde_json::{Value, json};
use spokeshave_lifecycle::drift::{pool_reason, type_is_gone, wants_type_check};
use spokeshave_model::{
    CapacityType, InstanceType, NodeClaim, Offering, Requirement, Requirements, labels,
};

fn hashed(version: &str, hash: &str) -> Value {
    json!({"metadata": {"annotations": {
        "karpenter.sh/nodepool-hash-version": version, "karpenter.sh/nodepool-hash": hash}}})
}

#[test] // lifecycle 9.1, cases 1 and 5; api 11, case 1; api 17, case 2; B-032
fn hashes_of_one_version_are_compared() {
    for (what, of_claim, of_pool, expected) in [
        ("the template changed", hashed("v3", "1"), hashed("v3", "2"), Some("NodePoolDrifted")),
        ("the same", hashed("v3", "1"), hashed("v3", "1"), None),
        ("another version", hashed("v3", "1"), hashed("v2", "2"), None),
        ("no hash on the claim", json!({}), hashed("v3", "2"), None),
        ("no hash on the pool", hashed("v3", "1"), json!({}), None),
    ] {
        assert_eq!(pool_reason(&claim(of_claim), &pool(of_pool)), expected, "{what}");
    }
}

#[test] // DIFFERENCE: rebalance recommendations, where the pool asks for it
fn a_rebalance_recommendation_is_drift_on_request() {
    let annotated = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    let recommended = annotated(labels::REBALANCE_RECOMMENDED, "2026-01-01T00:00:00Z");
    let replaces = annotated(labels::REBALANCE, "replace");
    for (of_claim, of_pool, expected) in [
        (&recommended, &replaces, Some("RebalanceRecommended")),
        (&recommended, &annotated(labels::REBALANCE, "ignore"), None),
        (&recommended, &json!({}), None),
        (&json!({}), &replaces, None),
    ] {
        assert_eq!(pool_reason(&claim(of_claim.clone()), &pool(of_pool.clone())), expected);
    }
}

#[test] // api 11: the claim's labels against the pool's requirements, of which several may be of one key
fn entries_of_one_key_count_together() {
    let team = |operator: &str, values: &[&str]| json!({"key": "team", "operator": operator, "values": values});
    let drifted = Some("RequirementsDrifted");
    for (entries, without, with_a) in [
        ([team("In", &["a"]), team("In", &["b"])], None, drifted),
        ([team("In", &["a"]), team("DoesNotExist", &[])], None, drifted),
        ([team("NotIn", &["b"]), team("Exists", &[])], None, None),
        ([team("NotIn", &["a"]), team("Exists", &[])], None, drifted),
        ([team("Exists", &[]), team("In", &["a", "b"])], drifted, None),
        ([team("Gt", &["9"]), team("Lt", &["9"])], None, drifted),
    ] {
        let pool = pool(json!({"spec": {"template": {"spec": {"requirements": entries}}}}));
        assert_eq!(pool_reason(&claim(json!({})), &pool), without, "{entries:?}");
        let labelled = claim(json!({"metadata": {"labels": {"team": "a"}}}));
        assert_eq!(pool_reason(&labelled, &pool), with_a, "{entries:?}");
    }
}

#[test] // lifecycle 9.1, cases 2-4; api 11, cases 2 and 3; api 20, cases 7 and 8
fn requirements_are_read_off_the_claims_labels() {
    let requirement = |key: &str, operator: &str, values: Value| {
        pool(json!({"spec": {"template": {"spec": {"requirements": [
            {"key": key, "operator": operator, "values": values}]}}}}))
    };
    let labelled = |key: &str, value: &str| claim(json!({"metadata": {"labels": {key: value}}}));
    let drifted = Some("RequirementsDrifted");
    let cpu = "karpenter.k8s.aws/instance-cpu";
    let category = "karpenter.k8s.aws/instance-category";
    for (what, claim, pool, expected) in [
        (
            "widened",
            labelled(labels::INSTANCE_TYPE, "m5.large"),
            requirement(labels::INSTANCE_TYPE, "In", json!(["m5.large", "m5.xlarge"])),
            None,
        ),
        (
            "narrowed",
            labelled(labels::INSTANCE_TYPE, "m5.large"),
            requirement(labels::INSTANCE_TYPE, "In", json!(["m5.xlarge"])),
            drifted,
        ),
        (
            "an m5, only c wanted",
            labelled(category, "m"),
            requirement(category, "In", json!(["c"])),
            drifted,
        ),
        (
            "an m5, m and c wanted",
            labelled(category, "m"),
            requirement(category, "In", json!(["m", "c"])),
            None,
        ),
        ("blue, shard not asked for any more", labelled("shard", "blue"), pool(json!({})), None),
        (
            "blue, green wanted",
            labelled("shard", "blue"),
            requirement("shard", "In", json!(["green"])),
            drifted,
        ),
        ("no label, In", claim(json!({})), requirement("team", "In", json!(["a"])), drifted),
        ("no label, Exists", claim(json!({})), requirement("team", "Exists", json!([])), drifted),
        ("no label, NotIn", claim(json!({})), requirement("team", "NotIn", json!(["a"])), None),
        (
            "no label, DoesNotExist",
            claim(json!({})),
            requirement("team", "DoesNotExist", json!([])),
            None,
        ),
        (
            "label, DoesNotExist",
            labelled("team", "a"),
            requirement("team", "DoesNotExist", json!([])),
            drifted,
        ),
        (
            "label, NotIn",
            labelled("team", "a"),
            requirement("team", "NotIn", json!(["a"])),
            drifted,
        ),
        ("5 > 10", labelled(cpu, "5"), requirement(cpu, "Gt", json!(["10"])), drifted),
        ("16 > 10", labelled(cpu, "16"), requirement(cpu, "Gt", json!(["10"])), None),
        ("no label, Gt", claim(json!({})), requirement(cpu, "Gt", json!(["10"])), drifted),
        ("no label, Lte", claim(json!({})), requirement(cpu, "Lte", json!(["10"])), drifted),
    ] {
        assert_eq!(pool_reason(&claim, &pool), expected, "{what}");
    }
}

fn sold(capacity_type: CapacityType, available: bool) -> Vec<InstanceType> {
    let mut requirements = Requirements::new();
    requirements.add(Requirement::equals(labels::INSTANCE_TYPE, "m5.large"));
    let offering =
        Offering { capacity_type, zone: "us-west-2a".into(), available, ..Offering::default() };
    vec![InstanceType {
        name: "m5.large".into(),
        requirements,
        offerings: vec![offering],
        ..InstanceType::default()
    }]
}

fn bought(capacity_type: &str, zone: &str, extra: Value) -> NodeClaim {
    let mut labels = json!({"node.kubernetes.io/instance-type": "m5.large",
        "karpenter.sh/capacity-type": capacity_type, "topology.kubernetes.io/zone": zone});
    spokeshave_model::meta::apply_merge_patch(&mut labels, &extra);
    claim(json!({"metadata": {"labels": labels}}))
}

#[test] // lifecycle 9, rule 3; 9.1, cases 10 and 13
fn instance_types_that_are_gone() {
    let reservation = json!({"karpenter.k8s.aws/capacity-reservation-id": "cr-1",
        "karpenter.k8s.aws/capacity-reservation-type": "default",
        "karpenter.k8s.aws/capacity-reservation-interruptible": "false"});
    let (spot, od) = (CapacityType::Spot, CapacityType::OnDemand);
    for (what, claim, offered, expected) in [
        ("still sold", bought("spot", "us-west-2a", json!({})), sold(spot, true), false),
        (
            "not available is sold",
            bought("spot", "us-west-2a", json!({})),
            sold(spot, false),
            false,
        ),
        ("another zone", bought("spot", "us-west-2b", json!({})), sold(spot, true), true),
        ("only on demand", bought("spot", "us-west-2a", json!({})), sold(od, true), true),
        ("not listed", bought("spot", "us-west-2a", json!({})), vec![], true),
        (
            "a reservation that ended",
            bought("reserved", "us-west-2a", reservation),
            sold(od, true),
            false,
        ),
        ("no label", claim(json!({})), sold(od, true), true),
    ] {
        assert_eq!(type_is_gone(&claim, &offered), expected, "{what}");
    }
    assert!(!wants_type_check(&claim(json!({})), at("10:59:00")));
    assert!(!wants_type_check(&claim(json!({})), at("11:00:00")));
    assert!(wants_type_check(&claim(json!({})), at("11:01:00")));
}
