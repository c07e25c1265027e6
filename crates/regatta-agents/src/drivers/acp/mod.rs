//! The driver for the Agent Client Protocol (ACP), version 1. In the protocol's terms Regatta is
//! the client and the started program is the agent.
//!
//! This file holds the conversation. [`handshake`] opens the session and applies its settings,
//! [`turn`] reads the program's updates while the program works on a prompt, and [`permission`]
//! reads the program's requests. ADR 9 explains why Regatta reads and writes the messages itself
//! instead of using a library.
//!
//! Three parts of the protocol are not supported on purpose:
//!
//! - Requests for files and terminals. The client does not advertise these requests and refuses
//!   them.
//! - `authenticate`, because a person signs in, and not the daemon.
//! - A new prompt while the program still works on the last prompt.

mod handshake;
mod permission;
mod turn;

use std::collections::BTreeMap;

use regatta_core::agent_protocol::{AgentEvent, FailureClass, StopReason};
use regatta_engine::ports::agents::{Exit, SessionInput};
use serde_json::{Value, json};

use self::handshake::{Capabilities, OfferedSetting, Setting};
use self::permission::AnswerFormat;
use self::turn::AcpTurn;
use super::DriverSetup;
use super::common::{
    ConversationProgress, OpenRequests, TextTail, UsageTotal, unreadable_line_notice,
};
use super::error_class::ProgramFailure;
use super::rpc::{METHOD_NOT_FOUND, RpcDialect, RpcError, RpcMessage, parse_message};
use crate::driver::{Driver, ExitAssessment, InputAction, JournalRecord, JournalStream};

pub(super) use handshake::opens_session;
pub(super) use permission::fill_form;

const DIALECT: RpcDialect = RpcDialect::Standard;

/// The ways in which a particular program deviates from the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quirks {
    /// True if `usage` in the answer to a prompt counts the whole session. No known program does
    /// that, because all known programs count the turn or a part of it.
    has_cumulative_usage: bool,
    /// True if the program reports a failure of its model only as text and then ends the turn as if
    /// it had succeeded.
    hides_failures: bool,
    /// True if a request for permission to run a command contains the command only in its title.
    has_command_in_title: bool,
}

impl Quirks {
    fn for_program(program: &str) -> Quirks {
        // Codex's old and new adapters have the same name. Only the new adapter ends a turn
        // normally after a failure, but the check for hidden failures does no harm with the old
        // adapter.
        let hides_failures = ["goose", "codex", "codex-acp", "pi", "pi-acp"].contains(&program);
        let has_command_in_title = ["gemini", "qwen"].contains(&program);
        Quirks {
            has_cumulative_usage: false,
            hides_failures,
            has_command_in_title,
        }
    }
}

/// A request that was sent to the program and is not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentRequest {
    Initialize,
    NewSession,
    LoadSession,
    ResumeSession,
    ChangeSetting(Setting),
    Prompt,
    /// A `session/close` request. The program's answer to this request is ignored.
    CloseSession,
}

/// The state of the program's session: not open yet, open with an id, or failed with a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AcpSession {
    Unopened,
    Open(String),
    Failed(ProgramFailure),
}

pub(super) struct AcpDriver {
    setup: DriverSetup,
    quirks: Quirks,
    unanswered: BTreeMap<u64, SentRequest>,
    /// The id that the next request to the program gets.
    next_id: u64,
    capabilities: Option<Capabilities>,
    session: AcpSession,
    /// True if an earlier session was resumed, so that the model already has its instructions.
    is_resumed: bool,
    /// True if resuming or loading the earlier session failed, so that a new session has to be
    /// opened.
    needs_new_session: bool,
    offered_settings: Vec<OfferedSetting>,
    tried_settings: Vec<Setting>,
    sent_prompts: u64,
    sent_cancels: u32,
    turn: Option<AcpTurn>,
    last_turn_failure: Option<Option<ProgramFailure>>,
    open_requests: OpenRequests<AnswerFormat>,
    /// The method and id of each request from the program that Regatta does not support. The driver
    /// answers each of these requests with an error.
    requests_to_refuse: Vec<(String, Value)>,
    usage_total: UsageTotal,
    answer: TextTail,
    errors: TextTail,
    has_sent_close: bool,
    is_input_closed: bool,
}

impl AcpDriver {
    pub(super) fn new(setup: &DriverSetup) -> AcpDriver {
        AcpDriver {
            quirks: Quirks::for_program(setup.program_name()),
            usage_total: UsageTotal::from_usage(setup.used),
            setup: setup.clone(),
            unanswered: BTreeMap::new(),
            next_id: 0,
            capabilities: None,
            session: AcpSession::Unopened,
            is_resumed: false,
            needs_new_session: false,
            offered_settings: Vec::new(),
            tried_settings: Vec::new(),
            sent_prompts: 0,
            sent_cancels: 0,
            turn: None,
            last_turn_failure: None,
            open_requests: OpenRequests::default(),
            requests_to_refuse: Vec::new(),
            answer: TextTail::for_answer(),
            errors: TextTail::default(),
            has_sent_close: false,
            is_input_closed: false,
        }
    }

