//! Sweeps and polls (`spec` lifecycle 11, aws-nodeclass 20 and 24).

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_instance_gc_function::{Claim, Verdict, handle, instance_verdict};
use spokeshave_lambda::{SqsBatch, SqsRecord};
use spokeshave_model::{
    EC2NodeClass, NodeClaim, NodePool, Settings,
    core::{Node, Pod},
};
use spokeshave_ports::{
    Concern, Invocation, StateKey, StateTable, When,
    ec2::{Instance, InstanceCheck, InstanceStatus, InstanceStatusEvent},
    fake::{Fake, block_on},
};

fn now() -> Timestamp {
    "2026-03-02T08:00:00Z".parse().expect("a time")
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn instance(id: &str, age: i64, tags: &[(&str, &str)]) -> Instance {
    let ours = [
        ("karpenter.sh/nodepool", "default"),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
        ("eks:eks-cluster-name", "demo"),
    ];
    let tags = ours.iter().chain(tags);
    Instance {
        id: id.into(),
        state: "running".into(),
        zone: "eu-west-1a".into(),
        launch_time: Some(ago(age)),
        tags: tags.map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        ..Instance::default()
    }
}

fn claim(name: &str, instance: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
            "finalizers": ["karpenter.sh/termination"],
            "labels": {"karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "spot"}},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"}},
        "status": {"providerID": format!("aws:///eu-west-1a/{instance}"),
            "conditions": [{"type": "Registered", "status": "True"}]}})
}

fn unlaunched(name: &str, attempt: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}"),
            "annotations": {"spokeshave.dev/launch-attempt": attempt}},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"}}})
}

