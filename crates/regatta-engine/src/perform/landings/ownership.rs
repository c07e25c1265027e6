//! `on_conflict = "ownership"`: the single owner's version of a conflicting file is taken, else the branch's that is being
//! merged. The other side is kept, and becomes a task when the landing has landed.

use std::collections::BTreeMap;

use regatta_core::ids::{CommitId, TaskId};
use regatta_core::landing::Dropped;
use regatta_core::project::OnConflict;
use regatta_core::task::{Status, Task};

use crate::Engine;
use crate::ports::git::{Settled, Side, Trial};
use crate::ports::store::TaskFilter;

use super::{Member, Train, signed};

/// How many ended tasks are looked at for who else touched a file.
const LOOKED_AT: usize = 1_000;

/// Settles a conflict with the trunk by ownership; `None` where the project wants it settled otherwise.
pub(super) fn settle(
    engine: &Engine,
    train: &Train,
    member: &Member,
    (tip, paths): (&CommitId, &[String]),
) -> Result<Option<(Trial, Option<Dropped>)>, String> {
    if train.project.settings.landing.on_conflict != OnConflict::Ownership || member.landing.reverts {
        return Ok(None);
    }
    let since = landed_since(engine, train, member)?;
    let sides: BTreeMap<String, Side> =
        paths.iter().map(|path| (path.clone(), side(path, &member.task, &since))).collect();
    let commit = &member.landing.submission.commit;
    let settled = engine.shared.git.merge_with_ownership(&train.repo, tip, commit, &sides, &signed(train, member));
    let Settled { trial, dropped } = settled.map_err(|it| it.to_string())?;
    let dropped = dropped.map(|it| Dropped { reference: it.reference, commit: it.commit, paths: it.paths });
    Ok(Some((trial, dropped)))
}

/// What landed after the work was begun.
fn landed_since(engine: &Engine, train: &Train, member: &Member) -> Result<Vec<Task>, String> {
    let newest = engine.board().counters.task;
    let filter = TaskFilter {
        project: Some(train.project.name.clone()),
        statuses: vec![Status::Completed],
        after: newest.checked_sub(LOOKED_AT as u64).filter(|it| *it > 0).map(TaskId),
        limit: LOOKED_AT,
        ..TaskFilter::default()
    };
    let mut found = Vec::new();
    for task in engine.history().tasks(&filter).map_err(|it| it.to_string())? {
        let Some(landed) = &task.landed else { continue };
        let base = &member.landing.submission.base;
        if !engine.shared.git.contains(&train.repo, base, landed).map_err(|it| it.to_string())? {
            found.push(task);
        }
    }
    Ok(found)
}

/// Whose version is taken: who alone has the file in the manifest; the branch's when both have, or nobody.
fn side(path: &str, task: &Task, since: &[Task]) -> Side {
    let owns = |it: &Task| it.files.iter().any(|it| it.matches(path));
    let touched = |it: &&Task| it.submission.as_ref().is_some_and(|it| it.changed.iter().any(|it| it == path));
    let theirs = since.iter().filter(touched).any(owns);
    if theirs && !owns(task) { Side::Trunk } else { Side::Change }
}
