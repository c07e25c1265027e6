//! The data that the web page shows. The live stream sends each entity (an agent, a task and so on)
//! completely whenever it changes.
//!
//! The page computes no status. This module supplies the state of each agent, the actions that are
//! possible on each item, and the shell command of each action; the page draws them.

use regatta_core::agent::Capacity;
use regatta_core::attempt::{Attempt, ResultStatus};
use regatta_core::budget;
use regatta_core::ids::{
    AgentName, AttemptId, CommitId, LandingId, MemberName, MissionId, ProjectName, TaskId,
};
use serde::{Deserialize, Serialize};

mod mission;

pub use mission::{
    ChangedLines, MissionDecision, MissionLanding, MissionLane, MissionPage, MissionRowView,
    MissionWave,
};
pub use regatta_core::display::DisplayState;
use regatta_core::display::{FleetSummary, MissionSummary};
pub use regatta_core::project::LandConfirmation;

use crate::cost_tables::{CapForecast, ProviderBand};
use crate::file_map::FolderCell;
use crate::input::AgentAdd;
use crate::team::TeamView;
use crate::view::{
    BudgetView, ConversationLineView, CostView, InboxView, LandingView, QueueView, TaskView,
};

/// A one-time sign-in with which a browser can open the web page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SignInView {
    /// The web page's address, with the sign-in code after the `#`.
    pub url: String,
    pub code: String,
    /// The time in milliseconds for which the sign-in code is valid if it is not used.
    pub lasts_ms: u64,
}

/// The severity of the result of one check of `regatta doctor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckLevel {
    Ok,
    Warn,
    Bad,
}

/// The result of one of the doctor's checks of the machine, and how to fix a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoctorCheck {
    pub id: String,
    pub level: CheckLevel,
    pub text: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fix: String,
}

/// A coding agent's program that Regatta knows by name, with the fact whether the program is
/// installed and signed in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProviderProgram {
    pub preset: String,
    pub provider: String,
    pub program: Option<String>,
    pub version: Option<String>,
    pub signed_in: String,
    pub fix: Option<String>,
    /// The request that adds an agent with this program, with the program's command and sign-in on
    /// this machine. Empty if the program is not installed or the request needs more values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add: Option<AgentAdd>,
}

/// The results of the checks that `regatta doctor` made on the daemon's machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoctorView {
    pub checks: Vec<DoctorCheck>,
    pub providers: Vec<ProviderProgram>,
}
/// An action that a person can take, as a button of the page and as a shell command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PageAction {
    pub label: String,
    pub verb: String,
    #[cfg_attr(
        feature = "schema",
        schemars(with = "serde_json::Map<String, serde_json::Value>")
    )]
    pub input: serde_json::Value,
    /// The shell command that does the same as the button.
    pub cli: String,
    /// True if this is the default action of the item.
    #[serde(default)]
    pub first: bool,
    /// True if the action cannot be undone, so that the page asks for confirmation.
    #[serde(default)]
    pub grave: bool,
    /// The key that triggers the action on the item's own page, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<char>,
    /// JSON pointer to the place in `input` where a text of the person is inserted; empty if no
    /// text is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// The form with which the person enters the required text: the restricted JSON Schema that an
    /// agent sent. The entered text is then a JSON object with the fields of the form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")
    )]
    pub form: Option<serde_json::Value>,
    /// The address of the page that the button opens. A button with an address calls no verb on the
    /// page; `verb` shows the same elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The change that the action lands, if it lands one. The page asks before it lands a change
    /// that the person did not open, or whose comments were not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lands: Option<ChangeToLand>,
    /// A setting of the action that the person can choose. If the person chooses nothing, the value
    /// in `input` is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<ActionChoice>,
}

/// A change that an action of the page lands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeToLand {
    pub task: TaskId,
    /// The commit of the finished work. The page remembers which commits a person opened.
    pub head: CommitId,
    /// When the page asks for a confirmation, as `[landing] confirm` says.
    pub confirm: LandConfirmation,
}

