//! The made-up region of `spec` aws-capacity: 17 types, four zones, one subnet each.
#![allow(dead_code)]

use std::collections::BTreeMap;

use spokeshave_catalog::{Catalog, MarketView, builtin, table};
use spokeshave_model::{
    EC2NodeClass, InstanceType, ObjectMeta, Settings, Timestamp,
    ec2_node_class::{AmiSelectorTerm, SubnetStatus},
};
use spokeshave_ports::ec2::TypeOffering;

pub const ZONES: &[(&str, &str)] = &[
    ("test-zone-1a", "tstz1-1a"),
    ("test-zone-1b", "tstz1-1b"),
    ("test-zone-1c", "tstz1-1c"),
    ("test-zone-1a-local", "tstz1-1alocal"),
];

/// 1 January 2026, 10:00 UTC.
pub fn now() -> Timestamp {
    at(0)
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_261_600 + seconds).expect("in range")
}

/// The fixture, priced as us-west-2 is before any price was read.
pub fn catalog() -> Catalog {
    let text = include_str!("../data/fixture-types.tsv");
    let types = table::read_types(text).expect("the fixture is readable");
    let mut offerings = Vec::new();
    for line in text.lines().filter(|it| !it.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let zones = columns.last().copied().unwrap_or_default();
        offerings.extend(
            zones
                .split(',')
                .filter(|it| !it.is_empty())
                .map(|zone| TypeOffering { instance_type: columns[0].into(), zone: zone.into() }),
        );
    }
    // Sold but not described: happens in real accounts.
    offerings.extend(
        ["m5.2xlarge", "m5.4xlarge", "m5.8xlarge"]
            .map(|name| TypeOffering { instance_type: name.into(), zone: "test-zone-1a".into() }),
    );
    let zones: BTreeMap<String, String> =
        ZONES.iter().map(|(name, id)| ((*name).to_owned(), (*id).to_owned())).collect();
    Catalog::new("us-west-2", types, &offerings, zones, builtin::on_demand_prices("us-west-2"))
}

/// A class of `family` with one subnet in each of the first `zones` zones.
pub fn class_in(family: &str, zones: usize) -> EC2NodeClass {
    let mut class =
        EC2NodeClass { metadata: ObjectMeta::named("default"), ..EC2NodeClass::default() };
    class.spec.ami_family = Some(family.to_owned());
    class.spec.ami_selector_terms =
        vec![AmiSelectorTerm { id: Some("ami-1".into()), ..AmiSelectorTerm::default() }];
    class.status.subnets = ZONES
        .iter()
        .take(zones)
        .enumerate()
        .map(|(at, (zone, id))| SubnetStatus {
            id: format!("subnet-test{}", at + 1),
            zone: (*zone).to_owned(),
            zone_id: (*id).to_owned(),
        })
        .collect();
    class
}

/// A class of `family` with all four subnets.
pub fn class(family: &str) -> EC2NodeClass {
    class_in(family, 4)
}

/// The types of the fixture for `class` with nothing marked.
pub fn types(class: &EC2NodeClass, settings: &Settings) -> Vec<InstanceType> {
    catalog().instance_types(class, &MarketView::new(settings, now())).expect("resolves")
}

/// One type of the fixture for `class`.
pub fn one(class: &EC2NodeClass, name: &str) -> InstanceType {
    find(types(class, &Settings::default()), name)
}

pub fn find(types: Vec<InstanceType>, name: &str) -> InstanceType {
    types.into_iter().find(|it| it.name == name).expect(name)
}

/// The values of a label, sorted; empty when the type has none.
pub fn label(instance_type: &InstanceType, key: &str) -> Vec<String> {
    let found = instance_type.requirements.get(key).map(|it| it.values.iter().cloned().collect());
    found.unwrap_or_default()
}
