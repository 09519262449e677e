//! The handler against small fakes: what it calls, what it writes, and what a second run does.

mod failures;
mod takeover;
mod world;

use jiff::SignedDuration;
use serde_json::json;
use spokeshave_model::{EC2NodeClass, NodeClaim, NodePool, Requirement, conditions, hash, labels};
use spokeshave_nodeclass::drift;
use spokeshave_ports::{StateKey, StateTable, When, fake::block_on};

use self::world::World;

fn condition(class: &EC2NodeClass, type_: &str) -> String {
    let it = conditions::find(&class.status.conditions, type_).expect(type_);
    format!("{:?} {} {}", it.status, it.reason, it.message)
}

#[test] // aws-nodeclass 2, case 1; 15, case 5
fn a_new_class_becomes_ready() {
    let world = World::new();
    world.add_class(json!({}));
    world.run("default");
    let class = world.class();
    assert_eq!(condition(&class, "Ready"), "True Ready ");
    assert_eq!(class.metadata.finalizers, ["karpenter.k8s.aws/termination"]);
    assert_eq!(
        class.metadata.annotations["karpenter.k8s.aws/ec2nodeclass-hash"],
        hash::ec2_node_class(&class, "QUJD")
    );
    assert_eq!(class.metadata.annotations["karpenter.k8s.aws/ec2nodeclass-hash-version"], "v6");
    assert_eq!(
        world.fake.calls.borrow().iter().filter(|it| it.contains("EC2NodeClass")).count(),
        2,
        "finalizer with hash, then the status"
    );
    assert_eq!(
        class.status.subnets.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(),
        ["subnet-b", "subnet-a"]
    );
    assert_eq!(class.status.amis.len(), 2);
    let name = class.status.instance_profile.clone();
    assert!(name.starts_with("demo_"), "{name}");
    assert_eq!(
        world.aws.mutations(),
        [
            format!("CreateInstanceProfile {name} /karpenter/eu-west-1/demo/uid-1/"),
            format!("AddRoleToInstanceProfile {name} R"),
        ]
    );

    // The second run changes nothing and asks IAM nothing.
    world.aws.calls.borrow_mut().clear();
    world.fake.calls.borrow_mut().clear();
    world.run("default");
    assert!(world.fake.calls.borrow().iter().all(|it| !it.contains("EC2NodeClass")));
    assert!(world.aws.calls.borrow().iter().all(|it| !it.contains("Profile")));
    assert!(world.fake.sent.borrow().is_empty(), "a class that is well needs no wake-up");
}

#[test] // aws-nodeclass 2, case 2
fn a_conflict_stops_before_anything_is_made() {
    let world = World::new();
    world.add_class(json!({}));
    world.fake.fail("patch EC2NodeClass/default", "Conflict");
    world.run("default");
    assert!(world.aws.mutations().is_empty());
    assert!(world.aws.calls.borrow().iter().all(|it| it == "DescribeCluster"));
    let sent = world.fake.sent.borrow();
    assert_eq!(sent[0].1.reason, "Retry");
}

#[test] // aws-nodeclass 2, case 3
fn what_was_found_is_written_although_a_call_failed() {
    let world = World::new();
    world.add_class(json!({}));
    world.aws.refuse("DescribeSubnets", "RequestLimitExceeded");
    world.run("default");
    let class = world.class();
    assert!(condition(&class, "AMIsReady").starts_with("True"));
    assert!(condition(&class, "SubnetsReady").starts_with("Unknown"));
    assert!(condition(&class, "ValidationSucceeded").starts_with("Unknown DependenciesNotReady"));
    assert_eq!(world.fake.sent.borrow()[0].1.reason, "Retry");
    world.aws.mend("DescribeSubnets");
    world.run("default");
    assert_eq!(condition(&world.class(), "Ready"), "True Ready ");
    // An outage does not turn a working class.
    world.aws.refuse("DescribeSubnets", "RequestLimitExceeded");
    world.run("default");
    assert_eq!(condition(&world.class(), "Ready"), "True Ready ");
}

#[test] // aws-nodeclass 2, cases 5 and 7
fn the_shortest_delay_counts_and_a_conflict_hides_other_errors() {
    let world = World::new();
    world.add_class(json!({"amiFamily": "AL2023", "amiSelectorTerms": [{"id": "ami-none"}]}));
    world.run("default");
    assert_eq!(
        condition(&world.class(), "AMIsReady"),
        "False AMINotFound AMISelector did not match any AMIs"
    );
    assert!(condition(&world.class(), "SubnetsReady").starts_with("True"));
    let delays = || -> Vec<(String, i64)> {
        let sent = world.fake.sent.borrow();
        sent.iter().map(|(_, work, delay, _)| (work.reason.clone(), delay.as_secs())).collect()
    };
    assert_eq!(delays(), [("Wake".to_owned(), 60)]);

    // The status is refused while images cannot be read: only the conflict is told, and the class is looked at again.
    world.fake.sent.borrow_mut().clear();
    world.fake.decisions.borrow_mut().clear();
    world.edit_class(|class| class.metadata.generation = 2);
    world.aws.refuse("DescribeImages", "UnauthorizedOperation");
    world.fake.fail("patch-status EC2NodeClass/default", "Conflict");
    world.run("default");
    assert_eq!(delays().len(), 1);
    assert_eq!(delays()[0].0, "Retry");
    let decisions = world.fake.decisions.borrow();
    assert!(decisions.iter().all(|it| !it.reason.contains("UnauthorizedOperation")));
}

