//! Implements the verbs (operations) of the API, such as `task.add`.
//!
//! Every interface (HTTP, MCP, web page) calls [`handle`]. It checks the permission, measures the
//! call, writes the audit log, and passes the call to `dispatch`, which selects the implementation.
//! An implementation turns its input into a command of regatta-core, or reads from the board (the
//! daemon's state in memory) or the store, and builds the answer.
//!
//! The rules are in regatta-core, also the rights of an attempt's token, which `attempt_scope`
//! applies to each call.

mod attempt; // verbs of an attempt
mod attempt_scope; // applies the rights of an attempt's token
mod audit_line; // lines of the audit log
mod bridges; // conversations in outside services
mod claim; // claims
mod daemon; // verbs of the daemon itself
mod dispatch; // the implementation of each verb
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
pub(crate) use audit_line::audit_other_write;
use dispatch::dispatch;
pub(crate) use landing::never_reviewed;
use regatta_api::input::{self, RuntimeName};
use regatta_api::pagination::{Page, PageRequest, Paging};
use regatta_api::verb::{
    AnswerData, Done, OUTSIDE_AGENT_REGISTRATION, StoreIsSound, TokenScope, Verb,
};
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
use regatta_core::refusal::Refusal;
use regatta_core::schedule::{self, PollRequest};
use regatta_core::task::Task;
use regatta_core::{bus, manifest, mission, name_generator, natural_sort, project, team};
use regatta_engine::ports::git::{GitError, ProjectRepo};
use regatta_engine::ports::store::{MessageFilter, StoreError, StoreHistory, TaskFilter};
use regatta_engine::writer::Precondition;
use regatta_engine::{CommandFailure, CommandReply, Engine};

use crate::listen::ConnectionOrigin;
use crate::otlp::CallerAttributes;
use crate::tokens::Principal;
use crate::{ServerState, ShutdownCause};

/// The answer of a verb's implementation, with data of the type `T` from the table of verbs.
type Reply<T> = Result<VerbAnswer<T>, Problem>;

/// The answer of a list verb: one page of a list of the type `T` from the table of verbs.
type PageReply<T> = Reply<Page<T>>;

/// The answer of a verb whose name is known only at run time. [`AnswerData`] has one variant per
/// verb.
pub(crate) type VerbResult = Reply<AnswerData>;

/// Maximum time that a call of any caller can wait for something, such as a message.
const MAX_WAIT_MS: u64 = 24 * 3_600_000;
/// Time limit for one check (such as a test command) if the project's settings contain no time
/// limit.
const CHECK_TIMEOUT_MS: u64 = 600_000;

/// The facts about a call besides its input: the caller, the origin of the request, the name under
/// which changes are recorded, and the idempotency key.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub(crate) principal: Principal,
    pub(crate) origin: ConnectionOrigin,
    pub(crate) actor: Actor,
    pub(crate) idempotency_key: Option<RequestKey>,
    /// Ids of the caller's trace and span, if it sent them in `traceparent`.
    pub(crate) trace_parent: Option<(String, String)>,
    /// The revision (number of an event) since which the call's target must not have changed.
    /// `None` if the call has no condition (If-Match).
    pub(crate) expected_revision: Option<u64>,
    /// The part of a long list that the caller wants, as in pagination.
    pub(crate) paging: Paging,
}

/// Runs a verb (an API operation) for a caller and writes the audit log. All interfaces call this
/// function.
///
/// The future is boxed so that the code of the verbs is compiled only once. Without the box, the
/// compiler copies the code of all verbs to each of the four places that use this future.
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
    let audit_line = verb
        .filter(|verb| verb.is_write())
        .map(|verb| PendingAuditLine::begin(shared, &context, verb.name, input));
    let started_at = std::time::Instant::now();
    let trace = shared
        .tracer
        .as_ref()
        .map(|tracer| (tracer, CallerAttributes::from_context(&context)));
    let call = async {
        // The permission is checked before the input is parsed, so that callers without it do not
        // learn the format.
        if let Some(verb) = verb {
            require_permission(&context.principal, verb)?;
            if verb.needs_fresh_settings() {
                fleet::apply_settings(shared).await?;
            }
        }
        dispatch(shared, Call::parse(name, input)?, context).await
    };
    let result: VerbResult = call.await;
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
    if let Some(audit_line) = audit_line {
        audit_line.end(&result).await;
    }
    result
}

/// Registers an outside agent, which Regatta does not start itself. More tokens may do this than may
/// call `agent.add`: see [`OUTSIDE_AGENT_REGISTRATION`].
pub(crate) async fn register_outside_agent(
    shared: &Arc<ServerState>,
    context: RequestContext,
    input: &[u8],
) -> VerbResult {
    let audit_line = PendingAuditLine::begin(shared, &context, "agent.add", input);
    let result = register_inner(shared, context, input)
        .await
        .map(|answer| answer.map(|agent| AnswerData::AgentAdd(Box::new(agent))));
    audit_line.end(&result).await;
    result
}

async fn register_inner(
    shared: &Arc<ServerState>,
    context: RequestContext,
    input: &[u8],
) -> Reply<AgentView> {
    let verb = &OUTSIDE_AGENT_REGISTRATION;
    require_permission(&context.principal, verb)?;
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
    if becomes_lead && !scope.can_appoint_leads() {
        return Err(Problem::new(
            403,
            "wrong_scope",
            format!("a token with the scope {scope} cannot register an agent as a lead"),
            "ask a person with the scope operator to register the agent",
        ));
    }
    if registration.runtime != RuntimeName::Outside
        || known_agent.is_some_and(|agent| agent.runtime != Runtime::Outside)
    {
        return Err(Problem::new(
            409,
            "in_use",
            format!(
                "Regatta starts the program of the agent {} itself, so the agent cannot be registered from outside",
                registration.name
            ),
            "choose another name, or change the agent: regatta agent add",
        ));
    }
    handler.agent_add(registration).await
}

