//! Which types are offered where, at what price.

use super::*;

fn open(it: &InstanceType) -> Vec<(String, CapacityType)> {
    let available = it.offerings.iter().filter(|it| it.available);
    available.map(|it| (it.zone.clone(), it.capacity_type)).collect()
}

#[test] // aws-capacity 6, cases 1-2
fn offerings_in_all_zones() {
    let it = one(&class("AL2023"), "c6g.large");
    assert_eq!(it.offerings.len(), 8);
    assert_eq!(
        open(&it),
        [("test-zone-1a".to_owned(), ON_DEMAND), ("test-zone-1a".to_owned(), SPOT)]
    );
    let it = one(&class_in("AL2023", 2), "m5.large");
    let foreign: Vec<_> = it
        .offerings
        .iter()
        .filter(|it| it.zone.ends_with("1c") || it.zone.ends_with("local"))
        .collect();
    assert_eq!(foreign.len(), 4);
    assert!(foreign.iter().all(|it| !it.available && it.zone_id.is_empty()));
    assert!(foreign.iter().all(|it| it.requirements().get(labels::ZONE_ID).is_none()));
}

fn info(name: &str) -> InstanceTypeInfo {
    catalog().describe(name).expect(name).clone()
}

#[test] // aws-capacity 6, cases 3-7
fn which_types_a_class_can_use() {
    let a1 = InstanceTypeInfo { name: "a1.large".into(), ..info("c6g.large") };
    for (family, expected) in [
        ("AL2023", Err(Unusable::ImageFamily)),
        ("Bottlerocket", Ok(())),
        ("AL2", Ok(())),
        ("Custom", Ok(())),
    ] {
        assert_eq!(usable(&a1, &class(family), None), expected, "{family}");
    }
    let network = |cards: &[(i64, i64)], efa: Option<i64>, entries: &[(i32, i32, &str)]| {
        let mut info = info("m6idn.32xlarge");
        info.network.cards = cards.to_vec();
        info.network.max_efa = efa;
        let mut class = class("AL2023");
        class.spec.network_interfaces = interfaces(entries).into();
        usable(&info, &class, None).is_ok()
    };
    let two = [(0, 0, "interface"), (0, 1, "efa-only")];
    let three = [(0, 0, "interface"), (0, 1, "efa-only"), (1, 0, "efa-only")];
    assert!(network(&[(0, 2)], Some(1), &two));
    assert!(network(&[(0, 2), (1, 2)], Some(2), &three));
    assert!(!network(&[(0, 2), (1, 2)], Some(1), &three));
    assert!(!network(&[(0, 4)], Some(1), &[(0, 5, "interface")]));
    assert!(!network(&[(0, 4)], Some(1), &[(0, 0, "interface"), (1, 0, "interface")]));
    assert!(!network(&[(0, 4)], None, &two));
    assert!(!network(&[], Some(1), &two));

    let group = PlacementGroup { strategy: "cluster".into(), ..PlacementGroup::default() };
    for (name, expected) in [
        ("t3.large", Err(Unusable::PlacementGroup)),
        ("m7i-flex.large", Err(Unusable::PlacementGroup)),
        ("m5.large", Ok(())),
    ] {
        assert_eq!(usable(&info(name), &class("AL2023"), Some(&group)), expected, "{name}");
    }
    let tracking =
        class_json("AL2023", &json!({"connectionTracking": {"tcpEstablishedTimeout": 350}}));
    let xen = InstanceTypeInfo { hypervisor: "xen".into(), ..info("m5.large") };
    assert_eq!(usable(&info("m5.metal"), &tracking, None), Err(Unusable::ConnectionTracking));
    assert_eq!(usable(&xen, &tracking, None), Err(Unusable::ConnectionTracking));
    assert_eq!(usable(&info("m5.large"), &tracking, None), Ok(()));
    let nested = class_json("AL2023", &json!({"cpuOptions": {"nestedVirtualization": "enabled"}}));
    let able = InstanceTypeInfo {
        processor_features: vec!["nested-virtualization".into()],
        ..info("m5.large")
    };
    assert_eq!(usable(&info("m5.large"), &nested, None), Err(Unusable::NestedVirtualization));
    assert_eq!(usable(&able, &nested, None), Ok(()));
}

