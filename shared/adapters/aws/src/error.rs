//! SDK errors as [`AwsError`].

use aws_smithy_runtime_api::{
    client::{orchestrator::HttpResponse, result::SdkError},
    http::StatusCode,
};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use spokeshave_ports::{AwsError, chain};

/// A service and one of its operations, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call(pub &'static str, pub &'static str);

impl Call {
    /// An error of our own about this call, such as an answer that lacks what it must have.
    pub fn error(self, code: &str, message: &str) -> AwsError {
        AwsError { status: 0, ..AwsError::new(self.0, self.1, code, message) }
    }

    /// The SDK's error of this call.
    #[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
    pub fn failed<E>(self, error: SdkError<E, HttpResponse>) -> AwsError
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        aws_error(self, &error)
    }
}

/// Keeps code, message, status and request id. Without an answer the code is `Timeout` or `Connection`; an answer that
/// could not be read is `Response`, a request that could not be built `Request`.
pub fn aws_error<E>(call: Call, error: &SdkError<E, HttpResponse>) -> AwsError
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let raw = error.raw_response();
    let status = raw.map(HttpResponse::status).map_or(0, StatusCode::as_u16);
    let header = |name| raw.and_then(|it| it.headers().get(name)).map(str::to_owned);
    let mut request_id = header("x-amzn-requestid").or_else(|| header("x-amz-request-id"));
    let (code, message) = match error {
        SdkError::ServiceError(context) => {
            let meta = context.err().meta();
            request_id = meta.extra("aws_request_id").map(str::to_owned).or(request_id);
            let code = meta.code().unwrap_or("Unknown").to_owned();
            (code, meta.message().unwrap_or_default().to_owned())
        }
        SdkError::TimeoutError(_) => ("Timeout".to_owned(), chain(error)),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => {
            ("Timeout".to_owned(), chain(error))
        }
        SdkError::DispatchFailure(_) => ("Connection".to_owned(), chain(error)),
        SdkError::ResponseError(_) => ("Response".to_owned(), chain(error)),
        _ => ("Request".to_owned(), chain(error)),
    };
    AwsError { service: call.0, operation: call.1, code, message, request_id, status }
}
