//! Commands: every request that can change the board, independent of the interface that it came
//! through. [`decide`] runs a command against the board and returns the commit to store, or a
//! refusal.
//!
//! Not here: the rules themselves. Each command is handled by the module of its noun.

mod actor; // the actor behind a command
mod plan; // a mission with all its tasks at once
mod run; // the function that handles each command
mod tick; // timers that expired

use serde::{Deserialize, Serialize};

use crate::agent_protocol::{AgentEvent, AgentRequest, RequestAnswer};
use crate::board::{Board, Deadline, Draft, Rows};
use crate::effect::{Effect, EffectKey};
use crate::event::Recorded;
use crate::ids::{
    AgentName, ApprovalId, AttemptId, ChannelName, ClaimId, CommitId, FiringId, HookId, LandingId,
    LaunchId, MessageId, MissionId, Now, ProjectName, RequestKey, RuleId, RunnerName, TaskId,
    TeamName, WaitId,
};
use crate::limits::{self, MachineLimits};
use crate::refusal::Refusal;
use crate::{
    agent, approval, attempt, bridge_health, budget, bus, claim, collision_forecast, conversation,
    hook, idempotency, inbox, intervention, isolation_breach, landing, launch, lead,
    manifest_discovery, mission, plan_request, policy, project, provider_outage, react, router,
    runner, schedule, scope_escape, start_gates, task, team,
};

pub use actor::Actor;

/// A task of a planned mission. Its blockers name tasks of the same plan by their index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTask {
    pub task: task::AddTask,
    /// Indexes of tasks in the same plan.
    pub after: Vec<usize>,
    /// The agent that the task is assigned to.
    pub assign: Option<AgentName>,
}

