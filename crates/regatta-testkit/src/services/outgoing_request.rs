//! Sends the HTTP requests that an imitated service makes by itself: webhooks and events.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A POST request that a double (an imitated service) is about to send.
#[derive(Clone, Debug)]
pub(crate) struct OutgoingRequest {
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

/// The receiver's answer to a request that a double (an imitated service) sent.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The reason why the receiver of a webhook or an event gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryError {
    Refused,
    TimedOut,
}

/// Sends a webhook or an event and waits for the receiver's answer, at most for `timeout`.
pub(crate) async fn deliver_request(
    letter: OutgoingRequest,
    timeout: Duration,
) -> Result<ReceivedResponse, DeliveryError> {
    tokio::time::timeout(timeout, send_without_timeout(letter))
        .await
        .unwrap_or(Err(DeliveryError::TimedOut))
}

async fn send_without_timeout(letter: OutgoingRequest) -> Result<ReceivedResponse, DeliveryError> {
    let (host, path) = host_and_path(&letter.url).ok_or(DeliveryError::Refused)?;
    let stream = TcpStream::connect(host)
        .await
        .map_err(|_| DeliveryError::Refused)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|_| DeliveryError::Refused)?;
    let driving = tokio::spawn(connection);
    let mut request = Request::post(path).header("host", host);
    for (name, value) in &letter.headers {
        request = request.header(name, value);
    }
    let request = request
        .body(Full::new(letter.body))
        .map_err(|_| DeliveryError::Refused)?;
    let result = async {
        let response = sender
            .send_request(request)
            .await
            .map_err(|_| DeliveryError::Refused)?;
        let (parts, body) = response.into_parts();
        let body = body
            .collect()
            .await
            .map_err(|_| DeliveryError::Refused)?
            .to_bytes();
        Ok(ReceivedResponse {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }
    .await;
    driving.abort();
    result
}

/// Splits a URL such as `http://127.0.0.1:80/x` into `127.0.0.1:80` and `/x`.
fn host_and_path(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("http://")?;
    let cut = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(cut);
    Some((host, if path.is_empty() { "/" } else { path }))
}
