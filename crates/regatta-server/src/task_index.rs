//! Keeps the facts about ended tasks in memory, so that the page's list of tasks is filtered,
//! sorted and counted without reading the store.
//!
//! The first request reads all ended tasks from the store. Later requests read the events since
//! then, and read again only the tasks that these events are about. Open tasks are on the board
//! (the daemon's state in memory), so they are not in the index.
//!
//! A task takes about 300 bytes. [`MAX_INDEXED_TASKS`] limits the index to about 120 MB.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use regatta_api::task_list::{ListedTask, TaskListFilter, WindowSelection, select_window};
use regatta_core::board::Board;
use regatta_core::display;
use regatta_core::ids::{Now, TaskId};
use regatta_core::inbox;
use regatta_core::task::{Task, TaskStatus};
use regatta_engine::ports::store::{StoreError, StoreHistory, TaskFilter};

/// Maximum number of task numbers that the list covers, counted back from the newest task. Older
/// tasks that have ended are not in the list.
const MAX_INDEXED_TASKS: u64 = 400_000;
/// Number of tasks that are read from the store at once.
const TASKS_PER_READ: usize = 2_000;
/// Number of events that are read from the event log at once.
const EVENTS_PER_READ: usize = 500;
/// Maximum number of files of one task that the list can be searched for.
const MAX_FILES: usize = 100;

/// The facts about ended tasks, kept in memory.
#[derive(Default)]
pub(crate) struct TaskIndex {
    indexed: Mutex<IndexedTasks>,
}

#[derive(Default)]
struct IndexedTasks {
    /// The revision of the last event that the index includes; `None` before the first request.
    revision: Option<u64>,
    ended: BTreeMap<TaskId, ListedTask>,
    names: SharedNames,
    /// Number of tasks that ended, but are too old for the index.
    unlisted: u64,
}

/// Names of agents and files, each stored once.
#[derive(Default)]
struct SharedNames(HashSet<Arc<str>>);

impl SharedNames {
    fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let shared: Arc<str> = name.into();
        self.0.insert(shared.clone());
        shared
    }
}

/// A window of the list of tasks, with the number of ended tasks that are too old for the list.
pub(crate) struct SelectedTasks {
    pub(crate) selection: WindowSelection,
    pub(crate) unlisted: u64,
}

impl TaskIndex {
    /// Selects the tasks of a window from all tasks, as they are on this board. The sessions of
    /// teams are left out as in all counts, because nobody asked for them as work.
    pub(crate) fn select(
        &self,
        board: &Board,
        history: &dyn StoreHistory,
        filter: &TaskListFilter,
        now: Now,
    ) -> Result<SelectedTasks, StoreError> {
        let mut index = self.indexed.lock().unwrap_or_else(PoisonError::into_inner);
        index.update(board, history)?;
        let open = index.open_tasks(board, now);
        let is_ended =
            |id: &TaskId| !board.tasks.contains_key(id) && !board.failed.contains_key(id);
        let ended = index.ended.iter().filter(|(id, _)| is_ended(id));
        let all = open.iter().chain(ended.map(|(_, task)| task));
        Ok(SelectedTasks {
            selection: select_window(all, filter),
            unlisted: index.unlisted,
        })
    }
}

impl IndexedTasks {
    /// Brings the index to the state of the board.
    fn update(&mut self, board: &Board, history: &dyn StoreHistory) -> Result<(), StoreError> {
        let Some(mut read) = self.revision else {
            return self.read_all(board, history);
        };
        let mut changed = BTreeSet::new();
        while read < board.revision {
            let page = history.events(read, EVENTS_PER_READ)?;
            let Some(last) = page.last() else { break };
            read = last.revision;
            let subjects = page.iter().map(|recorded| recorded.event.subject());
            changed.extend(subjects.filter_map(|subject| subject.parse::<TaskId>().ok()));
        }
        for id in changed {
            self.ended.remove(&id);
            let is_live = board.tasks.contains_key(&id) || board.failed.contains_key(&id);
            if !is_live && let Some(task) = history.task(id)? {
                self.insert(&task);
            }
        }
        self.drop_old(board);
        self.revision = Some(read);
        Ok(())
    }

