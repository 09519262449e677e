//! IAM, SSM, EKS, Pricing and Auto Scaling, as far as they are needed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use spokeshave_model::InstanceId;

use crate::AwsError;

/// An IAM instance profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceProfile {
    pub name: String,
    pub path: String,
    pub arn: String,
    /// Role names; EC2 profiles hold at most one.
    pub roles: Vec<String>,
    pub tags: BTreeMap<String, String>,
    pub created: Option<Timestamp>,
}

/// Instance profiles.
pub trait Iam {
    /// `None` when it does not exist.
    async fn get_instance_profile(&self, name: &str) -> Result<Option<InstanceProfile>, AwsError>;
    /// Fails with `EntityAlreadyExists` when it exists.
    async fn create_instance_profile(
        &self,
        name: &str,
        path: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<InstanceProfile, AwsError>;
    async fn tag_instance_profile(
        &self,
        name: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<(), AwsError>;
    async fn add_role(&self, profile: &str, role: &str) -> Result<(), AwsError>;
    /// A role that is not in it is `Ok`.
    async fn remove_role(&self, profile: &str, role: &str) -> Result<(), AwsError>;
    /// One that is gone is `Ok`.
    async fn delete_instance_profile(&self, name: &str) -> Result<(), AwsError>;
    /// All profiles under `path_prefix`; tags are filled in.
    async fn list_instance_profiles(
        &self,
        path_prefix: &str,
    ) -> Result<Vec<InstanceProfile>, AwsError>;
    /// `None` when the role does not exist.
    async fn get_role(&self, name: &str) -> Result<Option<String>, AwsError>;
}

/// A parameter of the parameter store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    pub name: String,
    pub value: String,
}

/// The parameter store.
pub trait Ssm {
    /// `None` when there is no such parameter.
    async fn get_parameter(&self, name: &str) -> Result<Option<String>, AwsError>;
    /// Every parameter under `path`, recursively.
    async fn get_parameters_by_path(&self, path: &str) -> Result<Vec<Parameter>, AwsError>;
}

/// What EKS says of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFacts {
    pub name: String,
    pub arn: String,
    pub endpoint: String,
    /// Base64 of the PEM bundle.
    pub certificate_authority: String,
    /// `1.34`.
    pub version: String,
    pub service_ipv4_cidr: String,
    pub service_ipv6_cidr: String,
    /// `ipv4` or `ipv6`.
    pub ip_family: String,
    pub vpc_id: String,
}

/// EKS.
pub trait Eks {
    async fn describe_cluster(&self, name: &str) -> Result<ClusterFacts, AwsError>;
}

/// The price list.
pub trait Pricing {
    /// On-demand Linux prices of `region` in dollars (or yuan in China) per hour, by instance type.
    async fn on_demand_prices(&self, region: &str) -> Result<BTreeMap<String, f64>, AwsError>;
}

/// Traffic of the cluster is being shifted away from a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZonalShift {
    /// A zone id.
    pub away_from: String,
    /// `APPLIED` or `NOT_APPLIED`.
    pub applied_status: String,
    pub expires_at: Option<Timestamp>,
}

/// Application Recovery Controller.
pub trait ZonalShifts {
    /// The shifts of a managed resource, by its ARN.
    async fn zonal_shifts(&self, resource: &str) -> Result<Vec<ZonalShift>, AwsError>;
}

/// Where there is no client of the Application Recovery Controller: every call fails and says so.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoZonalShifts;

impl ZonalShifts for NoZonalShifts {
    async fn zonal_shifts(&self, _resource: &str) -> Result<Vec<ZonalShift>, AwsError> {
        let message = "this build has no client of the Application Recovery Controller";
        Err(AwsError::new("arc-zonal-shift", "GetManagedResource", "Unsupported", message))
    }
}

/// A lifecycle hook of an Auto Scaling group holds an instance until somebody answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LifecycleAction {
    pub group: String,
    pub hook: String,
    /// Empty when the sender left it out: then the instance alone says which action is meant.
    pub token: String,
    pub instance: InstanceId,
}

/// Auto Scaling.
pub trait AutoScaling {
    /// Answers `CONTINUE`: the group goes on. Fails with `ValidationError` when no such action is under way.
    async fn complete_lifecycle_action(&self, action: &LifecycleAction) -> Result<(), AwsError>;
    /// Starts the hook's time-out anew. Fails with `ValidationError` when no such action is under way.
    async fn record_lifecycle_heartbeat(&self, action: &LifecycleAction) -> Result<(), AwsError>;
}
