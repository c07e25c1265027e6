//! Inputs of the verbs. Unknown fields are an error, so that a misspelled field is never silently
//! ignored.

use regatta_core::agent::{Profile, Role};
use regatta_core::agent_protocol::{RequestAnswer, ToolKind};
use regatta_core::approval::AnswerScope;
use regatta_core::claim::ClaimMode;
use regatta_core::ids::{
    AgentName, ApprovalId, AttemptId, BranchName, ClaimId, MessageId, ProjectName, RuleId, TaskId,
    TeamName,
};
use regatta_core::mission;
use regatta_core::pattern::{PathPattern, Uri};
use regatta_core::project;
use regatta_core::task::{AssignMode, EditTask, Expects, IssueType, TaskStatus, Validation};
use regatta_core::{budget, policy};
use serde::{Deserialize, Serialize};

use crate::verb::TokenScope;

mod messages; // the bus and the hooks

pub use messages::*;

macro_rules! inputs {
    ($($(#[$doc:meta])* $name:ident { $($(#[$meta:meta])* $field:ident : $type:ty),* $(,)? })*) => {$(
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        $(#[$doc])*
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[$meta])* pub $field: $type),* }
    )*};
}
pub(crate) use inputs;

inputs! {
    EmptyInput {}
    /// The id or name of one thing, as a person types it: `T21`, `A5`, `M3`, or an agent's name.
    IdInput { id: String }
    /// Selects the change to show.
    DiffInput {
        id: String,
        /// Only what changed since the work was last sent back.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] since_review: bool,
    }
    /// Selects the graph: a mission, or a task with its neighbours, as a person types the id.
    /// Without an id, all tasks of one project or of all projects.
    GraphInput { #[serde(default)] id: Option<String>, #[serde(default)] project: Option<ProjectName> }
    AgentNameInput { name: AgentName }
    ProjectNameInput { name: ProjectName }
    AgentClose {
        name: AgentName,
        /// The reason, shown to everybody who waits for the agent.
        #[serde(default)] reason: String,
    }
    FileInput { path: String }
    /// One project; all projects if omitted.
    ProjectFilter { #[serde(default)] project: Option<ProjectName> }
    /// The machine's limits; omitted limits stay as they are.
    #[derive(Default)]
    LimitsSet {
        #[serde(default)] max_attempts: Option<u32>,
        #[serde(default)] attempt_timeout_ms: Option<u64>,
        #[serde(default)] lead_timeout_ms: Option<u64>,
        #[serde(default)] startup_ms: Option<u64>,
        #[serde(default)] silence_ms: Option<u64>,
        #[serde(default)] escalate_ms: Option<u64>,
        #[serde(default)] retry_ms: Option<u64>,
        #[serde(default)] retry_most_ms: Option<u64>,
        /// Time for stopped programs to end by themselves.
        #[serde(default)] shutdown_ms: Option<u64>,
        /// Mebibytes of memory that must be free for each attempt that starts; 0 turns the check
        /// off.
        #[serde(default)] attempt_memory_mb: Option<u64>,
        #[serde(default)] attempt_disk_mb: Option<u64>,
    }
    LandInput {
        id: String,
        /// Ahead of all landings that are not yet in a trial.
        #[serde(default)] first: bool,
        /// A claim on the trunk that the caller holds; the work lands under it at once. `id` may
        /// then be an attempt's id or the path of its workspace.
        #[serde(default)] claim: Option<ClaimId>,
        /// The token of that claim.
        #[serde(default)] token: Option<u64>,
    }
    QueueHold {
        #[serde(default)] project: Option<ProjectName>,
        /// The reason, shown to everybody who waits.
        #[serde(default)] reason: String,
    }
    /// One thing, with a text about it.
    IdWithText { id: String, #[serde(default)] text: String }
    /// An answer to an inbox item.
    InboxAnswer {
        id: ApprovalId,
        answer: RequestAnswer,
        #[serde(default)] reach: AnswerScope,
        /// Also answer all other requests that are identical, of any agent.
        #[serde(default)] alike: bool,
    }
    /// An inbox item, and the time for which it is hidden; without a time it is shown again.
    InboxSnooze { id: regatta_core::inbox::InboxItem, #[serde(default)] ms: Option<u64> }
    PolicyAdd {
        #[serde(default = "default_rule_scope")] scope: policy::RuleScope,
        effect: policy::RuleEffect,
        #[serde(default)] matter: policy::RuleSubject,
    }
    RuleIdInput { rule: RuleId }
    /// Number of days before today that are included.
    BudgetListInput { #[serde(default)] days: u32 }
    CostQuery {
        /// Number of days before today that are included; days are in UTC.
        #[serde(default)] days: u32,
        /// The dimension to sum by; all dimensions if omitted.
        #[serde(default)] by: Option<regatta_core::cost::CostGrouping>,
    }
    /// An empty ceiling removes the budget.
    BudgetSet { scope: budget::BudgetScope, #[serde(default)] ceiling: budget::Ceiling }
    TranscriptQuery {
        attempt: AttemptId,
        /// Number of the journal record to start at.
        #[serde(default)] from: u64,
        #[serde(default = "default_fifty")] limit: usize,
    }
    AttemptChecksInput { attempt: AttemptId }
    RuleTest {
        #[serde(default)] project: Option<ProjectName>,
        /// A task that supplies the type and the files.
        #[serde(default)] task: Option<TaskId>,
        #[serde(default)] issue_type: IssueType,
        /// The manifest for rules before a start; the changed files for rules before a landing.
        #[serde(default)] files: Vec<PathPattern>,
        /// A line that is added to those files, for rules about contents.
        #[serde(default)] line: Option<String>,
    }
    DownInput { #[serde(default)] keep_agents: bool }
    TokenAdd {
        /// Name of the holder; the audit log shows it for each write.
        name: String,
        scope: TokenScope,
        /// Lifetime of the token; if omitted, it is valid until it is removed.
        #[serde(default)] expires_ms: Option<u64>,
    }
    TokenNameInput { name: String }
    /// Lines of the audit log: the newest, or with `after` the oldest after that one.
    AuditQuery {
        #[serde(default)] after: Option<u64>,
        #[serde(default = "default_fifty")] limit: usize,
        /// Only writes in this name or with this token.
        #[serde(default)] by: Option<String>,
        #[serde(default)] verb: Option<String>,
        /// Only writes about this thing.
        #[serde(default)] about: Option<String>,
    }

    ProjectAdd {
        /// A directory in the repository.
        path: String,
        #[serde(default)] name: Option<ProjectName>,
        #[serde(default)] trunk: Option<BranchName>,
        #[serde(default)] validation: Vec<String>,
        #[serde(default)] validation_timeout_ms: Option<u64>,
        #[serde(default)] settings: project::ProjectSettings,
    }
    AgentAdd {
        name: AgentName,
        runtime: RuntimeName,
        /// The program and its arguments, for the command runtime.
        #[serde(default)] command: Vec<String>,
        #[serde(default)] role: Role,
        #[serde(default)] provider: Option<String>,
        #[serde(default)] description: String,
        #[serde(default = "default_one")] max_tasks: u32,
        #[serde(default)] profile: Profile,
        /// Register the agent although its program is not installed where the daemon runs.
        #[serde(default)] anyway: bool,
    }

    TaskAdd {
        #[serde(default)] project: Option<ProjectName>,
        subject: String,
        #[serde(default)] description: String,
        #[serde(default)] issue_type: IssueType,
        #[serde(default)] files: Vec<PathPattern>,
        #[serde(default)] validation: Validation,
        #[serde(default)] blocked_by: Vec<TaskId>,
        #[serde(default = "regatta_core::task::default_priority")] priority: u8,
        #[serde(default)] expects: Expects,
        #[serde(default)] effort: Option<String>,
        #[serde(default)] provider: Option<String>,
        /// The scripted agent's steps.
        #[serde(default)] script: Option<serde_json::Value>,
        /// A command that runs after its checks have passed and before its work is submitted. An
        /// exit code other than 0 fails the task.
        #[serde(default)] ratchet: Option<Vec<String>>,
        #[serde(default)] alias: Option<String>,
        #[serde(default)] backlog: bool,
        #[serde(default)] assign: Option<AgentName>,
        #[serde(default)] how: AssignMode,
    }
    TaskList {
        #[serde(default)] project: Option<ProjectName>,
        #[serde(default)] mission: Option<String>,
        /// Statuses to list; all open ones if empty.
        #[serde(default)] status: Vec<TaskStatus>,
        /// Also ended tasks.
        #[serde(default)] all: bool,
        #[serde(default)] limit: usize,
    }
    TaskSet { task: TaskId, edit: EditTask, #[serde(default)] script: Option<serde_json::Value> }
    TaskAssign { task: TaskId, #[serde(default)] to: Option<AgentName>, #[serde(default)] how: AssignMode }
    OfferReply { task: TaskId, agent: AgentName }
    TaskCancel { task: TaskId, #[serde(default)] reason: Option<String> }
    TaskPoll {
        agent: AgentName,
        #[serde(default)] project: Option<ProjectName>,
        #[serde(default)] wait_ms: u64,
        #[serde(default)] lease_ms: Option<u64>,
        /// Creates a workspace for the attempt. Without a workspace the attempt can only report,
        /// and a poll costs next to nothing; a task that expects a change gets a workspace anyway.
        #[serde(default = "default_true")] workspace: bool,
        /// A person does the work, in the name of an agent whose program Regatta would otherwise
        /// run.
        #[serde(default)] by_hand: bool,
    }
    TaskProgress { task: TaskId, attempt: AttemptId, token: u64, text: String }
    ScopeReport {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        /// The work that is needed there, and the reason.
        finding: String,
        #[serde(default)] suggested_files: Vec<String>,
    }
    TaskFinish {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        #[serde(default)] output: Option<String>,
        /// The task is done and needs no change.
        #[serde(default)] not_needed: bool,
        /// Facts that help later tasks of the project.
        #[serde(default)] learnings: Vec<String>,
    }
    TaskFail { task: TaskId, attempt: AttemptId, token: u64, #[serde(default)] reason: Option<String> }

    /// A question, or a permission request if `permission` is given.
    AttemptAsk {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        #[serde(default)] question: String,
        #[serde(default)] choices: Vec<String>,
        #[serde(default)] permission: Option<RequestedAction>,
        /// Continue without waiting, with this assumption.
        #[serde(default)] assume: Option<String>,
        #[serde(default)] wait_ms: u64,
    }
    /// An action that an agent needs a permission for.
    RequestedAction {
        title: String,
        #[serde(default)] kind: ToolKind,
        #[serde(default)] command: Option<String>,
        #[serde(default)] paths: Vec<String>,
        #[serde(default)] urls: Vec<String>,
    }
    AttemptAnswer {
        attempt: AttemptId,
        id: ApprovalId,
        /// Continue without an answer, with this assumption.
        #[serde(default)] assume: Option<String>,
        #[serde(default)] wait_ms: u64,
    }
    AttemptIdInput { attempt: AttemptId }

    MissionStart {
        #[serde(default)] project: Option<ProjectName>,
        title: String,
        #[serde(default)] agents: Vec<AgentName>,
        /// A team whose members work on the tasks, in addition to the agents that are named.
        #[serde(default, skip_serializing_if = "Option::is_none")] team: Option<TeamName>,
        /// Budget of the mission; omitted limits are unlimited.
        #[serde(default)] budget: budget::Ceiling,
        #[serde(default = "default_five")] max_workers: u32,
        #[serde(default)] mode: mission::StartMode,
        /// Run tasks at the same time even if their manifests overlap; the landing queue merges
        /// them.
        #[serde(default)] isolate: bool,
        /// Land the work of each wave as one commit; needs waves.
        #[serde(default)] wave_commits: bool,
        #[serde(default)] tasks: Vec<PlannedTask>,
        /// Tasks that are already on the board.
        #[serde(default)] adopt: Vec<TaskId>,
    }
    /// A mission with a goal, for a lead to break into tasks.
    MissionAsk {
        #[serde(default)] project: Option<ProjectName>,
        goal: String,
        /// Agent that leads; if omitted, as the project's settings say.
        #[serde(default)] agent: Option<AgentName>,
        /// An existing task that the mission is about.
        #[serde(default)] task: Option<TaskId>,
    }
    MissionHandover {
        id: String,
        /// Agent that leads from now on; the same agent if omitted.
        #[serde(default)] to: Option<AgentName>,
    }
    /// A mission as it stood at a revision; at its last revision if omitted.
    MissionReplay { id: String, #[serde(default)] at: Option<u64> }
    MissionCompare { ids: Vec<regatta_core::ids::MissionId> }
    /// The final report of a lead on its mission.
    MissionFinish { task: TaskId, attempt: AttemptId, token: u64, report: String }
    MissionAdopt {
        task: TaskId,
        /// The mission; if omitted and the caller is a lead, the caller's own mission.
        #[serde(default)] mission: Option<String>,
    }
    RouteInput {
        message: MessageId,
        /// Project whose router is used; if omitted, the project of the message's channel.
        #[serde(default)] project: Option<ProjectName>,
    }
    GuideQuery { #[serde(default)] name: Option<String> }
    PlannedTask {
        task: PlannedTaskFields,
        /// Positions in the plan of the tasks that must be completed first, counting from 0.
        #[serde(default)] after: Vec<usize>,
    }
    /// Asks an agent for a plan of a goal.
    PlanAsk {
        #[serde(default)] project: Option<ProjectName>,
        goal: String,
        /// Agent that plans; if omitted, the first of the agents that would do the work.
        #[serde(default)] planner: Option<AgentName>,
        /// Why the previous plan could not be used.
        #[serde(default)] wrong: String,
        /// The steps of a scripted planner.
        #[serde(default)] script: Option<serde_json::Value>,
    }
    PlanShow { task: TaskId }
    /// A plan to show as it would run; nothing is started.
    PlanDraw {
        #[serde(default)] project: Option<ProjectName>,
        title: String,
        tasks: Vec<PlannedTask>,
        /// Agents that may work on the plan; if omitted, as the project's settings say.
        #[serde(default)] agents: Vec<AgentName>,
    }
    StopInput {
        #[serde(default)] id: Option<String>,
        /// Let running work finish, and start nothing new.
        #[serde(default)] drain: bool,
        /// Start the task again at once, in a new attempt.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] again: bool,
    }

    ClaimAcquire {
        uris: Vec<Uri>,
        agent: AgentName,
        #[serde(default)] mode: ClaimMode,
        ttl_ms: u64,
        #[serde(default)] wait_ms: u64,
        #[serde(default)] memo: String,
    }
    HeldClaimInput { claim: ClaimId, token: u64 }
    UrisInput { uris: Vec<Uri> }
}

/// The name of a runtime: the way in which Regatta drives an agent's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RuntimeName {
    Scripted,
    Command,
    /// The Agent Client Protocol.
    Acp,
    /// Claude Code's own stream.
    Claude,
    /// `codex exec`, one process for one prompt.
    Codex,
    /// `codex app-server`, one process for a session.
    CodexServer,
    /// Regatta starts no program; an outside agent polls in this agent's name.
    Outside,
}

fn default_rule_scope() -> policy::RuleScope {
    policy::RuleScope::All
}

/// A planned task: the fields of [`TaskAdd`] without the project, because the mission has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlannedTaskFields {
    pub subject: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub issue_type: IssueType,
    #[serde(default)]
    pub files: Vec<PathPattern>,
    #[serde(default)]
    pub validation: Validation,
    #[serde(default = "regatta_core::task::default_priority")]
    pub priority: u8,
    #[serde(default)]
    pub expects: Expects,
    #[serde(default)]
    pub effort: Option<String>,
    #[serde(default)]
    pub provider: Option<String>,
    #[serde(default)]
    pub script: Option<serde_json::Value>,
    #[serde(default)]
    pub ratchet: Option<Vec<String>>,
    #[serde(default)]
    pub alias: Option<String>,
    #[serde(default)]
    pub assign: Option<AgentName>,
}

/// A runner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunnerNameInput {
    pub name: regatta_core::ids::RunnerName,
}

/// A runner, with the session that it received when it registered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunnerSession {
    pub runner: regatta_core::ids::RunnerName,
    pub session: u64,
}

/// Asks for the open calls to a runner that come after the last one it has received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunnerCalls {
    pub runner: regatta_core::ids::RunnerName,
    pub session: u64,
    #[serde(default)]
    pub after: u64,
    #[serde(default = "default_wait_ms")]
    pub wait_ms: u64,
}

/// The answer to a call: its result, or the error that prevented it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunnerCallResult {
    pub runner: regatta_core::ids::RunnerName,
    pub session: u64,
    pub call: u64,
    #[serde(default)]
    pub gave: serde_json::Value,
    #[serde(default)]
    pub error: Option<String>,
    /// The faulty part of the set-up, if a person must change something before the call can
    /// succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<regatta_core::attempt::SetupFault>,
}

/// Output of a program at a runner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunnerOutput {
    pub runner: regatta_core::ids::RunnerName,
    pub session: u64,
    pub attempt: AttemptId,
    pub words: serde_json::Value,
}

/// Journal records of a program at a runner. Without records it only asks how much has been copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JournalCopy {
    pub runner: regatta_core::ids::RunnerName,
    pub session: u64,
    pub attempt: AttemptId,
    #[serde(default)]
    pub heading: Option<String>,
    #[serde(default)]
    pub records: Vec<serde_json::Value>,
}

fn default_true() -> bool {
    true
}
fn default_one() -> u32 {
    1
}
fn default_five() -> u32 {
    5
}
fn default_fifty() -> usize {
    50
}
fn default_wait_ms() -> u64 {
    30_000
}
