//! An index of ready tasks that can skip many tasks at once if all of them wait for the same files.
//!
//! If ten thousand ready tasks need one file, checking each of them takes longer than starting a
//! task. So tasks that need the same file or directory form a group with the file pattern that they
//! all overlap. While somebody holds a claim on that pattern, or on a directory above it, one check
//! skips the whole group. All other tasks are ungrouped and checked one by one. If such a check
//! finds that a task waits for a pattern, the task joins the group of that pattern.
//!
//! Groups only make the search faster and never change its result. The groups depend on earlier
//! searches, so a comparison of two boards ignores the groups.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use imbl::{OrdMap, OrdSet};

use crate::claim::{self, ClaimMode, Party};
use crate::ids::{AgentName, ClaimId, TaskId, WaitId};
use crate::manifest;
use crate::pattern::{PatternIndex, Uri};
use crate::stable_hash::stable_hash;
use crate::task::Task;

use super::{Board, ReadyFor};

/// Minimum number of ready tasks with a common file pattern for which the index forms a group.
const GROUP_THRESHOLD: u32 = 64;

/// Identifies a group: the list of ready tasks, whether the tasks need only shared claims, and the
/// group's pattern.
type GroupKey = (ReadyFor, bool, Uri);
/// A task's priority and id, by which the tasks of a list or group are ordered.
type TaskRank = (u8, TaskId);

/// An index of all ready tasks, for each list of [`ReadyFor`]. Some tasks that need the same files
/// are in groups, which a search can skip as a whole; the other tasks are ungrouped.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadyIndex {
    ungrouped: OrdMap<ReadyFor, OrdSet<TaskRank>>,
    groups: OrdMap<GroupKey, OrdSet<TaskRank>>,
    group_of: OrdMap<TaskId, (bool, Uri)>,
    /// For each file pattern and directory, the number of ready tasks that need exactly this
    /// pattern or something below this directory. The key is a hash of the name. Names with the
    /// same hash are counted together, which only makes a search slower.
    demand: OrdMap<u64, u32>,
}

/// All indexes count as equal when boards are compared, because the groups only make searches
/// faster.
impl PartialEq for ReadyIndex {
    fn eq(&self, _: &ReadyIndex) -> bool {
        true
    }
}

/// Returns the hash of two texts, one after the other.
fn hash(parts: [&str; 2]) -> u64 {
    stable_hash(parts.iter().flat_map(|part| part.bytes()))
}

/// Returns the directories that contain a pattern, deepest first, without the project's top
/// directory.
fn ancestor_dirs(uri: &Uri) -> impl Iterator<Item = &str> {
    let text = uri.as_str();
    let start = text.find("://").map_or(0, |at| at + 3);
    let inside = text[start..]
        .find('/')
        .map_or(text.len(), |at| start + at + 1);
    let literal = uri.literal_segments();
    let last = literal.len();
    literal
        .match_indices('/')
        .map(|(at, _)| at)
        .filter(move |at| *at >= inside)
        .chain((last < text.len() && last > inside).then_some(last))
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .map(move |at| &literal[..at])
}

/// Ending of a pattern that matches everything below a directory.
const SUBTREE_SUFFIX: &str = "/**";

impl ReadyIndex {
    /// Adds a ready task, which needs claims on `uris`. The task joins a group at once if many
    /// ready tasks need one of its patterns.
    pub(super) fn insert(&mut self, list: &ReadyFor, task: &Task, uris: &[Uri], shared: bool) {
        let mut most_wanted: Option<(u32, &Uri)> = None;
        for uri in uris {
            let demand = self.count_up(hash([uri.as_str(), ""]));
            if demand >= GROUP_THRESHOLD && most_wanted.is_none_or(|(highest, _)| highest < demand)
            {
                most_wanted = Some((demand, uri));
            }
            for folder in ancestor_dirs(uri) {
                self.count_up(hash([folder, SUBTREE_SUFFIX]));
            }
        }
        let hot_folder = || {
            let is_hot = |folder: &&str| {
                self.demand
                    .get(&hash([folder, SUBTREE_SUFFIX]))
                    .is_some_and(|demand| *demand >= GROUP_THRESHOLD)
            };
            uris.iter()
                .find_map(|uri| ancestor_dirs(uri).find(is_hot))
                .and_then(|folder| Uri::new(&format!("{folder}{SUBTREE_SUFFIX}")).ok())
        };
        let rank = (task.priority, task.id);
        match most_wanted.map(|(_, uri)| uri.clone()).or_else(hot_folder) {
            Some(uri) => self.group(list, rank, shared, uri),
            None => self.ungroup(list, rank),
        }
    }

