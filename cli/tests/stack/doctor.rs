use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::aws::{Aws, Message, STACK, refused, refused_xml};

/// Findings that are not `ok`, as `check subject status: message`.
fn complaints(answer: &Value) -> Vec<String> {
    let checks = answer["checks"].as_array().expect("checks").iter();
    let text = |it: &Value, name: &str| it[name].as_str().unwrap_or_default().to_owned();
    checks
        .filter(|it| it["status"] != "ok")
        .map(|it| {
            let words = ["check", "subject", "status"].map(|name| text(it, name)).join(" ");
            format!("{words}: {}", text(it, "message"))
        })
        .collect()
}

/// The fix of the first finding about a subject that is not `ok`.
fn fix<'a>(answer: &'a Value, subject: &str) -> &'a str {
    let mut checks = answer["checks"].as_array().expect("checks").iter();
    let found =
        checks.find(|it| it["subject"] == subject && it["status"] != "ok").expect("a finding");
    found["fix"].as_str().unwrap_or("none")
}

#[test]
fn nothing_is_wrong_with_a_whole_stack() {
    let aws = Aws::start();
    let (status, answer, error) = aws.doctor(&[]);
    assert_eq!((complaints(&answer), error.as_str()), (vec![], ""));
    assert_eq!(status, 0);
    let head = ["stack", "region", "cluster", "healthy", "faults", "warnings"]
        .map(|it| answer[it].clone());
    assert_eq!(
        head,
        [json!(STACK), json!("us-west-2"), json!("prod"), json!(true), json!(0), json!(0)]
    );
    let checks = answer["checks"].as_array().expect("checks");
    let count = |check: &str| checks.iter().filter(|it| it["check"] == check).count();
    for (check, n) in [
        ("stack", 1),
        ("queue", 14),
        ("bus", 1),
        ("rule", 19),
        ("schedule", 8),
        ("table", 1),
        ("autoscaler", 1),
        ("catalog", 1),
        ("function", 13),
        ("eventSource", 14),
        ("policy", 13),
        ("cluster", 1),
        ("accessEntry", 13),
        ("apiServer", 1),
        ("crd", 5),
        ("rbac", 12),
        ("bridge", 1),
        ("nodeClass", 1),
        ("nodePool", 1),
        ("interruption", 1),
    ] {
        assert_eq!(count(check), n, "{check}");
    }
    assert!(checks.iter().all(|it| it["fix"].is_null()));
    // It asks, and sends one message: nothing else is changed.
    let writes = aws.state().calls.iter().filter(|it| it.starts_with("SendMessage")).count();
    assert_eq!(writes, 1);

    let (status, text, _) = aws.run(&["doctor", "--stack", STACK, "--no-cluster", "--no-probe"]);
    assert_eq!(status, 0);
    assert!(text.contains("ok       queue LaunchQueue: as it should be\n"), "{text}");
    assert!(text.ends_with(" checks, 0 faults, 0 warnings\n"), "{text}");
    assert!(!text.contains("apiServer") && !text.contains("interruption Int"), "{text}");
}

