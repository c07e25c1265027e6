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

use crate::claim::{self, Mode, Party};
use crate::ids::{AgentName, ClaimId, TaskId, WaitId};
use crate::manifest;
use crate::pattern::{PatternIndex, Uri};
use crate::task::Task;

use super::{Board, ReadyFor};

/// The number of ready tasks on a pattern from which a group of its own is worth its cost.
const HOT: u32 = 64;

/// A group's ready list, a flag for shared claims, and the group's pattern.
type Key = (ReadyFor, bool, Uri);
/// Priority and id: the order of tasks within a group.
type Place = (u8, TaskId);

#[derive(Clone, Debug, Default)]
pub(crate) struct Lots {
    loose: OrdMap<ReadyFor, OrdSet<Place>>,
    lots: OrdMap<Key, OrdSet<Place>>,
    lot_of: OrdMap<TaskId, (bool, Uri)>,
    /// The number of ready tasks that need exactly a pattern, or something below a directory. The
    /// key is a hash of the text, because a collision costs only time.
    heat: OrdMap<u64, u32>,
}

/// Two indexes are always equal, because they hold only hints.
impl PartialEq for Lots {
    fn eq(&self, _: &Lots) -> bool {
        true
    }
}

fn hash(parts: [&str; 2]) -> u64 {
    let bytes = parts.iter().flat_map(|it| it.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the directories above a pattern, deepest first, without the project's own directory.
fn above(uri: &Uri) -> impl Iterator<Item = &str> {
    let start = uri.as_str().find("://").map_or(0, |it| it + 3);
    let inside = uri.as_str()[start..].find('/').map_or(uri.as_str().len(), |it| start + it + 1);
    let literal = uri.literal();
    let last = literal.len();
    literal
        .match_indices('/')
        .map(|it| it.0)
        .filter(move |it| *it >= inside)
        .chain((last < uri.as_str().len() && last > inside).then_some(last))
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .map(move |at| &literal[..at])
}

const BELOW: &str = "/**";

impl Lots {
    pub(super) fn insert(&mut self, line: &ReadyFor, task: &Task, uris: &[Uri], shared: bool) {
        let mut hottest: Option<(u32, &Uri)> = None;
        for uri in uris {
            let heat = self.warm(hash([uri.as_str(), ""]));
            if heat >= HOT && hottest.is_none_or(|it| it.0 < heat) {
                hottest = Some((heat, uri));
            }
            for folder in above(uri) {
                self.warm(hash([folder, BELOW]));
            }
        }
        let folder = || {
            let hot = |it: &&str| self.heat.get(&hash([it, BELOW])).is_some_and(|it| *it >= HOT);
            uris.iter().find_map(|uri| above(uri).find(hot)).and_then(|it| Uri::new(&format!("{it}{BELOW}")).ok())
        };
        let place = (task.priority, task.id);
        match hottest.map(|it| it.1.clone()).or_else(folder) {
            Some(uri) => self.park(line, place, shared, uri),
            None => self.loosen(line, place),
        }
    }

    pub(super) fn remove(&mut self, line: &ReadyFor, task: &Task, uris: &[Uri]) {
        for uri in uris {
            self.cool(hash([uri.as_str(), ""]));
            for folder in above(uri) {
                self.cool(hash([folder, BELOW]));
            }
        }
        self.take(line, (task.priority, task.id));
    }

    fn warm(&mut self, key: u64) -> u32 {
        let heat = self.heat.get(&key).copied().unwrap_or(0) + 1;
        self.heat.insert(key, heat);
        heat
    }

    fn cool(&mut self, key: u64) {
        match self.heat.get(&key).copied() {
            Some(0 | 1) | None => _ = self.heat.remove(&key),
            Some(heat) => _ = self.heat.insert(key, heat - 1),
        }
    }

    fn loosen(&mut self, line: &ReadyFor, place: Place) {
        self.lot_of.remove(&place.1);
        match self.loose.get_mut(line) {
            Some(here) => _ = here.insert(place),
            None => _ = self.loose.insert(line.clone(), OrdSet::unit(place)),
        }
    }

    fn park(&mut self, line: &ReadyFor, place: Place, shared: bool, uri: Uri) {
        self.lot_of.insert(place.1, (shared, uri.clone()));
        let key = (line.clone(), shared, uri);
        match self.lots.get_mut(&key) {
            Some(here) => _ = here.insert(place),
            None => _ = self.lots.insert(key, OrdSet::unit(place)),
        }
    }

    fn take(&mut self, line: &ReadyFor, place: Place) {
        match self.lot_of.remove(&place.1) {
            Some((shared, uri)) => {
                let key = (line.clone(), shared, uri);
                if let Some(here) = self.lots.get_mut(&key) {
                    here.remove(&place);
                    if here.is_empty() {
                        self.lots.remove(&key);
                    }
                }
            }
            None => {
                if let Some(here) = self.loose.get_mut(line) {
                    here.remove(&place);
                    if here.is_empty() {
                        self.loose.remove(line);
                    }
                }
            }
        }
    }
}

impl Board {
    /// Returns the first ready task of a list that `fits` accepts and that no claim of others keeps
    /// `agent` from starting.
    pub(crate) fn first_free(
        &self,
        lots: &mut Lots,
        line: &ReadyFor,
        agent: &AgentName,
        fits: impl Fn(&Task) -> bool,
    ) -> Option<TaskId> {
        // A group that is free and small does not pay, so its tasks become ungrouped again.
        let first = Uri::least();
        let here: Vec<(Key, OrdSet<Place>)> = lots
            .lots
            .range((line.clone(), false, first)..)
            .take_while(|it| it.0.0 == *line)
            .filter(|it| !self.covers(&it.0.2, it.0.1, agent))
            .map(|it| (it.0.clone(), it.1.clone()))
            .collect();
        let mut sources = Vec::with_capacity(here.len() + 1);
        for (key, places) in here {
            if places.len() < HOT as usize / 2 {
                lots.lots.remove(&key);
                places.iter().for_each(|it| lots.loosen(line, *it));
            } else {
                sources.push(places);
            }
        }
        sources.extend(lots.loose.get(line).cloned());
        let mut heads: Vec<_> = sources.iter().map(|it| it.iter()).collect();
        let mut order: BinaryHeap<Reverse<(Place, usize)>> =
            heads.iter_mut().enumerate().filter_map(|(nth, it)| it.next().map(|it| Reverse((*it, nth)))).collect();
        while let Some(Reverse((place, nth))) = order.pop() {
            order.extend(heads[nth].next().map(|it| Reverse((*it, nth))));
            let Some(task) = self.tasks.get(&place.1).filter(|it| fits(it)) else { continue };
            let shared = manifest::mode(self, task) == Mode::Shared;
            let files = self.in_its_way(&manifest::claims(self, task), shared, agent).map(|uri| (shared, uri));
            let in_its_way =
                files.or_else(|| self.in_its_way(&claim::of_task(task), false, agent).map(|uri| (false, uri)));
            match in_its_way {
                None => return Some(place.1),
                Some((shared, uri)) => {
                    lots.take(line, place);
                    lots.park(line, place, shared, uri);
                }
            }
        }
        None
    }

    /// Returns a pattern that somebody holds or waits for, and that conflicts with `uris` when
    /// `agent` wants to work with them.
    fn in_its_way(&self, uris: &[Uri], shared: bool, agent: &AgentName) -> Option<Uri> {
        uris.iter().find_map(|uri| {
            let held =
                self.held.overlapping(uri).find(|(number, theirs)| self.excludes_claim(*number, shared, theirs, agent));
            let waiting = || {
                self.waiting
                    .overlapping(uri)
                    .find(|(number, theirs)| self.excludes_wait(*number, shared, theirs, agent))
            };
            held.or_else(waiting).map(|(_, theirs)| theirs.clone())
        })
    }

    /// Returns whether somebody other than `agent` holds or waits for this very pattern, or for a
    /// whole directory above it.
    fn covers(&self, uri: &Uri, shared: bool, agent: &AgentName) -> bool {
        let covering = |index: &PatternIndex, excludes: &dyn Fn(u64) -> bool| index.covering(uri).any(excludes);
        covering(&self.held, &|number| self.excludes_claim(number, shared, uri, agent))
            || covering(&self.waiting, &|number| self.excludes_wait(number, shared, uri, agent))
    }

    fn excludes_claim(&self, number: u64, shared: bool, theirs: &Uri, agent: &AgentName) -> bool {
        self.claims.get(&ClaimId(number)).is_some_and(|held| {
            (!shared || held.mode == Mode::Exclusive) && !claim::is_own(self, Party::Work(agent), theirs, &held.owner)
        })
    }

    fn excludes_wait(&self, number: u64, shared: bool, theirs: &Uri, agent: &AgentName) -> bool {
        self.waits.get(&WaitId(number)).is_some_and(|wait| {
            (!shared || wait.mode == Mode::Exclusive) && !claim::is_own(self, Party::Work(agent), theirs, &wait.owner)
        })
    }
}
