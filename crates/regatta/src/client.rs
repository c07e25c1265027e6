//! Talking to the daemon: over its unix socket if it can be had, else over loopback; starting it if need be.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use regatta_api::view::{Answer, EventView};
use regatta_api::{Call, Problem};
use serde::de::DeserializeOwned;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::daemon::{self, Place};
use crate::out::{Failed, failed, usage};

/// A way to the daemon.
pub(crate) struct Client {
    runtime: Runtime,
    place: Place,
    /// Another machine's daemon, if one was named.
    server: Option<String>,
    token: String,
    timeout: Option<Duration>,
    /// Whether it may not start a daemon that a person has stopped.
    only_looks: bool,
}

/// What a call gave.
#[derive(Debug)]
pub(crate) struct Got<T> {
    pub(crate) revision: u64,
    pub(crate) data: T,
}

impl Client {
    /// Finds the daemon of a data directory, starting it if it is not there.
    pub(crate) fn connect(
        data_dir: &Path,
        server: Option<String>,
        timeout: Option<Duration>,
    ) -> Result<Client, Failed> {
        let client = Client::idle(data_dir, server, timeout)?;
        if client.server.is_some() {
            return client.with_token();
        }
        if !client.is_up() {
            start(data_dir, &[])?;
        }
        client.with_token()
    }

    /// Finds the daemon of a data directory; `None` when it is not running.
    pub(crate) fn find(data_dir: &Path, timeout: Option<Duration>) -> Result<Option<Client>, Failed> {
        let client = Client::idle(data_dir, None, timeout)?;
        if client.is_up() { client.with_token().map(Some) } else { Ok(None) }
    }

