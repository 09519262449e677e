//! Signatures of AWS (version 4) without an SDK: the bearer token of an EKS cluster ([`cluster_token`]), and requests of
//! the command's few calls ([`sign_request`]).
//!
//! Nothing is sent here, and no clock is read.

use std::time::{Duration, SystemTime};

pub use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{
        PayloadChecksumKind, SignableBody, SignableRequest, SignatureLocation, SigningSettings,
        sign,
    },
    sign::v4,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::Request;
use jiff::Timestamp;

/// Before every token.
const PREFIX: &str = "k8s-aws-v1.";

/// Seconds for which STS accepts the presigned call, as `aws eks get-token` sets it.
const URL_LIFE: Duration = Duration::from_secs(60);

/// The end of host names in a partition.
pub fn dns_suffix(partition: &str) -> &'static str {
    match partition {
        "aws-cn" => "amazonaws.com.cn",
        "aws-iso" => "c2s.ic.gov",
        "aws-iso-b" => "sc2s.sgov.gov",
        "aws-iso-e" => "cloud.adc-e.uk",
        "aws-iso-f" => "csp.hci.ic.gov",
        "aws-eusc" => "amazonaws.eu",
        _ => "amazonaws.com",
    }
}

/// The bearer token of `cluster` for these credentials at `now`: a presigned call of STS, as `aws eks get-token` makes it.
///
/// # Errors
/// Credentials that cannot sign.
pub fn cluster_token(
    credentials: &Credentials,
    region: &str,
    partition: &str,
    cluster: &str,
    now: Timestamp,
) -> Result<String, String> {
    let host = format!("sts.{region}.{}", dns_suffix(partition));
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

/// Adds to `request` the headers by which `service` knows who sends it. Its URI must be whole, with the host.
///
/// # Errors
/// Credentials or a request that cannot be signed.
pub fn sign_request(
    request: &mut Request<Vec<u8>>,
    credentials: &Credentials,
    region: &str,
    service: &str,
    now: Timestamp,
) -> Result<(), String> {
    let identity = credentials.clone().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(service)
        .time(SystemTime::from(now))
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| error.to_string())?;
    let uri = request.uri().to_string();
    let instructions = {
        let headers = request.headers().iter().map(|(name, value)| {
            (name.as_str(), std::str::from_utf8(value.as_bytes()).unwrap_or_default())
        });
        let body = SignableBody::Bytes(request.body());
        let signable = SignableRequest::new(request.method().as_str(), uri, headers, body)
            .map_err(|error| error.to_string())?;
        sign(signable, &params.into()).map_err(|error| error.to_string())?.into_parts().0
    };
    instructions.apply_to_request_http1x(request);
    Ok(())
}

/// Percent-encoding as signatures want it: all but letters, digits and `-._~`.
pub fn percent_encoded(text: &str) -> String {
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

    fn credentials(session: Option<&str>) -> Credentials {
        Credentials::new(
            "AKIDEXAMPLE",
            "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            session.map(str::to_owned),
            None,
            "test",
        )
    }

    fn url(session: Option<&str>) -> String {
        let now = "2026-01-02T03:04:05Z".parse().expect("a time");
        let token = cluster_token(&credentials(session), "eu-west-1", "aws", "prod", now);
        let token = token.expect("signs");
        let encoded = token.strip_prefix(PREFIX).expect("the prefix");
        String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).expect("base64")).expect("text")
    }

    #[test] // Signatures made by botocore's SigV4QueryAuth from the same inputs.
    fn a_token_is_what_the_aws_cli_makes() {
        assert_eq!(url(None), include_str!("../tests/token-plain.txt").trim());
        assert_eq!(url(Some("a/b+c==")), include_str!("../tests/token-session.txt").trim());
    }

    #[test] // Source: AWS's published test suite for signature version 4, "get-vanilla".
    fn a_request_is_signed_as_aws_publishes_it() {
        let mut request =
            Request::get("https://example.amazonaws.com/").body(Vec::new()).expect("a request");
        let now = "2015-08-30T12:36:00Z".parse().expect("a time");
        sign_request(&mut request, &credentials(None), "us-east-1", "service", now).expect("signs");
        assert_eq!(request.headers()["x-amz-date"], "20150830T123600Z");
        let authorization = request.headers()["authorization"].to_str().expect("text");
        assert!(
            authorization.starts_with(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, "
            ),
            "{authorization}"
        );
    }
}
