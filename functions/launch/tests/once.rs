//! One instance per claim, whatever dies and whatever runs twice.

mod common;

use std::collections::BTreeSet;

use common::{Script, World, at, claim, ice};
use serde_json::json;
use spokeshave_model::{InstanceId, NodeClaim, ec2_node_class::CapacityReservationStatus};
use spokeshave_ports::StateKey;

/// Runs until nothing changes any more, well past every waiting time.
fn settle(world: &World) {
    for seconds in [1, 12, 75, 90, 150, 220] {
        world.set_now(at(seconds));
        world.run().expect("it lives");
    }
}

/// Every claim has an instance of its own and no instance is left over.
fn assert_once(world: &World, what: &str) {
    let claims = world.claims();
    let owned: Vec<InstanceId> =
        claims.iter().filter_map(|it| it.status.provider_id.instance_id()).collect();
    assert_eq!(owned.len(), claims.len(), "{what}: every claim is launched");
    let distinct: BTreeSet<&InstanceId> = owned.iter().collect();
    assert_eq!(distinct.len(), owned.len(), "{what}: no instance is shared");
    let mut owned = owned.clone();
    owned.sort();
    assert_eq!(world.alive(), owned, "{what}: no instance is left over");
    assert!(claims.iter().all(|it| it.is_true(NodeClaim::LAUNCHED)), "{what}");
    assert!(
        claims.iter().all(|it| it.metadata.has_finalizer("karpenter.sh/termination")),
        "{what}"
    );
}

/// Three claims in one fleet and one of another pool.
fn mixed() -> World {
    let world = World::new(3);
    world.fake.add_json::<NodeClaim>(claim("b-0", 0, "b"));
    world
}

#[test] // aws-capacity 20, case 1; 13.2
fn like_claims_share_a_fleet() {
    let world = mixed();
    let answer = world.run().expect("it lives");
    assert!(answer.failures.is_empty());
    let targets: Vec<i64> = world.requests.borrow().iter().map(|it| it.target).collect();
    assert_eq!(targets, [3, 1]);
    assert_once(&world, "all at once");
    // A second look buys nothing.
    settle(&world);
    assert_eq!(world.requests.borrow().len(), 2);
}

#[test] // aws-capacity 25, cases 1, 5; bug report B-075
fn killed_between_any_two_calls() {
    let world = mixed();
    world.run().expect("it lives");
    let calls = world.port_calls.get();
    assert!(calls > 30, "{calls}");
    for kill_at in 0..=calls * 2 {
        let world = mixed();
        world.budget.set(Some(kill_at));
        let died = world.run().is_none();
        world.budget.set(None);
        settle(&world);
        assert_once(&world, &format!("killed at {kill_at} ({died})"));
    }
}

#[test]
fn killed_twice() {
    for first in (0..70).step_by(7) {
        for second in (0..70).step_by(7) {
            let world = mixed();
            world.budget.set(Some(first));
            let _ = world.run();
            world.set_now(at(14));
            world.budget.set(Some(second));
            let _ = world.run();
            world.budget.set(None);
            settle(&world);
            assert_once(&world, &format!("killed at {first} and {second}"));
        }
    }
}

#[test] // aws-capacity 25, case 1
fn two_runs_of_the_same_message() {
    for seed in 0..100 {
        let world = mixed();
        world.run_two(seed, None);
        settle(&world);
        assert_once(&world, &format!("seed {seed}"));
    }
}

#[test]
fn two_runs_of_which_one_dies() {
    for seed in 0..10 {
        for step in (1..80).step_by(3) {
            let world = mixed();
            world.run_two(seed, Some((seed as usize % 2, step)));
            settle(&world);
            assert_once(&world, &format!("seed {seed}, step {step}"));
        }
    }
}

#[test]
fn the_answer_is_lost() {
    let world = mixed();
    world.script.borrow_mut().extend([Script::LoseAnswer, Script::LoseAnswer]);
    world.run().expect("it lives");
    assert_eq!(world.alive().len(), 4);
    settle(&world);
    assert_once(&world, "lost answers");
    // The same requests were sent again, with the same tokens.
    assert_eq!(world.fleets.borrow().len(), 2);
}

#[test]
fn the_table_is_lost_at_any_time() {
    let calls = {
        let world = mixed();
        world.run().expect("it lives");
        world.port_calls.get()
    };
    for kill_at in 0..=calls * 2 {
        let world = mixed();
        world.budget.set(Some(kill_at));
        let _ = world.run();
        world.budget.set(None);
        world
            .fake
            .records
            .borrow_mut()
            .retain(|key, _| matches!(key.partition.as_str(), "cluster" | "catalog"));
        settle(&world);
        assert_once(&world, &format!("table lost at {kill_at}"));
    }
}

