//! Batches of the interruption queue (`spec` aws-nodeclass 22, 23, 26, 31).

use std::{fs, path::Path};

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_interruption_function::handle;
use spokeshave_lambda::{BatchAnswer, SqsBatch, SqsRecord};
use spokeshave_model::{NodeClaim, Settings, core::Node};
use spokeshave_ports::{
    Concern, Invocation, StateKey, StateTable, When,
    fake::{Fake, block_on},
};

fn now() -> Timestamp {
    "2026-03-02T08:00:02Z".parse().expect("a time")
}

fn sample(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn instance(n: u32) -> String {
    format!("i-0c0ffee{n:010}")
}

fn add_claim(world: &Fake, name: &str, n: u32) {
    world.add_json::<NodeClaim>(json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
            "finalizers": ["karpenter.sh/termination"],
            "labels": {"node.kubernetes.io/instance-type": "m5.large",
                "topology.kubernetes.io/zone": "us-west-2a", "karpenter.sh/capacity-type": "spot",
                "karpenter.sh/nodepool": "default",
                "karpenter.k8s.aws/capacity-reservation-id": "cr-1"}},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"}},
        "status": {"providerID": format!("aws:///us-west-2a/{}", instance(n)),
            "nodeName": format!("node-{name}")}}));
    world.add_json::<Node>(json!({"metadata": {"name": format!("node-{name}"), "uid": "n"},
        "spec": {"providerID": format!("aws:///us-west-2a/{}", instance(n))}}));
}

fn batch(bodies: &[String]) -> SqsBatch {
    let record = |(at, body): (usize, &String)| SqsRecord {
        message_id: format!("m{at}"),
        body: body.clone(),
        ..SqsRecord::default()
    };
    SqsBatch { records: bodies.iter().enumerate().map(record).collect() }
}

fn handle_batch(world: &Fake, batch: &SqsBatch) -> Vec<String> {
    handle_with(&Settings::default(), world, batch)
}

fn handle_with(settings: &Settings, world: &Fake, batch: &SqsBatch) -> Vec<String> {
    let cx = Invocation {
        concern: Concern::Interruption,
        now: world.now.get(),
        deadline: Timestamp::MAX,
        settings,
        journal: world,
    };
    let answer: BatchAnswer = block_on(handle(batch, world, world, world, &cx));
    answer.failures.into_iter().map(|it| it.message_id).collect()
}

fn sent(world: &Fake) -> Vec<String> {
    let text = |(to, work, delay, group): &(
        Concern,
        spokeshave_ports::Work,
        jiff::SignedDuration,
        String,
    )| {
        assert!(delay.is_zero() && group.is_empty());
        let names: Vec<&str> = work.keys.iter().map(|it| it.name.as_str()).collect();
        format!("{to} {} {}", work.reason, names.join(","))
    };
    world.sent.borrow().iter().map(text).collect()
}

const RECEIVED: &str = "karpenter_interruption_received_messages_total";
const DELETED: &str = "karpenter_interruption_deleted_messages_total";
const LATENCY: &str = "karpenter_interruption_message_queue_duration_seconds";
const DISRUPTED: &str = "karpenter_nodeclaims_disrupted_total";

#[test] // nodeclass 23, case 1; 26, case 1; 31, case 3
fn a_spot_warning() {
    let world = Fake::at(now());
    add_claim(&world, "a", 1);
    let spot = batch(&[sample("aws/spot-interruption-warning.json")]);
    assert_eq!(handle_batch(&world, &spot), [""; 0]);
    assert_eq!(
        *world.calls.borrow(),
        [
            "write unavailable/spot:m5.large:us-west-2a",
            "write unavailable-sequence/all",
            "delete NodeClaim/a"
        ]
    );
    let key = StateKey::new("unavailable", "spot:m5.large:us-west-2a");
    let expires = world.records.borrow()[&key].expires_at;
    assert_eq!(expires, Some("2026-03-02T08:03:02Z".parse().expect("a time")));
    assert_eq!(
        world.event_reasons(),
        [
            "NodeClaim/a SpotInterrupted",
            "Node/node-a SpotInterrupted",
            "NodeClaim/a TerminatingOnInterruption",
            "Node/node-a TerminatingOnInterruption"
        ]
    );
    assert_eq!(sent(&world), ["termination Interrupted a", "provision Displaced a"]);
    assert_eq!(world.samples(RECEIVED), [format!("{RECEIVED}{{message_type=spot_interrupted}} 1")]);
    assert_eq!(world.samples(DELETED).len(), 1);
    assert_eq!(world.samples(LATENCY), [format!("{LATENCY}{{}} 2")]);
    assert_eq!(
        world.samples(DISRUPTED),
        [format!(
            "{DISRUPTED}{{reason=spot_interrupted,nodepool=default,capacity_type=spot,\
             consolidation_policy=,termination_mode=}} 1"
        )]
    );
    // nodeclass 23, case 2: delivered again 10 s later.
    world.now.set("2026-03-02T08:00:12Z".parse().expect("a time"));
    world.calls.borrow_mut().clear();
    assert_eq!(handle_batch(&world, &spot), [""; 0]);
    assert!(!world.calls.borrow().iter().any(|it| it.starts_with("delete")));
    let expires = world.records.borrow()[&key].expires_at;
    assert_eq!(expires, Some("2026-03-02T08:03:12Z".parse().expect("a time")));
    assert_eq!(world.samples(DISRUPTED).len(), 1);
    assert_eq!(world.samples(DELETED).len(), 2);
}

