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
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use regatta_api::verb::TypedCall;
use regatta_api::view::{AgentView, EventView, ShowAnswer, TaskView, VerbAnswer};
use regatta_api::{Call, Problem, call, input};
use regatta_core::attempt::Attempt;
use regatta_core::ids::{AgentName, AttemptId, TaskId};
use reqwest::{ClientBuilder, Method, Response, Url, redirect};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::daemon::{self, DataDir, ShortPath};
use crate::output::{
    CommandError, Output, command_error, internal_error, own_executable, runtime_error, usage_error,
};
use crate::server_sent_events::MessageStream;
use crate::tls_client;

/// Time for which an unused connection is kept. It is shorter than the time after which the daemon
/// closes such a connection.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of one daemon, which keeps its connections.
pub(crate) struct Client {
    runtime: Runtime,
    http: OnceLock<HttpConnections>,
    data_dir: DataDir,
    /// The address of another machine's daemon, from `--server`. `None` means the daemon of
    /// `data_dir`.
    server: Option<String>,
    token: String,
    timeout: Option<Duration>,
    /// True if the client must not start a daemon that a person has stopped.
    is_read_only: bool,
    /// Where the client reports that it started the daemon. `None` reports nothing.
    notes: Option<Output>,
}

/// The connections to a daemon, over its unix socket or to another machine.
struct HttpConnections {
    client: reqwest::Client,
    /// The part of every URL before the path, such as `https://regatta.example:7777`.
    base_url: String,
    /// Keeps the directory open through which a socket with a long path is reached.
    _socket: Option<ShortPath>,
}

/// The daemon's answer to a call: its data, and the revision (number of the last event) to which
/// the data belongs.
#[derive(Debug)]
pub(crate) struct CallReply<T> {
    pub(crate) revision: u64,
    pub(crate) data: T,
}

impl Client {
    /// Connects to the daemon of a data directory, and starts the daemon if none is running. Prints
    /// a note to `notes` if it starts the daemon.
    pub(crate) fn connect(
        data_dir: &Path,
        server: Option<String>,
        timeout: Option<Duration>,
        notes: Option<&Output>,
    ) -> Result<Client, CommandError> {
        let client = Client::disconnected(data_dir, server, timeout)?.with_notes(notes);
        if client.server.is_some() {
            return client.with_token();
        }
        if !client.is_up() {
            start_daemon_with_note(&client.data_dir, notes)?;
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
            .build()
            .map_err(runtime_error)?;
        Ok(Client {
            runtime,
            http: OnceLock::new(),
            data_dir: DataDir::new(data_dir),
            server,
            token: String::new(),
            timeout,
            is_read_only: false,
            notes: None,
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
    /// An open socket does not prove that a daemon runs. If a daemon is killed while it starts a
    /// program, the child process keeps the socket open until the child calls exec.
    pub(crate) fn is_up(&self) -> bool {
        let check = async {
            let answer = self.send(Method::GET, "/healthz", &[], Vec::new()).await;
            answer.is_ok()
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

    /// Returns the connections to the daemon. They are set up when the first request is sent.
    fn http(&self) -> Result<&HttpConnections, CommandError> {
        if let Some(http) = self.http.get() {
            return Ok(http);
        }
        let http = match &self.server {
            Some(server) => {
                let url = server_url(server)?;
                HttpConnections {
                    client: build_client(http_builder(url.scheme() == "https")?)?,
                    base_url: url.origin().ascii_serialization(),
                    _socket: None,
                }
            }
            None => {
                let socket = self.data_dir.short_socket()?;
                HttpConnections {
                    client: build_client(http_builder(false)?.unix_socket(socket.path()))?,
                    base_url: "http://localhost".to_owned(),
                    _socket: Some(socket),
                }
            }
        };
        Ok(self.http.get_or_init(|| http))
    }

    /// Sends a request over the unix socket or to another machine. If the socket cannot be reached,
    /// sends the request to the loopback address.
    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, String)],
        body: Vec<u8>,
    ) -> Result<Response, CommandError> {
        let http = self.http()?;
        let person = std::env::var("USER").unwrap_or_else(|_| "operator".into());
        let request = http
            .client
            .request(method, format!("{}{path}", http.base_url))
            .header("authorization", format!("Bearer {}", self.token))
            .header("x-regatta-person", person);
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, value)
        });
        let request = request.body(body).build().map_err(|error| {
            internal_error(format!("could not build the request for {path}: {error}"))
        })?;
        let loopback_request = request.try_clone();
        match (http.client.execute(request).await, loopback_request) {
            (Ok(response), _) => Ok(response),
            (Err(error), Some(mut request)) if error.is_connect() && self.server.is_none() => {
                // Read the address file only if a daemon holds the lock. A killed daemon leaves its
                // address file behind, and another program, which must not receive the token, may
                // use the port by now.
                if !self.data_dir.is_locked()? {
                    return Err(unreachable_error());
                }
                let daemon_info = daemon::read_daemon_info(&self.data_dir);
                let url = daemon_info
                    .and_then(|info| Url::parse(&format!("http://{}{path}", info.address())).ok());
                *request.url_mut() = url.ok_or_else(unreachable_error)?;
                let loopback = build_client(http_builder(false)?)?;
                let answer = loopback.execute(request).await;
                answer.map_err(|_| unreachable_error())
            }
            (Err(error), _) => Err(self.send_error(&error)),
        }
    }

