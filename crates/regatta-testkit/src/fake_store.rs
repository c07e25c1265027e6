//! A fake of the store that works in memory, behaves like the SQLite store, and can be made to
//! fail.
//!
//! A clone is another handle to the same data. To simulate a restart, a test drops the engine and
//! loads its state from a clone.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regatta_core::approval::Approval;
use regatta_core::attempt::Attempt;
use regatta_core::board::{Board, BoardMeta, Row, RowKey};
use regatta_core::bus::Message;
use regatta_core::conversation::Conversation;
use regatta_core::effect::{Effect, EffectKey};
use regatta_core::event::Recorded;
use regatta_core::hook::Firing;
use regatta_core::ids::{
    ApprovalId, AttemptId, ChannelName, ConversationId, FiringId, HookId, MessageId, MissionId,
    ProjectName, TaskId, TeamName,
};
use regatta_core::landing::Landing;
use regatta_core::launch::TeamLaunch;
use regatta_core::mission::Mission;
use regatta_core::task::Task;
use regatta_engine::ports::store::{
    LoadedState, MessageFilter, Store, StoreBatch, StoreError, StoreHistory, TaskFilter,
    first_message_since,
};

/// The way in which a transaction of the store fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitFault {
    /// The transaction fails before anything is stored, as when the disk is full.
    BeforeCommit(StoreError),
    /// The batch is stored, but the caller gets an error, as after a crash directly after the
    /// transaction.
    AfterCommit(StoreError),
}

#[derive(Clone, Debug, Default)]
struct StoredData {
    meta: BoardMeta,
    rows: BTreeMap<RowKey, Row>,
    events: Vec<Recorded>,
    outbox: BTreeMap<EffectKey, Effect>,
}

#[derive(Debug, Default)]
struct SharedState {
    data: StoredData,
    /// A failure that is planned: after this many further successful transactions, the next one
    /// fails in this way.
    next_fault: Option<(usize, CommitFault)>,
    /// True if every transaction fails because the disk is full.
    is_full: bool,
    commit_count: usize,
    lag: Option<Lag>,
    backups: BTreeMap<PathBuf, StoredData>,
}

/// Simulates a store that writes rows some time after their events.
#[derive(Debug)]
struct Lag {
    is_behind: bool,
    /// The number of further calls to `flush_idle` that fail.
    failures_left: usize,
}

/// The fake of the store. Clones share their data.
#[derive(Clone, Debug, Default)]
pub struct FakeStore {
    shared: Arc<Mutex<SharedState>>,
}

impl FakeStore {
    /// Returns an empty store.
    pub fn new() -> FakeStore {
        FakeStore::default()
    }

    /// Makes the next transaction fail.
    pub fn fail_next(&self, fault: CommitFault) {
        self.fail_after(0, fault);
    }

    /// Makes a transaction fail after `commits` further transactions have succeeded.
    pub fn fail_after(&self, commits: usize, fault: CommitFault) {
        self.lock().next_fault = Some((commits, fault));
    }

    /// Sets whether every transaction fails because the disk is full.
    pub fn set_full(&self, is_full: bool) {
        self.lock().is_full = is_full;
    }

    /// Makes the store write rows only in `flush_idle` and not together with their events. The next
    /// `failures` calls of `flush_idle` fail.
    pub fn set_behind(&self, failures: usize) {
        self.lock().lag = Some(Lag {
            is_behind: false,
            failures_left: failures,
        });
    }

    /// Returns the number of successful transactions.
    pub fn commit_count(&self) -> usize {
        self.lock().commit_count
    }

    /// Returns a separate store with a copy of the data, as a crash at this moment would leave it.
    pub fn snapshot(&self) -> FakeStore {
        FakeStore::from_data(self.lock().data.clone())
    }

    /// Opens the backup that [`Store::backup`] made under the name `path`. The backup is in memory,
    /// so there is no file at that path.
    pub fn open_backup(&self, path: &Path) -> Option<FakeStore> {
        self.lock()
            .backups
            .get(path)
            .cloned()
            .map(FakeStore::from_data)
    }