    fn idle(data_dir: &Path, server: Option<String>, timeout: Option<Duration>) -> Result<Client, Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|it| {
            failed("io", format!("the machine gives no more resources: {it}"), "close something and try again")
        })?;
        Ok(Client { runtime, place: Place::new(data_dir), server, token: String::new(), timeout, only_looks: false })
    }

    /// Another machine's daemon, with a token for it.
    pub(crate) fn remote(server: &str, token: &str, timeout: Duration) -> Result<Client, Failed> {
        let client = Client::idle(Path::new(""), Some(server.to_owned()), Some(timeout))?;
        Ok(client.speaking_with(token.to_owned()))
    }

    fn with_token(mut self) -> Result<Client, Failed> {
        self.token = match (&self.server, std::env::var("REGATTA_TOKEN")) {
            (Some(_), Ok(token)) => token,
            _ => daemon::read_token(&self.place)?,
        };
        Ok(self)
    }

    /// Whether a daemon answers. That its socket can be opened says too little: a child that a killed daemon was
    /// about to start has the socket too, until it becomes another program, and a caller would be told of a daemon
    /// that is dead.
    pub(crate) fn is_up(&self) -> bool {
        let answers = async {
            let Ok(mut sender) = self.open().await else { return false };
            let Ok(request) = self.request("GET", "/healthz").body(Full::default()) else { return false };
            sender.send_request(request).await.is_ok()
        };
        self.runtime.block_on(async {
            match self.timeout {
                // Somebody is there and is slow: the call itself says that it took too long.
                Some(timeout) => tokio::time::timeout(timeout, answers).await.unwrap_or(true),
                None => answers.await,
            }
        })
    }

    async fn open(&self) -> Result<SendRequest<Full<Bytes>>, Failed> {
        let address = match &self.server {
            Some(url) => address_of(url)?,
            None => {
                if let Ok(stream) = UnixStream::connect(self.place.short_socket()?.path()).await {
                    return shake_hands(TokioIo::new(stream)).await;
                }
                // A killed daemon leaves its card behind, and anybody may have its port by now: nobody is shown the
                // token there.
                if !self.place.is_taken()? {
                    return Err(unreachable());
                }
                daemon::read_card(&self.place).map(|it| it.address()).ok_or_else(unreachable)?
            }
        };
        let secure = self.server.as_ref().is_some_and(|it| it.starts_with("https://"));
        let stream = TcpStream::connect(&address).await.map_err(|error| match &self.server {
            Some(url) => unreachable_at(url, &error),
            None => unreachable(),
        })?;
        if secure {
            return shake_hands(TokioIo::new(crate::secure::connect(&address, stream).await?)).await;
        }
        shake_hands(TokioIo::new(stream)).await
    }

    fn request(&self, method: &str, path: &str) -> hyper::http::request::Builder {
        let host = self.server.as_deref().map_or("localhost", host_of);
        hyper::Request::builder()
            .method(method)
            .uri(path)
            .header("host", host)
            .header("authorization", format!("Bearer {}", self.token))
            .header("x-regatta-person", std::env::var("USER").unwrap_or_else(|_| "operator".into()))
    }

    /// Returns a client that does not start a daemon which a person has stopped.
    pub(crate) fn only_looking(self) -> Client {
        Client { only_looks: true, ..self }
    }

    /// The same daemon, shown another token.
    pub(crate) fn speaking_with(self, token: String) -> Client {
        Client { token, ..self }
    }

    /// Sends a message as it is; gives the status and the body.
    pub(crate) fn exchange(
        &self,
        path: &str,
        headers: &[(&str, String)],
        body: Vec<u8>,
    ) -> Result<(u16, Bytes), Failed> {
        let exchange = async {
            let mut sender = self.open().await?;
            let request = self.request("POST", path).header("content-type", "application/json");
            let request = headers.iter().fold(request, |it, (name, value)| it.header(*name, value));
            let request =
                request.body(Full::from(body)).map_err(|it| failed("bug", it.to_string(), "please report this"))?;
            let response = sender.send_request(request).await.map_err(|_| unreachable())?;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.map_err(|_| unreachable())?.to_bytes();
            Ok((status, body))
        };
        self.runtime.block_on(async {
            match self.timeout {
                Some(timeout) => tokio::time::timeout(timeout, exchange).await.map_err(|_| timed_out())?,
                None => exchange.await,
            }
        })
    }

    /// Carries out a call. A write that loses its connection is asked again under the same key: it happens once.
    pub(crate) fn call<T: DeserializeOwned>(&self, call: &Call) -> Result<Got<T>, Failed> {
        self.carry_out(call, true)
    }

    /// Carries out a call on the daemon that is there; `None` when it went away, which nobody then starts again.
    pub(crate) fn call_while_up<T: DeserializeOwned>(&self, call: &Call) -> Result<Option<Got<T>>, Failed> {
        match self.carry_out(call, false) {
            Ok(got) => Ok(Some(got)),
            Err(Failed::Problem(it)) if it.code == "unreachable" => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn carry_out<T: DeserializeOwned>(&self, call: &Call, restart: bool) -> Result<Got<T>, Failed> {
        read_answer(&self.ask(call, restart)?)
    }

    /// Sends a call and returns the answer's text. Not generic, so that it is compiled once and not for each view.
    fn ask(&self, call: &Call, restart: bool) -> Result<Bytes, Failed> {
        let body = call.to_json().map_err(|it| failed("bug", it.to_string(), "please report this"))?;
        let path = format!("/api/v1/{}", call.verb().name);
        let key = new_key();
        let once = async {
            for round in 0.. {
                match self.send(&path, &key, body.clone()).await {
                    Err(Failed::Problem(it))
                        if restart && it.code == "unreachable" && round < 3 && self.server.is_none() =>
                    {
                        // The daemon went away in the middle: another one takes over the same store, unless a person
                        // has stopped it.
                        if self.open().await.is_err() {
                            if self.only_looks && self.place.is_stopped() {
                                return Err(stopped());
                            }
                            let dir = self.place.dir.clone();
                            tokio::task::spawn_blocking(move || start(&dir, &[]))
                                .await
                                .map_err(|_| unreachable())??;
                        }
                    }
                    other => return other,
                }
            }
            Err(unreachable())
        };
        self.runtime.block_on(async {
            match self.timeout {
                Some(timeout) => tokio::time::timeout(timeout, once).await.map_err(|_| timed_out())?,
                None => once.await,
            }
        })
    }

    /// Carries out a call from within [`Client::events`], whose loop is busy on this thread: on a thread and
    /// a connection of its own.
    pub(crate) fn call_aside<T: DeserializeOwned + Send + 'static>(&self, call: Call) -> Result<Got<T>, Failed> {
        let (dir, server) = (self.place.dir.clone(), self.server.clone());
        let asked = std::thread::spawn(move || Client::connect(&dir, server, None)?.call(&call));
        asked.join().map_err(|_| failed("bug", "a call broke down", "please report this"))?
    }

    async fn send(&self, path: &str, key: &str, body: Vec<u8>) -> Result<Bytes, Failed> {
        let mut sender = self.open().await?;
        let request =
            self.request("POST", path).header("content-type", "application/json").header("idempotency-key", key);
        let request =
            request.body(Full::from(body)).map_err(|it| failed("bug", it.to_string(), "please report this"))?;
        let response = sender.send_request(request).await.map_err(|_| unreachable())?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|_| unreachable())?.to_bytes();
        if status.is_success() { Ok(body) } else { Err(problem(status.as_u16(), &body).into()) }
    }

    /// Reads events after a revision; `each` says whether to go on. Without `follow` it ends with the last one.
    pub(crate) fn events(
        &self,
        after: u64,
        follow: bool,
        mut each: impl FnMut(Seen) -> Result<bool, Failed>,
    ) -> Result<(), Failed> {
        self.runtime.block_on(async {
            let mut sender = self.open().await?;
            let path = format!("/api/v1/events?after={after}&follow={follow}");
            let request = self
                .request("GET", &path)
                .body(Full::default())
                .map_err(|it| failed("bug", it.to_string(), "please report this"))?;
            let response = sender.send_request(request).await.map_err(|_| unreachable())?;
            let status = response.status();
            if !status.is_success() {
                let body = response.into_body().collect().await.map_err(|_| unreachable())?.to_bytes();
                return Err(problem(status.as_u16(), &body).into());
            }
            read_events(response.into_body(), &mut each).await
        })
    }

    /// Looks at topics of the live stream; `each` says whether to go on. It ends when the stream does.
    pub(crate) fn live(&self, topics: &str, mut each: impl FnMut(Message) -> bool) -> Result<(), Failed> {
        self.runtime.block_on(async {
            let mut sender = self.open().await?;
            let request = self
                .request("GET", &format!("/api/v1/live?topics={topics}"))
                .body(Full::default())
                .map_err(|it| failed("bug", it.to_string(), "please report this"))?;
            let response = sender.send_request(request).await.map_err(|_| unreachable())?;
            let status = response.status();
            if !status.is_success() {
                let body = response.into_body().collect().await.map_err(|_| unreachable())?.to_bytes();
                return Err(problem(status.as_u16(), &body).into());
            }
            read_messages(response.into_body(), &mut each).await
        })
    }

    /// Where the daemon is, for people.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }
}

