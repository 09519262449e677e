//! The bridge at work: Lease, checkpoints, refusals of the bus, hand-over, observe-only.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_cluster_bridge_function::{Change, Ended, HandOver, Mode, Start, run};
use spokeshave_model::{
    NodeClaim, Settings,
    core::{Lease, Pod},
    meta::from_value,
};
use spokeshave_ports::{
    Clock, ClusterError, Concern, Invocation, Watch,
    fake::{Fake, block_on},
    stack,
    watch::{Positions, WatchEvent},
};

const LEASE: &str = "kube-system/spokeshave-bridge";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_261_600 + seconds).expect("in range")
}

/// A clock that only watching moves on, and a watch with a script.
struct Script {
    now: Cell<Timestamp>,
    events: RefCell<VecDeque<(Timestamp, WatchEvent)>>,
    started: RefCell<Vec<Positions>>,
}

impl Script {
    fn new(events: Vec<(i64, WatchEvent)>) -> Self {
        Self {
            now: Cell::new(at(0)),
            events: RefCell::new(events.into_iter().map(|(s, event)| (at(s), event)).collect()),
            started: RefCell::default(),
        }
    }
}

impl Clock for Script {
    fn now(&self) -> Timestamp {
        self.now.get()
    }
}

impl Watch for Script {
    async fn start(&self, from: &Positions) -> Result<(), ClusterError> {
        self.started.borrow_mut().push(from.clone());
        Ok(())
    }

    async fn next(&self, timeout: SignedDuration) -> Result<Option<WatchEvent>, ClusterError> {
        let until = self.now.get() + timeout;
        let mut events = self.events.borrow_mut();
        if events.front().is_some_and(|(at, _)| *at <= until) {
            let (at, event) = events.pop_front().expect("there is one");
            self.now.set(self.now.get().max(at));
            return Ok(Some(event));
        }
        self.now.set(until);
        Ok(None)
    }
}

fn claim(name: &str, version: &str) -> WatchEvent {
    let claim: NodeClaim = from_value(json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": version},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"}}}))
    .expect("a claim");
    WatchEvent::Changed(Change::of::<NodeClaim>(None, Some(Arc::new(claim))).expect("watched"))
}

