//! The map of a project's files, for people: who works on each file, which tasks wait for it, how
//! often it changed today, and where tasks clash.
//!
//! Two tasks clash at a path if each of them holds the path or waits for it, at least one of them
//! waits, and neither depends on the other. Nothing then decides which of them goes first. Two
//! tasks that need the path only for shared use do not clash. Claims are granted independently of
//! this map.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::board::Board;
use regatta_core::claim::{Claim, ClaimMode, ClaimOwner};
use regatta_core::ids::{AgentName, Now, ProjectName, TaskId};
use regatta_core::manifest;
use regatta_core::pattern::{PathPattern, PatternIndex, Uri};
use serde::{Deserialize, Serialize};

/// Maximum number of file patterns of one task that the map shows.
const MAX_PATTERNS_PER_TASK: usize = 50;

/// Somebody who holds a claim on a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathHolder {
    pub owner: String,
    pub task: Option<TaskId>,
    pub agent: Option<AgentName>,
    #[serde(rename = "since_wall")]
    pub since_unix_ms: u64,
    /// Time at which the claim ends unless it is renewed, in Unix milliseconds. `None` if the claim
    /// ends with its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "until_wall")]
    pub deadline_unix_ms: Option<u64>,
    /// A description of the claim's end for people, such as `until T3 has landed`. Empty if the
    /// claim ends at a known time.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub until: String,
    pub memo: String,
}

/// A path or a file pattern that somebody holds, for which a task waits, or that changed today.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileCell {
    pub path: String,
    #[serde(default)]
    pub held: Vec<PathHolder>,
    /// Waiting tasks that need the path.
    #[serde(default)]
    pub wanted: Vec<TaskId>,
    /// Number of changes to the path that landed today.
    #[serde(default)]
    #[serde(rename = "hot")]
    pub changes_today: u32,
    /// Tasks that clash at this path (they need the same path, and nothing decides which task goes
    /// first): two or more, or none.
    #[serde(default)]
    #[serde(rename = "clash")]
    pub clashing_tasks: Vec<TaskId>,
}

/// One holder of claims, and the number of paths in a folder that this holder has claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HolderShare {
    /// The agent whose claim covers the paths, or the person or tool that made the claim.
    pub holder: String,
    pub task: Option<TaskId>,
    #[serde(rename = "spots")]
    pub path_count: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "until_wall")]
    pub deadline_unix_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub until: String,
}

/// A folder of the map, with totals for everything below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FolderCell {
    pub path: String,
    /// The folder's depth in the map: the number of shown folders that contain it.
    pub depth: usize,
    /// Number of shown paths in this folder and the folders below it.
    #[serde(rename = "spots")]
    pub path_count: usize,
    pub held: Vec<HolderShare>,
    /// Number of paths in this folder and the folders below it for which a task waits.
    #[serde(default)]
    pub wanted: usize,
    #[serde(default)]
    #[serde(rename = "hot")]
    pub changes_today: u32,
    /// Number of paths in this folder and the folders below it at which tasks clash.
    /// `clashing_tasks` lists the tasks.
    #[serde(default)]
    #[serde(rename = "clashes")]
    pub clash_count: usize,
    #[serde(default)]
    #[serde(rename = "clash")]
    pub clashing_tasks: Vec<TaskId>,
    /// The paths directly in this folder.
    #[serde(default)]
    #[serde(rename = "own")]
    pub own_cells: Vec<FileCell>,
}

/// Returns the end of a claim: a time in Unix milliseconds if the claim expires, and otherwise a
/// description for people.
pub fn end_of_claim(board: &Board, claim: &Claim, now: Now) -> (Option<u64>, String) {
    if let Some(at) = claim.expires_fleet_ms {
        let unix_ms = now.unix_ms.saturating_add(at.saturating_sub(now.fleet_ms));
        // Round up to a full second, because the date and Regatta's own clock are not read at
        // exactly the same time.
        return (Some(unix_ms.div_ceil(1_000) * 1_000), String::new());
    }
    let description = match &claim.owner {
        ClaimOwner::Attempt(id) => board
            .attempts
            .get(id)
            .map(|attempt| format!("while {} is worked on", attempt.task)),
        ClaimOwner::Landing(id) => board
            .landings
            .get(id)
            .map(|landing| format!("until {} has landed", landing.task)),
        ClaimOwner::Agent(_) => None,
    };
    (
        None,
        description.unwrap_or_else(|| "until it is released".into()),
    )
}

