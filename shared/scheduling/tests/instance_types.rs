//! Which types are left, and what they cost; reservations (`spec` scheduling 13 and 14, appendix A).

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use std::sync::Arc;

use common::*;
use serde_json::{Value, json};
use spokeshave_model::{
    CapacityType, InstanceType, Offering, Requirement,
    instance_type::Reservation,
    labels::{
        ARCH, CAPACITY_RESERVATION_ID, CAPACITY_TYPE, HOSTNAME, INSTANCE_FAMILY, INSTANCE_TYPE,
        ZONE,
    },
    settings::MinValuesPolicy,
};
use spokeshave_scheduling::{
    ALL_FILTERED, ClusterView, MIN_VALUES_AFTER_CUT, Options, Solution, solve,
};

/// Two types that cost 0.52 and 1.0.
fn two_types() -> Catalogue {
    let priced = |name: &str, price: f64| {
        let mut it = Fake::new(name, 4, 4).build();
        it.offerings.iter_mut().for_each(|offering| offering.price = Some(price));
        it
    };
    catalogue([priced("instance-type-1", 0.52), priced("instance-type-2", 1.0)])
}

fn min_values(key: &str, least: i32) -> Value {
    json!({"spec": {"template": {"spec": {"requirements": [{"key": key, "operator": "Exists", "minValues": least}]}}}})
}

fn best_effort(fields: Value, types: &Catalogue) -> Solution {
    let options = Options { min_values_policy: MinValuesPolicy::BestEffort, ..options() };
    let pools = [input(pool("default", fields), types)];
    solve(&ClusterView::default(), &pools, &batch([pod("p", &[], json!({}))]), &options, now())
}

#[test] // scheduling 13, cases 4-7; api 7, cases 7 and 9
fn min_values_strict_and_best_effort() {
    let solution = plan_new(min_values(INSTANCE_TYPE, 3), &two_types(), [pod("p", &[], json!({}))]);
    assert!(reason(&solution, "p").starts_with(ALL_FILTERED));
    let solution = best_effort(min_values(INSTANCE_TYPE, 3), &two_types());
    let claim = solution.new_claims[0].to_node_claim(|from, _| from);
    assert_eq!(
        requirement(&solution, 0, INSTANCE_TYPE),
        format!("{INSTANCE_TYPE} In [instance-type-1 instance-type-2] minValues 2")
    );
    assert_eq!(claim.metadata.annotations["karpenter.sh/nodeclaim-min-values-relaxed"], "true");
    assert_eq!(
        solution.new_claims[0].cheapest.as_ref().expect("bought").instance_type,
        "instance-type-1"
    );
    let solution = best_effort(min_values(ZONE, 4), &two_types());
    assert!(requirement(&solution, 0, ZONE).ends_with("minValues 3"));

    let many = catalogue((0..700).map(|at| {
        let mut it = Fake::new(&format!("t-{at:03}"), 4, 4).build();
        it.offerings.iter_mut().for_each(|offering| offering.price = Some(700.0 - f64::from(at)));
        it
    }));
    let solution = plan_new(json!({}), &many, [pod("p", &[], json!({}))]);
    assert_eq!((types(&solution)[0].len(), types(&solution)[0][0]), (600, "t-699"));
    let solution = plan_new(min_values(INSTANCE_TYPE, 601), &many, [pod("p", &[], json!({}))]);
    assert_eq!(
        (reason(&solution, "p").as_str(), solution.new_claims.len()),
        (MIN_VALUES_AFTER_CUT, 0)
    );
}

#[test] // scheduling 13, case 6
fn families_are_counted_among_the_types_that_are_left() {
    let of = |name: &str, family: &str, cpu: i64| {
        let mut type_ = Fake::new(name, cpu, 4).build();
        type_.requirements.replace(Requirement::equals(INSTANCE_FAMILY, family));
        type_
    };
    let types_of = catalogue([of("a1", "a", 2), of("a2", "a", 8), of("b1", "b", 2)]);
    let families = json!({"spec": {"template": {"spec": {"requirements": [
        {"key": INSTANCE_FAMILY, "operator": "In", "values": ["a", "b", "c"], "minValues": 2}]}}}});
    let place =
        |cpu: &str| plan_new(families.clone(), &types_of, [pod("p", &[("cpu", cpu)], json!({}))]);
    assert_eq!(types(&place("1")), [["a1", "b1", "a2"]]);
    let solution = place("4");
    assert!(solution.new_claims.is_empty());
    assert_eq!(
        reason(&solution, "p"),
        "minValues requirement is not met for label(s) (label(s)=[karpenter.k8s.aws/instance-family]), \
         requirements=karpenter.k8s.aws/ec2nodeclass In [default], karpenter.k8s.aws/instance-family In [a b c] \
         minValues 2, karpenter.sh/nodepool In [default], resources={\"cpu\":\"4\",\"pods\":\"1\"}"
    );
}

