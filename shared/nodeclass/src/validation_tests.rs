use serde_json::{Value, json};

use super::*;

#[allow(clippy::needless_pass_by_value)] // `json!` reads best in place.
fn class(family: &str, kubelet: Value, conditions: &[(&str, &str)]) -> EC2NodeClass {
    let conditions: Vec<Value> =
        conditions.iter().map(|(type_, status)| json!({"type": type_, "status": status})).collect();
    serde_json::from_value(json!({
        "metadata": {"name": "default"},
        "spec": {"amiFamily": family, "kubelet": kubelet},
        "status": {"conditions": conditions},
    }))
    .expect("a class")
}

const ALL_TRUE: &[(&str, &str)] = &[
    ("AMIsReady", "True"),
    ("InstanceProfileReady", "True"),
    ("SecurityGroupsReady", "True"),
    ("SubnetsReady", "True"),
];

const INPUTS: Inputs<'static> = Inputs {
    service_range: ServiceRange::Known,
    kubelet_problems: &[],
    evaluation: &Evaluation::Fine,
    node_class_cel: false,
};

fn verdict(check: Check) -> (ConditionStatus, &'static str, String) {
    match check {
        Check::Settled(it) => (it.status, it.reason, it.message),
        other => panic!("not settled: {other:?}"),
    }
}

#[test] // aws-nodeclass 8, steps 1 to 10 in order
fn the_order_of_the_checks() {
    let problem = ["spec.kubelet: unknown field \"x\"".to_owned()];
    let missing = Inputs { service_range: ServiceRange::Missing(None), ..INPUTS };
    assert_eq!(
        verdict(before_calls(&class("AL2023", json!({}), ALL_TRUE), &missing)),
        (
            ConditionStatus::False,
            "ClusterCIDRResolutionFailed",
            "Failed to detect the cluster CIDR".into()
        )
    );
    assert_eq!(before_calls(&class("AL2", json!({}), ALL_TRUE), &missing), Check::Ask);
    let not_yet = Inputs { service_range: ServiceRange::NotYet, ..INPUTS };
    assert_eq!(before_calls(&class("AL2023", json!({}), ALL_TRUE), &not_yet), Check::Retry);

    // api 13, case 9: kubelet before dependencies.
    let invalid = Inputs { kubelet_problems: &problem, ..INPUTS };
    let (_, reason, message) = verdict(before_calls(&class("AL2023", json!({}), &[]), &invalid));
    assert_eq!((reason, message.as_str()), ("InvalidKubeletConfiguration", problem[0].as_str()));

    // aws-nodeclass 7, case 10; api 12, case 11
    let expression = class("AL2023", json!({"maxPods": "110"}), ALL_TRUE);
    let (_, reason, message) = verdict(before_calls(&expression, &INPUTS));
    assert_eq!(
        (reason, message.as_str()),
        (
            "KubeletExpressionsDisabled",
            "spec.kubelet contains a CEL expression, but the NodeClassCEL feature gate is disabled"
        )
    );
    let on = Inputs { node_class_cel: true, ..INPUTS };
    assert_eq!(before_calls(&expression, &on), Check::Ask);
    let bad = Evaluation::Invalid("no number".into());
    let check = before_calls(&expression, &Inputs { evaluation: &bad, ..on.clone() });
    assert_eq!(verdict(check).1, "KubeletExpressionInvalid");
    let bad = Evaluation::Failed("negative".into());
    let check = before_calls(&expression, &Inputs { evaluation: &bad, ..on.clone() });
    assert_eq!(verdict(check).1, "KubeletExpressionEvaluationFailed");
    let unknown = Inputs { evaluation: &Evaluation::NotYet, ..on };
    assert_eq!(before_calls(&expression, &unknown), Check::Retry);
}

