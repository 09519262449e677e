//! Lifecycle 18: simulations by the real scheduler.

use std::sync::Arc;

use serde_json::{Value, json};
use spokeshave_model::{
    InstanceType, NodePool, Resources, Settings,
    core::{Pod, PodDisruptionBudget},
    labels,
    meta::from_value,
};
use spokeshave_scheduling::{ClusterView, Object, Options, PoolInput};

use crate::{
    Method, Purpose, Scheduler, SettledCell, Simulation, SimulationError, Simulator, View,
    candidates::Survey, fixtures::*, memory::Memory, methods::NoLimit, pass,
    scheduler::marked_names,
};

/// A type of so many cpu, on-demand in zone `a`.
fn sized(name: &str, cpu: &str, price: f64) -> Arc<InstanceType> {
    let mut it = (*on_demand(name, price)).clone();
    it.capacity = resources(cpu);
    Arc::new(it)
}

fn resources(cpu: &str) -> Resources {
    serde_json::from_value(json!({"cpu": cpu, "memory": "64Gi", "pods": "50"})).expect("resources")
}

/// A node of 8 cpu.
fn big(name: &str) -> NodeBuilder {
    let room = json!({"status": {"capacity": resources("8"), "allocatable": resources("8")}});
    node(name, "p", "big", "on-demand")
        .node_is(json!({"metadata": {"labels": {labels::HOSTNAME: name}}}))
        .node_is(room)
}

fn cpu(amount: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": amount}}}]}})
}

fn with(mut a: Value, b: &Value) -> Value {
    spokeshave_model::meta::apply_merge_patch(&mut a, b);
    a
}

struct World {
    cluster: ClusterView,
    pools: Vec<PoolInput>,
    settings: Settings,
}

impl World {
    fn new(types: &[Arc<InstanceType>], pool_is: Value, nodes: Vec<NodeBuilder>) -> Self {
        let built = pool("p", types, pool_is);
        let nodepool: Arc<NodePool> = Arc::clone(&built.nodepool);
        let mut objects = vec![Object::from(Arc::clone(&nodepool))];
        for it in nodes {
            let it = it.build();
            objects.extend(it.node.map(Object::from));
            objects.extend(it.claim.map(Object::from));
            objects.extend(it.pods.into_iter().map(Object::from));
        }
        let pools = vec![PoolInput {
            nodepool,
            hash: "1".into(),
            instance_types: Ok(built.instance_types),
        }];
        Self { cluster: ClusterView::new(objects), pools, settings: Settings::default() }
    }

    fn add(&mut self, object: impl Into<Object>) {
        self.cluster.apply(spokeshave_scheduling::Change::Put(object.into()));
    }

    fn view(&self) -> View {
        View::new(&self.cluster, &self.pools, &self.settings, now())
    }

    fn simulate(&self, names: &[&str], purpose: Purpose) -> Result<Simulation, SimulationError> {
        let view = self.view();
        let mut cluster = self.cluster.clone();
        for name in marked_names(&view) {
            cluster.mark_for_deletion(&name);
        }
        let at: Vec<usize> = names
            .iter()
            .filter_map(|name| view.nodes.iter().position(|it| it.name() == *name))
            .collect();
        let options = Options::from_settings(&self.settings);
        Scheduler::new(&view, &cluster, &self.pools, &options, Vec::new(), &|| true)
            .simulate(&at, purpose)
    }

    /// Consolidation without each of these nodes: with all pods that wait placed anew, and with their places kept.
    fn both_ways(&self, names: &[&str]) -> Vec<(Simulation, Simulation)> {
        let view = self.view();
        let options = Options::from_settings(&self.settings);
        let settled = SettledCell::new();
        let mut keeping =
            Scheduler::new(&view, &self.cluster, &self.pools, &options, Vec::new(), &|| true)
                .settling(&settled);
        names
            .iter()
            .map(|name| {
                let anew = self.simulate(&[name], Purpose::Consolidation).expect("an answer");
                let at = view.nodes.iter().position(|it| it.name() == *name).expect("the node");
                let kept = keeping.simulate(&[at], Purpose::Consolidation).expect("an answer");
                (anew, kept)
            })
            .collect()
    }

    fn pass(&self) -> pass::Outcome {
        let view = self.view();
        let options = Options::from_settings(&self.settings);
        let survey = Survey::new(&view);
        let mut scheduler =
            Scheduler::new(&view, &self.cluster, &self.pools, &options, Vec::new(), &|| true);
        pass::run(
            &survey,
            Method::Emptiness,
            &Memory::default(),
            &|_| None,
            &mut scheduler,
            &mut NoLimit,
        )
    }
}

