//! Images by alias and by parameter, and releases that nobody has published.

use super::*;

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
