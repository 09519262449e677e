//! The checks before a class is Ready (`spec` aws-nodeclass 8, aws-capacity 21).
//!
//! [`before_calls`] is everything that needs no call, in order. Then the function asks EC2, as dry runs,
//! whether it may launch, and [`judge`] reads the answers. [`classify`] words EC2's refusals.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use spokeshave_bootstrap::kubelet::MANAGED;
use spokeshave_model::{
    AmiFamily, ConditionStatus, EC2NodeClass, Quantity, SignedDuration, conditions, hash,
};
use spokeshave_ports::AwsError;

use crate::tags;

/// A verdict of the calls is believed for so long, while nothing that it depends on changes.
pub const VERDICT_REMEMBERED_FOR: SignedDuration = SignedDuration::from_mins(30);

/// Partition of the state table: verdicts by class UID. Lost: the calls are made again.
pub const RECORDS: &str = "validation";

/// Message of the condition where an expression meets a closed gate.
pub const EXPRESSIONS_DISABLED: &str =
    "spec.kubelet contains a CEL expression, but the NodeClassCEL feature gate is disabled";

/// What the condition becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub status: ConditionStatus,
    pub reason: &'static str,
    pub message: String,
}

impl Verdict {
    fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: ConditionStatus::False, reason, message: message.into() }
    }

    /// Nothing is wrong.
    pub fn yes() -> Self {
        Self {
            status: ConditionStatus::True,
            reason: EC2NodeClass::VALIDATION_SUCCEEDED,
            message: String::new(),
        }
    }
}

/// Whether the service range, without which AL2023 cannot boot, is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceRange {
    Known,
    /// The call failed in a way that may pass.
    NotYet,
    /// The call was refused, with this, or the cluster has none.
    Missing(Option<String>),
}

/// What the expressions of `spec.kubelet` gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evaluation {
    /// All are fine, or there are none.
    Fine,
    /// They do not compile, or give no number; the text says which.
    Invalid(String),
    /// They fail for an instance type; the text says which.
    Failed(String),
    /// The instance types are not known yet.
    NotYet,
}

/// What the checks look at besides the class.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    pub service_range: ServiceRange,
    /// Problems of `spec.kubelet` by themselves, in order.
    pub kubelet_problems: &'a [String],
    pub evaluation: &'a Evaluation,
    pub node_class_cel: bool,
}

/// Where the checks without calls end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The condition is settled.
    Settled(Verdict),
    /// Nothing can be said now: the condition stays, try again.
    Retry,
    /// The calls decide.
    Ask,
}

/// Whether `spec.kubelet` holds an expression: a `maxPods` text, or a reserved value that is no quantity.
pub fn has_expressions(kubelet: Option<&BTreeMap<String, Value>>) -> bool {
    let Some(kubelet) = kubelet else { return false };
    let is_expression =
        |value: &Value| value.as_str().is_some_and(|text| text.parse::<Quantity>().is_err());
    kubelet.get("maxPods").is_some_and(Value::is_string)
        || ["kubeReserved", "systemReserved"].iter().any(|field| {
            let entries = kubelet.get(*field).and_then(Value::as_object);
            entries.is_some_and(|it| it.values().any(is_expression))
        })
}

