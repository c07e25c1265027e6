//! Scope escapes: changes and findings outside a task's manifest, from the diff or reported by the
//! worker.
//!
//! They are kept on the task. Files that are held back stay in the capture, which a keep-ref holds
//! (Q3). An escape becomes a task of its own only when somebody asks for it.

use serde::{Deserialize, Serialize};

use crate::attempt::{self, Attempt, first_few};
use crate::board::Draft;
use crate::event::{Event, facts};
use crate::ids::{AgentName, AttemptId, Now, TaskId};
use crate::manifest;
use crate::pattern::PathPattern;
use crate::project::RunSettings;
use crate::refusal::Refusal;
use crate::task::{self, AddTask, Task};

/// The source of an escape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EscapeSource {
    /// The diff of the worker's changes, independent of the worker's report.
    #[default]
    Diff,
    /// The worker's report, without a change of the files.
    #[serde(rename = "said")]
    Reported,
}

/// A worker's report of something to do outside its manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScopeFinding {
    pub finding: String,
    #[serde(default)]
    pub suggested_files: Vec<String>,
}

/// A scope escape of an attempt.
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

/// Maximum number of escapes per task, against floods of reports.
pub const MAX_ESCAPES: usize = 50;

/// Records an escape of an attempt. A repeated escape is ignored.
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

/// Records the report of a running attempt about something outside its manifest.
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
            "a finding has 1 to 4000 bytes",
            "describe the work and the reason",
        ));
    }
    if finding.suggested_files.len() > 50 || finding.suggested_files.iter().any(is_invalid) {
        return Err(Refusal::invalid(
            "at most 50 files, each of at most 400 bytes",
            "name directories instead",
        ));
    }
    attempt::renew(draft, id, now);
    record_escape(draft, &attempt, EscapeSource::Reported, finding, now);
    Ok(())
}

/// Returns the name of an escape, such as `T3.1`, which is also the alias of its follow-up task.
pub fn escape_name(task: TaskId, index: usize) -> String {
    format!("{task}.{}", index + 1)
}

/// Parses a name that [`escape_name`] made.
pub fn parse_escape_name(text: &str) -> Option<(TaskId, usize)> {
    let (task, index) = text.rsplit_once('.')?;
    let index: usize = index.parse().ok()?;
    Some((task.parse().ok()?, index.checked_sub(1)?))
}

/// Returns the follow-up task for an escape of the task `origin`, which may have ended.
pub fn follow_up(origin: &Task, index: usize) -> Result<AddTask, Refusal> {
    let Some(escape) = origin.escapes.get(index) else {
        return Err(Refusal::invalid(
            format!("{} has no escape number {}", origin.id, index + 1),
            "see which there are: regatta scope",
        ));
    };
    let pattern_of_path = |path: &String| PathPattern::new(&literal_pattern(path)).ok();
    let mut subject = format!(
        "Follow up {}: {}",
        origin.id,
        escape.finding.lines().next().unwrap_or_default()
    );
    subject = subject
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect();
    let description = format!(
        "{}\n\nFound by {} while working on {} \"{}\", and left out of that work.",
        escape.finding, escape.worker, origin.id, origin.subject
    );
    Ok(AddTask {
        project: origin.project.clone(),
        subject,
        description,
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

/// Returns the files outside the task's manifest that an attempt changed, and that were left out of
/// its work.
pub fn files_left_out(task: &Task, attempt: AttemptId) -> Vec<String> {
    let escapes = task
        .escapes
        .iter()
        .filter(|escape| escape.source == EscapeSource::Diff && escape.attempt == attempt);
    escapes
        .flat_map(|escape| escape.suggested_files.iter().cloned())
        .collect()
}

/// Returns a sentence about the files that were left out of an attempt's work and the place where
/// they are kept, or `None` if there are no such files.
pub fn files_left_out_note(task: &Task, attempt: AttemptId) -> Option<String> {
    let files = files_left_out(task, attempt);
    let names: Vec<&str> = files.iter().map(String::as_str).collect();
    (!files.is_empty()).then(|| {
        format!(
            "left out {}, outside its files; kept in {attempt}: regatta diff {attempt}",
            first_few(&names)
        )
    })
}

/// Returns a pattern for one path, with `?` in place of wildcard characters.
fn literal_pattern(path: &str) -> String {
    path.replace(['*', '?'], "?")
}

/// Splits changed paths into those inside and those outside a task's manifest, including derived
/// files. For a task without a manifest all paths are inside.
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