fn node(name: &str, instance: &str, ready: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": {"providerID": format!("aws:///eu-west-1a/{instance}")},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

/// One scheduled run; says whether it wants to come back, and what it did.
fn run(world: &Fake) -> (bool, Vec<String>) {
    run_with(world, Settings::default())
}

fn run_with(world: &Fake, settings: Settings) -> (bool, Vec<String>) {
    let record = SqsRecord {
        message_id: "m".into(),
        body: r#"{"reason":"Schedule"}"#.into(),
        ..SqsRecord::default()
    };
    let settings = Settings { cluster_name: "demo".into(), ..settings };
    let cx = Invocation {
        concern: Concern::InstanceGc,
        now: world.now.get(),
        deadline: Timestamp::MAX,
        settings: &settings,
        journal: world,
    };
    let batch = SqsBatch { records: vec![record] };
    let answer = block_on(handle(&batch, world, world, world, world, &cx));
    (!answer.failures.is_empty(), std::mem::take(&mut *world.calls.borrow_mut()))
}

fn did(world: &Fake) -> Vec<String> {
    let (again, calls) = run(world);
    assert!(!again);
    calls
}

#[test] // lifecycle 11.3, cases 1 to 5 and 9
fn claims_without_an_instance() {
    let stopped = Instance { state: "stopped".into(), ..instance("i-1", 900, &[]) };
    let shutting_down = Instance { state: "shutting-down".into(), ..instance("i-1", 900, &[]) };
    let mut unregistered = claim("a", "i-1");
    unregistered["status"]["conditions"] = json!([]);
    let mut deleting = claim("a", "i-1");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-03-02T07:00:00Z");
    let mut foreign = claim("a", "i-1");
    foreign["spec"]["nodeClassRef"]["kind"] = json!("Other");
    let mut untagged = instance("i-1", 900, &[]);
    untagged.tags.clear();
    let goes = vec!["delete NodeClaim/a".to_owned()];
    for (what, claim, nodes, instances, expected) in [
        ("case 1", claim("a", "i-1"), vec![node("n", "i-1", "Unknown")], vec![], goes.clone()),
        ("case 2", claim("a", "i-1"), vec![node("n", "i-1", "True")], vec![], vec![]),
        ("case 3", claim("a", "i-1"), vec![], vec![], goes.clone()),
        (
            "two nodes of one instance",
            claim("a", "i-1"),
            vec![node("n", "i-1", "True"), node("o", "i-1", "True")],
            vec![],
            goes.clone(),
        ),
        ("case 4", unregistered, vec![], vec![], vec![]),
        (
            "case 5",
            claim("a", "i-1"),
            vec![node("n", "i-1", "False")],
            vec![shutting_down],
            goes.clone(),
        ),
        ("case 9", claim("a", "i-1"), vec![node("n", "i-1", "False")], vec![stopped], vec![]),
        ("alive", claim("a", "i-1"), vec![], vec![instance("i-1", 900, &[])], vec![]),
        ("somebody took the tags off", claim("a", "i-1"), vec![], vec![untagged], vec![]),
        ("being deleted", deleting, vec![], vec![], vec![]),
        ("another provider's", foreign, vec![], vec![], vec![]),
    ] {
        let world = Fake::at(now());
        world.add_json::<NodeClaim>(claim);
        for node in nodes {
            world.add_json::<Node>(node);
        }
        world.instances.replace(instances);
        assert_eq!(did(&world), expected, "{what}");
        let reasons = world.samples("karpenter_nodeclaims_disrupted_total");
        assert_eq!(reasons.len(), expected.len(), "{what}");
        assert!(reasons.iter().all(|it| it.contains("reason=garbage_collected,nodepool=default")));
    }
}

#[test] // lifecycle 11.1 and 33: what is counted
fn a_lost_claim_is_counted_with_its_pods() {
    let world = Fake::at(now());
    let mut lost = claim("a", "i-1");
    lost["spec"]["terminationGracePeriod"] = json!("1h");
    world.add_json::<NodeClaim>(lost);
    world.add_json::<Node>(node("n", "i-1", "False"));
    for (name, node, owner) in
        [("web", "n", "ReplicaSet"), ("log", "n", "DaemonSet"), ("api", "m", "ReplicaSet")]
    {
        world.add_json::<Pod>(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o"}]},
            "spec": {"nodeName": node}, "status": {"phase": "Running"}}));
    }
    assert_eq!(did(&world), ["delete NodeClaim/a"]);
    let labels = "{reason=garbage_collected,nodepool=default,capacity_type=spot,consolidation_policy=,termination_mode=eventual}";
    for name in
        ["karpenter_nodeclaims_disrupted_total", "karpenter_pods_disruption_initiated_total"]
    {
        assert_eq!(world.samples(name), [format!("{name}{labels} 1")]);
    }
}