#[test] // aws-capacity 6, case 8; 10, case 6
fn reserved_offerings() {
    let settings = Settings::default();
    let mut class = class("AL2023");
    class.status.capacity_reservations = vec![reserved("cr-1", "default")];
    let of = |class: &EC2NodeClass, settings: &Settings, count: Option<i64>| {
        let mut view = MarketView::new(settings, now());
        view.reservations.extend(count.map(|it| ("cr-1".to_owned(), it)));
        let list = catalog().instance_types(class, &view).expect("resolves");
        let found =
            find(list, "m5.large").offerings.into_iter().find(|it| it.reservation.is_some());
        found.map(|it| (it.price, it.available, it.reservation.map(|it| it.count)))
    };
    let price = Some(0.096 / 10_000_000.0);
    assert_eq!(of(&class, &settings, Some(10)), Some((price, true, Some(10))));
    assert_eq!(of(&class, &settings, Some(0)), Some((price, false, Some(0))));
    assert_eq!(of(&class, &settings, None), Some((price, false, Some(0))));
    class.status.capacity_reservations[0].state = "expiring".into();
    assert_eq!(of(&class, &settings, Some(10)), Some((price, false, Some(10))));
    let mut off = Settings::default();
    off.gates.reserved_capacity = false;
    assert_eq!(of(&class, &off, Some(10)), None);
}

#[test] // aws-capacity 6, case 9; 7.2
fn partitions_multiply_offerings() {
    let settings = Settings::default();
    let mut view = MarketView::new(&settings, now());
    let group = PlacementGroup {
        id: "pg-1".into(),
        strategy: "partition".into(),
        partition_count: 7,
        ..PlacementGroup::default()
    };
    view.placement_groups.insert("mine".into(), group);
    let grouped = class_json("AL2023", &json!({"placementGroupSelector": {"name": "mine"}}));
    let of = |view: &MarketView<'_>| {
        find(catalog().instance_types(&grouped, view).expect("resolves"), "m5.large")
    };
    let it = of(&view);
    assert_eq!(it.offerings.len(), 56);
    assert_eq!(label(&it, labels::PLACEMENT_GROUP_ID), ["pg-1"]);
    assert_eq!(label(&it, labels::PLACEMENT_GROUP_PARTITION).len(), 7);
    let mut marks = UnavailableOfferings::default();
    let mark = Mark::Offering {
        capacity_type: ON_DEMAND,
        instance_type: "m5.large".into(),
        zone: "test-zone-1a".into(),
        group: Some("pg-1".into()),
        partition: Some(3),
    };
    marks.mark(&mark, now());
    marks.set_now(at(1));
    view.unavailable = marks;
    let blocked: Vec<Option<i64>> =
        of(&view).offerings.iter().filter(|it| !it.available).map(|it| it.partition).collect();
    assert_eq!(blocked, [Some(3)]);
}

#[test] // aws-capacity 6, cases 10-11; 7, case 1; 12, cases 1-2
fn prices_marks_and_shifted_zones() {
    let settings = Settings::default();
    let mut catalog = catalog();
    catalog.on_demand.remove("m5.large");
    let mut view = MarketView::new(&settings, now());
    let of = |catalog: &Catalog, view: &MarketView<'_>| {
        find(catalog.instance_types(&class("AL2023"), view).expect("resolves"), "m5.large")
    };
    let it = of(&catalog, &view);
    assert!(it.offerings.iter().all(|it| !it.available && it.price.is_none()));
    view.overlay_prices.insert("m5.large".into(), 0.42);
    let it = of(&catalog, &view);
    assert!(it.offerings.iter().all(|it| it.available && it.price == Some(0.42)));

    let catalog = common::catalog();
    let mut view = MarketView::new(&settings, at(60));
    let mut marks = UnavailableOfferings::default();
    marks.mark(&Mark::offering(SPOT, "m5.large", "test-zone-1a"), now());
    marks.set_now(at(60));
    view.unavailable = marks;
    let it = of(&catalog, &view);
    let closed: Vec<_> = it.offerings.iter().filter(|it| !it.available).collect();
    assert_eq!(closed.len(), 1);
    assert_eq!((closed[0].zone.as_str(), closed[0].capacity_type), ("test-zone-1a", SPOT));

    let mut view = MarketView::new(&settings, now());
    view.shifted_zones.insert("tstz1-1a".into());
    let it = of(&catalog, &view);
    assert!(it.offerings.iter().all(|it| it.available != (it.zone == "test-zone-1a")));
}

