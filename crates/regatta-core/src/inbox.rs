//! The inbox: what needs a person can be put off for a while, and never for good.
//!
//! An item that is put off comes back by itself when its time is over; answering it, or whatever else settles it, ends
//! that too. Nothing is decided by putting it off.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{ApprovalId, BadName, Now, TaskId};
use crate::refusal::Refusal;
use crate::task::Status;
use crate::{approval, task};

/// The longest that something is put off: a week.
pub const LONGEST_MS: u64 = 7 * 24 * 3_600_000;
/// The shortest: less is no pause.
pub const SHORTEST_MS: u64 = 1_000;

/// Something that needs a person, by the name it is called by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Item {
    Approval(ApprovalId),
    /// A task that needs a person, or whose work somebody must look at.
    Task(TaskId),
}

crate::ids::described!(Item, "Q7, or the task that needs you: T9");

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Approval(id) => id.fmt(f),
            Item::Task(id) => id.fmt(f),
        }
    }
}

impl FromStr for Item {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Item, BadName> {
        match text.starts_with(['T', 't']) {
            true => text.parse().map(Item::Task),
            false => text.parse().map(Item::Approval),
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
}

/// Puts an item off for a while; with no time, lets it be there again.
pub fn snooze(draft: &mut Draft, item: Item, ms: Option<u64>, now: Now) -> Result<(), Refusal> {
    let before = find(draft.board(), item)?;
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
    let due = find(draft.board(), item).ok().flatten().is_some_and(|it| it.until_at <= now.at);
    if due {
        draft.record(Event::ItemSnoozed(Snoozed { item, snooze: None }));
    }
}

/// Until when an open item is put off; why there is no such item.
fn find(board: &Board, item: Item) -> Result<Option<Snooze>, Refusal> {
    match item {
        Item::Approval(id) => {
            let it = approval::find(board, id)?;
            match &it.decision {
                Some(decision) => Err(Refusal::AlreadyAnswered { approval: id, by: decision.by.to_string() }),
                None => Ok(it.snoozed),
            }
        }
        Item::Task(id) => {
            let it = task::find(board, id)?;
            match it.status {
                Status::NeedsHuman | Status::InReview => Ok(it.snoozed),
                status => Err(Refusal::invalid(
                    format!("{id} does not need you: it {}", status.phrase()),
                    "see what does: regatta inbox",
                )),
            }
        }
    }
}
