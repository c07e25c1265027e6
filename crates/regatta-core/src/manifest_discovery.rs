//! Discovery of missing manifests: a cheap task finds out which files another task touches.
//!
//! The discovery is an ordinary report. An agent reads the repository, names paths, and changes
//! nothing that lands. The explored task waits for it as for any blocker, and gets its manifest in
//! the same commit that accepts the report.

use crate::attempt::WorkResult;
use crate::board::Draft;
use crate::ids::{Now, TaskId};
use crate::pattern::PathPattern;
use crate::refusal::Refusal;
use crate::task::{self, AddTask, EditTask, Task, TaskStatus};

/// The largest number of paths in a discovered manifest.
const MAX_PATHS: usize = 200;

/// Adds a task that finds the files of task `id`, or returns such a task if it already exists.
pub fn begin(draft: &mut Draft, id: TaskId, now: Now) -> Result<TaskId, Refusal> {
    let of = task::find(draft.board(), id)?;
    if let Some(known) = draft
        .board()
        .tasks
        .values()
        .find(|task| task.explores == Some(id))
    {
        return Ok(known.id);
    }
    if !of.files.is_empty() {
        return Err(Refusal::invalid(
            format!("{id} already has a manifest"),
            format!("change it: regatta edit {id} --files …"),
        ));
    }
    if !of.status.is_waiting() && of.status != TaskStatus::Backlog {
        return Err(Refusal::InUse {
            what: id.to_string(),
            by: of.status.to_string(),
        });
    }
    let subject = format!("Find the files of {id}: {}", of.subject);
    let description = format!(
        "Read the repository and find out which files this task will create or change. Change \
         nothing yourself.\n\
         The `detail` of your result is a JSON array of paths or patterns, relative to the top of \
         the repository: \
         [\"src/a.rs\", \"tests/**\"]. Name few files, but every file that the task needs.\n\n# \
         The task\n{}\n\n{}",
        of.subject, of.description
    );
    let add = AddTask {
        priority: of.priority,
        effort: Some("low".into()),
        provider: of.provider.clone(),
        ..AddTask::new_report(of.project.clone(), &subject, description)
    };
    let explorer = task::add(draft, add, None, now)?;
    task::set_explored_task(draft, explorer, id)?;
    if let Some(mission) = of
        .mission
        .filter(|id| draft.board().missions.contains_key(id))
    {
        task::adopt(draft, explorer, (mission, of.step()), &of.project)?;
    }
    let blocked_by = of.blocked_by.iter().copied().chain([explorer]).collect();
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

/// Gives the explored task its manifest. An `Err` says why the report cannot be used.
pub(crate) fn finish(
    draft: &mut Draft,
    explorer: &Task,
    result: Option<&WorkResult>,
) -> Result<(), String> {
    let Some(of) = explorer.explores else {
        return Ok(());
    };
    let said = result
        .map(|work_result| work_result.detail.as_str())
        .filter(|result| !result.trim().is_empty());
    let files = parse_paths(said.or(explorer.output.as_deref()).unwrap_or_default())?;
    let waits = |task: &Task| {
        task.files.is_empty() && (task.status.is_waiting() || task.status == TaskStatus::Backlog)
    };
    if draft.board().tasks.get(&of).is_some_and(|task| waits(task)) {
        let edit = EditTask {
            files: Some(files),
            ..EditTask::default()
        };
        task::edit(draft, of, edit).map_err(|refusal| refusal.message())?;
    }
    Ok(())
}

/// Reads the paths out of a report. The report must contain a JSON array, and each path must be
/// inside the repository.
fn parse_paths(said: &str) -> Result<Vec<PathPattern>, String> {
    let array = said
        .find('[')
        .zip(said.rfind(']'))
        .filter(|said| said.0 < said.1)
        .map(|(from, to)| &said[from..=to]);
    let names: Vec<String> = array
        .and_then(parse_string_array)
        .ok_or("the result contains no JSON array of paths")?;
    if names.is_empty() || names.len() > MAX_PATHS {
        return Err(format!(
            "the result names {} paths, but a manifest must have 1 to {MAX_PATHS}",
            names.len()
        ));
    }
    let mut files = Vec::new();
    for name in &names {
        if name.starts_with('/') || name.split('/').any(|name| name == "..") {
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

/// Parses a JSON array of strings by hand, because the core depends on no JSON library.
fn parse_string_array(text: &str) -> Option<Vec<String>> {
    let mut rest = text.strip_prefix('[')?.strip_suffix(']')?.trim();
    let mut names = Vec::new();
    while !rest.is_empty() {
        let body = rest.strip_prefix('"')?;
        let end = body.find('"')?;
        // A path with an escape is refused, because decoding it would be a guess.
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
        let read = |said: &str| {
            parse_paths(said).map(|path_patterns| {
                path_patterns
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
            })
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
