//! The client of the daemon's HTTP API, for the commands.
//!
//! The client uses the daemon's unix socket if it can, and the loopback address otherwise. The
//! client starts the daemon of this data directory if none runs. With `--server` the client talks
//! to a daemon on another machine and never starts a daemon.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use regatta_api::verb::TypedCall;
use regatta_api::view::{EventView, VerbAnswer};
use regatta_api::{Call, Problem};
use serde::de::DeserializeOwned;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::daemon::{self, DataDir};
use crate::output::{CommandError, command_error, usage_error};

/// A client of one daemon. Each request opens a new connection.
pub(crate) struct Client {
    runtime: Runtime,
    data_dir: DataDir,
    /// The address of another machine's daemon, from `--server`. `None` means the daemon of
    /// `data_dir`.
    server: Option<String>,
    token: String,
    timeout: Option<Duration>,
    /// True if the client must not start a daemon that a person has stopped.
    is_read_only: bool,
}

/// The daemon's answer to a call: its data, and the revision (number of the last event) to which
/// the data belongs.
#[derive(Debug)]
pub(crate) struct CallReply<T> {
    pub(crate) revision: u64,
    pub(crate) data: T,
}

impl Client {
    /// Connects to the daemon of a data directory, and starts the daemon if none is running.
    pub(crate) fn connect(
        data_dir: &Path,
        server: Option<String>,
        timeout: Option<Duration>,
    ) -> Result<Client, CommandError> {
        let client = Client::disconnected(data_dir, server, timeout)?;
        if client.server.is_some() {
            return client.with_token();
        }
        if !client.is_up() {
            start_daemon(data_dir, &[])?;
        }
        client.with_token()
    }

    /// Connects to the daemon of a data directory. Returns `None` if the daemon is not running.
    pub(crate) fn find(
        data_dir: &Path,
        timeout: Option<Duration>,
    ) -> Result<Option<Client>, CommandError> {
        let client = Client::disconnected(data_dir, None, timeout)?;
        if client.is_up() {
            client.with_token().map(Some)
        } else {
            Ok(None)
        }
    }

