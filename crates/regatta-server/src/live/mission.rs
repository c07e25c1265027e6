//! Builds the page of one mission and the list of missions: progress by wave, cost and landings.
//!
//! Open work comes from the board (the daemon's state in memory), ended work from the store. Ended
//! tasks and sizes of commits no longer change, so they are cached. The module
//! [`mission_history`](super::mission_history) adds decisions and agents. Not here: the graph and
//! the replay of a mission.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use regatta_api::live_view::{
    ChangedLines, DisplayState, MissionLanding, MissionPage, MissionRowView, MissionWave,
    TaskRowView,
};
use regatta_api::patch;
use regatta_api::task_list::StateCount;
use regatta_core::budget::{BudgetScope, Spend};
use regatta_core::event::Event;
use regatta_core::ids::{CommitId, MissionId, TaskId};
use regatta_core::mission::Mission;
use regatta_core::task::Task;
use regatta_core::{display, graph, lead, plural};
use regatta_engine::ports::git::{CommitRange, ProjectRepo};
use regatta_engine::ports::store::StoreError;

use super::actions;
use super::mission_history::PageCache;
use super::topics::TopicContext;
use crate::event_fanout::FinishedTask;

/// Number of ended missions in the list of missions, newest first.
const MAX_ENDED_MISSIONS: u64 = 50;
/// Number of open tasks and of landings on a mission's page.
const MAX_OPEN_TASKS: usize = 12;
const MAX_LANDINGS: usize = 20;
/// Maximum number of tasks in the list of a mission's tasks, the most urgent first.
const MAX_TASK_ROWS: usize = 5_000;
/// Maximum number of missions and commits in the caches of this module.
const MAX_CACHED_MISSIONS: usize = 20;
const MAX_CACHED_COMMITS: usize = 2_000;
/// Number of events that are read at once to find the start of a mission.
const EVENTS_PAGE_SIZE: usize = 500;

/// The state of the store on which the list of ended missions depends: the newest mission, the
/// running missions, and the task that ended last.
type EndedMissionsKey = (u64, Vec<MissionId>, Option<FinishedTask>);

/// Caches for the pages of missions.
#[derive(Default)]
pub(super) struct MissionCaches {
    ended: Mutex<Option<(EndedMissionsKey, Vec<MissionRowView>)>>,
    pages: Mutex<BTreeMap<MissionId, PageCache>>,
    lines: Mutex<BTreeMap<CommitId, ChangedLines>>,
}

