//! The implementation of the verbs: one match arm per row of the table. Each turns its input into a
//! command of the core, or into a query of the board or the history, and builds the answer.

mod attempt; // verbs of an attempt
mod attempt_scope; // restrictions of an attempt's token
mod audit_line; // lines of the audit log
mod bridges; // conversations in outside services
mod claim; // claims
mod fleet; // status, projects, agents
mod hook; // hooks
mod inbox; // the inbox, policy, budgets, steering
mod landing; // verbs of the landing queue
mod lead; // missions with a lead, the router, guides
mod message; // messages
mod plan; // plans that an agent makes of a goal
mod replay; // replays of missions
mod resolve_id; // resolves ids
mod runner; // runners on other machines
mod scope_escape; // scope escapes, standing rules, results of checks
mod start_checks; // refuses work that no agent could start
mod stop; // ends programs and commands
mod task;
mod teams; // teams and their launches // tasks, missions

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use audit_line::PendingAuditLine;
pub(crate) use audit_line::{audit_other_write, revision_of};
pub(crate) use landing::never_reviewed;
use regatta_api::input::{self, RuntimeName};
use regatta_api::verb::{TokenScope, Verb};
use regatta_api::view::{
    AgentView, AgentWhyView, BudgetsView, ClaimCheckView, ClaimView, ClaimWaitView, ClaimsView,
    GrantedAttempt, GrantedClaim, InboxView, LandingView, MissionView, ProjectView, QueueView,
    StatusView, TaskHistoryView, TaskView, VerbAnswer, WhyView, without_token,
};
use regatta_api::{Call, Problem};
use regatta_core::agent::{self, Runtime};
use regatta_core::board::{Board, Draft};
use regatta_core::claim::{Acquire, Acquired, ClaimMode, ClaimOwner};
use regatta_core::command::{Actor, Command, CommandOutcome, PlannedTask, Request};
use regatta_core::conversation::ConversationCommand;
use regatta_core::ids::{
    AgentName, AttemptId, MessageId, MissionId, ProjectName, RequestKey, TaskId,
};
use regatta_core::landing::LandingEnd;
use regatta_core::limits::MachineLimits;
use regatta_core::pattern::PathPattern;
use regatta_core::schedule::{self, PollRequest};
use regatta_core::{bus, manifest, mission, name_generator, natural_sort, project, team};
use regatta_engine::ports::git::{GitError, ProjectRepo};
use regatta_engine::ports::store::{MessageFilter, StoreError, StoreHistory, TaskFilter};
use regatta_engine::writer::Precondition;
use regatta_engine::{CommandFailure, CommandReply, Engine};
use serde::Serialize;

use crate::listen::ConnectionOrigin;
use crate::otlp::CallerAttributes;
use crate::tokens::Principal;
use crate::{ServerState, ShutdownCause};

type VerbResult = Result<Vec<u8>, Problem>;

/// Maximum time that a call waits for something to happen.
const MAX_WAIT_MS: u64 = 24 * 3_600_000;
/// Time limit of one check if the project sets none.
const CHECK_TIMEOUT_MS: u64 = 600_000;

/// The context of a request: its caller, its origin, the actor of its writes, and its idempotency
/// key.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub(crate) principal: Principal,
    pub(crate) origin: ConnectionOrigin,
    pub(crate) actor: Actor,
    pub(crate) idempotency_key: Option<RequestKey>,
    /// The caller's trace and span.
    pub(crate) trace_parent: Option<(String, String)>,
    /// The revision that the caller last saw, if the target must not have changed since.
    pub(crate) expected_revision: Option<u64>,
}

/// Carries out a verb for a caller, and writes the audit log. All interfaces call this function.
///
/// The future is boxed because the compiler copies the code of an async function into every unit of
/// code generation that polls it, with all the async functions inside: without the box, each verb
/// was compiled four times.
pub(crate) fn handle<'a>(
    shared: &'a Arc<ServerState>,
    context: RequestContext,
    name: &'a str,
    input: &'a [u8],
) -> VerbFuture<'a> {
    Box::pin(handle_inner(shared, context, name, input))
}

type VerbFuture<'a> = Pin<Box<dyn Future<Output = VerbResult> + Send + 'a>>;

