//! NodeOverlays and CapacityBuffers (`spec` scheduling 20 and 21, api 14 and 15).

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use std::{collections::BTreeMap, sync::Arc};

use common::*;
use serde_json::{Value, json};
use spokeshave_model::{
    CapacityBuffer, NodeOverlay,
    core::{Deployment, PodTemplate},
    labels::{CAPACITY_TYPE, INSTANCE_TYPE, ZONE},
    meta::from_value,
};
use spokeshave_scheduling::{
    ClusterView, Object, PoolInput, buffers,
    overlays::{self, Verdict},
};

fn overlay(name: &str, spec: Value) -> NodeOverlay {
    let base = json!({"metadata": {"name": name}, "spec": {"requirements": []}});
    from_value(over(base, json!({"spec": spec}))).expect("an overlay")
}

/// One type of price 1.0 in one pool.
fn plain() -> Vec<PoolInput> {
    let mut it = Fake::new("t", 4, 4).build();
    it.offerings.iter_mut().for_each(|it| it.price = Some(1.0));
    vec![input(pool("default", json!({})), &catalogue([it]))]
}

fn apply(list: &[NodeOverlay]) -> (Vec<PoolInput>, BTreeMap<String, Verdict>) {
    let mut pools = plain();
    let verdicts = overlays::apply(&mut pools, list);
    (pools, verdicts)
}

fn price(pools: &[PoolInput], offering: usize) -> f64 {
    pools[0].instance_types.as_ref().expect("types")[0].offerings[offering].price.expect("known")
}

#[test] // scheduling 20, cases 1-4; api 14, cases 3 and 5
fn prices_after_overlays() {
    for (spec, expected) in [
        (json!({"price": "2.5"}), 2.5),
        (json!({"priceAdjustment": "+0.5"}), 1.5),
        (json!({"priceAdjustment": "-3"}), 0.0),
        (json!({"priceAdjustment": "-10%"}), 0.9),
        (json!({"priceAdjustment": "-100%"}), 0.0),
        (json!({"priceAdjustment": "+50%"}), 1.5),
    ] {
        let (pools, _) = apply(&[overlay("a", spec.clone())]);
        assert!((price(&pools, 0) - expected).abs() < 1e-9, "{spec}");
    }
    let (pools, verdicts) = apply(&[
        overlay("a", json!({"weight": 10, "price": "2"})),
        overlay("b", json!({"weight": 5, "price": "3"})),
    ]);
    assert!((price(&pools, 0) - 2.0).abs() < 1e-9);
    assert!(verdicts.values().all(|it| *it == Verdict::Applied));
    let (pools, verdicts) = apply(&[
        overlay("a", json!({"weight": 10, "price": "2"})),
        overlay("b", json!({"weight": 10, "price": "3"})),
    ]);
    assert!((price(&pools, 0) - 3.0).abs() < 1e-9);
    assert_eq!((&verdicts["a"], &verdicts["b"]), (&Verdict::Conflict, &Verdict::Applied));
}

#[test] // scheduling 20, cases 5-7; api 14, cases 4, 7 and 8
fn conflicts_and_matches() {
    let zone = |name: &str, zone: &str| {
        overlay(
            name,
            json!({"weight": 1, "price": "2", "requirements": [{"key": ZONE, "operator": "In", "values": [zone]}]}),
        )
    };
    let (pools, verdicts) = apply(&[zone("a", "test-zone-1"), zone("b", "test-zone-2")]);
    assert!(verdicts.values().all(|it| *it == Verdict::Applied));
    assert!((price(&pools, 4) - 1.0).abs() < 1e-9, "zone 3 is untouched");

    let capacity = |name: &str, resource: &str| {
        overlay(name, json!({"weight": 1, "capacity": {resource: "1"}}))
    };
    let (pools, verdicts) =
        apply(&[capacity("a", "example.com/x"), capacity("b", "example.com/y")]);
    assert!(verdicts.values().all(|it| *it == Verdict::Applied));
    let type_ = &pools[0].instance_types.as_ref().expect("types")[0];
    let has = type_.allocatable_of(&type_.offerings[0]);
    assert_eq!(
        (has.get("example.com/x"), has.get("example.com/y"), has.get("cpu")),
        (q("1"), q("1"), q("3900m"))
    );
    let (_, verdicts) = apply(&[capacity("a", "example.com/x"), capacity("b", "example.com/x")]);
    assert_eq!(verdicts["a"], Verdict::Conflict);

    let custom = overlay(
        "a",
        json!({"price": "5", "requirements": [{"key": "team", "operator": "In", "values": ["a"]}]}),
    );
    let labelled =
        pool("labelled", json!({"spec": {"template": {"metadata": {"labels": {"team": "a"}}}}}));
    let mut pools = plain();
    pools.push(PoolInput { nodepool: Arc::new(labelled), ..pools[0].clone() });
    overlays::apply(&mut pools, [&custom]);
    assert!((price(&pools[..1], 0) - 1.0).abs() < 1e-9);
    assert!((price(&pools[1..], 0) - 5.0).abs() < 1e-9);

    let (_, verdicts) = apply(&[overlay("a", json!({"capacity": {"vpc.amazonaws.com/efa": "1"}}))]);
    assert!(
        matches!(&verdicts["a"], Verdict::Invalid(why) if why.contains("invalid capacity: vpc.amazonaws.com/efa in resource, restricted"))
    );
}

