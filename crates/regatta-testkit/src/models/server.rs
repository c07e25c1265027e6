//! The server that imitates models. It accepts connections, keeps track of the next turn of each
//! script, and records requests.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::{self, HttpRequest};
use super::request::{AnswerEnd, ModelApi, ModelRequest, RequestRecord, SpeakerRole};
use super::script::{AnswerPace, ModelScript, ModelTurn, ModelUsage, TurnRepeat};
use super::tools::{self, ModelToolCall};
use super::{anthropic, chat, gemini, responses};

/// Maximum time for sending an answer, so that a test ends even if it does not open the gate at
/// which the answer waits.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(300);
/// Maximum total time for an answer that is sent slowly.
const MAX_SLOW_ANSWER_TIME: Duration = Duration::from_secs(60);

/// The model server. Dropping it ends the server and all its answers.
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
    scripts: Vec<ScriptProgress>,
    requests: Vec<RequestRecord>,
    released_gates: BTreeSet<String>,
    connections: BTreeMap<u64, TcpStream>,
    is_closing: bool,
    /// Errors that no test expects: a script wants a tool that the agent's program does not offer,
    /// or a request cannot be read.
    errors: Vec<String>,
}

struct ScriptProgress {
    script: ModelScript,
    next_turn: usize,
    /// The number of requests that the current turn has already answered. `first_request_at` is the
    /// time when the first of these requests arrived.
    turn_requests: u32,
    first_request_at: Option<Instant>,
}

/// An answer of the model, before it is formatted for one of the APIs.
pub(super) struct ModelAnswer {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) text: String,
    pub(super) reasoning: String,
    pub(super) calls: Vec<ModelToolCall>,
    pub(super) usage: ModelUsage,
}

impl ModelAnswer {
    /// Splits a text into pieces of a few characters, so that it can be streamed slowly or cut in
    /// between.
    pub(super) fn text_pieces<'a>(&self, text: &'a str) -> impl Iterator<Item = &'a str> {
        let mut rest = text;
        std::iter::from_fn(move || {
            let end = rest
                .char_indices()
                .nth(24)
                .map_or(rest.len(), |rest| rest.0);
            let (piece, more) = rest.split_at(end);
            rest = more;
            (!piece.is_empty()).then_some(piece)
        })
    }
}

impl ModelServer {
    /// Starts a server with these scripts on a free port of the loopback address.
    pub fn start(stories: impl Into<Vec<ModelScript>>) -> io::Result<ModelServer> {
        ModelServer::start_on(0, stories)
    }

    /// Starts a server with these scripts on this port of the loopback address.
    pub fn start_on(port: u16, stories: impl Into<Vec<ModelScript>>) -> io::Result<ModelServer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let inner = Arc::new(Inner {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let theirs = inner.clone();
        let accepting = std::thread::Builder::new()
            .name("models".into())
            .spawn(move || accept_connections(&listener, &theirs))?;
        let server = ModelServer {
            inner,
            address,
            listener: Some(accepting),
        };
        for story in stories.into() {
            server.add_script(story);
        }
        Ok(server)
    }

    /// Adds a script. If there is already a script with the same marker (name), replaces that
    /// script and starts again with the first turn.
    pub fn add_script(&self, story: ModelScript) {
        let mut state = self.inner.lock();
        state
            .scripts
            .retain(|script_progress| script_progress.script.marker != story.marker);
        state.scripts.push(ScriptProgress {
            script: story,
            next_turn: 0,
            turn_requests: 0,
            first_request_at: None,
        });
    }

    /// Returns the server's URL: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the port on which the server listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Opens a gate (a point at which answers wait for the test). Every answer that waits at this
    /// gate, now or later, continues.
    pub fn release(&self, gate: &str) {
        self.inner.lock().released_gates.insert(gate.to_owned());
        self.inner.changed.notify_all();
    }

    /// Returns the records of all requests so far.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.inner.lock().requests.clone()
    }

    /// Returns the records of the requests that were answered by the script with this marker
    /// (name).
    pub fn requests_of(&self, marker: &str) -> Vec<RequestRecord> {
        let mut requests = self.requests();
        requests.retain(|request| {
            request
                .story
                .as_ref()
                .is_some_and(|story| story.0 == marker)
        });
        requests
    }

