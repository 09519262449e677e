//! `spokeshave userdata` and `spokeshave iam`: exact bytes, and what JSON says beside them.

mod common;

use serde_json::{Value, json};
use spokeshave::{ExitStatus, Failure, Format};

use crate::common::Ran;

fn file(name: &str, text: &str) -> String {
    common::file("userdata", name, text)
}

fn run(format: Format, args: &[&str]) -> (Result<ExitStatus, Failure>, String) {
    let (status, text, _) = run_with_notes(format, args);
    (status, text)
}

/// The same with what goes to standard error.
fn run_with_notes(format: Format, args: &[&str]) -> (Result<ExitStatus, Failure>, String, String) {
    let Ran { status, output, notes } = common::run(format, args);
    (status, output, notes)
}

const POOL: &str = "apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    metadata:
      labels: {team: a, node.kubernetes.io/x: dropped}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [spot]}
        - {key: karpenter.k8s.aws/instance-category, operator: In, values: [m]}
        - {key: example.com/tier, operator: In, values: [b, a]}
        - {key: example.com/shard, operator: Gt, values: ['3']}
        - {key: example.com/none, operator: DoesNotExist}
      taints:
        - {key: dedicated, value: gpu, effect: NoSchedule}
      startupTaints:
        - {key: c, effect: NoExecute}
";

fn class(spec: &Value) -> String {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": spec,
    })
    .to_string()
}

/// The command for these files and more arguments.
fn userdata(
    format: Format,
    name: &str,
    pool: &str,
    spec: &Value,
    more: &[&str],
) -> (Result<ExitStatus, Failure>, String) {
    let (status, text, _) = userdata_with_notes(format, name, pool, spec, more);
    (status, text)
}

fn userdata_with_notes(
    format: Format,
    name: &str,
    pool: &str,
    spec: &Value,
    more: &[&str],
) -> (Result<ExitStatus, Failure>, String, String) {
    let class = file(&format!("{name}-class.json"), &class(spec));
    let pool = file(&format!("{name}-pool.yaml"), pool);
    let mut args = vec![
        "userdata",
        "--nodeclass",
        &class,
        "--nodepool",
        &pool,
        "--cluster-name",
        "demo",
        "--endpoint",
        "https://ABC123.gr7.eu-west-1.eks.amazonaws.com",
        "--ca",
        "QUJD",
    ];
    if !more.contains(&"--kubernetes-version") {
        args.extend(["--kubernetes-version", "1.34"]);
    }
    if !more.contains(&"--instance-type") {
        args.extend(["--instance-type", "m5.xlarge"]);
    }
    if !more.contains(&"--service-cidr") {
        args.extend(["--service-cidr", "10.100.0.0/16"]);
    }
    args.extend(more);
    run_with_notes(format, &args)
}

#[test] // aws-nodeclass 6.1; 7.3; 8, steps 2, 4 and 6
fn what_keeps_a_class_from_launching_is_told_beside_the_answer() {
    let spec = json!({
        "amiSelectorTerms": [{"alias": "al2@latest"}],
        "kubelet": {
            "maxPods": "vcpus * 10",
            "kubeReserved": {"cpu": "vcpus - 100", "memory": "100Mi"},
            "registryPullQPS": 3,
        },
    });
    let told = |more: &[&str]| {
        let (status, text, notes) = userdata_with_notes(Format::Json, "told", POOL, &spec, more);
        assert_eq!(status, Ok(ExitStatus::Answered));
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(answer["kubelet"]["kubeReserved"], json!({"memory": "100Mi"}));
        notes
    };
    let fields = "warning: EC2NodeClass/default: spec.kubelet has fields not applied by the AL2 AMI family that would be silently dropped: registryPullQPS; nothing is launched\n";
    let gate = "warning: EC2NodeClass/default: spec.kubelet contains a CEL expression, but the NodeClassCEL feature gate is disabled; nothing is launched\n";
    assert_eq!(told(&["--kubernetes-version", "1.32"]), format!("{gate}{fields}"));
    let open = ["--kubernetes-version", "1.33", "--set", "AWS_FEATURE_GATES=NodeClassCEL=true"];
    assert_eq!(
        told(&open),
        format!(
            "warning: EC2NodeClass/default: spec.kubelet.kubeReserved.cpu: \"vcpus - 100\" gives -96, which is below 0 (instance type m5.xlarge); the entry is left out\nwarning: EC2NodeClass/default: AL2 images are not published for Kubernetes 1.33 and later versions, use another alias; nothing is launched\n{fields}"
        )
    );
}

