//! Capacity and overhead of an instance type under one EC2NodeClass (`spec` aws-capacity 4, 5).

use std::collections::BTreeMap;

use spokeshave_model::{
    AmiFamily, EC2NodeClass, Quantity, Resources,
    instance_type::Overhead,
    quantity::Format,
    resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS},
};
use spokeshave_ports::ec2::InstanceTypeInfo;

use crate::{
    builtin, description,
    expressions::Variables,
    kubelet::{KubeletError, KubeletSettings, MaxPods, Reserved, Threshold},
};

pub const POD_ENI: &str = "vpc.amazonaws.com/pod-eni";
pub const PRIVATE_IPV4: &str = "vpc.amazonaws.com/PrivateIPv4Address";
pub const EFA: &str = "vpc.amazonaws.com/efa";
pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
pub const AMD_GPU: &str = "amd.com/gpu";
pub const HABANA_GAUDI: &str = "habana.ai/gaudi";
pub const NEURON: &str = "aws.amazon.com/neuron";
pub const NEURON_CORE: &str = "aws.amazon.com/neuroncore";

/// Pods of a family that does not count addresses (Windows). Kubernetes' own default.
const DEFAULT_PODS: i64 = 110;
/// MiB that a Graviton machine's boot takes from what EC2 reports.
const GRAVITON_BOOT_MIB: i64 = 64;

/// What the image family does with pod counts and kubelet settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyTraits {
    /// Pods by network interfaces, else 110.
    pub eni_density: bool,
    pub pods_per_core: bool,
    /// Reserved memory follows the interfaces' pods whatever `maxPods` says; else the real pod count.
    pub reserves_by_eni: bool,
    /// The device that holds pods' ephemeral storage; `None` (Custom): the last mapping.
    pub ephemeral_device: Option<&'static str>,
}

/// The traits of a class's family. An unknown family behaves as AL2.
pub fn family_traits(class: &EC2NodeClass) -> FamilyTraits {
    let unknown = class.spec.ami_family.as_deref().is_some_and(|it| AmiFamily::parse(it).is_none());
    let family = if unknown { AmiFamily::Al2 } else { class.ami_family() };
    let linux = |device| FamilyTraits {
        eni_density: true,
        pods_per_core: true,
        reserves_by_eni: true,
        ephemeral_device: device,
    };
    match family {
        AmiFamily::Al2 | AmiFamily::Al2023 => linux(Some("/dev/xvda")),
        AmiFamily::Custom => linux(None),
        AmiFamily::Bottlerocket => FamilyTraits {
            pods_per_core: false,
            reserves_by_eni: false,
            ..linux(Some("/dev/xvdb"))
        },
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => FamilyTraits {
            eni_density: false,
            pods_per_core: true,
            reserves_by_eni: false,
            ephemeral_device: Some("/dev/sda1"),
        },
    }
}

/// What an instance type is worth to one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizing {
    pub capacity: Resources,
    pub overhead: Overhead,
    /// Entries of the reserved maps that were left out because their expression failed: field and why.
    pub dropped: Vec<KubeletError>,
}

/// Settings that capacity depends on, besides the class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizingSettings {
    /// A fraction of memory, at least 0.
    pub vm_memory_overhead: f64,
    pub reserved_enis: i64,
    /// Gate `NodeClassCEL`.
    pub expressions: bool,
}

/// Interfaces of the default network card.
pub(crate) fn default_card_interfaces(info: &InstanceTypeInfo) -> i64 {
    let network = &info.network;
    usize::try_from(network.default_card)
        .ok()
        .and_then(|at| network.cards.get(at))
        .map_or(network.max_interfaces, |card| card.1)
}

/// Pods that the interfaces of the default card have addresses for; two of them use the host network.
pub fn eni_pods(info: &InstanceTypeInfo, class: &EC2NodeClass, reserved: i64) -> i64 {
    let efa_only = class
        .spec
        .network_interfaces
        .iter()
        .filter(|it| it.network_card_index == 0 && it.interface_type == "efa-only")
        .count() as i64;
    let usable = default_card_interfaces(info).saturating_sub(reserved).saturating_sub(efa_only);
    if usable <= 0 {
        return 0;
    }
    // A type that EC2 tells no addresses of has room for the pods of the host network at most.
    let per_interface = info.network.ipv4_per_interface.saturating_sub(1).max(0);
    usable.saturating_mul(per_interface).saturating_add(2)
}

fn total(counts: impl Iterator<Item = i64>) -> i64 {
    counts.fold(0, i64::saturating_add)
}

/// Memory in MiB as the guest is expected to see it.
fn memory_mib(info: &InstanceTypeInfo, overhead: f64) -> i64 {
    let graviton = info.architectures.first().is_some_and(|it| it == "arm64");
    let size = info.memory_mib.saturating_sub(if graviton { GRAVITON_BOOT_MIB } else { 0 });
    // In this order and in floating point: the published figures come from it.
    let lost = ((size as f64 * 1_048_576.0) * overhead / 1024.0 / 1024.0).ceil() as i64;
    size.saturating_sub(lost)
}

