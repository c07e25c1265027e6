//! Restricts the API calls of an attempt (one run of an agent on a task) to its own task, claims
//! and channels. A claim is a lease on files or other things. A lead may also act on the tasks of
//! its mission.
//!
//! Every call with an attempt's token is checked here before it is carried out. Forbidden calls are
//! refused. Fields that identify the caller are filled in from the access token and never taken
//! from the input. An attempt's program may become hostile, because it reads texts of strangers.

use regatta_core::agent_protocol::RequestContent;
use regatta_core::approval::AnswerScope;
use regatta_core::attempt::Attempt;
use regatta_core::ids::{ChannelName, ClaimId};
use regatta_core::pattern::Uri;
use regatta_core::reference::Reference;
use regatta_core::task::Task;

use regatta_core::task;

use super::*;

/// Maximum number of claims (leases on files or other things) that an attempt may acquire in
/// addition to the claim on its task's files.
const MAX_CLAIMS: usize = 32;
/// Maximum time that a claim (a lease on files or other things) of an attempt is valid without
/// being renewed.
const MAX_TTL_MS: u64 = 30 * 60_000;
/// Maximum time that a call with an attempt's access token can wait for something, such as an
/// answer.
const MAX_ATTEMPT_WAIT_MS: u64 = 10 * 60_000;
/// Number of backlog tasks above which attempts cannot add tasks to a project.
const MAX_BACKLOG_TASKS: usize = 200;
/// The label that only Regatta itself may put on a message. A message of an attempt with this label
/// is refused.
const RESERVED_LABEL: &str = "coord:merge";
/// The prefix of message labels that name the lead to whom the message is addressed.
const LEAD_LABEL_PREFIX: &str = "lead:";

/// The attempt whose token a call carries. Its methods check that the attempt may make the call.
struct CallingAttempt {
    attempt: Arc<Attempt>,
    is_lead: bool,
}

