//! What holds of every plan, tried on made-up clusters. The same seeds make the same clusters on every run.

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::*;
use serde_json::{Value, json};
use spokeshave_model::{
    Requirements, Resources,
    core::{Node, Pod},
    labels, taints,
};
use spokeshave_scheduling::{ClusterView, Object, PoolInput, Solution, requests::pod_requests};

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((it ^ (it >> 31)) % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at + 1));
        }
    }
}

const TAINT: &str = "example.com/team";

/// Nodes, running pods, and pods to place.
struct Made {
    nodes: Vec<Node>,
    running: Vec<Pod>,
    pending: Vec<Pod>,
}

fn requests(dice: &mut Dice) -> [(&'static str, &'static str); 2] {
    let cpu = dice.pick(&["100m", "250m", "700m", "1300m", "3"]);
    [("cpu", cpu), ("memory", dice.pick(&["64Mi", "256Mi", "1Gi"]))]
}

/// The constraint of each application: what kube-scheduler would check, one kind each.
fn constraint(app: usize) -> Value {
    let name = format!("app-{app}");
    match app {
        0 => spreads(vec![spread(&name, labels::ZONE, json!({}))]),
        1 => affine("podAntiAffinity", &name, labels::HOSTNAME),
        2 => spreads(vec![spread(&name, labels::HOSTNAME, json!({"maxSkew": 2}))]),
        _ => json!({}),
    }
}

fn some_pod(dice: &mut Dice, name: &str) -> Pod {
    let app = dice.below(5);
    let mut fields =
        over(json!({"metadata": {"labels": {"app": format!("app-{app}")}}}), constraint(app));
    if dice.below(4) == 0 && app > 0 {
        fields = over(fields, json!({"spec": {"nodeSelector": {labels::ZONE: dice.pick(&ZONES)}}}));
    }
    if dice.below(4) == 0 {
        let toleration = json!([{"key": TAINT, "operator": "Exists"}]);
        fields = over(fields, json!({"spec": {"tolerations": toleration}}));
    }
    let mut pod = pod(name, &requests(dice), fields);
    if dice.below(6) == 0 {
        let port = dice.pick(&[8080, 9090]);
        pod.spec.containers[0].ports = spokeshave_model::meta::from_value::<Pod>(json!({
            "metadata": {"name": "x"}, "spec": {"containers": [{"name": "c",
                "ports": [{"containerPort": port, "hostPort": port, "protocol": "TCP"}]}]}}))
        .expect("a pod")
        .spec
        .containers[0]
            .ports
            .clone();
    }
    pod
}

fn made(seed: u64) -> Made {
    let mut dice = Dice(seed);
    let nodes: Vec<Node> = (0..dice.below(6))
        .map(|at| {
            let tainted = dice.below(4) == 0;
            let taints =
                if tainted { json!([{"key": TAINT, "effect": "NoSchedule"}]) } else { json!([]) };
            node(
                &format!("node-{at}"),
                json!({"metadata": {"labels": {labels::ZONE: dice.pick(&ZONES), labels::ARCH: "amd64",
                           labels::OS: "linux"}},
                       "spec": {"taints": taints},
                       "status": {"allocatable": {"cpu": dice.pick(&["1", "4", "6"]), "memory": "4Gi", "pods": "8"}}}),
            )
        })
        .collect();
    let mut running = Vec::new();
    for node in &nodes {
        for at in 0..dice.below(3) {
            // Applications without constraints: what runs has passed kube-scheduler.
            let name = format!("running-{}-{at}", node.metadata.name);
            let fields = json!({"metadata": {"labels": {"app": "app-4"}},
                "spec": {"nodeName": node.metadata.name, "tolerations": [{"operator": "Exists"}]},
                "status": {"phase": "Running"}});
            running.push(pod(&name, &[("cpu", "300m"), ("memory", "128Mi")], fields));
        }
    }
    let pending =
        (0..5 + dice.below(30)).map(|at| some_pod(&mut dice, &format!("pod-{at:02}"))).collect();
    Made { nodes, running, pending }
}

fn pools(seed: u64) -> Vec<PoolInput> {
    let mut dice = Dice(seed ^ 0xabcd);
    let mut pools = vec![input(pool("default", json!({})), &catalogue_d())];
    if dice.below(2) == 0 {
        let fields = json!({"spec": {"weight": 10, "limits": {"cpu": "12"}, "template": {"spec": {
            "taints": [{"key": TAINT, "effect": "NoSchedule"}]}}}});
        pools.push(input(pool("team", fields), &catalogue_f(8)));
    }
    pools
}

