//! The player of made-up Nodes over the fake ports.

use serde_json::json;
use spokeshave_kwok::{
    Kwok, Profile,
    played::{PlayedContainerStatus, PlayedPod},
    player::{self, Step},
};
use spokeshave_model::{
    NodeClaim, Settings, SignedDuration, Timestamp,
    core::{Lease, Node, Pod},
};
use spokeshave_ports::{
    Concern, Ec2, Invocation,
    ec2::{FleetConfig, FleetOverride, FleetRequest, LaunchTemplateData, Tags},
    fake::{Fake, block_on},
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_261_600 + seconds).expect("in range")
}

fn with<T>(fake: &Fake, seconds: i64, act: impl AsyncFnOnce(&Kwok<'_, Fake, Fake>) -> T) -> T {
    fake.now.set(at(seconds));
    let settings = Settings { region: "us-west-2".into(), ..Settings::default() };
    let profile = Profile::default();
    let cx = Invocation {
        concern: Concern::Launch,
        now: at(seconds),
        deadline: at(seconds + 60),
        settings: &settings,
        journal: fake,
    };
    block_on(act(&Kwok::new(fake, fake, Some(&profile), &cx)))
}

/// A made-up instance with its claim and, if wanted, its Node; the instance's id.
fn launched(node: Option<serde_json::Value>) -> (Fake, String) {
    let fake = Fake::at(at(0));
    let id = with(&fake, 0, async |ec2| {
        let data = LaunchTemplateData::default();
        ec2.create_launch_template("t", &data, &Tags::new(), false).await.expect("made");
        let offer = FleetOverride {
            instance_type: "m5.large".into(),
            zone: "us-west-2a".into(),
            ..FleetOverride::default()
        };
        let request = FleetRequest {
            client_token: "a".into(),
            target: 1,
            capacity_type: "spot".into(),
            configs: vec![FleetConfig { launch_template: "t".into(), overrides: vec![offer] }],
            ..FleetRequest::default()
        };
        ec2.create_fleet(&request).await.expect("answered").instances[0].ids[0].0.clone()
    });
    fake.add_json::<NodeClaim>(json!({"metadata": {"name": "c", "uid": "c"},
        "status": {"providerID": format!("kwok-aws:///us-west-2a/{id}")}}));
    if let Some(conditions) = node {
        fake.add_json::<Node>(json!({"metadata": {"name": format!("kwok-{id}"), "uid": "n"},
            "status": {"conditions": conditions}}));
    }
    (fake, id)
}

fn play(fake: &Fake, seconds: i64) -> Option<i64> {
    let claim = fake.object::<NodeClaim>("c").expect("there");
    with(fake, seconds, async |ec2| player::play(fake, ec2, &claim, at(seconds)).await)
        .expect("played")
        .map(|it| it.duration_since(at(0)).as_secs())
}

fn pod(name: &str, node: &str) -> serde_json::Value {
    json!({"metadata": {"name": name, "namespace": "d", "uid": name},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "nginx:1"}],
            "initContainers": [{"name": "first", "image": "busybox"},
                {"name": "beside", "image": "proxy", "restartPolicy": "Always"}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}})
}

