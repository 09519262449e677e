use serde_json::{Value, json};
use spokeshave_lambda::SqsRecord;
use spokeshave_model::{EC2NodeClass, core::Node};
use spokeshave_ports::{
    Record, StateKey,
    fake::{Fake, block_on},
    wakes::RETRY,
};

use super::*;

mod pods;
mod reserved;

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
    block_on(handle(&batch, fake, fake, fake, fake, &cx))
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

#[test] // scheduling 24, case 5
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

#[test] // scheduling 17, cases 1 and 2
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
    let until = || fake.records.borrow()[&StateKey::new("nomination", "n1")].data["until"].clone();
    provision(&fake, &pods_pending());
    assert_eq!(fake.events.borrow().len(), 1);
    assert_eq!(fake.events.borrow()[0].message, "Pod should schedule on: nodeclaim/c1, node/n1");
    assert_eq!(until(), json!("2026-03-01T12:00:20Z"));
    assert_eq!(claims(&fake).len(), 1);
    // Again a minute later: the same event, which the publisher drops within two minutes, and a longer nomination.
    fake.now.set(now() + SignedDuration::from_secs(60));
    provision(&fake, &pods_pending());
    assert!(fake.events.borrow().iter().all(|it| *it == fake.events.borrow()[0]));
    assert_eq!(until(), json!("2026-03-01T12:01:20Z"));
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

#[test] // scheduling 9: what has no place is asked for again and again, as Karpenter's pods come again
fn a_pod_without_a_place_is_looked_at_again() {
    let fake = world();
    fake.add_json::<Pod>(pending("huge", "100"));
    provision(&fake, &pods_pending());
    let wakes: Vec<(String, i64)> = fake
        .sent
        .borrow()
        .iter()
        .filter(|it| it.0 == Concern::Provision)
        .map(|it| (it.1.keys[0].name.clone(), it.2.as_secs()))
        .collect();
    assert_eq!(wakes, [("Unplaced".into(), 300)]);
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

/// Settings with these gates on.
fn gates(text: &str) -> Settings {
    let mut settings = Settings::default();
    settings.set("FEATURE_GATES", text).expect("valid gates");
    settings
}

fn static_pool(fake: &Fake, replicas: i64, limit: Option<i64>) {
    let limits = limit.map(|it| json!({"nodes": it.to_string()}));
    fake.add_json::<NodePool>(json!({"metadata": {"name": "fixed", "uid": "fixed-uid"},
        "spec": {"replicas": replicas, "limits": limits, "template": {"spec": {"requirements": [], "nodeClassRef":
            {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null,
            "reason": "Ready", "message": ""}]}}));
}

fn fixed_claim(fake: &Fake, name: &str, launched: bool, deleting: bool) {
    let id = if launched { format!("aws:///a/{name}") } else { String::new() };
    let mut claim = json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "finalizers": ["karpenter.sh/termination"],
            "labels": {"karpenter.sh/nodepool": "fixed"}},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                 "requirements": []}, "status": {"providerID": id}});
    if deleting {
        claim["metadata"]["deletionTimestamp"] = json!("2026-03-01T11:59:00Z");
    }
    fake.add_json::<NodeClaim>(claim);
    if launched {
        fake.add_json::<Node>(json!({"metadata": {"name": format!("node-{name}"), "labels": {"karpenter.sh/nodepool": "fixed",
                "karpenter.sh/registered": "true", "node.kubernetes.io/instance-type": "m.small"}},
            "spec": {"providerID": id}}));
    }
}

