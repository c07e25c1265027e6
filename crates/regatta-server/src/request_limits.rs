//! Limits the size and the arrival time of request bodies, and parses the query of an address.
//!
//! A request that exceeds a limit gets an error document like every other refused request.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use regatta_api::Problem;
use serde::de::DeserializeOwned;

use crate::{ProblemResponse, problem_response};

/// Maximum size of a request body, in bytes. The body with a plan of a thousand tasks is smaller.
pub(crate) const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// Time limit for the arrival of a request's complete body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads, as middleware, the complete body of a request before the handler runs.
pub(crate) async fn buffer_body(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match read_body(body).await {
        Ok(body) => next.run(Request::from_parts(parts, Body::from(body))).await,
        Err(refused) => problem_response(&refused),
    }
}

/// Reads the complete body of a request. Returns an error if the body is too large or arrives too
/// slowly.
pub(crate) async fn read_body(body: Body) -> Result<Bytes, Problem> {
    match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => Err(Problem::new(
            413,
            "too_large",
            format!(
                "the request's body is larger than {} MiB, or its connection broke off",
                MAX_BODY_BYTES / 1024 / 1024
            ),
            "send a smaller body",
        )),
        Err(_) => Err(Problem::new(
            408,
            "too_slow",
            "the request's body did not arrive within the time limit",
            "send the request again",
        )),
    }
}

/// The query (the part after `?`) of a request's address, parsed as `T`.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &S,
    ) -> Result<QueryParams<T>, ProblemResponse> {
        Ok(QueryParams(parse_query(&parts.uri)?))
    }
}

/// Parses the query (the part after `?`) of an address as `T`.
pub(crate) fn parse_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let parsed = axum::extract::Query::<T>::try_from_uri(uri);
    let parse_problem = |rejection: axum::extract::rejection::QueryRejection| {
        let what = format!(
            "the query after the ? in the address is not valid: {}",
            rejection.body_text()
        );
        Problem::new(
            400,
            "bad_input",
            what,
            "see the parameters: GET /api/v1/openapi.json",
        )
    };
    parsed.map(|query| query.0).map_err(parse_problem)
}

/// Answers a request whose HTTP method the address does not accept.
pub(crate) async fn method_not_allowed(uri: Uri) -> Response {
    let path = uri.path();
    let get_only = [
        "/api/v1/",
        "/api/v1/events",
        "/api/v1/live",
        "/api/v1/openapi.json",
        "/me",
        "/healthz",
        "/readyz",
        "/metrics",
    ];
    let methods = match path {
        _ if get_only.contains(&path) => "GET",
        "/api/agents" | "/api/poll" => "GET, POST",
        _ => "POST",
    };
    let mut response = problem_response(&Problem::new(
        405,
        "wrong_method",
        format!("this address does not accept the request's HTTP method; it accepts {methods}"),
        "send the request with that method",
    ));
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(methods));
    response
}
