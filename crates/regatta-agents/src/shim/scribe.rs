//! The thread that writes the journal.
//!
//! It reads the program's output, writes queued input to the program, and records both in the order
//! in which they happened. It holds no more than one piece and the line that is being assembled.
//! When the disk is full or slow, or the program prints faster than it may, the thread stops
//! reading the pipes for a while and the program waits. Nothing is lost.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags};

use super::flow::{Bucket, Limits, Lines};
use super::shared::{Shared, Word};
use super::tool_output::ToolOutput;
use crate::driver::Stream;
use crate::drivers;
use crate::journal::{Mark, Writer};
use crate::process::ready_until;
use crate::redact::Redactor;
use crate::rundir::{Input, LaunchRecord, RunDir};

/// The number of bytes that are read at once.
const PIECE: usize = 16 * 1024;

/// The time for which a record may stay unsynced.
const SYNC_AFTER: Duration = Duration::from_secs(1);

/// The number of bytes that are still read from a pipe once no process of the tree is left. It is
/// more than a pipe can hold.
const DRAIN: usize = 4 << 20;

/// The delay before a failed write to the disk is repeated, and how often it is repeated once
/// nothing runs any more.
const DISK_NAP: Duration = Duration::from_millis(100);
const LAST_TRIES: u32 = 30;

/// The shim's ends of the program's streams. None of them blocks.
pub(super) struct Pipes {
    pub(super) input: Option<PipeWriter>,
    pub(super) output: PipeReader,
    pub(super) errors: PipeReader,
}

/// The secrets of a launch.
pub(super) struct Secrets {
    pub(super) redactor: Redactor,
    /// The attempt's token. It replaces a placeholder in the lines that open a session.
    pub(super) token: Option<String>,
}

struct Source {
    pipe: PipeReader,
    stream: Stream,
    lines: Lines,
}

/// The input that is being written to the program.
struct Saying {
    bytes: Vec<u8>,
    done: usize,
    /// The number of bytes that it occupies in the queue's limit.
    length: usize,
}

pub(super) struct Scribe {
    shared: Arc<Shared>,
    book: Book,
    secrets: Secrets,
    input: Option<PipeWriter>,
    saying: Option<Saying>,
    sources: Vec<Source>,
    /// The time of the oldest unsynced record.
    unsynced: Option<Instant>,
}

impl Scribe {
    pub(super) fn new(dir: &RunDir, launch: &LaunchRecord, secrets: Secrets, shared: Arc<Shared>) -> Scribe {
        let (asked, mut tries) = (Arc::clone(&shared), 0);
        let again = move |_: &io::Error| {
            std::thread::sleep(DISK_NAP);
            tries += u32::from(asked.is_finishing());
            tries < LAST_TRIES
        };
        let limits = launch.limits.clone();
        let journal = Writer::new(dir.0.clone(), limits.segment_bytes, again);
        let book = Book {
            journal,
            bucket: Bucket::new(&limits, Instant::now()),
            limits,
            kept: 0,
            full: false,
            dropped: (0, 0),
            // A program that is given one prompt prints for people; every other program speaks a
            // protocol.
            tool_output: (launch.input == Input::Said).then(ToolOutput::default),
        };
        Scribe { shared, book, secrets, input: None, saying: None, sources: vec![], unsynced: None }
    }

    /// Runs until no process of the tree is left and everything is on the disk.
    pub(super) fn run(mut self, pipes: &Receiver<Pipes>) -> io::Result<()> {
        // The channel closes without pipes when the program could not be started.
        let Ok(pipes) = pipes.recv() else { return Ok(()) };
        self.input = pipes.input;
        for (pipe, stream) in [(pipes.output, Stream::Out), (pipes.errors, Stream::Err)] {
            self.sources.push(Source { pipe, stream, lines: Lines::default() });
        }
        if self.input.is_none() {
            self.book.write(Stream::InEnd, "")?;
            self.show()?;
        }
        let mut piece = vec![0; PIECE];
        while !self.shared.is_finishing() {
            self.step(&mut piece)?;
        }
        self.finish(&mut piece)
    }

