//! Copies of the journals of programs that run on other machines.
//!
//! A copy has the path and the format of a local journal, so the same code reads both. `copy.json`
//! marks it as a copy, and with that mark no program is ever started here for the attempt. The file
//! also holds the heading, without which a reader sees lines but not their meaning.
//!
//! Only the next record can be added to a copy. Two machines therefore need to agree only on the
//! number of its last record after an interruption. Acknowledged records are on the disk. A crash
//! may leave a torn end, which is removed before anything is added.

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{AgentError, Record};
use serde::{Deserialize, Serialize};

use crate::journal::{self, Resumed, Writer};
use crate::rundir::{Attended, RunDir, lock, lock_until, read_json, write_atomic};
use crate::supervise::AgentsAdapter;
use crate::words;

/// The number of copies that stay open. Beyond it the least recently used copy is closed.
const OPEN: usize = 200;

/// The time for which another user of the journal may hold its lock. No shim of this machine writes
/// this journal.
const PATIENCE: Duration = Duration::from_secs(10);

/// The maximum length of a heading in bytes.
const LONGEST_HEADING: usize = 1 << 20;

/// The facts about a program that runs on another machine.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct CopyRecord {
    v: u32,
    pub(crate) attended: Option<Attended>,
}

/// A copy that is open for appending.
pub(crate) struct OpenCopy {
    attempt: AttemptId,
    writer: Writer,
    /// The number of bytes in the copy.
    kept: u64,
}

impl RunDir {
    /// Reads the facts about a program that runs elsewhere, if this directory holds a copy. A torn
    /// record shows only that the directory holds a copy.
    pub(crate) fn copy(&self) -> io::Result<Option<CopyRecord>> {
        match read_json(&self.copy_file()) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Some(CopyRecord::default())),
            read => read,
        }
    }
}

impl AgentsAdapter {
    pub(crate) fn heading_of(&self, attempt: AttemptId) -> Result<Option<String>, AgentError> {
        let dir = self.attempt_dir(attempt);
        let launch = dir.launch().map_err(|error| words::file("read", &dir.launch_file(), error))?;
        Ok(launch
            .and_then(|it| it.attended)
            .map(|it| serde_json::to_string(&it).expect("the session setup is plain data")))
    }

    pub(crate) fn keep_heading(&self, attempt: AttemptId, heading: &str) -> Result<(), AgentError> {
        let attended: Option<Attended> =
            if heading.len() <= LONGEST_HEADING { serde_json::from_str(heading).ok() } else { None };
        let attended = attended.filter(|it| it.attempt == attempt).ok_or_else(|| words::no_heading(attempt))?;
        self.with_copy(attempt, |dir| {
            let known = dir.copy()?.and_then(|it| it.attended);
            if known.as_ref() != Some(&attended) {
                write_copy(dir, Some(attended))?;
                self.forget_readers(attempt);
            }
            Ok(Ok(()))
        })
    }

    pub(crate) fn last_copied(&self, attempt: AttemptId) -> Result<u64, AgentError> {
        let dir = self.attempt_dir(attempt);
        let failed = |error| words::file("read the journal in", &dir.0, error);
        if dir.copy().map_err(failed)?.is_none() {
            return journal::last(&dir.0).map_err(failed);
        }
        self.with_copy(attempt, |dir| {
            let copy = self.open_copy(attempt, dir)?;
            let last = copy.writer.last();
            self.put_back(copy);
            Ok(Ok(last))
        })
    }

    pub(crate) fn add_to_copy(&self, attempt: AttemptId, records: &[Record]) -> Result<u64, AgentError> {
        if let Some(long) = records.iter().find(|it| !journal::fits(&it.line)) {
            return Err(words::record_too_long(attempt, long.n));
        }
        self.with_copy(attempt, |dir| {
            let mut copy = self.open_copy(attempt, dir)?;
            let last = copy.writer.last();
            let new: Vec<&Record> = records.iter().filter(|it| it.n > last).collect();
            if let Some((expected, found)) = (last + 1..).zip(&new).find(|(expected, it)| it.n != *expected) {
                self.put_back(copy);
                return Ok(Err(words::gap(attempt, expected, found.n)));
            }
            // A shim lets its last line and its marks exceed the limit, so a copy may be a little
            // larger too.
            let adds: u64 = new.iter().map(|it| it.line.len() as u64).sum();
            if copy.kept + adds > self.limits.journal_bytes + journal::LONGEST as u64 {
                self.put_back(copy);
                return Ok(Err(words::copy_full(attempt)));
            }
            // After an error the copy is opened anew, which removes a torn end.
            for record in new {
                copy.kept += copy.writer.append(record.at, record.stream, &record.line)?;
            }
            copy.writer.sync()?;
            let last = copy.writer.last();
            self.put_back(copy);
            Ok(Ok(last))
        })
    }

    /// Runs `work` on a copy under its locks, so that no program is started here and no cleanup
    /// runs meanwhile.
    fn with_copy<T>(
        &self,
        attempt: AttemptId,
        work: impl FnOnce(&RunDir) -> io::Result<Result<T, AgentError>>,
    ) -> Result<T, AgentError> {
        let path = self.attempt_dir(attempt).0;
        let dir = RunDir::create(path).map_err(|error| words::file("create", &self.attempt_dir(attempt).0, error))?;
        let failed = |error| words::file("copy the journal in", &dir.0, error);
        let _start = lock(&dir.start_lock()).map_err(failed)?;
        if dir.launch_file().exists() || dir.shim_file().exists() {
            return Err(words::runs_here(attempt));
        }
        let held = lock_until(&dir.shim_lock(), Instant::now() + PATIENCE).map_err(failed)?;
        let Some(_held) = held else { return Err(words::busy(&dir.shim_lock())) };
        if !dir.copy_file().exists() {
            write_copy(&dir, None).map_err(failed)?;
        }
        work(&dir).map_err(failed)?
    }

    /// Takes the open copy, or opens it.
    fn open_copy(&self, attempt: AttemptId, dir: &RunDir) -> io::Result<OpenCopy> {
        let known = {
            let mut copies = self.copies();
            copies.iter().position(|it| it.attempt == attempt).map(|it| copies.remove(it))
        };
        if let Some(copy) = known.filter(|it| it.writer.is_current()) {
            return Ok(copy);
        }
        let Resumed { writer, kept, mended } = Writer::resume(dir.0.clone(), self.limits.segment_bytes)?;
        if mended {
            // Readers of the removed part start again.
            self.forget_readers(attempt);
        }
        Ok(OpenCopy { attempt, writer, kept })
    }

    fn put_back(&self, copy: OpenCopy) {
        let mut copies = self.copies();
        if copies.len() >= OPEN {
            copies.remove(0);
        }
        copies.push(copy);
    }
}

fn write_copy(dir: &RunDir, attended: Option<Attended>) -> io::Result<()> {
    write_atomic(&dir.copy_file(), &serde_json::to_vec(&CopyRecord { v: 1, attended })?)
}

/// Returns the time of the last record of a copy, if the directory holds a copy with records. No
/// exit record tells when its program ended.
pub(crate) fn last_added(dir: &RunDir) -> Option<SystemTime> {
    let written = dir.copy_file().exists().then(|| journal::written(&dir.0)).flatten()?;
    Some(UNIX_EPOCH + Duration::from_millis(written))
}