    fn disconnected(
        data_dir: &Path,
        server: Option<String>,
        timeout: Option<Duration>,
    ) -> Result<Client, CommandError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| {
            command_error(
                "io",
                format!("could not start the async runtime: {error}"),
                "close other programs and try again",
            )
        })?;
        Ok(Client {
            runtime,
            data_dir: DataDir::new(data_dir),
            server,
            token: String::new(),
            timeout,
            is_read_only: false,
        })
    }

    /// Returns a client of a daemon on another machine, which sends this access token with each
    /// call.
    pub(crate) fn remote(
        server: &str,
        token: &str,
        timeout: Duration,
    ) -> Result<Client, CommandError> {
        let client = Client::disconnected(Path::new(""), Some(server.to_owned()), Some(timeout))?;
        Ok(client.with_other_token(token.to_owned()))
    }

    fn with_token(mut self) -> Result<Client, CommandError> {
        self.token = match (&self.server, std::env::var("REGATTA_TOKEN")) {
            (Some(_), Ok(token)) => token,
            _ => daemon::read_token(&self.data_dir)?,
        };
        Ok(self)
    }

    /// Returns true if a daemon answers.
    ///
    /// An open socket does not prove that a daemon runs: when a daemon is killed while it starts a
    /// program, the child process keeps the socket open until the child calls exec.
    pub(crate) fn is_up(&self) -> bool {
        let check = async {
            let Ok(mut sender) = self.open_connection().await else {
                return false;
            };
            let Ok(request) = self.request("GET", "/healthz").body(Full::default()) else {
                return false;
            };
            sender.send_request(request).await.is_ok()
        };
        self.block_on(async {
            match self.timeout {
                // If the check times out, treat the slow daemon as running, because the following
                // call reports the timeout.
                Some(timeout) => tokio::time::timeout(timeout, check).await.unwrap_or(true),
                None => check.await,
            }
        })
    }

    /// Waits for a future. The future is boxed, because tokio's `block_on` is compiled for each type
    /// of future with every kind of runtime.
    fn block_on<'f, T>(&self, future: impl Future<Output = T> + 'f) -> T {
        let future: Pin<Box<dyn Future<Output = T> + 'f>> = Box::pin(future);
        self.runtime.block_on(future)
    }

    async fn open_connection(&self) -> Result<SendRequest<Full<Bytes>>, CommandError> {
        let address = match &self.server {
            Some(url) => server_address(url)?,
            None => {
                if let Ok(stream) = UnixStream::connect(self.data_dir.short_socket()?.path()).await
                {
                    return http_handshake(TokioIo::new(stream)).await;
                }
                // Read the address file only if a daemon holds the lock. A killed daemon leaves its
                // address file behind, and another program, which must not receive the token, may
                // use the port by now.
                if !self.data_dir.is_locked()? {
                    return Err(unreachable_error());
                }
                daemon::read_daemon_info(&self.data_dir)
                    .map(|daemon_info| daemon_info.address())
                    .ok_or_else(unreachable_error)?
            }
        };
        let is_tls = self
            .server
            .as_ref()
            .is_some_and(|server| server.starts_with("https://"));
        let stream = TcpStream::connect(&address)
            .await
            .map_err(|error| match &self.server {
                Some(url) => server_unreachable_error(url, &error),
                None => unreachable_error(),
            })?;
        if is_tls {
            return http_handshake(TokioIo::new(
                crate::tls_client::connect_tls(&address, stream).await?,
            ))
            .await;
        }
        http_handshake(TokioIo::new(stream)).await
    }

    fn request(&self, method: &str, path: &str) -> hyper::http::request::Builder {
        let host = self.server.as_deref().map_or("localhost", host_of);
        hyper::Request::builder()
            .method(method)
            .uri(path)
            .header("host", host)
            .header("authorization", format!("Bearer {}", self.token))
            .header(
                "x-regatta-person",
                std::env::var("USER").unwrap_or_else(|_| "operator".into()),
            )
    }

    /// Returns this client, changed so that it never starts a daemon after a person has stopped the
    /// daemon.
    pub(crate) fn read_only(self) -> Client {
        Client {
            is_read_only: true,
            ..self
        }
    }

    /// Returns a client for the same daemon that uses another token.
    pub(crate) fn with_other_token(self, token: String) -> Client {
        Client { token, ..self }
    }

    /// Posts a body to a path without interpreting it, and returns the HTTP status and the body of
    /// the answer.
    pub(crate) fn post_raw(
        &self,
        path: &str,
        headers: &[(&str, String)],
        body: Vec<u8>,
    ) -> Result<(u16, Bytes), CommandError> {
        let exchange = async {
            let mut sender = self.open_connection().await?;
            let request = self
                .request("POST", path)
                .header("content-type", "application/json");
            let request = headers.iter().fold(request, |builder, (name, value)| {
                builder.header(*name, value)
            });
            let request = request.body(Full::from(body)).map_err(|error| {
                command_error(
                    "bug",
                    format!("could not build the request for {path}: {error}"),
                    "report this with the command you typed and the output of regatta version",
                )
            })?;
            let response = sender
                .send_request(request)
                .await
                .map_err(|_| unreachable_error())?;
            let status = response.status().as_u16();
            let body = response
                .into_body()
                .collect()
                .await
                .map_err(|_| unreachable_error())?
                .to_bytes();
            Ok((status, body))
        };
        self.block_on(async {
            match self.timeout {
                Some(timeout) => tokio::time::timeout(timeout, exchange)
                    .await
                    .map_err(|_| timeout_error())?,
                None => exchange.await,
            }
        })
    }

    /// Performs a call of the daemon's API. If the connection breaks, the call is repeated with the
    /// same idempotency key (by which the daemon recognizes a repeated call), so that the call
    /// takes effect only once. Starts a daemon if the daemon has ended.
    pub(crate) fn call<C: TypedCall>(&self, call: C) -> Result<CallReply<C::Output>, CommandError>
    where
        C::Output: DeserializeOwned,
    {
        self.call_as(&call.into_call())
    }

    /// Performs a call like [`Client::call`], for verbs that have several kinds of answers, and for
    /// callers that read the answer as a JSON value. The caller names the type of the answer.
    pub(crate) fn call_as<T: DeserializeOwned>(
        &self,
        call: &Call,
    ) -> Result<CallReply<T>, CommandError> {
        parse_answer(&self.send_call(call, true)?)
    }

    /// Performs a call without starting a daemon. Returns `None` if no daemon can be reached.
    pub(crate) fn call_while_up<C: TypedCall>(
        &self,
        call: C,
    ) -> Result<Option<CallReply<C::Output>>, CommandError>
    where
        C::Output: DeserializeOwned,
    {
        self.call_while_up_as(&call.into_call())
    }

    /// Performs a call like [`Client::call_while_up`]. The caller names the type of the answer.
    pub(crate) fn call_while_up_as<T: DeserializeOwned>(
        &self,
        call: &Call,
    ) -> Result<Option<CallReply<T>>, CommandError> {
        match self.send_call(call, false) {
            Ok(answer) => parse_answer(&answer).map(Some),
            Err(CommandError::Problem(problem)) if problem.code == "unreachable" => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a call and returns the answer's text. This function is not generic, so that the
    /// compiler translates it only once and not for each type of answer.
    fn send_call(&self, call: &Call, restart: bool) -> Result<Bytes, CommandError> {
        let body = call.to_json().map_err(|error| {
            command_error(
                "bug",
                format!("could not encode the request as JSON: {error}"),
                "report this with the command you typed and the output of regatta version",
            )
        })?;
        let path = format!("/api/v1/{}", call.verb().name);
        let key = new_idempotency_key();
        let exchange = async {
            for round in 0.. {
                match self.send_once(&path, &key, body.clone()).await {
                    Err(CommandError::Problem(problem))
                        if restart
                            && problem.code == "unreachable"
                            && round < 3
                            && self.server.is_none() =>
                    {
                        // The daemon ended during the call. Start another daemon on the same data,
                        // unless a person has stopped the daemon.
                        if self.open_connection().await.is_err() {
                            if self.is_read_only && self.data_dir.is_stopped() {
                                return Err(daemon_stopped_error());
                            }
                            let dir = self.data_dir.path.clone();
                            tokio::task::spawn_blocking(move || start_daemon(&dir, &[]))
                                .await
                                .map_err(|_| unreachable_error())??;
                        }
                    }
                    result => return result,
                }
            }
            Err(unreachable_error())
        };
        self.block_on(async {
            match self.timeout {
                Some(timeout) => tokio::time::timeout(timeout, exchange)
                    .await
                    .map_err(|_| timeout_error())?,
                None => exchange.await,
            }
        })
    }

    /// Performs a call while [`Client::stream_events`] runs. The loop in `stream_events` blocks
    /// this thread and its connection, so the call uses a new thread and a new connection.
    pub(crate) fn call_on_new_thread<C: TypedCall>(
        &self,
        call: C,
    ) -> Result<CallReply<C::Output>, CommandError>
    where
        C::Output: DeserializeOwned + Send + 'static,
    {
        self.call_on_new_thread_as(call.into_call())
    }

    /// Performs a call like [`Client::call_on_new_thread`]. The caller names the type of the answer.
    pub(crate) fn call_on_new_thread_as<T: DeserializeOwned + Send + 'static>(
        &self,
        call: Call,
    ) -> Result<CallReply<T>, CommandError> {
        let (dir, server) = (self.data_dir.path.clone(), self.server.clone());
        let thread =
            std::thread::spawn(move || Client::connect(&dir, server, None)?.call_as(&call));
        thread.join().map_err(|_| {
            command_error(
                "bug",
                "the thread that sent a request to the daemon crashed",
                "report this with the command you typed and the output of regatta version",
            )
        })?
    }

    async fn send_once(&self, path: &str, key: &str, body: Vec<u8>) -> Result<Bytes, CommandError> {
        let mut sender = self.open_connection().await?;
        let request = self
            .request("POST", path)
            .header("content-type", "application/json")
            .header("idempotency-key", key);
        let request = request.body(Full::from(body)).map_err(|error| {
            command_error(
                "bug",
                format!("could not build the request for {path}: {error}"),
                "report this with the command you typed and the output of regatta version",
            )
        })?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|_| unreachable_error())?;
        let status = response.status();
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(|_| unreachable_error())?
            .to_bytes();
        if status.is_success() {
            Ok(body)
        } else {
            Err(parse_problem(status.as_u16(), &body).into())
        }
    }

    /// Reads the events after the revision `after` and passes each event to `each`, until `each`
    /// returns false. Without `follow`, reading ends at the last event.
    pub(crate) fn stream_events(
        &self,
        after: u64,
        follow: bool,
        mut each: impl FnMut(EventStreamItem) -> Result<bool, CommandError>,
    ) -> Result<(), CommandError> {
        self.read_events(after, follow, &mut each)
    }

    fn read_events(
        &self,
        after: u64,
        follow: bool,
        each: &mut dyn FnMut(EventStreamItem) -> Result<bool, CommandError>,
    ) -> Result<(), CommandError> {
        self.block_on(async {
            let mut sender = self.open_connection().await?;
            let path = format!("/api/v1/events?after={after}&follow={follow}");
            let request = self
                .request("GET", &path)
                .body(Full::default())
                .map_err(|error| {
                    command_error(
                        "bug",
                        format!("could not build the request for events: {error}"),
                        "report this with the command you typed and the output of regatta version",
                    )
                })?;
            let response = sender
                .send_request(request)
                .await
                .map_err(|_| unreachable_error())?;
            let status = response.status();
            if !status.is_success() {
                let body = response
                    .into_body()
                    .collect()
                    .await
                    .map_err(|_| unreachable_error())?
                    .to_bytes();
                return Err(parse_problem(status.as_u16(), &body).into());
            }
            read_event_stream(response.into_body(), each).await
        })
    }

    /// Reads the daemon's live stream of changed data, limited to these topics (kinds of data,
    /// separated by commas), until the stream ends or `each` returns false.
    pub(crate) fn stream_live(
        &self,
        topics: &str,
        mut each: impl FnMut(LiveStreamItem) -> bool,
    ) -> Result<(), CommandError> {
        self.block_on(async {
            let mut sender = self.open_connection().await?;
            let request = self
                .request("GET", &format!("/api/v1/live?topics={topics}"))
                .body(Full::default())
                .map_err(|error| {
                    command_error(
                        "bug",
                        format!("could not build the request for the live stream: {error}"),
                        "report this with the command you typed and the output of regatta version",
                    )
                })?;
            let response = sender
                .send_request(request)
                .await
                .map_err(|_| unreachable_error())?;
            let status = response.status();
            if !status.is_success() {
                let body = response
                    .into_body()
                    .collect()
                    .await
                    .map_err(|_| unreachable_error())?
                    .to_bytes();
                return Err(parse_problem(status.as_u16(), &body).into());
            }
            read_live_stream(response.into_body(), &mut each).await
        })
    }

    /// Returns the data directory of this machine's daemon.
    pub(crate) fn data_dir(&self) -> &DataDir {
        &self.data_dir
    }
}

