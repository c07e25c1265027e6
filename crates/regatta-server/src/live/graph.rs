//! Selects the tasks that a dependency graph shows: all open and recent tasks, those of a mission,
//! or a task with its neighbours. `regatta_api::graph_layout` computes the positions.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use regatta_api::graph_layout::MAX_HOPS;
use regatta_api::live_view::TaskRowView;
use regatta_api::view::GraphView;
use regatta_core::ids::{MissionId, ProjectName, TaskId};
use regatta_core::task::{Task, TaskStatus};
use regatta_engine::ports::store::{StoreError, TaskFilter};

use super::topics::TopicContext;
use crate::ServerState;
use crate::event_fanout::FinishedTask;

/// The cached ended tasks of a mission, with a key. The key consists of the number of the mission's
/// ended tasks and the task that ended last. As long as the key is the same, the tasks are the same
/// too.
pub(super) type EndedMissionTasks = ((u64, Option<FinishedTask>), Vec<Arc<Task>>);

/// Selects the tasks that a graph shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GraphScope {
    /// All open tasks, and tasks that ended recently.
    All,
    Mission(MissionId),
    /// A task, and the tasks within two dependency steps of it.
    Task(TaskId),
}

impl GraphScope {
    /// Parses the id of a mission or task. Accepts only the form `M3` or `T9`, not `m3` or `3`.
    pub(super) fn parse(text: &str) -> Option<GraphScope> {
        let mission = text.parse().ok().map(GraphScope::Mission);
        mission
            .or_else(|| text.parse().ok().map(GraphScope::Task))
            .filter(|graph_scope| graph_scope.to_string() == text)
    }
}

impl std::fmt::Display for GraphScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GraphScope::All => Ok(()),
            GraphScope::Mission(id) => id.fmt(f),
            GraphScope::Task(id) => id.fmt(f),
        }
    }
}

/// Builds a graph from the present board (the daemon's state in memory), for one project or for
/// all. Returns the board's revision, and `None` instead of a graph if the mission or task does not
/// exist.
pub(crate) fn build_graph(
    shared: &ServerState,
    scope: GraphScope,
    project: Option<&ProjectName>,
) -> Result<(u64, Option<GraphView>), StoreError> {
    let board = shared.engine.board();
    let context = TopicContext {
        board: &board,
        now: shared.engine.now(),
        shared,
        history: &**shared.engine.history(),
    };
    Ok((board.revision, context.graph(scope, project)?))
}

impl TopicContext<'_> {
    pub(super) fn graph(
        &self,
        scope: GraphScope,
        project: Option<&ProjectName>,
    ) -> Result<Option<GraphView>, StoreError> {
        let rows = |tasks: BTreeMap<TaskId, Arc<Task>>| -> Vec<(TaskRowView, TaskStatus)> {
            // Leave out the tasks that stand for the sessions of team members. The graph shows only
            // work.
            tasks
                .values()
                .filter(|task| task.session_of().is_none())
                .map(|task| (self.task_row(task), task.status))
                .collect()
        };
        Ok(match scope {
            GraphScope::All => {
                let title = project.map_or_else(
                    || "all tasks".to_owned(),
                    |project| format!("all tasks of {project}"),
                );
                let mut found = self.listed_by_id()?;
                found.retain(|_, task| project.is_none_or(|project| task.project == *project));
                Some(GraphView::new(title, &rows(found), None))
            }
            GraphScope::Mission(id) => match self.history.mission(id)? {
                Some((mission, _)) => Some(GraphView::new(
                    format!("{id} {}", mission.title),
                    &rows(self.mission_tasks(id)?),
                    None,
                )),
                None => None,
            },
            GraphScope::Task(id) => match self.find_task(id)? {
                Some(task) => Some(GraphView::new(
                    format!("around {id}"),
                    &rows(self.neighbour_candidates(&task)?),
                    Some(id),
                )),
                None => None,
            },
        })
    }

    /// Returns the open tasks, and the tasks that ended recently, by their ids.
    fn listed_by_id(&self) -> Result<BTreeMap<TaskId, Arc<Task>>, StoreError> {
        Ok(self
            .listed_tasks()?
            .into_iter()
            .map(|task| (task.id, task))
            .collect())
    }

    fn find_task(&self, id: TaskId) -> Result<Option<Arc<Task>>, StoreError> {
        match self.board.tasks.get(&id) {
            Some(task) => Ok(Some(task.clone())),
            None => Ok(self.history.task(id)?.map(Arc::new)),
        }
    }

    pub(super) fn mission_tasks(
        &self,
        id: MissionId,
    ) -> Result<BTreeMap<TaskId, Arc<Task>>, StoreError> {
        let ended = self
            .ended_mission_tasks(id)?
            .into_iter()
            .map(|task| (task.id, task));
        let open = self
            .board
            .tasks
            .values()
            .filter(|task| task.mission == Some(id))
            .map(|task| (task.id, task.clone()));
        // If an ended task was started again, the task on the board (the daemon's state in memory)
        // replaces the cached task.
        Ok(ended.chain(open).collect())
    }

    /// Returns the ended tasks of a mission from a cache, which is renewed when another task of the
    /// mission ends.
    fn ended_mission_tasks(&self, id: MissionId) -> Result<Vec<Arc<Task>>, StoreError> {
        let statuses = TaskStatus::ALL
            .into_iter()
            .filter(|task_status| task_status.is_terminal())
            .collect();
        let filter = TaskFilter {
            mission: Some(id),
            statuses,
            ..TaskFilter::default()
        };
        let key = (
            self.history.count_tasks(&filter)?,
            self.shared.event_fanout.finished_after(0).last().copied(),
        );
        let mut cache = self
            .shared
            .live_caches
            .ended_mission_tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tasks)) = cache.get(&id).filter(|(cached_key, _)| *cached_key == key) {
            return Ok(tasks.clone());
        }
        let tasks: Vec<Arc<Task>> = self
            .history
            .tasks(&filter)?
            .into_iter()
            .map(Arc::new)
            .collect();
        if cache.len() >= MAX_CACHED_MISSIONS {
            cache.clear();
        }
        cache.insert(id, (key, tasks.clone()));
        Ok(tasks)
    }

    /// Returns all tasks that may be neighbours of a task in the graph. These are open and recently
    /// ended tasks, all tasks of the same mission, and the tasks on which the task depends in up to
    /// [`MAX_HOPS`] steps.
    fn neighbour_candidates(
        &self,
        task: &Arc<Task>,
    ) -> Result<BTreeMap<TaskId, Arc<Task>>, StoreError> {
        let mut candidates = match task.mission {
            Some(mission) => self.mission_tasks(mission)?,
            None => BTreeMap::new(),
        };
        candidates.extend(self.listed_by_id()?);
        candidates.insert(task.id, task.clone());
        let mut frontier = vec![task.clone()];
        for _ in 0..MAX_HOPS {
            let blockers: Vec<TaskId> = frontier
                .iter()
                .flat_map(|task| task.blocked_by.iter().copied())
                .collect();
            frontier.clear();
            for blocker in blockers {
                let known = match candidates.get(&blocker) {
                    Some(known) => Some(known.clone()),
                    None => self.find_task(blocker)?,
                };
                if let Some(known) = known {
                    candidates.insert(blocker, known.clone());
                    frontier.push(known);
                }
            }
        }
        Ok(candidates)
    }
}

/// Maximum number of missions whose ended tasks are cached.
const MAX_CACHED_MISSIONS: usize = 20;
