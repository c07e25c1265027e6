//! Lets an agent make a plan (a list of tasks) for a goal in words.
//!
//! A request for a plan is a mission with one task that only reports the plan. The task is
//! recognised by its field `duty` and not by its subject, so a task that somebody called "Plan: x"
//! is an ordinary task.

use serde::{Deserialize, Serialize};

use crate::agent::{self, Agent, Runtime};
use crate::agent_texts::TaskText;
use crate::board::{Board, Draft};
use crate::graph::PlanStep;
use crate::ids::{AgentName, MissionId, Now, ProjectName, TaskId};
use crate::mission::{self, StartMode};
use crate::refusal::Refusal;
use crate::task::{self, AddTask, AssignMode, Purpose};

/// Maximum length of the goal of a request for a plan.
pub const MAX_GOAL_BYTES: usize = 8_000;
/// Maximum number of characters of the goal that the subject of the planning task repeats.
const MAX_GOAL_CHARS_IN_SUBJECT: usize = 190;

/// A person's request that an agent makes a plan for a goal; see [`request_plan`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRequest {
    pub project: ProjectName,
    pub goal: String,
    pub planner: AgentName,
    /// Instructions for the agent that plans: the goal, and the format in which the plan is
    /// expected.
    pub brief: String,
    /// Steps of the planner as JSON, if it is a scripted agent (one without a model).
    pub script: Option<String>,
}

/// Returns whether an agent can make plans. An agent can make plans if Regatta starts its program
/// and the agent was not made for one mission.
pub fn can_plan(agent: &Agent) -> bool {
    !matches!(agent.runtime, Runtime::Outside) && agent.derived_from.is_none()
}

/// Returns the names of the agents that can make plans.
pub fn planners(board: &Board) -> impl Iterator<Item = &AgentName> {
    board
        .agents
        .values()
        .filter(|agent| can_plan(agent))
        .map(|agent| &agent.name)
}

/// Returns the title for the plan of a goal: the goal as one line, shortened.
pub fn title(goal: &str) -> String {
    task::one_line(goal, MAX_GOAL_CHARS_IN_SUBJECT)
}

/// Starts a mission with one task, in which an agent makes a plan for a goal.
pub(crate) fn request_plan(
    draft: &mut Draft,
    request: PlanRequest,
    now: Now,
) -> Result<(MissionId, TaskId), Refusal> {
    let goal = request.goal.trim();
    if goal.is_empty() || goal.len() > MAX_GOAL_BYTES {
        return Err(Refusal::invalid(
            format!("the goal is empty or longer than {MAX_GOAL_BYTES} bytes"),
            "describe the goal, or write it into a file of the repository and name the file",
        ));
    }
    let planner = agent::find(draft.board(), &request.planner)?;
    if !can_plan(planner) {
        let obstacle = match &planner.derived_from {
            Some(source) => format!("{} is a copy of {source} for one mission", planner.name),
            None => format!("{} is started outside of Regatta", planner.name),
        };
        return Err(Refusal::invalid(
            format!("{obstacle}, so it cannot make plans"),
            "name another agent that makes the plan; see all: regatta agent list",
        ));
    }
    let subject = format!("Plan: {}", title(goal));
    let start = mission::StartMission {
        project: request.project.clone(),
        title: subject.clone(),
        agents: vec![request.planner.clone()],
        team: None,
        max_workers: 1,
        mode: StartMode::Flow,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    let mission = mission::start(draft, start, now)?;
    let text = TaskText {
        subject,
        description: request.brief,
    };
    let task_request = AddTask {
        script: request.script,
        ..AddTask::new_report(request.project, text)
    };
    let task = task::add(
        draft,
        task_request,
        Some((mission, PlanStep::default())),
        now,
    )?;
    task::set_purpose(
        draft,
        task,
        Purpose::Plan {
            goal: goal.to_owned(),
        },
        None,
    )?;
    task::assign(draft, task, Some(request.planner), AssignMode::Queue, now)?;
    Ok((mission, task))
}
