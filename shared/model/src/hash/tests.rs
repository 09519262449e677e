//! api 17: every reference point, row of the tables and case.

use serde_json::{Value, json};

use super::*;
use crate::meta::{apply_merge_patch, from_value};

fn pool(template: &Value) -> NodePool {
    let mut value = json!({"metadata": {"name": "default"}, "spec": {"template": {"spec": {
        "requirements": [], "expireAfter": "720h",
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}}});
    apply_merge_patch(&mut value["spec"]["template"], template);
    from_value(value).expect("a NodePool")
}

fn taint_of(key: &str, effect: &str) -> Value {
    json!({"key": key, "effect": effect})
}

#[test] // api 17.1
fn reference_points() {
    assert_eq!(text(""), 14_695_981_039_346_656_037);
    assert_eq!(text("a"), 12_638_153_115_695_167_422);
    assert_eq!(text("Custom"), 16_843_204_617_627_660_836);
    assert_eq!(int32(0), 5_558_979_605_539_197_941);
    assert_eq!(int64(0), 12_161_962_213_042_174_405);
    assert_eq!(finish(0), int64(0));
    assert_eq!(texts(&StringMap::new()), int64(0));
    assert_eq!(boolean(false), 12_638_153_115_695_167_455);
    assert_eq!(boolean(true), 12_638_153_115_695_167_454);
    assert_eq!(ordered(text("a"), text("b")), 4_550_450_939_398_240_104);
    assert_eq!(texts(&StringMap::from([("a".into(), "b".into())])), 3_629_586_248_519_120_669);
    assert_eq!(list([text("a"), text("b")]), 3);
    assert_eq!(int64(720 * 3_600_000_000_000), 730_680_733_141_129_777);
    let gpu = Taint::new("gpu", "true", crate::TaintEffect::NoSchedule);
    assert_eq!(taint(&gpu), 18_443_010_815_432_085_546);
}

#[test] // api 17.2, api 17 cases 1, 5 and 7
fn node_pools() {
    let special = taint_of("example.com/special-taint", "NoSchedule");
    let another = taint_of("example.com/another-taint", "NoSchedule");
    let (a, b) = (taint_of("a", "NoSchedule"), taint_of("b", "NoSchedule"));
    let b_no_execute = taint_of("b", "NoExecute");
    let key = taint_of("key", "NoExecute");
    for (template, hash) in [
        (json!({}), "6821555240594823858"),
        (json!({"metadata": {}}), "6821555240594823858"),
        (json!({"spec": {"expireAfter": "43200m"}}), "6821555240594823858"),
        (json!({"spec": {"expireAfter": null}}), "6821555240594823858"),
        (json!({"spec": {"expireAfter": "Never"}}), "17369979337536258260"),
        (json!({"spec": {"expireAfter": "0s"}}), "15640125381500602090"),
        (json!({"spec": {"expireAfter": "1h"}}), "1823671721871974097"),
        (json!({"spec": {"terminationGracePeriod": "48h"}}), "15015733878877233177"),
        (json!({"spec": {"terminationGracePeriod": "0s"}}), "10356118934572431967"),
        (
            json!({"spec": {"terminationGracePeriod": "5m", "expireAfter": "5m"}}),
            "978232517362445564",
        ),
        (json!({"metadata": {"labels": {"billing-team": "my-team"}}}), "12959609769844967562"),
        (
            json!({"metadata": {"annotations": {"example.com/owner": "my-team"}}}),
            "15190465971064321909",
        ),
        (json!({"metadata": {"labels": {}}}), "1287117484082965808"),
        (json!({"metadata": {"labels": {"a": "b", "c": "d"}}}), "2280442936857030030"),
        (json!({"metadata": {"labels": {"a": "d", "c": "b"}}}), "17595150501557539164"),
        (json!({"spec": {"taints": [special]}}), "11127713846078302664"),
        (json!({"spec": {"startupTaints": [special]}}), "2012138139552117391"),
        (
            json!({"spec": {"taints": [{"key": "gpu", "value": "true", "effect": "NoSchedule"}]}}),
            "16299947018401745495",
        ),
        (json!({"spec": {"taints": [a, b_no_execute]}}), "12347601978593386503"),
        (json!({"spec": {"taints": [b_no_execute, a]}}), "12347601978593386503"),
        (json!({"spec": {"taints": [a, a]}}), "17700736223175069915"),
        (json!({"spec": {"taints": []}}), "17700736223175069915"),
        (json!({"spec": {"taints": [a], "startupTaints": [b]}}), "18258248922918619027"),
        (json!({"spec": {"taints": [b], "startupTaints": [a]}}), "3017183191360818549"),
        (
            json!({"spec": {"taints": [
                {"key": "a", "effect": "NoSchedule", "timeAdded": "2024-01-01T00:00:00Z"}]}}),
            "12957052618173356935",
        ),
        (json!({"spec": {"nodeClassRef": {"name": "gpu"}}}), "11638697193092249415"),
        (
            json!({"metadata": {"labels": {"billing-team": "my-team"},
                                "annotations": {"example.com/owner": "my-team"}},
                   "spec": {"taints": [special], "startupTaints": [another],
                            "terminationGracePeriod": "48h"}}),
            "7781955369820247601",
        ),
        (
            json!({"metadata": {"annotations": {"keyAnnotation": "valueAnnotation",
                                                "keyAnnotation2": "valueAnnotation2"},
                                "labels": {"keyLabel": "valueLabel"}},
                   "spec": {"taints": [key], "startupTaints": [key],
                            "expireAfter": "5m", "terminationGracePeriod": "5m"}}),
            "7280272686889155491",
        ),
    ] {
        assert_eq!(node_pool(&pool(&template)), hash, "{template}");
    }
}

#[test] // scheduling 16, cases 1-11
fn pools_by_the_numbered_cases() {
    let named = |key: &str, value: Option<&str>, effect: &str| json!({"key": key, "value": value, "effect": effect});
    let (a, b) = (named("a", Some("1"), "NoSchedule"), named("b", Some("2"), "NoExecute"));
    let gpu = named("nvidia.com/gpu", Some("true"), "NoSchedule");
    for (case, template, hash) in [
        (1, json!({}), "6821555240594823858"),
        (2, json!({"spec": {"expireAfter": "Never"}}), "17369979337536258260"),
        (3, json!({"metadata": {"labels": {"team": "a"}}}), "1617844334411263980"),
        (
            4,
            json!({"metadata": {"labels": {"team": "a", "env": "prod"}, "annotations": {"k": "v"}}}),
            "4786683091195525124",
        ),
        (5, json!({"spec": {"taints": [gpu]}}), "15732583012633218250"),
        (
            6,
            json!({"spec": {"startupTaints": [{"key": "example.com/boot", "effect": "NoExecute"}]}}),
            "6200595346782987879",
        ),
        (7, json!({"spec": {"terminationGracePeriod": "24h"}}), "16144107721237908861"),
        (8, json!({"spec": {"nodeClassRef": {"name": "other"}}}), "1124401764309382548"),
        (9, json!({"spec": {"taints": [a, b]}}), "8104560414923680139"),
        (9, json!({"spec": {"taints": [b, a]}}), "8104560414923680139"),
        (10, json!({"spec": {"taints": [a, a]}}), "17700736223175069915"),
        (11, json!({"metadata": {"labels": {}}}), "1287117484082965808"),
    ] {
        assert_eq!(node_pool(&pool(&template)), hash, "case {case}");
    }
}

#[test] // api 17, case 6
fn what_is_outside_the_template_does_not_count() {
    let mut other = pool(&json!({"spec": {"requirements": [
        {"key": "team", "operator": "In", "values": ["a"]}]}}));
    other.spec.weight = Some(10);
    other.spec.limits = Some(crate::Resources::new());
    other.spec.disruption = Some(crate::node_pool::Disruption::default());
    assert_eq!(node_pool(&other), "6821555240594823858");
}

fn class(base: &Value, change: &Value) -> EC2NodeClass {
    let mut value = json!({"metadata": {"name": "default"}, "spec": base});
    apply_merge_patch(&mut value["spec"], change);
    from_value(value).expect("an EC2NodeClass")
}

fn device(change: &Value) -> Value {
    let mut first = json!({"deviceName": "map-device-1", "rootVolume": false, "ebs": {
        "deleteOnTermination": false, "encrypted": false, "iops": 0, "kmsKeyID": "fakeKMSKeyID",
        "snapshotID": "fakeSnapshot", "throughput": 0, "volumeSize": "2G", "volumeType": "standard"}});
    apply_merge_patch(&mut first, change);
    json!({"blockDeviceMappings": [first, {"deviceName": "map-device-2"}]})
}

#[test] // api 17.3, first table
fn node_classes_with_every_field() {
    let mut base = json!({"role": "role-1", "tags": {"keyTag-1": "valueTag-1", "keyTag-2": "valueTag-2"},
        "context": "fake-context", "detailedMonitoring": false, "associatePublicIPAddress": false,
        "metadataOptions": {"httpEndpoint": "disabled", "httpProtocolIPv6": "disabled",
                            "httpPutResponseHopLimit": 1, "httpTokens": "optional"},
        "userData": "userdata-test-1"});
    apply_merge_patch(&mut base, &device(&json!({})));
    let metadata = |field: &str, value: Value| json!({"metadataOptions": {field: value}});
    let ebs = |field: &str, value: Value| device(&json!({"ebs": {field: value}}));
    for (change, v6, v5) in [
        (json!({}), "11148166120438674859", "2608468723537941485"),
        (json!({"userData": "userdata-test-2"}), "11774429238106843388", "2153344579995979450"),
        (
            json!({"tags": {"keyTag-test-3": "valueTag-test-3"}}),
            "9327338697296909506",
            "4608386791045313156",
        ),
        (json!({"context": "context-2"}), "2279761750428738028", "11612053647989098410"),
        (json!({"detailedMonitoring": true}), "1936848126751988570", "11845605438531206428"),
        (json!({"instanceStorePolicy": "RAID0"}), "16697988646989909967", "6430637013089544585"),
        (json!({"associatePublicIPAddress": true}), "16141801171825097963", "6811176403923819181"),
        (metadata("httpEndpoint", json!("enabled")), "14969742554812447671", "8158886403801636337"),
        (
            metadata("httpProtocolIPv6", json!("enabled")),
            "1581716956216772561",
            "12355196004817691031",
        ),
        (
            metadata("httpPutResponseHopLimit", json!(10)),
            "14046948658064232764",
            "8968306366664488826",
        ),
        (metadata("httpTokens", json!("required")), "1346719102507290084", "12408995450371615650"),
        (
            device(&json!({"deviceName": "map-device-test-3"})),
            "8979166653850509463",
            "13986335469721503441",
        ),
        (device(&json!({"rootVolume": true})), "8875796205856543692", "14242690863945643402"),
        (ebs("deleteOnTermination", json!(true)), "1470935115846151531", "12316454167870753581"),
        (ebs("encrypted", json!(true)), "5252376125396833097", "17753517657333560591"),
        (ebs("iops", json!(10)), "11651419893470054855", "2249322442135400321"),
        (ebs("kmsKeyID", json!("test")), "1488385067008138755", "12259594419287406661"),
        (ebs("snapshotID", json!("test")), "12786013539168652330", "1149563513090550380"),
        (ebs("throughput", json!(10)), "1873429003468556999", "12068199760789564545"),
        (ebs("volumeType", json!("io1")), "6743466905516550702", "16361719363399715944"),
        (ebs("volumeSize", json!("10G")), "10372902467896351912", "3564293065344858862"),
        (
            json!({"connectionTracking": {"tcpEstablishedTimeout": 300}}),
            "1619669030802245540",
            "12177489405137904098",
        ),
        (
            json!({"connectionTracking": {"udpStreamTimeout": 120}}),
            "13743705849402595405",
            "17567831983996427",
        ),
        (
            json!({"connectionTracking": {"udpTimeout": 45}}),
            "17941926745862994490",
            "5078825826133662844",
        ),
        (
            json!({"cpuOptions": {"nestedVirtualization": "enabled"}}),
            "6157846767212910604",
            "17001101224536964682",
        ),
        (
            json!({"role": null, "instanceProfile": "test-instance-profile"}),
            "10323991363677716244",
            "3585768058063247698",
        ),
    ] {
        let class = class(&base, &change);
        assert_eq!(ec2_node_class(&class, "test-ca-bundle"), v6, "v6 {change}");
        assert_eq!(ec2_node_class_v5(&class, "test-ca-bundle").as_deref(), Some(v5), "v5 {change}");
    }
}

fn minimal_class(change: &Value) -> EC2NodeClass {
    let base = json!({"role": "r", "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "metadataOptions": {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled",
                            "httpPutResponseHopLimit": 1, "httpTokens": "required"}});
    class(&base, change)
}

