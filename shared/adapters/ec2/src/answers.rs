//! EC2's answers in the port's words. What EC2 leaves out becomes empty, zero or `None`.

use aws_sdk_ec2::{
    operation::{
        RequestId, create_fleet::CreateFleetOutput, terminate_instances::TerminateInstancesOutput,
    },
    types,
};
use aws_smithy_types::DateTime;
use jiff::Timestamp;
use spokeshave_model::InstanceId;
use spokeshave_ports::ec2::{
    AcceleratorInfo, CapacityReservation, EbsInfo, FleetAnswer, FleetError, FleetInstances,
    GpuInfo, Image, Instance, InstanceCheck, InstanceStatus, InstanceStatusEvent,
    InstanceStorageInfo, InstanceTypeInfo, LaunchTemplate, NetworkInfo, NeuronInfo, PlacementGroup,
    SecurityGroup, SpotPrice, Subnet, Tags, TypeOffering, Zone,
};

use crate::timestamp;

/// Texts of a list of an SDK's enumeration.
macro_rules! texts {
    ($list:expr) => {
        $list.unwrap_or_default().iter().map(|it| it.as_str().to_owned()).collect()
    };
}

/// The text of an optional SDK enumeration; empty when it is not there.
macro_rules! text {
    ($value:expr) => {
        $value.as_ref().map(|it| it.as_str().to_owned()).unwrap_or_default()
    };
}

fn tags(tags: Option<Vec<types::Tag>>) -> Tags {
    let pair = |it: types::Tag| Some((it.key?, it.value.unwrap_or_default()));
    tags.unwrap_or_default().into_iter().filter_map(pair).collect()
}

fn time(time: Option<DateTime>) -> Option<Timestamp> {
    let time = time?;
    Timestamp::new(time.secs(), i32::try_from(time.subsec_nanos()).ok()?).ok()
}

fn number(value: Option<i32>) -> i64 {
    value.map_or(0, i64::from)
}

pub fn subnet(it: types::Subnet) -> Subnet {
    Subnet {
        id: it.subnet_id.unwrap_or_default(),
        zone: it.availability_zone.unwrap_or_default(),
        zone_id: it.availability_zone_id.unwrap_or_default(),
        vpc_id: it.vpc_id.unwrap_or_default(),
        available_addresses: number(it.available_ip_address_count),
        tags: tags(it.tags),
    }
}

pub fn security_group(it: types::SecurityGroup) -> SecurityGroup {
    SecurityGroup {
        id: it.group_id.unwrap_or_default(),
        name: it.group_name.unwrap_or_default(),
        vpc_id: it.vpc_id.unwrap_or_default(),
        tags: tags(it.tags),
    }
}

pub fn image(it: types::Image) -> Image {
    Image {
        architecture: text!(it.architecture),
        creation_date: timestamp(it.creation_date.as_deref()),
        deprecation_time: timestamp(it.deprecation_time.as_deref()),
        state: text!(it.state),
        id: it.image_id.unwrap_or_default(),
        name: it.name.unwrap_or_default(),
        owner_id: it.owner_id.unwrap_or_default(),
        tags: tags(it.tags),
    }
}

pub fn zone(it: types::AvailabilityZone) -> Zone {
    Zone {
        name: it.zone_name.unwrap_or_default(),
        id: it.zone_id.unwrap_or_default(),
        kind: it.zone_type.unwrap_or_default(),
    }
}