#[test] // aws-nodeclass 9, 11 and 14; api 7, cases 4 and 5; B-039
fn what_json_says_of_an_al2023_node() {
    let spec = json!({
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "metadataOptions": {"httpTokens": "optional"},
        "kubelet": {"podsPerCore": 4, "registryPullQPS": 10},
    });
    let (status, text) = userdata(Format::Json, "al2023", POOL, &spec, &[]);
    assert_eq!(status, Ok(ExitStatus::Answered));
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(answer["amiFamily"], "AL2023");
    assert_eq!(
        answer["kubelet"],
        json!({"clusterDNS": ["10.100.0.10"], "maxPods": 16, "podsPerCore": 4, "registryPullQPS": 10})
    );
    assert_eq!(
        answer["labels"],
        json!({
            "example.com/shard": "4",
            "example.com/tier": "a",
            "karpenter.k8s.aws/ec2nodeclass": "default",
            "karpenter.sh/capacity-type": "spot",
            "karpenter.sh/do-not-sync-taints": "true",
            "karpenter.sh/nodepool": "general",
            "team": "a",
        })
    );
    assert_eq!(
        answer["taints"],
        json!([
            {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
            {"key": "c", "value": "", "effect": "NoExecute"},
            {"key": "karpenter.sh/unregistered", "value": "", "effect": "NoExecute"},
        ])
    );
    assert_eq!(
        answer["blockDevices"],
        json!([{"deviceName": "/dev/xvda", "ebs": {
            "volumeSize": 20, "volumeType": "gp3", "iops": null, "throughput": null, "encrypted": true,
            "kmsKeyID": null, "snapshotID": null, "deleteOnTermination": null, "volumeInitializationRate": null,
        }}])
    );
    assert_eq!(
        answer["metadataOptions"],
        json!({
            "httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1,
            "httpTokens": "optional", "instanceMetadataTags": "disabled",
        })
    );
    let user_data = answer["userData"].as_str().expect("text");
    assert!(user_data.contains("    config:\n      clusterDNS:\n      - 10.100.0.10\n"));
    let (_, raw) = userdata(Format::Json, "al2023-raw", POOL, &spec, &["--raw"]);
    assert_eq!(raw, user_data);
}

#[test] // aws-nodeclass 13, cases 4 and 5
fn a_custom_image_gets_its_own_text_and_nothing_else() {
    let spec = json!({"amiFamily": "Custom", "amiSelectorTerms": [{"id": "ami-1"}], "userData": "#!/bin/sh\nexit 0\n"});
    let (_, raw) = userdata(Format::Text, "custom", POOL, &spec, &["--raw"]);
    assert_eq!(raw, "#!/bin/sh\nexit 0\n");
    let spec = json!({"amiFamily": "Custom", "amiSelectorTerms": [{"id": "ami-1"}]});
    let (status, text) = userdata(Format::Json, "custom-none", POOL, &spec, &[]);
    assert_eq!(status, Ok(ExitStatus::Answered));
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&answer["userData"], &answer["blockDevices"]), (&json!(""), &json!([])));
    assert_eq!(answer["labels"].get("karpenter.sh/do-not-sync-taints"), None);
}

