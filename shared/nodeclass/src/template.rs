//! What a class contributes to a launch template (`spec` aws-nodeclass 14, aws-capacity 15.3 and 16).

use spokeshave_bootstrap::kubelet::is_ipv6;
use spokeshave_model::{
    EC2NodeClass, Quantity,
    ec2_node_class::{BlockDevice, BlockDeviceMapping, EC2NodeClassSpec},
};
use spokeshave_ports::ec2::{LaunchBlockDevice, LaunchMetadataOptions, LaunchNetworkInterface};

/// Regions whose EC2 does not know the IPv6 field of the metadata options.
const WITHOUT_METADATA_IPV6: &[&str] = &[
    "us-iso-east-1",
    "us-iso-west-1",
    "us-isob-east-1",
    "us-isob-west-1",
    "us-isof-east-1",
    "us-isof-south-1",
];

const GIB: i128 = 1 << 30;

/// Whole GiB, rounded up. `None` for a text that is no size, which the CRD's pattern lets through in odd cases (`Ti`).
pub fn volume_gib(size: &str) -> Option<i64> {
    let nanos = size.parse::<Quantity>().ok()?.nanos();
    let per_gib = GIB * 1_000_000_000;
    let whole = nanos.div_euclid(per_gib) + i128::from(nanos.rem_euclid(per_gib) != 0);
    i64::try_from(whole).ok()
}

/// The disks: the class's own, or those of its family. EC2 refuses an empty list, so none means no field.
pub fn block_devices(spec: &EC2NodeClassSpec) -> Vec<LaunchBlockDevice> {
    spec.effective_block_devices().iter().map(block_device).collect()
}

fn block_device(mapping: &BlockDeviceMapping) -> LaunchBlockDevice {
    let ebs = mapping.ebs.clone().unwrap_or_default();
    let BlockDevice { delete_on_termination, encrypted, kms_key_id, snapshot_id, .. } = ebs.clone();
    LaunchBlockDevice {
        device_name: mapping.device_name.clone().unwrap_or_default(),
        delete_on_termination,
        encrypted,
        iops: ebs.iops.filter(|it| *it != 0),
        kms_key_id,
        snapshot_id,
        throughput: ebs.throughput.filter(|it| *it != 0),
        volume_initialization_rate: ebs.volume_initialization_rate,
        volume_size: ebs.volume_size.as_deref().and_then(volume_gib),
        volume_type: ebs.volume_type,
    }
}

/// Access to instance metadata. Metadata tags stay off: tag keys with a slash would make the launch fail.
///
/// Fields that are not set have the CRD's defaults. DIFFERENCE: so has a class without the block, which only an object
/// stored before there were defaults can be; Karpenter closes the endpoint there.
pub fn metadata_options(spec: &EC2NodeClassSpec, region: &str) -> LaunchMetadataOptions {
    let given = spec.metadata_options.clone().unwrap_or_default();
    let ipv6 = given.http_protocol_ipv6.unwrap_or_else(|| "disabled".into());
    LaunchMetadataOptions {
        http_endpoint: given.http_endpoint.unwrap_or_else(|| "enabled".into()),
        http_protocol_ipv6: (!WITHOUT_METADATA_IPV6.contains(&region)).then_some(ipv6),
        http_put_response_hop_limit: given.http_put_response_hop_limit.unwrap_or(1),
        http_tokens: given.http_tokens.unwrap_or_else(|| "required".into()),
        instance_metadata_tags: "disabled".into(),
    }
}

