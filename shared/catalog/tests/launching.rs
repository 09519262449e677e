//! How claims are launched: the numbered cases of aws-capacity 15 to 17 and 19.

mod common;

use std::collections::BTreeMap;

use common::{catalog, class, find, now};
use serde_json::{Value, json};
use spokeshave_catalog::{
    MarketView,
    capacity::EFA,
    launch::{
        self, LaunchInput, Plan, PlanError, PlanFacts, Selected,
        instance::{Launched, capacity_type_of, claim_parts, merge_metadata},
        interfaces::interfaces,
        subnets::FreeAddresses,
        tags, template,
    },
};
use spokeshave_model::{
    CapacityType, EC2NodeClass, NodeClaim, Operator, Quantity, Settings,
    ec2_node_class::{AmiStatus, CapacityReservationStatus, SecurityGroupStatus, SubnetStatus},
    labels,
    requirements::NodeSelectorRequirement,
};
use spokeshave_ports::ec2::{Instance, PlacementGroup};

const ON_DEMAND: CapacityType = CapacityType::OnDemand;
const RESERVED: CapacityType = CapacityType::Reserved;

/// A Ready class with two images, a profile and a group.
fn ready(family: &str) -> EC2NodeClass {
    let mut class = class(family);
    let image = |id: &str, arch: &str| AmiStatus {
        id: id.into(),
        requirements: vec![NodeSelectorRequirement::new(labels::ARCH, Operator::In, &[arch])],
        ..AmiStatus::default()
    };
    class.status.amis = vec![image("ami-arm", "arm64"), image("ami-amd", "amd64")];
    class.status.instance_profile = "profile-1".into();
    class.status.security_groups = ["sg-test1", "sg-test2", "sg-test3"]
        .map(|id| SecurityGroupStatus { id: id.into(), name: String::new() })
        .to_vec();
    class
}

fn claim(requirements: &[(&str, Operator, &[&str])], requests: &[(&str, i64)]) -> NodeClaim {
    let mut claim = NodeClaim::default();
    claim.metadata.name = "c-1".into();
    claim.metadata.labels.insert(labels::NODEPOOL.into(), "p".into());
    claim.spec.requirements = requirements
        .iter()
        .map(|(key, op, values)| NodeSelectorRequirement::new(key, *op, values))
        .collect();
    claim.spec.resources.requests =
        requests.iter().map(|(name, n)| ((*name).to_owned(), Quantity::units(*n))).collect();
    claim
}

struct Planner {
    class: EC2NodeClass,
    settings: Settings,
    group: Option<PlacementGroup>,
    reservations: BTreeMap<String, i64>,
    ipv6: bool,
}

impl Planner {
    fn new(family: &str) -> Self {
        let settings = Settings {
            cluster_name: "c1".into(),
            region: "us-west-2".into(),
            ..Settings::default()
        };
        Self {
            class: ready(family),
            settings,
            group: None,
            reservations: BTreeMap::new(),
            ipv6: false,
        }
    }

    fn spec(mut self, spec: &Value) -> Self {
        let mut whole = serde_json::to_value(&self.class.spec).expect("writes");
        for (key, value) in spec.as_object().expect("an object") {
            whole[key] = value.clone();
        }
        self.class.spec = serde_json::from_value(whole).expect("reads");
        self
    }

    fn plan(&self, claim: &NodeClaim) -> Result<Plan, PlanError> {
        let mut view = MarketView::new(&self.settings, now());
        view.reservations = self.reservations.clone();
        if let Some(group) = &self.group {
            view.placement_groups.insert("mine".into(), group.clone());
        }
        let resolved = catalog().resolve(&self.class, &view, |_| true).expect("resolves");
        let tags = tags::tags(&self.class, Some(claim), "c1").expect("allowed");
        let subnets = |_: &Selected| FreeAddresses::default().choose(&self.class);
        let render =
            |group: &template::Group| Ok(format!("{} pods {:?}", group.pods, group.kube_reserved));
        launch::plan(LaunchInput {
            claim,
            class: &self.class,
            types: resolved.types,
            dropped: &resolved.dropped,
            settings: &self.settings,
            placement_group: self.group.as_ref(),
            tags: &tags,
            subnets: &subnets,
            render: &render,
            ipv6: self.ipv6,
        })
    }
}

const ON_DEMAND_ONLY: (&str, Operator, &[&str]) =
    (labels::CAPACITY_TYPE, Operator::In, &["on-demand"]);
