//! What `aws ec2 describe-instance-types`, `describe-instance-type-offerings` and `describe-spot-price-history` print, as
//! the ports' types. Every entry is taken: the filters of the live calls do not apply here.

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Unexpected},
};
use spokeshave_ports::ec2::{
    AcceleratorInfo, EbsInfo, GpuInfo, InstanceStorageInfo, InstanceTypeInfo, NetworkInfo,
    NeuronInfo, SpotPrice,
};

/// An answer that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct DescribeError {
    /// `InstanceTypes[3].MemoryInfo.SizeInMiB`; `.` for the whole document.
    pub path: String,
    pub problem: String,
    /// 1-based; 0 when unknown.
    pub line: usize,
}

/// `null` like an absent field.
fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A count as EC2 tells them: a whole number of at least 0. What is larger than this is a slip of whoever wrote the file.
#[derive(Clone, Copy, Default)]
struct Count(i64);

const MAX_COUNT: i64 = 1 << 40;

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        if (0..=MAX_COUNT).contains(&number) {
            return Ok(Self(number));
        }
        let wanted = format!("a number from 0 to {MAX_COUNT}");
        Err(serde::de::Error::invalid_value(Unexpected::Signed(number), &wanted.as_str()))
    }
}

macro_rules! answer {
    ($name:ident { $($field:ident: $type:ty = $json:literal),+ $(,)? }) => {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct $name {
            $(#[serde(rename = $json, deserialize_with = "lenient")] $field: $type,)+
        }
    };
}

/// An answer, whose list must be there: the answer to another call is not taken for one that has nothing in it.
macro_rules! list {
    ($name:ident { $field:ident: $type:ty = $json:literal }) => {
        #[derive(Deserialize)]
        struct $name {
            #[serde(rename = $json, deserialize_with = "lenient")]
            $field: $type,
        }
    };
}

list!(Types { types: Vec<Type> = "InstanceTypes" });
list!(Offerings { offerings: Vec<Offered> = "InstanceTypeOfferings" });
list!(History { history: Vec<Spot> = "SpotPriceHistory" });
answer!(Type {
    name: String = "InstanceType",
    usage_classes: Vec<String> = "SupportedUsageClasses",
    virtualization: Vec<String> = "SupportedVirtualizationTypes",
    burstable: bool = "BurstablePerformanceSupported",
    bare_metal: bool = "BareMetal",
    hypervisor: String = "Hypervisor",
    processor: Processor = "ProcessorInfo",
    vcpus: Vcpus = "VCpuInfo",
    memory: Memory = "MemoryInfo",
    ebs: Ebs = "EbsInfo",
    network: Network = "NetworkInfo",
    placement: Placement = "PlacementGroupInfo",
    gpus: Gpus = "GpuInfo",
    neuron: Neuron = "NeuronInfo",
    accelerators: Accelerators = "InferenceAcceleratorInfo",
    storage: Storage = "InstanceStorageInfo",
    enclaves: String = "NitroEnclavesSupport",
    current: bool = "CurrentGeneration",
    hosts: bool = "DedicatedHostsSupported",
});
answer!(Processor {
    architectures: Vec<String> = "SupportedArchitectures",
    manufacturer: String = "Manufacturer",
    clock: Option<f64> = "SustainedClockSpeedInGhz",
    features: Vec<String> = "SupportedFeatures",
});
answer!(Vcpus { vcpus: Count = "DefaultVCpus", cores: Count = "DefaultCores" });
answer!(Memory { mib: Count = "SizeInMiB" });
answer!(Ebs {
    support: String = "EbsOptimizedSupport",
    optimized: EbsOptimized = "EbsOptimizedInfo",
});
answer!(EbsOptimized {
    max: Option<Count> = "MaximumBandwidthInMbps",
    baseline: Option<Count> = "BaselineBandwidthInMbps",
});
answer!(Network {
    interfaces: Count = "MaximumNetworkInterfaces",
    ipv4: Count = "Ipv4AddressesPerInterface",
    encryption: bool = "EncryptionInTransitSupported",
    default_card: Count = "DefaultNetworkCardIndex",
    cards: Vec<Card> = "NetworkCards",
    efa: Option<Efa> = "EfaInfo",
    ena: String = "EnaSupport",
});
answer!(Card { index: Count = "NetworkCardIndex", interfaces: Count = "MaximumNetworkInterfaces" });
answer!(Efa { max: Option<Count> = "MaximumEfaInterfaces", });
answer!(Placement { strategies: Vec<String> = "SupportedStrategies", });
answer!(Gpus { gpus: Vec<Gpu> = "Gpus", });
answer!(Gpu {
    name: String = "Name",
    manufacturer: String = "Manufacturer",
    count: Count = "Count",
    memory: Memory = "MemoryInfo",
});
answer!(Neuron { devices: Vec<NeuronDevice> = "NeuronDevices", });
answer!(NeuronDevice { name: String = "Name", count: Count = "Count", cores: Cores = "CoreInfo" });
answer!(Cores { count: Count = "Count" });
answer!(Accelerators { accelerators: Vec<Accelerator> = "Accelerators", });
answer!(Accelerator {
    name: String = "Name",
    manufacturer: String = "Manufacturer",
    count: Count = "Count",
});
answer!(Storage { total: Option<Count> = "TotalSizeInGB", nvme: String = "NvmeSupport", });
answer!(Offered {
    instance_type: String = "InstanceType",
    location: String = "Location",
    kind: String = "LocationType",
});
answer!(Spot {
    product: String = "ProductDescription",
    instance_type: String = "InstanceType",
    zone: String = "AvailabilityZone",
    price: Price = "SpotPrice",
    timestamp: String = "Timestamp",
});

/// EC2 prints prices as text; a number is taken too.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Price {
    Text(String),
    Number(f64),
    #[default]
    None,
}

