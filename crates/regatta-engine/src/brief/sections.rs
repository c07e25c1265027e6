//! The briefing's five sections: GOALS, HISTORY, INTEL, TASK, PROTOCOL, within a budget of tokens.

use regatta_core::gates::Says;
use regatta_core::task::{Status, Task};

use crate::Engine;
use crate::knowledge::{self, Learning};
use crate::perform::Scene;
use crate::ports::store::TaskFilter;

/// How many tokens a briefing has at most; four characters make about one.
const BUDGET: usize = 6_000;
const CHARS: usize = BUDGET * 4;

/// How many tasks of the past are looked at, newest first.
const LOOKED_AT: usize = 200;

/// One section: its name, its text, and how many characters it may have.
struct Section {
    name: &'static str,
    text: String,
    most: usize,
}

/// The briefing of an attempt.
pub(super) fn briefing(engine: &Engine, scene: &Scene) -> String {
    let past = past(engine, scene);
    let sections = [
        Section { name: "GOALS", text: goals(engine, scene), most: CHARS / 8 },
        Section { name: "HISTORY", text: history(&scene.task, &past), most: CHARS / 4 },
        Section { name: "INTEL", text: intel(engine, scene), most: CHARS / 3 },
        Section { name: "TASK", text: task(engine, scene), most: CHARS / 8 },
        Section { name: "PROTOCOL", text: protocol(engine, scene), most: CHARS / 8 },
    ];
    render(&sections)
}

fn render(sections: &[Section]) -> String {
    let mut text = String::from("# BRIEFING\n");
    for Section { name, text: body, most } in sections {
        let body = if body.trim().is_empty() { "Nothing is known.".to_owned() } else { cut(body.trim(), *most) };
        text += &format!("\n## {name}\n{body}\n");
    }
    text
}

/// At most that many characters, at a line's end, and a word that there was more.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let head: String = text.chars().take(most).collect();
    let end = head.rfind('\n').filter(|it| *it > 0).unwrap_or(head.len());
    format!("{}\n(cut here: there is more)", &head[..end])
}

/// Ended tasks of the project, newest first.
pub(super) fn past(engine: &Engine, scene: &Scene) -> Vec<Task> {
    let after = scene.task.id.0.saturating_sub(LOOKED_AT as u64 + 1);
    let filter = TaskFilter {
        project: Some(scene.project.name.clone()),
        statuses: vec![Status::Completed, Status::Failed],
        after: (after > 0).then_some(regatta_core::ids::TaskId(after)),
        limit: LOOKED_AT,
        ..TaskFilter::default()
    };
    let mut found = engine.history().tasks(&filter).unwrap_or_else(|error| {
        tracing::warn!(task = %scene.task.id, "its history cannot be read: {error}");
        vec![]
    });
    found.reverse();
    found
}

fn goals(engine: &Engine, scene: &Scene) -> String {
    let board = engine.board();
    let mut text = format!("Project {}: work lands on {}.\n", scene.project.name, scene.project.trunk);
    if let Some(mission) = scene.task.mission.and_then(|it| board.missions.get(&it)) {
        text += &format!("Mission {}: {}\n", mission.id, mission.title);
        let open = board.tasks.values().filter(|it| it.mission == Some(mission.id) && it.id != scene.task.id);
        for other in open.take(12) {
            text += &format!("- {} {} ({})\n", other.id, super::subject(other), other.status.word());
        }
    }
    text
}

/// What landed lately in these files, and what failed there.
fn history(task: &Task, past: &[Task]) -> String {
    let touches = |other: &&Task| {
        let changed = other.submission.iter().flat_map(|it| &it.changed);
        task.files.is_empty()
            || changed.into_iter().any(|path| task.files.iter().any(|it| it.matches(path)))
            || other.files.iter().any(|theirs| task.files.iter().any(|ours| ours.overlaps(theirs)))
    };
    let mut text = String::new();
    for other in past.iter().filter(|it| it.status == Status::Completed && it.landed.is_some()).filter(touches).take(8)
    {
        let commit: String = other.landed.iter().map(|it| it.as_str().chars().take(10).collect::<String>()).collect();
        let files = other.submission.as_ref().map(|it| it.changed.join(", ")).unwrap_or_default();
        text += &format!("- landed: {} {} ({commit}) in {}\n", other.id, super::subject(other), cut_line(&files, 200));
    }
    for other in past.iter().filter(|it| it.status == Status::Failed).filter(touches).take(5) {
        let reason = other.reason.as_deref().unwrap_or("no reason is known");
        text += &format!("- failed: {} {}: {}\n", other.id, super::subject(other), cut_line(reason, 300));
    }
    text
}

