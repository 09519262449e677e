use serde_json::json;
use spokeshave_model::{Condition, conditions};

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_261_600 + seconds).expect("in range")
}

fn class(generation: i64) -> EC2NodeClass {
    serde_json::from_value(json!({
        "metadata": {"name": "default", "generation": generation, "creationTimestamp": at(0)},
        "spec": {
            "securityGroupSelectorTerms": [{"id": "sg-1"}],
            "placementGroupSelector": {"name": "x"},
        },
    }))
    .expect("a class")
}

fn everything() -> Found {
    Found {
        images: Images::Found(vec![AmiStatus { id: "ami-1".into(), ..AmiStatus::default() }]),
        reservations: Some(Vec::new()),
        placement: Placement::Fine,
        subnets: Some(vec![SubnetStatus { id: "subnet-1".into(), ..SubnetStatus::default() }]),
        security_groups: Some(vec![SecurityGroupStatus {
            id: "sg-1".into(),
            ..Default::default()
        }]),
    }
}

fn line(class: &EC2NodeClass, type_: &str) -> String {
    let it = conditions::find(&class.status.conditions, type_).expect(type_);
    format!("{:?} {} {}", it.status, it.reason, it.message)
}

fn finish(class: &mut EC2NodeClass, now: Timestamp) {
    let mut conditions = class.conditions_mut(true);
    conditions.set_true(EC2NodeClass::INSTANCE_PROFILE_READY, now);
    conditions.set_true(EC2NodeClass::VALIDATION_SUCCEEDED, now);
}

#[test] // aws-nodeclass 3, cases 1 to 3; api 13, case 1
fn a_class_becomes_ready_in_one_pass() {
    let mut fresh = class(1);
    fresh.conditions_mut(true).initialize();
    assert_eq!(fresh.status.conditions.len(), 8);
    assert_eq!(
        line(&fresh, "Ready"),
        "Unknown ReconcilingDependents AMIsReady=Unknown, SubnetsReady=Unknown, SecurityGroupsReady=Unknown, InstanceProfileReady=Unknown, ValidationSucceeded=Unknown, PlacementGroupReady=Unknown, CapacityReservationsReady=Unknown"
    );
    assert_eq!(apply(&mut fresh, everything(), true, at(5)), None);
    finish(&mut fresh, at(5));
    assert_eq!(line(&fresh, "Ready"), "True Ready ");
    assert_eq!(fresh.status.conditions.last().map(|it| it.type_.as_str()), Some("Ready"));

    // The same again changes nothing.
    let before = fresh.clone();
    apply(&mut fresh, everything(), true, at(99));
    finish(&mut fresh, at(99));
    assert_eq!(fresh, before);

    // A new generation counts as unknown until all have looked.
    fresh.metadata.generation = 2;
    fresh.conditions_mut(true).set_true(EC2NodeClass::SUBNETS_READY, at(100));
    assert!(line(&fresh, "Ready").starts_with("Unknown ReconcilingDependents "));
    assert!(line(&fresh, "Ready").contains("AMIsReady=True"));
}

#[test] // aws-nodeclass 2, case 4
fn without_the_gate_reservations_are_nothing() {
    let mut class = class(1);
    apply(&mut class, everything(), false, at(5));
    assert_eq!(class.status.conditions.len(), 7);
    assert!(conditions::find(&class.status.conditions, "CapacityReservationsReady").is_none());
}

#[test] // aws-nodeclass 3, cases 4 and 5; 4, case 4; api 13, case 2
fn what_is_not_found_is_looked_for_again_soon() {
    let mut class = class(1);
    apply(&mut class, everything(), true, at(0));
    finish(&mut class, at(0));
    let subnets_gone = Found { subnets: Some(Vec::new()), ..everything() };
    assert_eq!(apply(&mut class, subnets_gone, true, at(5)), Some(NOT_FOUND_AGAIN));
    assert_eq!(
        line(&class, "SubnetsReady"),
        "False SubnetsNotFound SubnetSelector did not match any Subnets"
    );
    assert_eq!(line(&class, "Ready"), "False UnhealthyDependents SubnetsReady=False");
    assert!(class.status.subnets.is_empty());
    let both = Found {
        subnets: Some(Vec::new()),
        images: Images::Found(Vec::new()),
        security_groups: Some(Vec::new()),
        ..everything()
    };
    apply(&mut class, both, true, at(9));
    assert_eq!(line(&class, "AMIsReady"), "False AMINotFound AMISelector did not match any AMIs");
    assert_eq!(
        line(&class, "SecurityGroupsReady"),
        "False SecurityGroupsNotFound SecurityGroupSelector did not match any SecurityGroups"
    );
    assert_eq!(
        line(&class, "Ready"),
        "False UnhealthyDependents SecurityGroupsReady=False, AMIsReady=False, SubnetsReady=False"
    );
}