#[test] // aws-nodeclass 26, case 5
fn transitions_are_counted_with_the_time_in_the_status_that_was_left() {
    let world = World::new();
    world.add_class(json!({}));
    world.run("default");
    world.fake.metrics.borrow_mut().clear();
    world.edit_class(|class| {
        class.spec.security_group_selector_terms =
            serde_json::from_value(json!([{"id": "sg-none"}])).expect("terms");
        class.metadata.generation = 2;
    });
    world.later(90);
    world.run("default");
    let counted = world.fake.samples("operator_ec2nodeclass_status_condition_transitions_total");
    let named = |type_: &str, status: &str, reason: &str| {
        format!(
            "operator_ec2nodeclass_status_condition_transitions_total{{type={type_},status={status},reason={reason}}} 1"
        )
    };
    for wanted in [
        named("SecurityGroupsReady", "False", "SecurityGroupsNotFound"),
        named("ValidationSucceeded", "False", "DependenciesNotReady"),
        named("Ready", "False", "UnhealthyDependents"),
    ] {
        assert!(counted.contains(&wanted), "{wanted}: {counted:?}");
    }
    assert_eq!(counted.len(), 3);
    let lasted = world.fake.samples("operator_ec2nodeclass_status_condition_transition_seconds");
    assert!(
        lasted.contains(
            &"operator_ec2nodeclass_status_condition_transition_seconds{type=SecurityGroupsReady,status=True} 90"
                .to_owned()
        ),
        "{lasted:?}"
    );
}

#[test] // aws-nodeclass 26, case 4
fn every_condition_is_one_series() {
    let world = World::new();
    world.add_class(json!({}));
    world.run("default");
    world.fake.metrics.borrow_mut().clear();
    world.later(90);
    world.run("default");
    let series = |type_: &str, reason: &str, value: u32, seconds: bool| {
        let what = if seconds { "current_status_seconds" } else { "count" };
        format!(
            "operator_ec2nodeclass_status_condition_{what}{{namespace=,name=default,type={type_},status=True,reason={reason}}} {value}"
        )
    };
    let types = [
        "AMIsReady",
        "CapacityReservationsReady",
        "InstanceProfileReady",
        "PlacementGroupReady",
        "Ready",
        "SecurityGroupsReady",
        "SubnetsReady",
        "ValidationSucceeded",
    ];
    for (seconds, value, what) in [(false, 1, "count"), (true, 90, "current_status_seconds")] {
        let name = format!("operator_ec2nodeclass_status_condition_{what}");
        let mut told = world.fake.samples(&name);
        told.sort();
        let wanted: Vec<String> = types.iter().map(|it| series(it, it, value, seconds)).collect();
        assert_eq!(told, wanted);
    }
    // A class that goes has its own; once it is gone there are none.
    world.edit_class(|class| {
        class.metadata.deletion_timestamp = class.metadata.creation_timestamp;
    });
    world.fake.metrics.borrow_mut().clear();
    world.run("default");
    assert!(world.fake.samples("operator_ec2nodeclass_status_condition_count").is_empty());
    assert_eq!(
        world.fake.samples("operator_ec2nodeclass_termination_current_time_seconds").len(),
        1
    );
    world.fake.metrics.borrow_mut().clear();
    world.run("default");
    assert!(world.fake.metrics.borrow().iter().all(|it| !it.name.starts_with("operator_")));
}

#[test] // aws-nodeclass 4, case 4; B-087
fn what_is_missing_is_looked_for_again_a_few_times() {
    let world = World::new();
    world.add_class(json!({"securityGroupSelectorTerms": [{"id": "sg-none"}]}));
    world.run("default");
    assert_eq!(
        condition(&world.class(), "SecurityGroupsReady"),
        "False SecurityGroupsNotFound SecurityGroupSelector did not match any SecurityGroups"
    );
    assert_eq!(
        condition(&world.class(), "ValidationSucceeded"),
        "False DependenciesNotReady Awaiting AMI, Instance Profile, Security Group, and Subnet resolution"
    );
    {
        let sent = world.fake.sent.borrow();
        assert_eq!((sent.len(), sent[0].1.reason.as_str(), sent[0].2.as_secs()), (1, "Wake", 60));
    }
    // The third wake-up in a row sends no fourth.
    world.fake.sent.borrow_mut().clear();
    world.later(60);
    world.run_wake("default", 3);
    assert!(world.fake.sent.borrow().is_empty());
}

#[test] // aws-nodeclass 6, cases 1, 2 and 8
fn images_by_alias_and_by_parameter() {
    let world = World::new();
    world.add_class(json!({"amiSelectorTerms": [{"alias": "al2@latest"}]}));
    world.run("default");
    assert!(
        condition(&world.class(), "AMIsReady").starts_with("False UnsupportedAlias AL2 images")
    );
    assert!(!world.aws.calls.borrow().iter().any(|it| it.starts_with("GetParameter")));

    let world = World::new();
    world.add_class(json!({
        "amiFamily": "AL2023",
        "amiSelectorTerms": [{"ssmParameter": "/mine"}],
    }));
    world.aws.parameters.borrow_mut().insert("/mine".into(), "lt-0abc".into());
    world.run("default");
    assert_eq!(
        condition(&world.class(), "AMIsReady"),
        "False AMINotFound AMISelector did not match any AMIs"
    );
    assert!(!world.aws.calls.borrow().iter().any(|it| it.starts_with("DescribeImages")));
}

