//! EC2 behind its port: the only crate that depends on `aws-sdk-ec2`, which takes minutes to compile.
//!
//! [`Ec2Api`] makes the calls, [`answers`] reads what EC2 says, [`requests`] writes what we ask for. Pages are read to
//! the end; filters rather than ids are used for reading, since an unknown id makes EC2 refuse the whole call.

pub mod answers;
#[cfg(test)]
mod paging;
pub mod requests;

use std::collections::BTreeMap;

use aws_sdk_ec2::{
    Client,
    types::{
        InstanceNetworkInterfaceSpecification, InstanceType, LaunchTemplateSpecification,
        LocationType, ResourceType,
    },
};
use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        interceptors::{Intercept, context::BeforeTransmitInterceptorContextRef},
        orchestrator::Metadata,
        runtime_components::RuntimeComponents,
    },
};
use aws_smithy_types::config_bag::ConfigBag;
use jiff::Timestamp;
use spokeshave_aws::{Call, Connection, meter::Meter};
use spokeshave_model::InstanceId;
use spokeshave_ports::{
    AwsError, Ec2, batches,
    budget::CallBudget,
    ec2::{
        CapacityReservation, Filter, FleetAnswer, FleetRequest, Image, Instance, InstanceStatus,
        InstanceTypeInfo, LaunchTemplate, LaunchTemplateData, PlacementGroup, SecurityGroup,
        SpotPrice, Subnet, Tags, TypeOffering, Zone,
    },
};

/// Scheduled events that make an instance unhealthy.
const EVENT_CODES: [&str; 5] = [
    "instance-reboot",
    "system-reboot",
    "system-maintenance",
    "instance-retirement",
    "instance-stop",
];

/// EC2 of one region. Copies share one budget of calls: one client for each environment is enough.
#[derive(Clone, Debug)]
pub struct Ec2Api {
    client: Client,
    budget: CallBudget,
    clock: Clock,
}

/// What time it is.
type Clock = fn() -> Timestamp;

impl Ec2Api {
    pub fn new(connection: &Connection) -> Self {
        Self::of(aws_sdk_ec2::config::Builder::from(connection.config()), Timestamp::now)
    }

    /// A client whose calls are counted, and whose requests come out of its budget.
    fn of(config: aws_sdk_ec2::config::Builder, clock: Clock) -> Self {
        let budget = CallBudget::default();
        let config = config.interceptor(Meter).interceptor(Requests(budget.clone(), clock));
        Self { client: Client::from_conf(config.build()), budget, clock }
    }

    /// Takes a call out of the budget of its operation. What the SDK sends besides its first request is noted by
    /// [`Requests`].
    fn enter(&self, call: Call) -> Result<(), AwsError> {
        self.budget.take(call.1, (self.clock)())
    }

    async fn terminate(&self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, String)>, AwsError> {
        const CALL: Call = Call("ec2", "TerminateInstances");
        self.enter(CALL)?;
        let ids = ids.iter().map(|it| it.0.clone()).collect();
        let answer = self.client.terminate_instances().set_instance_ids(Some(ids)).send().await;
        let answer = answer.map_err(|it| CALL.failed(it))?;
        Ok(answers::ending(answer))
    }

    async fn statuses(&self, filters: &[Filter]) -> Result<Vec<InstanceStatus>, AwsError> {
        const CALL: Call = Call("ec2", "DescribeInstanceStatus");
        self.enter(CALL)?;
        let request = self.client.describe_instance_status();
        let request = request.set_filters(requests::filters(filters)).max_results(1000);
        let mut pages = request.into_paginator().items().send();
        let mut found = Vec::new();
        while let Some(item) = pages.next().await {
            found.push(answers::instance_status(item.map_err(|it| CALL.failed(it))?));
        }
        Ok(found)
    }
}

/// Notes every request that is sent, tries and pages included, in the budget of its operation.
#[derive(Debug)]
struct Requests(CallBudget, Clock);

impl Intercept for Requests {
    fn name(&self) -> &'static str {
        "Requests"
    }

    fn read_before_attempt(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(call) = bag.load::<Metadata>() {
            self.0.sent(call.name(), (self.1)());
        }
        Ok(())
    }
}

/// Reads all pages of a call into a vector.
macro_rules! pages {
    ($call:ident, $request:expr, $read:expr) => {{
        let mut pages = $request.into_paginator().items().send();
        let mut found = Vec::new();
        while let Some(item) = pages.next().await {
            let item = item.map_err(|error| $call.failed(error))?;
            found.extend($read(item));
        }
        found
    }};
}

impl Ec2 for Ec2Api {
    async fn describe_subnets(&self, filters: &[Filter]) -> Result<Vec<Subnet>, AwsError> {
        const CALL: Call = Call("ec2", "DescribeSubnets");
        self.enter(CALL)?;
        let request = self.client.describe_subnets().set_filters(requests::filters(filters));
        Ok(pages!(CALL, request, |it| Some(answers::subnet(it))))
    }

