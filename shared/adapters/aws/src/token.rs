//! Logging in to an EKS cluster: a bearer token that is a presigned call of STS, as `aws eks get-token` makes it.
//!
//! Nothing is sent to make one. The API server sends the call to learn who signed it, and accepts the token for 15
//! minutes after the signature; we renew earlier, by the wall clock.

use std::time::{Duration, SystemTime};

use aws_config::SdkConfig;
use aws_credential_types::{Credentials, provider::ProvideCredentials};
use aws_sigv4::{
    http_request::{
        PayloadChecksumKind, SignableBody, SignableRequest, SignatureLocation, SigningSettings,
        sign,
    },
    sign::v4,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use spokeshave_model::Settings;
use spokeshave_ports::AwsError;

use crate::{Call, Connection};

const TOKEN: Call = Call("sts", "PresignGetCallerIdentity");

/// Before every token.
const PREFIX: &str = "k8s-aws-v1.";

/// Seconds for which STS accepts the presigned call, as `aws eks get-token` sets it.
const URL_LIFE: Duration = Duration::from_secs(60);

/// How long a token is used. The API server accepts it for 15 minutes; what is left over covers clocks that differ and
/// a call that is on its way.
pub const TOKEN_LIFE: SignedDuration = SignedDuration::from_mins(12);

/// Makes tokens for one cluster.
#[derive(Clone, Debug)]
pub struct TokenSource {
    config: SdkConfig,
    cluster: String,
    region: String,
    partition: &'static str,
}

/// A token, and until when to use it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub value: String,
    pub renew_at: Timestamp,
}

impl std::fmt::Debug for Token {
    /// Without the token itself: it is a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("renew_at", &self.renew_at).finish_non_exhaustive()
    }
}

impl TokenSource {
    pub fn new(connection: &Connection, settings: &Settings) -> Self {
        Self {
            config: connection.config().clone(),
            cluster: settings.cluster_name.clone(),
            region: settings.region.clone(),
            partition: settings.partition(),
        }
    }

    /// A fresh token, signed at `now`.
    ///
    /// # Errors
    /// No credentials, or credentials that cannot sign.
    pub async fn token(&self, now: Timestamp) -> Result<Token, AwsError> {
        let provider = self
            .config
            .credentials_provider()
            .ok_or_else(|| TOKEN.error("NoCredentials", "there is no source of credentials"))?;
        let credentials = provider.provide_credentials().await;
        let credentials =
            credentials.map_err(|error| TOKEN.error("NoCredentials", &error.to_string()))?;
        let value = presigned(&credentials, &self.region, self.partition, &self.cluster, now)
            .map_err(|problem| TOKEN.error("Request", &problem))?;
        Ok(Token { value, renew_at: now + TOKEN_LIFE })
    }
}

/// The token of `cluster` for these credentials at `now`.
fn presigned(
    credentials: &Credentials,
    region: &str,
    partition: &str,
    cluster: &str,
    now: Timestamp,
) -> Result<String, String> {
    let suffix = match partition {
        "aws-cn" => "amazonaws.com.cn",
        "aws-iso" => "c2s.ic.gov",
        "aws-iso-b" => "sc2s.sgov.gov",
        "aws-iso-e" => "cloud.adc-e.uk",
        "aws-iso-f" => "csp.hci.ic.gov",
        "aws-eusc" => "amazonaws.eu",
        _ => "amazonaws.com",
    };
    let host = format!("sts.{region}.{suffix}");
    let mut url = format!("https://{host}/?Action=GetCallerIdentity&Version=2011-06-15");

    let mut settings = SigningSettings::default();
    settings.signature_location = SignatureLocation::QueryParams;
    settings.expires_in = Some(URL_LIFE);
    settings.payload_checksum_kind = PayloadChecksumKind::NoHeader;
    let identity = credentials.clone().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name("sts")
        .time(SystemTime::from(now))
        .settings(settings)
        .build()
        .map_err(|error| error.to_string())?;
    let headers = [("host", host.as_str()), ("x-k8s-aws-id", cluster)];
    let request = SignableRequest::new("GET", &url, headers.into_iter(), SignableBody::Bytes(&[]))
        .map_err(|error| error.to_string())?;
    let (instructions, _) =
        sign(request, &params.into()).map_err(|error| error.to_string())?.into_parts();
    // The signature last, as the AWS CLI writes it; the order is not part of what is signed.
    let (signature, others): (Vec<_>, Vec<_>) =
        instructions.params().iter().partition(|(name, _)| *name == "X-Amz-Signature");
    for (name, value) in others.into_iter().chain(signature) {
        url.push('&');
        url.push_str(name);
        url.push('=');
        url.push_str(&percent_encoded(value));
    }
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(url)))
}

/// Percent-encoding as signatures want it: all but letters, digits and `-._~`.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(session: Option<&str>) -> String {
        let credentials = Credentials::new(
            "AKIDEXAMPLE",
            "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            session.map(str::to_owned),
            None,
            "test",
        );
        let now = "2026-01-02T03:04:05Z".parse().expect("a time");
        let token = presigned(&credentials, "eu-west-1", "aws", "prod", now).expect("signs");
        let encoded = token.strip_prefix(PREFIX).expect("the prefix");
        String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).expect("base64")).expect("text")
    }

    #[test] // Signatures made by botocore's SigV4QueryAuth from the same inputs.
    fn a_token_is_what_the_aws_cli_makes() {
        assert_eq!(url(None), include_str!("../tests/token-plain.txt").trim());
        assert_eq!(url(Some("a/b+c==")), include_str!("../tests/token-session.txt").trim());
    }
}
