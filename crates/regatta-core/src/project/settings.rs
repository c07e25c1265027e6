//! The settings of a project as in its file `regatta.toml`, except for the project's name and check
//! commands. The file, the stored project and the API use the same names. An omitted setting has
//! its default.

use serde::{Deserialize, Serialize};

use crate::agent::SandboxLevel;
use crate::ids::AgentName;
use crate::lane::LaneSettings;
use crate::mission::StartMode;
use crate::pattern::PathPattern;
use crate::project::Millis;
use crate::task::IssueType;

/// All settings of a project; each field is a section of `regatta.toml`.
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
    /// The sections `[[rule]]`: rules about all work of the project, such as "no `panic!`". The
    /// rules are checked before a task starts and before its work is merged.
    pub rule: Vec<StandingRule>,
}

impl ProjectSettings {
    pub(super) fn is_default(&self) -> bool {
        *self == ProjectSettings::default()
    }
}

/// The section `[notify]`: how people are notified when something needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct NotifySettings {
    /// Shell command to run for each notification. The environment variable REGATTA_NOTICE has the
    /// notification as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(example = &"./scripts/notify"))]
    pub command: Option<String>,
    /// Set to show notifications on the desktop.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "schema", schemars(example = true))]
    pub desktop: bool,
    /// Hours without notifications, such as 22:00-07:00. Notifications from that time are sent when
    /// the hours end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(example = &"22:00-07:00"))]
    pub quiet: Option<String>,
}

/// The treatment of the user's own checkout of the trunk when finished work is merged into the
/// trunk: update it, or leave it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckoutPolicy {
    #[default]
    Update,
    Skip,
}

/// The form in which a task's finished branch becomes commits of the trunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CommitStyle {
    /// One commit for each task.
    #[default]
    Squash,
    /// The agent's own commits, replayed one by one on top of the trunk.
    Rebase,
    /// A merge commit that keeps the agent's own commits.
    Merge,
}

/// The order in which the landing queue tests finished work: the work of several tasks at the same
/// time, or of one task after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum QueueMode {
    /// Several trial merges are tested at the same time, each with more of the queue.
    #[default]
    Speculative,
    /// The finished work of one task is tested and merged before the work of the next task.
    Serial,
}

/// The commits that are tested by themselves before they become part of the trunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum VerifyMode {
    /// Every commit that is merged into the trunk is tested.
    #[default]
    Every,
    /// Only the last commit of each batch is tested. The messages of the other commits name the
    /// tested commit.
    Tip,
}

/// The reviewer whose approval finished work needs before it is merged into the trunk, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReviewPolicy {
    #[default]
    None,
    Human,
    Agent,
}

/// The treatment of finished work that conflicts with the trunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ConflictPolicy {
    /// An agent resolves the conflict in a new attempt, at most three times. After that, a person
    /// must decide.
    #[default]
    Fixup,
    /// The conflict is resolved by taking the version of the task that owns the file. A task owns a
    /// file if its list of files is the only one that contains the file. If no task or several
    /// tasks list the file, the version of the work being merged is taken. The other version is
    /// kept for a person to check.
    Ownership,
    /// A person must decide about every conflict.
    Fail,
}

/// The treatment of finished work whose agent continued with an assumption because nobody answered
/// its question in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UnansweredPolicy {
    /// The work waits until somebody answers the question.
    #[default]
    Wait,
    /// The work is merged into the trunk, and a warning names the assumption.
    Land,
}

/// When the page asks a person for a confirmation before a change lands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LandConfirmation {
    /// The page asks if nobody opened the change in this browser.
    #[default]
    Unread,
    /// The page always asks.
    Always,
    /// The page never asks.
    Never,
}