/// Reads `{"<key>": [...]}`, or the list alone.
fn read<T: DeserializeOwned>(text: &str, key: &str) -> Result<T, DescribeError> {
    let is_list = text.trim_start().starts_with('[');
    let wrapped;
    let document = if is_list {
        wrapped = format!("{{\"{key}\":{text}}}");
        wrapped.as_str()
    } else {
        text
    };
    let mut deserializer = serde_json::Deserializer::from_str(document);
    let value: T = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        let line = inner.line();
        let mut problem = inner.to_string();
        if let Some(at) = problem.rfind(" at line ") {
            problem.truncate(at);
        }
        DescribeError { path, problem, line }
    })?;
    deserializer.end().map_err(|error| DescribeError {
        path: ".".to_owned(),
        problem: "text after the document".to_owned(),
        line: error.line(),
    })?;
    Ok(value)
}

fn nameless(key: &str, at: usize, field: &str) -> DescribeError {
    DescribeError { path: format!("{key}[{at}].{field}"), problem: "is missing".into(), line: 0 }
}

/// The instance types of a DescribeInstanceTypes answer.
///
/// # Errors
/// The first value of the wrong type, an entry without a name, or no JSON at all.
pub fn instance_types(text: &str) -> Result<Vec<InstanceTypeInfo>, DescribeError> {
    const KEY: &str = "InstanceTypes";
    let answer: Types = read(text, KEY)?;
    let mut types = Vec::with_capacity(answer.types.len());
    for (at, it) in answer.types.into_iter().enumerate() {
        if it.name.is_empty() {
            return Err(nameless(KEY, at, "InstanceType"));
        }
        types.push(InstanceTypeInfo {
            name: it.name,
            usage_classes: it.usage_classes,
            virtualization: it.virtualization,
            burstable: it.burstable,
            bare_metal: it.bare_metal,
            hypervisor: it.hypervisor,
            architectures: it.processor.architectures,
            cpu_manufacturer: it.processor.manufacturer,
            clock_ghz: it.processor.clock,
            cores: it.vcpus.cores.0,
            vcpus: it.vcpus.vcpus.0,
            memory_mib: it.memory.mib.0,
            ebs: EbsInfo {
                optimized_support: it.ebs.support,
                max_bandwidth_mbps: it.ebs.optimized.max.map(|it| it.0),
                baseline_bandwidth_mbps: it.ebs.optimized.baseline.map(|it| it.0),
            },
            network: NetworkInfo {
                max_interfaces: it.network.interfaces.0,
                ipv4_per_interface: it.network.ipv4.0,
                encryption_in_transit: it.network.encryption,
                default_card: it.network.default_card.0,
                cards: it
                    .network
                    .cards
                    .iter()
                    .map(|card| (card.index.0, card.interfaces.0))
                    .collect(),
                max_efa: it.network.efa.and_then(|it| it.max).map(|it| it.0),
                ena_support: it.network.ena,
            },
            placement_strategies: it.placement.strategies,
            gpus: it
                .gpus
                .gpus
                .into_iter()
                .map(|gpu| GpuInfo {
                    name: gpu.name,
                    manufacturer: gpu.manufacturer,
                    count: gpu.count.0,
                    memory_mib: gpu.memory.mib.0,
                })
                .collect(),
            neuron: it
                .neuron
                .devices
                .into_iter()
                .map(|device| NeuronInfo {
                    name: device.name,
                    count: device.count.0,
                    cores_per_device: device.cores.count.0,
                })
                .collect(),
            accelerators: it
                .accelerators
                .accelerators
                .into_iter()
                .map(|device| AcceleratorInfo {
                    name: device.name,
                    manufacturer: device.manufacturer,
                    count: device.count.0,
                })
                .collect(),
            instance_storage: it.storage.total.map(|total| InstanceStorageInfo {
                total_gb: total.0,
                nvme: it.storage.nvme != "unsupported",
            }),
            nitro_enclaves: it.enclaves,
            processor_features: it.processor.features,
            current_generation: it.current,
            dedicated_hosts: it.hosts,
        });
    }
    Ok(types)
}

