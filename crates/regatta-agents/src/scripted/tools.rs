//! Lets the scripted agent call Regatta's tools. Each call is one request of the Model Context
//! Protocol (MCP) over plain HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

/// The timeout of a tool call. The timeout is longer than the longest wait of any tool.
const CALL_TIMEOUT: Duration = Duration::from_secs(660);

/// The address of Regatta's tool server and the access token for it.
#[derive(Clone, Debug)]
pub(super) struct ToolClient {
    url: String,
    authorization: String,
}

impl ToolClient {
    /// Returns a client for the tool server that is named in the request which opened the session,
    /// or `None` if it names none.
    pub(super) fn from_session(params: &Value) -> Option<ToolClient> {
        let server = params["mcpServers"]
            .as_array()?
            .iter()
            .find(|server| server["type"] == "http")?;
        let headers = server["headers"].as_array()?;
        let authorization = headers
            .iter()
            .find(|header| header["name"] == "Authorization")?;
        Some(ToolClient {
            url: server["url"].as_str()?.to_owned(),
            authorization: authorization["value"].as_str()?.to_owned(),
        })
    }

    /// Returns a client for the tool server that the environment variables name, or `None` if they
    /// name none.
    pub(super) fn from_environment() -> Option<ToolClient> {
        let (server, token) = (
            std::env::var("REGATTA_SERVER").ok()?,
            std::env::var("REGATTA_TOKEN").ok()?,
        );
        Some(ToolClient {
            url: format!("{server}/mcp"),
            authorization: format!("Bearer {token}"),
        })
    }

    /// Calls one of Regatta's tools and returns the text of its answer, or the reason why the call
    /// failed.
    pub(super) fn call(&self, tool: &str, input: &Value) -> Result<String, String> {
        let request = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": tool, "arguments": input },
        });
        let answer = self
            .post(&request.to_string())
            .map_err(|error| format!("Could not call {tool}: {error}."))?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|_| {
            format!(
                "The answer of {tool} is not JSON: {}",
                String::from_utf8_lossy(&answer)
            )
        })?;
        let text = answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_default();
        match (
            answer["result"]["isError"] == true,
            answer["result"].is_object(),
        ) {
            (false, true) => Ok(text.to_owned()),
            (true, _) => Err(format!("{tool} failed: {text}")),
            (false, false) => Err(format!("{tool} was refused: {answer}")),
        }
    }

    fn post(&self, body: &str) -> std::io::Result<Vec<u8>> {
        let invalid_data =
            |why: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, why.to_owned());
        let rest = self.url.strip_prefix("http://").ok_or_else(|| {
            invalid_data("the address of the tool server does not begin with http://")
        })?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut stream = TcpStream::connect(host)?;
        stream.set_read_timeout(Some(CALL_TIMEOUT))?;
        let head = format!(
            "POST /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\nauthorization: {}\r\n\
             content-type: application/json\r\naccept: application/json, \
             text/event-stream\r\ncontent-length: {}\r\n\r\n",
            self.authorization,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let end = answer
            .windows(4)
            .position(|bytes| bytes == b"\r\n\r\n")
            .ok_or_else(|| invalid_data("the answer is incomplete"))?;
        Ok(answer.split_off(end + 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_read_from_the_servers_of_the_session() {
        let header = json!({ "name": "Authorization", "value": "Bearer x" });
        let server = json!({ "type": "http", "name": "regatta", "url": "http://127.0.0.1:1/mcp", "headers": [header] });
        let tools = ToolClient::from_session(&json!({ "mcpServers": [server] })).unwrap();
        assert_eq!(
            (tools.url.as_str(), tools.authorization.as_str()),
            ("http://127.0.0.1:1/mcp", "Bearer x")
        );
        assert!(ToolClient::from_session(&json!({ "mcpServers": [] })).is_none());
    }
}