/// Returns the task and the agent to which a claim belongs. A claim that was made by hand has no
/// task.
fn task_and_agent(board: &Board, owner: &ClaimOwner) -> (Option<TaskId>, Option<AgentName>) {
    match owner {
        ClaimOwner::Agent(name) => (None, Some(name.clone())),
        ClaimOwner::Attempt(id) => board.attempts.get(id).map_or((None, None), |attempt| {
            (Some(attempt.task), Some(attempt.agent.clone()))
        }),
        ClaimOwner::Landing(id) => board.landings.get(id).map_or((None, None), |landing| {
            (Some(landing.task), Some(landing.agent.clone()))
        }),
    }
}

/// Returns the path or pattern that a claimed URI names in this project, or `None` if it names no
/// file of this project. Returns the whole URI if no pattern can express the path, for example
/// because its name contains a literal `*`.
fn path_of(uri: &Uri, project: &ProjectName) -> Option<String> {
    let is_of_project = uri
        .as_str()
        .strip_prefix("file://")?
        .strip_prefix(project.as_str())?
        .starts_with('/');
    let pattern = uri.file_pattern(project).map(String::from);
    is_of_project.then(|| pattern.unwrap_or_else(|| uri.to_string()))
}

/// Returns all paths of a project's map. Paths that somebody holds are always included. Other paths
/// are added until the map has `max_cells` paths. `landed` has today's number of changes for each
/// path.
pub fn file_cells(
    board: &Board,
    project: &ProjectName,
    landed: &BTreeMap<String, u32>,
    now: Now,
    max_cells: usize,
) -> Vec<FileCell> {
    let mut cells: BTreeMap<String, FileCell> = BTreeMap::new();
    let mut users = PatternUsers::default();
    for claim in board.claims.values() {
        let (task, agent) = task_and_agent(board, &claim.owner);
        let (deadline_unix_ms, until) = end_of_claim(board, claim, now);
        for uri in &claim.uris {
            let Some(path) = path_of(uri, project) else {
                continue;
            };
            let held = PathHolder {
                owner: claim.owner.to_string(),
                task,
                agent: agent.clone(),
                since_unix_ms: claim.granted_unix_ms,
                deadline_unix_ms,
                until: until.clone(),
                memo: claim.memo.clone(),
            };
            cells.entry(path.clone()).or_default().held.push(held);
            if let Some(task) = task {
                users.add(
                    uri.clone(),
                    PatternUser {
                        task,
                        is_waiting: false,
                        mode: claim.mode,
                        path,
                    },
                );
            }
        }
    }
    for task in board
        .tasks
        .values()
        .filter(|task| task.project == *project && task.status.is_waiting())
    {
        let mode = manifest::claim_mode(board, task);
        for file in task.files.iter().take(MAX_PATTERNS_PER_TASK) {
            let path = file.to_string();
            if cells.len() < max_cells || cells.contains_key(&path) {
                cells.entry(path.clone()).or_default().wanted.push(task.id);
                users.add(
                    Uri::for_file(project, file),
                    PatternUser {
                        task: task.id,
                        is_waiting: true,
                        mode,
                        path,
                    },
                );
            }
        }
    }
    for (path, count) in landed {
        if cells.len() < max_cells || cells.contains_key(path) {
            cells.entry(path.clone()).or_default().changes_today = *count;
        }
    }
    for (path, tasks) in users.clashes_by_path(board) {
        cells.entry(path).or_default().clashing_tasks = tasks.into_iter().collect();
    }
    // Tasks whose unfinished work would conflict when merged also count as clashing.
    for collision in board
        .projects
        .get(project)
        .into_iter()
        .flat_map(|project| &project.collision_forecast.collisions)
    {
        for path in &collision.paths {
            let clash = &mut cells.entry(path.clone()).or_default().clashing_tasks;
            clash.extend([Some(collision.one), collision.other].into_iter().flatten());
            clash.sort_unstable();
            clash.dedup();
        }
    }
    for (path, cell) in &mut cells {
        cell.path.clone_from(path);
        // For a pattern, count the changes of all paths that the pattern matches.
        if cell.changes_today == 0
            && path.contains(['*', '?'])
            && let Ok(pattern) = PathPattern::new(path)
        {
            cell.changes_today = landed
                .iter()
                .filter(|(path, _)| pattern.matches(path))
                .map(|(_, count)| *count)
                .sum();
        }
    }
    cells.into_values().collect()
}