    /// Returns the errors that no test expects: a script wanted a tool that the agent's program did
    /// not offer, or a request could not be read.
    pub fn errors(&self) -> Vec<String> {
        self.inner.lock().errors.clone()
    }

    /// Waits until `holds` returns true for the recorded requests, and then returns true. Returns
    /// false if the time `patience` runs out first.
    pub fn wait_until(&self, patience: Duration, holds: impl Fn(&[RequestRecord]) -> bool) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.inner.lock();
        while !holds(&state.requests) {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return false;
            }
            state = self.inner.wait(state, remaining);
        }
        true
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        state.is_closing = true;
        for connection in state.connections.values() {
            // Ignore an error, because it only means that the connection is already closed.
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(state);
        self.inner.changed.notify_all();
        // The listening thread checks `is_closing` only when a connection arrives, so open a
        // connection to wake the thread.
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
        self.changed
            .wait_timeout(state, time)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    fn record_error(&self, description: String) {
        self.lock().errors.push(description);
    }
}

fn accept_connections(listener: &TcpListener, inner: &Arc<Inner>) {
    let mut threads = vec![];
    for (nth, connection) in (0u64..).zip(listener.incoming()) {
        if inner.lock().is_closing {
            break;
        }
        let kept = connection.and_then(|stream| Ok((stream.try_clone()?, stream)));
        let (kept, connection) = match kept {
            Ok(both) => both,
            Err(error) => {
                inner.record_error(format!(
                    "could not accept a connection to the model server: {error}"
                ));
                continue;
            }
        };
        inner.lock().connections.insert(nth, kept);
        let theirs = inner.clone();
        threads.push(std::thread::spawn(move || {
            if let Err(error) = serve_connection(&connection, &theirs)
                && error.kind() == io::ErrorKind::InvalidData
            {
                theirs.record_error(format!(
                    "could not read a request to the model server: {error}"
                ));
            }
            let _ = connection.shutdown(Shutdown::Both);
            theirs.lock().connections.remove(&nth);
        }));
        threads.retain(|handle| !handle.is_finished());
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn serve_connection(connection: &TcpStream, inner: &Inner) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut reader = BufReader::new(connection.try_clone()?);
    while let Some(request) = http::read_request(&mut reader)? {
        let alive = request.keeps_alive();
        let exchange = Exchange {
            inner,
            connection,
            request: &request,
            number: open(inner, &request),
        };
        let ended = exchange.answer_request();
        let goes_on = matches!(ended, Ok(AnswerEnd::Complete)) && alive;
        exchange.update_record(|request| {
            request.outcome = Some(ended.unwrap_or(AnswerEnd::ClientHungUp))
        });
        if !goes_on {
            break;
        }
    }
    Ok(())
}

/// Records a request before it is answered, and returns the request's number.
fn open(inner: &Inner, request: &HttpRequest) -> usize {
    let mut state = inner.lock();
    let nth = state.requests.len() + 1;
    state.requests.push(RequestRecord {
        number: nth,
        method: request.method.clone(),
        path: request.path.clone(),
        has_key: request.has_key(),
        api: None,
        model: String::new(),
        is_fast: false,
        tools: vec![],
        entry_count: 0,
        last_user_text: String::new(),
        user_texts: vec![],
        tool_results: vec![],
        is_side_request: false,
        story: None,
        called_tools: vec![],
        status: 200,
        outcome: None,
    });
    nth
}

struct Exchange<'a> {
    inner: &'a Inner,
    connection: &'a TcpStream,
    request: &'a HttpRequest,
    number: usize,
}