#[test] // scheduling 22, cases 1, 2, 4 and 6; lifecycle 31.1, cases 1 to 4
fn static_pools_keep_their_size() {
    let run = |replicas, limit, claims_there: &[(&str, bool, bool)]| {
        let fake = world();
        static_pool(&fake, replicas, limit);
        for (name, launched, deleting) in claims_there {
            fixed_claim(&fake, name, *launched, *deleting);
        }
        provision_with(
            &fake,
            &Work::new("NodePoolReady", Vec::new()),
            &gates("StaticCapacity=true"),
        );
        let created = decisions(&fake, "create").len();
        let deleted: Vec<String> = decisions(&fake, "delete").into_iter().map(|it| it.0).collect();
        (created, deleted)
    };
    assert_eq!(run(3, None, &[]), (3, vec![]));
    assert_eq!(
        run(3, None, &[("a", true, false), ("b", true, false), ("c", true, true)]),
        (1, vec![])
    );
    assert_eq!(
        run(3, Some(3), &[("a", true, false), ("b", true, false), ("c", true, true)]),
        (0, vec![])
    );
    assert_eq!(run(5, Some(4), &[]), (4, vec![]));
    let busy = [("a-busy", true, false), ("b-unlaunched", false, false), ("c", true, false)];
    assert_eq!(run(2, None, &busy).1, ["NodeClaim/b-unlaunched"]);
    assert_eq!(run(0, None, &busy).1.len(), 3);
}

#[test] // scheduling 22, case 3
fn a_node_that_a_command_replaces_is_not_replaced_twice() {
    for (stage, created) in [("Marking", 0), ("Validating", 0)] {
        let fake = world();
        static_pool(&fake, 2, None);
        fixed_claim(&fake, "a", true, false);
        fixed_claim(&fake, "b", true, false);
        let key = StateKey::new("command", "1");
        record(&fake, key, json!({"stage": stage, "nodes": ["node-b"]}));
        let work = Work::new("NodePoolReady", Vec::new());
        provision_with(&fake, &work, &gates("StaticCapacity=true"));
        assert_eq!(decisions(&fake, "create").len(), created, "{stage}");
        assert!(decisions(&fake, "delete").is_empty(), "{stage}");
    }
}

#[test] // lifecycle 31.1, cases 5 to 7
fn static_pools_shrink_where_it_hurts_least() {
    let held = json!({"karpenter.sh/do-not-disrupt": "true"});
    let shrunk = |replicas: i64, ready: bool| {
        let fake = world();
        static_pool(&fake, replicas, None);
        if !ready {
            let mut pool = fake.object::<NodePool>("fixed").expect("there");
            pool.status.conditions.clear();
            fake.add(&pool);
        }
        for kind in ["high", "held", "daemon", "held-daemon", "low"] {
            for n in 0..2 {
                let name = format!("{kind}-{n}");
                fixed_claim(&fake, &name, true, false);
                for p in 0..if kind == "high" { 3 } else { 1 } {
                    let owner = if kind.ends_with("daemon") { "DaemonSet" } else { "ReplicaSet" };
                    fake.add_json::<Pod>(json!({"metadata": {"name": format!("{name}-{p}"), "namespace": "ns",
                            "uid": format!("pod-{name}-{p}"), "annotations": if kind.starts_with("held") { held.clone() } else { json!({}) },
                            "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o"}]},
                        "spec": {"nodeName": format!("node-{name}")}, "status": {"phase": "Running"}}));
                }
            }
        }
        provision_with(
            &fake,
            &Work::new("NodePoolReady", Vec::new()),
            &gates("StaticCapacity=true"),
        );
        let deleted = decisions(&fake, "delete").into_iter();
        let mut kinds: Vec<String> = deleted
            .map(|it| {
                it.0.trim_start_matches("NodeClaim/")
                    .rsplit_once('-')
                    .expect("a number")
                    .0
                    .to_owned()
            })
            .collect();
        kinds.sort();
        kinds
    };
    assert_eq!(shrunk(8, true), ["daemon", "daemon"]);
    assert_eq!(shrunk(6, true), ["daemon", "daemon", "low", "low"]);
    assert_eq!(shrunk(4, true), ["daemon", "daemon", "high", "high", "low", "low"]);
    assert_eq!(shrunk(0, true).len(), 10);
    // A pool that is not Ready makes nothing, but it shrinks.
    assert_eq!(shrunk(8, false), ["daemon", "daemon"]);
    assert_eq!(shrunk(12, false), [] as [&str; 0]);
}

