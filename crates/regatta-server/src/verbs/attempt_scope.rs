//! Restricts calls with an attempt's token: to its task, its claims and its channels; for a lead,
//! also to the tasks of its mission.
//!
//! Every call of an attempt is checked before it is carried out. Forbidden calls are refused here,
//! and fields that identify the caller are filled in from the token, never from the input. The
//! holder of such a token may be hostile, because it is a program that reads texts of strangers.

use regatta_core::agent_protocol::RequestContent;
use regatta_core::approval::AnswerScope;
use regatta_core::attempt::Attempt;
use regatta_core::ids::{ChannelName, ClaimId};
use regatta_core::pattern::Uri;
use regatta_core::reference::Reference;
use regatta_core::task::Task;

use regatta_core::task;

use super::*;

/// Maximum number of claims of an attempt besides its manifest.
const MAX_CLAIMS: usize = 32;
/// Maximum lifetime of an attempt's claim without renewal.
const MAX_TTL_MS: u64 = 30 * 60_000;
/// Maximum time that a call of an attempt waits.
const MAX_ATTEMPT_WAIT_MS: u64 = 10 * 60_000;
/// Number of tasks in a project's backlog at which attempts may add no more.
const MAX_BACKLOG_TASKS: usize = 200;
/// Label that only Regatta itself may use.
const RESERVED_LABEL: &str = "coord:merge";
/// Prefix of the labels that name the lead of a message.
const LEAD_LABEL_PREFIX: &str = "lead:";

/// The calling attempt.
struct CallingAttempt {
    attempt: Arc<Attempt>,
    is_lead: bool,
}

