//! Decides which requests the access token of an attempt (one run of an agent on a task) allows.
//!
//! An attempt may act on its own task, claims and channels. A lead may also act on the tasks of its
//! mission. An attempt's program may become hostile, because it reads texts of strangers. So values
//! that identify the caller come from the [`AttemptPrincipal`] and never from the request.
//!
//! [`narrow`] takes the attempt, and a request with the facts that the rules need. It returns the
//! values with which the request may continue, or a refusal. The rules are in one file per subject:
//! claims, messages, and tasks with their requests.
//!
//! Not here: the scope that each verb of the API requires (see `regatta_api::verb`), and the
//! translation from the verbs' inputs, which the server does.

mod claims; // claims that an attempt may acquire, check and change
mod messages; // channels, mailboxes and labels
mod tasks; // tasks, missions and requests for an answer

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::agent::Role;
use crate::approval::{AnswerScope, Approval};
use crate::attempt::{Attempt, AttemptPhase};
use crate::board::Board;
use crate::bus::Message;
use crate::ids::{
    AgentName, ApprovalId, AttemptId, ChannelName, ClaimId, Label, MissionId, ProjectName, TaskId,
};
use crate::pattern::Uri;
use crate::refusal::Refusal;
use crate::task::{AssignMode, Purpose, Task, Validation};

/// Maximum time that a call with an attempt's access token can wait for something, such as an
/// answer.
const MAX_WAIT_MS: u64 = 10 * 60_000;

/// An attempt that calls Regatta, as its access token identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptPrincipal {
    pub attempt: AttemptId,
    pub fencing_token: u64,
    pub task: TaskId,
    pub project: ProjectName,
    pub mission: Option<MissionId>,
    pub agent: AgentName,
    /// The role of the attempt's agent.
    pub role: Role,
    /// True if the attempt is a turn of its mission's lead, and not work on an ordinary task.
    pub leads_mission: bool,
}

impl AttemptPrincipal {
    pub fn new(board: &Board, attempt: &Attempt) -> AttemptPrincipal {
        let agent = board.agents.get(&attempt.agent);
        let task = board.tasks.get(&attempt.task);
        AttemptPrincipal {
            attempt: attempt.id,
            fencing_token: attempt.token,
            task: attempt.task,
            project: attempt.project.clone(),
            mission: attempt.mission,
            agent: attempt.agent.clone(),
            role: agent.map(|agent| agent.role).unwrap_or_default(),
            leads_mission: task.is_some_and(|task| task.purpose == Purpose::Lead),
        }
    }

    /// Returns the principal of an attempt. Refuses if the attempt has ended, which can happen
    /// after its access token was checked.
    pub fn find(board: &Board, id: AttemptId) -> Result<AttemptPrincipal, Refusal> {
        let attempt = board.attempts.get(&id);
        attempt
            .map(|attempt| AttemptPrincipal::new(board, attempt))
            .ok_or_else(|| not_allowed("any call, because the attempt has ended"))
    }

    /// Returns whether the attempt's agent is a lead, which may direct other agents.
    pub fn is_lead(&self) -> bool {
        self.role == Role::Lead
    }

    fn require_own_attempt(&self, task: TaskId, attempt: AttemptId) -> Result<(), Refusal> {
        if task == self.task && attempt == self.attempt {
            Ok(())
        } else {
            Err(not_allowed(&format!("{task} and {attempt}")))
        }
    }
}

/// Returns whether the access token of an attempt is valid. The token is valid while the attempt is
/// working and is not being stopped.
pub fn is_token_valid(attempt: &Attempt) -> bool {
    attempt.phase == AttemptPhase::Working && attempt.stopping.is_none()
}

