//! Commands: every request that can change the board, independent of the interface that it came through. [`decide`]
//! runs a command against the board and returns the commit to store, or a refusal.

mod actor; // the actor behind a command
mod plan; // a mission with all its tasks at once
mod tick; // timers that expired

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft, Due, Rows};
use crate::effect::{Effect, EffectKey};
use crate::event::Recorded;
use crate::fleet::{self, Limits};
use crate::ids::{
    AgentName, ApprovalId, AttemptId, ChannelName, ClaimId, CommitId, FiringId, HookId, LandingId, LaunchId, MessageId,
    MissionId, Now, ProjectName, RequestKey, RuleId, RunnerName, TaskId, TeamName, WaitId,
};
use crate::refusal::Refusal;
use crate::session::{Answer, Ask, Said};
use crate::{
    agent, approval, attempt, bridge, budget, bus, claim, conversation, explore, gates, hook, inbox, isolation,
    landing, launch, lead, mission, planning, policy, project, provider, radar, react, route, runner, schedule, scope,
    steer, task, team,
};

pub use actor::Actor;

/// A task of a planned mission. Its blockers name tasks of the same plan by their index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTask {
    pub task: task::Add,
    /// Indexes of tasks in the same plan.
    pub after: Vec<usize>,
    /// The agent that the task is assigned to.
    pub assign: Option<AgentName>,
}

