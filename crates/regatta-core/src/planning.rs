//! Planning: an agent makes a plan of a goal in words.
//!
//! It is a mission of one task that reports and changes nothing. What the task is for is its duty, never its subject: a
//! task that somebody called "Plan: x" is work as any other.

use serde::{Deserialize, Serialize};

use crate::agent::{self, Agent, Runtime};
use crate::board::{Board, Draft};
use crate::graph::Step;
use crate::ids::{AgentName, MissionId, Now, ProjectName, TaskId};
use crate::mission::{self, Mode};
use crate::refusal::Refusal;
use crate::task::{self, Add, Duty, How};

/// The longest goal, in bytes.
pub const LONGEST: usize = 8_000;
/// How much of a goal's first line stands in the subject of its planning.
const IN_SUBJECT: usize = 190;

/// What is asked of [`ask`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    pub project: ProjectName,
    pub goal: String,
    pub planner: AgentName,
    /// What the planner is told: the goal, and how a plan is written.
    pub brief: String,
    /// A scripted planner's steps, as JSON.
    pub script: Option<String>,
}

/// Whether an agent can be asked for a plan: we start its program, and it was not named for one mission alone.
pub fn can_plan(agent: &Agent) -> bool {
    !matches!(agent.runtime, Runtime::Outside) && agent.of.is_none()
}

/// Who can be asked for a plan.
pub fn planners(board: &Board) -> impl Iterator<Item = &AgentName> {
    board.agents.values().filter(|it| can_plan(it)).map(|it| &it.name)
}

/// The first line of a goal: what its plan is called.
pub fn title(goal: &str) -> String {
    task::one_line(goal, IN_SUBJECT)
}

/// Has an agent make a plan of a goal.
pub(crate) fn ask(draft: &mut Draft, ask: Ask, now: Now) -> Result<(MissionId, TaskId), Refusal> {
    let goal = ask.goal.trim();
    if goal.is_empty() || goal.len() > LONGEST {
        return Err(Refusal::invalid(
            format!("a goal has 1 to {LONGEST} bytes"),
            "write the rest into a file of the repository, and name it",
        ));
    }
    let planner = agent::find(draft.board(), &ask.planner)?;
    if !can_plan(planner) {
        let why = match &planner.of {
            Some(of) => format!("{} works in {of}'s name for one mission", planner.name),
            None => format!("{} is started outside of Regatta", planner.name),
        };
        return Err(Refusal::invalid(
            format!("{why} and cannot be asked for a plan"),
            "name another planner: regatta agent list",
        ));
    }
    let subject = format!("Plan: {}", title(goal));
    let start = mission::Start {
        project: ask.project.clone(),
        title: subject.clone(),
        agents: vec![ask.planner.clone()],
        team: None,
        max_workers: 1,
        mode: Mode::Flow,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    let mission = mission::start(draft, start, now)?;
    let add = Add { script: ask.script, ..Add::report(ask.project, &subject, ask.brief) };
    let task = task::add(draft, add, Some((mission, Step::default())), now)?;
    task::set_duty(draft, task, Duty::Plan { goal: goal.to_owned() }, None)?;
    task::assign(draft, task, Some(ask.planner), How::Queue, now)?;
    Ok((mission, task))
}