#[test]
fn all_faults_are_told_at_once_with_what_to_do() {
    let aws = Aws::start();
    {
        let mut state = aws.state();
        state.stack_status = "UPDATE_ROLLBACK_COMPLETE";
        state.changed = vec![
            ("GetQueueAttributes LaunchQueue", "/Attributes/VisibilityTimeout", json!("30")),
            ("GetQueueAttributes LaunchQueue", "/Attributes/Policy", json!("{}")),
            ("GetQueueAttributes NodepoolQueue", "/Attributes/RedrivePolicy", json!(null)),
            ("DescribeRule SpotInterruptionRule", "/State", json!("DISABLED")),
            ("DescribeRule LaunchRule", "/EventPattern", json!(r#"{"detail-type":["Sweep"]}"#)),
            ("ListTargetsByRule LaunchRule", "/Targets", json!([])),
            ("GetSchedule SweepSchedule", "/State", json!("DISABLED")),
            ("GetFunctionConfiguration Launch", "/Timeout", json!(3)),
            (
                "GetFunctionConfiguration Tagging",
                "/Environment/Variables/CLUSTER_NAME",
                json!("other"),
            ),
            ("ListEventSourceMappings Launch", "/EventSourceMappings/0/State", json!("Disabled")),
            ("DescribeAccessEntry LaunchRole", "/accessEntry/kubernetesGroups", json!([])),
            ("DescribeAccessEntry NodeRole", "/accessEntry/type", json!("STANDARD")),
            ("crd nodepools.karpenter.sh", "/spec/versions/0/served", json!(false)),
            ("review spokeshave:termination create pods eviction", "/status/allowed", json!(false)),
            ("lease spokeshave-bridge", "/spec/renewTime", json!("2020-01-01T00:00:00Z")),
            (
                "ec2nodeclasses",
                "/items/0/status/conditions",
                json!([
                    {"type": "AMIsReady", "status": "False", "message": "no image"},
                    {"type": "Ready", "status": "False", "message": "AMIsReady=False"},
                ]),
            ),
            (
                "nodepools",
                "/items/0/status/conditions",
                json!([
                    {"type": "NodeClassReady", "status": "False", "message": "the class is not ready"},
                    {"type": "NodeRegistrationHealthy", "status": "False", "message": "none joined"},
                    {"type": "Ready", "status": "False", "message": "NodeClassReady=False"},
                ]),
            ),
        ];
        state.instead = [
            (
                "GetQueueAttributes TaggingQueue".to_owned(),
                refused("com.amazonaws.sqs#QueueDoesNotExist"),
            ),
            ("DescribeAccessEntry TaggingRole".to_owned(), refused("ResourceNotFoundException")),
            ("crd nodeclaims.karpenter.sh".to_owned(), (404, "{}".to_owned())),
            ("DescribeSubnets prod".to_owned(), (200, "<R><set/></R>".to_owned())),
            ("GetRolePolicy LifecycleRole".to_owned(), refused_xml("NoSuchEntity")),
        ]
        .into();
        state.queues.insert("DeadLetters".into(), vec![Message::of("d", "LaunchQueue")]);
        state.records.clear();
        state.answers_probes = false;
    }
    let (status, answer, error) = aws.doctor(&[]);
    assert_eq!((status, error.as_str()), (1, ""));
    assert_eq!(
        complaints(&answer),
        [
            "stack spokeshave-prod warning: it is UPDATE_ROLLBACK_COMPLETE: it works as it was before its last update",
            "queue LaunchQueue fault: messages are hidden for 30 s, less than the 360 s that its function may need; its policy does not let EventBridge send to it",
            "queue TaggingQueue fault: it is not there (sqs GetQueueAttributes: QueueDoesNotExist: no)",
            "queue NodepoolQueue fault: its dead letters go to nowhere",
            "deadLetters DeadLetters warning: 1 messages could not be handled",
            "rule LaunchRule fault: it does not route NodeClaimCreated; its target is not LaunchQueue",
            "rule SpotInterruptionRule fault: it is disabled",
            "schedule SweepSchedule fault: it is disabled",
            "catalog state table fault: nothing is known of what can be bought",
            "function Launch fault: its time limit is 3 s, not 60 s",
            "eventSource LaunchQueue fault: it is Disabled",
            "function Tagging fault: its CLUSTER_NAME is \"other\", the stack's cluster \"prod\"",
            "policy LifecycleRole fault: it is not there (iam GetRolePolicy: NoSuchEntity: no)",
            "accessEntry LaunchRole fault: its entry is not in the group spokeshave:launch",
            "accessEntry TaggingRole fault: it is not there (eks DescribeAccessEntry: ResourceNotFoundException: no)",
            "accessEntry NodeRole fault: its entry is of type STANDARD",
            "crd nodepools.karpenter.sh fault: it does not serve v1",
            "crd nodeclaims.karpenter.sh fault: it is not there",
            "rbac spokeshave:termination fault: it may not create pods/eviction",
            "bridge spokeshave-bridge fault: BRIDGE",
            "nodeClass default fault: AMIsReady: no image; spec.subnetSelectorTerms[0] selects nothing",
            "nodePool general fault: NodeClassReady: the class is not ready; NodeRegistrationHealthy: none joined",
            "nodePool general warning: its nodes do not register: none joined",
            "interruption InterruptionQueue fault: a spot warning was not taken within 0 s",
        ]
        .map(|it| it.replace("BRIDGE", &bridge_age(&answer)))
    );
    assert_eq!((&answer["faults"], &answer["warnings"]), (&json!(21), &json!(3)));
    // Nothing that is wrong is without a way on.
    let checks = answer["checks"].as_array().expect("checks");
    assert!(checks.iter().all(|it| it["status"] == "ok" || it["fix"].is_string()));
    assert_eq!(fix(&answer, "LaunchQueue"), "deploy the stack again");
    assert_eq!(
        fix(&answer, "nodeclaims.karpenter.sh"),
        "install the chart (infra/chart), or apply infra/crds"
    );
}

/// How the age of the bridge's Lease is told: it depends on the clock.
fn bridge_age(answer: &Value) -> String {
    let mut checks = answer["checks"].as_array().expect("checks").iter();
    let found = checks.find(|it| it["check"] == "bridge").expect("a finding");
    let message = found["message"].as_str().expect("a text");
    let seconds = message.strip_prefix("nobody has watched the cluster for ").expect("a number");
    let seconds: i64 = seconds.trim_end_matches(" s").parse().expect("a number");
    assert!(seconds > 86_400 * 365, "{seconds}");
    message.to_owned()
}

#[test]
fn a_role_that_is_bound_less_than_the_template_binds_it_is_found() {
    let aws = Aws::start();
    // As someone may have widened it: the tag of the cluster is not asked for, and one action more is allowed.
    let statement = json!([
        {"Sid": "AllowScopedDeletion", "Effect": "Allow", "Action": ["ec2:TerminateInstances", "ec2:StopInstances"],
            "Resource": "*", "Condition": {"StringLike": {"aws:ResourceTag/karpenter.sh/nodepool": "*"}}},
    ]);
    let text = json!({ "Statement": statement }).to_string();
    let encoded: String = text.bytes().map(|it| format!("%{it:02x}")).collect();
    let answer = format!("<R><PolicyDocument>{encoded}</PolicyDocument></R>");
    aws.state().instead.insert("GetRolePolicy InstanceGcRole".into(), (200, answer));
    let (status, answer, _) = aws.doctor(&["--no-probe"]);
    assert_eq!(status, 1);
    let [complaint] = &complaints(&answer)[..] else { panic!("{answer}") };
    assert!(
        complaint.starts_with(
            "policy InstanceGcRole fault: it may not dynamodb:DeleteItem, dynamodb:GetItem, "
        ),
        "{complaint}"
    );
    assert!(
        complaint.ends_with(
            "; AllowScopedDeletion is not bound by aws:ResourceTag/kubernetes.io/cluster/prod, \
             aws:ResourceTag/eks:eks-cluster-name; AllowScopedDeletion is about other resources"
        ),
        "{complaint}"
    );
}

#[test]
fn what_the_caller_may_not_ask_is_unknown_and_no_fault() {
    let aws = Aws::start();
    aws.state().instead = [
        ("GetRolePolicy".to_owned(), refused_xml("AccessDenied")),
        ("DescribeTable".to_owned(), refused("AccessDeniedException")),
        (
            "review spokeshave:provision list nodepools".to_owned(),
            (403, r#"{"message":"no"}"#.to_owned()),
        ),
        ("DescribeSubnets".to_owned(), refused_xml("UnauthorizedOperation")),
        ("SendMessage InterruptionQueue".to_owned(), refused("AccessDenied")),
    ]
    .into();
    let (status, answer, _) = aws.doctor(&[]);
    assert_eq!((status, &answer["healthy"], &answer["faults"]), (0, &json!(true), &json!(0)));
    let complaints = complaints(&answer);
    assert_eq!(answer["warnings"], json!(complaints.len()));
    assert!(complaints.iter().all(|it| it.contains(" unknown: not checked: ")), "{complaints:?}");
    assert_eq!(fix(&answer, "LaunchRole"), "allow the caller iam:GetRolePolicy");
    assert_eq!(fix(&answer, "StateTable"), "allow the caller dynamodb:DescribeTable");
    assert_eq!(fix(&answer, "InterruptionQueue"), "allow the caller sqs:SendMessage");
    assert_eq!(fix(&answer, "default"), "allow the caller ec2:DescribeSubnets");
    let unknown = complaints.iter().filter(|it| it.starts_with("policy ")).count();
    assert_eq!(unknown, 13);
}

#[test]
fn a_stack_that_only_watches_is_no_fault() {
    let aws = Aws::start();
    {
        let mut state = aws.state();
        let until = Timestamp::now() + SignedDuration::from_secs(60);
        let record = json!({"expires_ms": {"N": until.as_millisecond().to_string()}});
        state.records.insert(("stack".into(), "#observe-only".into()), record);
        // Its bridge holds no Lease meanwhile.
        state.instead.insert("lease spokeshave-bridge".into(), (404, "{}".into()));
    }
    let (status, answer, _) = aws.doctor(&[]);
    assert_eq!(status, 0);
    assert_eq!(
        complaints(&answer),
        [
            "autoscaler observe-only warning: another autoscaler is at work in the cluster, so this stack only watches"
        ]
    );
    // A record that has expired says nothing, and then the Lease counts.
    let past = json!({"expires_ms": {"N": "1"}});
    aws.state().records.insert(("stack".into(), "#observe-only".into()), past);
    let (status, answer, _) = aws.doctor(&[]);
    assert_eq!(status, 1);
    assert_eq!(
        complaints(&answer),
        ["bridge spokeshave-bridge fault: nobody has watched the cluster yet"]
    );
}

#[test] // The counts of a queue lag behind: only what the function itself says is a proof.
fn a_warning_is_taken_when_the_function_says_so() {
    let aws = Aws::start();
    aws.state().answers_probes = false;
    let told = |aws: &Aws| complaints(&aws.doctor(&[]).1);
    let waits = "interruption InterruptionQueue fault: a spot warning was not taken within 0 s";
    assert_eq!(told(&aws), [waits]);
    // The queue is said to be empty, and nobody has answered.
    let counts =
        json!({"Attributes": {"VisibilityTimeout": "48", "ApproximateNumberOfMessages": "0"}});
    aws.state()
        .instead_from
        .insert("GetQueueAttributes InterruptionQueue".into(), (2, 200, counts.to_string()));
    let silent = "interruption InterruptionQueue warning: a spot warning was taken, but the function interruption has not said so within 0 s";
    assert!(told(&aws).contains(&silent.to_owned()));
    // It has become a dead letter: the second look finds one more.
    let dead = json!({"Attributes": {"ApproximateNumberOfMessages": "1"}});
    aws.state().calls.clear();
    aws.state()
        .instead_from
        .insert("GetQueueAttributes DeadLetters".into(), (2, 200, dead.to_string()));
    let died = "interruption InterruptionQueue fault: a spot warning ended among the dead letters";
    assert!(told(&aws).contains(&died.to_owned()));
}

#[test] // B-088: a queue that somebody named by hand
fn a_queue_that_was_taken_over_must_be_there() {
    let aws = Aws::start();
    let arn = "arn:aws:sqs:us-west-2:123456789012:Karpenter-prod";
    aws.state().parameters.insert("InterruptionQueueArn", arn.to_owned());
    // Of that queue nothing is known from the template.
    let attributes = json!({"Attributes": {"VisibilityTimeout": "30"}});
    aws.state()
        .instead
        .insert("GetQueueAttributes Karpenter-prod".into(), (200, attributes.to_string()));
    let (status, answer, _) = aws.doctor(&["--no-probe"]);
    assert_eq!((status, complaints(&answer)), (0, vec![]));

    let attributes = json!({"Attributes": {"VisibilityTimeout": "20"}});
    aws.state()
        .instead
        .insert("GetQueueAttributes Karpenter-prod".into(), (200, attributes.to_string()));
    let (status, answer, _) = aws.doctor(&["--no-probe"]);
    assert_eq!(status, 1);
    assert_eq!(
        complaints(&answer),
        [
            "queue InterruptionQueue fault: messages of Karpenter-prod are hidden for 20 s, less than the 30 s that its function may need"
        ]
    );

    aws.state().instead.insert("GetQueueUrl Karpenter-prod".into(), refused("QueueDoesNotExist"));
    let (status, answer, _) = aws.doctor(&["--no-probe"]);
    assert_eq!(status, 1);
    assert_eq!(
        complaints(&answer),
        ["queue InterruptionQueue fault: it is not there (sqs GetQueueUrl: QueueDoesNotExist: no)"]
    );
    assert!(fix(&answer, "InterruptionQueue").contains("InterruptionQueueArn"));
}

#[test]
fn a_cluster_that_knows_callers_by_config_map_alone_is_looked_into() {
    let aws = Aws::start();
    aws.state().changed = vec![(
        "DescribeCluster prod",
        "/cluster/accessConfig/authenticationMode",
        json!("CONFIG_MAP"),
    )];
    let (status, answer, _) = aws.doctor(&["--no-probe"]);
    assert_eq!((status, complaints(&answer)), (0, vec![]));
    let count = |answer: &Value, check: &str| {
        answer["checks"]
            .as_array()
            .expect("checks")
            .iter()
            .filter(|it| it["check"] == check)
            .count()
    };
    assert_eq!((count(&answer, "awsAuth"), count(&answer, "accessEntry")), (13, 0));

    // One role with another's group; all others are not there.
    let text = r#"
- rolearn: arn:aws:iam::123456789012:role/LaunchRole
  username: x
  groups: [spokeshave:provision]
"#;
    aws.state().changed.push(("configmap aws-auth", "/data/mapRoles", json!(text)));
    let (status, answer, _) = aws.doctor(&["--no-probe"]);
    let told = complaints(&answer);
    assert_eq!((status, told.len()), (1, 13));
    assert_eq!(told[2], "awsAuth LaunchRole fault: aws-auth does not put it in spokeshave:launch");
    assert_eq!(
        told[12],
        "awsAuth NodeRole fault: aws-auth does not put it in system:bootstrappers, system:nodes"
    );
    assert!(
        fix(&answer, "LaunchRole").ends_with(
            r#"- {"groups":["spokeshave:launch"],"rolearn":"arn:aws:iam::123456789012:role/LaunchRole","username":"spokeshave:launch"}"#
        ),
        "{}",
        fix(&answer, "LaunchRole")
    );

    aws.state().changed[1].2 = json!("all of them");
    let (status, answer, _) = aws.doctor(&["--no-probe"]);
    assert_eq!((status, complaints(&answer).len()), (1, 1));
    aws.state().instead.insert("configmap aws-auth".into(), (404, "{}".into()));
    assert_eq!(complaints(&aws.doctor(&["--no-probe"]).1).len(), 13);
}

#[test]
fn a_key_that_rules_may_not_use_is_found() {
    let aws = Aws::start();
    let arn = "arn:aws:kms:us-west-2:123456789012:key/1234";
    aws.state().parameters.insert("KmsKeyArn", arn.to_owned());
    let asked = ["--no-probe", "--no-cluster"];
    let doctor = |aws: &Aws| {
        let arguments = [&["doctor", "--stack", STACK] as &[_], &asked].concat();
        let (status, answer, _) = aws.spokeshave(&arguments);
        (status, complaints(&answer))
    };
    assert_eq!(doctor(&aws), (0, vec![]));
    // As a key has it that is made without a thought: only the account itself.
    let policy = json!({"Statement": [{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Action": "kms:*"}]});
    aws.state().changed = vec![
        ("GetKeyPolicy", "/Policy", json!(policy.to_string())),
        ("DescribeKey", "/KeyMetadata/KeyState", json!("PendingDeletion")),
    ];
    let told = "key 1234 fault: it is PendingDeletion; its policy does not let EventBridge do kms:Decrypt; \
                its policy does not let EventBridge do kms:GenerateDataKey";
    assert_eq!(doctor(&aws), (1, vec![told.to_owned()]));
    aws.state().instead.insert("DescribeKey".into(), refused("NotFoundException"));
    let gone = "key 1234 fault: it is not there (kms DescribeKey: NotFoundException: no)";
    assert_eq!(doctor(&aws), (1, vec![gone.to_owned()]));
}

#[test]
fn a_call_that_cannot_be_used_is_refused() {
    let aws = Aws::start();
    aws.state().instead.insert("DescribeStacks nobody".into(), refused_xml("ValidationError"));
    let (status, text, error) = aws.run(&["doctor", "--stack", "nobody"]);
    assert_eq!((status, text.as_str()), (2, ""));
    assert_eq!(
        error,
        "error: stack nobody in us-west-2: cloudformation DescribeStacks: ValidationError: no; check the name and --region\n"
    );
    aws.state().instead.insert("DescribeStacks secret".into(), refused_xml("AccessDenied"));
    let (status, _, error) = aws.run(&["dlq", "list", "--stack", "secret"]);
    assert_eq!(status, 2);
    assert!(error.contains("cloudformation:DescribeStacks and ListStackResources"), "{error}");
    // A stack, but of something else.
    aws.state().parameters.clear();
    let (status, _, error) = aws.run(&["doctor", "--stack", "website"]);
    assert_eq!(status, 2);
    assert_eq!(
        error,
        "error: stack website has no parameter ClusterName; give the stack that template.yaml was deployed as\n"
    );
}
