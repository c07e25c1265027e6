//! Line-based JSON-RPC without IO, as ACP and Codex's app-server use it.

use serde_json::{Value, json};

/// The code of "Method not found".
pub(crate) const NO_METHOD: i64 = -32601;

/// A message of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    /// A request, which needs an answer with the same id.
    Request { id: Value, method: String, params: Value },
    /// A notification, which needs no answer.
    Note { method: String, params: Value },
    /// An answer to a request.
    Answer { id: Value, outcome: Result<Value, Fault> },
}

/// The error of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fault {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Value,
}

impl Fault {
    /// Returns the text of the error with the text of its data, because a message such as "Internal
    /// error" explains nothing.
    pub(crate) fn words(&self) -> String {
        let more = match &self.data {
            Value::String(text) => Some(text.as_str()),
            data => ["message", "details", "error"].iter().find_map(|it| data[*it].as_str()),
        };
        match more.filter(|it| !self.message.contains(it)) {
            Some(more) if self.message.is_empty() => more.to_owned(),
            Some(more) => format!("{}: {more}", self.message),
            None => self.message.clone(),
        }
    }
}

/// Parses a line. Returns `None` if it is not a message.
pub(crate) fn read(line: &str) -> Option<Message> {
    let Ok(Value::Object(mut fields)) = serde_json::from_str::<Value>(line) else { return None };
    let id = fields.remove("id").filter(|it| !it.is_null());
    let method = match fields.remove("method") {
        Some(Value::String(method)) => Some(method),
        Some(_) => return None,
        None => None,
    };
    let params = fields.remove("params").unwrap_or(Value::Null);
    match (id, method) {
        (Some(id), Some(method)) => Some(Message::Request { id, method, params }),
        (None, Some(method)) => Some(Message::Note { method, params }),
        (Some(id), None) => match (fields.remove("result"), fields.remove("error")) {
            (Some(result), None) => Some(Message::Answer { id, outcome: Ok(result) }),
            (None, Some(error)) => Some(Message::Answer { id, outcome: Err(fault(&error)) }),
            // Some programs send both fields, and one of them is null.
            (Some(Value::Null), Some(error)) => Some(Message::Answer { id, outcome: Err(fault(&error)) }),
            (Some(result), Some(Value::Null)) => Some(Message::Answer { id, outcome: Ok(result) }),
            _ => None,
        },
        (None, None) => None,
    }
}

fn fault(error: &Value) -> Fault {
    Fault {
        code: error["code"].as_i64().unwrap_or(0),
        message: error["message"].as_str().unwrap_or_default().to_owned(),
        data: error["data"].clone(),
    }
}

/// The dialect of JSON-RPC that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// With `"jsonrpc": "2.0"`.
    Standard,
    /// Without that field, as Codex's app-server does.
    Bare,
}

impl Dialect {
    pub(crate) fn request(self, id: u64, method: &str, params: Value) -> String {
        self.line(json!({ "id": id, "method": method, "params": params }))
    }

    pub(crate) fn note(self, method: &str, params: Value) -> String {
        self.line(json!({ "method": method, "params": params }))
    }

    pub(crate) fn result(self, id: &Value, result: Value) -> String {
        self.line(json!({ "id": id, "result": result }))
    }

    pub(crate) fn error(self, id: &Value, code: i64, message: &str) -> String {
        self.line(json!({ "id": id, "error": { "code": code, "message": message } }))
    }

    fn line(self, mut message: Value) -> String {
        if self == Dialect::Standard {
            message["jsonrpc"] = json!("2.0");
        }
        message.to_string()
    }
}

/// Returns an id as text, as people and the board see it.
pub(crate) fn id_text(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_as_requests_notifications_results_or_errors() {
        for (line, kind) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{}}"#, "request"),
            (r#"{"id":"x","method":"a"}"#, "request"),
            (r#"{"id":null,"method":"a"}"#, "note"),
            (r#"{"method":"a","params":[]}"#, "note"),
            (r#"{"id":1,"result":null}"#, "result"),
            (r#"{"id":1,"result":null,"error":{"code":-1,"message":"m"}}"#, "error"),
            (r#"{"id":1,"result":{},"error":null}"#, "result"),
            (r#"{"id":0,"error":{"code":-1,"message":"m","data":{}}}"#, "error"),
            (r#"{"id":1}"#, "nothing"),
            (r#"{"id":null,"error":{"code":-32700,"message":"parse"}}"#, "nothing"),
            (r#"[1]"#, "nothing"),
            (r#"{"method":7}"#, "nothing"),
            ("hello", "nothing"),
            ("", "nothing"),
        ] {
            let seen = match read(line) {
                None => "nothing",
                Some(Message::Request { .. }) => "request",
                Some(Message::Note { .. }) => "note",
                Some(Message::Answer { outcome: Ok(_), .. }) => "result",
                Some(Message::Answer { outcome: Err(_), .. }) => "error",
            };
            assert_eq!(seen, kind, "{line}");
        }
    }

    #[test]
    fn written_messages_can_be_parsed_again() {
        for dialect in [Dialect::Standard, Dialect::Bare] {
            assert!(matches!(
                read(&dialect.request(3, "session/new", json!({}))),
                Some(Message::Request { id, method, .. }) if id == json!(3) && method == "session/new"
            ));
            assert!(matches!(read(&dialect.note("n", json!({}))), Some(Message::Note { .. })));
            assert!(matches!(
                read(&dialect.result(&json!("r"), json!(1))),
                Some(Message::Answer { outcome: Ok(_), .. })
            ));
            assert!(matches!(
                read(&dialect.error(&json!("r"), NO_METHOD, "no")),
                Some(Message::Answer { outcome: Err(Fault { code: NO_METHOD, .. }), .. })
            ));
        }
        assert!(!Dialect::Bare.note("n", json!({})).contains("jsonrpc"));
    }
}
