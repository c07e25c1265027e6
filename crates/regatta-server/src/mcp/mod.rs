//! The Model Context Protocol: agents and people's own programs call the verbs as tools.
//!
//! It uses streamable HTTP without sessions: every request is independent, so that clients do not
//! notice a restart of the daemon. Both forms of the protocol are supported: with `initialize` (up
//! to 2025-11-25), and without (2026-07-28), where each request describes itself in its headers and
//! its `_meta`. Answers are plain JSON. The caller, and thereby the list of tools, follows from the
//! token alone.

mod elicit; // questions to the person at the client
mod resources; // resources
mod tools; // the tools of a caller
mod worker; // the tools of an attempt

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use serde_json::{Value, json};

use crate::calls::Guest;
use crate::entered::Entered;
use crate::tokens::Visitor;
use crate::{Shared, problem};

/// The supported revisions, newest first. The first one has no handshake.
const VERSIONS: [&str; 5] = [STATELESS, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// From this revision on there is no `initialize`, and each request describes itself.
const STATELESS: &str = "2026-07-28";
/// The revision that is offered to a client that supports none of ours.
const SHAKES_HANDS: &str = "2025-11-25";

const PARSE: i64 = -32700;
const INVALID: i64 = -32600;
const NO_METHOD: i64 = -32601;
const BAD_PARAMS: i64 = -32602;
const MISMATCH: i64 = -32020;
const UNSUPPORTED: i64 = -32022;
const NOT_FOUND: i64 = -32002;

/// A JSON-RPC error.
pub(crate) struct Fault {
    code: i64,
    message: String,
    data: Value,
}

impl Fault {
    fn new(code: i64, message: impl Into<String>) -> Fault {
        Fault { code, message: message.into(), data: Value::Null }
    }
}

impl From<Problem> for Fault {
    fn from(it: Problem) -> Fault {
        let code = if it.status == 404 { NOT_FOUND } else { BAD_PARAMS };
        Fault { code, message: format!("{}: {}", it.message, it.hint), data: json!(it) }
    }
}

/// Answers requests for a stream or for the end of a session, because there are neither.
pub(crate) async fn no_stream() -> Response {
    let mut response = problem(&Problem::new(
        405,
        "no_stream",
        "there are no sessions and no streams; every request gets its own answer",
        "send JSON-RPC with POST",
    ));
    response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("POST"));
    response
}

/// Handles one message.
pub(crate) async fn post(State(shared): State<Arc<Shared>>, entered: Entered, body: axum::body::Bytes) -> Response {
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return failed(&Value::Null, Fault::new(PARSE, "the body is not JSON"), StatusCode::BAD_REQUEST);
    };
    let (Some(method), true) = (message["method"].as_str(), message["jsonrpc"] == "2.0") else {
        // An answer to a request. The server sends no requests, so the answer is accepted and
        // ignored.
        if message["jsonrpc"] == "2.0" && (message.get("result").is_some() || message.get("error").is_some()) {
            return StatusCode::ACCEPTED.into_response();
        }
        return failed(
            &Value::Null,
            Fault::new(INVALID, "the body is not a JSON-RPC 2.0 request"),
            StatusCode::BAD_REQUEST,
        );
    };
    let id = match message.get("id") {
        None => return StatusCode::ACCEPTED.into_response(),
        Some(id @ (Value::String(_) | Value::Number(_))) => id.clone(),
        Some(_) => {
            let fault = Fault::new(INVALID, "an id must be a string or a number");
            return failed(&Value::Null, fault, StatusCode::BAD_REQUEST);
        }
    };
    let params = &message["params"];
    let version = match revision(method, params, &entered.headers) {
        Ok(version) => version,
        Err(fault) => return failed(&id, fault, StatusCode::BAD_REQUEST),
    };
    let guest = match entered.guest() {
        Ok(guest) => guest,
        Err(refused) => return problem(&refused),
    };
    // A question goes to the person at the client, if there is one and the revision allows it.
    let elicited = match (method, version.as_deref()) {
        ("tools/call", Some(STATELESS)) => elicit::call(&shared, &guest, params).await.transpose(),
        _ => None,
    };
    let answered = match elicited {
        Some(answered) => answered,
        None => answer(&shared, guest, method, params).await,
    };
    match answered {
        Ok(mut result) => {
            if version.as_deref() == Some(STATELESS) && result.get("resultType").is_none() {
                result["resultType"] = json!("complete");
            }
            respond(StatusCode::OK, &json!({ "jsonrpc": "2.0", "id": id, "result": result }))
        }
        Err(fault) => failed(&id, fault, StatusCode::OK),
    }
}