/// A request to change the board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "command")]
#[allow(clippy::large_enum_variant, reason = "few are under way at once, and none is kept")]
pub enum Command {
    AddProject(project::Add),
    /// Like [`Command::AddProject`], but refused if the project does not exist.
    ChangeProject(project::Add),
    RemoveProject(project::Remove),
    RegisterAgent(agent::Register),
    RemoveAgent {
        agent: AgentName,
    },
    /// An agent goes offline until it registers again.
    LeaveAgent {
        agent: AgentName,
        reason: String,
    },
    SetLimits {
        limits: Limits,
    },
    RegisterRunner(runner::Register),
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
        task: task::Add,
        assign: Option<AgentName>,
        how: task::How,
    },
    /// A lead adds a task to its mission.
    AddChild {
        mission: MissionId,
        task: task::Add,
        assign: Option<AgentName>,
        how: task::How,
    },
    /// A lead takes an unassigned task into its mission.
    AdoptTask {
        task: TaskId,
        mission: MissionId,
    },
    EditTask {
        task: TaskId,
        edit: task::Edit,
    },
    /// A separate task finds out which files the task touches.
    Explore {
        task: TaskId,
    },
    AssignTask {
        task: TaskId,
        to: Option<AgentName>,
        how: task::How,
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
    /// Somebody stops the work on a task. With `pause`, the task does not start again until somebody resumes it.
    StopTask {
        task: TaskId,
        reason: String,
        pause: bool,
    },
    Poll(schedule::Poll),
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
        finding: scope::Finding,
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
        ask: Ask,
    },
    /// An attempt goes on without the answer to its question, with this assumption.
    GoOn {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        approval: ApprovalId,
        assumed: String,
    },
    /// An attempt has read the answer to its question.
    NoteHeard {
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
    LandUnder {
        task: TaskId,
        under: landing::Under,
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
        answer: Answer,
        reach: approval::Reach,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<ApprovalId>,
    },
    /// An item of the inbox is snoozed for `ms`; without `ms` its snooze ends.
    Snooze {
        item: inbox::Item,
        ms: Option<u64>,
    },
    /// A failed task leaves the inbox.
    Dismiss {
        task: TaskId,
    },
    AddRule {
        scope: policy::Scope,
        effect: policy::Effect,
        matter: policy::Matter,
    },
    RemoveRule {
        rule: RuleId,
    },
    SetBudget {
        scope: budget::Scope,
        ceiling: budget::Ceiling,
    },

    StartMission {
        mission: mission::Start,
        tasks: Vec<PlannedTask>,
        adopt: Vec<TaskId>,
    },
    /// An agent shall make a plan for a goal.
    AskPlan(planning::Ask),
    /// A mission with a goal that a lead breaks into tasks.
    AskMission(lead::Ask),
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
    Team(Box<team::Ask>),

    /// A request about a conversation.
    Converse(Box<conversation::Ask>),

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

    Post(bus::Post),
    /// A message is handed to the router. A message that was already routed is ignored.
    Route {
        project: ProjectName,
        message: Box<bus::Message>,
    },
    /// A message with properties that the server determined.
    PostWith {
        post: bus::Post,
        extra: bus::Extra,
    },
    MarkRead {
        agent: AgentName,
        channel: ChannelName,
        read: MessageId,
    },

    AddHook(Box<hook::Add>),
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
        poll: schedule::Poll,
        /// Facts that the engine collected just before the poll.
        #[serde(default)]
        facts: Box<gates::Facts>,
    },
    Resume {
        pid: u32,
    },
    Tick,
    ReportExited {
        attempt: AttemptId,
        token: u64,
        how: attempt::Exited,
    },
    /// An attempt's program runs, in this sandbox.
    ReportLaunched {
        attempt: AttemptId,
        token: u64,
        sandbox: Option<String>,
        warnings: Vec<String>,
    },
    /// A sign that an attempt did not work in its workspace, or not only there.
    ReportDoubted {
        attempt: AttemptId,
        token: u64,
        sign: isolation::Sign,
    },
    /// Other programs listen on these ports of an attempt.
    ReportPortsTaken {
        attempt: AttemptId,
        token: u64,
        taken: Vec<u16>,
    },
    /// A report of an attempt's program, at this position of its journal.
    ReportSaid {
        attempt: AttemptId,
        token: u64,
        n: u64,
        said: Said,
    },
    /// The time for which an attempt's program has been silent.
    ReportSilent {
        attempt: AttemptId,
        token: u64,
        since_ms: Option<u64>,
    },
    /// The state of a bridge's credential.
    ReportBridge(bridge::Standing),
    /// All bridges that exist when a daemon starts.
    ReportBridges {
        all: Vec<bridge::Standing>,
    },
    /// The answers of the programs of a launch's members to the check before the start.
    ReportResolved {
        launch: LaunchId,
        found: Vec<launch::Resolution>,
    },
    ReportJudged {
        attempt: AttemptId,
        token: u64,
        verdict: attempt::Verdict,
        #[serde(default)]
        findings: attempt::Findings,
    },
    ReportTried {
        landing: LandingId,
        found: landing::Tried,
    },
    ReportMoved {
        landing: LandingId,
        fence: u64,
        found: landing::Moved,
    },
    /// The result of pushing the trunk. `trouble` is the reason of a failure.
    ReportPushed {
        project: ProjectName,
        remote: String,
        commit: CommitId,
        trouble: Option<String>,
    },
    /// A checkout that blocked a landing has changed.
    ReportCheckout {
        landing: LandingId,
    },
    /// The trunk cannot be pushed, because the remote has commits that are not here.
    ReportDiverged {
        project: ProjectName,
        commit: CommitId,
        found: landing::join::Diverged,
    },
    /// The differences between the trunk and the board's records.
    ReportTrunk {
        project: ProjectName,
        seen: landing::trunk_check::TrunkSeen,
    },
    /// Collisions between workspaces of a project, as a look at the disk found them.
    ReportCollisions {
        project: ProjectName,
        found: Vec<radar::Found>,
    },
    /// A hook's command has ended.
    ReportHook {
        firing: FiringId,
        ended: hook::Ended,
        output: String,
        shut_in: Option<String>,
    },
    /// An effect was performed and needs no other report.
    ReportPerformed,
}

