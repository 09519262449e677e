//! Draining, case by case.
#![allow(clippy::needless_pass_by_value)] // Builders take literals.

mod builders;

use builders::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use spokeshave_lifecycle::drain::{Drain, Step, decide};
use spokeshave_model::core::Pod;

fn owned(kind: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o"}])
}

fn daemon(name: &str, class: &str) -> Pod {
    pod(
        name,
        json!({"metadata": {"ownerReferences": owned("DaemonSet")}, "spec": {"priorityClassName": class}}),
    )
}

fn classed(name: &str, class: &str) -> Pod {
    pod(name, json!({"spec": {"priorityClassName": class}}))
}

fn steps(drain: &Drain<'_>) -> Vec<String> {
    drain
        .steps
        .iter()
        .map(|it| match it {
            Step::Evict(pod) => format!("evict {}", pod.metadata.name),
            Step::ForceDelete { pod, grace } => format!("force {} {grace}", pod.metadata.name),
        })
        .collect()
}

fn drain<'a>(pods: &[&'a Pod], deadline: Option<&str>, now: &str) -> Drain<'a> {
    decide(pods, deadline.map(at), at(now))
}

#[test] // lifecycle 28.7, cases 1, 9, 12; B-024
fn pods_leave_in_tiers() {
    let web = pod("web", json!({}));
    let log = daemon("log", "");
    let dns = classed("dns", "system-cluster-critical");
    let proxy = pod(
        "proxy",
        json!({"metadata": {"ownerReferences": owned("DaemonSet")},
        "spec": {"priorityClassName": "system-node-critical", "tolerations": [{"operator": "Exists"}]}}),
    );
    let critical_daemon = daemon("cni", "system-node-critical");
    let mirror = pod(
        "mirror",
        json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}]}}),
    );
    let done = pod("job", json!({"status": {"phase": "Succeeded"}}));
    let important = pod("important", json!({"spec": {"priority": 2_000_000_000}}));
    let all = [&web, &log, &dns, &proxy, &critical_daemon, &mirror, &done, &important];
    let first = drain(&all, None, "10:00:00");
    assert_eq!(steps(&first), ["evict important", "evict web"], "a value makes nothing critical");
    assert_eq!(first.waiting, 5);
    let then = |pods: &[&Pod]| steps(&drain(pods, None, "10:00:00"));
    assert_eq!(then(&[&log, &dns, &proxy, &critical_daemon, &mirror, &done]), ["evict log"]);
    assert_eq!(then(&[&dns, &proxy, &critical_daemon, &mirror, &done]), ["evict dns"]);
    assert_eq!(then(&[&proxy, &critical_daemon, &mirror, &done]), ["evict cni"]);
    assert_eq!(drain(&[&proxy, &mirror, &done], None, "10:00:00"), Drain::default());
}

#[test] // lifecycle 28.1, step 5
fn a_pod_that_is_going_holds_the_next_tier() {
    let going = pod("web", json!({"metadata": {"deletionTimestamp": "2024-03-01T10:00:30Z"}}));
    let log = daemon("log", "");
    let waits = drain(&[&going, &log], None, "10:00:10");
    assert_eq!((steps(&waits), waits.waiting), (vec![], 2));
    assert_eq!(waits.due, Some(at("10:01:31")), "when it counts as stuck");
}

#[test] // lifecycle 28.7, case 8; 15.4, case 10
fn stuck_pods_are_not_waited_for() {
    let going = pod("web", json!({"metadata": {"deletionTimestamp": "2024-03-01T10:00:30Z"}}));
    assert_eq!(drain(&[&going], None, "10:01:30").waiting, 1);
    assert_eq!(drain(&[&going], None, "10:01:31").waiting, 0);
}

#[test] // lifecycle 28.7, cases 3-7; 34.1, case 5; B-082
fn the_deadline_beats_budgets_and_annotations() {
    let web = pod("web", json!({}));
    let dns = pod(
        "dns",
        json!({"spec": {"priorityClassName": "system-cluster-critical", "terminationGracePeriodSeconds": 60}}),
    );
    let held = pod(
        "held",
        json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        "spec": {"terminationGracePeriodSeconds": 300}}),
    );
    let long = pod("long", json!({"spec": {"terminationGracePeriodSeconds": 3600}}));
    let endless = pod("endless", json!({"spec": {"terminationGracePeriodSeconds": null}}));
    for (what, pods, deadline, now, expected) in [
        ("before", vec![&web], "11:00:00", "10:59:30", vec!["evict web"]),
        ("just after", vec![&web], "11:00:00", "10:59:31", vec!["force web 29"]),
        (
            "whatever the tier",
            vec![&web, &dns],
            "11:00:00",
            "10:59:01",
            vec!["force dns 59", "evict web"],
        ),
        ("held, not yet", vec![&held], "11:00:00", "10:55:00", vec![]),
        ("held, now", vec![&held], "11:00:00", "10:55:01", vec!["force held 299"]),
        ("longer than there is", vec![&long], "10:05:00", "10:00:02", vec!["force long 298"]),
        ("the deadline has passed", vec![&web], "10:00:00", "10:10:00", vec!["force web 1"]),
        ("no grace period known", vec![&endless], "10:00:00", "10:10:00", vec!["evict endless"]),
    ] {
        assert_eq!(steps(&drain(&pods, Some(deadline), now)), expected, "{what}");
    }
    assert_eq!(drain(&[&web], Some("11:00:00"), "10:59:30").due, Some(at("10:59:31")));

    let dying = |until: &str| {
        pod("web", json!({"metadata": {"deletionTimestamp": format!("2024-03-01T{until}Z")}}))
    };
    assert_eq!(
        steps(&drain(&[&dying("11:00:40")], Some("11:00:00"), "10:50:00")),
        ["force web 600"]
    );
    assert_eq!(steps(&drain(&[&dying("11:00:00")], Some("11:00:00"), "10:50:00")), [] as [&str; 0]);
    let forced = dying("11:00:06");
    assert_eq!(
        steps(&drain(&[&forced], Some("11:00:00"), "11:00:05")),
        [] as [&str; 0],
        "no second time"
    );
}