pub fn instance_type(it: types::InstanceTypeInfo) -> InstanceTypeInfo {
    let processor = it.processor_info;
    let vcpus = it.v_cpu_info;
    InstanceTypeInfo {
        name: text!(it.instance_type),
        usage_classes: texts!(it.supported_usage_classes),
        virtualization: texts!(it.supported_virtualization_types),
        burstable: it.burstable_performance_supported.unwrap_or_default(),
        bare_metal: it.bare_metal.unwrap_or_default(),
        hypervisor: text!(it.hypervisor),
        cpu_manufacturer: processor
            .as_ref()
            .and_then(|it| it.manufacturer.clone())
            .unwrap_or_default(),
        clock_ghz: processor.as_ref().and_then(|it| it.sustained_clock_speed_in_ghz),
        processor_features: texts!(processor.as_ref().and_then(|it| it.supported_features.clone())),
        architectures: texts!(processor.and_then(|it| it.supported_architectures)),
        cores: number(vcpus.as_ref().and_then(|it| it.default_cores)),
        vcpus: number(vcpus.and_then(|it| it.default_v_cpus)),
        memory_mib: it.memory_info.and_then(|it| it.size_in_mib).unwrap_or_default(),
        ebs: it.ebs_info.map(ebs).unwrap_or_default(),
        network: it.network_info.map(network).unwrap_or_default(),
        placement_strategies: texts!(
            it.placement_group_info.and_then(|it| it.supported_strategies)
        ),
        gpus: it
            .gpu_info
            .and_then(|it| it.gpus)
            .unwrap_or_default()
            .into_iter()
            .map(|it| GpuInfo {
                name: it.name.unwrap_or_default(),
                manufacturer: it.manufacturer.unwrap_or_default(),
                count: number(it.count),
                memory_mib: number(it.memory_info.and_then(|it| it.size_in_mib)),
            })
            .collect(),
        neuron: it
            .neuron_info
            .and_then(|it| it.neuron_devices)
            .unwrap_or_default()
            .into_iter()
            .map(|it| NeuronInfo {
                name: it.name.unwrap_or_default(),
                count: number(it.count),
                cores_per_device: number(it.core_info.and_then(|it| it.count)),
            })
            .collect(),
        accelerators: accelerators(it.inference_accelerator_info),
        instance_storage: it.instance_storage_info.and_then(|it| {
            let nvme = it.nvme_support.as_ref().map(types::EphemeralNvmeSupport::as_str);
            let nvme = nvme.is_some_and(|it| it != "unsupported");
            Some(InstanceStorageInfo { total_gb: it.total_size_in_gb?, nvme })
        }),
        nitro_enclaves: text!(it.nitro_enclaves_support),
        current_generation: it.current_generation.unwrap_or_default(),
        dedicated_hosts: it.dedicated_hosts_supported.unwrap_or_default(),
    }
}

/// The SDK marks these types as deprecated, since EC2 no longer sells Elastic Inference; instance types still have them.
#[allow(deprecated)]
fn accelerators(info: Option<types::InferenceAcceleratorInfo>) -> Vec<AcceleratorInfo> {
    info.and_then(|it| it.accelerators)
        .unwrap_or_default()
        .into_iter()
        .map(|it| AcceleratorInfo {
            name: it.name.unwrap_or_default(),
            manufacturer: it.manufacturer.unwrap_or_default(),
            count: number(it.count),
        })
        .collect()
}

fn ebs(it: types::EbsInfo) -> EbsInfo {
    let optimized = it.ebs_optimized_info;
    let mbps = |value: Option<i32>| value.map(i64::from);
    EbsInfo {
        optimized_support: text!(it.ebs_optimized_support),
        max_bandwidth_mbps: mbps(optimized.as_ref().and_then(|it| it.maximum_bandwidth_in_mbps)),
        baseline_bandwidth_mbps: mbps(
            optimized.as_ref().and_then(|it| it.baseline_bandwidth_in_mbps),
        ),
    }
}

fn network(it: types::NetworkInfo) -> NetworkInfo {
    let card = |it: &types::NetworkCardInfo| {
        (number(it.network_card_index), number(it.maximum_network_interfaces))
    };
    let efa = it.efa_info.and_then(|it| it.maximum_efa_interfaces).map(i64::from);
    NetworkInfo {
        max_interfaces: number(it.maximum_network_interfaces),
        ipv4_per_interface: number(it.ipv4_addresses_per_interface),
        encryption_in_transit: it.encryption_in_transit_supported.unwrap_or_default(),
        default_card: number(it.default_network_card_index),
        cards: it.network_cards.unwrap_or_default().iter().map(card).collect(),
        max_efa: efa.filter(|_| it.efa_supported != Some(false)),
        ena_support: text!(it.ena_support),
    }
}

pub fn type_offering(it: types::InstanceTypeOffering) -> TypeOffering {
    TypeOffering { instance_type: text!(it.instance_type), zone: it.location.unwrap_or_default() }
}

/// `None` when the price does not parse or there is no time.
pub fn spot_price(it: types::SpotPrice) -> Option<SpotPrice> {
    let price: f64 = it.spot_price?.parse().ok()?;
    let timestamp = time(it.timestamp)?;
    (price.is_finite() && price > 0.0).then(|| SpotPrice {
        instance_type: text!(it.instance_type),
        zone: it.availability_zone.unwrap_or_default(),
        price,
        timestamp: Some(timestamp),
    })
}