/// A request with an attempt's access token: the facts that decide whether the attempt may make the
/// request.
#[derive(Clone, Debug)]
pub enum AttemptRequest<'a> {
    /// Reads texts that are the same for everybody.
    ReadPublic,
    /// Reports progress, a result or a finding of an attempt.
    Report {
        task: TaskId,
        attempt: AttemptId,
    },
    /// Asks a person in the name of an attempt.
    Ask {
        task: TaskId,
        attempt: AttemptId,
        wait_ms: u64,
    },
    /// Waits for the answer to a request of an attempt.
    AwaitAnswer {
        attempt: AttemptId,
        wait_ms: u64,
    },
    /// Reads the briefing of an attempt, or lists the other attempts of its project.
    ReadBriefing {
        attempt: AttemptId,
    },
    AcquireClaim {
        uris: &'a [Uri],
        ttl_ms: u64,
        wait_ms: u64,
    },
    CheckClaim {
        uris: &'a [Uri],
    },
    /// Renews or releases a claim.
    ChangeClaim {
        claim: ClaimId,
    },
    PostMessage(ProposedMessage<'a>),
    /// Lists messages, or waits for one.
    ReadMessages {
        channel: Option<&'a ChannelName>,
        from: Option<&'a str>,
        /// The messages that select the wanted messages, such as one of their thread.
        selected_by: Vec<Message>,
        wait_ms: u64,
    },
    /// Lists the unread messages of a channel and marks them read.
    MarkRead {
        channel: &'a ChannelName,
    },
    CountUnread,
    ReadAttachment {
        message: Message,
    },
    AddTask(ProposedTask<'a>),
    /// Shows a thing, or explains why it waits. `id` is the thing's name in the request.
    Show {
        id: &'a str,
        target: ShowTarget,
    },
    /// Lists the missions, tasks, inbox items or landings of projects.
    ListByProject,
    /// Adds an existing task to the mission of its lead.
    AdoptTask,
    /// Answers a request of another attempt.
    AnswerApproval {
        approval: ApprovalId,
        scope: AnswerScope,
        /// True if the answer is also for identical requests, which other missions may have made.
        also_identical: bool,
    },
    AssignTask {
        task: Arc<Task>,
        to: Option<&'a AgentName>,
        how: AssignMode,
    },
    /// Directs a task in another way, with this verb.
    DirectTask {
        task: Arc<Task>,
        verb: &'static str,
    },
    /// Accepts or rejects the offer of a task.
    AnswerOffer,
    /// Calls a verb that no attempt may call.
    Other {
        verb: &'static str,
    },
}

/// A message that an attempt wants to post.
#[derive(Clone, Debug)]
pub struct ProposedMessage<'a> {
    pub channel: &'a ChannelName,
    /// The agent that the request names as the sender.
    pub agent: Option<&'a AgentName>,
    pub reply_to: Option<Message>,
    pub labels: &'a [Label],
}

/// A task that an attempt wants to add: the fields that not every attempt may set.
#[derive(Clone, Copy, Debug)]
pub struct ProposedTask<'a> {
    pub project: Option<&'a ProjectName>,
    pub blocked_by: &'a [TaskId],
    pub validation: &'a Validation,
    pub has_script: bool,
    pub has_ratchet: bool,
    pub assign: Option<&'a AgentName>,
    pub backlog: bool,
}

/// The thing that an attempt wants to see.
#[derive(Clone, Debug)]
pub enum ShowTarget {
    Agent(AgentName),
    Attempt(AttemptId),
    Mission(MissionId),
    Task(Arc<Task>),
    /// A request for an answer; `None` if there is no request of this id.
    Approval(Option<Box<Approval>>),
}

/// The values with which a request continues. They replace the values in the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NarrowedRequest {
    /// The request continues as it is.
    Unchanged,
    Report {
        token: u64,
    },
    Ask {
        token: u64,
        wait_ms: u64,
    },
    AwaitAnswer {
        wait_ms: u64,
    },
    AcquireClaim {
        agent: AgentName,
        ttl_ms: u64,
        wait_ms: u64,
    },
    ReadMessages {
        channel: Option<ChannelName>,
        from: Option<String>,
        wait_ms: u64,
    },
    /// The request continues in the name of this agent.
    AsAgent {
        agent: AgentName,
    },
    AddTask {
        project: ProjectName,
        backlog: bool,
    },
    /// The request continues for this project only.
    InProject {
        project: ProjectName,
    },
    /// The request continues for the mission that the caller leads.
    InLedMission,
}