#[test] // lifecycle 28.1, step 2; 34, row 16
fn do_not_disrupt_is_waited_for() {
    let held = pod(
        "held",
        json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "1h"}},
        "status": {"startTime": "2024-03-01T10:00:00Z"}}),
    );
    let waits = drain(&[&held], None, "10:30:00");
    assert_eq!((steps(&waits), waits.waiting, waits.due), (vec![], 1, Some(at("11:00:00"))));
    assert_eq!(waits.held.map(|it| it.metadata.name.as_str()), Some("held"));
    assert_eq!(steps(&drain(&[&held], None, "11:00:00")), ["evict held"]);
}

prop_compose! {
    fn any_pod()(n in 0..100u32, daemon in any::<bool>(), critical in any::<bool>(), held in any::<bool>(),
        tolerates in any::<bool>(), dying in proptest::option::of(0..120u32), grace in 0..400i64, phase in 0..3u8) -> Pod {
        let phase = ["Running", "Succeeded", "Pending"][usize::from(phase)];
        let mut changes = json!({"spec": {"terminationGracePeriodSeconds": grace}, "status": {"phase": phase}});
        if daemon { changes["metadata"]["ownerReferences"] = owned("DaemonSet"); }
        if critical { changes["spec"]["priorityClassName"] = json!("system-node-critical"); }
        if held { changes["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"}); }
        if tolerates { changes["spec"]["tolerations"] = json!([{"operator": "Exists"}]); }
        if let Some(second) = dying {
            changes["metadata"]["deletionTimestamp"] =
                json!(format!("2024-03-01T10:{:02}:{:02}Z", second / 60, second % 60));
        }
        pod(&format!("p{n}"), changes)
    }
}

proptest! {
    // Whatever the pods are: nothing that may not be touched is, nobody gets more time than the deadline leaves
    // (but for the least second), and after the deadline and a minute and a bit the drain is over.
    #[test]
    fn drains_are_bounded(pods in proptest::collection::vec(any_pod(), 0..12), minute in 0..10u32) {
        let pods: Vec<&Pod> = pods.iter().collect();
        let now = at(&format!("10:{minute:02}:00"));
        let deadline = at("10:05:00");
        let first = decide(&pods, Some(deadline), now);
        for step in &first.steps {
            match step {
                Step::Evict(pod) => {
                    prop_assert!(!pod.metadata.deleting() && pod.metadata.annotations.is_empty());
                    prop_assert!(pod.spec.tolerations.is_empty());
                }
                Step::ForceDelete { pod, grace } => {
                    prop_assert!(*grace >= 1 && pod.spec.tolerations.is_empty() && !pod.is_terminal());
                    prop_assert!(*grace == 1 || now.as_second() + grace <= deadline.as_second());
                }
            }
        }
        // Everything that is asked for at the deadline happens: a minute later nothing is left.
        let late = at("10:05:01");
        let mut world: Vec<Pod> = pods.iter().map(|it| (*it).clone()).collect();
        for pod in &mut world {
            pod.spec.termination_grace_period_seconds.get_or_insert(30);
        }
        let view: Vec<&Pod> = world.iter().collect();
        let forced: Vec<(String, i64)> = decide(&view, Some(deadline), late).steps.iter().filter_map(|it| match it {
            Step::ForceDelete { pod, grace } => Some((pod.metadata.name.clone(), *grace)),
            Step::Evict(_) => None,
        }).collect();
        for pod in &mut world {
            if let Some((_, grace)) = forced.iter().find(|(name, _)| *name == pod.metadata.name) {
                let ends = late.as_second() + grace;
                pod.metadata.deletion_timestamp = Some(jiff::Timestamp::from_second(ends).expect("in range"));
            }
        }
        let view: Vec<&Pod> = world.iter().collect();
        prop_assert_eq!(decide(&view, Some(deadline), at("10:06:05")).waiting, 0);
    }
}
