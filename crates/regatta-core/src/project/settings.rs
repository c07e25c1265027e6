//! What `regatta.toml` says of a project, beyond its name and its checks. The same words in the file, on the board
//! and in the API; a field that is not given has its default.

use serde::{Deserialize, Serialize};

use crate::agent::Level;
use crate::ids::AgentName;
use crate::lane::Lanes;
use crate::mission::Mode;
use crate::pattern::PathPattern;
use crate::project::Span;
use crate::task::IssueType;

/// Everything that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub landing: Landing,
    pub workspace: Workspace,
    pub run: Run,
    pub knowledge: Knowledge,
    pub leads: Leads,
    pub router: Router,
    pub lanes: Lanes,
    pub notify: Notify,
    /// `[[rule]]`: what past work taught, applied before a start and before a landing.
    pub rule: Vec<StandingRule>,
}

impl Settings {
    pub(super) fn is_default(&self) -> bool {
        *self == Settings::default()
    }
}

/// `[notify]`: how a person hears of what needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Notify {
    /// A shell command, run for each notice; the notice is in REGATTA_NOTICE, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Show the machine's own notices.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub desktop: bool,
    /// Hours in which nothing is sent, such as 22:00-07:00; what waited then is told when they end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet: Option<String>,
}

/// What happens to the user's own checkout of the trunk when the trunk moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Checkout {
    #[default]
    Update,
    Skip,
}

/// How a branch becomes commits of the trunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// One commit a task.
    #[default]
    Squash,
    /// The agent's own commits, one by one.
    Rebase,
    /// A merge commit.
    Merge,
}

/// How the queue validates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum QueueMode {
    /// Several prefixes of the queue at once.
    #[default]
    Speculative,
    /// One landing after the other.
    Serial,
}

/// Which commits of the trunk are validated as their own exact tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verify {
    /// Every commit that lands.
    #[default]
    Every,
    /// Only the last commit of each batch; the other commits name it in a trailer.
    Tip,
}

/// Who looks at work before it lands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Review {
    #[default]
    None,
    Human,
    Agent,
}

/// What becomes of work that conflicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// An attempt mends it, at most three times.
    #[default]
    Fixup,
    /// The file's single owner wins, else the branch being merged; the other side is kept.
    Ownership,
    /// A person decides at once.
    Fail,
}

/// What becomes of finished work whose agent went on with an assumption, because nobody had answered its question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unanswered {
    /// It waits for the answer.
    #[default]
    Wait,
    /// It lands, and a warning names the assumption.
    Land,
}

/// `[landing]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Landing {
    pub checkout: Checkout,
    pub style: Style,
    pub mode: QueueMode,
    /// Validate every commit that lands, or only the last commit of each batch.
    pub verify: Verify,
    /// How many trees are validated at once; what fits the machine when not given: one for each two cores and two
    /// gibibytes, two at least with more than one core, eight at most.
    pub slots: Option<u32>,
    /// With `verify = "tip"`, the number of landings validated together; derived from the failure rate if omitted.
    pub batch: Option<u32>,
    pub review: Review,
    /// Who reviews, when an agent does.
    pub reviewer: Option<AgentName>,
    /// Paths that always need a person, beside the built-in ones.
    pub protected: Vec<PathPattern>,
    pub on_conflict: OnConflict,
    /// Whether work waits for the answer to a question that its agent did not wait for.
    pub unanswered: Unanswered,
    /// The remote to push to after each landing.
    pub push: Option<String>,
    /// Commands to run after each landing.
    pub after: Vec<String>,
    /// The command that makes a release of unreleased features and fixes.
    pub release: Option<String>,
    /// How long somebody waits for the trunk before they are told to take other work.
    pub merge_timeout: Span,
    /// How long the trunk may be held by hand, whatever is renewed.
    pub max_hold: Span,
    /// How often work in progress is tried against each other; 0 is never.
    pub radar: Span,
}

impl Default for Landing {
    fn default() -> Landing {
        Landing {
            checkout: Checkout::Update,
            style: Style::Squash,
            mode: QueueMode::Speculative,
            verify: Verify::Every,
            slots: None,
            batch: None,
            review: Review::None,
            reviewer: None,
            protected: vec![],
            on_conflict: OnConflict::Fixup,
            unanswered: Unanswered::Wait,
            push: None,
            after: vec![],
            release: None,
            merge_timeout: Span::seconds(60),
            max_hold: Span::seconds(600),
            radar: Span::seconds(30),
        }
    }
}

/// `[workspace]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Workspace {
    /// Untracked files to bring along from the user's checkout.
    pub copy: Vec<PathPattern>,
    /// Commands that make a fresh workspace ready.
    pub setup: Vec<String>,
    /// How long one of them may take.
    pub setup_timeout: Span,
    /// How many ports an attempt gets, as `REGATTA_PORT_0` and on.
    pub ports: u32,
    /// The first and the last port that may be given.
    pub port_range: (u16, u16),
    /// Only these directories are checked out, if any are named.
    pub sparse: Vec<String>,
    /// How many mebibytes the workspaces of a project may take; unlimited when not given.
    pub disk_mb: Option<u64>,
    /// How many finished workspaces are kept warm for reuse.
    pub pool: u32,
}

