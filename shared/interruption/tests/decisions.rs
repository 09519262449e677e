//! What follows from messages (`spec` aws-nodeclass 23), and from instance status (24, aws-capacity 22).
#![allow(clippy::needless_pass_by_value)] // Builders take literals.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_interruption::{
    Action, ClaimView, Kind, Message, NodeView, View, decide, parse,
    status::{self, Category, Check, Report, ScheduledEvent},
};
use spokeshave_model::{NodeClaim, NodePool, core::Node, meta::from_value};

fn now() -> Timestamp {
    "2026-03-02T08:00:00.75Z".parse().expect("a time")
}

fn claim(name: &str, instance: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "labels": labels},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
        "status": {"providerID": format!("aws:///eu-west-1a/{instance}")}})
}

fn spot_labels() -> Value {
    json!({"node.kubernetes.io/instance-type": "m5.large", "topology.kubernetes.io/zone": "eu-west-1a",
        "karpenter.sh/capacity-type": "spot", "karpenter.sh/nodepool": "default"})
}

fn view(claims: &[Value], nodes: &[(&str, &str)]) -> View {
    let claims = claims.iter().map(|it| from_value::<NodeClaim>(it.clone()).expect("a claim"));
    let nodes = nodes.iter().map(|(name, instance)| {
        let id = format!("aws:///eu-west-1a/{instance}");
        from_value::<Node>(json!({"metadata": {"name": name}, "spec": {"providerID": id}}))
            .expect("a node")
    });
    View::new(claims.map(|it| ClaimView::from(&it)).collect::<Vec<_>>())
        .with_nodes(nodes.map(|it| NodeView::from(&it)).collect::<Vec<_>>())
}

fn message(kind: Kind, ids: &[&str]) -> Message {
    Message {
        kind,
        instance_ids: ids.iter().map(|it| (*it).into()).collect(),
        reservation_id: None,
        starts: None,
        time: None,
    }
}

fn texts(message: &Message, view: &View) -> Vec<String> {
    let text = |it: &Action| match it {
        Action::PublishOnClaim { name, event, .. } => format!("event {name} {}", event.reason),
        Action::PublishOnNode { name, event, .. } => format!("event {name} {}", event.reason),
        Action::MarkOfferingUnavailable { capacity_type, instance_type, zone, until } => {
            let seconds = until.duration_since(now()).as_secs();
            format!("mark {capacity_type}:{instance_type}:{zone} {seconds}s")
        }
        Action::ZeroReservation { id } => format!("zero {id}"),
        Action::AnnotateNodeClaim { name, key, value, .. } => {
            format!("annotate {name} {key}={value}")
        }
        Action::DeleteNodeClaim { name, uid, kind } => {
            assert_eq!(uid.as_str(), format!("uid-{name}"));
            format!("delete {name} {}", kind.metric())
        }
    };
    decide(message, view, now()).iter().map(text).collect()
}

#[test] // nodeclass 23, case 1
fn a_spot_warning() {
    let view = view(&[claim("a", "i-1", spot_labels())], &[("n1", "i-1")]);
    assert_eq!(
        texts(&message(Kind::SpotInterruption, &["i-1"]), &view),
        [
            "event a SpotInterrupted",
            "event n1 SpotInterrupted",
            "mark spot:m5.large:eu-west-1a 180s",
            "delete a spot_interrupted",
            "event a TerminatingOnInterruption",
            "event n1 TerminatingOnInterruption",
        ]
    );
}

#[test] // nodeclass 23, case 2; 31, case 4
fn a_second_warning_only_renews_the_mark() {
    let mut deleting = claim("a", "i-1", spot_labels());
    deleting["metadata"]["deletionTimestamp"] = json!("2026-03-02T07:59:50Z");
    let again = [
        "event a SpotInterrupted",
        "event n1 SpotInterrupted",
        "mark spot:m5.large:eu-west-1a 180s",
    ];
    let spot = message(Kind::SpotInterruption, &["i-1"]);
    assert_eq!(texts(&spot, &view(&[deleting], &[("n1", "i-1")])), again);
    // The same within one batch.
    let mut view = view(&[claim("a", "i-1", spot_labels())], &[("n1", "i-1")]);
    view.begin_deletion(&"uid-a".into());
    assert_eq!(texts(&spot, &view), again);
}

