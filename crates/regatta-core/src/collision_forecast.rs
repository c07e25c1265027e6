//! The collision forecast: warns that two pieces of unfinished work will conflict before either of
//! them lands.
//!
//! The engine merges workspaces with each other as a test and reports the conflicts that it finds.
//! This module records them as collisions of the project, announces each collision once, and
//! removes a collision that is gone. The module also counts how many warnings came true. Not here:
//! the test merges.

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AttemptId, Now, ProjectName, TaskId};
use crate::landing::announce;
use crate::refusal::Refusal;
use crate::task::{Task, TaskStatus};

/// The present collisions of a project's unfinished work, and counts that show how reliable the
/// warnings have been.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CollisionForecast {
    pub collisions: Vec<ForecastCollision>,
    /// Number of warnings that Regatta has given.
    pub warned: u64,
    /// Number of warnings after which a landing really had a conflict.
    pub proved: u64,
    /// Number of warnings whose collision went away without a conflict.
    pub lapsed: u64,
}

impl CollisionForecast {
    pub(crate) fn is_default(&self) -> bool {
        *self == CollisionForecast::default()
    }
}

/// Two pieces of unfinished work, or one piece and the trunk, that would conflict if they were
/// merged now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForecastCollision {
    pub one: TaskId,
    /// The other task; `None` if the first task's work conflicts with the trunk.
    pub other: Option<TaskId>,
    pub paths: Vec<String>,
    #[serde(rename = "since_wall")]
    pub since_unix_ms: u64,
    /// True if one of the tasks really had a conflict in the landing queue.
    #[serde(default)]
    pub proved: bool,
}

/// A collision that the engine found when it merged two workspaces, or a workspace and the trunk
/// (`other` is `None`), as a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundCollision {
    pub one: AttemptId,
    pub other: Option<AttemptId>,
    pub paths: Vec<String>,
}

facts! {
    /// The project's collisions or their counts changed; `radar` contains all present collisions
    /// and counts.
    ProjectRadar { project: ProjectName, radar: CollisionForecast }
}

/// Replaces a project's collisions with the collisions that the latest test merges found. Announces
/// each new collision once, and counts warnings whose collision is gone.
pub fn apply_scan(
    draft: &mut Draft,
    name: &ProjectName,
    found: &[FoundCollision],
    now: Now,
) -> Result<(), Refusal> {
    let Some(project) = draft.board().projects.get(name).cloned() else {
        return Ok(());
    };
    let mut forecast = project.collision_forecast.clone();
    let mut collisions: Vec<ForecastCollision> = Vec::new();
    for pair in found {
        // Skip attempts that ended in the meantime, because the landing queue itself finds the
        // conflicts of finished work.
        let task_of = |attempt: AttemptId| {
            draft
                .board()
                .attempts
                .get(&attempt)
                .map(|attempt| attempt.task)
        };
        let Some(one) = task_of(pair.one) else {
            continue;
        };
        let other = match pair.other {
            None => None,
            Some(attempt) => match task_of(attempt) {
                Some(task) if task != one => Some(task),
                _ => continue,
            },
        };
        let (one, other) = match other {
            Some(other) => (one.min(other), Some(one.max(other))),
            None => (one, None),
        };
        if !collisions
            .iter()
            .any(|collision| (collision.one, collision.other) == (one, other))
        {
            collisions.push(ForecastCollision {
                one,
                other,
                paths: pair.paths.clone(),
                since_unix_ms: now.unix_ms,
                proved: false,
            });
        }
    }
    let mut warnings = Vec::new();
    for collision in &mut collisions {
        let known = project
            .collision_forecast
            .collisions
            .iter()
            .find(|known| is_continuation(draft.board(), known, collision));
        match known {
            Some(known) => {
                (collision.since_unix_ms, collision.proved) = (known.since_unix_ms, known.proved)
            }
            None => warnings.push(collision.clone()),
        }
    }
    for known in &project.collision_forecast.collisions {
        if collisions
            .iter()
            .any(|collision| is_continuation(draft.board(), known, collision))
        {
            continue;
        }
        if is_submitted(draft.board(), known) {
            collisions.push(known.clone()); // the landing queue will prove or disprove it
        } else if !known.proved {
            forecast.lapsed += 1;
        }
    }
    collisions.sort_by_key(|collision| (collision.one, collision.other));
    forecast.warned += warnings.len() as u64;
    forecast.collisions = collisions;
    if forecast != project.collision_forecast {
        draft.record(Event::ProjectRadar(ProjectRadar {
            project: name.clone(),
            radar: forecast,
        }));
    }
    for collision in warnings {
        announce(
            draft,
            name,
            "coord:conflict",
            warning(draft.board(), &collision),
            now,
        )?;
    }
    Ok(())
}

