//! The labels that an instance type gives its nodes (`spec` aws-capacity 3).

use spokeshave_model::{
    AmiFamily, Operator, Requirement, Requirements,
    ec2_node_class::CapacityReservationStatus,
    labels::{self as keys},
};
use spokeshave_ports::ec2::{InstanceTypeInfo, PlacementGroup};

use crate::{builtin, offerings::ClassZone};

/// Lower case, spaces turned into `-`, as label values taken from EC2 are written.
fn kebab(text: &str) -> String {
    text.to_lowercase().replace(' ', "-")
}

/// Category, and generation, of a type name: groups 1 and 3 of `(^[a-z]+)(\-[0-9]+tb)?([0-9]+).*\.`.
pub fn category_and_generation(name: &str) -> Option<(&str, &str)> {
    let letters = name.bytes().take_while(u8::is_ascii_lowercase).count();
    let (category, rest) = name.split_at_checked(letters)?;
    if category.is_empty() {
        return None;
    }
    let size_of_memory = |rest: &str| {
        let rest = rest.strip_prefix('-')?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        rest.get(digits..)?.strip_prefix("tb").map(str::len)
    };
    let rest = match size_of_memory(rest) {
        Some(left) => rest.get(rest.len() - left..)?,
        None => rest,
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (generation, rest) = rest.split_at_checked(digits)?;
    (!generation.is_empty() && rest.contains('.')).then_some((category, generation))
}

/// Family and size: the parts around the only dot.
pub fn family_and_size(name: &str) -> Option<(&str, &str)> {
    let (family, size) = name.split_once('.')?;
    (!size.contains('.')).then_some((family, size))
}

/// `kubernetes.io/arch`: the first architecture that maps, else the printed list, which matches nothing.
pub fn architecture(info: &InstanceTypeInfo) -> String {
    let known = |it: &String| match it.as_str() {
        "x86_64" => Some("amd64"),
        "arm64" => Some("arm64"),
        _ => None,
    };
    match info.architectures.iter().find_map(known) {
        Some(arch) => arch.to_owned(),
        None => format!("[{}]", info.architectures.join(" ")),
    }
}

/// Everything the labels of a type depend on besides the type.
pub(crate) struct Surroundings<'a> {
    pub region: &'a str,
    pub family: AmiFamily,
    /// Zones where the type is sold and the class has a subnet.
    pub zones: &'a [&'a ClassZone],
    /// The class's reservations for this type.
    pub reservations: &'a [&'a CapacityReservationStatus],
    pub placement_group: Option<&'a PlacementGroup>,
}