    fn is_waiting_for(&self, request: SentRequest) -> bool {
        self.unanswered.values().any(|sent| *sent == request)
    }

    /// Updates the state from a line that was sent to the program. Reads only ids, methods and
    /// setting names, because secrets in the text are redacted.
    fn on_input(&mut self, line: &str) -> Vec<AgentEvent> {
        match parse_message(line) {
            Some(RpcMessage::Request { id, method, params }) => {
                self.on_sent_request(&id, &method, &params)
            }
            Some(RpcMessage::Notification { method, .. }) if method == "session/cancel" => {
                self.sent_cancels += 1;
                if let Some(turn) = &mut self.turn {
                    turn.is_cancelled = true;
                }
                self.open_requests.cancel_all()
            }
            Some(RpcMessage::Answer { id, .. }) => {
                self.requests_to_refuse
                    .retain(|(_, refused_id)| *refused_id != id);
                self.open_requests.remove(&id);
                vec![]
            }
            _ => vec![],
        }
    }

    fn on_sent_request(&mut self, id: &Value, method: &str, params: &Value) -> Vec<AgentEvent> {
        let Some(id) = id.as_u64() else { return vec![] };
        self.next_id = self.next_id.max(id + 1);
        let sent = match method {
            "initialize" => SentRequest::Initialize,
            "session/new" => SentRequest::NewSession,
            "session/load" => SentRequest::LoadSession,
            "session/resume" => SentRequest::ResumeSession,
            "session/close" => {
                self.has_sent_close = true;
                SentRequest::CloseSession
            }
            "session/prompt" => {
                let n = self.sent_prompts;
                self.sent_prompts += 1;
                self.turn = Some(AcpTurn::default());
                self.answer.clear();
                self.unanswered.insert(id, SentRequest::Prompt);
                return vec![AgentEvent::TurnStarted { n }];
            }
            _ => match handshake::requested_setting(method, params, &self.offered_settings) {
                Some(setting) => {
                    self.tried_settings.push(setting);
                    SentRequest::ChangeSetting(setting)
                }
                None => return vec![],
            },
        };
        self.unanswered.insert(id, sent);
        vec![]
    }

    fn on_response(
        &mut self,
        id: &Value,
        outcome: Result<Value, RpcError>,
        at_unix_ms: u64,
    ) -> Vec<AgentEvent> {
        let Some(sent) = id.as_u64().and_then(|id| self.unanswered.remove(&id)) else {
            return vec![AgentEvent::Notice {
                text: format!("The program answered request {id}, which was not sent."),
            }];
        };
        match (sent, outcome) {
            (SentRequest::Initialize, Ok(result)) => self.on_initialized(&result),
            (
                SentRequest::NewSession | SentRequest::LoadSession | SentRequest::ResumeSession,
                Ok(result),
            ) => self.on_session_opened(sent, &result),
            (SentRequest::LoadSession | SentRequest::ResumeSession, Err(fault))
                if !handshake::needs_person(&fault) =>
            {
                self.needs_new_session = true;
                let text = format!(
                    "The session could not be resumed ({}), so a new one is opened.",
                    fault.full_text()
                );
                vec![AgentEvent::Notice { text }]
            }
            (
                SentRequest::Initialize
                | SentRequest::NewSession
                | SentRequest::LoadSession
                | SentRequest::ResumeSession,
                Err(fault),
            ) => {
                let failure = ProgramFailure::classify(
                    &fault.full_text(),
                    Some(fault.code),
                    &fault.data,
                    at_unix_ms,
                );
                self.fail(failure)
            }
            (SentRequest::ChangeSetting(setting), outcome) => {
                self.on_setting_response(setting, outcome)
            }
            (SentRequest::Prompt, outcome) => self.on_prompt_response(outcome, at_unix_ms),
            (SentRequest::CloseSession, _) => vec![],
        }
    }