/// Reads the answer to a call.
fn read_answer<T: DeserializeOwned>(text: &[u8]) -> Result<Got<T>, Failed> {
    let answer: Answer<T> = serde_json::from_slice(text).map_err(|error| bad_answer(&error))?;
    Ok(Got { revision: answer.revision, data: answer.data })
}

fn bad_answer(error: &serde_json::Error) -> Failed {
    failed(
        "bug",
        format!("the daemon's answer cannot be read: {error}"),
        "the daemon may be of another version: regatta up --restart",
    )
}

/// What a reader of events sees.
#[derive(Debug)]
pub(crate) enum Seen {
    Event(Box<EventView>),
    /// Nothing for a moment: time to redraw, or to look at the clock.
    Quiet,
}

/// What a reader of the live stream sees.
#[derive(Debug)]
pub(crate) enum Message {
    Data {
        /// `reset`, or nothing for a frame.
        event: String,
        data: String,
    },
    /// The daemon says that it is there.
    Alive,
    /// Nothing for a moment.
    Quiet,
}

async fn read_messages(mut body: Incoming, each: &mut impl FnMut(Message) -> bool) -> Result<(), Failed> {
    let mut text: Vec<u8> = Vec::new();
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                if !each(Message::Quiet) { return Ok(()) }
                continue;
            }
        };
        let Some(frame) = frame else { return Ok(()) };
        let frame = frame.map_err(|_| unreachable())?;
        // Only what is new can hold the end of a message: a frame may be long and come in many pieces.
        let mut from = text.len().saturating_sub(1);
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |it| it));
        while let Some(end) = text[from..].windows(2).position(|it| it == b"\n\n") {
            let message: Vec<u8> = text.drain(..from + end + 2).collect();
            from = 0;
            if !each(message_of(&message)) {
                return Ok(());
            }
        }
    }
}

