//! Writes the five sections of a briefing (an agent's background): GOALS, HISTORY, INTEL, TASK and
//! PROTOCOL. Each section has a limited size.

use regatta_core::attempt::Attempt;
use regatta_core::display;
use regatta_core::start_gates::GateVerdict;
use regatta_core::task::{Task, TaskStatus};

use crate::Engine;
use crate::perform::AttemptContext;
use crate::ports::store::TaskFilter;
use crate::project_learnings::{self, Learning};

/// The largest size of a briefing in tokens. A token is about four characters.
const MAX_BRIEFING_TOKENS: usize = 6_000;
const MAX_BRIEFING_CHARS: usize = MAX_BRIEFING_TOKENS * 4;

/// The largest number of tasks of the same mission (a goal with its tasks) that a briefing names.
const MAX_TASKS_NAMED: usize = 12;
/// The largest number of other working agents that a briefing names.
const MAX_AGENTS_NAMED: usize = 10;

/// The largest number of ended tasks that are read for the section HISTORY of a briefing. The
/// newest tasks are read.
const MAX_TASKS_SEARCHED: usize = 200;

/// The largest size in bytes of a briefing that becomes part of the prompt. For a longer briefing,
/// the prompt names its file.
pub(super) const MAX_INLINED_BYTES: usize = 2_000;

/// One section of a briefing: its name, its text, and its size limit in characters.
struct Section {
    name: &'static str,
    text: String,
    max_chars: usize,
}

/// The background that an agent gets for one attempt, as named sections.
pub(super) struct Briefing {
    /// The ids of the task and the attempt, and the task's subject. Programs that read only the
    /// briefing and not the prompt need this title.
    title: String,
    sections: Vec<Section>,
}

impl Briefing {
    /// Returns the text of the briefing's file. The file contains every section; an empty section
    /// says that nothing is known.
    pub(super) fn file_text(&self) -> String {
        let mut text = format!("# BRIEFING\n{}\n", self.title);
        for Section {
            name,
            text: body,
            max_chars,
        } in &self.sections
        {
            let body = if body.trim().is_empty() {
                "Nothing is known.".to_owned()
            } else {
                truncate_at_line(body.trim(), *max_chars)
            };
            text += &format!("\n## {name}\n{body}\n");
        }
        text
    }

    /// Returns the part of the briefing that goes into a prompt: every section with content except
    /// PROTOCOL, which repeats the prompt.
    pub(super) fn inlined_text(&self) -> String {
        let mut text = String::new();
        for Section {
            name,
            text: body,
            max_chars,
        } in &self.sections
        {
            if !body.trim().is_empty() && *name != PROTOCOL {
                text += &format!(
                    "\n## {name}\n{}\n",
                    truncate_at_line(body.trim(), *max_chars)
                );
            }
        }
        text
    }
}

/// The name of the section that repeats the prompt's rules, for programs that read only the
/// briefing's file.
const PROTOCOL: &str = "PROTOCOL";

/// Returns the briefing of an attempt. `ending` has the rules for ending the attempt.
pub(super) fn briefing(engine: &Engine, context: &AttemptContext, ending: &str) -> Briefing {
    let past = ended_tasks(engine, context);
    Briefing {
        title: format!(
            "{} {} (attempt {})",
            context.task.id,
            super::prompt_subject(&context.task),
            context.attempt.id
        ),
        sections: vec![
            Section {
                name: "GOALS",
                text: goals_section(engine, context),
                max_chars: MAX_BRIEFING_CHARS / 8,
            },
            Section {
                name: "HISTORY",
                text: history_section(&context.task, &past),
                max_chars: MAX_BRIEFING_CHARS / 4,
            },
            Section {
                name: "INTEL",
                text: intel_section(engine, context),
                max_chars: MAX_BRIEFING_CHARS / 3,
            },
            Section {
                name: "TASK",
                text: task_section(engine, context),
                max_chars: MAX_BRIEFING_CHARS / 8,
            },
            Section {
                name: PROTOCOL,
                text: protocol_section(engine, context, ending),
                max_chars: MAX_BRIEFING_CHARS / 8,
            },
        ],
    }
}

/// Cuts `text` at the end of a line so that it has at most `max_chars` characters. Adds a note if
/// something was cut.
fn truncate_at_line(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    let head: String = text.chars().take(max_chars).collect();
    let end = head
        .rfind('\n')
        .filter(|end| *end > 0)
        .unwrap_or(head.len());
    format!("{}\n(cut here: there is more)", &head[..end])
}

