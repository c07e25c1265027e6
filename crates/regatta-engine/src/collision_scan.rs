//! Searches at regular intervals for unfinished work that would conflict: merges the workspaces of
//! each project with each other and with the trunk, without changing the workspaces.
//!
//! One thread scans one project after the other, so scanning uses at most one core, and slow scans
//! only make later scans less frequent. Git compares the work, and the board (the state of all
//! unfinished work) keeps the result.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use regatta_core::collision_forecast::FoundCollision;
use regatta_core::command::Report;
use regatta_core::ids::{AttemptId, ProjectName};
use regatta_core::project::Project;

use crate::Engine;
use crate::perform::POLL_INTERVAL;
use crate::ports::git::ProjectRepo;

/// Starts the thread that scans the workspaces of all projects.
pub(crate) fn start(engine: &Engine) {
    let engine_clone = engine.clone();
    engine.spawn_thread("collision-scan", move || {
        let mut last_scans: BTreeMap<ProjectName, Instant> = BTreeMap::new();
        while !engine_clone.is_stopping() {
            std::thread::sleep(POLL_INTERVAL);
            let board = engine_clone.board();
            last_scans.retain(|name, _| board.projects.contains_key(name));
            for project in board.projects.values() {
                let interval =
                    Duration::from_millis(project.settings.landing.collision_scan_interval.ms());
                // The first scan comes one interval after this thread first saw the project,
                // because the agents of a new project have written nothing yet.
                let last_scan = last_scans
                    .entry(project.name.clone())
                    .or_insert_with(Instant::now);
                if interval.is_zero()
                    || last_scan.elapsed() < interval
                    || engine_clone.is_stopping()
                {
                    continue;
                }
                *last_scan = Instant::now();
                scan_project(&engine_clone, project);
            }
        }
    });
}

/// Compares the workspaces of one project and reports the conflicts that it found to the board (the
/// state of all unfinished work).
fn scan_project(engine: &Engine, project: &Project) {
    let board = engine.board();
    let attempts: BTreeMap<AttemptId, AttemptId> = board
        .attempts
        .values()
        .filter(|attempt| {
            attempt.project == project.name && attempt.runner.is_none() && !attempt.no_workspace
        })
        .map(|attempt| (attempt.workspace(), attempt.id))
        .collect();
    let workspaces: Vec<AttemptId> = attempts.keys().copied().collect();
    // Even a single workspace is scanned, because it can conflict with the trunk. If the board (the
    // state of all unfinished work) lists earlier conflicts, the scan must run to remove the
    // conflicts that no longer exist.
    if workspaces.is_empty() && project.collision_forecast.collisions.is_empty() {
        return;
    }
    let (git, repo) = (&engine.shared.git, ProjectRepo::from_project(project));
    let collisions = git
        .tip(&repo)
        .and_then(|tip| git.collisions(&repo, &workspaces, &tip));
    let collisions = match collisions {
        Ok(collisions) => collisions,
        Err(error) => {
            return tracing::debug!(project = %project.name, "could not check the unfinished work \
                of project {} for conflicts, trying again at the next scan: {error}", project.name);
        }
    };
    let found: Vec<FoundCollision> = collisions
        .into_iter()
        .filter_map(|collision| {
            let other = collision.other_attempt.map(|id| attempts.get(&id).copied());
            Some(FoundCollision {
                one: *attempts.get(&collision.attempt)?,
                other: other.unwrap_or_default(),
                paths: collision.paths,
            })
        })
        .collect();
    if found.is_empty() && project.collision_forecast.collisions.is_empty() {
        return;
    }
    let report = Report::Collisions {
        project: project.name.clone(),
        found,
    };
    if let Err(failure) = engine.report(report) {
        tracing::debug!(project = %project.name, "could not record the conflicts between \
            unfinished work in project {}, trying again at the next scan: {failure}", project.name);
    }
}
