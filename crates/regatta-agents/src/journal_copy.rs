//! Keeps copies of the journals of programs that run on other machines.
//!
//! A copy has the path and the format of a local journal, so the same code reads both. The file
//! `copy.json` beside the journal shows that the journal is a copy; while that file exists, no
//! program is started here for the attempt. The file also holds the heading: the facts about the
//! program without which a reader cannot interpret the recorded lines.
//!
//! Only the record after the last one can be added to a copy. After an interruption, the two
//! machines therefore need to agree only on the number of the copy's last record. Records are on
//! the disk before their receipt is acknowledged. A crash may leave an incomplete record at the
//! end, which is removed before anything is added.

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{AgentError, JournalRecord};
use serde::{Deserialize, Serialize};

use crate::adapter::AgentsAdapter;
use crate::errors;
use crate::journal::{self, JournalWriter, ResumedJournal};
use crate::run_dir::{RunDir, SessionFacts, lock, lock_until, read_json, write_atomic};

/// The number of copied journals (of programs on other machines) that stay open for appending. When
/// there are more, the least recently used one is closed.
const MAX_OPEN_COPIES: usize = 200;

/// The time to wait for the lock of a journal that is copied from another machine. Only short
/// operations hold this lock, because no supervisor process of this machine writes this journal.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length in bytes of a heading (the facts about the attempt's program, as JSON).
const MAX_HEADING_BYTES: usize = 1 << 20;

/// The content of `copy.json`: the facts about a program that runs on another machine.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct CopyRecord {
    v: u32,
    #[serde(rename = "attended")]
    pub(crate) session_facts: Option<SessionFacts>,
}

/// A copy of the journal of a program on another machine, open for appending.
pub(crate) struct OpenCopy {
    attempt: AttemptId,
    writer: JournalWriter,
    /// The number of bytes of all records in this copy of a journal.
    size_bytes: u64,
}

impl RunDir {
    /// Reads `copy.json`, or returns `None` if this directory holds no journal that was copied from
    /// another machine. If the file is incomplete, the result says only that there is a copied
    /// journal.
    pub(crate) fn read_copy(&self) -> io::Result<Option<CopyRecord>> {
        match read_json(&self.copy_file()) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Ok(Some(CopyRecord::default()))
            }
            read => read,
        }
    }
}

impl AgentsAdapter {
    pub(crate) fn read_heading(&self, attempt: AttemptId) -> Result<Option<String>, AgentError> {
        let dir = self.attempt_dir(attempt);
        let launch = dir.read_launch().map_err(|error| {
            errors::file_error(
                "read the description of the program to start",
                &dir.launch_file(),
                error,
            )
        })?;
        Ok(launch
            .and_then(|launch| launch.session_facts)
            .map(|session_facts| {
                serde_json::to_string(&session_facts).expect("the session setup is plain data")
            }))
    }

    pub(crate) fn write_heading(
        &self,
        attempt: AttemptId,
        heading: &str,
    ) -> Result<(), AgentError> {
        let session_facts: Option<SessionFacts> = if heading.len() <= MAX_HEADING_BYTES {
            serde_json::from_str(heading).ok()
        } else {
            None
        };
        let session_facts = session_facts
            .filter(|session_facts| session_facts.attempt == attempt)
            .ok_or_else(|| errors::invalid_heading(attempt))?;
        self.with_copy(attempt, |dir| {
            let known = dir.read_copy()?.and_then(|copy| copy.session_facts);
            if known.as_ref() != Some(&session_facts) {
                write_copy(dir, Some(session_facts))?;
                self.invalidate_cursors(attempt);
            }
            Ok(Ok(()))
        })
    }

    pub(crate) fn last_copied_record(&self, attempt: AttemptId) -> Result<u64, AgentError> {
        let dir = self.attempt_dir(attempt);
        let failed = |error| {
            errors::file_error(
                "read the journal (the program's recorded output) in",
                &dir.0,
                error,
            )
        };
        if dir.read_copy().map_err(failed)?.is_none() {
            return journal::last_record_number(&dir.0).map_err(failed);
        }
        self.with_copy(attempt, |dir| {
            let copy = self.open_copy(attempt, dir)?;
            let last = copy.writer.last_record();
            self.keep_open(copy);
            Ok(Ok(last))
        })
    }

