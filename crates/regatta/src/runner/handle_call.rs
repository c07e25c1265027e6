//! Executes the requests that the daemon sends to this runner.
//!
//! Most requests are calls of [`LocalSite`](regatta_engine::LocalSite), the code with which the
//! daemon runs agents on its own machine. In addition, the project is fetched from the daemon
//! before work begins, and captures (commits of finished work) are pushed to the daemon afterwards.

use std::sync::Arc;
use std::time::Duration;

use regatta_api::call;
use regatta_api::input;
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{DriverVerdict, ProgramLaunch};
use regatta_engine::ports::git::{Authorship, Capture};
use regatta_engine::ports::site::{AttemptSpec, Site, SiteError};
use regatta_engine::remote_site::{CallAnswer, RunnerRequest};
use serde::Serialize;

use super::daemon_client::DaemonCallError;
use super::session_relay::{RelaySink, SupervisionState};
use super::{RETRY_DELAY, RunnerProcess, lock};
use crate::composition;

/// The interval at which new journal records (the program's input and output) are sent to the
/// daemon.
const COPY_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum number of journal records (pieces of a program's input and output) that one call
/// sends to the daemon.
const MAX_COPY_RECORDS: usize = 500;

impl RunnerProcess {
    pub(super) fn execute(&self, request: RunnerRequest) -> CallAnswer {
        match request {
            RunnerRequest::PortsInUse { ports } => {
                call_answer(self.local_site.ports_in_use(&ports))
            }
            RunnerRequest::MakeReady { order, ports } => {
                call_answer(self.prepare_workspace(&order, &ports))
            }
            RunnerRequest::WriteBriefing { order, briefing } => {
                call_answer(self.local_site.write_briefing(&order, briefing.as_deref()))
            }
            RunnerRequest::State { attempt } => call_answer(
                self.local_site
                    .state(attempt)
                    .map_err(|error| error.to_string()),
            ),
            RunnerRequest::Start { launch } => call_answer(
                self.local_site
                    .start(&self.adapt_launch(*launch))
                    .map_err(|error| error.to_string()),
            ),
            RunnerRequest::Attend { attempt } => call_answer(self.supervise(attempt)),
            // `on_call` has already applied this request, in the order of arrival. Only confirm it
            // here.
            RunnerRequest::UpdateInput { .. } => Ok(serde_json::Value::Null),
            RunnerRequest::Stop { attempt, grace_ms } => call_answer(
                self.local_site
                    .stop(attempt, Duration::from_millis(grace_ms))
                    .map_err(|error| error.to_string()),
            ),
            RunnerRequest::ReadReport { order } => call_answer(self.local_site.read_report(&order)),
            RunnerRequest::Capture { order, authorship } => {
                call_answer(self.capture(&order, &authorship))
            }
            RunnerRequest::RunChecks { order } => call_answer(self.local_site.run_checks(&order)),
            RunnerRequest::RunRatchet { order } => call_answer(self.local_site.run_ratchet(&order)),
            RunnerRequest::RemoveWorkspace { order, authorship } => {
                call_answer(self.remove_workspace(&order, &authorship))
            }
        }
    }

    fn prepare_workspace(
        &self,
        order: &AttemptSpec,
        ports: &[(String, String)],
    ) -> Result<regatta_engine::ports::git::Workspace, SiteError> {
        lock(&self.attempt_specs).insert(order.attempt.id, order.clone());
        let wants: Vec<_> = order
            .task
            .fixup
            .iter()
            .map(|fixup| fixup.commit.clone())
            .collect();
        let from = self.daemon.repository_remote(order.project.name.as_str());
        let repo = self.local_site.repo_of(&order.project);
        self.git.fetch_project(&repo, &from, &wants)?;
        self.local_site.make_ready(order, ports)
    }

    /// Adapts the daemon's description of a program launch to this machine: home directories, the
    /// daemon's address, and the paths to hide from the program.
    fn adapt_launch(&self, mut launch: ProgramLaunch) -> ProgramLaunch {
        let homes = composition::attempt_env();
        launch.env.retain(|env| {
            !composition::ATTEMPT_VARIABLES.contains(&env.0.as_str()) && env.0 != "REGATTA_SERVER"
        });
        launch.env.extend(homes);
        launch
            .env
            .push(("REGATTA_SERVER".into(), self.daemon.server().to_owned()));
        if let Some(mcp) = &mut launch.mcp {
            mcp.url = format!("{}/mcp", self.daemon.server());
        }
        let project = lock(&self.attempt_specs)
            .get(&launch.attempt)
            .map(|attempt_spec| attempt_spec.project.clone());
        launch.hidden = project
            .iter()
            .map(|project| self.local_site.repo_of(project).path)
            .collect();
        launch
    }

    /// Supervises an attempt's program and reports to the daemon, until the program ends. If
    /// another thread already supervises the program (for a previous daemon), ends that supervision
    /// first.
    fn supervise(&self, id: AttemptId) -> Result<Option<DriverVerdict>, String> {
        let wired = {
            let mut attended = lock(&self.supervised);
            let known = attended
                .remove(&id)
                .unwrap_or_else(|| Arc::new(SupervisionState::new()));
            // If the daemon's instructions for the program arrived before the supervision began,
            // use the state that contains them. If another thread already supervises the program,
            // end that supervision and continue with a new state.
            let fresh = if known.try_begin() {
                known
            } else {
                Arc::new(known.successor())
            };
            attended.insert(id, fresh.clone());
            fresh
        };
        self.agents.refresh_input(id);
        let turn = lock(&self.supervision_locks).entry(id).or_default().clone();
        let _mine = lock(&turn);
        let workspace = lock(&self.attempt_specs)
            .get(&id)
            .and_then(|attempt_spec| self.local_site.working_dir(attempt_spec))
            .unwrap_or_default();
        let sink = RelaySink::new(self, id, &wired, workspace);
        let ended = std::thread::scope(|scope| {
            let (stop, stops) = std::sync::mpsc::channel::<()>();
            let copier = scope.spawn(move || {
                while stops.recv_timeout(COPY_INTERVAL)
                    == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
                {
                    // Only note the error, because records that cannot be sent now are sent in the
                    // next round.
                    if let Err(error) = self.copy_journal(id) {
                        tracing::debug!(
                            attempt = %id,
                            "could not send the journal (recorded input and output) of attempt \
                             {id} to the daemon, trying again in {} ms: {error}",
                            COPY_INTERVAL.as_millis()
                        );
                    }
                }
            });
            let ended = self.local_site.attend(id, &sink);
            sink.flush();
            drop(stop);
            let _joined = copier.join();
            ended
        });
        // Send the rest of the journal before returning, because the daemon needs the complete
        // journal before it continues with this attempt.
        while let Err(error) = self.copy_journal(id) {
            match error {
                DaemonCallError::Unreachable(_) if wired.should_continue() => {
                    std::thread::sleep(RETRY_DELAY)
                }
                _ => break,
            }
        }
        let mut attended = lock(&self.supervised);
        if attended
            .get(&id)
            .is_some_and(|supervision_state| Arc::ptr_eq(supervision_state, &wired))
        {
            attended.remove(&id);
        }
        drop(attended);
        ended.map_err(|error| error.to_string())
    }

    /// Sends those records of an attempt's journal (the record of its program's input and output)
    /// that the daemon does not have yet.
    fn copy_journal(&self, id: AttemptId) -> Result<(), DaemonCallError> {
        let here = |error: regatta_engine::ports::agents::AgentError| {
            DaemonCallError::Unreachable(error.message)
        };
        let bring = |heading, records| {
            let (runner, session) = (self.name(), self.session());
            let request = input::JournalCopy {
                runner,
                session,
                attempt: id,
                heading,
                records,
            };
            self.daemon.call(call::RunnerCopy(request))
        };
        let mut known = bring(self.agents.journal_heading(id).map_err(here)?, vec![])?;
        loop {
            let records = self
                .agents
                .records(id, known + 1, MAX_COPY_RECORDS)
                .map_err(here)?;
            if records.is_empty() {
                return Ok(());
            }
            let records = records
                .iter()
                .filter_map(|journal| regatta_api::json::to_value(journal).ok())
                .collect();
            let now = bring(None, records)?;
            if now <= known {
                return Ok(());
            }
            known = now;
        }
    }

    fn capture(&self, order: &AttemptSpec, authorship: &Authorship) -> Result<Capture, SiteError> {
        let captured = self.local_site.capture(order, authorship)?;
        self.push_capture(order)?;
        Ok(captured)
    }

    fn push_capture(&self, order: &AttemptSpec) -> Result<(), String> {
        let to = self.daemon.repository_remote(order.project.name.as_str());
        let repo = self.local_site.repo_of(&order.project);
        self.git
            .push_capture(&repo, &to, order.attempt.workspace())
            .map_err(|error| format!("{error} {}", error.hint))
    }

    /// Removes a workspace after committing everything in it and pushing it to the daemon, so that
    /// no work is lost.
    fn remove_workspace(&self, order: &AttemptSpec, authorship: &Authorship) -> Result<(), String> {
        let (repo, of) = (
            self.local_site.repo_of(&order.project),
            order.attempt.workspace(),
        );
        if !repo.path.exists() {
            return Ok(()); // the attempt never had a workspace on this machine
        }
        if !self
            .git
            .uncaptured_paths(&repo, of)
            .map_err(|error| error.to_string())?
            .is_empty()
        {
            self.git
                .capture(&repo, of, authorship)
                .map_err(|error| error.to_string())?;
        }
        self.push_capture(order)?;
        self.local_site.remove_workspace(order, authorship)?;
        self.git
            .forget_attempt(&repo, of)
            .map_err(|error| error.to_string())?;
        lock(&self.attempt_specs).remove(&order.attempt.id);
        lock(&self.supervised).retain(|id, supervision_state| {
            *id != order.attempt.id || supervision_state.has_begun()
        });
        lock(&self.supervision_locks).remove(&order.attempt.id);
        Ok(())
    }

    /// Commits the work of an attempt that was stopped on this machine, and pushes it to the
    /// daemon.
    pub(super) fn keep_work(&self, id: AttemptId) -> Result<(), String> {
        let Some(order) = lock(&self.attempt_specs).get(&id).cloned() else {
            return Ok(());
        };
        let attempt = &order.attempt;
        let signed = regatta_engine::authorship(
            &order.task,
            attempt.agent.as_str(),
            attempt.started_unix_ms,
        );
        self.capture(&order, &signed)
            .map(drop)
            .map_err(String::from)
    }
}

fn call_answer<T: Serialize>(answer: Result<T, impl Into<SiteError>>) -> CallAnswer {
    let given = answer.map_err(Into::into)?;
    regatta_api::json::to_value(&given).map_err(|error| error.to_string().into())
}
