//! Applies the rights of an attempt's access token to calls of the API.
//!
//! The rules are in `regatta_core::attempt_scope`. This module describes each call to the rules with
//! the facts that they need, such as the target task, which it reads from the board or the store.
//! Then it fills the values that the rules return into the call. Fields that identify the caller
//! are therefore never taken from the input.

use regatta_core::attempt_scope::{
    self, AttemptPrincipal, AttemptRequest, NarrowedRequest, ProposedMessage, ProposedTask,
    ShowTarget,
};
use regatta_core::bus::Message;
use regatta_core::reference::Reference;

use super::*;

impl VerbHandler<'_> {
    /// Checks a call of an attempt, and returns it with the attempt's identity filled in. Calls of
    /// other callers are returned without changes.
    pub(super) async fn restrict_to_attempt(&self, mut call: Call) -> Result<Call, Problem> {
        let Principal::Attempt { id, .. } = &self.principal else {
            return Ok(call);
        };
        let request = self.attempt_request(&call).await?;
        let board = self.board();
        let narrowed = AttemptPrincipal::find(&board, *id)
            .and_then(|caller| attempt_scope::narrow(&board, &caller, &request))
            .map_err(|refusal| Problem::from(&refusal))?;
        fill_in(&mut call, narrowed)?;
        Ok(call)
    }

    /// Describes a call to the rules, with the facts that they need.
    async fn attempt_request<'a>(&self, call: &'a Call) -> Result<AttemptRequest<'a>, Problem> {
        let verb = call.verb().name;
        let report = |task, attempt| AttemptRequest::Report { task, attempt };
        Ok(match call {
            Call::Guide(_) | Call::Name(_) => AttemptRequest::ReadPublic,
            Call::TaskProgress(input) => report(input.task, input.attempt),
            Call::TaskFinish(input) => report(input.task, input.attempt),
            Call::TaskFail(input) => report(input.task, input.attempt),
            Call::ScopeReport(input) => report(input.task, input.attempt),
            Call::MissionFinish(input) => report(input.task, input.attempt),
            Call::AttemptAsk(input) => AttemptRequest::Ask {
                task: input.task,
                attempt: input.attempt,
                wait_ms: input.wait_ms,
            },
            Call::AttemptAnswer(input) => AttemptRequest::AwaitAnswer {
                attempt: input.attempt,
                wait_ms: input.wait_ms,
            },
            Call::Siblings(input) | Call::Briefing(input) => AttemptRequest::ReadBriefing {
                attempt: input.attempt,
            },
            Call::ClaimAcquire(input) => AttemptRequest::AcquireClaim {
                uris: &input.uris,
                ttl_ms: input.ttl_ms,
                wait_ms: input.wait_ms,
            },
            Call::ClaimRenew(input) | Call::ClaimRelease(input) => {
                AttemptRequest::ChangeClaim { claim: input.claim }
            }
            Call::ClaimCheck(input) => AttemptRequest::CheckClaim { uris: &input.uris },
            Call::MsgSend(input) => AttemptRequest::PostMessage(ProposedMessage {
                channel: &input.channel,
                agent: input.agent.as_ref(),
                reply_to: self.find_messages([input.reply_to]).await?.pop(),
                labels: &input.labels,
            }),
            Call::MsgHistory(input) => AttemptRequest::ReadMessages {
                channel: input.channel.as_ref(),
                from: input.from.as_deref(),
                selected_by: self.find_messages([input.thread, input.reply_to]).await?,
                wait_ms: 0,
            },
            Call::MsgWait(input) => AttemptRequest::ReadMessages {
                channel: input.channel.as_ref(),
                from: input.from.as_deref(),
                selected_by: self.find_messages([input.thread, input.reply_to]).await?,
                wait_ms: input.timeout_ms,
            },
            Call::MsgRead(input) => AttemptRequest::MarkRead {
                channel: &input.channel,
            },
            Call::MsgInbox(_) => AttemptRequest::CountUnread,
            Call::MsgAttachment(input) => AttemptRequest::ReadAttachment {
                message: self.find_message(input.message).await?,
            },
            Call::TaskAdd(input) => AttemptRequest::AddTask(proposed_task(input)),
            Call::Why(input) | Call::Show(input) | Call::MissionShow(input) => {
                AttemptRequest::Show {
                    id: &input.id,
                    target: self.show_target(&input.id).await?,
                }
            }
            Call::MissionList(_) | Call::InboxList(_) | Call::Queue(_) | Call::TaskList(_) => {
                AttemptRequest::ListByProject
            }
            Call::MissionAdopt(_) => AttemptRequest::AdoptTask,
            Call::InboxAnswer(input) => AttemptRequest::AnswerApproval {
                approval: input.id,
                scope: input.reach,
                also_identical: input.alike,
            },
            Call::TaskAssign(input) => AttemptRequest::AssignTask {
                task: self.find_task(&self.board(), input.task).await?,
                to: input.to.as_ref(),
                how: input.how,
            },
            Call::TaskAccept(_) | Call::TaskReject(_) => AttemptRequest::AnswerOffer,
            Call::TaskCancel(input) => self.direct_task(input.task, verb).await?,
            Call::Tell(input) | Call::Revise(input) => {
                self.direct_task(parse_id(&input.id)?, verb).await?
            }
            Call::Retry(input) => self.direct_task(parse_id(&input.id)?, verb).await?,
            Call::Diff(input) => self.direct_task(parse_id(&input.id)?, verb).await?,
            Call::Land(input) => self.direct_task(parse_id(&input.id)?, verb).await?,
            _ => AttemptRequest::Other { verb },
        })
    }

    async fn direct_task(
        &self,
        task: TaskId,
        verb: &'static str,
    ) -> Result<AttemptRequest<'static>, Problem> {
        let task = self.find_task(&self.board(), task).await?;
        Ok(AttemptRequest::DirectTask { task, verb })
    }

    /// Reads the given messages from the store.
    async fn find_messages<const N: usize>(
        &self,
        ids: [Option<MessageId>; N],
    ) -> Result<Vec<Message>, Problem> {
        let mut messages = Vec::new();
        for id in ids.into_iter().flatten() {
            messages.push(self.find_message(id).await?);
        }
        Ok(messages)
    }

    async fn show_target(&self, id: &str) -> Result<ShowTarget, Problem> {
        Ok(match self.resolve_reference(id, &resolve_id::SHOW)? {
            Reference::Agent(name) => ShowTarget::Agent(name),
            Reference::Attempt(attempt) => ShowTarget::Attempt(attempt),
            Reference::Mission(mission) => ShowTarget::Mission(mission),
            Reference::Task(task) => ShowTarget::Task(self.find_task(&self.board(), task).await?),
            Reference::Approval(id) => {
                ShowTarget::Approval(self.find_approval(id).await?.map(Box::new))
            }
            other => return Err(resolve_id::unsupported_kind(&other, "show")),
        })
    }
}

