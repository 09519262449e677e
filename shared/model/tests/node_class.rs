//! EC2NodeClasses: ids, conditions, kubelet settings and hashes, as aws-nodeclass numbers its cases.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_model::{
    ConditionStatus, EC2NodeClass, InstanceId, ProviderId, conditions, hash, validation,
};

#[test] // aws-nodeclass 1, cases 1 and 2
fn provider_ids() {
    let id = ProviderId::from("aws:///eu-west-1a/i-0a1b2c3d4e5f60718");
    assert_eq!(id.instance_id(), Some(InstanceId::from("i-0a1b2c3d4e5f60718")));
    assert_eq!(ProviderId::from("kwok://abc").instance_id(), None);
}

fn time(text: &str) -> Timestamp {
    text.parse().expect(text)
}

/// A class of this generation of which every condition is True.
fn healthy(generation: i64) -> EC2NodeClass {
    let mut class = EC2NodeClass::default();
    class.metadata.generation = generation;
    class.metadata.creation_timestamp = Some(time("2025-01-01T09:00:00Z"));
    let mut set = class.conditions_mut(true);
    set.initialize();
    for type_ in EC2NodeClass::DEPENDENTS_RESERVED {
        set.set_true(type_, time("2025-01-01T10:00:00Z"));
    }
    class
}

fn ready(class: &EC2NodeClass) -> (ConditionStatus, String, String) {
    let it = conditions::find(&class.status.conditions, conditions::READY).expect("Ready");
    (it.status, it.reason.clone(), it.message.clone())
}

fn fail(class: &mut EC2NodeClass, type_: &str, reason: &str, at: &str) -> bool {
    class.conditions_mut(true).set(type_, ConditionStatus::False, reason, "", time(at))
}

#[test] // aws-nodeclass 3, cases 2, 5, 6, 7 and 8
fn ready_follows_from_the_others() {
    let mut class = healthy(3);
    assert_eq!(ready(&class), (ConditionStatus::True, "Ready".into(), String::new()));
    fail(&mut class, "SubnetsReady", "SubnetsNotFound", "2025-01-01T10:00:05Z");
    fail(&mut class, "AMIsReady", "AMINotFound", "2025-01-01T10:00:09Z");
    let unhealthy = "UnhealthyDependents".to_owned();
    let message = "AMIsReady=False, SubnetsReady=False".to_owned();
    assert_eq!(ready(&class), (ConditionStatus::False, unhealthy, message));

    // A False of an earlier generation is no verdict on this one.
    let mut class = healthy(3);
    fail(&mut class, "SubnetsReady", "SubnetsNotFound", "2025-01-01T10:00:05Z");
    class.metadata.generation = 4;
    for type_ in EC2NodeClass::DEPENDENTS_RESERVED.iter().filter(|it| **it != "SubnetsReady") {
        class.conditions_mut(true).set_true(type_, time("2025-01-01T10:01:00Z"));
    }
    let reconciling = "ReconcilingDependents".to_owned();
    let message = "SubnetsReady=False".to_owned();
    assert_eq!(ready(&class), (ConditionStatus::Unknown, reconciling, message));

    // The same again changes nothing.
    let mut class = healthy(3);
    assert!(!class.conditions_mut(true).set_true("SubnetsReady", time("2025-01-01T11:00:00Z")));
    assert_eq!(class, healthy(3));

    // Another reason for the same status keeps the time of the transition.
    let at = "2025-01-01T10:00:05Z";
    assert!(fail(&mut class, "ValidationSucceeded", "A", at));
    assert!(fail(&mut class, "ValidationSucceeded", "B", "2025-01-01T12:00:00Z"));
    let it = conditions::find(&class.status.conditions, "ValidationSucceeded").expect("there");
    assert_eq!((it.reason.as_str(), it.last_transition_time), ("B", Some(time(at))));
}

