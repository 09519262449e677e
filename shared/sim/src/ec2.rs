//! The simulated EC2: capacity by offering, fleets that honour their token, instances that boot and die.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use spokeshave_model::{CapacityType, InstanceId};
use spokeshave_ports::{
    AwsError, Ec2,
    ec2::{
        CapacityReservation, Filter, FleetAnswer, FleetError, FleetInstances, FleetOverride,
        FleetRequest, Image, Instance, InstanceStatus, InstanceTypeInfo, LaunchTemplate,
        LaunchTemplateData, PlacementGroup, SecurityGroup, SpotPrice, Subnet, Tags, TypeOffering,
        Zone,
    },
    filters::passes,
};

use crate::{
    faults::Fault,
    ports::{ACCOUNT, Ports},
    random::Random,
    store::STALENESS,
    world::{Happening, Inner, Machine},
};

/// Milliseconds of a describe or tag call.
const CALL: u64 = 80;
/// Milliseconds of CreateFleet.
const FLEET_CALL: u64 = 900;
/// Milliseconds without a word from a kubelet after which its node is not ready. Source: Kubernetes' own default, 40 s.
const NODE_GRACE: u64 = 40_000;
/// The network that everything is in.
const VPC: &str = "vpc-0000000000000001";

impl Inner {
    /// One subnet per zone, tagged for discovery.
    pub(crate) fn subnets(&self) -> Vec<Subnet> {
        let tags = self.discovery("subnet");
        self.market
            .zones
            .iter()
            .enumerate()
            .map(|(n, zone)| Subnet {
                id: format!("subnet-0{:016x}", n + 1),
                zone: zone.name.clone(),
                zone_id: zone.id.clone(),
                vpc_id: VPC.into(),
                available_addresses: 8_000,
                tags: tags.clone(),
            })
            .collect()
    }

    fn security_groups(&self) -> Vec<SecurityGroup> {
        vec![SecurityGroup {
            id: format!("sg-0{:016x}", 1),
            name: format!("{}-nodes", self.settings.cluster_name),
            vpc_id: VPC.into(),
            tags: self.discovery("security-group"),
        }]
    }

    fn discovery(&self, what: &str) -> Tags {
        let cluster = &self.settings.cluster_name;
        Tags::from([
            ("karpenter.sh/discovery".to_owned(), cluster.clone()),
            (format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned()),
            ("Name".to_owned(), format!("{cluster}-{what}")),
        ])
    }

    /// The image behind a parameter of any family and variant; made when first asked for.
    pub(crate) fn image_parameter(&mut self, name: &str) -> Option<String> {
        let known =
            ["/aws/service/eks/", "/aws/service/bottlerocket/", "/aws/service/ami-windows-latest/"];
        if !known.iter().any(|prefix| name.starts_with(prefix)) {
            return None;
        }
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let id = format!("ami-0{hash:016x}");
        let arm = name.contains("arm64") || name.contains("aarch64");
        let image = Image {
            id: id.clone(),
            name: name.trim_start_matches("/aws/service/").replace('/', "-"),
            owner_id: "602401143452".into(),
            architecture: if arm { "arm64" } else { "x86_64" }.into(),
            creation_date: Some(self.start - SignedDuration::from_hours(24 * 7)),
            deprecation_time: None,
            state: "available".into(),
            tags: Tags::new(),
        };
        self.images.entry(id.clone()).or_insert(image);
        Some(id)
    }

    /// Begins the end of an instance, running or stopped.
    pub(crate) fn shut_down(&mut self, id: &InstanceId) {
        let millis = self.random.between(4_000, 12_000);
        let Some(machine) = self.machines.get_mut(id).filter(|it| it.remains()) else { return };
        let ran = machine.is_live();
        machine.instance.state = "shutting-down".into();
        self.ec2_mutations += 1;
        if ran {
            self.give_back_reservation(id);
        }
        self.state_change(id, "shutting-down");
        self.after(millis, Happening::InstanceTerminated(id.clone()));
    }