fn objects(made: &Made) -> Vec<Object> {
    let nodes = made.nodes.iter().map(|it| Arc::new(it.clone()).into());
    nodes.chain(made.running.iter().map(|it| Arc::new(it.clone()).into())).collect()
}

/// All that a plan says, as text.
fn told(solution: &Solution) -> String {
    let mut text = String::new();
    for it in &solution.new_claims {
        let mut from = 0;
        let claim = it.to_node_claim(|least, _| {
            from += 1;
            least + from
        });
        let claim = serde_json::to_string(&claim).expect("JSON");
        let pods = names(&it.pods);
        text.push_str(&format!("{claim} {:?} {pods:?} {:?}\n", it.requests, it.cheapest));
    }
    for it in &solution.existing {
        text.push_str(&format!("{} {:?}\n", it.name, names(&it.pods)));
    }
    text.push_str(&format!("{:?} {:?}", solution.unschedulable, solution.deferred));
    text
}

#[test]
fn the_order_of_the_input_does_not_matter() {
    for seed in 0..120 {
        let made = made(seed);
        let mut pools = pools(seed);
        let straight = told(&plan(&view(objects(&made)), &pools, made.pending.clone()));
        let mut dice = Dice(seed + 1);
        for _ in 0..2 {
            let (mut objects, mut pending) = (objects(&made), made.pending.clone());
            dice.shuffle(&mut objects);
            dice.shuffle(&mut pending);
            dice.shuffle(&mut pools);
            let shuffled = told(&plan(&view(objects), &pools, pending));
            assert_eq!(straight, shuffled, "seed {seed}");
        }
    }
}

#[test]
fn a_view_that_follows_lists_is_the_view_of_the_last_list() {
    let mut followed = ClusterView::default();
    let mut made_before: Option<Made> = None;
    for seed in 0..60 {
        // The next cluster shares some nodes and pods with the one before, by name at least.
        let made = made(seed);
        let (mut nodes, mut pods) = (Vec::new(), Vec::new());
        if let Some(before) = &made_before {
            let kept =
                |it: &&Node| !made.nodes.iter().any(|new| new.metadata.name == it.metadata.name);
            nodes.extend(before.nodes.iter().filter(kept).cloned().map(Arc::new));
        }
        nodes.extend(made.nodes.iter().cloned().map(Arc::new));
        pods.extend(made.running.iter().chain(&made.pending).cloned().map(Arc::new));
        // A pod that was pending runs now.
        if let (Some(pod), Some(node)) = (pods.last_mut(), nodes.first()) {
            Arc::make_mut(pod).spec.node_name.clone_from(&node.metadata.name);
        }
        followed.follow(&nodes);
        followed.follow(&pods);
        assert_eq!(followed.follow(&nodes) + followed.follow(&pods), 0, "nothing has changed");
        let objects = nodes.iter().cloned().map(Object::from);
        let fresh = view(objects.chain(pods.iter().cloned().map(Object::from)));
        let batch = || (0..12).map(|at| some_pod(&mut Dice(seed + at), &format!("new-{at:02}")));
        let told_by = |view: &ClusterView| told(&plan(view, &pools(seed), batch()));
        assert_eq!(told_by(&followed), told_by(&fresh), "seed {seed}");
        for node in &nodes {
            let sums = |view: &ClusterView| {
                view.pods_on(&node.metadata.name).map(|it| (it.requests.clone(), it.pods.len()))
            };
            let none = |it: &(Resources, usize)| it.1 > 0;
            assert_eq!(sums(&followed).filter(none), sums(&fresh).filter(none), "seed {seed}");
        }
        made_before = Some(made);
    }
}

/// A node with everything that will be on it.
struct Host {
    name: String,
    labels: BTreeMap<String, String>,
    taints: Vec<spokeshave_model::Taint>,
    allocatable: Resources,
    pods: Vec<Pod>,
}

