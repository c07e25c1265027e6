//! Resolves merge conflicts under the setting `on_conflict = "ownership"`. A task owns a file if
//! the task's file patterns include the file. If the task that is being merged owns a conflicting
//! file, the version of this task is taken. Otherwise the trunk's version is taken if a task that
//! changed the file in the meantime owns it. If neither side owns the file, the version of the task
//! that is being merged is taken.
//!
//! The other version is kept in git. After the landing, a new task asks somebody to look at that
//! version.

use std::collections::BTreeMap;

use regatta_core::ids::{CommitId, TaskId};
use regatta_core::landing::DroppedSides;
use regatta_core::project::ConflictPolicy;
use regatta_core::task::{SettledPath, Task, TaskStatus};

use crate::Engine;
use crate::ports::git::{MergeGit, MergeSide, OwnershipMerge, ProjectRepo, TrialMerge};
use crate::ports::store::TaskFilter;

use super::{TrialBatch, TrialMember, authored_change};

/// The number of the newest tasks among which [`landed_since`] looks for tasks that have landed. It
/// ignores older tasks.
const MAX_TASKS_SEARCHED: usize = 1_000;

/// The result of resolving a conflict by ownership of the files.
pub(super) struct ResolvedConflict {
    pub(super) trial: TrialMerge,
    pub(super) dropped: Option<DroppedSides>,
    pub(super) sides: Vec<SettledPath>,
}

/// Resolves a landing's conflict with the trunk by ownership of the files. Returns `None` if the
/// project resolves conflicts in another way or the landing is a revert.
pub(super) fn resolve_by_ownership(
    engine: &Engine,
    batch: &TrialBatch,
    member: &TrialMember,
    (tip, paths): (&CommitId, &[String]),
) -> Result<Option<ResolvedConflict>, String> {
    if batch.project.settings.landing.on_conflict != ConflictPolicy::Ownership
        || member.landing.reverts
    {
        return Ok(None);
    }
    let submission = &member.landing.submission;
    let since = landed_since(engine, &batch.repo, &submission.base)?;
    let sides: BTreeMap<String, MergeSide> = paths
        .iter()
        .map(|path| (path.clone(), winning_side(path, &member.task, &since)))
        .collect();
    let change = authored_change(batch, member);
    let git: &dyn MergeGit = &*engine.shared.git;
    let merge = git.merge_with_ownership(&batch.repo, tip, &change, &sides);
    let OwnershipMerge { trial, dropped } = merge.map_err(|error| error.to_string())?;
    let dropped = dropped.map(|versions| DroppedSides {
        reference: versions.reference,
        commit: versions.commit,
        paths: versions.paths,
    });
    let settled_path = |(path, side): (String, MergeSide)| SettledPath {
        path,
        is_trunks: side == MergeSide::Trunk,
    };
    Ok(Some(ResolvedConflict {
        trial,
        dropped,
        sides: sides.into_iter().map(settled_path).collect(),
    }))
}

/// Returns the tasks that landed on the trunk after the commit `base`, oldest first.
pub(crate) fn landed_since(
    engine: &Engine,
    repo: &ProjectRepo,
    base: &CommitId,
) -> Result<Vec<Task>, String> {
    let newest = engine.board().counters.task;
    let filter = TaskFilter {
        project: Some(repo.project.clone()),
        statuses: vec![TaskStatus::Completed],
        after: newest
            .checked_sub(MAX_TASKS_SEARCHED as u64)
            .filter(|id| *id > 0)
            .map(TaskId),
        limit: MAX_TASKS_SEARCHED,
        ..TaskFilter::default()
    };
    let mut landed_tasks = Vec::new();
    for task in engine
        .history()
        .tasks(&filter)
        .map_err(|error| error.to_string())?
    {
        let Some(landed) = &task.landed else { continue };
        if !engine
            .shared
            .git
            .contains(repo, base, landed)
            .map_err(|error| error.to_string())?
        {
            landed_tasks.push(task);
        }
    }
    Ok(landed_tasks)
}

/// Returns the side whose version of `path` is taken. This is the trunk's side if a task in `since`
/// (the tasks that landed in the meantime) changed and owns the file and `task` does not own it.
/// Otherwise it is the side of `task`.
fn winning_side(path: &str, task: &Task, since: &[Task]) -> MergeSide {
    let owns = |task: &Task| task.files.iter().any(|pattern| pattern.matches(path));
    let has_changed = |task: &&Task| {
        task.submission
            .as_ref()
            .is_some_and(|submission| submission.changed.iter().any(|changed| changed == path))
    };
    let is_owned_by_landed = since.iter().filter(has_changed).any(owns);
    if is_owned_by_landed && !owns(task) {
        MergeSide::Trunk
    } else {
        MergeSide::Change
    }
}
