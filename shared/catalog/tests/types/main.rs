//! Labels, capacity, overhead and offerings: the numbered cases of aws-capacity 2 to 8 and 10.

#[path = "../common/mod.rs"]
mod common;
mod offerings;

use std::collections::{BTreeMap, BTreeSet};

use common::{at, catalog, class, class_in, find, label, now, one, types};
use serde_json::{Value, json};
use spokeshave_catalog::{
    Catalog, Mark, MarketView, UnavailableOfferings, builtin,
    capacity::{self, EFA, NEURON, NEURON_CORE, NVIDIA_GPU, POD_ENI, PRIVATE_IPV4},
    memory,
    offerings::{Unusable, usable},
};
use spokeshave_model::{
    CapacityType, EC2NodeClass, InstanceType, Operator, Quantity, Requirement, Requirements,
    Settings,
    ec2_node_class::{AmiStatus, CapacityReservationStatus, NetworkInterface},
    labels,
};
use spokeshave_ports::ec2::{
    EbsInfo, GpuInfo, InstanceTypeInfo, PlacementGroup, SpotPrice, TypeOffering,
};

const SPOT: CapacityType = CapacityType::Spot;
const ON_DEMAND: CapacityType = CapacityType::OnDemand;

fn kubelet(class: &mut EC2NodeClass, value: Value) {
    class.spec.kubelet = serde_json::from_value(value).expect("an object");
}

fn with_kubelet(family: &str, value: Value) -> EC2NodeClass {
    let mut class = class(family);
    kubelet(&mut class, value);
    class
}

fn amount(text: &str) -> Quantity {
    text.parse().expect(text)
}

fn interfaces(entries: &[(i32, i32, &str)]) -> Vec<NetworkInterface> {
    entries
        .iter()
        .map(|(card, device, kind)| NetworkInterface {
            network_card_index: *card,
            device_index: *device,
            interface_type: (*kind).to_owned(),
        })
        .collect()
}

fn class_json(family: &str, spec: &Value) -> EC2NodeClass {
    let mut class = class(family);
    let mut whole = serde_json::to_value(&class.spec).expect("writes");
    for (key, value) in spec.as_object().expect("an object") {
        whole[key] = value.clone();
    }
    class.spec = serde_json::from_value(whole).expect("reads");
    class
}

fn resolve(class: &EC2NodeClass, settings: &Settings, name: &str) -> InstanceType {
    find(types(class, settings), name)
}

fn cel() -> Settings {
    let mut settings = Settings::default();
    settings.gates.node_class_cel = true;
    settings
}

#[test] // aws-capacity 2, cases 2-3
fn types_and_offerings_need_not_match() {
    let small = one(&class("AL2023"), "t4g.small");
    assert_eq!(label(&small, labels::ZONE), [""; 0]);
    assert!(!small.offerings.iter().any(|it| it.available));
    let all = types(&class("AL2023"), &Settings::default());
    assert_eq!(all.len(), 17);
    assert!(all.iter().all(|it| it.name != "m5.2xlarge"));
    assert!(catalog().all_zones().contains("test-zone-1a"));
}

#[test] // aws-capacity 2, cases 5-6
fn undecodable_settings_fail_one_class_and_order_does_not_matter() {
    let broken = with_kubelet("AL2023", json!({"maxPods": [1]}));
    let settings = Settings::default();
    let view = MarketView::new(&settings, now());
    assert!(catalog().instance_types(&broken, &view).is_err());
    assert!(catalog().instance_types(&class("AL2023"), &view).is_ok());
    let mut reversed = catalog();
    let mut list = reversed.types.to_vec();
    list.reverse();
    reversed.set_types(list);
    assert_eq!(reversed, catalog());
}

