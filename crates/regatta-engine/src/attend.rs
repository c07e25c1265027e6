//! The engine's side of a program that runs: what it said goes to the board, what is wanted of it comes from there.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use regatta_core::attempt::{Attempt, Exited, SetupFault};
use regatta_core::command::{Actor, Command, Request};
use regatta_core::ids::AttemptId;
use regatta_core::policy;
use regatta_core::session::{Class, Said, Usage, Want};

use crate::ports::agents::{Desk, Exit, Verdict, Wishes};
use crate::{Engine, Failure, prices};

/// How often an attempt's use, and how full its context is, are written down at most.
const USAGE_PACE: Duration = Duration::from_secs(1);

/// The desk of one attempt.
pub(crate) struct AttemptDesk<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) id: AttemptId,
    pub(crate) token: u64,
    pub(crate) workspace: PathBuf,
    pub(crate) brief: String,
    /// The model that was asked for, until the program says which it has.
    pub(crate) model: Option<String>,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    usage: Option<(u64, Said)>,
    context: Option<(u64, Said)>,
    written: Option<Instant>,
    /// What it said in the turn under way: the summary, when it is asked for one.
    words: String,
}

impl<'a> AttemptDesk<'a> {
    pub(crate) fn new(engine: &'a Engine, attempt: &Attempt, workspace: PathBuf, brief: String) -> AttemptDesk<'a> {
        let model = engine.board().agents.get(&attempt.agent).and_then(|it| it.profile.model.clone());
        let (id, token) = (attempt.id, attempt.token);
        AttemptDesk { engine, id, token, workspace, brief, model, pending: Mutex::default() }
    }

    /// Writes something down; a refusal means that the world has moved on.
    fn tell(&self, command: Command) {
        loop {
            match self.engine.submit(Request { by: Actor::Regatta, key: None, command: command.clone() }) {
                Ok(_) | Err(Failure::Stopping) => return,
                Err(Failure::Refused { refusal, .. }) => {
                    tracing::debug!(attempt = %self.id, "what it said changed nothing: {}", refusal.message());
                    return;
                }
                Err(Failure::Store(error)) => {
                    tracing::error!(attempt = %self.id, "what it said waits for the store: {error}");
                    std::thread::sleep(Duration::from_secs(1));
                    if self.engine.is_stopping() {
                        return; // it is in the journal, and told again at the next start
                    }
                }
            }
        }
    }

    /// Writes down what is still owed when its program has ended. What was heard before is not charged again.
    pub(crate) fn settle(&self, usage: &[(Option<String>, Usage)]) {
        self.flush(true);
        let board = self.engine.board();
        let Some(attempt) = board.attempts.get(&self.id) else { return };
        let model = attempt.talk.model.as_deref().or(self.model.as_deref());
        for (session, usage) in usage {
            let usage = price(&self.engine.shared.settings.prices, model, *usage);
            let known = attempt.talk.used_in(session.as_deref());
            if !usage.since(&known).is_nothing() && usage.tokens() > known.tokens() {
                self.report(attempt.talk.heard, Said::Usage { session: session.clone(), usage });
            }
        }
    }

    /// Keeps what is said in a turn, as much as a summary may have.
    fn remember(&self, said: &Said) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        match said {
            Said::TurnStarted { .. } => pending.words.clear(),
            Said::Message { text } if pending.words.len() < 16 * 1024 => pending.words.push_str(text),
            _ => {}
        }
    }

    fn report(&self, n: u64, said: Said) {
        self.tell(Command::ReportSaid { attempt: self.id, token: self.token, n, said });
    }

    /// Writes the last use down, if any is owed and it is time.
    fn flush(&self, now: bool) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let due = now || pending.written.is_none_or(|it| it.elapsed() >= USAGE_PACE);
        let mut owed: Vec<(u64, Said)> =
            if due { pending.context.take().into_iter().chain(pending.usage.take()).collect() } else { vec![] };
        if !owed.is_empty() {
            pending.written = Some(Instant::now());
        }
        drop(pending);
        // In the order they were said: the board takes nothing from before what it knows.
        owed.sort_by_key(|it| it.0);
        for (n, said) in owed {
            self.report(n, said);
        }
    }

    /// Paths as the workspace sees them: the rest stays as it was named, and so is recognised as outside.
    fn inside(&self, path: &str) -> String {
        let plain = path.strip_prefix("file://").unwrap_or(path);
        let plain = policy::plain_path(plain);
        match std::path::Path::new(&plain).strip_prefix(&self.workspace) {
            Ok(inside) => inside.to_string_lossy().into_owned(),
            Err(_) => plain,
        }
    }
}

