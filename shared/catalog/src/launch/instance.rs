//! A launched instance as it shows on its claim (`spec` aws-capacity 19).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spokeshave_model::{
    CapacityType, EC2NodeClass, InstanceId, InstanceType, NodeClaim, ProviderId, Resources, labels,
};
use spokeshave_ports::ec2::Instance;

use super::{PlanFacts, ReservationFacts};
use crate::capacity::EFA;

/// An instance of ours, from the fleet's answer or from EC2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Launched {
    pub id: InstanceId,
    pub instance_type: String,
    pub zone: String,
    pub image_id: String,
    pub capacity_type: CapacityType,
    pub tenancy: String,
    pub reservation: Option<ReservationFacts>,
    pub partition: Option<i64>,
    pub efa: i64,
}

/// How EC2's view of an instance reads: `spot` with a spot request; `reserved` with the gate on and the preference for
/// reservations only; else `on-demand`.
pub fn capacity_type_of(instance: &Instance, reserved_capacity: bool) -> CapacityType {
    if instance.spot {
        CapacityType::Spot
    } else if reserved_capacity
        && !instance.capacity_reservation_id.is_empty()
        && instance.capacity_reservation_preference == "capacity-reservations-only"
    {
        CapacityType::Reserved
    } else {
        CapacityType::OnDemand
    }
}

impl Launched {
    /// From what EC2 says of an instance.
    pub fn of(instance: &Instance, reserved_capacity: bool) -> Self {
        let capacity_type = capacity_type_of(instance, reserved_capacity);
        let reservation = (capacity_type == CapacityType::Reserved).then(|| ReservationFacts {
            id: instance.capacity_reservation_id.clone(),
            type_: if instance.capacity_reservation_type == "capacity-block" {
                "capacity-block".to_owned()
            } else {
                "default".to_owned()
            },
            interruptible: instance.interruptible_reservation,
        });
        Self {
            id: instance.id.clone(),
            instance_type: instance.instance_type.clone(),
            zone: instance.zone.clone(),
            image_id: instance.image_id.clone(),
            capacity_type,
            tenancy: if instance.tenancy.is_empty() {
                "default".to_owned()
            } else {
                instance.tenancy.clone()
            },
            reservation,
            partition: instance.partition.filter(|it| *it != 0),
            efa: i64::from(instance.efa_enabled),
        }
    }
}

/// Labels, annotations and status that a claim gets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimParts {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub provider_id: ProviderId,
    pub image_id: String,
    pub capacity: Resources,
    pub allocatable: Resources,
}

/// What `launched` means for `claim`. `class` and `instance_type` may be gone by now: then the claim lacks what follows
/// from them. `class_hash` is the hash of the class as launched.
pub fn claim_parts(
    claim: &NodeClaim,
    class: Option<&EC2NodeClass>,
    class_hash: &str,
    instance_type: Option<&InstanceType>,
    launched: &Launched,
    facts: &PlanFacts,
    kwok: bool,
) -> ClaimParts {
    let mut parts = ClaimParts {
        provider_id: if kwok {
            ProviderId(format!("kwok-aws:///{}/{}", launched.zone, launched.id))
        } else {
            ProviderId::aws(&launched.zone, &launched.id)
        },
        image_id: launched.image_id.clone(),
        ..ClaimParts::default()
    };
    const RESERVATION: &[&str] = &[
        labels::CAPACITY_RESERVATION_ID,
        labels::CAPACITY_RESERVATION_TYPE,
        labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
    ];
    if let Some(it) = instance_type {
        for requirement in it.requirements.iter() {
            if let (false, 1, Some(value)) =
                (requirement.complement, requirement.values.len(), requirement.values.first())
                && !RESERVATION.contains(&requirement.key.as_str())
            {
                parts.labels.insert(requirement.key.clone(), value.clone());
            }
        }
        let without_zeros = |amounts: Resources| -> Resources {
            amounts
                .iter()
                .filter(|(name, amount)| !amount.is_zero() && (*name != EFA || launched.efa > 0))
                .map(|(name, amount)| (name.to_owned(), amount))
                .collect()
        };
        parts.capacity = without_zeros(it.capacity.clone());
        parts.allocatable = without_zeros(it.allocatable());
    }
    let mut label = |key: &str, value: &str| {
        parts.labels.insert(key.to_owned(), value.to_owned());
    };
    label(labels::ZONE, &launched.zone);
    if let Some(id) = facts.zone_ids.get(&launched.zone).filter(|id| !id.is_empty()) {
        label(labels::ZONE_ID, id);
    } else {
        parts.labels.remove(labels::ZONE_ID);
    }
    let mut label = |key: &str, value: &str| {
        parts.labels.insert(key.to_owned(), value.to_owned());
    };
    label(labels::CAPACITY_TYPE, launched.capacity_type.as_str());
    label(labels::INSTANCE_TENANCY, &launched.tenancy);
    if let Some(it) = &launched.reservation {
        label(labels::CAPACITY_RESERVATION_ID, &it.id);
        label(labels::CAPACITY_RESERVATION_TYPE, &it.type_);
        label(
            labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
            if it.interruptible { "true" } else { "false" },
        );
    }
    if let Some(group) = &facts.placement_group {
        label(labels::PLACEMENT_GROUP_ID, group);
        if facts.has_partitions {
            // Empty: not known yet; registration fills it in.
            let partition = launched.partition.map(|it| it.to_string()).unwrap_or_default();
            label(labels::PLACEMENT_GROUP_PARTITION, &partition);
        }
    }
    if let Some(pool) = claim.nodepool() {
        label(labels::NODEPOOL, pool);
    }
    if let Some(class) = class {
        for (key, value) in [
            (labels::NODECLASS_HASH, class_hash),
            (labels::NODECLASS_HASH_VERSION, NODECLASS_HASH_VERSION),
            (labels::INSTANCE_PROFILE_NAME, class.status.instance_profile.as_str()),
        ] {
            parts.annotations.insert(key.to_owned(), value.to_owned());
        }
    }
    parts
}

/// Version of the EC2NodeClass hash. Source: Karpenter's API, `v6`.
pub const NODECLASS_HASH_VERSION: &str = "v6";

/// The claim with labels and annotations laid in: its own labels win, the cloud's annotations win (lifecycle 3).
pub fn merge_metadata(claim: &NodeClaim, parts: &ClaimParts) -> NodeClaim {
    let mut merged = claim.clone();
    for (key, value) in &parts.labels {
        merged.metadata.labels.entry(key.clone()).or_insert_with(|| value.clone());
    }
    for (key, value) in &parts.annotations {
        merged.metadata.annotations.insert(key.clone(), value.clone());
    }
    merged
}
