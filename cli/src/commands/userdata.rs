//! `spokeshave userdata`: what a node gets at boot.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

use clap::Args as ClapArgs;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use spokeshave_bootstrap::{
    BootstrapInput, ClusterInfo, NodeFacts, RenderError, WARN_USER_DATA_BYTES, render,
};
use spokeshave_catalog::{
    Catalog, MarketView, Resolved,
    kubelet::{KubeletSettings, Reserved},
};
use spokeshave_model::{
    CapacityType, EC2NodeClass, InstanceType, Kind, NodeClaim, NodePool, Requirements, Settings,
    Taint, TaintEffect, labels, resources::PODS, validation::kubelet,
};
use spokeshave_nodeclass::{
    facts::dns_in,
    images::alias_paths,
    template,
    validation::{EXPRESSIONS_DISABLED, has_expressions, unsupported_kubelet},
};
use spokeshave_ports::ec2::{LaunchBlockDevice, LaunchMetadataOptions};
use spokeshave_scheduling::any;

use super::instance_types::class_failure;
use crate::{
    ExitStatus, Failure, Output,
    input::{self, FieldPath, Manifest},
    settings::SettingsArgs,
};

/// Prints what a node gets at boot.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  spokeshave userdata --nodeclass class.yaml --nodepool pool.yaml --cluster-name demo \\
    --endpoint https://ABC.gr7.eu-west-1.eks.amazonaws.com --ca \"$(aws eks describe-cluster --name demo \\
    --query cluster.certificateAuthority.data --output text)\" --service-cidr 10.100.0.0/16 \\
    --kubernetes-version 1.34 --instance-type m5.large
  spokeshave userdata ... --raw > user-data.txt

The capacity type is the pool's single allowed one, else on-demand. Without --cluster-dns it is the tenth address of
the service range, as EKS assigns it.")]
pub struct Args {
    /// The EC2NodeClass; of several the one that the pool refers to
    #[arg(long, value_name = "FILE")]
    nodeclass: PathBuf,

    /// The NodePool; of several the first
    #[arg(long, value_name = "FILE")]
    nodepool: PathBuf,

    /// Name of the cluster
    #[arg(long, value_name = "NAME")]
    cluster_name: String,

    /// The API server's endpoint
    #[arg(long, value_name = "URL")]
    endpoint: String,

    /// The cluster's CA bundle in base64; '' means none
    #[arg(long, value_name = "TEXT")]
    ca: String,

    /// The cluster's service range; AL2023 cannot do without it
    #[arg(long, value_name = "CIDR")]
    service_cidr: Option<String>,

    /// Address of the cluster's DNS service
    #[arg(long, value_name = "IP")]
    cluster_dns: Option<IpAddr>,

    /// The cluster's version, for instance 1.34
    #[arg(long, value_name = "VERSION")]
    kubernetes_version: String,

    /// The instance type that is launched
    #[arg(long, value_name = "TYPE")]
    instance_type: String,

    /// What can be bought, in plain form; its pod counts are taken as they are
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,

    /// Region of the built-in instance types
    #[arg(long, value_name = "REGION", default_value = "us-east-1")]
    region: String,

    /// Prints the exact bytes and nothing else
    #[arg(long)]
    raw: bool,

    #[command(flatten)]
    settings: SettingsArgs,
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    ami_family: &'a str,
    user_data: String,
    kubelet: &'a BTreeMap<String, Value>,
    labels: &'a BTreeMap<String, String>,
    taints: Vec<TaintRow<'a>>,
    block_devices: Vec<BlockDeviceRow>,
    metadata_options: MetadataRow,
}

