//! What makes a running instance differ from its class (`spec` aws-nodeclass 18), and the partition of a placement
//! group, which EC2 tells only after the launch.
//!
//! The class is the one that the NodePool's template names now, not the claim's own reference.

use std::{collections::BTreeSet, fmt};

use spokeshave_model::{EC2NodeClass, NodeClaim, Requirements, labels};
use spokeshave_ports::ec2::{Instance, PlacementGroup};

use crate::{images, reservations::is_reserved};

/// Why a claim counts as drifted: reason of its condition and label of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drift {
    NodeClass,
    Ami,
    SecurityGroup,
    Subnet,
    CapacityReservation,
    PlacementGroup,
}

impl Drift {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NodeClass => "NodeClassDrift",
            Self::Ami => "AMIDrift",
            Self::SecurityGroup => "SecurityGroupDrift",
            Self::Subnet => "SubnetDrift",
            Self::CapacityReservation => "CapacityReservationDrift",
            Self::PlacementGroup => "PlacementGroupDrift",
        }
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why there is no verdict: the condition stays as it is. One throttled call must not roll a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoVerdict {
    #[error("the claim's instance type is not known")]
    UnknownInstanceType,
    #[error("the class has no images in its status")]
    NoImages,
    #[error("the claim has no image in its status")]
    NoImageOnClaim,
    #[error("the class has no security groups in its status")]
    NoSecurityGroups,
    #[error("the class has no subnets in its status")]
    NoSubnets,
    #[error("the instance is gone")]
    NoInstance,
}

/// The placement group that the class's selector means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group<'a> {
    /// No selector, or a selector that finds nothing.
    None,
    Found(&'a PlacementGroup),
    /// EC2 did not answer and nothing is remembered.
    ///
    /// DIFFERENCE: Karpenter takes this for "no group" and drifts every node of the class.
    Unknown,
}

/// Whether both sides carry a hash of the same version and the hashes differ.
pub fn static_drift(class: &EC2NodeClass, claim: &NodeClaim) -> bool {
    let hash =
        |it: &'static str| Some((class.metadata.annotation(it)?, claim.metadata.annotation(it)?));
    let (Some((class_hash, claim_hash)), Some((class_version, claim_version))) =
        (hash(labels::NODECLASS_HASH), hash(labels::NODECLASS_HASH_VERSION))
    else {
        return false;
    };
    class_version == claim_version && class_hash != claim_hash
}

/// Whether the class would now choose another image for this instance type, or none.
///
/// # Errors
/// When nothing can be said.
pub fn ami_drift(
    class: &EC2NodeClass,
    claim: &NodeClaim,
    instance_type: Option<&Requirements>,
) -> Result<bool, NoVerdict> {
    let instance_type = instance_type.ok_or(NoVerdict::UnknownInstanceType)?;
    if class.status.amis.is_empty() {
        return Err(NoVerdict::NoImages);
    }
    if claim.status.image_id.is_empty() {
        return Err(NoVerdict::NoImageOnClaim);
    }
    let chosen = images::choose(&class.status.amis, instance_type);
    Ok(chosen.is_none_or(|it| it.id != claim.status.image_id))
}

/// What the instance itself tells. All four are looked at before the first is taken, so that an answer
/// never depends on which of the calls failed.
///
/// # Errors
/// When nothing can be said.
pub fn instance_drift(
    class: &EC2NodeClass,
    claim: &NodeClaim,
    instance: &Instance,
    group: Group<'_>,
    reserved_capacity: bool,
) -> Result<Option<Drift>, NoVerdict> {
    let status = &class.status;
    if status.security_groups.is_empty() {
        return Err(NoVerdict::NoSecurityGroups);
    }
    if status.subnets.is_empty() {
        return Err(NoVerdict::NoSubnets);
    }
    let wanted: BTreeSet<&str> = status.security_groups.iter().map(|it| it.id.as_str()).collect();
    let has: BTreeSet<&str> = instance.security_groups.iter().map(String::as_str).collect();
    let reservation = instance.capacity_reservation_id.as_str();
    let left_reservation = is_reserved(instance, reserved_capacity)
        && !status.capacity_reservations.iter().any(|it| it.id == reservation);
    let label = claim.metadata.label(labels::PLACEMENT_GROUP_ID).unwrap_or_default();
    let other_group = match group {
        Group::None => !label.is_empty(),
        Group::Found(group) => group.id != label,
        Group::Unknown => false,
    };
    Ok([
        (wanted != has, Drift::SecurityGroup),
        (!status.subnets.iter().any(|it| it.id == instance.subnet_id), Drift::Subnet),
        (left_reservation, Drift::CapacityReservation),
        (other_group, Drift::PlacementGroup),
    ]
    .into_iter()
    .find_map(|(holds, drift)| holds.then_some(drift)))
}

