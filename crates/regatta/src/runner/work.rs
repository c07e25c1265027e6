//! Executes the daemon's requests on this machine.
//!
//! Each request is one call of the local site, the same code that the daemon uses for its own
//! machine. In addition, the project is fetched from the daemon before work begins, and captures
//! are pushed to the daemon afterwards.

use std::sync::Arc;
use std::time::Duration;

use regatta_api::Call;
use regatta_api::input;
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{Launch, Verdict};
use regatta_engine::ports::git::{Authorship, Capture};
use regatta_engine::ports::site::{Order, Site, SiteError};
use regatta_engine::there::{Ask, CallAnswer};
use serde::Serialize;

use super::desk::{FarDesk, Wired};
use super::line::Broken;
use super::{AGAIN, Runner, lock};
use crate::wire;

/// How often new journal records are sent to the daemon.
const COPIES: Duration = Duration::from_millis(500);
/// How many records are sent at once.
const RECORDS: usize = 500;

impl Runner {
    pub(super) fn perform(&self, ask: Ask) -> CallAnswer {
        match ask {
            Ask::Taken { ports } => give(self.here.taken(&ports)),
            Ask::Ready { order, ports } => give(self.ready(&order, &ports)),
            Ask::Brief { order, briefing } => give(self.here.brief(&order, briefing.as_deref())),
            Ask::State { attempt } => give(self.here.state(attempt).map_err(|it| it.to_string())),
            Ask::Start { launch } => give(self.here.start(&self.at_home(*launch)).map_err(|it| it.to_string())),
            Ask::Attend { attempt } => give(self.attend(attempt)),
            Ask::Wish { .. } => Ok(serde_json::Value::Null), // handled in the order of arrival by `take`
            Ask::Stop { attempt, grace_ms } => {
                give(self.here.stop(attempt, Duration::from_millis(grace_ms)).map_err(|it| it.to_string()))
            }
            Ask::Hear { order } => give(self.here.hear(&order)),
            Ask::Capture { order, authorship } => give(self.capture(&order, &authorship)),
            Ask::Examine { order } => give(self.here.examine(&order)),
            Ask::Ratchet { order } => give(self.here.ratchet(&order)),
            Ask::Clear { order, authorship } => give(self.clear(&order, &authorship)),
        }
    }

    fn ready(
        &self,
        order: &Order,
        ports: &[(String, String)],
    ) -> Result<regatta_engine::ports::git::Workspace, SiteError> {
        lock(&self.orders).insert(order.attempt.id, order.clone());
        let wants: Vec<_> = order.task.fixup.iter().map(|it| it.commit.clone()).collect();
        let from = self.line.repository(order.project.name.as_str());
        let repo = self.here.repo(&order.project);
        self.git.take_in(&repo, &from, &wants)?;
        self.here.ready(order, ports)
    }

    /// Adapts a launch to this machine: home directories, the daemon's address, and hidden paths.
    fn at_home(&self, mut launch: Launch) -> Launch {
        let homes = wire::attempt_env();
        launch.env.retain(|it| !wire::HOMES.contains(&it.0.as_str()) && it.0 != "REGATTA_SERVER");
        launch.env.extend(homes);
        launch.env.push(("REGATTA_SERVER".into(), self.line.server().to_owned()));
        if let Some(mcp) = &mut launch.mcp {
            mcp.url = format!("{}/mcp", self.line.server());
        }
        let project = lock(&self.orders).get(&launch.attempt).map(|it| it.project.clone());
        launch.hidden = project.iter().map(|it| self.here.repo(it).path).collect();
        launch
    }

