//! EC2NodeClasses: selectors, image families, kubelet settings and the rest.

use super::*;

#[test] // api 10, cases 1 to 5; api 19, cases 1 to 4
fn selectors() {
    const EMPTY_TAGS: &str = "empty tag keys or values aren't supported";
    const SUBNET_ID: &str = "cel spec.subnetSelectorTerms: 'id' is mutually exclusive, cannot be set with a combination of other fields in a subnet selector term";
    const GROUP_ID: &str = "'id' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term";
    const GROUP_NAME: &str = "'name' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term";
    const RESERVATION_ID: &str = "cel spec.capacityReservationSelectorTerms: 'id' is mutually exclusive, cannot be set along with other fields in a capacity reservation selector term";
    let subnets = |terms: Value| json!({"subnetSelectorTerms": terms});
    let groups = |terms: Value| json!({"securityGroupSelectorTerms": terms});
    let reservations = |terms: Value| json!({"capacityReservationSelectorTerms": terms});
    let images = |terms: Value| json!({"amiSelectorTerms": terms});
    let many_tags: Value = (0..21).map(|at| (format!("k{at}"), json!("v"))).collect();
    let many_terms: Value = (0..31).map(|_| json!({"id": "subnet-1"})).collect();
    table(
        "EC2NodeClass",
        &class(),
        &[
            (json!({}), &[]),
            (subnets(json!([{"id": "subnet-1", "tags": {"a": "b"}}])), &[SUBNET_ID]),
            (subnets(json!([{"id": "subnet-1", "tags": {"a": "b"}}, {"tags": {"a": "b"}}])), &[]),
            (subnets(json!([{}])), &["expected at least one, got none, ['tags', 'id']"]),
            (subnets(json!([{"tags": {"a": ""}}])), &[EMPTY_TAGS]),
            (subnets(json!([{"tags": {"a": "*"}}])), &[]),
            (subnets(json!([{"tags": {"Name": "my-subnet", "MyTag": ""}}])), &[EMPTY_TAGS]),
            (subnets(json!([])), &["subnetSelectorTerms cannot be empty", SUBNET_ID]),
            (subnets(json!([{"id": "xsubnet-1!"}])), &[]),
            (subnets(json!([{"id": "sub-1"}])), &["schema spec.subnetSelectorTerms[0].id"]),
            (
                subnets(many_terms),
                &["schema spec.subnetSelectorTerms: Too many: 31: must have at most 30 items"],
            ),
            (
                subnets(json!([{"tags": many_tags}])),
                &[
                    "schema spec.subnetSelectorTerms[0].tags: Too many: 21: must have at most 20 items",
                ],
            ),
            (subnets(Value::Null), &["spec.subnetSelectorTerms: Required value"]),
            (
                groups(json!([])),
                &["securityGroupSelectorTerms cannot be empty", GROUP_ID, GROUP_NAME],
            ),
            (groups(json!([{"name": "my-sg", "tags": {"MyTag": "*"}}])), &[GROUP_NAME]),
            (groups(json!([{"name": "my-sg", "tags": {"MyTag": "*"}}, {"id": "sg-1"}])), &[]),
            (reservations(json!([])), &[RESERVATION_ID]),
            (
                reservations(json!([{"ownerID": "012345678901"}])),
                &["expected at least one, got none, ['tags', 'id', 'instanceMatchCriteria']"],
            ),
            (reservations(json!([{"tags": {"a": "b"}, "ownerID": "012345678901"}])), &[]),
            (reservations(json!([{"instanceMatchCriteria": "open"}])), &[]),
            (
                reservations(json!([{"id": "cr-1", "instanceMatchCriteria": "open"}])),
                &[RESERVATION_ID],
            ),
            (reservations(json!([{"id": "cr-1", "ownerID": "012345678901"}, {"id": "cr-2"}])), &[]),
            (
                images(json!([{"alias": "al2023@latest"}, {"id": "ami-1"}])),
                &["cannot be set with a combination of other amiSelectorTerms"],
            ),
            (
                images(json!([{"alias": "al2023@latest", "id": "ami-1"}])),
                &[
                    "'id' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
                    "'alias' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
                ],
            ),
            (
                images(json!([{"id": "ami-1"}])),
                &["cel spec: must specify amiFamily if amiSelectorTerms does not contain an alias"],
            ),
            (json!({"amiSelectorTerms": [{"id": "ami-1"}], "amiFamily": "AL2"}), &[]),
            (
                json!({"amiSelectorTerms": [{"name": "*", "owner": "self"}], "amiFamily": "AL2023"}),
                &[],
            ),
            (
                json!({"amiSelectorTerms": [{"owner": "self"}], "amiFamily": "AL2023"}),
                &[
                    "expected at least one, got none, ['tags', 'id', 'name', 'alias', 'ssmParameter']",
                ],
            ),
            (
                json!({"amiSelectorTerms": [{"id": "ami-1", "ssmParameter": "/x"}], "amiFamily": "AL2"}),
                &[],
            ),
            (
                images(json!([])),
                &[
                    "schema spec.amiSelectorTerms: Invalid value: 0: spec.amiSelectorTerms in body should have at least 1 items",
                    "must specify amiFamily",
                ],
            ),
        ],
    );
}

