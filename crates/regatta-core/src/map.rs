//! The map of a project's files: current holders, waiting tasks, recent changes, and clashes.
//!
//! A clash is a path that one task holds or waits for, and another task waits for, if no dependency
//! decides which task goes first. If one task depends on the other, it waits anyway. Shared claims
//! do not clash.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::claim::{Claim, Mode, Owner};
use crate::ids::{AgentName, Now, ProjectName, TaskId};
use crate::manifest;
use crate::pattern::{PathPattern, PatternIndex, Uri};

/// Maximum number of patterns of one task on the map.
const MOST_OF_A_TASK: usize = 50;

/// A holder of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Held {
    pub owner: String,
    pub task: Option<TaskId>,
    pub agent: Option<AgentName>,
    pub since_wall: u64,
    /// Date at which it ends unless it is renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_wall: Option<u64>,
    /// Description of its end, if it has no date.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub until: String,
    pub memo: String,
}

/// A path, or a pattern, that somebody holds, waits for, or changed today.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spot {
    pub path: String,
    #[serde(default)]
    pub held: Vec<Held>,
    /// Waiting tasks that need it.
    #[serde(default)]
    pub wanted: Vec<TaskId>,
    /// Number of changes to it that landed today.
    #[serde(default)]
    pub hot: u32,
    /// Tasks that clash here, two or more.
    #[serde(default)]
    pub clash: Vec<TaskId>,
}

/// One holder's share of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Share {
    /// The agent or other holder.
    pub holder: String,
    pub task: Option<TaskId>,
    pub spots: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_wall: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub until: String,
}

/// A folder with all that is below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Folder {
    pub path: String,
    /// Number of folders of this map that contain it.
    pub depth: usize,
    /// Number of paths in it and below.
    pub spots: usize,
    pub held: Vec<Share>,
    /// Number of paths for which somebody waits.
    #[serde(default)]
    pub wanted: usize,
    #[serde(default)]
    pub hot: u32,
    /// Number of paths with a clash. `clash` has the tasks.
    #[serde(default)]
    pub clashes: usize,
    #[serde(default)]
    pub clash: Vec<TaskId>,
    /// Paths directly in this folder.
    #[serde(default)]
    pub own: Vec<Spot>,
}

/// Returns the end of a claim: a date if the claim expires, and a description otherwise.
pub fn until(board: &Board, claim: &Claim, now: Now) -> (Option<u64>, String) {
    if let Some(at) = claim.expires_at {
        let wall = now.wall.saturating_add(at.saturating_sub(now.at));
        return (Some(wall.div_ceil(1_000) * 1_000), String::new()); // to the second: the two clocks are read apart
    }
    let words = match &claim.owner {
        Owner::Attempt(id) => board.attempts.get(id).map(|it| format!("while {} is worked on", it.task)),
        Owner::Landing(id) => board.landings.get(id).map(|it| format!("until {} has landed", it.task)),
        Owner::Agent(_) => None,
    };
    (None, words.unwrap_or_else(|| "until it is released".into()))
}

/// Returns the task and the agent of a claim's owner.
fn who(board: &Board, owner: &Owner) -> (Option<TaskId>, Option<AgentName>) {
    match owner {
        Owner::Agent(name) => (None, Some(name.clone())),
        Owner::Attempt(id) => board.attempts.get(id).map_or((None, None), |it| (Some(it.task), Some(it.agent.clone()))),
        Owner::Landing(id) => board.landings.get(id).map_or((None, None), |it| (Some(it.task), Some(it.agent.clone()))),
    }
}

/// Returns the path of a claim on files of this project. A claim that no path pattern can express, such as one on a
/// name with a literal `*`, is shown as its whole URI.
fn path_of(uri: &Uri, project: &ProjectName) -> Option<String> {
    let is_of_project = uri.as_str().strip_prefix("file://")?.strip_prefix(project.as_str())?.starts_with('/');
    let pattern = uri.file_pattern(project).map(String::from);
    is_of_project.then(|| pattern.unwrap_or_else(|| uri.to_string()))
}

