//! Writes the part of a prompt that tells a lead (the agent that splits a mission into tasks) the
//! state of its mission. The text is made only from the board (the state of all unfinished work),
//! so a new session can continue the mission.

use std::fmt::Write;

use regatta_core::board::Board;
use regatta_core::display;
use regatta_core::ids::{AgentName, MissionId, Now};
use regatta_core::plural;
use regatta_core::task::{Purpose, Task};
use regatta_core::{agent, lead};

use crate::perform::AttemptContext;

/// Returns the part of the prompt for a lead (the agent that splits a mission into tasks), or
/// `None` if the attempt does not belong to a lead.
pub(super) fn section(
    board: &Board,
    context: &AttemptContext,
    has_tools: bool,
    now: Now,
) -> Option<String> {
    if context.task.purpose != Purpose::Lead {
        return None;
    }
    let mission = context
        .task
        .mission
        .and_then(|id| board.missions.get(&id))?;
    let name = &context.attempt.agent;
    let (add, finish) = if has_tools {
        ("`task_add`", "`mission_finish`")
    } else {
        ("`regatta task add`", "`regatta mission finish`")
    };
    let max_tasks = context.project.settings.leads.max_children;
    let mut text = format!(
        "## YOU LEAD\nYou are {name}, the lead of {}. Break its goal into tasks, give them to your \
         workers, and report the \
         result.\n\
         DO NOT EDIT FILES YOURSELF. Read here, and give every change to a worker. If you change a \
         file all the same, \
         Regatta makes a task of the change, and your next turn starts in a fresh session.\n\
         - First plan: few tasks, each for different files. Add each with {add}. The mission may \
         have at most {max_tasks}.\n\
         - Then end your turn. Regatta starts your next turn when a task has landed, has failed or \
         needs a decision, when \
         a worker asks something, or when somebody mentions you. Do not wait or poll.\n\
         - When no task is open any more, or you can do no more, call {finish} with a report, and \
         end your turn.\n\n",
        mission.id,
    );
    text += &describe_workers(board, &mission.agents, mission.max_workers);
    let checks = &context.project.validation;
    if !checks.is_empty() {
        let checks: Vec<String> = checks
            .iter()
            .map(|command| format!("`{command}`"))
            .collect();
        text += &format!(
            "Every task's work must also pass the project's checks: {}.\n\n",
            checks.join(", ")
        );
    }
    text += EXAMPLE_TASK;
    text += &describe_commands(mission.id, has_tools);
    text += "## STATE OF YOUR MISSION\n";
    let tasks: Vec<&Task> = board
        .open_tasks_of(mission.id)
        .filter_map(|(_, id)| board.tasks.get(&id))
        .map(|task| &**task)
        .filter(|task| task.is_polled())
        .collect();
    let task_count = mission
        .lead
        .as_ref()
        .map_or(0, |lead| lead.children as usize);
    let ended = task_count.saturating_sub(tasks.len());
    if ended > 0 {
        let tasks = format!(
            "{} {}",
            plural::count(ended, "task"),
            plural::choose(ended, "has", "have")
        );
        let list = if has_tools {
            "`task_list` with `all`"
        } else {
            "`regatta task list --all`"
        };
        let _ = writeln!(text, "- {tasks} ended: {list} shows them");
    }
    for task in &tasks {
        let files: Vec<String> = task.files.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "- {} \"{}\" {} [{}]",
            task.id,
            super::prompt_subject(task),
            display::state_text(board, task, now),
            files.join(", ")
        );
    }
    if tasks.is_empty() && ended == 0 {
        text += "- there is no task yet: plan them now\n";
    }
    text += "\n## SIBLING LEADS\n";
    let siblings = lead::siblings(board, &mission.project, Some(mission.id));
    if siblings.is_empty() {
        text += "None. You are the only lead of this project now.\n";
    } else {
        text += "They lead other missions of this project. Their tasks and files are not yours. \
                 You get a message when their \
                 work lands.\n";
    }
    for sibling in siblings {
        let tasks: Vec<String> = sibling.tasks.iter().map(ToString::to_string).collect();
        let tasks = if tasks.is_empty() {
            "no open task".to_owned()
        } else {
            tasks.join(", ")
        };
        let landed = sibling.landed.map_or(String::new(), |commit| {
            format!(", last landed {}", &commit.as_str()[..10])
        });
        let _ = writeln!(
            text,
            "- {} leads {} \"{}\": {tasks}{landed}",
            sibling.lead, sibling.mission, sibling.title
        );
    }
    Some(text + "\n")
}

/// Lists the workers of a mission (a goal with its tasks), each with its program and the number of
/// tasks that it works on.
fn describe_workers(board: &Board, names: &[AgentName], max_workers: u32) -> String {
    let workers: Vec<_> = names
        .iter()
        .filter_map(|name| board.agents.get(name))
        .collect();
    let workers_at_once = if max_workers == 1 {
        "at most one works".to_owned()
    } else {
        format!("at most {max_workers} work")
    };
    let mut text = format!(
        "## YOUR WORKERS\nOf these, {workers_at_once} at the same time. They take tasks by themselves.\n"
    );
    for worker in workers {
        let capacity = agent::capacity(board, worker);
        let program = worker
            .runtime
            .argv()
            .and_then(|argv| argv.first())
            .map_or(worker.runtime.name(), |path| {
                path.rsplit('/').next().unwrap_or(path)
            });
        let _ = writeln!(
            text,
            "- {} ({program}): works on {} of {} tasks",
            worker.name, capacity.current, capacity.max
        );
    }
    text + "\n"
}

/// The part of the prompt for a lead (the agent that splits a mission into tasks) that shows a good
/// task, with the fields of the tool `task_add`.
const EXAMPLE_TASK: &str = "## A GOOD TASK
- subject: Limit login attempts to 5 per minute
- description: everything a worker must know, since workers do not see your plan: the behaviour, the interface that other tasks use, \
and what to leave alone
- files: src/limit.rs, tests/limit.rs (exact and few: tasks that share a file wait for each other)
- tests: cargo test limit (commands that fail without the change and pass with it)
- blocked_by: the tasks whose work it needs, or nothing

";

/// Lists the `regatta` commands for a lead (the agent that splits a mission into tasks) whose
/// program does not have Regatta's tools.
fn describe_commands(mission: MissionId, has_tools: bool) -> String {
    if has_tools {
        return String::new();
    }
    format!(
        "## COMMANDS\nThe command `regatta` acts as you here.\n\
         - `regatta task add SUBJECT --description TEXT --files src/a.rs --validate 'make test' \
         [--blocked-by T7]`: add a \
         task of your mission\n\
         - `regatta task list`, `regatta mission show {mission}`: see the tasks, and the mission\n\
         - `regatta mission adopt T7`: take a task of the project that nobody has\n\
         - `regatta tell T7 TEXT`: send a message to the worker of a task\n\
         - `regatta inbox`, `regatta answer Q7 TEXT`: answer the questions of your workers\n\
         - `regatta msg send CHANNEL TEXT`: send a message to the others\n\
         - `regatta mission finish REPORT`: end the mission\n\
         - `regatta guide lead`: read how to lead\n\n"
    )
}