#[test] // B-034: a release that is not published for the cluster's version, and then an upgrade of the cluster
fn a_pinned_release_that_is_not_published_is_said_and_drifts_nobody() {
    let ids = |world: &World| -> Vec<String> {
        world.class().status.amis.iter().map(|it| it.id.clone()).collect()
    };
    let runs_on = |class: &EC2NodeClass, image: &str| {
        let claim: NodeClaim =
            serde_json::from_value(json!({"status": {"imageID": image}})).expect("a claim");
        let intel = [Requirement::equals(labels::ARCH, "amd64")].into_iter().collect();
        drift::ami_drift(class, &claim, Some(&intel))
    };
    let world = World::new();
    world.aws.kubernetes.replace("1.35".into());
    world.add_class(json!({"amiSelectorTerms": [{"alias": "al2023@v20241213"}]}));
    let unpublished =
        "False AMINotFound failed to discover any AMIs for alias \"al2023@v20241213\"";
    world.run("default");
    assert_eq!(condition(&world.class(), "AMIsReady"), unpublished);
    let ready = condition(&world.class(), "Ready");
    assert!(ready.starts_with("False UnhealthyDependents") && ready.contains("AMIsReady=False"));
    {
        let sent = world.fake.sent.borrow();
        assert_eq!((sent.len(), sent[0].1.reason.as_str(), sent[0].2.as_secs()), (1, "Wake", 60));
    }
    // Each run asks anew, so what is published later is found by itself. One variant of five is enough.
    let path = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/\
                amazon-eks-node-al2023-x86_64-standard-1.35-v20241213/image_id";
    world.aws.parameters.borrow_mut().insert(path.into(), "ami-std-x".into());
    world.later(300);
    world.run_all();
    assert_eq!(condition(&world.class(), "Ready"), "True Ready ");
    assert_eq!(ids(&world), ["ami-std-x"]);
    // An upgrade beyond what the pinned release serves: no launches, and no drift of what runs.
    world.aws.kubernetes.replace("1.36".into());
    world.later(300);
    world.run_all();
    let class = world.class();
    assert_eq!(condition(&class, "AMIsReady"), unpublished);
    assert_eq!(runs_on(&class, "ami-std-x"), Ok(false));

    for alias in ["bottlerocket@1.48.0", "bottlerocket@v1.48.0"] {
        let world = World::new();
        let path = "/aws/service/bottlerocket/aws-k8s-1.34/x86_64/1.48.0/image_id";
        world.aws.parameters.borrow_mut().insert(path.into(), "ami-std-x".into());
        world.add_class(json!({"amiSelectorTerms": [{"alias": alias}]}));
        world.run("default");
        assert_eq!(ids(&world), ["ami-std-x", "ami-std-x"], "{alias}: standard and neuron");
        assert_eq!(condition(&world.class(), "Ready"), "True Ready ", "{alias}");
    }

    // `latest` follows the cluster at once, long before the remembered parameters run out.
    let world = World::new();
    world.add_class(json!({}));
    world.run("default");
    assert_eq!(runs_on(&world.class(), "ami-std-x"), Ok(false));
    world.aws.kubernetes.replace("1.35".into());
    let path = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/recommended/image_id";
    world.aws.parameters.borrow_mut().insert(path.into(), "ami-new-x".into());
    world.later(300);
    world.run_all();
    assert_eq!(ids(&world), ["ami-new-x", "ami-std-a"]);
    assert_eq!(runs_on(&world.class(), "ami-std-x"), Ok(true));
}

#[test] // aws-nodeclass 6.2, the BETTER; 31
fn a_throttled_parameter_keeps_the_images() {
    let world = World::new();
    world.add_class(json!({}));
    world.run("default");
    let before = world.class().status.amis;
    world.later(25 * 3600);
    world.aws.refuse("GetParameter", "ThrottlingException");
    world.run("default");
    assert_eq!(world.class().status.amis, before);
    assert_eq!(condition(&world.class(), "AMIsReady"), "True AMIsReady ");
}

#[test] // B-034: a pinned release that is not published for this version of Kubernetes
fn an_alias_without_images_is_said_and_drifts_nobody() {
    let world = World::new();
    world.add_class(json!({}));
    world.run("default");
    let before = world.class().status.amis;
    assert!(!before.is_empty());
    world.edit_class(|class| {
        class.spec.ami_selector_terms =
            serde_json::from_value(json!([{"alias": "al2023@v20241213"}])).expect("terms");
        class.metadata.generation = 2;
    });
    world.fake.sent.borrow_mut().clear();
    world.run("default");
    let class = world.class();
    assert_eq!(
        condition(&class, "AMIsReady"),
        "False AMINotFound failed to discover any AMIs for alias \"al2023@v20241213\""
    );
    assert!(condition(&class, "Ready").starts_with("False UnhealthyDependents"));
    assert_eq!(
        class.status.amis, before,
        "running nodes are held against the images that there were"
    );
    let again = world.fake.sent.borrow().iter().map(|it| it.2.as_secs()).collect::<Vec<_>>();
    assert_eq!(again, [60], "it is looked for again");
    // One variant is enough.
    let path = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/\
                amazon-eks-node-al2023-x86_64-standard-1.34-v20241213/image_id";
    world.aws.parameters.borrow_mut().insert(path.into(), "ami-std-x".into());
    world.run("default");
    assert_eq!(condition(&world.class(), "AMIsReady"), "True AMIsReady ");
    assert_eq!(world.class().status.amis.len(), 1);
}

