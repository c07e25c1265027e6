//! Parses and formats JSON-RPC messages, one per line, as the Agent Client Protocol and Codex's
//! app-server use them. Does no input or output.

use serde_json::{Value, json};

/// JSON-RPC's error code for "Method not found".
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;

/// A parsed JSON-RPC message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RpcMessage {
    /// A request. The other side must answer with the same id.
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    /// A message to which the other side sends no answer.
    Notification { method: String, params: Value },
    /// The answer to the request with this id: a result or an error.
    Answer {
        id: Value,
        outcome: Result<Value, RpcError>,
    },
}

/// The error with which a request was answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Value,
}

impl RpcError {
    /// Returns the error's message together with the text in its data, because a message such as
    /// "Internal error" explains nothing alone.
    pub(crate) fn full_text(&self) -> String {
        let more = match &self.data {
            Value::String(text) => Some(text.as_str()),
            data => ["message", "details", "error"]
                .iter()
                .find_map(|key| data[*key].as_str()),
        };
        match more.filter(|more| !self.message.contains(more)) {
            Some(more) if self.message.is_empty() => more.to_owned(),
            Some(more) => format!("{}: {more}", self.message),
            None => self.message.clone(),
        }
    }
}

/// Parses a line. Returns `None` if the line is not a JSON-RPC message.
pub(crate) fn parse_message(line: &str) -> Option<RpcMessage> {
    let Ok(Value::Object(mut fields)) = serde_json::from_str::<Value>(line) else {
        return None;
    };
    let id = fields.remove("id").filter(|field| !field.is_null());
    let method = match fields.remove("method") {
        Some(Value::String(method)) => Some(method),
        Some(_) => return None,
        None => None,
    };
    let params = fields.remove("params").unwrap_or(Value::Null);
    match (id, method) {
        (Some(id), Some(method)) => Some(RpcMessage::Request { id, method, params }),
        (None, Some(method)) => Some(RpcMessage::Notification { method, params }),
        (Some(id), None) => match (fields.remove("result"), fields.remove("error")) {
            (Some(result), None) => Some(RpcMessage::Answer {
                id,
                outcome: Ok(result),
            }),
            (None, Some(error)) => Some(RpcMessage::Answer {
                id,
                outcome: Err(parse_error(&error)),
            }),
            // Some programs send both `result` and `error`, of which one is null. The other one is
            // the answer. If both are null, the result is null.
            (Some(result), Some(Value::Null)) => Some(RpcMessage::Answer {
                id,
                outcome: Ok(result),
            }),
            (Some(Value::Null), Some(error)) => Some(RpcMessage::Answer {
                id,
                outcome: Err(parse_error(&error)),
            }),
            _ => None,
        },
        (None, None) => None,
    }
}

fn parse_error(error: &Value) -> RpcError {
    RpcError {
        code: error["code"].as_i64().unwrap_or(0),
        message: error["message"].as_str().unwrap_or_default().to_owned(),
        data: error["data"].clone(),
    }
}

/// The form in which messages are written: with or without the `jsonrpc` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RpcDialect {
    /// Messages contain `"jsonrpc": "2.0"`.
    Standard,
    /// Messages contain no `jsonrpc` field, as Codex's app-server expects.
    WithoutVersion,
}

impl RpcDialect {
    pub(crate) fn request(self, id: u64, method: &str, params: Value) -> String {
        self.to_line(json!({ "id": id, "method": method, "params": params }))
    }

    pub(crate) fn notification(self, method: &str, params: Value) -> String {
        self.to_line(json!({ "method": method, "params": params }))
    }

    pub(crate) fn result(self, id: &Value, result: Value) -> String {
        self.to_line(json!({ "id": id, "result": result }))
    }

    pub(crate) fn error(self, id: &Value, code: i64, message: &str) -> String {
        self.to_line(json!({ "id": id, "error": { "code": code, "message": message } }))
    }

    fn to_line(self, mut message: Value) -> String {
        if self == RpcDialect::Standard {
            message["jsonrpc"] = json!("2.0");
        }
        message.to_string()
    }
}

/// Returns a request's id as the text that people and the rest of Regatta see.
pub(crate) fn id_text(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_as_requests_notifications_results_or_errors() {
        for (line, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{}}"#,
                "request",
            ),
            (r#"{"id":"x","method":"a"}"#, "request"),
            (r#"{"id":null,"method":"a"}"#, "note"),
            (r#"{"method":"a","params":[]}"#, "note"),
            (r#"{"id":1,"result":null}"#, "result"),
            (
                r#"{"id":1,"result":null,"error":{"code":-1,"message":"m"}}"#,
                "error",
            ),
            (r#"{"id":1,"result":{},"error":null}"#, "result"),
            (r#"{"id":1,"result":null,"error":null}"#, "result"),
            (
                r#"{"id":0,"error":{"code":-1,"message":"m","data":{}}}"#,
                "error",
            ),
            (r#"{"id":1}"#, "nothing"),
            (
                r#"{"id":null,"error":{"code":-32700,"message":"parse"}}"#,
                "nothing",
            ),
            (r#"[1]"#, "nothing"),
            (r#"{"method":7}"#, "nothing"),
            ("hello", "nothing"),
            ("", "nothing"),
        ] {
            let actual = match parse_message(line) {
                None => "nothing",
                Some(RpcMessage::Request { .. }) => "request",
                Some(RpcMessage::Notification { .. }) => "note",
                Some(RpcMessage::Answer { outcome: Ok(_), .. }) => "result",
                Some(RpcMessage::Answer {
                    outcome: Err(_), ..
                }) => "error",
            };
            assert_eq!(actual, expected, "{line}");
        }
    }

    #[test]
    fn written_messages_can_be_parsed_again() {
        for dialect in [RpcDialect::Standard, RpcDialect::WithoutVersion] {
            assert!(matches!(
                parse_message(&dialect.request(3, "session/new", json!({}))),
                Some(RpcMessage::Request { id, method, .. }) if id == json!(3) && method == "session/new"
            ));
            assert!(matches!(
                parse_message(&dialect.notification("n", json!({}))),
                Some(RpcMessage::Notification { .. })
            ));
            assert!(matches!(
                parse_message(&dialect.result(&json!("r"), json!(1))),
                Some(RpcMessage::Answer { outcome: Ok(_), .. })
            ));
            assert!(matches!(
                parse_message(&dialect.error(&json!("r"), METHOD_NOT_FOUND, "no")),
                Some(RpcMessage::Answer {
                    outcome: Err(RpcError {
                        code: METHOD_NOT_FOUND,
                        ..
                    }),
                    ..
                })
            ));
        }
        assert!(
            !RpcDialect::WithoutVersion
                .notification("n", json!({}))
                .contains("jsonrpc")
        );
    }
}