#[test] // scheduling 20, case 9
fn claims_follow_overlaid_prices_and_say_so() {
    let dear = overlay(
        "dear",
        json!({"price": "9", "requirements":
        [{"key": INSTANCE_TYPE, "operator": "In", "values": ["small-instance-type"]}]}),
    );
    let mut pools = vec![input(pool("default", json!({})), &catalogue_d())];
    overlays::apply(&mut pools, [&dear]);
    let solution = plan(&ClusterView::default(), &pools, [pod("p", &[], json!({}))]);
    assert_eq!(types(&solution)[0][0], "default-instance-type");
    let claim = solution.new_claims[0].to_node_claim(|from, _| from);
    assert_eq!(claim.metadata.annotations["karpenter.sh/price-overlay-applied"], "true");
    let capacity = overlay(
        "more",
        json!({"capacity": {"example.com/slice": "4"}, "requirements":
        [{"key": CAPACITY_TYPE, "operator": "In", "values": ["spot"]}]}),
    );
    let mut pools = vec![input(pool("default", json!({})), &catalogue_d())];
    overlays::apply(&mut pools, [&capacity]);
    let solution =
        plan(&ClusterView::default(), &pools, [pod("p", &[("example.com/slice", "4")], json!({}))]);
    let claim = solution.new_claims[0].to_node_claim(|from, _| from);
    assert_eq!(claim.metadata.annotations["karpenter.sh/capacity-overlay-applied"], "true");
}

fn buffer(spec: Value) -> CapacityBuffer {
    from_value(json!({"metadata": {"name": "b", "namespace": "default", "uid": "u"}, "spec": spec}))
        .expect("a buffer")
}

