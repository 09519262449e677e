//! `spokeshave instance-types`: what an EC2NodeClass could launch, with labels, capacity, overhead and offerings.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use spokeshave_catalog::{
    Catalog, CatalogError, MarketView, builtin, describe, offerings::class_zones, plain,
};
use spokeshave_model::{
    CapacityType, EC2NodeClass, InstanceType, NodePool, ObjectMeta, Requirements, Settings,
    ec2_node_class::AmiSelectorTerm,
    resources::{CPU, MEMORY, PODS},
};
use spokeshave_ports::ec2::TypeOffering;

use crate::{
    ExitStatus, Failure, Output,
    input::{self, FieldPath, Manifest},
    settings::SettingsArgs,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  spokeshave instance-types --region eu-west-1 --nodeclass class.yaml --nodepool pool.yaml
  spokeshave instance-types --name 'm7g.*' --output json
  aws ec2 describe-instance-types --output json | spokeshave instance-types --describe-instance-types -

Without --describe-instance-types the built-in facts of the region are used. Without --nodeclass the class is an AL2023 one
in every zone. Where no spot prices are given, spot costs what on-demand does.")]
pub struct Args {
    /// The region
    #[arg(long, value_name = "REGION")]
    region: Option<String>,

    /// What `aws ec2 describe-instance-types --output json` prints; - is standard input
    #[arg(long, value_name = "FILE")]
    describe_instance_types: Option<PathBuf>,

    /// What `aws ec2 describe-instance-type-offerings` prints; without it a type is sold in every zone of the class
    #[arg(long, value_name = "FILE")]
    offerings: Option<PathBuf>,

    /// What `aws ec2 describe-spot-price-history` prints; a pool that is not in it is not sold as spot
    #[arg(long, value_name = "FILE")]
    spot_prices: Option<PathBuf>,

    /// On-demand prices by type, {\"m5.large\": 0.096}, over the built-in ones
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,

    /// The EC2NodeClass; its status gives zones, reservations and images
    #[arg(long, value_name = "FILE")]
    nodeclass: Option<PathBuf>,

    /// Keep only types that this NodePool allows
    #[arg(long, value_name = "FILE")]
    nodepool: Option<PathBuf>,

    /// Instances left in a capacity reservation of the class's status; not given: none
    #[arg(long = "reservation", value_name = "ID=COUNT")]
    reservations: Vec<String>,

    /// Keep only types of this name; * stands for any text and ? for any character
    #[arg(long, value_name = "GLOB")]
    name: Option<String>,

    #[command(flatten)]
    settings: SettingsArgs,
}

/// Region of the command line where none is given.
pub const DEFAULT_REGION: &str = "us-east-1";

/// The class that stands in where none is given: AL2023, every zone, nothing special.
pub fn default_class() -> EC2NodeClass {
    let mut class =
        EC2NodeClass { metadata: ObjectMeta::named("default"), ..EC2NodeClass::default() };
    class.spec.ami_selector_terms = vec![AmiSelectorTerm {
        alias: Some("al2023@latest".to_owned()),
        ..AmiSelectorTerm::default()
    }];
    class
}

/// Prints the instance types.
///
/// # Errors
/// When an input cannot be used, or a kubelet setting of the class fails for a type.
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    let mut settings = Settings::default();
    args.settings.apply(&mut settings)?;
    if let Some(region) = &args.region {
        settings.region.clone_from(region);
    }
    let pool = args.nodepool.as_deref().map(node_pool).transpose()?;
    let (class, manifest) = match &args.nodeclass {
        Some(path) => node_class(path, pool.as_ref())?,
        None => (default_class(), None),
    };
    for it in spokeshave_model::validation::kubelet(class.spec.kubelet.as_ref()) {
        let name = &class.metadata.name;
        out.warn(&format!("EC2NodeClass/{name}: {}: such a class is not used", it.message));
    }
    let catalog = catalog(args, &settings.region, &class)?;
    let mut view = MarketView::new(&settings, Timestamp::UNIX_EPOCH);
    for entry in &args.reservations {
        let (id, count) = reservation(entry)?;
        // A count for what the class does not have would be left out without a word.
        if !class.status.capacity_reservations.iter().any(|it| it.id == id) {
            let problem = format!("--reservation {entry}: the class has no such reservation");
            return Err(Failure::new(problem)
                .object(format!("EC2NodeClass/{}", class.metadata.name))
                .field("status.capacityReservations")
                .fix("correct the id, or give the class as the cluster has it, with its status"));
        }
        view.reservations.insert(id, count);
    }
    let mut resolved = catalog
        .resolve(&class, &view, |_| true)
        .map_err(|error| class_failure(&class, manifest.as_ref(), &error))?;
    if let Some((name, error)) = resolved.dropped.first() {
        let error = CatalogError::Type {
            class: class.metadata.name.clone(),
            instance_type: name.clone(),
            source: error.clone(),
        };
        return Err(class_failure(&class, manifest.as_ref(), &error));
    }
    if let Some(pool) = &pool {
        let wanted = allowed_by(pool);
        resolved.types.retain(|it| wanted.meets(&it.requirements));
    }
    if let Some(glob) = &args.name {
        resolved.types.retain(|it| matches(glob, &it.name));
    }
    if out.is_json() {
        out.json(&plain::write(&resolved.types))?;
    } else {
        out.table(HEADERS, &rows(&resolved.types))?;
        out.line(&format!("{} instance types", resolved.types.len()))?;
    }
    out.flush()?;
    Ok(ExitStatus::Answered)
}