    /// Removes a task from the index, because the task is no longer ready.
    pub(super) fn remove(&mut self, list: &ReadyFor, task: &Task, uris: &[Uri]) {
        for uri in uris {
            self.count_down(hash([uri.as_str(), ""]));
            for folder in ancestor_dirs(uri) {
                self.count_down(hash([folder, SUBTREE_SUFFIX]));
            }
        }
        self.remove_ranked(list, (task.priority, task.id));
    }

    fn count_up(&mut self, key: u64) -> u32 {
        let demand = self.demand.get(&key).copied().unwrap_or(0) + 1;
        self.demand.insert(key, demand);
        demand
    }

    fn count_down(&mut self, key: u64) {
        match self.demand.get(&key).copied() {
            Some(0 | 1) | None => _ = self.demand.remove(&key),
            Some(demand) => _ = self.demand.insert(key, demand - 1),
        }
    }

    /// Adds a task to the tasks of its list that belong to no group.
    fn ungroup(&mut self, list: &ReadyFor, rank: TaskRank) {
        self.group_of.remove(&rank.1);
        match self.ungrouped.get_mut(list) {
            Some(ranks) => _ = ranks.insert(rank),
            None => _ = self.ungrouped.insert(list.clone(), OrdSet::unit(rank)),
        }
    }

    /// Adds a task to the group of the ready tasks that need the pattern `uri`.
    fn group(&mut self, list: &ReadyFor, rank: TaskRank, shared: bool, uri: Uri) {
        self.group_of.insert(rank.1, (shared, uri.clone()));
        let key = (list.clone(), shared, uri);
        match self.groups.get_mut(&key) {
            Some(ranks) => _ = ranks.insert(rank),
            None => _ = self.groups.insert(key, OrdSet::unit(rank)),
        }
    }

    /// Removes a task from its group or, if the task has no group, from the ungrouped tasks.
    fn remove_ranked(&mut self, list: &ReadyFor, rank: TaskRank) {
        match self.group_of.remove(&rank.1) {
            Some((shared, uri)) => {
                let key = (list.clone(), shared, uri);
                if let Some(ranks) = self.groups.get_mut(&key) {
                    ranks.remove(&rank);
                    if ranks.is_empty() {
                        self.groups.remove(&key);
                    }
                }
            }
            None => {
                if let Some(ranks) = self.ungrouped.get_mut(list) {
                    ranks.remove(&rank);
                    if ranks.is_empty() {
                        self.ungrouped.remove(list);
                    }
                }
            }
        }
    }
}

