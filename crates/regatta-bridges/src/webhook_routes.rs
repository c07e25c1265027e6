//! The paths of the daemon's web server at which chat services deliver webhooks:
//! `/webhooks/SERVICE` for the default agent, `/webhooks/SERVICE/AGENT` for each other agent.
//!
//! The signature of the raw body is checked before the body is parsed. The service gets the HTTP
//! status 200 only after the event is stored. If the event cannot be stored, the service gets the
//! status 503 and sends the delivery again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::intake::Intake;
use crate::service::{Inbound, ReceiveOutcome};

/// Time limit for the arrival of a delivery's body. This limit is shorter than the time for which
/// any of the services waits for an answer. The same is true of the limit for storing the
/// delivery's events.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
const STORE_TIMEOUT: Duration = Duration::from_millis(2_500);

/// The path for the webhook deliveries to one bridge (the connection of one agent to one service).
#[derive(Clone)]
pub(crate) struct DeliveryRoute {
    pub(crate) intake: Intake,
    pub(crate) inbound: Arc<dyn Inbound>,
}

pub(crate) type DeliveryRoutes = BTreeMap<String, DeliveryRoute>;

/// Returns the HTTP router for webhook deliveries. The router requires no access token, because
/// each delivery is signed.
pub(crate) fn router(routes: DeliveryRoutes) -> Router {
    Router::new()
        .fallback(receive_delivery)
        .with_state(Arc::new(routes))
}

async fn receive_delivery(
    State(routes): State<Arc<DeliveryRoutes>>,
    request: Request<Body>,
) -> Response {
    // Compare only the end of the path, because an outer router may have removed its beginning.
    let path = request.uri().path();
    let path = if path.starts_with("/webhooks/") {
        path.to_owned()
    } else {
        format!("/webhooks{path}")
    };
    let Some(route) = routes.get(&path) else {
        return (
            StatusCode::NOT_FOUND,
            "no agent receives webhooks at this path; list the paths: regatta bridge list\n",
        )
            .into_response();
    };
    if request.method() != axum::http::Method::POST {
        return (
            StatusCode::METHOD_NOT_ALLOWED,
            [(header::ALLOW, "POST")],
            "send the webhook delivery with the HTTP method POST\n",
        )
            .into_response();
    }
    let (parts, body) = request.into_parts();
    let max_bytes = route.inbound.max_request_bytes();
    let announced_bytes = parts
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced_bytes.is_some_and(|announced_bytes| announced_bytes > max_bytes) {
        return refuse(
            route,
            StatusCode::PAYLOAD_TOO_LARGE,
            "the webhook delivery is too large for this service; send a smaller delivery",
        );
    }
    let body = match tokio::time::timeout(READ_TIMEOUT, to_bytes(body, max_bytes)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            return refuse(
                route,
                StatusCode::PAYLOAD_TOO_LARGE,
                "the webhook delivery is too large for this service, or its connection broke; send a \
                 smaller delivery, or send it again",
            );
        }
        Err(_) => {
            return refuse(
                route,
                StatusCode::REQUEST_TIMEOUT,
                "the webhook delivery did not arrive completely within 2 seconds; send it again",
            );
        }
    };
    if route.intake.is_paused() {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "the bridge is paused; send the delivery again later\n",
        )
            .into_response();
    }
    let handled = async {
        match route
            .inbound
            .receive(&route.intake, &parts.headers, &body)
            .await
        {
            ReceiveOutcome::Refused { status, why } => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
                refuse(route, status, why)
            }
            ReceiveOutcome::Answer(text) => (StatusCode::OK, text).into_response(),
            ReceiveOutcome::Events(events) => {
                for event in events {
                    if let Err(why) = route.intake.accept(event).await {
                        tracing::warn!(agent = %route.intake.agent, service = %route.intake.service, "could not store a webhook delivery from {} for the agent {}; the service must \
                            send the delivery again: {why}", route.intake.service, route.intake.agent);
                        return (
                            StatusCode::SERVICE_UNAVAILABLE,
                            "the delivery could not be stored; send it again\n",
                        )
                            .into_response();
                    }
                }
                StatusCode::OK.into_response()
            }
        }
    };
    match tokio::time::timeout(STORE_TIMEOUT, handled).await {
        Ok(response) => response,
        Err(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the delivery could not be stored in time; send it again\n",
        )
            .into_response(),
    }
}

fn refuse(route: &DeliveryRoute, status: StatusCode, why: &'static str) -> Response {
    route.intake.update_health(|health| health.refused += 1);
    (status, format!("{why}\n")).into_response()
}