impl Exchange<'_> {
    /// Changes the record of the request that is being answered.
    fn update_record(&self, note: impl FnOnce(&mut RequestRecord)) {
        note(&mut self.inner.lock().requests[self.number - 1]);
        self.inner.changed.notify_all();
    }

    fn answer_request(&self) -> io::Result<AnswerEnd> {
        let path = self.request.path.as_str();
        let get = self.request.method != "POST";
        if get {
            return match path {
                "/" => self.send_json(200, &[], &json!({})),
                _ if path.ends_with("/models") => self.send_json(200, &[], &model_list(path)),
                _ if path.contains("/models/") => self.send_json(200, &[], &model_json(path)),
                _ => self.answer_not_found(),
            };
        }
        let body: Value = match serde_json::from_slice(&self.request.body) {
            Ok(body) => body,
            Err(error) => {
                self.inner.record_error(format!(
                    "the body of a request to {path} is not JSON: {error}"
                ));
                return self.send_json(
                    400,
                    &[],
                    &json!({"error": {"message": format!("the body is not JSON: {error}")}}),
                );
            }
        };
        if path.ends_with("/messages/count_tokens") {
            return self.send_json(
                200,
                &[],
                &json!({"input_tokens": self.request.body.len() / 4}),
            );
        }
        if path.ends_with(":countTokens") {
            return self.send_json(
                200,
                &[],
                &json!({"totalTokens": self.request.body.len() / 4}),
            );
        }
        let asked = if path.ends_with("/messages") {
            anthropic::parse_request(&body)
        } else if path.ends_with("/chat/completions") {
            chat::parse_request(&body)
        } else if path.ends_with("/responses") {
            responses::parse_request(&body)
        } else if let Some((name, verb)) = path
            .rsplit_once("/models/")
            .and_then(|path| path.1.split_once(':'))
        {
            match verb {
                "generateContent" => gemini::parse_request(&body, name, false),
                "streamGenerateContent" => gemini::parse_request(&body, name, true),
                _ => return self.answer_not_found(),
            }
        } else {
            return self.answer_not_found();
        };
        self.update_record(|request| {
            request.is_fast = body["service_tier"] == "priority" || body["speed"] == "fast"
        });
        self.answer_turn(&asked)
    }

    fn answer_not_found(&self) -> io::Result<AnswerEnd> {
        let what = format!(
            "the scripted server has no {} {}",
            self.request.method, self.request.path
        );
        self.send_json(
            404,
            &[],
            &json!({"type": "error", "error": {"type": "not_found_error", "message": what}}),
        )
    }

    fn send_json(
        &self,
        status: u16,
        headers: &[(String, String)],
        body: &Value,
    ) -> io::Result<AnswerEnd> {
        self.update_record(|request| request.status = status);
        let mut to = self.connection;
        http::write_answer(
            &mut to,
            status,
            headers,
            body.to_string().as_bytes(),
            self.request.method == "HEAD",
        )?;
        Ok(AnswerEnd::Complete)
    }

    /// Answers the request with the next turn of its conversation's script.
    fn answer_turn(&self, asked: &ModelRequest) -> io::Result<AnswerEnd> {
        let side = asked.is_side_request();
        self.update_record(|request| {
            request.api = Some(asked.api);
            request.model = asked.model.clone();
            request.tools = asked
                .tools
                .iter()
                .map(|offered_tool| offered_tool.name.clone())
                .collect();
            request.entry_count = asked.conversation.len();
            request.last_user_text = asked.last_user_text().to_owned();
            request.user_texts = asked.user_texts();
            request.tool_results = asked.tool_results();
            request.is_side_request = side;
        });
        let turn = if side {
            ModelTurn::from_text(asked.side_answer())
        } else {
            self.next_turn(asked)
        };
        if let Some(failure) = &turn.failure {
            let (headers, body) = match asked.api {
                ModelApi::Anthropic => anthropic::failure_answer(failure),
                ModelApi::Responses => responses::failure_answer(failure),
                ModelApi::Chat => chat::failure_answer(failure),
                ModelApi::Gemini => gemini::failure_answer(failure),
            };
            return self.send_json(failure.status(), &headers, &body);
        }
        let answer = match self.prepare_answer(asked, &turn) {
            Ok(answer) => answer,
            Err(what) => {
                self.inner.record_error(what.clone());
                return self.send_json(
                    400,
                    &[],
                    &json!({"type": "error", "error": {"type": "script", "message": what}}),
                );
            }
        };
        self.update_record(|request| {
            request.called_tools = answer
                .calls
                .iter()
                .map(|model_tool_call| model_tool_call.name.clone())
                .collect()
        });
        if !asked.is_streamed {
            let body = match asked.api {
                ModelApi::Anthropic => anthropic::complete_answer(&answer),
                ModelApi::Responses => responses::complete_answer(&answer),
                ModelApi::Chat => chat::complete_answer(&answer),
                ModelApi::Gemini => gemini::complete_answer(&answer),
            };
            return match self.wait_at_gate(&turn.pace)? {
                Some(ended) => Ok(ended),
                None if turn.pace == AnswerPace::CutOff => Ok(AnswerEnd::CutOff),
                None => self.send_json(200, &[], &body),
            };
        }
        let events = match asked.api {
            ModelApi::Anthropic => anthropic::stream_events(&answer),
            ModelApi::Responses => responses::stream_events(&answer),
            ModelApi::Chat => chat::stream_events(&answer),
            ModelApi::Gemini => gemini::stream_events(&answer),
        };
        self.send_stream(&events, &turn.pace)
    }

    /// Returns the next turn of the script that a conversation uses. The last marker (the name of a
    /// script) in the user's text selects the script.
    fn next_turn(&self, asked: &ModelRequest) -> ModelTurn {
        let mut state = self.inner.lock();
        let users = asked
            .conversation
            .iter()
            .rev()
            .filter(|conversation| conversation.role == SpeakerRole::User);
        let found = users
            .filter_map(|conversation| last_marker(&state.scripts, &conversation.text))
            .next()
            .or_else(|| {
                state
                    .scripts
                    .iter()
                    .position(|script_progress| script_progress.script.marker == asked.model)
            })
            .or_else(|| {
                state
                    .scripts
                    .iter()
                    .position(|script_progress| script_progress.script.marker.is_empty())
            });
        let Some(found) = found else {
            return ModelTurn::from_text("There is nothing to do.");
        };
        let (at, turn) = state.scripts[found].next(Instant::now());
        let marker = state.scripts[found].script.marker.clone();
        state.requests[self.number - 1].story = Some((marker, at));
        turn
    }

    fn prepare_answer(
        &self,
        asked: &ModelRequest,
        turn: &ModelTurn,
    ) -> Result<ModelAnswer, String> {
        let id = format!("scripted{:05}", self.number);
        let calls = turn.actions.iter().enumerate().map(|(n, act)| {
            let prefix = if asked.api == ModelApi::Anthropic {
                "toolu"
            } else {
                "call"
            };
            tools::call_for_action(asked, act, format!("{prefix}_{id}{n}"))
        });
        Ok(ModelAnswer {
            calls: calls.collect::<Result<_, _>>()?,
            id,
            model: asked.model.clone(),
            text: turn.text.clone(),
            reasoning: turn.reasoning.clone(),
            usage: turn.usage,
        })
    }

    /// Sends an answer as a stream of events, at the speed that `pace` defines.
    fn send_stream(&self, events: &[String], pace: &AnswerPace) -> io::Result<AnswerEnd> {
        let mut to = self.connection;
        http::begin_stream(&mut to)?;
        let (half, began) = (events.len().div_ceil(2), Instant::now());
        for (nth, event) in events.iter().enumerate() {
            match pace {
                AnswerPace::AtOnce => {}
                AnswerPace::Slow { delay: rest } if began.elapsed() < MAX_SLOW_ANSWER_TIME => {
                    if let Some(ended) = self.wait(*rest, None)? {
                        return Ok(ended);
                    }
                }
                AnswerPace::CutOff if nth == half => {
                    to.flush()?;
                    return Ok(AnswerEnd::CutOff);
                }
                AnswerPace::Hang { .. } if nth == half => {
                    if let Some(ended) = self.wait_at_gate(pace)? {
                        return Ok(ended);
                    }
                }
                _ => {}
            }
            http::write_chunk(&mut to, event)?;
        }
        http::end_stream(&mut to)?;
        Ok(AnswerEnd::Complete)
    }

    /// If `pace` names a gate, waits until the test opens this gate. Returns `Some` if the answer
    /// must end here, because the agent's program closed the connection or the server ends.
    fn wait_at_gate(&self, pace: &AnswerPace) -> io::Result<Option<AnswerEnd>> {
        match pace {
            AnswerPace::Hang { gate } => self.wait(MAX_ANSWER_TIME, Some(gate)),
            _ => Ok(None),
        }
    }

    /// Waits for `time`, or until the test opens the gate. Returns `Some` if the agent's program
    /// closes the connection or the server ends in the meantime.
    fn wait(&self, time: Duration, gate: Option<&str>) -> io::Result<Option<AnswerEnd>> {
        let deadline = Instant::now() + time;
        let mut state = self.inner.lock();
        loop {
            if state.is_closing {
                return Ok(Some(AnswerEnd::CutOff));
            }
            if gate.is_some_and(|gate| state.released_gates.contains(gate)) {
                return Ok(None);
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(None);
            }
            // Nothing wakes this thread when the agent's program closes the connection, so check
            // the connection every 50 ms.
            state = self
                .inner
                .wait(state, remaining.min(Duration::from_millis(50)));
            drop(state);
            if self.has_hung_up()? {
                return Ok(Some(AnswerEnd::ClientHungUp));
            }
            state = self.inner.lock();
        }
    }

    fn has_hung_up(&self) -> io::Result<bool> {
        self.connection.set_nonblocking(true)?;
        let looked = self.connection.peek(&mut [0]);
        self.connection.set_nonblocking(false)?;
        Ok(match looked {
            Ok(read) => read == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        })
    }
}

