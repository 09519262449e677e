//! Facts compiled into the crate: what each region sells, published limits, and prices before any were read.
//!
//! Facts: instance types and their zones (DescribeInstanceTypes and DescribeInstanceTypeOfferings of mid 2026), network
//! limits of the VPC resource controller, baseline bandwidth of the EC2 user guide, on-demand prices of the price list
//! for four regions. Estimated: the clock, disks and EBS baseline of the five `g4ad` types and where they are sold
//! (as `g4dn`); zone ids, which EC2 deals to every account anew; for China and GovCloud, whose offerings are not public, that each
//! type with a price there is sold in every zone. `data/generate.py` makes the tables.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::OnceLock,
};

use crate::{Catalog, table};

const TYPES: &str = include_str!("../data/types.tsv");
const LIMITS: &str = include_str!("../data/limits.tsv");
const OFFERINGS: &str = include_str!("../data/offerings.tsv");
const PRICES: &str = include_str!("../data/prices.tsv");
const ZONES: &str = include_str!("../data/zones.tsv");

/// The region whose prices stand in for regions without a table.
pub const FALLBACK_REGION: &str = "us-east-1";

/// Published limits of one instance type. DescribeInstanceTypes tells none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// IPv4 addresses per interface, the primary one included.
    pub ipv4_per_interface: Option<i64>,
    /// Branch interfaces for security groups of pods; 0 without trunking.
    pub branch_interfaces: i64,
    /// Baseline network bandwidth in Mbps; `None` where AWS publishes only a word such as "Moderate".
    pub bandwidth_mbps: Option<i64>,
}

/// The limits of an instance type, all absent for an unknown one.
pub fn limits(instance_type: &str) -> Limits {
    static TABLE: OnceLock<HashMap<&'static str, Limits>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        rows(LIMITS)
            .filter_map(|row| {
                let [name, ipv4, branch, bandwidth] = row[..] else { return None };
                let limits = Limits {
                    ipv4_per_interface: ipv4.parse().ok(),
                    branch_interfaces: branch.parse().unwrap_or(0),
                    bandwidth_mbps: bandwidth.parse().ok(),
                };
                Some((name, limits))
            })
            .collect()
    });
    table.get(instance_type).copied().unwrap_or_default()
}

fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table.lines().filter(|it| !it.starts_with('#')).map(|line| line.split('\t').collect())
}

/// The columns that the head line names.
fn columns(table: &'static str) -> Vec<&'static str> {
    table.lines().next().unwrap_or_default().trim_start_matches("# ").split('\t').collect()
}

/// On-demand prices from the static table of the region, else of [`FALLBACK_REGION`].
///
/// China's are yuan, all others dollars.
pub fn on_demand_prices(region: &str) -> BTreeMap<String, f64> {
    let names: Vec<&str> =
        columns(PRICES).into_iter().map(|it| it.split(':').next().unwrap_or(it)).collect();
    let column = |wanted: &str| names.iter().position(|it| *it == wanted);
    let Some(column) = column(region).or_else(|| column(FALLBACK_REGION)) else {
        return BTreeMap::new();
    };
    rows(PRICES)
        .filter_map(|row| Some(((*row.first()?).to_owned(), row.get(column)?.parse().ok()?)))
        .collect()
}

/// Zone names and ids of a region, `None` for a region without facts.
pub fn zones(region: &str) -> Option<BTreeMap<String, String>> {
    let row = rows(ZONES).find(|row| row.first() == Some(&region))?;
    let pairs = row.iter().skip(1).filter_map(|pair| pair.split_once('='));
    Some(pairs.map(|(name, id)| (name.to_owned(), id.to_owned())).collect())
}

/// All regions with facts, sorted.
pub fn regions() -> Vec<&'static str> {
    rows(ZONES).filter_map(|row| row.first().copied()).collect()
}

