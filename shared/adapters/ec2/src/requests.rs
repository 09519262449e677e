//! What we ask EC2 for, in the SDK's words.

use aws_sdk_ec2::{
    operation::create_fleet::builders::CreateFleetInputBuilder,
    types::{self, ResourceType},
};
use spokeshave_ports::ec2::{
    Filter, FleetConfig, FleetRequest, LaunchBlockDevice, LaunchMetadataOptions,
    LaunchNetworkInterface, LaunchTemplateData, Tags,
};

/// Filters; `None` when there are none, since EC2 refuses an empty list.
pub fn filters(filters: &[Filter]) -> Option<Vec<types::Filter>> {
    let filter = |it: &Filter| {
        types::Filter::builder().name(&it.name).set_values(Some(it.values.clone())).build()
    };
    (!filters.is_empty()).then(|| filters.iter().map(filter).collect())
}

pub fn tags(tags: &Tags) -> Vec<types::Tag> {
    tags.iter().map(|(key, value)| types::Tag::builder().key(key).value(value).build()).collect()
}

pub fn tag_specification(kind: ResourceType, wanted: &Tags) -> types::TagSpecification {
    types::TagSpecification::builder().resource_type(kind).set_tags(Some(tags(wanted))).build()
}

fn narrow(value: i64) -> i32 {
    i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX })
}

/// A CreateFleet call of type `instant`.
pub fn fleet(request: &FleetRequest) -> CreateFleetInputBuilder {
    let target = types::TargetCapacitySpecificationRequest::builder()
        .total_target_capacity(narrow(request.target))
        .default_target_capacity_type(request.capacity_type.as_str().into())
        .build();
    let mut input = CreateFleetInputBuilder::default()
        .r#type(types::FleetType::Instant)
        .target_capacity_specification(target)
        .set_context(request.context.clone())
        .set_launch_template_configs(Some(request.configs.iter().map(fleet_config).collect()));
    if request.dry_run {
        input = input.dry_run(true);
    }
    if !request.client_token.is_empty() {
        input = input.client_token(&request.client_token);
    }
    for kind in [ResourceType::Instance, ResourceType::Volume, ResourceType::Fleet] {
        input = input.tag_specifications(tag_specification(kind, &request.tags));
    }
    if let Some(strategy) = &request.spot_allocation {
        let options = types::SpotOptionsRequest::builder();
        let options = options.allocation_strategy(strategy.as_str().into());
        input = input.spot_options(options.build());
    }
    if let Some(strategy) = &request.on_demand_allocation {
        let options = types::OnDemandOptionsRequest::builder();
        let options = options.allocation_strategy(strategy.as_str().into());
        input = input.on_demand_options(options.build());
    }
    if !request.reservation_types.is_empty() {
        let kinds = request.reservation_types.iter().map(|it| it.as_str().into()).collect();
        let options = types::ReservedCapacityOptionsRequest::builder();
        let options = options.set_reservation_types(Some(kinds));
        input = input.reserved_capacity_options(options.build());
    }
    input
}

fn fleet_config(config: &FleetConfig) -> types::FleetLaunchTemplateConfigRequest {
    let template = types::FleetLaunchTemplateSpecificationRequest::builder()
        .launch_template_name(&config.launch_template)
        .version("$Latest")
        .build();
    let filled = |text: &str| Some(text.to_owned()).filter(|it| !it.is_empty());
    let overrides = config.overrides.iter().map(|it| {
        types::FleetLaunchTemplateOverridesRequest::builder()
            .instance_type(it.instance_type.as_str().into())
            .set_subnet_id(filled(&it.subnet_id))
            .set_image_id(filled(&it.image_id))
            .set_availability_zone(filled(&it.zone))
            .set_priority((it.priority > 0.0).then_some(it.priority))
            .build()
    });
    types::FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(template)
        .set_overrides(Some(overrides.collect()))
        .build()
}

/// Contents of a launch template. Source: aws-capacity 15.3 and 16.
pub fn launch_template_data(data: &LaunchTemplateData) -> types::RequestLaunchTemplateData {
    let placement = types::LaunchTemplatePlacementRequest::builder()
        .set_tenancy(Some(data.tenancy.as_str()).filter(|it| !it.is_empty()).map(Into::into))
        .set_group_id(data.placement_group_id.clone())
        .set_partition_number(data.partition.map(narrow))
        .build();
    let mut request = types::RequestLaunchTemplateData::builder()
        .image_id(&data.image_id)
        .iam_instance_profile(
            types::LaunchTemplateIamInstanceProfileSpecificationRequest::builder()
                .name(&data.instance_profile)
                .build(),
        )
        .user_data(&data.user_data)
        .monitoring(
            types::LaunchTemplatesMonitoringRequest::builder()
                .enabled(data.detailed_monitoring)
                .build(),
        )
        .metadata_options(metadata_options(&data.metadata_options))
        .enclave_options(
            types::LaunchTemplateEnclaveOptionsRequest::builder().enabled(data.enclave).build(),
        )
        .placement(placement)
        .set_network_interfaces(Some(
            data.network_interfaces.iter().map(network_interface).collect(),
        ));
    if !data.block_devices.is_empty() {
        let devices = data.block_devices.iter().map(block_device).collect();
        request = request.set_block_device_mappings(Some(devices));
    }
    if let Some(nested) = &data.nested_virtualization {
        request = request.cpu_options(
            types::LaunchTemplateCpuOptionsRequest::builder()
                .nested_virtualization(nested.as_str().into())
                .build(),
        );
    }
    if let Some(preference) = &data.reservation_preference {
        let target = data.reservation_id.as_ref().map(|id| {
            types::CapacityReservationTarget::builder().capacity_reservation_id(id).build()
        });
        request = request.capacity_reservation_specification(
            types::LaunchTemplateCapacityReservationSpecificationRequest::builder()
                .capacity_reservation_preference(preference.as_str().into())
                .set_capacity_reservation_target(target)
                .build(),
        );
    }
    if let Some(market) = &data.market_type {
        request = request.instance_market_options(
            types::LaunchTemplateInstanceMarketOptionsRequest::builder()
                .market_type(market.as_str().into())
                .build(),
        );
    }
    for (kind, wanted) in &data.tags {
        request = request.tag_specifications(
            types::LaunchTemplateTagSpecificationRequest::builder()
                .resource_type(kind.as_str().into())
                .set_tags(Some(tags(wanted)))
                .build(),
        );
    }
    request.build()
}