#[test] // aws-nodeclass 15, cases 6 and 7
fn another_role_gets_another_profile() {
    let world = World::new();
    world.add_class(json!({}));
    world.run("default");
    let first = world.class().status.instance_profile;
    world.edit_class(|it| it.spec.role = Some("S".into()));
    world.later(1);
    world.run("default");
    let second = world.class().status.instance_profile;
    assert_ne!(first, second);
    for name in [&first, &second] {
        let key = StateKey::new("profile-protected", name);
        let record = block_on(StateTable::read(&world.fake, &key)).expect("reads");
        assert!(record.is_some(), "{name} is protected");
        assert!(world.aws.profiles.borrow().contains_key(name));
    }
    assert_eq!(world.aws.profiles.borrow()[&first].roles, ["R"]);

    // The status was lost: the profile is not made again.
    world.edit_class(|it| it.status.instance_profile = first.clone());
    world.aws.calls.borrow_mut().clear();
    world.run("default");
    assert_eq!(world.class().status.instance_profile, second);
    assert!(world.aws.mutations().is_empty());
}

#[test] // aws-nodeclass 15, case 8; B-062; B-064
fn a_missing_role_is_said_and_leaves_nothing_behind() {
    let world = World::new();
    world.add_class(json!({"role": "path/to/gone"}));
    for second in 0..20 {
        world.run("default");
        world.later(second * 10);
    }
    assert!(world.aws.profiles.borrow().is_empty());
    assert_eq!(
        condition(&world.class(), "InstanceProfileReady"),
        "False RoleNotFound IAM does not know the role \"gone\"; name one that exists in spec.role, or create it"
    );
    let calls = world.aws.calls.borrow();
    let created = calls.iter().filter(|it| it.starts_with("CreateInstanceProfile")).count();
    assert!(created <= 20 && created > 1, "{created}");
    assert!(calls.iter().any(|it| it.ends_with(" gone")), "the role is named without its path");
}

#[test] // B-064: why there is no profile, in AWS' words
fn each_reason_why_there_is_no_profile_is_told_apart() {
    let (quota, allow) = (
        "not retryable); ask AWS for a higher quota, or delete what is not needed any more",
        "not retryable); allow the call to the function's role, or find the policy that denies it",
    );
    for (role, call, code, reason, advice) in [
        ("R", "CreateInstanceProfile", "LimitExceeded", "InstanceProfileQuotaExceeded", quota),
        ("R", "AddRoleToInstanceProfile", "AccessDenied", "InstanceProfileNotAuthorized", allow),
        ("gone", "", "", "RoleNotFound", "name one that exists in spec.role, or create it"),
    ] {
        let world = World::new();
        world.add_class(json!({"role": role}));
        if !call.is_empty() {
            world.aws.refuse(call, code);
        }
        for _ in 0..20 {
            world.run("default");
            world.later(61);
        }
        let text = match code {
            "" => "IAM does not know the role \"gone\"".to_owned(),
            code => format!("{code}: told to fail (aws:{call}, request id r-"),
        };
        let said = condition(&world.class(), "InstanceProfileReady");
        assert!(said.starts_with(&format!("False {reason} {text}")), "{said}");
        assert!(said.ends_with(advice), "{said}");
        assert!(world.aws.profiles.borrow().len() <= 1, "{reason}");
    }
}

#[test] // B-087: the object is never edited, and what failed works again after a minute
fn a_fault_that_passes_leaves_no_class_behind() {
    let world = World::new();
    world.add_class(json!({}));
    world.aws.refuse("DescribeCluster", "ServerException");
    world.run("default");
    assert!(!condition(&world.class(), "Ready").starts_with("True"));
    let sent = world.fake.sent.take();
    assert!(!sent.is_empty() && sent.iter().all(|it| it.2.as_secs() <= 60), "{sent:?}");
    world.later(60);
    world.aws.mend("DescribeCluster");
    for (_, work, _, _) in &sent {
        world.run_bodies(&[&serde_json::to_string(work).expect("plain data")]);
    }
    assert_eq!(condition(&world.class(), "Ready"), "True Ready ");
}

#[test] // B-062: attaching fails, and so does taking it back
fn a_profile_left_behind_is_used_by_the_next_try() {
    let world = World::new();
    world.add_class(json!({}));
    world.aws.refuse("AddRoleToInstanceProfile", "AccessDenied");
    world.aws.refuse("DeleteInstanceProfile", "Throttling");
    for _ in 0..5 {
        world.run("default");
        world.later(61);
    }
    assert_eq!(world.aws.profiles.borrow().len(), 1);
    let said = condition(&world.class(), "InstanceProfileReady");
    assert!(
        said.starts_with("False InstanceProfileNotAuthorized AccessDenied: told to fail ("),
        "{said}"
    );
    world.aws.mend("AddRoleToInstanceProfile");
    world.run("default");
    assert_eq!(world.aws.profiles.borrow().len(), 1);
    assert_eq!(condition(&world.class(), "Ready"), "True Ready ");
}

#[test] // aws-nodeclass 15.2: a profile of the user's
fn a_given_profile_asks_iam_nothing() {
    let world = World::new();
    world.add_class(json!({"role": null, "instanceProfile": "mine"}));
    world.run("default");
    assert_eq!(world.class().status.instance_profile, "mine");
    assert!(!world.aws.calls.borrow().iter().any(|it| it.contains("Profile")));
}

