//! Performs effects: actions outside the store that follow a stored change, such as running a
//! program or merging finished work. Each effect has a key and is performed at least once.
//!
//! An effect stays in the outbox (the stored list of uncompleted effects) until the result of the
//! effect is stored. After a crash the next start of the daemon performs the effect again, so every
//! outside action must be safe to repeat. `RunAttempt` (the effect that runs an agent's program)
//! lasts as long as the program runs, so performing `RunAttempt` again attaches to the running
//! program.
//!
//! Each submodule performs some kinds of effects. `regatta_core::react` decides which effects
//! exist.

mod attempts; // prepares, runs and stops the programs of attempts
mod hooks; // runs the commands of hooks
mod isolation; // checks that an attempt worked in its workspace only
mod landings; // merges, moves the trunk, pushes
mod teams; // checks which members of a team can be started
mod validate_attempt; // captures and validates an attempt's work
pub(crate) mod workspaces; // sets up and removes workspaces

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use regatta_core::attempt::Attempt;
use regatta_core::command::Report;
use regatta_core::effect::{Effect, EffectKey};
use regatta_core::ids::{AttemptId, RunnerName, TaskId};
use regatta_core::project::Project;
use regatta_core::task::Task;

use crate::local_site::LocalSite;
use crate::ports::git::{Authorship, ProjectRepo};
use crate::ports::site::{AttemptSpec, Site};
use crate::remote_site::RemoteSite;
use crate::{CommandFailure, Engine};
pub(crate) use landings::{
    LatestPushes, Releases, ValidationSlots, compare_all_trunks, compare_project_trunk,
    compare_trunk_with, landed_since,
};

/// The interval at which a waiting thread checks whether the engine is stopping.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The delay before a failed effect (an outside action such as starting a program) that must
/// succeed is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Starts the thread that receives the effects (outside actions such as starting a program) of each
/// commit and hands every effect to a worker thread. The receiving thread ends when the engine
/// stops.
pub(crate) fn start(engine: &Engine, effects: Receiver<(EffectKey, Effect)>) {
    let engine_clone = engine.clone();
    engine.spawn_thread("perform", move || {
        let (sweep_sender, sweep_receiver) = std::sync::mpsc::channel();
        let sweep_engine = engine_clone.clone();
        engine_clone.spawn_thread("sweep", move || {
            workspaces::sweep_workspaces(&sweep_engine, &sweep_receiver)
        });
        loop {
            match effects.recv_timeout(POLL_INTERVAL) {
                Ok((key, effect)) => dispatch(&engine_clone, key, effect, &sweep_sender),
                Err(RecvTimeoutError::Timeout) if !engine_clone.is_stopping() => {}
                Err(_) => return,
            }
        }
    });
}

/// Performs an effect (an outside action such as starting a program) on a thread of the pool. The
/// removal of a workspace goes to the one thread that removes all workspaces.
fn dispatch(
    engine: &Engine,
    key: EffectKey,
    effect: Effect,
    sweep_sender: &Sender<(EffectKey, AttemptId)>,
) {
    let (engine_clone, pool) = (engine.clone(), &engine.shared.effect_pool);
    match effect {
        // Removing a workspace is never urgent and there may be many, so one thread removes them
        // one after the other.
        Effect::RemoveWorkspace { attempt } => {
            let _stopping = sweep_sender.send((key, attempt));
        }
        Effect::RunAttempt { attempt } => {
            pool.spawn(move || attempts::run_attempt(&engine_clone, key, attempt))
        }
        // A nudge tells the session (the thread that talks to an agent's program) to look for new
        // input. A nudge that is lost does no harm, because the session also looks by itself at
        // short intervals.
        Effect::Nudge { attempt } => {
            let runner = engine_clone
                .board()
                .attempts
                .get(&attempt)
                .and_then(|attempt| attempt.runner.clone());
            engine_clone
                .site_of_runner(runner.as_ref())
                .refresh_input(attempt);
            engine_clone.complete_effect(key);
        }
        Effect::PrepareWorkspace { attempt } => {
            pool.spawn(move || attempts::prepare(&engine_clone, key, attempt))
        }
        Effect::StopAttempt { attempt } => {
            pool.spawn(move || attempts::stop_attempt(&engine_clone, key, attempt))
        }
        Effect::Validate { attempt } => {
            pool.spawn(move || validate_attempt::validate(&engine_clone, key, attempt))
        }
        Effect::TryLanding { landing } => {
            pool.spawn(move || landings::try_landing(&engine_clone, key, landing))
        }
        Effect::MoveTrunk { landing, fence } => {
            pool.spawn(move || landings::move_trunk(&engine_clone, key, landing, fence))
        }
        Effect::AfterLanding {
            project,
            task,
            commit,
        } => {
            let landed = landings::LandedTask {
                project,
                task,
                commit,
            };
            pool.spawn(move || landings::after_landing(&engine_clone, key, &landed))
        }
        Effect::RunHook { firing } => {
            pool.spawn(move || hooks::run_hook(&engine_clone, key, firing))
        }
        Effect::PushTrunk { project, commit } => {
            pool.spawn(move || landings::push_trunk(&engine_clone, key, &project, &commit))
        }
        Effect::PushBranch {
            conversation,
            commit,
        } => {
            pool.spawn(move || landings::push_branch(&engine_clone, key, conversation, &commit));
        }
        Effect::ResolveTeam { launch } => {
            pool.spawn(move || teams::resolve_members(&engine_clone, key, launch))
        }
    }
}

