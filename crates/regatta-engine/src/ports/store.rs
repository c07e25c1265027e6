//! The interface to storage, which stores each change, loads the unfinished work at the start, and
//! reads work that has ended.

use std::path::Path;
use std::sync::Arc;

use regatta_core::approval::Approval;
use regatta_core::attempt::Attempt;
use regatta_core::board::{Board, BoardMeta, Rows};
use regatta_core::bus::Message;
use regatta_core::conversation::Conversation;
use regatta_core::effect::{Effect, EffectKey};
use regatta_core::event::Recorded;
use regatta_core::hook::Firing;
use regatta_core::ids::{
    AgentName, ApprovalId, AttemptId, ChannelName, ConversationId, FiringId, HookId, Label,
    MessageId, MissionId, ProjectName, TaskId, TeamName,
};
use regatta_core::landing::Landing;
use regatta_core::launch::TeamLaunch;
use regatta_core::mission::Mission;
use regatta_core::search::SearchQuery;
use regatta_core::task::{Task, TaskStatus};

/// The changes of one transaction of the store. Either all of them are stored or none.
#[derive(Clone, Debug, Default)]
pub struct StoreBatch {
    /// The revision (event number) that the store must have before this batch. If the store has
    /// another revision, a second process is writing to the store, and nothing is stored.
    pub base_revision: u64,
    /// The counters of the board (the state of all unfinished work) as they are after the batch.
    pub meta: BoardMeta,
    /// The new events in order. Their revisions (event numbers) follow `base_revision` without
    /// gaps.
    pub events: Vec<Recorded>,
    /// The stored rows that the batch changes. `None` in place of a row means that the batch
    /// deletes the row.
    pub rows: Rows,
    /// The effects (outside actions such as starting a program) to add to the outbox, the stored
    /// list of uncompleted effects.
    pub effects: Vec<(EffectKey, Effect)>,
    /// The keys of completed effects (outside actions such as starting a program). The store
    /// removes these effects from the outbox, the stored list of uncompleted effects.
    pub completed_effects: Vec<EffectKey>,
}

/// The state that the store contains when the engine starts.
#[derive(Debug, Default)]
pub struct LoadedState {
    /// The board (the state of all unfinished work), exactly as it was after the last stored
    /// transaction before the start.
    pub board: Board,
    /// The effects (outside actions such as starting a program) that were stored but not yet
    /// completed, oldest first.
    pub outbox: Vec<(EffectKey, Effect)>,
    /// The stored rows, effects and events that could not be read. The board (the state of all
    /// unfinished work) was computed without them (D11).
    pub unreadable_rows: Vec<UnreadableRow>,
}

/// A stored row that this version of Regatta cannot read. The row stays in the store unchanged, so
/// that another version may read the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRow {
    pub table: &'static str,
    /// The key of the row in its table.
    pub id: String,
    pub reason: String,
}

impl std::fmt::Display for UnreadableRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "row {} of table {} ({})",
            self.id, self.table, self.reason
        )
    }
}

/// The part of a store that writes. Only the writer (the thread that decides and stores requests)
/// uses this part.
pub trait Store: Send {
    /// Reads the board (the state of all unfinished work) and the uncompleted effects (outside
    /// actions such as starting a program). Rows that cannot be read are left out and reported
    /// (D11).
    fn load(&mut self) -> Result<LoadedState, StoreError>;
    /// Stores a batch durably. When this method has returned, the batch survives a power cut.
    fn commit(&mut self, batch: &StoreBatch) -> Result<(), StoreError>;
    /// Returns the store's current revision (event number). After a failed commit, the revision
    /// shows whether the batch was stored after all.
    fn revision(&mut self) -> Result<u64, StoreError>;
    /// Checks the whole store for damage, including rows that cannot be read (D3).
    fn check(&mut self) -> Result<(), StoreError>;
    /// Writes an exact copy of the store, as of the last transaction, to a new file (D7).
    fn backup(&mut self, to: &Path) -> Result<(), StoreError>;
    /// Returns whether some committed changes are stored only as events, so that
    /// [`Store::flush_idle`] must still write the rows for these changes.
    fn has_deferred_rows(&self) -> bool {
        false
    }
    /// Writes the deferred rows that [`Store::has_deferred_rows`] reports. The writer (the thread
    /// that decides and stores requests) calls this method when no requests are waiting.
    fn flush_idle(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
    /// Returns the part of the store that reads. Any thread may use the returned part. A read
    /// blocks the writer (the thread that decides and stores requests) for no longer than a large
    /// transaction takes.
    fn history(&self) -> Arc<dyn StoreHistory>;
}

/// The conditions that messages must meet to be returned. A field that is `None` sets no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageFilter {
    pub channel: Option<ChannelName>,
    pub label: Option<Label>,
    /// Selects only messages of this sender, written as [`regatta_core::command::Actor`] prints it.
    pub from: Option<String>,
    pub mention: Option<AgentName>,
    /// Selects only messages that reply directly to this message.
    pub reply_to: Option<MessageId>,
    /// Selects only the messages of the thread that begins with this message, including this
    /// message.
    pub thread: Option<MessageId>,
    /// Selects only messages whose text matches this search.
    pub text: Option<SearchQuery>,
    /// Selects only messages that were sent at this date or later, in milliseconds since 1970.
    /// [`first_message_since`] finds the first of these messages.
    pub since_unix_ms: Option<u64>,
    /// Selects only messages that were sent up to this date, inclusive, in milliseconds since 1970.
    pub until_unix_ms: Option<u64>,
    /// Selects only messages that were posted after this message.
    pub after: Option<MessageId>,
    /// Selects only messages that were posted before this message.
    pub before: Option<MessageId>,
    /// The largest number of messages to return, in the order in which they were posted. If more
    /// messages match, the newest of them are returned. If `after` is set, the oldest of them are
    /// returned instead.
    pub limit: usize,
}

