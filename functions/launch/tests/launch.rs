//! The gate, the answer and what they bring about, through the handler.

mod common;

use common::{Script, World, at, error, ice};
use serde_json::json;
use spokeshave_kwok::{Kwok, Profile};
use spokeshave_model::{ConditionStatus, NodeClaim, conditions, core::Node, labels};
use spokeshave_ports::{Concern, StateKey, ec2::Subnet, fake::block_on};

fn ready(
    status: ConditionStatus,
    message: &str,
    observed: i64,
) -> impl Fn(&mut spokeshave_model::EC2NodeClass) {
    move |class| {
        let ready = class
            .status
            .conditions
            .iter_mut()
            .find(|it| it.type_ == conditions::READY)
            .expect("there");
        ready.status = status;
        ready.message = message.to_owned();
        ready.observed_generation = observed;
    }
}

fn launched(world: &World, name: &str) -> (ConditionStatus, String, String) {
    let claim = world.claim(name).expect(name);
    let it = claim.condition(NodeClaim::LAUNCHED).expect("set");
    (it.status, it.reason.clone(), it.message.clone())
}

fn disrupted(world: &World) -> Vec<String> {
    world.fake.samples("karpenter_nodeclaims_disrupted_total")
}

#[test] // aws-capacity 13, cases 1-4; lifecycle 3.1, cases 6 and 7; api 13, case 10
fn the_gate() {
    let world = World::new(1);
    world.fake.objects.borrow_mut().remove("EC2NodeClass/default");
    world.run().expect("it lives");
    assert_eq!(world.claim("a-0"), None);
    assert_eq!(
        disrupted(&world),
        [
            "karpenter_nodeclaims_disrupted_total{reason=insufficient_capacity,nodepool=a,capacity_type=,consolidation_policy=,termination_mode=graceful} 1"
        ]
    );
    assert_eq!(
        world.fake.event_reasons(),
        ["NodeClaim/a-0 NodeClassNotFound", "NodeClaim/a-0 InsufficientCapacityError"]
    );

    for (status, message, observed, gone) in [
        (ConditionStatus::False, "SubnetsReady=False", 1, true),
        (ConditionStatus::True, "", 0, true),
        (ConditionStatus::Unknown, "waiting", 1, false),
    ] {
        let world = World::new(1);
        world.change_class(ready(status, message, observed));
        world.run().expect("it lives");
        assert_eq!(world.claim("a-0").is_none(), gone, "{status:?}");
        if gone {
            assert_eq!(
                disrupted(&world),
                [
                    "karpenter_nodeclaims_disrupted_total{reason=nodeclass_not_ready,nodepool=a,capacity_type=,consolidation_policy=,termination_mode=graceful} 1"
                ]
            );
        } else {
            assert_eq!(
                launched(&world, "a-0"),
                (ConditionStatus::Unknown, "NodeClassReadinessUnknown".into(), "waiting".into())
            );
            assert_eq!(world.fake.sent.borrow().len(), 1);
        }
        assert!(world.requests.borrow().is_empty());
    }
}

#[test] // aws-capacity 13, case 5
fn tags_that_are_ours() {
    let world = World::new(1);
    world.change_class(|class| {
        class.spec.tags =
            std::collections::BTreeMap::from([(labels::NODEPOOL.to_owned(), "x".to_owned())])
                .into();
    });
    world.run().expect("it lives");
    assert_eq!(world.claim("a-0"), None);
    let decisions = world.fake.decisions.borrow();
    assert!(decisions.iter().any(|it| it.reason.contains("karpenter.sh/nodepool")));
}

#[test] // aws-capacity 2, case 4
fn a_class_without_subnets() {
    let world = World::new(1);
    world.change_class(|class| class.status.subnets.clear());
    world.run().expect("it lives");
    assert_eq!(launched(&world, "a-0").1, "InstanceTypeResolutionFailed");
}