impl VerbHandler<'_> {
    /// Checks a call of an attempt, and returns it with the attempt's identity filled in. Calls of
    /// other callers are returned without changes.
    pub(super) async fn restrict_to_attempt(&self, call: Call) -> Result<Call, Problem> {
        let Principal::Attempt { id, is_lead, .. } = &self.principal else {
            return Ok(call);
        };
        // The attempt existed when its access token was checked, but may have ended since then. In
        // that case refuse the call.
        let attempt = self.board().attempts.get(id).cloned();
        let caller = CallingAttempt {
            attempt: attempt.ok_or_else(|| not_yours("any call, because the attempt has ended"))?,
            is_lead: *is_lead,
        };
        self.restrict_call(&caller, call).await
    }

    async fn restrict_call(&self, caller: &CallingAttempt, call: Call) -> Result<Call, Problem> {
        let board = self.board();
        let fencing_token = caller.attempt.token;
        if caller.is_lead
            && let Some(task) = steered_task(&call)?
        {
            caller.require_leads(&self.task_view(task).await?.task)?;
            return Ok(call);
        }
        Ok(match call {
            Call::TaskProgress(input) => {
                caller.require_own_attempt(input.task, input.attempt)?;
                Call::TaskProgress(input::TaskProgress {
                    token: fencing_token,
                    ..input
                })
            }
            Call::TaskFinish(input) => {
                caller.require_own_attempt(input.task, input.attempt)?;
                Call::TaskFinish(input::TaskFinish {
                    token: fencing_token,
                    ..input
                })
            }
            Call::TaskFail(input) => {
                caller.require_own_attempt(input.task, input.attempt)?;
                Call::TaskFail(input::TaskFail {
                    token: fencing_token,
                    ..input
                })
            }
            Call::AttemptAsk(input) => {
                caller.require_own_attempt(input.task, input.attempt)?;
                let wait_ms = input.wait_ms.min(MAX_ATTEMPT_WAIT_MS);
                Call::AttemptAsk(input::AttemptAsk {
                    token: fencing_token,
                    wait_ms,
                    ..input
                })
            }
            Call::AttemptAnswer(input) => {
                caller.require_own_attempt(caller.attempt.task, input.attempt)?;
                Call::AttemptAnswer(input::AttemptAnswer {
                    wait_ms: input.wait_ms.min(MAX_ATTEMPT_WAIT_MS),
                    ..input
                })
            }
            Call::Siblings(input) => {
                caller.require_own_attempt(caller.attempt.task, input.attempt)?;
                Call::Siblings(input)
            }
            Call::Briefing(input) => {
                caller.require_own_attempt(caller.attempt.task, input.attempt)?;
                Call::Briefing(input)
            }
            Call::ClaimAcquire(input) => {
                caller.require_claimable(&input.uris)?;
                let held_claims = board
                    .claims
                    .values()
                    .filter(|claim| claim.owner == caller.claim_owner() && claim.ttl_ms.is_some())
                    .count();
                if held_claims >= MAX_CLAIMS {
                    return Err(Problem::new(
                        409,
                        "too_many",
                        format!(
                            "the attempt {} already holds {held_claims} claims, which is the limit",
                            caller.attempt.id
                        ),
                        "release claims that you no longer need",
                    ));
                }
                Call::ClaimAcquire(input::ClaimAcquire {
                    agent: caller.attempt.agent.clone(),
                    ttl_ms: input.ttl_ms.min(MAX_TTL_MS),
                    wait_ms: input.wait_ms.min(MAX_ATTEMPT_WAIT_MS),
                    ..input
                })
            }
            Call::ClaimRenew(input) => {
                caller.require_holds_claim(&board, input.claim)?;
                Call::ClaimRenew(input)
            }
            Call::ClaimRelease(input) => {
                caller.require_holds_claim(&board, input.claim)?;
                Call::ClaimRelease(input)
            }
            Call::ClaimCheck(input) => {
                caller.require_claimable(&input.uris)?;
                Call::ClaimCheck(input)
            }
            Call::MsgSend(input) => {
                caller.require_may_post(&input.channel)?;
                let agent = caller.posting_agent(input.agent.clone())?;
                if let Some(to) = input.reply_to {
                    self.require_readable_message(caller, to).await?;
                }
                if let Some(label) = input
                    .labels
                    .iter()
                    .find(|label| label.as_str().starts_with(LEAD_LABEL_PREFIX))
                {
                    return Err(Problem::new(
                        403,
                        "not_yours",
                        format!("only Regatta may use the label {label}"),
                        "send the message without that label",
                    ));
                }
                if input
                    .labels
                    .iter()
                    .any(|label| label.as_str() == RESERVED_LABEL)
                {
                    return Err(Problem::new(
                        403,
                        "not_yours",
                        format!("only Regatta may use the label {RESERVED_LABEL}"),
                        "send the message without that label",
                    ));
                }
                Call::MsgSend(input::MsgSend {
                    agent: Some(agent),
                    ..input
                })
            }
            Call::MsgHistory(input) => {
                let referenced = [input.thread, input.reply_to];
                let (channel, from) = self
                    .restrict_message_filter(
                        caller,
                        input.channel.clone(),
                        input.from.clone(),
                        referenced,
                    )
                    .await?;
                Call::MsgHistory(input::MsgHistory {
                    channel,
                    from,
                    ..input
                })
            }
            Call::MsgWait(input) => {
                let referenced = [input.thread, input.reply_to];
                let (channel, from) = self
                    .restrict_message_filter(
                        caller,
                        input.channel.clone(),
                        input.from.clone(),
                        referenced,
                    )
                    .await?;
                let timeout_ms = input.timeout_ms.min(MAX_ATTEMPT_WAIT_MS);
                Call::MsgWait(input::MsgWait {
                    channel,
                    from,
                    timeout_ms,
                    ..input
                })
            }
            Call::MsgInbox(_) => Call::MsgInbox(input::MsgInbox {
                agent: caller.attempt.agent.clone(),
            }),
            Call::MsgAttachment(input) => {
                self.require_readable_message(caller, input.message).await?;
                Call::MsgAttachment(input)
            }
            Call::Name(input) => Call::Name(input),
            Call::MsgRead(input) => {
                caller.require_may_read(&input.channel)?;
                Call::MsgRead(input::MsgRead {
                    agent: caller.attempt.agent.clone(),
                    ..input
                })
            }
            Call::TaskAdd(input) => Call::TaskAdd(caller.restrict_task_add(&board, input)?),
            Call::Why(input) => {
                self.require_visible(caller, &input.id).await?;
                Call::Why(input)
            }
            Call::Show(input) => {
                self.require_visible(caller, &input.id).await?;
                Call::Show(input)
            }
            Call::Guide(input) => Call::Guide(input),
            Call::MissionList(_) => Call::MissionList(input::ProjectFilter {
                project: Some(caller.attempt.project.clone()),
            }),
            Call::MissionFinish(input) => {
                caller.require_own_attempt(input.task, input.attempt)?;
                Call::MissionFinish(input::MissionFinish {
                    token: fencing_token,
                    ..input
                })
            }
            // Without a mission in the input, the mission that the caller leads is used.
            // regatta-core checks that the caller may take this task into that mission.
            Call::MissionAdopt(input) => Call::MissionAdopt(input::MissionAdopt {
                mission: None,
                ..input
            }),
            Call::InboxList(_) => Call::InboxList(input::ProjectFilter {
                project: Some(caller.attempt.project.clone()),
            }),
            Call::InboxAnswer(input) => {
                caller.require_may_answer(&board, &input)?;
                Call::InboxAnswer(input)
            }
            Call::Queue(_) => Call::Queue(input::ProjectFilter {
                project: Some(caller.attempt.project.clone()),
            }),
            Call::TaskList(input) => Call::TaskList(input::TaskList {
                project: Some(caller.attempt.project.clone()),
                ..input
            }),
            Call::MissionShow(input) => {
                self.require_visible(caller, &input.id).await?;
                Call::MissionShow(input)
            }
            Call::ScopeReport(input) => {
                caller.require_own_attempt(input.task, input.attempt)?;
                Call::ScopeReport(input::ScopeReport {
                    token: fencing_token,
                    ..input
                })
            }
            Call::TaskAssign(input) => {
                caller.require_take_or_return(&self.task_view(input.task).await?.task, &input)?;
                Call::TaskAssign(input)
            }
            // Only fill in the caller's agent here, because regatta-core checks that the task is
            // offered to that agent.
            Call::TaskAccept(input) => Call::TaskAccept(caller.with_own_agent(input)),
            Call::TaskReject(input) => Call::TaskReject(caller.with_own_agent(input)),
            // The table of API verbs allows attempts no verbs other than those above. If a call of
            // another verb arrives nevertheless, refuse the call.
            other => return Err(not_yours(&format!("the verb {}", other.verb().name))),
        })
    }

    /// Checks that an attempt may read a message. The message must be in one of the attempt's
    /// channels, or the attempt's agent must have sent or received the message.
    async fn require_readable_message(
        &self,
        caller: &CallingAttempt,
        id: MessageId,
    ) -> Result<(), Problem> {
        let message = self.find_message(id).await?;
        match bus::addressee(&message.channel) {
            None => caller.require_may_read(&message.channel),
            Some(_) if message.may_be_read_by(&caller.attempt.agent) => Ok(()),
            Some(_) => Err(not_yours(&format!("{id}, which was sent to another agent"))),
        }
    }

    /// Restricts the channels in which an attempt reads messages. The attempt may read its own
    /// channels, its own messages in another agent's mailbox, and the thread of a message that the
    /// attempt may read. If the call names no channel, the attempt reads its project's channel.
    async fn restrict_message_filter(
        &self,
        caller: &CallingAttempt,
        channel: Option<ChannelName>,
        from: Option<String>,
        referenced: [Option<MessageId>; 2],
    ) -> Result<(Option<ChannelName>, Option<String>), Problem> {
        let referenced: Vec<MessageId> = referenced.into_iter().flatten().collect();
        for message in &referenced {
            self.require_readable_message(caller, *message).await?;
        }
        match channel {
            Some(channel) if caller.require_may_read(&channel).is_ok() => Ok((Some(channel), from)),
            Some(channel) if bus::addressee(&channel).is_some() => {
                Ok((Some(channel), Some(caller.attempt.agent.to_string())))
            }
            Some(channel) => caller
                .require_may_read(&channel)
                .map(|()| (Some(channel), from)),
            None if referenced.is_empty() => {
                Ok((ChannelName::new(caller.attempt.project.as_str()).ok(), from))
            }
            None => Ok((None, from)),
        }
    }

    /// Checks that an attempt may see the thing with this id. The attempt may see itself, its
    /// agent, its mission, the tasks of its project, and its own requests.
    async fn require_visible(&self, caller: &CallingAttempt, id: &str) -> Result<(), Problem> {
        let is_visible = match self.resolve_reference(id, &resolve_id::SHOW)? {
            Reference::Agent(name) if name == caller.attempt.agent => true,
            Reference::Agent(_) => return Err(not_yours("another agent")),
            Reference::Attempt(attempt) => attempt == caller.attempt.id,
            Reference::Mission(mission) => Some(mission) == caller.attempt.mission,
            Reference::Task(task) => {
                self.task_view(task).await?.task.project == caller.attempt.project
            }
            // A lead may see the requests of its mission's workers, because the lead answers their
            // questions.
            Reference::Approval(id) => self.find_approval(id).await?.is_some_and(|found| {
                found.attempt == caller.attempt.id
                    || (caller.is_lead
                        && found.mission.is_some()
                        && found.mission == caller.attempt.mission)
            }),
            other => return Err(resolve_id::unsupported_kind(&other, "show")),
        };
        if is_visible {
            Ok(())
        } else {
            Err(not_yours(&id.chars().take(20).collect::<String>()))
        }
    }
}

