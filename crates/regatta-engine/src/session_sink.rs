//! The engine's side of the session with an agent's program: reports the program's events to the
//! board (the state of all unfinished work), and returns the prompts, answers and cancellations to
//! send to the program.
//!
//! The adapter that calls [`SessionSink`] knows the protocol of the program.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use regatta_core::agent_protocol::{AgentEvent, FailureClass, RequestContent, Usage};
use regatta_core::attempt::{Attempt, ProgramExit, SetupFault};
use regatta_core::command::Report;
use regatta_core::ids::AttemptId;
use regatta_core::policy;

use crate::ports::agents::{DriverVerdict, Exit, SessionInput, SessionSink};
use crate::{CommandFailure, Engine, prices};

/// The shortest interval between two reports about an attempt's use of tokens and the fill level of
/// its context window.
const USAGE_INTERVAL: Duration = Duration::from_secs(1);

/// Connects the program of one attempt with the board (the state of all unfinished work).
pub(crate) struct LocalSink<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) id: AttemptId,
    pub(crate) token: u64,
    pub(crate) workspace: PathBuf,
    pub(crate) brief: String,
    /// The requested model, which is assumed to be in use until the agent's program reports the
    /// model that it uses.
    pub(crate) model: Option<String>,
    pending: Mutex<PendingReports>,
}

#[derive(Default)]
struct PendingReports {
    usage: Option<(u64, AgentEvent)>,
    context: Option<(u64, AgentEvent)>,
    last_written: Option<Instant>,
    /// The text of the messages that the agent's program sent in the current turn. If the program
    /// was asked for a summary, this text is the summary.
    turn_text: String,
}

impl<'a> LocalSink<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        attempt: &Attempt,
        workspace: PathBuf,
        brief: String,
    ) -> LocalSink<'a> {
        let model = engine
            .board()
            .agents
            .get(&attempt.agent)
            .and_then(|agent| agent.profile.model.clone());
        let (id, token) = (attempt.id, attempt.token);
        LocalSink {
            engine,
            id,
            token,
            workspace,
            brief,
            model,
            pending: Mutex::default(),
        }
    }

    /// Stores a report, and tries again while the store fails. If the board (the state of all
    /// unfinished work) refuses the report, the report is dropped, because the attempt's state has
    /// changed in the meantime.
    fn report(&self, report: Report) {
        loop {
            match self.engine.report(report.clone()) {
                Ok(_) | Err(CommandFailure::Stopping) => return,
                Err(CommandFailure::Refused { refusal, .. }) => {
                    tracing::debug!(attempt = %self.id, "an event that the program of attempt {} \
                        reported was dropped, because the daemon refused it: {}", self.id,
                        refusal.message());
                    return;
                }
                Err(CommandFailure::Store(error)) => {
                    tracing::error!(attempt = %self.id, "could not store an event that the program \
                        of attempt {} reported, trying again in a second: {error}", self.id);
                    std::thread::sleep(Duration::from_secs(1));
                    if self.engine.is_stopping() {
                        return; // the next start of the daemon reads the event again from the journal
                    }
                }
            }
        }
    }

    /// Records the use of tokens that was not yet recorded when the attempt's program ended. Use
    /// that was recorded before is not charged again.
    pub(crate) fn record_final_usage(&self, usage: &[(Option<String>, Usage)]) {
        self.flush_usage(true);
        let board = self.engine.board();
        let Some(attempt) = board.attempts.get(&self.id) else {
            return;
        };
        let model = attempt.session.model.as_deref().or(self.model.as_deref());
        for (session, usage) in usage {
            let usage = with_price(&self.engine.shared.settings.prices, model, *usage);
            let known = attempt.session.usage_of_session(session.as_deref());
            if !usage.since(&known).is_nothing() && usage.tokens() > known.tokens() {
                self.submit_event(
                    attempt.session.last_record,
                    AgentEvent::Usage {
                        session: session.clone(),
                        usage,
                    },
                );
            }
        }
    }

    /// Collects the texts of the messages that the agent's program sends in a turn, up to the
    /// largest size of a summary.
    fn collect_message(&self, event: &AgentEvent) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            AgentEvent::TurnStarted { .. } => pending.turn_text.clear(),
            AgentEvent::Message { text } if pending.turn_text.len() < 16 * 1024 => {
                pending.turn_text.push_str(text)
            }
            _ => {}
        }
    }

    fn submit_event(&self, position: u64, event: AgentEvent) {
        self.report(Report::AgentEvent {
            attempt: self.id,
            token: self.token,
            n: position,
            event,
        });
    }

    /// Reports the latest use of tokens and the fill level of the context window, if they have not
    /// been reported yet. Unless `force` is set, reports only when [`USAGE_INTERVAL`] has passed
    /// since the last report.
    fn flush_usage(&self, force: bool) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = force
            || pending
                .last_written
                .is_none_or(|instant| instant.elapsed() >= USAGE_INTERVAL);
        let mut due_events: Vec<(u64, AgentEvent)> = if is_due {
            pending
                .context
                .take()
                .into_iter()
                .chain(pending.usage.take())
                .collect()
        } else {
            vec![]
        };
        if !due_events.is_empty() {
            pending.last_written = Some(Instant::now());
        }
        drop(pending);
        // Reports go out in the order of their events, because the board (the state of all
        // unfinished work) ignores an event that is older than the last event that it accepted.
        due_events.sort_by_key(|(position, _)| *position);
        for (position, event) in due_events {
            self.submit_event(position, event);
        }
    }

    /// Returns a path relative to the workspace. Returns a path outside the workspace unchanged, so
    /// that the caller recognises it as outside.
    fn relative_path(&self, path: &str) -> String {
        let path = path.strip_prefix("file://").unwrap_or(path);
        let path = policy::plain_path(path);
        match std::path::Path::new(&path).strip_prefix(&self.workspace) {
            Ok(relative) => relative.to_string_lossy().into_owned(),
            Err(_) => path,
        }
    }
}

