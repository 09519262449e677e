//! The built Lambda binaries through the Lambda Runtime API, against the AWS emulator and a real API server.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use spokeshave_aws::Connection;
use spokeshave_model::Settings;
use spokeshave_ports::Concern;
use spokeshave_tests::{
    lambda_api::{Function, Said},
    server,
};

/// Where `.ci/test` has built the functions.
fn binary(name: &str) -> String {
    Path::new(&server("SPOKESHAVE_FUNCTIONS")).join(name).display().to_string()
}

/// An event of `events/`.
fn event(path: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../events").join(path);
    serde_json::from_str(&fs::read_to_string(path).expect("an event")).expect("JSON")
}

/// What template.yaml gives a function, for the emulator's stack.
fn environment() -> Vec<(String, String)> {
    let endpoint = server("AWS_ENDPOINT_URL");
    let queue = |name: &str| format!("{endpoint}/123456789012/{name}");
    let mut variables: Vec<(String, String)> = [
        ("CLUSTER_NAME", "prod".to_owned()),
        ("AWS_ACCOUNT_ID", "123456789012".to_owned()),
        ("EVENT_BUS", "spokeshave".to_owned()),
        ("STATE_TABLE", "state".to_owned()),
        ("INTERRUPTION_QUEUE", "interruption".to_owned()),
        ("LOG_LEVEL", "debug".to_owned()),
        ("WAKE_QUEUE_URL_PROVISION", queue("provision-wake")),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    for concern in Concern::ALL {
        let variable = concern.as_str().replace('-', "_").to_ascii_uppercase();
        let name = if *concern == Concern::Provision { "provision.fifo" } else { "launch" };
        variables.push((format!("QUEUE_URL_{variable}"), queue(name)));
    }
    variables
}

fn start(name: &str, events: &[Value]) -> Function {
    let environment = environment();
    let environment: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    Function::start(&binary(name), events, &environment)
}

fn batch(queue: &str, bodies: &[&str]) -> Value {
    let records: Vec<Value> = bodies
        .iter()
        .enumerate()
        .map(|(n, body)| {
            json!({
                "messageId": format!("m-{n}"),
                "receiptHandle": "r",
                "body": body,
                "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1700000000000"},
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": format!("arn:aws:sqs:us-west-2:123456789012:{queue}"),
                "awsRegion": "us-west-2",
            })
        })
        .collect();
    json!({"Records": records})
}

#[test]
fn every_function_asks_for_an_event_soon_after_its_start() {
    for concern in Concern::ALL {
        let function = start(concern.as_str(), &[]);
        // Told for whoever reads the test's output; bars are measured with release builds.
        eprintln!(
            "{concern}: {:.1} ms to the first event, {} KiB",
            function.cold_start.as_secs_f64() * 1000.0,
            function.memory().unwrap_or_default()
        );
        assert_eq!(
            function.end(),
            [] as [Value; 0],
            "{concern} says nothing before its first event"
        );
    }
}

#[test]
fn a_setting_that_does_not_parse_stops_the_function() {
    for (name, value, setting) in
        [("CLUSTER_NAME", "", "CLUSTER_NAME"), ("RESERVED_ENIS", "-1", "RESERVED_ENIS")]
    {
        let output = Command::new(binary("lifecycle"))
            .envs(environment())
            .env(name, value)
            // Nobody listens there: it must end before it asks.
            .env("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9")
            .output()
            .expect("it runs");
        assert!(!output.status.success(), "{name}");
        let text = String::from_utf8(output.stdout).expect("text");
        let line: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
        assert_eq!((&line["level"], &line["action"]), (&json!("error"), &json!("refuse")));
        assert_eq!(line["setting"], setting);
    }
}

#[test]
fn interruption_answers_events_as_aws_delivers_them() {
    let function = start("interruption", &[event("lambda/interruption-batch.json")]);
    let Said::Answer(answer) = function.next_said() else { panic!("no answer") };
    let lines = function.end();
    // What cannot be read is dropped alone; of the rest no instance is known here.
    assert_eq!(answer, json!({"batchItemFailures": []}), "{lines:#?}");
    assert!(lines.iter().all(|it| it.get("_aws").is_some() || it["concern"] == "interruption"));
    let metric = "karpenter_interruption_received_messages_total";
    assert!(lines.iter().any(|it| it.get(metric).is_some()), "{lines:?}");
}

#[test]
fn a_body_that_is_no_work_is_dropped_alone() {
    let event = batch("tagging", &["{", r#"{"reason":"NodeClaimRegistered"}"#]);
    let function = start("tagging", &[event]);
    let Said::Answer(answer) = function.next_said() else { panic!("no answer") };
    let lines = function.end();
    assert_eq!(answer, json!({"batchItemFailures": []}), "{lines:#?}");
    let dropped: Vec<&Value> = lines.iter().filter(|it| it["action"] == "drop").collect();
    assert_eq!(dropped.len(), 1);
    assert_eq!(
        (&dropped[0]["level"], &dropped[0]["concern"]),
        (&json!("error"), &json!("tagging"))
    );
    assert!(dropped[0]["lambda_request_id"].as_str().is_some_and(|it| it.starts_with("request-")));
}

#[test]
fn a_due_wake_up_goes_on_to_the_solver_s_own_queue() {
    // From the standard queue: forwarded, not solved.
    let function = start("provision", &[batch("provision-wake", &[r#"{"reason":"Wake"}"#])]);
    let Said::Answer(answer) = function.next_said() else { panic!("no answer") };
    assert_eq!(answer, json!({"batchItemFailures": []}));
    function.end();
}

#[tokio::test]
async fn a_function_that_is_started_without_messages_looks_into_its_queue() {
    let endpoint = server("AWS_ENDPOINT_URL");
    let settings = Settings { region: "us-west-2".into(), ..Settings::default() };
    let client = aws_sdk_sqs::Client::new(Connection::from_env(&settings).await.config());
    client.create_queue().queue_name("drained").send().await.expect("a queue");
    let url = format!("{endpoint}/123456789012/drained");
    for body in ["{", r#"{"reason":"NodeClaimRegistered"}"#] {
        client.send_message().queue_url(&url).message_body(body).send().await.expect("sent");
    }
    let variables = environment();
    let mut variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    variables.push(("OWN_QUEUE_URLS", &url));
    let started = json!({"detail-type": "DrainSlowly", "detail": {"reason": "DrainSlowly"}});
    let function = Function::start(&binary("tagging"), &[started.clone(), started], &variables);
    // The first look finds both, the second nothing.
    for handled in [2, 0] {
        let Said::Answer(answer) = function.next_said() else { panic!("no answer") };
        assert_eq!(answer, json!({"handled": handled, "givenBack": 0}));
    }
    let lines = function.end();
    let dropped = lines.iter().filter(|it| it["action"] == "drop").count();
    assert_eq!(dropped, 1, "what cannot be read is dropped alone");
}