#[test] // api 10, cases 6 to 8
fn aliases_and_families() {
    const FORMAT: &str = "cel spec.amiSelectorTerms[0].alias: 'alias' is improperly formatted, must match the format 'family@version'";
    const FAMILY: &str = "family is not supported, must be one of the following: 'al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025'";
    const WINDOWS: &str = "windows families may only specify version 'latest'";
    let alias = |alias: &str| json!({"amiSelectorTerms": [{"alias": alias}]});
    let both = |alias: &str, family: &str| json!({"amiSelectorTerms": [{"alias": alias}], "amiFamily": family});
    table(
        "EC2NodeClass",
        &class(),
        &[
            (alias("AL2023@latest"), &[FAMILY]),
            (alias("al2023"), &[FORMAT]),
            (alias("ubuntu@latest"), &[FAMILY]),
            (alias("windows2022@v1"), &[WINDOWS]),
            (alias("windows2022@latest"), &[]),
            (alias("windows2025@latest"), &[]),
            (alias("bottlerocket@v1.20.4"), &[]),
            (alias("al2023@"), &[FORMAT]),
            (
                alias("windows2022"),
                &[
                    FORMAT,
                    "index out of bounds: 1 evaluating rule: windows families may only specify version 'latest'",
                ],
            ),
            (alias("al2023@a@b"), &[]),
            (
                alias("al2023@v202501150000000000000000"),
                &["Too long: may not be more than 30 bytes"],
            ),
            (
                both("al2023@latest", "AL2"),
                &[
                    "cel spec: if set, amiFamily must be 'AL2023' or 'Custom' when using an AL2023 alias",
                ],
            ),
            (
                both("bottlerocket@latest", "AL2"),
                &[
                    "if set, amiFamily must be 'Bottlerocket' or 'Custom' when using a Bottlerocket alias",
                ],
            ),
            (
                both("al2@latest", "AL2023"),
                &["if set, amiFamily must be 'AL2' or 'Custom' when using an AL2 alias"],
            ),
            (
                both("windows2019@latest", "Windows2022"),
                &[
                    "if set, amiFamily must be 'Windows2019' or 'Custom' when using a Windows2019 alias",
                ],
            ),
            (both("al2023@latest", "Custom"), &[]),
            (both("al2023@latest", "AL2023"), &[]),
            (
                both("al2023@latest", "Ubuntu"),
                &["schema spec.amiFamily: Unsupported value: \"Ubuntu\""],
            ),
        ],
    );
}