#[test] // nodeclass 23, cases 3, 4, 5, 8; B-069, B-071
fn kinds() {
    let plain = claim("a", "i-1", json!({}));
    for (what, kind, ids, nodes, expected) in [
        (
            "a rebalance recommendation, not asked for",
            Kind::RebalanceRecommendation,
            vec!["i-1"],
            vec![("n1", "i-1")],
            vec!["event a SpotRebalanceRecommendation", "event n1 SpotRebalanceRecommendation"],
        ),
        (
            "stopping without a Node",
            Kind::InstanceStopped,
            vec!["i-1"],
            vec![],
            vec![
                "event a InstanceStopping",
                "delete a instance_stopped",
                "event a TerminatingOnInterruption",
            ],
        ),
        (
            "terminated",
            Kind::InstanceTerminated,
            vec!["i-1", "i-1"],
            vec![],
            vec![
                "event a InstanceTerminating",
                "delete a instance_terminated",
                "event a TerminatingOnInterruption",
            ],
        ),
        ("another cluster's instance", Kind::SpotInterruption, vec!["i-9"], vec![], vec![]),
        (
            "a spot warning without the labels",
            Kind::SpotInterruption,
            vec!["i-1"],
            vec![],
            vec![
                "event a SpotInterrupted",
                "delete a spot_interrupted",
                "event a TerminatingOnInterruption",
            ],
        ),
        ("nothing", Kind::NoOp, vec![], vec![], vec![]),
    ] {
        let view = view(std::slice::from_ref(&plain), &nodes);
        assert_eq!(texts(&message(kind, &ids), &view), expected, "{what}");
    }
    for missing in ["node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"] {
        let mut labels = spot_labels();
        labels.as_object_mut().expect("labels").remove(missing);
        let view = view(&[claim("a", "i-1", labels)], &[]);
        let texts = texts(&message(Kind::SpotInterruption, &["i-1"]), &view);
        assert_eq!(texts.len(), 3, "{texts:?}");
    }
}

#[test] // nodeclass 23, cases 6 and 10
fn several_claims() {
    let claims =
        [claim("b", "i-2", json!({})), claim("a", "i-1", json!({})), claim("c", "i-2", json!({}))];
    let view = view(&claims, &[("n2", "i-2"), ("n1", "i-2")]);
    assert_eq!(
        texts(&message(Kind::ScheduledChange, &["i-3", "i-2", "i-1"]), &view),
        [
            "event b InstanceUnhealthy",
            "event n1 InstanceUnhealthy",
            "delete b scheduled_change",
            "event b TerminatingOnInterruption",
            "event n1 TerminatingOnInterruption",
            "event c InstanceUnhealthy",
            "delete c scheduled_change",
            "event c TerminatingOnInterruption",
            "event a InstanceUnhealthy",
            "delete a scheduled_change",
            "event a TerminatingOnInterruption",
        ]
    );
}

#[test] // nodeclass 23, case 7; 29, case 5
fn reservations() {
    let labels = json!({"karpenter.k8s.aws/capacity-reservation-id": "cr-1"});
    let claims = [claim("a", "i-1", labels.clone()), claim("b", "i-2", labels)];
    let interrupted = message(Kind::CapacityReservationInterruption, &["i-1"]);
    let all = view(&claims, &[]);
    let event = "event a CapacityReservationInstanceInterrupted";
    let rest = ["delete a capacity_reservation_interrupted", "event a TerminatingOnInterruption"];
    assert_eq!(texts(&interrupted, &all), [event, "zero cr-1", rest[0], rest[1]]);
    let known = all.clone().with_known_reservations(BTreeSet::from(["cr-1".to_owned()]));
    assert_eq!(texts(&interrupted, &known).len(), 4);
    let unknown = all.clone().with_known_reservations(BTreeSet::from(["cr-2".to_owned()]));
    assert_eq!(texts(&interrupted, &unknown), [event, rest[0], rest[1]]);

    let mut expiring = message(Kind::CapacityReservationExpiration, &[]);
    expiring.reservation_id = Some("cr-1".into());
    assert_eq!(
        texts(&expiring, &all),
        [
            "delete a capacity_reservation_expiring",
            "event a TerminatingOnInterruption",
            "delete b capacity_reservation_expiring",
            "event b TerminatingOnInterruption",
        ]
    );
    expiring.reservation_id = Some("cr-2".into());
    assert_eq!(texts(&expiring, &all), [""; 0]);
}

