//! `spokeshave catalog`: the built-in facts of a region, and how a given catalog differs from them.

#[cfg(feature = "live")]
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use jiff::Timestamp;
use serde::Serialize;
use spokeshave_catalog::{Catalog, MarketView, plain};
use spokeshave_model::{InstanceType, Settings};

use super::instance_types::{DEFAULT_REGION, builtin_catalog, default_class};
use crate::{ExitStatus, Failure, Output, input, settings::SettingsArgs};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  spokeshave catalog show --region eu-west-1
  spokeshave catalog export --region us-west-2 --output json > catalog.json
  spokeshave catalog diff --catalog catalog.json --region us-west-2
  spokeshave catalog diff --table my-stack-state --region us-west-2

The built-in facts hold no spot prices: they are estimated from the on-demand price, as plan and local do.")]
pub struct Args {
    /// export: all of it in the plain form; show: how much there is; diff: how a catalog differs from the built-in facts
    #[arg(value_enum)]
    action: Action,

    /// The region
    #[arg(long, value_name = "REGION", default_value = DEFAULT_REGION)]
    region: String,

    /// The catalog to compare with the built-in facts, or to show, in the plain form; - is standard input
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,

    /// The state table of a stack, read live
    #[arg(long, value_name = "NAME", conflicts_with = "catalog")]
    table: Option<String>,

    #[command(flatten)]
    settings: SettingsArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    Export,
    Show,
    Diff,
}

/// How much a catalog holds.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    region: String,
    source: String,
    zones: Vec<ZoneRow>,
    instance_types: usize,
    offerings: usize,
    available_offerings: usize,
    /// Types without a known on-demand price.
    unpriced: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct ZoneRow {
    name: String,
    id: String,
}

/// What one catalog has and another has not.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Difference {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<Change>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    instance_type: String,
    /// `capacity.memory`, `labels.<key>`, `offerings.<capacity type>/<zone>.price`, ...
    field: String,
    from: Option<String>,
    to: Option<String>,
}

/// Prints, sums up or compares.
///
/// # Errors
/// When an input cannot be used, or there are no facts about the region.
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    let mut settings = Settings::default();
    args.settings.apply(&mut settings)?;
    settings.region.clone_from(&args.region);
    let given = match (&args.catalog, &args.table) {
        (Some(path), _) => Some(input::load_catalog(path)?),
        (None, Some(name)) => {
            Some(types_of(&stored(name, &settings)?, &settings)?)
        }
        (None, None) => None,
    };
    match args.action {
        Action::Export => {
            let types = given.map_or_else(|| builtin_types(&settings), Ok)?;
            // The plain form is JSON whatever is asked for: it is meant for --catalog.
            out.json(&plain::write(&types))?;
        }
        Action::Show => {
            let source = match (&args.catalog, &args.table) {
                (Some(path), _) => path.display().to_string(),
                (None, Some(name)) => format!("table {name}"),
                (None, None) => "built-in facts".to_owned(),
            };
            let types = given.map_or_else(|| builtin_types(&settings), Ok)?;
            show(&summary(&args.region, source, &types), out)?;
        }
        Action::Diff => {
            let Some(given) = given else {
                return Err(Failure::new("nothing to compare the built-in facts with")
                    .fix("give --catalog FILE in the plain form, or --table NAME"));
            };
            print_difference(&difference(&builtin_types(&settings)?, &given), out)?;
        }
    }
    out.flush()?;
    Ok(ExitStatus::Answered)
}

/// The catalog in the state table of a stack.
#[cfg(feature = "live")]
fn stored(name: &str, settings: &Settings) -> Result<Catalog, Failure> {
    Ok(table::load(name, &settings.region, settings.partition())?.catalog)
}

#[cfg(not(feature = "live"))]
fn stored(name: &str, _: &Settings) -> Result<Catalog, Failure> {
    Err(Failure::new(format!("--table {name}: this build does not talk to AWS"))
        .fix("build the command with its default features"))
}

/// What the region sells to an AL2023 class in every zone, with the spot prices that `plan` and `local` work with: what was
/// exported gives the same answers through `--catalog`.
fn builtin_types(settings: &Settings) -> Result<Vec<InstanceType>, Failure> {
    types_of(&builtin_catalog(&settings.region)?.with_estimated_spot_prices(), settings)
}

/// What a catalog comes to for an AL2023 class in every zone.
fn types_of(catalog: &Catalog, settings: &Settings) -> Result<Vec<InstanceType>, Failure> {
    let view = MarketView::new(settings, Timestamp::UNIX_EPOCH);
    catalog
        .instance_types(&default_class(), &view)
        .map_err(|error| Failure::new(error.to_string()))
}

fn summary(region: &str, source: String, types: &[InstanceType]) -> Summary {
    let offerings = || types.iter().flat_map(|it| &it.offerings);
    let zones: BTreeSet<ZoneRow> = offerings()
        .filter(|it| !it.zone.is_empty())
        .map(|it| ZoneRow { name: it.zone.clone(), id: it.zone_id.clone() })
        .collect();
    let unpriced = types.iter().filter(|it| it.offerings.iter().all(|it| it.price.is_none()));
    Summary {
        region: region.to_owned(),
        source,
        zones: zones.into_iter().collect(),
        instance_types: types.len(),
        offerings: offerings().count(),
        available_offerings: offerings().filter(|it| it.available).count(),
        unpriced: unpriced.map(|it| it.name.clone()).collect(),
    }
}