    fn read_all(&mut self, board: &Board, history: &dyn StoreHistory) -> Result<(), StoreError> {
        let statuses: Vec<TaskStatus> = TaskStatus::ALL
            .into_iter()
            .filter(|status| status.is_terminal())
            .collect();
        let mut filter = TaskFilter {
            statuses,
            after: Some(oldest_listed(board)),
            limit: TASKS_PER_READ,
            ..TaskFilter::default()
        };
        let mut count = 0;
        loop {
            let tasks = history.tasks(&filter)?;
            count += tasks.len() as u64;
            tasks.iter().for_each(|task| self.insert(task));
            match tasks.last() {
                Some(last) if tasks.len() == TASKS_PER_READ => filter.after = Some(last.id),
                _ => break,
            }
        }
        (filter.after, filter.limit) = (None, 0);
        self.unlisted = history.count_tasks(&filter)?.saturating_sub(count);
        self.revision = Some(board.revision);
        Ok(())
    }

    /// Removes the tasks that have become too old for the index.
    fn drop_old(&mut self, board: &Board) {
        let kept = self.ended.split_off(&TaskId(oldest_listed(board).0 + 1));
        self.unlisted += self.ended.len() as u64;
        self.ended = kept;
    }

    fn insert(&mut self, task: &Task) {
        if task.status.is_terminal() && task.session_of().is_none() {
            let state = display::status_display(task).state;
            let ended = ListedTask {
                is_over: true,
                ..listed_task(task, state, &mut self.names)
            };
            self.ended.insert(task.id, ended);
        }
    }

    /// Returns the facts about the tasks that are not over: the open tasks, and the failed tasks
    /// about which nobody has decided.
    fn open_tasks(&mut self, board: &Board, now: Now) -> Vec<ListedTask> {
        let items = inbox::open_items(board, now);
        let shown = items.iter().filter(|item| item.is_shown());
        let asked: HashSet<TaskId> = shown.filter_map(|item| item.task).collect();
        let failed = board.failed.values();
        let failed = failed.filter(|task| !board.tasks.contains_key(&task.id));
        let names = &mut self.names;
        let tasks = board.tasks.values().chain(failed);
        tasks
            .filter(|task| task.session_of().is_none())
            .map(|task| ListedTask {
                needs_you: asked.contains(&task.id),
                is_over: task.status.is_terminal() && !board.failed.contains_key(&task.id),
                ..listed_task(task, display::task_display(board, task).state, names)
            })
            .collect()
    }
}

/// Returns the number of the newest task that is too old for the index.
fn oldest_listed(board: &Board) -> TaskId {
    TaskId(board.counters.task.saturating_sub(MAX_INDEXED_TASKS))
}

fn listed_task(task: &Task, state: display::DisplayState, names: &mut SharedNames) -> ListedTask {
    let agent = task.agent.as_ref().or(task.assignee.as_ref());
    let texts = [
        task.project.as_str(),
        agent.map_or("", |agent| agent.as_str()),
        task.alias.as_deref().unwrap_or_default(),
        task.progress.lines().next().unwrap_or_default(),
        task.reason.as_deref().unwrap_or_default(),
    ];
    let text = format!("{}\n{} {}", task.subject, task.id, texts.join(" ")).to_lowercase();
    let changed = task.submission.iter().flat_map(|work| &work.changed);
    let files: BTreeSet<&str> = task
        .files
        .iter()
        .map(|pattern| pattern.as_str())
        .chain(changed.map(String::as_str))
        .take(MAX_FILES)
        .collect();
    ListedTask {
        id: task.id,
        mission: task.mission,
        agent: agent.map(|agent| names.share(agent.as_str())),
        state,
        needs_you: false,
        is_over: false,
        since_unix_ms: task.updated_unix_ms,
        micro_usd: task.spent.usage.micro_usd,
        text: text.into(),
        files: files.into_iter().map(|file| names.share(file)).collect(),
    }
}