fn ephemeral_storage(
    info: &InstanceTypeInfo,
    class: &EC2NodeClass,
    traits: FamilyTraits,
) -> Quantity {
    if class.spec.instance_store_policy.as_deref() == Some("RAID0")
        && let Some(storage) = &info.instance_storage
    {
        return Quantity::units(storage.total_gb.saturating_mul(1_000_000_000));
    }
    let mappings = &class.spec.block_device_mappings;
    let size = |mapping: &spokeshave_model::ec2_node_class::BlockDeviceMapping| {
        mapping.ebs.as_ref()?.volume_size.as_deref()?.parse::<Quantity>().ok()
    };
    let default = || Quantity::gibibytes(20);
    if !mappings.is_empty() {
        if let Some(root) = mappings.iter().find(|it| it.root_volume).and_then(size) {
            return root;
        }
        match traits.ephemeral_device {
            None => return mappings.last().and_then(size).unwrap_or_else(default),
            Some(device) => {
                let device = mappings.iter().find(|it| it.device_name.as_deref() == Some(device));
                if let Some(size) = device.and_then(size) {
                    return size;
                }
            }
        }
    }
    match traits.ephemeral_device {
        Some("/dev/sda1") => Quantity::gibibytes(50),
        _ => default(),
    }
}

/// Millicores that kubelet keeps: 6 % of the first core, 1 % of the second, half of that for two more, then a quarter.
fn reserved_millicores(vcpus: i64) -> i64 {
    let mut rest = vcpus.max(0);
    let mut total = 0;
    // Cores of this step, and tenths of millicores per core.
    for (cores, rate) in [(1, 600), (1, 100), (2, 50), (i64::MAX, 25)] {
        let here = rest.min(cores);
        total += here.saturating_mul(rate) / 10;
        rest -= here;
    }
    total
}

/// A share of an amount, rounded up to a byte, printed in binary form where it is whole MiB.
fn percentage(of: Quantity, percent: f64) -> Quantity {
    let bytes = (of.value() as f64 / 100.0 * percent).ceil() as i64;
    if of.format() == Format::BinarySi && bytes % 1_048_576 == 0 {
        Quantity::bytes(bytes)
    } else {
        Quantity::units(bytes)
    }
}

fn threshold(of: Quantity, set: Option<Threshold>, default: impl FnOnce() -> Quantity) -> Quantity {
    match set {
        None => default(),
        Some(Threshold::Amount(amount)) => amount,
        // 100 % switches the signal off.
        Some(Threshold::Percent(100.0)) => Quantity::ZERO,
        Some(Threshold::Percent(percent)) => percentage(of, percent),
    }
}