/// Every label of the type as requirements; `DoesNotExist` where it has none of those that may be absent.
pub(crate) fn requirements(info: &InstanceTypeInfo, around: &Surroundings<'_>) -> Requirements {
    let mut set = Requirements::new();
    let mut any_of = |key: &str, values: Vec<String>| {
        set.replace(Requirement::new(key, Operator::In, values));
    };
    let one = |value: &str| vec![value.to_owned()];
    let flag = |on: bool| one(if on { "true" } else { "false" });
    let maybe = |value: Option<String>| value.into_iter().collect::<Vec<_>>();
    let reservations = around.reservations;

    let arch = architecture(info);
    let windows = around.family.is_windows();
    any_of(
        keys::OS,
        match (windows, arch.as_str()) {
            (false, _) => one("linux"),
            (true, "amd64") => one("windows"),
            (true, _) => Vec::new(),
        },
    );
    any_of(keys::ARCH, vec![arch]);
    any_of(keys::WINDOWS_BUILD, maybe(around.family.windows_build().map(str::to_owned)));
    any_of(keys::INSTANCE_TYPE, one(&info.name));
    any_of(keys::REGION, one(around.region));
    any_of(keys::ZONE, around.zones.iter().map(|it| it.name.clone()).collect());
    let ids: Vec<String> =
        around.zones.iter().filter(|it| !it.id.is_empty()).map(|it| it.id.clone()).collect();
    if !ids.is_empty() {
        any_of(keys::ZONE_ID, ids);
    }
    let mut capacity_types: Vec<String> = info
        .usage_classes
        .iter()
        .filter(|it| matches!(it.as_str(), "on-demand" | "spot"))
        .cloned()
        .collect();
    if !reservations.is_empty() {
        capacity_types.push("reserved".to_owned());
    }
    any_of(keys::CAPACITY_TYPE, capacity_types);

    any_of(keys::INSTANCE_CPU, one(&info.vcpus.to_string()));
    any_of(keys::INSTANCE_MEMORY, one(&info.memory_mib.to_string()));
    let has_processor = !info.architectures.is_empty()
        || !info.cpu_manufacturer.is_empty()
        || info.clock_ghz.is_some();
    any_of(
        keys::INSTANCE_CPU_MANUFACTURER,
        maybe(has_processor.then(|| kebab(&info.cpu_manufacturer))),
    );
    // `round` takes halves away from zero.
    let mhz = (info.clock_ghz.unwrap_or(0.0) * 1000.0).round() as i64;
    any_of(
        keys::INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
        maybe(has_processor.then(|| mhz.to_string())),
    );
    let ebs =
        (info.ebs.optimized_support == "default").then_some(info.ebs.max_bandwidth_mbps).flatten();
    any_of(keys::INSTANCE_EBS_BANDWIDTH, maybe(ebs.map(|it| it.to_string())));
    let bandwidth = builtin::limits(&info.name).bandwidth_mbps;
    any_of(keys::INSTANCE_NETWORK_BANDWIDTH, maybe(bandwidth.map(|it| it.to_string())));

    let (category, generation) = category_and_generation(&info.name).unzip();
    any_of(keys::INSTANCE_CATEGORY, maybe(category.map(str::to_owned)));
    any_of(keys::INSTANCE_GENERATION, maybe(generation.map(str::to_owned)));
    let (family, size) = family_and_size(&info.name).unzip();
    any_of(keys::INSTANCE_FAMILY, maybe(family.map(str::to_owned)));
    any_of(keys::INSTANCE_SIZE, maybe(size.map(str::to_owned)));
    let before_dot = info.name.split('.').next().unwrap_or_default();
    any_of(keys::INSTANCE_CAPABILITY_FLEX, flag(before_dot.contains("-flex")));

    let nvme = info.instance_storage.as_ref().filter(|it| it.nvme);
    any_of(keys::INSTANCE_LOCAL_NVME, maybe(nvme.map(|it| it.total_gb.to_string())));
    let gpu = match &info.gpus[..] {
        [only] => Some(only),
        _ => None,
    };
    any_of(keys::INSTANCE_GPU_NAME, maybe(gpu.map(|it| kebab(&it.name))));
    any_of(keys::INSTANCE_GPU_MANUFACTURER, maybe(gpu.map(|it| kebab(&it.manufacturer))));
    any_of(keys::INSTANCE_GPU_COUNT, maybe(gpu.map(|it| it.count.to_string())));
    any_of(keys::INSTANCE_GPU_MEMORY, maybe(gpu.map(|it| it.memory_mib.to_string())));
    let accelerator = match (&info.neuron[..], &info.accelerators[..]) {
        ([only], _) => Some((kebab(&only.name), "aws".to_owned(), only.count)),
        ([], [only]) => Some((kebab(&only.name), kebab(&only.manufacturer), only.count)),
        _ => None,
    };
    let (name, maker, count) = match accelerator {
        Some((name, maker, count)) => (Some(name), Some(maker), Some(count.to_string())),
        None => (None, None, None),
    };
    any_of(keys::INSTANCE_ACCELERATOR_NAME, maybe(name));
    any_of(keys::INSTANCE_ACCELERATOR_MANUFACTURER, maybe(maker));
    any_of(keys::INSTANCE_ACCELERATOR_COUNT, maybe(count));

    // Bare metal has the value "": `NotIn [nitro]` must match it.
    any_of(keys::INSTANCE_HYPERVISOR, one(&info.hypervisor));
    any_of(keys::INSTANCE_ENCRYPTION_IN_TRANSIT, flag(info.network.encryption_in_transit));
    any_of(keys::NITRO_SANDBOX, flag(info.nitro_enclaves == "supported"));
    any_of(keys::INSTANCE_TENANCY, vec!["default".to_owned(), "dedicated".to_owned()]);

    any_of(keys::CAPACITY_RESERVATION_ID, reservations.iter().map(|it| it.id.clone()).collect());
    any_of(
        keys::CAPACITY_RESERVATION_TYPE,
        reservations.iter().map(|it| reservation_type(it).to_owned()).collect(),
    );
    any_of(
        keys::CAPACITY_RESERVATION_INTERRUPTIBLE,
        reservations.iter().map(|it| it.interruptible.to_string()).collect(),
    );
    if let Some(group) = around.placement_group {
        any_of(keys::PLACEMENT_GROUP_ID, one(&group.id));
        if group.strategy == "partition" && group.partition_count > 0 {
            any_of(
                keys::PLACEMENT_GROUP_PARTITION,
                (1..=group.partition_count).map(|it| it.to_string()).collect(),
            );
        }
    }
    set
}

/// `default` or `capacity-block`; absent counts as `default`.
pub(crate) fn reservation_type(reservation: &CapacityReservationStatus) -> &str {
    if reservation.reservation_type.is_empty() { "default" } else { &reservation.reservation_type }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // aws-capacity 3, cases 2-4
    fn names_are_taken_apart() {
        for (name, expected) in [
            ("m7i-flex.large", Some(("m", "7"))),
            ("u7i-12tb.224xlarge", Some(("u", "7"))),
            ("u-12tb1.112xlarge", Some(("u", "1"))),
            ("c7gn.medium", Some(("c", "7"))),
            ("hpc6a.48xlarge", Some(("hpc", "6"))),
            ("mac-m4.metal", None),
            ("u-tb1.metal", None),
            ("u-12tb.metal", None),
            ("m5", None),
            ("5.large", None),
            ("", None),
            ("é5.large", None),
        ] {
            assert_eq!(category_and_generation(name), expected, "{name}");
        }
        assert_eq!(family_and_size("u7i-12tb.224xlarge"), Some(("u7i-12tb", "224xlarge")));
        assert_eq!(family_and_size("a.b.c"), None);
        assert_eq!(family_and_size("ab"), None);
    }

    #[test]
    fn architectures() {
        let arch = |list: &[&str]| {
            architecture(&InstanceTypeInfo {
                architectures: list.iter().map(|&it| it.to_owned()).collect(),
                ..InstanceTypeInfo::default()
            })
        };
        assert_eq!(arch(&["i386", "x86_64"]), "amd64");
        assert_eq!(arch(&["arm64"]), "arm64");
        assert_eq!(arch(&["i386", "x86_64_mac"]), "[i386 x86_64_mac]");
    }
}
