//! The session loop, which connects one running program with the daemon. The loop passes the
//! records of the journal to the program's driver, passes the driver's events to the daemon
//! (through a [`SessionSink`]), and sends the driver's next input to the program.
//!
//! The loop keeps no state outside the run directory. When a daemon restarts in the middle of a
//! turn, the new loop reads the journal from its first record and then has the same state as the
//! old loop. Every input carries a number, so the last input of the old loop is never sent twice.
//! The loop asks the driver for more input only after the last input has appeared in the journal.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use regatta_core::agent_protocol::FailureClass;
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{
    AgentError, CompleteTranscriptLine, DriverVerdict, Exit, SessionSink, TranscriptLine,
};
use rustix::event::{PollFd, PollFlags};

use crate::adapter::AgentsAdapter;
use crate::driver::{Driver, InputAction, JournalRecord, JournalStream};
use crate::errors;
use crate::journal::JournalReader;
use crate::output_changes::OutputReader;
use crate::process::poll_until;
use crate::run_dir::RunDir;
use crate::run_phase::RunPhase;
use crate::sandbox;
use crate::shim::WakeupFd;
use crate::shim_protocol::{self, ShimCommand, ShimReply};

/// The longest time that the daemon's session loop waits before it checks everything again while
/// the program prints nothing.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The time that a supervisor process may take to reply before the daemon's session loop drops the
/// connection and opens a new one.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// The delay before the daemon's session loop connects again to a supervisor process that it could
/// not reach.
const RECONNECT_DELAY: Duration = Duration::from_millis(20);

/// The number of journal records after which the daemon's session loop asks the sink (its receiver
/// of events) whether to continue.
const RECORDS_PER_SINK_CHECK: u64 = 1000;

pub(crate) struct SessionLoop<'a> {
    adapter: &'a AgentsAdapter,
    dir: RunDir,
    sink: &'a dyn SessionSink,
    driver: Box<dyn Driver>,
    reader: JournalReader,
    wakeup: &'a WakeupFd,
    shim: Option<ShimConnection>,
    /// The number of the last journal record that the session loop has read.
    last_record: u64,
    /// The number of inputs (lines and the end of the input) that were sent to the program,
    /// according to the journal.
    sent_inputs: u64,
    has_input_ended: bool,
    /// The number of the last input that was sent to the supervisor process but has not appeared in
    /// the journal yet.
    pending_input: Option<u64>,
    last_output: Instant,
    /// The time at which the session loop last reported that the program is silent.
    silence_reported: Option<Instant>,
    /// The last line that the program printed on standard error.
    last_error_line: String,
}