#[test] // nodeclass 23: also claims of other classes; 24, case 5
fn forceful_termination() {
    let mut foreign = claim("a", "i-1", json!({}));
    foreign["spec"]["nodeClassRef"]["kind"] = json!("Other");
    let broken = message(Kind::InstanceStatus, &["i-1"]);
    let annotate = "annotate a karpenter.sh/nodeclaim-termination-timestamp=2026-03-02T08:00:00Z";
    assert_eq!(
        texts(&broken, &view(&[foreign.clone()], &[])),
        [
            "event a InstanceUnhealthy",
            annotate,
            "delete a instance_status",
            "event a TerminatingOnInterruption",
        ]
    );
    // Being deleted already: it still gets its deadline.
    foreign["metadata"]["deletionTimestamp"] = json!("2026-03-02T07:00:00Z");
    assert_eq!(
        texts(&broken, &view(&[foreign.clone()], &[])),
        ["event a InstanceUnhealthy", annotate]
    );
    // nodeclass 24, case 5: an existing deadline stays.
    foreign["metadata"]["annotations"] =
        json!({"karpenter.sh/nodeclaim-termination-timestamp": "2025-01-01T00:00:00Z"});
    assert_eq!(texts(&broken, &view(&[foreign], &[])), ["event a InstanceUnhealthy"]);
}

#[test] // nodeclass 24, BETTER: a lead time by pool
fn scheduled_changes_wait_where_the_pool_says_so() {
    let pool = |annotations: Value| {
        from_value::<NodePool>(json!({"metadata": {"name": "default", "annotations": annotations},
            "spec": {"template": {"spec": {"nodeClassRef": {}, "requirements": []}}}}))
        .expect("a pool")
    };
    let after =
        |lead_time: &str| pool(json!({"spokeshave.dev/scheduled-change-lead-time": lead_time}));
    let plain = claim("a", "i-1", spot_labels());
    let announced = "event a InstanceUnhealthy";
    let leaves = |kind: Kind, starts: Option<&str>, pool: &NodePool| {
        let view = view(std::slice::from_ref(&plain), &[]).with_pools([pool]);
        let starts = starts.map(|it| it.parse().expect("a time"));
        let texts = texts(&Message { starts, ..message(kind, &["i-1"]) }, &view);
        assert_eq!(texts[0], announced);
        texts.len() > 1
    };
    // It is 08:00:00.75.
    for kind in [Kind::ScheduledChange, Kind::EventStatus] {
        let in_two_days = Some("2026-03-04T08:00:00.75Z");
        assert!(leaves(kind, in_two_days, &pool(json!({}))), "{kind:?}: at once unless asked");
        assert!(!leaves(kind, in_two_days, &after("47h")));
        assert!(leaves(kind, in_two_days, &after("48h")), "on the second");
        assert!(leaves(kind, None, &after("1h")), "nobody knows when");
        assert!(leaves(kind, Some("2026-03-01T00:00:00Z"), &after("0s")), "it has begun");
        assert!(!leaves(kind, in_two_days, &after("0s")));
        for odd in ["soon", "-1h", ""] {
            assert!(leaves(kind, in_two_days, &after(odd)), "{odd:?} counts as none");
        }
    }
    assert!(leaves(Kind::SystemStatus, Some("2026-03-04T08:00:00Z"), &after("1h")), "broken now");
    let other = json!({"metadata": {"name": "other"}, "spec": {"template": {"spec": {"nodeClassRef": {}, "requirements": []}}}});
    let other = from_value::<NodePool>(other).expect("a pool");
    assert!(leaves(Kind::ScheduledChange, Some("2026-03-04T08:00:00Z"), &other));
}

#[test] // nodeclass 24, BETTER: when a change begins
fn where_the_beginning_of_a_change_comes_from() {
    let health = |start: Value| {
        let body = json!({"version": "0", "source": "aws.health", "detail-type": "AWS Health Event",
            "detail": {"service": "EC2", "eventTypeCategory": "scheduledChange", "startTime": start,
                "affectedEntities": [{"entityValue": "i-1"}]}});
        parse(&body.to_string()).expect("a message").starts.map(|it| it.to_string())
    };
    assert_eq!(
        health(json!("Tue, 4 Nov 2025 12:00:00 GMT")).as_deref(),
        Some("2025-11-04T12:00:00Z")
    );
    for odd in [json!("tomorrow"), json!(7), json!(null), json!({})] {
        assert_eq!(health(odd.clone()), None, "{odd}");
    }
    let event = |description: &str, at: Option<&str>| ScheduledEvent {
        description: description.to_owned(),
        not_before: at.map(|it| it.parse().expect("a time")),
    };
    let starts = |events: Vec<ScheduledEvent>| {
        let report = Report { id: "i-1".into(), checks: vec![], events };
        let messages = status::messages(&[report], now());
        let read_back = status::from_payload(&status::payload(&messages[0].1));
        assert_eq!(read_back, messages[0].1);
        read_back.starts.map(|it| it.to_string())
    };
    let (early, late) = ("2026-03-10T00:00:00Z", "2026-03-12T00:00:00Z");
    assert_eq!(
        starts(vec![event("b", Some(late)), event("a", Some(early))]).as_deref(),
        Some(early)
    );
    assert_eq!(
        starts(vec![event("[Completed] a", Some(early)), event("b", Some(late))]).as_deref(),
        Some(late)
    );
    assert_eq!(starts(vec![event("a", Some(early)), event("b", None)]), None);
}

