//! Errors of AWS calls, told apart by code.

use std::borrow::Cow;

/// How EC2 introduces what `sts:DecodeAuthorizationMessage` reads.
const ENCODED: &str = "Encoded authorization failure message";
/// Bytes of an error's text in a condition or event before it is cut. Source: Karpenter's lifecycle controller.
const MAX_TEXT: usize = 300;
/// What comes before a request id in [`AwsError::origin`].
const REQUEST_ID: &str = ", request id ";

/// What an AWS service answered, or that it did not.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{service}:{operation}: {code}: {message}")]
pub struct AwsError {
    /// `ec2`, `iam`, `ssm`, `eks`, `sqs`, `dynamodb`, ...
    pub service: &'static str,
    /// `CreateFleet`, ...
    pub operation: &'static str,
    /// The service's own code, for instance `UnauthorizedOperation`. `Timeout` and `Connection` are ours.
    pub code: String,
    pub message: String,
    pub request_id: Option<String>,
    /// HTTP status, 0 when there was no answer.
    pub status: u16,
}

impl AwsError {
    pub fn new(service: &'static str, operation: &'static str, code: &str, message: &str) -> Self {
        Self {
            service,
            operation,
            code: code.to_owned(),
            message: message.to_owned(),
            request_id: None,
            status: 400,
        }
    }

    /// The failed AWS call that `error` is or comes from.
    pub fn behind<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }

    /// The thing that was asked for does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(
            self.code.as_str(),
            "InvalidInstanceID.NotFound"
                | "InvalidLaunchTemplateName.NotFoundException"
                | "InvalidLaunchTemplateId.NotFound"
                | "InvalidLaunchTemplateId.NotFoundException"
                | "InvalidCapacityReservationId.NotFound"
                | "InvalidPlacementGroup.Unknown"
                | "QueueDoesNotExist"
                | "AWS.SimpleQueueService.NonExistentQueue"
                | "NoSuchEntity"
                | "NoSuchEntityException"
                | "ParameterNotFound"
                | "ResourceNotFoundException"
        )
    }

    /// It exists already.
    pub fn is_already_exists(&self) -> bool {
        matches!(
            self.code.as_str(),
            "EntityAlreadyExists"
                | "EntityAlreadyExistsException"
                | "InvalidLaunchTemplateName.AlreadyExistsException"
        )
    }

    /// A dry run that would have succeeded.
    pub fn is_dry_run_passed(&self) -> bool {
        self.code == "DryRunOperation"
    }

    /// We may not do it.
    pub fn is_unauthorized(&self) -> bool {
        matches!(
            self.code.as_str(),
            "UnauthorizedOperation" | "AccessDenied" | "AccessDeniedException" | "AuthFailure"
        )
    }

    /// Too many calls.
    pub fn is_throttled(&self) -> bool {
        matches!(
            self.code.as_str(),
            "RequestLimitExceeded"
                | "Throttling"
                | "ThrottlingException"
                | "TooManyRequestsException"
                | "EC2ThrottledException"
                | "ProvisionedThroughputExceededException"
                | "SlowDown"
                | crate::budget::USED_UP
        )
    }

    /// A quota of the account is used up.
    pub fn is_over_quota(&self) -> bool {
        let code = self.code.as_str();
        code.contains("LimitExceeded") && !self.is_throttled()
            || matches!(code, "MaxFleetCountExceeded" | "MaxSpotInstanceCountExceeded")
    }

    /// What a person can do about it.
    pub fn advice(&self) -> &'static str {
        if self.is_unauthorized() {
            if self.message.contains("permissions boundary") {
                "allow the call in the permissions boundary of the function's role"
            } else if self.message.contains("service control policy") {
                "ask the organization's administrator to allow the call"
            } else {
                "allow the call to the function's role, or find the policy that denies it"
            }
        } else if self.is_over_quota() {
            "ask AWS for a higher quota, or delete what is not needed any more"
        } else if self.code == crate::budget::USED_UP {
            "it is tried again when the environment may make more calls"
        } else if self.is_throttled() {
            "it is tried again; if it lasts, ask AWS for a higher request quota"
        } else if self.is_retryable() {
            "it is tried again; if it lasts, look at the AWS Health Dashboard"
        } else if self.is_not_found() {
            "what the call names is gone; name something that exists"
        } else {
            "correct what the message names"
        }
    }

    /// Where it came from, for the end of a message: `ec2:CreateFleet, request id r-1, retryable`.
    pub fn origin(&self) -> String {
        let mut text = format!("{}:{}", self.service, self.operation);
        if let Some(id) = &self.request_id {
            text.push_str(REQUEST_ID);
            text.push_str(id);
        }
        text.push_str(if self.is_retryable() { ", retryable" } else { ", not retryable" });
        text
    }

    /// Everything about the failed call in one line, for the message of a condition or an event:
    /// `code: what AWS said (ec2:CreateFleet, request id r-1, not retryable); what a person can do`.
    ///
    /// What AWS said is cut to 300 bytes, and an encoded authorization message, which is another one each time, is left
    /// out.
    pub fn explain(&self) -> String {
        format!("{}: {} ({}); {}", self.code, cut(self.said()), self.origin(), self.advice())
    }

    /// The message without an encoded authorization message, which says nothing to people and is longer than an event may
    /// be.
    pub fn said(&self) -> &str {
        self.message.split(ENCODED).next().unwrap_or_default().trim_end()
    }

    /// It may pass by itself: throttling, the server's fault, or no answer.
    pub fn is_retryable(&self) -> bool {
        self.is_throttled()
            || self.status >= 500
            || matches!(
                self.code.as_str(),
                "Timeout" | "Connection" | "InternalError" | "Unavailable" | "ServiceUnavailable"
            )
    }
}

