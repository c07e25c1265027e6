//! The supervisor's thread that writes the journal, the record of a program's input and output.
//!
//! The thread reads the program's output, writes queued input to the program, and records both in
//! the order in which they happened. The thread holds no more than one piece of output and one
//! incomplete line in memory. When the disk is full or slow, or the program prints faster than
//! allowed, the thread stops reading the pipes for a while, so that the program has to wait. No
//! output is lost.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags};

use super::output_limits::{LineSplitter, ShimLimits, TokenBucket};
use super::state::{ProgramInput, ShimState};
use super::tool_output::ToolOutput;
use crate::driver::JournalStream;
use crate::drivers;
use crate::journal::{JournalMark, JournalWriter};
use crate::process::poll_until;
use crate::redact::Redactor;
use crate::run_dir::{InputSource, LaunchRecord, RunDir};

/// The number of bytes that are read from a pipe at once.
const READ_CHUNK_BYTES: usize = 16 * 1024;

/// The time after which a new record is synced to the disk.
const SYNC_DELAY: Duration = Duration::from_secs(1);

/// The number of bytes that are still read from a pipe after all of the program's processes have
/// ended. This number is larger than a pipe can hold.
const MAX_DRAIN_BYTES: usize = 4 << 20;

/// The delay before a failed write to the disk is repeated.
const DISK_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_FINAL_RETRIES: u32 = 30;

/// The supervisor's ends of the pipes to and from the program. Reading and writing these ends never
/// blocks.
pub(super) struct Pipes {
    pub(super) input: Option<PipeWriter>,
    pub(super) output: PipeReader,
    pub(super) errors: PipeReader,
}

/// The secrets that the program got, with the redactor that removes them from the journal.
pub(super) struct LaunchSecrets {
    pub(super) redactor: Redactor,
    /// The attempt's access token, which replaces the placeholder `${REGATTA_TOKEN}` in input lines
    /// that open a session.
    pub(super) token: Option<String>,
}

struct OutputPipe {
    pipe: PipeReader,
    stream: JournalStream,
    lines: LineSplitter,
}

/// An input line that was not yet completely written to the program.
struct PartialInput {
    bytes: Vec<u8>,
    written: usize,
    /// The number of bytes by which this line counts towards the limit of queued input.
    queued_bytes: usize,
}

pub(super) struct JournalThread {
    shared: Arc<ShimState>,
    journal: BoundedJournal,
    secrets: LaunchSecrets,
    input: Option<PipeWriter>,
    partial_input: Option<PartialInput>,
    sources: Vec<OutputPipe>,
    /// The write time of the oldest record that is not yet synced to the disk.
    unsynced_since: Option<Instant>,
}

impl JournalThread {
    pub(super) fn new(
        dir: &RunDir,
        launch: &LaunchRecord,
        secrets: LaunchSecrets,
        shared: Arc<ShimState>,
    ) -> JournalThread {
        let (state, mut final_tries) = (Arc::clone(&shared), 0);
        let should_retry = move |_: &io::Error| {
            std::thread::sleep(DISK_RETRY_DELAY);
            final_tries += u32::from(state.is_finishing());
            final_tries < MAX_FINAL_RETRIES
        };
        let limits = launch.limits.clone();
        let writer = JournalWriter::new(dir.0.clone(), limits.segment_bytes, should_retry);
        let journal = BoundedJournal {
            writer,
            bucket: TokenBucket::new(&limits, Instant::now()),
            limits,
            size_bytes: 0,
            is_full: false,
            dropped: (0, 0),
            // Shorten repeated tool output only for programs with a protocol. A program that gets
            // one prompt and no further lines prints plain text.
            tool_output: (launch.input == InputSource::Lines).then(ToolOutput::default),
        };
        JournalThread {
            shared,
            journal,
            secrets,
            input: None,
            partial_input: None,
            sources: vec![],
            unsynced_since: None,
        }
    }

    /// Runs until all of the program's processes have ended and everything is recorded on the disk.
    pub(super) fn run(mut self, pipes: &Receiver<Pipes>) -> io::Result<()> {
        // If the program could not be started, the channel closes without sending pipes, so there
        // is nothing to record.
        let Ok(pipes) = pipes.recv() else {
            return Ok(());
        };
        self.input = pipes.input;
        for (pipe, stream) in [
            (pipes.output, JournalStream::Out),
            (pipes.errors, JournalStream::Err),
        ] {
            self.sources.push(OutputPipe {
                pipe,
                stream,
                lines: LineSplitter::default(),
            });
        }
        if self.input.is_none() {
            self.journal.write(JournalStream::InEnd, "")?;
            self.publish()?;
        }
        let mut chunk = vec![0; READ_CHUNK_BYTES];
        while !self.shared.is_finishing() {
            self.step(&mut chunk)?;
        }
        self.finish(&mut chunk)
    }