/// Returns the task that a call is about, if a lead directs other tasks with calls of this kind.
/// Returns `None` for all other calls. A lead is an agent that leads other agents.
fn steered_task(call: &Call) -> Result<Option<TaskId>, Problem> {
    Ok(Some(match call {
        Call::TaskAssign(input) => input.task,
        Call::TaskCancel(input) => input.task,
        Call::Tell(input) | Call::Revise(input) => parse_id(&input.id)?,
        Call::Retry(input) => parse_id(&input.id)?,
        Call::Diff(input) => parse_id(&input.id)?,
        Call::Land(input) => parse_id(&input.id)?,
        _ => return Ok(None),
    }))
}

impl CallingAttempt {
    /// Checks that a call assigns an unassigned task to the caller's own agent, or gives back a
    /// task that this agent has not begun.
    fn require_take_or_return(
        &self,
        task: &Task,
        input: &input::TaskAssign,
    ) -> Result<(), Problem> {
        let agent = &self.attempt.agent;
        let is_in_scope = task.project == self.attempt.project
            && task
                .mission
                .is_none_or(|id| self.attempt.mission == Some(id));
        let is_allowed = match &input.to {
            Some(to) => {
                to == agent && input.how == task::AssignMode::Direct && task.status.is_unassigned()
            }
            None => task.assignee.as_ref() == Some(agent) && task.status.is_pending(),
        };
        if is_in_scope && is_allowed {
            return Ok(());
        }
        Err(Problem::new(
            403,
            "not_yours",
            format!(
                "an attempt can neither take {} for its agent nor give it back",
                task.id
            ),
            "take an unassigned task of your project, or return a task of yours that has not begun",
        ))
    }

