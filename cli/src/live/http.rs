//! One blocking HTTP client, with the one TLS provider of this project.

use std::{sync::Arc, time::Duration};

use ::http::{Request, Response};
use ureq::{
    Agent,
    tls::{Certificate, RootCerts, TlsConfig},
};

/// How long one answer may take, connecting included. DescribeStacks and a page of objects take well under a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most that is read of an answer. A list of every EC2NodeClass is far below.
const LARGEST: u64 = 64 << 20;

/// A client.
#[derive(Clone, Debug)]
pub struct Http(Agent);

impl Http {
    /// Trusts what the system trusts.
    pub fn new() -> Self {
        Self::with(RootCerts::PlatformVerifier)
    }

    /// Trusts these certificates (PEM) and no others.
    ///
    /// # Errors
    /// A text without a certificate.
    pub fn trusting(pem: &str) -> Result<Self, String> {
        let mut certificates = Vec::new();
        for item in ureq::tls::parse_pem(pem.as_bytes()) {
            if let ureq::tls::PemItem::Certificate(it) = item.map_err(|it| it.to_string())? {
                certificates.push(it);
            }
        }
        let certificates: Vec<Certificate<'static>> = certificates;
        if certificates.is_empty() {
            return Err("no certificate in PEM form".to_owned());
        }
        Ok(Self::with(RootCerts::new_with_certs(&certificates)))
    }

    fn with(roots: RootCerts) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(roots)
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(PATIENCE))
            // Answers that say no are read by the caller.
            .http_status_as_error(false)
            .max_redirects(0)
            .build();
        Self(config.into())
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// No connection, no answer in time, or one that breaks off.
    pub fn send(&self, request: Request<Vec<u8>>) -> Result<Response<String>, String> {
        let (parts, body) = request.into_parts();
        let answer =
            if body.is_empty() && matches!(parts.method.as_str(), "GET" | "HEAD" | "DELETE") {
                self.0.run(Request::from_parts(parts, ()))
            } else {
                self.0.run(Request::from_parts(parts, body))
            };
        let (parts, mut body) = answer.map_err(|it| it.to_string())?.into_parts();
        let bytes = body.with_config().limit(LARGEST).read_to_vec().map_err(|it| it.to_string())?;
        Ok(Response::from_parts(parts, String::from_utf8_lossy(&bytes).into_owned()))
    }
}

impl Default for Http {
    fn default() -> Self {
        Self::new()
    }
}
