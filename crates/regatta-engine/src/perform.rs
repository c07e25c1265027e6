//! Performing effects: what a commit asks of the world, at least once, each under its key.
//!
//! An effect stays in the outbox until its report is committed with it. So a crash at any point here means
//! only that the effect is performed again at the next start, and every port call is made to bear that.
//! `RunAttempt` is performed for as long as its program runs: re-attaching after a crash is performing it
//! again.

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use regatta_core::attempt::{Attempt, Cause, Exited, Verdict};
use regatta_core::command::{Actor, Command, Request};
use regatta_core::effect::{Effect, EffectKey};
use regatta_core::ids::{AttemptId, LandingId, TaskId};
use regatta_core::landing::{self, Landing, Moved, Tried};
use regatta_core::project::Project;
use regatta_core::task::Task;

use crate::attend::{self, AttemptDesk};
use crate::ports::agents::{Launch, McpServer, ProcessState, Started};
use crate::ports::git::{Authorship, Capture, GitError, Move, ReachabilityProof, Repo, Trial, TrunkPermit};
use crate::{Engine, Failure, brief, contract};

/// How often a thread that waits for a program looks up to see whether the engine stops.
pub(crate) const LOOK_UP: Duration = Duration::from_millis(250);

/// Starts the dispatcher: it ends when the engine stops.
pub(crate) fn start(engine: &Engine, effects: Receiver<(EffectKey, Effect)>) {
    let it = engine.clone();
    engine.spawn("perform", move || {
        let (sweep, sweeps) = std::sync::mpsc::channel();
        let sweeper = it.clone();
        it.spawn("sweep", move || sweep_workspaces(&sweeper, &sweeps));
        loop {
            match effects.recv_timeout(LOOK_UP) {
                Ok((key, effect)) => dispatch(&it, key, effect, &sweep),
                Err(RecvTimeoutError::Timeout) if !it.is_stopping() => {}
                Err(_) => return,
            }
        }
    });
}

fn dispatch(engine: &Engine, key: EffectKey, effect: Effect, sweep: &Sender<(EffectKey, AttemptId)>) {
    let it = engine.clone();
    match effect {
        // Removing is never urgent and there may be many: one thread does them in turn.
        Effect::RemoveWorkspace { attempt } => {
            let _stopping = sweep.send((key, attempt));
        }
        Effect::RunAttempt { attempt } => engine.spawn_performer("attempt", move || run_attempt(&it, key, attempt)),
        // Nothing waits for it and it cannot fail: the attendant looks by itself every moment, too.
        Effect::Nudge { attempt } => {
            it.shared.agents.nudge(attempt);
            engine.spawn_performer("nudge", move || report(&it, key, Command::ReportPerformed));
        }
        Effect::PrepareWorkspace { attempt } => engine.spawn_performer("prepare", move || prepare(&it, key, attempt)),
        Effect::StopAttempt { attempt } => engine.spawn_performer("stop", move || stop_attempt(&it, key, attempt)),
        Effect::Validate { attempt } => engine.spawn_performer("validate", move || validate(&it, key, attempt)),
        Effect::TryLanding { landing } => engine.spawn_performer("landing", move || try_landing(&it, key, landing)),
        Effect::MoveTrunk { landing, fence } => {
            engine.spawn_performer("land", move || move_trunk(&it, key, landing, fence))
        }
    }
}

/// Commits a report together with the end of its effect; tries again while the store cannot.
fn report(engine: &Engine, key: EffectKey, command: Command) {
    loop {
        let request = Request { by: Actor::Regatta, key: None, command: command.clone() };
        match engine.report(request, Some(key)) {
            Ok(_) | Err(Failure::Stopping) => return,
            // The world moved on before the report came; the effect is settled all the same.
            Err(Failure::Refused { refusal, .. }) => {
                tracing::debug!(effect = %key, "a late report changed nothing: {}", refusal.message());
                return;
            }
            Err(Failure::Store(error)) => {
                tracing::error!(effect = %key, "the report waits for the store: {error}");
                std::thread::sleep(Duration::from_secs(1));
                if engine.is_stopping() {
                    return;
                }
            }
        }
    }
}

struct Scene {
    attempt: Arc<Attempt>,
    task: Task,
    project: Arc<Project>,
    repo: Repo,
}

/// The engine stops before it could be found out: the effect stays in the outbox for the next start.
struct Later;

