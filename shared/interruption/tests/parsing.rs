//! From bodies to messages (`spec` aws-nodeclass 22).

use std::{fs, path::Path};

use proptest::prelude::*;
use serde_json::json;
use spokeshave_interruption::{
    Kind, Malformed,
    hooks::{self, Hook},
    parse,
};
use spokeshave_model::InstanceId;

fn sample(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events/aws").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The kind and the number of instances that a body is read as; `None` when it is malformed.
fn read(body: &str) -> Option<(Kind, usize)> {
    parse(body).ok().map(|it| (it.kind, it.instance_ids.len()))
}

const NO_OP: Option<(Kind, usize)> = Some((Kind::NoOp, 0));

#[test] // nodeclass 22, cases 1, 2, 3, 5, 6, 7, 8; 29, cases 1, 2, 3; 30, cases 2 and 6
fn every_sample_is_read_as_what_it_is() {
    let expected = [
        ("asg-direct-sqs-body.json", NO_OP),
        ("asg-launch-lifecycle-action.json", NO_OP),
        ("asg-terminate-lifecycle-action.json", NO_OP),
        ("asg-test-notification.json", NO_OP),
        ("capacity-block-expiration.json", Some((Kind::CapacityReservationExpiration, 0))),
        (
            "capacity-reservation-interruption-older-name.json",
            Some((Kind::CapacityReservationInterruption, 1)),
        ),
        (
            "capacity-reservation-interruption.json",
            Some((Kind::CapacityReservationInterruption, 1)),
        ),
        ("health-account-notification.json", NO_OP),
        ("health-issue.json", NO_OP),
        ("health-other-service.json", NO_OP),
        ("health-scheduled-change-closed.json", NO_OP),
        ("health-scheduled-change-many.json", Some((Kind::ScheduledChange, 3))),
        ("health-scheduled-change.json", Some((Kind::ScheduledChange, 1))),
        ("malformed-time.txt", None),
        ("malformed.txt", None),
        ("rebalance-recommendation.json", Some((Kind::RebalanceRecommendation, 1))),
        ("sns-notification.json", Some((Kind::SpotInterruption, 1))),
        ("spot-interruption-warning-version-1.json", NO_OP),
        ("spot-interruption-warning.json", Some((Kind::SpotInterruption, 1))),
        ("state-change-pending.json", NO_OP),
        ("state-change-running.json", NO_OP),
        ("state-change-shutting-down.json", Some((Kind::InstanceTerminated, 1))),
        ("state-change-stopped.json", Some((Kind::InstanceStopped, 1))),
        ("state-change-stopping.json", Some((Kind::InstanceStopped, 1))),
        ("state-change-terminated.json", Some((Kind::InstanceTerminated, 1))),
        ("unknown-detail-type.json", NO_OP),
    ];
    for (name, kind) in expected {
        assert_eq!(read(&sample(name)), kind, "{name}");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events/aws");
    let mut files: Vec<String> = fs::read_dir(folder)
        .expect("the folder")
        .map(|it| it.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    assert_eq!(files, expected.map(|(name, _)| name.to_owned()), "every file is judged");
}

#[test]
fn what_is_kept_of_a_message() {
    let message = parse(&sample("health-scheduled-change-many.json")).expect("valid");
    let ids: Vec<&str> = message.instance_ids.iter().map(InstanceId::as_str).collect();
    assert_eq!(ids, ["i-0c0ffee0000000001", "i-0c0ffee0000000002", "i-0c0ffee0000000003"]);
    assert_eq!(message.time, Some("2026-03-02T10:00:00Z".parse().expect("a time")));
    let message = parse(&sample("capacity-block-expiration.json")).expect("valid");
    assert_eq!(message.reservation_id.as_deref(), Some("cr-0b10c000000000001"));
    // A message that is filtered out keeps its time.
    let message = parse(&sample("state-change-running.json")).expect("valid");
    assert!(message.time.is_some());
}

#[test] // nodeclass 22, cases 4, 7 and 8; B-068, B-070
fn bodies_that_are_no_event_of_ours() {
    for (what, body, expected) in [
        ("empty", "", NO_OP),
        ("null", "null", NO_OP),
        ("an empty object", "{}", NO_OP),
        ("an empty object with white space", " {}\n", NO_OP),
        ("text", "abcd", None),
        ("white space", " \n", None),
        ("a list", "[]", None),
        ("a text", "\"x\"", None),
        ("a number", "7", None),
        ("cut off", "{\"version\":\"0\"", None),
        ("two objects", "{} {}", None),
        ("an SNS message that is no event", r#"{"Type":"Notification","Message":"hello"}"#, NO_OP),
        ("an SNS message cut off", r#"{"Type":"Notification","Message":"{\"a\""}"#, None),
        (
            "an Auto Scaling test",
            r#"{"Service":"AWS Auto Scaling","Event":"autoscaling:TEST_NOTIFICATION","AccountId":"1"}"#,
            NO_OP,
        ),
        (
            "an SNS message that is one",
            r#"{"Type":"Notification","Message":"{\"version\":\"0\",\"source\":\"aws.ec2\",\"detail-type\":\"EC2 Spot Instance Interruption Warning\",\"detail\":{\"instance-id\":\"i-1\"}}"}"#,
            Some((Kind::SpotInterruption, 1)),
        ),
        ("an SNS subscription", r#"{"Type":"SubscriptionConfirmation","Message":"{}"}"#, NO_OP),
        (
            "big numbers in unknown fields",
            r#"{"x":1e999,"y":123456789012345678901234567890}"#,
            NO_OP,
        ),
    ] {
        assert_eq!(read(body), expected, "{what}");
    }
}

#[test]
fn fields_of_the_wrong_type() {
    let spot = || {
        json!({"version": "0", "source": "aws.ec2", "id": "1", "account": "1", "region": "r",
            "detail-type": "EC2 Spot Instance Interruption Warning", "time": "2026-03-02T08:00:00Z",
            "resources": ["a"], "detail": {"instance-id": "i-1", "instance-action": "terminate"}})
    };
    let spot_of = Some((Kind::SpotInterruption, 1));
    for (pointer, value, expected) in [
        ("/version", json!(0), None),
        ("/version", json!(null), NO_OP),
        ("/version", json!("1"), NO_OP),
        ("/source", json!(["aws.ec2"]), None),
        ("/source", json!("AWS.EC2"), NO_OP),
        ("/detail-type", json!({}), None),
        ("/detail-type", json!("EC2 spot instance interruption warning"), NO_OP),
        ("/id", json!(1), None),
        ("/account", json!(111_122_223_333_i64), None),
        ("/region", json!(true), None),
        ("/time", json!(1_762_247_702), None),
        ("/time", json!(null), spot_of),
        ("/time", json!(""), None),
        ("/resources", json!("arn"), spot_of),
        ("/resources", json!(null), spot_of),
        ("/resources", json!([]), spot_of),
        ("/resources", json!(5), None),
        ("/resources", json!([5]), None),
        ("/resources", json!({}), None),
        ("/detail", json!(null), Some((Kind::SpotInterruption, 0))),
        ("/detail", json!("i-1"), None),
        ("/detail", json!([]), None),
        ("/detail/instance-id", json!(1), None),
        ("/detail/instance-id", json!(null), Some((Kind::SpotInterruption, 0))),
        ("/detail/instance-id", json!(""), Some((Kind::SpotInterruption, 0))),
        ("/detail/instance-action", json!(5), spot_of),
    ] {
        let mut body = spot();
        *body.pointer_mut(pointer).expect("a field") = value.clone();
        assert_eq!(read(&body.to_string()), expected, "{pointer} = {value}");
    }
    // Of an event that is not ours, only the envelope is looked at.
    let mut body = spot();
    body["detail-type"] = json!("Something Else");
    body["detail"] = json!("text");
    assert_eq!(read(&body.to_string()), NO_OP);
    // The order of fields does not matter.
    let body = r#"{"detail":{"instance-id":"i-1"},"source":"aws.ec2","version":"0",
        "detail-type":"EC2 Spot Instance Interruption Warning"}"#;
    assert_eq!(read(body), spot_of);
    assert_eq!(parse("{\"id\":5}"), Err(Malformed::WrongType("id")));
}

#[test] // nodeclass 22, case 4
fn states() {
    for (state, expected) in [
        ("stopping", Some((Kind::InstanceStopped, 1))),
        ("STOPPING", Some((Kind::InstanceStopped, 1))),
        ("Shutting-Down", Some((Kind::InstanceTerminated, 1))),
        ("terminated", Some((Kind::InstanceTerminated, 1))),
        ("rebooting", NO_OP),
        ("", NO_OP),
    ] {
        let body = json!({"version": "0", "source": "aws.ec2",
            "detail-type": "EC2 Instance State-change Notification",
            "detail": {"instance-id": "i-1", "state": state}});
        assert_eq!(read(&body.to_string()), expected, "{state}");
    }
}

#[test] // nodeclass 22, cases 5 and 6; B-074
fn health_events() {
    let health = |detail: serde_json::Value| {
        json!({"version": "0", "source": "aws.health", "detail-type": "AWS Health Event",
            "detail": detail})
        .to_string()
    };
    let entities = json!([{"entityValue": "i-1"}, {"entityValue": "i-2", "status": "PENDING"}]);
    for (detail, expected) in [
        (
            json!({"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": entities}),
            Some((Kind::ScheduledChange, 2)),
        ),
        (
            json!({"service": "EC2", "eventTypeCategory": "scheduledChange", "statusCode": "open",
                "affectedEntities": null}),
            Some((Kind::ScheduledChange, 0)),
        ),
        (
            json!({"service": "EC2", "eventTypeCategory": "scheduledChange", "statusCode": "Closed",
                "affectedEntities": entities}),
            NO_OP,
        ),
        (json!({"service": "ec2", "eventTypeCategory": "scheduledChange"}), NO_OP),
        (
            json!({"service": "EC2", "eventTypeCategory": "issue", "affectedEntities": entities}),
            NO_OP,
        ),
        (json!({}), NO_OP),
        (
            json!({"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": "i-1"}),
            None,
        ),
        (
            json!({"service": "EC2", "eventTypeCategory": "scheduledChange",
                "affectedEntities": [{"entityValue": 1}]}),
            None,
        ),
        (
            json!({"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": ["i-1"]}),
            None,
        ),
        (json!({"service": 2}), None),
    ] {
        assert_eq!(read(&health(detail.clone())), expected, "{detail}");
    }
}

#[test]
fn times_are_strict() {
    for (time, valid) in [
        ("2026-03-02T08:00:00Z", true),
        ("2026-03-02T08:00:00.5Z", true),
        ("2026-03-02T08:00:00.123456789Z", true),
        ("2026-03-02T08:00:00.1234567890123Z", true),
        ("2026-03-02T08:00:00+01:00", true),
        ("2026-03-02T08:00:00.25-07:30", true),
        ("2026-03-02 08:00:00Z", false),
        ("2026-03-02t08:00:00z", false),
        ("2026-03-02T08:00:00", false),
        ("2026-03-02T08:00Z", false),
        ("2026-03-02T08:00:00.Z", false),
        ("2026-03-02T08:00:00+0100", false),
        ("2026-03-02T24:00:00Z", false),
        ("2026-03-02T08:00:60Z", false),
        ("2026-02-30T08:00:00Z", false),
        ("2026-03-02", false),
        ("Mon, 2 Mar 2026 08:00:00 GMT", false),
        ("yesterday", false),
        ("ä", false),
        ("", false),
    ] {
        let body = json!({ "time": time }).to_string();
        assert_eq!(parse(&body).is_ok(), valid, "{time}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(body in any::<String>()) {
        let _ = parse(&body);
    }

    #[test] // Broken at any byte, a message is read or refused.
    fn nothing_panics_on_broken_messages(cut in 0usize..600, byte in any::<u8>()) {
        let mut bytes = sample("health-scheduled-change-many.json").into_bytes();
        let at = cut % bytes.len();
        bytes[at] = byte;
        let _ = parse(&String::from_utf8_lossy(&bytes));
        bytes.truncate(at);
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }

    #[test] // Any time text is read or refused, and a time that we print is read.
    fn times_never_panic(text in "[0-9TZ:.+ -]{0,40}", seconds in 0i64..4_000_000_000) {
        let _ = parse(&json!({ "time": text }).to_string());
        let time = jiff::Timestamp::from_second(seconds).expect("in range");
        let read = parse(&json!({ "time": time }).to_string()).expect("valid");
        prop_assert_eq!(read.time, Some(time));
    }
}

fn hook(token: &str, time: &str) -> Option<Hook> {
    Some(Hook {
        group: "mng-system".into(),
        name: "drain-first".into(),
        token: format!("c0ffee00-1111-4222-8333-4444dead{token}"),
        instance_id: "i-0c3d4e5f607182930".into(),
        time: time.parse().ok(),
    })
}

#[test] // nodeclass 30, cases 1 and 2
fn hooks_are_read_in_all_their_forms() {
    let terminate = sample("asg-terminate-lifecycle-action.json");
    let expected = hook("be01", "2026-03-02T14:00:00Z");
    assert!(expected.is_some());
    assert_eq!(hooks::parse(&terminate), expected);
    let own = sample("asg-direct-sqs-body.json");
    let expected = hook("be02", "2026-03-02T14:00:00.123Z");
    assert_eq!(hooks::parse(&own), expected);
    // Inside a notification of SNS, and inside `Message` alone.
    for wrapped in
        [json!({"Type": "Notification", "Message": own}), json!({"Message": own, "MessageId": "m"})]
    {
        assert_eq!(hooks::parse(&wrapped.to_string()), expected);
        assert_eq!(read(&wrapped.to_string()), NO_OP);
        // Once is enough.
        let twice = json!({"Message": wrapped.to_string()}).to_string();
        assert_eq!(hooks::parse(&twice), None);
    }
    // A test of the wiring and a launch ask for nothing.
    for other in ["asg-test-notification.json", "asg-launch-lifecycle-action.json"] {
        assert_eq!(hooks::parse(&sample(other)), None, "{other}");
    }
}

#[test]
fn what_only_looks_like_a_hook_is_none() {
    let terminate = sample("asg-terminate-lifecycle-action.json");
    let own = sample("asg-direct-sqs-body.json");
    for (text, from, to) in [
        (&terminate, "\"version\": \"0\"", "\"version\": \"1\""),
        (&terminate, "aws.autoscaling", "mine"),
        (
            &terminate,
            "EC2 Instance-terminate Lifecycle Action",
            "EC2 Instance Terminate Successful",
        ),
        (&terminate, "i-0c3d4e5f607182930", ""),
        (&terminate, "\"mng-system\"", "\"\""),
        (&terminate, "\"drain-first\"", "7"),
        (&own, "AWS Auto Scaling", "Mine"),
        (&own, "EC2_INSTANCE_TERMINATING", "EC2_INSTANCE_LAUNCHING"),
        (&own, "\"i-0c3d4e5f607182930\"", "null"),
        (&own, "\"drain-first\"", "\"\""),
        (&own, "{", "[{"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(&changed, text, "{from}");
        assert_eq!(hooks::parse(&changed), None, "{from} as {to}");
    }
    // The token may be left out: the instance says enough.
    let bare = own.replace("LifecycleActionToken", "Other");
    assert_eq!(hooks::parse(&bare).map(|it| it.token), Some(String::new()));
}
