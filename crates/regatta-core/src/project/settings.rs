//! The settings of a project in `regatta.toml`, without its name and its checks. The file, the
//! board and the API use the same names. An omitted field has its default.

use serde::{Deserialize, Serialize};

use crate::agent::SandboxLevel;
use crate::ids::AgentName;
use crate::lane::LaneSettings;
use crate::mission::StartMode;
use crate::pattern::PathPattern;
use crate::project::Millis;
use crate::task::IssueType;

/// All settings of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ProjectSettings {
    pub landing: LandingSettings,
    pub workspace: WorkspaceSettings,
    pub run: RunSettings,
    pub knowledge: KnowledgeSettings,
    pub leads: LeadSettings,
    pub router: RouterSettings,
    pub lanes: LaneSettings,
    pub notify: NotifySettings,
    /// `[[rule]]`: standing rules, which are applied before a start and before a landing.
    pub rule: Vec<StandingRule>,
}

impl ProjectSettings {
    pub(super) fn is_default(&self) -> bool {
        *self == ProjectSettings::default()
    }
}

/// The section `[notify]`: notifications about inbox items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct NotifySettings {
    /// Shell command to run for each notification. REGATTA_NOTICE has the notification as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Show desktop notifications.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub desktop: bool,
    /// Hours without notifications, such as 22:00-07:00. Notifications from that time are sent when
    /// the hours end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet: Option<String>,
}

/// The treatment of the user's own checkout of the trunk when the trunk moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckoutPolicy {
    #[default]
    Update,
    Skip,
}

/// The form in which a branch becomes commits of the trunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CommitStyle {
    /// One commit per task.
    #[default]
    Squash,
    /// The agent's own commits, one by one.
    Rebase,
    /// A merge commit.
    Merge,
}

/// The way in which the queue validates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum QueueMode {
    /// Several prefixes of the queue are validated at once.
    #[default]
    Speculative,
    /// One landing is validated after the other.
    Serial,
}

/// The commits of the trunk that are validated as their own exact tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum VerifyMode {
    /// Every commit that lands.
    #[default]
    Every,
    /// Only the last commit of each batch; the other commits name it in a trailer.
    Tip,
}

/// The reviewer of work before it lands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReviewPolicy {
    #[default]
    None,
    Human,
    Agent,
}

/// The treatment of work that conflicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ConflictPolicy {
    /// An attempt fixes it, at most three times.
    #[default]
    Fixup,
    /// The file's single owner wins; without one, the branch being merged. The other side is kept.
    Ownership,
    /// A person decides at once.
    Fail,
}

/// The treatment of finished work whose agent continued with an assumption because nobody answered
/// its question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UnansweredPolicy {
    /// The work waits for the answer.
    #[default]
    Wait,
    /// The work lands, and a warning names the assumption.
    Land,
}

/// The section `[landing]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct LandingSettings {
    pub checkout: CheckoutPolicy,
    pub style: CommitStyle,
    pub mode: QueueMode,
    /// Validate every commit that lands, or only the last commit of each batch.
    pub verify: VerifyMode,
    /// Number of trees that are validated at once. If omitted, it fits the machine: one for each
    /// two cores and two gibibytes, at least two with more than one core, at most eight.
    pub slots: Option<u32>,
    /// With `verify = "tip"`, the number of landings validated together; derived from the failure
    /// rate if omitted.
    pub batch: Option<u32>,
    pub review: ReviewPolicy,
    /// The agent that reviews, with `review = "agent"`.
    pub reviewer: Option<AgentName>,
    /// Paths that always need a person's approval, besides the built-in ones.
    pub protected: Vec<PathPattern>,
    pub on_conflict: ConflictPolicy,
    /// Treatment of work whose agent did not wait for the answer to a question.
    pub unanswered: UnansweredPolicy,
    /// Remote to push to after each landing.
    pub push: Option<String>,
    /// Commands to run after each landing.
    pub after: Vec<String>,
    /// Command that releases unreleased features and fixes.
    pub release: Option<String>,
    /// Maximum wait for the trunk, after which an agent takes other work.
    pub merge_timeout: Millis,
    /// Maximum time for which a person may hold the trunk, including renewals.
    pub max_hold: Millis,
    /// Interval of trial merges between work in progress; 0 means never.
    #[serde(rename = "radar")]
    pub collision_scan_interval: Millis,
}

