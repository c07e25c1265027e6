//! The driver for the Agent Client Protocol, version 1, on the client's side.
//!
//! This file holds the conversation. `open` holds the handshake, the session and its settings,
//! `turn` the program's updates during a turn, and `ask` its requests. ADR 9 explains why the
//! framing is Regatta's own.
//!
//! Not supported on purpose: requests for files and terminals (the client does not advertise them
//! and refuses them), `authenticate` (a person signs in, not a daemon), and prompts during a
//! running turn.

mod ask;
mod open;
mod turn;

use std::collections::BTreeMap;

use regatta_core::session::{Class, Said, Stop};
use regatta_engine::ports::agents::{Exit, Wishes};
use serde_json::{Value, json};

use self::ask::What;
use self::open::{Abilities, Choice, Setting};
use self::turn::Turn;
use super::Setup;
use super::common::{Asks, Course, Ledger, Tail, unreadable};
use super::rpc::{Dialect, Fault, Message, NO_METHOD, read};
use super::verdict::Trouble;
use crate::driver::{Driver, Judgement, Record, Say, Stream};

pub(super) use ask::filled;
pub(super) use open::opens_session;

const RPC: Dialect = Dialect::Standard;

/// The deviations of a program from the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quirks {
    /// Set if `usage` in the answer to a prompt counts the whole session. All programs seen so far
    /// count the turn or a part of it.
    cumulative: bool,
    /// Set if the program ends a turn normally although its model failed, and reports the failure
    /// only as text.
    smiles: bool,
    /// Set if the title of a request to run a command is the command itself, and no other field
    /// contains it.
    titles_commands: bool,
}

impl Quirks {
    fn of(program: &str) -> Quirks {
        // The old and the new Codex adapters share a name. Only the new one reports failures as
        // normal ends; the check does no harm to the old one.
        let smiles = ["goose", "codex", "codex-acp", "pi", "pi-acp"].contains(&program);
        let titles_commands = ["gemini", "qwen"].contains(&program);
        Quirks { cumulative: false, smiles, titles_commands }
    }
}

/// A request to the program that is not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Initialize,
    New,
    Load,
    Resume,
    Set(Setting),
    Prompt,
    /// A `session/close`, whose answer changes nothing.
    Farewell,
}

/// The state of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Session {
    Unopened,
    Open(String),
    Failed(Trouble),
}

pub(super) struct Acp {
    setup: Setup,
    quirks: Quirks,
    sent: BTreeMap<u64, Sent>,
    /// The id of the next request to the program.
    next_id: u64,
    abilities: Option<Abilities>,
    session: Session,
    /// Set if the session existed before, so that the model knows its instructions already.
    resumed: bool,
    /// Set if an attempt to resume or load the session failed and a new session has to be opened.
    afresh: bool,
    choices: Vec<Choice>,
    tried: Vec<Setting>,
    prompts: u64,
    cancels: u32,
    turn: Option<Turn>,
    last: Option<Option<Trouble>>,
    asks: Asks<What>,
    /// Requests of the program that have to be refused: method and id.
    refused: Vec<(String, Value)>,
    books: Ledger,
    words: Tail,
    errors: Tail,
    said_farewell: bool,
    closed: bool,
}

impl Acp {
    pub(super) fn new(setup: &Setup) -> Acp {
        Acp {
            quirks: Quirks::of(setup.program()),
            books: Ledger::from(setup.used),
            setup: setup.clone(),
            sent: BTreeMap::new(),
            next_id: 0,
            abilities: None,
            session: Session::Unopened,
            resumed: false,
            afresh: false,
            choices: Vec::new(),
            tried: Vec::new(),
            prompts: 0,
            cancels: 0,
            turn: None,
            last: None,
            asks: Asks::default(),
            refused: Vec::new(),
            words: Tail::of_answer(),
            errors: Tail::default(),
            said_farewell: false,
            closed: false,
        }
    }