    pub(crate) fn append_to_copy(
        &self,
        attempt: AttemptId,
        records: &[JournalRecord],
    ) -> Result<u64, AgentError> {
        if let Some(too_long) = records.iter().find(|record| !journal::fits(&record.line)) {
            return Err(errors::record_too_long(attempt, too_long.position));
        }
        self.with_copy(attempt, |dir| {
            let mut copy = self.open_copy(attempt, dir)?;
            let last = copy.writer.last_record();
            let new: Vec<&JournalRecord> = records
                .iter()
                .filter(|record| record.position > last)
                .collect();
            if let Some((expected, found)) = (last + 1..)
                .zip(&new)
                .find(|(expected, record)| record.position != *expected)
            {
                self.keep_open(copy);
                return Ok(Err(errors::missing_records(
                    attempt,
                    expected,
                    found.position,
                )));
            }
            // The size limit may be exceeded a little, because a supervisor process writes its last
            // line and its marks (its own remarks) beyond the limit too.
            let added_bytes: u64 = new.iter().map(|record| record.line.len() as u64).sum();
            if copy.size_bytes + added_bytes
                > self.limits.journal_bytes + journal::MAX_LINE_BYTES as u64
            {
                self.keep_open(copy);
                return Ok(Err(errors::copy_full(attempt)));
            }
            // An error here closes the copied journal. When the journal is opened again, an
            // incomplete record at its end is removed.
            for record in new {
                copy.size_bytes +=
                    copy.writer
                        .append(record.written_unix_ms, record.stream, &record.line)?;
            }
            copy.writer.sync()?;
            let last = copy.writer.last_record();
            self.keep_open(copy);
            Ok(Ok(last))
        })
    }

    /// Runs `work` on a copied journal (of a program on another machine) while holding its locks.
    /// Meanwhile no program is started for the attempt, and no cleanup removes the copy.
    fn with_copy<T>(
        &self,
        attempt: AttemptId,
        work: impl FnOnce(&RunDir) -> io::Result<Result<T, AgentError>>,
    ) -> Result<T, AgentError> {
        let path = self.attempt_dir(attempt).0;
        let dir = RunDir::create(path).map_err(|error| {
            errors::file_error(
                "create the run directory of the attempt",
                &self.attempt_dir(attempt).0,
                error,
            )
        })?;
        let failed =
            |error| errors::file_error("store copied records in the journal in", &dir.0, error);
        let _start = lock(&dir.start_lock()).map_err(failed)?;
        if dir.launch_file().exists() || dir.shim_file().exists() {
            return Err(errors::runs_here(attempt));
        }
        let shim_lock =
            lock_until(&dir.shim_lock(), Instant::now() + LOCK_TIMEOUT).map_err(failed)?;
        let Some(_shim_lock) = shim_lock else {
            return Err(errors::lock_not_released(&dir.shim_lock()));
        };
        if !dir.copy_file().exists() {
            write_copy(&dir, None).map_err(failed)?;
        }
        work(&dir).map_err(failed)?
    }

    /// Takes the attempt's journal, which is copied from another machine, from the list of open
    /// copies. Opens the copied journal if it is not in the list.
    fn open_copy(&self, attempt: AttemptId, dir: &RunDir) -> io::Result<OpenCopy> {
        let known = {
            let mut copies = self.copies();
            copies
                .iter()
                .position(|copy| copy.attempt == attempt)
                .map(|index| copies.remove(index))
        };
        if let Some(copy) = known.filter(|copy| copy.writer.is_current()) {
            return Ok(copy);
        }
        let ResumedJournal {
            writer,
            size_bytes,
            was_repaired,
        } = JournalWriter::resume(dir.0.clone(), self.limits.segment_bytes)?;
        if was_repaired {
            // A part of the journal was removed, so saved reading positions may lie after its end.
            // Discard these positions.
            self.invalidate_cursors(attempt);
        }
        Ok(OpenCopy {
            attempt,
            writer,
            size_bytes,
        })
    }

    fn keep_open(&self, copy: OpenCopy) {
        let mut copies = self.copies();
        if copies.len() >= MAX_OPEN_COPIES {
            copies.remove(0);
        }
        copies.push(copy);
    }
}

fn write_copy(dir: &RunDir, session_facts: Option<SessionFacts>) -> io::Result<()> {
    write_atomic(
        &dir.copy_file(),
        &serde_json::to_vec(&CopyRecord {
            v: 1,
            session_facts,
        })?,
    )
}

/// Returns the time at which the last record of a journal copied from another machine was written,
/// or `None` if the directory holds no copy with records. This time stands for the end of the
/// program, because a copy has no record of the program's exit.
pub(crate) fn last_record_time(dir: &RunDir) -> Option<SystemTime> {
    if !dir.copy_file().exists() {
        return None;
    }
    let written_unix_ms = journal::last_write_unix_ms(&dir.0)?;
    Some(UNIX_EPOCH + Duration::from_millis(written_unix_ms))
}
