//! The protocol between a daemon and a shim: one JSON object per line, over `shim.sock` in the run
//! directory.
//!
//! Every command gets one reply. [`ShimCommand::AwaitRecord`] is answered when the journal grows;
//! the other commands are answered at once and in order. A command that is cut off is dropped with
//! its connection. No data depends on this socket, because the journal is the buffer. A daemon that
//! never reads therefore costs the shim nothing.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::run_dir::RunDir;

/// A command that a daemon sends to a shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub(crate) enum ShimCommand {
    /// Ends the process tree: asks its processes to end, and kills them after the grace period.
    Stop { grace_ms: u64 },
    /// Sends this line to the program. `number` is its number, counted from 1, among all input
    /// including the end of the input. A number that was accepted before is ignored, so a daemon
    /// that reconnects cannot send a line twice.
    #[serde(rename = "say")]
    SendLine {
        #[serde(rename = "k")]
        number: u64,
        line: String,
    },
    /// Closes the program's input. The close has a number too.
    #[serde(rename = "close")]
    CloseInput {
        #[serde(rename = "k")]
        number: u64,
    },
    /// Asks for a reply as soon as the journal has a record after number `after`.
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

/// The shim's reply to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "it")]
pub(crate) enum ShimReply {
    /// The command is done or certainly will be. A [`ShimCommand::SendLine`] was accepted now or
    /// before.
    Ok,
    /// The program does not read the input that is already queued; the daemon should ask again
    /// later.
    Busy,
    /// The program's input is closed.
    Closed,
    /// The journal has grown to this record number.
    Grew {
        #[serde(rename = "n")]
        record: u64,
    },
    /// The command cannot be done, for this reason.
    Refused { why: String },
}

/// Returns a short path to the socket however deep the directory lies, because a socket's address
/// holds only 107 bytes.
fn short_path(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/shim.sock", directory.as_raw_fd()))
}

/// Creates the shim's socket, with access for its owner only.
pub(crate) fn bind(dir: &RunDir) -> io::Result<UnixListener> {
    let directory = File::open(&dir.0)?;
    let path = short_path(&directory);
    // A shim that died before it had begun may have left a socket. The caller holds the lock.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to a shim.
pub(crate) fn connect(dir: &RunDir) -> io::Result<UnixStream> {
    let directory = File::open(&dir.0)?;
    UnixStream::connect(short_path(&directory))
}