#[test] // lifecycle 11.3, cases 6 to 8; nodeclass 20, cases 1, 2, 4, 5, 6; B-076
fn instances_without_a_claim() {
    let named = [("karpenter.sh/nodeclaim", "gone")];
    let with = |state: &str| Instance { state: state.into(), ..instance("i-1", 900, &named) };
    let mut other_cluster = instance("i-1", 900, &named);
    other_cluster.tags.insert("eks:eks-cluster-name".into(), "demo2".into());
    let mut no_class = instance("i-1", 900, &named);
    no_class.tags.remove("karpenter.k8s.aws/ec2nodeclass");
    let old = |cluster: &str| {
        let mut old = instance("i-1", 900, &named);
        old.tags.remove("eks:eks-cluster-name");
        old.tags.insert("karpenter.sh/managed-by".into(), cluster.into());
        old
    };
    let mut moved = old("demo");
    moved.tags.insert("eks:eks-cluster-name".into(), "demo2".into());
    let mut both = old("demo");
    both.tags.insert("eks:eks-cluster-name".into(), "demo".into());
    let goes = vec!["terminate i-1".to_owned()];
    for (what, instance, expected) in [
        ("29 s old", instance("i-1", 29, &named), vec![]),
        ("30 s old", instance("i-1", 30, &named), vec![]),
        ("31 s old", instance("i-1", 31, &named), goes.clone()),
        ("unnamed, 120 s old", instance("i-1", 120, &[]), vec![]),
        ("unnamed, 121 s old", instance("i-1", 121, &[]), goes.clone()),
        ("shutting down", with("shutting-down"), vec![]),
        ("stopped", with("stopped"), goes.clone()),
        ("pending", with("pending"), goes.clone()),
        ("of another cluster", other_cluster, vec![]),
        ("without the class's tag", no_class, vec![]),
        ("of a version before v1", old("demo"), goes.clone()),
        ("of such a version and another cluster", old("demo2"), vec![]),
        ("with both tags that disagree", moved, vec![]),
        ("with both tags", both, goes.clone()),
    ] {
        let world = Fake::at(now());
        world.instances.replace(vec![instance]);
        assert_eq!(did(&world), expected, "{what}");
    }
    let world = Fake::at(now());
    world.add_json::<NodeClaim>(claim("a", "i-1"));
    world.instances.replace(vec![instance("i-1", 90_000, &[])]);
    assert_eq!(did(&world), [""; 0], "a claim has it, however old");
    let mut deleting = claim("a", "i-1");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-03-02T07:00:00Z");
    world.add_json::<NodeClaim>(deleting);
    assert_eq!(did(&world), [""; 0], "a claim being deleted has it, too");
    // nodeclass 20, case 6
    let world = Fake::at(now());
    world.add_json::<Node>(node("n", "i-1", "True"));
    world.add_json::<Node>(node("o", "i-2", "True"));
    world.instances.replace(vec![instance("i-1", 900, &[])]);
    assert_eq!(did(&world), ["terminate i-1", "delete Node/n"]);
    assert_eq!(did(&world), [""; 0], "no second call");
}

#[test] // nodeclass 20, case 7
fn one_pace_between_those_of_karpenter() {
    // DIFFERENCE: Karpenter looks every 10 s for its first 20 rounds and every 2 min from then on. A function has no first
    // rounds: it looks every minute, and at once when the bridge sees a Node or NodeClaim go that was not finalized.
    let paces: Vec<u64> = spokeshave_lambda::wiring::SCHEDULES
        .iter()
        .filter(|(concern, _)| *concern == Concern::InstanceGc)
        .map(|(_, seconds)| *seconds)
        .collect();
    assert_eq!(paces, [60]);
    for lost in ["NodeLost", "NodeClaimLost"] {
        assert_eq!(spokeshave_lambda::wiring::routes(lost), [Concern::InstanceGc]);
    }
    // No round depends on those before it.
    let world = Fake::at(now());
    for round in 1..=25 {
        world.instances.replace(vec![instance(&format!("i-{round}"), 900, &[])]);
        assert_eq!(did(&world), [format!("terminate i-{round}")]);
        assert!(world.sent.borrow().is_empty(), "no wake-up of its own");
    }
}

#[test] // nodeclass 20, case 3; B-075
fn a_launch_that_is_not_recorded_yet_is_waited_for() {
    let tags = [("spokeshave.dev/launch", "attempt-1")];
    for (what, age, state, claims, expected) in [
        ("the attempt is open", 200, Some("open"), vec![], vec![]),
        ("it is being prepared", 200, Some("preparing"), vec![], vec![]),
        ("open beyond the launch time-out", 301, Some("open"), vec![], vec!["terminate i-1"]),
        ("it failed", 200, Some("failed"), vec![], vec!["terminate i-1"]),
        ("the record is lost", 200, None, vec![], vec!["terminate i-1"]),
        ("a claim waits for it", 200, Some("launched"), vec![unlaunched("a", "attempt-1")], vec![]),
        ("lost, but a claim waits", 200, None, vec![unlaunched("a", "attempt-1")], vec![]),
        (
            "a claim waits in vain",
            301,
            None,
            vec![unlaunched("a", "attempt-1")],
            vec!["terminate i-1"],
        ),
        (
            "a claim waits for another",
            200,
            None,
            vec![unlaunched("a", "attempt-2")],
            vec!["terminate i-1"],
        ),
    ] {
        let world = Fake::at(now());
        world.instances.replace(vec![instance("i-1", age, &tags)]);
        for claim in claims {
            world.add_json::<NodeClaim>(claim);
        }
        if let Some(state) = state {
            let key = StateKey::new("attempt", "attempt-1");
            let data = json!({"id": "attempt-1", "state": state});
            block_on(world.write(&key, data, None, When::Always)).expect("written");
            world.calls.borrow_mut().clear();
        }
        assert_eq!(did(&world), expected, "{what}");
    }
    // nodeclass 20, case 3: an instance of Karpenter's names its claim only.
    let named = instance("i-1", 45, &[("karpenter.sh/nodeclaim", "a")]);
    let waiting = [Claim { name: "a".into(), ..Claim::default() }];
    let verdict = instance_verdict(&named, &waiting, false, now());
    assert_eq!(verdict, Verdict::Wait("its claim is being launched"));
    assert_eq!(instance_verdict(&named, &[], false, now()), Verdict::Terminate);
}

