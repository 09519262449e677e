//! The stack itself, its queues, rules, schedules and table, against the wiring that this command was built with.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use spokeshave_lambda::wiring::{
    ALWAYS_POLLED, NEVER_POLLED, ROUTES, SCHEDULES, SOURCES, Source, message_group, started_by,
};
use spokeshave_ports::{Concern, StateKey, stack::observe_only_key};

use super::finding::{DEPLOY, Findings};
use crate::live::{
    Session,
    aws::CallError,
    queues::{Queue, logical},
};

/// Rules of the default bus that feed the interruption queue.
const INTERRUPTION_RULES: &[&str] = &[
    "SpotInterruptionRule",
    "RebalanceRule",
    "InstanceStateChangeRule",
    "ScheduledChangeRule",
    "CapacityReservationInterruptionRule",
];

/// Looks at all of it; whether the stack only watches, since another autoscaler is at work.
pub fn check(session: &Session, to: &mut Findings) -> bool {
    let stack = &session.stack;
    let status = stack.status.as_str();
    if status.ends_with("_IN_PROGRESS") {
        to.warning("stack", &stack.name, format!("it is {status}"), "wait until it is done, then ask again");
    } else if status.contains("FAILED") || status == "ROLLBACK_COMPLETE" {
        to.fault("stack", &stack.name, format!("it is {status}"), "read the stack's events, mend the cause, deploy again");
    } else if status.contains("ROLLBACK") {
        let what = format!("it is {status}: it works as it was before its last update");
        to.warning("stack", &stack.name, what, "read the stack's events, mend the cause, deploy again");
    } else {
        to.ok("stack", &stack.name, status);
    }
    for (name, resource) in &stack.resources {
        if resource.status.contains("FAILED") {
            to.fault("resource", name, format!("{} is {}", resource.kind, resource.status), "read the stack's events");
        }
    }
    for source in SOURCES {
        queue(session, source, to);
    }
    for name in ["DeadLetters", "SolverDeadLetters", "UndeliveredQueue"] {
        dead_letters(session, name, to);
    }
    key(session, to);
    rules(session, to);
    for (concern, _) in SCHEDULES {
        schedule(session, &format!("{}Schedule", logical(*concern)), *concern, to);
    }
    schedule(session, "SweepSchedule", Concern::Lifecycle, to);
    schedule(session, "DrainSlowlySchedule", Concern::CatalogRefresh, to);
    if drains(session) {
        schedule(session, "DrainSchedule", Concern::Lifecycle, to);
    }
    table(session, to)
}

/// The name at the end of a URL or an ARN.
pub fn last(id: &str) -> &str {
    id.rsplit(['/', ':', '|']).next().unwrap_or(id)
}

/// Whether the bridge is in `poll` mode.
fn drains(session: &Session) -> bool {
    session.stack.parameters.get("BridgeMode").is_some_and(|it| it == "poll")
}

/// Whether a function looks into its queue itself, instead of Lambda.
pub fn looks_itself(session: &Session, concern: Concern) -> bool {
    // Zonal shifts are read every half minute, by messages that Lambda delivers.
    let reads_shifts = session.stack.parameters.get("EnableZonalShift");
    if concern == Concern::CatalogRefresh && reads_shifts.is_some_and(|it| it == "true") {
        return false;
    }
    let in_poll_mode = drains(session) && !ALWAYS_POLLED.contains(&concern);
    in_poll_mode || NEVER_POLLED.contains(&concern)
}

/// Whether interruption reads a queue that the stack did not make.
pub fn taken_over(session: &Session) -> bool {
    session.stack.parameters.get("InterruptionQueueArn").is_some_and(|it| !it.is_empty())
}