/// A task that holds a file pattern or waits for it.
struct PatternUser {
    task: TaskId,
    is_waiting: bool,
    mode: ClaimMode,
    path: String,
}

/// All tasks that hold or wait for a pattern, with an index to find overlapping patterns.
#[derive(Default)]
struct PatternUsers {
    all: Vec<(Uri, PatternUser)>,
    index: PatternIndex,
}

impl PatternUsers {
    fn add(&mut self, uri: Uri, user: PatternUser) {
        self.index
            .insert(self.all.len() as u64, std::slice::from_ref(&uri));
        self.all.push((uri, user));
    }

    /// Returns the paths at which tasks clash (need the same path in no fixed order), with the
    /// clashing tasks.
    fn clashes_by_path(&self, board: &Board) -> BTreeMap<String, BTreeSet<TaskId>> {
        let mut clashes: BTreeMap<String, BTreeSet<TaskId>> = BTreeMap::new();
        let mut ordered_pairs: BTreeMap<(TaskId, TaskId), bool> = BTreeMap::new();
        for (uri, user) in self.all.iter().filter(|(_, user)| user.is_waiting) {
            for (number, _) in self.index.overlapping(uri) {
                let Some((_, other)) = usize::try_from(number).ok().and_then(|n| self.all.get(n))
                else {
                    continue;
                };
                let pair = (user.task.min(other.task), user.task.max(other.task));
                if pair.0 == pair.1
                    || (user.mode == ClaimMode::Shared && other.mode == ClaimMode::Shared)
                {
                    continue;
                }
                let is_ordered = ordered_pairs.entry(pair).or_insert_with(|| {
                    depends_on(board, pair.0, pair.1) || depends_on(board, pair.1, pair.0)
                });
                if !*is_ordered {
                    for path in [&user.path, &other.path] {
                        clashes
                            .entry(path.clone())
                            .or_default()
                            .extend([pair.0, pair.1]);
                    }
                }
            }
        }
        clashes
    }
}

/// Returns whether the task `one` depends on the task `other`, directly or indirectly.
fn depends_on(board: &Board, one: TaskId, other: TaskId) -> bool {
    let (mut open, mut seen) = (vec![one], BTreeSet::new());
    while let Some(next) = open.pop() {
        let Some(task) = board.tasks.get(&next) else {
            continue;
        };
        if task.blocked_by.contains(&other) {
            return true;
        }
        open.extend(
            task.blocked_by
                .iter()
                .copied()
                .filter(|id| seen.insert(*id)),
        );
    }
    false
}

/// Returns the folder of a path; for a pattern, the folder before its first wildcard.
fn folder_of(path: &str) -> &str {
    let literal = path.find(['*', '?']).map_or(path, |at| &path[..at]);
    literal.rfind('/').map_or("", |at| &literal[..at])
}

/// Returns the parent of a folder; `None` for the project's top folder.
fn parent_of(folder: &str) -> Option<&str> {
    if folder.is_empty() {
        None
    } else {
        Some(folder.rfind('/').map_or("", |at| &folder[..at]))
    }
}

/// Returns the folders that contain shown paths, as a tree: each folder is followed by the folders
/// below it. Folders with clashes come first, and the others follow by name. A folder that contains
/// nothing but one other folder is left out.
pub fn folder_cells(cells: Vec<FileCell>) -> Vec<FolderCell> {
    let mut own: BTreeMap<String, Vec<FileCell>> = BTreeMap::new();
    for cell in cells {
        own.entry(folder_of(&cell.path).to_owned())
            .or_default()
            .push(cell);
    }
    let mut children: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for folder in own.keys() {
        let mut at = folder.as_str();
        while let Some(parent) = parent_of(at) {
            if !children
                .entry(parent.to_owned())
                .or_default()
                .insert(at.to_owned())
            {
                break;
            }
            at = parent;
        }
    }
    let mut tree = FolderTree {
        own,
        below: children,
        folders: Vec::new(),
    };
    tree.add_folder("", 0);
    tree.folders
}

