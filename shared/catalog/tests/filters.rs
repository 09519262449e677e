//! Which types a launch may use: the numbered cases of aws-capacity 14.

use std::collections::BTreeSet;

use spokeshave_catalog::{
    capacity::NEURON,
    launch::{Selected, filters},
};
use spokeshave_model::{
    CapacityType, InstanceType, Offering, Operator, Quantity, Requirement, Requirements, Resources,
    instance_type::Reservation, labels, settings::MinValuesPolicy,
};

const SPOT: CapacityType = CapacityType::Spot;
const ON_DEMAND: CapacityType = CapacityType::OnDemand;
const RESERVED: CapacityType = CapacityType::Reserved;

fn offering(capacity_type: CapacityType, zone: &str, price: f64) -> Offering {
    Offering {
        capacity_type,
        zone: zone.into(),
        price: Some(price),
        available: true,
        ..Offering::default()
    }
}

fn in_reservation(
    id: &str,
    kind: &str,
    interruptible: bool,
    zone: &str,
    price: f64,
    count: i64,
) -> Offering {
    Offering {
        reservation: Some(Reservation { id: id.into(), type_: kind.into(), interruptible, count }),
        ..offering(RESERVED, zone, price)
    }
}

fn made_up(name: &str, offerings: Vec<Offering>) -> InstanceType {
    InstanceType {
        name: name.into(),
        requirements: [Requirement::equals(labels::INSTANCE_TYPE, name)].into_iter().collect(),
        capacity: Resources::new().with("cpu", Quantity::units(4)),
        offerings,
        ..InstanceType::default()
    }
}

fn wanting(entries: &[(&str, Operator, &[&str])]) -> Requirements {
    entries
        .iter()
        .map(|(key, op, values)| Requirement::new(key, *op, values.iter().copied()))
        .collect()
}

fn kinds(allowed: &[&str]) -> Requirements {
    wanting(&[(labels::CAPACITY_TYPE, Operator::In, allowed)])
}

fn select(types: Vec<InstanceType>, wanted: &Requirements) -> Selected {
    filters::select(types, wanted, &Resources::new(), MinValuesPolicy::Strict)
        .expect("something is left")
}

fn offers(selected: &Selected) -> Vec<(String, CapacityType, f64)> {
    let of = |it: &InstanceType| {
        let name = it.name.clone();
        it.offerings
            .clone()
            .into_iter()
            .map(move |it| (name.clone(), it.capacity_type, it.price.unwrap_or(-1.0)))
    };
    selected.types.iter().flat_map(of).collect()
}

#[test] // aws-capacity 14, cases 1-2
fn spot_dearer_than_on_demand_is_left_out() {
    let types = |spot: f64| {
        vec![
            made_up("a.large", vec![offering(ON_DEMAND, "z", 1.0), offering(SPOT, "z", spot)]),
            made_up("b.large", vec![offering(ON_DEMAND, "z", 0.8), offering(SPOT, "z", 0.9)]),
        ]
    };
    let both = kinds(&["spot", "on-demand"]);
    let selected = select(types(0.4), &both);
    assert_eq!(selected.capacity_type, SPOT);
    assert_eq!(
        offers(&selected),
        [
            ("a.large".to_owned(), ON_DEMAND, 1.0),
            ("a.large".to_owned(), SPOT, 0.4),
            ("b.large".to_owned(), ON_DEMAND, 0.8),
        ]
    );
    let selected = select(types(0.8), &both);
    assert!(offers(&selected).contains(&("a.large".to_owned(), SPOT, 0.8)));
    let spot_only = select(vec![made_up("a.large", vec![offering(SPOT, "z", 9.0)])], &both);
    assert_eq!(offers(&spot_only), [("a.large".to_owned(), SPOT, 9.0)]);
}

#[test] // aws-capacity 14, cases 3-4
fn exotic_types_come_last() {
    let of = |name: &str, device: Option<&str>| {
        let mut it = made_up(name, vec![offering(ON_DEMAND, "z", 1.0)]);
        if let Some(device) = device {
            it.capacity.set(device, Quantity::units(8));
        }
        it
    };
    let all = || {
        vec![
            of("m5.large", None),
            of("m5.metal", None),
            of("p5.48xlarge", Some("nvidia.com/gpu")),
            of("c7g.metal-48xl", None),
            of("inf2.xlarge", Some(NEURON)),
        ]
    };
    let names = |selected: &Selected| -> Vec<String> {
        selected.types.iter().map(|it| it.name.clone()).collect()
    };
    assert_eq!(names(&select(all(), &Requirements::new())), ["m5.large"]);
    let exotic = all().into_iter().filter(|it| it.name != "m5.large").take(2).collect();
    assert_eq!(names(&select(exotic, &Requirements::new())), ["m5.metal", "p5.48xlarge"]);
    let mut minimum = Requirement::exists(labels::INSTANCE_TYPE);
    minimum.min_values = Some(2);
    let wanted: Requirements = [minimum].into_iter().collect();
    assert_eq!(names(&select(all(), &wanted)).len(), 5);
}

