//! What a refresh keeps when answers fail or are empty.

use std::{cell::RefCell, collections::BTreeMap};

use spokeshave_catalog::{Catalog, Memo, stored};
use spokeshave_lambda::{SqsBatch, SqsRecord};
use spokeshave_model::{Settings, SignedDuration, Timestamp};
use spokeshave_ports::{
    AwsError, Concern, Ec2, Invocation, Pricing, ZonalShift, ZonalShifts,
    ec2::{
        CapacityReservation, Filter, InstanceTypeInfo, LaunchTemplate, LaunchTemplateData,
        SpotPrice, Tags, TypeOffering,
    },
    fake::{Fake, block_on},
};

#[derive(Default)]
struct Region {
    types: RefCell<Vec<InstanceTypeInfo>>,
    offerings: RefCell<Vec<TypeOffering>>,
    spot: RefCell<Vec<SpotPrice>>,
    prices: RefCell<BTreeMap<String, f64>>,
    reservations: RefCell<Vec<CapacityReservation>>,
    templates: RefCell<Vec<LaunchTemplate>>,
    /// Codes that deleting a template answers, by name.
    template_gone: BTreeMap<&'static str, &'static str>,
    shifts: RefCell<Vec<ZonalShift>>,
    no_spot_prices: bool,
    failing: RefCell<bool>,
    calls: RefCell<Vec<&'static str>>,
}

impl Region {
    fn answer<T: Clone>(&self, call: &'static str, value: &RefCell<T>) -> Result<T, AwsError> {
        self.calls.borrow_mut().push(call);
        if *self.failing.borrow() {
            return Err(AwsError::new("ec2", call, "RequestLimitExceeded", "slow down"));
        }
        Ok(value.borrow().clone())
    }
}

impl Pricing for Region {
    async fn on_demand_prices(&self, _: &str) -> Result<BTreeMap<String, f64>, AwsError> {
        self.answer("GetProducts", &self.prices)
    }
}

impl Ec2 for Region {
    spokeshave_ports::pass_ec2!(self => Fake::default();
        describe_subnets describe_security_groups describe_images describe_zones
        describe_placement_groups create_fleet dry_run_instances describe_instances
        find_instances describe_instance_status terminate_instances create_tags
        get_launch_template create_launch_template
    );
    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeInfo>, AwsError> {
        self.answer("DescribeInstanceTypes", &self.types)
    }
    async fn describe_instance_type_offerings(&self) -> Result<Vec<TypeOffering>, AwsError> {
        self.answer("DescribeInstanceTypeOfferings", &self.offerings)
    }
    async fn describe_spot_prices(&self) -> Result<Vec<SpotPrice>, AwsError> {
        if self.no_spot_prices {
            let (call, code) = ("DescribeSpotPriceHistory", "UnsupportedOperation");
            return Err(AwsError::new("ec2", call, code, "not available in this region"));
        }
        self.answer("DescribeSpotPriceHistory", &self.spot)
    }
    async fn describe_capacity_reservations(
        &self,
        _: &[String],
        _: &[Filter],
    ) -> Result<Vec<CapacityReservation>, AwsError> {
        self.answer("DescribeCapacityReservations", &self.reservations)
    }
    async fn describe_launch_templates(
        &self,
        _: &[Filter],
    ) -> Result<Vec<LaunchTemplate>, AwsError> {
        self.answer("DescribeLaunchTemplates", &self.templates)
    }
    async fn delete_launch_template(&self, name: &str) -> Result<(), AwsError> {
        self.templates.borrow_mut().retain(|it| it.name != name);
        match self.template_gone.get(name) {
            Some(code) => Err(AwsError::new("ec2", "DeleteLaunchTemplate", code, "gone already")),
            None => Ok(()),
        }
    }
}

impl ZonalShifts for Region {
    async fn zonal_shifts(&self, resource: &str) -> Result<Vec<ZonalShift>, AwsError> {
        self.calls.borrow_mut().push("GetManagedResource");
        assert_eq!(resource, "arn:aws:eks:us-west-2:123456789012:cluster/c1");
        if *self.failing.borrow() {
            return Err(AwsError::new("arc-zonal-shift", "GetManagedResource", "Timeout", "no"));
        }
        Ok(self.shifts.borrow().clone())
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_261_600 + seconds).expect("in range")
}

fn run(region: &Region, fake: &Fake, settings: &Settings, seconds: i64) -> usize {
    run_on(region, fake, settings, seconds, "")
}

