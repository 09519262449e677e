//! Upkeep of reserved capacity (`spec` aws-nodeclass 21): claims of blocks that end, and reserved claims whose
//! instance has become on-demand.

use jiff::Timestamp;
use spokeshave_model::{CapacityType, NodeClaim, core::Node, labels};
use spokeshave_ports::ec2::{CapacityReservation, Instance};

use crate::resources::{BLOCK_EXPIRES_BEFORE_END, is_expiring};

/// Whether an instance counts as reserved: the gate is on, it has a reservation, and it asked for nothing else.
pub fn is_reserved(instance: &Instance, reserved_capacity: bool) -> bool {
    let wants_reservations = matches!(
        instance.capacity_reservation_preference.as_str(),
        "" | "capacity-reservations-only"
    );
    reserved_capacity && !instance.capacity_reservation_id.is_empty() && wants_reservations
}

/// How an instance is paid for, as EC2 tells.
pub fn capacity_type(instance: &Instance, reserved_capacity: bool) -> CapacityType {
    if instance.spot {
        CapacityType::Spot
    } else if is_reserved(instance, reserved_capacity) {
        CapacityType::Reserved
    } else {
        CapacityType::OnDemand
    }
}

fn demote_labels(labels: &mut std::collections::BTreeMap<String, String>) -> bool {
    if labels.get(labels::CAPACITY_TYPE).map(String::as_str)
        != Some(CapacityType::Reserved.as_str())
    {
        return false;
    }
    labels.insert(labels::CAPACITY_TYPE.into(), CapacityType::OnDemand.as_str().into());
    for key in [
        labels::CAPACITY_RESERVATION_ID,
        labels::CAPACITY_RESERVATION_TYPE,
        // DIFFERENCE: Karpenter leaves this one behind.
        labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
    ] {
        labels.remove(key);
    }
    true
}

/// The claim with the labels of an on-demand one, if it says `reserved` and its instance is not.
pub fn demoted_claim(
    claim: &NodeClaim,
    instance: &Instance,
    reserved_capacity: bool,
) -> Option<NodeClaim> {
    if claim.metadata.deleting()
        || capacity_type(instance, reserved_capacity) != CapacityType::OnDemand
    {
        return None;
    }
    let mut demoted = claim.clone();
    demote_labels(&mut demoted.metadata.labels).then_some(demoted)
}

/// The same for a node of such a claim, whether or not the claim needed it. Nodes that are not registered yet get
/// their labels from the claim later.
pub fn demoted_node(
    claim: &NodeClaim,
    node: &Node,
    instance: &Instance,
    reserved_capacity: bool,
) -> Option<Node> {
    let registered = node.metadata.label(labels::REGISTERED) == Some("true");
    if claim.metadata.deleting()
        || node.metadata.deleting()
        || !registered
        || capacity_type(instance, reserved_capacity) != CapacityType::OnDemand
    {
        return None;
    }
    let mut demoted = node.clone();
    demote_labels(&mut demoted.metadata.labels).then_some(demoted)
}

/// Whether the claim's reservation is on its way out, so that the claim is to be deleted and drained in time.
pub fn is_ending(claim: &NodeClaim, reservations: &[CapacityReservation], now: Timestamp) -> bool {
    let Some(id) = claim.metadata.label(labels::CAPACITY_RESERVATION_ID) else { return false };
    !claim.metadata.deleting()
        && reservations
            .iter()
            .any(|it| it.id == id && is_expiring(&it.reservation_type, it.end_date, now))
}

