//! EC2's answers as status lists (`spec` aws-nodeclass 4).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::ec2_node_class::{
    CapacityReservationStatus, SecurityGroupStatus, SubnetStatus,
};
use spokeshave_ports::ec2::{CapacityReservation, PlacementGroup, SecurityGroup, Subnet};

/// A capacity block counts as expiring so long before its end: EC2 starts to reclaim it 30 minutes before, and
/// draining takes ten more.
pub const BLOCK_EXPIRES_BEFORE_END: SignedDuration = SignedDuration::from_mins(40);

/// Most free addresses first, so that the class shows where launches will go; then by id.
pub fn subnets(found: Vec<Subnet>) -> Vec<SubnetStatus> {
    let by_id: BTreeMap<String, Subnet> = found.into_iter().map(|it| (it.id.clone(), it)).collect();
    let mut unique: Vec<Subnet> = by_id.into_values().collect();
    unique.sort_by_key(|it| std::cmp::Reverse(it.available_addresses));
    unique
        .into_iter()
        .map(|it| SubnetStatus { id: it.id, zone: it.zone, zone_id: it.zone_id })
        .collect()
}

/// By id.
pub fn security_groups(found: Vec<SecurityGroup>) -> Vec<SecurityGroupStatus> {
    let by_id: BTreeMap<String, String> = found.into_iter().map(|it| (it.id, it.name)).collect();
    by_id.into_iter().map(|(id, name)| SecurityGroupStatus { id, name }).collect()
}

/// Whether a reservation of `kind` that ends at `end` is on its way out at `now`.
pub fn is_expiring(kind: &str, end: Option<Timestamp>, now: Timestamp) -> bool {
    kind == "capacity-block"
        && end.is_some_and(|end| now.duration_until(end) <= BLOCK_EXPIRES_BEFORE_END)
}

/// By id, without those that have ended. Reservations of a kind or match criterion that we do not know are left out
/// and named in the second list.
pub fn capacity_reservations(
    found: Vec<CapacityReservation>,
    now: Timestamp,
) -> (Vec<CapacityReservationStatus>, Vec<String>) {
    let by_id: BTreeMap<String, CapacityReservation> =
        found.into_iter().map(|it| (it.id.clone(), it)).collect();
    let mut known = Vec::new();
    let mut unknown = Vec::new();
    for (id, it) in by_id {
        if it.end_date.is_some_and(|end| end <= now) {
            continue;
        }
        let kind = if it.reservation_type.is_empty() { "default" } else { &it.reservation_type };
        let criteria = it.instance_match_criteria.as_str();
        if !matches!(kind, "default" | "capacity-block") {
            unknown.push(format!("{id}: unknown reservation type {kind:?}"));
            continue;
        }
        if !matches!(criteria, "open" | "targeted") {
            unknown.push(format!("{id}: unknown instance match criteria {criteria:?}"));
            continue;
        }
        let state = if is_expiring(kind, it.end_date, now) { "expiring" } else { "active" };
        known.push(CapacityReservationStatus {
            availability_zone: it.zone,
            instance_type: it.instance_type,
            instance_match_criteria: criteria.to_owned(),
            owner_id: it.owner_id,
            reservation_type: kind.to_owned(),
            state: state.to_owned(),
            interruptible: it.interruptible,
            end_time: it.end_date,
            id,
        });
    }
    (known, unknown)
}

/// The group that a selector means: the first that is available.
pub fn placement_group(found: Vec<PlacementGroup>) -> Option<PlacementGroup> {
    found.into_iter().find(|it| it.state == "available")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2025-06-01T{text}Z").parse().expect("a time")
    }

    #[test] // aws-nodeclass 4, case 1; aws-capacity 9, case 9; api 13, case 5
    fn subnets_with_most_room_come_first() {
        let subnet = |id: &str, free: i64| Subnet {
            id: id.into(),
            available_addresses: free,
            ..Subnet::default()
        };
        let ids = |found| subnets(found).into_iter().map(|it| it.id).collect::<Vec<_>>();
        assert_eq!(
            ids(vec![
                subnet("subnet-b", 100),
                subnet("subnet-a", 100),
                subnet("subnet-c", 4000),
                subnet("subnet-a", 100),
            ]),
            ["subnet-c", "subnet-a", "subnet-b"]
        );
        assert_eq!(ids(vec![subnet("a", 10), subnet("b", 250), subnet("c", 10)]), ["b", "a", "c"]);
    }

    fn reservation(id: &str, kind: &str, end: Option<&str>) -> CapacityReservation {
        CapacityReservation {
            id: id.into(),
            reservation_type: kind.into(),
            instance_match_criteria: "targeted".into(),
            end_date: end.map(at),
            ..CapacityReservation::default()
        }
    }

    #[test] // aws-nodeclass 4, case 5; aws-capacity 10, case 6; api 13, case 6
    fn blocks_expire_forty_minutes_early() {
        for (kind, now, want) in [
            ("capacity-block", "11:19:59", Some("active")),
            ("capacity-block", "11:20:00", Some("expiring")),
            ("default", "11:59:00", Some("active")),
            ("", "11:59:59", Some("active")),
            ("default", "12:00:00", None),
        ] {
            let found = vec![reservation("cr-1", kind, Some("12:00:00"))];
            let (known, _) = capacity_reservations(found, at(now));
            assert_eq!(known.first().map(|it| it.state.as_str()), want, "{kind} {now}");
        }
    }

    #[test] // aws-nodeclass 4, case 6; aws-capacity 10, case 7
    fn unknown_reservations_are_left_out_and_named() {
        let mut odd = reservation("cr-2", "default", None);
        odd.instance_match_criteria = "any-new-value".into();
        let found = vec![odd, reservation("cr-3", "novel", None), reservation("cr-1", "", None)];
        let (known, unknown) = capacity_reservations(found, at("10:00:00"));
        assert_eq!(known.len(), 1);
        assert_eq!(
            (known[0].id.as_str(), known[0].reservation_type.as_str(), known[0].interruptible),
            ("cr-1", "default", false)
        );
        assert_eq!(
            unknown,
            [
                "cr-2: unknown instance match criteria \"any-new-value\"",
                "cr-3: unknown reservation type \"novel\""
            ]
        );
    }

    #[test] // aws-nodeclass 4, case 7; aws-capacity 11, case 2
    fn the_first_available_placement_group_is_meant() {
        let group = |id: &str, state: &str| PlacementGroup {
            id: id.into(),
            state: state.into(),
            ..PlacementGroup::default()
        };
        assert_eq!(placement_group(vec![group("pg-1", "deleting")]), None);
        let found =
            vec![group("pg-1", "deleting"), group("pg-2", "available"), group("pg-3", "available")];
        assert_eq!(placement_group(found).map(|it| it.id), Some("pg-2".to_owned()));
    }
}
