//! template.yaml says the same as the wiring in code.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use spokeshave_lambda::wiring::{
    ALWAYS_POLLED, NEVER_POLLED, ROUTES, SCHEDULES, SENDS, SOURCES, message_group, started_by,
};
use spokeshave_ports::Concern;
use spokeshave_tests::template::{properties, resources, template};

/// `InstanceGc` of `instance-gc`: how resources are named.
fn pascal(concern: Concern) -> String {
    let capital = |word: &str| {
        let mut characters = word.chars();
        characters
            .next()
            .map(|it| it.to_ascii_uppercase())
            .into_iter()
            .chain(characters)
            .collect::<String>()
    };
    concern.as_str().split('-').map(capital).collect()
}

/// `INSTANCE_GC` of `instance-gc`: how variables are named.
fn screaming(concern: Concern) -> String {
    concern.as_str().replace('-', "_").to_ascii_uppercase()
}

/// A text, or all texts of a list.
fn texts(value: &Value) -> Vec<&str> {
    let one = value.as_str();
    one.into_iter()
        .chain(value.as_array().into_iter().flatten().filter_map(Value::as_str))
        .collect()
}

/// What a function's role may do: text with `${...}` in it that CloudFormation fills in.
fn policy(template: &Value, concern: Concern) -> Value {
    let role = properties(template, &format!("{}Role", pascal(concern)));
    let policies = role["Policies"].as_array().expect("policies");
    assert_eq!(policies.len(), 1, "{concern}");
    let document = &policies[0]["PolicyDocument"];
    // `!Sub [text, variables]` or `!Sub text`.
    let text = document.get(0).unwrap_or(document).as_str().expect("a text");
    let text = text.replace("${Interruptions}", "${InterruptionQueue.Arn}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{concern}: {error}"))
}

#[test] // B-091, with `.ci/glibc`: what the image has is what the binaries ask for
fn every_concern_is_a_function_with_its_own_role() {
    let template = template();
    let functions = resources(&template, "AWS::Serverless::Function");
    let expected: BTreeSet<String> = Concern::ALL.iter().map(|it| pascal(*it)).collect();
    assert_eq!(functions.keys().cloned().collect::<BTreeSet<_>>(), expected);
    for concern in Concern::ALL {
        let name = pascal(*concern);
        let metadata = &template["Resources"][&name]["Metadata"];
        assert_eq!(metadata["BuildMethod"], "rust-cargolambda", "{name}");
        assert_eq!(metadata["BuildProperties"]["Binary"], concern.as_str(), "{name}");
        assert_eq!(functions[&name]["Role"], format!("{name}Role.Arn"));
        // Nothing in here is a lock: two at once must do no harm, and a cap would starve the other functions.
        assert_eq!(functions[&name].get("ReservedConcurrentExecutions"), None, "{name}");
    }
    let globals = &template["Globals"]["Function"];
    assert_eq!(globals["Runtime"], "provided.al2023");
    assert_eq!(globals["Architectures"], json!(["arm64"]));
    assert_eq!(globals["Handler"], "bootstrap");
}