#[test] // aws-capacity 5, cases 10 and 11; aws-nodeclass 7
fn expressions_become_numbers() {
    let spec = json!({
        "amiFamily": "AL2", "amiSelectorTerms": [{"id": "ami-1"}],
        "kubelet": {
            "maxPods": "min(110, vcpus * 8)",
            "kubeReserved": {"cpu": "vcpus * 30", "memory": "0.5Gi"},
        },
    });
    let gate = ["--instance-type", "m5.large", "--feature-gates", "NodeClassCEL=true", "--raw"];
    let (_, raw) = userdata(Format::Text, "cel", POOL, &spec, &gate);
    assert!(raw.contains("--max-pods=16 --kube-reserved=\"cpu=60m,memory=0.5Gi\""), "{raw}");
    let off = ["--instance-type", "m5.large", "--raw"];
    let (_, raw) = userdata(Format::Text, "cel-off", POOL, &spec, &off);
    assert!(raw.contains("--max-pods=29 --kube-reserved=\"memory=0.5Gi\""), "{raw}");
    let bad = json!({"amiFamily": "AL2", "amiSelectorTerms": [{"id": "ami-1"}], "kubelet": {"maxPods": "0 - 1"}});
    let (status, _) = userdata(Format::Text, "cel-bad", POOL, &bad, &gate);
    let failure = status.expect_err("fails").to_string();
    for part in ["EC2NodeClass/default", "maxPods", "m5.large"] {
        assert!(failure.contains(part), "{failure}");
    }
}

#[test]
fn the_catalog_gives_the_pod_count() {
    let catalog = json!({"instanceTypes": [{
        "name": "odd.type", "labels": {}, "capacity": {"cpu": "2", "memory": "8Gi", "pods": "7"}, "offerings": [],
    }]});
    let catalog = file("catalog.json", &catalog.to_string());
    let spec = json!({"amiFamily": "AL2", "amiSelectorTerms": [{"id": "ami-1"}]});
    let more = ["--instance-type", "odd.type", "--catalog", &catalog, "--raw"];
    let (_, raw) = userdata(Format::Text, "catalog", POOL, &spec, &more);
    assert!(raw.contains("--max-pods=7'"), "{raw}");
    let more = ["--instance-type", "other.type", "--catalog", &catalog];
    let (status, _) = userdata(Format::Text, "catalog-none", POOL, &spec, &more);
    assert!(
        status.expect_err("fails").to_string().contains("\"other.type\" is not in the catalog")
    );
}

#[test]
fn what_cannot_be_rendered_is_named() {
    let bottlerocket = json!({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}], "userData": "#/bin/bash\n ./x"});
    let (status, text) = userdata(Format::Json, "toml", POOL, &bottlerocket, &[]);
    let failure = status.expect_err("fails").to_string();
    assert!(failure.contains("spec.userData: invalid TOML"), "{failure}");
    assert_eq!(text, "");
    let al2023 = json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]});
    let (status, _) = userdata(Format::Json, "cidr", POOL, &al2023, &["--service-cidr", ""]);
    assert!(status.expect_err("fails").to_string().contains("--service-cidr"));
    let (status, _) =
        userdata(Format::Json, "type", POOL, &al2023, &["--instance-type", "m99.huge"]);
    assert!(status.expect_err("fails").to_string().contains("\"m99.huge\" is not known"));
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n";
    let (status, _) = userdata(Format::Json, "pool", other, &al2023, &[]);
    assert!(status.expect_err("fails").to_string().contains("no NodePool"));
}

#[test] // B-066; aws-nodeclass 28
fn iam_prints_one_document_per_function() {
    let long = "c".repeat(100);
    let args =
        ["iam", "--cluster-name", &long, "--account", "111122223333", "--region", "us-gov-west-1"];
    let (status, text) = run(Format::Json, &args);
    assert_eq!(status, Ok(ExitStatus::Answered));
    let documents: Value = serde_json::from_str(&text).expect("JSON");
    let documents = documents.as_object().expect("by function");
    assert_eq!(documents.len(), 13);
    for (function, document) in documents {
        let length = document.to_string().len();
        assert!(length <= 6144, "{function}: {length}");
        assert_eq!(document["Version"], "2012-10-17");
    }
    let (_, text) = run(Format::Json, &["iam"]);
    assert!(text.contains("${ClusterName}"));
    let (status, _) = run(Format::Json, &["iam", "--account", "12"]);
    assert!(status.expect_err("fails").to_string().contains("--account 12"));
}
