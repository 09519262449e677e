//! The user data of every family, byte for byte.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use spokeshave_bootstrap::{
    BootstrapInput, ClusterInfo, MimeError, NodeFacts, RenderError, kubelet, registration, render,
    to_base64,
};
use spokeshave_model::{AmiFamily, Taint, TaintEffect};

const ENDPOINT: &str = "https://ABC123.gr7.eu-west-1.eks.amazonaws.com";

fn cluster() -> ClusterInfo {
    ClusterInfo {
        name: "demo".into(),
        endpoint: ENDPOINT.into(),
        ca_bundle: "QUJD".into(),
        service_cidr: Some("10.100.0.0/16".into()),
        dns_ip: Some("10.100.0.10".into()),
    }
}

fn labels(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(',').filter_map(|it| it.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn settings(value: Value, pods: Option<i64>, dns: Option<&str>) -> BTreeMap<String, Value> {
    let spec: BTreeMap<String, Value> = serde_json::from_value(value).expect("an object");
    kubelet::effective(Some(&spec), &NodeFacts { max_pods: pods, ..NodeFacts::default() }, dns)
}

fn input(family: AmiFamily) -> BootstrapInput {
    BootstrapInput {
        family,
        cluster: cluster(),
        taints: registration::taints(&[], &[]),
        kubelet: settings(json!({}), Some(58), Some("10.100.0.10")),
        ..BootstrapInput::default()
    }
}

fn hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn gpu(effect: TaintEffect) -> Taint {
    Taint::new("dedicated", "gpu", effect)
}

#[test] // aws-nodeclass 10, case 1
fn al2_to_the_byte() {
    let input = BootstrapInput {
        labels: labels(
            "karpenter.k8s.aws/ec2nodeclass=al2-class,karpenter.sh/capacity-type=spot,karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=general,team=a",
        ),
        taints: registration::taints(&[gpu(TaintEffect::NoSchedule)], &[]),
        ..input(AmiFamily::Al2)
    };
    let text = render(&input).expect("renders");
    assert_eq!(text.len(), 693, "{text}");
    assert_eq!(hex(&text), "7ae8663cbf0c5577f0e4d84c2b226acc695f6d245d5441b7e0d8c7687bb00256");
}

#[test] // aws-nodeclass 10, case 2
fn al2_on_ipv6_without_a_ca() {
    let input = BootstrapInput {
        cluster: ClusterInfo { name: "demo6".into(), ca_bundle: String::new(), ..cluster() },
        kubelet: settings(json!({}), Some(110), Some("fd30:1c53:5f8a::a")),
        ..input(AmiFamily::Al2)
    };
    let text = render(&input).expect("renders");
    let script = text.lines().skip(8).take(5).collect::<Vec<_>>().join("\n");
    assert_eq!(
        script,
        format!(
            "/etc/eks/bootstrap.sh 'demo6' --apiserver-endpoint '{ENDPOINT}'  \\\n--ip-family ipv6 \\\n--dns-cluster-ip 'fd30:1c53:5f8a::a' \\\n--use-max-pods false \\\n--kubelet-extra-args '--register-with-taints=\"karpenter.sh/unregistered:NoExecute\" --max-pods=110'"
        )
    );
}

/// The settings of aws-nodeclass 10, case 3.
fn every_managed_setting() -> Value {
    json!({
        "maxPods": 20,
        "podsPerCore": 2,
        "systemReserved": {"cpu": "100m", "memory": "100Mi", "ephemeral-storage": "1Gi"},
        "kubeReserved": {"cpu": "200m", "memory": "100Mi", "ephemeral-storage": "3Gi"},
        "evictionHard": {"memory.available": "5%", "nodefs.available": "10%", "nodefs.inodesFree": "10%"},
        "evictionSoft": {"memory.available": "500Mi", "nodefs.available": "15%", "nodefs.inodesFree": "15%"},
        "evictionSoftGracePeriod": {"memory.available": "1m", "nodefs.available": "1m30s", "nodefs.inodesFree": "2m"},
        "evictionMaxPodGracePeriod": 60,
        "imageGCHighThresholdPercent": 85,
        "imageGCLowThresholdPercent": 80,
        "cpuCFSQuota": true,
    })
}

#[test] // aws-nodeclass 10, case 3
fn al2_with_every_setting() {
    let input = BootstrapInput {
        labels: labels("team=a"),
        kubelet: settings(every_managed_setting(), Some(58), Some("10.0.1.100")),
        raid0: true,
        ..input(AmiFamily::Al2)
    };
    let text = render(&input).expect("renders");
    let want = "--kubelet-extra-args '--node-labels=\"team=a\" --register-with-taints=\"karpenter.sh/unregistered:NoExecute\" --max-pods=20 --pods-per-core=2 --system-reserved=\"cpu=100m,ephemeral-storage=1Gi,memory=100Mi\" --kube-reserved=\"cpu=200m,ephemeral-storage=3Gi,memory=100Mi\" --eviction-hard=\"memory.available<5%,nodefs.available<10%,nodefs.inodesFree<10%\" --eviction-soft=\"memory.available<500Mi,nodefs.available<15%,nodefs.inodesFree<15%\" --eviction-soft-grace-period=\"memory.available=1m0s,nodefs.available=1m30s,nodefs.inodesFree=2m0s\" --eviction-max-pod-grace-period=60 --image-gc-high-threshold=85 --image-gc-low-threshold=80 --cpu-cfs-quota=true' \\\n--local-disks raid0\n--//--\n";
    assert!(text.ends_with(want), "{text}");
}

#[test] // aws-nodeclass 10, cases 4, 6, 7 and 8; B-037 f
fn al2_with_user_data() {
    let head = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n";
    let shell = "--//\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\n\n";
    let generated = render(&input(AmiFamily::Al2)).expect("renders");
    let ours = generated.strip_prefix(head).expect("the archive's head");
    let with = |text: &str| {
        render(&BootstrapInput { user_data: Some(text.into()), ..input(AmiFamily::Al2) })
    };
    for (text, body) in [
        ("#!/bin/bash\necho hi\n", "#!/bin/bash\necho hi\n\n"),
        ("#!/bin/bash\necho hi", "#!/bin/bash\necho hi\n"),
        ("  \n", "  \n\n"),
        (
            "MIME-Version 1.0\nContent-Type: multipart/mixed; boundary=\"B\"\n",
            "MIME-Version 1.0\nContent-Type: multipart/mixed; boundary=\"B\"\n\n",
        ),
        ("echo\r\n", "echo\n\n"),
    ] {
        assert_eq!(with(text), Ok(format!("{head}{shell}{body}{ours}")), "{text}");
    }
    assert_eq!(with(""), Ok(generated.clone()));
    let error = |it: MimeError| Err(RenderError::Mime(it));
    assert_eq!(
        with("MIME-Version: 1.0\nContent-Type: text/x-shellscript\n\necho\n"),
        error(MimeError::NotMultipart("text/x-shellscript".into()))
    );
    assert_eq!(
        with("\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"B\"\n\n--B--\n"),
        error(MimeError::NoContentType)
    );
}

#[test] // aws-nodeclass 11, case 1
fn al2023_to_the_byte() {
    let input = BootstrapInput { labels: labels("a=b"), ..input(AmiFamily::Al2023) };
    insta::assert_snapshot!(render(&input).expect("renders"), @r#"
    MIME-Version: 1.0
    Content-Type: multipart/mixed; boundary="//"

    --//
    Content-Type: application/node.eks.aws

    # Karpenter Generated NodeConfig
    apiVersion: node.eks.aws/v1alpha1
    kind: NodeConfig
    metadata: {}
    spec:
      cluster:
        apiServerEndpoint: https://ABC123.gr7.eu-west-1.eks.amazonaws.com
        certificateAuthority: QUJD
        cidr: 10.100.0.0/16
        name: demo
      containerd: {}
      instance:
        localStorage: {}
      kubelet:
        config:
          clusterDNS:
          - 10.100.0.10
          maxPods: 58
          registerWithTaints:
          - effect: NoExecute
            key: karpenter.sh/unregistered
        flags:
        - --node-labels="a=b"

    --//--
    "#);
}

#[test] // aws-nodeclass 11, cases 2, 7 and 8
fn al2023_passes_kubelet_settings_through() {
    let input = BootstrapInput {
        cluster: ClusterInfo { service_cidr: Some("fdac:1::/108".into()), ..cluster() },
        taints: registration::taints(&[gpu(TaintEffect::NoSchedule)], &[]),
        kubelet: settings(
            json!({
                "registryPullQPS": 10,
                "evictionSoftGracePeriod": {"memory.available": "1m"},
                "evictionSoft": {"memory.available": "5%"},
            }),
            Some(58),
            Some("10.100.0.10"),
        ),
        raid0: true,
        ..input(AmiFamily::Al2023)
    };
    insta::assert_snapshot!(render(&input).expect("renders"), @r#"
    MIME-Version: 1.0
    Content-Type: multipart/mixed; boundary="//"

    --//
    Content-Type: application/node.eks.aws

    # Karpenter Generated NodeConfig
    apiVersion: node.eks.aws/v1alpha1
    kind: NodeConfig
    metadata: {}
    spec:
      cluster:
        apiServerEndpoint: https://ABC123.gr7.eu-west-1.eks.amazonaws.com
        certificateAuthority: QUJD
        cidr: fdac:1::/108
        name: demo
      containerd: {}
      instance:
        localStorage:
          strategy: RAID0
      kubelet:
        config:
          clusterDNS:
          - 10.100.0.10
          evictionSoft:
            memory.available: 5%
          evictionSoftGracePeriod:
            memory.available: 1m
          maxPods: 58
          registerWithTaints:
          - effect: NoSchedule
            key: dedicated
            value: gpu
          - effect: NoExecute
            key: karpenter.sh/unregistered
          registryPullQPS: 10

    --//--
    "#);
}

#[test] // aws-nodeclass 11, cases 3 to 6
fn al2023_with_user_data() {
    let head = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n";
    let generated = render(&input(AmiFamily::Al2023)).expect("renders");
    let ours = generated.strip_prefix(head).expect("the archive's head");
    let with = |text: &str| {
        render(&BootstrapInput { user_data: Some(text.into()), ..input(AmiFamily::Al2023) })
    };
    let node = "--//\nContent-Type: application/node.eks.aws\n\n";
    let shell = "--//\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\n\n";
    for (text, kind, body) in [
        (
            "{\"apiVersion\":\"node.eks.aws/v1alpha1\",\"kind\":\"NodeConfig\"}",
            node,
            "{\"apiVersion\":\"node.eks.aws/v1alpha1\",\"kind\":\"NodeConfig\"}\n",
        ),
        ("# just a comment", node, "# just a comment\n"),
        ("#!/bin/bash\necho hi", shell, "#!/bin/bash\necho hi\n"),
        ("- a\n- b", shell, "- a\n- b\n"),
    ] {
        assert_eq!(with(text), Ok(format!("{head}{kind}{body}{ours}")), "{text}");
    }
    let archive = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"==B\"\n\n--==B\nContent-Type: application/node.eks.aws\nX-Extra: dropped\n\nkind: NodeConfig\n--==B\nContent-Type: text/x-shellscript; charset=\"utf-8\"\nContent-Transfer-Encoding: base64\n\nZWNobwo=\n--==B\n\nbare\n--==B--\n";
    let want = format!(
        "{head}{node}kind: NodeConfig\n--//\nContent-Transfer-Encoding: base64\nContent-Type: text/x-shellscript; charset=\"utf-8\"\n\nZWNobwo=\n--//\nContent-Type: \n\nbare\n{ours}"
    );
    assert_eq!(with(archive), Ok(want));
}

#[test] // aws-capacity 15.3
fn al2023_needs_the_service_range_and_a_sound_ca() {
    let without = BootstrapInput {
        cluster: ClusterInfo { service_cidr: None, ..cluster() },
        ..input(AmiFamily::Al2023)
    };
    assert_eq!(render(&without), Err(RenderError::NoServiceCidr));
    let broken = BootstrapInput {
        cluster: ClusterInfo { ca_bundle: "not base64!".into(), ..cluster() },
        ..input(AmiFamily::Al2023)
    };
    assert_eq!(render(&broken), Err(RenderError::InvalidCaBundle));
    let none = BootstrapInput {
        cluster: ClusterInfo { ca_bundle: String::new(), ..cluster() },
        ..input(AmiFamily::Al2023)
    };
    assert!(!render(&none).expect("renders").contains("certificateAuthority"));
}

fn bottlerocket() -> BootstrapInput {
    BootstrapInput {
        labels: labels(
            "karpenter.sh/nodepool=general,karpenter.sh/capacity-type=spot,karpenter.sh/do-not-sync-taints=true,karpenter.k8s.aws/ec2nodeclass=br",
        ),
        taints: registration::taints(
            &[gpu(TaintEffect::NoSchedule), gpu(TaintEffect::NoExecute)],
            &[],
        ),
        ..input(AmiFamily::Bottlerocket)
    }
}

const BOTTLEROCKET: &str = "[settings]
[settings.kubernetes]
api-server = 'https://ABC123.gr7.eu-west-1.eks.amazonaws.com'
cluster-certificate = 'QUJD'
cluster-name = 'demo'
cluster-dns-ip = '10.100.0.10'
max-pods = 58

[settings.kubernetes.node-labels]
'karpenter.k8s.aws/ec2nodeclass' = 'br'
'karpenter.sh/capacity-type' = 'spot'
'karpenter.sh/do-not-sync-taints' = 'true'
'karpenter.sh/nodepool' = 'general'

[settings.kubernetes.node-taints]
dedicated = ['gpu:NoSchedule', 'gpu:NoExecute']
'karpenter.sh/unregistered' = [':NoExecute']
";

#[test] // aws-nodeclass 12, cases 1 and 5
fn bottlerocket_to_the_byte() {
    assert_eq!(render(&bottlerocket()), Ok(BOTTLEROCKET.to_owned()));
    let empty = BootstrapInput { user_data: Some(String::new()), ..bottlerocket() };
    assert_eq!(render(&empty), Ok(BOTTLEROCKET.to_owned()));
    let broken =
        BootstrapInput { user_data: Some("#/bin/bash\n ./not-toml.sh".into()), ..bottlerocket() };
    assert!(matches!(render(&broken), Err(RenderError::Toml(_))));
}

#[test] // aws-nodeclass 12, case 2
fn bottlerocket_with_every_setting() {
    let kubelet = json!({
        "evictionSoft": {"memory.available": "500Mi", "nodefs.available": "15%"},
        "evictionSoftGracePeriod": {"memory.available": "1m", "nodefs.available": "90s"},
        "evictionMaxPodGracePeriod": 60,
        "imageGCHighThresholdPercent": 85,
        "imageGCLowThresholdPercent": 80,
        "cpuCFSQuota": true,
        "kubeReserved": {"cpu": "200m", "memory": "100Mi", "ephemeral-storage": "3Gi"},
    });
    let input = BootstrapInput {
        kubelet: settings(kubelet, Some(58), Some("10.100.0.10")),
        raid0: true,
        image_version: "1.46.0".into(),
        ..bottlerocket()
    };
    insta::assert_snapshot!(render(&input).expect("renders"), @r"
    [settings]
    [settings.bootstrap-commands]
    [settings.bootstrap-commands.000-mount-instance-storage]
    commands = [['apiclient', 'ephemeral-storage', 'init'], ['apiclient', 'ephemeral-storage', 'bind']]
    mode = 'always'
    essential = true

    [settings.kubernetes]
    api-server = 'https://ABC123.gr7.eu-west-1.eks.amazonaws.com'
    cluster-certificate = 'QUJD'
    cluster-name = 'demo'
    cluster-dns-ip = '10.100.0.10'
    max-pods = 58
    eviction-max-pod-grace-period = 60
    image-gc-high-threshold-percent = '85'
    image-gc-low-threshold-percent = '80'
    cpu-cfs-quota-enforced = true

    [settings.kubernetes.node-labels]
    'karpenter.k8s.aws/ec2nodeclass' = 'br'
    'karpenter.sh/capacity-type' = 'spot'
    'karpenter.sh/do-not-sync-taints' = 'true'
    'karpenter.sh/nodepool' = 'general'

    [settings.kubernetes.node-taints]
    dedicated = ['gpu:NoSchedule', 'gpu:NoExecute']
    'karpenter.sh/unregistered' = [':NoExecute']

    [settings.kubernetes.eviction-soft]
    'memory.available' = '500Mi'
    'nodefs.available' = '15%'

    [settings.kubernetes.eviction-soft-grace-period]
    'memory.available' = '1m0s'
    'nodefs.available' = '1m30s'

    [settings.kubernetes.kube-reserved]
    cpu = '200m'
    ephemeral-storage = '3Gi'
    memory = '100Mi'
    ");
}

#[test] // aws-nodeclass 12, cases 3, 4, 7 and 8; B-036
fn bottlerocket_with_user_settings() {
    let user = r#"
[settings.kubernetes]
kube-api-qps = 30
bogus = "x"
log-level = 4
[settings.kubernetes.node-labels]
mine = "it's"
"karpenter.sh/nodepool" = "other"
[settings.kubernetes.node-taints]
old = ["v:NoSchedule"]
[settings.host-containers.admin]
enabled = true
[settings.kernel.sysctl]
"user.max_user_namespaces" = "16384"
[settings.bootstrap-commands.999-x]
commands = [["apiclient", "set", "motd=hi"]]
mode = "once"
essential = false
extra = 1
[settings.bootstrap-commands.000-mount-instance-storage]
commands = [["mine"]]
[other]
a = 1
"#;
    let input = BootstrapInput {
        user_data: Some(user.into()),
        raid0: true,
        image_version: "1.20.3".into(),
        ..bottlerocket()
    };
    insta::assert_snapshot!(render(&input).expect("renders"), @r#"
    [settings]
    [settings.bootstrap-commands]
    [settings.bootstrap-commands.000-mount-instance-storage]
    commands = [['apiclient', 'ephemeral-storage', 'init'], ['apiclient', 'ephemeral-storage', 'bind', '--dirs', '/var/lib/containerd', '/var/lib/kubelet', '/var/log/pods']]
    mode = 'always'
    essential = true

    [settings.bootstrap-commands.999-x]
    commands = [['apiclient', 'set', 'motd=hi']]
    mode = 'once'
    essential = false

    [settings.host-containers]
    [settings.host-containers.admin]
    enabled = true

    [settings.kernel]
    [settings.kernel.sysctl]
    'user.max_user_namespaces' = '16384'

    [settings.kubernetes]
    api-server = 'https://ABC123.gr7.eu-west-1.eks.amazonaws.com'
    cluster-certificate = 'QUJD'
    cluster-name = 'demo'
    cluster-dns-ip = '10.100.0.10'
    max-pods = 58
    kube-api-qps = 30
    log-level = 4

    [settings.kubernetes.node-labels]
    'karpenter.k8s.aws/ec2nodeclass' = 'br'
    'karpenter.sh/capacity-type' = 'spot'
    'karpenter.sh/do-not-sync-taints' = 'true'
    'karpenter.sh/nodepool' = 'general'
    mine = "it's"

    [settings.kubernetes.node-taints]
    dedicated = ['gpu:NoSchedule', 'gpu:NoExecute']
    'karpenter.sh/unregistered' = [':NoExecute']
    "#);
    let wrong = |text: &str| {
        let input = BootstrapInput { user_data: Some(text.into()), ..bottlerocket() };
        render(&input).expect_err(text).to_string()
    };
    assert_eq!(
        wrong("[settings.kubernetes]\nimage-gc-high-threshold-percent = 50"),
        "spec.userData: invalid TOML: settings.kubernetes.image-gc-high-threshold-percent must be a string"
    );
    assert_eq!(wrong("settings = 1"), "spec.userData: invalid TOML: settings must be a table");
    assert_eq!(
        wrong("[settings.bootstrap-commands.x]\ncommands = ['a']"),
        "spec.userData: invalid TOML: settings.bootstrap-commands.x.commands must be a list of lists of strings"
    );
}

#[test] // aws-nodeclass 13, cases 1, 2 and 3
fn windows_to_the_byte() {
    let windows = BootstrapInput {
        labels: labels("karpenter.sh/nodepool=win"),
        kubelet: settings(json!({}), Some(110), Some("10.100.0.10")),
        user_data: Some("Write-Host \"hi\"".into()),
        ..input(AmiFamily::Windows2022)
    };
    let text = render(&windows).expect("renders");
    assert_eq!(hex(&text), "343ac1781cf0f5fc2a8f787ef8cef32d76f7585cafed464657a896b3a62a8814");
    let raid = BootstrapInput { raid0: true, ..windows.clone() };
    assert_eq!(render(&raid), Ok(text));
    let plain = BootstrapInput { user_data: None, ..windows };
    let text = render(&plain).expect("renders");
    assert!(text.starts_with("<powershell>\n[string]$EKSBootstrapScriptFile = "), "{text}");
}

#[test] // aws-nodeclass 13, cases 4 and 5
fn custom_is_verbatim() {
    let user_data = Some("#!/bin/sh\nexit 0\n".to_owned());
    let custom = BootstrapInput { user_data, ..input(AmiFamily::Custom) };
    assert_eq!(to_base64(&render(&custom).expect("renders")), "IyEvYmluL3NoCmV4aXQgMAo=");
    assert_eq!(render(&input(AmiFamily::Custom)), Ok(String::new()));
}

#[test] // aws-nodeclass 9, the last BETTER
fn cluster_facts_cannot_leave_their_quotes() {
    for family in [AmiFamily::Al2, AmiFamily::Windows2019] {
        let unsafe_name = BootstrapInput {
            cluster: ClusterInfo { name: "demo'; rm -rf /".into(), ..cluster() },
            ..input(family)
        };
        let error = Err(RenderError::UnsafeText { field: "cluster name" });
        assert_eq!(render(&unsafe_name), error);
    }
}
