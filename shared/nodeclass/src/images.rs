//! Images: from selector terms to status entries, and from an instance type to its image (`spec` aws-nodeclass 6).

use std::{cmp::Ordering, collections::BTreeMap};

use jiff::Timestamp;
use spokeshave_model::{
    Alias, AmiFamily, NodeSelectorRequirement, Operator, Requirements,
    ec2_node_class::{AmiStatus, EC2NodeClassSpec},
    labels,
};
use spokeshave_ports::ec2::{Filter, Image};

use crate::selectors::{Query, tag_filters};

/// AWS publishes no AL2 image from this minor version of Kubernetes on.
const FIRST_MINOR_WITHOUT_AL2: u32 = 33;
/// AWS publishes no Windows 2025 image before this minor version.
const FIRST_MINOR_WITH_WINDOWS_2025: u32 = 35;

/// Why an alias cannot be looked up. Nothing but a change of the class or of the cluster's version helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AliasError {
    #[error("alias {0:?} cannot be parsed, it must have the form family@version")]
    Malformed(String),
    #[error(
        "AL2 images are not published for Kubernetes {0} and later versions, use another alias"
    )]
    NoAl2(String),
    #[error("Windows 2025 images are not published for Kubernetes {0}, they need 1.35 or later")]
    NoWindows2025(String),
}

/// What sets an image apart from others of its architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    Standard,
    Nvidia,
    Neuron,
    Windows(AmiFamily),
}

impl Variant {
    fn requirements(self) -> Vec<NodeSelectorRequirement> {
        let entry = |key: &str, operator, values: &[&str]| {
            NodeSelectorRequirement::new(key, operator, values)
        };
        match self {
            Self::Standard => vec![
                entry(labels::INSTANCE_ACCELERATOR_COUNT, Operator::DoesNotExist, &[]),
                entry(labels::INSTANCE_GPU_COUNT, Operator::DoesNotExist, &[]),
            ],
            Self::Nvidia => vec![entry(labels::INSTANCE_GPU_COUNT, Operator::Exists, &[])],
            Self::Neuron => vec![entry(labels::INSTANCE_ACCELERATOR_COUNT, Operator::Exists, &[])],
            Self::Windows(family) => {
                let build = family.windows_build().unwrap_or_default();
                vec![
                    entry(labels::OS, Operator::In, &["windows"]),
                    entry(labels::WINDOWS_BUILD, Operator::In, &[build]),
                ]
            }
        }
    }
}

/// A parameter that holds an image id, and the variants that this image serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterPath {
    pub path: String,
    pub variants: Vec<Variant>,
}

fn minor(version: &str) -> u32 {
    version.split('.').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0)
}