async fn handle_inner(
    shared: &Arc<ServerState>,
    context: RequestContext,
    name: &str,
    input: &[u8],
) -> VerbResult {
    let verb = Verb::find(name);
    let line = verb
        .filter(|verb| verb.is_write())
        .map(|verb| PendingAuditLine::begin(shared, &context, verb.name, input));
    let (began, traced) = (
        std::time::Instant::now(),
        shared
            .tracer
            .as_ref()
            .map(|tracer| (tracer, CallerAttributes::from_context(&context))),
    );
    let carried = async {
        // The permission is checked before the input, so that others do not learn the format.
        if let Some(verb) = verb {
            require_permission(&context.principal, verb)?;
            if verb.needs_fresh_settings() {
                fleet::apply_settings(shared).await?;
            }
        }
        dispatch(shared, Call::parse(name, input)?, context).await
    };
    let done = carried.await;
    let name = verb.map_or("unknown", |verb| verb.name);
    shared.metrics.record_call(
        name,
        done.as_ref().map_or_else(|problem| problem.status, |_| 200),
        began.elapsed(),
    );
    if let Some((tracer, caller)) = traced {
        tracer.record_call(
            name,
            &caller,
            began.elapsed(),
            done.as_ref().err().map(|problem| problem.code.as_str()),
        );
    }
    if let Some(line) = line {
        line.end(&done).await;
    }
    done
}