#[test] // nodeclass 23, BETTER: rebalance recommendations, on request
fn rebalance_is_acted_on_where_it_is_asked_for() {
    let pool = |annotation: &str| {
        from_value::<NodePool>(json!({"metadata": {"name": "default",
            "annotations": {"spokeshave.dev/rebalance": annotation}},
            "spec": {"template": {"spec": {"nodeClassRef": {}, "requirements": []}}}}))
        .expect("a pool")
    };
    let recommended = message(Kind::RebalanceRecommendation, &["i-1"]);
    let plain = claim("a", "i-1", spot_labels());
    let event = "event a SpotRebalanceRecommendation";
    let mark = "mark spot:m5.large:eu-west-1a 180s";
    let annotate = "annotate a spokeshave.dev/rebalance-recommended=2026-03-02T08:00:00Z";
    let acts = |claim: &Value, pool: &NodePool| {
        let view = view(std::slice::from_ref(claim), &[]).with_pools([pool]);
        texts(&recommended, &view)
    };
    assert_eq!(acts(&plain, &pool("replace")), [event, mark, annotate]);
    assert_eq!(acts(&plain, &pool("ignore")), [event]);
    let mut other = plain.clone();
    other["metadata"]["labels"]["karpenter.sh/nodepool"] = json!("other");
    assert_eq!(acts(&other, &pool("replace")), [event]);
    // Ignored for an offering that had one lately.
    let mut lately = view(std::slice::from_ref(&plain), &[]).with_pools([&pool("replace")]);
    lately.recommend_against("m5.large:eu-west-1b".into());
    assert_eq!(texts(&recommended, &lately), [event, mark, annotate]);
    lately.recommend_against("m5.large:eu-west-1a".into());
    assert_eq!(texts(&recommended, &lately), [event]);
    let mut deleting = plain.clone();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-03-02T07:00:00Z");
    assert_eq!(acts(&deleting, &pool("replace")), [event]);
    let mut marked = plain;
    marked["metadata"]["annotations"] =
        json!({"spokeshave.dev/rebalance-recommended": "2026-03-02T07:00:00Z"});
    assert_eq!(acts(&marked, &pool("replace")), [event]);
}