#[test] // api 7: resolved custom keys, on static pools too; what they lack would be drift at once
fn static_claims_carry_the_labels_their_pool_asks_for() {
    let fake = world();
    fake.add_json::<NodePool>(json!({"metadata": {"name": "fixed", "uid": "fixed-uid"},
        "spec": {"replicas": 2, "template": {"spec": {"terminationGracePeriod": "1h", "nodeClassRef":
            {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": [
            {"key": "team", "operator": "In", "values": ["b", "a"]},
            {"key": "shard", "operator": "Gte", "values": ["3"]},
            {"key": "shard", "operator": "Lte", "values": ["4"]}]}}},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null,
            "reason": "Ready", "message": ""}]}}));
    let work = Work::new("NodePoolReady", Vec::new());
    provision_with(&fake, &work, &gates("StaticCapacity=true"));
    let created = claims(&fake);
    assert_eq!(created.len(), 2);
    for claim in created {
        assert_eq!(claim.metadata.label("team"), Some("a"));
        assert!(matches!(claim.metadata.label("shard"), Some("3" | "4")));
        let grace = claim.spec.termination_grace_period.as_ref().map(|it| it.0.as_str());
        assert_eq!(grace, Some("1h0m0s"));
    }
}

#[test] // lifecycle 37.1, case 6; scheduling 22: without the gate nothing is scaled
fn static_pools_need_their_gate() {
    let fake = world();
    static_pool(&fake, 3, None);
    provision(&fake, &pods_pending());
    assert!(claims(&fake).is_empty());
    assert_eq!(decisions(&fake, "skip")[0].0, "NodePool/fixed");
}

#[test] // B-078: a static pool orders every 40 s, and each claim is gone within 1.5 s
fn claims_that_come_and_go_at_once_hold_up_nobody() {
    let settings = gates("StaticCapacity=true");
    let fake = world();
    static_pool(&fake, 1, None);
    let of = |pool: &str| -> Vec<String> {
        let mine = claims(&fake).into_iter().filter(|it| it.nodepool() == Some(pool));
        mine.map(|it| it.metadata.name).collect()
    };
    let vanish = || {
        for name in of("fixed") {
            fake.objects.borrow_mut().remove(&format!("NodeClaim/{name}"));
        }
    };
    let at =
        |start: Timestamp, millis: i64| fake.now.set(start + SignedDuration::from_millis(millis));
    let settles = records::ORDER_SETTLES.as_millis() as i64;
    for round in 0..200_i64 {
        let start = now() + SignedDuration::from_secs(40 * round);
        at(start, 0);
        provision_with(&fake, &Work::new("NodePoolReady", Vec::new()), &settings);
        let ordered = of("fixed");
        assert_eq!(ordered.len(), 1, "round {round}: the pool tries again");
        let lived = 300 + round * 700 % 1300;
        vanish();
        fake.add_json::<Pod>(pending("p", "1"));
        let key = |version: &str| Key {
            kind: "NodeClaim".into(),
            name: ordered[0].clone(),
            resource_version: version.into(),
            ..Key::default()
        };
        // What is heard of the claim: that it is gone; nothing, for the message is lost; or, after it went, that it came.
        let (work, told) = match round % 3 {
            0 => (Work::new("NodeClaimGone", vec![key("")]), true),
            1 => (pods_pending(), false),
            _ => (Work::new("NodeClaimCreated", vec![key("999999")]), false),
        };
        let mut millis = lived;
        at(start, millis);
        provision_with(&fake, &work, &settings);
        vanish();
        while of("default").is_empty() {
            assert!(!told && millis < settles, "round {round}: waits for what is gone");
            millis += CATCH_UP.as_millis() as i64;
            at(start, millis);
            provision_with(&fake, &Work::new("Orders", Vec::new()), &settings);
            vanish();
        }
        assert_eq!(of("default").len(), 1, "round {round}");
        // The pod has run and is gone, and so is its node.
        let used = of("default").into_iter().map(|it| format!("NodeClaim/{it}"));
        for key in used.chain(["Pod/default/p".to_owned()]) {
            assert!(fake.objects.borrow_mut().remove(&key).is_some(), "{key}");
        }
    }
    assert_eq!(decisions(&fake, "retry"), []);
}

