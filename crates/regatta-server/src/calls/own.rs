//! Restricts calls with an attempt's token: to its task, its claims and its channels; for a lead,
//! also to the tasks of its mission.
//!
//! Every call of an attempt is checked before it is carried out. Forbidden calls are refused here,
//! and fields that identify the caller are filled in from the token, never from the input. The
//! holder of such a token may be hostile, because it is a program that reads texts of strangers.

use regatta_core::approval::Reach;
use regatta_core::attempt::Attempt;
use regatta_core::ids::{ChannelName, ClaimId};
use regatta_core::pattern::Uri;
use regatta_core::reference::Reference;
use regatta_core::session::Want;
use regatta_core::task::Task;

use super::*;

/// Maximum number of claims of an attempt besides its manifest.
const MOST_CLAIMS: usize = 32;
/// Maximum lifetime of an attempt's claim without renewal.
const LONGEST_TTL_MS: u64 = 30 * 60_000;
/// Maximum time that a call of an attempt waits.
const LONGEST_WAIT_MS: u64 = 10 * 60_000;
/// Number of tasks in a project's backlog at which attempts may add no more.
const FULL_BACKLOG: usize = 200;
/// Label that only Regatta itself may use.
const OURS: &str = "coord:merge";
/// Prefix of the labels that name the lead of a message.
const LEADS: &str = "lead:";

/// The calling attempt.
struct Own {
    attempt: Arc<Attempt>,
    lead: bool,
}