impl Default for Workspace {
    fn default() -> Workspace {
        Workspace {
            copy: vec![],
            setup: vec![],
            setup_timeout: Span::seconds(600),
            ports: 0,
            port_range: (40_000, 49_999),
            sparse: vec![],
            disk_mb: None,
            pool: 4,
        }
    }
}

/// What becomes of work that changed files outside its manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnEscape {
    /// The files outside are held back and noted; the rest goes on.
    #[default]
    HoldBack,
    /// The task needs a person.
    Block,
}

/// How the work of a run becomes commits of the trunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Commits {
    /// One for each task, when it has passed.
    #[default]
    Task,
    /// One for each wave, when all of it has passed.
    Wave,
}

/// The outcome of a task if its agent says that no change is needed and its checks pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NotNeeded {
    /// It is done, without a change.
    #[default]
    Done,
    /// A person decides.
    Ask,
}

/// `[run]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Run {
    pub max_workers: Option<u32>,
    pub agents: Option<Vec<String>>,
    pub mode: Option<Mode>,
    /// One commit for each task, or one for each wave.
    pub commits: Option<Commits>,
    /// Files that are made from others, such as lock files: two tasks that make the same one collide.
    pub derived: Vec<Derived>,
    /// Packages whose tasks run one after the other; `!PATH` for one that need not, though it looks so.
    pub serial_packages: Vec<String>,
    pub on_scope_escape: OnEscape,
    /// The outcome of a task if its agent says that no change is needed.
    pub not_needed: NotNeeded,
    /// Whether new test files must be named as their language does.
    pub test_names: bool,
    /// Where results and scope escapes are written, relative to the checkout.
    pub results: String,
    /// How often failed work goes back to its worker.
    pub attempts: u32,
    /// How far setup commands and checks are shut in: `workspace` where it can be had, if not given.
    pub sandbox: Option<Level>,
    /// How far a ratchet is shut in, which reports to what is outside: not at all, if not given.
    pub ratchet_sandbox: Option<Level>,
}

impl Default for Run {
    fn default() -> Run {
        Run {
            max_workers: None,
            agents: None,
            mode: None,
            commits: None,
            derived: vec![],
            serial_packages: vec![],
            on_scope_escape: OnEscape::HoldBack,
            not_needed: NotNeeded::Done,
            test_names: true,
            results: ".agents/swarm/results".into(),
            attempts: 3,
            sandbox: None,
            ratchet_sandbox: None,
        }
    }
}

/// A file that follows from others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Derived {
    /// What is made.
    pub file: PathPattern,
    /// What it is made from.
    pub from: Vec<PathPattern>,
}

/// `[knowledge]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Knowledge {
    /// Where the project's learnings are.
    pub paths: Vec<String>,
}

impl Default for Knowledge {
    fn default() -> Knowledge {
        Knowledge { paths: vec![".agents/learnings".into()] }
    }
}

/// `[leads]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Leads {
    /// How many missions have a lead at once; the others wait in line.
    pub max_leads: u32,
    /// Whose program leads; the first of `run.agents`, or the only agent there is, when not given.
    pub agent: Option<AgentName>,
    /// Whose programs work for a lead, in turn; the lead's own when none are named.
    pub workers: Vec<AgentName>,
    /// How many attempts a lead's mission has at once.
    pub max_workers: u32,
    /// How many tasks a lead may give its mission.
    pub max_children: u32,
    /// How often what became of a mission is summed up on the bus, if something did; 0 is never.
    pub checkpoint_interval: Span,
    /// How long a mission may be led; 0 is for as long as it takes.
    pub timeout: Span,
}

impl Default for Leads {
    fn default() -> Leads {
        Leads {
            max_leads: 3,
            agent: None,
            workers: vec![],
            max_workers: 4,
            max_children: 12,
            checkpoint_interval: Span::seconds(60),
            timeout: Span::seconds(4 * 3_600),
        }
    }
}

/// What becomes of a message that is no command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Triage {
    /// A cheap attempt answers it, makes a task of it, or hands it to a lead.
    #[default]
    Agent,
    /// It becomes a task of the backlog.
    Task,
    /// Nothing.
    Off,
}

/// `[router]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Router {
    pub triage: Triage,
    /// Whose program answers questions; who leads, when not given.
    pub agent: Option<AgentName>,
    /// How many questions are answered at once.
    pub max_answers: u32,
    /// Agents whose messages are taken as a person's are.
    pub from: Vec<AgentName>,
}

impl Default for Router {
    fn default() -> Router {
        Router { triage: Triage::Agent, agent: None, max_answers: 4, from: vec![] }
    }
}

/// What a standing rule does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    Block,
    #[default]
    Warn,
    Leave,
}

/// `[[rule]]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct StandingRule {
    pub name: String,
    /// What it says to whoever it meets.
    pub says: String,
    /// Only tasks of these types, if any are named.
    pub types: Vec<IssueType>,
    /// Only tasks or changes that touch these.
    pub files: Vec<PathPattern>,
    /// Text that an added line contains.
    pub pattern: Option<String>,
    pub action: RuleAction,
}
