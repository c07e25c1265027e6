//! The listener, the progress of stories, and the recorded requests.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::asked::{Api, Asked, Ended, Role, Seen};
use super::http::{self, Request};
use super::script::{Hold, Pace, Story, Turn, Usage};
use super::tools::{self, Call};
use super::{anthropic, chat, gemini, responses};

/// The longest time for an answer, so that a test which forgets to open a gate ends too.
const LONGEST: Duration = Duration::from_secs(300);
/// The longest time for a slow answer.
const SLOWEST: Duration = Duration::from_secs(60);

/// A model server on a port of its own. Dropping it ends the server and all its answers.
pub struct ModelServer {
    inner: Arc<Inner>,
    address: SocketAddr,
    listener: Option<JoinHandle<()>>,
}

struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stories: Vec<Running>,
    seen: Vec<Seen>,
    released: BTreeSet<String>,
    connections: BTreeMap<u64, TcpStream>,
    closing: bool,
    /// Errors that no test expects: an act without an offered tool, or an unreadable request.
    faults: Vec<String>,
}

struct Running {
    story: Story,
    at: usize,
    /// How many requests the next turn has answered, and when the first one came.
    met: u32,
    since: Option<Instant>,
}

/// An answer that is ready to be formatted for a protocol.
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) text: String,
    pub(super) thought: String,
    pub(super) calls: Vec<Call>,
    pub(super) usage: Usage,
}

impl Answer {
    /// Splits a text into pieces of a few characters, so that a stream can be slow, cut or
    /// interrupted between them.
    pub(super) fn pieces<'a>(&self, text: &'a str) -> impl Iterator<Item = &'a str> {
        let mut rest = text;
        std::iter::from_fn(move || {
            let end = rest.char_indices().nth(24).map_or(rest.len(), |it| it.0);
            let (piece, more) = rest.split_at(end);
            rest = more;
            (!piece.is_empty()).then_some(piece)
        })
    }
}

impl ModelServer {
    /// Starts a server on a free port of loopback.
    pub fn start(stories: impl Into<Vec<Story>>) -> io::Result<ModelServer> {
        ModelServer::start_on(0, stories)
    }

    /// Starts a server on this port of loopback.
    pub fn start_on(port: u16, stories: impl Into<Vec<Story>>) -> io::Result<ModelServer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let inner = Arc::new(Inner { state: Mutex::default(), changed: Condvar::new() });
        let theirs = inner.clone();
        let accepting = std::thread::Builder::new().name("models".into()).spawn(move || accept(&listener, &theirs))?;
        let server = ModelServer { inner, address, listener: Some(accepting) };
        for story in stories.into() {
            server.tell(story);
        }
        Ok(server)
    }

    /// Adds a story, or restarts the story with this marker.
    pub fn tell(&self, story: Story) {
        let mut state = self.inner.lock();
        state.stories.retain(|it| it.story.marker != story.marker);
        state.stories.push(Running { story, at: 0, met: 0, since: None });
    }

    /// Returns the URL: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Opens a gate for every answer that waits at it, now or later.
    pub fn release(&self, gate: &str) {
        self.inner.lock().released.insert(gate.to_owned());
        self.inner.changed.notify_all();
    }

    /// Returns all requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.inner.lock().seen.clone()
    }

    /// Returns the requests that this story answered.
    pub fn seen_of(&self, marker: &str) -> Vec<Seen> {
        let mut seen = self.seen();
        seen.retain(|it| it.story.as_ref().is_some_and(|it| it.0 == marker));
        seen
    }

    /// Returns the server's errors: acts without an offered tool, and unreadable requests.
    pub fn faults(&self) -> Vec<String> {
        self.inner.lock().faults.clone()
    }

    /// Waits until the recorded requests satisfy `holds`. Returns false if the time runs out first.
    pub fn until(&self, patience: Duration, holds: impl Fn(&[Seen]) -> bool) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.inner.lock();
        while !holds(&state.seen) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.inner.wait(state, left);
        }
        true
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        state.closing = true;
        for connection in state.connections.values() {
            // An error means that the connection is already closed, which is fine.
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(state);
        self.inner.changed.notify_all();
        // The listener checks `closing` only after it accepts a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    fn fault(&self, what: String) {
        self.lock().faults.push(what);
    }
}