/// All of it in order. `instance_type` are the requirements of the claim's type as its NodePool sees it; `instance` is
/// read from EC2 for this purpose, so a reservation that just ended is not taken for one that was left.
///
/// # Errors
/// When nothing can be said: the `Drifted` condition then stays as it is.
pub fn drift(
    class: &EC2NodeClass,
    claim: &NodeClaim,
    instance_type: Option<&Requirements>,
    instance: Option<&Instance>,
    group: Group<'_>,
    reserved_capacity: bool,
) -> Result<Option<Drift>, NoVerdict> {
    if class.metadata.deleting() {
        return Ok(None);
    }
    if static_drift(class, claim) {
        return Ok(Some(Drift::NodeClass));
    }
    if ami_drift(class, claim, instance_type)? {
        return Ok(Some(Drift::Ami));
    }
    let instance = instance.ok_or(NoVerdict::NoInstance)?;
    instance_drift(class, claim, instance, group, reserved_capacity)
}

/// What registration of a node in a partition placement group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// Nothing to wait for.
    Proceed,
    /// EC2 does not tell the partition yet.
    Wait,
    /// Set the label to this number, then proceed.
    Set(i64),
}

/// Whether registration may go on: a claim whose partition label is there but empty waits for the number, so that a
/// spread over partitions never sees a wrong one. `instance` is read past any cache; `None` without provider id.
pub fn partition(claim: &NodeClaim, instance: Option<&Instance>) -> Partition {
    let in_group = claim.metadata.label(labels::PLACEMENT_GROUP_ID).is_some();
    let unknown = claim.metadata.label(labels::PLACEMENT_GROUP_PARTITION) == Some("");
    if !in_group || !unknown {
        return Partition::Proceed;
    }
    match instance.and_then(|it| it.partition).filter(|it| *it > 0) {
        Some(number) => Partition::Set(number),
        None => Partition::Wait,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use spokeshave_model::Requirement;

    use super::*;

    fn class(value: Value) -> EC2NodeClass {
        serde_json::from_value(value).expect("a class")
    }

    fn claim(value: Value) -> NodeClaim {
        serde_json::from_value(value).expect("a claim")
    }

    fn hashes(hash: &str, version: &str) -> Value {
        json!({
            "karpenter.k8s.aws/ec2nodeclass-hash": hash,
            "karpenter.k8s.aws/ec2nodeclass-hash-version": version,
        })
    }

    fn status() -> Value {
        json!({
            "amis": [
                {"id": "ami-g", "requirements": [
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                    {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Exists"},
                ]},
                {"id": "ami-s", "requirements": [
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                    {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "DoesNotExist"},
                ]},
            ],
            "securityGroups": [{"id": "sg-1"}, {"id": "sg-2"}],
            "subnets": [{"id": "subnet-1", "zone": "a"}],
        })
    }

    fn instance_type(gpus: Option<&str>) -> Requirements {
        let gpus = match gpus {
            Some(count) => Requirement::equals(labels::INSTANCE_GPU_COUNT, count),
            None => Requirement::does_not_exist(labels::INSTANCE_GPU_COUNT),
        };
        [Requirement::equals(labels::ARCH, "amd64"), gpus].into_iter().collect()
    }

    fn instance() -> Instance {
        Instance {
            subnet_id: "subnet-1".into(),
            security_groups: vec!["sg-2".into(), "sg-1".into()],
            ..Instance::default()
        }
    }

    fn judge(
        class: &EC2NodeClass,
        claim: &NodeClaim,
        instance: &Instance,
        group: Group<'_>,
    ) -> Result<Option<Drift>, NoVerdict> {
        drift(class, claim, Some(&instance_type(None)), Some(instance), group, true)
    }

    #[test] // aws-nodeclass 18, cases 1 and 2; api 11, case 8
    fn the_hash_counts_only_between_equal_versions() {
        let moved = Instance { subnet_id: "subnet-9".into(), ..instance() };
        for (class_hashes, claim_hashes, want) in [
            (hashes("1", "v6"), hashes("2", "v6"), Ok(Some(Drift::NodeClass))),
            (hashes("1", "v6"), hashes("2", "v5"), Ok(Some(Drift::Subnet))),
            (hashes("1", "v6"), json!({}), Ok(Some(Drift::Subnet))),
            (hashes("1", "v6"), hashes("1", "v6"), Ok(Some(Drift::Subnet))),
        ] {
            let class =
                class(json!({"metadata": {"annotations": class_hashes}, "status": status()}));
            let claim = claim(
                json!({"metadata": {"annotations": claim_hashes}, "status": {"imageID": "ami-s"}}),
            );
            assert_eq!(judge(&class, &claim, &moved, Group::None), want, "{claim_hashes}");
        }
    }

    #[test] // api 11, cases 4 to 7; lifecycle 9.1, case 14
    fn what_a_change_of_the_class_does() {
        let base = json!({
            "role": "r", "subnetSelectorTerms": [{"id": "subnet-1"}], "ipPrefixCount": 1,
            "amiSelectorTerms": [{"alias": "al2023@latest"}], "tags": {"a": "b"},
        });
        let annotated = |change: &Value, status: Value| {
            let mut spec = base.clone();
            spokeshave_model::meta::apply_merge_patch(&mut spec, change);
            let mut class = class(json!({"spec": spec, "status": status}));
            let annotations = hashes(&spokeshave_model::hash::ec2_node_class(&class, ""), "v6");
            class.metadata.annotations = serde_json::from_value(annotations).expect("texts");
            class
        };
        let annotations = annotated(&json!({}), status()).metadata.annotations;
        let claim = claim(
            json!({"metadata": {"annotations": annotations}, "status": {"imageID": "ami-s"}}),
        );
        let elsewhere = json!({"subnets": [{"id": "subnet-2", "zone": "a"}]});
        let images = json!({"amis": [{"id": "ami-new", "requirements": []}]});
        let group = PlacementGroup { id: "pg-1".into(), ..PlacementGroup::default() };
        for (change, resolved, want) in [
            (json!({}), json!({}), None),
            (json!({"subnetSelectorTerms": [{"tags": {"a": "*"}}]}), json!({}), None),
            (
                json!({"subnetSelectorTerms": [{"tags": {"a": "*"}}]}),
                elsewhere,
                Some(Drift::Subnet),
            ),
            (json!({"amiFamily": "AL2023"}), json!({}), None),
            (json!({"amiSelectorTerms": [{"alias": "al2023@v20250115"}]}), json!({}), None),
            (
                json!({"amiSelectorTerms": [{"alias": "al2023@v20250115"}]}),
                images,
                Some(Drift::Ami),
            ),
            (json!({"tags": {"a": "c"}}), json!({}), Some(Drift::NodeClass)),
            (json!({"ipPrefixCount": 2}), json!({}), None),
            (json!({"placementGroupSelector": {"name": "g"}}), json!({}), Some(Drift::NodeClass)),
        ] {
            let mut status = status();
            spokeshave_model::meta::apply_merge_patch(&mut status, &resolved);
            let class = annotated(&change, status);
            let group = match class.spec.placement_group_selector {
                Some(_) => Group::Found(&group),
                None => Group::None,
            };
            assert_eq!(judge(&class, &claim, &instance(), group), Ok(want), "{change}");
        }
    }

    #[test] // aws-nodeclass 18, cases 3 and 8
    fn images() {
        let class = class(json!({"status": status()}));
        let image = |id: &str| claim(json!({"status": {"imageID": id}}));
        for (id, gpus, want) in [
            ("ami-s", None, Ok(false)),
            ("ami-old", None, Ok(true)),
            ("ami-s", Some("1"), Ok(true)),
            ("ami-g", Some("1"), Ok(false)),
            ("", None, Err(NoVerdict::NoImageOnClaim)),
        ] {
            let verdict = ami_drift(&class, &image(id), Some(&instance_type(gpus)));
            assert_eq!(verdict, want, "{id} {gpus:?}");
        }
        let arm = [Requirement::equals(labels::ARCH, "arm64")].into_iter().collect();
        assert_eq!(ami_drift(&class, &image("ami-s"), Some(&arm)), Ok(true));
        assert_eq!(ami_drift(&class, &image("ami-s"), None), Err(NoVerdict::UnknownInstanceType));
        let empty = EC2NodeClass::default();
        assert_eq!(
            ami_drift(&empty, &image("ami-s"), Some(&instance_type(None))),
            Err(NoVerdict::NoImages)
        );
    }

    #[test] // aws-nodeclass 18, cases 4 to 6 and 8; B-035
    fn instances() {
        let class = class(json!({"status": status()}));
        let claim = claim(json!({"status": {"imageID": "ami-s"}}));
        let groups = |ids: &[&str]| ids.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        let reserved = |preference: &str| Instance {
            capacity_reservation_id: "cr-1".into(),
            capacity_reservation_preference: preference.into(),
            ..instance()
        };
        for (what, instance, want) in [
            ("the same groups in another order", instance(), None),
            (
                "a group less",
                Instance { security_groups: groups(&["sg-1"]), ..instance() },
                Some(Drift::SecurityGroup),
            ),
            (
                "groups before subnet",
                Instance {
                    security_groups: groups(&["sg-1"]),
                    subnet_id: "subnet-9".into(),
                    ..instance()
                },
                Some(Drift::SecurityGroup),
            ),
            (
                "another subnet",
                Instance { subnet_id: "subnet-9".into(), ..instance() },
                Some(Drift::Subnet),
            ),
            (
                "a reservation that the class does not select",
                reserved("capacity-reservations-only"),
                Some(Drift::CapacityReservation),
            ),
            ("an open reservation", reserved("open"), None),
        ] {
            assert_eq!(judge(&class, &claim, &instance, Group::None), Ok(want), "{what}");
        }
        let off = drift(
            &class,
            &claim,
            Some(&instance_type(None)),
            Some(&reserved("capacity-reservations-only")),
            Group::None,
            false,
        );
        assert_eq!(off, Ok(None));
        let mut bare = class.clone();
        bare.status.subnets.clear();
        assert_eq!(judge(&bare, &claim, &instance(), Group::None), Err(NoVerdict::NoSubnets));
        bare.status.security_groups.clear();
        assert_eq!(
            judge(&bare, &claim, &instance(), Group::None),
            Err(NoVerdict::NoSecurityGroups)
        );
        assert_eq!(
            drift(&class, &claim, Some(&instance_type(None)), None, Group::None, true),
            Err(NoVerdict::NoInstance)
        );
    }

    #[test] // aws-nodeclass 18, case 7; 4, case 8
    fn placement_groups() {
        let class = class(json!({"status": status()}));
        let labelled = |label: Option<&str>| {
            let labels = label.map_or(json!({}), |it| json!({labels::PLACEMENT_GROUP_ID: it}));
            claim(json!({"metadata": {"labels": labels}, "status": {"imageID": "ami-s"}}))
        };
        let pg = |id: &str| PlacementGroup { id: id.into(), ..PlacementGroup::default() };
        let (one, two) = (pg("pg-1"), pg("pg-2"));
        for (label, group, want) in [
            (Some("pg-1"), Group::None, Some(Drift::PlacementGroup)),
            (Some("pg-1"), Group::Found(&one), None),
            (Some("pg-1"), Group::Found(&two), Some(Drift::PlacementGroup)),
            (None, Group::Found(&one), Some(Drift::PlacementGroup)),
            (None, Group::None, None),
            (Some("pg-1"), Group::Unknown, None),
        ] {
            assert_eq!(judge(&class, &labelled(label), &instance(), group), Ok(want), "{group:?}");
        }
    }

    #[test]
    fn a_class_that_is_being_deleted_drifts_nobody() {
        let class = class(json!({
            "metadata": {"annotations": hashes("1", "v6"), "deletionTimestamp": "2025-01-01T00:00:00Z"},
        }));
        let claim = claim(json!({"metadata": {"annotations": hashes("2", "v6")}}));
        assert_eq!(judge(&class, &claim, &instance(), Group::None), Ok(None));
    }

    #[test] // aws-nodeclass 18, case 9
    fn registration_waits_for_the_partition() {
        let labelled = |partition: Option<&str>| {
            let mut labels = json!({labels::PLACEMENT_GROUP_ID: "pg-1"});
            if let Some(partition) = partition {
                labels[labels::PLACEMENT_GROUP_PARTITION] = partition.into();
            }
            claim(json!({"metadata": {"labels": labels}}))
        };
        let with = |partition| Instance { partition, ..Instance::default() };
        for (label, instance, want) in [
            (Some(""), Some(with(Some(3))), Partition::Set(3)),
            (Some(""), Some(with(None)), Partition::Wait),
            (Some(""), None, Partition::Wait),
            (None, Some(with(None)), Partition::Proceed),
            (Some("2"), Some(with(None)), Partition::Proceed),
        ] {
            assert_eq!(partition(&labelled(label), instance.as_ref()), want, "{label:?}");
        }
    }
}