#[test] // scheduling 21, cases 7 and 8
fn buffers_keep_room_and_say_so() {
    use spokeshave_model::{CapacityBuffer, core::PodTemplate};
    let fake = world();
    fake.add_json::<PodTemplate>(json!({"metadata": {"name": "t", "namespace": "default"},
        "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}));
    let buffer = |name: &str, template: &str| {
        json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
            "spec": {"podTemplateRef": {"name": template}, "replicas": 2}})
    };
    fake.add_json::<CapacityBuffer>(buffer("there", "t"));
    fake.add_json::<CapacityBuffer>(buffer("lost", "no-such"));
    fake.add_json::<Node>(json!({"metadata": {"name": "n1"}, "spec": {"providerID": "x"},
        "status": {"allocatable": {"cpu": "1500m", "pods": "10"}, "capacity": {"cpu": "1500m", "pods": "10"}}}));
    provision_with(&fake, &pods_pending(), &gates("CapacityBuffer=true"));
    let state = |name: &str| -> Vec<String> {
        let it = fake.object::<CapacityBuffer>(&format!("default/{name}")).expect("there");
        it.status
            .conditions
            .iter()
            .map(|it| format!("{}={:?} {} {}", it.type_, it.status, it.reason, it.message))
            .collect()
    };
    assert_eq!(
        state("there"),
        [
            "ReadyForProvisioning=True Resolved Pod template resolved successfully",
            "Provisioning=False RequiresNewCapacity 1/2 virtual pods required new capacity, 0 failed",
        ]
    );
    assert_eq!(
        state("lost"),
        [
            "ReadyForProvisioning=False PodTemplateNotFound PodTemplate \"no-such\" not found",
            "Provisioning=False NotReadyForProvisioning Buffer is not ReadyForProvisioning",
        ]
    );
    assert_eq!(claims(&fake).len(), 1);
    assert!(fake.events.borrow().is_empty() && decisions(&fake, "nominate").is_empty());
    // Virtual pods keep nobody awake.
    assert!(fake.sent.borrow().iter().all(|it| it.0 == Concern::Launch));
}

#[test] // scheduling 24, case 6
fn an_outstanding_launch_is_measured() {
    let fake = world();
    fake.add_json::<NodeClaim>(json!({"metadata": {"name": "ordered", "labels":
            {"karpenter.sh/nodepool": "default"}, "creationTimestamp": "2026-03-01T11:59:48Z"},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}));
    fake.add_json::<Pod>(pending("p", "1"));
    fake.add_json::<Pod>(pending("q", "1"));
    provision(&fake, &pods_pending());
    for (name, expected) in [
        ("karpenter_cluster_state_synced", "karpenter_cluster_state_synced{} 0"),
        (
            "karpenter_cluster_state_unsynced_time_seconds",
            "karpenter_cluster_state_unsynced_time_seconds{} 12",
        ),
        ("karpenter_cluster_state_node_count", "karpenter_cluster_state_node_count{} 0"),
        (
            "karpenter_scheduler_queue_depth",
            "karpenter_scheduler_queue_depth{controller=provisioner} 2",
        ),
    ] {
        assert_eq!(fake.samples(name), [expected], "{name}");
    }
    assert_eq!(fake.samples("karpenter_scheduler_scheduling_duration_seconds").len(), 2);
}

#[test] // scheduling 20, cases 4 and 5; api 14, cases 4, 5 and 7
fn overlays_say_whether_they_count() {
    use spokeshave_model::NodeOverlay;
    let fake = world();
    let overlay = |name: &str, weight: i32, spec: Value| {
        let mut object = json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "generation": 2,
                "creationTimestamp": "2026-03-01T11:00:00Z"},
            "spec": {"weight": weight, "requirements": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m.small"]}]}});
        for (key, value) in spec.as_object().expect("an object") {
            object["spec"][key] = value.clone();
        }
        object
    };
    fake.add_json::<NodeOverlay>(overlay("a", 1, json!({"price": "5.00"})));
    fake.add_json::<NodeOverlay>(overlay("b", 1, json!({"priceAdjustment": "-10%"})));
    fake.add_json::<NodeOverlay>(overlay("c", 2, json!({"price": "5.00"})));
    fake.add_json::<NodeOverlay>(overlay(
        "d",
        3,
        json!({"capacity": {"vpc.amazonaws.com/efa": "1"}}),
    ));
    let work = Work::new("NodeOverlayChanged", Vec::new());
    let settings = gates("NodeOverlay=true");
    let state = |name: &str| -> Vec<String> {
        let it = fake.object::<NodeOverlay>(name).expect("there");
        let line = |it: &spokeshave_model::Condition| {
            let at = it.last_transition_time.map(|it| it.to_string()).unwrap_or_default();
            let generation = it.observed_generation;
            format!("{}={:?} {} {:?} {at} {generation}", it.type_, it.status, it.reason, it.message)
        };
        it.status.conditions.iter().map(line).collect()
    };
    // Without the gate nothing is said.
    provision_with(&fake, &work, &Settings::default());
    assert!(state("a").is_empty());
    provision_with(&fake, &work, &settings);
    let now = "2026-03-01T12:00:00Z";
    let good = [
        format!("ValidationSucceeded=True ValidationSucceeded \"\" {now} 2"),
        format!("Ready=True Ready \"\" {now} 2"),
    ];
    assert_eq!(state("b"), good);
    assert_eq!(state("c"), good);
    let unready = "Ready=False UnhealthyDependents \"ValidationSucceeded=False\"";
    assert_eq!(
        state("a"),
        [
            format!("ValidationSucceeded=False Conflict \"conflict with another overlay\" {now} 2"),
            format!("{unready} {now} 2"),
        ]
    );
    assert_eq!(
        state("d"),
        [
            format!(
                "ValidationSucceeded=False RuntimeValidation \"invalid capacity: vpc.amazonaws.com/efa in resource, restricted\" {now} 2"
            ),
            format!("{unready} {now} 2"),
        ]
    );
    // Again: nothing changes, and nothing is written.
    let before = decisions(&fake, "set-condition").len();
    fake.now.set("2026-03-01T13:00:00Z".parse().expect("a time"));
    provision_with(&fake, &work, &settings);
    assert_eq!(decisions(&fake, "set-condition").len(), before);
    assert!(state("a")[0].contains(now));
}

/// Notes so many failures in a row of the shape that pods of this world make, the last at `at`.
fn short(fake: &Fake, shape: &str, failures: u32, at: Timestamp) {
    let data = json!({"failures": failures, "at": at});
    record(fake, StateKey::new("shortage", shape), data);
}

#[test]
fn capacity_that_is_short_makes_no_storm_of_claims() {
    let ordered = |failures: Option<u32>, ago: i64, launched: bool| {
        let fake = world();
        fake.add_json::<Pod>(pending("a", "7"));
        provision(&fake, &pods_pending());
        let first = claims(&fake);
        let shape =
            first[0].metadata.annotation(spokeshave_model::labels::SHAPE).map(str::to_owned);
        let shape = shape.expect("every claim has one");
        assert!(shape.starts_with("default/"), "{shape}");
        if !launched {
            fake.objects.borrow_mut().retain(|key, _| !key.starts_with("NodeClaim/"));
        } else {
            let mut claim = first[0].clone();
            claim.status.provider_id = "aws:///a/i-1".into();
            let room = serde_json::from_value(json!({"cpu": "8", "memory": "16Gi", "pods": "30"}));
            claim.status.capacity = room.expect("resources");
            claim.status.allocatable = claim.status.capacity.clone();
            claim.conditions_mut().set_true(NodeClaim::LAUNCHED, now());
            let mut objects = fake.objects.borrow_mut();
            for value in objects.iter_mut().filter(|it| it.0.starts_with("NodeClaim/")) {
                *value.1 = serde_json::to_value(&claim).expect("plain data");
            }
        }
        fake.records.borrow_mut().retain(|key, _| key.partition != "provision");
        if let Some(failures) = failures {
            short(&fake, &shape, failures, now() - SignedDuration::from_secs(ago));
        }
        fake.sent.borrow_mut().clear();
        fake.decisions.borrow_mut().clear();
        for name in ["b", "c"] {
            fake.add_json::<Pod>(pending(name, "7"));
        }
        provision(&fake, &pods_pending());
        let n_new = decisions(&fake, "create").len();
        let waits = decisions(&fake, "defer");
        let left = fake.records.borrow().keys().filter(|it| it.partition == "shortage").count();
        let wakes: Vec<i64> = fake
            .sent
            .borrow()
            .iter()
            .filter(|it| it.1.keys.iter().any(|key| key.name == "Shortage"))
            .map(|it| it.2.as_secs())
            .collect();
        (n_new, waits, left, wakes)
    };
    // None, and one: nothing is held back.
    assert_eq!(ordered(None, 0, false).0, 3);
    assert_eq!(ordered(Some(1), 0, false).0, 3);
    // Within the pause nothing is ordered, and the next look is at its end.
    let (n_new, waits, left, wakes) = ordered(Some(3), 5, false);
    assert_eq!((n_new, waits.len(), left, wakes), (0, 3, 1, vec![15]));
    assert_eq!(
        waits[0],
        (
            "Pod/default/a".to_owned(),
            "capacity is short: the last claims of pool default for such pods got no instance; \
             the next one is made at 2026-03-01T12:00:15Z"
                .to_owned()
        )
    );
    // After it, one at a time.
    let (n_new, waits, left, wakes) = ordered(Some(3), 20, false);
    assert_eq!((n_new, waits.len(), left, wakes), (1, 2, 1, vec![]));
    assert!(waits[0].1.ends_with("; one is tried at a time"), "{}", waits[0].1);
    // A launch since, while the pause lasts: two at a time. After a single failure: over, and forgotten.
    let (n_new, waits, left, _) = ordered(Some(3), 5, true);
    assert_eq!((n_new, waits.len(), left), (2, 0, 1));
    let (n_new, waits, left, _) = ordered(Some(1), 5, true);
    assert_eq!((n_new, waits.len(), left), (2, 0, 0));
}

#[test]
fn a_pause_of_one_pool_leaves_the_others_alone() {
    let fake = world();
    fake.add_json::<Pod>(pending("a", "1"));
    provision(&fake, &pods_pending());
    let first = claims(&fake);
    let shape = first[0].metadata.annotation(spokeshave_model::labels::SHAPE).map(str::to_owned);
    fake.objects.borrow_mut().retain(|key, _| !key.starts_with("NodeClaim/"));
    fake.records.borrow_mut().retain(|key, _| key.partition != "provision");
    short(&fake, &shape.expect("every claim has one"), 5, now());
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": null, "reason": "Ready", "message": ""}]);
    fake.add_json::<NodePool>(json!({"metadata": {"name": "another", "uid": "uid-2"},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef":
            {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}},
        "status": {"conditions": ready}}));
    provision(&fake, &pods_pending());
    let pools: Vec<Option<String>> =
        claims(&fake).iter().map(|it| it.nodepool().map(str::to_owned)).collect();
    assert_eq!(pools, [Some("another".to_owned())]);
}

