//! Errors of AWS calls, told apart by code.

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

    /// What a person can do about it.
    pub fn advice(&self) -> &'static str {
        if self.is_unauthorized() {
            "allow the call to the function's role, or find the policy that denies it"
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
            text.push_str(&format!(", request id {id}"));
        }
        text.push_str(if self.is_retryable() { ", retryable" } else { ", not retryable" });
        text
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
