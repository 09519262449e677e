//! The functions: whether they run, what they are given, what their roles may do.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use spokeshave_lambda::wiring::SOURCES;
use spokeshave_nodeclass::iam::{Scope, policies};
use spokeshave_ports::Concern;
use spokeshave_signing::percent_encoded;

use super::{
    finding::{DEPLOY, Findings},
    wiring::{LIMIT_BESIDE_EXISTING, last, looks_itself, taken_over},
};
use crate::live::{Session, queues::logical, stack::Resource};

/// The ARN of each function's role, as far as it is known.
pub type Roles = BTreeMap<Concern, String>;

pub fn check(session: &Session, cluster: &str, to: &mut Findings) -> Roles {
    let mut roles = Roles::new();
    for concern in Concern::ALL {
        let name = logical(*concern);
        function(session, *concern, &name, cluster, &mut roles, to);
        if SOURCES.iter().any(|it| it.concern == *concern) {
            event_sources(session, *concern, &name, to);
        }
    }
    // The account is in the ARN of any role: arn:aws:iam::123456789012:role/name.
    let account = roles.values().find_map(|it| it.split(':').nth(4)).unwrap_or_default().to_owned();
    let expected = expected_policies(session, cluster, &account);
    for concern in Concern::ALL {
        if let Some(policy) = expected.get(concern.as_str()) {
            role(session, *concern, &account, policy, to);
        }
    }
    roles
}

/// The policies that this command was built with, for this stack.
fn expected_policies(session: &Session, cluster: &str, account: &str) -> Map<String, Value> {
    let partition = session.aws.partition;
    let named = session.stack.parameters.get("NodeRoleName").map(String::as_str).filter(|it| !it.is_empty());
    let node_role = session.stack.physical("NodeRole").or(named).unwrap_or_default();
    policies(&Scope {
        partition: partition.to_owned(),
        region: session.aws.region.clone(),
        account: account.to_owned(),
        cluster: cluster.to_owned(),
        node_role: format!("arn:{partition}:iam::{account}:role/{node_role}"),
        stack: None,
    })
}

fn function(
    session: &Session,
    concern: Concern,
    name: &str,
    cluster: &str,
    roles: &mut Roles,
    to: &mut Findings,
) {
    let Some(id) = session.stack.physical(name) else {
        to.fault("function", name, "the stack has none", DEPLOY);
        return;
    };
    let path = format!("/2015-03-31/functions/{}/configuration", percent_encoded(id));
    let found = match session.aws.get("lambda", "GetFunctionConfiguration", &path) {
        Ok(found) => found,
        Err(error) => return to.failed("function", name, &error, DEPLOY),
    };
    if let Some(role) = found["Role"].as_str() {
        roles.insert(concern, role.to_owned());
    }
    let mut problems = Vec::new();
    // Absent means that all is well: older accounts and emulators leave it out.
    for (field, good) in [("State", &["Active", "Inactive", "Pending"] as &[_]), ("LastUpdateStatus", &["Successful", "InProgress"])] {
        if let Some(value) = found[field].as_str()
            && !good.contains(&value)
        {
            let reason = found[format!("{field}Reason")].as_str().unwrap_or("no reason given");
            problems.push(format!("{field} is {value}: {reason}"));
        }
    }
    let variables = &found["Environment"]["Variables"];
    let given = variables["CLUSTER_NAME"].as_str().unwrap_or_default();
    if given != cluster {
        problems.push(format!("its CLUSTER_NAME is {given:?}, the stack's cluster {cluster:?}"));
    }
    if let (Some(limit), Some(wanted)) = (found["Timeout"].as_u64(), limit_of(session, concern))
        && limit != wanted
    {
        problems.push(format!("its time limit is {limit} s, not {wanted} s"));
    }
    let runtime = found["Runtime"].as_str().unwrap_or("provided.al2023");
    if runtime != "provided.al2023" {
        problems.push(format!("its runtime is {runtime}, not provided.al2023"));
    }
    to.judged("function", name, &problems, "ready", DEPLOY);
}