#[test] // aws-capacity 2, cases 7-9
fn discovered_memory_replaces_the_guess() {
    let image = |id: &str, arch: &str| AmiStatus {
        id: id.into(),
        requirements: vec![spokeshave_model::NodeSelectorRequirement::new(
            labels::ARCH,
            Operator::In,
            &[arch],
        )],
        ..AmiStatus::default()
    };
    let mut class = class("AL2023");
    class.status.amis = vec![image("ami-arm", "arm64"), image("ami-amd", "amd64")];
    let mut node = Requirements::new();
    node.add(Requirement::equals(labels::ARCH, "amd64"));
    assert!(memory::is_current_image(&class, &node, "ami-amd"));
    assert!(!memory::is_current_image(&class, &node, "ami-old"));
    assert!(!memory::is_current_image(&class, &node, "ami-arm"));

    let settings = Settings::default();
    let mut view = MarketView::new(&settings, now());
    let guessed = catalog().instance_types(&class, &view).expect("resolves");
    assert_eq!(find(guessed, "m5.xlarge").capacity.get("memory"), amount("15155Mi"));
    let images = memory::image_set(&class);
    view.memory.observe("m5.xlarge", &images, amount("15513136Ki"), now());
    let seen = find(catalog().instance_types(&class, &view).expect("resolves"), "m5.xlarge");
    assert_eq!(seen.capacity.get("memory"), amount("15513136Ki"));
    // Eviction thresholds keep using the guess.
    assert_eq!(seen.overhead.eviction_threshold.get("memory"), amount("100Mi"));
    class.status.amis.pop();
    let other = find(catalog().instance_types(&class, &view).expect("resolves"), "m5.xlarge");
    assert_eq!(other.capacity.get("memory"), amount("15155Mi"));
}

/// A catalog with one made-up type.
fn single(info: InstanceTypeInfo) -> Catalog {
    let zone = TypeOffering { instance_type: info.name.clone(), zone: "test-zone-1a".into() };
    Catalog::new("us-west-2", vec![info], &[zone], BTreeMap::new(), BTreeMap::new())
}

fn labels_of(info: InstanceTypeInfo, key: &str) -> Vec<String> {
    let settings = Settings::default();
    let view = MarketView::new(&settings, now());
    let list = single(info).instance_types(&class("AL2023"), &view).expect("resolves");
    label(&list[0], key)
}

#[test] // aws-capacity 3, case 1
fn accelerator_labels() {
    let it = one(&class("AL2023"), "inf2.xlarge");
    assert_eq!(label(&it, labels::INSTANCE_ACCELERATOR_NAME), ["inferentia2"]);
    assert_eq!(label(&it, labels::INSTANCE_ACCELERATOR_MANUFACTURER), ["aws"]);
    assert_eq!(label(&it, labels::INSTANCE_ACCELERATOR_COUNT), ["1"]);
    assert_eq!(label(&it, labels::INSTANCE_GPU_NAME), [""; 0]);
    assert_eq!(label(&it, labels::INSTANCE_EBS_BANDWIDTH), ["10000"]);
    assert_eq!(label(&it, labels::INSTANCE_NETWORK_BANDWIDTH), ["2083"]);
}

#[test] // aws-capacity 3, case 2
fn flex() {
    let it = one(&class("AL2023"), "m7i-flex.large");
    let of = |key: &str| label(&it, key).join(",");
    assert_eq!(of(labels::INSTANCE_CATEGORY), "m");
    assert_eq!(of(labels::INSTANCE_GENERATION), "7");
    assert_eq!(of(labels::INSTANCE_FAMILY), "m7i-flex");
    assert_eq!(of(labels::INSTANCE_SIZE), "large");
    assert_eq!(of(labels::INSTANCE_CAPABILITY_FLEX), "true");
}

#[test] // aws-capacity 3, case 5
fn bare_metal_has_an_empty_hypervisor() {
    let it = one(&class("AL2023"), "m5.metal");
    assert_eq!(label(&it, labels::INSTANCE_HYPERVISOR), [""]);
    assert_eq!(label(&it, labels::INSTANCE_SIZE), ["metal"]);
    for (operator, accepts) in [(Operator::In, false), (Operator::NotIn, true)] {
        let mut wanted = Requirements::new();
        wanted.add(Requirement::new(labels::INSTANCE_HYPERVISOR, operator, ["nitro"]));
        assert_eq!(wanted.intersects(&it.requirements).is_ok(), accepts, "{operator:?}");
    }
}

