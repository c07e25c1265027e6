//! What the engine needs from storage: keep commits, give the board back, read history.

use std::path::Path;
use std::sync::Arc;

use regatta_core::approval::Approval;
use regatta_core::attempt::Attempt;
use regatta_core::board::{Board, Meta, Rows};
use regatta_core::bus::Message;
use regatta_core::conversation::Conversation;
use regatta_core::effect::{Effect, EffectKey};
use regatta_core::event::Recorded;
use regatta_core::hook::Firing;
use regatta_core::ids::{
    AgentName, ApprovalId, AttemptId, ChannelName, ConversationId, FiringId, HookId, Label, MessageId, MissionId,
    ProjectName, TaskId, TeamName,
};
use regatta_core::landing::Landing;
use regatta_core::launch::Launch;
use regatta_core::mission::Mission;
use regatta_core::search::Query;
use regatta_core::task::{Status, Task};

/// What is stored in one transaction: all of it or nothing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The revision the store must be at; anything else means a second writer, and nothing is stored.
    pub after: u64,
    /// Where the board is afterwards.
    pub meta: Meta,
    /// New events, in order, without gaps.
    pub events: Vec<Recorded>,
    /// Rows as they are afterwards; `None` means gone.
    pub rows: Rows,
    /// New effects for the outbox.
    pub effects: Vec<(EffectKey, Effect)>,
    /// Effects that leave the outbox.
    pub performed: Vec<EffectKey>,
}

/// What a store gives at start.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The board, exactly as it was after the last commit.
    pub board: Board,
    /// Effects that were stored and not yet performed, oldest first.
    pub outbox: Vec<(EffectKey, Effect)>,
    /// Live rows, effects and events that could not be read. The board is without them (D11).
    pub unreadable: Vec<UnreadableRow>,
}

/// A stored row that this program cannot read. It stays in the store as it is, so that another version may read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRow {
    pub table: &'static str,
    /// The row's key in its table.
    pub id: String,
    pub why: String,
}

impl std::fmt::Display for UnreadableRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "row {} of table {} ({})", self.id, self.table, self.why)
    }
}

/// The writing side. One thread owns it.
pub trait Store: Send {
    /// Reads the board and the outbox. A row that cannot be read is left out and reported (D11).
    fn load(&mut self) -> Result<Loaded, StoreError>;
    /// Stores a batch durably: when this returns, it survives the machine's power being cut.
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError>;
    /// The revision the store is at: after a failed commit it says whether that was kept all the same.
    fn revision(&mut self) -> Result<u64, StoreError>;
    /// Checks the whole store for damage, rows that cannot be read among it (D3).
    fn check(&mut self) -> Result<(), StoreError>;
    /// Writes an exact copy of the store, as of the last commit, to a new file (D7).
    fn backup(&mut self, to: &Path) -> Result<(), StoreError>;
    /// Whether something that is durable could be kept in a better form when there is time for it.
    fn is_behind(&self) -> bool {
        false
    }
    /// There is time for it.
    fn rest(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
    /// The reading side, for any thread; it holds the writer up no longer than a large commit does.
    fn history(&self) -> Arc<dyn History>;
}

/// Which messages are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageFilter {
    pub channel: Option<ChannelName>,
    pub label: Option<Label>,
    /// Who sent it, as [`regatta_core::command::Actor`] prints.
    pub from: Option<String>,
    pub mention: Option<AgentName>,
    /// Only answers to this one.
    pub reply_to: Option<MessageId>,
    /// Only this message, which begins a thread, and what is in it.
    pub thread: Option<MessageId>,
    /// Only texts that have what is looked for.
    pub text: Option<Query>,
    /// Only from this date on, in milliseconds, as [`first_since`] finds it.
    pub since: Option<u64>,
    /// Only up to this date, and what was sent at it.
    pub until: Option<u64>,
    /// Only messages after this one.
    pub after: Option<MessageId>,
    /// Only messages before this one.
    pub before: Option<MessageId>,
    /// At most this many: the newest, in the order they were posted; with `after`, the oldest after it.
    pub limit: usize,
}