/// The parameters to read for an alias in a cluster of Kubernetes `version` (`1.34`).
///
/// # Errors
/// See [`AliasError`].
pub fn alias_paths(alias: &str, version: &str) -> Result<Vec<ParameterPath>, AliasError> {
    let parsed = Alias::parse(alias).ok_or_else(|| AliasError::Malformed(alias.to_owned()))?;
    let family = parsed.family;
    if family == AmiFamily::Al2 && minor(version) >= FIRST_MINOR_WITHOUT_AL2 {
        return Err(AliasError::NoAl2(version.to_owned()));
    }
    if family == AmiFamily::Windows2025 && minor(version) < FIRST_MINOR_WITH_WINDOWS_2025 {
        return Err(AliasError::NoWindows2025(version.to_owned()));
    }
    let latest = parsed.version == "latest";
    let release = &parsed.version;
    let path = |path: String, variants: &[Variant]| ParameterPath {
        path: format!("{path}/image_id"),
        variants: variants.to_vec(),
    };
    let optimized = format!("/aws/service/eks/optimized-ami/{version}");
    Ok(match family {
        AmiFamily::Al2 => {
            let name = |kind: &str| {
                if latest {
                    "recommended".to_owned()
                } else {
                    format!("amazon-eks-{kind}node-{version}-{release}")
                }
            };
            let folder = format!("{optimized}/amazon-linux-2");
            vec![
                path(format!("{folder}/{}", name("")), &[Variant::Standard]),
                path(format!("{folder}-arm64/{}", name("arm64-")), &[Variant::Standard]),
                path(format!("{folder}-gpu/{}", name("gpu-")), &[Variant::Neuron, Variant::Nvidia]),
            ]
        }
        AmiFamily::Al2023 => [
            ("x86_64", "standard", Variant::Standard),
            ("arm64", "standard", Variant::Standard),
            ("x86_64", "nvidia", Variant::Nvidia),
            ("arm64", "nvidia", Variant::Nvidia),
            ("x86_64", "neuron", Variant::Neuron),
        ]
        .into_iter()
        .map(|(arch, kind, variant)| {
            let name = if latest {
                "recommended".to_owned()
            } else {
                format!("amazon-eks-node-al2023-{arch}-{kind}-{version}-{release}")
            };
            path(format!("{optimized}/amazon-linux-2023/{arch}/{kind}/{name}"), &[variant])
        })
        .collect(),
        AmiFamily::Bottlerocket => {
            let release = release.trim_start_matches('v');
            [
                ("", "x86_64", &[Variant::Standard, Variant::Neuron][..]),
                ("", "arm64", &[Variant::Standard][..]),
                ("-nvidia", "x86_64", &[Variant::Nvidia][..]),
                ("-nvidia", "arm64", &[Variant::Nvidia][..]),
            ]
            .into_iter()
            .map(|(kind, arch, variants)| {
                let folder = format!("/aws/service/bottlerocket/aws-k8s-{version}{kind}");
                path(format!("{folder}/{arch}/{release}"), variants)
            })
            .collect()
        }
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            let year = family.as_str().trim_start_matches("Windows");
            let name = format!("Windows_Server-{year}-English-Core-EKS_Optimized-{version}");
            let folder = format!("/aws/service/ami-windows-latest/{name}");
            vec![path(folder, &[Variant::Windows(family)])]
        }
        AmiFamily::Custom => Vec::new(),
    })
}

/// Whether the image behind an alias changes over time: `latest`, and Windows always.
pub fn is_mutable(alias: &str) -> bool {
    Alias::parse(alias).is_some_and(|it| it.version == "latest" || it.family.is_windows())
}

/// One DescribeImages call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageQuery {
    /// Empty: any owner.
    pub owners: Vec<String>,
    pub filters: Query,
    /// What is known of single images beforehand, by id: each set of variants makes one entry.
    pub variants: BTreeMap<String, Vec<Variant>>,
}

fn available(mut filters: Query) -> Query {
    filters.push(Filter::new("state", &["available"]));
    filters
}

/// The call for images whose ids are known from parameters of an alias.
pub fn alias_query(images: &[(String, Vec<Variant>)]) -> Option<ImageQuery> {
    if images.is_empty() {
        return None;
    }
    let mut variants: BTreeMap<String, Vec<Variant>> = BTreeMap::new();
    for (id, served) in images {
        variants.entry(id.clone()).or_default().extend(served);
    }
    let ids: Vec<&str> = variants.keys().map(String::as_str).collect();
    let filters = available(vec![Filter::new("image-id", &ids)]);
    Some(ImageQuery { owners: Vec::new(), filters, variants })
}

/// Parameters named by `ssmParameter` terms: those of terms that an alias or id does not overrule.
pub fn parameters(spec: &EC2NodeClassSpec) -> Vec<&str> {
    let terms = spec.ami_selector_terms.iter();
    terms
        .filter(|it| it.alias.is_none() && it.id.is_none())
        .filter_map(|it| it.ssm_parameter.as_deref())
        .collect()
}

/// The calls for all terms but the alias, in order; ids come last, with those that `ssmParameter` terms gave.
/// `from_parameters` are the values of [`parameters`]; those that are no image id are left out.
pub fn queries(spec: &EC2NodeClassSpec, from_parameters: &[String]) -> Vec<ImageQuery> {
    let mut queries = Vec::new();
    let mut ids: Vec<&str> = Vec::new();
    for term in spec.ami_selector_terms.iter().filter(|it| it.alias.is_none()) {
        if let Some(id) = &term.id {
            ids.push(id);
        } else if term.ssm_parameter.is_none() {
            let mut filters = tag_filters(&term.tags);
            if let Some(name) = &term.name {
                filters.insert(0, Filter::new("name", &[name]));
            }
            let owners = match (&term.owner, &term.name) {
                (Some(owner), _) => vec![owner.clone()],
                // Otherwise anyone's public image of that name would do.
                (None, Some(_)) => vec!["self".to_owned(), "amazon".to_owned()],
                (None, None) => Vec::new(),
            };
            // A term without anything to look for would take every image there is.
            if !filters.is_empty() || !owners.is_empty() {
                let filters = available(filters);
                queries.push(ImageQuery { owners, filters, variants: BTreeMap::new() });
            }
        }
    }
    ids.extend(from_parameters.iter().map(String::as_str).filter(|it| it.starts_with("ami-")));
    ids.sort_unstable();
    ids.dedup();
    if !ids.is_empty() {
        let filters = available(vec![Filter::new("image-id", &ids)]);
        queries.push(ImageQuery { owners: Vec::new(), filters, variants: BTreeMap::new() });
    }
    queries
}