#[test]
fn a_claim_that_is_gone_leaves_no_instance() {
    let calls = {
        let world = mixed();
        world.run().expect("it lives");
        world.port_calls.get()
    };
    for kill_at in 0..=calls * 2 {
        let world = mixed();
        world.budget.set(Some(kill_at));
        let _ = world.run();
        world.budget.set(None);
        // Removed by force, finalizer and all.
        world.fake.objects.borrow_mut().remove("NodeClaim/a-1");
        settle(&world);
        let owned: BTreeSet<InstanceId> =
            world.claims().iter().filter_map(|it| it.status.provider_id.instance_id()).collect();
        assert_eq!(owned.len(), 3, "killed at {kill_at}");
        // Whatever is left over carries the tag by which the collector finds it.
        let left: Vec<InstanceId> =
            world.alive().into_iter().filter(|it| !owned.contains(it)).collect();
        assert!(left.len() <= 1, "killed at {kill_at}: {left:?}");
    }
}

#[test] // aws-capacity 20: surplus instances
fn surplus_instances_are_terminated() {
    let world = World::new(2);
    world.script.borrow_mut().push(Script::Surplus);
    world.run().expect("it lives");
    assert_once(&world, "one too many");
    assert_eq!(world.terminated.borrow().len(), 1);
}

#[test]
fn no_capacity_then_capacity_under_death() {
    for kill_at in 0..120 {
        let world = World::new(2);
        world.script.borrow_mut().push(Script::Short(1, vec![ice("m5.large", "us-west-2a")]));
        world.budget.set(Some(kill_at));
        let _ = world.run();
        world.budget.set(None);
        settle(&world);
        let claims = world.claims();
        let (kept, ended): (Vec<&NodeClaim>, Vec<&NodeClaim>) =
            claims.iter().partition(|it| !it.metadata.deleting());
        let owned: Vec<InstanceId> =
            kept.iter().filter_map(|it| it.status.provider_id.instance_id()).collect();
        assert_eq!(owned.len(), kept.len(), "killed at {kill_at}");
        assert!(ended.iter().all(|it| it.status.provider_id.is_empty()), "killed at {kill_at}");
        assert_eq!(world.alive(), owned, "killed at {kill_at}");
        assert_eq!((kept.len(), ended.len()), (1, 1), "killed at {kill_at}");
    }
}

/// 1,000 claims of four shapes.
fn burst() -> World {
    let world = World::new(0);
    for pool in ["a", "b", "c", "d"] {
        for n in 0..250 {
            world.fake.add_json::<NodeClaim>(claim(&format!("{pool}-{n}"), n, pool));
        }
    }
    world
}

/// How often each call was made.
fn calls(world: &World) -> Vec<(String, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for call in world.ec2_calls.borrow().iter() {
        *counts.entry(call.clone()).or_default() += 1;
    }
    counts.into_iter().collect()
}

