//! An index of ready tasks, which skips tasks that wait for the same pattern as one group.
//!
//! With ten thousand ready tasks that need one file, checking each task takes longer than starting
//! one. So tasks are grouped: every task of a group needs something that one pattern overlaps.
//! While somebody holds that pattern, or a directory above it, one check skips the whole group. The
//! other tasks are ungrouped and are checked one by one. A task that turns out to wait for a
//! pattern joins the group of that pattern.
//!
//! The group of a task is a hint. It never changes an answer, only the time that the answer takes.
//! It depends on earlier queries, so it does not count when two boards are compared.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use imbl::{OrdMap, OrdSet};

use crate::claim::{self, ClaimMode, Party};
use crate::ids::{AgentName, ClaimId, TaskId, WaitId};
use crate::manifest;
use crate::pattern::{PatternIndex, Uri};
use crate::task::Task;

use super::{Board, ReadyFor};

/// The number of ready tasks on a pattern from which a group of its own is worth its cost.
const GROUP_THRESHOLD: u32 = 64;

/// A group's ready list, a flag for shared claims, and the group's pattern.
type GroupKey = (ReadyFor, bool, Uri);
/// Priority and id: the order of tasks within a group.
type TaskRank = (u8, TaskId);

#[derive(Clone, Debug, Default)]
pub(crate) struct ReadyIndex {
    ungrouped: OrdMap<ReadyFor, OrdSet<TaskRank>>,
    groups: OrdMap<GroupKey, OrdSet<TaskRank>>,
    group_of: OrdMap<TaskId, (bool, Uri)>,
    /// The number of ready tasks that need exactly a pattern, or something below a directory. The
    /// key is a hash of the text, because a collision costs only time.
    demand: OrdMap<u64, u32>,
}

/// Two indexes are always equal, because they hold only hints.
impl PartialEq for ReadyIndex {
    fn eq(&self, _: &ReadyIndex) -> bool {
        true
    }
}