/// How long a function may run, in seconds, as the template has it; `None` for the bridge, whose limit is Lambda's own.
fn limit_of(session: &Session, concern: Concern) -> Option<u64> {
    if concern == Concern::Interruption && taken_over(session) {
        return Some(LIMIT_BESIDE_EXISTING);
    }
    SOURCES.iter().find(|it| it.concern == concern).map(|it| it.timeout)
}

fn event_sources(session: &Session, concern: Concern, name: &str, to: &mut Findings) {
    let Some(id) = session.stack.physical(name) else { return };
    let path = format!("/2015-03-31/event-source-mappings/?FunctionName={}", percent_encoded(id));
    let found = match session.aws.get("lambda", "ListEventSourceMappings", &path) {
        Ok(found) => found,
        Err(error) => return to.failed("eventSource", name, &error, DEPLOY),
    };
    let found: Vec<&Value> = found["EventSourceMappings"].as_array().into_iter().flatten().collect();
    let itself = looks_itself(session, concern);
    let mut queues = vec![format!("{name}Queue")];
    if concern.is_fifo() {
        queues.push(format!("{name}WakeQueue"));
    }
    for queue in queues {
        let Some(wanted) = session.stack.physical(&queue) else { continue };
        let wanted = wanted.rsplit(['/', ':']).next().unwrap_or(wanted);
        let source = found.iter().find(|it| {
            it["EventSourceArn"].as_str().and_then(|it| it.rsplit(':').next()) == Some(wanted)
        });
        let mut problems = Vec::new();
        match source {
            None => problems.push(format!("no function reads {queue}")),
            Some(source) => {
                let state = source["State"].as_str().unwrap_or("Enabled");
                if !itself && !["Enabled", "Enabling", "Creating", "Updating"].contains(&state) {
                    problems.push(format!("it is {state}"));
                }
                let partial = source["FunctionResponseTypes"].as_array();
                if !partial.is_some_and(|it| it.iter().any(|it| it == "ReportBatchItemFailures")) {
                    problems.push("one failed message fails its whole batch".to_owned());
                }
            }
        }
        let well = if itself { "looked into by its function" } else { "polled" };
        to.judged("eventSource", &queue, &problems, well, DEPLOY);
    }
}

/// Actions of a policy that allows.
fn actions(policy: &Value) -> BTreeSet<String> {
    let one_or_many = |value: &Value| -> Vec<Value> {
        value.as_array().cloned().unwrap_or_else(|| vec![value.clone()])
    };
    one_or_many(&policy["Statement"])
        .iter()
        .filter(|it| it["Effect"] == "Allow")
        .flat_map(|it| one_or_many(&it["Action"]))
        .filter_map(|it| it.as_str().map(str::to_owned))
        .collect()
}

fn role(session: &Session, concern: Concern, account: &str, expected: &Value, to: &mut Findings) {
    let name = format!("{}Role", logical(concern));
    let Some(id) = session.stack.physical(&name) else {
        to.fault("policy", &name, "the stack has none", DEPLOY);
        return;
    };
    let fields = [("RoleName", id), ("PolicyName", concern.as_str())];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let text = match session.aws.query("iam", "GetRolePolicy", "2010-05-08", &fields) {
        Ok(text) => text,
        Err(error) => return to.failed("policy", &name, &error, DEPLOY),
    };
    let Some(found) = document(&text) else {
        to.fault("policy", &name, "its policy cannot be read", DEPLOY);
        return;
    };
    let arn_of = |logical: &str| arn_of(session, account, logical);
    let unlike = unlike(expected, &found, arn_of);
    let (found, expected) = (actions(&found), actions(expected));
    let missing: Vec<&str> = expected.difference(&found).map(String::as_str).collect();
    let more: Vec<&str> = found.difference(&expected).map(String::as_str).collect();
    let mut problems = Vec::new();
    if !missing.is_empty() {
        problems.push(format!("it may not {}", missing.join(", ")));
    }
    problems.extend(unlike);
    if !problems.is_empty() {
        to.fault("policy", &name, problems.join("; "), DEPLOY);
    } else if !more.is_empty() {
        to.warning("policy", &name, format!("it may also {}", more.join(", ")), "take away what the template does not give");
    } else {
        to.ok("policy", &name, "may do what its function does, no more");
    }
}