impl Desk for AttemptDesk<'_> {
    fn heard(&self, n: u64, said: Said) {
        self.remember(&said);
        if !said.changes_state() {
            return;
        }
        let board = self.engine.board();
        let Some(attempt) = board.attempts.get(&self.id) else { return };
        if n < attempt.talk.heard {
            return; // told again after a restart
        }
        match said {
            Said::Usage { session, usage } => {
                let model = attempt.talk.model.as_deref().or(self.model.as_deref());
                let usage = price(&self.engine.shared.settings.prices, model, usage);
                self.pending.lock().unwrap_or_else(PoisonError::into_inner).usage =
                    Some((n, Said::Usage { session, usage }));
                self.flush(false);
            }
            Said::Context { .. } => {
                self.pending.lock().unwrap_or_else(PoisonError::into_inner).context = Some((n, said));
                self.flush(false);
            }
            Said::Asked(mut ask) => {
                self.flush(true);
                if let Want::Permission { tool, .. } = &mut ask.want {
                    tool.paths = tool.paths.iter().map(|it| self.inside(it)).collect();
                }
                self.report(n, Said::Asked(ask));
            }
            Said::TurnEnded { stop, class, detail } if attempt.talk.rotating.is_some() => {
                self.flush(true);
                let words = self.pending.lock().unwrap_or_else(PoisonError::into_inner).words.clone();
                let detail = some(&words).unwrap_or(detail);
                self.report(n, Said::TurnEnded { stop, class, detail });
            }
            other => {
                self.flush(true);
                self.report(n, other);
            }
        }
    }

    fn silent(&self, since: Option<Duration>) {
        let since_ms = since.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        self.tell(Command::ReportSilent { attempt: self.id, token: self.token, since_ms });
    }

    fn wishes(&self) -> Wishes {
        self.flush(false);
        let board = self.engine.board();
        let Some(attempt) = board.attempts.get(&self.id) else {
            return Wishes { cancels: u32::MAX, end: true, ..Wishes::default() };
        };
        let talk = &attempt.talk;
        let stopping = attempt.stopping.is_some();
        let mut prompts = vec![self.brief.clone()];
        prompts.extend(talk.tells.iter().cloned());
        let answers = board
            .approvals
            .values()
            .filter(|it| it.attempt == self.id)
            .filter_map(|it| it.decision.as_ref().map(|decision| (it.ask.id.clone(), decision.answer.clone())))
            .collect();
        Wishes {
            prompts,
            answers,
            cancels: talk.cancels + u32::from(stopping),
            hold: talk.held.is_some() || stopping,
            end: talk.closing || stopping || !attempt.talks,
        }
    }

    fn silence(&self) -> Duration {
        // Half of what it may be silent for: that is worth telling, and the rest of it is told as it passes.
        Duration::from_millis(self.engine.board().limits.silence_ms / 2)
    }

    fn goes_on(&self) -> bool {
        !self.engine.is_stopping()
    }
}

/// Gives use a price where the program named none and one is known. Never a nought for what is not known.
fn price(prices: &[prices::Price], model: Option<&str>, usage: Usage) -> Usage {
    let cost = || model.and_then(|it| prices::cost(prices, it, &usage));
    Usage { micro_usd: usage.micro_usd.or_else(cost), ..usage }
}

/// What an attended program's end means for its attempt.
pub(crate) fn how_it_ended(verdict: Verdict, said: Option<String>, tail: &str) -> Exited {
    let detail = if verdict.detail.trim().is_empty() { tail.trim() } else { verdict.detail.trim() };
    match (verdict.exit, verdict.class) {
        // The program is missing or cannot be run: its agent's set-up is at fault.
        (Exit::NotStarted(reason), Some(Class::BadConfig)) => Exited::NotRun { reason, fault: Some(SetupFault::Agent) },
        (Exit::NotStarted(reason), _) => Exited::NotRun { reason, fault: None },
        (Exit::Lost, _) => Exited::Lost,
        (_, None) => Exited::Done { output: said.or_else(|| some(&verdict.detail)) },
        (exit, Some(class)) => {
            let words = said.unwrap_or_else(|| detail.to_owned());
            let what = match &exit {
                // The program's own words say more than the class of its trouble.
                Exit::Code(0) if !words.is_empty() => return Exited::Failed { reason: words, class: Some(class) },
                Exit::Code(0) => format!("it ended with {class}"),
                Exit::Code(code) => format!("its program exited with {code}"),
                Exit::Signal(signal) => format!("its program was ended by signal {signal}"),
                Exit::NotStarted(_) | Exit::Lost => String::new(),
            };
            // A driver's report of the same end adds only what follows.
            let report = match exit {
                Exit::Code(code) => words.strip_prefix(&format!("It ended with exit code {code} ")),
                Exit::Signal(signal) => words.strip_prefix(&format!("Signal {signal} ended it ")),
                Exit::NotStarted(_) | Exit::Lost => None,
            };
            let reason = match report {
                Some(report) => format!("{what} {}", report.trim_end_matches('.')),
                None if words.is_empty() => what,
                None => format!("{what}: {words}"),
            };
            Exited::Failed { reason, class: Some(class) }
        }
    }
}

/// The most that is kept of what a program said last. No answer that a driver keeps is longer.
const MAX_OUTPUT_BYTES: usize = 48 * 1024;

fn some(text: &str) -> Option<String> {
    let mut text = text.trim().to_owned();
    if text.len() > MAX_OUTPUT_BYTES {
        let end = (0..=MAX_OUTPUT_BYTES).rev().find(|it| text.is_char_boundary(*it)).unwrap_or(0);
        text.truncate(end);
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a program is told once, however its driver reports it.
    #[test]
    fn the_end_of_a_program_is_told_once() {
        let reason = |exit: Exit, detail: &str| {
            let verdict = Verdict { exit, class: Some(Class::Crashed), detail: detail.into(), usage: vec![] };
            match how_it_ended(verdict, None, "") {
                Exited::Failed { reason, .. } => reason,
                other => panic!("{other:?}"),
            }
        };
        for (exit, detail, words) in [
            (
                Exit::Code(127),
                "It ended with exit code 127 before it had done its work. Its last words: sh: npx: not found",
                "its program exited with 127 before it had done its work. Its last words: sh: npx: not found",
            ),
            (
                Exit::Code(3),
                "It ended with exit code 3 before it had done its work.",
                "its program exited with 3 before it had done its work",
            ),
            (Exit::Signal(9), "Signal 9 ended it in a turn.", "its program was ended by signal 9 in a turn"),
            (Exit::Code(3), "no such model", "its program exited with 3: no such model"),
            (Exit::Code(3), "It ended with exit code 30 ", "its program exited with 3: It ended with exit code 30"),
            (Exit::Code(3), "", "its program exited with 3"),
        ] {
            assert_eq!(reason(exit, detail), words);
        }
    }
}
