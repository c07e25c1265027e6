//! Health checks for supervisors, and metrics for monitoring.
//!
//! `/healthz` and `/readyz` can be requested without an access token, so that supervisors need
//! none. They answer with a single word. The Host and Origin headers are checked as in all
//! requests. `/metrics` reveals much, so it requires an access token that may read everything.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::authenticated::Authenticated;
use crate::{ProblemResponse, ServerState, metrics};

/// The paths that can be requested without an access token.
pub(crate) const PUBLIC_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// Handles `/healthz`: answers that the daemon is running.
pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

/// Handles `/readyz`: answers whether the daemon can store changes. The daemon can do so if the
/// store accepted the last batch of changes, the audit log accepted its last line, and the daemon
/// is not stopping.
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

/// Handles `/metrics`: returns the metrics in the text format of Prometheus.
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
