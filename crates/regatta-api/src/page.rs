//! What the web page draws: each entity whole, as it is sent over the live stream.
//!
//! The page computes no status. What a lane is at, what may be done about an item and how that is typed in a shell is
//! said here; the page draws it.

use regatta_core::agent::Capacity;
use regatta_core::attempt::Attempt;
use regatta_core::budget;
use regatta_core::cost::{Band, Forecast};
use regatta_core::ids::{AgentName, AttemptId, CommitId, LandingId, MemberName, MissionId, ProjectName, TaskId};
use regatta_core::map::Folder;
use serde::{Deserialize, Serialize};

use crate::team::TeamView;
use crate::view::{BudgetView, ConversationLineView, CostView, InboxView, QueueView, TaskView};

/// A way in for a browser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenView {
    /// The page's address with the code behind the `#`.
    pub url: String,
    pub code: String,
    /// How long the code works, if nobody uses it.
    pub lasts_ms: u64,
}

/// How something stands that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Ok,
    Warn,
    Bad,
}

/// One thing that was looked at, and its fix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckLine {
    pub id: String,
    pub level: Level,
    pub text: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fix: String,
}

/// One of the programs that are known, and whether it is here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProviderLine {
    pub preset: String,
    pub provider: String,
    pub program: Option<String>,
    pub version: Option<String>,
    pub signed_in: String,
    pub fix: Option<String>,
}

/// What a doctor finds on the daemon's machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoctorView {
    pub checks: Vec<CheckLine>,
    pub providers: Vec<ProviderLine>,
}

/// What a lane, a task or a stretch of time is at. Each has one glyph and one colour on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum At {
    // Most urgent first.
    Failed,
    Needs,
    Waiting,
    Landing,
    Review,
    Working,
    Idle,
    Offline,
    Landed,
}

/// Something that can be done, as a button and as a line in a shell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Action {
    pub label: String,
    pub verb: String,
    pub input: serde_json::Value,
    /// The same from a shell.
    pub cli: String,
    /// The one that is meant most often.
    #[serde(default)]
    pub first: bool,
    /// It cannot be taken back: the page asks once.
    #[serde(default)]
    pub grave: bool,
    /// The key that does it on the thing's own page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<char>,
    /// Words are needed: where in the input they go, as a JSON pointer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// The words are this form's fields, as the text of a JSON object: the restricted JSON Schema an agent sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<serde_json::Value>,
    /// One of several can be chosen for it; as the input says if nobody chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<Choice>,
}

/// What can be chosen for an action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Choice {
    /// What is chosen, in words.
    pub label: String,
    /// Where in the input it goes, as a JSON pointer.
    pub to: String,
    /// The option that says it in a shell.
    pub flag: String,
    pub of: Vec<String>,
    /// What holds if nobody chooses; nothing when the daemon decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
}

/// A piece of the sentence that says how the fleet is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Part {
    pub text: String,
    #[serde(default)]
    pub strong: bool,
    /// The page that says more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// How much of the fleet fits a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// A row each, with words in it.
    Few,
    /// A thin row each.
    Some,
    /// A cell each, and shares.
    Many,
}

/// The fleet in one sentence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeadView {
    pub sentence: Vec<Part>,
    pub needs_you: usize,
    /// Attempts that run, of those that may.
    pub running: usize,
    pub slots: u32,
    pub agents: usize,
    pub size: Size,
    pub projects: Vec<ProjectLine>,
    pub missions: Vec<MissionLine>,
    pub version: String,
    /// What may become of words to the whole team; the first is meant most often.
    pub composers: Vec<Action>,
    /// How many tasks there ever were. The topic `tasks` has the open ones and the latest that ended.
    #[serde(default)]
    pub tasks: u64,
}

/// A project's name and trunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProjectLine {
    pub name: ProjectName,
    pub trunk: String,
    pub path: String,
}

/// How far a mission is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionLine {
    pub id: MissionId,
    pub title: String,
    pub landed: u64,
    pub tasks: u64,
    /// Its place in the line for a lead, counting from 1, while it waits for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
}

impl MissionLine {
    /// Returns how far the mission is, in words.
    pub fn progress(&self) -> String {
        match (self.place, self.tasks) {
            (Some(place), _) => format!("in line for a lead, number {place}"),
            (None, 0) => "no task yet".into(),
            (None, tasks) => format!("{} of {tasks} landed", self.landed),
        }
    }
}