    fn step(&mut self, chunk: &mut [u8]) -> io::Result<()> {
        let now = Instant::now();
        let paused_until = self
            .journal
            .bucket
            .time_to_wait(now)
            .map(|duration| now + duration);
        let sync_at = self.unsynced_since.map(|since| since + SYNC_DELAY);
        let until = [paused_until, sync_at].into_iter().flatten().min();

        let wakeup = PollFd::new(&self.shared.journal_wakeup.0, PollFlags::IN);
        let has_input = self.partial_input.is_some() || self.shared.has_input();
        // Poll the input pipe even without input to write, because a poll for no event still
        // reports that the program has closed its end.
        let input = self.input.as_ref().map(|pipe| {
            PollFd::new(
                pipe,
                if has_input {
                    PollFlags::OUT
                } else {
                    PollFlags::empty()
                },
            )
        });
        let sources = self
            .sources
            .iter()
            .filter(|_| paused_until.is_none())
            .map(|source| PollFd::new(&source.pipe, PollFlags::IN));
        let mut fds: Vec<PollFd<'_>> = [Some(wakeup), input]
            .into_iter()
            .flatten()
            .chain(sources)
            .collect();
        poll_until(&mut fds, until)?;
        let mut ready = fds
            .iter()
            .map(|fd| fd.revents())
            .collect::<Vec<_>>()
            .into_iter();
        drop(fds);

        if ready.next().is_some_and(|events| !events.is_empty()) {
            self.shared.journal_wakeup.clear();
        }
        self.write_marks()?;
        if self.input.is_some() {
            let events = ready.next().unwrap_or(PollFlags::empty());
            if events.contains(PollFlags::ERR) {
                self.close_input()?;
            } else if events.contains(PollFlags::OUT) {
                self.write_input()?;
            }
        }
        let mut readable = ready.map(|events| !events.is_empty());
        let mut ended = Vec::new();
        for source in &mut self.sources {
            if readable.next() == Some(true) {
                ended.push(
                    read_piece(source, chunk, &mut self.journal, &self.secrets.redactor)?
                        == Some(0),
                );
            } else {
                ended.push(false);
            }
        }
        let mut ended = ended.into_iter();
        self.sources.retain(|_| ended.next() != Some(true));
        self.publish()?;
        if self
            .unsynced_since
            .is_some_and(|since| since + SYNC_DELAY <= Instant::now())
        {
            self.sync()?;
        }
        Ok(())
    }

    /// Writes the marks (remarks of the supervisor process) that other threads have queued. The
    /// marks are redacted too, because the name of a host comes from the program and may contain a
    /// secret.
    fn write_marks(&mut self) -> io::Result<()> {
        for mark in self.shared.take_marks() {
            self.journal.write(
                JournalStream::Mark,
                &self.secrets.redactor.redact_line(&mark.to_line()),
            )?;
        }
        Ok(())
    }

