//! Serves one connection of a sandboxed program: reads the request, checks the host against the
//! allowed hosts, and copies bytes in both directions.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::{GateState, allow_list};
use crate::process::poll_until;

/// The stack size of the thread that serves one connection. The system's name resolver needs this
/// much.
pub(super) const STACK_BYTES: usize = 256 * 1024;

/// The pause before trying again after a connection could not be accepted for lack of file
/// descriptors or memory.
pub(super) const NO_RESOURCES_DELAY: Duration = Duration::from_millis(100);

/// The time that a client of the proxy may take to send the head of its HTTP request, which is
/// everything before the body.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The time that connecting to one address of a host may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time without data after which a connection is closed. This time is longer than a model needs
/// to think.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The size of the copy buffer for each direction of a connection.
const BUFFER_BYTES: usize = 16 * 1024;

/// A parsed request of a client to the proxy.
#[derive(Debug, PartialEq, Eq)]
enum ProxyRequest {
    /// A `CONNECT` request, which opens a tunnel to the host and port.
    Tunnel { host: String, port: u16 },
    /// A plain HTTP request. `head` is the request's head, rewritten for the target server.
    Forward {
        host: String,
        port: u16,
        head: Vec<u8>,
    },
}

/// Connects to `to` and copies bytes between that server and the client without interpreting them.
pub(super) fn forward_connection(client: TcpStream, to: SocketAddr) -> io::Result<()> {
    let server = TcpStream::connect_timeout(&to, CONNECT_TIMEOUT)?;
    copy_both_ways(&client, &server, &[])
}

/// Serves one client of the proxy: reads the client's request, refuses hosts that are not allowed,
/// and connects the client to the requested host.
pub(super) fn serve_client(mut client: TcpStream, state: &GateState) -> io::Result<()> {
    let Some((head, body_start)) = read_head(&mut client)? else {
        return respond(
            &mut client,
            "400 Bad Request",
            "The head of the request is too long or incomplete.",
        );
    };
    let (host, port, first_bytes) = match parse_head(&head) {
        Ok(ProxyRequest::Tunnel { host, port }) => (host, port, body_start),
        Ok(ProxyRequest::Forward { host, port, head }) => (host, port, [head, body_start].concat()),
        Err(reason) => return respond(&mut client, "400 Bad Request", reason),
    };
    let target = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    let mut refuse = |reason: &str| {
        state.report_refusal(&target, reason);
        let text = format!(
            "The connection to {target} was refused: {reason}. To allow it, run `regatta agent add \
            NAME --egress {target}`."
        );
        respond(&mut client, "403 Forbidden", &text)
    };
    if !state.allow_list.allows_host(&host, port) {
        return refuse("the host is not among the hosts that the agent may reach");
    }
    let addresses: Vec<IpAddr> = match allow_list::parse_address(&host) {
        Some(address) => vec![address],
        None => match (host.as_str(), port).to_socket_addrs() {
            Ok(resolved) => resolved.map(|address| address.ip()).collect(),
            Err(error) => {
                return respond(
                    &mut client,
                    "502 Bad Gateway",
                    &format!("{host} could not be resolved: {error}."),
                );
            }
        },
    };
    let allowed: Vec<IpAddr> = addresses
        .iter()
        .copied()
        .filter(|address| state.allow_list.allows_address(*address, port))
        .collect();
    if let (true, Some(address)) = (allowed.is_empty(), addresses.first()) {
        return refuse(&format!(
            "the host name resolves to {address}, which is an unlisted address of this machine or \
            its network"
        ));
    }
    let mut server = Err(io::Error::other("the host has no address"));
    for address in allowed {
        server = TcpStream::connect_timeout(&SocketAddr::new(address, port), CONNECT_TIMEOUT);
        if server.is_ok() {
            break;
        }
    }
    let server = match server {
        Ok(server) => server,
        Err(error) => {
            return respond(
                &mut client,
                "502 Bad Gateway",
                &format!("{target} is not reachable: {error}."),
            );
        }
    };
    if head.starts_with(b"CONNECT ") {
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    }
    copy_both_ways(&client, &server, &first_bytes)
}

fn respond(client: &mut TcpStream, status: &str, text: &str) -> io::Result<()> {
    let text = format!("regatta: {text}\n");
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: \
        {}\r\nconnection: close\r\n\r\n",
        text.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(text.as_bytes())?;
    client.shutdown(Shutdown::Write)
}

