//! The server for MCP, the Model Context Protocol. Agents and people's own programs use this
//! protocol to call Regatta's verbs (API operations) as tools.
//!
//! It uses MCP's streamable HTTP transport without sessions. Every request is independent, so
//! clients do not notice a restart of the daemon. Both forms of the protocol are supported.
//! Revisions up to 2025-11-25 begin with the handshake `initialize`. Revision 2026-07-28 has no
//! handshake, and each request describes itself in its headers and its `_meta`. Answers are plain
//! JSON. The caller's token alone determines who calls and which tools are listed.

mod attempt_tools; // the tools of an attempt
mod elicitation; // questions to the person at the client
mod resources; // tasks, missions and guides as resources
mod tools; // the tools of a caller

pub(crate) use attempt_tools::unlisted_tools;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use serde_json::{Value, json};

use crate::authenticated::Authenticated;
use crate::tokens::Principal;
use crate::verbs::RequestContext;
use crate::{ServerState, problem_response};

/// The supported revisions of MCP (the Model Context Protocol), newest first. Only the newest has
/// no handshake.
const SUPPORTED_REVISIONS: [&str; 5] = [
    FIRST_STATELESS_REVISION,
    "2025-11-25",
    "2025-06-18",
    "2025-03-26",
    "2024-11-05",
];
/// The first revision of MCP without the handshake `initialize`. Instead, each request states its
/// revision and the abilities of the client.
const FIRST_STATELESS_REVISION: &str = "2026-07-28";
/// The revision of MCP that the server offers to a client that supports none of
/// [`SUPPORTED_REVISIONS`].
const FALLBACK_REVISION: &str = "2025-11-25";

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const HEADER_MISMATCH: i64 = -32020;
const UNSUPPORTED_REVISION: i64 = -32022;
const RESOURCE_NOT_FOUND: i64 = -32002;

/// An error answer in the format of JSON-RPC.
pub(crate) struct JsonRpcFault {
    code: i64,
    message: String,
    data: Value,
}

impl JsonRpcFault {
    fn new(code: i64, message: impl Into<String>) -> JsonRpcFault {
        JsonRpcFault {
            code,
            message: message.into(),
            data: Value::Null,
        }
    }
}

impl From<Problem> for JsonRpcFault {
    fn from(problem: Problem) -> JsonRpcFault {
        let code = if problem.status == 404 {
            RESOURCE_NOT_FOUND
        } else {
            INVALID_PARAMS
        };
        JsonRpcFault {
            code,
            message: format!("{}: {}", problem.message, problem.hint),
            data: json!(problem),
        }
    }
}

/// Refuses requests for an event stream and requests to end a session, because this server has
/// neither streams nor sessions.
pub(crate) async fn no_stream() -> Response {
    let mut response = problem_response(&Problem::new(
        405,
        "no_stream",
        "this MCP server has no sessions and no event streams, so it accepts only POST",
        "send each JSON-RPC request with POST; its response has the answer",
    ));
    response
        .headers_mut()
        .insert(header::ALLOW, header::HeaderValue::from_static("POST"));
    response
}

