//! The inbox: what needs a person can be put off for a while, and never for good.
//!
//! An item that is put off comes back by itself when its time is over; answering it, or whatever else settles it, ends
//! that too. Nothing is decided by putting it off.
//!
//! What is in it follows from the board ([`open`]): an item is there because something stands still or went wrong, and
//! is gone when that is over. Only a failure ends nothing by itself: it stays until somebody tries the work again or
//! says that it is dropped.

mod list; // what is in it

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

/// The longest that something is put off: a week.
pub const LONGEST_MS: u64 = 7 * 24 * 3_600_000;
/// The shortest: less is no pause.
pub const SHORTEST_MS: u64 = 1_000;

/// Something that needs a person, by the name it is called by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Item {
    Approval(ApprovalId),
    /// A task that needs a person, whose work somebody must look at, whose landing waits for one, or that failed.
    Task(TaskId),
    /// An attempt that says nothing.
    Attempt(AttemptId),
    /// A budget that is nearly or wholly used up.
    Budget(budget::Scope),
    /// An agent that cannot work until somebody has signed in or mended a setting.
    Agent(AgentName),
    /// An agent that an outside service does not let in.
    Bridge(Bridge),
    /// A conversation that somebody wants to begin who is on no list.
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

/// Until when something is put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snooze {
    /// On the fleet clock, which decides.
    pub until_at: u64,
    /// The date, for people.
    pub until_wall: u64,
}

facts! {
    /// It is put off, or, with nothing, is there again.
    Snoozed { item: Item, snooze: Option<Snooze> }
    /// A failed task is done with: its work is asked for again, or nobody wants it.
    Dismissed { task: TaskId }
}

/// Puts an item off for a while; with no time, lets it be there again.
pub fn snooze(draft: &mut Draft, item: Item, ms: Option<u64>, now: Now) -> Result<(), Refusal> {
    let before = find(draft.board(), &item)?;
    let snooze = match ms {
        None => None,
        Some(ms) if (SHORTEST_MS..=LONGEST_MS).contains(&ms) => {
            Some(Snooze { until_at: now.at + ms, until_wall: now.wall.saturating_add(ms) })
        }
        Some(_) => {
            return Err(Refusal::invalid(
                "something is put off for one second to seven days",
                format!("name a time: regatta inbox snooze {item} 2h"),
            ));
        }
    };
    if before != snooze {
        draft.record(Event::ItemSnoozed(Snoozed { item, snooze }));
    }
    Ok(())
}

/// Its time is over: it is there again, and says so.
pub(crate) fn wake(draft: &mut Draft, item: Item, now: Now) {
    let due = find(draft.board(), &item).ok().flatten().is_some_and(|it| it.until_at <= now.at);
    if due {
        draft.record(Event::ItemSnoozed(Snoozed { item, snooze: None }));
    }
}

/// Takes a failed task out of the inbox: its work is asked for again, or nobody wants it. It stays failed (J7).
pub fn dismiss(draft: &mut Draft, id: TaskId) -> Result<(), Refusal> {
    match draft.board().failed.contains_key(&id) {
        true => draft.record(Event::ItemDismissed(Dismissed { task: id })),
        // Twice is once; what has not failed is dropped with its own verb.
        false if draft.board().settled(id) == Some(Status::Failed) => {}
        false => _ = task::find(draft.board(), id)?,
    }
    Ok(())
}

/// Until when an open item is put off; why there is no such item.
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
        Item::Request(id) => none(format!("{id} is not put off: nobody waits for a stranger's request")),
    }
}
