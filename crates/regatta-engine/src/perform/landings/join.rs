//! Brings in commits that only the remote's trunk has: rebases the local trunk onto the remote's
//! and validates the result.

use regatta_core::landing::Tried;
use regatta_core::task::Task;

use crate::contract::Broken;
use crate::ports::git::{GitError, Replanted};
use crate::{Engine, failpoint};

use super::{Train, judged, validate};

/// Replays the commits that are only on the local trunk on top of the remote's trunk, and validates
/// exactly that tree (Q1): with the checks that the remote's trunk names, and with the contracts of
/// the replayed tasks. `Err` is the reason why the result could not be determined.
pub(super) fn try_joining(engine: &Engine, train: &mut Train, remote: &str) -> Result<Tried, Tried> {
    let git = &engine.shared.git;
    let held = |error: GitError| Tried::Held { at: None, reason: format!("{error} {}", error.hint) };
    let onto = git.upstream(&train.repo, remote).map_err(held)?.tip;
    failpoint::at("join.fetched");
    let (old, new, tasks) = match git.replant(&train.repo, &onto).map_err(held)? {
        Replanted::InStep { tip } => return Ok(Tried::AlreadyThere { tip, landed_as: vec![] }),
        Replanted::Onto { old, new, tasks } => (old, new, tasks),
        Replanted::Conflict { paths } => {
            let Some(last) = train.members.last() else { return Err(nobody()) };
            return Ok(Tried::Conflict { at: last.landing.id, paths, kinds: vec![] });
        }
    };
    failpoint::at("join.replanted");
    validate::read_checks(engine, train, &onto).map_err(|reason| Tried::Held { at: None, reason })?;
    let replayed = asked_of(engine, &tasks).map_err(|reason| Tried::Held { at: None, reason })?;
    let all: Vec<&Task> = replayed.iter().chain(train.members.iter().map(|it| &it.task)).collect();
    match judged(engine, train, &all, &new, vec![old.clone()])? {
        None => Ok(Tried::Passed { old, new, carries: vec![] }),
        Some(Broken { reason, output }) => {
            Ok(Tried::Red { reason, output: Some(engine.redact(&output)), settled: vec![] })
        }
    }
}

fn nobody() -> Tried {
    Tried::Held { at: None, reason: "the trial has no landings".into() }
}

/// Reads the tasks that the replayed commits landed. Their contracts must hold on top of the
/// remote's trunk, too.
fn asked_of(engine: &Engine, names: &[String]) -> Result<Vec<Task>, String> {
    let mut found = Vec::new();
    for id in names.iter().filter_map(|it| it.parse().ok()) {
        found.extend(engine.history().task(id).map_err(|it| it.to_string())?);
    }
    Ok(found)
}