fn template(requests: &[(&str, &str)]) -> Vec<Object> {
    let requests: serde_json::Map<String, Value> =
        requests.iter().map(|(name, amount)| ((*name).to_owned(), json!(amount))).collect();
    let spec = json!({"metadata": {"labels": {"app": "room"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}],
                 "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]}});
    let of_pods: PodTemplate =
        from_value(json!({"metadata": {"name": "t", "namespace": "default"}, "template": spec}))
            .expect("a template");
    let mut objects: Vec<Object> = vec![Arc::new(of_pods).into()];
    for (name, replicas) in [
        ("ten", json!(10)),
        ("none", json!(0)),
        ("seven", json!(7)),
        ("hundred", json!(100)),
        ("unset", json!(null)),
    ] {
        let it: Deployment = from_value(json!({"metadata": {"name": name, "namespace": "default"},
            "spec": {"replicas": replicas, "template": spec}}))
        .expect("a deployment");
        objects.push(Arc::new(it).into());
    }
    objects
}

#[test] // scheduling 21, cases 1-7; api 15, cases 1-6
fn how_many_virtual_pods() {
    let scale = |name: &str| json!({"kind": "Deployment", "name": name});
    let one = [("cpu", "1"), ("memory", "2Gi")];
    for (what, requests, spec, expected) in [
        ("replicas", &one, json!({"podTemplateRef": {"name": "t"}, "replicas": 3}), Ok(3)),
        ("share", &one, json!({"scalableRef": scale("ten"), "percentage": 25}), Ok(3)),
        ("one percent", &one, json!({"scalableRef": scale("ten"), "percentage": 1}), Ok(1)),
        ("no percent", &one, json!({"scalableRef": scale("ten"), "percentage": 0}), Ok(0)),
        ("of none", &one, json!({"scalableRef": scale("none"), "percentage": 50}), Ok(0)),
        ("of seven", &one, json!({"scalableRef": scale("seven"), "percentage": 20}), Ok(2)),
        (
            "the larger",
            &one,
            json!({"scalableRef": scale("ten"), "percentage": 25, "replicas": 5}),
            Ok(5),
        ),
        (
            "the larger share",
            &one,
            json!({"scalableRef": scale("hundred"), "percentage": 10, "replicas": 5}),
            Ok(10),
        ),
        (
            "unset counts as one",
            &one,
            json!({"scalableRef": scale("unset"), "percentage": 100}),
            Ok(1),
        ),
        (
            "limits cap",
            &[("cpu", "1500m"), ("memory", "1Gi")],
            json!({"podTemplateRef": {"name": "t"}, "replicas": 5, "limits": {"cpu": "4"}}),
            Ok(2),
        ),
        (
            "limits alone",
            &one,
            json!({"podTemplateRef": {"name": "t"}, "limits": {"cpu": "10", "memory": "8Gi"}}),
            Ok(4),
        ),
        (
            "limits on what is not asked for",
            &one,
            json!({"podTemplateRef": {"name": "t"}, "limits": {"nvidia.com/gpu": "2"}}),
            Ok(0),
        ),
        (
            "no template",
            &one,
            json!({"podTemplateRef": {"name": "no"}, "replicas": 1}),
            Err("PodTemplateNotFound"),
        ),
        (
            "no deployment",
            &one,
            json!({"scalableRef": scale("no"), "replicas": 1}),
            Err("ScalableRefNotFound"),
        ),
        (
            "not scalable",
            &one,
            json!({"scalableRef": {"kind": "DaemonSet", "name": "x"}, "replicas": 1}),
            Err("ResolutionFailed"),
        ),
        ("nothing", &one, json!({}), Err("ResolutionFailed")),
    ] {
        let view = view(template(requests));
        let found =
            buffers::resolve(&buffer(spec), &view).map(|it| it.replicas).map_err(|it| it.reason);
        assert_eq!(found, expected, "{what}");
    }
}

#[test] // scheduling 21, case 8; api 15, case 7
fn virtual_pods_join_the_plan() {
    let mut objects = template(&[("cpu", "1")]);
    objects.push(Arc::new(buffer(json!({"podTemplateRef": {"name": "t"}, "replicas": 2}))).into());
    let room = json!({"status": {"allocatable": {"cpu": "1500m", "pods": "10"}}});
    objects.push(Arc::new(node("n", room)).into());
    let view = view(objects);
    let pods = buffers::virtual_pods(&view);
    assert_eq!(names(&pods), ["capacity-buffer-b-1", "capacity-buffer-b-2"]);
    assert_eq!(pods[0].metadata.uid, "u-1".into());
    assert!(pods[0].spec.volumes.is_empty() && buffers::is_virtual(&pods[0]));
    let pools = [input(pool("default", json!({})), &catalogue_d())];
    let solution = plan(&view, &pools, pods.iter().map(|it| (**it).clone()));
    assert_eq!((solution.existing[0].pods.len(), solution.new_claims.len()), (1, 1));
    let own = view.buffers.values().next().expect("one");
    let resolved = buffers::resolve(own, &view).expect("resolved");
    let condition = buffers::provisioning(own, Ok(&resolved), &solution).expect("a verdict");
    assert_eq!((condition.fits, condition.reason), (false, "RequiresNewCapacity"));
    assert_eq!(condition.message, "1/2 virtual pods required new capacity, 0 failed");
    let empty = buffer(json!({"podTemplateRef": {"name": "t"}, "replicas": 0}));
    let resolved = buffers::resolve(&empty, &view).expect("resolved");
    let condition = buffers::provisioning(&empty, Ok(&resolved), &solution).expect("a verdict");
    assert_eq!((condition.fits, condition.reason), (false, "BufferEmpty"));
}

#[test] // api 14: what an API server would refuse has not been past one
fn prices_that_are_none_do_not_count() {
    for (fields, part) in [
        (json!({"price": "-2"}), "spec.price: \"-2\""),
        (json!({"price": "1e3"}), "spec.price: \"1e3\""),
        (json!({"price": "1."}), "spec.price"),
        (json!({"priceAdjustment": "5"}), "spec.priceAdjustment: \"5\""),
        (json!({"priceAdjustment": "-101%"}), "spec.priceAdjustment: \"-101%\""),
        (json!({"price": "2", "priceAdjustment": "+1"}), "cannot set both"),
    ] {
        let overlay = overlay("o", fields);
        let mut pools = [input(pool("default", json!({})), &catalogue_d())];
        let verdicts = overlays::apply(&mut pools, [&overlay]);
        let Some(Verdict::Invalid(why)) = verdicts.get("o") else { panic!("{verdicts:?}") };
        assert!(why.contains(part), "{why}");
    }
}

#[test] // api 20, case 5
fn a_savings_plan_makes_on_demand_cheaper() {
    let savings = overlay(
        "savings-plan",
        json!({"weight": 5, "priceAdjustment": "-30%", "requirements": [
            {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5"]},
            {"key": CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}]}),
    );
    let of_family = |name: &str, family: &str| {
        let mut it = Fake::new(name, 2, 8).build();
        it.offerings.iter_mut().for_each(|it| {
            let spot = it.capacity_type == spokeshave_model::CapacityType::Spot;
            it.price = Some(if spot { 0.035 } else { 0.096 });
        });
        it.requirements.add(spokeshave_model::Requirement::equals(
            "karpenter.k8s.aws/instance-family",
            family,
        ));
        it
    };
    let types = catalogue([of_family("m5.large", "m5"), of_family("c5.large", "c5")]);
    let mut pools = vec![input(pool("general", json!({})), &types)];
    let verdicts = overlays::apply(&mut pools, [&savings]);
    assert_eq!(verdicts["savings-plan"], Verdict::Applied);
    for it in pools[0].instance_types.as_ref().expect("types").iter() {
        for offering in &it.offerings {
            let spot = offering.capacity_type == spokeshave_model::CapacityType::Spot;
            let expected = match (it.name.as_str(), spot) {
                (_, true) => 0.035,
                ("m5.large", false) => 0.0672,
                _ => 0.096,
            };
            let price = offering.price.expect("known");
            assert!((price - expected).abs() < 1e-9, "{} {spot}: {price}", it.name);
        }
    }
    for (wanted, says) in [("m5.large", Some("true")), ("c5.large", None)] {
        let wants = json!({"spec": {"nodeSelector": {INSTANCE_TYPE: wanted}}});
        let solution = plan(&ClusterView::default(), &pools, [pod("p", &[], wants)]);
        let claim = solution.new_claims[0].to_node_claim(|from, _| from);
        let applied = claim.metadata.annotation("karpenter.sh/price-overlay-applied");
        assert_eq!(applied, says, "{wanted}");
    }
}

#[test] // scheduling 20, case 8: overlays are evaluated in each plan, so a pool is never without them
fn a_new_pool_has_its_overlays_at_once() {
    let cheap = overlay("cheap", json!({"price": "0.5"}));
    let mut pools = plain();
    overlays::apply(&mut pools, [&cheap]);
    let mut grown = plain();
    grown.push(PoolInput { nodepool: Arc::new(pool("new", json!({}))), ..grown[0].clone() });
    let verdicts = overlays::apply(&mut grown, [&cheap]);
    assert_eq!(verdicts["cheap"], Verdict::Applied);
    for it in pools.iter().chain(&grown) {
        let types = it.instance_types.as_ref().expect("types");
        assert!(types[0].offerings.iter().all(|it| it.price == Some(0.5)));
    }
}

#[test] // api 14, case 6
fn prices_of_the_heaviest_and_capacities_of_all() {
    let (pools, verdicts) = apply(&[
        overlay(
            "a",
            json!({"weight": 5, "priceAdjustment": "-10%", "capacity": {"hugepages-2Mi": "50Mi"}}),
        ),
        overlay(
            "b",
            json!({"weight": 10, "priceAdjustment": "-20%", "capacity": {"example.com/slice": "1"}}),
        ),
    ]);
    assert!(verdicts.values().all(|it| *it == Verdict::Applied));
    assert!((price(&pools, 0) - 0.8 * price(&plain(), 0)).abs() < 1e-9);
    let type_ = &pools[0].instance_types.as_ref().expect("types")[0];
    let has = type_.allocatable_of(&type_.offerings[0]);
    assert_eq!((has.get("hugepages-2Mi"), has.get("example.com/slice")), (q("50Mi"), q("1")));
}

#[test] // api 20, case 6
fn a_buffer_stays_within_each_of_its_limits() {
    let view = view(template(&[("cpu", "500m"), ("memory", "512Mi")]));
    for (limits, expected) in
        [(json!({"cpu": "2"}), 4), (json!({"cpu": "2", "memory": "1Gi"}), 2), (json!({}), 6)]
    {
        let it = buffer(json!({"podTemplateRef": {"name": "t"}, "replicas": 6, "limits": limits}));
        assert_eq!(buffers::resolve(&it, &view).expect("resolved").replicas, expected);
    }
}