/// A request to change the board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "command")]
#[allow(
    clippy::large_enum_variant,
    reason = "few are under way at once, and none is kept"
)]
pub enum Command {
    AddProject(project::AddProject),
    /// Like [`Command::AddProject`], but refused if the project does not exist.
    ChangeProject(project::AddProject),
    RemoveProject(project::RemoveProject),
    RegisterAgent(agent::RegisterAgent),
    RemoveAgent {
        agent: AgentName,
    },
    /// An agent goes offline until it registers again.
    LeaveAgent {
        agent: AgentName,
        reason: String,
    },
    SetLimits {
        limits: MachineLimits,
    },
    RegisterRunner(runner::RegisterRunner),
    /// A runner sends its sign of life.
    BeatRunner {
        runner: RunnerName,
        session: u64,
    },
    /// A runner leaves, and nothing of it runs any more.
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
    /// A lead adds a task to its mission.
    AddChild {
        mission: MissionId,
        task: task::AddTask,
        assign: Option<AgentName>,
        how: task::AssignMode,
    },
    /// A lead takes an unassigned task into its mission.
    AdoptTask {
        task: TaskId,
        mission: MissionId,
    },
    EditTask {
        task: TaskId,
        edit: task::EditTask,
    },
    /// A separate task finds out which files the task touches.
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
    /// Somebody stops the work on a task. With `pause`, the task does not start again until
    /// somebody resumes it.
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
    /// An attempt found something outside its manifest and did not change it.
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
        /// The agent reports that nothing has to be changed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        not_needed: bool,
        /// Facts that help later tasks of the project.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        learnings: Vec<String>,
    },
    /// An attempt asks a person something through Regatta's own tools.
    Ask {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        #[serde(rename = "ask")]
        request: AgentRequest,
    },
    /// An attempt goes on without the answer to its question, with this assumption.
    #[serde(rename = "go_on")]
    ContinueWithoutAnswer {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        approval: ApprovalId,
        assumed: String,
    },
    /// An attempt has read the answer to its question.
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
    /// Finished work enters the queue; with `first`, before all landings that are not under way.
    Land {
        task: TaskId,
        first: bool,
    },
    /// Finished work lands under a claim on the trunk that somebody holds by hand.
    #[serde(rename = "land_under")]
    LandWithLentClaim {
        task: TaskId,
        #[serde(rename = "under")]
        lent_claim: landing::LentTrunkClaim,
    },
    /// Finished work goes back for another attempt, with this text.
    Revise {
        task: TaskId,
        text: String,
    },
    /// The landing of a completed task is undone. `done` is the stored task.
    Undo {
        done: Box<task::Task>,
    },
    HoldQueue {
        project: ProjectName,
        reason: String,
    },
    /// A person accepts the trunk although it differs from the board.
    AcceptTrunk {
        project: ProjectName,
        /// The present tip of the trunk, if known.
        #[serde(default)]
        tip: Option<CommitId>,
    },
    ReleaseQueue {
        project: ProjectName,
    },
    /// A prompt for the attempt that works on a task, or for the next one.
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
    /// A task is tried again. `failed` is the stored task if it has failed for good.
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
    /// An item of the inbox is snoozed for `ms`; without `ms` its snooze ends.
    Snooze {
        item: inbox::InboxItem,
        ms: Option<u64>,
    },
    /// A failed task leaves the inbox.
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
    /// An agent makes a plan for a goal.
    AskPlan(plan_request::PlanRequest),
    /// A mission with a goal that a lead breaks into tasks.
    AskMission(lead::LeadRequest),
    /// A lead reports that its mission is done.
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

    /// A request about a team.
    Team(Box<team::TeamCommand>),

    /// A request about a conversation.
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
    /// A message is handed to the router. A message that was already routed is ignored.
    Route {
        project: ProjectName,
        message: Box<bus::Message>,
    },
    /// A message with properties that the server determined.
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

    // Only Regatta itself sends the commands below.
    /// A poll for an agent that Regatta starts.
    PollSupervised {
        poll: schedule::PollRequest,
        /// Facts that the engine collected just before the poll.
        #[serde(default)]
        facts: Box<start_gates::StartFacts>,
    },
    Resume {
        pid: u32,
    },
    Tick,
    ReportExited {
        attempt: AttemptId,
        token: u64,
        #[serde(rename = "how")]
        exit: attempt::ProgramExit,
    },
    /// An attempt's program runs, in this sandbox.
    ReportLaunched {
        attempt: AttemptId,
        token: u64,
        sandbox: Option<String>,
        warnings: Vec<String>,
    },
    /// A sign that an attempt did not work in its workspace, or not only there.
    #[serde(rename = "report_doubted")]
    ReportIsolationBreach {
        attempt: AttemptId,
        token: u64,
        sign: isolation_breach::IsolationBreach,
    },
    /// Other programs listen on these ports of an attempt.
    ReportPortsTaken {
        attempt: AttemptId,
        token: u64,
        taken: Vec<u16>,
    },
    /// A report of an attempt's program, at this position of its journal.
    #[serde(rename = "report_said")]
    ReportAgentEvent {
        attempt: AttemptId,
        token: u64,
        n: u64,
        #[serde(rename = "said")]
        event: AgentEvent,
    },
    /// The time for which an attempt's program has been silent.
    ReportSilent {
        attempt: AttemptId,
        token: u64,
        since_ms: Option<u64>,
    },
    /// The state of a bridge's credential.
    ReportBridge(bridge_health::BridgeHealth),
    /// All bridges that exist when a daemon starts.
    ReportBridges {
        all: Vec<bridge_health::BridgeHealth>,
    },
    /// The answers of the programs of a launch's members to the check before the start.
    ReportResolved {
        launch: LaunchId,
        found: Vec<launch::MemberResolution>,
    },
    #[serde(rename = "report_judged")]
    ReportWorkVerdict {
        attempt: AttemptId,
        token: u64,
        verdict: attempt::WorkVerdict,
        #[serde(default)]
        findings: attempt::WorkFindings,
    },
    #[serde(rename = "report_tried")]
    ReportTrial {
        landing: LandingId,
        #[serde(rename = "found")]
        outcome: landing::TrialOutcome,
    },
    #[serde(rename = "report_moved")]
    ReportTrunkMove {
        landing: LandingId,
        fence: u64,
        #[serde(rename = "found")]
        outcome: landing::MoveOutcome,
    },
    /// The result of pushing the trunk. `trouble` is the reason of a failure.
    ReportPushed {
        project: ProjectName,
        remote: String,
        commit: CommitId,
        #[serde(rename = "trouble")]
        failure: Option<String>,
    },
    /// A checkout that blocked a landing has changed.
    ReportCheckout {
        landing: LandingId,
    },
    /// The trunk cannot be pushed, because the remote has commits that are not here.
    ReportDiverged {
        project: ProjectName,
        commit: CommitId,
        found: landing::remote_sync::DivergedRemote,
    },
    /// The differences between the trunk and the board's records.
    ReportTrunk {
        project: ProjectName,
        seen: landing::trunk_check::TrunkSeen,
    },
    /// Collisions between workspaces of a project, which the engine found on disk.
    ReportCollisions {
        project: ProjectName,
        found: Vec<collision_forecast::FoundCollision>,
    },
    /// A hook's command has ended.
    ReportHook {
        firing: FiringId,
        ended: hook::FiringEnd,
        output: String,
        #[serde(rename = "shut_in")]
        sandbox_description: Option<String>,
    },
    /// An effect was performed and needs no other report.
    ReportPerformed,
}

