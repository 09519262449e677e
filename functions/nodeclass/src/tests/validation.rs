//! Dry runs, and what is said of a class without them.

use super::*;

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