/// What the family cannot apply of `spec.kubelet`; `None` when it applies everything.
pub fn unsupported_kubelet(
    family: AmiFamily,
    kubelet: Option<&BTreeMap<String, Value>>,
) -> Option<String> {
    let kubelet = kubelet?;
    if matches!(family, AmiFamily::Al2023 | AmiFamily::Custom) {
        return None;
    }
    let mut parts = Vec::new();
    let dropped: Vec<&str> = kubelet
        .keys()
        .map(String::as_str)
        .filter(|it| {
            !MANAGED.contains(it) || (family == AmiFamily::Bottlerocket && *it == "podsPerCore")
        })
        .collect();
    if !dropped.is_empty() {
        parts.push(format!(
            "spec.kubelet has fields not applied by the {family} AMI family that would be silently dropped: {}",
            dropped.join(", ")
        ));
    }
    let servers = kubelet.get("clusterDNS").and_then(Value::as_array).map_or(0, Vec::len);
    if servers > 1 {
        parts.push(format!(
            "spec.kubelet.clusterDNS: the {family} AMI family doesn't accept multiple entries, only one, but {servers} were set"
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The checks that need no call. Conditions of images, profile, groups and subnets are those of this pass.
pub fn before_calls(class: &EC2NodeClass, inputs: &Inputs<'_>) -> Check {
    let family = class.ami_family();
    let kubelet = class.spec.kubelet.as_ref();
    let settled = |reason, message: String| Check::Settled(Verdict::no(reason, message));
    if family == AmiFamily::Al2023 {
        match &inputs.service_range {
            ServiceRange::Known => {}
            ServiceRange::NotYet => return Check::Retry,
            ServiceRange::Missing(why) => {
                let mut message = "Failed to detect the cluster CIDR".to_owned();
                if let Some(why) = why {
                    message.push_str(": ");
                    message.push_str(why);
                }
                return settled("ClusterCIDRResolutionFailed", message);
            }
        }
    }
    if !inputs.kubelet_problems.is_empty() {
        return settled("InvalidKubeletConfiguration", inputs.kubelet_problems.join("; "));
    }
    if has_expressions(kubelet) && !inputs.node_class_cel {
        return settled("KubeletExpressionsDisabled", EXPRESSIONS_DISABLED.to_owned());
    }
    if let Evaluation::Invalid(problem) = inputs.evaluation {
        return settled("KubeletExpressionInvalid", problem.clone());
    }
    if let Some(message) = unsupported_kubelet(family, kubelet) {
        return settled("UnsupportedKubeletConfiguration", message);
    }
    if let Some(status) = dependencies(class) {
        return Check::Settled(Verdict {
            status,
            reason: "DependenciesNotReady",
            message: "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution".into(),
        });
    }
    match inputs.evaluation {
        Evaluation::Failed(problem) => {
            return settled("KubeletExpressionEvaluationFailed", problem.clone());
        }
        Evaluation::NotYet if has_expressions(kubelet) => return Check::Retry,
        _ => {}
    }
    let restricted = tags::restricted(class.spec.tags.keys());
    if !restricted.is_empty() {
        let message =
            format!("spec.tags has keys that Karpenter sets itself: {}", restricted.join(", "));
        return settled("TagValidationFailed", message);
    }
    Check::Ask
}

/// False if any condition that the calls rest on is False, else Unknown if any is Unknown. False is looked at first.
fn dependencies(class: &EC2NodeClass) -> Option<ConditionStatus> {
    let statuses: Vec<ConditionStatus> = [
        EC2NodeClass::AMIS_READY,
        EC2NodeClass::INSTANCE_PROFILE_READY,
        EC2NodeClass::SECURITY_GROUPS_READY,
        EC2NodeClass::SUBNETS_READY,
    ]
    .iter()
    .map(|it| {
        conditions::find(&class.status.conditions, it)
            .map_or(ConditionStatus::Unknown, |it| it.status)
    })
    .collect();
    [ConditionStatus::False, ConditionStatus::Unknown].into_iter().find(|it| statuses.contains(it))
}

/// What a verdict of the calls depends on, as one number: status lists, profile, spec and annotations. So any
/// annotation makes the class be checked again at once.
pub fn content_key(class: &EC2NodeClass) -> String {
    let status = &class.status;
    let content = json!([
        class.metadata.name,
        status.subnets,
        status.security_groups,
        status.amis,
        status.instance_profile,
        class.spec,
        class.metadata.annotations,
    ]);
    hash::text(&content.to_string()).to_string()
}

/// The three calls, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    CreateLaunchTemplate,
    CreateFleet,
    RunInstances,
}

impl Call {
    const fn name(self) -> &'static str {
        match self {
            Self::CreateLaunchTemplate => "CreateLaunchTemplate",
            Self::CreateFleet => "CreateFleet",
            Self::RunInstances => "RunInstances",
        }
    }

    const fn refused(self) -> &'static str {
        match self {
            Self::CreateLaunchTemplate => "CreateLaunchTemplateAuthCheckFailed",
            Self::CreateFleet => "CreateFleetAuthCheckFailed",
            Self::RunInstances => "RunInstancesAuthCheckFailed",
        }
    }
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Go on with the next call.
    Passed,
    /// Throttled or EC2's own fault: try again, the condition stays.
    Retry,
    /// The condition, to be remembered.
    Settled(Verdict),
    /// The condition, not to be remembered: try again, IAM's data may not have reached EC2.
    SettledButRetry(Verdict),
    /// Anything else: an error of this pass.
    Failed,
}

/// Reads the answer of one call; a dry run that passes is an error with a code of its own.
pub fn judge(call: Call, answer: Result<(), &AwsError>, class: &EC2NodeClass) -> Answer {
    let Err(error) = answer else { return Answer::Passed };
    if error.is_dry_run_passed() {
        return Answer::Passed;
    }
    if error.is_retryable() {
        return Answer::Retry;
    }
    if error.is_unauthorized() {
        let (_, text) = classify(error);
        let prefix = format!("Controller isn't authorized to call ec2:{}", call.name());
        let message = format!("{prefix}: {text}; {}", error.explain());
        return Answer::Settled(Verdict::no(call.refused(), message));
    }
    let too_large = error.message.contains("User data is limited to");
    if call == Call::CreateLaunchTemplate && too_large {
        let (_, text) = classify(error);
        return Answer::Settled(Verdict::no(
            "UserDataSizeLimitExceeded",
            format!(
                "ec2:CreateLaunchTemplate rejected the rendered user data as too large: {text}; {}",
                error.explain()
            ),
        ));
    }
    let no_profile = error.code == "InvalidParameterValue"
        && error.message.contains("Invalid IAM Instance Profile name");
    if call == Call::RunInstances && no_profile {
        return match &class.spec.instance_profile {
            Some(name) => Answer::SettledButRetry(Verdict::no(
                "InstanceProfileNotFound",
                format!("Instance profile \"{name}\" not found; {}", error.explain()),
            )),
            None => Answer::Retry,
        };
    }
    Answer::Failed
}

/// Reason and text for a refusal of EC2, by the first thing that its text contains. Also used for failed launches.
pub fn classify(error: &AwsError) -> (&'static str, String) {
    let text = format!("{}: {}", error.code, error.message);
    let contains = |part: &str| text.contains(part);
    let user = |what: &str| format!("User is not authorized {what}");
    let perform = "to perform this operation";
    if contains("AuthFailure.ServiceLinkedRoleCreationNotPermitted") {
        return (
            "SpotSLRCreationFailed",
            user("to create the service-linked role that spot instances need"),
        );
    }
    if ["UnauthorizedOperation", "AccessDenied", "AuthFailure"].iter().any(|it| contains(it)) {
        return if contains("with an explicit deny in a permissions boundary") {
            ("Unauthorized", user(&format!("{perform} due to a permission boundary")))
        } else if contains("with an explicit deny in a service control policy") {
            ("Unauthorized", user(&format!("{perform} due to a service control policy")))
        } else if contains("Not authorized for images") {
            ("AMIAuthorizationFailure", user("for AMI used in instance launch"))
        } else {
            ("Unauthorized", user(&format!("{perform} because no identity-based policy allows it")))
        };
    }
    if contains("InvalidParameter") && contains("belong to different networks") {
        let message = "Security groups and subnets belong to different VPCs";
        return ("SecurityGroupSubnetVPCMismatch", message.to_owned());
    }
    for (part, reason, message) in [
        (
            "iamInstanceProfile.name is invalid",
            "InstanceProfileNameInvalid",
            "Instance profile of the node class does not exist",
        ),
        (
            "InvalidLaunchTemplateId.NotFound",
            "LaunchTemplateNotFound",
            "Launch template does not exist any more",
        ),
        (
            "InvalidLaunchTemplateName.NotFound",
            "LaunchTemplateNotFound",
            "Launch template does not exist any more",
        ),
        (
            "User data is limited to",
            "UserDataSizeLimitExceeded",
            "Rendered user data exceeds the EC2 user data size limit",
        ),
        ("InvalidAMIID.Malformed", "InvalidAMIID", "AMI id is malformed"),
        ("InvalidAMIID.NotFound", "AMINotFound", "AMI does not exist or is not shared with us"),
        ("RequestLimitExceeded", "RequestLimitExceeded", "EC2 throttled the request"),
        ("InternalError", "InternalError", "EC2 had an internal error"),
        (
            "not eligible for Free Tier",
            "FreeTierIneligible",
            "Instance type is not eligible for the free tier",
        ),
        ("MaxFleetCountExceeded", "FleetQuotaExceeded", "Quota of fleet requests is used up"),
        (
            "PendingVerification",
            "AccountPendingVerification",
            "Account is still being verified in this region",
        ),
        ("MaxSpotInstanceCountExceeded", "SpotQuotaExceeded", "Spot quota is used up"),
        ("VcpuLimitExceeded", "VCPULimitExceeded", "vCPU quota is used up"),
        (
            "InsufficientFreeAddressesInSubnet",
            "InsufficientFreeAddressesInSubnet",
            "Subnet has no free addresses",
        ),
    ] {
        if contains(part) {
            return (reason, message.to_owned());
        }
    }
    ("LaunchFailed", text)
}

#[cfg(test)]
#[path = "validation_tests.rs"]
mod tests;
