//! The assignment of a task to an agent: at once, into its queue, or as an offer.

use serde::{Deserialize, Serialize};

use crate::agent;
use crate::board::Draft;
use crate::event::Event;
use crate::ids::{AgentName, Now, TaskId};
use crate::refusal::Refusal;

use super::{TaskAssigned, TaskOffered, TaskStatus, find, next_status};

/// The way in which a task is assigned to an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AssignMode {
    /// At once; refused if the agent has no free slot.
    #[default]
    Direct,
    /// In the agent's queue, even if the agent has no free slot.
    Queue,
    /// As an offer, which the agent may decline.
    Offer,
}

/// Lifetime of an offer: ten minutes.
pub const OFFER_TTL_MS: u64 = 600_000;

/// Assigns a task to an agent, or to nobody with `None`.
pub fn assign(
    draft: &mut Draft,
    id: TaskId,
    to: Option<AgentName>,
    mode: AssignMode,
    now: Now,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.status.is_running() || task.status == TaskStatus::Landing {
        return Err(Refusal::InUse {
            what: id.to_string(),
            by: task
                .attempt
                .map_or(task.status.to_string(), |id| id.to_string()),
        });
    }
    crate::landing::remote_sync::refuse_work(draft.board(), &task)?;
    let Some(to) = to else {
        next_status(id, task.status, TaskStatus::Unassigned)?;
        draft.record(Event::TaskAssigned(TaskAssigned {
            task: id,
            to: None,
            status: TaskStatus::Unassigned,
        }));
        return Ok(());
    };
    let agent = agent::find(draft.board(), &to)?;
    let capacity = agent::capacity(draft.board(), agent);
    match mode {
        AssignMode::Direct if capacity.available == 0 => Err(Refusal::AtCapacity {
            agent: to,
            running: capacity.current,
            max: capacity.max,
        }),
        AssignMode::Direct | AssignMode::Queue => {
            next_status(id, task.status, TaskStatus::Pending)?;
            draft.record(Event::TaskAssigned(TaskAssigned {
                task: id,
                to: Some(to),
                status: TaskStatus::Pending,
            }));
            Ok(())
        }
        AssignMode::Offer => {
            next_status(id, task.status, TaskStatus::Offered)?;
            draft.record(Event::TaskOffered(TaskOffered {
                task: id,
                to,
                until_at: now.fleet_ms + OFFER_TTL_MS,
            }));
            Ok(())
        }
    }
}

/// Accepts or declines an offer.
pub fn answer_offer(
    draft: &mut Draft,
    id: TaskId,
    agent: &AgentName,
    accept: bool,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.status != TaskStatus::Offered || task.assignee.as_ref() != Some(agent) {
        return Err(Refusal::NotOffered {
            task: id,
            agent: agent.clone(),
        });
    }
    let (to, status) = if accept {
        (Some(agent.clone()), TaskStatus::Pending)
    } else {
        (None, TaskStatus::Unassigned)
    };
    draft.record(Event::TaskAssigned(TaskAssigned {
        task: id,
        to,
        status,
    }));
    Ok(())
}

/// Withdraws an expired offer, so that the task is not stranded.
pub fn expire_offer(draft: &mut Draft, id: TaskId, now: Now) {
    let is_expired = draft.board().tasks.get(&id).is_some_and(|task| {
        task.offer_until_fleet_ms
            .is_some_and(|deadline| deadline <= now.fleet_ms)
    });
    if is_expired {
        draft.record(Event::TaskAssigned(TaskAssigned {
            task: id,
            to: None,
            status: TaskStatus::Unassigned,
        }));
    }
}
