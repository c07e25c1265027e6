//! Passes on what happens in the supervision of one program, between this machine and a daemon on
//! another machine.
//!
//! Reports about the program's work are sent to the daemon. The daemon's instructions for the
//! program, such as prompts, arrive as calls (see [`super`]) and are stored here, where the
//! supervising code reads them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use regatta_api::call;
use regatta_api::input;
use regatta_core::agent_protocol::{AgentEvent, RequestContent};
use regatta_core::ids::AttemptId;
use regatta_core::policy;
use regatta_engine::ports::agents::{SessionInput, SessionSink};
use regatta_engine::remote_site::SessionEvents;

use super::daemon_client::DaemonCallError;
use super::{RETRY_DELAY, RunnerProcess, lock};

/// The maximum time for which a program's reports without urgency, such as token usage, wait before
/// they are sent to the daemon.
const MAX_REPORT_DELAY: Duration = Duration::from_secs(1);
/// The number of waiting reports of a program at which they are sent to the daemon at once.
const MAX_PENDING_REPORTS: usize = 200;

/// The state of the supervision of an attempt's program: the daemon's current instructions for the
/// program, and flags that tell if the supervision has begun and if it should continue.
pub(super) struct SupervisionState {
    session_input: Mutex<SessionInput>,
    silence_ms: AtomicU64,
    should_continue: AtomicBool,
    has_begun: AtomicBool,
}

impl SupervisionState {
    /// Returns the state before the daemon's first instructions. Until they arrive, nothing is sent
    /// to the program.
    pub(super) fn new() -> SupervisionState {
        SupervisionState {
            session_input: Mutex::new(SessionInput {
                should_hold_prompts: true,
                ..SessionInput::default()
            }),
            silence_ms: AtomicU64::new(15 * 60_000),
            should_continue: AtomicBool::new(true),
            has_begun: AtomicBool::new(false),
        }
    }

    /// Marks the program as supervised. Returns false if another thread has already done so.
    pub(super) fn try_begin(&self) -> bool {
        !self.has_begun.swap(true, Ordering::SeqCst)
    }

    /// Returns true if a thread has begun to supervise the program with this state.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::SeqCst)
    }

    /// Ends the supervision that uses this state. Returns the state for the next supervision, with
    /// the daemon's current instructions for the program.
    pub(super) fn successor(&self) -> SupervisionState {
        self.release();
        SupervisionState {
            session_input: Mutex::new(lock(&self.session_input).clone()),
            silence_ms: AtomicU64::new(self.silence_ms.load(Ordering::SeqCst)),
            should_continue: AtomicBool::new(true),
            has_begun: AtomicBool::new(true),
        }
    }

    pub(super) fn set_input(&self, input: SessionInput, silence_ms: u64) {
        *lock(&self.session_input) = input;
        self.silence_ms.store(silence_ms, Ordering::SeqCst);
    }

    /// Asks the thread that supervises the attempt's program to end. The program itself keeps
    /// running.
    pub(super) fn release(&self) {
        self.should_continue.store(false, Ordering::SeqCst);
    }

    pub(super) fn should_continue(&self) -> bool {
        self.should_continue.load(Ordering::SeqCst)
    }
}

/// The reports of a program that the daemon has not received yet.
struct PendingReports {
    /// The reports, each with its position in the journal (the record of the program's input and
    /// output).
    events: Vec<(u64, AgentEvent)>,
    last_flush: Instant,
}

/// Receives the reports of one program and sends them to the daemon. Reports that are not urgent
/// are collected first.
pub(super) struct RelaySink<'a> {
    runner: &'a RunnerProcess,
    id: AttemptId,
    supervision: &'a SupervisionState,
    workspace: std::path::PathBuf,
    pending: Mutex<PendingReports>,
}

