//! Sends traces to an OpenTelemetry collector, over OTLP and HTTP. Each call, each attempt and each
//! landing (the merge of a task's work) is recorded as a span. A span has a name, a beginning and
//! an end.
//!
//! Spans wait in a list of limited length and are sent every few seconds. If the collector does not
//! answer, the waiting spans are lost, and one line is written to the log. An attempt is one trace,
//! which contains its calls, its run and the landing of its work. If a caller sends the header
//! `traceparent`, the spans of its calls belong to the trace that the header names.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::HeaderMap;
use data_encoding::HEXLOWER;
use regatta_core::event::{Event, Recorded};
use regatta_core::ids::{AttemptId, LandingId};
use reqwest::{Certificate, Client, Url, redirect};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use crate::tokens::Principal;
use crate::verbs::RequestContext;

/// Maximum number of spans (timed operations in a trace) that wait to be sent. Further spans are
/// dropped.
const MAX_WAITING_SPANS: usize = 8_192;
/// Maximum number of spans (timed operations in a trace) in one request to the collector.
const SPANS_PER_BATCH: usize = 512;
const SEND_INTERVAL: Duration = Duration::from_secs(2);
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The OpenTelemetry collector to which spans (timed operations in traces) are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceCollector {
    url: Url,
    headers: Vec<(String, String)>,
    /// A PEM file with the certificates that are trusted instead of those of the operating system.
    certificates: Option<PathBuf>,
    service: String,
}

impl TraceCollector {
    /// Reads the address of the trace collector from the standard environment variables of
    /// OpenTelemetry. Returns `None` if the variables name no collector.
    pub fn from_env(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<TraceCollector>, String> {
        let traces_endpoint = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let base_endpoint = || {
            variable("OTEL_EXPORTER_OTLP_ENDPOINT")
                .map(|base| format!("{}/v1/traces", base.trim_end_matches('/')))
        };
        let Some(text) = traces_endpoint.or_else(base_endpoint) else {
            return Ok(None);
        };
        let mut url = Url::parse(&text)
            .ok()
            .filter(|url| ["http", "https"].contains(&url.scheme()))
            .ok_or_else(|| format!("{text:?} does not begin with http:// or https://"))?;
        // Without a port, an http address gets the standard port of OTLP. An https address keeps
        // port 443, because hosted services listen there.
        if url.scheme() == "http" && url.port().is_none() {
            let _cannot_fail_for_http = url.set_port(Some(4318));
        }
        let headers = variable("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
        let headers = headers
            .split(',')
            .filter_map(|header| header.split_once('='));
        let headers = headers
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect();
        let service = variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "regatta".into());
        let certificates = variable("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE")
            .or_else(|| variable("OTEL_EXPORTER_OTLP_CERTIFICATE"));
        Ok(Some(TraceCollector {
            url,
            headers,
            certificates: certificates.map(PathBuf::from),
            service,
        }))
    }

    fn http_client(&self) -> io::Result<Client> {
        // All TLS code of the process uses the same cryptography provider. An error means that
        // other code has already installed it.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let builder = Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .timeout(SEND_TIMEOUT);
        let builder = match &self.certificates {
            Some(path) => {
                let unreadable = |why: String| {
                    let path = path.display();
                    io::Error::other(format!("could not read the certificates in {path}: {why}"))
                };
                let pem = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
                let certificates = Certificate::from_pem_bundle(&pem)
                    .map_err(|error| unreadable(innermost_cause(&error)))?;
                builder.tls_certs_only(certificates)
            }
            // Plain HTTP needs no certificates. Load none, so that traces can be sent from a
            // machine that has none.
            None if self.url.scheme() == "http" => builder.tls_certs_only([]),
            None => builder,
        };
        builder.build().map_err(|error| {
            let why = innermost_cause(&error);
            io::Error::other(format!("could not create the client for traces: {why}"))
        })
    }
}

/// A finished span: a timed operation with its trace and attributes.
struct Span {
    trace: String,
    id: String,
    parent: Option<String>,
    name: String,
    /// The kind of the span as OTLP encodes it: 1 for internal work, 2 for a call that the server
    /// answered.
    kind: u8,
    start_ns: u128,
    end_ns: u128,
    attributes: Vec<(&'static str, String)>,
    error: Option<String>,
}

/// Records spans (timed operations in traces). Holds the spans that have begun, and the finished
/// spans that wait to be sent.
pub(crate) struct Tracer {
    collector: TraceCollector,
    client: Client,
    id_seed: [u8; 32],
    waiting_spans: Mutex<WaitingSpans>,
    open_spans: Mutex<OpenSpans>,
    batch_ready: Notify,
}

#[derive(Default)]
struct WaitingSpans {
    /// Number of spans (timed operations in a trace) since the daemon started. The ids of spans are
    /// computed from this number.
    queued_count: u64,
    spans: Vec<Span>,
}

#[derive(Default)]
struct OpenSpans {
    attempts: HashMap<AttemptId, (u64, String)>,
    landings: HashMap<LandingId, (u64, AttemptId)>,
}

/// Maximum number of unfinished spans (timed operations in a trace). While this number is reached,
/// new attempts and landings are not traced.
const MAX_OPEN_SPANS: usize = 10_000;

impl Tracer {
    pub(crate) fn new(collector: TraceCollector) -> io::Result<Tracer> {
        let id_seed = crate::tokens::random_bytes()?;
        Ok(Tracer {
            client: collector.http_client()?,
            collector,
            id_seed,
            waiting_spans: Mutex::default(),
            open_spans: Mutex::default(),
            batch_ready: Notify::new(),
        })
    }

