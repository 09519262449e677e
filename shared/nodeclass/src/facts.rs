//! What nodes are told about their cluster (`spec` aws-nodeclass 5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use spokeshave_bootstrap::ClusterInfo;
use spokeshave_model::Settings;
use spokeshave_ports::aws::ClusterFacts;

/// The service range: IPv4 if there is one, else IPv6.
pub fn service_cidr(facts: &ClusterFacts) -> Option<&str> {
    [facts.service_ipv4_cidr.as_str(), facts.service_ipv6_cidr.as_str()]
        .into_iter()
        .find(|it| !it.is_empty())
}

/// The address that EKS gives `kube-dns`: the tenth of the service range.
///
/// DIFFERENCE: Karpenter leaves DNS unset when it cannot read the service; nodes then guess from their VPC, wrongly
/// for any range but the usual ones.
pub fn dns_in(cidr: &str) -> Option<String> {
    let (network, prefix) = cidr.split_once('/')?;
    let prefix: u32 = prefix.parse().ok()?;
    match network.parse().ok()? {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.checked_sub(prefix)?).unwrap_or(0);
            let base = u32::from(address) & mask;
            Some(Ipv4Addr::from(base.checked_add(10)?).to_string())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.checked_sub(prefix)?).unwrap_or(0);
            let base = u128::from(address) & mask;
            Some(Ipv6Addr::from(base.checked_add(10)?).to_string())
        }
    }
}

/// The CA bundle that nodes get and that the class hash counts: the setting verbatim, else what EKS says.
pub fn ca_bundle<'a>(settings: &'a Settings, facts: &'a ClusterFacts) -> &'a str {
    if settings.cluster_ca_bundle.is_empty() {
        &facts.certificate_authority
    } else {
        &settings.cluster_ca_bundle
    }
}

/// Everything that user data needs to know of the cluster. `kube_dns` is the cluster IP of the service
/// `kube-system/kube-dns`, `None` when there is no such service.
pub fn cluster_info(
    settings: &Settings,
    facts: &ClusterFacts,
    kube_dns: Option<&str>,
) -> ClusterInfo {
    let endpoint = if settings.cluster_endpoint.is_empty() {
        &facts.endpoint
    } else {
        &settings.cluster_endpoint
    };
    let cidr = service_cidr(facts);
    let known = kube_dns.filter(|it| !it.is_empty() && *it != "None");
    ClusterInfo {
        name: settings.cluster_name.clone(),
        endpoint: endpoint.clone(),
        ca_bundle: ca_bundle(settings, facts).to_owned(),
        service_cidr: cidr.map(str::to_owned),
        dns_ip: known.map(str::to_owned).or_else(|| dns_in(cidr?)),
    }
}

/// The cluster's ARN: what EKS says, else put together from the settings.
pub fn cluster_arn(settings: &Settings, facts: &ClusterFacts) -> String {
    if facts.arn.is_empty() { settings.cluster_arn() } else { facts.arn.clone() }
}

/// The oldest and newest minor version of Kubernetes 1 that is known to work.
pub const SUPPORTED_MINORS: (u32, u32) = (26, 36);

/// Whether a version (`1.34`) is one that is known to work.
pub fn is_supported(version: &str) -> bool {
    let mut parts = version.split('.').map(|it| it.trim_end_matches('+').parse::<u32>());
    let (oldest, newest) = SUPPORTED_MINORS;
    matches!((parts.next(), parts.next()), (Some(Ok(1)), Some(Ok(minor))) if (oldest..=newest).contains(&minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // B-039
    fn dns_is_the_tenth_address_of_the_service_range() {
        for (cidr, want) in [
            ("172.21.0.0/16", Some("172.21.0.10")),
            ("10.100.0.0/16", Some("10.100.0.10")),
            ("10.100.3.7/16", Some("10.100.0.10")),
            ("fd30:1c53::/108", Some("fd30:1c53::a")),
            ("10.100.0.0/33", None),
            ("10.100.0.0", None),
            ("", None),
        ] {
            assert_eq!(dns_in(cidr).as_deref(), want, "{cidr}");
        }
    }

    #[test] // aws-nodeclass 5, cases 3 to 6
    fn settings_and_the_service_win_over_what_eks_says() {
        let facts = ClusterFacts {
            endpoint: "https://eks".into(),
            certificate_authority: "QUJD".into(),
            service_ipv4_cidr: "10.100.0.0/16".into(),
            service_ipv6_cidr: "fdac:1::/108".into(),
            ..ClusterFacts::default()
        };
        let mut settings = Settings { cluster_name: "demo".into(), ..Settings::default() };
        let info = cluster_info(&settings, &facts, Some("fd30:1c53:5f8a::a"));
        assert_eq!(
            info,
            ClusterInfo {
                name: "demo".into(),
                endpoint: "https://eks".into(),
                ca_bundle: "QUJD".into(),
                service_cidr: Some("10.100.0.0/16".into()),
                dns_ip: Some("fd30:1c53:5f8a::a".into()),
            }
        );
        settings.cluster_endpoint = "https://mine".into();
        settings.cluster_ca_bundle = "bWluZQ==".into();
        let v6 = ClusterFacts { service_ipv4_cidr: String::new(), ..facts };
        let info = cluster_info(&settings, &v6, None);
        assert_eq!(info.endpoint, "https://mine");
        assert_eq!(info.ca_bundle, "bWluZQ==");
        assert_eq!(info.service_cidr.as_deref(), Some("fdac:1::/108"));
        assert_eq!(info.dns_ip.as_deref(), Some("fdac:1::a"));
    }

    #[test] // aws-nodeclass 5, cases 1 and 2
    fn supported_versions() {
        for (version, want) in
            [("1.25", false), ("1.26", true), ("1.30+", true), ("1.36", true), ("1.37", false)]
        {
            assert_eq!(is_supported(version), want, "{version}");
        }
    }
}