#[test] // aws-nodeclass 8, cases 5 and 6; api 12, cases 1 and 10; aws-capacity 21, case 9
fn what_a_family_cannot_apply() {
    let complaint = |family: AmiFamily, kubelet: Value| {
        let kubelet: BTreeMap<String, Value> = serde_json::from_value(kubelet).expect("a map");
        unsupported_kubelet(family, Some(&kubelet))
    };
    assert_eq!(
        complaint(AmiFamily::Al2, json!({"maxPods": 42, "registryPullQPS": 10})).as_deref(),
        Some(
            "spec.kubelet has fields not applied by the AL2 AMI family that would be silently dropped: registryPullQPS"
        )
    );
    assert_eq!(
        complaint(
            AmiFamily::Bottlerocket,
            json!({"registryPullQPS": 10, "podsPerCore": 4, "clusterDNS": ["10.0.0.10", "10.0.0.11"]})
        )
        .as_deref(),
        Some(
            "spec.kubelet has fields not applied by the Bottlerocket AMI family that would be silently dropped: podsPerCore, registryPullQPS; spec.kubelet.clusterDNS: the Bottlerocket AMI family doesn't accept multiple entries, only one, but 2 were set"
        )
    );
    let everything = json!({"registryPullQPS": 10, "clusterDNS": ["10.0.0.10", "10.0.0.11"]});
    for (family, want) in [
        (AmiFamily::Al2023, false),
        (AmiFamily::Custom, false),
        (AmiFamily::Windows2022, true),
        (AmiFamily::Al2, true),
    ] {
        assert_eq!(complaint(family, everything.clone()).is_some(), want, "{family}");
    }
    assert_eq!(complaint(AmiFamily::Windows2019, json!({"podsPerCore": 4})), None);
}

#[test] // aws-nodeclass 8, case 9; aws-capacity 21, case 7; api 13, cases 2 and 3
fn dependencies_come_before_the_calls() {
    let with = |change: &[(&str, &str)]| {
        let mut conditions = ALL_TRUE.to_vec();
        for (type_, status) in change {
            conditions.retain(|it| it.0 != *type_);
            conditions.push((type_, status));
        }
        before_calls(&class("AL2", json!(null), &conditions), &INPUTS)
    };
    let message = "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution";
    assert_eq!(
        verdict(with(&[("SubnetsReady", "Unknown"), ("AMIsReady", "False")])),
        (ConditionStatus::False, "DependenciesNotReady", message.into())
    );
    assert_eq!(
        verdict(with(&[("InstanceProfileReady", "Unknown")])),
        (ConditionStatus::Unknown, "DependenciesNotReady", message.into())
    );
    assert_eq!(with(&[]), Check::Ask);
}

#[test] // aws-nodeclass 8, case 10
fn reserved_tags() {
    let mut class = class("AL2", json!(null), ALL_TRUE);
    class.spec.tags =
        BTreeMap::from([("karpenter.sh/nodeclaim".to_owned(), "x".to_owned())]).into();
    assert_eq!(verdict(before_calls(&class, &INPUTS)).1, "TagValidationFailed");
}

fn error(code: &str, message: &str) -> AwsError {
    AwsError::new("ec2", "RunInstances", code, message)
}

