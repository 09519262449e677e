//! EC2NodeClass, `karpenter.k8s.aws/v1` (`spec` api 10 to 13).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Condition, ObjectMeta,
    conditions::ConditionSet,
    kind,
    meta::{StringMap, null_is_default},
    node_pool::is_default,
    present::Present,
    requirements::NodeSelectorRequirement,
};

/// How instances are made: images, subnets, security groups, role, disks, kubelet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EC2NodeClass {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_is_default")]
    pub spec: EC2NodeClassSpec,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub status: EC2NodeClassStatus,
}

kind!(EC2NodeClass, "karpenter.k8s.aws", "v1", "EC2NodeClass", "ec2nodeclasses", false);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EC2NodeClassSpec {
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub capacity_reservation_selector_terms: Vec<CapacityReservationSelectorTerm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_group_selector: Option<PlacementGroupSelector>,
    /// `AL2`, `AL2023`, `Bottlerocket`, `Custom`, `Windows2019`, `Windows2022`, `Windows2025`; absent: from the alias.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami_family: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    #[serde(skip_serializing_if = "Present::is_absent")]
    pub tags: Present<StringMap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(rename = "associatePublicIPAddress", skip_serializing_if = "Option::is_none")]
    pub associate_public_ip_address: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_prefix_count: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detailed_monitoring: Option<bool>,
    /// `RAID0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_store_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_options: Option<MetadataOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_tracking: Option<ConnectionTracking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
    #[serde(skip_serializing_if = "Present::is_absent")]
    pub block_device_mappings: Present<Vec<BlockDeviceMapping>>,
    #[serde(skip_serializing_if = "Present::is_absent")]
    pub network_interfaces: Present<Vec<NetworkInterface>>,
    /// Any field of the upstream kubelet configuration, in its own JSON names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<BTreeMap<String, Value>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubnetSelectorTerm {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "StringMap::is_empty", deserialize_with = "null_is_default")]
    pub tags: StringMap,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityGroupSelectorTerm {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "StringMap::is_empty", deserialize_with = "null_is_default")]
    pub tags: StringMap,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AmiSelectorTerm {
    /// `family@version`, for instance `al2023@latest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssm_parameter: Option<String>,
    #[serde(skip_serializing_if = "StringMap::is_empty", deserialize_with = "null_is_default")]
    pub tags: StringMap,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityReservationSelectorTerm {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(rename = "ownerID", skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_match_criteria: Option<String>,
    #[serde(skip_serializing_if = "StringMap::is_empty", deserialize_with = "null_is_default")]
    pub tags: StringMap,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementGroupSelector {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Access to instance metadata; every field has a CRD default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetadataOptions {
    /// `enabled` (default) or `disabled`.
    #[serde(rename = "httpEndpoint", skip_serializing_if = "Option::is_none")]
    pub http_endpoint: Option<String>,
    /// `enabled` or `disabled` (default).
    #[serde(rename = "httpProtocolIPv6", skip_serializing_if = "Option::is_none")]
    pub http_protocol_ipv6: Option<String>,
    /// 1 (default) to 64.
    #[serde(rename = "httpPutResponseHopLimit", skip_serializing_if = "Option::is_none")]
    pub http_put_response_hop_limit: Option<i64>,
    /// `required` (default) or `optional`.
    #[serde(rename = "httpTokens", skip_serializing_if = "Option::is_none")]
    pub http_tokens: Option<String>,
}

/// Idle time-outs of tracked connections, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionTracking {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_established_timeout: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_stream_timeout: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_timeout: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CpuOptions {
    /// `enabled` or `disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nested_virtualization: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockDeviceMapping {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ebs: Option<BlockDevice>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub root_volume: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockDevice {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    #[serde(rename = "kmsKeyID", skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
    #[serde(rename = "snapshotID", skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// MiB per second, 100 to 300.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_initialization_rate: Option<i32>,
    /// The user's own text, for instance `20Gi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkInterface {
    pub network_card_index: i32,
    pub device_index: i32,
    /// `interface` or `efa-only`.
    pub interface_type: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EC2NodeClassStatus {
    /// Most free addresses first, then by id.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub subnets: Vec<SubnetStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub security_groups: Vec<SecurityGroupStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub capacity_reservations: Vec<CapacityReservationStatus>,
    /// Newest first, then by id.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub amis: Vec<AmiStatus>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instance_profile: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubnetStatus {
    pub id: String,
    pub zone: String,
    #[serde(rename = "zoneID", skip_serializing_if = "String::is_empty")]
    pub zone_id: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityGroupStatus {
    pub id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AmiStatus {
    pub id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
    pub requirements: Vec<NodeSelectorRequirement>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityReservationStatus {
    pub id: String,
    pub availability_zone: String,
    pub instance_type: String,
    pub instance_match_criteria: String,
    #[serde(rename = "ownerID")]
    pub owner_id: String,
    /// `default` or `capacity-block`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reservation_type: String,
    /// `active` or `expiring`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub state: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interruptible: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Timestamp>,
}

impl EC2NodeClass {
    pub const AMIS_READY: &str = "AMIsReady";
    pub const SUBNETS_READY: &str = "SubnetsReady";
    pub const SECURITY_GROUPS_READY: &str = "SecurityGroupsReady";
    pub const INSTANCE_PROFILE_READY: &str = "InstanceProfileReady";
    pub const CAPACITY_RESERVATIONS_READY: &str = "CapacityReservationsReady";
    pub const PLACEMENT_GROUP_READY: &str = "PlacementGroupReady";
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// What `Ready` is made of with the gate `ReservedCapacity` off.
    pub const DEPENDENTS: &[&str] = &[
        Self::AMIS_READY,
        Self::SUBNETS_READY,
        Self::SECURITY_GROUPS_READY,
        Self::INSTANCE_PROFILE_READY,
        Self::VALIDATION_SUCCEEDED,
        Self::PLACEMENT_GROUP_READY,
    ];
    /// What `Ready` is made of with the gate `ReservedCapacity` on.
    pub const DEPENDENTS_RESERVED: &[&str] = &[
        Self::AMIS_READY,
        Self::SUBNETS_READY,
        Self::SECURITY_GROUPS_READY,
        Self::INSTANCE_PROFILE_READY,
        Self::VALIDATION_SUCCEEDED,
        Self::PLACEMENT_GROUP_READY,
        Self::CAPACITY_RESERVATIONS_READY,
    ];

    /// The conditions with the rules for changing them.
    pub fn conditions_mut(&mut self, reserved_capacity: bool) -> ConditionSet<'_> {
        ConditionSet {
            generation: self.metadata.generation,
            created: self.metadata.creation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH),
            deleting: self.metadata.deletion_timestamp.is_some(),
            conditions: &mut self.status.conditions,
            dependents: if reserved_capacity {
                Self::DEPENDENTS_RESERVED
            } else {
                Self::DEPENDENTS
            },
        }
    }
}