#[test] // nodeclass 22, cases 8, 9; 26, case 2; B-068
fn a_mixed_batch() {
    let world = Fake::at(now());
    for n in 1..=3 {
        add_claim(&world, &format!("c{n}"), n);
    }
    let mixed: SqsBatch =
        serde_json::from_str(&sample("lambda/interruption-batch.json")).expect("a batch");
    assert_eq!(handle_batch(&world, &mixed), [""; 0]);
    let mut received = world.samples(RECEIVED);
    received.sort();
    let of = |kind: &str| format!("{RECEIVED}{{message_type={kind}}} 1");
    assert_eq!(
        received,
        [
            of("capacity_reservation_interrupted"),
            of("no_op"),
            of("rebalance_recommendation"),
            of("spot_interrupted")
        ]
    );
    assert_eq!(world.samples(DELETED).len(), 5);
    assert_eq!(world.samples(LATENCY).len(), 3, "not for no_op");
    let dropped: Vec<String> = world
        .decisions
        .borrow()
        .iter()
        .filter(|it| it.action == "drop" && it.error)
        .map(|it| it.object.clone())
        .collect();
    assert_eq!(dropped, ["Message/5ea7e5a0-1111-4000-8000-000000000003"]);
    let deleted: Vec<String> =
        world.calls.borrow().iter().filter(|it| it.starts_with("delete")).cloned().collect();
    assert_eq!(deleted, ["delete NodeClaim/c1", "delete NodeClaim/c2"]);
}

#[test] // nodeclass 22, case 10; 23, case 9; B-074
fn a_message_fails_alone() {
    let world = Fake::at(now());
    for n in 1..=3 {
        add_claim(&world, &format!("c{n}"), n);
    }
    world.fail("delete NodeClaim/c2", "Unavailable");
    let bodies = [
        sample("aws/spot-interruption-warning.json"),
        sample("aws/health-scheduled-change-many.json"),
        sample("aws/health-other-service.json"),
    ];
    assert_eq!(handle_batch(&world, &batch(&bodies)), ["m1"]);
    let deleted = |world: &Fake| -> Vec<String> {
        world.calls.borrow().iter().filter(|it| it.starts_with("delete")).cloned().collect()
    };
    assert_eq!(deleted(&world), ["delete NodeClaim/c1", "delete NodeClaim/c3"]);
    assert!(!world.event_reasons().contains(&"NodeClaim/c2 TerminatingOnInterruption".to_owned()));
    // On redelivery the others are done already.
    world.mend("delete NodeClaim/c2");
    world.calls.borrow_mut().clear();
    assert_eq!(handle_batch(&world, &batch(&bodies[1..2])), [""; 0]);
    assert_eq!(deleted(&world), ["delete NodeClaim/c2"]);
}

#[test]
fn without_the_api_server_everything_that_matters_is_kept() {
    let world = Fake::at(now());
    world.fail("list NodeClaim", "Unavailable");
    let bodies = [
        sample("aws/spot-interruption-warning.json"),
        sample("aws/state-change-running.json"),
        sample("aws/malformed.txt"),
        sample("aws/state-change-terminated.json"),
    ];
    assert_eq!(handle_batch(&world, &batch(&bodies)), ["m0", "m3"]);
}