/// Dispatches one call to the implementation of its verb.
async fn dispatch(shared: &Arc<ServerState>, call: Call, context: RequestContext) -> VerbResult {
    let unless = context
        .expected_revision
        .map(|since| precondition_of(&call, since))
        .transpose()?;
    let verb_handler = VerbHandler {
        shared,
        principal: context.principal,
        actor: context.actor,
        idempotency_key: context.idempotency_key,
        precondition: unless,
    };
    let call = verb_handler.restrict_to_attempt(call).await?;
    match call {
        Call::Status(ask) => verb_handler.status(ask).await,
        Call::Why(ask) => verb_handler.why(&ask.id).await,
        Call::Show(ask) => verb_handler.show(&ask.id).await,
        Call::Graph(ask) => verb_handler.graph(ask).await,
        Call::ProjectAdd(ask) => verb_handler.project_add(ask).await,
        Call::ProjectList(_) => verb_handler.project_list().await,
        Call::ProjectRm(ask) => {
            verb_handler
                .run_and_confirm(Command::RemoveProject(project::RemoveProject {
                    name: ask.name,
                }))
                .await
        }
        Call::AgentAdd(ask) => verb_handler.agent_add(ask).await,
        Call::AgentList(_) => verb_handler.agent_list(),
        Call::AgentClose(ask) => verb_handler.agent_close(ask).await,
        Call::AgentRm(ask) => {
            verb_handler
                .run_and_confirm(Command::RemoveAgent { agent: ask.name })
                .await
        }
        Call::TaskAdd(ask) => verb_handler.task_add(ask).await,
        Call::TaskList(ask) => verb_handler.task_list(ask).await,
        Call::TaskExplore(ask) => verb_handler.task_explore(parse_id(&ask.id)?).await,
        Call::TaskSet(ask) => verb_handler.task_set(ask).await,
        Call::TaskAssign(ask) => {
            verb_handler
                .run_on_task(
                    ask.task,
                    Command::AssignTask {
                        task: ask.task,
                        to: ask.to,
                        how: ask.how,
                    },
                )
                .await
        }
        Call::TaskAccept(ask) => {
            verb_handler
                .run_on_task(
                    ask.task,
                    Command::AnswerOffer {
                        task: ask.task,
                        agent: ask.agent,
                        accept: true,
                    },
                )
                .await
        }
        Call::TaskReject(ask) => {
            verb_handler
                .run_on_task(
                    ask.task,
                    Command::AnswerOffer {
                        task: ask.task,
                        agent: ask.agent,
                        accept: false,
                    },
                )
                .await
        }
        Call::TaskCancel(ask) => {
            let reason = ask.reason.unwrap_or_else(|| "cancelled by a person".into());
            verb_handler
                .run_on_task(
                    ask.task,
                    Command::CancelTask {
                        task: ask.task,
                        reason,
                    },
                )
                .await
        }
        Call::TaskPoll(ask) => verb_handler.task_poll(ask).await,
        Call::TaskProgress(ask) => {
            verb_handler
                .run_on_task(
                    ask.task,
                    Command::Progress {
                        task: ask.task,
                        attempt: ask.attempt,
                        token: ask.token,
                        text: ask.text,
                    },
                )
                .await
        }
        Call::TaskFinish(ask) => {
            verb_handler
                .run_on_task(
                    ask.task,
                    Command::Finish {
                        task: ask.task,
                        attempt: ask.attempt,
                        token: ask.token,
                        output: ask.output,
                        not_needed: ask.not_needed,
                        learnings: ask.learnings,
                    },
                )
                .await
        }
        Call::TaskFail(ask) => {
            verb_handler
                .run_on_task(
                    ask.task,
                    Command::GiveUp {
                        task: ask.task,
                        attempt: ask.attempt,
                        token: ask.token,
                        reason: ask.reason,
                    },
                )
                .await
        }
        Call::MissionStart(ask) => verb_handler.mission_start(ask).await,
        Call::MissionAsk(ask) => verb_handler.mission_ask(ask).await,
        Call::MissionList(ask) => verb_handler.mission_list(ask),
        Call::MissionCancel(ask) => verb_handler.mission_cancel(ask).await,
        Call::MissionHandover(ask) => verb_handler.mission_handover(ask).await,
        Call::MissionFinish(ask) => verb_handler.mission_finish(ask).await,
        Call::MissionAdopt(ask) => verb_handler.mission_adopt(ask).await,
        Call::Route(ask) => verb_handler.route(ask).await,
        Call::Guide(ask) => verb_handler.guide(&ask),
        Call::MissionShow(ask) => verb_handler.mission_show(&ask.id).await,
        Call::MissionReplay(ask) => verb_handler.mission_replay(ask).await,
        Call::MissionCompare(ask) => verb_handler.mission_compare(ask).await,
        Call::PlanAsk(ask) => verb_handler.plan_ask(ask).await,
        Call::PlanShow(ask) => verb_handler.plan_show(ask.task).await,
        Call::PlanDraw(ask) => verb_handler.plan_draw(ask).await,
        Call::Stop(ask) => verb_handler.stop(ask).await,
        Call::Resume(ask) => verb_handler.resume(&ask.id).await,
        Call::Pause(ask) => verb_handler.pause(ask).await,
        Call::Retry(ask) => verb_handler.retry(&ask.id).await,
        Call::Tell(ask) => verb_handler.tell(ask).await,
        Call::InboxList(ask) => verb_handler.inbox_list(ask),
        Call::InboxAnswer(ask) => verb_handler.inbox_answer(ask).await,
        Call::InboxSnooze(ask) => verb_handler.inbox_snooze(ask).await,
        Call::AttemptAsk(ask) => verb_handler.attempt_ask(ask).await,
        Call::AttemptAnswer(ask) => verb_handler.attempt_answer(ask).await,
        Call::Siblings(ask) => verb_handler.siblings(ask.attempt).await,
        Call::Briefing(ask) => verb_handler.briefing(ask.attempt).await,
        Call::Transcript(ask) => verb_handler.transcript(ask).await,
        Call::Checks(ask) => verb_handler.attempt_checks(ask.attempt).await,
        Call::ScopeReport(ask) => verb_handler.scope_report(ask).await,
        Call::ScopeList(ask) => verb_handler.scope_list(ask).await,
        Call::ScopeFollow(ask) => verb_handler.scope_follow(&ask.id).await,
        Call::RuleList(ask) => verb_handler.rule_list(ask),
        Call::RuleTest(ask) => verb_handler.rule_test(ask).await,
        Call::PolicyList(_) => encode_answer(
            verb_handler.board().revision,
            &verb_handler.board().rules.values().collect::<Vec<_>>(),
        ),
        Call::PolicyAdd(ask) => verb_handler.policy_add(ask).await,
        Call::PolicyRm(ask) => {
            verb_handler
                .run_and_confirm(Command::RemoveRule { rule: ask.rule })
                .await
        }
        Call::BudgetList(ask) => encode_answer(
            verb_handler.board().revision,
            &BudgetsView::new(&verb_handler.board(), verb_handler.engine().now(), ask.days),
        ),
        Call::Cost(ask) => verb_handler.cost(&ask).await,
        Call::BudgetSet(ask) => verb_handler.budget_set(ask).await,
        Call::Land(ask) => verb_handler.land(ask).await,
        Call::Queue(ask) => verb_handler.queue(ask).await,
        Call::QueueHold(ask) => verb_handler.queue_hold(ask).await,
        Call::QueueAccept(ask) => verb_handler.queue_accept(ask).await,
        Call::QueueRelease(ask) => verb_handler.queue_release(ask).await,
        Call::Diff(ask) => verb_handler.diff(ask).await,
        Call::Revise(ask) => verb_handler.revise(ask).await,
        Call::Drop(ask) => verb_handler.drop_work(ask).await,
        Call::Takeover(ask) => verb_handler.take_over(&ask.id).await,
        Call::Undo(ask) => verb_handler.undo(&ask.id).await,
        Call::ClaimAcquire(ask) => verb_handler.claim_acquire(ask).await,
        Call::ClaimRenew(ask) => verb_handler.claim_renew(ask).await,
        Call::ClaimRelease(ask) => {
            verb_handler
                .run_and_confirm(Command::Release {
                    claim: ask.claim,
                    token: ask.token,
                })
                .await
        }
        Call::ClaimList(_) => verb_handler.claim_list(),
        Call::ClaimCheck(ask) => verb_handler.claim_check(&ask),
        Call::MsgSend(ask) => verb_handler.msg_send(ask).await,
        Call::MsgHistory(ask) => verb_handler.msg_history(ask).await,
        Call::MsgWait(ask) => verb_handler.msg_wait(ask).await,
        Call::MsgRead(ask) => verb_handler.msg_read(ask).await,
        Call::MsgInbox(ask) => verb_handler.msg_inbox(ask).await,
        Call::MsgAttachment(ask) => verb_handler.msg_attachment(ask).await,
        Call::HookAdd(ask) => verb_handler.hook_add(ask).await,
        Call::BridgeList(_) => verb_handler.bridge_list(),
        Call::BridgePause(ask) => verb_handler.bridge_pause(&ask),
        Call::ConversationList(ask) => verb_handler.conversation_list(ask).await,
        Call::ConversationShow(ask) => verb_handler.conversation_show(ask.conversation).await,
        Call::ConversationAccept(ask) => {
            verb_handler
                .run_conversation_command(ask.conversation, |conversation| {
                    ConversationCommand::Accept { conversation }
                })
                .await
        }
        Call::ConversationRefuse(ask) => {
            verb_handler
                .run_conversation_command(ask.conversation, |conversation| {
                    ConversationCommand::Refuse { conversation }
                })
                .await
        }
        Call::ConversationStop(ask) => {
            let by = verb_handler.actor.to_string();
            verb_handler
                .run_conversation_command(ask.conversation, |conversation| {
                    ConversationCommand::Stop {
                        conversation,
                        by,
                        delivery: None,
                    }
                })
                .await
        }
        Call::ConversationClose(ask) => {
            verb_handler
                .run_conversation_command(ask.conversation, |conversation| {
                    ConversationCommand::Close { conversation }
                })
                .await
        }
        Call::HookList(_) => verb_handler.hook_list(),
        Call::HookTest(ask) => verb_handler.hook_test(ask).await,
        Call::HookPause(ask) => verb_handler.hook_pause(ask).await,
        Call::HookResume(ask) => verb_handler.hook_resume(ask.hook).await,
        Call::HookRm(ask) => {
            verb_handler
                .run_and_confirm(Command::RemoveHook { hook: ask.hook })
                .await
        }
        Call::HookLog(ask) => verb_handler.hook_log(ask).await,
        Call::TeamCreate(ask) => verb_handler.team_create(ask).await,
        Call::TeamEdit(ask) => verb_handler.team_edit(ask).await,
        Call::TeamList(ask) => verb_handler.team_list(&ask),
        Call::TeamShow(ask) => verb_handler.team_show(&ask.team).await,
        Call::TeamExplain(ask) => verb_handler.team_explain(&ask.team),
        Call::TeamLaunch(ask) => verb_handler.team_launch(ask).await,
        Call::TeamRelaunch(ask) => verb_handler.team_relaunch(ask).await,
        Call::TeamStop(ask) => verb_handler.team_stop(ask).await,
        Call::TeamRetry(ask) => verb_handler.team_retry(ask).await,
        Call::TeamDelete(ask) => {
            verb_handler
                .run_and_show_team(
                    &ask.team,
                    team::TeamCommand::Delete {
                        team: ask.team.clone(),
                    },
                )
                .await
        }
        Call::TeamUndelete(ask) => {
            verb_handler
                .run_and_show_team(
                    &ask.team,
                    team::TeamCommand::Undelete {
                        team: ask.team.clone(),
                    },
                )
                .await
        }
        Call::TeamBackup(ask) => verb_handler.team_backup(&ask.team),
        Call::TeamRestore(ask) => verb_handler.team_restore(ask).await,
        Call::RunnerList(_) => verb_handler.runner_list(),
        Call::RunnerDrain(ask) => verb_handler.runner_drain(ask).await,
        Call::RunnerRm(ask) => {
            verb_handler
                .run_and_confirm(Command::RemoveRunner { runner: ask.name })
                .await
        }
        Call::RunnerRegister(ask) => verb_handler.runner_register(ask).await,
        Call::RunnerBeat(ask) => verb_handler.runner_beat(ask).await,
        Call::RunnerLeave(ask) => verb_handler.runner_leave(ask).await,
        Call::RunnerCalls(ask) => verb_handler.runner_calls(ask).await,
        Call::RunnerAnswer(ask) => verb_handler.runner_answer(ask).await,
        Call::RunnerSaid(ask) => verb_handler.runner_output(ask).await,
        Call::RunnerCopy(ask) => verb_handler.runner_copy(ask).await,
        Call::Open(_) => verb_handler.open(),
        Call::Name(ask) => verb_handler.unused_names(&ask),
        Call::TokenAdd(ask) => verb_handler.token_add(ask).await,
        Call::TokenList(_) => encode_answer(
            verb_handler.board().revision,
            &shared.tokens.list(verb_handler.engine().now().unix_ms),
        ),
        Call::TokenRm(ask) => verb_handler.token_rm(ask).await,
        Call::Audit(ask) => verb_handler.audit(ask).await,
        Call::LimitsSet(ask) => verb_handler.limits_set(ask).await,
        Call::Backup(ask) => verb_handler.backup(ask).await,
        Call::Check(_) => {
            verb_handler
                .engine()
                .check_store()
                .await
                .map_err(problem_from_failure)?;
            encode_answer(verb_handler.board().revision, &"ok")
        }
        Call::Doctor(_) => {
            let projects = verb_handler
                .board()
                .projects
                .values()
                .map(|project| (project.name.clone(), project.location.clone().into()))
                .collect();
            let bridges = verb_handler
                .shared
                .bridges
                .as_ref()
                .map(|bridge_control| bridge_control.list())
                .unwrap_or_default();
            let patient = crate::DoctorInput {
                agents: verb_handler.agents(),
                projects,
                bridges,
            };
            let doctor = verb_handler.shared.doctor.clone();
            let view = run_blocking(move || doctor(&patient)).await?;
            encode_answer(verb_handler.board().revision, &view)
        }
        Call::Down(ask) => verb_handler.down(ask.keep_agents).await,
    }
}

