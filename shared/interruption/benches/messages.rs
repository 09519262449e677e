//! Message throughput, with the mix of Karpenter's interruption benchmark (`spec` aws-nodeclass 25) but against claims
//! that exist: a third Health events, a third spot warnings, the rest state changes.
//!
//! `cargo bench -p spokeshave-interruption`. The bar is 20,000 messages a second on one core for 15,000 messages against
//! 1,500 nodes: parsing, finding the claims of each batch of ten among all, and deciding.

use std::collections::BTreeMap;

use divan::{Bencher, counter::ItemsCount};
use jiff::Timestamp;
use serde_json::json;
use spokeshave_interruption::{Message, NodeView, View, decide, parse};
use spokeshave_model::{NodeClaim, core::Node, meta::from_value};

const NODES: usize = 1_500;
/// Messages per invocation, as in the template.
const BATCH: usize = 10;
const STATES: [&str; 4] = ["stopping", "stopped", "shutting-down", "terminated"];

fn main() {
    divan::main();
}

fn instance(n: usize) -> String {
    format!("i-{:017x}", n % NODES)
}

/// The bodies: 100 make 33, 33 and 34; 1,000 make 333, 333 and 334.
fn bodies(messages: usize) -> Vec<String> {
    let third = messages / 3;
    let envelope = |n: usize, source: &str, detail_type: &str, detail: serde_json::Value| {
        json!({"version": "0", "id": format!("id-{n}"), "source": source, "account": "444455556666",
            "region": "us-west-2", "time": "2026-03-02T08:00:00Z", "detail-type": detail_type,
            "resources": [instance(n)], "detail": detail})
        .to_string()
    };
    let body = |n: usize| {
        if n < third {
            let detail = json!({"service": "EC2", "eventTypeCategory": "scheduledChange",
                "statusCode": "upcoming", "startTime": "Mon, 16 Mar 2026 10:00:00 GMT",
                "eventDescription": [{"language": "en_US", "latestDescription": "Maintenance."}],
                "affectedEntities": [{"entityValue": instance(n), "status": "PENDING"}]});
            envelope(n, "aws.health", "AWS Health Event", detail)
        } else if n < 2 * third {
            let detail = json!({"instance-id": instance(n), "instance-action": "terminate"});
            envelope(n, "aws.ec2", "EC2 Spot Instance Interruption Warning", detail)
        } else {
            let detail = json!({"instance-id": instance(n), "state": STATES[n % STATES.len()]});
            envelope(n, "aws.ec2", "EC2 Instance State-change Notification", detail)
        }
    };
    // Kinds come mixed, as they would.
    (0..messages).map(|n| body(n * 7919 % messages)).collect()
}

fn cluster() -> (Vec<NodeClaim>, Vec<NodeView>) {
    let provider_id = |n: usize| format!("aws:///us-west-2a/{}", instance(n));
    let claim = |n: usize| {
        from_value::<NodeClaim>(json!({
            "metadata": {"name": format!("default-{n}"), "uid": format!("uid-{n}"),
                "labels": {"node.kubernetes.io/instance-type": "m5.large",
                    "topology.kubernetes.io/zone": "us-west-2a",
                    "karpenter.sh/capacity-type": "spot", "karpenter.sh/nodepool": "default"}},
            "spec": {"nodeClassRef":
                {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
            "status": {"providerID": provider_id(n), "nodeName": format!("node-{n}")}}))
        .expect("a claim")
    };
    let node = |n: usize| {
        let node = json!({"metadata": {"name": format!("node-{n}"), "uid": format!("n-{n}")},
            "spec": {"providerID": provider_id(n)}});
        NodeView::from(&from_value::<Node>(node).expect("a node"))
    };
    ((0..NODES).map(claim).collect(), (0..NODES).map(node).collect())
}

#[divan::bench(args = [100, 1_000, 5_000, 15_000], sample_count = 10)]
fn parse_and_decide(bencher: Bencher, messages: usize) {
    let bodies = bodies(messages);
    let (claims, nodes) = cluster();
    let nodes: BTreeMap<&str, &NodeView> = nodes.iter().map(|it| (it.name.as_str(), it)).collect();
    let now: Timestamp = "2026-03-02T08:00:02Z".parse().expect("a time");
    bencher.counter(ItemsCount::new(messages)).bench(|| {
        let mut actions = 0;
        for batch in bodies.chunks(BATCH) {
            let batch: Vec<Message> = batch.iter().filter_map(|it| parse(it).ok()).collect();
            let mut view = View::of(&batch, &claims);
            for message in &batch {
                let names = view.claims_of(message).into_iter().map(|it| it.node_name.clone());
                for name in names.collect::<Vec<_>>() {
                    if let Some(node) = nodes.get(name.as_str()) {
                        view.add_node(NodeView::clone(node));
                    }
                }
                actions += decide(message, &view, now).len();
            }
        }
        assert!(actions >= messages);
        actions
    });
}

#[divan::bench(args = [15_000], sample_count = 10)]
fn parse_alone(bencher: Bencher, messages: usize) {
    let bodies = bodies(messages);
    bencher
        .counter(ItemsCount::new(messages))
        .bench(|| bodies.iter().filter(|it| parse(it).is_ok()).count());
}
