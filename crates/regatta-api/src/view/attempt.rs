//! Views of attempts: the grant, requests to people, the briefing, checks and the journal.

use regatta_core::attempt::Attempt;
use regatta_core::ids::{AgentName, ApprovalId, AttemptId, ProjectName, TaskId};
use regatta_core::pattern::PathPattern;
use serde::{Deserialize, Serialize};

use super::{LandingView, TaskView};

/// A granted attempt, as the agent needs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantedAttempt {
    pub attempt: AttemptId,
    pub token: u64,
    /// The attempt's own access token: it allows only what this attempt may do, and ends with the
    /// attempt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bearer: String,
    pub task: TaskView,
    /// Path of this attempt's own copy of the repository.
    pub workspace: Option<String>,
}

/// A request of an attempt, with its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptRequestView {
    pub id: ApprovalId,
    pub answered: bool,
    pub answer: Option<regatta_core::agent_protocol::RequestAnswer>,
    /// Name of the person or agent that answered.
    pub by: Option<String>,
    /// The request was withdrawn and will not be answered.
    pub withdrawn: bool,
    /// The agent's assumption, if it goes on without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed: Option<String>,
    /// Set if its agent may end its turn and receives the answer when it comes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_told: bool,
}

/// Another attempt in the same project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SiblingAttemptView {
    pub agent: AgentName,
    pub attempt: AttemptId,
    pub task: TaskId,
    pub subject: String,
    pub files: Vec<PathPattern>,
    /// Its last progress report.
    pub progress: String,
}

/// A task in short form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskBriefView {
    pub task: TaskId,
    pub subject: String,
    pub word: String,
    pub agent: Option<AgentName>,
    pub files: Vec<PathPattern>,
}

/// Everything that an attempt should know before it begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BriefingView {
    pub attempt: AttemptId,
    pub agent: AgentName,
    pub project: ProjectName,
    pub trunk: String,
    /// Commands that must pass on every tree that lands.
    pub checks: Vec<String>,
    pub task: TaskView,
    /// The mission's title.
    pub mission: Option<String>,
    /// The open tasks of the mission.
    pub open: Vec<TaskBriefView>,
    pub siblings: Vec<SiblingAttemptView>,
    /// The latest landings.
    pub landed: Vec<LandingView>,
    /// Messages of people to this attempt.
    pub notes: Vec<String>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckResultView {
    pub check: String,
    pub passed: bool,
    pub how: String,
    /// The end of its output.
    pub output: String,
    pub ms: u64,
}

/// One record of an attempt's journal, with its meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JournalRecordView {
    /// Its number in the journal; the next page starts at the following number.
    pub n: u64,
    pub at_wall: u64,
    /// One of: in, in_end, out, err, mark.
    pub stream: String,
    /// The line as it was written, without secrets.
    pub line: String,
    pub said: Vec<regatta_core::agent_protocol::AgentEvent>,
}

/// Returns an attempt as it is shown: without its fencing token.
pub fn without_token(attempt: &Attempt) -> Attempt {
    Attempt {
        token: 0,
        ..attempt.clone()
    }
}