fn architecture(image: &Image) -> Option<&'static str> {
    match image.architecture.as_str() {
        "x86_64" => Some("amd64"),
        "arm64" => Some("arm64"),
        _ => None,
    }
}

fn is_deprecated(image: &Image, now: Timestamp) -> bool {
    image.deprecation_time.is_some_and(|it| it <= now)
}

/// An image and one set of requirements that it serves.
struct Entry {
    image: Image,
    deprecated: bool,
    requirements: Vec<NodeSelectorRequirement>,
}

/// Whether `new` takes the place of `old` for the same requirements: not deprecated, then newer, then by name.
fn is_better(new: &Entry, old: &Entry) -> bool {
    let rank = |it: &Entry| (!it.deprecated, it.image.creation_date, it.image.name.clone());
    rank(new).cmp(&rank(old)) == Ordering::Greater
}

/// Status entries for the answers to the queries: per set of requirements the best image, newest first, then by id.
pub fn to_status(answers: Vec<(ImageQuery, Vec<Image>)>, now: Timestamp) -> Vec<AmiStatus> {
    let mut best: Vec<Entry> = Vec::new();
    for (query, images) in answers {
        for image in images {
            let Some(arch) = architecture(&image) else { continue };
            let arch = NodeSelectorRequirement::new(labels::ARCH, Operator::In, &[arch]);
            let sets: Vec<Vec<NodeSelectorRequirement>> = match query.variants.get(&image.id) {
                Some(variants) => variants.iter().map(|it| it.requirements()).collect(),
                None => vec![Vec::new()],
            };
            for mut requirements in sets {
                requirements.push(arch.clone());
                requirements.sort_by(|a, b| (a.key.len(), &a.key).cmp(&(b.key.len(), &b.key)));
                let deprecated = is_deprecated(&image, now);
                let entry = Entry { image: image.clone(), deprecated, requirements };
                match best.iter_mut().find(|it| it.requirements == entry.requirements) {
                    Some(old) if is_better(&entry, old) => *old = entry,
                    Some(_) => {}
                    None => best.push(entry),
                }
            }
        }
    }
    let keys = |it: &Entry| it.requirements.iter().map(|it| it.key.clone()).collect::<Vec<_>>();
    best.sort_by(|a, b| {
        b.image
            .creation_date
            .cmp(&a.image.creation_date)
            .then_with(|| a.image.id.cmp(&b.image.id))
            .then_with(|| keys(a).cmp(&keys(b)))
    });
    best.into_iter()
        .map(|it| AmiStatus {
            id: it.image.id,
            name: it.image.name,
            deprecated: it.deprecated,
            requirements: it.requirements,
        })
        .collect()
}

/// The image for an instance type: the first, in status order, whose requirements the type satisfies.
pub fn choose<'a>(images: &'a [AmiStatus], instance_type: &Requirements) -> Option<&'a AmiStatus> {
    images.iter().find(|it| {
        let wanted = Requirements::from_api(&it.requirements);
        instance_type.compatible(&wanted, labels::is_well_known).is_ok()
    })
}

/// Whether an image is of the standard variant: it asks for neither GPU nor accelerator.
pub fn is_standard(image: &AmiStatus) -> bool {
    !image.requirements.iter().any(|it| {
        it.operator == Operator::Exists
            && (it.key == labels::INSTANCE_GPU_COUNT
                || it.key == labels::INSTANCE_ACCELERATOR_COUNT)
    })
}

#[cfg(test)]
#[path = "images_tests.rs"]
mod tests;
