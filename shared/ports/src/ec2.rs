//! EC2, as far as it is needed. All `describe_*` calls page until done.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use spokeshave_model::InstanceId;

use crate::AwsError;

/// Tags.
pub type Tags = BTreeMap<String, String>;

/// A filter of a describe call: a name and alternatives, as EC2 has them (`tag:Name`, `tag-key`, `vpc-id`, ...).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Filter {
    pub name: String,
    pub values: Vec<String>,
}

impl Filter {
    pub fn new(name: &str, values: &[&str]) -> Self {
        Self { name: name.to_owned(), values: values.iter().map(|&it| it.to_owned()).collect() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subnet {
    pub id: String,
    pub zone: String,
    pub zone_id: String,
    pub vpc_id: String,
    pub available_addresses: i64,
    pub tags: Tags,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityGroup {
    pub id: String,
    pub name: String,
    pub vpc_id: String,
    pub tags: Tags,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Image {
    pub id: String,
    pub name: String,
    pub owner_id: String,
    /// `x86_64`, `arm64`, ...
    pub architecture: String,
    pub creation_date: Option<Timestamp>,
    pub deprecation_time: Option<Timestamp>,
    /// `available`, ...
    pub state: String,
    pub tags: Tags,
}

/// One answer of DescribeInstanceTypes, as far as the catalog reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceTypeInfo {
    pub name: String,
    /// `spot`, `on-demand`, `capacity-block`.
    pub usage_classes: Vec<String>,
    /// `hvm`, `paravirtual`.
    pub virtualization: Vec<String>,
    pub burstable: bool,
    pub bare_metal: bool,
    /// `nitro`, `xen`, or empty.
    pub hypervisor: String,
    /// `x86_64`, `arm64`, `i386`.
    pub architectures: Vec<String>,
    pub cpu_manufacturer: String,
    pub clock_ghz: Option<f64>,
    pub cores: i64,
    pub vcpus: i64,
    pub memory_mib: i64,
    pub ebs: EbsInfo,
    pub network: NetworkInfo,
    pub placement_strategies: Vec<String>,
    pub gpus: Vec<GpuInfo>,
    /// Neuron and older inference accelerators.
    pub neuron: Vec<NeuronInfo>,
    /// Habana and the like, from `inferenceAcceleratorInfo`.
    pub accelerators: Vec<AcceleratorInfo>,
    /// `None` when EC2 gives no total.
    pub instance_storage: Option<InstanceStorageInfo>,
    /// `supported` or `unsupported`.
    pub nitro_enclaves: String,
    /// `ProcessorInfo.SupportedFeatures`: `amd-sev-snp`, `nested-virtualization`, ...
    pub processor_features: Vec<String>,
    pub current_generation: bool,
    pub dedicated_hosts: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EbsInfo {
    /// `default`, `supported`, `unsupported`.
    pub optimized_support: String,
    pub max_bandwidth_mbps: Option<i64>,
    pub baseline_bandwidth_mbps: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkInfo {
    pub max_interfaces: i64,
    pub ipv4_per_interface: i64,
    pub encryption_in_transit: bool,
    pub default_card: i64,
    /// `[card index, maximum interfaces]`.
    pub cards: Vec<(i64, i64)>,
    pub max_efa: Option<i64>,
    /// `required`, `supported`, `unsupported`; empty when not told.
    pub ena_support: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuInfo {
    pub name: String,
    pub manufacturer: String,
    pub count: i64,
    #[serde(rename = "memoryMiB")]
    pub memory_mib: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NeuronInfo {
    pub name: String,
    pub count: i64,
    pub cores_per_device: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AcceleratorInfo {
    pub name: String,
    pub manufacturer: String,
    pub count: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceStorageInfo {
    #[serde(rename = "totalGB")]
    pub total_gb: i64,
    /// `NvmeSupport` is not `unsupported`.
    pub nvme: bool,
}

/// An instance type is sold in a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TypeOffering {
    pub instance_type: String,
    pub zone: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpotPrice {
    pub instance_type: String,
    pub zone: String,
    /// Dollars per hour.
    pub price: f64,
    pub timestamp: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityReservation {
    pub id: String,
    pub owner_id: String,
    pub instance_type: String,
    pub zone: String,
    /// `open` or `targeted`.
    pub instance_match_criteria: String,
    /// `default` or `capacity-block`.
    pub reservation_type: String,
    pub state: String,
    pub interruptible: bool,
    pub total: i64,
    pub available: i64,
    pub end_date: Option<Timestamp>,
    pub tags: Tags,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementGroup {
    pub id: String,
    pub name: String,
    /// `cluster`, `spread`, `partition`.
    pub strategy: String,
    pub state: String,
    pub partition_count: i64,
    /// `host` or `rack`.
    pub spread_level: String,
}

/// An availability zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Zone {
    pub name: String,
    pub id: String,
    /// `availability-zone`, `local-zone`, ...
    pub kind: String,
}

/// An EC2 instance, as far as it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Instance {
    pub id: InstanceId,
    pub instance_type: String,
    pub image_id: String,
    pub zone: String,
    pub subnet_id: String,
    pub security_groups: Vec<String>,
    /// `pending`, `running`, `shutting-down`, `terminated`, `stopping`, `stopped`.
    pub state: String,
    pub launch_time: Option<Timestamp>,
    pub spot: bool,
    pub capacity_reservation_id: String,
    /// `default`, `capacity-block`, ... empty when not in a reservation.
    pub capacity_reservation_type: String,
    /// `capacity-reservations-only`, `open`, `none`; empty when not told. Only the first (or none told) makes an
    /// instance with a reservation id count as reserved: one that fell into an open reservation does not.
    pub capacity_reservation_preference: String,
    pub interruptible_reservation: bool,
    pub tenancy: String,
    pub placement_group_id: String,
    pub partition: Option<i64>,
    pub private_dns_name: String,
    pub efa_enabled: bool,
    pub tags: Tags,
}

/// What a launch template holds. Field meanings: `spec` aws-capacity 15.3.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LaunchTemplateData {
    pub image_id: String,
    pub instance_profile: String,
    /// Base64.
    pub user_data: String,
    pub detailed_monitoring: bool,
    pub block_devices: Vec<LaunchBlockDevice>,
    pub metadata_options: LaunchMetadataOptions,
    pub nested_virtualization: Option<String>,
    pub network_interfaces: Vec<LaunchNetworkInterface>,
    pub enclave: bool,
    pub tenancy: String,
    pub placement_group_id: Option<String>,
    pub partition: Option<i64>,
    /// `capacity-reservations-only`, `none`, `open`; `None` leaves it out.
    pub reservation_preference: Option<String>,
    pub reservation_id: Option<String>,
    /// `capacity-block`, `interruptible-capacity-reservation`; `None` leaves it out.
    pub market_type: Option<String>,
    /// By resource type: `network-interface`, `spot-instances-request`.
    pub tags: BTreeMap<String, Tags>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LaunchBlockDevice {
    pub device_name: String,
    pub delete_on_termination: Option<bool>,
    pub encrypted: Option<bool>,
    pub iops: Option<i64>,
    pub kms_key_id: Option<String>,
    pub snapshot_id: Option<String>,
    pub throughput: Option<i64>,
    pub volume_initialization_rate: Option<i32>,
    /// GiB.
    pub volume_size: Option<i64>,
    pub volume_type: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LaunchMetadataOptions {
    pub http_endpoint: String,
    pub http_protocol_ipv6: Option<String>,
    pub http_put_response_hop_limit: i64,
    pub http_tokens: String,
    pub instance_metadata_tags: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LaunchNetworkInterface {
    pub device_index: i64,
    pub network_card_index: Option<i64>,
    /// `efa`, `efa-only`, `interface`; `None` leaves it out.
    pub interface_type: Option<String>,
    pub groups: Vec<String>,
    pub associate_public_ip_address: Option<bool>,
    pub ipv4_prefix_count: Option<i64>,
    pub ipv6_prefix_count: Option<i64>,
    pub ipv6_address_count: Option<i64>,
    pub primary_ipv6: Option<bool>,
    /// Seconds: established TCP, UDP stream, UDP.
    pub connection_tracking: Option<(Option<i64>, Option<i64>, Option<i64>)>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LaunchTemplate {
    pub id: String,
    pub name: String,
    pub created: Option<Timestamp>,
    pub tags: Tags,
}

/// One CreateFleet call of type `instant`. Stored in the launch attempt and sent again as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FleetRequest {
    /// At most 64 characters; the same token with the same request never launches twice.
    pub client_token: String,
    pub context: Option<String>,
    pub target: i64,
    /// `spot`, `on-demand`, `capacity-block`, `reserved-capacity`.
    pub capacity_type: String,
    pub spot_allocation: Option<String>,
    pub on_demand_allocation: Option<String>,
    pub reservation_types: Vec<String>,
    /// On the fleet, its instances and volumes.
    pub tags: Tags,
    pub configs: Vec<FleetConfig>,
    pub dry_run: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FleetConfig {
    /// By name, version `$Latest`.
    pub launch_template: String,
    pub overrides: Vec<FleetOverride>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FleetOverride {
    pub instance_type: String,
    pub subnet_id: String,
    pub image_id: String,
    pub zone: String,
    /// The offering's price.
    pub priority: f64,
}

/// What CreateFleet answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FleetAnswer {
    pub fleet_id: String,
    pub instances: Vec<FleetInstances>,
    pub errors: Vec<FleetError>,
    pub request_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FleetInstances {
    pub ids: Vec<InstanceId>,
    pub instance_type: String,
    pub zone: String,
    pub subnet_id: String,
    pub image_id: String,
    pub spot: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FleetError {
    pub code: String,
    pub message: String,
    pub instance_type: String,
    pub zone: String,
    pub subnet_id: String,
}

/// One answer of DescribeInstanceStatus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceStatus {
    pub id: InstanceId,
    /// `ok`, `impaired`, `insufficient-data`, `not-applicable`, `initializing`.
    pub instance_status: String,
    pub system_status: String,
    pub impaired_since: Option<Timestamp>,
    /// The single checks. Where an adapter leaves them out, the three fields above count as one failed check each.
    pub checks: Vec<InstanceCheck>,
    pub events: Vec<InstanceStatusEvent>,
}

/// One check of an instance: an entry of `InstanceStatus.Details`, `SystemStatus.Details`, `AttachedEbsStatus.Details`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceCheck {
    /// `instance`, `system` or `ebs`.
    pub of: String,
    /// `passed`, `failed`, `insufficient-data`, `initializing`.
    pub status: String,
    pub impaired_since: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceStatusEvent {
    pub code: String,
    pub description: String,
    pub not_before: Option<Timestamp>,
    pub not_after: Option<Timestamp>,
}

/// EC2 of one region.
pub trait Ec2 {
    async fn describe_subnets(&self, filters: &[Filter]) -> Result<Vec<Subnet>, AwsError>;
    async fn describe_security_groups(
        &self,
        filters: &[Filter],
    ) -> Result<Vec<SecurityGroup>, AwsError>;
    /// `owners` may hold `self`, `amazon` and account ids; empty: any. Deprecated images are in the answer.
    async fn describe_images(
        &self,
        ids: &[String],
        owners: &[String],
        filters: &[Filter],
    ) -> Result<Vec<Image>, AwsError>;
    async fn describe_zones(&self) -> Result<Vec<Zone>, AwsError>;
    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeInfo>, AwsError>;
    async fn describe_instance_type_offerings(&self) -> Result<Vec<TypeOffering>, AwsError>;
    async fn describe_spot_prices(&self) -> Result<Vec<SpotPrice>, AwsError>;
    async fn describe_capacity_reservations(
        &self,
        ids: &[String],
        filters: &[Filter],
    ) -> Result<Vec<CapacityReservation>, AwsError>;
    /// By name or by id, in any state. A name or id that is not known is an error (`InvalidPlacementGroup.Unknown`).
    async fn describe_placement_groups(
        &self,
        names: &[String],
        ids: &[String],
    ) -> Result<Vec<PlacementGroup>, AwsError>;

    /// Launches at once. A repeat with the same token and request answers the first call's result.
    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetAnswer, AwsError>;
    /// Always a dry run: never launches.
    async fn dry_run_instances(
        &self,
        launch_template: &str,
        instance_type: &str,
        subnet_id: &str,
        tags: &Tags,
    ) -> Result<(), AwsError>;
    /// Instances by id; unknown ids are left out of the answer.
    async fn describe_instances(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, AwsError>;
    async fn find_instances(&self, filters: &[Filter]) -> Result<Vec<Instance>, AwsError>;
    /// No ids: every instance with an impaired instance or system status, or with a scheduled event
    /// (`instance-reboot`, `system-reboot`, `system-maintenance`, `instance-retirement`, `instance-stop`), by three
    /// filtered calls; the first answer per instance counts.
    async fn describe_instance_status(
        &self,
        ids: &[InstanceId],
    ) -> Result<Vec<InstanceStatus>, AwsError>;
    /// Ids that are gone are `Ok`. Terminating twice is the same as once.
    async fn terminate_instances(&self, ids: &[InstanceId]) -> Result<(), AwsError>;
    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), AwsError>;

    async fn describe_launch_templates(
        &self,
        filters: &[Filter],
    ) -> Result<Vec<LaunchTemplate>, AwsError>;
    async fn get_launch_template(&self, name: &str) -> Result<Option<LaunchTemplate>, AwsError>;
    /// Fails with `InvalidLaunchTemplateName.AlreadyExistsException` when the name is taken.
    async fn create_launch_template(
        &self,
        name: &str,
        data: &LaunchTemplateData,
        tags: &Tags,
        dry_run: bool,
    ) -> Result<LaunchTemplate, AwsError>;
    /// One that is gone is `Ok`.
    async fn delete_launch_template(&self, name: &str) -> Result<(), AwsError>;
}
