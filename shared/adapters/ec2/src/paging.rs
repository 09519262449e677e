//! What goes over the wire, with constructed answers in place of the network.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use aws_sdk_ec2::{
    Config,
    config::{
        BehaviorVersion, Credentials, Region,
        http::{HttpRequest, HttpResponse},
    },
};
use aws_smithy_runtime_api::{
    client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn},
    http::StatusCode,
};
use aws_smithy_types::body::SdkBody;
use spokeshave_model::InstanceId;
use spokeshave_ports::Ec2;

use crate::Ec2Api;

/// Answers in the order given; how many were asked for.
#[derive(Clone, Debug)]
struct Answers {
    left: Arc<Mutex<VecDeque<String>>>,
}

impl Answers {
    fn of(answers: Vec<String>) -> Self {
        Self { left: Arc::new(Mutex::new(answers.into())) }
    }

    fn left(&self) -> usize {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn ec2(&self) -> Ec2Api {
        let answers = self.clone();
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("us-west-2"))
            .credentials_provider(Credentials::new("AKIDEXAMPLE", "secret", None, None, "test"))
            .http_client(http_client_fn(move |_, _| SharedHttpConnector::new(answers.clone())));
        Ec2Api::of(config, || jiff::Timestamp::UNIX_EPOCH)
    }
}

impl HttpConnector for Answers {
    fn call(&self, _request: HttpRequest) -> HttpConnectorFuture {
        let next = self.left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let status = if next.is_some() { 200 } else { 400 };
        let code = StatusCode::try_from(status).expect("a status");
        let body = SdkBody::from(next.unwrap_or_default());
        HttpConnectorFuture::ready(Ok(HttpResponse::new(code, body)))
    }
}

fn answer(call: &str, items: &str, next: Option<&str>) -> String {
    let next = next.map(|it| format!("<nextToken>{it}</nextToken>")).unwrap_or_default();
    format!(
        "<{call}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r-1</requestId>{items}{next}\
         </{call}Response>"
    )
}

fn types(from: usize, count: usize, next: Option<&str>) -> String {
    let item = |n| format!("<item><instanceType>x{n}.large</instanceType></item>");
    let items: String = (from..from + count).map(item).collect();
    let set = format!("<instanceTypeSet>{items}</instanceTypeSet>");
    answer("DescribeInstanceTypes", &set, next)
}

#[tokio::test] // aws-capacity 2, case 1
async fn types_are_read_to_the_last_page() {
    let pages = vec![types(0, 100, Some("a")), types(100, 100, Some("b")), types(200, 37, None)];
    let answers = Answers::of(pages);
    let found = answers.ec2().describe_instance_types().await.expect("described");
    assert_eq!((found.len(), answers.left()), (237, 0));
    assert_eq!(found[236].name, "x236.large");
}

#[tokio::test] // aws-capacity 20, case 7, over the wire
async fn instances_that_do_not_end_are_ended_alone() {
    let ended = |states: &[(&str, &str)]| {
        let item = |(id, state): &(&str, &str)| {
            format!(
                "<item><instanceId>{id}</instanceId><currentState><code>32</code><name>{state}</name></currentState></item>"
            )
        };
        let items: String = states.iter().map(item).collect();
        answer("TerminateInstances", &format!("<instancesSet>{items}</instancesSet>"), None)
    };
    let first = ended(&[("i-1", "shutting-down"), ("i-2", "terminated"), ("i-3", "running")]);
    let alone = ["i-3", "i-4", "i-5"].map(|it| ended(&[(it, "shutting-down")]));
    let answers = Answers::of([first].into_iter().chain(alone).collect());
    let ids = ["i-1", "i-2", "i-3", "i-4", "i-5"].map(InstanceId::from);
    answers.ec2().terminate_instances(&ids).await.expect("ended");
    assert_eq!(answers.left(), 0);
}

#[tokio::test]
async fn a_call_beyond_the_budget_is_not_sent() {
    let answers = Answers::of((0..60).map(|_| answer("DeleteLaunchTemplate", "", None)).collect());
    let ec2 = answers.ec2();
    let mut refused = 0;
    for _ in 0..60 {
        if let Err(error) = ec2.delete_launch_template("t").await {
            assert!(error.is_throttled(), "{error}");
            refused += 1;
        }
    }
    // Fifty at once, and time stands still.
    assert_eq!((answers.left(), refused), (10, 10));
    let now = jiff::Timestamp::UNIX_EPOCH;
    assert!(ec2.budget.take("CreateFleet", now).is_ok(), "each its own");
}

#[tokio::test] // Every page is a request, and the budget counts requests.
async fn pages_come_out_of_the_budget() {
    let page = |n: usize| {
        let next = format!("page-{n}");
        types(n, 1, (n < 119).then_some(next.as_str()))
    };
    let answers = Answers::of((0..120).map(page).collect());
    let ec2 = answers.ec2();
    let found = ec2.describe_instance_types().await.expect("a call that began is ended");
    assert_eq!((found.len(), answers.left()), (120, 0));
    // A hundred are granted at once, and time stands still: the rest is a debt.
    let refused = ec2.describe_instance_types().await.expect_err("waits for its budget");
    assert!(refused.is_throttled(), "{refused}");
}