/// What a NodePool asks of its types: requirements and labels of its template.
fn allowed_by(pool: &NodePool) -> Requirements {
    let template = &pool.spec.template;
    let mut wanted = Requirements::from_api(&template.spec.requirements);
    wanted.add_all(&Requirements::from_labels(template.metadata.labels.iter()));
    wanted
}

fn failure_of_class(manifest: Option<&Manifest>, field: &str, problem: String) -> Failure {
    match manifest {
        None => Failure::new(problem).field(field),
        Some(manifest) => {
            let path = field.split('.').fold(FieldPath::root(), |path, name| path.field(name));
            manifest.failure(&path, problem).field(field)
        }
    }
}

/// Class, field and type of what is wrong.
pub fn class_failure(
    class: &EC2NodeClass,
    manifest: Option<&Manifest>,
    error: &CatalogError,
) -> Failure {
    let object = format!("EC2NodeClass/{}", class.metadata.name);
    let (source, type_) = match error {
        CatalogError::Kubelet { source, .. } => (source, None),
        CatalogError::Type { source, instance_type, .. } => (source, Some(instance_type)),
    };
    let problem = match type_ {
        Some(name) => format!("instance type {name}: {}", source.problem),
        None => source.problem.clone(),
    };
    failure_of_class(manifest, &format!("spec.kubelet.{}", source.field), problem)
        .object(object)
        .fix("correct the setting, or the expression in it")
}

fn node_pool(path: &Path) -> Result<NodePool, Failure> {
    let manifests = input::load(&[path.to_owned()])?;
    let mut pools = manifests.iter().filter(|it| it.is::<NodePool>());
    let (Some(first), None) = (pools.next(), pools.next()) else {
        return Err(Failure::new("there must be exactly one NodePool (karpenter.sh/v1)")
            .file(path.display().to_string())
            .fix("give a file with the NodePool in question"));
    };
    first.typed()
}

/// The class of the file: the only one, or the one that the pool names.
fn node_class(
    path: &Path,
    pool: Option<&NodePool>,
) -> Result<(EC2NodeClass, Option<Manifest>), Failure> {
    let manifests = input::load(&[path.to_owned()])?;
    let classes: Vec<Manifest> =
        manifests.into_iter().filter(Manifest::is::<EC2NodeClass>).collect();
    let wanted = pool.map(|it| it.spec.template.spec.node_class_ref.name.clone());
    let chosen = match &classes[..] {
        [only] => Some(only),
        several => several.iter().find(|it| Some(&it.name) == wanted.as_ref()),
    };
    let Some(manifest) = chosen else {
        let problem = if classes.is_empty() {
            "there is no EC2NodeClass (karpenter.k8s.aws/v1) in it".to_owned()
        } else {
            let names: Vec<&str> = classes.iter().map(|it| it.name.as_str()).collect();
            format!("there are several EC2NodeClasses in it: {}", names.join(", "))
        };
        return Err(Failure::new(problem)
            .file(path.display().to_string())
            .fix("give a file with the EC2NodeClass in question"));
    };
    Ok((manifest.typed()?, Some(manifest.clone())))
}