#[test] // aws-capacity 3, cases 6-7, 9, 12-13
fn labels_of_made_up_types() {
    let named = |name: &str| InstanceTypeInfo {
        name: name.into(),
        architectures: vec!["x86_64".into()],
        ..InstanceTypeInfo::default()
    };
    for (ghz, mhz) in
        [(Some(3.1), "3100"), (Some(2.5), "2500"), (Some(3.34999), "3350"), (None, "0")]
    {
        let info = InstanceTypeInfo { clock_ghz: ghz, ..named("a1.x") };
        assert_eq!(labels_of(info, labels::INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ), [mhz]);
    }
    for (support, max, expected) in [("supported", 750, None), ("default", 4750, Some("4750"))] {
        let ebs = EbsInfo {
            optimized_support: support.into(),
            max_bandwidth_mbps: Some(max),
            ..EbsInfo::default()
        };
        let info = InstanceTypeInfo { ebs, ..named("a1.x") };
        let expected: Vec<&str> = expected.into_iter().collect();
        assert_eq!(labels_of(info, labels::INSTANCE_EBS_BANDWIDTH), expected);
    }
    let t4 =
        GpuInfo { name: "T4".into(), manufacturer: "NVIDIA".into(), count: 1, memory_mib: 16_384 };
    let two = InstanceTypeInfo { gpus: vec![t4.clone(), t4], ..named("g9.x") };
    assert_eq!(labels_of(two.clone(), labels::INSTANCE_GPU_NAME), [""; 0]);
    let settings = Settings::default();
    let list = single(two).instance_types(&class("AL2023"), &MarketView::new(&settings, now()));
    assert_eq!(list.expect("resolves")[0].capacity.get(NVIDIA_GPU), Quantity::units(2));
    for name in ["c4.large", "f1.2xlarge"] {
        assert_eq!(labels_of(named(name), labels::INSTANCE_NETWORK_BANDWIDTH), [""; 0], "{name}");
    }
    let it = one(&class("AL2023"), "g4ad.16xlarge");
    assert_eq!(label(&it, labels::INSTANCE_GPU_NAME), ["radeon-pro-v520"]);
    assert_eq!(label(&it, labels::INSTANCE_GPU_MANUFACTURER), ["amd"]);
    assert_eq!(label(&it, labels::INSTANCE_GPU_COUNT), ["4"]);
    assert_eq!(label(&it, labels::INSTANCE_GPU_MEMORY), ["8192"]);
}

#[test] // aws-capacity 3, cases 8, 10-11
fn capacity_types_windows_and_zones() {
    let p5 = one(&class("AL2023"), "p5.48xlarge");
    assert_eq!(label(&p5, labels::CAPACITY_TYPE), ["on-demand", "spot"]);
    let windows = class("Windows2022");
    assert_eq!(label(&one(&windows, "c6g.large"), labels::OS), [""; 0]);
    let m5 = one(&windows, "m5.large");
    assert_eq!(label(&m5, labels::OS), ["windows"]);
    assert_eq!(label(&m5, labels::WINDOWS_BUILD), ["10.0.20348"]);

    let mut catalog = catalog();
    let zones = ["test-zone-1b", "test-zone-1c"].map(str::to_owned);
    catalog.offerings.insert("m5.large".into(), BTreeSet::from(zones));
    let settings = Settings::default();
    let list = catalog.instance_types(&class_in("AL2023", 2), &MarketView::new(&settings, now()));
    let it = find(list.expect("resolves"), "m5.large");
    assert_eq!(label(&it, labels::ZONE), ["test-zone-1b"]);
    assert_eq!(label(&it, labels::ZONE_ID), ["tstz1-1b"]);
}

fn reserved(id: &str, kind: &str) -> CapacityReservationStatus {
    CapacityReservationStatus {
        id: id.into(),
        availability_zone: "test-zone-1a".into(),
        instance_type: "m5.large".into(),
        reservation_type: kind.into(),
        state: "active".into(),
        ..CapacityReservationStatus::default()
    }
}

#[test] // aws-capacity 3, case 14
fn reservation_labels() {
    let mut class = class("AL2023");
    class.status.capacity_reservations =
        vec![reserved("cr-a", "default"), reserved("cr-b", "capacity-block")];
    let it = one(&class, "m5.large");
    assert_eq!(label(&it, labels::CAPACITY_TYPE), ["on-demand", "reserved", "spot"]);
    assert_eq!(label(&it, labels::CAPACITY_RESERVATION_ID), ["cr-a", "cr-b"]);
    assert_eq!(label(&it, labels::CAPACITY_RESERVATION_TYPE), ["capacity-block", "default"]);
    assert_eq!(label(&it, labels::CAPACITY_RESERVATION_INTERRUPTIBLE), ["false"]);
    assert_eq!(label(&one(&class, "m5.xlarge"), labels::CAPACITY_RESERVATION_ID), [""; 0]);
}

