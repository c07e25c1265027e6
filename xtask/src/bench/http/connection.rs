//! A connection to a server that stays open for several requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

pub(crate) struct HttpConnection {
    reader: BufReader<TcpStream>,
    head: String,
}

impl HttpConnection {
    pub(crate) fn open(address: SocketAddr, token: &str) -> anyhow::Result<HttpConnection> {
        let stream = TcpStream::connect(address).context("could not connect to the server")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        let head = format!(
            "host: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        );
        Ok(HttpConnection {
            reader: BufReader::new(stream),
            head,
        })
    }

    /// Sends a request without waiting for its answer.
    pub(crate) fn send(&mut self, path: &str, more: &str, body: &[u8]) -> anyhow::Result<()> {
        let mut message = format!(
            "POST {path} HTTP/1.1\r\n{}{more}content-length: {}\r\n\r\n",
            self.head,
            body.len()
        )
        .into_bytes();
        message.extend_from_slice(body);
        Ok(self.reader.get_mut().write_all(&message)?)
    }

    /// Reads the next answer: its status and its body.
    pub(crate) fn read_answer(&mut self) -> anyhow::Result<(u16, Vec<u8>)> {
        let (mut status, mut length) = (0, 0);
        let mut text = String::new();
        loop {
            text.clear();
            if self.reader.read_line(&mut text)? == 0 {
                bail!("the server closed the connection");
            }
            let line = text.trim_end().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest
                    .get(..3)
                    .and_then(|rest| rest.parse().ok())
                    .context("no status")?;
            } else if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.parse()?;
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        Ok((status, body))
    }

    /// Sends a request and reads its answer.
    pub(crate) fn post(&mut self, path: &str, body: &[u8]) -> anyhow::Result<Value> {
        self.send(path, "", body)?;
        let (status, body) = self.read_answer()?;
        if status != 200 {
            bail!(
                "{path} was answered with {status}: {}",
                String::from_utf8_lossy(&body)
            );
        }
        Ok(serde_json::from_slice(&body)?)
    }

    /// Reads a page with GET.
    pub(crate) fn get(&mut self, path: &str) -> anyhow::Result<String> {
        let message = format!("GET {path} HTTP/1.1\r\n{}\r\n", self.head);
        self.reader.get_mut().write_all(message.as_bytes())?;
        let (status, body) = self.read_answer()?;
        if status != 200 {
            bail!("{path} was answered with {status}");
        }
        Ok(String::from_utf8(body)?)
    }

    /// Calls a verb and returns the data of its answer.
    pub(crate) fn call_verb(&mut self, verb: &str, input: &Value) -> anyhow::Result<Value> {
        let mut answer = self.post(&format!("/api/v1/{verb}"), &serde_json::to_vec(input)?)?;
        Ok(answer["data"].take())
    }
}
