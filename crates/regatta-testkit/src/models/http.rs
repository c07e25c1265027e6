//! Implements the part of HTTP/1.1 that agents' programs use to reach a model: requests with a
//! length or in chunks, and answers that are sent as a whole or in chunks.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Maximum size of a request's body in bytes, more than any agent's program sends.
const MAX_BODY_BYTES: u64 = 64 << 20;
const MAX_HEAD_BYTES: u64 = 256 << 10;

/// An HTTP request of an agent's program.
#[derive(Debug)]
pub(super) struct HttpRequest {
    pub(super) method: String,
    /// The path of the URL, without the part after `?`.
    pub(super) path: String,
    pub(super) query: String,
    /// The headers as pairs of a name (in lower case) and a value.
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl HttpRequest {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|header| header.0 == name)
            .map(|header| header.1.as_str())
    }

    /// Returns whether the request has an API key in any of the usual headers or in the URL.
    pub(super) fn has_key(&self) -> bool {
        let named = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];
        named
            .iter()
            .any(|named| self.header(named).is_some_and(|s| !s.is_empty()))
            || self.query.split('&').any(|query| query.starts_with("key="))
    }

    /// Returns whether the client wants to use the connection for another request.
    pub(super) fn keeps_alive(&self) -> bool {
        !self
            .header("connection")
            .is_some_and(|s| s.eq_ignore_ascii_case("close"))
    }
}

fn invalid_data(description: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, description.to_owned())
}

/// Reads the next request. Returns `None` when the client has closed the connection.
pub(super) fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<HttpRequest>> {
    let mut remaining_bytes = MAX_HEAD_BYTES;
    let first = read_header_line(reader, &mut remaining_bytes)?;
    if first.is_empty() {
        return Ok(None);
    }
    let mut words = first.split(' ');
    let (Some(method), Some(target), Some(version)) = (words.next(), words.next(), words.next())
    else {
        return Err(invalid_data("the first line is not a request line"));
    };
    if !version.starts_with("HTTP/1.") {
        return Err(invalid_data("this is not HTTP/1"));
    }
    let mut headers = Vec::new();
    loop {
        let text = read_header_line(reader, &mut remaining_bytes)?;
        if text.is_empty() {
            break;
        }
        let (name, value) = text
            .split_once(':')
            .ok_or_else(|| invalid_data("a header has no colon"))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = HttpRequest {
        method: method.into(),
        path: path.into(),
        query: query.into(),
        headers,
        body: Vec::new(),
    };
    if request
        .header("expect")
        .is_some_and(|request| request.eq_ignore_ascii_case("100-continue"))
    {
        reader
            .get_mut()
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    if request
        .header("transfer-encoding")
        .is_some_and(|request| request.eq_ignore_ascii_case("chunked"))
    {
        request.body = read_chunked_body(reader)?;
    } else if let Some(length) = request.header("content-length") {
        let length: u64 = length
            .parse()
            .map_err(|_| invalid_data("the length is not a number"))?;
        if length > MAX_BODY_BYTES {
            return Err(invalid_data("the body is too long"));
        }
        reader.take(length).read_to_end(&mut request.body)?;
        if request.body.len() as u64 != length {
            return Err(invalid_data("the body is shorter than its length"));
        }
    }
    Ok(Some(request))
}

/// Reads one line without its line end, and subtracts the line's length from `left`. At the end of
/// the stream, returns an empty line.
fn read_header_line(reader: &mut impl BufRead, left: &mut u64) -> io::Result<String> {
    let mut text = String::new();
    let read = reader.take(*left).read_line(&mut text)? as u64;
    *left -= read;
    if *left == 0 {
        return Err(invalid_data("the head is too long"));
    }
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn read_chunked_body(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut remaining_bytes = 1 << 10;
        let size = read_header_line(reader, &mut remaining_bytes)?;
        let size = size.split(';').next().unwrap_or_default();
        let size = u64::from_str_radix(size.trim(), 16)
            .map_err(|_| invalid_data("a chunk has no size"))?;
        if size + body.len() as u64 > MAX_BODY_BYTES {
            return Err(invalid_data("the body is too long"));
        }
        reader.take(size).read_to_end(&mut body)?;
        let end = read_header_line(reader, &mut remaining_bytes)?;
        if !end.is_empty() {
            return Err(invalid_data("a chunk is longer than its size"));
        }
        if size == 0 {
            return Ok(body);
        }
    }
}

/// Writes a complete answer. With `head_only`, writes only the answer's status and headers.
pub(super) fn write_answer(
    writer: &mut impl Write,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
    head_only: bool,
) -> io::Result<()> {
    let mut out = response_head(status, headers);
    out.push_str(&format!(
        "content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    ));
    writer.write_all(out.as_bytes())?;
    if !head_only {
        writer.write_all(body)?;
    }
    writer.flush()
}

/// Writes the beginning of an answer that is sent as a stream of events.
pub(super) fn begin_stream(writer: &mut impl Write) -> io::Result<()> {
    let mut out = response_head(200, &[]);
    out.push_str(
        "content-type: text/event-stream\r\ncache-control: \
        no-cache\r\ntransfer-encoding: chunked\r\n\r\n",
    );
    writer.write_all(out.as_bytes())?;
    writer.flush()
}

/// Writes one piece of a streamed answer.
pub(super) fn write_chunk(writer: &mut impl Write, text: &str) -> io::Result<()> {
    writer.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())?;
    writer.flush()
}

/// Writes the end of a streamed answer.
pub(super) fn end_stream(writer: &mut impl Write) -> io::Result<()> {
    writer.write_all(b"0\r\n\r\n")?;
    writer.flush()
}

fn response_head(status: u16, headers: &[(String, String)]) -> String {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        529 => "Overloaded",
        _ => "Something",
    };
    let mut out = format!("HTTP/1.1 {status} {reason}\r\nrequest-id: req_scripted\r\n");
    for (name, value) in headers {
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    out
}
