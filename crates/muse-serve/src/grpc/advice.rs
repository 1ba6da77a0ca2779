//! Words for what the transport refuses by itself: unknown methods, and messages beyond the limit.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{self, Next};
use tonic::service::Routes;
use tonic::{Code, Status};

/// The same services, which say what to do when the transport refuses a call.
pub(super) fn with_advice(routes: Routes) -> Routes {
    let advise = middleware::from_fn(async |request: Request, next: Next| {
        let path = request.uri().path().to_owned();
        let response = next.run(request).await;
        let refused = Status::from_header_map(response.headers());
        match refused.and_then(|status| advice(&status, &path)) {
            Some(status) => status.into_http::<Body>(),
            None => response,
        }
    });
    Routes::from(routes.into_axum_router().layer(advise))
}

/// The status to send in place of one that the transport made.
fn advice(status: &Status, path: &str) -> Option<Status> {
    match status.code() {
        Code::Unimplemented if status.message().is_empty() => Some(Status::unimplemented(format!(
            "{path} is not served; the services are those of muse.v1, health and reflection, which \
             lists their methods"
        ))),
        // What every other implementation answers, and what no retry can mend.
        Code::OutOfRange if status.message().contains("message length too large") => {
            let told = status.message().trim_start_matches("Error, ");
            Some(Status::resource_exhausted(format!("{told}; send less at once")))
        }
        _ => None,
    }
}