impl VerbHandler<'_> {
    /// Returns the call as its caller may make it, or the refusal.
    pub(super) async fn restrict_to_attempt(&self, call: Call) -> Result<Call, Problem> {
        let Principal::Attempt {
            id, is_lead: lead, ..
        } = &self.principal
        else {
            return Ok(call);
        };
        // The attempt existed when its token was verified.
        let attempt = self.board().attempts.get(id).cloned();
        let own = CallingAttempt {
            attempt: attempt.ok_or_else(|| not_yours("an attempt that is over"))?,
            is_lead: *lead,
        };
        self.restrict_call(&own, call).await
    }

    async fn restrict_call(&self, own: &CallingAttempt, call: Call) -> Result<Call, Problem> {
        let board = self.board();
        let fence = own.attempt.token;
        if own.is_lead
            && let Some(task) = steered_task(&call)?
        {
            own.require_leads(&self.task_view(task).await?.task)?;
            return Ok(call);
        }
        Ok(match call {
            Call::TaskProgress(ask) => {
                own.require_own_attempt(ask.task, ask.attempt)?;
                Call::TaskProgress(input::TaskProgress {
                    token: fence,
                    ..ask
                })
            }
            Call::TaskFinish(ask) => {
                own.require_own_attempt(ask.task, ask.attempt)?;
                Call::TaskFinish(input::TaskFinish {
                    token: fence,
                    ..ask
                })
            }
            Call::TaskFail(ask) => {
                own.require_own_attempt(ask.task, ask.attempt)?;
                Call::TaskFail(input::TaskFail {
                    token: fence,
                    ..ask
                })
            }
            Call::AttemptAsk(ask) => {
                own.require_own_attempt(ask.task, ask.attempt)?;
                let wait_ms = ask.wait_ms.min(MAX_ATTEMPT_WAIT_MS);
                Call::AttemptAsk(input::AttemptAsk {
                    token: fence,
                    wait_ms,
                    ..ask
                })
            }
            Call::AttemptAnswer(ask) => {
                own.require_own_attempt(own.attempt.task, ask.attempt)?;
                Call::AttemptAnswer(input::AttemptAnswer {
                    wait_ms: ask.wait_ms.min(MAX_ATTEMPT_WAIT_MS),
                    ..ask
                })
            }
            Call::Siblings(ask) => {
                own.require_own_attempt(own.attempt.task, ask.attempt)?;
                Call::Siblings(ask)
            }
            Call::Briefing(ask) => {
                own.require_own_attempt(own.attempt.task, ask.attempt)?;
                Call::Briefing(ask)
            }
            Call::ClaimAcquire(ask) => {
                own.require_claimable(&ask.uris)?;
                let held = board
                    .claims
                    .values()
                    .filter(|claim| claim.owner == own.claim_owner() && claim.ttl_ms.is_some())
                    .count();
                if held >= MAX_CLAIMS {
                    return Err(Problem::new(
                        409,
                        "too_many",
                        format!("{} already holds {held} claims", own.attempt.id),
                        "release claims that you no longer need",
                    ));
                }
                Call::ClaimAcquire(input::ClaimAcquire {
                    agent: own.attempt.agent.clone(),
                    ttl_ms: ask.ttl_ms.min(MAX_TTL_MS),
                    wait_ms: ask.wait_ms.min(MAX_ATTEMPT_WAIT_MS),
                    ..ask
                })
            }
            Call::ClaimRenew(ask) => {
                own.require_holds_claim(&board, ask.claim)?;
                Call::ClaimRenew(ask)
            }
            Call::ClaimRelease(ask) => {
                own.require_holds_claim(&board, ask.claim)?;
                Call::ClaimRelease(ask)
            }
            Call::ClaimCheck(ask) => {
                own.require_claimable(&ask.uris)?;
                Call::ClaimCheck(ask)
            }
            Call::MsgSend(ask) => {
                own.require_may_post(&ask.channel)?;
                let agent = own.posting_agent(ask.agent.clone())?;
                if let Some(to) = ask.reply_to {
                    self.require_readable_message(own, to).await?;
                }
                if let Some(label) = ask
                    .labels
                    .iter()
                    .find(|label| label.as_str().starts_with(LEAD_LABEL_PREFIX))
                {
                    return Err(Problem::new(
                        403,
                        "not_yours",
                        format!("only Regatta may use the label {label}"),
                        "send it without that label",
                    ));
                }
                if ask
                    .labels
                    .iter()
                    .any(|label| label.as_str() == RESERVED_LABEL)
                {
                    return Err(Problem::new(
                        403,
                        "not_yours",
                        format!("only Regatta may use the label {RESERVED_LABEL}"),
                        "send it without that label",
                    ));
                }
                Call::MsgSend(input::MsgSend {
                    agent: Some(agent),
                    ..ask
                })
            }
            Call::MsgHistory(ask) => {
                let near = [ask.thread, ask.reply_to];
                let (channel, from) = self
                    .restrict_message_filter(own, ask.channel.clone(), ask.from.clone(), near)
                    .await?;
                Call::MsgHistory(input::MsgHistory {
                    channel,
                    from,
                    ..ask
                })
            }
            Call::MsgWait(ask) => {
                let near = [ask.thread, ask.reply_to];
                let (channel, from) = self
                    .restrict_message_filter(own, ask.channel.clone(), ask.from.clone(), near)
                    .await?;
                let timeout_ms = ask.timeout_ms.min(MAX_ATTEMPT_WAIT_MS);
                Call::MsgWait(input::MsgWait {
                    channel,
                    from,
                    timeout_ms,
                    ..ask
                })
            }
            Call::MsgInbox(_) => Call::MsgInbox(input::MsgInbox {
                agent: own.attempt.agent.clone(),
            }),
            Call::MsgAttachment(ask) => {
                self.require_readable_message(own, ask.message).await?;
                Call::MsgAttachment(ask)
            }
            Call::Name(ask) => Call::Name(ask),
            Call::MsgRead(ask) => {
                own.require_may_read(&ask.channel)?;
                Call::MsgRead(input::MsgRead {
                    agent: own.attempt.agent.clone(),
                    ..ask
                })
            }
            Call::TaskAdd(ask) => Call::TaskAdd(own.restrict_task_add(&board, ask)?),
            Call::Why(ask) => {
                self.require_visible(own, &ask.id).await?;
                Call::Why(ask)
            }
            Call::Show(ask) => {
                self.require_visible(own, &ask.id).await?;
                Call::Show(ask)
            }
            Call::Guide(ask) => Call::Guide(ask),
            Call::MissionList(_) => Call::MissionList(input::ProjectFilter {
                project: Some(own.attempt.project.clone()),
            }),
            Call::MissionFinish(ask) => {
                own.require_own_attempt(ask.task, ask.attempt)?;
                Call::MissionFinish(input::MissionFinish {
                    token: fence,
                    ..ask
                })
            }
            // The core checks the task.
            Call::MissionAdopt(ask) => Call::MissionAdopt(input::MissionAdopt {
                mission: None,
                ..ask
            }),
            Call::InboxList(_) => Call::InboxList(input::ProjectFilter {
                project: Some(own.attempt.project.clone()),
            }),
            Call::InboxAnswer(ask) => {
                own.require_may_answer(&board, &ask)?;
                Call::InboxAnswer(ask)
            }
            Call::Queue(_) => Call::Queue(input::ProjectFilter {
                project: Some(own.attempt.project.clone()),
            }),
            Call::TaskList(ask) => Call::TaskList(input::TaskList {
                project: Some(own.attempt.project.clone()),
                ..ask
            }),
            Call::MissionShow(ask) => {
                self.require_visible(own, &ask.id).await?;
                Call::MissionShow(ask)
            }
            Call::ScopeReport(ask) => {
                own.require_own_attempt(ask.task, ask.attempt)?;
                Call::ScopeReport(input::ScopeReport {
                    token: fence,
                    ..ask
                })
            }
            Call::TaskAssign(ask) => {
                own.require_take_or_return(&self.task_view(ask.task).await?.task, &ask)?;
                Call::TaskAssign(ask)
            }
            // The core checks that the offer is this agent's.
            Call::TaskAccept(ask) => Call::TaskAccept(own.with_own_agent(ask)),
            Call::TaskReject(ask) => Call::TaskReject(own.with_own_agent(ask)),
            // The table of verbs allows no other call. If one arrives anyway, it is refused.
            other => return Err(not_yours(&format!("the verb {}", other.verb().name))),
        })
    }

    /// Checks that an attempt may read a message: in one of its channels, or sent by or to it.
    async fn require_readable_message(
        &self,
        own: &CallingAttempt,
        id: MessageId,
    ) -> Result<(), Problem> {
        let message = self.find_message(id).await?;
        match bus::addressee(&message.channel) {
            None => own.require_may_read(&message.channel),
            Some(_) if message.may_be_read_by(&own.attempt.agent) => Ok(()),
            Some(_) => Err(not_yours(&format!("{id}, which was sent to another agent"))),
        }
    }

    /// Restricts where an attempt reads messages: in its channels, in another mailbox only its own
    /// messages, around a message that it may read, or else in its project's channel.
    async fn restrict_message_filter(
        &self,
        own: &CallingAttempt,
        channel: Option<ChannelName>,
        from: Option<String>,
        near: [Option<MessageId>; 2],
    ) -> Result<(Option<ChannelName>, Option<String>), Problem> {
        let near: Vec<MessageId> = near.into_iter().flatten().collect();
        for message in &near {
            self.require_readable_message(own, *message).await?;
        }
        match channel {
            Some(channel) if own.require_may_read(&channel).is_ok() => Ok((Some(channel), from)),
            Some(channel) if bus::addressee(&channel).is_some() => {
                Ok((Some(channel), Some(own.attempt.agent.to_string())))
            }
            Some(channel) => own
                .require_may_read(&channel)
                .map(|()| (Some(channel), from)),
            None if near.is_empty() => {
                Ok((ChannelName::new(own.attempt.project.as_str()).ok(), from))
            }
            None => Ok((None, from)),
        }
    }

    /// Checks that an attempt may see something: itself, its agent, its mission, and the tasks of
    /// its project.
    async fn require_visible(&self, own: &CallingAttempt, id: &str) -> Result<(), Problem> {
        let seen = match self.resolve_reference(id, &resolve_id::SHOW)? {
            Reference::Agent(name) if name == own.attempt.agent => true,
            Reference::Agent(_) => return Err(not_yours("another agent")),
            Reference::Attempt(attempt) => attempt == own.attempt.id,
            Reference::Mission(mission) => Some(mission) == own.attempt.mission,
            Reference::Task(task) => {
                self.task_view(task).await?.task.project == own.attempt.project
            }
            // A lead answers the questions of its workers.
            Reference::Approval(id) => self.find_approval(id).await?.is_some_and(|found| {
                found.attempt == own.attempt.id
                    || (own.is_lead
                        && found.mission.is_some()
                        && found.mission == own.attempt.mission)
            }),
            other => return Err(resolve_id::unsupported_kind(&other, "show")),
        };
        if seen {
            Ok(())
        } else {
            Err(not_yours(&id.chars().take(20).collect::<String>()))
        }
    }
}