/// Returns all paths of a project's map. Paths that are only waited for or changed are added up to
/// a total of `most`.
pub fn spots(
    board: &Board,
    project: &ProjectName,
    landed: &BTreeMap<String, u32>,
    (now, most): (Now, usize),
) -> Vec<Spot> {
    let mut found: BTreeMap<String, Spot> = BTreeMap::new();
    let mut sides = Sides::default();
    for claim in board.claims.values() {
        let (task, agent) = who(board, &claim.owner);
        let (until_wall, until) = until(board, claim, now);
        for uri in &claim.uris {
            let Some(path) = path_of(uri, project) else { continue };
            let held = Held {
                owner: claim.owner.to_string(),
                task,
                agent: agent.clone(),
                since_wall: claim.granted_wall,
                until_wall,
                until: until.clone(),
                memo: claim.memo.clone(),
            };
            found.entry(path.clone()).or_default().held.push(held);
            if let Some(task) = task {
                sides.add(uri.clone(), Side { task, waits: false, mode: claim.mode, path });
            }
        }
    }
    for task in board.tasks.values().filter(|it| it.project == *project && it.status.is_waiting()) {
        let mode = manifest::mode(board, task);
        for file in task.files.iter().take(MOST_OF_A_TASK) {
            let path = file.to_string();
            if found.len() < most || found.contains_key(&path) {
                found.entry(path.clone()).or_default().wanted.push(task.id);
                sides.add(Uri::of_file(project, file), Side { task: task.id, waits: true, mode, path });
            }
        }
    }
    for (path, many) in landed {
        if found.len() < most || found.contains_key(path) {
            found.entry(path.clone()).or_default().hot = *many;
        }
    }
    for (path, tasks) in sides.meet(board) {
        found.entry(path).or_default().clash = tasks.into_iter().collect();
    }
    // Work in progress that will not merge clashes, too.
    for it in board.projects.get(project).into_iter().flat_map(|it| &it.radar.collisions) {
        for path in &it.paths {
            let clash = &mut found.entry(path.clone()).or_default().clash;
            clash.extend([Some(it.one), it.other].into_iter().flatten());
            clash.sort_unstable();
            clash.dedup();
        }
    }
    for (path, it) in &mut found {
        it.path.clone_from(path);
        // The changes of a pattern are the changes of all paths that it matches.
        if it.hot == 0
            && path.contains(['*', '?'])
            && let Ok(pattern) = PathPattern::new(path)
        {
            it.hot = landed.iter().filter(|one| pattern.matches(one.0)).map(|one| one.1).sum();
        }
    }
    found.into_values().collect()
}

/// A task that holds or waits for a pattern.
struct Side {
    task: TaskId,
    waits: bool,
    mode: Mode,
    path: String,
}

/// All holders and waiting tasks, with an index of their patterns.
#[derive(Default)]
struct Sides {
    all: Vec<(Uri, Side)>,
    index: PatternIndex,
}

impl Sides {
    fn add(&mut self, uri: Uri, side: Side) {
        self.index.insert(self.all.len() as u64, std::slice::from_ref(&uri));
        self.all.push((uri, side));
    }

    /// Returns the paths with a clash, with the clashing tasks.
    fn meet(&self, board: &Board) -> BTreeMap<String, BTreeSet<TaskId>> {
        let mut found: BTreeMap<String, BTreeSet<TaskId>> = BTreeMap::new();
        let mut ordered: BTreeMap<(TaskId, TaskId), bool> = BTreeMap::new();
        for (uri, one) in self.all.iter().filter(|it| it.1.waits) {
            for (number, _) in self.index.overlapping(uri) {
                let Some((_, other)) = usize::try_from(number).ok().and_then(|it| self.all.get(it)) else { continue };
                let pair = (one.task.min(other.task), one.task.max(other.task));
                if pair.0 == pair.1 || (one.mode == Mode::Shared && other.mode == Mode::Shared) {
                    continue;
                }
                let goes_first = ordered
                    .entry(pair)
                    .or_insert_with(|| depends(board, pair.0, pair.1) || depends(board, pair.1, pair.0));
                if !*goes_first {
                    for path in [&one.path, &other.path] {
                        found.entry(path.clone()).or_default().extend([pair.0, pair.1]);
                    }
                }
            }
        }
        found
    }
}

