//! Implements the API verbs for past missions: show a mission as it was at a revision (number of an
//! event), and compare missions.
//!
//! The engine's timeline reader computes the board (the daemon's whole state) at a revision by
//! applying all events of the log up to that revision.

use std::collections::BTreeMap;

use regatta_api::live_view::{DisplayState, TaskRowView};
use regatta_api::view::{MissionFiguresView, ReplayMarkView, ReplayView};
use regatta_core::attempt::Attempt;
use regatta_core::budget::Spend;
use regatta_core::display::TaskCounts;
use regatta_core::event::{Event, Recorded};
use regatta_core::ids::Now;
use regatta_core::mission::Mission;
use regatta_core::refusal::Refusal;
use regatta_core::task::Task;
use regatta_core::task_timeline::ActivityTotal;

use super::*;
use crate::live;

/// Maximum number of notable moments that a replay shows of a mission, and of additions of tasks
/// among them.
const MAX_MARKS: usize = 2_000;
const MAX_ADDITIONS: usize = 1_000;
/// Maximum number of missions in one comparison. `MAX_TIMELINES` is the number of tasks above which
/// the activities of a mission's tasks are not added up.
const MAX_COMPARED_MISSIONS: usize = 8;
const MAX_TIMELINES: usize = 60;

impl VerbHandler<'_> {
    pub(super) async fn mission_replay(&self, input: input::MissionReplay) -> Reply<ReplayView> {
        let (shared, id): (_, MissionId) = (self.shared.clone(), parse_id(&input.id)?);
        let until = self.board().revision;
        let view = run_blocking(move || replay_view(&shared, id, input.at, until)).await??;
        reply(until, view)
    }

    pub(super) async fn mission_compare(
        &self,
        input: input::MissionCompare,
    ) -> Reply<Vec<MissionFiguresView>> {
        if input.ids.is_empty() || input.ids.len() > MAX_COMPARED_MISSIONS {
            let what = format!("1 to {MAX_COMPARED_MISSIONS} missions can be compared");
            return Err(Problem::new(
                400,
                "bad_input",
                what,
                "name the missions to compare: regatta compare M3 M7",
            ));
        }
        let (shared, until) = (self.shared.clone(), self.board().revision);
        let views = run_blocking(move || {
            input
                .ids
                .iter()
                .map(|id| mission_figures(&shared, *id, until))
                .collect::<Result<Vec<MissionFiguresView>, Problem>>()
        });
        reply(until, views.await??)
    }
}

fn no_mission(mission: MissionId) -> Problem {
    Problem::from(&Refusal::NoSuchMission { mission })
}

fn replay_view(
    shared: &ServerState,
    id: MissionId,
    requested_revision: Option<u64>,
    until: u64,
) -> Result<ReplayView, Problem> {
    let history = &**shared.engine.history();
    let (mission, _) = history
        .mission(id)
        .map_err(problem_from_store)?
        .ok_or_else(|| no_mission(id))?;
    let filter = TaskFilter {
        mission: Some(id),
        ..TaskFilter::default()
    };
    let tasks = history.tasks(&filter).map_err(problem_from_store)?;
    let moments = mission_marks(shared, id, &tasks, until)?;
    let at = requested_revision.unwrap_or(moments.last);
    if at < moments.first || at > moments.last {
        return Err(Problem::new(
            400,
            "bad_revision",
            format!(
                "revision {at} is outside mission {id}, which began at revision {} and whose last revision \
                is {}",
                moments.first, moments.last
            ),
            format!("list the mission's moments with their revisions: regatta replay {id}"),
        ));
    }
    let board = Arc::new(
        shared
            .timeline_reader
            .board_at(history, at)
            .map_err(problem_from_store)?,
    );
    let event = history
        .events(at - 1, 1)
        .map_err(problem_from_store)?
        .into_iter()
        .next();
    let now = event.as_ref().map_or(
        Now {
            fleet_ms: board.fleet_ms,
            unix_ms: mission.created_unix_ms,
        },
        |event| event.now,
    );
    Ok(ReplayView {
        mission: id,
        project: mission.project.clone(),
        title: mission.title.clone(),
        first: moments.first,
        last: moments.last,
        at,
        wall: now.unix_ms,
        event: event
            .map(|event| format!("{} {}", event.event.kind(), event.event.subject()))
            .unwrap_or_default(),
        tasks: task_rows_at(&board, &tasks, now),
        queue: QueueView::landings(&board, &mission.project, now),
        marks: moments.marks,
    })
}

