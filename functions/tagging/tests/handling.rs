//! Tagging after registration (`spec` aws-nodeclass 19).

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_lambda::{SqsBatch, SqsRecord};
use spokeshave_model::{NodeClaim, Settings};
use spokeshave_ports::{
    Concern, Invocation, Key, Work,
    ec2::Instance,
    fake::{Fake, block_on},
};
use spokeshave_tagging_function::{AT_ONCE, handle};

const DONE: [&str; 2] =
    ["karpenter.k8s.aws/tagged", "compatibility.karpenter.k8s.aws/cluster-name-tagged"];

fn claim(name: &str, instance: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"}},
        "status": {"providerID": format!("aws:///eu-west-1a/{instance}"),
            "nodeName": "ip-10-0-1-2.eu-west-1.compute.internal"}})
}

fn instance(id: &str, tags: &[(&str, &str)]) -> Instance {
    Instance {
        id: id.into(),
        state: "running".into(),
        tags: tags.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        ..Instance::default()
    }
}

fn world(claims: &[Value], instances: Vec<Instance>) -> Fake {
    let world = Fake::default();
    for claim in claims {
        world.add_json::<NodeClaim>(claim.clone());
    }
    world.instances.replace(instances);
    world
}

fn tag(world: &Fake, works: &[Work]) -> Vec<String> {
    let record = |(at, work): (usize, &Work)| SqsRecord {
        message_id: format!("m{at}"),
        body: serde_json::to_string(work).expect("writes"),
        ..SqsRecord::default()
    };
    let batch = SqsBatch { records: works.iter().enumerate().map(record).collect() };
    let settings = Settings { cluster_name: "demo".into(), ..Settings::default() };
    let cx = Invocation {
        concern: Concern::Tagging,
        now: Timestamp::UNIX_EPOCH,
        deadline: Timestamp::MAX,
        settings: &settings,
        journal: world,
    };
    let answer = block_on(handle(&batch, world, world, world, &cx));
    answer.failures.into_iter().map(|it| it.message_id).collect()
}

fn of(names: &[&str]) -> Work {
    let key = |name: &&str| Key {
        kind: "NodeClaim".into(),
        name: (*name).into(),
        uid: format!("uid-{name}").into(),
        ..Key::default()
    };
    Work::new("NodeClaimRegistered", names.iter().map(key).collect())
}

fn is_done(world: &Fake, name: &str) -> bool {
    let claim: NodeClaim = world.object(name).expect("there");
    DONE.iter().all(|it| claim.metadata.annotation(it) == Some("true"))
}

#[test] // aws-nodeclass 19, cases 1 to 4; api 16, case 3
fn only_what_is_missing_is_tagged() {
    let name = "Name=ip-10-0-1-2.eu-west-1.compute.internal";
    for (what, tags, expected) in [
        (
            "case 1: a user's Name wins",
            vec![("team", "a"), ("Name", "custom"), ("eks:eks-cluster-name", "demo")],
            vec!["tag i-1 karpenter.sh/nodeclaim=a".to_owned()],
        ),
        (
            "case 2",
            vec![("eks:eks-cluster-name", "demo"), ("karpenter.sh/nodeclaim", "a")],
            vec![format!("tag i-1 {name}")],
        ),
        (
            "case 3: all there, whatever their values",
            vec![("Name", ""), ("karpenter.sh/nodeclaim", "x"), ("eks:eks-cluster-name", "y")],
            vec![],
        ),
        (
            "nothing there",
            vec![("karpenter.sh/managed-by", "demo")],
            vec![format!("tag i-1 {name},eks:eks-cluster-name=demo,karpenter.sh/nodeclaim=a")],
        ),
    ] {
        let world = world(&[claim("a", "i-1")], vec![instance("i-1", &tags)]);
        assert_eq!(tag(&world, &[of(&["a"])]), [""; 0]);
        let mut expected = expected;
        expected.push("patch NodeClaim/a".into());
        assert_eq!(*world.calls.borrow(), expected, "{what}");
        assert!(is_done(&world, "a"));
        // Again: done.
        world.calls.borrow_mut().clear();
        assert_eq!(tag(&world, &[of(&["a"])]), [""; 0]);
        assert_eq!(*world.calls.borrow(), [""; 0], "{what}");
    }
}

#[test] // nodeclass 19, case 4: the annotation of an older version
fn a_claim_of_an_older_version_gets_the_cluster_name() {
    let mut old = claim("a", "i-1");
    old["metadata"]["annotations"] = json!({"karpenter.k8s.aws/tagged": "true"});
    let tags =
        [("Name", "n"), ("karpenter.sh/nodeclaim", "a"), ("karpenter.sh/managed-by", "demo")];
    let world = world(&[old], vec![instance("i-1", &tags)]);
    tag(&world, &[of(&["a"])]);
    assert_eq!(world.calls.borrow()[0], "tag i-1 eks:eks-cluster-name=demo");
    assert!(is_done(&world, "a"));
}