/// Parses the JSON answer to a call.
fn parse_answer<T: DeserializeOwned>(text: &[u8]) -> Result<CallReply<T>, CommandError> {
    let answer: VerbAnswer<T> =
        serde_json::from_slice(text).map_err(|error| invalid_answer_error(&error))?;
    Ok(CallReply {
        revision: answer.revision,
        data: answer.data,
    })
}

fn invalid_answer_error(error: &serde_json::Error) -> CommandError {
    command_error(
        "bug",
        format!("could not read the daemon's answer: {error}"),
        "the daemon may have another version than this command; restart the daemon: regatta up \
         --restart",
    )
}

/// An item that [`Client::stream_events`] passes to its callback.
#[derive(Debug)]
pub(crate) enum EventStreamItem {
    Event(Box<EventView>),
    /// No event arrived for 250 ms, so the reader can redraw or check a timeout.
    Idle,
}

/// An item that [`Client::stream_live`] passes to its callback.
#[derive(Debug)]
pub(crate) enum LiveStreamItem {
    Data {
        /// The name of the message, such as `reset`; empty for a frame (a message with changed
        /// data).
        event: String,
        data: String,
    },
    /// A message without data, by which the daemon shows that the connection works.
    Heartbeat,
    /// No message arrived for 100 ms.
    Idle,
}

