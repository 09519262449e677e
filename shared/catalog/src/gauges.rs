//! What each offering costs and whether it can be bought, as gauges (`spec` aws-capacity 23).

use std::{collections::BTreeMap, sync::Arc};

use spokeshave_model::{CapacityType, InstanceType};
use spokeshave_ports::Metric;

const AVAILABLE: &str = "karpenter_cloudprovider_instance_type_offering_available";
const PRICE: &str = "karpenter_cloudprovider_instance_type_offering_price_estimate";

/// One series of both gauges. Copies for partitions, and the reservations of a zone, are one series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series {
    pub instance_type: String,
    pub capacity_type: CapacityType,
    pub zone: String,
}

/// The values of both gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauge {
    pub available: bool,
    /// Dollars per hour; 0 when no price is known.
    pub price: f64,
}

/// The gauges of all types of all pools: available when it is for one of them, at the last one's price.
///
/// With `reserved` (gate ReservedCapacity) each type has a reserved series in each of its zones, at nothing and not
/// available unless a pool has a reservation there.
pub fn offerings<'a>(
    pools: impl IntoIterator<Item = &'a [Arc<InstanceType>]>,
    reserved: bool,
) -> BTreeMap<Series, Gauge> {
    let mut gauges: BTreeMap<Series, Gauge> = BTreeMap::new();
    for it in pools.into_iter().flatten() {
        let series = |capacity_type: CapacityType, zone: &str| Series {
            instance_type: it.name.clone(),
            capacity_type,
            zone: zone.to_owned(),
        };
        for offering in &it.offerings {
            let key = series(offering.capacity_type, &offering.zone);
            let gauge = gauges.entry(key).or_default();
            gauge.available |= offering.available;
            gauge.price = offering.price.unwrap_or_default();
            if reserved {
                gauges.entry(series(CapacityType::Reserved, &offering.zone)).or_default();
            }
        }
    }
    gauges
}

/// The samples of those series that are new or have changed. Each series is paid for, so that nothing is said twice.
pub fn changes(before: &BTreeMap<Series, Gauge>, after: &BTreeMap<Series, Gauge>) -> Vec<Metric> {
    let mut samples = Vec::new();
    for (series, gauge) in after {
        let known = before.get(series);
        let mut sample = |name: &'static str, value: f64| {
            let labels = vec![
                ("instance_type", series.instance_type.clone()),
                ("capacity_type", series.capacity_type.as_str().to_owned()),
                ("zone", series.zone.clone()),
            ];
            samples.push(Metric { name, value, unit: "None", labels });
        };
        if known.is_none_or(|it| it.available != gauge.available) {
            sample(AVAILABLE, f64::from(u8::from(gauge.available)));
        }
        if known.is_none_or(|it| it.price != gauge.price) {
            sample(PRICE, gauge.price);
        }
    }
    samples
}