#[test] // nodeclass 31, case 6
fn without_the_state_table_the_claim_still_goes() {
    let world = Fake::at(now());
    add_claim(&world, "a", 1);
    world.fail(
        "write unavailable/spot:m5.large:us-west-2a",
        "ProvisionedThroughputExceededException",
    );
    world.fail("query reservation", "InternalServerError");
    let bodies = [sample("aws/spot-interruption-warning.json")];
    assert_eq!(handle_batch(&world, &batch(&bodies)), [""; 0]);
    assert_eq!(*world.calls.borrow(), ["delete NodeClaim/a"]);
    // And the claim says what could not be written down.
    let events = world.events.borrow().clone();
    let told = events.iter().find(|it| it.reason == "InterruptionNotRecorded").expect("is told");
    let said = "ProvisionedThroughputExceededException: told to fail (fake:Call, retryable); ";
    assert!(told.warning && told.message.starts_with(said), "{}", told.message);
    let world = Fake::at(now());
    add_claim(&world, "b", 2);
    world.fail("query reservation", "InternalServerError");
    let bodies = [sample("aws/capacity-reservation-interruption.json")];
    assert_eq!(handle_batch(&world, &batch(&bodies)), [""; 0]);
    assert_eq!(*world.calls.borrow(), ["delete NodeClaim/b"]);
}

#[test] // nodeclass 23, case 7
fn a_known_reservation_is_emptied() {
    for known in [true, false] {
        let world = Fake::at(now());
        add_claim(&world, "b", 2);
        let key = StateKey::new("reservation", "cr-1");
        if known {
            let data = json!({"count": 4, "readAt": now()});
            block_on(world.write(&key, data, None, When::Always)).expect("written");
        }
        let bodies = [sample("aws/capacity-reservation-interruption.json")];
        assert_eq!(handle_batch(&world, &batch(&bodies)), [""; 0]);
        let count = world.records.borrow().get(&key).map(|it| it.data["count"].clone());
        assert_eq!(count, known.then(|| json!(0)));
        assert!(world.calls.borrow().contains(&"delete NodeClaim/b".to_owned()));
    }
}

#[test] // nodeclass 24: what instance-gc found out
fn unhealthy_instances() {
    let world = Fake::at(now());
    add_claim(&world, "a", 1);
    let event = json!({"reason": "InstanceStatus",
        "payload": {"kind": "event_status", "instanceIds": [instance(1)]}});
    let system = sample("queue/instance-status.json");
    // The event comes first in the batch, but the deadline has to be there before the claim goes.
    assert_eq!(handle_batch(&world, &batch(&[event.to_string(), system])), [""; 0]);
    assert_eq!(*world.calls.borrow(), ["patch NodeClaim/a", "delete NodeClaim/a"]);
    let claim: NodeClaim = world.object("a").expect("it drains");
    let deadline = claim.metadata.annotation("karpenter.sh/nodeclaim-termination-timestamp");
    assert_eq!(deadline, Some("2026-03-02T08:00:02Z"));
    let reasons: Vec<Value> = world
        .metrics
        .borrow()
        .iter()
        .filter(|it| it.name == DISRUPTED)
        .map(|it| json!(it.labels[0].1))
        .collect();
    assert_eq!(reasons, ["system_status"]);
}

#[test] // KWOK mode: an interruption that was asked for reads like EC2's own
fn made_up_interruptions() {
    let world = Fake::at(now());
    add_claim(&world, "a", 1);
    let event = |payload: Value| json!({"reason": "MadeUpInterruption", "payload": payload});
    let warning = json!({"version": "0", "id": "kwok-1", "source": "aws.ec2", "account": "123456789012",
        "detail-type": "EC2 Spot Instance Interruption Warning", "region": "us-west-2",
        "time": "2026-03-02T08:00:00Z",
        "detail": {"instance-id": instance(1), "instance-action": "terminate"}});
    let bodies = [event(warning).to_string(), event(json!(7)).to_string()];
    assert_eq!(handle_batch(&world, &batch(&bodies)), [""; 0]);
    let offering = "write unavailable/spot:m5.large:us-west-2a";
    let expected = [offering, "write unavailable-sequence/all", "delete NodeClaim/a"];
    assert_eq!(*world.calls.borrow(), expected);
    // What it carries is dropped when it is no event.
    assert!(world.decisions.borrow().iter().any(|it| it.action == "drop" && it.error));
}

#[test]
fn a_failed_annotation_keeps_the_claim_for_the_next_try() {
    let world = Fake::at(now());
    add_claim(&world, "a", 1);
    world.fail("patch NodeClaim/a", "Conflict");
    let system = [sample("queue/instance-status.json")];
    assert_eq!(handle_batch(&world, &batch(&system)), ["m0"]);
    assert_eq!(*world.calls.borrow(), [""; 0]);
}