/// Reads a request's head, which ends with an empty line. Returns the head and the bytes that
/// followed it, or `None` if no empty line came in time or the head is too long.
fn read_head(client: &mut TcpStream) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let deadline = Instant::now() + HEAD_TIMEOUT;
    let mut head = Vec::new();
    let mut chunk = [0; 2048];
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Ok(None);
        }
        client.set_read_timeout(Some(remaining))?;
        let length = match client.read(&mut chunk) {
            Ok(0) => return Ok(None),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        // Search from three bytes before the new data, because the end of the head may lie across
        // two reads.
        let search_start = head.len().saturating_sub(3);
        head.extend_from_slice(&chunk[..length]);
        if let Some(offset) = head[search_start..]
            .windows(4)
            .position(|bytes| bytes == b"\r\n\r\n")
        {
            let rest = head.split_off(search_start + offset + 4);
            return Ok(Some((head, rest)));
        }
        if head.len() > MAX_HEAD_BYTES {
            return Ok(None);
        }
    }
}

fn parse_head(head: &[u8]) -> Result<ProxyRequest, &'static str> {
    const NO_REQUEST: &str = "This is not a valid request to a proxy.";
    let head = std::str::from_utf8(head).map_err(|_| NO_REQUEST)?;
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let [method, target, version] = first.split(' ').collect::<Vec<_>>()[..] else {
        return Err(NO_REQUEST);
    };
    if !version.starts_with("HTTP/1.") || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(NO_REQUEST);
    }
    if method == "CONNECT" {
        let (host, port) = allow_list::split_host_and_port(target, None).ok_or(NO_REQUEST)?;
        return Ok(ProxyRequest::Tunnel { host, port });
    }
    let rest = target
        .strip_prefix("http://")
        .ok_or("This is a proxy. Request http://HOST/… or a tunnel.")?;
    let path_start = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(path_start);
    // Reject a host that is preceded by a user name and password (`user:password@host`).
    let (host, port) = allow_list::split_host_and_port(authority, Some(80))
        .filter(|(host, _)| !host.contains('@'))
        .ok_or(NO_REQUEST)?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut rewritten = format!("{method} {slash}{path} HTTP/1.1\r\nHost: {authority}\r\n");
    for line in lines.take_while(|s| !s.is_empty()) {
        let name = line
            .split(':')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        // Replace the headers that keep a connection open, because each connection serves only one
        // request. A later request may be for another host.
        let replaced_headers = [
            "host",
            "connection",
            "proxy-connection",
            "proxy-authorization",
            "keep-alive",
        ];
        if !replaced_headers.contains(&name.as_str()) {
            rewritten.push_str(line);
            rewritten.push_str("\r\n");
        }
    }
    rewritten.push_str("Connection: close\r\n\r\n");
    Ok(ProxyRequest::Forward {
        host,
        port,
        head: rewritten.into_bytes(),
    })
}

/// One direction of a connection, with the bytes that were read from one side and are not yet
/// written to the other. A connection has two of these.
struct OneWayCopy<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    buffer: Vec<u8>,
    written: usize,
    /// True when the source has sent its last byte.
    has_source_ended: bool,
    /// True once the connection to the target is closed for writing, so that the target knows that
    /// no more bytes follow.
    is_target_closed: bool,
}

impl<'a> OneWayCopy<'a> {
    fn new(from: &'a TcpStream, to: &'a TcpStream, first: &[u8]) -> OneWayCopy<'a> {
        OneWayCopy {
            from,
            to,
            buffer: first.to_vec(),
            written: 0,
            has_source_ended: false,
            is_target_closed: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.written == self.buffer.len()
    }

    /// Copies as many bytes as possible without waiting. Returns whether it copied any.
    fn copy_available(&mut self) -> io::Result<bool> {
        let mut has_moved = false;
        if self.is_empty() && !self.has_source_ended {
            self.buffer.resize(BUFFER_BYTES, 0);
            self.written = 0;
            let mut from = self.from;
            let read = unless_blocked(from.read(&mut self.buffer));
            self.buffer
                .truncate(*read.as_ref().ok().and_then(Option::as_ref).unwrap_or(&0));
            self.has_source_ended = read? == Some(0);
            has_moved |= !self.is_empty() || self.has_source_ended;
        }
        while !self.is_empty() {
            let mut to = self.to;
            match unless_blocked(to.write(&self.buffer[self.written..]))? {
                Some(length) => self.written += length,
                None => return Ok(has_moved),
            }
            has_moved = true;
        }
        if self.has_source_ended && !self.is_target_closed {
            self.is_target_closed = true;
            // Ignore an error, because the target may already have closed the connection.
            drop(self.to.shutdown(Shutdown::Write));
        }
        Ok(has_moved)
    }
}