#[test] // aws-capacity 4, cases 1-3, 11-13
fn capacities() {
    for (name, memory, pods, eni) in [
        ("m5.large", "7577Mi", 29, 9),
        ("c6g.large", "3729Mi", 29, 9),
        ("p5.48xlarge", "1939865Mi", 100, 120),
    ] {
        let it = one(&class("AL2023"), name);
        assert_eq!(it.capacity.get("memory"), amount(memory), "{name}");
        assert_eq!(it.capacity.get("pods"), Quantity::units(pods), "{name}");
        if name != "p5.48xlarge" {
            assert_eq!(it.capacity.get(POD_ENI), Quantity::units(eni), "{name}");
        }
    }
    let p5 = one(&class("AL2023"), "p5.48xlarge");
    assert_eq!(
        (p5.capacity.get(EFA), p5.capacity.get(NVIDIA_GPU)),
        (Quantity::units(32), Quantity::units(8))
    );
    for (name, devices, cores) in [("inf2.24xlarge", 6, 12), ("trn1.2xlarge", 1, 2)] {
        let it = one(&class("AL2023"), name);
        assert_eq!(it.capacity.get(NEURON), Quantity::units(devices), "{name}");
        assert_eq!(it.capacity.get(NEURON_CORE), Quantity::units(cores), "{name}");
    }
    assert_eq!(one(&class("AL2023"), "t3.large").capacity.get(POD_ENI), Quantity::ZERO);
    let amd = one(&class("AL2023"), "g4ad.16xlarge");
    assert_eq!(amd.capacity.get(capacity::AMD_GPU), Quantity::units(4));
    assert_eq!(amd.capacity.get(NVIDIA_GPU), Quantity::ZERO);
    for (percent, memory) in [(0.0, "16384Mi"), (0.1, "14745Mi"), (0.075, "15155Mi")] {
        let settings = Settings { vm_memory_overhead_percent: percent, ..Settings::default() };
        let it = resolve(&class("AL2023"), &settings, "m5.xlarge");
        assert_eq!(it.capacity.get("memory"), amount(memory), "{percent}");
    }
}

#[test] // aws-capacity 4, cases 4-6, 14
fn pods() {
    let count = |class: &EC2NodeClass, enis: i64, name: &str| {
        let settings = Settings { reserved_enis: enis, ..Settings::default() };
        resolve(class, &settings, name).capacity.get("pods").value()
    };
    assert_eq!(count(&class("AL2023"), 1, "t3.large"), 24);
    assert_eq!(count(&class("AL2023"), 1_000_000, "t3.large"), 0);
    for (family, value, expected) in [
        ("AL2023", json!({"maxPods": 110, "podsPerCore": 10}), 20),
        ("Bottlerocket", json!({"maxPods": 110, "podsPerCore": 10}), 110),
        ("AL2023", json!({"maxPods": 10, "podsPerCore": 10}), 10),
        ("AL2023", json!({"podsPerCore": 4}), 8),
        ("AL2023", json!({"podsPerCore": 0}), 35),
        ("Windows2022", json!({"podsPerCore": 20}), 40),
    ] {
        let class = with_kubelet(family, value.clone());
        assert_eq!(count(&class, 0, "t3.large"), expected, "{family} {value}");
    }
    let windows = one(&class("Windows2022"), "m5.large");
    assert_eq!(windows.capacity.get("pods"), Quantity::units(110));
    assert_eq!(windows.capacity.get(PRIVATE_IPV4), Quantity::units(9));
    assert_eq!(windows.capacity.get("ephemeral-storage"), amount("50Gi"));
    let prefixes = class_json("AL2023", &json!({"ipPrefixCount": 16}));
    assert_eq!(count(&prefixes, 0, "m5.large"), 29);
}

