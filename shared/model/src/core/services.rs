//! Services and Leases.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    ObjectMeta, kind,
    meta::{StringMap, null_is_default},
    node_pool::is_default,
};

/// Service, `v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Service {
    pub metadata: ObjectMeta,
    pub spec: ServiceSpec,
}
kind!(Service, "", "v1", "Service", "services", true);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    #[serde(
        rename = "clusterIP",
        skip_serializing_if = "is_default",
        deserialize_with = "null_is_default"
    )]
    pub cluster_ip: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub selector: StringMap,
}

/// Lease, `coordination.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lease {
    pub metadata: ObjectMeta,
    pub spec: LeaseSpec,
}
kind!(Lease, "coordination.k8s.io", "v1", "Lease", "leases", true);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub holder_identity: Option<String>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub lease_duration_seconds: Option<i32>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub acquire_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub renew_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub lease_transitions: Option<i32>,
}