/// Returns the revision of a request, if it has one. The header and the body must agree.
fn revision(method: &str, params: &Value, headers: &HeaderMap) -> Result<Option<String>, Fault> {
    let header = |name: &str| headers.get(name).and_then(|it| it.to_str().ok()).map(str::to_owned);
    let said = header("mcp-protocol-version");
    let meta = params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str().map(str::to_owned);
    let unsupported = |version: &str| Fault {
        code: UNSUPPORTED,
        message: format!("the protocol revision {version} is not supported"),
        data: json!({ "supported": VERSIONS, "requested": version }),
    };
    if method == "initialize" {
        return Ok(None); // initialize negotiates the revision
    }
    for version in said.iter().chain(&meta) {
        if !VERSIONS.contains(&version.as_str()) {
            return Err(unsupported(version));
        }
    }
    if let (Some(said), Some(meta)) = (&said, &meta)
        && said != meta
    {
        let text = format!("the header has revision {said}, and the request {meta}");
        return Err(Fault::new(MISMATCH, text));
    }
    if said.as_deref() == Some(STATELESS) {
        let named = match method {
            "tools/call" => params["name"].as_str(),
            "resources/read" => params["uri"].as_str(),
            _ => None,
        };
        if header("mcp-method").as_deref() != Some(method) {
            return Err(Fault::new(MISMATCH, "the Mcp-Method header does not name the request's method"));
        }
        if named.is_some() && header("mcp-name").as_deref() != named {
            return Err(Fault::new(MISMATCH, "the Mcp-Name header does not name the request's target"));
        }
    }
    Ok(meta.or(said))
}

async fn answer(shared: &Arc<Shared>, guest: Guest, method: &str, params: &Value) -> Result<Value, Fault> {
    match method {
        "initialize" => {
            let asked = params["protocolVersion"].as_str().unwrap_or_default();
            let shakes = VERSIONS[1..].contains(&asked);
            let mut result = introduction(&guest.visitor);
            result["protocolVersion"] = json!(if shakes { asked } else { SHAKES_HANDS });
            result["serverInfo"] = server_info();
            Ok(result)
        }
        "server/discover" => {
            let mut result = introduction(&guest.visitor);
            result["supportedVersions"] = json!(VERSIONS);
            result["ttlMs"] = json!(0);
            result["cacheScope"] = json!("private");
            result["_meta"] = json!({ "io.modelcontextprotocol/serverInfo": server_info() });
            Ok(result)
        }
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({ "tools": tools::list(&guest.visitor), "ttlMs": 0, "cacheScope": "private" })),
        "tools/call" => {
            let Some(name) = params["name"].as_str() else {
                return Err(Fault::new(BAD_PARAMS, "a call must name its tool"));
            };
            tools::call(shared, guest, name, params.get("arguments")).await
        }
        "resources/list" => Ok(json!({ "resources": resources::list(&guest.visitor, &shared.engine.board()) })),
        "resources/templates/list" => Ok(json!({ "resourceTemplates": resources::templates() })),
        "resources/read" => {
            let uri = params["uri"].as_str().unwrap_or_default();
            resources::read(shared, guest, uri).await
        }
        _ => Err(Fault::new(NO_METHOD, format!("there is no method {}", method.chars().take(60).collect::<String>()))),
    }
}

fn server_info() -> Value {
    json!({ "name": "regatta", "title": "Regatta", "version": env!("CARGO_PKG_VERSION") })
}

fn introduction(visitor: &Visitor) -> Value {
    json!({
        "capabilities": { "tools": { "listChanged": false }, "resources": {} },
        "instructions": tools::instructions(visitor),
    })
}

fn respond(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn failed(id: &Value, fault: Fault, status: StatusCode) -> Response {
    let mut error = json!({ "code": fault.code, "message": fault.message });
    if !fault.data.is_null() {
        error["data"] = fault.data;
    }
    respond(status, &json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |it: &(&'static str, &'static str)| {
            (header::HeaderName::from_static(it.0), header::HeaderValue::from_static(it.1))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn request_whose_headers_contradict_its_body_is_refused() {
        let meta = |version: &str| json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": version } });
        let code = |method: &str, params: &Value, given: &[(&'static str, &'static str)]| {
            revision(method, params, &headers(given)).map_err(|it| it.code)
        };
        let new = ("mcp-protocol-version", STATELESS);
        assert_eq!(code("ping", &json!({}), &[]), Ok(None));
        assert_eq!(code("ping", &meta(STATELESS), &[new, ("mcp-method", "ping")]), Ok(Some(STATELESS.into())));
        assert_eq!(code("ping", &meta("2025-11-25"), &[new, ("mcp-method", "ping")]), Err(MISMATCH));
        assert_eq!(code("ping", &meta(STATELESS), &[new]), Err(MISMATCH));
        assert_eq!(code("ping", &json!({}), &[("mcp-protocol-version", "1999-01-01")]), Err(UNSUPPORTED));
        let call = json!({ "name": "my_task" });
        let heads = [new, ("mcp-method", "tools/call"), ("mcp-name", "finish")];
        assert_eq!(code("tools/call", &call, &heads), Err(MISMATCH));
        assert_eq!(code("tools/call", &call, &[("mcp-protocol-version", "2025-06-18")]), Ok(Some("2025-06-18".into())));
    }
}
