//! Builds the data for the web page of one task: the conditions under which the task's work lands
//! (is merged), the task's activities over time, and the buttons.

use regatta_api::live_view::{DisplayState, LandingCondition, LaneBar, TaskPage};
use regatta_api::view::{TaskView, without_token};
use regatta_core::attempt::{Attempt, AttemptCause};
use regatta_core::board::Board;
use regatta_core::display;
use regatta_core::ids::TaskId;
use regatta_core::task::Task;
use regatta_core::task_timeline::{Activity, ActivityInterval, TaskTimeline};
use regatta_engine::ports::store::StoreError;

use super::actions;
use super::task_details::planned_checks;
use super::topics::TopicContext;

pub(super) fn task_page(
    context: &TopicContext<'_>,
    id: TaskId,
) -> Result<Option<TaskPage>, StoreError> {
    let board = context.board;
    let found = match board.tasks.get(&id) {
        Some(task) => Some((**task).clone()),
        None => context.history.task(id)?,
    };
    let Some(task) = found else { return Ok(None) };
    let attempts = context.history.attempts_of(id)?;
    let landing = task
        .landing
        .and_then(|id| board.landings.get(&id))
        .map(|landing| &**landing);
    let last_attempt = attempts.last();
    let agent = task
        .agent
        .as_ref()
        .and_then(|agent| board.agents.get(agent));
    let view = TaskView::new(board, &task, context.now).with_gates(board, context.now);
    let timeline = context
        .shared
        .timeline_reader
        .timeline(context.history, id, board.revision)?;
    let project_commands = board
        .projects
        .get(&task.project)
        .map_or(&[][..], |project| &project.validation);
    Ok(Some(TaskPage {
        checklist: checklist(board, &task),
        time: activity_bars(board, &task, &attempts, &timeline),
        log: last_attempt.map(|attempt| attempt.id),
        wanted: agent
            .and_then(|agent| agent.profile.model.clone())
            .unwrap_or_default(),
        running: last_attempt
            .and_then(|attempt| attempt.session.model.clone())
            .unwrap_or_default(),
        branch: task.branch().to_string(),
        mission_title: mission_title(context, &task)?,
        check_count: planned_checks(&task, project_commands).len(),
        plan: task.planning_goal().is_some(),
        actions: actions::task_actions(board, &task, landing),
        tries: attempts.iter().map(without_token).collect(),
        task: view,
    }))
}

/// Returns the title of the mission to which the task belongs.
fn mission_title(context: &TopicContext<'_>, task: &Task) -> Result<Option<String>, StoreError> {
    let Some(id) = task.mission else {
        return Ok(None);
    };
    match context.board.missions.get(&id) {
        Some(mission) => Ok(Some(mission.title.clone())),
        None => Ok(context
            .history
            .mission(id)?
            .map(|(mission, _)| mission.title)),
    }
}

/// Returns the checklist of a task: the conditions that must be met before the task's work lands,
/// each with its present state.
fn checklist(board: &Board, task: &Task) -> Vec<LandingCondition> {
    let mut conditions = Vec::new();
    let mut add =
        |good: Option<bool>, text: String| conditions.push(LandingCondition { good, text });
    if !task.blocked_by.is_empty() {
        let names: Vec<String> = task.blocked_by.iter().map(ToString::to_string).collect();
        let open = task
            .blocked_by
            .iter()
            .filter(|id| board.tasks.contains_key(*id))
            .count();
        let text = format!("dependencies landed: {}", names.join(", "));
        add(if open == 0 { Some(true) } else { None }, text);
    }
    let is_submitted = task.submission.is_some();
    let has_failed = matches!(
        task.last_cause,
        Some(AttemptCause::Invalid | AttemptCause::Rejected)
    );
    let (passed, text) = match (is_submitted, has_failed) {
        (true, _) => (Some(true), "its checks passed in its workspace"),
        (false, true) => (Some(false), "its checks failed in its last attempt"),
        (false, false) => (None, "its checks have not run yet"),
    };
    add(passed, text.into());
    match (&task.submission, task.files.is_empty()) {
        (Some(work), false) => {
            let outside = work
                .changed
                .iter()
                .filter(|changed| !task.files.iter().any(|file| file.matches(changed)))
                .count();
            let text = match outside {
                0 => format!(
                    "only files of its manifest changed: {} of {0}",
                    work.changed.len()
                ),
                many => format!(
                    "{many} of {} changed files are outside its manifest",
                    work.changed.len()
                ),
            };
            add(Some(outside == 0), text);
        }
        (None, false) => add(None, "only files of its manifest may change".into()),
        (_, true) => {}
    }
    if !task.conflicts.is_empty() && task.landed.is_none() {
        add(
            Some(false),
            format!("it conflicted in {}", task.conflicts.join(", ")),
        );
    }
    match display::status_display(task).state {
        DisplayState::Review => add(
            Some(false),
            task.reason.clone().unwrap_or_else(|| "your review".into()),
        ),
        DisplayState::Landing => add(None, "the merged tree is validated in the queue".into()),
        DisplayState::Landed if task.landed.is_some() => {
            let commit = task.landed.as_ref().map_or("", |id| id.as_str());
            add(
                Some(true),
                format!("landed as {}", commit.get(..10).unwrap_or(commit)),
            );
        }
        _ => {}
    }
    conditions
}