    fn derive_id(&self, label: &str, bytes: usize) -> String {
        let digest = Sha256::new()
            .chain_update(self.id_seed)
            .chain_update(label)
            .finalize();
        HEXLOWER.encode(&digest[..bytes])
    }

    fn attempt_ids(&self, id: AttemptId) -> (String, String) {
        (
            self.derive_id(&format!("trace of {id}"), 16),
            self.derive_id(&format!("span of {id}"), 8),
        )
    }

    fn queue_span(&self, mut span: Span) {
        let mut waiting = self
            .waiting_spans
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        waiting.queued_count += 1;
        if span.id.is_empty() {
            span.id = self.derive_id(&format!("span {}", waiting.queued_count), 8);
        }
        if span.trace.is_empty() {
            span.trace = self.derive_id(&format!("trace {}", waiting.queued_count), 16);
        }
        if waiting.spans.len() < MAX_WAITING_SPANS {
            waiting.spans.push(span);
        }
        if waiting.spans.len() == SPANS_PER_BATCH {
            self.batch_ready.notify_one();
        }
    }

    /// Records a span (a timed operation in a trace) for an answered call of an API verb.
    pub(crate) fn record_call(
        &self,
        verb: &str,
        context: &CallerAttributes,
        duration: Duration,
        refusal_code: Option<&str>,
    ) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let (trace, parent) = match (&context.parent, context.attempt) {
            (Some((trace, span)), _) => (trace.clone(), Some(span.clone())),
            (None, Some(id)) => {
                let (trace, span) = self.attempt_ids(id);
                (trace, Some(span))
            }
            (None, None) => (String::new(), None),
        };
        let mut attributes = vec![
            ("regatta.verb", verb.to_owned()),
            ("regatta.caller", context.caller.clone()),
        ];
        attributes.extend(
            context
                .attempt
                .map(|id| ("regatta.attempt", id.to_string())),
        );
        self.queue_span(Span {
            trace,
            id: String::new(),
            parent,
            name: verb.to_owned(),
            kind: 2,
            start_ns: now.saturating_sub(duration).as_nanos(),
            end_ns: now.as_nanos(),
            attributes,
            error: refusal_code.map(str::to_owned),
        });
    }