#[test] // api 3, case 9
fn what_ready_of_a_class_depends_on() {
    let mut class = healthy(1);
    let at = time("2025-01-01T10:00:05Z");
    class.conditions_mut(true).set("PlacementGroupReady", ConditionStatus::Unknown, "A", "", at);
    let reconciling = "ReconcilingDependents".to_owned();
    let message = "PlacementGroupReady=Unknown".to_owned();
    assert_eq!(ready(&class), (ConditionStatus::Unknown, reconciling, message));

    // With the gate off nobody waits for reservations.
    let mut class = EC2NodeClass::default();
    class.metadata.generation = 1;
    let mut set = class.conditions_mut(false);
    set.initialize();
    for type_ in EC2NodeClass::DEPENDENTS {
        set.set_true(type_, at);
    }
    assert_eq!(ready(&class), (ConditionStatus::True, "Ready".into(), String::new()));
    assert!(!class.status.conditions.iter().any(|it| it.type_ == "CapacityReservationsReady"));
    // With it on the same class has still to look for them.
    let mut set = class.conditions_mut(true);
    set.initialize();
    assert_eq!(ready(&class).0, ConditionStatus::Unknown);
}

fn kubelet_messages(settings: Value) -> Vec<String> {
    let settings: BTreeMap<String, Value> = serde_json::from_value(settings).expect("a map");
    validation::kubelet(Some(&settings)).into_iter().map(|it| it.message).collect()
}

#[test] // aws-nodeclass 7, cases 1 to 4, 6 and 7
fn kubelet_settings() {
    let check = |settings: Value, starts: &[&str]| {
        let found = kubelet_messages(settings.clone());
        assert_eq!(found.len(), starts.len(), "{settings}: {found:?}");
        for (message, start) in found.iter().zip(starts) {
            assert!(message.starts_with(start), "{settings}: {message}");
        }
    };
    check(json!({"maxPods": 110, "evictionHard": {"memory.available": "5%"}}), &[]);
    check(
        json!({"evictionSoft": {"memory.available": "500Mi"}}),
        &["spec.kubelet.evictionSoft[memory.available]: has no matching evictionSoftGracePeriod"],
    );
    check(
        json!({"evictionHard": {"cpu.available": "5%"}}),
        &["spec.kubelet.evictionHard: \"cpu.available\" isn't a valid eviction signal"],
    );
    for (value, starts) in [
        ("101%", vec!["spec.kubelet.evictionHard[memory.available]: \"101%\" must be"]),
        ("-1Mi", vec!["spec.kubelet.evictionHard[memory.available]: \"-1Mi\" can't be a negative"]),
        ("5.5%", vec![]),
        ("0%", vec![]),
        ("100%", vec![]),
        ("0", vec![]),
    ] {
        check(json!({"evictionHard": {"memory.available": value}}), &starts);
    }
    let unknown = &["spec.kubelet: unknown field \"maxPod\""];
    check(json!({"maxPod": 5, "maxPods": "vcpus * 10"}), unknown);
    let percents =
        |high: i64| json!({"imageGCHighThresholdPercent": high, "imageGCLowThresholdPercent": 80});
    check(percents(80), &["spec.kubelet: imageGCHighThresholdPercent (80) must be greater"]);
    check(percents(81), &[]);
    check(
        json!({"kubeReserved": {"gpu": "1", "cpu": "-1"}}),
        &[
            "spec.kubelet.kubeReserved[cpu]: \"-1\" can't be a negative",
            "spec.kubelet.kubeReserved: \"gpu\" isn't a reservable resource",
        ],
    );
}

#[test] // aws-nodeclass 7, cases 5 and 11
fn a_wrong_type_hides_unknown_fields_but_no_range() {
    let range = "spec.kubelet.imageGCHighThresholdPercent: 101 must be between 0 and 100";
    for (settings, more) in [
        (json!({"podsPerCore": "2", "foo": 1}), None),
        (json!({"podsPerCore": "2", "foo": 1, "imageGCHighThresholdPercent": 101}), Some(range)),
    ] {
        let found = kubelet_messages(settings);
        assert!(found[0].starts_with("spec.kubelet: "), "{found:?}");
        assert!(found[0].contains("podsPerCore") && !found[0].contains("foo"), "{found:?}");
        assert_eq!(found.get(1).map(String::as_str), more);
        assert!(found.len() <= 2, "{found:?}");
    }
}

/// `spec` with these fields over it, as a class.
fn class(mut spec: Value, changes: &Value) -> EC2NodeClass {
    for (key, value) in changes.as_object().expect("an object") {
        spec[key] = value.clone();
    }
    let object = json!({"metadata": {"name": "default"}, "spec": spec});
    spokeshave_model::meta::from_value(object).expect("a class")
}

