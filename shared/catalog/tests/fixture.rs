//! The whole fixture against the published golden values, and the real types against the published reference.

mod common;

use std::collections::BTreeMap;

use common::{catalog, class, label, now, types};
use serde_json::Value;
use spokeshave_catalog::{Catalog, MarketView};
use spokeshave_model::{
    EC2NodeClass, InstanceType, Resources, Settings, ec2_node_class::NetworkInterface,
};

const EXPECTED: &str = include_str!("data/fixture-expected.txt");

/// Amounts in the units of the golden file, zeros left out.
fn amounts(resources: &Resources) -> String {
    resources
        .iter()
        .filter(|(_, amount)| !amount.is_zero())
        .map(|(name, amount)| {
            let n = if name == "cpu" { amount.milli_value() } else { amount.value() };
            format!("{name}={n}")
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// The same in the golden file's order (by code point, as ours is).
fn sorted(text: &str) -> String {
    let mut parts: Vec<&str> = text.split(' ').filter(|it| !it.is_empty()).collect();
    parts.sort_unstable();
    parts.join(" ")
}

fn variant(options: &Value) -> (EC2NodeClass, Settings) {
    let mut settings = Settings::default();
    let mut class = class(options["amiFamily"].as_str().expect("named"));
    class.spec.kubelet =
        options.get("kubelet").map(|it| serde_json::from_value(it.clone()).expect("an object"));
    class.spec.instance_store_policy =
        options.get("instanceStorePolicy").and_then(Value::as_str).map(str::to_owned);
    settings.reserved_enis = options.get("reservedENIs").and_then(Value::as_i64).unwrap_or(0);
    if let Some(percent) = options.get("vmMemoryOverheadPercent").and_then(Value::as_f64) {
        settings.vm_memory_overhead_percent = percent;
    }
    for entry in options.get("networkInterfaces").and_then(Value::as_array).into_iter().flatten() {
        class.spec.network_interfaces.push(NetworkInterface {
            network_card_index: entry[0].as_i64().expect("card") as i32,
            device_index: entry[1].as_i64().expect("device") as i32,
            interface_type: entry[2].as_str().expect("type").to_owned(),
        });
    }
    (class, settings)
}

#[test] // aws-capacity 3, 4, 5 on all types, families and variants
fn golden_values_of_the_fixture() {
    let mut lists: BTreeMap<String, Vec<InstanceType>> = BTreeMap::new();
    let mut name = "";
    let mut checked = 0;
    for line in EXPECTED.lines().filter(|it| !it.starts_with('#')) {
        let (head, rest) = line.split_once('\t').unwrap_or((line, ""));
        let (kind, about) = head.split_once(' ').expect("two words");
        if kind == "type" {
            name = about;
            continue;
        }
        let list = lists.entry(about.to_owned()).or_insert_with(|| {
            if kind == "variant" {
                let (class, settings) = variant(&serde_json::from_str(about).expect("JSON"));
                types(&class, &settings)
            } else {
                types(&class(about), &Settings::default())
            }
        });
        let it = list.iter().find(|it| it.name == name).expect(name);
        let want = |text: &str| sorted(text);
        let what = format!("{name}: {head}");
        match kind {
            "labels" => {
                let skipped =
                    ["zone", "capacity-type", "tenancy", "reservation", "placement-group"];
                let got: BTreeMap<String, String> = it
                    .requirements
                    .iter()
                    .filter(|label| !skipped.iter().any(|word| label.key.contains(word)))
                    .filter(|label| label.values.len() == 1)
                    .map(|label| {
                        (label.key.clone(), label.values.first().cloned().unwrap_or_default())
                    })
                    .collect();
                let wanted: BTreeMap<String, String> = rest
                    .split('\t')
                    .map(|pair| {
                        let (key, value) = pair.split_once('=').expect("a pair");
                        (key.replace('~', "karpenter.k8s.aws/instance-"), value.to_owned())
                    })
                    .collect();
                assert_eq!(got, wanted, "{what}");
            }
            "capacity" => assert_eq!(amounts(&it.capacity), want(rest), "{what}"),
            "kube" => assert_eq!(amounts(&it.overhead.kube_reserved), want(rest), "{what}"),
            "eviction" => {
                assert_eq!(amounts(&it.overhead.eviction_threshold), want(rest), "{what}");
            }
            "allocatable" => assert_eq!(amounts(&it.allocatable()), want(rest), "{what}"),
            "variant" => {
                let (capacity, allocatable) = rest.split_once('\t').expect("two lists");
                assert_eq!(amounts(&it.capacity), want(capacity), "{what}");
                assert_eq!(amounts(&it.allocatable()), want(allocatable), "{what}");
            }
            other => panic!("{other}"),
        }
        checked += 1;
    }
    assert_eq!(checked, 17 * (2 + 5 * 4 + 8));
    assert_eq!(catalog().types.len(), 17);
}

/// Every published type against the built-in facts and the formulas, apart from what newer tables correct.
#[test]
fn the_published_reference_is_reproduced() {
    let settings = Settings::default();
    let mut class = class("AL2023");
    class.status.subnets.clear();
    let mut types: BTreeMap<String, InstanceType> = BTreeMap::new();
    // No single region sells everything.
    for region in spokeshave_catalog::builtin::regions() {
        let catalog = Catalog::builtin(region).expect("known");
        let list = catalog.instance_types(&class, &MarketView::new(&settings, now()));
        types.extend(list.expect("resolves").into_iter().map(|it| (it.name.clone(), it)));
    }
    let mut lines = include_str!("data/reference.tsv").lines();
    let head: Vec<&str> = lines.nth(1).expect("a head line").split('\t').collect();
    let bar = head.iter().position(|it| *it == "|").expect("a bar");
    let (mut missing, mut differ, mut checked) = (Vec::new(), Vec::new(), 0);
    for line in lines {
        let cells: Vec<&str> = line.split('\t').collect();
        let Some(it) = types.get(cells[0]) else {
            missing.push(cells[0]);
            continue;
        };
        let allocatable = it.allocatable();
        for (at, (column, wanted)) in head.iter().zip(&cells).enumerate().skip(1) {
            if at == bar {
                continue;
            }
            let got = if at < bar {
                let key = match *column {
                    "arch" => "kubernetes.io/arch".to_owned(),
                    name => format!("karpenter.k8s.aws/instance-{name}"),
                };
                label(it, &key).join(",")
            } else {
                let amount = allocatable.get(column);
                let expected = wanted.parse().unwrap_or_default();
                if amount == expected { (*wanted).to_owned() } else { amount.to_string() }
            };
            checked += 1;
            if got != *wanted {
                differ.push(format!("{} {column}: {got:?}, published {wanted:?}", cells[0]));
            }
        }
    }
    assert_eq!(missing, [""; 0]);
    // The network tables are newer than the published list: branch interfaces it does not know yet, and three bandwidths.
    let newer = |it: &&String| {
        it.contains(" vpc.amazonaws.com/pod-eni: ") && it.ends_with("published \"\"")
            || it.starts_with("g7.") && it.contains(" network-bandwidth: ")
    };
    let others: Vec<&String> = differ.iter().filter(|it| !newer(it)).collect();
    assert_eq!(others, [] as [&String; 0]);
    assert_eq!((checked, differ.len()), (43_616, 59));
}
