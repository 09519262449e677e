//! Reaching an API server: by end point and bearer tokens (EKS), or by kubeconfig or the pod's own account.

use std::{
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderValue, Request, StatusCode, header};
use jiff::Timestamp;
use kube::{Client, Config};
use tokio::sync::OnceCell;

/// How long connecting may take. A Lambda in the wrong subnet must say so before its time is up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// How long one answer may take. A page of 500 pods takes well under a second.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Waits before the second and third try of a request that the API server did not begin to serve.
const BACKOFF: [Duration; 2] = [Duration::from_millis(250), Duration::from_millis(750)];

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("the end point {0:?} is not a URL")]
    Endpoint(String),
    #[error("the certificate authority is not a base64 text of PEM certificates")]
    CertificateAuthority,
    #[error("no way to reach a cluster was found")]
    Infer(#[source] Box<kube::config::InferConfigError>),
    #[error("making the client")]
    Client(#[source] Box<kube::Error>),
}

/// A bearer token, and until when to use it.
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer {
    pub token: String,
    pub renew_at: Timestamp,
}

impl std::fmt::Debug for Bearer {
    /// Without the token itself: it is a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bearer").field("renew_at", &self.renew_at).finish_non_exhaustive()
    }
}

/// How a cluster is found and logged in to. Asked when it is first needed, so that making a client sends nothing.
pub trait Login: Send + Sync + 'static {
    /// Where the API server is.
    fn endpoint(&self) -> impl Future<Output = Result<Endpoint, String>> + Send;

    /// A fresh token; `None` when the client logs in by other means.
    fn token(&self, now: Timestamp) -> impl Future<Output = Result<Option<Bearer>, String>> + Send;
}

/// An API server by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// `https://...`
    pub url: String,
    /// Base64 of the PEM bundle, as EKS gives it; empty trusts the system's authorities.
    pub certificate_authority: String,
}

/// The client logs in by itself: kubeconfig, certificates, a pod's account.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnLogin;

impl Login for OwnLogin {
    async fn endpoint(&self) -> Result<Endpoint, String> {
        Err("the client was to know its cluster".to_owned())
    }

    async fn token(&self, _: Timestamp) -> Result<Option<Bearer>, String> {
        Ok(None)
    }
}

/// A client that sends a bearer token with every request and renews it by the wall clock.
pub struct Connection<L = OwnLogin> {
    client: OnceCell<Client>,
    login: L,
    current: Mutex<Option<Bearer>>,
}

impl<L> std::fmt::Debug for Connection<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("bearer", &self.current).finish_non_exhaustive()
    }
}

impl<L: Login> Connection<L> {
    /// By whatever `login` says once it is asked.
    pub fn new(login: L) -> Self {
        Self { client: OnceCell::new(), login, current: Mutex::default() }
    }

    /// By `KUBECONFIG`, `~/.kube/config`, or the account of the pod that this runs in. `login` then only gives tokens.
    ///
    /// # Errors
    /// None of these is there, or the client cannot be made of it.
    pub async fn infer(login: L) -> Result<Self, ConnectionError> {
        let config = Config::infer().await.map_err(|it| ConnectionError::Infer(Box::new(it)))?;
        let client = OnceCell::new_with(Some(client(config)?));
        Ok(Self { client, login, current: Mutex::default() })
    }

    pub(crate) async fn client(&self) -> Result<&Client, kube::Error> {
        let failed = |message: String| kube::Error::Service(message.into());
        self.client
            .get_or_try_init(|| async {
                let endpoint = self.login.endpoint().await.map_err(failed)?;
                client_of(&endpoint).map_err(|it| failed(it.to_string()))
            })
            .await
    }

