//! Compares the trunk with the board after every move and at every start (Q12).
//!
//! A comparison is not an effect of its own: a daemon that is killed before it can report compares again when it starts.

use regatta_core::command::{Actor, Command, Request};
use regatta_core::ids::ProjectName;
use regatta_core::landing::trunk_check::recorded;

use crate::Engine;
use crate::ports::git::Repo;

/// Compares the trunk of every project.
pub(crate) fn compare_all(engine: &Engine) {
    let projects: Vec<ProjectName> = engine.board().projects.keys().cloned().collect();
    for project in projects {
        compare(engine, &project);
    }
}

/// Compares the trunk of one project with its last recorded tip, and reports the differences.
pub(super) fn compare(engine: &Engine, name: &ProjectName) {
    let board = engine.board();
    let Some(project) = board.projects.get(name) else { return };
    let recorded = recorded(project);
    if recorded.is_empty() || engine.is_stopping() {
        return;
    }
    let seen = match engine.shared.git.compare_trunk(&Repo::of(project), &recorded) {
        Ok(seen) => seen,
        Err(error) => return tracing::warn!(project = %name, %error, "could not compare the trunk with the board"),
    };
    if seen.missing.is_empty() && seen.added.is_empty() && project.queue.differs.is_none() {
        return;
    }
    let command = Command::ReportTrunk { project: name.clone(), seen };
    if let Err(failure) = engine.submit(Request { by: Actor::Regatta, key: None, command }) {
        tracing::warn!(project = %name, ?failure, "could not record how the trunk differs from the board");
    }
}