#[test] // lifecycle 3.1, case 4; api 9, case 4
fn what_a_launch_writes() {
    let world = World::new(1);
    world.change_claim("a-0", |claim| {
        claim.metadata.labels.insert(labels::ZONE.into(), "us-west-2z".into());
    });
    world.run().expect("it lives");
    let claim = world.claim("a-0").expect("there");
    assert_eq!(claim.status.provider_id.as_str(), "aws:///us-west-2a/i-00000000000000001");
    assert_eq!(claim.status.image_id, "ami-amd");
    assert_eq!(claim.metadata.label(labels::ZONE), Some("us-west-2z"));
    assert_eq!(claim.metadata.label(labels::INSTANCE_TYPE), Some("m5.large"));
    assert_eq!(claim.metadata.label(labels::ZONE_ID), Some("usw2-az2"));
    assert_eq!(claim.metadata.annotation(labels::NODECLASS_HASH_VERSION), Some("v6"));
    assert_eq!(claim.metadata.annotation(labels::INSTANCE_PROFILE_NAME), Some("profile-1"));
    assert!(claim.metadata.has_finalizer(labels::TERMINATION_FINALIZER));
    assert!(claim.is_true(NodeClaim::LAUNCHED));
    let request = world.requests.borrow()[0].clone();
    let tag = |key: &str| request.tags.get(key).map(String::as_str);
    assert_eq!(tag("kubernetes.io/cluster/c1"), Some("owned"));
    assert_eq!(tag("karpenter.sh/nodepool"), Some("a"));
    assert_eq!(tag("eks:eks-cluster-name"), Some("c1"));
    assert_eq!(tag("karpenter.k8s.aws/ec2nodeclass"), Some("default"));
    assert_eq!(tag("karpenter.sh/nodeclaim"), Some("a-0"));
    assert_eq!(tag("spokeshave.dev/launch"), Some(request.client_token.as_str()));
    assert!(request.client_token.len() <= 64);
    assert!(
        !world
            .templates
            .borrow()
            .values()
            .any(|it| it.tags["network-interface"].contains_key("spokeshave.dev/launch"))
    );
}

#[test] // api 9, case 7
fn a_spot_claim_is_in_no_reservation() {
    let world = World::new(1);
    world.change_claim("a-0", |claim| {
        claim.spec.requirements[1].values = vec!["spot".into()];
    });
    world.run().expect("it lives");
    let claim = world.claim("a-0").expect("there");
    assert_eq!(claim.metadata.label(labels::CAPACITY_TYPE), Some("spot"));
    let reservation = |it: &&String| it.contains("capacity-reservation");
    assert_eq!(claim.metadata.labels.keys().find(reservation), None);
}

#[test] // aws-capacity 15, case 11; aws-nodeclass 9, case 7; 26, case 3
fn large_user_data_is_measured_and_warned_about() {
    // A Custom class gets its user data as it is.
    for (bytes, warned) in [(9000, false), (14_744, false), (14_745, true)] {
        let world = World::new(1);
        world.change_class(|class| {
            class.spec.ami_family = Some("Custom".into());
            class.spec.user_data = Some("x".repeat(bytes));
        });
        world.run().expect("it lives");
        let measured = world.fake.samples("karpenter_ec2nodeclasses_userdata_bytes");
        assert_eq!(
            measured,
            [format!("karpenter_ec2nodeclasses_userdata_bytes{{nodeclass=default}} {bytes}")]
        );
        let decisions = world.fake.decisions.borrow();
        let warning = decisions.iter().find(|it| it.action == "warn");
        let text = format!("the user data has {bytes} bytes, EC2 takes at most 16384");
        assert_eq!(warning.map(|it| it.reason.as_str()), warned.then_some(text.as_str()));
    }
}

#[test] // lifecycle 3.1, case 1
fn a_claim_that_changed_meanwhile_is_not_launched() {
    let world = World::new(1);
    world.fake.fail("patch NodeClaim/a-0", "Conflict");
    world.run().expect("it lives");
    assert!(world.requests.borrow().is_empty());
    assert_eq!(world.fake.sent.borrow().len(), 1);
}