#[test] // scheduling 10, case 5: ours plans on with what was ordered, and orders nothing twice
fn a_claim_without_an_instance_stalls_nobody() {
    let fake = world();
    fake.add_json::<Pod>(pending("a", "1500m"));
    provision(&fake, &pods_pending());
    let first = claims(&fake);
    assert_eq!(first.len(), 1);
    // It could still become the small type, which this one does not fit.
    fake.add_json::<Pod>(pending("c", "7"));
    provision(&fake, &pods_pending());
    let second: Vec<NodeClaim> =
        claims(&fake).into_iter().filter(|it| it.metadata.name != first[0].metadata.name).collect();
    assert_eq!(second.len(), 1);
    assert_eq!(second[0].spec.resources.requests.get("cpu").to_string(), "7");
}

#[test] // scheduling 1, case 6; 17, case 3
fn nominations_last_two_batches() {
    let window = |max: &str| {
        let mut settings = Settings::default();
        settings.set("BATCH_MAX_DURATION", max).expect("a duration");
        records::nomination_window(&settings).as_secs()
    };
    let expected = [("4s", 10), ("6s", 12), ("3s", 10), ("30s", 60), ("10s", 20)];
    for (max, secs) in expected {
        assert_eq!(window(max), secs, "{max}");
    }
}