/// Stores the result of an effect (an outside action such as starting a program) and marks the
/// effect as completed. Tries again while the store fails.
fn report_effect(engine: &Engine, key: EffectKey, report: Report) {
    if report == Report::Performed {
        return engine.complete_effect(key);
    }
    loop {
        match engine.report_with_effect(report.clone(), key) {
            Ok(_) | Err(CommandFailure::Stopping) => return,
            // The state has changed since the effect began, so the result of the effect no longer
            // applies. The effect still counts as completed.
            Err(CommandFailure::Refused { refusal, .. }) => {
                tracing::debug!(effect = %key, "dropped the result of effect {key}, because \
                    the state has changed since the effect began: {}", refusal.message());
                return;
            }
            Err(CommandFailure::Store(error)) => {
                tracing::error!(effect = %key, "could not store the result of effect {key}, \
                    trying again in a second: {error}");
                std::thread::sleep(Duration::from_secs(1));
                if engine.is_stopping() {
                    return;
                }
            }
        }
    }
}

/// The stored records about a running attempt: the attempt, its task, its project and the git
/// repository.
pub(crate) struct AttemptContext {
    pub(crate) attempt: Arc<Attempt>,
    /// The task, with the file patterns that this attempt may change. For a fix-up (an attempt that
    /// repairs finished work), the task names only the conflicting paths.
    pub(crate) task: Task,
    pub(crate) project: Arc<Project>,
    pub(crate) repo: ProjectRepo,
}

impl AttemptContext {
    /// Returns the records that the attempt's machine needs to work on the attempt.
    pub(crate) fn spec(&self) -> AttemptSpec {
        let (attempt, project) = (Attempt::clone(&self.attempt), Project::clone(&self.project));
        AttemptSpec {
            attempt,
            task: self.task.clone(),
            project,
        }
    }
}

impl Engine {
    /// Returns the interface to the machine on which an attempt works.
    pub(crate) fn site_of(&self, context: &AttemptContext) -> Arc<dyn Site> {
        self.site_of_runner(context.attempt.runner.as_ref())
    }

    /// Returns the interface to a runner's machine, or to this machine if `runner` is `None`.
    pub(crate) fn site_of_runner(&self, runner: Option<&RunnerName>) -> Arc<dyn Site> {
        match runner {
            None => Arc::new(LocalSite::new(self)),
            Some(name) => Arc::new(RemoteSite::new(self, name.clone())),
        }
    }
}

/// The error when the engine stops before an answer is known. The interrupted effect (an outside
/// action such as starting a program) stays stored, and the next start of the daemon performs it
/// again.
struct EngineStopped;

/// Returns the stored records about an attempt, or `None` when the attempt has ended.
fn attempt_context(
    engine: &Engine,
    id: AttemptId,
) -> Result<Option<AttemptContext>, EngineStopped> {
    let board = engine.board();
    let Some(attempt) = board.attempts.get(&id).cloned() else {
        return Ok(None);
    };
    let Some(project) = board.projects.get(&attempt.project).cloned() else {
        return Ok(None);
    };
    let task = match board.tasks.get(&attempt.task) {
        Some(task) => Some(Task::clone(task)),
        None => ended_task(engine, attempt.task)?,
    };
    let repo = ProjectRepo::from_project(&project);
    let narrowed = |task: Task| Task {
        files: task.manifest(),
        ..task
    };
    Ok(task.map(|task| AttemptContext {
        attempt,
        task: narrowed(task),
        project,
        repo,
    }))
}

/// Returns the path of a running attempt's workspace, and creates the workspace first if it does
/// not exist. Returns `None` when the attempt has ended, works on another machine, or has no
/// workspace.
pub(crate) fn workspace_of(engine: &Engine, id: AttemptId) -> Result<Option<PathBuf>, String> {
    let Ok(Some(context)) = attempt_context(engine, id) else {
        return Ok(None);
    };
    if context.attempt.runner.is_some() || context.attempt.no_workspace {
        return Ok(None);
    }
    // This call does not run the project's setup commands. The effect `RunAttempt` runs the setup
    // commands later, with the network ports that the attempt may use.
    LocalSite::new(engine)
        .prepare(&context.spec())
        .map(|workspace| Some(workspace.path))
        .map_err(|error| error.to_string())
}