/// The ARN of a resource of the stack; `None` when nobody can say.
fn arn_of(session: &Session, account: &str, logical: &str) -> Option<String> {
    let given = session.stack.parameters.get("InterruptionQueueArn").filter(|it| !it.is_empty());
    if let Some(given) = given.filter(|_| logical == "InterruptionQueue") {
        return Some(given.clone());
    }
    let Resource { kind, physical_id, .. } = session.stack.resources.get(logical)?;
    let (service, name) = match kind.as_str() {
        "AWS::SQS::Queue" => ("sqs", last(physical_id).to_owned()),
        "AWS::DynamoDB::Table" => ("dynamodb", format!("table/{}", last(physical_id))),
        "AWS::Events::EventBus" => ("events", format!("event-bus/{}", last(physical_id))),
        "AWS::Logs::LogGroup" => ("logs", format!("log-group:{physical_id}:*")),
        _ => return None,
    };
    let named = !account.is_empty() && !physical_id.is_empty();
    named.then(|| format!("arn:{}:{service}:{}:{account}:{name}", session.aws.partition, session.aws.region))
}

/// Statements that `found` has with other resources or conditions than `expected`, which names resources of the stack
/// as its template does. What is not there at all shows by its actions.
fn unlike(expected: &Value, found: &Value, arn_of: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let texts = |value: &Value| -> BTreeSet<String> {
        let one_or_many = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        // A log group's ARN comes with and without this end.
        one_or_many.iter().filter_map(Value::as_str).map(|it| it.trim_end_matches(":*").to_owned()).collect()
    };
    let resolved = |text: &String| -> Option<String> {
        match text.strip_prefix("${").and_then(|it| it.strip_suffix(".Arn}")) {
            Some(logical) => arn_of(logical).map(|it| it.trim_end_matches(":*").to_owned()),
            None => Some(text.clone()),
        }
    };
    let mut problems = Vec::new();
    for wanted in expected["Statement"].as_array().into_iter().flatten() {
        let sid = wanted["Sid"].as_str().unwrap_or_default();
        let found = found["Statement"].as_array().into_iter().flatten();
        let Some(same) = found.into_iter().find(|it| it["Sid"] == wanted["Sid"]) else { continue };
        let conditions = |of: &Value| -> BTreeSet<(String, String, BTreeSet<String>)> {
            let operators = of["Condition"].as_object().into_iter().flatten();
            let pairs = operators.flat_map(|(operator, keys)| {
                let keys = keys.as_object().into_iter().flatten();
                keys.map(move |(key, values)| (operator.clone(), key.clone(), texts(values)))
            });
            pairs.collect()
        };
        let (ours, theirs) = (conditions(wanted), conditions(same));
        let lost: Vec<&str> = ours.difference(&theirs).map(|it| it.1.as_str()).collect();
        let added: Vec<&str> = theirs.difference(&ours).map(|it| it.1.as_str()).collect();
        if !lost.is_empty() {
            problems.push(format!("{sid} is not bound by {}", lost.join(", ")));
        } else if !added.is_empty() {
            problems.push(format!("{sid} is bound by {}", added.join(", ")));
        }
        let resources: Option<BTreeSet<String>> = texts(&wanted["Resource"]).iter().map(resolved).collect();
        if resources.is_some_and(|it| it != texts(&same["Resource"])) {
            problems.push(format!("{sid} is about other resources"));
        }
    }
    problems
}

