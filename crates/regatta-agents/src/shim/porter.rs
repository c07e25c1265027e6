//! The thread that receives commands: from daemons on the socket, or from the one daemon of a check
//! on standard input.
//!
//! It writes no file and so never waits for the disk. A stop command is received even while the
//! journal writer waits for the disk.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::ender::Ender;
use super::shared::{Shared, Word};
use crate::process::ready_until;
use crate::socket::{Command, Reply};

/// The time that a check may take to end by itself when its daemon has died.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);

/// The maximum length of a command in bytes. The longest command is an escaped line for the
/// program.
const LONGEST_COMMAND: usize = 64 << 20;

/// The number of bytes of replies that may wait for a daemon. A daemon that reads more slowly is
/// disconnected.
const MOST_ANSWERS: usize = 64 << 10;

/// The maximum number of connections.
const MOST_CONNECTIONS: usize = 64;

/// The source of commands.
pub(super) enum Door {
    Socket(UnixListener),
    /// The standard input of a check, which ends with its daemon. `orphaned` is set when the daemon
    /// is gone.
    Lifeline {
        input: Option<OwnedFd>,
        orphaned: Arc<AtomicBool>,
    },
}

pub(super) struct Porter {
    pub(super) door: Door,
    pub(super) shared: Arc<Shared>,
    pub(super) ender: Ender,
    pub(super) guests: Vec<Guest>,
}

/// A connected daemon.
pub(super) struct Guest {
    stream: UnixStream,
    heard: Vec<u8>,
    answers: Vec<u8>,
    /// Set while the daemon waits for a record after this number.
    seen: Option<u64>,
    gone: bool,
}

impl Porter {
    /// Runs until the main thread, having reaped all children, ends the process.
    pub(super) fn run(mut self) {
        while self.step().is_ok() {}
    }

    fn step(&mut self) -> io::Result<()> {
        self.wait(self.ender.next())?;
        self.shared.porter.silence();
        let mut stops: Vec<Duration> = self.hear_lifeline().into_iter().collect();
        for guest in &mut self.guests {
            guest.hear();
            while let Some(line) = guest.next_line() {
                match answer(&line, &self.shared) {
                    Answer::Stop(grace) => {
                        stops.push(grace);
                        guest.answer(&Reply::Ok);
                    }
                    Answer::Wait { seen } => guest.seen = Some(seen),
                    Answer::Now(reply) => guest.answer(&reply),
                }
            }
        }
        if self.guests.iter().any(|it| it.seen.is_some()) {
            let n = self.shared.await_growth();
            for guest in self.guests.iter_mut().filter(|it| it.seen.is_some_and(|it| it < n)) {
                guest.seen = None;
                guest.answer(&Reply::Grew { n });
            }
        }
        self.guests.iter_mut().for_each(Guest::flush);
        self.guests.retain(|it| !it.gone);
        self.welcome();
        // Of several stop commands the one with the shortest grace period counts.
        self.ender.step(stops.into_iter().min(), self.shared.has_program_ended());
        Ok(())
    }

    fn wait(&self, until: Option<Instant>) -> io::Result<()> {
        let mut fds = vec![PollFd::new(&self.shared.porter.0, PollFlags::IN)];
        match &self.door {
            Door::Socket(listener) if self.guests.len() < MOST_CONNECTIONS => {
                fds.push(PollFd::new(listener, PollFlags::IN));
            }
            Door::Lifeline { input: Some(input), .. } => fds.push(PollFd::new(input, PollFlags::IN)),
            _ => {}
        }
        for guest in &self.guests {
            let flags = if guest.answers.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            fds.push(PollFd::new(&guest.stream, flags));
        }
        ready_until(&mut fds, until)?;
        Ok(())
    }

    fn welcome(&mut self) {
        let Door::Socket(listener) = &self.door else { return };
        while self.guests.len() < MOST_CONNECTIONS
            && let Ok((stream, _)) = listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                self.guests.push(Guest { stream, heard: vec![], answers: vec![], seen: None, gone: false });
            }
        }
    }

    /// Reads the commands of a check's daemon. The end of the input ends the check.
    fn hear_lifeline(&mut self) -> Option<Duration> {
        let Door::Lifeline { input, orphaned } = &mut self.door else { return None };
        let fd = input.as_ref()?;
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        if !ready_until(&mut fds, Some(Instant::now())).unwrap_or(false) {
            return None;
        }
        let mut buffer = [0; 512];
        match rustix::io::read(fd, &mut buffer) {
            Ok(0) => {
                *input = None;
                orphaned.store(true, Ordering::Release);
                Some(ORPHAN_GRACE)
            }
            Ok(length) => {
                let stops =
                    buffer[..length].split(|it| *it == b'\n').filter_map(|it| match serde_json::from_slice(it) {
                        Ok(Command::Stop { grace_ms }) => Some(Duration::from_millis(grace_ms)),
                        _ => None,
                    });
                stops.min()
            }
            Err(_) => None,
        }
    }
}

enum Answer {
    Stop(Duration),
    Wait { seen: u64 },
    Now(Reply),
}

fn answer(line: &[u8], shared: &Shared) -> Answer {
    match serde_json::from_slice(line) {
        Ok(Command::Stop { grace_ms }) => Answer::Stop(Duration::from_millis(grace_ms)),
        Ok(Command::Attach { seen }) => Answer::Wait { seen },
        Ok(Command::Say { k, line }) => Answer::Now(shared.accept(k, Word::Line(line))),
        Ok(Command::Close { k }) => Answer::Now(shared.accept(k, Word::End)),
        Err(error) => Answer::Now(Reply::Refused { why: error.to_string() }),
    }
}

impl Guest {
    /// Reads the daemon's commands. An incomplete command of a daemon that has disconnected is
    /// dropped.
    fn hear(&mut self) {
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => self.gone = true,
                Ok(length) => {
                    self.heard.extend_from_slice(&piece[..length]);
                    if self.heard.len() <= LONGEST_COMMAND {
                        continue;
                    }
                    self.gone = true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.gone = true,
            }
            return;
        }
    }

    fn next_line(&mut self) -> Option<Vec<u8>> {
        let at = self.heard.iter().position(|it| *it == b'\n')?;
        let rest = self.heard.split_off(at + 1);
        let mut line = std::mem::replace(&mut self.heard, rest);
        line.truncate(at);
        Some(line)
    }

    fn answer(&mut self, reply: &Reply) {
        self.answers.extend(serde_json::to_vec(reply).unwrap_or_default());
        self.answers.push(b'\n');
        self.gone |= self.answers.len() > MOST_ANSWERS;
    }

    fn flush(&mut self) {
        while !self.answers.is_empty() && !self.gone {
            match self.stream.write(&self.answers) {
                Ok(length) => drop(self.answers.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.gone = true,
            }
        }
    }
}
