//! Prepares workspaces before agents work in them. Removes a workspace only with a proof that
//! everything in it is stored elsewhere.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use regatta_core::command::Report;
use regatta_core::effect::EffectKey;
use regatta_core::ids::AttemptId;
use regatta_core::project::Project;

use crate::ports::git::{DiskGit, GitError, ProjectRepo, Workspace};
use crate::ports::site::{AttemptSpec, SiteError};
use crate::{Engine, validation};

use super::{AttemptContext, POLL_INTERVAL, RETRY_DELAY, authorship, report_effect};

/// The largest number of times that an attempt gets other network ports because its ports are in
/// use. After that, the attempt is given up.
const MAX_PORT_ROUNDS: usize = 20;

/// Prepares the attempt's workspace: checks the files out, copies the project's untracked files and
/// runs the setup commands. Also returns the environment variables with the network ports that the
/// attempt may use. `Err` says why work cannot begin.
pub(super) fn make_ready(
    engine: &Engine,
    context: &AttemptContext,
) -> Result<(Workspace, Vec<(String, String)>), SiteError> {
    let ports = find_free_ports(engine, context)?;
    let workspace = engine
        .site_of(context)
        .make_ready(&context.spec(), &ports)?;
    Ok((workspace, ports))
}

/// Reserves network ports for the attempt, and returns environment variables with the port numbers.
/// Chooses ports on which no other program listens.
fn find_free_ports(
    engine: &Engine,
    context: &AttemptContext,
) -> Result<Vec<(String, String)>, String> {
    let (id, token) = (context.attempt.id, context.attempt.token);
    for _ in 0..MAX_PORT_ROUNDS {
        let ports = engine
            .board()
            .attempts
            .get(&id)
            .map(|attempt| attempt.ports.clone())
            .unwrap_or_default();
        let taken = if ports.is_empty() {
            vec![]
        } else {
            engine.site_of(context).ports_in_use(&ports)?
        };
        if taken.is_empty() {
            return Ok(validation::port_variables(&ports));
        }
        let report = Report::PortsTaken {
            attempt: id,
            token,
            taken,
        };
        engine
            .report(report)
            .map_err(|failure| format!("could not reserve network ports: {failure}"))?;
    }
    Err(
        "other programs use all network ports that were reserved; widen workspace.port_range in \
        regatta.toml"
            .into(),
    )
}

/// Returns how many mebibytes a project's workspaces may still take, or `None` if
/// `workspace.disk_mb` sets no limit. If the workspaces together exceed the limit, also removes
/// unused ones, which are kept for reuse.
pub(crate) fn remaining_space_mb(
    git: &dyn DiskGit,
    project: &Project,
) -> Result<Option<u64>, GitError> {
    let Some(limit_mb) = project.settings.workspace.disk_mb else {
        return Ok(None);
    };
    let (repo, limit_bytes) = (ProjectRepo::from_project(project), limit_mb << 20);
    let used = git.disk_use(&repo)?;
    if used.live_bytes + used.pooled_bytes > limit_bytes && used.pooled_bytes > 0 {
        git.shrink_pool(&repo, limit_bytes.saturating_sub(used.live_bytes))?;
    }
    Ok(Some(limit_bytes.saturating_sub(used.live_bytes) >> 20))
}

/// Performs `Effect::RemoveWorkspace` for all attempts, one after the other. A removal that failed
/// is tried again after a while. Returns when the engine stops.
pub(super) fn sweep_workspaces(engine: &Engine, sweeps: &Receiver<(EffectKey, AttemptId)>) {
    let mut retries: Vec<(Instant, EffectKey, AttemptId)> = Vec::new();
    loop {
        let next = match sweeps.recv_timeout(POLL_INTERVAL) {
            Ok(next) => Some(next),
            Err(RecvTimeoutError::Timeout) if !engine.is_stopping() => {
                let due = retries
                    .iter()
                    .position(|(retry_at, ..)| *retry_at <= Instant::now());
                due.map(|index| {
                    let (_, key, attempt) = retries.swap_remove(index);
                    (key, attempt)
                })
            }
            Err(_) => return,
        };
        let Some((key, attempt)) = next else { continue };
        match remove_workspace(engine, attempt) {
            Ok(()) => report_effect(engine, key, Report::Performed),
            // The workspace stays on the disk, because no workspace is removed without a proof that
            // its contents are stored elsewhere (Q5).
            Err(reason) => {
                tracing::warn!(%attempt, "could not remove the workspace of attempt {attempt}, \
                    trying again later: {reason}");
                retries.push((Instant::now() + 12 * RETRY_DELAY, key, attempt));
            }
        }
    }
}

/// Captures the files in the workspace in a commit, proves that everything is stored, and only then
/// removes the workspace.
pub(super) fn remove_workspace(engine: &Engine, id: AttemptId) -> Result<(), String> {
    crate::failpoint::hit("remove.begin");
    let history = engine.history();
    let attempt = history
        .attempt(id)
        .map_err(|error| error.to_string())?
        .ok_or("there is no such attempt")?;
    let task = history
        .task(attempt.task)
        .map_err(|error| error.to_string())?
        .ok_or("its task is gone")?;
    let board = engine.board();
    let project = board
        .projects
        .get(&attempt.project)
        .ok_or("its project is gone")?;
    let authorship = authorship(&task, attempt.agent.as_str(), attempt.started_unix_ms);
    let runner = attempt.runner.clone();
    let spec = AttemptSpec {
        attempt,
        task,
        project: Project::clone(project),
    };
    engine
        .site_of_runner(runner.as_ref())
        .remove_workspace(&spec, &authorship)?;
    if runner.is_some() {
        return Ok(());
    }
    // The removed workspace may have been kept for reuse, so check again whether the kept
    // workspaces exceed the disk limit.
    remaining_space_mb(&*engine.shared.git, project)
        .map(drop)
        .map_err(|error| error.to_string())
}