/// The cluster once the plan is carried out: claims launched as the cheapest they can be.
fn carried_out(made: &Made, solution: &Solution) -> Vec<Host> {
    let mut hosts: Vec<Host> = made
        .nodes
        .iter()
        .map(|it| Host {
            name: it.metadata.name.clone(),
            labels: it.metadata.labels.clone(),
            taints: it.spec.taints.clone(),
            allocatable: it.status.allocatable.clone(),
            pods: made
                .running
                .iter()
                .filter(|pod| pod.spec.node_name == it.metadata.name)
                .cloned()
                .collect(),
        })
        .collect();
    for it in &solution.existing {
        let host = hosts.iter_mut().find(|host| host.name == it.node).expect("the node");
        host.pods.extend(it.pods.iter().map(|it| (**it).clone()));
    }
    for (at, it) in solution.new_claims.iter().enumerate() {
        let (type_, cheapest) =
            (&it.instance_types[0], it.cheapest.as_ref().expect("something to buy"));
        let mut labels = it.claim_labels(|from, _| from);
        labels.insert(labels::ZONE.into(), cheapest.zone.clone());
        labels.insert(labels::CAPACITY_TYPE.into(), cheapest.capacity_type.to_string());
        hosts.push(Host {
            name: format!("new-{at}"),
            labels,
            taints: it.nodepool.spec.template.spec.taints.clone().into_inner(),
            allocatable: type_.allocatable(),
            pods: it.pods.iter().map(|it| (**it).clone()).collect(),
        });
    }
    hosts
}

/// What kube-scheduler would hold against the cluster as it is then; written without the planner's own means.
fn objections(hosts: &[Host]) -> Vec<String> {
    let mut wrong = Vec::new();
    for host in hosts {
        let mut total = Resources::new();
        let mut ports = BTreeSet::new();
        let own = Requirements::from_labels(&host.labels);
        for pod in &host.pods {
            let name = &pod.metadata.name;
            total.add(&pod_requests(pod));
            let wanted = &pod.spec.node_selector;
            if own.compatible(&Requirements::from_labels(wanted), |_| false).is_err() {
                wrong.push(format!("{name}: node selector on {}", host.name));
            }
            if let Some(taint) = taints::untolerated(&host.taints, &pod.spec.tolerations) {
                wrong.push(format!("{name}: taint {taint} on {}", host.name));
            }
            for port in pod.spec.containers.iter().flat_map(|it| &it.ports) {
                if !ports.insert(port.host_port) {
                    wrong.push(format!("{name}: port {} on {}", port.host_port, host.name));
                }
            }
        }
        if total.iter().any(|(name, amount)| amount > host.allocatable.get(name)) {
            wrong.push(format!("{}: {total:?} on {:?}", host.name, host.allocatable));
        }
        let on_host =
            |app: &str| host.pods.iter().filter(|it| it.metadata.label("app") == Some(app)).count();
        if on_host("app-1") > 1 {
            wrong.push(format!("{}: pods that keep apart", host.name));
        }
        if on_host("app-2") > 2 {
            wrong.push(format!("{}: skew between hosts", host.name));
        }
    }
    let mut zones: BTreeMap<&str, usize> = ZONES.iter().map(|it| (*it, 0)).collect();
    for host in hosts {
        let n = host.pods.iter().filter(|it| it.metadata.label("app") == Some("app-0")).count();
        *zones.entry(host.labels.get(labels::ZONE).map_or("", String::as_str)).or_default() += n;
    }
    let skew =
        zones.values().max().copied().unwrap_or(0) - zones.values().min().copied().unwrap_or(0);
    if skew > 1 {
        wrong.push(format!("skew between zones: {zones:?}"));
    }
    wrong
}

#[test]
fn no_pod_is_planned_where_kube_scheduler_would_refuse_it() {
    let mut placed = 0;
    for seed in 0..300 {
        let made = made(seed);
        let solution = plan(&view(objects(&made)), &pools(seed), made.pending.clone());
        let hosts = carried_out(&made, &solution);
        assert_eq!(objections(&hosts), Vec::<String>::new(), "seed {seed}");
        let there: usize = hosts.iter().map(|it| it.pods.len()).sum();
        assert_eq!(
            there + solution.unschedulable.len(),
            made.running.len() + made.pending.len(),
            "every pod is somewhere, seed {seed}"
        );
        placed += there;
    }
    // The clusters are worth the checking.
    assert!(placed > 3000, "{placed}");
}

