//! A listener for webhooks that answers by a rule and keeps the received webhooks.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

/// A received webhook.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedWebhook {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ReceivedWebhook {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Returns the status and body of the answer, or `None` to leave the request unanswered.
type AnswerRule = Box<dyn FnMut(&ReceivedWebhook) -> Option<(u16, String)> + Send>;

pub(crate) struct TestWebhookServer {
    pub(crate) url: String,
    pub(crate) received: mpsc::UnboundedReceiver<ReceivedWebhook>,
    _open: watch::Sender<()>,
}

impl TestWebhookServer {
    pub(crate) async fn listen(
        rule: impl FnMut(&ReceivedWebhook) -> Option<(u16, String)> + Send + 'static,
    ) -> TestWebhookServer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (sender, letters) = mpsc::unbounded_channel();
        let (open, mut closed) = watch::channel(());
        let rule: Arc<Mutex<AnswerRule>> = Arc::new(Mutex::new(Box::new(rule)));
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    _ = closed.changed() => return,
                    accepted = listener.accept() => accepted,
                };
                let Ok((stream, _)) = accepted else { return };
                let (rule, sender) = (rule.clone(), sender.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let (rule, sender) = (rule.clone(), sender.clone());
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let letter = ReceivedWebhook {
                            headers: parts.headers,
                            body,
                        };
                        let answer = (rule.lock().unwrap())(&letter);
                        let _ = sender.send(letter);
                        let Some((status, body)) = answer else {
                            return std::future::pending().await;
                        };
                        let response = Response::builder()
                            .status(status)
                            .body(Full::new(Bytes::from(body)));
                        Ok::<_, Infallible>(response.unwrap())
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        TestWebhookServer {
            url,
            received: letters,
            _open: open,
        }
    }

    pub(crate) async fn next(&mut self) -> ReceivedWebhook {
        tokio::time::timeout(crate::http_client::TEST_TIMEOUT, self.received.recv())
            .await
            .unwrap()
            .unwrap()
    }
}
