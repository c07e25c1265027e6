//! The conflict radar: detects work in progress that will collide, before either side is finished.
//!
//! The shell merges workspaces on trial and reports collisions. This module records them in the
//! project, announces each collision once, and forgets it when it no longer holds. It also counts
//! how often a warning came true.

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AttemptId, Now, ProjectName, TaskId};
use crate::landing::announce;
use crate::refusal::Refusal;
use crate::task::{Task, TaskStatus};

/// Known collisions of a project's work in progress, with counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CollisionForecast {
    pub collisions: Vec<ForecastCollision>,
    /// Number of warnings.
    pub warned: u64,
    /// Number of warnings that became a conflict in the queue.
    pub proved: u64,
    /// Number of warnings that ended without a conflict.
    pub lapsed: u64,
}

impl CollisionForecast {
    pub(crate) fn is_default(&self) -> bool {
        *self == CollisionForecast::default()
    }
}

/// Two pieces of work that will not merge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForecastCollision {
    pub one: TaskId,
    /// The other task; `None` means the trunk.
    pub other: Option<TaskId>,
    pub paths: Vec<String>,
    #[serde(rename = "since_wall")]
    pub since_unix_ms: u64,
    /// The collision became a conflict in the queue.
    #[serde(default)]
    pub proved: bool,
}

/// A collision that the shell found on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundCollision {
    pub one: AttemptId,
    pub other: Option<AttemptId>,
    pub paths: Vec<String>,
}

facts! {
    /// The known collisions or counts changed.
    ProjectRadar { project: ProjectName, radar: CollisionForecast }
}

/// Applies the collisions that a check of the project's workspaces found. Each new collision is
/// announced once.
pub fn apply_scan(
    draft: &mut Draft,
    name: &ProjectName,
    found: &[FoundCollision],
    now: Now,
) -> Result<(), Refusal> {
    let Some(project) = draft.board().projects.get(name).cloned() else {
        return Ok(());
    };
    let mut radar = project.collision_forecast.clone();
    let mut collisions: Vec<ForecastCollision> = Vec::new();
    for found_collision in found {
        // If an attempt has ended in the meantime, the landing queue decides about its work.
        let task = |attempt: AttemptId| {
            draft
                .board()
                .attempts
                .get(&attempt)
                .map(|attempt| attempt.task)
        };
        let (Some(one), other) = (task(found_collision.one), found_collision.other.map(task))
        else {
            continue;
        };
        let other = match other {
            Some(None) => continue,
            Some(Some(other)) if other == one => continue,
            other => other.flatten(),
        };
        let (one, other) = match other {
            Some(other) => (one.min(other), Some(one.max(other))),
            None => (one, None),
        };
        if !collisions.iter().any(|forecast_collision| {
            (forecast_collision.one, forecast_collision.other) == (one, other)
        }) {
            collisions.push(ForecastCollision {
                one,
                other,
                paths: found_collision.paths.clone(),
                since_unix_ms: now.unix_ms,
                proved: false,
            });
        }
    }
    let mut warnings = Vec::new();
    for forecast_collision in &mut collisions {
        let known = project
            .collision_forecast
            .collisions
            .iter()
            .find(|known| is_continuation(draft.board(), known, forecast_collision));
        match known {
            Some(known) => {
                (forecast_collision.since_unix_ms, forecast_collision.proved) =
                    (known.since_unix_ms, known.proved)
            }
            None => warnings.push(forecast_collision.clone()),
        }
    }
    for known in &project.collision_forecast.collisions {
        if collisions
            .iter()
            .any(|forecast_collision| is_continuation(draft.board(), known, forecast_collision))
        {
            continue;
        }
        if is_submitted(draft.board(), known) {
            collisions.push(known.clone()); // the landing queue will prove or disprove it
        } else if !known.proved {
            radar.lapsed += 1;
        }
    }
    collisions.sort_by_key(|forecast_collision| (forecast_collision.one, forecast_collision.other));
    radar.warned += warnings.len() as u64;
    radar.collisions = collisions;
    if radar != project.collision_forecast {
        draft.record(Event::ProjectRadar(ProjectRadar {
            project: name.clone(),
            radar,
        }));
    }
    for forecast_collision in warnings {
        announce(
            draft,
            name,
            "coord:conflict",
            warning(draft.board(), &forecast_collision),
            now,
        )?;
    }
    Ok(())
}