/// The tree of folders from which [`folder_cells`] computes its result.
struct FolderTree {
    own: BTreeMap<String, Vec<FileCell>>,
    below: BTreeMap<String, BTreeSet<String>>,
    folders: Vec<FolderCell>,
}

impl FolderTree {
    /// Adds a folder and the folders below it to `folders`, the list that [`folder_cells`] returns.
    fn add_folder(&mut self, path: &str, depth: usize) {
        let mut children: Vec<(FolderCell, String)> = self
            .below
            .remove(path)
            .unwrap_or_default()
            .into_iter()
            .map(|child| (self.totals_of(&child), child))
            .collect();
        let mut own = self.own.remove(path).unwrap_or_default();
        let is_shown = !own.is_empty() || children.len() > 1;
        if is_shown {
            let totals = own
                .iter()
                .map(FolderCell::from_cell)
                .chain(children.iter().map(|(totals, _)| totals.clone()));
            let mut folder = totals.reduce(FolderCell::merged_with).unwrap_or_default();
            own.sort_by(|a, b| {
                (a.clashing_tasks.is_empty(), &a.path).cmp(&(b.clashing_tasks.is_empty(), &b.path))
            });
            (folder.path, folder.depth, folder.own_cells) = (path.to_owned(), depth, own);
            self.folders.push(folder);
        }
        children.sort_by(|a, b| (a.0.clash_count == 0, &a.1).cmp(&(b.0.clash_count == 0, &b.1)));
        for (_, child) in children {
            self.add_folder(&child, depth + usize::from(is_shown));
        }
    }

    /// Returns the totals of all paths in a folder and the folders below it.
    fn totals_of(&self, path: &str) -> FolderCell {
        let own = self
            .own
            .get(path)
            .into_iter()
            .flatten()
            .map(FolderCell::from_cell);
        let below = self
            .below
            .get(path)
            .into_iter()
            .flatten()
            .map(|child| self.totals_of(child));
        own.chain(below)
            .reduce(FolderCell::merged_with)
            .unwrap_or_default()
    }
}

impl FolderCell {
    /// Returns the totals of a folder that contains only this path.
    fn from_cell(file_cell: &FileCell) -> FolderCell {
        let share = |path_holder: &PathHolder| HolderShare {
            holder: path_holder
                .agent
                .as_ref()
                .map_or_else(|| path_holder.owner.clone(), ToString::to_string),
            task: path_holder.task,
            path_count: 1,
            deadline_unix_ms: path_holder.deadline_unix_ms,
            until: path_holder.until.clone(),
        };
        FolderCell {
            path_count: 1,
            held: file_cell.held.iter().map(share).collect(),
            wanted: usize::from(!file_cell.wanted.is_empty()),
            // The changes of a pattern are already counted at the files that it matches, so count
            // none here.
            changes_today: if file_cell.path.contains(['*', '?']) {
                0
            } else {
                file_cell.changes_today
            },
            clash_count: usize::from(!file_cell.clashing_tasks.is_empty()),
            clashing_tasks: file_cell.clashing_tasks.clone(),
            ..FolderCell::default()
        }
    }

    /// Returns the sum of the totals of two parts of a folder.
    fn merged_with(mut self, more: FolderCell) -> FolderCell {
        for share in more.held {
            match self
                .held
                .iter_mut()
                .find(|known| known.holder == share.holder && known.task == share.task)
            {
                Some(known) => {
                    known.path_count += share.path_count;
                    known.deadline_unix_ms = known.deadline_unix_ms.max(share.deadline_unix_ms);
                }
                None => self.held.push(share),
            }
        }
        self.clashing_tasks.extend(more.clashing_tasks);
        self.clashing_tasks.sort_unstable();
        self.clashing_tasks.dedup();
        self.path_count += more.path_count;
        self.wanted += more.wanted;
        self.changes_today += more.changes_today;
        self.clash_count += more.clash_count;
        self
    }
}
