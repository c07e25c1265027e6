//! Views of attempts. An attempt is one run of an agent on a task. The views show a new attempt,
//! its requests to people, its briefing, its checks and its journal.

use regatta_core::attempt::Attempt;
use regatta_core::ids::{AgentName, ApprovalId, AttemptId, ProjectName, TaskId};
use regatta_core::pattern::PathPattern;
use serde::{Deserialize, Serialize};

use super::{LandingView, TaskView};

/// A new attempt with everything that the agent needs to work on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantedAttempt {
    pub attempt: AttemptId,
    pub token: u64,
    /// The access token of this attempt. It allows only the actions of this attempt and becomes
    /// invalid when the attempt ends.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bearer: String,
    pub task: TaskView,
    /// The path of the attempt's own copy of the repository, if it has one.
    pub workspace: Option<String>,
}

/// A question or permission request of an attempt (one run of an agent on a task), with its
/// outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptRequestView {
    pub id: ApprovalId,
    pub answered: bool,
    pub answer: Option<regatta_core::agent_protocol::RequestAnswer>,
    /// The person or agent that answered the request.
    pub by: Option<String>,
    /// True if the request was withdrawn, so that nobody will answer it.
    pub withdrawn: bool,
    /// The assumption with which the agent continues without an answer; empty if the agent waits
    /// for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed: Option<String>,
    /// True if the agent need not wait for the answer. The agent may end its turn (the work on the
    /// present prompt), and gets the answer later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_told: bool,
}

/// Another attempt (run of an agent on a task) in the same project that is running.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SiblingAttemptView {
    pub agent: AgentName,
    pub attempt: AttemptId,
    pub task: TaskId,
    pub subject: String,
    pub files: Vec<PathPattern>,
    /// The last progress report of the other attempt.
    pub progress: String,
}

/// A task with only its most important fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskBriefView {
    pub task: TaskId,
    pub subject: String,
    pub word: String,
    pub agent: Option<AgentName>,
    pub files: Vec<PathPattern>,
}

/// The briefing: everything that an attempt's agent should know before it begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BriefingView {
    pub attempt: AttemptId,
    pub agent: AgentName,
    pub project: ProjectName,
    pub trunk: String,
    /// The project's check commands, which must pass on all work that lands.
    pub checks: Vec<String>,
    pub task: TaskView,
    /// The title of the mission to which the task belongs, if it belongs to one.
    pub mission: Option<String>,
    /// The tasks of the mission that have not ended.
    pub open: Vec<TaskBriefView>,
    pub siblings: Vec<SiblingAttemptView>,
    /// The latest landed work in the project.
    pub landed: Vec<LandingView>,
    /// Messages that people sent to this attempt.
    pub notes: Vec<String>,
}

/// The result of one check of an attempt's work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckResultView {
    pub check: String,
    pub passed: bool,
    pub how: String,
    /// The last part of the check's output.
    pub output: String,
    pub ms: u64,
}

/// One record of an attempt's journal (the recorded input and output of its program), with the
/// events derived from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JournalRecordView {
    /// The record's number in the journal. To get the next page, start at the number after the last
    /// record of this page.
    pub n: u64,
    pub at_wall: u64,
    /// The kind of the record: `in` is input, `in_end` is the end of the input, `out` is output,
    /// `err` is error output, and `mark` is a remark of the supervisor process.
    pub stream: String,
    /// The recorded line, with secrets removed.
    pub line: String,
    pub said: Vec<regatta_core::agent_protocol::AgentEvent>,
}

/// Returns a copy of an attempt without its fencing token, because anybody who knows that token can
/// act in place of the attempt.
pub fn without_token(attempt: &Attempt) -> Attempt {
    Attempt {
        token: 0,
        ..attempt.clone()
    }
}
