//! The handler against small fakes: what it calls, what it writes, and what a second run does.

mod failures;
mod images;
mod profiles;
mod takeover;
mod validation;
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

#[test]
fn a_malformed_message_goes_alone() {
    let world = World::new();
    world.add_class(json!({}));
    let answer = world.run_bodies(&["nonsense", &world::named("default", "NodeClassChanged", 0)]);
    assert!(answer.failures.is_empty());
    assert_eq!(condition(&world.class(), "Ready"), "True Ready ");
    assert!(world.fake.decisions.borrow().iter().any(|it| it.action == "drop" && it.error));
}