/// Returns the condition under which a conditional call is carried out: its target has not changed
/// since a revision. Calls without support for conditions are refused, because an ignored condition
/// would be worse than none.
fn precondition_of(call: &Call, since: u64) -> Result<Precondition, Problem> {
    let subject = match call {
        Call::TaskSet(ask) => ask.task.to_string(),
        Call::TaskAssign(ask) => ask.task.to_string(),
        Call::TaskCancel(ask) => ask.task.to_string(),
        Call::AgentAdd(ask) => ask.name.to_string(),
        Call::AgentClose(ask) => ask.name.to_string(),
        Call::AgentRm(ask) => ask.name.to_string(),
        Call::ProjectAdd(input::ProjectAdd {
            name: Some(name), ..
        }) => name.to_string(),
        Call::ProjectRm(ask) => ask.name.to_string(),
        Call::LimitsSet(_) => "fleet".into(),
        Call::BudgetSet(ask) => ask.scope.to_string(),
        other => {
            return Err(Problem::new(
                400,
                "no_condition",
                format!("{} does not support If-Match", other.verb().name),
                "omit it; for a project it needs the project's name",
            ));
        }
    };
    Ok(Precondition {
        subject,
        unchanged_since: since,
    })
}

/// Registers an agent that Regatta does not start. It is only a name and a number, so operators and
/// runners may do it. A runner cannot register leads, because their attempts may do more than the
/// runner's token.
pub(crate) async fn register_outside_agent(
    shared: &Arc<ServerState>,
    context: RequestContext,
    input: &[u8],
) -> VerbResult {
    let line = PendingAuditLine::begin(shared, &context, "agent.add", input);
    let done = register_inner(shared, context, input).await;
    line.end(&done).await;
    done
}

