//! Scope escapes are an agent's changes to files outside its task's manifest (the files that the
//! task may change), and an agent's reports that work is needed in such files.
//!
//! They are recorded with the task. Changes outside the manifest are left out of the task's work,
//! but stay in the saved commit of the attempt, which git keeps (Q3). A person can make a separate
//! task of an escape.

use serde::{Deserialize, Serialize};

use crate::agent_texts;
use crate::attempt::{self, Attempt, first_few};
use crate::board::Draft;
use crate::event::{Event, facts};
use crate::ids::{AgentName, AttemptId, Now, TaskId};
use crate::manifest;
use crate::pattern::PathPattern;
use crate::project::RunSettings;
use crate::refusal::Refusal;
use crate::task::{self, AddTask, Task};

/// The way in which a scope escape (a change or needed work outside a task's files) was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EscapeSource {
    /// Found by Regatta in the agent's changes.
    #[default]
    Diff,
    /// Reported by the agent, which did not change the files.
    #[serde(rename = "said")]
    Reported,
}

/// Work that is needed outside a task's files: a description, and the files concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScopeFinding {
    pub finding: String,
    #[serde(default)]
    pub suggested_files: Vec<String>,
}

/// A change or needed work outside a task's files, with the attempt and agent that found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScopeEscape {
    pub attempt: AttemptId,
    pub worker: AgentName,
    pub finding: String,
    pub suggested_files: Vec<String>,
    #[serde(rename = "found")]
    pub source: EscapeSource,
    #[serde(rename = "wall")]
    pub unix_ms: u64,
}

facts! {
    TaskEscaped { task: TaskId, escape: ScopeEscape }
}

/// Maximum number of scope escapes (changes or needed work outside a task's files) that are
/// recorded for a task. Further scope escapes are ignored.
const MAX_ESCAPES: usize = 50;

/// Records a change or needed work outside a task's files. Ignores a repeated record, and all
/// records beyond [`MAX_ESCAPES`].
pub(crate) fn record_escape(
    draft: &mut Draft,
    attempt: &Attempt,
    source: EscapeSource,
    finding: ScopeFinding,
    now: Now,
) {
    let Some(task) = draft.board().tasks.get(&attempt.task).cloned() else {
        return;
    };
    let known = task.escapes.iter().any(|escape| {
        escape.attempt == attempt.id
            && escape.finding == finding.finding
            && escape.suggested_files == finding.suggested_files
    });
    if known || task.escapes.len() >= MAX_ESCAPES {
        return;
    }
    let ScopeFinding {
        finding,
        suggested_files,
    } = finding;
    let escape = ScopeEscape {
        attempt: attempt.id,
        worker: attempt.agent.clone(),
        finding,
        suggested_files,
        source,
        unix_ms: now.unix_ms,
    };
    draft.record(Event::TaskEscaped(TaskEscaped {
        task: task.id,
        escape,
    }));
}

/// Handles an agent's report that work is needed outside its task's files.
pub fn report_escape(
    draft: &mut Draft,
    (task, id, token): (TaskId, AttemptId, u64),
    finding: ScopeFinding,
    now: Now,
) -> Result<(), Refusal> {
    let attempt = attempt::require_attempt_of_task(draft.board(), task, id, token)?;
    let is_invalid = |path: &String| path.is_empty() || path.len() > 400;
    if finding.finding.trim().is_empty() || finding.finding.len() > 4_000 {
        return Err(Refusal::invalid(
            "the description of the finding is empty or longer than 4000 bytes",
            "describe in a few sentences what work is needed and why",
        ));
    }
    if finding.suggested_files.len() > 50 || finding.suggested_files.iter().any(is_invalid) {
        return Err(Refusal::invalid(
            "the finding names more than 50 files, or a path is empty or longer than 400 bytes",
            "name directories instead",
        ));
    }
    attempt::renew(draft, id, now);
    record_escape(draft, &attempt, EscapeSource::Reported, finding, now);
    Ok(())
}