fn metadata_options(
    options: &LaunchMetadataOptions,
) -> types::LaunchTemplateInstanceMetadataOptionsRequest {
    types::LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .http_endpoint(options.http_endpoint.as_str().into())
        .set_http_protocol_ipv6(options.http_protocol_ipv6.as_deref().map(Into::into))
        .http_put_response_hop_limit(narrow(options.http_put_response_hop_limit))
        .http_tokens(options.http_tokens.as_str().into())
        .instance_metadata_tags(options.instance_metadata_tags.as_str().into())
        .build()
}

fn block_device(device: &LaunchBlockDevice) -> types::LaunchTemplateBlockDeviceMappingRequest {
    // EC2 refuses 0 for these two; left out they take the volume type's own.
    let positive = |value: Option<i64>| value.filter(|it| *it != 0).map(narrow);
    let ebs = types::LaunchTemplateEbsBlockDeviceRequest::builder()
        .set_delete_on_termination(device.delete_on_termination)
        .set_encrypted(device.encrypted)
        .set_iops(positive(device.iops))
        .set_throughput(positive(device.throughput))
        .set_kms_key_id(device.kms_key_id.clone())
        .set_snapshot_id(device.snapshot_id.clone())
        .set_volume_initialization_rate(device.volume_initialization_rate)
        .set_volume_size(device.volume_size.map(narrow))
        .set_volume_type(device.volume_type.as_deref().map(Into::into))
        .build();
    types::LaunchTemplateBlockDeviceMappingRequest::builder()
        .device_name(&device.device_name)
        .ebs(ebs)
        .build()
}

fn network_interface(
    interface: &LaunchNetworkInterface,
) -> types::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
    let tracking = interface.connection_tracking.map(|(tcp, stream, udp)| {
        types::ConnectionTrackingSpecificationRequest::builder()
            .set_tcp_established_timeout(tcp.map(narrow))
            .set_udp_stream_timeout(stream.map(narrow))
            .set_udp_timeout(udp.map(narrow))
            .build()
    });
    types::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
        .device_index(narrow(interface.device_index))
        .set_network_card_index(interface.network_card_index.map(narrow))
        .set_interface_type(interface.interface_type.clone())
        .set_groups(Some(interface.groups.clone()))
        .set_associate_public_ip_address(interface.associate_public_ip_address)
        .set_ipv4_prefix_count(interface.ipv4_prefix_count.map(narrow))
        .set_ipv6_prefix_count(interface.ipv6_prefix_count.map(narrow))
        .set_ipv6_address_count(interface.ipv6_address_count.map(narrow))
        .set_primary_ipv6(interface.primary_ipv6)
        .set_connection_tracking_specification(tracking)
        .build()
}

#[cfg(test)]
mod tests {
    use spokeshave_ports::ec2::FleetOverride;

    use super::*;

    #[test]
    fn a_fleet_request_carries_only_what_is_set() {
        // aws-capacity 17, cases 1 and 2.
        let request = FleetRequest {
            client_token: "attempt-1".into(),
            target: 3,
            capacity_type: "spot".into(),
            spot_allocation: Some("price-capacity-optimized".into()),
            tags: Tags::from([("a".into(), "b".into())]),
            configs: vec![FleetConfig {
                launch_template: "karpenter.k8s.aws/1".into(),
                overrides: vec![FleetOverride {
                    instance_type: "m5.large".into(),
                    subnet_id: "subnet-1".into(),
                    priority: 0.096,
                    ..FleetOverride::default()
                }],
            }],
            ..FleetRequest::default()
        };
        let input = fleet(&request).build().expect("complete");
        assert_eq!(input.client_token.as_deref(), Some("attempt-1"));
        assert_eq!(input.r#type, Some(types::FleetType::Instant));
        assert_eq!(input.dry_run, None);
        assert!(input.on_demand_options.is_none() && input.reserved_capacity_options.is_none());
        let kinds: Vec<String> = input
            .tag_specifications()
            .iter()
            .filter_map(|it| Some(it.resource_type.as_ref()?.as_str().to_owned()))
            .collect();
        assert_eq!(kinds, ["instance", "volume", "fleet"]);
        let overridden = &input.launch_template_configs()[0].overrides()[0];
        assert_eq!(overridden.priority, Some(0.096));
        assert_eq!(overridden.image_id, None);
    }

    #[test]
    fn zero_iops_and_throughput_are_left_out() {
        let device = LaunchBlockDevice {
            device_name: "/dev/xvda".into(),
            iops: Some(0),
            throughput: None,
            volume_size: Some(20),
            ..LaunchBlockDevice::default()
        };
        let ebs = block_device(&device).ebs.expect("a volume");
        assert_eq!((ebs.iops, ebs.throughput, ebs.volume_size), (None, None, Some(20)));
    }

    #[test]
    fn no_filter_is_no_list() {
        assert_eq!(filters(&[]), None);
    }
}
