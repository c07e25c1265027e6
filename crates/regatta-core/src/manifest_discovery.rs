//! Finds the files of a task that has no manifest (list of files that it may change). An agent
//! first does a small task that finds these files.
//!
//! The small task only expects a report with the paths. Its own changes, if any, are not used. The
//! task without a manifest waits for the small task, and gets the reported paths as its manifest
//! when the report is accepted.

use crate::agent_texts;
use crate::attempt::WorkResult;
use crate::board::Draft;
use crate::ids::{Now, TaskId};
use crate::pattern::PathPattern;
use crate::plural;
use crate::refusal::Refusal;
use crate::task::{self, AddTask, EditTask, Purpose, Task, TaskStatus};

/// Maximum number of paths in an agent's report about the files that a task will change.
const MAX_PATHS: usize = 200;

/// Adds a task in which an agent finds out which files task `id` will change, or returns that task
/// if it already exists.
pub fn begin(draft: &mut Draft, id: TaskId, now: Now) -> Result<TaskId, Refusal> {
    let explored = task::find(draft.board(), id)?;
    if let Some(explorer) = draft
        .board()
        .tasks
        .values()
        .find(|task| task.purpose == Purpose::Explore { task: id })
    {
        return Ok(explorer.id);
    }
    if !explored.files.is_empty() {
        return Err(Refusal::invalid(
            format!("task {id} already has a list of files"),
            format!("change the list: regatta edit {id} --files …"),
        ));
    }
    if !explored.status.is_waiting() && explored.status != TaskStatus::Backlog {
        return Err(Refusal::InUse {
            what: id.to_string(),
            by: explored.status.to_string(),
        });
    }
    let text = agent_texts::explore_task(&explored);
    let request = AddTask {
        priority: explored.priority,
        effort: Some("low".into()),
        provider: explored.provider.clone(),
        ..AddTask::new_report(explored.project.clone(), text)
    };
    let explorer = task::add(draft, request, None, now)?;
    task::set_purpose(draft, explorer, Purpose::Explore { task: id }, None)?;
    if let Some(mission) = explored
        .mission
        .filter(|id| draft.board().missions.contains_key(id))
    {
        task::adopt(
            draft,
            explorer,
            (mission, explored.step()),
            &explored.project,
        )?;
    }
    let blocked_by = explored
        .blocked_by
        .iter()
        .copied()
        .chain([explorer])
        .collect();
    task::edit(
        draft,
        id,
        EditTask {
            blocked_by: Some(blocked_by),
            ..EditTask::default()
        },
    )?;
    Ok(explorer)
}

/// Handles the report of the finished task `explorer`: sets the reported paths as the files that
/// the task `explored` may change. An `Err` is the reason why the report cannot be used.
pub(crate) fn finish(
    draft: &mut Draft,
    explorer: &Task,
    explored: TaskId,
    result: Option<&WorkResult>,
) -> Result<(), String> {
    let report = result
        .map(|result| result.detail.as_str())
        .filter(|result| !result.trim().is_empty());
    let files = parse_paths(report.or(explorer.output.as_deref()).unwrap_or_default())?;
    let is_open = |task: &Task| {
        task.files.is_empty() && (task.status.is_waiting() || task.status == TaskStatus::Backlog)
    };
    if draft
        .board()
        .tasks
        .get(&explored)
        .is_some_and(|task| is_open(task))
    {
        let edit = EditTask {
            files: Some(files),
            ..EditTask::default()
        };
        task::edit(draft, explored, edit).map_err(|refusal| refusal.message())?;
    }
    Ok(())
}

/// Parses the paths in an agent's report about the files of a task. The report must contain a JSON
/// array of paths inside the repository.
fn parse_paths(report: &str) -> Result<Vec<PathPattern>, String> {
    let array = report
        .find('[')
        .zip(report.rfind(']'))
        .filter(|(start, end)| start < end)
        .map(|(start, end)| &report[start..=end]);
    let names: Vec<String> = array
        .and_then(parse_string_array)
        .ok_or("the result contains no JSON array of paths")?;
    if names.is_empty() || names.len() > MAX_PATHS {
        return Err(format!(
            "the result names {}, but a manifest must have 1 to {MAX_PATHS}",
            plural::count(names.len(), "path")
        ));
    }
    let mut files = Vec::new();
    for name in &names {
        if name.starts_with('/') || name.split('/').any(|part| part == "..") {
            return Err(format!("{name:?} leads out of the repository"));
        }
        let file =
            PathPattern::new(name.trim_start_matches("./")).map_err(|error| error.to_string())?;
        if !files.contains(&file) {
            files.push(file);
        }
    }
    Ok(files)
}

/// Parses a JSON array of strings. Written by hand, because this crate depends on no JSON library.
fn parse_string_array(text: &str) -> Option<Vec<String>> {
    let mut rest = text.strip_prefix('[')?.strip_suffix(']')?.trim();
    let mut names = Vec::new();
    while !rest.is_empty() {
        let body = rest.strip_prefix('"')?;
        let end = body.find('"')?;
        // A string with a backslash escape is refused, because this simple parser does not decode
        // escapes.
        if body[..end].contains('\\') {
            return None;
        }
        names.push(body[..end].to_owned());
        rest = body[end + 1..].trim_start();
        match rest.strip_prefix(',') {
            Some(more) if !more.trim().is_empty() => rest = more.trim_start(),
            Some(_) => return None,
            None if rest.is_empty() => {}
            None => return None,
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_from_a_report_and_checked() {
        let read = |report: &str| {
            parse_paths(report)
                .map(|patterns| patterns.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(
            read(r#"["src/a.rs", "tests/**"]"#).unwrap(),
            ["src/a.rs", "tests/**"]
        );
        assert_eq!(
            read("Here:\n```json\n[\n  \"./a\",\n \"a\", \"b\"\n]\n```").unwrap(),
            ["a", "b"]
        );
        for bad in [
            "",
            "src/a.rs",
            "[]",
            "[1]",
            r#"["a" "b"]"#,
            r#"["a",]"#,
            r#"["/etc/passwd"]"#,
            r#"["../x"]"#,
            r#"["a\"b"]"#,
            r#"[""]"#,
        ] {
            assert!(parse_paths(bad).is_err(), "{bad}");
        }
        let many = format!("[{}]", vec!["\"a\""; MAX_PATHS + 1].join(","));
        assert!(parse_paths(&many).unwrap_err().contains("201"));
    }
}
