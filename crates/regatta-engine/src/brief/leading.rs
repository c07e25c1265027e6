//! What a lead is told at each of its turns: all of it from the board, so that any session can go on.

use std::fmt::Write;

use regatta_core::agent::Runtime;
use regatta_core::board::Board;
use regatta_core::ids::{MissionId, Now};
use regatta_core::task::{Duty, Task};
use regatta_core::{lead, schedule};

use crate::perform::Scene;

/// The section; nothing for who does not lead.
pub(super) fn section(board: &Board, scene: &Scene, now: Now) -> Option<String> {
    if scene.task.duty != Some(Duty::Lead) {
        return None;
    }
    let mission = scene.task.mission.and_then(|it| board.missions.get(&it))?;
    let name = &scene.attempt.agent;
    let mut text = format!(
        "## YOU LEAD\nYou are {name}, and you lead {}. You break its goal into tasks, have your workers do them, and report. \
         DO NOT EDIT FILES YOURSELF: read here, and give every change to a worker as a task. A change of yours becomes a \
         task of the mission that is checked and landed like any other, and your next turn starts in a fresh session.\n\
         - Plan few tasks that touch different files; each says what, which files, how it is checked, and after which \
         others. Your mission has at most {} workers at once, and {} tasks in all.\n\
         - Then end your turn. You are woken when a task has landed, failed or needs somebody, when a worker asks, or when \
         somebody calls you by name; do not wait or look again and again.\n\
         - When nothing is open, or you can do no more, finish the mission with a report; then end your turn.\n\n",
        mission.id, mission.max_workers, scene.project.settings.leads.max_children,
    );
    text += &how(board, scene, mission.id);
    text += "## HOW IT STANDS\n";
    let tasks: Vec<&Task> = board
        .open_tasks_of(mission.id)
        .filter_map(|(_, id)| board.tasks.get(&id))
        .map(|it| &**it)
        .filter(|it| it.is_work())
        .collect();
    let given = mission.lead.as_ref().map_or(0, |it| it.children as usize);
    let ended = given.saturating_sub(tasks.len());
    if ended > 0 {
        let _ = writeln!(text, "- {ended} tasks have ended; `task_list` with all shows them");
    }
    for task in &tasks {
        let files: Vec<String> = task.files.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "- {} \"{}\" {} [{}]",
            task.id,
            super::subject(task),
            stands(board, task, now),
            files.join(", ")
        );
    }
    if tasks.is_empty() && ended == 0 {
        text += "- nothing is planned yet\n";
    }
    text += "\n## SIBLING LEADS\n";
    let siblings = lead::siblings(board, &mission.project, Some(mission.id));
    if siblings.is_empty() {
        text += "None: you are the only lead here now.\n";
    } else {
        text +=
            "They work here, too. What they or their workers have is not yours; their landings are announced to you.\n";
    }
    for it in siblings {
        let tasks: Vec<String> = it.tasks.iter().map(ToString::to_string).collect();
        let landed = it.landed.map_or(String::new(), |it| format!(", last landed {}", &it.as_str()[..10]));
        let _ = writeln!(text, "- {} leads {} \"{}\": {}{landed}", it.lead, it.mission, it.title, tasks.join(", "));
    }
    Some(text + "\n")
}

/// Where a task is, and the first reason if it waits.
fn stands(board: &Board, task: &Task, now: Now) -> String {
    match schedule::wait_reasons(board, task, now).first() {
        Some(why) => format!("{}: {}", task.status.phrase(), why.text),
        None => task.status.phrase().to_owned(),
    }
}

/// How it does all that, where it is given no tools.
fn how(board: &Board, scene: &Scene, mission: MissionId) -> String {
    let runtime = board.agents.get(&scene.attempt.agent).map(|it| &it.runtime);
    if !matches!(runtime, Some(Runtime::Command { .. })) {
        return String::new();
    }
    format!(
        "## COMMANDS\nThe command `regatta` speaks in your name here.\n\
         - `regatta mission show {mission}`: how it stands; `regatta guide lead`: how to lead\n\
         - `regatta task add SUBJECT --type task --files src/a.rs --validate 'make test' [--blocked-by T7]`: a task of your mission\n\
         - `regatta mission adopt T7`: a task of the project that nobody has\n\
         - `regatta inbox`, `regatta answer Q7 TEXT`: questions of your workers\n\
         - `regatta msg send CHANNEL TEXT`: a word to the others\n\
         - `regatta mission finish REPORT`: the mission is done\n\n"
    )
}