/// Returns whether `found` is the same collision as `known`, or the rest of that collision: one of
/// its tasks has landed, and the other task now conflicts with the trunk.
fn is_continuation(board: &Board, known: &ForecastCollision, found: &ForecastCollision) -> bool {
    if (known.one, known.other) == (found.one, found.other) {
        return true;
    }
    let landed = |task: TaskId| !board.tasks.contains_key(&task);
    let Some(other) = known.other.filter(|_| found.other.is_none()) else {
        return false;
    };
    (found.one == known.one && landed(other)) || (found.one == other && landed(known.one))
}

/// Returns whether one of the two tasks has finished work on its way to the trunk. The landing
/// queue will then show whether the two tasks really conflict.
fn is_submitted(board: &Board, collision: &ForecastCollision) -> bool {
    let is_on_its_way = |task: TaskId| {
        let status = board.tasks.get(&task).map(|task| task.status);
        matches!(
            status,
            Some(TaskStatus::Validating | TaskStatus::InReview | TaskStatus::Landing)
        )
    };
    let is_open = |task: TaskId| board.tasks.contains_key(&task);
    let are_all_open = is_open(collision.one) && collision.other.is_none_or(is_open);
    are_all_open && (is_on_its_way(collision.one) || collision.other.is_some_and(is_on_its_way))
}

/// Returns the text that warns the agents of both tasks of the collision.
fn warning(board: &Board, collision: &ForecastCollision) -> String {
    let task_with_agent = |task: TaskId| {
        let agent = board
            .attempts
            .values()
            .find(|attempt| attempt.task == task)
            .map(|attempt| format!(" (@{})", attempt.agent));
        format!("{task}{}", agent.unwrap_or_default())
    };
    let shown: Vec<&str> = collision.paths.iter().take(5).map(String::as_str).collect();
    let more = collision.paths.len().saturating_sub(shown.len());
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let other = collision
        .other
        .map_or_else(|| "the trunk".to_owned(), task_with_agent);
    format!(
        "{} and {other} will collide in {}{more}",
        task_with_agent(collision.one),
        shown.join(", ")
    )
}

/// Marks all forecast collisions of a task as proved, because its landing really had a conflict,
/// and counts them.
pub(crate) fn mark_proved(draft: &mut Draft, name: &ProjectName, task: TaskId) {
    let Some(project) = draft.board().projects.get(name).cloned() else {
        return;
    };
    let mut forecast = project.collision_forecast.clone();
    for collision in forecast.collisions.iter_mut().filter(|collision| {
        (collision.one == task || collision.other == Some(task)) && !collision.proved
    }) {
        collision.proved = true;
        forecast.proved += 1;
    }
    if forecast != project.collision_forecast {
        draft.record(Event::ProjectRadar(ProjectRadar {
            project: name.clone(),
            radar: forecast,
        }));
    }
}

/// Returns why a task should not start yet: it may change a file in which a running task already
/// collides with another task or with the trunk. A task that is part of the collision itself is not
/// held back.
pub fn reason_to_wait(board: &Board, task: &Task) -> Option<String> {
    let project = board.projects.get(&task.project)?;
    // If the regular test merges are switched off, a recorded collision would never be removed, so
    // it must not hold tasks back.
    if project.collision_forecast.collisions.is_empty()
        || project.settings.landing.collision_scan_interval.ms() == 0
    {
        return None;
    }
    let is_running = |id: &TaskId| {
        board
            .tasks
            .get(id)
            .is_some_and(|task| task.status.is_running())
    };
    let others = project
        .collision_forecast
        .collisions
        .iter()
        .filter(|collision| collision.one != task.id && collision.other != Some(task.id));
    for collision in others.filter(|collision| {
        is_running(&collision.one) || collision.other.as_ref().is_some_and(is_running)
    }) {
        let touched = collision
            .paths
            .iter()
            .find(|path| task.files.iter().any(|pattern| pattern.matches(path)));
        if let Some(path) = touched {
            let other = collision
                .other
                .map_or_else(|| "the trunk".to_owned(), |id| id.to_string());
            return Some(format!(
                "{} and {other} collide in {path}; the task starts when this collision is gone",
                collision.one
            ));
        }
    }
    None
}
