//! The supervisor's thread that receives commands for a program. A daemon sends the commands over a
//! socket. If the program is a check, the commands come over standard input, from the daemon that
//! started the check.
//!
//! The thread writes no file and so never waits for the disk. The thread can therefore receive a
//! stop command even while the journal writer waits for the disk.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::state::{ProgramInput, ShimState};
use super::terminate::TreeTerminator;
use crate::process::poll_until;
use crate::shim_protocol::{ShimCommand, ShimReply};

/// The time between asking a check (a command such as a test) to end, because its daemon has died,
/// and killing the check.
const ORPHAN_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// The maximum length in bytes of a command to the supervisor process. The longest command carries
/// an escaped input line for the program.
const MAX_COMMAND_BYTES: usize = 64 << 20;

/// The number of bytes of replies that may be queued for a daemon. A daemon that reads too slowly
/// is disconnected.
const MAX_REPLY_BYTES: usize = 64 << 10;

/// The maximum number of daemons that are connected to one supervisor process.
const MAX_CONNECTIONS: usize = 64;

/// The source of the commands that the supervisor process receives.
pub(super) enum CommandSource {
    Socket(UnixListener),
    /// The supervisor's standard input, for a check (a command such as a test). When the daemon
    /// ends, this input ends too, and the supervisor sets `is_orphaned`.
    StandardInput {
        input: Option<OwnedFd>,
        is_orphaned: Arc<AtomicBool>,
    },
}

pub(super) struct ControlSocket {
    pub(super) source: CommandSource,
    pub(super) shared: Arc<ShimState>,
    pub(super) terminator: TreeTerminator,
    pub(super) clients: Vec<ControlClient>,
}

/// A daemon that is connected to the supervisor's control socket.
pub(super) struct ControlClient {
    stream: UnixStream,
    received: Vec<u8>,
    replies: Vec<u8>,
    /// The number of the last record that the daemon knows, while the daemon waits for the journal
    /// to grow.
    awaits_after: Option<u64>,
    is_gone: bool,
}

impl ControlSocket {
    /// Receives and performs commands until this supervisor process ends. Its main thread ends it
    /// when all children have ended.
    pub(super) fn run(mut self) {
        while self.step().is_ok() {}
    }

    fn step(&mut self) -> io::Result<()> {
        self.wait(self.terminator.next_step_at())?;
        self.shared.control_wakeup.clear();
        let mut stops: Vec<Duration> = self.read_standard_input().into_iter().collect();
        for client in &mut self.clients {
            client.read_commands();
            while let Some(line) = client.next_line() {
                match interpret_command(&line, &self.shared) {
                    CommandAction::Stop(grace) => {
                        stops.push(grace);
                        client.queue_reply(&ShimReply::Ok);
                    }
                    CommandAction::Wait { seen } => client.awaits_after = Some(seen),
                    CommandAction::Reply(reply) => client.queue_reply(&reply),
                }
            }
        }
        if self
            .clients
            .iter()
            .any(|client| client.awaits_after.is_some())
        {
            let last_record = self.shared.await_growth();
            for client in self.clients.iter_mut().filter(|client| {
                client
                    .awaits_after
                    .is_some_and(|awaits_after| awaits_after < last_record)
            }) {
                client.awaits_after = None;
                client.queue_reply(&ShimReply::Grew {
                    record: last_record,
                });
            }
        }
        self.clients.iter_mut().for_each(ControlClient::flush);
        self.clients.retain(|client| !client.is_gone);
        self.accept_clients();
        // If several stop commands arrived, use the shortest grace period.
        self.terminator
            .step(stops.into_iter().min(), self.shared.has_program_ended());
        Ok(())
    }

    fn wait(&self, deadline: Option<Instant>) -> io::Result<()> {
        let mut fds = vec![PollFd::new(&self.shared.control_wakeup.0, PollFlags::IN)];
        match &self.source {
            CommandSource::Socket(listener) if self.clients.len() < MAX_CONNECTIONS => {
                fds.push(PollFd::new(listener, PollFlags::IN));
            }
            CommandSource::StandardInput {
                input: Some(input), ..
            } => fds.push(PollFd::new(input, PollFlags::IN)),
            _ => {}
        }
        for client in &self.clients {
            let flags = if client.replies.is_empty() {
                PollFlags::IN
            } else {
                PollFlags::IN | PollFlags::OUT
            };
            fds.push(PollFd::new(&client.stream, flags));
        }
        poll_until(&mut fds, deadline)?;
        Ok(())
    }