/// What is known of a live attempt; `None` when it has ended.
fn scene(engine: &Engine, id: AttemptId) -> Result<Option<Scene>, Later> {
    let board = engine.board();
    let Some(attempt) = board.attempts.get(&id).cloned() else { return Ok(None) };
    let Some(project) = board.projects.get(&attempt.project).cloned() else { return Ok(None) };
    let task = match board.tasks.get(&attempt.task) {
        Some(task) => Some(Task::clone(task)),
        None => ended_task(engine, attempt.task)?,
    };
    let repo = Repo::of(&project);
    Ok(task.map(|task| Scene { attempt, task, project, repo }))
}

/// A task that has ended while its attempt is still being ended. A store that cannot be read now is asked again: taking
/// that for "there is none" would leave the attempt alone for ever.
fn ended_task(engine: &Engine, id: TaskId) -> Result<Option<Task>, Later> {
    loop {
        match engine.history().task(id) {
            Ok(task) => return Ok(task),
            Err(error) => tracing::error!(task = %id, "it cannot be read: {error}"),
        }
        if engine.is_stopping() {
            return Err(Later);
        }
        std::thread::sleep(LOOK_UP);
    }
}

fn authorship(task: &Task, agent: &str, wall: u64) -> Authorship {
    let mut message = format!("{}\n", task.subject);
    if !task.description.trim().is_empty() {
        message += &format!("\n{}\n", task.description.trim());
    }
    message += &format!("\nRegatta-Task: {}\nRegatta-Agent: {agent}\n", task.id);
    Authorship {
        name: agent.to_owned(),
        email: format!("{}@regatta.invalid", agent.replace('/', ".")),
        message,
        seconds: wall / 1_000,
    }
}

fn run_attempt(engine: &Engine, key: EffectKey, id: AttemptId) {
    let Ok(found) = scene(engine, id) else { return };
    let Some(scene) = found else { return report(engine, key, Command::ReportPerformed) };
    let token = scene.attempt.token;
    if let Some(how) = run_program(engine, &scene) {
        report(engine, key, Command::ReportExited { attempt: id, token, how });
    }
}

/// Runs the attempt's program to its end, or joins it where it is. `None` when the engine stops first.
fn run_program(engine: &Engine, scene: &Scene) -> Option<Exited> {
    let (id, agents) = (scene.attempt.id, &engine.shared.agents);
    let state = match agents.state(id) {
        Ok(state) => state,
        Err(error) => return not_run(engine, id, error.to_string()),
    };
    if state == ProcessState::NotStarted {
        if is_stopping(engine, id) {
            return Some(Exited::Lost); // stopped before it began: it simply ends
        }
        match launch(engine, scene) {
            Ok(started) => {
                for warning in &started.warnings {
                    tracing::warn!(attempt = %id, "{warning}");
                }
                let Started { sandbox, warnings } = started;
                let command = Command::ReportLaunched { attempt: id, token: scene.attempt.token, sandbox, warnings };
                // Refused when it has been stopped meanwhile; kept from the store, it is only not shown.
                if let Err(failure) = engine.submit(Request { by: Actor::Regatta, key: None, command }) {
                    tracing::debug!(attempt = %id, "its start is not written down: {failure}");
                }
            }
            Err(reason) => return not_run(engine, id, reason),
        }
        // A stop that came while it was being started found nothing to stop.
        if is_stopping(engine, id)
            && let Err(error) = agents.stop(id, engine.shared.settings.grace)
        {
            tracing::error!(attempt = %id, "could not be stopped: {error}");
        }
    }
    let workspace = engine.shared.git.workspace_path(&scene.repo, scene.attempt.workspace());
    let desk = AttemptDesk::new(engine, &scene.attempt, workspace, prompt_of(scene));
    match agents.attend(id, &desk) {
        Ok(None) => None, // its program goes on; the next start joins it again
        Ok(Some(verdict)) => {
            desk.settle(&verdict.usage);
            let tail = agents.tail(id, 4096).unwrap_or_else(|error| {
                tracing::warn!(attempt = %id, "its output cannot be read: {error}");
                String::new() // it only adorns a reason
            });
            let tail = contract::tail(&tail);
            Some(attend::how_it_ended(verdict, result_detail(engine, id), &tail))
        }
        Err(error) => not_run(engine, id, error.to_string()),
    }
}

/// What the attempt is asked to do.
fn prompt_of(scene: &Scene) -> String {
    brief::prompt(&scene.task, &scene.project, &scene.attempt)
}

