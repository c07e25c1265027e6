//! The protocol between a daemon and a shim (a program's supervisor process): one JSON object per
//! line, over the unix socket `shim.sock` in the run directory.
//!
//! Every command gets one reply. [`ShimCommand::AwaitRecord`] is answered when the journal grows;
//! the other commands are answered at once and in order. An incomplete command is dropped when its
//! connection ends. No output of the program goes through this socket, because the output is in the
//! journal. A daemon that never reads its replies therefore costs the shim nothing.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::run_dir::RunDir;

/// A command that a daemon sends to a supervisor process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub(crate) enum ShimCommand {
    /// Ends all processes of the supervised program: asks them to end, and kills them after the
    /// grace period.
    Stop { grace_ms: u64 },
    /// Sends this line to the program. `number` counts all inputs of the program from 1, including
    /// the end of the input. An input whose number was accepted before is ignored, so a daemon that
    /// reconnects cannot send a line twice.
    #[serde(rename = "say")]
    SendLine {
        #[serde(rename = "k")]
        number: u64,
        line: String,
    },
    /// Closes the program's input. The end of the input has a number, like an input line.
    #[serde(rename = "close")]
    CloseInput {
        #[serde(rename = "k")]
        number: u64,
    },
    /// Requests a reply as soon as the journal has a record with a number greater than `after`.
    #[serde(rename = "attach")]
    AwaitRecord {
        #[serde(rename = "seen")]
        after: u64,
    },
}

impl ShimCommand {
    pub(crate) fn stop_after(grace: Duration) -> ShimCommand {
        ShimCommand::Stop {
            grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
        }
    }

    pub(crate) fn to_line(&self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// The supervisor's reply to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "it")]
pub(crate) enum ShimReply {
    /// The command was performed or will certainly be performed. As a reply to
    /// [`ShimCommand::SendLine`], `Ok` means that the line was accepted now or earlier.
    Ok,
    /// The queue is full because the program is not reading its input. The daemon should repeat the
    /// command later.
    Busy,
    /// The program's input is closed, so nothing more can be sent.
    Closed,
    /// The journal now has records up to this number.
    Grew {
        #[serde(rename = "n")]
        record: u64,
    },
    /// The supervisor process cannot perform the command, for the reason `why`.
    Refused { why: String },
}

/// Returns a short path to the socket, through the open directory. The socket's own path may be too
/// long, because a socket's address holds only 107 bytes.
fn short_path(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/shim.sock", directory.as_raw_fd()))
}

/// Creates the socket on which a supervisor process receives commands. Only the user who runs the
/// process can connect.
pub(crate) fn bind(dir: &RunDir) -> io::Result<UnixListener> {
    let directory = File::open(&dir.0)?;
    let path = short_path(&directory);
    // Remove an old socket. A supervisor process that died before it had begun may have left a
    // socket behind. The caller holds the supervisor's lock, so no other supervisor uses the
    // socket.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to the supervisor process of this run directory.
pub(crate) fn connect(dir: &RunDir) -> io::Result<UnixStream> {
    let directory = File::open(&dir.0)?;
    UnixStream::connect(short_path(&directory))
}
