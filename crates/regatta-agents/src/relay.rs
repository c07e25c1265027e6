//! Gives a program an address of its daemon that stays valid for as long as the program lives
//! (P13).
//!
//! A program learns the daemon's address once, at its start: a loopback port of this machine. The
//! daemon may be killed and restarted, and another process may have taken the daemon's port by
//! then. The port that the program learns therefore belongs to the shim, its supervisor process,
//! which remains when the daemon ends. The shim passes each connection on to the daemon's unix
//! socket, whose path never changes. While no daemon runs, a connection waits for a limited time
//! for the next daemon.
//!
//! The relay (this forwarding of connections) grants no access by itself, because each request
//! through the relay needs an access token, as on the daemon's own port.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The time for which a program's connection to the daemon waits while no daemon runs.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(20);

/// The interval between attempts to connect to the daemon's socket.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The pause before trying again after a connection could not be accepted for lack of file
/// descriptors or memory.
const NO_RESOURCES_DELAY: Duration = Duration::from_millis(100);

/// The maximum number of open connections of one program. Further connections are closed at once.
const MAX_CONNECTIONS: usize = 64;

/// The stack size of a thread that copies bytes.
const STACK_BYTES: usize = 128 * 1024;

/// The settings of a relay: the address at which a supervisor process accepts its program's
/// connections to the daemon, and the daemon's socket to which it forwards them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RelayRecord {
    pub(crate) address: SocketAddr,
    /// The path of the daemon's unix socket.
    pub(crate) socket: PathBuf,
}

/// Opens a listening socket on a free port of the loopback interface.
pub(crate) fn listen() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
}

/// Starts to pass on connections in a new thread. The supervisor's standard input is the listening
/// socket. If the supervisor process was started twice, the address of that socket may differ from
/// the recorded address. In that case the function itself listens on the recorded address.
pub(crate) fn serve(relay: RelayRecord) -> io::Result<()> {
    let inherited = TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    let listener = match inherited.local_addr() {
        Ok(address) if address == relay.address => inherited,
        _ => TcpListener::bind(relay.address)?,
    };
    spawn(move || accept_all(&listener, &relay.socket))
}

fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new()
        .name("relay".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(run)
        .map(drop)
}

fn accept_all(listener: &TcpListener, socket: &Path) {
    let open_connections = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((client, _)) = listener.accept() else {
            std::thread::sleep(NO_RESOURCES_DELAY);
            continue;
        };
        if open_connections.fetch_add(1, Ordering::SeqCst) >= MAX_CONNECTIONS {
            open_connections.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (socket, counter) = (socket.to_owned(), Arc::clone(&open_connections));
        let spawned = spawn(move || {
            // Ignore an error. If a connection breaks, the program opens a new one.
            let _ended = copy_both_ways(&client, &socket);
            counter.fetch_sub(1, Ordering::SeqCst);
        });
        if spawned.is_err() {
            open_connections.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Connects a client to the daemon's socket and copies bytes in both directions until both sides
/// have ended.
fn copy_both_ways(client: &TcpStream, socket: &Path) -> io::Result<()> {
    client.set_nodelay(true)?;
    let daemon = connect(socket)?;
    let (mut from_client, mut to_daemon) = (client.try_clone()?, daemon.try_clone()?);
    spawn(move || {
        let _ended = io::copy(&mut from_client, &mut to_daemon);
        let _gone = to_daemon.shutdown(Shutdown::Write);
    })?;
    let copied = io::copy(&mut &daemon, &mut &*client);
    // End the other direction too, because a daemon that is gone sends no more replies.
    let _gone = client.shutdown(Shutdown::Both);
    let _gone = daemon.shutdown(Shutdown::Both);
    copied.map(drop)
}

/// Connects to the daemon's socket. If no daemon runs, waits up to [`DAEMON_TIMEOUT`] for the next
/// one.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let deadline = Instant::now() + DAEMON_TIMEOUT;
    loop {
        match connect_once(socket) {
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => std::thread::sleep(RETRY_INTERVAL),
            connected => return connected,
        }
    }
}

/// Connects to the socket through a short path, because a socket's address holds only 107 bytes and
/// the data directory may have a longer path.
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

    /// P13: a connection that is made while no daemon runs reaches the next daemon, and each daemon
    /// answers its own connection.
    #[test]
    fn p13_the_relay_connects_to_each_restarted_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("daemon.sock");
        let listener = listen().unwrap();
        let address = listener.local_addr().unwrap();
        let target = socket.clone();
        spawn(move || accept_all(&listener, &target)).unwrap();
        for nth in 0..3_u8 {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(b"ask").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            // The daemon starts only now.
            let daemon = UnixListener::bind(&socket).unwrap();
            let (mut connection, _) = daemon.accept().unwrap();
            let mut request = String::new();
            connection.read_to_string(&mut request).unwrap();
            assert_eq!(request, "ask");
            connection.write_all(&[nth]).unwrap();
            drop(connection);
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, [nth]);
            drop(daemon);
            std::fs::remove_file(&socket).unwrap();
        }
    }
}
