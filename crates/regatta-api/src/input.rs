//! The inputs of the API's verbs, such as `task.add`. Unknown fields cause an error, so that a
//! misspelled field is never silently ignored.

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

mod messages; // messages, hooks, conversations, bridges

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

/// The number of entries that a caller gets who asks for neither a number of entries nor a page.
pub const DEFAULT_LIST_LIMIT: usize = 50;

inputs! {
    EmptyInput {}
    /// Names one thing by its id or name, as a person types it: `T21`, `A5`, `M3`, or an agent's
    /// name.
    IdInput { id: String }
    /// Selects a change of files (diff) to show, by the id of a task or attempt.
    DiffInput {
        id: String,
        /// Show only the changes since the work was last sent back to its agent.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        since_review: bool,
    }
    /// Selects the tasks of a dependency graph by an id: all tasks of a mission, or one task with
    /// its neighbours. Without an id, all tasks of one project or of all projects.
    GraphInput { #[serde(default)] id: Option<String>, #[serde(default)] project: Option<ProjectName> }
    AgentNameInput { name: AgentName }
    ProjectNameInput { name: ProjectName }
    AgentClose {
        name: AgentName,
        /// The reason for closing the agent, which is shown to everybody who waits for the agent.
        #[serde(default)]
        reason: String,
    }
    FileInput { path: String }
    /// Limits the answer to one project. If omitted, the answer covers all projects.
    ProjectFilter { #[serde(default)] project: Option<ProjectName> }
    /// Changes the limits for attempts on the daemon's machine, such as their number and duration.
    /// Omitted limits are not changed.
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
        /// The time in milliseconds that programs may take to end by themselves when they are
        /// stopped.
        #[serde(default)]
        shutdown_ms: Option<u64>,
        /// The memory in MiB that must be free for each attempt that starts; 0 turns the check off.
        #[serde(default)]
        attempt_memory_mb: Option<u64>,
        #[serde(default)] attempt_disk_mb: Option<u64>,
    }
    LandInput {
        id: String,
        /// Put the work before all other work in the queue, except work whose merge is already
        /// being tested.
        #[serde(default)]
        first: bool,
        /// A claim on the project's trunk (the branch on which work lands) that the caller holds.
        /// With such a claim, the work lands at once, and `id` may also be an attempt's id or the
        /// path of the attempt's workspace.
        #[serde(default)]
        claim: Option<ClaimId>,
        /// The fencing token that was returned when the claim in `claim` was acquired.
        #[serde(default)]
        token: Option<u64>,
    }
    QueueHold {
        #[serde(default)] project: Option<ProjectName>,
        /// The reason for holding the landing queue (finished work that waits to be merged).
        /// Everybody whose work waits in the queue sees this reason.
        #[serde(default)]
        reason: String,
    }
    /// Names one thing by its id, with a text about the thing, such as a reason.
    IdWithText { id: String, #[serde(default)] text: String }
    /// A person's answer to an agent's request in the inbox.
    InboxAnswer {
        id: ApprovalId,
        answer: RequestAnswer,
        #[serde(default)] reach: AnswerScope,
        /// Also give this answer to all other open requests that are identical, even if other
        /// agents made them.
        #[serde(default)]
        alike: bool,
    }
    /// Hides an inbox item for `ms` milliseconds. If `ms` is omitted, shows a hidden item again.
    InboxSnooze { id: regatta_core::inbox::InboxItem, #[serde(default)] ms: Option<u64> }
    PolicyAdd {
        #[serde(default = "default_rule_scope")] scope: policy::RuleScope,
        effect: policy::RuleEffect,
        #[serde(default)] matter: policy::RuleSubject,
    }
    RuleIdInput { rule: RuleId }
    /// Selects the days for which spending is listed: today, and this number of days before today.
    BudgetListInput { #[serde(default)] days: u32 }
    CostQuery {
        /// Number of days before today whose cost is included. A day begins at midnight UTC.
        #[serde(default)]
        days: u32,
        /// The property by which the cost is broken down, such as the agent or the model. If
        /// omitted, the cost is broken down by each property.
        #[serde(default)]
        by: Option<crate::cost_tables::CostGrouping>,
    }
    /// Sets the ceiling of a budget. An empty ceiling removes the budget.
    BudgetSet { scope: budget::BudgetScope, #[serde(default)] ceiling: budget::Ceiling }
    TranscriptQuery {
        attempt: AttemptId,
        /// The number of the journal record (a record of the program's input and output) at which
        /// the transcript starts.
        #[serde(default)]
        from: u64,
        #[serde(default = "default_fifty")] limit: usize,
    }
    AttemptChecksInput { attempt: AttemptId }
    RuleTest {
        #[serde(default)] project: Option<ProjectName>,
        /// A task whose type and files are used to test the rule.
        #[serde(default)]
        task: Option<TaskId>,
        #[serde(default)] issue_type: IssueType,
        /// The files to test the rule with. For a rule about starts, these are the files that a
        /// task may change. For a rule about landings (merges of finished work), these are the
        /// changed files.
        #[serde(default)]
        files: Vec<PathPattern>,
        /// For rules about the content of changes: a line that the tested change is assumed to add
        /// to the files in `files`.
        #[serde(default)]
        line: Option<String>,
    }
    DownInput { #[serde(default)] keep_agents: bool }
    TokenAdd {
        /// The name of the person or program that will use the token. The audit log shows this name
        /// for each write.
        name: String,
        scope: TokenScope,
        /// The time in milliseconds for which the token is valid. If omitted, the token is valid
        /// until it is removed.
        #[serde(default)]
        expires_ms: Option<u64>,
    }
    TokenNameInput { name: String }
    /// Selects lines of the audit log: the newest lines or, with `after`, the oldest lines after
    /// the line with that number.
    AuditQuery {
        #[serde(default)] after: Option<u64>,
        /// The largest number of lines. If omitted, 50, or all lines if the caller reads pages.
        #[serde(default)]
        limit: Option<usize>,
        /// List only writes that were made under the name of this person or agent, or with the
        /// access token that has this name.
        #[serde(default)]
        by: Option<String>,
        #[serde(default)] verb: Option<String>,
        /// List only writes about the thing with this id, such as a task.
        #[serde(default)]
        about: Option<String>,
    }

    ProjectAdd {
        /// The path of the repository to add, or the path of a directory in the repository.
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
        /// The agent's program and its arguments, if the runtime is `command`.
        #[serde(default)]
        command: Vec<String>,
        #[serde(default)] role: Role,
        #[serde(default)] provider: Option<String>,
        #[serde(default)] description: String,
        #[serde(default = "default_one")] max_tasks: u32,
        #[serde(default)] profile: Profile,
        /// Add the agent even if its program is not installed on the daemon's machine.
        #[serde(default)]
        anyway: bool,
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
        /// The steps that a scripted agent (one that follows a list of steps instead of a model)
        /// performs for this task.
        #[serde(default)]
        script: Option<serde_json::Value>,
        /// A command that runs after the task's checks have passed and before its work enters the
        /// landing queue. If the command ends with an exit code other than 0, the task fails.
        #[serde(default)]
        ratchet: Option<Vec<String>>,
        #[serde(default)] alias: Option<String>,
        #[serde(default)] backlog: bool,
        #[serde(default)] assign: Option<AgentName>,
        #[serde(default)] how: AssignMode,
    }
    TaskList {
        #[serde(default)] project: Option<ProjectName>,
        #[serde(default)] mission: Option<String>,
        /// The statuses of the tasks to list. If empty, all tasks that have not ended are listed.
        #[serde(default)]
        status: Vec<TaskStatus>,
        /// List ended tasks too.
        #[serde(default)]
        all: bool,
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
        /// Create a workspace (a copy of the repository) for the attempt. Without a workspace the
        /// attempt can only report, and a poll is very cheap. A task that expects a change of files
        /// gets a workspace in any case.
        #[serde(default = "default_true")]
        workspace: bool,
        /// True if a person does the work under the name of this agent. Regatta then does not start
        /// the agent's program.
        #[serde(default)]
        by_hand: bool,
    }
    TaskProgress { task: TaskId, attempt: AttemptId, token: u64, text: String }
    ScopeReport {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        /// The work that the agent found necessary outside the task's files, and the reason.
        finding: String,
        #[serde(default)] suggested_files: Vec<String>,
    }
    TaskFinish {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        #[serde(default)] output: Option<String>,
        /// True if the task turned out to need no change of files.
        #[serde(default)]
        not_needed: bool,
        /// Facts that the agent has learned and that are useful for later tasks of the project.
        #[serde(default)]
        learnings: Vec<String>,
    }
    TaskFail { task: TaskId, attempt: AttemptId, token: u64, #[serde(default)] reason: Option<String> }

    /// A question of an agent to a person, or a request for permission if `permission` is given.
    AttemptAsk {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        #[serde(default)] question: String,
        #[serde(default)] choices: Vec<String>,
        #[serde(default)] permission: Option<RequestedAction>,
        /// The assumption with which the agent continues at once instead of waiting for the answer.
        #[serde(default)]
        assume: Option<String>,
        #[serde(default)] wait_ms: u64,
    }
    /// An action for which an agent requests permission.
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
        /// The assumption with which the agent continues without an answer.
        #[serde(default)]
        assume: Option<String>,
        #[serde(default)] wait_ms: u64,
    }
    AttemptIdInput { attempt: AttemptId }

    MissionStart {
        #[serde(default)] project: Option<ProjectName>,
        title: String,
        #[serde(default)] agents: Vec<AgentName>,
        /// A team whose members work on the mission's tasks, in addition to `agents`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        team: Option<TeamName>,
        /// The budget of the mission. A limit that is omitted is unlimited.
        #[serde(default)]
        budget: budget::Ceiling,
        #[serde(default = "default_five")] max_workers: u32,
        #[serde(default)] mode: mission::StartMode,
        /// Run tasks at the same time even if they declare the same files. Their changes are merged
        /// when the tasks land.
        #[serde(default)]
        isolate: bool,
        /// Land the work of each wave (a group of tasks that run at the same time) as one commit.
        /// This requires the mode `waves`.
        #[serde(default)]
        wave_commits: bool,
        #[serde(default)] tasks: Vec<PlannedTask>,
        /// Existing tasks that become part of the mission.
        #[serde(default)]
        adopt: Vec<TaskId>,
    }
    /// Creates a mission from a goal. An agent (the lead) breaks the goal into tasks.
    MissionAsk {
        #[serde(default)] project: Option<ProjectName>,
        goal: String,
        /// The agent that leads the mission. If omitted, the agent is chosen by the project's
        /// settings.
        #[serde(default)]
        agent: Option<AgentName>,
        /// An existing task that the mission has to accomplish.
        #[serde(default)]
        task: Option<TaskId>,
    }
    MissionHandover {
        id: String,
        /// The agent that leads the mission from now on. If omitted, the previous lead leads the
        /// mission again.
        #[serde(default)]
        to: Option<AgentName>,
    }
    /// Selects a mission, and the past revision (number of an event) at which to show the mission.
    /// If `at` is omitted, the mission is shown at its last revision.
    MissionReplay { id: String, #[serde(default)] at: Option<u64> }
    MissionCompare { ids: Vec<regatta_core::ids::MissionId> }
    /// The final report with which a lead (the agent that leads a mission) ends its mission.
    MissionFinish { task: TaskId, attempt: AttemptId, token: u64, report: String }
    MissionAdopt {
        task: TaskId,
        /// The mission to which the task is added. If omitted, a caller that leads a mission adds
        /// the task to that mission.
        #[serde(default)]
        mission: Option<String>,
    }
    RouteInput {
        message: MessageId,
        /// The project whose router handles the message. A router carries out the commands in
        /// messages. If omitted, the project of the message's channel.
        #[serde(default)]
        project: Option<ProjectName>,
    }
    GuideQuery { #[serde(default)] name: Option<String> }
    PlannedTask {
        task: PlannedTaskFields,
        /// Positions, in the plan's list, of the tasks that must be completed before this one. The
        /// first task has position 0.
        #[serde(default)]
        after: Vec<usize>,
    }
    /// Asks an agent to break a goal into planned tasks.
    PlanAsk {
        #[serde(default)] project: Option<ProjectName>,
        goal: String,
        /// The agent that makes the plan. If omitted, the first of the agents that would do the
        /// work.
        #[serde(default)]
        planner: Option<AgentName>,
        /// The reason why the previous plan could not be used, so that the planning agent can do
        /// better; otherwise empty.
        #[serde(default)]
        wrong: String,
        /// The steps for the agent that makes the plan, if that agent is a scripted agent (one that
        /// follows a list of steps instead of a model).
        #[serde(default)]
        script: Option<serde_json::Value>,
    }
    PlanShow { task: TaskId }
    /// A plan to display with its waves (groups of tasks that run at the same time) and its
    /// conflicts. Nothing is started.
    PlanDraw {
        #[serde(default)] project: Option<ProjectName>,
        title: String,
        tasks: Vec<PlannedTask>,
        /// The agents that would work on the plan. If omitted, the agents in the project's
        /// settings.
        #[serde(default)]
        agents: Vec<AgentName>,
    }
    StopInput {
        #[serde(default)] id: Option<String>,
        /// Let running attempts finish, and start no new attempts.
        #[serde(default)]
        drain: bool,
        /// Start the stopped task again at once, in a new attempt.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
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
    /// The agent's program is driven over the Agent Client Protocol (ACP).
    Acp,
    /// The agent's program is driven over Claude Code's own protocol of JSON lines.
    Claude,
    /// The program `codex exec`, with one process for each prompt.
    Codex,
    /// The program `codex app-server`, with one process for a whole session.
    CodexServer,
    /// Regatta starts no program for this agent. An agent that somebody else starts asks for tasks
    /// under the agent's name.
    Outside,
}

fn default_rule_scope() -> policy::RuleScope {
    policy::RuleScope::All
}

/// A task of a plan that does not exist yet. It has the fields of [`TaskAdd`] except the project,
/// which the mission supplies.
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

/// Selects a runner (a machine that works for the daemon) by its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunnerNameInput {
    pub name: regatta_core::ids::RunnerName,
}

/// Identifies a runner (a machine that works for the daemon), with the session number that the
/// runner got when it registered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunnerSession {
    pub runner: regatta_core::ids::RunnerName,
    pub session: u64,
}

/// Asks for the calls (requests of the daemon to a runner) that came after the call with number
/// `after`.
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

/// The answer of a runner (a machine that works for the daemon) to a call of the daemon: the
/// result, or the error that prevented it.
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
    /// Set if a person must correct something before the call can succeed. The value is the agent
    /// if its program or an API key is missing, or the task if git cannot create the task's
    /// workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<regatta_core::attempt::SetupFault>,
}

/// Output of an attempt's program that runs on a runner (a machine that works for the daemon).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunnerOutput {
    pub runner: regatta_core::ids::RunnerName,
    pub session: u64,
    pub attempt: AttemptId,
    pub words: serde_json::Value,
}

/// Journal records (recorded input and output) of a program that runs on a runner. If the list is
/// empty, the call only asks how many records the daemon already has.
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
    DEFAULT_LIST_LIMIT
}
fn default_wait_ms() -> u64 {
    30_000
}