/// Returns the rows of a mission's tasks as they were at a revision (number of an event). A task
/// that had ended before that revision is shown with its final state (J7). A task that did not
/// exist yet is left out.
fn task_rows_at(board: &Arc<Board>, tasks: &[Task], now: Now) -> Vec<TaskRowView> {
    let row = |task: &Task| match (board.tasks.get(&task.id), board.ended_status(task.id)) {
        (Some(then), _) => Some(live::task_row(board, then, now)),
        (None, Some(_)) => Some(live::task_row(board, task, now)),
        (None, None) => None,
    };
    tasks.iter().filter_map(row).collect()
}

struct MissionMarks {
    first: u64,
    last: u64,
    marks: Vec<ReplayMarkView>,
}

/// Returns the notable moments of a mission, from its start to its end or to the revision (number
/// of an event) `until`.
fn mission_marks(
    shared: &ServerState,
    id: MissionId,
    tasks: &[Task],
    until: u64,
) -> Result<MissionMarks, Problem> {
    let history = &**shared.engine.history();
    let mut moments = MissionMarks {
        first: 0,
        last: until,
        marks: vec![],
    };
    let tasks_of_mission: std::collections::BTreeSet<TaskId> =
        tasks.iter().map(|task| task.id).collect();
    let mut requests: BTreeMap<regatta_core::ids::ApprovalId, TaskId> = BTreeMap::new();
    let mut after = shared
        .timeline_reader
        .newest_checkpoint_where(|board| board.counters.mission < id.0);
    let mut unreadable = None;
    'reading: while after < until {
        let page = history.events(after, 500).map_err(problem_from_store)?;
        let Some(last) = page.last() else { break };
        after = last.revision;
        for recorded in &page {
            if moments.first == 0
                && !matches!(&recorded.event, Event::MissionStarted(event) if event.mission().id == id)
            {
                unreadable = unreadable.or(log_gap(recorded));
                continue;
            }
            if moments.first == 0 {
                moments.first = recorded.revision;
            }
            if let Event::ApprovalAsked(event) = &recorded.event
                && tasks_of_mission.contains(&event.approval().task)
            {
                requests.insert(event.approval().id, event.approval().task);
            }
            let moment = match &recorded.event {
                Event::ApprovalDecided(event) => requests.get(event.approval()).map(|task| {
                    Moment::new(
                        DisplayState::Working,
                        *task,
                        format!(
                            "{} of {task} was answered by {}",
                            event.approval(),
                            event.decision().by.display_name()
                        ),
                    )
                }),
                _ => notable_moment(recorded, id, &tasks_of_mission),
            };
            if let Some(moment) = moment {
                moments.marks.push(ReplayMarkView {
                    revision: recorded.revision,
                    wall: recorded.now.unix_ms,
                    text: moment.text,
                    at: moment.at,
                    task: moment.task,
                });
            }
            if matches!(&recorded.event, Event::MissionEnded(event) if *event.mission() == id) {
                moments.last = recorded.revision;
                break 'reading;
            }
        }
    }
    if moments.first == 0 {
        // The mission exists, but the event of its start was not found. So the start must be one of
        // the events that could not be read.
        match unreadable {
            Some(revision) => moments.first = revision,
            None => return Err(no_mission(id)),
        }
    }
    // The addition of a task says less than its later moments, so additions are thinned out first.
    thin_out(&mut moments.marks, MAX_ADDITIONS, |mark| {
        mark.at == DisplayState::Idle && mark.task.is_some()
    });
    thin_out(&mut moments.marks, MAX_MARKS, |_| true);
    Ok(moments)
}