/// An entry of a DescribeInstanceTypeOfferings answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub instance_type: String,
    /// A zone, zone id or region, as `kind` says.
    pub location: String,
    /// `availability-zone`, `availability-zone-id` or `region`; empty when not told.
    pub kind: String,
}

/// The offerings of a DescribeInstanceTypeOfferings answer.
///
/// # Errors
/// As [`instance_types`].
pub fn offerings(text: &str) -> Result<Vec<Location>, DescribeError> {
    const KEY: &str = "InstanceTypeOfferings";
    let answer: Offerings = read(text, KEY)?;
    answer
        .offerings
        .into_iter()
        .enumerate()
        .map(|(at, it)| {
            if it.instance_type.is_empty() {
                return Err(nameless(KEY, at, "InstanceType"));
            }
            if it.location.is_empty() {
                return Err(nameless(KEY, at, "Location"));
            }
            Ok(Location { instance_type: it.instance_type, location: it.location, kind: it.kind })
        })
        .collect()
}

/// The prices of a DescribeSpotPriceHistory answer, so that the one that counts comes last: a history is printed with the
/// newest first, and one that was asked for without a filter has prices of other systems in it, which count only where
/// there is none of Linux. Entries whose price is no number have none here; those without a time have none, so that
/// [`crate::Catalog::merge_spot`] skips both.
///
/// # Errors
/// As [`instance_types`].
pub fn spot_prices(text: &str) -> Result<Vec<SpotPrice>, DescribeError> {
    let mut answer: History = read(text, "SpotPriceHistory")?;
    // Stable: of two with the same time the later one in the file counts.
    answer.history.sort_by_key(|it| {
        let of_linux = it.product.is_empty() || it.product.starts_with("Linux/UNIX");
        (of_linux, time(&it.timestamp))
    });
    let prices = answer.history.into_iter().map(|it| SpotPrice {
        instance_type: it.instance_type,
        zone: it.zone,
        price: match it.price {
            Price::Number(price) => price,
            Price::Text(text) => text.trim().parse().unwrap_or(f64::NAN),
            Price::None => f64::NAN,
        },
        timestamp: time(&it.timestamp),
    });
    Ok(prices.collect())
}