/// Returns whether `one` depends on `other`, directly or indirectly.
fn depends(board: &Board, one: TaskId, other: TaskId) -> bool {
    let (mut open, mut seen) = (vec![one], BTreeSet::new());
    while let Some(next) = open.pop() {
        let Some(task) = board.tasks.get(&next) else { continue };
        if task.blocked_by.contains(&other) {
            return true;
        }
        open.extend(task.blocked_by.iter().copied().filter(|it| seen.insert(*it)));
    }
    false
}

/// Returns the folder of a path or pattern, up to the first wildcard.
fn folder_of(path: &str) -> &str {
    let literal = path.find(['*', '?']).map_or(path, |at| &path[..at]);
    literal.rfind('/').map_or("", |at| &literal[..at])
}

/// Returns the parent of a folder; `None` for the top.
fn parent_of(folder: &str) -> Option<&str> {
    if folder.is_empty() { None } else { Some(folder.rfind('/').map_or("", |at| &folder[..at])) }
}

/// Returns the folders that contain something, as a tree in preorder. Folders with clashes come
/// first, then by name. A folder that only leads to one other folder is left out.
pub fn folders(spots: Vec<Spot>) -> Vec<Folder> {
    let mut own: BTreeMap<String, Vec<Spot>> = BTreeMap::new();
    for it in spots {
        own.entry(folder_of(&it.path).to_owned()).or_default().push(it);
    }
    let mut below: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for folder in own.keys() {
        let mut at = folder.as_str();
        while let Some(parent) = parent_of(at) {
            if !below.entry(parent.to_owned()).or_default().insert(at.to_owned()) {
                break;
            }
            at = parent;
        }
    }
    let mut tree = Tree { own, below, folders: Vec::new() };
    tree.walk("", 0);
    tree.folders
}

/// The state of building the tree of folders.
struct Tree {
    own: BTreeMap<String, Vec<Spot>>,
    below: BTreeMap<String, BTreeSet<String>>,
    folders: Vec<Folder>,
}

impl Tree {
    /// Adds a folder and all below it.
    fn walk(&mut self, path: &str, depth: usize) {
        let mut children: Vec<(Folder, String)> =
            self.below.remove(path).unwrap_or_default().into_iter().map(|it| (self.sum(&it), it)).collect();
        let mut own = self.own.remove(path).unwrap_or_default();
        let shown = !own.is_empty() || children.len() > 1;
        if shown {
            let all = own.iter().map(Folder::of).chain(children.iter().map(|it| it.0.clone()));
            let mut folder = all.reduce(Folder::with).unwrap_or_default();
            own.sort_by(|a, b| (a.clash.is_empty(), &a.path).cmp(&(b.clash.is_empty(), &b.path)));
            (folder.path, folder.depth, folder.own) = (path.to_owned(), depth, own);
            self.folders.push(folder);
        }
        children.sort_by(|a, b| (a.0.clashes == 0, &a.1).cmp(&(b.0.clashes == 0, &b.1)));
        for (_, child) in children {
            self.walk(&child, depth + usize::from(shown));
        }
    }

    /// Returns the totals of a folder and all folders below it.
    fn sum(&self, path: &str) -> Folder {
        let own = self.own.get(path).into_iter().flatten().map(Folder::of);
        let below = self.below.get(path).into_iter().flatten().map(|it| self.sum(it));
        own.chain(below).reduce(Folder::with).unwrap_or_default()
    }
}

impl Folder {
    /// Returns the totals of a single path.
    fn of(it: &Spot) -> Folder {
        let share = |one: &Held| Share {
            holder: one.agent.as_ref().map_or_else(|| one.owner.clone(), ToString::to_string),
            task: one.task,
            spots: 1,
            until_wall: one.until_wall,
            until: one.until.clone(),
        };
        Folder {
            spots: 1,
            held: it.held.iter().map(share).collect(),
            wanted: usize::from(!it.wanted.is_empty()),
            // Changes of files that a pattern matches are counted at the files.
            hot: if it.path.contains(['*', '?']) { 0 } else { it.hot },
            clashes: usize::from(!it.clash.is_empty()),
            clash: it.clash.clone(),
            ..Folder::default()
        }
    }

