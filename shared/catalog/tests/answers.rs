//! What a fleet's answer means, and which subnets are used: the numbered cases of aws-capacity 9, 11 and 18.

mod common;

use std::collections::BTreeMap;

use common::{at, now};
use spokeshave_catalog::{
    Mark,
    launch::{
        PlanFacts, ReservationFacts,
        answer::{self, Consequence, NoInstance},
        subnets::FreeAddresses,
    },
};
use spokeshave_model::{CapacityType, EC2NodeClass, Timestamp, ec2_node_class::SubnetStatus};
use spokeshave_ports::ec2::FleetError;

const SPOT: CapacityType = CapacityType::Spot;
const ON_DEMAND: CapacityType = CapacityType::OnDemand;
const RESERVED: CapacityType = CapacityType::Reserved;

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
        ("InvalidLaunchTemplateName.NotFoundException: x", "LaunchTemplateNotFound"),
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

#[test] // aws-capacity 1, case 6
fn free_addresses_are_read_again_after_the_subnets() {
    let minutes = spokeshave_model::SignedDuration::from_mins;
    for (refresh, lifetime) in [(1, 5), (10, 14)] {
        let known = free(&[("s-1", 10)], now());
        let fresh = |after| known.is_fresh(minutes(refresh), now() + minutes(after));
        assert!(fresh(lifetime - 1), "{refresh}");
        assert!(!fresh(lifetime), "{refresh}");
    }
}