#[test] // aws-capacity 18, cases 1, 3; bug report B-052
fn no_capacity() {
    let world = World::new(1);
    let errors = vec![ice("m5.large", "us-west-2a"), ice("m5.large", "us-west-2b")];
    world.script.borrow_mut().push(Script::Errors(errors));
    world.run().expect("it lives");
    assert!(world.claim("a-0").expect("waits for its finalizer").metadata.deleting());
    let marks: Vec<String> = {
        let records = world.fake.records.borrow();
        let marks = records.keys().filter(|it| it.partition == "unavailable");
        marks.map(|it| it.sort.clone()).collect()
    };
    assert_eq!(marks, ["on-demand:m5.large:us-west-2a", "on-demand:m5.large:us-west-2b"]);
    assert_eq!(
        world.fake.samples("karpenter_cloudprovider_instance_launch_failures_total").len(),
        2
    );
    assert_eq!(world.fake.event_reasons(), ["NodeClaim/a-0 InsufficientCapacityError"]);
    // The next claim avoids what is marked, for three minutes.
    world.fake.add_json::<NodeClaim>(common::claim("c-0", 7, "a"));
    world.set_now(at(60));
    world.run().expect("it lives");
    assert_eq!(
        world.claim("c-0").expect("there").metadata.label(labels::INSTANCE_TYPE),
        Some("m5.xlarge")
    );
}

#[test] // What gets no instance is counted by its shape, once for all claims of a try.
fn claims_that_get_no_instance_are_counted_by_their_shape() {
    let world = World::new(0);
    let shortage = || {
        let records = world.fake.records.borrow();
        let those = records.iter().filter(|it| it.0.partition == "shortage");
        those.map(|(key, it)| (key.sort.clone(), it.data["failures"].as_i64())).collect::<Vec<_>>()
    };
    let shaped = |name: &str, n: usize| {
        let mut claim = common::claim(name, n, "a");
        claim["metadata"]["annotations"] = serde_json::json!({"spokeshave.dev/shape": "a/0123"});
        world.fake.add_json::<NodeClaim>(claim);
    };
    for (n, expected) in [(0, 1), (2, 2)] {
        shaped(&format!("s-{n}"), n);
        shaped(&format!("s-{}", n + 1), n + 1);
        let errors = vec![ice("m5.large", "us-west-2a"), ice("m5.large", "us-west-2b")];
        world.script.borrow_mut().push(Script::Errors(errors));
        world.set_now(at(600 * (expected - 1)));
        world.run().expect("it lives");
        assert_eq!(shortage(), [("a/0123".to_owned(), Some(expected))]);
    }
}

#[test] // aws-capacity 18, case 2; 20, cases 3-4; bug report B-056
fn other_errors_are_tried_again() {
    let world = World::new(1);
    let errors = vec![
        ice("m5.large", "us-west-2a"),
        error("RequestLimitExceeded", "m5.large", "us-west-2b"),
    ];
    world.script.borrow_mut().push(Script::Errors(errors));
    world.run().expect("it lives");
    let (status, reason, message) = launched(&world, "a-0");
    assert_eq!((status, reason.as_str()), (ConditionStatus::Unknown, "RequestLimitExceeded"));
    assert!(message.contains("RequestLimitExceeded: none left"), "{message}");
    let (to, work, delay, _) = world.fake.sent.borrow()[0].clone();
    assert_eq!(
        (to, work.reason.as_str(), work.depth, delay.as_secs()),
        (Concern::Launch, "Retry", 1, 1)
    );
    world.set_now(at(2));
    world.run_batch(&world.batch(&["a-0"], "Retry", 1)).expect("it lives");
    assert!(world.claim("a-0").expect("there").is_true(NodeClaim::LAUNCHED));
    // Another attempt with another token.
    assert_eq!(world.fleets.borrow().len(), 2);

    let world = World::new(5);
    world.script.borrow_mut().push(Script::Short(2, Vec::new()));
    world.run().expect("it lives");
    let failed: Vec<String> = world
        .claims()
        .iter()
        .filter(|it| it.status.provider_id.is_empty())
        .map(|it| it.metadata.name.clone())
        .collect();
    assert_eq!(failed, ["a-3", "a-4"]);
    let (_, reason, message) = launched(&world, "a-3");
    assert_eq!(reason, "LaunchFailed");
    assert!(message.contains("too few instances returned"));
}

