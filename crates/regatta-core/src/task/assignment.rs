//! Assigns tasks to agents in one of three ways: the agent starts the task now, the task waits
//! until the agent has room for it, or the task is an offer that the agent can decline.

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
    /// The agent should start the task now. The assignment is refused if the agent already has its
    /// maximum number of tasks.
    #[default]
    Direct,
    /// The task waits until the agent has room for it.
    Queue,
    /// The agent can accept or decline the task.
    Offer,
}

/// Time after which an unanswered offer ends: ten minutes.
pub const OFFER_TTL_MS: u64 = 600_000;

/// Assigns or offers a task to an agent, or with `None` removes its assignment. Refused while the
/// task is being worked on or landing.
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

/// Handles an agent's answer to an offered task: assigns the task to it, or makes the task
/// available to all.
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

/// Ends an offer whose time is over, so that other agents can take the task.
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