/// Checks that a caller may register an agent that Regatta does not start.
pub(crate) fn require_may_register(principal: &Principal) -> Result<(), Problem> {
    match principal.scope() {
        TokenScope::Operator | TokenScope::Runner => Ok(()),
        _ => require_permission(
            principal,
            Verb::find("agent.add").expect("it is in the table"),
        ),
    }
}

async fn register_inner(
    shared: &Arc<ServerState>,
    context: RequestContext,
    input: &[u8],
) -> VerbResult {
    require_may_register(&context.principal)?;
    let verb = Verb::find("agent.add").expect("it is in the table");
    let scope = context.principal.scope();
    let Call::AgentAdd(ask) = Call::parse(verb.name, input)? else {
        unreachable!("it was read as this verb")
    };
    let verb_handler = VerbHandler {
        shared,
        principal: context.principal,
        actor: context.actor,
        idempotency_key: context.idempotency_key,
        precondition: None,
    };
    let known = verb_handler.board().agents.get(&ask.name).cloned();
    let raised = ask.role == agent::Role::Lead
        && known
            .as_ref()
            .is_none_or(|agent| agent.role != agent::Role::Lead);
    if scope == TokenScope::Runner && raised {
        return Err(Problem::new(
            403,
            "wrong_scope",
            "a runner cannot make a lead",
            "ask an operator to register it",
        ));
    }
    if ask.runtime != RuntimeName::Outside
        || known.is_some_and(|agent| agent.runtime != Runtime::Outside)
    {
        return Err(Problem::new(
            409,
            "in_use",
            format!("{} is started by Regatta itself", ask.name),
            "choose another name, or change it with regatta agent add",
        ));
    }
    verb_handler.agent_add(ask).await
}

