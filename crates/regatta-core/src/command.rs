//! Commands: every request that can change the board, independent of the interface that it came
//! through. [`decide`] runs a command against the board and returns the commit to store, or a
//! refusal.

mod actor; // the actor behind a command
mod plan; // a mission with all its tasks at once
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
    /// An agent shall make a plan for a goal.
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
    /// Collisions between workspaces of a project, as a look at the disk found them.
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
    let known_as = request
        .key
        .as_ref()
        .map(|key| (key.clone(), fingerprint(&request)));
    let by = request.by.clone();
    let mut draft = Draft::new(board, now).with_actor(by.clone());
    let outcome = run(&mut draft, request, now)?;
    if let Some((key, command)) = known_as
        && draft.has_recorded()
    {
        idempotency::store_answer(&mut draft, key, command, outcome.clone(), now);
    }
    let (mut events, mut effects) = (Vec::new(), Vec::new());
    let mut revision = board.revision;
    loop {
        // The consequences of these events are recorded behind them and handled in the next round.
        let fresh = draft.take_events();
        if fresh.is_empty() {
            break;
        }
        for event in fresh {
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

fn run(draft: &mut Draft, request: Request, now: Now) -> Result<CommandOutcome, Refusal> {
    Ok(match request.command {
        Command::AddProject(ask) => CommandOutcome::Project(project::add(draft, ask, now)?),
        Command::ChangeProject(ask) => CommandOutcome::Project(project::change(draft, ask, now)?),
        Command::RemoveProject(ask) => done_outcome(project::remove(draft, &ask.name)?),
        Command::RegisterAgent(ask) => CommandOutcome::Agent(agent::register(draft, ask, now)?),
        Command::RemoveAgent { agent } => done_outcome(agent::remove(draft, &agent)?),
        Command::LeaveAgent { agent, reason } => {
            done_outcome(agent::take_offline(draft, &agent, &reason, now)?)
        }
        Command::SetLimits { limits } => done_outcome(limits::set_limits(draft, limits)?),
        Command::RegisterRunner(ask) => CommandOutcome::Runner {
            session: runner::register(draft, ask, now)?,
        },
        Command::BeatRunner { runner, session } => {
            done_outcome(runner::heartbeat(draft, &runner, session, now)?)
        }
        Command::LeaveRunner { runner, session } => {
            done_outcome(runner::sign_off(draft, &runner, session)?)
        }
        Command::DrainRunner { runner, reason } => {
            done_outcome(runner::drain(draft, &runner, &reason)?)
        }
        Command::RemoveRunner { runner } => done_outcome(runner::remove(draft, &runner)?),
        Command::AddChild {
            mission,
            task,
            assign,
            how,
        } => {
            let id = lead::add_child(draft, mission, task, now)?;
            if assign.is_some() {
                task::assign(draft, id, assign, how, now)?;
            }
            CommandOutcome::Task(id)
        }
        Command::AddTask { task, assign, how } => {
            let id = task::add(draft, task, None, now)?;
            if assign.is_some() {
                task::assign(draft, id, assign, how, now)?;
            }
            CommandOutcome::Task(id)
        }
        Command::AdoptTask { task, mission } => {
            done_outcome(lead::adopt_child(draft, mission, task)?)
        }
        Command::EditTask { task, edit } => done_outcome(task::edit(draft, task, edit)?),
        Command::Explore { task } => {
            CommandOutcome::Task(manifest_discovery::begin(draft, task, now)?)
        }
        Command::AssignTask { task, to, how } => done_outcome(
            task::assign(draft, task, to, how, now)
                .map_err(|refusal| refusal.addressed_to(&request.by))?,
        ),
        Command::AnswerOffer {
            task,
            agent,
            accept,
        } => done_outcome(task::answer_offer(draft, task, &agent, accept)?),
        Command::CancelTask { task, reason } => done_outcome(task::cancel(draft, task, &reason)?),
        Command::StopTask {
            task,
            reason,
            pause,
        } => {
            if pause {
                task::edit(
                    draft,
                    task,
                    task::EditTask {
                        paused: Some(task::SetPause::Pause(reason.clone())),
                        ..task::EditTask::default()
                    },
                )?;
                landing::hold_landing(draft, task, &reason, now)?;
            }
            done_outcome(attempt::stop_task(draft, task, &reason)?)
        }
        Command::Poll(ask) => CommandOutcome::Polled(schedule::poll(draft, &ask, None, now)?),
        Command::PollSupervised { poll, facts } => {
            CommandOutcome::Polled(schedule::poll(draft, &poll, Some(&facts), now)?)
        }
        Command::Progress {
            task,
            attempt,
            token,
            text,
        } => done_outcome(task::progress(draft, task, attempt, token, text, now)?),
        Command::ReportEscape {
            task,
            attempt,
            token,
            finding,
        } => done_outcome(scope_escape::report_escape(
            draft,
            (task, attempt, token),
            finding,
            now,
        )?),
        Command::Finish {
            task,
            attempt,
            token,
            output,
            not_needed,
            learnings,
        } => {
            // A supervised attempt is done when its program ends. Its report is stored until then.
            let is_supervised =
                attempt::require_attempt_of_task(draft.board(), task, attempt, token)?.supervised;
            approval::check_finish(draft.board(), attempt)?;
            let said = attempt::FinishReport {
                output: output.clone(),
                not_needed,
                learnings,
            };
            if is_supervised {
                return Ok(done_outcome(attempt::record_report(
                    draft, attempt, token, said,
                )?));
            }
            if said.is_result() {
                attempt::record_report(draft, attempt, token, said)?;
            }
            done_outcome(task::finish(draft, task, attempt, token, output)?)
        }
        Command::Ask {
            task,
            attempt,
            token,
            request: ask,
        } => {
            attempt::require_attempt_of_task(draft.board(), task, attempt, token)?;
            CommandOutcome::Approval(approval::on_tool_request(draft, attempt, ask, now)?)
        }
        Command::ContinueWithoutAnswer {
            task,
            attempt,
            token,
            approval,
            assumed,
        } => {
            attempt::require_attempt_of_task(draft.board(), task, attempt, token)?;
            done_outcome(approval::continue_without_answer(
                draft, attempt, approval, assumed,
            )?)
        }
        Command::MarkAnswerRead { attempt, approval } => {
            approval::mark_answer_read(draft, attempt, approval);
            CommandOutcome::Done
        }
        Command::GiveUp {
            task,
            attempt,
            token,
            reason,
        } => done_outcome(task::give_up(draft, task, attempt, token, reason)?),
        Command::Land { task, first } => {
            CommandOutcome::Queued(landing::land(draft, task, first, &request.by, now)?)
        }
        Command::LandWithLentClaim {
            task,
            lent_claim: under,
        } => CommandOutcome::Queued(landing::land_with_lent_claim(
            draft,
            task,
            under,
            &request.by,
            now,
        )?),
        Command::Revise { task, text } => done_outcome(landing::revise(draft, task, text)?),
        Command::Undo { done } => {
            CommandOutcome::Queued(landing::undo(draft, &done, &request.by, now)?)
        }
        Command::HoldQueue { project, reason } => done_outcome(landing::hold_queue(
            draft,
            &project,
            reason,
            &request.by,
            now,
        )?),
        Command::AcceptTrunk { project, tip } => done_outcome(landing::trunk_check::accept(
            draft,
            &project,
            tip,
            request.by.to_string(),
        )?),
        Command::ReleaseQueue { project } => done_outcome(landing::release_queue(draft, &project)?),
        Command::Tell { task, text } => {
            CommandOutcome::Tell(intervention::send_message(draft, task, text)?)
        }
        Command::PauseTask { task, reason } => {
            done_outcome(intervention::pause(draft, task, &reason)?)
        }
        Command::ResumeTask { task } => done_outcome(intervention::resume(draft, task)?),
        Command::RetryTask { task, failed } => {
            CommandOutcome::Task(intervention::retry(draft, task, failed.as_deref(), now)?)
        }
        Command::ResumeAgent { agent } => done_outcome(provider_outage::resume(draft, &agent)?),
        Command::Decide {
            approval,
            answer,
            scope: reach,
            also,
        } => {
            let verdict = approval::ApprovalAnswer {
                answer,
                scope: reach,
                by: request.by,
            };
            CommandOutcome::Decided(approval::decide_all(draft, approval, &also, &verdict, now)?)
        }
        Command::Snooze { item, ms } => done_outcome(inbox::snooze(draft, item, ms, now)?),
        Command::Dismiss { task } => done_outcome(inbox::dismiss(draft, task)?),
        Command::AddRule {
            scope,
            effect,
            subject: matter,
        } => CommandOutcome::Rule(policy::add(draft, scope, effect, matter)?),
        Command::RemoveRule { rule } => done_outcome(policy::remove(draft, rule)?),
        Command::SetBudget { scope, ceiling } => done_outcome(budget::set(draft, scope, ceiling)?),
        Command::StartMission {
            mission,
            tasks,
            adopt,
        } => plan::start_mission(draft, mission, tasks, adopt, now)?,
        Command::AskPlan(ask) => {
            let (mission, task) = plan_request::request_plan(draft, ask, now)?;
            CommandOutcome::Mission {
                mission,
                tasks: vec![task],
            }
        }
        Command::AskMission(ask) => CommandOutcome::Mission {
            mission: lead::request_mission(draft, ask, now)?,
            tasks: vec![],
        },
        Command::FinishMission {
            task,
            attempt,
            token,
            report,
        } => done_outcome(lead::finish(draft, (task, attempt, token), report)?),
        Command::CancelMission { mission, reason } => {
            done_outcome(mission::cancel(draft, mission, &reason, now)?)
        }
        Command::HandOverMission { mission, to } => {
            done_outcome(lead::hand_over(draft, mission, to, now)?)
        }
        Command::DrainMission { mission } => done_outcome(mission::drain(draft, mission)?),
        Command::ResumeMission { mission } => done_outcome(mission::resume(draft, mission, now)?),
        Command::StopMission { mission, reason } => {
            mission::drain(draft, mission)?;
            let tasks: Vec<TaskId> = draft
                .board()
                .open_tasks_of(mission)
                .map(|draft| draft.1)
                .collect();
            for task in tasks {
                attempt::stop_task(draft, task, &reason)?;
                landing::hold_landing(draft, task, &reason, now)?;
            }
            CommandOutcome::Done
        }
        Command::Team(ask) => team::run(draft, *ask, now)?,
        Command::Converse(ask) => conversation::run(draft, *ask, now)?,
        Command::ReportBridge(standing) => bridge_health::report(draft, standing, now),
        Command::ReportBridges { all } => bridge_health::report_all(draft, all, now),
        Command::ReportResolved { launch, found } => {
            done_outcome(launch::on_resolved(draft, launch, found, now)?)
        }
        Command::Acquire(ask) => CommandOutcome::Claim(claim::acquire(draft, ask, now)?),
        Command::Renew { claim, token } => CommandOutcome::Renewed {
            ttl_ms: claim::renew(draft, claim, token, now)?,
        },
        Command::Release { claim, token } => done_outcome(claim::release(draft, claim, token)?),
        Command::CancelWait { wait } => {
            claim::cancel_wait(draft, wait);
            CommandOutcome::Done
        }
        Command::Post(ask) => CommandOutcome::Message(bus::post(draft, ask, request.by, now)?),
        Command::Route { project, message } => {
            done_outcome(router::on_message(draft, &project, &message, now)?)
        }
        Command::PostWith { post, extra } => {
            CommandOutcome::Message(bus::post_with(draft, post, extra, request.by, now)?)
        }
        Command::AddHook(ask) => CommandOutcome::Hook(hook::add(draft, *ask, &request.by, now)?),
        Command::PauseHook { hook, reason } => done_outcome(hook::pause(draft, hook, reason)?),
        Command::ResumeHook { hook } => done_outcome(hook::resume(draft, hook, now)?),
        Command::RemoveHook { hook } => done_outcome(hook::remove(draft, hook)?),
        Command::MarkRead {
            agent,
            channel,
            read,
        } => done_outcome(bus::mark_read(draft, agent, channel, read)?),
        Command::Resume { pid } => {
            limits::resume_after_restart(draft, pid, now);
            CommandOutcome::Done
        }
        Command::Tick => done_outcome(tick::on_timers(draft, now)?),
        Command::ReportExited {
            attempt,
            token,
            exit: how,
        } => done_outcome(attempt::on_program_exit(draft, attempt, token, how, now)?),
        Command::ReportLaunched {
            attempt,
            token,
            sandbox,
            warnings,
        } => done_outcome(attempt::on_launched(
            draft, attempt, token, sandbox, warnings,
        )?),
        Command::ReportIsolationBreach {
            attempt,
            token,
            sign,
        } => done_outcome(isolation_breach::on_breach(
            draft,
            (attempt, token),
            sign,
            now,
        )?),
        Command::ReportPortsTaken {
            attempt,
            token,
            taken,
        } => done_outcome(attempt::on_ports_taken(draft, attempt, token, &taken, now)?),
        Command::ReportAgentEvent {
            attempt,
            token,
            n,
            event: said,
        } => done_outcome(attempt::on_agent_event(
            draft, attempt, token, n, said, now,
        )?),
        Command::ReportSilent {
            attempt,
            token,
            since_ms,
        } => done_outcome(intervention::on_silence(draft, attempt, token, since_ms)?),
        Command::ReportWorkVerdict {
            attempt,
            token,
            verdict,
            findings,
        } => CommandOutcome::Judged {
            landing: attempt::apply_verdict(draft, (attempt, token), verdict, findings, now)?,
        },
        Command::ReportTrial {
            landing,
            outcome: found,
        } => done_outcome(landing::on_trial_result(draft, landing, found, now)?),
        Command::ReportTrunkMove {
            landing,
            fence,
            outcome: found,
        } => done_outcome(landing::on_move_result(draft, landing, fence, found, now)?),
        Command::ReportPushed {
            project,
            remote,
            commit,
            failure: trouble,
        } => done_outcome(landing::remote_sync::on_pushed(
            draft,
            &project,
            (remote, commit),
            trouble,
            now,
        )?),
        Command::ReportCheckout { landing } => {
            landing::on_checkout_changed(draft, landing);
            CommandOutcome::Done
        }
        Command::ReportDiverged {
            project,
            commit,
            found,
        } => done_outcome(landing::remote_sync::on_diverged(
            draft, &project, commit, found, now,
        )?),
        Command::ReportTrunk { project, seen } => done_outcome(landing::trunk_check::on_compared(
            draft, &project, &seen, now,
        )?),
        Command::ReportCollisions { project, found } => done_outcome(
            collision_forecast::apply_scan(draft, &project, &found, now)?,
        ),
        Command::ReportHook {
            firing,
            ended,
            output,
            sandbox_description: shut_in,
        } => done_outcome(hook::on_command_ended(
            draft,
            firing,
            (ended, output),
            shut_in,
        )?),
        Command::ReportPerformed => CommandOutcome::Done,
    })
}

fn done_outcome((): ()) -> CommandOutcome {
    CommandOutcome::Done
}