    fn step(&mut self, piece: &mut [u8]) -> io::Result<()> {
        let now = Instant::now();
        let pause = self.book.bucket.wait(now).map(|it| now + it);
        let sync_at = self.unsynced.map(|it| it + SYNC_AFTER);
        let until = [pause, sync_at].into_iter().flatten().min();

        let bell = PollFd::new(&self.shared.scribe.0, PollFlags::IN);
        let wants = self.saying.is_some() || self.shared.has_words();
        // Even a poll for no event reports that the program has closed its end.
        let input =
            self.input.as_ref().map(|it| PollFd::new(it, if wants { PollFlags::OUT } else { PollFlags::empty() }));
        let sources = self.sources.iter().filter(|_| pause.is_none()).map(|it| PollFd::new(&it.pipe, PollFlags::IN));
        let mut fds: Vec<PollFd<'_>> = [Some(bell), input].into_iter().flatten().chain(sources).collect();
        ready_until(&mut fds, until)?;
        let mut ready = fds.iter().map(|it| it.revents()).collect::<Vec<_>>().into_iter();
        drop(fds);

        if ready.next().is_some_and(|it| !it.is_empty()) {
            self.shared.scribe.silence();
        }
        self.marks()?;
        if self.input.is_some() {
            let events = ready.next().unwrap_or(PollFlags::empty());
            if events.contains(PollFlags::ERR) {
                self.close_input()?;
            } else if events.contains(PollFlags::OUT) {
                self.say()?;
            }
        }
        let mut readable = ready.map(|it| !it.is_empty());
        let mut ended = Vec::new();
        for source in &mut self.sources {
            if readable.next() == Some(true) {
                ended.push(read(source, piece, &mut self.book, &self.secrets.redactor)? == Some(0));
            } else {
                ended.push(false);
            }
        }
        let mut ended = ended.into_iter();
        self.sources.retain(|_| ended.next() != Some(true));
        self.show()?;
        if self.unsynced.is_some_and(|it| it + SYNC_AFTER <= Instant::now()) {
            self.sync()?;
        }
        Ok(())
    }

    /// Writes the marks of other threads. They are redacted, because a host's name comes from the
    /// program and may contain a secret.
    fn marks(&mut self) -> io::Result<()> {
        for mark in self.shared.take_marks() {
            self.book.write(Stream::Mark, &self.secrets.redactor.clean(&mark.line()))?;
        }
        Ok(())
    }