/// Checks that a caller may use a verb at all (S10). Checks of the target follow later.
pub(crate) fn require_permission(principal: &Principal, verb: &Verb) -> Result<(), Problem> {
    let scope = principal.scope();
    if scope.allows(verb) {
        return Ok(());
    }
    Err(Problem::new(
        403,
        "wrong_scope",
        format!("a token with the scope {scope} cannot call {}", verb.name),
        "ask a person with that permission, or use a token with a wider scope: regatta token add \
        --scope …",
    ))
}

/// Checks that a caller may read everything.
pub(crate) fn require_read_all(
    principal: &Principal,
    what: &str,
    hint: &str,
) -> Result<(), Problem> {
    let scope = principal.scope();
    if scope.can_read_all() {
        return Ok(());
    }
    Err(Problem::new(
        403,
        "wrong_scope",
        format!("a token with the scope {scope} cannot {what}"),
        hint,
    ))
}

struct VerbHandler<'a> {
    shared: &'a Arc<ServerState>,
    principal: Principal,
    actor: Actor,
    idempotency_key: Option<RequestKey>,
    precondition: Option<Precondition>,
}

impl VerbHandler<'_> {
    fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    fn board(&self) -> Arc<Board> {
        self.engine().board()
    }

    async fn run(&self, command: Command) -> Result<(u64, CommandOutcome), Problem> {
        self.run_as(self.actor.clone(), command).await
    }

    async fn run_as(&self, by: Actor, command: Command) -> Result<(u64, CommandOutcome), Problem> {
        let reply = self.run_with_reply(by, command).await?;
        Ok((reply.revision, reply.outcome))
    }

    async fn run_with_reply(&self, by: Actor, command: Command) -> Result<CommandReply, Problem> {
        let request = Request {
            by,
            key: self.idempotency_key.clone(),
            command,
        };
        self.engine()
            .submit_if_unchanged(request, self.precondition.clone())
            .await
            .map_err(problem_from_failure)
    }

    async fn run_and_confirm(&self, command: Command) -> VerbResult {
        let (revision, _) = self.run(command).await?;
        encode_answer(revision, &"done")
    }

    /// Runs a command and answers with the task after it.
    async fn run_on_task(&self, id: TaskId, command: Command) -> VerbResult {
        let CommandReply {
            revision,
            completed_task: completed,
            ..
        } = self.run_with_reply(self.actor.clone(), command).await?;
        match completed.filter(|task| task.id == id) {
            Some(task) => encode_answer(
                revision,
                &self.task_view_with_liveness(&self.board(), &task),
            ),
            None => encode_answer(revision, &self.task_view(id).await?),
        }
    }

    /// Reads the history on a thread that may block.
    async fn read_history<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn StoreHistory) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Problem> {
        let history = self.engine().history().clone();
        run_blocking(move || read(&*history))
            .await?
            .map_err(|error| problem_from_failure(CommandFailure::Store(error)))
    }

    /// Builds the view of a task with the age of its evidence.
    fn task_view_with_liveness(&self, board: &Board, task: &regatta_core::task::Task) -> TaskView {
        let (engine, now) = (self.engine(), self.engine().now());
        let live = task.attempt.filter(|id| {
            board
                .attempts
                .get(id)
                .is_some_and(|attempt| attempt.supervised)
        });
        let heard = live.and_then(|id| engine.agents().last_record_unix_ms(id));
        TaskView::new(board, task, now).with_last_output(heard, board.limits.silence_ms, now)
    }

    async fn task_view(&self, id: TaskId) -> Result<TaskView, Problem> {
        let board = self.board();
        if let Some(task) = board.tasks.get(&id) {
            return Ok(self.task_view_with_liveness(&board, task));
        }
        let found = self.read_history(move |history| history.task(id)).await?;
        let task = found.ok_or_else(|| {
            Problem::from(&regatta_core::refusal::Refusal::NoSuchTask { task: id })
        })?;
        Ok(self.task_view_with_liveness(&board, &task))
    }

    /// Returns the named project, or the only project.
    fn resolve_project(&self, named: Option<ProjectName>) -> Result<ProjectName, Problem> {
        let board = self.board();
        match named {
            Some(name) if board.projects.contains_key(&name) => Ok(name),
            Some(project) => Err(Problem::from(
                &regatta_core::refusal::Refusal::NoSuchProject { project },
            )),
            None => match board.projects.len() {
                1 => Ok(board.projects.keys().next().cloned().expect("there is one")),
                0 => Err(Problem::new(
                    422,
                    "no_project",
                    "no repository is under management yet",
                    "add this one: regatta init --yes",
                )),
                _ => Err(Problem::new(
                    400,
                    "which_project",
                    "there are several projects, and the call names none",
                    "run it inside one of them, or add --project NAME",
                )),
            },
        }
    }

    /// Stops the agents unless they are kept, and then the daemon, but only if no agent is left
    /// (P10).
    async fn down(&self, keep_agents: bool) -> VerbResult {
        if !keep_agents {
            let engine = self.engine().clone();
            let left = run_blocking(move || engine.stop_attempts("the daemon was told to stop"))
                .await?
                .map_err(problem_from_failure)?;
            if !left.is_empty() {
                let what = format!(
                    "the daemon stays up, because it could not stop {}",
                    left.join(", ")
                );
                return Err(Problem::new(
                    500,
                    "still_running",
                    what,
                    "see which: regatta status; then try again: regatta down",
                ));
            }
        }
        let _first_wins = self.shared.shutdown.send(Some(ShutdownCause::Requested));
        encode_answer(self.board().revision, &std::process::id())
    }

    /// Creates a sign-in code for a browser, with the rights of the caller's token.
    fn open(&self) -> VerbResult {
        require_read_all(
            &self.principal,
            "open the page",
            "use a token with the scope viewer or wider",
        )?;
        let person = match &self.actor {
            Actor::Person(name) => name
                .chars()
                .filter(|c| c.is_ascii_alphanumeric() || "-_.@".contains(*c))
                .collect(),
            _ => String::new(),
        };
        let code = self.shared.sign_in_codes.create(
            self.principal.clone(),
            person,
            std::time::Instant::now(),
        );
        let code = code.map_err(|error| {
            Problem::new(
                500,
                "io",
                format!("the code could not be created: {error}"),
                "try again",
            )
        })?;
        let lasts_ms =
            u64::try_from(crate::web::login::CODE_LIFETIME.as_millis()).unwrap_or(u64::MAX);
        let url = format!("http://{}/#{code}", self.shared.address);
        encode_answer(
            self.board().revision,
            &regatta_api::live_view::SignInView {
                url,
                code,
                lasts_ms,
            },
        )
    }

    /// Creates a token. The file is written on a thread for blocking work.
    async fn token_add(&self, ask: input::TokenAdd) -> VerbResult {
        let (shared, wall) = (self.shared.clone(), self.engine().now().unix_ms);
        let name = ask.name.clone();
        let made = run_blocking(move || {
            shared
                .tokens
                .add(&ask.name, ask.scope, ask.expires_ms, wall)
        })
        .await??;
        tracing::info!(by = %self.actor, "created the token {name} with the scope {}", made.view.scope);
        encode_answer(self.board().revision, &made)
    }

    async fn token_rm(&self, ask: input::TokenNameInput) -> VerbResult {
        let shared = self.shared.clone();
        let name = ask.name.clone();
        run_blocking(move || shared.tokens.remove(&ask.name)).await??;
        tracing::info!(by = %self.actor, "removed the token {name}");
        encode_answer(self.board().revision, &"done")
    }

    /// Returns names that are not in use at present. They are not reserved.
    fn unused_names(&self, ask: &input::NameQuery) -> VerbResult {
        let (board, prefix) = (self.board(), ask.prefix.as_deref().unwrap_or(""));
        // Two callers at the same revision should get different names.
        let salt = self
            .shared
            .name_requests
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let count = usize::from(ask.count.unwrap_or(1).clamp(1, 1_000));
        let found = name_generator::unused_names(
            &board,
            prefix,
            name_generator::NameLength::Two,
            salt,
            count,
        );
        let found = found.map_err(|refusal| Problem::from(&refusal))?;
        match ask.count {
            None => encode_answer(board.revision, &found.first()),
            Some(_) => encode_answer(board.revision, &found),
        }
    }

    async fn backup(&self, ask: input::FileInput) -> VerbResult {
        let path = std::path::PathBuf::from(&ask.path);
        if !path.is_absolute() {
            return Err(Problem::new(
                400,
                "bad_path",
                "the file's path is not absolute",
                "give a path that starts with /",
            ));
        }
        let revision = self
            .engine()
            .backup(path)
            .await
            .map_err(problem_from_failure)?;
        encode_answer(revision, &ask.path)
    }
}