/// Settings of the section `[landing]`: how finished work is tested and merged into the trunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct LandingSettings {
    #[cfg_attr(feature = "schema", schemars(example = CheckoutPolicy::Skip))]
    pub checkout: CheckoutPolicy,
    #[cfg_attr(feature = "schema", schemars(example = CommitStyle::Rebase))]
    pub style: CommitStyle,
    #[cfg_attr(feature = "schema", schemars(example = QueueMode::Serial))]
    pub mode: QueueMode,
    /// The commits that are tested: every commit that is merged, or only the last commit of each
    /// batch.
    #[cfg_attr(feature = "schema", schemars(example = VerifyMode::Tip))]
    pub verify: VerifyMode,
    /// Number of trial merges that are tested at the same time. If omitted, the number depends on
    /// the machine: one for each two cores and two gibibytes of memory, at least two with more than
    /// one core, at most eight.
    #[cfg_attr(feature = "schema", schemars(example = 4))]
    pub slots: Option<u32>,
    /// With `verify = "tip"`, the number of finished tasks that are tested together. If omitted,
    /// the number is computed from how often tests failed recently.
    #[cfg_attr(feature = "schema", schemars(example = 6))]
    pub batch: Option<u32>,
    #[cfg_attr(feature = "schema", schemars(example = ReviewPolicy::Human))]
    pub review: ReviewPolicy,
    /// Agent that reviews finished work, with `review = "agent"`. If omitted, another agent of the
    /// mission.
    #[cfg_attr(feature = "schema", schemars(example = &"codex"))]
    pub reviewer: Option<AgentName>,
    /// Paths to which only a person may approve changes, in addition to the built-in paths.
    #[cfg_attr(feature = "schema", schemars(example = ["migrations/**"]))]
    pub protected: Vec<PathPattern>,
    /// When the page asks a person for a confirmation before a change lands.
    #[cfg_attr(feature = "schema", schemars(example = LandConfirmation::Always))]
    pub confirm: LandConfirmation,
    #[cfg_attr(feature = "schema", schemars(example = ConflictPolicy::Ownership))]
    pub on_conflict: ConflictPolicy,
    /// Treatment of work whose agent did not wait for the answer to its question.
    #[cfg_attr(feature = "schema", schemars(example = UnansweredPolicy::Land))]
    pub unanswered: UnansweredPolicy,
    /// Remote to which the trunk is pushed after work has landed, such as `origin`; no push if
    /// omitted.
    #[cfg_attr(feature = "schema", schemars(example = &"origin"))]
    pub push: Option<String>,
    /// Commands to run each time work has landed.
    #[cfg_attr(feature = "schema", schemars(example = ["make preview"]))]
    pub after: Vec<String>,
    /// Command that publishes a release, to run after features or fixes have landed; no release if
    /// omitted.
    #[cfg_attr(feature = "schema", schemars(example = &"make release"))]
    pub release: Option<String>,
    /// Maximum time for which an agent waits for the claim on the trunk before it takes other work.
    #[cfg_attr(feature = "schema", schemars(example = &"90s"))]
    pub merge_timeout: Millis,
    /// Maximum time for which somebody who claimed the trunk with a command may hold this claim,
    /// including renewals.
    #[cfg_attr(feature = "schema", schemars(example = &"20m"))]
    pub max_hold: Millis,
    /// Interval at which unfinished work is trial-merged to warn of conflicts early; 0 means never.
    #[serde(rename = "radar")]
    #[cfg_attr(feature = "schema", schemars(example = &"1m"))]
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
            confirm: LandConfirmation::Unread,
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

/// Settings of the section `[workspace]`: how the working trees of attempts are prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct WorkspaceSettings {
    /// Files that git does not track and that are copied from the user's checkout into each
    /// workspace.
    #[cfg_attr(feature = "schema", schemars(example = [".env"]))]
    pub copy: Vec<PathPattern>,
    /// Commands that run in each new workspace before the agent starts.
    #[cfg_attr(feature = "schema", schemars(example = ["npm ci"]))]
    pub setup: Vec<String>,
    /// Maximum duration of each setup command.
    #[cfg_attr(feature = "schema", schemars(example = &"15m"))]
    pub setup_timeout: Millis,
    /// Number of network ports reserved for each attempt. The agent finds them in the environment
    /// variables `REGATTA_PORT_0`, `REGATTA_PORT_1` and so on.
    #[cfg_attr(feature = "schema", schemars(example = 2))]
    pub ports: u32,
    /// First and last network port that may be reserved for attempts.
    #[cfg_attr(feature = "schema", schemars(example = [41000, 41999]))]
    pub port_range: (u16, u16),
    /// Directories that a workspace contains; empty means all.
    #[cfg_attr(feature = "schema", schemars(example = ["src", "tests"]))]
    pub sparse: Vec<String>,
    /// Maximum size of all workspaces of the project in mebibytes; unlimited if omitted.
    #[cfg_attr(feature = "schema", schemars(example = 20000))]
    pub disk_mb: Option<u64>,
    /// Number of workspaces that are kept after their attempt, so that later attempts can reuse
    /// them.
    #[cfg_attr(feature = "schema", schemars(example = 2))]
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