    /// Checks that the caller is a lead (an agent that leads other agents) who answers a question
    /// of its own workers. Only people can answer requests for permission.
    fn require_may_answer(&self, board: &Board, input: &input::InboxAnswer) -> Result<(), Problem> {
        let approval = board.approvals.get(&input.id);
        // Read the mission from the request and not from the attempt that made the request, because
        // that attempt may have ended.
        let is_own_worker = approval.is_some_and(|approval| {
            approval.attempt != self.attempt.id
                && approval.mission.is_some()
                && approval.mission == self.attempt.mission
        });
        let is_question = approval.is_some_and(|approval| {
            matches!(approval.request.content, RequestContent::Question { .. })
        });
        if self.is_lead && is_own_worker && is_question && input.reach == AnswerScope::Once {
            return Ok(());
        }
        Err(Problem::new(
            403,
            "not_yours",
            format!("this attempt may not answer the request {}", input.id),
            "a lead can answer questions of its own workers, once; only people can grant \
            permissions",
        ))
    }

    fn with_own_agent(&self, input: input::OfferReply) -> input::OfferReply {
        input::OfferReply {
            agent: self.attempt.agent.clone(),
            ..input
        }
    }

    fn claim_owner(&self) -> ClaimOwner {
        ClaimOwner::Attempt(self.attempt.id)
    }

