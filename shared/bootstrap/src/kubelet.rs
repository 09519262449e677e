//! Kubelet settings as they will be in effect, and as command-line arguments (`spec` aws-nodeclass 7, 9 and 10).

use std::collections::BTreeMap;

use serde_json::Value;
use spokeshave_model::{
    Quantity, Taint,
    duration::{GoDuration, parse_go},
};

use crate::NodeFacts;

/// The keys that every family understands. All others pass through on AL2023 only.
pub const MANAGED: &[&str] = &[
    "clusterDNS",
    "maxPods",
    "podsPerCore",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMaxPodGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "cpuCFSQuota",
];

/// `spec.kubelet` with what the launch knows: a pod count unless the class gives a number, the DNS address unless it
/// gives one, and reserved amounts without expressions.
pub fn effective(
    spec: Option<&BTreeMap<String, Value>>,
    facts: &NodeFacts,
    dns_ip: Option<&str>,
) -> BTreeMap<String, Value> {
    let mut settings = spec.cloned().unwrap_or_default();
    if settings.get("maxPods").and_then(Value::as_i64).is_none() {
        match facts.max_pods {
            Some(count) => settings.insert("maxPods".into(), count.into()),
            None => settings.remove("maxPods"),
        };
    }
    let has_dns =
        settings.get("clusterDNS").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
    if !has_dns {
        match dns_ip {
            Some(ip) => settings.insert("clusterDNS".into(), vec![Value::from(ip)].into()),
            None => settings.remove("clusterDNS"),
        };
    }
    for (key, evaluated) in
        [("kubeReserved", &facts.kube_reserved), ("systemReserved", &facts.system_reserved)]
    {
        let Some(written) = settings.get(key).and_then(Value::as_object) else { continue };
        let amounts: serde_json::Map<String, Value> = match evaluated {
            // Plain quantities stay as they are written.
            Some(evaluated) => evaluated
                .iter()
                .map(|(name, text)| {
                    let given = written.get(name).and_then(Value::as_str);
                    let plain = given.filter(|it| it.parse::<Quantity>().is_ok());
                    (name.clone(), plain.unwrap_or(text).into())
                })
                .collect(),
            None => written
                .iter()
                .filter(|(_, value)| {
                    value.as_str().is_none_or(|text| text.parse::<Quantity>().is_ok())
                })
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        };
        if amounts.is_empty() && !written.is_empty() {
            settings.remove(key);
        } else {
            settings.insert(key.into(), amounts.into());
        }
    }
    settings
}

/// The managed keys with their types. A value of another type counts as absent: validation has refused it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managed {
    pub cluster_dns: Vec<String>,
    pub max_pods: Option<i64>,
    pub pods_per_core: Option<i64>,
    pub system_reserved: BTreeMap<String, String>,
    pub kube_reserved: BTreeMap<String, String>,
    pub eviction_hard: BTreeMap<String, String>,
    pub eviction_soft: BTreeMap<String, String>,
    /// As Go prints durations: `1m0s`.
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    pub eviction_max_pod_grace_period: Option<i64>,
    pub image_gc_high_threshold_percent: Option<i64>,
    pub image_gc_low_threshold_percent: Option<i64>,
    pub cpu_cfs_quota: Option<bool>,
}

impl Managed {
    /// Reads the managed keys of effective settings.
    pub fn read(settings: &BTreeMap<String, Value>) -> Self {
        let integer = |key: &str| settings.get(key).and_then(Value::as_i64);
        let texts = |key: &str| -> BTreeMap<String, String> {
            let entries = settings.get(key).and_then(Value::as_object).into_iter().flatten();
            entries
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect()
        };
        let dns = settings.get("clusterDNS").and_then(Value::as_array).into_iter().flatten();
        Self {
            cluster_dns: dns.filter_map(Value::as_str).map(str::to_owned).collect(),
            max_pods: integer("maxPods"),
            pods_per_core: integer("podsPerCore"),
            system_reserved: texts("systemReserved"),
            kube_reserved: texts("kubeReserved"),
            eviction_hard: texts("evictionHard"),
            eviction_soft: texts("evictionSoft"),
            eviction_soft_grace_period: texts("evictionSoftGracePeriod")
                .into_iter()
                .filter_map(|(name, text)| Some((name, GoDuration(parse_go(&text)?).to_string())))
                .collect(),
            eviction_max_pod_grace_period: integer("evictionMaxPodGracePeriod"),
            image_gc_high_threshold_percent: integer("imageGCHighThresholdPercent"),
            image_gc_low_threshold_percent: integer("imageGCLowThresholdPercent"),
            cpu_cfs_quota: settings.get("cpuCFSQuota").and_then(Value::as_bool),
        }
    }

