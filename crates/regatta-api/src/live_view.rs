//! The data of the web page: each entity whole, as the live stream sends it.
//!
//! The page computes no status. This module supplies the state of each lane, the actions that are
//! possible on each item, and the shell command of each action; the page draws them.

use regatta_core::agent::Capacity;
use regatta_core::attempt::Attempt;
use regatta_core::budget;
use regatta_core::cost::{CapForecast, ProviderBand};
use regatta_core::file_map::FolderCell;
use regatta_core::ids::{
    AgentName, AttemptId, CommitId, LandingId, MemberName, MissionId, ProjectName, TaskId,
};
use serde::{Deserialize, Serialize};

pub use regatta_core::display::DisplayState;
use regatta_core::display::FleetSummary;

use crate::team::TeamView;
use crate::view::{BudgetView, ConversationLineView, CostView, InboxView, QueueView, TaskView};

/// A one-time sign-in for a browser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SignInView {
    /// The page's address with the code behind the `#`.
    pub url: String,
    pub code: String,
    /// Lifetime of the unused code.
    pub lasts_ms: u64,
}

/// Severity of a check's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckLevel {
    Ok,
    Warn,
    Bad,
}

/// The result of one check, and its fix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoctorCheck {
    pub id: String,
    pub level: CheckLevel,
    pub text: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fix: String,
}

/// A known agent program, and whether it is installed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProviderProgram {
    pub preset: String,
    pub provider: String,
    pub program: Option<String>,
    pub version: Option<String>,
    pub signed_in: String,
    pub fix: Option<String>,
}

/// The doctor's findings on the daemon's machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoctorView {
    pub checks: Vec<DoctorCheck>,
    pub providers: Vec<ProviderProgram>,
}
/// An action, as a button and as a shell command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PageAction {
    pub label: String,
    pub verb: String,
    pub input: serde_json::Value,
    /// The same as a shell command.
    pub cli: String,
    /// The default action.
    #[serde(default)]
    pub first: bool,
    /// The action cannot be undone, so the page asks for confirmation once.
    #[serde(default)]
    pub grave: bool,
    /// The key that triggers it on the item's own page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<char>,
    /// JSON pointer to the place of a required text in the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// Fields of the required text: the restricted JSON Schema that an agent sent. The text is then
    /// a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<serde_json::Value>,
    /// A value that the person can choose; without a choice the input's own value counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<ActionChoice>,
}

/// The choice that an action offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActionChoice {
    /// Name of the choice.
    pub label: String,
    /// JSON pointer to the place of the chosen value in the input.
    pub to: String,
    /// The option of the shell command that sets it.
    pub flag: String,
    pub of: Vec<String>,
    /// The value without a choice; empty when the daemon decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
}

/// A piece of the sentence that describes the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SentencePart {
    pub text: String,
    #[serde(default)]
    pub strong: bool,
    /// The page with the details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// The amount of detail with which the fleet fits on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FleetSize {
    /// One row with text per agent.
    Few,
    /// One thin row per agent.
    Some,
    /// One cell per agent, with shares per state.
    Many,
}

/// The fleet in one sentence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetSummaryView {
    /// The counts that every view shows.
    pub summary: FleetSummary,
    pub sentence: Vec<SentencePart>,
    pub needs_you: usize,
    /// Number of running attempts, of `slots` that may run.
    pub running: usize,
    pub slots: u32,
    pub agents: usize,
    pub size: FleetSize,
    pub projects: Vec<ProjectSummary>,
    pub missions: Vec<MissionProgress>,
    pub version: String,
    /// Actions on a text that a person writes to the whole team; the first is the default.
    pub composers: Vec<PageAction>,
    /// Number of all tasks since the beginning. The topic `tasks` has the open tasks and the latest
    /// that ended.
    #[serde(default)]
    pub tasks: u64,
}

/// A project's name and trunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProjectSummary {
    pub name: ProjectName,
    pub trunk: String,
    pub path: String,
}

/// The progress of a mission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionProgress {
    pub id: MissionId,
    pub title: String,
    pub landed: u64,
    pub tasks: u64,
    /// Its position in the queue for a lead, counting from 1, while it waits for a lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
}

impl MissionProgress {
    /// Returns the progress of the mission in words.
    pub fn progress_text(&self) -> String {
        match (self.place, self.tasks) {
            (Some(place), _) => format!("queued for a lead, position {place}"),
            (None, 0) => "no task yet".into(),
            (None, tasks) => format!("{} of {tasks} landed", self.landed),
        }
    }
}

