//! The simulated world without any function: what Kubernetes and EC2 do by themselves.

use std::{cell::RefCell, rc::Rc};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_lambda::{BatchAnswer, SqsBatch};
use spokeshave_model::{CapacityType, Kind, ObjectKey, Settings, core::Pod};
use spokeshave_ports::{
    Concern, Ec2, Queues, Work,
    cluster::Eviction,
    ec2::{FleetConfig, FleetOverride, FleetRequest, LaunchTemplateData, Tags, Zone},
    queues::BusEvent,
};
use spokeshave_sim::{
    Fault, Functions, InvocationSpec, Market, NodeShape, ObjectChange, Ports, World,
    engine::Running, kubernetes,
};

/// A function to run on a batch.
type Script = Rc<dyn Fn(InvocationSpec, Ports) -> Running>;

/// Functions that do what a test says, and remember the batches they got.
struct Scripted {
    script: Script,
    seen: Rc<RefCell<Vec<SqsBatch>>>,
}

impl Functions for Scripted {
    fn invoke(&self, run: InvocationSpec, ports: Ports) -> Running {
        self.seen.borrow_mut().push(run.batch.clone());
        (self.script)(run, ports)
    }
    fn changed(&mut self, _: &ObjectChange, _: Timestamp) {}
    fn bridge_due(&self) -> Option<Timestamp> {
        None
    }
    fn bridge_take(&mut self, _: Timestamp) -> Vec<BusEvent> {
        Vec::new()
    }
}

fn start() -> Timestamp {
    "2026-01-05T08:00:00Z".parse().expect("valid")
}

fn market() -> Market {
    let mut market = Market {
        zones: vec![Zone {
            name: "us-east-1a".into(),
            id: "use1-az1".into(),
            kind: "availability-zone".into(),
        }],
        ..Market::default()
    };
    for (name, price) in [("m5.large", 0.096), ("c5.large", 0.085)] {
        market.prices.insert((name.into(), "us-east-1a".into(), CapacityType::OnDemand), price);
    }
    market
}

fn world(script: Script) -> (World, Rc<RefCell<Vec<SqsBatch>>>) {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let functions = Box::new(Scripted { script, seen: seen.clone() });
    let shape = |_: &str, _: &spokeshave_model::EC2NodeClass| {
        let node = json!({"cpu": "2", "memory": "8Gi", "pods": "29"});
        let resources: spokeshave_model::Resources = serde_json::from_value(node).ok()?;
        Some(NodeShape {
            capacity: resources.clone(),
            allocatable: resources,
            arch: "amd64".into(),
            os: "linux".into(),
        })
    };
    let settings = Settings { cluster_name: "test".into(), ..Settings::default() };
    (World::new(1, start(), settings, market(), Rc::new(shape), functions), seen)
}

fn idle() -> Script {
    Rc::new(|_, _| Box::pin(async { BatchAnswer::done() }))
}

fn node(name: &str, zone: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn deployment(name: &str, replicas: i32, extra: &Value) -> Value {
    let mut pod =
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]});
    spokeshave_model::meta::apply_merge_patch(&mut pod, extra);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    })
}

fn apply(world: &mut World, objects: &[Value]) {
    for object in objects {
        world.apply(object).expect("valid");
    }
}

fn rest(world: &mut World) -> bool {
    world.run(start() + SignedDuration::from_hours(2), true, &mut |_| {})
}

fn pods(world: &World) -> Vec<(String, String)> {
    world.read(|it| {
        it.store
            .list::<Pod>()
            .map(|it| (it.spec.node_name.clone(), it.status.phase.clone()))
            .collect()
    })
}

