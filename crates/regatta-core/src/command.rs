//! Everything that can change the board. A [`Command`] is a request, whether it comes from the
//! command line, the HTTP API, an agent or Regatta. A [`Report`] is what Regatta itself found out,
//! for example that a program has ended. [`decide`] runs either against the board and returns the
//! changes to store, or a refusal.
//!
//! Not here: the rules themselves. Each input is handled by the module of its subject, such as
//! [`task`].

mod actor; // the actor behind a command
mod command_handlers; // calls the function that handles a command
mod plan; // a mission with all its tasks at once
mod report; // what Regatta reports to itself
mod report_handlers; // calls the function that handles a report
mod tick; // timers that expired

use serde::{Deserialize, Serialize};

use crate::agent_protocol::{AgentRequest, RequestAnswer};
use crate::board::{Board, Deadline, Draft, Rows};
use crate::effect::{Effect, EffectKey};
use crate::event::Recorded;
use crate::ids::{
    AgentName, ApprovalId, AttemptId, ChannelName, ClaimId, CommitId, HookId, LandingId, LaunchId,
    MessageId, MissionId, Now, ProjectName, RequestKey, RuleId, RunnerName, TaskId, TeamName,
    WaitId,
};
use crate::limits::{self, MachineLimits};
use crate::refusal::Refusal;
use crate::{
    agent, approval, attempt, bridge_health, budget, bus, claim, collision_forecast, conversation,
    hook, idempotency, inbox, intervention, isolation_breach, landing, launch, lead,
    manifest_discovery, message_router, mission, plan_request, policy, project, provider_outage,
    react, runner, schedule, scope_escape, task, team,
};

pub use actor::Actor;
pub use report::Report;

/// A task of a mission that is about to start. The task has no id yet, so its blockers are given by
/// their position in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTask {
    pub task: task::AddTask,
    /// Positions (from 0) of the tasks in the same plan that must be completed first.
    pub after: Vec<usize>,
    /// The agent that must do the task; `None` if any agent of the mission may do it.
    pub assign: Option<AgentName>,
}