impl Command {
    /// Returns whether only Regatta itself may send the command. No interface accepts such a command.
    pub fn is_internal(&self) -> bool {
        matches!(
            self,
            Command::PollSupervised { .. }
                | Command::Resume { .. }
                | Command::Tick
                | Command::ReportExited { .. }
                | Command::ReportLaunched { .. }
                | Command::ReportDoubted { .. }
                | Command::ReportPortsTaken { .. }
                | Command::ReportSaid { .. }
                | Command::ReportSilent { .. }
                | Command::ReportBridge(_)
                | Command::ReportBridges { .. }
                | Command::ReportResolved { .. }
                | Command::ReportJudged { .. }
                | Command::ReportTried { .. }
                | Command::ReportMoved { .. }
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
pub enum Outcome {
    #[default]
    Done,
    Project(ProjectName),
    Agent(AgentName),
    Task(TaskId),
    Mission {
        mission: MissionId,
        tasks: Vec<TaskId>,
    },
    Polled(Option<schedule::Grant>),
    Claim(claim::Acquired),
    Renewed {
        ttl_ms: u64,
    },
    Message(MessageId),
    Hook(HookId),
    Queued(landing::Place),
    Rule(RuleId),
    Asked(ApprovalId),
    Decided(Vec<ApprovalId>),
    Told(steer::Heard),
    Runner {
        session: u64,
    },
    Judged {
        landing: Option<LandingId>,
    },
    Team(TeamName),
    Heard(conversation::Heard),
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
    pub outcome: Outcome,
}

/// Decides a command against the board, without input, output, a clock or randomness.
pub fn decide(board: &Board, request: &Request, now: Now) -> Result<Commit, Refusal> {
    decide_owned(board, request.clone(), now)
}

/// Like [`decide`], but takes the request by value to avoid a copy.
pub fn decide_owned(board: &Board, request: Request, now: Now) -> Result<Commit, Refusal> {
    // A request with a known key gets the same answer, and nothing happens again (J9).
    if let Some(answer) = request.key.as_ref().and_then(|it| board.answers.get(it)) {
        if answer.command != fingerprint(&request) {
            return Err(Refusal::KeyReused { key: answer.key.clone() });
        }
        return Ok(Commit {
            board: board.clone(),
            events: vec![],
            rows: Rows::new(),
            effects: vec![],
            outcome: answer.outcome.clone(),
        });
    }
    let known_as = request.key.as_ref().map(|key| (key.clone(), fingerprint(&request)));
    let by = request.by.clone();
    let mut draft = Draft::of(board, now).asked_by(by.clone());
    let outcome = run(&mut draft, request, now)?;
    if let Some((key, command)) = known_as
        && draft.has_recorded()
    {
        fleet::remember(&mut draft, key, command, outcome.clone(), now);
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
            events.push(Recorded { revision, now, by: by.clone(), event });
        }
    }
    let (board, rows) = draft.into_parts();
    Ok(Commit { board, events, rows, effects, outcome })
}

/// Returns a number for a request and its actor (FNV-1a over the text), which is good enough to detect a key that
/// is used for two requests.
fn fingerprint(request: &Request) -> u64 {
    let text = format!("{} {:?}", request.by, request.command);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn run(draft: &mut Draft, request: Request, now: Now) -> Result<Outcome, Refusal> {
    Ok(match request.command {
        Command::AddProject(ask) => Outcome::Project(project::add(draft, ask, now)?),
        Command::ChangeProject(ask) => Outcome::Project(project::change(draft, ask, now)?),
        Command::RemoveProject(ask) => done(project::remove(draft, &ask.name)?),
        Command::RegisterAgent(ask) => Outcome::Agent(agent::register(draft, ask, now)?),
        Command::RemoveAgent { agent } => done(agent::remove(draft, &agent)?),
        Command::LeaveAgent { agent, reason } => done(agent::leave(draft, &agent, &reason, now)?),
        Command::SetLimits { limits } => done(fleet::limit(draft, limits)?),
        Command::RegisterRunner(ask) => Outcome::Runner { session: runner::register(draft, ask, now)? },
        Command::BeatRunner { runner, session } => done(runner::beat(draft, &runner, session, now)?),
        Command::LeaveRunner { runner, session } => done(runner::leave(draft, &runner, session)?),
        Command::DrainRunner { runner, reason } => done(runner::drain(draft, &runner, &reason)?),
        Command::RemoveRunner { runner } => done(runner::remove(draft, &runner)?),
        Command::AddChild { mission, task, assign, how } => {
            let id = lead::add_child(draft, mission, task, now)?;
            if assign.is_some() {
                task::assign(draft, id, assign, how, now)?;
            }
            Outcome::Task(id)
        }
        Command::AddTask { task, assign, how } => {
            let id = task::add(draft, task, None, now)?;
            if assign.is_some() {
                task::assign(draft, id, assign, how, now)?;
            }
            Outcome::Task(id)
        }
        Command::AdoptTask { task, mission } => done(lead::adopt_child(draft, mission, task)?),
        Command::EditTask { task, edit } => done(task::edit(draft, task, edit)?),
        Command::Explore { task } => Outcome::Task(explore::begin(draft, task, now)?),
        Command::AssignTask { task, to, how } => {
            done(task::assign(draft, task, to, how, now).map_err(|it| it.told_to(&request.by))?)
        }
        Command::AnswerOffer { task, agent, accept } => done(task::answer_offer(draft, task, &agent, accept)?),
        Command::CancelTask { task, reason } => done(task::cancel(draft, task, &reason)?),
        Command::StopTask { task, reason, pause } => {
            if pause {
                task::edit(
                    draft,
                    task,
                    task::Edit { paused: Some(task::Pause::Because(reason.clone())), ..task::Edit::default() },
                )?;
                landing::stop(draft, task, &reason, now)?;
            }
            done(attempt::stop_task(draft, task, &reason)?)
        }
        Command::Poll(ask) => Outcome::Polled(schedule::poll(draft, &ask, None, now)?),
        Command::PollSupervised { poll, facts } => Outcome::Polled(schedule::poll(draft, &poll, Some(&facts), now)?),
        Command::Progress { task, attempt, token, text } => {
            done(task::progress(draft, task, attempt, token, text, now)?)
        }
        Command::ReportEscape { task, attempt, token, finding } => {
            done(scope::report(draft, (task, attempt, token), finding, now)?)
        }
        Command::Finish { task, attempt, token, output, not_needed, learnings } => {
            // A supervised attempt is done when its program ends. Its report is stored until then.
            let is_supervised = attempt::speaks_for(draft.board(), task, attempt, token)?.supervised;
            approval::check_finish(draft.board(), attempt)?;
            let said = attempt::FinishReport { output: output.clone(), not_needed, learnings };
            if is_supervised {
                return Ok(done(attempt::note(draft, attempt, token, said)?));
            }
            if said.is_result() {
                attempt::note(draft, attempt, token, said)?;
            }
            done(task::finish(draft, task, attempt, token, output)?)
        }
        Command::Ask { task, attempt, token, ask } => {
            attempt::speaks_for(draft.board(), task, attempt, token)?;
            Outcome::Asked(approval::request(draft, attempt, ask, now)?)
        }
        Command::GoOn { task, attempt, token, approval, assumed } => {
            attempt::speaks_for(draft.board(), task, attempt, token)?;
            done(approval::go_on(draft, attempt, approval, assumed)?)
        }
        Command::NoteHeard { attempt, approval } => {
            approval::note_heard(draft, attempt, approval);
            Outcome::Done
        }
        Command::GiveUp { task, attempt, token, reason } => done(task::give_up(draft, task, attempt, token, reason)?),
        Command::Land { task, first } => Outcome::Queued(landing::land(draft, task, first, &request.by, now)?),
        Command::LandUnder { task, under } => {
            Outcome::Queued(landing::land_under(draft, task, under, &request.by, now)?)
        }
        Command::Revise { task, text } => done(landing::revise(draft, task, text)?),
        Command::Undo { done } => Outcome::Queued(landing::undo(draft, &done, &request.by, now)?),
        Command::HoldQueue { project, reason } => done(landing::hold(draft, &project, reason, &request.by, now)?),
        Command::AcceptTrunk { project, tip } => {
            done(landing::trunk_check::accept(draft, &project, tip, request.by.to_string())?)
        }
        Command::ReleaseQueue { project } => done(landing::release(draft, &project)?),
        Command::Tell { task, text } => Outcome::Told(steer::tell(draft, task, text)?),
        Command::PauseTask { task, reason } => done(steer::pause(draft, task, &reason)?),
        Command::ResumeTask { task } => done(steer::resume(draft, task)?),
        Command::RetryTask { task, failed } => Outcome::Task(steer::retry(draft, task, failed.as_deref(), now)?),
        Command::ResumeAgent { agent } => done(provider::resume(draft, &agent)?),
        Command::Decide { approval, answer, reach, also } => {
            let verdict = approval::Verdict { answer, reach, by: request.by };
            Outcome::Decided(approval::decide_all(draft, approval, &also, &verdict, now)?)
        }
        Command::Snooze { item, ms } => done(inbox::snooze(draft, item, ms, now)?),
        Command::Dismiss { task } => done(inbox::dismiss(draft, task)?),
        Command::AddRule { scope, effect, matter } => Outcome::Rule(policy::add(draft, scope, effect, matter)?),
        Command::RemoveRule { rule } => done(policy::remove(draft, rule)?),
        Command::SetBudget { scope, ceiling } => done(budget::set(draft, scope, ceiling)?),
        Command::StartMission { mission, tasks, adopt } => plan::start_mission(draft, mission, tasks, adopt, now)?,
        Command::AskPlan(ask) => {
            let (mission, task) = planning::ask(draft, ask, now)?;
            Outcome::Mission { mission, tasks: vec![task] }
        }
        Command::AskMission(ask) => Outcome::Mission { mission: lead::ask(draft, ask, now)?, tasks: vec![] },
        Command::FinishMission { task, attempt, token, report } => {
            done(lead::finish(draft, (task, attempt, token), report)?)
        }
        Command::CancelMission { mission, reason } => done(mission::cancel(draft, mission, &reason, now)?),
        Command::HandOverMission { mission, to } => done(lead::hand_over(draft, mission, to, now)?),
        Command::DrainMission { mission } => done(mission::drain(draft, mission)?),
        Command::ResumeMission { mission } => done(mission::resume(draft, mission, now)?),
        Command::StopMission { mission, reason } => {
            mission::drain(draft, mission)?;
            let tasks: Vec<TaskId> = draft.board().open_tasks_of(mission).map(|it| it.1).collect();
            for task in tasks {
                attempt::stop_task(draft, task, &reason)?;
                landing::stop(draft, task, &reason, now)?;
            }
            Outcome::Done
        }
        Command::Team(ask) => team::run(draft, *ask, now)?,
        Command::Converse(ask) => conversation::run(draft, *ask, now)?,
        Command::ReportBridge(standing) => bridge::report(draft, standing, now),
        Command::ReportBridges { all } => bridge::report_all(draft, all, now),
        Command::ReportResolved { launch, found } => done(launch::resolved(draft, launch, found, now)?),
        Command::Acquire(ask) => Outcome::Claim(claim::acquire(draft, ask, now)?),
        Command::Renew { claim, token } => Outcome::Renewed { ttl_ms: claim::renew(draft, claim, token, now)? },
        Command::Release { claim, token } => done(claim::release(draft, claim, token)?),
        Command::CancelWait { wait } => {
            claim::cancel_wait(draft, wait);
            Outcome::Done
        }
        Command::Post(ask) => Outcome::Message(bus::post(draft, ask, request.by, now)?),
        Command::Route { project, message } => done(route::intake(draft, &project, &message, now)?),
        Command::PostWith { post, extra } => Outcome::Message(bus::post_with(draft, post, extra, request.by, now)?),
        Command::AddHook(ask) => Outcome::Hook(hook::add(draft, *ask, &request.by, now)?),
        Command::PauseHook { hook, reason } => done(hook::pause(draft, hook, reason)?),
        Command::ResumeHook { hook } => done(hook::resume(draft, hook, now)?),
        Command::RemoveHook { hook } => done(hook::remove(draft, hook)?),
        Command::MarkRead { agent, channel, read } => done(bus::mark_read(draft, agent, channel, read)?),
        Command::Resume { pid } => {
            fleet::resume(draft, pid, now);
            Outcome::Done
        }
        Command::Tick => done(tick::tick(draft, now)?),
        Command::ReportExited { attempt, token, how } => done(attempt::exited(draft, attempt, token, how, now)?),
        Command::ReportLaunched { attempt, token, sandbox, warnings } => {
            done(attempt::launched(draft, attempt, token, sandbox, warnings)?)
        }
        Command::ReportDoubted { attempt, token, sign } => {
            done(isolation::doubted(draft, (attempt, token), sign, now)?)
        }
        Command::ReportPortsTaken { attempt, token, taken } => {
            done(attempt::ports_taken(draft, attempt, token, &taken, now)?)
        }
        Command::ReportSaid { attempt, token, n, said } => done(attempt::heard(draft, attempt, token, n, said, now)?),
        Command::ReportSilent { attempt, token, since_ms } => done(steer::silent(draft, attempt, token, since_ms)?),
        Command::ReportJudged { attempt, token, verdict, findings } => {
            Outcome::Judged { landing: attempt::judged(draft, (attempt, token), verdict, findings, now)? }
        }
        Command::ReportTried { landing, found } => done(landing::tried(draft, landing, found, now)?),
        Command::ReportMoved { landing, fence, found } => done(landing::moved(draft, landing, fence, found, now)?),
        Command::ReportPushed { project, remote, commit, trouble } => {
            done(landing::join::pushed(draft, &project, (remote, commit), trouble, now)?)
        }
        Command::ReportCheckout { landing } => {
            landing::look_again(draft, landing);
            Outcome::Done
        }
        Command::ReportDiverged { project, commit, found } => {
            done(landing::join::diverged(draft, &project, commit, found, now)?)
        }
        Command::ReportTrunk { project, seen } => done(landing::trunk_check::compared(draft, &project, &seen, now)?),
        Command::ReportCollisions { project, found } => done(radar::seen(draft, &project, &found, now)?),
        Command::ReportHook { firing, ended, output, shut_in } => {
            done(hook::ended(draft, firing, (ended, output), shut_in)?)
        }
        Command::ReportPerformed => Outcome::Done,
    })
}

fn done((): ()) -> Outcome {
    Outcome::Done
}