#[test] // B-067: loud when a permission is missing; B-071: gone is no error
fn failures() {
    let named = [("karpenter.sh/nodeclaim", "gone")];
    let world = Fake::at(now());
    world.fail("find", "UnauthorizedOperation");
    assert_eq!(run(&world), (false, vec![]));
    let decisions = world.decisions.borrow().clone();
    let told = decisions.iter().find(|it| it.error && it.reason.contains("ec2:DescribeInstances"));
    let fields = &told.expect("it is loud").fields;
    assert_eq!(fields["error_code"], "UnauthorizedOperation");
    assert_eq!(
        (&fields["operation"], &fields["request_id"], &fields["retryable"]),
        (&"Call".into(), &Value::Null, &false.into())
    );
    assert_eq!(world.samples("karpenter_cloudprovider_errors_total").len(), 1);

    for (call, code, again) in [
        ("find", "RequestLimitExceeded", true),
        ("list NodeClaim", "Unavailable", true),
        // B-090: an API server that does not serve our version of the kind.
        ("list NodeClaim", "NotFound", true),
        ("describe", "RequestLimitExceeded", true),
        ("describe", "InvalidInstanceID.NotFound", false),
        ("status", "RequestLimitExceeded", true),
    ] {
        let world = Fake::at(now());
        world.instances.replace(vec![instance("i-1", 900, &named)]);
        world.fail(call, code);
        let (comes_back, calls) = run(&world);
        assert_eq!(comes_back, again, "{call} {code}");
        assert_eq!(calls.is_empty(), call != "status", "{call} {code}: {calls:?}");
    }

    let world = Fake::at(now());
    world.instances.replace(vec![instance("i-1", 900, &named), instance("i-2", 900, &named)]);
    world.add_json::<Node>(node("n", "i-2", "True"));
    world.add_json::<EC2NodeClass>(json!({"metadata": {"name": "default"}}));
    world.fail("terminate i-1", "InternalError");
    assert_eq!(run(&world), (true, vec!["terminate i-2".to_owned(), "delete Node/n".to_owned()]));
    let failures = "karpenter_cloudprovider_instance_termination_failures_total";
    assert_eq!(world.samples(failures), [format!("{failures}{{zone=eu-west-1a,zone_id=}} 1")]);
    assert_eq!(world.event_reasons(), ["EC2NodeClass/default FailedTermination"]);
    let told = "Leaked instance i-1 cannot be terminated: InternalError: told to fail (fake:Call, retryable); ";
    assert!(world.events.borrow()[0].message.starts_with(told));

    // DIFFERENCE: not found means gone, so that its Node goes at once.
    let world = Fake::at(now());
    world.instances.replace(vec![instance("i-1", 900, &named)]);
    world.add_json::<Node>(node("n", "i-1", "True"));
    world.fail("terminate i-1", "InvalidInstanceID.NotFound");
    assert_eq!(run(&world), (false, vec!["delete Node/n".to_owned()]));
}

fn failed(of: &str, seconds: i64) -> InstanceCheck {
    InstanceCheck { of: of.into(), status: "failed".into(), impaired_since: Some(ago(seconds)) }
}