fn deadline(wait_ms: u64) -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_millis(wait_ms.min(MAX_WAIT_MS))
}

fn parse_id<T: std::str::FromStr<Err = regatta_core::ids::BadName>>(
    text: &str,
) -> Result<T, Problem> {
    text.parse().map_err(|error: regatta_core::ids::BadName| {
        Problem::new(
            400,
            "bad_id",
            error.to_string(),
            "see what there is: regatta status",
        )
    })
}

fn encode_answer<T: Serialize>(revision: u64, data: &T) -> VerbResult {
    serde_json::to_vec(&VerbAnswer { revision, data }).map_err(|error| {
        Problem::new(
            500,
            "bug",
            format!("the answer could not be encoded: {error}"),
            "please report this",
        )
    })
}

fn unexpected_outcome(outcome: &CommandOutcome) -> Problem {
    // A key that was used for another verb returns that verb's outcome.
    Problem::new(
        409,
        "key_reused",
        format!("that Idempotency-Key was used for another request, which gave {outcome:?}"),
        "use a new key for each request",
    )
}

/// Converts a failure of the engine to a problem.
fn problem_from_failure(failure: CommandFailure) -> Problem {
    match failure {
        CommandFailure::Refused { refusal, .. } => Problem::from(&refusal),
        CommandFailure::Store(error) => Problem {
            retryable: error.code == "disk_full",
            ..Problem::new(507, error.code, error.message, error.hint)
        },
        CommandFailure::Stopping => Problem::new(
            503,
            "stopping",
            "the daemon is stopping",
            "start it again: regatta up",
        ),
    }
}