fn show(summary: &Summary, out: &Output) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(summary);
    }
    let zones: Vec<String> =
        summary.zones.iter().map(|it| format!("{} ({})", it.name, it.id)).collect();
    let rows = [
        ("region", summary.region.clone()),
        ("source", summary.source.clone()),
        ("zones", zones.join(", ")),
        ("instance types", summary.instance_types.to_string()),
        ("offerings", format!("{}, {} available", summary.offerings, summary.available_offerings)),
        ("without price", summary.unpriced.join(", ")),
    ];
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    out.table(&["WHAT", "VALUE"], &rows)
}

/// Everything of a type as text, by field.
fn fields(it: &InstanceType) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    for requirement in it.requirements.iter() {
        let values: Vec<&str> = requirement.values.iter().map(String::as_str).collect();
        if !values.is_empty() {
            fields.insert(format!("labels.{}", requirement.key), values.join(","));
        }
    }
    for (name, amount) in it.capacity.iter().filter(|(_, amount)| !amount.is_zero()) {
        fields.insert(format!("capacity.{name}"), amount.to_string());
    }
    for (name, amount) in it.overhead.total().iter() {
        fields.insert(format!("overhead.{name}"), amount.to_string());
    }
    for offering in &it.offerings {
        let reservation =
            offering.reservation.as_ref().map(|it| format!("/{}", it.id)).unwrap_or_default();
        let key = format!("offerings.{}/{}{reservation}", offering.capacity_type, offering.zone);
        fields.insert(format!("{key}.available"), offering.available.to_string());
        if let Some(price) = offering.price {
            fields.insert(format!("{key}.price"), price.to_string());
        }
    }
    fields
}

fn difference(from: &[InstanceType], to: &[InstanceType]) -> Difference {
    let by_name = |types: &[InstanceType]| -> BTreeMap<String, InstanceType> {
        types.iter().map(|it| (it.name.clone(), it.clone())).collect()
    };
    let (from, to) = (by_name(from), by_name(to));
    let mut difference = Difference {
        added: to.keys().filter(|it| !from.contains_key(*it)).cloned().collect(),
        removed: from.keys().filter(|it| !to.contains_key(*it)).cloned().collect(),
        changed: Vec::new(),
    };
    for (name, before) in &from {
        let Some(after) = to.get(name) else { continue };
        let (before, after) = (fields(before), fields(after));
        let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for key in keys {
            let (old, new) = (before.get(key), after.get(key));
            if old != new {
                difference.changed.push(Change {
                    instance_type: name.clone(),
                    field: key.clone(),
                    from: old.cloned(),
                    to: new.cloned(),
                });
            }
        }
    }
    difference
}

fn print_difference(difference: &Difference, out: &Output) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(difference);
    }
    for name in &difference.added {
        out.line(&format!("+ {name}"))?;
    }
    for name in &difference.removed {
        out.line(&format!("- {name}"))?;
    }
    for it in &difference.changed {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        out.line(&format!(
            "~ {} {}: {} -> {}",
            it.instance_type,
            it.field,
            shown(&it.from),
            shown(&it.to)
        ))?;
    }
    out.line(&format!(
        "{} added, {} removed, {} fields changed",
        difference.added.len(),
        difference.removed.len(),
        difference.changed.len()
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_changed_is_named() {
        let read = |memory: &str, price: f64| {
            plain::read(&json!({"instanceTypes": [{"name": "a.large", "capacity": {"memory": memory},
                "offerings": [{"capacityType": "spot", "zone": "z", "price": price}]}]}))
            .expect("valid")
        };
        let got = difference(&read("8Gi", 0.1), &read("16Gi", 0.1));
        let change = Change {
            instance_type: "a.large".into(),
            field: "capacity.memory".into(),
            from: Some("8Gi".into()),
            to: Some("16Gi".into()),
        };
        assert_eq!(got, Difference { changed: vec![change], ..Difference::default() });
        let got = difference(&[], &read("8Gi", 0.1));
        assert_eq!(got.added, ["a.large"]);
    }

    #[test]
    fn what_is_exported_is_what_plan_works_with() {
        use crate::commands::plan::world::Source;

        let settings = Settings { region: "us-west-2".into(), ..Settings::default() };
        let types = builtin_types(&settings).expect("known");
        let document = serde_json::to_value(plain::write(&types)).expect("writes");
        let read = plain::read(&document).expect("reads");
        assert_eq!(difference(&types, &read), Difference::default());
        let Source::Builtin(catalog) = Source::read(None, "us-west-2").expect("known") else {
            panic!("no catalog was given");
        };
        let planned = types_of(&catalog, &settings).expect("valid");
        assert_eq!(difference(&planned, &read), Difference::default());
    }
}
