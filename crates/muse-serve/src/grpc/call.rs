//! What handlers know of the call they answer, apart from its message.

use std::sync::Arc;
use std::time::Duration;

use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

use super::convert;
use crate::service::{RequestScope, ServiceError};

/// A call. One from within the process has no scope.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) scope: Option<Arc<RequestScope>>,
    /// How long the client waits.
    pub(super) deadline: Option<Duration>,
}

impl Call {
    pub(super) fn of<T>(request: &Request<T>) -> Self {
        let scope = request.extensions().get::<Arc<RequestScope>>().cloned();
        Self { scope, deadline: deadline(request.metadata()) }
    }

    /// The id of the request; empty for one from within the process.
    pub(super) fn id(&self) -> String {
        self.scope.as_deref().map_or_else(String::new, |scope| scope.id().to_owned())
    }

    /// The status of an error of this call.
    pub(super) fn status(&self, error: impl Into<ServiceError>) -> Status {
        convert::status(error.into(), self.scope.as_deref())
    }

    /// Reserves memory for a reply until it is sent.
    pub(super) fn reserve(&self, bytes: usize) -> Result<(), Status> {
        let Some(scope) = &self.scope else { return Ok(()) };
        scope.memory.grow(bytes).map_err(|error| self.status(error))
    }
}

/// How long the client waits, from the call's metadata `grpc-timeout`; none when it is absent or
/// malformed.
fn deadline(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount.saturating_mul(3600)),
        "M" => Duration::from_secs(amount.saturating_mul(60)),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_read_in_every_unit() {
        let check = |text: &str, expected: Option<Duration>| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().expect("a value"));
            assert_eq!(deadline(&metadata), expected, "{text}");
        };
        check("2H", Some(Duration::from_secs(7200)));
        check("3M", Some(Duration::from_secs(180)));
        check("10S", Some(Duration::from_secs(10)));
        check("1500m", Some(Duration::from_millis(1500)));
        check("20u", Some(Duration::from_micros(20)));
        check("99999999n", Some(Duration::from_nanos(99_999_999)));
        for wrong in ["", "5", "S", "-1S", "5x", "1.5S"] {
            check(wrong, None);
        }
        assert_eq!(deadline(&MetadataMap::new()), None);
    }
}
