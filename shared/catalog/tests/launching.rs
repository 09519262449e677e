//! How claims are launched: the numbered cases of aws-capacity 9, 11 and 14 to 19.

mod common;

use std::collections::BTreeMap;

use common::{at, catalog, class, find, now};
use serde_json::{Value, json};
use spokeshave_catalog::{
    Mark, MarketView,
    capacity::{EFA, NEURON},
    launch::{
        self, LaunchInput, Plan, PlanError, PlanFacts, ReservationFacts, Selected,
        answer::{self, Consequence, NoInstance},
        filters,
        instance::{Launched, capacity_type_of, claim_parts, merge_metadata},
        interfaces::interfaces,
        subnets::FreeAddresses,
        tags, template,
    },
};
use spokeshave_model::{
    CapacityType, EC2NodeClass, InstanceType, NodeClaim, Offering, Operator, Quantity, Requirement,
    Requirements, Resources, Settings, Timestamp,
    ec2_node_class::{AmiStatus, CapacityReservationStatus, SecurityGroupStatus, SubnetStatus},
    instance_type::Reservation,
    labels,
    requirements::NodeSelectorRequirement,
    settings::MinValuesPolicy,
};
use spokeshave_ports::ec2::{FleetError, Instance, PlacementGroup};

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
        "the 60 cheapest instance types do not meet minValues of node.kubernetes.io/instance-type"
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

#[test] // aws-capacity 15.1
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

#[test] // aws-capacity 15, cases 1-2, 8
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

fn error(code: &str, instance_type: &str, zone: &str) -> FleetError {
    FleetError {
        code: code.into(),
        message: "m".into(),
        instance_type: instance_type.into(),
        zone: zone.into(),
        ..FleetError::default()
    }
}

fn mark(capacity_type: CapacityType, instance_type: &str, zone: &str) -> Consequence {
    Consequence::Mark(Mark::offering(capacity_type, instance_type, zone))
}

#[test] // aws-capacity 18, cases 1-2, 4-7; bug reports B-052, B-056, B-061
fn what_errors_mean() {
    let on_demand = PlanFacts::default();
    let spot = PlanFacts { capacity_type: SPOT, ..PlanFacts::default() };
    let ice = "InsufficientInstanceCapacity";
    let two = [error(ice, "m5.xlarge", "1a"), error(ice, "m5.xlarge", "1b")];
    assert_eq!(
        answer::consequences(&two, &on_demand),
        [mark(ON_DEMAND, "m5.xlarge", "1a"), mark(ON_DEMAND, "m5.xlarge", "1b")]
    );
    assert!(matches!(answer::no_instance(&two, false), NoInstance::InsufficientCapacity(_)));
    let mixed = [error(ice, "m5.xlarge", "1a"), error("RequestLimitExceeded", "m5.xlarge", "1b")];
    assert_eq!(answer::consequences(&mixed, &on_demand), [mark(ON_DEMAND, "m5.xlarge", "1a")]);
    let NoInstance::Create(reason) = answer::no_instance(&mixed, false) else { panic!("kept") };
    assert_eq!(reason.reason, "RequestLimitExceeded");

    let role = [
        error(answer::NO_SPOT_ROLE, "m5.large", "1a"),
        error(answer::NO_SPOT_ROLE, "m5.large", "1b"),
    ];
    assert_eq!(
        answer::consequences(&role, &spot),
        [
            Consequence::Mark(Mark::CapacityType(SPOT)),
            Consequence::SpotRoleEvent(answer::NO_SPOT_ROLE.into())
        ]
    );
    assert!(matches!(answer::no_instance(&role, false), NoInstance::InsufficientCapacity(_)));
    for code in [
        "MaxFleetCountExceeded",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "UnfulfillableCapacity",
        "Unsupported",
        ice,
    ] {
        let errors = [error(code, "m5.xlarge", "1a")];
        assert_eq!(answer::consequences(&errors, &spot), [mark(SPOT, "m5.xlarge", "1a")], "{code}");
        assert!(
            matches!(answer::no_instance(&errors, false), NoInstance::InsufficientCapacity(_)),
            "{code}"
        );
    }
    let reserved = PlanFacts {
        capacity_type: RESERVED,
        reservations: BTreeMap::from([(
            "m5.large/1a".to_owned(),
            ReservationFacts { id: "cr-1".into(), ..ReservationFacts::default() },
        )]),
        ..PlanFacts::default()
    };
    let full = [error("ReservationCapacityExceeded", "m5.large", "1a")];
    assert_eq!(
        answer::consequences(&full, &reserved),
        [Consequence::ExhaustReservation("cr-1".into())]
    );
    assert!(matches!(answer::no_instance(&full, false), NoInstance::InsufficientCapacity(_)));
    let throttled = [error("RequestLimitExceeded", "m5.large", "1a")];
    assert_eq!(answer::consequences(&throttled, &reserved), []);
    let unknown = [error("SomeBrandNewEC2ErrorCode", "m5.large", "unknown-zone-9z")];
    assert_eq!(answer::consequences(&unknown, &on_demand), []);
    let NoInstance::Create(reason) = answer::no_instance(&unknown, false) else { panic!("kept") };
    assert_eq!(reason.reason, "LaunchFailed");
    // An error without any part marks nothing.
    assert_eq!(answer::consequences(&[error(ice, "", "")], &on_demand), []);
}

