use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Characters of a managed policy without white space. Source: IAM quotas.
const MAX_POLICY: usize = 6144;

fn demo() -> Scope {
    Scope::default().filled(
        Some("demo"),
        Some("111122223333"),
        Some("eu-west-1"),
        Some("arn:aws:iam::111122223333:role/KarpenterNodeRole-demo"),
    )
}

/// `*` and `?` as IAM has them.
fn like(pattern: &str, text: &str) -> bool {
    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.first(), text.first()) {
            (None, None) => true,
            (Some(b'*'), _) => {
                matches(&pattern[1..], text) || (!text.is_empty() && matches(pattern, &text[1..]))
            }
            (Some(b'?'), Some(_)) => matches(&pattern[1..], &text[1..]),
            (Some(a), Some(b)) if a == b => matches(&pattern[1..], &text[1..]),
            _ => false,
        }
    }
    matches(pattern.as_bytes(), text.as_bytes())
}

fn list(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        other => other.as_str().into_iter().collect(),
    }
}

/// A request: context keys have one or more values.
struct Request<'a> {
    action: &'a str,
    resource: &'a str,
    context: BTreeMap<String, Vec<String>>,
}

fn request<'a>(action: &'a str, resource: &'a str, context: &[(&str, &str)]) -> Request<'a> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in context {
        all.entry((*key).to_owned()).or_default().push((*value).to_owned());
        if let Some(tag) = key.strip_prefix("aws:RequestTag/") {
            all.entry("aws:TagKeys".into()).or_default().push(tag.to_owned());
        }
    }
    Request { action, resource, context: all }
}

fn holds(
    operator: &str,
    key: &str,
    wanted: &Value,
    context: &BTreeMap<String, Vec<String>>,
) -> bool {
    let values = context.get(key);
    let wanted = list(wanted);
    let equal = |value: &String| wanted.iter().any(|it| it == value);
    match (operator, values) {
        ("StringEquals", Some(values)) => values.iter().any(equal),
        ("StringLike", Some(values)) => {
            values.iter().any(|value| wanted.iter().any(|it| like(it, value)))
        }
        ("StringEqualsIfExists" | "ForAllValues:StringEquals", None) => true,
        ("StringEqualsIfExists", Some(values)) => values.iter().any(equal),
        ("ForAllValues:StringEquals", Some(values)) => values.iter().all(equal),
        ("StringEquals" | "StringLike", None) => false,
        (other, _) => panic!("{other} is not known to the evaluator"),
    }
}

fn allowed(policy: &Value, request: &Request<'_>) -> bool {
    policy["Statement"].as_array().expect("statements").iter().any(|statement| {
        let conditions = statement.get("Condition").and_then(Value::as_object);
        list(&statement["Action"]).contains(&request.action)
            && list(&statement["Resource"]).iter().any(|it| like(it, request.resource))
            && conditions.into_iter().flatten().all(|(operator, keys)| {
                keys.as_object()
                    .expect("keys")
                    .iter()
                    .all(|(key, wanted)| holds(operator, key, wanted, &request.context))
            })
    })
}

fn may(concern: Concern, action: &str, resource: &str, context: &[(&str, &str)]) -> bool {
    allowed(&policy(concern, &demo()), &request(action, resource, context))
}

const INSTANCE: &str = "arn:aws:ec2:eu-west-1:111122223333:instance/i-1";
const TEMPLATE: &str = "arn:aws:ec2:eu-west-1:111122223333:launch-template/lt-1";
const PROFILE: &str =
    "arn:aws:iam::111122223333:instance-profile/karpenter/eu-west-1/demo/u/demo_1";

const LAUNCH_TAGS: &[(&str, &str)] = &[
    ("aws:RequestTag/kubernetes.io/cluster/demo", "owned"),
    ("aws:RequestTag/eks:eks-cluster-name", "demo"),
    ("aws:RequestTag/karpenter.k8s.aws/ec2nodeclass", "default"),
];

