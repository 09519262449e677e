//! What is said of single pods: events and metrics.

use super::*;

fn condition(type_: &str, status: &str, at: &str) -> Value {
    let reason = if status == "True" { "" } else { "Unschedulable" };
    json!({"type": type_, "status": status, "reason": reason, "lastTransitionTime": at})
}

#[test] // scheduling 17 and 24: each pod is measured once
fn how_long_pods_took_is_measured_once() {
    let fake = world();
    let mut waits = pending("waits", "100");
    waits["status"]["conditions"] =
        json!([condition("PodScheduled", "False", "2026-03-01T11:59:58Z")]);
    fake.add_json::<Pod>(waits);
    fake.add_json::<Node>(json!({"metadata": {"name": "n1"}, "spec": {"providerID": "x"}}));
    for (name, bound, ready) in [
        ("before", "2026-03-01T11:50:20Z", "2026-03-01T11:50:30Z"),
        ("since", "2026-03-01T11:59:30Z", "2026-03-01T11:59:40Z"),
    ] {
        let mut pod = pending(name, "1");
        pod["metadata"]["creationTimestamp"] = json!("2026-03-01T11:50:00Z");
        pod["spec"]["nodeName"] = json!("n1");
        pod["status"] = json!({"phase": "Running", "conditions":
            [condition("PodScheduled", "True", bound), condition("Ready", "True", ready)]});
        fake.add_json::<Pod>(pod);
    }
    let last_run = json!({"began": "2026-03-01T11:59:00Z"});
    record(&fake, StateKey::new("provision", "last-run"), last_run);
    let measured = |fake: &Fake| {
        let of = |name: &str| fake.samples(&format!("karpenter_pods_{name}_duration_seconds"));
        [of("bound"), of("startup"), of("scheduling_decision")].concat()
    };
    let expected = [
        "karpenter_pods_bound_duration_seconds{} 570",
        "karpenter_pods_startup_duration_seconds{} 580",
        "karpenter_pods_scheduling_decision_duration_seconds{} 2",
    ];
    provision(&fake, &pods_pending());
    assert_eq!(measured(&fake), expected);
    fake.now.set(now() + SignedDuration::from_secs(10));
    provision(&fake, &pods_pending());
    assert_eq!(measured(&fake), expected);
}