impl SessionSink for LocalSink<'_> {
    fn on_event(&self, position: u64, event: AgentEvent) {
        self.collect_message(&event);
        if !event.changes_state() {
            return;
        }
        let board = self.engine.board();
        let Some(attempt) = board.attempts.get(&self.id) else {
            return;
        };
        if position < attempt.session.last_record {
            return; // the events are read again after a restart
        }
        match event {
            AgentEvent::Usage { session, usage } => {
                let model = attempt.session.model.as_deref().or(self.model.as_deref());
                let usage = with_price(&self.engine.shared.settings.prices, model, usage);
                self.pending
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .usage = Some((position, AgentEvent::Usage { session, usage }));
                self.flush_usage(false);
            }
            AgentEvent::Context { .. } => {
                self.pending
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .context = Some((position, event));
                self.flush_usage(false);
            }
            AgentEvent::RequestMade(mut request) => {
                self.flush_usage(true);
                if let RequestContent::Permission { tool, .. } = &mut request.content {
                    tool.paths = tool
                        .paths
                        .iter()
                        .map(|path| self.relative_path(path))
                        .collect();
                }
                self.submit_event(position, AgentEvent::RequestMade(request));
            }
            AgentEvent::TurnEnded {
                stop,
                class,
                detail,
            } if attempt.session.summary_turn.is_some() => {
                self.flush_usage(true);
                let turn_text = self
                    .pending
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .turn_text
                    .clone();
                let detail = non_empty_output(&turn_text).unwrap_or(detail);
                self.submit_event(
                    position,
                    AgentEvent::TurnEnded {
                        stop,
                        class,
                        detail,
                    },
                );
            }
            event => {
                self.flush_usage(true);
                self.submit_event(position, event);
            }
        }
    }

    fn on_silence(&self, since: Option<Duration>) {
        let since_ms =
            since.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        self.report(Report::Silent {
            attempt: self.id,
            token: self.token,
            since_ms,
        });
    }

    fn desired_input(&self) -> SessionInput {
        self.flush_usage(false);
        let board = self.engine.board();
        let Some(attempt) = board.attempts.get(&self.id) else {
            return SessionInput {
                cancels: u32::MAX,
                should_close_input: true,
                ..SessionInput::default()
            };
        };
        let session = &attempt.session;
        let stopping = attempt.stopping.is_some();
        let mut prompts = vec![self.brief.clone()];
        prompts.extend(session.follow_ups.iter().cloned());
        let answers = board
            .approvals
            .values()
            .filter(|approval| approval.attempt == self.id)
            .filter_map(|approval| {
                approval
                    .decision
                    .as_ref()
                    .map(|decision| (approval.request.id.clone(), decision.answer.clone()))
            })
            .collect();
        SessionInput {
            prompts,
            answers,
            cancels: session.cancels + u32::from(stopping),
            should_hold_prompts: session.hold_reason.is_some() || stopping,
            should_close_input: session.closing || stopping || !attempt.accepts_follow_ups,
        }
    }

    fn silence_threshold(&self) -> Duration {
        // Report the silence first after half of the allowed time. Later reports follow while the
        // silence lasts.
        Duration::from_millis(self.engine.board().limits.silence_ms / 2)
    }

    fn should_continue(&self) -> bool {
        !self.engine.is_stopping()
    }
}