impl Default for LandingSettings {
    fn default() -> LandingSettings {
        LandingSettings {
            checkout: CheckoutPolicy::Update,
            style: CommitStyle::Squash,
            mode: QueueMode::Speculative,
            verify: VerifyMode::Every,
            slots: None,
            batch: None,
            review: ReviewPolicy::None,
            reviewer: None,
            protected: vec![],
            on_conflict: ConflictPolicy::Fixup,
            unanswered: UnansweredPolicy::Wait,
            push: None,
            after: vec![],
            release: None,
            merge_timeout: Millis::seconds(60),
            max_hold: Millis::seconds(600),
            collision_scan_interval: Millis::seconds(30),
        }
    }
}

/// The section `[workspace]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct WorkspaceSettings {
    /// Untracked files to copy from the user's checkout.
    pub copy: Vec<PathPattern>,
    /// Commands that set up a fresh workspace.
    pub setup: Vec<String>,
    /// Maximum time of one setup command.
    pub setup_timeout: Millis,
    /// Number of ports for each attempt, in `REGATTA_PORT_0` and following variables.
    pub ports: u32,
    /// First and last port that may be assigned.
    pub port_range: (u16, u16),
    /// Directories to check out; empty means all.
    pub sparse: Vec<String>,
    /// Maximum size of all workspaces of the project in mebibytes; unlimited if omitted.
    pub disk_mb: Option<u64>,
    /// Number of finished workspaces that are kept for reuse.
    pub pool: u32,
}

impl Default for WorkspaceSettings {
    fn default() -> WorkspaceSettings {
        WorkspaceSettings {
            copy: vec![],
            setup: vec![],
            setup_timeout: Millis::seconds(600),
            ports: 0,
            port_range: (40_000, 49_999),
            sparse: vec![],
            disk_mb: None,
            pool: 4,
        }
    }
}

/// The treatment of work that changed files outside its manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EscapePolicy {
    /// The files outside are held back and recorded, and the rest continues.
    #[default]
    HoldBack,
    /// The task needs a person.
    Block,
}

/// The form in which the work of a run becomes commits of the trunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CommitGrouping {
    /// One commit for each task, when it has passed.
    #[default]
    Task,
    /// One commit for each wave, when all of it has passed.
    Wave,
}

/// The outcome of a task if its agent says that no change is needed and its checks pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NotNeededPolicy {
    /// The task is done without a change.
    #[default]
    Done,
    /// A person decides.
    Ask,
}

/// The section `[run]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    pub max_workers: Option<u32>,
    pub agents: Option<Vec<String>>,
    pub mode: Option<StartMode>,
    /// One commit for each task, or one for each wave.
    pub commits: Option<CommitGrouping>,
    /// Files that are derived from others, such as lock files. Two tasks that derive the same file
    /// collide.
    pub derived: Vec<DerivedFile>,
    /// Packages whose tasks run one after the other. `!PATH` exempts a package that was detected as
    /// one.
    pub serial_packages: Vec<String>,
    pub on_scope_escape: EscapePolicy,
    /// The outcome of a task if its agent says that no change is needed.
    pub not_needed: NotNeededPolicy,
    /// Require that new test files follow their language's naming convention.
    pub test_names: bool,
    /// Directory for results and scope escapes, relative to the checkout.
    pub results: String,
    /// Number of attempts before a failing task fails for good or needs a person.
    pub attempts: u32,
    /// Sandbox of setup commands and checks. If omitted, `workspace` where the machine supports it.
    pub sandbox: Option<SandboxLevel>,
    /// Sandbox of a ratchet, which may report to outside services. If omitted, none.
    pub ratchet_sandbox: Option<SandboxLevel>,
}

