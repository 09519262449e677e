//! Small clusters for this crate's tests.

#![allow(clippy::needless_pass_by_value, reason = "JSON literals read better by value")]

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_model::{
    CapacityType, InstanceType, NodeClaim, NodePool, Offering, Requirement, Requirements,
    Resources, Settings,
    core::{Node, Pod, PodDisruptionBudget},
    labels,
    meta::{apply_merge_patch, from_value},
};
use spokeshave_scheduling::requests::pod_requests;

use crate::{
    candidates::{Collection, Survey},
    cluster::{Pool, StateNode, View},
    command::Method,
    simulation::{NewClaim, Purpose, Simulation, SimulationError, Simulator},
};

/// 2026-03-04 is a Wednesday.
pub fn now() -> Timestamp {
    "2026-03-04T10:00:00Z".parse().expect("a time")
}

/// An offering: capacity type, zone, price, available.
pub fn offering(capacity_type: CapacityType, zone: &str, price: f64, available: bool) -> Offering {
    Offering {
        capacity_type,
        zone: zone.into(),
        price: Some(price),
        available,
        ..Offering::default()
    }
}

/// A type with these offerings; its family is what stands before the dot.
pub fn instance_type(name: &str, offerings: Vec<Offering>) -> Arc<InstanceType> {
    let family = name.split('.').next().unwrap_or(name);
    Arc::new(InstanceType {
        name: name.into(),
        requirements: [
            Requirement::equals(labels::INSTANCE_TYPE, name),
            Requirement::equals(labels::INSTANCE_FAMILY, family),
        ]
        .into_iter()
        .collect(),
        offerings,
        ..InstanceType::default()
    })
}

/// On-demand in zone `a` and nothing else.
pub fn on_demand(name: &str, price: f64) -> Arc<InstanceType> {
    instance_type(name, vec![offering(CapacityType::OnDemand, "a", price, true)])
}

/// Spot in zone `a` and nothing else.
pub fn spot(name: &str, price: f64) -> Arc<InstanceType> {
    instance_type(name, vec![offering(CapacityType::Spot, "a", price, true)])
}

/// A pool that consolidates at once and whose budget is open.
pub fn pool(name: &str, types: &[Arc<InstanceType>], extra: Value) -> Pool {
    let mut value = json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": {
        "template": {"spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": []}},
        "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}}});
    apply_merge_patch(&mut value, &extra);
    let nodepool: NodePool = from_value(value).expect("a pool");
    Pool { nodepool: Arc::new(nodepool), hash: String::new(), instance_types: types.into() }
}

/// A node of pool `pool` that is initialized, Ready and Consolidatable.
pub struct NodeBuilder {
    node: Value,
    claim: Value,
    pods: Vec<Arc<Pod>>,
    nominated_until: Option<Timestamp>,
    holds_buffer: bool,
    in_command: bool,
}

pub fn node(name: &str, pool: &str, instance_type: &str, capacity_type: &str) -> NodeBuilder {
    let labels = json!({
        labels::NODEPOOL: pool,
        labels::INSTANCE_TYPE: instance_type,
        labels::CAPACITY_TYPE: capacity_type,
        labels::ZONE: "a",
        labels::REGISTERED: "true",
        labels::INITIALIZED: "true",
    });
    let id = format!("aws:///a/i-{name}");
    NodeBuilder {
        node: json!({"metadata": {"name": name, "uid": format!("uid-node-{name}"), "labels": labels},
            "spec": {"providerID": id},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        claim: json!({"metadata": {"name": format!("claim-{name}"), "uid": format!("uid-claim-{name}"),
                "creationTimestamp": "2026-03-01T00:00:00Z", "labels": labels},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
            "status": {"providerID": id, "nodeName": name, "conditions": [
                {"type": "Consolidatable", "status": "True", "lastTransitionTime": "2026-03-04T09:00:00Z"}]}}),
        pods: Vec::new(),
        nominated_until: None,
        holds_buffer: false,
        in_command: false,
    }
}

impl NodeBuilder {
    pub fn node_is(mut self, extra: Value) -> Self {
        apply_merge_patch(&mut self.node, &extra);
        self
    }

    pub fn claim_is(mut self, extra: Value) -> Self {
        apply_merge_patch(&mut self.claim, &extra);
        self
    }

    /// A plain pod of a ReplicaSet, changed by `extra`.
    pub fn pod(mut self, name: &str, extra: Value) -> Self {
        let mut value = json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"),
            "labels": {"app": name},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "o"}]},
            "spec": {"nodeName": self.node["metadata"]["name"]},
            "status": {"phase": "Running"}});
        apply_merge_patch(&mut value, &extra);
        self.pods.push(Arc::new(from_value(value).expect("a pod")));
        self
    }

    pub fn plain_pods(mut self, n: usize) -> Self {
        let node = self.node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        for i in 0..n {
            self = self.pod(&format!("{node}-{i}"), json!({}));
        }
        self
    }

    pub fn nominated_until(mut self, at: Timestamp) -> Self {
        self.nominated_until = Some(at);
        self
    }

    pub fn holding_buffer(mut self) -> Self {
        self.holds_buffer = true;
        self
    }

    pub fn in_command(mut self) -> Self {
        self.in_command = true;
        self
    }

    pub fn drifted(self, since: &str) -> Self {
        self.claim_is(json!({"status": {"conditions": [
            {"type": "Consolidatable", "status": "True", "lastTransitionTime": "2026-03-04T09:00:00Z"},
            {"type": "Drifted", "status": "True", "reason": "AMIDrift", "lastTransitionTime": since}]}}))
    }

    pub fn not_consolidatable(self) -> Self {
        self.claim_is(json!({"status": {"conditions": []}}))
    }

    pub fn build(self) -> StateNode {
        let node: Node = from_value(self.node).expect("a node");
        let claim: NodeClaim = from_value(self.claim).expect("a claim");
        let mut requests = Resources::new();
        for pod in self.pods.iter().filter(|it| !it.is_terminal()) {
            requests.add(&pod_requests(pod));
        }
        StateNode {
            requests,
            node: Some(Arc::new(node)),
            claim: Some(Arc::new(claim)),
            pods: self.pods,
            nominated_until: self.nominated_until,
            holds_buffer: self.holds_buffer,
            in_command: self.in_command,
            marked: false,
        }
    }
}

