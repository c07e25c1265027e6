//! The audit log: every write that a caller requested, with its token, its origin and its result.
//!
//! The store has the facts and their actors. The audit log has the token and the address or process
//! of the caller, and also the refused writes. It is an append-only file beside the store,
//! `audit.jsonl`. A line is written before its caller is answered, so every acknowledged write is
//! in the log, however the daemon ends. Lines of callers that are answered together are written
//! together. The file is synchronised to disk within [`SYNC`]: only a crash of the whole machine
//! can lose the lines of that moment, and the store still has their changes. Full files are
//! rotated, and the oldest is deleted when there are too many.
//!
//! The log is not in the store, because a refused write would cost a transaction each, and because
//! restoring the store from a backup must not remove who did what since.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regatta_api::input;
use regatta_api::view::AuditView;
use serde_json::Value;
use tokio::sync::Notify;

/// Maximum size of one file, and number of rotated files.
const LARGEST: u64 = 16 * 1024 * 1024;
const KEPT: usize = 15;
/// Maximum time until a line is synchronised to disk.
const SYNC: Duration = Duration::from_millis(500);
/// Maximum number of lines in one answer.
const LARGEST_PAGE: usize = 10_000;

/// The audit log.
pub(crate) struct Audit {
    path: PathBuf,
    largest: u64,
    open: Mutex<Open>,
    /// Number of lines since the start that could not be written.
    lost: AtomicU64,
    /// Signals that a line waits to be synchronised.
    unsynced: Notify,
}

struct Open {
    file: Arc<File>,
    size: u64,
    /// The numbers of the last line and of the last written line.
    last: u64,
    written: u64,
    /// Lines that are not written yet; their callers wait.
    waiting: Vec<u8>,
    broken: bool,
}

impl Audit {
    /// Opens the log in a data directory and continues after its last line.
    pub(crate) fn open(dir: &Path) -> io::Result<Audit> {
        Audit::of(dir.join("audit.jsonl"), LARGEST)
    }

    fn of(path: PathBuf, largest: u64) -> io::Result<Audit> {
        let mut file = append(&path)?;
        let mut size = file.metadata()?.len();
        let mut last = last_number(&path)?;
        if size == 0 {
            last = last_number(&aside(&path, 1))?;
        } else if !ends_whole(&path, size)? {
            // A line that a crash truncated is terminated, so that it cannot merge with the next
            // one.
            file.write_all(b"\n")?;
            size += 1;
        }
        let open =
            Mutex::new(Open { file: Arc::new(file), size, last, written: last, waiting: Vec::new(), broken: false });
        Ok(Audit { path, largest, open, lost: AtomicU64::new(0), unsynced: Notify::new() })
    }

    /// Synchronises written lines to disk until the daemon ends.
    pub(crate) async fn keep_synced(&self) {
        loop {
            self.unsynced.notified().await;
            tokio::time::sleep(SYNC).await;
            self.sync().await;
        }
    }

    /// Synchronises all written lines to disk.
    pub(crate) async fn sync(&self) {
        self.write_up_to(u64::MAX); // also the lines of callers that hung up
        let file = self.lock().file.clone();
        match tokio::task::spawn_blocking(move || file.sync_data()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!("could not synchronise the audit log to disk: {error}"),
            Err(error) => tracing::error!("could not synchronise the audit log to disk: {error}"),
        }
    }

    /// Adds a line and returns when it is written, together with the lines of callers that end at
    /// the same moment. A failure to write does not undo the change: it is logged, counted, and
    /// visible in `/readyz`.
    pub(crate) async fn add(&self, line: AuditView) {
        let number = self.put(line);
        tokio::task::yield_now().await; // other callers that are about to end add their lines
        self.write_up_to(number);
    }

    /// Adds a line without waiting for the lines of others.
    pub(crate) fn add_now(&self, line: AuditView) {
        let number = self.put(line);
        self.write_up_to(number);
    }

    fn put(&self, mut line: AuditView) -> u64 {
        let mut open = self.lock();
        line.n = open.last + 1;
        let before = open.waiting.len();
        match serde_json::to_writer(&mut open.waiting, &line) {
            Ok(()) => {
                open.waiting.push(b'\n');
                open.last = line.n;
                self.unsynced.notify_one();
            }
            Err(error) => {
                open.waiting.truncate(before);
                self.lost.fetch_add(1, Relaxed);
                tracing::error!("could not format a line of the audit log: {error}");
            }
        }
        open.last
    }