    /// Begins or ends the span (a timed operation in a trace) of an attempt or a landing, if the
    /// event reports such a beginning or end.
    pub(crate) fn record_event(&self, recorded: &Recorded) {
        let wall = recorded.now.unix_ms;
        let mut open = self
            .open_spans
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &recorded.event {
            Event::AttemptStarted(attempt_started) if open.attempts.len() < MAX_OPEN_SPANS => {
                let attempt = attempt_started.attempt();
                open.attempts.insert(
                    attempt.id,
                    (wall, format!("{} {}", attempt.task, attempt.agent)),
                );
            }
            Event::AttemptEnded(attempt_ended) => {
                let id = *attempt_ended.attempt();
                let Some((started_unix_ms, name)) = open.attempts.remove(&id) else {
                    return;
                };
                drop(open);
                let succeeded = attempt_ended.cause().is_success();
                let cause = format!("{:?}", attempt_ended.cause()).to_lowercase();
                let (trace, span) = self.attempt_ids(id);
                self.queue_span(Span {
                    trace,
                    id: span,
                    parent: None,
                    name: format!("attempt {name}"),
                    kind: 1,
                    start_ns: unix_ns(started_unix_ms),
                    end_ns: unix_ns(wall),
                    attributes: vec![
                        ("regatta.attempt", id.to_string()),
                        ("regatta.cause", cause.clone()),
                    ],
                    error: (!succeeded).then_some(cause),
                });
            }
            Event::LandingQueued(landing_queued) if open.landings.len() < MAX_OPEN_SPANS => {
                let landing = landing_queued.landing();
                open.landings
                    .insert(landing.id, (wall, landing.submission.attempt));
            }
            Event::LandingLanded(landing_landed) => {
                self.end_landing_span(open, *landing_landed.landing(), wall, None)
            }
            Event::LandingEnded(landing_ended) => self.end_landing_span(
                open,
                *landing_ended.landing(),
                wall,
                Some("not landed".into()),
            ),
            _ => {}
        }
    }

    fn end_landing_span(
        &self,
        mut open: std::sync::MutexGuard<'_, OpenSpans>,
        id: LandingId,
        wall: u64,
        error: Option<String>,
    ) {
        let Some((started_unix_ms, attempt)) = open.landings.remove(&id) else {
            return;
        };
        drop(open);
        let (trace, parent) = self.attempt_ids(attempt);
        self.queue_span(Span {
            trace,
            id: String::new(),
            parent: Some(parent),
            name: format!("landing {id}"),
            kind: 1,
            start_ns: unix_ns(started_unix_ms),
            end_ns: unix_ns(wall),
            attributes: vec![
                ("regatta.landing", id.to_string()),
                ("regatta.attempt", attempt.to_string()),
            ],
            error,
        });
    }

    /// Sends waiting spans (timed operations in traces) to the collector every few seconds until
    /// the daemon ends.
    pub(crate) async fn run(&self) {
        let mut was_logged = false;
        loop {
            let _sooner = tokio::time::timeout(SEND_INTERVAL, self.batch_ready.notified()).await;
            was_logged = self.send_all(was_logged).await;
        }
    }

    /// Sends all waiting spans (timed operations in traces). `was_logged` is true if the log
    /// already has a line about the present outage of the collector. Returns the value of
    /// `was_logged` for the next call.
    pub(crate) async fn send_all(&self, mut was_logged: bool) -> bool {
        loop {
            let batch: Vec<Span> = {
                let mut waiting = self
                    .waiting_spans
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                let count = waiting.spans.len().min(SPANS_PER_BATCH);
                waiting.spans.drain(..count).collect()
            };
            if batch.is_empty() {
                return was_logged;
            }
            let body = encode_spans(&self.collector.service, &batch).to_string();
            match self.post_spans(body).await {
                Ok(()) => was_logged = false,
                Err(reason) => {
                    if !was_logged {
                        tracing::warn!(
                            "could not send traces to the OpenTelemetry collector at {}; these traces are lost: \
                             {reason}",
                            self.collector.url.origin().ascii_serialization()
                        );
                    }
                    was_logged = true;
                }
            }
        }
    }