#[test] // scheduling 13, cases 1-3 and 8
fn types_in_price_order_and_why_not() {
    let priced = |name: &str, price: f64| {
        let mut it = Fake::new(name, 4, 4).build();
        it.offerings.iter_mut().for_each(|offering| offering.price = Some(price));
        it
    };
    let three = catalogue([priced("small", 2.0), priced("medium", 3.0), priced("large", 1.0)]);
    let solution = plan_new(json!({}), &three, [pod("p", &[], json!({}))]);
    assert_eq!(types(&solution), [["large", "small", "medium"]]);
    let solution =
        plan_new(requires(ARCH, "In", &["arm64"]), &catalogue_d(), [pod("p", &[], json!({}))]);
    assert_eq!(types(&solution), [["arm-instance-type"]]);

    let why = |requests: &[(&str, &str)], fields: Value| {
        reason(&plan_new(json!({}), &catalogue_d(), [pod("p", requests, fields)]), "p")
    };
    assert!(why(&[("cpu", "3")], select(INSTANCE_TYPE, "small-instance-type")).starts_with(
        "no instance type which had enough resources and the required offering met the scheduling requirements, requirements="));
    assert!(
        why(&[("memory", "2Ti")], json!({}))
            .starts_with("no instance type has enough resources, requirements=")
    );
    assert!(why(&[("cpu", "1M")], json!({})).starts_with(
        "no instance type has enough resources (CPU request >= 1 Million, m vs M typo?), requirements="));
    assert!(why(&[("cpu", "3")], json!({})).is_empty());
    assert!(
        why(&[("no.such/thing", "1")], json!({}))
            .contains("resources={\"no.such/thing\":\"1\",\"pods\":\"1\"}")
    );

    let mut without = Fake::new("t", 4, 4).build();
    for offering in
        without.offerings.iter_mut().filter(|it| it.capacity_type == CapacityType::OnDemand)
    {
        offering.available = false;
    }
    let mut spot_only = without.clone();
    spot_only.offerings.retain(|it| it.capacity_type == CapacityType::Spot);
    spot_only.requirements.replace(Requirement::equals(CAPACITY_TYPE, "spot"));
    let types = catalogue([without]);
    let on_demand = requires(CAPACITY_TYPE, "In", &["on-demand"]);
    let solution = plan_new(on_demand, &types, [pod("p", &[], json!({}))]);
    assert_eq!(reason(&solution, "p"), ALL_FILTERED);
    assert_eq!(solution.skipped_pools.len(), 1);
    let solution = plan_new(json!({}), &types, [pod("p", &[], select(CAPACITY_TYPE, "on-demand"))]);
    assert!(
        reason(&solution, "p")
            .starts_with("no instance type had enough resources or had a required offering, ")
    );
    let solution = plan_new(
        json!({}),
        &catalogue([spot_only]),
        [pod("p", &[], select(CAPACITY_TYPE, "on-demand"))],
    );
    assert!(reason(&solution, "p").starts_with(
        "no instance type met the scheduling requirements or had enough resources or had a required offering, "));
}

#[test] // scheduling 3.3 and 15: only offerings that hold the pods count
fn offerings_that_do_not_hold_the_pods_are_neither_listed_nor_priced() {
    let mut type_ = Fake::new("type", 2, 4).build();
    for offering in &mut type_.offerings {
        if offering.capacity_type == CapacityType::OnDemand {
            offering.price = Some(3.0);
            offering.capacity = Some(Arc::new(resources(&[("memory", "8Gi")])));
        }
    }
    let types = catalogue([type_]);
    for (memory, expected, price) in [
        ("1Gi", "karpenter.sh/capacity-type In [on-demand spot]", 0.6294967296),
        ("5Gi", "karpenter.sh/capacity-type In [on-demand]", 3.0),
    ] {
        let pods = [pod("p", &[("memory", memory)], json!({}))];
        let solution = plan_new(json!({}), &types, pods);
        assert_eq!(requirement(&solution, 0, CAPACITY_TYPE), expected);
        assert_eq!(solution.price(), price);
    }
}