/// Keeps at most about `max` of the moments that `is_thinned` selects: every n-th one, and always the
/// first and the last.
fn thin_out(
    marks: &mut Vec<ReplayMarkView>,
    max: usize,
    is_thinned: impl Fn(&ReplayMarkView) -> bool,
) {
    let count = marks.iter().filter(|mark| is_thinned(mark)).count();
    if count <= max {
        return;
    }
    let every = count.div_ceil(max);
    let mut index = 0;
    marks.retain(|mark| {
        if !is_thinned(mark) {
            return true;
        }
        index += 1;
        (index - 1) % every == 0 || index == count
    });
}

/// Returns the revision (number) of an event if the event cannot be read, and `None` otherwise.
fn log_gap(recorded: &Recorded) -> Option<u64> {
    matches!(recorded.event, Event::EventUnreadable(_)).then_some(recorded.revision)
}

/// A notable moment of a mission, in words.
struct Moment {
    /// The state that the moment brought about.
    at: DisplayState,
    task: Option<TaskId>,
    text: String,
}

impl Moment {
    fn new(at: DisplayState, task: TaskId, text: String) -> Moment {
        Moment {
            at,
            task: Some(task),
            text,
        }
    }

    fn of_mission(at: DisplayState, text: String) -> Moment {
        Moment {
            at,
            task: None,
            text,
        }
    }
}

/// Describes an event, if it is a notable moment of the mission.
fn notable_moment(
    recorded: &Recorded,
    id: MissionId,
    tasks_of_mission: &std::collections::BTreeSet<TaskId>,
) -> Option<Moment> {
    use DisplayState::{Failed, Idle, Landed, Landing, Needs, Review, Waiting, Working};
    let is_own = |task: &TaskId| tasks_of_mission.contains(task);
    let moment = |at, task: &TaskId, text: String| Moment::new(at, *task, format!("{task} {text}"));
    Some(match &recorded.event {
        Event::MissionStarted(event) if event.mission().id == id => {
            Moment::of_mission(Idle, "the mission begins".into())
        }
        Event::EventUnreadable(event) => Moment::of_mission(
            Idle,
            format!(
                "event {} cannot be read ({})",
                recorded.revision,
                event.why()
            ),
        ),
        Event::MissionEnded(event) if *event.mission() == id => {
            Moment::of_mission(Idle, "the mission ends".into())
        }
        Event::TaskAdded(event) if is_own(&event.task().id) => {
            moment(Idle, &event.task().id, "is added".into())
        }
        Event::TaskStarted(event) if is_own(event.task()) => {
            let text = format!("is started by {}", event.agent());
            moment(Working, event.task(), text)
        }
        Event::TaskValidating(event) if is_own(event.task()) => {
            moment(Working, event.task(), "is checked".into())
        }
        Event::TaskSubmitted(event) if is_own(event.task()) => {
            moment(Landing, event.task(), "enters the queue".into())
        }
        Event::TaskReturned(event) if is_own(event.task()) => {
            let text = format!("comes back: {}", event.reason());
            moment(Waiting, event.task(), text)
        }
        Event::TaskInReview(event) if is_own(event.task()) => {
            moment(Review, event.task(), "is in review".into())
        }
        Event::TaskNeedsHuman(event) if is_own(event.task()) => {
            let text = format!("needs you: {}", event.reason());
            moment(Needs, event.task(), text)
        }
        Event::TaskCompleted(event) if is_own(event.task()) => {
            let text = match event.landed() {
                Some(_) => "landed",
                None => "is done",
            };
            moment(Landed, event.task(), text.into())
        }
        Event::TaskFailed(event) if is_own(event.task()) => {
            let text = format!("failed: {}", event.reason());
            moment(Failed, event.task(), text)
        }
        Event::TaskCancelled(event) if is_own(event.task()) => {
            moment(Failed, event.task(), "was cancelled".into())
        }
        Event::ApprovalAsked(event) if is_own(&event.approval().task) => {
            let approval = event.approval();
            Moment::new(
                Needs,
                approval.task,
                format!(
                    "{} of {} asks: {}",
                    approval.id,
                    approval.task,
                    approval.subject()
                ),
            )
        }
        _ => return None,
    })
}

