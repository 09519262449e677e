//! Instance types as lines of a table: tab between columns, as `data/types.tsv` and the state table hold them.
//!
//! Compact, and quick to read: a whole region is parsed in a few milliseconds.

use std::fmt::{self, Write as _};

use spokeshave_ports::ec2::{
    AcceleratorInfo, EbsInfo, GpuInfo, InstanceStorageInfo, InstanceTypeInfo, NetworkInfo,
    NeuronInfo,
};

/// A line of a table cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {column} is not readable")]
pub struct TableError {
    /// 1-based.
    pub line: usize,
    pub column: &'static str,
}

/// Reads a table of instance types; lines that begin with `#` and empty ones are passed over.
///
/// # Errors
/// The first line that is not a row of this table.
pub fn read_types(text: &str) -> Result<Vec<InstanceTypeInfo>, TableError> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(at, line)| read_type(line).map_err(|column| TableError { line: at + 1, column }))
        .collect()
}

/// Writes what [`read_types`] reads, one line per type.
pub fn write_types(types: &[InstanceTypeInfo]) -> String {
    let mut text = String::with_capacity(types.len() * 160);
    for it in types {
        write_type(&mut text, it);
        text.push('\n');
    }
    text
}

/// Characters that separate columns, lists and parts.
const SEPARATORS: &[char] = &['\t', '\n', '\r', ':', ';', ',', '%', '#'];

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if SEPARATORS.contains(&c) {
                write!(f, "%{:02x}", u32::from(c))?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

fn unescape(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let mut parts = text.split('%');
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (code, part.get(2..)) {
            (Some(code), Some(rest)) => {
                result.push(char::from(code));
                result.push_str(rest);
            }
            _ => {
                result.push('%');
                result.push_str(part);
            }
        }
    }
    result
}

fn list(text: &str) -> Vec<String> {
    if text.is_empty() { Vec::new() } else { text.split(',').map(unescape).collect() }
}

fn optional<T: std::str::FromStr>(text: &str) -> Result<Option<T>, ()> {
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| ()) }
}

fn integer(text: &str) -> Result<i64, ()> {
    if text.is_empty() { Ok(0) } else { text.parse().map_err(|_| ()) }
}

/// `3x2,2` is 3, 3, 2: the interfaces of each card, by card index.
fn cards(text: &str) -> Result<Vec<(i64, i64)>, ()> {
    let mut cards = Vec::new();
    for run in text.split(',').filter(|it| !it.is_empty()) {
        let (interfaces, times) = run.split_once('x').unwrap_or((run, "1"));
        let (interfaces, times) = (integer(interfaces)?, integer(times)?);
        if times > 256 {
            return Err(());
        }
        for _ in 0..times {
            cards.push((cards.len() as i64, interfaces));
        }
    }
    Ok(cards)
}

/// Several entries of `parts` parts each; `None` for an entry with another number of parts.
fn entries(text: &str, parts: usize) -> impl Iterator<Item = Option<Vec<&str>>> {
    text.split(';').filter(|it| !it.is_empty()).map(move |entry| {
        let found: Vec<&str> = entry.split(':').collect();
        (found.len() == parts).then_some(found)
    })
}

fn read_type(line: &str) -> Result<InstanceTypeInfo, &'static str> {
    let mut columns = line.split('\t');
    let mut next = |name: &'static str| columns.next().ok_or(name);
    let name = next("name")?;
    let flags = next("flags")?;
    let usage_classes = list(next("usage")?);
    let virtualization = list(next("virtualization")?);
    let hypervisor = unescape(next("hypervisor")?);
    let architectures = list(next("architectures")?);
    let cpu_manufacturer = unescape(next("manufacturer")?);
    let clock_ghz = optional(next("GHz")?).map_err(|()| "GHz")?;
    let processor_features = list(next("features")?);
    let cores = integer(next("cores")?).map_err(|()| "cores")?;
    let vcpus = integer(next("vcpus")?).map_err(|()| "vcpus")?;
    let memory_mib = integer(next("MiB")?).map_err(|()| "MiB")?;
    let ebs = next("ebs")?.split(':').collect::<Vec<_>>();
    let [support, max, base] = ebs[..] else { return Err("ebs") };
    let ebs = EbsInfo {
        optimized_support: unescape(support),
        max_bandwidth_mbps: optional(max).map_err(|()| "ebs")?,
        baseline_bandwidth_mbps: optional(base).map_err(|()| "ebs")?,
    };
    let network = next("network")?.split(':').collect::<Vec<_>>();
    let [interfaces, ipv4, default_card, per_card, efa, ena] = network[..] else {
        return Err("network");
    };
    let network = (|| {
        Ok::<_, ()>(NetworkInfo {
            max_interfaces: integer(interfaces)?,
            ipv4_per_interface: integer(ipv4)?,
            encryption_in_transit: flags.contains('e'),
            default_card: integer(default_card)?,
            cards: cards(per_card)?,
            max_efa: optional(efa)?,
            ena_support: unescape(ena),
        })
    })()
    .map_err(|()| "network")?;
    let placement_strategies = list(next("placement")?);
    let gpus = entries(next("gpus")?, 4)
        .map(|entry| {
            let entry = entry?;
            Some(GpuInfo {
                name: unescape(entry[0]),
                manufacturer: unescape(entry[1]),
                count: integer(entry[2]).ok()?,
                memory_mib: integer(entry[3]).ok()?,
            })
        })
        .collect::<Option<_>>()
        .ok_or("gpus")?;
    let neuron = entries(next("neuron")?, 3)
        .map(|entry| {
            let entry = entry?;
            Some(NeuronInfo {
                name: unescape(entry[0]),
                count: integer(entry[1]).ok()?,
                cores_per_device: integer(entry[2]).ok()?,
            })
        })
        .collect::<Option<_>>()
        .ok_or("neuron")?;
    let accelerators = entries(next("accelerators")?, 3)
        .map(|entry| {
            let entry = entry?;
            Some(AcceleratorInfo {
                name: unescape(entry[0]),
                manufacturer: unescape(entry[1]),
                count: integer(entry[2]).ok()?,
            })
        })
        .collect::<Option<_>>()
        .ok_or("accelerators")?;
    let storage = next("storage")?;
    let instance_storage = match storage.split_once(':') {
        None => None,
        Some((total, nvme)) => Some(InstanceStorageInfo {
            total_gb: integer(total).map_err(|()| "storage")?,
            nvme: nvme != "unsupported",
        }),
    };
    Ok(InstanceTypeInfo {
        name: unescape(name),
        usage_classes,
        virtualization,
        burstable: flags.contains('b'),
        bare_metal: flags.contains('m'),
        hypervisor,
        architectures,
        cpu_manufacturer,
        clock_ghz,
        cores,
        vcpus,
        memory_mib,
        ebs,
        network,
        placement_strategies,
        gpus,
        neuron,
        accelerators,
        instance_storage,
        nitro_enclaves: if flags.contains('n') { "supported" } else { "unsupported" }.to_owned(),
        processor_features,
        current_generation: flags.contains('c'),
        dedicated_hosts: flags.contains('h'),
    })
}