impl<'a> SessionLoop<'a> {
    pub(crate) fn new(
        adapter: &'a AgentsAdapter,
        attempt: AttemptId,
        sink: &'a dyn SessionSink,
        driver: Box<dyn Driver>,
        wakeup: &'a WakeupFd,
    ) -> SessionLoop<'a> {
        let dir = adapter.attempt_dir(attempt);
        SessionLoop {
            adapter,
            sink,
            driver,
            reader: JournalReader::new(&dir.0),
            dir,
            wakeup,
            shim: None,
            last_record: 0,
            sent_inputs: 0,
            has_input_ended: false,
            pending_input: None,
            // Start measuring the silence now. After a restart of the daemon the full time counts
            // again, because the dates of files and records may be wrong (L12).
            last_output: Instant::now(),
            silence_reported: None,
            last_error_line: String::new(),
        }
    }

    /// Runs until the program has ended, or until the sink (the daemon's receiver of events) tells
    /// the session loop to stop. Returns the verdict on the program, or `None` if the sink stopped
    /// the loop.
    pub(crate) fn run(mut self) -> Result<Option<DriverVerdict>, AgentError> {
        loop {
            if !self.sink.should_continue() {
                return Ok(None);
            }
            // Look for the program's recorded exit before reading the journal, because the journal
            // is complete once an exit is recorded.
            let ended = if self.shim.is_none() {
                self.connect()?
            } else {
                None
            };
            if !self.read_records()? {
                return Ok(None);
            }
            if let Some(exit) = ended {
                // In a sandbox, Regatta's init process is started even if the program itself could
                // not be started. The init process reports that through its exit code and last
                // error line, so convert such an exit to `NotStarted`.
                let exit = match &exit {
                    Exit::Code(code) => match sandbox::failure_reason(*code, &self.last_error_line)
                    {
                        Some(reason) => Exit::NotStarted(reason),
                        None => exit,
                    },
                    _ => exit,
                };
                let assessment = self.driver.assess_exit(&exit);
                return Ok(Some(DriverVerdict {
                    exit,
                    class: assessment.class,
                    detail: assessment.detail,
                    usage: assessment.usage,
                }));
            }
            self.send_next_input()?;
            self.report_silence();
            self.wait();
        }
    }

    /// Connects to the program's supervisor process. If the supervisor is gone, returns the exit of
    /// the program.
    fn connect(&mut self) -> Result<Option<Exit>, AgentError> {
        match self.adapter.settled_phase(&self.dir)? {
            RunPhase::Ended(exit) => Ok(Some(exit)),
            RunPhase::Vanished => self
                .adapter
                .conclude_vanished(&self.dir, Duration::ZERO)
                .map(Some),
            RunPhase::NotStarted => Err(errors::shim_silent(&self.dir.shim_log(), "disappeared")),
            RunPhase::Running(..) => {
                // Ignore an error, because a supervisor process that is just ending refuses the
                // connection, and the next round of the loop reads the supervisor's exit record.
                self.shim = ShimConnection::open(&self.dir).ok();
                Ok(None)
            }
        }
    }

    /// Reads all available journal records. Returns whether the sink (the daemon's receiver of
    /// events) wants the session loop to continue.
    fn read_records(&mut self) -> Result<bool, AgentError> {
        while let Some(record) = self.reader.next_record().map_err(|error| {
            errors::file_error(
                "read the journal (the program's recorded output) in",
                &self.dir.0,
                error,
            )
        })? {
            self.last_record = record.position;
            match record.stream {
                // Count input as activity too, so that the time of silence starts after the last
                // input or output.
                JournalStream::In => {
                    self.sent_inputs += 1;
                    self.last_output = Instant::now();
                }
                JournalStream::InEnd => {
                    (self.sent_inputs, self.has_input_ended) = (self.sent_inputs + 1, true)
                }
                JournalStream::Out | JournalStream::Err => {
                    if record.stream == JournalStream::Err {
                        self.last_error_line.clone_from(&record.line);
                    }
                    self.last_output = Instant::now();
                    if self.silence_reported.take().is_some() {
                        self.sink.on_silence(None);
                    }
                }
                JournalStream::Mark => {}
            }
            for event in self.driver.on_record(&record) {
                self.sink.on_event(record.position, event);
            }
            if record.position.is_multiple_of(RECORDS_PER_SINK_CHECK)
                && !self.sink.should_continue()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends the driver's next input to the program, if the previous input has already appeared in
    /// the journal.
    fn send_next_input(&mut self) -> Result<(), AgentError> {
        if self
            .pending_input
            .is_some_and(|number| number <= self.sent_inputs)
        {
            self.pending_input = None;
        }
        let Some(shim) = &mut self.shim else {
            return Ok(());
        };
        if self.pending_input.is_some() || self.has_input_ended {
            return Ok(());
        }
        let Some(action) = self.driver.next_input(&self.sink.desired_input()) else {
            return Ok(());
        };
        let number = self.sent_inputs + 1;
        let command = match action {
            InputAction::Line(line) => ShimCommand::SendLine { number, line },
            InputAction::Close => ShimCommand::CloseInput { number },
        };
        match shim.request(&command) {
            Ok(ShimReply::Ok) => self.pending_input = Some(number),
            // The program is not reading its input, or its input is closed, which the journal will
            // soon show. Try again later.
            Ok(ShimReply::Busy | ShimReply::Closed | ShimReply::Grew { .. }) => {}
            Ok(ShimReply::Refused { why }) => return Err(errors::input_refused(&why)),
            // Connect again and repeat the input. If the supervisor process has already received
            // the input, its number prevents the supervisor process from sending it to the program
            // twice.
            Err(_) => self.shim = None,
        }
        Ok(())
    }

    /// Reports to the sink (the daemon's receiver of events) that the program has printed nothing
    /// for too long.
    fn report_silence(&mut self) {
        let (silence, threshold) = (
            self.last_output.elapsed(),
            self.adapter
                .silence_timeout
                .min(self.sink.silence_threshold()),
        );
        // Repeat the report from time to time. The sink (the daemon's receiver of reports) may have
        // ignored the first report for a reason that no longer holds.
        if silence >= threshold
            && self
                .silence_reported
                .is_none_or(|instant| instant.elapsed() >= threshold / 4)
        {
            self.silence_reported = Some(Instant::now());
            self.sink.on_silence(Some(silence));
        }
    }

    /// Waits until the journal grows, the program ends, another thread wakes the session loop, or
    /// [`POLL_INTERVAL`] has passed.
    fn wait(&mut self) {
        let awaited = self
            .shim
            .as_mut()
            .map(|connection| connection.attach(self.last_record));
        if matches!(awaited, Some(Err(_))) {
            self.shim = None;
        }
        let timeout = if self.shim.is_some() {
            POLL_INTERVAL
        } else {
            RECONNECT_DELAY
        };
        let mut fds = vec![PollFd::new(&self.wakeup.0, PollFlags::IN)];
        fds.extend(
            self.shim
                .as_ref()
                .map(|connection| PollFd::new(&connection.stream, PollFlags::IN)),
        );
        // Ignore the result of the wait, because the next round of the loop checks everything
        // again.
        let _ = poll_until(&mut fds, Some(Instant::now() + timeout));
        let has_reply = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        self.wakeup.clear();
        if has_reply
            && self
                .shim
                .as_mut()
                .is_some_and(|connection| connection.read_pending_replies().is_err())
        {
            self.shim = None;
        }
    }
}

/// Returns the verdict on a program when only its exit is known, without a journal and driver.
pub(crate) fn verdict_from_exit(exit: Exit) -> DriverVerdict {
    let class = (exit != Exit::Code(0)).then_some(FailureClass::Crashed);
    DriverVerdict {
        exit,
        class,
        detail: String::new(),
        usage: vec![],
    }
}

/// A connection to the control socket of a shim, the program's supervisor process.
struct ShimConnection {
    stream: UnixStream,
    received: Vec<u8>,
    /// True while the supervisor process is expected to report when the journal grows.
    is_attached: bool,
}

impl ShimConnection {
    fn open(dir: &RunDir) -> io::Result<ShimConnection> {
        let stream = shim_protocol::connect(dir)?;
        stream.set_nonblocking(true)?;
        Ok(ShimConnection {
            stream,
            received: vec![],
            is_attached: false,
        })
    }

    fn send(&mut self, command: &ShimCommand) -> io::Result<()> {
        let bytes = command.to_line()?;
        let (mut remaining, deadline) = (bytes.as_slice(), Instant::now() + REPLY_TIMEOUT);
        while !remaining.is_empty() {
            match self.stream.write(remaining) {
                Ok(length) => remaining = &remaining[length..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !poll_until(
                        &mut [PollFd::new(&self.stream, PollFlags::OUT)],
                        Some(deadline),
                    )? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn attach(&mut self, last_record: u64) -> io::Result<()> {
        if !self.is_attached {
            self.send(&ShimCommand::AwaitRecord { after: last_record })?;
            self.is_attached = true;
        }
        Ok(())
    }

    /// Sends a command to the supervisor process and waits for its reply. Handles reports about the
    /// journal's growth that come before the reply.
    fn request(&mut self, command: &ShimCommand) -> io::Result<ShimReply> {
        self.send(command)?;
        let deadline = Instant::now() + REPLY_TIMEOUT;
        loop {
            if let Some(reply) = self.next_reply()? {
                return Ok(reply);
            }
            if !poll_until(
                &mut [PollFd::new(&self.stream, PollFlags::IN)],
                Some(deadline),
            )? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.read_more()?;
        }
    }

    /// Reads the reports that the supervisor process sent by itself, without a command from this
    /// process.
    fn read_pending_replies(&mut self) -> io::Result<()> {
        self.read_more()?;
        while self.next_reply()?.is_some() {}
        Ok(())
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut piece = [0; 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                self.received.extend_from_slice(&piece[..length]);
                Ok(())
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the supervisor's next reply that is not a report about the journal's growth.
    fn next_reply(&mut self) -> io::Result<Option<ShimReply>> {
        while let Some(at) = self.received.iter().position(|byte| *byte == b'\n') {
            let reply = serde_json::from_slice(&self.received[..at])?;
            self.received.drain(..=at);
            match reply {
                ShimReply::Grew { .. } => self.is_attached = false,
                other => return Ok(Some(other)),
            }
        }
        Ok(None)
    }
}

/// What a client reads from a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CursorContent {
    /// Plain records, without the events that a driver derives from them.
    Records,
    Events,
    /// Events and the complete output of tool calls.
    EventsAndOutputs,
}

/// A saved reading position in an attempt's journal, so that a client who pages through the
/// transcript does not replay it from the beginning for each page.
pub(crate) struct TranscriptCursor {
    attempt: AttemptId,
    /// The number of the next journal record to read.
    next_record: u64,
    content: CursorContent,
    reader: JournalReader,
    driver: Option<Box<dyn Driver>>,
    outputs: OutputReader,
    generation: u64,
}

impl TranscriptCursor {
    pub(crate) fn belongs_to(&self, attempt: AttemptId) -> bool {
        self.attempt == attempt
    }
    /// Returns the value that [`AgentsAdapter::cursor_generation`] had when this reading position
    /// was saved or taken. If the adapter's value differs now, the position is no longer valid.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }
}

/// The number of reading positions in journals that are saved for clients. When there are more, the
/// least recently used one is discarded.
pub(crate) const MAX_CURSORS: usize = 16;

/// The number of bytes after which one read of a journal stops.
const MAX_READ_BYTES: usize = 4 << 20;

/// Takes the saved position at which a client continues to read this attempt's journal from record
/// number `from`, if there is one.
fn take_cursor(
    adapter: &AgentsAdapter,
    attempt: AttemptId,
    from: u64,
    content: CursorContent,
) -> Option<TranscriptCursor> {
    let mut cursors = adapter.cursors();
    let fits = |cursor: &TranscriptCursor| {
        cursor.attempt == attempt && cursor.next_record == from && cursor.content == content
    };
    let found = cursors
        .iter()
        .position(fits)
        .map(|index| cursors.remove(index));
    found.map(|cursor| TranscriptCursor {
        generation: adapter.cursor_generation(),
        ..cursor
    })
}

/// Reads up to `limit` lines of a transcript from record number `from`, by replaying the journal to
/// a new driver that derives the events.
pub(crate) fn read_transcript(
    adapter: &AgentsAdapter,
    attempt: AttemptId,
    from: u64,
    limit: usize,
) -> Result<Vec<TranscriptLine>, AgentError> {
    let lines = read_lines(adapter, attempt, from, limit, CursorContent::Events)?;
    Ok(lines.into_iter().map(|complete| complete.line).collect())
}

/// Like [`read_transcript`], but also returns the complete output of tool calls.
pub(crate) fn read_complete_transcript(
    adapter: &AgentsAdapter,
    attempt: AttemptId,
    from: u64,
    limit: usize,
) -> Result<Vec<CompleteTranscriptLine>, AgentError> {
    read_lines(
        adapter,
        attempt,
        from,
        limit,
        CursorContent::EventsAndOutputs,
    )
}

fn read_lines(
    adapter: &AgentsAdapter,
    attempt: AttemptId,
    from: u64,
    limit: usize,
    content: CursorContent,
) -> Result<Vec<CompleteTranscriptLine>, AgentError> {
    let from = from.max(1);
    let dir = adapter.attempt_dir(attempt);
    let mut cursor = match take_cursor(adapter, attempt, from, content) {
        Some(cursor) => cursor,
        None => {
            let generation = adapter.cursor_generation();
            let driver = adapter.restore_driver(&dir)?;
            TranscriptCursor {
                attempt,
                next_record: 1,
                content,
                reader: JournalReader::new(&dir.0),
                driver,
                outputs: OutputReader::default(),
                generation,
            }
        }
    };
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while lines.len() < limit
        && bytes < MAX_READ_BYTES
        && let Some(record) = cursor.reader.next_record().map_err(|error| {
            errors::file_error(
                "read the journal (the program's recorded output) in",
                &dir.0,
                error,
            )
        })?
    {
        cursor.next_record = record.position + 1;
        let events = cursor
            .driver
            .as_mut()
            .map_or_else(Vec::new, |driver| driver.on_record(&record));
        let outputs = match content {
            CursorContent::EventsAndOutputs => cursor.outputs.read(&record),
            _ => vec![],
        };
        if record.position >= from {
            bytes += record.line.len();
            let line = TranscriptLine { record, events };
            lines.push(CompleteTranscriptLine { line, outputs });
        }
    }
    // Save the reading position only if a record was read. Before the program has started there is
    // no driver yet, and a saved position without a driver would be wrong later.
    if cursor.next_record > 1 {
        adapter.keep_cursor(cursor);
    }
    Ok(lines)
}

/// Reads up to `limit` plain records from number `from`, without the events of a driver. Stops
/// after [`MAX_READ_BYTES`] bytes.
pub(crate) fn read_records(
    adapter: &AgentsAdapter,
    attempt: AttemptId,
    from: u64,
    limit: usize,
) -> Result<Vec<JournalRecord>, AgentError> {
    let from = from.max(1);
    let dir = adapter.attempt_dir(attempt);
    let failed = |error| {
        errors::file_error(
            "read the journal (the program's recorded output) in",
            &dir.0,
            error,
        )
    };
    let mut cursor = match take_cursor(adapter, attempt, from, CursorContent::Records) {
        Some(cursor) => cursor,
        None => {
            let generation = adapter.cursor_generation();
            let reader = JournalReader::from_record(&dir.0, from).map_err(failed)?;
            TranscriptCursor {
                attempt,
                next_record: from,
                content: CursorContent::Records,
                reader,
                driver: None,
                outputs: OutputReader::default(),
                generation,
            }
        }
    };
    let (mut records, mut bytes) = (Vec::new(), 0);
    while records.len() < limit
        && bytes < MAX_READ_BYTES
        && let Some(record) = cursor.reader.next_record().map_err(failed)?
    {
        (cursor.next_record, bytes) = (record.position + 1, bytes + record.line.len());
        records.push(record);
    }
    adapter.keep_cursor(cursor);
    Ok(records)
}

/// Reads up to `limit` plain records from number `from`, without the events of a driver and without
/// a limit of bytes.
pub(crate) fn read_all_records(
    dir: &RunDir,
    from: u64,
    limit: usize,
) -> io::Result<Vec<JournalRecord>> {
    let mut reader = JournalReader::from_record(&dir.0, from)?;
    let mut records = Vec::new();
    while records.len() < limit
        && let Some(record) = reader.next_record()?
    {
        records.push(record);
    }
    Ok(records)
}