#[test] // aws-capacity 4.3, 6.2: what EC2 leaves out or says twice
fn odd_answers_do_no_harm() {
    let info = InstanceTypeInfo {
        name: "zz9.large".into(),
        memory_mib: 1 << 40,
        vcpus: 1 << 40,
        usage_classes: ["spot", "on-demand", "spot", "capacity-block"].map(str::to_owned).into(),
        network: spokeshave_ports::ec2::NetworkInfo { max_interfaces: 3, ..Default::default() },
        gpus: vec![
            GpuInfo { manufacturer: "NVIDIA".into(), count: i64::MAX, ..GpuInfo::default() };
            2
        ],
        ..InstanceTypeInfo::default()
    };
    let settings = Settings::default();
    let list = single(info).instance_types(&class("AL2023"), &MarketView::new(&settings, now()));
    let list = list.expect("resolves");
    // No addresses told: the two pods of the host network.
    assert_eq!(list[0].capacity.get("pods"), Quantity::units(2));
    assert_eq!(list[0].capacity.get(NVIDIA_GPU), Quantity::units(i64::MAX));
    let offered: Vec<CapacityType> = list[0].offerings.iter().map(|it| it.capacity_type).collect();
    assert_eq!(offered, [ON_DEMAND, SPOT]);
}

#[test] // bug report B-047
fn windows_types_without_published_limits_have_no_addresses() {
    let info = InstanceTypeInfo {
        name: "zz9.large".into(),
        architectures: vec!["x86_64".into()],
        ..InstanceTypeInfo::default()
    };
    let settings = Settings::default();
    let list =
        single(info).instance_types(&class("Windows2022"), &MarketView::new(&settings, now()));
    let list = list.expect("resolves");
    assert_eq!(list[0].capacity.0.get(PRIVATE_IPV4), Some(&Quantity::ZERO));
}

#[test] // aws-capacity 4, case 7
fn efa_only_interfaces() {
    let of = |entries: &[(i32, i32, &str)]| {
        let mut class = class("AL2023");
        if !entries.is_empty() {
            class.spec.network_interfaces = interfaces(entries).into();
        }
        let it = one(&class, "m6idn.32xlarge");
        (it.capacity.get("pods").value(), it.capacity.get(EFA).value())
    };
    assert_eq!(of(&[(0, 0, "interface"), (0, 1, "efa-only")]), (345, 1));
    assert_eq!(of(&[]), (394, 2));
    assert_eq!(of(&[(0, 0, "interface"), (1, 0, "efa-only")]), (394, 1));
}

#[test] // aws-capacity 4, cases 8-10; bug report B-046
fn ephemeral_storage() {
    let storage = |family: &str, spec: Value, name: &str| {
        one(&class_json(family, &spec), name).capacity.get("ephemeral-storage")
    };
    let devices = |list: Value| json!({"blockDeviceMappings": list});
    let disk = |name: &str, size: &str| json!({"deviceName": name, "ebs": {"volumeSize": size}});
    let raid = json!({"instanceStorePolicy": "RAID0"});
    // B-046: the disks with the policy, the root volume without, and never nothing.
    let catalog = Catalog::builtin("us-east-1").expect("built in");
    let settings = Settings::default();
    let of_i3en = |spec: &Value| {
        let view = MarketView::new(&settings, now());
        let class = class_json("AL2023", spec);
        let list = catalog.resolve(&class, &view, |it| it == "i3en.xlarge").expect("resolves");
        list.types[0].capacity.get("ephemeral-storage")
    };
    assert_eq!(of_i3en(&raid), amount("2500G"));
    assert_eq!(of_i3en(&json!({})), amount("20Gi"));
    assert_eq!(
        storage("AL2023", raid.clone(), "m6idn.32xlarge"),
        Quantity::units(7_600_000_000_000)
    );
    assert_eq!(storage("AL2023", raid.clone(), "m6idn.32xlarge").to_string(), "7600G");
    assert_eq!(storage("AL2023", raid, "m5.large"), amount("20Gi"));
    let both = json!([disk("/dev/xvda", "40Gi"), disk("/dev/xvdb", "100Gi")]);
    assert_eq!(storage("Bottlerocket", devices(both.clone()), "m5.large"), amount("100Gi"));
    let mut rooted = both;
    rooted[0]["rootVolume"] = true.into();
    assert_eq!(storage("Bottlerocket", devices(rooted), "m5.large"), amount("40Gi"));
    let only = devices(json!([disk("/dev/xvda", "40Gi")]));
    assert_eq!(storage("Bottlerocket", only, "m5.large"), amount("20Gi"));
    let custom = devices(json!([disk("/dev/xvda", "20Gi"), disk("/dev/xvdb", "80Gi")]));
    assert_eq!(storage("Custom", custom, "m5.large"), amount("80Gi"));
    assert_eq!(storage("Custom", json!({}), "m5.large"), amount("20Gi"));
    let sizeless =
        devices(json!([disk("/dev/xvda", "40Gi"), {"deviceName": "/dev/xvdb", "ebs": {}}]));
    assert_eq!(storage("Custom", sizeless, "m5.large"), amount("20Gi"));
    // 4.2: nothing matches, and mappings without `ebs` or a name.
    let other = devices(
        json!([disk("/dev/sdb", "500Gi"), {"deviceName": "/dev/xvda"}, {"ebs": {"volumeSize": "9Gi"}}]),
    );
    assert_eq!(storage("AL2023", other, "m5.large"), amount("20Gi"));
}

