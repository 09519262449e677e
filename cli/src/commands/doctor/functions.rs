//! The functions: whether they run, what they are given, what their roles may do.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use spokeshave_lambda::wiring::SOURCES;
use spokeshave_nodeclass::iam::{Scope, policies};
use spokeshave_ports::Concern;
use spokeshave_signing::percent_encoded;

use super::finding::{DEPLOY, Findings};
use crate::live::{Session, queues::logical};

/// The ARN of each function's role, as far as it is known.
pub type Roles = BTreeMap<Concern, String>;

pub fn check(session: &Session, cluster: &str, to: &mut Findings) -> Roles {
    let expected = policies(&Scope::default());
    let mut roles = Roles::new();
    for concern in Concern::ALL {
        let name = logical(*concern);
        function(session, *concern, &name, cluster, &mut roles, to);
        if SOURCES.iter().any(|it| it.concern == *concern) {
            event_sources(session, *concern, &name, to);
        }
        if let Some(policy) = expected.get(concern.as_str()) {
            role(session, *concern, &name, policy, to);
        }
    }
    roles
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
    let runtime = found["Runtime"].as_str().unwrap_or("provided.al2023");
    if runtime != "provided.al2023" {
        problems.push(format!("its runtime is {runtime}, not provided.al2023"));
    }
    to.judged("function", name, &problems, "ready", DEPLOY);
}

fn event_sources(session: &Session, concern: Concern, name: &str, to: &mut Findings) {
    let Some(id) = session.stack.physical(name) else { return };
    let path = format!("/2015-03-31/event-source-mappings/?FunctionName={}", percent_encoded(id));
    let found = match session.aws.get("lambda", "ListEventSourceMappings", &path) {
        Ok(found) => found,
        Err(error) => return to.failed("eventSource", name, &error, DEPLOY),
    };
    let found: Vec<&Value> = found["EventSourceMappings"].as_array().into_iter().flatten().collect();
    let itself = super::wiring::looks_itself(session, concern);
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

fn role(session: &Session, concern: Concern, name: &str, expected: &Value, to: &mut Findings) {
    let name = format!("{name}Role");
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
    let (found, expected) = (actions(&found), actions(expected));
    let missing: Vec<&str> = expected.difference(&found).map(String::as_str).collect();
    let more: Vec<&str> = found.difference(&expected).map(String::as_str).collect();
    if !missing.is_empty() {
        to.fault("policy", &name, format!("it may not {}", missing.join(", ")), DEPLOY);
    } else if !more.is_empty() {
        to.warning("policy", &name, format!("it may also {}", more.join(", ")), "take away what the template does not give");
    } else {
        to.ok("policy", &name, "may do what its function does, no more");
    }
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
