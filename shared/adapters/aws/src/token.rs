//! Logging in to an EKS cluster: a bearer token that is a presigned call of STS, as `aws eks get-token` makes it.
//!
//! Nothing is sent to make one. The API server sends the call to learn who signed it, and accepts the token for 15
//! minutes after the signature; we renew earlier, by the wall clock.

use aws_config::SdkConfig;
use aws_credential_types::provider::ProvideCredentials;
use jiff::{SignedDuration, Timestamp};
use spokeshave_model::Settings;
use spokeshave_ports::AwsError;
use spokeshave_signing::cluster_token;

use crate::{Call, Connection};

const TOKEN: Call = Call("sts", "PresignGetCallerIdentity");

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
        let value = cluster_token(&credentials, &self.region, self.partition, &self.cluster, now)
            .map_err(|problem| TOKEN.error("Request", &problem))?;
        Ok(Token { value, renew_at: now + TOKEN_LIFE })
    }
}
