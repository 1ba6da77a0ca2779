//! The one mapping of refusals to gRPC codes and HTTP statuses.

use std::time::Duration;

use axum::http::StatusCode;
use muse_core::Error;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::service::Refusal;

/// The domain of error reasons.
const DOMAIN: &str = "muse.v1";

/// When a client may try again after the queue was full.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How each protocol tells of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) grpc: Code,
    pub(crate) http: StatusCode,
    /// `type` of OpenAI's error object.
    pub(crate) kind: &'static str,
    /// `code` of OpenAI's error object; in capitals the reason of gRPC's `ErrorInfo`.
    pub(crate) code: &'static str,
}

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";

pub(crate) fn row(refusal: &Refusal) -> Row {
    let (grpc, http, kind, code) = match refusal {
        Refusal::Field { .. } | Refusal::Core(Error::Invalid(_)) => {
            (Code::InvalidArgument, StatusCode::BAD_REQUEST, INVALID, "invalid_value")
        }
        Refusal::TooLong { .. } | Refusal::TooMuchText { .. } => {
            (Code::InvalidArgument, StatusCode::BAD_REQUEST, INVALID, "context_length_exceeded")
        }
        Refusal::UnknownModel { .. } => {
            (Code::NotFound, StatusCode::NOT_FOUND, INVALID, "model_not_found")
        }
        Refusal::NoText => {
            (Code::FailedPrecondition, StatusCode::BAD_REQUEST, INVALID, "no_vocabulary")
        }
        Refusal::Draining => {
            (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, SERVER, "draining")
        }
        Refusal::Stopped => (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, SERVER, "stopped"),
        Refusal::SlowClient => (
            Code::ResourceExhausted,
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limit_error",
            "slow_client",
        ),
        Refusal::Deadline => {
            (Code::DeadlineExceeded, StatusCode::GATEWAY_TIMEOUT, SERVER, "deadline_exceeded")
        }
        Refusal::Core(Error::Exhausted(_)) => (
            Code::ResourceExhausted,
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limit_error",
            "server_busy",
        ),
        Refusal::Core(Error::Unsupported(_)) => {
            (Code::Unimplemented, StatusCode::NOT_IMPLEMENTED, INVALID, "unsupported")
        }
        Refusal::Core(Error::Corrupt(_)) => {
            (Code::DataLoss, StatusCode::INTERNAL_SERVER_ERROR, SERVER, "corrupt_model")
        }
        Refusal::Core(_) => {
            (Code::Internal, StatusCode::INTERNAL_SERVER_ERROR, SERVER, "internal_error")
        }
    };
    Row { grpc, http, kind, code }
}

/// The gRPC status with its details. `field` respells the name of a wrong field.
pub(crate) fn grpc(refusal: &Refusal, field: impl Fn(&str) -> String) -> Status {
    let row = row(refusal);
    let mut message = refusal.to_string();
    let mut details = ErrorDetails::new();
    details.set_error_info(row.code.to_ascii_uppercase(), DOMAIN, []);
    match refusal {
        Refusal::Field { field: name, message: wrong } => {
            let name = field(name);
            message = format!("{name}: {wrong}");
            details.add_bad_request_violation(name, wrong);
        }
        Refusal::UnknownModel { asked, .. } => {
            details.set_resource_info("model", asked, "", &message);
        }
        Refusal::Core(Error::Exhausted(what)) => {
            details.set_retry_info(Some(RETRY_AFTER));
            details.add_quota_failure_violation("engine", what);
        }
        _ => {}
    }
    Status::with_error_details(row.grpc, message, details)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_refusal_has_its_code_and_its_status() {
        let check = |refusal: Refusal, grpc: Code, http: u16| {
            let row = row(&refusal);
            assert_eq!((row.grpc, row.http.as_u16()), (grpc, http), "{refusal:?}");
            assert_eq!(super::grpc(&refusal, str::to_owned).code(), grpc, "{refusal:?}");
            assert!(!refusal.to_string().is_empty());
        };
        let core = |make: fn(String) -> Error| Refusal::Core(make("why".to_owned()));
        let source = Arc::new(std::io::Error::other("bus"));
        check(core(Error::Invalid), Code::InvalidArgument, 400);
        check(core(Error::Exhausted), Code::ResourceExhausted, 429);
        check(core(Error::Unsupported), Code::Unimplemented, 501);
        check(core(Error::Corrupt), Code::DataLoss, 500);
        check(Error::Device { doing: "reading".to_owned(), source }.into(), Code::Internal, 500);
        check(Refusal::field("stop", "wrong"), Code::InvalidArgument, 400);
        check(Refusal::TooLong { prompt: 9, room: 8 }, Code::InvalidArgument, 400);
        check(Refusal::TooMuchText { bytes: 9, room: 8 }, Code::InvalidArgument, 400);
        let (asked, served) = ("a".to_owned(), "b".to_owned());
        check(Refusal::UnknownModel { asked, served }, Code::NotFound, 404);
        check(Refusal::NoText, Code::FailedPrecondition, 400);
        check(Refusal::Draining, Code::Unavailable, 503);
        check(Refusal::Stopped, Code::Unavailable, 503);
        check(Refusal::SlowClient, Code::ResourceExhausted, 429);
        check(Refusal::Deadline, Code::DeadlineExceeded, 504);
    }
}