/// The content of a request to change the board. Persons, agents and Regatta may make requests.
/// The facts that only Regatta can know are [`Report`]s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "command")]
#[allow(
    clippy::large_enum_variant,
    reason = "few commands exist at once, and none is stored"
)]
pub enum Command {
    AddProject(project::AddProject),
    /// Changes a project's settings. Like [`Command::AddProject`], but refused if the project does
    /// not exist.
    ChangeProject(project::AddProject),
    RemoveProject(project::RemoveProject),
    RegisterAgent(agent::RegisterAgent),
    RemoveAgent {
        agent: AgentName,
    },
    /// Takes an agent offline: it gets no tasks until it registers again.
    LeaveAgent {
        agent: AgentName,
        reason: String,
    },
    SetLimits {
        limits: MachineLimits,
    },
    RegisterRunner(runner::RegisterRunner),
    /// A runner (a process that executes attempts) reports that it is still alive.
    BeatRunner {
        runner: RunnerName,
        session: u64,
    },
    /// A runner (a process that executes attempts) leaves, after the programs of all its attempts
    /// have ended.
    LeaveRunner {
        runner: RunnerName,
        session: u64,
    },
    DrainRunner {
        runner: RunnerName,
        reason: String,
    },
    RemoveRunner {
        runner: RunnerName,
    },
    AddTask {
        task: task::AddTask,
        assign: Option<AgentName>,
        how: task::AssignMode,
    },
    /// A lead agent adds a task to its mission (a goal with its tasks).
    AddChild {
        mission: MissionId,
        task: task::AddTask,
        assign: Option<AgentName>,
        how: task::AssignMode,
    },
    /// A lead agent adds an existing task that belongs to no mission to its own mission.
    AdoptTask {
        task: TaskId,
        mission: MissionId,
    },
    EditTask {
        task: TaskId,
        edit: task::EditTask,
    },
    /// Adds a separate task in which an agent finds out which files the given task has to change.
    Explore {
        task: TaskId,
    },
    AssignTask {
        task: TaskId,
        to: Option<AgentName>,
        how: task::AssignMode,
    },
    AnswerOffer {
        task: TaskId,
        agent: AgentName,
        accept: bool,
    },
    CancelTask {
        task: TaskId,
        reason: String,
    },
    /// Stops the work on a task. With `pause`, the task does not start again until somebody resumes
    /// it.
    StopTask {
        task: TaskId,
        reason: String,
        pause: bool,
    },
    Poll(schedule::PollRequest),
    Progress {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        text: String,
    },
    /// The agent of an attempt found something outside its manifest (the files that it may change)
    /// that needs a change, and left it alone.
    ReportEscape {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        finding: scope_escape::ScopeFinding,
    },
    Finish {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        output: Option<String>,
        /// True if the agent found that the task needs no change.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        not_needed: bool,
        /// Facts that the agent learned and that may help later tasks of the project.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        learnings: Vec<String>,
    },
    /// The agent of an attempt asks a person with Regatta's own tool `ask`.
    Ask {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        #[serde(rename = "ask")]
        request: AgentRequest,
    },
    /// The agent of an attempt continues without the answer to its question, on an assumption.
    #[serde(rename = "go_on")]
    ContinueWithoutAnswer {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        approval: ApprovalId,
        assumed: String,
    },
    /// The agent of an attempt has read the answer to its question.
    #[serde(rename = "note_heard")]
    MarkAnswerRead {
        attempt: AttemptId,
        approval: ApprovalId,
    },
    GiveUp {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        reason: Option<String>,
    },
    /// Puts a task's finished work into the landing queue; with `first`, before all landings that
    /// have not begun.
    Land {
        task: TaskId,
        first: bool,
    },
    /// Lands finished work under a claim on the trunk that somebody holds by hand and lends to
    /// Regatta.
    #[serde(rename = "land_under")]
    LandWithLentClaim {
        task: TaskId,
        #[serde(rename = "under")]
        lent_claim: landing::LentTrunkClaim,
    },
    /// Sends finished work back to an agent for another attempt. `text` tells the agent what to
    /// change.
    Revise {
        task: TaskId,
        text: String,
    },
    /// Undoes the landed work of a completed task. `done` is the task as the store has it, because
    /// completed tasks are not on the board.
    Undo {
        done: Box<task::Task>,
    },
    HoldQueue {
        project: ProjectName,
        reason: String,
    },
    /// A person accepts the trunk as it is, although the trunk differs from the result of Regatta's
    /// own landings.
    AcceptTrunk {
        project: ProjectName,
        /// The commit to which the trunk points now, if it is known.
        #[serde(default)]
        tip: Option<CommitId>,
    },
    ReleaseQueue {
        project: ProjectName,
    },
    /// Sends a prompt to the attempt that works on a task, or keeps the prompt for the next
    /// attempt.
    Tell {
        task: TaskId,
        text: String,
    },
    PauseTask {
        task: TaskId,
        reason: String,
    },
    ResumeTask {
        task: TaskId,
    },
    /// Tries a task again. If the task has failed for good, `failed` is the stored task, because
    /// such a task is no longer on the board.
    RetryTask {
        task: TaskId,
        failed: Option<Box<task::Task>>,
    },
    ResumeAgent {
        agent: AgentName,
    },
    Decide {
        approval: ApprovalId,
        answer: RequestAnswer,
        #[serde(rename = "reach")]
        scope: approval::AnswerScope,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<ApprovalId>,
    },
    /// Hides an item of the inbox for `ms` milliseconds; without `ms` the item is shown again.
    Snooze {
        item: inbox::InboxItem,
        ms: Option<u64>,
    },
    /// Removes a failed task from the inbox.
    Dismiss {
        task: TaskId,
    },
    AddRule {
        scope: policy::RuleScope,
        effect: policy::RuleEffect,
        #[serde(rename = "matter")]
        subject: policy::RuleSubject,
    },
    RemoveRule {
        rule: RuleId,
    },
    SetBudget {
        scope: budget::BudgetScope,
        ceiling: budget::Ceiling,
    },

    StartMission {
        mission: mission::StartMission,
        tasks: Vec<PlannedTask>,
        adopt: Vec<TaskId>,
    },
    /// Asks an agent to make a plan for a goal.
    AskPlan(plan_request::PlanRequest),
    /// Starts a mission whose goal a lead agent breaks into tasks.
    AskMission(lead::LeadRequest),
    /// A lead agent reports that its mission (a goal with its tasks) is done.
    FinishMission {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        report: String,
    },
    CancelMission {
        mission: MissionId,
        reason: String,
    },
    HandOverMission {
        mission: MissionId,
        to: Option<AgentName>,
    },
    DrainMission {
        mission: MissionId,
    },
    ResumeMission {
        mission: MissionId,
    },
    StopMission {
        mission: MissionId,
        reason: String,
    },

    /// A request that creates, changes, launches or stops a team of agents.
    Team(Box<team::TeamCommand>),

    /// A request about a conversation with an agent in an outside service, such as Slack.
    Converse(Box<conversation::ConversationCommand>),

    Acquire(claim::Acquire),
    Renew {
        claim: ClaimId,
        token: u64,
    },
    Release {
        claim: ClaimId,
        token: u64,
    },
    CancelWait {
        wait: WaitId,
    },

    Post(bus::PostMessage),
    /// Hands a message to the router, which runs the commands in it. A message that was already
    /// routed is ignored.
    Route {
        project: ProjectName,
        message: Box<bus::Message>,
    },
    /// Posts a message with properties that the server determined, such as its thread.
    PostWith {
        post: bus::PostMessage,
        extra: bus::PostContext,
    },
    MarkRead {
        agent: AgentName,
        channel: ChannelName,
        read: MessageId,
    },

    AddHook(Box<hook::AddHook>),
    PauseHook {
        hook: HookId,
        reason: String,
    },
    ResumeHook {
        hook: HookId,
    },
    RemoveHook {
        hook: HookId,
    },
}

