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

    /// The thing that was asked for does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(
            self.code.as_str(),
            "InvalidInstanceID.NotFound"
                | "InvalidLaunchTemplateName.NotFoundException"
                | "InvalidLaunchTemplateId.NotFound"
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
        )
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