/// The size of a change that waits for a review, and what about it needs a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeSummary {
    pub head: CommitId,
    pub files: usize,
    /// The number of added lines; empty until git has counted them. `removed` is the number of
    /// removed lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
    /// The changed paths that only a person may let through, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<String>,
}

/// A setting of an action with the values from which a person can choose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActionChoice {
    /// The name of the setting, as the page shows it.
    pub label: String,
    /// JSON pointer to the place in the action's input where the chosen value is inserted.
    pub to: String,
    /// The option of the shell command that sets the same value, such as `--planner`.
    pub flag: String,
    pub of: Vec<String>,
    /// The value that is used if the person chooses nothing; empty if the daemon then decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
}

/// A part of the sentence that summarizes the fleet (everything that the daemon manages) at the top
/// of the page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SentencePart {
    pub text: String,
    #[serde(default)]
    pub strong: bool,
    /// The page that shows details about this part of the sentence, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// The amount of detail that the page shows for each agent, which depends on the number of agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FleetSize {
    /// Few agents: the page shows each agent as a row with text.
    Few,
    /// More agents: the page shows each agent as a thin row without text.
    Some,
    /// Too many agents for rows: the page shows each agent as a small cell and, for each provider,
    /// a chart of how many agents are in each state.
    Many,
}

/// The summary of the fleet (everything that the daemon manages) at the top of the page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetSummaryView {
    /// The counts of everything that the daemon manages, such as the number of working tasks. The
    /// counts below and `missions` are copied from the summary.
    pub summary: FleetSummary,
    pub sentence: Vec<SentencePart>,
    pub needs_you: usize,
    /// Number of attempts that run now. `slots` is the number of attempts that may run at the same
    /// time.
    pub running: usize,
    pub slots: u32,
    pub agents: usize,
    pub size: FleetSize,
    pub projects: Vec<ProjectSummary>,
    pub missions: Vec<MissionProgress>,
    pub version: String,
    /// The actions that a person can take with a text that is typed into the page's input field,
    /// such as asking for a mission. The first action is the default.
    pub composers: Vec<PageAction>,
    /// Number of all tasks that ever existed. The live stream's topic `tasks` contains only the
    /// open tasks and the latest ended ones.
    #[serde(default)]
    pub tasks: u64,
}

/// A project with its trunk branch and the path of its repository.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProjectSummary {
    pub name: ProjectName,
    pub trunk: String,
    pub path: String,
}

/// The progress of a mission: how many of its tasks have landed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionProgress {
    pub id: MissionId,
    pub title: String,
    pub landed: u64,
    pub tasks: u64,
    /// The mission's position, counting from 1, among the missions that wait for a lead (an agent
    /// that leads the mission); empty if the mission does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
}

impl From<&MissionSummary> for MissionProgress {
    fn from(mission: &MissionSummary) -> MissionProgress {
        MissionProgress {
            id: mission.id,
            title: mission.title.clone(),
            landed: mission.landed,
            tasks: mission.tasks,
            place: mission.queue_position,
        }
    }
}

/// An item of the inbox, with the actions that a person can take on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InboxItemView {
    #[serde(flatten, deserialize_with = "crate::json::read_flattened")]
    pub item: InboxView,
    /// The key of the item's group. The items of one group ask the same question, so they can be
    /// answered together.
    pub group: String,
    /// The change that waits for a review, if the item is a review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeSummary>,
    pub actions: Vec<PageAction>,
}

/// The row of one agent on the page, with its present state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentLaneView {
    pub agent: AgentName,
    /// The agent's provider, or its runtime if no provider is named.
    pub provider: String,
    pub at: DisplayState,
    /// The state in one word for people. `text` has its details.
    #[serde(default)]
    pub word: String,
    /// The agent's state, in a few words for people.
    pub text: String,
    pub task: Option<TaskId>,
    pub subject: String,
    pub since_wall: u64,
    pub capacity: Capacity,
    /// The model that was requested for the agent. `running` is the model that the agent's program
    /// reports.
    pub wanted: String,
    pub running: String,
    /// The used part of the model's context window, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u32>,
    /// The agent's cost today in millionths of a dollar; empty if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
    pub actions: Vec<PageAction>,
}