    fn accept_clients(&mut self) {
        let CommandSource::Socket(listener) = &self.source else {
            return;
        };
        while self.clients.len() < MAX_CONNECTIONS
            && let Ok((stream, _)) = listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                self.clients.push(ControlClient {
                    stream,
                    received: vec![],
                    replies: vec![],
                    awaits_after: None,
                    is_gone: false,
                });
            }
        }
    }

    /// Reads commands for a check (a command such as a test), which the daemon that started the
    /// check sends over standard input. The end of the input ends the check. Returns the grace
    /// period of a stop command, if there was one.
    fn read_standard_input(&mut self) -> Option<Duration> {
        let CommandSource::StandardInput { input, is_orphaned } = &mut self.source else {
            return None;
        };
        let fd = input.as_ref()?;
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        if !poll_until(&mut fds, Some(Instant::now())).unwrap_or(false) {
            return None;
        }
        let mut buffer = [0; 512];
        match rustix::io::read(fd, &mut buffer) {
            Ok(0) => {
                *input = None;
                is_orphaned.store(true, Ordering::Release);
                Some(ORPHAN_GRACE_PERIOD)
            }
            Ok(length) => {
                let stops = buffer[..length]
                    .split(|byte| *byte == b'\n')
                    .filter_map(|line| match serde_json::from_slice(line) {
                        Ok(ShimCommand::Stop { grace_ms }) => Some(Duration::from_millis(grace_ms)),
                        _ => None,
                    });
                stops.min()
            }
            Err(_) => None,
        }
    }
}

enum CommandAction {
    Stop(Duration),
    Wait { seen: u64 },
    Reply(ShimReply),
}

fn interpret_command(line: &[u8], state: &ShimState) -> CommandAction {
    match serde_json::from_slice(line) {
        Ok(ShimCommand::Stop { grace_ms }) => CommandAction::Stop(Duration::from_millis(grace_ms)),
        Ok(ShimCommand::AwaitRecord { after: seen }) => CommandAction::Wait { seen },
        Ok(ShimCommand::SendLine { number, line }) => {
            CommandAction::Reply(state.accept_input(number, ProgramInput::Line(line)))
        }
        Ok(ShimCommand::CloseInput { number }) => {
            CommandAction::Reply(state.accept_input(number, ProgramInput::End))
        }
        Err(error) => CommandAction::Reply(ShimReply::Refused {
            why: error.to_string(),
        }),
    }
}

impl ControlClient {
    /// Reads the commands of this daemon. Ignores an incomplete command of a daemon that has
    /// disconnected.
    fn read_commands(&mut self) {
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => self.is_gone = true,
                Ok(length) => {
                    self.received.extend_from_slice(&piece[..length]);
                    if self.received.len() <= MAX_COMMAND_BYTES {
                        continue;
                    }
                    self.is_gone = true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.is_gone = true,
            }
            return;
        }
    }

    fn next_line(&mut self) -> Option<Vec<u8>> {
        let newline = self.received.iter().position(|byte| *byte == b'\n')?;
        let rest = self.received.split_off(newline + 1);
        let mut line = std::mem::replace(&mut self.received, rest);
        line.truncate(newline);
        Some(line)
    }

    fn queue_reply(&mut self, reply: &ShimReply) {
        self.replies
            .extend(serde_json::to_vec(reply).unwrap_or_default());
        self.replies.push(b'\n');
        self.is_gone |= self.replies.len() > MAX_REPLY_BYTES;
    }

    fn flush(&mut self) {
        while !self.replies.is_empty() && !self.is_gone {
            match self.stream.write(&self.replies) {
                Ok(length) => drop(self.replies.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_gone = true,
            }
        }
    }
}