    async fn describe_security_groups(
        &self,
        filters: &[Filter],
    ) -> Result<Vec<SecurityGroup>, AwsError> {
        const CALL: Call = Call("ec2", "DescribeSecurityGroups");
        self.enter(CALL)?;
        let request =
            self.client.describe_security_groups().set_filters(requests::filters(filters));
        Ok(pages!(CALL, request, |it| Some(answers::security_group(it))))
    }

    async fn describe_images(
        &self,
        ids: &[String],
        owners: &[String],
        filters: &[Filter],
    ) -> Result<Vec<Image>, AwsError> {
        const CALL: Call = Call("ec2", "DescribeImages");
        self.enter(CALL)?;
        // Ids go into a filter: one that is unknown is no error then.
        let mut filters = filters.to_vec();
        if !ids.is_empty() {
            filters.push(Filter { name: "image-id".into(), values: ids.to_vec() });
        }
        let request = self
            .client
            .describe_images()
            .set_owners(some(owners))
            .set_filters(requests::filters(&filters))
            .include_deprecated(true)
            .max_results(1000);
        Ok(pages!(CALL, request, |it| Some(answers::image(it))))
    }

    async fn describe_zones(&self) -> Result<Vec<Zone>, AwsError> {
        const CALL: Call = Call("ec2", "DescribeAvailabilityZones");
        self.enter(CALL)?;
        let answer = self.client.describe_availability_zones().send().await;
        let answer = answer.map_err(|it| CALL.failed(it))?;
        Ok(answer.availability_zones.unwrap_or_default().into_iter().map(answers::zone).collect())
    }

    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeInfo>, AwsError> {
        const CALL: Call = Call("ec2", "DescribeInstanceTypes");
        self.enter(CALL)?;
        let filters = [
            Filter::new("supported-virtualization-type", &["hvm"]),
            Filter::new("processor-info.supported-architecture", &["x86_64", "arm64"]),
        ];
        let request = self.client.describe_instance_types();
        let request = request.set_filters(requests::filters(&filters)).max_results(100);
        Ok(pages!(CALL, request, |it| Some(answers::instance_type(it))))
    }

    async fn describe_instance_type_offerings(&self) -> Result<Vec<TypeOffering>, AwsError> {
        const CALL: Call = Call("ec2", "DescribeInstanceTypeOfferings");
        self.enter(CALL)?;
        let request = self.client.describe_instance_type_offerings();
        let request = request.location_type(LocationType::AvailabilityZone).max_results(1000);
        Ok(pages!(CALL, request, |it| Some(answers::type_offering(it))))
    }

    async fn describe_spot_prices(&self) -> Result<Vec<SpotPrice>, AwsError> {
        const CALL: Call = Call("ec2", "DescribeSpotPriceHistory");
        self.enter(CALL)?;
        let request = self
            .client
            .describe_spot_price_history()
            .product_descriptions("Linux/UNIX")
            .product_descriptions("Linux/UNIX (Amazon VPC)")
            .start_time(std::time::SystemTime::now().into())
            .max_results(2000);
        Ok(pages!(CALL, request, answers::spot_price))
    }

    async fn describe_capacity_reservations(
        &self,
        ids: &[String],
        filters: &[Filter],
    ) -> Result<Vec<CapacityReservation>, AwsError> {
        const CALL: Call = Call("ec2", "DescribeCapacityReservations");
        self.enter(CALL)?;
        let request = self
            .client
            .describe_capacity_reservations()
            .set_capacity_reservation_ids(some(ids))
            .set_filters(requests::filters(filters));
        Ok(pages!(CALL, request, |it| Some(answers::capacity_reservation(it))))
    }

    async fn describe_placement_groups(
        &self,
        names: &[String],
        ids: &[String],
    ) -> Result<Vec<PlacementGroup>, AwsError> {
        const CALL: Call = Call("ec2", "DescribePlacementGroups");
        self.enter(CALL)?;
        let request = self.client.describe_placement_groups();
        let request = request.set_group_names(some(names)).set_group_ids(some(ids));
        let answer = request.send().await.map_err(|it| CALL.failed(it))?;
        let groups = answer.placement_groups.unwrap_or_default();
        Ok(groups.into_iter().map(answers::placement_group).collect())
    }

    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetAnswer, AwsError> {
        const CALL: Call = Call("ec2", "CreateFleet");
        self.enter(CALL)?;
        let answer = requests::fleet(request).send_with(&self.client).await;
        let answer = answer.map_err(|it| CALL.failed(it))?;
        Ok(answers::fleet(answer))
    }

    async fn dry_run_instances(
        &self,
        launch_template: &str,
        instance_type: &str,
        subnet_id: &str,
        tags: &Tags,
    ) -> Result<(), AwsError> {
        const CALL: Call = Call("ec2", "RunInstances");
        self.enter(CALL)?;
        let template = LaunchTemplateSpecification::builder()
            .launch_template_name(launch_template)
            .version("$Latest")
            .build();
        let interface = InstanceNetworkInterfaceSpecification::builder()
            .device_index(0)
            .subnet_id(subnet_id)
            .build();
        let mut request = self
            .client
            .run_instances()
            .dry_run(true)
            .min_count(1)
            .max_count(1)
            .launch_template(template)
            .instance_type(InstanceType::from(instance_type))
            .network_interfaces(interface);
        for kind in [ResourceType::Instance, ResourceType::Volume, ResourceType::NetworkInterface] {
            request = request.tag_specifications(requests::tag_specification(kind, tags));
        }
        request.send().await.map(drop).map_err(|it| CALL.failed(it))
    }

