//! Rules for the tasks that an attempt may see, add and direct, and for the requests that it may
//! answer.

use super::{AttemptPrincipal, NarrowedRequest, ProposedTask, ShowTarget, not_allowed};
use crate::agent_protocol::RequestContent;
use crate::board::Board;
use crate::ids::{AgentName, ApprovalId, TaskId};
use crate::refusal::Refusal;
use crate::task::{AssignMode, Task, TaskStatus};

/// Number of backlog tasks above which attempts cannot add tasks to a project.
const MAX_BACKLOG_TASKS: usize = 200;
/// Maximum number of characters of an id that a refusal repeats.
const MAX_SHOWN_ID_CHARS: usize = 20;

impl AttemptPrincipal {
    /// Checks that an attempt may see a thing. The attempt may see itself, its agent, its mission,
    /// the tasks of its project, and its own requests.
    pub(super) fn require_visible(&self, id: &str, target: &ShowTarget) -> Result<(), Refusal> {
        let is_visible = match target {
            ShowTarget::Agent(name) if *name == self.agent => true,
            ShowTarget::Agent(_) => return Err(not_allowed("another agent")),
            ShowTarget::Attempt(attempt) => *attempt == self.attempt,
            ShowTarget::Mission(mission) => Some(*mission) == self.mission,
            ShowTarget::Task(task) => task.project == self.project,
            // A lead may see the requests of its mission's workers, because the lead answers their
            // questions.
            ShowTarget::Approval(approval) => approval.as_ref().is_some_and(|approval| {
                approval.attempt == self.attempt
                    || (self.is_lead()
                        && approval.mission.is_some()
                        && approval.mission == self.mission)
            }),
        };
        if is_visible {
            return Ok(());
        }
        let shown_id: String = id.chars().take(MAX_SHOWN_ID_CHARS).collect();
        Err(not_allowed(&shown_id))
    }

    /// Checks that a lead (an agent that leads other agents) may direct this task. The task must
    /// belong to the lead's mission or, if the lead has no mission, to the lead's project.
    pub(super) fn require_leads(&self, task: &Task) -> Result<(), Refusal> {
        let is_in_scope =
            task.project == self.project && self.mission.is_none_or(|id| task.mission == Some(id));
        if self.is_lead() && is_in_scope {
            Ok(())
        } else {
            Err(not_allowed(&task.id.to_string()))
        }
    }

    /// Checks that a request assigns an unassigned task to the caller's own agent, or gives back a
    /// task that this agent has not begun.
    pub(super) fn require_take_or_return(
        &self,
        task: &Task,
        to: Option<&AgentName>,
        how: AssignMode,
    ) -> Result<(), Refusal> {
        let is_in_scope =
            task.project == self.project && task.mission.is_none_or(|id| self.mission == Some(id));
        let is_allowed = match to {
            Some(to) => {
                *to == self.agent
                    && how == AssignMode::Direct
                    && task.status == TaskStatus::Unassigned
            }
            None => {
                task.assignee.as_ref() == Some(&self.agent) && task.status == TaskStatus::Pending
            }
        };
        if is_in_scope && is_allowed {
            return Ok(());
        }
        Err(Refusal::not_yours(
            format!(
                "an attempt can neither take {} for its agent nor give it back",
                task.id
            ),
            "take an unassigned task of your project, or return a task of yours that has not begun",
        ))
    }

    /// Checks that the caller is a lead (an agent that leads other agents) who answers one question
    /// of its own workers. Only people can answer requests for permission, and several requests
    /// with one answer.
    pub(super) fn require_may_answer(
        &self,
        board: &Board,
        id: ApprovalId,
        is_for_one: bool,
    ) -> Result<(), Refusal> {
        let approval = board.approvals.get(&id);
        // Read the mission from the request and not from the attempt that made the request, because
        // that attempt may have ended.
        let is_own_worker = approval.is_some_and(|approval| {
            approval.attempt != self.attempt
                && approval.mission.is_some()
                && approval.mission == self.mission
        });
        let is_question = approval.is_some_and(|approval| {
            matches!(approval.request.content, RequestContent::Question { .. })
        });
        if self.is_lead() && is_own_worker && is_question && is_for_one {
            return Ok(());
        }
        Err(Refusal::not_yours(
            format!("this attempt may not answer the request {id}"),
            "a lead can answer questions of its own workers, once; only people can grant \
            permissions",
        ))
    }

    /// Checks a task that an attempt wants to add, and returns its project. A worker can only
    /// propose a task for the backlog.
    pub(super) fn narrow_proposed_task(
        &self,
        board: &Board,
        task: &ProposedTask<'_>,
    ) -> Result<NarrowedRequest, Refusal> {
        if task.project.is_some_and(|project| *project != self.project) {
            return Err(not_allowed("another project"));
        }
        if task.has_script || task.has_ratchet {
            return Err(Refusal::not_yours(
                "only people may give a task a script or a ratchet (a command that must accept passed work)",
                "omit the script and the ratchet",
            ));
        }
        let is_foreign = |id: &TaskId| {
            board
                .tasks
                .get(id)
                .is_some_and(|task| task.project != self.project)
        };
        if task.blocked_by.iter().any(is_foreign) {
            return Err(not_allowed("a task of another project"));
        }
        let has_commands = !task.validation.tests.is_empty() || !task.validation.lint.is_empty();
        if !self.is_lead() && has_commands {
            return Err(Refusal::not_yours(
                "only people and leads may give a task commands that check its work",
                "describe the test in the description",
            ));
        }
        if !self.is_lead() && task.assign.is_some() {
            return Err(Refusal::not_yours(
                "only a lead may assign tasks",
                "omit the assignee; a person or a lead will assign the task",
            ));
        }
        let in_backlog = board
            .tasks
            .values()
            .filter(|task| task.project == self.project && task.status == TaskStatus::Backlog)
            .count();
        if in_backlog >= MAX_BACKLOG_TASKS {
            return Err(Refusal::not_yours(
                "the project's backlog has no room for another task from an agent",
                "describe the work in your task's result",
            ));
        }
        Ok(NarrowedRequest::AddTask {
            project: self.project.clone(),
            backlog: task.backlog || !self.is_lead(),
        })
    }
}