async fn read_live_stream(
    mut body: Incoming,
    each: &mut impl FnMut(LiveStreamItem) -> bool,
) -> Result<(), CommandError> {
    let mut text: Vec<u8> = Vec::new();
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                if !each(LiveStreamItem::Idle) { return Ok(()) }
                continue;
            }
        };
        let Some(frame) = frame else { return Ok(()) };
        let frame = frame.map_err(|_| unreachable_error())?;
        // Search only the new part for the end of a message, because a long message arrives in many
        // pieces.
        let mut from = text.len().saturating_sub(1);
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |bytes| bytes));
        while let Some(end) = text[from..].windows(2).position(|text| text == b"\n\n") {
            let message: Vec<u8> = text.drain(..from + end + 2).collect();
            from = 0;
            if !each(parse_live_message(&message)) {
                return Ok(());
            }
        }
    }
}

/// Parses one message of the live stream.
fn parse_live_message(text: &[u8]) -> LiveStreamItem {
    let text = String::from_utf8_lossy(text);
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::to_owned)
    };
    match field("data: ") {
        Some(data) => LiveStreamItem::Data {
            event: field("event: ").unwrap_or_default(),
            data,
        },
        None => LiveStreamItem::Heartbeat,
    }
}

async fn read_event_stream(
    mut body: Incoming,
    each: &mut dyn FnMut(EventStreamItem) -> Result<bool, CommandError>,
) -> Result<(), CommandError> {
    let mut text: Vec<u8> = Vec::new();
    // Catch Ctrl-C from here on, so that a Ctrl-C is not lost while `each` handles an event.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| {
        command_error(
            "io",
            format!("could not install the handler for Ctrl-C: {error}"),
            "close other programs and try again",
        )
    })?;
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = tokio::time::sleep(Duration::from_millis(250)) => {
                if !each(EventStreamItem::Idle)? { return Ok(()) }
                continue;
            }
            _ = interrupt.recv() => return Err(CommandError::Exit(130)),
        };
        let Some(frame) = frame else { return Ok(()) };
        let frame = frame.map_err(|_| unreachable_error())?;
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |bytes| bytes));
        while let Some(end) = text.windows(2).position(|window| window == b"\n\n") {
            let message: Vec<u8> = text.drain(..end + 2).collect();
            for line in message.split(|byte| *byte == b'\n') {
                if let Some(data) = line.strip_prefix(b"data: ")
                    && let Ok(event) = serde_json::from_slice(data)
                    && !each(EventStreamItem::Event(event))?
                {
                    return Ok(());
                }
            }
        }
    }
}