/// The number of the first message that was sent at this date or later, or one more than the last; `at_or_after` gives
/// the first message whose number is that or higher, and its date.
///
/// Messages are in the order of their dates, but for a clock that was set back: halving finds a place all the same, and
/// the same one in every store (J12).
pub fn first_since<E>(
    wall: u64,
    last: u64,
    mut at_or_after: impl FnMut(u64) -> Result<Option<(u64, u64)>, E>,
) -> Result<u64, E> {
    let (mut low, mut high) = (1, last.saturating_add(1));
    while low < high {
        let middle = low + (high - low) / 2;
        match at_or_after(middle)? {
            Some((id, date)) if date < wall => low = id.saturating_add(1),
            _ => high = middle,
        }
    }
    Ok(low)
}

/// Which tasks are wanted; an empty list of statuses means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter {
    pub project: Option<ProjectName>,
    pub mission: Option<MissionId>,
    pub statuses: Vec<Status>,
    /// Only tasks after this one.
    pub after: Option<TaskId>,
    /// At most this many, by number; 0 means all.
    pub limit: usize,
}

/// The reading side: everything that was ever committed.
pub trait History: Send + Sync {
    /// Events after a revision, in order, at most `limit`. One that cannot be read is [`Event::Unreadable`].
    ///
    /// [`Event::Unreadable`]: regatta_core::event::Event::Unreadable
    fn events(&self, after: u64, limit: usize) -> Result<Vec<Recorded>, StoreError>;
    /// Messages that match.
    fn messages(&self, filter: &MessageFilter) -> Result<Vec<Message>, StoreError>;
    /// One message.
    fn message(&self, id: MessageId) -> Result<Option<Message>, StoreError> {
        let after = Some(MessageId(id.0.saturating_sub(1)));
        let filter = MessageFilter { after, limit: 1, ..MessageFilter::default() };
        Ok(self.messages(&filter)?.pop().filter(|it| it.id == id))
    }
    /// The newest firings of a hook, or of all, newest first, at most `limit`, before one if that is given.
    fn firings(&self, hook: Option<HookId>, before: Option<FiringId>, limit: usize) -> Result<Vec<Firing>, StoreError>;
    /// How many messages a channel has after one.
    fn count_messages(&self, channel: &ChannelName, after: MessageId) -> Result<u64, StoreError>;
    /// A task, open or ended.
    fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError>;
    /// Tasks that match, by number.
    fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, StoreError>;
    /// How many tasks match, whatever the filter's limit.
    fn count_tasks(&self, filter: &TaskFilter) -> Result<u64, StoreError> {
        Ok(self.tasks(&TaskFilter { limit: 0, ..filter.clone() })?.len() as u64)
    }
    /// An attempt, live or ended.
    fn attempt(&self, id: AttemptId) -> Result<Option<Attempt>, StoreError>;
    /// A request of an agent's, open, answered or withdrawn.
    fn approval(&self, id: ApprovalId) -> Result<Option<Approval>, StoreError>;
    /// All attempts on a task, by number.
    fn attempts_of(&self, task: TaskId) -> Result<Vec<Attempt>, StoreError>;
    /// A project's newest landings, ended or not, newest first, at most `limit`.
    fn landings(&self, project: &ProjectName, limit: usize) -> Result<Vec<Landing>, StoreError>;
    /// A team's newest launches, its last one among them, newest first, at most `limit`.
    fn launches(&self, team: &TeamName, limit: usize) -> Result<Vec<Launch>, StoreError>;
    /// The newest conversations, closed or not, newest first, at most `limit`.
    fn conversations(&self, limit: usize) -> Result<Vec<Conversation>, StoreError>;
    fn conversation(&self, id: ConversationId) -> Result<Option<Conversation>, StoreError>;
    /// A mission, running (`true`) or ended.
    fn mission(&self, id: MissionId) -> Result<Option<(Mission, bool)>, StoreError>;
}

/// Why the store could not, in words for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct StoreError {
    /// `disk_full`, `read_only`, `corrupt`, `store_behind`, `newer_version`, `old_sqlite`, `second_writer`, `io`.
    pub code: &'static str,
    /// What happened and why, one sentence without a period.
    pub what: String,
    /// What to do next.
    pub hint: String,
}