impl<'a> RelaySink<'a> {
    pub(super) fn new(
        runner: &'a RunnerProcess,
        id: AttemptId,
        supervision: &'a SupervisionState,
        workspace: std::path::PathBuf,
    ) -> RelaySink<'a> {
        RelaySink {
            runner,
            id,
            supervision,
            workspace,
            pending: Mutex::new(PendingReports {
                events: Vec::new(),
                last_flush: Instant::now(),
            }),
        }
    }

    /// Sends the collected reports to the daemon now.
    pub(super) fn flush(&self) {
        let events = std::mem::take(&mut lock(&self.pending).events);
        if !events.is_empty() {
            self.send_report(SessionEvents {
                events,
                silent: None,
            });
        }
        lock(&self.pending).last_flush = Instant::now();
    }

    /// Sends reports to the daemon, again and again until the daemon has received the reports. If
    /// the daemon refuses the reports, this supervision ends. Nothing is lost, because the next
    /// supervision reports everything again from the journal (the record of the program's input and
    /// output).
    fn send_report(&self, report: SessionEvents) {
        let Ok(report) = regatta_api::json::to_value(&report) else {
            return self.supervision.release();
        };
        while self.supervision.should_continue() {
            let (runner, session) = (self.runner.name(), self.runner.session());
            let request = input::RunnerOutput {
                runner,
                session,
                attempt: self.id,
                words: report.clone(),
            };
            match self.runner.daemon.call(call::RunnerSaid(request)) {
                Ok(true) => return self.runner.record_contact(),
                Ok(false) => return self.supervision.release(),
                Err(DaemonCallError::Refused(_)) if session != self.runner.session() => {}
                Err(DaemonCallError::Refused(problem)) => {
                    tracing::debug!(
                        attempt = %self.id,
                        "the daemon refused a report about the program of attempt {}, so this \
                         runner no longer supervises the program: {}",
                        self.id,
                        problem.message
                    );
                    return self.supervision.release();
                }
                Err(DaemonCallError::Unreachable(_)) => std::thread::sleep(RETRY_DELAY),
            }
        }
    }

    /// Returns a path relative to the workspace, because the daemon does not know where the
    /// workspace is on this machine. A path outside of the workspace stays absolute.
    fn path_in_workspace(&self, path: &str) -> String {
        let plain = policy::plain_path(path.strip_prefix("file://").unwrap_or(path));
        match std::path::Path::new(&plain).strip_prefix(&self.workspace) {
            Ok(inside) => inside.to_string_lossy().into_owned(),
            Err(_) => plain,
        }
    }
}

impl SessionSink for RelaySink<'_> {
    fn on_event(&self, position: u64, mut event: AgentEvent) {
        if let AgentEvent::RequestMade(request) = &mut event
            && let RequestContent::Permission { tool, .. } = &mut request.content
        {
            tool.paths = tool
                .paths
                .iter()
                .map(|path| self.path_in_workspace(path))
                .collect();
        }
        let can_wait = !event.changes_state()
            || matches!(event, AgentEvent::Usage { .. } | AgentEvent::Context { .. });
        let mut pending = lock(&self.pending);
        // Each usage report contains the total of its session, so the new report replaces the
        // report that still waits.
        if let (
            Some((
                _,
                AgentEvent::Usage {
                    session: last_session,
                    ..
                },
            )),
            AgentEvent::Usage { session, .. },
        ) = (pending.events.last(), &event)
            && last_session == session
        {
            pending.events.pop();
        }
        if event.changes_state() || matches!(event, AgentEvent::Message { .. }) {
            pending.events.push((position, event));
        }
        let is_full = pending.events.len() >= MAX_PENDING_REPORTS;
        drop(pending);
        if !can_wait || is_full {
            self.flush();
        }
    }

    fn on_silence(&self, since: Option<Duration>) {
        self.flush();
        let since = since.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        self.send_report(SessionEvents {
            events: vec![],
            silent: Some(since),
        });
    }

    fn desired_input(&self) -> SessionInput {
        let is_due = {
            let pending = lock(&self.pending);
            !pending.events.is_empty() && pending.last_flush.elapsed() >= MAX_REPORT_DELAY
        };
        if is_due {
            self.flush();
        }
        lock(&self.supervision.session_input).clone()
    }

    fn silence_threshold(&self) -> Duration {
        Duration::from_millis(self.supervision.silence_ms.load(Ordering::SeqCst))
    }

    fn should_continue(&self) -> bool {
        self.supervision.should_continue()
    }
}