/// A run of a message with this reason; without one, of a message that nobody can read.
fn run_on(region: &Region, fake: &Fake, settings: &Settings, seconds: i64, reason: &str) -> usize {
    fake.now.set(at(seconds));
    region.calls.borrow_mut().clear();
    let cx = Invocation {
        concern: Concern::CatalogRefresh,
        now: at(seconds),
        deadline: at(seconds + 60),
        settings,
        journal: fake,
    };
    let body =
        if reason.is_empty() { String::new() } else { format!(r#"{{"reason":"{reason}"}}"#) };
    let batch = SqsBatch { records: vec![SqsRecord { body, ..SqsRecord::default() }] };
    let (r, f) = (region, fake);
    block_on(spokeshave_catalog_refresh_function::handle(&batch, r, r, r, f, f, &cx)).failures.len()
}

fn load(fake: &Fake) -> Catalog {
    block_on(stored::load_catalog(fake, "us-west-2", &Memo::new())).expect("loaded").catalog
}

fn settings() -> Settings {
    Settings { region: "us-west-2".into(), cluster_name: "c1".into(), ..Settings::default() }
}

fn filled() -> Region {
    let region = Region::default();
    *region.types.borrow_mut() = ["c99.large", "c98.large"]
        .map(|name| InstanceTypeInfo {
            name: name.into(),
            vcpus: 2,
            nitro_enclaves: "unsupported".into(),
            ..InstanceTypeInfo::default()
        })
        .to_vec();
    *region.offerings.borrow_mut() =
        vec![TypeOffering { instance_type: "c99.large".into(), zone: "1a".into() }];
    *region.spot.borrow_mut() = vec![SpotPrice {
        instance_type: "c99.large".into(),
        zone: "1a".into(),
        price: 1.23,
        timestamp: Some(at(0)),
    }];
    *region.prices.borrow_mut() = BTreeMap::from([("c98.large".to_owned(), 1.2)]);
    region
}

#[test] // aws-capacity 2.1; 8, cases 2-4; 25, case 3
fn failed_and_empty_answers_wipe_nothing() {
    let (region, fake, settings) = (filled(), Fake::at(at(0)), settings());
    assert_eq!(run(&region, &fake, &settings, 0), 0);
    let first = load(&fake);
    assert_eq!(first.types.len(), 2);
    assert_eq!((first.on_demand["c98.large"], first.on_demand["c3.2xlarge"]), (1.2, 0.42));
    assert_eq!(first.spot_price("c99.large", "1a"), Some(1.23));
    // Not due: only spot prices, reservations and templates are read.
    run(&region, &fake, &settings, 300);
    assert_eq!(
        *region.calls.borrow(),
        ["DescribeSpotPriceHistory", "DescribeCapacityReservations", "DescribeLaunchTemplates"]
    );
    *region.failing.borrow_mut() = true;
    run(&region, &fake, &settings, 13 * 3600);
    assert_eq!(load(&fake), first);
    {
        let decisions = fake.decisions.borrow();
        let told = decisions.iter().find(|it| it.object == "Catalog/types").expect("a log line");
        assert_eq!((told.action, told.error), ("keep", false), "it passes by itself");
        let of = |name: &str| told.fields[name].clone();
        assert_eq!(
            [of("service"), of("operation"), of("error_code"), of("retryable")],
            [
                "ec2".into(),
                "DescribeInstanceTypes".into(),
                "RequestLimitExceeded".into(),
                true.into()
            ] as [serde_json::Value; 4]
        );
    }
    *region.failing.borrow_mut() = false;
    let empty = Region::default();
    run(&empty, &fake, &settings, 14 * 3600);
    assert_eq!(load(&fake), first);
    // After a day without an answer a person should know. Launches go on with what there is.
    run(&empty, &fake, &settings, 30 * 3600);
    assert_eq!(load(&fake), first);
    assert!(fake.decisions.borrow().iter().any(|it| it.error && it.object == "Catalog/types"));
    // The next good answer is merged over what is known.
    *region.prices.borrow_mut() = BTreeMap::from([("c99.large".to_owned(), 1.25)]);
    run(&region, &fake, &settings, 31 * 3600);
    assert_eq!(
        (load(&fake).on_demand["c98.large"], load(&fake).on_demand["c99.large"]),
        (1.2, 1.25)
    );
}

#[test] // aws-capacity 8, cases 6, 9; bug report B-048
fn isolated_networks_and_gov_cloud_have_no_price_list() {
    for (region_name, isolated) in [("us-west-2", true), ("us-gov-east-1", false)] {
        let (region, fake) = (filled(), Fake::at(at(0)));
        let settings =
            Settings { region: region_name.into(), isolated_vpc: isolated, ..settings() };
        run(&region, &fake, &settings, 0);
        assert!(!region.calls.borrow().contains(&"GetProducts"));
        assert!(region.calls.borrow().contains(&"DescribeSpotPriceHistory"));
        assert!(
            !fake.decisions.borrow().iter().any(|it| it.error),
            "{:?}",
            fake.decisions.borrow()
        );
    }
}

#[test] // B-048: spot prices that a region does not tell; what is bought on demand goes on
fn without_spot_prices_everything_else_is_told() {
    let (mut region, fake) = (filled(), Fake::at(at(0)));
    region.no_spot_prices = true;
    let settings = Settings { isolated_vpc: true, ..settings() };
    assert_eq!(run(&region, &fake, &settings, 0), 0);
    let decisions = fake.decisions.borrow().clone();
    assert!(decisions.iter().any(|it| it.reason.contains("UnsupportedOperation")), "{decisions:?}");
    let catalog = load(&fake);
    assert_eq!(catalog.spot_price("c99.large", "1a"), None);
    assert!(catalog.types.iter().any(|it| it.name == "c99.large"));
    assert!(catalog.on_demand["m5.large"] > 0.0);
}

#[test] // aws-capacity 10.3; 25
fn reservations_are_counted_anew() {
    let (region, fake, settings) = (filled(), Fake::at(at(0)), settings());
    *region.reservations.borrow_mut() = vec![CapacityReservation {
        id: "cr-1".into(),
        available: 9,
        ..CapacityReservation::default()
    }];
    run(&region, &fake, &settings, 0);
    assert_eq!(block_on(stored::load_reservations(&fake)).expect("read").get("cr-1"), Some(&9));
}

#[test] // aws-capacity 15.2; aws-nodeclass 14, case 8
fn unused_templates_are_deleted() {
    let (region, fake, settings) = (filled(), Fake::at(at(0)), settings());
    let template = |name: &str, created: i64| LaunchTemplate {
        name: name.into(),
        created: Some(at(created)),
        ..LaunchTemplate::default()
    };
    *region.templates.borrow_mut() =
        vec![template("old", -7200), template("used", -7200), template("new", -60)];
    block_on(spokeshave_catalog::launch::template::ensure(
        &region,
        &fake,
        "used",
        &LaunchTemplateData::default(),
        &Tags::new(),
        at(-600),
    ))
    .expect("noted");
    run(&region, &fake, &settings, 0);
    let left: Vec<String> = region.templates.borrow().iter().map(|it| it.name.clone()).collect();
    assert_eq!(left, ["used", "new"]);
    run(&region, &fake, &settings, SignedDuration::from_hours(2).as_secs());
    assert!(region.templates.borrow().is_empty());
}

#[test] // B-059
fn templates_that_are_gone_already_are_no_error() {
    let (mut region, fake, settings) = (filled(), Fake::at(at(0)), settings());
    let gone = [
        ("by-id", "InvalidLaunchTemplateId.NotFound"),
        ("by-name", "InvalidLaunchTemplateName.NotFoundException"),
        ("refused", "UnauthorizedOperation"),
    ];
    region.template_gone = gone.into();
    *region.templates.borrow_mut() = gone
        .map(|(name, _)| LaunchTemplate {
            name: name.into(),
            created: Some(at(-7200)),
            ..LaunchTemplate::default()
        })
        .into();
    assert_eq!(run(&region, &fake, &settings, 0), 0);
    let decisions = fake.decisions.borrow();
    let told: Vec<&str> = decisions
        .iter()
        .filter(|it| it.object.starts_with("LaunchTemplate/"))
        .map(|it| it.object.as_str())
        .collect();
    assert_eq!(told, ["LaunchTemplate/refused"], "only what keeps a template is told");
    // Left for an event, since there is no object here to say it on.
    let left = block_on(spokeshave_ports::failed_calls::all(&fake)).expect("reads");
    let left: Vec<_> = left.iter().map(|it| (it.reason.as_str(), it.object.as_str())).collect();
    assert_eq!(left, [("CatalogRefreshFailed", "LaunchTemplate/refused")]);
}

#[test] // aws-capacity 12, cases 1, 6
fn zonal_shifts_are_read_where_they_count() {
    let (region, fake) = (filled(), Fake::at(at(0)));
    let on = Settings { enable_zonal_shift: true, account_id: "123456789012".into(), ..settings() };
    *region.shifts.borrow_mut() = vec![ZonalShift {
        away_from: "usw2-az1".into(),
        applied_status: "APPLIED".into(),
        expires_at: Some(at(3600)),
    }];
    run(&region, &fake, &settings(), 0);
    assert!(!region.calls.borrow().contains(&"GetManagedResource"));
    run(&region, &fake, &on, 30);
    let zones = |settings: &Settings, seconds: i64| -> Vec<String> {
        let (view, problem) = block_on(stored::load_view(&fake, settings, at(seconds)));
        assert_eq!(problem, None);
        view.shifted_zones.into_iter().collect()
    };
    assert_eq!(zones(&on, 30), ["usw2-az1"]);
    assert_eq!(zones(&settings(), 30), [""; 0]);
    // No answer changes nothing; the shift has its own end.
    *region.failing.borrow_mut() = true;
    run(&region, &fake, &on, 60);
    assert_eq!((zones(&on, 60).len(), zones(&on, 3600).len()), (1, 0));
    *region.failing.borrow_mut() = false;
    region.shifts.borrow_mut().clear();
    run(&region, &fake, &on, 90);
    assert_eq!(zones(&on, 90), [""; 0]);
    let told: Vec<String> = fake
        .decisions
        .borrow()
        .iter()
        .filter(|it| it.object.starts_with("Zone/"))
        .map(|it| format!("{} {}", it.action, it.object))
        .collect();
    assert_eq!(told, ["shift Zone/usw2-az1", "restore Zone/usw2-az1"]);
}

#[test] // aws-capacity 12: every 30 seconds, and NodePools are told of what changed until somebody has done it; aws-nodeclass 21, case 8
fn zonal_shifts_are_read_every_half_minute() {
    let (region, fake) = (filled(), Fake::at(at(0)));
    let on = Settings { enable_zonal_shift: true, account_id: "123456789012".into(), ..settings() };
    let sent = || -> Vec<(Concern, String, i64)> {
        let sent = fake.sent.take();
        sent.into_iter().map(|(to, work, delay, _)| (to, work.reason, delay.as_secs())).collect()
    };
    run_on(&region, &fake, &settings(), 0, "Schedule");
    assert_eq!(sent(), [], "switched off");
    run_on(&region, &fake, &on, 0, "Schedule");
    let polls = sent();
    let expected: Vec<(Concern, String, i64)> =
        (1..10).map(|n| (Concern::CatalogRefresh, "ZonalShiftPoll".to_owned(), n * 30)).collect();
    assert_eq!(polls, expected, "nine until the next scheduled message");

    // A poll reads shifts, and nothing else.
    *region.shifts.borrow_mut() = vec![ZonalShift {
        away_from: "usw2-az1".into(),
        applied_status: "APPLIED".into(),
        expires_at: Some(at(100)),
    }];
    let changed = [(Concern::Nodepool, "ZonalShiftChanged".to_owned(), 0)];
    for seconds in [30, 60] {
        run_on(&region, &fake, &on, seconds, "ZonalShiftPoll");
        assert_eq!(*region.calls.borrow(), ["GetManagedResource"]);
        assert_eq!(sent(), changed, "not yet published");
    }
    let zones = ["usw2-az1".to_owned()].into();
    block_on(spokeshave_catalog::zonal_shift::set_published(&fake, &zones)).expect("written");
    run_on(&region, &fake, &on, 90, "ZonalShiftPoll");
    assert_eq!(sent(), []);
    // ARC does not answer: what is known stays, until the shift runs out.
    *region.failing.borrow_mut() = true;
    fake.decisions.borrow_mut().clear();
    run_on(&region, &fake, &on, 99, "ZonalShiftPoll");
    assert_eq!(sent(), []);
    let known = block_on(spokeshave_catalog::zonal_shift::load(&fake, at(99))).expect("read");
    assert_eq!(known, zones);
    assert!(fake.decisions.borrow().iter().any(|it| it.action == "keep" && it.error));
    run_on(&region, &fake, &on, 120, "ZonalShiftPoll");
    assert_eq!(sent(), changed);
    fake.fail("send nodepool", "InternalError");
    assert_eq!(run_on(&region, &fake, &on, 150, "ZonalShiftPoll"), 1, "it comes back");
}

#[test] // aws-capacity 23, case 4
fn sizes_of_types_are_measured_when_they_are_new() {
    let (region, fake, settings) = (filled(), Fake::at(at(0)), settings());
    region.types.borrow_mut().push(InstanceTypeInfo {
        name: "zz9.xlarge".into(),
        vcpus: 4,
        memory_mib: 16_384,
        ..InstanceTypeInfo::default()
    });
    run(&region, &fake, &settings, 0);
    let cores = "karpenter_cloudprovider_instance_type_cpu_cores";
    let bytes = "karpenter_cloudprovider_instance_type_memory_bytes";
    // The overhead of the hypervisor is not applied.
    for (name, value) in [(cores, "4"), (bytes, "17179869184")] {
        let samples = fake.samples(name);
        assert!(
            samples.contains(&format!("{name}{{instance_type=zz9.xlarge}} {value}")),
            "{samples:?}"
        );
    }
    fake.metrics.borrow_mut().clear();
    region.types.borrow_mut()[0].vcpus = 8;
    run(&region, &fake, &settings, 13 * 3600);
    assert_eq!(fake.samples(cores), [format!("{cores}{{instance_type=c99.large}} 8")]);
}