/// One message of a stream: its event's name and its data.
fn message_of(text: &[u8]) -> Message {
    let text = String::from_utf8_lossy(text);
    let of = |name: &str| text.lines().find_map(|it| it.strip_prefix(name)).map(str::to_owned);
    match of("data: ") {
        Some(data) => Message::Data { event: of("event: ").unwrap_or_default(), data },
        None => Message::Alive,
    }
}

async fn read_events(mut body: Incoming, each: &mut impl FnMut(Seen) -> Result<bool, Failed>) -> Result<(), Failed> {
    let mut text: Vec<u8> = Vec::new();
    // Listened to from here on without a gap: a Ctrl-C that comes while an event is drawn counts as well.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|it| failed("io", it.to_string(), "try again"))?;
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = tokio::time::sleep(Duration::from_millis(250)) => {
                if !each(Seen::Quiet)? { return Ok(()) }
                continue;
            }
            _ = interrupt.recv() => return Err(Failed::Code(130)),
        };
        let Some(frame) = frame else { return Ok(()) };
        let frame = frame.map_err(|_| unreachable())?;
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |it| it));
        while let Some(end) = text.windows(2).position(|it| it == b"\n\n") {
            let message: Vec<u8> = text.drain(..end + 2).collect();
            for line in message.split(|it| *it == b'\n') {
                if let Some(data) = line.strip_prefix(b"data: ")
                    && let Ok(event) = serde_json::from_slice(data)
                    && !each(Seen::Event(event))?
                {
                    return Ok(());
                }
            }
        }
    }
}

/// Host and port of a daemon's address.
fn host_of(url: &str) -> &str {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or(url);
    rest.trim_end_matches('/')
}

async fn shake_hands<T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static>(
    io: T,
) -> Result<SendRequest<Full<Bytes>>, Failed> {
    let (sender, connection) = http1::handshake(io).await.map_err(|_| unreachable())?;
    tokio::spawn(async move {
        // Its end shows at the sender.
        let _ended = connection.await;
    });
    Ok(sender)
}

fn problem(status: u16, body: &[u8]) -> Problem {
    let found: Option<Problem> = serde_json::from_slice(body).ok();
    // The daemon's hint is for callers of its HTTP interface.
    if let Some(found) = found.as_ref().filter(|problem| problem.code == "no_token") {
        let hint =
            "for another daemon (--server), set REGATTA_TOKEN to what the file token in its data directory holds";
        return Problem::new(status, "no_token", found.message.clone(), hint);
    }
    found.unwrap_or_else(|| {
        let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
        Problem::new(
            status,
            "http",
            format!("the daemon answered {status}: {text}"),
            "the daemon may be of another version: regatta up --restart",
        )
    })
}

/// The error for a command that may not start a daemon which a person has stopped.
pub(crate) fn stopped() -> Failed {
    let what = "the daemon is down: somebody stopped it with regatta down";
    failed("down", what, "start it, and its agents go on: regatta up")
}

fn unreachable() -> Failed {
    failed("unreachable", "the daemon cannot be reached", "start it: regatta up, or see what is wrong: regatta doctor")
}

