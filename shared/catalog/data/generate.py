#!/usr/bin/env python3
"""Writes the tables beside this script from published facts. Run by hand when newer facts are at hand:

    generate.py --types instance_types.json[.gz] --offerings DIR --zones zones.tsv
                --limits eni-limits.json --bandwidth network-bandwidth.json --prices on-demand-prices.json
                [--reference reference-instance-types.json]

--types      DescribeInstanceTypes answers: an object by type name, or a list.
--offerings  one DescribeInstanceTypeOfferings answer (availability-zone) per region, <region>.json[.gz].
--zones      zone names and ids, one pair per line.
--reference  published labels: fills in types that --types lacks (what it cannot know is in FILLED below), and wins over
             --types for the clock and, with --limits, for the interfaces of each card, so that labels and pod counts are
             those that users have seen published. The first DescribeInstanceTypes answer replaces all of it.
"""
import argparse, gzip, json, os, re
from collections import defaultdict

HERE = os.path.dirname(os.path.abspath(__file__))

# Types that DescribeInstanceTypes of one account did not list though others buy them: facts that their labels
# and network limits do not give. (cores, clock GHz, baseline EBS Mbps, NVMe GB, GPU entry)
FILLED = {
    "g4ad.xlarge": (2, 3.0, 400, 150, 1), "g4ad.2xlarge": (4, 3.0, 800, 300, 1),
    "g4ad.4xlarge": (8, 3.0, 1580, 600, 1), "g4ad.8xlarge": (16, 3.0, 3150, 1200, 2),
    "g4ad.16xlarge": (32, 3.0, 6300, 2400, 4),
}

UNPUBLISHED = ["cn-north-1", "cn-northwest-1", "us-gov-east-1", "us-gov-west-1"]