#[test] // B-049
fn an_unknown_price_is_the_last_choice_and_spot_without_one_is_none() {
    let unpriced = |name: &str| {
        let mut type_ = Fake::new(name, 4, 4).build();
        type_.offerings.iter_mut().for_each(|it| it.price = None);
        type_
    };
    let place = |types: Catalogue, fields: Value| {
        plan_new(json!({}), &types, [pod("p", &[("cpu", "1")], fields)])
    };
    let both = place(catalogue([unpriced("a"), Fake::new("b", 4, 4).build()]), json!({}));
    assert_eq!(types(&both), [["b", "a"]]);
    let alone = place(catalogue([unpriced("a")]), json!({}));
    let cheapest = alone.new_claims[0].cheapest.as_ref().expect("something to buy");
    assert_eq!((cheapest.capacity_type, cheapest.price), (CapacityType::OnDemand, None));
    assert_eq!(requirement(&alone, 0, CAPACITY_TYPE), "karpenter.sh/capacity-type In [on-demand]");
    assert_eq!(alone.price(), 0.0);
    let spot = json!({"spec": {"nodeSelector": {CAPACITY_TYPE: "spot"}}});
    assert!(place(catalogue([unpriced("a")]), spot).new_claims.is_empty());
}

/// The types of section 14's cases.
fn reserved_types(counts: [i64; 2]) -> Catalogue {
    let with = |name: &str, cpu: i64, reservation: Option<(&str, i64)>| -> InstanceType {
        let mut it = Fake::new(name, cpu, cpu * 2).build();
        if let Some((id, count)) = reservation {
            it.offerings.push(Offering {
                capacity_type: CapacityType::Reserved,
                zone: "test-zone-1".into(),
                price: Some(1e-7),
                available: count > 0,
                reservation: Some(Reservation {
                    id: id.into(),
                    type_: "default".into(),
                    count,
                    ..Reservation::default()
                }),
                ..Offering::default()
            });
            it.requirements.replace(
                requirements_of(&it.offerings).get(CAPACITY_TYPE).expect("listed").clone(),
            );
        }
        it
    };
    catalogue([
        with("large", 6, None),
        with("medium", 3, Some(("r-medium", counts[0]))),
        with("small", 2, Some(("r-small", counts[1]))),
    ])
}

#[test] // scheduling 14, cases 1, 5, 6 and 7
fn reservations_are_put_aside() {
    let pods = || replicas("a", 0, 3, &[("cpu", "1800m")], &json!({}));
    let solution = plan_new(json!({}), &reserved_types([1, 1]), pods());
    assert_eq!((solution.new_claims.len(), solution.deferred.len()), (1, 2));
    assert!(solution.unschedulable.is_empty());
    assert_eq!(requirement(&solution, 0, CAPACITY_TYPE), format!("{CAPACITY_TYPE} In [reserved]"));
    assert_eq!(
        requirement(&solution, 0, CAPACITY_RESERVATION_ID),
        format!("{CAPACITY_RESERVATION_ID} In [r-medium r-small]")
    );
    assert_eq!(solution.new_claims[0].cheapest.as_ref().expect("bought").instance_type, "medium");
    // The next batches: one reservation is left, then none.
    let solution = plan_new(json!({}), &reserved_types([1, 0]), pods().into_iter().take(2));
    assert_eq!(
        (solution.new_claims[0].reservations.as_slice(), solution.deferred.len()),
        (["r-medium".to_owned()].as_slice(), 1)
    );
    let solution = plan_new(json!({}), &reserved_types([0, 0]), pods().into_iter().take(1));
    assert!(solution.new_claims[0].reservations.is_empty());

    let solution = plan_new(
        json!({}),
        &reserved_types([1, 1]),
        [pod("p", &[], select(CAPACITY_TYPE, "on-demand"))],
    );
    assert!(solution.new_claims[0].reservations.is_empty());
    let solution = plan_new(
        json!({}),
        &reserved_types([0, 1]),
        replicas("a", 0, 2, &[("cpu", "500m")], &json!({})),
    );
    assert_eq!((solution.new_claims.len(), solution.new_claims[0].pods.len()), (1, 2));
}