/// The treatment of work that changed files outside its manifest (the files that the task may
/// change).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EscapePolicy {
    /// Changes to files that the task may not change are recorded and left out of its work. The
    /// rest of the work continues.
    #[default]
    HoldBack,
    /// The task stops until a person decides.
    Block,
}

/// The grouping of a run's work into commits of the trunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CommitGrouping {
    /// One commit for each task, as soon as the task's work has passed its checks.
    #[default]
    Task,
    /// One commit for each wave (tasks that can run at the same time), when the work of the whole
    /// wave has passed its checks.
    Wave,
}

/// The outcome of a task whose agent reports that no change is needed and whose checks pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NotNeededPolicy {
    /// The task is completed without a change.
    #[default]
    Done,
    /// A person decides whether the task is completed.
    Ask,
}

/// Settings of the section `[run]`: how tasks are started, checked and retried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    #[cfg_attr(feature = "schema", schemars(example = 8))]
    pub max_workers: Option<u32>,
    #[cfg_attr(feature = "schema", schemars(example = ["claude", "codex"]))]
    pub agents: Option<Vec<String>>,
    #[cfg_attr(feature = "schema", schemars(example = StartMode::Waves))]
    pub mode: Option<StartMode>,
    /// Grouping of the work into commits of the trunk: one for each task, or one for each wave
    /// (tasks that can run at the same time).
    #[cfg_attr(feature = "schema", schemars(example = CommitGrouping::Wave))]
    pub commits: Option<CommitGrouping>,
    /// Files that are generated from other files, such as lock files. Two tasks whose files lead to
    /// the same generated file do not run at the same time.
    #[cfg_attr(
        feature = "schema",
        schemars(extend("examples" = [[{ "file": "Cargo.lock", "from": ["**/Cargo.toml"] }]]))
    )]
    pub derived: Vec<DerivedFile>,
    /// Directories whose tasks must run one after the other, in addition to the detected
    /// directories. `!PATH` exempts a detected directory.
    #[cfg_attr(feature = "schema", schemars(example = ["internal/db"]))]
    pub serial_packages: Vec<String>,
    #[cfg_attr(feature = "schema", schemars(example = EscapePolicy::Block))]
    pub on_scope_escape: EscapePolicy,
    /// Outcome of a task whose agent reports that no change is needed.
    #[cfg_attr(feature = "schema", schemars(example = NotNeededPolicy::Ask))]
    pub not_needed: NotNeededPolicy,
    /// Set if new test files must be named as is usual in their language.
    #[cfg_attr(feature = "schema", schemars(example = false))]
    pub test_names: bool,
    /// Directory, relative to the checkout, in which the results of tasks are written as files.
    /// Regatta writes one more file next to this directory. That file lists the changes of tasks to
    /// files that they may not change.
    #[cfg_attr(feature = "schema", schemars(example = &"build/results"))]
    pub results: String,
    /// Number of attempts after which a task that keeps failing fails for good or needs a person.
    #[cfg_attr(feature = "schema", schemars(example = 2))]
    pub attempts: u32,
    /// Sandbox in which setup commands and checks run. If omitted, `workspace` if the machine
    /// supports it.
    #[cfg_attr(feature = "schema", schemars(example = SandboxLevel::Strict))]
    pub sandbox: Option<SandboxLevel>,
    /// Sandbox for a task's ratchet (a command that runs after the checks and must also accept the
    /// work). If omitted, the ratchet runs without a sandbox, because it may send results to
    /// outside services.
    #[cfg_attr(feature = "schema", schemars(example = SandboxLevel::Workspace))]
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

impl RunSettings {
    /// Returns the path of `scope-escapes.jsonl`, the file that lists changes outside a task's file
    /// patterns. The file is beside the directory of results.
    pub fn escapes_file_path(&self) -> String {
        let results = self.results.trim_end_matches('/');
        match results.rsplit_once('/') {
            Some((parent, _)) => format!("{parent}/scope-escapes.jsonl"),
            None => "scope-escapes.jsonl".into(),
        }
    }

    /// Returns whether a file of a workspace only carries a message to Regatta (a result or a scope
    /// escape), so that it is not part of the agent's work.
    pub fn is_protocol_path(&self, path: &str) -> bool {
        let results = self.results.trim_end_matches('/');
        path == self.escapes_file_path()
            || path
                .strip_prefix(results)
                .is_some_and(|rest| rest.starts_with('/'))
    }
}