    /// Stops an instance, as AWS or somebody with the console does. It stays so until it is terminated; its node no longer
    /// answers.
    pub(crate) fn stop(&mut self, id: &InstanceId, is_stopped: bool) {
        let millis = if is_stopped { 0 } else { self.random.between(15_000, 40_000) };
        let Some(machine) = self.machines.get_mut(id).filter(|it| it.is_live()) else { return };
        machine.instance.state = if is_stopped { "stopped" } else { "stopping" }.into();
        self.ec2_mutations += 1;
        self.give_back_reservation(id);
        if !is_stopped {
            self.after(millis, Happening::InstanceStopped(id.clone()));
        }
        self.after(NODE_GRACE, Happening::NodeUnreachable(id.clone()));
    }

    /// A reserved place is free again once nothing runs on it.
    fn give_back_reservation(&mut self, id: &InstanceId) {
        let Some(machine) = self.machines.get(id) else { return };
        let reservation = &machine.instance.capacity_reservation_id;
        if let Some(it) = self.market.reservations.iter_mut().find(|it| it.id == *reservation) {
            it.available += 1;
        }
    }

    /// Tells the interruption queue of a new instance state, as EventBridge does.
    pub(crate) fn state_change(&mut self, id: &InstanceId, state: &str) {
        let serial = self.next_serial();
        let body = serde_json::json!({
            "version": "0",
            "id": format!("00000000-0000-4000-8000-{serial:012x}"),
            "detail-type": "EC2 Instance State-change Notification",
            "source": "aws.ec2",
            "account": ACCOUNT,
            "time": crate::store::whole_second(self.now).to_string(),
            "region": self.settings.region,
            "resources": [format!("arn:aws:ec2:{}:{ACCOUNT}:instance/{id}", self.settings.region)],
            "detail": {"instance-id": id.as_str(), "state": state},
        });
        let delay = SignedDuration::from_millis(500);
        self.send(spokeshave_ports::Concern::Interruption, &body.to_string(), delay, "", false);
    }

    fn price(&self, it: &FleetOverride, capacity_type: CapacityType) -> Option<f64> {
        let sold = (it.instance_type.clone(), it.zone.clone(), capacity_type);
        self.market.prices.get(&sold).copied()
    }

    fn launch(&mut self, request: &FleetRequest) -> Result<FleetAnswer, AwsError> {
        let refuse =
            |code: &str, message: &str| Err(AwsError::new("ec2", "CreateFleet", code, message));
        if request.client_token.len() > 64 {
            return refuse(
                "InvalidParameterValue",
                "The client token is longer than 64 characters.",
            );
        }
        if !request.client_token.is_empty()
            && let Some((first, answer)) = self.fleets.get(&request.client_token)
        {
            if first != request {
                let message = "Client token has been used before with other parameters.";
                return refuse("IdempotentParameterMismatch", message);
            }
            return Ok(answer.clone());
        }
        let subnets: BTreeMap<String, String> =
            self.subnets().into_iter().map(|it| (it.id, it.zone)).collect();
        let mut offers: Vec<(f64, FleetOverride, String)> = Vec::new();
        let capacity_type = match request.capacity_type.as_str() {
            "spot" => CapacityType::Spot,
            _ => CapacityType::OnDemand,
        };
        if request.configs.iter().map(|it| it.overrides.len()).sum::<usize>() > 300 {
            return refuse(
                "InvalidParameter",
                "Instant fleets take at most 300 launch specifications.",
            );
        }
        for config in &request.configs {
            let Some((_, data)) = self.templates.get(&config.launch_template) else {
                let message =
                    format!("The launch template {} does not exist.", config.launch_template);
                return refuse("InvalidLaunchTemplateName.NotFoundException", &message);
            };
            let reserved = data.reservation_id.is_some();
            for it in &config.overrides {
                let Some(zone) = subnets.get(&it.subnet_id) else {
                    let message = format!("The subnet ID '{}' does not exist", it.subnet_id);
                    return refuse("InvalidSubnetID.NotFound", &message);
                };
                let it = FleetOverride { zone: zone.clone(), ..it.clone() };
                let kind = if reserved { CapacityType::Reserved } else { capacity_type };
                // A type that the market does not know costs what the caller says, last.
                let price =
                    self.price(&it, kind).or_else(|| self.price(&it, CapacityType::OnDemand));
                offers.push((price.unwrap_or(f64::MAX), it, config.launch_template.clone()));
            }
        }
        if offers.is_empty() {
            return refuse("InvalidParameter", "No launch specification was given.");
        }
        offers.sort_by(|a, b| {
            a.0.total_cmp(&b.0)
                .then_with(|| (&a.1.instance_type, &a.1.zone).cmp(&(&b.1.instance_type, &b.1.zone)))
        });
        let mut answer = FleetAnswer {
            fleet_id: format!("fleet-{:08x}", self.next_serial()),
            ..FleetAnswer::default()
        };
        if request.dry_run {
            return refuse(
                "DryRunOperation",
                "Request would have succeeded, but DryRun flag is set.",
            );
        }
        for _ in 0..request.target.max(1) {
            self.buy(request, capacity_type, &offers, &mut answer);
        }
        if !request.client_token.is_empty() {
            self.fleets.insert(request.client_token.clone(), (request.clone(), answer.clone()));
        }
        Ok(answer)
    }