fn reservation(entry: &str) -> Result<(String, i64), Failure> {
    let parsed = entry.split_once('=').and_then(|(id, count)| {
        let count = count.trim().parse::<i64>().ok().filter(|it| *it >= 0)?;
        (!id.trim().is_empty()).then(|| (id.trim().to_owned(), count))
    });
    parsed.ok_or_else(|| {
        Failure::new(format!("--reservation {entry}: not ID=COUNT with a count of at least 0"))
            .fix("write --reservation cr-0123456789abcdef0=3")
    })
}

/// The catalog of a region without anything given beside it.
///
/// # Errors
/// When there are no facts about the region.
pub fn builtin_catalog(region: &str) -> Result<Catalog, Failure> {
    Catalog::builtin(region).ok_or_else(|| {
        Failure::new(format!("no facts are built in for region {region:?}"))
            .fix(format!("use one of {}", builtin::regions().join(", ")))
    })
}

fn unreadable(path: &Path, error: &describe::DescribeError) -> Failure {
    let failure = Failure::new(error.problem.clone())
        .file(path.display().to_string())
        .field(error.path.clone())
        .fix("give what the aws command prints with --output json");
    match u32::try_from(error.line) {
        Ok(line) if line > 0 => failure.line(line),
        _ => failure,
    }
}

fn catalog(args: &Args, region: &str, class: &EC2NodeClass) -> Result<Catalog, Failure> {
    let read = |path: &Path| input::read(&path.display().to_string());
    let mut catalog = match &args.describe_instance_types {
        None => builtin_catalog(region)?,
        Some(path) => {
            let types =
                describe::instance_types(&read(path)?).map_err(|error| unreadable(path, &error))?;
            let mut catalog = Catalog {
                region: region.to_owned(),
                zones: builtin::zones(region).unwrap_or_default(),
                on_demand: builtin::on_demand_prices(region).into(),
                ..Catalog::default()
            };
            catalog.set_types(types);
            catalog
        }
    };
    if let Some(path) = &args.offerings {
        let locations =
            describe::offerings(&read(path)?).map_err(|error| unreadable(path, &error))?;
        catalog.set_offerings(&in_zones(&locations, &catalog, class));
    } else if args.describe_instance_types.is_some() {
        // Sold in every zone of the class, or of the region where the class names none.
        let zones: BTreeSet<String> = if class.status.subnets.is_empty() {
            catalog.zones.keys().cloned().collect()
        } else {
            class_zones(class, &catalog).into_keys().collect()
        };
        let names = catalog.types.iter().map(|it| it.name.clone());
        catalog.offerings = names.map(|name| (name, zones.clone())).collect();
    }
    if let Some(path) = &args.prices {
        catalog.merge_on_demand(prices(path)?);
    }
    if let Some(path) = &args.spot_prices {
        let history =
            describe::spot_prices(&read(path)?).map_err(|error| unreadable(path, &error))?;
        if !catalog.merge_spot(&history) {
            catalog.spot = Some(BTreeMap::new().into());
        }
    }
    Ok(catalog)
}

/// Offerings by zone name, whatever kind of location they were asked for by.
fn in_zones(
    locations: &[describe::Location],
    catalog: &Catalog,
    class: &EC2NodeClass,
) -> Vec<TypeOffering> {
    let mut by_id: BTreeMap<&str, &str> =
        catalog.zones.iter().map(|(name, id)| (id.as_str(), name.as_str())).collect();
    by_id.extend(class.status.subnets.iter().map(|it| (it.zone_id.as_str(), it.zone.as_str())));
    let everywhere: BTreeSet<&str> = class
        .status
        .subnets
        .iter()
        .map(|it| it.zone.as_str())
        .chain(catalog.zones.keys().map(String::as_str).filter(|_| class.status.subnets.is_empty()))
        .collect();
    let mut offerings = Vec::new();
    for it in locations {
        let zones: Vec<&str> = match it.kind.as_str() {
            "region" => everywhere.iter().copied().collect(),
            "availability-zone-id" => {
                by_id.get(it.location.as_str()).copied().into_iter().collect()
            }
            _ => vec![it.location.as_str()],
        };
        offerings.extend(zones.into_iter().map(|zone| TypeOffering {
            instance_type: it.instance_type.clone(),
            zone: zone.to_owned(),
        }));
    }
    offerings
}