#[test] // aws-capacity 14, cases 5-7, 10
fn reservations() {
    let x = made_up(
        "x.large",
        vec![in_reservation("cr-x", "default", false, "z", 10.0, 1), offering(ON_DEMAND, "z", 1.0)],
    );
    let y = made_up(
        "y.large",
        vec![
            in_reservation("cr-y", "capacity-block", false, "z", 5.0, 1),
            offering(SPOT, "z", 0.1),
        ],
    );
    let z = made_up("z.large", vec![in_reservation("cr-z", "default", true, "z", 5.0, 1)]);
    let selected = select(vec![x, y, z], &Requirements::new());
    assert_eq!(offers(&selected), [("y.large".to_owned(), RESERVED, 5.0)]);
    assert_eq!(selected.capacity_type, RESERVED);

    let three = made_up(
        "m5.large",
        vec![
            in_reservation("cr-1", "default", false, "a", 1.0, 3),
            in_reservation("cr-2", "default", false, "a", 1.0, 5),
            in_reservation("cr-3", "default", false, "b", 1.0, 1),
        ],
    );
    let selected = select(vec![three.clone()], &Requirements::new());
    let ids: Vec<&str> = selected.types[0]
        .offerings
        .iter()
        .filter_map(|it| it.reservation.as_ref())
        .map(|it| it.id.as_str())
        .collect();
    assert_eq!(ids, ["cr-2", "cr-3"]);

    let mut with_on_demand = three.clone();
    with_on_demand.offerings.push(offering(ON_DEMAND, "a", 2.0));
    let selected = select(vec![with_on_demand.clone()], &kinds(&["on-demand", "spot"]));
    assert_eq!((selected.capacity_type, selected.types[0].offerings.len()), (ON_DEMAND, 4));
    for it in &mut with_on_demand.offerings {
        it.available = it.reservation.is_none();
    }
    let selected = select(vec![with_on_demand], &kinds(&["reserved", "on-demand"]));
    assert_eq!(selected.capacity_type, ON_DEMAND);
}

#[test] // B-053: 700 types of 50 families in six zones; the 60 cheapest are of five families
fn a_call_takes_sixty_types_and_the_variety_that_is_asked_for() {
    let types = || -> Vec<InstanceType> {
        let zones = ["a", "b", "c", "d", "e", "f"];
        (0..700)
            .map(|n| {
                let price = f64::from(n) + 1.0;
                let offers = zones.iter().flat_map(|it| {
                    [offering(ON_DEMAND, it, price), offering(SPOT, it, price / 2.0)]
                });
                let family = format!("f{:02}", n / 14);
                let mut it = made_up(&format!("{family}.s{n:03}"), offers.collect());
                it.requirements.add(Requirement::equals(labels::INSTANCE_FAMILY, &family));
                it
            })
            .collect()
    };
    let wanted = |least: i32| -> Requirements {
        let mut families = Requirement::exists(labels::INSTANCE_FAMILY);
        families.min_values = (least > 0).then_some(least);
        [families].into_iter().collect()
    };
    let select = |least: i32, policy: MinValuesPolicy| {
        filters::select(types(), &wanted(least), &Resources::new(), policy)
    };
    let names = |least: i32, policy: MinValuesPolicy| -> Vec<String> {
        let selected = select(least, policy).expect("something is left");
        selected.types.into_iter().map(|it| it.name).collect()
    };
    let cheapest: Vec<String> = (0..60).map(|n| format!("f{:02}.s{n:03}", n / 14)).collect();
    assert_eq!(names(0, MinValuesPolicy::Strict), cheapest);
    assert_eq!(names(5, MinValuesPolicy::Strict), cheapest);
    // 40 families: the cheapest of each, and the 20 next cheapest.
    let varied = names(40, MinValuesPolicy::Strict);
    assert_eq!(varied.len(), 60);
    let families: BTreeSet<&str> = varied.iter().filter_map(|it| it.split('.').next()).collect();
    assert_eq!(families.len(), 40);
    assert_eq!(varied[..22], cheapest[..22], "the cheapest come first");
    assert!(families.contains("f39") && !families.contains("f40"), "{families:?}");
    assert!(varied.contains(&"f39.s546".to_owned()), "the cheapest of its family");
    let error = select(51, MinValuesPolicy::Strict).expect_err("there are 50");
    assert_eq!(
        error.to_string(),
        "no 60 instance types meet minValues of karpenter.k8s.aws/instance-family"
    );
    assert_eq!(select(51, MinValuesPolicy::BestEffort).expect("best effort").types.len(), 60);
}

#[test] // aws-capacity 14, cases 8-9; bug report B-053
fn sixty_types_and_minimum_values() {
    let types = || -> Vec<InstanceType> {
        (0..100)
            .map(|n| {
                made_up(&format!("t{n:03}.large"), vec![offering(ON_DEMAND, "z", f64::from(n))])
            })
            .collect()
    };
    let mut minimum = Requirement::exists(labels::INSTANCE_TYPE);
    minimum.min_values = Some(61);
    let wanted: Requirements = [minimum].into_iter().collect();
    let strict = filters::select(types(), &wanted, &Resources::new(), MinValuesPolicy::Strict);
    assert_eq!(
        strict.expect_err("too few").to_string(),
        "no 60 instance types meet minValues of node.kubernetes.io/instance-type"
    );
    let relaxed = filters::select(types(), &wanted, &Resources::new(), MinValuesPolicy::BestEffort);
    let relaxed = relaxed.expect("best effort");
    assert_eq!((relaxed.types.len(), relaxed.types[0].name.as_str()), (60, "t000.large"));
    for (values, tenancy) in [
        (Some(vec!["default", "dedicated"]), "default"),
        (Some(vec!["dedicated"]), "dedicated"),
        (None, "default"),
    ] {
        let wanted = values.map_or_else(Requirements::new, |it| {
            wanting(&[(labels::INSTANCE_TENANCY, Operator::In, &it)])
        });
        assert_eq!(select(types(), &wanted).tenancy, tenancy);
    }
}