/// Returns the bars of a chart that shows a task's activities over time. The bars of a failed
/// attempt are drawn as failed.
fn activity_bars(
    board: &Board,
    task: &Task,
    attempts: &[Attempt],
    timeline: &TaskTimeline,
) -> Vec<LaneBar> {
    let bar = |interval: &ActivityInterval| {
        let attempt_end = interval
            .attempt
            .and_then(|id| attempts.iter().find(|attempt| attempt.id == id))
            .and_then(|attempt| attempt.end.as_ref());
        let failed_end = attempt_end.filter(|end| !end.cause.is_success());
        let activity_text = match interval.activity {
            Activity::Checking => format!("checks of {}", interval.text),
            _ => interval.text.clone(),
        };
        let text = match failed_end {
            Some(end) if !end.detail.is_empty() => {
                format!(
                    "{activity_text}: {}",
                    end.detail.lines().next().unwrap_or_default()
                )
            }
            _ => activity_text,
        };
        let state = match interval.activity {
            _ if interval.to_unix_ms.is_none() => display::task_display(board, task).state,
            Activity::Working | Activity::Checking if failed_end.is_some() => DisplayState::Failed,
            activity => display::activity_display(activity).state,
        };
        LaneBar {
            from: interval.from_unix_ms,
            to: interval.to_unix_ms,
            at: state,
            task: None,
            text,
        }
    };
    merge_short_bars(timeline.intervals.iter().map(bar).collect())
}

/// The length of bars, in milliseconds, below which neighbours are drawn as one bar.
const SHORT_BAR_MS: u64 = 1_000;
/// Maximum number of texts that a merged bar lists.
const MAX_MERGED_TEXTS: usize = 3;

/// Merges neighbouring bars of the same state that are all shorter than a second, because a task can change between
/// two reasons to wait many times in a moment.
fn merge_short_bars(bars: Vec<LaneBar>) -> Vec<LaneBar> {
    let is_short = |bar: &LaneBar| {
        bar.to
            .is_some_and(|to| to.saturating_sub(bar.from) < SHORT_BAR_MS)
    };
    let mut merged: Vec<LaneBar> = Vec::new();
    for group in
        bars.chunk_by(|left, right| left.at == right.at && is_short(left) && is_short(right))
    {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            continue;
        };
        let mut texts: Vec<&str> = Vec::new();
        for bar in group {
            if !texts.contains(&bar.text.as_str()) {
                texts.push(&bar.text);
            }
        }
        let more = texts.len().saturating_sub(MAX_MERGED_TEXTS);
        texts.truncate(MAX_MERGED_TEXTS);
        let mut text = texts.join("; ");
        if more > 0 {
            text += &format!("; {more} more");
        }
        merged.push(LaneBar {
            to: last.to,
            at: last.at,
            text,
            ..first.clone()
        });
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_bars_shorter_than_a_second_become_one_bar() {
        let bar = |from: u64, to: Option<u64>, text: &str| LaneBar {
            from,
            to,
            at: DisplayState::Waiting,
            task: None,
            text: text.into(),
        };
        let bars = vec![
            bar(0, Some(5_000), "long"),
            bar(5_000, Some(5_100), "a"),
            bar(5_100, Some(5_200), "b"),
            bar(5_200, Some(5_300), "a"),
            bar(5_300, Some(9_000), "long again"),
            bar(9_000, Some(9_001), "short"),
            bar(9_001, None, "now"),
        ];
        let merged = merge_short_bars(bars);
        let shape: Vec<(u64, Option<u64>, &str)> = merged
            .iter()
            .map(|bar| (bar.from, bar.to, bar.text.as_str()))
            .collect();
        assert_eq!(
            shape,
            [
                (0, Some(5_000), "long"),
                (5_000, Some(5_300), "a; b"),
                (5_300, Some(9_000), "long again"),
                (9_000, Some(9_001), "short"),
                (9_001, None, "now"),
            ]
        );
    }
}