/// An inbox item with its actions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InboxItemView {
    #[serde(flatten)]
    pub item: InboxView,
    /// Items with the same group ask the same and can be answered together.
    pub group: String,
    pub actions: Vec<PageAction>,
}

/// An agent's lane at present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentLaneView {
    pub agent: AgentName,
    /// The provider, or the runtime if no provider is named.
    pub provider: String,
    pub at: DisplayState,
    /// The state in a few words.
    pub text: String,
    pub task: Option<TaskId>,
    pub subject: String,
    pub since_wall: u64,
    pub capacity: Capacity,
    /// The model that was asked for; `running` is the model that runs.
    pub wanted: String,
    pub running: String,
    /// Used share of the model's context, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u32>,
    /// Cost today in millionths of a dollar, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
    pub actions: Vec<PageAction>,
}

/// A stretch of a lane. A stretch without an end grows to the present.
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

/// An agent's lane over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaneBarsView {
    pub agent: AgentName,
    pub bars: Vec<LaneBar>,
}

/// Number of a provider's lanes in each state, minute by minute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StateSharesView {
    pub provider: String,
    pub lanes: usize,
    /// The minute, and the number of lanes in each state in the order of [`DisplayState`].
    pub minutes: Vec<(u64, Vec<u32>)>,
}

/// A landing queue with its actions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueuePage {
    #[serde(flatten)]
    pub queue: QueueView,
    pub tip: Option<CommitId>,
    /// In words: the number of waiting landings and the age of the oldest.
    pub text: String,
    pub actions: Vec<PageAction>,
    /// Actions on each landing.
    pub each: Vec<(LandingId, Vec<PageAction>)>,
    /// When each landing would land if it took as long as others did.
    #[serde(default)]
    pub expected: Vec<(LandingId, u64)>,
}

/// Today's cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TodaySpendView {
    pub today: budget::Spend,
    /// Today's ceiling in millionths of a dollar.
    pub cap: Option<u64>,
    /// When the ceiling is reached, if there is a ceiling and a rate to compute it from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<CapForecast>,
    /// Cost today, by the minute: date, and millionths of a dollar.
    pub line: Vec<(u64, u64)>,
    /// The same by provider, the most expensive first: a sum for each point of the line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bands: Vec<ProviderBand>,
    /// The cost in words.
    pub text: String,
}

/// Today's cost with its breakdown and results, and the budgets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostPage {
    #[serde(flatten)]
    pub cost: CostView,
    pub budgets: Vec<BudgetView>,
}

/// A task in one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskRowView {
    pub id: TaskId,
    pub project: ProjectName,
    pub mission: Option<MissionId>,
    pub subject: String,
    pub word: String,
    pub at: DisplayState,
    pub agent: Option<AgentName>,
    /// Why it waits, or its activity.
    pub text: String,
    pub since_wall: u64,
    pub blocked_by: Vec<TaskId>,
    pub wave: u32,
    pub priority: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
}

/// One condition that must hold before work lands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LandingCondition {
    /// Empty while the result is not known.
    pub good: Option<bool>,
    pub text: String,
}

/// One task with all details.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskPage {
    #[serde(flatten)]
    pub task: TaskView,
    pub at: DisplayState,
    pub checklist: Vec<LandingCondition>,
    /// The activities of the task over time.
    pub time: Vec<LaneBar>,
    pub tries: Vec<Attempt>,
    /// The attempt whose log is shown first.
    pub log: Option<AttemptId>,
    pub wanted: String,
    pub running: String,
    pub branch: String,
    /// The report of this task is a plan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan: bool,
    pub actions: Vec<PageAction>,
}

/// A team: desired, resolved and live state side by side, with its actions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamPage {
    #[serde(flatten)]
    pub team: TeamView,
    pub actions: Vec<PageAction>,
    /// Actions on each member.
    pub each: Vec<(MemberName, Vec<PageAction>)>,
}

/// A conversation in an outside service, with its actions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConversationPage {
    #[serde(flatten)]
    pub line: ConversationLineView,
    pub actions: Vec<PageAction>,
}

/// A project's files: the work on each, until when, and how contended each is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProjectFilesView {
    pub project: ProjectName,
    /// As a tree; files with more than one claimant come first.
    pub folders: Vec<FolderCell>,
    /// In words: the number of held and wanted files, of changes that landed today, and of
    /// overlaps.
    pub text: String,
    pub radar: regatta_core::collision_forecast::CollisionForecast,
}
