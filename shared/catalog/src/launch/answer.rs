//! What a fleet's answer means (`spec` aws-capacity 18).

use std::collections::BTreeSet;

use spokeshave_model::CapacityType;
use spokeshave_ports::{AwsError, ec2::FleetError};

use super::PlanFacts;
use crate::Mark;

/// Codes that say "not to be had", which another offering may cure.
pub const UNFULFILLABLE: &[&str] = &[
    "InsufficientFreeAddressesInSubnet",
    "InsufficientInstanceCapacity",
    "MaxFleetCountExceeded",
    "MaxSpotInstanceCountExceeded",
    "ReservationCapacityExceeded",
    "UnfulfillableCapacity",
    "Unsupported",
    "VcpuLimitExceeded",
];

/// The spot service-linked role does not exist and we may not create it.
pub const NO_SPOT_ROLE: &str = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";

/// EC2 refuses a launch because a template of the request is gone.
pub const NO_TEMPLATE: &str = "InvalidLaunchTemplateName.NotFoundException";

const NO_ADDRESSES: &str = "InsufficientFreeAddressesInSubnet";
/// A spread placement group takes seven instances per zone; EC2 says so in words only.
const SPREAD_LIMIT: &str = "limit of instances in this spread placement group";

/// Whether a code is one of [`UNFULFILLABLE`].
pub fn is_unfulfillable(code: &str) -> bool {
    UNFULFILLABLE.contains(&code)
}

/// Reason and message of the `Launched` condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub reason: &'static str,
    pub message: String,
}

/// Texts of errors, the reason they stand for, what to tell and what to do. The first that is contained counts; capacity
/// comes last because in a mixture the other error is the interesting one.
const REASONS: &[(&str, &str, &str, &str)] = &[
    (
        "iamInstanceProfile.name is invalid",
        "InstanceProfileNameInvalid",
        "the instance profile in the EC2NodeClass's status does not exist",
        "it is made anew with spec.role; with spec.instanceProfile create it",
    ),
    (
        "InvalidLaunchTemplateId.NotFound",
        "LaunchTemplateNotFound",
        "the launch template vanished",
        "it is made anew",
    ),
    // The same for a template that is named as ours are.
    (NO_TEMPLATE, "LaunchTemplateNotFound", "the launch template vanished", "it is made anew"),
    (
        "User data is limited to",
        "UserDataSizeLimitExceeded",
        "the rendered user data is larger than EC2 takes",
        "shorten spec.userData",
    ),
    (
        "InvalidAMIID.Malformed",
        "InvalidAMIID",
        "the image id is invalid",
        "correct spec.amiSelectorTerms",
    ),
    (
        "InvalidAMIID.NotFound",
        "AMINotFound",
        "the image does not exist or is not shared with this account",
        "share it, or correct spec.amiSelectorTerms",
    ),
    (
        "RequestLimitExceeded",
        "RequestLimitExceeded",
        "EC2 throttled the request",
        "it is tried again",
    ),
    ("InternalError", "InternalError", "EC2 failed internally", "it is tried again"),
    (
        "not eligible for Free Tier",
        "FreeTierIneligible",
        "the instance type is not in the free tier",
        "allow other types in the NodePool, or leave the free plan",
    ),
    (
        "MaxFleetCountExceeded",
        "FleetQuotaExceeded",
        "the quota of fleet requests is used up",
        "raise it in Service Quotas",
    ),
    (
        "PendingVerification",
        "AccountPendingVerification",
        "the account is still being verified in this region",
        "wait for AWS to finish",
    ),
    (
        "MaxSpotInstanceCountExceeded",
        "SpotQuotaExceeded",
        "the quota of spot instances is used up",
        "raise it in Service Quotas, or allow on-demand",
    ),
    (
        "VcpuLimitExceeded",
        "VCPULimitExceeded",
        "the vCPU quota is used up",
        "raise it in Service Quotas",
    ),
    (
        NO_ADDRESSES,
        "InsufficientFreeAddressesInSubnet",
        "the subnet has no free address",
        "select more or larger subnets",
    ),
];

