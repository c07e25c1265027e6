//! Passes listening sockets over a unix socket from a sandbox to the shim, the supervisor process
//! outside the sandbox. The sender is the init process, which is the first process inside the
//! sandbox.
//!
//! The init process waits until the shim lets it continue.

use std::fs::{File, Permissions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt::socket_peercred,
};

/// The time for which the init process and the supervisor process each wait for the other.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that a rejected process may take to send its first byte. Other processes wait
/// meanwhile.
const REJECTED_PEER_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns a short path to the socket, through `/proc/self/fd`. The socket's own path may be too
/// long, because a socket's address holds only 107 bytes. The path is valid while the returned
/// directory is open.
fn short_path(path: &Path) -> io::Result<(File, PathBuf)> {
    let directory = File::open(path.parent().unwrap_or(Path::new("/")))?;
    let name = path.file_name().unwrap_or_default();
    let short = Path::new("/proc/self/fd")
        .join(directory.as_raw_fd().to_string())
        .join(name);
    Ok((directory, short))
}

/// Creates the unix socket at `path`. Only the user who runs this process may connect.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let (_directory, short) = short_path(path)?;
    match std::fs::remove_file(&short) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&short)?;
    std::fs::set_permissions(&short, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Waits until the init process connects, and receives `count` listening sockets from it. Other
/// processes are rejected. For example, an init process whose supervisor process has died may find
/// the socket of the next supervisor.
pub(super) fn receive_sockets(
    listener: &UnixListener,
    count: usize,
    is_expected: &dyn Fn(u32) -> bool,
) -> io::Result<(UnixStream, Vec<OwnedFd>)> {
    let mut peer = loop {
        let (mut peer, _) = listener.accept()?;
        // Identify the peer by its process id, which the socket's credentials give as seen in this
        // process's PID namespace.
        let pid = socket_peercred(&peer)?.pid.as_raw_nonzero().get();
        if is_expected(pid.unsigned_abs()) {
            break peer;
        }
        // Read the peer's byte before replying, because closing a connection with unread data would
        // discard the reply.
        peer.set_read_timeout(Some(REJECTED_PEER_TIMEOUT))?;
        drop(peer.read(&mut [0; 1]));
        drop(peer.write_all(b"n"));
    };
    peer.set_read_timeout(Some(HANDOVER_TIMEOUT))?;
    let mut buffer = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut buffer);
    let mut byte = [0; 1];
    recvmsg(
        &peer,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut sockets = vec![];
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            sockets.extend(fds);
        }
    }
    if sockets.len() != count {
        drop(peer.write_all(b"n"));
        return Err(io::Error::other(format!(
            "the init process passed {} sockets instead of {count}",
            sockets.len()
        )));
    }
    Ok((peer, sockets))
}

/// Tells the init process that the supervisor process now accepts connections on its sockets, so
/// the init process may continue.
pub(super) fn acknowledge(mut peer: UnixStream) -> io::Result<()> {
    peer.write_all(b"y")
}

/// Listens on `addresses`, passes the listening sockets to the supervisor process over the unix
/// socket, and waits for the supervisor's reply. Afterwards no socket is open in this process.
pub(crate) fn send_sockets(socket: &Path, addresses: &[SocketAddr]) -> Result<(), String> {
    let mut sockets = vec![];
    for address in addresses {
        let listener = TcpListener::bind(address);
        sockets.push(listener.map_err(|error| {
            format!("no socket can listen on {address} in the sandbox ({error})")
        })?);
    }
    let hand_over = || -> io::Result<bool> {
        let (_directory, short) = short_path(socket)?;
        let mut shim = UnixStream::connect(short)?;
        shim.set_read_timeout(Some(HANDOVER_TIMEOUT))?;
        let fds: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        let mut buffer = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut buffer);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::Error::other("the sockets do not fit into one message"));
        }
        sendmsg(
            &shim,
            &[IoSlice::new(b"s")],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        let mut answer = [0; 1];
        shim.read_exact(&mut answer)?;
        Ok(answer == *b"y")
    };
    match hand_over() {
        Ok(true) => Ok(()),
        Ok(false) => Err("the supervisor process did not let the program start".to_owned()),
        Err(error) => Err(format!(
            "the supervisor process outside the sandbox is not reachable ({error})"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handing_over_too_few_sockets_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = listen(&socket).unwrap();
        let init =
            std::thread::spawn(move || send_sockets(&socket, &["127.0.0.1:0".parse().unwrap()]));
        assert!(receive_sockets(&listener, 2, &|_| true).is_err());
        assert!(
            init.join()
                .unwrap()
                .unwrap_err()
                .contains("did not let the program start")
        );
    }

    #[test]
    fn connection_of_another_process_is_refused_and_the_next_is_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = listen(&socket).unwrap();
        let init =
            std::thread::spawn(move || [send_sockets(&socket, &[]), send_sockets(&socket, &[])]);
        let pids = std::cell::RefCell::new(vec![]);
        let second = |pid| {
            pids.borrow_mut().push(pid);
            pids.borrow().len() == 2
        };
        let (peer, sockets) = receive_sockets(&listener, 0, &second).unwrap();
        acknowledge(peer).unwrap();
        assert!(sockets.is_empty());
        assert_eq!(pids.into_inner(), [std::process::id(); 2]);
        let [first, second] = init.join().unwrap();
        assert!(first.unwrap_err().contains("did not let the program start"));
        second.unwrap();
    }

    #[test]
    fn handed_over_socket_accepts_connections_in_the_receiver() {
        let directory = tempfile::tempdir().unwrap();
        // The path is longer than a socket's address can hold.
        let deep = directory.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let socket = deep.join("socket");
        let listener = listen(&socket).unwrap();
        let init =
            std::thread::spawn(move || send_sockets(&socket, &["127.0.0.1:0".parse().unwrap()]));
        let (connection, mut sockets) = receive_sockets(&listener, 1, &|_| true).unwrap();
        acknowledge(connection).unwrap();
        init.join().unwrap().unwrap();
        let received = TcpListener::from(sockets.remove(0));
        let client = std::net::TcpStream::connect(received.local_addr().unwrap()).unwrap();
        assert_eq!(received.accept().unwrap().1, client.local_addr().unwrap());
    }
}
