//! The audit log: a record of every write that a caller requested, with the access token, the
//! origin and the result.
//!
//! The store knows which change was made and by whom. The audit log also has the name of the
//! caller's access token, the caller's address or process, and the writes that were refused. It is
//! a file beside the store, `audit.jsonl`, to which lines are only appended. A line is written
//! before its caller gets the answer, so every acknowledged write is in the log, however the daemon
//! ends. Lines of callers that are answered together are written together. The file is synced to
//! disk within [`SYNC_INTERVAL`], so only a crash of the whole machine can lose lines, and the
//! store still has their changes. A full file is renamed and a new one begun; when there are too
//! many files, the oldest is deleted.
//!
//! The audit log is not part of the store, for two reasons: each refused write would cost a
//! transaction, and restoring the store from a backup would remove the record of later writes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regatta_api::input;
use regatta_api::view::AuditLineView;
use serde_json::Value;
use tokio::sync::Notify;

/// Maximum size of one file of the audit log, in bytes. `MAX_ROTATED_FILES` is the number of older,
/// full files that are kept.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
const MAX_ROTATED_FILES: usize = 15;
/// Maximum time from writing a line of the audit log until the line is synced to disk.
const SYNC_INTERVAL: Duration = Duration::from_millis(500);
/// The largest number of lines that a caller who reads no pages can ask for.
pub(crate) const MAX_LISTED_LINES: usize = 10_000;

/// The file of the audit log, with the lines that are not written to it yet.
pub(crate) struct AuditLog {
    path: PathBuf,
    max_file_bytes: u64,
    open_file: Mutex<OpenFile>,
    /// Number of audit lines that could not be written since the daemon started.
    lost_lines: AtomicU64,
    /// Wakes [`AuditLog::run_sync`], because a line was written and must be synced to disk.
    sync_needed: Notify,
}

struct OpenFile {
    file: Arc<File>,
    size_bytes: u64,
    /// Number of the last line that was added. `last_written` is the number of the last line that
    /// is in the file.
    last_number: u64,
    last_written: u64,
    /// Audit lines that are not in the file yet. The callers who added these lines wait until they
    /// are.
    unwritten: Vec<u8>,
    did_last_write_fail: bool,
}

impl AuditLog {
    /// Opens the audit log in a data directory. Line numbers continue after the last line.
    pub(crate) fn open(dir: &Path) -> io::Result<AuditLog> {
        AuditLog::open_with_limit(dir.join("audit.jsonl"), MAX_FILE_BYTES)
    }

    fn open_with_limit(path: PathBuf, max_file_bytes: u64) -> io::Result<AuditLog> {
        let mut file = open_for_append(&path)?;
        let mut size = file.metadata()?.len();
        let mut last_line = last_number(&path)?;
        if size == 0 {
            last_line = last_number(&rotated_path(&path, 1))?;
        } else if !ends_with_newline(&path, size)? {
            // A crash may have cut off the last line. Add a line break, so that the next line does
            // not continue the cut line.
            file.write_all(b"\n")?;
            size += 1;
        }
        let open_file = Mutex::new(OpenFile {
            file: Arc::new(file),
            size_bytes: size,
            last_number: last_line,
            last_written: last_line,
            unwritten: Vec::new(),
            did_last_write_fail: false,
        });
        Ok(AuditLog {
            path,
            max_file_bytes,
            open_file,
            lost_lines: AtomicU64::new(0),
            sync_needed: Notify::new(),
        })
    }

    /// Syncs newly written audit lines to disk, until the daemon ends.
    pub(crate) async fn run_sync(&self) {
        loop {
            self.sync_needed.notified().await;
            tokio::time::sleep(SYNC_INTERVAL).await;
            self.sync().await;
        }
    }