/// Returns the name of a task's scope escape (needed work outside the task's files), such as `T3.1`
/// for the first scope escape of T3. If a task is made of the scope escape, the task has this name
/// as its alias.
pub fn escape_name(task: TaskId, index: usize) -> String {
    format!("{task}.{}", index + 1)
}

/// Parses a name such as `T3.1` into the task and the escape's index, counted from 0.
pub fn parse_escape_name(text: &str) -> Option<(TaskId, usize)> {
    let (task, index) = text.rsplit_once('.')?;
    let index: usize = index.parse().ok()?;
    Some((task.parse().ok()?, index.checked_sub(1)?))
}

/// Builds a task for work that is needed outside the files of the task `origin`, which may have
/// ended. `index` is the number of the recorded scope escape, from 0.
pub fn follow_up(origin: &Task, index: usize) -> Result<AddTask, Refusal> {
    let Some(escape) = origin.escapes.get(index) else {
        return Err(Refusal::invalid(
            format!(
                "task {} has no scope escape with the number {}",
                origin.id,
                index + 1
            ),
            "see all scope escapes: regatta scope",
        ));
    };
    let pattern_of_path = |path: &String| PathPattern::new(&literal_pattern(path)).ok();
    let text = agent_texts::scope_escape_task(origin, escape);
    Ok(AddTask {
        project: origin.project.clone(),
        subject: text.subject,
        description: text.description,
        issue_type: origin.issue_type,
        files: escape
            .suggested_files
            .iter()
            .filter_map(pattern_of_path)
            .collect(),
        validation: task::Validation::default(),
        blocked_by: vec![],
        priority: origin.priority,
        expects: task::Expects::Changes,
        effort: None,
        model: None,
        provider: None,
        script: None,
        ratchet: None,
        alias: Some(escape_name(origin.id, index)),
        backlog: false,
    })
}

/// Returns the files that an attempt changed although its task may not change them. These changes
/// were left out of the work.
pub fn files_left_out(task: &Task, attempt: AttemptId) -> Vec<String> {
    let escapes = task
        .escapes
        .iter()
        .filter(|escape| escape.source == EscapeSource::Diff && escape.attempt == attempt);
    escapes
        .flat_map(|escape| escape.suggested_files.iter().cloned())
        .collect()
}

/// Describes the changed files that were left out of an attempt's work, with the command that shows
/// them, or returns `None` if there are none.
pub fn files_left_out_note(task: &Task, attempt: AttemptId) -> Option<String> {
    let files = files_left_out(task, attempt);
    let names: Vec<&str> = files.iter().map(String::as_str).collect();
    (!files.is_empty()).then(|| {
        format!(
            "left out changes outside its files: {}; kept in {attempt}: regatta diff {attempt}",
            first_few(&names)
        )
    })
}

/// Returns a pattern that matches a path that may contain wildcard characters: each wildcard
/// becomes `?`, which matches any single character.
fn literal_pattern(path: &str) -> String {
    path.replace(['*', '?'], "?")
}

/// Splits changed paths into two lists: paths that a task may change (its own files and the files
/// generated from them), and all other paths. A task that names no files may change all files.
pub fn split_by_manifest(
    task: &Task,
    run: &RunSettings,
    changed: &[String],
) -> (Vec<String>, Vec<String>) {
    let allowed = manifest::with_derived_files(run, &task.files);
    changed
        .iter()
        .cloned()
        .partition(|path| allowed.is_empty() || allowed.iter().any(|pattern| pattern.matches(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_scope_escape_can_be_read_back() {
        assert_eq!(escape_name(TaskId(3), 0), "T3.1");
        assert_eq!(parse_escape_name("T3.1"), Some((TaskId(3), 0)));
        for bad in ["", "T3", "T3.", "T3.0", "T3.x", ".1", "3.-1"] {
            assert_eq!(parse_escape_name(bad), None, "{bad}");
        }
    }
}