pub fn view(pools: Vec<Pool>, mut nodes: Vec<StateNode>) -> View {
    nodes.sort_by(|a, b| a.name().cmp(b.name()));
    View {
        now: now(),
        settings: Settings::default(),
        nodes,
        pools: pools.into_iter().map(|it| (it.name().to_owned(), it)).collect(),
        pdbs: Vec::new(),
        drift_held: BTreeMap::new(),
        launching: Default::default(),
    }
}

pub fn pdb(name: &str, app: &str, allowed: i32) -> Arc<PodDisruptionBudget> {
    Arc::new(
        from_value(json!({"metadata": {"name": name, "namespace": "ns"},
            "spec": {"selector": {"matchLabels": {"app": app}}, "minAvailable": 1},
            "status": {"disruptionsAllowed": allowed}}))
        .expect("a budget"),
    )
}

/// The candidates of a method.
pub fn collect(view: &View, method: Method) -> Collection {
    Survey::new(view).collect(method)
}

/// Names of the candidates of a method.
pub fn names(view: &View, method: Method) -> Vec<String> {
    collect(view, method).candidates.into_iter().map(|it| it.name).collect()
}

/// Why a node is not a candidate.
pub fn why(view: &View, method: Method, name: &str) -> String {
    collect(view, method)
        .left
        .into_iter()
        .find(|it| view.nodes[it.at].name() == name)
        .map(|it| it.why)
        .unwrap_or_default()
}

/// A claim that the scheduler would make.
pub fn new_claim(pool: &str, types: &[Arc<InstanceType>], capacity_types: &[&str]) -> NewClaim {
    let mut requirements = Requirements::new();
    if !capacity_types.is_empty() {
        requirements.add(Requirement::new(
            labels::CAPACITY_TYPE,
            spokeshave_model::Operator::In,
            capacity_types.iter().copied(),
        ));
    }
    NewClaim {
        pool: pool.into(),
        requirements,
        instance_types: types.into(),
        ..NewClaim::default()
    }
}

type Answer = Result<Simulation, SimulationError>;

/// A scheduler that answers as it is told and notes what it was asked.
pub struct Told<F> {
    pub answer: F,
    /// How many nodes each question took away.
    pub asked: Vec<usize>,
    /// Their positions.
    pub nodes: Vec<Vec<usize>>,
}

impl<F: FnMut(&[usize]) -> Answer> Told<F> {
    pub fn new(answer: F) -> Self {
        Self { answer, asked: Vec::new(), nodes: Vec::new() }
    }
}

impl<F: FnMut(&[usize]) -> Answer> Simulator for Told<F> {
    fn simulate(&mut self, without: &[usize], _purpose: Purpose) -> Answer {
        self.asked.push(without.len());
        self.nodes.push(without.to_vec());
        (self.answer)(without)
    }
}

/// Everything fits elsewhere.
pub fn fits() -> Answer {
    Ok(Simulation::default())
}

/// It does not.
pub fn does_not_fit() -> Answer {
    Ok(Simulation {
        unplaced: vec![crate::simulation::Unplaced {
            pod: "ns/p".into(),
            error: "no room".into(),
            was_pending: false,
        }],
        ..Simulation::default()
    })
}

/// These claims are needed.
pub fn needs(claims: Vec<NewClaim>) -> Answer {
    Ok(Simulation { new_claims: claims, ..Simulation::default() })
}

pub fn minutes(n: i64) -> SignedDuration {
    SignedDuration::from_mins(n)
}

/// No pools remembered.
pub fn none() -> std::collections::BTreeSet<String> {
    BTreeMap::<String, ()>::new().into_keys().collect()
}