#[test] // aws-capacity 18.3
fn a_call_that_is_refused() {
    for (code, reason) in [
        ("UnauthorizedOperation", "Unauthorized"),
        ("RequestLimitExceeded", "RequestLimitExceeded"),
    ] {
        let world = World::new(1);
        world.script.borrow_mut().push(Script::Refuse(code, 403));
        world.run().expect("it lives");
        assert_eq!(launched(&world, "a-0").1, reason);
    }
}

/// What the log line about a claim says of the AWS call that failed.
fn logged(world: &World) -> serde_json::Value {
    let decisions = world.fake.decisions.borrow();
    let line = decisions.iter().find(|it| it.action == "retry").expect("it is logged");
    line.fields.clone().into()
}

#[test] // aws-capacity 18.4: raw text and request id stay; what failed is told everywhere
fn a_failed_call_is_told_on_log_line_condition_and_event() {
    let world = World::new(1);
    world.script.borrow_mut().push(Script::Refuse("UnauthorizedOperation", 403));
    world.run().expect("it lives");
    let message = "no identity policy allows it; allow the call to the function's role: \
                   UnauthorizedOperation: refused (ec2:CreateFleet, not retryable)";
    assert_eq!(launched(&world, "a-0").2, message);
    assert_eq!(world.fake.event_reasons(), ["NodeClaim/a-0 Unauthorized"]);
    assert_eq!(world.fake.events.borrow()[0].message, message);
    assert_eq!(
        logged(&world),
        json!({"error_code": "UnauthorizedOperation", "service": "ec2", "operation": "CreateFleet",
            "request_id": null, "retryable": false,
            "advice": "allow the call to the function's role, or find the policy that denies it"})
    );

    // The same for an error inside of an answer: of several the one that is not about capacity.
    let world = World::new(1);
    let errors = vec![
        ice("m5.large", "us-west-2a"),
        error("RequestLimitExceeded", "m5.large", "us-west-2b"),
    ];
    world.script.borrow_mut().push(Script::Errors(errors));
    world.run().expect("it lives");
    let message = launched(&world, "a-0").2;
    assert!(message.ends_with("(ec2:CreateFleet, request id r-1, retryable)"), "{message}");
    assert!(message.starts_with("EC2 throttled the request; it is tried again: "), "{message}");
    let fields = logged(&world);
    assert_eq!(fields["error_code"], "RequestLimitExceeded");
    assert_eq!(fields["request_id"], "r-1");
    assert_eq!(fields["retryable"], true);
    assert_eq!(world.fake.event_reasons(), ["NodeClaim/a-0 RequestLimitExceeded"]);
}

#[test] // aws-capacity 18, case 8; 15, case 4; bug report B-058
fn a_template_that_vanished() {
    let world = World::new(2);
    world.run().expect("it lives");
    assert_eq!(
        *world.ec2_calls.borrow(),
        ["DescribeLaunchTemplates", "CreateLaunchTemplate", "CreateFleet"]
    );
    world.ec2_calls.borrow_mut().clear();
    world.fake.add_json::<NodeClaim>(common::claim("c-0", 7, "a"));
    world.set_now(at(60));
    world.run().expect("it lives");
    assert_eq!(*world.ec2_calls.borrow(), ["CreateFleet"]);
    world.ec2_calls.borrow_mut().clear();
    world.templates.borrow_mut().clear();
    world.fake.add_json::<NodeClaim>(common::claim("d-0", 8, "a"));
    world.set_now(at(120));
    world.run().expect("it lives");
    assert_eq!(
        *world.ec2_calls.borrow(),
        ["CreateFleet", "DescribeLaunchTemplates", "CreateLaunchTemplate", "CreateFleet"]
    );
    assert!(world.claim("d-0").expect("there").is_true(NodeClaim::LAUNCHED));
}