fn proposed_task(input: &input::TaskAdd) -> ProposedTask<'_> {
    // List all fields, so that the compiler reports every new field and somebody decides whether
    // attempts may set it.
    let input::TaskAdd {
        project,
        subject: _,
        description: _,
        issue_type: _,
        files: _,
        validation,
        blocked_by,
        priority: _,
        expects: _,
        effort: _,
        provider: _,
        script,
        ratchet,
        alias: _,
        backlog,
        assign,
        how: _,
    } = input;
    ProposedTask {
        project: project.as_ref(),
        blocked_by,
        validation,
        has_script: script.is_some(),
        has_ratchet: ratchet.is_some(),
        assign: assign.as_ref(),
        backlog: *backlog,
    }
}

/// Fills the values that the rules returned into the call. Returns an error if the call has no such
/// values, because the call must not continue with values of its own.
fn fill_in(call: &mut Call, narrowed: NarrowedRequest) -> Result<(), Problem> {
    use NarrowedRequest as Narrowed;
    match (call, narrowed) {
        (_, Narrowed::Unchanged) => {}
        (Call::TaskProgress(input), Narrowed::Report { token }) => input.token = token,
        (Call::TaskFinish(input), Narrowed::Report { token }) => input.token = token,
        (Call::TaskFail(input), Narrowed::Report { token }) => input.token = token,
        (Call::ScopeReport(input), Narrowed::Report { token }) => input.token = token,
        (Call::MissionFinish(input), Narrowed::Report { token }) => input.token = token,
        (Call::AttemptAsk(input), Narrowed::Ask { token, wait_ms }) => {
            input.token = token;
            input.wait_ms = wait_ms;
        }
        (Call::AttemptAnswer(input), Narrowed::AwaitAnswer { wait_ms }) => input.wait_ms = wait_ms,
        (
            Call::ClaimAcquire(input),
            Narrowed::AcquireClaim {
                agent,
                ttl_ms,
                wait_ms,
            },
        ) => {
            input.agent = agent;
            input.ttl_ms = ttl_ms;
            input.wait_ms = wait_ms;
        }
        (Call::MsgSend(input), Narrowed::AsAgent { agent }) => input.agent = Some(agent),
        (Call::MsgRead(input), Narrowed::AsAgent { agent }) => input.agent = agent,
        (Call::MsgInbox(input), Narrowed::AsAgent { agent }) => input.agent = agent,
        (Call::TaskAccept(input) | Call::TaskReject(input), Narrowed::AsAgent { agent }) => {
            input.agent = agent;
        }
        (Call::MsgHistory(input), Narrowed::ReadMessages { channel, from, .. }) => {
            input.channel = channel;
            input.from = from;
        }
        (
            Call::MsgWait(input),
            Narrowed::ReadMessages {
                channel,
                from,
                wait_ms,
            },
        ) => {
            input.channel = channel;
            input.from = from;
            input.timeout_ms = wait_ms;
        }
        (Call::TaskAdd(input), Narrowed::AddTask { project, backlog }) => {
            input.project = Some(project);
            input.backlog = backlog;
        }
        (
            Call::MissionList(input) | Call::InboxList(input) | Call::Queue(input),
            Narrowed::InProject { project },
        ) => input.project = Some(project),
        (Call::TaskList(input), Narrowed::InProject { project }) => input.project = Some(project),
        (Call::MissionAdopt(input), Narrowed::InLedMission) => input.mission = None,
        (call, narrowed) => {
            return Err(Problem::new(
                500,
                "bug",
                format!(
                    "the verb {} has no values for {narrowed:?}",
                    call.verb().name
                ),
                "this is a bug in Regatta; report it with this message and logs/daemon.log",
            ));
        }
    }
    Ok(())
}