/// A rule that a file, such as a lock file, is generated from other files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DerivedFile {
    /// The generated file, as a pattern.
    #[cfg_attr(feature = "schema", schemars(example = &"Cargo.lock"))]
    pub file: PathPattern,
    /// The files from which `file` is generated.
    #[cfg_attr(feature = "schema", schemars(example = ["**/Cargo.toml"]))]
    pub from: Vec<PathPattern>,
}

/// Settings of the section `[knowledge]`: where the project keeps what agents learned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct KnowledgeSettings {
    /// Directories with files of facts that earlier work found out to help later tasks.
    #[cfg_attr(feature = "schema", schemars(example = ["docs/notes"]))]
    pub paths: Vec<String>,
}

impl Default for KnowledgeSettings {
    fn default() -> KnowledgeSettings {
        KnowledgeSettings {
            paths: vec![".agents/learnings".into()],
        }
    }
}

/// Settings of the section `[leads]`: missions that an agent leads by giving tasks to workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct LeadSettings {
    /// Maximum number of missions that can have a lead at the same time. Further missions are
    /// queued.
    #[cfg_attr(feature = "schema", schemars(example = 2))]
    pub max_leads: u32,
    /// Agent whose program is used for leads. If omitted, the first of `run.agents`, or else the
    /// only agent.
    #[cfg_attr(feature = "schema", schemars(example = &"claude"))]
    pub agent: Option<AgentName>,
    /// Agents whose programs are used in turn for a lead's workers. If empty, the lead's own
    /// program is used.
    #[cfg_attr(feature = "schema", schemars(example = ["codex"]))]
    pub workers: Vec<AgentName>,
    /// Maximum number of workers of a lead.
    #[cfg_attr(feature = "schema", schemars(example = 6))]
    pub max_workers: u32,
    /// Maximum number of tasks that a mission may get from its lead.
    #[cfg_attr(feature = "schema", schemars(example = 20))]
    pub max_children: u32,
    /// Interval at which a summary of a mission with a lead is posted in its channel if the mission
    /// has changed; 0 means never.
    #[cfg_attr(feature = "schema", schemars(example = &"5m"))]
    pub checkpoint_interval: Millis,
    /// Maximum time for which a lead may work on a mission; 0 means unlimited.
    #[cfg_attr(feature = "schema", schemars(example = &"8h"))]
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

/// The treatment of a person's message that is not a command such as `!mission`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TriagePolicy {
    /// An agent reads the message and answers it, makes a task of it, or hands it to a lead.
    #[default]
    Agent,
    /// The message becomes a task in the backlog, which waits for a person to schedule it.
    Task,
    /// The message is ignored.
    Off,
}

/// Settings of the section `[router]`: how messages in the project's channel become requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RouterSettings {
    #[cfg_attr(feature = "schema", schemars(example = TriagePolicy::Task))]
    pub triage: TriagePolicy,
    /// Agent whose program answers questions. If omitted, the agent that is used for leads.
    #[cfg_attr(feature = "schema", schemars(example = &"claude"))]
    pub agent: Option<AgentName>,
    /// Maximum number of questions that are answered at once.
    #[cfg_attr(feature = "schema", schemars(example = 2))]
    pub max_answers: u32,
    /// Agents whose messages are treated as requests, like the messages of people.
    #[cfg_attr(feature = "schema", schemars(example = ["planner"]))]
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

/// The effect of a standing rule (a rule about all work of a project) on work that matches it:
/// block, warn, or nothing.
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

/// A rule about all work of a project, from a section `[[rule]]`. The conditions must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct StandingRule {
    #[cfg_attr(feature = "schema", schemars(example = &"no-panic"))]
    pub name: String,
    /// Message that explains the rule to the people and agents whose work matches it.
    #[serde(rename = "says")]
    #[cfg_attr(feature = "schema", schemars(example = &"return an error instead of panicking"))]
    pub message: String,
    /// Types of tasks to which the rule applies; empty means all.
    #[cfg_attr(feature = "schema", schemars(example = ["bug"]))]
    pub types: Vec<IssueType>,
    /// Files to which the rule applies; empty means all.
    #[cfg_attr(feature = "schema", schemars(example = ["src/**"]))]
    pub files: Vec<PathPattern>,
    /// Text that a changed file must contain in an added line for the rule to match; any change if
    /// omitted.
    #[cfg_attr(feature = "schema", schemars(example = &"panic!("))]
    pub pattern: Option<String>,
    #[cfg_attr(feature = "schema", schemars(example = RuleAction::Block))]
    pub action: RuleAction,
}
