//! What is written for people beside the store: results, scope escapes, and what checks printed.
//!
//! The user's checkout is never left dirty: there a file is written only where git ignores it, else it goes under the
//! data directory. Writing is best effort and may be repeated; the store has what counts.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use regatta_core::attempt::WorkResult;
use regatta_core::ids::AttemptId;
use regatta_core::project::Project;
use regatta_core::scope::Finding;
use regatta_core::task::Task;
use serde::{Deserialize, Serialize};

use crate::Engine;
use crate::ports::git::Repo;

/// What one check of an attempt's work said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was checked: a command line, or `files_exist` and the like.
    pub check: String,
    pub passed: bool,
    /// How it ended, in a few words.
    pub how: String,
    /// The last of what it printed.
    pub output: String,
    pub ms: u64,
}

/// The name under which a worker may leave the result of a task in its workspace: the plan's own id, where that can be
/// a file's name. A result is kept under the task's id instead, since every run of a plan has the same ids of its own.
pub(crate) fn file_name(task: &Task) -> String {
    let plain = |it: &&String| {
        !it.starts_with('.') && it.len() <= 100 && it.chars().all(|it| it.is_ascii_alphanumeric() || "-_.".contains(it))
    };
    let name = task.alias.as_ref().filter(plain).cloned().unwrap_or_else(|| task.id.to_string());
    format!("{name}.json")
}

/// Where escapes are written, beside the directory of results.
pub(crate) fn escapes_path(project: &Project) -> String {
    let results = project.settings.run.results.trim_end_matches('/');
    match results.rsplit_once('/') {
        Some((parent, _)) => format!("{parent}/scope-escapes.jsonl"),
        None => "scope-escapes.jsonl".into(),
    }
}

/// Whether a path of a workspace is of the protocol between workers and us, and no part of the work.
pub(crate) fn is_protocol(project: &Project, path: &str) -> bool {
    let results = project.settings.run.results.trim_end_matches('/');
    path == escapes_path(project) || path.strip_prefix(results).is_some_and(|rest| rest.starts_with('/'))
}

/// Where a file for people goes: into the checkout if git ignores it there, else under the data directory.
fn place(engine: &Engine, project: &Project, path: &str) -> Option<PathBuf> {
    let repo = Repo::of(project);
    let inside = !path.is_empty() && !path.starts_with('/') && !path.split('/').any(|it| it == ".." || it == ".git");
    if inside {
        match engine.shared.git.ignores(&repo, path) {
            Ok(true) if stays_within(&repo.path, path) => return Some(repo.path.join(path)),
            Ok(_) => {}
            Err(error) => tracing::warn!(project = %project.name, "whether {path} is ignored is unknown: {error}"),
        }
    }
    let name = Path::new(path).file_name()?;
    let own = engine.shared.settings.data_dir.as_ref()?.join("results").join(project.name.as_str());
    Some(own.join(name))
}

