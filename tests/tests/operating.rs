//! `spokeshave dlq` and `spokeshave doctor` against template.yaml as the AWS emulator has deployed it, and against a real
//! API server.

use std::{fs, process::Command};

use aws_sdk_sqs::{Client, types::MessageAttributeValue};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use spokeshave_aws::Connection;
use spokeshave_model::Settings;
use spokeshave_tests::server;
use tokio::sync::Mutex;

const STACK: &str = "spokeshave-prod";

/// Held by a test that works with dead letters: what one looks at is hidden from the others meanwhile.
static LETTERS: Mutex<()> = Mutex::const_new(());

/// Exit status, standard output as JSON, standard error.
fn spokeshave(arguments: &[&str]) -> (i32, Value, String) {
    let binary = format!("{}/spokeshave", server("SPOKESHAVE_FUNCTIONS"));
    let output = Command::new(binary)
        .args(arguments)
        .args(["--output", "json"])
        .output()
        .expect("the command runs");
    let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), json, text)
}

fn dlq(action: &str, more: &[&str]) -> (i32, Value, String) {
    spokeshave(&[&["dlq", action, "--stack", STACK], more].concat())
}

async fn sqs() -> Client {
    server("AWS_ENDPOINT_URL");
    let settings = Settings { region: "us-west-2".into(), ..Settings::default() };
    Client::new(Connection::from_env(&settings).await.config())
}

/// What `dlq list` says about one queue.
fn listed(name: &str) -> Value {
    let (status, answer, error) = dlq("list", &[]);
    assert_eq!((status, error.as_str()), (0, ""));
    let queues = answer["queues"].as_array().expect("queues");
    queues.iter().find(|it| it["name"] == name).expect("the queue").clone()
}

/// The one message of a queue of the stack, by the end of its name before CloudFormation's suffix.
async fn only_message(client: &Client, queue: &str) -> (String, Option<String>) {
    let queues = client.list_queues().queue_name_prefix(format!("{STACK}-{queue}"));
    let queues = queues.send().await.expect("queues").queue_urls.unwrap_or_default();
    let [url] = queues.as_slice() else { panic!("{queues:?}") };
    let request = client.receive_message().queue_url(url).message_attribute_names("All");
    let request = request.max_number_of_messages(10).wait_time_seconds(1);
    let mut messages = request.send().await.expect("messages").messages.unwrap_or_default();
    assert_eq!(messages.len(), 1, "{queue}: {messages:?}");
    let message = messages.remove(0);
    let receipt = message.receipt_handle.clone().unwrap_or_default();
    client.delete_message().queue_url(url).receipt_handle(receipt).send().await.expect("deleted");
    let group =
        message.message_attributes.as_ref().and_then(|it| it.get("group")?.string_value.clone());
    (message.body.unwrap_or_default(), group)
}

/// The URL of a queue of the stack, by its name in AWS.
async fn url_of(client: &Client, name: &str) -> String {
    let found = client.get_queue_url().queue_name(name).send().await.expect("a queue");
    found.queue_url.unwrap_or_default()
}

/// Receives what waits in a queue until SQS has moved it to the dead letters.
async fn wear_out(client: &Client, url: &str) {
    for _ in 0..20 {
        let request = client.receive_message().queue_url(url).visibility_timeout(0);
        let answer = request.send().await.expect("an answer");
        if answer.messages.unwrap_or_default().is_empty() {
            return;
        }
    }
    panic!("{url} never gives up");
}

