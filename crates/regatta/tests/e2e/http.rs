//! A small HTTP client for requests that the command line would not send, and for reading streams
//! slowly.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use crate::world::TEST_TIMEOUT;

/// An HTTP response.
#[derive(Clone, Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    /// The status line and headers, unchanged.
    pub(crate) head_text: String,
    pub(crate) body: Vec<u8>,
}

impl HttpReply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// The data directory of a daemon, and the token for its API.
#[derive(Clone, Debug)]
pub(crate) struct ApiClient {
    pub(crate) data_dir: std::path::PathBuf,
    pub(crate) token: String,
}

impl ApiClient {
    pub(crate) fn for_data_dir(data: &Path) -> ApiClient {
        let token = std::fs::read_to_string(data.join("token"))
            .unwrap()
            .trim()
            .to_owned();
        ApiClient {
            data_dir: data.to_owned(),
            token,
        }
    }

    /// Returns the loopback address of the running daemon.
    pub(crate) fn address(&self) -> String {
        let card: Value =
            serde_json::from_slice(&std::fs::read(self.data_dir.join("daemon.json")).unwrap())
                .unwrap();
        card["url"]
            .as_str()
            .unwrap()
            .trim_start_matches("http://")
            .trim_end_matches('/')
            .to_owned()
    }

    /// Calls a verb over the Unix socket. An error means that the daemon is not running or ended
    /// before it answered.
    pub(crate) fn call(
        &self,
        verb: &str,
        input: &Value,
        key: Option<&str>,
    ) -> std::io::Result<HttpReply> {
        let stream = UnixStream::connect(self.data_dir.join("daemon.sock"))?;
        stream.set_read_timeout(Some(TEST_TIMEOUT))?;
        let mut headers = vec![
            ("host", "localhost".to_owned()),
            ("authorization", format!("Bearer {}", self.token)),
            ("content-type", "application/json".to_owned()),
        ];
        headers.extend(key.map(|key| ("idempotency-key", key.to_owned())));
        let body = serde_json::to_vec(input)?;
        send_request(stream, "POST", &format!("/api/v1/{verb}"), &headers, &body)
    }

    /// Calls a verb that must succeed, and returns its data.
    #[track_caller]
    pub(crate) fn call_ok(&self, verb: &str, input: Value) -> Value {
        let reply = self.call(verb, &input, None).unwrap();
        assert_eq!(
            reply.status,
            200,
            "{verb} {input}: {}",
            String::from_utf8_lossy(&reply.body)
        );
        reply.json()["data"].clone()
    }

    /// Sends any request over loopback TCP.
    pub(crate) fn request_over_tcp(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: &[u8],
    ) -> HttpReply {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        send_request(stream, method, path, headers, body).unwrap()
    }

    /// Opens a stream of events.
    pub(crate) fn open_event_stream(
        &self,
        query: &str,
        last_event_id: Option<u64>,
    ) -> EventStreamReader {
        let mut stream = UnixStream::connect(self.data_dir.join("daemon.sock")).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let resume = last_event_id.map_or(String::new(), |last_event_id| {
            format!("last-event-id: {last_event_id}\r\n")
        });
        let head = format!(
            "GET /api/v1/events{query} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer \
            {}\r\n{resume}\r\n",
            self.token
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::with_capacity(256, stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        EventStreamReader {
            reader,
            text: Vec::new(),
        }
    }
}

/// Sends one request on a new connection.
fn send_request(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &[(&str, String)],
    body: &[u8],
) -> std::io::Result<HttpReply> {
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    let mut message = head.into_bytes();
    message.extend_from_slice(body);
    // A daemon that refuses a large body may close the connection before it has read all of it. Its
    // answer still counts.
    let _cut = stream.write_all(&message);
    let mut reply = Vec::new();
    if let Err(error) = stream.read_to_end(&mut reply)
        && reply.is_empty()
    {
        return Err(error);
    }
    let cut = || std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the answer was cut");
    let end = reply
        .windows(4)
        .position(|reply| reply == b"\r\n\r\n")
        .ok_or_else(cut)?;
    let came = String::from_utf8_lossy(&reply[..end]).into_owned();
    let head = came.to_ascii_lowercase();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|head| head.parse().ok())
        .ok_or_else(cut)?;
    let length = head
        .lines()
        .find_map(|head| head.strip_prefix("content-length: ")?.parse::<usize>().ok());
    let body = reply[end + 4..].to_vec();
    // An incomplete answer counts as no answer.
    if length.is_some_and(|length| length != body.len()) {
        return Err(cut());
    }
    Ok(HttpReply {
        status,
        head_text: came,
        body,
    })
}

/// A stream of events, decoded from HTTP chunks.
pub(crate) struct EventStreamReader {
    reader: BufReader<UnixStream>,
    text: Vec<u8>,
}

impl Iterator for EventStreamReader {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.text.windows(2).position(|text| text == b"\n\n") {
                let message: Vec<u8> = self.text.drain(..end + 2).collect();
                let message = String::from_utf8(message).unwrap();
                let field = |name: &str| {
                    message
                        .lines()
                        .find_map(|message| message.strip_prefix(name))
                };
                let Some(data) = field("data: ") else {
                    continue;
                }; // a comment keeps the connection alive
                let event: Value = serde_json::from_str(data).unwrap();
                assert_eq!(field("id: "), Some(event["revision"].to_string().as_str()));
                assert_eq!(field("event: "), event["kind"].as_str());
                return Some(event);
            }
            let mut size = String::new();
            self.reader
                .read_line(&mut size)
                .ok()
                .filter(|reader| *reader > 0)?;
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            if size == 0 {
                return None;
            }
            let mut chunk = vec![0; size + 2];
            self.reader.read_exact(&mut chunk).ok()?;
            self.text.extend_from_slice(&chunk[..size]);
        }
    }
}