    /// The answer's body. A token that is not accepted is renewed once; throttling (429) and an API server that is not
    /// ready (503) are waited out twice when `patient`, since neither has begun to serve the request.
    pub(crate) async fn send(
        &self,
        request: &Request<Vec<u8>>,
        patient: bool,
    ) -> Result<String, kube::Error> {
        let mut renewed = false;
        let mut tries = 0;
        loop {
            let outcome = self.once(request).await;
            let code = match &outcome {
                Err(kube::Error::Api(status)) => status.code,
                _ => return outcome,
            };
            if code == StatusCode::UNAUTHORIZED.as_u16() && !renewed && self.forget() {
                renewed = true;
                continue;
            }
            match BACKOFF.get(tries) {
                Some(wait) if patient && matches!(code, 429 | 503) => {
                    tokio::time::sleep(*wait).await;
                    tries += 1;
                }
                _ => return outcome,
            }
        }
    }

    async fn once(&self, request: &Request<Vec<u8>>) -> Result<String, kube::Error> {
        let client = self.client().await?;
        let request = self.authorized(request).await?;
        // Boxed without its type: the client's own layers are deep, and so are the callers.
        let answer: Pin<Box<dyn Future<Output = _> + Send + '_>> =
            Box::pin(client.request_text(request));
        match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
            Ok(outcome) => outcome,
            Err(_) => Err(kube::Error::Service("no answer in time".into())),
        }
    }

    /// The request with the token in it.
    pub(crate) async fn authorized(
        &self,
        request: &Request<Vec<u8>>,
    ) -> Result<Request<Vec<u8>>, kube::Error> {
        let mut request = request.clone();
        if let Some(bearer) = self.bearer().await.map_err(|it| kube::Error::Service(it.into()))? {
            let value = HeaderValue::from_str(&format!("Bearer {}", bearer.token));
            let mut value = value.map_err(|it| kube::Error::Service(it.into()))?;
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        Ok(request)
    }

    async fn bearer(&self) -> Result<Option<Bearer>, String> {
        let now = Timestamp::now();
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(bearer) = current.filter(|it| it.renew_at > now) {
            return Ok(Some(bearer));
        }
        let fresh = self.login.token(now).await?;
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&fresh);
        Ok(fresh)
    }

    /// Drops the token; whether there was one.
    fn forget(&self) -> bool {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }
}

fn client_of(endpoint: &Endpoint) -> Result<Client, ConnectionError> {
    let url = endpoint.url.parse().map_err(|_| ConnectionError::Endpoint(endpoint.url.clone()))?;
    let mut config = Config::new(url);
    if !endpoint.certificate_authority.is_empty() {
        config.root_cert = Some(certificates(&endpoint.certificate_authority)?);
    }
    client(config)
}

fn client(mut config: Config) -> Result<Client, ConnectionError> {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // A refused eviction is 429 too, and must not be tried again here: see `send`.
    config.default_retry = false;
    Client::try_from(config).map_err(|it| ConnectionError::Client(Box::new(it)))
}

/// DER certificates of a base64 text of PEM blocks.
fn certificates(base64: &str) -> Result<Vec<Vec<u8>>, ConnectionError> {
    let broken = || ConnectionError::CertificateAuthority;
    let pem = STANDARD.decode(base64.trim()).map_err(|_| broken())?;
    let pem = String::from_utf8(pem).map_err(|_| broken())?;
    let certificates: Option<Vec<Vec<u8>>> = pem
        .split("-----BEGIN CERTIFICATE-----")
        .skip(1)
        .map(|block| {
            let body = block.split("-----END CERTIFICATE-----").next()?;
            let body: String = body.split_whitespace().collect();
            STANDARD.decode(body).ok()
        })
        .collect();
    certificates.filter(|it| !it.is_empty()).ok_or_else(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_may_hold_several_certificates() {
        let block = |body: &str| {
            format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
        };
        let bundle = STANDARD.encode(format!("{}{}", block("AQID\nBA=="), block("BQ==")));
        assert_eq!(certificates(&bundle).expect("valid"), [vec![1, 2, 3, 4], vec![5]]);
        for broken in ["", "!", &STANDARD.encode("no certificate"), &STANDARD.encode(block("%"))] {
            assert!(certificates(broken).is_err(), "{broken}");
        }
    }
}
