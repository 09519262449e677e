//! Reserved capacity as the function sees it: what the class has selected, and the counts of the table.

use super::*;

/// The world of the other tests, with one reserved large machine that the class has selected, or not. `left` is what the
/// table knows of the count.
fn reserved_world(selected: bool, left: Option<i64>) -> Fake {
    let fake = world();
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": null, "reason": "Ready", "message": ""}]);
    let reservations = if selected {
        json!([{"id": "cr-1", "availabilityZone": "a", "instanceType": "m.large", "instanceMatchCriteria": "targeted",
                "ownerID": "1", "reservationType": "default", "state": "active"}])
    } else {
        json!([])
    };
    fake.add_json::<EC2NodeClass>(json!({"metadata": {"name": "default"}, "spec": {},
        "status": {"conditions": ready, "capacityReservations": reservations}}));
    let types = json!({"instanceTypes": [
        {"name": "m.large", "labels": {"kubernetes.io/arch": ["amd64"]},
         "capacity": {"cpu": "8", "memory": "16Gi", "pods": "30"}, "offerings": [
            {"capacityType": "on-demand", "zone": "a", "zoneId": "1", "price": 0.4},
            {"capacityType": "reserved", "zone": "a", "zoneId": "1", "price": 0.0001,
             "reservation": {"id": "cr-1", "type": "default", "interruptible": false, "count": 1}}]}]});
    record(&fake, StateKey::new("catalog", "fixed"), types);
    if let Some(count) = left {
        record(
            &fake,
            StateKey::new("reservation", "cr-1"),
            json!({"count": count, "readAt": now()}),
        );
    }
    fake
}

/// Capacity types and reservation ids of the claims, in the order of creation.
fn bought(fake: &Fake) -> Vec<(Vec<String>, Vec<String>)> {
    let values = |claim: &NodeClaim, key: &str| {
        let found = claim.spec.requirements.iter().find(|it| it.key == key);
        found.map(|it| it.values.clone()).unwrap_or_default()
    };
    let of = |claim: &NodeClaim| {
        use spokeshave_model::labels::{CAPACITY_RESERVATION_ID, CAPACITY_TYPE};
        (values(claim, CAPACITY_TYPE), values(claim, CAPACITY_RESERVATION_ID))
    };
    claims(fake).iter().map(of).collect()
}

fn of_one(capacity_type: &str, id: &[&str]) -> (Vec<String>, Vec<String>) {
    (vec![capacity_type.to_owned()], id.iter().map(|it| (*it).to_owned()).collect())
}

#[test] // scheduling 17, case 6; 24, case 2
fn a_pod_that_waits_for_a_reservation_is_not_unschedulable() {
    let fake = reserved_world(true, None);
    for (name, cpu) in [("first", "7"), ("second", "7"), ("huge", "100")] {
        fake.add_json::<Pod>(pending(name, cpu));
    }
    provision(&fake, &pods_pending());
    assert_eq!(bought(&fake), [of_one("reserved", &["cr-1"])]);
    let deferred: Vec<String> = decisions(&fake, "defer").into_iter().map(|it| it.0).collect();
    assert_eq!(deferred, ["Pod/default/second"]);
    // No event for the one that waits, and no part in the gauge.
    assert_eq!(
        fake.event_reasons(),
        ["Pod/default/huge FailedScheduling", "Pod/default/first Nominated"]
    );
    assert_eq!(
        fake.samples("karpenter_scheduler_unschedulable_pods_count"),
        ["karpenter_scheduler_unschedulable_pods_count{controller=provisioner} 1"]
    );
}

#[test] // scheduling 14, case 7; api.md's gate: whatever hides the reservation, nobody waits for it
fn a_reservation_that_cannot_be_had_is_no_reason_to_wait() {
    let run = |selected: bool, left: Option<i64>, gate: bool| {
        let fake = reserved_world(selected, left);
        for name in ["first", "second"] {
            fake.add_json::<Pod>(pending(name, "7"));
        }
        let mut settings = Settings::default();
        settings.gates.reserved_capacity = gate;
        provision_with(&fake, &pods_pending(), &settings);
        (bought(&fake), decisions(&fake, "defer").len())
    };
    let plain = vec![of_one("on-demand", &[]), of_one("on-demand", &[])];
    // Not selected by the class; used up, as the table knows; without the gate.
    assert_eq!(run(false, None, true), (plain.clone(), 0));
    assert_eq!(run(true, Some(0), true), (plain.clone(), 0));
    assert_eq!(run(true, None, false), (plain, 0));
    // The table's count is the one that counts: two are left now.
    let both = vec![of_one("reserved", &["cr-1"]), of_one("reserved", &["cr-1"])];
    assert_eq!(run(true, Some(2), true), (both, 0));
}