#[test] // B-058: the template vanishes again while the launch is under way
fn a_template_that_vanishes_twice_is_an_error_of_the_claim() {
    let world = World::new(1);
    for _ in 0..2 {
        let code = "InvalidLaunchTemplateName.NotFoundException";
        world.script.borrow_mut().push(Script::Refuse(code, 400));
    }
    world.run().expect("it lives");
    let fleets = world.ec2_calls.borrow().iter().filter(|it| *it == "CreateFleet").count();
    assert_eq!(fleets, 2, "once more in the same attempt, and no third time");
    let (status, reason, message) = launched(&world, "a-0");
    assert_eq!((status, reason.as_str()), (ConditionStatus::Unknown, "LaunchTemplateNotFound"));
    assert!(message.contains("InvalidLaunchTemplateName.NotFoundException"), "{message}");
}

#[test] // bug report B-057
fn failing_launches_make_no_new_templates() {
    let world = World::new(400);
    for round in 0..4 {
        let code = if round % 2 == 0 { "SomethingElse" } else { "RequestLimitExceeded" };
        let errors = vec![error(code, "m5.large", "us-west-2a")];
        world.script.borrow_mut().push(Script::Errors(errors));
        world.set_now(at(round * 61));
        world.run().expect("it lives");
    }
    assert_eq!(world.templates.borrow().len(), 1);
}

#[test] // aws-capacity 25, case 6
fn without_marks_launches_go_on() {
    let world = World::new(1);
    world.fake.fail("query unavailable", "Timeout");
    world.run().expect("it lives");
    assert!(world.claim("a-0").expect("there").is_true(NodeClaim::LAUNCHED));
    assert!(world.fake.decisions.borrow().iter().any(|it| it.error && it.action == "skip"));
}

#[test]
fn subnets_of_one_zone_are_chosen_by_free_addresses() {
    let world = World::new(1);
    world.change_class(|class| {
        let mut second = class.status.subnets[0].clone();
        second.id = "subnet-a2".into();
        class.status.subnets.push(second);
    });
    let subnet = |id: &str, free: i64| Subnet {
        id: id.into(),
        available_addresses: free,
        ..Subnet::default()
    };
    *world.subnets.borrow_mut() =
        vec![subnet("subnet-a", 40), subnet("subnet-a2", 60), subnet("subnet-b", 9)];
    world.run().expect("it lives");
    let used = |world: &World| -> Vec<String> {
        world.requests.borrow().last().expect("one").configs[0]
            .overrides
            .iter()
            .map(|it| it.subnet_id.clone())
            .collect()
    };
    assert!(used(&world).contains(&"subnet-a2".to_owned()));
    // 29 pods may have taken 29 addresses of it: 31 against 40.
    world.fake.add_json::<NodeClaim>(common::claim("c-0", 7, "a"));
    world.set_now(at(10));
    world.run().expect("it lives");
    assert!(used(&world).contains(&"subnet-a".to_owned()));
    assert_eq!(world.ec2_calls.borrow().iter().filter(|it| *it == "DescribeSubnets").count(), 1);
}

#[test]
fn missing_facts_of_the_cluster_are_asked_for() {
    let world = World::new(1);
    world.fake.records.borrow_mut().remove(&StateKey::new("cluster", "facts"));
    world.run().expect("it lives");
    assert_eq!(launched(&world, "a-0").1, "ClusterCIDRUnknown");
    assert!(world.fake.sent.borrow().iter().any(|it| it.0 == Concern::Nodeclass));
}