#[test] // aws-capacity 5, cases 1-2, 4-5, 13
fn reserved_for_kubelet() {
    let m5 = one(&class("AL2023"), "m5.large");
    let kube = &m5.overhead.kube_reserved;
    assert_eq!((kube.get("cpu"), kube.get("memory")), (amount("70m"), amount("574Mi")));
    assert_eq!(kube.get("ephemeral-storage"), amount("1Gi"));
    let allocatable = m5.allocatable();
    for (name, expected) in
        [("cpu", "1930m"), ("memory", "6903Mi"), ("ephemeral-storage", "17Gi"), ("pods", "29")]
    {
        assert_eq!(allocatable.get(name), amount(expected), "{name}");
    }
    let xlarge = one(&class("AL2023"), "m5.xlarge");
    assert_eq!(xlarge.overhead.kube_reserved.get("memory"), amount("893Mi"));
    assert_eq!(xlarge.allocatable().get("memory"), amount("14162Mi"));
    assert_eq!(xlarge.allocatable().get("cpu"), amount("3920m"));

    let memory = |class: &EC2NodeClass, enis: i64, name: &str| {
        let settings = Settings { reserved_enis: enis, ..Settings::default() };
        let it = resolve(class, &settings, name);
        (it.capacity.get("pods").value(), it.overhead.kube_reserved.get("memory"))
    };
    for (family, expected) in [
        ("AL2", "640Mi"),
        ("AL2023", "640Mi"),
        ("Custom", "640Mi"),
        ("Bottlerocket", "365Mi"),
        ("Windows2022", "365Mi"),
    ] {
        let class = with_kubelet(family, json!({"maxPods": 10}));
        assert_eq!(memory(&class, 0, "t3.large"), (10, amount(expected)), "{family}");
    }
    for (family, pods, expected) in
        [("AL2023", 24, "640Mi"), ("Bottlerocket", 24, "519Mi"), ("Windows2022", 110, "1465Mi")]
    {
        assert_eq!(memory(&class(family), 1, "t3.large"), (pods, amount(expected)), "{family}");
    }
    let bottlerocket = with_kubelet("Bottlerocket", json!({"maxPods": 110}));
    let it = one(&bottlerocket, "m5.xlarge");
    assert_eq!(it.overhead.kube_reserved.get("memory"), amount("1465Mi"));
    assert_eq!(it.overhead.total().get("memory"), amount("1565Mi"));
}