/// Converts an error while reading the history to a problem.
pub(crate) fn problem_from_store(error: StoreError) -> Problem {
    problem_from_failure(CommandFailure::Store(error))
}

fn problem_from_git(error: GitError) -> Problem {
    Problem::new(422, error.code, error.message, error.hint)
}

/// Runs `work` on a thread that may block.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    spawn_boxed(Box::new(move || {
        // The caller may have hung up. Then nobody needs the result.
        let _unsent = sender.send(work());
    }));
    let broke_down = "the thread of a request panicked";
    receiver
        .await
        .map_err(|_| Problem::new(500, "bug", broke_down, "please report this"))
}

/// Spawns boxed work, so that the runtime's task code is compiled once and not for each of eighty
/// closures.
fn spawn_boxed(work: Box<dyn FnOnce() + Send>) {
    drop(tokio::task::spawn_blocking(work));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If-Match is supported by exactly the verbs that the table marks as conditional.
    #[test]
    fn conditional_verbs_of_the_table_accept_a_condition() {
        let call = |name: &str, input: &str| Call::parse(name, input.as_bytes()).unwrap();
        let good = [
            ("task.set", r#"{"task":"T1","edit":{}}"#, "T1"),
            ("task.assign", r#"{"task":"T1"}"#, "T1"),
            ("task.cancel", r#"{"task":"T1"}"#, "T1"),
            ("agent.add", r#"{"name":"ann","runtime":"outside"}"#, "ann"),
            ("agent.close", r#"{"name":"ann"}"#, "ann"),
            ("agent.rm", r#"{"name":"ann"}"#, "ann"),
            ("project.add", r#"{"path":"/x","name":"shop"}"#, "shop"),
            ("limits.set", "{}", "fleet"),
            ("budget.set", r#"{"scope":"day"}"#, "day"),
        ];
        for (name, input, subject) in good {
            assert_eq!(
                precondition_of(&call(name, input), 7).unwrap(),
                Precondition {
                    subject: subject.into(),
                    unchanged_since: 7
                },
                "{name}"
            );
            assert!(Verb::find(name).unwrap().supports_if_match(), "{name}");
        }
        assert_eq!(
            regatta_api::VERBS
                .iter()
                .filter(|verb| verb.supports_if_match())
                .count(),
            good.len()
        );
        assert_eq!(
            precondition_of(&call("status", "{}"), 7).unwrap_err().code,
            "no_condition"
        );
    }
}