/// Gives an attempt up whose program could not be started or watched, once nothing of it can be running: its files
/// go to the next attempt then. `None` when the engine stops first.
fn not_run(engine: &Engine, id: AttemptId, reason: String) -> Option<Exited> {
    while let Err(error) = engine.shared.agents.stop(id, engine.shared.settings.grace) {
        tracing::error!(attempt = %id, "whether its program runs is unknown ({reason}) and it could not be stopped: {error}");
        if engine.is_stopping() {
            return None;
        }
        std::thread::sleep(LOOK_UP);
    }
    Some(Exited::NotRun { reason })
}

fn is_stopping(engine: &Engine, id: AttemptId) -> bool {
    engine.board().attempts.get(&id).is_none_or(|it| it.stopping.is_some())
}

fn launch(engine: &Engine, scene: &Scene) -> Result<Started, String> {
    let Scene { attempt, task, repo, .. } = scene;
    let workspace =
        engine.shared.git.prepare(repo, attempt.workspace(), &task.branch()).map_err(|it| it.to_string())?;
    let board = engine.board();
    let agent = board.agents.get(&attempt.agent).ok_or_else(|| format!("the agent {} is gone", attempt.agent))?;
    let mut env = engine.shared.settings.attempt_env.clone();
    env.extend(
        [
            ("REGATTA_AGENT", attempt.agent.to_string()),
            ("REGATTA_PROJECT", attempt.project.to_string()),
            ("REGATTA_TASK", task.id.to_string()),
            ("REGATTA_ATTEMPT", attempt.id.to_string()),
            ("REGATTA_ATTEMPT_TOKEN", attempt.token.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    let launch = Launch {
        attempt: attempt.id,
        agent: attempt.agent.clone(),
        runtime: agent.runtime.clone(),
        profile: agent.profile.clone(),
        resume: attempt.resumed_session().map(str::to_owned),
        mcp: engine.shared.settings.mcp_url.clone().map(|url| McpServer { url, token: attempt.token.to_string() }),
        used: attempt.resumed_session().and(attempt.resumes.as_ref()).map(|it| it.used).unwrap_or_default(),
        workspace: workspace.path,
        objects: workspace.objects,
        hidden: vec![repo.path.clone()],
        prompt: prompt_of(scene),
        script: task.script.clone(),
        env,
    };
    engine.shared.agents.start(&launch).map_err(|it| it.to_string())
}

/// What the agent said of its work, if it left a result that can be read.
fn result_detail(engine: &Engine, id: AttemptId) -> Option<String> {
    let text = std::fs::read(engine.shared.agents.result_file(id)).ok().filter(|it| it.len() <= 64 * 1024)?;
    let value: serde_json::Value = serde_json::from_slice(&text).ok()?;
    value.get("detail").and_then(|it| it.as_str()).map(str::to_owned)
}

fn prepare(engine: &Engine, key: EffectKey, id: AttemptId) {
    let Ok(found) = scene(engine, id) else { return };
    let Some(scene) = found else { return settle_ended(engine, key, id) };
    match engine.shared.git.prepare(&scene.repo, scene.attempt.workspace(), &scene.task.branch()) {
        Ok(_) if has_ended(engine, id) => settle_ended(engine, key, id),
        Ok(_) => report(engine, key, Command::ReportPerformed),
        Err(error) => {
            let how = Exited::NotRun { reason: error.to_string() };
            report(engine, key, Command::ReportExited { attempt: id, token: scene.attempt.token, how });
        }
    }
}

fn has_ended(engine: &Engine, id: AttemptId) -> bool {
    !engine.board().attempts.contains_key(&id)
}

/// Settles what was to be done in the workspace of an attempt that has ended meanwhile. The sweep may have come and
/// gone before the workspace was made, so it is swept again.
fn settle_ended(engine: &Engine, key: EffectKey, id: AttemptId) {
    let of = match engine.history().attempt(id) {
        Ok(found) => found.map_or(id, |it| it.workspace()),
        // The effect stays in the outbox for the next start.
        Err(error) => return tracing::warn!(attempt = %id, "its workspace stays: {error}"),
    };
    if engine.board().attempts.values().any(|it| it.workspace() == of) {
        return report(engine, key, Command::ReportPerformed); // somebody goes on in it
    }
    match remove_workspace(engine, of) {
        Ok(()) => report(engine, key, Command::ReportPerformed),
        Err(reason) => tracing::warn!(attempt = %id, "its workspace stays: {reason}"),
    }
}

/// How long after a failure an effect that must happen is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// How long a program that talks may take to end its turn and itself before signals are sent.
const COURTESY: Duration = Duration::from_secs(2);

/// Lets a program end that was asked to in its own words.
fn ask_to_end(engine: &Engine, id: AttemptId) {
    engine.shared.agents.nudge(id);
    let mut board = engine.watch();
    let deadline = Instant::now() + COURTESY.min(engine.shared.settings.grace);
    while board.borrow_and_update().attempts.contains_key(&id) && Instant::now() < deadline && !engine.is_stopping() {
        let _changed = block_on_until(board.changed(), deadline);
    }
}

fn stop_attempt(engine: &Engine, key: EffectKey, id: AttemptId) {
    let polite = engine.board().attempts.get(&id).is_some_and(|it| it.talks && it.stopping != Some(Cause::OverBudget));
    if polite {
        ask_to_end(engine, id);
    }
    // Until it works, nobody is told that it stopped (P10); the next start tries again, too.
    while let Err(error) = engine.shared.agents.stop(id, engine.shared.settings.grace) {
        tracing::error!(attempt = %id, "could not be stopped: {error}");
        let again = Instant::now() + AGAIN;
        while Instant::now() < again {
            if engine.is_stopping() {
                return;
            }
            std::thread::sleep(LOOK_UP);
        }
    }
    // What runs the attempt sees the end and reports it.
    report(engine, key, Command::ReportPerformed);
}

fn capture(engine: &Engine, scene: &Scene) -> Result<Capture, GitError> {
    let authorship = authorship(&scene.task, scene.attempt.agent.as_str(), scene.attempt.started_wall);
    engine.shared.git.capture(&scene.repo, scene.attempt.workspace(), &authorship)
}

fn validate(engine: &Engine, key: EffectKey, id: AttemptId) {
    let Ok(found) = scene(engine, id) else { return };
    let Some(scene) = found else { return settle_ended(engine, key, id) };
    let verdict = judge(engine, &scene);
    if has_ended(engine, id) {
        return settle_ended(engine, key, id);
    }
    report(engine, key, Command::ReportJudged { attempt: id, token: scene.attempt.token, verdict });
}

fn judge(engine: &Engine, scene: &Scene) -> Verdict {
    let workspace = match engine.shared.git.prepare(&scene.repo, scene.attempt.workspace(), &scene.task.branch()) {
        Ok(workspace) => workspace,
        Err(error) => return Verdict::Unknown { reason: error.to_string() },
    };
    // Kept before anything runs in there: what is judged is what was left, not what a test makes of it.
    let capture = match capture(engine, scene) {
        Ok(capture) => capture,
        Err(error) => return Verdict::Unknown { reason: error.to_string() },
    };
    let passed = Verdict::Passed {
        commit: capture.commit.clone(),
        base: capture.base.clone(),
        changed: capture.changed.clone(),
    };
    if capture.changed.is_empty() || !scene.task.escapes(&capture.changed).is_empty() {
        return passed; // the core says what that means; there is nothing to run
    }
    match contract::broken(&*engine.shared.agents, &scene.task, &scene.project, &workspace.path) {
        Ok(None) => passed,
        Ok(Some(reason)) => Verdict::Failed { reason },
        Err(error) => Verdict::Unknown { reason: error.to_string() },
    }
}

fn landing_scene(engine: &Engine, id: LandingId) -> Option<(Arc<Landing>, Task, Arc<Project>, Repo)> {
    let board = engine.board();
    let landing = board.landings.get(&id)?.clone();
    let task = Task::clone(board.tasks.get(&landing.task)?);
    let project = board.projects.get(&landing.project)?.clone();
    let repo = Repo::of(&project);
    Some((landing, task, project, repo))
}

fn try_landing(engine: &Engine, key: EffectKey, id: LandingId) {
    let Some((landing, task, project, repo)) = landing_scene(engine, id) else {
        return report(engine, key, Command::ReportPerformed);
    };
    let found = match try_merge(engine, &landing, &task, &project, &repo) {
        Ok(found) => found,
        Err(reason) => Tried::Held { reason },
    };
    if let Err(error) = engine.shared.git.unstage(&repo, id) {
        tracing::warn!(landing = %id, "its staging directory is left behind: {error}");
    }
    report(engine, key, Command::ReportTried { landing: id, found });
}

fn try_merge(engine: &Engine, landing: &Landing, task: &Task, project: &Project, repo: &Repo) -> Result<Tried, String> {
    let git = &engine.shared.git;
    let tip = git.tip(repo).map_err(|it| it.to_string())?;
    let authorship = authorship(task, landing.agent.as_str(), landing.queued_wall);
    let new = match git.trial_merge(repo, &tip, &landing.submission.commit, &authorship).map_err(|it| it.to_string())? {
        Trial::Conflict(paths) => return Ok(Tried::Conflict { paths }),
        Trial::Empty => return Ok(Tried::AlreadyThere { tip }),
        Trial::Clean(new) => new,
    };
    let staging = git.stage(repo, landing.id, &new).map_err(|it| it.to_string())?;
    match contract::broken(&*engine.shared.agents, task, project, &staging).map_err(|it| it.to_string())? {
        None => Ok(Tried::Passed { old: tip, new }),
        Some(reason) => Ok(Tried::Red { reason }),
    }
}

fn move_trunk(engine: &Engine, key: EffectKey, id: LandingId, fence: u64) {
    let Some((landing, _, _, repo)) = landing_scene(engine, id) else {
        return report(engine, key, Command::ReportPerformed);
    };
    // The fence is checked against the board at the last moment before the ref moves.
    let (old, new) = match landing.state.clone() {
        landing::State::Moving { old, new, fence: live } if live == fence => (old, new),
        _ => return report(engine, key, Command::ReportPerformed),
    };
    let permit = TrunkPermit::mint(landing.project.clone(), id, fence);
    let found = match engine.shared.git.move_trunk(&permit, &repo, &old, &new) {
        Ok(Move::Moved) => Moved::Moved,
        Ok(Move::Elsewhere(_)) => Moved::Elsewhere,
        Ok(Move::Dirty(paths)) => Moved::Dirty { paths },
        Err(error) => Moved::Held { reason: error.to_string() },
    };
    report(engine, key, Command::ReportMoved { landing: id, fence, found });
}

fn sweep_workspaces(engine: &Engine, sweeps: &Receiver<(EffectKey, AttemptId)>) {
    let mut left: Vec<(Instant, EffectKey, AttemptId)> = Vec::new();
    loop {
        let next = match sweeps.recv_timeout(LOOK_UP) {
            Ok(next) => Some(next),
            Err(RecvTimeoutError::Timeout) if !engine.is_stopping() => {
                let due = left.iter().position(|it| it.0 <= Instant::now());
                due.map(|at| left.swap_remove(at)).map(|(_, key, attempt)| (key, attempt))
            }
            Err(_) => return,
        };
        let Some((key, attempt)) = next else { continue };
        match remove_workspace(engine, attempt) {
            Ok(()) => report(engine, key, Command::ReportPerformed),
            // It stays on the disk: nothing is removed without its proof (Q5).
            Err(reason) => {
                tracing::warn!(%attempt, "its workspace stays for now: {reason}");
                left.push((Instant::now() + 12 * AGAIN, key, attempt));
            }
        }
    }
}

/// Keeps what is in the workspace, proves that it is kept, and only then removes it.
fn remove_workspace(engine: &Engine, id: AttemptId) -> Result<(), String> {
    let history = engine.history();
    let attempt = history.attempt(id).map_err(|it| it.to_string())?.ok_or("there is no such attempt")?;
    let task = history.task(attempt.task).map_err(|it| it.to_string())?.ok_or("its task is gone")?;
    let board = engine.board();
    let project = board.projects.get(&attempt.project).ok_or("its project is gone")?;
    let repo = Repo::of(project);
    let authorship = authorship(&task, attempt.agent.as_str(), attempt.started_wall);
    let git = &engine.shared.git;
    let unkept = git.unkept(&repo, id).map_err(|it| it.to_string())?;
    if !unkept.is_empty() {
        git.capture(&repo, id, &authorship).map_err(|it| it.to_string())?;
        let still = git.unkept(&repo, id).map_err(|it| it.to_string())?;
        if !still.is_empty() {
            return Err(format!("{} would be lost", still.join(", ")));
        }
    }
    git.remove_workspace(&ReachabilityProof::mint(id), &repo).map_err(|it| it.to_string())
}

/// Waits until no attempt of ours is left, or the grace and a little more have passed.
pub(crate) fn wait_until_stopped(engine: &Engine) {
    let mut board = engine.watch();
    let deadline = Instant::now() + engine.shared.settings.grace + Duration::from_secs(10);
    while board.borrow_and_update().attempts.values().any(|it| it.supervised) && Instant::now() < deadline {
        let _ended = block_on_until(board.changed(), deadline);
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on a plain thread, at most until `deadline`.
pub(crate) fn block_on_until<T>(future: impl Future<Output = T>, deadline: Instant) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(it) = future.as_mut().poll(&mut context) {
            return Some(it);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}