#[test]
fn deployments_are_bound_where_they_fit_and_the_rest_stays_pending() {
    let (mut world, _) = world(idle());
    apply(
        &mut world,
        &[node("n1", "a", "1"), node("n2", "b", "1"), deployment("web", 5, &json!({}))],
    );
    assert!(rest(&mut world));
    let mut all = pods(&world);
    all.sort();
    let expected: Vec<(String, String)> = [
        ("", "Pending"),
        ("n1", "Running"),
        ("n1", "Running"),
        ("n2", "Running"),
        ("n2", "Running"),
    ]
    .iter()
    .map(|(node, phase)| ((*node).to_owned(), (*phase).to_owned()))
    .collect();
    assert_eq!(all, expected);
}

#[test]
fn spread_and_anti_affinity_are_kept() {
    let (mut world, _) = world(idle());
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "even"}}}]});
    let anti = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "alone"}}}]}}});
    apply(
        &mut world,
        &[
            node("n1", "a", "4"),
            node("n2", "b", "1"),
            deployment("even", 4, &spread),
            deployment("alone", 3, &anti),
        ],
    );
    assert!(rest(&mut world));
    let count = |app: &str, node: &str| {
        world.read(|it| {
            it.store
                .list::<Pod>()
                .filter(|it| it.metadata.label("app") == Some(app) && it.spec.node_name == node)
                .count()
        })
    };
    // n2 has room for two pods in all; one of them is the lone one or an even one.
    assert_eq!(count("alone", "n1"), 1);
    assert!(count("even", "n1") <= count("even", "n2") + 1, "skew of at most one");
}

#[test]
fn a_budget_refuses_the_second_eviction_until_the_first_pod_is_back() {
    let (mut world, _) = world(idle());
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    apply(&mut world, &[node("n1", "a", "4"), deployment("web", 3, &json!({})), budget]);
    assert!(rest(&mut world));
    let running: Vec<_> = world
        .read(|it| it.store.list::<Pod>().map(|it| (it.key(), it.metadata.uid.clone())).collect());
    let answers = world.change(|inner| {
        running
            .iter()
            .take(2)
            .map(|(key, uid)| kubernetes::evict(inner, key, uid))
            .collect::<Vec<_>>()
    });
    assert_eq!(answers, [Eviction::Accepted, Eviction::Blocked]);
    assert!(rest(&mut world));
    let (key, uid) = &running[1];
    assert_eq!(world.change(|inner| kubernetes::evict(inner, key, uid)), Eviction::Accepted);
    let other = spokeshave_model::Uid::from("another");
    let nobody = ObjectKey::namespaced("default", "nobody");
    // lifecycle 28.2, step 5
    assert_eq!(world.change(|inner| kubernetes::evict(inner, key, &other)), Eviction::Replaced);
    assert_eq!(world.change(|inner| kubernetes::evict(inner, &nobody, &other)), Eviction::Gone);
}

#[test]
fn a_fleet_takes_the_cheapest_and_honours_its_token() {
    let answers = Rc::new(RefCell::new(Vec::new()));
    let record = answers.clone();
    let script: Script = Rc::new(move |run, ports| {
        let record = record.clone();
        Box::pin(async move {
            if run.concern != Concern::Launch {
                return BatchAnswer::done();
            }
            let data = LaunchTemplateData::default();
            let _ = ports.create_launch_template("lt", &data, &Tags::new(), false).await;
            let offer = |name: &str| FleetOverride {
                instance_type: name.into(),
                subnet_id: format!("subnet-0{:016x}", 1),
                ..FleetOverride::default()
            };
            let request = FleetRequest {
                client_token: "token".into(),
                target: 1,
                capacity_type: "on-demand".into(),
                configs: vec![FleetConfig {
                    launch_template: "lt".into(),
                    overrides: vec![offer("m5.large"), offer("c5.large")],
                }],
                ..FleetRequest::default()
            };
            for _ in 0..2 {
                let answer = ports.create_fleet(&request).await;
                record.borrow_mut().push(answer);
            }
            let other = FleetRequest { target: 2, ..request };
            let answer = ports.create_fleet(&other).await;
            record.borrow_mut().push(answer);
            BatchAnswer::done()
        })
    });
    let (mut world, _) = world(script);
    world.change(|inner| inner.send_work(Concern::Launch, &Work::new("test", Vec::new()), false));
    assert!(rest(&mut world));
    let answers = answers.borrow();
    assert_eq!(answers[0], answers[1]);
    let bought = &answers[0].as_ref().expect("launched").instances;
    assert_eq!((bought.len(), bought[0].instance_type.as_str()), (1, "c5.large"));
    assert_eq!(answers[2].as_ref().expect_err("mismatch").code, "IdempotentParameterMismatch");
    assert_eq!(world.read(|it| it.machines.len()), 1);
    // The node joined and is Ready.
    let nodes = world.read(|it| {
        it.store.list::<spokeshave_model::core::Node>().filter(|it| it.is_ready()).count()
    });
    assert_eq!(nodes, 1);
}