/// Adds the cost to a record of used tokens for which the program reported no cost, if the model's
/// price is known. Never adds a cost of zero for an unknown price.
fn with_price(prices: &[prices::ModelPrice], model: Option<&str>, usage: Usage) -> Usage {
    let cost = || model.and_then(|model| prices::cost(prices, model, &usage));
    Usage {
        micro_usd: usage.micro_usd.or_else(cost),
        ..usage
    }
}

/// Translates the way in which a program ended into the way in which its attempt ended.
/// `detail_from_agent` is the agent's own description of its work, and `tail` is the last part of
/// the program's output.
pub(crate) fn program_exit(
    verdict: DriverVerdict,
    detail_from_agent: Option<String>,
    tail: &str,
) -> ProgramExit {
    let detail = if verdict.detail.trim().is_empty() {
        tail.trim()
    } else {
        verdict.detail.trim()
    };
    match (verdict.exit, verdict.class) {
        // The agent's program is missing or cannot be run, so the agent's settings are at fault and
        // not the task.
        (Exit::NotStarted(reason), Some(FailureClass::BadConfig)) => ProgramExit::NotRun {
            reason,
            fault: Some(SetupFault::Agent),
        },
        (Exit::NotStarted(reason), _) => ProgramExit::NotRun {
            reason,
            fault: None,
        },
        (Exit::Lost, _) => ProgramExit::Lost,
        (_, None) => ProgramExit::Done {
            output: detail_from_agent.or_else(|| non_empty_output(&verdict.detail)),
        },
        (exit, Some(class)) => {
            let explanation = detail_from_agent.unwrap_or_else(|| detail.to_owned());
            let ending = match &exit {
                // The program's own explanation of its failure is more useful than the kind of
                // error, so it becomes the reason.
                Exit::Code(0) if !explanation.is_empty() => {
                    return ProgramExit::Failed {
                        reason: explanation,
                        class: Some(class),
                    };
                }
                Exit::Code(0) => format!("it ended with {class}"),
                Exit::Code(code) => format!("its program exited with {code}"),
                Exit::Signal(signal) => format!("its program was ended by signal {signal}"),
                Exit::NotStarted(_) | Exit::Lost => String::new(),
            };
            // The report of the driver (the code that understands the program's output) begins with
            // a sentence about the same exit. Add only the text after that sentence.
            let report = match exit {
                Exit::Code(code) => {
                    explanation.strip_prefix(&format!("It ended with exit code {code} "))
                }
                Exit::Signal(signal) => {
                    explanation.strip_prefix(&format!("Signal {signal} ended it "))
                }
                Exit::NotStarted(_) | Exit::Lost => None,
            };
            let reason = match report {
                Some(report) => format!("{ending} {}", report.trim_end_matches('.')),
                None if explanation.is_empty() => ending,
                None => format!("{ending}: {explanation}"),
            };
            ProgramExit::Failed {
                reason,
                class: Some(class),
            }
        }
    }
}

/// The largest part of a program's last output that is kept, in bytes.
const MAX_OUTPUT_BYTES: usize = 48 * 1024;

/// Returns the text without surrounding white space, cut to [`MAX_OUTPUT_BYTES`], or `None` if it
/// is empty.
fn non_empty_output(text: &str) -> Option<String> {
    let mut text = text.trim().to_owned();
    if text.len() > MAX_OUTPUT_BYTES {
        let end = (0..=MAX_OUTPUT_BYTES)
            .rev()
            .find(|index| text.is_char_boundary(*index))
            .unwrap_or(0);
        text.truncate(end);
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a program is stated once, regardless of how its driver reports it.
    #[test]
    fn the_end_of_a_program_is_stated_once() {
        let reason = |exit: Exit, detail: &str| {
            let verdict = DriverVerdict {
                exit,
                class: Some(FailureClass::Crashed),
                detail: detail.into(),
                usage: vec![],
            };
            match program_exit(verdict, None, "") {
                ProgramExit::Failed { reason, .. } => reason,
                exit => panic!("{exit:?}"),
            }
        };
        for (exit, detail, expected) in [
            (
                Exit::Code(127),
                "It ended with exit code 127 before it had done its work. Its last words: sh: \
                npx: not found",
                "its program exited with 127 before it had done its work. Its last words: sh: \
                npx: not found",
            ),
            (
                Exit::Code(3),
                "It ended with exit code 3 before it had done its work.",
                "its program exited with 3 before it had done its work",
            ),
            (
                Exit::Signal(9),
                "Signal 9 ended it in a turn.",
                "its program was ended by signal 9 in a turn",
            ),
            (
                Exit::Code(3),
                "no such model",
                "its program exited with 3: no such model",
            ),
            (
                Exit::Code(3),
                "It ended with exit code 30 ",
                "its program exited with 3: It ended with exit code 30",
            ),
            (Exit::Code(3), "", "its program exited with 3"),
        ] {
            assert_eq!(reason(exit, detail), expected);
        }
    }
}