/// Returns the number of the first message that was sent at the date `unix_ms` or later. If there
/// is no such message, returns `last` plus one, where `last` is the highest number of a message.
/// `at_or_after` must return the number and date of the first message whose number is at least its
/// argument.
///
/// A binary search is used, because messages are in the order of their dates unless the computer's
/// clock was set back. Even then the search ends, and every store finds the same message (J12).
pub fn first_message_since<E>(
    unix_ms: u64,
    last: u64,
    mut at_or_after: impl FnMut(u64) -> Result<Option<(u64, u64)>, E>,
) -> Result<u64, E> {
    let (mut low, mut high) = (1, last.saturating_add(1));
    while low < high {
        let middle = low + (high - low) / 2;
        match at_or_after(middle)? {
            Some((id, date)) if date < unix_ms => low = id.saturating_add(1),
            _ => high = middle,
        }
    }
    Ok(low)
}

/// The conditions that tasks must meet to be returned. An empty list of statuses allows every
/// status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter {
    pub project: Option<ProjectName>,
    pub mission: Option<MissionId>,
    pub statuses: Vec<TaskStatus>,
    /// Selects only tasks whose number is higher than the number of this task.
    pub after: Option<TaskId>,
    /// The largest number of tasks to return, sorted by number. 0 means no limit.
    pub limit: usize,
}

/// The part of a store that reads everything that was ever stored, including tasks and attempts
/// that have ended.
pub trait StoreHistory: Send + Sync {
    /// Returns at most `limit` events after the revision (event number) `after`, in order. In place
    /// of an event that cannot be read, returns [`Event::EventUnreadable`].
    ///
    /// [`Event::EventUnreadable`]: regatta_core::event::Event::EventUnreadable
    fn events(&self, after: u64, limit: usize) -> Result<Vec<Recorded>, StoreError>;
    /// Returns the messages that meet the filter's conditions.
    fn messages(&self, filter: &MessageFilter) -> Result<Vec<Message>, StoreError>;
    /// Returns one message, or `None` if there is no message with this id.
    fn message(&self, id: MessageId) -> Result<Option<Message>, StoreError> {
        let after = Some(MessageId(id.0.saturating_sub(1)));
        let filter = MessageFilter {
            after,
            limit: 1,
            ..MessageFilter::default()
        };
        Ok(self
            .messages(&filter)?
            .pop()
            .filter(|message| message.id == id))
    }
    /// Returns the most recent firings of a hook (a rule that runs a command when something
    /// happens), or of all hooks if `hook` is `None`. Returns the newest firing first, at most
    /// `limit` firings, and only firings before the firing `before` if it is given.
    fn firings(
        &self,
        hook: Option<HookId>,
        before: Option<FiringId>,
        limit: usize,
    ) -> Result<Vec<Firing>, StoreError>;
    /// Returns the number of messages in a channel after the message `after`.
    fn count_messages(&self, channel: &ChannelName, after: MessageId) -> Result<u64, StoreError>;
    /// Returns a task, whether open or ended, or `None` if there is no such task.
    fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError>;
    /// Returns the tasks that meet the filter's conditions, sorted by number.
    fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, StoreError>;
    /// Returns the number of tasks that meet the filter's conditions. Ignores the filter's limit.
    fn count_tasks(&self, filter: &TaskFilter) -> Result<u64, StoreError> {
        Ok(self
            .tasks(&TaskFilter {
                limit: 0,
                ..filter.clone()
            })?
            .len() as u64)
    }
    /// Returns an attempt, whether running or ended, or `None` if there is no such attempt.
    fn attempt(&self, id: AttemptId) -> Result<Option<Attempt>, StoreError>;
    /// Returns a permission request or question of an agent, whether open, answered or withdrawn.
    /// Returns `None` if there is no such request.
    fn approval(&self, id: ApprovalId) -> Result<Option<Approval>, StoreError>;
    /// Returns all attempts at a task, sorted by number.
    fn attempts_of(&self, task: TaskId) -> Result<Vec<Attempt>, StoreError>;
    /// Returns the newest landings (finished work on its way to the trunk) of a project, newest
    /// first, at most `limit`. Includes landings that have left the queue.
    fn landings(&self, project: &ProjectName, limit: usize) -> Result<Vec<Landing>, StoreError>;
    /// Returns the newest launches of a team, newest first, at most `limit`. Includes the launch
    /// that runs now.
    fn launches(&self, team: &TeamName, limit: usize) -> Result<Vec<TeamLaunch>, StoreError>;
    /// Returns the newest conversations, newest first, at most `limit`. Includes closed
    /// conversations.
    fn conversations(&self, limit: usize) -> Result<Vec<Conversation>, StoreError>;
    fn conversation(&self, id: ConversationId) -> Result<Option<Conversation>, StoreError>;
    /// Returns a mission (a goal with its tasks), with `true` if it runs and `false` if it has
    /// ended. Returns `None` if there is no such mission.
    fn mission(&self, id: MissionId) -> Result<Option<(Mission, bool)>, StoreError>;
}

/// An error of the store, worded for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// The kind of error: `disk_full`, `read_only`, `corrupt`, `store_behind`, `newer_version`,
    /// `old_sqlite`, `second_writer`, `io`.
    pub code: &'static str,
    /// A sentence about what happened and why, without a full stop at the end.
    pub message: String,
    /// What the person can do next, for example run a command.
    pub hint: String,
}
