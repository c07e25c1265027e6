//! Writes files for people: the results of tasks, changes outside a task's file patterns (scope
//! escapes) and the output of checks. The store holds the same facts, so writing these files is
//! best effort and may be repeated.
//!
//! Git must never report the user's checkout as changed because of these files. A file is therefore
//! written into the checkout only where git ignores it, and under the data directory otherwise.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use regatta_core::attempt::{CheckEvidence, WorkResult};
use regatta_core::ids::AttemptId;
use regatta_core::project::Project;
use regatta_core::scope_escape::ScopeFinding;
use regatta_core::task::Task;
use serde::Serialize;

use crate::Engine;
use crate::ports::git::ProjectRepo;

/// Returns the name of the file in the workspace in which an agent may leave the result of its
/// task. The name is the id that the plan gave to the task, if that id can be a file name, and
/// otherwise Regatta's id of the task. Regatta's own copy of a result is always named after
/// Regatta's id, because every run of a plan uses the same plan ids.
pub(crate) fn result_file_name(task: &Task) -> String {
    let is_plain_name = |s: &&String| {
        !s.starts_with('.')
            && s.len() <= 100
            && s.chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let name = task
        .alias
        .as_ref()
        .filter(is_plain_name)
        .cloned()
        .unwrap_or_else(|| task.id.to_string());
    format!("{name}.json")
}

/// Returns the path at which to write a file for people: in the user's checkout if git ignores the
/// path there, otherwise under the data directory. Returns `None` without a data directory.
fn file_for_people(engine: &Engine, project: &Project, path: &str) -> Option<PathBuf> {
    let repo = ProjectRepo::from_project(project);
    let is_inside = !path.is_empty()
        && !path.starts_with('/')
        && !path.split('/').any(|part| part == ".." || part == ".git");
    if is_inside {
        match engine.shared.git.is_ignored(&repo, path) {
            Ok(true) if stays_within(&repo.path, path) => return Some(repo.path.join(path)),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(project = %project.name, "could not find out whether git ignores \
                    {path}, so the file goes to the data directory instead of the checkout: \
                    {error}")
            }
        }
    }
    let name = Path::new(path).file_name()?;
    let results_dir = engine
        .shared
        .settings
        .data_dir
        .as_ref()?
        .join("results")
        .join(project.name.as_str());
    Some(results_dir.join(name))
}

/// Returns whether `path` stays inside `top`, that is, whether no symbolic link in the path leads
/// out of `top` (S6).
fn stays_within(top: &Path, path: &str) -> bool {
    let Ok(real) = top.canonicalize() else {
        return false;
    };
    let mut walked = top.to_owned();
    for part in Path::new(path).components() {
        walked.push(part);
        match walked.symlink_metadata() {
            Ok(metadata) if metadata.is_symlink() => return false,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    walked
        .parent()
        .and_then(|parent| parent.canonicalize().ok())
        .is_none_or(|parent| parent.starts_with(&real))
}

/// Writes a task's result to a JSON file for people, and returns the path of that file. Returns
/// `None` if writing failed.
pub(crate) fn write_result(
    engine: &Engine,
    task: &Task,
    project: &Project,
    result: &WorkResult,
) -> Option<String> {
    let path = format!(
        "{}/{}",
        project.settings.run.results.trim_end_matches('/'),
        format_args!("{}.json", task.id)
    );
    let destination = file_for_people(engine, project, &path)?;
    let text = serde_json::to_string_pretty(result).ok()?;
    match write_atomically(&destination, format!("{text}\n").as_bytes()) {
        Ok(()) => Some(destination.display().to_string()),
        Err(error) => {
            tracing::warn!(task = %task.id, "could not write the result of task {} to the file {}; \
                the store still has the result: {error}", task.id, destination.display());
            None
        }
    }
}

/// One line of `scope-escapes.jsonl`: one change that a task made, or needs, outside its file
/// patterns.
#[derive(Serialize)]
struct EscapeLine<'a> {
    worker: &'a str,
    finding: &'a str,
    suggested_files: &'a [String],
    timestamp: String,
    task: String,
    attempt: String,
}

/// Appends a change outside the task's file patterns to `scope-escapes.jsonl`, unless the file
/// already lists it.
pub(crate) fn append_escape(
    engine: &Engine,
    project: &Project,
    reporter: (&Task, AttemptId, &str),
    finding: &ScopeFinding,
    unix_ms: u64,
) {
    let (task, attempt, worker) = reporter;
    let Some(destination) =
        file_for_people(engine, project, &project.settings.run.escapes_file_path())
    else {
        return;
    };
    let line = EscapeLine {
        worker,
        finding: &finding.finding,
        suggested_files: &finding.suggested_files,
        timestamp: iso8601(unix_ms),
        task: task.id.to_string(),
        attempt: attempt.to_string(),
    };
    let written = serde_json::to_string(&line)
        .map_err(io::Error::other)
        .and_then(|line| append_once(&destination, &line));
    if let Err(error) = written {
        tracing::warn!(task = %task.id, "could not add a change of task {} outside its file \
            patterns to the list {}; the store still contains the change: {error}", task.id,
            destination.display());
    }
}

/// Appends `line` to the file `destination`, unless the file already has that line. The timestamps
/// in the lines are not compared.
pub(crate) fn append_once(destination: &Path, line: &str) -> io::Result<()> {
    let existing = fs::read_to_string(destination).unwrap_or_default();
    // Ignore the timestamp when comparing, because after a crash the engine writes the same line
    // again with a later timestamp.
    let without_timestamp = |line: &str| {
        let mut value: serde_json::Value = serde_json::from_str(line).ok()?;
        value.as_object_mut()?.remove("timestamp");
        Some(value)
    };
    let new_value = without_timestamp(line);
    if existing
        .lines()
        .any(|known| without_timestamp(known) == new_value)
    {
        return Ok(());
    }
    if let Some(parent) = destination.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(destination)?;
    let separator = if existing.is_empty() || existing.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    file.write_all(format!("{separator}{line}\n").as_bytes())
}

/// Writes a file atomically: writes the bytes to a temporary file in the same directory, then
/// renames that file to `destination`.
pub(crate) fn write_atomically(destination: &Path, bytes: &[u8]) -> io::Result<()> {
    let parent = destination
        .parent()
        .ok_or_else(|| io::Error::other("the path has no directory"))?;
    fs::create_dir_all(parent)?;
    let name = destination
        .file_name()
        .ok_or_else(|| io::Error::other("the path has no file name"))?;
    let temporary = parent.join(format!(".{}.new", name.to_string_lossy()));
    // First remove any file at the temporary path, because that file may be a symbolic link that
    // somebody planted.
    drop(fs::remove_file(&temporary));
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)?
        .write_all(bytes)?;
    fs::rename(&temporary, destination)
}