const OWNED: &[(&str, &str)] = &[
    ("aws:ResourceTag/kubernetes.io/cluster/demo", "owned"),
    ("aws:ResourceTag/karpenter.sh/nodepool", "general"),
];

fn with<'a>(base: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    base.iter().chain(more).copied().collect()
}

#[test] // aws-nodeclass 28, case 1
fn launches_need_the_tags() {
    for concern in [Concern::Launch, Concern::Nodeclass] {
        for pool in ["", "general"] {
            let tags = with(LAUNCH_TAGS, &[("aws:RequestTag/karpenter.sh/nodepool", pool)]);
            assert!(may(concern, "ec2:RunInstances", INSTANCE, &tags), "{concern} {pool:?}");
            assert!(may(concern, "ec2:CreateLaunchTemplate", TEMPLATE, &tags));
            let creating = with(&tags, &[("ec2:CreateAction", "CreateFleet")]);
            assert!(may(concern, "ec2:CreateTags", INSTANCE, &creating));
            assert!(!may(concern, "ec2:CreateTags", INSTANCE, &tags), "on a running instance");
        }
        assert!(!may(concern, "ec2:RunInstances", INSTANCE, LAUNCH_TAGS), "no nodepool tag");
        assert!(may(concern, "ec2:RunInstances", "arn:aws:ec2:eu-west-1::image/ami-1", &[]));
        assert!(may(
            concern,
            "ec2:CreateFleet",
            "arn:aws:ec2:eu-west-1:999999999999:subnet/subnet-1",
            &[]
        ));
        assert!(may(concern, "ec2:RunInstances", TEMPLATE, OWNED));
        assert!(!may(concern, "ec2:RunInstances", TEMPLATE, &[]), "somebody else's template");
        let to = |service: &'static str| [("iam:PassedToService", service)];
        let role = "arn:aws:iam::111122223333:role/KarpenterNodeRole-demo";
        assert!(may(concern, "iam:PassRole", role, &to("ec2.amazonaws.com")));
        assert!(!may(concern, "iam:PassRole", role, &to("lambda.amazonaws.com")));
        let admin = "arn:aws:iam::111122223333:role/Admin";
        assert!(!may(concern, "iam:PassRole", admin, &to("ec2.amazonaws.com")));
    }
}

#[test] // aws-nodeclass 28, cases 2 and 3; B-065
fn tagging_is_for_three_keys_of_our_instances() {
    let tag = |context: &[(&str, &str)]| {
        may(Concern::Tagging, "ec2:CreateTags", INSTANCE, &with(OWNED, context))
    };
    assert!(tag(&[
        ("aws:RequestTag/Name", "node"),
        ("aws:RequestTag/karpenter.sh/nodeclaim", "a")
    ]));
    assert!(tag(&[("aws:RequestTag/Name", "node")]));
    assert!(!tag(&[("aws:RequestTag/team", "a")]));
    assert!(!tag(&[("aws:RequestTag/kubernetes.io/cluster/x", "owned")]));
    assert!(!tag(&[("aws:RequestTag/eks:eks-cluster-name", "other")]));
    let other = [
        ("aws:ResourceTag/kubernetes.io/cluster/other", "owned"),
        ("aws:ResourceTag/karpenter.sh/nodepool", "general"),
        ("aws:RequestTag/Name", "node"),
    ];
    assert!(!may(Concern::Tagging, "ec2:CreateTags", INSTANCE, &other));
}

#[test] // aws-nodeclass 28, case 4
fn only_our_instances_are_terminated() {
    for concern in [Concern::Termination, Concern::InstanceGc, Concern::Launch] {
        let end =
            |context: &[(&str, &str)]| may(concern, "ec2:TerminateInstances", INSTANCE, context);
        assert!(end(OWNED));
        assert!(end(&with(OWNED, &[("aws:ResourceTag/eks:eks-cluster-name", "demo")])));
        assert!(!end(&with(OWNED, &[("aws:ResourceTag/eks:eks-cluster-name", "other")])));
        assert!(!end(&[
            ("aws:ResourceTag/kubernetes.io/cluster/other", "owned"),
            ("aws:ResourceTag/karpenter.sh/nodepool", "general"),
        ]));
        assert!(!end(&[]));
    }
}