    async fn post_spans(&self, body: String) -> Result<(), String> {
        let request = self.client.post(self.collector.url.clone()).body(body);
        let headers = self.collector.headers.iter();
        let request = headers.fold(
            request.header("content-type", "application/json"),
            |request, (name, value)| request.header(name, value),
        );
        let sent = async {
            let response = request.send().await?;
            let status = response.status();
            response.bytes().await?;
            Ok(status)
        };
        match sent.await {
            Ok(status) if status.is_success() => Ok(()),
            Ok(status) => Err(format!("it answered {status}")),
            Err(error) => Err(innermost_cause(&error)),
        }
    }
}

/// Converts a time in milliseconds since 1970 to nanoseconds since 1970.
fn unix_ns(wall: u64) -> u128 {
    u128::from(wall) * 1_000_000
}

/// The facts about a caller that are recorded in the span (a timed operation in a trace) of each
/// call.
pub(crate) struct CallerAttributes {
    caller: String,
    attempt: Option<AttemptId>,
    parent: Option<(String, String)>,
}

impl CallerAttributes {
    pub(crate) fn from_context(context: &RequestContext) -> CallerAttributes {
        let attempt = match &context.principal {
            Principal::Attempt { id, .. } => Some(*id),
            Principal::Owner | Principal::Named { .. } | Principal::Firing { .. } => None,
        };
        CallerAttributes {
            caller: context.principal.label(),
            attempt,
            parent: context.trace_parent.clone(),
        }
    }
}

/// Returns the trace id and the parent span id from the W3C header `traceparent`, if the caller
/// sent a valid one.
pub(crate) fn parse_traceparent(headers: &HeaderMap) -> Option<(String, String)> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let parts: Vec<&str> = text.split('-').collect();
    let [_, trace, span, _] = parts[..] else {
        return None;
    };
    let hex = |s: &str, length: usize| {
        s.len() == length
            && s.bytes().all(|byte| byte.is_ascii_hexdigit())
            && s.bytes().any(|byte| byte != b'0')
    };
    (hex(trace, 32) && hex(span, 16))
        .then(|| (trace.to_ascii_lowercase(), span.to_ascii_lowercase()))
}

fn encode_spans(service: &str, spans: &[Span]) -> Value {
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let spans: Vec<Value> = spans
        .iter()
        .map(|span| {
 let mut encoded = json!({
                "traceId": span.trace,
                "spanId": span.id,
                "name": span.name,
                "kind": span.kind,
                "startTimeUnixNano": span.start_ns.to_string(),
                "endTimeUnixNano": span.end_ns.to_string(),
                "attributes": span.attributes.iter().map(|(key, value)| text(key, value)).collect::<Vec<_>>(),
                "status": match &span.error {
                    Some(error) => json!({ "code": 2, "message": error }),
                    None => json!({ "code": 1 }),
                },
            });
            if let Some(parent) = &span.parent {
                encoded["parentSpanId"] = json!(parent);
            }
            encoded
        })
        .collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            text("service.name", service),
            text("service.version", env!("CARGO_PKG_VERSION")),
        ] },
        "scopeSpans": [{ "scope": { "name": "regatta" }, "spans": spans }],
    }] })
}