fn queue(session: &Session, source: &Source, to: &mut Findings) {
    let prefix = logical(source.concern);
    let names = if source.concern.is_fifo() {
        vec![prefix.clone(), format!("{prefix}Wake")]
    } else {
        vec![prefix]
    };
    for (at, prefix) in names.iter().enumerate() {
        let name = format!("{prefix}Queue");
        let own = at == 0;
        let attributes = match session.aws.queue(&session.stack, &name) {
            // One that existed before the stack has settings and dead letters of its own.
            Ok(Some(queue)) if taken_over(session) && source.concern == Concern::Interruption => {
                existing(session, &name, &queue, to);
                continue;
            }
            Ok(None) => {
                to.fault("queue", &name, "the stack has none", DEPLOY);
                continue;
            }
            Ok(Some(queue)) => session.aws.queue_attributes(&queue),
            Err(error) => Err(error),
        };
        let attributes = match attributes {
            Ok(attributes) => attributes,
            Err(error) => {
                let theirs = taken_over(session) && source.concern == Concern::Interruption;
                to.failed("queue", &name, &error, if theirs { TAKE_ANOTHER } else { DEPLOY });
                continue;
            }
        };
        let text = |key: &str| attributes.get(key).map(String::as_str);
        let number = |key: &str| text(key).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
        let least = if own { source.visibility() } else { source.timeout * 6 };
        let mut problems = Vec::new();
        if number("VisibilityTimeout") < least {
            problems.push(format!(
                "messages are hidden for {} s, less than the {least} s that its function may need",
                number("VisibilityTimeout")
            ));
        }
        let fifo = text("FifoQueue") == Some("true");
        if fifo != (own && source.concern.is_fifo()) {
            problems.push(if fifo { "it is a FIFO queue" } else { "it is not a FIFO queue" }.to_owned());
        }
        let redrive: Value = text("RedrivePolicy").and_then(|it| serde_json::from_str(it).ok()).unwrap_or(Value::Null);
        let dead = redrive["deadLetterTargetArn"].as_str();
        let shared = if own && source.concern.is_fifo() { "SolverDeadLetters" } else { "DeadLetters" };
        let wanted = session.stack.physical(shared);
        if dead.map(last) != wanted.map(last) {
            problems.push(format!("its dead letters go to {}", dead.map_or("nowhere", last)));
        }
        let policy: Value = text("Policy").and_then(|it| serde_json::from_str(it).ok()).unwrap_or(Value::Null);
        if !lets_rules_send(&policy) {
            problems.push("its policy does not let EventBridge send to it".to_owned());
        }
        to.judged("queue", &name, &problems, "as it should be", DEPLOY);
    }
}

/// The fix for a queue that the stack was only told of.
const TAKE_ANOTHER: &str =
    "deploy the stack with the ARN of a queue of this region that is there, or without InterruptionQueueArn";

/// The function's limit when it reads a queue that the stack did not make, in seconds: template.yaml.
pub const LIMIT_BESIDE_EXISTING: u64 = 5;

/// A queue that the stack did not make: that its messages stay hidden for long enough is all that is asked of it.
fn existing(session: &Session, name: &str, queue: &Queue, to: &mut Findings) {
    let attributes = match session.aws.queue_attributes(queue) {
        Ok(attributes) => attributes,
        Err(error) => return to.failed("queue", name, &error, TAKE_ANOTHER),
    };
    let hidden = attributes.get("VisibilityTimeout").and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
    let least = LIMIT_BESIDE_EXISTING * 6;
    let mut problems = Vec::new();
    if hidden < least {
        problems.push(format!(
            "messages of {} are hidden for {hidden} s, less than the {least} s that its function may need",
            queue.name()
        ));
    }
    if queue.is_fifo() {
        problems.push(format!("{} is a FIFO queue, to which EventBridge sends no warnings", queue.name()));
    }
    to.judged("queue", name, &problems, queue.name(), TAKE_ANOTHER);
}

/// Whether a text, or one of a list of texts, is one of those wanted.
fn is_or_has(value: &Value, wanted: &[&str]) -> bool {
    let one = value.as_str().into_iter();
    one.chain(value.as_array().into_iter().flatten().filter_map(Value::as_str))
        .any(|it| wanted.iter().any(|wanted| it.eq_ignore_ascii_case(wanted)))
}

/// Whether a policy has a statement that lets rules of EventBridge do one of these actions.
fn lets_rules(policy: &Value, actions: &[&str]) -> bool {
    policy["Statement"].as_array().into_iter().flatten().any(|it| {
        it["Effect"] == "Allow"
            && is_or_has(&it["Principal"]["Service"], &["events.amazonaws.com"])
            && is_or_has(&it["Action"], actions)
    })
}