/// The network interfaces. `dns_ip` tells whether the cluster is IPv6; `efas` is the number of interfaces
/// when the claim asks for EFA, else 0.
pub fn network_interfaces(
    class: &EC2NodeClass,
    dns_ip: Option<&str>,
    efas: i64,
) -> Vec<LaunchNetworkInterface> {
    let spec = &class.spec;
    let v6 = dns_ip.is_some_and(is_ipv6);
    let groups: Vec<String> = class.status.security_groups.iter().map(|it| it.id.clone()).collect();
    let prefixes = spec.ip_prefix_count.map(i64::from);
    let tracking = spec.connection_tracking.as_ref().and_then(|it| {
        let timeouts = (
            it.tcp_established_timeout.map(i64::from),
            it.udp_stream_timeout.map(i64::from),
            it.udp_timeout.map(i64::from),
        );
        (timeouts != (None, None, None)).then_some(timeouts)
    });
    let common = LaunchNetworkInterface {
        groups: groups.clone(),
        associate_public_ip_address: spec.associate_public_ip_address,
        ipv4_prefix_count: prefixes.filter(|_| !v6),
        ipv6_prefix_count: prefixes.filter(|_| v6),
        ipv6_address_count: v6.then_some(1),
        primary_ipv6: v6.then_some(true),
        connection_tracking: tracking,
        ..LaunchNetworkInterface::default()
    };
    if !spec.network_interfaces.is_empty() {
        let explicit = spec.network_interfaces.iter().map(|it| {
            // An interface without addresses takes nothing that is about addresses.
            let base = if it.interface_type == "efa-only" {
                LaunchNetworkInterface { groups: groups.clone(), ..Default::default() }
            } else {
                common.clone()
            };
            LaunchNetworkInterface {
                device_index: i64::from(it.device_index),
                network_card_index: Some(i64::from(it.network_card_index)),
                interface_type: Some(it.interface_type.clone()),
                ..base
            }
        });
        return explicit.collect();
    }
    if efas > 0 {
        let efa = |card: i64| LaunchNetworkInterface {
            device_index: i64::from(card > 0),
            network_card_index: Some(card),
            interface_type: Some("efa".into()),
            ..common.clone()
        };
        return (0..efas).map(efa).collect();
    }
    vec![common]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value)] // `json!` reads best in place.
    fn class(spec: Value) -> EC2NodeClass {
        let status = json!({"securityGroups": [{"id": "sg-1"}, {"id": "sg-2"}]});
        serde_json::from_value(json!({"spec": spec, "status": status})).expect("a class")
    }

    #[test] // aws-nodeclass 14, case 1; aws-capacity 15, case 1; B-084: also what the CRD lets through or keeps out
    fn volume_sizes_round_up() {
        for (size, want) in [
            ("20G", Some(19)),
            ("20Gi", Some(20)),
            ("1Ti", Some(1024)),
            ("100Mi", Some(1)),
            ("200G", Some(187)),
            ("4G", Some(4)),
            ("2G", Some(2)),
            ("1000Mi", Some(1)),
            ("64T", Some(59605)),
            ("59000Gi", Some(59000)),
            ("17Ti", Some(17 * 1024)),
            ("18Ti", Some(18 * 1024)),
            ("29Ti", Some(29 * 1024)),
            ("Ti", None),
            ("T", None),
        ] {
            assert_eq!(volume_gib(size), want, "{size}");
        }
    }

    #[test] // aws-nodeclass 14, cases 2 and 3; aws-capacity 15, case 2; api 10.4
    fn default_disks() {
        let disks = |family: &str| {
            let devices = block_devices(&class(json!({"amiFamily": family})).spec);
            let text = |it: &LaunchBlockDevice| {
                assert_eq!(it.encrypted, Some(true));
                assert_eq!(it.volume_type.as_deref(), Some("gp3"));
                assert_eq!((it.iops, it.throughput, it.delete_on_termination), (None, None, None));
                format!("{} {}", it.device_name, it.volume_size.unwrap_or_default())
            };
            devices.iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(disks("AL2023"), ["/dev/xvda 20"]);
        assert_eq!(disks("AL2"), ["/dev/xvda 20"]);
        assert_eq!(disks("Bottlerocket"), ["/dev/xvda 4", "/dev/xvdb 20"]);
        assert_eq!(disks("Windows2019"), ["/dev/sda1 50"]);
        assert_eq!(disks("Custom"), Vec::<String>::new());
    }

    #[test]
    fn zero_iops_and_throughput_are_left_out() {
        let devices = block_devices(
            &class(json!({"blockDeviceMappings": [{
                "deviceName": "/dev/xvda",
                "ebs": {"iops": 0, "throughput": 0, "snapshotID": "snap-1", "deleteOnTermination": false},
            }]}))
            .spec,
        );
        assert_eq!(
            devices,
            [LaunchBlockDevice {
                device_name: "/dev/xvda".into(),
                delete_on_termination: Some(false),
                snapshot_id: Some("snap-1".into()),
                ..LaunchBlockDevice::default()
            }]
        );
    }

    #[test] // aws-nodeclass 14, case 4; aws-capacity 15, case 8
    fn metadata_options_by_region() {
        let spec = class(json!({"metadataOptions": {"httpTokens": "optional"}})).spec;
        let options = metadata_options(&spec, "eu-west-1");
        assert_eq!(
            options,
            LaunchMetadataOptions {
                http_endpoint: "enabled".into(),
                http_protocol_ipv6: Some("disabled".into()),
                http_put_response_hop_limit: 1,
                http_tokens: "optional".into(),
                instance_metadata_tags: "disabled".into(),
            }
        );
        for region in ["us-isob-east-1", "us-iso-east-1"] {
            assert_eq!(metadata_options(&spec, region).http_protocol_ipv6, None);
        }
    }

    #[test] // aws-nodeclass 14, case 5; aws-capacity 16, cases 1 to 4
    fn one_plain_interface() {
        let plain = network_interfaces(&class(json!({})), Some("10.100.0.10"), 0);
        let groups = vec!["sg-1".to_owned(), "sg-2".to_owned()];
        assert_eq!(
            plain,
            [LaunchNetworkInterface { groups: groups.clone(), ..Default::default() }]
        );
        let v6 = network_interfaces(
            &class(json!({"ipPrefixCount": 2, "associatePublicIPAddress": false})),
            Some("fd30:1c53:5f8a::a"),
            0,
        );
        assert_eq!(
            v6,
            [LaunchNetworkInterface {
                groups,
                associate_public_ip_address: Some(false),
                ipv6_prefix_count: Some(2),
                ipv6_address_count: Some(1),
                primary_ipv6: Some(true),
                ..Default::default()
            }]
        );
        let v4 = network_interfaces(&class(json!({"ipPrefixCount": 0})), None, 0);
        assert_eq!(v4[0].ipv4_prefix_count, Some(0));
        assert_eq!(v4[0].ipv6_prefix_count, None);
    }

    #[test] // aws-nodeclass 14, case 6; aws-capacity 16, case 6
    fn explicit_interfaces() {
        let class = class(json!({
            "networkInterfaces": [
                {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
                {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
            ],
            "associatePublicIPAddress": true,
            "ipPrefixCount": 1,
            "connectionTracking": {"udpTimeout": 30},
        }));
        let [first, second] =
            network_interfaces(&class, Some("fd30::a"), 4).try_into().expect("two");
        assert_eq!(first.associate_public_ip_address, Some(true));
        assert_eq!(first.connection_tracking, Some((None, None, Some(30))));
        assert_eq!((first.primary_ipv6, first.ipv6_address_count), (Some(true), Some(1)));
        assert_eq!(
            second,
            LaunchNetworkInterface {
                device_index: 1,
                network_card_index: Some(1),
                interface_type: Some("efa-only".into()),
                groups: vec!["sg-1".into(), "sg-2".into()],
                ..Default::default()
            }
        );
    }

    #[test] // aws-nodeclass 14, case 7; aws-capacity 16, cases 5 and 7
    fn one_interface_per_efa() {
        let class = class(json!({"connectionTracking": {}}));
        let interfaces = network_interfaces(&class, None, 2);
        let text: Vec<_> = interfaces
            .iter()
            .map(|it| (it.network_card_index, it.device_index, it.interface_type.as_deref()))
            .collect();
        assert_eq!(text, [(Some(0), 0, Some("efa")), (Some(1), 1, Some("efa"))]);
        assert!(interfaces.iter().all(|it| it.connection_tracking.is_none()));
    }
}