#[test] // aws-nodeclass 2, case 3; 31, case 2
fn a_failed_call_changes_nothing() {
    let mut class = class(1);
    apply(&mut class, everything(), true, at(0));
    let before = class.clone();
    let nothing = Found {
        images: Images::Failed,
        reservations: None,
        placement: Placement::Stale,
        subnets: None,
        security_groups: None,
    };
    assert_eq!(apply(&mut class, nothing, true, at(60)), None);
    assert_eq!(class, before);
}

#[test] // aws-nodeclass 6.1, 4, cases 7 to 9; api 13, case 4; B-034
fn other_problems() {
    let mut class = class(1);
    apply(&mut class, everything(), true, at(0));
    let found = Found {
        images: Images::Unsupported("no AL2 here".into()),
        placement: Placement::NotFound,
        ..everything()
    };
    assert_eq!(apply(&mut class, found, true, at(1)), Some(NOT_FOUND_AGAIN));
    assert_eq!(line(&class, "AMIsReady"), "False UnsupportedAlias no AL2 here");
    assert_eq!(class.status.amis.len(), 1, "the status keeps its images");
    assert_eq!(
        line(&class, "PlacementGroupReady"),
        "False PlacementGroupNotFound Placement group \"x\" not found"
    );
    let images = Images::Unpublished("al2023@v20241213".into());
    let unpublished = Found { images, placement: Placement::Fine, ..everything() };
    assert_eq!(apply(&mut class, unpublished, true, at(2)), Some(NOT_FOUND_AGAIN));
    assert_eq!(
        line(&class, "AMIsReady"),
        "False AMINotFound failed to discover any AMIs for alias \"al2023@v20241213\""
    );
    assert_eq!(class.status.amis.len(), 1, "the status keeps its images");
    let failed = |why: &str| Found { placement: Placement::Failed(why.into()), ..everything() };
    apply(&mut class, failed("X: no (ec2:A, request id 1, retryable)"), true, at(2));
    let told = "False PlacementGroupResolutionFailed Failed to resolve placement group: X: no (ec2:A, request id 1, retryable)";
    assert_eq!(line(&class, "PlacementGroupReady"), told);
    // Another request of the same fate is nothing new, another fate is.
    apply(&mut class, failed("X: no (ec2:A, request id 2, retryable)"), true, at(3));
    assert_eq!(line(&class, "PlacementGroupReady"), told);
    apply(&mut class, failed("Y: no (ec2:A, request id 3, retryable)"), true, at(4));
    assert_eq!(
        line(&class, "PlacementGroupReady"),
        told.replace("X: no", "Y: no").replace("id 1", "id 3")
    );
}

#[test] // aws-nodeclass 2, case 6; aws-capacity 10, case 9
fn the_end_of_a_reservation_is_not_missed() {
    let ending = |seconds: i64| CapacityReservationStatus {
        id: "cr-1".into(),
        end_time: Some(at(seconds)),
        ..CapacityReservationStatus::default()
    };
    for (end, want) in [(117, 17), (97, 0)] {
        let found = Found { reservations: Some(vec![ending(end)]), ..everything() };
        let again = apply(&mut class(1), found, true, at(100));
        assert_eq!(again, Some(SignedDuration::from_secs(want)));
    }
}

#[test] // aws-nodeclass 16, case 1
fn who_is_waited_for() {
    let names = |n: usize| (1..=n).map(|it| format!("nc-{it}")).collect::<Vec<_>>();
    assert_eq!(
        waiting_message(names(7)),
        "Waiting on NodeClaim termination for nc-1, nc-2, nc-3, nc-4, nc-5 and 2 other(s)"
    );
    assert_eq!(waiting_message(names(2)), "Waiting on NodeClaim termination for nc-1, nc-2");
}

#[test] // aws-nodeclass 3
fn a_changed_status_is_an_event() {
    let condition = |status, reason: &str, message: &str| Condition {
        type_: "SubnetsReady".into(),
        status,
        reason: reason.into(),
        message: message.into(),
        ..Condition::default()
    };
    let yes = [condition(ConditionStatus::True, "SubnetsReady", "")];
    let no = [condition(ConditionStatus::False, "SubnetsNotFound", "none")];
    assert_eq!(
        transitions(&yes, &no),
        [(
            "SubnetsReady".to_owned(),
            "Status condition transitioned, Type: SubnetsReady, Status: True -> False, Reason: SubnetsNotFound, Message: none".to_owned()
        )]
    );
    assert_eq!(
        transitions(&no, &yes)[0].1,
        "Status condition transitioned, Type: SubnetsReady, Status: False -> True, Reason: SubnetsReady"
    );
    assert!(transitions(&[], &no).is_empty());
    assert!(transitions(&yes, &yes).is_empty());
}