impl Caller<'_> {
    /// Returns the call as its caller may make it, or the refusal.
    pub(super) async fn narrow(&self, call: Call) -> Result<Call, Problem> {
        let Visitor::Attempt { id, lead, .. } = &self.visitor else { return Ok(call) };
        // The attempt existed when its token was verified.
        let attempt = self.board().attempts.get(id).cloned();
        let own = Own { attempt: attempt.ok_or_else(|| not_yours("an attempt that is over"))?, lead: *lead };
        self.narrow_to(&own, call).await
    }

    async fn narrow_to(&self, own: &Own, call: Call) -> Result<Call, Problem> {
        let board = self.board();
        let fence = own.attempt.token;
        if own.lead
            && let Some(task) = steered(&call)?
        {
            own.leads(&self.task_view(task).await?.task)?;
            return Ok(call);
        }
        Ok(match call {
            Call::TaskProgress(ask) => {
                own.is(ask.task, ask.attempt)?;
                Call::TaskProgress(input::TaskProgress { token: fence, ..ask })
            }
            Call::TaskFinish(ask) => {
                own.is(ask.task, ask.attempt)?;
                Call::TaskFinish(input::TaskFinish { token: fence, ..ask })
            }
            Call::TaskFail(ask) => {
                own.is(ask.task, ask.attempt)?;
                Call::TaskFail(input::TaskFail { token: fence, ..ask })
            }
            Call::AttemptAsk(ask) => {
                own.is(ask.task, ask.attempt)?;
                let wait_ms = ask.wait_ms.min(LONGEST_WAIT_MS);
                Call::AttemptAsk(input::AttemptAsk { token: fence, wait_ms, ..ask })
            }
            Call::AttemptAnswer(ask) => {
                own.is(own.attempt.task, ask.attempt)?;
                Call::AttemptAnswer(input::AttemptAnswer { wait_ms: ask.wait_ms.min(LONGEST_WAIT_MS), ..ask })
            }
            Call::Siblings(ask) => {
                own.is(own.attempt.task, ask.attempt)?;
                Call::Siblings(ask)
            }
            Call::Briefing(ask) => {
                own.is(own.attempt.task, ask.attempt)?;
                Call::Briefing(ask)
            }
            Call::ClaimAcquire(ask) => {
                own.uris(&ask.uris)?;
                let held = board.claims.values().filter(|it| it.owner == own.owner() && it.ttl_ms.is_some()).count();
                if held >= MOST_CLAIMS {
                    return Err(Problem::new(
                        409,
                        "too_many",
                        format!("{} already holds {held} claims", own.attempt.id),
                        "release claims that you no longer need",
                    ));
                }
                Call::ClaimAcquire(input::ClaimAcquire {
                    agent: own.attempt.agent.clone(),
                    ttl_ms: ask.ttl_ms.min(LONGEST_TTL_MS),
                    wait_ms: ask.wait_ms.min(LONGEST_WAIT_MS),
                    ..ask
                })
            }
            Call::ClaimRenew(ask) => {
                own.holds(&board, ask.claim)?;
                Call::ClaimRenew(ask)
            }
            Call::ClaimRelease(ask) => {
                own.holds(&board, ask.claim)?;
                Call::ClaimRelease(ask)
            }
            Call::ClaimCheck(ask) => {
                own.uris(&ask.uris)?;
                Call::ClaimCheck(ask)
            }
            Call::MsgSend(ask) => {
                own.says_in(&ask.channel)?;
                let agent = own.speaks_as(ask.agent.clone())?;
                if let Some(to) = ask.reply_to {
                    self.reads_message(own, to).await?;
                }
                if let Some(label) = ask.labels.iter().find(|it| it.as_str().starts_with(LEADS)) {
                    return Err(Problem::new(
                        403,
                        "not_yours",
                        format!("only Regatta may use the label {label}"),
                        "send it without that label",
                    ));
                }
                if ask.labels.iter().any(|it| it.as_str() == OURS) {
                    return Err(Problem::new(
                        403,
                        "not_yours",
                        format!("only Regatta may use the label {OURS}"),
                        "send it without that label",
                    ));
                }
                Call::MsgSend(input::MsgSend { agent: Some(agent), ..ask })
            }
            Call::MsgHistory(ask) => {
                let near = [ask.thread, ask.reply_to];
                let (channel, from) = self.listens(own, ask.channel.clone(), ask.from.clone(), near).await?;
                Call::MsgHistory(input::MsgHistory { channel, from, ..ask })
            }
            Call::MsgWait(ask) => {
                let near = [ask.thread, ask.reply_to];
                let (channel, from) = self.listens(own, ask.channel.clone(), ask.from.clone(), near).await?;
                let timeout_ms = ask.timeout_ms.min(LONGEST_WAIT_MS);
                Call::MsgWait(input::MsgWait { channel, from, timeout_ms, ..ask })
            }
            Call::MsgInbox(_) => Call::MsgInbox(input::MsgInbox { agent: own.attempt.agent.clone() }),
            Call::MsgAttachment(ask) => {
                self.reads_message(own, ask.message).await?;
                Call::MsgAttachment(ask)
            }
            Call::Name(ask) => Call::Name(ask),
            Call::MsgRead(ask) => {
                own.hears(&ask.channel)?;
                Call::MsgRead(input::MsgRead { agent: own.attempt.agent.clone(), ..ask })
            }
            Call::TaskAdd(ask) => Call::TaskAdd(own.follow_up(&board, ask)?),
            Call::Why(ask) => {
                self.sees(own, &ask.id).await?;
                Call::Why(ask)
            }
            Call::Show(ask) => {
                self.sees(own, &ask.id).await?;
                Call::Show(ask)
            }
            Call::Guide(ask) => Call::Guide(ask),
            Call::MissionList(_) => Call::MissionList(input::Scope { project: Some(own.attempt.project.clone()) }),
            Call::MissionFinish(ask) => {
                own.is(ask.task, ask.attempt)?;
                Call::MissionFinish(input::MissionFinish { token: fence, ..ask })
            }
            // The core checks the task.
            Call::MissionAdopt(ask) => Call::MissionAdopt(input::MissionAdopt { mission: None, ..ask }),
            Call::InboxList(_) => Call::InboxList(input::Scope { project: Some(own.attempt.project.clone()) }),
            Call::InboxAnswer(ask) => {
                own.may_answer(&board, &ask)?;
                Call::InboxAnswer(ask)
            }
            Call::Queue(_) => Call::Queue(input::Scope { project: Some(own.attempt.project.clone()) }),
            Call::TaskList(ask) => {
                Call::TaskList(input::TaskList { project: Some(own.attempt.project.clone()), ..ask })
            }
            Call::MissionShow(ask) => {
                self.sees(own, &ask.id).await?;
                Call::MissionShow(ask)
            }
            Call::ScopeReport(ask) => {
                own.is(ask.task, ask.attempt)?;
                Call::ScopeReport(input::ScopeReport { token: fence, ..ask })
            }
            Call::TaskAssign(ask) => {
                own.takes_or_returns(&self.task_view(ask.task).await?.task, &ask)?;
                Call::TaskAssign(ask)
            }
            // The core checks that the offer is this agent's.
            Call::TaskAccept(ask) => Call::TaskAccept(own.answers(ask)),
            Call::TaskReject(ask) => Call::TaskReject(own.answers(ask)),
            // The table of verbs allows no other call. If one arrives anyway, it is refused.
            other => return Err(not_yours(&format!("the verb {}", other.verb().name))),
        })
    }

    /// Checks that an attempt may read a message: in one of its channels, or sent by or to it.
    async fn reads_message(&self, own: &Own, id: MessageId) -> Result<(), Problem> {
        let message = self.message(id).await?;
        match bus::addressee(&message.channel) {
            None => own.hears(&message.channel),
            Some(_) if message.may_be_read_by(&own.attempt.agent) => Ok(()),
            Some(_) => Err(not_yours(&format!("{id}, which was sent to another agent"))),
        }
    }

    /// Restricts where an attempt reads messages: in its channels, in another mailbox only its own
    /// messages, around a message that it may read, or else in its project's channel.
    async fn listens(
        &self,
        own: &Own,
        channel: Option<ChannelName>,
        from: Option<String>,
        near: [Option<MessageId>; 2],
    ) -> Result<(Option<ChannelName>, Option<String>), Problem> {
        let near: Vec<MessageId> = near.into_iter().flatten().collect();
        for message in &near {
            self.reads_message(own, *message).await?;
        }
        match channel {
            Some(channel) if own.hears(&channel).is_ok() => Ok((Some(channel), from)),
            Some(channel) if bus::addressee(&channel).is_some() => {
                Ok((Some(channel), Some(own.attempt.agent.to_string())))
            }
            Some(channel) => own.hears(&channel).map(|()| (Some(channel), from)),
            None if near.is_empty() => Ok((ChannelName::new(own.attempt.project.as_str()).ok(), from)),
            None => Ok((None, from)),
        }
    }

    /// Checks that an attempt may see something: itself, its agent, its mission, and the tasks of
    /// its project.
    async fn sees(&self, own: &Own, id: &str) -> Result<(), Problem> {
        let seen = match self.refer(id, &refer::SHOW)? {
            Reference::Agent(name) if name == own.attempt.agent => true,
            Reference::Agent(_) => return Err(not_yours("another agent")),
            Reference::Attempt(attempt) => attempt == own.attempt.id,
            Reference::Mission(mission) => Some(mission) == own.attempt.mission,
            Reference::Task(task) => self.task_view(task).await?.task.project == own.attempt.project,
            // A lead answers the questions of its workers.
            Reference::Approval(id) => self.approval(id).await?.is_some_and(|found| {
                found.attempt == own.attempt.id
                    || (own.lead && found.mission.is_some() && found.mission == own.attempt.mission)
            }),
            other => return Err(refer::unfit(&other, "show")),
        };
        if seen { Ok(()) } else { Err(not_yours(&id.chars().take(20).collect::<String>())) }
    }
}