/// Returns `None` if a non-blocking call failed only because it would have to wait.
fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(length) => Ok(Some(length)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Copies bytes between client and server in both directions, until both have sent their last byte,
/// one connection breaks, or no byte was sent for [`IDLE_TIMEOUT`].
fn copy_both_ways(client: &TcpStream, server: &TcpStream, first_bytes: &[u8]) -> io::Result<()> {
    for stream in [client, server] {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
    }
    let mut up = OneWayCopy::new(client, server, first_bytes);
    let mut down = OneWayCopy::new(server, client, &[]);
    while !(up.is_target_closed && down.is_target_closed) {
        let has_moved = up.copy_available()? | down.copy_available()?;
        if has_moved {
            continue;
        }
        let poll_flags = |reader: &OneWayCopy<'_>, writer: &OneWayCopy<'_>| {
            let read = if reader.is_empty() && !reader.has_source_ended {
                PollFlags::IN
            } else {
                PollFlags::empty()
            };
            read | if writer.is_empty() {
                PollFlags::empty()
            } else {
                PollFlags::OUT
            }
        };
        let requested = [poll_flags(&up, &down), poll_flags(&down, &up)];
        let mut fds = [
            PollFd::new(client, requested[0]),
            PollFd::new(server, requested[1]),
        ];
        if !poll_until(&mut fds, Some(Instant::now() + IDLE_TIMEOUT))? {
            return Ok(());
        }
        // Stop if one side has disconnected, because no more bytes can be copied. `poll` reports
        // that even for a connection from which no event was requested.
        let is_gone = |index: usize| {
            requested[index].is_empty()
                && fds[index]
                    .revents()
                    .intersects(PollFlags::HUP | PollFlags::ERR)
        };
        if is_gone(0) || is_gone(1) {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(head: &str) -> Result<ProxyRequest, &'static str> {
        parse_head(head.as_bytes())
    }

    #[test]
    fn proxy_parses_requests_strictly() {
        let tunnel = |host: &str, port| {
            Ok(ProxyRequest::Tunnel {
                host: host.to_owned(),
                port,
            })
        };
        assert_eq!(
            parse_text("CONNECT a.example:443 HTTP/1.1\r\nHost: b.example\r\n\r\n"),
            tunnel("a.example", 443)
        );
        assert_eq!(
            parse_text("CONNECT [::1]:80 HTTP/1.0\r\n\r\n"),
            tunnel("::1", 80)
        );
        for bad in [
            "CONNECT a.example HTTP/1.1\r\n\r\n",
            "CONNECT a.example:443/x HTTP/1.1\r\n\r\n",
            "CONNECT a@b:443 HTTP/2\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\n\r\n",
            "GET http://u:p@a.example/ HTTP/1.1\r\n\r\n",
            "GET http:///x HTTP/1.1\r\n\r\n",
            "get http://a.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example/ x HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert!(parse_text(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn request_is_rewritten_for_the_checked_host() {
        let head = "POST http://a.example:8080/x?y HTTP/1.1\r\nHost: \
                    b.example\r\nProxy-Authorization: secret\r\n\
                    Connection: keep-alive\r\nContent-Length: 2\r\n\r\n";
        let rewritten = "POST /x?y HTTP/1.1\r\nHost: a.example:8080\r\nContent-Length: \
            2\r\nConnection: close\r\n\r\n";
        assert_eq!(
            parse_text(head),
            Ok(ProxyRequest::Forward {
                host: "a.example".to_owned(),
                port: 8080,
                head: rewritten.as_bytes().to_vec()
            })
        );
        let Ok(ProxyRequest::Forward { head, .. }) =
            parse_text("GET http://a.example?q HTTP/1.1\r\n\r\n")
        else {
            panic!()
        };
        assert!(head.starts_with(b"GET /?q HTTP/1.1\r\n"));
    }
}