fn accept(listener: &TcpListener, inner: &Arc<Inner>) {
    let mut threads = vec![];
    for (nth, connection) in (0u64..).zip(listener.incoming()) {
        if inner.lock().closing {
            break;
        }
        let kept = connection.and_then(|it| Ok((it.try_clone()?, it)));
        let (kept, connection) = match kept {
            Ok(both) => both,
            Err(error) => {
                inner.fault(format!("could not accept a connection: {error}"));
                continue;
            }
        };
        inner.lock().connections.insert(nth, kept);
        let theirs = inner.clone();
        threads.push(std::thread::spawn(move || {
            if let Err(error) = serve(&connection, &theirs)
                && error.kind() == io::ErrorKind::InvalidData
            {
                theirs.fault(format!("could not read a request: {error}"));
            }
            let _ = connection.shutdown(Shutdown::Both);
            theirs.lock().connections.remove(&nth);
        }));
        threads.retain(|it| !it.is_finished());
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn serve(connection: &TcpStream, inner: &Inner) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut reader = BufReader::new(connection.try_clone()?);
    while let Some(request) = http::read(&mut reader)? {
        let alive = request.keeps_alive();
        let exchange = Exchange { inner, connection, request: &request, nth: open(inner, &request) };
        let ended = exchange.answer();
        let goes_on = matches!(ended, Ok(Ended::Whole)) && alive;
        exchange.close(|it| it.ended = Some(ended.unwrap_or(Ended::HungUp)));
        if !goes_on {
            break;
        }
    }
    Ok(())
}

/// Records a request before it is answered, and returns its number.
fn open(inner: &Inner, request: &Request) -> usize {
    let mut state = inner.lock();
    let nth = state.seen.len() + 1;
    state.seen.push(Seen {
        nth,
        method: request.method.clone(),
        path: request.path.clone(),
        key: request.has_key(),
        api: None,
        model: String::new(),
        fast: false,
        tools: vec![],
        messages: 0,
        user: String::new(),
        users: vec![],
        results: vec![],
        side: false,
        story: None,
        called: vec![],
        status: 200,
        ended: None,
    });
    nth
}

struct Exchange<'a> {
    inner: &'a Inner,
    connection: &'a TcpStream,
    request: &'a Request,
    nth: usize,
}