/// When the next of these reservations is on its way out.
pub fn next_ending(reservations: &[CapacityReservation], now: Timestamp) -> Option<Timestamp> {
    reservations
        .iter()
        .filter(|it| it.reservation_type == "capacity-block")
        .filter_map(|it| it.end_date?.checked_sub(BLOCK_EXPIRES_BEFORE_END).ok())
        .filter(|it| *it > now)
        .min()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reserved_labels() -> serde_json::Value {
        json!({
            "karpenter.sh/registered": "true",
            "karpenter.sh/capacity-type": "reserved",
            "karpenter.k8s.aws/capacity-reservation-id": "cr-1",
            "karpenter.k8s.aws/capacity-reservation-type": "default",
            "karpenter.k8s.aws/capacity-reservation-interruptible": "false",
        })
    }

    #[allow(clippy::needless_pass_by_value)] // `json!` reads best in place.
    fn claim(labels: serde_json::Value, deleting: bool) -> NodeClaim {
        let deletion = deleting.then_some("2025-01-01T00:00:00Z");
        serde_json::from_value(
            json!({"metadata": {"labels": labels, "deletionTimestamp": deletion}}),
        )
        .expect("a claim")
    }

    #[allow(clippy::needless_pass_by_value)] // `json!` reads best in place.
    fn node(labels: serde_json::Value) -> Node {
        serde_json::from_value(json!({"metadata": {"labels": labels}})).expect("a node")
    }

    fn in_reservation() -> Instance {
        Instance { capacity_reservation_id: "cr-1".into(), ..Instance::default() }
    }

    #[test] // aws-nodeclass 21, cases 1, 2, 4 and 9; aws-capacity 10, case 8
    fn demotion() {
        let on_demand = Instance::default();
        let demoted = demoted_claim(&claim(reserved_labels(), false), &on_demand, true);
        let labels = demoted.expect("demoted").metadata.labels;
        let text: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(text, ["karpenter.sh/capacity-type=on-demand", "karpenter.sh/registered=true"]);

        let already = claim(json!({"karpenter.sh/capacity-type": "on-demand"}), false);
        assert_eq!(demoted_claim(&already, &on_demand, true), None);
        assert!(demoted_node(&already, &node(reserved_labels()), &on_demand, true).is_some());

        let spot = Instance { spot: true, ..Instance::default() };
        let reserved = claim(reserved_labels(), false);
        for (what, claim, instance, gate, want) in [
            ("being deleted", claim(reserved_labels(), true), &on_demand, true, false),
            ("still reserved", reserved.clone(), &in_reservation(), true, false),
            ("spot", reserved.clone(), &spot, true, false),
            ("gate off", reserved, &in_reservation(), false, true),
        ] {
            assert_eq!(demoted_claim(&claim, instance, gate).is_some(), want, "{what}");
            let node = node(reserved_labels());
            assert_eq!(demoted_node(&claim, &node, instance, gate).is_some(), want, "{what}");
        }
    }

    #[test] // aws-nodeclass 21, case 3
    fn an_unregistered_node_is_left_for_later() {
        let claim = claim(reserved_labels(), false);
        let node = node(json!({"karpenter.sh/capacity-type": "reserved"}));
        assert_eq!(demoted_node(&claim, &node, &Instance::default(), true), None);
    }

    #[test] // aws-nodeclass 21, case 5
    fn claims_of_a_block_end_before_it() {
        let at =
            |text: &str| -> Timestamp { format!("2025-06-01T{text}Z").parse().expect("a time") };
        let reservation = |kind: &str| CapacityReservation {
            id: "cr-1".into(),
            reservation_type: kind.into(),
            end_date: Some(at("12:00:00")),
            ..CapacityReservation::default()
        };
        let claim = claim(reserved_labels(), false);
        for (kind, now, want) in [
            ("capacity-block", "11:20:00", true),
            ("capacity-block", "11:19:59", false),
            ("default", "11:59:59", false),
        ] {
            assert_eq!(is_ending(&claim, &[reservation(kind)], at(now)), want, "{kind} {now}");
        }
        let block = [reservation("capacity-block")];
        assert_eq!(next_ending(&block, at("11:00:00")), Some(at("11:20:00")));
        assert_eq!(next_ending(&block, at("11:20:00")), None);
    }
}
