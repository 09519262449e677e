//! Constructed answers in place of the network, for tests: the SDK is whole down to its transport.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use aws_config::{BehaviorVersion, Region, SdkConfig, retry::RetryConfig};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use aws_smithy_runtime_api::{
    client::{
        http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn},
        orchestrator::{HttpRequest, HttpResponse},
    },
    http::StatusCode,
};
use aws_smithy_types::body::SdkBody;

use crate::{ATTEMPTS, Connection};

/// Answers in the order given, and notes what was asked. A call too many is answered with 500.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
    header: Option<(&'static str, &'static str)>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Replay {
    /// Status and body of each answer.
    pub fn of<const N: usize>(answers: [(u16, &str); N]) -> Self {
        let answers = answers.map(|(status, body)| (status, body.to_owned()));
        Self { answers: Arc::new(Mutex::new(answers.into())), ..Self::default() }
    }

    /// A header of every answer that is an error.
    pub fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.header = Some((name, value));
        self
    }

    /// Method and URL of each request.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A connection to these answers, with the retries of the real one and no wait between them.
    pub fn connection(&self) -> Connection {
        let replay = self.clone();
        let retries = RetryConfig::standard()
            .with_max_attempts(ATTEMPTS)
            .with_initial_backoff(std::time::Duration::ZERO);
        let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("us-west-2"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .retry_config(retries)
            .http_client(http_client_fn(move |_, _| SharedHttpConnector::new(replay.clone())))
            .build();
        Connection { config }
    }
}

impl HttpConnector for Replay {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(format!("{} {}", request.method(), request.uri()));
        let next = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let (status, body) = next.unwrap_or((500, String::new()));
        let code = StatusCode::try_from(status).expect("a status");
        let mut answer = HttpResponse::new(code, SdkBody::from(body));
        if let (Some((name, value)), 400..) = (self.header, status) {
            answer.headers_mut().insert(name, value);
        }
        HttpConnectorFuture::ready(Ok(answer))
    }
}