/// A bar in the row of an agent or task: a time span, with the state during this time span. A bar
/// without an end lasts until now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaneBar {
    pub from: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    pub at: DisplayState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// The states of one agent over time, as bars in the agent's row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaneBarsView {
    pub agent: AgentName,
    pub bars: Vec<LaneBar>,
}

/// The number of a provider's agents that were in each state, minute by minute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StateSharesView {
    pub provider: String,
    pub lanes: usize,
    /// For each minute, its time and the number of agents in each state, in the order of
    /// [`DisplayState`].
    pub minutes: Vec<(u64, Vec<u32>)>,
}

/// A project's landing queue (finished work that waits to be merged), with the actions on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueuePage {
    #[serde(flatten, deserialize_with = "crate::json::read_flattened")]
    pub queue: QueueView,
    pub tip: Option<CommitId>,
    /// A summary in words: how many pieces of finished work wait to be merged, and how old the
    /// oldest is.
    pub text: String,
    pub actions: Vec<PageAction>,
    /// The actions on each landing (a task's work that is being merged) in the queue.
    pub each: Vec<(LandingId, Vec<PageAction>)>,
    /// The time when each piece of queued work is expected to be merged, estimated from how long
    /// earlier merges took.
    #[serde(default)]
    pub expected: Vec<(LandingId, u64)>,
    /// The number of changed lines of each landed piece of work in `recent`, as far as it is known.
    #[serde(default)]
    pub lines: Vec<(LandingId, u64)>,
    /// The work that left the queue without being merged and whose task is still open, the latest
    /// first.
    #[serde(default)]
    pub out: Vec<OutOfQueueView>,
}

/// Finished work that left the landing queue without being merged, with the next step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutOfQueueView {
    pub landing: LandingView,
    /// The present state of the landing's task, as a word for people in `word`.
    pub at: DisplayState,
    pub word: String,
    /// A sentence about who acts next: an agent, a person, or Regatta.
    pub next: String,
    pub actions: Vec<PageAction>,
}

/// Today's cost of all agents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TodaySpendView {
    pub today: budget::Spend,
    /// The budget's limit for today in millionths of a dollar, if there is one.
    pub cap: Option<u64>,
    /// The time when today's limit is expected to be reached; empty without a limit, or if the rate
    /// of spending is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<CapForecast>,
    /// Today's cost as a curve: for each minute with a payment, its time and the total cost from
    /// the beginning of the day to that minute, in millionths of a dollar.
    pub line: Vec<(u64, u64)>,
    /// The curve in `line` split by provider, the most expensive provider first. Each provider has
    /// one value for each point of `line`: its total cost up to that time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bands: Vec<ProviderBand>,
    /// Today's cost as a short text for people.
    pub text: String,
}

/// Today's cost with its breakdown, the results that were achieved, and the budgets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostPage {
    #[serde(flatten, deserialize_with = "crate::json::read_flattened")]
    pub cost: CostView,
    pub budgets: Vec<BudgetView>,
}

/// A task as one row of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskRowView {
    pub id: TaskId,
    pub project: ProjectName,
    pub mission: Option<MissionId>,
    pub subject: String,
    pub word: String,
    pub at: DisplayState,
    /// The position of the task in lists, the most urgent first.
    #[serde(default)]
    pub rank: usize,
    pub agent: Option<AgentName>,
    /// The reason why the task waits, or the present activity of its agent.
    pub text: String,
    pub since_wall: u64,
    pub blocked_by: Vec<TaskId>,
    pub wave: u32,
    pub priority: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
}