#[test] // nodeclass 19, cases 5 and 6
fn claims_that_are_left_alone() {
    let with = |pointer: &str, value: Value| {
        let mut claim = claim("a", "i-1");
        *claim.pointer_mut(pointer).expect("a field") = value;
        claim
    };
    let mut deleting = claim("a", "i-1");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let terminated = Instance { state: "terminated".into(), ..instance("i-1", &[]) };
    for (what, claim, instances, complains) in [
        ("case 5", with("/status/providerID", json!("bad")), vec![], true),
        ("case 6", claim("a", "i-1"), vec![], false),
        ("terminated", claim("a", "i-1"), vec![terminated], false),
        ("no node", with("/status/nodeName", json!("")), vec![instance("i-1", &[])], false),
        ("being deleted", deleting, vec![instance("i-1", &[])], false),
        (
            "another provider's",
            with("/spec/nodeClassRef/kind", json!("Other")),
            vec![instance("i-1", &[])],
            false,
        ),
    ] {
        let world = world(&[claim], instances);
        assert_eq!(tag(&world, &[of(&["a"])]), [""; 0], "{what}");
        assert_eq!(*world.calls.borrow(), [""; 0], "{what}");
        assert_eq!(world.decisions.borrow().iter().any(|it| it.error), complains, "{what}");
    }
}

#[test] // B-065: refused or throttled, it is reported and tried again
fn failures() {
    for code in ["UnauthorizedOperation", "RequestLimitExceeded"] {
        let claims = [claim("a", "i-1"), claim("b", "i-2")];
        let world = world(&claims, vec![instance("i-1", &[]), instance("i-2", &[])]);
        world.fail("tag i-1", code);
        assert_eq!(tag(&world, &[of(&["a"]), of(&["b"])]), ["m0"], "{code}");
        assert!(is_done(&world, "b") && !is_done(&world, "a"));
        assert!(world.decisions.borrow().iter().any(|it| it.error && it.reason.contains(code)));
        let events = world.events.borrow();
        let told: Vec<_> = events.iter().map(|it| (it.reason.as_str(), &it.key.name[..])).collect();
        assert_eq!(told, [("TaggingFailed", "a")], "{code}");
        let said = format!("{code}: told to fail (fake:Call, ");
        assert!(events[0].warning && events[0].message.starts_with(&said), "{events:?}");
    }
    let world_ = world(&[claim("a", "i-1")], vec![instance("i-1", &[])]);
    world_.fail("tag i-1", "InvalidInstanceID.NotFound");
    assert_eq!(tag(&world_, &[of(&["a"])]), [""; 0]);
    assert!(!is_done(&world_, "a"), "gone: no annotation, no error");
    let world_ = world(&[claim("a", "i-1")], vec![instance("i-1", &[])]);
    world_.fail("describe", "RequestLimitExceeded");
    assert_eq!(tag(&world_, &[of(&["a"]), of(&["a"])]), ["m0", "m1"]);
    let world_ = world(&[claim("a", "i-1")], vec![instance("i-1", &[])]);
    world_.fail("get NodeClaim/a", "Unavailable");
    assert_eq!(tag(&world_, &[of(&["a"])]), ["m0"]);
    // The tags are there, but the claim could not be written: the next run only says so.
    let world_ = world(&[claim("a", "i-1")], vec![instance("i-1", &[])]);
    world_.fail("patch NodeClaim/a", "Unavailable");
    assert_eq!(tag(&world_, &[of(&["a"])]), ["m0"]);
    world_.mend("patch NodeClaim/a");
    world_.calls.borrow_mut().clear();
    assert_eq!(tag(&world_, &[of(&["a"])]), [""; 0]);
    assert_eq!(*world_.calls.borrow(), ["patch NodeClaim/a"]);
}

#[test] // nodeclass 31, case 5
fn the_same_claim_twice_in_a_batch_is_tagged_once() {
    let world = world(&[claim("a", "i-1")], vec![instance("i-1", &[])]);
    assert_eq!(tag(&world, &[of(&["a"]), of(&["a"])]), [""; 0]);
    assert_eq!(world.calls.borrow().iter().filter(|it| it.starts_with("tag")).count(), 1);
}

#[test] // nodeclass 19, BETTER: paced by the queue, not by sleeping
fn many_claims_are_spread_over_time() {
    let claims: Vec<Value> =
        (0..12).map(|n| claim(&format!("c{n:02}"), &format!("i-{n}"))).collect();
    let instances = (0..12).map(|n| instance(&format!("i-{n}"), &[])).collect();
    let world = world(&claims, instances);
    // The sweep names no claims: all of them.
    assert_eq!(tag(&world, &[Work::new("Sweep", Vec::new())]), [""; 0]);
    let tagged =
        |world: &Fake| world.calls.borrow().iter().filter(|it| it.starts_with("tag")).count();
    assert_eq!(tagged(&world), AT_ONCE);
    let (to, work, delay, _) = world.sent.borrow()[0].clone();
    assert_eq!((to, delay), (Concern::Tagging, SignedDuration::from_secs(5)));
    assert_eq!(work.keys.len(), 7);
    world.sent.borrow_mut().clear();
    assert_eq!(tag(&world, &[work]), [""; 0]);
    assert_eq!((tagged(&world), world.sent.borrow()[0].1.keys.len()), (10, 2));
}

