//! Workspaces are removed only with the proof that everything in them is kept.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use regatta_core::command::Command;
use regatta_core::effect::EffectKey;
use regatta_core::ids::AttemptId;

use crate::Engine;
use crate::ports::git::{ReachabilityProof, Repo};

use super::{AGAIN, LOOK_UP, authorship, report};

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