#[tokio::test]
async fn dead_letters_are_listed_shown_and_sent_again() {
    let _alone = LETTERS.lock().await;
    let client = sqs().await;
    let before = listed("launch");
    assert_eq!(before["messages"], 0);
    let source = before["source"].as_str().expect("a name").to_owned();
    assert!(source.starts_with("spokeshave-prod-LaunchQueue-"), "{source}");
    // Another function's, in the same dead-letter queue.
    let other = listed("lifecycle");
    assert_eq!(other["url"], before["url"]);
    let other = url_of(&client, other["source"].as_str().expect("a name")).await;
    let elsewhere = r#"{"reason":"NodeChanged","keys":[]}"#;
    client.send_message().queue_url(&other).message_body(elsewhere).send().await.expect("sent");
    wear_out(&client, &other).await;

    let url = url_of(&client, &source).await;
    let body = r#"{"reason":"NodeClaimCreated","keys":[]}"#;
    let sent = client.send_message().queue_url(&url).message_body(body).send().await.expect("sent");
    let id = sent.message_id.expect("an id");
    wear_out(&client, &url).await;
    assert_eq!(
        (&listed("launch")["messages"], &listed("lifecycle")["messages"]),
        (&json!(1), &json!(1))
    );

    let (status, shown, _) = dlq("show", &["--queue", "launch"]);
    assert_eq!(status, 0);
    let messages = shown["messages"].as_array().expect("messages");
    assert_eq!(messages.len(), 1);
    assert_eq!(
        (&messages[0]["queue"], &messages[0]["id"], &messages[0]["reason"]),
        (&json!("launch"), &json!(id), &json!("NodeClaimCreated"))
    );
    assert_eq!(messages[0]["body"], json!({"reason": "NodeClaimCreated", "keys": []}));
    // It is still there, for everybody.
    assert_eq!(listed("launch")["messages"], 1);

    let (status, answer, _) = dlq("redrive", &["--queue", "launch", "--id", "nobody"]);
    assert_eq!((status, &answer["moved"]), (1, &json!([])));
    assert_eq!(answer["notFound"], json!(["nobody"]));
    let (_, answer, _) = dlq("redrive", &["--queue", "launch", "--dry-run"]);
    assert_eq!(answer["moved"][0]["id"], json!(id));
    assert_eq!(listed("launch")["messages"], 1);

    let (status, answer, _) = dlq("redrive", &["--queue", "launch", "--id", &id]);
    assert_eq!((status, &answer["left"]), (0, &json!([])));
    assert_eq!(answer["moved"], json!([{"id": id, "from": "launch", "to": source}]));
    assert_eq!(
        (&listed("launch")["messages"], &listed("lifecycle")["messages"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(only_message(&client, "LaunchQueue").await.0, body);
    let (status, answer, _) = dlq("redrive", &["--queue", "lifecycle"]);
    assert_eq!((status, answer["moved"].as_array().map(Vec::len)), (0, Some(1)));
    assert_eq!(only_message(&client, "LifecycleQueue").await.0, elsewhere);
}

#[tokio::test]
async fn a_dead_letter_that_nobody_knows_stays() {
    let _alone = LETTERS.lock().await;
    let client = sqs().await;
    // Sent there by hand: SQS has not moved it.
    let url = listed("tagging")["url"].as_str().expect("a URL").to_owned();
    let sent = client.send_message().queue_url(&url).message_body("{}").send().await.expect("sent");
    let id = sent.message_id.expect("an id");
    let (status, answer, _) = dlq("redrive", &["--id", &id]);
    assert_eq!((status, &answer["moved"]), (1, &json!([])));
    let problem = "it does not say which queue of this stack it came from";
    assert_eq!(answer["left"], json!([{"id": id, "from": "unknown", "problem": problem}]));
    let (_, answer, _) = dlq("list", &[]);
    assert_eq!(answer["unknown"], 1);
    // Nobody looks at it any more.
    let request = client.receive_message().queue_url(&url).max_number_of_messages(10);
    for message in request.send().await.expect("messages").messages.unwrap_or_default() {
        let receipt = message.receipt_handle.clone().unwrap_or_default();
        if message.message_id.as_ref() == Some(&id) {
            let request = client.delete_message().queue_url(&url).receipt_handle(receipt);
            request.send().await.expect("deleted");
        } else {
            let request =
                client.change_message_visibility().queue_url(&url).receipt_handle(receipt);
            request.visibility_timeout(0).send().await.expect("released");
        }
    }
}

#[tokio::test]
async fn a_solver_s_letters_keep_their_group() {
    let _alone = LETTERS.lock().await;
    let client = sqs().await;
    // The FIFO queue: the group is the queue's own.
    let url = url_of(&client, listed("provision")["source"].as_str().expect("a name")).await;
    let request = client.send_message().queue_url(&url).message_body(r#"{"reason":"PodsPending"}"#);
    request.message_group_id("pass").message_deduplication_id("1").send().await.expect("sent");
    wear_out(&client, &url).await;
    let (status, answer, _) = dlq("redrive", &["--queue", "provision"]);
    assert_eq!((status, answer["moved"].as_array().map(Vec::len)), (0, Some(1)), "{answer}");
    assert_eq!(only_message(&client, "ProvisionQueue").await.0, r#"{"reason":"PodsPending"}"#);
    // The wake queue: it is an attribute.
    let url = url_of(&client, listed("disruption-wake")["source"].as_str().expect("a name")).await;
    let group = MessageAttributeValue::builder().data_type("String").string_value("commands");
    let request = client.send_message().queue_url(&url).message_body(r#"{"reason":"Wake"}"#);
    let request = request.message_attributes("group", group.build().expect("an attribute"));
    request.send().await.expect("sent");
    wear_out(&client, &url).await;
    assert_eq!(dlq("redrive", &["--queue", "disruption-wake"]).0, 0);
    let (_, group) = only_message(&client, "DisruptionWakeQueue").await;
    assert_eq!(group.as_deref(), Some("commands"));
}

#[tokio::test]
async fn undelivered_events_go_where_they_were_to_go() {
    let _alone = LETTERS.lock().await;
    let client = sqs().await;
    let url = listed("undelivered")["url"].as_str().expect("a URL").to_owned();
    let tagging = listed("tagging")["source"].as_str().expect("a name").to_owned();
    for (target, body) in [
        (
            format!("arn:aws:sqs:us-west-2:123456789012:{tagging}"),
            r#"{"detail-type":"NodeClaimRegistered"}"#,
        ),
        (
            "arn:aws:lambda:us-west-2:123456789012:function:bridge".to_owned(),
            r#"{"reason":"Schedule"}"#,
        ),
    ] {
        let target = MessageAttributeValue::builder().data_type("String").string_value(target);
        let request = client.send_message().queue_url(&url).message_body(body);
        let request =
            request.message_attributes("TARGET_ARN", target.build().expect("an attribute"));
        request.send().await.expect("sent");
    }
    let (status, answer, _) = dlq("redrive", &["--queue", "undelivered"]);
    assert_eq!(status, 1, "{answer}");
    assert_eq!(answer["moved"][0]["to"], json!(tagging));
    assert_eq!(
        answer["left"][0]["problem"],
        "bridge is no queue of this stack; a schedule sends the like again by itself"
    );
    assert_eq!(
        only_message(&client, "TaggingQueue").await.0,
        r#"{"detail-type":"NodeClaimRegistered"}"#
    );
}

#[test]
fn what_cannot_be_used_is_refused() {
    for (arguments, message) in [
        (
            &["dlq", "list", "--stack", "nobody"] as &[_],
            "error: stack nobody in us-west-2: cloudformation DescribeStacks: ValidationError: Stack with id nobody does not exist; check the name and --region\n",
        ),
        (&["doctor", "--stack", ""], "error: --stack: an empty name; give the stack's name\n"),
        (
            &["dlq", "list", "--stack", "x", "--region", "a/b"],
            "error: --region a/b: not a region; give its code, for instance us-west-2\n",
        ),
        (
            &["doctor", "--stack", STACK, "--api-server", "nowhere"],
            "error: --api-server nowhere: not a URL; give for instance http://127.0.0.1:8001\n",
        ),
    ] {
        assert_eq!(spokeshave(arguments), (2, Value::Null, message.to_owned()), "{arguments:?}");
    }
}

/// Findings of a kind, as (subject, status, message).
fn findings<'a>(answer: &'a Value, check: &str) -> Vec<(&'a str, &'a str, &'a str)> {
    let all = answer["checks"].as_array().expect("checks").iter().filter(|it| it["check"] == check);
    let text = |it: &'a Value, name: &str| it[name].as_str().unwrap_or_default();
    all.map(|it| (text(it, "subject"), text(it, "status"), text(it, "message"))).collect()
}

#[tokio::test]
async fn doctor_finds_what_was_changed_by_hand() {
    let _alone = LETTERS.lock().await;
    let arguments = ["doctor", "--stack", STACK, "--no-cluster", "--no-probe"];
    let (status, answer, _) = spokeshave(&arguments);
    assert_eq!(
        (status, &answer["healthy"], &answer["cluster"]),
        (1, &json!(false), &json!("prod"))
    );
    for check in
        ["queue", "rule", "schedule", "function", "eventSource", "policy", "table", "bus", "stack"]
    {
        let found = findings(&answer, check);
        assert!(!found.is_empty(), "{check}");
        assert!(found.iter().all(|it| it.1 == "ok"), "{found:?}");
    }
    assert_eq!(findings(&answer, "policy").len(), 13);
    // Nobody has refreshed the catalog of this stack.
    assert_eq!(findings(&answer, "catalog")[0].1, "fault");

    let client = sqs().await;
    let url = url_of(&client, listed("nodepool")["source"].as_str().expect("a name")).await;
    let visibility = aws_sdk_sqs::types::QueueAttributeName::VisibilityTimeout;
    for (seconds, problem) in [
        ("5", "messages are hidden for 5 s, less than the 360 s that its function may need"),
        ("360", "as it should be"),
    ] {
        let change =
            client.set_queue_attributes().queue_url(&url).attributes(visibility.clone(), seconds);
        change.send().await.expect("changed");
        let (_, answer, _) = spokeshave(&arguments);
        let found = findings(&answer, "queue");
        let found = found.iter().find(|it| it.0 == "NodepoolQueue").expect("the queue");
        assert_eq!(found.2, problem);
    }
}

#[test]
fn doctor_looks_into_the_cluster() {
    let kubeconfig = fs::read_to_string(server("KUBECONFIG")).expect("a kubeconfig");
    let config: Value = serde_saphyr::from_str(&kubeconfig).expect("YAML");
    let cluster = &config["clusters"][0]["cluster"];
    let data = cluster["certificate-authority-data"].as_str().expect("data");
    let folder = std::env::temp_dir().join(format!("spokeshave-doctor-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (authority, token) = (folder.join("ca.pem"), folder.join("token"));
    fs::write(&authority, STANDARD.decode(data).expect("base64")).expect("written");
    fs::write(&token, config["users"][0]["user"]["token"].as_str().expect("a token"))
        .expect("written");
    let arguments = [
        "doctor",
        "--stack",
        STACK,
        "--no-probe",
        "--api-server",
        cluster["server"].as_str().expect("a URL"),
        "--certificate-authority",
        authority.to_str().expect("text"),
        "--token-file",
        token.to_str().expect("text"),
    ];
    let (status, answer, error) = spokeshave(&arguments);
    assert_eq!((status, error.as_str()), (1, ""));
    let [(subject, "ok", version)] = findings(&answer, "apiServer")[..] else { panic!("{answer}") };
    assert!(subject == "prod" && version.starts_with("v1."), "{version}");
    let entries = findings(&answer, "accessEntry");
    assert_eq!(entries.len(), 13);
    assert!(entries.iter().all(|it| it.1 == "ok"), "{entries:?}");
    assert_eq!(findings(&answer, "crd").len(), 5);
    // Nobody has installed the chart here.
    let groups = findings(&answer, "rbac");
    assert_eq!(groups.len(), 12);
    let launch = groups.iter().find(|it| it.0 == "spokeshave:launch").expect("launch");
    assert_eq!(
        (launch.1, launch.2),
        (
            "fault",
            "it may not list nodepools, list nodeclaims, list nodeoverlays, list ec2nodeclasses, list capacitybuffers and 28 more"
        )
    );
    // A token that nobody knows.
    fs::write(&token, "stranger").expect("written");
    let (_, answer, _) = spokeshave(&arguments);
    assert_eq!(findings(&answer, "apiServer"), [("prod", "fault", "401: Unauthorized")]);
    let _ = fs::remove_dir_all(folder);
}