/// The reason that an error's text stands for; the raw text follows in the message (18.4).
pub fn reason(text: &str) -> Reason {
    let has = |part: &str| text.contains(part);
    let (reason, told, advice) = if has(NO_SPOT_ROLE) {
        (
            "SpotSLRCreationFailed",
            "the spot service-linked role may not be created",
            "create it with `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`",
        )
    } else if has("UnauthorizedOperation") || has("AccessDenied") || has("AuthFailure") {
        if has("with an explicit deny in a permissions boundary") {
            (
                "Unauthorized",
                "denied by a permissions boundary",
                "allow the call in the boundary of the function's role",
            )
        } else if has("with an explicit deny in a service control policy") {
            (
                "Unauthorized",
                "denied by a service control policy",
                "ask the organization's administrator",
            )
        } else if has("Not authorized for images") {
            ("AMIAuthorizationFailure", "this account may not use the image", "have it shared")
        } else {
            (
                "Unauthorized",
                "no identity policy allows it",
                "allow the call to the function's role",
            )
        }
    } else if has("InvalidParameter") && has("belong to different networks") {
        (
            "SecurityGroupSubnetVPCMismatch",
            "security groups and subnets are in different VPCs",
            "correct the selector terms of the EC2NodeClass",
        )
    } else {
        match REASONS.iter().find(|(part, ..)| has(part)) {
            Some((_, reason, told, advice)) => (*reason, *told, *advice),
            None => return Reason { reason: "LaunchFailed", message: text.to_owned() },
        }
    };
    // DIFFERENCE: Karpenter tells its fixed sentence alone; what EC2 said is worth reading.
    Reason { reason, message: format!("{told}; {advice}: {text}") }
}

/// `code: message` and where it came from, as one line.
pub fn error_text(error: &AwsError) -> String {
    format!("{}: {} ({})", error.code, error.said(), error.origin())
}

/// What one error of an answer brings about besides the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// Leave it out for a while.
    Mark(Mark),
    /// Nothing left in the reservation.
    ExhaustReservation(String),
    /// The subnet has no free address.
    ExhaustSubnet(String),
    /// A warning event on the claim that quotes the code.
    SpotRoleEvent(String),
}

/// Consequences of the errors, each once, in the order of errors.
///
/// DIFFERENCE: missing parts of an error are empty and mark nothing (Karpenter crashes); account limits
/// (`MaxFleetCountExceeded`, ...) still mark one pool, as Karpenter's dashboards expect.
pub fn consequences(errors: &[FleetError], facts: &PlanFacts) -> Vec<Consequence> {
    let reserved = facts.capacity_type == CapacityType::Reserved;
    let mut result: Vec<Consequence> = Vec::new();
    let mut push = |it: Consequence| {
        if !result.contains(&it) {
            result.push(it);
        }
    };
    for error in errors {
        if error.code == NO_ADDRESSES && !error.subnet_id.is_empty() {
            push(Consequence::Mark(Mark::Subnet(error.subnet_id.clone())));
            push(Consequence::ExhaustSubnet(error.subnet_id.clone()));
        }
        if error.code == NO_SPOT_ROLE && !reserved {
            push(Consequence::Mark(Mark::CapacityType(CapacityType::Spot)));
            push(Consequence::SpotRoleEvent(error.code.clone()));
        }
        if !is_unfulfillable(&error.code) || error.zone.is_empty() {
            continue;
        }
        let group = facts.placement_group.clone();
        let spread = group.is_some() && error.message.contains(SPREAD_LIMIT);
        let offering = |instance_type: &str, partition: Option<i64>| {
            Consequence::Mark(Mark::Offering {
                capacity_type: facts.capacity_type,
                instance_type: instance_type.to_owned(),
                zone: error.zone.clone(),
                group: group.clone(),
                partition,
            })
        };
        if reserved {
            let key = format!("{}/{}", error.instance_type, error.zone);
            if let Some(reservation) = facts.reservations.get(&key)
                && !spread
            {
                push(Consequence::ExhaustReservation(reservation.id.clone()));
            }
        } else if spread {
            for name in &facts.types {
                push(offering(name, None));
            }
        } else if !error.instance_type.is_empty() {
            push(offering(&error.instance_type, facts.partition));
        }
    }
    result
}

/// What a claim that got no instance is told (18.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoInstance {
    /// Not to be had: give the claim up.
    InsufficientCapacity(String),
    /// Keep the claim and try again.
    Create(Reason),
}

/// What errors without an instance mean. `batched` says that the fleet was shared: then an answer without any error is
/// one too, `too few instances returned`.
pub fn no_instance(errors: &[FleetError], batched: bool) -> NoInstance {
    let texts: BTreeSet<String> =
        errors.iter().map(|it| format!("{}: {}", it.code, it.message)).collect();
    let joined = texts.into_iter().collect::<Vec<_>>().join("; ");
    if errors.is_empty() && batched {
        let text = "too few instances returned";
        return NoInstance::Create(reason(&format!("{text}: {text}")));
    }
    if errors.iter().all(|it| is_unfulfillable(&it.code) || it.code == NO_SPOT_ROLE) {
        NoInstance::InsufficientCapacity(joined)
    } else {
        NoInstance::Create(reason(&joined))
    }
}