fn mission_figures(
    shared: &ServerState,
    id: MissionId,
    until: u64,
) -> Result<MissionFiguresView, Problem> {
    let history = &**shared.engine.history();
    let (mission, running): (Mission, bool) = history
        .mission(id)
        .map_err(problem_from_store)?
        .ok_or_else(|| no_mission(id))?;
    let filter = TaskFilter {
        mission: Some(id),
        ..TaskFilter::default()
    };
    let tasks = history.tasks(&filter).map_err(problem_from_store)?;
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut retries = 0;
    for task in &tasks {
        let task_attempts = history.attempts_of(task.id).map_err(problem_from_store)?;
        retries += task_attempts.len().saturating_sub(1);
        attempts.extend(task_attempts);
    }
    let mut time: BTreeMap<_, (u32, u64)> = BTreeMap::new();
    // Activities after the mission's end are not counted. For a mission with more than
    // `MAX_TIMELINES` tasks, no activities are counted, because that would take too long.
    if tasks.len() <= MAX_TIMELINES {
        let (ids, last) = (
            tasks.iter().map(|task| task.id).collect::<Vec<_>>(),
            if running {
                until
            } else {
                mission_marks(shared, id, &tasks, until)?.last
            },
        );
        for timeline in shared
            .timeline_reader
            .timelines(history, &ids, last)
            .map_err(problem_from_store)?
        {
            for ActivityTotal {
                activity,
                times,
                ms,
            } in timeline.with_totals_until(shared.engine.now().unix_ms).sums
            {
                let (total_times, total_ms) = time.entry(activity).or_default();
                *total_times += times;
                *total_ms += ms;
            }
        }
    }
    let mut time: Vec<ActivityTotal> = time
        .into_iter()
        .map(|(activity, (times, ms))| ActivityTotal {
            activity,
            times,
            ms,
        })
        .collect();
    time.sort_by_key(|activity_total| std::cmp::Reverse(activity_total.ms));
    let agents: std::collections::BTreeSet<_> = attempts
        .iter()
        .map(|attempt| attempt.agent.clone())
        .collect();
    let last = tasks
        .iter()
        .map(|task| task.updated_unix_ms)
        .max()
        .unwrap_or(mission.created_unix_ms);
    let last = if running {
        shared.engine.now().unix_ms
    } else {
        last
    };
    let counts = TaskCounts::from_tasks(&tasks);
    let spent = tasks
        .iter()
        .fold(Spend::default(), |sum, task| sum.plus(&task.spent));
    Ok(MissionFiguresView {
        mission: id,
        title: mission.title,
        running,
        agents: agents.len(),
        tasks: tasks.len(),
        landed: usize::try_from(counts.completed).unwrap_or(usize::MAX),
        failed: usize::try_from(counts.failed + counts.cancelled).unwrap_or(usize::MAX),
        retries,
        fixups: tasks.iter().map(|task| task.fixups).sum(),
        conflicts: tasks
            .iter()
            .filter(|task| !task.conflicts.is_empty())
            .count(),
        wall_ms: last.saturating_sub(mission.created_unix_ms),
        work_ms: spent.wall_ms,
        spent,
        time,
    })
}
