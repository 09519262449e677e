//! Nodes of Auto Scaling groups, which a lifecycle hook keeps until they are drained (`spec` aws-nodeclass 30).
#![allow(clippy::needless_pass_by_value)] // Builders take literals.

#[path = "../../lifecycle/tests/support/mod.rs"]
mod support;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_lifecycle::hooks::Hook;
use spokeshave_model::{
    core::{Node, Pod, VolumeAttachment},
    meta::apply_merge_patch,
};
use spokeshave_ports::{
    Concern, LifecycleAction, StateTable, When,
    fake::{Fake, block_on},
};
use support::{Kill, Stage, at};

const ID: &str = "i-0c3d4e5f607182930";
const COMPLETED: &str = "complete i-0c3d4e5f607182930 mng-system drain-first \
     c0ffee00-1111-4222-8333-4444deadbe01 CONTINUE";
const HEARTBEAT: &str = "heartbeat i-0c3d4e5f607182930";

fn action(hook: &str) -> LifecycleAction {
    LifecycleAction {
        group: "mng-system".into(),
        hook: hook.into(),
        token: "c0ffee00-1111-4222-8333-4444deadbe01".into(),
        instance: ID.into(),
    }
}

fn hold(stage: &Stage, hook: &str) {
    let every = stage.settings.heartbeat_interval;
    let hook = Hook::new(action(hook), "g", &"ug".into(), every, stage.now());
    let data = serde_json::to_value(&hook).expect("writes");
    block_on(stage.fake.write(&hook.key(), data, hook.expires_at(), When::Always))
        .expect("written");
    stage.fake.calls.borrow_mut().clear();
    stage.message(Concern::Termination, "Interrupted", &["Node/g"]);
}

/// A node of a group with one pod, let go at 10:00:00.
fn held_node() -> Stage {
    let mut stage = Stage::new("10:00:00");
    stage.settings.lifecycle_hooks = true;
    stage.add::<Node>(json!({
        "metadata": {"name": "g", "uid": "ug", "resourceVersion": "1"},
        "spec": {"providerID": format!("aws:///us-west-2b/{ID}")},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    pod(&stage, "web", json!({}));
    stage.launch(ID);
    hold(&stage, "drain-first");
    stage
}

fn pod(stage: &Stage, name: &str, changes: Value) {
    let mut base = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"nodeName": "g", "terminationGracePeriodSeconds": 10},
        "status": {"phase": "Running"}});
    apply_merge_patch(&mut base, &changes);
    stage.add::<Pod>(base);
}

/// Delivers everything until `until`; a sweep every ten minutes.
fn play(stage: &Stage, until: Timestamp) {
    let mut sweep = stage.now() + SignedDuration::from_mins(10);
    loop {
        while let Some((concern, works)) = stage.receive() {
            if concern == Concern::Termination {
                stage.deliver(concern, &works, |batch, cx| async move {
                    let groups = stage;
                    spokeshave_termination_function::handle(
                        batch, stage, stage, groups, stage, stage, cx,
                    )
                    .await
                });
            }
        }
        let next = stage.next(until).map_or(sweep, |it| it.min(sweep));
        if next > until {
            stage.advance(until);
            return;
        }
        stage.advance(next);
        if next == sweep {
            stage.message(Concern::Termination, "Sweep", &[]);
            sweep += SignedDuration::from_mins(10);
        }
    }
}

/// What was asked of the cluster and of Auto Scaling, without our own records.
fn calls(stage: &Stage) -> Vec<String> {
    let ours = |it: &&String| !it.starts_with("write ") && !it.starts_with("remove ");
    stage.fake.calls.borrow().iter().filter(ours).cloned().collect()
}

fn records(fake: &Fake) -> usize {
    block_on(fake.query("lifecycle-hook", "")).expect("read").len()
}

/// When a call was made, by decisions: seconds after 10:00:00 as the stage was played second by second.
fn seconds_of(stage: &Stage, call: &str, until: &str) -> Vec<i64> {
    let start = at("10:00:00");
    let mut seconds = Vec::new();
    let mut seen = 0;
    let mut now = stage.now();
    while now <= at(until) {
        play(stage, now);
        let count = calls(stage).iter().filter(|it| it.starts_with(call)).count();
        if count > seen {
            seconds.push(now.duration_since(start).as_secs());
            seen = count;
        }
        now += SignedDuration::from_secs(1);
    }
    seconds
}

