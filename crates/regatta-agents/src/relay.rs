//! The address by which a program reaches its daemon, for as long as the program lives (P13).
//!
//! A program is told a port of this machine's loopback once, at its start. The daemon may be killed and come back, and
//! somebody else may have taken its port by then. So the port belongs to the shim, which outlives the daemon: it passes
//! each connection on to the daemon's unix socket, whose path never changes. While no daemon is there, a connection
//! waits a little for the next one.
//!
//! The relay grants nothing: each request through it needs a token, as on the daemon's own port.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How long a connection waits for a daemon that is not there.
const DAEMON_PATIENCE: Duration = Duration::from_secs(20);

/// How soon the daemon's socket is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// How long to wait when the machine has no room for a connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);

/// How many connections are passed on at once; more are closed at once.
const MAX_CONNECTIONS: usize = 64;

/// The stack of a thread that copies bytes.
const STACK_BYTES: usize = 128 * 1024;

/// Where a shim listens for its program, and where it passes connections on to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RelayRecord {
    pub(crate) address: SocketAddr,
    /// The daemon's unix socket.
    pub(crate) socket: PathBuf,
}

/// Takes a free port of loopback.
pub(crate) fn listen() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
}

/// Starts to serve in a thread of its own. The listener is the shim's standard input; a shim that was started twice may
/// have another one there than its record says, and then listens anew.
pub(crate) fn serve(relay: RelayRecord) -> io::Result<()> {
    let given = TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    let listener = match given.local_addr() {
        Ok(address) if address == relay.address => given,
        _ => TcpListener::bind(relay.address)?,
    };
    spawn(move || accept_all(&listener, &relay.socket))
}

fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name("relay".to_owned()).stack_size(STACK_BYTES).spawn(run).map(drop)
}

fn accept_all(listener: &TcpListener, socket: &Path) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((client, _)) = listener.accept() else {
            std::thread::sleep(NO_ROOM_PAUSE);
            continue;
        };
        if open.fetch_add(1, Ordering::SeqCst) >= MAX_CONNECTIONS {
            open.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (socket, counted) = (socket.to_owned(), Arc::clone(&open));
        let begun = spawn(move || {
            // A connection that breaks is the program's to make again.
            let _ended = pass_on(&client, &socket);
            counted.fetch_sub(1, Ordering::SeqCst);
        });
        if begun.is_err() {
            open.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Passes bytes both ways until both sides have ended.
fn pass_on(client: &TcpStream, socket: &Path) -> io::Result<()> {
    client.set_nodelay(true)?;
    let daemon = connect(socket)?;
    let (mut from_client, mut to_daemon) = (client.try_clone()?, daemon.try_clone()?);
    spawn(move || {
        let _ended = io::copy(&mut from_client, &mut to_daemon);
        let _gone = to_daemon.shutdown(Shutdown::Write);
    })?;
    let copied = io::copy(&mut &daemon, &mut &*client);
    // The other direction ends with this one: a daemon that has gone answers nothing more.
    let _gone = client.shutdown(Shutdown::Both);
    let _gone = daemon.shutdown(Shutdown::Both);
    copied.map(drop)
}

/// Connects to the daemon, or to the next one if it is just being replaced.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let deadline = Instant::now() + DAEMON_PATIENCE;
    loop {
        match connect_once(socket) {
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => std::thread::sleep(RETRY_INTERVAL),
            connected => return connected,
        }
    }
}

/// Connects by a path that is short however deep the data directory lies: a socket's address holds 107 bytes.
fn connect_once(socket: &Path) -> io::Result<UnixStream> {
    let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = std::fs::File::open(dir)?;
    UnixStream::connect(Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// P13: a connection that is made while no daemon is there reaches the next one; each daemon answers for itself.
    #[test]
    fn p13_the_relay_reaches_each_daemon_in_turn() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("daemon.sock");
        let listener = listen().unwrap();
        let address = listener.local_addr().unwrap();
        let to = socket.clone();
        spawn(move || accept_all(&listener, &to)).unwrap();
        for nth in 0..3_u8 {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(b"ask").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            // Only now is there a daemon.
            let daemon = UnixListener::bind(&socket).unwrap();
            let (mut guest, _) = daemon.accept().unwrap();
            let mut asked = String::new();
            guest.read_to_string(&mut asked).unwrap();
            assert_eq!(asked, "ask");
            guest.write_all(&[nth]).unwrap();
            drop(guest);
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, [nth]);
            drop(daemon);
            std::fs::remove_file(&socket).unwrap();
        }
    }
}