/// Checks that a caller's token allows calls of an API verb (S10). A later check decides whether
/// the token also allows the target of the call, such as a task.
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

/// Fails unless the principal may read the pages.
pub(crate) fn require_read_pages(principal: &Principal) -> Result<(), Problem> {
    let hint = "use a token with the scope viewer or wider";
    require_read_all(principal, "read the pages", hint)
}

/// Checks that a caller's token allows reading everything. `what` is the end of the error "a token
/// with this scope cannot …".
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

    async fn run_and_confirm(&self, command: Command) -> Reply<Done> {
        let (revision, _) = self.run(command).await?;
        reply(revision, Done::Done)
    }

    /// Runs a command on a task, and returns the task as it is after the command.
    async fn run_on_task(&self, id: TaskId, command: Command) -> Reply<TaskView> {
        let CommandReply {
            revision,
            completed_task,
            ..
        } = self.run_with_reply(self.actor.clone(), command).await?;
        match completed_task.filter(|task| task.id == id) {
            Some(task) => reply(revision, self.task_view_with_liveness(&self.board(), &task)),
            None => reply(revision, self.task_view(id).await?),
        }
    }

    /// Reads from the store on a thread that may block.
    async fn read_history<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn StoreHistory) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Problem> {
        let history = self.engine().history().clone();
        run_blocking(move || read(&*history))
            .await?
            .map_err(|error| problem_from_failure(CommandFailure::Store(error)))
    }

    /// Builds the view of a task, including the time since the program of its attempt last wrote or
    /// received something.
    fn task_view_with_liveness(&self, board: &Board, task: &Task) -> TaskView {
        let (engine, now) = (self.engine(), self.engine().now());
        let live = task.attempt.filter(|id| {
            board
                .attempts
                .get(id)
                .is_some_and(|attempt| attempt.supervised)
        });
        let last_output_unix_ms = live.and_then(|id| engine.agents().last_record_unix_ms(id));
        TaskView::new(board, task, now).with_last_output(last_output_unix_ms)
    }

    /// Returns a task from the board, or from the store if the task has ended.
    async fn find_task(&self, board: &Board, id: TaskId) -> Result<Arc<Task>, Problem> {
        if let Some(task) = board.tasks.get(&id) {
            return Ok(task.clone());
        }
        let stored = self.read_history(move |history| history.task(id)).await?;
        stored
            .map(Arc::new)
            .ok_or_else(|| Problem::from(&Refusal::NoSuchTask { task: id }))
    }

    async fn task_view(&self, id: TaskId) -> Result<TaskView, Problem> {
        let board = self.board();
        let task = self.find_task(&board, id).await?;
        Ok(self.task_view_with_liveness(&board, &task))
    }

    /// Returns the project that the caller names, or the only project if there is just one.
    fn resolve_project(&self, named: Option<ProjectName>) -> Result<ProjectName, Problem> {
        let board = self.board();
        match named {
            Some(name) if board.projects.contains_key(&name) => Ok(name),
            Some(project) => Err(Problem::from(&Refusal::NoSuchProject { project })),
            None => match board.projects.len() {
                1 => Ok(board.projects.keys().next().cloned().expect("there is one")),
                0 => Err(Problem::new(
                    422,
                    "no_project",
                    "Regatta does not manage a repository yet",
                    "add the repository of this directory: regatta init --yes",
                )),
                _ => Err(Problem::new(
                    400,
                    "which_project",
                    "the call does not say which of the projects it is about",
                    "run the command inside a project's directory, or add --project NAME",
                )),
            },
        }
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
            "see the ids of tasks and attempts: regatta status",
        )
    })
}

/// Returns a successful answer with data that was read at a revision.
fn reply<T>(revision: u64, data: T) -> Reply<T> {
    Ok(VerbAnswer {
        revision,
        data,
        next: None,
    })
}

fn unexpected_outcome(outcome: &CommandOutcome) -> Problem {
    // If the caller used the same idempotency key for a different call before, the engine returns
    // the stored outcome of that call. Such an outcome is unexpected here.
    Problem::new(
        409,
        "key_reused",
        format!(
            "this Idempotency-Key was already used for another request, with the result {outcome:?}"
        ),
        "send the request again with a new Idempotency-Key",
    )
}

/// Converts a failure of the engine to an error for the caller.
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
            "the daemon is stopping and accepts no requests",
            "start the daemon again: regatta up",
        ),
    }
}

/// Converts an error of the store to an error for the caller.
pub(crate) fn problem_from_store(error: StoreError) -> Problem {
    problem_from_failure(CommandFailure::Store(error))
}

fn problem_from_git(error: GitError) -> Problem {
    Problem::new(422, error.code, error.message, error.hint)
}

/// Runs `work` on a thread that may block, and returns its result.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    spawn_boxed(Box::new(move || {
        // Sending the result fails only if the caller has disconnected, and then nobody needs the
        // result.
        let _unsent = sender.send(work());
    }));
    let hint = "this is a bug in Regatta; report it with this message and logs/daemon.log";
    let message = "the request was not answered, because its thread in the daemon panicked";
    receiver
        .await
        .map_err(|_| Problem::new(500, "bug", message, hint))
}

/// Runs `work` on a thread that may block. Because `work` is boxed, the compiler builds the
/// runtime's code only once, instead of once for each of eighty closures.
fn spawn_boxed(work: Box<dyn FnOnce() + Send>) {
    drop(tokio::task::spawn_blocking(work));
}