impl ScriptProgress {
    /// Returns the turn that answers the current request, with the turn's position in the script.
    fn next(&mut self, now: Instant) -> (usize, ModelTurn) {
        loop {
            let Some(turn) = self.script.turns.get(self.next_turn) else {
                return (self.next_turn, self.script.after_turns.clone());
            };
            let (at, turn) = (self.next_turn, turn.clone());
            self.turn_requests += 1;
            let since = *self.first_request_at.get_or_insert(now);
            let (over, counts) = match turn.repeat {
                TurnRepeat::Once => (true, true),
                TurnRepeat::Times(times) => (self.turn_requests >= times, true),
                TurnRepeat::For(time) => {
                    let over = now.duration_since(since) >= time;
                    (over, !over)
                }
            };
            if over {
                (self.next_turn, self.turn_requests, self.first_request_at) = (at + 1, 0, None);
            }
            if counts {
                return (at, turn);
            }
        }
    }
}

/// Returns the position of the script whose marker (name) comes last in a text. The marker must be
/// a whole word.
fn last_marker(stories: &[ScriptProgress], text: &str) -> Option<usize> {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '_');
    let last_position = |marker: &str| {
        let whole = |at: &usize| {
            !is_part(text[..*at].chars().next_back())
                && !is_part(text[at + marker.len()..].chars().next())
        };
        text.match_indices(marker)
            .map(|match_indice| match_indice.0)
            .filter(whole)
            .last()
    };
    let found = stories
        .iter()
        .enumerate()
        .filter(|story| !story.1.script.marker.is_empty());
    found
        .filter_map(|(nth, script_progress)| {
            Some((last_position(&script_progress.script.marker)?, nth))
        })
        .max()
        .map(|found| found.1)
}

/// Returns a list of models in a form that programs of OpenAI, Anthropic and Gemini accept.
fn model_list(path: &str) -> Value {
    let names = [
        "stub-model",
        "gpt-5.5",
        "claude-opus-4-7",
        "gemini-2.5-flash",
    ];
    if path.contains("/v1beta/") {
        let models: Vec<Value> = names
            .iter()
            .map(|name| model_json(&format!("/v1beta/models/{name}")))
            .collect();
        return json!({ "models": models });
    }
    let models: Vec<Value> = names
        .iter()
        .map(|name| model_json(&format!("/v1/models/{name}")))
        .collect();
    json!({"object": "list", "data": models, "has_more": false, "first_id": names[0], "last_id": names[3]})
}

fn model_json(path: &str) -> Value {
    let name = path.rsplit('/').next().unwrap_or_default();
    if path.contains("/v1beta/") {
        return json!({"name": format!("models/{name}"), "displayName": name, "inputTokenLimit": 1_000_000,
            "outputTokenLimit": 65_536, "supportedGenerationMethods": ["generateContent", "countTokens"]});
    }
    json!({"id": name, "object": "model", "type": "model", "display_name": name, "created": 0,
        "created_at": "2026-01-01T00:00:00Z", "owned_by": "script"})
}