/// Returns the host and port in a daemon's URL, for the `Host` header.
fn host_of(url: &str) -> &str {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))
        .unwrap_or(url);
    rest.trim_end_matches('/')
}

async fn http_handshake<T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static>(
    io: T,
) -> Result<SendRequest<Full<Bytes>>, CommandError> {
    let (sender, connection) = http1::handshake(io)
        .await
        .map_err(|_| unreachable_error())?;
    tokio::spawn(async move {
        // If the connection breaks, `sender` reports the error, so this result is not needed.
        let _ended = connection.await;
    });
    Ok(sender)
}

fn parse_problem(status: u16, body: &[u8]) -> Problem {
    let found: Option<Problem> = serde_json::from_slice(body).ok();
    // The daemon's own hint about a missing token is for callers of its HTTP API, so replace it by
    // a hint for the command line.
    if let Some(found) = found.as_ref().filter(|problem| problem.code == "no_token") {
        let hint = "for another daemon (--server), set REGATTA_TOKEN to the content of the file \
            token in its data directory";
        return Problem::new(status, "no_token", found.message.clone(), hint);
    }
    found.unwrap_or_else(|| {
        let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
        Problem::new(
            status,
            "http",
            format!("the daemon answered {status}: {text}"),
            "the daemon may have another version than this command; restart the daemon: regatta up \
             --restart",
        )
    })
}

/// Returns the error of a command that needs the daemon but must not start the daemon, because a
/// person has stopped it.
pub(crate) fn daemon_stopped_error() -> CommandError {
    command_error(
        "down",
        "the daemon is down because somebody ran regatta down",
        "start the daemon and its agents: regatta up",
    )
}

fn unreachable_error() -> CommandError {
    command_error(
        "unreachable",
        "the daemon cannot be reached",
        "start the daemon: regatta up, or see what is wrong: regatta doctor",
    )
}

fn server_unreachable_error(server: &str, error: &std::io::Error) -> CommandError {
    command_error(
        "unreachable",
        format!("the daemon at {server} cannot be reached: {error}"),
        "check the address in --server or REGATTA_SERVER, and that the daemon runs there",
    )
}

