//! Starts a mission (a goal with its tasks) from a plan.

use crate::board::Draft;
use crate::graph::PlanStep;
use crate::ids::{Now, TaskId};
use crate::manifest::{self, OwnershipRules, OwnershipTask};
use crate::refusal::Refusal;
use crate::{mission, task};

use super::{CommandOutcome, PlannedTask};

/// Starts a mission and adds all its tasks. Either the whole plan is added to the board, or
/// nothing.
pub(super) fn start_mission(
    draft: &mut Draft,
    settings: mission::StartMission,
    tasks: Vec<PlannedTask>,
    adopt: Vec<TaskId>,
    now: Now,
) -> Result<CommandOutcome, Refusal> {
    if tasks.is_empty() && adopt.is_empty() {
        return Err(Refusal::invalid(
            "a mission needs at least one task",
            "add a [[task]] table to the plan for each task",
        ));
    }
    if let Some((nth, missing)) = tasks.iter().enumerate().find_map(|(nth, planned)| {
        planned
            .after
            .iter()
            .find(|blocker| **blocker >= tasks.len())
            .map(|blocker| (nth, *blocker))
    }) {
        return Err(Refusal::invalid(
            format!(
                "task {} of the plan waits for task {}, which is not in the plan",
                nth + 1,
                missing + 1
            ),
            "let it wait for a task of the same plan",
        ));
    }
    let first_id = draft.board().counters.task + 1;
    let steps = plan_steps(draft, &settings, &tasks, &adopt)?;
    let project = settings.project.clone();
    let id = mission::start(draft, settings, now)?;
    let mut ids = Vec::with_capacity(tasks.len());
    let mut later: Vec<(TaskId, Vec<TaskId>)> = Vec::new();
    let adopted = steps[tasks.len()..].to_vec();
    for (nth, (planned, step)) in tasks.into_iter().zip(steps).enumerate() {
        let mut new_task = task::AddTask {
            project: project.clone(),
            ..planned.task
        };
        // Tasks are added in the order of the plan. A blocker that comes later in the plan has no
        // id yet, so it is set after all tasks were added.
        let (before, after): (Vec<usize>, Vec<usize>) =
            planned.after.iter().partition(|after| **after < nth);
        new_task.blocked_by.extend(
            before
                .iter()
                .map(|before| TaskId(first_id + *before as u64)),
        );
        let earlier_blockers = new_task.blocked_by.clone();
        let task = task::add(draft, new_task, Some((id, step)), now)?;
        if !after.is_empty() {
            later.push((
                task,
                earlier_blockers
                    .into_iter()
                    .chain(after.iter().map(|after| TaskId(first_id + *after as u64)))
                    .collect(),
            ));
        }
        if let Some(agent) = planned.assign {
            task::assign(draft, task, Some(agent), task::AssignMode::Queue, now)?;
        }
        ids.push(task);
    }
    for (task, blocked_by) in later {
        task::edit(
            draft,
            task,
            task::EditTask {
                blocked_by: Some(blocked_by),
                ..task::EditTask::default()
            },
        )?;
    }
    for (task, step) in adopt.into_iter().zip(adopted) {
        task::adopt(draft, task, (id, step), &project)?;
        ids.push(task);
    }
    Ok(CommandOutcome::Mission {
        mission: id,
        tasks: ids,
    })
}

/// Returns the step of the plan in which each task of a mission runs. The steps of the plan's own
/// tasks come first, followed by the steps of the adopted tasks.
fn plan_steps(
    draft: &Draft,
    settings: &mission::StartMission,
    tasks: &[PlannedTask],
    adopt: &[TaskId],
) -> Result<Vec<PlanStep>, Refusal> {
    let board = draft.board();
    let adopted_index = |id: &TaskId| {
        adopt
            .iter()
            .position(|adopted| adopted == id)
            .map(|position| tasks.len() + position)
    };
    let planned = tasks.iter().map(|planned| OwnershipTask {
        files: planned.task.files.clone(),
        after: planned
            .after
            .iter()
            .copied()
            .chain(planned.task.blocked_by.iter().filter_map(adopted_index))
            .collect(),
    });
    let adopted = adopt.iter().map(|id| match board.tasks.get(id) {
        Some(task) => OwnershipTask {
            files: task.files.clone(),
            after: task.blocked_by.iter().filter_map(adopted_index).collect(),
        },
        None => OwnershipTask::default(), // adopting the task is refused later
    });
    let parts: Vec<OwnershipTask> = planned.chain(adopted).collect();
    let run = board
        .projects
        .get(&settings.project)
        .map(|project| project.settings.run.clone())
        .unwrap_or_default();
    let rules = OwnershipRules {
        run: &run,
        serial: &settings.serial,
        isolate: settings.isolate,
    };
    let first_id = board.counters.task + 1;
    let id_of = |n: usize| {
        adopt
            .get(n.wrapping_sub(tasks.len()))
            .copied()
            .unwrap_or(TaskId(first_id + n as u64))
    };
    manifest::mission_steps(&parts, rules, settings.mode).map_err(|cycle| Refusal::Cycle {
        tasks: cycle.into_iter().map(id_of).collect(),
    })
}