const M5: (&str, Operator, &[&str]) = (labels::INSTANCE_TYPE, Operator::In, &["m5.large"]);

fn zones(plan: &Plan) -> Vec<(String, String, f64)> {
    let all = plan.request.configs.iter().flat_map(|it| &it.overrides);
    all.map(|it| (it.zone.clone(), it.subnet_id.clone(), it.priority)).collect()
}

#[test] // aws-capacity 15.1; aws-nodeclass 9, case 6
fn templates_by_image_and_pods() {
    let any = claim(&[ON_DEMAND_ONLY], &[("cpu", 1)]);
    for family in ["AL2023", "AL2", "Bottlerocket"] {
        let plan = Planner::new(family).plan(&any).expect(family);
        // amd64 with 29, 35, 58, 394 pods (and bare metal with 737 is left out), arm64 with 29.
        assert_eq!((plan.templates.len(), plan.request.configs.len()), (5, 5), "{family}");
    }
    let one = Planner::new("AL2023").spec(&json!({"kubelet": {"maxPods": 1}}));
    assert_eq!(one.plan(&any).expect("plans").templates.len(), 2);
    let mut without = Planner::new("AL2023");
    without.class.status.amis.clear();
    assert!(matches!(without.plan(&any), Err(PlanError::Create { reason: "LaunchFailed", .. })));
}