fn pending(name: &str, version: &str) -> WatchEvent {
    let pod: Pod = from_value(json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": version},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}))
    .expect("a pod");
    WatchEvent::Changed(Change::of::<Pod>(None, Some(Arc::new(pod))).expect("watched"))
}

fn go(world: &Fake, script: &Script, start: &Start, limit: i64) -> Ended {
    let settings = Settings::default();
    let cx = Invocation {
        concern: Concern::ClusterBridge,
        now: at(0),
        deadline: at(limit),
        settings: &settings,
        journal: world,
    };
    block_on(run(start, script, world, world, world, script, &cx)).expect("it runs")
}

fn start(mode: Mode) -> Start {
    Start { holder: "run-1".into(), stack: "blue".into(), mode, hand_over: None }
}

fn lease(world: &Fake) -> Value {
    let lease: Lease = world.object(LEASE).expect("there is one");
    let positions = lease.metadata.annotation("spokeshave.dev/positions").map(str::to_owned);
    json!({
        "holder": lease.spec.holder_identity,
        "transitions": lease.spec.lease_transitions,
        "positions": positions.and_then(|it| serde_json::from_str::<Value>(&it).ok()),
    })
}

fn put(world: &Fake) -> Vec<String> {
    let text = |it: &spokeshave_ports::queues::BusEvent| {
        let names: Vec<&str> = it.work.keys.iter().map(|key| key.name.as_str()).collect();
        format!("{} {}", it.detail_type, names.join(","))
    };
    world.put.borrow().iter().map(text).filter(|it| !it.starts_with("DisruptionDue")).collect()
}

#[test]
fn watches_until_its_time_is_up_then_hands_over_and_frees_the_lease() {
    let world = Fake::at(at(0));
    let script = Script::new(vec![(1, claim("a", "5")), (12, pending("p", "9"))]);
    assert_eq!(go(&world, &script, &start(Mode::Watch), 60), Ended::TimeUp);
    assert_eq!(put(&world), ["NodeClaimCreated a", "PodsPending p", "HandOver "]);
    let hand_over = world.put.borrow().last().expect("the last").clone();
    let payload: HandOver = serde_json::from_value(hand_over.work.payload).expect("a hand-over");
    assert_eq!(payload.from, "run-1");
    assert_eq!(payload.positions["NodeClaim"], "5");
    assert_eq!(payload.positions["Pod"], "9");
    // The successor has not come: the Lease is free at once, with the checkpoint.
    assert_eq!(
        lease(&world),
        json!({"holder": "", "transitions": 1, "positions": {"NodeClaim": "5", "Pod": "9"}})
    );
    assert_eq!(script.now.get(), at(57));
}

#[test]
fn a_position_is_safe_only_once_its_keys_are_accepted() {
    let world = Fake::at(at(0));
    // The bus refuses the claim's key for as long as this run lives.
    world.refused.borrow_mut().extend(std::iter::repeat_n(vec![0], 500));
    let script = Script::new(vec![
        (1, WatchEvent::Bookmark { kind: "Node", resource_version: "3".into() }),
        (12, claim("a", "5")),
    ]);
    assert_eq!(go(&world, &script, &start(Mode::Watch), 60), Ended::TimeUp);
    assert_eq!(put(&world), [""; 0]);
    assert_eq!(lease(&world)["positions"], json!({"Node": "3"}), "the claim is seen again");
}

#[test]
fn what_was_refused_is_put_again() {
    let world = Fake::at(at(0));
    world.refused.borrow_mut().push(vec![0]);
    let script = Script::new(vec![(1, claim("a", "5"))]);
    go(&world, &script, &start(Mode::Watch), 60);
    assert_eq!(put(&world), ["NodeClaimCreated a", "HandOver "]);
    world.put.borrow_mut().clear();
    world.fail("put", "ThrottlingException");
    let script = Script::new(vec![(1, claim("b", "6"))]);
    go(&world, &script, &start(Mode::Watch), 60);
    assert_eq!(put(&world), [""; 0]);
    assert_eq!(lease(&world)["positions"], json!({"NodeClaim": "5"}));
}

#[test]
fn one_bridge_at_a_time() {
    let world = Fake::at(at(0));
    let mut other = json!({"metadata": {"name": "spokeshave-bridge", "namespace": "kube-system",
        "uid": "l", "annotations": {"spokeshave.dev/stack": "blue"}},
        "spec": {"holderIdentity": "run-0", "renewTime": at(-29)}});
    world.add_json::<Lease>(other.clone());
    let script = Script::new(vec![]);
    assert_eq!(
        go(&world, &script, &start(Mode::Watch), 60),
        Ended::NotNeeded { by: "run-0".into() }
    );
    assert!(script.started.borrow().is_empty() && put(&world).is_empty());
    // 30 s without renewal, and it is free, with the checkpoint.
    other["spec"]["renewTime"] = json!(at(-30));
    other["metadata"]["annotations"]["spokeshave.dev/positions"] = json!("{\"Pod\":\"7\"}");
    world.add_json::<Lease>(other);
    assert_eq!(go(&world, &script, &start(Mode::Watch), 60), Ended::TimeUp);
    assert_eq!(script.started.borrow()[0], Positions::from([("Pod".into(), "7".into())]));
}

#[test]
fn the_successor_watches_first_and_the_predecessor_notices() {
    let world = Fake::at(at(0));
    world.add_json::<Lease>(json!({"metadata": {"name": "spokeshave-bridge",
        "namespace": "kube-system", "uid": "l", "annotations": {"spokeshave.dev/stack": "blue"}},
        "spec": {"holderIdentity": "run-0", "renewTime": at(-1), "leaseTransitions": 4}}));
    let positions = Positions::from([("Pod".into(), "40".into())]);
    let event = json!({"detail-type": "HandOver", "detail": {"reason": "HandOver",
        "payload": {"from": "run-0", "positions": {"Pod": "40"}}}});
    let successor = Start { hand_over: HandOver::of(&event), ..start(Mode::Watch) };
    let script = Script::new(vec![(1, claim("a", "41"))]);
    assert_eq!(go(&world, &script, &successor, 60), Ended::TimeUp);
    assert_eq!(*script.started.borrow(), [positions]);
    assert_eq!(lease(&world)["transitions"], 5);
    assert_eq!(put(&world)[0], "NodeClaimCreated a");
    assert_eq!(HandOver::of(&json!({"detail-type": "Scheduled Event", "detail": {}})), None);

    // Seen from the other side: whoever no longer has the Lease tells what it knows and goes.
    let world = Fake::at(at(0));
    let taken = std::rc::Rc::new(Cell::new(false));
    let script = Script::new(vec![(1, claim("a", "5"))]);
    let thief = Thief { script, world: &world, taken: taken.clone() };
    let settings = Settings::default();
    let cx = Invocation {
        concern: Concern::ClusterBridge,
        now: at(0),
        deadline: at(60),
        settings: &settings,
        journal: &world,
    };
    let ended =
        block_on(run(&start(Mode::Watch), &thief, &world, &world, &world, &thief.script, &cx));
    assert_eq!(ended, Ok(Ended::HandedOver));
    assert!(taken.get());
    assert_eq!(lease(&world)["holder"], "run-2", "it is not taken back");
    assert_eq!(put(&world), ["NodeClaimCreated a"]);
}

/// Takes the Lease away after five seconds.
struct Thief<'w> {
    script: Script,
    world: &'w Fake,
    taken: std::rc::Rc<Cell<bool>>,
}