#[test] // api 17.3, second table; api 17 case 9
fn minimal_node_classes() {
    let one_ti = json!({"deviceName": "/dev/xvda", "ebs": {"volumeSize": "1Ti"}});
    let many_gi = json!({"deviceName": "/dev/xvda", "ebs": {"volumeSize": "1024Gi"}});
    let primary = json!({"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"});
    let none = ("16664176375993651535", Some("6468882521411450633"));
    for (change, ca, (v6, v5)) in [
        (json!({}), "", none),
        (json!({"amiFamily": "AL2023"}), "", none),
        (json!({"amiSelectorTerms": [{"alias": "al2023@v20250115"}]}), "", none),
        (json!({"subnetSelectorTerms": [{"id": "subnet-9"}]}), "", none),
        (json!({"ipPrefixCount": 2}), "", none),
        (json!({}), "Y2EtZGVtbw==", ("15734249376364469029", Some("7268337073242062179"))),
        (json!({"amiFamily": "Custom"}), "", ("11632254376251201102", Some("2299944984743718920"))),
        (
            json!({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]}),
            "",
            ("12038756157972294819", Some("1844042145720470245")),
        ),
        (json!({"tags": {}}), "", ("18291811564662529684", Some("4853908200412362962"))),
        (json!({"kubelet": {}}), "", ("16664176375993651535", Some("13711299151098576870"))),
        (
            json!({"kubelet": {"maxPods": 110}}),
            "",
            ("4240495136733030750", Some("1100530035610204088")),
        ),
        (
            json!({"kubelet": {"maxPods": 110, "registryPullQPS": 10}}),
            "",
            ("12843736518302668751", None),
        ),
        (
            json!({"blockDeviceMappings": []}),
            "",
            ("8358414824300004900", Some("14806172571178524770")),
        ),
        (
            json!({"blockDeviceMappings": [one_ti]}),
            "",
            ("11833240138593319241", Some("1926704235383561999")),
        ),
        (
            json!({"blockDeviceMappings": [many_gi]}),
            "",
            ("11833240138593319241", Some("1926704235383561999")),
        ),
        (
            json!({"blockDeviceMappings": [one_ti, one_ti]}),
            "",
            ("8358414824300004900", Some("14806172571178524770")),
        ),
        (
            json!({"networkInterfaces": [primary]}),
            "",
            ("4052890515200166362", Some("9708590976032239516")),
        ),
        (
            json!({"placementGroupSelector": {"name": "my-pg"}}),
            "",
            ("14875855218580959471", Some("8139339332873885353")),
        ),
        (
            json!({"detailedMonitoring": false}),
            "",
            ("17582258947735102725", Some("5369875311185331011")),
        ),
        (json!({"cpuOptions": {}}), "", ("6939519503910017977", Some("16053989369107398143"))),
    ] {
        let class = minimal_class(&change);
        assert_eq!(ec2_node_class(&class, ca), v6, "v6 {change}");
        assert_eq!(ec2_node_class_v5(&class, ca).as_deref(), v5, "v5 {change}");
    }
}