/// A pool like the others, changed by `fields`.
fn change_pool(fake: &Fake, fields: impl Fn(&mut NodePool)) {
    let mut pool = fake.object::<NodePool>("default").expect("there");
    fields(&mut pool);
    fake.add(&pool);
}

#[test] // scheduling 15, case 7
fn usage_above_a_limit_stops_creation_and_equality_does_not() {
    let ordered = |cpu: &str| {
        let fake = world();
        change_pool(&fake, |it| {
            let limits = serde_json::from_value(json!({"cpu": "10", "memory": "1000Gi"}));
            it.spec.limits = Some(limits.expect("limits"));
        });
        fake.add_json::<NodeClaim>(json!({"metadata": {"name": "c1", "labels": {"karpenter.sh/nodepool": "default"}},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                     "requirements": []},
            "status": {"providerID": "aws:///a/i-1", "capacity": {"cpu": cpu, "memory": "1Gi", "pods": "10"}}}));
        fake.add_json::<Pod>(pending("p", "1"));
        provision(&fake, &pods_pending());
        (claims(&fake).len() - 1, decisions(&fake, "unschedulable").len())
    };
    // The plan itself decides at 8 and at 10; what is beyond the limit gets nothing.
    assert_eq!(ordered("8"), (1, 0));
    assert_eq!(ordered("10"), (0, 1));
    assert_eq!(ordered("10100m"), (0, 1));
    let exact = carry_out::over_limit;
    let resources = |cpu: &str| serde_json::from_value(json!({"cpu": cpu})).expect("resources");
    assert_eq!(exact(&resources("10"), &resources("10")), None);
    assert_eq!(
        exact(&resources("10100m"), &resources("10")),
        Some("cpu usage of 10100m exceeds limit of 10".to_owned())
    );
}