    fn require_own_attempt(&self, task: TaskId, attempt: AttemptId) -> Result<(), Problem> {
        if task == self.attempt.task && attempt == self.attempt.id {
            Ok(())
        } else {
            Err(not_yours(&format!("{task} and {attempt}")))
        }
    }

    /// Checks that a lead (an agent that leads other agents) may direct this task. The task must
    /// belong to the lead's mission or, if the lead has no mission, to the lead's project.
    fn require_leads(&self, task: &Task) -> Result<(), Problem> {
        let is_in_scope = |task: &Task| {
            task.project == self.attempt.project
                && self.attempt.mission.is_none_or(|m| task.mission == Some(m))
        };
        if self.is_lead && is_in_scope(task) {
            Ok(())
        } else {
            Err(not_yours(&task.id.to_string()))
        }
    }

    /// Checks that the attempt itself acquired this claim (lease). The attempt cannot release the
    /// automatic claim on the files of its task, because other attempts could then write the same
    /// files.
    fn require_holds_claim(&self, board: &Board, claim: ClaimId) -> Result<(), Problem> {
        match board.claims.get(&claim) {
            Some(held) if held.owner == self.claim_owner() && held.ttl_ms.is_some() => Ok(()),
            Some(held) if held.owner == self.claim_owner() => Err(Problem::new(
                403,
                "not_yours",
                format!(
                    "{claim} covers the files of your task and lasts as long as your attempt, so you cannot release it"
                ),
                "finish the task or give up instead",
            )),
            Some(_) => Err(not_yours(&claim.to_string())),
            None => Err(Problem::from(&regatta_core::refusal::Refusal::ClaimEnded {
                claim,
            })),
        }
    }