#[test] // api 17, case 8
fn kubelet_settings() {
    let v6 = |kubelet: Value| ec2_node_class(&minimal_class(&json!({"kubelet": kubelet})), "");
    let v5 = |kubelet: Value| ec2_node_class_v5(&minimal_class(&json!({"kubelet": kubelet})), "");
    assert_ne!(v6(json!({"maxPods": 110})), v6(json!({"maxPods": 101})));
    let seconds = json!({"evictionSoftGracePeriod": {"memory.available": "90s"}});
    let minutes = json!({"evictionSoftGracePeriod": {"memory.available": "1m30s"}});
    assert_ne!(v6(seconds.clone()), v6(minutes.clone()));
    assert_eq!(v5(seconds), v5(minutes));
    assert_eq!(v5(json!({"maxPods": "110"})), None);
}

#[test] // api 17.3: the text that the kubelet settings are hashed as
#[expect(clippy::excessive_precision, reason = "floats halfway between two texts")]
fn kubelet_text() {
    for (settings, text) in [
        (json!({}), "null"),
        (
            json!({"b": 1, "a": {"d": [1.0, 1.5, "x"], "c": null}}),
            r#"{"a":{"c":null,"d":[1,1.5,"x"]},"b":1}"#,
        ),
        (
            json!({"a": "<&>\u{2028}\u{e9}\"\\\n\u{1}"}),
            "{\"a\":\"\\u003c\\u0026\\u003e\\u2028\u{e9}\\\"\\\\\\n\\u0001\"}",
        ),
        (
            json!({"a": 1e21, "b": 1e-7, "c": 1e20, "d": true}),
            r#"{"a":1e+21,"b":1e-7,"c":100000000000000000000,"d":true}"#,
        ),
        (
            json!({"a": [9_223_372_036_854_775_807_i64, 9_223_372_036_854_775_808_u64, u64::MAX, i64::MIN],
                   "b": [1e15, 9_007_199_254_740_993_i64, 123_456_789_012_345_680_000.0, -2.5e22],
                   "c": [0.000_001, 0.000_000_9, -0.0, 0.1, 1.5e300, [null, [], {}]],
                   "d": [1_764_407_011_678_810.25, -716_353_515_426_329.25, 12.5e-7, 999e18, 5e-324, 0.05]}),
            "{\"a\":[9223372036854775807,9223372036854776000,18446744073709552000,-9223372036854775808],\
             \"b\":[1000000000000000,9007199254740993,123456789012345680000,-2.5e+22],\
             \"c\":[0.000001,9e-7,0,0.1,1.5e+300,[null,[],{}]],\
             \"d\":[1764407011678810.2,-716353515426329.2,0.00000125,999000000000000000000,5e-324,0.05]}",
        ),
    ] {
        let map = serde_json::from_value(settings).expect("a map");
        assert_eq!(kubelet::canonical(Some(&map)), text);
    }
    assert_eq!(kubelet::canonical(None), "null");
    // Read from JSON, a float of 17 digits is the nearest one, not its neighbour.
    let text = r#"{"memoryThrottlingFactor":0.38120423768821243}"#;
    let map = serde_json::from_str(text).expect("a map");
    assert_eq!(kubelet::canonical(Some(&map)), text);
}