#[test] // aws-capacity 5, cases 6-9; bug report B-041
fn thresholds_and_user_amounts() {
    let eviction = |value: Value, name: &str| {
        let it = one(&with_kubelet("AL2023", value), name);
        it.overhead.eviction_threshold
    };
    for (hard, bytes) in
        [("5%", 794_558_464), ("10%", 1_589_116_928), ("100%", 0), ("500Mi", 524_288_000)]
    {
        let got = eviction(json!({"evictionHard": {"memory.available": hard}}), "m5.xlarge");
        assert_eq!(got.get("memory"), Quantity::units(bytes), "{hard}");
    }
    let soft = json!({"evictionSoft": {"memory.available": "3Gi"}});
    assert_eq!(eviction(soft, "m5.xlarge").get("memory"), amount("100Mi"));
    // B-041: of 7577Mi, whatever the soft threshold says.
    for (hard, expected) in [(json!("500Mi"), 524_288_000), (json!("5%"), 397_253_018)] {
        let both = json!({"evictionHard": {"memory.available": hard}, "evictionSoft": {"memory.available": "1Gi"}});
        let it = one(&with_kubelet("AL2023", both), "m5.large");
        assert_eq!(it.capacity.get("memory"), amount("7577Mi"));
        let memory = it.overhead.eviction_threshold.get("memory");
        assert_eq!(memory, Quantity::units(expected), "{hard}");
    }
    let soft = json!({"evictionSoft": {"memory.available": "1Gi"}});
    assert_eq!(eviction(soft, "m5.large").get("memory"), amount("100Mi"));
    let disk = json!({"evictionHard": {"nodefs.available": "5%"}});
    assert_eq!(eviction(disk.clone(), "m5.large").get("ephemeral-storage"), amount("1Gi"));
    let it = one(&with_kubelet("AL2023", disk), "m5.large");
    assert_eq!(it.allocatable().get("ephemeral-storage"), amount("18Gi"));

    let it = one(
        &with_kubelet("AL2023", json!({"kubeReserved": {"cpu": "200m", "pid": "1000"}})),
        "m5.large",
    );
    assert_eq!(it.overhead.kube_reserved.get("cpu"), amount("200m"));
    assert_eq!(it.overhead.kube_reserved.get("memory"), amount("574Mi"));
    assert_eq!(it.overhead.kube_reserved.get("pid"), amount("1000"));
    assert_eq!(it.allocatable().get("cpu"), amount("1800m"));
    assert_eq!(it.allocatable().0.get("pid"), None);
    let system =
        json!({"systemReserved": {"cpu": "100m", "memory": "200Mi", "ephemeral-storage": "1Gi"}});
    let it = one(&with_kubelet("AL2023", system), "m5.large");
    for (name, expected) in [("cpu", "1830m"), ("memory", "6703Mi"), ("ephemeral-storage", "16Gi")]
    {
        assert_eq!(it.allocatable().get(name), amount(expected), "{name}");
    }
}

#[test] // aws-capacity 5, cases 10-12
fn kubelet_expressions() {
    let class = with_kubelet(
        "AL2023",
        json!({"maxPods": "min(110, vcpus * 8)", "kubeReserved": {"memory": "max_pods * 11"}}),
    );
    let it = resolve(&class, &cel(), "m5.large");
    assert_eq!(it.capacity.get("pods"), Quantity::units(16));
    assert_eq!(it.overhead.kube_reserved.get("memory"), amount("176Mi"));
    for (key, text, expected) in [
        ("cpu", "vcpus * 30", "60m"),
        ("cpu", "61", "70m"),
        ("cpu", "0", "0"),
        ("memory", "memory_mib / 100", "96Mi"),
        ("ephemeral-storage", "vcpus + 1", "3Gi"),
        ("pid", "double(vcpus) * 10.4", "20"),
    ] {
        // Texts that are quantities are amounts; these are none, but for plain numbers.
        let class = with_kubelet("AL2023", json!({"kubeReserved": {key: text}}));
        let got = resolve(&class, &cel(), "m5.large").overhead.kube_reserved.get(key);
        let plain = text.parse::<Quantity>();
        assert_eq!(got, plain.unwrap_or_else(|_| amount(expected)), "{key}: {text}");
    }
    let negative = with_kubelet("AL2023", json!({"maxPods": "0 - 1"}));
    let settings = cel();
    let error = catalog().instance_types(&negative, &MarketView::new(&settings, now()));
    assert!(error.expect_err("negative").to_string().contains("c6g.large"));
    let off = with_kubelet(
        "AL2023",
        json!({"maxPods": "vcpus * 8", "kubeReserved": {"cpu": "vcpus * 500"}}),
    );
    let it = one(&off, "m5.large");
    assert_eq!(it.capacity.get("pods"), Quantity::units(29));
    assert_eq!(it.overhead.kube_reserved.get("cpu"), amount("70m"));
    // A failing entry is left out, and told.
    let failing =
        with_kubelet("AL2023", json!({"kubeReserved": {"cpu": "vcpus / 0", "memory": "0 - 5"}}));
    let resolved =
        catalog().resolve(&failing, &MarketView::new(&settings, now()), |it| it == "m5.large");
    let resolved = resolved.expect("resolves");
    let fields: Vec<&str> = resolved.dropped.iter().map(|it| it.1.field.as_str()).collect();
    assert_eq!(fields, ["kubeReserved.cpu", "kubeReserved.memory"]);
    assert_eq!(resolved.types[0].overhead.kube_reserved.get("cpu"), amount("70m"));
}