    /// Flushes the journal and tells the other threads the number of the last record, so that
    /// waiting daemons are notified.
    fn publish(&mut self) -> io::Result<()> {
        self.journal.writer.flush()?;
        self.shared
            .on_journal_grown(self.journal.writer.last_record());
        if self.journal.writer.is_unsynced() {
            self.unsynced_since.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.unsynced_since = None;
        self.journal.writer.sync()
    }

    /// Writes as much of the queued input to the program as the program accepts.
    fn write_input(&mut self) -> io::Result<()> {
        if self.partial_input.is_none() {
            match self.shared.next_input() {
                None => return Ok(()),
                Some(ProgramInput::End) => return self.close_input(),
                Some(ProgramInput::Line(line)) => {
                    // Record the line before its first byte is written, so that no answer can
                    // precede it in the journal.
                    self.journal
                        .write(JournalStream::In, &self.secrets.redactor.redact_line(&line))?;
                    let length = line.len();
                    let mut bytes = self.secrets.fill_token(line).into_bytes();
                    bytes.push(b'\n');
                    self.partial_input = Some(PartialInput {
                        bytes,
                        written: 0,
                        queued_bytes: length,
                    });
                }
            }
        }
        let (Some(partial), Some(input)) = (&mut self.partial_input, &mut self.input) else {
            return Ok(());
        };
        match input.write(&partial.bytes[partial.written..]) {
            Ok(length) => partial.written += length,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            // After any error nothing more can be sent to the program, so close the input.
            Err(_) => return self.close_input(),
        }
        if partial.written == partial.bytes.len() {
            self.shared.on_input_sent(partial.queued_bytes);
            self.partial_input = None;
        }
        Ok(())
    }

    fn close_input(&mut self) -> io::Result<()> {
        if self.input.take().is_none() {
            return Ok(());
        }
        self.partial_input = None;
        let lines = self.shared.close_input();
        if lines > 0 {
            self.journal
                .write_mark(&JournalMark::UnsentInput { lines })?;
        }
        self.journal.write(JournalStream::InEnd, "").map(drop)
    }

    /// Reads the rest of the program's output and syncs everything to the disk. Does not wait for a
    /// process that still has a pipe open, because that process does not belong to the program.
    fn finish(&mut self, chunk: &mut [u8]) -> io::Result<()> {
        for mut source in std::mem::take(&mut self.sources) {
            let mut remaining = MAX_DRAIN_BYTES;
            while let Some(length @ 1..) = read_piece(
                &mut source,
                chunk,
                &mut self.journal,
                &self.secrets.redactor,
            )? {
                remaining = remaining.saturating_sub(length);
                if remaining == 0 {
                    break;
                }
            }
            let (journal, redactor, stream) =
                (&mut self.journal, &self.secrets.redactor, source.stream);
            source
                .lines
                .finish(|line, cut| journal.write_output_line(stream, line, cut, redactor))?;
            self.publish()?;
        }
        self.write_marks()?;
        let left_out = self
            .journal
            .tool_output
            .as_mut()
            .map(ToolOutput::finish)
            .unwrap_or_default();
        for mark in &left_out {
            self.journal.write_mark(mark)?;
        }
        let (lines, bytes) = self.journal.dropped;
        if lines > 0 {
            self.journal
                .write_mark(&JournalMark::Dropped { lines, bytes })?;
        }
        self.publish()?;
        self.sync()
    }
}

impl LaunchSecrets {
    /// Replaces the placeholder for the access token in an input line.
    fn fill_token(&self, line: String) -> String {
        match &self.token {
            Some(token) => drivers::fill_token(&line, token),
            None => line,
        }
    }
}

/// Reads one piece of the program's output and records its lines. Returns the number of bytes, 0 at
/// the end of the output, or `None` if there is nothing to read now.
fn read_piece(
    source: &mut OutputPipe,
    chunk: &mut [u8],
    journal: &mut BoundedJournal,
    redactor: &Redactor,
) -> io::Result<Option<usize>> {
    let length = match source.pipe.read(chunk) {
        Ok(length) => length,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // Count all bytes, even those that will be cut or dropped, because reading them costs CPU time
    // that other agents need.
    journal.bucket.consume(length as u64);
    let (stream, most) = (source.stream, journal.limits.line_bytes);
    source
        .lines
        .push_piece(&chunk[..length], most, |line, cut| {
            journal.write_output_line(stream, line, cut, redactor)
        })?;
    if length == 0 {
        source
            .lines
            .finish(|line, cut| journal.write_output_line(stream, line, cut, redactor))?;
    }
    Ok(Some(length))
}

/// The journal, with the limits on line length, rate and total size.
struct BoundedJournal {
    writer: JournalWriter,
    limits: ShimLimits,
    bucket: TokenBucket,
    /// The number of bytes of all records in the journal.
    size_bytes: u64,
    is_full: bool,
    /// The number of lines and the number of bytes that were dropped after the journal was full.
    dropped: (u64, u64),
    /// Shortens tool output that the program repeats; `None` for programs without a protocol.
    tool_output: Option<ToolOutput>,
}

impl BoundedJournal {
    /// Records a line of the program's output, with secrets removed. `cut` is the number of bytes
    /// that were cut from the line.
    fn write_output_line(
        &mut self,
        stream: JournalStream,
        line: &[u8],
        cut: u64,
        redactor: &Redactor,
    ) -> io::Result<()> {
        let length = line.len() as u64 + cut + 1;
        if self.size_bytes >= self.limits.journal_bytes {
            if !self.is_full {
                self.is_full = true;
                self.write_mark(&JournalMark::Full {
                    bytes: self.limits.journal_bytes,
                })?;
            }
            self.dropped = (self.dropped.0 + 1, self.dropped.1 + length);
            return Ok(());
        }
        // Remove secrets before tool output is shortened, because a secret may begin in one update
        // and end in the next.
        let text = String::from_utf8_lossy(line);
        let cleaned = redactor.redact_line(&text);
        let mut marks = Vec::new();
        let mut folded = None;
        if let Some(calls) = self
            .tool_output
            .as_mut()
            .filter(|_| stream == JournalStream::Out)
        {
            if cut > 0 {
                let repeated = calls.check_repeated(&cleaned, length);
                if let Some(before) = &repeated.mark {
                    self.write_mark(before)?;
                }
                if !repeated.is_stored {
                    return Ok(());
                }
            } else if let Some(stored) = calls.shorten_update(&cleaned, self.limits.call_bytes) {
                marks = stored.marks;
                folded = Some(stored.line);
            }
        }
        let written = self.write(stream, folded.as_deref().unwrap_or(&cleaned))?;
        // Count only the rest of the record, because the bytes of the line were already counted
        // when they were read.
        self.bucket
            .consume(written.saturating_sub(line.len() as u64));
        if cut > 0 {
            marks.push(JournalMark::Cut { stream, bytes: cut });
        }
        marks.iter().try_for_each(|mark| self.write_mark(mark))
    }

    fn write_mark(&mut self, mark: &JournalMark) -> io::Result<()> {
        self.write(JournalStream::Mark, &mark.to_line()).map(drop)
    }

    fn write(&mut self, stream: JournalStream, line: &str) -> io::Result<u64> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let length = self
            .writer
            .append(u64::try_from(now).unwrap_or(u64::MAX), stream, line)?;
        self.size_bytes += length;
        Ok(length)
    }
}
