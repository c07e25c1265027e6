//! Health checks for supervisors, and metrics for monitoring.
//!
//! `/healthz` and `/readyz` need no token, so that a supervisor needs none, and they answer with a
//! single word. Host and Origin are checked there as everywhere. `/metrics` reveals much, so it
//! needs a token that may read everything.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::authenticated::Authenticated;
use crate::{ProblemResponse, ServerState, metrics};

/// The paths that need no token.
pub(crate) const PUBLIC_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// Answers that the daemon is up.
pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

/// Answers whether the daemon can store changes: the store accepted the last batch, the audit log
/// accepted its last line, and nobody has asked the daemon to end.
pub(crate) async fn ready(State(shared): State<Arc<ServerState>>) -> Response {
    let is_ready = shared.engine.is_healthy()
        && !shared.audit.write_failures().1
        && shared.shutdown.borrow().is_none();
    if is_ready {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response()
    }
}

/// Returns the metrics.
pub(crate) async fn metrics(
    State(shared): State<Arc<ServerState>>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    crate::verbs::require_read_all(
        &authenticated.principal,
        "read the metrics",
        "use a token with the scope viewer",
    )?;
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    Ok((
        [(header::CONTENT_TYPE, content_type)],
        metrics::metrics_text(&shared),
    )
        .into_response())
}