#[test] // nodeclass 23, case 5; B-069, B-071
fn instances_of_others() {
    let world = Fake::at(now());
    let bodies = [
        sample("aws/spot-interruption-warning.json"),
        sample("aws/rebalance-recommendation.json"),
        sample("aws/state-change-terminated.json"),
    ];
    for _ in 0..10 {
        assert_eq!(handle_batch(&world, &batch(&bodies)), [""; 0]);
    }
    assert!(world.calls.borrow().is_empty() && world.sent.borrow().is_empty());
    assert_eq!(world.samples(DELETED).len(), 30);
    assert!(world.decisions.borrow().iter().all(|it| it.action == "skip" && !it.error));
}

#[test] // B-071: the same event ten times; the first removes the claim
fn an_event_that_comes_again_is_no_error() {
    let world = Fake::at(now());
    add_claim(&world, "a", 2);
    let bodies = [sample("aws/state-change-terminated.json")];
    for _ in 0..10 {
        assert_eq!(handle_batch(&world, &batch(&bodies)), [""; 0]);
    }
    let calls = world.calls.borrow();
    assert_eq!(calls.iter().filter(|it| it.starts_with("delete")).count(), 1, "{calls:?}");
    assert_eq!(world.samples(DELETED).len(), 10);
    assert!(world.decisions.borrow().iter().all(|it| !it.error));
}

#[test] // B-073: EC2 says terminated while the claim drains
fn a_terminated_instance_wakes_the_termination_of_a_draining_claim() {
    let world = Fake::at(now());
    add_claim(&world, "a", 2);
    let mut claim: NodeClaim = world.object("a").expect("there");
    claim.metadata.deletion_timestamp = Some(now());
    world.add(&claim);
    let bodies = [sample("aws/state-change-terminated.json")];
    assert_eq!(handle_batch(&world, &batch(&bodies)), [""; 0]);
    assert_eq!(sent(&world), ["termination Interrupted a"]);
    // A queue that does not answer is no reason to keep the message: the bridge sees the deletion.
    world.fail("send termination", "InternalError");
    assert_eq!(handle_batch(&world, &batch(&bodies)), [""; 0]);
}

#[test] // a node that has joined but is not registered
fn a_node_is_found_by_its_provider_id() {
    let world = Fake::at(now());
    add_claim(&world, "a", 1);
    let mut claim: NodeClaim = world.object("a").expect("there");
    claim.status.node_name = String::new();
    world.add(&claim);
    handle_batch(&world, &batch(&[sample("aws/spot-interruption-warning.json")]));
    assert!(world.event_reasons().contains(&"Node/node-a SpotInterrupted".to_owned()));
}