#[test] // aws-capacity 11, case 6; 9, case 8; 18, case 10
fn spread_limits_addresses_and_silence() {
    let facts = PlanFacts {
        placement_group: Some("pg-1".into()),
        types: vec!["m5.large".into(), "m5.xlarge".into()],
        ..PlanFacts::default()
    };
    let mut limit = error("UnfulfillableCapacity", "m5.large", "1a");
    limit.message = "You have reached the limit of instances in this spread placement group".into();
    let keys: Vec<String> = answer::consequences(&[limit], &facts)
        .into_iter()
        .filter_map(|it| match it {
            Consequence::Mark(mark) => Some(mark.key()),
            _ => None,
        })
        .collect();
    assert_eq!(keys, ["on-demand:m5.large:1a:pg-1", "on-demand:m5.xlarge:1a:pg-1"]);
    let mut full = error("InsufficientFreeAddressesInSubnet", "m5.large", "1a");
    full.subnet_id = "s-2".into();
    assert_eq!(
        answer::consequences(&[full], &PlanFacts::default()),
        [
            Consequence::Mark(Mark::Subnet("s-2".into())),
            Consequence::ExhaustSubnet("s-2".into()),
            mark(ON_DEMAND, "m5.large", "1a"),
        ]
    );
    assert!(matches!(answer::no_instance(&[], false), NoInstance::InsufficientCapacity(_)));
    let NoInstance::Create(reason) = answer::no_instance(&[], true) else { panic!("kept") };
    assert_eq!(
        (reason.reason, reason.message.contains("too few instances returned")),
        ("LaunchFailed", true)
    );
}

#[test] // aws-capacity 18.4, case 9
fn reasons() {
    for (text, expected) in [
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted: x", "SpotSLRCreationFailed"),
        (
            "UnauthorizedOperation: ... with an explicit deny in a service control policy",
            "Unauthorized",
        ),
        ("UnauthorizedOperation: Not authorized for images: [ami-1]", "AMIAuthorizationFailure"),
        ("AccessDenied: x", "Unauthorized"),
        (
            "InvalidParameter: Security group sg-1 and subnet s-1 belong to different networks",
            "SecurityGroupSubnetVPCMismatch",
        ),
        (
            "InvalidParameterValue: Value (p) for parameter iamInstanceProfile.name is invalid",
            "InstanceProfileNameInvalid",
        ),
        ("InvalidLaunchTemplateId.NotFound: x", "LaunchTemplateNotFound"),
        (
            "InvalidUserData.Malformed: User data is limited to 16384 bytes",
            "UserDataSizeLimitExceeded",
        ),
        ("InvalidAMIID.Malformed: x", "InvalidAMIID"),
        ("InvalidAMIID.NotFound: x", "AMINotFound"),
        ("RequestLimitExceeded: x", "RequestLimitExceeded"),
        ("InternalError: x", "InternalError"),
        ("InvalidParameterCombination: not eligible for Free Tier", "FreeTierIneligible"),
        ("MaxFleetCountExceeded: x", "FleetQuotaExceeded"),
        ("PendingVerification: x", "AccountPendingVerification"),
        ("MaxSpotInstanceCountExceeded: x", "SpotQuotaExceeded"),
        ("VcpuLimitExceeded: x", "VCPULimitExceeded"),
        ("InsufficientFreeAddressesInSubnet: x", "InsufficientFreeAddressesInSubnet"),
        ("Whatever: x", "LaunchFailed"),
    ] {
        let got = answer::reason(text);
        assert_eq!(got.reason, expected, "{text}");
        assert!(got.message.ends_with(text), "{text}");
    }
    assert!(
        answer::reason("UnauthorizedOperation: with an explicit deny in a service control policy")
            .message
            .contains("service control policy")
    );
}