    fn awaits(&self, sent: Sent) -> bool {
        self.sent.values().any(|it| *it == sent)
    }

    /// Processes an input to the program. Only ids and methods matter, because secrets in the text
    /// are redacted.
    fn was_said(&mut self, line: &str) -> Vec<Said> {
        match read(line) {
            Some(Message::Request { id, method, params }) => self.requested(&id, &method, &params),
            Some(Message::Note { method, .. }) if method == "session/cancel" => {
                self.cancels += 1;
                if let Some(turn) = &mut self.turn {
                    turn.cancelled = true;
                }
                self.asks.cancel()
            }
            Some(Message::Answer { id, .. }) => {
                self.refused.retain(|(_, it)| *it != id);
                self.asks.close(&id);
                vec![]
            }
            _ => vec![],
        }
    }

    fn requested(&mut self, id: &Value, method: &str, params: &Value) -> Vec<Said> {
        let Some(id) = id.as_u64() else { return vec![] };
        self.next_id = self.next_id.max(id + 1);
        let sent = match method {
            "initialize" => Sent::Initialize,
            "session/new" => Sent::New,
            "session/load" => Sent::Load,
            "session/resume" => Sent::Resume,
            "session/close" => {
                self.said_farewell = true;
                Sent::Farewell
            }
            "session/prompt" => {
                let n = self.prompts;
                self.prompts += 1;
                self.turn = Some(Turn::default());
                self.words.clear();
                self.sent.insert(id, Sent::Prompt);
                return vec![Said::TurnStarted { n }];
            }
            _ => match open::setting_of(method, params, &self.choices) {
                Some(setting) => {
                    self.tried.push(setting);
                    Sent::Set(setting)
                }
                None => return vec![],
            },
        };
        self.sent.insert(id, sent);
        vec![]
    }

    fn answered(&mut self, id: &Value, outcome: Result<Value, Fault>, at: u64) -> Vec<Said> {
        let Some(sent) = id.as_u64().and_then(|it| self.sent.remove(&it)) else {
            return vec![Said::Notice { text: format!("The program answered request {id}, which was not sent.") }];
        };
        match (sent, outcome) {
            (Sent::Initialize, Ok(result)) => self.initialized(&result),
            (Sent::New | Sent::Load | Sent::Resume, Ok(result)) => self.opened(sent, &result),
            (Sent::Load | Sent::Resume, Err(fault)) if !open::wants_person(&fault) => {
                self.afresh = true;
                let text = format!("The session could not be resumed ({}), so a new one is opened.", fault.words());
                vec![Said::Notice { text }]
            }
            (Sent::Initialize | Sent::New | Sent::Load | Sent::Resume, Err(fault)) => {
                let trouble = Trouble::read(&fault.words(), Some(fault.code), &fault.data, at);
                self.fail(trouble)
            }
            (Sent::Set(setting), outcome) => self.was_set(setting, outcome),
            (Sent::Prompt, outcome) => self.turn_answered(outcome, at),
            (Sent::Farewell, _) => vec![],
        }
    }

    /// Marks the session as failed. The driver then closes the program's input, and the program's
    /// end is judged by this failure.
    fn fail(&mut self, trouble: Trouble) -> Vec<Said> {
        let mut said = Vec::new();
        if trouble.class == Class::RateLimit {
            said.push(Said::Limited { until_wall: trouble.until, detail: trouble.detail.clone() });
        }
        said.push(Said::Notice { text: format!("No session: {}", trouble.detail) });
        self.session = Session::Failed(trouble);
        said
    }

