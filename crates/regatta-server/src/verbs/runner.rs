//! Implements the API verbs for runners (processes on other machines that execute attempts): their
//! reports, and the calls that the daemon makes to them.
//!
//! A runner may be behind a firewall, so it fetches the daemon's calls and sends their answers.
//! Only the token that registered a runner may act for it.

use regatta_api::view::{RunnerCallView, RunnerSessionView, RunnerView};
use regatta_core::ids::RunnerName;
use regatta_core::refusal::Refusal;
use regatta_core::runner::{self, Runner};
use regatta_engine::ports::agents::JournalRecord;
use regatta_engine::ports::site::SiteError;
use regatta_engine::remote_site::{RunnerCall, SessionEvents};
use tokio::time::Instant;

use super::*;

/// Maximum time that a request of a runner (another machine) for the daemon's calls waits while
/// there are no calls.
const MAX_CALLS_WAIT: Duration = Duration::from_secs(60);

impl VerbHandler<'_> {
    pub(super) async fn runner_list(
        &self,
        _: input::EmptyInput,
        page: &PageRequest,
    ) -> PageReply<Vec<RunnerView>> {
        let board = self.board();
        let mut runners: Vec<&Arc<Runner>> = board.runners.values().collect();
        natural_sort::sort(&mut runners, |runner| runner.name.as_str());
        let runners = page.select(
            runners,
            |runner| runner.name.to_string(),
            |runner| RunnerView::new(&board, runner),
        )?;
        reply(board.revision, runners)
    }

    pub(super) async fn runner_drain(
        &self,
        input: input::RunnerNameInput,
    ) -> Reply<Vec<AttemptId>> {
        self.require_runner_caller(&input.name)?;
        let reason = format!("drained by {}", self.actor);
        let (revision, _) = self
            .run(Command::DrainRunner {
                runner: input.name.clone(),
                reason,
            })
            .await?;
        reply(revision, self.attempts_on_runner(&input.name))
    }

    /// Returns the attempts on a runner (another machine that executes attempts) that have not
    /// ended yet.
    fn attempts_on_runner(&self, name: &RunnerName) -> Vec<AttemptId> {
        self.board()
            .attempts
            .values()
            .filter(|attempt| attempt.runner.as_ref() == Some(name))
            .map(|attempt| attempt.id)
            .collect()
    }

    pub(super) async fn runner_register(
        &self,
        input: runner::RegisterRunner,
    ) -> Reply<RunnerSessionView> {
        let name = input.name.clone();
        let input = runner::RegisterRunner {
            token: self.principal.label(),
            ..input
        };
        let (revision, outcome) = self.run(Command::RegisterRunner(input)).await?;
        let CommandOutcome::Runner { session } = outcome else {
            return Err(unexpected_outcome(&outcome));
        };
        reply(
            revision,
            RunnerSessionView {
                session,
                attempts: self.attempts_on_runner(&name),
            },
        )
    }

    /// Renews the session of a runner (another machine that executes attempts), so that the runner
    /// does not count as lost. Returns the runner's attempts, because a runner that is about to
    /// leave waits until its last attempt has ended.
    pub(super) async fn runner_beat(&self, input: input::RunnerSession) -> Reply<Vec<AttemptId>> {
        self.require_runner_caller(&input.runner)?;
        let name = input.runner.clone();
        let (revision, _) = self
            .run(Command::BeatRunner {
                runner: input.runner,
                session: input.session,
            })
            .await?;
        reply(revision, self.attempts_on_runner(&name))
    }

    pub(super) async fn runner_leave(&self, input: input::RunnerSession) -> Reply<Done> {
        self.require_runner_caller(&input.runner)?;
        self.run_and_confirm(Command::LeaveRunner {
            runner: input.runner,
            session: input.session,
        })
        .await
    }

    /// Returns the daemon's unanswered calls to a runner (another machine that executes attempts).
    /// Waits until there is a call, the runner's session ends, or the time is over.
    pub(super) async fn runner_calls(
        &self,
        input: input::RunnerCalls,
    ) -> Reply<Vec<RunnerCallView>> {
        self.require_runner_caller(&input.runner)?;
        let deadline = Instant::now() + Duration::from_millis(input.wait_ms).min(MAX_CALLS_WAIT);
        let (mut new_calls, mut changes) = (
            self.engine().watch_runner_calls(),
            self.shared.event_fanout.watch_runners(),
        );
        loop {
            new_calls.mark_unchanged();
            changes.mark_unchanged();
            let calls = self
                .engine()
                .runner_calls(&input.runner, input.session, input.after);
            let calls = calls.map_err(|refusal| Problem::from(&refusal))?;
            if !calls.is_empty() || Instant::now() >= deadline {
                return reply(self.board().revision, runner_call_views(calls)?);
            }
            tokio::select! {
                _ = new_calls.changed() => {}
                _ = self.wait_for_session_end(&input, &mut changes) => {}
                () = tokio::time::sleep_until(deadline) => {}
            }
        }
    }

    async fn wait_for_session_end(
        &self,
        input: &input::RunnerCalls,
        changes: &mut tokio::sync::watch::Receiver<()>,
    ) {
        while runner::require_session(&self.board(), &input.runner, input.session).is_ok() {
            if changes.changed().await.is_err() {
                return; // the daemon is ending
            }
        }
    }

    pub(super) async fn runner_answer(&self, input: input::RunnerCallResult) -> Reply<Done> {
        self.require_runner_caller(&input.runner)?;
        let answered = match input.error {
            Some(reason) => Err(SiteError {
                reason,
                fault: input.fault,
            }),
            None => Ok(input.gave),
        };
        self.engine()
            .on_runner_answer(&input.runner, input.session, input.call, answered)
            .map_err(|refusal| Problem::from(&refusal))?;
        reply(self.board().revision, Done::Done)
    }

    pub(super) async fn runner_said(&self, input: input::RunnerOutput) -> Reply<bool> {
        self.require_runner_caller(&input.runner)?;
        let events: SessionEvents = parse_input("runner.said", input.words)?;
        let engine = self.engine().clone();
        let outcome = run_blocking(move || {
            engine.on_runner_events(&input.runner, input.session, input.attempt, events)
        })
        .await?;
        reply(
            self.board().revision,
            outcome.map_err(|refusal| Problem::from(&refusal))?,
        )
    }

    /// Stores the transcript records that a runner (another machine that executes attempts) copies
    /// to the daemon. Returns the number of the last stored record.
    pub(super) async fn runner_copy(&self, input: input::JournalCopy) -> Reply<u64> {
        self.require_runner_caller(&input.runner)?;
        let board = self.board();
        runner::require_session(&board, &input.runner, input.session)
            .map_err(|refusal| Problem::from(&refusal))?;
        if !self.has_run_attempt(&input.runner, input.attempt).await? {
            return Err(Problem::new(
                403,
                "not_yours",
                format!(
                    "{} did not run on the runner {}, so the runner cannot send its transcript",
                    input.attempt, input.runner
                ),
                "send only the transcripts of attempts that this runner executed",
            ));
        }
        let records: Vec<JournalRecord> =
            parse_input("runner.copy", serde_json::Value::Array(input.records))?;
        let (engine, id) = (self.engine().clone(), input.attempt);
        let copied = run_blocking(move || {
            let agents = engine.agents();
            if let Some(heading) = &input.heading {
                agents.store_heading(id, heading)?;
            }
            if records.is_empty() {
                agents.last_copied_position(id)
            } else {
                agents.append_copy(id, &records)
            }
        });
        let copied = copied
            .await?
            .map_err(|error| Problem::new(409, "not_copied", error.message, error.hint))?;
        reply(board.revision, copied)
    }

    /// Returns whether an attempt runs, or has run, on this runner (another machine that executes
    /// attempts).
    async fn has_run_attempt(&self, name: &RunnerName, id: AttemptId) -> Result<bool, Problem> {
        if let Some(attempt) = self.board().attempts.get(&id) {
            return Ok(attempt.runner.as_ref() == Some(name));
        }
        let found = self
            .read_history(move |history| history.attempt(id))
            .await?;
        Ok(found.is_some_and(|attempt| attempt.runner.as_ref() == Some(name)))
    }

    /// Returns a runner (another machine that executes attempts) if the caller may act for it. The
    /// caller may act for the runner with the access token that registered the runner, or with a
    /// person's token of a wider scope.
    fn require_runner_caller(&self, name: &RunnerName) -> Result<Arc<Runner>, Problem> {
        let runner =
            runner::find(&self.board(), name).map_err(|refusal| Problem::from(&refusal))?;
        if self.principal.scope() == TokenScope::Runner && runner.token != self.principal.label() {
            return Err(Problem::from(&Refusal::StaleRunner {
                runner: name.clone(),
            }));
        }
        Ok(runner)
    }
}

fn runner_call_views(calls: Vec<RunnerCall>) -> Result<Vec<RunnerCallView>, Problem> {
    let view = |call: RunnerCall| {
        let ask = regatta_api::json::to_value(&call.ask).map_err(|error| {
            Problem::new(
                500,
                "bug",
                format!(
                    "could not encode the call {} to a runner as JSON: {error}",
                    call.id
                ),
                "this is a bug in Regatta; report it with this message and logs/daemon.log",
            )
        })?;
        Ok(RunnerCallView { id: call.id, ask })
    };
    calls.into_iter().map(view).collect()
}

fn parse_input<T: serde::de::DeserializeOwned>(
    verb: &str,
    value: serde_json::Value,
) -> Result<T, Problem> {
    regatta_api::json::from_value(&value).map_err(|error| Problem::bad_input(verb, &error))
}
