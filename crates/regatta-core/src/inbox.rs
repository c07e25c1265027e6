//! The inbox lists everything that needs a person. A person can snooze an item, which hides it for
//! some time.
//!
//! A snoozed item comes back by itself when the snooze is over. If the item's problem is solved
//! earlier, for example by an answer, the snooze ends too. A snooze neither answers an item nor
//! changes the work that waits for the item.
//!
//! The contents are computed from the board (the state of all live work; see [`open_items`]): an
//! item exists while something is blocked or wrong, and disappears when the problem is over. The
//! exception is a failed task, which stays until somebody retries or dismisses it.

mod cause; // the causes that several items share
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

pub use cause::{CauseClass, InboxCause};
pub(crate) use list::is_stuck;
pub use list::{InboxKind, OpenItem, open_items};

/// Maximum length of a snooze: one week.
pub const MAX_SNOOZE_MS: u64 = 7 * 24 * 3_600_000;
/// Minimum length of a snooze: one second.
const MIN_SNOOZE_MS: u64 = 1_000;

/// Identifies an inbox item by the object that needs a person. People write an item as `Q7`, `T3`
/// or `agent:claude-1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum InboxItem {
    Approval(ApprovalId),
    /// A task that needs a person, waits for a review or for help with its landing, or failed.
    Task(TaskId),
    /// An attempt (an agent's run on a task) whose program has written nothing for too long.
    Attempt(AttemptId),
    /// A budget that is nearly or wholly used up.
    Budget(budget::BudgetScope),
    /// An agent that cannot work until somebody signs in or fixes a setting.
    Agent(AgentName),
    /// A bridge (a connection to an outside service such as Slack) that cannot work until a person
    /// fixes its credential or a setting.
    Bridge(Bridge),
    /// A conversation that was started in an outside service by somebody who is not on the list of
    /// permitted people.
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

/// The time until which an inbox item is hidden, as two clocks measure it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snooze {
    /// End of the snooze on the fleet clock, which counts only while the daemon runs. The item
    /// comes back at this time.
    #[serde(rename = "until_at")]
    pub deadline_fleet_ms: u64,
    /// End of the snooze as a date, for display only.
    #[serde(rename = "until_wall")]
    pub deadline_unix_ms: u64,
}

facts! {
    /// A person snoozed the inbox item (hid the item for some time). If `snooze` is `None`, the
    /// snooze ended.
    InboxSnoozed { item: InboxItem, snooze: Option<Snooze> }
    /// A failed task was removed from the inbox, because it was retried or a person dismissed it.
    InboxDismissed { task: TaskId }
}

/// Hides an inbox item for `ms` milliseconds (a snooze). If `ms` is `None`, shows the item again.
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
                "an inbox item can be snoozed for one second to seven days",
                format!("name a time in that range: regatta inbox snooze {item} 2h"),
            ));
        }
    };
    if current != snooze {
        draft.record(Event::InboxSnoozed(InboxSnoozed { item, snooze }));
    }
    Ok(())
}

/// Ends the snooze of `item` if its time is over, so that the inbox shows the item again.
pub(crate) fn end_snooze(draft: &mut Draft, item: InboxItem, now: Now) {
    let is_due = find_snooze(draft.board(), &item)
        .ok()
        .flatten()
        .is_some_and(|snooze| snooze.deadline_fleet_ms <= now.fleet_ms);
    if is_due {
        draft.record(Event::InboxSnoozed(InboxSnoozed { item, snooze: None }));
    }
}

/// Removes a failed task from the inbox, because it was retried or a person dismissed it. The
/// task's status stays failed (J7).
pub fn dismiss(draft: &mut Draft, id: TaskId) -> Result<(), Refusal> {
    if draft.board().failed.contains_key(&id) {
        draft.record(Event::InboxDismissed(InboxDismissed { task: id }));
    } else if draft.board().ended_status(id) != Some(TaskStatus::Failed) {
        // A task that failed and is no longer listed was already dismissed, so nothing happens. For
        // any other task, `find` returns a refusal if the task has ended or does not exist.
        task::find(draft.board(), id)?;
    }
    Ok(())
}

/// Returns the current snooze of an inbox item (`None` if it is not snoozed), or a refusal if the
/// item is not in the inbox.
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
                    "the task {id} does not need you: it {}",
                    task.status.phrase()
                )),
            },
        },
        InboxItem::Attempt(id) => {
            match board.attempts.get(id).filter(|attempt| is_stuck(attempt)) {
                Some(attempt) => Ok(attempt.snoozed),
                None => refuse(format!(
                    "the attempt {id} does not need you: its program is not silent, or the attempt \
                has ended"
                )),
            }
        }
        InboxItem::Budget(scope) => match board.budgets.get(scope) {
            Some(budget) => Ok(budget.snoozed),
            None => Err(Refusal::missing(
                format!("no budget is set for {scope}"),
                "see all budgets: regatta budget list",
            )),
        },
        InboxItem::Agent(name) => match list::agent_problem(board, name) {
            Some(outage) => Ok(outage.snoozed),
            None => refuse(format!(
                "the agent {name} does not need you: nothing prevents it from working"
            )),
        },
        InboxItem::Bridge(bridge) => match bridge_health::find_broken(board, bridge) {
            Some(outage) => Ok(outage.snoozed),
            None => refuse(format!(
                "the connection {bridge} does not need you: its credential works"
            )),
        },
        InboxItem::Request(id) => refuse(format!(
            "the request {id} cannot be snoozed, because it comes from a person who is not on \
            the list of permitted people, so no work waits for it"
        )),
    }
}
