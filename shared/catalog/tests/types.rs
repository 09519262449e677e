//! Labels, capacity, overhead and offerings: the numbered cases of aws-capacity 2 to 8 and 10.

mod common;

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