#[test] // bug report B-044
fn a_big_machine_by_formula_and_as_seen() {
    let catalog = Catalog::builtin("us-east-1").expect("known");
    let settings = Settings::default();
    let class = class("AL2023");
    let mut view = MarketView::new(&settings, now());
    let of = |view: &MarketView<'_>| {
        let list = catalog.resolve(&class, view, |it| it == "i4i.32xlarge").expect("resolves");
        list.types[0].allocatable().get("memory")
    };
    assert_eq!(of(&view), amount("961470Mi"));
    let images = memory::image_set(&class);
    let overhead = 1_007_423 + 11 * 737 + 255 + 100;
    view.memory.observe("i4i.32xlarge", &images, Quantity::mebibytes(overhead), now());
    assert_eq!(of(&view), amount("1007423Mi"));
    // Four pods of 240954Mi: three to a node by the formula, all four on what was seen.
    let pods = |n: i64| Quantity::mebibytes(n * 240_954);
    assert!(pods(3) <= amount("961470Mi") && amount("961470Mi") < pods(4));
    assert!(pods(4) <= of(&view));
}

#[test] // aws-nodeclass 7, cases 8 and 9; 13, case 6; api 12, case 12
fn expressions_of_the_node_class() {
    let expressions = |kubelet: Value, name: &str| {
        let class = with_kubelet("AL2023", kubelet);
        let mut settings = Settings::default();
        settings.gates.node_class_cel = true;
        let view = MarketView::new(&settings, now());
        let catalog = Catalog::builtin("us-east-1").expect("built in");
        let mut resolved = catalog.resolve(&class, &view, |it| it == name).expect("resolves");
        assert!(resolved.dropped.is_empty());
        resolved.types.pop().expect("one type")
    };
    let reserved = json!({"kubeReserved": {
        "cpu": "vcpus * 7",
        "memory": "max_pods * 11 + 255",
        "ephemeral-storage": "2 + 1",
    }});
    let it = expressions(reserved, "m5.2xlarge");
    assert_eq!(it.capacity.get("pods"), amount("58"));
    let kube = &it.overhead.kube_reserved;
    assert_eq!((kube.get("cpu"), kube.get("memory")), (amount("60m"), amount("896Mi")));
    assert_eq!(kube.get("ephemeral-storage"), amount("3Gi"));
    let it =
        expressions(json!({"kubeReserved": {"cpu": "vcpus * 10", "memory": "0"}}), "m5.2xlarge");
    let kube = &it.overhead.kube_reserved;
    assert_eq!((kube.get("cpu"), kube.get("memory")), (amount("80m"), amount("0")));
    // CPU is rounded up to 10m, memory to 16Mi; process IDs are not rounded.
    for (name, key, text, max_pods, expected) in [
        ("m5.4xlarge", "cpu", "max(60, vcpus * 30)", 58, "480m"),
        ("m5.large", "cpu", "max(60, vcpus * 30)", 58, "60m"),
        ("m5.xlarge", "cpu", "max(60, vcpus * 30)", 58, "120m"),
        ("m5.xlarge", "cpu", "70 + vcpus", 58, "80m"),
        ("m5.large", "memory", "11 * max_pods + 255", 58, "896Mi"),
        ("m5.large", "memory", "11 * max_pods + 255", 110, "1472Mi"),
        ("m5.xlarge", "pid", "vcpus * 100 + 1", 58, "401"),
    ] {
        let it = expressions(json!({"maxPods": max_pods, "kubeReserved": {key: text}}), name);
        assert_eq!(it.overhead.kube_reserved.get(key), amount(expected), "{name}: {text}");
    }
    for (name, pods) in [("m5.xlarge", "58"), ("m5.4xlarge", "110")] {
        let it = expressions(json!({"maxPods": "vcpus > 8 ? 110 : 58"}), name);
        assert_eq!(it.capacity.get("pods"), amount(pods), "{name}");
    }
    // Windows knows no limit by network interfaces: one pod count for every type.
    for name in ["m5.large", "m5.xlarge"] {
        assert_eq!(one(&class("Windows2022"), name).capacity.get("pods"), amount("110"), "{name}");
    }
}
