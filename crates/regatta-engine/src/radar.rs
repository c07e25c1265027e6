//! The radar's turns: every so often the workspaces of each project are tried against each other and the trunk.
//!
//! One project after the other, in one thread of its own: however many there are, no more than one core is used, and
//! a look that takes long only comes less often.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use regatta_core::command::{Actor, Command, Request};
use regatta_core::ids::{AttemptId, ProjectName};
use regatta_core::project::Project;
use regatta_core::radar::Found;

use crate::Engine;
use crate::perform::LOOK_UP;
use crate::ports::git::Repo;

/// Starts the thread.
pub(crate) fn start(engine: &Engine) {
    let it = engine.clone();
    engine.spawn("radar", move || {
        let mut last: BTreeMap<ProjectName, Instant> = BTreeMap::new();
        while !it.is_stopping() {
            std::thread::sleep(LOOK_UP);
            let board = it.board();
            last.retain(|name, _| board.projects.contains_key(name));
            for project in board.projects.values() {
                let every = Duration::from_millis(project.settings.landing.radar.ms());
                // The first look comes when something had the time to get on disk.
                let seen = last.entry(project.name.clone()).or_insert_with(Instant::now);
                if every.is_zero() || seen.elapsed() < every || it.is_stopping() {
                    continue;
                }
                *seen = Instant::now();
                look(&it, project);
            }
        }
    });
}

/// Looks at one project's workspaces, and reports what changed.
fn look(engine: &Engine, project: &Project) {
    let board = engine.board();
    let attempts: BTreeMap<AttemptId, AttemptId> = board
        .attempts
        .values()
        .filter(|it| it.project == project.name && it.runner.is_none() && !it.bare)
        .map(|it| (it.workspace(), it.id))
        .collect();
    let spaces: Vec<AttemptId> = attempts.keys().copied().collect();
    // One workspace with nothing landing beside it has nobody to collide with but the trunk, which is looked at too.
    if spaces.is_empty() && project.radar.collisions.is_empty() {
        return;
    }
    let (git, repo) = (&engine.shared.git, Repo::of(project));
    let found = match git.tip(&repo).and_then(|tip| git.collisions(&repo, &spaces, &tip)) {
        Ok(found) => found,
        Err(error) => return tracing::debug!(project = %project.name, "the radar saw nothing this time: {error}"),
    };
    let found: Vec<Found> = found
        .into_iter()
        .filter_map(|it| {
            let other = it.other.map(|it| attempts.get(&it).copied());
            Some(Found { one: *attempts.get(&it.one)?, other: other.unwrap_or_default(), paths: it.paths })
        })
        .collect();
    if found.is_empty() && project.radar.collisions.is_empty() {
        return;
    }
    let command = Command::ReportCollisions { project: project.name.clone(), found };
    if let Err(failure) = engine.submit(Request { by: Actor::Regatta, key: None, command }) {
        tracing::debug!(project = %project.name, "the radar's report was not taken: {failure:?}");
    }
}