/// Returns the task that a call steers, for verbs that only a lead may use on other tasks.
fn steered(call: &Call) -> Result<Option<TaskId>, Problem> {
    Ok(Some(match call {
        Call::TaskAssign(ask) => ask.task,
        Call::TaskCancel(ask) => ask.task,
        Call::Tell(ask) | Call::Revise(ask) => parse(&ask.id)?,
        Call::Retry(ask) => parse(&ask.id)?,
        Call::Diff(ask) => parse(&ask.id)?,
        Call::Land(ask) => parse(&ask.id)?,
        _ => return Ok(None),
    }))
}

impl Own {
    /// Checks that an agent takes an unassigned task for itself, or returns a task that it has not
    /// begun.
    fn takes_or_returns(&self, task: &Task, ask: &input::TaskAssign) -> Result<(), Problem> {
        let own = &self.attempt.agent;
        let near =
            task.project == self.attempt.project && task.mission.is_none_or(|it| self.attempt.mission == Some(it));
        let fine = match &ask.to {
            Some(to) => to == own && ask.how == task::How::Direct && task.status == task::Status::Unassigned,
            None => task.assignee.as_ref() == Some(own) && task.status == task::Status::Pending,
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
    fn may_answer(&self, board: &Board, ask: &input::Decide) -> Result<(), Problem> {
        let item = board.approvals.get(&ask.id);
        // The attempt that asked may have ended.
        let near = item.is_some_and(|asked| {
            asked.attempt != self.attempt.id && asked.mission.is_some() && asked.mission == self.attempt.mission
        });
        let question = item.is_some_and(|it| matches!(it.ask.want, Want::Question { .. }));
        if self.lead && near && question && ask.reach == Reach::Once {
            return Ok(());
        }
        Err(Problem::new(
            403,
            "not_yours",
            format!("you cannot answer {}", ask.id),
            "a lead can answer questions of its own workers, once; only people can grant permissions",
        ))
    }

    fn answers(&self, ask: input::OfferAnswer) -> input::OfferAnswer {
        input::OfferAnswer { agent: self.attempt.agent.clone(), ..ask }
    }

    fn owner(&self) -> Owner {
        Owner::Attempt(self.attempt.id)
    }

    fn is(&self, task: TaskId, attempt: AttemptId) -> Result<(), Problem> {
        if task == self.attempt.task && attempt == self.attempt.id {
            Ok(())
        } else {
            Err(not_yours(&format!("{task} and {attempt}")))
        }
    }

    /// Checks that a lead may steer this task: one of its mission, or of its project if it leads no
    /// mission.
    fn leads(&self, task: &Task) -> Result<(), Problem> {
        let of = |it: &Task| {
            it.project == self.attempt.project && self.attempt.mission.is_none_or(|m| it.mission == Some(m))
        };
        if self.lead && of(task) { Ok(()) } else { Err(not_yours(&task.id.to_string())) }
    }

    /// Checks that the attempt acquired this claim itself. The claim on its manifest must last as
    /// long as the attempt, because otherwise others could write the same files.
    fn holds(&self, board: &Board, claim: ClaimId) -> Result<(), Problem> {
        match board.claims.get(&claim) {
            Some(it) if it.owner == self.owner() && it.ttl_ms.is_some() => Ok(()),
            Some(it) if it.owner == self.owner() => Err(Problem::new(
                403,
                "not_yours",
                format!("{claim} is the claim on your manifest, which lasts as long as your attempt"),
                "finish the task or give up instead",
            )),
            Some(_) => Err(not_yours(&claim.to_string())),
            None => Err(Problem::from(&regatta_core::refusal::Refusal::ClaimEnded { claim })),
        }
    }

    /// Checks that an attempt may claim these URIs: files of its project, ports, and its own task,
    /// workspace and name. It cannot claim what protects people or the trunk.
    fn uris(&self, uris: &[Uri]) -> Result<(), Problem> {
        let (project, task, agent) = (&self.attempt.project, self.attempt.task, &self.attempt.agent);
        for uri in uris {
            let text = uri.as_str();
            let fine = text.strip_prefix(&format!("file://{project}/")).is_some_and(|it| self.bounded(it))
                || text.starts_with("port://")
                || text == format!("task://{project}/{task}")
                || text == format!("workspace://{project}/{task}")
                || text == format!("agent://{agent}")
                || (self.lead && text == format!("workspace://{project}/default"));
            if !fine {
                return Err(Problem::new(
                    403,
                    "not_yours",
                    format!("an attempt cannot claim {text}"),
                    format!("claim files or a directory of your project (file://{project}/src/*) or ports (port://…)"),
                ));
            }
        }
        Ok(())
    }

    /// Returns whether a pattern is limited to files or one directory; for a lead also to
    /// everything below a directory. No attempt can claim a whole project or everything at its top,
    /// because that would keep all other tasks from starting. (An attempt holds its own files
    /// anyway.)
    fn bounded(&self, path: &str) -> bool {
        let wild = |it: &str| it.contains(['*', '?']);
        let top = path.split('/').next().unwrap_or_default();
        !wild(top) && (self.lead || !path.split('/').any(|it| it == "**"))
    }

    /// Checks that an attempt may read a channel: the project's and those named after it, its
    /// mission's, its task's, and its own mailbox.
    fn hears(&self, channel: &ChannelName) -> Result<(), Problem> {
        let name = channel.as_str().trim_start_matches('#');
        let project = self.attempt.project.as_str();
        let own = name == project
            || name.strip_prefix(project).is_some_and(|it| it.starts_with(['-', '.']))
            || self.attempt.mission.is_some_and(|it| name == it.to_string())
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
    fn says_in(&self, channel: &ChannelName) -> Result<(), Problem> {
        if bus::addressee(channel).is_some() { Ok(()) } else { self.hears(channel) }
    }

    /// Returns the agent that an attempt posts as: its own, or one below it.
    fn speaks_as(&self, asked: Option<AgentName>) -> Result<AgentName, Problem> {
        let own = &self.attempt.agent;
        match asked {
            None => Ok(own.clone()),
            Some(name) if bus::is_of(&name, own) => Ok(name),
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
    fn follow_up(&self, board: &Board, ask: input::TaskAdd) -> Result<input::TaskAdd, Problem> {
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
        if project.is_some_and(|it| it != self.attempt.project) {
            return Err(not_yours("another project"));
        }
        if script.is_some() || ratchet.is_some() {
            return refuse("only people may give a task a script or a ratchet", "omit the script and the ratchet");
        }
        let foreign = |it: &TaskId| board.tasks.get(it).is_some_and(|it| it.project != self.attempt.project);
        if blocked_by.iter().any(foreign) {
            return Err(not_yours("a task of another project"));
        }
        let checks = !validation.tests.is_empty() || !validation.lint.is_empty();
        if !self.lead && checks {
            return refuse(
                "only people and leads may give a task commands to check it",
                "describe the test in the description",
            );
        }
        if !self.lead && assign.is_some() {
            return refuse(
                "only a lead may assign tasks",
                "omit the assignee; a person or a lead will assign the task",
            );
        }
        let waiting = |it: &&Arc<Task>| it.project == self.attempt.project && it.status == task::Status::Backlog;
        if board.tasks.values().filter(waiting).count() >= FULL_BACKLOG {
            return refuse("the project's backlog is full", "describe the work in your report");
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
            backlog: backlog || !self.lead,
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
