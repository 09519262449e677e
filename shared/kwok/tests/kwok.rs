//! A made-up EC2 over the fake ports: the numbered cases of aws-capacity 24 that apply to it.

use serde_json::json;
use spokeshave_kwok::{Kwok, Profile, interruption, node};
use spokeshave_model::{NodeClaim, Settings, Timestamp, core::Node};
use spokeshave_ports::{
    Concern, Ec2, Invocation, StateKey,
    ec2::{Filter, FleetConfig, FleetOverride, FleetRequest, LaunchTemplateData, Tags},
    fake::{Fake, block_on},
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_261_600 + seconds).expect("in range")
}

fn settings() -> Settings {
    Settings { region: "us-west-2".into(), ec2_mode: "kwok".into(), ..Settings::default() }
}

/// Does something with the made-up EC2 at a time.
fn with<T>(
    fake: &Fake,
    profile: Option<&Profile>,
    seconds: i64,
    act: impl AsyncFnOnce(&Kwok<'_, Fake, Fake>) -> T,
) -> T {
    fake.now.set(at(seconds));
    let settings = settings();
    let cx = Invocation {
        concern: Concern::Launch,
        now: at(seconds),
        deadline: at(seconds + 60),
        settings: &settings,
        journal: fake,
    };
    block_on(act(&Kwok::new(fake, fake, profile, &cx)))
}

fn offer(instance_type: &str, zone: &str) -> FleetOverride {
    FleetOverride {
        instance_type: instance_type.into(),
        zone: zone.into(),
        subnet_id: format!("subnet-{zone}"),
        image_id: "ami-1".into(),
        priority: 0.0,
    }
}

fn request(token: &str, target: i64, overrides: Vec<FleetOverride>) -> FleetRequest {
    FleetRequest {
        client_token: token.into(),
        target,
        capacity_type: "on-demand".into(),
        tags: Tags::from([("eks:eks-cluster-name".to_owned(), "c1".to_owned())]),
        configs: vec![FleetConfig { launch_template: "t".into(), overrides }],
        ..FleetRequest::default()
    }
}

/// A table with the template `t`.
fn ready() -> Fake {
    let fake = Fake::at(at(0));
    with(&fake, Some(&Profile::default()), 0, async |ec2| {
        let data =
            LaunchTemplateData { tenancy: "default".into(), ..LaunchTemplateData::default() };
        ec2.create_launch_template("t", &data, &Tags::new(), false).await.expect("made");
    });
    fake
}

fn bought(fake: &Fake, profile: &Profile, request: &FleetRequest) -> (Vec<String>, Vec<String>) {
    with(fake, Some(profile), 0, async |ec2| {
        let answer = ec2.create_fleet(request).await.expect("answered");
        let bought = answer.instances.iter().flat_map(|it| it.ids.iter().map(move |_| it));
        (
            bought.map(|it| format!("{}/{}", it.instance_type, it.zone)).collect(),
            answer.errors.iter().map(|it| format!("{} {}", it.code, it.instance_type)).collect(),
        )
    })
}

#[test] // aws-capacity 24, cases 1-2
fn the_cheapest_offer_is_taken_and_an_unknown_price_comes_last() {
    let none: [&str; 0] = [];
    let two = |other: &str| vec![offer("m5.large", "us-west-2a"), offer(other, "us-west-2a")];
    let (types, errors) = bought(&ready(), &Profile::default(), &request("a", 1, two("t3.large")));
    assert_eq!((types, errors), (vec!["t3.large/us-west-2a".to_owned()], vec![]));
    let (types, errors) = bought(&ready(), &Profile::default(), &request("a", 2, two("zz9.large")));
    assert_eq!(types, ["m5.large/us-west-2a", "m5.large/us-west-2a"]);
    assert_eq!(errors, none);
}

#[test]
fn what_is_sold_out_is_refused_and_the_next_is_taken() {
    let profile = Profile::parse("short=on-demand:t3.large:*").expect("valid");
    let offers = vec![
        offer("t3.large", "us-west-2a"),
        offer("t3.large", "us-west-2b"),
        offer("m5.large", "us-west-2a"),
    ];
    let (types, errors) = bought(&ready(), &profile, &request("a", 1, offers.clone()));
    assert_eq!(types, ["m5.large/us-west-2a"]);
    assert_eq!(errors, ["InsufficientInstanceCapacity t3.large"; 2]);
    // Spot of the same type is sold.
    let spot = FleetRequest { capacity_type: "spot".into(), ..request("b", 1, offers) };
    assert_eq!(bought(&ready(), &profile, &spot).0, ["t3.large/us-west-2a"]);
}

#[test]
fn a_token_launches_once() {
    let (fake, profile) = (ready(), Profile::default());
    let request = request("a", 3, vec![offer("m5.large", "us-west-2a")]);
    let count = |fake: &Fake| {
        with(fake, Some(&profile), 1, async |ec2| {
            let filter = Filter::new("tag:eks:eks-cluster-name", &["c1"]);
            ec2.find_instances(&[filter]).await.expect("found").len()
        })
    };
    let first = with(&fake, Some(&profile), 0, async |ec2| ec2.create_fleet(&request).await);
    let again = with(&fake, Some(&profile), 9, async |ec2| ec2.create_fleet(&request).await);
    assert_eq!(first, again);
    assert_eq!(count(&fake), 3);
    // The process died after the fleet's record: the repeat makes the missing ones.
    fake.records.borrow_mut().retain(|key, _| key.partition != "kwok-instance");
    assert_eq!(count(&fake), 0);
    with(&fake, Some(&profile), 10, async |ec2| ec2.create_fleet(&request).await).expect("again");
    assert_eq!(count(&fake), 3);
    // What has ended stays ended.
    let ids = again.expect("answered").instances[0].ids.clone();
    with(&fake, Some(&profile), 20, async |ec2| ec2.terminate_instances(&ids[..1]).await)
        .expect("ended");
    with(&fake, Some(&profile), 21, async |ec2| ec2.create_fleet(&request).await).expect("again");
    assert_eq!(count(&fake), 2);
    let other = FleetRequest { target: 4, ..request };
    let refused = with(&fake, Some(&profile), 22, async |ec2| ec2.create_fleet(&other).await);
    assert_eq!(refused.expect_err("another request").code, "IdempotentParameterMismatch");
}

/// A claim as launch fills it in.
fn claim(id: &str) -> NodeClaim {
    serde_json::from_value(json!({
        "metadata": {"name": "c", "uid": "u", "labels": {
            "karpenter.sh/nodepool": "p", "karpenter.sh/capacity-type": "spot",
            "node.kubernetes.io/instance-type": "m5.large", "topology.kubernetes.io/zone": "us-west-2a",
            "karpenter.k8s.aws/instance-cpu": "2"}},
        "status": {"providerID": format!("kwok-aws:///us-west-2a/{id}"),
            "capacity": {"cpu": "2"}, "allocatable": {"cpu": "1930m"}}}))
    .expect("a claim")
}

#[test] // aws-capacity 24, cases 3-4
fn a_node_joins_after_its_time_and_never_after_the_end() {
    for (ends, joins) in [(false, true), (true, false)] {
        let (fake, profile) = (ready(), Profile::default());
        let request = request("a", 1, vec![offer("m5.large", "us-west-2a")]);
        let ids = with(&fake, Some(&profile), 0, async |ec2| ec2.create_fleet(&request).await);
        let id = ids.expect("answered").instances[0].ids[0].clone();
        let claim = claim(id.as_str());
        let join = |seconds: i64| {
            with(&fake, Some(&profile), seconds, async |ec2| {
                node::join(&fake, ec2, &claim, at(seconds)).await.expect("it works")
            })
        };
        assert_eq!(join(1), Some(at(30)));
        if ends {
            let ids = [id.clone()];
            with(&fake, Some(&profile), 20, async |ec2| ec2.terminate_instances(&ids).await)
                .expect("ended");
        }
        assert_eq!((join(30), join(31)), (None, None));
        let name = format!("kwok-{id}");
        let node = fake.object::<Node>(&name);
        assert_eq!(node.is_some(), joins);
        let Some(node) = node else { continue };
        assert_eq!(node.spec.provider_id, claim.status.provider_id);
        assert_eq!(node.spec.taints[0].key, "karpenter.sh/unregistered");
        let label = |key: &str| node.metadata.label(key);
        assert_eq!(label("karpenter.sh/capacity-type"), Some("spot"));
        assert_eq!(label("karpenter.sh/nodepool"), Some("p"));
        assert_eq!(label("kubernetes.io/hostname"), Some(name.as_str()));
        assert_eq!(label("karpenter.k8s.aws/instance-cpu"), None);
        assert_eq!(node.metadata.annotation("kwok.x-k8s.io/node"), Some("fake"));
        assert_eq!(node.status.allocatable.get("cpu").to_string(), "1930m");
    }
}

#[test] // aws-capacity 24, cases 7-8
fn dry_runs_and_unknown_things() {
    let (fake, profile) = (ready(), Profile::default());
    with(&fake, Some(&profile), 0, async |ec2| {
        let dry = FleetRequest { dry_run: true, ..request("a", 1, vec![]) };
        assert_eq!(ec2.create_fleet(&dry).await.expect_err("dry").code, "DryRunOperation");
        let run = ec2.dry_run_instances("t", "m5.large", "s", &Tags::new()).await;
        assert_eq!(run.expect_err("dry").code, "DryRunOperation");
        let gone = "InvalidLaunchTemplateName.NotFoundException";
        let run = ec2.dry_run_instances("x", "m5.large", "s", &Tags::new()).await;
        assert_eq!(run.expect_err("unknown").code, gone);
        ec2.delete_launch_template("t").await.expect("deleted");
        ec2.delete_launch_template("t").await.expect("gone already");
        let fleet = request("a", 1, vec![offer("m5.large", "us-west-2a")]);
        assert_eq!(ec2.create_fleet(&fleet).await.expect_err("unknown").code, gone);
        let tags = ec2.create_tags(&["i-9".into()], &Tags::new()).await;
        assert_eq!(tags.expect_err("unknown").code, "InvalidInstanceID.NotFound");
        ec2.terminate_instances(&["i-9".into()]).await.expect("gone already");
        assert_eq!(ec2.describe_instances(&["i-9".into()]).await.expect("read"), []);
    });
}

#[test] // aws-capacity 24: rate limits
fn calls_beyond_the_rate_are_throttled() {
    let (fake, profile) = (ready(), Profile::parse("throttle=true").expect("valid"));
    let calls = |seconds: i64| {
        (0..120)
            .filter(|_| {
                with(&fake, Some(&profile), seconds, async |ec2| {
                    match ec2.describe_instances(&[]).await {
                        Ok(_) => true,
                        Err(error) => {
                            assert!(error.is_throttled(), "{error}");
                            false
                        }
                    }
                })
            })
            .count()
    };
    assert_eq!(calls(0), 100);
    assert_eq!(calls(2), 40);
}

#[test]
fn without_a_profile_everything_is_real() {
    let fake = ready();
    let request = request("a", 1, vec![offer("m5.large", "us-west-2a")]);
    let answer = with(&fake, None, 0, async |ec2| ec2.create_fleet(&request).await);
    assert_eq!(answer.expect("the fake's").instances, []);
    let key = StateKey::new("kwok-fleet", "a");
    assert!(!fake.records.borrow().contains_key(&key));
}

#[test]
fn an_interruption_reads_as_ec2_words_it() {
    let (fake, profile) = (ready(), Profile::default());
    let request = request("a", 1, vec![offer("m5.large", "us-west-2a")]);
    let instance = with(&fake, Some(&profile), 0, async |ec2| {
        ec2.create_fleet(&request).await.expect("answered");
        ec2.find_instances(&[]).await.expect("found").remove(0)
    });
    let event = interruption(&instance, "us-west-2", "123456789012", at(5));
    assert_eq!(event["detail-type"], "EC2 Spot Instance Interruption Warning");
    assert_eq!(event["detail"]["instance-id"], instance.id.as_str());
    assert_eq!(event["time"], "2026-01-01T10:00:05Z");
}

#[test] // aws-capacity 24, case 5: a record for each instance in place of maps of five hundred
fn records_of_ended_instances_are_no_instances() {
    let (fake, profile) = (ready(), Profile::default());
    let live = |seconds: i64| {
        with(&fake, Some(&profile), seconds, async |ec2| {
            let alive = Filter::new("instance-state-name", &["pending", "running"]);
            ec2.find_instances(&[alive]).await.expect("found")
        })
    };
    for n in 0..12 {
        let request = request(&format!("f{n}"), 100, vec![offer("m5.large", "us-west-2a")]);
        with(&fake, Some(&profile), 0, async |ec2| ec2.create_fleet(&request).await)
            .expect("answered");
    }
    let all = live(1);
    assert_eq!(all.len(), 1200);
    let ids: Vec<_> = all[..800].iter().map(|it| it.id.clone()).collect();
    with(&fake, Some(&profile), 2, async |ec2| ec2.terminate_instances(&ids).await).expect("ended");
    assert_eq!(live(3).len(), 400);
}