#[test]
fn a_plan_that_was_carried_out_leaves_nothing_to_place() {
    for seed in 0..150 {
        let made = made(seed);
        let mut world = World::new(pools(seed));
        objects(&made).into_iter().for_each(|it| world.add(it));
        let first = world.run(made.pending.clone());
        let left = |it: &&Pod| first.unschedulable.keys().any(|key| key.name == it.metadata.name);
        let rest: Vec<Pod> = made.pending.iter().filter(left).cloned().collect();
        let second = plan(&world.view, &world.pools, rest.clone());
        assert!(second.new_claims.is_empty(), "seed {seed}: {:?}", told(&second));
        assert_eq!(second.unschedulable.len(), rest.len(), "seed {seed}");
    }
}

#[test]
fn nodes_that_were_ordered_hold_the_pods_that_they_were_ordered_for() {
    // Nothing is bound yet, and the nodes have just come: no second one is planned for pods alike.
    for n in [1, 7, 30] {
        let pods = replicas("web", 0, n, &[("cpu", "700m"), ("memory", "256Mi")], &json!({}));
        let mut world = World::new(vec![input(pool("default", json!({})), &catalogue_d())]);
        let first = world.run(pods.clone());
        assert!(first.unschedulable.is_empty());
        let mut unbound = ClusterView::default();
        for node in world.view.nodes.values() {
            unbound.apply(spokeshave_scheduling::Change::Put(Arc::clone(node).into()));
        }
        let second = plan(&unbound, &world.pools, pods);
        assert!(second.new_claims.is_empty() && second.unschedulable.is_empty(), "{n}");
        assert_eq!(second.existing.len(), first.new_claims.len(), "{n}");
    }
}

/// Types of one price per cpu, as families of one vendor are sold.
fn family(sizes: &[i64]) -> Catalogue {
    catalogue(sizes.iter().map(|cpu| {
        let mut made = Fake::new(&format!("type-{cpu}"), *cpu, 4 * cpu).pods(100).build();
        made.overhead = spokeshave_model::instance_type::Overhead::default();
        for offering in &mut made.offerings {
            offering.price = Some(*cpu as f64 * 0.05);
        }
        made
    }))
}

#[test]
fn one_more_type_makes_no_single_pod_dearer() {
    let all = [1, 2, 4, 8, 16];
    for cpu in ["200m", "900m", "1500m", "3", "7500m"] {
        for extra in all {
            let before: Vec<i64> = all.into_iter().filter(|it| *it != extra).collect();
            let price = |sizes: &[i64]| {
                let pods = [pod("a", &[("cpu", cpu)], json!({}))];
                let solution = plan_new(json!({}), &family(sizes), pods);
                if solution.unschedulable.is_empty() { solution.price() } else { f64::INFINITY }
            };
            assert!(price(&all) <= price(&before), "{cpu} with {extra}");
        }
    }
}

#[test]
fn one_more_type_makes_replicas_that_fill_types_no_dearer() {
    // Where a node of any size is filled to the brim, price per cpu alone counts.
    for n in [1, 2, 4, 8, 16, 32] {
        let price = |sizes: &[i64]| {
            let pods = replicas("web", 0, n, &[("cpu", "1")], &json!({}));
            plan_new(json!({}), &family(sizes), pods).price()
        };
        let mut sizes = vec![1];
        let mut last = price(&sizes);
        for size in [2, 4, 8, 16] {
            sizes.push(size);
            let next = price(&sizes);
            assert!(next <= last + 1e-9, "{n} pods, up to {size}: {next} > {last}");
            last = next;
        }
    }
}

/// The exception, and why it is one: pods join a claim of the pass as long as any type holds them (`spec` scheduling 12.2),
/// whatever that type costs. A type that costs more per cpu than smaller ones draws pods together that were cheaper apart.
/// Consolidation takes such nodes apart again.
#[test]
fn a_type_that_is_dearer_per_cpu_may_draw_pods_together() {
    let pods = || replicas("web", 0, 2, &[("cpu", "1")], &json!({}));
    let small = family(&[1]);
    assert_eq!(plan_new(json!({}), &small, pods()).price(), 0.1);
    let mut large = (*family(&[2])[0]).clone();
    large.offerings.iter_mut().for_each(|it| it.price = Some(3.0));
    let both = catalogue([(*small[0]).clone(), large]);
    assert_eq!(plan_new(json!({}), &both, pods()).price(), 3.0);
}