impl Watch for Thief<'_> {
    async fn start(&self, from: &Positions) -> Result<(), ClusterError> {
        self.script.start(from).await
    }

    async fn next(&self, timeout: SignedDuration) -> Result<Option<WatchEvent>, ClusterError> {
        if self.script.now() >= at(5) && !self.taken.replace(true) {
            let mut lease: Lease = self.world.object(LEASE).expect("held");
            lease.spec.holder_identity = Some("run-2".into());
            self.world.add(&lease);
        }
        self.script.next(timeout).await
    }
}

#[test]
fn a_poll_ends_once_it_is_quiet() {
    let world = Fake::at(at(0));
    let script = Script::new(vec![(1, claim("a", "5")), (30, claim("b", "6"))]);
    assert_eq!(go(&world, &script, &start(Mode::Poll), 60), Ended::TimeUp);
    assert_eq!(put(&world), ["NodeClaimCreated a"]);
    assert!(script.now.get() < at(6), "{}", script.now.get());
    assert_eq!(lease(&world)["positions"], json!({"NodeClaim": "5"}));
}

#[test]
fn beside_another_autoscaler_it_only_watches() {
    let karpenter = |renewed: i64| {
        json!({"metadata": {"name": "karpenter-leader-election", "namespace": "kube-system"},
            "spec": {"holderIdentity": "karpenter-7d", "renewTime": at(renewed)}})
    };
    let other_stack = json!({"metadata": {"name": "spokeshave-bridge", "namespace": "kube-system",
        "annotations": {"spokeshave.dev/stack": "green"}},
        "spec": {"holderIdentity": "run-9", "renewTime": at(-50)}});
    for (what, lease, observes) in [
        ("Karpenter renewed 59 s ago", karpenter(-59), true),
        ("60 s ago", karpenter(-60), false),
        ("another stack", other_stack, true),
    ] {
        let world = Fake::at(at(0));
        world.add_json::<Lease>(lease);
        let script = Script::new(vec![(1, claim("a", "5"))]);
        let ended = go(&world, &script, &start(Mode::Watch), 60);
        assert_eq!(matches!(ended, Ended::ObserveOnly { .. }), observes, "{what}: {ended:?}");
        assert_eq!(block_on(stack::observes_only(&world)), Ok(observes), "{what}");
        assert_eq!(put(&world).is_empty(), observes, "{what}");
        assert_eq!(world.decisions.borrow().iter().any(|it| it.error), observes, "{what}");
    }
}

#[test]
fn once_the_other_autoscaler_is_gone_everything_is_listed_anew() {
    let world = Fake::at(at(0));
    world.add_json::<Lease>(json!({"metadata": {"name": "spokeshave-bridge",
        "namespace": "kube-system", "uid": "l", "annotations": {"spokeshave.dev/stack": "blue",
        "spokeshave.dev/positions": "{\"Pod\":\"7\"}"}}, "spec": {"holderIdentity": ""}}));
    let key = stack::observe_only_key();
    let write = spokeshave_ports::StateTable::write(
        &world,
        &key,
        json!({}),
        Some(at(90)),
        spokeshave_ports::When::Always,
    );
    block_on(write).expect("written");
    let script = Script::new(vec![]);
    assert_eq!(go(&world, &script, &start(Mode::Watch), 60), Ended::TimeUp);
    assert_eq!(*script.started.borrow(), [Positions::new()]);
    assert_eq!(block_on(stack::observes_only(&world)), Ok(false));
}