pub fn capacity_reservation(it: types::CapacityReservation) -> CapacityReservation {
    CapacityReservation {
        instance_match_criteria: text!(it.instance_match_criteria),
        reservation_type: text!(it.reservation_type),
        state: text!(it.state),
        id: it.capacity_reservation_id.unwrap_or_default(),
        owner_id: it.owner_id.unwrap_or_default(),
        instance_type: it.instance_type.unwrap_or_default(),
        zone: it.availability_zone.unwrap_or_default(),
        interruptible: it.interruptible.unwrap_or_default(),
        total: number(it.total_instance_count),
        available: number(it.available_instance_count),
        end_date: time(it.end_date),
        tags: tags(it.tags),
    }
}

pub fn placement_group(it: types::PlacementGroup) -> PlacementGroup {
    PlacementGroup {
        strategy: text!(it.strategy),
        state: text!(it.state),
        spread_level: text!(it.spread_level),
        id: it.group_id.unwrap_or_default(),
        name: it.group_name.unwrap_or_default(),
        partition_count: number(it.partition_count),
    }
}

pub fn instance(it: types::Instance) -> Instance {
    let lifecycle = text!(it.instance_lifecycle);
    let preference = it
        .capacity_reservation_specification
        .and_then(|it| it.capacity_reservation_preference)
        .map(|it| it.as_str().to_owned());
    let reservation_type = match (&it.capacity_reservation_id, lifecycle.as_str()) {
        (None, _) => "",
        (_, "capacity-block") => "capacity-block",
        _ => "default",
    };
    let placement = it.placement;
    let efa_enabled =
        it.network_interfaces.iter().flatten().any(|it| {
            it.interface_type.as_deref().is_some_and(|it| matches!(it, "efa" | "efa-only"))
        });
    Instance {
        id: InstanceId(it.instance_id.unwrap_or_default()),
        instance_type: text!(it.instance_type),
        image_id: it.image_id.unwrap_or_default(),
        zone: placement.as_ref().and_then(|it| it.availability_zone.clone()).unwrap_or_default(),
        subnet_id: it.subnet_id.unwrap_or_default(),
        security_groups: it
            .security_groups
            .unwrap_or_default()
            .into_iter()
            .filter_map(|it| it.group_id)
            .collect(),
        state: text!(it.state.and_then(|it| it.name)),
        launch_time: time(it.launch_time),
        spot: it.spot_instance_request_id.is_some_and(|it| !it.is_empty()) || lifecycle == "spot",
        interruptible_reservation: lifecycle == "interruptible-capacity-reservation",
        capacity_reservation_type: reservation_type.to_owned(),
        capacity_reservation_id: it.capacity_reservation_id.unwrap_or_default(),
        capacity_reservation_preference: preference.unwrap_or_default(),
        tenancy: placement
            .as_ref()
            .and_then(|it| it.tenancy.as_ref())
            .map_or_else(|| "default".to_owned(), |it| it.as_str().to_owned()),
        placement_group_id: placement
            .as_ref()
            .and_then(|it| it.group_id.clone())
            .unwrap_or_default(),
        partition: placement
            .and_then(|it| it.partition_number)
            .filter(|it| *it != 0)
            .map(i64::from),
        private_dns_name: it.private_dns_name.unwrap_or_default(),
        efa_enabled,
        tags: tags(it.tags),
    }
}

pub fn instance_status(it: types::InstanceStatus) -> InstanceStatus {
    let mut checks = Vec::new();
    for (of, summary) in [("instance", &it.instance_status), ("system", &it.system_status)] {
        let details = summary.as_ref().and_then(|it| it.details.as_ref());
        checks.extend(details.into_iter().flatten().map(|it| InstanceCheck {
            of: of.to_owned(),
            status: text!(it.status),
            impaired_since: time(it.impaired_since),
        }));
    }
    let ebs = it.attached_ebs_status.and_then(|it| it.details).unwrap_or_default();
    checks.extend(ebs.into_iter().map(|it| InstanceCheck {
        of: "ebs".to_owned(),
        status: text!(it.status),
        impaired_since: time(it.impaired_since),
    }));
    let events = it.events.unwrap_or_default().into_iter().map(|it| InstanceStatusEvent {
        code: text!(it.code),
        description: it.description.unwrap_or_default(),
        not_before: time(it.not_before),
        not_after: time(it.not_after),
    });
    InstanceStatus {
        id: InstanceId(it.instance_id.unwrap_or_default()),
        instance_status: text!(it.instance_status.and_then(|it| it.status)),
        system_status: text!(it.system_status.and_then(|it| it.status)),
        impaired_since: checks.iter().filter_map(|it| it.impaired_since).min(),
        checks,
        events: events.collect(),
    }
}

