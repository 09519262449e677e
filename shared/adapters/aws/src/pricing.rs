//! On-demand prices from the price list.

use std::collections::BTreeMap;

use aws_sdk_pricing::{
    Client,
    types::{Filter, FilterType},
};
use serde_json::Value;
use spokeshave_ports::{AwsError, Pricing};

use crate::{Call, Connection};

const GET: Call = Call("pricing", "GetProducts");

/// The price list, at the end point that answers for the stack's region.
#[derive(Clone, Debug)]
pub struct PriceList {
    client: Client,
}

impl PriceList {
    /// `region` is the region whose prices will be asked for.
    pub fn new(connection: &Connection, region: &str) -> Self {
        Self { client: counted!(aws_sdk_pricing, &connection.in_region(endpoint_region(region))) }
    }

    async fn query(
        &self,
        region: &str,
        tenancy: &str,
        family: &str,
    ) -> Result<BTreeMap<String, f64>, AwsError> {
        let mut request = self.client.get_products().service_code("AmazonEC2").max_results(100);
        for (field, value) in [
            ("regionCode", region),
            ("serviceCode", "AmazonEC2"),
            ("preInstalledSw", "NA"),
            ("operatingSystem", "Linux"),
            ("capacitystatus", "Used"),
            ("marketoption", "OnDemand"),
            ("tenancy", tenancy),
            ("productFamily", family),
        ] {
            let filter = Filter::builder().r#type(FilterType::TermMatch).field(field).value(value);
            let filter =
                filter.build().map_err(|error| GET.error("Request", &error.to_string()))?;
            request = request.filters(filter);
        }
        let mut pages = request.into_paginator().items().send();
        let mut prices = BTreeMap::new();
        while let Some(entry) = pages.next().await {
            let entry = entry.map_err(|error| GET.failed(error))?;
            if let Some((name, price)) = price_of(&entry, currency(region)) {
                prices.insert(name, price);
            }
        }
        Ok(prices)
    }
}

impl Pricing for PriceList {
    async fn on_demand_prices(&self, region: &str) -> Result<BTreeMap<String, f64>, AwsError> {
        let mut prices = self.query(region, "Shared", "Compute Instance").await?;
        let bare_metal = self.query(region, "Dedicated", "Compute Instance (bare metal)").await?;
        // Half an answer would leave the other half's prices behind without a word.
        if prices.is_empty() || bare_metal.is_empty() {
            return Err(GET.error("NoPrices", &format!("the price list is empty for {region}")));
        }
        prices.extend(bare_metal);
        Ok(prices)
    }
}

/// Where the price list of `region` is asked for: it has end points in four regions only.
fn endpoint_region(region: &str) -> &'static str {
    match region.split('-').next() {
        Some("ap") => "ap-south-1",
        Some("cn") => "cn-northwest-1",
        Some("eu") => "eu-central-1",
        _ => "us-east-1",
    }
}

fn currency(region: &str) -> &'static str {
    if region.starts_with("cn-") { "CNY" } else { "USD" }
}

/// Instance type and price of one entry; `None` for entries that name no type or no price above zero.
fn price_of(entry: &str, currency: &str) -> Option<(String, f64)> {
    let entry: Value = serde_json::from_str(entry).ok()?;
    let name = entry.pointer("/product/attributes/instanceType")?.as_str()?;
    let terms = entry.pointer("/terms/OnDemand")?.as_object()?;
    let price = terms
        .values()
        .filter_map(|term| term.get("priceDimensions")?.as_object())
        .flat_map(serde_json::Map::values)
        .filter_map(|it| it.get("pricePerUnit")?.get(currency)?.as_str()?.parse::<f64>().ok())
        .find(|price| price.is_finite() && *price > 0.0)?;
    (!name.is_empty()).then(|| (name.to_owned(), price))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(name: &str, unit: &Value) -> String {
        json!({
            "product": {"attributes": {"instanceType": name}},
            "terms": {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": {"pricePerUnit": unit}}}}},
        })
        .to_string()
    }

    #[test]
    fn prices_are_read_in_the_currency_of_the_region() {
        // aws-capacity 8, case 5, and the entries that 8.2 skips.
        let both = json!({"USD": "1.20", "CNY": "8.50"});
        for (text, currency, expected) in [
            (entry("c98.large", &both), "USD", Some(("c98.large".to_owned(), 1.2))),
            (entry("c98.large", &both), "CNY", Some(("c98.large".to_owned(), 8.5))),
            (entry("c98.large", &json!({"USD": "0.0000000000"})), "USD", None),
            (entry("c98.large", &json!({"USD": "NaN"})), "USD", None),
            (entry("", &both), "USD", None),
            ("{".to_owned(), "USD", None),
            ("{}".to_owned(), "USD", None),
        ] {
            assert_eq!(price_of(&text, currency), expected, "{text}");
        }
    }

    #[test]
    fn regions_have_their_end_points() {
        for (region, endpoint, money) in [
            ("us-west-2", "us-east-1", "USD"),
            ("ap-northeast-1", "ap-south-1", "USD"),
            ("eu-west-1", "eu-central-1", "USD"),
            ("cn-anywhere-1", "cn-northwest-1", "CNY"),
            ("sa-east-1", "us-east-1", "USD"),
        ] {
            assert_eq!((endpoint_region(region), currency(region)), (endpoint, money), "{region}");
        }
    }
}