fn unreachable_at(server: &str, error: &std::io::Error) -> Failed {
    let what = format!("the daemon at {server} cannot be reached: {error}");
    failed(
        "unreachable",
        what,
        "check the address behind --server or in REGATTA_SERVER, and that the daemon is up there",
    )
}

/// Returns the host and port of a server's address.
fn address_of(server: &str) -> Result<String, Failed> {
    let uri = server.parse::<hyper::Uri>().ok();
    let default_port = uri.as_ref().and_then(|uri| match uri.scheme_str() {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    });
    let authority = uri.as_ref().and_then(hyper::Uri::authority);
    let (Some(authority), Some(default_port)) = (authority, default_port) else {
        let hint = "write it like http://127.0.0.1:7777, as regatta up prints it";
        return Err(usage(format!("{server:?} is not the address of a daemon"), hint));
    };
    Ok(format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(default_port)))
}

fn timed_out() -> Failed {
    failed("timed_out", "it took longer than --timeout allows", "give it longer: --timeout 10m")
}

/// The longest a daemon takes to end: its agents' grace and a little more.
pub(crate) const LONGEST_END: Duration = Duration::from_secs(660);

/// A key for one request, from the kernel's own dice.
fn new_key() -> String {
    daemon::random_hex(16).unwrap_or_else(|_| format!("{}-{:?}", std::process::id(), std::time::Instant::now()))
}

/// Starts the daemon in the background and waits until it is ready. Of several callers at once, one starts it.
pub(crate) fn start(data_dir: &Path, flags: &[OsString]) -> Result<(), Failed> {
    let place = Place::new(data_dir);
    place.make()?;
    let gate = place.dir.join("start.lock");
    let gate = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&gate)
        .map_err(|it| place.broken(&it))?;
    rustix::fs::flock(&gate, rustix::fs::FlockOperation::LockExclusive).map_err(|it| place.broken(&it.into()))?;
    let client = Client::idle(data_dir, None, None)?;
    // Somebody else was first, or the daemon before this one is still on its way out.
    let patience = Instant::now() + LONGEST_END;
    loop {
        if client.is_up() {
            return Ok(());
        }
        if !place.is_taken()? || Instant::now() > patience {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let exe = std::env::current_exe()
        .map_err(|it| failed("io", format!("this program cannot find itself: {it}"), "start it by its full path"))?;
    let log = place.log();
    let errors =
        std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&log).map_err(|it| place.broken(&it))?;
    let begins = errors.metadata().map_or(0, |it| it.len());
    let mut child = Command::new(exe)
        .args(["serve", "--json"])
        .args(flags)
        .env("REGATTA_DATA_DIR", data_dir)
        .env_remove("REGATTA_AGENT")
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .map_err(|it| {
            failed("io", format!("the daemon could not be started: {it}"), "see what the machine lacks: regatta doctor")
        })?;
    let mut first = String::new();
    if let Some(stdout) = child.stdout.take() {
        // A broken pipe reads as an empty line, which is "not ready".
        let _read = BufReader::new(stdout).read_line(&mut first);
    }
    if first.contains("\"kind\":\"ready\"") {
        return Ok(());
    }
    // It said why on standard error, as one JSON object, last; unless there was no room even for that.
    let _status = child.wait();
    Err(last_error(&log, begins).unwrap_or_else(|| match place.is_full() {
        true => place.broken(&std::io::ErrorKind::StorageFull.into()),
        false => failed("io", "the daemon ended before it was ready", format!("see {}", log.display())),
    }))
}

/// The last error that was written to the log from `begins` on: what an earlier daemon said is not this one's.
fn last_error(log: &Path, begins: u64) -> Option<Failed> {
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
    file.seek(SeekFrom::Start(begins.max(length.saturating_sub(16 * 1024)))).ok()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let found: Envelope = text.lines().rev().find_map(|it| serde_json::from_str(it).ok())?;
    Some(failed(&found.error.code, found.error.message, found.error.hint))
}
