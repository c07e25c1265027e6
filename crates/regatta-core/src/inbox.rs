//! The inbox: everything that needs a person, and snoozes, which hide an item for some time.
//!
//! A snoozed item comes back by itself when its time is over. An answer, or anything else that
//! settles the item, ends the snooze, too. A snooze decides nothing.
//!
//! The contents follow from the board ([`open_items`]): an item exists because something is blocked
//! or went wrong, and disappears when that is over. Only a failure does not end by itself. It stays
//! until somebody retries the work or dismisses it.

mod list; // the contents of the inbox

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::bridge_health::{self, Bridge};
use crate::event::{Event, facts};
use crate::ids::{AgentName, ApprovalId, AttemptId, BadName, ConversationId, Now, TaskId};
use crate::refusal::Refusal;
use crate::task::TaskStatus;
use crate::{approval, budget, task};

pub use list::{InboxKind, OpenItem, open_items};

/// The longest snooze: a week.
pub const MAX_SNOOZE_MS: u64 = 7 * 24 * 3_600_000;
/// The shortest snooze: a second.
pub const MIN_SNOOZE_MS: u64 = 1_000;

/// The name of an inbox item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum InboxItem {
    Approval(ApprovalId),
    /// A task that needs a person, waits for a review or for help with its landing, or failed.
    Task(TaskId),
    /// An attempt that is silent for too long.
    Attempt(AttemptId),
    /// A budget that is nearly or wholly used up.
    Budget(budget::BudgetScope),
    /// An agent that cannot work until somebody signs in or fixes a setting.
    Agent(AgentName),
    /// A bridge whose outside service rejects the agent's credential.
    Bridge(Bridge),
    /// A conversation that somebody who is on no list wants to start.
    Request(ConversationId),
}

crate::ids::described!(
    InboxItem,
    "Q7, a task T9, an attempt A5, budget:day, agent:NAME, bridge:SERVICE:AGENT or a conversation \
    V3"
);

impl fmt::Display for InboxItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InboxItem::Approval(id) => id.fmt(f),
            InboxItem::Task(id) => id.fmt(f),
            InboxItem::Attempt(id) => id.fmt(f),
            InboxItem::Budget(scope) => write!(f, "budget:{scope}"),
            InboxItem::Agent(name) => write!(f, "agent:{name}"),
            InboxItem::Bridge(bridge) => write!(f, "bridge:{bridge}"),
            InboxItem::Request(id) => id.fmt(f),
        }
    }
}

impl FromStr for InboxItem {
    type Err = BadName;
    fn from_str(text: &str) -> Result<InboxItem, BadName> {
        if let Some(scope) = text.strip_prefix("budget:") {
            return budget::BudgetScope::try_from(scope.to_owned()).map(InboxItem::Budget);
        }
        if let Some(name) = text.strip_prefix("agent:") {
            return AgentName::new(name).map(InboxItem::Agent);
        }
        if let Some(bridge) = text.strip_prefix("bridge:") {
            return bridge.parse().map(InboxItem::Bridge);
        }
        match text.chars().next() {
            Some('T' | 't') => text.parse().map(InboxItem::Task),
            Some('A' | 'a') => text.parse().map(InboxItem::Attempt),
            Some('V' | 'v') => text.parse().map(InboxItem::Request),
            _ => text.parse().map(InboxItem::Approval),
        }
    }
}

impl From<InboxItem> for String {
    fn from(inbox_item: InboxItem) -> String {
        inbox_item.to_string()
    }
}

impl TryFrom<String> for InboxItem {
    type Error = BadName;
    fn try_from(text: String) -> Result<InboxItem, BadName> {
        text.parse()
    }
}

/// The time until which an item is snoozed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snooze {
    /// The end on the fleet clock. This time decides.
    #[serde(rename = "until_at")]
    pub deadline_fleet_ms: u64,
    /// The end as a date, for people.
    #[serde(rename = "until_wall")]
    pub deadline_unix_ms: u64,
}

facts! {
    /// The item was snoozed, or its snooze ended (`None`).
    InboxSnoozed { item: InboxItem, snooze: Option<Snooze> }
    /// A failed task left the inbox, because its work was retried or nobody wants it.
    InboxDismissed { task: TaskId }
}

