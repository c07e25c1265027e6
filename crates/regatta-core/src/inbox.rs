//! The inbox: everything that needs a person, and the means to postpone an item for a while.
//!
//! A postponed item comes back by itself when its time is over. An answer, or anything else that
//! settles the item, ends the postponement, too. Postponing decides nothing.
//!
//! The contents follow from the board ([`open`]): an item exists because something is blocked or
//! went wrong, and disappears when that is over. Only a failure does not end by itself. It stays
//! until somebody retries the work or dismisses it.

mod list; // the contents of the inbox

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::bridge::{self, Bridge};
use crate::event::{Event, facts};
use crate::ids::{AgentName, ApprovalId, AttemptId, BadName, ConversationId, Now, TaskId};
use crate::refusal::Refusal;
use crate::task::Status;
use crate::{approval, budget, task};

pub use list::{Kind, Open, open};

/// Maximum time for which an item can be postponed: a week.
pub const LONGEST_MS: u64 = 7 * 24 * 3_600_000;
/// Minimum time for which an item can be postponed.
pub const SHORTEST_MS: u64 = 1_000;

/// The name of an inbox item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Item {
    Approval(ApprovalId),
    /// A task that needs a person, waits for a review or for help with its landing, or failed.
    Task(TaskId),
    /// An attempt that is silent for too long.
    Attempt(AttemptId),
    /// A budget that is nearly or wholly used up.
    Budget(budget::Scope),
    /// An agent that cannot work until somebody signs in or fixes a setting.
    Agent(AgentName),
    /// A bridge whose outside service rejects the agent's credential.
    Bridge(Bridge),
    /// A conversation that somebody who is on no list wants to start.
    Request(ConversationId),
}

crate::ids::described!(
    Item,
    "Q7, a task T9, an attempt A5, budget:day, agent:NAME, bridge:SERVICE:AGENT or a conversation V3"
);

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Approval(id) => id.fmt(f),
            Item::Task(id) => id.fmt(f),
            Item::Attempt(id) => id.fmt(f),
            Item::Budget(scope) => write!(f, "budget:{scope}"),
            Item::Agent(name) => write!(f, "agent:{name}"),
            Item::Bridge(it) => write!(f, "bridge:{it}"),
            Item::Request(id) => id.fmt(f),
        }
    }
}

impl FromStr for Item {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Item, BadName> {
        if let Some(scope) = text.strip_prefix("budget:") {
            return budget::Scope::try_from(scope.to_owned()).map(Item::Budget);
        }
        if let Some(name) = text.strip_prefix("agent:") {
            return AgentName::new(name).map(Item::Agent);
        }
        if let Some(bridge) = text.strip_prefix("bridge:") {
            return bridge.parse().map(Item::Bridge);
        }
        match text.chars().next() {
            Some('T' | 't') => text.parse().map(Item::Task),
            Some('A' | 'a') => text.parse().map(Item::Attempt),
            Some('V' | 'v') => text.parse().map(Item::Request),
            _ => text.parse().map(Item::Approval),
        }
    }
}

impl From<Item> for String {
    fn from(it: Item) -> String {
        it.to_string()
    }
}

impl TryFrom<String> for Item {
    type Error = BadName;
    fn try_from(text: String) -> Result<Item, BadName> {
        text.parse()
    }
}

/// The time until which an item is postponed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snooze {
    /// Time on the fleet clock, which decides.
    pub until_at: u64,
    /// The date, for people.
    pub until_wall: u64,
}

facts! {
    /// The item was postponed, or with `None` is back.
    Snoozed { item: Item, snooze: Option<Snooze> }
    /// A failed task left the inbox, because its work was retried or nobody wants it.
    Dismissed { task: TaskId }
}

/// Postpones an item for `ms` milliseconds, or with `None` brings it back.
pub fn snooze(draft: &mut Draft, item: Item, ms: Option<u64>, now: Now) -> Result<(), Refusal> {
    let before = find(draft.board(), &item)?;
    let snooze = match ms {
        None => None,
        Some(ms) if (SHORTEST_MS..=LONGEST_MS).contains(&ms) => {
            Some(Snooze { until_at: now.at + ms, until_wall: now.wall.saturating_add(ms) })
        }
        Some(_) => {
            return Err(Refusal::invalid(
                "an item can be postponed for one second to seven days",
                format!("name a time: regatta inbox snooze {item} 2h"),
            ));
        }
    };
    if before != snooze {
        draft.record(Event::ItemSnoozed(Snoozed { item, snooze }));
    }
    Ok(())
}

/// Brings a postponed item back when its time is over.
pub(crate) fn wake(draft: &mut Draft, item: Item, now: Now) {
    let due = find(draft.board(), &item).ok().flatten().is_some_and(|it| it.until_at <= now.at);
    if due {
        draft.record(Event::ItemSnoozed(Snoozed { item, snooze: None }));
    }
}

/// Removes a failed task from the inbox, because its work was retried or nobody wants it. It stays
/// failed (J7).
pub fn dismiss(draft: &mut Draft, id: TaskId) -> Result<(), Refusal> {
    if draft.board().failed.contains_key(&id) {
        draft.record(Event::ItemDismissed(Dismissed { task: id }));
    } else if draft.board().settled(id) != Some(Status::Failed) {
        // A second dismissal of a failed task does nothing. A task that has not failed cannot be
        // dismissed.
        task::find(draft.board(), id)?;
    }
    Ok(())
}

/// Returns the postponement of an open item, or a refusal if there is no such item.
fn find(board: &Board, item: &Item) -> Result<Option<Snooze>, Refusal> {
    let none = |what: String| Err(Refusal::invalid(what, "see what needs you: regatta inbox"));
    match item {
        Item::Approval(id) => {
            let it = approval::find(board, *id)?;
            match &it.decision {
                Some(decision) => Err(Refusal::AlreadyAnswered { approval: *id, by: decision.by.who().to_owned() }),
                None => Ok(it.snoozed),
            }
        }
        Item::Task(id) => match board.failed.get(id) {
            Some(failed) => Ok(failed.snoozed),
            None => match task::find(board, *id)? {
                it if list::needs_somebody(board, &it) => Ok(it.snoozed),
                it => none(format!("{id} does not need you: it {}", it.status.phrase())),
            },
        },
        Item::Attempt(id) => match board.attempts.get(id).filter(|it| list::is_stuck(it)) {
            Some(it) => Ok(it.snoozed),
            None => none(format!("{id} does not need you: it runs, or has ended")),
        },
        Item::Budget(scope) => match board.budgets.get(scope) {
            Some(it) => Ok(it.snoozed),
            None => Err(Refusal::missing(format!("there is no budget of {scope}"), "see them: regatta budget list")),
        },
        Item::Agent(name) => match list::broken(board, name) {
            Some(it) => Ok(it.snoozed),
            None => none(format!("{name} does not need you: nothing keeps it from working")),
        },
        Item::Bridge(it) => match bridge::find(board, it) {
            Some(it) => Ok(it.snoozed),
            None => none(format!("{it} does not need you: its credential works")),
        },
        Item::Request(id) => {
            none(format!("{id} cannot be postponed: a request from somebody who is not on the list blocks nobody"))
        }
    }
}