    /// Writes all audit lines that are not in the file yet, and syncs the file to disk.
    pub(crate) async fn sync(&self) {
        self.write_up_to(u64::MAX); // also the lines of callers that hung up
        let file = self.lock().file.clone();
        match tokio::task::spawn_blocking(move || file.sync_data()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(
                    "could not sync the audit log to disk; a power failure may lose its newest lines: {error}"
                )
            }
            Err(error) => tracing::error!(
                "syncing the audit log to disk panicked; a power failure may lose its newest lines: {error}"
            ),
        }
    }

    /// Adds a line and returns after it is written. Lines of callers that finish at the same moment
    /// are written together. If writing fails, the caller's change still counts; the failure is
    /// logged, counted, and visible in `/readyz`.
    pub(crate) async fn append(&self, line: AuditLineView) {
        let number = self.queue_line(line);
        tokio::task::yield_now().await; // other callers that are about to end add their lines
        self.write_up_to(number);
    }

    /// Adds a line and writes it at once, without waiting for other callers' lines.
    pub(crate) fn append_now(&self, line: AuditLineView) {
        let number = self.queue_line(line);
        self.write_up_to(number);
    }

    fn queue_line(&self, mut line: AuditLineView) -> u64 {
        let mut open = self.lock();
        line.n = open.last_number + 1;
        let before = open.unwritten.len();
        match serde_json::to_writer(&mut open.unwritten, &line) {
            Ok(()) => {
                open.unwritten.push(b'\n');
                open.last_number = line.n;
                self.sync_needed.notify_one();
            }
            Err(error) => {
                open.unwritten.truncate(before);
                self.lost_lines.fetch_add(1, Relaxed);
                tracing::error!(
                    "could not format the call {} as JSON, so the audit log has no line about it: {error}",
                    line.verb
                );
            }
        }
        open.last_number
    }

    /// Writes all audit lines that are not in the file yet. Does nothing if another caller has
    /// already written line `number`.
    fn write_up_to(&self, number: u64) {
        let mut open = self.lock();
        if open.last_written >= number || open.unwritten.is_empty() {
            return;
        }
        let text = std::mem::take(&mut open.unwritten);
        match self.write_text(&mut open, &text) {
            Ok(()) => {
                open.last_written = open.last_number;
                open.did_last_write_fail = false;
            }
            Err(error) => {
                self.lost_lines
                    .fetch_add(open.last_number - open.last_written, Relaxed);
                if !open.did_last_write_fail {
                    tracing::error!(
                        "could not write to the audit log; new lines of the log are lost until writing succeeds: {error}"
                    );
                }
                open.last_number = open.last_written;
                open.did_last_write_fail = true;
            }
        }
        open.unwritten = text;
        open.unwritten.clear(); // keeps its capacity for the next lines
    }

    fn write_text(&self, open: &mut OpenFile, text: &[u8]) -> io::Result<()> {
        if open.size_bytes > 0 && open.size_bytes + text.len() as u64 > self.max_file_bytes {
            self.rotate(open)?;
        }
        if open.did_last_write_fail {
            (&*open.file).write_all(b"\n")?; // terminates the rest of the last attempt
        }
        (&*open.file).write_all(text)?;
        open.size_bytes += text.len() as u64;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OpenFile> {
        self.open_file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn rotate(&self, open: &mut OpenFile) -> io::Result<()> {
        open.file.sync_all()?;
        for nth in (1..MAX_ROTATED_FILES).rev() {
            match std::fs::rename(
                rotated_path(&self.path, nth),
                rotated_path(&self.path, nth + 1),
            ) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, rotated_path(&self.path, 1))?;
        (open.file, open.size_bytes) = (Arc::new(open_for_append(&self.path)?), 0);
        Ok(())
    }

    /// Returns the number of audit lines that were lost, and whether the last attempt to write a
    /// line failed.
    pub(crate) fn write_failures(&self) -> (u64, bool) {
        let did_fail = self.lock().did_last_write_fail;
        (self.lost_lines.load(Relaxed), did_fail)
    }

    /// Returns at most `limit` of the lines that a query asks for, in order: the newest lines, or
    /// the oldest lines after the number `after`. Ignores the limit in the query.
    pub(crate) fn read(
        &self,
        ask: &input::AuditQuery,
        limit: usize,
    ) -> io::Result<Vec<AuditLineView>> {
        let matches = |audit_line: &AuditLineView| {
            ask.by
                .as_ref()
                .is_none_or(|by| audit_line.by == *by || audit_line.token == *by)
                && ask
                    .verb
                    .as_ref()
                    .is_none_or(|verb| audit_line.verb == *verb)
                && ask
                    .about
                    .as_ref()
                    .is_none_or(|about| audit_line.about.as_ref() == Some(about))
        };
        let mut lines = std::collections::VecDeque::new();
        for path in self.all_files() {
            if let Some(after) = ask.after
                && last_number(&path)? <= after
            {
                continue;
            }
            let file = match File::open(&path) {
                Ok(file) => file,
                // There are not so many old files yet, or another thread has just renamed this
                // file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for line in BufReader::new(file).split(b'\n') {
                let Ok(line) = serde_json::from_slice::<AuditLineView>(&line?) else {
                    continue;
                };
                match ask.after {
                    Some(after) if line.n <= after => {}
                    _ if !matches(&line) => {}
                    Some(_) => {
                        lines.push_back(line);
                        if lines.len() == limit {
                            return Ok(lines.into());
                        }
                    }
                    None => {
                        lines.push_back(line);
                        if lines.len() > limit {
                            lines.pop_front();
                        }
                    }
                }
            }
        }
        Ok(lines.into())
    }

    /// Returns the paths of all files of the audit log, oldest first.
    fn all_files(&self) -> impl Iterator<Item = PathBuf> {
        let rotated: Vec<PathBuf> = (1..=MAX_ROTATED_FILES)
            .rev()
            .map(|nth| rotated_path(&self.path, nth))
            .collect();
        rotated.into_iter().chain([self.path.clone()])
    }
}

fn rotated_path(path: &Path, nth: usize) -> PathBuf {
    path.with_extension(format!("{nth}.jsonl"))
}

fn open_for_append(path: &Path) -> io::Result<File> {
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

fn ends_with_newline(path: &Path, size: u64) -> io::Result<bool> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(size - 1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Returns the number of the last audit line in a file that can be parsed; 0 if there is none.
fn last_number(path: &Path) -> io::Result<u64> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(64 * 1024)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let parse = |bytes: &[u8]| serde_json::from_slice::<AuditLineView>(bytes).ok();
    Ok(tail
        .rsplit(|byte| *byte == b'\n')
        .find_map(parse)
        .map_or(0, |audit_line| audit_line.n))
}

/// Returns the id or name of the thing that a call's input is about, such as a task's id. Free
/// texts are never returned, because they may contain anything. The rest of the input is not
/// parsed, because it may be long.
pub(crate) fn subject_of(input: &[u8]) -> Option<String> {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct SubjectFields {
        task: Value,
        id: Value,
        attempt: Value,
        claim: Value,
        rule: Value,
        name: Value,
        agent: Value,
        scope: Value,
        channel: Value,
        uris: Value,
        project: Value,
        path: Value,
    }
    // Only a JSON object has field names. In a JSON list, serde would take the first entry for the
    // first field, and that entry could be any text.
    if input.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    let fields: SubjectFields = serde_json::from_slice(input).ok()?;
    let ids = [
        fields.task,
        fields.id,
        fields.attempt,
        fields.claim,
        fields.rule,
        fields.name,
    ];
    let other_fields = [
        fields.agent,
        fields.scope,
        fields.channel,
        fields.uris,
        fields.project,
        fields.path,
    ];
    let text = match ids
        .into_iter()
        .chain(other_fields)
        .find(|field| !field.is_null())?
    {
        Value::String(s) => s,
        Value::Array(items) => items
            .iter()
            .filter_map(|value| value.as_str())
            .collect::<Vec<_>>()
            .join(" "),
        other => other.to_string(),
    };
    Some(text.chars().take(120).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit_line(verb: &str) -> AuditLineView {
        AuditLineView {
            n: 0,
            time: "2026-11-15T20:00:00Z".into(),
            verb: verb.into(),
            about: Some("T1".into()),
            by: "person:ann".into(),
            token: "owner".into(),
            scope: regatta_api::verb::TokenScope::Admin,
            from: "127.0.0.1:5".into(),
            key: None,
            attempt: None,
            revision: Some(7),
            refused: None,
        }
    }

    fn audit_query() -> input::AuditQuery {
        input::AuditQuery {
            after: None,
            limit: None,
            by: None,
            verb: None,
            about: None,
        }
    }

    /// Lines are numbered consecutively across rotated files and restarts, and the oldest files are
    /// deleted.
    #[test]
    fn audit_log_continues_across_rotation_and_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let open_small_log = || AuditLog::open_with_limit(path.clone(), 1_000).unwrap();
        let log = open_small_log();
        (0..10).for_each(|_| log.append_now(audit_line("task.add")));
        let reopened = open_small_log();
        (0..10).for_each(|_| reopened.append_now(audit_line("land")));
        let numbers: Vec<u64> = reopened
            .read(&audit_query(), 50)
            .unwrap()
            .iter()
            .map(|audit_line| audit_line.n)
            .collect();
        assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
        assert!(rotated_path(&path, 1).exists(), "the file was rotated");
        let after = reopened
            .read(
                &input::AuditQuery {
                    after: Some(12),
                    ..audit_query()
                },
                3,
            )
            .unwrap();
        assert_eq!(
            after
                .iter()
                .map(|audit_line| audit_line.n)
                .collect::<Vec<_>>(),
            [13, 14, 15]
        );
        let landed = reopened
            .read(
                &input::AuditQuery {
                    verb: Some("land".into()),
                    ..audit_query()
                },
                2,
            )
            .unwrap();
        assert_eq!(
            landed
                .iter()
                .map(|audit_line| audit_line.n)
                .collect::<Vec<_>>(),
            [19, 20]
        );
        assert_eq!(
            reopened
                .read(
                    &input::AuditQuery {
                        by: Some("eve".into()),
                        ..audit_query()
                    },
                    50,
                )
                .unwrap(),
            vec![]
        );
        (0..200).for_each(|_| reopened.append_now(audit_line("task.add")));
        let remaining = reopened.read(&audit_query(), 10_000).unwrap();
        assert!(
            remaining.len() < 100 && remaining.last().unwrap().n == 220,
            "{}",
            remaining.len()
        );
        assert!(std::fs::read_dir(dir.path()).unwrap().count() <= MAX_ROTATED_FILES + 1);
    }

    /// D8: a truncated line is ignored, and the next line is intact.
    #[test]
    fn d8_a_truncated_audit_line_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        AuditLog::open(dir.path())
            .unwrap()
            .append_now(audit_line("task.add"));
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], &whole[..whole.len() / 2]].concat()).unwrap();
        let log = AuditLog::open(dir.path()).unwrap();
        log.append_now(audit_line("land"));
        let read = log.read(&audit_query(), 50).unwrap();
        assert_eq!(
            read.iter()
                .map(|audit_line| (audit_line.n, audit_line.verb.as_str()))
                .collect::<Vec<_>>(),
            [(1, "task.add"), (2, "land")]
        );
        assert_eq!(log.write_failures(), (0, false));
    }

    #[test]
    fn subject_of_a_call_is_read_from_its_ids_and_never_from_its_text() {
        let subject_of_json = |value: serde_json::Value| subject_of(value.to_string().as_bytes());
        assert_eq!(
            subject_of_json(serde_json::json!({ "task": "T7", "text": "secret" })).as_deref(),
            Some("T7")
        );
        assert_eq!(
            subject_of_json(serde_json::json!({ "uris": ["file://a", "file://b"] })).as_deref(),
            Some("file://a file://b")
        );
        assert_eq!(
            subject_of_json(serde_json::json!({ "text": "secret", "subject": "secret" })),
            None
        );
        assert_eq!(
            subject_of_json(serde_json::json!({ "task": null, "name": { "a": 1 } })).as_deref(),
            Some(r#"{"a":1}"#)
        );
        assert_eq!(
            (
                subject_of_json(serde_json::json!(["secret"])),
                subject_of_json(serde_json::json!("secret"))
            ),
            (None, None)
        );
        assert_eq!(
            (subject_of(b""), subject_of(b" {"), subject_of(b"\xff")),
            (None, None, None)
        );
    }
}