#[test]
fn v4_is_v5_without_the_bundle() {
    let class = minimal_class(&json!({}));
    let parts = [class_spec(&class.spec, None).pointed_to(), text("AL2023")];
    assert_eq!(ec2_node_class_v4(&class), Some(list(parts).to_string()));
}

#[test] // api 17.3, part 2; 10.4: the family is what amiFamily says
fn a_family_that_is_none_of_ours_is_hashed_as_it_is() {
    let hash = |family: &str| -> u64 {
        let class = minimal_class(&json!({"amiFamily": family}));
        ec2_node_class(&class, "").parse().expect("a number")
    };
    assert_eq!(hash("Custom"), 11_632_254_376_251_201_102);
    assert_eq!(hash("Ubuntu") ^ hash("Custom"), text("Ubuntu") ^ text("Custom"));
}

#[test] // aws-nodeclass 17, case 8
fn primitives() {
    for (value, want) in [
        ("", 14_695_981_039_346_656_037),
        ("a", 12_638_153_115_695_167_422),
        ("Custom", 16_843_204_617_627_660_836),
        ("null", 13_728_408_170_730_661_446),
    ] {
        assert_eq!(text(value), want, "{value:?}");
    }
    assert_eq!(int64(1), 16_390_143_479_181_108_970);
    assert_eq!(boolean(true), 12_638_153_115_695_167_454);
    assert_eq!(
        texts(&[("team".to_owned(), "a".to_owned())].into_iter().collect()),
        5_678_614_363_990_723_190
    );
}