#[test] // nodeclass 30, case 1
fn a_node_of_a_group_is_cordoned_drained_and_let_go() {
    let stage = held_node();
    play(&stage, at("10:05:00"));
    assert_eq!(calls(&stage), ["patch Node/g", "evict Pod/default/web", COMPLETED]);
    let node = stage.get::<Node>("g").expect("its end is the group's");
    assert!(node.spec.unschedulable, "people see that it is cordoned");
    let taints: Vec<&str> = node.spec.taints.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(taints, ["karpenter.sh/disrupted"]);
    let balancers = "node.kubernetes.io/exclude-from-external-load-balancers";
    assert_eq!(node.metadata.label(balancers), Some("karpenter"));
    assert_eq!(stage.instance_state(ID), "running", "nobody but the group terminates it");
    assert_eq!(records(&stage.fake), 0);
    assert_eq!(
        stage.told(),
        [
            "cordon Node/g".to_owned(),
            "evict Pod/default/web".to_owned(),
            format!("complete-lifecycle-action LifecycleHook/mng-system/drain-first/{ID}"),
        ]
    );
    // What comes again is answered again at most, never drained into the void.
    stage.message(Concern::Termination, "Interrupted", &["Node/g"]);
    play(&stage, at("10:06:00"));
    assert_eq!(calls(&stage).len(), 3);
    assert_eq!(stage.pending(Concern::Termination), []);
}

#[test] // nodeclass 30, case 3
fn a_long_drain_sends_heartbeats() {
    let stage = held_node();
    // The budget lets the pod go in time for its grace period to end within twenty minutes.
    stage.blocked.borrow_mut().insert("web".into());
    let beats = seconds_of(&stage, HEARTBEAT, "10:18:30");
    assert_eq!(beats, [300, 600, 900]);
    stage.blocked.borrow_mut().clear();
    play(&stage, at("10:22:00"));
    let calls = calls(&stage);
    assert_eq!(
        calls,
        ["patch Node/g", HEARTBEAT, HEARTBEAT, HEARTBEAT, "evict Pod/default/web", COMPLETED]
    );
    assert_eq!(records(&stage.fake), 0);
}

#[test] // a budget that lets pods go wakes the drain at once
fn an_unblocked_eviction_is_tried_again_at_once() {
    let stage = held_node();
    stage.blocked.borrow_mut().insert("web".into());
    play(&stage, at("10:08:30"));
    stage.blocked.borrow_mut().clear();
    stage.message(Concern::Termination, "EvictionUnblocked", &["PodDisruptionBudget/default/b"]);
    play(&stage, at("10:08:40"));
    assert_eq!(
        calls(&stage),
        ["patch Node/g", HEARTBEAT, "evict Pod/default/web", COMPLETED],
        "evicted at once, gone ten seconds later"
    );
}

#[test] // the interval and the end of heartbeats are settings
fn heartbeats_end_when_they_are_to() {
    let mut stage = held_node();
    stage.settings.heartbeat_interval = SignedDuration::from_secs(60);
    stage.settings.heartbeat_until = SignedDuration::from_secs(240);
    hold(&stage, "drain-first");
    stage.blocked.borrow_mut().insert("web".into());
    assert_eq!(seconds_of(&stage, HEARTBEAT, "10:12:00"), [60, 120, 180]);
    stage.blocked.borrow_mut().clear();
    play(&stage, at("10:15:00"));
    assert_eq!(calls(&stage).last().map(String::as_str), Some(COMPLETED));
}

#[test] // nodeclass 30, case 4
fn a_group_that_does_not_listen_is_told_no_more() {
    let stage = held_node();
    stage.blocked.borrow_mut().insert("web".into());
    stage.fake.fail(HEARTBEAT, "ValidationError");
    play(&stage, at("10:05:30"));
    stage.fake.mend(HEARTBEAT);
    let silenced = format!("silence LifecycleHook/mng-system/drain-first/{ID}");
    assert_eq!(stage.told().iter().filter(|it| **it == silenced).count(), 1);
    play(&stage, at("10:30:00"));
    assert_eq!(calls(&stage), ["patch Node/g"], "no heartbeat any more");
    // The drain goes on, and an answer that nobody waits for does no harm.
    stage.blocked.borrow_mut().clear();
    stage.fake.fail(&format!("complete {ID}"), "ValidationError");
    play(&stage, at("10:35:00"));
    assert_eq!(calls(&stage), ["patch Node/g", "evict Pod/default/web"]);
    assert_eq!(records(&stage.fake), 0);
}

