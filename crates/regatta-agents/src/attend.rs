//! The session loop of one program.
//!
//! It replays the journal to the program's driver, passes the driver's events to the session sink,
//! and sends the driver's next input to the program.
//!
//! The loop keeps no state outside the run directory. A loop that starts in the middle of a turn,
//! in a new daemon, reads the journal from its first record and then has the state of the old one.
//! Every input carries a number, so the last input of the old loop is never sent twice. The loop
//! asks the driver for more input only after the last input has come back through the journal.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use regatta_core::ids::AttemptId;
use regatta_core::session::Class;
use regatta_engine::ports::agents::{AgentError, Desk, Exit, Line, Verdict};
use rustix::event::{PollFd, PollFlags};

use crate::confine;
use crate::driver::{Driver, Record, Say, Stream};
use crate::journal::Reader;
use crate::process::ready_until;
use crate::rundir::RunDir;
use crate::shim::Bell;
use crate::socket::{self, Command, Reply};
use crate::supervise::{AgentsAdapter, Phase};
use crate::words;

/// The interval at which the session loop checks its other tasks while the program prints nothing.
const LOOK_UP: Duration = Duration::from_millis(250);

/// The time that a shim may take to reply before the loop drops the connection and opens a new one.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

/// The delay before the loop connects again to a shim that it could not reach.
const RECONNECT: Duration = Duration::from_millis(20);

/// The number of records after which the loop asks the sink whether to go on.
const STRETCH: u64 = 1000;

pub(crate) struct Attendant<'a> {
    adapter: &'a AgentsAdapter,
    dir: RunDir,
    desk: &'a dyn Desk,
    driver: Box<dyn Driver>,
    reader: Reader,
    bell: &'a Bell,
    line: Option<ShimLine>,
    /// The number of the last record that was read.
    seen: u64,
    /// The number of inputs that were sent to the program, according to the journal.
    said: u64,
    input_ended: bool,
    /// The number of the last input that was sent and has not come back yet.
    pending: Option<u64>,
    spoke: Instant,
    /// The time at which the program's silence was last reported.
    silent: Option<Instant>,
    /// The last line on the program's standard error.
    last_error: String,
}