#[test]
fn what_a_list_brings_is_one_event_per_hundred_keys() {
    let world = Fake::at(at(0));
    let listed = |n: usize| {
        let WatchEvent::Changed(change) = claim(&format!("c{n:03}"), "5") else { unreachable!() };
        // One every 10 ms, as pages come.
        WatchEvent::Listed(change)
    };
    let mut events: Vec<(i64, WatchEvent)> = (0..250).map(|n| (1, listed(n))).collect();
    events.push((2, WatchEvent::Bookmark { kind: "NodeClaim", resource_version: "9".into() }));
    let script = Script::new(events);
    assert_eq!(go(&world, &script, &start(Mode::Watch), 60), Ended::TimeUp);
    let sizes: Vec<(String, usize)> = world
        .put
        .borrow()
        .iter()
        .filter(|it| !it.work.keys.is_empty())
        .map(|it| (it.detail_type.to_owned(), it.work.keys.len()))
        .collect();
    let created = |n: usize| ("NodeClaimCreated".to_owned(), n);
    assert_eq!(sizes, [created(100), created(100), created(50), ("DisruptionDue".to_owned(), 1)]);
    assert_eq!(lease(&world)["positions"], json!({"NodeClaim": "9"}));
}

#[test]
fn a_list_that_takes_long_does_not_hold_everything_back() {
    let world = Fake::at(at(0));
    let WatchEvent::Changed(first) = claim("a", "5") else { unreachable!() };
    let script = Script::new(vec![(1, WatchEvent::Listed(first)), (2, claim("b", "6"))]);
    let seen = RefCell::new(Vec::new());
    let late = Late { script, world: &world, seen: &seen };
    let settings = Settings::default();
    let cx = Invocation {
        concern: Concern::ClusterBridge,
        now: at(0),
        deadline: at(60),
        settings: &settings,
        journal: &world,
    };
    let watch = start(Mode::Watch);
    let ended = run(&watch, &late, &world, &world, &world, &late.script, &cx);
    assert_eq!(block_on(ended), Ok(Ended::TimeUp));
    let first = seen.borrow().iter().copied().find(|it: &(Timestamp, usize)| it.1 > 0);
    assert_eq!(first.map(|it| it.0), Some(at(4)), "3 s after the list began");
}

/// Notes when something has been put on the bus.
struct Late<'w> {
    script: Script,
    world: &'w Fake,
    seen: &'w RefCell<Vec<(Timestamp, usize)>>,
}

impl Watch for Late<'_> {
    async fn start(&self, from: &Positions) -> Result<(), ClusterError> {
        self.script.start(from).await
    }

    async fn next(&self, timeout: SignedDuration) -> Result<Option<WatchEvent>, ClusterError> {
        let n = self.world.put.borrow().len();
        self.seen.borrow_mut().push((self.script.now(), n));
        self.script.next(timeout).await
    }
}

#[test]
fn while_the_api_server_is_away_it_waits_for_it() {
    let world = Fake::at(at(0));
    let away = Away { script: Script::new(vec![(35, claim("a", "5"))]), world: &world };
    let settings = Settings::default();
    let cx = Invocation {
        concern: Concern::ClusterBridge,
        now: at(0),
        deadline: at(90),
        settings: &settings,
        journal: &world,
    };
    let watch = start(Mode::Watch);
    let ended = run(&watch, &away, &world, &world, &world, &away.script, &cx);
    assert_eq!(block_on(ended), Ok(Ended::TimeUp));
    assert_eq!(put(&world), ["NodeClaimCreated a", "HandOver "]);
    let retries = world.decisions.borrow().iter().filter(|it| it.action == "retry").count();
    assert_eq!(retries, 20, "every second from the renewal at 10 s until 30 s");
    assert_eq!(lease(&world)["positions"], json!({"NodeClaim": "5"}));
}

/// From 10 s to 30 s nobody answers for the Lease.
struct Away<'w> {
    script: Script,
    world: &'w Fake,
}

impl Watch for Away<'_> {
    async fn start(&self, from: &Positions) -> Result<(), ClusterError> {
        self.script.start(from).await
    }

    async fn next(&self, timeout: SignedDuration) -> Result<Option<WatchEvent>, ClusterError> {
        let event = self.script.next(timeout).await;
        let call = format!("get Lease/{LEASE}");
        if (at(10)..at(30)).contains(&self.script.now()) {
            self.world.fail(&call, "Unavailable");
        } else {
            self.world.mend(&call);
        }
        event
    }
}