/// `node: pods` of the placements.
fn placed(simulation: &Simulation) -> Vec<String> {
    simulation.placements.iter().map(|it| format!("{}: {}", it.node, it.pods.join(" "))).collect()
}

/// Too small for anything.
fn tiny() -> [Arc<InstanceType>; 2] {
    [sized("tiny", "100m", 0.01), sized("big", "8", 0.4)]
}

fn only_tiny() -> Value {
    json!({"spec": {"template": {"spec": {"requirements": [
        {"key": labels::INSTANCE_TYPE, "operator": "In", "values": ["tiny"]}]}}}})
}

#[test] // lifecycle 18.1, case 1; bug report B-024
fn only_pods_that_move_are_placed() {
    let owner = |api: &str, kind: &str| json!({"metadata": {"ownerReferences": [{"apiVersion": api, "kind": kind, "name": "o", "uid": "o"}]}});
    let leaving = big("a")
        .pod("web", cpu("1"))
        .pod("daemon", with(cpu("1"), &owner("apps/v1", "DaemonSet")))
        .pod("static", with(cpu("1"), &owner("v1", "Node")));
    let world = World::new(&tiny(), only_tiny(), vec![leaving, big("b")]);
    let answer = world.simulate(&["a"], Purpose::Drift).expect("an answer");
    assert_eq!(placed(&answer), ["b: ns/web"]);
    assert_eq!((answer.objection(), answer.new_claims.len()), (None, 0));
}

#[test] // lifecycle 18.1, cases 2 and 3
fn pods_that_are_held_are_not_placed() {
    let protected = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let held = big("a").pod("db", with(cpu("1"), &protected));
    let world = World::new(&tiny(), only_tiny(), vec![held, big("b")]);
    assert_eq!(placed(&world.simulate(&["a"], Purpose::Drift).expect("an answer")), [""; 0]);
    for (spec, expected) in [
        (json!({"maxUnavailable": 0}), vec![]),
        (json!({"minAvailable": 1}), vec!["b: ns/web".to_owned()]),
    ] {
        let mut world =
            World::new(&tiny(), only_tiny(), vec![big("a").pod("web", cpu("1")), big("b")]);
        let spec = with(json!({"selector": {"matchLabels": {"app": "web"}}}), &spec);
        let pdb: PodDisruptionBudget =
            from_value(json!({"metadata": {"name": "b", "namespace": "ns"},
            "spec": spec, "status": {"disruptionsAllowed": 0}}))
            .expect("a budget");
        world.add(Arc::new(pdb));
        let answer = world.simulate(&["a"], Purpose::Drift).expect("an answer");
        assert_eq!(placed(&answer), expected, "{spec}");
    }
}

fn young(name: &str) -> NodeBuilder {
    big(name).node_is(json!({"metadata": {"labels": {"karpenter.sh/initialized": null}}}))
}

#[test] // lifecycle 18.1, cases 4 and 5
fn nodes_that_are_not_proven_take_nobody() {
    let world = World::new(&tiny(), only_tiny(), vec![big("a").pod("web", cpu("1")), young("b")]);
    let answer = world.simulate(&["a"], Purpose::Drift).expect("an answer");
    assert_eq!(
        answer.objection().as_deref(),
        Some(
            "Not all pods would schedule, ns/web => would schedule against uninitialized nodeclaim/claim-b, node/b"
        )
    );
    let deleting = big("c")
        .pod("late", cpu("1"))
        .claim_is(json!({"metadata": {"deletionTimestamp": "2026-03-04T09:59:00Z"}}));
    let world = World::new(&tiny(), only_tiny(), vec![big("a"), young("b"), deleting]);
    let answer = world.simulate(&["a"], Purpose::Drift).expect("an answer");
    assert_eq!(answer.objection(), None);
}

