//! Compares a project's trunk with the landings that Regatta has recorded. The comparison runs
//! after every move of the trunk, at every start, and when a landed commit seems to be missing
//! (Q12).
//!
//! A comparison is not an effect (stored work that survives a crash), because every start compares
//! again.

use regatta_core::command::Report;
use regatta_core::ids::{CommitId, ProjectName};
use regatta_core::landing::trunk_check::{TrunkSeen, recorded};
use regatta_core::project::Project;

use crate::Engine;
use crate::ports::git::{GitError, ProjectRepo};

/// Compares the trunk of every project with the recorded landings.
pub(crate) fn compare_all_trunks(engine: &Engine) {
    let projects: Vec<ProjectName> = engine.board().projects.keys().cloned().collect();
    for project in projects {
        compare_project_trunk(engine, &project);
    }
}

/// Compares the trunk of one project with the newest commit that was recorded for the project, and
/// records the differences.
pub(crate) fn compare_project_trunk(engine: &Engine, name: &ProjectName) {
    let board = engine.board();
    let Some(project) = board.projects.get(name) else {
        return;
    };
    if let Err(error) = compare_trunk_with(engine, project, &[]) {
        tracing::warn!(project = %name, "could not compare the trunk of project {name} with the \
            commits that Regatta landed; the next comparison tries again: {error}");
    }
}

/// Compares a project's trunk with the newest commit that was recorded for the project and with the
/// commits `landed`. Records missing and unknown commits, and returns them.
pub(crate) fn compare_trunk_with(
    engine: &Engine,
    project: &Project,
    landed: &[CommitId],
) -> Result<TrunkSeen, GitError> {
    let mut recorded = recorded(project);
    recorded.extend(
        landed
            .iter()
            .filter(|commit| !recorded.contains(commit))
            .cloned()
            .collect::<Vec<_>>(),
    );
    if recorded.is_empty() {
        return Ok(TrunkSeen::default());
    }
    let seen = engine
        .shared
        .git
        .compare_trunk(&ProjectRepo::from_project(project), &recorded)?;
    let has_difference = !seen.missing.is_empty()
        || !seen.added.is_empty()
        || project.queue.trunk_difference.is_some();
    if has_difference && !engine.is_stopping() {
        let report = Report::TrunkCompared {
            project: project.name.clone(),
            seen: seen.clone(),
        };
        if let Err(failure) = engine.report(report) {
            tracing::warn!(project = %project.name, "could not record that the trunk of project {} \
                differs from the landings that Regatta made; the next comparison tries again: \
                {failure}", project.name);
        }
    }
    Ok(seen)
}