#[test] // a heartbeat that fails otherwise is tried again at the next look
fn a_heartbeat_that_fails_is_tried_again() {
    let stage = held_node();
    stage.blocked.borrow_mut().insert("web".into());
    stage.fake.fail(HEARTBEAT, "Throttling");
    play(&stage, at("10:05:30"));
    stage.fake.mend(HEARTBEAT);
    let beats = seconds_of(&stage, HEARTBEAT, "10:11:00");
    assert_eq!(beats, [360, 600], "the next in its turn");
    // And while the cluster does not answer, the group still hears of us.
    stage.fake.fail("list Pod", "Unavailable");
    assert_eq!(seconds_of(&stage, HEARTBEAT, "10:17:00").len(), 2, "one of before, one now");
}

#[test]
fn every_hook_of_a_group_is_answered() {
    let stage = held_node();
    hold(&stage, "copy-logs");
    play(&stage, at("10:05:00"));
    let answers: Vec<String> =
        calls(&stage).into_iter().filter(|it| it.starts_with("complete")).collect();
    assert_eq!(answers, [COMPLETED.replace("drain-first", "copy-logs"), COMPLETED.to_owned()]);
}

#[test]
fn volumes_leave_before_the_instance_may() {
    let stage = held_node();
    stage.add::<VolumeAttachment>(json!({
        "metadata": {"name": "va", "uid": "va"},
        "spec": {"nodeName": "g", "attacher": "ebs.csi.aws.com", "source": {"persistentVolumeName": "pv"}}}));
    stage.add::<spokeshave_model::core::PersistentVolume>(
        json!({"metadata": {"name": "pv", "uid": "pv"}}),
    );
    play(&stage, at("10:04:00"));
    assert_eq!(calls(&stage), ["patch Node/g", "evict Pod/default/web"]);
    stage.fake.objects.borrow_mut().remove("VolumeAttachment/va");
    play(&stage, at("10:06:00"));
    assert_eq!(calls(&stage).last().map(String::as_str), Some(COMPLETED));
}

#[test] // the node went before it was drained: nothing is left to wait for
fn a_node_that_is_gone_is_let_go() {
    let stage = held_node();
    stage.fake.objects.borrow_mut().remove("Node/g");
    play(&stage, at("10:00:01"));
    assert_eq!(calls(&stage), [COMPLETED]);
    // Another instance has its name by now: that one is left alone.
    let stage = held_node();
    stage.fake.objects.borrow_mut().remove("Node/g");
    stage.add::<Node>(json!({"metadata": {"name": "g", "uid": "u2"},
        "spec": {"providerID": "aws:///us-west-2b/i-0ffffffffffffffff"}}));
    play(&stage, at("10:00:01"));
    assert_eq!(calls(&stage), [COMPLETED]);
}

#[test] // switched off again: what waits is left to its time-out
fn records_of_before_are_left_alone_when_it_is_off() {
    let mut stage = held_node();
    stage.settings.lifecycle_hooks = false;
    play(&stage, at("10:20:00"));
    assert_eq!(calls(&stage), [""; 0]);
}

#[test] // a message that got lost: the sweep looks after what waits
fn the_sweep_finds_hooks() {
    let stage = held_node();
    assert!(stage.receive().is_some(), "lost");
    play(&stage, at("10:12:00"));
    assert_eq!(calls(&stage), [HEARTBEAT, "patch Node/g", "evict Pod/default/web", COMPLETED]);
}

#[test] // killed between any two calls and run again, it ends right
fn it_may_be_killed_anywhere() {
    let whole = held_node();
    play(&whole, at("10:30:00"));
    let most = whole.calls.get();
    assert!(most > 10, "{most}");
    for n in 1..=most {
        for kill in [Kill::Before(n), Kill::After(n)] {
            let stage = held_node();
            stage.kill.set(kill);
            play(&stage, at("10:30:00"));
            let made = calls(&stage);
            assert_eq!(records(&stage.fake), 0, "{kill:?}");
            assert!(stage.get::<Pod>("default/web").is_none(), "{kill:?}");
            let completed = made.iter().filter(|it| **it == COMPLETED).count();
            assert!((1..=2).contains(&completed), "{kill:?}: {made:?}");
            let evicted = made.iter().position(|it| it == "evict Pod/default/web");
            let answered = made.iter().position(|it| it == COMPLETED);
            assert!(evicted < answered, "{kill:?}: {made:?}");
            assert_eq!(stage.instance_state(ID), "running", "{kill:?}");
        }
    }
}