/// An error and what caused it, in one line; a cause whose text is there already is not said again.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// The text, cut to 300 bytes and `...` if it is that long.
pub fn cut(text: &str) -> Cow<'_, str> {
    if text.len() < MAX_TEXT {
        return Cow::Borrowed(text);
    }
    let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    Cow::Owned(format!("{}...", text.get(..end).unwrap_or_default()))
}

/// The text without the request ids of [`AwsError::origin`]. What is equal so says the same: it is neither a new event nor
/// a reason to write a condition again.
pub fn without_request_ids(text: &str) -> Cow<'_, str> {
    let mut parts = text.split(REQUEST_ID);
    let first = parts.next().unwrap_or_default();
    if first.len() == text.len() {
        return Cow::Borrowed(text);
    }
    let mut left = first.to_owned();
    for part in parts {
        let end = part.find([',', ')']).unwrap_or(part.len());
        left.push_str(part.get(end..).unwrap_or_default());
    }
    Cow::Owned(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // B-059: EC2 has a code of its own for a template that is named by id
    fn what_is_gone_is_told_by_its_code() {
        for (code, gone) in [
            ("InvalidLaunchTemplateName.NotFoundException", true),
            ("InvalidLaunchTemplateId.NotFound", true),
            ("InvalidLaunchTemplateId.NotFoundException", true),
            ("InvalidInstanceID.NotFound", true),
            ("InvalidLaunchTemplateId.Malformed", false),
            ("InvalidLaunchTemplateName.AlreadyExistsException", false),
            ("InvalidAMIID.NotFound", false),
            ("UnauthorizedOperation", false),
            ("RequestLimitExceeded", false),
        ] {
            let error = AwsError::new("ec2", "DeleteLaunchTemplate", code, "not found");
            assert_eq!(error.is_not_found(), gone, "{code}");
        }
    }

    #[test]
    fn origin_and_advice() {
        let mut error = AwsError::new("ec2", "CreateFleet", "UnauthorizedOperation", "no");
        error.request_id = Some("r-1".into());
        assert_eq!(error.origin(), "ec2:CreateFleet, request id r-1, not retryable");
        assert!(error.advice().starts_with("allow the call"));
        let throttled = AwsError::new("ec2", "CreateFleet", "RequestLimitExceeded", "slow down");
        assert_eq!(throttled.origin(), "ec2:CreateFleet, retryable");
        assert!(throttled.advice().contains("quota"));
        let gone = AwsError::new("ec2", "CreateFleet", "InvalidInstanceID.NotFound", "gone");
        assert!(gone.advice().contains("gone"));
        let timeout = AwsError::new("ec2", "CreateFleet", "Timeout", "no answer");
        assert!(timeout.advice().contains("tried again"));
    }

    #[test]
    fn one_line_tells_everything() {
        let mut error = AwsError::new("ec2", "DescribeSubnets", "UnauthorizedOperation", "");
        error.message =
            "You are not authorized. Encoded authorization failure message: x1Y2".into();
        error.request_id = Some("r-1".into());
        let text = "UnauthorizedOperation: You are not authorized. (ec2:DescribeSubnets, request id r-1, not retryable); \
             allow the call to the function's role, or find the policy that denies it";
        assert_eq!(error.explain(), text);
        assert_eq!(without_request_ids(text), text.replace(", request id r-1", ""));
        error.message = "é".repeat(200);
        let said = format!("{}...", "é".repeat(150));
        assert!(error.explain().starts_with(&format!("UnauthorizedOperation: {said} (ec2:")));
        error.code = "RequestLimitExceeded".into();
        error.message = "Request limit exceeded.".into();
        assert_eq!(
            error.explain(),
            "RequestLimitExceeded: Request limit exceeded. (ec2:DescribeSubnets, request id r-1, retryable); \
             it is tried again; if it lasts, ask AWS for a higher request quota"
        );
    }

    #[test]
    fn a_request_id_makes_no_other_text() {
        for (text, left) in [
            ("", ""),
            ("nothing", "nothing"),
            ("a (ec2:A, request id 1-2, retryable)", "a (ec2:A, retryable)"),
            ("a (x, request id 1)", "a (x)"),
            ("a, request id 1", "a"),
            ("a (x, request id 1, b); c (y, request id 2, d)", "a (x, b); c (y, d)"),
        ] {
            assert_eq!(without_request_ids(text), left, "{text}");
        }
    }

    #[test]
    fn advice_fits_what_refused_the_call() {
        let advice = |code, message| AwsError::new("ec2", "RunInstances", code, message).advice();
        for (code, message, part) in [
            (
                "UnauthorizedOperation",
                "with an explicit deny in a permissions boundary",
                "boundary",
            ),
            ("AccessDenied", "with an explicit deny in a service control policy", "organization"),
            ("AccessDenied", "no", "allow the call to the function's role"),
            ("VcpuLimitExceeded", "no", "higher quota"),
            ("MaxSpotInstanceCountExceeded", "no", "higher quota"),
            ("LimitExceededException", "no", "higher quota"),
            ("RequestLimitExceeded", "no", "request quota"),
            ("InvalidParameterValue", "no", "correct"),
        ] {
            assert!(advice(code, message).contains(part), "{code}: {}", advice(code, message));
        }
    }

    #[test] // api 8, case 5; lifecycle 2.1, case 2
    fn long_texts_are_cut() {
        for (n_bytes, kept) in [(0, 0), (299, 299), (300, 300), (301, 300), (450, 300)] {
            let text = "x".repeat(n_bytes);
            let end = if n_bytes < 300 { "" } else { "..." };
            assert_eq!(cut(&text), format!("{}{end}", "x".repeat(kept)), "{n_bytes}");
        }
        // On a boundary between characters.
        let text = format!("{}\u{e9}\u{e9}", "x".repeat(299));
        assert_eq!(cut(&text), format!("{}...", "x".repeat(299)));
    }

    #[test] // aws-capacity 18.4: what failed is told, however often it is wrapped
    fn the_call_behind_an_error_is_found() {
        use crate::{Decision, StateError, wakes::WakeError};

        let call = AwsError {
            request_id: Some("r-1".into()),
            ..AwsError::new("dynamodb", "Query", "InternalServerError", "no")
        };
        let call = AwsError { status: 500, ..call };
        let wrapped = WakeError::State(StateError::Aws(call.clone()));
        assert_eq!(AwsError::behind(&wrapped), Some(&call));
        assert_eq!(AwsError::behind(&call), Some(&call));
        let conflict = StateError::Conflict(crate::StateKey::new("a", "b"));
        assert_eq!(AwsError::behind(&conflict), None);

        let told = Decision::new("retry", "A/b", chain(&wrapped)).caused_by(&wrapped);
        let expected = serde_json::json!({
            "error_code": "InternalServerError", "service": "dynamodb", "operation": "Query", "request_id": "r-1",
            "retryable": true, "advice": "it is tried again; if it lasts, look at the AWS Health Dashboard",
        });
        assert_eq!(serde_json::Value::from(told.fields), expected);
        let told = Decision::new("retry", "A/b", chain(&conflict)).caused_by(&conflict);
        assert!(told.fields.is_empty());
    }
}