#[test] // api 10, cases 9 to 18; api 19, case 3
fn other_fields_of_classes() {
    const PRIMARY: &str =
        "networkInterfaces must include a primary interface with interfaceType='interface'";
    const PAIRS: &str = "networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most one efa device per network card";
    const EXACTLY: &str = "cel spec: must specify exactly one of ['role', 'instanceProfile']";
    let devices = |devices: Value| json!({"blockDeviceMappings": devices});
    let ebs = |ebs: Value| devices(json!([{"deviceName": "/dev/xvda", "ebs": ebs}]));
    let interfaces = |list: &[(i32, i32, &str)]| {
        let list: Value = list
            .iter()
            .map(|(card, device, type_)| {
                json!({"networkCardIndex": card, "deviceIndex": device, "interfaceType": type_})
            })
            .collect();
        json!({"networkInterfaces": list})
    };
    let many_devices: Value = (0..51).map(|_| json!({"deviceName": "a"})).collect();
    table(
        "EC2NodeClass",
        &class(),
        &[
            (json!({"instanceProfile": "p"}), &[EXACTLY]),
            (json!({"role": null}), &[EXACTLY]),
            (json!({"role": null, "instanceProfile": "p"}), &[]),
            (json!({"role": ""}), &["cel spec.role: role cannot be empty"]),
            (json!({"role": null, "instanceProfile": ""}), &["instanceProfile cannot be empty"]),
            (json!({"tags": {"": "x"}}), &["cel spec.tags: empty tag keys aren't supported"]),
            (json!({"tags": {"a": ""}}), &[]),
            (
                json!({"tags": {"kubernetes.io/clusterfoo": "x"}}),
                &["tag contains a restricted tag matching kubernetes.io/cluster/"],
            ),
            (json!({"tags": {"kubernetes.io/cluster/x": "owned"}}), &["kubernetes.io/cluster/"]),
            (
                json!({"tags": {"eks:eks-cluster-name": "x"}}),
                &["tag contains a restricted tag matching eks:eks-cluster-name"],
            ),
            (
                json!({"tags": {"karpenter.sh/nodepool": "x"}}),
                &["tag contains a restricted tag matching karpenter.sh/nodepool"],
            ),
            (json!({"tags": {"karpenter.sh/foo": "x", "Name": "web"}}), &[]),
            (
                ebs(json!({})),
                &["cel spec.blockDeviceMappings[0].ebs: snapshotID or volumeSize must be defined"],
            ),
            (
                devices(json!([{"rootVolume": true}, {"rootVolume": true}])),
                &["must have only one blockDeviceMappings with rootVolume"],
            ),
            (
                ebs(json!({"volumeSize": "10Gi", "volumeInitializationRate": 100})),
                &["snapshotID must be set when volumeInitializationRate is set"],
            ),
            (
                ebs(json!({"snapshotID": "snap-1", "volumeInitializationRate": 99})),
                &["volumeInitializationRate"],
            ),
            (ebs(json!({"snapshotID": "snap-1", "volumeInitializationRate": 300})), &[]),
            (devices(json!([{"deviceName": "/dev/xvdb"}])), &[]),
            (devices(many_devices), &["Too many: 51: must have at most 50 items"]),
            (interfaces(&[]), &[]),
            (interfaces(&[(0, 1, "interface")]), &[PRIMARY]),
            (interfaces(&[(0, 0, "interface"), (0, 1, "efa-only"), (0, 2, "efa-only")]), &[PAIRS]),
            (interfaces(&[(0, 0, "interface"), (0, 1, "efa-only"), (1, 0, "efa-only")]), &[]),
            (interfaces(&[(0, 0, "interface"), (0, 0, "interface")]), &[PAIRS]),
            (interfaces(&[(0, 0, "efa-only")]), &[PRIMARY]),
            (
                json!({"networkInterfaces": [{"networkCardIndex": 0}]}),
                &["deviceIndex: Required value", "interfaceType: Required value"],
            ),
            (
                json!({"metadataOptions": {"httpPutResponseHopLimit": 0}}),
                &["httpPutResponseHopLimit"],
            ),
            (
                json!({"metadataOptions": {"httpPutResponseHopLimit": 65}}),
                &["httpPutResponseHopLimit"],
            ),
            (
                json!({"connectionTracking": {}}),
                &[
                    "at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set",
                ],
            ),
            (json!({"connectionTracking": {"udpTimeout": 29}}), &["udpTimeout"]),
            (json!({"connectionTracking": {"udpTimeout": 30}}), &[]),
            (
                json!({"connectionTracking": {"tcpEstablishedTimeout": 432_001}}),
                &["tcpEstablishedTimeout"],
            ),
            (
                json!({"placementGroupSelector": {}}),
                &["expected at least one, got none, ['name', 'id']"],
            ),
            (
                json!({"placementGroupSelector": {"name": "a", "id": "pg-1"}}),
                &["'name' and 'id' are mutually exclusive"],
            ),
            (json!({"placementGroupSelector": {"id": "pg-1"}}), &[]),
            (
                json!({"placementGroupSelector": {"id": "PG-1"}}),
                &["schema spec.placementGroupSelector.id"],
            ),
            (json!({"placementGroupSelector": {"name": ""}}), &["at least 1 chars long"]),
            (json!({"ipPrefixCount": 0}), &[]),
            (json!({"ipPrefixCount": -1}), &["ipPrefixCount"]),
            (json!({"instanceStorePolicy": "RAID1"}), &["Unsupported value"]),
            (json!({"context": "anything"}), &[]),
            (json!({"kubelet": {"anything": {"goes": [1]}}}), &[]),
            (json!({"foo": "bar"}), &["schema spec.foo: unknown field \"spec.foo\""]),
        ],
    );
    // B-084: the pattern is Karpenter's with its holes, so that both refuse and accept the same objects.
    for (size, fits) in [
        ("1Gi", true),
        ("59000Gi", true),
        ("64000G", true),
        ("58Ti", true),
        ("64T", true),
        ("17Ti", true),
        ("20Ti", true),
        ("27Ti", true),
        ("Ti", true),
        ("T", true),
        ("59001Gi", false),
        ("64001G", false),
        ("18Ti", false),
        ("19Ti", false),
        ("28Ti", false),
        ("29Ti", false),
        ("100Mi", false),
        ("59Ti", false),
        ("65T", false),
        ("0Gi", false),
        ("10GiB", false),
        ("10", false),
    ] {
        let mut spec = class();
        apply_merge_patch(&mut spec, &ebs(json!({"volumeSize": size})));
        assert_eq!(admit("EC2NodeClass", &spec, None).1.is_empty(), fits, "{size}");
    }
}