fn write_list(text: &mut String, items: &[String]) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        let _ = write!(text, "{}", Escaped(item));
    }
    text.push('\t');
}

fn shown<T: fmt::Display>(value: Option<T>) -> String {
    value.map(|it| it.to_string()).unwrap_or_default()
}

/// Writing into a `String` cannot fail, so the results of `write!` are dropped.
fn write_type(text: &mut String, it: &InstanceTypeInfo) {
    let _ = write!(text, "{}\t", Escaped(&it.name));
    for (letter, on) in [
        ('b', it.burstable),
        ('m', it.bare_metal),
        ('c', it.current_generation),
        ('h', it.dedicated_hosts),
        ('e', it.network.encryption_in_transit),
        ('n', it.nitro_enclaves == "supported"),
    ] {
        if on {
            text.push(letter);
        }
    }
    text.push('\t');
    write_list(text, &it.usage_classes);
    write_list(text, &it.virtualization);
    let _ = write!(text, "{}\t", Escaped(&it.hypervisor));
    write_list(text, &it.architectures);
    let _ = write!(text, "{}\t{}\t", Escaped(&it.cpu_manufacturer), shown(it.clock_ghz));
    write_list(text, &it.processor_features);
    let _ = write!(text, "{}\t{}\t{}\t", it.cores, it.vcpus, it.memory_mib);
    let _ = write!(
        text,
        "{}:{}:{}\t",
        Escaped(&it.ebs.optimized_support),
        shown(it.ebs.max_bandwidth_mbps),
        shown(it.ebs.baseline_bandwidth_mbps)
    );
    let network = &it.network;
    let _ = write!(
        text,
        "{}:{}:{}:",
        network.max_interfaces, network.ipv4_per_interface, network.default_card
    );
    for (at, run) in network.cards.chunk_by(|a, b| a.1 == b.1).enumerate() {
        if at > 0 {
            text.push(',');
        }
        let _ = write!(text, "{}x{}", run.first().map_or(0, |it| it.1), run.len());
    }
    let _ = write!(text, ":{}:{}\t", shown(network.max_efa), Escaped(&network.ena_support));
    write_list(text, &it.placement_strategies);
    let gpus = it.gpus.iter().map(|gpu| {
        format!(
            "{}:{}:{}:{}",
            Escaped(&gpu.name),
            Escaped(&gpu.manufacturer),
            gpu.count,
            gpu.memory_mib
        )
    });
    let _ = write!(text, "{}\t", gpus.collect::<Vec<_>>().join(";"));
    let neuron = it.neuron.iter().map(|device| {
        format!("{}:{}:{}", Escaped(&device.name), device.count, device.cores_per_device)
    });
    let _ = write!(text, "{}\t", neuron.collect::<Vec<_>>().join(";"));
    let accelerators = it.accelerators.iter().map(|device| {
        format!("{}:{}:{}", Escaped(&device.name), Escaped(&device.manufacturer), device.count)
    });
    let _ = write!(text, "{}\t", accelerators.collect::<Vec<_>>().join(";"));
    if let Some(storage) = &it.instance_storage {
        let _ = write!(
            text,
            "{}:{}",
            storage.total_gb,
            if storage.nvme { "supported" } else { "unsupported" }
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let types = read_types(include_str!("../data/types.tsv")).expect("the table is readable");
        assert_eq!(types.len(), 1391);
        assert_eq!(read_types(&write_types(&types)).expect("readable"), types);
    }

    #[test]
    fn separators_in_names_survive() {
        let types = [InstanceTypeInfo {
            name: "a:b,c;d%e\tf#".into(),
            gpus: vec![GpuInfo { name: "x:y;z".into(), ..GpuInfo::default() }],
            nitro_enclaves: "unsupported".into(),
            ..InstanceTypeInfo::default()
        }];
        assert_eq!(read_types(&write_types(&types)).expect("readable"), types);
    }

    #[test]
    fn a_broken_line_is_named() {
        let error = read_types("# head\nm5.large\tb\n").expect_err("too short");
        assert_eq!(error.to_string(), "line 2: usage is not readable");
    }
}