#[test] // lifecycle 18.1, case 6
fn nodes_that_were_filled_a_moment_ago_take_no_moved_pods() {
    let recent =
        big("b").claim_is(
            json!({"status": {"lastPodEventTime": "2026-03-04T09:58:00Z", "conditions": [
        {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-03-01T00:00:00Z"}]}}),
        );
    let quiet = with(only_tiny(), &json!({"spec": {"disruption": {"consolidateAfter": "5m"}}}));
    let world = World::new(&tiny(), quiet, vec![big("a").pod("web", cpu("1")), recent]);
    let by = |purpose| world.simulate(&["a"], purpose).expect("an answer").objection();
    assert!(by(Purpose::Consolidation).is_some());
    assert_eq!(by(Purpose::Drift), None);
}

#[test] // lifecycle 18.1, case 7; bug report B-018
fn a_hopeless_pod_does_not_freeze_consolidation() {
    let nodes = vec![big("a").pod("web", cpu("1")), big("b").pod("api", cpu("1"))];
    let mut world = World::new(&tiny(), only_tiny(), nodes);
    let hopeless: Pod =
        from_value(json!({"metadata": {"name": "never", "namespace": "ns", "uid": "never"},
        "spec": {"nodeSelector": {"example.com/none": "x"}},
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}))
        .expect("a pod");
    world.add(Arc::new(hopeless));
    let outcome = world.pass();
    assert_eq!(outcome.method, Some(Method::SingleNodeConsolidation));
    assert_eq!(outcome.commands[0].decision(), "delete");
}

#[test] // lifecycle 18.1, case 8
fn a_candidate_that_is_deleted_meanwhile_stops_the_evaluation() {
    let deleting =
        big("a").claim_is(json!({"metadata": {"deletionTimestamp": "2026-03-04T09:59:00Z"}}));
    let world = World::new(&tiny(), only_tiny(), vec![deleting, big("b")]);
    assert_eq!(
        world.simulate(&["b", "a"], Purpose::Consolidation),
        Err(SimulationError::CandidateDeleting)
    );
}

#[test] // bug reports B-020, the first half, and B-021
fn what_cannot_be_bought_is_no_replacement() {
    let cheaper = |available: bool| {
        let mut it = (*sized("small", "2", 0.1)).clone();
        it.offerings[0].available = available;
        Arc::new(it)
    };
    for (available, n) in [(true, 1), (false, 0)] {
        let types = [sized("big", "8", 0.4), cheaper(available)];
        let world = World::new(&types, json!({}), vec![big("a").pod("web", cpu("1"))]);
        let outcome = world.pass();
        assert_eq!(outcome.commands.len(), n, "{available}");
        if let Some(command) = outcome.commands.first() {
            assert_eq!(command.replacements[0].instance_types, ["small"]);
            assert_eq!(command.replacements[0].capacity_types, ["on-demand"]);
            assert!((command.saving - 0.3).abs() < 1e-9);
        } else {
            let told: Vec<_> = outcome.notices.iter().map(|it| it.message.as_str()).collect();
            assert!(told.contains(&"Can't replace with a cheaper node"), "{told:?}");
        }
    }
}

#[test] // lifecycle 18, step 4: without a pool that makes nodes, those that are there still count
fn deletions_need_no_pool_that_is_ready() {
    let unready = with(
        only_tiny(),
        &json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
    );
    let world = World::new(
        &tiny(),
        unready,
        vec![big("a").pod("web", cpu("1")), big("b").pod("api", cpu("1"))],
    );
    assert_eq!(world.pass().commands.len(), 1);
}

#[test] // lifecycle 18, step 3: moved pods do not count where they were, whatever was simulated before
fn simulations_over_one_view_do_not_depend_on_each_other() {
    let spread = |key: &str, when: &str| {
        json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": {"app": "web"}}})
    };
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}]}});
    let kinds = [
        json!({"topologySpreadConstraints": [spread(labels::HOSTNAME, "DoNotSchedule")]}),
        json!({"topologySpreadConstraints": [spread(labels::ZONE, "DoNotSchedule"), spread(labels::HOSTNAME, "ScheduleAnyway")]}),
        json!({"affinity": apart}),
        json!({"nodeSelector": {labels::ARCH: "amd64"}, "topologySpreadConstraints": [spread(labels::HOSTNAME, "DoNotSchedule")]}),
    ];
    let names = ["n0", "n1", "n2", "n3"];
    let nodes = names.iter().enumerate().map(|(n, name)| {
        let pod =
            with(cpu("500m"), &json!({"metadata": {"labels": {"app": "web"}}, "spec": kinds[n]}));
        big(name).pod(&format!("web-{n}"), pod)
    });
    let world = World::new(&[sized("big", "8", 0.4)], json!({}), nodes.collect());
    let view = world.view();
    let options = Options::from_settings(&world.settings);
    let mut all = Vec::new();
    for first in 0..4 {
        all.push(vec![first]);
        all.extend((first + 1..4).map(|second| vec![first, second]));
    }
    let mut shared =
        Scheduler::new(&view, &world.cluster, &world.pools, &options, Vec::new(), &|| true);
    for without in all.iter().chain(all.iter().rev()) {
        let mut fresh =
            Scheduler::new(&view, &world.cluster, &world.pools, &options, Vec::new(), &|| true);
        assert_eq!(
            shared.simulate(without, Purpose::Consolidation),
            fresh.simulate(without, Purpose::Consolidation),
            "{without:?}"
        );
    }
}