impl<'a> Attendant<'a> {
    pub(crate) fn new(
        adapter: &'a AgentsAdapter,
        attempt: AttemptId,
        desk: &'a dyn Desk,
        driver: Box<dyn Driver>,
        bell: &'a Bell,
    ) -> Attendant<'a> {
        let dir = adapter.attempt_dir(attempt);
        Attendant {
            adapter,
            desk,
            driver,
            reader: Reader::new(&dir.0),
            dir,
            bell,
            line: None,
            seen: 0,
            said: 0,
            input_ended: false,
            pending: None,
            // After a restart the full time counts again, because the dates of files and records
            // may have changed (L12).
            spoke: Instant::now(),
            silent: None,
            last_error: String::new(),
        }
    }

    /// Runs until the program has ended, or until the sink ends the loop.
    pub(crate) fn run(mut self) -> Result<Option<Verdict>, AgentError> {
        loop {
            if !self.desk.goes_on() {
                return Ok(None);
            }
            // The exit is checked before the journal is read, so the journal is complete when there
            // is an exit.
            let ended = if self.line.is_none() { self.reach()? } else { None };
            if !self.read()? {
                return Ok(None);
            }
            if let Some(exit) = ended {
                // In a sandbox, Regatta's own init process finds out that the program cannot be
                // started.
                let exit = match &exit {
                    Exit::Code(code) => match confine::failure(*code, &self.last_error) {
                        Some(reason) => Exit::NotStarted(reason),
                        None => exit,
                    },
                    _ => exit,
                };
                let judged = self.driver.judge(&exit);
                return Ok(Some(Verdict { exit, class: judged.class, detail: judged.detail, usage: judged.usage }));
            }
            self.speak()?;
            self.watch_silence();
            self.wait();
        }
    }

    /// Connects to the shim. Without a shim, returns how the program ended.
    fn reach(&mut self) -> Result<Option<Exit>, AgentError> {
        match self.adapter.settled(&self.dir)? {
            Phase::Ended(exit) => Ok(Some(exit)),
            Phase::Vanished => self.adapter.conclude(&self.dir, Duration::ZERO).map(Some),
            Phase::Untouched => Err(words::shim_silent(&self.dir.shim_log(), "was not there")),
            Phase::Alive(..) => {
                // A shim that is just ending refuses the connection; the next round reads its
                // record.
                self.line = ShimLine::open(&self.dir).ok();
                Ok(None)
            }
        }
    }

    /// Reads all available records. Returns whether the sink wants to go on.
    fn read(&mut self) -> Result<bool, AgentError> {
        while let Some(record) =
            self.reader.read().map_err(|error| words::file("read the journal in", &self.dir.0, error))?
        {
            self.seen = record.n;
            match record.stream {
                // The silence of a program counts from its last input or output.
                Stream::In => {
                    self.said += 1;
                    self.spoke = Instant::now();
                }
                Stream::InEnd => (self.said, self.input_ended) = (self.said + 1, true),
                Stream::Out | Stream::Err => {
                    if record.stream == Stream::Err {
                        self.last_error.clone_from(&record.line);
                    }
                    self.spoke = Instant::now();
                    if self.silent.take().is_some() {
                        self.desk.silent(None);
                    }
                }
                Stream::Mark => {}
            }
            for said in self.driver.saw(&record) {
                self.desk.heard(record.n, said);
            }
            if record.n.is_multiple_of(STRETCH) && !self.desk.goes_on() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends the driver's next input, once the last input has come back through the journal.
    fn speak(&mut self) -> Result<(), AgentError> {
        if self.pending.is_some_and(|it| it <= self.said) {
            self.pending = None;
        }
        let Some(line) = &mut self.line else { return Ok(()) };
        if self.pending.is_some() || self.input_ended {
            return Ok(());
        }
        let Some(say) = self.driver.next(&self.desk.wishes()) else { return Ok(()) };
        let k = self.said + 1;
        let command = match say {
            Say::Line(line) => Command::Say { k, line },
            Say::Close => Command::Close { k },
        };
        match line.ask(&command) {
            Ok(Reply::Ok) => self.pending = Some(k),
            // The program does not read its input, or the journal is about to report that the input
            // is closed.
            Ok(Reply::Busy | Reply::Closed | Reply::Grew { .. }) => {}
            Ok(Reply::Refused { why }) => return Err(words::not_said(&why)),
            // The shim may or may not have received the input. The number makes it safe to send the
            // input again.
            Err(_) => self.line = None,
        }
        Ok(())
    }

    /// Reports to the sink when the program has been silent for too long.
    fn watch_silence(&mut self) {
        let (since, most) = (self.spoke.elapsed(), self.adapter.silence.min(self.desk.silence()));
        // The silence is reported repeatedly, because the reason that excused the first report may
        // be gone.
        if since >= most && self.silent.is_none_or(|it| it.elapsed() >= most / 4) {
            self.silent = Some(Instant::now());
            self.desk.silent(Some(since));
        }
    }

    /// Waits for the journal to grow, the program to end, a wake-up, or the next check.
    fn wait(&mut self) {
        let attached = self.line.as_mut().map(|it| it.attach(self.seen));
        if matches!(attached, Some(Err(_))) {
            self.line = None;
        }
        let patience = if self.line.is_some() { LOOK_UP } else { RECONNECT };
        let mut fds = vec![PollFd::new(&self.bell.0, PollFlags::IN)];
        fds.extend(self.line.as_ref().map(|it| PollFd::new(&it.stream, PollFlags::IN)));
        // The result does not matter, because the next round checks everything again.
        let _ = ready_until(&mut fds, Some(Instant::now() + patience));
        let heard = fds.get(1).is_some_and(|it| !it.revents().is_empty());
        self.bell.silence();
        if heard && self.line.as_mut().is_some_and(|it| it.hear().is_err()) {
            self.line = None;
        }
    }
}

/// Returns the verdict on a program of which only the exit is known.
pub(crate) fn unknown(exit: Exit) -> Verdict {
    let class = (exit != Exit::Code(0)).then_some(Class::Crashed);
    Verdict { exit, class, detail: String::new(), usage: vec![] }
}

/// A connection to a shim.
struct ShimLine {
    stream: UnixStream,
    heard: Vec<u8>,
    /// Set while the shim still has to report the next growth of the journal.
    attached: bool,
}

impl ShimLine {
    fn open(dir: &RunDir) -> io::Result<ShimLine> {
        let stream = socket::connect(dir)?;
        stream.set_nonblocking(true)?;
        Ok(ShimLine { stream, heard: vec![], attached: false })
    }

    fn send(&mut self, command: &Command) -> io::Result<()> {
        let bytes = command.to_line()?;
        let (mut left, deadline) = (bytes.as_slice(), Instant::now() + ANSWER_PATIENCE);
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(length) => left = &left[length..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !ready_until(&mut [PollFd::new(&self.stream, PollFlags::OUT)], Some(deadline))? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn attach(&mut self, seen: u64) -> io::Result<()> {
        if !self.attached {
            self.send(&Command::Attach { seen })?;
            self.attached = true;
        }
        Ok(())
    }

    /// Sends a command and waits for its reply. A reply about the journal's growth may come first.
    fn ask(&mut self, command: &Command) -> io::Result<Reply> {
        self.send(command)?;
        let deadline = Instant::now() + ANSWER_PATIENCE;
        loop {
            if let Some(reply) = self.next_reply()? {
                return Ok(reply);
            }
            if !ready_until(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(deadline))? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.read_more()?;
        }
    }

    /// Reads replies that came without a command.
    fn hear(&mut self) -> io::Result<()> {
        self.read_more()?;
        while self.next_reply()?.is_some() {}
        Ok(())
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut piece = [0; 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                self.heard.extend_from_slice(&piece[..length]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the next reply that is not about the journal's growth.
    fn next_reply(&mut self) -> io::Result<Option<Reply>> {
        while let Some(at) = self.heard.iter().position(|it| *it == b'\n') {
            let reply = serde_json::from_slice(&self.heard[..at])?;
            self.heard.drain(..=at);
            match reply {
                Reply::Grew { .. } => self.attached = false,
                other => return Ok(Some(other)),
            }
        }
        Ok(None)
    }
}

/// A position in a transcript, so that a reader who pages through it does not start from the
/// beginning each time.
pub(crate) struct Cursor {
    attempt: AttemptId,
    /// The number of the next record.
    next: u64,
    /// Set if the reader wants only the records and not the events of a driver.
    plain: bool,
    reader: Reader,
    driver: Option<Box<dyn Driver>>,
    restarts: u64,
}

impl Cursor {
    pub(crate) fn is_of(&self, attempt: AttemptId) -> bool {
        self.attempt == attempt
    }
    /// Returns the value of [`AgentsAdapter::restarts`] from the time when the cursor was taken.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }
}

/// The number of cursors that are kept. Beyond it the least recently used cursor is dropped.
pub(crate) const CURSORS: usize = 16;

/// The number of bytes of a journal that are read at once.
const MOST_BYTES: usize = 4 << 20;

/// Takes the kept cursor that stopped at this record, if there is one.
fn known(adapter: &AgentsAdapter, attempt: AttemptId, from: u64, plain: bool) -> Option<Cursor> {
    let mut cursors = adapter.cursors();
    let fits = |it: &Cursor| it.attempt == attempt && it.next == from && it.plain == plain;
    let found = cursors.iter().position(fits).map(|it| cursors.remove(it));
    found.map(|it| Cursor { restarts: adapter.restarts(), ..it })
}

/// Reads a part of a transcript by replaying the journal to a new driver.
pub(crate) fn transcript(
    adapter: &AgentsAdapter,
    attempt: AttemptId,
    from: u64,
    limit: usize,
) -> Result<Vec<Line>, AgentError> {
    let from = from.max(1);
    let dir = adapter.attempt_dir(attempt);
    let mut cursor = match known(adapter, attempt, from, false) {
        Some(cursor) => cursor,
        None => {
            let restarts = adapter.restarts();
            let driver = adapter.driver(&dir)?;
            Cursor { attempt, next: 1, plain: false, reader: Reader::new(&dir.0), driver, restarts }
        }
    };
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while lines.len() < limit
        && bytes < MOST_BYTES
        && let Some(record) = cursor.reader.read().map_err(|error| words::file("read the journal in", &dir.0, error))?
    {
        cursor.next = record.n + 1;
        let said = cursor.driver.as_mut().map_or_else(Vec::new, |it| it.saw(&record));
        if record.n >= from {
            bytes += record.line.len();
            lines.push(Line { record, said });
        }
    }
    // A cursor from before the program began has no driver yet and must not be kept.
    if cursor.next > 1 {
        adapter.keep_cursor(cursor);
    }
    Ok(lines)
}

/// Reads plain records from number `from`, without a driver's events and up to a limited number of
/// bytes.
pub(crate) fn records(
    adapter: &AgentsAdapter,
    attempt: AttemptId,
    from: u64,
    limit: usize,
) -> Result<Vec<Record>, AgentError> {
    let from = from.max(1);
    let dir = adapter.attempt_dir(attempt);
    let failed = |error| words::file("read the journal in", &dir.0, error);
    let mut cursor = match known(adapter, attempt, from, true) {
        Some(cursor) => cursor,
        None => {
            let restarts = adapter.restarts();
            let reader = Reader::at(&dir.0, from).map_err(failed)?;
            Cursor { attempt, next: from, plain: true, reader, driver: None, restarts }
        }
    };
    let (mut records, mut bytes) = (Vec::new(), 0);
    while records.len() < limit
        && bytes < MOST_BYTES
        && let Some(record) = cursor.reader.read().map_err(failed)?
    {
        (cursor.next, bytes) = (record.n + 1, bytes + record.line.len());
        records.push(record);
    }
    adapter.keep_cursor(cursor);
    Ok(records)
}

/// Reads plain records from number `from`, without a driver's events and without a limit of bytes.
pub(crate) fn all_records(dir: &RunDir, from: u64, limit: usize) -> io::Result<Vec<Record>> {
    let mut reader = Reader::at(&dir.0, from)?;
    let mut records = Vec::new();
    while records.len() < limit
        && let Some(record) = reader.read()?
    {
        records.push(record);
    }
    Ok(records)
}