/// Returns the path of the file with the results of an attempt's checks, or `None` without a data
/// directory.
fn evidence_file(engine: &Engine, attempt: AttemptId) -> Option<PathBuf> {
    Some(
        engine
            .shared
            .settings
            .data_dir
            .as_ref()?
            .join("evidence")
            .join(format!("{attempt}.json")),
    )
}

/// Stores the results of the checks of an attempt's work in a file. A failure is only logged.
pub(crate) fn write_evidence(engine: &Engine, attempt: AttemptId, evidence: &[CheckEvidence]) {
    let Some(destination) = evidence_file(engine, attempt) else {
        return;
    };
    let written = serde_json::to_vec(evidence)
        .map_err(io::Error::other)
        .and_then(|bytes| write_atomically(&destination, &bytes));
    if let Err(error) = written {
        tracing::warn!(%attempt, "could not store the results and output of the checks of attempt \
            {attempt}, so they cannot be shown later: {error}");
    }
}

/// Removes the files with check results that were written at least `older_than` before `today`, and
/// returns how many files it removed.
pub fn prune_evidence(
    data_dir: &Path,
    older_than: Duration,
    today: SystemTime,
) -> io::Result<usize> {
    let entries = match fs::read_dir(data_dir.join("evidence")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut removed = 0;
    for entry in entries {
        let entry = entry?;
        let age = today
            .duration_since(entry.metadata()?.modified()?)
            .unwrap_or_default();
        if age >= older_than {
            fs::remove_file(entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Returns the stored results of the checks of an attempt's work, in the order in which the checks
/// ran. The list is empty when no check ran.
pub(crate) fn read_evidence(
    engine: &Engine,
    attempt: AttemptId,
) -> Result<Vec<CheckEvidence>, String> {
    let Some(destination) = evidence_file(engine, attempt) else {
        return Ok(vec![]);
    };
    match fs::read(&destination) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|error| format!("{} cannot be read: {error}", destination.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(vec![]),
        Err(error) => Err(format!("{} cannot be read: {error}", destination.display())),
    }
}

/// Formats milliseconds since 1970 as an ISO 8601 date in UTC.
pub(crate) fn iso8601(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1_000).unwrap_or(i64::MAX);
    let date = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
    date.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_in_iso_8601() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_700_000_000_999, "2023-11-14T22:13:20Z"),
            (4_102_444_799_000, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(iso8601(ms), text);
        }
    }

    #[test]
    fn old_evidence_is_deleted_and_recent_evidence_is_kept() {
        let top = std::env::temp_dir().join(format!("regatta-evidence-{}", std::process::id()));
        assert_eq!(
            prune_evidence(&top, Duration::ZERO, SystemTime::now()).unwrap(),
            0,
            "files were deleted although no check results exist"
        );
        for name in ["A1.json", "A2.json"] {
            write_atomically(&top.join("evidence").join(name), b"[]").unwrap();
        }
        let old = SystemTime::now() - Duration::from_secs(100);
        fs::File::options()
            .append(true)
            .open(top.join("evidence/A1.json"))
            .unwrap()
            .set_modified(old)
            .unwrap();
        assert_eq!(
            prune_evidence(&top, Duration::from_secs(50), SystemTime::now()).unwrap(),
            1
        );
        assert!(!top.join("evidence/A1.json").exists() && top.join("evidence/A2.json").exists());
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn a_path_through_a_link_out_of_the_checkout_is_refused() {
        let top = std::env::temp_dir().join(format!("regatta-keep-{}", std::process::id()));
        fs::create_dir_all(top.join("in/a")).unwrap();
        std::os::unix::fs::symlink("/", top.join("in/out")).unwrap();
        assert!(stays_within(&top, "in/a/x.json") && stays_within(&top, "new/dir/x"));
        assert!(!stays_within(&top, "in/out/tmp/x"));
        fs::remove_dir_all(&top).unwrap();
    }
}