/// Whether no link on the way leads out of `top` (S6).
fn stays_within(top: &Path, path: &str) -> bool {
    let Ok(real) = top.canonicalize() else { return false };
    let mut at = top.to_owned();
    for part in Path::new(path).components() {
        at.push(part);
        match at.symlink_metadata() {
            Ok(found) if found.is_symlink() => return false,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    at.parent().and_then(|it| it.canonicalize().ok()).is_none_or(|it| it.starts_with(&real))
}

/// Copies a result to where people look for it, and says where that is.
pub(crate) fn result(engine: &Engine, task: &Task, project: &Project, result: &WorkResult) -> Option<String> {
    let path = format!("{}/{}", project.settings.run.results.trim_end_matches('/'), format_args!("{}.json", task.id));
    let place = place(engine, project, &path)?;
    let text = serde_json::to_string_pretty(result).ok()?;
    match write(&place, format!("{text}\n").as_bytes()) {
        Ok(()) => Some(place.display().to_string()),
        Err(error) => {
            tracing::warn!(task = %task.id, "its result could not be written to {}: {error}", place.display());
            None
        }
    }
}

/// One line of the file of escapes.
#[derive(Serialize)]
struct EscapeLine<'a> {
    worker: &'a str,
    finding: &'a str,
    suggested_files: &'a [String],
    timestamp: String,
    task: String,
    attempt: String,
}

/// Appends an escape to the file of escapes, unless it is there.
pub(crate) fn escape(engine: &Engine, project: &Project, by: (&Task, AttemptId, &str), finding: &Finding, wall: u64) {
    let (task, attempt, worker) = by;
    let Some(place) = place(engine, project, &escapes_path(project)) else { return };
    let line = EscapeLine {
        worker,
        finding: &finding.finding,
        suggested_files: &finding.suggested_files,
        timestamp: iso8601(wall),
        task: task.id.to_string(),
        attempt: attempt.to_string(),
    };
    let done = serde_json::to_string(&line).map_err(io::Error::other).and_then(|line| append_once(&place, &line));
    if let Err(error) = done {
        tracing::warn!(task = %task.id, "an escape could not be written to {}: {error}", place.display());
    }
}

pub(crate) fn append_once(place: &Path, line: &str) -> io::Result<()> {
    let there = fs::read_to_string(place).unwrap_or_default();
    // When it was found is not what it is: a start that finishes what a crash cut short finds it again, later.
    let timeless = |line: &str| {
        let mut value: serde_json::Value = serde_json::from_str(line).ok()?;
        value.as_object_mut()?.remove("timestamp");
        Some(value)
    };
    let new = timeless(line);
    if there.lines().any(|it| timeless(it) == new) {
        return Ok(());
    }
    if let Some(parent) = place.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = fs::OpenOptions::new().create(true).append(true).open(place)?;
    let gap = if there.is_empty() || there.ends_with('\n') { "" } else { "\n" };
    file.write_all(format!("{gap}{line}\n").as_bytes())
}

/// Writes a file whole.
pub(crate) fn write(place: &Path, bytes: &[u8]) -> io::Result<()> {
    let parent = place.parent().ok_or_else(|| io::Error::other("it has no directory"))?;
    fs::create_dir_all(parent)?;
    let name = place.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
    let beside = parent.join(format!(".{}.new", name.to_string_lossy()));
    // What lies there may be a link that somebody left.
    drop(fs::remove_file(&beside));
    fs::OpenOptions::new().write(true).create_new(true).open(&beside)?.write_all(bytes)?;
    fs::rename(&beside, place)
}

fn evidence_file(engine: &Engine, attempt: AttemptId) -> Option<PathBuf> {
    Some(engine.shared.settings.data_dir.as_ref()?.join("evidence").join(format!("{attempt}.json")))
}

/// Keeps what the checks of an attempt's work said.
pub(crate) fn evidence(engine: &Engine, attempt: AttemptId, found: &[Evidence]) {
    let Some(place) = evidence_file(engine, attempt) else { return };
    let done = serde_json::to_vec(found).map_err(io::Error::other).and_then(|it| write(&place, &it));
    if let Err(error) = done {
        tracing::warn!(%attempt, "what its checks said could not be kept: {error}");
    }
}

/// Removes what the checks of attempts said that were judged at least `older_than` before `today`, and says how many.
pub fn prune_evidence(data_dir: &Path, older_than: Duration, today: SystemTime) -> io::Result<usize> {
    let entries = match fs::read_dir(data_dir.join("evidence")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut removed = 0;
    for entry in entries {
        let entry = entry?;
        let age = today.duration_since(entry.metadata()?.modified()?).unwrap_or_default();
        if age >= older_than {
            fs::remove_file(entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// What the checks of an attempt's work said, in their order; nothing when none ran.
pub(crate) fn read_evidence(engine: &Engine, attempt: AttemptId) -> Result<Vec<Evidence>, String> {
    let Some(place) = evidence_file(engine, attempt) else { return Ok(vec![]) };
    match fs::read(&place) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|it| format!("{} cannot be read: {it}", place.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(vec![]),
        Err(error) => Err(format!("{} cannot be read: {error}", place.display())),
    }
}

/// A date in milliseconds since 1970 as ISO 8601, in UTC.
pub(crate) fn iso8601(wall_ms: u64) -> String {
    let (seconds, days) = ((wall_ms / 1_000) % 86_400, (wall_ms / 86_400_000) as i64);
    // Howard Hinnant's civil-from-days, for days after 1970.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let part = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * part + 2) / 5 + 1, if part < 10 { part + 3 } else { part - 9 });
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_people_agreed() {
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
    fn old_evidence_goes_and_young_evidence_stays() {
        let top = std::env::temp_dir().join(format!("regatta-evidence-{}", std::process::id()));
        assert_eq!(prune_evidence(&top, Duration::ZERO, SystemTime::now()).unwrap(), 0, "there is none yet");
        for name in ["A1.json", "A2.json"] {
            write(&top.join("evidence").join(name), b"[]").unwrap();
        }
        let old = SystemTime::now() - Duration::from_secs(100);
        fs::File::options().append(true).open(top.join("evidence/A1.json")).unwrap().set_modified(old).unwrap();
        assert_eq!(prune_evidence(&top, Duration::from_secs(50), SystemTime::now()).unwrap(), 1);
        assert!(!top.join("evidence/A1.json").exists() && top.join("evidence/A2.json").exists());
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn no_link_leads_out_of_the_checkout() {
        let top = std::env::temp_dir().join(format!("regatta-keep-{}", std::process::id()));
        fs::create_dir_all(top.join("in/a")).unwrap();
        std::os::unix::fs::symlink("/", top.join("in/out")).unwrap();
        assert!(stays_within(&top, "in/a/x.json") && stays_within(&top, "new/dir/x"));
        assert!(!stays_within(&top, "in/out/tmp/x"));
        fs::remove_dir_all(&top).unwrap();
    }
}
