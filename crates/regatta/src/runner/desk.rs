//! Supervises one program on this machine for a daemon elsewhere.
//!
//! What the program reports is sent to the daemon. The daemon's instructions for the program arrive
//! as calls (see [`super`]) and are stored here, where the supervising code in regatta-engine reads
//! them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use regatta_api::Call;
use regatta_api::input;
use regatta_core::ids::AttemptId;
use regatta_core::policy;
use regatta_core::session::{Said, Want};
use regatta_engine::ports::agents::{Desk, Wishes};
use regatta_engine::there::Words;

use super::line::Broken;
use super::{AGAIN, Runner, lock};

/// How long frequent reports, such as usage, may wait before they are sent.
const PACE: Duration = Duration::from_secs(1);
/// How many reports are collected before they are sent at the latest.
const MOST: usize = 200;

/// The daemon's current instructions for a program, and whether the program is still supervised.
pub(super) struct Wired {
    wishes: Mutex<Wishes>,
    silence_ms: AtomicU64,
    goes_on: AtomicBool,
    begun: AtomicBool,
}

impl Wired {
    /// Returns the state before the first instructions. Until they arrive, nothing is sent to the
    /// program.
    pub(super) fn new() -> Wired {
        Wired {
            wishes: Mutex::new(Wishes { hold: true, ..Wishes::default() }),
            silence_ms: AtomicU64::new(15 * 60_000),
            goes_on: AtomicBool::new(true),
            begun: AtomicBool::new(false),
        }
    }

    /// Marks the program as supervised. Returns whether the caller is the first to do so.
    pub(super) fn begin(&self) -> bool {
        !self.begun.swap(true, Ordering::SeqCst)
    }

    /// Returns whether the program is supervised with this value.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Ends this supervision, and returns a new value with the same instructions for the next one.
    pub(super) fn succeed(&self) -> Wired {
        self.let_go();
        Wired {
            wishes: Mutex::new(lock(&self.wishes).clone()),
            silence_ms: AtomicU64::new(self.silence_ms.load(Ordering::SeqCst)),
            goes_on: AtomicBool::new(true),
            begun: AtomicBool::new(true),
        }
    }

    pub(super) fn wish(&self, wishes: Wishes, silence_ms: u64) {
        *lock(&self.wishes) = wishes;
        self.silence_ms.store(silence_ms, Ordering::SeqCst);
    }

    /// Ends the supervision; the program keeps running.
    pub(super) fn let_go(&self) {
        self.goes_on.store(false, Ordering::SeqCst);
    }

    pub(super) fn goes_on(&self) -> bool {
        self.goes_on.load(Ordering::SeqCst)
    }
}

/// Sends the program's reports to the daemon, and collects those that may wait.
pub(super) struct FarDesk<'a> {
    runner: &'a Runner,
    id: AttemptId,
    wired: &'a Wired,
    workspace: std::path::PathBuf,
    kept: Mutex<(Vec<(u64, Said)>, Instant)>,
}

impl<'a> FarDesk<'a> {
    pub(super) fn new(
        runner: &'a Runner,
        id: AttemptId,
        wired: &'a Wired,
        workspace: std::path::PathBuf,
    ) -> FarDesk<'a> {
        FarDesk { runner, id, wired, workspace, kept: Mutex::new((Vec::new(), Instant::now())) }
    }

    /// Sends the collected reports.
    pub(super) fn flush(&self) {
        let heard = std::mem::take(&mut lock(&self.kept).0);
        if !heard.is_empty() {
            self.send(Words { heard, silent: None });
        }
        lock(&self.kept).1 = Instant::now();
    }

    /// Sends reports until the daemon has received them. If that fails nothing is lost, because the
    /// next supervision reports everything again from the journal.
    fn send(&self, words: Words) {
        let Ok(words) = serde_json::to_value(&words) else { return self.wired.let_go() };
        while self.wired.goes_on() {
            let (runner, session) = (self.runner.name(), self.runner.session());
            let ask = input::RunnerSaid { runner, session, attempt: self.id, words: words.clone() };
            match self.runner.line.call::<bool>(&Call::RunnerSaid(ask)) {
                Ok(true) => return self.runner.in_contact(),
                Ok(false) => return self.wired.let_go(),
                Err(Broken::Refused(_)) if session != self.runner.session() => {}
                Err(Broken::Refused(problem)) => {
                    tracing::debug!(attempt = %self.id, "the daemon refused a report of the program: {}", problem.message);
                    return self.wired.let_go();
                }
                Err(Broken::Away(_)) => std::thread::sleep(AGAIN),
            }
        }
    }

    /// Returns a path relative to the workspace, because the daemon does not know where the
    /// workspace is.
    fn inside(&self, path: &str) -> String {
        let plain = policy::plain_path(path.strip_prefix("file://").unwrap_or(path));
        match std::path::Path::new(&plain).strip_prefix(&self.workspace) {
            Ok(inside) => inside.to_string_lossy().into_owned(),
            Err(_) => plain,
        }
    }
}

impl Desk for FarDesk<'_> {
    fn heard(&self, n: u64, mut said: Said) {
        if let Said::Asked(ask) = &mut said
            && let Want::Permission { tool, .. } = &mut ask.want
        {
            tool.paths = tool.paths.iter().map(|it| self.inside(it)).collect();
        }
        let waits = !said.changes_state() || matches!(said, Said::Usage { .. } | Said::Context { .. });
        let mut kept = lock(&self.kept);
        // Usage only grows, so only the last report of a session matters.
        if let (Some((_, Said::Usage { session: before, .. })), Said::Usage { session, .. }) = (kept.0.last(), &said)
            && before == session
        {
            kept.0.pop();
        }
        if said.changes_state() || matches!(said, Said::Message { .. }) {
            kept.0.push((n, said));
        }
        let full = kept.0.len() >= MOST;
        drop(kept);
        if !waits || full {
            self.flush();
        }
    }

    fn silent(&self, since: Option<Duration>) {
        self.flush();
        let since = since.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        self.send(Words { heard: vec![], silent: Some(since) });
    }

    fn wishes(&self) -> Wishes {
        let due = {
            let kept = lock(&self.kept);
            !kept.0.is_empty() && kept.1.elapsed() >= PACE
        };
        if due {
            self.flush();
        }
        lock(&self.wired.wishes).clone()
    }

    fn silence(&self) -> Duration {
        Duration::from_millis(self.wired.silence_ms.load(Ordering::SeqCst))
    }

    fn goes_on(&self) -> bool {
        self.wired.goes_on()
    }
}