impl Default for RunSettings {
    fn default() -> RunSettings {
        RunSettings {
            max_workers: None,
            agents: None,
            mode: None,
            commits: None,
            derived: vec![],
            serial_packages: vec![],
            on_scope_escape: EscapePolicy::HoldBack,
            not_needed: NotNeededPolicy::Done,
            test_names: true,
            results: ".agents/swarm/results".into(),
            attempts: 3,
            sandbox: None,
            ratchet_sandbox: None,
        }
    }
}

/// A file that is derived from others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DerivedFile {
    /// The derived file.
    pub file: PathPattern,
    /// The files from which it is derived.
    pub from: Vec<PathPattern>,
}

/// The section `[knowledge]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct KnowledgeSettings {
    /// Directories with the project's learnings.
    pub paths: Vec<String>,
}

impl Default for KnowledgeSettings {
    fn default() -> KnowledgeSettings {
        KnowledgeSettings {
            paths: vec![".agents/learnings".into()],
        }
    }
}

/// The section `[leads]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct LeadSettings {
    /// Maximum number of missions with a lead at once; the others are queued.
    pub max_leads: u32,
    /// Agent whose program leads. If omitted, the first of `run.agents`, or else the only agent.
    pub agent: Option<AgentName>,
    /// Agents whose programs work for a lead, in turn. If empty, the lead's own.
    pub workers: Vec<AgentName>,
    /// Maximum number of simultaneous attempts of a lead's mission.
    pub max_workers: u32,
    /// Maximum number of tasks that a lead may add to its mission.
    pub max_children: u32,
    /// Interval of a mission's summaries on the bus, which are posted only after changes; 0 means
    /// never.
    pub checkpoint_interval: Millis,
    /// Maximum time for which a lead may lead a mission; 0 means unlimited.
    pub timeout: Millis,
}

impl Default for LeadSettings {
    fn default() -> LeadSettings {
        LeadSettings {
            max_leads: 3,
            agent: None,
            workers: vec![],
            max_workers: 4,
            max_children: 12,
            checkpoint_interval: Millis::seconds(60),
            timeout: Millis::seconds(4 * 3_600),
        }
    }
}

/// The treatment of a message that is not a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TriagePolicy {
    /// A cheap attempt answers it, makes a task of it, or hands it to a lead.
    #[default]
    Agent,
    /// It becomes a task of the backlog.
    Task,
    /// The message is ignored.
    Off,
}

/// The section `[router]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RouterSettings {
    pub triage: TriagePolicy,
    /// Agent whose program answers questions. If omitted, the agent that leads.
    pub agent: Option<AgentName>,
    /// Maximum number of questions that are answered at once.
    pub max_answers: u32,
    /// Agents whose messages count like a person's.
    pub from: Vec<AgentName>,
}

impl Default for RouterSettings {
    fn default() -> RouterSettings {
        RouterSettings {
            triage: TriagePolicy::Agent,
            agent: None,
            max_answers: 4,
            from: vec![],
        }
    }
}

/// The effect of a standing rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    Block,
    #[default]
    Warn,
    #[serde(rename = "leave")]
    Ignore,
}

/// A standing rule, `[[rule]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct StandingRule {
    pub name: String,
    /// Message to people and agents whose work the rule matches.
    #[serde(rename = "says")]
    pub message: String,
    /// Types of the matching tasks; empty means all.
    pub types: Vec<IssueType>,
    /// Files that a matching task or change touches; empty means all.
    pub files: Vec<PathPattern>,
    /// Text that a matching change adds in a line.
    pub pattern: Option<String>,
    pub action: RuleAction,
}
