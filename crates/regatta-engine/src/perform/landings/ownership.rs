//! Resolves conflicts under `on_conflict = "ownership"`: takes the version of the file's single
//! owner, otherwise the version of the branch that is being merged.
//!
//! The other version is kept, and becomes a task when the landing has landed.

use std::collections::BTreeMap;

use regatta_core::ids::{CommitId, TaskId};
use regatta_core::landing::Dropped;
use regatta_core::project::OnConflict;
use regatta_core::task::{SettledPath, Status, Task};

use crate::Engine;
use crate::ports::git::{Repo, Settled, Side, Trial};
use crate::ports::store::TaskFilter;

use super::{Member, Train, signed};

/// The largest number of newest tasks that are searched for other changes of a file.
const LOOKED_AT: usize = 1_000;

/// A conflict that ownership resolved.
pub(super) struct Found {
    pub(super) trial: Trial,
    pub(super) dropped: Option<Dropped>,
    pub(super) sides: Vec<SettledPath>,
}

/// Resolves a conflict with the trunk by ownership. Returns `None` where the project resolves
/// conflicts in another way.
pub(super) fn settle(
    engine: &Engine,
    train: &Train,
    member: &Member,
    (tip, paths): (&CommitId, &[String]),
) -> Result<Option<Found>, String> {
    if train.project.settings.landing.on_conflict != OnConflict::Ownership || member.landing.reverts {
        return Ok(None);
    }
    let submission = &member.landing.submission;
    let since = landed_since(engine, &train.repo, &submission.base)?;
    let sides: BTreeMap<String, Side> =
        paths.iter().map(|path| (path.clone(), side(path, &member.task, &since))).collect();
    let signed = signed(train, member);
    let settled = engine.shared.git.merge_with_ownership(&train.repo, tip, &submission.commit, &sides, &signed);
    let Settled { trial, dropped } = settled.map_err(|it| it.to_string())?;
    let dropped = dropped.map(|it| Dropped { reference: it.reference, commit: it.commit, paths: it.paths });
    let of = |(path, side): (String, Side)| SettledPath { path, is_trunks: side == Side::Trunk };
    Ok(Some(Found { trial, dropped, sides: sides.into_iter().map(of).collect() }))
}

/// Returns the tasks that landed after `base`, oldest first.
pub(crate) fn landed_since(engine: &Engine, repo: &Repo, base: &CommitId) -> Result<Vec<Task>, String> {
    let newest = engine.board().counters.task;
    let filter = TaskFilter {
        project: Some(repo.project.clone()),
        statuses: vec![Status::Completed],
        after: newest.checked_sub(LOOKED_AT as u64).filter(|it| *it > 0).map(TaskId),
        limit: LOOKED_AT,
        ..TaskFilter::default()
    };
    let mut found = Vec::new();
    for task in engine.history().tasks(&filter).map_err(|it| it.to_string())? {
        let Some(landed) = &task.landed else { continue };
        if !engine.shared.git.contains(repo, base, landed).map_err(|it| it.to_string())? {
            found.push(task);
        }
    }
    Ok(found)
}

/// Returns the side whose version is taken: the trunk's if only a task that landed since owns the
/// file, otherwise the branch's.
fn side(path: &str, task: &Task, since: &[Task]) -> Side {
    let owns = |it: &Task| it.files.iter().any(|it| it.matches(path));
    let touched = |it: &&Task| it.submission.as_ref().is_some_and(|it| it.changed.iter().any(|it| it == path));
    let theirs = since.iter().filter(touched).any(owns);
    if theirs && !owns(task) { Side::Trunk } else { Side::Change }
}