/// See [`Catalog::builtin`].
pub(crate) fn catalog(region: &str) -> Option<Catalog> {
    let zones = zones(region)?;
    let zone_names: Vec<&String> = zones.keys().collect();
    let mut offerings: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let column = columns(OFFERINGS).iter().position(|it| *it == region);
    if column.is_none() {
        // Ningxia has no price list of its own: it sells about what Beijing does.
        let priced = if region == "cn-northwest-1" { "cn-north-1" } else { region };
        let everywhere: BTreeSet<String> = zones.keys().cloned().collect();
        let names = on_demand_prices(priced).into_keys();
        offerings.extend(names.map(|name| (name, everywhere.clone())));
    }
    for row in column.iter().flat_map(|_| rows(OFFERINGS)) {
        let mask = column.and_then(|it| row.get(it));
        let (Some(name), Some(mask)) = (row.first(), mask) else { continue };
        let Ok(mask) = u32::from_str_radix(mask, 16) else { continue };
        let sold = zone_names.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1);
        offerings.insert((*name).to_owned(), sold.map(|(_, zone)| (*zone).clone()).collect());
    }
    // The tables are part of the crate and a test reads them all; an unreadable one would mean no facts.
    let mut types = table::read_types(TYPES).ok()?;
    types.retain(|it| offerings.contains_key(&it.name));
    Some(Catalog {
        fixed: Vec::new(),
        region: region.to_owned(),
        types: types.into(),
        offerings: offerings.into(),
        zones,
        on_demand: on_demand_prices(region).into(),
        spot: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // aws-capacity 8, cases 1, 6
    fn prices_before_any_were_read() {
        let price = |region: &str, name: &str| on_demand_prices(region).get(name).copied();
        assert_eq!(price("us-west-2", "c3.2xlarge"), Some(0.42));
        assert_eq!(price("us-west-2", "c5.large"), Some(0.085));
        assert_eq!(price("us-west-2", "zz9.large"), None);
        assert_eq!(price("us-gov-east-1", "c5.12xlarge"), Some(2.448));
        assert_eq!(price("cn-north-1", "c3.2xlarge"), Some(4.217));
    }

    #[test]
    fn every_region_has_zones_types_and_ids() {
        assert_eq!(regions().len(), 34);
        for region in regions() {
            let catalog = Catalog::builtin(region).expect(region);
            assert!(catalog.zones.len() >= 2, "{region}");
            assert!(catalog.zones.values().all(|id| !id.is_empty()), "{region}");
            assert!(catalog.types.len() > 200, "{region}");
        }
        assert_eq!(Catalog::builtin("mars-north-1"), None);
        let virginia: Vec<String> = zones("us-east-1").expect("known").into_keys().collect();
        assert_eq!(virginia, ["a", "b", "c", "d", "e", "f"].map(|it| format!("us-east-1{it}")));
    }

    #[test] // aws-capacity 8.1: prices of a region's own table, else of us-east-1
    fn china_and_govcloud_sell_what_has_a_price_there() {
        for (region, prefix, zone, price) in [
            ("us-gov-west-1", "usgw1", "us-gov-west-1a", 0.121),
            ("us-gov-east-1", "usge1", "us-gov-east-1a", 0.121),
            ("cn-north-1", "cnn1", "cn-north-1b", 1.013),
            ("cn-northwest-1", "cnnw1", "cn-northwest-1c", 0.096),
        ] {
            let catalog = Catalog::builtin(region).expect(region);
            assert_eq!(catalog.zones.len(), 3, "{region}");
            assert!(catalog.zones.values().all(|it| it.starts_with(prefix)), "{region}");
            assert!(catalog.offerings["m5.large"].contains(zone), "{region}");
            assert_eq!(catalog.on_demand.get("m5.large"), Some(&price), "{region}");
            assert!(catalog.types.iter().all(|it| catalog.on_demand.contains_key(&it.name)));
        }
    }

    #[test]
    fn limits_of_known_and_unknown_types() {
        assert_eq!(
            limits("m5.large"),
            Limits {
                ipv4_per_interface: Some(10),
                branch_interfaces: 9,
                bandwidth_mbps: Some(750)
            }
        );
        assert_eq!(limits("t3.large").branch_interfaces, 0);
        assert_eq!(limits("c4.large").bandwidth_mbps, None);
        assert_eq!(limits("zz9.large"), Limits::default());
    }
}