    /// Buys one instance of the cheapest offer that has capacity.
    fn buy(
        &mut self,
        request: &FleetRequest,
        capacity_type: CapacityType,
        offers: &[(f64, FleetOverride, String)],
        answer: &mut FleetAnswer,
    ) {
        for (price, offer, template) in offers {
            let data =
                self.templates.get(template).map(|(_, data)| data.clone()).unwrap_or_default();
            let kind =
                if data.reservation_id.is_some() { CapacityType::Reserved } else { capacity_type };
            let sold = (offer.instance_type.clone(), offer.zone.clone(), kind);
            let failed = |error: &FleetError| error.instance_type == sold.0 && error.zone == sold.1;
            if answer.errors.iter().any(failed) {
                continue;
            }
            let in_reservation = data.reservation_id.as_ref().map(|id| {
                self.market.reservations.iter().position(|it| it.id == *id && it.available > 0)
            });
            let short = self.market.sold_out.contains(&sold)
                || !self.market.prices.contains_key(&sold)
                || in_reservation == Some(None)
                || self.strikes(Fault::Ice);
            if short {
                let code = match kind {
                    CapacityType::Reserved => "ReservationCapacityExceeded",
                    _ => "InsufficientInstanceCapacity",
                };
                answer.errors.push(FleetError {
                    code: code.into(),
                    message: format!(
                        "We currently do not have sufficient {} capacity in the Availability Zone you requested ({}).",
                        offer.instance_type, offer.zone
                    ),
                    instance_type: offer.instance_type.clone(),
                    zone: offer.zone.clone(),
                    subnet_id: offer.subnet_id.clone(),
                });
                continue;
            }
            let mut reservation = CapacityReservation::default();
            if let Some(Some(at)) = in_reservation
                && let Some(found) = self.market.reservations.get_mut(at)
            {
                found.available -= 1;
                reservation = found.clone();
            }
            let serial = self.next_serial();
            let id = InstanceId(format!("i-0{:016x}", Random::new(serial).bits() >> 4));
            let address = serial + 256;
            let instance = Instance {
                id: id.clone(),
                instance_type: offer.instance_type.clone(),
                image_id: offer.image_id.clone(),
                zone: offer.zone.clone(),
                subnet_id: offer.subnet_id.clone(),
                security_groups: data
                    .network_interfaces
                    .first()
                    .map(|it| it.groups.clone())
                    .unwrap_or_default(),
                state: "pending".into(),
                launch_time: Some(crate::store::whole_second(self.now)),
                spot: kind == CapacityType::Spot,
                capacity_reservation_id: reservation.id,
                capacity_reservation_type: reservation.reservation_type,
                interruptible_reservation: reservation.interruptible,
                tenancy: if data.tenancy.is_empty() {
                    "default".into()
                } else {
                    data.tenancy.clone()
                },
                placement_group_id: data.placement_group_id.clone().unwrap_or_default(),
                partition: data.partition,
                private_dns_name: format!(
                    "ip-10-{}-{}-{}.{}.compute.internal",
                    address / 65_536 % 256,
                    address / 256 % 256,
                    address % 256,
                    self.settings.region
                ),
                capacity_reservation_preference: data
                    .reservation_preference
                    .clone()
                    .unwrap_or_default(),
                efa_enabled: data.network_interfaces.iter().any(|it| {
                    it.interface_type.as_deref().is_some_and(|kind| kind.starts_with("efa"))
                }),
                tags: request.tags.clone(),
            };
            let launched = self.now;
            self.machines.insert(
                id.clone(),
                Machine {
                    instance,
                    launched,
                    template: data,
                    price: if price.is_finite() { *price } else { 0.0 },
                    interrupted: None,
                    terminated: None,
                },
            );
            self.ec2_mutations += 1;
            self.after(4_000, Happening::InstanceRunning(id.clone()));
            if !self.strikes(Fault::NoRegister) {
                let millis = self.random.between(22_000, 38_000);
                self.after(millis, Happening::NodeJoins(id.clone()));
            }
            crate::check::launched(self, &id);
            match answer.instances.iter_mut().find(|it| {
                (&it.instance_type, &it.subnet_id, &it.image_id)
                    == (&offer.instance_type, &offer.subnet_id, &offer.image_id)
            }) {
                Some(entry) => entry.ids.push(id),
                None => answer.instances.push(FleetInstances {
                    ids: vec![id],
                    instance_type: offer.instance_type.clone(),
                    zone: offer.zone.clone(),
                    subnet_id: offer.subnet_id.clone(),
                    image_id: offer.image_id.clone(),
                    spot: kind == CapacityType::Spot,
                }),
            }
            return;
        }
    }
}

