//! Statuses that tonic itself makes, with a message that says what to do: unknown methods, and
//! messages over the size limit.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{self, Next};
use tonic::service::Routes;
use tonic::{Code, Status};

/// The same routes with tonic's own statuses replaced.
pub(super) fn explain_transport_statuses(routes: Routes) -> Routes {
    let explain = middleware::from_fn(async |request: Request, next: Next| {
        let path = request.uri().path().to_owned();
        let response = next.run(request).await;
        let status = Status::from_header_map(response.headers());
        match status.and_then(|status| replacement(&status, &path)) {
            Some(status) => status.into_http::<Body>(),
            None => response,
        }
    });
    Routes::from(routes.into_axum_router().layer(explain))
}

/// The status to send in place of one that tonic made.
fn replacement(status: &Status, path: &str) -> Option<Status> {
    match status.code() {
        Code::Unimplemented if status.message().is_empty() => Some(Status::unimplemented(format!(
            "{path} is not served; the services are those of muse.v1, health and reflection, which \
             lists their methods"
        ))),
        // Other implementations of gRPC use RESOURCE_EXHAUSTED here.
        Code::OutOfRange if status.message().contains("message length too large") => {
            let found = status.message().trim_start_matches("Error, ");
            Some(Status::resource_exhausted(format!("{found}; send less at once")))
        }
        _ => None,
    }
}
