//! Selects the tasks of a dependency graph. The layout comes from regatta-core.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use regatta_api::page::RowView;
use regatta_api::view::GraphView;
use regatta_core::graph::layout::HOPS;
use regatta_core::ids::{MissionId, ProjectName, TaskId};
use regatta_core::task::{Status, Task};
use regatta_engine::ports::store::{StoreError, TaskFilter};

use super::draw::Scene;
use crate::Shared;
use crate::hub::Finish;

/// The ended tasks of a mission, with their number and the last one that ended. While those two are
/// unchanged, so are the tasks.
pub(super) type Over = ((u64, Option<Finish>), Vec<Arc<Task>>);

/// The scope of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Of {
    /// Open tasks, and tasks that ended recently.
    All,
    Mission(MissionId),
    /// A task, and the tasks within two steps of it.
    Task(TaskId),
}

impl Of {
    /// Parses `M3` or `T9` in exactly this form.
    pub(super) fn parse(text: &str) -> Option<Of> {
        let mission = text.parse().ok().map(Of::Mission);
        mission.or_else(|| text.parse().ok().map(Of::Task)).filter(|it| it.to_string() == text)
    }
}

impl std::fmt::Display for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Of::All => Ok(()),
            Of::Mission(id) => id.fmt(f),
            Of::Task(id) => id.fmt(f),
        }
    }
}

/// Builds a graph from the present board, optionally of one project. Returns nothing if its mission
/// or task does not exist.
pub(crate) fn graph(
    shared: &Shared,
    of: Of,
    project: Option<&ProjectName>,
) -> Result<(u64, Option<GraphView>), StoreError> {
    let board = shared.engine.board();
    let scene = Scene { board: &board, now: shared.engine.now(), shared, history: &**shared.engine.history() };
    Ok((board.revision, scene.graph(of, project)?))
}

impl Scene<'_> {
    pub(super) fn graph(&self, of: Of, project: Option<&ProjectName>) -> Result<Option<GraphView>, StoreError> {
        let rows = |tasks: BTreeMap<TaskId, Arc<Task>>| -> Vec<(RowView, Status)> {
            // The sessions of a team are not tasks to show.
            tasks.values().filter(|it| it.standing.is_none()).map(|it| (self.row(it), it.status)).collect()
        };
        Ok(match of {
            Of::All => {
                let title = project.map_or_else(|| "all tasks".to_owned(), |it| format!("all tasks of {it}"));
                let mut found = self.listed()?;
                found.retain(|_, it| project.is_none_or(|project| it.project == *project));
                Some(GraphView::of(title, &rows(found), None))
            }
            Of::Mission(id) => match self.history.mission(id)? {
                Some((mission, _)) => {
                    Some(GraphView::of(format!("{id} {}", mission.title), &rows(self.of_mission(id)?), None))
                }
                None => None,
            },
            Of::Task(id) => match self.any_task(id)? {
                Some(task) => Some(GraphView::of(format!("around {id}"), &rows(self.near(&task)?), Some(id))),
                None => None,
            },
        })
    }

    /// Returns the open tasks, and the tasks that ended recently.
    fn listed(&self) -> Result<BTreeMap<TaskId, Arc<Task>>, StoreError> {
        Ok(self.shown()?.into_iter().map(|it| (it.id, it)).collect())
    }

    fn any_task(&self, id: TaskId) -> Result<Option<Arc<Task>>, StoreError> {
        match self.board.tasks.get(&id) {
            Some(task) => Ok(Some(task.clone())),
            None => Ok(self.history.task(id)?.map(Arc::new)),
        }
    }

    fn of_mission(&self, id: MissionId) -> Result<BTreeMap<TaskId, Arc<Task>>, StoreError> {
        let over = self.over(id)?.into_iter().map(|it| (it.id, it));
        let open = self.board.tasks.values().filter(|it| it.mission == Some(id)).map(|it| (it.id, it.clone()));
        // A task that was started again is shown as the board has it.
        Ok(over.chain(open).collect())
    }

    /// Returns the ended tasks of a mission from a cache, which is renewed when another task ends.
    fn over(&self, id: MissionId) -> Result<Vec<Arc<Task>>, StoreError> {
        let statuses = Status::ALL.into_iter().filter(|it| it.is_terminal()).collect();
        let filter = TaskFilter { mission: Some(id), statuses, ..TaskFilter::default() };
        let key = (self.history.count_tasks(&filter)?, self.shared.hub.finished_after(0).last().copied());
        let mut kept = self.shared.pages.over.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tasks)) = kept.get(&id).filter(|it| it.0 == key) {
            return Ok(tasks.clone());
        }
        let tasks: Vec<Arc<Task>> = self.history.tasks(&filter)?.into_iter().map(Arc::new).collect();
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(id, (key, tasks.clone()));
        Ok(tasks)
    }

    /// Returns the candidates for a task's neighbours: the listed tasks, its mission's tasks, and
    /// its blockers, however long ago those ended.
    fn near(&self, task: &Arc<Task>) -> Result<BTreeMap<TaskId, Arc<Task>>, StoreError> {
        let mut found = match task.mission {
            Some(mission) => self.of_mission(mission)?,
            None => BTreeMap::new(),
        };
        found.extend(self.listed()?);
        found.insert(task.id, task.clone());
        let mut last = vec![task.clone()];
        for _ in 0..HOPS {
            let needs: Vec<TaskId> = last.iter().flat_map(|it| it.blocked_by.iter().copied()).collect();
            last.clear();
            for need in needs {
                let known = match found.get(&need) {
                    Some(known) => Some(known.clone()),
                    None => self.any_task(need)?,
                };
                if let Some(known) = known {
                    found.insert(need, known.clone());
                    last.push(known);
                }
            }
        }
        Ok(found)
    }
}

/// Maximum number of missions whose ended tasks are cached.
const MOST_KEPT: usize = 20;
