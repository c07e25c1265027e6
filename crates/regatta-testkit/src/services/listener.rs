//! The HTTP listener of a double (an imitated service), with its connections. A test can cut the
//! connections.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Maximum size of a request body in bytes. Regatta never sends a body of this size.
const MAX_BODY_BYTES: usize = 26 << 20;

/// An HTTP request to the double (the imitated service), with its complete body.
pub(crate) struct DoubleRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The future websocket connection, if the client asks to turn the connection into a websocket.
    pub(crate) upgrade: Option<hyper::upgrade::OnUpgrade>,
}

impl DoubleRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|query| query.0 == name)
            .map(|query| query.1.as_str())
    }

    /// Returns the token of a `Bearer` header, or of a `token` header as some GitHub clients send
    /// it.
    pub(crate) fn bearer(&self) -> Option<&str> {
        let (scheme, token) = self.header("authorization")?.split_once(' ')?;
        ["bearer", "token"]
            .contains(&scheme.to_ascii_lowercase().as_str())
            .then_some(token.trim())
    }
}

/// The reply of a double (an imitated service) to a request.
pub(crate) enum DoubleReply {
    Answer(Response<Full<Bytes>>),
    /// The double closes the connection without an answer.
    Dropped,
}

type Handler =
    Arc<dyn Fn(DoubleRequest) -> Pin<Box<dyn Future<Output = DoubleReply> + Send>> + Send + Sync>;

/// A listener that can be closed and opened again on the same port.
pub(crate) struct DoubleListener {
    address: SocketAddr,
    handler: OnceLock<Handler>,
    /// The number of times that the listener was closed. All connections watch this number and end
    /// when it changes.
    closings: watch::Sender<u64>,
    accept_task: Mutex<Option<JoinHandle<()>>>,
    /// The listener that was opened first. It is kept until the double starts to accept
    /// connections, so that no other process can take the port.
    reserved: Mutex<Option<TcpListener>>,
}

impl DoubleListener {
    pub(crate) async fn new() -> DoubleListener {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("loopback has a free port");
        let address = listener.local_addr().expect("the listener is bound");
        DoubleListener {
            address,
            handler: OnceLock::new(),
            closings: watch::Sender::new(0),
            accept_task: Mutex::new(None),
            reserved: Mutex::new(Some(listener)),
        }
    }

    pub(crate) fn set_handler(&self, handler: Handler) {
        assert!(self.handler.set(handler).is_ok(), "the handler is set once");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a receiver that is notified when the listener closes, so that connections can end.
    pub(crate) fn watch_closing(&self) -> watch::Receiver<u64> {
        self.closings.subscribe()
    }

    pub(crate) async fn go_online(&self) {
        if self.accept_task().is_some() {
            return;
        }
        let first = self
            .reserved
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let listener = match first {
            Some(listener) => listener,
            None => TcpListener::bind(self.address)
                .await
                .expect("nobody else has taken the port"),
        };
        let handler = self
            .handler
            .get()
            .expect("the handler is set before the listener opens")
            .clone();
        let mut gone = self.closings.subscribe();
        gone.borrow_and_update();
        *self.accept_task() = Some(tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = gone.changed() => return,
                    accepted = listener.accept() => {
                        let Ok((stream, _)) = accepted else { return };
                        let (handler, mut gone) = (handler.clone(), gone.clone());
                        tokio::spawn(async move {
                            tokio::select! {
                                _ = gone.changed() => {}
                                () = handle_connection(stream, handler) => {}
                            }
                        });
                    }
                }
            }
        }));
    }

    pub(crate) async fn go_offline(&self) {
        self.closings.send_modify(|closing| *closing += 1);
        let accepting = self.accept_task().take();
        if let Some(accepting) = accepting {
            // Wait for the end of the task that accepts connections, because only then is the port
            // free.
            let _ended = accepting.await;
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.accept_task().is_some()
    }

    /// Closes the listener. It cannot be opened again.
    pub(crate) fn shut_down(&self) {
        self.closings.send_modify(|closing| *closing += 1);
        if let Some(accepting) = self.accept_task().take() {
            accepting.abort();
        }
    }

    fn accept_task(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.accept_task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DoubleListener {
    fn drop(&mut self) {
        self.shut_down();
    }
}

async fn handle_connection(stream: TcpStream, handler: Handler) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let handler = handler.clone();
        async move {
            match handler(read_request(request).await?).await {
                DoubleReply::Answer(response) => Ok(response),
                DoubleReply::Dropped => Err(io::Error::other("dropped on order")),
            }
        }
    });
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // Ignore the result, because it is no error if a client closes the connection early or a test
    // cuts it.
    let _ended = connection.with_upgrades().await;
}

async fn read_request(mut request: Request<Incoming>) -> io::Result<DoubleRequest> {
    let upgrading = request.headers().contains_key("upgrade");
    let upgrade = upgrading.then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let body = if upgrading {
        Bytes::new()
    } else {
        Limited::new(body, MAX_BODY_BYTES)
            .collect()
            .await
            .map_err(|error| io::Error::other(error.to_string()))?
            .to_bytes()
    };
    Ok(DoubleRequest {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().map(parse_form).unwrap_or_default(),
        headers: parts.headers,
        body,
        upgrade,
    })
}

/// Parses the fields of a submitted form or of a URL's query.
pub(crate) fn parse_form(text: &str) -> Vec<(String, String)> {
    text.split('&')
        .filter(|text| !text.is_empty())
        .map(|text| text.split_once('=').unwrap_or((text, "")))
        .map(|(name, value)| (unescape_form(name), unescape_form(value)))
        .collect()
}

fn unescape_form(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits: String = rest.by_ref().take(2).map(char::from).collect();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap_or(b'?'));
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Escapes the value of a form field, as a browser does.
pub(crate) fn escape_form(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => {
                escaped.push(char::from(byte))
            }
            b' ' => escaped.push('+'),
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_form_parses_to_the_same_fields() {
        let text = "a=b&c d+%\u{e9}\u{1f600}\"";
        assert_eq!(
            parse_form(&format!("x={}&y", escape_form(text))),
            [("x".into(), text.into()), ("y".into(), String::new())]
        );
    }
}
