//! The answers of verbs that have several kinds of answers, and of verbs that answer with a few
//! facts about their effect.

use regatta_core::approval::Approval;
use regatta_core::attempt::Attempt;
use regatta_core::ids::{AgentName, ApprovalId, AttemptId, FiringId, MissionId, TaskId};
use serde::{Deserialize, Serialize};

use super::{AgentView, AgentWhyView, MissionView, TaskView, WhyView};
use crate::verb::Done;

/// The answer of the verb `show`: the task, attempt, agent, mission or request with the given id.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum ShowAnswer {
    Task(Box<TaskView>),
    Attempt(Box<Attempt>),
    Agent(Box<AgentView>),
    Mission(Box<MissionView>),
    Request(Box<Approval>),
}

/// The reasons why a task waits, or why an agent gets no work.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum WhyAnswer {
    Task(Box<WhyView>),
    Agent(Box<AgentWhyView>),
}

/// The work that the verb `stop` has stopped.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum StopAnswer {
    Missions(Vec<MissionId>),
    /// The tasks on which the stopped agent worked.
    Tasks(Vec<TaskId>),
    Task(Box<TaskView>),
    /// The firing of a hook whose command was ended.
    Firing(FiringId),
}

/// The thing that the verb `resume` has resumed.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum ResumeAnswer {
    Task(Box<TaskView>),
    /// The agent. `None` if a provider was resumed instead of one agent.
    Agent(Option<Box<AgentView>>),
    Mission(Done),
}

/// The names that the verb `name` has generated: one name, or a list if the caller gave a number.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum NameAnswer {
    One(Option<AgentName>),
    Many(Vec<AgentName>),
}

/// The receiver of a message that a person sent to the agent on a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TellView {
    pub task: TaskId,
    /// The running attempt that got the message. `None` if the next attempt gets it.
    pub attempt: Option<AttemptId>,
}

/// The effect of a person's answer to a request in the inbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InboxDecisionView {
    pub id: ApprovalId,
    pub task: Option<TaskId>,
    pub agent: Option<AgentName>,
    /// The action or question that the request was about.
    pub subject: Option<String>,
    /// The policy rule that the answer has added, if the answer applies to more than this request.
    pub rule: Option<String>,
    /// All rules that the answer has added, if it also answered other requests.
    pub rules: Vec<String>,
    /// Number of requests that were answered.
    pub answered: usize,
    /// Number of items that are still shown in the inbox.
    pub left: usize,
}

/// A call of the daemon to a runner.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunnerCallView {
    /// The number of the call, which the runner's answer repeats.
    pub id: u64,
    /// The request. Only a runner of the same version is sure to understand the request; others
    /// answer with an error if they do not.
    pub ask: serde_json::Value,
}