    /// Marks the session as failed, so that the driver closes the program's input. When the program
    /// has ended, its exit counts as this failure.
    fn fail(&mut self, failure: ProgramFailure) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        if failure.class == FailureClass::RateLimit {
            events.push(AgentEvent::Limited {
                deadline_unix_ms: failure.resets_at_unix_ms,
                detail: failure.detail.clone(),
            });
        }
        events.push(AgentEvent::Notice {
            text: format!("No session could be opened: {}", failure.detail),
        });
        self.session = AcpSession::Failed(failure);
        events
    }

    fn on_program_request(&mut self, id: Value, method: String, params: &Value) -> Vec<AgentEvent> {
        let format = match method.as_str() {
            "session/request_permission" => {
                permission::read_permission(params, &mut self.turn, self.quirks)
            }
            "elicitation/create" => permission::read_question(params),
            _ => None,
        };
        let Some((format, content)) = format else {
            let text = format!("The program requested {method}, which Regatta does not offer.");
            self.requests_to_refuse.push((method, id));
            return vec![AgentEvent::Notice { text }];
        };
        // While a cancelled turn is ending, every request of the program is answered "cancelled"
        // without asking a person.
        let is_cancelled = self.turn.as_ref().is_some_and(|turn| turn.is_cancelled);
        let key = self.open_requests.add(id, format, is_cancelled);
        if is_cancelled {
            vec![]
        } else {
            vec![AgentEvent::RequestMade(
                regatta_core::agent_protocol::AgentRequest { id: key, content },
            )]
        }
    }

    fn on_output(&mut self, line: &str, at_unix_ms: u64) -> Vec<AgentEvent> {
        match parse_message(line) {
            Some(RpcMessage::Answer { id, outcome }) => self.on_response(&id, outcome, at_unix_ms),
            Some(RpcMessage::Request { id, method, params }) => {
                self.on_program_request(id, method, &params)
            }
            Some(RpcMessage::Notification { method, params }) => match method.as_str() {
                "session/update" => self.on_session_update(&params),
                "$/cancel_request" => self
                    .open_requests
                    .withdraw(&params["requestId"])
                    .into_iter()
                    .collect(),
                // Ignore all other notifications, such as protocol extensions, whose names begin
                // with an underscore.
                _ => vec![],
            },
            None if line.trim().is_empty() => vec![],
            None => {
                self.errors.add_line(line);
                vec![unreadable_line_notice(line)]
            }
        }
    }
}

impl Driver for AcpDriver {
    fn on_record(&mut self, record: &JournalRecord) -> Vec<AgentEvent> {
        match record.stream {
            JournalStream::In => self.on_input(&record.line),
            JournalStream::InEnd => {
                self.is_input_closed = true;
                vec![]
            }
            JournalStream::Out => self.on_output(&record.line, record.written_unix_ms),
            JournalStream::Err | JournalStream::Mark => self.errors.on_error_or_mark(record),
        }
    }

    fn next_input(&self, desired: &SessionInput) -> Option<InputAction> {
        if self.is_input_closed {
            return None;
        }
        if let Some((method, id)) = self.requests_to_refuse.first() {
            return Some(InputAction::Line(DIALECT.error(
                id,
                METHOD_NOT_FOUND,
                &format!("Method not found: {method}"),
            )));
        }
        let session = match &self.session {
            AcpSession::Failed(_) => return Some(InputAction::Close),
            AcpSession::Open(session) => Some(session),
            AcpSession::Unopened => None,
        };
        // Send the cancellation before anything else. After the cancellation, every open request is
        // answered "cancelled", as the protocol requires.
        if let Some(session) = session.filter(|_| desired.cancels > self.sent_cancels) {
            return Some(InputAction::Line(
                DIALECT.notification("session/cancel", json!({ "sessionId": session })),
            ));
        }
        if let Some((open, answer)) = self.open_requests.next_answerable(desired) {
            return Some(InputAction::Line(
                DIALECT.result(&open.id, permission::format_answer(&open.format, &answer)),
            ));
        }
        if self.turn.is_some() {
            return None;
        }
        let prompt = usize::try_from(self.sent_prompts)
            .ok()
            .and_then(|n| desired.prompts.get(n))
            .filter(|_| !desired.should_hold_prompts);
        if desired.should_close_input && prompt.is_none() {
            return Some(self.closing_input(session));
        }
        let Some(session) = session else {
            return self.opening_request();
        };
        if let Some(setting) = self.next_setting_request(session) {
            return setting;
        }
        prompt.map(|prompt| InputAction::Line(self.format_prompt(session, prompt)))
    }

    fn assess_exit(&self, exit: &Exit) -> ExitAssessment {
        let start_failure = match &self.session {
            AcpSession::Failed(failure) => Some(failure),
            _ => None,
        };
        let progress = ConversationProgress {
            start_failure,
            is_session_open: matches!(self.session, AcpSession::Open(_)),
            running_turn: self.turn.as_ref().map(|turn| turn.is_cancelled),
            last_turn_failure: self.last_turn_failure.as_ref().map(Option::as_ref),
            is_input_closed: self.is_input_closed,
            answer: &self.answer,
            errors: &self.errors,
            usage_total: &self.usage_total,
        };
        progress.assess_exit(exit)
    }
}

/// Translates the protocol's `stopReason` into Regatta's reason why a turn (the work on one prompt)
/// ended.
fn parse_stop_reason(reason: &str) -> Option<StopReason> {
    Some(match reason {
        "end_turn" => StopReason::EndTurn,
        "max_tokens" => StopReason::MaxTokens,
        "max_turn_requests" => StopReason::MaxTurns,
        "refusal" => StopReason::Refusal,
        "cancelled" => StopReason::Cancelled,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