/// RFC 3339, as the AWS command prints times (`2026-01-01T10:00:00+00:00`). Anything else that is there still says that the
/// entry has a time.
fn time(text: &str) -> Option<Timestamp> {
    if text.is_empty() { None } else { Some(text.parse().unwrap_or(Timestamp::UNIX_EPOCH)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_aws_command_prints() {
        let text = r#"{"InstanceTypes": [{"InstanceType": "p5.48xlarge",
            "SupportedUsageClasses": ["on-demand", "capacity-block"], "Hypervisor": "nitro", "BareMetal": false,
            "ProcessorInfo": {"SupportedArchitectures": ["x86_64"], "SustainedClockSpeedInGhz": 3.6, "Manufacturer": "AMD",
                "SupportedFeatures": ["nested-virtualization"]},
            "VCpuInfo": {"DefaultVCpus": 192, "DefaultCores": 96}, "MemoryInfo": {"SizeInMiB": 2097152},
            "EbsInfo": {"EbsOptimizedSupport": "default", "EbsOptimizedInfo": {"MaximumBandwidthInMbps": 80000}},
            "NetworkInfo": {"MaximumNetworkInterfaces": 64, "Ipv4AddressesPerInterface": 50, "EnaSupport": "required",
                "NetworkCards": [{"NetworkCardIndex": 0, "MaximumNetworkInterfaces": 2}],
                "EfaInfo": {"MaximumEfaInterfaces": 32}, "EncryptionInTransitSupported": true},
            "GpuInfo": {"Gpus": [{"Name": "H100", "Manufacturer": "NVIDIA", "Count": 8, "MemoryInfo": {"SizeInMiB": 81920}}]},
            "InstanceStorageInfo": {"TotalSizeInGB": 30400, "NvmeSupport": "required"},
            "PlacementGroupInfo": null, "NitroEnclavesSupport": "supported"}], "NextToken": "x"}"#;
        let types = instance_types(text).expect("readable");
        let [it] = &types[..] else { panic!("one type") };
        assert_eq!((it.name.as_str(), it.vcpus, it.memory_mib), ("p5.48xlarge", 192, 2_097_152));
        assert_eq!(it.network.cards, [(0, 2)]);
        assert_eq!(it.network.max_efa, Some(32));
        assert_eq!(it.processor_features, ["nested-virtualization"]);
        assert_eq!(it.gpus[0].memory_mib, 81_920);
        assert_eq!(it.instance_storage, Some(InstanceStorageInfo { total_gb: 30_400, nvme: true }));
        assert!(it.placement_strategies.is_empty());
        // A list alone is taken too.
        assert_eq!(instance_types("[]").expect("readable"), []);
    }

    #[test]
    fn counts_are_numbers_that_can_be() {
        for (size, problem) in [
            ("-5", "invalid value: integer `-5`, expected a number from 0 to 1099511627776"),
            (
                "9223372036854775807",
                "invalid value: integer `9223372036854775807`, expected a number from 0 to 1099511627776",
            ),
            ("2.5", "invalid type: floating point `2.5`, expected i64"),
        ] {
            let text = format!(
                r#"{{"InstanceTypes": [{{"InstanceType": "a.b", "MemoryInfo": {{"SizeInMiB": {size}}}}}]}}"#
            );
            let error = instance_types(&text).expect_err(size);
            assert_eq!(error.path, "InstanceTypes[0].MemoryInfo.SizeInMiB");
            assert_eq!(error.problem, problem);
        }
        let largest = r#"[{"InstanceType": "a.b", "MemoryInfo": {"SizeInMiB": 1099511627776}}]"#;
        assert_eq!(instance_types(largest).expect("readable")[0].memory_mib, MAX_COUNT);
    }

    #[test] // aws-capacity 8.3
    fn prices_that_are_no_numbers_have_none() {
        let text = r#"{"SpotPriceHistory": [
            {"InstanceType": "a", "AvailabilityZone": "z", "SpotPrice": "0.0350", "Timestamp": "2026-01-01T10:00:00+00:00"},
            {"InstanceType": "a", "AvailabilityZone": "z", "SpotPrice": "none", "Timestamp": "2026-01-01T10:00:00Z"},
            {"InstanceType": "a", "AvailabilityZone": "z", "SpotPrice": "0.1"}]}"#;
        let prices = spot_prices(text).expect("readable");
        assert_eq!(prices[0].timestamp, None);
        assert_eq!(prices[1].price, 0.035);
        assert!(prices[2].price.is_nan());
    }

    #[test] // aws-capacity 8.3
    fn the_newest_price_of_linux_counts() {
        let entry = |zone: &str, product: &str, price: &str, hour: u32| {
            format!(
                r#"{{"InstanceType": "a", "AvailabilityZone": "{zone}", "ProductDescription": "{product}",
                    "SpotPrice": "{price}", "Timestamp": "2026-01-01T{hour}:00:00Z"}}"#
            )
        };
        let entries = [
            // As the command prints them: the newest first.
            entry("newest-first", "Linux/UNIX", "0.3", 12),
            entry("newest-first", "Linux/UNIX", "0.2", 11),
            entry("newest-last", "Linux/UNIX (Amazon VPC)", "0.2", 11),
            entry("newest-last", "Linux/UNIX", "0.3", 12),
            entry("same-time", "Linux/UNIX", "0.2", 12),
            entry("same-time", "Linux/UNIX", "0.3", 12),
            entry("windows-newer", "Windows", "0.9", 13),
            entry("windows-newer", "Linux/UNIX", "0.3", 12),
            entry("windows-newer", "Red Hat Enterprise Linux", "0.8", 14),
            entry("windows-only", "Windows", "0.3", 12),
        ];
        let text = format!(r#"{{"SpotPriceHistory": [{}]}}"#, entries.join(","));
        let mut catalog = crate::Catalog::default();
        assert!(catalog.merge_spot(&spot_prices(&text).expect("readable")));
        for zone in ["newest-first", "newest-last", "same-time", "windows-newer", "windows-only"] {
            assert_eq!(catalog.spot_price("a", zone), Some(0.3), "{zone}");
        }
    }

    #[test]
    fn errors_name_the_place() {
        let wrong = r#"{"InstanceTypes": [{"InstanceType": "a"},
            {"InstanceType": "b", "MemoryInfo": {"SizeInMiB": "8192"}}]}"#;
        let error = instance_types(wrong).expect_err("wrong type");
        assert_eq!(error.path, "InstanceTypes[1].MemoryInfo.SizeInMiB");
        assert_eq!(error.line, 2);
        let error = instance_types(r#"{"InstanceTypes": [{}]}"#).expect_err("no name");
        assert_eq!(error.to_string(), "InstanceTypes[0].InstanceType: is missing");
        assert!(instance_types("{").is_err());
        assert!(offerings(r#"{"InstanceTypeOfferings": [{"InstanceType": "a"}]}"#).is_err());
    }
}