pub fn launch_template(it: types::LaunchTemplate) -> LaunchTemplate {
    LaunchTemplate {
        id: it.launch_template_id.unwrap_or_default(),
        name: it.launch_template_name.unwrap_or_default(),
        created: time(it.create_time),
        tags: tags(it.tags),
    }
}

pub fn fleet(it: CreateFleetOutput) -> FleetAnswer {
    let request_id = it.request_id().map(str::to_owned);
    FleetAnswer {
        fleet_id: it.fleet_id.unwrap_or_default(),
        instances: it.instances.unwrap_or_default().into_iter().map(fleet_instances).collect(),
        errors: it.errors.unwrap_or_default().into_iter().map(fleet_error).collect(),
        request_id,
    }
}

fn fleet_instances(it: types::CreateFleetInstance) -> FleetInstances {
    let overrides = it.launch_template_and_overrides.and_then(|it| it.overrides);
    let overridden = |field: fn(&types::FleetLaunchTemplateOverrides) -> Option<&String>| {
        overrides.as_ref().and_then(field).cloned().unwrap_or_default()
    };
    FleetInstances {
        ids: it.instance_ids.unwrap_or_default().into_iter().map(InstanceId).collect(),
        instance_type: text!(it.instance_type),
        zone: it
            .availability_zone
            .unwrap_or_else(|| overridden(|it| it.availability_zone.as_ref())),
        subnet_id: it.subnet_id.unwrap_or_else(|| overridden(|it| it.subnet_id.as_ref())),
        image_id: overridden(|it| it.image_id.as_ref()),
        spot: it.lifecycle == Some(types::InstanceLifecycle::Spot),
    }
}

fn fleet_error(it: types::CreateFleetError) -> FleetError {
    let overrides = it.launch_template_and_overrides.and_then(|it| it.overrides);
    FleetError {
        code: it.error_code.unwrap_or_default(),
        message: it.error_message.unwrap_or_default(),
        instance_type: text!(overrides.as_ref().and_then(|it| it.instance_type.as_ref())),
        zone: overrides.as_ref().and_then(|it| it.availability_zone.clone()).unwrap_or_default(),
        subnet_id: overrides.and_then(|it| it.subnet_id).unwrap_or_default(),
    }
}

/// What the answer to TerminateInstances says each instance is now.
pub fn ending(it: TerminateInstancesOutput) -> Vec<(InstanceId, String)> {
    let state = |it: types::InstanceStateChange| {
        Some((InstanceId(it.instance_id?), text!(it.current_state.and_then(|it| it.name))))
    };
    it.terminating_instances.unwrap_or_default().into_iter().filter_map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_told_with_its_kind() {
        // aws-capacity 19.2.
        for (lifecycle, expected) in [
            ("", ("default", false)),
            ("capacity-block", ("capacity-block", false)),
            ("interruptible-capacity-reservation", ("default", true)),
        ] {
            let specification = types::CapacityReservationSpecificationResponse::builder()
                .capacity_reservation_preference("open".into())
                .build();
            let mut built = types::Instance::builder()
                .instance_id("i-1")
                .capacity_reservation_id("cr-1")
                .capacity_reservation_specification(specification);
            if !lifecycle.is_empty() {
                built = built.instance_lifecycle(lifecycle.into());
            }
            let found = instance(built.build());
            assert_eq!(found.capacity_reservation_preference, "open");
            let found = (found.capacity_reservation_type.as_str(), found.interruptible_reservation);
            assert_eq!(found, expected, "{lifecycle}");
        }
        let plain = instance(types::Instance::builder().instance_id("i-1").build());
        assert_eq!((plain.capacity_reservation_type.as_str(), plain.spot), ("", false));
    }

    #[test]
    fn an_error_without_an_override_has_empty_parts() {
        let error = types::CreateFleetError::builder().error_code("InternalError").build();
        let expected = FleetError { code: "InternalError".into(), ..FleetError::default() };
        assert_eq!(fleet_error(error), expected);
    }

    #[test]
    fn spot_prices_without_a_price_or_a_time_are_left_out() {
        let at = DateTime::from_secs(1_700_000_000);
        for (price, at, expected) in [
            (Some("0.0314"), Some(at), Some(0.0314)),
            (Some("free"), Some(at), None),
            (None, Some(at), None),
            (Some("0.0314"), None, None),
        ] {
            let built = types::SpotPrice::builder()
                .set_spot_price(price.map(str::to_owned))
                .set_timestamp(at)
                .build();
            assert_eq!(spot_price(built).map(|it| it.price), expected, "{price:?}");
        }
    }
}