    async fn describe_instances(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, AwsError> {
        batches::describe(ids, async |ids: &[InstanceId]| {
            let values = ids.iter().map(|it| it.0.clone()).collect();
            let filter = Filter { name: "instance-id".into(), values };
            self.find_instances(&[filter]).await
        })
        .await
    }

    async fn find_instances(&self, filters: &[Filter]) -> Result<Vec<Instance>, AwsError> {
        const CALL: Call = Call("ec2", "DescribeInstances");
        self.enter(CALL)?;
        let request = self.client.describe_instances();
        let request = request.set_filters(requests::filters(filters)).max_results(batches::PAGE);
        Ok(pages!(CALL, request, |it: aws_sdk_ec2::types::Reservation| {
            it.instances.unwrap_or_default().into_iter().map(answers::instance)
        }))
    }

    async fn describe_instance_status(
        &self,
        ids: &[InstanceId],
    ) -> Result<Vec<InstanceStatus>, AwsError> {
        let mut found = BTreeMap::new();
        let mut keep = |statuses: Vec<InstanceStatus>| {
            for status in statuses {
                found.entry(status.id.clone()).or_insert(status);
            }
        };
        if ids.is_empty() {
            keep(self.statuses(&[Filter::new("instance-status.status", &["impaired"])]).await?);
            keep(self.statuses(&[Filter::new("system-status.status", &["impaired"])]).await?);
            keep(self.statuses(&[Filter::new("event.code", &EVENT_CODES)]).await?);
        }
        for ids in ids.chunks(batches::FILTER_VALUES) {
            const CALL: Call = Call("ec2", "DescribeInstanceStatus");
            self.enter(CALL)?;
            let ids = ids.iter().map(|it| it.0.clone()).collect();
            let request = self.client.describe_instance_status().set_instance_ids(Some(ids));
            keep(pages!(CALL, request, |it| Some(answers::instance_status(it))));
        }
        Ok(found.into_values().collect())
    }

    async fn terminate_instances(&self, ids: &[InstanceId]) -> Result<(), AwsError> {
        batches::terminate(ids, async |ids: &[InstanceId]| self.terminate(ids).await).await
    }

    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), AwsError> {
        const CALL: Call = Call("ec2", "CreateTags");
        for ids in ids.chunks(batches::IDS) {
            self.enter(CALL)?;
            let request = self.client.create_tags().set_resources(Some(ids.to_vec()));
            let answer = request.set_tags(Some(requests::tags(tags))).send().await;
            answer.map_err(|it| CALL.failed(it))?;
        }
        Ok(())
    }

    async fn describe_launch_templates(
        &self,
        filters: &[Filter],
    ) -> Result<Vec<LaunchTemplate>, AwsError> {
        const CALL: Call = Call("ec2", "DescribeLaunchTemplates");
        self.enter(CALL)?;
        let request = self.client.describe_launch_templates();
        let request = request.set_filters(requests::filters(filters)).max_results(200);
        Ok(pages!(CALL, request, |it| Some(answers::launch_template(it))))
    }

    async fn get_launch_template(&self, name: &str) -> Result<Option<LaunchTemplate>, AwsError> {
        let filter = Filter::new("launch-template-name", &[name]);
        Ok(self.describe_launch_templates(&[filter]).await?.into_iter().next())
    }

    async fn create_launch_template(
        &self,
        name: &str,
        data: &LaunchTemplateData,
        tags: &Tags,
        dry_run: bool,
    ) -> Result<LaunchTemplate, AwsError> {
        const CALL: Call = Call("ec2", "CreateLaunchTemplate");
        self.enter(CALL)?;
        let request = self
            .client
            .create_launch_template()
            .launch_template_name(name)
            .launch_template_data(requests::launch_template_data(data))
            .tag_specifications(requests::tag_specification(ResourceType::LaunchTemplate, tags))
            .dry_run(dry_run);
        let answer = request.send().await.map_err(|it| CALL.failed(it))?;
        let template = answer
            .launch_template
            .ok_or_else(|| CALL.error("Response", "the answer names no launch template"))?;
        Ok(answers::launch_template(template))
    }

    async fn delete_launch_template(&self, name: &str) -> Result<(), AwsError> {
        const CALL: Call = Call("ec2", "DeleteLaunchTemplate");
        self.enter(CALL)?;
        let request = self.client.delete_launch_template().launch_template_name(name);
        match request.send().await.map_err(|it| CALL.failed(it)) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

/// A list for a request: EC2 refuses empty ones.
fn some(values: &[String]) -> Option<Vec<String>> {
    (!values.is_empty()).then(|| values.to_vec())
}

/// EC2's text of a time.
pub(crate) fn timestamp(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}