#[test]
fn a_handler_that_dies_gets_its_message_again_and_a_failure_comes_back() {
    let runs = Rc::new(RefCell::new(0));
    let counter = runs.clone();
    let script: Script = Rc::new(move |run, ports| {
        let counter = counter.clone();
        Box::pin(async move {
            let mut answer = BatchAnswer::done();
            if run.concern == Concern::Tagging {
                *counter.borrow_mut() += 1;
                if *counter.borrow() < 3 {
                    run.batch.records.iter().for_each(|it| answer.retry(it));
                }
                let work = Work::new("next", Vec::new());
                let _ =
                    ports.send(Concern::Nodepool, &work, SignedDuration::from_secs(30), "").await;
            }
            answer
        })
    });
    let (mut world, seen) = world(script);
    world.change(|inner| inner.send_work(Concern::Tagging, &Work::new("test", Vec::new()), false));
    world.run(start() + SignedDuration::from_mins(5), false, &mut |_| {});
    assert_eq!(*runs.borrow(), 3);
    let next = seen
        .borrow()
        .iter()
        .flat_map(|it| it.records.clone())
        .filter(|it| it.body.contains("next"))
        .count();
    assert_eq!(next, 3);
}

#[test]
fn crashed_invocations_are_delivered_again_until_the_faults_stop() {
    let done = Rc::new(RefCell::new(0));
    let counter = done.clone();
    let script: Script = Rc::new(move |run, ports| {
        let counter = counter.clone();
        Box::pin(async move {
            if run.concern == Concern::Tagging {
                for _ in 0..100 {
                    let _ = ports.describe_zones().await;
                }
                *counter.borrow_mut() += 1;
            }
            BatchAnswer::done()
        })
    });
    let (mut world, _) = world(script);
    world.set_faults(vec![Fault::Crash], start() + SignedDuration::from_mins(20));
    world.change(|inner| {
        for n in 0..20 {
            inner.send(
                Concern::Tagging,
                &format!("{{\"reason\":\"{n}\"}}"),
                SignedDuration::ZERO,
                "",
                false,
            );
        }
    });
    world.run(start() + SignedDuration::from_mins(118), false, &mut |_| {});
    assert!(*done.borrow() >= 1, "the batch was done in the end");
    assert!(world.read(|it| it.queues[&Concern::Tagging].messages.is_empty()));
}

#[test]
fn stale_reads_see_what_was() {
    let (mut world, _) = world(idle());
    apply(&mut world, &[node("n1", "a", "1")]);
    world.run(start() + SignedDuration::from_secs(3), false, &mut |_| {});
    apply(&mut world, &[node("n2", "a", "1")]);
    let key = ObjectKey::cluster("n2");
    world.read(|it| {
        let before =
            it.store.list_at::<spokeshave_model::core::Node>(it.now - SignedDuration::from_secs(1));
        assert!(!before.contains_key(&key) && before.contains_key(&ObjectKey::cluster("n1")));
        assert!(it.store.list_at::<spokeshave_model::core::Node>(it.now).contains_key(&key));
    });
}