/// So many pods that wait, of so much cpu each.
fn waiting(world: &mut World, n: usize, name: &str, cpu: &str, spec: &Value) {
    for n in 0..n {
        let pod = json!({"metadata": {"name": format!("{name}-{n:02}"), "namespace": "ns", "uid": format!("{name}-{n}")},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
        world.add(Arc::new(from_value::<Pod>(with(pod, &json!({"spec": spec}))).expect("a pod")));
    }
}

/// Four nodes of 8 cpu with one pod of 2 cpu each.
fn four_nodes() -> World {
    let nodes = ["a", "b", "c", "d"].map(|it| big(it).pod(&format!("web-{it}"), cpu("2")));
    World::new(&[sized("big", "8", 0.4)], json!({}), nodes.into())
}

#[test] // lifecycle 18, step 3, with many pods that wait
fn pods_that_wait_keep_the_places_they_found() {
    let mut world = four_nodes();
    waiting(&mut world, 40, "small", "50m", &json!({}));
    waiting(&mut world, 70, "never", "50m", &json!({"nodeSelector": {"example.com/none": "x"}}));
    // The small ones are on `a`, and move on when that is the one to go.
    for (name, (anew, kept)) in
        ["a", "b", "c", "d"].iter().zip(world.both_ways(&["a", "b", "c", "d"]))
    {
        assert_eq!(kept.pending(), anew.pending(), "{name}");
        assert_eq!((anew.unplaced.len(), kept.objection()), (70, None), "{name}");
        assert_eq!((kept.new_claims.len(), anew.new_claims.len()), (0, 0), "{name}");
        let other = if *name == "a" { "b" } else { "a" };
        assert_eq!(placed(&kept), [format!("{other}: ns/web-{name}")]);
        assert_eq!(placed(&anew), placed(&kept), "{name}");
    }
}

#[test] // lifecycle 18.1, with many pods that wait: what they need together with the pods that move
fn pods_that_wait_for_one_new_node_share_it() {
    let mut world = four_nodes();
    waiting(&mut world, 40, "small", "50m", &json!({}));
    waiting(&mut world, 24, "never", "50m", &json!({"nodeSelector": {"example.com/none": "x"}}));
    waiting(&mut world, 1, "large", "7", &json!({}));
    for (anew, kept) in world.both_ways(&["c", "d"]) {
        assert_eq!(kept.new_claims.len(), 1);
        assert_eq!(
            (&kept.new_claims, &kept.placements, kept.pending()),
            (&anew.new_claims, &anew.placements, anew.pending())
        );
    }
}

#[test] // lifecycle 20, step 3, with many pods that wait
fn pods_that_wait_for_several_new_nodes_forbid_every_move() {
    let mut world = four_nodes();
    waiting(&mut world, 65, "large", "7", &json!({}));
    for (anew, kept) in world.both_ways(&["a", "d"]) {
        assert_eq!((anew.new_claims.len(), kept.new_claims.len()), (65, 65));
        assert_eq!((anew.objection(), kept.objection()), (None, None));
    }
    let outcome = world.pass();
    assert_eq!(outcome.method, None);
    let told: Vec<&str> = outcome.notices.iter().map(|it| it.message.as_str()).collect();
    assert!(told.contains(&"Can't remove without creating 65 candidates"), "{told:?}");
}

#[test] // lifecycle 18.1, case 8, with many pods that wait
fn a_candidate_that_is_going_is_told_at_once() {
    let mut world = four_nodes();
    waiting(&mut world, 65, "large", "7", &json!({}));
    let going =
        big("e").claim_is(json!({"metadata": {"deletionTimestamp": "2026-03-04T09:59:00Z"}}));
    let going = going.build();
    world.add(going.node.expect("a node"));
    world.add(going.claim.expect("a claim"));
    let view = world.view();
    let at = view.nodes.iter().position(|it| it.name() == "e").expect("the node");
    let options = Options::from_settings(&world.settings);
    let settled = SettledCell::new();
    let mut scheduler =
        Scheduler::new(&view, &world.cluster, &world.pools, &options, Vec::new(), &|| true)
            .settling(&settled);
    let answer = scheduler.simulate(&[at], Purpose::Consolidation);
    assert_eq!(answer, Err(SimulationError::CandidateDeleting));
}