fn cut_line(text: &str, most: usize) -> String {
    let line: String = text.chars().map(|it| if it.is_control() { ' ' } else { it }).take(most + 1).collect();
    if line.chars().count() > most { format!("{}…", line.chars().take(most).collect::<String>()) } else { line }
}

/// What the project learned: the three that fit best in full, and where the rest is.
fn intel(engine: &Engine, scene: &Scene) -> String {
    let learnings = knowledge::all(engine, scene);
    let about = format!(
        "{} {} {}",
        scene.task.subject,
        scene.task.description,
        scene.task.files.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    );
    let best = knowledge::best(&learnings, &about, 3);
    let mut text = String::new();
    for Learning { from, text: body } in &best {
        text += &format!("### {from}\n{}\n\n", cut(body.trim(), 1_800));
    }
    let others: Vec<&str> = learnings
        .iter()
        .filter(|it| !best.iter().any(|best| best.from == it.from) && !it.from.starts_with("reported"))
        .map(|it| it.from.as_str())
        .take(10)
        .collect();
    if !others.is_empty() {
        text += &format!("More is in: {}\n", others.join(", "));
    }
    text
}

fn task(engine: &Engine, scene: &Scene) -> String {
    let board = engine.board();
    let task = &scene.task;
    let mut text = format!("{} {} (attempt {})\n", task.id, super::subject(task), scene.attempt.id);
    for id in &task.blocked_by {
        let other = match board.tasks.get(id) {
            Some(task) => Some(Task::clone(task)),
            None => engine.history().task(*id).ok().flatten(),
        };
        if let Some(other) = other {
            text += &format!("- builds on {} {}\n", other.id, super::subject(&other));
        }
    }
    let others = board.attempts.values().filter(|it| it.id != scene.attempt.id && it.project == scene.project.name);
    for other in others.take(10) {
        let Some(theirs) = board.tasks.get(&other.task) else { continue };
        let files: Vec<String> = theirs.files.iter().map(ToString::to_string).collect();
        text += &format!(
            "- {} works on {} at the same time: {}\n",
            other.agent,
            theirs.id,
            cut_line(&files.join(", "), 200)
        );
    }
    for gate in scene.attempt.gates.iter().filter(|it| it.says == Says::Warn) {
        text += &format!("- warning: {}\n", cut_line(&gate.reason, 300));
    }
    for warning in &task.warnings {
        text += &format!("- warning: {}\n", cut_line(warning, 300));
    }
    text
}

fn protocol(engine: &Engine, scene: &Scene) -> String {
    if scene.attempt.bare {
        return "- You have no workspace: what you say when you finish is what counts.\n".into();
    }
    let workspace = engine.shared.git.workspace_path(&scene.repo, scene.attempt.workspace());
    format!(
        "- Your workspace: {}\n\
         - Your result goes into the file that REGATTA_RESULT names; what you say in chat is not read.\n\
         - What you find outside your files you name in \"scope_escapes\"; you do not change it.\n\
         - What the next one should know you name in \"learnings\".\n\
         - You neither merge nor push. What is on disk when you end is captured, checked and landed for you.\n\
         - Work that fails its checks comes back to you with what they printed.\n",
        workspace.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_keeps_to_its_part_of_the_budget() {
        let long = "line\n".repeat(5_000);
        let sections = [
            Section { name: "GOALS", text: long, most: 100 },
            Section { name: "HISTORY", text: String::new(), most: 100 },
        ];
        let text = render(&sections);
        assert!(text.contains("## GOALS\nline") && text.contains("(cut here: there is more)"), "{text}");
        assert!(text.contains("## HISTORY\nNothing is known."));
        assert!(text.len() < 300);
        assert_eq!(cut("äöü", 2), "äö\n(cut here: there is more)");
    }
}
