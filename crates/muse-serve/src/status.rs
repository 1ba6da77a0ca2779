//! The one mapping of errors to gRPC codes and HTTP statuses.

use std::time::Duration;

use axum::http::StatusCode;
use muse_core::Error;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::service::ServiceError;

/// The domain of error reasons.
const DOMAIN: &str = "muse.v1";

/// When a client may try again after it was refused for want of capacity.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How each protocol reports an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatusCodes {
    pub(crate) grpc: Code,
    pub(crate) http: StatusCode,
    /// A short name for programs; in capitals the reason of gRPC's `ErrorInfo`.
    pub(crate) reason: &'static str,
}

pub(crate) fn codes(error: &ServiceError) -> StatusCodes {
    let (grpc, http, reason) = match error {
        ServiceError::InvalidField { .. } | ServiceError::Core(Error::Invalid(_)) => {
            (Code::InvalidArgument, StatusCode::BAD_REQUEST, "invalid_value")
        }
        ServiceError::PromptTooLong { .. } | ServiceError::TextTooLong { .. } => {
            (Code::InvalidArgument, StatusCode::BAD_REQUEST, "context_length_exceeded")
        }
        ServiceError::UnknownModel { .. } => {
            (Code::NotFound, StatusCode::NOT_FOUND, "model_not_found")
        }
        ServiceError::NoTokenizer => {
            (Code::FailedPrecondition, StatusCode::BAD_REQUEST, "no_vocabulary")
        }
        ServiceError::Draining => (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, "draining"),
        ServiceError::Stopped => (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, "stopped"),
        ServiceError::SlowClient => {
            (Code::ResourceExhausted, StatusCode::TOO_MANY_REQUESTS, "slow_client")
        }
        ServiceError::DeadlineExceeded => {
            (Code::DeadlineExceeded, StatusCode::GATEWAY_TIMEOUT, "deadline_exceeded")
        }
        ServiceError::Core(Error::Exhausted(_)) => {
            (Code::ResourceExhausted, StatusCode::TOO_MANY_REQUESTS, "server_busy")
        }
        ServiceError::Core(Error::Unsupported(_)) => {
            (Code::Unimplemented, StatusCode::NOT_IMPLEMENTED, "unsupported")
        }
        ServiceError::Core(Error::Corrupt(_)) => {
            (Code::DataLoss, StatusCode::INTERNAL_SERVER_ERROR, "corrupt_model")
        }
        ServiceError::Core(_) => {
            (Code::Internal, StatusCode::INTERNAL_SERVER_ERROR, "internal_error")
        }
    };
    StatusCodes { grpc, http, reason }
}

/// The gRPC status of an error with its details. `field` turns the name of a wrong field into its
/// path in the request.
pub(crate) fn to_grpc(
    error: &ServiceError,
    request_id: Option<&str>,
    field: impl Fn(&str) -> String,
) -> Status {
    let codes = codes(error);
    let mut message = error.to_string();
    let mut details = ErrorDetails::new();
    details.set_error_info(codes.reason.to_ascii_uppercase(), DOMAIN, []);
    if let Some(id) = request_id {
        details.set_request_info(id, "");
    }
    match error {
        ServiceError::InvalidField { field: name, message: wrong } => {
            let name = field(name);
            message = format!("{name}: {wrong}");
            details.add_bad_request_violation(name, wrong);
        }
        ServiceError::UnknownModel { requested, .. } => {
            details.set_resource_info("model", requested, "", &message);
        }
        ServiceError::Core(Error::Exhausted(what)) => {
            details.set_retry_info(Some(RETRY_AFTER));
            details.add_quota_failure_violation("server", what);
        }
        _ => {}
    }
    Status::with_error_details(codes.grpc, message, details)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_error_has_its_code_and_its_status() {
        let check = |error: ServiceError, grpc: Code, http: u16| {
            let codes = codes(&error);
            assert_eq!((codes.grpc, codes.http.as_u16()), (grpc, http), "{error:?}");
            assert_eq!(to_grpc(&error, None, str::to_owned).code(), grpc, "{error:?}");
            assert!(!error.to_string().is_empty());
        };
        let core = |make: fn(String) -> Error| ServiceError::Core(make("why".to_owned()));
        let source = Arc::new(std::io::Error::other("bus"));
        check(core(Error::Invalid), Code::InvalidArgument, 400);
        check(core(Error::Exhausted), Code::ResourceExhausted, 429);
        check(core(Error::Unsupported), Code::Unimplemented, 501);
        check(core(Error::Corrupt), Code::DataLoss, 500);
        check(Error::Device { doing: "reading".to_owned(), source }.into(), Code::Internal, 500);
        check(ServiceError::invalid_field("stop", "wrong"), Code::InvalidArgument, 400);
        check(
            ServiceError::PromptTooLong { prompt: 9, max_positions: 8 },
            Code::InvalidArgument,
            400,
        );
        check(ServiceError::TextTooLong { bytes: 9, max_positions: 8 }, Code::InvalidArgument, 400);
        let (requested, served) = ("a".to_owned(), "b".to_owned());
        check(ServiceError::UnknownModel { requested, served }, Code::NotFound, 404);
        check(ServiceError::NoTokenizer, Code::FailedPrecondition, 400);
        check(ServiceError::Draining, Code::Unavailable, 503);
        check(ServiceError::Stopped, Code::Unavailable, 503);
        check(ServiceError::SlowClient, Code::ResourceExhausted, 429);
        check(ServiceError::DeadlineExceeded, Code::DeadlineExceeded, 504);
    }
}