/// A node of the pool `default` with so much room, and its claim.
fn add_node(fake: &Fake, name: &str, cpu: &str) {
    let labels = json!({"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true", "node.kubernetes.io/instance-type": "m.large",
        "karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "a", "kubernetes.io/arch": "amd64"});
    let room = json!({"cpu": cpu, "memory": "64Gi", "pods": "110"});
    fake.add_json::<Node>(json!({"metadata": {"name": name, "labels": labels},
        "spec": {"providerID": format!("aws:///a/{name}")}, "status": {"capacity": room, "allocatable": room}}));
    fake.add_json::<NodeClaim>(json!({"metadata": {"name": format!("claim-{name}"), "labels": labels},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
        "status": {"providerID": format!("aws:///a/{name}"), "nodeName": name}}));
}

#[test] // scheduling 17, case 4
fn at_most_ten_pods_are_told_at_once_where_they_go() {
    let fake = world();
    add_node(&fake, "n1", "6");
    for n in 0..30 {
        fake.add_json::<Pod>(pending(&format!("p{n:02}"), "1"));
    }
    provision(&fake, &pods_pending());
    assert!(claims(&fake).len() > 1, "the node has no room for all");
    let events = fake.events.borrow();
    let told: Vec<&str> =
        events.iter().filter(|it| it.reason == "Nominated").map(|it| it.message.as_str()).collect();
    assert_eq!(told.len(), 10);
    let on_node = told.iter().filter(|it| it.ends_with("nodeclaim/claim-n1, node/n1")).count();
    assert_eq!(on_node, 6);
}

/// The pool's nodes register, or nobody knows.
fn set_health(fake: &Fake, healthy: bool) {
    change_pool(fake, |pool| {
        pool.status.conditions.retain(|it| it.type_ != NodePool::NODE_REGISTRATION_HEALTHY);
        if healthy {
            let condition = json!({"type": "NodeRegistrationHealthy", "status": "True",
                "lastTransitionTime": null, "reason": "Registered", "message": ""});
            pool.status.conditions.push(serde_json::from_value(condition).expect("a condition"));
        }
    });
}

#[test] // scheduling 17 and 24: from the first plan that had a place for the pod
fn how_long_it_took_from_the_plan_is_measured_where_nodes_register() {
    for (healthy, bound, startup) in [(true, vec!["40"], vec!["55"]), (false, vec![], vec![])] {
        let fake = world();
        set_health(&fake, healthy);
        let mut pod = pending("planned", "1");
        pod["metadata"]["creationTimestamp"] = json!("2026-03-01T11:59:00Z");
        fake.add_json::<Pod>(pod.clone());
        provision(&fake, &pods_pending());
        // A second plan changes nothing.
        fake.now.set(now() + SignedDuration::from_secs(10));
        provision(&fake, &pods_pending());
        fake.add_json::<Node>(json!({"metadata": {"name": "n1"}, "spec": {"providerID": "x"}}));
        pod["spec"]["nodeName"] = json!("n1");
        pod["status"]["conditions"] = json!([
            condition("PodScheduled", "True", "2026-03-01T12:00:40Z"),
            condition("Ready", "True", "2026-03-01T12:00:55Z")
        ]);
        fake.add_json::<Pod>(pod);
        for later in [60, 70] {
            fake.now.set(now() + SignedDuration::from_secs(later));
            provision(&fake, &pods_pending());
        }
        let of = |name: &str| -> Vec<String> {
            let samples =
                fake.samples(&format!("karpenter_pods_provisioning_{name}_duration_seconds"));
            samples.iter().filter_map(|it| it.split(' ').nth(1)).map(str::to_owned).collect()
        };
        assert_eq!((of("bound"), of("startup")), (text(&bound), text(&startup)), "{healthy}");
    }
}

fn text(list: &[&str]) -> Vec<String> {
    list.iter().map(|it| (*it).to_owned()).collect()
}

#[test] // scheduling 17: the time is forgotten when the pod has no place any more
fn a_plan_that_came_to_nothing_does_not_count() {
    let fake = world();
    set_health(&fake, true);
    let mut pod = pending("unlucky", "1");
    pod["metadata"]["creationTimestamp"] = json!("2026-03-01T11:59:00Z");
    fake.add_json::<Pod>(pod.clone());
    provision(&fake, &pods_pending());
    let lost: Vec<String> =
        claims(&fake).iter().map(|it| format!("NodeClaim/{}", it.name())).collect();
    lost.iter().for_each(|it| drop(fake.objects.borrow_mut().remove(it)));
    fake.records.borrow_mut().remove(&StateKey::new("provision", "orders"));
    change_pool(&fake, |pool| pool.spec.limits = serde_json::from_value(json!({"cpu": "0"})).ok());
    fake.now.set(now() + SignedDuration::from_secs(20));
    provision(&fake, &pods_pending());
    assert_eq!(decisions(&fake, "unschedulable").len(), 1);
    change_pool(&fake, |pool| pool.spec.limits = None);
    fake.now.set(now() + SignedDuration::from_secs(30));
    provision(&fake, &pods_pending());
    fake.add_json::<Node>(json!({"metadata": {"name": "n1"}, "spec": {"providerID": "x"}}));
    pod["spec"]["nodeName"] = json!("n1");
    pod["status"]["conditions"] =
        json!([condition("PodScheduled", "True", "2026-03-01T12:00:45Z")]);
    fake.add_json::<Pod>(pod);
    fake.now.set(now() + SignedDuration::from_secs(60));
    provision(&fake, &pods_pending());
    assert_eq!(
        fake.samples("karpenter_pods_provisioning_bound_duration_seconds"),
        ["karpenter_pods_provisioning_bound_duration_seconds{} 15"]
    );
}

#[test] // scheduling 24: gauges of single pods, where they are asked for
fn every_pod_has_its_gauges_where_that_is_asked_for() {
    let run = |asked: bool| {
        let fake = world();
        set_health(&fake, true);
        add_node(&fake, "n1", "1");
        let mut waits = pending("waits", "4");
        waits["metadata"]["creationTimestamp"] = json!("2026-03-01T11:59:00Z");
        fake.add_json::<Pod>(waits);
        let mut runs = pending("runs", "1");
        runs["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}]);
        runs["spec"]["nodeName"] = json!("n1");
        runs["status"] = json!({"phase": "Running", "conditions": [
            condition("PodScheduled", "True", "2026-03-01T11:50:00Z"),
            condition("Ready", "True", "2026-03-01T11:50:00Z")]});
        fake.add_json::<Pod>(runs);
        let settings = Settings { object_gauges: asked, ..Settings::default() };
        provision_with(&fake, &pods_pending(), &settings);
        fake.now.set(now() + SignedDuration::from_secs(10));
        fake.metrics.borrow_mut().clear();
        provision_with(&fake, &pods_pending(), &settings);
        let of = |name: &str| fake.samples(&format!("karpenter_pods_{name}"));
        [
            of("state"),
            of("unbound_time_seconds"),
            of("unstarted_time_seconds"),
            of("provisioning_unbound_time_seconds"),
            of("provisioning_unstarted_time_seconds"),
        ]
        .concat()
    };
    assert_eq!(run(false), [""; 0]);
    let state = |pod: &str, rest: &str| {
        format!("karpenter_pods_state{{name={pod},namespace=default,{rest}}} 1")
    };
    let wait = |name: &str, seconds: u32| {
        format!("karpenter_pods_{name}_time_seconds{{name=waits,namespace=default}} {seconds}")
    };
    assert_eq!(
        run(true),
        [
            state(
                "runs",
                "owner=/apis/apps/v1/namespaces/default/replicasets/web,node=n1,scheduled=true,\
                nodepool=default,zone=a,arch=amd64,capacity_type=on-demand,instance_type=m.large,phase=Running,\
                ready=true,managed=true"
            ),
            state(
                "waits",
                "owner=,node=,scheduled=false,nodepool=,zone=,arch=,capacity_type=,instance_type=,\
                phase=Pending,ready=false,managed=false"
            ),
            wait("unbound", 70),
            wait("unstarted", 70),
            wait("provisioning_unbound", 10),
            wait("provisioning_unstarted", 10),
        ]
    );
}

#[test] // scheduling 24: a plan that comes to every pod leaves no work
fn a_finished_plan_leaves_no_work() {
    let fake = world();
    fake.add_json::<Pod>(pending("p", "1"));
    provision(&fake, &pods_pending());
    assert_eq!(
        fake.samples("karpenter_scheduler_unfinished_work_seconds"),
        ["karpenter_scheduler_unfinished_work_seconds{controller=provisioner} 0"]
    );
}