#[test] // aws-capacity 8, cases 1, 3, 7-8
fn prices_are_merged_and_spot_is_exact_once_read() {
    let mut catalog = catalog();
    assert_eq!(catalog.spot_price("c5.large", "anywhere"), Some(0.085));
    assert_eq!(catalog.spot_price("zz9.large", "anywhere"), None);
    catalog.merge_on_demand([("c98.large".to_owned(), 1.2), ("zero.large".to_owned(), 0.0)]);
    assert_eq!(catalog.on_demand.get("c98.large"), Some(&1.2));
    assert_eq!(catalog.on_demand.get("c3.2xlarge"), Some(&0.42));
    assert_eq!(catalog.on_demand.get("zero.large"), None);
    let spot = |name: &str, zone: &str, price: f64| SpotPrice {
        instance_type: name.into(),
        zone: zone.into(),
        price,
        timestamp: Some(now()),
    };
    let timeless = SpotPrice { timestamp: None, ..spot("c97.large", "1a", 1.0) };
    assert!(!catalog.merge_spot(std::slice::from_ref(&timeless)));
    assert_eq!(catalog.spot_price("m5.large", "1a"), Some(0.096));
    assert!(catalog.merge_spot(&[
        spot("c99.large", "1a", 1.23),
        spot("c99.large", "1b", 1.5),
        spot("c98.large", "1a", 1.2),
        spot("c98.large", "1b", 1.1),
        timeless,
    ]));
    assert_eq!(catalog.spot_price("c98.large", "1b"), Some(1.1));
    assert_eq!(catalog.spot_price("c98.large", "1c"), None);
    assert_eq!(catalog.spot_price("m5.large", "1a"), None);
    assert_eq!(catalog.spot_price("c97.large", "1a"), None);
    catalog.merge_spot(&[spot("c99.large", "1a", 1.3)]);
    assert_eq!(catalog.spot_price("c98.large", "1a"), Some(1.2));
    assert_eq!(catalog.spot_price("c99.large", "1a"), Some(1.3));
}

#[test]
fn estimated_spot_prices_are_the_same_every_time() {
    let estimate = || Catalog::builtin("eu-west-1").expect("known").with_estimated_spot_prices();
    let catalog = estimate();
    assert_eq!(catalog, estimate());
    let on_demand = catalog.on_demand["m5.large"];
    for zone in &catalog.offerings["m5.large"] {
        let share = catalog.spot_price("m5.large", zone).expect("sold") / on_demand;
        assert!((0.27..0.44).contains(&share), "{zone}: {share}");
    }
    assert_eq!(builtin::regions().len(), 34);
}

#[test] // aws-capacity 23, cases 1 and 2; aws-nodeclass 26, case 6
fn gauges_of_offerings() {
    use spokeshave_catalog::gauges::{self, Series};
    use std::sync::Arc;

    // Pool A has a subnet in 1a alone, pool B in 1b.
    let shared = |zone: &str| -> Vec<Arc<InstanceType>> {
        let mut class = class("AL2023");
        class.status.subnets.retain(|it| it.zone == zone);
        types(&class, &Settings::default()).into_iter().map(Arc::new).collect()
    };
    let (a, b) = (shared("test-zone-1a"), shared("test-zone-1b"));
    let series = |capacity_type, zone: &str| Series {
        instance_type: "m5.large".into(),
        capacity_type,
        zone: zone.into(),
    };
    for order in [[&a, &b], [&b, &a]] {
        let gauges = gauges::offerings(order.map(Vec::as_slice), true);
        for (zone, available) in
            [("test-zone-1a", true), ("test-zone-1b", true), ("test-zone-1c", false)]
        {
            let gauge = gauges[&series(ON_DEMAND, zone)];
            assert_eq!((gauge.available, gauge.price), (available, 0.096), "{zone}");
        }
        let none = gauges[&series(CapacityType::Reserved, "test-zone-1a")];
        assert_eq!((none.available, none.price), (false, 0.0));
        let gauges = gauges::offerings(order.map(Vec::as_slice), false);
        assert_eq!(gauges.get(&series(CapacityType::Reserved, "test-zone-1a")), None);
    }

    // Spot cannot be had, there is no reservation.
    let mut without_spot = (*a[0]).clone();
    for it in without_spot.offerings.iter_mut().filter(|it| it.capacity_type == CapacityType::Spot)
    {
        it.available = false;
    }
    without_spot.name = "m5.large".into();
    let gauges = gauges::offerings([[Arc::new(without_spot)].as_slice()], true);
    let in_1a = [ON_DEMAND, CapacityType::Spot, CapacityType::Reserved]
        .map(|kind| gauges[&series(kind, "test-zone-1a")].available);
    assert_eq!(in_1a, [true, false, false]);

    // Each series is said once, and again when it has changed.
    let before = gauges::offerings([a.as_slice()], false);
    let after = gauges::offerings([a.as_slice(), b.as_slice()], false);
    let said = |samples: Vec<spokeshave_ports::Metric>| -> Vec<String> {
        let mine = samples.into_iter().filter(|it| it.labels[0].1 == "m5.large");
        mine.map(|it| format!("{} {} {} {}", it.name, it.labels[1].1, it.labels[2].1, it.value))
            .collect()
    };
    assert_eq!(gauges::changes(&before, &before), []);
    let name = "karpenter_cloudprovider_instance_type_offering_available";
    assert_eq!(
        said(gauges::changes(&before, &after)),
        ["spot", "on-demand"].map(|kind| format!("{name} {kind} test-zone-1b 1"))
    );
}