    /// Supervises a program until it ends. A supervision for an earlier daemon ends first.
    fn attend(&self, id: AttemptId) -> Result<Option<Verdict>, String> {
        let wired = {
            let mut attended = lock(&self.attended);
            let known = attended.remove(&id).unwrap_or_else(|| Arc::new(Wired::new()));
            // Instructions may have arrived first. A supervision that runs already ends.
            let fresh = if known.begin() { known } else { Arc::new(known.succeed()) };
            attended.insert(id, fresh.clone());
            fresh
        };
        self.agents.nudge(id);
        let turn = lock(&self.turns).entry(id).or_default().clone();
        let _mine = lock(&turn);
        let workspace = lock(&self.orders).get(&id).and_then(|it| self.here.place(it)).unwrap_or_default();
        let desk = FarDesk::new(self, id, &wired, workspace);
        let ended = std::thread::scope(|scope| {
            let (stop, stops) = std::sync::mpsc::channel::<()>();
            let copier = scope.spawn(move || {
                while stops.recv_timeout(COPIES) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                    // Records that could not be sent now are sent in the next round.
                    if let Err(error) = self.copy(id) {
                        tracing::debug!(attempt = %id, "could not send the journal to the daemon, trying again later: {error}");
                    }
                }
            });
            let ended = self.here.attend(id, &desk);
            desk.flush();
            drop(stop);
            let _joined = copier.join();
            ended
        });
        // A daemon that continues this attempt must have the complete journal first.
        while let Err(error) = self.copy(id) {
            match error {
                Broken::Away(_) if wired.goes_on() => std::thread::sleep(AGAIN),
                _ => break,
            }
        }
        let mut attended = lock(&self.attended);
        if attended.get(&id).is_some_and(|it| Arc::ptr_eq(it, &wired)) {
            attended.remove(&id);
        }
        drop(attended);
        ended.map_err(|it| it.to_string())
    }

    /// Sends the daemon the journal records that it does not have yet.
    fn copy(&self, id: AttemptId) -> Result<(), Broken> {
        let here = |it: regatta_engine::ports::agents::AgentError| Broken::Away(it.what);
        let bring = |heading, records| {
            let (runner, session) = (self.name(), self.session());
            let ask = input::RunnerCopy { runner, session, attempt: id, heading, records };
            self.line.call::<u64>(&Call::RunnerCopy(ask))
        };
        let mut known = bring(self.agents.heading(id).map_err(here)?, vec![])?;
        loop {
            let records = self.agents.records(id, known + 1, RECORDS).map_err(here)?;
            if records.is_empty() {
                return Ok(());
            }
            let records = records.iter().filter_map(|it| serde_json::to_value(it).ok()).collect();
            let now = bring(None, records)?;
            if now <= known {
                return Ok(());
            }
            known = now;
        }
    }

    fn capture(&self, order: &Order, authorship: &Authorship) -> Result<Capture, SiteError> {
        let captured = self.here.capture(order, authorship)?;
        self.hand_over(order)?;
        Ok(captured)
    }

    fn hand_over(&self, order: &Order) -> Result<(), String> {
        let to = self.line.repository(order.project.name.as_str());
        let repo = self.here.repo(&order.project);
        self.git.hand_over(&repo, &to, order.attempt.workspace()).map_err(|it| format!("{it} {}", it.hint))
    }

    /// Removes a workspace, after everything in it was pushed to the daemon's vault.
    fn clear(&self, order: &Order, authorship: &Authorship) -> Result<(), String> {
        let (repo, of) = (self.here.repo(&order.project), order.attempt.workspace());
        if !repo.path.exists() {
            return Ok(()); // the attempt never had a workspace on this machine
        }
        if !self.git.unkept(&repo, of).map_err(|it| it.to_string())?.is_empty() {
            self.git.capture(&repo, of, authorship).map_err(|it| it.to_string())?;
        }
        self.hand_over(order)?;
        self.here.clear(order, authorship)?;
        self.git.let_go(&repo, of).map_err(|it| it.to_string())?;
        lock(&self.orders).remove(&order.attempt.id);
        lock(&self.attended).retain(|id, it| *id != order.attempt.id || it.has_begun());
        lock(&self.turns).remove(&order.attempt.id);
        Ok(())
    }

    /// Captures and hands over the work of an attempt that was stopped on this machine.
    pub(super) fn keep(&self, id: AttemptId) -> Result<(), String> {
        let Some(order) = lock(&self.orders).get(&id).cloned() else { return Ok(()) };
        let attempt = &order.attempt;
        let signed = regatta_engine::authorship(&order.task, attempt.agent.as_str(), attempt.started_wall);
        self.capture(&order, &signed).map(drop).map_err(String::from)
    }
}

fn give<T: Serialize>(answer: Result<T, impl Into<SiteError>>) -> CallAnswer {
    let given = answer.map_err(Into::into)?;
    serde_json::to_value(given).map_err(|error| error.to_string().into())
}