/// Something that needs a person, and what may be said to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ItemView {
    #[serde(flatten)]
    pub item: InboxView,
    /// Items with the same one ask the same, and can be answered at once.
    pub group: String,
    pub actions: Vec<Action>,
}

/// An agent's lane as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaneView {
    pub agent: AgentName,
    /// The provider, or the runtime where none is named.
    pub provider: String,
    pub at: At,
    /// In a few words.
    pub text: String,
    pub task: Option<TaskId>,
    pub subject: String,
    pub since_wall: u64,
    pub capacity: Capacity,
    /// The model that was asked for, and the one that runs.
    pub wanted: String,
    pub running: String,
    /// How full the model's context is, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u32>,
    /// What it cost today, in millionths of a dollar, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
    pub actions: Vec<Action>,
}

/// A stretch of a lane. Without an end it grows to now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bar {
    pub from: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    pub at: At,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// An agent's lane over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BarsView {
    pub agent: AgentName,
    pub bars: Vec<Bar>,
}

/// How many of a provider's lanes were at what, minute by minute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SharesView {
    pub provider: String,
    pub lanes: usize,
    /// The minute, and how many were at each of the states in the order of [`At`].
    pub minutes: Vec<(u64, Vec<u32>)>,
}

/// A landing queue, and what may be done about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrainView {
    #[serde(flatten)]
    pub queue: QueueView,
    pub tip: Option<CommitId>,
    /// In words: how many wait, how old the oldest is.
    pub text: String,
    pub actions: Vec<Action>,
    /// What may be done about one of them.
    pub each: Vec<(LandingId, Vec<Action>)>,
    /// When each would have landed if it took as long as others did.
    #[serde(default)]
    pub expected: Vec<(LandingId, u64)>,
}

/// What today costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpendView {
    pub today: budget::Spend,
    /// Today's ceiling in millionths of a dollar.
    pub cap: Option<u64>,
    /// When it is reached, if there is one and a rate to say it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Forecast>,
    /// Today so far, by the minute: date, and millionths of a dollar.
    pub line: Vec<(u64, u64)>,
    /// The same by provider, the dearest first: a sum for each point of the line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bands: Vec<Band>,
    /// In words.
    pub text: String,
}

/// What today was spent on, what came of it, and the budgets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostPage {
    #[serde(flatten)]
    pub cost: CostView,
    pub budgets: Vec<BudgetView>,
}

/// A task in a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RowView {
    pub id: TaskId,
    pub project: ProjectName,
    pub mission: Option<MissionId>,
    pub subject: String,
    pub word: String,
    pub at: At,
    pub agent: Option<AgentName>,
    /// Why it waits, or what it is doing.
    pub text: String,
    pub since_wall: u64,
    pub blocked_by: Vec<TaskId>,
    pub wave: u32,
    pub priority: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
}

/// One line of what must be so before work lands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    /// Nothing while it is not known.
    pub good: Option<bool>,
    pub text: String,
}

/// One task, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskPage {
    #[serde(flatten)]
    pub task: TaskView,
    pub at: At,
    pub checklist: Vec<Check>,
    /// Where the time went.
    pub time: Vec<Bar>,
    pub tries: Vec<Attempt>,
    /// The attempt whose log is shown first.
    pub log: Option<AttemptId>,
    pub wanted: String,
    pub running: String,
    pub branch: String,
    /// What it reports is a plan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan: bool,
    pub actions: Vec<Action>,
}

/// A team: wanted, resolved and live side by side, and what may be done about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamPage {
    #[serde(flatten)]
    pub team: TeamView,
    pub actions: Vec<Action>,
    /// What may be done about one member.
    pub each: Vec<(MemberName, Vec<Action>)>,
}

/// A conversation in an outside service, and what may be done about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConversationPage {
    #[serde(flatten)]
    pub line: ConversationLineView,
    pub actions: Vec<Action>,
}

/// A project's files: who is where, until when, and how hot it is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FilesView {
    pub project: ProjectName,
    /// As a tree, where two meet first.
    pub folders: Vec<Folder>,
    /// In words: how many are held and wanted, how many changes landed today, and where two meet.
    pub text: String,
    pub radar: regatta_core::radar::Radar,
}
