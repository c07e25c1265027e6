//! How the daemon is: for whoever starts it again when it is not well, and for whoever draws curves.
//!
//! `/healthz` and `/readyz` need no token, so that a supervisor needs none, and say nothing but a word; Host and Origin
//! are checked there as everywhere. `/metrics` tells much, and needs a token that may look at everything.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::entered::Entered;
use crate::{Refused, Shared, meters};

/// The paths that need no token.
pub(crate) const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// It is up.
pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

/// It can keep what it is told: the store took the last batch, the audit log its last line, and nobody has asked the
/// daemon to end.
pub(crate) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let well = shared.engine.is_well() && !shared.audit.lost().1 && shared.down.borrow().is_none();
    if well { "ready\n".into_response() } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response() }
}

/// The figures.
pub(crate) async fn metrics(State(shared): State<Arc<Shared>>, entered: Entered) -> Result<Response, Refused> {
    crate::calls::sees_all(&entered.visitor, "read the figures", "use a token with the scope viewer")?;
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], meters::page(&shared)).into_response())
}