#[test] // aws-nodeclass 8, cases 2 to 4; aws-capacity 21, cases 4 and 6
fn answers_of_ec2() {
    let role = class("AL2", json!(null), ALL_TRUE);
    let mut profile = role.clone();
    profile.spec.instance_profile = Some("gone".into());
    let no_profile = error("InvalidParameterValue", "Invalid IAM Instance Profile name: gone");
    let refused = |reason, message: &str| {
        Answer::Settled(Verdict { status: ConditionStatus::False, reason, message: message.into() })
    };
    for (call, answer, class, want) in [
        (
            Call::CreateFleet,
            error("DryRunOperation", "Request would have succeeded"),
            &role,
            Answer::Passed,
        ),
        (Call::CreateFleet, error("RequestLimitExceeded", "slow down"), &role, Answer::Retry),
        (
            Call::RunInstances,
            error(
                "UnauthorizedOperation",
                "You are not authorized ... with an explicit deny in a service control policy",
            ),
            &role,
            refused(
                "RunInstancesAuthCheckFailed",
                "Controller isn't authorized to call ec2:RunInstances: User is not authorized to perform this operation due to a service control policy",
            ),
        ),
        (
            Call::CreateFleet,
            error("UnauthorizedOperation", "You are not authorized to perform this operation."),
            &role,
            refused(
                "CreateFleetAuthCheckFailed",
                "Controller isn't authorized to call ec2:CreateFleet: User is not authorized to perform this operation because no identity-based policy allows it",
            ),
        ),
        (
            Call::CreateLaunchTemplate,
            error("UnauthorizedOperation", "... with an explicit deny in a permissions boundary"),
            &role,
            refused(
                "CreateLaunchTemplateAuthCheckFailed",
                "Controller isn't authorized to call ec2:CreateLaunchTemplate: User is not authorized to perform this operation due to a permission boundary",
            ),
        ),
        (
            Call::CreateLaunchTemplate,
            error("InvalidUserData.Malformed", "User data is limited to 16384 bytes"),
            &role,
            refused(
                "UserDataSizeLimitExceeded",
                "ec2:CreateLaunchTemplate rejected the rendered user data as too large: Rendered user data exceeds the EC2 user data size limit",
            ),
        ),
        (Call::RunInstances, no_profile.clone(), &role, Answer::Retry),
        (
            Call::RunInstances,
            no_profile,
            &profile,
            Answer::SettledButRetry(Verdict {
                status: ConditionStatus::False,
                reason: "InstanceProfileNotFound",
                message: "Instance profile \"gone\" not found".into(),
            }),
        ),
        (Call::CreateFleet, error("SomethingElse", "?"), &role, Answer::Failed),
    ] {
        // DIFFERENCE: behind the text of the specification, what EC2 said and what to do about it.
        let told = format!("; {}", answer.explain());
        let mut judged = judge(call, Err(&answer), class);
        if let Answer::Settled(verdict) | Answer::SettledButRetry(verdict) = &mut judged {
            let text = verdict.message.strip_suffix(&told).expect("says what EC2 said");
            verdict.message = text.to_owned();
        }
        assert_eq!(judged, want, "{call:?} {answer}");
    }
    assert_eq!(judge(Call::CreateFleet, Ok(()), &role), Answer::Passed);
}

#[test] // aws-nodeclass 8, the classification; aws-capacity 18.4, cases 7 and 9
fn reasons_of_refusals() {
    for (code, message, reason) in [
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "no", "SpotSLRCreationFailed"),
        ("UnauthorizedOperation", "Not authorized for images: [ami-1]", "AMIAuthorizationFailure"),
        ("AccessDenied", "no", "Unauthorized"),
        (
            "InvalidParameter",
            "Security group sg-1 and subnet subnet-1 belong to different networks.",
            "SecurityGroupSubnetVPCMismatch",
        ),
        (
            "InvalidParameterValue",
            "iamInstanceProfile.name is invalid",
            "InstanceProfileNameInvalid",
        ),
        ("InvalidLaunchTemplateId.NotFound", "gone", "LaunchTemplateNotFound"),
        ("InvalidLaunchTemplateName.NotFoundException", "gone", "LaunchTemplateNotFound"),
        ("InvalidAMIID.Malformed", "bad", "InvalidAMIID"),
        ("InvalidAMIID.NotFound", "none", "AMINotFound"),
        ("RequestLimitExceeded", "slow", "RequestLimitExceeded"),
        ("InternalError", "oops", "InternalError"),
        ("InvalidParameterCombination", "m5 is not eligible for Free Tier", "FreeTierIneligible"),
        ("MaxFleetCountExceeded", "", "FleetQuotaExceeded"),
        ("PendingVerification", "", "AccountPendingVerification"),
        ("MaxSpotInstanceCountExceeded", "", "SpotQuotaExceeded"),
        ("VcpuLimitExceeded", "", "VCPULimitExceeded"),
        ("InsufficientFreeAddressesInSubnet", "", "InsufficientFreeAddressesInSubnet"),
        ("SomeBrandNewEC2ErrorCode", "", "LaunchFailed"),
    ] {
        assert_eq!(classify(&error(code, message)).0, reason, "{code}");
    }
}

#[test] // aws-nodeclass 8, cases 7 and 8
fn any_annotation_makes_the_verdict_old() {
    let mut class = class("AL2", json!(null), ALL_TRUE);
    let before = content_key(&class);
    class.status.conditions.clear();
    assert_eq!(content_key(&class), before, "conditions do not count");
    class.metadata.annotations.insert("retry".into(), "1".into());
    assert_ne!(content_key(&class), before);
}