fn status(id: &str, checks: Vec<InstanceCheck>) -> InstanceStatus {
    InstanceStatus { id: id.into(), checks, ..InstanceStatus::default() }
}

fn reported(world: &Fake) -> Vec<String> {
    let text = |(to, work, ..): &(Concern, spokeshave_ports::Work, SignedDuration, String)| {
        assert_eq!(*to, Concern::Interruption);
        let ids = work.payload["instanceIds"].as_array().expect("a list").clone();
        format!("{} {}", work.payload["kind"].as_str().expect("a text"), json!(ids))
    };
    std::mem::take(&mut *world.sent.borrow_mut()).iter().map(text).collect()
}

const UNHEALTHY: &str = "karpenter_interruption_instance_status_unhealthy_total";

#[test] // nodeclass 24, cases 2, 6 and 7; 27, case 3; aws-capacity 22, case 6
fn unhealthy_instances_are_reported_and_counted_once() {
    // Instances are polled whether or not a queue of AWS's events is named.
    assert_eq!(Settings::default().interruption_queue, "");
    let world = Fake::at(now());
    world.add_json::<NodeClaim>(claim("a", "i-1"));
    world.instances.replace(vec![instance("i-1", 9000, &[])]);
    world.statuses.replace(vec![
        status("i-1", vec![failed("instance", 119), failed("ebs", 900)]),
        status("i-9", vec![failed("system", 900)]),
    ]);
    did(&world);
    assert_eq!((reported(&world), world.samples(UNHEALTHY)), (vec![], vec![]));
    let one = [format!("{UNHEALTHY}{{category=InstanceStatus}} 1")];
    world.statuses.borrow_mut()[0] = status("i-1", vec![failed("instance", 120)]);
    for poll in [1, 2] {
        did(&world);
        assert_eq!(reported(&world), ["instance_status [\"i-1\"]"], "poll {poll}");
        assert_eq!(world.samples(UNHEALTHY), one, "poll {poll}");
    }
    world.statuses.replace(vec![]);
    did(&world);
    world.statuses.replace(vec![status("i-1", vec![failed("instance", 500)])]);
    did(&world);
    assert_eq!(world.samples(UNHEALTHY).len(), 2);
    reported(&world);
    // Once it is on its way out with a deadline, nobody needs to hear of it.
    let mut done = claim("a", "i-1");
    done["metadata"]["deletionTimestamp"] = json!("2026-03-02T07:59:00Z");
    world.add_json::<NodeClaim>(done.clone());
    did(&world);
    assert_eq!(reported(&world).len(), 1, "without a deadline it still has to get one");
    done["metadata"]["annotations"] =
        json!({"karpenter.sh/nodeclaim-termination-timestamp": "2026-03-02T07:59:00Z"});
    world.add_json::<NodeClaim>(done);
    did(&world);
    assert_eq!(reported(&world), [""; 0]);
}

#[test] // nodeclass 20: nothing is terminated in a zone that is shifted away from
fn leaked_instances_of_a_shifted_zone_wait() {
    let shifts = [spokeshave_ports::ZonalShift {
        away_from: "euw1-az1".into(),
        applied_status: "APPLIED".into(),
        expires_at: Some(now() + SignedDuration::from_hours(1)),
    }];
    let class = |id: &str| {
        json!({"metadata": {"name": "default"},
            "status": {"subnets": [{"id": "subnet-1", "zone": "eu-west-1a", "zoneID": id}]}})
    };
    for (enabled, zone_id, hours, terminated) in [
        (true, "euw1-az1", 0, false),
        (true, "euw1-az1", 1, true),
        (true, "euw1-az2", 0, true),
        (false, "euw1-az1", 0, true),
    ] {
        let world = Fake::at(now());
        world.add_json::<EC2NodeClass>(class(zone_id));
        world.instances.replace(vec![instance("i-1", 900, &[])]);
        block_on(spokeshave_catalog::zonal_shift::save(&world, &shifts, now())).expect("written");
        world.calls.borrow_mut().clear();
        world.now.set(now() + SignedDuration::from_hours(hours));
        let settings = Settings { enable_zonal_shift: enabled, ..Settings::default() };
        let (_, calls) = run_with(&world, settings);
        let expected: &[&str] = if terminated { &["terminate i-1"] } else { &[] };
        assert_eq!(calls, expected, "{enabled} {zone_id} {hours}");
    }
}