#[test] // aws-nodeclass 16, case 8; 28
fn only_our_templates_are_deleted() {
    for concern in [Concern::Nodeclass, Concern::CatalogRefresh] {
        let delete =
            |context: &[(&str, &str)]| may(concern, "ec2:DeleteLaunchTemplate", TEMPLATE, context);
        assert!(delete(OWNED), "{concern}");
        assert!(!delete(&[]), "{concern}");
        assert!(!delete(&OWNED[1..]), "{concern}");
        assert!(!may(concern, "ec2:TerminateInstances", INSTANCE, OWNED), "{concern}");
    }
    let group = "arn:aws:ec2:eu-west-1:111122223333:security-group/sg-1";
    let tags = with(LAUNCH_TAGS, &[("aws:RequestTag/karpenter.sh/nodepool", "general")]);
    for concern in [Concern::Nodeclass, Concern::Launch] {
        assert!(!may(concern, "ec2:CreateTags", group, &tags), "{concern}: outside a creation");
    }
}

#[test] // aws-nodeclass 28, case 5
fn profiles_are_made_with_all_tags() {
    let tags = with(LAUNCH_TAGS, &[("aws:RequestTag/topology.kubernetes.io/region", "eu-west-1")]);
    let make = |context: &[(&str, &str)]| {
        may(Concern::Nodeclass, "iam:CreateInstanceProfile", PROFILE, context)
    };
    assert!(make(&tags));
    let arn = "arn:aws:eks:eu-west-1:111122223333:cluster/demo";
    assert!(make(&with(&tags, &[("aws:RequestTag/eks:eks-cluster-arn", arn)])));
    assert!(!make(LAUNCH_TAGS), "without the region");
    let of_karpenter = [
        ("aws:ResourceTag/kubernetes.io/cluster/demo", "owned"),
        ("aws:ResourceTag/topology.kubernetes.io/region", "eu-west-1"),
        ("aws:ResourceTag/karpenter.k8s.aws/ec2nodeclass", "default"),
    ];
    for action in [
        "iam:AddRoleToInstanceProfile",
        "iam:RemoveRoleFromInstanceProfile",
        "iam:DeleteInstanceProfile",
    ] {
        assert!(may(Concern::Nodeclass, action, PROFILE, &of_karpenter), "{action}");
        assert!(!may(Concern::Nodeclass, action, PROFILE, &[]), "{action}");
    }
    let tag = |context: &[(&str, &str)]| {
        may(Concern::Nodeclass, "iam:TagInstanceProfile", PROFILE, context)
    };
    assert!(tag(&with(&tags, &of_karpenter)));
    assert!(!tag(&of_karpenter), "with other tags than ours");
    assert!(!tag(&tags), "somebody else's profile");
    let foreign = [("aws:RequestTag/kubernetes.io/cluster/demo", "other")];
    assert!(!tag(&with(&with(&of_karpenter, &tags[1..]), &foreign)));
    let collects = Concern::InstanceProfileGc;
    assert!(may(collects, "iam:DeleteInstanceProfile", PROFILE, &of_karpenter));
    assert!(may(collects, "iam:ListInstanceProfiles", PROFILE, &[]), "B-067: on every resource");
    assert!(!may(collects, "iam:AddRoleToInstanceProfile", PROFILE, &of_karpenter));
}