/// Handles `POST /mcp`: one JSON-RPC message of a client.
pub(crate) async fn post(
    State(shared): State<Arc<ServerState>>,
    authenticated: Authenticated,
    body: axum::body::Bytes,
) -> Response {
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return error_response(
            &Value::Null,
            JsonRpcFault::new(PARSE_ERROR, "the body is not JSON"),
            StatusCode::BAD_REQUEST,
        );
    };
    let (Some(method), true) = (message["method"].as_str(), message["jsonrpc"] == "2.0") else {
        // The message is an answer, although the server never sends requests. Accept the answer and
        // ignore it.
        if message["jsonrpc"] == "2.0"
            && (message.get("result").is_some() || message.get("error").is_some())
        {
            return StatusCode::ACCEPTED.into_response();
        }
        return error_response(
            &Value::Null,
            JsonRpcFault::new(INVALID_REQUEST, "the body is not a JSON-RPC 2.0 request"),
            StatusCode::BAD_REQUEST,
        );
    };
    let id = match message.get("id") {
        None => return StatusCode::ACCEPTED.into_response(),
        Some(id @ (Value::String(_) | Value::Number(_))) => id.clone(),
        Some(_) => {
            let fault = JsonRpcFault::new(INVALID_REQUEST, "an id must be a string or a number");
            return error_response(&Value::Null, fault, StatusCode::BAD_REQUEST);
        }
    };
    let params = &message["params"];
    let version = match request_revision(method, params, &authenticated.headers) {
        Ok(version) => version,
        Err(fault) => return error_response(&id, fault, StatusCode::BAD_REQUEST),
    };
    let context = match authenticated.request_context() {
        Ok(context) => context,
        Err(problem) => return problem_response(&problem),
    };
    // If the client and the protocol's revision support that, a call of the tool `ask` shows the
    // agent's question to the person at the client.
    let elicitation = match (method, version.as_deref()) {
        ("tools/call", Some(FIRST_STATELESS_REVISION)) => {
            elicitation::handle_ask_call(&shared, &context, params)
                .await
                .transpose()
        }
        _ => None,
    };
    let outcome = match elicitation {
        Some(outcome) => outcome,
        None => dispatch(&shared, context, method, params).await,
    };
    match outcome {
        Ok(mut result) => {
            if version.as_deref() == Some(FIRST_STATELESS_REVISION)
                && result.get("resultType").is_none()
            {
                result["resultType"] = json!("complete");
            }
            json_response(
                StatusCode::OK,
                &json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            )
        }
        Err(fault) => error_response(&id, fault, StatusCode::OK),
    }
}

/// Returns the revision of MCP that a request names in its header or body, or `None`. Returns an
/// error if the header and the body name different revisions.
fn request_revision(
    method: &str,
    params: &Value,
    headers: &HeaderMap,
) -> Result<Option<String>, JsonRpcFault> {
    let header = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    let header_version = header("mcp-protocol-version");
    let body_version = params["_meta"]["io.modelcontextprotocol/protocolVersion"]
        .as_str()
        .map(str::to_owned);
    let unsupported = |version: &str| JsonRpcFault {
        code: UNSUPPORTED_REVISION,
        message: format!("the protocol revision {version} is not supported"),
        data: json!({ "supported": SUPPORTED_REVISIONS, "requested": version }),
    };
    if method == "initialize" {
        return Ok(None); // initialize negotiates the revision
    }
    for version in header_version.iter().chain(&body_version) {
        if !SUPPORTED_REVISIONS.contains(&version.as_str()) {
            return Err(unsupported(version));
        }
    }
    if let (Some(header_version), Some(body_version)) = (&header_version, &body_version)
        && header_version != body_version
    {
        let text =
            format!("the header has revision {header_version}, and the request {body_version}");
        return Err(JsonRpcFault::new(HEADER_MISMATCH, text));
    }
    if header_version.as_deref() == Some(FIRST_STATELESS_REVISION) {
        let target = match method {
            "tools/call" => params["name"].as_str(),
            "resources/read" => params["uri"].as_str(),
            _ => None,
        };
        if header("mcp-method").as_deref() != Some(method) {
            return Err(JsonRpcFault::new(
                HEADER_MISMATCH,
                "the Mcp-Method header does not name the request's method",
            ));
        }
        if target.is_some() && header("mcp-name").as_deref() != target {
            return Err(JsonRpcFault::new(
                HEADER_MISMATCH,
                "the Mcp-Name header does not name the request's target",
            ));
        }
    }
    Ok(body_version.or(header_version))
}

