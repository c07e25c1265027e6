//! A plain HTTP client that knows nothing about the services.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: Value,
}

impl TestResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Sends a request. Returns `None` if the connection closes without an answer.
pub(crate) async fn send_http(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Option<TestResponse> {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let stream = TcpStream::connect(host).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .ok()?;
    let driving = tokio::spawn(connection);
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", host);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender
        .send_request(request.body(Full::new(body.into())).unwrap())
        .await
        .ok()?;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.ok()?.to_bytes();
    driving.abort();
    let body = serde_json::from_slice(&body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into()));
    Some(TestResponse {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body,
    })
}

/// Sends a request with a bearer token and a JSON body.
pub(crate) async fn call_json(
    method: &str,
    url: &str,
    token: &str,
    body: &Value,
) -> Option<TestResponse> {
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json; charset=utf-8"),
    ];
    send_http(
        method,
        url,
        &headers,
        if body.is_null() {
            String::new()
        } else {
            body.to_string()
        },
    )
    .await
}