#[test] // aws-capacity 19, case 9
fn provider_ids_of_any_cloud() {
    let mut kwok = claim("a", "i-1", json!({}));
    kwok["status"]["providerID"] = json!("kwok-aws:///test-zone-1a/i-x");
    assert_eq!(texts(&message(Kind::InstanceStopped, &["i-x"]), &view(&[kwok], &[])).len(), 3);
    let mut bad = claim("a", "i-1", json!({}));
    bad["status"]["providerID"] = json!("foo");
    assert_eq!(texts(&message(Kind::InstanceStopped, &["foo"]), &view(&[bad], &[])), [""; 0]);
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn check(category: Category, since: &str) -> Check {
    Check { category, status: "failed".into(), impaired_since: Some(at(since)) }
}

fn kinds_at(reports: &[Report], now: &str) -> Vec<String> {
    let text = |(category, message): &(Category, Message)| {
        format!("{} {} {}", message.instance_ids[0], message.kind.metric(), category.metric())
    };
    status::messages(reports, at(now)).iter().map(text).collect()
}

#[test] // nodeclass 24, cases 1, 2, 3; aws-capacity 22, cases 1 and 3
fn failed_checks_count_after_two_minutes() {
    use Category::{EbsStatus, InstanceStatus, SystemStatus};
    let first = Report {
        id: "i-0a".into(),
        checks: vec![check(InstanceStatus, "2025-11-04T15:00:00Z")],
        events: vec![],
    };
    let second = Report {
        id: "i-0b".into(),
        checks: vec![
            check(InstanceStatus, "2025-11-04T15:03:10Z"),
            check(SystemStatus, "2025-11-04T15:01:00Z"),
            check(EbsStatus, "2025-11-04T15:00:00Z"),
        ],
        events: vec![],
    };
    let both = [first.clone(), second.clone()];
    assert_eq!(
        kinds_at(&both, "2025-11-04T15:04:00Z"),
        ["i-0a instance_status InstanceStatus", "i-0b system_status SystemStatus"]
    );
    let alone = [first];
    assert_eq!(kinds_at(&alone, "2025-11-04T15:01:59Z"), [""; 0]);
    assert_eq!(kinds_at(&alone, "2025-11-04T15:02:00Z"), ["i-0a instance_status InstanceStatus"]);
    assert_eq!(
        kinds_at(&[second], "2025-11-04T15:05:10Z"),
        ["i-0b instance_status InstanceStatus", "i-0b system_status SystemStatus"]
    );
    let volume = Report {
        id: "i-0c".into(),
        checks: vec![check(EbsStatus, "2025-11-04T14:00:00Z")],
        events: vec![],
    };
    assert_eq!(kinds_at(&[volume], "2025-11-04T15:00:00Z"), [""; 0]);
}

#[test] // nodeclass 24, case 4; aws-capacity 22, cases 2, 4, 5, 6
fn scheduled_events_count_at_once_unless_they_are_over() {
    let report = |checks: Vec<Check>, events: &[&str]| Report {
        id: "i-0c".into(),
        checks,
        events: events
            .iter()
            .map(|&it| ScheduledEvent { description: it.to_owned(), not_before: None })
            .collect(),
    };
    let now = "2025-11-04T15:00:00Z";
    let reboot = "The instance is scheduled for a reboot";
    for (what, report, expected) in [
        ("an event", report(vec![], &[reboot]), vec!["i-0c event_status EventStatus"]),
        ("completed", report(vec![], &["[Completed] The instance was stopped"]), vec![]),
        ("cancelled", report(vec![], &["[Canceled] The instance was to be stopped"]), vec![]),
        (
            "event and volume",
            report(vec![check(Category::EbsStatus, "2025-11-04T14:00:00Z")], &[reboot]),
            vec!["i-0c event_status EventStatus"],
        ),
        (
            "forceful first",
            report(vec![check(Category::SystemStatus, "2025-11-04T14:50:00Z")], &[reboot, reboot]),
            vec!["i-0c system_status SystemStatus", "i-0c event_status EventStatus"],
        ),
        (
            "no data",
            report(
                vec![Check {
                    category: Category::InstanceStatus,
                    status: "insufficient-data".into(),
                    impaired_since: None,
                }],
                &[],
            ),
            vec![],
        ),
        (
            "failed since nobody knows when",
            report(
                vec![Check {
                    category: Category::InstanceStatus,
                    status: "failed".into(),
                    impaired_since: None,
                }],
                &[],
            ),
            vec!["i-0c instance_status InstanceStatus"],
        ),
    ] {
        // The same instance in several answers counts once: the first is taken.
        assert_eq!(kinds_at(&[report.clone(), report], now), expected, "{what}");
    }
}

#[test]
fn work_about_unhealthy_instances_is_read_back() {
    for kind in [Kind::InstanceStatus, Kind::SystemStatus, Kind::EventStatus] {
        let message = message(kind, &["i-1", "i-2"]);
        assert_eq!(status::from_payload(&status::payload(&message)), message);
    }
    for payload in [json!(null), json!({"kind": "spot_interrupted"}), json!([1])] {
        assert_eq!(status::from_payload(&payload).kind, Kind::NoOp);
    }
}

#[test] // nodeclass 23 and 26: names that people's dashboards and alerts use
fn names() {
    let table: Vec<String> = Kind::ALL
        .iter()
        .map(|it| {
            let event = it.event().map_or("-".to_owned(), |event| {
                let kind = if event.warning { "Warning" } else { "Normal" };
                format!("{kind} {}: {}", event.reason, event.message)
            });
            format!("{} {event}", it.metric())
        })
        .collect();
    assert_eq!(
        table,
        [
            "spot_interrupted Warning SpotInterrupted: Spot interruption warning was triggered",
            "rebalance_recommendation Normal SpotRebalanceRecommendation: Spot rebalance recommendation was triggered",
            "instance_stopped Warning InstanceStopping: Instance is stopping",
            "instance_terminated Warning InstanceTerminating: Instance is terminating",
            "scheduled_change Warning InstanceUnhealthy: An unhealthy warning was triggered for the instance",
            "capacity_reservation_interrupted Warning CapacityReservationInstanceInterrupted: Capacity Reservation interruption warning was triggered",
            "capacity_reservation_expiring -",
            "instance_status Warning InstanceUnhealthy: An unhealthy warning was triggered for the instance",
            "system_status Warning InstanceUnhealthy: An unhealthy warning was triggered for the instance",
            "event_status Warning InstanceUnhealthy: An unhealthy warning was triggered for the instance",
            "no_op -",
        ]
    );
}
