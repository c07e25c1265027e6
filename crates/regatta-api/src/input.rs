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
mod runners; // runners

pub use messages::*;
pub use runners::*;

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
    IdInput {
        /// The id of a task, attempt, mission or request, such as `T21`, or an agent's name, as the
        /// verb allows.
        id: String,
    }
    /// Selects a change of files (diff) to show, by the id of a task or attempt.
    DiffInput {
        /// The id of a task or attempt, such as `T21` or `A5`.
        id: String,
        /// Show only the changes since the work was last sent back to its agent.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        since_review: bool,
    }
    /// Selects the tasks of a dependency graph by an id: all tasks of a mission, or one task with
    /// its neighbours. Without an id, all tasks of one project or of all projects.
    GraphInput {
        /// The id of a mission or task, such as `M3` or `T21`. If omitted, all tasks are selected.
        #[serde(default)] id: Option<String>,
        /// Select only tasks of this project.
        #[serde(default)] project: Option<ProjectName>,
    }
    AgentNameInput {
        /// The name of the agent.
        name: AgentName,
    }
    ProjectNameInput {
        /// The name of the project.
        name: ProjectName,
    }
    AgentClose {
        /// The name of the agent, which gets no tasks until it registers again.
        name: AgentName,
        /// The reason for closing the agent, which is shown to everybody who waits for the agent.
        #[serde(default)]
        reason: String,
    }
    FileInput {
        /// The absolute path of the file on the daemon's machine.
        path: String,
    }
    /// Limits the answer to one project. If omitted, the answer covers all projects.
    ProjectFilter {
        /// The name of the project. If omitted, all projects; a verb that changes one project then
        /// takes the only one.
        #[serde(default)] project: Option<ProjectName>,
    }
    /// Changes the limits for attempts on the daemon's machine, such as their number and duration.
    /// Omitted limits are not changed.
    #[derive(Default)]
    LimitsSet {
        /// The number of attempts that may run at the same time, from 1 to 10,000.
        #[serde(default)] max_attempts: Option<u32>,
        /// The maximum duration of an attempt in milliseconds.
        #[serde(default)] attempt_timeout_ms: Option<u64>,
        /// The maximum duration of an attempt by a lead in milliseconds.
        #[serde(default)] lead_timeout_ms: Option<u64>,
        /// The time in milliseconds within which a started program must open its session.
        #[serde(default)] startup_ms: Option<u64>,
        /// The time in milliseconds without output after which a program is stopped.
        #[serde(default)] silence_ms: Option<u64>,
        /// The time in milliseconds after which an unanswered request is announced again.
        #[serde(default)] escalate_ms: Option<u64>,
        /// The delay in milliseconds before a failed task is tried again. The delay doubles with
        /// each further failure.
        #[serde(default)] retry_ms: Option<u64>,
        /// The maximum delay in milliseconds before a failed task is tried again.
        #[serde(default)] retry_most_ms: Option<u64>,
        /// The time in milliseconds that programs may take to end by themselves when they are
        /// stopped.
        #[serde(default)]
        shutdown_ms: Option<u64>,
        /// The memory in MiB that must be free for each attempt that starts; 0 turns the check off.
        #[serde(default)]
        attempt_memory_mb: Option<u64>,
        /// The disk space in MiB that must be free for each attempt that starts; 0 turns the check
        /// off.
        #[serde(default)] attempt_disk_mb: Option<u64>,
    }
    LandInput {
        /// The id of the task whose work lands, such as `T21`.
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
        /// The project whose queue is held. If omitted, the only project.
        #[serde(default)] project: Option<ProjectName>,
        /// The reason for holding the landing queue (finished work that waits to be merged).
        /// Everybody whose work waits in the queue sees this reason.
        #[serde(default)]
        reason: String,
    }
    /// Names one thing by its id, with a text about the thing, such as a reason.
    IdWithText {
        /// The id of a task or mission, such as `T21` or `M3`, or an agent's name, as the verb
        /// allows.
        id: String,
        /// The text for the agent or the reason for the change, as the verb needs it.
        #[serde(default)] text: String,
    }
    /// A person's answer to an agent's request in the inbox.
    InboxAnswer {
        /// The id of the request, such as `Q7`.
        id: ApprovalId,
        /// The answer: an object whose field `say` is `allow`, `deny` or `text`.
        answer: RequestAnswer,
        /// The further requests that this answer covers: none, those of the task or mission, or all
        /// later ones.
        #[serde(default)] reach: AnswerScope,
        /// Also give this answer to all other open requests that are identical, even if other
        /// agents made them.
        #[serde(default)]
        alike: bool,
    }
    /// Hides an inbox item for `ms` milliseconds. If `ms` is omitted, shows a hidden item again.
    InboxSnooze {
        /// The inbox item, such as `Q7`, `T9`, `A5`, `budget:day` or `agent:NAME`.
        id: regatta_core::inbox::InboxItem,
        /// The time in milliseconds for which the item is hidden. If omitted, a hidden item is
        /// shown again.
        #[serde(default)] ms: Option<u64>,
    }
    PolicyAdd {
        /// The tasks or agents to which the rule applies, such as `{"agent": "claude-1"}`.
        #[serde(default = "default_rule_scope")] scope: policy::RuleScope,
        /// Whether the rule allows or denies a matching tool call, or asks a person.
        effect: policy::RuleEffect,
        /// The tool calls that the rule covers, by tool, command, path or address. Empty covers
        /// all.
        #[serde(default)] matter: policy::RuleSubject,
    }
    RuleIdInput {
        /// The id of the policy rule, such as `R4`.
        rule: RuleId,
    }
    /// Selects the days for which spending is listed: today, and this number of days before today.
    BudgetListInput {
        /// The number of days before today whose spending is included. A day begins at midnight
        /// UTC.
        #[serde(default)] days: u32,
    }
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
    BudgetSet {
        /// The work that the budget limits: `attempt`, `task`, `T7`, `agent:NAME`, `M3` or `day`.
        scope: budget::BudgetScope,
        /// The limits of the budget. Empty removes the budget.
        #[serde(default)] ceiling: budget::Ceiling,
    }
    TranscriptQuery {
        /// The id of the attempt, such as `A5`.
        attempt: AttemptId,
        /// The number of the journal record (a record of the program's input and output) at which
        /// the transcript starts.
        #[serde(default)]
        from: u64,
        /// The maximum number of records in the answer, from 1 to 1,000.
        #[serde(default = "default_fifty")] limit: usize,
    }
    AttemptChecksInput {
        /// The id of the attempt, such as `A5`.
        attempt: AttemptId,
    }
    RuleTest {
        /// The project whose rules are tested. If omitted, the only project. Ignored if `task` is
        /// given.
        #[serde(default)] project: Option<ProjectName>,
        /// A task whose type and files are used to test the rule.
        #[serde(default)]
        task: Option<TaskId>,
        /// The type of work with which the rules are tested. Ignored if `task` is given.
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
    DownInput {
        /// Let the agents' programs run on; the next daemon continues with them.
        #[serde(default)] keep_agents: bool,
    }
    TokenAdd {
        /// The name of the person or program that will use the token. The audit log shows this name
        /// for each write.
        name: String,
        /// The rights of the token: `admin`, `operator`, `viewer` or `runner`.
        scope: TokenScope,
        /// The time in milliseconds for which the token is valid. If omitted, the token is valid
        /// until it is removed.
        #[serde(default)]
        expires_ms: Option<u64>,
    }
    TokenNameInput {
        /// The name of the token.
        name: String,
    }
    /// Selects lines of the audit log: the newest lines or, with `after`, the oldest lines after
    /// the line with that number.
    AuditQuery {
        /// List only lines after the line with this number, oldest first.
        #[serde(default)] after: Option<u64>,
        /// The largest number of lines. If omitted, 50, or all lines if the caller reads pages.
        #[serde(default)]
        limit: Option<usize>,
        /// List only writes that were made under the name of this person or agent, or with the
        /// access token that has this name.
        #[serde(default)]
        by: Option<String>,
        /// List only calls of this verb, such as `task.add`.
        #[serde(default)] verb: Option<String>,
        /// List only writes about the thing with this id, such as a task.
        #[serde(default)]
        about: Option<String>,
    }

    ProjectAdd {
        /// The path of the repository to add, or the path of a directory in the repository.
        path: String,
        /// The name of the project. If omitted, the name of the repository's directory.
        #[serde(default)] name: Option<ProjectName>,
        /// The branch on which work lands. If omitted, the branch that is checked out.
        #[serde(default)] trunk: Option<BranchName>,
        /// The commands that must succeed on every tree that lands.
        #[serde(default)] validation: Vec<String>,
        /// The time limit of each of these commands in milliseconds. If omitted, ten minutes.
        #[serde(default)] validation_timeout_ms: Option<u64>,
        /// The project's other settings, as in `regatta.toml`.
        #[serde(default)] settings: project::ProjectSettings,
    }
    AgentAdd {
        /// The name of the agent, such as `claude-1`.
        name: AgentName,
        /// The way in which Regatta drives the agent's program.
        runtime: RuntimeName,
        /// The agent's program and its arguments, if the runtime is `command`.
        #[serde(default)]
        command: Vec<String>,
        /// Whether the agent works on tasks, or leads missions.
        #[serde(default)] role: Role,
        /// The provider of the agent's model, such as `anthropic`, `codex` or `gemini`.
        #[serde(default)] provider: Option<String>,
        /// A text for people about the agent.
        #[serde(default)] description: String,
        /// The number of tasks on which the agent may work at the same time, from 1 to 20.
        #[serde(default = "default_one")] max_tasks: u32,
        /// The settings with which the program starts, such as its model, variables and sandbox.
        #[serde(default)] profile: Profile,
        /// Add the agent even if its program is not installed on the daemon's machine.
        #[serde(default)]
        anyway: bool,
    }

    TaskAdd {
        /// The project of the task. If omitted, the only project.
        #[serde(default)] project: Option<ProjectName>,
        /// The work in one line of at most 300 characters.
        subject: String,
        /// Everything else that the agent has to know, at most 256 KiB.
        #[serde(default)] description: String,
        /// The type of work, such as a feature, a bug or documentation.
        #[serde(default)] issue_type: IssueType,
        /// The files that the task may change, as paths in the repository with `*`, `?` and `**`.
        #[serde(default)] files: Vec<PathPattern>,
        /// The checks that this task's work must pass, besides the project's commands.
        #[serde(default)] validation: Validation,
        /// The tasks that must be completed before this task starts.
        #[serde(default)] blocked_by: Vec<TaskId>,
        /// The priority of the task, from 0 (first) to 9 (last).
        #[serde(default = "regatta_core::task::default_priority")] priority: u8,
        /// Whether the task has to change files or to give a report.
        #[serde(default)] expects: Expects,
        /// How hard the model should think, from `minimal` to `max`. If omitted, by the type of
        /// work.
        #[serde(default)] effort: Option<String>,
        /// Give the task only to agents of this provider, such as `anthropic`.
        #[serde(default)] provider: Option<String>,
        /// The steps that a scripted agent (one that follows a list of steps instead of a model)
        /// performs for this task.
        #[serde(default)]
        script: Option<serde_json::Value>,
        /// A command that runs after the task's checks have passed and before its work enters the
        /// landing queue. If the command ends with an exit code other than 0, the task fails.
        #[serde(default)]
        ratchet: Option<Vec<String>>,
        /// A second name for the task, such as its id in another tracker.
        #[serde(default)] alias: Option<String>,
        /// Add the task to the backlog, where it does not start before somebody schedules it.
        #[serde(default)] backlog: bool,
        /// The agent that gets the task. If omitted, any agent that is free.
        #[serde(default)] assign: Option<AgentName>,
        /// How the task is assigned to the agent in `assign`: now, when the agent is free, or as an
        /// offer.
        #[serde(default)] how: AssignMode,
    }
    TaskList {
        /// List only tasks of this project.
        #[serde(default)] project: Option<ProjectName>,
        /// List only tasks of the mission with this id, such as `M3`.
        #[serde(default)] mission: Option<String>,
        /// The statuses of the tasks to list. If empty, all tasks that have not ended are listed.
        #[serde(default)]
        status: Vec<TaskStatus>,
        /// List ended tasks too.
        #[serde(default)]
        all: bool,
        /// The maximum number of tasks in the answer; 0 means no maximum.
        #[serde(default)] limit: usize,
    }
    TaskSet {
        /// The id of the task, such as `T21`.
        task: TaskId,
        /// The fields to change. An omitted field is not changed.
        edit: EditTask,
        /// The new steps of a scripted agent for this task.
        #[serde(default)] script: Option<serde_json::Value>,
    }
    TaskAssign {
        /// The id of the task, such as `T21`.
        task: TaskId,
        /// The agent that gets the task. If omitted, the task's assignment is removed.
        #[serde(default)] to: Option<AgentName>,
        /// How the task is assigned: now, when the agent is free, or as an offer.
        #[serde(default)] how: AssignMode,
    }
    OfferReply {
        /// The id of the offered task, such as `T21`.
        task: TaskId,
        /// The agent that replies to the offer.
        agent: AgentName,
    }
    TaskCancel {
        /// The id of the task, such as `T21`.
        task: TaskId,
        /// The reason, which people see at the cancelled task.
        #[serde(default)] reason: Option<String>,
    }
    TaskPoll {
        /// The agent that asks for a task.
        agent: AgentName,
        /// Give only tasks of this project.
        #[serde(default)] project: Option<ProjectName>,
        /// The time in milliseconds to wait until a task is ready, at most a day.
        #[serde(default)] wait_ms: u64,
        /// The time in milliseconds after which the task goes to others, unless the agent reports
        /// progress. If omitted, an hour.
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
    TaskProgress {
        /// The id of the task, such as `T21`.
        task: TaskId,
        /// The id of the attempt, such as `A5`.
        attempt: AttemptId,
        /// The fencing token of the attempt, which the poll returned.
        token: u64,
        /// The progress in a few words, at most 4,000 bytes.
        text: String,
    }
    ScopeReport {
        /// The id of the task, such as `T21`.
        task: TaskId,
        /// The id of the attempt, such as `A5`.
        attempt: AttemptId,
        /// The fencing token of the attempt, which the poll returned.
        token: u64,
        /// The work that the agent found necessary outside the task's files, and the reason.
        finding: String,
        /// The files that the work needs, as paths or patterns.
        #[serde(default)] suggested_files: Vec<String>,
    }
    TaskFinish {
        /// The id of the task, such as `T21`.
        task: TaskId,
        /// The id of the attempt, such as `A5`.
        attempt: AttemptId,
        /// The fencing token of the attempt, which the poll returned.
        token: u64,
        /// What the agent did, or the report that the task asked for.
        #[serde(default)] output: Option<String>,
        /// True if the task turned out to need no change of files.
        #[serde(default)]
        not_needed: bool,
        /// Facts that the agent has learned and that are useful for later tasks of the project.
        #[serde(default)]
        learnings: Vec<String>,
    }
    TaskFail {
        /// The id of the task, such as `T21`.
        task: TaskId,
        /// The id of the attempt, such as `A5`.
        attempt: AttemptId,
        /// The fencing token of the attempt, which the poll returned.
        token: u64,
        /// The reason why the task cannot be done.
        #[serde(default)] reason: Option<String>,
    }

    /// A question of an agent to a person, or a request for permission if `permission` is given.
    AttemptAsk {
        /// The id of the task, such as `T21`.
        task: TaskId,
        /// The id of the attempt, such as `A5`.
        attempt: AttemptId,
        /// The fencing token of the attempt, which the poll returned.
        token: u64,
        /// The question, if no permission is requested.
        #[serde(default)] question: String,
        /// The answers from which the person can choose. If empty, the person writes an answer.
        #[serde(default)] choices: Vec<String>,
        /// The action for which the agent requests permission, in place of a question.
        #[serde(default)] permission: Option<RequestedAction>,
        /// The assumption with which the agent continues at once instead of waiting for the answer.
        #[serde(default)]
        assume: Option<String>,
        /// The time in milliseconds to wait for the answer; an attempt waits at most ten minutes.
        #[serde(default)] wait_ms: u64,
    }
    /// An action for which an agent requests permission.
    RequestedAction {
        /// The action in one line.
        title: String,
        /// The kind of action, such as reading, editing or executing.
        #[serde(default)] kind: ToolKind,
        /// The exact command line, if the action runs a command.
        #[serde(default)] command: Option<String>,
        /// The files that the action reads or changes.
        #[serde(default)] paths: Vec<String>,
        /// The addresses that the action fetches.
        #[serde(default)] urls: Vec<String>,
    }
    AttemptAnswer {
        /// The id of the attempt that made the request, such as `A5`.
        attempt: AttemptId,
        /// The id of the request, such as `Q7`.
        id: ApprovalId,
        /// The assumption with which the agent continues without an answer.
        #[serde(default)]
        assume: Option<String>,
        /// The time in milliseconds to wait for the answer; an attempt waits at most ten minutes.
        #[serde(default)] wait_ms: u64,
    }
    AttemptIdInput {
        /// The id of the attempt, such as `A5`.
        attempt: AttemptId,
    }

    MissionStart {
        /// The project of the mission. If omitted, the only project.
        #[serde(default)] project: Option<ProjectName>,
        /// The title of the mission in one line.
        title: String,
        /// The agents that may work on the mission's tasks. They may be omitted if a team is named.
        #[serde(default)] agents: Vec<AgentName>,
        /// A team whose members work on the mission's tasks, in addition to `agents`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        team: Option<TeamName>,
        /// The budget of the mission. A limit that is omitted is unlimited.
        #[serde(default)]
        budget: budget::Ceiling,
        /// The number of the mission's tasks that may run at the same time, from 1 to 1,000.
        #[serde(default = "default_five")] max_workers: u32,
        /// Start each task when its blockers are completed (`flow`), or layer by layer (`waves`).
        #[serde(default)] mode: mission::StartMode,
        /// Run tasks at the same time even if they declare the same files. Their changes are merged
        /// when the tasks land.
        #[serde(default)]
        isolate: bool,
        /// Land the work of each wave (a group of tasks that run at the same time) as one commit.
        /// This requires the mode `waves`.
        #[serde(default)]
        wave_commits: bool,
        /// The tasks of the plan, which are added with the mission.
        #[serde(default)] tasks: Vec<PlannedTask>,
        /// Existing tasks that become part of the mission.
        #[serde(default)]
        adopt: Vec<TaskId>,
    }
    /// Creates a mission from a goal. An agent (the lead) breaks the goal into tasks.
    MissionAsk {
        /// The project of the mission. If omitted, the only project.
        #[serde(default)] project: Option<ProjectName>,
        /// The goal in plain words.
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
        /// The id of the mission, such as `M3`.
        id: String,
        /// The agent that leads the mission from now on. If omitted, the previous lead leads the
        /// mission again.
        #[serde(default)]
        to: Option<AgentName>,
    }
    /// Selects a mission, and the past revision (number of an event) at which to show the mission.
    /// If `at` is omitted, the mission is shown at its last revision.
    MissionReplay {
        /// The id of the mission, such as `M3`.
        id: String,
        /// The revision (number of an event) at which to show the mission.
        #[serde(default)] at: Option<u64>,
    }
    MissionCompare {
        /// The ids of the missions to compare, such as `M3` and `M4`.
        ids: Vec<regatta_core::ids::MissionId>,
    }
    /// The final report with which a lead (the agent that leads a mission) ends its mission.
    MissionFinish {
        /// The id of the task in which the lead leads the mission, such as `T21`.
        task: TaskId,
        /// The id of the lead's attempt, such as `A5`.
        attempt: AttemptId,
        /// The fencing token of the lead's attempt.
        token: u64,
        /// What the mission achieved, for people.
        report: String,
    }
    MissionAdopt {
        /// The id of the task, such as `T21`.
        task: TaskId,
        /// The mission to which the task is added. If omitted, a caller that leads a mission adds
        /// the task to that mission.
        #[serde(default)]
        mission: Option<String>,
    }
    RouteInput {
        /// The id of the message, such as `B12`.
        message: MessageId,
        /// The project whose router handles the message. A router carries out the commands in
        /// messages. If omitted, the project of the message's channel.
        #[serde(default)]
        project: Option<ProjectName>,
    }
    GuideQuery {
        /// The name of the guide. If omitted, all guides.
        #[serde(default)] name: Option<String>,
    }
    PlannedTask {
        /// The task itself.
        task: PlannedTaskFields,
        /// Positions, in the plan's list, of the tasks that must be completed before this one. The
        /// first task has position 0.
        #[serde(default)]
        after: Vec<usize>,
    }
    /// A task of a plan that does not exist yet. It has the fields of [`TaskAdd`] except the
    /// project, which the mission supplies.
    PlannedTaskFields {
        /// The work in one line of at most 300 characters.
        subject: String,
        /// Everything else that the agent has to know, at most 256 KiB.
        #[serde(default)] description: String,
        /// The type of work, such as a feature, a bug or documentation.
        #[serde(default)] issue_type: IssueType,
        /// The files that the task may change, as paths in the repository with `*`, `?` and `**`.
        #[serde(default)] files: Vec<PathPattern>,
        /// The checks that this task's work must pass, besides the project's commands.
        #[serde(default)] validation: Validation,
        /// The priority of the task, from 0 (first) to 9 (last).
        #[serde(default = "regatta_core::task::default_priority")] priority: u8,
        /// Whether the task has to change files or to give a report.
        #[serde(default)] expects: Expects,
        /// How hard the model should think, from `minimal` to `max`. If omitted, by the type of
        /// work.
        #[serde(default)] effort: Option<String>,
        /// Give the task only to agents of this provider, such as `anthropic`.
        #[serde(default)] provider: Option<String>,
        /// The steps that a scripted agent performs for this task.
        #[serde(default)] script: Option<serde_json::Value>,
        /// A command that must accept the passed work before the work enters the landing queue.
        #[serde(default)] ratchet: Option<Vec<String>>,
        /// A second name for the task, such as its id in the plan.
        #[serde(default)] alias: Option<String>,
        /// The agent that gets the task. If omitted, any agent that is free.
        #[serde(default)] assign: Option<AgentName>,
    }
    /// Asks an agent to break a goal into planned tasks.
    PlanAsk {
        /// The project for which to plan. If omitted, the only project.
        #[serde(default)] project: Option<ProjectName>,
        /// The goal in plain words.
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
    PlanShow {
        /// The id of the task whose agent makes the plan, such as `T31`.
        task: TaskId,
    }
    /// A plan to display with its waves (groups of tasks that run at the same time) and its
    /// conflicts. Nothing is started.
    PlanDraw {
        /// The project of the plan. If omitted, the only project.
        #[serde(default)] project: Option<ProjectName>,
        /// The title of the plan in one line.
        title: String,
        /// The tasks of the plan.
        tasks: Vec<PlannedTask>,
        /// The agents that would work on the plan. If omitted, the agents in the project's
        /// settings.
        #[serde(default)]
        agents: Vec<AgentName>,
    }
    StopInput {
        /// The id of a task, attempt, mission or hook firing, or an agent's name. If omitted, all
        /// missions.
        #[serde(default)] id: Option<String>,
        /// Let running attempts finish, and start no new attempts.
        #[serde(default)]
        drain: bool,
        /// Start the stopped task again at once, in a new attempt.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    }

    ClaimAcquire {
        /// The things to claim, such as `file://shop/src/**`; all of them or none.
        uris: Vec<Uri>,
        /// The agent that will hold the claim.
        agent: AgentName,
        /// `exclusive` lets nobody else hold an overlapping claim, `shared` allows other shared
        /// claims.
        #[serde(default)] mode: ClaimMode,
        /// The time in milliseconds after which the claim ends unless it is renewed, at most a
        /// week.
        ttl_ms: u64,
        /// The time in milliseconds to wait while somebody else holds the claim, at most a day.
        #[serde(default)] wait_ms: u64,
        /// A text about the purpose of the claim, which others see.
        #[serde(default)] memo: String,
    }
    HeldClaimInput {
        /// The id of the claim.
        claim: ClaimId,
        /// The fencing token of the claim, which was returned when the claim was acquired.
        token: u64,
    }
    UrisInput {
        /// The things to check, such as `file://shop/src/**`.
        uris: Vec<Uri>,
    }
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