impl Exchange<'_> {
    /// Updates the record of this request.
    fn close(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.inner.lock().seen[self.nth - 1]);
        self.inner.changed.notify_all();
    }

    fn answer(&self) -> io::Result<Ended> {
        let path = self.request.path.as_str();
        let get = self.request.method != "POST";
        if get {
            return match path {
                "/" => self.json(200, &[], &json!({})),
                _ if path.ends_with("/models") => self.json(200, &[], &models(path)),
                _ if path.contains("/models/") => self.json(200, &[], &model(path)),
                _ => self.unknown(),
            };
        }
        let body: Value = match serde_json::from_slice(&self.request.body) {
            Ok(body) => body,
            Err(error) => {
                self.inner.fault(format!("{path}: the body is not JSON: {error}"));
                return self.json(400, &[], &json!({"error": {"message": format!("the body is not JSON: {error}")}}));
            }
        };
        if path.ends_with("/messages/count_tokens") {
            return self.json(200, &[], &json!({"input_tokens": self.request.body.len() / 4}));
        }
        if path.ends_with(":countTokens") {
            return self.json(200, &[], &json!({"totalTokens": self.request.body.len() / 4}));
        }
        let asked = if path.ends_with("/messages") {
            anthropic::read(&body)
        } else if path.ends_with("/chat/completions") {
            chat::read(&body)
        } else if path.ends_with("/responses") {
            responses::read(&body)
        } else if let Some((name, verb)) = path.rsplit_once("/models/").and_then(|it| it.1.split_once(':')) {
            match verb {
                "generateContent" => gemini::read(&body, name, false),
                "streamGenerateContent" => gemini::read(&body, name, true),
                _ => return self.unknown(),
            }
        } else {
            return self.unknown();
        };
        self.close(|it| it.fast = body["service_tier"] == "priority" || body["speed"] == "fast");
        self.play(&asked)
    }

    fn unknown(&self) -> io::Result<Ended> {
        let what = format!("the scripted server has no {} {}", self.request.method, self.request.path);
        self.json(404, &[], &json!({"type": "error", "error": {"type": "not_found_error", "message": what}}))
    }

    fn json(&self, status: u16, headers: &[(String, String)], body: &Value) -> io::Result<Ended> {
        self.close(|it| it.status = status);
        let mut to = self.connection;
        http::answer(&mut to, status, headers, body.to_string().as_bytes(), self.request.method == "HEAD")?;
        Ok(Ended::Whole)
    }

    /// Answers with the next turn of the conversation's story.
    fn play(&self, asked: &Asked) -> io::Result<Ended> {
        let side = asked.is_side();
        self.close(|it| {
            it.api = Some(asked.api);
            it.model = asked.model.clone();
            it.tools = asked.tools.iter().map(|it| it.name.clone()).collect();
            it.messages = asked.said.len();
            it.user = asked.user().to_owned();
            it.users = asked.users();
            it.results = asked.results();
            it.side = side;
        });
        let turn = if side { Turn::say(asked.side_answer()) } else { self.turn(asked) };
        if let Some(failure) = &turn.failure {
            let (headers, body) = match asked.api {
                Api::Anthropic => anthropic::failure(failure),
                Api::Responses => responses::failure(failure),
                Api::Chat => chat::failure(failure),
                Api::Gemini => gemini::failure(failure),
            };
            return self.json(failure.status(), &headers, &body);
        }
        let answer = match self.prepared(asked, &turn) {
            Ok(answer) => answer,
            Err(what) => {
                self.inner.fault(what.clone());
                return self.json(400, &[], &json!({"type": "error", "error": {"type": "script", "message": what}}));
            }
        };
        self.close(|it| it.called = answer.calls.iter().map(|it| it.name.clone()).collect());
        if !asked.stream {
            let body = match asked.api {
                Api::Anthropic => anthropic::whole(&answer),
                Api::Responses => responses::whole(&answer),
                Api::Chat => chat::whole(&answer),
                Api::Gemini => gemini::whole(&answer),
            };
            return match self.hold_up(&turn.pace)? {
                Some(ended) => Ok(ended),
                None if turn.pace == Pace::Cut => Ok(Ended::Cut),
                None => self.json(200, &[], &body),
            };
        }
        let events = match asked.api {
            Api::Anthropic => anthropic::events(&answer),
            Api::Responses => responses::events(&answer),
            Api::Chat => chat::events(&answer),
            Api::Gemini => gemini::events(&answer),
        };
        self.stream(&events, &turn.pace)
    }

    /// Returns the next turn of the story whose marker is the last one in the user's text.
    fn turn(&self, asked: &Asked) -> Turn {
        let mut state = self.inner.lock();
        let users = asked.said.iter().rev().filter(|it| it.role == Role::User);
        let found = users
            .filter_map(|it| last_marker(&state.stories, &it.text))
            .next()
            .or_else(|| state.stories.iter().position(|it| it.story.marker == asked.model))
            .or_else(|| state.stories.iter().position(|it| it.story.marker.is_empty()));
        let Some(found) = found else {
            return Turn::say("There is nothing to do.");
        };
        let (at, turn) = state.stories[found].next(Instant::now());
        let marker = state.stories[found].story.marker.clone();
        state.seen[self.nth - 1].story = Some((marker, at));
        turn
    }

    fn prepared(&self, asked: &Asked, turn: &Turn) -> Result<Answer, String> {
        let id = format!("scripted{:05}", self.nth);
        let calls = turn.acts.iter().enumerate().map(|(n, act)| {
            let prefix = if asked.api == Api::Anthropic { "toolu" } else { "call" };
            tools::call(asked, act, format!("{prefix}_{id}{n}"))
        });
        Ok(Answer {
            calls: calls.collect::<Result<_, _>>()?,
            id,
            model: asked.model.clone(),
            text: turn.text.clone(),
            thought: turn.thought.clone(),
            usage: turn.usage,
        })
    }

    /// Sends the events with the given pace.
    fn stream(&self, events: &[String], pace: &Pace) -> io::Result<Ended> {
        let mut to = self.connection;
        http::begin_events(&mut to)?;
        let (half, began) = (events.len().div_ceil(2), Instant::now());
        for (nth, event) in events.iter().enumerate() {
            match pace {
                Pace::Whole => {}
                Pace::Slow { rest } if began.elapsed() < SLOWEST => {
                    if let Some(ended) = self.rest(*rest, None)? {
                        return Ok(ended);
                    }
                }
                Pace::Cut if nth == half => {
                    to.flush()?;
                    return Ok(Ended::Cut);
                }
                Pace::Hang { .. } if nth == half => {
                    if let Some(ended) = self.hold_up(pace)? {
                        return Ok(ended);
                    }
                }
                _ => {}
            }
            http::piece(&mut to, event)?;
        }
        http::end_events(&mut to)?;
        Ok(Ended::Whole)
    }

    /// Waits at the gate if the pace has one. Returns `Some` if the answer ends here.
    fn hold_up(&self, pace: &Pace) -> io::Result<Option<Ended>> {
        match pace {
            Pace::Hang { gate } => self.rest(LONGEST, Some(gate)),
            _ => Ok(None),
        }
    }

    /// Waits for `time`, or until the gate opens. Returns `Some` if the program closes the
    /// connection or the server ends.
    fn rest(&self, time: Duration, gate: Option<&str>) -> io::Result<Option<Ended>> {
        let deadline = Instant::now() + time;
        let mut state = self.inner.lock();
        loop {
            if state.closing {
                return Ok(Some(Ended::Cut));
            }
            if gate.is_some_and(|it| state.released.contains(it)) {
                return Ok(None);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            // Nothing signals a closed connection here, so check it regularly.
            state = self.inner.wait(state, left.min(Duration::from_millis(50)));
            drop(state);
            if self.hung_up()? {
                return Ok(Some(Ended::HungUp));
            }
            state = self.inner.lock();
        }
    }

    fn hung_up(&self) -> io::Result<bool> {
        self.connection.set_nonblocking(true)?;
        let looked = self.connection.peek(&mut [0]);
        self.connection.set_nonblocking(false)?;
        Ok(match looked {
            Ok(read) => read == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        })
    }
}