    fn from_data(kept: StoredData) -> FakeStore {
        FakeStore {
            shared: Arc::new(Mutex::new(SharedState {
                data: kept,
                ..SharedState::default()
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rows<T>(&self, choose: impl Fn(&Row) -> Option<T>) -> Vec<T> {
        self.lock().data.rows.values().filter_map(choose).collect()
    }
}

fn store_error(code: &'static str, description: String) -> StoreError {
    StoreError {
        code,
        message: description,
        hint: "see the test".into(),
    }
}

impl StoredData {
    fn store(&mut self, batch: &StoreBatch) -> Result<(), StoreError> {
        if self.meta.revision != batch.base_revision {
            return Err(store_error(
                "second_writer",
                format!(
                    "the store has stored events up to number {}, but the batch begins after number {}",
                    self.meta.revision, batch.base_revision
                ),
            ));
        }
        let expected = (batch.base_revision + 1..).zip(&batch.events);
        if let Some((at, found)) = expected
            .into_iter()
            .find(|(at, event)| *at != event.revision)
        {
            return Err(store_error(
                "io",
                format!(
                    "the batch has event {} in the place of event {at}",
                    found.revision
                ),
            ));
        }
        if batch.meta.revision != batch.base_revision + batch.events.len() as u64 {
            return Err(store_error(
                "io",
                format!(
                    "the last event of the batch is not number {}, the batch's revision",
                    batch.meta.revision
                ),
            ));
        }
        if let Some((key, _)) = batch
            .effects
            .iter()
            .find(|effect| self.outbox.contains_key(&effect.0))
        {
            return Err(store_error(
                "io",
                format!(
                    "the effect {key} is already in the outbox (the list of effects to perform)"
                ),
            ));
        }
        self.meta = batch.meta;
        self.events.extend(batch.events.iter().cloned());
        for (key, row) in &batch.rows {
            match row {
                Some(row) => self.rows.insert(key.clone(), row.clone()),
                None => self.rows.remove(key),
            };
        }
        self.outbox.extend(batch.effects.iter().cloned());
        for key in &batch.completed_effects {
            self.outbox.remove(key);
        }
        Ok(())
    }
}

impl Store for FakeStore {
    fn load(&mut self) -> Result<LoadedState, StoreError> {
        let SharedState { data: kept, .. } = &*self.lock();
        let live = kept.rows.values().filter(|row| row.is_live()).cloned();
        let board = Board::from_rows(live.chain([Row::Meta(kept.meta)]));
        let outbox = kept
            .outbox
            .iter()
            .map(|(key, effect)| (*key, effect.clone()))
            .collect();
        Ok(LoadedState {
            board,
            outbox,
            unreadable_rows: vec![],
        })
    }

    fn commit(&mut self, batch: &StoreBatch) -> Result<(), StoreError> {
        let mut shared = self.lock();
        if shared.is_full {
            return Err(store_error("disk_full", "the disk is full".into()));
        }
        let fault = match shared.next_fault.take() {
            Some((0, fault)) => Some(fault),
            Some((left, fault)) => {
                shared.next_fault = Some((left - 1, fault));
                None
            }
            None => None,
        };
        if let Some(CommitFault::BeforeCommit(error)) = fault {
            return Err(error);
        }
        shared.data.store(batch)?;
        shared.commit_count += 1;
        if let Some(lag) = &mut shared.lag {
            lag.is_behind = true;
        }
        match fault {
            Some(CommitFault::AfterCommit(error)) => Err(error),
            _ => Ok(()),
        }
    }

    fn revision(&mut self) -> Result<u64, StoreError> {
        Ok(self.lock().data.meta.revision)
    }

    fn has_deferred_rows(&self) -> bool {
        self.lock().lag.as_ref().is_some_and(|lag| lag.is_behind)
    }

    fn flush_idle(&mut self) -> Result<(), StoreError> {
        match &mut self.lock().lag {
            Some(Lag {
                failures_left: failures,
                ..
            }) if *failures > 0 => {
                *failures -= 1;
                Err(store_error("disk_full", "the disk is full".into()))
            }
            Some(lag) => {
                lag.is_behind = false;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn check(&mut self) -> Result<(), StoreError> {
        let SharedState { data: kept, .. } = &*self.lock();
        let last = kept.events.last().map_or(0, |event| event.revision);
        let whole = (1..)
            .zip(&kept.events)
            .all(|(at, event)| at == event.revision)
            && last == kept.meta.revision;
        if whole {
            Ok(())
        } else {
            Err(store_error(
                "corrupt",
                "an event is missing from the event log".into(),
            ))
        }
    }

    fn backup(&mut self, target: &Path) -> Result<(), StoreError> {
        let mut shared = self.lock();
        if target.exists() || shared.backups.contains_key(target) {
            return Err(store_error(
                "io",
                format!("the backup {} already exists", target.display()),
            ));
        }
        let copy = shared.data.clone();
        shared.backups.insert(target.to_owned(), copy);
        Ok(())
    }

    fn history(&self) -> Arc<dyn StoreHistory> {
        Arc::new(self.clone())
    }
}

impl StoreHistory for FakeStore {
    fn events(&self, after: u64, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        Ok(self
            .lock()
            .data
            .events
            .iter()
            .filter(|event| event.revision > after)
            .take(limit)
            .cloned()
            .collect())
    }

    fn messages(&self, filter: &MessageFilter) -> Result<Vec<Message>, StoreError> {
        let all: BTreeMap<u64, u64> = self
            .rows(|row| {
                if let Row::Message(message) = row {
                    Some((message.id.0, message.unix_ms))
                } else {
                    None
                }
            })
            .into_iter()
            .collect();
        let last = all.keys().next_back().copied().unwrap_or(0);
        let first = |unix_ms| -> u64 {
            let Ok(found) = first_message_since(unix_ms, last, |id| {
                Ok::<_, Infallible>(all.range(id..).next().map(|(id, unix_ms)| (*id, *unix_ms)))
            });
            found
        };
        let (since, until) = (
            filter.since_unix_ms.map(first),
            filter
                .until_unix_ms
                .map(|until| first(until.saturating_add(1))),
        );
        let mut found = self.rows(|row| match row {
            Row::Message(message)
                if filter
                    .channel
                    .as_ref()
                    .is_none_or(|channel| message.channel == *channel)
                    && filter
                        .label
                        .as_ref()
                        .is_none_or(|label| message.labels.contains(label))
                    && filter
                        .from
                        .as_ref()
                        .is_none_or(|sender| message.sender.to_string() == *sender)
                    && filter
                        .mention
                        .as_ref()
                        .is_none_or(|mention| message.mentions.contains(mention))
                    && filter
                        .reply_to
                        .is_none_or(|reply_to| message.reply_to == Some(reply_to))
                    && filter.thread.is_none_or(|thread| message.root() == thread)
                    && filter
                        .text
                        .as_ref()
                        .is_none_or(|text| text.matches(&message.text))
                    && since.is_none_or(|since| message.id.0 >= since)
                    && until.is_none_or(|until| message.id.0 < until)
                    && filter.before.is_none_or(|before| message.id < before)
                    && filter.after.is_none_or(|after| message.id > after) =>
            {
                Some(Message::clone(message))
            }
            _ => None,
        });
        match filter.after {
            Some(_) => found.truncate(filter.limit),
            None => drop(found.drain(..found.len().saturating_sub(filter.limit))),
        }
        Ok(found)
    }

    fn firings(
        &self,
        hook: Option<HookId>,
        before: Option<FiringId>,
        limit: usize,
    ) -> Result<Vec<Firing>, StoreError> {
        let mut found = self.rows(|row| match row {
            Row::Firing(firing)
                if hook.is_none_or(|hook| firing.hook == hook)
                    && before.is_none_or(|before| firing.id < before) =>
            {
                Some(Firing::clone(firing))
            }
            _ => None,
        });
        found.reverse();
        found.truncate(limit);
        Ok(found)
    }

    fn count_messages(&self, channel: &ChannelName, after: MessageId) -> Result<u64, StoreError> {
        let found = self.rows(|row| {
            matches!(row, Row::Message(message) if message.channel == *channel && message.id > after).then_some(())
        });
        Ok(found.len() as u64)
    }

    fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        Ok(self
            .rows(|row| {
                if let Row::Task(task) = row {
                    (task.id == id).then(|| Task::clone(task))
                } else {
                    None
                }
            })
            .pop())
    }

    fn approval(&self, id: ApprovalId) -> Result<Option<Approval>, StoreError> {
        let matching = |row: &Row| {
            if let Row::Approval(approval) = row {
                (approval.id == id).then(|| Approval::clone(approval))
            } else {
                None
            }
        };
        Ok(self.rows(matching).pop())
    }

    fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, StoreError> {
        let mut found = self.rows(|row| match row {
            Row::Task(task)
                if filter
                    .project
                    .as_ref()
                    .is_none_or(|project| task.project == *project)
                    && filter
                        .mission
                        .is_none_or(|mission| task.mission == Some(mission))
                    && (filter.statuses.is_empty() || filter.statuses.contains(&task.status))
                    && filter.after.is_none_or(|after| task.id > after) =>
            {
                Some(Task::clone(task))
            }
            _ => None,
        });
        if filter.limit > 0 {
            found.truncate(filter.limit);
        }
        Ok(found)
    }

    fn attempt(&self, id: AttemptId) -> Result<Option<Attempt>, StoreError> {
        Ok(self
            .rows(|row| {
                if let Row::Attempt(attempt) = row {
                    (attempt.id == id).then(|| Attempt::clone(attempt))
                } else {
                    None
                }
            })
            .pop())
    }

    fn attempts_of(&self, task: TaskId) -> Result<Vec<Attempt>, StoreError> {
        Ok(self.rows(|row| {
            if let Row::Attempt(attempt) = row {
                (attempt.task == task).then(|| Attempt::clone(attempt))
            } else {
                None
            }
        }))
    }

    fn landings(&self, project: &ProjectName, limit: usize) -> Result<Vec<Landing>, StoreError> {
        let mut found = self.rows(|row| {
            if let Row::Landing(landing) = row {
                (landing.project == *project).then(|| Landing::clone(landing))
            } else {
                None
            }
        });
        found.reverse();
        found.truncate(limit);
        Ok(found)
    }

    fn launches(&self, team: &TeamName, limit: usize) -> Result<Vec<TeamLaunch>, StoreError> {
        let mut found = self.rows(|row| {
            if let Row::Launch(team_launch) = row {
                (team_launch.team == *team).then(|| TeamLaunch::clone(team_launch))
            } else {
                None
            }
        });
        found.reverse();
        found.truncate(limit);
        Ok(found)
    }

    fn conversations(&self, limit: usize) -> Result<Vec<Conversation>, StoreError> {
        let mut found = self.rows(|row| {
            if let Row::Conversation(conversation) = row {
                Some(Conversation::clone(conversation))
            } else {
                None
            }
        });
        found.reverse();
        found.truncate(limit);
        Ok(found)
    }

    fn conversation(&self, id: ConversationId) -> Result<Option<Conversation>, StoreError> {
        let matching = |row: &Row| match row {
            Row::Conversation(conversation) => {
                (conversation.id == id).then(|| Conversation::clone(conversation))
            }
            _ => None,
        };
        Ok(self.rows(matching).pop())
    }

    fn mission(&self, id: MissionId) -> Result<Option<(Mission, bool)>, StoreError> {
        Ok(self
            .rows(|row| {
                if let Row::Mission(mission, live) = row {
                    (mission.id == id).then(|| (Mission::clone(mission), *live))
                } else {
                    None
                }
            })
            .pop())
    }
}
