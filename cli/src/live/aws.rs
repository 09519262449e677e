//! Calls of AWS in its three forms: JSON with a target, XML answers to form fields, and plain REST.

use std::{fmt, thread, time::Duration};

use http::{HeaderValue, Method, Request, header};
use jiff::Timestamp;
use serde_json::Value;
use spokeshave_signing::{Credentials, cluster_token, dns_suffix, percent_encoded, sign_request};

use super::{credentials::Environment, http::Http};

/// Waits before the second and third try of a call that was throttled or that the service could not answer.
const BACKOFF: [Duration; 2] = [Duration::from_millis(400), Duration::from_millis(1600)];

/// Why a call gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// `sqs SendMessage`.
    pub call: String,
    /// AWS's code, such as `AccessDenied`; `Connection` when there was no answer at all.
    pub code: String,
    pub message: String,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.code)?;
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

impl CallError {
    /// Whether the caller may not do this.
    pub fn is_refused(&self) -> bool {
        ["AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError"]
            .contains(&self.code.as_str())
    }

    /// Whether what was asked for is not there. Every service has a word of its own for it.
    pub fn is_missing(&self) -> bool {
        let code = self.code.as_str();
        code.contains("NotFound")
            || code.contains("NonExistent")
            || ["NoSuchEntity", "QueueDoesNotExist", "404"].contains(&code)
    }
}

/// One account in one region.
#[derive(Clone)]
pub struct Aws {
    http: Http,
    credentials: Credentials,
    pub region: String,
    pub partition: &'static str,
    /// Instead of AWS's own, of all services or by service: `AWS_ENDPOINT_URL` and `AWS_ENDPOINT_URL_SQS`.
    endpoints: Environment,
}

impl fmt::Debug for Aws {
    /// Without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aws").field("region", &self.region).finish_non_exhaustive()
    }
}

impl Aws {
    pub fn new(
        credentials: Credentials,
        region: String,
        partition: &'static str,
        environment: &Environment,
    ) -> Self {
        let endpoints = environment.clone();
        Self { http: Http::new(), credentials, region, partition, endpoints }
    }

    /// The token by which the API server of `cluster` knows the caller.
    ///
    /// # Errors
    /// Credentials that cannot sign.
    pub fn cluster_token(&self, cluster: &str) -> Result<String, String> {
        let (region, now) = (&self.region, Timestamp::now());
        cluster_token(&self.credentials, region, self.partition, cluster, now)
    }

    /// Where a service is, and the region to sign for. IAM is one for all regions of a partition.
    fn endpoint(&self, service: &str, host: &str) -> (String, String) {
        let (region, suffix) = (self.region.as_str(), dns_suffix(self.partition));
        let name = format!("AWS_ENDPOINT_URL_{}", service.to_ascii_uppercase());
        let custom = self.endpoints.variable(&name);
        let custom = custom.or_else(|| self.endpoints.variable("AWS_ENDPOINT_URL"));
        let (own, signed) = match (service, self.partition) {
            ("iam", "aws") => (format!("https://iam.{suffix}"), "us-east-1"),
            ("iam", "aws-cn") => (format!("https://iam.cn-north-1.{suffix}"), "cn-north-1"),
            ("iam", "aws-us-gov") => (format!("https://iam.us-gov.{suffix}"), "us-gov-west-1"),
            _ => (format!("https://{host}.{region}.{suffix}"), region),
        };
        let url = custom.map_or(own, |it| it.trim_end_matches('/').to_owned());
        (url, signed.to_owned())
    }