fn image_passes(image: &Image, owners: &[String], filters: &[Filter]) -> bool {
    let fields = [
        ("image-id", image.id.as_str()),
        ("name", image.name.as_str()),
        ("architecture", image.architecture.as_str()),
        ("state", image.state.as_str()),
        ("owner-id", image.owner_id.as_str()),
    ];
    (owners.is_empty() || owners.iter().any(|it| it == "amazon" || *it == image.owner_id))
        && passes(filters, &image.tags, &fields)
}

impl Ports {
    /// Instances as EC2's view has them: with stale reads the newest are missing.
    fn seen(world: &mut Inner) -> Vec<Instance> {
        let stale = world.strikes(Fault::StaleRead);
        let now = world.now;
        let gone = SignedDuration::from_hours(1);
        world
            .machines
            .values()
            .filter(|it| !stale || it.launched + STALENESS <= now)
            .filter(|it| it.terminated.is_none_or(|at| now < at + gone))
            .map(|it| it.instance.clone())
            .collect()
    }
}

impl Ec2 for Ports {
    async fn describe_subnets(&self, filters: &[Filter]) -> Result<Vec<Subnet>, AwsError> {
        self.aws("ec2", "DescribeSubnets", CALL).await?;
        let world = self.world.borrow();
        let used = |id: &str| {
            world.machines.values().filter(|it| it.is_live() && it.instance.subnet_id == id).count()
        };
        Ok(world
            .subnets()
            .into_iter()
            .filter(|it| {
                let fields = [
                    ("subnet-id", it.id.as_str()),
                    ("vpc-id", it.vpc_id.as_str()),
                    ("availability-zone", it.zone.as_str()),
                    ("availability-zone-id", it.zone_id.as_str()),
                ];
                passes(filters, &it.tags, &fields)
            })
            .map(|it| Subnet {
                available_addresses: it.available_addresses - used(&it.id) as i64,
                ..it
            })
            .collect())
    }

    async fn describe_security_groups(
        &self,
        filters: &[Filter],
    ) -> Result<Vec<SecurityGroup>, AwsError> {
        self.aws("ec2", "DescribeSecurityGroups", CALL).await?;
        let world = self.world.borrow();
        Ok(world
            .security_groups()
            .into_iter()
            .filter(|it| {
                let fields = [
                    ("group-id", it.id.as_str()),
                    ("group-name", it.name.as_str()),
                    ("vpc-id", it.vpc_id.as_str()),
                ];
                passes(filters, &it.tags, &fields)
            })
            .collect())
    }

    async fn describe_images(
        &self,
        ids: &[String],
        owners: &[String],
        filters: &[Filter],
    ) -> Result<Vec<Image>, AwsError> {
        self.aws("ec2", "DescribeImages", CALL).await?;
        let mut world = self.world.borrow_mut();
        let created = world.start - SignedDuration::from_hours(24 * 7);
        // An image that a manifest names by id exists in the account.
        let by_id =
            filters.iter().filter(|it| it.name == "image-id").flat_map(|it| it.values.iter());
        for id in ids.iter().chain(by_id) {
            let own = Image {
                id: id.clone(),
                name: id.clone(),
                owner_id: ACCOUNT.into(),
                architecture: "x86_64".into(),
                creation_date: Some(created),
                deprecation_time: None,
                state: "available".into(),
                tags: Tags::new(),
            };
            world.images.entry(id.clone()).or_insert(own);
        }
        Ok(world
            .images
            .values()
            .filter(|it| ids.is_empty() || ids.contains(&it.id))
            .filter(|it| image_passes(it, owners, filters))
            .cloned()
            .collect())
    }