    /// Makes the written records visible to readers.
    fn show(&mut self) -> io::Result<()> {
        self.book.journal.flush()?;
        self.shared.grew(self.book.journal.last());
        if self.book.journal.is_unsynced() {
            self.unsynced.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.unsynced = None;
        self.book.journal.sync()
    }

    /// Writes queued input, as much as the program accepts.
    fn say(&mut self) -> io::Result<()> {
        if self.saying.is_none() {
            match self.shared.next_word() {
                None => return Ok(()),
                Some(Word::End) => return self.close_input(),
                Some(Word::Line(line)) => {
                    // The line is recorded before its first byte is written, so that no answer can
                    // precede it in the journal.
                    self.book.write(Stream::In, &self.secrets.redactor.clean(&line))?;
                    let length = line.len();
                    let mut bytes = self.secrets.fill(line).into_bytes();
                    bytes.push(b'\n');
                    self.saying = Some(Saying { bytes, done: 0, length });
                }
            }
        }
        let (Some(saying), Some(input)) = (&mut self.saying, &mut self.input) else { return Ok(()) };
        match input.write(&saying.bytes[saying.done..]) {
            Ok(length) => saying.done += length,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // The program has closed its input, whatever the error is, so nothing more can be sent.
            Err(_) => return self.close_input(),
        }
        if saying.done == saying.bytes.len() {
            self.shared.said(saying.length);
            self.saying = None;
        }
        Ok(())
    }

    fn close_input(&mut self) -> io::Result<()> {
        if self.input.take().is_none() {
            return Ok(());
        }
        self.saying = None;
        let lines = self.shared.close();
        if lines > 0 {
            self.book.mark(&Mark::Unsaid { lines })?;
        }
        self.book.write(Stream::InEnd, "").map(drop)
    }

    /// Reads the rest of the pipes and syncs everything to the disk. A process that still holds a
    /// pipe does not belong to the tree and is not waited for.
    fn finish(&mut self, piece: &mut [u8]) -> io::Result<()> {
        for mut source in std::mem::take(&mut self.sources) {
            let mut left = DRAIN;
            while let Some(length @ 1..) = read(&mut source, piece, &mut self.book, &self.secrets.redactor)? {
                left = left.saturating_sub(length);
                if left == 0 {
                    break;
                }
            }
            let (book, redactor, stream) = (&mut self.book, &self.secrets.redactor, source.stream);
            source.lines.end(|line, cut| book.line(stream, line, cut, redactor))?;
            self.show()?;
        }
        self.marks()?;
        let left_out = self.book.tool_output.as_mut().map(ToolOutput::finish).unwrap_or_default();
        for mark in &left_out {
            self.book.mark(mark)?;
        }
        let (lines, bytes) = self.book.dropped;
        if lines > 0 {
            self.book.mark(&Mark::Dropped { lines, bytes })?;
        }
        self.show()?;
        self.sync()
    }
}

impl Secrets {
    /// Replaces the token's placeholder in a line.
    fn fill(&self, line: String) -> String {
        match &self.token {
            Some(token) => drivers::fill(&line, token),
            None => line,
        }
    }
}

/// Reads one piece. Returns `None` if there is nothing to read now, and 0 at the end.
fn read(source: &mut Source, piece: &mut [u8], book: &mut Book, redactor: &Redactor) -> io::Result<Option<usize>> {
    let length = match source.pipe.read(piece) {
        Ok(length) => length,
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // Bytes that will be cut or dropped count too, because reading them costs CPU time that other
    // agents need.
    book.bucket.take(length as u64);
    let (stream, most) = (source.stream, book.limits.line_bytes);
    source.lines.take(&piece[..length], most, |line, cut| book.line(stream, line, cut, redactor))?;
    if length == 0 {
        source.lines.end(|line, cut| book.line(stream, line, cut, redactor))?;
    }
    Ok(Some(length))
}

/// The journal with its limits.
struct Book {
    journal: Writer,
    limits: Limits,
    bucket: Bucket,
    /// The number of bytes in the journal.
    kept: u64,
    full: bool,
    /// The numbers of lines and bytes that were not kept.
    dropped: (u64, u64),
    /// Folds repeated output; present for programs that speak a protocol.
    tool_output: Option<ToolOutput>,
}

impl Book {
    /// Records a line of the program's output.
    fn line(&mut self, stream: Stream, line: &[u8], cut: u64, redactor: &Redactor) -> io::Result<()> {
        let length = line.len() as u64 + cut + 1;
        if self.kept >= self.limits.journal_bytes {
            if !self.full {
                self.full = true;
                self.mark(&Mark::Full { bytes: self.limits.journal_bytes })?;
            }
            self.dropped = (self.dropped.0 + 1, self.dropped.1 + length);
            return Ok(());
        }
        // A secret may lie across two updates, so a line is redacted before it is folded.
        let text = String::from_utf8_lossy(line);
        let cleaned = redactor.clean(&text);
        let mut marks = Vec::new();
        let mut folded = None;
        if let Some(calls) = self.tool_output.as_mut().filter(|_| stream == Stream::Out) {
            if cut > 0 {
                let repeated = calls.repeats(&cleaned, length);
                if let Some(before) = &repeated.mark {
                    self.mark(before)?;
                }
                if !repeated.is_stored {
                    return Ok(());
                }
            } else if let Some(stored) = calls.fold(&cleaned, self.limits.call_bytes) {
                marks = stored.marks;
                folded = Some(stored.line);
            }
        }
        let written = self.write(stream, folded.as_deref().unwrap_or(&cleaned))?;
        // The bytes of the line were counted when they were read. The rest of the record is counted
        // here.
        self.bucket.take(written.saturating_sub(line.len() as u64));
        if cut > 0 {
            marks.push(Mark::Cut { stream, bytes: cut });
        }
        marks.iter().try_for_each(|mark| self.mark(mark))
    }

    fn mark(&mut self, mark: &Mark) -> io::Result<()> {
        self.write(Stream::Mark, &mark.line()).map(drop)
    }

    fn write(&mut self, stream: Stream, line: &str) -> io::Result<u64> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let length = self.journal.append(u64::try_from(now).unwrap_or(u64::MAX), stream, line)?;
        self.kept += length;
        Ok(length)
    }
}
