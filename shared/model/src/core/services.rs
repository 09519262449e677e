//! Services and Leases.

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

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
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "null_is_default",
        serialize_with = "micro_time"
    )]
    pub acquire_time: Option<Timestamp>,
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "null_is_default",
        serialize_with = "micro_time"
    )]
    pub renew_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub lease_transitions: Option<i32>,
}

/// Writes a time as the API server reads a `MicroTime`: with six digits after the point, no more and no fewer.
#[allow(clippy::ref_option, reason = "the signature that serde asks for")]
fn micro_time<S: Serializer>(time: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => to.serialize_str(&format!("{time:.6}")),
        None => to.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test] // The API server refuses a Lease whose times have another number of digits.
    fn a_lease_s_times_have_six_digits() {
        for (given, written) in [
            ("2026-01-05T08:20:00Z", "2026-01-05T08:20:00.000000Z"),
            ("2026-01-05T08:20:00.5Z", "2026-01-05T08:20:00.500000Z"),
            ("2026-01-05T08:20:00.303411238Z", "2026-01-05T08:20:00.303411Z"),
        ] {
            let at = given.parse::<Timestamp>().ok();
            let spec = LeaseSpec { acquire_time: at, renew_time: at, ..LeaseSpec::default() };
            let written = json!({"acquireTime": written, "renewTime": written});
            assert_eq!(serde_json::to_value(&spec).ok(), Some(written), "{given}");
        }
        let empty = serde_json::to_value(LeaseSpec::default()).ok();
        assert_eq!(empty, Some(json!({})));
    }
}