#[test]
fn other_work_and_malformed_work() {
    let world = World::new(1);
    world.change_claim("a-0", |claim| claim.spec.node_class_ref.group = "other".into());
    let mut batch = world.batch(&["a-0", "gone"], "NodeClaimChanged", 0);
    batch.records[1].body = "no work".into();
    let answer = world.run_batch(&batch).expect("it lives");
    assert!(answer.failures.is_empty() && world.requests.borrow().is_empty());
    assert!(world.fake.decisions.borrow().iter().any(|it| it.action == "drop" && it.error));

    let world = World::new(2);
    let mut batch = world.batch(&["a-0"], "Sweep", 0);
    batch.records[0].body = json!({"reason": "Sweep"}).to_string();
    world.run_batch(&batch).expect("it lives");
    assert_eq!(world.alive().len(), 2);
}

#[test] // aws-capacity 24, cases 3-4
fn made_up_instances_become_nodes() {
    let mut world = World::new(2);
    world.settings.ec2_mode = "kwok".into();
    let profile = Profile::default();
    let run = |seconds: i64, names: &[&str]| {
        world.set_now(at(seconds));
        world.fake.sent.borrow_mut().clear();
        let cx = world.invocation();
        let ec2 = Kwok::new(&world, &world.fake, Some(&profile), &cx);
        let batch = world.message(names);
        let fake = &world.fake;
        let answer =
            block_on(spokeshave_launch_function::handle(&batch, fake, &ec2, fake, fake, &cx));
        assert!(answer.failures.is_empty());
        let wakes = world.fake.sent.borrow();
        wakes.iter().map(|it| (it.1.keys.len(), it.2.as_secs())).collect::<Vec<_>>()
    };
    let nodes = || {
        let objects = world.fake.objects.borrow();
        objects.keys().filter(|it| it.starts_with("Node/")).count()
    };
    assert_eq!(run(0, &["a-0", "a-1"]), [(2, 1)]);
    let claim = world.claim("a-0").expect("there");
    assert!(claim.is_true(NodeClaim::LAUNCHED));
    assert!(claim.status.provider_id.0.starts_with("kwok-aws:///us-west-2a/i-"));
    assert_eq!((run(1, &["a-0", "a-1"]), nodes()), (vec![(2, 29)], 0));
    // From here on each is looked after as a kubelet would, by one chain of wake-ups.
    assert_eq!((run(30, &["a-0", "a-1"]), nodes()), (vec![(2, 10)], 2));
    assert_eq!((run(31, &["a-0", "a-1"]), nodes()), (vec![], 2));
    assert_eq!((run(40, &["a-0", "a-1"]), nodes()), (vec![(2, 10)], 2));
    let name = format!("kwok-{}", claim.status.provider_id.instance_id().expect("there"));
    assert!(world.fake.object::<Node>(&name).expect("there").is_ready());
    // Nothing was bought.
    assert!(world.alive().is_empty());
}

#[test] // lifecycle 3.1, case 3; 34, row 1
fn a_launch_that_keeps_failing_is_tried_again_later_and_later() {
    let world = World::new(1);
    let mut delays = Vec::new();
    for depth in 0..8 {
        world.script.borrow_mut().push(Script::Short(1, vec![error("", "m5.large", "us-west-2a")]));
        world.set_now(at(i64::from(depth) * 100));
        world.run_batch(&world.batch(&["a-0"], "Retry", depth)).expect("it lives");
        let (status, reason, message) = launched(&world, "a-0");
        assert_eq!((status, reason.as_str()), (ConditionStatus::Unknown, "LaunchFailed"));
        assert!(message.contains("none left"), "{message}");
        let (to, work, delay, _) = world.fake.sent.borrow_mut().pop().expect("tried again");
        assert_eq!((to, work.depth), (Concern::Launch, depth + 1));
        delays.push(delay.as_secs());
    }
    assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test] // lifecycle 3.1, case 5