#[test] // aws-capacity 20, cases 1-2
fn a_burst_of_a_thousand_claims_takes_twelve_fleets() {
    let expected = [
        ("CreateFleet".to_owned(), 12),
        ("CreateLaunchTemplate".to_owned(), 4),
        ("DescribeLaunchTemplates".to_owned(), 4),
    ];
    // All in one batch, a message per claim.
    let world = burst();
    world.run().expect("it lives");
    assert_once(&world, "one batch");
    assert_eq!(world.alive().len(), 1000);
    assert_eq!(calls(&world), expected);
    let targets: Vec<i64> = world.requests.borrow().iter().map(|it| it.target).collect();
    assert_eq!(targets, [100, 100, 50].repeat(4));

    // As provision hands them over: a message per hundred claims of a shape, each in an invocation of its own.
    let world = burst();
    for pool in ["a", "b", "c", "d"] {
        for first in (0..250).step_by(100) {
            let names: Vec<String> =
                (first..(first + 100).min(250)).map(|n| format!("{pool}-{n}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            world.run_batch(&world.message(&names)).expect("it lives");
        }
    }
    assert_once(&world, "twelve invocations");
    assert_eq!(world.alive().len(), 1000);
    assert_eq!(calls(&world), expected);
}

#[test] // aws-capacity 20: what the bridge sees one by one does not break up what is handed over together
fn the_bridge_waits_for_the_hand_over() {
    let world = World::new(3);
    // The claims are a second old.
    world.set_now(at(1));
    let seen = world.bus_batch(&["a-0", "a-1", "a-2"]);
    world.run_batch(&seen).expect("it lives");
    assert_eq!(calls(&world), []);
    let sent: Vec<(usize, i64)> =
        world.fake.sent.borrow().iter().map(|it| (it.1.keys.len(), it.2.as_secs())).collect();
    assert_eq!(sent, [(3, 14)], "one wake-up for all three");
    world.run_batch(&world.message(&["a-0", "a-1", "a-2"])).expect("it lives");
    let targets = |world: &World| -> Vec<i64> {
        world.requests.borrow().iter().map(|it| it.target).collect()
    };
    assert_eq!(targets(&world), [3]);
    // What was launched meanwhile is not launched again.
    world.set_now(at(15));
    world.run_batch(&world.batch(&["a-0", "a-1", "a-2"], "Wake", 0)).expect("it lives");
    assert_once(&world, "handed over");
    assert_eq!(targets(&world), [3]);

    // Never handed over: the bridge's word counts once the time is up.
    let world = World::new(2);
    world.set_now(at(15));
    world.run_batch(&world.bus_batch(&["a-0", "a-1"])).expect("it lives");
    assert_eq!(targets(&world), [2]);
}

#[test] // aws-capacity 13.2, 20: one call buys; a second look must not repeat it while its answer is on the way
fn what_the_bridge_sees_meanwhile_is_not_asked_for_again() {
    // The run that began dies, or still waits, with its request sent.
    let begun = |steps: usize| {
        let world = World::new(1);
        world.set_now(at(20));
        world.budget.set(Some(steps));
        let _ = world.run_batch(&world.message(&["a-0"]));
        world.budget.set(None);
        world
    };
    let has_bought = |world: &World| calls(world).iter().any(|it| it.0 == "CreateFleet");
    let world = (1..200).map(begun).find(has_bought).expect("it buys");
    let n_fleets = || calls(&world).iter().find(|it| it.0 == "CreateFleet").map_or(0, |it| it.1);
    let before = n_fleets();
    world.set_now(at(21));
    world.run_batch(&world.bus_batch(&["a-0"])).expect("it lives");
    assert_eq!(n_fleets(), before, "the first run may still wait for the answer");
    let wake = world.fake.sent.borrow().last().map(|it| (it.1.keys.len(), it.2.as_secs()));
    assert_eq!(wake, Some((1, 4)), "5 s after the attempt began");
    world.set_now(at(25));
    world.run_batch(&world.batch(&["a-0"], "Wake", 0)).expect("it lives");
    assert_eq!(n_fleets(), before + 1);
    assert_once(&world, "asked again in time");
}

#[test] // architecture 4: EC2's view lags by up to a minute, and the table is lost
fn instances_that_are_not_seen_yet_are_not_bought_again() {
    let calls = {
        let world = mixed();
        world.run().expect("it lives");
        world.port_calls.get()
    };
    for (lost, lag) in [(false, 55), (true, 55), (true, 59)] {
        for kill_at in (0..=calls * 2).step_by(7) {
            let world = mixed();
            world.lag.set(lag);
            world.budget.set(Some(kill_at));
            let _ = world.run();
            world.budget.set(None);
            if lost {
                let mut records = world.fake.records.borrow_mut();
                records.retain(|key, _| matches!(key.partition.as_str(), "cluster" | "catalog"));
            }
            settle(&world);
            assert_once(&world, &format!("lost {lost}, {lag} s, killed at {kill_at}"));
        }
    }
}

/// Two claims for what is reserved, in a reservation with so many instances left.
fn reserved(left: i64) -> World {
    let world = World::new(2);
    let mut types = common::types();
    let offering = json!({"capacityType": "reserved", "zone": "us-west-2a", "zoneId": "usw2-az2", "price": 9.6e-9,
        "reservation": {"id": "cr-1", "type": "default", "interruptible": false, "count": left}});
    types["instanceTypes"][0]["offerings"].as_array_mut().expect("a list").push(offering);
    world.record(StateKey::new("catalog", "fixed"), types);
    world.record(StateKey::new("reservation", "cr-1"), json!({"count": left, "readAt": at(0)}));
    world.change_class(|class| {
        class.status.capacity_reservations = vec![CapacityReservationStatus {
            id: "cr-1".into(),
            availability_zone: "us-west-2a".into(),
            instance_type: "m5.large".into(),
            ..CapacityReservationStatus::default()
        }];
    });
    for name in ["a-0", "a-1"] {
        world.change_claim(name, |claim| {
            claim.spec.requirements[1].values = vec!["reserved".into()];
        });
    }
    world
}

#[test] // aws-capacity 15.3, 25, case 5: launches into a reservation
fn a_reservation_is_entered_once_whatever_dies() {
    let world = reserved(3);
    world.run().expect("it lives");
    assert_once(&world, "alive");
    let request = world.requests.borrow()[0].clone();
    let templates = world.templates.borrow();
    let [config] = &request.configs[..] else { panic!("{request:?}") };
    let aims_at = &templates[&config.launch_template].reservation_id;
    assert_eq!(aims_at.as_deref(), Some("cr-1"));
    let claim = world.claim("a-0").expect("there");
    assert_eq!(claim.metadata.label("karpenter.k8s.aws/capacity-reservation-id"), Some("cr-1"));
    let calls = world.port_calls.get();
    drop(templates);
    for kill_at in 0..=calls * 2 {
        let world = reserved(3);
        world.budget.set(Some(kill_at));
        let _ = world.run();
        world.budget.set(None);
        settle(&world);
        assert_once(&world, &format!("killed at {kill_at}"));
        let reserved = world
            .claims()
            .into_iter()
            .filter(|it| it.metadata.label("karpenter.sh/capacity-type") == Some("reserved"));
        assert_eq!(reserved.count(), 2, "killed at {kill_at}");
    }
}
