//! A cluster that Karpenter ran until now.

use serde_json::json;
use spokeshave_model::{EC2NodeClass, hash};

use super::world::World;

/// The hash that is stored on the class.
fn stored(world: &World) -> String {
    let class = world.class();
    class.metadata.annotation("karpenter.k8s.aws/ec2nodeclass-hash").unwrap_or_default().to_owned()
}

/// The class as Karpenter left it, hashed with this CA text.
fn hashed_with(world: &World, ca: &str) -> String {
    world.add_class(json!({}));
    let hash = hash::ec2_node_class(&world.class(), ca);
    world.edit_class(|class| {
        class
            .metadata
            .annotations
            .insert("karpenter.k8s.aws/ec2nodeclass-hash".into(), hash.clone());
        class
            .metadata
            .annotations
            .insert("karpenter.k8s.aws/ec2nodeclass-hash-version".into(), "v6".into());
    });
    hash
}

#[test] // aws-nodeclass 5: the CA text must be the one that Karpenter hashed
fn hashes_of_another_ca_text_are_left_alone() {
    let world = World::new();
    let theirs = hashed_with(&world, "QUJDCg==");
    world.run("default");
    assert_eq!(stored(&world), theirs, "no node drifts");
    let stopped: Vec<_> =
        world.fake.decisions.borrow().iter().filter(|it| it.action == "stop").cloned().collect();
    assert_eq!(stopped.len(), 1);
    assert!(stopped[0].error);
    assert_eq!(stopped[0].object, "EC2NodeClass/default");
    let events = world.fake.events.borrow();
    let event = events.iter().find(|it| it.reason == "HashMismatch").expect("an event");
    assert!(event.warning);
    assert!(event.message.contains("set CLUSTER_CA_BUNDLE"), "{}", event.message);
    drop(events);
    // Everything else of the class goes on.
    assert_eq!(super::condition(&world.class(), "Ready"), "True Ready ");

    // Another class does not lift the stop.
    world.fake.add_json::<EC2NodeClass>(json!({"metadata": {"name": "new", "uid": "uid-2"}}));
    world.run("new");
    world.run("default");
    assert_eq!(stored(&world), theirs);

    // Taking the old hash away does: from now on ours counts.
    for name in ["default", "new"] {
        let mut class: EC2NodeClass = world.fake.object(name).expect("there");
        class.metadata.annotations.clear();
        world.fake.add(&class);
    }
    world.run("default");
    assert_eq!(stored(&world), hash::ec2_node_class(&world.class(), "QUJD"));
}

#[test] // aws-nodeclass 5 and 17
fn one_class_that_agrees_is_enough_and_edits_count_from_then_on() {
    let world = World::new();
    let theirs = hashed_with(&world, "QUJD");
    world.run("default");
    assert_eq!(stored(&world), theirs);
    assert!(world.fake.decisions.borrow().iter().all(|it| it.action != "stop"));
    world.edit_class(|class| class.spec.detailed_monitoring = Some(true));
    world.run("default");
    assert_eq!(stored(&world), hash::ec2_node_class(&world.class(), "QUJD"));
    assert_ne!(stored(&world), theirs);
}