/// Returns the task that a call steers, for verbs that only a lead may use on other tasks.
fn steered_task(call: &Call) -> Result<Option<TaskId>, Problem> {
    Ok(Some(match call {
        Call::TaskAssign(ask) => ask.task,
        Call::TaskCancel(ask) => ask.task,
        Call::Tell(ask) | Call::Revise(ask) => parse_id(&ask.id)?,
        Call::Retry(ask) => parse_id(&ask.id)?,
        Call::Diff(ask) => parse_id(&ask.id)?,
        Call::Land(ask) => parse_id(&ask.id)?,
        _ => return Ok(None),
    }))
}

impl CallingAttempt {
    /// Checks that an agent takes an unassigned task for itself, or returns a task that it has not
    /// begun.
    fn require_take_or_return(&self, task: &Task, ask: &input::TaskAssign) -> Result<(), Problem> {
        let own = &self.attempt.agent;
        let near = task.project == self.attempt.project
            && task
                .mission
                .is_none_or(|id| self.attempt.mission == Some(id));
        let fine = match &ask.to {
            Some(to) => {
                to == own
                    && ask.how == task::AssignMode::Direct
                    && task.status == task::TaskStatus::Unassigned
            }
            None => task.assignee.as_ref() == Some(own) && task.status == task::TaskStatus::Pending,
        };
        if near && fine {
            return Ok(());
        }
        Err(Problem::new(
            403,
            "not_yours",
            format!("you can neither take nor return {}", task.id),
            "take an unassigned task of your project, or return a task of yours that has not begun",
        ))
    }