#[test] // aws-capacity 19, cases 1, 5-7; lifecycle 3, case 4
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

/// A class with subnets of these zones.
fn subnets(list: &[(&str, &str)]) -> EC2NodeClass {
    let mut class = EC2NodeClass::default();
    class.status.subnets = list
        .iter()
        .map(|(id, zone)| SubnetStatus {
            id: (*id).into(),
            zone: (*zone).into(),
            zone_id: String::new(),
        })
        .collect();
    class
}

fn free(list: &[(&str, i64)], at: Timestamp) -> FreeAddresses {
    let mut free = FreeAddresses::default();
    free.set(list.iter().map(|(id, n)| ((*id).to_owned(), *n)), at);
    free
}

#[test] // aws-capacity 9, cases 5-9; bug report B-055
fn one_subnet_per_zone() {
    let class = subnets(&[("s-1", "1a"), ("s-2", "1a")]);
    let chosen = |it: &FreeAddresses| it.choose(&class)["1a"].clone();
    assert_eq!(chosen(&free(&[("s-1", 10), ("s-2", 100)], now())), "s-2");

    let order = subnets(&[("s-2", "1a"), ("s-1", "1a")]);
    let mut addresses = free(&[("s-1", 10), ("s-2", 11)], now());
    let one = BTreeMap::from([("1a".to_owned(), 1)]);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let it = addresses.choose(&order);
        addresses.deduct(&it, &one, 1);
        seen.push(it["1a"].clone());
    }
    assert_eq!(seen, ["s-2", "s-2", "s-1"]);

    // B-055: choices alternate, the full subnet is never used.
    let three = subnets(&[("s1", "a"), ("s2", "a"), ("s3", "a")]);
    let mut addresses = free(&[("s1", 20), ("s2", 18), ("s3", 0)], now());
    let by_three = BTreeMap::from([("a".to_owned(), 3)]);
    let mut seen = String::new();
    for _ in 0..10 {
        let it = addresses.choose(&three);
        addresses.deduct(&it, &by_three, 1);
        seen.push_str(&it["a"]);
    }
    assert_eq!(seen, "s1s2s1s2s1s2s1s2s1s2");

    let two_zones = subnets(&[("s-a", "1a"), ("s-b", "1b")]);
    let predicted = BTreeMap::from([("1a".to_owned(), 29), ("1b".to_owned(), 29)]);
    let before = free(&[("s-a", 100), ("s-b", 100)], now());
    let mut after = before.clone();
    let it = after.choose(&two_zones);
    after.deduct(&it, &predicted, 1);
    after.give_back(&before, &it, &predicted, 1, |subnet| i64::from(subnet == "s-a"));
    assert_eq!((after.in_flight["s-a"], after.in_flight["s-b"]), (71, 100));

    let mut addresses = free(&[("s-1", 50), ("s-2", 200)], now());
    addresses.exhausted("s-2");
    assert_eq!(chosen(&addresses), "s-1");
    assert_eq!(chosen(&FreeAddresses::default()), "s-1");
    let short = jiff::SignedDuration::from_mins(1);
    assert!(addresses.is_fresh(short, at(299)) && !addresses.is_fresh(short, at(300)));
    let long = jiff::SignedDuration::from_mins(10);
    assert!(addresses.is_fresh(long, at(839)) && !addresses.is_fresh(long, at(840)));
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