#[test]
fn a_node_beats_and_its_pods_run() {
    let (fake, id) = launched(Some(json!([
        {"type": "Ready", "status": "Unknown", "reason": "NodeStatusNeverUpdated"},
        {"type": "StorageReady", "status": "True"}])));
    let node = format!("kwok-{id}");
    fake.add_json::<PlayedPod>(pod("a", &node));
    fake.add_json::<PlayedPod>(pod("elsewhere", "other"));
    assert_eq!(play(&fake, 30), Some(40));
    let stored = fake.object::<Node>(&node).expect("there");
    assert!(stored.is_ready() && stored.status.conditions.len() == 2);
    assert_eq!(stored.condition("Ready").expect("there").reason, player::REASON);
    let lease = || fake.object::<Lease>(&format!("kube-node-lease/{node}")).expect("there").spec;
    assert_eq!((lease().renew_time, lease().holder_identity), (Some(at(30)), Some(node.clone())));
    let running = fake.object::<Pod>("d/a").expect("there");
    assert_eq!(
        (running.status.phase.as_str(), running.status.start_time),
        ("Running", Some(at(30)))
    );
    let of = |kind: &str| running.status.conditions.iter().filter(|it| it.type_ == kind).count();
    assert_eq!(["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(of), [1; 4]);
    assert_eq!(fake.object::<Pod>("d/elsewhere").expect("there").status.phase, "Pending");
    // `kubectl get pods` shows `2/2`: the container and the sidecar.
    let status = fake.object::<PlayedPod>("d/a").expect("there").status;
    let of = |it: &PlayedContainerStatus| {
        let ended = it.state.terminated.as_ref().map(|it| (it.exit_code, it.finished_at));
        let since = it.state.running.as_ref().and_then(|it| it.started_at);
        (it.name.clone(), it.image.clone(), it.ready, since, ended)
    };
    let main = ("main".to_owned(), "nginx:1".to_owned(), true, Some(at(30)), None);
    assert_eq!(status.container_statuses.iter().map(of).collect::<Vec<_>>(), [main]);
    let ended = Some((0, Some(at(30))));
    let first = ("first".to_owned(), "busybox".to_owned(), false, None, ended);
    let beside = ("beside".to_owned(), "proxy".to_owned(), true, Some(at(30)), None);
    assert_eq!(status.init_container_statuses.iter().map(of).collect::<Vec<_>>(), [first, beside]);

    // Another chain of wake-ups for the same Node ends; this one goes on, and writes nothing but the Lease.
    assert_eq!(play(&fake, 33), None);
    fake.calls.borrow_mut().clear();
    assert_eq!(play(&fake, 40), Some(50));
    assert_eq!(lease().renew_time, Some(at(40)));
    assert_eq!(*fake.calls.borrow(), [format!("patch Lease/kube-node-lease/{node}")]);
}

#[test]
fn a_pod_that_is_deleted_goes() {
    let (fake, id) = launched(Some(json!([])));
    let mut going = pod("a", &format!("kwok-{id}"));
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:05:00Z");
    fake.add_json::<PlayedPod>(going);
    play(&fake, 30);
    assert_eq!(fake.object::<Pod>("d/a"), None);
}

#[test]
fn the_pod_of_a_job_ends_at_the_next_look() {
    for (owner, policy, ends) in [
        ("Job", "Never", true),
        ("Job", "OnFailure", true),
        ("Job", "Always", false),
        ("ReplicaSet", "Always", false),
    ] {
        let (fake, id) = launched(Some(json!([])));
        let mut of_job = pod("a", &format!("kwok-{id}"));
        of_job["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "batch/v1", "kind": owner, "name": "j", "uid": "j"}]);
        of_job["spec"]["restartPolicy"] = json!(policy);
        fake.add_json::<PlayedPod>(of_job);
        play(&fake, 30);
        play(&fake, 39);
        let status = || fake.object::<PlayedPod>("d/a").expect("there").status;
        assert_eq!(status().phase, "Running", "{owner} {policy}");
        play(&fake, 49);
        assert_eq!(status().phase == "Succeeded", ends, "{owner} {policy}");
        let ready = status().conditions.into_iter().find(|it| it.type_ == "Ready").expect("there");
        assert_eq!(ready.status == "False", ends, "{owner} {policy}");
        let main = status().container_statuses.remove(0).state;
        assert_eq!((main.running.is_none(), main.terminated.is_some()), (ends, ends));
        if ends {
            let main = main.terminated.expect("has ended");
            assert_eq!((main.exit_code, main.reason.as_str()), (0, "Completed"));
            assert_eq!((main.started_at, main.finished_at), (Some(at(30)), Some(at(49))));
        }
        // Over: nothing is written any more.
        let before = status();
        play(&fake, 59);
        assert!(!ends || status() == before);
    }
}

#[test]
fn what_is_played_by_another_or_over_is_left() {
    // A KWOK controller was here.
    let (fake, _) = launched(Some(json!([
        {"type": "Ready", "status": "True", "reason": "KubeletReady"}])));
    assert_eq!(play(&fake, 30), None);
    // No Node yet.
    let (fake, _) = launched(None);
    assert_eq!(play(&fake, 30), None);
    // The instance has ended: its Node beats no more.
    let (fake, id) = launched(Some(json!([])));
    assert_eq!(play(&fake, 30), Some(40));
    with(&fake, 35, async |ec2| ec2.terminate_instances(&[id.as_str().into()]).await)
        .expect("ended");
    assert_eq!(play(&fake, 40), None);
    // A real instance is nobody's to play.
    fake.add_json::<NodeClaim>(json!({"metadata": {"name": "c", "uid": "c"},
        "status": {"providerID": "aws:///us-west-2a/i-1"}}));
    assert_eq!(play(&fake, 60), None);
}

#[test]
fn steps_of_a_pod() {
    let read = |value| serde_json::from_value::<PlayedPod>(value).expect("a pod");
    let mut ended = pod("a", "n");
    ended["status"]["phase"] = json!("Succeeded");
    assert_eq!(player::step(&read(ended.clone()), at(0)), None);
    ended["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:05:00Z");
    assert_eq!(player::step(&read(ended), at(0)), Some(Step::LetGo));
    let Some(Step::Run(status)) = player::step(&read(pod("a", "n")), at(0)) else {
        panic!("it runs");
    };
    // Settled: nothing is left to do, and what was true keeps its time.
    let mut running = read(pod("a", "n"));
    running.status = status;
    assert_eq!(player::step(&running, at(0) + SignedDuration::from_secs(9)), None);
    // The node was not heard of for a while: its pods are ready again.
    let ready = running.status.conditions.iter_mut().find(|it| it.type_ == "Ready");
    ready.expect("there").status = "False".into();
    let Some(Step::Run(status)) = player::step(&running, at(9)) else { panic!("it is ready") };
    let time = |kind: &str| {
        let found = status.conditions.iter().find(|it| it.type_ == kind).expect(kind);
        found.last_transition_time
    };
    assert_eq!((time("Ready"), time("Initialized")), (Some(at(9)), Some(at(0))));
}