    /// Returns the error of a request that got no answer.
    fn send_error(&self, error: &reqwest::Error) -> CommandError {
        let Some(server) = self.server.as_ref().filter(|_| error.is_connect()) else {
            return unreachable_error();
        };
        match tls_client::find_tls_error(error) {
            Some(tls_error) => tls_client::untrusted_error(server, tls_error),
            None => server_unreachable_error(server, &tls_client::innermost_cause(error)),
        }
    }

    /// Reads the body of an answer. An answer with an error status becomes an error.
    async fn read_body(response: Response) -> Result<Bytes, CommandError> {
        let status = response.status();
        let body = response.bytes().await.map_err(|_| unreachable_error())?;
        if status.is_success() {
            Ok(body)
        } else {
            Err(parse_problem(status.as_u16(), &body).into())
        }
    }

    /// Returns this client, changed so that it never starts a daemon after a person has stopped the
    /// daemon.
    pub(crate) fn read_only(self) -> Client {
        Client {
            is_read_only: true,
            ..self
        }
    }

    /// Returns this client, changed so that it prints a note when it starts a daemon.
    pub(crate) fn with_notes(self, notes: Option<&Output>) -> Client {
        Client {
            notes: notes.cloned(),
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
            let content_type = ("content-type", "application/json".to_owned());
            let headers = [&[content_type], headers].concat();
            let response = self.send(Method::POST, path, &headers, body).await?;
            let status = response.status().as_u16();
            let body = response.bytes().await.map_err(|_| unreachable_error())?;
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
        parse_answer(&self.send_call(&call.into_call(), true)?)
    }

    /// Performs a call of a verb that is known only at run time, such as the verb of a choice in
    /// the inbox.
    pub(crate) fn call_any(&self, call: &Call) -> Result<CallReply<Value>, CommandError> {
        parse_answer(&self.send_call(call, true)?)
    }

    /// Returns a task as the verb `show` shows it.
    pub(crate) fn show_task(&self, id: TaskId) -> Result<TaskView, CommandError> {
        match self.show(id.to_string())? {
            ShowAnswer::Task(task) => Ok(*task),
            _ => Err(wrong_kind_error("task")),
        }
    }

    /// Returns an attempt as the verb `show` shows it.
    pub(crate) fn show_attempt(&self, id: AttemptId) -> Result<Attempt, CommandError> {
        match self.show(id.to_string())? {
            ShowAnswer::Attempt(attempt) => Ok(*attempt),
            _ => Err(wrong_kind_error("attempt")),
        }
    }

    /// Returns an agent as the verb `show` shows it.
    pub(crate) fn show_agent(&self, name: &AgentName) -> Result<AgentView, CommandError> {
        match self.show(name.to_string())? {
            ShowAnswer::Agent(agent) => Ok(*agent),
            _ => Err(wrong_kind_error("agent")),
        }
    }

    fn show(&self, id: String) -> Result<ShowAnswer, CommandError> {
        Ok(self.call(call::Show(input::IdInput { id }))?.data)
    }

    /// Performs a call without starting a daemon. Returns `None` if no daemon can be reached.
    pub(crate) fn call_while_up<C: TypedCall>(
        &self,
        call: C,
    ) -> Result<Option<CallReply<C::Output>>, CommandError>
    where
        C::Output: DeserializeOwned,
    {
        self.send_while_up(&call.into_call())
    }

    /// Performs a call like [`Client::call_while_up`], of a verb that is known only at run time.
    pub(crate) fn call_any_while_up(
        &self,
        call: &Call,
    ) -> Result<Option<CallReply<Value>>, CommandError> {
        self.send_while_up(call)
    }

    fn send_while_up<T: DeserializeOwned>(
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
            internal_error(format!("could not encode the request as JSON: {error}"))
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
                        // If the daemon has ended during the call, start another daemon on the same
                        // data. A command that only reads starts none after a person has stopped
                        // the daemon.
                        if self
                            .send(Method::GET, "/healthz", &[], Vec::new())
                            .await
                            .is_err()
                        {
                            if self.is_read_only && self.data_dir.is_stopped() {
                                return Err(daemon_stopped_error());
                            }
                            let (dir, notes) = (self.data_dir.clone(), self.notes.clone());
                            tokio::task::spawn_blocking(move || {
                                start_daemon_with_note(&dir, notes.as_ref())
                            })
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

    async fn send_once(&self, path: &str, key: &str, body: Vec<u8>) -> Result<Bytes, CommandError> {
        let headers = [
            ("content-type", "application/json".to_owned()),
            ("idempotency-key", key.to_owned()),
        ];
        Client::read_body(self.send(Method::POST, path, &headers, body).await?).await
    }

    /// Opens a stream of server-sent events.
    fn open_stream(&self, path: &str) -> Result<MessageStream, CommandError> {
        self.block_on(async {
            let response = self.send(Method::GET, path, &[], Vec::new()).await?;
            if response.status().is_success() {
                return Ok(MessageStream::new(response));
            }
            Err(match Client::read_body(response).await {
                Ok(_) => unreachable_error(),
                Err(error) => error,
            })
        })
    }

    /// Reads the events after the revision `after` and passes each event to `each`, until `each`
    /// returns false. Without `follow`, reading ends at the last event.
    pub(crate) fn stream_events(
        &self,
        after: u64,
        follow: bool,
        mut each: impl FnMut(EventStreamItem) -> Result<bool, CommandError>,
    ) -> Result<(), CommandError> {
        let path = format!("/api/v1/events?after={after}&follow={follow}");
        let mut stream = self.open_stream(&path)?;
        // Catch Ctrl-C from here on, so that a Ctrl-C is not lost while `each` handles an event.
        let interrupt = {
            let _context = self.runtime.enter();
            signal(SignalKind::interrupt())
        };
        let mut interrupt = interrupt.map_err(|error| {
            command_error(
                "io",
                format!("could not install the handler for Ctrl-C: {error}"),
                "close other programs and try again",
            )
        })?;
        loop {
            // `each` runs outside of the runtime, so that it can make calls with this client.
            let message = self.block_on(async {
                tokio::select! {
                    message = stream.next_message() => message.map(Some),
                    () = tokio::time::sleep(Duration::from_millis(250)) => Ok(None),
                    _ = interrupt.recv() => Err(CommandError::Exit(130)),
                }
            })?;
            let is_wanted = match message {
                Some(Some(message)) => read_events(&message, &mut each)?,
                Some(None) => return Ok(()),
                None => each(EventStreamItem::Idle)?,
            };
            if !is_wanted {
                return Ok(());
            }
        }
    }

    /// Reads the daemon's live stream of changed data, limited to these topics (kinds of data,
    /// separated by commas), until the stream ends or `each` returns false.
    pub(crate) fn stream_live(
        &self,
        topics: &str,
        mut each: impl FnMut(LiveStreamItem) -> bool,
    ) -> Result<(), CommandError> {
        let mut stream = self.open_stream(&format!("/api/v1/live?topics={topics}"))?;
        loop {
            let idle_time = Duration::from_millis(100);
            let message = self
                .block_on(async { tokio::time::timeout(idle_time, stream.next_message()).await });
            let item = match message {
                Ok(Ok(Some(message))) => parse_live_message(&message),
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(_elapsed) => LiveStreamItem::Idle,
            };
            if !each(item) {
                return Ok(());
            }
        }
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

fn wrong_kind_error(expected: &str) -> CommandError {
    let error = format!("the daemon showed something else than the {expected}");
    invalid_answer_error(&serde::de::Error::custom(error))
}

pub(crate) fn invalid_answer_error(error: &serde_json::Error) -> CommandError {
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

/// Passes the events of a message to `each`. Returns false if `each` wants no more events.
fn read_events(
    message: &[u8],
    each: &mut impl FnMut(EventStreamItem) -> Result<bool, CommandError>,
) -> Result<bool, CommandError> {
    for line in message.split(|byte| *byte == b'\n') {
        if let Some(data) = line.strip_prefix(b"data: ")
            && let Ok(event) = serde_json::from_slice(data)
            && !each(EventStreamItem::Event(event))?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns a builder of HTTP clients, with the settings that all connections to a daemon share.
fn http_builder(is_tls: bool) -> Result<ClientBuilder, CommandError> {
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(tls_client::config(is_tls)?)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .pool_idle_timeout(POOL_IDLE_TIMEOUT))
}

fn build_client(builder: ClientBuilder) -> Result<reqwest::Client, CommandError> {
    builder
        .build()
        .map_err(|error| internal_error(format!("could not create the HTTP client: {error}")))
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

/// The message of commands that need the daemon after a person has stopped it.
pub(crate) const STOPPED_DAEMON_TEXT: &str =
    "the daemon is stopped, because somebody ran regatta down; all work is kept";

/// Returns the error of a command that needs the daemon but must not start the daemon, because a
/// person has stopped it.
pub(crate) fn daemon_stopped_error() -> CommandError {
    command_error(
        "down",
        STOPPED_DAEMON_TEXT,
        "start the daemon and its agents: regatta up",
    )
}

pub(crate) fn unreachable_error() -> CommandError {
    command_error(
        "unreachable",
        "the daemon cannot be reached",
        "start the daemon: regatta up, or see what is wrong: regatta doctor",
    )
}

fn server_unreachable_error(server: &str, error: &str) -> CommandError {
    command_error(
        "unreachable",
        format!("the daemon at {server} cannot be reached: {error}"),
        "check the address in --server or REGATTA_SERVER, and that the daemon runs there",
    )
}

/// Parses the URL of a daemon on another machine.
fn server_url(server: &str) -> Result<Url, CommandError> {
    let url = Url::parse(server).ok();
    let url = url.filter(|url| url.has_host() && ["http", "https"].contains(&url.scheme()));
    url.ok_or_else(|| {
        let hint = "write the address as regatta up prints it, such as http://127.0.0.1:7777";
        usage_error(format!("{server:?} is not the address of a daemon"), hint)
    })
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

/// Starts the daemon for a command that needs it, and prints a note, because agents start to work
/// with the daemon and the daemon stays after the command.
fn start_daemon_with_note(data_dir: &DataDir, notes: Option<&Output>) -> Result<(), CommandError> {
    let was_stopped = data_dir.is_stopped();
    let has_started = start_daemon(&data_dir.path, &[])?;
    if let Some(notes) = notes.filter(|_| has_started) {
        notes.print_note(if was_stopped {
            "started the daemon, which somebody had stopped, and its agents; to stop them: regatta \
             down"
        } else {
            "started the daemon, which was not running; to stop it: regatta down"
        });
    }
    Ok(())
}

/// Starts the daemon in the background and waits until it is ready. If several processes call this
/// function at the same time, only one process starts a daemon. Returns whether this call started
/// the daemon.
pub(crate) fn start_daemon(data_dir: &Path, flags: &[OsString]) -> Result<bool, CommandError> {
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
            return Ok(false);
        }
        if !daemon_dir.is_locked()? || Instant::now() > deadline {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let exe = own_executable()?;
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
        return Ok(true);
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