/// Returns the newest completed or failed tasks of the project, newest first.
pub(super) fn ended_tasks(engine: &Engine, context: &AttemptContext) -> Vec<Task> {
    let after = context
        .task
        .id
        .0
        .saturating_sub(MAX_TASKS_SEARCHED as u64 + 1);
    let filter = TaskFilter {
        project: Some(context.project.name.clone()),
        statuses: vec![TaskStatus::Completed, TaskStatus::Failed],
        after: (after > 0).then_some(regatta_core::ids::TaskId(after)),
        limit: MAX_TASKS_SEARCHED,
        ..TaskFilter::default()
    };
    let mut tasks = engine.history().tasks(&filter).unwrap_or_else(|error| {
        tracing::warn!(task = %context.task.id, "could not read the ended tasks of the project, so \
            the briefing of task {} does not mention them: {error}", context.task.id);
        vec![]
    });
    tasks.reverse();
    tasks
}

/// The file names in which a project usually describes itself to people and agents.
const PROJECT_DESCRIPTION_FILES: [&str; 4] = [
    "README.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "AGENTS.md",
];

fn goals_section(engine: &Engine, context: &AttemptContext) -> String {
    let board = engine.board();
    let mut text = String::new();
    let exists = |name: &&str| {
        context
            .repo
            .path
            .join(name)
            .symlink_metadata()
            .is_ok_and(|file| file.is_file())
    };
    let existing: Vec<&str> = PROJECT_DESCRIPTION_FILES
        .into_iter()
        .filter(exists)
        .collect();
    if !existing.is_empty() {
        text += &format!(
            "The project {} describes itself in {}.\n",
            context.project.name,
            existing.join(", ")
        );
    }
    let mission = context
        .task
        .mission
        .filter(|_| context.task.purpose.has_contract())
        .and_then(|id| board.missions.get(&id));
    let Some(mission) = mission else { return text };
    let others: Vec<_> = board
        .tasks
        .values()
        .filter(|task| {
            task.mission == Some(mission.id) && task.id != context.task.id && task.is_polled()
        })
        .take(MAX_TASKS_NAMED)
        .collect();
    let is_alone = others.is_empty() && mission.goal.is_none();
    if !is_alone && mission.title != context.task.subject {
        text += &format!(
            "This task is part of the mission {}: {}\n",
            mission.id, mission.title
        );
    }
    if !others.is_empty() {
        text += "Other tasks of the mission:\n";
    }
    for other in others {
        text += &format!(
            "- {} {} ({})\n",
            other.id,
            super::prompt_subject(other),
            display::task_display(&board, other).label
        );
    }
    text
}

/// Lists the tasks that recently landed or failed and that concerned the task's files.
fn history_section(task: &Task, past: &[Task]) -> String {
    let shares_files = |other: &&Task| {
        let changed = other
            .submission
            .iter()
            .flat_map(|submission| &submission.changed);
        task.files.is_empty()
            || changed
                .into_iter()
                .any(|path| task.files.iter().any(|pattern| pattern.matches(path)))
            || other
                .files
                .iter()
                .any(|theirs| task.files.iter().any(|ours| ours.overlaps(theirs)))
    };
    let mut text = String::new();
    for other in past
        .iter()
        .filter(|task| task.status.is_completed() && task.landed.is_some())
        .filter(shares_files)
        .take(8)
    {
        let commit: String = other
            .landed
            .iter()
            .map(|id| id.as_str().chars().take(10).collect::<String>())
            .collect();
        let files = other
            .submission
            .as_ref()
            .map(|submission| submission.changed.join(", "))
            .unwrap_or_default();
        text += &format!(
            "- landed: {} {} ({commit}) in {}\n",
            other.id,
            super::prompt_subject(other),
            truncate_to_line(&files, 200)
        );
    }
    for other in past
        .iter()
        .filter(|task| task.status.has_failed())
        .filter(shares_files)
        .take(5)
    {
        let reason = other.reason.as_deref().unwrap_or("no reason is known");
        text += &format!(
            "- failed: {} {}: {}\n",
            other.id,
            super::prompt_subject(other),
            truncate_to_line(reason, 300)
        );
    }
    text
}

/// Returns the text as one line of at most `max_chars` characters.
fn truncate_to_line(text: &str, max_chars: usize) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(max_chars + 1)
        .collect();
    if line.chars().count() > max_chars {
        format!("{}…", line.chars().take(max_chars).collect::<String>())
    } else {
        line
    }
}