/// Returns `host:port` of a daemon's URL. Without a port, the usual port of http or https is used.
fn server_address(server: &str) -> Result<String, CommandError> {
    let uri = server.parse::<hyper::Uri>().ok();
    let default_port = uri.as_ref().and_then(|uri| match uri.scheme_str() {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    });
    let authority = uri.as_ref().and_then(hyper::Uri::authority);
    let (Some(authority), Some(default_port)) = (authority, default_port) else {
        let hint = "write the address as regatta up prints it, such as http://127.0.0.1:7777";
        return Err(usage_error(
            format!("{server:?} is not the address of a daemon"),
            hint,
        ));
    };
    Ok(format!(
        "{}:{}",
        authority.host(),
        authority.port_u16().unwrap_or(default_port)
    ))
}

fn timeout_error() -> CommandError {
    command_error(
        "timed_out",
        "the command took longer than --timeout allows",
        "allow more time: --timeout 10m",
    )
}

/// The maximum time that a daemon takes to stop: the time that its agents have for ending, and one
/// more minute.
pub(crate) const MAX_STOP_DURATION: Duration = Duration::from_secs(660);

/// Returns a random key by which the daemon recognizes a repeated request.
fn new_idempotency_key() -> String {
    daemon::random_hex(16)
        .unwrap_or_else(|_| format!("{}-{:?}", std::process::id(), std::time::Instant::now()))
}

/// Starts the daemon in the background and waits until it is ready. If several processes call this
/// function at the same time, only one process starts a daemon.
pub(crate) fn start_daemon(data_dir: &Path, flags: &[OsString]) -> Result<(), CommandError> {
    let daemon_dir = DataDir::new(data_dir);
    daemon_dir.create()?;
    let start_lock = daemon_dir.path.join("start.lock");
    let start_lock = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&start_lock)
        .map_err(|error| daemon_dir.io_error(&error))?;
    rustix::fs::flock(&start_lock, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|errno| daemon_dir.io_error(&errno.into()))?;
    let client = Client::disconnected(data_dir, None, None)?;
    // Another process may have started the daemon meanwhile, or the previous daemon may still be
    // stopping. Wait until a daemon answers or the data directory is free.
    let deadline = Instant::now() + MAX_STOP_DURATION;
    loop {
        if client.is_up() {
            return Ok(());
        }
        if !daemon_dir.is_locked()? || Instant::now() > deadline {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let exe = std::env::current_exe().map_err(|error| {
        command_error(
            "io",
            format!("could not find the path of this program: {error}"),
            "call regatta by its full path",
        )
    })?;
    let log = daemon_dir.log_path();
    let log_file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&log)
        .map_err(|error| daemon_dir.io_error(&error))?;
    let log_start = log_file.metadata().map_or(0, |metadata| metadata.len());
    let mut child = Command::new(exe)
        .args(["serve", "--json"])
        .args(flags)
        .env("REGATTA_DATA_DIR", data_dir)
        .env_remove("REGATTA_AGENT")
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .spawn()
        .map_err(|error| {
            command_error(
                "io",
                format!("could not start the daemon: {error}"),
                "see what is wrong: regatta doctor",
            )
        })?;
    let mut first_line = String::new();
    if let Some(stdout) = child.stdout.take() {
        // If reading fails, `first_line` stays empty, and the code below treats the daemon as not
        // ready.
        let _read = BufReader::new(stdout).read_line(&mut first_line);
    }
    if first_line.contains("\"kind\":\"ready\"") {
        return Ok(());
    }
    // The daemon ended before it was ready. Its last line on standard error is a JSON object with
    // the reason, unless the disk was full.
    let _status = child.wait();
    Err(last_log_error(&log, log_start).unwrap_or_else(|| {
        if daemon_dir.is_disk_full() {
            daemon_dir.io_error(&std::io::ErrorKind::StorageFull.into())
        } else {
            command_error(
                "io",
                "the daemon ended before it was ready",
                format!("read the daemon's log: {}", log.display()),
            )
        }
    }))
}

/// Returns the last error in the daemon's log after the byte offset `start`. Earlier errors belong
/// to earlier daemons.
fn last_log_error(log: &Path, start: u64) -> Option<CommandError> {
    #[derive(serde::Deserialize)]
    struct Envelope {
        error: Body,
    }
    #[derive(serde::Deserialize)]
    struct Body {
        code: String,
        message: String,
        hint: String,
    }
    let mut file = std::fs::File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(start.max(length.saturating_sub(16 * 1024))))
        .ok()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let envelope: Envelope = text
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str(line).ok())?;
    Some(command_error(
        &envelope.error.code,
        envelope.error.message,
        envelope.error.hint,
    ))
}