/// A command with the person or agent who asks for it, and with the idempotency key under which a
/// client can repeat the command safely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub by: Actor,
    pub key: Option<RequestKey>,
    pub command: Command,
}

/// Everything that can change the board: a request of a person, an agent or Regatta, or a report of
/// Regatta itself.
///
/// The interfaces submit only requests. The engine gives [`Report`]s their own way in, which the
/// interfaces cannot reach.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "few inputs exist at once, and none is stored"
)]
pub enum BoardInput {
    Request(Request),
    Report(Report),
}

impl BoardInput {
    /// Returns the actor in whose name the input is recorded. Reports are always Regatta's own.
    pub fn actor(&self) -> &Actor {
        match self {
            BoardInput::Request(request) => &request.by,
            BoardInput::Report(_) => &Actor::Regatta,
        }
    }

    /// Returns the idempotency key of a request. Reports have none, because the engine repeats a
    /// report only if the report was not stored.
    pub fn key(&self) -> Option<&RequestKey> {
        match self {
            BoardInput::Request(request) => request.key.as_ref(),
            BoardInput::Report(_) => None,
        }
    }
}

impl From<Request> for BoardInput {
    fn from(request: Request) -> BoardInput {
        BoardInput::Request(request)
    }
}

impl From<Report> for BoardInput {
    fn from(report: Report) -> BoardInput {
        BoardInput::Report(report)
    }
}

/// The answer to a command that was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandOutcome {
    #[default]
    Done,
    Project(ProjectName),
    Agent(AgentName),
    Task(TaskId),
    Mission {
        mission: MissionId,
        tasks: Vec<TaskId>,
    },
    Polled(Option<schedule::PollGrant>),
    Claim(claim::Acquired),
    Renewed {
        ttl_ms: u64,
    },
    Message(MessageId),
    Hook(HookId),
    Queued(landing::QueuePosition),
    Rule(RuleId),
    #[serde(rename = "asked")]
    Approval(ApprovalId),
    Decided(Vec<ApprovalId>),
    #[serde(rename = "told")]
    Tell(intervention::TellOutcome),
    Runner {
        session: u64,
    },
    Judged {
        landing: Option<LandingId>,
    },
    Team(TeamName),
    #[serde(rename = "heard")]
    ThreadMessage(conversation::ThreadMessageOutcome),
    /// The launch of a team has begun and has this id. `None` if the launch must wait until the
    /// team has stopped.
    Launched(Option<LaunchId>),
}

/// The result of an accepted command: the changes that the writer stores in one transaction, and
/// the answer to the caller.
#[derive(Clone, Debug)]
pub struct Commit {
    pub board: Board,
    pub events: Vec<Recorded>,
    pub rows: Rows,
    pub effects: Vec<(EffectKey, Effect)>,
    pub outcome: CommandOutcome,
}

/// Decides an input: returns the changes that the input makes to the board, or a refusal. The
/// result depends only on the arguments; there is no input or output, clock or randomness.
pub fn decide(board: &Board, input: impl Into<BoardInput>, now: Now) -> Result<Commit, Refusal> {
    decide_input(board, input.into(), now)
}

fn decide_input(board: &Board, input: BoardInput, now: Now) -> Result<Commit, Refusal> {
    let by = input.actor().clone();
    let mut draft = Draft::new(board, now).with_actor(by.clone());
    let outcome = match input {
        BoardInput::Report(report) => report_handlers::run(&mut draft, report, now)?,
        BoardInput::Request(mut request) => match request.key.take() {
            None => command_handlers::run(&mut draft, request, now)?,
            Some(key) => {
                let fingerprint = idempotency::fingerprint(&request)?;
                // A client that got no answer repeats its request under the same key. The client
                // gets the stored answer, and the command is not run again (J9).
                if let Some(answer) = board.answers.get(&key) {
                    if !answer.is_answer_to(fingerprint) {
                        return Err(Refusal::KeyReused { key });
                    }
                    return Ok(Commit {
                        board: board.clone(),
                        events: vec![],
                        rows: Rows::new(),
                        effects: vec![],
                        outcome: answer.outcome.clone(),
                    });
                }
                let outcome = command_handlers::run(&mut draft, request, now)?;
                if draft.has_recorded() {
                    idempotency::store_answer(&mut draft, key, fingerprint, outcome.clone(), now);
                }
                outcome
            }
        },
    };
    let (mut events, mut effects) = (Vec::new(), Vec::new());
    let mut revision = board.revision;
    loop {
        // Events can have consequences, which are further events. These further events are handled
        // in the next round, until no events are left.
        let new_events = draft.take_events();
        if new_events.is_empty() {
            break;
        }
        for event in new_events {
            revision += 1;
            for (nth, effect) in (0..).zip(react::react(&mut draft, board, &event, now)?) {
                effects.push((EffectKey { revision, nth }, effect));
            }
            events.push(Recorded {
                revision,
                now,
                by: by.clone(),
                event,
            });
        }
    }
    let (board, rows) = draft.into_parts();
    Ok(Commit {
        board,
        events,
        rows,
        effects,
        outcome,
    })
}