    /// Writes the waiting lines, unless another caller has written line `number` already.
    fn write_up_to(&self, number: u64) {
        let mut open = self.lock();
        if open.written >= number || open.waiting.is_empty() {
            return;
        }
        let text = std::mem::take(&mut open.waiting);
        match self.write(&mut open, &text) {
            Ok(()) => {
                open.written = open.last;
                open.broken = false;
            }
            Err(error) => {
                self.lost.fetch_add(open.last - open.written, Relaxed);
                if !open.broken {
                    tracing::error!("could not write the audit log: {error}");
                }
                open.last = open.written;
                open.broken = true;
            }
        }
        open.waiting = text;
        open.waiting.clear(); // keeps its capacity for the next lines
    }

    fn write(&self, open: &mut Open, text: &[u8]) -> io::Result<()> {
        if open.size > 0 && open.size + text.len() as u64 > self.largest {
            self.put_aside(open)?;
        }
        if open.broken {
            (&*open.file).write_all(b"\n")?; // terminates the rest of the last attempt
        }
        (&*open.file).write_all(text)?;
        open.size += text.len() as u64;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_aside(&self, open: &mut Open) -> io::Result<()> {
        open.file.sync_all()?;
        for nth in (1..KEPT).rev() {
            match std::fs::rename(aside(&self.path, nth), aside(&self.path, nth + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, aside(&self.path, 1))?;
        (open.file, open.size) = (Arc::new(append(&self.path)?), 0);
        Ok(())
    }

    /// Returns the number of lines that could not be written, and whether the last attempt failed.
    pub(crate) fn lost(&self) -> (u64, bool) {
        let broken = self.lock().broken;
        (self.lost.load(Relaxed), broken)
    }

    /// Returns the requested lines in order: the newest, or with `after` the oldest after that one.
    pub(crate) fn read(&self, ask: &input::Audit) -> io::Result<Vec<AuditView>> {
        let limit = ask.limit.clamp(1, LARGEST_PAGE);
        let fits = |it: &AuditView| {
            ask.by.as_ref().is_none_or(|by| it.by == *by || it.token == *by)
                && ask.verb.as_ref().is_none_or(|verb| it.verb == *verb)
                && ask.about.as_ref().is_none_or(|about| it.about.as_ref() == Some(about))
        };
        let mut found = std::collections::VecDeque::new();
        for path in self.files() {
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue, // rotated in the meantime
                Err(error) => return Err(error),
            };
            for line in BufReader::new(file).split(b'\n') {
                let Ok(line) = serde_json::from_slice::<AuditView>(&line?) else { continue };
                match ask.after {
                    Some(after) if line.n <= after => {}
                    _ if !fits(&line) => {}
                    Some(_) => {
                        found.push_back(line);
                        if found.len() == limit {
                            return Ok(found.into());
                        }
                    }
                    None => {
                        found.push_back(line);
                        if found.len() > limit {
                            found.pop_front();
                        }
                    }
                }
            }
        }
        Ok(found.into())
    }

    /// Returns the paths of all files, oldest first.
    fn files(&self) -> impl Iterator<Item = PathBuf> {
        let old: Vec<PathBuf> = (1..=KEPT).rev().map(|nth| aside(&self.path, nth)).collect();
        old.into_iter().chain([self.path.clone()])
    }
}

fn aside(path: &Path, nth: usize) -> PathBuf {
    path.with_extension(format!("{nth}.jsonl"))
}

fn append(path: &Path) -> io::Result<File> {
    std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn ends_whole(path: &Path, size: u64) -> io::Result<bool> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(size - 1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Returns the number of the last readable line; 0 if there is none.
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
    let read = |it: &[u8]| serde_json::from_slice::<AuditView>(it).ok();
    Ok(tail.rsplit(|it| *it == b'\n').find_map(read).map_or(0, |it| it.n))
}

/// Returns the subject of a call from its input, but never its text, which may contain anything.
/// The rest of the input is skipped, because it may be long.
pub(crate) fn about(input: &[u8]) -> Option<String> {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Named {
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
    // A list has no field names, and its first entry may be any text.
    if input.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    let it: Named = serde_json::from_slice(input).ok()?;
    let work = [it.task, it.id, it.attempt, it.claim, it.rule, it.name];
    let rest = [it.agent, it.scope, it.channel, it.uris, it.project, it.path];
    let text = match work.into_iter().chain(rest).find(|it| !it.is_null())? {
        Value::String(it) => it,
        Value::Array(it) => it.iter().filter_map(|it| it.as_str()).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    };
    Some(text.chars().take(120).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(verb: &str) -> AuditView {
        AuditView {
            n: 0,
            time: "2026-11-15T20:00:00Z".into(),
            verb: verb.into(),
            about: Some("T1".into()),
            by: "person:ann".into(),
            token: "owner".into(),
            scope: regatta_api::verb::Scope::Admin,
            from: "127.0.0.1:5".into(),
            key: None,
            attempt: None,
            revision: Some(7),
            refused: None,
        }
    }

    fn ask() -> input::Audit {
        input::Audit { after: None, limit: 50, by: None, verb: None, about: None }
    }

    /// Lines are numbered consecutively across rotated files and restarts, and the oldest files are
    /// deleted.
    #[test]
    fn audit_log_continues_across_rotation_and_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let small = || Audit::of(path.clone(), 1_000).unwrap();
        let log = small();
        (0..10).for_each(|_| log.add_now(line("task.add")));
        let again = small();
        (0..10).for_each(|_| again.add_now(line("land")));
        let numbers: Vec<u64> = again.read(&ask()).unwrap().iter().map(|it| it.n).collect();
        assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
        assert!(aside(&path, 1).exists(), "the file was rotated");
        let after = again.read(&input::Audit { after: Some(12), limit: 3, ..ask() }).unwrap();
        assert_eq!(after.iter().map(|it| it.n).collect::<Vec<_>>(), [13, 14, 15]);
        let landed = again.read(&input::Audit { verb: Some("land".into()), limit: 2, ..ask() }).unwrap();
        assert_eq!(landed.iter().map(|it| it.n).collect::<Vec<_>>(), [19, 20]);
        assert_eq!(again.read(&input::Audit { by: Some("eve".into()), ..ask() }).unwrap(), vec![]);
        (0..200).for_each(|_| again.add_now(line("task.add")));
        let left = again.read(&input::Audit { limit: 10_000, ..ask() }).unwrap();
        assert!(left.len() < 100 && left.last().unwrap().n == 220, "{}", left.len());
        assert!(std::fs::read_dir(dir.path()).unwrap().count() <= KEPT + 1);
    }

    /// D8: a truncated line is ignored, and the next line is intact.
    #[test]
    fn d8_a_truncated_audit_line_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        Audit::open(dir.path()).unwrap().add_now(line("task.add"));
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], &whole[..whole.len() / 2]].concat()).unwrap();
        let log = Audit::open(dir.path()).unwrap();
        log.add_now(line("land"));
        let read = log.read(&ask()).unwrap();
        assert_eq!(read.iter().map(|it| (it.n, it.verb.as_str())).collect::<Vec<_>>(), [(1, "task.add"), (2, "land")]);
        assert_eq!(log.lost(), (0, false));
    }

    #[test]
    fn subject_of_a_call_is_read_from_its_ids_and_never_from_its_text() {
        let of = |it: serde_json::Value| about(it.to_string().as_bytes());
        assert_eq!(of(serde_json::json!({ "task": "T7", "text": "secret" })).as_deref(), Some("T7"));
        assert_eq!(of(serde_json::json!({ "uris": ["file://a", "file://b"] })).as_deref(), Some("file://a file://b"));
        assert_eq!(of(serde_json::json!({ "text": "secret", "subject": "secret" })), None);
        assert_eq!(of(serde_json::json!({ "task": null, "name": { "a": 1 } })).as_deref(), Some(r#"{"a":1}"#));
        assert_eq!((of(serde_json::json!(["secret"])), of(serde_json::json!("secret"))), (None, None));
        assert_eq!((about(b""), about(b" {"), about(b"\xff")), (None, None, None));
    }
}