#[test] // aws-nodeclass 8, cases 1 and 7; aws-capacity 21, cases 4 and 5
fn the_dry_runs_decide_once() {
    let world = World::with_dry_run();
    world.add_class(json!({}));
    world.run("default");
    assert_eq!(condition(&world.class(), "Ready"), "True Ready ");
    let asked = |world: &World| -> Vec<String> {
        let calls = world.aws.calls.borrow();
        let of_launch = |it: &&String| {
            ["LaunchTemplate", "Fleet", "RunInstances"].iter().any(|part| it.contains(part))
        };
        calls
            .iter()
            .filter(of_launch)
            .map(|it| it.split(' ').next().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(
        asked(&world),
        ["CreateLaunchTemplate", "CreateFleet", "RunInstances", "DeleteLaunchTemplate"]
    );
    world.aws.calls.borrow_mut().clear();
    world.run("default");
    assert!(asked(&world).is_empty(), "the verdict is remembered");
    world.edit_class(|it| {
        it.metadata.annotations.insert("retry".into(), "1".into());
    });
    world.aws.refuse("CreateFleet", "UnauthorizedOperation");
    world.run("default");
    let said = condition(&world.class(), "ValidationSucceeded");
    assert!(
        said.starts_with(
            "False CreateFleetAuthCheckFailed Controller isn't authorized to call ec2:CreateFleet: User is not authorized to perform this operation because no identity-based policy allows it; UnauthorizedOperation: "
        ),
        "{said}"
    );
    // The first subnet is refused, the second passes.
    world.aws.mend("CreateFleet");
    world.edit_class(|it| {
        it.metadata.annotations.insert("retry".into(), "2".into());
    });
    world.aws.refuse("RunInstances subnet-b", "UnauthorizedOperation");
    world.run("default");
    assert_eq!(condition(&world.class(), "Ready"), "True Ready ");
}

#[test] // aws-nodeclass 8, cases 3 and 4; aws-capacity 21, case 6
fn no_verdict_is_no_change() {
    let world = World::with_dry_run();
    world.add_class(json!({}));
    world.aws.refuse("CreateFleet", "RequestLimitExceeded");
    world.run("default");
    assert!(condition(&world.class(), "ValidationSucceeded").starts_with("Unknown"));
    assert_eq!(world.fake.sent.borrow()[0].1.reason, "Retry");
    assert!(world.aws.templates.borrow().is_empty(), "nothing is left behind");
}

#[test] // aws-nodeclass 8, case 5; 7
fn kubelet_settings_are_checked() {
    for (kubelet, family, want) in [
        (
            json!({"maxPod": 5}),
            "AL2023",
            "False InvalidKubeletConfiguration spec.kubelet: unknown field \"maxPod\"",
        ),
        (
            json!({"registryPullQPS": 10}),
            "Bottlerocket",
            "False UnsupportedKubeletConfiguration spec.kubelet has fields not applied by the Bottlerocket AMI family that would be silently dropped: registryPullQPS",
        ),
        (json!({"registryPullQPS": 10}), "AL2023", "True ValidationSucceeded "),
    ] {
        let world = World::new();
        world.add_class(json!({
            "amiFamily": family,
            "amiSelectorTerms": [{"id": "ami-std-x"}],
            "kubelet": kubelet,
        }));
        world.run("default");
        assert_eq!(condition(&world.class(), "ValidationSucceeded"), want);
    }
}

#[test] // B-037 c; B-040
fn user_data_that_cannot_be_rendered_is_said_on_the_class() {
    let world = World::new();
    world.add_class(json!({
        "userData": "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n--B\nA: b\n\nx\n--B--\n",
    }));
    world.run("default");
    assert_eq!(
        condition(&world.class(), "ValidationSucceeded"),
        "False InvalidUserData spec.userData: the MIME header is not followed by an empty line"
    );
    // Without an answer about DNS nothing is said.
    let world = World::new();
    world.add_class(json!({}));
    world.fake.fail("get Service/kube-system/kube-dns", "Unavailable");
    world.run("default");
    assert!(condition(&world.class(), "ValidationSucceeded").starts_with("Unknown"));
}

#[test] // aws-nodeclass 16, cases 1, 2, 6 and 8; api 13, case 8
fn a_class_goes_after_its_claims() {
    let world = World::new();
    world.add_class(json!({}));
    world.run("default");
    world.aws.add_template("karpenter.k8s.aws/1", "default");
    world.aws.add_template("karpenter.k8s.aws/2", "other");
    world.fake.add_json::<NodeClaim>(world::claim("nc-1"));
    world.edit_class(|it| it.metadata.deletion_timestamp = Some(world.fake.now.get()));
    world.run("default");
    assert!(!world.class().metadata.finalizers.is_empty());
    assert!(
        world
            .fake
            .event_reasons()
            .contains(&"EC2NodeClass/default WaitingOnNodeClaimTermination".to_owned())
    );
    world.fake.objects.borrow_mut().remove("NodeClaim/nc-1");

    world.aws.refuse("DeleteLaunchTemplate", "RequestLimitExceeded");
    world.run("default");
    assert!(!world.class().metadata.finalizers.is_empty(), "retried");
    world.aws.mend("DeleteLaunchTemplate");
    world.run("default");
    assert!(
        world
            .fake
            .object::<EC2NodeClass>("default")
            .is_none_or(|it| it.metadata.finalizers.is_empty())
    );
    assert!(world.aws.profiles.borrow().is_empty());
    assert_eq!(
        world.aws.templates.borrow().keys().cloned().collect::<Vec<_>>(),
        ["karpenter.k8s.aws/2"]
    );
}

#[test] // api 17, cases 3 and 4: a class that is seen for the first time
fn claims_of_a_class_without_a_hash_are_brought_along() {
    let world = World::new();
    world.add_class(json!({}));
    for (name, hash, version, drifted) in
        [("a", "1", "v5", false), ("b", "1", "v5", true), ("c", "2", "v6", false)]
    {
        let mut claim = world::claim(name);
        claim["metadata"]["annotations"] = json!({
            "karpenter.k8s.aws/ec2nodeclass-hash": hash,
            "karpenter.k8s.aws/ec2nodeclass-hash-version": version,
        });
        if drifted {
            claim["status"] = json!({"conditions": [{"type": "Drifted", "status": "True"}]});
        }
        world.fake.add_json::<NodeClaim>(claim);
    }
    world.run("default");
    let new = hash::ec2_node_class(&world.class(), "QUJD");
    for (name, hash) in [("a", new.as_str()), ("b", "1"), ("c", "2")] {
        let claim: NodeClaim = world.fake.object(name).expect(name);
        let of = |key: &str| claim.metadata.annotation(key).map(str::to_owned);
        assert_eq!(of("karpenter.k8s.aws/ec2nodeclass-hash").as_deref(), Some(hash), "{name}");
        assert_eq!(of("karpenter.k8s.aws/ec2nodeclass-hash-version").as_deref(), Some("v6"));
    }
    let class = world.class();
    assert_eq!(class.metadata.annotation("karpenter.k8s.aws/ec2nodeclass-hash"), Some(&*new));
    assert_eq!(
        class.metadata.annotation("karpenter.k8s.aws/ec2nodeclass-hash-version"),
        Some("v6")
    );
}

#[test] // B-059
fn a_template_that_is_gone_already_holds_no_class() {
    for code in ["InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateName.NotFoundException"]
    {
        let world = World::new();
        world.add_class(json!({}));
        world.run("default");
        world.aws.add_template("karpenter.k8s.aws/1", "default");
        world.edit_class(|it| it.metadata.deletion_timestamp = Some(world.fake.now.get()));
        world.aws.refuse("DeleteLaunchTemplate", code);
        world.fake.sent.borrow_mut().clear();
        world.run("default");
        let left = world.fake.object::<EC2NodeClass>("default");
        assert!(left.is_none_or(|it| it.metadata.finalizers.is_empty()), "{code}");
        assert!(world.fake.sent.borrow().is_empty(), "{code}: nothing is left to do");
    }
}

#[test] // aws-nodeclass 17, cases 11 and 13; api 17, cases 3 and 10
fn a_new_formula_drifts_nobody() {
    for older in ["v5", "v4", "v3", "v1"] {
        a_formula_older_than_ours(older);
    }
}

fn a_formula_older_than_ours(older: &str) {
    let world = World::new();
    world.add_class(json!({}));
    let old = |it: &mut EC2NodeClass| {
        let annotations = &mut it.metadata.annotations;
        annotations.insert("karpenter.k8s.aws/ec2nodeclass-hash".into(), "1".into());
        annotations.insert("karpenter.k8s.aws/ec2nodeclass-hash-version".into(), older.into());
    };
    world.edit_class(old);
    for (name, drifted) in [("x", false), ("y", true)] {
        let mut claim = world::claim(name);
        claim["metadata"]["annotations"] = json!({
            "karpenter.k8s.aws/ec2nodeclass-hash": "1",
            "karpenter.k8s.aws/ec2nodeclass-hash-version": older,
        });
        if drifted {
            claim["status"] = json!({"conditions": [{"type": "Drifted", "status": "True"}]});
        }
        world.fake.add_json::<NodeClaim>(claim);
    }
    world.fake.fail("patch NodeClaim/x", "Unavailable");
    world.run("default");
    let version = |world: &World, name: &str| {
        let claim: NodeClaim = world.fake.object(name).expect(name);
        let of = |key: &str| claim.metadata.annotations[key].clone();
        (
            of("karpenter.k8s.aws/ec2nodeclass-hash-version"),
            of("karpenter.k8s.aws/ec2nodeclass-hash"),
        )
    };
    assert_eq!(world.class().metadata.annotations["karpenter.k8s.aws/ec2nodeclass-hash"], "1");
    assert_eq!(version(&world, "y"), ("v6".into(), "1".into()));
    world.fake.mend("patch NodeClaim/x");
    world.run("default");
    let new = hash::ec2_node_class(&world.class(), "QUJD");
    assert_eq!(version(&world, "x"), ("v6".into(), new.clone()));
    assert_eq!(version(&world, "y"), ("v6".into(), "1".into()));
    assert_eq!(world.class().metadata.annotations["karpenter.k8s.aws/ec2nodeclass-hash"], new);
    // Once more: nothing is left to be brought along.
    world.fake.calls.borrow_mut().clear();
    world.run("default");
    assert!(world.fake.calls.borrow().iter().all(|it| !it.starts_with("patch")), "{older}");
}

#[test] // aws-capacity 11, cases 3 and 7; aws-nodeclass 4, cases 8 and 9
fn a_placement_group_is_remembered() {
    let world = World::new();
    world.add_class(json!({"placementGroupSelector": {"name": "pg-a"}}));
    world.run("default");
    assert!(
        condition(&world.class(), "PlacementGroupReady")
            .starts_with("False PlacementGroupNotFound Placement group \"pg-a\" not found")
    );
    world.aws.add_group("pg-a");
    world.run("default");
    assert_eq!(condition(&world.class(), "PlacementGroupReady"), "True PlacementGroupReady ");
    world.aws.refuse("DescribePlacementGroups", "RequestLimitExceeded");
    world.later(60);
    world.run("default");
    assert_eq!(condition(&world.class(), "PlacementGroupReady"), "True PlacementGroupReady ");
    block_on(StateTable::remove(
        &world.fake,
        &StateKey::new("placement-group", "pg-a"),
        When::Always,
    ))
    .expect("removes");
    world.run("default");
    let said = condition(&world.class(), "PlacementGroupReady");
    let told = "False PlacementGroupResolutionFailed Failed to resolve placement group: RequestLimitExceeded: ";
    assert!(said.starts_with(told), "{said}");
    // So nothing is launched without the group.
    assert!(condition(&world.class(), "Ready").starts_with("False"));
}

#[test] // aws-capacity 11, case 4
fn a_placement_group_is_looked_up_once_a_minute() {
    let world = World::new();
    world.add_class(json!({"placementGroupSelector": {"name": "pg-a"}}));
    world.aws.add_group("pg-a");
    world.aws.add_group("pg-b");
    let asked = || {
        let calls = world.aws.calls.borrow();
        calls.iter().filter(|it| it.starts_with("DescribePlacementGroups")).count()
    };
    world.run("default");
    assert_eq!(asked(), 1);
    world.later(59);
    world.run("default");
    assert_eq!(asked(), 1, "within a minute");
    assert_eq!(condition(&world.class(), "PlacementGroupReady"), "True PlacementGroupReady ");
    world.edit_class(|class| {
        let selector = class.spec.placement_group_selector.as_mut().expect("there");
        selector.name = Some("pg-b".into());
    });
    world.run("default");
    assert_eq!(asked(), 2, "another selector");
    world.edit_class(|class| {
        let selector = class.spec.placement_group_selector.as_mut().expect("there");
        selector.name = Some("pg-a".into());
    });
    world.later(1);
    world.run("default");
    assert_eq!(asked(), 3, "a minute after the first");
    // What was not found is looked up every time.
    world.edit_class(|class| {
        let selector = class.spec.placement_group_selector.as_mut().expect("there");
        selector.name = Some("pg-c".into());
    });
    world.run("default");
    world.run("default");
    assert_eq!(asked(), 5);
}

#[test] // aws-nodeclass 31, case 1
fn only_one_run_makes_a_profile() {
    let world = World::new();
    world.add_class(json!({}));
    let until = world.fake.now.get().saturating_add(SignedDuration::from_mins(1)).ok();
    let lease = StateKey::new("profile-lease", "uid-1");
    block_on(StateTable::write(&world.fake, &lease, json!({}), until, When::Absent)).expect("mine");
    world.run("default");
    assert!(world.aws.mutations().is_empty());
    assert_eq!(world.fake.sent.borrow()[0].1.reason, "Retry");
}

#[test] // aws-nodeclass 21, cases 1, 2 and 5
fn reserved_claims_are_kept_honest() {
    let world = World::new();
    let mut claim = world::claim("a");
    claim["metadata"]["labels"] = json!({
        "karpenter.sh/capacity-type": "reserved",
        "karpenter.k8s.aws/capacity-reservation-id": "cr-1",
        "karpenter.k8s.aws/capacity-reservation-type": "default",
    });
    claim["status"] = json!({"providerID": "aws:///eu-west-1a/i-1"});
    world.fake.add_json::<NodeClaim>(claim);
    let mut block = world::claim("b");
    block["metadata"]["labels"] = json!({
        "karpenter.sh/capacity-type": "reserved",
        "karpenter.k8s.aws/capacity-reservation-id": "cr-block",
    });
    world.fake.add_json::<NodeClaim>(block);
    world.aws.add_block("cr-block", world.fake.now.get() + SignedDuration::from_mins(30));
    world.aws.add_instance("i-1");
    world.run_all();
    let claim: NodeClaim = world.fake.object("a").expect("there");
    assert_eq!(claim.metadata.label("karpenter.sh/capacity-type"), Some("on-demand"));
    assert_eq!(claim.metadata.label("karpenter.k8s.aws/capacity-reservation-id"), None);
    assert!(world.fake.calls.borrow().contains(&"delete NodeClaim/b".to_owned()));
}

#[test] // aws-nodeclass 21: every minute
fn reserved_capacity_is_looked_at_every_minute() {
    let world = World::new();
    world.add_class(json!({}));
    world.run_all();
    assert!(
        world.fake.sent.borrow().is_empty(),
        "without reserved capacity the schedule is enough"
    );
    world.edit_class(|class| {
        class.spec.capacity_reservation_selector_terms =
            serde_json::from_value(json!([{"id": "cr-block"}])).expect("terms");
        class.metadata.generation = 2;
    });
    world.run_all();
    let sent: Vec<(String, i64, usize)> = world
        .fake
        .sent
        .borrow()
        .iter()
        .map(|(_, work, delay, _)| (work.reason.clone(), delay.as_secs(), work.keys.len()))
        .collect();
    let minute = |n: i64| ("Minute".to_owned(), n * 60, 1);
    assert_eq!(sent, [minute(1), minute(2), minute(3), minute(4)]);

    // A claim of a block: deleted in the minute in which 40 minutes are left, not with the next schedule.
    let mut block = world::claim("b");
    block["metadata"]["labels"] = json!({
        "karpenter.sh/capacity-type": "reserved",
        "karpenter.k8s.aws/capacity-reservation-id": "cr-block",
    });
    world.fake.add_json::<NodeClaim>(block);
    let end = world.fake.now.get() + SignedDuration::from_mins(42);
    world.aws.add_block("cr-block", end);
    let deleted = || world.fake.calls.borrow().contains(&"delete NodeClaim/b".to_owned());
    world.fake.sent.borrow_mut().clear();
    world.later(119);
    world.run_bodies(&[r#"{"reason": "Minute"}"#]);
    assert!(!deleted(), "a second early");
    world.later(1);
    world.run_bodies(&[r#"{"reason": "Minute"}"#]);
    assert!(deleted());
    assert!(world.fake.sent.borrow().is_empty(), "the schedule asks for the next minutes");
}

#[test] // aws-nodeclass 18, the last BETTER
fn a_security_group_has_to_be_missing_twice() {
    let world = World::new();
    world.aws.more_security_groups.borrow_mut().insert("sg-2".into());
    world.add_class(json!({"securityGroupSelectorTerms": [{"id": "sg-1"}, {"id": "sg-2"}]}));
    let groups = || -> Vec<String> {
        world.class().status.security_groups.into_iter().map(|it| it.id).collect()
    };
    world.run("default");
    assert_eq!(groups(), ["sg-1", "sg-2"]);
    let lose = || world.aws.more_security_groups.borrow_mut().clear();
    lose();
    world.run("default");
    assert_eq!(groups(), ["sg-1", "sg-2"], "seen once");
    assert_eq!(world.fake.sent.borrow()[0].2.as_secs(), 60, "the next look is soon");
    world.later(29);
    world.run("default");
    assert_eq!(groups(), ["sg-1", "sg-2"], "too soon after the first look");
    world.later(1);
    world.run("default");
    assert_eq!(groups(), ["sg-1"]);
    assert_eq!(condition(&world.class(), "Ready"), "True Ready ");

    // One that comes is written at once, and so is what an edited selector finds.
    world.aws.more_security_groups.borrow_mut().insert("sg-2".into());
    world.later(60);
    world.run("default");
    assert_eq!(groups(), ["sg-1", "sg-2"]);
    world.edit_class(|class| {
        class.spec.security_group_selector_terms.pop();
        class.metadata.generation = 2;
    });
    world.run("default");
    assert_eq!(groups(), ["sg-1"]);
}

#[test] // aws-capacity 21, cases 1 and 8
fn the_type_that_is_asked_for() {
    let world = World::with_dry_run();
    world.add_class(json!({}));
    for (name, requirement) in [
        (
            "a",
            json!({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g4dn.8xlarge", "c6g.large"]}),
        ),
        (
            "b",
            json!({"key": "karpenter.k8s.aws/instance-tenancy", "operator": "In", "values": ["dedicated"]}),
        ),
    ] {
        world.fake.add_json::<NodePool>(json!({
            "metadata": {"name": name},
            "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [requirement],
            }}},
        }));
    }
    world.run("default");
    assert_eq!(condition(&world.class(), "Ready"), "True Ready ");
    assert_eq!(world.aws.tenancies.borrow().as_slice(), ["dedicated"]);
    assert_eq!(world.aws.asked_types(), ["c6g.large"]);
}

#[test] // aws-capacity 21, cases 2 and 3
fn without_a_pool_and_for_windows_a_usual_type_is_asked_for() {
    // Both usual ones are sold: the one of the first image. Without m6g.large, the other.
    for (sold, expected) in [
        (vec!["m5.xlarge", "m6g.large", "m5.large"], "m6g.large"),
        (vec!["m5.xlarge", "m5.large"], "m5.large"),
    ] {
        let world = World::with_dry_run();
        world.add_class(json!({}));
        let types: Vec<serde_json::Value> = sold
            .iter()
            .map(|name| {
                let arch = if name.starts_with("m6g") { "arm64" } else { "amd64" };
                json!({"name": name, "labels": {"kubernetes.io/arch": [arch], "kubernetes.io/os": ["linux"]},
                    "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"},
                    "offerings": [{"capacityType": "on-demand", "zone": "us-west-2a", "zoneId": "usw2-az2", "price": 0.1}]})
            })
            .collect();
        let fixed = json!({"instanceTypes": types});
        block_on(world.fake.write(&StateKey::new("catalog", "fixed"), fixed, None, When::Always))
            .expect("written");
        world.run("default");
        assert_eq!(world.aws.asked_types(), [expected], "{}", condition(&world.class(), "Ready"));
    }

    let world = World::with_dry_run();
    world.add_class(json!({"amiFamily": "Windows2022", "amiSelectorTerms": [{"id": "ami-std-x"}]}));
    world.fake.add_json::<NodePool>(json!({
        "metadata": {"name": "a"},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5"]},
                {"key": "karpenter.k8s.aws/instance-size", "operator": "In", "values": ["xlarge"]}],
        }}},
    }));
    world.run("default");
    assert_eq!(world.aws.asked_types(), ["m5.large"], "{}", condition(&world.class(), "Ready"));
}

#[test]
fn a_malformed_message_goes_alone() {
    let world = World::new();
    world.add_class(json!({}));
    let answer = world.run_bodies(&["nonsense", &world::named("default", "NodeClassChanged", 0)]);
    assert!(answer.failures.is_empty());
    assert_eq!(condition(&world.class(), "Ready"), "True Ready ");
    assert!(world.fake.decisions.borrow().iter().any(|it| it.action == "drop" && it.error));
}