#[test] // scheduling 24, cases 3 and 4
fn pending_pods_are_counted_by_zone() {
    let fake = world();
    let name = "karpenter_scheduler_pending_pods_by_effective_zone_count";
    let zones = |expected: &[&str]| {
        let of = |it: &&str| format!("{name}{{controller=provisioner,zone={it}}} 1");
        assert_eq!(fake.samples(name), expected.iter().map(of).collect::<Vec<_>>());
    };
    let mut pinned = pending("pinned", "1");
    pinned["spec"]["nodeSelector"] = json!({"topology.kubernetes.io/zone": "a"});
    fake.add_json::<Pod>(pinned);
    // Its volume is in another zone than its selector asks for.
    let mut torn = pending("torn", "1");
    torn["spec"]["nodeSelector"] = json!({"topology.kubernetes.io/zone": "a"});
    torn["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    fake.add_json::<Pod>(torn);
    fake.add_json::<spokeshave_model::core::PersistentVolumeClaim>(json!({
        "metadata": {"name": "c", "namespace": "default",
                     "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}));
    fake.add_json::<spokeshave_model::core::PersistentVolume>(json!({"metadata": {"name": "pv"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions":
            [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}]}]}}}}));
    fake.add_json::<Pod>(pending("free", "1"));
    provision(&fake, &pods_pending());
    zones(&["a", "flexible", "none"]);
    // The next solve says nothing of zones that nobody waits for any more.
    fake.objects.borrow_mut().retain(|key, _| !key.starts_with("Pod/default/pinned"));
    fake.metrics.borrow_mut().clear();
    fake.now.set(now() + SignedDuration::from_secs(10));
    provision(&fake, &pods_pending());
    zones(&["flexible", "none"]);
}