#[derive(Debug, Serialize)]
struct TaintRow<'a> {
    key: &'a str,
    value: &'a str,
    effect: TaintEffect,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BlockDeviceRow {
    device_name: String,
    ebs: EbsRow,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EbsRow {
    /// Whole GiB.
    volume_size: Option<i64>,
    volume_type: Option<String>,
    iops: Option<i64>,
    throughput: Option<i64>,
    encrypted: Option<bool>,
    #[serde(rename = "kmsKeyID")]
    kms_key_id: Option<String>,
    #[serde(rename = "snapshotID")]
    snapshot_id: Option<String>,
    delete_on_termination: Option<bool>,
    volume_initialization_rate: Option<i32>,
}

impl From<LaunchBlockDevice> for BlockDeviceRow {
    fn from(it: LaunchBlockDevice) -> Self {
        Self {
            device_name: it.device_name,
            ebs: EbsRow {
                volume_size: it.volume_size,
                volume_type: it.volume_type,
                iops: it.iops,
                throughput: it.throughput,
                encrypted: it.encrypted,
                kms_key_id: it.kms_key_id,
                snapshot_id: it.snapshot_id,
                delete_on_termination: it.delete_on_termination,
                volume_initialization_rate: it.volume_initialization_rate,
            },
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MetadataRow {
    http_endpoint: String,
    #[serde(rename = "httpProtocolIPv6")]
    http_protocol_ipv6: Option<String>,
    http_put_response_hop_limit: i64,
    http_tokens: String,
    instance_metadata_tags: String,
}

impl From<LaunchMetadataOptions> for MetadataRow {
    fn from(it: LaunchMetadataOptions) -> Self {
        Self {
            http_endpoint: it.http_endpoint,
            http_protocol_ipv6: it.http_protocol_ipv6,
            http_put_response_hop_limit: it.http_put_response_hop_limit,
            http_tokens: it.http_tokens,
            instance_metadata_tags: it.instance_metadata_tags,
        }
    }
}

/// Prints the user data of a node of this class, pool and instance type.
///
/// # Errors
/// When an input is unusable, the instance type is not known, or the user data cannot be rendered.
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    let mut settings = Settings {
        region: args.region.clone(),
        cluster_name: args.cluster_name.clone(),
        ..Settings::default()
    };
    args.settings.apply(&mut settings)?;
    check_version(&args.kubernetes_version)?;
    check_range(args.service_cidr.as_deref())?;
    let (pool_manifest, pool): (Manifest, NodePool) =
        one(&args.nodepool, |_| true, "give a file with the NodePool")?;
    let wanted = pool.spec.template.spec.node_class_ref.name.clone();
    let (class_manifest, class): (Manifest, EC2NodeClass) = one(
        &args.nodeclass,
        |name| name == wanted,
        "give a file with the EC2NodeClass that the NodePool refers to",
    )?;
    let _ = pool_manifest;

    let cluster = ClusterInfo {
        name: args.cluster_name.clone(),
        endpoint: args.endpoint.clone(),
        ca_bundle: args.ca.clone(),
        service_cidr: args.service_cidr.clone(),
        dns_ip: args
            .cluster_dns
            .map(|it| it.to_string())
            .or_else(|| dns_in(args.service_cidr.as_deref()?)),
    };
    let capacity_type = capacity_type(&pool);
    let facts = node_facts(args, &settings, &class, &class_manifest, out)?;
    for problem in problems(&class, &args.kubernetes_version, settings.gates.node_class_cel) {
        out.warn(&format!("warning: {}: {problem}; nothing is launched", class_manifest.reference()));
    }
    let mut claim = NodeClaim::default();
    claim.metadata.labels = claim_labels(&pool);
    claim.spec.taints = pool.spec.template.spec.taints.clone().into_inner();
    claim.spec.startup_taints = pool.spec.template.spec.startup_taints.clone().into_inner();
    let input = BootstrapInput::for_claim(&cluster, &class, &claim, capacity_type.as_str(), &facts);
    let user_data = render(&input).map_err(|error| unrenderable(&error, &class_manifest))?;

    if user_data.len() >= WARN_USER_DATA_BYTES {
        out.note(&format!(
            "note: the user data has {} bytes, EC2 takes at most 16384",
            user_data.len()
        ));
    }
    if args.raw {
        out.bytes(user_data.as_bytes())?;
        return Ok(ExitStatus::Answered);
    }
    let answer = Answer {
        ami_family: input.family.as_str(),
        user_data,
        kubelet: &input.kubelet,
        labels: &input.labels,
        taints: input.taints.iter().map(taint_row).collect(),
        block_devices: template::block_devices(&class.spec).into_iter().map(Into::into).collect(),
        metadata_options: template::metadata_options(&class.spec, &settings.region).into(),
    };
    if out.is_json() {
        out.json(&answer)?;
    } else {
        print_text(&answer, capacity_type, out)?;
    }
    Ok(ExitStatus::Answered)
}

/// What keeps a class from becoming Ready although its user data can be made.
fn problems(class: &EC2NodeClass, version: &str, expressions: bool) -> Vec<String> {
    let settings = class.spec.kubelet.as_ref();
    let alias = class.spec.alias().and_then(|it| alias_paths(it, version).err());
    let mut problems: Vec<String> = alias.iter().map(ToString::to_string).collect();
    problems.extend(kubelet(settings).into_iter().map(|it| it.message));
    if has_expressions(settings) && !expressions {
        problems.push(EXPRESSIONS_DISABLED.to_owned());
    }
    problems.extend(unsupported_kubelet(class.ami_family(), settings));
    problems
}

fn taint_row(taint: &Taint) -> TaintRow<'_> {
    TaintRow { key: &taint.key, value: &taint.value, effect: taint.effect }
}

/// The one object of kind `K` in a file; of several the one whose name is `preferred`, else the first when any will do.
fn one<K: Kind>(
    path: &PathBuf,
    preferred: impl Fn(&str) -> bool,
    fix: &str,
) -> Result<(Manifest, K), Failure> {
    let manifests = input::load(std::slice::from_ref(path))?;
    let mut found: Vec<Manifest> = manifests.into_iter().filter(Manifest::is::<K>).collect();
    let at = match found.iter().position(|it| preferred(&it.name)) {
        Some(at) => at,
        // One class is meant, whatever its name.
        None if found.len() == 1 => 0,
        None => {
            let problem = if found.is_empty() {
                format!("no {} of {} in it", K::KIND, K::api_version())
            } else {
                format!("none of the {} objects of kind {} is meant", found.len(), K::KIND)
            };
            let file = path.display().to_string();
            return Err(Failure::new(problem).file(file).fix(fix));
        }
    };
    let manifest = found.swap_remove(at);
    let object = manifest.typed()?;
    Ok((manifest, object))
}

/// Whether the service range is one: user data takes it as it is, and a node that was told nonsense never joins.
fn check_range(cidr: Option<&str>) -> Result<(), Failure> {
    let is_range = |text: &str| {
        let (network, prefix) = text.split_once('/')?;
        let bits = if network.parse::<IpAddr>().ok()?.is_ipv4() { 32 } else { 128 };
        Some(prefix.parse::<u8>().ok()? <= bits)
    };
    match cidr {
        Some(cidr) if !cidr.is_empty() && is_range(cidr) != Some(true) => {
            Err(Failure::new(format!("--service-cidr {cidr}: not a range of addresses"))
                .fix("write it as EKS does, for instance 10.100.0.0/16"))
        }
        _ => Ok(()),
    }
}

fn check_version(version: &str) -> Result<(), Failure> {
    let mut parts = version.trim_start_matches('v').split('.');
    let number = |part: Option<&str>| {
        part.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if number(parts.next()) && number(parts.next()) {
        return Ok(());
    }
    Err(Failure::new(format!("--kubernetes-version {version}: not a version"))
        .fix("write major and minor version, for instance 1.34"))
}

/// Requirements and labels of a pool's template.
fn pool_requirements(pool: &NodePool) -> Requirements {
    let template = &pool.spec.template;
    let mut wanted = Requirements::from_api(&template.spec.requirements);
    let given = template.metadata.labels.clone().into_inner();
    wanted.add_all(&Requirements::from_labels(&given));
    wanted
}

/// The single capacity type that the pool allows, else on-demand.
fn capacity_type(pool: &NodePool) -> CapacityType {
    let wanted = pool_requirements(pool).get_or_exists(labels::CAPACITY_TYPE);
    let allowed: Vec<CapacityType> =
        [CapacityType::Reserved, CapacityType::Spot, CapacityType::OnDemand]
            .into_iter()
            .filter(|it| wanted.has(it.as_str()))
            .collect();
    match allowed.as_slice() {
        [only] => *only,
        _ => CapacityType::OnDemand,
    }
}

/// The labels of a claim that the pool would make: those of its template, pool and class, and a concrete value for
/// every key of its own.
fn claim_labels(pool: &NodePool) -> BTreeMap<String, String> {
    let template = &pool.spec.template;
    let mut all = template.metadata.labels.clone().into_inner();
    all.insert(labels::NODEPOOL.into(), pool.metadata.name.clone());
    all.insert(labels::NODECLASS.into(), template.spec.node_class_ref.name.clone());
    for requirement in pool_requirements(pool).iter() {
        let key = requirement.key.as_str();
        let derived = labels::is_well_known(key)
            || matches!(key, labels::HOSTNAME | labels::REGISTERED | labels::INITIALIZED)
            || all.contains_key(key);
        // Where any number will do, the smallest one keeps the answer the same every time.
        if !derived && let Some(value) = any(requirement, &mut |from, _| from) {
            all.insert(key.to_owned(), value);
        }
    }
    all
}

/// Pod count and reserved amounts of the instance type.
fn node_facts(
    args: &Args,
    settings: &Settings,
    class: &EC2NodeClass,
    manifest: &Manifest,
    out: &Output,
) -> Result<NodeFacts, Failure> {
    let name = args.instance_type.as_str();
    if let Some(path) = &args.catalog {
        let types = input::load_catalog(path)?;
        let Some(it) = types.iter().find(|it| it.name == name) else {
            return Err(Failure::new(format!("instance type {name:?} is not in the catalog"))
                .file(path.display().to_string())
                .fix("name one that the catalog has with --instance-type"));
        };
        let max_pods = it.capacity.0.get(PODS).map(|count| count.value());
        return Ok(NodeFacts { max_pods, ..NodeFacts::default() });
    }
    let region = settings.region.as_str();
    let Some(catalog) = Catalog::builtin(region) else {
        return Err(Failure::new(format!("region {region:?} is not built in"))
            .fix("name another region with --region, or give a catalog with --catalog"));
    };
    let view = MarketView::new(settings, Timestamp::UNIX_EPOCH);
    let resolved = catalog
        .resolve(class, &view, |it| it == name)
        .map_err(|error| class_failure(class, Some(manifest), &error))?;
    let Some(it) = resolved.types.first() else {
        return Err(Failure::new(format!("instance type {name:?} is not known in {region}"))
            .fix("name another one with --instance-type, or give a catalog with --catalog"));
    };
    for (_, error) in &resolved.dropped {
        out.warn(&format!(
            "warning: {}: spec.kubelet.{}: {} (instance type {name}); the entry is left out",
            manifest.reference(),
            error.field,
            error.problem,
        ));
    }
    let kubelet = KubeletSettings::of(class).unwrap_or_default();
    let texts = |field: &str| {
        if !settings.gates.node_class_cel {
            return None;
        }
        evaluated(field, &kubelet, it, &resolved)
    };
    Ok(NodeFacts {
        max_pods: Some(it.capacity.get(PODS).value()),
        kube_reserved: texts("kubeReserved"),
        system_reserved: texts("systemReserved"),
    })
}

/// The entries of a reserved map as amounts, without those whose expression failed; `None` without expressions.
fn evaluated(
    field: &str,
    kubelet: &KubeletSettings,
    it: &InstanceType,
    resolved: &Resolved,
) -> Option<BTreeMap<String, String>> {
    let (set, amounts) = match field {
        "kubeReserved" => (&kubelet.kube_reserved, &it.overhead.kube_reserved),
        _ => (&kubelet.system_reserved, &it.overhead.system_reserved),
    };
    if !set.values().any(|entry| matches!(entry, Reserved::Expression(_))) {
        return None;
    }
    let failed = |key: &str| {
        resolved.dropped.iter().any(|(_, error)| error.field == format!("{field}.{key}"))
    };
    let texts = set
        .keys()
        .filter(|key| !failed(key))
        .filter_map(|key| Some((key.clone(), amounts.0.get(key)?.to_string())));
    Some(texts.collect())
}

fn unrenderable(error: &RenderError, class: &Manifest) -> Failure {
    match error {
        RenderError::NoServiceCidr => Failure::new("AL2023 needs the cluster's service range")
            .object(class.reference())
            .fix("give it with --service-cidr"),
        RenderError::InvalidCaBundle => {
            Failure::new("--ca: not valid base64").fix("give the CA bundle as EKS returns it")
        }
        RenderError::UnsafeText { .. } => {
            Failure::new(error.to_string()).fix("correct --cluster-name, --endpoint or --ca")
        }
        RenderError::Mime(_) | RenderError::Toml(_) => {
            let field = FieldPath::root().field("spec").field("userData");
            let problem = error.to_string();
            let problem = problem.strip_prefix("spec.userData: ").unwrap_or(&problem);
            class.failure(&field, problem).fix("correct the user data of the class")
        }
    }
}

fn print_text(
    answer: &Answer<'_>,
    capacity_type: CapacityType,
    out: &Output,
) -> Result<(), Failure> {
    out.line(&format!("AMI family     {}", answer.ami_family))?;
    out.line(&format!("Capacity type  {capacity_type}"))?;
    let heading = |text: &str| out.line("").and_then(|()| out.line(text));
    heading("Labels that the kubelet registers")?;
    for (key, value) in answer.labels {
        out.line(&format!("  {key}={value}"))?;
    }
    heading("Taints as registered")?;
    for it in &answer.taints {
        out.line(&format!("  {}", Taint::new(it.key, it.value, it.effect)))?;
    }
    heading("Kubelet settings in effect")?;
    for (key, value) in answer.kubelet {
        out.line(&format!("  {key}: {value}"))?;
    }
    heading("Disks")?;
    if answer.block_devices.is_empty() {
        out.line("  as the image has them")?;
    }
    for it in &answer.block_devices {
        let size = it.ebs.volume_size.map_or_else(String::new, |size| format!(" {size} GiB"));
        let kind = it.ebs.volume_type.as_deref().unwrap_or("as the snapshot");
        let encrypted = if it.ebs.encrypted == Some(true) { ", encrypted" } else { "" };
        out.line(&format!("  {}{size} {kind}{encrypted}", it.device_name))?;
    }
    let metadata = &answer.metadata_options;
    heading("Instance metadata")?;
    out.line(&format!(
        "  endpoint {}, IPv6 {}, hop limit {}, tokens {}, tags {}",
        metadata.http_endpoint,
        metadata.http_protocol_ipv6.as_deref().unwrap_or("not sent"),
        metadata.http_put_response_hop_limit,
        metadata.http_tokens,
        metadata.instance_metadata_tags,
    ))?;
    heading(&format!("User data ({} bytes)", answer.user_data.len()))?;
    for line in answer.user_data.lines() {
        out.line(line)?;
    }
    Ok(())
}