/// Checks a request of an attempt, and returns the values with which it continues.
pub fn narrow(
    board: &Board,
    caller: &AttemptPrincipal,
    request: &AttemptRequest<'_>,
) -> Result<NarrowedRequest, Refusal> {
    let unchanged = |()| NarrowedRequest::Unchanged;
    let as_agent = |agent: AgentName| NarrowedRequest::AsAgent { agent };
    let token = caller.fencing_token;
    match request {
        AttemptRequest::ReadPublic => Ok(NarrowedRequest::Unchanged),
        AttemptRequest::Report { task, attempt } => caller
            .require_own_attempt(*task, *attempt)
            .map(|()| NarrowedRequest::Report { token }),
        AttemptRequest::Ask {
            task,
            attempt,
            wait_ms,
        } => {
            caller.require_own_attempt(*task, *attempt)?;
            let wait_ms = (*wait_ms).min(MAX_WAIT_MS);
            Ok(NarrowedRequest::Ask { token, wait_ms })
        }
        AttemptRequest::AwaitAnswer { attempt, wait_ms } => {
            caller.require_own_attempt(caller.task, *attempt)?;
            let wait_ms = (*wait_ms).min(MAX_WAIT_MS);
            Ok(NarrowedRequest::AwaitAnswer { wait_ms })
        }
        AttemptRequest::ReadBriefing { attempt } => caller
            .require_own_attempt(caller.task, *attempt)
            .map(unchanged),
        AttemptRequest::AcquireClaim {
            uris,
            ttl_ms,
            wait_ms,
        } => {
            caller.require_claimable(uris)?;
            caller.require_room_for_claim(board)?;
            Ok(NarrowedRequest::AcquireClaim {
                agent: caller.agent.clone(),
                ttl_ms: (*ttl_ms).min(claims::MAX_TTL_MS),
                wait_ms: (*wait_ms).min(MAX_WAIT_MS),
            })
        }
        AttemptRequest::CheckClaim { uris } => caller.require_claimable(uris).map(unchanged),
        AttemptRequest::ChangeClaim { claim } => {
            caller.require_holds_claim(board, *claim).map(unchanged)
        }
        AttemptRequest::PostMessage(message) => caller.narrow_post(message).map(as_agent),
        AttemptRequest::ReadMessages {
            channel,
            from,
            selected_by,
            wait_ms,
        } => {
            let (channel, from) = caller.narrow_message_filter(*channel, *from, selected_by)?;
            let wait_ms = (*wait_ms).min(MAX_WAIT_MS);
            Ok(NarrowedRequest::ReadMessages {
                channel,
                from,
                wait_ms,
            })
        }
        AttemptRequest::MarkRead { channel } => caller
            .require_may_read(channel)
            .map(|()| as_agent(caller.agent.clone())),
        // The command checks later that an answered offer was made to the caller's agent.
        AttemptRequest::CountUnread | AttemptRequest::AnswerOffer => {
            Ok(as_agent(caller.agent.clone()))
        }
        AttemptRequest::ReadAttachment { message } => {
            caller.require_readable_message(message).map(unchanged)
        }
        AttemptRequest::AddTask(task) => caller.narrow_proposed_task(board, task),
        AttemptRequest::Show { id, target } => caller.require_visible(id, target).map(unchanged),
        AttemptRequest::ListByProject => Ok(NarrowedRequest::InProject {
            project: caller.project.clone(),
        }),
        // The command checks later that the caller may take the task into its mission.
        AttemptRequest::AdoptTask => Ok(NarrowedRequest::InLedMission),
        AttemptRequest::AnswerApproval {
            approval,
            scope,
            also_identical,
        } => {
            let is_for_one = *scope == AnswerScope::Once && !also_identical;
            caller
                .require_may_answer(board, *approval, is_for_one)
                .map(unchanged)
        }
        AttemptRequest::AssignTask { task, .. } | AttemptRequest::DirectTask { task, .. }
            if caller.is_lead() =>
        {
            caller.require_leads(task).map(unchanged)
        }
        AttemptRequest::AssignTask { task, to, how } => caller
            .require_take_or_return(task, *to, *how)
            .map(unchanged),
        AttemptRequest::DirectTask { verb, .. } | AttemptRequest::Other { verb } => {
            Err(not_allowed(&format!("the verb {verb}")))
        }
    }
}

fn not_allowed(target: &str) -> Refusal {
    Refusal::not_yours(
        format!("this attempt's token does not allow {target}"),
        "use the token only for the attempt's own task, its own claims and the channels of its project",
    )
}