#[test]
fn rules_route_detail_types_as_code_does() {
    let template = template();
    // (detail type, target, message group)
    let mut found: BTreeSet<(String, String, String)> = BTreeSet::new();
    for (name, rule) in resources(&template, "AWS::Events::Rule") {
        let targets = rule["Targets"].as_array().expect("targets");
        for target in targets {
            assert_eq!(target["DeadLetterConfig"]["Arn"], "UndeliveredQueue.Arn", "{name}");
        }
        // Those that start functions in poll mode have a test of their own.
        if rule.get("EventBusName").is_none() || name.ends_with("StartRule") {
            continue;
        }
        assert_eq!(rule["EventPattern"]["source"], json!(["spokeshave"]), "{name}");
        for detail_type in texts(&rule["EventPattern"]["detail-type"]) {
            for target in targets {
                let arn = target["Arn"].as_str().expect("an ARN").to_owned();
                let group = target["SqsParameters"]["MessageGroupId"].as_str().unwrap_or_default();
                found.insert((detail_type.to_owned(), arn, group.to_owned()));
            }
        }
    }
    let expected: BTreeSet<(String, String, String)> = ROUTES
        .iter()
        .flat_map(|(name, to)| to.iter().map(move |to| (*name, *to)))
        .map(|(name, to)| {
            let queue = if to == Concern::ClusterBridge { "" } else { "Queue" };
            let group = message_group(to, name).to_owned();
            (name.to_owned(), format!("{}{queue}.Arn", pascal(to)), group)
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn aws_events_go_to_the_interruption_queue() {
    // aws-nodeclass 29, with the tighter patterns.
    let template = template();
    let rules = resources(&template, "AWS::Events::Rule");
    let patterns: BTreeMap<&str, &Value> = rules
        .iter()
        .filter(|(_, it)| it.get("EventBusName").is_none())
        .map(|(name, it)| {
            assert_eq!(it["Targets"][0]["Arn"], "InterruptionQueue.Arn", "{name}");
            (name.as_str(), &it["EventPattern"])
        })
        .collect();
    let ec2 = |names: &[&str]| json!({"source": ["aws.ec2"], "detail-type": names});
    let mut state_change = ec2(&["EC2 Instance State-change Notification"]);
    state_change["detail"] =
        json!({"state": ["stopping", "stopped", "shutting-down", "terminated"]});
    let expected = BTreeMap::from([
        (
            "CapacityReservationInterruptionRule",
            ec2(&[
                "EC2 Capacity Reservation Instance Interruption Warning",
                "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
                "Capacity Block Reservation Expiration Warning",
            ]),
        ),
        ("InstanceStateChangeRule", state_change),
        (
            // aws-nodeclass 30: only where that is asked for.
            "LifecycleHookRule",
            json!({
                "source": ["aws.autoscaling"],
                "detail-type": ["EC2 Instance-terminate Lifecycle Action"],
            }),
        ),
        ("RebalanceRule", ec2(&["EC2 Instance Rebalance Recommendation"])),
        (
            "ScheduledChangeRule",
            json!({
                "source": ["aws.health"],
                "detail-type": ["AWS Health Event"],
                "detail": {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]},
            }),
        ),
        ("SpotInterruptionRule", ec2(&["EC2 Spot Instance Interruption Warning"])),
    ]);
    assert_eq!(patterns, expected.iter().map(|(name, it)| (*name, it)).collect());
    let queue = properties(&template, "InterruptionQueue");
    assert_eq!(queue["MessageRetentionPeriod"], 300);
    assert_eq!(queue["SqsManagedSseEnabled"], true);
}

/// Whether EventBridge finds `pattern` in `event`: every list of the pattern holds the field's value.
fn matches(pattern: &Value, event: &Value) -> bool {
    match pattern {
        Value::Object(fields) => fields.iter().all(|(name, it)| matches(it, &event[name])),
        Value::Array(values) => values.contains(event),
        _ => false,
    }
}

#[test] // aws-nodeclass 29, cases 1, 2, 3 and 5: ours against what Karpenter's stack delivers
fn the_queue_gets_the_events_that_are_acted_on() {
    let template = template();
    let ours: Vec<Value> = resources(&template, "AWS::Events::Rule")
        .into_iter()
        .filter(|(_, it)| it.get("EventBusName").is_none())
        .map(|(_, it)| it["EventPattern"].clone())
        .collect();
    // Source: the rules that Karpenter publishes; two fields each.
    let theirs: Vec<Value> = [
        ("aws.health", "AWS Health Event"),
        ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
        ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
        ("aws.ec2", "EC2 Instance State-change Notification"),
        ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
    ]
    .into_iter()
    .map(|(source, detail_type)| json!({"source": [source], "detail-type": [detail_type]}))
    .collect();
    for (sample, by_theirs, by_ours) in [
        ("spot-interruption-warning", true, true),
        ("rebalance-recommendation", true, true),
        ("state-change-running", true, false),
        ("state-change-pending", true, false),
        ("state-change-stopping", true, true),
        ("state-change-stopped", true, true),
        ("state-change-shutting-down", true, true),
        ("state-change-terminated", true, true),
        ("health-scheduled-change", true, true),
        ("health-scheduled-change-many", true, true),
        ("health-issue", true, false),
        ("health-account-notification", true, false),
        ("health-other-service", true, false),
        ("capacity-reservation-interruption", true, true),
        ("capacity-reservation-interruption-older-name", false, true),
        ("capacity-block-expiration", false, true),
        ("unknown-detail-type", false, false),
        ("asg-terminate-lifecycle-action", false, true),
        ("asg-launch-lifecycle-action", false, false),
    ] {
        let path = format!("{}/../events/aws/{sample}.json", env!("CARGO_MANIFEST_DIR"));
        let event: Value =
            serde_json::from_str(&std::fs::read_to_string(path).expect(sample)).expect(sample);
        let delivered = |rules: &[Value]| rules.iter().any(|it| matches(it, &event));
        assert_eq!((delivered(&theirs), delivered(&ours)), (by_theirs, by_ours), "{sample}");
    }
}

#[test]
fn schedules_are_those_of_code() {
    let template = template();
    let mut schedules = resources(&template, "AWS::Scheduler::Schedule");
    let sweep = schedules.remove("SweepSchedule").expect("a sweep");
    assert_eq!(sweep["ScheduleExpression"], "rate(10 minutes)");
    assert_eq!(sweep["Target"]["Arn"], "Bus.Arn");
    assert_eq!(
        sweep["Target"]["EventBridgeParameters"],
        json!({"DetailType": "Sweep", "Source": "spokeshave"})
    );
    for (name, rate) in [("Drain", "rate(1 minute)"), ("DrainSlowly", "rate(5 minutes)")] {
        let drain = schedules.remove(&format!("{name}Schedule")).expect(name);
        assert_eq!(drain["ScheduleExpression"], rate);
        let parameters = &drain["Target"]["EventBridgeParameters"];
        assert_eq!(*parameters, json!({"DetailType": name, "Source": "spokeshave"}));
        let condition = template["Resources"][format!("{name}Schedule")].get("Condition");
        assert_eq!(condition, (name == "Drain").then(|| json!("Drains")).as_ref(), "{name}");
    }
    let found: BTreeMap<String, (String, String)> = schedules
        .iter()
        .map(|(name, it)| {
            assert_eq!(it["Target"]["DeadLetterConfig"]["Arn"], "UndeliveredQueue.Arn", "{name}");
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            // In poll mode, then otherwise.
            let rate = &it["ScheduleExpression"];
            let rate = if rate[0] == "Drains" { &rate[2] } else { rate };
            (name.clone(), (text(rate), text(&it["Target"]["Arn"])))
        })
        .collect();
    let expected: BTreeMap<String, (String, String)> = SCHEDULES
        .iter()
        .map(|(concern, seconds)| {
            let (name, minutes) = (pascal(*concern), seconds / 60);
            let unit = if minutes == 1 { "minute" } else { "minutes" };
            let queue = if *concern == Concern::ClusterBridge { "" } else { "Queue" };
            let value = (format!("rate({minutes} {unit})"), format!("{name}{queue}.Arn"));
            (format!("{name}Schedule"), value)
        })
        .collect();
    assert_eq!(found, expected);
    // A FIFO queue drops a body that it has seen within five minutes, so each one must differ.
    let target = &schedules["DisruptionSchedule"]["Target"];
    assert!(
        target["Input"].as_str().is_some_and(|it| it.contains("<aws.scheduler.scheduled-time>"))
    );
    assert_eq!(target["SqsParameters"]["MessageGroupId"], "pass");
}

#[test] // B-094
fn queues_are_polled_as_code_says() {
    let template = template();
    let queues = resources(&template, "AWS::SQS::Queue");
    for source in SOURCES {
        let name = pascal(source.concern);
        let function = properties(&template, &name);
        assert_eq!(function["Timeout"], source.timeout, "{name}");
        let queue = &queues[&format!("{name}Queue")];
        // Standard: six times the function's limit. FIFO: the limit and 30 s.
        assert_eq!(queue["VisibilityTimeout"], source.visibility(), "{name}");
        assert!(source.visibility() >= source.timeout + 30, "{name}");
        assert_eq!(queue.get("FifoQueue").is_some(), source.concern.is_fifo(), "{name}");
        assert_eq!(queue.get("ContentBasedDeduplication").is_some(), source.concern.is_fifo());
        assert_eq!(queue["RedrivePolicy"]["maxReceiveCount"], source.max_receives, "{name}");
        // B-094: no good message ends as a dead letter because its reader was busy.
        assert!(source.max_receives >= 5 && source.max_concurrency >= 2, "{name}");
        let dead = queue["RedrivePolicy"]["deadLetterTargetArn"].as_str().expect("dead letters");
        let dead = dead.strip_suffix(".Arn").expect("an ARN");
        let shared = if source.concern.is_fifo() { "SolverDeadLetters" } else { "DeadLetters" };
        assert_eq!(dead, shared, "{name}");
        assert_eq!(queues[dead].get("FifoQueue").is_some(), source.concern.is_fifo(), "{dead}");
        assert_eq!(queues[dead]["MessageRetentionPeriod"], 1_209_600, "{dead}");

        let events = function["Events"].as_object().expect("event sources");
        let mut wanted = BTreeSet::from([format!("{name}Queue.Arn")]);
        if source.concern.is_fifo() {
            let wake = format!("{name}WakeQueue");
            assert_eq!(queues[&wake].get("FifoQueue"), None, "{wake}");
            assert_eq!(queues[&wake]["VisibilityTimeout"], source.timeout * 6, "{wake}");
            wanted.insert(format!("{wake}.Arn"));
        }
        let mut read = BTreeSet::new();
        for event in events.values().map(|it| &it["Properties"]) {
            read.insert(event["Queue"].as_str().expect("a queue").to_owned());
            // In poll mode Lambda reads only what cannot wait.
            let enabled = match source.concern {
                // Zonal shifts are read every half minute.
                Concern::CatalogRefresh => Some(json!(["ShiftsZones", true, false])),
                it if NEVER_POLLED.contains(&it) => Some(json!(false)),
                it if ALWAYS_POLLED.contains(&it) => None,
                _ => Some(json!(["Drains", false, true])),
            };
            assert_eq!(event.get("Enabled"), enabled.as_ref(), "{name}");
            assert_eq!(
                event["FunctionResponseTypes"],
                json!(["ReportBatchItemFailures"]),
                "{name}"
            );
            assert_eq!(
                event["ScalingConfig"]["MaximumConcurrency"], source.max_concurrency,
                "{name}"
            );
        }
        assert_eq!(read, wanted);
        let messages = &events["Messages"]["Properties"];
        assert_eq!(messages["BatchSize"], source.batch_size, "{name}");
        let window = messages.get("MaximumBatchingWindowInSeconds").and_then(Value::as_u64);
        assert_eq!(window.unwrap_or(0), source.window, "{name}");
        // Lambda takes more than ten messages at once only with a window.
        assert!(source.batch_size <= 10 || source.window > 0, "{name}");
    }
}

#[test]
fn in_poll_mode_functions_are_started_by_what_their_queues_are_sent() {
    let template = template();
    let rules = resources(&template, "AWS::Events::Rule");
    let mut expected = BTreeSet::new();
    for concern in Concern::ALL {
        let (name, wanted) = (pascal(*concern), started_by(*concern));
        let own = properties(&template, &name)["Environment"]["Variables"]
            .get("OWN_QUEUE_URLS")
            .and_then(Value::as_str);
        if wanted.is_empty() {
            assert_eq!(own, None, "{name}");
            continue;
        }
        let queue = if concern.is_fifo() {
            format!("${{{name}Queue}},${{{name}WakeQueue}}")
        } else {
            format!("{name}Queue")
        };
        assert_eq!(own, Some(queue.as_str()), "{name}");
        let (rule, permission) = (format!("{name}StartRule"), format!("{name}StartPermission"));
        assert_eq!(rules[&rule]["EventPattern"]["source"], json!(["spokeshave"]), "{rule}");
        let types: BTreeSet<&str> =
            texts(&rules[&rule]["EventPattern"]["detail-type"]).into_iter().collect();
        assert_eq!(types, wanted.into_iter().collect(), "{rule}");
        assert_eq!(rules[&rule]["Targets"][0]["Arn"], format!("{name}.Arn"));
        let allowed = properties(&template, &permission);
        assert_eq!(
            (&allowed["FunctionName"], &allowed["SourceArn"]),
            (&json!(name), &json!(format!("{rule}.Arn")))
        );
        for resource in [&rule, &permission] {
            let condition = template["Resources"][resource].get("Condition");
            let drains = (!NEVER_POLLED.contains(concern)).then(|| json!("Drains"));
            assert_eq!(condition, drains.as_ref(), "{resource}");
        }
        expected.insert(rule);
    }
    let found: BTreeSet<String> =
        rules.keys().filter(|it| it.ends_with("StartRule")).cloned().collect();
    assert_eq!(found, expected);
}

#[test]
fn functions_are_given_the_queues_that_they_send_to() {
    let template = template();
    for concern in Concern::ALL {
        let name = pascal(*concern);
        let to = SENDS.iter().find(|it| it.0 == *concern).map_or(&[] as &[Concern], |it| it.1);
        let mut expected = BTreeMap::new();
        for to in to {
            expected
                .insert(format!("QUEUE_URL_{}", screaming(*to)), format!("{}Queue", pascal(*to)));
            if to == concern && to.is_fifo() {
                let variable = format!("WAKE_QUEUE_URL_{}", screaming(*to));
                expected.insert(variable, format!("{}WakeQueue", pascal(*to)));
            }
        }
        let function = properties(&template, &name);
        let variables = function["Environment"]["Variables"].as_object();
        let found: BTreeMap<String, String> = variables
            .into_iter()
            .flatten()
            .filter(|(variable, _)| {
                variable.starts_with("QUEUE_URL_") || variable.starts_with("WAKE_QUEUE_URL_")
            })
            .map(|(variable, queue)| (variable.clone(), queue.as_str().expect("a name").to_owned()))
            .collect();
        assert_eq!(found, expected, "{name}");

        let policy = policy(&template, *concern);
        let mut allowed = BTreeSet::new();
        for statement in policy["Statement"].as_array().expect("statements") {
            if texts(&statement["Action"]).contains(&"sqs:SendMessage") {
                allowed.extend(texts(&statement["Resource"]));
            }
        }
        let needed: BTreeSet<String> =
            expected.values().map(|it| format!("${{{it}.Arn}}")).collect();
        assert_eq!(allowed, needed.iter().map(String::as_str).collect(), "{name}");

        // Whoever wakes or starts itself would be stopped by Lambda after some 16 rounds.
        let wakes_itself = to.contains(concern) || *concern == Concern::ClusterBridge;
        let allowed = function.get("RecursiveLoop").and_then(Value::as_str);
        assert_eq!(allowed, wakes_itself.then_some("Allow"), "{name}");
    }
}

#[test] // aws-nodeclass 27, case 1: a stack without a name is refused before anything is made
fn the_cluster_name_is_required_and_checked() {
    let template = template();
    let parameter = &template["Parameters"]["ClusterName"];
    assert_eq!(parameter.get("Default"), None);
    assert_eq!(parameter["AllowedPattern"], "^[0-9A-Za-z][A-Za-z0-9_-]*$");
    // The queue is named after it, and SQS takes no longer name: refused before anything is made.
    assert_eq!((&parameter["MinLength"], &parameter["MaxLength"]), (&json!(1), &json!(80)));
    let refusal = parameter["ConstraintDescription"].as_str().expect("a text");
    assert!(refusal.contains("LongClusterName"), "{refusal}");
}

#[test]
fn a_cluster_name_too_long_for_a_queue_is_given_apart() {
    // Without the choices made.
    let raw: Value = serde_saphyr::from_str(include_str!("../../template.yaml")).expect("YAML");
    let parameter = &raw["Parameters"]["LongClusterName"];
    assert_eq!(parameter["Default"], "");
    // From where the other parameter ends to what EKS takes.
    let pattern = parameter["AllowedPattern"].as_str().expect("a pattern");
    let rest = "{80,99}";
    assert_eq!(pattern, format!("^([0-9A-Za-z][A-Za-z0-9_-]{rest})?$"));
    // Whatever asks EKS, IAM or CloudWatch for the cluster says its own name, whichever parameter has it.
    let own = json!(["HasLongName", "LongClusterName", "ClusterName"]);
    assert_eq!(raw["Globals"]["Function"]["Environment"]["Variables"]["CLUSTER_NAME"], own);
    for (name, entry) in resources(&raw, "AWS::EKS::AccessEntry") {
        assert_eq!(entry["ClusterName"], own, "{name}");
    }
    for concern in Concern::ALL {
        let role = properties(&raw, &format!("{}Role", pascal(*concern)));
        let document = &role["Policies"][0]["PolicyDocument"];
        assert_eq!(document[1]["ClusterName"], own, "{concern}");
    }
    assert_eq!(properties(&raw, "ObserveOnlyAlarm")["Dimensions"][0]["Value"], own);
    assert_eq!(properties(&raw, "Dashboard")["DashboardBody"][1]["ClusterName"], own);
    // What has a name of its own made of it takes the short one, and has room for it.
    let queue = &properties(&raw, "InterruptionQueue")["QueueName"];
    assert_eq!(queue[2], "ClusterName");
    let longest = "a".repeat(80);
    for (name, field, limit) in [("Bus", "Name", 256), ("Dashboard", "DashboardName", 255)] {
        let text = properties(&raw, name)[field].as_str().expect("a text");
        let text =
            text.replace("${ClusterName}", &longest).replace("${AWS::Region}", "ap-southeast-99");
        assert!(!text.contains('$') && text.len() <= limit, "{text}");
    }
}

#[test]
fn roles_may_do_what_infra_iam_says_and_nothing_else() {
    let template = template();
    for concern in Concern::ALL {
        let path = format!("{}/../infra/iam/{concern}.json", env!("CARGO_MANIFEST_DIR"));
        let expected = std::fs::read_to_string(path).expect("a policy of every function");
        let expected: Value = serde_json::from_str(&expected).expect("JSON");
        let found = policy(&template, *concern);
        assert_eq!(found, expected, "{concern}");
        for statement in found["Statement"].as_array().expect("statements") {
            for action in texts(&statement["Action"]) {
                assert!(!action.contains('*'), "{concern}: {action}");
            }
        }
        let role = properties(&template, &format!("{}Role", pascal(*concern)));
        // Only what a function in a VPC needs, and only then: `!If [InVpc, [policy], nothing]`.
        let managed = &role["ManagedPolicyArns"];
        assert_eq!(managed[0], "InVpc", "{concern}");
        assert_eq!(texts(&managed[1]).len(), 1, "{concern}");
    }
}

#[test]
fn the_chart_binds_the_groups_of_the_access_entries() {
    let template = template();
    let groups: BTreeSet<String> = resources(&template, "AWS::EKS::AccessEntry")
        .values()
        .flat_map(|it| {
            texts(&it["KubernetesGroups"]).into_iter().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let rbac: Vec<Value> =
        serde_saphyr::from_multiple(include_str!("../../infra/chart/templates/rbac.yaml"))
            .expect("YAML");
    let bound = |name: &str| -> BTreeSet<String> {
        let of = rbac.iter().filter(|it| it["roleRef"]["name"] == name);
        let subjects = of.flat_map(|it| it["subjects"].as_array().cloned().unwrap_or_default());
        subjects.filter_map(|it| Some(it["name"].as_str()?.to_owned())).collect()
    };
    assert_eq!(bound("spokeshave-read"), groups);
    for role in rbac.iter().filter(|it| it["kind"] == "ClusterRole") {
        let name = role["metadata"]["name"].as_str().expect("a name");
        assert!(!bound(name).is_empty(), "{name} is bound to nobody");
        for rule in role["rules"].as_array().expect("rules") {
            assert!(
                !texts(&rule["verbs"]).contains(&"*") && !texts(&rule["resources"]).contains(&"*")
            );
        }
    }
}

/// Logical names that the metrics of an alarm are about, with the metric's name.
fn watched(alarm: &Value) -> Vec<(String, String)> {
    let one = |metric: &Value| {
        let name = metric["MetricName"].as_str().unwrap_or_default().to_owned();
        let value = metric["Dimensions"][0]["Value"].as_str().unwrap_or_default();
        (name, value.split('.').next().unwrap_or_default().to_owned())
    };
    match alarm["Metrics"].as_array() {
        None => vec![one(alarm)],
        Some(metrics) => metrics
            .iter()
            .map(|it| &it["MetricStat"]["Metric"])
            .filter(|it| !it.is_null())
            .map(one)
            .collect(),
    }
}

#[test] // B-094
fn alarms_watch_every_queue_and_function() {
    let template = template();
    let alarms = resources(&template, "AWS::CloudWatch::Alarm");
    assert!(alarms.len() <= 15, "{}", alarms.len());
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut n_metrics = 0;
    for (name, alarm) in &alarms {
        // CloudWatch takes ten metrics in one alarm.
        let watched = watched(alarm);
        assert!(watched.len() < 10, "{name}");
        for (metric, what) in watched {
            let known = what.is_empty()
                || what == "ClusterName"
                || template["Resources"].get(&what).is_some();
            assert!(known, "{name} watches {what}, which is not there");
            assert!(seen.entry(metric).or_default().insert(what), "{name}");
            n_metrics += 1;
        }
        assert_eq!(alarm["AlarmActions"][0], "HasAlarmTopic", "{name}");
        assert!(template["Resources"][name]["Condition"].is_string(), "{name}");
    }
    // CloudWatch charges by the metric.
    assert!(n_metrics <= 13, "{n_metrics}");
    let functions: BTreeSet<String> = Concern::ALL.iter().map(|it| pascal(*it)).collect();
    // One metric for the failures of all functions: a filter on the log of each feeds it.
    let metric = properties(&template, "ErrorsAlarm")["MetricName"].as_str().expect("a name");
    let filters = resources(&template, "AWS::Logs::MetricFilter");
    let mut filtered = BTreeSet::new();
    for (name, filter) in &filters {
        assert_eq!(filter["MetricTransformations"][0]["MetricName"], metric, "{name}");
        assert_eq!(filter["MetricTransformations"][0]["MetricNamespace"], "Spokeshave", "{name}");
        let pattern = filter["FilterPattern"].as_str().expect("a pattern");
        for term in [r#"?"\"level\":\"error\"""#, r#"?"Task timed out""#, r#"?"Runtime exited""#] {
            assert!(pattern.contains(term), "{name}: {pattern}");
        }
        filtered.insert(filter["LogGroupName"].as_str().expect("a group").replace("Logs", ""));
    }
    assert_eq!(filtered, functions);
    let queues = resources(&template, "AWS::SQS::Queue");
    let dead: BTreeSet<String> = queues
        .keys()
        .filter(|it| it.ends_with("DeadLetters") || *it == "UndeliveredQueue")
        .cloned()
        .collect();
    assert_eq!(dead.len(), 3);
    assert_eq!(seen["ApproximateNumberOfMessagesVisible"], dead);
    // Lambda finds loops of functions that send and are sent to; whoever may wake itself is exempt.
    let sends = |concern: Concern| SENDS.iter().any(|it| it.0 == concern);
    let sent_to = |concern: Concern| SENDS.iter().any(|it| it.1.contains(&concern));
    let exempt = |name: &str| properties(&template, name).get("RecursiveLoop").is_some();
    let stopped: BTreeSet<String> = Concern::ALL
        .iter()
        .filter(|it| sends(**it) && sent_to(**it))
        .map(|it| pascal(*it))
        .filter(|it| !exempt(it))
        .collect();
    assert_eq!(seen["RecursiveInvocationsDropped"], stopped);
    assert!(seen["ApproximateAgeOfOldestMessage"].contains("InterruptionQueue"));
    let interruption = &properties(&template, "Interruption")["Events"]["Messages"]["Properties"];
    assert_eq!(interruption.get("MaximumBatchingWindowInSeconds"), None, "at once");
}

#[test]
fn the_dashboard_is_json_with_karpenter_s_metrics() {
    let template = template();
    let body = properties(&template, "Dashboard")["DashboardBody"][0].as_str().expect("a text");
    let body: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["widgets"].as_array().map(Vec::len), Some(4));
    assert!(body.to_string().contains("karpenter_nodeclaims_created_total"));
}

#[test]
fn settings_come_from_the_parameters_that_their_page_names() {
    let template = template();
    let variables =
        template["Globals"]["Function"]["Environment"]["Variables"].as_object().expect("variables");
    for setting in spokeshave_model::settings::registry::ALL {
        if setting.parameter.is_empty() {
            continue;
        }
        let parameter = &template["Parameters"][setting.parameter];
        assert!(parameter.is_object(), "{}", setting.parameter);
        let given = variables
            .get(setting.name)
            .and_then(Value::as_str)
            .unwrap_or_else(|| panic!("{}", setting.name));
        if setting.name == "INTERRUPTION_QUEUE" {
            continue;
        }
        assert_eq!(given, setting.parameter, "{}", setting.name);
        // The stack's default is the function's.
        let default = match &parameter["Default"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        assert_eq!(default, setting.default, "{}", setting.name);
    }
    // Nothing is given that no function reads.
    let own = ["EVENT_BUS", "LOG_LEVEL", "STACK_NAME", "STATE_TABLE"];
    for name in variables.keys() {
        let known = spokeshave_model::settings::registry::ALL.iter().any(|it| it.name == name);
        assert!(known || own.contains(&name.as_str()), "{name}");
    }
}

#[test]
fn an_existing_interruption_queue_is_taken_over() {
    // Without the choices made: what `!If` chooses between.
    let raw: Value = serde_saphyr::from_str(include_str!("../../template.yaml")).expect("YAML");
    let function = properties(&raw, "Interruption");
    // Karpenter's queue hides messages for 30 s: six times the limit.
    assert_eq!(function["Timeout"], json!(["MakesInterruptionQueue", 8, 5]));
    let source = &function["Events"]["Messages"]["Properties"]["Queue"];
    assert_eq!(
        *source,
        json!(["MakesInterruptionQueue", "InterruptionQueue.Arn", "InterruptionQueueArn"])
    );
    let conditional: BTreeSet<&str> = raw["Resources"]
        .as_object()
        .expect("resources")
        .iter()
        .filter(|(_, it)| it["Condition"] == "MakesInterruptionQueue")
        .map(|(name, _)| name.as_str())
        .collect();
    // The one for lifecycle hooks has to be asked for besides.
    let hooks = &raw["Resources"]["LifecycleHookRule"]["Condition"];
    assert_eq!(raw["Conditions"][hooks.as_str().expect("a name")][0], "MakesInterruptionQueue");
    // A queue that exists has its rules.
    let mut expected: BTreeSet<&str> = BTreeSet::from(["InterruptionQueue"]);
    let rules = resources(&raw, "AWS::Events::Rule");
    expected.extend(
        rules
            .iter()
            .filter(|(name, it)| it.get("EventBusName").is_none() && *name != "LifecycleHookRule")
            .map(|(name, _)| name.as_str()),
    );
    assert_eq!(conditional, expected);
}

#[test] // B-088: no text that a person types can point past the queue
fn the_interruption_queue_is_wired_by_reference() {
    let raw: Value = serde_saphyr::from_str(include_str!("../../template.yaml")).expect("YAML");
    let variables = &raw["Globals"]["Function"]["Environment"]["Variables"];
    let choice = variables["INTERRUPTION_QUEUE"].as_array().expect("a choice");
    assert_eq!(
        choice[..2],
        [json!("MakesInterruptionQueue"), json!("InterruptionQueue.QueueName")]
    );
    // A queue that exists is given as what cannot mean another region or account, or the template refuses it.
    let given = raw["Parameters"]["InterruptionQueueArn"]["AllowedPattern"].as_str();
    assert_eq!(given, Some("^(arn:[a-z-]+:sqs:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,80})?$"));
    // No other function reads the queue: without it scheduling goes on, and Lambda says that its source is gone.
    for concern in Concern::ALL {
        let events = properties(&raw, &pascal(*concern)).get("Events").map(Value::to_string);
        let reads = events.is_some_and(|it| it.contains("InterruptionQueue"));
        assert_eq!(reads, *concern == Concern::Interruption, "{concern}");
    }
}

#[test] // B-089
fn two_clusters_and_two_regions_share_no_name() {
    let raw: Value = serde_saphyr::from_str(include_str!("../../template.yaml")).expect("YAML");
    let mut named: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (logical, it) in raw["Resources"].as_object().expect("resources") {
        let kind = it["Type"].as_str().expect("a type");
        let short = kind.rsplit("::").next().expect("a kind");
        // `QueueName` of a queue, `RoleName` of a role, `Name` of a bus.
        for (key, value) in it["Properties"].as_object().into_iter().flatten() {
            let own =
                key == "Name" || key.strip_suffix("Name").is_some_and(|it| short.ends_with(it));
            if own {
                named.entry(kind).or_default().insert(format!("{logical}: {value}"));
            }
        }
    }
    // Global in an account: names of roles, policies, profiles and dashboards. CloudFormation makes up those of roles.
    let dashboard =
        BTreeSet::from(["Dashboard: \"spokeshave-${ClusterName}-${AWS::Region}\"".to_owned()]);
    assert_eq!(named.remove("AWS::CloudWatch::Dashboard"), Some(dashboard));
    // A policy inside of a role has its name there alone.
    assert!(named.remove("AWS::IAM::Policy").is_some());
    // Names of one region.
    let logs = named.remove("AWS::Logs::LogGroup").expect("log groups");
    assert!(logs.iter().all(|it| it.contains("/aws/lambda/${AWS::StackName}/")), "{logs:?}");
    assert_eq!(
        named,
        BTreeMap::from([
            ("AWS::Events::EventBus", ["Bus: \"spokeshave-${ClusterName}\"".to_owned()].into()),
            (
                "AWS::SQS::Queue",
                [r#"InterruptionQueue: ["NamesInterruptionQueue","InterruptionQueueName","ClusterName"]"#
                    .to_owned()]
                .into()
            ),
        ])
    );
}

#[test]
fn everything_that_takes_tags_says_whose_it_is() {
    let template = template();
    let tag = json!([{"Key": "spokeshave.dev/cluster", "Value": "ClusterName"}]);
    let mut n_tagged = 0;
    for kind in [
        "AWS::DynamoDB::Table",
        "AWS::EKS::AccessEntry",
        "AWS::Events::EventBus",
        "AWS::IAM::Role",
        "AWS::Logs::LogGroup",
        "AWS::SQS::Queue",
    ] {
        for (name, resource) in resources(&template, kind) {
            assert_eq!(resource["Tags"], tag, "{name}");
            n_tagged += 1;
        }
    }
    assert_eq!(n_tagged, 60);
    let functions = &template["Globals"]["Function"]["Tags"];
    assert_eq!(*functions, json!({"spokeshave.dev/cluster": "ClusterName"}));
}

#[test]
fn what_running_nodes_go_by_outlives_the_stack() {
    let template = template();
    let all = template["Resources"].as_object().expect("resources");
    let kept: BTreeMap<&str, (&Value, &Value)> = all
        .iter()
        .filter(|(_, it)| it.get("DeletionPolicy").is_some_and(|it| it != "Delete"))
        .map(|(name, it)| (name.as_str(), (&it["DeletionPolicy"], &it["UpdateReplacePolicy"])))
        .collect();
    let policies = (&json!("RetainExceptOnCreate"), &json!("Retain"));
    assert_eq!(kept, BTreeMap::from([("NodeRole", policies), ("NodeAccess", policies)]));
}

#[test]
fn a_key_of_one_s_own_encrypts_everything() {
    let raw: Value = serde_saphyr::from_str(include_str!("../../template.yaml")).expect("YAML");
    let key = json!(["HasKey", "KmsKeyArn", "AWS::NoValue"]);
    for (name, queue) in resources(&raw, "AWS::SQS::Queue") {
        assert_eq!(queue["KmsMasterKeyId"], key, "{name}");
        assert_eq!(
            queue["SqsManagedSseEnabled"],
            json!(["HasKey", "AWS::NoValue", true]),
            "{name}"
        );
    }
    assert_eq!(properties(&raw, "StateTable")["SSESpecification"]["KMSMasterKeyId"], key);
    assert_eq!(raw["Globals"]["Function"]["KmsKeyArn"], key);
    let given = texts(&properties(&raw, "KeyPolicy")["Roles"])
        .into_iter()
        .map(str::to_owned)
        .collect::<BTreeSet<_>>();
    let roles = resources(&raw, "AWS::IAM::Role");
    assert_eq!(given, roles.keys().filter(|it| *it != "NodeRole").cloned().collect());
    assert_eq!(raw["Resources"]["KeyPolicy"]["Condition"], "HasKey");
}

#[test] // aws-nodeclass 29, cases 4 and 6
fn the_interruption_queue_speaks_tls_and_forgets_what_is_old() {
    let template = template();
    let queue = properties(&template, "InterruptionQueue");
    assert_eq!(queue["MessageRetentionPeriod"], 300);
    // What cannot be handled is a dead letter before its time is up.
    let receives = queue["RedrivePolicy"]["maxReceiveCount"].as_u64().expect("a number");
    let hidden = queue["VisibilityTimeout"].as_u64().expect("seconds");
    assert_eq!((receives, hidden), (5, 48));
    assert!(receives * hidden < 300);
    let policy = properties(&template, "QueuePolicy");
    assert!(policy["Queues"].to_string().contains("InterruptionQueue"));
    let denied = policy["PolicyDocument"]["Statement"]
        .as_array()
        .expect("statements")
        .iter()
        .find(|it| it["Effect"] == "Deny")
        .expect("a denial");
    assert_eq!((&denied["Principal"], &denied["Action"]), (&"*".into(), &"sqs:*".into()));
    assert_eq!(denied["Condition"]["Bool"]["aws:SecureTransport"], "false");
}