    /// Returns the sum of two totals.
    fn with(mut self, more: Folder) -> Folder {
        for share in more.held {
            match self.held.iter_mut().find(|it| it.holder == share.holder && it.task == share.task) {
                Some(known) => {
                    known.spots += share.spots;
                    known.until_wall = known.until_wall.max(share.until_wall);
                }
                None => self.held.push(share),
            }
        }
        self.clash.extend(more.clash);
        self.clash.sort_unstable();
        self.clash.dedup();
        (self.spots, self.wanted) = (self.spots + more.spots, self.wanted + more.wanted);
        (self.hot, self.clashes) = (self.hot + more.hot, self.clashes + more.clashes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(path: &str, holder: Option<(&str, u64)>, wanted: &[u64], clash: &[u64]) -> Spot {
        let held = holder.map(|(agent, task)| Held {
            owner: "A1".into(),
            task: Some(TaskId(task)),
            agent: AgentName::new(agent).ok(),
            since_wall: 0,
            until_wall: None,
            until: format!("while T{task} is worked on"),
            memo: String::new(),
        });
        let tasks = |of: &[u64]| of.iter().copied().map(TaskId).collect();
        Spot { path: path.into(), held: held.into_iter().collect(), wanted: tasks(wanted), clash: tasks(clash), hot: 1 }
    }

    #[test]
    fn a_patterns_folder_ends_before_its_first_wildcard() {
        let cases = [
            ("a.rs", ""),
            ("src/a.rs", "src"),
            ("src/**", "src"),
            ("src/api/*.rs", "src/api"),
            ("**", ""),
            ("src/a*/b.rs", "src"),
        ];
        for (path, folder) in cases {
            assert_eq!(folder_of(path), folder, "{path}");
        }
    }

    /// A holder of several paths in a folder holds the folder until the last of them ends.
    #[test]
    fn a_folder_is_held_until_its_last_path_is_free() {
        let held = |path: &str, until_wall| {
            let mut it = spot(path, Some(("ada", 1)), &[], &[]);
            it.held[0].until_wall = Some(until_wall);
            it
        };
        let folder = folders(vec![held("src/a.rs", 5), held("src/b.rs", 9), held("src/c.rs", 7)]).remove(0);
        assert_eq!((folder.held.len(), folder.held[0].spots, folder.held[0].until_wall), (1, 3, Some(9)));
    }

    #[test]
    fn folders_form_a_tree_with_collisions_first() {
        let drawn = |spots: Vec<Spot>| -> Vec<String> {
            let line = |it: Folder| {
                let held: Vec<String> = it.held.iter().map(|it| format!("{}×{}", it.holder, it.spots)).collect();
                let own: Vec<String> = it.own.iter().map(|it| it.path.clone()).collect();
                let meet = if it.clashes > 0 { format!(" !{}", it.clashes) } else { String::new() };
                let path = if it.path.is_empty() { "." } else { &it.path };
                format!(
                    "{}{path} {} [{}] hot {}{meet}: {}",
                    "> ".repeat(it.depth),
                    it.spots,
                    held.join(" "),
                    it.hot,
                    own.join(" ")
                )
            };
            folders(spots).into_iter().map(line).collect()
        };
        assert_eq!(drawn(vec![]), Vec::<String>::new());
        assert_eq!(
            drawn(vec![
                spot("README.md", None, &[9], &[]),
                spot("src/api/deep/x.rs", Some(("ada", 1)), &[], &[]),
                spot("src/api/deep/y.rs", Some(("ada", 1)), &[2], &[1, 2]),
                spot("src/model/**", Some(("bob", 3)), &[], &[]),
                spot("docs/a.md", None, &[4], &[]),
            ]),
            [
                ". 5 [ada×2 bob×1] hot 4 !1: README.md",
                "> src 3 [ada×2 bob×1] hot 2 !1: ",
                "> > src/api/deep 2 [ada×2] hot 2 !1: src/api/deep/y.rs src/api/deep/x.rs",
                "> > src/model 1 [bob×1] hot 0: src/model/**",
                "> docs 1 [] hot 1: docs/a.md",
            ]
        );
        assert_eq!(
            drawn(vec![spot("a/b/c/x.rs", None, &[1], &[])]),
            ["a/b/c 1 [] hot 1: a/b/c/x.rs"],
            "a folder with a single child is left out"
        );
    }
}
