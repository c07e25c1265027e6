//! What a request may take: a whole body within a size and a time, and a query that can be read.
//!
//! What is too much is said in a problem document like everything else.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use regatta_api::Problem;
use serde::de::DeserializeOwned;

use crate::{Refused, problem};

/// The largest request body: a plan of a thousand tasks fits.
pub(crate) const LARGEST_BODY: usize = 8 * 1024 * 1024;
/// How long a body may take to come.
const BODY: Duration = Duration::from_secs(60);

/// Reads the body before anything is done with it.
pub(crate) async fn whole(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match read(body).await {
        Ok(body) => next.run(Request::from_parts(parts, Body::from(body))).await,
        Err(refused) => problem(&refused),
    }
}

/// A whole body.
pub(crate) async fn read(body: Body) -> Result<Bytes, Problem> {
    match tokio::time::timeout(BODY, axum::body::to_bytes(body, LARGEST_BODY)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => Err(Problem::new(
            413,
            "too_large",
            format!("the body is larger than {} MiB, or was cut", LARGEST_BODY / 1024 / 1024),
            "send less at once",
        )),
        Err(_) => Err(Problem::new(408, "too_slow", "the body did not come in time", "send it again")),
    }
}

/// A query, read as `T`.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Asked<T>, Refused> {
        Ok(Asked(asked(&parts.uri)?))
    }
}

/// An address's query.
pub(crate) fn asked<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let read = axum::extract::Query::<T>::try_from_uri(uri);
    let unread = |it: axum::extract::rejection::QueryRejection| {
        let what = format!("the query cannot be read: {}", it.body_text());
        Problem::new(400, "bad_input", what, "see GET /api/v1/openapi.json")
    };
    read.map(|it| it.0).map_err(unread)
}

/// A method that an address does not take.
pub(crate) async fn wrong_method(uri: Uri) -> Response {
    let path = uri.path();
    let reads = [
        "/api/v1/",
        "/api/v1/events",
        "/api/v1/live",
        "/api/v1/openapi.json",
        "/me",
        "/healthz",
        "/readyz",
        "/metrics",
    ];
    let takes = match path {
        _ if reads.contains(&path) => "GET",
        "/api/agents" | "/api/poll" => "GET, POST",
        _ => "POST",
    };
    let mut response =
        problem(&Problem::new(405, "wrong_method", format!("this address takes {takes}"), "use that method"));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(takes));
    response
}