/// Reads a task that has ended while its attempt is still being stopped. Tries again while the
/// store fails, because treating a failure as "there is no such task" would leave the attempt
/// running.
fn ended_task(engine: &Engine, id: TaskId) -> Result<Option<Task>, EngineStopped> {
    loop {
        match engine.history().task(id) {
            Ok(task) => return Ok(task),
            Err(error) => {
                tracing::error!(task = %id, "could not read task {id}, which has ended and whose \
                    attempt must still be stopped; trying again: {error}")
            }
        }
        if engine.is_stopping() {
            return Err(EngineStopped);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the author and the message of the commit that stores an attempt's work.
pub fn authorship(task: &Task, agent: &str, unix_ms: u64) -> Authorship {
    let mut message = format!("{}\n", task.subject);
    if !task.description.trim().is_empty() {
        message += &format!("\n{}\n", task.description.trim());
    }
    message += &format!("\nRegatta-Task: {}\nRegatta-Agent: {agent}\n", task.id);
    Authorship {
        name: agent.to_owned(),
        email: format!("{}@regatta.invalid", agent.replace('/', ".")),
        message,
        unix_seconds: unix_ms / 1_000,
    }
}

/// Stops the programs of all attempts on this machine directly. Used when the store could not
/// record that the attempts must stop.
pub(crate) fn stop_unrecorded(engine: &Engine) {
    let board = engine.board();
    for id in board
        .attempts
        .values()
        .filter(|attempt| attempt.supervised && attempt.runner.is_none())
        .map(|attempt| attempt.id)
    {
        let engine_clone = engine.clone();
        engine.shared.effect_pool.spawn(move || {
            if let Err(error) = engine_clone
                .shared
                .agents
                .stop(id, engine_clone.stop_grace())
            {
                tracing::error!(attempt = %id, "could not stop the program of attempt {id}, or \
                    could not record that the program has ended: {error}");
            }
        });
    }
}

/// Describes the attempts whose program still has a process, and the users' commands that still
/// run. An attempt on another machine counts as running until its runner reports its end.
pub(crate) fn still_running(engine: &Engine) -> Vec<String> {
    let is_alive =
        |attempt: &Attempt| {
            if attempt.runner.is_some() {
                return true;
            }
            engine.shared.agents.is_alive(attempt.id).unwrap_or_else(|error| {
            tracing::error!(attempt = %attempt.id, "could not find out whether the program of \
                attempt {} still runs, so it is reported as running: {error}", attempt.id);
            true
        })
        };
    let board = engine.board();
    let attempts = board
        .attempts
        .values()
        .filter(|attempt| attempt.supervised && is_alive(attempt));
    let mut running: Vec<String> = attempts
        .map(|attempt| format!("{} by {}", attempt.id, attempt.agent))
        .collect();
    running.extend(
        engine
            .shared
            .commands
            .all_with_owners()
            .iter()
            .map(|(owner, command)| format!("{command} ({owner})")),
    );
    running
}

/// Waits until every attempt that Regatta runs has ended and no command of a user runs, at most for
/// the grace period plus ten seconds. If the store or the disk is full or broken, the end of an
/// attempt cannot be recorded, so the function then waits only until no program runs any more.
pub(crate) fn wait_until_stopped(engine: &Engine) {
    let mut board = engine.watch_board();
    let deadline = Instant::now() + engine.stop_grace() + Duration::from_secs(10);
    while board
        .borrow_and_update()
        .attempts
        .values()
        .any(|attempt| attempt.supervised)
        && Instant::now() < deadline
    {
        let can_record = engine.is_healthy() && engine.shared.git.free_disk_mb() != Some(0);
        if !can_record && still_running(engine).is_empty() {
            return;
        }
        let _changed = block_on_until(
            board.changed(),
            deadline.min(Instant::now() + POLL_INTERVAL),
        );
    }
    while !engine.shared.commands.all_with_owners().is_empty() && Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Waits while the daemon shuts down, on behalf of an effect (an outside action such as starting a
/// program) that the shutdown interrupted. Returns `true` if the daemon goes on after all and the
/// effect should be performed again. Returns `false` if the daemon ends; the effect then stays
/// stored, and the next start of the daemon performs it again.
fn wait_out_shutdown(engine: &Engine, id: AttemptId) -> bool {
    while !engine.can_start() && !engine.is_ending(id) && !engine.is_stopping() {
        std::thread::sleep(POLL_INTERVAL);
    }
    !engine.is_stopping()
}

/// A waker that continues a parked thread, so that a plain thread can wait for a future.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks the current thread until a future is ready, at most until `deadline`. Returns `None` at
/// the deadline.
pub(crate) fn block_on_until<T>(future: impl Future<Output = T>, deadline: Instant) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return None;
        }
        std::thread::park_timeout(remaining);
    }
}
