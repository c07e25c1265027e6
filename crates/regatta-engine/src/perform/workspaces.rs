//! Workspaces: made ready before work begins in them, removed only with the proof that everything in them is kept.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use regatta_core::command::{Actor, Command, Request};
use regatta_core::effect::EffectKey;
use regatta_core::ids::AttemptId;
use regatta_core::project::Project;

use crate::ports::agents::Check;
use crate::ports::git::{GitError, ReachabilityProof, Repo, Workspace};
use crate::{Engine, contract};

use super::{AGAIN, LOOK_UP, Scene, authorship, report};

/// How often an attempt is given other ports before it is given up.
const MOST_PORT_ROUNDS: usize = 20;

/// Makes the attempt's workspace ready to be worked in: checked out, with the files the project brings along and what
/// its setup commands make. `Err` says why work cannot begin.
///
/// One that goes on in a workspace finds it ready. A crash in the middle repeats nothing that was finished: each setup
/// command leaves its record under its own name.
pub(super) fn make_ready(engine: &Engine, scene: &Scene) -> Result<(Workspace, Vec<(String, String)>), String> {
    let Scene { attempt, task, project, repo, .. } = scene;
    let (git, of) = (&engine.shared.git, attempt.workspace());
    let workspace = prepare(engine, scene).map_err(|it| it.to_string())?;
    let ports = settle_ports(engine, scene)?;
    let settings = &project.settings.workspace;
    if (settings.copy.is_empty() && settings.setup.is_empty()) || git.is_settled(repo, of) {
        return Ok((workspace, ports));
    }
    let brought = git.bring(repo, of, &task.files).map_err(|it| format!("{it} {}", it.hint))?;
    if !brought.left_out.is_empty() {
        let names: Vec<&str> = brought.left_out.iter().map(String::as_str).collect();
        tracing::warn!(attempt = %attempt.id, "left where they are, not brought along: {}", names.join(", "));
    }
    for (nth, command) in settings.setup.iter().enumerate() {
        let check = Check {
            command: command.clone(),
            dir: workspace.path.clone(),
            env: contract::environment(task, project).into_iter().chain(ports.iter().cloned()).collect(),
            timeout: Duration::from_millis(settings.setup_timeout.ms()),
            once: Some(format!("setup-{of}-{nth}")),
        };
        let result = engine.shared.agents.check(&check).map_err(|it| it.to_string())?;
        if !result.passed() {
            return Err(format!("the setup command `{command}` {}", contract::verdict(&result)));
        }
    }
    git.settle(repo, of, &task.files).map_err(|it| it.to_string())?;
    Ok((workspace, ports))
}

/// Makes the attempt's workspace, or finds it. A fix-up's has the work in it that is to be mended.
pub(super) fn prepare(engine: &Engine, scene: &Scene) -> Result<Workspace, GitError> {
    let Scene { attempt, task, repo, .. } = scene;
    let (git, of, branch) = (&engine.shared.git, attempt.workspace(), task.branch());
    match &task.fixup {
        None => git.prepare(repo, of, &branch),
        Some(fixup) => {
            let authorship = authorship(task, attempt.agent.as_str(), attempt.started_wall);
            git.prepare_fixup(repo, of, &branch, &fixup.commit, &authorship)
        }
    }
}

/// Sees that nobody listens on the attempt's ports, has others leased where somebody does, and gives the variables
/// that tell of them.
fn settle_ports(engine: &Engine, scene: &Scene) -> Result<Vec<(String, String)>, String> {
    let (id, token) = (scene.attempt.id, scene.attempt.token);
    for _ in 0..MOST_PORT_ROUNDS {
        let ports = engine.board().attempts.get(&id).map(|it| it.ports.clone()).unwrap_or_default();
        let taken: Vec<u16> = ports.iter().copied().filter(|it| !is_free(*it)).collect();
        if taken.is_empty() {
            let name = |(nth, port): (usize, u16)| (format!("REGATTA_PORT_{nth}"), port.to_string());
            return Ok(ports.into_iter().enumerate().map(name).collect());
        }
        let command = Command::ReportPortsTaken { attempt: id, token, taken };
        let request = Request { by: Actor::Regatta, key: None, command };
        engine.submit(request).map_err(|failure| format!("no free ports could be leased: {failure}"))?;
    }
    Err("strangers listen on every port that was leased: widen workspace.port_range in regatta.toml".into())
}

/// Whether nothing listens on the port, on any address of this machine.
fn is_free(port: u16) -> bool {
    // Without IPv6 its half cannot be tried; a port in use is told apart from that.
    let free = |bound: std::io::Result<TcpListener>| match bound {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::AddrInUse,
    };
    free(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))) && free(TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)))
}

/// How many mebibytes a project's workspaces may still take, if `workspace.disk_mb` bounds them: a fact for the gate.
/// What is kept warm takes nobody's room, since it goes when room is wanted.
pub(crate) fn room_left_mb(engine: &Engine, project: &Project) -> Result<Option<u64>, GitError> {
    let Some(most_mb) = project.settings.workspace.disk_mb else { return Ok(None) };
    let (git, repo, most) = (&engine.shared.git, Repo::of(project), most_mb << 20);
    let used = git.disk_use(&repo)?;
    if used.live + used.pooled > most && used.pooled > 0 {
        git.shrink_pool(&repo, most.saturating_sub(used.live))?;
    }
    Ok(Some(most.saturating_sub(used.live) >> 20))
}

pub(super) fn sweep_workspaces(engine: &Engine, sweeps: &Receiver<(EffectKey, AttemptId)>) {
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
pub(super) fn remove_workspace(engine: &Engine, id: AttemptId) -> Result<(), String> {
    crate::failpoint::at("remove.begin");
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
    crate::failpoint::at("remove.kept");
    git.remove_workspace(&ReachabilityProof::mint(id), &repo).map_err(|it| it.to_string())?;
    crate::failpoint::at("remove.removed");
    // One more is kept warm now.
    room_left_mb(engine, project).map(drop).map_err(|it| it.to_string())
}