    async fn describe_zones(&self) -> Result<Vec<Zone>, AwsError> {
        self.aws("ec2", "DescribeAvailabilityZones", CALL).await?;
        Ok(self.world.borrow().market.zones.clone())
    }

    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeInfo>, AwsError> {
        self.aws("ec2", "DescribeInstanceTypes", 12 * CALL).await?;
        Ok(self.world.borrow().market.types.clone())
    }

    async fn describe_instance_type_offerings(&self) -> Result<Vec<TypeOffering>, AwsError> {
        self.aws("ec2", "DescribeInstanceTypeOfferings", 6 * CALL).await?;
        Ok(self.world.borrow().market.offerings.clone())
    }

    async fn describe_spot_prices(&self) -> Result<Vec<SpotPrice>, AwsError> {
        self.aws("ec2", "DescribeSpotPriceHistory", 6 * CALL).await?;
        Ok(self.world.borrow().market.spot.clone())
    }

    async fn describe_capacity_reservations(
        &self,
        ids: &[String],
        filters: &[Filter],
    ) -> Result<Vec<CapacityReservation>, AwsError> {
        self.aws("ec2", "DescribeCapacityReservations", CALL).await?;
        let world = self.world.borrow();
        Ok(world
            .market
            .reservations
            .iter()
            .filter(|it| ids.is_empty() || ids.contains(&it.id))
            .filter(|it| {
                let fields = [
                    ("state", it.state.as_str()),
                    ("owner-id", it.owner_id.as_str()),
                    ("instance-type", it.instance_type.as_str()),
                    ("availability-zone", it.zone.as_str()),
                    ("instance-match-criteria", it.instance_match_criteria.as_str()),
                ];
                passes(filters, &it.tags, &fields)
            })
            .cloned()
            .collect())
    }

    async fn describe_placement_groups(
        &self,
        names: &[String],
        ids: &[String],
    ) -> Result<Vec<PlacementGroup>, AwsError> {
        self.aws("ec2", "DescribePlacementGroups", CALL).await?;
        match names.first().or_else(|| ids.first()) {
            Some(wanted) => {
                let message = format!("The Placement Group '{wanted}' is unknown.");
                Err(AwsError::new(
                    "ec2",
                    "DescribePlacementGroups",
                    "InvalidPlacementGroup.Unknown",
                    &message,
                ))
            }
            None => Ok(Vec::new()),
        }
    }

    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetAnswer, AwsError> {
        self.aws("ec2", "CreateFleet", FLEET_CALL).await?;
        let mut world = self.world.borrow_mut();
        if request.dry_run
            && let Some(count) = world.calls.get_mut("CreateFleet")
        {
            // A dry run buys nothing and is not counted.
            *count -= 1;
            if *count == 0 {
                world.calls.remove("CreateFleet");
            }
        }
        world.launch(request)
    }

    async fn dry_run_instances(
        &self,
        template: &str,
        _: &str,
        _: &str,
        _: &Tags,
    ) -> Result<(), AwsError> {
        self.aws("ec2", "RunInstances", CALL).await?;
        if !self.world.borrow().templates.contains_key(template) {
            let message = format!("The launch template {template} does not exist.");
            let code = "InvalidLaunchTemplateName.NotFoundException";
            return Err(AwsError::new("ec2", "RunInstances", code, &message));
        }
        let message = "Request would have succeeded, but DryRun flag is set.";
        Err(AwsError::new("ec2", "RunInstances", "DryRunOperation", message))
    }

