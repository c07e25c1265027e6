//! Copies of the journals of programs that run on other machines.
//!
//! A copy lies where the journal of a program of this machine would, in the same form, so that whoever reads one reads
//! the other. `copy.json` says that it is one: then no program is ever started here for that attempt. It holds the
//! heading too, without which a reader sees lines and not what they mean.
//!
//! A copy grows only by what follows on, so the place of its last record is all that two machines must agree on after a
//! cut. What is answered is on the disk. A crash in the midst leaves a torn end, which goes before anything is added.

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{AgentError, Record};
use serde::{Deserialize, Serialize};

use crate::journal::{self, Resumed, Writer};
use crate::rundir::{Attended, RunDir, lock, lock_until, read_json, write_atomic};
use crate::supervise::AgentsAdapter;
use crate::words;

/// So many copies are open for more; the one that was not added to for longest is opened anew.
const OPEN: usize = 200;

/// How long somebody may be busy with a journal that nobody of this machine writes.
const PATIENCE: Duration = Duration::from_secs(10);

/// No heading is longer.
const LONGEST_HEADING: usize = 1 << 20;

/// What is known of a program that runs elsewhere.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct CopyRecord {
    v: u32,
    pub(crate) attended: Option<Attended>,
}

/// A copy that is open for more.
pub(crate) struct OpenCopy {
    attempt: AttemptId,
    writer: Writer,
    /// How much it holds.
    kept: u64,
}

impl RunDir {
    /// Reads what is known of a program that runs elsewhere, if this is a copy. A torn record tells only that it is.
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
        Ok(launch.and_then(|it| it.attended).map(|it| serde_json::to_string(&it).expect("it is plain data")))
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
            // The shim lets its last line pass, and its marks: it keeps a little more than its limit.
            let adds: u64 = new.iter().map(|it| it.line.len() as u64).sum();
            if copy.kept + adds > self.limits.journal_bytes + journal::LONGEST as u64 {
                self.put_back(copy);
                return Ok(Err(words::copy_full(attempt)));
            }
            // After an error it is opened anew, and what is torn goes.
            for record in new {
                copy.kept += copy.writer.append(record.at, record.stream, &record.line)?;
            }
            copy.writer.sync()?;
            let last = copy.writer.last();
            self.put_back(copy);
            Ok(Ok(last))
        })
    }

    /// Works on a copy while nobody else does: no program is being started here, and nobody clears up.
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

    /// The copy as it was left, or opened anew.
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
            // Whoever has read what was torn begins again.
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

/// When a copy was last added to, if this is one and has anything. Nobody tells us that its program has ended.
pub(crate) fn last_added(dir: &RunDir) -> Option<SystemTime> {
    let written = dir.copy_file().exists().then(|| journal::written(&dir.0)).flatten()?;
    Some(UNIX_EPOCH + Duration::from_millis(written))
}
