//! Requests that a service sends on its own: webhooks and events.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A POST request to send.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(crate) struct Receipt {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The reason why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undelivered {
    Refused,
    Late,
}

/// Sends a request and waits for the answer, at most for `patience`.
pub(crate) async fn send(letter: Letter, patience: Duration) -> Result<Receipt, Undelivered> {
    tokio::time::timeout(patience, exchange(letter)).await.unwrap_or(Err(Undelivered::Late))
}

async fn exchange(letter: Letter) -> Result<Receipt, Undelivered> {
    let (host, path) = address(&letter.url).ok_or(Undelivered::Refused)?;
    let stream = TcpStream::connect(host).await.map_err(|_| Undelivered::Refused)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|_| Undelivered::Refused)?;
    let driving = tokio::spawn(connection);
    let mut request = Request::post(path).header("host", host);
    for (name, value) in &letter.headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(letter.body)).map_err(|_| Undelivered::Refused)?;
    let result = async {
        let response = sender.send_request(request).await.map_err(|_| Undelivered::Refused)?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|_| Undelivered::Refused)?.to_bytes();
        Ok(Receipt { status: parts.status.as_u16(), headers: parts.headers, body })
    }
    .await;
    driving.abort();
    result
}

/// Splits a URL such as `http://127.0.0.1:80/x` into host and path.
fn address(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("http://")?;
    let cut = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(cut);
    Some((host, if path.is_empty() { "/" } else { path }))
}