/// Snoozes an item for `ms` milliseconds, or with `None` ends its snooze.
pub fn snooze(
    draft: &mut Draft,
    item: InboxItem,
    ms: Option<u64>,
    now: Now,
) -> Result<(), Refusal> {
    let current = find_snooze(draft.board(), &item)?;
    let snooze = match ms {
        None => None,
        Some(ms) if (MIN_SNOOZE_MS..=MAX_SNOOZE_MS).contains(&ms) => Some(Snooze {
            deadline_fleet_ms: now.fleet_ms + ms,
            deadline_unix_ms: now.unix_ms.saturating_add(ms),
        }),
        Some(_) => {
            return Err(Refusal::invalid(
                "an item can be snoozed for one second to seven days",
                format!("name a time: regatta inbox snooze {item} 2h"),
            ));
        }
    };
    if current != snooze {
        draft.record(Event::InboxSnoozed(InboxSnoozed { item, snooze }));
    }
    Ok(())
}

/// Ends a snooze whose time is over.
pub(crate) fn end_snooze(draft: &mut Draft, item: InboxItem, now: Now) {
    let is_due = find_snooze(draft.board(), &item)
        .ok()
        .flatten()
        .is_some_and(|snooze| snooze.deadline_fleet_ms <= now.fleet_ms);
    if is_due {
        draft.record(Event::InboxSnoozed(InboxSnoozed { item, snooze: None }));
    }
}

/// Removes a failed task from the inbox, because its work was retried or nobody wants it. It stays
/// failed (J7).
pub fn dismiss(draft: &mut Draft, id: TaskId) -> Result<(), Refusal> {
    if draft.board().failed.contains_key(&id) {
        draft.record(Event::InboxDismissed(InboxDismissed { task: id }));
    } else if draft.board().ended_status(id) != Some(TaskStatus::Failed) {
        // A second dismissal of a failed task does nothing. A task that has not failed cannot be
        // dismissed.
        task::find(draft.board(), id)?;
    }
    Ok(())
}

/// Returns the snooze of an open item, or a refusal if there is no such item.
fn find_snooze(board: &Board, item: &InboxItem) -> Result<Option<Snooze>, Refusal> {
    let refuse = |what: String| Err(Refusal::invalid(what, "see what needs you: regatta inbox"));
    match item {
        InboxItem::Approval(id) => {
            let approval = approval::find(board, *id)?;
            match &approval.decision {
                Some(decision) => Err(Refusal::AlreadyAnswered {
                    approval: *id,
                    by: decision.by.display_name().to_owned(),
                }),
                None => Ok(approval.snoozed),
            }
        }
        InboxItem::Task(id) => match board.failed.get(id) {
            Some(failed) => Ok(failed.snoozed),
            None => match task::find(board, *id)? {
                task if list::needs_person(board, &task) => Ok(task.snoozed),
                task => refuse(format!(
                    "{id} does not need you: it {}",
                    task.status.phrase()
                )),
            },
        },
        InboxItem::Attempt(id) => match board
            .attempts
            .get(id)
            .filter(|attempt| list::is_stuck(attempt))
        {
            Some(attempt) => Ok(attempt.snoozed),
            None => refuse(format!("{id} does not need you: it runs, or has ended")),
        },
        InboxItem::Budget(scope) => match board.budgets.get(scope) {
            Some(budget) => Ok(budget.snoozed),
            None => Err(Refusal::missing(
                format!("there is no budget of {scope}"),
                "see them: regatta budget list",
            )),
        },
        InboxItem::Agent(name) => match list::agent_problem(board, name) {
            Some(outage) => Ok(outage.snoozed),
            None => refuse(format!(
                "{name} does not need you: nothing keeps it from working"
            )),
        },
        InboxItem::Bridge(bridge) => match bridge_health::find_broken(board, bridge) {
            Some(outage) => Ok(outage.snoozed),
            None => refuse(format!("{bridge} does not need you: its credential works")),
        },
        InboxItem::Request(id) => refuse(format!(
            "{id} cannot be snoozed: a request from a person who is not on the list blocks nobody"
        )),
    }
}