#[test] // nodeclass 24, BETTER: a lead time by pool
fn a_scheduled_change_is_reported_when_the_pool_wants_to_hear_of_it() {
    let world = Fake::at(now());
    world.add_json::<NodeClaim>(claim("a", "i-1"));
    world.add_json::<NodePool>(json!({"metadata": {"name": "default", "uid": "p",
            "annotations": {"spokeshave.dev/scheduled-change-lead-time": "24h"}},
        "spec": {"template": {"spec": {"nodeClassRef": {"name": "d"}, "requirements": []}}}}));
    world.instances.replace(vec![instance("i-1", 9000, &[])]);
    let starts = now() + SignedDuration::from_hours(25);
    let reboot = InstanceStatusEvent {
        code: "system-reboot".into(),
        description: "soon".into(),
        not_before: Some(starts),
        ..InstanceStatusEvent::default()
    };
    world.statuses.replace(vec![InstanceStatus { events: vec![reboot], ..status("i-1", vec![]) }]);
    did(&world);
    assert_eq!(reported(&world), [""; 0]);
    world.now.set(now() + SignedDuration::from_hours(1));
    did(&world);
    assert_eq!(reported(&world), ["event_status [\"i-1\"]"]);
}

#[test] // nodeclass 24, cases 3 and 4
fn categories() {
    let event = |code: &str, description: &str| InstanceStatusEvent {
        code: code.into(),
        description: description.into(),
        ..InstanceStatusEvent::default()
    };
    let with_event = |event: InstanceStatusEvent| InstanceStatus {
        events: vec![event],
        ..status("i-1", vec![])
    };
    let summary = InstanceStatus {
        system_status: "impaired".into(),
        instance_status: "ok".into(),
        impaired_since: Some(ago(300)),
        ..status("i-1", vec![])
    };
    for (what, status, expected) in [
        (
            "both checks",
            status("i-1", vec![failed("system", 250), failed("instance", 120), failed("ebs", 900)]),
            vec!["instance_status [\"i-1\"]", "system_status [\"i-1\"]"],
        ),
        ("a volume", status("i-1", vec![failed("ebs", 900)]), vec![]),
        ("a reboot", with_event(event("system-reboot", "soon")), vec!["event_status [\"i-1\"]"]),
        ("a reboot that is over", with_event(event("system-reboot", "[Completed] it was")), vec![]),
        ("another code", with_event(event("dedicated-host-retirement", "soon")), vec![]),
        ("without single checks", summary, vec!["system_status [\"i-1\"]"]),
    ] {
        let world = Fake::at(now());
        world.add_json::<NodeClaim>(claim("a", "i-1"));
        world.instances.replace(vec![instance("i-1", 9000, &[])]);
        world.statuses.replace(vec![status]);
        did(&world);
        assert_eq!(reported(&world), expected, "{what}");
        assert_eq!(world.samples(UNHEALTHY).len(), expected.len(), "{what}");
    }
}

#[test] // aws-capacity 22, case 7; nodeclass 24 BETTER: not for ever
fn without_permission_it_asks_again_after_ten_minutes() {
    let world = Fake::at(now());
    world.fail("status", "UnauthorizedOperation");
    let complaints = |world: &Fake| world.decisions.borrow().iter().filter(|it| it.error).count();
    assert!(!run(&world).0);
    assert_eq!(complaints(&world), 1);
    let left = block_on(spokeshave_ports::failed_calls::all(&world)).expect("reads");
    assert_eq!(left[0].object, "InstanceStatus/all");
    assert!(left[0].text.starts_with("UnauthorizedOperation: told to fail ("), "{left:?}");
    world.now.set(now() + SignedDuration::from_secs(599));
    run(&world);
    assert_eq!(complaints(&world), 1);
    world.now.set(now() + SignedDuration::from_secs(600));
    run(&world);
    assert_eq!(complaints(&world), 2);
}