    /// Checks that a lead answers a question of its own workers. Permissions are decided by people.
    fn require_may_answer(&self, board: &Board, ask: &input::InboxAnswer) -> Result<(), Problem> {
        let item = board.approvals.get(&ask.id);
        // The attempt that asked may have ended.
        let near = item.is_some_and(|asked| {
            asked.attempt != self.attempt.id
                && asked.mission.is_some()
                && asked.mission == self.attempt.mission
        });
        let question = item.is_some_and(|approval| {
            matches!(approval.request.content, RequestContent::Question { .. })
        });
        if self.is_lead && near && question && ask.reach == AnswerScope::Once {
            return Ok(());
        }
        Err(Problem::new(
            403,
            "not_yours",
            format!("you cannot answer {}", ask.id),
            "a lead can answer questions of its own workers, once; only people can grant \
            permissions",
        ))
    }

    fn with_own_agent(&self, ask: input::OfferReply) -> input::OfferReply {
        input::OfferReply {
            agent: self.attempt.agent.clone(),
            ..ask
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

    /// Checks that a lead may steer this task: one of its mission, or of its project if it leads no
    /// mission.
    fn require_leads(&self, task: &Task) -> Result<(), Problem> {
        let of = |task: &Task| {
            task.project == self.attempt.project
                && self.attempt.mission.is_none_or(|m| task.mission == Some(m))
        };
        if self.is_lead && of(task) {
            Ok(())
        } else {
            Err(not_yours(&task.id.to_string()))
        }
    }

    /// Checks that the attempt acquired this claim itself. The claim on its manifest must last as
    /// long as the attempt, because otherwise others could write the same files.
    fn require_holds_claim(&self, board: &Board, claim: ClaimId) -> Result<(), Problem> {
        match board.claims.get(&claim) {
            Some(item) if item.owner == self.claim_owner() && item.ttl_ms.is_some() => Ok(()),
            Some(item) if item.owner == self.claim_owner() => Err(Problem::new(
                403,
                "not_yours",
                format!(
                    "{claim} is the claim on your manifest, which lasts as long as your attempt"
                ),
                "finish the task or give up instead",
            )),
            Some(_) => Err(not_yours(&claim.to_string())),
            None => Err(Problem::from(&regatta_core::refusal::Refusal::ClaimEnded {
                claim,
            })),
        }
    }

    /// Checks that an attempt may claim these URIs: files of its project, ports, and its own task,
    /// workspace and name. It cannot claim what protects people or the trunk.
    fn require_claimable(&self, uris: &[Uri]) -> Result<(), Problem> {
        let (project, task, agent) = (
            &self.attempt.project,
            self.attempt.task,
            &self.attempt.agent,
        );
        for uri in uris {
            let text = uri.as_str();
            let fine = text
                .strip_prefix(&format!("file://{project}/"))
                .is_some_and(|text| self.is_bounded(text))
                || text.starts_with("port://")
                || text == format!("task://{project}/{task}")
                || text == format!("workspace://{project}/{task}")
                || text == format!("agent://{agent}")
                || (self.is_lead && text == format!("workspace://{project}/default"));
            if !fine {
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

    /// Returns whether a pattern is limited to files or one directory; for a lead also to
    /// everything below a directory. No attempt can claim a whole project or everything at its top,
    /// because that would keep all other tasks from starting. (An attempt holds its own files
    /// anyway.)
    fn is_bounded(&self, path: &str) -> bool {
        let wild = |s: &str| s.contains(['*', '?']);
        let top = path.split('/').next().unwrap_or_default();
        !wild(top) && (self.is_lead || !path.split('/').any(|path| path == "**"))
    }

    /// Checks that an attempt may read a channel: the project's and those named after it, its
    /// mission's, its task's, and its own mailbox.
    fn require_may_read(&self, channel: &ChannelName) -> Result<(), Problem> {
        let name = channel.as_str().trim_start_matches('#');
        let project = self.attempt.project.as_str();
        let own = name == project
            || name
                .strip_prefix(project)
                .is_some_and(|name| name.starts_with(['-', '.']))
            || self
                .attempt
                .mission
                .is_some_and(|id| name == id.to_string())
            || name == self.attempt.task.to_string()
            || name.strip_prefix('@') == Some(self.attempt.agent.as_str());
        if own {
            return Ok(());
        }
        Err(Problem::new(
            403,
            "not_yours",
            format!("{channel} is not a channel of this attempt"),
            format!("use {project}, and mention an agent there: @name"),
        ))
    }

    /// Checks that an attempt may post to a channel: to those that it may read, and to every
    /// mailbox.
    fn require_may_post(&self, channel: &ChannelName) -> Result<(), Problem> {
        if bus::addressee(channel).is_some() {
            Ok(())
        } else {
            self.require_may_read(channel)
        }
    }

    /// Returns the agent that an attempt posts as: its own, or one below it.
    fn posting_agent(&self, asked: Option<AgentName>) -> Result<AgentName, Problem> {
        let own = &self.attempt.agent;
        match asked {
            None => Ok(own.clone()),
            Some(name) if bus::is_same_or_below(&name, own) => Ok(name),
            Some(name) => Err(Problem::new(
                403,
                "not_yours",
                format!("{own} cannot post as {name}"),
                format!("post as {own}, or as an agent below it: {own}/…"),
            )),
        }
    }

    /// Returns a task that an attempt may add: in its project, and for a worker only as a proposal
    /// in the backlog.
    fn restrict_task_add(
        &self,
        board: &Board,
        ask: input::TaskAdd,
    ) -> Result<input::TaskAdd, Problem> {
        let refuse = |what: &str, hint: &str| Err(Problem::new(403, "not_yours", what, hint));
        // Destructured field by field, so that a new field must be considered here.
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
        } = ask;
        if project.is_some_and(|project| project != self.attempt.project) {
            return Err(not_yours("another project"));
        }
        if script.is_some() || ratchet.is_some() {
            return refuse(
                "only people may give a task a script or a ratchet",
                "omit the script and the ratchet",
            );
        }
        let foreign = |id: &TaskId| {
            board
                .tasks
                .get(id)
                .is_some_and(|task| task.project != self.attempt.project)
        };
        if blocked_by.iter().any(foreign) {
            return Err(not_yours("a task of another project"));
        }
        let checks = !validation.tests.is_empty() || !validation.lint.is_empty();
        if !self.is_lead && checks {
            return refuse(
                "only people and leads may give a task commands to check it",
                "describe the test in the description",
            );
        }
        if !self.is_lead && assign.is_some() {
            return refuse(
                "only a lead may assign tasks",
                "omit the assignee; a person or a lead will assign the task",
            );
        }
        let waiting = |task: &&Arc<Task>| {
            task.project == self.attempt.project && task.status == task::TaskStatus::Backlog
        };
        if board.tasks.values().filter(waiting).count() >= MAX_BACKLOG_TASKS {
            return refuse(
                "the project's backlog is full",
                "describe the work in your report",
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

fn not_yours(what: &str) -> Problem {
    Problem::new(
        403,
        "not_yours",
        format!("this attempt's token does not allow {what}"),
        "it allows its own task, its own claims and the channels of its project",
    )
}