    async fn describe_instances(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, AwsError> {
        self.aws("ec2", "DescribeInstances", CALL).await?;
        let mut world = self.world.borrow_mut();
        Ok(Self::seen(&mut world).into_iter().filter(|it| ids.contains(&it.id)).collect())
    }

    async fn find_instances(&self, filters: &[Filter]) -> Result<Vec<Instance>, AwsError> {
        self.aws("ec2", "DescribeInstances", CALL).await?;
        let mut world = self.world.borrow_mut();
        Ok(Self::seen(&mut world)
            .into_iter()
            .filter(|it| {
                let fields = [
                    ("instance-id", it.id.as_str()),
                    ("instance-state-name", it.state.as_str()),
                    ("instance-type", it.instance_type.as_str()),
                    ("image-id", it.image_id.as_str()),
                    ("availability-zone", it.zone.as_str()),
                    ("subnet-id", it.subnet_id.as_str()),
                    ("vpc-id", VPC),
                    ("private-dns-name", it.private_dns_name.as_str()),
                ];
                passes(filters, &it.tags, &fields)
            })
            .collect())
    }

    async fn describe_instance_status(
        &self,
        ids: &[InstanceId],
    ) -> Result<Vec<InstanceStatus>, AwsError> {
        self.aws("ec2", "DescribeInstanceStatus", CALL).await?;
        let world = self.world.borrow();
        Ok(world
            .machines
            .values()
            .filter(|it| {
                it.instance.state == "running" && (ids.is_empty() || ids.contains(&it.instance.id))
            })
            .map(|it| InstanceStatus {
                id: it.instance.id.clone(),
                instance_status: "ok".into(),
                system_status: "ok".into(),
                ..InstanceStatus::default()
            })
            .collect())
    }

    async fn terminate_instances(&self, ids: &[InstanceId]) -> Result<(), AwsError> {
        self.aws("ec2", "TerminateInstances", CALL).await?;
        let mut world = self.world.borrow_mut();
        for id in ids {
            crate::check::terminated(&mut world, self.concern, id);
            world.shut_down(id);
        }
        Ok(())
    }

    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), AwsError> {
        self.aws("ec2", "CreateTags", CALL).await?;
        let mut world = self.world.borrow_mut();
        for id in ids {
            let Some(machine) = world.machines.get_mut(id.as_str()) else {
                let message = format!("The ID '{id}' does not exist");
                return Err(AwsError::new(
                    "ec2",
                    "CreateTags",
                    "InvalidInstanceID.NotFound",
                    &message,
                ));
            };
            machine.instance.tags.extend(tags.clone());
        }
        Ok(())
    }

    async fn describe_launch_templates(
        &self,
        filters: &[Filter],
    ) -> Result<Vec<LaunchTemplate>, AwsError> {
        self.aws("ec2", "DescribeLaunchTemplates", CALL).await?;
        let world = self.world.borrow();
        Ok(world
            .templates
            .values()
            .map(|(template, _)| template)
            .filter(|it| passes(filters, &it.tags, &[("launch-template-name", it.name.as_str())]))
            .cloned()
            .collect())
    }

    async fn get_launch_template(&self, name: &str) -> Result<Option<LaunchTemplate>, AwsError> {
        self.aws("ec2", "DescribeLaunchTemplates", CALL).await?;
        Ok(self.world.borrow().templates.get(name).map(|(template, _)| template.clone()))
    }

    async fn create_launch_template(
        &self,
        name: &str,
        data: &LaunchTemplateData,
        tags: &Tags,
        dry_run: bool,
    ) -> Result<LaunchTemplate, AwsError> {
        self.aws("ec2", "CreateLaunchTemplate", CALL).await?;
        let mut world = self.world.borrow_mut();
        let refuse = |code: &str, message: &str| {
            Err(AwsError::new("ec2", "CreateLaunchTemplate", code, message))
        };
        if world.templates.contains_key(name) {
            let message = "Launch template name already in use.";
            return refuse("InvalidLaunchTemplateName.AlreadyExistsException", message);
        }
        if dry_run {
            return refuse(
                "DryRunOperation",
                "Request would have succeeded, but DryRun flag is set.",
            );
        }
        let template = LaunchTemplate {
            id: format!("lt-0{:016x}", world.next_serial()),
            name: name.to_owned(),
            created: Some(crate::store::whole_second(world.now)),
            tags: tags.clone(),
        };
        // Not a change of the world: launch templates are a cache that is filled and cleaned at any time.
        world.templates.insert(name.to_owned(), (template.clone(), data.clone()));
        Ok(template)
    }

    async fn delete_launch_template(&self, name: &str) -> Result<(), AwsError> {
        self.aws("ec2", "DeleteLaunchTemplate", CALL).await?;
        self.world.borrow_mut().templates.remove(name);
        Ok(())
    }
}