/// Returns whether `now` is the same collision as `known`, or its continuation after one side
/// landed.
fn is_continuation(board: &Board, known: &ForecastCollision, now: &ForecastCollision) -> bool {
    if (known.one, known.other) == (now.one, now.other) {
        return true;
    }
    let landed = |task: TaskId| !board.tasks.contains_key(&task);
    let Some(other) = known.other.filter(|_| now.other.is_none()) else {
        return false;
    };
    (now.one == known.one && landed(other)) || (now.one == other && landed(known.one))
}

/// Returns whether one side is submitted, so that the queue will prove or disprove the collision.
fn is_submitted(board: &Board, forecast_collision: &ForecastCollision) -> bool {
    let on_its_way = |task: TaskId| {
        let status = board.tasks.get(&task).map(|task| task.status);
        matches!(
            status,
            Some(TaskStatus::Validating | TaskStatus::InReview | TaskStatus::Landing)
        )
    };
    let open = |task: TaskId| board.tasks.contains_key(&task);
    let all_open = open(forecast_collision.one) && forecast_collision.other.is_none_or(open);
    all_open
        && (on_its_way(forecast_collision.one) || forecast_collision.other.is_some_and(on_its_way))
}

/// Returns the message to both sides.
fn warning(board: &Board, forecast_collision: &ForecastCollision) -> String {
    let who = |task: TaskId| {
        let agent = board
            .attempts
            .values()
            .find(|attempt| attempt.task == task)
            .map(|attempt| format!(" (@{})", attempt.agent));
        format!("{task}{}", agent.unwrap_or_default())
    };
    let shown: Vec<&str> = forecast_collision
        .paths
        .iter()
        .take(5)
        .map(String::as_str)
        .collect();
    let more = forecast_collision.paths.len().saturating_sub(shown.len());
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let other = forecast_collision
        .other
        .map_or_else(|| "the trunk".to_owned(), who);
    format!(
        "{} and {other} will collide in {}{more}",
        who(forecast_collision.one),
        shown.join(", ")
    )
}

/// Marks the collisions of a task as proved, because its landing conflicted.
pub(crate) fn mark_proved(draft: &mut Draft, name: &ProjectName, task: TaskId) {
    let Some(project) = draft.board().projects.get(name).cloned() else {
        return;
    };
    let mut radar = project.collision_forecast.clone();
    for forecast_collision in radar.collisions.iter_mut().filter(|forecast_collision| {
        (forecast_collision.one == task || forecast_collision.other == Some(task))
            && !forecast_collision.proved
    }) {
        forecast_collision.proved = true;
        radar.proved += 1;
    }
    if radar != project.collision_forecast {
        draft.record(Event::ProjectRadar(ProjectRadar {
            project: name.clone(),
            radar,
        }));
    }
}

/// Returns the reason why a task should not start yet: its manifest has a file in which two other
/// running tasks already collide. A task that is itself part of the collision is not held back.
pub fn reason_to_wait(board: &Board, task: &Task) -> Option<String> {
    let project = board.projects.get(&task.project)?;
    // If the radar is off, it would never notice the end of a collision.
    if project.collision_forecast.collisions.is_empty()
        || project.settings.landing.collision_scan_interval.ms() == 0
    {
        return None;
    }
    let at_work = |id: &TaskId| {
        board
            .tasks
            .get(id)
            .is_some_and(|task| task.status.is_running())
    };
    let others = project
        .collision_forecast
        .collisions
        .iter()
        .filter(|forecast_collision| {
            forecast_collision.one != task.id && forecast_collision.other != Some(task.id)
        });
    for forecast_collision in others.filter(|forecast_collision| {
        at_work(&forecast_collision.one) || forecast_collision.other.as_ref().is_some_and(at_work)
    }) {
        let touched = forecast_collision.paths.iter().find(|path| {
            task.files
                .iter()
                .any(|path_pattern| path_pattern.matches(path))
        });
        if let Some(path) = touched {
            let other = forecast_collision
                .other
                .map_or_else(|| "the trunk".to_owned(), |id| id.to_string());
            return Some(format!(
                "{} and {other} collide in {path}; it starts when that is settled",
                forecast_collision.one
            ));
        }
    }
    None
}