def read(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as f:
        return json.load(f)


def text(value):
    return "" if value is None else str(value)


def number(value):
    return "" if value is None else repr(value).removesuffix(".0")


def runs(items):
    """[3, 3, 2] -> 3x2,2"""
    out = []
    for item in items:
        if out and out[-1][0] == item:
            out[-1][1] += 1
        else:
            out.append([item, 1])
    return ",".join(f"{i}x{n}" if n > 1 else str(i) for i, n in out)


def row(it):
    cpu, net, ebs = it.get("ProcessorInfo", {}), it.get("NetworkInfo", {}), it.get("EbsInfo", {})
    cards = net.get("NetworkCards", [])
    assert [c["NetworkCardIndex"] for c in cards] == list(range(len(cards))), it["InstanceType"]
    optimized = ebs.get("EbsOptimizedInfo", {})
    storage = it.get("InstanceStorageInfo")
    flags = "".join(letter for letter, on in [
        ("b", it.get("BurstablePerformanceSupported")), ("m", it.get("BareMetal")),
        ("c", it.get("CurrentGeneration")), ("h", it.get("DedicatedHostsSupported")),
        ("e", net.get("EncryptionInTransitSupported")), ("n", it.get("NitroEnclavesSupport") == "supported")] if on)
    return [
        it["InstanceType"], flags,
        ",".join(it.get("SupportedUsageClasses", [])), ",".join(it.get("SupportedVirtualizationTypes", [])),
        text(it.get("Hypervisor")), ",".join(cpu.get("SupportedArchitectures", [])),
        text(cpu.get("Manufacturer")), number(cpu.get("SustainedClockSpeedInGhz")),
        ",".join(cpu.get("SupportedFeatures", [])),
        text(it["VCpuInfo"]["DefaultCores"]), text(it["VCpuInfo"]["DefaultVCpus"]), text(it["MemoryInfo"]["SizeInMiB"]),
        ":".join([ebs.get("EbsOptimizedSupport", ""), text(optimized.get("MaximumBandwidthInMbps")),
                  text(optimized.get("BaselineBandwidthInMbps"))]),
        ":".join([text(net.get("MaximumNetworkInterfaces")), text(net.get("Ipv4AddressesPerInterface")),
                  text(net.get("DefaultNetworkCardIndex", 0)), runs([c["MaximumNetworkInterfaces"] for c in cards]),
                  text(net.get("EfaInfo", {}).get("MaximumEfaInterfaces")), net.get("EnaSupport", "")]),
        ",".join(it.get("PlacementGroupInfo", {}).get("SupportedStrategies", [])),
        ";".join(f'{g["Name"]}:{g["Manufacturer"]}:{g["Count"]}:{g["MemoryInfo"]["SizeInMiB"]}'
                 for g in it.get("GpuInfo", {}).get("Gpus", [])),
        ";".join(f'{d["Name"]}:{d["Count"]}:{d["CoreInfo"]["Count"]}'
                 for d in it.get("NeuronInfo", {}).get("NeuronDevices", [])),
        ";".join(f'{a["Name"]}:{a["Manufacturer"]}:{a["Count"]}'
                 for a in it.get("InferenceAcceleratorInfo", {}).get("Accelerators", [])),
        "" if storage is None or storage.get("TotalSizeInGB") is None
        else f'{storage["TotalSizeInGB"]}:{storage.get("NvmeSupport", "")}',
    ]


def filled(name, reference, limits):
    cores, clock, baseline, nvme, gpus = FILLED[name]
    labels, limit = reference[name]["labels"], limits[name]
    return {
        "InstanceType": name, "CurrentGeneration": True, "Hypervisor": "nitro",
        "SupportedUsageClasses": ["on-demand", "spot"], "SupportedVirtualizationTypes": ["hvm"],
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"], "Manufacturer": "AMD", "SustainedClockSpeedInGhz": clock},
        "VCpuInfo": {"DefaultCores": cores, "DefaultVCpus": int(labels["cpu"])},
        "MemoryInfo": {"SizeInMiB": int(labels["memory"])},
        "EbsInfo": {"EbsOptimizedSupport": "default", "EbsOptimizedInfo": {
            "MaximumBandwidthInMbps": int(labels["ebs-bandwidth"]), "BaselineBandwidthInMbps": baseline}},
        "NetworkInfo": {"MaximumNetworkInterfaces": limit["interfaces"], "EnaSupport": "required",
                        "Ipv4AddressesPerInterface": limit["ipv4PerInterface"], "DefaultNetworkCardIndex": 0,
                        "EncryptionInTransitSupported": labels["encryption-in-transit-supported"] == "true",
                        "NetworkCards": [{"NetworkCardIndex": i, "MaximumNetworkInterfaces": n} for i, n in limit["cards"]]},
        "PlacementGroupInfo": {"SupportedStrategies": ["cluster", "partition", "spread"]},
        "GpuInfo": {"Gpus": [{"Name": "Radeon Pro V520", "Manufacturer": "AMD", "Count": gpus,
                              "MemoryInfo": {"SizeInMiB": 8192}}]},
        "InstanceStorageInfo": {"TotalSizeInGB": nvme, "NvmeSupport": "required"},
    }


def write(name, head, rows):
    with open(os.path.join(HERE, name), "w", newline="\n") as f:
        f.write("# " + "\t".join(head) + "\n")
        for r in rows:
            f.write("\t".join(r) + "\n")


def main():
    args = argparse.ArgumentParser()
    for name in ["types", "offerings", "zones", "limits", "bandwidth", "prices"]:
        args.add_argument("--" + name, required=True)
    args.add_argument("--reference")
    args = args.parse_args()

    types = read(args.types)
    types = list(types.values()) if isinstance(types, dict) else types
    by_name = {it["InstanceType"]: it for it in types}
    limits, bandwidth = read(args.limits)["types"], read(args.bandwidth)["types"]
    reference = read(args.reference)["types"] if args.reference else {}
    for name in reference:
        if name not in by_name and name in FILLED:
            by_name[name] = filled(name, reference, limits)
    for name, it in by_name.items():
        published = reference.get(name, {}).get("labels", {}).get("cpu-sustained-clock-speed-mhz", "0")
        if published != "0":
            it["ProcessorInfo"]["SustainedClockSpeedInGhz"] = int(published) / 1000
        if name in reference and name in limits:
            it["NetworkInfo"]["MaximumNetworkInterfaces"] = limits[name]["interfaces"]
            it["NetworkInfo"]["NetworkCards"] = [
                {"NetworkCardIndex": i, "MaximumNetworkInterfaces": n} for i, n in limits[name]["cards"]]
    # What DescribeInstanceTypes would not be asked for: no HVM, no 64-bit x86 or Arm (Mac).
    wanted = {n: it for n, it in by_name.items() if "hvm" in it["SupportedVirtualizationTypes"]
              and {"x86_64", "arm64"} & set(it["ProcessorInfo"]["SupportedArchitectures"])}
    write("types.tsv", ["name", "flags (burstable, metal, current, hosts, encryption in transit, enclaves)", "usage", "virtualization", "hypervisor",
                        "architectures", "manufacturer", "GHz", "features", "cores", "vcpus", "MiB", "ebs support:max:base", "interfaces:ipv4:default card:per card:efa:ena",
                        "placement", "gpu name:maker:count:MiB", "neuron name:count:cores", "accelerator name:maker:count", "storage GB:nvme"],
          [row(wanted[n]) for n in sorted(wanted)])

    names = sorted(set(limits) | set(bandwidth))
    write("limits.tsv", ["name", "ipv4 per interface", "branch interfaces", "baseline Mbps"],
          [[n, text(limits.get(n, {}).get("ipv4PerInterface")),
            text(limits[n]["branchInterfaces"] if limits.get(n, {}).get("trunking") else ("0" if n in limits else None)),
            text(bandwidth.get(n))] for n in names])

    ids = dict(line.split() for line in open(args.zones) if line.strip() and not line.startswith("#"))
    zones, sold = defaultdict(set), defaultdict(lambda: defaultdict(set))
    for file in sorted(os.listdir(args.offerings)):
        region = file.split(".")[0]
        answer = read(os.path.join(args.offerings, file))
        for it in answer["InstanceTypeOfferings"] if isinstance(answer, dict) else answer:
            zones[region].add(it["Location"])
            if it["InstanceType"] in wanted:
                sold[region][it["InstanceType"]].add(it["Location"])
    for name in FILLED:  # Offered where most of the g4dn family is: an estimate.
        for region in sold:
            twin = sold[region].get(name.replace("g4ad", "g4dn"))
            if name in wanted and twin:
                sold[region].setdefault(name, twin)
    regions = sorted(zones)
    order = {r: sorted(zones[r]) for r in regions}
    # Regions whose offerings nobody publishes: their zones are known all the same.
    order |= {r: sorted(z for z in ids if z.startswith(r)) for r in UNPUBLISHED}
    write("zones.tsv", ["region", "zone=id ..."],
          [[r] + [f"{z}={ids.get(z, '')}" for z in order[r]] for r in sorted(order)])
    mask = lambda r, n: format(sum(1 << i for i, z in enumerate(order[r]) if z in sold[r].get(n, ())), "x")
    write("offerings.tsv", ["name"] + regions,
          [[n] + ["" if mask(r, n) == "0" else mask(r, n) for r in regions] for n in sorted(wanted)])

    prices = read(args.prices)["regions"]
    priced = sorted(prices)
    write("prices.tsv", ["name"] + [f"{r}:{prices[r]['currency']}" for r in priced],
          [[n] + [number(prices[r]["prices"].get(n)) for r in priced]
           for n in sorted(set().union(*(prices[r]["prices"] for r in priced)))])


if __name__ == "__main__":
    main()