impl Command {
    /// Returns whether only Regatta itself may send the command. No interface accepts such a
    /// command.
    pub fn is_internal(&self) -> bool {
        matches!(
            self,
            Command::PollSupervised { .. }
                | Command::Resume { .. }
                | Command::Tick
                | Command::ReportExited { .. }
                | Command::ReportLaunched { .. }
                | Command::ReportIsolationBreach { .. }
                | Command::ReportPortsTaken { .. }
                | Command::ReportAgentEvent { .. }
                | Command::ReportSilent { .. }
                | Command::ReportBridge(_)
                | Command::ReportBridges { .. }
                | Command::ReportResolved { .. }
                | Command::ReportWorkVerdict { .. }
                | Command::ReportTrial { .. }
                | Command::ReportTrunkMove { .. }
                | Command::ReportPushed { .. }
                | Command::ReportDiverged { .. }
                | Command::ReportCheckout { .. }
                | Command::ReportTrunk { .. }
                | Command::ReportCollisions { .. }
                | Command::ReportHook { .. }
                | Command::ReportPerformed
        )
    }
}

/// A command with its actor and its idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub by: Actor,
    pub key: Option<RequestKey>,
    pub command: Command,
}

/// The answer to an accepted command.
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
    /// The launch that has begun. `None` if it begins after a stop.
    Launched(Option<LaunchId>),
}

/// The changes that the writer stores in one transaction.
#[derive(Clone, Debug)]
pub struct Commit {
    pub board: Board,
    pub events: Vec<Recorded>,
    pub rows: Rows,
    pub effects: Vec<(EffectKey, Effect)>,
    pub outcome: CommandOutcome,
}

/// Decides a command against the board, without input, output, a clock or randomness.
pub fn decide(board: &Board, request: &Request, now: Now) -> Result<Commit, Refusal> {
    decide_owned(board, request.clone(), now)
}

/// Like [`decide`], but takes the request by value to avoid a copy.
pub fn decide_owned(board: &Board, request: Request, now: Now) -> Result<Commit, Refusal> {
    // A request with a known key gets the same answer, and nothing happens again (J9).
    if let Some(answer) = request.key.as_ref().and_then(|key| board.answers.get(key)) {
        if answer.command_fingerprint != fingerprint(&request) {
            return Err(Refusal::KeyReused {
                key: answer.key.clone(),
            });
        }
        return Ok(Commit {
            board: board.clone(),
            events: vec![],
            rows: Rows::new(),
            effects: vec![],
            outcome: answer.outcome.clone(),
        });
    }
    let key_and_fingerprint = request
        .key
        .as_ref()
        .map(|key| (key.clone(), fingerprint(&request)));
    let by = request.by.clone();
    let mut draft = Draft::new(board, now).with_actor(by.clone());
    let outcome = run::run(&mut draft, request, now)?;
    if let Some((key, fingerprint)) = key_and_fingerprint
        && draft.has_recorded()
    {
        idempotency::store_answer(&mut draft, key, fingerprint, outcome.clone(), now);
    }
    let (mut events, mut effects) = (Vec::new(), Vec::new());
    let mut revision = board.revision;
    loop {
        // The consequences of these events are recorded behind them and handled in the next round.
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

/// Returns a number for a request and its actor (FNV-1a over the text), which is good enough to
/// detect a key that is used for two requests.
fn fingerprint(request: &Request) -> u64 {
    let text = format!("{} {:?}", request.by, request.command);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