impl TopicContext<'_> {
    /// Returns the running missions and the latest ended missions.
    pub(super) fn mission_rows(&self) -> Result<Vec<MissionRowView>, StoreError> {
        let mut rows = Vec::new();
        for mission in self.board.missions.values() {
            rows.push(self.mission_row(mission, &self.counted_tasks(mission.id)?));
        }
        rows.extend(self.ended_mission_rows()?);
        Ok(rows)
    }

    fn ended_mission_rows(&self) -> Result<Vec<MissionRowView>, StoreError> {
        let key = (
            self.board.counters.mission,
            self.board.missions.keys().copied().collect(),
            self.shared.event_fanout.finished_after(0).last().copied(),
        );
        let cache = &self.shared.live_caches.missions.ended;
        let lock = || cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, rows)) = lock().as_ref().filter(|(known, _)| *known == key) {
            return Ok(rows.clone());
        }
        let mut rows = Vec::new();
        let newest = self.board.counters.mission;
        for id in (1..=newest).rev().map(MissionId) {
            if rows.len() as u64 >= MAX_ENDED_MISSIONS {
                break;
            }
            if let Some((mission, false)) = self.history.mission(id)? {
                rows.push(self.mission_row(&mission, &self.counted_tasks(id)?));
            }
        }
        *lock() = Some((key, rows.clone()));
        Ok(rows)
    }

    /// Returns the rows of a mission's tasks, except for the tasks of its lead. Of a very large
    /// mission, returns the most urgent tasks.
    pub(super) fn mission_task_rows(&self, id: MissionId) -> Result<Vec<TaskRowView>, StoreError> {
        let mut tasks = self.counted_tasks(id)?;
        if tasks.len() > MAX_TASK_ROWS {
            tasks.sort_by_key(|task| (display::task_rank(self.board, task), task.id));
            tasks.truncate(MAX_TASK_ROWS);
        }
        Ok(tasks.iter().map(|task| self.task_row(task)).collect())
    }

    /// Returns the tasks of a mission that count as its work: all except the tasks of its lead.
    fn counted_tasks(&self, id: MissionId) -> Result<Vec<Arc<Task>>, StoreError> {
        let tasks = self.mission_tasks(id)?.into_values();
        Ok(tasks.filter(|task| task.is_polled()).collect())
    }

    fn mission_row(&self, mission: &Mission, tasks: &[Arc<Task>]) -> MissionRowView {
        let shown = display::mission_display(self.board, mission);
        let running = self.board.missions.contains_key(&mission.id);
        let counts = display::count_states(self.board, tasks.iter().map(|task| &**task));
        let landed = counts
            .get(&DisplayState::Landed)
            .copied()
            .unwrap_or_default();
        let spent = spent_on(mission, tasks).usage;
        let limit = self
            .board
            .budgets
            .get(&BudgetScope::Mission(mission.id))
            .and_then(|budget| budget.ceiling.micro_usd);
        MissionRowView {
            id: mission.id,
            project: mission.project.clone(),
            title: mission.title.clone(),
            running,
            at: shown.state,
            word: shown.label.into(),
            text: progress_text(self, mission, landed, tasks.len()),
            tasks: tasks.len(),
            landed,
            counts: state_counts(&counts),
            lead: mission
                .lead
                .as_ref()
                .and_then(|lead| lead.acting_name().cloned()),
            spend: display::spend_text(spent.micro_usd, spent.tokens(), limit),
            created_wall: mission.created_unix_ms,
            ended_wall: (!running).then(|| ended_at(mission, tasks)),
        }
    }

    /// Returns the page of a mission, or `None` if there is no such mission.
    pub(super) fn mission_page(&self, id: MissionId) -> Result<Option<MissionPage>, StoreError> {
        let mission = match self.board.missions.get(&id) {
            Some(mission) => (**mission).clone(),
            None => match self.history.mission(id)? {
                Some((mission, _)) => mission,
                None => return Ok(None),
            },
        };
        let tasks = self.counted_tasks(id)?;
        let running = self.board.missions.contains_key(&id);
        let mut cache = self.take_cache(id);
        if cache.asked_by.is_none() {
            cache.asked_by = self.find_requester(id)?;
        }
        self.read_decisions(&mission, &mut cache)?;
        let (decisions, decisions_total) = self.decisions(&cache)?;
        let (lanes, lanes_total) = self.mission_lanes(&tasks, &mut cache)?;
        let (open, open_total) = self.open_rows(&tasks);
        let (landings, landings_total) = self.mission_landings(&tasks);
        let asked_by = cache.asked_by.clone().unwrap_or_default();
        self.put_cache(id, cache);
        Ok(Some(MissionPage {
            goal: mission.goal.clone().unwrap_or_default(),
            asked_by,
            report: mission
                .result
                .as_ref()
                .map(|end| end.report.clone())
                .unwrap_or_default(),
            notes: notes(&mission),
            waves: self.waves(&tasks),
            spent: spent_on(&mission, &tasks),
            budget: self
                .board
                .budgets
                .get(&BudgetScope::Mission(id))
                .map(|budget| budget.ceiling),
            open,
            open_total,
            landings,
            landings_total,
            decisions,
            decisions_total,
            lanes,
            lanes_total,
            actions: if running {
                actions::mission_actions(id, mission.state)
            } else {
                vec![]
            },
            mission: self.mission_row(&mission, &tasks),
        }))
    }

    fn take_cache(&self, id: MissionId) -> PageCache {
        let caches = &self.shared.live_caches.missions;
        let mut pages = caches.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.remove(&id).unwrap_or_default()
    }

    fn put_cache(&self, id: MissionId, cache: PageCache) {
        let caches = &self.shared.live_caches.missions;
        let mut pages = caches.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() >= MAX_CACHED_MISSIONS {
            pages.clear();
        }
        pages.insert(id, cache);
    }

    /// Finds the person or agent who started a mission, in the event log. Returns an empty name if
    /// the event of the start cannot be read.
    fn find_requester(&self, id: MissionId) -> Result<Option<String>, StoreError> {
        let reader = &self.shared.timeline_reader;
        let mut after = reader.newest_checkpoint_where(|board| board.counters.mission < id.0);
        while after < self.board.revision {
            let page = self.history.events(after, EVENTS_PAGE_SIZE)?;
            let Some(last) = page.last() else { break };
            after = last.revision;
            let start = page.iter().find(
                |recorded| matches!(&recorded.event, Event::MissionStarted(event) if event.mission().id == id),
            );
            if let Some(recorded) = start {
                return Ok(Some(recorded.by.display_name().to_owned()));
            }
        }
        Ok(Some(String::new()))
    }

    /// Counts the states of the tasks in each wave. A wave is a column of the mission's graph.
    fn waves(&self, tasks: &[Arc<Task>]) -> Vec<MissionWave> {
        let index_of: BTreeMap<TaskId, usize> = tasks
            .iter()
            .enumerate()
            .map(|(index, task)| (task.id, index))
            .collect();
        let needs: Vec<Vec<usize>> = tasks
            .iter()
            .map(|task| {
                let known = task.blocked_by.iter().filter_map(|id| index_of.get(id));
                known
                    .copied()
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect()
            })
            .collect();
        // The daemon accepts no cycles. If one appeared all the same, the planned waves are shown.
        let columns =
            graph::waves(&needs).unwrap_or_else(|_| tasks.iter().map(|task| task.wave).collect());
        let mut states: BTreeMap<u32, BTreeMap<DisplayState, usize>> = BTreeMap::new();
        for (task, column) in tasks.iter().zip(columns) {
            let state = display::task_display(self.board, task).state;
            *states.entry(column).or_default().entry(state).or_default() += 1;
        }
        let wave = |(column, counts): (u32, BTreeMap<DisplayState, usize>)| MissionWave {
            wave: column + 1,
            tasks: counts.values().sum(),
            landed: counts
                .get(&DisplayState::Landed)
                .copied()
                .unwrap_or_default(),
            counts: state_counts(&counts),
        };
        states.into_iter().map(wave).collect()
    }

    fn open_rows(&self, tasks: &[Arc<Task>]) -> (Vec<TaskRowView>, usize) {
        let mut rows: Vec<TaskRowView> = tasks
            .iter()
            .filter(|task| self.board.tasks.contains_key(&task.id))
            .map(|task| self.task_row(task))
            .collect();
        rows.sort_by_key(|row| (row.rank, row.id));
        let total = rows.len();
        rows.truncate(MAX_OPEN_TASKS);
        (rows, total)
    }

    fn mission_landings(&self, tasks: &[Arc<Task>]) -> (Vec<MissionLanding>, usize) {
        let mut landed: Vec<(&Arc<Task>, &CommitId)> = tasks
            .iter()
            .filter_map(|task| Some((task, task.landed.as_ref()?)))
            .collect();
        landed.sort_by_key(|(task, _)| std::cmp::Reverse((task.updated_unix_ms, task.id)));
        let total = landed.len();
        let landing = |(task, commit): &(&Arc<Task>, &CommitId)| MissionLanding {
            task: task.id,
            subject: task.subject.clone(),
            agent: task.agent.clone(),
            commit: (*commit).clone(),
            wall: task.updated_unix_ms,
            lines: self.changed_lines(task),
        };
        let landings = landed.iter().take(MAX_LANDINGS).map(landing).collect();
        (landings, total)
    }

    /// Returns the number of lines that a landed task changed, or `None` if git cannot count them.
    fn changed_lines(&self, task: &Task) -> Option<ChangedLines> {
        let work = task.submission.as_ref()?;
        let cache = &self.shared.live_caches.missions.lines;
        let lock = || cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&work.commit) {
            return Some(*known);
        }
        let repo = ProjectRepo::from_project(self.board.projects.get(&task.project)?);
        let range = CommitRange {
            base: &work.base,
            commit: &work.commit,
        };
        let patch = self
            .shared
            .engine
            .git()
            .diff(&repo, range)
            .inspect_err(|error| {
                let commit = &work.commit;
                tracing::debug!(%commit, "could not count the changed lines of commit {commit}: {error}");
            })
            .ok()?;
        let files = patch::files_in_patch(&patch);
        let lines = ChangedLines {
            files: files.len(),
            added: files.iter().map(|file| file.added).sum(),
            removed: files.iter().map(|file| file.removed).sum(),
        };
        let mut known = lock();
        if known.len() >= MAX_CACHED_COMMITS {
            known.clear();
        }
        known.insert(work.commit.clone(), lines);
        Some(lines)
    }
}

