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
mod task; // tasks and missions
mod teams; // teams and their launches

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
    let started_at = std::time::Instant::now();
    let trace = shared
        .tracer
        .as_ref()
        .map(|tracer| (tracer, CallerAttributes::from_context(&context)));
    let call = async {
        // The permission is checked before the input, so that others do not learn the format.
        if let Some(verb) = verb {
            require_permission(&context.principal, verb)?;
            if verb.needs_fresh_settings() {
                fleet::apply_settings(shared).await?;
            }
        }
        dispatch(shared, Call::parse(name, input)?, context).await
    };
    let result = call.await;
    let name = verb.map_or("unknown", |verb| verb.name);
    shared.metrics.record_call(
        name,
        result
            .as_ref()
            .map_or_else(|problem| problem.status, |_| 200),
        started_at.elapsed(),
    );
    if let Some((tracer, caller)) = trace {
        tracer.record_call(
            name,
            &caller,
            started_at.elapsed(),
            result.as_ref().err().map(|problem| problem.code.as_str()),
        );
    }
    if let Some(line) = line {
        line.end(&result).await;
    }
    result
}

/// Dispatches one call to the implementation of its verb.
async fn dispatch(shared: &Arc<ServerState>, call: Call, context: RequestContext) -> VerbResult {
    let precondition = context
        .expected_revision
        .map(|since| precondition_of(&call, since))
        .transpose()?;
    let handler = VerbHandler {
        shared,
        principal: context.principal,
        actor: context.actor,
        idempotency_key: context.idempotency_key,
        precondition,
    };
    let call = handler.restrict_to_attempt(call).await?;
    match call {
        Call::Status(input) => handler.status(input).await,
        Call::Why(input) => handler.why(&input.id).await,
        Call::Show(input) => handler.show(&input.id).await,
        Call::Graph(input) => handler.graph(input).await,
        Call::ProjectAdd(input) => handler.project_add(input).await,
        Call::ProjectList(_) => handler.project_list().await,
        Call::ProjectRm(input) => {
            handler
                .run_and_confirm(Command::RemoveProject(project::RemoveProject {
                    name: input.name,
                }))
                .await
        }
        Call::AgentAdd(input) => handler.agent_add(input).await,
        Call::AgentList(_) => handler.agent_list(),
        Call::AgentClose(input) => handler.agent_close(input).await,
        Call::AgentRm(input) => {
            handler
                .run_and_confirm(Command::RemoveAgent { agent: input.name })
                .await
        }
        Call::TaskAdd(input) => handler.task_add(input).await,
        Call::TaskList(input) => handler.task_list(input).await,
        Call::TaskExplore(input) => handler.task_explore(parse_id(&input.id)?).await,
        Call::TaskSet(input) => handler.task_set(input).await,
        Call::TaskAssign(input) => {
            handler
                .run_on_task(
                    input.task,
                    Command::AssignTask {
                        task: input.task,
                        to: input.to,
                        how: input.how,
                    },
                )
                .await
        }
        Call::TaskAccept(input) => {
            handler
                .run_on_task(
                    input.task,
                    Command::AnswerOffer {
                        task: input.task,
                        agent: input.agent,
                        accept: true,
                    },
                )
                .await
        }
        Call::TaskReject(input) => {
            handler
                .run_on_task(
                    input.task,
                    Command::AnswerOffer {
                        task: input.task,
                        agent: input.agent,
                        accept: false,
                    },
                )
                .await
        }
        Call::TaskCancel(input) => {
            let reason = input
                .reason
                .unwrap_or_else(|| "cancelled by a person".into());
            handler
                .run_on_task(
                    input.task,
                    Command::CancelTask {
                        task: input.task,
                        reason,
                    },
                )
                .await
        }
        Call::TaskPoll(input) => handler.task_poll(input).await,
        Call::TaskProgress(input) => {
            handler
                .run_on_task(
                    input.task,
                    Command::Progress {
                        task: input.task,
                        attempt: input.attempt,
                        token: input.token,
                        text: input.text,
                    },
                )
                .await
        }
        Call::TaskFinish(input) => {
            handler
                .run_on_task(
                    input.task,
                    Command::Finish {
                        task: input.task,
                        attempt: input.attempt,
                        token: input.token,
                        output: input.output,
                        not_needed: input.not_needed,
                        learnings: input.learnings,
                    },
                )
                .await
        }
        Call::TaskFail(input) => {
            handler
                .run_on_task(
                    input.task,
                    Command::GiveUp {
                        task: input.task,
                        attempt: input.attempt,
                        token: input.token,
                        reason: input.reason,
                    },
                )
                .await
        }
        Call::MissionStart(input) => handler.mission_start(input).await,
        Call::MissionAsk(input) => handler.mission_ask(input).await,
        Call::MissionList(input) => handler.mission_list(input),
        Call::MissionCancel(input) => handler.mission_cancel(input).await,
        Call::MissionHandover(input) => handler.mission_handover(input).await,
        Call::MissionFinish(input) => handler.mission_finish(input).await,
        Call::MissionAdopt(input) => handler.mission_adopt(input).await,
        Call::Route(input) => handler.route(input).await,
        Call::Guide(input) => handler.guide(&input),
        Call::MissionShow(input) => handler.mission_show(&input.id).await,
        Call::MissionReplay(input) => handler.mission_replay(input).await,
        Call::MissionCompare(input) => handler.mission_compare(input).await,
        Call::PlanAsk(input) => handler.plan_ask(input).await,
        Call::PlanShow(input) => handler.plan_show(input.task).await,
        Call::PlanDraw(input) => handler.plan_draw(input).await,
        Call::Stop(input) => handler.stop(input).await,
        Call::Resume(input) => handler.resume(&input.id).await,
        Call::Pause(input) => handler.pause(input).await,
        Call::Retry(input) => handler.retry(&input.id).await,
        Call::Tell(input) => handler.tell(input).await,
        Call::InboxList(input) => handler.inbox_list(input),
        Call::InboxAnswer(input) => handler.inbox_answer(input).await,
        Call::InboxSnooze(input) => handler.inbox_snooze(input).await,
        Call::AttemptAsk(input) => handler.attempt_ask(input).await,
        Call::AttemptAnswer(input) => handler.attempt_answer(input).await,
        Call::Siblings(input) => handler.siblings(input.attempt).await,
        Call::Briefing(input) => handler.briefing(input.attempt).await,
        Call::Transcript(input) => handler.transcript(input).await,
        Call::Checks(input) => handler.attempt_checks(input.attempt).await,
        Call::ScopeReport(input) => handler.scope_report(input).await,
        Call::ScopeList(input) => handler.scope_list(input).await,
        Call::ScopeFollow(input) => handler.scope_follow(&input.id).await,
        Call::RuleList(input) => handler.rule_list(input),
        Call::RuleTest(input) => handler.rule_test(input).await,
        Call::PolicyList(_) => encode_answer(
            handler.board().revision,
            &handler.board().rules.values().collect::<Vec<_>>(),
        ),
        Call::PolicyAdd(input) => handler.policy_add(input).await,
        Call::PolicyRm(input) => {
            handler
                .run_and_confirm(Command::RemoveRule { rule: input.rule })
                .await
        }
        Call::BudgetList(input) => encode_answer(
            handler.board().revision,
            &BudgetsView::new(&handler.board(), handler.engine().now(), input.days),
        ),
        Call::Cost(input) => handler.cost(&input).await,
        Call::BudgetSet(input) => handler.budget_set(input).await,
        Call::Land(input) => handler.land(input).await,
        Call::Queue(input) => handler.queue(input).await,
        Call::QueueHold(input) => handler.queue_hold(input).await,
        Call::QueueAccept(input) => handler.queue_accept(input).await,
        Call::QueueRelease(input) => handler.queue_release(input).await,
        Call::Diff(input) => handler.diff(input).await,
        Call::Revise(input) => handler.revise(input).await,
        Call::Drop(input) => handler.drop_work(input).await,
        Call::Takeover(input) => handler.take_over(&input.id).await,
        Call::Undo(input) => handler.undo(&input.id).await,
        Call::ClaimAcquire(input) => handler.claim_acquire(input).await,
        Call::ClaimRenew(input) => handler.claim_renew(input).await,
        Call::ClaimRelease(input) => {
            handler
                .run_and_confirm(Command::Release {
                    claim: input.claim,
                    token: input.token,
                })
                .await
        }
        Call::ClaimList(_) => handler.claim_list(),
        Call::ClaimCheck(input) => handler.claim_check(&input),
        Call::MsgSend(input) => handler.msg_send(input).await,
        Call::MsgHistory(input) => handler.msg_history(input).await,
        Call::MsgWait(input) => handler.msg_wait(input).await,
        Call::MsgRead(input) => handler.msg_read(input).await,
        Call::MsgInbox(input) => handler.msg_inbox(input).await,
        Call::MsgAttachment(input) => handler.msg_attachment(input).await,
        Call::HookAdd(input) => handler.hook_add(input).await,
        Call::BridgeList(_) => handler.bridge_list(),
        Call::BridgePause(input) => handler.bridge_pause(&input),
        Call::ConversationList(input) => handler.conversation_list(input).await,
        Call::ConversationShow(input) => handler.conversation_show(input.conversation).await,
        Call::ConversationAccept(input) => {
            handler
                .run_conversation_command(input.conversation, |conversation| {
                    ConversationCommand::Accept { conversation }
                })
                .await
        }
        Call::ConversationRefuse(input) => {
            handler
                .run_conversation_command(input.conversation, |conversation| {
                    ConversationCommand::Refuse { conversation }
                })
                .await
        }
        Call::ConversationStop(input) => {
            let by = handler.actor.to_string();
            handler
                .run_conversation_command(input.conversation, |conversation| {
                    ConversationCommand::Stop {
                        conversation,
                        by,
                        delivery: None,
                    }
                })
                .await
        }
        Call::ConversationClose(input) => {
            handler
                .run_conversation_command(input.conversation, |conversation| {
                    ConversationCommand::Close { conversation }
                })
                .await
        }
        Call::HookList(_) => handler.hook_list(),
        Call::HookTest(input) => handler.hook_test(input).await,
        Call::HookPause(input) => handler.hook_pause(input).await,
        Call::HookResume(input) => handler.hook_resume(input.hook).await,
        Call::HookRm(input) => {
            handler
                .run_and_confirm(Command::RemoveHook { hook: input.hook })
                .await
        }
        Call::HookLog(input) => handler.hook_log(input).await,
        Call::TeamCreate(input) => handler.team_create(input).await,
        Call::TeamEdit(input) => handler.team_edit(input).await,
        Call::TeamList(input) => handler.team_list(&input),
        Call::TeamShow(input) => handler.team_show(&input.team).await,
        Call::TeamExplain(input) => handler.team_explain(&input.team),
        Call::TeamLaunch(input) => handler.team_launch(input).await,
        Call::TeamRelaunch(input) => handler.team_relaunch(input).await,
        Call::TeamStop(input) => handler.team_stop(input).await,
        Call::TeamRetry(input) => handler.team_retry(input).await,
        Call::TeamDelete(input) => {
            handler
                .run_and_show_team(
                    &input.team,
                    team::TeamCommand::Delete {
                        team: input.team.clone(),
                    },
                )
                .await
        }
        Call::TeamUndelete(input) => {
            handler
                .run_and_show_team(
                    &input.team,
                    team::TeamCommand::Undelete {
                        team: input.team.clone(),
                    },
                )
                .await
        }
        Call::TeamBackup(input) => handler.team_backup(&input.team),
        Call::TeamRestore(input) => handler.team_restore(input).await,
        Call::RunnerList(_) => handler.runner_list(),
        Call::RunnerDrain(input) => handler.runner_drain(input).await,
        Call::RunnerRm(input) => {
            handler
                .run_and_confirm(Command::RemoveRunner { runner: input.name })
                .await
        }
        Call::RunnerRegister(input) => handler.runner_register(input).await,
        Call::RunnerBeat(input) => handler.runner_beat(input).await,
        Call::RunnerLeave(input) => handler.runner_leave(input).await,
        Call::RunnerCalls(input) => handler.runner_calls(input).await,
        Call::RunnerAnswer(input) => handler.runner_answer(input).await,
        Call::RunnerSaid(input) => handler.runner_output(input).await,
        Call::RunnerCopy(input) => handler.runner_copy(input).await,
        Call::Open(_) => handler.open(),
        Call::Name(input) => handler.unused_names(&input),
        Call::TokenAdd(input) => handler.token_add(input).await,
        Call::TokenList(_) => encode_answer(
            handler.board().revision,
            &shared.tokens.list(handler.engine().now().unix_ms),
        ),
        Call::TokenRm(input) => handler.token_rm(input).await,
        Call::Audit(input) => handler.audit(input).await,
        Call::LimitsSet(input) => handler.limits_set(input).await,
        Call::Backup(input) => handler.backup(input).await,
        Call::Check(_) => {
            handler
                .engine()
                .check_store()
                .await
                .map_err(problem_from_failure)?;
            encode_answer(handler.board().revision, &"ok")
        }
        Call::Doctor(_) => {
            let projects = handler
                .board()
                .projects
                .values()
                .map(|project| (project.name.clone(), project.location.clone().into()))
                .collect();
            let bridges = handler
                .shared
                .bridges
                .as_ref()
                .map(|bridges| bridges.list())
                .unwrap_or_default();
            let doctor_input = crate::DoctorInput {
                agents: handler.agents(),
                projects,
                bridges,
            };
            let doctor = handler.shared.doctor.clone();
            let view = run_blocking(move || doctor(&doctor_input)).await?;
            encode_answer(handler.board().revision, &view)
        }
        Call::Down(input) => handler.down(input.keep_agents).await,
    }
}

