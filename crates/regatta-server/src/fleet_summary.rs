//! Reads the counts of a fleet: the counts of open tasks from the board (the daemon's state in
//! memory), and the counts of ended tasks from the store.

use std::sync::{Mutex, PoisonError};

use regatta_core::board::Board;
use regatta_core::display::{self, EndedCounts, FleetSummary, TaskCounts};
use regatta_core::ids::{MissionId, Now, ProjectName};
use regatta_core::mission::Mission;
use regatta_core::task::{Task, TaskStatus};
use regatta_engine::ports::store::{StoreError, StoreHistory, TaskFilter};

use crate::ServerState;

/// The counts of ended tasks of the whole fleet, as last read. Counting takes a few milliseconds in
/// a large store, and the page needs the counts up to ten times a second.
#[derive(Default)]
pub(crate) struct EndedCountsCache {
    last: Mutex<Option<(CacheKey, EndedCounts)>>,
}

/// The facts of the board that change whenever a count of ended tasks changes. The number of
/// completed tasks, for example, is the number of added tasks without the open tasks and the tasks
/// that ended without success.
#[derive(Clone, PartialEq, Eq)]
struct CacheKey {
    added: u64,
    open: usize,
    unsuccessful: usize,
    failed: usize,
    projects: usize,
    missions: Vec<(MissionId, bool)>,
}

/// Returns the counts of the whole fleet, or of one project. All views get their counts here.
pub(crate) fn read(
    shared: &ServerState,
    board: &Board,
    project: Option<&ProjectName>,
    now: Now,
) -> Result<FleetSummary, StoreError> {
    let history = &**shared.engine.history();
    let ended = match project {
        Some(_) => ended_counts(history, board, project)?,
        None => cached_counts(shared, history, board)?,
    };
    Ok(display::fleet_summary(board, project, &ended, now))
}

fn cached_counts(
    shared: &ServerState,
    history: &dyn StoreHistory,
    board: &Board,
) -> Result<EndedCounts, StoreError> {
    let key = CacheKey {
        added: board.counters.task,
        open: board.tasks.len(),
        unsuccessful: board.unsuccessful_count(),
        failed: board.failed.len(),
        projects: board.projects.len(),
        missions: board
            .missions
            .values()
            .map(|mission| (mission.id, mission.lead.is_some()))
            .collect(),
    };
    let cache = &shared.ended_counts;
    let lock = || cache.last.lock().unwrap_or_else(PoisonError::into_inner);
    let known = lock().clone().filter(|(known, _)| *known == key);
    if let Some((_, counts)) = known {
        return Ok(counts);
    }
    let counts = ended_counts(history, board, None)?;
    *lock() = Some((key, counts.clone()));
    Ok(counts)
}

fn ended_counts(
    history: &dyn StoreHistory,
    board: &Board,
    project: Option<&ProjectName>,
) -> Result<EndedCounts, StoreError> {
    let count = |status| {
        history.count_tasks(&TaskFilter {
            project: project.cloned(),
            statuses: vec![status],
            ..TaskFilter::default()
        })
    };
    let missions = board
        .missions
        .values()
        .filter(|mission| project.is_none_or(|only| *only == mission.project))
        .map(|mission| Ok((mission.id, mission_counts(history, mission)?)))
        .collect::<Result<_, StoreError>>()?;
    Ok(EndedCounts {
        completed: count(TaskStatus::Completed)?,
        failed: count(TaskStatus::Failed)?,
        missions,
    })
}

/// Counts the tasks of a mission. In a mission with a lead, the tasks are read one by one to leave
/// out the lead's own tasks, because there are few of them.
fn mission_counts(history: &dyn StoreHistory, mission: &Mission) -> Result<TaskCounts, StoreError> {
    let filter = |statuses| TaskFilter {
        mission: Some(mission.id),
        statuses,
        ..TaskFilter::default()
    };
    if mission.lead.is_some() {
        let mut tasks = history.tasks(&filter(vec![]))?;
        tasks.retain(Task::is_polled);
        return Ok(TaskCounts::from_tasks(&tasks));
    }
    Ok(TaskCounts {
        tasks: history.count_tasks(&filter(vec![]))?,
        completed: history.count_tasks(&filter(vec![TaskStatus::Completed]))?,
        ..TaskCounts::default()
    })
}