/// The policy in an answer of IAM: JSON, percent-encoded.
fn document(answer: &str) -> Option<Value> {
    let xml = roxmltree::Document::parse(answer).ok()?;
    let node = xml.descendants().find(|it| it.tag_name().name() == "PolicyDocument")?;
    let text = percent_decoded(node.text()?.trim())?;
    serde_json::from_str(&text).ok()
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn policies_are_read_as_iam_encodes_them() {
        let answer = "<R><PolicyDocument>%7B%22Statement%22%3A%5B%5D%7D</PolicyDocument></R>";
        assert_eq!(document(answer), Some(json!({"Statement": []})));
        assert_eq!(document("<R><PolicyDocument>%7</PolicyDocument></R>"), None);
        assert_eq!(percent_decoded("%zz"), None);
    }

    #[test]
    fn a_statement_that_is_bound_otherwise_is_named() {
        let expected = json!({"Statement": [
            {"Sid": "Own", "Effect": "Allow", "Action": "sqs:SendMessage", "Resource": ["${LaunchQueue.Arn}", "${Unknown.Arn}"]},
            {"Sid": "Log", "Effect": "Allow", "Action": "logs:PutLogEvents", "Resource": "${LaunchLogs.Arn}"},
            {"Sid": "Delete", "Effect": "Allow", "Action": "ec2:TerminateInstances", "Resource": "arn:aws:ec2:r:*:instance/*",
                "Condition": {"StringEquals": {"aws:ResourceTag/kubernetes.io/cluster/c": "owned"}, "StringLike": {"aws:ResourceTag/karpenter.sh/nodepool": "*"}}},
        ]});
        let arn_of = |name: &str| match name {
            "LaunchQueue" => Some("arn:queue".to_owned()),
            "LaunchLogs" => Some("arn:logs:*".to_owned()),
            _ => None,
        };
        let found = |own: Value, logs: &str, resource: &str, condition: Value| {
            json!({"Statement": [
                {"Sid": "Delete", "Resource": [resource], "Condition": condition},
                {"Sid": "Log", "Resource": logs}, {"Sid": "Own", "Resource": own}, {"Sid": "More", "Resource": "*"}]})
        };
        let (cluster, pool) = ("aws:ResourceTag/kubernetes.io/cluster/c", "aws:ResourceTag/karpenter.sh/nodepool");
        let both = json!({"StringLike": {pool: ["*"]}, "StringEquals": {cluster: ["owned"]}});
        let instances = "arn:aws:ec2:r:*:instance/*";
        // Of a resource that nobody knows the ARN of nothing is said.
        let whole = found(json!("*"), "arn:logs", instances, both.clone());
        assert_eq!(unlike(&expected, &whole, arn_of), [""; 0]);
        let wide = found(json!([]), "*", "*", json!({"StringEquals": {cluster: "owned"}}));
        assert_eq!(
            unlike(&expected, &wide, arn_of),
            ["Log is about other resources", &format!("Delete is not bound by {pool}"), "Delete is about other resources"]
        );
        let other = found(json!([]), "arn:logs:*", instances, json!({"StringLike": {pool: "*"}, "StringEquals": {cluster: "shared"}}));
        assert_eq!(unlike(&expected, &other, arn_of), [format!("Delete is not bound by {cluster}")]);
        let mut narrow = both;
        narrow["StringEquals"]["aws:RequestedRegion"] = json!("r");
        let narrow = found(json!([]), "arn:logs", instances, narrow);
        assert_eq!(unlike(&expected, &narrow, arn_of), ["Delete is bound by aws:RequestedRegion"]);
        assert_eq!(unlike(&expected, &json!({}), arn_of), [""; 0]);
    }

    #[test]
    fn actions_are_those_that_are_allowed() {
        let policy = json!({"Statement": [
            {"Effect": "Allow", "Action": ["a:B", "a:C"]},
            {"Effect": "Allow", "Action": "d:E"},
            {"Effect": "Deny", "Action": "x:Y"},
        ]});
        assert_eq!(actions(&policy), ["a:B", "a:C", "d:E"].map(str::to_owned).into());
        let one = json!({"Statement": {"Effect": "Allow", "Action": "a:B"}});
        assert_eq!(actions(&one), ["a:B".to_owned()].into());
    }
}