/// A condition that must be met before a task's work lands (is merged), with its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LandingCondition {
    /// True if the condition is met, false if it is not; empty while that is not known.
    pub good: Option<bool>,
    pub text: String,
}

/// A task with all details, for the task's own page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskPage {
    #[serde(flatten, deserialize_with = "crate::json::read_flattened")]
    pub task: TaskView,
    pub checklist: Vec<LandingCondition>,
    /// The activities on the task over time, such as waiting, working and landing.
    pub time: Vec<LaneBar>,
    pub tries: Vec<Attempt>,
    /// The attempt whose log the page shows first.
    pub log: Option<AttemptId>,
    pub wanted: String,
    pub running: String,
    pub branch: String,
    /// The title of the task's mission, if the task belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mission_title: Option<String>,
    /// The number of checks that the task's work must pass.
    #[serde(default)]
    pub check_count: usize,
    /// True if this task's report is a plan that can be started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan: bool,
    pub actions: Vec<PageAction>,
}

/// A team with three states, and with the actions on the team. A person requested the desired
/// state, the planner decided the resolved state, and the live state describes the programs that
/// run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamPage {
    #[serde(flatten, deserialize_with = "crate::json::read_flattened")]
    pub team: TeamView,
    pub actions: Vec<PageAction>,
    /// The actions on each member of the team.
    pub each: Vec<(MemberName, Vec<PageAction>)>,
}

/// A conversation in an outside service such as Slack, with the actions on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConversationPage {
    #[serde(flatten, deserialize_with = "crate::json::read_flattened")]
    pub line: ConversationLineView,
    pub actions: Vec<PageAction>,
}

/// A project's files: who works on each file, until when, and which files several tasks want to
/// change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProjectFilesView {
    pub project: ProjectName,
    /// The files as a tree of folders. Files that several tasks want to change come first.
    pub folders: Vec<FolderCell>,
    /// A summary in words: the number of files that are claimed or wanted, the number of changes
    /// that landed today, and the number of overlaps.
    pub text: String,
    pub radar: regatta_core::collision_forecast::CollisionForecast,
    /// The tasks that hold a shown file or wait for one.
    #[serde(default)]
    pub tasks: Vec<FileTaskView>,
    /// The conflicts: tasks that need the same files without an order between them.
    #[serde(default)]
    pub conflicts: Vec<FileConflictView>,
}

/// A task that holds files or waits for files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileTaskView {
    pub id: TaskId,
    pub subject: String,
    pub agent: Option<AgentName>,
    pub at: DisplayState,
    pub word: String,
    /// Time at which the task's present attempt is stopped if it has not ended before, in Unix
    /// milliseconds. Empty if the task has no attempt or the attempt has no deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "latest_wall")]
    pub deadline_unix_ms: Option<u64>,
}

/// Tasks that need the same files without an order between them, with what a person can do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileConflictView {
    /// The tasks, those that hold the files first.
    pub tasks: Vec<TaskId>,
    /// The first files or patterns that the tasks share. `path_count` counts all of them.
    pub paths: Vec<String>,
    pub path_count: usize,
    /// True if the unfinished changes of the tasks were merged as a test and conflicted.
    pub is_merge_conflict: bool,
    /// A sentence about what happens if nobody acts.
    pub text: String,
    /// A sentence about what a person can do.
    pub advice: String,
    pub actions: Vec<PageAction>,
}

/// The changed files of a task's work, as the page lists them above the diff.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffFilesView {
    /// The commit with which the work is compared.
    pub base: CommitId,
    /// The commit of the task's work; empty if the task has none.
    pub commit: Option<CommitId>,
    pub files: Vec<DiffFileView>,
    /// The comments on lines of these files that people have sent to the task's agents.
    #[serde(default)]
    pub comments: Vec<SentCommentView>,
}