/// Capacity and overhead of `info` for `class`. `observed` is what a node of this type and image reported as memory.
///
/// # Errors
/// A `maxPods` expression that fails or leaves 0 to 2147483647.
pub fn sizing(
    info: &InstanceTypeInfo,
    class: &EC2NodeClass,
    kubelet: &KubeletSettings,
    settings: SizingSettings,
    observed: Option<Quantity>,
) -> Result<Sizing, KubeletError> {
    let traits = family_traits(class);
    let limits = builtin::limits(&info.name);
    let mut variables = Variables {
        vcpus: info.vcpus,
        memory_mib: info.memory_mib,
        default_enis: default_card_interfaces(info),
        ips_per_eni: info.network.ipv4_per_interface,
        max_pods: 0,
        instance_type: &info.name,
    };
    let per_core = |count: i64| {
        if kubelet.pods_per_core > 0 && traits.pods_per_core {
            count.min(kubelet.pods_per_core.saturating_mul(info.vcpus))
        } else {
            count
        }
    };
    let family_default = per_core(if traits.eni_density {
        eni_pods(info, class, settings.reserved_enis)
    } else {
        DEFAULT_PODS
    });
    let pods = match &kubelet.max_pods {
        Some(MaxPods::Number(number)) => per_core(*number),
        Some(MaxPods::Expression(text)) if settings.expressions => {
            variables.max_pods = family_default;
            let number = text
                .evaluate(&variables)
                .map_err(|error| KubeletError::new("maxPods", error.to_string()))?;
            if !(0..=i64::from(i32::MAX)).contains(&number) {
                return Err(KubeletError::new(
                    "maxPods",
                    format!("{:?} gives {number}, which is outside 0 to 2147483647", text.text()),
                ));
            }
            per_core(number)
        }
        Some(MaxPods::Expression(_)) | None => family_default,
    };
    variables.max_pods = pods;

    let guessed = Quantity::mebibytes(memory_mib(info, settings.vm_memory_overhead));
    let storage = ephemeral_storage(info, class, traits);
    let mut capacity = Resources::new()
        .with(CPU, Quantity::units(info.vcpus))
        .with(MEMORY, observed.unwrap_or(guessed))
        .with(EPHEMERAL_STORAGE, storage)
        .with(PODS, Quantity::units(pods));
    let mut count = |name: &str, n: i64| capacity.set(name, Quantity::units(n));
    count(POD_ENI, limits.branch_interfaces);
    for (name, maker) in [(NVIDIA_GPU, "NVIDIA"), (AMD_GPU, "AMD"), (HABANA_GAUDI, "Habana")] {
        count(
            name,
            total(info.gpus.iter().filter(|it| it.manufacturer == maker).map(|it| it.count)),
        );
    }
    count(NEURON, total(info.neuron.iter().map(|it| it.count)));
    let cores = info.neuron.first().map_or(0, |it| it.count.saturating_mul(it.cores_per_device));
    count(NEURON_CORE, cores);
    let interfaces = &class.spec.network_interfaces;
    count(
        EFA,
        if interfaces.is_empty() {
            info.network.max_efa.unwrap_or(0)
        } else {
            interfaces.iter().filter(|it| it.interface_type == "efa-only").count() as i64
        },
    );
    if class.ami_family().is_windows() && description::architecture(info) == "amd64" {
        count(PRIVATE_IPV4, limits.ipv4_per_interface.map_or(0, |it| it - 1));
    }

    let reserve_pods = if traits.reserves_by_eni { eni_pods(info, class, 0) } else { pods };
    let mut kube_reserved = Resources::new()
        .with(CPU, Quantity::millis(reserved_millicores(info.vcpus)))
        .with(MEMORY, Quantity::mebibytes(reserve_pods.saturating_mul(11).saturating_add(255)))
        .with(EPHEMERAL_STORAGE, Quantity::gibibytes(1));
    let mut system_reserved = Resources::new();
    let mut dropped = Vec::new();
    for (field, set, into) in [
        ("kubeReserved", &kubelet.kube_reserved, &mut kube_reserved),
        ("systemReserved", &kubelet.system_reserved, &mut system_reserved),
    ] {
        let (amounts, failed) = reserved(field, set, &variables, settings.expressions);
        into.0.extend(amounts);
        dropped.extend(failed);
    }
    let eviction_threshold = Resources::new()
        .with(MEMORY, threshold(guessed, kubelet.memory_threshold, || Quantity::mebibytes(100)))
        .with(
            EPHEMERAL_STORAGE,
            threshold(storage, kubelet.storage_threshold, || percentage(storage, 10.0)),
        );
    Ok(Sizing {
        capacity,
        overhead: Overhead { kube_reserved, system_reserved, eviction_threshold },
        dropped,
    })
}

/// The amounts of a reserved map, and the entries whose expression failed.
fn reserved(
    field: &str,
    set: &BTreeMap<String, Reserved>,
    variables: &Variables<'_>,
    expressions_on: bool,
) -> (Vec<(String, Quantity)>, Vec<KubeletError>) {
    let (mut amounts, mut dropped) = (Vec::new(), Vec::new());
    for (key, entry) in set {
        match entry {
            Reserved::Amount(amount) => amounts.push((key.clone(), *amount)),
            Reserved::Expression(_) if !expressions_on => {}
            Reserved::Expression(text) => match text.evaluate(variables) {
                Ok(number) if number >= 0 => amounts.push((key.clone(), scaled(key, number))),
                Ok(number) => dropped.push(KubeletError::new(
                    format!("{field}.{key}"),
                    format!("{:?} gives {number}, which is below 0", text.text()),
                )),
                Err(error) => {
                    dropped.push(KubeletError::new(format!("{field}.{key}"), error.to_string()));
                }
            },
        }
    }
    (amounts, dropped)
}

/// An expression's result as an amount: millicores by 10, MiB by 16, GiB, or the bare number.
fn scaled(key: &str, number: i64) -> Quantity {
    let up = |to: i64| number.checked_add(to - 1).map_or(number, |it| it / to * to);
    match key {
        CPU => Quantity::millis(up(10)),
        // Beyond this the product does not fit 64 bits; no machine has a millionth of it.
        MEMORY => Quantity::mebibytes(up(16).min(i64::MAX >> 21)),
        EPHEMERAL_STORAGE => Quantity::gibibytes(number.min(i64::MAX >> 31)),
        _ => Quantity::units(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // aws-capacity 5, case 3
    fn millicores_by_cores() {
        for (vcpus, millicores) in [
            (0, 0),
            (1, 60),
            (2, 70),
            (3, 75),
            (4, 80),
            (5, 82),
            (6, 85),
            (8, 90),
            (16, 110),
            (32, 150),
            (96, 310),
            (192, 550),
        ] {
            assert_eq!(reserved_millicores(vcpus), millicores, "{vcpus}");
        }
    }
}