#[test]
fn a_body_that_cannot_be_read_is_dropped_alone() {
    let world = world(&[claim("a", "i-1")], vec![instance("i-1", &[])]);
    let body = serde_json::to_string(&of(&["a"])).expect("writes");
    let records = [("m0", "garbage".to_owned()), ("m1", body)];
    let record = |(id, body): (&str, String)| SqsRecord {
        message_id: id.into(),
        body,
        ..SqsRecord::default()
    };
    let batch = SqsBatch { records: records.map(record).to_vec() };
    let settings = Settings { cluster_name: "demo".into(), ..Settings::default() };
    let cx = Invocation {
        concern: Concern::Tagging,
        now: Timestamp::UNIX_EPOCH,
        deadline: Timestamp::MAX,
        settings: &settings,
        journal: &world,
    };
    let answer = block_on(handle(&batch, &world, &world, &world, &cx));
    assert!(answer.failures.is_empty() && is_done(&world, "a"));
    assert_eq!(world.decisions.borrow()[0].action, "drop");
}

#[test]
fn beside_another_autoscaler_nothing_is_done() {
    let world = world(&[claim("a", "i-1")], vec![instance("i-1", &[])]);
    let record = SqsRecord {
        message_id: "m".into(),
        body: serde_json::to_string(&of(&["a"])).expect("writes"),
        ..SqsRecord::default()
    };
    let batch = SqsBatch { records: vec![record] };
    let settings = Settings { cluster_name: "demo".into(), ..Settings::default() };
    let cx = Invocation {
        concern: Concern::Tagging,
        now: Timestamp::UNIX_EPOCH,
        deadline: Timestamp::MAX,
        settings: &settings,
        journal: &world,
    };
    let handle = || {
        let w = &world;
        let answer = spokeshave_tagging_function::handle_unless_observing(&batch, w, w, w, w, &cx);
        block_on(answer).failures.len()
    };
    let key = spokeshave_ports::stack::observe_only_key();
    let when = spokeshave_ports::When::Always;
    block_on(spokeshave_ports::StateTable::write(&world, &key, json!({}), None, when))
        .expect("written");
    assert_eq!(handle(), 0);
    assert!(!is_done(&world, "a"));
    world.fail("read stack/observe-only", "InternalServerError");
    assert_eq!(handle(), 1);
    world.mend("read stack/observe-only");
    world.records.borrow_mut().clear();
    assert_eq!(handle(), 0);
    assert!(is_done(&world, "a"));
}

#[test] // aws-nodeclass 19: no call while the zone is shifted away from
fn instances_of_a_shifted_zone_are_left_for_later() {
    let labelled = |zone: &str| {
        let mut claim = claim("a", "i-1");
        claim["metadata"]["labels"]["topology.k8s.aws/zone-id"] = json!(zone);
        claim
    };
    let shifts = [spokeshave_ports::ZonalShift {
        away_from: "euw1-az1".into(),
        applied_status: "APPLIED".into(),
        expires_at: Timestamp::from_second(3_600).ok(),
    }];
    for (enabled, zone, second, done) in [
        (true, "euw1-az1", 3_599, false),
        (true, "euw1-az1", 3_600, true),
        (true, "euw1-az2", 0, true),
        (false, "euw1-az1", 0, true),
    ] {
        let world = world(&[labelled(zone)], vec![instance("i-1", &[])]);
        let now = Timestamp::from_second(second).expect("in range");
        world.now.set(Timestamp::UNIX_EPOCH);
        block_on(spokeshave_catalog::zonal_shift::save(&world, &shifts, Timestamp::UNIX_EPOCH))
            .expect("written");
        let batch = SqsBatch {
            records: vec![SqsRecord {
                message_id: "m".into(),
                body: serde_json::to_string(&of(&["a"])).expect("writes"),
                ..SqsRecord::default()
            }],
        };
        let settings = Settings {
            cluster_name: "demo".into(),
            enable_zonal_shift: enabled,
            ..Settings::default()
        };
        let cx = Invocation {
            concern: Concern::Tagging,
            now,
            deadline: Timestamp::MAX,
            settings: &settings,
            journal: &world,
        };
        let w = &world;
        let run = spokeshave_tagging_function::handle_unless_observing(&batch, w, w, w, w, &cx);
        assert_eq!(block_on(run).failures.len(), 0);
        assert_eq!(is_done(&world, "a"), done, "{enabled} {zone} {second}");
    }
}