#[test] // scheduling 14, cases 2-4
fn pods_wait_for_reservations() {
    let types = reserved_types([0, 1]);
    let anti = affine("podAntiAffinity", "a", HOSTNAME);
    let pools = [
        input(pool("a", json!({"spec": {"weight": 2}})), &types),
        input(pool("b", json!({"spec": {"weight": 1}})), &types),
    ];
    let solution = plan(&ClusterView::default(), &pools, replicas("a", 0, 2, &[], &anti));
    assert_eq!((solution.new_claims.len(), solution.deferred.len()), (1, 1));
    // The next plan: the reservation is used up, and nobody waits for it any more.
    let used_up: Vec<spokeshave_scheduling::PoolInput> =
        pools.iter().map(|it| input((*it.nodepool).clone(), &reserved_types([0, 0]))).collect();
    let rest = replicas("a", 0, 2, &[], &anti).into_iter().skip(1);
    let solution = plan(&ClusterView::default(), &used_up, rest);
    assert_eq!((claims(&solution), solution.deferred.len()), (vec![vec!["a-001"]], 0));
    assert_eq!(
        requirement(&solution, 0, CAPACITY_TYPE),
        format!("{CAPACITY_TYPE} In [on-demand spot]")
    );
    let light = [pools[0].clone(), input(pool("light", json!({})), &catalogue_d())];
    let solution = plan(&ClusterView::default(), &light, replicas("a", 0, 2, &[], &anti));
    assert_eq!((solution.new_claims.len(), solution.deferred.len()), (1, 1));

    let towards = |zone: &str| over(anti.clone(), affinity(&[], &[(1, expr(ZONE, &[zone]))]));
    let solution = plan_new(json!({}), &types, replicas("a", 0, 1, &[], &towards("test-zone-2")));
    assert_eq!(requirement(&solution, 0, ZONE), format!("{ZONE} In [test-zone-2]"));
    assert!(solution.new_claims[0].reservations.is_empty());
    let solution = plan_new(json!({}), &types, replicas("a", 0, 2, &[], &towards("test-zone-1")));
    assert_eq!((solution.new_claims.len(), solution.deferred.len()), (1, 1));
}

#[test] // scheduling appendix A, cases 1-6
fn the_catalogues() {
    let f = catalogue_f(400);
    assert_eq!(f[0].allocatable().get("cpu"), q("900m"));
    assert_eq!(f[0].allocatable().get("memory"), q("2038Mi"));
    assert!((f[0].offerings[0].price.expect("known") - 0.314_748_364_8).abs() < 1e-12);
    assert!((f[399].offerings[0].price.expect("known") - 125.899_345_92).abs() < 1e-9);
    assert_eq!(f[4].requirements.single("size"), Some("large"));
    assert_eq!(f[3].requirements.single("size"), Some("small"));
    assert_eq!(
        f[399].capacity,
        resources(&[("cpu", "400"), ("memory", "800Gi"), ("pods", "4000")])
    );
    assert_eq!(f[399].requirements.single("size"), Some("large"));
    assert_eq!(f[0].capacity.get("pods"), q("10"));
    assert_eq!(f[0].requirements.single("size"), Some("small"));
    let special = |it: &InstanceType| it.requirements.get("special").map(ToString::to_string);
    assert_eq!(special(&f[4]).as_deref(), Some("special In [optional]"));
    assert_eq!(special(&f[3]).as_deref(), Some("special DoesNotExist"));
    let d = catalogue_d();
    assert_eq!(d[4].requirements.single("integer"), Some("16"));
    assert_eq!(d[4].requirements.single("size"), Some("large"));
    // Two of one price: the first in the alphabet is the first on the claim, and is bought.
    assert_eq!(d[0].offerings[0].price, d[5].offerings[0].price);
    let solution = plan_new(json!({}), &d, [pod("p", &[("cpu", "3")], json!({}))]);
    assert_eq!(types(&solution)[0][..2], ["default-instance-type", "single-pod-instance-type"]);
    let cheapest = solution.new_claims[0].cheapest.as_ref().expect("something to buy");
    assert_eq!(cheapest.instance_type, "default-instance-type");
    // Catalogue X differs in sizes and places alone.
    let largest = Fake::new("64-cpu-128-mem", 64, 128).price();
    assert!((largest - 20.143_895_347_2).abs() < 1e-9);
}