impl Board {
    /// Returns the first ready task of a list that `fits` accepts and that `agent` can start
    /// because nobody else claims its files.
    pub(crate) fn first_startable(
        &self,
        index: &mut ReadyIndex,
        list: &ReadyFor,
        agent: &AgentName,
        fits: impl Fn(&Task) -> bool,
    ) -> Option<TaskId> {
        // A group saves no time if it has few tasks and nothing blocks it, so its tasks become
        // ungrouped again.
        let first = Uri::smallest();
        let free_groups: Vec<(GroupKey, OrdSet<TaskRank>)> = index
            .groups
            .range((list.clone(), false, first)..)
            .take_while(|((group_list, ..), _)| group_list == list)
            .filter(|((_, is_shared, uri), _)| !self.is_pattern_taken(uri, *is_shared, agent))
            .map(|(key, ranks)| (key.clone(), ranks.clone()))
            .collect();
        let mut sources = Vec::with_capacity(free_groups.len() + 1);
        for (key, ranks) in free_groups {
            if ranks.len() < GROUP_THRESHOLD as usize / 2 {
                index.groups.remove(&key);
                ranks.iter().for_each(|rank| index.ungroup(list, *rank));
            } else {
                sources.push(ranks);
            }
        }
        sources.extend(index.ungrouped.get(list).cloned());
        let mut heads: Vec<_> = sources.iter().map(|ranks| ranks.iter()).collect();
        let mut queue: BinaryHeap<Reverse<(TaskRank, usize)>> = heads
            .iter_mut()
            .enumerate()
            .filter_map(|(source, head)| head.next().map(|rank| Reverse((*rank, source))))
            .collect();
        while let Some(Reverse((rank, source))) = queue.pop() {
            queue.extend(heads[source].next().map(|head| Reverse((*head, source))));
            let Some(task) = self.tasks.get(&rank.1).filter(|task| fits(task)) else {
                continue;
            };
            let is_shared = manifest::claim_mode(self, task) == ClaimMode::Shared;
            let blocking_files = self
                .blocking_pattern(&manifest::claims_of_task(self, task), is_shared, agent)
                .map(|uri| (is_shared, uri));
            let blocking = blocking_files.or_else(|| {
                self.blocking_pattern(&claim::uris_of_task(task), false, agent)
                    .map(|uri| (false, uri))
            });
            match blocking {
                None => return Some(rank.1),
                Some((is_shared, uri)) => {
                    index.remove_ranked(list, rank);
                    index.group(list, rank, is_shared, uri);
                }
            }
        }
        None
    }

    /// Returns a pattern that others hold, or wait for, and that prevents `agent` from working on
    /// `uris`; `None` if nothing prevents it.
    fn blocking_pattern(&self, uris: &[Uri], shared: bool, agent: &AgentName) -> Option<Uri> {
        uris.iter().find_map(|uri| {
            let held = self
                .held_patterns
                .overlapping(uri)
                .find(|(id, theirs)| self.excludes_claim(*id, shared, theirs, agent));
            let waiting = || {
                self.awaited_patterns
                    .overlapping(uri)
                    .find(|(id, theirs)| self.excludes_wait(*id, shared, theirs, agent))
            };
            held.or_else(waiting).map(|(_, theirs)| theirs.clone())
        })
    }

    /// Returns whether others hold or wait for exactly this pattern or for a whole directory that
    /// contains it, so that `agent` cannot work on it.
    fn is_pattern_taken(&self, uri: &Uri, shared: bool, agent: &AgentName) -> bool {
        let is_covered = |index: &PatternIndex, excludes: &dyn Fn(u64) -> bool| {
            index.covering(uri).any(excludes)
        };
        is_covered(&self.held_patterns, &|id| {
            self.excludes_claim(id, shared, uri, agent)
        }) || is_covered(&self.awaited_patterns, &|id| {
            self.excludes_wait(id, shared, uri, agent)
        })
    }

    /// Returns whether the claim `id` prevents `agent` from working on the pattern `theirs`. A
    /// claim of the agent's own work does not prevent the agent, and neither does a shared claim if
    /// `shared` access is enough.
    fn excludes_claim(&self, id: u64, shared: bool, theirs: &Uri, agent: &AgentName) -> bool {
        self.claims.get(&ClaimId(id)).is_some_and(|held| {
            (!shared || held.mode == ClaimMode::Exclusive)
                && !claim::is_own(self, Party::Work(agent), theirs, &held.owner)
        })
    }

    /// Returns whether the waiting request `id` prevents `agent` from working on the pattern
    /// `theirs`, by the same rules as [`Board::excludes_claim`] for claims.
    fn excludes_wait(&self, id: u64, shared: bool, theirs: &Uri, agent: &AgentName) -> bool {
        self.waits.get(&WaitId(id)).is_some_and(|wait| {
            (!shared || wait.mode == ClaimMode::Exclusive)
                && !claim::is_own(self, Party::Work(agent), theirs, &wait.owner)
        })
    }
}
