use serde_json::{Value, json};
use spokeshave_lambda::SqsRecord;
use spokeshave_model::{EC2NodeClass, core::Node};
use spokeshave_ports::{
    Record, StateKey,
    fake::{Fake, block_on},
};

use super::*;

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

/// A Ready pool and class, and a catalog of two types.
fn world() -> Fake {
    let fake = Fake::at(now());
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": null, "reason": "Ready", "message": ""}]);
    fake.add_json::<EC2NodeClass>(json!({"metadata": {"name": "default"}, "spec": {},
        "status": {"conditions": ready}}));
    fake.add_json::<NodePool>(json!({"metadata": {"name": "default", "uid": "pool-uid"},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef":
            {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}},
        "status": {"conditions": ready}}));
    let offering = |price: f64| json!([{"capacityType": "on-demand", "zone": "a", "zoneId": "1", "price": price}]);
    let types = json!({"instanceTypes": [
        {"name": "m.small", "labels": {"kubernetes.io/arch": ["amd64"]},
         "capacity": {"cpu": "2", "memory": "4Gi", "pods": "10"}, "offerings": offering(0.1)},
        {"name": "m.large", "labels": {"kubernetes.io/arch": ["amd64"]},
         "capacity": {"cpu": "8", "memory": "16Gi", "pods": "30"}, "offerings": offering(0.4)}]});
    record(&fake, StateKey::new("catalog", "fixed"), types);
    fake
}

fn record(fake: &Fake, key: StateKey, data: Value) {
    fake.records.borrow_mut().insert(key, Record { version: 1, data, expires_at: None });
}

fn pending(name: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Pending", "conditions":
            [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}})
}

fn provision(fake: &Fake, work: &Work) -> BatchAnswer {
    provision_with(fake, work, &Settings::default())
}

fn provision_with(fake: &Fake, work: &Work, settings: &Settings) -> BatchAnswer {
    let body = serde_json::to_string(work).expect("plain data");
    let batch = SqsBatch {
        records: vec![SqsRecord { message_id: "m1".into(), body, ..SqsRecord::default() }],
    };
    let now = fake.now.get();
    let cx =
        Invocation { concern: Concern::Provision, now, deadline: now, settings, journal: fake };
    block_on(handle(&batch, fake, fake, fake, &cx))
}

fn pods_pending() -> Work {
    Work::new("PodsPending", Vec::new())
}

fn claims(fake: &Fake) -> Vec<NodeClaim> {
    let objects = fake.objects.borrow();
    objects
        .iter()
        .filter(|(key, _)| key.starts_with("NodeClaim/"))
        .filter_map(|(_, value)| spokeshave_model::meta::from_value(value.clone()).ok())
        .collect()
}

fn decisions(fake: &Fake, action: &str) -> Vec<(String, String)> {
    let all = fake.decisions.borrow();
    let those = all.iter().filter(|it| it.action == action);
    those.map(|it| (it.object.clone(), it.reason.clone())).collect()
}

#[test]
fn a_pending_pod_gets_a_claim_and_launch_hears_of_it() {
    let fake = world();
    fake.add_json::<Pod>(pending("p", "1"));
    assert_eq!(provision(&fake, &pods_pending()), BatchAnswer::done());
    let claims = claims(&fake);
    let [claim] = claims.as_slice() else { panic!("{} claims", claims.len()) };
    assert!(claim.metadata.name.starts_with("default-") && claim.metadata.name.len() == 13);
    assert_eq!(claim.metadata.owner_references[0].uid, "pool-uid".into());
    assert_eq!(claim.spec.resources.requests.get("cpu").to_string(), "1");
    let sent = fake.sent.borrow();
    let launches: Vec<_> = sent.iter().filter(|it| it.0 == Concern::Launch).collect();
    assert_eq!(launches.len(), 1);
    assert_eq!(launches[0].1.reason, "NodeClaimsCreated");
    assert_eq!(launches[0].1.keys[0].name, claim.metadata.name);
    assert_eq!(
        fake.samples("karpenter_nodeclaims_created_total"),
        [
            "karpenter_nodeclaims_created_total{reason=provisioned,nodepool=default,min_values_relaxed=false} 1"
        ]
    );
}

#[test] // The message comes twice, or the run was killed after it created the claim.
fn a_second_run_orders_nothing_more() {
    let fake = world();
    fake.add_json::<Pod>(pending("p", "1"));
    provision(&fake, &pods_pending());
    fake.records.borrow_mut().retain(|key, _| key.sort != "last-run");
    provision(&fake, &pods_pending());
    assert_eq!(claims(&fake).len(), 1);
    assert_eq!(decisions(&fake, "nominate").len(), 1);
}

