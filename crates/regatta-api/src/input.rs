//! What each verb takes. Unknown fields are an error, so that a typing mistake is never silently ignored.

use regatta_core::agent::{Profile, Role};
use regatta_core::approval::Reach;
use regatta_core::claim::Mode;
use regatta_core::ids::{
    AgentName, ApprovalId, AttemptId, BranchName, ClaimId, MessageId, ProjectName, RuleId, TaskId, TeamName,
};
use regatta_core::mission;
use regatta_core::pattern::{PathPattern, Uri};
use regatta_core::project;
use regatta_core::session::{Answer, ToolKind};
use regatta_core::task::{Edit, Expects, How, IssueType, Status, Validation};
use regatta_core::{budget, policy};
use serde::{Deserialize, Serialize};

use crate::verb::Scope as TokenScope;

mod talk; // the bus and the hooks

pub use talk::*;

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
    Nothing {}
    /// One thing, as a person types it: `T21`, `A5`, `M3`, or an agent's name.
    Id { id: String }
    /// Which change to show.
    Diff {
        id: String,
        /// Only what changed since it was last sent back.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] since_review: bool,
    }
    /// What to draw: a mission, or a task with what is around it, as a person types it; or what there is, in one
    /// project or in all.
    Graph { #[serde(default)] id: Option<String>, #[serde(default)] project: Option<ProjectName> }
    Name { name: AgentName }
    ProjectRm { name: ProjectName }
    AgentClose {
        name: AgentName,
        /// Why, for whoever waits for it.
        #[serde(default)] reason: String,
    }
    File { path: String }
    /// One project, or all.
    Scope { #[serde(default)] project: Option<ProjectName> }
    /// The machine's limits; what is left out stays as it is.
    #[derive(Default)]
    Limits {
        #[serde(default)] max_attempts: Option<u32>,
        #[serde(default)] attempt_timeout_ms: Option<u64>,
        #[serde(default)] lead_timeout_ms: Option<u64>,
        #[serde(default)] startup_ms: Option<u64>,
        #[serde(default)] silence_ms: Option<u64>,
        #[serde(default)] escalate_ms: Option<u64>,
        #[serde(default)] retry_ms: Option<u64>,
        #[serde(default)] retry_most_ms: Option<u64>,
        /// How long what is stopped may take to end by itself.
        #[serde(default)] shutdown_ms: Option<u64>,
        /// How many mebibytes of memory must be free for each attempt that starts; 0 asks for none.
        #[serde(default)] attempt_memory_mb: Option<u64>,
        #[serde(default)] attempt_disk_mb: Option<u64>,
    }
    Land {
        id: String,
        /// Before all that are not under way.
        #[serde(default)] first: bool,
        /// The claim on the trunk, held by hand, under which it lands at once; `id` may then be an attempt's or the path
        /// of its workspace.
        #[serde(default)] claim: Option<ClaimId>,
        /// That claim's token.
        #[serde(default)] token: Option<u64>,
    }
    QueueHold {
        #[serde(default)] project: Option<ProjectName>,
        /// Why, for whoever waits.
        #[serde(default)] reason: String,
    }
    /// One thing, and what is said of it.
    Said { id: String, #[serde(default)] text: String }
    /// An answer to an inbox item.
    Decide {
        id: ApprovalId,
        answer: Answer,
        #[serde(default)] reach: Reach,
        /// Answer all that ask the very same, whoever asks it.
        #[serde(default)] alike: bool,
    }
    /// Something in the inbox, and for how long it is put off; without a time it is there again.
    Snooze { id: regatta_core::inbox::Item, #[serde(default)] ms: Option<u64> }
    PolicyAdd {
        #[serde(default = "everybody")] scope: policy::Scope,
        effect: policy::Effect,
        #[serde(default)] matter: policy::Matter,
    }
    Rule { rule: RuleId }
    /// How many days before today are counted too.
    Spent { #[serde(default)] days: u32 }
    Cost {
        /// How many days before today are counted too; days are those of UTC.
        #[serde(default)] days: u32,
        /// What it is summed up by; everything that it can be if not given.
        #[serde(default)] by: Option<regatta_core::cost::By>,
    }
    /// An empty ceiling takes the budget away.
    BudgetSet { scope: budget::Scope, #[serde(default)] ceiling: budget::Ceiling }
    Transcript {
        attempt: AttemptId,
        /// The place in the journal to begin at.
        #[serde(default)] from: u64,
        #[serde(default = "fifty")] limit: usize,
    }
    Checks { attempt: AttemptId }
    RuleTest {
        #[serde(default)] project: Option<ProjectName>,
        /// A task whose type and files are taken.
        #[serde(default)] task: Option<TaskId>,
        #[serde(default)] issue_type: IssueType,
        /// Its manifest before a start; its changed files before a landing.
        #[serde(default)] files: Vec<PathPattern>,
        /// A line that is added to those files.
        #[serde(default)] line: Option<String>,
    }
    Down { #[serde(default)] keep_agents: bool }
    TokenAdd {
        /// Who it is for: its writes carry this name.
        name: String,
        scope: TokenScope,
        /// How long it opens doors; none means until it is taken away.
        #[serde(default)] expires_ms: Option<u64>,
    }
    TokenName { name: String }
    /// Lines of the audit log: the newest, or with `after` the oldest after that one.
    Audit {
        #[serde(default)] after: Option<u64>,
        #[serde(default = "fifty")] limit: usize,
        /// Only what was done in this name or with this token.
        #[serde(default)] by: Option<String>,
        #[serde(default)] verb: Option<String>,
        /// Only what is about this.
        #[serde(default)] about: Option<String>,
    }

    ProjectAdd {
        /// A directory in the repository.
        path: String,
        #[serde(default)] name: Option<ProjectName>,
        #[serde(default)] trunk: Option<BranchName>,
        #[serde(default)] validation: Vec<String>,
        #[serde(default)] validation_timeout_ms: Option<u64>,
        #[serde(default)] settings: project::Settings,
    }
    AgentAdd {
        name: AgentName,
        runtime: RuntimeName,
        /// The program and its arguments, for the command runtime.
        #[serde(default)] command: Vec<String>,
        #[serde(default)] role: Role,
        #[serde(default)] provider: Option<String>,
        #[serde(default)] description: String,
        #[serde(default = "one")] max_tasks: u32,
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
        /// A command run when its work has passed and before it is submitted; any exit but 0 fails the task.
        #[serde(default)] ratchet: Option<Vec<String>>,
        #[serde(default)] alias: Option<String>,
        #[serde(default)] backlog: bool,
        #[serde(default)] assign: Option<AgentName>,
        #[serde(default)] how: How,
    }
    TaskList {
        #[serde(default)] project: Option<ProjectName>,
        #[serde(default)] mission: Option<String>,
        /// Empty means all that are open.
        #[serde(default)] status: Vec<Status>,
        /// Ended ones too.
        #[serde(default)] all: bool,
        #[serde(default)] limit: usize,
    }
    TaskSet { task: TaskId, edit: Edit, #[serde(default)] script: Option<serde_json::Value> }
    TaskAssign { task: TaskId, #[serde(default)] to: Option<AgentName>, #[serde(default)] how: How }
    OfferAnswer { task: TaskId, agent: AgentName }
    TaskCancel { task: TaskId, #[serde(default)] reason: Option<String> }
    TaskPoll {
        agent: AgentName,
        #[serde(default)] project: Option<ProjectName>,
        #[serde(default)] wait_ms: u64,
        #[serde(default)] lease_ms: Option<u64>,
        /// Whether a workspace is made for it. Without one, only what is to be reported can be done, and a poll costs
        /// next to nothing; a task that expects a change has one all the same.
        #[serde(default = "yes")] workspace: bool,
        /// A person does the work in the name of an agent whose program Regatta would run.
        #[serde(default)] by_hand: bool,
    }
    TaskProgress { task: TaskId, attempt: AttemptId, token: u64, text: String }
    ScopeReport {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        /// What is to be done there, and why.
        finding: String,
        #[serde(default)] suggested_files: Vec<String>,
    }
    TaskFinish {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        #[serde(default)] output: Option<String>,
        /// Nothing has to be changed: the task is done as it is.
        #[serde(default)] not_needed: bool,
        /// Facts that help later tasks of the project.
        #[serde(default)] learnings: Vec<String>,
    }
    TaskFail { task: TaskId, attempt: AttemptId, token: u64, #[serde(default)] reason: Option<String> }

    /// A question, or a permission if that is given.
    AttemptAsk {
        task: TaskId,
        attempt: AttemptId,
        token: u64,
        #[serde(default)] question: String,
        #[serde(default)] choices: Vec<String>,
        #[serde(default)] permission: Option<Wanted>,
        /// Go on without waiting, with this assumption.
        #[serde(default)] assume: Option<String>,
        #[serde(default)] wait_ms: u64,
    }
    /// Something an agent wants to do.
    Wanted {
        title: String,
        #[serde(default)] kind: ToolKind,
        #[serde(default)] command: Option<String>,
        #[serde(default)] paths: Vec<String>,
        #[serde(default)] urls: Vec<String>,
    }
    AttemptAnswer {
        attempt: AttemptId,
        id: ApprovalId,
        /// Go on without an answer, with this assumption.
        #[serde(default)] assume: Option<String>,
        #[serde(default)] wait_ms: u64,
    }
    Attempt { attempt: AttemptId }

    MissionStart {
        #[serde(default)] project: Option<ProjectName>,
        title: String,
        #[serde(default)] agents: Vec<AgentName>,
        /// A team whose members take its tasks, beside the agents that are named.
        #[serde(default, skip_serializing_if = "Option::is_none")] team: Option<TeamName>,
        /// The most that it may cost: what is left out has no end.
        #[serde(default)] budget: budget::Ceiling,
        #[serde(default = "five")] max_workers: u32,
        #[serde(default)] mode: mission::Mode,
        /// Let tasks whose manifests overlap run at once; the landing queue merges.
        #[serde(default)] isolate: bool,
        /// Land what each wave made as one commit; needs waves.
        #[serde(default)] wave_commits: bool,
        #[serde(default)] tasks: Vec<PlannedTask>,
        /// Tasks that are on the board already.
        #[serde(default)] adopt: Vec<TaskId>,
    }
    /// A mission with a goal, for a lead to break into tasks.
    MissionAsk {
        #[serde(default)] project: Option<ProjectName>,
        goal: String,
        /// Whose program leads; as the project's settings say if not given.
        #[serde(default)] agent: Option<AgentName>,
        /// A task that is there already and that it is about.
        #[serde(default)] task: Option<TaskId>,
    }
    MissionHandover {
        id: String,
        /// Whose program leads from now on; the same if not given.
        #[serde(default)] to: Option<AgentName>,
    }
    /// A lead's word that its mission is done.
    /// A mission as it stood at a revision; at its last, if none is named.
    MissionReplay { id: String, #[serde(default)] at: Option<u64> }
    MissionCompare { ids: Vec<regatta_core::ids::MissionId> }
    MissionFinish { task: TaskId, attempt: AttemptId, token: u64, report: String }
    MissionAdopt {
        task: TaskId,
        /// The mission; the caller's own if it is a lead.
        #[serde(default)] mission: Option<String>,
    }
    Route {
        message: MessageId,
        /// Whose router; the project of the message's channel if not given.
        #[serde(default)] project: Option<ProjectName>,
    }
    Guide { #[serde(default)] name: Option<String> }
    PlannedTask {
        task: TaskAddFlat,
        /// Places in the plan, counting from 0.
        #[serde(default)] after: Vec<usize>,
    }
    /// Has an agent make a plan of a goal.
    PlanAsk {
        #[serde(default)] project: Option<ProjectName>,
        goal: String,
        /// Who plans; the first of those who would do the work, if not given.
        #[serde(default)] planner: Option<AgentName>,
        /// What was wrong with the plan before.
        #[serde(default)] wrong: String,
        /// The steps of a scripted planner.
        #[serde(default)] script: Option<serde_json::Value>,
    }
    PlanShow { task: TaskId }
    /// A plan to be drawn as it would run; nothing is started.
    PlanDraw {
        #[serde(default)] project: Option<ProjectName>,
        title: String,
        tasks: Vec<PlannedTask>,
        /// Who may be given the work; as the project's settings say if not given.
        #[serde(default)] agents: Vec<AgentName>,
    }
    Stop {
        #[serde(default)] id: Option<String>,
        /// Let what runs finish; start nothing new.
        #[serde(default)] drain: bool,
        /// Start the task again at once, in a new attempt.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] again: bool,
    }

    ClaimAcquire {
        uris: Vec<Uri>,
        agent: AgentName,
        #[serde(default)] mode: Mode,
        ttl_ms: u64,
        #[serde(default)] wait_ms: u64,
        #[serde(default)] memo: String,
    }
    ClaimHeld { claim: ClaimId, token: u64 }
    Uris { uris: Vec<Uri> }
}

/// How an agent's program is driven, by name.
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
    /// Nothing is started: somebody else polls in its name.
    Outside,
}

fn everybody() -> policy::Scope {
    policy::Scope::All
}

/// A planned task: what [`TaskAdd`] takes, but for the project, which is the mission's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskAddFlat {
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
pub struct RunnerName {
    pub name: regatta_core::ids::RunnerName,
}

/// A runner, in the session that it was given when it registered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunnerSession {
    pub runner: regatta_core::ids::RunnerName,
    pub session: u64,
}

/// Asks for the open calls to a runner behind the last that it has seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunnerCalls {
    pub runner: regatta_core::ids::RunnerName,
    pub session: u64,
    #[serde(default)]
    pub after: u64,
    #[serde(default = "half_a_minute")]
    pub wait_ms: u64,
}

/// The answer to a call: what it gave, or why it could not be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunnerAnswer {
    pub runner: regatta_core::ids::RunnerName,
    pub session: u64,
    pub call: u64,
    #[serde(default)]
    pub gave: serde_json::Value,
    #[serde(default)]
    pub error: Option<String>,
    /// The part of the set-up at fault, if a person must change something before the order can be carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<regatta_core::attempt::SetupFault>,
}

/// What a program at a runner said since.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunnerSaid {
    pub runner: regatta_core::ids::RunnerName,
    pub session: u64,
    pub attempt: AttemptId,
    pub words: serde_json::Value,
}

/// Records of the journal of a program at a runner; with none it only asks how far the copy is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunnerCopy {
    pub runner: regatta_core::ids::RunnerName,
    pub session: u64,
    pub attempt: AttemptId,
    #[serde(default)]
    pub heading: Option<String>,
    #[serde(default)]
    pub records: Vec<serde_json::Value>,
}

fn yes() -> bool {
    true
}
fn one() -> u32 {
    1
}
fn five() -> u32 {
    5
}
fn fifty() -> usize {
    50
}
fn half_a_minute() -> u64 {
    30_000
}