fn prices(path: &Path) -> Result<BTreeMap<String, f64>, Failure> {
    let file = path.display().to_string();
    let text = input::read(&file)?;
    let fix = "give dollars per hour by type: {\"m5.large\": 0.096}";
    let given: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&text).map_err(|error| {
            Failure::new(error.to_string())
                .file(&file)
                .line(u32::try_from(error.line()).unwrap_or(0))
                .fix(fix)
        })?;
    let price = |(name, value): (String, serde_json::Value)| match value.as_f64() {
        Some(price) if price >= 0.0 => Ok((name, price)),
        _ => Err(Failure::new(format!("{value} is not a price")).file(&file).field(name).fix(fix)),
    };
    given.into_iter().map(price).collect()
}

/// Whether `name` matches a glob of `*` and `?`.
fn matches(glob: &str, name: &str) -> bool {
    let (glob, name): (Vec<char>, Vec<char>) = (glob.chars().collect(), name.chars().collect());
    let (mut at, mut of) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while at < name.len() {
        match glob.get(of) {
            Some('*') => {
                star = Some((of, at));
                of += 1;
            }
            Some(c) if *c == '?' || name.get(at) == Some(c) => {
                at += 1;
                of += 1;
            }
            _ => match star {
                Some((star_of, star_at)) => {
                    star = Some((star_of, star_at + 1));
                    at = star_at + 1;
                    of = star_of + 1;
                }
                None => return false,
            },
        }
    }
    glob.iter().skip(of).all(|c| *c == '*')
}

const HEADERS: &[&str] =
    &["NAME", "CPU", "MEMORY", "PODS", "ALLOCATABLE", "ON-DEMAND", "SPOT", "ZONES"];

fn rows(types: &[InstanceType]) -> Vec<Vec<String>> {
    types
        .iter()
        .map(|it| {
            let allocatable = it.allocatable();
            let open = it.offerings.iter().filter(|offering| offering.available);
            let zones: BTreeSet<&str> = open.map(|offering| offering.zone.as_str()).collect();
            let lowest = |capacity_type: CapacityType| {
                it.offerings
                    .iter()
                    .filter(|it| it.available && it.capacity_type == capacity_type)
                    .filter_map(|it| it.price)
                    .min_by(f64::total_cmp)
                    .map_or("-".to_owned(), |price| format!("{price:.4}"))
            };
            vec![
                it.name.clone(),
                it.capacity.get(CPU).to_string(),
                it.capacity.get(MEMORY).to_string(),
                it.capacity.get(PODS).to_string(),
                format!("{} {}", allocatable.get(CPU), allocatable.get(MEMORY)),
                lowest(CapacityType::OnDemand),
                lowest(CapacityType::Spot),
                if zones.is_empty() {
                    "none".to_owned()
                } else {
                    zones.into_iter().collect::<Vec<_>>().join(" ")
                },
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (glob, name, expected) in [
            ("m5.*", "m5.large", true),
            ("m5.*", "m5a.large", false),
            ("*.metal*", "c7g.metal-48xl", true),
            ("m?.large", "m5.large", true),
            ("m?.large", "m.large", false),
            ("*", "", true),
            ("", "m", false),
            ("*a*b*c", "xaxxbxc", true),
            ("*a*b*c", "xaxxbx", false),
        ] {
            assert_eq!(matches(glob, name), expected, "{glob} {name}");
        }
    }

    #[test]
    fn reservation_counts() {
        assert_eq!(reservation("cr-1=3"), Ok(("cr-1".into(), 3)));
        for entry in ["cr-1", "cr-1=", "cr-1=x", "=3", "cr-1=-1"] {
            assert!(reservation(entry).is_err(), "{entry}");
        }
    }
}
