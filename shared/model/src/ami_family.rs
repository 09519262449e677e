//! AMI families and aliases (`spec` api 10.4, aws-nodeclass 6.1).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ec2_node_class::{BlockDevice, BlockDeviceMapping, EC2NodeClass, EC2NodeClassSpec};

/// The family of images: it decides user data, default disks and which kubelet settings can be applied.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum AmiFamily {
    #[serde(rename = "AL2")]
    Al2,
    #[serde(rename = "AL2023")]
    Al2023,
    Bottlerocket,
    Windows2019,
    Windows2022,
    Windows2025,
    /// The image decides everything; we add nothing.
    #[default]
    Custom,
}

impl AmiFamily {
    pub const ALL: &[Self] = &[
        Self::Al2,
        Self::Al2023,
        Self::Bottlerocket,
        Self::Windows2019,
        Self::Windows2022,
        Self::Windows2025,
        Self::Custom,
    ];

    /// As `spec.amiFamily` spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Al2 => "AL2",
            Self::Al2023 => "AL2023",
            Self::Bottlerocket => "Bottlerocket",
            Self::Windows2019 => "Windows2019",
            Self::Windows2022 => "Windows2022",
            Self::Windows2025 => "Windows2025",
            Self::Custom => "Custom",
        }
    }

    /// From `spec.amiFamily`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.as_str() == text)
    }

    /// From the part of an alias before `@`; lower case only.
    pub fn from_alias(text: &str) -> Option<Self> {
        match text {
            "al2" => Some(Self::Al2),
            "al2023" => Some(Self::Al2023),
            "bottlerocket" => Some(Self::Bottlerocket),
            "windows2019" => Some(Self::Windows2019),
            "windows2022" => Some(Self::Windows2022),
            "windows2025" => Some(Self::Windows2025),
            _ => None,
        }
    }

    pub const fn is_windows(self) -> bool {
        matches!(self, Self::Windows2019 | Self::Windows2022 | Self::Windows2025)
    }

    /// The value of `node.kubernetes.io/windows-build`.
    pub const fn windows_build(self) -> Option<&'static str> {
        match self {
            Self::Windows2019 => Some("10.0.17763"),
            Self::Windows2022 => Some("10.0.20348"),
            Self::Windows2025 => Some("10.0.26100"),
            _ => None,
        }
    }

    /// The disks of a class without `blockDeviceMappings`: gp3, encrypted. `Custom` has none.
    pub fn default_block_devices(self) -> Vec<BlockDeviceMapping> {
        let device = |name: &str, size: &str| BlockDeviceMapping {
            device_name: Some(name.to_owned()),
            ebs: Some(BlockDevice {
                encrypted: Some(true),
                volume_size: Some(size.to_owned()),
                volume_type: Some("gp3".to_owned()),
                ..BlockDevice::default()
            }),
            root_volume: false,
        };
        match self {
            Self::Al2 | Self::Al2023 => vec![device("/dev/xvda", "20Gi")],
            Self::Bottlerocket => vec![device("/dev/xvda", "4Gi"), device("/dev/xvdb", "20Gi")],
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => {
                vec![device("/dev/sda1", "50Gi")]
            }
            Self::Custom => Vec::new(),
        }
    }
}

impl fmt::Display for AmiFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An alias such as `al2023@latest`, taken apart at its only `@`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    pub family: AmiFamily,
    pub version: String,
}

impl Alias {
    /// `None` when the family is unknown, a part is missing, or there is more than one `@`.
    pub fn parse(text: &str) -> Option<Self> {
        let (family, version) = text.split_once('@')?;
        if version.is_empty() || version.contains('@') {
            return None;
        }
        Some(Self { family: AmiFamily::from_alias(family)?, version: version.to_owned() })
    }
}

impl EC2NodeClassSpec {
    /// The text of the first alias term.
    pub fn alias(&self) -> Option<&str> {
        self.ami_selector_terms.iter().find_map(|it| it.alias.as_deref())
    }

    /// `spec.amiFamily`, else the family of the alias, else `Custom`.
    pub fn ami_family(&self) -> AmiFamily {
        let named = self.ami_family.as_deref().and_then(AmiFamily::parse);
        let alias = || self.alias()?.split('@').next().and_then(AmiFamily::from_alias);
        named.or_else(alias).unwrap_or_default()
    }

    /// The class's own disks, or those of its family.
    pub fn effective_block_devices(&self) -> Vec<BlockDeviceMapping> {
        if self.block_device_mappings.is_empty() {
            self.ami_family().default_block_devices()
        } else {
            self.block_device_mappings.to_vec()
        }
    }
}

impl EC2NodeClass {
    /// See [`EC2NodeClassSpec::ami_family`].
    pub fn ami_family(&self) -> AmiFamily {
        self.spec.ami_family()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec2_node_class::AmiSelectorTerm;

    #[test] // aws-nodeclass 1, case 6; api 10.2, consequence 6
    fn aliases() {
        let parsed = |text| Alias::parse(text).map(|it| (it.family, it.version));
        assert_eq!(parsed("al2023@v20250501"), Some((AmiFamily::Al2023, "v20250501".into())));
        assert_eq!(parsed("bottlerocket@latest"), Some((AmiFamily::Bottlerocket, "latest".into())));
        for text in ["AL2023@latest", "al2023", "al2023@", "ubuntu@latest", "al2023@a@b"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test] // api 10, case 7
    fn the_family_comes_from_the_field_then_the_alias() {
        let spec = |family: Option<&str>, alias: Option<&str>| EC2NodeClassSpec {
            ami_family: family.map(str::to_owned),
            ami_selector_terms: vec![AmiSelectorTerm {
                alias: alias.map(str::to_owned),
                ..AmiSelectorTerm::default()
            }],
            ..EC2NodeClassSpec::default()
        };
        for (family, alias, want) in [
            (Some("Custom"), Some("al2023@latest"), AmiFamily::Custom),
            (None, Some("al2023@latest"), AmiFamily::Al2023),
            (None, Some("windows2022@latest"), AmiFamily::Windows2022),
            (Some("AL2"), None, AmiFamily::Al2),
            (None, None, AmiFamily::Custom),
        ] {
            assert_eq!(spec(family, alias).ami_family(), want, "{family:?} {alias:?}");
        }
    }
}