async fn dispatch(
    shared: &Arc<ServerState>,
    context: RequestContext,
    method: &str,
    params: &Value,
) -> Result<Value, JsonRpcFault> {
    match method {
        "initialize" => {
            let requested = params["protocolVersion"].as_str().unwrap_or_default();
            let is_supported = SUPPORTED_REVISIONS[1..].contains(&requested);
            let mut result = introduce_server(&context.principal);
            result["protocolVersion"] = json!(if is_supported {
                requested
            } else {
                FALLBACK_REVISION
            });
            result["serverInfo"] = server_info();
            Ok(result)
        }
        "server/discover" => {
            let mut result = introduce_server(&context.principal);
            result["supportedVersions"] = json!(SUPPORTED_REVISIONS);
            result["ttlMs"] = json!(0);
            result["cacheScope"] = json!("private");
            result["_meta"] = json!({ "io.modelcontextprotocol/serverInfo": server_info() });
            Ok(result)
        }
        "ping" => Ok(json!({})),
        "tools/list" => Ok(
            json!({ "tools": tools::list(&context.principal), "ttlMs": 0, "cacheScope": "private" }),
        ),
        "tools/call" => {
            let Some(name) = params["name"].as_str() else {
                return Err(JsonRpcFault::new(
                    INVALID_PARAMS,
                    "a call must name its tool",
                ));
            };
            tools::call(shared, context, name, params.get("arguments")).await
        }
        "resources/list" => {
            Ok(json!({ "resources": resources::list(&context.principal, &shared.engine.board()) }))
        }
        "resources/templates/list" => {
            Ok(json!({ "resourceTemplates": resources::resource_templates() }))
        }
        "resources/read" => {
            let uri = params["uri"].as_str().unwrap_or_default();
            resources::read(shared, context, uri).await
        }
        _ => Err(JsonRpcFault::new(
            METHOD_NOT_FOUND,
            format!(
                "there is no method {}",
                method.chars().take(60).collect::<String>()
            ),
        )),
    }
}

fn server_info() -> Value {
    json!({ "name": "regatta", "title": "Regatta", "version": env!("CARGO_PKG_VERSION") })
}

fn introduce_server(principal: &Principal) -> Value {
    json!({
        "capabilities": { "tools": { "listChanged": false }, "resources": {} },
        "instructions": tools::instructions(principal),
    })
}

fn json_response(status: StatusCode, body: &Value) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response()
}

fn error_response(id: &Value, fault: JsonRpcFault, status: StatusCode) -> Response {
    let mut error = json!({ "code": fault.code, "message": fault.message });
    if !fault.data.is_null() {
        error["data"] = fault.data;
    }
    json_response(
        status,
        &json!({ "jsonrpc": "2.0", "id": id, "error": error }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &'static str)| {
            (
                header::HeaderName::from_static(name),
                header::HeaderValue::from_static(value),
            )
        };
        pairs.iter().map(header).collect()
    }

    #[test]
    fn request_whose_headers_contradict_its_body_is_refused() {
        let meta = |version: &str| json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": version } });
        let code = |method: &str, params: &Value, given: &[(&'static str, &'static str)]| {
            request_revision(method, params, &header_map(given)).map_err(|fault| fault.code)
        };
        let new = ("mcp-protocol-version", FIRST_STATELESS_REVISION);
        assert_eq!(code("ping", &json!({}), &[]), Ok(None));
        assert_eq!(
            code(
                "ping",
                &meta(FIRST_STATELESS_REVISION),
                &[new, ("mcp-method", "ping")]
            ),
            Ok(Some(FIRST_STATELESS_REVISION.into()))
        );
        assert_eq!(
            code("ping", &meta("2025-11-25"), &[new, ("mcp-method", "ping")]),
            Err(HEADER_MISMATCH)
        );
        assert_eq!(
            code("ping", &meta(FIRST_STATELESS_REVISION), &[new]),
            Err(HEADER_MISMATCH)
        );
        assert_eq!(
            code(
                "ping",
                &json!({}),
                &[("mcp-protocol-version", "1999-01-01")]
            ),
            Err(UNSUPPORTED_REVISION)
        );
        let call = json!({ "name": "my_task" });
        let heads = [new, ("mcp-method", "tools/call"), ("mcp-name", "finish")];
        assert_eq!(code("tools/call", &call, &heads), Err(HEADER_MISMATCH));
        assert_eq!(
            code(
                "tools/call",
                &call,
                &[("mcp-protocol-version", "2025-06-18")]
            ),
            Ok(Some("2025-06-18".into()))
        );
    }
}