/// Returns the three facts reported by earlier tasks ("learnings") that match the task best, and
/// the places where the other facts can be read.
fn intel_section(engine: &Engine, context: &AttemptContext) -> String {
    let learnings = project_learnings::all_learnings(engine, context);
    let about = format!(
        "{} {} {}",
        context.task.subject,
        context.task.description,
        context
            .task
            .files
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    );
    let best = project_learnings::best_matches(&learnings, &about, 3);
    let mut text = String::new();
    for Learning { source, text: body } in &best {
        text += &format!("### {source}\n{}\n\n", truncate_at_line(body.trim(), 1_800));
    }
    let other_sources: Vec<&str> = learnings
        .iter()
        .filter(|learning| {
            !best.iter().any(|best| best.source == learning.source)
                && !learning.source.starts_with("reported")
        })
        .map(|learning| learning.source.as_str())
        .take(10)
        .collect();
    if !other_sources.is_empty() {
        text += &format!("More is in: {}\n", other_sources.join(", "));
    }
    text
}

fn task_section(engine: &Engine, context: &AttemptContext) -> String {
    let board = engine.board();
    let task = &context.task;
    let mut text = String::new();
    for id in &task.blocked_by {
        let other = match board.tasks.get(id) {
            Some(task) => Some(Task::clone(task)),
            None => engine.history().task(*id).ok().flatten(),
        };
        if let Some(other) = other {
            text += &format!(
                "- builds on {} {}\n",
                other.id,
                super::prompt_subject(&other)
            );
        }
    }
    // A team member that only waits for messages works on no files, so it is not listed.
    let is_other_worker = |other: &&std::sync::Arc<Attempt>| {
        other.id != context.attempt.id
            && other.project == context.project.name
            && other.session_of.is_none()
    };
    for other in board
        .attempts
        .values()
        .filter(is_other_worker)
        .take(MAX_AGENTS_NAMED)
    {
        let Some(other_task) = board.tasks.get(&other.task).filter(|task| task.is_polled()) else {
            continue;
        };
        let files: Vec<String> = other_task.files.iter().map(ToString::to_string).collect();
        let files = if files.is_empty() {
            "no files of its own".to_owned()
        } else {
            files.join(", ")
        };
        text += &format!(
            "- {} works on {} at the same time: {}\n",
            other.agent,
            other_task.id,
            truncate_to_line(&files, 200)
        );
    }
    // The start gates (conditions that are checked before a task starts) are about changing files,
    // so a task that changes no files needs no warning about start gates.
    let is_change = task.purpose.has_contract();
    for gate in context
        .attempt
        .gates
        .iter()
        .filter(|gate| is_change && gate.verdict == GateVerdict::Warn)
    {
        text += &format!("- warning: {}\n", truncate_to_line(&gate.reason, 300));
    }
    for warning in &task.warnings {
        text += &format!("- warning: {}\n", truncate_to_line(warning, 300));
    }
    text
}

fn protocol_section(engine: &Engine, context: &AttemptContext, ending: &str) -> String {
    if context.attempt.no_workspace {
        return ending.to_owned();
    }
    let workspace = engine
        .shared
        .git
        .workspace_path(&context.repo, context.attempt.workspace());
    format!(
        "- Your workspace: {}\n\
         - Do not merge or push. Regatta takes what is on disk when you end, checks it and lands \
         it.\n\
         - If a check fails, you get the work back with the output of the check.\n{ending}",
        workspace.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_cut_at_its_maximum_length() {
        let long = "line\n".repeat(5_000);
        let briefing = Briefing {
            title: "T1 Work (attempt A1)".into(),
            sections: vec![
                Section {
                    name: "GOALS",
                    text: long,
                    max_chars: 100,
                },
                Section {
                    name: "HISTORY",
                    text: String::new(),
                    max_chars: 100,
                },
                Section {
                    name: PROTOCOL,
                    text: "- End well.".into(),
                    max_chars: 100,
                },
            ],
        };
        let (file, inlined) = (briefing.file_text(), briefing.inlined_text());
        assert!(
            file.starts_with("# BRIEFING\nT1 Work (attempt A1)\n\n## GOALS\nline")
                && file.contains("(cut here: there is more)"),
            "{file}"
        );
        assert!(
            file.contains("## HISTORY\nNothing is known.")
                && file.contains("## PROTOCOL\n- End well."),
            "{file}"
        );
        assert!(
            inlined.starts_with("\n## GOALS\nline") && !inlined.contains("HISTORY"),
            "{inlined}"
        );
        assert!(!inlined.contains("PROTOCOL") && file.len() < 300);
        assert_eq!(truncate_at_line("äöü", 2), "äö\n(cut here: there is more)");
    }
}
