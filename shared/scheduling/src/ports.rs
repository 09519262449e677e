//! Host ports (`spec` scheduling 5).

use std::net::IpAddr;

use spokeshave_model::core::{ContainerPort, Pod};

/// A port of the host that a pod wants for itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostPort {
    ip: String,
    port: i32,
    protocol: String,
}

impl HostPort {
    fn new(port: &ContainerPort) -> Self {
        let ip = if port.host_ip.is_empty() { "0.0.0.0" } else { port.host_ip.as_str() };
        let protocol = if port.protocol.is_empty() { "TCP" } else { port.protocol.as_str() };
        Self { ip: ip.to_owned(), port: port.host_port, protocol: protocol.to_owned() }
    }

    /// Same port and protocol, and the addresses are equal or one of them is unspecified.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.is_unspecified() || other.is_unspecified() || {
                let parse = |it: &Self| it.ip.parse::<IpAddr>().ok();
                parse(self).is_some() && parse(self) == parse(other)
            })
    }

    fn is_unspecified(&self) -> bool {
        self.ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
    }
}

/// `8080/TCP`, with the address where it is one.
impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.is_unspecified() {
            write!(f, "{}:", self.ip)?;
        }
        write!(f, "{}/{}", self.port, self.protocol)
    }
}

/// The host ports of a pod, sorted.
///
/// DIFFERENCE: sidecars hold their ports as long as the pod runs, so they count; Karpenter looks at containers alone.
pub(crate) fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let sidecars = pod.spec.init_containers.iter().filter(|it| it.restart_policy == "Always");
    let mut ports: Vec<HostPort> = pod
        .spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|it| &it.ports)
        .filter(|it| it.host_port != 0)
        .map(HostPort::new)
        .collect();
    ports.sort();
    ports.dedup();
    ports
}

/// Whether any of `wanted` conflicts with any of `held`.
pub(crate) fn conflict(wanted: &[HostPort], held: &[HostPort]) -> bool {
    wanted.iter().any(|a| held.iter().any(|b| a.conflicts(b)))
}