fn an_answer_that_could_not_be_written_is_not_bought_again() {
    let world = World::new(1);
    world.fake.fail("patch-status NodeClaim/a-0", "InternalError");
    world.run().expect("it lives");
    assert_eq!(world.claim("a-0").expect("there").status.provider_id.as_str(), "");
    assert_eq!(world.instances.borrow().len(), 1);
    world.fake.mend("patch-status NodeClaim/a-0");
    world.set_now(at(1));
    world.run().expect("it lives");
    let claim = world.claim("a-0").expect("there");
    assert_eq!(claim.status.provider_id.as_str(), "aws:///us-west-2a/i-00000000000000001");
    assert!(claim.is_true(NodeClaim::LAUNCHED));
    assert_eq!((world.fleets.borrow().len(), world.instances.borrow().len()), (1, 1));
}

#[test] // aws-capacity 15, case 11: what EC2 says of more than it takes
fn user_data_that_is_too_big() {
    let world = World::new(1);
    world.change_class(|class| {
        class.spec.ami_family = Some("Custom".into());
        class.spec.user_data = Some("x".repeat(17_000));
    });
    let mut refused = error("InvalidUserData.Malformed", "m5.large", "us-west-2a");
    refused.message = "User data is limited to 16384 bytes".into();
    world.script.borrow_mut().push(Script::Errors(vec![refused]));
    world.run().expect("it lives");
    assert_eq!(launched(&world, "a-0").1, "UserDataSizeLimitExceeded");
    assert_eq!(
        world.fake.samples("karpenter_ec2nodeclasses_userdata_bytes"),
        ["karpenter_ec2nodeclasses_userdata_bytes{nodeclass=default} 17000"]
    );
}

const FAILURES: &str = "karpenter_cloudprovider_instance_launch_failures_total";
const ERRORS: &str = "karpenter_cloudprovider_errors_total";

#[test] // aws-capacity 23, case 3
fn failures_are_counted_by_zone_capacity_type_and_reason() {
    let world = World::new(1);
    let throttled = || error("RequestLimitExceeded", "m5.large", "us-west-2a");
    world.script.borrow_mut().push(Script::Errors(vec![throttled(), throttled()]));
    world.run().expect("it lives");
    let one = format!(
        "{FAILURES}{{zone=us-west-2a,zone_id=usw2-az2,capacity_type=on-demand,reason=RequestLimitExceeded}} 1"
    );
    assert_eq!(world.fake.samples(FAILURES), [one.clone(), one]);
    let created = |error: &str| {
        format!(
            "{ERRORS}{{controller=nodeclaim.lifecycle,method=Create,provider=aws,error={error}}} 1"
        )
    };
    assert_eq!(world.fake.samples(ERRORS), [created("")]);

    let world = World::new(1);
    world.script.borrow_mut().push(Script::Errors(vec![ice("m5.large", "us-west-2a")]));
    world.run().expect("it lives");
    assert_eq!(world.fake.samples(ERRORS), [created("InsufficientCapacityError")]);
}

#[test] // aws-capacity 23, case 7: a fleet takes a hundred claims at most, each is one observation
fn claims_of_a_fleet_are_measured() {
    let world = World::new(300);
    world.run().expect("it lives");
    let name = "karpenter_cloudprovider_batcher_batch_size";
    let hundred = format!("{name}{{batcher=create_fleet}} 100");
    assert_eq!(world.fake.samples(name), [hundred.clone(), hundred.clone(), hundred]);
}

#[test] // aws-capacity 24, case 6
fn nodes_that_a_dead_process_left_out_are_made() {
    let mut world = World::new(10);
    world.settings.ec2_mode = "kwok".into();
    let profile = Profile::default();
    let run = |seconds: i64, body: &str| {
        world.set_now(at(seconds));
        let cx = world.invocation();
        let ec2 = Kwok::new(&world, &world.fake, Some(&profile), &cx);
        let mut batch = world.message(&[]);
        batch.records[0].body = body.to_owned();
        let fake = &world.fake;
        let run = spokeshave_launch_function::handle(&batch, fake, &ec2, fake, fake, &cx);
        assert!(block_on(run).failures.is_empty());
    };
    let nodes = || {
        let objects = world.fake.objects.borrow();
        let nodes = objects.keys().filter(|it| it.starts_with("Node/"));
        nodes.cloned().collect::<Vec<String>>()
    };
    let sweep = r#"{"reason":"Sweep"}"#;
    run(0, sweep);
    run(40, sweep);
    let all = nodes();
    assert_eq!(all.len(), 10);
    for name in &all[..2] {
        world.fake.objects.borrow_mut().remove(name);
    }
    world.fake.calls.borrow_mut().clear();
    run(50, sweep);
    assert_eq!(nodes(), all);
    let calls = world.fake.calls.borrow();
    assert_eq!(calls.iter().filter(|it| it.starts_with("create Node")).count(), 2, "{calls:?}");
}