/// Returns the sum of what the mission's tasks and its lead have spent.
fn spent_on(mission: &Mission, tasks: &[Arc<Task>]) -> Spend {
    if !mission.spent.is_nothing() {
        return mission.spent;
    }
    tasks
        .iter()
        .fold(Spend::default(), |sum, task| sum.plus(&task.spent))
}

/// Returns the time when an ended mission ended.
fn ended_at(mission: &Mission, tasks: &[Arc<Task>]) -> u64 {
    let last_change = || tasks.iter().map(|task| task.updated_unix_ms).max();
    mission
        .result
        .as_ref()
        .map(|end| end.unix_ms)
        .or_else(last_change)
        .unwrap_or(mission.created_unix_ms)
}

fn progress_text(
    context: &TopicContext<'_>,
    mission: &Mission,
    landed: usize,
    tasks: usize,
) -> String {
    match lead::queue_position(context.board, mission.id) {
        Some(position) => format!("waits for a lead, position {position}"),
        None if tasks == 0 => "no task yet".into(),
        None => format!("{landed} of {} landed", plural::count(tasks, "task")),
    }
}

/// Returns the reasons why the mission as a whole does not continue as planned.
fn notes(mission: &Mission) -> Vec<String> {
    let lost = mission
        .lead
        .as_ref()
        .and_then(|lead| lead.lost_reason.as_ref())
        .map(|reason| format!("The lead is gone: {reason}"));
    let serialised = mission
        .serialised_reason
        .as_ref()
        .map(|reason| format!("Tasks with the same files now run one after the other: {reason}"));
    let gates = mission
        .blocking_gates
        .iter()
        .filter(|gate| !gate.reason.is_empty())
        .map(|gate| gate.reason.clone());
    lost.into_iter().chain(serialised).chain(gates).collect()
}

fn state_counts(counts: &BTreeMap<DisplayState, usize>) -> Vec<StateCount> {
    let mut all: Vec<StateCount> = counts
        .iter()
        .map(|(at, count)| StateCount {
            at: *at,
            count: *count,
        })
        .collect();
    all.sort_by_key(|state_count| state_count.at.rank());
    all
}