#[test] // api 12, cases 1, 10, 11 and 13: the order in which kinds of problems hide each other
fn kubelet_settings() {
    let problems = |family: &str, kubelet: Value, gates: &str| {
        let mut spec = class();
        apply_merge_patch(
            &mut spec,
            &json!({"amiSelectorTerms": [{"id": "ami-1"}], "amiFamily": family, "kubelet": kubelet}),
        );
        let (object, found) = admit("EC2NodeClass", &spec, None);
        assert!(found.is_empty());
        let mut parsed = FeatureGates::default();
        parsed.merge(gates).expect("gates");
        let found = runtime::problems("EC2NodeClass", &object, &parsed);
        found.into_iter().map(|it| format!("{} | {}", it.field, it.message)).collect::<Vec<_>>()
    };
    assert!(problems("AL2023", json!({"maxPods": 42, "registryPullQPS": 10}), "").is_empty());
    assert_eq!(
        problems("AL2", json!({"maxPods": 42, "registryPullQPS": 10}), ""),
        [
            "spec.kubelet | spec.kubelet has fields not applied by the AL2 AMI family that would be silently dropped: registryPullQPS"
        ]
    );
    assert_eq!(
        problems("AL2", json!({"bogus": 1}), ""),
        ["spec.kubelet.bogus | spec.kubelet: unknown field \"bogus\""]
    );
    assert!(problems("Bottlerocket", json!({"podsPerCore": 2}), "")[0].ends_with("podsPerCore"));
    assert!(problems("Custom", json!({"podsPerCore": 2, "clusterDNS": ["a", "b"]}), "").is_empty());
    assert!(
        problems("AL2", json!({"clusterDNS": ["10.0.0.10", "10.0.0.11"]}), "")[0]
            .contains("but 2 were set")
    );
    let expression = json!({"maxPods": "vcpus * 10"});
    assert_eq!(
        problems("AL2023", expression.clone(), ""),
        [
            "spec.kubelet.maxPods | spec.kubelet contains a CEL expression, but the NodeClassCEL feature gate is disabled"
        ]
    );
    assert!(problems("AL2023", expression, "NodeClassCEL=true").is_empty());
    assert_eq!(
        problems("AL2023", json!({"kubeReserved": {"cpu": "vcpus * 1.5"}}), "NodeClassCEL=true")
            .len(),
        1
    );
    // A number that some type cannot have, negative or beyond 32 bits: told after all else, with the first such type.
    let mut failing = json!({"maxPods": "vcpus * 1000000000", "kubeReserved": {"cpu": "vcpus - 4"},
        "systemReserved": {"memory": "1.0 / 0.0", "cpu": "vcpus - 1"}});
    assert_eq!(
        problems("AL2023", failing.clone(), "NodeClassCEL=true"),
        [
            "spec.kubelet.maxPods | spec.kubelet.maxPods: \"vcpus * 1000000000\" gives 8000000000, which is outside 0 to \
          2147483647 (instance type a1.2xlarge)"
        ]
    );
    failing["maxPods"] = json!("vcpus * 10");
    assert_eq!(
        problems("AL2023", failing.clone(), "NodeClassCEL=true"),
        [
            "spec.kubelet.kubeReserved[cpu] | spec.kubelet.kubeReserved.cpu: \"vcpus - 4\" gives -2, which is below 0 \
             (instance type a1.large)",
            "spec.kubelet.systemReserved[memory] | spec.kubelet.systemReserved.memory: \"1.0 / 0.0\" cannot be \
             evaluated: the result is inf (instance type a1.2xlarge)"
        ]
    );
    failing["port"] = json!(1);
    assert_eq!(
        problems("AL2", failing, "NodeClassCEL=true"),
        [
            "spec.kubelet | spec.kubelet has fields not applied by the AL2 AMI family that would be silently dropped: port"
        ]
    );
}