/// Whether a queue's policy lets rules of EventBridge send.
fn lets_rules_send(policy: &Value) -> bool {
    lets_rules(policy, &["sqs:SendMessage", "sqs:*", "*"])
}

/// The user's own key for the queues. A rule that may not use it delivers nothing, and leaves no dead letter either: that
/// queue has the same key.
fn key(session: &Session, to: &mut Findings) {
    let Some(arn) = session.stack.parameters.get("KmsKeyArn").filter(|it| !it.is_empty()) else { return };
    let ask = |operation: &str, body: &Value| session.aws.json("kms", &format!("TrentService.{operation}"), "1.1", body);
    let described = ask("DescribeKey", &json!({ "KeyId": arn }));
    let policy = ask("GetKeyPolicy", &json!({ "KeyId": arn, "PolicyName": "default" }));
    let fix = "add the statement of docs/security.md (A key of your own) to the key's policy";
    let mut problems = Vec::new();
    match described {
        Ok(found) => {
            let state = found["KeyMetadata"]["KeyState"].as_str().unwrap_or("Enabled");
            if state != "Enabled" {
                problems.push(format!("it is {state}"));
            }
        }
        Err(error) => return to.failed("key", last(arn), &error, "give the stack the ARN of a key of this region that is there"),
    }
    match policy {
        Ok(found) => {
            let policy: Value = found["Policy"].as_str().and_then(|it| serde_json::from_str(it).ok()).unwrap_or(Value::Null);
            let decrypt = ["kms:Decrypt", "kms:*"];
            let generate = ["kms:GenerateDataKey", "kms:GenerateDataKey*", "kms:*"];
            for allowed_by in [&decrypt[..], &generate[..]] {
                let action = allowed_by[0];
                if !lets_rules(&policy, allowed_by) {
                    problems.push(format!("its policy does not let EventBridge do {action}"));
                }
            }
        }
        Err(error) => return to.failed("key", last(arn), &error, fix),
    }
    to.judged("key", last(arn), &problems, "EventBridge may use it", fix);
}

fn dead_letters(session: &Session, name: &str, to: &mut Findings) {
    let queue = match session.aws.queue(&session.stack, name) {
        Ok(Some(queue)) => queue,
        Ok(None) => return to.fault("queue", name, "the stack has none", DEPLOY),
        Err(error) => return to.failed("queue", name, &error, DEPLOY),
    };
    match session.aws.queue_attributes(&queue) {
        Ok(attributes) => {
            let waiting = attributes.get("ApproximateNumberOfMessages").map_or("0", String::as_str);
            if waiting != "0" {
                let stack = &session.stack.name;
                to.warning(
                    "deadLetters",
                    name,
                    format!("{waiting} messages could not be handled"),
                    &format!("read them with `spokeshave dlq show --stack {stack}`, mend the cause, then `dlq redrive`"),
                );
            }
        }
        Err(error) => to.failed("deadLetters", name, &error, DEPLOY),
    }
}

fn events(session: &Session, operation: &str, body: &Value) -> Result<Value, CallError> {
    session.aws.json("events", &format!("AWSEvents.{operation}"), "1.1", body)
}

fn rules(session: &Session, to: &mut Findings) {
    let bus = session.stack.physical("Bus").map(str::to_owned);
    match &bus {
        None => to.fault("bus", "Bus", "the stack has none", DEPLOY),
        Some(bus) => match events(session, "DescribeEventBus", &json!({ "Name": bus })) {
            Ok(_) => to.ok("bus", "Bus", last(bus)),
            Err(error) => to.failed("bus", "Bus", &error, DEPLOY),
        },
    }
    for concern in Concern::ALL {
        let of = |group: &str| -> BTreeSet<&str> {
            let routed = ROUTES.iter().filter(|(_, targets)| targets.contains(concern));
            routed.map(|(name, _)| *name).filter(|it| message_group(*concern, it) == group).collect()
        };
        let prefix = logical(*concern);
        let mut wanted = vec![(format!("{prefix}Rule"), of(message_group(*concern, "")))];
        if *concern == Concern::Disruption {
            wanted.push((format!("{prefix}CommandsRule"), of("commands")));
        }
        for (name, types) in wanted.into_iter().filter(|(_, types)| !types.is_empty()) {
            let target = if *concern == Concern::ClusterBridge { prefix.clone() } else { format!("{prefix}Queue") };
            rule(session, &name, bus.as_deref(), Some(&types), &target, to);
        }
    }
    for concern in Concern::ALL.iter().filter(|it| looks_itself(session, **it)) {
        let types: BTreeSet<&str> = started_by(*concern).into_iter().collect();
        if !types.is_empty() {
            let prefix = logical(*concern);
            rule(session, &format!("{prefix}StartRule"), bus.as_deref(), Some(&types), &prefix, to);
        }
    }
    for name in INTERRUPTION_RULES.iter().filter(|_| !taken_over(session)) {
        rule(session, name, None, None, "InterruptionQueue", to);
    }
    let takes_hooks = session.stack.parameters.get("LifecycleHooks").is_some_and(|it| it == "true");
    if takes_hooks && !taken_over(session) {
        rule(session, "LifecycleHookRule", None, None, "InterruptionQueue", to);
    }
}

