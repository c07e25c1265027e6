//! What a daemon and a shim say to each other: one JSON object a line, over `shim.sock` in the run directory.
//!
//! Every command is answered once: an attach when it can be, the others at once and in order. A command that was cut short goes with its connection. Nothing here is
//! needed to lose nothing: the journal is the buffer, and a daemon that never reads costs the shim nothing.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rundir::RunDir;

/// What a shim can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub(crate) enum Command {
    /// End the tree: ask it, and after the grace kill it.
    Stop { grace_ms: u64 },
    /// Say this line to the program. `k` is its ordinal among all that is said to it, the end of its input included,
    /// from 1: one that was said already is not said again, so that a daemon that re-attaches cannot say a thing twice.
    Say { k: u64, line: String },
    /// Close the program's input. It has an ordinal too.
    Close { k: u64 },
    /// Answer as soon as the journal has a record after this place.
    Attach { seen: u64 },
}

impl Command {
    pub(crate) fn stop(grace: Duration) -> Command {
        Command::Stop { grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX) }
    }

    pub(crate) fn to_line(&self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "it")]
pub(crate) enum Reply {
    /// It is done, or surely will be; of a [`Command::Say`], now or before.
    Ok,
    /// The program does not read what waits for it already: ask again later.
    Busy,
    /// Its input is closed.
    Closed,
    /// The journal has come to this place.
    Grew { n: u64 },
    /// This cannot be done, and why.
    Refused { why: String },
}

/// A path to the socket that is short however deep the directory lies: a socket's address holds 107 bytes.
fn short_path(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/shim.sock", directory.as_raw_fd()))
}

/// Makes the shim's socket, for its owner only.
pub(crate) fn bind(dir: &RunDir) -> io::Result<UnixListener> {
    let directory = File::open(&dir.0)?;
    let path = short_path(&directory);
    // Of a shim that died before it had begun; the caller holds the lock.
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
