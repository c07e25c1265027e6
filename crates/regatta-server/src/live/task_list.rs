//! Answers the page's requests for a window of the list of tasks.
//!
//! [`TaskIndex`](crate::task_index::TaskIndex) selects the tasks. This module builds the rows of the
//! window, and has git count the changed lines of landed tasks in the background.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_api::patch::files_in_patch;
use regatta_api::task_list::{MissionTitle, TaskListQuery, TaskListRow, TaskWindow};
use regatta_core::ids::{CommitId, MissionId, TaskId};
use regatta_core::task::{Submission, Task};
use regatta_engine::ports::git::{CommitGit, CommitRange, ProjectRepo};
use regatta_engine::ports::store::StoreError;

use super::topics::TopicContext;
use crate::authenticated::Authenticated;
use crate::verbs::{problem_from_store, run_blocking};
use crate::{ProblemResponse, ServerState, request_limits, verbs};

/// Maximum number of landed changes whose numbers of lines are kept in memory.
const MAX_COUNTED_CHANGES: usize = 20_000;
/// Number of characters of an abbreviated commit id.
const SHORT_COMMIT_CHARS: usize = 10;

/// Numbers of added and removed lines.
#[derive(Clone, Copy)]
struct LineCounts {
    added: u64,
    removed: u64,
}

/// The numbers of changed lines of landed work, by the commit of the work. A commit whose lines git
/// could not count has no numbers.
#[derive(Default)]
pub(super) struct ChangedLines {
    by_commit: Mutex<BTreeMap<CommitId, Option<LineCounts>>>,
    is_counting: AtomicBool,
}

/// Landed work whose lines are not counted yet.
struct UncountedWork {
    repo: ProjectRepo,
    work: Submission,
}

impl ChangedLines {
    fn find(&self, commit: &CommitId) -> Option<Option<LineCounts>> {
        let by_commit = self
            .by_commit
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        by_commit.get(commit).copied()
    }

    /// Counts the lines of each work. Does nothing if another call counts at present, because the
    /// page asks again while lines are missing.
    fn count(&self, git: &dyn CommitGit, uncounted: &[UncountedWork]) {
        if self.is_counting.swap(true, Ordering::AcqRel) {
            return;
        }
        for UncountedWork { repo, work } in uncounted {
            let (base, commit) = (&work.base, &work.commit);
            let counted = match git.diff(repo, CommitRange { base, commit }) {
                Ok(patch) => {
                    let files = files_in_patch(&patch);
                    Some(LineCounts {
                        added: files.iter().map(|file| file.added as u64).sum(),
                        removed: files.iter().map(|file| file.removed as u64).sum(),
                    })
                }
                Err(error) => {
                    tracing::debug!(%commit, "could not count the changed lines of commit {commit}: {error}");
                    None
                }
            };
            let mut by_commit = self
                .by_commit
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if by_commit.len() >= MAX_COUNTED_CHANGES {
                by_commit.clear();
            }
            by_commit.insert(commit.clone(), counted);
        }
        self.is_counting.store(false, Ordering::Release);
    }
}

/// A window of the list of tasks, and the work in it whose lines are to be counted.
struct BuiltWindow {
    window: TaskWindow,
    uncounted: Vec<UncountedWork>,
}

/// Handles `GET /api/v1/page/tasks?text=login&at=failed&sort=-cost&offset=60`: returns a window of
/// the list of tasks, with the number of matching tasks in each state.
pub(super) async fn task_window(
    State(shared): State<Arc<ServerState>>,
    request_limits::QueryParams(query): request_limits::QueryParams<TaskListQuery>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    verbs::require_read_pages(&authenticated.principal)?;
    let state = shared.clone();
    let BuiltWindow { window, uncounted } =
        run_blocking(move || build_window(&state, &query)).await??;
    if !uncounted.is_empty() {
        tokio::task::spawn_blocking(move || {
            let lines = &shared.live_caches.changed_lines;
            lines.count(&*shared.engine.git(), &uncounted);
        });
    }
    Ok(axum::Json(window).into_response())
}

fn build_window(shared: &ServerState, query: &TaskListQuery) -> Result<BuiltWindow, Problem> {
    let (board, now) = (shared.engine.board(), shared.engine.now());
    let filter = query.parse(now)?;
    let context = TopicContext {
        board: &board,
        now,
        shared,
        history: &**shared.engine.history(),
    };
    context.task_window(&filter).map_err(problem_from_store)
}

impl TopicContext<'_> {
    fn task_window(
        &self,
        filter: &regatta_api::task_list::TaskListFilter,
    ) -> Result<BuiltWindow, StoreError> {
        let index = &self.shared.task_index;
        let selected = index.select(self.board, self.history, filter, self.now)?;
        let (mut rows, mut uncounted) = (Vec::new(), Vec::new());
        let mut missions: BTreeMap<MissionId, String> = BTreeMap::new();
        for id in selected.selection.ids {
            let Some(task) = self.find_listed_task(id)? else {
                continue; // the task was removed from the store after the index read it
            };
            if let Some(mission) = task.mission.filter(|id| !missions.contains_key(id)) {
                missions.insert(mission, self.mission_title(mission)?);
            }
            let mut row = TaskListRow {
                row: self.task_row(&task),
                commit: landed_commit(&task),
                added: None,
                removed: None,
            };
            if let Some(work) = landed_work(&task) {
                match self.shared.live_caches.changed_lines.find(&work.commit) {
                    Some(Some(counts)) => {
                        (row.added, row.removed) = (Some(counts.added), Some(counts.removed));
                    }
                    Some(None) => {}
                    None => {
                        uncounted.extend(self.board.projects.get(&task.project).map(|project| {
                            UncountedWork {
                                repo: ProjectRepo::from_project(project),
                                work: work.clone(),
                            }
                        }))
                    }
                }
            }
            rows.push(row);
        }
        let missions = missions.into_iter();
        let window = TaskWindow {
            revision: self.board.revision,
            total: selected.selection.total,
            all: selected.selection.all,
            counts: selected.selection.counts,
            needs_you: selected.selection.needs_you,
            micro_usd: selected.selection.micro_usd,
            offset: filter.offset,
            rows,
            missions: missions
                .map(|(id, title)| MissionTitle { id, title })
                .collect(),
            unlisted: selected.unlisted,
            is_counting: !uncounted.is_empty(),
        };
        Ok(BuiltWindow { window, uncounted })
    }

    fn find_listed_task(&self, id: TaskId) -> Result<Option<Arc<Task>>, StoreError> {
        let live = self
            .board
            .tasks
            .get(&id)
            .or_else(|| self.board.failed.get(&id));
        match live {
            Some(task) => Ok(Some(task.clone())),
            None => Ok(self.history.task(id)?.map(Arc::new)),
        }
    }

    fn mission_title(&self, id: MissionId) -> Result<String, StoreError> {
        if let Some(mission) = self.board.missions.get(&id) {
            return Ok(mission.title.clone());
        }
        let found = self.history.mission(id)?;
        Ok(found.map(|(mission, _)| mission.title).unwrap_or_default())
    }
}

fn landed_commit(task: &Task) -> Option<String> {
    let commit = task.landed.as_ref()?.to_string();
    Some(commit.chars().take(SHORT_COMMIT_CHARS).collect())
}

/// Returns the work with which a task landed. Work that reverts a commit has no lines of its own.
fn landed_work(task: &Task) -> Option<&Submission> {
    let work = task.submission.as_ref()?;
    (task.landed.is_some() && !work.reverts).then_some(work)
}