fn hash(parts: [&str; 2]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the directories above a pattern, deepest first, without the project's own directory.
fn ancestor_dirs(uri: &Uri) -> impl Iterator<Item = &str> {
    let start = uri.as_str().find("://").map_or(0, |uri| uri + 3);
    let inside = uri.as_str()[start..]
        .find('/')
        .map_or(uri.as_str().len(), |uri| start + uri + 1);
    let literal = uri.literal_segments();
    let last = literal.len();
    literal
        .match_indices('/')
        .map(|match_indice| match_indice.0)
        .filter(move |match_indice| *match_indice >= inside)
        .chain((last < uri.as_str().len() && last > inside).then_some(last))
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .map(move |at| &literal[..at])
}

const SUBTREE_SUFFIX: &str = "/**";

impl ReadyIndex {
    pub(super) fn insert(&mut self, line: &ReadyFor, task: &Task, uris: &[Uri], shared: bool) {
        let mut hottest: Option<(u32, &Uri)> = None;
        for uri in uris {
            let heat = self.count_up(hash([uri.as_str(), ""]));
            if heat >= GROUP_THRESHOLD && hottest.is_none_or(|hottest| hottest.0 < heat) {
                hottest = Some((heat, uri));
            }
            for folder in ancestor_dirs(uri) {
                self.count_up(hash([folder, SUBTREE_SUFFIX]));
            }
        }
        let folder = || {
            let hot = |s: &&str| {
                self.demand
                    .get(&hash([s, SUBTREE_SUFFIX]))
                    .is_some_and(|demand| *demand >= GROUP_THRESHOLD)
            };
            uris.iter()
                .find_map(|uri| ancestor_dirs(uri).find(hot))
                .and_then(|uris| Uri::new(&format!("{uris}{SUBTREE_SUFFIX}")).ok())
        };
        let place = (task.priority, task.id);
        match hottest.map(|hottest| hottest.1.clone()).or_else(folder) {
            Some(uri) => self.group(line, place, shared, uri),
            None => self.ungroup(line, place),
        }
    }

    pub(super) fn remove(&mut self, line: &ReadyFor, task: &Task, uris: &[Uri]) {
        for uri in uris {
            self.count_down(hash([uri.as_str(), ""]));
            for folder in ancestor_dirs(uri) {
                self.count_down(hash([folder, SUBTREE_SUFFIX]));
            }
        }
        self.remove_ranked(line, (task.priority, task.id));
    }

    fn count_up(&mut self, key: u64) -> u32 {
        let heat = self.demand.get(&key).copied().unwrap_or(0) + 1;
        self.demand.insert(key, heat);
        heat
    }

    fn count_down(&mut self, key: u64) {
        match self.demand.get(&key).copied() {
            Some(0 | 1) | None => _ = self.demand.remove(&key),
            Some(heat) => _ = self.demand.insert(key, heat - 1),
        }
    }

    fn ungroup(&mut self, line: &ReadyFor, place: TaskRank) {
        self.group_of.remove(&place.1);
        match self.ungrouped.get_mut(line) {
            Some(here) => _ = here.insert(place),
            None => _ = self.ungrouped.insert(line.clone(), OrdSet::unit(place)),
        }
    }

    fn group(&mut self, line: &ReadyFor, place: TaskRank, shared: bool, uri: Uri) {
        self.group_of.insert(place.1, (shared, uri.clone()));
        let key = (line.clone(), shared, uri);
        match self.groups.get_mut(&key) {
            Some(here) => _ = here.insert(place),
            None => _ = self.groups.insert(key, OrdSet::unit(place)),
        }
    }

    fn remove_ranked(&mut self, line: &ReadyFor, place: TaskRank) {
        match self.group_of.remove(&place.1) {
            Some((shared, uri)) => {
                let key = (line.clone(), shared, uri);
                if let Some(here) = self.groups.get_mut(&key) {
                    here.remove(&place);
                    if here.is_empty() {
                        self.groups.remove(&key);
                    }
                }
            }
            None => {
                if let Some(here) = self.ungrouped.get_mut(line) {
                    here.remove(&place);
                    if here.is_empty() {
                        self.ungrouped.remove(line);
                    }
                }
            }
        }
    }
}

impl Board {
    /// Returns the first ready task of a list that `fits` accepts and that no claim of others keeps
    /// `agent` from starting.
    pub(crate) fn first_startable(
        &self,
        lots: &mut ReadyIndex,
        line: &ReadyFor,
        agent: &AgentName,
        fits: impl Fn(&Task) -> bool,
    ) -> Option<TaskId> {
        // A group that is free and small does not pay, so its tasks become ungrouped again.
        let first = Uri::smallest();
        let here: Vec<(GroupKey, OrdSet<TaskRank>)> = lots
            .groups
            .range((line.clone(), false, first)..)
            .take_while(|group| group.0.0 == *line)
            .filter(|group| !self.is_pattern_taken(&group.0.2, group.0.1, agent))
            .map(|group| (group.0.clone(), group.1.clone()))
            .collect();
        let mut sources = Vec::with_capacity(here.len() + 1);
        for (key, places) in here {
            if places.len() < GROUP_THRESHOLD as usize / 2 {
                lots.groups.remove(&key);
                places.iter().for_each(|place| lots.ungroup(line, *place));
            } else {
                sources.push(places);
            }
        }
        sources.extend(lots.ungrouped.get(line).cloned());
        let mut heads: Vec<_> = sources
            .iter()
            .map(|generic_ord_set| generic_ord_set.iter())
            .collect();
        let mut order: BinaryHeap<Reverse<(TaskRank, usize)>> = heads
            .iter_mut()
            .enumerate()
            .filter_map(|(nth, head)| head.next().map(|pair| Reverse((*pair, nth))))
            .collect();
        while let Some(Reverse((place, nth))) = order.pop() {
            order.extend(heads[nth].next().map(|head| Reverse((*head, nth))));
            let Some(task) = self.tasks.get(&place.1).filter(|task| fits(task)) else {
                continue;
            };
            let shared = manifest::claim_mode(self, task) == ClaimMode::Shared;
            let files = self
                .blocking_pattern(&manifest::claims_of_task(self, task), shared, agent)
                .map(|uri| (shared, uri));
            let in_its_way = files.or_else(|| {
                self.blocking_pattern(&claim::uris_of_task(task), false, agent)
                    .map(|uri| (false, uri))
            });
            match in_its_way {
                None => return Some(place.1),
                Some((shared, uri)) => {
                    lots.remove_ranked(line, place);
                    lots.group(line, place, shared, uri);
                }
            }
        }
        None
    }

    /// Returns a pattern that somebody holds or waits for, and that conflicts with `uris` when
    /// `agent` wants to work with them.
    fn blocking_pattern(&self, uris: &[Uri], shared: bool, agent: &AgentName) -> Option<Uri> {
        uris.iter().find_map(|uri| {
            let held = self
                .held_patterns
                .overlapping(uri)
                .find(|(number, theirs)| self.excludes_claim(*number, shared, theirs, agent));
            let waiting = || {
                self.awaited_patterns
                    .overlapping(uri)
                    .find(|(number, theirs)| self.excludes_wait(*number, shared, theirs, agent))
            };
            held.or_else(waiting).map(|(_, theirs)| theirs.clone())
        })
    }

    /// Returns whether somebody other than `agent` holds or waits for this very pattern, or for a
    /// whole directory above it.
    fn is_pattern_taken(&self, uri: &Uri, shared: bool, agent: &AgentName) -> bool {
        let covering = |index: &PatternIndex, excludes: &dyn Fn(u64) -> bool| {
            index.covering(uri).any(excludes)
        };
        covering(&self.held_patterns, &|number| {
            self.excludes_claim(number, shared, uri, agent)
        }) || covering(&self.awaited_patterns, &|number| {
            self.excludes_wait(number, shared, uri, agent)
        })
    }

    fn excludes_claim(&self, number: u64, shared: bool, theirs: &Uri, agent: &AgentName) -> bool {
        self.claims.get(&ClaimId(number)).is_some_and(|held| {
            (!shared || held.mode == ClaimMode::Exclusive)
                && !claim::is_own(self, Party::Work(agent), theirs, &held.owner)
        })
    }

    fn excludes_wait(&self, number: u64, shared: bool, theirs: &Uri, agent: &AgentName) -> bool {
        self.waits.get(&WaitId(number)).is_some_and(|wait| {
            (!shared || wait.mode == ClaimMode::Exclusive)
                && !claim::is_own(self, Party::Work(agent), theirs, &wait.owner)
        })
    }
}