#[test] // scheduling 15, case 6
fn a_pool_that_is_gone_gets_no_claims() {
    let fake = world();
    let settings = Settings::default();
    let now = now();
    let cx = Invocation {
        concern: Concern::Provision,
        now,
        deadline: now,
        settings: &settings,
        journal: &fake,
    };
    let may = |pool: &str| block_on(carry_out::may_create(pool, None, &fake, &cx)).expect("read");
    assert!(may("default"));
    assert!(!may("gone"));
    let gone = ("NodePool/gone".to_owned(), "the pool is gone".to_owned());
    assert_eq!(decisions(&fake, "skip"), [gone]);
}

#[test] // scheduling 23, case 6; 6, case 7
fn pods_with_devices_count_as_unschedulable_and_unbound_claims_as_ignored() {
    let fake = world();
    let mut devices = pending("devices", "1");
    devices["spec"]["resourceClaims"] = json!([{"name": "gpu"}]);
    fake.add_json::<Pod>(devices);
    let mut volume = pending("volume", "1");
    volume["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    fake.add_json::<Pod>(volume);
    fake.add_json::<spokeshave_model::core::PersistentVolumeClaim>(json!({
        "metadata": {"name": "c", "namespace": "default"}, "spec": {"storageClassName": "now"}}));
    fake.add_json::<spokeshave_model::core::StorageClass>(json!({
        "metadata": {"name": "now"}, "provisioner": "ebs.csi.aws.com", "volumeBindingMode": "Immediate"}));
    provision(&fake, &pods_pending());
    assert!(claims(&fake).is_empty());
    assert_eq!(
        fake.event_reasons(),
        ["Pod/default/volume FailedScheduling", "Pod/default/devices FailedScheduling"]
    );
    assert_eq!(
        fake.samples("karpenter_scheduler_ignored_pods_count"),
        ["karpenter_scheduler_ignored_pods_count{} 1"]
    );
    assert_eq!(
        fake.samples("karpenter_scheduler_unschedulable_pods_count"),
        ["karpenter_scheduler_unschedulable_pods_count{controller=provisioner} 1"]
    );
}

#[test] // aws-capacity 23: offering gauges, where they are asked for, and nothing twice
fn offerings_are_measured_where_that_is_asked_for() {
    let price = "karpenter_cloudprovider_instance_type_offering_price_estimate";
    let run = |enabled: bool| {
        let fake = world();
        fake.add_json::<Pod>(pending("a", "1"));
        let settings = Settings { offering_metrics: enabled, ..Settings::default() };
        provision_with(&fake, &Work::new("PodsPending", Vec::new()), &settings);
        fake.samples(price)
    };
    assert_eq!(run(false), [""; 0]);
    let series = |of: &str, kind: &str, value: &str| {
        format!("{price}{{instance_type={of},capacity_type={kind},zone=a}} {value}")
    };
    assert_eq!(
        run(true),
        [
            series("m.large", "reserved", "0"),
            series("m.large", "on-demand", "0.4"),
            series("m.small", "reserved", "0"),
            series("m.small", "on-demand", "0.1"),
        ]
    );
    assert_eq!(run(true), [""; 0], "nothing has changed");
}