    /// The first DNS server.
    pub fn dns(&self) -> Option<&str> {
        self.cluster_dns.first().map(String::as_str)
    }

    /// Whether the first DNS server has an IPv6 address, which is how the cluster's IP family is known.
    pub fn is_ipv6(&self) -> bool {
        self.dns().is_some_and(is_ipv6)
    }
}

/// Whether `address` is an IPv6 address, and not an IPv4 one in IPv6 clothes.
pub fn is_ipv6(address: &str) -> bool {
    address.parse::<std::net::Ipv6Addr>().is_ok_and(|it| it.to_ipv4_mapped().is_none())
}

/// The node labels as one argument; `None` without labels.
pub(crate) fn node_labels_argument(labels: &BTreeMap<String, String>) -> Option<String> {
    joined("--node-labels", labels, "=")
}

fn joined(flag: &str, map: &BTreeMap<String, String>, separator: &str) -> Option<String> {
    let entries: Vec<String> =
        map.iter().map(|(key, value)| format!("{key}{separator}{value}")).collect();
    (!entries.is_empty()).then(|| format!("{flag}=\"{}\"", entries.join(",")))
}

/// The arguments that bootstrap scripts hand to the kubelet, joined by single spaces.
pub(crate) fn arguments(
    labels: &BTreeMap<String, String>,
    taints: &[Taint],
    settings: &Managed,
) -> String {
    let number = |flag: &str, value: Option<i64>| value.map(|it| format!("{flag}={it}"));
    let taints: Vec<String> = taints.iter().map(ToString::to_string).collect();
    [
        node_labels_argument(labels),
        (!taints.is_empty()).then(|| format!("--register-with-taints=\"{}\"", taints.join(","))),
        number("--max-pods", settings.max_pods),
        number("--pods-per-core", settings.pods_per_core),
        joined("--system-reserved", &settings.system_reserved, "="),
        joined("--kube-reserved", &settings.kube_reserved, "="),
        joined("--eviction-hard", &settings.eviction_hard, "<"),
        joined("--eviction-soft", &settings.eviction_soft, "<"),
        joined("--eviction-soft-grace-period", &settings.eviction_soft_grace_period, "="),
        number("--eviction-max-pod-grace-period", settings.eviction_max_pod_grace_period),
        number("--image-gc-high-threshold", settings.image_gc_high_threshold_percent),
        number("--image-gc-low-threshold", settings.image_gc_low_threshold_percent),
        settings.cpu_cfs_quota.map(|it| format!("--cpu-cfs-quota={it}")),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> BTreeMap<String, Value> {
        serde_json::from_value(value).expect("an object")
    }

    #[test] // aws-nodeclass 9, case 5; 7, case 10; aws-capacity 5.4
    fn the_launch_fills_in_what_the_class_leaves_open() {
        let facts = NodeFacts {
            max_pods: Some(4),
            kube_reserved: Some(BTreeMap::from([("cpu".into(), "60m".into())])),
            system_reserved: None,
        };
        let spec = map(json!({
            "podsPerCore": 2,
            "maxPods": "vcpus * 10",
            "kubeReserved": {"cpu": "vcpus * 30"},
            "systemReserved": {"memory": "max_pods * 11", "cpu": "100m"},
        }));
        assert_eq!(
            effective(Some(&spec), &facts, Some("10.100.0.10")),
            map(json!({
                "podsPerCore": 2,
                "maxPods": 4,
                "clusterDNS": ["10.100.0.10"],
                "kubeReserved": {"cpu": "60m"},
                "systemReserved": {"cpu": "100m"},
            }))
        );
        let fixed = map(json!({"maxPods": 20, "clusterDNS": ["10.0.0.1", "10.0.0.2"]}));
        assert_eq!(effective(Some(&fixed), &facts, Some("10.100.0.10")), fixed);
        assert_eq!(effective(None, &NodeFacts::default(), None), BTreeMap::new());
    }
}