    /// Checks that an attempt may claim (lease) the things with these URIs. The attempt may claim
    /// files of its project, ports, and its own task, workspace and agent name. URIs that protect
    /// people's work or the trunk are refused.
    fn require_claimable(&self, uris: &[Uri]) -> Result<(), Problem> {
        let (project, task, agent) = (
            &self.attempt.project,
            self.attempt.task,
            &self.attempt.agent,
        );
        for uri in uris {
            let text = uri.as_str();
            let is_allowed = text
                .strip_prefix(&format!("file://{project}/"))
                .is_some_and(|path| self.is_bounded(path))
                || text.starts_with("port://")
                || text == format!("task://{project}/{task}")
                || text == format!("workspace://{project}/{task}")
                || text == format!("agent://{agent}")
                || (self.is_lead && text == format!("workspace://{project}/default"));
            if !is_allowed {
                return Err(Problem::new(
                    403,
                    "not_yours",
                    format!("an attempt cannot claim {text}"),
                    format!(
                        "claim files or a directory of your project (file://{project}/src/*) or \
                        ports (port://…)"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Returns whether an attempt may claim the files that match a pattern. An attempt may claim
    /// single files or one directory, and a lead may also claim everything below a directory. An
    /// attempt cannot claim a whole project or its top directory, because no other task could then
    /// start. The files of the attempt's own task are claimed automatically.
    fn is_bounded(&self, path: &str) -> bool {
        let has_wildcard = |segment: &str| segment.contains(['*', '?']);
        let top = path.split('/').next().unwrap_or_default();
        !has_wildcard(top) && (self.is_lead || !path.split('/').any(|segment| segment == "**"))
    }

    /// Checks that an attempt may read a channel. The attempt may read its project's channel and
    /// channels whose names begin with the project's name, the channels of its mission and task,
    /// and its agent's mailbox.
    fn require_may_read(&self, channel: &ChannelName) -> Result<(), Problem> {
        let name = channel.as_str().trim_start_matches('#');
        let project = self.attempt.project.as_str();
        let is_own = name == project
            || name
                .strip_prefix(project)
                .is_some_and(|name| name.starts_with(['-', '.']))
            || self
                .attempt
                .mission
                .is_some_and(|id| name == id.to_string())
            || name == self.attempt.task.to_string()
            || name.strip_prefix('@') == Some(self.attempt.agent.as_str());
        if is_own {
            return Ok(());
        }
        Err(Problem::new(
            403,
            "not_yours",
            format!("this attempt may not use the channel {channel}"),
            format!("use {project}, and mention an agent there: @name"),
        ))
    }

    /// Checks that an attempt may post to a channel. The attempt may post to every channel that it
    /// may read, and to every agent's mailbox.
    fn require_may_post(&self, channel: &ChannelName) -> Result<(), Problem> {
        if bus::addressee(channel).is_some() {
            Ok(())
        } else {
            self.require_may_read(channel)
        }
    }

    /// Returns the agent in whose name an attempt posts a message: the attempt's own agent, such as
    /// `claude-1`, or an agent below that one, such as `claude-1/helper`.
    fn posting_agent(&self, requested: Option<AgentName>) -> Result<AgentName, Problem> {
        let own_agent = &self.attempt.agent;
        match requested {
            None => Ok(own_agent.clone()),
            Some(name) if bus::is_same_or_below(&name, own_agent) => Ok(name),
            Some(name) => Err(Problem::new(
                403,
                "not_yours",
                format!("an attempt of {own_agent} cannot post as {name}"),
                format!("post as {own_agent}, or as an agent below it: {own_agent}/…"),
            )),
        }
    }

    /// Checks a task that an attempt wants to add, and returns it with its project filled in. A
    /// worker can only propose a task for the backlog.
    fn restrict_task_add(
        &self,
        board: &Board,
        input: input::TaskAdd,
    ) -> Result<input::TaskAdd, Problem> {
        let refuse = |what: &str, hint: &str| Err(Problem::new(403, "not_yours", what, hint));
        // List all fields, so that the compiler reports every new field and somebody decides
        // whether attempts may set it.
        let input::TaskAdd {
            project,
            subject,
            description,
            issue_type,
            files,
            validation,
            blocked_by,
            priority,
            expects,
            effort,
            provider,
            script,
            ratchet,
            alias,
            backlog,
            assign,
            how,
        } = input;
        if project.is_some_and(|project| project != self.attempt.project) {
            return Err(not_yours("another project"));
        }
        if script.is_some() || ratchet.is_some() {
            return refuse(
                "only people may give a task a script or a ratchet (a command that must accept passed work)",
                "omit the script and the ratchet",
            );
        }
        let is_foreign = |id: &TaskId| {
            board
                .tasks
                .get(id)
                .is_some_and(|task| task.project != self.attempt.project)
        };
        if blocked_by.iter().any(is_foreign) {
            return Err(not_yours("a task of another project"));
        }
        let has_commands = !validation.tests.is_empty() || !validation.lint.is_empty();
        if !self.is_lead && has_commands {
            return refuse(
                "only people and leads may give a task commands that check its work",
                "describe the test in the description",
            );
        }
        if !self.is_lead && assign.is_some() {
            return refuse(
                "only a lead may assign tasks",
                "omit the assignee; a person or a lead will assign the task",
            );
        }
        let is_in_backlog =
            |task: &&Arc<Task>| task.project == self.attempt.project && task.status.is_in_backlog();
        if board.tasks.values().filter(is_in_backlog).count() >= MAX_BACKLOG_TASKS {
            return refuse(
                "the project's backlog has no room for another task from an agent",
                "describe the work in your task's result",
            );
        }
        Ok(input::TaskAdd {
            project: Some(self.attempt.project.clone()),
            subject,
            description,
            issue_type,
            files,
            validation,
            blocked_by,
            priority,
            expects,
            effort,
            provider,
            script: None,
            ratchet: None,
            alias,
            backlog: backlog || !self.is_lead,
            assign,
            how,
        })
    }
}

fn not_yours(target: &str) -> Problem {
    Problem::new(
        403,
        "not_yours",
        format!("this attempt's token does not allow {target}"),
        "use the token only for the attempt's own task, its own claims and the channels of its project",
    )
}