    fn asked_of_us(&mut self, id: Value, method: String, params: &Value) -> Vec<Said> {
        let what = match method.as_str() {
            "session/request_permission" => ask::permission(params, &mut self.turn, self.quirks),
            "elicitation/create" => ask::question(params),
            _ => None,
        };
        let Some((what, want)) = what else {
            let text = format!("The program requested {method}, which Regatta does not offer.");
            self.refused.push((method, id));
            return vec![Said::Notice { text }];
        };
        // Between a cancellation and the end of its turn every request is answered "cancelled",
        // without asking a person.
        let cancelled = self.turn.as_ref().is_some_and(|it| it.cancelled);
        let key = self.asks.open(id, what, cancelled);
        if cancelled { vec![] } else { vec![Said::Asked(regatta_core::session::Ask { id: key, want })] }
    }

    fn heard(&mut self, line: &str, at: u64) -> Vec<Said> {
        match read(line) {
            Some(Message::Answer { id, outcome }) => self.answered(&id, outcome, at),
            Some(Message::Request { id, method, params }) => self.asked_of_us(id, method, &params),
            Some(Message::Note { method, params }) => match method.as_str() {
                "session/update" => self.updated(&params),
                "$/cancel_request" => self.asks.withdraw(&params["requestId"]).into_iter().collect(),
                // Extensions begin with an underscore, and this driver knows none.
                _ => vec![],
            },
            None if line.trim().is_empty() => vec![],
            None => {
                self.errors.add_line(line);
                vec![unreadable(line)]
            }
        }
    }
}

impl Driver for Acp {
    fn saw(&mut self, record: &Record) -> Vec<Said> {
        match record.stream {
            Stream::In => self.was_said(&record.line),
            Stream::InEnd => {
                self.closed = true;
                vec![]
            }
            Stream::Out => self.heard(&record.line, record.at),
            Stream::Err | Stream::Mark => self.errors.aside(record),
        }
    }

    fn next(&self, wishes: &Wishes) -> Option<Say> {
        if self.closed {
            return None;
        }
        if let Some((method, id)) = self.refused.first() {
            return Some(Say::Line(RPC.error(id, NO_METHOD, &format!("Method not found: {method}"))));
        }
        let session = match &self.session {
            Session::Failed(_) => return Some(Say::Close),
            Session::Open(session) => Some(session),
            Session::Unopened => None,
        };
        // The cancellation is sent first. Then every open request is answered "cancelled", as the
        // protocol requires.
        if let Some(session) = session.filter(|_| wishes.cancels > self.cancels) {
            return Some(Say::Line(RPC.note("session/cancel", json!({ "sessionId": session }))));
        }
        if let Some((open, answer)) = self.asks.answerable(wishes) {
            return Some(Say::Line(RPC.result(&open.id, ask::answer(&open.what, &answer))));
        }
        if self.turn.is_some() {
            return None;
        }
        let prompt = usize::try_from(self.prompts).ok().and_then(|it| wishes.prompts.get(it)).filter(|_| !wishes.hold);
        if wishes.end && prompt.is_none() {
            return Some(self.farewell(session));
        }
        let Some(session) = session else { return self.opening() };
        if let Some(setting) = self.next_setting(session) {
            return setting;
        }
        prompt.map(|it| Say::Line(self.prompt(session, it)))
    }

    fn judge(&self, exit: &Exit) -> Judgement {
        let failed = match &self.session {
            Session::Failed(trouble) => Some(trouble),
            _ => None,
        };
        let course = Course {
            failed,
            open: matches!(self.session, Session::Open(_)),
            turn: self.turn.as_ref().map(|it| it.cancelled),
            last: self.last.as_ref().map(Option::as_ref),
            closed: self.closed,
            words: &self.words,
            errors: &self.errors,
            books: &self.books,
        };
        course.judge(exit)
    }
}

/// Returns the reason for the end of a turn, from the protocol's name for it.
fn stop_of(reason: &str) -> Option<Stop> {
    Some(match reason {
        "end_turn" => Stop::EndTurn,
        "max_tokens" => Stop::MaxTokens,
        "max_turn_requests" => Stop::MaxTurns,
        "refusal" => Stop::Refusal,
        "cancelled" => Stop::Cancelled,
        _ => return None,
    })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