/// A comment on lines of a change that a person has sent to the task's agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SentCommentView {
    pub path: String,
    /// The first line, and the last one, which are the same for a comment on one line.
    pub from: usize,
    pub line: usize,
    /// True if the numbers are those of the file before the change.
    pub old: bool,
    pub text: String,
    /// The attempt that received the comment; empty if the next attempt will receive it.
    pub attempt: Option<AttemptId>,
    /// What that attempt reported at its end.
    pub answer: Option<String>,
}

/// A file in the page's list of changed files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffFileView {
    pub path: String,
    /// The path before the change, if the file was renamed.
    pub was: Option<String>,
    pub note: String,
    pub added: usize,
    pub removed: usize,
    /// True if the file is outside the task's manifest (the files that the task may change).
    pub outside: bool,
    /// True if the page shows the file collapsed at first, because the file is large or generated.
    pub closed: bool,
}

/// The results of the checks of one attempt's work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptChecksView {
    pub attempt: AttemptId,
    pub agent: AgentName,
    pub started_wall: u64,
    pub checks: Vec<CheckRunView>,
}

/// One check of an attempt's work, with its output as HTML.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckRunView {
    /// The check's command line, or the name of a built-in check such as `files_exist`.
    pub check: String,
    /// Whether the check passed; empty if it did not run.
    pub passed: Option<bool>,
    /// The way in which the check ended, such as `exited with 1`.
    pub text: String,
    pub ms: u64,
    /// The first error in the output of a failed check, with its file and line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    pub html: String,
}

/// What the agent of one attempt was told and what it answered. The texts are HTML, rendered from
/// Markdown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptResultView {
    pub attempt: AttemptId,
    /// The first prompt; empty if it is not stored on this machine.
    pub prompt_html: Option<String>,
    /// The notes of people that were part of the first prompt.
    pub notes_html: Vec<String>,
    /// The prompts after the first one.
    pub follow_ups_html: Vec<String>,
    pub answer_html: Vec<String>,
    /// The status that the agent reported; empty if it reported none.
    pub status: Option<ResultStatus>,
    pub artifacts: Vec<String>,
    pub learnings: Vec<String>,
    /// The path, on the daemon's machine, of a copy of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_path: Option<String>,
}

/// Some parts of the diff of one file. A part is an HTML table with a fixed number of rows, and the
/// page shows only the parts near the visible area.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffPartsView {
    /// The number of rows of the whole file's diff.
    pub rows: usize,
    pub rows_per_part: usize,
    /// The number of the first part in `html`, counting from 0.
    pub first: usize,
    pub html: Vec<String>,
}

/// Entries of an attempt's transcript, which are the rows of the page's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TranscriptWindowView {
    /// False while the daemon still reads the transcript. Then `entries` has the last entries, and
    /// their numbers are preliminary.
    pub is_complete: bool,
    /// The number of records that the daemon has read.
    pub records: u64,
    /// The number of all entries.
    pub total: u64,
    /// Grows with each change of an entry.
    pub version: u64,
    pub entries: Vec<TranscriptEntryView>,
    /// The numbers of the failed entries, in order.
    pub failures: Vec<u64>,
}

/// One entry of a transcript: a tool call, a message and so on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TranscriptEntryView {
    /// The entry's number, counted from 0.
    pub number: u64,
    pub class: String,
    /// The row. The body of a closed row is empty.
    pub html: String,
    /// True if the row is open until a person closes it.
    pub is_open: bool,
}

/// Lines of one entry of a transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TranscriptLinesView {
    pub html: String,
    /// The number of lines of the entry.
    pub total: u64,
}

/// The lines of a transcript that contain a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TranscriptSearchView {
    /// The first of these lines, in order.
    pub hits: Vec<TranscriptHitView>,
    /// The number of all these lines.
    pub total: u64,
    /// False while the daemon still reads the transcript.
    pub is_complete: bool,
}

/// A line of a transcript that contains a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TranscriptHitView {
    pub entry: u64,
    /// The line of the entry's body, counted from 1. Missing if the title contains the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}
