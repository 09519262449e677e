//! What a node is given at boot: the user data of every AMI family (`spec` aws-nodeclass 9 to 13).
//!
//! [`render`] turns a [`BootstrapInput`] into the text of a launch template's user data. Which labels and taints a
//! node registers with is decided in [`registration`], which kubelet settings it gets in [`kubelet`]. This crate
//! does not choose images, disks or instance types, and it validates only what would make the text unusable.
//!
//! Equal inputs give equal bytes: every map is written in key order.

pub mod bottlerocket;
pub mod kubelet;
pub mod mime;
mod node_config;
pub mod registration;
mod scripts;
mod toml_text;
mod yaml_text;

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use spokeshave_model::{AmiFamily, EC2NodeClass, NodeClaim, Taint};

pub use mime::MimeError;

/// Raw user data bytes that EC2 accepts: 16 KiB before base64. Source: EC2's own limit.
pub const MAX_USER_DATA_BYTES: usize = 16_384;

/// Size from which a warning is due: 90 % of the limit.
pub const WARN_USER_DATA_BYTES: usize = 14_745;

/// What all nodes of a cluster are told about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterInfo {
    pub name: String,
    /// `https://...`, as EKS gives it.
    pub endpoint: String,
    /// Base64 of the PEM bundle; empty: none.
    pub ca_bundle: String,
    /// IPv4 range, or the IPv6 one of an IPv6 cluster. AL2023 cannot boot without it.
    pub service_cidr: Option<String>,
    /// Address of the service `kube-system/kube-dns`; used where the class names no DNS server.
    pub dns_ip: Option<String>,
}

/// Everything that shapes the user data of one launch template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BootstrapInput {
    pub family: AmiFamily,
    pub cluster: ClusterInfo,
    /// Labels that the kubelet registers itself, see [`registration::labels`].
    pub labels: BTreeMap<String, String>,
    /// Taints in the order they are registered, see [`registration::taints`].
    pub taints: Vec<Taint>,
    /// Settings as they will be in effect, see [`kubelet::effective`].
    pub kubelet: BTreeMap<String, Value>,
    /// `spec.userData`.
    pub user_data: Option<String>,
    /// `spec.instanceStorePolicy` is `RAID0`.
    pub raid0: bool,
    /// Bottlerocket only: the image's version, see [`bottlerocket::image_version`].
    pub image_version: String,
}

/// What the launch has worked out for the instance types of one launch template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// Pod capacity of the types (aws-capacity 4.3).
    pub max_pods: Option<i64>,
    /// `spec.kubelet.kubeReserved` with its expressions evaluated; `None` keeps the plain quantities of the class.
    pub kube_reserved: Option<BTreeMap<String, String>>,
    /// The same for `systemReserved`.
    pub system_reserved: Option<BTreeMap<String, String>>,
}

impl BootstrapInput {
    /// The input for a claim that is launched as `capacity_type` (`spot`, `on-demand` or `reserved`).
    pub fn for_claim(
        cluster: &ClusterInfo,
        class: &EC2NodeClass,
        claim: &NodeClaim,
        capacity_type: &str,
        facts: &NodeFacts,
    ) -> Self {
        let family = class.ami_family();
        Self {
            family,
            cluster: cluster.clone(),
            labels: registration::labels(&claim.metadata.labels, capacity_type, family),
            taints: registration::taints(&claim.spec.taints, &claim.spec.startup_taints),
            kubelet: kubelet::effective(
                class.spec.kubelet.as_ref(),
                facts,
                cluster.dns_ip.as_deref(),
            ),
            user_data: class.spec.user_data.clone(),
            raid0: class.spec.instance_store_policy.as_deref() == Some("RAID0"),
            image_version: bottlerocket::image_version(class),
        }
    }
}

/// Why no user data can be made. None of these passes until the class or the settings change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// AL2023: the service range is not known (yet).
    #[error("the cluster's service CIDR is not known")]
    NoServiceCidr,
    /// The CA bundle is no base64.
    #[error("the cluster CA bundle is not valid base64")]
    InvalidCaBundle,
    /// A cluster fact would break out of the quotes of a script.
    #[error("{field} must not contain a single quote or a line break")]
    UnsafeText { field: &'static str },
    /// `spec.userData` begins like a MIME archive but is none.
    #[error("spec.userData: {0}")]
    Mime(#[from] MimeError),
    /// Bottlerocket: `spec.userData` is no TOML, or a known key has another type.
    #[error("spec.userData: invalid TOML: {0}")]
    Toml(String),
}

/// The user data as text, not yet base64.
///
/// # Errors
/// See [`RenderError`].
pub fn render(input: &BootstrapInput) -> Result<String, RenderError> {
    match input.family {
        AmiFamily::Al2 => scripts::al2(input),
        AmiFamily::Al2023 => node_config::al2023(input),
        AmiFamily::Bottlerocket => bottlerocket::render(input),
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            scripts::windows(input)
        }
        AmiFamily::Custom => Ok(input.user_data.clone().unwrap_or_default()),
    }
}

/// Base64, as launch templates carry user data.
pub fn to_base64(user_data: &str) -> String {
    STANDARD.encode(user_data)
}