impl Running {
    /// Returns the turn for the current request, with its index.
    fn next(&mut self, now: Instant) -> (usize, Turn) {
        loop {
            let Some(turn) = self.story.turns.get(self.at) else {
                return (self.at, self.story.end.clone());
            };
            let (at, turn) = (self.at, turn.clone());
            self.met += 1;
            let since = *self.since.get_or_insert(now);
            let (over, counts) = match turn.hold {
                Hold::Once => (true, true),
                Hold::Times(times) => (self.met >= times, true),
                Hold::For(time) => {
                    let over = now.duration_since(since) >= time;
                    (over, !over)
                }
            };
            if over {
                (self.at, self.met, self.since) = (at + 1, 0, None);
            }
            if counts {
                return (at, turn);
            }
        }
    }
}

/// Returns the story whose marker is the last whole-word marker in a text.
fn last_marker(stories: &[Running], text: &str) -> Option<usize> {
    let is_part = |it: Option<char>| it.is_some_and(|it| it.is_alphanumeric() || it == '-' || it == '_');
    let place = |marker: &str| {
        let whole = |at: &usize| {
            !is_part(text[..*at].chars().next_back()) && !is_part(text[at + marker.len()..].chars().next())
        };
        text.match_indices(marker).map(|it| it.0).filter(whole).last()
    };
    let found = stories.iter().enumerate().filter(|it| !it.1.story.marker.is_empty());
    found.filter_map(|(nth, it)| Some((place(&it.story.marker)?, nth))).max().map(|it| it.1)
}

/// Returns a list of models that the programs of OpenAI, Anthropic and Gemini accept.
fn models(path: &str) -> Value {
    let names = ["stub-model", "gpt-5.5", "claude-opus-4-7", "gemini-2.5-flash"];
    if path.contains("/v1beta/") {
        let models: Vec<Value> = names.iter().map(|it| model(&format!("/v1beta/models/{it}"))).collect();
        return json!({ "models": models });
    }
    let models: Vec<Value> = names.iter().map(|it| model(&format!("/v1/models/{it}"))).collect();
    json!({"object": "list", "data": models, "has_more": false, "first_id": names[0], "last_id": names[3]})
}

fn model(path: &str) -> Value {
    let name = path.rsplit('/').next().unwrap_or_default();
    if path.contains("/v1beta/") {
        return json!({"name": format!("models/{name}"), "displayName": name, "inputTokenLimit": 1_000_000,
            "outputTokenLimit": 65_536, "supportedGenerationMethods": ["generateContent", "countTokens"]});
    }
    json!({"id": name, "object": "model", "type": "model", "display_name": name, "created": 0,
        "created_at": "2026-01-01T00:00:00Z", "owned_by": "script"})
}