#[test] // A list that lags behind must not lead to a second order.
fn nothing_is_created_before_the_last_orders_are_seen() {
    let fake = world();
    fake.add_json::<Pod>(pending("p", "1"));
    provision(&fake, &pods_pending());
    let hidden: Vec<String> = {
        let mut objects = fake.objects.borrow_mut();
        let names: Vec<String> =
            objects.keys().filter(|it| it.starts_with("NodeClaim/")).cloned().collect();
        for name in &names {
            objects.remove(name);
        }
        names
    };
    provision(&fake, &pods_pending());
    assert!(claims(&fake).is_empty());
    // The bridge has seen it go: it was refused capacity. Now there is need again.
    let name = hidden[0].trim_start_matches("NodeClaim/").to_owned();
    let key = Key { kind: "NodeClaim".into(), name, ..Key::default() };
    provision(&fake, &Work::new("NodeClaimGone", vec![key]));
    assert_eq!(claims(&fake).len(), 1);
}

#[test] // scheduling 17, case 1
fn a_pod_on_an_existing_node_nominates_it() {
    let fake = world();
    fake.add_json::<NodeClaim>(json!({"metadata": {"name": "c1", "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                 "requirements": []},
        "status": {"providerID": "aws:///a/i-1"}}));
    fake.add_json::<Node>(
        json!({"metadata": {"name": "n1", "labels": {"karpenter.sh/nodepool": "default",
            "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
            "node.kubernetes.io/instance-type": "m.small"}},
        "spec": {"providerID": "aws:///a/i-1"},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"},
                   "capacity": {"cpu": "2", "memory": "4Gi", "pods": "10"}}}),
    );
    fake.add_json::<Pod>(pending("p", "1"));
    provision(&fake, &pods_pending());
    let events = fake.events.borrow();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].message, "Pod should schedule on: nodeclaim/c1, node/n1");
    let records = fake.records.borrow();
    let nomination = &records[&StateKey::new("nomination", "n1")];
    assert_eq!(nomination.data["until"], json!("2026-03-01T12:00:20Z"));
    assert_eq!(claims(&fake).len(), 1);
}

#[test] // scheduling 9, case 4, and 24, case 1
fn refused_and_hopeless_pods_are_told_apart() {
    let fake = world();
    let mut refused = pending("refused", "1");
    refused["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n1"});
    fake.add_json::<Pod>(refused);
    fake.add_json::<Pod>(pending("huge", "100"));
    fake.add_json::<Pod>(pending("fine", "1"));
    provision(&fake, &pods_pending());
    assert_eq!(
        decisions(&fake, "ignore"),
        [(
            "Pod/default/refused".into(),
            "ignoring pod, label kubernetes.io/hostname is restricted".into()
        )]
    );
    let hopeless = decisions(&fake, "unschedulable");
    assert_eq!(hopeless.len(), 1);
    assert!(hopeless[0].1.starts_with("no instance type has enough resources, requirements="));
    assert_eq!(claims(&fake).len(), 1);
    assert_eq!(
        fake.samples("karpenter_scheduler_ignored_pods_count"),
        ["karpenter_scheduler_ignored_pods_count{} 1"]
    );
    assert_eq!(
        fake.samples("karpenter_scheduler_unschedulable_pods_count"),
        ["karpenter_scheduler_unschedulable_pods_count{controller=provisioner} 1"]
    );
}

#[test]
fn a_run_that_cannot_read_comes_again_by_itself() {
    let fake = world();
    fake.add_json::<Pod>(pending("p", "1"));
    fake.fail("list Pod", "Unavailable");
    let answer = provision(&fake, &pods_pending());
    assert_eq!(answer, BatchAnswer::done());
    let sent = fake.sent.borrow();
    assert_eq!(
        (sent[0].0, sent[0].1.reason.as_str(), sent[0].1.depth),
        (Concern::Provision, RETRY, 1)
    );
}

#[test]
fn while_another_autoscaler_is_at_work_nothing_is_done() {
    let fake = world();
    fake.add_json::<Pod>(pending("p", "1"));
    record(&fake, spokeshave_ports::stack::observe_only_key(), json!({}));
    provision(&fake, &pods_pending());
    assert!(claims(&fake).is_empty() && fake.calls.borrow().is_empty());
}
