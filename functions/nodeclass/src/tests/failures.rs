//! Failed calls of AWS: on the log line, the condition and the event, with code, service, operation, request id, whether
//! trying again helps, and what a person can do.

use serde_json::json;
use spokeshave_ports::{AwsError, fake::block_on};

use super::{condition, world::World};

const ALLOW: &str = "allow the call to the function's role, or find the policy that denies it";

/// Events with this reason, as they are worded.
fn events(world: &World, reason: &str) -> Vec<String> {
    let events = world.fake.events.borrow();
    let of_class = events.iter().filter(|it| it.kind == "EC2NodeClass" && it.warning);
    of_class.filter(|it| it.reason == reason).map(|it| it.message.clone()).collect()
}

#[test] // aws-nodeclass 2: what is refused is said where it is looked for
fn a_refused_look_up_is_said_on_condition_event_and_log() {
    let looks = [
        ("DescribeSubnets", "SubnetsReady", "SubnetResolutionFailed"),
        ("DescribeSecurityGroups", "SecurityGroupsReady", "SecurityGroupResolutionFailed"),
        ("DescribeImages", "AMIsReady", "AMIResolutionFailed"),
        ("GetParameter", "AMIsReady", "AMIResolutionFailed"),
        (
            "DescribeCapacityReservations",
            "CapacityReservationsReady",
            "CapacityReservationResolutionFailed",
        ),
        ("ListInstanceProfiles", "InstanceProfileReady", "InstanceProfileNotAuthorized"),
    ];
    for (call, type_, reason) in looks {
        let world = World::new();
        let terms = json!([{"id": "cr-1"}]);
        world.add_class(json!({"capacityReservationSelectorTerms": terms}));
        world.aws.refuse(call, "UnauthorizedOperation");
        world.run("default");
        let status = if type_ == "InstanceProfileReady" { "False" } else { "Unknown" };
        let id = world.aws.request_of(call);
        let text = format!(
            "UnauthorizedOperation: told to fail (aws:{call}, request id {id}, not retryable); {ALLOW}"
        );
        let said = format!("{status} {reason} {text}");
        assert_eq!(condition(&world.class(), type_), said);
        let event = if status == "False" { "InstanceProfileFailed" } else { reason };
        assert_eq!(events(&world, event), [text], "{call}");
        let decisions = world.fake.decisions.take();
        let logged = decisions.iter().find(|it| it.action == "fail").expect("is logged");
        assert!(logged.error);
        for (field, value) in [
            ("error_code", json!("UnauthorizedOperation")),
            ("service", json!("aws")),
            ("operation", json!(call)),
            ("request_id", json!(id)),
            ("retryable", json!(false)),
            ("advice", json!(ALLOW)),
        ] {
            assert_eq!(logged.fields[field], value, "{call} {field}");
        }
        // The next try is another request with the same fate: nothing is written.
        let before = world.class();
        world.run("default");
        assert_eq!(world.class().status, before.status, "{call}");
        world.aws.mend(call);
        world.run("default");
        assert!(condition(&world.class(), type_).starts_with("True"), "{call}");
    }
}

#[test] // aws-nodeclass 2: an outage must not turn a working class not ready; what passes by itself is no condition
fn what_was_settled_stays_and_the_event_tells() {
    for (code, retryable, settled) in [
        ("UnauthorizedOperation", false, true),
        ("RequestLimitExceeded", true, true),
        ("RequestLimitExceeded", true, false),
    ] {
        let world = World::new();
        world.add_class(json!({}));
        if settled {
            world.run("default");
        }
        world.aws.refuse("DescribeSubnets", code);
        world.run("default");
        let expected = match settled {
            true => "True SubnetsReady ",
            false => "Unknown AwaitingReconciliation object is awaiting reconciliation",
        };
        assert_eq!(condition(&world.class(), "SubnetsReady"), expected, "{code}");
        let told = events(&world, "SubnetResolutionFailed");
        assert_eq!(told.len(), 1, "{code}");
        let kind = if retryable { ", retryable); " } else { ", not retryable); " };
        assert!(told[0].starts_with(code) && told[0].contains(kind), "{}", told[0]);
    }
}

#[test] // aws-nodeclass 8: the text of the specification comes first, what EC2 said after it
fn a_refused_dry_run_says_what_ec2_said() {
    let world = World::with_dry_run();
    world.add_class(json!({}));
    world.aws.refuse("CreateLaunchTemplate", "UnauthorizedOperation");
    world.run("default");
    let id = world.aws.request_of("CreateLaunchTemplate");
    let text = format!(
        "UnauthorizedOperation: told to fail (aws:CreateLaunchTemplate, request id {id}, not retryable); {ALLOW}"
    );
    assert_eq!(
        condition(&world.class(), "ValidationSucceeded"),
        format!(
            "False CreateLaunchTemplateAuthCheckFailed Controller isn't authorized to call ec2:CreateLaunchTemplate: \
             User is not authorized to perform this operation because no identity-based policy allows it; {text}"
        )
    );
    assert_eq!(events(&world, "CreateLaunchTemplateAuthCheckFailed"), [text]);
    let decisions = world.fake.decisions.take();
    let logged = decisions.iter().find(|it| it.action == "refuse").expect("is logged");
    assert_eq!((logged.error, &logged.fields["request_id"]), (true, &json!(id)));
    // Remembered: neither asked nor told again.
    world.fake.events.borrow_mut().clear();
    world.run("default");
    assert!(events(&world, "CreateLaunchTemplateAuthCheckFailed").is_empty());
}

#[test] // aws-nodeclass 16: a class that cannot go says why
fn what_keeps_a_class_is_told() {
    let world = World::new();
    world.add_class(json!({}));
    world.run("default");
    let now = world.fake.now.get();
    world.edit_class(|it| it.metadata.deletion_timestamp = Some(now));
    world.aws.refuse("ListInstanceProfiles", "AccessDenied");
    world.run("default");
    let id = world.aws.request_of("ListInstanceProfiles");
    let text = format!(
        "AccessDenied: told to fail (aws:ListInstanceProfiles, request id {id}, not retryable); {ALLOW}"
    );
    assert_eq!(events(&world, "CleanupFailed"), [text]);
}

#[test] // What other functions could not read is told here, for they have no object to tell it on.
fn failed_calls_of_other_functions_are_told_by_the_schedule() {
    let world = World::new();
    world.add_class(json!({}));
    let mut error = AwsError::new("pricing", "GetProducts", "AccessDeniedException", "no");
    error.request_id = Some("r-9".into());
    let note = spokeshave_ports::failed_calls::note(
        &world.fake,
        "Catalog/prices",
        "CatalogRefreshFailed",
        &error,
        world.fake.now.get(),
    );
    block_on(note).expect("writes");
    world.run("default");
    assert!(events(&world, "CatalogRefreshFailed").is_empty(), "once in five minutes is enough");
    world.run_all();
    let text = format!(
        "Catalog/prices: AccessDeniedException: no (pricing:GetProducts, request id r-9, not retryable); {ALLOW}"
    );
    assert_eq!(events(&world, "CatalogRefreshFailed"), [text]);
    // It is over.
    world.fake.events.borrow_mut().clear();
    world.later(12 * 60);
    world.run_all();
    assert!(events(&world, "CatalogRefreshFailed").is_empty());
}