fn base(changes: &Value) -> EC2NodeClass {
    let spec = json!({
        "role": "KarpenterNodeRole-demo",
        "amiFamily": "AL2023",
        "metadataOptions": {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": 1, "httpTokens": "required"},
    });
    class(spec, changes)
}

#[test] // aws-nodeclass 17, cases 1 to 7, 10 and 12
fn static_hashes() {
    let interfaces = |order: [usize; 2]| {
        let all = [
            json!({"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}),
            json!({"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"}),
        ];
        json!({"networkInterfaces": [all[order[0]], all[order[1]]]})
    };
    let root = json!({"deviceName": "/dev/xvda",
        "ebs": {"volumeSize": "100Gi", "volumeType": "gp3", "encrypted": true}});
    let data = json!({"deviceName": "/dev/xvdb", "rootVolume": true,
        "ebs": {"volumeSize": "1Ti", "volumeType": "gp3", "iops": 6000}});
    let raid = json!({"associatePublicIPAddress": true, "instanceStorePolicy": "RAID0"});
    let by_alias = json!({"amiFamily": null, "amiSelectorTerms": [{"alias": "al2023@latest"}]});
    let with = "QUJD";
    for (changes, ca, want) in [
        (json!({}), with, "4872928458314922020"),
        (json!({}), "", "477699353285763520"),
        (json!({"amiFamily": "Bottlerocket"}), with, "284098909489481160"),
        (json!({"kubelet": {"maxPods": 42}}), with, "14156251921704366061"),
        (json!({"kubelet": {}}), with, "4872928458314922020"),
        (json!({"tags": {"team": "a"}}), with, "14632444411821258196"),
        (json!({"detailedMonitoring": false}), with, "157292718774451038"),
        (interfaces([0, 1]), with, "12939570513644767074"),
        (interfaces([1, 0]), with, "12939570513644767074"),
        (json!({"placementGroupSelector": {"name": "pg-a"}}), with, "12009288365714619638"),
        (json!({"blockDeviceMappings": [root]}), with, "15694689758369002472"),
        (json!({"blockDeviceMappings": [root, data]}), with, "9026992040613690488"),
        (json!({"userData": "#!/bin/bash\necho hi\n"}), with, "13166043375104299266"),
        (raid, with, "12211391545103621893"),
        (json!({"blockDeviceMappings": []}), with, "998090427104407251"),
        // The family may as well come from an alias, and what is looked up does not count.
        (by_alias, with, "4872928458314922020"),
        (json!({"subnetSelectorTerms": [{"id": "subnet-1"}]}), with, "4872928458314922020"),
        (json!({"ipPrefixCount": 3}), with, "4872928458314922020"),
    ] {
        assert_eq!(hash::ec2_node_class(&base(&changes), ca), want, "{changes} {ca:?}");
    }
}

#[test] // aws-nodeclass 17, case 9
fn the_vector_with_every_field() {
    let spec = json!({
        "role": "role-1",
        "amiFamily": "Custom",
        "tags": {"keyTag-1": "valueTag-1", "keyTag-2": "valueTag-2"},
        "context": "fake-context",
        "detailedMonitoring": false,
        "associatePublicIPAddress": false,
        "metadataOptions": {"httpEndpoint": "disabled", "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": 1, "httpTokens": "optional"},
        "userData": "userdata-test-1",
        "blockDeviceMappings": [
            {"deviceName": "map-device-1", "ebs": {"deleteOnTermination": false,
                "encrypted": false, "iops": 0, "kmsKeyID": "fakeKMSKeyID",
                "snapshotID": "fakeSnapshot", "throughput": 0, "volumeSize": "2G",
                "volumeType": "standard"}},
            {"deviceName": "map-device-2"},
        ],
    });
    for (changes, want) in [
        (json!({}), "11148166120438674859"),
        (json!({"userData": "userdata-test-2"}), "11774429238106843388"),
        (json!({"instanceStorePolicy": "RAID0"}), "16697988646989909967"),
    ] {
        let class = class(spec.clone(), &changes);
        assert_eq!(hash::ec2_node_class(&class, "test-ca-bundle"), want, "{changes}");
    }
}
