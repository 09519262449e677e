//! Network interfaces of a launch template (`spec` aws-capacity 16).

use spokeshave_model::EC2NodeClass;
use spokeshave_ports::ec2::LaunchNetworkInterface;

/// The interfaces for a group of types with `efa` EFA interfaces (0 where the claim asks for none).
pub fn interfaces(class: &EC2NodeClass, efa: i64, ipv6: bool) -> Vec<LaunchNetworkInterface> {
    let spec = &class.spec;
    let groups: Vec<String> = class.status.security_groups.iter().map(|it| it.id.clone()).collect();
    let tracking = spec.connection_tracking.as_ref().and_then(|it| {
        let seconds = (
            it.tcp_established_timeout.map(i64::from),
            it.udp_stream_timeout.map(i64::from),
            it.udp_timeout.map(i64::from),
        );
        (seconds != (None, None, None)).then_some(seconds)
    });
    let prefixes = spec.ip_prefix_count.map(i64::from);
    let plain = LaunchNetworkInterface {
        groups: groups.clone(),
        associate_public_ip_address: spec.associate_public_ip_address,
        ipv4_prefix_count: prefixes.filter(|_| !ipv6),
        ipv6_prefix_count: prefixes.filter(|_| ipv6),
        ipv6_address_count: ipv6.then_some(1),
        primary_ipv6: ipv6.then_some(true),
        connection_tracking: tracking,
        ..LaunchNetworkInterface::default()
    };
    if !spec.network_interfaces.is_empty() {
        return spec
            .network_interfaces
            .iter()
            .map(|entry| {
                let of = LaunchNetworkInterface {
                    device_index: i64::from(entry.device_index),
                    network_card_index: Some(i64::from(entry.network_card_index)),
                    interface_type: Some(entry.interface_type.clone()),
                    groups: groups.clone(),
                    ..LaunchNetworkInterface::default()
                };
                // EC2 refuses addresses and tracking on an interface that is for EFA alone.
                if entry.interface_type == "efa-only" {
                    return of;
                }
                LaunchNetworkInterface {
                    device_index: of.device_index,
                    network_card_index: of.network_card_index,
                    interface_type: of.interface_type,
                    ..plain.clone()
                }
            })
            .collect();
    }
    if efa > 0 {
        return (0..efa)
            .map(|at| LaunchNetworkInterface {
                device_index: i64::from(at > 0),
                network_card_index: Some(at),
                interface_type: Some("efa".to_owned()),
                ..plain.clone()
            })
            .collect();
    }
    vec![plain]
}