#[test] // aws-capacity 20, case 8: nobody can ask for two; a fleet's target is the number of its claims
fn a_claim_is_one_instance() {
    for count in [1, 2, 7] {
        let world = World::new(count);
        world.run().expect("it lives");
        let targets: Vec<i64> = world.requests.borrow().iter().map(|it| it.target).collect();
        assert_eq!(targets, [count as i64]);
        let attempts = spokeshave_catalog::launch::attempt::PARTITION;
        let records = world.fake.records.borrow();
        let stored = records.iter().filter(|it| it.0.partition == attempts);
        for (_, record) in stored {
            let claims = record.data["claims"].as_object().map_or(0, serde_json::Map::len);
            assert_eq!(record.data["request"]["target"], claims);
        }
        assert_eq!(world.alive().len(), count);
    }
}

#[test] // aws-capacity 23, case 5: nothing is held for a class, so a deleted one has no gauge left
fn a_deleted_class_is_measured_no_more() {
    let world = World::new(1);
    world.run().expect("it lives");
    let gauge = "karpenter_ec2nodeclasses_userdata_bytes";
    assert_eq!(world.fake.samples(gauge).len(), 1);
    world.fake.metrics.borrow_mut().clear();
    world.fake.objects.borrow_mut().remove("EC2NodeClass/default");
    world.fake.add_json::<NodeClaim>(common::claim("b-0", 7, "a"));
    world.set_now(at(30));
    world.run().expect("it lives");
    assert_eq!(world.fake.samples(gauge), [""; 0]);
}

#[test] // No fleet is asked for without time left to record what it brought.
fn a_run_that_is_nearly_over_leaves_the_next_fleet_to_another() {
    let world = World::new(1);
    for (n, pool) in ["b", "c"].into_iter().enumerate() {
        world.fake.add_json::<NodeClaim>(common::claim(&format!("{pool}-0"), n, pool));
    }
    // Of a minute, two fleets leave eight seconds.
    world.fleet_takes.set(26);
    assert_eq!(world.run().expect("it lives").failures, []);
    assert_eq!(world.requests.borrow().len(), 2);
    let postponed: Vec<String> = {
        let decisions = world.fake.decisions.borrow();
        let of = decisions.iter().filter(|it| it.action == "postpone");
        of.map(|it| format!("{}: {}", it.object, it.reason)).collect()
    };
    assert_eq!(postponed, ["NodeClaim/c-0: less than 10 s are left"]);
    {
        let sent = world.fake.sent.borrow();
        let (to, work, delay, _) = sent.last().expect("a message");
        let names: Vec<&str> = work.keys.iter().map(|it| it.name.as_str()).collect();
        assert_eq!((*to, delay.as_secs(), names), (Concern::Launch, 1, vec!["c-0"]));
    }
    // Nothing was begun for it, so the next run is free to.
    let claim = world.claim("c-0").expect("there");
    assert_eq!(claim.metadata.annotation(labels::LAUNCH_ATTEMPT), None);
    world.now.set(at(60));
    world.fake.now.set(at(60));
    world.run().expect("it lives");
    assert_eq!((world.requests.borrow().len(), world.alive().len()), (3, 3));
}

#[test]
fn a_limit_that_is_too_short_for_any_fleet_holds_up_nothing() {
    let world = World::new(1);
    world.fake.now.set(at(55));
    world.run().expect("it lives");
    assert_eq!(world.alive().len(), 1);
}