fn rule(
    session: &Session,
    name: &str,
    bus: Option<&str>,
    types: Option<&BTreeSet<&str>>,
    target: &str,
    to: &mut Findings,
) {
    let Some(id) = session.stack.physical(name) else {
        to.fault("rule", name, "the stack has none", DEPLOY);
        return;
    };
    let place = |key: &str| {
        let mut body = json!({ key: last(id) });
        if let Some(bus) = bus {
            body["EventBusName"] = json!(bus);
        }
        body
    };
    let described = events(session, "DescribeRule", &place("Name"));
    let targets = events(session, "ListTargetsByRule", &place("Rule"));
    let (described, targets) = match (described, targets) {
        (Ok(described), Ok(targets)) => (described, targets),
        (Err(error), _) | (_, Err(error)) => return to.failed("rule", name, &error, DEPLOY),
    };
    let mut problems = Vec::new();
    if described["State"].as_str().is_some_and(|it| it != "ENABLED") {
        problems.push("it is disabled".to_owned());
    }
    if let Some(types) = types {
        let pattern = described["EventPattern"].as_str().unwrap_or_default();
        let pattern: Value = serde_json::from_str(pattern).unwrap_or(Value::Null);
        let found: BTreeSet<&str> =
            pattern["detail-type"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let missing: Vec<&str> = types.difference(&found).copied().collect();
        if !missing.is_empty() {
            problems.push(format!("it does not route {}", missing.join(", ")));
        }
    }
    let found: Vec<&str> = targets["Targets"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["Arn"].as_str().map(last))
        .collect();
    if let Some(wanted) = session.stack.physical(target).map(last)
        && !found.contains(&wanted)
    {
        problems.push(format!("its target is not {wanted}"));
    }
    to.judged("rule", name, &problems, "enabled, with its target", DEPLOY);
}

fn schedule(session: &Session, name: &str, concern: Concern, to: &mut Findings) {
    let Some(id) = session.stack.physical(name) else {
        to.fault("schedule", name, "the stack has none", DEPLOY);
        return;
    };
    let path = format!("/schedules/{}", spokeshave_signing::percent_encoded(last(id)));
    match session.aws.get("scheduler", "GetSchedule", &path) {
        Err(error) => to.failed("schedule", name, &error, DEPLOY),
        Ok(found) => {
            let in_cluster = session.stack.parameters.get("BridgeMode").is_some_and(|it| it == "in-cluster");
            // In a pod, the bridge needs nobody to start it.
            let idle = concern == Concern::ClusterBridge && in_cluster;
            if found["State"].as_str() == Some("DISABLED") && !idle {
                to.fault("schedule", name, "it is disabled", DEPLOY);
            } else {
                to.ok("schedule", name, found["ScheduleExpression"].as_str().unwrap_or("there"));
            }
        }
    }
}

fn dynamo(session: &Session, operation: &str, body: &Value) -> Result<Value, CallError> {
    session.aws.json("dynamodb", &format!("DynamoDB_20120810.{operation}"), "1.0", body)
}

/// A record of the state table as DynamoDB has it; `Null` when there is none, or no table.
///
/// # Errors
/// DynamoDB refuses, or does not answer.
pub fn record(session: &Session, key: &StateKey) -> Result<Value, CallError> {
    let Some(table) = session.stack.physical("StateTable") else { return Ok(Value::Null) };
    let key = json!({ "pk": {"S": key.partition}, "sk": {"S": format!("#{}", key.sort)} });
    let body = json!({ "TableName": table, "Key": key, "ConsistentRead": true });
    Ok(dynamo(session, "GetItem", &body)?["Item"].take())
}

/// The table, and what its records say of the whole stack: whether it only watches.
fn table(session: &Session, to: &mut Findings) -> bool {
    let Some(name) = session.stack.physical("StateTable") else {
        to.fault("table", "StateTable", "the stack has none", DEPLOY);
        return false;
    };
    match dynamo(session, "DescribeTable", &json!({ "TableName": name })) {
        Err(error) => {
            to.failed("table", "StateTable", &error, DEPLOY);
            return false;
        }
        Ok(found) => {
            let status = found["Table"]["TableStatus"].as_str().unwrap_or("unknown");
            let problems = if status == "ACTIVE" { vec![] } else { vec![format!("it is {status}")] };
            to.judged("table", "StateTable", &problems, "active", "wait, or deploy the stack again");
        }
    }
    let mut only_watches = false;
    match record(session, &observe_only_key()) {
        Err(error) => to.failed("autoscaler", "observe-only", &error, DEPLOY),
        Ok(item) => {
            let until = item["expires_ms"]["N"].as_str().and_then(|it| it.parse::<i64>().ok());
            let now = jiff::Timestamp::now().as_millisecond();
            only_watches = item.is_object() && until.is_none_or(|it| it > now);
            if only_watches {
                to.warning(
                    "autoscaler",
                    "observe-only",
                    "another autoscaler is at work in the cluster, so this stack only watches",
                    "scale Karpenter's deployment to zero, or delete the other stack",
                );
            } else {
                to.ok("autoscaler", "observe-only", "no other autoscaler is at work");
            }
        }
    }
    let catalog = StateKey::new(spokeshave_catalog::stored::CATALOG, spokeshave_catalog::stored::INDEX);
    match record(session, &catalog) {
        Err(error) => to.failed("catalog", "state table", &error, DEPLOY),
        Ok(item) if item.is_object() => to.ok("catalog", "state table", "stored"),
        Ok(_) => to.fault(
            "catalog",
            "state table",
            "nothing is known of what can be bought",
            "look into the log of catalog-refresh; it runs every 5 minutes",
        ),
    }
    only_watches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_template() {
        let template = include_str!("../../../../template.yaml");
        let mut names: Vec<String> = INTERRUPTION_RULES.iter().map(|it| (*it).to_owned()).collect();
        names.extend(SCHEDULES.iter().map(|(it, _)| format!("{}Schedule", logical(*it))));
        names.extend(["DrainSchedule", "DrainSlowlySchedule", "DeadLetters", "SolverDeadLetters"].map(str::to_owned));
        names.extend(["SweepSchedule", "StateTable", "Bus", "DisruptionCommandsRule"].map(str::to_owned));
        for name in names {
            assert!(template.contains(&format!("\n  {name}:\n")), "{name}");
        }
    }

    #[test]
    fn a_queue_must_let_rules_send() {
        let statement = |effect: &str, service: Value, action: Value| json!({"Statement": [{"Effect": effect, "Principal": {"Service": service}, "Action": action}]});
        let events = json!("events.amazonaws.com");
        assert!(lets_rules_send(&statement("Allow", events.clone(), json!("sqs:SendMessage"))));
        assert!(lets_rules_send(&statement("Allow", json!(["sqs.amazonaws.com", events]), json!(["SQS:SendMessage"]))));
        for policy in [
            Value::Null,
            statement("Deny", events.clone(), json!("sqs:SendMessage")),
            statement("Allow", json!("sns.amazonaws.com"), json!("sqs:SendMessage")),
            statement("Allow", events.clone(), json!("sqs:ReceiveMessage")),
        ] {
            assert!(!lets_rules_send(&policy), "{policy}");
        }
    }

    #[test]
    fn names_end_ids_of_every_form() {
        for id in ["arn:aws:sqs:r:1:q", "https://sqs/1/q", "bus|q", "q"] {
            assert_eq!(last(id), "q");
        }
    }
}