/// Returns the condition under which a conditional call is carried out: its target has not changed
/// since a revision. Calls without support for conditions are refused, because an ignored condition
/// would be worse than none.
fn precondition_of(call: &Call, since: u64) -> Result<Precondition, Problem> {
    let subject = match call {
        Call::TaskSet(input) => input.task.to_string(),
        Call::TaskAssign(input) => input.task.to_string(),
        Call::TaskCancel(input) => input.task.to_string(),
        Call::AgentAdd(input) => input.name.to_string(),
        Call::AgentClose(input) => input.name.to_string(),
        Call::AgentRm(input) => input.name.to_string(),
        Call::ProjectAdd(input::ProjectAdd {
            name: Some(name), ..
        }) => name.to_string(),
        Call::ProjectRm(input) => input.name.to_string(),
        Call::LimitsSet(_) => "fleet".into(),
        Call::BudgetSet(input) => input.scope.to_string(),
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
    let result = register_inner(shared, context, input).await;
    line.end(&result).await;
    result
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
    let Call::AgentAdd(registration) = Call::parse(verb.name, input)? else {
        unreachable!("it was read as this verb")
    };
    let handler = VerbHandler {
        shared,
        principal: context.principal,
        actor: context.actor,
        idempotency_key: context.idempotency_key,
        precondition: None,
    };
    let known_agent = handler.board().agents.get(&registration.name).cloned();
    let becomes_lead = registration.role == agent::Role::Lead
        && known_agent
            .as_ref()
            .is_none_or(|agent| agent.role != agent::Role::Lead);
    if scope == TokenScope::Runner && becomes_lead {
        return Err(Problem::new(
            403,
            "wrong_scope",
            "a runner cannot make a lead",
            "ask an operator to register it",
        ));
    }
    if registration.runtime != RuntimeName::Outside
        || known_agent.is_some_and(|agent| agent.runtime != Runtime::Outside)
    {
        return Err(Problem::new(
            409,
            "in_use",
            format!("{} is started by Regatta itself", registration.name),
            "choose another name, or change it with regatta agent add",
        ));
    }
    handler.agent_add(registration).await
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

    async fn run_as(
        &self,
        actor: Actor,
        command: Command,
    ) -> Result<(u64, CommandOutcome), Problem> {
        let reply = self.run_with_reply(actor, command).await?;
        Ok((reply.revision, reply.outcome))
    }

    async fn run_with_reply(
        &self,
        actor: Actor,
        command: Command,
    ) -> Result<CommandReply, Problem> {
        let request = Request {
            by: actor,
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
            completed_task,
            ..
        } = self.run_with_reply(self.actor.clone(), command).await?;
        match completed_task.filter(|task| task.id == id) {
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
        let last_output_unix_ms = live.and_then(|id| engine.agents().last_record_unix_ms(id));
        TaskView::new(board, task, now).with_last_output(
            last_output_unix_ms,
            board.limits.silence_ms,
            now,
        )
    }

    async fn task_view(&self, id: TaskId) -> Result<TaskView, Problem> {
        let board = self.board();
        if let Some(task) = board.tasks.get(&id) {
            return Ok(self.task_view_with_liveness(&board, task));
        }
        let stored = self.read_history(move |history| history.task(id)).await?;
        let task = stored.ok_or_else(|| {
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
            let still_running =
                run_blocking(move || engine.stop_attempts("the daemon was told to stop"))
                    .await?
                    .map_err(problem_from_failure)?;
            if !still_running.is_empty() {
                let what = format!(
                    "the daemon stays up, because it could not stop {}",
                    still_running.join(", ")
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
    async fn token_add(&self, input: input::TokenAdd) -> VerbResult {
        let (shared, wall) = (self.shared.clone(), self.engine().now().unix_ms);
        let name = input.name.clone();
        let created = run_blocking(move || {
            shared
                .tokens
                .add(&input.name, input.scope, input.expires_ms, wall)
        })
        .await??;
        tracing::info!(by = %self.actor, "created the token {name} with the scope {}", created.view.scope);
        encode_answer(self.board().revision, &created)
    }

    async fn token_rm(&self, input: input::TokenNameInput) -> VerbResult {
        let shared = self.shared.clone();
        let name = input.name.clone();
        run_blocking(move || shared.tokens.remove(&input.name)).await??;
        tracing::info!(by = %self.actor, "removed the token {name}");
        encode_answer(self.board().revision, &"done")
    }

    /// Returns names that are not in use at present. They are not reserved.
    fn unused_names(&self, input: &input::NameQuery) -> VerbResult {
        let (board, prefix) = (self.board(), input.prefix.as_deref().unwrap_or(""));
        // Two callers at the same revision should get different names.
        let request_number = self
            .shared
            .name_requests
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let count = usize::from(input.count.unwrap_or(1).clamp(1, 1_000));
        let names = name_generator::unused_names(
            &board,
            prefix,
            name_generator::NameLength::Two,
            request_number,
            count,
        );
        let names = names.map_err(|refusal| Problem::from(&refusal))?;
        match input.count {
            None => encode_answer(board.revision, &names.first()),
            Some(_) => encode_answer(board.revision, &names),
        }
    }

    async fn backup(&self, input: input::FileInput) -> VerbResult {
        let path = std::path::PathBuf::from(&input.path);
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
        encode_answer(revision, &input.path)
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
    let message = "the thread of a request panicked";
    receiver
        .await
        .map_err(|_| Problem::new(500, "bug", message, "please report this"))
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
