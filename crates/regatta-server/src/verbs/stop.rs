//! Implements the API verb `stop`, which ends agents' programs and other commands, and answers when
//! they have ended (P10).
//!
//! One call can stop many tasks. The engine gets a separate command for each task, with its own
//! idempotency key.

use std::time::Duration;

use regatta_api::view::StopAnswer;
use regatta_core::attempt::Attempt;
use regatta_core::ids::{FiringId, LandingId};
use regatta_core::landing::LandingState;
use regatta_core::reference::Reference;
use regatta_engine::CommandOwner;

use super::*;

/// Time that killed programs have to disappear. Programs are killed after the grace period. If a
/// program is still running after this additional time, the answer names it.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

fn still_running(unfinished: &[String]) -> Problem {
    Problem::new(
        500,
        "still_running",
        format!(
            "these programs are still running, although Regatta has asked them to stop: {}",
            unfinished.join("; ")
        ),
        "Regatta keeps stopping them; check again: regatta status; end everything: regatta down",
    )
}

impl VerbHandler<'_> {
    /// Stops work, and answers when all its processes have ended. If some have not ended in time,
    /// the answer names them (P10).
    pub(super) async fn stop(&self, input: input::StopInput) -> Reply<StopAnswer> {
        let reason = || "stopped by a person".to_owned();
        let stop_command = |task| Command::StopTask {
            task,
            reason: reason(),
            pause: !input.again,
        };
        let missions: Vec<MissionId> = match input.id.as_deref() {
            Some(id) => match self.resolve_reference(id, &resolve_id::STOP)? {
                Reference::Mission(mission) => vec![mission],
                Reference::Agent(agent) => return self.stop_agent(&agent, stop_command).await,
                Reference::Attempt(attempt) => {
                    return self
                        .stop_task(self.task_of_live_attempt(attempt)?, stop_command)
                        .await;
                }
                Reference::Task(task) => return self.stop_task(task, stop_command).await,
                Reference::Firing(firing) => return self.stop_firing(firing).await,
                other => return Err(resolve_id::unsupported_kind(&other, "stop")),
            },
            None => self.board().missions.keys().copied().collect(),
        };
        let mut revision = self.board().revision;
        for mission in &missions {
            let command = if input.drain {
                Command::DrainMission { mission: *mission }
            } else {
                Command::StopMission {
                    mission: *mission,
                    reason: reason(),
                }
            };
            revision = self.part(mission).run(command).await?.0;
        }
        if !input.drain {
            self.wait_until_stopped(|_, mission| {
                mission.is_some_and(|mission| missions.contains(&mission))
            })
            .await?;
            self.end_commands_after_landings(&missions).await?;
        }
        reply(revision, StopAnswer::Missions(missions))
    }

    /// Returns the handler for one of several commands that carry out this request. The command gets
    /// its own idempotency key, made from the key of the request and `name`.
    fn part(&self, name: &impl std::fmt::Display) -> VerbHandler<'_> {
        let key = self.idempotency_key.as_ref();
        VerbHandler {
            shared: self.shared,
            principal: self.principal.clone(),
            actor: self.actor.clone(),
            idempotency_key: key.and_then(|key| RequestKey::new(&format!("{key}/{name}")).ok()),
            precondition: None,
        }
    }

    /// Stops a task. If the task's work has already landed, ends the commands that run because of
    /// the landing.
    async fn stop_task(&self, task: TaskId, stop: impl Fn(TaskId) -> Command) -> Reply<StopAnswer> {
        let landed = !self.board().tasks.contains_key(&task);
        if landed && self.end_commands(CommandOwner::Landed(task)).await? {
            let view = self.task_view(task).await?;
            return reply(self.board().revision, StopAnswer::Task(Box::new(view)));
        }
        let answered = self.run_on_task(task, stop(task)).await?;
        self.wait_until_stopped(|other, _| other == task).await?;
        Ok(answered.map(|task| StopAnswer::Task(Box::new(task))))
    }

    /// Ends the command that a hook has started.
    async fn stop_firing(&self, firing: FiringId) -> Reply<StopAnswer> {
        if !self.end_commands(CommandOwner::Firing(firing)).await? {
            let what = format!("no command runs for {firing}");
            return Err(Problem::new(
                404,
                "no_such_firing",
                what,
                "see the latest commands of hooks: regatta hook log",
            ));
        }
        reply(self.board().revision, StopAnswer::Firing(firing))
    }

    /// Ends the commands that the daemon runs for `owner`, such as the checks of an attempt or the
    /// command of a hook. Returns true if there were such commands.
    async fn end_commands(&self, owner: CommandOwner) -> Result<bool, Problem> {
        let engine = self.engine().clone();
        match run_blocking(move || engine.end_commands(owner)).await? {
            None => Ok(false),
            Some(left) if left.is_empty() => Ok(true),
            Some(left) => Err(still_running(&left)),
        }
    }

    /// Ends the commands that run after the landing of a task of these missions, such as its
    /// release command.
    async fn end_commands_after_landings(&self, missions: &[MissionId]) -> Result<(), Problem> {
        for task in self.engine().tasks_with_landing_commands() {
            let mission = self
                .read_history(move |history| history.task(task))
                .await?
                .and_then(|task| task.mission);
            if mission.is_some_and(|mission| missions.contains(&mission)) {
                self.end_commands(CommandOwner::Landed(task)).await?;
            }
        }
        Ok(())
    }

    /// Waits until the attempts and trial merges that are being stopped have ended. If some have
    /// not ended in time, returns an error that names them.
    async fn wait_until_stopped(
        &self,
        is_meant: impl Fn(TaskId, Option<MissionId>) -> bool,
    ) -> Result<(), Problem> {
        let timeout = self.engine().stop_grace() + STOP_TIMEOUT;
        let deadline = tokio::time::Instant::now() + timeout;
        let mut board_changes = self.shared.event_fanout.watch_board();
        loop {
            board_changes.mark_unchanged();
            let board = self.board();
            let attempts = board
                .attempts
                .values()
                .filter(|attempt| attempt.stopping.is_some());
            let attempts = attempts.filter(|attempt| is_meant(attempt.task, attempt.mission));
            let is_stopped = |id: &LandingId| {
                let landing = board.landings.get(id);
                landing.is_some_and(|landing| {
                    landing.held.is_some() && is_meant(landing.task, landing.mission)
                })
            };
            // Also wait for the trial merge of another landing if that trial merge contains a
            // stopped landing.
            let trials = board
                .landings
                .values()
                .filter(|landing| matches!(landing.state, LandingState::Trying { .. }));
            let trials = trials.filter(|landing| landing.trial_landings().iter().any(is_stopped));
            let trials = trials.map(|landing| {
                format!(
                    "the checks of {} in the queue ({})",
                    landing.task, landing.id
                )
            });
            let unfinished: Vec<String> = attempts
                .map(|attempt| self.attempt_label(attempt))
                .chain(trials)
                .collect();
            if unfinished.is_empty() {
                return Ok(());
            }
            tokio::select! {
                changed = board_changes.changed() => if changed.is_err() { return Err(still_running(&unfinished)) },
                () = tokio::time::sleep_until(deadline) => return Err(still_running(&unfinished)),
            }
        }
    }

    /// Returns a text that names an attempt and the commands that run for it.
    fn attempt_label(&self, attempt: &Attempt) -> String {
        let commands = self.engine().commands_of_attempt(attempt.id);
        let named = format!("{} on {}", attempt.label(), attempt.task);
        if commands.is_empty() {
            named
        } else {
            format!("{named} ({})", commands.join(", "))
        }
    }

    /// Stops the tasks that an agent works on. Does not stop the agent's session as a member of a
    /// team, because that session is stopped together with the team.
    async fn stop_agent(
        &self,
        agent: &AgentName,
        stop: impl Fn(TaskId) -> Command,
    ) -> Reply<StopAnswer> {
        let board = self.board();
        agent::find(&board, agent).map_err(|refusal| Problem::from(&refusal))?;
        let attempts = board
            .attempts
            .values()
            .filter(|attempt| attempt.agent == *agent && attempt.session_of.is_none());
        let tasks: Vec<TaskId> = attempts.map(|attempt| attempt.task).collect();
        if tasks.is_empty() {
            let what = format!("the agent {agent} works on no task at present");
            return Err(Problem::new(
                404,
                "no_such_attempt",
                what,
                "see the running attempts: regatta status",
            ));
        }
        let mut revision = board.revision;
        for task in &tasks {
            revision = self.part(task).run(stop(*task)).await?.0;
        }
        self.wait_until_stopped(|task, _| tasks.contains(&task))
            .await?;
        reply(revision, StopAnswer::Tasks(tasks))
    }
}