    /// A call whose name and version are in a header: SQS, EventBridge, DynamoDB.
    ///
    /// # Errors
    /// AWS refuses it, or does not answer.
    pub fn json(
        &self,
        service: &str,
        target: &str,
        version: &str,
        body: &Value,
    ) -> Result<Value, CallError> {
        let operation = target.rsplit('.').next().unwrap_or(target);
        let (url, region) = self.endpoint(service, service);
        let kind = format!("application/x-amz-json-{version}");
        let headers = [("content-type", kind.as_str()), ("x-amz-target", target)];
        let call = Call { service, operation, region: &region };
        let text =
            self.call(&call, &Method::POST, &format!("{url}/"), &headers, &body.to_string())?;
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// A REST call with JSON answers: EKS, Lambda, Scheduler. `path` begins with a slash and is encoded already.
    ///
    /// # Errors
    /// As for [`Self::json`].
    pub fn get(&self, service: &str, operation: &str, path: &str) -> Result<Value, CallError> {
        let (url, region) = self.endpoint(service, service);
        let call = Call { service, operation, region: &region };
        let text = self.call(&call, &Method::GET, &format!("{url}{path}"), &[], "")?;
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// A call of form fields with XML answers: CloudFormation, CloudWatch, EC2, IAM.
    ///
    /// # Errors
    /// As for [`Self::json`].
    pub fn query(
        &self,
        service: &str,
        operation: &str,
        version: &str,
        fields: &[(String, String)],
    ) -> Result<String, CallError> {
        let (url, region) = self.endpoint(service, service);
        let mut body = format!("Action={operation}&Version={version}");
        for (name, value) in fields {
            body.push_str(&format!("&{}={}", percent_encoded(name), percent_encoded(value)));
        }
        let headers = [("content-type", "application/x-www-form-urlencoded; charset=utf-8")];
        let call = Call { service, operation, region: &region };
        self.call(&call, &Method::POST, &format!("{url}/"), &headers, &body)
    }

    fn call(
        &self,
        call: &Call<'_>,
        method: &Method,
        url: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<String, CallError> {
        let failed = |code: &str, message: String| CallError {
            call: format!("{} {}", call.service, call.operation),
            code: code.to_owned(),
            message,
        };
        let mut tries = 0;
        loop {
            let mut request = Request::builder().method(method).uri(url);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let mut request = request
                .body(body.as_bytes().to_vec())
                .map_err(|error| failed("Request", error.to_string()))?;
            let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
            if let Ok(host) = HeaderValue::from_str(&host) {
                request.headers_mut().insert(header::HOST, host);
            }
            let now = Timestamp::now();
            // CloudWatch is signed for as `monitoring`, which is its host name, too.
            sign_request(&mut request, &self.credentials, call.region, call.service, now)
                .map_err(|problem| failed("Request", problem))?;
            let outcome = match self.http.send(request) {
                Ok(answer) if answer.status().is_success() => return Ok(answer.into_body()),
                Ok(answer) => {
                    let status = answer.status().as_u16();
                    let named = answer.headers().get("x-amzn-errortype");
                    let named = named.and_then(|it| it.to_str().ok()).map(str::to_owned);
                    let (code, message) = refusal(answer.body(), named.as_deref(), status);
                    let passes = status >= 500 || status == 429 || code.contains("Throttl");
                    (failed(&code, message), passes)
                }
                Err(problem) => (failed("Connection", problem), true),
            };
            match BACKOFF.get(tries) {
                Some(wait) if outcome.1 => thread::sleep(*wait),
                _ => return Err(outcome.0),
            }
            tries += 1;
        }
    }
}

struct Call<'a> {
    service: &'a str,
    operation: &'a str,
    region: &'a str,
}

/// Code and message of an answer that is a refusal, in XML or JSON.
fn refusal(body: &str, named: Option<&str>, status: u16) -> (String, String) {
    // `com.amazonaws.sqs#QueueDoesNotExist`, `ResourceNotFoundException:http://...`.
    let short = |code: &str| {
        let code = code.rsplit('#').next().unwrap_or(code);
        code.split(':').next().unwrap_or(code).to_owned()
    };
    if let Ok(json) = serde_json::from_str::<Value>(body) {
        let text = |names: [&str; 2]| names.iter().find_map(|it| json[*it].as_str());
        let code = named.or_else(|| text(["__type", "code"])).map(short);
        let message = text(["message", "Message"]).unwrap_or_default().to_owned();
        return (code.unwrap_or_else(|| status.to_string()), message);
    }
    if let Ok(document) = roxmltree::Document::parse(body) {
        let text = |name: &str| {
            let node = document.descendants().find(|it| it.tag_name().name() == name)?;
            node.text().map(|it| it.trim().to_owned())
        };
        if let Some(code) = text("Code") {
            return (code, text("Message").unwrap_or_default());
        }
    }
    (named.map_or_else(|| status.to_string(), short), String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_by_code_in_every_form() {
        let xml = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>";
        let ec2 = "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>You may not.</Message></Error></Errors></Response>";
        let json = r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"gone"}"#;
        for (body, named, status, code, message) in [
            (xml, None, 403, "AccessDenied", "no"),
            (ec2, None, 403, "UnauthorizedOperation", "You may not."),
            (json, None, 400, "QueueDoesNotExist", "gone"),
            (
                r#"{"Message":"m"}"#,
                Some("ResourceNotFoundException:http://x"),
                404,
                "ResourceNotFoundException",
                "m",
            ),
            ("<html>", None, 502, "502", ""),
            ("", None, 404, "404", ""),
        ] {
            assert_eq!(
                refusal(body, named, status),
                (code.to_owned(), message.to_owned()),
                "{body}"
            );
        }
    }
}