/// Returns the innermost cause of an error as text, because the innermost cause is the most
/// specific.
fn innermost_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use http_body_util::BodyExt;
    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn collector_is_read_from_the_standard_otel_variables() {
        let read = |pairs: &[(&str, &str)]| {
            let pairs: HashMap<String, String> = pairs
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect();
            TraceCollector::from_env(|name| pairs.get(name).cloned())
        };
        assert_eq!(read(&[]), Ok(None));
        let from_base = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/")])
            .unwrap()
            .unwrap();
        assert_eq!(
            (from_base.url.as_str(), from_base.service.as_str()),
            ("http://127.0.0.1:4318/v1/traces", "regatta")
        );
        let from_traces_endpoint = read(&[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector/in"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=1, y=2"),
        ]);
        let from_traces_endpoint = from_traces_endpoint.unwrap().unwrap();
        assert_eq!(
            from_traces_endpoint.url.as_str(),
            "http://collector:4318/in"
        );
        assert_eq!(
            from_traces_endpoint.headers,
            [("x-key".into(), "1".into()), ("y".into(), "2".into())]
        );
        let far = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://far.example")]);
        assert_eq!(
            far.unwrap().unwrap().url.as_str(),
            "https://far.example/v1/traces"
        );
        for bad in ["far.example", "ftp://far.example", "unix:/x"] {
            assert!(
                read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", bad)]).is_err(),
                "{bad}"
            );
        }
    }

    /// Starts a collector on loopback. Returns its URL and its received paths and bodies.
    async fn start_https_collector(
        certificate: &Path,
        key: &Path,
    ) -> (Url, mpsc::UnboundedReceiver<(String, Value)>) {
        let acceptor = crate::tls::Tls::from_files(certificate, key)
            .unwrap()
            .acceptor;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/v1/traces", listener.local_addr().unwrap());
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let service = service_fn(|request: hyper::Request<Incoming>| async {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await?.to_bytes();
                    sender
                        .send((path, serde_json::from_slice(&body).unwrap()))
                        .unwrap();
                    Ok::<_, hyper::Error>(hyper::Response::new(String::from("{}")))
                });
                let _closed_by_client = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            }
        });
        (Url::parse(&url).unwrap(), receiver)
    }

    #[tokio::test]
    async fn spans_are_sent_over_https_only_to_a_collector_with_a_trusted_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["own", "foreign"].map(|name| {
            let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
            let certificate = dir.path().join(format!("{name}.pem"));
            let key = dir.path().join(format!("{name}.key"));
            std::fs::write(&certificate, made.cert.pem()).unwrap();
            std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
            (certificate, key)
        });
        let [(own_certificate, key), (foreign_certificate, _)] = files;
        let (url, mut received) = start_https_collector(&own_certificate, &key).await;
        for (trusted, is_sent) in [(foreign_certificate, false), (own_certificate, true)] {
            let tracer = Tracer::new(TraceCollector {
                url: url.clone(),
                headers: vec![],
                certificates: Some(trusted),
                service: "regatta".into(),
            });
            let tracer = tracer.unwrap();
            tracer.queue_span(Span {
                trace: "4bf92f3577b34da6a3ce929d0e0e4736".into(),
                id: String::new(),
                parent: None,
                name: "status".into(),
                kind: 2,
                start_ns: 1,
                end_ns: 2,
                attributes: vec![],
                error: None,
            });
            let is_outage = tracer.send_all(false).await;
            assert_eq!(is_outage, !is_sent);
        }
        let (path, body) = received.recv().await.unwrap();
        assert_eq!(path, "/v1/traces");
        let span = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(received.try_recv().is_err(), "only one request arrived");
    }

    #[test]
    fn valid_traceparent_is_kept_and_an_invalid_one_is_ignored() {
        let parse = |text: &str| {
            parse_traceparent(
                &[("traceparent".parse().unwrap(), text.parse().unwrap())]
                    .into_iter()
                    .collect(),
            )
        };
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        assert_eq!(
            parse(&format!("00-{trace}-{span}-01")),
            Some((trace.into(), span.into()))
        );
        for bad in [
            "",
            "00-1-2-01",
            &format!("00-{}-{span}-01", "0".repeat(32)),
            &format!("00-{trace}-{span}"),
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