#[test] // Rebalance recommendations, where the pool asks for it
fn a_recommendation_marks_one_claim_per_offering_and_ten_minutes() {
    let world = Fake::at(now());
    add_claim(&world, "a", 1);
    add_claim(&world, "b", 2);
    world.add_json::<spokeshave_model::NodePool>(json!({"metadata": {"name": "default",
        "annotations": {"spokeshave.dev/rebalance": "replace"}},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": {}}}}}));
    let of =
        |n: u32| sample("aws/rebalance-recommendation.json").replace(&instance(1), &instance(n));
    let marked = |name: &str| {
        let claim: NodeClaim = world.object(name).expect("it stays");
        claim.metadata.annotation("spokeshave.dev/rebalance-recommended").map(str::to_owned)
    };
    assert_eq!(handle_batch(&world, &batch(&[of(1), of(2)])), [""; 0]);
    assert_eq!((marked("a").as_deref(), marked("b")), (Some("2026-03-02T08:00:02Z"), None));
    assert!(world.sent.borrow().is_empty(), "nobody is displaced yet");
    assert!(!world.calls.borrow().iter().any(|it| it.starts_with("delete")));
    let later = |seconds: i64| now() + jiff::SignedDuration::from_secs(seconds);
    world.now.set(later(599));
    assert_eq!(handle_batch(&world, &batch(&[of(2)])), [""; 0]);
    assert_eq!(marked("b"), None);
    world.now.set(later(600));
    assert_eq!(handle_batch(&world, &batch(&[of(2)])), [""; 0]);
    assert_eq!(marked("b").as_deref(), Some("2026-03-02T08:10:02Z"));
}

#[test]
fn beside_another_autoscaler_nothing_is_done() {
    let world = Fake::at(now());
    add_claim(&world, "a", 1);
    let key = spokeshave_ports::stack::observe_only_key();
    block_on(world.write(&key, json!({}), None, When::Always)).expect("written");
    world.calls.borrow_mut().clear();
    let spot = [sample("aws/spot-interruption-warning.json")];
    assert_eq!(handle_batch(&world, &batch(&spot)), [""; 0]);
    assert!(world.calls.borrow().is_empty() && world.events.borrow().is_empty());
    // With the table out of reach, the claim of an instance that goes anyway is deleted.
    world.fail("read stack/observe-only", "InternalServerError");
    assert_eq!(handle_batch(&world, &batch(&spot)), [""; 0]);
    assert!(world.calls.borrow().contains(&"delete NodeClaim/a".to_owned()));
}

/// The settings with lifecycle hooks asked for.
fn hooked() -> Settings {
    Settings { lifecycle_hooks: true, ..Settings::default() }
}

/// A node of an Auto Scaling group: no claim has its instance.
fn add_group_node(world: &Fake) {
    world.add_json::<Node>(json!({"metadata": {"name": "group-node", "uid": "ug"},
        "spec": {"providerID": "aws:///us-west-2b/i-0c3d4e5f607182930"}}));
}

fn decided(world: &Fake) -> Vec<String> {
    let decisions = world.decisions.borrow();
    decisions.iter().map(|it| format!("{} {}: {}", it.action, it.object, it.reason)).collect()
}

const RECORD: &str = "i-0c3d4e5f607182930/drain-first";

#[test] // nodeclass 30, cases 1 and 2
fn a_hook_is_written_down_and_termination_woken() {
    for (sample_name, token) in
        [("asg-terminate-lifecycle-action", "be01"), ("asg-direct-sqs-body", "be02")]
    {
        let world = Fake::at(now());
        add_group_node(&world);
        let messages = batch(&[sample(&format!("aws/{sample_name}.json"))]);
        assert_eq!(handle_with(&hooked(), &world, &messages), [""; 0]);
        let record = block_on(world.read(&StateKey::new("lifecycle-hook", RECORD)));
        let record = record.expect("read").expect("written");
        assert_eq!(
            record.data,
            json!({"action": {"group": "mng-system", "hook": "drain-first",
                "token": format!("c0ffee00-1111-4222-8333-4444dead{token}"),
                "instance": "i-0c3d4e5f607182930"},
                "node": "group-node", "uid": "ug", "begun": "2026-03-02T08:00:02Z",
                "heartbeat": "2026-03-02T08:05:02Z"})
        );
        assert_eq!(record.expires_at, "2026-03-04T08:00:02Z".parse().ok(), "no hook waits longer");
        assert_eq!(sent(&world), ["termination Interrupted group-node"]);
        assert_eq!(
            decided(&world),
            ["drain Node/group-node: LifecycleHook/mng-system/drain-first/i-0c3d4e5f607182930"]
        );
        let received = format!("{RECEIVED}{{message_type=lifecycle_action}} 1");
        assert_eq!(world.samples(RECEIVED), [received]);
        assert_eq!(world.samples(DELETED).len(), 1);
        // The same again: the record stays as it is, and termination is woken again.
        world.now.set("2026-03-02T08:03:00Z".parse().expect("a time"));
        assert_eq!(handle_with(&hooked(), &world, &messages), [""; 0]);
        assert_eq!(*world.calls.borrow(), [format!("write lifecycle-hook/{RECORD}")]);
        assert_eq!(world.sent.borrow().len(), 2);
    }
}

#[test] // nodeclass 30, case 2
fn a_test_notification_is_dropped() {
    let world = Fake::at(now());
    add_group_node(&world);
    let messages = batch(&[sample("aws/asg-test-notification.json")]);
    assert_eq!(handle_with(&hooked(), &world, &messages), [""; 0]);
    assert_eq!(world.samples(DELETED).len(), 1);
    assert!(world.calls.borrow().is_empty() && world.sent.borrow().is_empty());
}

#[test] // nodeclass 30, case 5
fn a_hook_for_another_cluster_is_left_to_it() {
    let world = Fake::at(now());
    add_claim(&world, "a", 1);
    let messages = batch(&[sample("aws/asg-terminate-lifecycle-action.json")]);
    assert_eq!(handle_with(&hooked(), &world, &messages), [""; 0]);
    assert_eq!(world.samples(DELETED).len(), 1);
    assert!(world.calls.borrow().is_empty() && world.sent.borrow().is_empty());
    let object = "skip LifecycleHook/mng-system/drain-first/i-0c3d4e5f607182930";
    assert_eq!(decided(&world), [format!("{object}: no node of this cluster")]);
    // Nor is one of ours touched: its claim decides.
    let messages = batch(&[sample("aws/asg-terminate-lifecycle-action.json")
        .replace("i-0c3d4e5f607182930", &instance(1))]);
    assert_eq!(handle_with(&hooked(), &world, &messages), [""; 0]);
    assert!(world.calls.borrow().is_empty() && world.sent.borrow().is_empty());
}

#[test] // nodeclass 30, case 6
fn hooks_that_nobody_asked_for_are_no_op() {
    let world = Fake::at(now());
    add_group_node(&world);
    let samples = ["terminate-lifecycle-action", "launch-lifecycle-action", "direct-sqs-body"];
    let bodies = samples.map(|it| sample(&format!("aws/asg-{it}.json")));
    assert_eq!(handle_batch(&world, &batch(&bodies)), [""; 0]);
    assert!(world.calls.borrow().is_empty() && world.sent.borrow().is_empty());
    let received = format!("{RECEIVED}{{message_type=no_op}} 1");
    assert_eq!(world.samples(RECEIVED), [&*received, &*received, &*received]);
    assert_eq!(world.samples(DELETED).len(), 3);
}

#[test] // a hook that cannot be taken on comes again, and keeps no spot warning waiting
fn a_hook_fails_alone() {
    for (call, code) in [
        ("list Node", "Unavailable"),
        ("send termination", "ServiceUnavailable"),
        (&*format!("write lifecycle-hook/{RECORD}"), "ThrottlingException"),
    ] {
        let world = Fake::at(now());
        add_claim(&world, "a", 1);
        add_group_node(&world);
        world.fail(call, code);
        let bodies =
            ["aws/asg-terminate-lifecycle-action.json", "aws/spot-interruption-warning.json"];
        let messages = batch(&bodies.map(sample));
        assert_eq!(handle_with(&hooked(), &world, &messages), ["m0"], "{call}");
        let claim = world.object::<NodeClaim>("a").expect("it drains");
        assert!(claim.metadata.deletion_timestamp.is_some(), "{call}");
        world.mend(call);
        let messages = batch(&[sample("aws/asg-terminate-lifecycle-action.json")]);
        assert_eq!(handle_with(&hooked(), &world, &messages), [""; 0], "{call}");
        let (to, work, ..) = world.sent.borrow().last().cloned().expect("sent");
        assert_eq!((to, work.keys[0].name.as_str()), (Concern::Termination, "group-node"));
    }
}

#[test]
fn a_made_up_warning_of_the_doctor_is_recorded_and_harms_nobody() {
    let world = Fake::at(now());
    add_claim(&world, "a", 1);
    let mut warning: Value =
        serde_json::from_str(&sample("aws/spot-interruption-warning.json")).expect("JSON");
    warning["id"] = json!("spokeshave-doctor-1772438402000");
    warning["detail"]["instance-id"] = json!("i-00000000000000000");
    let probe = batch(&[warning.to_string()]);
    assert_eq!(handle_batch(&world, &probe), [""; 0]);
    let key = StateKey::new("probe", "spokeshave-doctor-1772438402000");
    let expires = world.records.borrow()[&key].expires_at;
    assert_eq!(expires, Some("2026-03-02T09:00:02Z".parse().expect("a time")));
    assert_eq!(*world.calls.borrow(), ["write probe/spokeshave-doctor-1772438402000"]);
    assert!(world.sent.borrow().is_empty());

    // While another autoscaler is at work, too: the way here is what was asked about.
    let watching = Fake::at(now());
    let flag = spokeshave_ports::stack::observe_only_key();
    block_on(watching.write(&flag, json!({}), None, When::Always)).expect("written");
    assert_eq!(handle_batch(&watching, &probe), [""; 0]);
    assert!(watching.records.borrow().contains_key(&key));

    // The record is all that depends on the table.
    let broken = Fake::at(now());
    broken.fail("write probe/spokeshave-doctor-1772438402000", "InternalError");
    assert_eq!(handle_batch(&broken, &probe), [""; 0]);
    let decisions = broken.decisions.borrow();
    let answer = decisions.iter().find(|it| it.action == "answer").expect("a decision");
    assert!(answer.error, "{answer:?}");
}
