//! Verbs of runners on other machines: their reports, and the calls to them.

use regatta_api::view::{RunnerView, RunnerWelcome};
use regatta_core::ids::RunnerName;
use regatta_core::refusal::Refusal;
use regatta_core::runner::{self, Runner};
use regatta_engine::ports::agents::Record;
use regatta_engine::ports::site::SiteError;
use regatta_engine::there::Words;
use tokio::time::Instant;

use super::*;

/// Maximum time that a request of a runner is held open.
const LONGEST_HOLD: Duration = Duration::from_secs(60);

impl Caller<'_> {
    pub(super) fn runner_list(&self) -> Json {
        let board = self.board();
        let mut all: Vec<RunnerView> = board.runners.values().map(|it| RunnerView::of(&board, it)).collect();
        order::sort(&mut all, |it| it.name.as_str());
        answer(board.revision, &all)
    }

    pub(super) async fn runner_drain(&self, ask: input::RunnerName) -> Json {
        self.speaks_for_runner(&ask.name)?;
        let reason = format!("drained by {}", self.by);
        let (revision, _) = self.ask(Command::DrainRunner { runner: ask.name.clone(), reason }).await?;
        answer(revision, &self.at_work(&ask.name))
    }

    /// Returns the attempts that a runner still has.
    fn at_work(&self, name: &RunnerName) -> Vec<AttemptId> {
        self.board().attempts.values().filter(|it| it.runner.as_ref() == Some(name)).map(|it| it.id).collect()
    }

    pub(super) async fn runner_register(&self, ask: runner::Register) -> Json {
        let name = ask.name.clone();
        let ask = runner::Register { token: self.visitor.label(), ..ask };
        let (revision, outcome) = self.ask(Command::RegisterRunner(ask)).await?;
        let Outcome::Runner { session } = outcome else { return Err(unexpected(&outcome)) };
        answer(revision, &RunnerWelcome { session, attempts: self.at_work(&name) })
    }

    /// Renews a runner's session. Returns its attempts, because a leaving runner waits for the last
    /// one.
    pub(super) async fn runner_beat(&self, ask: input::RunnerSession) -> Json {
        self.speaks_for_runner(&ask.runner)?;
        let name = ask.runner.clone();
        let (revision, _) = self.ask(Command::BeatRunner { runner: ask.runner, session: ask.session }).await?;
        answer(revision, &self.at_work(&name))
    }

    pub(super) async fn runner_leave(&self, ask: input::RunnerSession) -> Json {
        self.speaks_for_runner(&ask.runner)?;
        self.done(Command::LeaveRunner { runner: ask.runner, session: ask.session }).await
    }

    /// Returns the open calls to a runner. Waits until there is one, the session ends, or the time
    /// is over.
    pub(super) async fn runner_calls(&self, ask: input::RunnerCalls) -> Json {
        self.speaks_for_runner(&ask.runner)?;
        let deadline = Instant::now() + Duration::from_millis(ask.wait_ms).min(LONGEST_HOLD);
        let (mut bell, mut changes) = (self.engine().runner_bell(), self.shared.hub.runners_bell());
        loop {
            bell.mark_unchanged();
            changes.mark_unchanged();
            let calls = self.engine().runner_calls(&ask.runner, ask.session, ask.after);
            let calls = calls.map_err(|it| Problem::from(&it))?;
            if !calls.is_empty() || Instant::now() >= deadline {
                return answer(self.board().revision, &calls);
            }
            tokio::select! {
                _ = bell.changed() => {}
                _ = self.session_ends(&ask, &mut changes) => {}
                () = tokio::time::sleep_until(deadline) => {}
            }
        }
    }

    async fn session_ends(&self, ask: &input::RunnerCalls, changes: &mut tokio::sync::watch::Receiver<()>) {
        while runner::speaks_for(&self.board(), &ask.runner, ask.session).is_ok() {
            if changes.changed().await.is_err() {
                return; // the daemon is ending
            }
        }
    }

    pub(super) async fn runner_answer(&self, ask: input::RunnerAnswer) -> Json {
        self.speaks_for_runner(&ask.runner)?;
        let answered = match ask.error {
            Some(reason) => Err(SiteError { reason, fault: ask.fault }),
            None => Ok(ask.gave),
        };
        self.engine().runner_answered(&ask.runner, ask.session, ask.call, answered).map_err(|it| Problem::from(&it))?;
        answer(self.board().revision, &"done")
    }

    pub(super) async fn runner_said(&self, ask: input::RunnerSaid) -> Json {
        self.speaks_for_runner(&ask.runner)?;
        let words: Words = read_input("runner.said", ask.words)?;
        let engine = self.engine().clone();
        let heard = blocking(move || engine.runner_said(&ask.runner, ask.session, ask.attempt, words)).await?;
        answer(self.board().revision, &heard.map_err(|it| Problem::from(&it))?)
    }

    /// Stores records of a journal. Returns the number of the last stored record.
    pub(super) async fn runner_copy(&self, ask: input::RunnerCopy) -> Json {
        self.speaks_for_runner(&ask.runner)?;
        let board = self.board();
        runner::speaks_for(&board, &ask.runner, ask.session).map_err(|it| Problem::from(&it))?;
        if !self.ran_at(&ask.runner, ask.attempt).await? {
            return Err(Problem::new(
                403,
                "not_yours",
                format!("{} did not run at {}", ask.attempt, ask.runner),
                "copy only the journals of your own attempts",
            ));
        }
        let records: Vec<Record> = read_input("runner.copy", serde_json::Value::Array(ask.records))?;
        let (engine, id) = (self.engine().clone(), ask.attempt);
        let copied = blocking(move || {
            let agents = engine.agents();
            if let Some(heading) = &ask.heading {
                agents.copy_heading(id, heading)?;
            }
            if records.is_empty() { agents.copied(id) } else { agents.copy_in(id, &records) }
        });
        let copied = copied.await?.map_err(|it| Problem::new(409, "not_copied", it.what, it.hint))?;
        answer(board.revision, &copied)
    }

    /// Returns whether an attempt ran, or runs, at this runner.
    async fn ran_at(&self, name: &RunnerName, id: AttemptId) -> Result<bool, Problem> {
        if let Some(attempt) = self.board().attempts.get(&id) {
            return Ok(attempt.runner.as_ref() == Some(name));
        }
        let found = self.read(move |history| history.attempt(id)).await?;
        Ok(found.is_some_and(|it| it.runner.as_ref() == Some(name)))
    }

    /// Checks that the caller may act for a runner: only the token that registered it, or a person
    /// with a wider scope.
    fn speaks_for_runner(&self, name: &RunnerName) -> Result<Arc<Runner>, Problem> {
        let runner = runner::find(&self.board(), name).map_err(|it| Problem::from(&it))?;
        if self.visitor.scope() == Scope::Runner && runner.token != self.visitor.label() {
            return Err(Problem::from(&Refusal::StaleRunner { runner: name.clone() }));
        }
        Ok(runner)
    }
}

fn read_input<T: serde::de::DeserializeOwned>(verb: &str, value: serde_json::Value) -> Result<T, Problem> {
    serde_json::from_value(value).map_err(|it| Problem::bad_input(verb, &it))
}