#[test]
fn a_batch_is_one_run_and_garbage_is_dropped() {
    let world = Fake::at(now());
    world.instances.replace(vec![instance("i-1", 900, &[])]);
    world.fail("find", "RequestLimitExceeded");
    let record = |id: &str, body: &str| SqsRecord {
        message_id: id.into(),
        body: body.into(),
        ..SqsRecord::default()
    };
    let batch = SqsBatch {
        records: vec![
            record("m0", "garbage"),
            record("m1", r#"{"reason":"NodeLost","keys":[{"kind":"Node","name":"n"}]}"#),
            record("m2", r#"{"reason":"Schedule"}"#),
        ],
    };
    let settings = Settings { cluster_name: "demo".into(), ..Settings::default() };
    let cx = Invocation {
        concern: Concern::InstanceGc,
        now: now(),
        deadline: Timestamp::MAX,
        settings: &settings,
        journal: &world,
    };
    let answer = block_on(handle(&batch, &world, &world, &world, &world, &cx));
    let failed: Vec<&str> = answer.failures.iter().map(|it| it.message_id.as_str()).collect();
    assert_eq!(failed, ["m1"], "one is enough to come back");
    assert_eq!(world.decisions.borrow()[0].action, "drop");
}

#[test]
fn beside_another_autoscaler_nothing_is_done() {
    let world = Fake::at(now());
    world.instances.replace(vec![instance("i-1", 900, &[])]);
    let key = spokeshave_ports::stack::observe_only_key();
    block_on(world.write(&key, json!({}), None, When::Always)).expect("written");
    world.calls.borrow_mut().clear();
    assert_eq!(run(&world), (false, vec![]));
    world.fail("read stack/observe-only", "InternalServerError");
    assert_eq!(run(&world), (true, vec![]));
}

#[test] // aws-capacity 19, case 3
fn instances_of_another_cluster_are_not_ours() {
    let world = Fake::at(now());
    let instances = (0..40).map(|n| {
        let mut it = instance(&format!("i-{n}"), 900, &[]);
        if n % 2 == 1 {
            it.tags.insert("eks:eks-cluster-name".into(), "other".into());
        }
        it
    });
    world.instances.replace(instances.collect());
    let (_, calls) = run(&world);
    let ended = calls.iter().filter(|it| it.starts_with("terminate")).count();
    assert_eq!(ended, 20);
}

#[test] // aws-capacity 19, case 4: what the list no longer has is asked for again, and is gone
fn an_instance_that_the_list_lacks_is_described_before_its_claim_goes() {
    let world = Fake::at(now());
    world.add_json::<NodeClaim>(claim("a", "i-1"));
    assert_eq!(did(&world), ["delete NodeClaim/a"]);
}

#[test] // aws-capacity 19, case 8: the pool is gone, its instance lives
fn an_instance_of_a_deleted_pool_is_known_by_its_claim() {
    let world = Fake::at(now());
    world.add_json::<NodeClaim>(claim("a", "i-1"));
    world.instances.replace(vec![instance("i-1", 9000, &[]), instance("i-2", 9000, &[])]);
    assert_eq!(world.object::<NodePool>("default"), None);
    // It is listed with zone and pool like any other: the one with a claim stays, the one without goes.
    assert_eq!(did(&world), ["terminate i-2"]);
}

#[test] // 1,000 nodes are described in no more calls than paging needs: a thousand fit on a page
fn a_thousand_nodes_are_one_list_for_each_tag() {
    let world = Fake::at(now());
    let names = |n: usize| (format!("c{n}"), format!("i-{n}"));
    for (name, id) in (0..1000).map(names) {
        world.add_json::<NodeClaim>(claim(&name, &id));
    }
    let all = (0..1000).map(|n| instance(&names(n).1, 9000, &[]));
    world.instances.replace(all.collect());
    assert_eq!(did(&world), [""; 0]);
    let asked = |world: &Fake| {
        let calls = std::mem::take(&mut *world.ec2_calls.borrow_mut());
        ["find", "describe", "status"].map(|it| calls.get(it).copied().unwrap_or(0))
    };
    assert_eq!(asked(&world), [2, 0, 1]);
    // A claim without an instance, and an instance without a claim: one more look at each kind.
    world.instances.borrow_mut()[0].id = "i-other".into();
    world.now.set(now() + SignedDuration::from_mins(2));
    assert_eq!(did(&world), ["delete NodeClaim/c0", "terminate i-other"]);
    assert_eq!(asked(&world)[..2], [2, 2]);
}

#[test] // KWOK mode: an interruption on demand
fn a_made_up_spot_instance_is_interrupted_when_an_annotation_asks() {
    let made_up = |name: &str, capacity_type: &str, asks: Option<&str>| {
        let id = format!("i-{name}");
        let mut claim = claim(name, &id);
        claim["status"]["providerID"] = json!(format!("kwok-aws:///eu-west-1a/{id}"));
        claim["metadata"]["labels"]["karpenter.sh/capacity-type"] = json!(capacity_type);
        if let Some(asks) = asks {
            claim["metadata"]["annotations"] = json!({"spokeshave.dev/interrupt": asks});
        }
        (claim, instance(&id, 900, &[]))
    };
    let all = [
        made_up("asked", "spot", Some("spot")),
        made_up("demand", "on-demand", Some("spot")),
        made_up("other", "spot", Some("reboot")),
        made_up("silent", "spot", None),
        made_up("node", "spot", None),
    ];
    let world = Fake::at(now());
    for (claim, instance) in all {
        world.add_json::<NodeClaim>(claim);
        world.instances.borrow_mut().push(instance);
    }
    world.add_json::<Node>(json!({"metadata": {"name": "kwok-i-node", "uid": "n",
            "annotations": {"spokeshave.dev/interrupt": "spot"}}}));
    // Where instances are real, the annotation means nothing.
    run(&world);
    assert!(world.sent.borrow().is_empty());
    let kwok = || Settings { ec2_mode: "kwok".into(), ..Settings::default() };
    world.decisions.borrow_mut().clear();
    let (again, calls) = run_with(&world, kwok());
    assert!(!again && !calls.iter().any(|it| it.starts_with("terminate")), "{calls:?}");
    let sent = std::mem::take(&mut *world.sent.borrow_mut());
    let warned: Vec<_> =
        sent.iter().map(|it| it.1.payload["detail"]["instance-id"].clone()).collect();
    assert_eq!(warned, ["i-asked", "i-node"]);
    assert!(sent.iter().all(|it| it.0 == Concern::Interruption));
    assert_eq!(sent[0].1.payload["detail-type"], "EC2 Spot Instance Interruption Warning");
    let refused: Vec<String> = {
        let decisions = world.decisions.borrow();
        decisions.iter().filter(|it| it.error).map(|it| it.reason.clone()).collect()
    };
    assert_eq!(
        refused,
        [
            "spokeshave.dev/interrupt is for spot instances; this one is not",
            "spokeshave.dev/interrupt is \"reboot\"; the only interruption is spot"
        ]
    );
    // Warned of once; two minutes later the instance ends, as EC2 would take it.
    world.now.set(now() + SignedDuration::from_secs(119));
    let (_, calls) = run_with(&world, kwok());
    assert!(world.sent.borrow().is_empty() && !calls.iter().any(|it| it.starts_with("terminate")));
    world.now.set(now() + SignedDuration::from_secs(120));
    let (_, calls) = run_with(&world, kwok());
    let ended: Vec<&String> = calls.iter().filter(|it| it.starts_with("terminate")).collect();
    assert_eq!(ended, ["terminate i-asked", "terminate i-node"]);
}