#[test] // aws-capacity 5.4, 15.3
fn expressions_reach_the_template_only_with_their_gate() {
    let reserved = json!({"kubelet": {"kubeReserved": {"cpu": "vcpus * 30", "memory": "700Mi"}}});
    let mut planner = Planner::new("AL2023").spec(&reserved);
    let data = |planner: &Planner| {
        let plan = planner.plan(&claim(&[ON_DEMAND_ONLY, M5], &[])).expect("plans");
        plan.templates.values().map(|it| it.user_data.clone()).collect::<Vec<_>>()
    };
    assert_eq!(data(&planner), ["29 pods None"]);
    planner.settings.gates.node_class_cel = true;
    assert_eq!(data(&planner), [r#"29 pods Some({"cpu": "60m", "memory": "700Mi"})"#]);
}

#[test] // aws-capacity 15, case 3
fn names_follow_the_content() {
    let any = claim(&[ON_DEMAND_ONLY, M5], &[]);
    let planner = Planner::new("AL2023");
    let names = |planner: &Planner| -> Vec<String> {
        planner.plan(&any).expect("plans").templates.into_keys().collect()
    };
    let first = names(&planner);
    assert_eq!(first, names(&planner));
    let number = first[0].strip_prefix("karpenter.k8s.aws/").expect("the prefix");
    assert!(number.parse::<u64>().is_ok(), "{number}");
    let mut other = Planner::new("AL2023");
    other.class.metadata.name = "other".into();
    assert_ne!(first, names(&other));
    let mut reversed = Planner::new("AL2023");
    reversed.class.status.security_groups.reverse();
    assert_eq!(first, names(&reversed));
}

#[test] // aws-capacity 15, cases 5, 10; 16, case 5
fn efa_and_enclaves() {
    let types: &[&str] = &["g4dn.8xlarge", "p5.48xlarge"];
    let wants = claim(
        &[ON_DEMAND_ONLY, (labels::INSTANCE_TYPE, Operator::In, types)],
        &[(EFA, 1), (launch::NITRO_SANDBOX, 0)],
    );
    let plan = Planner::new("AL2023").plan(&wants).expect("plans");
    let mut counts: Vec<usize> =
        plan.templates.values().map(|it| it.network_interfaces.len()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 32]);
    let big = plan.templates.values().find(|it| it.network_interfaces.len() == 32).expect("p5");
    for (at, it) in big.network_interfaces.iter().enumerate() {
        assert_eq!(it.network_card_index, Some(at as i64));
        assert_eq!(it.device_index, i64::from(at > 0));
        assert_eq!(it.interface_type.as_deref(), Some("efa"));
    }
    assert!(plan.templates.values().all(|it| !it.enclave));
    assert!(plan.facts.efa);
}

#[test] // aws-capacity 15, cases 6-7; 17, cases 4-5
fn templates_of_reservations() {
    let mut planner = Planner::new("AL2023");
    let reservation =
        |id: &str, zone: &str, kind: &str, interruptible: bool| CapacityReservationStatus {
            id: id.into(),
            availability_zone: zone.into(),
            instance_type: "m5.large".into(),
            reservation_type: kind.into(),
            interruptible,
            state: "active".into(),
            ..CapacityReservationStatus::default()
        };
    planner.class.status.capacity_reservations = vec![
        reservation("cr-2", "test-zone-1a", "default", false),
        reservation("cr-3", "test-zone-1b", "default", false),
    ];
    planner.reservations = BTreeMap::from([("cr-2".into(), 5), ("cr-3".into(), 1)]);
    let any = claim(&[M5], &[]);
    let plan = planner.plan(&any).expect("plans");
    let targets: Vec<Option<String>> =
        plan.templates.values().map(|it| it.reservation_id.clone()).collect();
    assert_eq!(targets.len(), 2);
    assert!(targets.contains(&Some("cr-2".into())) && targets.contains(&Some("cr-3".into())));
    assert!(plan.templates.values().all(|it| {
        it.reservation_preference.as_deref() == Some("capacity-reservations-only")
            && it.market_type.is_none()
    }));
    assert_eq!(
        (plan.request.capacity_type.as_str(), plan.request.on_demand_allocation.as_deref()),
        ("on-demand", Some("lowest-price"))
    );
    assert_eq!(plan.facts.reservations["m5.large/test-zone-1a"].id, "cr-2");

    for (kind, interruptible, target, market) in [
        ("capacity-block", false, "capacity-block", "capacity-block"),
        ("default", true, "reserved-capacity", "interruptible-capacity-reservation"),
    ] {
        planner.class.status.capacity_reservations =
            vec![reservation("cr-2", "test-zone-1a", kind, interruptible)];
        let plan = planner.plan(&any).expect(kind);
        let request = &plan.request;
        assert_eq!(request.capacity_type, target);
        assert_eq!((&request.on_demand_allocation, &request.spot_allocation), (&None, &None));
        assert_eq!(!request.reservation_types.is_empty(), interruptible);
        let template = plan.templates.values().next().expect("one");
        assert_eq!(template.market_type.as_deref(), Some(market));
    }
    let on_demand = claim(&[M5, ON_DEMAND_ONLY], &[]);
    let preference = |planner: &Planner| {
        let plan = planner.plan(&on_demand).expect("plans");
        let template = plan.templates.into_values().next().expect("one");
        (template.reservation_preference, template.reservation_id)
    };
    assert_eq!(preference(&planner), (Some("none".into()), None));
    planner.settings.gates.reserved_capacity = false;
    assert_eq!(preference(&planner), (None, None));
}

#[test] // aws-capacity 15, cases 1-2, 8; aws-nodeclass 19, case 8
fn content_of_templates() {
    let one = claim(&[M5, ON_DEMAND_ONLY], &[]);
    let template = |planner: &Planner| {
        planner.plan(&one).expect("plans").templates.into_values().next().expect("one")
    };
    let al2023 = template(&Planner::new("AL2023"));
    let sizes = |it: &spokeshave_ports::ec2::LaunchTemplateData| -> Vec<(String, Option<i64>)> {
        it.block_devices.iter().map(|it| (it.device_name.clone(), it.volume_size)).collect()
    };
    assert_eq!(sizes(&al2023), [("/dev/xvda".to_owned(), Some(20))]);
    let disk = &al2023.block_devices[0];
    assert_eq!((disk.volume_type.as_deref(), disk.encrypted), (Some("gp3"), Some(true)));
    assert_eq!((disk.iops, disk.throughput), (None, None));
    assert_eq!(al2023.instance_profile, "profile-1");
    assert!(!al2023.detailed_monitoring && !al2023.enclave);
    assert_eq!(al2023.tenancy, "default");
    assert_eq!(al2023.metadata_options.http_protocol_ipv6.as_deref(), Some("disabled"));
    assert_eq!(al2023.metadata_options.instance_metadata_tags, "disabled");
    assert_eq!(al2023.metadata_options.http_put_response_hop_limit, 1);
    assert_eq!(al2023.tags.keys().collect::<Vec<_>>(), ["network-interface"]);
    let bottlerocket = template(&Planner::new("Bottlerocket"));
    assert_eq!(
        sizes(&bottlerocket),
        [("/dev/xvda".to_owned(), Some(4)), ("/dev/xvdb".to_owned(), Some(20))]
    );
    assert_eq!(sizes(&template(&Planner::new("Custom"))), []);
    for (text, size) in [("200G", 187), ("4G", 4), ("2G", 2), ("20Gi", 20), ("2100Mi", 3)] {
        let planner = Planner::new("Custom").spec(&json!({"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": text}}]}));
        assert_eq!(sizes(&template(&planner)), [("/dev/xvda".to_owned(), Some(size))], "{text}");
    }
    let snapshot = Planner::new("Custom").spec(&json!({"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"snapshotID": "s", "iops": 0}}]}));
    assert_eq!(sizes(&template(&snapshot)), [("/dev/xvda".to_owned(), None)]);
    let mut secret = Planner::new("AL2023");
    secret.settings.region = "us-iso-east-1".into();
    assert_eq!(template(&secret).metadata_options.http_protocol_ipv6, None);
    let spot = claim(&[M5, (labels::CAPACITY_TYPE, Operator::In, &["spot"])], &[]);
    let plan = Planner::new("AL2023").plan(&spot).expect("plans");
    let tagged: Vec<&String> = plan.templates.values().flat_map(|it| it.tags.keys()).collect();
    assert_eq!(tagged, ["network-interface", "spot-instances-request"]);
    let on_demand = claim(&[M5, (labels::CAPACITY_TYPE, Operator::In, &["on-demand"])], &[]);
    let plan = Planner::new("AL2023").plan(&on_demand).expect("plans");
    let tagged: Vec<&String> = plan.templates.values().flat_map(|it| it.tags.keys()).collect();
    assert_eq!(tagged, ["network-interface"]);
}

#[test] // aws-capacity 16, cases 1-4, 6-7
fn interfaces_of_templates() {
    let of =
        |spec: Value, ipv6: bool| interfaces(&Planner::new("AL2023").spec(&spec).class, 0, ipv6);
    let plain = of(json!({}), false);
    assert_eq!(plain.len(), 1);
    assert_eq!((plain[0].device_index, plain[0].network_card_index), (0, None));
    assert_eq!(plain[0].groups, ["sg-test1", "sg-test2", "sg-test3"]);
    assert_eq!(plain[0].associate_public_ip_address, None);
    assert_eq!(
        of(json!({"associatePublicIPAddress": false}), false)[0].associate_public_ip_address,
        Some(false)
    );
    for (count, ipv6) in [(10, false), (10, true), (0, false)] {
        let it = &of(json!({"ipPrefixCount": count}), ipv6)[0];
        let expected = if ipv6 { (None, Some(count)) } else { (Some(count), None) };
        assert_eq!((it.ipv4_prefix_count, it.ipv6_prefix_count), expected);
    }
    let six = &of(json!({}), true)[0];
    assert_eq!((six.primary_ipv6, six.ipv6_address_count), (Some(true), Some(1)));
    let two = of(
        json!({"networkInterfaces": [
            {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
            {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"}],
            "connectionTracking": {"tcpEstablishedTimeout": 350}}),
        true,
    );
    assert_eq!((two[0].primary_ipv6, two[0].ipv6_address_count), (Some(true), Some(1)));
    assert_eq!(two[0].connection_tracking, Some((Some(350), None, None)));
    assert_eq!(
        (two[1].primary_ipv6, two[1].ipv6_address_count, two[1].connection_tracking),
        (None, None, None)
    );
    assert_eq!(two[1].interface_type.as_deref(), Some("efa-only"));
    assert_eq!(of(json!({"connectionTracking": {}}), false)[0].connection_tracking, None);
}

#[test] // aws-capacity 17, cases 1-3, 6-8
fn requests() {
    let planner = Planner::new("AL2023");
    let plan = planner.plan(&claim(&[M5, ON_DEMAND_ONLY], &[])).expect("plans");
    let expected: Vec<(String, String, f64)> =
        [("1a", "1"), ("1a-local", "4"), ("1b", "2"), ("1c", "3")]
            .iter()
            .map(|(zone, n)| (format!("test-zone-{zone}"), format!("subnet-test{n}"), 0.096))
            .collect();
    assert_eq!(zones(&plan), expected);
    assert!(
        plan.request
            .configs
            .iter()
            .all(|it| it.overrides.iter().all(|it| it.image_id == "ami-amd"))
    );
    assert_eq!(plan.request.on_demand_allocation.as_deref(), Some("lowest-price"));

    let mut spot = claim(&[M5, (labels::CAPACITY_TYPE, Operator::In, &["spot"])], &[]);
    let request = planner.plan(&spot).expect("plans").request;
    assert_eq!(request.spot_allocation.as_deref(), Some("price-capacity-optimized"));
    assert_eq!(request.on_demand_allocation, None);
    spot.metadata.annotations.insert(labels::PRICE_OVERLAY_APPLIED.into(), "true".into());
    let request = planner.plan(&spot).expect("plans").request;
    assert_eq!(request.spot_allocation.as_deref(), Some("capacity-optimized-prioritized"));
    let mut on_demand = claim(&[M5, ON_DEMAND_ONLY], &[]);
    on_demand.metadata.annotations = spot.metadata.annotations;
    let request = planner.plan(&on_demand).expect("plans").request;
    assert_eq!(request.on_demand_allocation.as_deref(), Some("prioritized"));

    let with_context = Planner::new("AL2023").spec(&json!({"context": "ctx-1"}));
    for (value, expected) in
        [(None, Some("ctx-1")), (Some("true"), None), (Some("false"), Some("ctx-1"))]
    {
        let mut it = claim(&[M5, ON_DEMAND_ONLY], &[]);
        if let Some(value) = value {
            it.metadata.annotations.insert(labels::MIN_VALUES_RELAXED.into(), value.into());
        }
        assert_eq!(with_context.plan(&it).expect("plans").request.context.as_deref(), expected);
    }
    let in_zone = claim(&[M5, ON_DEMAND_ONLY, (labels::ZONE_ID, Operator::In, &["tstz1-1b"])], &[]);
    let plan = planner.plan(&in_zone).expect("plans");
    assert_eq!(zones(&plan), [("test-zone-1b".to_owned(), "subnet-test2".to_owned(), 0.096)]);
}

#[test] // aws-capacity 17, case 7; 11, case 5
fn partitions_give_one_override_per_zone() {
    let mut planner =
        Planner::new("AL2023").spec(&json!({"placementGroupSelector": {"name": "mine"}}));
    planner.group = Some(PlacementGroup {
        id: "pg-1".into(),
        strategy: "partition".into(),
        partition_count: 7,
        ..PlacementGroup::default()
    });
    let plan = planner.plan(&claim(&[M5, ON_DEMAND_ONLY], &[])).expect("plans");
    assert_eq!(zones(&plan).len(), 4);
    let of = |plan: &Plan| {
        plan.templates.values().map(|it| (it.placement_group_id.clone(), it.partition)).next()
    };
    assert_eq!(of(&plan), Some((Some("pg-1".into()), None)));
    let one = claim(
        &[M5, ON_DEMAND_ONLY, (labels::PLACEMENT_GROUP_PARTITION, Operator::In, &["3", "1", "5"])],
        &[],
    );
    let plan = planner.plan(&one).expect("plans");
    assert_eq!(of(&plan), Some((Some("pg-1".into()), Some(1))));
    assert_eq!(plan.facts.partition, Some(1));
}

#[test]
fn at_most_three_hundred_overrides() {
    // 70 types in 6 zones: 60 of them are 360 overrides.
    let mut catalog = catalog();
    let zones: Vec<String> = (0..6).map(|n| format!("z{n}")).collect();
    let template = catalog.describe("m5.large").expect("there").clone();
    let types = (0..70).map(|n| spokeshave_ports::ec2::InstanceTypeInfo {
        name: format!("m{n}.large"),
        ..template.clone()
    });
    catalog.set_types(types.collect());
    catalog.offerings =
        catalog.types.iter().map(|it| (it.name.clone(), zones.iter().cloned().collect())).collect();
    catalog.on_demand = (0..70).map(|n| (format!("m{n}.large"), 1.0 + f64::from(n))).collect();
    let mut planner = Planner::new("AL2023");
    planner.class.status.subnets = zones
        .iter()
        .map(|zone| SubnetStatus {
            id: format!("s-{zone}"),
            zone: zone.clone(),
            zone_id: String::new(),
        })
        .collect();
    let view = MarketView::new(&planner.settings, now());
    let resolved = catalog.resolve(&planner.class, &view, |_| true).expect("resolves");
    let claim = claim(&[ON_DEMAND_ONLY], &[]);
    let tags = tags::tags(&planner.class, Some(&claim), "c1").expect("allowed");
    let plan = launch::plan(LaunchInput {
        claim: &claim,
        class: &planner.class,
        types: resolved.types,
        dropped: &[],
        settings: &planner.settings,
        placement_group: None,
        tags: &tags,
        subnets: &|_| FreeAddresses::default().choose(&planner.class),
        render: &|_| Ok(String::new()),
        ipv6: false,
    })
    .expect("plans");
    let prices: Vec<f64> =
        plan.request.configs.iter().flat_map(|it| &it.overrides).map(|it| it.priority).collect();
    assert_eq!(prices.len(), launch::MAX_OVERRIDES);
    // The cheapest 50 types in all six zones.
    assert!(prices.iter().all(|it| *it <= 50.0));
}

#[test] // aws-capacity 19, cases 1, 5-7; lifecycle 3.1, case 4
fn claims_of_instances() {
    let planner = Planner::new("AL2023");
    let m5 = {
        let view = MarketView::new(&planner.settings, now());
        find(catalog().instance_types(&planner.class, &view).expect("resolves"), "m5.large")
    };
    let mut claim = claim(&[], &[]);
    let facts = PlanFacts {
        zone_ids: BTreeMap::from([("test-zone-1b".to_owned(), "tstz1-1b".to_owned())]),
        tenancy: "default".into(),
        ..PlanFacts::default()
    };
    let launched = Launched {
        id: "i-0abc".into(),
        instance_type: "m5.large".into(),
        zone: "test-zone-1b".into(),
        image_id: "ami-amd".into(),
        capacity_type: ON_DEMAND,
        tenancy: "default".into(),
        ..Launched::default()
    };
    let parts =
        claim_parts(&claim, Some(&planner.class), "123", Some(&m5), &launched, &facts, false);
    assert_eq!(parts.provider_id.as_str(), "aws:///test-zone-1b/i-0abc");
    let label = |key: &str| parts.labels.get(key).map(String::as_str);
    assert_eq!(label(labels::ZONE_ID), Some("tstz1-1b"));
    assert_eq!(label(labels::INSTANCE_TENANCY), Some("default"));
    assert_eq!(label(labels::INSTANCE_HYPERVISOR), Some("nitro"));
    assert_eq!(label(labels::CAPACITY_TYPE), Some("on-demand"));
    assert_eq!(label(labels::NODEPOOL), Some("p"));
    assert_eq!(
        parts.annotations.keys().map(String::as_str).collect::<Vec<_>>(),
        [labels::NODECLASS_HASH, labels::NODECLASS_HASH_VERSION, labels::INSTANCE_PROFILE_NAME]
    );
    assert!(parts.capacity.iter().all(|(_, amount)| !amount.is_zero()));
    assert_eq!(parts.allocatable.get("memory"), "6903Mi".parse().expect("valid"));

    let mut with_efa = m5.clone();
    with_efa.capacity.set(EFA, Quantity::units(1));
    let efa = |efa: i64| {
        let launched = Launched { efa, ..launched.clone() };
        let parts = claim_parts(&claim, None, "", Some(&with_efa), &launched, &facts, true);
        (parts.capacity.0.get(EFA).copied(), parts.provider_id.to_string())
    };
    assert_eq!(efa(0), (None, "kwok-aws:///test-zone-1b/i-0abc".into()));
    assert_eq!(efa(1).0, Some(Quantity::units(1)));

    claim.metadata.labels.insert(labels::ZONE.into(), "us-west-2a".into());
    claim.metadata.annotations.insert(labels::NODECLASS_HASH.into(), "old".into());
    let merged = merge_metadata(&claim, &parts);
    assert_eq!(merged.metadata.label(labels::ZONE), Some("us-west-2a"));
    assert_eq!(merged.metadata.annotation(labels::NODECLASS_HASH), Some("123"));

    let instance = |preference: &str, kind: &str| Instance {
        capacity_reservation_id: "cr-1".into(),
        capacity_reservation_preference: preference.into(),
        capacity_reservation_type: kind.into(),
        ..Instance::default()
    };
    assert_eq!(capacity_type_of(&instance("open", ""), true), ON_DEMAND);
    assert_eq!(capacity_type_of(&instance("capacity-reservations-only", ""), false), ON_DEMAND);
    let block = Launched::of(&instance("capacity-reservations-only", "capacity-block"), true);
    assert_eq!(
        (block.capacity_type, block.reservation.map(|it| it.type_)),
        (RESERVED, Some("capacity-block".into()))
    );
}