#[test] // aws-nodeclass 28, cases 6 and 7
fn reads_stay_in_the_region() {
    let read = |region: &str| {
        may(Concern::Nodeclass, "ec2:DescribeSubnets", "*", &[("aws:RequestedRegion", region)])
    };
    assert!(read("eu-west-1"));
    assert!(!read("us-east-1"));
    let parameter = |name: &str| {
        let arn = format!("arn:aws:ssm:eu-west-1::parameter{name}");
        may(Concern::Nodeclass, "ssm:GetParameter", &arn, &[])
    };
    assert!(parameter("/aws/service/eks/optimized-ami/1.34/x/image_id"));
    assert!(!parameter("/my/param"));
}

#[test] // B-066
fn every_document_fits_a_managed_policy() {
    let long = "c".repeat(100);
    for (region, role) in [
        ("us-isob-east-1", format!("arn:aws-iso-b:iam::111122223333:role/{}", "r".repeat(64))),
        ("us-isof-south-1", format!("arn:aws-iso-f:iam::111122223333:role/{}", "r".repeat(64))),
        ("cn-northwest-1", format!("arn:aws-cn:iam::111122223333:role/{}", "r".repeat(64))),
        ("us-gov-west-1", format!("arn:aws-us-gov:iam::111122223333:role/{}", "r".repeat(64))),
    ] {
        let scope =
            Scope::default().filled(Some(&long), Some("111122223333"), Some(region), Some(&role));
        for (name, document) in policies(&scope) {
            let length = document.to_string().chars().filter(|c| !c.is_whitespace()).count();
            assert!(length <= MAX_POLICY, "{name}: {length}");
        }
        let names = Concern::ALL.iter().map(|it| format!("{}-{it}.fifo", stack_prefix(&long)));
        assert!(names.clone().all(|it| it.len() <= 80), "{names:?}");
    }
}

#[test]
fn every_change_of_ec2_and_iam_is_conditional() {
    // What a launch uses but does not make belongs to the user and carries no tags of ours.
    let unconditional = BTreeSet::from(["AllowScopedEC2InstanceAccessActions"]);
    for (name, document) in policies(&demo()) {
        for statement in document["Statement"].as_array().expect("statements") {
            let sid = statement["Sid"].as_str().expect("a sid");
            let changes = list(&statement["Action"]).into_iter().any(|action| {
                let (service, operation) = action.split_once(':').expect("service:operation");
                matches!(service, "ec2" | "iam")
                    && !["Describe", "Get", "List"].iter().any(|it| operation.starts_with(it))
            });
            if changes && !unconditional.contains(sid) {
                assert!(statement.get("Condition").is_some(), "{name}: {sid}");
            }
            let everywhere = list(&statement["Resource"]).contains(&"*");
            assert!(!(everywhere && changes), "{name}: {sid}");
            assert!(!statement.to_string().contains("\"*:"), "{name}: {sid}");
        }
    }
}

#[test] // aws-nodeclass 28: interruption has the queue and the cluster, and nothing of EC2
fn functions_that_decide_have_no_ec2() {
    let scope = demo();
    for concern in [
        Concern::Interruption,
        Concern::Provision,
        Concern::Disruption,
        Concern::Nodepool,
        Concern::ClusterBridge,
        Concern::InstanceProfileGc,
    ] {
        assert!(!policy(concern, &scope).to_string().contains("ec2:"), "{concern}");
    }
}

#[test]
fn placeholders_are_what_the_template_fills_in() {
    let document = policy(Concern::Provision, &Scope::default()).to_string();
    for part in [
        "${ProvisionQueue.Arn}",
        "${ProvisionWakeQueue.Arn}",
        "${LaunchQueue.Arn}",
        "${StateTable.Arn}",
        "${ProvisionLogs.Arn}",
        "arn:${AWS::Partition}:eks:${AWS::Region}:${AWS::AccountId}:cluster/${ClusterName}",
    ] {
        assert!(document.contains(part), "{part}");
    }
    assert_eq!(logical(Concern::InstanceProfileGc), "InstanceProfileGc");
}
