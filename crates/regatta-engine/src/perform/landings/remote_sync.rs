//! Brings in commits that only the remote's trunk has: rebases the local trunk's own commits onto
//! the remote's trunk, and checks the result.

use regatta_core::landing::TrialOutcome;
use regatta_core::task::Task;

use crate::ports::git::{GitError, RebaseResult, RemoteGit};
use crate::validation::FailedCheck;
use crate::{Engine, failpoint};

use super::{TrialBatch, first_failed_check, validate};

/// Rebases the local trunk's own commits onto the remote's trunk, and checks exactly the resulting
/// tree (Q1). The tree must pass the checks that the remote's trunk names and the requirements of
/// the tasks whose commits were rebased. `Err` is an outcome that says why the result could not be
/// determined.
pub(super) fn try_remote_sync(
    engine: &Engine,
    batch: &mut TrialBatch,
    remote: &str,
) -> Result<TrialOutcome, TrialOutcome> {
    let git: &dyn RemoteGit = &*engine.shared.git;
    let held = |error: GitError| TrialOutcome::Held {
        landing: None,
        reason: format!("{error} {}", error.hint),
    };
    let onto = git.fetch_upstream(&batch.repo, remote).map_err(held)?.tip;
    failpoint::hit("join.fetched");
    let (old, new, tasks) = match git.rebase_trunk(&batch.repo, &onto).map_err(held)? {
        RebaseResult::UpToDate { tip } => {
            return Ok(TrialOutcome::AlreadyOnTrunk {
                tip,
                landed_as: vec![],
            });
        }
        RebaseResult::Rebased { old, new, tasks } => (old, new, tasks),
        RebaseResult::Conflict { paths } => {
            let Some(last) = batch.members.last() else {
                return Err(empty_trial());
            };
            return Ok(TrialOutcome::Conflict {
                landing: last.landing.id,
                paths,
                kinds: vec![],
            });
        }
    };
    failpoint::hit("join.replanted");
    validate::read_trunk_checks(engine, batch, &onto).map_err(|reason| TrialOutcome::Held {
        landing: None,
        reason,
    })?;
    let replayed = replayed_tasks(engine, &tasks).map_err(|reason| TrialOutcome::Held {
        landing: None,
        reason,
    })?;
    let checked_tasks: Vec<&Task> = replayed
        .iter()
        .chain(batch.members.iter().map(|member| &member.task))
        .collect();
    match first_failed_check(engine, batch, &checked_tasks, &new, vec![old.clone()])? {
        None => Ok(TrialOutcome::Passed {
            old,
            new,
            carries: vec![],
        }),
        Some(FailedCheck { reason, output }) => Ok(TrialOutcome::Failed {
            reason,
            output: Some(engine.redact(&output)),
            settled: vec![],
        }),
    }
}

fn empty_trial() -> TrialOutcome {
    TrialOutcome::Held {
        landing: None,
        reason: "the trial has no landings".into(),
    }
}

/// Reads the tasks that have their work in the rebased commits. The requirements of these tasks
/// must also hold on top of the remote's trunk.
fn replayed_tasks(engine: &Engine, task_ids: &[String]) -> Result<Vec<Task>, String> {
    let mut tasks = Vec::new();
    for id in task_ids.iter().filter_map(|name| name.parse().ok()) {
        tasks.extend(
            engine
                .history()
                .task(id)
                .map_err(|error| error.to_string())?,
        );
    }
    Ok(tasks)
}
